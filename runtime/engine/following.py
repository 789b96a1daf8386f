"""Following origins in a run as a draft of it stands. Pure."""

from __future__ import annotations

from core.identity import Directory, Kind, Standing, principal
from core.origins.matching import REQUESTER
from runtime.engine.commit import StepRow
from runtime.engine.draft import Draft
from runtime.engine.origins import Follower, follower_of
from runtime.engine.workflow import Workflow

# How a run starts if somebody who was authenticated has ordered it, and gave its input.
_BY_PEOPLE = frozenset({"http", "cli"})
_BY_RUNS = "workflow"


def starter_of(trigger_type: str, requester: str, directory: Directory) -> str:
    """The origin of what a run was started with; "" if another run has started it, which tells the origins itself.

    What a service account sends, no person gave.
    """
    if trigger_type == _BY_RUNS:
        return ""
    entry = directory.entry(principal(Kind.PERSON, requester)) or directory.entry(requester)
    is_machine = entry is not None and entry.standing is Standing.MACHINE
    return REQUESTER if trigger_type in _BY_PEOPLE and not is_machine else f"trigger:{trigger_type}"


def starters_of(trigger_type: str) -> tuple[str, ...]:
    """The origins that what a run was started with can have, whoever the tenant's people are."""
    return (*((REQUESTER,) if trigger_type in _BY_PEOPLE else ()), f"trigger:{trigger_type}")


def following(draft: Draft, step: StepRow | None, workflow: Workflow | None) -> Follower:
    """A follower of the origins that the expressions of a step see; of no step those of the run's result."""
    view, key = draft.view, "" if step is None else step.key
    starter = starter_of(view.trigger_type, view.run.requested_by, view.directory)
    return follower_of(draft.run, draft.graph, starter, workflow, draft.variables(key))
