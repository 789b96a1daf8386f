"""Preflight: finds what would fail after people have answered, before they are asked. Pure.

It checks the connector and its target against the settings of this process, and the possible approvers against the
directory. It need not check that the record exists: an operation with a ``diff`` has read it. If a check fails, nobody
is asked, and the step fails with the place and the remedy.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import ceil

from approvals.electorate import slack_groups, unanswerable
from connectors.operation import Operation
from connectors.port import Pace
from core.canonical import JsonObject, clean
from core.terms import Terms
from runtime.engine.book import contributors
from runtime.engine.book.instructions import Known, Next, Over, Resolve, TakeTurn
from runtime.engine.life.proposal import Proposal
from runtime.engine.life.transition import OPEN, Transition, counts
from runtime.engine.model.errors import BUSY, RATE, SLACK_AWAY, SOONER, ErrorClass, StepError
from runtime.engine.model.events import PreflightFailed
from runtime.engine.model.rows import StepRow

# The code of a question that nobody could answer.
NOBODY = "nobody_may_decide"
# The trigger of runs of Counterseal's own workflows, and the message about the outcome of the change they propose.
OWN_TRIGGER = "counterseal"
PROPOSAL = "proposal"
# The time after which Slack is asked again who is in a group.
AGAIN_AFTER = timedelta(minutes=1)


class Check(StrEnum):
    """The things that are checked before people are asked."""

    CONNECTOR = "connector"
    TARGET = "target"
    PEOPLE = "people"
    REFUSED = "refused"
    FAILED = "failed"


def answerable(transition: Transition, step: StepRow, terms: Terms, marks: frozenset[str], known: Known) -> Next | None:
    """Check that enough people may answer: None if so, else what to do first, which is ``Over`` if the step has failed.

    The directory guards the append of that failure, so that somebody who was just added is counted.
    """
    wanted = slack_groups(terms) if known.slack is None else ()
    if wanted:
        return Resolve(step, wanted, known)
    view = transition.view
    shaped = contributors.people_of(view.run, marks, view.directory)
    why = unanswerable(terms, shaped, view.directory, known.slack or {})
    if why is None:
        return None
    transition.rows.people = view.directory.digest or None  # there is nothing to guard if none is published
    transition.tell(PreflightFailed(Check.PEOPLE, directory=view.directory.digest), step=step.key)
    error = StepError(ErrorClass.AUTHORIZATION, NOBODY, f"Nobody was asked. {why.message} {why.remedy}")
    transition.fail(step, error.to_json())
    if view.trigger_type == OWN_TRIGGER:  # no card was posted under which this could be said
        words = f"the change of policy that you proposed is not in force, because nobody can be asked. {why.message}"
        payload: JsonObject = {"person": view.run.requested_by, "text": f"{words} {why.remedy}"}
        transition.order(PROPOSAL, step.key, payload)
    return Over()


def put_off(transition: Transition, step: StepRow) -> None:
    """Try again later, because Slack cannot say who is in a group. A crash before the append leaves the lease."""
    words = "Slack cannot be asked who is in a group that is to decide, so nobody was asked yet; it is tried again."
    transition.retry_later(
        step, AGAIN_AFTER, StepError(ErrorClass.TRANSPORT, SLACK_AWAY, words).to_json(), attempted=False
    )


def turn_first(p: Proposal, inputs: JsonObject) -> Next | None:
    """The instruction that comes before this call; None if it may go out now.

    The step waits if its target has asked for no calls, whoever was told so. If the target has a rate, the step takes
    its turn: one for a call and the reads for it.
    """
    if p.transition.view.busy and is_busy(p, inputs):
        return Over()
    of_target = p.transition.pace
    pace = None if p.known.turn or of_target is None else of_target(p.operation.connector, inputs)
    return None if pace is None else TakeTurn(p.step, pace, p.known)


def await_turn(transition: Transition, step: StepRow, pace: Pace, delay: float) -> None:
    """Let the step wait for its turn. Nothing was sent, no attempt is used up. A crash before it leaves the lease."""
    words = f"{pace.target} takes at most {pace.calls} calls a minute (`rates`); this step waits for its turn."
    error = StepError(ErrorClass.TRANSPORT, RATE, words, {"target": pace.target})
    transition.retry_later(step, timedelta(seconds=ceil(delay)), _waiting(step, error), attempted=False)


def is_busy(p: Proposal, inputs: JsonObject) -> bool:
    """Let the step wait if its target has asked for no calls for a while; true if so. No attempt is used up.

    The append is guarded by the tenant's number, which moves when a target asks for that. A crash before it leaves the
    lease.
    """
    view = p.transition.view
    p.transition.rows.stop = view.stop
    place = p.transition.place(p.operation.connector, inputs)
    until = view.busy.get(place)
    if until is None or until <= view.now or (p.step.last_error or {}).get(SOONER):
        return False
    error = StepError(ErrorClass.TRANSPORT, BUSY, busy_words(place, until), {"target": place})
    p.transition.retry_later(p.step, until - view.now, _waiting(p.step, error), attempted=False)
    return True


def _waiting(step: StepRow, error: StepError) -> JsonObject:
    """The error of a step that merely waits, with what a doubt of it has counted so far."""
    doubt = {OPEN: True} if (step.last_error or {}).get(OPEN) is True else {}
    return {**counts(step), **doubt, **error.to_json()}


def busy_words(place: str, until: datetime) -> str:
    """Say which target has asked for no calls, and until when."""
    return f"{place} asks for no calls until {until.astimezone(UTC):%Y-%m-%d %H:%M:%SZ} (Retry-After)."


def callable_now(transition: Transition, step: StepRow, operation: Operation, inputs: JsonObject) -> bool:
    """True if the settings allow this call. If not, fail the step."""
    problem = transition.ready(operation.connector, operation.name, inputs)
    if problem is None:
        return True
    check = Check.TARGET if operation.connector in transition.systems else Check.CONNECTOR
    transition.tell(PreflightFailed(check, operation.name), step=step.key)
    words = f"Nobody was asked, because {operation.name} could not be performed: {problem.message}"
    transition.fail(step, StepError(ErrorClass.TRANSPORT, problem.code, clean(words)).to_json())
    return False
