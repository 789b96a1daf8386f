"""Holds: people decide about a held step. It is tried again, left out, or ends with its run. Pure.

Whoever tries a step again is a requester of it from then on, so their own vote does not count for it (promise 12).
People are not asked anew as long as an approval of the same action binds, is fresh, and was used by an attempt that
certainly had no effect. An action in doubt is looked into, and never tried again here (promise 2). A step that waits
for its retry can be tried now.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from core.errors import ConsistencyError
from core.identity import Role
from evidence.chain import Actor
from runtime.engine.book import contributors
from runtime.engine.book.fold import of_holds
from runtime.engine.life.closing import HOLD
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import HoldAnswered
from runtime.engine.model.graph import LeafNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow, WaitRow
from runtime.engine.model.run import Run
from runtime.engine.model.states import WaitKind

# Contributors with only one of these roles may still decide that the run goes on without the step.
_MAY_RELEASE = (Role.RETRIER,)
# The group that may try a waiting retry now, besides the group that would decide about the held step.
OPERATORS = "operators"


class Answer(StrEnum):
    """The answers to a hold."""

    AGAIN = of_holds.AGAIN
    WITHOUT = of_holds.WITHOUT
    CANCEL = of_holds.CANCEL


def groups_for(transition: Transition, step: StepRow, wait: WaitRow) -> frozenset[str]:
    """The groups of the directory whose members may decide about the step."""
    if wait.kind is WaitKind.HOLD:
        return frozenset({str((wait.context or {})["group"])})
    leaf = transition.graph.leaves.get(StepKey.of(step.key).node)
    holds = leaf.hold if isinstance(leaf, LeafNode) else ""
    return frozenset({OPERATORS, holds} - {""})


def shaped_by(transition: Transition, step: StepRow) -> frozenset[str]:
    """The ids of the people who shaped the step's action, or whom it is about: they may not decide to leave it out.

    Whoever only tried it again is not among them.
    """
    view, run = transition.view, transition.run
    marks = contributors.marks_of(run.state, transition.graph, step.key)
    found = [*contributors.contributors_of(run, marks)]
    for asked in run.approvals.values():
        found += contributors.stated_contributors(asked) if asked.step_key == step.key else ()
    people = [view.directory.people(one.principal) for one in found if one.role not in _MAY_RELEASE]
    return frozenset(person for each in people for person in each)


def refusal(transition: Transition, step: StepRow, wait: WaitRow, answer: Answer) -> ConsistencyError | None:
    """The reason why this answer is not possible now, with the remedy; None if it is."""
    if transition.view.run.canceling is not None:
        return ConsistencyError("The run is being canceled; nothing else becomes of its steps.")
    if wait.kind is not WaitKind.HOLD and answer is not Answer.AGAIN:
        words = f"The step {step.key} is not held: it is tried again by itself."
        return ConsistencyError(words, remedy="Try it now, let it go on, or cancel the run.")
    if answer is Answer.AGAIN and of_holds.doubtful(transition.run, step.key):
        words = f"Nobody knows whether the action of {step.key} happened, so it may not be done again."
        held = "Look outside; then go on without it, or cancel the run."
        return ConsistencyError(words, remedy=held if wait.kind is WaitKind.HOLD else "It is looked into by itself.")
    return None


def answer(
    transition: Transition, step: StepRow, wait: WaitRow, choice: Answer, actor: Actor, reason: str, channel: str
) -> None:
    """Record a person's answer, and act on it. ``ConsistencyError`` says why that is not possible now.

    A crash before the append leaves the step as it was; after it, the step is queued or the run is canceled.
    """
    if (problem := refusal(transition, step, wait, choice)) is not None:
        raise problem
    event = HoldAnswered(wait.wait_id, wait.kind, str(choice), channel, bool(reason), reason)
    transition.tell(event, step=step.key, actor=actor)
    if wait.kind is WaitKind.HOLD:
        key = str(wait.wait_id)
        transition.order(HOLD, f"{key}:{choice}", {"wait": key}, one_at_a_time=key)
    if choice is Answer.CANCEL:
        transition.cancel(actor, reason)
    else:
        transition.resume(transition.run.steps[step.key], wait)


def steps_named(run: Run, step: str) -> Iterable[str]:
    """The keys of the waiting steps that this name, a key or the id of a step, stands for."""
    return [key for key in run.steps if key == step] or [key for key in run.steps if StepKey.of(key).own == step]
