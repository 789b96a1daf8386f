"""Counts steps in line, steps under way and waits, by tenant and lane, for operators.

Each statement uses an index of what is open, so its cost does not grow with what is over. The metrics read with a
bound, which limits the cost further. Under the faces' role, row-level security shows one tenant, whatever is asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from core.db import Connection
from runtime.store.claims import STARTS_LEFT, STARTS_LEFT_OF_CAP

# The newest rows are read in the order of their index, whatever the statistics say: sorting would read all.
_SNAPSHOT = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_material = off"""

# ``starts_left`` is what is left of this minute's starts: it reads the token bucket of claims, and takes nothing.
_TENANTS = f"""
SELECT t.tenant_id AS tenant, t.weight, t.max_concurrency AS slots,
  (SELECT count(*) FROM queue q WHERE q.tenant_id = t.tenant_id AND q.status <> 'claimable') AS slots_used,
  t.max_runs_per_min, floor({STARTS_LEFT})::int AS starts_left
FROM tenants t WHERE $1::text IS NULL OR t.tenant_id = $1 ORDER BY t.tenant_id"""

_CAPS = f"""
SELECT c.tenant_id, c.cap, c.slots,
  (SELECT count(*) FROM queue q WHERE q.tenant_id = c.tenant_id AND q.cap = c.cap AND q.status <> 'claimable') AS used,
  (SELECT count(*) FROM (SELECT FROM queue q
    WHERE q.tenant_id = c.tenant_id AND q.cap = c.cap AND q.status = 'claimable' LIMIT $2) p) AS pending,
  c.max_runs_per_min, floor({STARTS_LEFT_OF_CAP})::int AS starts_left
FROM caps c WHERE c.tenant_id = ANY ($1::text[]) ORDER BY 1, 2"""

_LANES = """
SELECT w.tenant_id, w.workspace_id, w.weight, p.pending, p.oldest
FROM workspaces w
CROSS JOIN LATERAL (
  SELECT count(*) AS pending, extract(epoch FROM now() - min(q.created_at))::float8 AS oldest FROM (
    SELECT q.created_at FROM queue q
    WHERE q.tenant_id = w.tenant_id AND q.workspace_id = w.workspace_id AND q.status = 'claimable' LIMIT $2) q) p
WHERE w.tenant_id = ANY ($1::text[]) ORDER BY w.tenant_id, w.workspace_id"""

_HELD = """
SELECT tenant_id, workspace_id, count(*) FILTER (WHERE status = 'sent') AS admitted,
  count(*) FILTER (WHERE status = 'leased') AS running,
  count(*) FILTER (WHERE status = 'leased' AND expires_at < now()) AS abandoned
FROM queue WHERE status <> 'claimable' AND tenant_id = ANY ($1::text[]) GROUP BY tenant_id, workspace_id"""

_PARKED = """
SELECT w.tenant_id, r.workspace_id, w.kind, count(*) AS count FROM waits w JOIN runs r ON r.run_id = w.run_id
WHERE w.status = 'waiting' AND w.tenant_id = ANY ($1::text[]) GROUP BY w.tenant_id, r.workspace_id, w.kind"""
_PARKED_NEWEST = """
SELECT r.tenant_id, r.workspace_id, w.kind, count(*) AS count FROM unnest($1::text[]) t(tenant_id) CROSS JOIN LATERAL (
  SELECT r.run_id, r.tenant_id, r.workspace_id FROM runs r WHERE r.tenant_id = t.tenant_id
  ORDER BY r.created_at DESC, r.run_id DESC LIMIT $2) r
JOIN waits w ON w.run_id = r.run_id AND w.status = 'waiting' GROUP BY r.tenant_id, r.workspace_id, w.kind"""

_MESSAGES = """
SELECT tenant_id, kind, status, count(*) AS count, extract(epoch FROM now() - min(created_at))::float8 AS oldest FROM (
  (SELECT * FROM commands WHERE status = 'pending' AND tenant_id = ANY ($1::text[]) LIMIT $2)
  UNION ALL
  (SELECT * FROM commands WHERE status = 'leased' AND tenant_id = ANY ($1::text[]) LIMIT $2)
  UNION ALL
  (SELECT * FROM commands WHERE status = 'failed' AND tenant_id = ANY ($1::text[]) LIMIT $2)) m
GROUP BY tenant_id, kind, status ORDER BY tenant_id, kind, status"""


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
    """One workflow that has a cap of its own: its slots, how many are in use, and how many steps are in line for one.

    ``slots``, or ``max_runs_per_min`` and ``starts_left``, are None if only the tenant caps them.
    """

    workflow: str
    slots: int | None
    slots_used: int
    pending: int
    max_runs_per_min: int | None = None
    starts_left: int | None = None


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

    ``starts_left`` is None if starts are not capped.
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
        """The numbers of steps of all lanes that are pending, admitted, running."""
        names = ("pending", "admitted", "running")
        return {name: sum(getattr(lane, name) for lane in self.lanes) for name in names}

    @property
    def parked(self) -> dict[str, int]:
        """The open waits of all lanes, by kind."""
        return dict(sum((Counter(lane.parked) for lane in self.lanes), Counter()))

    @property
    def oldest_pending_seconds(self) -> float | None:
        """See ``LaneQueue``, over all lanes."""
        return max((age for lane in self.lanes if (age := lane.oldest_pending_seconds) is not None), default=None)


async def queues(connection: Connection, tenant: str | None = None, most: int | None = None) -> list[TenantQueue]:
    """Every tenant that the role may see, or the one named, in one snapshot: the first reads of a transaction.

    ``most`` bounds the rows that are counted of each kind; parked steps are counted among the newest ``most`` runs.
    """
    await connection.execute(_SNAPSHOT)
    rows = await connection.fetch(_TENANTS, tenant)
    names = [row["tenant"] for row in rows]
    lanes = await _lanes(connection, names, most)
    caps, messages = defaultdict(list), defaultdict(list)
    for row in await connection.fetch(_CAPS, names, most):
        caps[row["tenant_id"]].append(CapQueue(*list(row.values())[1:]))
    for row in await connection.fetch(_MESSAGES, names, most):
        found = MessageQueue(row["kind"], row["status"], row["count"], max(0.0, row["oldest"]))
        messages[row["tenant_id"]].append(found)
    return [TenantQueue(*row, *(tuple(many[row["tenant"]]) for many in (lanes, caps, messages))) for row in rows]


async def _lanes(connection: Connection, names: list[str], most: int | None) -> defaultdict[str, list[LaneQueue]]:
    held = {(tenant, workspace): counts for tenant, workspace, *counts in await connection.fetch(_HELD, names)}
    parked: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    waiting = (_PARKED, names) if most is None else (_PARKED_NEWEST, names, most)
    for row in await connection.fetch(*waiting):
        parked[row["tenant_id"], row["workspace_id"]][row["kind"]] = row["count"]
    found = defaultdict(list)
    for row in await connection.fetch(_LANES, names, most):
        tenant, workspace, weight, pending, age = row
        admitted, running, abandoned = held.get((tenant, workspace), (0, 0, 0))
        waits = dict(sorted(parked[tenant, workspace].items()))
        oldest = None if age is None else max(0.0, age)
        found[tenant].append(LaneQueue(workspace, weight, pending, oldest, admitted, running, abandoned, waits))
    return found
