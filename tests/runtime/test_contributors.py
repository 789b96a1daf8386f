"""Separation of duties (promise 12): who shaped an action comes with its data, from whoever said it.

Each finding that this ends is told as it was found.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from connectors.port import Connectors
from core.identity import Role
from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.engine.book.contributors import mark
from runtime.engine.book.recorded import parts
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.starting import StartRequest, start_named
from runtime.requests.steering import Extending, cancel_run
from runtime.requests.views import RunReader
from runtime.store import books
from tests.support.people import add_person

HEAD = "workflow: w\nversion: 1\nreference: r\nchannels: {amount: {initial: 10}, other: {initial: 0}}\nsteps:\n"
FORM = "{id: form, task: {title: Fill, form: {type: object, properties: {x: {type: string}}}, assign: {group: leads}}}"
PAY = '{id: pay, do: probe.effect.apply, with: {name: pay, value: "VALUE"}}'
RULE = """
policy: p
version: 1
rules:
  - {id: reads, match: {operation: probe.value.read}, outcome: allow}
  - {id: pays, match: {operation: probe.effect.apply}, outcome: needs_approval, approvers: [{group: leads}]MORE}
"""
ERP = Actor("token", "erp")


async def begun(
    runtime: Any, steps: str, policy: str = RULE, more: str = "", people: str = "ana ben requester"
) -> UUID:
    await runtime.tenant()
    await runtime.policy(policy.replace("MORE", more))
    await runtime.publish(HEAD + steps)
    for person in people.split():
        await runtime.person(person, () if person == "requester" else ("leads",))
    run_id: UUID = (await runtime.start("w", {})).run_id
    await runtime.worker().work_off()
    return run_id


def flow(*steps: str, value: str = "x") -> str:
    return "".join(f"  - {step}\n" for step in (*steps, PAY.replace("VALUE", value)))


async def refused(runtime: Any, person: str, did: str) -> None:
    answer = await runtime.vote(person, "approve")
    assert (answer.counted, answer.code) == (False, "separation_of_duties")
    assert answer.sentence == f"You may not decide this: you {did}, and somebody else has to."


async def decided_by(runtime: Any, person: str) -> None:
    assert (await runtime.vote(person, "approve")).counted
    await runtime.worker().work_off()


async def card(runtime: Any) -> Any:
    return (await runtime.books.approval(open=True)).card


async def shaped(runtime: Any) -> list[tuple[str, str, str]]:
    return [(one["name"], one["did"], one["note"]) for one in (await card(runtime))["shaped_by"]]


async def bundle(runtime: Any, run_id: UUID, folder: Path) -> Path:
    signer = FileSigner.load_or_create(folder / "key.pem")
    bundling = Bundling(FileBlobStore(folder / "blobs"), signer, "test", runtime.definitions)
    await runtime.trouble.drop_messages_except("bundle")
    await Dispatcher(runtime.database, bundling.handlers(), "d").work_off()
    written = await runtime.books.bundle(run=run_id)
    return folder / "blobs" / written.uri.removeprefix("file:")


REQUESTED = ("Requester", "requested this", "")


@pytest.mark.req("Q-3")
async def test_whoever_filled_in_a_form_does_not_approve_the_action_built_from_it(runtime: Any, tmp_path: Path) -> None:
    run_id = await begun(runtime, flow(FORM, value="${{ steps.form.output.x }}"))
    await runtime.complete("ana", {"x": "1000000"})
    await runtime.worker().work_off()
    await refused(runtime, "ana", "filled in a form")
    assert await shaped(runtime) == [REQUESTED, ("Ana", "filled in a form (form)", "")]
    await decided_by(runtime, "ben")
    assert await runtime.status(run_id) == "succeeded"
    await runtime.history(run_id)
    reader = RunReader(runtime.faces, runtime.definitions)
    assert (await reader.replay("acme", run_id)).ok
    path = await bundle(runtime, run_id, tmp_path)
    assert verify_bundle(path).ok
    with zipfile.ZipFile(path) as files:
        put = files.read("disclosures.jsonl").decode()
    assert "form_filler" in put
    assert "person:ana" in put


async def test_whoever_filled_in_a_form_that_the_action_does_not_use_may_approve_it(runtime: Any) -> None:
    run_id = await begun(runtime, flow(FORM))
    await runtime.complete("ana", {"x": "1"})
    await runtime.worker().work_off()
    assert await shaped(runtime) == []
    await decided_by(runtime, "ana")
    assert await runtime.status(run_id) == "succeeded"


SIGNAL = '{id: heard, wait: {signal: amount, correlate: x}, set: {amount: "${{ signal.payload }}"}}'
USES = {
    "a channel": flow(SIGNAL, value="${{ string(state.amount) }}"),
    "a condition": f"  - {SIGNAL}\n  - if: ${{{{ state.amount > 5 }}}}\n    then:\n      - {PAY}\n",
    "a loop": f"  - {SIGNAL}\n  - id: each\n    foreach: '${{{{ [state.amount] }}}}'\n    as: one\n"
    f"    steps:\n      - {PAY}\n",
    "another step's result": flow(
        SIGNAL,
        '{id: read, do: probe.value.read, with: {name: "${{ string(state.amount) }}"}}',
        value="${{ steps.read.output.name }}",
    ),
}


@pytest.mark.parametrize("use", USES)
async def test_whoever_sent_a_signal_does_not_approve_what_it_led_to(runtime: Any, use: str) -> None:
    run_id = await begun(runtime, USES[use])
    await runtime.signal("amount:x", 1_000_000, actor=Actor("token", "ana"))
    await runtime.worker().work_off()
    await refused(runtime, "ana", "sent a signal")
    await decided_by(runtime, "ben")
    assert await runtime.status(run_id) == "succeeded"


async def test_a_service_account_shapes_for_its_owner(runtime: Any) -> None:
    await begun(runtime, USES["a channel"])
    await add_person(runtime.database, "acme", "erp", owner="ana")
    await runtime.signal("amount:x", 7, actor=ERP)
    await runtime.worker().work_off()
    await refused(runtime, "ana", "sent a signal")
    assert await shaped(runtime) == [REQUESTED, ("Ana", "sent a signal (heard)", "")]


@pytest.mark.parametrize("added", ["now", "when it is asked"])
async def test_whoever_is_found_to_stand_behind_it_later_is_refused_then(runtime: Any, added: str) -> None:
    await begun(runtime, USES["a channel"])
    await runtime.signal("amount:x", 7, actor=ERP)
    await runtime.worker().work_off()
    assert (await shaped(runtime))[1] == ("token:erp", "sent a signal (heard)", "nobody whom the directory knows")
    if added == "now":
        await add_person(runtime.database, "acme", "erp", owner="ana")
        await refused(runtime, "ana", "sent a signal")
        return
    assert (await runtime.vote("ana", "approve")).counted
    await add_person(runtime.database, "acme", "erp", owner="ana")
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert [one.status for one in await runtime.books.approvals()] == ["superseded", "requested"]


async def test_whoever_added_a_step_does_not_approve_its_action(runtime: Any) -> None:
    run_id = await begun(runtime, "  - {id: go, wait: {signal: go, correlate: x}}\n")
    extra = {"id": "extra", "needs": [], "do": "probe.effect.apply", "with": {"name": "extra"}}
    version = (await runtime.books.run(run_id)).version
    extending = Extending(runtime.faces, runtime.definitions)
    await extending.extend("acme", run_id, Actor("token", "ana"), {"steps": [extra]}, version)
    await runtime.worker().work_off()
    await refused(runtime, "ana", "added this step")
    assert (await shaped(runtime))[1] == ("Ana", "added this step (extra)", "")
    await decided_by(runtime, "ben")
    assert [call.input["name"] for call in runtime.outside.effects] == ["extra"]


async def test_whoever_changed_the_record_does_not_approve_what_comes_of_it(runtime: Any) -> None:
    await begun(runtime, flow())
    changed = (mark(Role.UPDATER, "ana "),)
    request = StartRequest("acme", "main", "servicenow", "2", {}, "somebody", Actor("webhook", "e"), shaped=changed)
    first = await runtime.question()
    assert (await runtime.vote("ben", "reject", on=first)).counted
    await runtime.trouble.forget_refusals()
    await start_named(runtime.faces, runtime.definitions, "w", None, request)
    await runtime.worker().work_off()
    await refused(runtime, "ana", "changed the record")


CHILD = """
workflow: child
version: 1
reference: c
steps:
  - {id: form, task: {title: T, form: {type: object, properties: {x: {type: string}}}, assign: {group: leads}}}
result: ${{ steps.form.output.x }}
"""


@pytest.mark.parametrize("parked", [True, False])
async def test_whoever_shaped_the_result_of_a_run_within_shapes_what_is_made_of_it(runtime: Any, parked: bool) -> None:
    inside = "{id: inner, run: child}"
    await runtime.tenant()
    await runtime.publish(CHILD)
    await runtime.policy(RULE.replace("MORE", ""))
    await runtime.publish(HEAD + flow(inside, value="${{ steps.inner.output }}"))
    for person in ("ana", "ben", "requester"):
        await runtime.person(person, ("leads",))
    run_id = (await runtime.start("w", {})).run_id
    await runtime.worker().work_off()
    await runtime.complete("ana", {"x": "1"})
    await runtime.go_on() if parked else await runtime.worker().work_off()
    await runtime.go_on()
    await refused(runtime, "ana", "filled in a form")
    await decided_by(runtime, "ben")
    assert await runtime.status(run_id) == "succeeded"


async def test_a_run_within_is_shaped_by_those_who_shaped_its_input(runtime: Any) -> None:
    child = CHILD.replace("  - {id: form", f"  - {PAY.replace('VALUE', '${{ trigger.x }}')}\n  - {{id: form")
    inside = '{id: inner, run: child, with: {x: "${{ steps.form.output.x }}"}}'
    await runtime.tenant()
    await runtime.publish(child)
    await begun_with(runtime, f"  - {FORM}\n  - {inside}\n")
    await runtime.complete("ana", {"x": "1"})
    await runtime.go_on()
    await refused(runtime, "ana", "filled in a form")


async def begun_with(runtime: Any, steps: str) -> None:
    await runtime.policy(RULE.replace("MORE", ""))
    await runtime.publish(HEAD + steps)
    for person in ("ana", "ben", "requester"):
        await runtime.person(person, ("leads",))
    await runtime.start("w", {})
    await runtime.worker().work_off()


GATE = "  - {id: ok, needs: [], approve: {summary: Go on?, approvers: {group: leads}}}\n"


async def test_whoever_said_something_while_a_gate_is_open_does_not_decide_at_it(runtime: Any) -> None:
    form = FORM.replace("{id: form,", "{id: form, needs: [],")
    pay = PAY.replace("{id: pay,", "{id: pay, needs: [ok, form],").replace("VALUE", "${{ steps.form.output.x }}")
    run_id = await begun(runtime, f"{GATE}  - {form}\n  - {pay}\n", policy=FACTS)
    await runtime.complete("ana", {"x": "1000000"})
    await runtime.worker().work_off()
    await refused(runtime, "ana", "filled in a form")
    await decided_by(runtime, "ben")
    assert await runtime.status(run_id) == "succeeded"


async def test_the_same_people_decide_at_one_gate_after_another(runtime: Any) -> None:
    second = GATE.replace("ok, needs: []", "then, needs: [ok]")
    run_id = await begun(runtime, GATE + second)
    for _ in range(2):
        await decided_by(runtime, "ana")
    assert await runtime.status(run_id) == "succeeded"


# -- what policy says -------------------------------------------------------------------------------------------------


async def test_a_rule_may_let_those_decide_who_shaped_it_and_the_card_and_the_evidence_say_so(
    runtime: Any, tmp_path: Path
) -> None:
    run_id = await begun(
        runtime, flow(FORM, value="${{ steps.form.output.x }}"), more=", allow: [requester, form_filler]"
    )
    await runtime.complete("ana", {"x": "1"})
    await runtime.worker().work_off()
    note = "may decide all the same"
    assert await shaped(runtime) == [
        ("Requester", "requested this", note),
        ("Ana", "filled in a form (form)", note),
    ]
    await decided_by(runtime, "ana")
    assert await runtime.status(run_id) == "succeeded"
    lines = await runtime.books.lines(run_id)
    (voted,) = [line for line in map(json.loads, lines) if line["type"] == "approval.voted"]
    assert voted["data"]["separation_waived"] is True
    assert verify_bundle(await bundle(runtime, run_id, tmp_path)).ok


@pytest.mark.parametrize(
    ("more", "asks"), [(", tier: high", False), (", tier: high, unresolved: ask", True), ("", True)]
)
async def test_what_nobody_known_has_shaped_is_denied_at_tier_high_unless_the_rule_says_otherwise(
    runtime: Any, more: str, asks: bool
) -> None:
    run_id = await begun(runtime, USES["a channel"], more=more)
    await runtime.signal("amount:x", 7, actor=ERP)
    await runtime.worker().work_off()
    if asks:
        assert (await shaped(runtime))[1] == ("token:erp", "sent a signal (heard)", "nobody whom the directory knows")
        await decided_by(runtime, "ana")
        assert await runtime.status(run_id) == "succeeded"
        return
    error = await runtime.error(run_id)
    assert (await runtime.status(run_id), error["code"]) == ("failed_terminal", "policy_denied")
    assert "'token:erp' sent a signal" in error["message"]
    assert "Add them to the directory" in error["message"]
    assert runtime.outside.effects == []
    assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)).ok


async def test_what_an_unknown_requester_asks_for_is_denied_at_tier_high(runtime: Any) -> None:
    run_id = await begun(runtime, flow(), more=", tier: high", people="ana ben")
    error = await runtime.error(run_id)
    assert error["code"] == "policy_denied"
    assert "'requester' requested this" in error["message"]


FACTS = """
policy: p
version: 1
rules:
  - {id: pays, match: {connector: probe}, outcome: allow}
  - id: added
    match: {operation: probe.effect.apply}
    when: step.origin == 'extension' && step.added_by == 'ana'
    outcome: deny
    because: Ana adds nothing.
  - id: heard
    match: {operation: probe.effect.apply}
    when: action.contributors.exists(c, c.startsWith('signal_sender:'))
    outcome: deny
    because: Signals pay nothing.
"""


@pytest.mark.parametrize("who", ["ana", "ben"])
async def test_rules_read_where_a_step_comes_from(runtime: Any, who: str) -> None:
    run_id = await begun(runtime, "  - {id: go, wait: {signal: go, correlate: x}}\n", FACTS)
    extra = {"id": "extra", "needs": [], "do": "probe.effect.apply", "with": {"name": "extra"}}
    version = (await runtime.books.run(run_id)).version
    extending = Extending(runtime.faces, runtime.definitions)
    await extending.extend("acme", run_id, Actor("token", who), {"steps": [extra]}, version)
    await runtime.worker().work_off()
    assert (await runtime.error(run_id) or {}).get("message") == ("Ana adds nothing." if who == "ana" else None)
    assert len(runtime.outside.effects) == (who == "ben")


async def test_rules_read_who_shaped_an_action(runtime: Any) -> None:
    run_id = await begun(runtime, USES["a channel"], FACTS)
    await runtime.signal("amount:x", 7, actor=ERP)
    await runtime.worker().work_off()
    assert (await runtime.error(run_id))["message"] == "Signals pay nothing."


# -- added steps and open gates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("needs", [[], None, ["read"]])
async def test_a_step_that_is_added_while_a_gate_stands_open_comes_after_it(runtime: Any, needs: Any) -> None:
    read = "  - {id: read, needs: [], do: probe.value.read, with: {name: r}}\n"
    run_id = await begun(runtime, read + GATE, FACTS)
    extra = {"id": "extra", "do": "probe.effect.apply", "with": {"name": "extra"}}
    await runtime.extend(run_id, {"steps": [extra | ({} if needs is None else {"needs": needs})]})
    await runtime.worker().work_off()
    assert (runtime.outside.effects, await runtime.status(run_id)) == ([], "waiting_approval")
    again = runtime.restarted()
    assert (await again.vote("ana", "approve")).counted
    await again.worker().work_off()
    assert [call.input["name"] for call in runtime.outside.effects] == ["extra"]
    assert await runtime.status(run_id) == "succeeded"
    assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)).ok


async def test_a_gate_within_a_loop_holds_up_what_is_added_as_well(runtime: Any) -> None:
    gate = "{id: ok, approve: {summary: Go on?, approvers: {group: leads}}}"
    loop = f"  - id: each\n    foreach: '${{{{ [1] }}}}'\n    as: one\n    steps:\n      - {gate}\n"
    run_id = await begun(runtime, loop, FACTS)
    extra = {"id": "extra", "needs": [], "do": "probe.effect.apply", "with": {"name": "e"}}
    await runtime.extend(run_id, {"steps": [extra]})
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    await decided_by(runtime, "ana")
    assert len(runtime.outside.effects) == 1


# -- the target system ------------------------------------------------------------------------------------------------

A, B = "https://a.example as bot", "https://b.example as bot"


def pointed(runtime: Any, system: str) -> Any:
    """The same runtime, after its settings point to this system."""
    runtime.outside.target = system
    return replace(runtime, connectors=Connectors({"probe": runtime.outside}))


async def test_an_approval_for_one_system_lets_nothing_out_to_another(runtime: Any) -> None:
    at_a = pointed(runtime, A)
    run_id = await begun(at_a, flow())
    assert (await card(at_a))["system"] == A
    assert (await at_a.vote("ana", "approve")).counted
    at_b = pointed(runtime, B)
    await at_b.worker().work_off()
    assert runtime.outside.effects == []
    assert [one.status for one in await runtime.books.approvals()] == ["superseded", "requested"]
    assert (await card(at_b))["system"] == B
    await decided_by(at_b, "ana")
    assert (len(runtime.outside.effects), await runtime.status(run_id)) == (1, "succeeded")


@pytest.mark.parametrize("answer", ["happened", "again"])
async def test_a_doubt_about_one_system_is_not_settled_by_another(runtime: Any, gate: Any, answer: str) -> None:
    at_a = pointed(runtime, A)
    await at_a.tenant()
    await at_a.policy()
    await at_a.publish(HEAD + flow())
    await at_a.person("ana", ("operators",))
    await at_a.person("requester")
    run_id = (await at_a.start("w", {})).run_id
    await at_a.crash(gate, "pay")
    at_b = pointed(runtime, B)
    await at_b.worker().work_off()
    assert (runtime.outside.probes, len(runtime.outside.effects)) == (0, 0)
    asked = await card(at_b)
    assert asked["system"] == A
    assert asked["evidence"] == f"It was sent to {A}. The system now is {B}, so it is neither probed nor sent."
    assert (await at_b.vote("ana", answer)).counted
    await at_b.worker().work_off()
    assert len(runtime.outside.effects) == 0
    if answer == "happened":
        assert await runtime.status(run_id) == "succeeded"
        return
    await runtime.question()  # asked anew: it may not be done there
    back = pointed(runtime, A)
    assert (await back.vote("ana", "again")).counted
    runtime.outside.gates.clear()
    await back.worker().work_off()
    assert (len(runtime.outside.effects), await runtime.status(run_id)) == (1, "succeeded")


# -- what it costs ----------------------------------------------------------------------------------------------------


async def test_where_nobody_but_the_requester_had_a_part_nothing_is_written_of_it(runtime: Any) -> None:
    read = '{id: read, do: probe.value.read, with: {name: "${{ run.requested_by }}"}}'
    run_id = await begun(runtime, flow(read, value="${{ steps.read.output.name }}"))
    await decided_by(runtime, "ana")
    assert await runtime.status(run_id) == "succeeded"
    async with runtime.database.transaction("acme") as connection:
        told = [each.event for each in (await books.read(connection, "acme", run_id)).events]
    assert "shaped" not in await runtime.state(run_id)
    for event in told:
        facts, values = parts(event)
        assert not {"shaped", "contributors", "gates", "system"} & {*facts, *values}
        assert "system" not in (values.get("proposed") or {})


async def test_two_forms_at_once_are_told_apart(runtime: Any) -> None:
    one, two = FORM.replace("{id: form,", "{id: one, needs: [],"), FORM.replace("{id: form,", "{id: two, needs: [],")
    pay = PAY.replace("{id: pay,", "{id: pay, needs: [one, two],").replace("VALUE", "${{ steps.one.output.x }}")
    await begun(runtime, f"  - {one}\n  - {two}\n  - {pay}\n")
    waits = {wait.step: wait.id for wait in await runtime.books.waits(kind="task", open=True)}
    await runtime.complete("ana", {"x": "1"}, waits["one"])
    await runtime.complete("ben", {"x": "2"}, waits["two"])
    await runtime.worker().work_off()
    await refused(runtime, "ana", "filled in a form")
    assert (await runtime.vote("ben", "approve")).counted


@pytest.mark.parametrize(("now", "canceled"), [(A, 1), (B, 0)])
async def test_what_was_begun_at_one_system_is_not_canceled_at_another(runtime: Any, now: str, canceled: int) -> None:
    at_a = pointed(runtime, A)
    run_id = await at_a.go(HEAD + "  - {id: case, do: probe.case.open, with: {name: c}}\n")
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "not needed")
    await pointed(runtime, now).errands()
    assert len(runtime.outside.canceled) == canceled
