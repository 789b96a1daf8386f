"""Bounds for people's attention: repeated questions, open questions, and approved calls that keep failing. Pure.

The number of open questions is bounded for a turn of an agent, for a run and for a requester (``Terms.questions``). A
call of an agent that exceeds a bound is refused, and its model is told so. A step of a workflow waits for a slot. If
people approved a call and it failed, the next question about it says so; after a number of failures it is not asked
about any more.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from approvals.model import ApprovalKind, ApprovalStatus
from core.canonical import JsonObject
from core.terms import Terms
from runtime.engine.book import failures, refusals
from runtime.engine.book import refusals as askers
from runtime.engine.book.questions import cards_of
from runtime.engine.book.refusals import Refusal
from runtime.engine.life.preflight import OWN_TRIGGER, PROPOSAL, Check
from runtime.engine.life.transition import Transition
from runtime.engine.model.errors import FAILED_BEFORE, TOO_MANY, ErrorClass, StepError
from runtime.engine.model.events import PreflightFailed
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import ApprovalRow, StepRow
from runtime.engine.model.run import Run

# The time after which a step that waits for a slot looks again.
SLOT_AFTER = timedelta(minutes=1)


class Admitted(Struct, frozen=True):
    """A question that may be asked, with the ``key`` that a rejection binds, and what its card ``says`` of the past.

    ``askers`` are all who have asked for it, the latest first. If it was refused before, its ``terms`` bar all of them
    from deciding.
    """

    key: str
    terms: Terms
    askers: list[str]
    refused: list[Refusal]
    failed: list[JsonObject]
    says: str


def admitted(
    transition: Transition, step: StepRow, terms: Terms, key: str, before: str = "", listed: str | None = None
) -> Admitted | None:
    """Check that the question may be asked now. If not, fail the step or let it wait for a slot, and return None.

    ``before`` are words about rejections at this step that no longer bind. ``listed`` is the list that the question
    belongs to: the questions that share a card count as one.
    """
    view, run = transition.view, transition.run
    found = refusals.binding(view.refusals.get(key, ()), terms, view.now)
    if (error := refusals.barred(found, run, step.key, view.directory)) is not None:
        failed_check = PreflightFailed(Check.REFUSED, None, view.directory.digest, [one.to_json() for one in found])
        _refuse(transition, step, failed_check, error)
        return None
    failed = failures.of_call(run, view.family, view.run_id, key)
    anew = failures.since_begun(run, view.family, key)
    if anew >= terms.most("failures"):
        failed_check = PreflightFailed(Check.FAILED, failed=failed)
        words = f"Nobody was asked: the same call was approved before, and failed {anew} times. {failure_words(failed)}"
        _refuse(transition, step, failed_check, StepError(ErrorClass.AUTHORIZATION, FAILED_BEFORE, words))
        return None
    who = [askers.name_of(view.directory, one) for one in askers.everybody(run, step.key)]
    if (full := _full(transition, step, terms, who[0], listed)) is not None:
        _wait(transition, step, full)
        return None
    ours = {one.approval_id for one in found}
    told_here = "" if any(one in ours for one in run.answers) else before
    says = " ".join(filter(None, (refusals.words(found, view.directory), told_here, failure_words(failed))))
    return Admitted(key, refusals.strict(terms) if found else terms, [*dict.fromkeys(who)], found, failed, says)


def _refuse(transition: Transition, step: StepRow, failed_check: PreflightFailed, error: StepError) -> None:
    """Fail the step at once, with the reason. The proposer of a policy gets it as a private message."""
    transition.tell(failed_check, step=step.key)
    transition.fail(step, error.to_json())
    if transition.view.trigger_type == OWN_TRIGGER:
        words = f"the change of policy that you proposed is not in force. {error.message}"
        transition.order(PROPOSAL, step.key, {"person": transition.view.run.requested_by, "text": words})


def _full(transition: Transition, step: StepRow, terms: Terms, asker: str, listed: str | None) -> str | None:
    """The bound that one more question would exceed, in words; None if it would exceed none.

    These counts guard the append that asks: by the run's version if other steps could ask as well, and in the database
    by the asker's open questions.
    """
    run = transition.run
    open_ = [row for row in _open(run) if row.kind != ApprovalKind.IN_DOUBT]
    asked = [row.step_key for row in open_]
    if asked or run.width > 1:
        transition.rows.recounted = True
    most, lists = terms.most("run"), [row.listed for row in open_]
    if cards_of([*lists, listed]) > most:
        return f"{most} questions of this run are open"
    key = StepKey.of(step.key)
    most = terms.most("turn")
    if key.is_call and sum(one.startswith(f"{key.in_turn}/") for one in asked) >= most:
        return f"{most} questions of this turn are open"
    most, now = terms.most("requester"), transition.view.open_by.get(asker, 0)
    now += sum(one.asker == asker for one in transition.rows.asks)
    return f"{most} questions of {asker} are open" if now >= most else None


def _open(run: Run) -> list[ApprovalRow]:
    """The open questions of a run."""
    opened = (key for key, answer in run.answers.items() if answer.status == ApprovalStatus.REQUESTED)
    return [run.approvals[key] for key in opened if key in run.approvals]


def _wait(transition: Transition, step: StepRow, full: str) -> None:
    """Refuse an agent's call, or let a step of the workflow wait for a slot. A crash before this leaves the lease."""
    if StepKey.of(step.key).is_inner:
        words = (
            f"Nobody was asked, because {full}, and no more may be. Wait for their answers before you call it again."
        )
        transition.fail(step, StepError(ErrorClass.AUTHORIZATION, TOO_MANY, words).to_json())
        return
    words = f"Nobody was asked yet, because {full}, and no more may be; it is tried again."
    error = StepError(ErrorClass.AUTHORIZATION, TOO_MANY, words)
    transition.retry_later(step, SLOT_AFTER, error.to_json(), attempted=False)


def failure_words(failed: list[JsonObject]) -> str:
    """The failures in words, for a card; "" for none."""
    times = [f"on {str(one['at'])[:16].replace('T', ' ')} UTC: {one['message'] or one['code']}" for one in failed]
    return f"It was approved before and failed {len(failed)} times: {'; '.join(times)}." if failed else ""
