"""The life of a step from its claim to its intent: propose, recall, decide, intend (promise 1). Pure.

``begin`` makes the moves in a transition, and returns what the worker does once these are appended. Decided elsewhere:
a vote in ``approvals.quorum.consider``; whether the votes carry an approval in ``instructions.known_of``; a doubt that
an earlier lease left in ``doubt.resolve``; what comes of the call, a retry or a doubt included, in
``settle.performed``.
"""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from approvals.model import ApprovalKind
from connectors.operation import KeyScope, Kind
from connectors.port import Call
from connectors.proposal import build_action, idempotency_key
from core.action import Action
from core.errors import CountersealError, ExpressionError, InputError
from evidence.receipts import ReceiptStatus
from policy.model import Ruling
from runtime.engine import ask, waits
from runtime.engine.commit import ReceiptRow, StepRow
from runtime.engine.doubt import resolve, under_way
from runtime.engine.errors import ErrorClass, StepError
from runtime.engine.events import ActionRecalled, WaitCanceled
from runtime.engine.finish import fail_expression, finish, unfit
from runtime.engine.graph import GateNode, OperationNode
from runtime.engine.instructions import Known, LookUp, Next, Nonce, Over, ReadBefore
from runtime.engine.intend import Authority, Proposal, ask_approval, intend, is_own, park_outside, void
from runtime.engine.judge import ActivePolicy, denied, judge, record_decision
from runtime.engine.states import WaitKind, WaitState
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow

_NOT_APPROVED = StepError(
    ErrorClass.AUTHORIZATION,
    "not_approved",
    "An approval was recorded, but the votes in the run's book do not meet its terms.",
)


def begin(
    transition: Transition, step: StepRow, workflow: Workflow, policy: ActivePolicy, known: Known, nonce: Nonce
) -> Next:
    """Take a leased step as far as it goes without touching the outside.

    No event alone lets an action out. If the votes in the book do not carry an approval, that one is void: the step
    fails, or people are asked again about its doubt (promise 1).
    """
    leaf = transition.graph.leaf(step.key)
    doubtful = known.receipt is not None and known.receipt.status in (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)
    if known.given is not None and not known.given.carried:
        ask.supersede(transition, step, known.given.approval_id)
        known = replace(known, given=None)
        if not doubtful and transition.view.run.canceling is None:
            transition.fail(step, _NOT_APPROVED.to_json())
            return Over()
    if known.wait is not None and known.wait.status is not WaitState.WAITING:
        return waits.ended(transition, step, leaf, known.wait)
    if isinstance(leaf, GateNode):
        return ask.begin_gate(transition, step, leaf, known, nonce)
    if not isinstance(leaf, OperationNode):
        return waits.begin(transition, step, leaf, nonce)
    if known.wait is not None and known.wait.kind is WaitKind.EXTERNAL:
        # An earlier lease opened it with its intent, and is gone; a new intent opens its own.
        transition.tell(WaitCanceled(known.wait.wait_id, known.wait.kind), step=step.key)
    operation, receipt = workflow.operations[leaf.operation], known.receipt
    proposal = Proposal(transition, step, leaf, operation, workflow, policy, known, nonce)
    if doubtful and receipt is not None:
        if is_own(transition, step, receipt):
            return resolve(proposal, receipt)
        under_way(transition, step)
        return Over()
    if transition.view.run.canceling is not None:
        transition.cancel_step(step)
        return Over()
    return _propose(proposal)


def _propose(p: Proposal) -> Next:
    view, known = p.transition.view, p.known
    try:
        inputs = p.leaf.inputs.render(p.transition.variables(p.step.key))
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
            reference=view.run.reference,
        )
    except CountersealError as error:
        fail_expression(p.transition, p.step, error)
        return Over()
    if known.receipt is not None and known.receipt.status == ReceiptStatus.SUCCEEDED:
        return _recall(p, known.receipt)
    shared = p.operation.has_effect and p.operation.idempotency.scope is not KeyScope.STEP
    if shared and not known.receipt_checked:
        # Another run or step may have performed this effect since we last looked.
        return LookUp(p.step, key, known)
    if p.operation.diff is not None and known.before is None:
        call = Call(p.operation.name, inputs, key, p.operation.timeouts.perform.total_seconds())
        return ReadBefore(p.step, p.operation, call, known)
    try:
        return _decide(p, action, key)
    except InputError as error:
        # Data without a canonical form has no digest that an approval or a receipt could bind to.
        fail_expression(p.transition, p.step, error)
        return Over()


def _recall(p: Proposal, receipt: ReceiptRow) -> Next:
    """The effect is recorded as done: its result is reused, nothing is sent (Q-15)."""
    p.transition.tell(ActionRecalled(receipt.receipt_id), step=p.step.key)
    if receipt.error is not None:
        p.transition.fail(p.step, receipt.error)
        return Over()
    if p.operation.kind is Kind.DURABLE:
        # It was begun before, by this step or by whoever shares the effect, and its end is still to come.
        park_outside(p.transition, p.step, p.operation, p.nonce)
    else:
        finish(p.transition, p.step, receipt.output, receipt.usage)
    return Over()


def _decide(p: Proposal, action: Action, key: str) -> Next:
    decision = judge(p.transition, p.step, p.workflow, p.policy, action)
    bound = action.digest(decision.policy_digest or "")
    decision_id = record_decision(p.transition, p.step, p.policy, decision, action.operation, bound)
    given, approval = p.known.given, _matching(p, bound)
    if decision.outcome is Ruling.DENY:
        void(p)
        p.transition.fail(p.step, denied(decision).to_json())
        return Over()
    asks = decision.outcome is Ruling.NEEDS_APPROVAL
    if given is not None and given.digest != bound and not (asks and approval is not None):
        void(p)  # it was given for something else than would be performed now (promise 3)
    if asks and approval is None:
        return ask_approval(p, action, decision, bound)
    return intend(p, action, key, Authority(bound, decision_id, approval, decision.approval if asks else None))


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
