"""What stands in line, what is under way and what waits, by tenant and lane: for whoever watches an installation.

Each statement goes through an index of what is open, so that reading costs what is open and not what is over. Under
the faces' role, row-level security shows one tenant whatever is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import asyncpg

from core.db import Connection

_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

# What is left of this minute's starts: the token bucket of claims, read and not drawn from.
_TENANTS = """
SELECT t.tenant_id, t.weight, t.max_runs_per_min,
  (SELECT count(*) FROM slots s WHERE s.tenant_id = t.tenant_id AND s.cap = '') AS slots,
  (SELECT count(*) FROM slots s WHERE s.tenant_id = t.tenant_id AND s.cap = '' AND s.step_id IS NOT NULL) AS slots_used,
  floor(least(t.max_runs_per_min, coalesce(t.starts_left, t.max_runs_per_min)
    + extract(epoch FROM greatest(now(), t.starts_left_at) - coalesce(t.starts_left_at, now()))
      * t.max_runs_per_min / 60))::int AS starts_left
FROM tenants t WHERE $1::text IS NULL OR t.tenant_id = $1 ORDER BY t.tenant_id"""

_CAPS = """
SELECT s.tenant_id, s.cap, count(*) AS slots, count(s.step_id) AS used, (
  SELECT count(*) FROM commands c
  WHERE c.tenant_id = s.tenant_id AND c.cap = s.cap AND c.kind = 'step' AND c.status = 'pending') AS pending
FROM slots s WHERE s.cap > '' AND s.tenant_id = ANY ($1::text[]) GROUP BY s.tenant_id, s.cap ORDER BY 1, 2"""

# A command that was deferred is older than its turn: it waits since what it was deferred for was over. That is looked
# up for the first thousand in line, the runs that are oldest.
_LANES = """
SELECT l.tenant_id, l.workspace_id, l.weight, p.pending, o.oldest
FROM lanes l
CROSS JOIN LATERAL (
  SELECT count(*) AS pending FROM commands c
  WHERE c.tenant_id = l.tenant_id AND c.workspace_id = l.workspace_id AND c.kind = 'step' AND c.status = 'pending') p
CROSS JOIN LATERAL (
  SELECT extract(epoch FROM now() - min(since))::float8 AS oldest FROM (
    SELECT greatest(c.created_at, CASE WHEN NOT c.starts_run THEN r.started_at END,
      (SELECT max(w.completed_at) FROM waits w WHERE w.step_id = c.step_id)) AS since
    FROM (
      (SELECT * FROM commands c WHERE c.tenant_id = l.tenant_id AND c.workspace_id = l.workspace_id
        AND c.kind = 'step' AND c.status = 'pending' AND NOT c.starts_run ORDER BY c.command_id LIMIT 1000)
      UNION ALL
      (SELECT * FROM commands c WHERE c.tenant_id = l.tenant_id AND c.workspace_id = l.workspace_id
        AND c.kind = 'step' AND c.status = 'pending' AND c.starts_run ORDER BY c.command_id LIMIT 1)
    ) c JOIN runs r ON r.run_id = c.run_id) first) o
WHERE l.tenant_id = ANY ($1::text[]) ORDER BY l.tenant_id, l.workspace_id"""

_ADMITTED = """
SELECT tenant_id, workspace_id, count(*) AS count FROM commands
WHERE lease_expires_at IS NOT NULL AND kind = 'step' AND status IN ('leased', 'dispatched')
  AND tenant_id = ANY ($1::text[]) GROUP BY tenant_id, workspace_id"""

_RUNNING = """
SELECT s.tenant_id, r.workspace_id, count(*) AS count, count(*) FILTER (WHERE s.lease_expires_at < now()) AS abandoned
FROM steps s JOIN runs r ON r.run_id = s.run_id
WHERE s.status = 'running' AND s.tenant_id = ANY ($1::text[]) GROUP BY s.tenant_id, r.workspace_id"""

_PARKED = """
SELECT w.tenant_id, r.workspace_id, w.kind, count(*) AS count FROM waits w JOIN runs r ON r.run_id = w.run_id
WHERE w.status = 'waiting' AND w.tenant_id = ANY ($1::text[]) GROUP BY w.tenant_id, r.workspace_id, w.kind"""

_MESSAGES = """
SELECT tenant_id, kind, status, count(*) AS count, extract(epoch FROM now() - min(created_at))::float8 AS oldest FROM (
  SELECT tenant_id, kind, status, created_at FROM commands WHERE status = 'pending' AND kind <> 'step'
  UNION ALL
  SELECT tenant_id, kind, status, created_at FROM commands
  WHERE lease_expires_at IS NOT NULL AND status = 'leased' AND kind <> 'step'
  UNION ALL
  SELECT tenant_id, kind, status, created_at FROM commands WHERE status = 'failed') m
WHERE tenant_id = ANY ($1::text[]) GROUP BY tenant_id, kind, status ORDER BY tenant_id, kind, status"""


@dataclass(frozen=True, slots=True)
class LaneQueue:
    """One workspace. ``pending`` steps wait for their turn, ``admitted`` ones are at SQS, ``running`` ones are leased.

    ``abandoned`` of the running ones have a lease that is over: no keeper has looked since. ``parked`` counts open
    waits by kind. ``oldest_pending_seconds`` is how long the step that waits longest could have run; None if none does.
    """

    workspace: str
    weight: float
    pending: int
    oldest_pending_seconds: float | None
    admitted: int
    running: int
    abandoned: int
    parked: dict[str, int]


@dataclass(frozen=True, slots=True)
class CapQueue:
    """One workflow that has a cap of its own: its slots, how many are in use, and what stands in line for one."""

    workflow: str
    slots: int
    slots_used: int
    pending: int


@dataclass(frozen=True, slots=True)
class MessageQueue:
    """The messages of the outbox of one kind and status. ``oldest_seconds`` counts from when it was ordered."""

    kind: str
    status: str
    count: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class TenantQueue:
    """One tenant: its slots, its lanes, the caps of its workflows, its messages.

    ``starts_left`` is None where starts are not capped.
    """

    tenant: str
    weight: float
    slots: int
    slots_used: int
    max_runs_per_min: int | None
    starts_left: int | None
    lanes: tuple[LaneQueue, ...]
    caps: tuple[CapQueue, ...]
    messages: tuple[MessageQueue, ...]

    @property
    def steps(self) -> dict[str, int]:
        """How many steps of all lanes are pending, admitted, running."""
        names = ("pending", "admitted", "running")
        return {name: sum(getattr(lane, name) for lane in self.lanes) for name in names}

    @property
    def parked(self) -> dict[str, int]:
        """The open waits of all lanes, by kind."""
        found: dict[str, int] = defaultdict(int)
        for lane in self.lanes:
            for kind, count in lane.parked.items():
                found[kind] += count
        return dict(found)

    @property
    def oldest_pending_seconds(self) -> float | None:
        """See ``LaneQueue``, over all lanes."""
        ages = [lane.oldest_pending_seconds for lane in self.lanes if lane.oldest_pending_seconds is not None]
        return max(ages, default=None)


async def queues(connection: Connection, tenant: str | None = None) -> list[TenantQueue]:
    """Every tenant that the role may see, or the one named, in one snapshot: the first reads of a transaction."""
    await connection.execute(_SNAPSHOT)
    rows = await connection.fetch(_TENANTS, tenant)
    names = [row["tenant_id"] for row in rows]
    lanes = await _lanes(connection, names)
    caps, messages = defaultdict(list), defaultdict(list)
    for row in await connection.fetch(_CAPS, names):
        caps[row["tenant_id"]].append(CapQueue(row["cap"], row["slots"], row["used"], row["pending"]))
    for row in await connection.fetch(_MESSAGES, names):
        found = MessageQueue(row["kind"], row["status"], row["count"], max(0.0, row["oldest"]))
        messages[row["tenant_id"]].append(found)
    return [
        TenantQueue(
            row["tenant_id"],
            row["weight"],
            row["slots"],
            row["slots_used"],
            row["max_runs_per_min"],
            row["starts_left"],
            tuple(lanes[row["tenant_id"]]),
            tuple(caps[row["tenant_id"]]),
            tuple(messages[row["tenant_id"]]),
        )
        for row in rows
    ]


async def _lanes(connection: Connection, names: list[str]) -> defaultdict[str, list[LaneQueue]]:
    admitted = _by_lane(await connection.fetch(_ADMITTED, names))
    running = _by_lane(await connection.fetch(_RUNNING, names))
    parked: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for row in await connection.fetch(_PARKED, names):
        parked[row["tenant_id"], row["workspace_id"]][row["kind"]] = row["count"]
    found = defaultdict(list)
    for row in await connection.fetch(_LANES, names):
        key = row["tenant_id"], row["workspace_id"]
        found[row["tenant_id"]].append(
            LaneQueue(
                workspace=row["workspace_id"],
                weight=row["weight"],
                pending=row["pending"],
                oldest_pending_seconds=None if row["oldest"] is None else max(0.0, row["oldest"]),
                admitted=admitted[key]["count"] if key in admitted else 0,
                running=running[key]["count"] if key in running else 0,
                abandoned=running[key]["abandoned"] if key in running else 0,
                parked=dict(sorted(parked[key].items())),
            )
        )
    return found


def _by_lane(rows: Iterable[asyncpg.Record]) -> dict[tuple[str, str], asyncpg.Record]:
    return {(row["tenant_id"], row["workspace_id"]): row for row in rows}
