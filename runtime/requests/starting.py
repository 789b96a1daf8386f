"""Starts runs, for webhooks, HTTP, the command line and other runs."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from core.canonical import JsonObject
from core.db import Connection, Database, DatabaseClock, within
from core.errors import ConsistencyError, CountersealError, InputError
from core.identity import Directory, Kind, principal
from core.ids import new_id
from evidence.chain import Actor, ChainHead
from evidence.commitments import commit_fields, new_run_key, path_of
from runtime.definition.cache import size_of_workflow
from runtime.definition.catalog import Definitions
from runtime.definition.compiler import constants_of
from runtime.definition.reserved import refuse_start
from runtime.engine.book.channels import Inherited, first_values
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import RunForked, RunOpened, RunStarted
from runtime.engine.model.run import RunView
from runtime.engine.model.states import RunState
from runtime.engine.model.workflow import Workflow
from runtime.engine.replay.replay import unopened
from runtime.requests.naming import reference_of, search_of, subject_of
from runtime.store import documents, faces, read_models, runs, tenants
from runtime.store.faces import NewRun
from runtime.store.offload import offload, work_units

# After this time without a start, the next start reads the database's time again.
CLOCK_SECONDS_MAX = 60
# The time for which an open run waits for more steps, if neither its start nor its workflow's SLA sets one.
OPEN_DEFAULT, OPEN_MAX = timedelta(days=7), timedelta(days=366)

# The trigger of runs that other runs start.
OF_RUNS = "workflow"
# The triggers whose references callers cannot choose: records, moments, deliveries, runs, Counterseal's own workflows.
_UNKEYED = ("servicenow", "schedule", "webhook", OF_RUNS, "counterseal")


# The beginning of a fork's reference; the rest is the id of its origin. So a run has one fork at most.
FORK = "fork:"


class KeyTaken(ConsistencyError):
    """An idempotency key that another caller has used: that caller's run is not handed out."""


class StartRequest(Struct, frozen=True):
    """An order to start a run. The same ``trigger_type`` and ``trigger_ref`` start one run of a workflow, ever.

    ``run_id`` is given if another run orders this one; ``parent`` is the run that waits for it, ``depth`` the number of
    runs above it. ``shaped`` are the marks of those who shaped the input besides the requester
    (``runtime.engine.book.contributors``); ``inherited`` are copies of channels of the run above, ``origins`` the
    origins of these and of the input. An ``open`` run waits for more steps when its own are done: up to the moment
    ``until``. ``adder`` is the mark of whoever added the step that orders this run, or a step that led to it. ``root``
    is the outermost run.

    ``forked`` builds what a fork takes over from its origin; it gets the key of the new run.

    ``requester`` is the person who requested the run above. Without one, the directory resolves ``requested_by`` to a
    person at the start, and the run keeps that person. ``started_by`` is the authenticated account that starts the run.
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
    shaped: tuple[str, ...] = ()
    inherited: Mapping[str, Inherited] = field(default_factory=dict)
    origins: JsonObject | None = None
    open: bool = False
    until: datetime | None = None
    adder: str | None = None
    root: UUID | None = None
    requester: str | None = None
    started_by: str | None = None
    forked: Callable[[bytes], RunForked] | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The run; ``created`` is False when the same trigger had started it before.

    ``waiting_for`` names the cap that holds up its start.
    """

    run_id: UUID
    created: bool
    reference: str
    waiting_for: str | None = None


async def start_named(
    at: Connection | Database, definitions: Definitions, name: str, version: int | None, request: StartRequest
) -> Started:
    """Start a run of this version, or of the newest startable one: in one round trip, if the version is cached here.

    Given a connection, it joins the caller's transaction; given the database, it may share one with other requests.

    If the trigger has started a run before, that run is returned, even if the workflow was retired since, or would
    refuse this input now. A crash before the append leaves nothing, and the sender repeats.
    """
    refuse_start(name, request.trigger_type)
    place = (request.tenant_id, name, version)
    known = definitions.startable.known(place)
    if known is not None and known[1].age() < CLOCK_SECONDS_MAX:
        workflow, clock = known
        people = definitions.people(request.tenant_id)
        with suppress(InputError):  # if this version refuses the input, read the version that is published now
            opened = (
                None
                if people is None
                else await _open(at, workflow, request, clock.now(), people, pinned=version is not None, guarded=True)
            )
            if opened is not None:
                definitions.startable.put(place, (workflow, opened[1]), size_of_workflow(workflow))
                return await _with_cap(at, workflow, request.tenant_id, opened[0])
    async with within(at, request.tenant_id) as connection:
        try:
            stored = await documents.startable_workflow(connection, request.tenant_id, name, version)
            workflow = definitions.compiled(stored)
            started, clock = await _opened(connection, definitions, workflow, request)
        except CountersealError:
            found = await _known(connection, definitions, name, request)
            if found is None:
                raise
            return found
    definitions.startable.put(place, (workflow, clock), size_of_workflow(workflow))
    return await _with_cap(at, workflow, request.tenant_id, started)


async def _with_cap(at: Connection | Database, workflow: Workflow, tenant: str, started: Started) -> Started:
    """Add the cap that holds up the start. Costs no query if the workflow's starts are not capped."""
    if workflow.max_runs_per_min is None:
        return started
    async with within(at, tenant) as connection:
        held = await read_models.start_held(connection, tenant, started.run_id)
    return dataclasses.replace(started, waiting_for=held)


async def start_run(
    connection: Connection, workflow: Workflow, request: StartRequest, definitions: Definitions | None = None
) -> Started:
    """Start a run of exactly this version, or find the run that its trigger has started.

    ``definitions`` cache the tenant's people; without them, the directory is read.
    """
    async with within(connection, request.tenant_id):
        return (await _opened(connection, definitions, workflow, request))[0]


async def _opened(
    connection: Connection, definitions: Definitions | None, workflow: Workflow, request: StartRequest
) -> tuple[Started, DatabaseClock]:
    asked = time.monotonic()
    now, people = await _people_now(connection, definitions, request.tenant_id)
    opened = await _open(connection, workflow, request, now, people, pinned=True)
    if opened is not None:
        return opened
    known = await _known(connection, definitions, workflow.name, request)
    if known is None:
        raise ConsistencyError("The run that this trigger started cannot be seen yet.", remedy="Send it again.")
    return known, DatabaseClock(now, asked)


async def _open(
    at: Connection | Database,
    workflow: Workflow,
    request: StartRequest,
    now: datetime,
    people: Directory,
    *,
    pinned: bool,
    guarded: bool = False,
) -> tuple[Started, DatabaseClock] | None:
    """Open the run; return it and the time. None if the trigger has started one, or if this version starts no runs now.

    ``guarded``: ``people`` may be out of date, and if they are, nothing starts either.
    """
    if request.trigger_ref.startswith(FORK) != (request.forked is not None):
        raise InputError(f"begins with {FORK}, as only forks do.", where="idempotency_key", remedy="Use another key.")
    digest = people.digest if guarded and request.requester is None else None

    def build() -> tuple[RunView, Transition, JsonObject | None, NewRun]:
        view, open_for = _new_view(workflow, request, now, people), _open_for(workflow, request, now)
        transition = Transition(view, workflow.graph)
        forked = None if request.forked is None else request.forked(view.run.run_key)
        opening = _opening(workflow, request, view, open_for)
        error = transition.open(opening, request.actor, forked)
        return view, transition, error, _new_run(workflow, request, (transition, open_for, digest, pinned))

    conn = None if isinstance(at, Database) else at
    view, transition, error, new_run = await offload(work_units(request.trigger, heavy=workflow.is_heavy), build, conn)
    asked = time.monotonic()
    opened = await _written(at, transition, new_run, workflow, error)
    if opened is None:
        return None
    return Started(view.run_id, True, transition.run.reference), DatabaseClock(opened, asked)


def _opening(workflow: Workflow, request: StartRequest, view: RunView, open_for: timedelta | None) -> RunOpened:
    """The first event of a run."""
    inputs = commit_fields(view.run.run_key, path_of("trigger"), request.trigger)
    return RunOpened(
        workflow={"name": workflow.name, "version": workflow.version, "digest": workflow.digest},
        definition=workflow.definition_digest,
        trigger=request.trigger_type,
        workspace=request.workspace_id,
        committed=[*inputs, *commit_fields(view.run.run_key, "", {"reference": view.run.reference})],
        inputs=request.trigger,
        reference=view.run.reference,
        requested_by=request.requested_by,
        shaped=[*request.shaped, *sorted(subject_of(workflow, view) - {*request.shaped})] or None,
        inherited=[*sorted(request.inherited)] or None,
        open=None if open_for is None else math.ceil(open_for.total_seconds()),
        channels=first_values(workflow.graph.channels, view.constants, request.inherited) or None,
        origins=request.origins,
        adder=request.adder,
        requester=view.run.requester,
        started_by=request.started_by,
        tenant=request.tenant_id,
        parent=request.parent,
    )


def _new_run(
    workflow: Workflow, request: StartRequest, made: tuple[Transition, timedelta | None, str | None, bool]
) -> NewRun:
    """The row of a new run. ``made``: its opening, the span it stays open, the digest of the people, and ``pinned``."""
    opened, open_for, people, pinned = made
    view = opened.view
    return NewRun(
        workflow=workflow.name,
        workflow_version=workflow.version,
        workflow_digest=workflow.digest,
        trigger_type=request.trigger_type,
        trigger_ref=request.trigger_ref,
        reference=opened.run.reference,
        requested_by=request.requested_by,
        sla=workflow.sla,
        run_key=view.run.run_key,
        retention=workflow.retention,
        parent=request.parent,
        depth=request.depth,
        cap=workflow.cap,
        pinned=pinned,
        inherits=bool(request.inherited),
        open_for=open_for,
        root=request.root,
        requester=view.run.requester,
        started_by=request.started_by,
        people=people,
        searched=search_of(workflow, view.constants),
    )


async def _written(
    at: Connection | Database, transition: Transition, new_run: NewRun, workflow: Workflow, error: JsonObject | None
) -> datetime | None:
    """Write the run; return the time of its opening. If it ends at once, opening and end are one transaction."""
    if transition.run.state.open:
        return await faces.open_run(at, transition.commit(), new_run)
    async with within(at, transition.view.tenant_id) as connection:
        opened = await faces.open_run(connection, transition.commit(), new_run)
        if opened is not None:
            await _end_at_once(connection, transition, workflow, error)
    return opened


def _open_for(workflow: Workflow, request: StartRequest, now: datetime) -> timedelta | None:
    """The time for which a run waits for more steps; None if it does not wait."""
    if not request.open:
        if request.until is not None:
            raise InputError("is the deadline of an open run", where="until", remedy="Start the run with `open`.")
        return None
    if request.until is None:
        return workflow.sla or OPEN_DEFAULT
    moment = request.until if request.until.tzinfo is not None else request.until.replace(tzinfo=UTC)
    if not timedelta(0) < moment - now <= OPEN_MAX:
        words = f"is past, or more than {OPEN_MAX.days} days away"
        raise InputError(words, where="until", remedy="Name a moment before that.")
    return moment - now


async def _people_now(
    connection: Connection, definitions: Definitions | None, tenant: str
) -> tuple[datetime, Directory]:
    """The database's time, and the tenant's people then. ``ConsistencyError`` if the tenant is suspended."""
    now, digest, suspended = await tenants.directory_now(connection, tenant)
    if suspended is not None:
        words = f"The tenant {tenant} is suspended, so nothing starts in it: {suspended}"
        raise ConsistencyError(words, remedy=f"The operator ends that: `counterseal tenant suspend {tenant} --lift`.")
    if definitions is None:
        return now, await tenants.directory(connection, tenant)
    return now, await definitions.directory(connection, tenant, digest)


async def _known(
    connection: Connection, definitions: Definitions | None, workflow: str, request: StartRequest
) -> Started | None:
    """The run that this trigger has started. ``KeyTaken`` if another caller used the key."""
    named = (request.tenant_id, workflow, request.trigger_type, request.trigger_ref)
    found = await runs.run_of_trigger(connection, *named)
    if found is None:
        return None
    if request.trigger_type not in _UNKEYED:
        _, people = await _people_now(connection, definitions, request.tenant_id)
        theirs, mine = found["requester"] or people.resolve(found["requested_by"]), requester_of(request, people)
        if theirs != mine or (theirs is None and found["requested_by"] != request.requested_by):
            words = "Somebody else has started a run of this workflow with this idempotency key."
            raise KeyTaken(words, remedy="Use a key of your own.")
    return Started(found["run_id"], False, found["reference"])


def requester_of(request: StartRequest, people: Directory) -> str | None:
    """The id of the person who requests a run: the requester of the run above, or else by this directory."""
    if request.requester is not None or request.trigger_type == OF_RUNS:
        return request.requester
    sure = request.started_by and principal(Kind.PERSON, request.started_by)
    return people.resolve(sure or request.requested_by)


def _new_view(workflow: Workflow, request: StartRequest, now: datetime, people: Directory) -> RunView:
    """The run as it is before its first move."""
    workflow.check_trigger(request.trigger)
    run_id = request.run_id or new_id()
    named = (run_id, workflow.name, workflow.version, "", request.requested_by)
    constants = constants_of(request.trigger, *named, now)
    reference = reference_of(workflow, constants)
    run = unopened(run_id, new_run_key(), workflow.graph)
    return RunView(
        run_id=run_id,
        tenant_id=request.tenant_id,
        workspace_id=request.workspace_id,
        workflow=workflow.name,
        workflow_version=workflow.version,
        workflow_digest=workflow.digest,
        trigger_type=request.trigger_type,
        version=0,  # the first commit makes it 1
        gate=0,
        head=ChainHead.of(f"run:{run_id}"),
        run=replace(
            run,
            reference=reference,
            requested_by=request.requested_by,
            requester=requester_of(request, people),
            started_by=request.started_by,
        ),
        constants={**constants, "run.reference": reference},
        now=now,
        deadline_at=None,
        policies=(),
        writes_max=None,
        parent=request.parent,
        depth=request.depth,
    )


async def _end_at_once(
    connection: Connection, opened: Transition, workflow: Workflow, error: JsonObject | None
) -> None:
    """End a run without any step to run: every condition was false, or the first one could not be evaluated."""
    transition = Transition(opened.after(), workflow.graph)
    transition.tell(RunStarted())
    begun = await faces.append(connection, transition.commit())
    if begun and transition.run.waits_for_more and error is None:
        return
    closing = Transition(transition.after(), workflow.graph)
    if error:
        closing.close(RunState.FAILED_TERMINAL, error)
    else:
        closing.conclude()
    if not (begun and await faces.append(connection, closing.commit())):
        raise ConsistencyError("The run has no step to run, and could not be closed.", remedy="Start it again.")
