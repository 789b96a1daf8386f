"""Finds everything that is due by one statement, which also frees messages and steps that were never finished."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.engine.model.rows import Claim
from runtime.store import triggered
from runtime.store.inbox import StoredSignal
from runtime.store.statements import statements

# As sweeps.sql has it.
BATCH = 100

_SQL = statements("sweeps")
_DUE = _SQL["due"]
_TAKE_AWAY = _SQL["take_away"]
_FORGET = _SQL["forget"]
_WAITS_BEGIN = _SQL["waits_begin"]
_MESSAGES_BEGIN = _SQL["messages_begin"]
_LEASES_END = _SQL["leases_end"]


class Due(Struct, frozen=True):
    """The result of a sweep. ``now`` is the database's time.

    It has expired leases by run, waits as (run, step key, wait, age in seconds), and the numbers of messages and steps
    that were freed for others.

    ``signals``: those that now have a wait, or that were kept for too long. ``purges``: runs whose retention is over.
    ``changed``: tenants with a change of policy or pauses that has left work to the keepers. ``untold``: ended effects,
    by tenant and key, for whose end a step still waits. ``long_open``: open runs that have waited for steps long
    enough. ``windows``: windows of triggers that are over, by tenant, workflow and reference. ``unordered``: tenants
    whose log has leaves without a place. ``schedules``: schedules that have a moment which has come, or another
    version. ``ended``: open questions of agents whose last token has ended.
    """

    now: datetime
    leases: tuple[tuple[UUID, Claim], ...]
    waits: tuple[tuple[UUID, str, UUID, float], ...]
    freed: int
    signals: tuple[StoredSignal, ...]
    purges: tuple[UUID, ...]
    changed: tuple[str, ...]
    untold: tuple[tuple[str, str], ...]
    long_open: tuple[UUID, ...]
    windows: tuple[tuple[str, str, str], ...] = ()
    unordered: tuple[str, ...] = ()
    schedules: tuple[tuple[str, str], ...] = ()
    ended: tuple[UUID, ...] = ()


async def due(connection: Connection, lease: timedelta, *, whole: bool) -> Due:
    """Find everything that is due now: at most ``BATCH`` of each kind, shared equally among tenants.

    ``whole`` compares all kept signals with all waits. No worker's lease ends later than ``lease`` from now. A crash
    before the commit leaves everything to the next sweep.
    """
    row = await connection.fetchrow(_DUE, lease, whole)
    assert row is not None
    return Due(
        row["now"],
        tuple((UUID(run), Claim(key, UUID(lease), epoch)) for run, key, lease, epoch in row["leases"] or ()),
        tuple((UUID(run), key, UUID(wait), age) for run, key, wait, age in row["waits"] or ()),
        row["freed"],
        tuple(StoredSignal(tenant, source, key, run and UUID(run)) for tenant, source, key, run in row["kept"] or ()),
        tuple(UUID(run) for run in row["purges"] or ()),
        tuple(row["changed"] or ()),
        tuple((tenant, key) for tenant, key in row["untold"] or ()),
        tuple(UUID(run) for run in row["long_open"] or ()),
        tuple((tenant, workflow, reference) for tenant, workflow, reference in row["windows"] or ()),
        tuple(row["unordered"] or ()),
        tuple((tenant, workflow) for tenant, workflow in row["schedules"] or ()),
        tuple(UUID(approval) for approval in row["ended"] or ()),
    )


async def begin_anew(connection: Connection, *, seen: bool) -> int:
    """Move every stored time back after the clock has gone back, so that nothing waits too long; return how many.

    ``seen``: the clock was seen going back; then messages that wait for another try are tried at once. After a crash
    the next sweep that looks at everything moves the rest.
    """
    given = ((_WAITS_BEGIN,), (_MESSAGES_BEGIN, seen), (_LEASES_END,))
    moved = sum([int((await connection.execute(*each)).rpartition(" ")[2]) for each in given])
    return moved + await triggered.begin_anew(connection)


async def take_away(connection: Connection, run_id: UUID, claim: Claim) -> str | None:
    """Lock the row of an expired lease before the run's row is locked; return the lease's owner.

    None if the step has another lease by now, or is over, or if a heartbeat has extended the lease: this is checked
    under the lock. A crash before the caller's transaction commits leaves the lease as it was.
    """
    owner: str | None = await connection.fetchval(_TAKE_AWAY, run_id, claim.key, claim.id, claim.epoch)
    return owner


async def forget(connection: Connection, run_id: UUID, step_key: str) -> None:
    """Delete the queue's row of a canceled step, which the cancel itself could not delete because it was locked."""
    await connection.execute(_FORGET, run_id, step_key)
