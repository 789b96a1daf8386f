"""Following origins in a run as a draft of it stands. Pure."""

from __future__ import annotations

from core.identity import Directory, Kind, Standing, principal
from core.origins.matching import REQUESTER
from runtime.engine.commit import StepRow
from runtime.engine.draft import Draft
from runtime.engine.origins import Follower, follower_of
from runtime.engine.workflow import Workflow

# The triggers by which an authenticated person starts a run and gives its input.
_BY_PEOPLE = frozenset({"http", "cli"})
_BY_RUNS = "workflow"


def starter_of(trigger_type: str, requester: str, directory: Directory) -> str:
    """The origin of a run's input; "" if another run has started it, because that run tells the origins itself.

    Input from a service account does not count as given by a person.
    """
    if trigger_type == _BY_RUNS:
        return ""
    entry = directory.entry(principal(Kind.PERSON, requester)) or directory.entry(requester)
    is_machine = entry is not None and entry.standing is Standing.MACHINE
    return REQUESTER if trigger_type in _BY_PEOPLE and not is_machine else f"trigger:{trigger_type}"


def starters_of(trigger_type: str) -> tuple[str, ...]:
    """All origins that a run's input may have, whatever the directory says."""
    return (*((REQUESTER,) if trigger_type in _BY_PEOPLE else ()), f"trigger:{trigger_type}")


def following(draft: Draft, step: StepRow | None, workflow: Workflow | None) -> Follower:
    """A follower of origins for the expressions of a step; without a step, for those of the run's result."""
    view, key = draft.view, "" if step is None else step.key
    starter = starter_of(view.trigger_type, view.run.requested_by, view.directory)
    return follower_of(draft.run, draft.graph, starter, workflow, draft.variables(key))
