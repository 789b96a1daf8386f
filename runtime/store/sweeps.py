"""Finds everything that is due: one statement, which also frees messages and steps that never came to their end."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.engine.model.rows import Claim
from runtime.store import triggered
from runtime.store.inbox import Kept
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
    """The reading of a sweep. ``now`` is the database's time.

    Leases by run, waits as (run, step key, wait, age in seconds), how many messages and steps were freed for others.

    ``kept`` are signals that have a wait by now, or none for too long, ``purges`` are runs whose retention is over,
    ``changed`` are tenants with a change of policy or pauses that keepers still have work with. ``untold`` are effects,
    each by tenant and key, whose end somebody still waits for; ``long_open`` are open runs that have waited for steps
    long enough; ``windows`` of triggers are over, each by tenant, workflow and reference; ``unordered`` are tenants
    with leaves of their log that have no place yet; ``schedules`` have a moment that has come, or another version;
    ``ended`` are open questions of agents whose last token has ended.
    """

    now: datetime
    leases: tuple[tuple[UUID, Claim], ...]
    waits: tuple[tuple[UUID, str, UUID, float], ...]
    freed: int
    kept: tuple[Kept, ...]
    purges: tuple[UUID, ...]
    changed: tuple[str, ...]
    untold: tuple[tuple[str, str], ...]
    long_open: tuple[UUID, ...]
    windows: tuple[tuple[str, str, str], ...] = ()
    unordered: tuple[str, ...] = ()
    schedules: tuple[tuple[str, str], ...] = ()
    ended: tuple[UUID, ...] = ()


async def due(connection: Connection, lease: timedelta, *, whole: bool) -> Due:
    """Everything that is due now, at most ``BATCH`` of each kind, of which tenants have equal shares.

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
        tuple(Kept(tenant, source, key, run and UUID(run)) for tenant, source, key, run in row["kept"] or ()),
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
    """Let everything that is timed go on after the clock has gone back; return how much was moved.

    ``seen`` says that it was seen to go back: then messages that wait for another try are tried at once. A crash leaves
    what is not moved yet to the next sweep that looks at everything.
    """
    given = ((_WAITS_BEGIN,), (_MESSAGES_BEGIN, seen), (_LEASES_END,))
    moved = sum([int((await connection.execute(*each)).rpartition(" ")[2]) for each in given])
    return moved + await triggered.begin_anew(connection)


async def take_away(connection: Connection, run_id: UUID, claim: Claim) -> str | None:
    """Lock the row of a lease that has run out, before the run's row is locked; return its owner.

    None if it is another's by now, or its step is over, or a heartbeat has come in between: this is checked under the
    lock. A crash before the caller's transaction commits leaves the lease as it was.
    """
    owner: str | None = await connection.fetchval(_TAKE_AWAY, run_id, claim.key, claim.id, claim.epoch)
    return owner


async def forget(connection: Connection, run_id: UUID, step_key: str) -> None:
    """Delete the queue's row of a step that a cancel had to leave to its holder."""
    await connection.execute(_FORGET, run_id, step_key)
