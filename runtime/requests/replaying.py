"""Replaying a stored run: its book is folded once more, and held against all that is stored (promises 5 and 6, P-9).

Whatever an expression or a policy had decided is evaluated anew. Each checkpoint that this leads to must be the one
that its line names, and the run that the book comes to must be the one that rows are found by. So a change of a value,
a line or a row behind the engine is found. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from msgspec import Struct

from core.canonical import Json
from core.db import Connection, Database
from policy.evaluate import evaluate
from runtime.definition.catalog import Definitions
from runtime.engine.events import DecisionMade
from runtime.engine.finish import writes_of
from runtime.engine.judge import ActivePolicy, readable
from runtime.engine.replaying import Divergence, Replay, replay, unopened
from runtime.engine.told import Diverged, Told
from runtime.store import books
from runtime.store.books import Book
from runtime.store.rows import check_rows

# The first statement of a transaction: what follows reads one moment, though the run moves on.
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay found. ``equal`` checkpoints came before the ``difference``, which is None where all are equal.

    Of a run whose payloads retention has removed, at ``purged_at``, nothing can be derived.
    """

    run_id: UUID
    status: str
    equal: int
    difference: str | None = None
    purged_at: datetime | None = None

    @property
    def ok(self) -> bool:
        """Whether every checkpoint was derived again and is equal."""
        return self.difference is None and self.purged_at is None


class Replaying(Struct, frozen=True):
    """Replays runs of any tenant, under the faces' role."""

    database: Database
    definitions: Definitions

    async def replay(self, tenant: str, run_id: UUID) -> ReplayReport:
        """Derive every checkpoint of a run again. ``NotFoundError`` if the tenant has no such run.

        All is read in one snapshot, so the run may move on meanwhile.
        """
        async with self.database.transaction(tenant) as connection:
            await connection.execute(_SNAPSHOT)
            row = await books.fetch(connection, tenant, run_id)
            if row["purged_at"] is not None:
                return ReplayReport(run_id, "purged", 0, purged_at=row["purged_at"])
            equal = 0
            try:
                book = await books.checked(row)
                run = await self._start(connection, book)
                for _ in replay(run):
                    equal += 1
                books.check_row(book, run.first)
                await check_rows(connection, run.first)
            except Diverged as problem:
                return ReplayReport(run_id, row["status"], equal, problem.message)
            except Divergence as problem:
                return ReplayReport(run_id, row["status"], equal, f"At {problem.where}: {problem.what}.")
            return ReplayReport(run_id, row["status"], equal)

    async def _start(self, connection: Connection, book: Book) -> Replay:
        graphs = [workflow.graph for workflow in await self.definitions.editions(connection, book)]
        policies = await self._policies(connection, book.row["tenant_id"], book.told)
        return Replay(
            first=unopened(book.run_id, book.row["run_key"], graphs[0]),
            told=book.told,
            graphs=graphs,
            constants=_constants(book),
            writes=writes_of,
            judge=partial(_judge, policies),
        )

    async def _policies(self, connection: Connection, tenant: str, told: Sequence[Told]) -> Mapping[str, ActivePolicy]:
        made = [each.event.policy for each in told if isinstance(each.event, DecisionMade)]
        digests = {str(policy["digest"]) for policy in made if policy is not None}
        return {digest: await self.definitions.policy(connection, tenant, digest) for digest in digests}


def _constants(book: Book) -> Mapping[str, object]:
    """The variables of expressions that never change."""
    opened = book.opened
    return {
        "trigger": opened.inputs or {},
        "run.id": str(book.run_id),
        "run.workflow": book.row["workflow"],
        "run.version": book.row["workflow_version"],
        "run.reference": opened.reference,
        "run.requested_by": opened.requested_by,
    }


def _judge(policies: Mapping[str, ActivePolicy], event: DecisionMade) -> tuple[str, list[Json]] | None:
    """The recorded decision, made once more by the same policy over the same facts (promise 1)."""
    policy = readable(policies.get(str((event.policy or {}).get("digest"))))
    if policy is None or any(str(rule).startswith("cap:") for rule in event.rules):
        return None
    decision = evaluate(policy, event.facts or {}, event.operation)
    return str(decision.outcome), [rule.id for rule in decision.rules]
