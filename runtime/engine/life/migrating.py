"""Moves a waiting run to another version of its workflow: records that, and voids the questions that change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from approvals.model import ApprovalStatus
from core.canonical import Json, JsonObject
from core.errors import ConsistencyError
from evidence.chain import Actor
from evidence.commitments import commit_fields, path_of
from runtime.engine.book.channels import first_values
from runtime.engine.book.instructions import open_wait
from runtime.engine.life import ask
from runtime.engine.life.readers import VOIDED
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import RunMigrated
from runtime.engine.model.graph import Graph
from runtime.engine.model.run import Run
from runtime.engine.model.states import RunState
from runtime.engine.model.workflow import Workflow

MIGRATED = "migrated"


def new_channels(before: Graph, after: Graph, constants: Mapping[str, object]) -> JsonObject | None:
    """The first values of the channels that only the new version has. ``InputError`` names one without a value."""
    new = {name: channel for name, channel in after.channels.items() if name not in before.channels}
    made = first_values(new, constants, {})
    return {name: made.get(name, channel.initial) for name, channel in new.items()} or None


def newly_read(run: Run, before: Graph, after: Graph) -> JsonObject | None:
    """The outputs of finished steps that only the new version reads: no checkpoint has carried them so far.

    ``run`` is folded in full.
    """
    done = (key for key in run.state.status if key in run.past and key not in run.state.outputs)
    new = after.read - before.read
    return {key: run.past[key].output for key in done if key.rpartition(".")[2] in new} or None


def migrate(
    transition: Transition, before: Workflow, after: Workflow, anew: Sequence[str], actor: Actor, reason: str
) -> None:
    """Record that a person moves the run, void the questions of the steps ``anew``, and plan what can begin now.

    ``ConsistencyError`` if the run would fail at once. The graph of ``transition`` is that of ``after``.
    """
    run_key, number = transition.view.run.run_key, transition.run.extensions + 1
    named: JsonObject = {"name": after.name, "version": after.version, "digest": after.digest}
    committed: list[Json] = commit_fields(run_key, path_of("migrated", str(number)), {"reason": reason})
    run = transition.view.run
    event = RunMigrated(
        number, named, after.definition_digest, before.definition_digest, True, committed, reason,
        new_channels(before.graph, after.graph, transition.view.constants), newly_read(run, before.graph, after.graph),
    )  # fmt: skip
    transition.tell(event, actor=actor)
    for key in anew:
        step, wait = transition.run.steps[key], open_wait(transition.run, key)
        assert wait is not None, "the step waits for people"
        open_ = (one.approval_id for one in transition.run.approvals.values() if one.step_key == key)
        for asked in [one for one in open_ if transition.run.answers[one].status is ApprovalStatus.REQUESTED]:
            ask.supersede(transition, step, asked)
            transition.message(VOIDED, asked, f"{MIGRATED}:{number}")
        transition.resume(step, wait)
    if not anew:
        transition.left()
    if transition.run.finished and transition.run.status is not RunState.SUCCEEDED:
        why = (transition.run.error or {}).get("message", "")
        raise ConsistencyError(
            f"The run would fail at once in version {after.version}: {why}", remedy="Mend that first."
        )
