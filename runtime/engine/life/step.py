"""The life of a step from its claim to its end: propose, recall, decide, intend, settle (promises 1 and 2). Pure.

``begin`` makes the moves up to the intent, and returns what the worker does after the append. ``performed`` makes the
moves for the outcome of the call, a retry or a doubt included. Other modules decide whether a vote counts
(``approvals.quorum.consider``), whether the votes carry an approval (``instructions.known_of``), and what becomes of a
doubt that an earlier lease left (``doubt.resolve``).
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from msgspec.structs import asdict, replace

from approvals.model import ApprovalKind
from connectors.operation import InDoubtRule, Kind, Operation
from connectors.parts import KeyScope
from connectors.port import SOMEBODY, Call, Done, InDoubt, NotSent, Outcome, Parked, Refused
from connectors.proposal import action_digest, as_given, build_action, idempotency_key
from core.action import Action
from core.canonical import Json, JsonObject, unfit
from core.errors import CountersealError, ExpressionError, InputError
from evidence.receipts import ReceiptStatus
from policy.model import Ruling
from policy.sets import PolicySet
from runtime.engine.book.contributors import whole
from runtime.engine.book.draft import tell_of
from runtime.engine.book.ends import error_of
from runtime.engine.book.instructions import (
    Known,
    LookUp,
    Next,
    Nonce,
    Over,
    Perform,
    ReadBefore,
    Unfit,
    still_approved,
)
from runtime.engine.book.plan import CHECKPOINT, variables
from runtime.engine.life import ask, doubt, waits
from runtime.engine.life.agent_turns import OWN, own_values, turn
from runtime.engine.life.asking import ask_approval
from runtime.engine.life.doubt import PROBE_AFTER, resolve
from runtime.engine.life.facts import handed_on
from runtime.engine.life.intend import (
    Authority,
    Proposal,
    binding,
    denied,
    intend,
    is_own,
    judge,
    record_decision,
    void,
)  # fmt: skip
from runtime.engine.life.outside import expect_no_more, park_outside
from runtime.engine.life.pausing import stopped
from runtime.engine.life.records import read_by
from runtime.engine.life.sharing import NOT_SENT, is_done, recall, share
from runtime.engine.life.transition import Transition, fail_expression, finish
from runtime.engine.model.errors import SENT, UNUSABLE, ErrorClass, StepError
from runtime.engine.model.events import ActionFailed, ActionSucceeded, WaitCanceled
from runtime.engine.model.graph import GateNode, OperationNode
from runtime.engine.model.rows import ReceiptRow, StepRow
from runtime.engine.model.states import WaitKind, WaitState
from runtime.engine.model.workflow import Workflow
from runtime.engine.origins.agent import chat_first

_NOT_APPROVED = StepError(
    ErrorClass.AUTHORIZATION,
    "not_approved",
    "An approval was recorded, but the votes in the run's book do not meet its terms.",
)

_PARKED_SYNC = StepError(
    ErrorClass.DEFINITION, "parked", "The connector returned Parked, but its operation is declared as sync."
)
_AUTHORIZATION_CODES = ("401", "403", "unauthorized", "forbidden", "not_allowed", "invalid_auth")


def begin(
    transition: Transition, step: StepRow, workflow: Workflow, policy: PolicySet, known: Known, nonce: Nonce
) -> Next:
    """Take a leased step as far as it goes without touching the outside.

    A recorded approval alone lets no action out: its votes are counted again. If they do not carry it, the approval is
    void: the step fails, or people are asked again about its doubt (promise 1).
    """
    transition.workflow = workflow
    leaf = transition.graph.leaves.get(step.key.rpartition(".")[2]) or transition.leaf(step.key)
    doubtful = known.receipt is not None and known.receipt.status in (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)
    if known.given is not None and not known.given.carried:
        ask.supersede(transition, step, known.given.approval_id)
        known = replace(known, given=None)
        if not doubtful and transition.view.run.canceling is None:
            transition.fail(step, _NOT_APPROVED.to_json())
            return Over()
    elif known.given is not None and (why := known.given.void(transition.view)) is not None:
        # The approval was sound, but its votes are too old, or their voters may no longer vote. Ask again.
        ask.supersede(transition, step, known.given.approval_id, why)
        known = replace(known, given=None)
    if known.wait is not None and known.wait.status is not WaitState.WAITING:
        return waits.ended(transition, step, leaf, known.wait)
    if "/" in step.key and (first := chat_first(step, leaf, known, policy)) is not None:
        return first
    if isinstance(leaf, GateNode):
        return ask.begin_gate(transition, step, leaf, known, nonce)
    if not isinstance(leaf, OperationNode):
        return handed_on(transition, waits.begin(transition, step, leaf, nonce), workflow, policy, known.chat)
    if known.wait is not None and known.wait.kind is WaitKind.EXTERNAL:
        # A lost lease opened this wait together with its intent. A new intent opens a wait of its own.
        transition.tell(WaitCanceled(known.wait.wait_id, known.wait.kind), step=step.key)
    operation, receipt = workflow.operations[leaf.operation], known.receipt
    proposal = Proposal(transition, step, leaf, operation, workflow, policy, known, nonce)
    if doubtful and receipt is not None and is_own(transition, step, receipt):
        return resolve(proposal, receipt)
    if transition.view.run.canceling is not None:
        transition.cancel_step(step)
        return Over()
    return turn(proposal, _propose) if step.key.count("/") == 1 else _propose(proposal)


def _propose(p: Proposal) -> Next:
    view, known = p.transition.view, p.known
    try:
        seen = variables(p.transition.graph, p.transition.run.state, view.constants, p.step.key)
        seen[CHECKPOINT] = p.transition.run.superstep
        if OWN & p.leaf.inputs.references:
            seen |= own_values(p.transition.run, p.transition.graph, p.step, p.leaf)
        inputs = p.leaf.inputs.render(seen)
        assert isinstance(inputs, dict)
        if problem := unfit(inputs, "What `with` gives"):
            raise ExpressionError(problem)
        system = p.transition.systems.get(p.operation.connector, "")
        action = build_action(p.operation, inputs, known.before)
        if system or p.transition.run.state.shaped:
            action = whole(p.transition.run.state, p.transition.graph, p.step.key, action, system)
        key, earlier = _keys(p, inputs, action)
    except CountersealError as error:
        fail_expression(p.transition, p.step, error)
        return Over()
    receipt = known.receipt
    if receipt is not None and is_own(p.transition, p.step, receipt) and is_done(p, receipt):
        return recall(p, receipt)
    p.transition.rows.stop = view.stop  # a pause that comes first refuses the append of any call below
    if view.paused and stopped(p.transition, p.step, p.operation, p.nonce):
        return Over()
    seconds = p.operation.timeouts.perform.total_seconds()
    call = Call(p.operation.name, action.input, key, seconds, declared=p.operation)
    if p.operation.stays_inside:
        return Perform(p.step, p.operation, call, None)
    shared = p.operation.has_effect and p.operation.idempotency.scope is not KeyScope.STEP
    if shared and not known.receipt_checked:
        # Another run or step may have performed this effect since we last looked.
        return LookUp(p.step, key, known, earlier)
    if p.operation.diff is not None and known.before is None:
        return ReadBefore(p.step, p.operation, call, known)
    try:
        return _decide(p, action, key)
    except InputError as error:
        # Data without a canonical form has no digest that an approval or a receipt could bind to.
        fail_expression(p.transition, p.step, error)
        return Over()


def _keys(p: Proposal, inputs: JsonObject, action: Action) -> tuple[str, str | None]:
    """The key of the action's effect, and the key of release 0.2.0, if that was another one (promise 2).

    0.2.0 took the key from the input as it was given.
    """
    view = p.transition.view
    place = {"tenant": view.tenant_id, "workflow": view.workflow, "run": str(view.run_id), "step": p.step.key}

    def key_of(action: Action) -> str:
        return idempotency_key(p.operation, action, **place, reference=p.transition.run.reference)

    key, given = key_of(action), as_given(p.operation, inputs, action)
    earlier = key if given is action else key_of(given)
    return key, None if earlier == key else earlier


def _decide(p: Proposal, action: Action, key: str) -> Next:
    decision = judge(p.transition, p.step, p.workflow, p.policy, action, chat=p.known.chat)
    bound = action_digest(action) if decision.approval is None else binding(action, decision)
    decision_id = record_decision(p.transition, p.step, decision, action, bound)
    given = p.known.given
    approval = None if given is None and p.known.receipt is None else _matching(p, bound)
    if decision.outcome is Ruling.DENY:
        void(p)
        p.transition.fail(p.step, denied(decision).to_json())
        return Over()
    asks = decision.outcome is Ruling.NEEDS_APPROVAL
    if given is not None and given.digest != bound and not (asks and approval is not None):
        void(p)  # it approves another action than the one that would be performed now (promise 3)
    if asks and approval is None:
        return ask_approval(p, action, decision, bound)
    if p.known.shared is not None and (over := share(p, action)) is not None:
        return over
    terms = decision.approval if asks else None
    return intend(p, action, key, Authority(bound, decision_id, approval, terms, decision.in_doubt))


def _matching(p: Proposal, bound: str) -> UUID | None:
    """The approval of exactly this action: given and unconsumed, or consumed by an attempt that certainly failed."""
    given, receipt = p.known.given, p.known.receipt
    if given is not None and given.kind is ApprovalKind.ACTION and given.digest == bound:
        return given.approval_id
    if receipt is None or not is_own(p.transition, p.step, receipt):
        return None  # an approval given to another run lets nothing out here
    if receipt.status == ReceiptStatus.FAILED and receipt.action_digest == bound:
        return still_approved(p.transition.run, p.transition.view.directory, receipt)
    return None


# -- the end of what was intended (Q-18, Q-19) -----------------------------------------------------------------------


def performed(transition: Transition, work: Perform, outcome: Outcome | Unfit, *, nonce: Nonce, chance: float) -> None:
    """Settle a call by its outcome. ``chance`` in [0, 1) chooses the jitter of a retry."""
    if isinstance(outcome, Parked) and work.operation.kind is Kind.DURABLE:
        _receipt_succeeded(transition, work, Done(outcome.output, outcome.external_id), None)
        park_outside(transition, work.step, work.operation, nonce, expected=True)
        return
    if work.operation.kind is Kind.DURABLE:
        expect_no_more(transition, work.step)
    said = outcome.done if isinstance(outcome, Unfit) else outcome
    used = None if isinstance(said, Parked | InDoubt) else said.usage
    usage, place = None if used is None else asdict(used), (transition, work.step, work.operation)
    match outcome:
        case Done() if outcome.altered:
            altered = error_of(work.operation, work.call, outcome)
            _receipt_succeeded(transition, work, outcome, altered, usage)
            transition.fail(work.step, altered.to_json(), usage)
        case Done():
            _receipt_succeeded(transition, work, outcome, None, usage)
            finish(transition, work.step, outcome.output, usage, shaped=read_by(*place, outcome))
        case Parked():
            _receipt_succeeded(transition, work, Done(outcome.output, outcome.external_id), _PARKED_SYNC)
            transition.fail(work.step, _PARKED_SYNC.to_json())
        case Unfit(done, problem):
            unusable = StepError(ErrorClass.TRANSPORT, UNUSABLE, problem, {} if work.receipt is None else SENT)
            _receipt_succeeded(transition, work, done, unusable, usage)
            transition.fail(work.step, unusable.to_json())
        case Refused():
            unauthorized = outcome.code in _AUTHORIZATION_CODES
            kind = ErrorClass.AUTHORIZATION if unauthorized else ErrorClass.TRANSPORT
            error = StepError(kind, outcome.code, outcome.message)
            _failed_receipt(transition, work.receipt, error)
            said_by = read_by(*place, Done({}, writers=SOMEBODY))
            transition.fail(work.step, error.to_json(), usage, said_by)
        case NotSent():
            error = StepError(ErrorClass.TRANSPORT, NOT_SENT, outcome.message)
            _failed_receipt(transition, work.receipt, error)
            after = outcome.retry_after_seconds or 0.0
            _retry(transition, work.step, work.operation, error, at_least=after, chance=chance, usage=usage)
        case InDoubt():
            _doubtful(transition, work, outcome, nonce=nonce, chance=chance)


def _receipt_succeeded(
    transition: Transition, work: Perform, done: Done, error: StepError | None, usage: JsonObject | None = None
) -> None:
    """Tell that the effect happened, even if its output is unusable. Steps that share the effect get ``error``."""
    if work.receipt is not None:
        shown: list[Json] | None = [*done.altered] or None
        unusable = None if error is None else error.to_json()
        read = read_by(transition, work.step, work.operation, done)
        told = (done.output, done.external_id, usage, unusable, shown, read)
        tell_of(transition, work.receipt, ActionSucceeded(work.receipt.receipt_id, *told))


def _failed_receipt(transition: Transition, receipt: ReceiptRow | None, error: StepError) -> None:
    if receipt is not None:
        tell_of(transition, receipt, ActionFailed(receipt.receipt_id, str(error.kind), error.code, error.to_json()))


def _retry(
    transition: Transition,
    step: StepRow,
    operation: Operation,
    error: StepError,
    *,
    at_least: float,
    chance: float,
    usage: JsonObject | None = None,
) -> None:
    """Record the failure and a due time; nobody sleeps (X-19). Fail for good if attempts or the SLA are used up."""
    delay = max(operation.retry.delay_seconds(step.attempt + 1, chance=chance), at_least)
    deadline = transition.view.deadline_at
    late = deadline is not None and transition.view.now + timedelta(seconds=delay) >= deadline
    if step.attempt + 1 >= operation.retry.attempts or late:
        spent = "the SLA leaves no time for another attempt" if late else f"{step.attempt + 1} attempts were made"
        transition.fail(step, replace(error, message=f"{error.message} ({spent})").to_json(), usage)
        return
    transition.retry_later(step, timedelta(seconds=delay), error.to_json(), usage)


def unsent(transition: Transition, work: Perform) -> None:
    """Retry soon: the lease or the time to send was over before the call began, so nothing was sent.

    A crash before this commit leaves doubt, which the next lease resolves.
    """
    if work.operation.kind is Kind.DURABLE:
        expect_no_more(transition, work.step)
    message = "Nothing was sent: too long had passed since the intent, or the lease was over."
    error = StepError(ErrorClass.TRANSPORT, NOT_SENT, message)
    _failed_receipt(transition, work.receipt, error)
    transition.retry_later(work.step, PROBE_AFTER, error.to_json(), attempted=False)


def _doubtful(transition: Transition, work: Perform, outcome: InDoubt, *, nonce: Nonce, chance: float) -> None:
    error = doubt.unknown(outcome.message)
    if work.receipt is None:
        # Without a side effect there is nothing to be in doubt about.
        _retry(transition, work.step, work.operation, error, at_least=0.0, chance=chance)
        return
    receipt = doubt.mark(transition, work.receipt, outcome.message)
    spent = work.step.attempt + 1 >= work.operation.retry.attempts
    if work.operation.in_doubt is InDoubtRule.PROBE:
        doubt.look_later(transition, replace(work.step, last_error=None), error, PROBE_AFTER, attempted=True)
    elif work.operation.in_doubt is InDoubtRule.IDEMPOTENT and not spent:
        _retry(transition, work.step, work.operation, error, at_least=0.0, chance=chance)
    elif not doubt.put_off(transition, work.step, work.operation, receipt, outcome.message):
        doubt.ask_people(transition, work.step, work.operation, receipt, outcome.message, nonce)
