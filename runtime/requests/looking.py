"""Looking at a run: what every face shows of it is folded from its book when it is asked for (promise 6).

What was changed behind the engine is never shown: the book is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from uuid import UUID

import orjson
from msgspec import Struct

from approvals.model import ApprovalKind
from core.db import Connection, Database
from core.errors import ConsistencyError, NotFoundError
from runtime.definition.catalog import Definitions
from runtime.engine.past import Past, Row, past_of, receipt_rows, step_rows
from runtime.engine.replaying import unopened
from runtime.engine.workflow import Workflow
from runtime.store import books, retention
from runtime.store.approvals import StoredApproval
from runtime.store.books import Book


class Seen(Struct, frozen=True):
    """The view of a run besides its row. ``last`` is the number of its newest checkpoint."""

    steps: Sequence[Row]
    receipts: Sequence[Row]
    extensions: Sequence[Row]
    checkpoints: Sequence[Row]
    last: int
    purged: bool = False

    @property
    def late(self) -> list[str]:
        """What workers told after they had lost their leases, a sentence for each call, with its step."""
        return [f"{row['step_key']}: {late['says']}" for row in self.receipts for late in row["late"]]


async def folded(connection: Connection, definitions: Definitions, book: Book, wanted: Container[int] = ()) -> Past:
    """The run that a book comes to, with the wanted checkpoints. ``Diverged`` if the run's row says something else."""
    graphs = [workflow.graph for workflow in await definitions.editions(connection, book)]
    first = unopened(book.run_id, book.row["run_key"], graphs[0])
    past = await books.aside(len(book.told), lambda: past_of(first, book.told, graphs, wanted))
    books.check_row(book, past.run)
    return past


async def seen(
    connection: Connection, definitions: Definitions, tenant: str, run_id: UUID, wanted: Container[int] = ()
) -> Seen:
    """All there is to see of a run now, and the wanted checkpoints.

    ``NotFoundError`` if the tenant has no such run, ``Diverged`` if what is stored is not what was told.
    """
    book = await books.read(connection, tenant, run_id)
    if book.purged:
        left = await retention.remains(connection, run_id)
        return Seen(*left, checkpoints=(), last=book.row["superstep"], purged=True)
    past = await folded(connection, definitions, book, wanted)
    return Seen(step_rows(past), receipt_rows(past), past.extensions, past.checkpoints, last=past.run.superstep)


async def receipt_of(connection: Connection, definitions: Definitions, stored: StoredApproval) -> Row | None:
    """The receipt of the action that was asked about: it says more than the vote. None if nothing was sent yet."""
    approval = stored.approval
    doubted = approval.kind is ApprovalKind.IN_DOUBT
    if not (stored.consumed or doubted) or approval.kind is ApprovalKind.GATE:
        return None
    every = (await seen(connection, definitions, approval.tenant_id, approval.run_id)).receipts
    own = (approval.step_key, approval.action_digest)
    return next((row for row in reversed(every) if (row["step_key"], row["action_digest"]) == own), None)


class Looking(Struct, frozen=True):
    """Looks at runs of any tenant, under the faces' role."""

    database: Database
    definitions: Definitions

    async def at(self, tenant: str, run_id: UUID, checkpoints: Container[int] = ()) -> Seen:
        """As ``seen``, with the checkpoints of these numbers."""
        async with self.database.transaction(tenant) as connection:
            return await seen(connection, self.definitions, tenant, run_id, checkpoints)

    async def checkpoints(self, tenant: str, run_id: UUID, *numbers: int) -> list[Row]:
        """These checkpoints. ``NotFoundError`` says whether there is no such run or number, or nothing left of it."""
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
        """The workflow of a run as it began, and after each extension. ``ConsistencyError`` if retention took them."""
        async with self.database.transaction(tenant) as connection:
            book = await books.read(connection, tenant, run_id)
            if book.purged:
                gone = f"The run {run_id} is over, and what it held was removed when its retention ended."
                raise ConsistencyError(gone, remedy="Its audit and its evidence bundle are kept.")
            return await self.definitions.editions(connection, book)

    async def lines(self, tenant: str, run_id: UUID) -> Sequence[bytes]:
        """The lines of a run, in their order. ``Diverged`` if they are not those that were written."""
        async with self.database.transaction(tenant) as connection:
            return await books.lines(connection, tenant, run_id)

    async def waits(self, tenant: str, run_id: UUID) -> list[UUID]:
        """The ids of all waits that a run has told of."""
        lines = [orjson.loads(line) for line in await self.lines(tenant, run_id) if b'"wait":"' in line]
        return sorted({UUID(line["data"]["wait"]) for line in lines if "wait" in line["data"]})

    async def trigger(self, tenant: str, run_id: UUID) -> Row | None:
        """The trigger of a run; None if retention has taken it."""
        async with self.database.transaction(tenant) as connection:
            book = await books.read(connection, tenant, run_id)
        return None if book.purged else book.opened.inputs or {}
