"""The agents' door: one call is one question and one effect, its agent sees its own alone, and off is off."""

from __future__ import annotations

import asyncio
from collections import Counter as Counted
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from app import access
from app.access import Role
from benchmarks.counting import Counter
from connectors.catalog import Source
from core.budgets import LIMITS, OverLimit
from core.canonical import digest
from core.db import Connection, Database
from core.errors import InputError
from evidence.chain import Actor
from runtime.requests import acting, declaring, policies
from runtime.requests.acting import Wanted, act
from runtime.store import actions
from tests.support.app_stage import PEOPLE, POLICY
from tests.support.outside import Gate

TESTER = Actor("test", "tester")
AGENTS = PEOPLE.replace("groups:", "service_accounts: [{id: bot, owner: eve}, {id: other, owner: bob}]\ngroups:")
DANGER = {"operation": "probe.danger.apply", "input": {"name": "n1"}}
SAFE = {"operation": "probe.effect.apply", "input": {"name": "n1"}}


async def agent(installation: Any, subject: str = "bot") -> httpx.AsyncClient:
    client: httpx.AsyncClient = await installation.client(Role.AGENT, subject=subject)
    client.timeout = httpx.Timeout(60)
    return client


@pytest.fixture
async def bot(installation: Any) -> httpx.AsyncClient:
    await installation.people(AGENTS)
    return await agent(installation)


async def vote(installation: Any, action: str, choice: str, person: str = "ann") -> httpx.Response:
    question = await installation.books.approval(run=UUID(action))
    client = await installation.client(Role.APPROVER, subject=person)
    body = {"choice": choice, "reason": "So be it."}
    answer: httpx.Response = await client.post(f"/v1/approvals/{question.id}/votes", json=body)
    return answer


async def status(bot: httpx.AsyncClient, action: str) -> str:
    return str((await bot.get(f"/v1/actions/{action}")).json()["status"])


async def test_an_allowed_action_is_done_and_answered(installation: Any, bot: httpx.AsyncClient) -> None:
    asked = await bot.post("/v1/actions", json={**SAFE, "session": "S1"})
    assert (asked.status_code, asked.json()["status"]) == (202, "judging"), asked.text
    assert asked.json()["digest"] == digest(SAFE)  # the agent computes the same
    waiting = asyncio.create_task(bot.get(f"/v1/actions/{asked.json()['id']}", params={"wait": 50}))
    await installation.work()
    done = await waiting
    assert (done.status_code, done.json()["status"], done.json()["settled"]) == (200, "applied", True)
    assert len(installation.outside.effects) == 1
    assert await installation.books.bundle(run=UUID(asked.json()["id"]))  # its evidence is judged and signed
    listed = (await bot.get("/v1/actions", params={"session": "S1"})).json()["items"]
    assert [one["id"] for one in listed] == [asked.json()["id"]]
    assert (await bot.get("/v1/actions", params={"session": "S2"})).json()["items"] == []


async def test_a_hundred_identical_calls_are_one_question_and_one_effect(
    installation: Any, bot: httpx.AsyncClient
) -> None:
    answers = await asyncio.gather(*(bot.post("/v1/actions", json=DANGER) for _ in range(100)))
    assert {one.status_code for one in answers} == {202}, [one.text for one in answers if one.status_code != 202][:1]
    (action,) = {one.json()["id"] for one in answers}
    await installation.work()
    changed = await bot.post("/v1/actions", json={**DANGER, "input": {"name": "n2"}})
    await installation.work()
    assert (changed.json()["id"] != action, await status(bot, action)) == (True, "pending")
    assert len(await installation.books.approvals()) == 2
    assert (await vote(installation, action, "approve")).status_code == 200
    await installation.work()
    assert (await status(bot, action), len(installation.outside.effects)) == ("applied", 1)


async def test_a_key_is_one_call_of_one_agent(installation: Any, bot: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    first = (await bot.post("/v1/actions", json=SAFE, headers=headers)).json()["id"]
    await installation.work()
    again = await bot.post("/v1/actions", json=SAFE, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, first)
    other = await bot.post("/v1/actions", json={**SAFE, "input": {"name": "n2"}}, headers=headers)
    assert other.status_code == 409, other.text
    assert (await bot.post("/v1/actions", json=SAFE)).json()["id"] != first  # done once is no reason not to do it again
    stranger = await agent(installation, "other")
    assert (await stranger.post("/v1/actions", json=SAFE, headers=headers)).json()["id"] != first
    for answer in (
        await stranger.get(f"/v1/actions/{first}"),
        await stranger.delete(f"/v1/actions/{first}"),
        await bot.get(f"/v1/actions/{uuid4()}"),
    ):
        assert answer.status_code == 404, answer.text


@pytest.mark.parametrize("choice", ["reject", "expire", "deny"])
async def test_what_was_refused_is_not_asked_again(installation: Any, bot: httpx.AsyncClient, choice: str) -> None:
    call = {**DANGER, "operation": "probe.danger.person", "input": {"who": "n"}} if choice == "deny" else DANGER
    first = (await bot.post("/v1/actions", json=call)).json()["id"]
    await installation.work()
    if choice == "reject":
        assert (await vote(installation, first, "reject")).status_code == 200
    if choice == "expire":
        await installation.trouble.leave_questions_alone(timedelta(hours=2))
        await installation.app.sweeper().sweep()
    await installation.work()
    wanted = {"reject": "rejected", "expire": "expired", "deny": "denied"}[choice]
    assert await status(bot, first) == wanted
    again = await bot.post("/v1/actions", json=call)
    assert (again.status_code, again.json()["id"], again.json()["status"]) == (200, first, wanted)
    text, faces = POLICY.replace("version: 1", "version: 2").replace("PT1H", "PT2H"), installation.app.faces
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", text, "policy.yaml", TESTER)
    assert (await bot.post("/v1/actions", json=call)).json()["id"] != first


@pytest.mark.parametrize(("owner", "acts_for", "refused"), [("ann", None, "ann"), ("eve", "bob", "bob")])
async def test_the_owner_and_whom_it_acts_for_do_not_decide(
    installation: Any, owner: str, acts_for: str | None, refused: str
) -> None:
    await installation.people(AGENTS.replace("owner: eve", f"owner: {owner}"))
    bot = await agent(installation)
    action = (await bot.post("/v1/actions", json={**DANGER, "for": acts_for})).json()["id"]
    await installation.work()
    assert (await vote(installation, action, "approve", refused)).status_code == 403
    assert (await vote(installation, action, "approve", "bob" if refused == "ann" else "ann")).status_code == 200
    await installation.work()
    assert await status(bot, action) == "applied"


RULES = POLICY.replace("version: 1", "version: 2").replace(
    "probe.effect.apply}", "probe.effect.apply}\n    when: {when}"
)


@pytest.mark.parametrize(
    ("when", "wanted"),
    [
        ("agent.id == 'bot' && agent.owner == 'eve' && step.origin == 'agent'", "applied"),
        ("origin.name == [['agent:bot']]", "applied"),
        ("origin.name == [['requester']] || origin.name == [['workflow']]", "denied"),
        ("agent.id == 'other' || agent.owner == 'bob' || agent.id == ''", "denied"),
    ],
)
async def test_rules_know_the_agent_and_that_its_values_are_its_own(
    installation: Any, bot: httpx.AsyncClient, when: str, wanted: str
) -> None:
    faces, text = installation.app.faces, RULES.replace("{when}", when)
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", text, "policy.yaml", TESTER)
    action = (await bot.post("/v1/actions", json=SAFE)).json()["id"]
    await installation.work()
    assert await status(bot, action) == wanted


async def test_many_wait_and_a_vote_reaches_its_own(installation: Any, bot: httpx.AsyncClient) -> None:
    asked = [await bot.post("/v1/actions", json={**DANGER, "input": {"name": f"n{n}"}}) for n in range(15)]
    ids = [one.json()["id"] for one in asked]
    await installation.work()
    waiting = {one: asyncio.create_task(bot.get(f"/v1/actions/{one}", params={"wait": 50})) for one in ids}
    assert (await vote(installation, ids[3], "reject")).status_code == 200
    assert (await waiting.pop(ids[3])).json()["status"] == "rejected"
    assert not any(task.done() for task in waiting.values())
    for task in waiting.values():
        task.cancel()
    await asyncio.gather(*waiting.values(), return_exceptions=True)
    assert {await status(bot, one) for one in waiting} == {"pending"}  # who goes away ends the waiting alone


async def test_whoever_waits_is_answered_at_once_when_the_process_is_to_stop(
    installation: Any, bot: httpx.AsyncClient
) -> None:
    action = (await bot.post("/v1/actions", json=DANGER)).json()["id"]
    await installation.work()
    stop, waiting = asyncio.Event(), installation.app.faces.waiting
    ending = asyncio.create_task(waiting.until(stop))
    asked = [asyncio.create_task(bot.get(f"/v1/actions/{action}", params={"wait": 50})) for _ in range(5)]
    while waiting.count < 5:
        assert await status(bot, action) == "pending"  # it asks, and lets them begin to wait
    stop.set()
    asked.append(asyncio.create_task(bot.get(f"/v1/actions/{action}", params={"wait": 50})))
    assert {((answer := await one).status_code, answer.json()["status"]) for one in asked} == {(202, "pending")}
    await ending


async def test_an_agent_asks_for_so_much_and_no_more(installation: Any, bot: httpx.AsyncClient) -> None:
    for number in range(20):
        await bot.post("/v1/actions", json={**DANGER, "input": {"name": f"n{number}"}})
    await installation.work()
    over = await bot.post("/v1/actions", json=DANGER | {"input": {"name": "more"}})
    assert (over.status_code, over.json()["limit"]) == (429, "agent_questions")
    assert "Retry-After" in over.headers
    attached = await bot.post("/v1/actions", json={**DANGER, "input": {"name": "n3"}})
    assert attached.status_code == 202
    other = await agent(installation, "other")
    assert (await other.post("/v1/actions", json=DANGER)).status_code == 202


async def test_a_withdrawn_action_asks_nobody_any_more(installation: Any, bot: httpx.AsyncClient) -> None:
    action = (await bot.post("/v1/actions", json=DANGER)).json()["id"]
    await installation.work()
    assert (await bot.delete(f"/v1/actions/{action}")).json()["status"] == "canceled"
    assert (await bot.delete(f"/v1/actions/{action}")).status_code == 409
    assert (await vote(installation, action, "approve")).status_code == 409


BAD: dict[str, tuple[Any, int]] = {
    "a secret, which no run's input may hold": ({**DANGER, "input": {"name": "n1", "pin": "1234"}}, 400),
    "no such operation": ({**SAFE, "operation": "probe.none.apply"}, 400),
    "an input that does not fit": ({**SAFE, "input": {"nme": "n"}}, 400),
    "an input of another type": ({**SAFE, "input": {"name": 1}}, 400),
    "a number beyond 2^53": (b'{"operation":"probe.effect.apply","input":{"name":9007199254740993}}', 400),
    "NaN": (b'{"operation":"probe.effect.apply","input":{"name":NaN}}', 400),
    "a lone surrogate": (b'{"operation":"probe.effect.apply","input":{"name":"\\ud800"}}', 400),
    "a text of a megabyte": ({**SAFE, "input": {"name": "x" * 2**20}}, 413),
    "an unknown member": ({**SAFE, "approve": True}, 422),
    "a wait of an hour": ({**SAFE, "wait": 3600}, 422),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_requests_are_refused_and_start_nothing(installation: Any, bot: httpx.AsyncClient, name: str) -> None:
    body, wanted = BAD[name]
    given = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = await bot.post("/v1/actions", headers={"Content-Type": "application/json"}, **given)
    assert answer.status_code == wanted, answer.text
    assert await installation.books.runs() == []


async def test_the_role_is_for_service_accounts_alone(installation: Any, bot: httpx.AsyncClient) -> None:
    database = installation.app.faces.database
    for roles, subject in (((Role.AGENT,), "ann"), ((Role.AGENT, Role.TRIGGER), "bot")):
        with pytest.raises(InputError):
            await access.create_token(database, "default", subject, frozenset(roles), None, TESTER)
    for path in ("/v1/runs", "/v1/approvals", "/v1/audit", "/metrics"):
        assert (await bot.get(path)).status_code == 403


OPEN = """
operations:
  - name: probe.open.apply
    handler: probe:apply
    side_effects: external_call
    risk: medium
    summary: "Set something"
    target: "thing/open"
    in_doubt: probe
    input_schema: {type: object}
    output_schema: {type: object}
"""


OPENED = (
    POLICY.replace("version: 1", "version: 2") + "  - {id: o, match: {operation: probe.open.apply}, outcome: allow}\n"
)


@pytest.fixture
async def opened(installation: Any, bot: httpx.AsyncClient) -> httpx.AsyncClient:
    """The agent, where an operation takes whatever it is given."""
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        sources = [Source("open.yaml", OPEN)]
        await declaring.publish_operations(connection, faces.definitions, "default", sources, TESTER)
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", OPENED, "policy.yaml", TESTER)
    return bot


@pytest.mark.parametrize(("depth", "wanted"), [(32, 202), (33, 400)])
async def test_an_input_is_nested_so_deep_and_no_deeper(
    installation: Any, opened: httpx.AsyncClient, depth: int, wanted: int
) -> None:
    inner = depth - 2  # the body, and the input itself
    given = b'{"operation":"probe.open.apply","input":{"a":' + b"[" * inner + b"]" * inner + b"}}"
    answer = await opened.post("/v1/actions", headers={"Content-Type": "application/json"}, content=given)
    assert answer.status_code == wanted, answer.text
    assert len(await installation.books.runs()) == (wanted == 202)
    if wanted == 202:  # what is taken is done, and is not found too deep later
        await installation.work()
        assert await status(opened, answer.json()["id"]) == "applied"
        assert await installation.books.bundle(run=UUID(answer.json()["id"]))


async def test_an_action_of_another_tenant_is_none(installation: Any, bot: httpx.AsyncClient) -> None:
    await installation.publish("other")
    await installation.people(AGENTS, "other")
    action = (await bot.post("/v1/actions", json=DANGER)).json()["id"]
    elsewhere = await installation.client(Role.AGENT, subject="bot", tenant="other")
    permit = {"nonce": "a" * 32, "digest": digest(DANGER), "wait": 0}
    for answer in (
        await elsewhere.get(f"/v1/actions/{action}"),
        await elsewhere.delete(f"/v1/actions/{action}"),
        await elsewhere.post(f"/v1/actions/{action}/permit", json=permit),
    ):
        assert answer.status_code == 404, answer.text
    assert (await elsewhere.get("/v1/actions")).json()["items"] == []
    await installation.work()
    assert await status(bot, action) == "pending"


async def test_keys_of_an_action_and_workflows_of_an_operation_are_bounded(
    installation: Any, opened: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "KEYS_MAX", 3)
    monkeypatch.setattr(acting, "SHAPES_MAX", 2)
    asked = [await opened.post("/v1/actions", json=DANGER, headers={"Idempotency-Key": f"k{n}"}) for n in range(5)]
    assert [one.status_code for one in asked] == [202] * 3 + [409] * 2, asked[-1].text
    call = {"operation": "probe.open.apply"}
    shapes = [await opened.post("/v1/actions", json={**call, "input": {f"a{n % 3}": n}}) for n in range(6)]
    assert [one.status_code for one in shapes] == [202, 202, 400] * 2, shapes[-1].text
    assert len(await installation.books.runs()) == 5


@pytest.mark.parametrize("name", ["}} ${{ run.id", 'a"] + run.id + trigger.input["a', "a\nsteps", "", "é"])
async def test_the_name_of_an_argument_is_no_expression(installation: Any, bot: httpx.AsyncClient, name: str) -> None:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        sources = [Source("open.yaml", OPEN)]
        await declaring.publish_operations(connection, faces.definitions, "default", sources, TESTER)
    answer = await bot.post("/v1/actions", json={"operation": "probe.open.apply", "input": {name: "x"}})
    assert (answer.status_code, await installation.books.runs()) == (400, []), answer.text


async def test_whom_a_later_request_acts_for_does_not_decide_on_what_it_attaches_to(
    installation: Any, bot: httpx.AsyncClient
) -> None:
    key = {"Idempotency-Key": "k1"}
    action = (await bot.post("/v1/actions", json=DANGER, headers=key)).json()["id"]
    for headers in ({}, key):
        assert (await bot.post("/v1/actions", json={**DANGER, "for": "bob"}, headers=headers)).status_code == 409
    assert (await bot.post("/v1/actions", json=DANGER)).json()["id"] == action
    assert (await bot.delete(f"/v1/actions/{action}")).status_code == 200
    called = ["bob", "ann", None] * 6  # at once
    answers = await asyncio.gather(*(bot.post("/v1/actions", json={**DANGER, "for": one}) for one in called))
    (action,) = {answer.json()["id"] for answer in answers if answer.status_code == 202}
    barred = {one for one, answer in zip(called, answers, strict=True) if answer.status_code == 202} - {None}
    assert len(barred) <= 1
    await installation.work()
    for person in map(str, barred):
        assert (await vote(installation, action, "approve", person)).status_code == 403


async def test_what_retention_took_is_no_answer_and_hides_no_other_action(
    installation: Any, bot: httpx.AsyncClient
) -> None:
    call = {**DANGER, "operation": "probe.danger.person", "input": {"who": "n"}}
    gone = (await bot.post("/v1/actions", json=call)).json()["id"]
    await installation.work()
    assert (await status(bot, gone), await installation.trouble.make_purge_due()) == ("denied", 1)
    await installation.app.sweeper().sweep()
    kept = (await bot.post("/v1/actions", json=SAFE)).json()["id"]
    listed = await bot.get("/v1/actions")
    assert [one["id"] for one in listed.json()["items"]] == [kept], listed.text
    assert (await bot.get(f"/v1/actions/{gone}")).status_code == 404
    assert (await installation.one("SELECT count(*) FROM actions"))[0] == 1  # its keys are gone with it
    again = await bot.post("/v1/actions", json=call)
    assert (again.status_code, again.json()["id"] == gone) == (202, False), again.text


async def test_nobody_hears_that_it_was_not_done_if_it_may_have_been(installation: Any, bot: httpx.AsyncClient) -> None:
    installation.outside.script["n1"] = [OSError("cut off")]
    action = (await bot.post("/v1/actions", json=SAFE)).json()["id"]
    await installation.work()
    assert (await status(bot, action), (await bot.delete(f"/v1/actions/{action}")).status_code) == ("in_doubt", 409)
    operator = await installation.client(Role.OPERATOR)
    assert (await operator.post(f"/v1/runs/{action}/cancel", json={"reason": "enough"})).status_code == 200
    await installation.work()
    assert await installation.status(UUID(action)) == "canceled"
    answer = (await bot.get(f"/v1/actions/{action}")).json()
    assert (answer["status"], answer["settled"]) == ("in_doubt", True)
    gate = installation.outside.gates["n2"] = Gate(after_effect=True)
    slow = (await bot.post("/v1/actions", json={**SAFE, "input": {"name": "n2"}})).json()["id"]
    working = asyncio.create_task(installation.app.worker().work_off())
    await gate.reached.wait()
    assert (await bot.delete(f"/v1/actions/{slow}")).json()["settled"] is False
    gate.opened.set()
    await working
    await installation.work()
    assert (await installation.status(UUID(slow)), await status(bot, slow)) == ("canceled", "applied")


async def test_a_burst_is_bounded_before_it_is_judged(installation: Any, bot: httpx.AsyncClient) -> None:
    for number in range(20):
        await bot.post("/v1/actions", json={**DANGER, "input": {"name": f"n{number}"}})
    assert (await bot.post("/v1/actions", json=DANGER | {"input": {"name": "more"}})).status_code == 429
    await installation.work()
    assert len(await installation.books.approvals()) == 20


async def test_no_burst_passes_the_limits_of_an_agent(installation: Any, bot: httpx.AsyncClient) -> None:
    asked = [{**DANGER, "input": {"name": f"n{number}"}} for number in range(100)]
    other = await agent(installation, "other")
    *answers, beside = await asyncio.gather(
        *(bot.post("/v1/actions", json=one) for one in asked), other.post("/v1/actions", json=DANGER)
    )
    assert (sorted(one.status_code for one in answers), beside.status_code) == ([202] * 20 + [429] * 80, 202)
    await installation.work()
    assert len(await installation.books.approvals()) == 21
    assert {one.json()["limit"] for one in answers if one.status_code == 429} == {"agent_questions"}


async def test_no_burst_by_several_processes_passes_the_actions_of_a_minute(
    installation: Any, bot: httpx.AsyncClient
) -> None:
    faces, many = installation.app.faces, LIMITS["agent_questions"]._replace(most=1_000)

    async def ask(number: int) -> str:
        named = ("default", "main", "bot", TESTER, "probe.effect.apply", {"name": f"n{number}"})
        try:
            await faces.ask("default", act, faces.definitions, Wanted(*named, f"k{number}", asking=many))
        except OverLimit as error:
            return error.limit
        return "begun"

    assert Counted(await asyncio.gather(*map(ask, range(100)))) == {"begun": 60, "agent_actions": 40}


COUNTS = (
    POLICY.replace("version: 1", "version: 2")
    + """
  - {id: persons, match: {operation: probe.danger.person}, outcome: deny}
  - id: counted
    match: {operation: probe.effect.apply}
    when: agent.asked_24h >= 3 || agent.refused_24h > 1 || agent.same_24h > 0 || action.carried_out_by != 'counterseal'
    outcome: deny
"""
)
OTHER = [{**SAFE, "input": {"name": f"n{number}"}} for number in range(9)]
DENIED: dict[str, Any] = {"operation": "probe.danger.person", "input": {"who": "n"}}


@pytest.mark.parametrize(
    ("asked", "outcomes"),
    [
        ([SAFE, *OTHER[2:5]], ["applied", "applied", "applied", "denied"]),
        ([SAFE, SAFE, OTHER[2]], ["applied", "denied", "applied"]),
        ([{**DENIED, "input": {"who": "a"}}, {**DENIED, "input": {"who": "b"}}, SAFE], ["denied", "denied", "denied"]),
        ([{**DENIED, "input": {"who": "a"}}, SAFE], ["denied", "applied"]),
    ],
)
async def test_rules_count_what_an_agent_asks_for(
    installation: Any, bot: httpx.AsyncClient, asked: list[Any], outcomes: list[str]
) -> None:
    faces, found = installation.app.faces, []
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", COUNTS, "policy.yaml", TESTER)
    other = await agent(installation, "other")  # counts for itself
    await other.post("/v1/actions", json=SAFE)
    for call in asked:
        action = (await bot.post("/v1/actions", json=call)).json()["id"]
        await installation.work()
        found.append(await status(bot, action))
        assert await installation.books.bundle(run=UUID(action))
    assert found == outcomes


SHAPED = OPEN.replace("{type: object}", "{type: object, properties: {a: {type: string}, b: {type: string}}}", 1)


async def test_whatever_an_agent_leaves_out_it_publishes_one_workflow_for_an_operation(
    installation: Any, bot: httpx.AsyncClient
) -> None:
    faces = installation.app.faces
    text = (
        POLICY.replace("version: 1", "version: 2")
        + "  - {id: o, match: {operation: probe.open.apply}, outcome: allow}\n"
    )
    async with faces.database.transaction("default") as connection:
        await declaring.publish_operations(connection, faces.definitions, "default", [Source("o.yaml", SHAPED)], TESTER)
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", text, "policy.yaml", TESTER)
    for given in ({}, {"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}):
        answer = await bot.post("/v1/actions", json={"operation": "probe.open.apply", "input": given})
        await installation.work()
        assert await status(bot, answer.json()["id"]) == "applied", answer.text
        assert installation.outside.effects[-1].input == given
    made = "SELECT count(*) FROM workflows WHERE starts_with(name, 'counterseal-action-')"
    assert (await installation.one(made))[0] == 1


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """A count of all that is sent to the database by who connects from now on."""
    counter, connect = Counter(), Database.connect

    async def counting(database: Database) -> Connection:
        connection = await connect(database)
        connection.add_query_logger(counter.tally())
        return connection

    monkeypatch.setattr(Database, "connect", counting)
    return counter


@pytest.fixture
async def counted(counter: Counter, installation: Any) -> tuple[Any, httpx.AsyncClient, Counter]:
    """An installation and its agent; everything is prepared, and counted."""
    await installation.people(AGENTS)
    bot = await agent(installation)
    first = await bot.post("/v1/actions", json={**SAFE, "input": {"name": "first"}})
    assert first.status_code == 202, first.text
    await installation.work()
    return installation, bot, counter


async def test_a_page_of_actions_costs_as_much_whatever_is_on_it(counted: tuple[Any, Any, Counter]) -> None:
    (installation, bot, counter), asked = counted, []
    for number in range(11):
        await bot.post("/v1/actions", json={**SAFE, "input": {"name": f"n{number}"}})
        await installation.work()
    for limit in (12, 1, 12):  # the first one prepares its statements
        before = await counter.read()
        listed = (await bot.get("/v1/actions", params={"limit": limit})).json()["items"]
        assert [one["status"] for one in listed] == ["applied"] * limit
        asked.append((await counter.read() - before).statements)
    assert asked[1] == asked[2], asked


async def test_an_allowed_action_is_three_flushed_commits(counted: tuple[Any, Any, Counter]) -> None:
    installation, bot, counter = counted
    before = await counter.read()
    action = (await bot.post("/v1/actions", json=SAFE)).json()["id"]
    await installation.app.worker().work_off()
    assert (await counter.read() - before).flushes == 3
    assert await status(bot, action) == "applied"


async def test_a_vote_reads_nothing_for_the_others_who_wait(counted: tuple[Any, Any, Counter]) -> None:
    installation, bot, counter = counted
    asked = [await bot.post("/v1/actions", json={**DANGER, "input": {"name": f"n{n}"}}) for n in range(10)]
    ids = [one.json()["id"] for one in asked]
    await installation.work()
    waiting = [asyncio.create_task(bot.get(f"/v1/actions/{one}", params={"wait": 50})) for one in ids * 5]
    while installation.app.faces.waiting.count < 50:
        assert (await status(bot, ids[0])) == "pending"  # it asks, and lets them begin to wait
    before = await counter.read()
    assert (await vote(installation, ids[9], "reject")).status_code == 200
    answers = [await one for one in waiting[9::10]]
    assert {one.json()["status"] for one in answers} == {"rejected"}
    read = await counter.read() - before
    assert read.statements < 45, read  # with one for each of those who wait on, there were more
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
