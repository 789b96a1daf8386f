"""The life of a step up to the moment it may act: propose, recall, decide, intend (DESIGN section 4, promise 1). Pure.

``begin`` makes the moves in a transition and says what the worker has to do next. It never performs anything: what it
returns is carried out only after the transition has been committed.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from approvals.model import ApprovalKind
from connectors.catalog import build_action, idempotency_key
from connectors.operation import Kind, Operation, Scope
from connectors.port import Call
from core.action import Action
from core.canonical import JsonObject
from core.errors import CountersealError, ExpressionError, InputError
from evidence.receipts import ReceiptStatus
from policy.model import Outcome
from runtime.engine import asking, elsewhere, gates, settling, waiting
from runtime.engine.active_policy import ActivePolicy
from runtime.engine.commit import ReceiptRow, StepRow
from runtime.engine.deciding import judge, record_decision
from runtime.engine.events import ActionRecalled
from runtime.engine.finishing import fail_expression, finish
from runtime.engine.fitness import unfit
from runtime.engine.graph import GateNode, OperationNode
from runtime.engine.intending import Authority, Proposal, ask_approval, intend, is_own, void
from runtime.engine.moves import Known, LookUp, Next, Nonce, Over, ReadBefore
from runtime.engine.plan import variables
from runtime.engine.resolving import resolve
from runtime.engine.states import WaitState
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow

_NOT_APPROVED: JsonObject = {
    "class": "authorization",
    "code": "not_approved",
    "message": "It was told to be approved, but the votes in the run's book do not meet what was asked for.",
}


def begin(
    transition: Transition, step: StepRow, workflow: Workflow, policy: ActivePolicy, known: Known, nonce: Nonce
) -> Next:
    """Take a leased step as far as it goes without touching the outside.

    An approval is worth the votes that the book holds for it: one that was only told to be given lets nothing out, and
    of a doubt people are asked again (promise 1).
    """
    leaf = transition.graph.leaf(step.key)
    doubtful = known.receipt is not None and known.receipt.status in (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)
    if known.given is not None and not known.given.carried:
        asking.supersede(transition, step, known.given.approval_id)
        known = replace(known, given=None)
        if not doubtful and transition.view.canceling is None:
            transition.fail(step, _NOT_APPROVED)
            return Over()
    if known.wait is not None and known.wait.status is not WaitState.WAITING:
        return waiting.ended(transition, step, leaf, known.wait)
    if isinstance(leaf, GateNode):
        return gates.begin(transition, step, leaf, known, nonce)
    if not isinstance(leaf, OperationNode):
        return waiting.begin(transition, step, leaf, nonce)
    elsewhere.forget(transition, known.wait)
    operation, receipt = workflow.operations[leaf.operation], known.receipt
    proposal = Proposal(transition, step, leaf, operation, workflow, policy, known, nonce)
    if doubtful and receipt is not None:
        if is_own(transition, step, receipt):
            return resolve(proposal, receipt)
        settling.under_way(transition, step)
        return Over()
    if transition.view.canceling is not None:
        transition.cancel_step(step)
        return Over()
    return _propose(proposal)


def _propose(p: Proposal) -> Next:
    view, known = p.transition.view, p.known
    try:
        inputs = p.leaf.inputs.render(variables(p.transition.graph, p.transition.state, view.constants, p.step.key))
        assert isinstance(inputs, dict)
        if problem := unfit(inputs, "What `with` gives"):
            raise ExpressionError(problem)
        action = build_action(p.operation, inputs, known.before)
        key = idempotency_key(
            p.operation,
            action,
            tenant=view.tenant_id,
            workflow=view.workflow,
            run=str(view.run_id),
            step=p.step.key,
            reference=view.reference,
        )
    except CountersealError as error:
        fail_expression(p.transition, p.step, error)
        return Over()
    if not known.receipt_checked and _may_be_done_elsewhere(p.operation, known.receipt):
        return LookUp(p.step, key, known)
    if known.receipt is not None and known.receipt.status == ReceiptStatus.SUCCEEDED:
        return _recall(p, known.receipt)
    if p.operation.diff is not None and known.before is None:
        call = Call(p.operation.name, inputs, key, p.operation.timeouts.perform.total_seconds())
        return ReadBefore(p.step, p.operation, call, known)
    try:
        return _decide(p, action, key)
    except InputError as error:
        # Data without a canonical form has no digest that an approval or a receipt could bind to.
        fail_expression(p.transition, p.step, error)
        return Over()


def _may_be_done_elsewhere(operation: Operation, receipt: ReceiptRow | None) -> bool:
    """Whether another run or step may have done this: also since an attempt of our own failed."""
    settled = receipt is not None and receipt.status == ReceiptStatus.SUCCEEDED
    return operation.has_effect and operation.idempotency.scope is not Scope.STEP and not settled


def _recall(p: Proposal, receipt: ReceiptRow) -> Next:
    """The effect is recorded as done: its result is reused, nothing is sent (Q-15)."""
    p.transition.tell(ActionRecalled(receipt.receipt_id), step=p.step.key)
    if receipt.error is not None:
        p.transition.fail(p.step, receipt.error)
        return Over()
    if p.operation.kind is Kind.DURABLE:
        # It was begun before, by this step or by whoever shares the effect, and its end is still to come.
        elsewhere.park(p.transition, p.step, p.operation, p.nonce)
    else:
        finish(p.transition, p.step, receipt.output, receipt.usage)
    return Over()


def _decide(p: Proposal, action: Action, key: str) -> Next:
    decision = judge(p.transition, p.step, p.workflow, p.policy, action)
    bound = action.digest(decision.policy_digest or "")
    decision_id = record_decision(p.transition, p.step, p.policy, decision, action.operation, bound)
    match decision.outcome:
        case Outcome.DENY:
            _void(p, bound, always=True)
            facts: JsonObject = {"class": "authorization", "code": "policy_denied"}
            p.transition.fail(p.step, {**facts, "message": " ".join(decision.reasons)})
            return Over()
        case Outcome.NEEDS_APPROVAL:
            approval = _matching(p, bound)
            if approval is None:
                _void(p, bound, always=False)
                return ask_approval(p, action, decision, bound)
            return intend(p, action, key, Authority(bound, decision_id, approval, decision.approval))
        case Outcome.ALLOW:
            approval = _matching(p, bound)
            _void(p, bound, always=False)
            return intend(p, action, key, Authority(bound, decision_id, approval, None))


def _matching(p: Proposal, bound: str) -> UUID | None:
    """The approval of exactly this action: given and unconsumed, or consumed by an attempt that certainly failed."""
    given, receipt = p.known.given, p.known.receipt
    if given is not None and given.kind is ApprovalKind.ACTION and given.digest == bound:
        return given.approval_id
    if receipt is None or not is_own(p.transition, p.step, receipt):
        return None  # an approval that another run was given lets nothing out here
    if receipt.status == ReceiptStatus.FAILED and receipt.action_digest == bound:
        approval = receipt.action.get("approval")
        return UUID(approval) if isinstance(approval, str) else None
    return None


def _void(p: Proposal, bound: str, *, always: bool) -> None:
    """Void an approval of something else than what would be performed now (promise 3)."""
    given = p.known.given
    if given is not None and (given.digest != bound or always):
        void(p)
