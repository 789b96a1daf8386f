"""The life of a step: lease, propose, recall, decide, intend, act, settle (promises 1 and 2). Pure.

``begin`` takes a leased step up to its intent, and returns what the worker does after the append. ``settle`` goes on
from the outcome of the call. The imported modules decide the details: if the votes still suffice for an approval
(``approved``), what a doubt of an earlier lease means (``doubt``), whom to ask (``asking``), and what each outcome
means (``outcome``).
"""

from __future__ import annotations

from connectors.operation import Kind
from connectors.port import Call, Done, InDoubt, NotSent, Outcome, Parked, Refused
from core.action import Action
from core.errors import CountersealError, InputError
from policy.evaluate import Decision
from policy.model import Ruling
from runtime.engine.book.instructions import LookUp, Next, Nonce, Over, Perform, ReadBefore, Unfit
from runtime.engine.life import agent_turns, approved, ask, facts, grants, outcome, permits, reversal, waits
from runtime.engine.life.approved import Bound
from runtime.engine.life.asking import ask_approval
from runtime.engine.life.doubt import resolve
from runtime.engine.life.intend import Authority, denied, intend, judge, record_decision, unneeded
from runtime.engine.life.outside import expect_no_more
from runtime.engine.life.pausing import stopped
from runtime.engine.life.preflight import turn_first
from runtime.engine.life.proposal import Leased, Proposal
from runtime.engine.life.sharing import is_done, recall, share
from runtime.engine.life.transition import Transition, fail_expression
from runtime.engine.model.graph import GateNode, Leaf, OperationNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.states import WaitKind

# -- lease: the worker holds the step, and nobody else moves it ------------------------------------------------------


def begin(leased: Leased) -> Next:
    """Take a leased step as far as possible without calling any outside system."""
    leased.transition.workflow = leased.workflow
    counted = leased if leased.known.given is None else approved.counted_again(leased, leased.known.given)
    if counted is None:
        return Over()
    leaf, wait = counted.performs(), counted.known.wait
    if wait is not None and waits.is_over(wait):
        if wait.kind is not WaitKind.PERMIT or not isinstance(leaf, OperationNode):
            return waits.ended(counted.transition, counted.step, leaf, wait)
        if (over := permits.resumed(counted, leaf, wait)) is not None:
            return over
    if StepKey.of(counted.step.key).is_inner:
        return agent_turns.around(counted, leaf, _go_on)
    return _go_on(counted, leaf)


def _go_on(leased: Leased, leaf: Leaf) -> Next:
    """Begin what the leaf declares: a question, a wait, or an action. A doubt of an earlier lease is resolved first."""
    transition, step, known = leased.transition, leased.step, leased.known
    if isinstance(leaf, GateNode):
        return ask.begin_gate(transition, step, leaf, known, leased.nonce)
    if not isinstance(leaf, OperationNode):
        begun = waits.begin(transition, step, leaf, leased.nonce)
        return facts.handed_on(transition, begun, leased.workflow, leased.policy, known.chat)
    if known.wait is not None:
        waits.withdraw_unopened(transition, step, known.wait)
    proposal, receipt = leased.proposal(leaf), known.receipt
    if receipt is not None and leased.is_doubtful and leased.owns(receipt):
        return permits.doubted(proposal, receipt) if proposal.operation.by_agent else resolve(proposal, receipt)
    if transition.view.run.canceling is not None:
        transition.cancel_step(step)
        return Over()
    return _propose(proposal)


# -- propose and recall: the action by its inputs; what was done before is not done again ----------------------------


def _propose(p: Proposal) -> Next:
    try:
        proposed = p.action()
    except CountersealError as error:
        fail_expression(p.transition, p.step, error)
        return Over()
    receipt = p.known.receipt
    if receipt is not None and p.owns(receipt) and is_done(p, receipt):
        return recall(p, receipt)
    p.transition.rows.stop = p.transition.view.stop  # a pause that comes first refuses the append of any call below
    if p.transition.view.paused and stopped(p.transition, p.step, p.operation, p.nonce):
        return Over()
    seconds = p.operation.timeouts.perform.total_seconds()
    call = Call(p.operation.name, proposed.action.input, proposed.key, seconds, declared=p.operation)
    if p.operation.stays_inside:
        return Perform(p.step, p.operation, call, None)
    if p.may_be_shared and not p.known.receipt_checked:
        # Another run or step may have performed this effect since we last looked.
        return LookUp(p.step, proposed.key, p.known, proposed.earlier)
    if p.operation.diff is not None and p.known.before is None:
        if (turn := turn_first(p, proposed.action.input)) is not None:
            return turn
        return ReadBefore(p.step, p.operation, call, p.known)
    try:
        return _decide(p, proposed.action, proposed.key)
    except InputError as error:
        # Data without a canonical form has no digest that an approval or a receipt could bind to.
        fail_expression(p.transition, p.step, error)
        return Over()


# -- decide and intend: policy judges; people are asked; the intent is recorded before anything goes out -------------


def _decide(p: Proposal, action: Action, key: str) -> Next:
    reverses = p.transition.view.trigger_type == reversal.REVERSAL
    if reverses and (changed := reversal.refusal(p)) is not None:
        approved.void(p, action)
        p.transition.fail(p.step, changed.to_json())
        return Over()
    decision = judge(p.transition, p.step, p.workflow, p.policy, action, chat=p.known.chat)
    bound = approved.bound_by(p, action, decision)
    heeds = p.transition.pace is not None or p.transition.view.busy
    if heeds and (turn := _turn(p, action, decision, bound)) is not None:
        return turn
    decision_id = record_decision(p.transition, p.step, decision, action, bound.digest)
    given = p.known.given
    approval = None if given is None and p.known.receipt is None else approved.matching(p, bound.digest)
    if decision.outcome is Ruling.DENY:
        approved.void(p)
        p.transition.fail(p.step, denied(decision).to_json())
        return Over()
    asks = decision.outcome is Ruling.NEEDS_APPROVAL
    if given is not None and given.digest != bound.digest and not (asks and approval is not None):
        approved.void(p, action)  # it approves another action than the one that would be performed now (promise 3)
    if (over := unneeded(p, action, key, bound, decision_id)) is not None:
        return over
    grant = grants.covering(p, action, decision) if asks and approval is None else None
    if asks and approval is None and grant is None:
        return ask_approval(p, action, decision, bound)
    if p.known.shared is not None and (over := share(p, action)) is not None:
        return over
    if (gate := p.operation.by_agent) and (over := permits.held_back(p)) is not None:
        return over
    if asks and approval is not None:
        grants.give(p, action, decision)
    terms, version = (decision.approval, approved.version_of(p, approval)) if asks else (None, None)
    authority = Authority(bound, decision_id, approval, terms, decision.in_doubt, version, grant)
    made = intend(p, action, key, authority)
    return permits.handed_out(p, made) if gate else made


def _turn(p: Proposal, action: Action, decision: Decision, bound: Bound) -> Next | None:
    """The turn to take at a target with a rate limit, if the action would go out now. Nothing is recorded before it."""
    if decision.outcome is Ruling.DENY:
        return None
    asks = decision.outcome is Ruling.NEEDS_APPROVAL and approved.matching(p, bound.digest) is None
    return None if asks and grants.covering(p, action, decision) is None else turn_first(p, action.input)


# -- act: the worker sends the call of ``Perform``, outside of any transaction. Settle: what came of it --------------


def settle(transition: Transition, work: Perform, result: Outcome | Unfit, *, nonce: Nonce, chance: float) -> None:
    """Settle a call by its outcome. ``chance`` in [0, 1) chooses the jitter of a retry."""
    usage, durable = outcome.usage_of(result), work.operation.kind is Kind.DURABLE
    if durable and not isinstance(result, Parked):
        expect_no_more(transition, work.step)
    match result:
        case Parked() if durable:
            outcome.begun_outside(transition, work, result, nonce)
        case Parked():
            outcome.parked_though_sync(transition, work, result)
        case Done():
            outcome.done(transition, work, result, usage)
        case Unfit():
            outcome.unfit(transition, work, result, usage)
        case Refused():
            outcome.refused(transition, work, result, usage)
        case NotSent():
            outcome.not_sent(transition, work, result, usage, chance)
        case InDoubt():
            outcome.unknown(transition, work, result, nonce, chance)
