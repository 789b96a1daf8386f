"""Reviewing an open question under the policy that is in force now (promise 3). Pure.

A new policy voids exactly the questions whose decision it changes. What people answer is bound to the action and to the
terms and rules by which they were asked, so any other question, and every answer to it, stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from approvals.model import ApprovalKind
from connectors.port import Before
from connectors.proposal import SYSTEM, rebuilt_action
from core.terms import Terms
from evidence.receipts import ReceiptStatus
from policy.model import Ruling
from policy.sets import PolicySet
from runtime.engine import ask, refusals
from runtime.engine.commit import ApprovalRow, StepRow
from runtime.engine.contributors import whole
from runtime.engine.instructions import last_receipt, open_wait
from runtime.engine.intend import binding, judge
from runtime.engine.tracing import Trace
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow

VOIDED = "voided"


def still_asks(
    transition: Transition, step: StepRow, workflow: Workflow, policy: PolicySet, asked: ApprovalRow
) -> bool:
    """True if policy would put just this question now."""
    return otherwise(transition, step, workflow, policy, asked) is None


def otherwise(
    transition: Transition, step: StepRow, workflow: Workflow, policy: PolicySet, asked: ApprovalRow
) -> Ruling | None:
    """Policy's outcome now, if it would not put just this question: people may be asked another one. None if it would.

    Policy has no part in questions of gates and of doubts, so these stay.
    """
    if asked.kind != ApprovalKind.ACTION or asked.action is None:
        return None
    kept: Mapping[str, Any] = asked.action
    read = kept["before"]
    before = None if read is None else Before(read["values"], read["version"], read["facts"])
    operation = workflow.operations[step.operation]
    place = (transition.run.state, transition.graph, step.key)
    action = whole(*place, rebuilt_action(operation, kept["input"], before), str(kept.get(SYSTEM) or ""))
    receipt = last_receipt(transition.run, step.key)
    # A question before a repeat is bound to the intended action, so only its terms can differ from policy's.
    again = receipt is not None and receipt.status == ReceiptStatus.IN_DOUBT
    if (trace := Trace.of_kept(kept)) is not None:
        transition.traces[step.key] = trace
    decision = judge(transition, step, workflow, policy, action, counted=again)
    if decision.outcome is not Ruling.NEEDS_APPROVAL or decision.approval is None:
        return decision.outcome
    same = binding(action, decision) == asked.action_digest
    if again:
        same = refusals.fits(Terms.from_json(asked.terms), decision.approval)
    return None if same else decision.outcome


def void(transition: Transition, step: StepRow, asked: ApprovalRow, why: str | None = None) -> None:
    """Void the question, and tell those who were asked. The step's next worker is denied by policy, or asks anew.

    ``why`` is the reason if that is not policy: who asked, or who may answer (``runtime.engine.readers``).

    The append is guarded by the tenant's number: if another policy has come meanwhile, that one judges instead.
    """
    wait = open_wait(transition.run, step.key)
    assert wait is not None  # an open question is what its step waits on
    transition.rows.stop = transition.view.stop
    ask.supersede(transition, step, asked.approval_id, why)
    transition.message(VOIDED, asked.approval_id, str(transition.view.stop))
    transition.resume(step, wait)
