"""What a worker knows of the runs that it works on, and what a claim returned, as values."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

import asyncpg

from core.clock import DatabaseClock
from core.db import Connection, Database
from runtime.definition.catalog import Definitions
from runtime.engine.active_policy import ActivePolicy
from runtime.engine.commit import Claim, StepRow
from runtime.engine.known import known_of, leased
from runtime.engine.moves import Known
from runtime.engine.states import StepState
from runtime.engine.view import RunView
from runtime.engine.workflow import Workflow
from runtime.store.views import Unfinished, load, view_of

# A run that a worker goes on with is most often one that it has just left.
RECENT_MAX = 256


@dataclass(frozen=True, slots=True)
class Met:
    """A run as a worker knows it.

    ``exact`` is what its book said when it was read, ``view`` has what was appended from here since. It has ``drifted``
    if there are appends of others in between: then what commutes with those is decided on ``view``, and all else on the
    book. ``seen`` is the highest version that is known to exist.
    """

    exact: RunView
    view: RunView
    seen: int
    workflow: Workflow
    policy: ActivePolicy
    clock: DatabaseClock
    drifted: bool = False


class Recent:
    """The runs that a worker met last, as it left them: what they are now is folded on from there."""

    def __init__(self) -> None:
        self._met: OrderedDict[UUID, Met] = OrderedDict()

    def get(self, run_id: UUID) -> Met | None:
        """What is known of this run, if anything."""
        return self._met.get(run_id)

    def put(self, met: Met) -> Met:
        """Remember what is newest of a run, and return it. What was read before the last append is no news.

        One that is over is of no use to anybody.
        """
        run_id = met.view.run_id
        known = self._met.pop(run_id, None)
        if known is not None:
            if known.seen > met.seen or (known.seen == met.seen and met.drifted):
                met = known
            elif met.drifted and known.exact.version > met.exact.version:
                met = replace(met, exact=known.exact)
        if not met.view.run.finished:
            self._met[run_id] = met
        while len(self._met) > RECENT_MAX:
            self._met.popitem(last=False)
        return met


def claim_of(record: asyncpg.Record) -> tuple[Claim, str]:
    """The lease that a claim took, and its owner."""
    row = record["step"]
    return Claim(row["step_key"], UUID(row["lease_id"]), row["lease_epoch"]), row["lease_owner"]


async def claimed(
    database: Database, record: asyncpg.Record, definitions: Definitions, recent: Recent
) -> tuple[Met, StepRow, Known]:
    """The run, the leased step, and what is known of it from earlier leases."""
    (claim, owner), met = claim_of(record), recent.get(UUID(record["run"]["run_id"]))
    if met is None or not _is_first(met, record, claim):
        async with database.connection() as connection:
            met = recent.put(await meet(connection, definitions, await _read(connection, record, definitions, met)))
            if not _is_ready(met, claim):  # an append from here came in between, of which the claim tells nothing
                view = await load(connection, met.view.run_id, definitions.graphs, before=met.exact)
                met = recent.put(await meet(connection, definitions, view))
    return met, leased(met.view, claim, owner), known_of(met.view.run, claim.key)


def _is_first(met: Met, record: asyncpg.Record, claim: Claim) -> bool:
    """True if nothing can have happened to this step but this claim, so that what is known of the run is enough."""
    same = met.view.gate == record["run"]["gate"] and met.view.policy_digest == record["policy_digest"]
    return same and claim.epoch == 1 and _is_ready(met, claim)


def _is_ready(met: Met, claim: Claim) -> bool:
    step = met.view.steps.get(claim.key)
    return step is not None and step.status is StepState.READY


async def _read(connection: Connection, record: asyncpg.Record, definitions: Definitions, met: Met | None) -> RunView:
    before = None if met is None else met.exact
    if record["lines"] is not None:
        with suppress(Unfinished):  # the claim did not see the last append of this run yet
            return await view_of(connection, record, definitions.graphs, before=before)
    return await load(connection, UUID(record["run"]["run_id"]), definitions.graphs, before=before)


async def meet(connection: Connection, definitions: Definitions, view: RunView) -> Met:
    """A run as its book has just given it, with what it is decided by."""
    workflow = await definitions.of_run(connection, view)
    policy = await definitions.policy(connection, view.tenant_id, view.policy_digest)
    return Met(view, view, view.version, workflow, policy, DatabaseClock(view.now))
