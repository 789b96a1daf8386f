"""Lines before an action goes out: the decision with all that it rests on, and each intent (Q-16)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from connectors.proposal import action_digest, build_action
from core.canonical import derived_id
from core.identity import Directory
from core.terms import GroupQuorum, Terms, Tier
from evidence.commitments import blind
from evidence.receipts import ReceiptStatus
from policy.evaluate import Decision, FiredRule, RuleError
from policy.facts import ASKED, COUNTER, REFUSED, SAME
from policy.load import PolicyName
from policy.model import Ruling
from runtime.engine.intend import binding, denied, intend_again, is_own, record_decision
from runtime.engine.transition import Transition
from tests.engine.conftest import KEY, RUN_ID
from tests.engine.governing import WRITE, governed
from tests.engine.test_folds import receipt, run_of, step

pytestmark = pytest.mark.req("Q-16")

RUN = governed(WRITE)
VIEW, GRAPH = RUN.view(), RUN.workflow.graph
INPUT: Any = {"name": "x", "fields": {"priority": "1"}}
ACTION = build_action(RUN.workflow.operations["probe.record.update"], INPUT)
TERMS = Terms(Tier.HIGH, (GroupQuorum("owners"),))
ONE, TWO = PolicyName("first", 4, "d" * 64), PolicyName("second", 5, "e" * 64)
FIRED = (
    FiredRule("first/a", Ruling.ALLOW, "Fine."),
    FiredRule("first/b", Ruling.NEEDS_APPROVAL, "Look."),
    FiredRule("second/c", Ruling.NEEDS_APPROVAL, None),
)
FAULTS = (RuleError("first/x", "No such fact."), RuleError("second/y", "Not a number."))


def decision(**more: Any) -> Decision:
    made = Decision(
        Ruling.NEEDS_APPROVAL, (ONE, TWO), FIRED, FAULTS, ("Look.", "Twice."), TERMS, {"action.risk": "high"}
    )
    return replace(made, **more)


def transition(**view: Any) -> Transition:
    given: dict[str, Any] = {"version": 8, "stop": 6, "directory": Directory.of("people", [])}
    return Transition(replace(VIEW, run=run_of(step(), receipt()), **{**given, **view}), GRAPH)


def test_a_decision_is_told_with_every_policy_rule_fault_and_reason() -> None:
    made = transition()
    row = replace(step(), lease_epoch=7, attempt=3)
    found = record_decision(made, row, decision(), replace(ACTION, shaped=("updater:ana", "updater:ben")), "f" * 64)
    (told,) = made._told
    assert (told.step, told.actor.kind, told.actor.id) == ("a", "policy", "first@4+second@5")
    assert to_builtins(told.event) == {
        "decision": str(found), "action": blind(KEY, "f" * 64), "operation": "probe.record.update",
        "outcome": "needs_approval",
        "policies": [
            {"name": "first", "version": 4, "digest": "d" * 64}, {"name": "second", "version": 5, "digest": "e" * 64},
        ],
        "rules": ["first/a", "first/b", "second/c"], "errors": ["first/x", "second/y"], "digest": "f" * 64,
        "fired": [
            {"id": "first/a", "outcome": "allow", "because": "Fine."},
            {"id": "first/b", "outcome": "needs_approval", "because": "Look."},
            {"id": "second/c", "outcome": "needs_approval", "because": None},
        ],
        "faults": [
            {"rule": "first/x", "message": "No such fact."}, {"rule": "second/y", "message": "Not a number."},
        ],
        "reasons": ["Look.", "Twice."], "facts": {"action.risk": "high"},
        "contributors": ["updater:ana", "updater:ben"], "origins": None,
    }  # fmt: skip
    assert made.rows.stop == 6


def test_a_decision_without_policies_or_people_says_so() -> None:
    made = transition()
    record_decision(made, step(), Decision(Ruling.DENY, (), (), (), ("Nothing allows it.",)), ACTION, "f" * 64)
    told: Any = to_builtins(made._told[0].event)
    assert (made._told[0].actor.id, told["policies"], told["rules"], told["contributors"]) == ("none", [], [], None)
    assert made.rows.stop == 6, "a policy that is published meanwhile judges instead"


def test_each_decision_has_an_id_of_its_own() -> None:
    def known(row: Any = None, bound: str = "f" * 64, **view: Any) -> UUID:
        return record_decision(transition(**view), row or step(), decision(), ACTION, bound)

    rows = [replace(step(), lease_epoch=9), replace(step(), attempt=9), replace(step(), key="b")]
    made = transition()
    made.run.steps["b"] = replace(step(), key="b")
    found = {known(), *(known(row) for row in rows[:2]), known(bound="e" * 64), known(version=9)}
    found.add(record_decision(made, rows[2], decision(), ACTION, "f" * 64))
    assert len(found) == 6
    assert known() == known() == derived_id(RUN_ID, f"decision:a:2:0:8:{'f' * 64}")


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("before", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("read", "counted", "recounted"),
    [
        ((), False, False),
        ((COUNTER,), True, False),
        ((SAME,), True, False),
        ((REFUSED,), False, True),
        ((ASKED,), False, True),
        ((COUNTER, ASKED), True, True),
    ],
)
def test_an_append_is_guarded_by_each_count_that_any_of_its_decisions_has_read(
    before: tuple[bool, bool], read: tuple[str, ...], counted: bool, recounted: bool
) -> None:
    made = transition()
    made.rows.counted, made.rows.recounted = before
    record_decision(made, step(), decision(facts_read=dict.fromkeys(read, 1)), ACTION, "f" * 64)
    assert (made.rows.counted, made.rows.recounted) == (before[0] or counted, before[1] or recounted)


def test_what_is_denied_fails_with_every_reason() -> None:
    error = denied(decision(outcome=Ruling.DENY, reasons=("Never.", "Not by night."))).to_json()
    assert error == {"class": "authorization", "code": "policy_denied", "message": "Never. Not by night."}


@pytest.mark.req("Q-14")
def test_an_approval_binds_to_the_rules_that_ask_by_their_own_names() -> None:
    bound = binding(ACTION, decision())
    assert bound == action_digest(ACTION, {"rules": ["b", "c"], "terms": TERMS.to_json()})
    alone = tuple(replace(rule, id=rule.own_id) for rule in FIRED)
    assert binding(ACTION, decision(rules=alone, policies=(ONE,))) == bound, "another policy beside it voids nothing"


# -- intents -----------------------------------------------------------------------------------------------------------

A, B = UUID(int=70), UUID(int=71)
AUTHORITY: Any = {"approval": str(B), "terms": {"t": 2}}


@pytest.mark.parametrize(
    ("stored", "authority", "approval"),
    [
        ({}, None, None),
        ({"approval": None}, None, None),
        ({"approval": str(A)}, None, A),
        ({"approval": str(A)}, AUTHORITY, B),
        ({"approval": None}, AUTHORITY, B),
        ({}, AUTHORITY, B),
    ],
)
@pytest.mark.parametrize("how", [None, "probe: not applied."])
def test_an_action_goes_out_once_more_by_its_last_approval(
    stored: Any, authority: Any, approval: UUID | None, how: str | None
) -> None:
    made = transition()
    known = replace(
        receipt(ReceiptStatus.FAILED),
        attempt=4,
        action_digest="c" * 64,
        action={"input": {}, "terms": {"t": 1}, **stored},
    )
    made.run.receipts[known.receipt_id] = known
    after = intend_again(made, known, UUID(int=5), how, authority)
    assert to_builtins(made._told[0].event) == {
        "receipt": str(known.receipt_id), "action": blind(KEY, "c" * 64), "operation": "probe.effect.apply",
        "attempt": 5, "decision": str(UUID(int=5)), "approval": None if approval is None else str(approval),
        "directory": None if approval is None else "people", "resolution": how, "authority": authority,
        "replaces": None, "shared": False, "key": None, "digest": None, "target": None, "proposed": None,
        "reversible": False, "reverse": None, "same": "",
    }  # fmt: skip
    assert (made._told[0].step, after) == ("a", made.run.receipts[known.receipt_id])
    assert (after.attempt, after.status, after.action) == (5, "intended", {**known.action, **(authority or {})})


@pytest.mark.parametrize(
    ("run_id", "key", "own"),
    [(RUN_ID, "a", True), (RUN_ID, "b", False), (UUID(int=9), "a", False), (UUID(int=9), "b", False)],
)
def test_a_receipt_is_a_steps_own_if_both_run_and_step_are_its(run_id: UUID, key: str, own: bool) -> None:
    assert is_own(transition(), step(), replace(receipt(), run_id=run_id, step_key=key)) is own
