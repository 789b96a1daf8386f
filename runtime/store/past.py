"""Reading a run's past: one of its checkpoints, and the ledger of its channels (P-7, P-9)."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, Select, Text, bindparam, func, select, tuple_
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from core.errors import NotFoundError
from runtime.store.read_models import Row
from runtime.store.schema import checkpoints, ledger, runs

_tenant = bindparam("tenant", type_=Text)
_run = bindparam("run", type_=postgresql.UUID(as_uuid=True))

_CHECKPOINT: Select[Any] = select(
    checkpoints.c.superstep, checkpoints.c.digest, checkpoints.c.state, checkpoints.c.created_at
).where(
    checkpoints.c.tenant_id == _tenant,
    checkpoints.c.run_id == _run,
    checkpoints.c.superstep == bindparam("number", type_=Integer),
)
_PURGED: Select[Any] = select(runs.c.superstep, runs.c.purged_at).where(
    runs.c.tenant_id == _tenant, runs.c.run_id == _run
)
# The writes of a super-step are recorded in one commit, so their numbers within it never change.
_NUMBERED = (
    select(
        ledger.c.superstep,
        ledger.c.step_key,
        ledger.c.channel,
        ledger.c.value,
        ledger.c.written_at,
        func.row_number()
        .over(partition_by=ledger.c.superstep, order_by=(ledger.c.step_key, ledger.c.channel))
        .label("number"),
    )
    .where(
        ledger.c.tenant_id == _tenant,
        ledger.c.run_id == _run,
        ledger.c.superstep >= bindparam("after_superstep", type_=Integer),
    )
    .subquery()
)
_LEDGER: Select[Any] = (
    select(_NUMBERED)
    .where(
        tuple_(_NUMBERED.c.superstep, _NUMBERED.c.number)
        > tuple_(bindparam("after_superstep", type_=Integer), bindparam("after_number", type_=Integer))
    )
    .order_by(_NUMBERED.c.superstep, _NUMBERED.c.number)
    .limit(bindparam("limit", type_=Integer))
)


async def purged_at(connection: AsyncConnection, tenant: str, run_id: UUID) -> datetime | None:
    """When retention removed what the run was about; None if it has not."""
    row = (await connection.execute(_PURGED, {"tenant": tenant, "run": run_id})).mappings().one_or_none()
    return None if row is None else row["purged_at"]


async def checkpoint(connection: AsyncConnection, tenant: str, run_id: UUID, number: int) -> Row:
    """One checkpoint. ``NotFoundError`` says whether there is no such run, no such number, or nothing left of it."""
    values: dict[str, Any] = {"tenant": tenant, "run": run_id}
    found: Row | None = (await connection.execute(_CHECKPOINT, {**values, "number": number})).mappings().one_or_none()
    if found is not None:
        return found
    run = (await connection.execute(_PURGED, values)).mappings().one_or_none()
    if run is None:
        raise NotFoundError(f"There is no run {run_id}.", remedy="See `counterseal run list`.")
    if run["purged_at"] is not None:
        raise NotFoundError("The run's checkpoints were removed by retention; its audit and its evidence are kept.")
    raise NotFoundError(f"The run has no checkpoint {number}.", remedy=f"They are numbered 0 to {run['superstep']}.")


async def ledger_page(
    connection: AsyncConnection,
    tenant: str,
    run_id: UUID,
    limit: int,
    after_superstep: int = -1,
    after_number: int = 0,
) -> list[Row]:
    """Writes to channels with a ledger, in the order of super-steps; ``number`` counts within one."""
    values = {"tenant": tenant, "run": run_id, "limit": limit}
    after = {"after_superstep": after_superstep, "after_number": after_number}
    found: list[Row] = [*(await connection.execute(_LEDGER, {**values, **after})).mappings()]
    return found
