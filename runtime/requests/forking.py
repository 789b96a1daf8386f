"""Forks runs: by order of an operator, a new run begins from an earlier point of an ended run."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from core.canonical import check_text
from core.db import Connection
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.definition.reserved import refuse_altering
from runtime.engine.life.forking import ELSEWHERE, OPEN, Fork, Preview, fork_of, point_of
from runtime.engine.model.events import RunContinued
from runtime.engine.model.run import Definition
from runtime.engine.origins.follow import AGENT
from runtime.engine.replay.replay import unopened
from runtime.requests import starting
from runtime.requests.starting import FORK, OF_RUNS, StartRequest
from runtime.requests.views import folded
from runtime.store import books, documents, runs
from runtime.store.books import Book
from runtime.store.offload import offload
from runtime.store.views import load

# The most runs below the origin in which a fork looks for doubts.
BELOW_MAX = 100
_WAIT = "Cancel it, or wait until it is over."


class Order(Struct, frozen=True):
    """An order to fork a run ``at`` a line of its book, or before a step. ``again`` lets it repeat done effects."""

    run_id: UUID
    at: str
    reason: str
    again: bool = False


class Forked(Struct, frozen=True):
    """The new run, the line from which it begins, and what it takes over."""

    run_id: UUID
    origin: UUID
    preview: Preview


async def preview(connection: Connection, definitions: Definitions, tenant: str, order: Order) -> Preview:
    """Show what a fork would take over and repeat; write nothing. ``ConsistencyError`` says why it is impossible."""
    return (await _read(connection, definitions, tenant, order))[1].preview()


async def fork_run(connection: Connection, definitions: Definitions, tenant: str, order: Order, actor: Actor) -> Forked:
    """Begin a new run from a point of another one, inside the caller's transaction.

    A crash before the commit leaves nothing; after it the new run is in the queue. Its reference names the origin, so a
    run has one fork at most, and is not retried once it has one.
    """
    check_text(order.reason, "reason")
    if not order.reason.strip():
        raise InputError("is empty", where="reason", remedy="Say why it goes on from there.")
    await load(connection, order.run_id, definitions.graphs, lock=True, tenant=tenant)  # no retry begins meanwhile
    book, fork = await _read(connection, definitions, tenant, order)
    found = fork.preview()
    if found.again and not order.again:
        named = ", ".join(f"{step} ({operation})" for step, operation in found.again[:10])
        words = f"After line {found.line} the run has done what its fork would do again: {named}."
        remedy = "Undo it (`counterseal receipt reverse`), or say that it may happen again: --again."
        raise ConsistencyError(words, remedy=remedy)
    row, opened = book.row, book.opened
    stored = await documents.startable_workflow(connection, tenant, row["workflow"], row["workflow_version"])
    request = StartRequest(
        tenant_id=tenant,
        workspace_id=row["workspace_id"],
        trigger_type=row["trigger_type"],
        trigger_ref=f"{FORK}{order.run_id}",
        trigger=opened.inputs or {},
        requested_by=opened.requested_by or "",
        actor=actor,
        shaped=tuple(opened.shaped or ()),
        requester=opened.requester,
        started_by=opened.started_by,
        forked=lambda run_key: fork.event(run_key, order.reason),
    )
    started = await starting.start_run(connection, definitions.compiled(stored), request, definitions)
    if not started.created:
        raise _forked(started.run_id)
    return Forked(started.run_id, order.run_id, found)


async def refuse_forked(connection: Connection, tenant: str, workflow: str, trigger_type: str, run_id: UUID) -> None:
    """Raise ``ConsistencyError`` if this run has a fork."""
    found = await runs.run_of_trigger(connection, tenant, workflow, trigger_type, f"{FORK}{run_id}")
    if found is not None:
        raise _forked(found["run_id"])


def _forked(fork: UUID) -> ConsistencyError:
    return ConsistencyError(f"Run {fork} goes on from a point of this one already.", remedy=f"Look at {fork}.")


async def _read(connection: Connection, definitions: Definitions, tenant: str, order: Order) -> tuple[Book, Fork]:
    """The book of the origin, and the fork that the order makes of it."""
    book = await books.read(connection, tenant, order.run_id)
    row = book.row
    refuse_altering(row["workflow"])
    if book.purged:
        raise ConsistencyError("Retention has removed the values of the run.", remedy="Start another run.")
    if row["trigger_type"] in (OF_RUNS, AGENT):
        words = "The run belongs to another run, or is an agent's action."
        raise ConsistencyError(words, remedy="Fork the run above it, or have the agent ask again.")
    await refuse_forked(connection, tenant, row["workflow"], row["trigger_type"], order.run_id)
    named = (row["workflow"], row["workflow_version"], row["workflow_digest"], 0, row["run_key"])
    workflow = await definitions.of_run(connection, Definition(order.run_id, tenant, *named))

    def build() -> Fork:
        run = unopened(book.run_id, row["run_key"], workflow.graph)
        point = point_of(order.at, run, book.events, workflow.graph)
        lines = [line for append in book.appends for line in append.lines]
        return fork_of(run, workflow, point, lines[point.line], book.events)

    fork = await offload(book.weight, build, connection)
    await _check_below(connection, definitions, tenant, book, fork)
    return book, fork


async def _check_below(connection: Connection, definitions: Definitions, tenant: str, book: Book, fork: Fork) -> None:
    """Refuse a fork that would restart what a run below the origin, at any depth, still does or has left in doubt."""
    again, seen, todo = {*fork.continued}, set[UUID](), [book]
    while todo:
        above = todo.pop()
        started = [(one.step, one.event.run) for one in above.events if isinstance(one.event, RunContinued)]
        anew = [run for step, run in started if above is not book or (step or "") in again]
        done = [run for _, run in started if run not in anew]
        most = BELOW_MAX + 1 - len(seen)
        found = await runs.below(connection, tenant, above.run_id, anew, done, most)
        if len(found) == most:
            raise ConsistencyError(f"{BELOW_MAX} runs below it, or more, would be started again.", remedy=ELSEWHERE)
        for run_id in found.keys() - seen:
            seen.add(run_id)
            if found[run_id]:
                raise ConsistencyError(f"The run {run_id} below it goes on: both would do the same.", remedy=_WAIT)
            todo.append(await _without_doubt(connection, definitions, tenant, run_id))


async def _without_doubt(connection: Connection, definitions: Definitions, tenant: str, run_id: UUID) -> Book:
    """The book of an ended run. ``ConsistencyError`` if the outcome of one of its actions is in doubt."""
    book = await books.read(connection, tenant, run_id)
    words = f"Retention has removed what the run {run_id} below it has done."
    if not book.purged:
        receipts = (await folded(connection, definitions, book)).run.receipts.values()
        if not any(one.status in OPEN for one in receipts):
            return book
        words = f"Nobody knows whether an action of the run {run_id} below it happened, so it may not be done again."
    raise ConsistencyError(words, remedy="Look outside, then start another run for what is left.")
