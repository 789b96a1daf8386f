"""Starting and canceling runs: the verbs behind webhooks, HTTP and the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.canonical import JsonObject
from core.db import Connection
from core.errors import ConsistencyError, CountersealError, ExpressionError, InputError, NotFoundError
from core.ids import new_id
from evidence.chain import Actor, ChainHead
from evidence.commitments import commit_fields, new_run_key, path_of
from runtime.definition.catalog import Definitions
from runtime.engine.events import RunOpened, RunStarted
from runtime.engine.finishing import checked_reference
from runtime.engine.fitness import check_text
from runtime.engine.graph import NO_GRAPH
from runtime.engine.replaying import unopened
from runtime.engine.states import RunState
from runtime.engine.transition import RunView, Transition
from runtime.engine.workflow import Workflow
from runtime.store import documents, reads
from runtime.store.commits import NewRun, apply, apply_start
from runtime.store.views import load_to_end


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What starts a run. The same ``trigger_type`` and ``trigger_ref`` start one run of a workflow, ever (Q-1).

    ``run_id`` is given where another run orders this one; ``parent`` waits for it, ``depth`` runs are above it.
    """

    tenant_id: str
    workspace_id: str
    trigger_type: str
    trigger_ref: str
    trigger: JsonObject
    requested_by: str
    actor: Actor
    run_id: UUID | None = None
    parent: UUID | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The run; ``created`` is False when the same trigger had started it before."""

    run_id: UUID
    created: bool
    reference: str


async def start_named(
    connection: Connection, definitions: Definitions, name: str, version: int | None, request: StartRequest
) -> Started:
    """Start a run of this version, or of the newest that is not retired, inside the caller's transaction.

    A trigger that has started its run finds it, whatever has become of the workflow since: retired, or so changed that
    it would not take this input any more.
    """
    try:
        stored = await documents.startable_workflow(connection, request.tenant_id, name, version)
        return await start_run(connection, definitions.compiled(stored), request)
    except CountersealError:
        known = await _known(connection, name, request)
        if known is None:
            raise
        return known


async def start_run(connection: Connection, workflow: Workflow, request: StartRequest) -> Started:
    """Start a run inside the caller's transaction. A crash before its commit leaves nothing, and the sender repeats."""
    now = await connection.fetchval("SELECT now()")
    view = _new_view(workflow, request, now)
    transition = Transition(view, workflow.graph)
    error = transition.open(_opening(workflow, request, view), request.actor)
    new_run = NewRun(
        workflow=workflow.name,
        workflow_version=workflow.version,
        workflow_digest=workflow.digest,
        trigger_type=request.trigger_type,
        trigger_ref=request.trigger_ref,
        reference=view.reference,
        requested_by=request.requested_by,
        sla=workflow.sla,
        run_key=view.run_key,
        retention=workflow.retention,
        parent=request.parent,
        depth=request.depth,
        cap="" if workflow.max_concurrency is None else workflow.name,
    )
    if not await apply_start(connection, transition.commit(), new_run):
        known = await _known(connection, workflow.name, request)
        if known is None:
            raise ConsistencyError("The run that this trigger started cannot be seen yet.", remedy="Send it again.")
        return known
    if not transition.state.open:
        await _end_at_once(connection, transition, workflow, error)
    return Started(view.run_id, True, view.reference)


async def _known(connection: Connection, workflow: str, request: StartRequest) -> Started | None:
    found = await reads.run_of_trigger(
        connection, request.tenant_id, workflow, request.trigger_type, request.trigger_ref
    )
    return None if found is None else Started(found["run_id"], False, found["reference"])


def _new_view(workflow: Workflow, request: StartRequest, now: datetime) -> RunView:
    """The run as it is before its first move."""
    run_id = request.run_id or new_id()
    constants: dict[str, object] = {
        "trigger": request.trigger,
        "run.id": str(run_id),
        "run.workflow": workflow.name,
        "run.version": workflow.version,
        "run.reference": "",
        "run.requested_by": request.requested_by,
    }
    reference = _reference(workflow, constants)
    return RunView(
        run_id=run_id,
        tenant_id=request.tenant_id,
        workspace_id=request.workspace_id,
        workflow=workflow.name,
        workflow_version=workflow.version,
        workflow_digest=workflow.digest,
        trigger_type=request.trigger_type,
        version=0,  # its first commit makes it 1
        head=ChainHead.of_run(run_id),
        run=replace(
            unopened(run_id, new_run_key(), workflow.graph), reference=reference, requested_by=request.requested_by
        ),
        constants={**constants, "run.reference": reference},
        now=now,
        deadline_at=None,
        policy_digest=None,
        writes_max=None,
        parent=request.parent,
        depth=request.depth,
    )


def _reference(workflow: Workflow, constants: dict[str, object]) -> str:
    try:
        value = workflow.reference.render(constants)
    except ExpressionError as error:
        raise InputError(
            f"the workflow's reference cannot be made from this trigger: {error.message}",
            where="trigger",
            remedy="Send the fields that the workflow's `reference` reads.",
        ) from None
    try:
        return checked_reference(value)
    except ExpressionError as error:
        raise InputError(f"the workflow's reference {error.message}", where="trigger") from None


def _opening(workflow: Workflow, request: StartRequest, view: RunView) -> RunOpened:
    inputs = commit_fields(view.run_key, path_of("trigger"), request.trigger)
    return RunOpened(
        workflow={"name": workflow.name, "version": workflow.version, "digest": workflow.digest},
        definition=workflow.definition_digest,
        trigger=request.trigger_type,
        workspace=request.workspace_id,
        committed=[*inputs, *commit_fields(view.run_key, "", {"reference": view.reference})],
        inputs=request.trigger,
        reference=view.reference,
        requested_by=request.requested_by,
    )


async def _end_at_once(
    connection: Connection, opened: Transition, workflow: Workflow, error: JsonObject | None
) -> None:
    """A run in which no step was to be taken: every condition was false, or the first one could not be evaluated."""
    transition = Transition(opened.after(), workflow.graph)
    transition.tell(RunStarted())
    begun = await apply(connection, transition.commit())
    closing = Transition(transition.after(), workflow.graph)
    if error:
        closing.close(RunState.FAILED_TERMINAL, error)
    else:
        closing.conclude()
    if not (begun and await apply(connection, closing.commit())):
        raise ConsistencyError("The run could not be ended where it began.", remedy="Start it again.")


async def cancel_run(
    connection: Connection, definitions: Definitions, tenant: str, run_id: UUID, actor: Actor, reason: str
) -> RunState:
    """Cancel a run inside the caller's transaction; its status afterwards (running while an action is under way).

    ``ConsistencyError`` if it is over, or has just moved on.
    """
    check_text(reason, "reason")
    view = await load_to_end(connection, run_id, definitions.graphs, lock=True)
    if view.tenant_id != tenant:
        raise NotFoundError(f"There is no run {run_id}.")
    # Nothing is evaluated or planned, so that a run whose workflow cannot be read any more can be canceled as well.
    transition = Transition(view, NO_GRAPH)
    transition.cancel(actor, reason)
    if not await apply(connection, transition.commit()):
        raise ConsistencyError("The run has just moved on.", remedy="Look at it again, then cancel.")
    return transition.run.status
