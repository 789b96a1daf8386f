"""Open questions under the policy of today: by their own system, their own origins, their own place in the counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Before, Done, Probe, ProbeVerdict
from policy.model import Ruling
from runtime.engine import review
from runtime.engine.commit import ApprovalRow
from runtime.engine.transition import Transition
from tests.engine.agents import piloted
from tests.engine.governing import ASK, DENY, EFFECT, WRITE, Governed, governed, ruled
from tests.engine.test_agent_sources import OWN, apply, read
from tests.engine.test_whole_books import ALLOW_ALL
from tests.support.agents import agent, calls, says

pytestmark = pytest.mark.req("Q-3")


def open_question(run: Governed, **changes: Any) -> tuple[Transition, ApprovalRow]:
    transition = Transition(replace(run.whole(), **changes), run.workflow.graph)
    open_ = [key for key, answer in transition.run.answers.items() if answer.status == "requested"]
    (asked,) = [transition.run.approvals[key] for key in open_]
    return transition, asked


def fate(run: Governed, policy: str, key: str = "a", **changes: Any) -> Ruling | None:
    """Policy's outcome for the open question now; None if it would put just this one."""
    transition, asked = open_question(run, **changes)
    return review.otherwise(transition, run.rows[key], run.workflow, ruled(policy), asked)


def test_a_question_is_about_the_system_that_it_was_asked_for() -> None:
    run = governed(WRITE, ASK)
    run.systems = {"probe": "desk.example"}
    assert fate(run.drive(), ASK) is None
    by_system = ASK.replace("{id: acts,", "{id: acts, when: \"action.system == 'desk.example'\",")
    assert fate(run, by_system) is None
    assert fate(run, by_system.replace("desk.", "other.")) is Ruling.DENY


@pytest.mark.parametrize("system", ["", "desk.example"])
@pytest.mark.parametrize("read", [None, {"values": {"priority": "2"}, "version": "9", "facts": {"editor": "eve"}}])
def test_what_is_judged_anew_is_the_action_that_people_see(
    monkeypatch: pytest.MonkeyPatch, system: str, read: Any
) -> None:
    run = governed(WRITE, ASK).drive()
    transition, asked = open_question(run)
    assert asked.action is not None
    action = {**asked.action, "before": read} | ({"system": system} if system else {})
    transition.systems = {"probe": "another"}
    transition.run.state.shaped["run"] = ["updater  person:ana"]
    built: list[Any] = []
    judged: list[Any] = []
    rebuilt, judge = review.rebuilt_action, review.judge
    monkeypatch.setattr(review, "rebuilt_action", lambda *given: built.append(given) or rebuilt(*given))
    monkeypatch.setattr(review, "judge", lambda *given, **more: judged.append((given, more)) or judge(*given, **more))
    review.otherwise(transition, run.rows["a"], run.workflow, run.policy, replace(asked, action=action))
    before = None if read is None else Before(read["values"], read["version"], read["facts"])
    assert built == [(run.workflow.operations["probe.record.update"], action["input"], before)]
    ((place, more),) = judged
    assert place[:-1] == (transition, run.rows["a"], run.workflow, run.policy)
    assert (place[-1].system, place[-1].shaped, more) == (system, ("updater:person:ana",), {"counted": False})


def of_agent() -> Governed:
    turns = calls(read("alpha")), calls(apply("secret7")), says("Done.")
    return piloted(agent(), *turns, policy=OWN, outside=lambda *_: Done({"value": "secret7"}))


def test_a_question_of_an_agent_is_judged_by_the_origins_that_were_found_then() -> None:
    key = "triage/2/1"
    assert fate(of_agent(), OWN, key) is None
    for fact, then in (("carries.name == ['probe.value.read#/value']", None), ("carries.name == []", Ruling.DENY)):
        policy = OWN.replace("origin.name.all(o, 'requester' in o)", fact)
        policy = policy.replace("outcome: allow\n    otherwise: needs_approval", "outcome: needs_approval")
        assert fate(of_agent(), policy, key) is then
    seen = OWN.replace("origin.name.all(o, 'requester' in o)", "agent.read == ['probe.value.read']")
    assert fate(of_agent(), seen, key) is Ruling.ALLOW


def in_doubt() -> Governed:
    """An action that is certainly not there is asked about before it is sent again."""
    run = governed(EFFECT).drive(dies=True).dead().rule_by(ASK)
    run.said = [Probe(ProbeVerdict.NOT_APPLIED, "none")]
    return run.drive()


@pytest.mark.req("Q-12")
@pytest.mark.parametrize(
    ("made", "most", "then"),
    [
        (in_doubt, 1, None),
        (in_doubt, 0, Ruling.DENY),
        (lambda: governed(EFFECT, ASK).drive(), 1, None),
        (lambda: governed(EFFECT, ASK).drive(), 0, Ruling.DENY),
    ],
)
def test_an_action_that_was_intended_before_is_counted_once(made: Callable[[], Governed], most: int, then: Any) -> None:
    assert fate(made(), ASK, writes_max=most) is then


def test_a_question_is_void_only_under_the_number_that_judged_it() -> None:
    run = governed(EFFECT, ASK).drive()
    transition, asked = open_question(run, stop=7)
    review.void(transition, run.rows["a"], asked)
    commit = transition.commit()
    told = [(one.kind, one.ordering_key) for one in commit.commands if one.kind == review.VOIDED]
    assert (commit.stop, told) == (7, [("voided", f"approval:{asked.approval_id}")])
    again, _ = open_question(run, stop=7)
    again.message(review.VOIDED, asked.approval_id, "7")
    (voided,) = [one for one in commit.commands if one.kind == review.VOIDED]
    assert voided.command_id == again.rows.commands[0].command_id, "each number voids a question of its own"
    assert [str(move.status) for move in commit.approvals] == ["superseded"]
    assert transition.run.steps["a"].status == "ready"


@pytest.mark.parametrize(("policy", "asks"), [(ASK, True), (DENY, False), (ALLOW_ALL, False)])
def test_a_question_still_asks_if_policy_would_put_just_it(policy: str, asks: bool) -> None:
    run = governed(EFFECT, ASK).drive()
    transition, asked = open_question(run)
    assert review.still_asks(transition, run.rows["a"], run.workflow, ruled(policy), asked) is asks
