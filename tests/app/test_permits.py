"""The gate: an agent carries its tool out by a permit, once; whatever is not reported as it was let out is in doubt."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.access import Role
from connectors.catalog import Source, load_catalog
from core.canonical import digest
from core.errors import DefinitionError
from evidence.bundle import build_bundle
from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling, content_of
from runtime.requests import declaring, permits
from tests.support.app_stage import TOOL_RULES
from tests.support.forging import Forged, laid
from tests.support.gated import AGENTS, NONCE, OTHER, TESTER, Bot, agent, begun, call, publish, vote
from tests.support.other_verifiers import by_node, by_python


@pytest.fixture
async def bot(installation: Any) -> Bot:
    return await begun(installation)


REPORTS = {  # what the agent reports, of the call or of another one: the status of the action, and of its receipt
    ("succeeded", True): ("applied", "succeeded"),
    ("failed", True): ("failed", "failed"),
    ("not_run", True): ("failed", "failed"),
    ("unknown", True): ("in_doubt", "in_doubt"),
    **{(outcome, False): ("in_doubt", "in_doubt") for outcome in ("succeeded", "failed", "not_run", "unknown")},
}


@pytest.mark.parametrize(("outcome", "same"), REPORTS)
async def test_what_is_let_out_waits_for_its_agent(installation: Any, bot: Bot, outcome: str, same: bool) -> None:
    wanted, books = call("free", amount=1), installation.books
    action = await bot.ask(wanted)
    assert (await bot.status(action), await books.receipts()) == ("approved", [])
    first = await bot.client.post(f"/v1/actions/{action}/permit", json={"nonce": NONCE, "digest": digest(wanted)})
    assert (first.status_code, first.json()["decision"], await books.receipts()) == (202, "wait", [])
    permit = await bot.permit(action, wanted)
    assert permit == await bot.permit(action, wanted), "its answer may be lost"
    assert ((await books.receipt()).status, await bot.status(action)) == ("intended", "executing")
    ran = wanted if same else call("free", amount=2)
    answers = [await bot.report(action, permit, outcome, ran, output={"sent": 1}, detail="so") for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 200], answers[-1].text
    wanted_status, receipt = REPORTS[outcome, same]
    assert (await bot.status(action), (await books.receipt()).status) == (wanted_status, receipt)
    shown = (await bot.client.get(f"/v1/actions/{action}")).json()
    assert (shown["output"], shown["settled"]) == (
        {"sent": 1} if receipt == "succeeded" else None,
        receipt != "in_doubt",
    )
    other = await bot.report(action, permit, "failed" if outcome == "succeeded" else "succeeded", ran)
    assert other.status_code == 409, other.text
    assert (await bot.fetch(action, wanted)).json()["decision"] == "deny"
    types = await books.event_types(UUID(action))
    assert (types.count("action.intended"), installation.outside.effects) == (1, [])
    if receipt != "in_doubt":
        assert await books.bundle(run=UUID(action)), "its evidence is judged and signed"


async def test_nobody_else_and_nothing_else_gets_a_permit(installation: Any, bot: Bot) -> None:
    wanted = call("send", n=1)
    action = await bot.ask(wanted)
    assert (await bot.status(action), (await bot.fetch(action, wanted)).json()["decision"]) == ("pending", "wait")
    assert (await vote(installation, action, "approve")).status_code == 200
    assert await bot.status(action) == "approved"
    assert (await bot.fetch(action, call("send", n=2))).status_code == 409
    permit, stranger = await bot.permit(action, wanted), await agent(installation, "other")
    assert (await bot.fetch(action, wanted, OTHER)).status_code == 409
    performed = (
        await bot.client.post("/v1/actions", json={"operation": "probe.effect.apply", "input": {"name": "n"}})
    ).json()
    assert (
        await bot.post(f"/{performed['id']}/permit", {"nonce": NONCE, "digest": performed["digest"]})
    ).status_code == 409
    token = (await installation.books.wait(kind="permit", status="waiting")).token
    for wrong in (token, OTHER, permit[:-1] + ("0" if permit[-1] != "0" else "1")):
        body = {"permit": wrong, "outcome": "succeeded", "digest": digest(wanted)}
        assert (await bot.post(f"/{action}/outcome", body)).status_code in (409, 422)
        assert (await bot.beat(action, wrong)).status_code in (409, 422)
    for answer in (
        await stranger.fetch(action, wanted),
        await stranger.beat(action, permit),
        await stranger.report(action, permit, "succeeded", wanted),
    ):
        assert answer.status_code == 404, answer.text
    assert (await bot.beat(action, permit)).status_code == 200
    assert await bot.status(action) == "executing"
    assert (await bot.report(action, permit, "succeeded", wanted)).status_code == 200
    places = await installation.books.mentions(permit)
    assert (await bot.status(action), places) == ("applied", set()), "the permit stands nowhere"
    bundle = await installation.books.bundle(run=UUID(action))
    assert bundle is not None


@pytest.mark.parametrize("said", ["happened", "again", "fail"])
async def test_a_lease_that_ends_without_a_report_leaves_a_doubt(installation: Any, bot: Bot, said: str) -> None:
    action, wanted, permit = await bot.out("free")
    await installation.trouble.make_waits_due("permit")
    assert ((await bot.beat(action, permit)).status_code, await bot.status(action)) == (409, "executing")
    assert (await bot.fetch(action, wanted)).json()["decision"] == "deny"
    await bot.lease_over()
    assert (await bot.status(action), (await installation.books.receipt()).status) == ("in_doubt", "in_doubt")
    answers = [await bot.report(action, permit, "succeeded", wanted) for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 200], answers[-1].text
    assert (await bot.report(action, permit, "failed", wanted)).status_code == 409
    reader = await installation.client(Role.ADMIN)
    (late,) = (await reader.get(f"/v1/runs/{action}/receipts")).json()["items"][0]["late"]
    assert (late["known"], await bot.status(action)) == ("succeeded", "in_doubt"), "it decides nothing"
    assert (await bot.fetch(action, wanted)).json()["decision"] == "deny"
    assert (await vote(installation, action, said)).status_code == 200
    status = "applied" if said == "happened" else "failed"
    assert (await bot.status(action), (await bot.fetch(action, wanted)).json()["decision"]) == (status, "deny")
    assert (await installation.books.event_types(UUID(action))).count("action.intended") == 1
    assert (await bot.report(action, permit, "not_run", wanted)).status_code == 409
    assert await installation.books.bundle(run=UUID(action))


@pytest.mark.parametrize("way", ["retry", "fork"])
async def test_an_action_that_failed_is_asked_for_anew_and_never_repeated(
    installation: Any, bot: Bot, way: str
) -> None:
    action, wanted, permit = await bot.out("free")
    await bot.report(action, permit, "not_run", wanted)
    operator = await installation.client(Role.OPERATOR, Role.ADMIN, subject="ann")
    body = {"reason": "again", **({"at": "action"} if way == "fork" else {})}
    answer = await operator.post(f"/v1/runs/{action}/{way}", json=body)
    assert (answer.status_code, "POST /v1/actions" in answer.json().get("remedy", "")) == (403, True), answer.text
    assert "permit" not in (await bot.fetch(action, wanted, OTHER)).json()
    assert (await installation.books.event_types(UUID(action))).count("action.intended") == 1


async def test_a_report_that_comes_before_the_sweeper_and_after_the_lease_is_late(installation: Any, bot: Bot) -> None:
    action, wanted, permit = await bot.out("free")
    await installation.trouble.make_waits_due("permit")
    assert (await bot.report(action, permit, "succeeded", wanted)).status_code == 200
    assert await bot.status(action) == "in_doubt"


async def test_a_heartbeat_extends_a_lease_up_to_a_bound(installation: Any, bot: Bot) -> None:
    action, wanted, permit = await bot.out("free")
    faces, who = installation.app.faces, permits.Agent("default", "bot", Actor("token", "bot"), UUID(action))
    ends = [(await bot.beat(action, permit)).json()["expires_at"]]
    for _ in range(3):
        await installation.trouble.begin_waits_earlier(timedelta(seconds=200))
        ends.append((await bot.beat(action, permit)).json()["expires_at"])
    assert ends == sorted({*ends}), "each is later"
    bounded = permits.Permits(faces.database, faces.definitions, 300, 700)
    await installation.trouble.begin_waits_earlier(timedelta(seconds=250))
    end = await bounded.beat(who, permit)
    assert end == await bounded.beat(who, permit), "so long and no longer"
    assert (await bot.fetch(action, wanted)).json()["permit"] == permit
    events = (await installation.books.event_types(UUID(action))).count("wait.postponed")
    assert events == len(ends) - 1, "a sign that changes nothing costs nothing"


async def denied(installation: Any, action: str) -> None:
    rules = TOOL_RULES.replace("version: 2", "version: 3").replace("tool == 'send'", "tool == 'none'")
    await publish(installation, rules)


async def gone(installation: Any, action: str) -> None:
    await installation.people(AGENTS.replace("leads: [ann, bob]", "leads: [bob]"))


async def inactive(installation: Any, action: str) -> None:
    await installation.people(AGENTS.replace("{id: bot, owner: eve}", "{id: bot, owner: eve, active: false}"))


async def canceled(installation: Any, action: str) -> None:
    operator = await installation.client(Role.OPERATOR)
    assert (await operator.post(f"/v1/runs/{action}/cancel", json={"reason": "enough"})).status_code == 200


@pytest.mark.parametrize(
    ("meanwhile", "wanted"), [(denied, "superseded"), (gone, "pending"), (inactive, ""), (canceled, "canceled")]
)
async def test_it_is_judged_anew_when_it_is_fetched(installation: Any, bot: Bot, meanwhile: Any, wanted: str) -> None:
    asked = call("send", n=1)
    action = await bot.ask(asked)
    assert (await vote(installation, action, "approve")).status_code == 200
    await meanwhile(installation, action)
    for _ in range(2):
        found = await bot.fetch(action, asked)
    if wanted:
        assert found.json()["decision"] == ("wait" if wanted == "pending" else "deny"), found.text
        assert await bot.status(action) == wanted
    assert await installation.books.receipts() == [], "nothing was intended"
    if wanted == "pending":
        assert (await vote(installation, action, "approve", "bob")).status_code == 200
        assert await bot.status(action) == "approved", "its agent may be gone since then, so it fetches again"
        assert (await bot.fetch(action, asked, OTHER)).status_code == 409
        permit = await bot.permit(action, asked)
        assert (await bot.report(action, permit, "succeeded", asked)).json()["status"] == "applied"


async def test_a_pause_holds_a_permit_back_and_no_report(installation: Any, bot: Bot) -> None:
    action, wanted, permit = await bot.out("free")
    other = call("free", n=2)
    second, operator = await bot.ask(other), await installation.client(Role.OPERATOR)
    paused = await operator.post("/v1/pauses", json={"what": "tenant", "reason": "Look first."})
    assert paused.status_code < 300, paused.text
    assert (await bot.fetch(second, other)).json()["decision"] == "wait"
    assert (await bot.report(action, permit, "succeeded", wanted)).json()["status"] == "applied"
    assert len(await installation.books.receipts()) == 1
    resumed = await operator.post("/v1/pauses/resume", json={"what": "tenant", "reason": "Seen."})
    assert resumed.status_code < 300, resumed.text
    await installation.app.sweeper().sweep()
    permit = await bot.permit(second, other)
    assert (await bot.report(second, permit, "succeeded", other)).json()["status"] == "applied"


STOPS = {  # what people do between the intent and the agent's second fetch, and back: what that fetch gets
    "pause": ("/v1/pauses", "/v1/pauses/resume", {"what": "tenant", "reason": "Look first."}, "wait"),
    "agent": ("/v1/pauses", "/v1/pauses/resume", {"what": "agent", "name": "bot", "reason": "No."}, "wait"),
    "cancel": ("/v1/runs/{}/cancel", None, {"reason": "enough"}, "deny"),
}


@pytest.mark.parametrize("stop", STOPS)
async def test_what_is_stopped_after_its_intent_gets_no_permit(installation: Any, bot: Bot, stop: str) -> None:
    there, back, body, wanted = STOPS[stop]
    asked, operator = call("free", n=1), await installation.client(Role.OPERATOR)
    action = await bot.ask(asked)
    assert (await bot.fetch(action, asked)).json()["decision"] == "wait"
    assert [one.status for one in await installation.books.receipts()] == ["intended"]
    answer = await operator.post(there.format(action), json=body)
    assert answer.status_code < 300, answer.text
    found = (await bot.fetch(action, asked)).json()
    assert (found["decision"], "permit" in found) == (wanted, False)
    if back is not None:
        assert (await operator.post(back, json=body)).status_code < 300
        permit = await bot.permit(action, asked)
        assert (await bot.report(action, permit, "succeeded", asked)).json()["status"] == "applied"
        return
    await bot.lease_over()
    assert await bot.status(action) == "in_doubt"


async def test_who_withdraws_while_the_agent_acts_hears_what_came_of_it(installation: Any, bot: Bot) -> None:
    for reports, wanted in ((True, "applied"), (False, "in_doubt")):
        action, asked, permit = await bot.out("free")
        assert (await bot.client.delete(f"/v1/actions/{action}")).json()["settled"] is False
        if reports:
            assert (await bot.report(action, permit, "succeeded", asked)).status_code == 200
        else:
            await bot.lease_over()
        shown = (await bot.client.get(f"/v1/actions/{action}")).json()
        assert (shown["status"], shown["settled"]) == (wanted, True)
        assert await installation.status(UUID(action)) == "canceled"


async def test_what_is_not_fetched_in_time_is_not_done(installation: Any, bot: Bot) -> None:
    wanted = call("free", n=1)
    action = await bot.ask(wanted)
    await bot.lease_over()
    assert (await bot.status(action), (await bot.fetch(action, wanted)).json()["decision"]) == ("failed", "deny")
    assert await bot.ask(wanted) != action, "it may be asked for again"


DECLARED = """
operations:
  - name: mail.message.send
    connector: agent
    agent_tool: sendMail
    handler: agent:call
    side_effects: external_call
    risk: high
    title: "Send {subject} to {to}?"
    summary: "Send {subject} to {to}"
    target: "mail/{to}"
    in_doubt: ask
    input_schema:
      type: object
      required: [to]
      additionalProperties: false
      properties: {to: {type: string}, subject: {type: string}, key: {type: string, x-secret: true}}
    output_schema: {type: object}
"""


async def test_a_tool_is_judged_by_its_declaration_or_as_any_tool(installation: Any, bot: Bot) -> None:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        sources = [Source("tools.yaml", DECLARED)]
        await declaring.publish_operations(connection, faces.definitions, "default", sources, TESTER)
    rule = (
        "  - {id: mail, match: {operation: mail.message.send}, when: \"action.fields.to == 'ann'\", outcome: allow}\n"
    )
    await publish(installation, TOOL_RULES.replace("version: 2", "version: 3") + rule)
    mail = call("sendMail", to="ann", subject="Hi")
    action = await bot.ask(mail)
    permit = await bot.permit(action, mail)
    assert (await bot.report(action, permit, "succeeded", mail)).json()["status"] == "applied"
    assert (await installation.books.receipt()).operation == "mail.message.send"
    for tool in ("mail.message.send", "sendmail", "agent.tool.call"):  # these are other tools
        assert await bot.status(await bot.ask(call(tool, to="ann"))) == "denied"
    for wrong in (
        call("sendMail", to="ann", key="secret"),
        call("sendMail"),
        {"operation": "mail.message.send", "input": {"to": "ann"}},
        {"operation": "agent.tool.call", "input": {"tool": "free", "arguments": {}}},
    ):
        assert (await bot.post("", wrong)).status_code == 400
    async with faces.database.transaction("default") as connection:  # a second one would be judged by no rule of ours
        sources = [Source("tools.yaml", DECLARED.replace("mail.message.send", "mail.message.again"))]
        await declaring.publish_operations(connection, faces.definitions, "default", sources, TESTER)
    refused = await bot.post("", call("sendMail", to="bob"))
    assert (refused.status_code, "mail.message.again and as" in refused.json()["detail"]) == (400, True)
    for wrong in ({**mail, "operation": "x.y"}, {"mode": "gate", "tool": "free"}, {"tool": "free", "arguments": {}}):
        assert (await bot.post("", wrong)).status_code == 422


@pytest.mark.parametrize(
    "wrong",
    ["side_effects: none", "in_doubt: probe", "kind: durable", "handler: agent:other", "idempotency: {scope: tenant}",
     "connector: probe"],
)  # fmt: skip
async def test_a_declaration_says_nothing_that_does_not_hold_for_a_tool(
    installation: Any, bot: Bot, wrong: str
) -> None:
    key = wrong.partition(":")[0]
    lines = [line for line in DECLARED.splitlines() if not line.strip().startswith(f"{key}:")]
    text = "\n".join([*lines[:3], f"    {wrong}", *lines[3:]])
    with pytest.raises(DefinitionError):
        load_catalog([Source("tools.yaml", text)])


async def test_no_workflow_carries_out_a_tool_of_an_agent(installation: Any, bot: Bot) -> None:
    head = "workflow: tool\nversion: 1\nreference: ${{ trigger.number }}\nsteps:\n"
    await installation.add(head + "  - {id: a, do: agent.tool.call, with: {tool: free, arguments: {}}}\n")
    run = await installation.parked("tool")
    assert (await installation.status(run), await installation.books.receipts()) == ("failed_terminal", [])


def _doubles(f: Forged) -> None:
    """Let a second permit go out, after a decision of its own."""
    made, out = json.loads(json.dumps([f.event("decision.made", -1), f.event("action.intended")]))
    made["data"]["decision"], out["data"]["decision"], out["data"]["receipt"] = NEW, NEW, NEW
    place = f.at("action.intended") + 1
    f.events[place:place] = [made, out]


NEW = "01930000-0000-8000-8000-00000000000a"
FALSE: dict[str, Any] = {  # what somebody who holds the database and the key would have us believe
    "another call ran": lambda f: f.event("action.succeeded")["data"].update(ran="0" * 64),
    "nobody says what ran": lambda f: f.event("action.succeeded")["data"].pop("ran"),
    "it was carried out from here": lambda f: [
        f.event("action.intended")["data"].pop("gate"), f.event("action.succeeded")["data"].pop("ran")
    ],
    "an effect without an intent": lambda f: f.drop("action.intended"),
    "a second permit": _doubles,
}  # fmt: skip


async def test_three_verifiers_find_what_no_permit_let_out(installation: Any, bot: Bot, tmp_path: Path) -> None:
    action, wanted, permit = await bot.out("free")
    assert (await bot.report(action, permit, "succeeded", wanted)).json()["status"] == "applied"
    signer, key = FileSigner.load_or_create(tmp_path / "key.pem"), tmp_path / "public.pem"
    key.write_bytes(signer.public_key.pem)
    making = Bundling(FileBlobStore(tmp_path), signer, "test", installation.app.faces.definitions)
    async with installation.engine.connection() as connection:
        bundle = build_bundle(content_of(await making.material(connection, "default", UUID(action)), "test"), signer)
    paths, found = [laid(tmp_path / "true.zip", bundle)], Forged(bundle)
    (receipt,) = map(json.loads, found.files["receipts.jsonl"].splitlines())
    assert receipt["carried_out_by"] == "the agent, outcome as it reported"
    assert permit.encode() not in b"".join(found.files.values())
    for number, forge in enumerate(FALSE.values()):
        forged = Forged(bundle)
        forge(forged)
        paths.append(laid(tmp_path / f"{number}.zip", forged.sealed(signer)))
    ours = [
        (one.exit_code, {row.check for row in one.failed}) for one in (verify_bundle(p, public_key=key) for p in paths)
    ]
    assert [code for code, _ in ours] == [0] + [ours[1][0]] * len(FALSE)
    assert ours[1][0] != 0
    assert by_python(tmp_path, key, paths) == ours
    assert by_node(tmp_path, key, paths) == ours


@pytest.mark.parametrize("huge", [1e21, 2.0**53, -1e20])
async def test_a_number_beyond_all_integers_is_asked_about_and_bound_as_it_is(
    installation: Any, bot: Bot, huge: float
) -> None:
    wanted = call("send", amount=huge)
    action = await bot.ask(wanted)
    await vote(installation, action, "approve")
    permit = await bot.permit(action, wanted)
    answer = (await bot.report(action, permit, "succeeded", wanted, output=huge)).json()
    assert (answer["status"], answer["output"]) == ("applied", huge)


async def test_a_card_says_who_carries_it_out(installation: Any, bot: Bot) -> None:
    action = await bot.ask(call("send", n=1))
    client = await installation.client(Role.APPROVER, subject="ann")
    question = await installation.books.approval(run=UUID(action))
    shown = (await client.get(f"/v1/approvals/{question.id}")).json()
    assert "carries it out itself; its outcome is as the agent reports it" in json.dumps(shown)
