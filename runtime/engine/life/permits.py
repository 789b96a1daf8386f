"""Gates: an agent carries its tool out itself, by a permit that it has fetched, and reports what came of it. Pure.

An action that is let out waits, and costs nothing, until its agent fetches the permit. Then it is judged anew, and the
intent is recorded; only after that append does the permit go out (promise 1). Until the report the receipt stays
intended. Without one, and for any other outcome than of this very call, the action is in doubt: people decide, and no
second permit goes out, whatever they say (promise 2).

Both are waits of the step. The permit is none of their tokens: it is derived from the run's key and from the digest of
the agent's nonce, so it stands nowhere (``permit_of``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from approvals.model import ApprovalKind, Choice
from connectors.proposal import rebuilt_action
from core.canonical import JsonObject, clean
from evidence.commitments import blind
from evidence.receipts import ReceiptStatus
from policy.model import Ruling
from policy.sets import PolicySet
from runtime.engine.book.contributors import whole
from runtime.engine.book.draft import tell_of
from runtime.engine.book.instructions import FETCH, PERMIT, REPORT, Next, Over, Perform
from runtime.engine.life import doubt
from runtime.engine.life.doubt import Found
from runtime.engine.life.intend import judge
from runtime.engine.life.outside import GATE, call_of, system_of
from runtime.engine.life.proposal import Leased, Proposal
from runtime.engine.life.transition import Transition, finish
from runtime.engine.model.errors import SENT, ErrorClass, StepError
from runtime.engine.model.events import ActionFailed, ActionSucceeded, ApprovalConsumed
from runtime.engine.model.graph import OperationNode
from runtime.engine.model.rows import ReceiptRow, StepRow, WaitRow
from runtime.engine.model.run import AGENT, Run
from runtime.engine.model.states import WaitKind, WaitState
from runtime.engine.model.workflow import Workflow

# In what ends the wait for the fetch: the digest of the nonce, when that was, and the seconds of the lease.
NONCE, AT, LEASE = "nonce", "at", "lease"
# A fetch counts for so long: whoever asked before that may be gone, and an intent would be in doubt at once.
FRESH = timedelta(seconds=60)
NOT_FETCHED, NOT_RUN, FAILED_THERE = "not_fetched", "not_run", "failed_at_agent"
DETAIL_CHARACTERS_MAX = 1000


class Outcome(StrEnum):
    """The outcomes that an agent reports of its own call."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NOT_RUN = "not_run"
    UNKNOWN = "unknown"


def permit_of(run: Run, wait: WaitRow) -> str:
    """The permit of the wait for a report. Only a holder of the run's key can derive it, and no bundle has that."""
    nonce = str((wait.context or {}).get(NONCE))
    return blind(run.run_key, f"permit:{wait.step_key}:{wait.wait_id}:{nonce}")


def nonce_of(wait: WaitRow) -> str | None:
    """The digest of the nonce by which the permit was fetched first; None if it was not yet."""
    for found in (dict(wait.result or {}).get(NONCE), (wait.context or {}).get(NONCE)):
        if isinstance(found, str):
            return found
    return None


def newest(run: Run, step_key: str, *, permit: bool = False) -> WaitRow | None:
    """The newest wait of a step, of whatever kind, or the newest one about its permit."""
    own = [one for one in run.waits.values() if one.step_key == step_key and not one.left]
    return next((one for one in reversed(own) if one.kind is WaitKind.PERMIT or not permit), None)


def resumed(leased: Leased, leaf: OperationNode, wait: WaitRow) -> Next | None:
    """Act on the end of a wait about a permit. None: the step goes on, and what it would do is judged anew."""
    p, receipt = leased.proposal(leaf), leased.known.receipt
    if dict(wait.context or {}).get(PERMIT) == REPORT:
        if receipt is None or receipt.status != ReceiptStatus.INTENDED or not p.owns(receipt):
            return None  # the report was settled before, and left a doubt
        _settle(p, receipt, wait)
        return Over()
    if wait.status is WaitState.TIMED_OUT and p.transition.view.run.canceling is None:
        words = "It was let out, and its agent did not fetch the permit in time. Nothing was done."
        p.transition.fail(p.step, StepError(ErrorClass.TIMEOUT, NOT_FETCHED, words).to_json())
        return Over()
    return None


def held_back(p: Proposal) -> Next | None:
    """Wait until the agent fetches the permit of what is let out; None if it has fetched it just now.

    A crash before the append leaves a lease that runs out. A question, a pause or a long time after the fetch means
    that the agent may be gone: it fetches again, by the same nonce.
    """
    run, last = p.transition.run, newest(p.transition.run, p.step.key)
    asked = p.transition.view.trigger_type == AGENT and isinstance(run.trigger.get(GATE), str)
    if not asked or not p.operation.has_effect:
        words = f"Only an agent that asks for {p.operation.name} itself can carry it out, and only as an effect."
        p.transition.fail(p.step, StepError(ErrorClass.DEFINITION, "no_agent", words).to_json())
        return Over()
    if p.known.receipt is not None:
        words = "A permit has gone out for it before, and there is no second one. The agent may ask for it anew."
        p.transition.fail(p.step, StepError(ErrorClass.CONSISTENCY, "permit_spent", words).to_json())
        return Over()
    if last is not None and _is_fresh(p.transition, last):
        return None
    before = newest(run, p.step.key, permit=True)
    nonce = None if before is None else nonce_of(before)
    context: JsonObject = {PERMIT: FETCH, **({} if nonce is None else {NONCE: nonce})}
    p.transition.park(p.step, WaitKind.PERMIT, p.nonce(), p.operation.timeouts.parked, context)
    return Over()


def _is_fresh(transition: Transition, wait: WaitRow) -> bool:
    if wait.kind is not WaitKind.PERMIT or wait.status is not WaitState.COMPLETED:
        return False
    result: Mapping[str, Any] = wait.result or {}
    return transition.view.now - datetime.fromisoformat(str(result[AT])) <= FRESH


def handed_out(p: Proposal, made: Next) -> Next:
    """Wait for the report of what was intended. A crash after that append leaves the permit to be fetched again.

    The intent and this wait are one append. If the agent does not report before the lease ends, the action is in doubt.
    """
    if not isinstance(made, Perform) or made.receipt is None:
        return made
    fetched = newest(p.transition.run, p.step.key, permit=True)
    assert fetched is not None, "it was fetched just now"
    result: Mapping[str, Any] = fetched.result or {}
    context: JsonObject = {PERMIT: REPORT, NONCE: result[NONCE], "receipt": str(made.receipt.receipt_id)}
    p.transition.park(made.step, WaitKind.PERMIT, p.nonce(), timedelta(seconds=result[LEASE]), context)
    return Over()


def withheld(
    transition: Transition, step: StepRow, workflow: Workflow, policy: PolicySet, receipt: ReceiptRow
) -> str | None:
    """The reason why the permit of what was intended does not go out now; None if policy and votes still let it out.

    It settles nothing: the permit may have gone out before, so without a report the action is in doubt (promise 2).
    """
    operation = workflow.operations[receipt.operation]
    call, place = call_of(operation, receipt), (transition.run.state, transition.graph, step.key)
    action = whole(*place, rebuilt_action(operation, call.input, call.before), system_of(receipt))
    decision = judge(transition, step, workflow, policy, action, counted=True)
    if decision.outcome is Ruling.DENY:
        return " ".join(decision.reasons)
    if decision.outcome is Ruling.ALLOW or doubt.covers(transition, receipt, decision.approval):
        return None
    return "Policy asks people about it now, and no votes that count today let it out on these terms."


# -- what the agent reports ------------------------------------------------------------------------------------------


def _settle(p: Proposal, receipt: ReceiptRow, wait: WaitRow) -> None:
    """Settle the action by the agent's report. A crash before the append leaves the report, for the next lease."""
    report: dict[str, Any] = dict(wait.result or {})
    detail = clean(report.get("detail") or "", DETAIL_CHARACTERS_MAX)
    if (why := in_question(p.transition.run, wait)) is not None:
        _doubt(p, receipt, " ".join(filter(None, (why, detail and f"It said: {detail}"))))
        return
    if report["outcome"] == Outcome.SUCCEEDED:
        ran = blind(p.transition.view.run.run_key, str(report["digest"]))
        tell_of(p.transition, receipt, ActionSucceeded(receipt.receipt_id, report.get("output"), ran=ran))
        finish(p.transition, p.step, report.get("output"))
        return
    words, code = "The agent reports that it did not run.", NOT_RUN
    if report["outcome"] == Outcome.FAILED:
        words, code = "The agent reports that it failed. It may have had a part of its effect.", FAILED_THERE
    error = StepError(ErrorClass.TRANSPORT, code, f"{words} {detail}".strip())
    if code == FAILED_THERE:
        error = StepError(error.kind, code, error.message, SENT)
    tell_of(p.transition, receipt, ActionFailed(receipt.receipt_id, str(error.kind), code, error.to_json()))
    p.transition.fail(p.step, error.to_json())


def in_question(run: Run, wait: WaitRow) -> str | None:
    """The reason why a wait for a report ended without an outcome that counts; None if it counts."""
    report: Mapping[str, Any] = wait.result or {}
    if wait.status is not WaitState.COMPLETED:
        return "The agent had its permit, and did not report before its lease ended."
    if report.get("late"):
        return f"The agent reported {report.get('outcome')} after its lease had ended."
    if report.get("digest") != run.trigger.get(GATE):
        return f"The agent reports {report.get('outcome')} of something else than what was let out."
    if report.get("outcome") == Outcome.UNKNOWN:
        return "The agent does not know if it was done."
    return None


def _doubt(p: Proposal, receipt: ReceiptRow, why: str) -> None:
    receipt = doubt.mark(p.transition, receipt, why)
    if p.transition.view.run.canceling is not None:
        p.transition.cancel_step(p.step)  # nobody is asked any more: the evidence says that it is in doubt
        return
    doubt.ask_people(p.transition, p.step, p.operation, receipt, why, p.nonce)


def doubted(p: Proposal, receipt: ReceiptRow) -> Next:
    """Go on with a doubt: people have answered, or their answer is void. Nothing goes out again in any case."""
    transition, given = p.transition, p.known.given
    receipt = doubt.mark(transition, receipt, "nobody has recorded what came of it")
    answered = given is not None and given.kind is ApprovalKind.IN_DOUBT and given.digest == receipt.action_digest
    if answered and given is not None and given.choice is Choice.HAPPENED:
        return doubt.resolve(p, receipt)
    if answered and given is not None:
        words = f"a person said to do it again: {given.reason}. No second permit goes out; the agent may ask anew"
        transition.tell(ApprovalConsumed(given.approval_id, transition.view.directory.digest), step=p.step.key)
        doubt.given_up(transition, receipt, Found(words, doubt.PEOPLE, given.approval_id))
        transition.fail(p.step, StepError(ErrorClass.TRANSPORT, "not_applied", words).to_json())
        return Over()
    _doubt(p, receipt, "What the agent reported left it in doubt, and nobody has found out.")
    return Over()
