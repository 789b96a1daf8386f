"""Questions before they are put, and once more under another policy, without a database."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.port import NotSent, Probe, ProbeVerdict, Refused
from core.identity import Directory, Entry
from core.terms import Escalation, GroupQuorum, Terms, Tier
from policy.model import Ruling
from runtime.engine.life import readers
from runtime.engine.life.ask import ladder
from runtime.engine.life.transition import Transition
from tests.engine import governing
from tests.engine.governing import ASK, DENY, EFFECT, GATE, WRITE, Governed, governed
from tests.support.runtime_stage import ALLOW_ALL

pytestmark = pytest.mark.req("Q-3")

ONE_IS_ENOUGH = ASK.replace("of: 2", "of: 1").replace("version: 1", "version: 2")
OTHER_RULE = ASK.replace("id: acts", "id: others").replace("version: 1", "version: 2")
OTHER_NAME = ASK.replace("policy: ask", "policy: another").replace("because: Look.", "because: Look closely.")


def judged_now(run: Governed, policy: str | None) -> Ruling | None:
    """The fate of the open question if this is the policy."""
    run.rule_by(policy)
    transition = Transition(run.whole(), run.workflow.graph)
    (asked,) = transition.run.approvals.values()
    place = (transition, run.rows["a"], run.workflow, run.policy, asked)
    found = readers.otherwise(*place)
    assert readers.still_asks(*place) is (found is None)
    return found


@pytest.mark.req("Q-16")
@pytest.mark.parametrize("text", [EFFECT, WRITE])
@pytest.mark.parametrize(
    ("policy", "then"),
    [
        (ASK, None),
        (OTHER_NAME, None),
        (ONE_IS_ENOUGH, Ruling.NEEDS_APPROVAL),
        (ALLOW_ALL, Ruling.ALLOW),
        (DENY, Ruling.DENY),
        (None, Ruling.DENY),
    ],
)
def test_a_policy_voids_the_questions_that_it_decides_otherwise(text: str, policy: str | None, then: Any) -> None:
    assert judged_now(governed(text, ASK).drive(), policy) is then


def test_a_gate_is_no_policys_matter() -> None:
    assert judged_now(governed(GATE).drive(), DENY) is None


def test_a_doubt_is_no_policys_matter() -> None:
    run = governed(EFFECT).drive(dies=True).dead()
    run.said = [Probe(ProbeVerdict.CANNOT_TELL, "evidence")]
    assert run.drive().status == "waiting_approval"
    assert judged_now(run, DENY) is None


def asked_after_it_failed(monkeypatch: pytest.MonkeyPatch) -> Governed:
    """Ask others about an action that was approved and not sent, because those who had approved it have left."""
    run = governed(EFFECT, ASK, said=(NotSent("away"),)).drive().answer("ana", "ben").drive()
    others = [Entry(name, name, groups=frozenset({"owners"})) for name in ("cy", "di")]
    monkeypatch.setattr(governing, "PEOPLE", Directory.of("d2", others))
    return run.due().drive()


def asked_in_doubt(monkeypatch: pytest.MonkeyPatch) -> Governed:
    """Ask about an action that is certainly not there, before it is sent again."""
    run = governed(EFFECT).drive(dies=True).dead().rule_by(ASK)
    run.said = [Probe(ProbeVerdict.NOT_APPLIED, "none")]
    return run.drive()


@pytest.mark.req("Q-16")
@pytest.mark.parametrize(
    ("asked", "policy", "then"),
    [
        (lambda _: governed(EFFECT, ASK).drive(), OTHER_RULE, Ruling.NEEDS_APPROVAL),
        (asked_after_it_failed, OTHER_RULE, Ruling.NEEDS_APPROVAL),
        (asked_after_it_failed, ASK, None),
        (asked_in_doubt, OTHER_RULE, None),
        (asked_in_doubt, ONE_IS_ENOUGH, Ruling.NEEDS_APPROVAL),
        (asked_in_doubt, ALLOW_ALL, Ruling.ALLOW),
    ],
)
def test_only_before_a_repeat_a_question_outlives_the_rule_that_asked_it(
    monkeypatch: pytest.MonkeyPatch, asked: Any, policy: str, then: Any
) -> None:
    """A question before a repeat is bound to the intended action, so that only its terms count."""
    run = asked(monkeypatch)
    assert run.status == "waiting_approval"
    assert judged_of(run, policy) is then


def judged_of(run: Governed, policy: str) -> Ruling | None:
    """The fate of the question that is open now if this is the policy."""
    run.rule_by(policy)
    transition = Transition(run.whole(), run.workflow.graph)
    open_ = [key for key, answer in transition.run.answers.items() if answer.status == "requested"]
    (asked,) = [transition.run.approvals[key] for key in open_]
    return readers.otherwise(transition, run.rows["a"], run.workflow, run.policy, asked)


def test_a_question_that_is_void_is_asked_anew() -> None:
    run = governed(EFFECT, ASK).drive().rule_by(ONE_IS_ENOUGH)
    transition = Transition(run.view(), run.workflow.graph)
    (asked,) = transition.run.approvals.values()
    readers.void(transition, run.rows["a"], asked)
    assert readers.VOIDED in [command.kind for command in run.apply(transition).commands]
    assert (run.drive().status, run.sent) == ("waiting_approval", [])
    assert (run.answer("ana").drive().status, len(run.sent)) == ("succeeded", 1)


GROUP = GroupQuorum("owners")


@pytest.mark.parametrize(
    ("reminders", "escalates", "stages"),
    [
        ((10, 30), 20, [("remind", 10), ("escalate", 20), ("remind", 30), ("expire", 40)]),
        ((10, 39, 40, 41), 40, [("remind", 10), ("remind", 39), ("expire", 40)]),
        ((), None, [("expire", 40)]),
        ((), 39, [("escalate", 39), ("expire", 40)]),
    ],
)
def test_nothing_is_said_when_the_time_is_over(
    reminders: tuple[int, ...], escalates: int | None, stages: list[tuple[str, int]]
) -> None:
    escalate = None if escalates is None else Escalation(escalates, GROUP)
    assert ladder(Terms(Tier.LOW, (GROUP,), remind_seconds=reminders, escalate=escalate), 40) == stages


def test_nobody_is_asked_what_too_few_may_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governing, "PEOPLE", Directory.of("d2", [*governing.PEOPLE.entries.values()][:1]))
    run = governed(EFFECT, ASK).drive()
    assert (run.status, run.asked, run.sent) == ("failed_terminal", 0, [])
    assert (run.rows["a"].last_error or {})["code"] == "nobody_may_decide"


@pytest.mark.parametrize(("systems", "check"), [({}, b'"connector"'), ({"probe": "test"}, b'"target"')])
def test_nobody_is_asked_about_a_call_that_the_settings_refuse(systems: dict[str, str], check: bytes) -> None:
    run = governed(EFFECT, ASK)
    run.systems = systems
    run.refuses = Refused("unset", "There is no key.")
    run.drive()
    assert (run.status, run.asked, run.sent) == ("failed_terminal", 0, [])
    assert (run.rows["a"].last_error or {})["code"] == "unset"
    assert [line for line in run.lines if b"preflight" in line and check in line]
