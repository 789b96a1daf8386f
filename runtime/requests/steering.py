"""Steers open runs: adds steps, each governed like any other, closes, cancels and retries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import ApprovalStatus
from core.canonical import JsonObject, check_text
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from evidence.commitments import commit_fields, path_of
from runtime.definition.catalog import Definitions
from runtime.definition.reserved import refuse_altering
from runtime.definition.workflow import check_past, extended, read_extension
from runtime.engine.life.reopening import reopen
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import RunExtended
from runtime.engine.model.graph import NO_GRAPH
from runtime.engine.model.rows import MutationRow
from runtime.engine.model.run import RunView
from runtime.engine.model.states import RUN, RunState
from runtime.engine.model.workflow import Workflow
from runtime.requests.forking import refuse_forked
from runtime.requests.gating import Gating, gates_of
from runtime.store import approvals, bundles, faces
from runtime.store.views import load, load_to_end


class VersionMoved(ConsistencyError):
    """The run is no longer at the version that the caller has seen."""


class Extended(Struct, frozen=True):
    """A made extension: its number among the run's extensions, the new steps' ids, and the run's version afterwards."""

    number: int
    steps: tuple[str, ...]
    version: int


class Extending(Struct, frozen=True):
    """Extends runs of any tenant, under the faces' role."""

    database: Database
    definitions: Definitions

    async def extend(
        self, tenant: str, run_id: UUID, actor: Actor, source: Mapping[str, Any], expected_version: int
    ) -> Extended:
        """Add steps. ``InputError`` says what is wrong with them; ``VersionMoved`` if the run has moved on.

        A crash before the commit leaves nothing; after it, the steps are part of the run's graph for good.
        """
        extension = read_extension(source)
        async with self.database.transaction(tenant) as connection:
            view = await load(connection, run_id, self.definitions.graphs, lock=True, tenant=tenant)
            refuse_altering(view.workflow)
            _check(view, expected_version)
            base, known = await self.definitions.extended_from(connection, view.definition)
            before = await self.definitions.of_run(connection, view.definition)
            check_past(before.graph, view.run.state, extension)
            added = MutationRow(view.run.extensions + 1, actor.id, dict(source), {})
            catalog = await self.definitions.published(connection, tenant)
            after = extended(base, [*known, added], catalog)
            gating = Gating(connection, self.definitions, tenant)
            gates, early = await gates_of(gating, view, before, after, extension)
            if gates:
                after = extended(base, [*known, replace(added, gates=gates)], catalog)
            adopted = await self._outputs(connection, view, before, after)
            transition = Transition(view, after.graph)
            names = tuple(sorted(_ids(after) - _ids(before)))
            path = path_of("mutation", str(added.number))
            committed = commit_fields(view.run.run_key, path, added.source)
            frozen = {name: value for name, value in after.frozen_operations.items() if name not in before.operations}
            event = RunExtended(
                added.number, [*names], committed, added.source, frozen, adopted or None, [*gates] or None,
                [str(one) for one in early] or None,
            )  # fmt: skip
            transition.extend(event, actor)
            if not await faces.append(connection, transition.commit()):
                raise VersionMoved("The run has just moved on.", remedy="Look at it again, then extend it.")
        return Extended(added.number, names, view.version + 1)

    async def _outputs(self, connection: Connection, view: RunView, before: Workflow, after: Workflow) -> JsonObject:
        """The outputs of finished steps that only the new steps read: no checkpoint holds them so far."""
        newly = sorted(after.graph.read - before.graph.read)
        missing = [key for key in newly if key in view.run.state.status and key not in view.run.state.outputs]
        if not missing:
            return {}
        if view.run.executing > 0:
            raise ConsistencyError(
                f"The new steps read the output of {missing[0]}, which nobody needed so far. "
                "It can be read back only while no step is executing.",
                remedy="Try again when the run waits.",
            )
        whole = await load(connection, view.run_id, self.definitions.graphs, whole=True, tenant=view.tenant_id)
        return {key: whole.run.past[key].output for key in missing if key in whole.run.past}


def _check(view: RunView, expected_version: int) -> None:
    if view.run.status in RUN.terminal or view.run.canceling is not None:
        raise ConsistencyError(f"The run is {view.run.status}; nothing can be added to it.")
    if view.version != expected_version:
        raise VersionMoved(
            f"The run is at version {view.version}, not {expected_version}: it has moved on since you looked.",
            remedy="Look at the run again, and send its version with If-Match.",
        )


def _ids(workflow: Workflow) -> set[str]:
    return {node.id for node in workflow.graph.root.walk()}


async def close_run(
    connection: Connection, definitions: Definitions, tenant: str, run_id: UUID, actor: Actor, reason: str
) -> RunState:
    """Close an open run, so that it waits for no more steps, inside the caller's transaction; return its new status.

    ``ConsistencyError`` if it is not open, or has just moved on.
    """
    check_text(reason, "reason")
    view = await load(connection, run_id, definitions.graphs, lock=True, tenant=tenant)
    transition = Transition(view, (await definitions.of_run(connection, view.definition)).graph)
    transition.seal(actor, reason)
    if not await faces.append(connection, transition.commit()):
        raise ConsistencyError("The run has just moved on.", remedy="Look at it again, then close it.")
    return transition.run.status


async def cancel_run(
    connection: Connection, definitions: Definitions, tenant: str, run_id: UUID, actor: Actor, reason: str
) -> RunState:
    """Cancel a run inside the caller's transaction; return its status (running while an action is under way).

    ``ConsistencyError`` if it is over, or has just moved on.
    """
    check_text(reason, "reason")
    view = await load_to_end(connection, run_id, definitions.graphs, lock=True, tenant=tenant)
    # Nothing is evaluated or planned, so a run whose workflow cannot be read any more can be canceled as well.
    transition = Transition(view, NO_GRAPH)
    transition.cancel(actor, reason)
    if not await faces.append(connection, transition.commit()):
        raise ConsistencyError("The run has just moved on.", remedy="Look at it again, then cancel.")
    return transition.run.status


async def retry_run(
    connection: Connection, definitions: Definitions, tenant: str, run_id: UUID, actor: Actor, reason: str
) -> RunState:
    """Reopen a failed run inside the caller's transaction; return its status afterwards.

    ``ConsistencyError`` says why that is impossible. A crash before the commit leaves the run as it ended; after it,
    its steps are in the queue.
    """
    check_text(reason, "reason")
    if not reason.strip():
        raise InputError("is empty", where="reason", remedy="Say why the run may go on now.")
    view = await load(connection, run_id, definitions.graphs, lock=True, whole=True, tenant=tenant)
    refuse_altering(view.workflow, retry=True)
    if view.parent is not None:
        words = f"The run {view.parent} above this one has its end already, and has moved on."
        raise ConsistencyError(words, remedy="Retry that one: it starts this one anew.")
    await refuse_forked(connection, tenant, view.workflow, view.trigger_type, run_id)
    stored = await bundles.newest(connection, tenant, run_id)
    if stored is None and view.run.finished:
        raise ConsistencyError("The evidence of how this run ended is not stored yet.", remedy="Try again soon.")
    workflow = await definitions.of_run(connection, view.definition)
    stored_already = replace(view.run, checkpoints=[], ledger=[], mutations=[])
    transition = Transition(replace(view, run=stored_already), workflow.graph)
    reopen(transition, actor, reason, stored)
    if not await faces.append(connection, transition.commit()):
        raise ConsistencyError("The run has just moved on.", remedy="Look at it again.")
    return transition.run.status


async def ask_again(
    connection: Connection, tenant: str, definitions: Definitions, approval_id: UUID, person_id: str
) -> str:
    """Reopen, for its requester, a run that failed because a question expired; return the outcome in words.

    The expired question stays expired: the step begins anew, is judged anew, and people are asked anew. A crash before
    the commit leaves the run as it ended, and the person clicks again.
    """
    stored = await approvals.read(connection, approval_id)
    asked = stored.approval
    people = await definitions.directory(connection, tenant, stored.directory_digest)
    entry = people.entry(asked.requester)
    if asked.status is not ApprovalStatus.EXPIRED:
        return "This has not expired, so there is nothing to ask again."
    if entry is None or entry.id != person_id:
        return f"Only {entry.name if entry else asked.requester}, who asked for this, asks for it again."
    actor = Actor("person", person_id)
    try:
        await retry_run(connection, definitions, tenant, asked.run_id, actor, "Asked again, after nobody had decided.")
    except ConsistencyError as error:
        return f"It was not asked again. {error}"
    return "It is asked again: a new card comes."
