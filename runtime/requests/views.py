"""Reads runs for the faces: everything they show is folded from the run's book at the request (promise 6).

The book is checked when it is read, so a change made behind the engine's back is never shown. Replaying a run (promises
5 and 6) folds its book once more, evaluates expressions and policies anew, and compares the result with everything that
is stored: each checkpoint with the one that its line names, and the rows that are found by keys with those of the
folded run. So a changed value, line or row is found. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from uuid import UUID

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from approvals.content import CardContent, CardState, moved_between
from approvals.electorate import with_people
from approvals.model import ApprovalKind, ApprovalStatus, CardView, Granted
from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import ConsistencyError, NotFoundError
from core.identity import Directory
from runtime.definition.catalog import Definitions
from runtime.definition.masking import shown_source
from runtime.engine.book.ends import end_of
from runtime.engine.book.recorded import Diverged
from runtime.engine.model.keys import StepKey
from runtime.engine.model.run import Run
from runtime.engine.model.states import RunState, StepState
from runtime.engine.model.workflow import Workflow
from runtime.engine.replay.agent_story import stories
from runtime.engine.replay.past import Past, Row, past_of, receipt_rows, step_rows
from runtime.engine.replay.replay import Divergence, replay, unopened
from runtime.requests.conversing import comments_of, conversation
from runtime.requests.directory import as_people
from runtime.requests.replaying import again
from runtime.store import approvals, books, journal, retention
from runtime.store.approvals import StoredApproval
from runtime.store.books import Book
from runtime.store.offload import offload
from runtime.store.rows import check_rows

# The first statement of a transaction: all later ones read the same snapshot, though the run moves on.
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


class Seen(Struct, frozen=True):
    """The contents of a run besides its row. ``last`` is the number of its newest checkpoint.

    ``channels`` is the business state: the author's channels, without the engine's own. ``agents`` are the histories of
    its agents, turn by turn.
    """

    steps: Sequence[Row]
    receipts: Sequence[Row]
    extensions: Sequence[Row]
    checkpoints: Sequence[Row]
    last: int
    purged: bool = False
    channels: JsonObject = field(default_factory=dict)
    agents: Sequence[Row] = ()

    @property
    def handled(self) -> int:
        """The number of steps that failed for good. If the run succeeded, a branch has handled each of them."""
        return sum(row["status"] == StepState.FAILED_TERMINAL for row in self.steps)

    @property
    def late(self) -> list[str]:
        """The late answers from workers that had lost their leases: a sentence for each call, with its step."""
        return [f"{row['step_key']}: {late['says']}" for row in self.receipts for late in row["late"]]


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The result of a replay: the number of ``equal`` checkpoints, and the first ``difference``, or None.

    Nothing can be derived if retention has removed the run's payloads, at ``purged_at``.
    """

    run_id: UUID
    status: str
    equal: int
    difference: str | None = None
    purged_at: datetime | None = None

    @property
    def ok(self) -> bool:
        """True if every checkpoint was derived again and is equal."""
        return self.difference is None and self.purged_at is None


async def folded(
    connection: Connection, definitions: Definitions, book: Book, wanted: Container[int] = (), bytes_max: float = inf
) -> Past:
    """Fold a book to its run, with the wanted checkpoints. ``Diverged`` if the run's row differs."""
    graphs = [workflow.graph for workflow in await definitions.editions(connection, book)]
    first = unopened(book.run_id, book.row["run_key"], graphs[0])
    past = await offload(book.weight, lambda: past_of(first, book.events, graphs, wanted, bytes_max), connection)
    books.check_row(book, past.run)
    return past


async def seen(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    run_id: UUID,
    wanted: Container[int] = (),
    bytes_max: float = inf,
) -> Seen:
    """The whole contents of a run now, and the wanted checkpoints: as many as fit ``bytes_max``, and at least two.

    ``NotFoundError`` if the tenant has no such run, ``Diverged`` if what is stored is not what was recorded.
    """
    book = await books.read(connection, tenant, run_id)
    if book.purged:
        left = await retention.remains(connection, run_id)
        return Seen(*left, checkpoints=(), last=book.row["superstep"], purged=True)
    past = await folded(connection, definitions, book, wanted, bytes_max)
    operations = (await definitions.editions(connection, book))[-1].operations if past.extensions else {}
    extensions = [{**row, "source": shown_source(row["source"], operations)} for row in past.extensions]
    shown = (step_rows(past), receipt_rows(past), extensions, past.checkpoints)
    channels, agents = past.run.state.channels, stories(past, book.events)
    return Seen(*shown, last=past.run.superstep, channels=channels, agents=agents)


async def drawn(connection: Connection, definitions: Definitions, stored: StoredApproval) -> CardView:
    """The card as every face shows it: with its outcome, and the names of those who may decide it now."""
    approval = stored.approval
    open_ = approval.status is ApprovalStatus.REQUESTED
    people = await definitions.directory(connection, approval.tenant_id, stored.directory_digest)
    stored, remarks = await conversation(connection, definitions, stored, people)
    approval = stored.approval
    if open_ and approval.kind is not ApprovalKind.IN_DOUBT:
        view = approvals.card_view(stored, None)
    else:
        book = await books.read(connection, approval.tenant_id, approval.run_id)
        if book.purged:
            view = approvals.card_view(stored, await receipt_of(connection, definitions, stored))
        else:
            view = _became(await folded(connection, definitions, book), stored, people)
    if not open_:
        return view
    bounds = approval.terms.grants if approval.kind is ApprovalKind.ACTION else None
    inner = StepKey.of(approval.step_key).is_inner
    shown = with_people(as_people(approval, people), view.progress, people)
    fresh = approval.terms.step_up_seconds if approval.kind is ApprovalKind.ACTION else None
    view = replace(view, progress=shown, grants=bounds, of_agent=bounds is not None and inner, remarks=tuple(remarks))
    return replace(view, step_up=fresh)


async def drawn_list(
    connection: Connection, definitions: Definitions, found: Sequence[StoredApproval]
) -> list[CardView]:
    """The cards of several questions of one run, like ``drawn``; its book is folded once for all of them."""
    over = [one for one in found if one.approval.status is not ApprovalStatus.REQUESTED]
    past = None
    if over:
        book = await books.read(connection, over[0].approval.tenant_id, over[0].approval.run_id)
        past = None if book.purged else await folded(connection, definitions, book)
    views = []
    for stored in found:
        if past is None or stored.approval.status is ApprovalStatus.REQUESTED:
            views.append(await drawn(connection, definitions, stored))
        else:
            people = await definitions.directory(connection, stored.approval.tenant_id, stored.directory_digest)
            views.append(_became(past, stored, people))
    return views


def _became(past: Past, stored: StoredApproval, people: Directory) -> CardView:
    """Add the outcome of the asked action to a card, and the question that has replaced this one."""
    approval, run = stored.approval, past.run
    own = (approval.step_key, approval.action_digest)
    sent = [row for row in receipt_rows(past) if (row["step_key"], row["action_digest"]) == own]
    used = stored.consumed or approval.kind is ApprovalKind.IN_DOUBT
    view = approvals.card_view(stored, sent[-1] if sent and used else None, end=end_of(run, approval.id))
    view = replace(view, remarks=comments_of(run, approval.id, people), granted=_granted(run, stored, people))
    same = [row for row in run.approvals.values() if row.step_key == approval.step_key and row.kind == approval.kind]
    ids = [row.approval_id for row in same]
    later = same[ids.index(approval.id) + 1 :] if approval.id in ids else []
    if approval.status is ApprovalStatus.SUPERSEDED and later:
        moved = moved_between(view.content, CardContent.from_json(later[0].card))
        return replace(view, anew=later[0].approval_id, moved=moved)
    if view.state is CardState.CANCELED and run.canceling is not None:
        entry = people.entry(str(run.canceling.get("by") or ""))
        by, why = entry.name if entry else str(run.canceling.get("by") or ""), str(run.canceling.get("reason") or "")
        return replace(view, ended_by=by, ended_why=why)
    ended = run.status in (RunState.SUCCEEDED, RunState.CANCELED)
    asks = approval.kind is not ApprovalKind.IN_DOUBT and not later and not ended
    return replace(view, again=asks and approval.status is ApprovalStatus.EXPIRED)


def _granted(run: Run, stored: StoredApproval, people: Directory) -> Granted | None:
    """The grant of this approval if it can be taken back, or was taken back; None if it has ended by itself."""
    found = next((one for one in run.grants.values() if one.approval == stored.approval.id), None)
    if found is None:
        return None
    use = (found.uses, found.used, found.until)
    if found.ended_at is not None:
        entry = people.entry(found.ended_by)
        return Granted(*use, False, entry.name if entry else found.ended_by, found.ended_at.isoformat())
    open_ = found.left and not run.finished and stored.now <= datetime.fromisoformat(found.until)
    return Granted(*use, True) if open_ else None


async def receipt_of(connection: Connection, definitions: Definitions, stored: StoredApproval) -> Row | None:
    """The receipt of the asked action, which shows its outcome; None if nothing was sent yet."""
    approval = stored.approval
    doubted = approval.kind is ApprovalKind.IN_DOUBT
    if not (stored.consumed or doubted) or approval.kind is ApprovalKind.GATE:
        return None
    every = (await seen(connection, definitions, approval.tenant_id, approval.run_id)).receipts
    own = (approval.step_key, approval.action_digest)
    return next((row for row in reversed(every) if (row["step_key"], row["action_digest"]) == own), None)


class RunReader(Struct, frozen=True):
    """Reads and replays runs of any tenant, under the faces' role."""

    database: Database
    definitions: Definitions

    async def at(self, tenant: str, run_id: UUID, checkpoints: Container[int] = (), bytes_max: float = inf) -> Seen:
        """Read the run like ``seen``, with the checkpoints of these numbers."""
        async with self.database.transaction(tenant) as connection:
            return await seen(connection, self.definitions, tenant, run_id, checkpoints, bytes_max)

    async def checkpoints(self, tenant: str, run_id: UUID, *numbers: int) -> list[Row]:
        """The checkpoints with these numbers. ``NotFoundError`` if one does not exist, or if retention removed it."""
        past = await self.at(tenant, run_id, numbers)
        found = {row["superstep"]: row for row in past.checkpoints}
        if past.purged:
            raise NotFoundError("The run's checkpoints were removed by retention; its audit and its evidence are kept.")
        for number in numbers:
            if number not in found:
                known = f"They are numbered 0 to {past.last}."
                raise NotFoundError(f"The run has no checkpoint {number}.", remedy=known)
        return [found[number] for number in numbers]

    async def editions(self, tenant: str, run_id: UUID) -> list[Workflow]:
        """The workflow of a run at its beginning and after each extension. ``ConsistencyError`` if it was purged."""
        async with self.database.transaction(tenant) as connection:
            book = await books.read(connection, tenant, run_id)
            if book.purged:
                words = f"The run {run_id} is over, and what it held was removed when its retention ended."
                raise ConsistencyError(words, remedy="Its audit and its evidence bundle are kept.")
            return await self.definitions.editions(connection, book)

    async def lines(self, tenant: str, run_id: UUID) -> Sequence[bytes]:
        """The lines of a run, in their order. ``Diverged`` if they are not those that were written."""
        async with self.database.transaction(tenant) as connection:
            return await books.lines(connection, tenant, run_id)

    async def waits(self, tenant: str, run_id: UUID) -> dict[UUID, int]:
        """All waits in a run's book, each with the run's version after the commit that opened it."""
        async with self.database.transaction(tenant) as connection:
            every = await books.lines(connection, tenant, run_id)
            lines = [orjson.loads(line) for line in every if b'"wait":"' in line]
            ids = sorted({UUID(line["data"]["wait"]) for line in lines if "wait" in line["data"]})
            return await journal.opened(connection, run_id, ids)

    async def trigger(self, tenant: str, run_id: UUID) -> Row | None:
        """The trigger of a run; None if retention has removed it."""
        async with self.database.transaction(tenant) as connection:
            book = await books.read(connection, tenant, run_id)
        return None if book.purged else book.opened.inputs or {}

    async def replay(self, tenant: str, run_id: UUID) -> ReplayReport:
        """Derive every checkpoint of a run again. ``NotFoundError`` if the tenant has no such run.

        All is read in one snapshot, so the run may move on meanwhile.
        """
        async with self.database.transaction(tenant) as connection:
            await connection.execute(_SNAPSHOT)
            row = await books.fetch(connection, tenant, run_id)
            if row["purged_at"] is not None:
                return ReplayReport(run_id, "purged", 0, purged_at=row["purged_at"])
            equal, difference = 0, None
            try:
                book = await books.checked(row)
                run = await again(connection, self.definitions, book)
                for _ in replay(run):
                    equal += 1
                books.check_row(book, run.first)
                await check_rows(connection, run.first)
            except Diverged as problem:
                difference = problem.message
            except Divergence as problem:
                difference = f"At {problem.where}: {problem.what}."
            return ReplayReport(run_id, row["status"], equal, difference)
