"""The intent of an action: what is stored of it, which call goes out, and if it is a new life of its effect (Q-15)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from connectors.port import Before, Call
from connectors.proposal import action_json, build_action
from core.canonical import derived_id, digest
from core.identity import Directory
from core.terms import GroupQuorum, Terms, Tier
from evidence.commitments import blind
from evidence.receipts import ReceiptStatus
from runtime.engine.commit import ReceiptRow
from runtime.engine.events import ActionIntended, WaitOpened
from runtime.engine.facts import call_of
from runtime.engine.graph import OperationNode
from runtime.engine.instructions import Known, Perform
from runtime.engine.intend import Authority, Proposal, intend
from runtime.engine.outside import correlation_of
from runtime.engine.transition import Transition
from tests.engine.conftest import KEY, RUN_ID
from tests.engine.governing import CASE, EFFECT, TICKET, WRITE, governed, ruled
from tests.engine.test_folds import receipt
from tests.runtime.conftest import ALLOW_ALL

pytestmark = pytest.mark.req("Q-15")

TERMS = Terms(Tier.HIGH, (GroupQuorum("owners"),))
GROUPS = (GroupQuorum("leads"), GroupQuorum("desk", 2))
APPROVAL, DECISION, OTHER_RUN = UUID(int=70), UUID(int=71), UUID(int=72)
BOUND = "b" * 64
PLAIN = Authority(BOUND, DECISION, None, None)
READ = Before({"priority": "3"}, "7", {"editor": "eve"})
COUNTS = (
    "policy: counts\nversion: 1\nrules:\n  - {id: may, match: {connector: probe},"
    " when: counters.same_in_run < 5, outcome: allow}\n"
)


def proposal(text: str, previous: ReceiptRow | None = None, *, policy: str = ALLOW_ALL, again: int = 0) -> Proposal:
    run = governed(text)
    run.claim("a")
    view = replace(run.view(), version=9, directory=Directory.of("people", []))
    made, leaf = Transition(view, run.workflow.graph), run.workflow.graph.leaf("a")
    assert isinstance(leaf, OperationNode)
    row = made.run.steps["a"] = replace(made.run.steps["a"], again=again)
    if previous is not None and previous.run_id == RUN_ID:
        made.run.receipts[previous.receipt_id] = previous
    known = Known(previous, before=READ if text == WRITE else None)
    operation = run.workflow.operations[leaf.operation]
    return Proposal(made, row, leaf, operation, run.workflow, ruled(policy), known, lambda: "n1")


def intended(p: Proposal, authority: Authority = PLAIN, key: str = "k1") -> tuple[Perform, ActionIntended]:
    inputs = p.leaf.inputs.render(p.transition.variables("a"))
    assert isinstance(inputs, dict)
    work = intend(p, build_action(p.operation, inputs, p.known.before), key, authority)
    assert isinstance(work, Perform)
    assert work.step == p.transition.run.steps["a"], "the step as it is now, with its key"
    (event,) = [one.event for one in p.transition._told if isinstance(one.event, ActionIntended)]
    return work, event


AUTHORITIES: Any = [
    (PLAIN, {}),
    (Authority(BOUND, DECISION, APPROVAL, None), {"approval": str(APPROVAL)}),
    (Authority(BOUND, DECISION, None, TERMS), {"terms": TERMS.to_json()}),
    (Authority(BOUND, DECISION, None, None, GROUPS), {"in_doubt": to_builtins(GROUPS)}),
    (
        Authority(BOUND, DECISION, APPROVAL, TERMS, GROUPS[:1]),
        {"approval": str(APPROVAL), "terms": TERMS.to_json(), "in_doubt": to_builtins(GROUPS[:1])},
    ),
]


@pytest.mark.parametrize(("authority", "noted"), AUTHORITIES)
def test_an_intent_is_told_with_its_authority_and_all_that_was_read(authority: Authority, noted: Any) -> None:
    p = proposal(WRITE)
    work, event = intended(p, authority)
    inputs = {"name": "x", "fields": {"priority": "1"}}
    action = build_action(p.operation, inputs, READ)
    stored = {**action_json(action, READ), "decision": str(DECISION), "approval": None, "terms": None, **noted}
    assert to_builtins(event) == {
        "receipt": str(derived_id(RUN_ID, "receipt:k1:9")), "action": blind(KEY, BOUND),
        "operation": "probe.record.update", "attempt": 1, "decision": str(DECISION),
        "approval": None if authority.approval is None else str(APPROVAL), "replaces": None, "shared": False,
        "directory": None if authority.approval is None else "people", "key": "k1", "digest": BOUND,
        "target": "record/x", "proposed": stored, "reversible": True, "reverse": action.reverse, "resolution": None,
        "authority": None, "same": "",
    }  # fmt: skip
    seconds = p.operation.timeouts.perform.total_seconds()
    assert work.call == Call("probe.record.update", inputs, "k1", seconds, READ)
    assert (work.step, work.receipt) == (p.transition.run.steps["a"], p.transition.run.receipts[event.receipt])
    assert work.step.idempotency_key == "k1"


@pytest.mark.parametrize(("policy", "counted"), [(ALLOW_ALL, False), (COUNTS, True)])
def test_a_call_is_known_by_its_digest_only_if_a_rule_counts_equal_ones(policy: str, counted: bool) -> None:
    p = proposal(EFFECT, policy=policy)
    _, event = intended(p)
    assert event.same == (call_of(build_action(p.operation, {"name": "x"})) if counted else "")


def previous(status: str, *, bound: str = BOUND, run_id: UUID = RUN_ID, key: str = "a") -> ReceiptRow:
    row = receipt(ReceiptStatus(status), key)
    return replace(row, action_digest=bound, run_id=run_id, attempt=4, idempotency_key="k1")


AGAIN: Any = [
    (previous("failed"), True),
    (previous("failed", bound="c" * 64), False),
    (previous("failed", run_id=OTHER_RUN), False),
    (previous("failed", key="b"), False),
    (previous("succeeded"), False),
    (previous("succeeded", run_id=OTHER_RUN), False),
]


@pytest.mark.parametrize(("before", "again"), AGAIN)
def test_a_step_tries_its_own_failed_action_again_and_whatever_else_held_the_key_is_replaced(
    before: ReceiptRow, again: bool
) -> None:
    p = proposal(TICKET, before)
    work, event = intended(p)
    receipt_id = derived_id(RUN_ID, "receipt:k1:9")
    new_life = digest(["k1", str(before.receipt_id)]) if before.status == "succeeded" else None
    assert (event.receipt, event.attempt) == ((before.receipt_id, 5) if again else (receipt_id, 1))
    assert (event.replaces, event.shared, event.key) == (
        (None, False, None) if again else (before.receipt_id, True, "k1")
    )  # fmt: skip
    assert work.call.idempotency_key == (new_life or "k1")
    assert (event.proposed or {}).get("key") == new_life, "the key that was sent is stored if it is another"
    assert (work.receipt and work.receipt.receipt_id) == event.receipt


@pytest.mark.parametrize("again", [0, 1, 2])
def test_what_begins_outside_is_known_by_the_key_of_this_time_that_the_step_began(again: int) -> None:
    p = proposal(CASE, again=again)
    work, event = intended(p)
    key = correlation_of(RUN_ID, "a", again)
    (opened,) = [one.event for one in p.transition._told if isinstance(one.event, WaitOpened)]
    assert (work.call.correlation_key, opened.correlation) == (key, key)
    assert (event.proposed or {}).get("correlation") == (key if again else None)
    assert [str(one.event.TYPE) for one in p.transition._told][-2:] == ["wait.opened", "action.intended"]
