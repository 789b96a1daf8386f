"""Doubt: an intent without a recorded outcome. Find out what happened, and never repeat blindly (promises 1, 2). Pure.

Only the intended action is ever sent again, with its digest and its key. Whatever causes the repeat, today's policy
judges it, and guards the commit as it does for a first intent.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import ApprovalKind, Choice
from connectors.canonical import unsendable
from connectors.operation import InDoubtRule, Kind, Operation
from connectors.port import Done, Lent, Probe, ProbeVerdict
from connectors.proposal import rebuilt_action
from core.canonical import JsonObject
from core.terms import Terms
from evidence.receipts import ReceiptStatus, Resolution
from policy.evaluate import Decision
from policy.model import Ruling
from runtime.engine.book import refusals
from runtime.engine.book.contributors import whole
from runtime.engine.book.draft import tell_of
from runtime.engine.book.ends import error_of
from runtime.engine.book.instructions import Inquire, Next, Nonce, Over, Perform, still_approved
from runtime.engine.life import ask
from runtime.engine.life.approved import again_bound, void
from runtime.engine.life.ask import Question
from runtime.engine.life.asking import ask_approval
from runtime.engine.life.closing import TOLD
from runtime.engine.life.intend import denied, intend_again, judge, record_decision
from runtime.engine.life.outside import call_of, expect_end, moved, park_outside, system_of
from runtime.engine.life.pausing import asked_about, stopped
from runtime.engine.life.preflight import is_busy, turn_first
from runtime.engine.life.proposal import Proposal
from runtime.engine.life.records import read_by
from runtime.engine.life.transition import LOOKS, OPEN, Transition, counts, finish
from runtime.engine.model.errors import SENT, ErrorClass, StepError
from runtime.engine.model.events import ActionDoubtResolved, ActionHeld, ActionInDoubt, ApprovalConsumed
from runtime.engine.model.rows import ReceiptRow, StepRow

# A call that has not begun this long after its intent never begins.
SEND_WITHIN = timedelta(seconds=5)
# A connector keeps its own deadline. If it overruns it by this much, the worker stops waiting.
GRACE = timedelta(seconds=5)
# A target that timed out may still be at work: the first probe waits this long.
PROBE_AFTER = timedelta(seconds=5)
# The number of probes without a clear answer after which people are asked.
PROBES_MAX = 12
# How a doubt ended: a probe of the target, a repeat that the target dedupes, nobody in time, or people.
PROBE, AGAIN, NOBODY, PEOPLE = "probe", "again", "none", "people"
# The evidence on a card about an action, if nothing more can be found out about it.
_NO_PROBE = "This operation cannot be asked what became of it."
_OTHER_FORM = "An earlier release sent it in a form that is not sent any more, so it cannot be sent again as it was."
_NO_ANSWER = "It was sent as often as its retries allow, and no attempt was answered."


class Found(Struct, frozen=True):
    """The end of a doubt: ``how`` it ended, in words, and ``by`` whom. People ended it by an ``approval``."""

    how: str
    by: str
    approval: UUID | None = None


def rest(transition: Transition, operation: Operation, receipt: ReceiptRow) -> timedelta:
    """The time during which an intended call may still arrive at the target; negative once it no longer can.

    The call begins within ``SEND_WITHIN`` of the intent or never, and may overrun its own time limit by ``GRACE``.
    Until that time is over nobody can know that it did not happen, and repeating it might do it twice.
    """
    return receipt.intended_at + _span(operation) - transition.view.now


def _span(operation: Operation) -> timedelta:
    return SEND_WITHIN + operation.timeouts.perform + GRACE


def mark(transition: Transition, receipt: ReceiptRow, why: str, lent: Lent = ()) -> ReceiptRow:
    """Mark a receipt in doubt, unless it is already; ``lent`` are the secrets that its call was given."""
    if receipt.status == ReceiptStatus.IN_DOUBT:
        return receipt
    return tell_of(transition, receipt, ActionInDoubt(receipt.receipt_id, why, [*lent] or None))


def applied(
    transition: Transition,
    step: StepRow,
    operation: Operation,
    receipt: ReceiptRow,
    done: Done,
    found: Found,
    nonce: Nonce,
    shaped: list[str] | None = None,
) -> None:
    """Resolve the doubt: the action had happened. The step goes on with the output that the target reports.

    ``shaped`` are the marks of those who wrote that output. If the target holds something else than was asked for, the
    action was done, but altered, and the step fails.
    """
    output, facts = done.output, (receipt.receipt_id, Resolution.APPLIED, found.how, done.output)
    if done.altered:
        error = error_of(operation, call_of(operation, receipt), done).to_json()
        tell_of(transition, receipt, ActionDoubtResolved(*facts, error, [*done.altered], found.by, found.approval))
        transition.fail(step, error)
        return
    tell_of(transition, receipt, ActionDoubtResolved(*facts, by=found.by, approval=found.approval))
    if operation.kind is Kind.DURABLE:
        # The action had only begun; its end is still to come.
        park_outside(transition, step, operation, nonce)
    else:
        finish(transition, step, output, shaped=shaped)


def ask_people(
    transition: Transition, step: StepRow, operation: Operation, receipt: ReceiptRow, evidence: str, nonce: Nonce
) -> None:
    """Ask people what became of the action; ``pausing.asked_about`` decides whom."""
    call = call_of(operation, receipt)
    action = replace(rebuilt_action(operation, call.input, call.before), system=system_of(receipt))
    answer = str((receipt.error or {}).get("message") or "")
    sent = receipt.intended_at.isoformat(timespec="seconds")
    marks = ask.marks_of(transition, step, action)
    terms = asked_about(transition, receipt, marks)
    card = ask.action_card(transition, step, operation, action, terms, evidence=evidence)
    card = replace(card, sent_at=sent, answer=answer)
    facts = (ApprovalKind.IN_DOUBT, receipt.action_digest, terms, card, None, marks)
    question = ask.put(transition, step, Question(*facts), nonce())
    name = f"doubt:{question}"
    if transition.run.requester is not None:
        transition.order(TOLD, name, {"run": str(transition.view.run_id), "approval": str(question)})
    transition.alarm(name, f"doubt:{transition.view.workflow}:{operation.name}", question)


def given_up(transition: Transition, receipt: ReceiptRow, found: Found) -> None:
    """End the doubt as a failure, for example because people said so or did not answer in time."""
    resolved = (receipt.receipt_id, Resolution.FAILED, found.how)
    tell_of(transition, receipt, ActionDoubtResolved(*resolved, by=found.by, approval=found.approval))


def look_later(
    transition: Transition, step: StepRow, error: StepError, delay: timedelta, *, attempted: bool = False
) -> bool:
    """Look into the doubt again after ``delay``; False if all looks are used up. Looks do not count as attempts.

    ``attempted`` says that a call has just ended without an outcome, which uses up an attempt.
    """
    before = (step.last_error or {}).get(LOOKS)
    looks = before if isinstance(before, int) else 0
    if looks < PROBES_MAX:
        facts: JsonObject = {**counts(step), **error.to_json(), LOOKS: looks + 1}
        transition.retry_later(step, delay, facts, attempted=attempted)
    return looks < PROBES_MAX


def put_off(transition: Transition, step: StepRow, operation: Operation, receipt: ReceiptRow, why: str) -> bool:
    """Let the step wait if the intended call may still arrive (``rest``); true if it waits.

    The wait is a row: a crash after its commit loses nothing. A crash before it leaves a lease that runs out.
    """
    delay = rest(transition, operation, receipt)
    if delay > (whole := _span(operation)):  # the clock has gone back behind the intent: wait once, as long as it takes
        delay = timedelta(0) if is_for_people(step) else whole
    if delay <= timedelta(0):
        return False
    transition.retry_later(step, delay, {**counts(step), **unknown(why).to_json(), OPEN: True}, attempted=False)
    return True


def unknown(why: str) -> StepError:
    """The error of a step whose action is in doubt."""
    return StepError(ErrorClass.TIMEOUT, "in_doubt", why)


def is_for_people(step: StepRow) -> bool:
    """True if the doubt was put off before: then only people or a probe resolve it, never a blind repeat."""
    return (step.last_error or {}).get(OPEN) is True


def resolve(p: Proposal, receipt: ReceiptRow) -> Next:
    """Find out what became of an action that an earlier lease intended without recording an outcome."""
    transition, given, rule = p.transition, p.known.given, p.operation.in_doubt
    receipt = mark(transition, receipt, "the worker that intended it is gone")
    answered = given is not None and given.kind is ApprovalKind.IN_DOUBT and given.digest == receipt.action_digest
    if answered and given is not None and given.choice is Choice.HAPPENED:
        _consume(p)
        found = Found(f"a person said it happened: {given.reason}", PEOPLE, given.approval_id)
        applied(transition, p.step, p.operation, receipt, Done({}), found, p.nonce)
        return Over()
    canceling, elsewhere = transition.view.run.canceling is not None, moved(transition, p.operation, receipt)
    if elsewhere and not canceling:
        _consume(p)
        void(p)
        _ask_or_wait(p, receipt, elsewhere)
        return Over()
    if answered and given is not None:
        return _again(p, receipt, Found(f"a person said to do it again: {given.reason}", PEOPLE, given.approval_id))
    if canceling and (elsewhere or rule is not InDoubtRule.PROBE):
        # A run that is being canceled sends nothing and asks nobody: the evidence says that the action is in doubt.
        transition.cancel_step(p.step)
        return Over()
    if rule is InDoubtRule.PROBE:
        if stopped(transition, p.step, p.operation, p.nonce):
            return Over()
        if transition.view.busy and is_busy(p, call_of(p.operation, receipt).input):
            return Over()
        since = (transition.view.now - receipt.intended_at).total_seconds()
        if since < 0:  # the clock has gone back; ``put_off`` has waited for that long
            since = _span(p.operation).total_seconds()
        return Inquire(p.step, p.operation, call_of(p.operation, receipt), receipt, p.known, since)
    if given is not None and given.kind is ApprovalKind.ACTION:
        # People have approved this repeat, which is safe: a person ordered it after the wait, or the target dedupes it.
        return _again(p, receipt, Found("people approved that it is done again", PEOPLE, given.approval_id))
    if rule is InDoubtRule.IDEMPOTENT and unsendable(p.operation.handler, call_of(p.operation, receipt).input):
        # The repeat would be refused before it leaves, which says nothing about the call in doubt.
        _ask_or_wait(p, receipt, _OTHER_FORM)
        return Over()
    if rule is InDoubtRule.IDEMPOTENT and not is_for_people(p.step):
        return _again(p, receipt, Found("sent again: the target dedupes by its key", AGAIN))
    _ask_or_wait(p, receipt, _NO_ANSWER if rule is InDoubtRule.IDEMPOTENT else _NO_PROBE)
    return Over()


def inquired(p: Proposal, receipt: ReceiptRow, probe: Probe) -> Next:
    """Act on the target's answer about an earlier intent. The evidence goes into the receipt."""
    match probe.verdict:
        case ProbeVerdict.APPLIED:
            void(p)
            done = probe.done or Done({})
            read = read_by(p.transition, p.step, p.operation, done)
            found = Found(f"probe: applied. {probe.evidence}", PROBE)
            applied(p.transition, p.step, p.operation, receipt, done, found, p.nonce, read)
            return Over()
        case ProbeVerdict.NOT_APPLIED:
            return _again(p, receipt, Found(f"probe: not applied. {probe.evidence}", PROBE), absent=True)
        case ProbeVerdict.CANNOT_TELL:
            error = unknown(probe.evidence)
            seconds = probe.retry_after_seconds
            if seconds is None or not look_later(p.transition, p.step, error, timedelta(seconds=seconds)):
                _ask_or_wait(p, receipt, probe.evidence)
            return Over()


def _ask_or_wait(p: Proposal, receipt: ReceiptRow, evidence: str) -> None:
    """Ask people, once the intended call can no longer arrive: they may answer *do it again*."""
    if not put_off(p.transition, p.step, p.operation, receipt, evidence):
        ask_people(p.transition, p.step, p.operation, receipt, evidence, p.nonce)


def _again(p: Proposal, receipt: ReceiptRow, found: Found, *, absent: bool = False) -> Next:
    """Intend the same action once more, if policy lets it out now. ``absent``: the target says that it did not happen.

    A run that is being canceled sends nothing more. A target that dedupes may get the same call at any time. For any
    other, the step waits until the first call can no longer arrive.
    """
    transition, how = p.transition, found.how
    if transition.view.run.canceling is not None:
        _consume(p)
        given_up(transition, receipt, replace(found, how=f"{how}; the run is being canceled"))
        transition.cancel_step(p.step)
        return Over()
    if stopped(transition, p.step, p.operation, p.nonce):
        return Over()
    dedupes = p.operation.in_doubt is InDoubtRule.IDEMPOTENT
    if not dedupes and put_off(transition, p.step, p.operation, receipt, how):
        return Over()
    if (turn := turn_first(p, call_of(p.operation, receipt).input)) is not None:
        return turn
    _consume(p)
    if absent and p.step.attempt >= p.operation.retry.attempts:
        void(p)
        how = f"{how} ({p.step.attempt} attempts were made)"
        given_up(transition, receipt, replace(found, how=how))
        transition.fail(p.step, StepError(ErrorClass.TRANSPORT, "not_applied", how).to_json())
        return Over()
    call, place = call_of(p.operation, receipt), (transition.run.state, transition.graph, p.step.key)
    action = whole(*place, rebuilt_action(p.operation, call.input, call.before), system_of(receipt))
    decision = judge(transition, p.step, p.workflow, p.policy, action, counted=True, chat=p.known.chat)
    bound, terms, given = receipt.action_digest, decision.approval, p.known.given
    decision_id = record_decision(transition, p.step, decision, action, bound)
    if decision.outcome is Ruling.DENY:
        return _denied(p, receipt, found, decision, absent=absent)
    if decision.outcome is Ruling.ALLOW or covers(transition, receipt, terms):
        void(p)
        return _intend_again(p, receipt, found, decision_id)
    asked = given is not None and given.kind is ApprovalKind.ACTION and given.digest == bound
    if given is None or not asked or terms is None or not refusals.fits(given.terms, terms):
        void(p)
        p = replace(p, known=replace(p.known, before=call.before))
        held = f"{how}; policy asks for an approval before it is sent"
        tell_of(transition, receipt, ActionHeld(receipt.receipt_id, held))
        return ask_approval(p, action, decision, again_bound(receipt), f"It was sent before, and is in doubt. {how}")
    # From now on this approval lets the action out, and its approvers are asked if the action is in doubt.
    authority: JsonObject = {"approval": str(given.approval_id), "terms": given.terms.to_json()}
    return _intend_again(p, receipt, found, decision_id, authority)


def _consume(p: Proposal) -> None:
    """Use up the people's answer about the doubt, so that it is acted on only once."""
    given, digest = p.known.given, p.transition.view.directory.digest
    if given is not None and given.kind is ApprovalKind.IN_DOUBT:
        p.transition.tell(ApprovalConsumed(given.approval_id, digest), step=p.step.key)


def covers(transition: Transition, receipt: ReceiptRow, terms: Terms | None) -> bool:
    """True if the approval that let this action out still does, on the terms that policy asks for now."""
    stored = receipt.action.get("terms")
    asked = isinstance(stored, dict) and Terms.from_json(stored) == terms
    return asked and still_approved(transition.view, transition.run, receipt) is not None


def _denied(p: Proposal, receipt: ReceiptRow, found: Found, decision: Decision, *, absent: bool) -> Next:
    """Fail the step, because policy denies the repeat. The first attempt stays recorded as not done or in doubt.

    A crash before this commit leaves the doubt; the next lease judges anew.
    """
    void(p)
    words = f"{found.how}; not sent again, because policy denies it now"
    if absent:
        given_up(p.transition, receipt, replace(found, how=words))
    else:
        tell_of(p.transition, receipt, ActionHeld(receipt.receipt_id, words))
    p.transition.fail(p.step, {**denied(decision).to_json(), **({} if absent else SENT)})
    return Over()


def _intend_again(
    p: Proposal, receipt: ReceiptRow, found: Found, decision: UUID, authority: JsonObject | None = None
) -> Next:
    """Record the intent to send the action again. A crash after the commit leaves a doubt again, for the next lease."""
    resolved = (receipt.receipt_id, Resolution.NOT_APPLIED, found.how)
    p.transition.tell(ActionDoubtResolved(*resolved, by=found.by, approval=found.approval), step=p.step.key)
    retried = intend_again(p.transition, receipt, decision, found.how, authority)
    if p.operation.kind is Kind.DURABLE:
        expect_end(p.transition, p.step, p.operation, p.nonce)
    return Perform(p.step, p.operation, call_of(p.operation, receipt), retried)
