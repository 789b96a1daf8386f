"""The dependencies of a worker, and the reads for a step that it has claimed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TypeAlias
from uuid import UUID
from weakref import WeakValueDictionary

import asyncpg
import structlog

from approvals.ports import SlackGroups
from connectors.of_tenants import TenantConnectors
from connectors.operation import Operation
from connectors.port import Call
from core.db import Connection, Database
from core.outage import is_passing, report
from runtime.definition.catalog import Definitions
from runtime.engine.book.agent_chat import KEPT_MAX, Chat, ConversationCache, chat_of
from runtime.engine.book.agent_result import remembered_agents
from runtime.engine.book.instructions import Known, known_of, leased
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model.rows import Claim, StepRow
from runtime.engine.model.run import RunView
from runtime.engine.model.states import StepState
from runtime.store import journal, turns
from runtime.store.views import Unfinished, load, view_of
from runtime.work.committer import WorkerDeps, committer
from runtime.work.lease import CachedRun, Lease, Recent, meet
from runtime.work.pump import Pump

log = structlog.get_logger(__name__)

# The tenant, the run, the lease and its owner.
Rehearse: TypeAlias = Callable[[str, UUID, Claim, str], Awaitable[None]]


@dataclass(frozen=True)
class Tools:
    """The dependencies of driving; constructed by ``app``. ``owner`` is this worker's name in leases.

    ``slack`` gives the reader of a tenant's Slack groups; without it, all groups are empty. ``rehearse`` begins a step
    in another process without effects; it raises ``TooCostly`` if that process was ended. ``propagates`` says that
    calls carry the run's trace.
    """

    database: Database
    definitions: Definitions
    connectors: TenantConnectors
    owner: str
    lease: timedelta
    slack: Callable[[str], SlackGroups | None] | None = None
    rehearse: Rehearse | None = None
    propagates: bool = False

    @cached_property
    def recent(self) -> Recent:
        """A cache of the runs that this worker read last."""
        return Recent()

    @cached_property
    def chats(self) -> Chats:
        """A cache of the conversations of agents that this worker read last."""
        return Chats()

    @cached_property
    def _deps(self) -> WorkerDeps:
        write = committer(self.database.connection)
        place = (self.recent, self.owner, self.lease, self.connectors)
        return WorkerDeps(self.database, self.definitions, write, *place)

    @cached_property
    def _pumps(self) -> WeakValueDictionary[UUID, Pump]:
        return WeakValueDictionary()

    def pump(self, run_id: UUID) -> Pump:
        """The pump of a run, shared by all drives of its steps in this process, and dropped with the last of them."""
        pump = self._pumps.get(run_id)
        if pump is None:
            pump = self._pumps[run_id] = Pump(self._deps, run_id)
        return pump


async def note_busy(tools: Tools, met: CachedRun, operation: Operation, call: Call, seconds: float | None) -> None:
    """Note that the target of a call has asked for no calls for so long: then no step of the tenant calls it.

    It is noted before the outcome is settled. A crash in between leaves the intent to the step's next lease, which asks
    the target only when that time is over. If PostgreSQL is away, only this step heeds it: its outcome is not held up.
    """
    if not seconds:
        return
    tenant, place = met.view.tenant_id, met.connectors.place(operation.connector, call.input)
    try:
        async with tools.database.connection() as connection:
            until = await turns.note_busy(connection, tenant, place, seconds)
    except Exception as error:
        if not is_passing(error):
            raise
        report("only one step heeds that its target asks for no calls", error, target=place)
    else:
        log.info(
            "a target asks for no calls; the tenant's steps wait", tenant=tenant, target=place, until=until.isoformat()
        )


def claim_of(record: asyncpg.Record) -> tuple[Claim, str]:
    """The lease that the claim of a step took, and its owner."""
    row = record["step"]
    return Claim(row["step_key"], UUID(row["lease_id"]), row["lease_epoch"]), row["lease_owner"]


async def read_claimed(
    database: Database,
    record: asyncpg.Record,
    definitions: Definitions,
    connectors: TenantConnectors,
    recent: Recent,
    began: float,
    answered: float | None = None,
) -> tuple[CachedRun, StepRow, Known]:
    """The run, the leased step, and the known facts about it from earlier leases.

    The claim was sent at ``began``, and its answer arrived at ``answered``.
    """
    (claim, owner), met = claim_of(record), recent.get(UUID(record["run"]["run_id"]))
    if met is None or not _is_first(met, record, claim):
        async with database.connection() as connection:
            view, sent, arrived = await _read(connection, record, definitions, met, (began, answered))
            met = recent.put(await meet(connection, definitions, connectors, view, sent, arrived))
            if not _is_ready(met, claim):  # our own append came in between, and the claim did not see it
                asked = Lease.now()
                view = await load(connection, met.view.run_id, definitions.graphs, before=met.exact)
                met = recent.put(await meet(connection, definitions, connectors, view, asked))
    return met, leased(met.view, claim, owner), known_of(met.view.run, claim.key)


def _is_first(met: CachedRun, record: asyncpg.Record, claim: Claim) -> bool:
    """True if only this claim has changed the run since this worker last saw it, so that no read is needed."""
    run, view = record["run"], met.view
    same = view.gate == run["gate"] and view.stop == record["stop_number"] and view.off is bool(run["off"])
    return same and claim.epoch == 1 and _is_ready(met, claim)


def _is_ready(met: CachedRun, claim: Claim) -> bool:
    step = met.view.run.steps.get(claim.key)
    return step is not None and step.status is StepState.READY and not met.behind


async def _read(
    connection: Connection,
    record: asyncpg.Record,
    definitions: Definitions,
    met: CachedRun | None,
    claimed: tuple[float, float | None],
) -> tuple[RunView, float, float | None]:
    """The run, and the times when it was asked for and answered. It came with the claim, or is read now."""
    before = None if met is None else met.exact
    if record["lines"] is not None:
        with suppress(Unfinished):  # the claim did not see the last append of this run yet
            return await view_of(connection, record, definitions.graphs, before=before), *claimed
    asked = Lease.now()
    return await load(connection, UUID(record["run"]["run_id"]), definitions.graphs, before=before), asked, None


class Chats:
    """A cache of the conversations that this worker read last. It stays valid, because a book only grows."""

    def __init__(self) -> None:
        self._listeners = ConversationCache()
        self._read: OrderedDict[tuple[UUID, str], tuple[int, tuple[RecordedEvent, ...]]] = OrderedDict()

    async def read(self, connection: Connection, run_id: UUID, run_key: bytes, agent: str) -> Chat:
        """Read the messages of an agent's model so far. Only the book holds them."""
        last, before = self._read.pop((run_id, agent), (0, ()))
        last, since = await journal.of_step(connection, run_id, run_key, agent, after=last)
        recorded = (*before, *since)
        self._read[run_id, agent] = (last, recorded)
        while len(self._read) > KEPT_MAX:
            self._read.popitem(last=False)
        others = await journal.of_others(connection, run_id, remembered_agents(recorded, agent))
        return chat_of(recorded, agent, others, self._listeners)
