"""Lines of a book about an action from its judgement to its outcome, and what stands on its card, in full."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from connectors.port import Done, Parked, Refused
from evidence.chain import Actor
from runtime.definition.workflow import load_workflow
from runtime.engine import waits
from runtime.engine.ask import rejected_before
from runtime.engine.events import ApprovalEscalated, ApprovalReminded
from runtime.engine.instructions import LookUp, open_wait
from runtime.engine.past import blindly, past_of, receipt_rows, step_rows
from runtime.engine.pausing import Pause
from runtime.engine.replaying import unopened
from runtime.engine.told import check_stored, pack_values, read_line
from runtime.engine.transition import Transition
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.governing import ASK, CASE, CATALOG, EFFECT, GATE, HEAD, PEOPLE, WRITE, Governed, governed

TERMS: dict[str, Any] = {
    "tier": "medium",
    "approvers": [{"group": "owners", "of": 2, "source": "group"}],
    "two_person": False,
    "allow": [],
    "unresolved": "ask",
    "expires_seconds": 86400,
    "remind_seconds": [],
    "escalate": None,
    "fresh_seconds": 86400,
}
CARD: dict[str, Any] = {
    "title": "Update x",
    "summary": "Update x",
    "target": "record/x",
    "operation": "probe.record.update",
    "connector": "probe",
    "risk": "medium",
    "reversible": True,
    "reverse": "probe.record.update with the values read before",
    "requester": "someone",
    "workflow": "w",
    "workflow_version": 1,
    "run_id": "#",
    "reference": "r",
    "step": "a",
    "rules": [{"id": "acts", "because": "Look."}],
    "changes": [{"field": "priority", "before": "3", "after": "1"}],
    "inputs": [{"field": "name", "value": "x"}],
    "expires_at": "2026-01-02T02:03:04+00:00",
    "policy_name": "ask",
    "policy_version": 1,
    "policy_digest_short": "#",
    "sensitive": [],
    "evidence": "",
    "tier": "medium",
    "system": "",
    "shaped_by": [{"name": "someone", "did": "requested this", "note": "nobody whom the directory knows"}],
}
PROPOSED: dict[str, Any] = {
    "input": {"name": "x", "fields": {"priority": "1"}},
    "target": "record/x",
    "summary": "Update x",
    "before": {"values": {"priority": "3"}, "version": "7", "facts": {}},
}


def plain(value: Any) -> Any:
    """A value with # in the place of each digest and id."""
    if isinstance(value, str):
        return re.sub(r"[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{12}\b", "#", value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def told(run: Governed, kind: str) -> list[Any]:
    """Everything that the book tells in lines of this kind, public or not."""
    book = [read_line(line, run.values.get(n, {}), KEY) for n, line in enumerate(run.lines)]
    return [plain(to_builtins(each.event)) for each in book if kind == each.event.TYPE]


@pytest.mark.req("U-5")
def test_a_question_about_an_action_shows_all_of_it() -> None:
    run = governed(WRITE, ASK).drive()
    (decision,), (question,) = told(run, "decision.made"), told(run, "approval.requested")
    assert decision == {
        "decision": "#",
        "action": "#",
        "operation": "probe.record.update",
        "outcome": "needs_approval",
        "policies": [{"digest": "#", "name": "ask", "version": 1}],
        "rules": ["acts"],
        "errors": [],
        "digest": "#",
        "fired": [{"id": "acts", "outcome": "needs_approval", "because": "Look."}],
        "faults": [],
        "reasons": ["Look."],
        "facts": {"action.operation": "probe.record.update"},
        "contributors": None,
        "origins": None,
    }
    assert (question.pop("shown"), question.pop("terms"), question.pop("proposed")) == (CARD, TERMS, PROPOSED)
    assert question == {
        "approval": "#",
        "action": "#",
        "card": "#",
        "kind": "action",
        "tier": "medium",
        "committed": [["/approval/#/asked", "#"]],
        "digest": "#",
        "nonce": "n1",
        "requester": "someone",
        "expires": 86400,
        "contributors": None,
    }
    assert [command.kind for command in run.commands.values()] == ["card"]


@pytest.mark.req("U-5")
def test_an_intent_tells_by_what_it_was_let_out() -> None:
    run = governed(WRITE, ASK).drive().answer("ana", "ben").drive()
    (intent,) = told(run, "action.intended")
    assert intent.pop("proposed") == {**PROPOSED, "decision": "#", "approval": "#", "terms": TERMS}
    assert intent == {
        "receipt": "#",
        "action": "#",
        "operation": "probe.record.update",
        "attempt": 1,
        "decision": "#",
        "approval": "#",
        "replaces": None,
        "shared": False,
        "directory": "d1",
        "key": "#",
        "digest": "#",
        "target": "record/x",
        "reversible": True,
        "reverse": {"operation": "probe.record.update", "input": {"name": "x", "fields": {"priority": "3"}}},
        "resolution": None,
        "authority": None,
        "same": "",
    }
    assert told(run, "action.succeeded") == [
        {"receipt": "#", "output": {"value": 1}, "external_id": "e1", "usage": None, "unusable": None}
    ]
    (allowed,) = told(governed(WRITE).drive(), "action.intended")
    assert (allowed["approval"], allowed["directory"], allowed["proposed"]) == (
        None,
        None,
        {**PROPOSED, "decision": "#", "approval": None, "terms": None},
    )


@pytest.mark.req("U-5")
def test_a_gate_asks_without_an_action() -> None:
    (question,) = told(governed(GATE).drive(), "approval.requested")
    asked = {"title": "Go on?", "summary": "Go on?", "target": "r", "operation": "approve", "connector": "workflow"}
    without = {"changes": [], "inputs": [], "rules": [], "policy_name": "", "policy_version": 0, "tier": ""}
    words = {"risk": "low", "reverse": "Nothing is done by the answer itself.", "policy_digest_short": ""}
    assert question["shown"] == {**CARD, **asked, **without, **words}
    assert (question["action"], question["kind"], question["proposed"], question["terms"]) == (
        None,
        "gate",
        None,
        TERMS,
    )
    run = governed(GATE).drive().answer("ana", "ben").drive()
    assert (run.status, run.rows["a"].output) == ("succeeded", {"approved": True, "reason": "because"})
    assert len(told(run, "approval.consumed")) == 1


def test_a_question_that_was_rejected_before_says_so() -> None:
    run = governed(GATE).drive().reject()
    error = run.rows["a"].last_error
    assert (run.status, error) == (
        "failed_terminal",
        {"class": "authorization", "code": "rejected", "message": "Not now.", "by": "ana"},
    )
    book = [read_line(line, run.values.get(n, {}), KEY) for n, line in enumerate(run.lines)]
    past = past_of(unopened(RUN_ID, KEY, run.workflow.graph), book, [run.workflow.graph]).run
    transition = Transition(replace(run.view(), run=past), run.workflow.graph)
    assert rejected_before(transition, run.rows["a"]) == "It was rejected before, by ana: Not now."
    unnamed = Transition(replace(run.view(), run=replace(past, votes=[])), run.workflow.graph)
    assert rejected_before(unnamed, run.rows["a"]) == "It was rejected before: Not now."
    assert rejected_before(transition, replace(run.rows["a"], key="b")) == ""


STEPWISE = ASK.replace(
    "because: Look.}", "because: Look., remind: [PT1H, PT4H], escalate: {after: PT2H, to: {group: leads}}}"
)


def test_a_question_that_nobody_answers_climbs_its_ladder() -> None:
    run = governed(WRITE, STEPWISE).drive()
    context: Any = run.waits["a"].context
    assert context["ladder"] == [["remind", 3600], ["escalate", 7200], ["remind", 14400], ["expire", 86400]]
    assert (context["next"], run.waits["a"].due_in) == (0, timedelta(hours=1))
    for rung, (kind, due) in enumerate([(ApprovalReminded, 3600), (ApprovalEscalated, 7200)], start=1):
        moved = run.attempt("a", lambda t, s, what=(kind, rung, due): t.tell(_note(t, *what), step="a")).run
        wait, (answer,) = run.waits["a"], moved.answers.values()
        assert ((wait.context or {})["next"], wait.due_in) == (rung, timedelta(seconds=due))
        assert answer.escalated is (kind is ApprovalEscalated)
        assert (open_wait(run.view().run, "a") or wait).context == wait.context


def _note(transition: Any, kind: Any, rung: int, due: int) -> Any:
    wait = open_wait(transition.run, "a")
    assert wait is not None
    return kind(Governed.question(transition, "a"), wait.wait_id, rung, due)


@pytest.mark.req("U-5")
def test_nobody_is_asked_what_nobody_may_answer() -> None:
    class Deserted(Governed):
        def view(self) -> Any:
            return replace(super().view(), directory=type(PEOPLE).of("d2", []))

    run = governed(WRITE, ASK)
    run.__class__ = Deserted
    run.drive()
    assert (run.status, told(run, "approval.requested")) == ("failed_terminal", [])
    assert told(run, "preflight.failed") == [{"check": "people", "operation": None, "directory": "d2"}]
    error = run.rows["a"].last_error or {}
    assert (error["class"], error["code"]) == ("authorization", "nobody_may_decide")


@pytest.mark.parametrize(("systems", "check"), [({}, "connector"), ({"probe": "here"}, "target")])
def test_nobody_is_asked_about_what_could_not_be_done(systems: dict[str, str], check: str) -> None:
    run = governed(WRITE, ASK)
    run.systems, run.refuses = systems, Refused("unreachable", "There is no such table.")
    run.drive()
    failed = {"check": check, "operation": "probe.record.update", "directory": None}
    assert (run.status, told(run, "preflight.failed"), run.sent) == ("failed_terminal", [failed], [])
    error = run.rows["a"].last_error or {}
    words = "Nobody was asked, because probe.record.update could not be performed: There is no such table."
    assert (error["class"], error["code"], error["message"]) == ("transport", "unreachable", words)


@pytest.mark.parametrize("key", ["tenant", "workflow:w", "connector:probe", f"run:{RUN_ID}", "connector:other"])
def test_what_is_paused_calls_nothing_and_waits(key: str) -> None:
    run = governed(EFFECT)
    run.paused = {key: Pause.of(key, {"by": "ana", "reason": "calm", "at": NOW.isoformat()})}
    run.drive()
    if key == "connector:other":
        assert run.status == "succeeded"
        return
    assert (run.status, run.sent, run.told) == ("waiting", [], [])
    wait = run.waits["a"]
    assert (wait.kind, wait.context, wait.due_in) == ("pause", {"paused": key}, None)
    assert str(run.paused[key]).endswith("is paused since 2026-01-01 02:03 UTC by ana: calm")


# -- runs ------------------------------------------------------------------------------------------------------------

LOOPED = HEAD + (
    "  - while: ${{ state.n < %s }}\n    id: loop\n    max: 3\n    steps:\n"
    '      - {id: one, do: probe.value.read, with: {name: "n${{ state.n }}"}, set: {n: "${{ state.n + 1 }}"}}\n'
    '  - {id: last, do: probe.value.read, with: {name: "${{ steps.loop.output.count }} times"}}\n'
)
COUNTS = "channels: {n: {initial: 0}}\nsteps:\n"


@pytest.mark.req("X-11")
@pytest.mark.parametrize(
    ("times", "status"), [(0, "succeeded"), (1, "succeeded"), (3, "succeeded"), (4, "failed_terminal")]
)
def test_a_loop_goes_round_while_its_condition_holds(times: int, status: str) -> None:
    run = governed(LOOPED.replace("steps:\n", COUNTS, 1) % times)
    names: list[str] = []
    while not run.finished and (ready := run.ready()):
        names.append(ready[0])
        run.drive(ready[0])
    rounds = [f"loop[{number}].one" for number in range(min(times, 3))]
    assert (run.status, names) == (status, [*rounds, *(["last"] if status == "succeeded" else [])])
    if status == "succeeded":
        assert run.state.outputs["loop"] == {"count": times}
        assert run.state.loops == {}
    else:
        assert "still holds after 3 iterations; at most 3 are done" in str(run.error or run.view().run.error)


def test_a_condition_that_is_none_fails_the_run_in_its_words() -> None:
    text = HEAD + "  - if: ${{ trigger.n }}\n    then: [{id: a, do: probe.value.read, with: {name: x}}]\n"
    run = Governed(load_workflow(text, "t.yaml", CATALOG), {"n": 3})
    run.open()
    assert run.error == {"class": "expression", "message": "`trigger.n` gives an int, not bool", "step": "if_0"}


@pytest.mark.req("P-11")
def test_a_run_that_is_held_open_ends_when_it_is_sealed() -> None:
    run = governed(EFFECT)
    view = run.view()
    assert not view.run.waits_for_more
    with pytest.raises(Exception, match="waits for no more steps"):
        run.attempt("a", lambda t, _: t.seal(Actor("person", "ana"), "enough"))
    open_ = replace(view.run.copy(), held_open=True)
    assert not replace(open_, executing=1).waits_for_more
    assert not open_.waits_for_more, "it has not waited yet"


def test_a_canceled_run_tells_by_whom_and_why_once() -> None:
    run = governed(EFFECT).drive(dies=True)
    for reason in ("enough", "again"):
        run.attempt("a", lambda t, _, why=reason: t.cancel(Actor("person", "p"), why))
    first, second = told(run, "run.canceled")
    assert (first["reason_given"], first["reason"], second["reason"]) == (True, "enough", "")
    assert run.view().run.canceling == {"by": "p", "reason": "enough"}
    run.dead().said = [Refused("x", "no")]
    assert run.status == "running"


def test_what_was_stored_is_what_its_line_names() -> None:
    run = governed(EFFECT).drive()
    at = 0
    for size in run.sizes:
        stored = pack_values([run.values.get(at + number) for number in range(size)])
        last = run.lines[at + size - 1]
        check_stored(last, stored, KEY)
        at += size
        for wrong, key in ((b"{}", KEY), (None, KEY), (stored, b"x" * 32)):
            if stored is not None and b'"stored":"' in last and (wrong, key) != (stored, KEY):
                with pytest.raises(Exception, match="other values than those that its line names"):
                    check_stored(last, wrong, key)
    check_stored(b'{"data":{}}', None, KEY)


def test_a_run_without_its_graph_is_followed_as_far_as_that_goes() -> None:
    run = governed(CASE, said=(Parked("case-1"),)).drive()
    result = {"output": {"ok": 1}}
    run.over("a", lambda t, s, wait: waits.complete(t, s, wait, result, Actor("token", "t"))).drive()
    book = [read_line(line, run.values.get(n, {}), KEY, n) for n, line in enumerate(run.lines)]
    graph = run.workflow.graph
    blind = blindly(unopened(RUN_ID, KEY, graph), book)
    (receipt,) = blind.receipts.values()
    rows = {**blind.past, **blind.steps}
    assert (rows["a"].status, receipt.status, str(blind.status)) == ("succeeded", "succeeded", "succeeded")
    assert [wait.status for wait in blind.waits.values()] == ["completed"]
    past = past_of(unopened(RUN_ID, KEY, graph), book, [graph], wanted=(0, 1, 9))
    assert [row["superstep"] for row in past.checkpoints] == [0, 1]
    assert [row["source"] for row in past.checkpoints] == ["input", "loop"]
    (step,) = step_rows(past)
    assert (step["step_key"], step["status"], step["output"], step["next_eligible_at"]) == (
        "a",
        "succeeded",
        {"ok": 1},
        None,
    )
    assert (step["created_at"], step["finished_at"]) == (NOW, NOW)
    (shown,) = receipt_rows(past)
    assert (shown["status"], shown["external_id"], shown["attempt"], shown["run_id"]) == (
        "succeeded",
        "case-1",
        1,
        RUN_ID,
    )


def test_a_shared_key_is_looked_up_before_policy_is_asked() -> None:
    run = governed(HEAD + "  - {id: a, do: probe.ticket.open, with: {name: x}}\n")
    seen: list[Any] = []

    class Watched(Governed):
        def carry_out(self, key: str, work: Any) -> Any:
            seen.append(type(work))
            return super().carry_out(key, work)

    run.__class__ = Watched
    run.drive()
    assert (seen[0], run.status) == (LookUp, "succeeded")
    assert told(run, "action.intended")[0]["shared"] is True


def test_an_output_is_where_expressions_find_it() -> None:
    text = HEAD + (
        '  - {id: a, do: probe.value.read, with: {name: x}, set: {n: "${{ output.value }}"}}\n'
        '  - {id: b, do: probe.value.read, with: {name: "${{ steps.a.output.value }}${{ state.n }}"}}\n'
    )
    run = governed(text.replace("steps:\n", COUNTS, 1), said=(Done({"value": 7}), Done({})))
    run.drive("a").drive("b")
    assert (run.status, run.state.channels["n"], run.rows["a"].writes) == ("succeeded", 7, {"n": 7})
    failing = governed(text.replace("steps:\n", COUNTS, 1), said=(Done({}),)).drive("a")
    error = failing.rows["a"].last_error or {}
    assert (failing.status, error["class"]) == ("failed_terminal", "expression")


def test_what_people_are_asked_keeps_its_blanks() -> None:
    text = HEAD + "  - {id: a, approve: {summary: ' Do ${{ 1 }}? ', approvers: {group: owners}}}\n"
    gate: Any = governed(text).workflow.graph.leaf("a")
    assert gate.summary.render({}) == " Do 1? "
