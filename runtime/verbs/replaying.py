"""Replaying a stored run: its checkpoints are derived again and held against those that are kept (promise 5, P-9).

Each derived checkpoint must equal what is stored, the digest that is stored with it, and the blinded digest in the
audit chain. So a change of a checkpoint, or of an output that one depends on, is found. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

import orjson

from core.canonical import Json, JsonObject, digest
from core.changes import changes
from core.db import Connection, Database
from evidence.chain import Actor, ChainHead, EventType, verify_lines
from evidence.commitments import blind
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import Workflow
from runtime.governance.finishing import checked_reference, finish
from runtime.kernel.channels import initial_values
from runtime.kernel.commit import StepRow
from runtime.kernel.graph import LeafNode
from runtime.kernel.record import Derived, Divergence, Fact, Record
from runtime.kernel.replaying import replay
from runtime.kernel.state import State
from runtime.kernel.states import RunState
from runtime.kernel.transition import RunView, Transition
from runtime.store import extensions
from runtime.store import replay as store
from runtime.store.replay import Stored
from runtime.store.views import load

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
            view, _ = await load(connection, run_id)
            if not view.run_key:
                gone = Difference("The run's key is gone, so nothing can be held against the audit.")
                return ReplayReport(run_id, str(view.status), 0, gone)
            record, problem = await self._record(connection, view)
            if problem is not None:
                return ReplayReport(run_id, str(view.status), 0, problem)
            equal, difference = await _compare(connection, view, replay(record))
            return ReplayReport(run_id, str(view.status), equal, difference)

    async def _record(self, connection: Connection, view: RunView) -> tuple[Record, Difference | None]:
        rows = await store.read_record(connection, view.tenant_id, view.run_id)
        report = verify_lines(rows.lines)
        problem = None if report.ok else Difference(f"The audit chain is broken: {report.problem}")
        if problem is None and (report.count, report.head) != (view.head.count, view.head.hash):
            problem = Difference("The audit chain is not as long as the run says, or ends with another line.")
        workflows = [
            await self.definitions.of_run(connection, replace(view, extensions=number))
            for number in range(view.extensions + 1)
        ]
        record = Record(
            first=_first(view, workflows[0]),
            graphs=[workflow.graph for workflow in workflows],
            facts=(_fact(line) for line in rows.lines),
            steps=rows.steps,
            waits=rows.waits,
            mutations=await extensions.of_run(connection, view.run_id, view.extensions),
            settle=_settle,
        )
        return record, problem


def _first(view: RunView, workflow: Workflow) -> RunView:
    """The run as it was before its first move: its reference is the one that its trigger gives."""
    constants = {**view.constants, "run.reference": ""}
    reference = checked_reference(workflow.reference.render(constants))
    return replace(
        view,
        reference=reference,
        status=RunState.QUEUED,
        version=1,
        superstep=0,
        executing=0,
        width=0,
        writes=0,
        head=ChainHead.of_run(view.run_id),
        state=State(initial_values(workflow.graph.channels)),
        constants={**constants, "run.reference": reference},
        canceling=None,
        extensions=0,
        whole=True,
        steps={},
        open_approvals=(),
        open_elsewhere=(),
        windows={},
    )


def _fact(line: bytes) -> Fact:
    read: dict[str, Any] = orjson.loads(line)
    actor = Actor(read["actor"]["kind"], read["actor"]["id"])
    return Fact(read["seq"], EventType(read["type"]), actor, read["step"], read["data"])


def _settle(transition: Transition, step: StepRow, leaf: LeafNode, output: Json, signal: JsonObject | None) -> None:
    finish(transition, step, leaf, output, signal=signal)


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
    if blind(run_key, derived.digest) != derived.recorded:
        return Difference("The digest in the audit chain is of another checkpoint.", number)
    return None
