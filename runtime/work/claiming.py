"""What a claim returned, as values."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

import asyncpg

from core.db import Connection
from runtime.definition.catalog import Definitions
from runtime.engine.commit import Claim, StepRow
from runtime.engine.known import known_of, leased
from runtime.engine.moves import Known
from runtime.engine.transition import RunView
from runtime.store.views import Unfinished, load, view_of

# A run that a worker goes on with is most often one that it has just left.
RECENT_MAX = 256


def claim_of(record: asyncpg.Record) -> tuple[Claim, str]:
    """The lease that a claim took, and its owner."""
    row = record["step"]
    return Claim(row["step_key"], UUID(row["lease_id"]), row["lease_epoch"]), row["lease_owner"]


class Recent:
    """The runs that a worker met last, as it left them: what they are now is folded on from there."""

    def __init__(self) -> None:
        self._views: OrderedDict[UUID, RunView] = OrderedDict()

    def get(self, run_id: UUID) -> RunView | None:
        """The last view of this run, if there is one."""
        return self._views.get(run_id)

    def put(self, view: RunView) -> RunView:
        """Remember a view; one of a run that is over is of no use."""
        self._views.pop(view.run_id, None)
        if not view.run.finished:
            self._views[view.run_id] = view
        while len(self._views) > RECENT_MAX:
            self._views.popitem(last=False)
        return view


async def claimed(
    connection: Connection, record: asyncpg.Record, definitions: Definitions, recent: Recent
) -> tuple[RunView, StepRow, Known]:
    """The run's view, the leased step, and what is known of it from earlier leases."""
    run_id = UUID(record["run"]["run_id"])
    try:
        view = await view_of(connection, record, definitions.graphs, before=recent.get(run_id))
    except Unfinished:
        # The claim did not see the last append of this run yet.
        view = await load(connection, run_id, definitions.graphs)
    recent.put(view)
    return view, leased(view, *claim_of(record)), known_of(view.run, record["step"]["step_key"])
