"""What a claim returned, as values."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from core.db import Connection
from runtime.definition.catalog import Definitions
from runtime.governance.known import known_of, leased
from runtime.governance.moves import Known
from runtime.kernel.commit import Claim, StepRow
from runtime.kernel.transition import RunView
from runtime.store.views import Unfinished, load, view_of


def claim_of(record: asyncpg.Record) -> tuple[Claim, str]:
    """The lease that a claim took, and its owner."""
    row = record["step"]
    return Claim(row["step_key"], UUID(row["lease_id"]), row["lease_epoch"]), row["lease_owner"]


async def claimed(
    connection: Connection, record: asyncpg.Record, definitions: Definitions
) -> tuple[RunView, StepRow, Known]:
    """The run's view, the leased step, and what is known of it from earlier leases."""
    try:
        view = await view_of(connection, record, definitions.graphs)
    except Unfinished:
        # The claim did not see the last append of this run yet.
        view = await load(connection, UUID(record["run"]["run_id"]), definitions.graphs)
    return view, leased(view, *claim_of(record)), known_of(view.run, record["step"]["step_key"])
