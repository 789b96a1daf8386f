"""An open question and the time that passes: what a keeper says at each rung, when it comes again, how it ends."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from connectors.port import Probe, ProbeVerdict
from evidence.chain import Actor
from runtime.definition.reserved import POLICY_CHANGE
from runtime.engine.instructions import open_wait
from runtime.engine.transition import Transition
from runtime.keep.sweeper import _climb
from tests.engine.governing import ASK, EFFECT, GATE, Governed, governed

pytestmark = pytest.mark.req("Q-3")

TERMS = "because: Look., remind: [PT1H, PT4H], escalate: {after: PT2H, to: {group: leads}}, expires: PT24H}"
STEPWISE = ASK.replace("because: Look.}", TERMS)
REMIND, ESCALATE, EXPIRE = "approval.reminded", "approval.escalated", "approval.expired"


def climbed(run: Governed, age: float, rung: int = 0, workflow: str = "w") -> list[dict[str, Any]]:
    """The lines of the append that a keeper makes at this age of the question, of which so many rungs are behind it."""
    view = replace(run.view(), workflow=workflow)
    transition = Transition(view, run.workflow.graph)
    wait = open_wait(transition.run, "a")
    assert wait is not None
    if rung:
        wait = replace(wait, context={**(wait.context or {}), "next": rung})
    _climb(transition, run.rows["a"], wait, age)
    return [orjson.loads(line) for line in run.apply(transition).lines]


def ordered(run: Governed) -> list[str]:
    """The kinds of what was ordered, in its order."""
    return [command.kind for command in run.commands.values()]


@pytest.mark.parametrize(
    ("rung", "age", "kind", "due", "orders"),
    [
        (0, 3600, REMIND, 3600, ["remind"]),
        (0, 3600.5, REMIND, 3600, ["remind"]),
        (0, 5000, REMIND, 2200, ["remind"]),
        (0, 7199.5, REMIND, 1, ["remind"]),
        (0, 7200, REMIND, 0, ["remind"]),
        (0, 80_000, REMIND, 0, ["remind"]),
        (0, 3000, REMIND, 3600, ["remind"]),
        (1, 7200, ESCALATE, 7200, ["escalate", "card"]),
        (1, 10_000, ESCALATE, 4400, ["escalate", "card"]),
        (2, 14_400, REMIND, 72_000, ["remind"]),
        (2, 86_399.5, REMIND, 1, ["remind"]),
        (0, 86_400, EXPIRE, None, ["card", "bundle"]),
        (1, 86_401, EXPIRE, None, ["card", "bundle"]),
        (2, 90_000, EXPIRE, None, ["card", "bundle"]),
        (3, 80_000, EXPIRE, None, ["card", "bundle"]),
    ],
)
def test_each_rung_is_counted_from_the_question_s_start(
    rung: int, age: float, kind: str, due: int | None, orders: list[str]
) -> None:
    run = governed(EFFECT, STEPWISE).drive()
    first, *_ = climbed(run, age, rung)
    told = first["data"].get("due", None if due is None else 0)
    assert (first["type"], first["step"], told) == (kind, "a", due)
    assert first["data"].get("rung") == (None if due is None else rung + 1)
    assert ordered(run) == ["card", *orders]
    assert run.status == ("waiting_approval" if due is not None else "failed_terminal")


def test_what_was_said_of_a_question_is_said_once() -> None:
    """Each rung has messages of its own, and a rung that is climbed again has the same."""
    run = governed(EFFECT, STEPWISE).drive()
    for rung, age in ((0, 3600), (1, 7200), (2, 14_400)):
        climbed(run, age, rung)
    assert ordered(run) == ["card", "remind", "escalate", "card", "remind"]
    assert len({command.command_id for command in run.commands.values()}) == 5
    assert {command.ordering_key for command in run.commands.values()} == {f"approval:{asked(run)}"}


def asked(run: Governed) -> Any:
    (approval,) = run.view().run.approvals
    return approval


NOT_DONE = {"class": "timeout", "code": "expired", "message": "Nobody decided in time, so it was not done."}
NOT_SAID = {**NOT_DONE, "message": "Nobody said in time what became of it.", "sent": True}


def in_doubt() -> Governed:
    run = governed(EFFECT, ASK).drive().answer("ana", "ben").drive(dies=True).dead()
    run.said = [Probe(ProbeVerdict.CANNOT_TELL, "who knows")]
    return run.drive()


@pytest.mark.parametrize(
    ("made", "error", "lines"),
    [
        (lambda: governed(EFFECT, ASK).drive(), NOT_DONE, []),
        (lambda: governed(GATE).drive(), NOT_DONE, []),
        (in_doubt, NOT_SAID, ["action.doubt_resolved"]),
    ],
)
def test_a_question_that_nobody_answers_ends_with_the_words_for_its_kind(
    made: Any, error: dict[str, Any], lines: list[str]
) -> None:
    run = made()
    told = climbed(run, 7 * 86_400)
    ends = ["wait.timed_out", "step.failed", "checkpoint.committed", "run.closed"]
    assert [line["type"] for line in told] == [EXPIRE, *lines, *ends]
    assert run.rows["a"].last_error == error
    if lines:
        assert told[1]["data"]["resolution"] == "failed"
        (receipt,) = run.whole().run.receipts.values()
        assert (receipt.status, receipt.resolution) == ("failed", "nobody said what became of it in time")


@pytest.mark.parametrize(
    ("workflow", "orders"), [("w", ["card", "card"]), (POLICY_CHANGE, ["card", "card", "proposal"])]
)
def test_whoever_proposed_a_policy_is_told_that_nobody_decided(workflow: str, orders: list[str]) -> None:
    run = governed(GATE).drive()
    climbed(run, 7 * 86_400, workflow=workflow)
    assert [kind for kind in ordered(run) if kind != "bundle"] == orders
    shown = [command.payload for command in run.commands.values() if command.kind != "bundle"]
    assert {payload["approval"] for payload in shown} == {str(next(iter(run.whole().run.approvals)))}


def test_an_end_that_a_branch_handles_resumes_the_step() -> None:
    text = EFFECT.replace("with: {name: x}", "with: {name: x}, on_timeout: [{id: i, do: probe.value.read}]")
    run = governed(text, ASK).drive()
    told = climbed(run, 86_400)
    assert [line["type"] for line in told] == [EXPIRE, "wait.timed_out", "step.resumed", "checkpoint.committed"]
    assert (run.status, run.rows["a"].status) == ("running", "ready")
    assert Actor("engine", "counterseal") == Actor(**told[0]["actor"])
