"""Reads a run: its kept state, with the later part of its book folded onto it. It is one statement, so one snapshot.

The kept state must have the digest that its line names, every value must be the one to which its line commits, and the
later appends must lead to the head. Otherwise nothing is decided on the run: ``Diverged`` says where it differs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import structlog
from msgspec import convert
from msgspec.structs import replace

from core.canonical import JsonObject
from core.db import Connection
from core.errors import ConsistencyError, CountersealError, InputError, NotFoundError
from evidence.chain import ChainHead
from runtime.engine.book.recorded import KEPT, Diverged, RecordedEvent, names, read_line
from runtime.engine.book.snapshot import unpack
from runtime.engine.model.events import RunOpened
from runtime.engine.model.graph import NO_GRAPH, Graph, NeedsItems
from runtime.engine.model.rows import StepRow, step_id_of
from runtime.engine.model.run import Definition, Family, Run, RunView
from runtime.engine.model.states import STEP, RunState, StepState
from runtime.engine.replay.past import blindly, refold
from runtime.engine.replay.replay import unopened
from runtime.store.journal import Append, appends, weight
from runtime.store.offload import offload
from runtime.store.statements import statements

log = structlog.get_logger(__name__)

_SQL = statements("views")
_READ = _SQL["read"]
_AFTER = _SQL["after"]
_LOCK = _SQL["lock"]
_LOCK_FAMILY = _SQL["lock_family"]
_READ_RUN = _SQL["read_run"]

# A function that gives the graph of a run as it was published and after each extension.
Graphs: TypeAlias = Callable[[Connection, Definition], Awaitable[Sequence[Graph]]]


class Purged(ConsistencyError):
    """Retention has emptied the run."""


class Unfinished(ConsistencyError):
    """The statement had to wait for another append, and its snapshot does not hold that append's lines."""


async def load(
    connection: Connection,
    run_id: UUID,
    graphs: Graphs,
    *,
    lock: bool = False,
    whole: bool = False,
    afresh: bool = False,
    before: RunView | None = None,
    tenant: str | None = None,
) -> RunView:
    """The view of a run; ``whole`` folds all of its book, and drops nothing. ``before`` as in ``view_of``.

    ``afresh`` folds all of the book too, if the kept state has too few items of a loop. ``tenant`` is the tenant of a
    face's request: a run of another tenant is not found.

    Without ``lock``, the commit's guard refuses what was decided on an outdated view. A caller that has lost that race
    before takes the lock, so that it cannot lose again. ``NotFoundError`` if there is no such run, ``Purged`` if
    retention has emptied it, ``Diverged`` if something of it was altered.
    """
    if before is not None and not afresh:
        if lock:
            await _locked(connection, run_id)
        row = _require(run_id, await connection.fetchrow(_AFTER, run_id, before.version))
        with suppress(NeedsItems):
            view = await _followed(connection, row, graphs, before)
            if view is not None:
                return view
    row = await _row(connection, run_id, whole or afresh, tenant, lock=lock)
    try:
        view = await loaded(connection, _require(run_id, row), graphs, whole=whole)
    except NeedsItems:
        return await load(connection, run_id, graphs, afresh=True, tenant=tenant)
    return view if tenant is None else replace(view, kept_at=view.version)  # a face keeps no view between requests


async def _row(connection: Connection, run_id: UUID, whole: bool, tenant: str | None, *, lock: bool) -> Any:
    if tenant is not None:
        return await connection.fetchrow(_READ_RUN, run_id, whole, tenant, lock)
    if lock:
        await _locked(connection, run_id)
    return await connection.fetchrow(_READ, run_id, whole)


async def _locked(connection: Connection, run_id: UUID) -> None:
    """Lock a run, and the counters that it shares with others, so that the caller cannot lose the race again."""
    root = await connection.fetchval(_LOCK, run_id)
    if root is not None:
        await connection.fetchrow(_LOCK_FAMILY, root)


async def loaded(connection: Connection, row: Any, graphs: Graphs, *, whole: bool = False) -> RunView:
    """The view of a run from a row that a statement of its own has read. Errors as in ``load``."""
    run_id = row["run"]["run_id"]
    try:
        return await view_of(connection, _require(run_id, row), graphs, whole=whole)
    except Unfinished as error:  # both are of one snapshot here
        raise Diverged(f"The book of run {run_id} is not as long as the run says") from error


def _require(run_id: UUID, row: Any) -> Any:
    if row is None:
        raise NotFoundError(f"There is no run {run_id}.")
    if row["run"]["purged_at"] is not None:
        raise Purged(
            f"The run {run_id} is over, and what it held was removed when its retention ended.",
            remedy="Its audit and its evidence bundle are kept.",
        )
    return row


async def step_is_over(connection: Connection, tenant: str, run_id: UUID, step_key: str, graphs: Graphs) -> bool:
    """True if a step is over, so that nothing can happen to it any more."""
    try:
        step = (await load(connection, run_id, graphs, tenant=tenant)).run.steps.get(step_key)
    except Purged:
        return True
    return step is None or step.status in STEP.terminal


async def view_of(
    connection: Connection, row: Any, graphs: Graphs, *, whole: bool = False, before: RunView | None = None
) -> RunView:
    """Build a view from a row with ``run``, ``state``, ``run_key``, the tenant's columns and the tail of the book.

    ``before`` is an earlier view of the run, which was checked when it was made: only later events are folded.
    ``Unfinished`` if the tail is of an older snapshot than the run.
    """
    view = None if before is None else await _followed(connection, row, graphs, before)
    if view is not None:
        return view
    definition, head = _places(row)
    known, lines = await graphs(connection, definition), head.count if row["state"] is None else 0
    long = lines + weight([*(row["vals"] or ()), row["state"]])
    run = await offload(long, lambda: _folded(row, definition, head, known), connection)
    return _view(row, definition, head, run if whole else run.rest())


def _places(row: Any) -> tuple[Definition, ChainHead]:
    stored = row["run"]
    definition = Definition(
        run_id=UUID(stored["run_id"]),
        tenant_id=stored["tenant_id"],
        workflow=stored["workflow"],
        workflow_version=stored["workflow_version"],
        workflow_digest=stored["workflow_digest"],
        extensions=stored["extensions"],
        run_key=row["run_key"] or b"",
    )
    return definition, ChainHead(f"run:{definition.run_id}", stored["audit_count"], stored["audit_head"])


def _folded(row: Any, definition: Definition, head: ChainHead, graphs: Sequence[Graph]) -> Run:
    book, packed, key = _appends(row), row["state"], definition.run_key
    if not book or book[-1].first_seq + len(book[-1].lines) < head.count:
        raise Unfinished(f"The book of run {definition.run_id} is not read whole.", remedy="Try again.")
    if packed is None:
        run, before, since = unopened(definition.run_id, key, graphs[0]), ChainHead.of(head.stream), book
        recorded = since
    else:
        opening, *since = book
        # The kept state covers the append that stored it, which is the first one here after the opening.
        recorded = since[1:]
        if not since or not names(since[0].lines[-1], KEPT, packed, key):
            raise Diverged(f"The kept state of run {definition.run_id} does not have the digest that its book names")
        run, before = unpack(packed, definition.run_id, key)
        first = next(opening.events(key))
        run.opened_at = first.at
        run.trigger = first.event.inputs or {} if isinstance(first.event, RunOpened) else {}
    if _head_after(before, since) != head:
        raise Diverged(f"The book of {head.stream} is broken: its appends do not come to the head that the run names")
    return refold(run, [event for append in recorded for event in append.events(key)], graphs)


async def _followed(connection: Connection, row: Any, graphs: Graphs, before: RunView) -> RunView | None:
    """Bring an earlier view up to date by the appends after it; None if they do not continue it."""
    definition, head = _places(row)
    if before.head.count > head.count:
        return replace(before, error=timedelta(0), now=row["now"], **_of_tenant(row))
    since = [append for append in _appends(row) if append.first_seq >= before.head.count]
    if _head_after(before.head, since) != head:
        return None
    recorded = [recorded for append in since for recorded in append.events(before.run.run_key)]
    run = refold(before.run.copy(), recorded, await graphs(connection, definition))
    return _view(row, definition, head, run.rest())


def _of_tenant(row: Any) -> dict[str, Any]:
    named = {"policies": tuple(row["policy_digests"]), "directory_digest": row["directory_digest"]}
    stop = {"stop": row["stop_number"], "paused": row["paused"] or {}, "busy": _busy(row.get("busy"))}
    off = bool(row["run"].get("off"))
    return {**named, **stop, "writes_max": row["max_writes_per_run"], "off": off}


def _busy(stored: dict[str, str] | None) -> dict[str, datetime]:
    """Until when each target takes no calls. Faces read none of that: they call nothing."""
    return {place: datetime.fromisoformat(until) for place, until in stored.items()} if stored else {}


def _appends(row: Any) -> list[Append]:
    return appends(row["firsts"] or (), row["lines"] or (), row["vals"] or ())


def _head_after(head: ChainHead, since: Sequence[Append]) -> ChainHead:
    for append in since:
        head = head.after(append.lines)
    return head


def _view(row: Any, definition: Definition, head: ChainHead, run: Run) -> RunView:
    stored = row["run"]
    return RunView(
        run_id=definition.run_id,
        tenant_id=definition.tenant_id,
        workspace_id=stored["workspace_id"],
        workflow=definition.workflow,
        workflow_version=definition.workflow_version,
        workflow_digest=definition.workflow_digest,
        trigger_type=stored["trigger_type"],
        version=stored["version"],
        gate=stored["gate"],
        head=head,
        run=run,
        constants={
            "trigger": run.trigger,
            "run.id": stored["run_id"],
            "run.workflow": definition.workflow,
            "run.version": definition.workflow_version,
            "run.reference": run.reference,
            "run.requested_by": run.requested_by,
            "run.started_at": run.opened_at,
        },
        now=row["now"],
        last_at=datetime.fromisoformat(stored["last_at"]) if stored["last_at"] else None,
        deadline_at=datetime.fromisoformat(stored["deadline_at"]) if stored["deadline_at"] else None,
        **_of_tenant(row),
        parent=UUID(stored["parent_run_id"]) if stored["parent_run_id"] else None,
        depth=stored["depth"],
        kept_at=stored["state_n"],
        family=convert(stored["family"], Family | None),
    )


async def load_to_end(
    connection: Connection,
    run_id: UUID,
    graphs: Graphs,
    *,
    lock: bool = False,
    leased: str | None = None,
    tenant: str | None = None,
) -> RunView:
    """The view of a run whose step is to be set back or given up, or which is to be canceled, even if it is unreadable.

    The view of an unreadable run has only what its lines say, and the ``leased`` step, which may not have begun. Only
    the end of the run may be decided on it.
    """
    try:
        return await load(connection, run_id, graphs, lock=lock, tenant=tenant)
    except CountersealError as error:
        row = await _row(connection, run_id, True, tenant, lock=False)
        if row is None or row["run"]["purged_at"] is not None:
            raise
        log.error("a run cannot be read", run=str(run_id), reason=str(error))
    definition, head = _places(row)
    run = unopened(run_id, row["run_key"] or b"", NO_GRAPH)
    blindly(run, _unverified(row))
    run.status, run.executing = RunState(row["run"]["status"]), row["run"]["executing"]
    if leased is not None and leased not in run.steps:
        place = (step_id_of(run_id, leased), leased, 0, "", run.superstep, StepState.READY)
        run.steps[leased] = StepRow(*place)
    run.state.open = [key for key, step in run.steps.items() if step.status in (StepState.READY, StepState.RUNNING)]
    return replace(_view(row, definition, head, run.rest()), blind=True)


def _unverified(row: Any) -> Iterator[RecordedEvent]:
    """Yield the event of each line: with its values if they match the line's commitment, and else without them."""
    key = row["run_key"] or b""
    for append in _appends(row):
        for number, line in enumerate(append.lines):
            recorded = _read(line, append.values.get(number, {}), key)
            if recorded is not None:
                yield recorded


def _read(line: bytes, values: JsonObject, key: bytes) -> RecordedEvent | None:
    with suppress(ConsistencyError, InputError):
        return read_line(line, values, key)
    with suppress(ConsistencyError, InputError):
        return read_line(line, {}, key, verify=False)
    return None
