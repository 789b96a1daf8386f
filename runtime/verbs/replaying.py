"""Replaying a stored run: its book is folded once more, and held against all that is stored (promises 5 and 6, P-9).

Whatever an expression or a policy had decided is evaluated anew. Each derived checkpoint must equal the stored one, and
the run that the book comes to must equal the rows that every face shows. So a change of a row, a checkpoint or a value
behind the engine is found. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from uuid import UUID

from core.canonical import Json, digest
from core.changes import changes
from core.db import Connection, Database
from evidence.chain import verify_lines
from policy.evaluate import evaluate
from runtime.definition.active_policy import ActivePolicy, readable
from runtime.definition.catalog import Definitions
from runtime.governance.finishing import writes_of
from runtime.kernel.events import DecisionMade, RunOpened
from runtime.kernel.replaying import Book, Derived, Divergence, replay, unopened
from runtime.kernel.told import Diverged, Told
from runtime.kernel.transition import RunView
from runtime.store import journal
from runtime.store import replay as store
from runtime.store.replay import Stored
from runtime.store.rows import difference_of_rows
from runtime.store.views import load_to_end

_BATCH = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where the record and what is derived from it differ.

    ``checkpoint`` is its number, None where the record itself cannot be followed; ``path`` a JSON Pointer into it.
    """

    what: str
    checkpoint: int | None = None
    path: str | None = None
    stored: Json = None
    derived: Json = None


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay found. ``equal`` checkpoints came before the ``difference``, which is None where all are equal.

    Of a run whose payloads retention has removed, at ``purged_at``, nothing can be derived.
    """

    run_id: UUID
    status: str
    equal: int
    difference: Difference | None = None
    purged_at: datetime | None = None

    @property
    def ok(self) -> bool:
        """Whether every checkpoint was derived again and is equal."""
        return self.difference is None and self.purged_at is None


@dataclass(frozen=True)
class Replaying:
    """Replays runs of any tenant, under the faces' role."""

    database: Database
    definitions: Definitions

    async def replay(self, tenant: str, run_id: UUID) -> ReplayReport:
        """Derive every checkpoint of a run again. ``NotFoundError`` if the tenant has no such run.

        All is read in one snapshot, so the run may move on meanwhile.
        """
        async with self.database.transaction(tenant) as connection:
            purged = await store.begin(connection, tenant, run_id)
            if purged is not None:
                return ReplayReport(run_id, "purged", 0, purged_at=purged)
            view = await load_to_end(connection, run_id, self.definitions.graphs)
            if not view.run_key:
                gone = Difference("The run's key is gone, so nothing can be held against the audit.")
                return ReplayReport(run_id, str(view.status), 0, gone)
            try:
                book = await self._book(connection, view)
            except Diverged as problem:
                return ReplayReport(run_id, str(view.status), 0, Difference(f"{problem.message}."))
            equal, difference = await _compare(connection, view, replay(book))
            if difference is None:
                # The replay has made of the unopened run what the book says that it is now.
                other = await difference_of_rows(connection, book.first)
                difference = None if other is None else Difference(other)
            return ReplayReport(run_id, str(view.status), equal, difference)

    async def _book(self, connection: Connection, view: RunView) -> Book:
        """The run's book, checked: an unbroken chain up to the head that the run names, values as they were told."""
        appends = await journal.read(connection, view.tenant_id, view.run_id)
        report = verify_lines(line for append in appends for line in append.lines)
        if not report.ok:
            raise Diverged(f"The audit chain is broken: {report.problem}")
        if (report.count, report.head) != (view.head.count, view.head.hash):
            raise Diverged("The audit chain is not as long as the run says, or ends with another line")
        told = [event for append in appends for event in append.told(view.run_key)]
        constants = _constants(view, told)
        workflows = [
            await self.definitions.of_run(connection, replace(view.definition, extensions=number))
            for number in range(view.extensions + 1)
        ]
        policies = await self._policies(connection, view.tenant_id, told)
        graph = workflows[0].graph
        return Book(
            first=unopened(view.run_id, view.run_key, graph),
            told=told,
            graphs=[workflow.graph for workflow in workflows],
            constants=constants,
            writes=writes_of,
            judge=partial(_judge, policies),
        )

    async def _policies(self, connection: Connection, tenant: str, told: Sequence[Told]) -> Mapping[str, ActivePolicy]:
        made = [each.event.policy for each in told if isinstance(each.event, DecisionMade)]
        digests = {str(policy["digest"]) for policy in made if policy is not None}
        return {digest: await self.definitions.policy(connection, tenant, digest) for digest in digests}


def _constants(view: RunView, told: Sequence[Told]) -> Mapping[str, object]:
    """What expressions see that never changes, as the run's first line tells it."""
    opened = told[0].event
    assert isinstance(opened, RunOpened)
    return {
        **view.constants,
        "trigger": opened.inputs or {},
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


async def _compare(connection: Connection, view: RunView, derived: Iterator[Derived]) -> tuple[int, Difference | None]:
    """How many checkpoints are equal, and what the first that is not differs in."""
    numbers = await store.checkpoint_numbers(connection, view.tenant_id, view.run_id)
    equal, problem = 0, None
    while problem is None:
        some, problem = _derive(derived)
        if not some:
            break
        stored = await store.checkpoints(connection, view.tenant_id, view.run_id, some[0].number, some[-1].number)
        for checkpoint in some:
            difference = _differs(view.run_key, checkpoint, stored.get(checkpoint.number))
            if difference is not None:
                return equal, difference
            equal += 1
    if problem is None and len(numbers) != equal:
        problem = Difference(f"{len(numbers)} checkpoints are stored; the record leads to {equal}.")
    return equal, problem


def _derive(derived: Iterator[Derived]) -> tuple[list[Derived], Difference | None]:
    """The next checkpoints, and why there are no more of them where the record cannot be followed."""
    some: list[Derived] = []
    try:
        some.extend(islice(derived, _BATCH))
    except Divergence as problem:
        return some, Difference(f"At {problem.where}: {problem.what}.")
    return some, None


def _differs(run_key: bytes, derived: Derived, stored: Stored | None) -> Difference | None:
    number = derived.number
    if stored is None:
        return Difference("The checkpoint is not stored.", number)
    if digest(stored.state) != derived.digest:
        change = next(changes(stored.state, derived.state), None)
        if change is not None:
            return Difference("The checkpoint differs.", number, change.path, change.before, change.after)
    if stored.digest != derived.digest:
        return Difference("The stored digest differs.", number, None, stored.digest, derived.digest)
    return None
