"""Counts steps in line, steps under way and waits, by tenant and lane, for operators.

Each statement uses an index of open rows, so its cost does not grow with the number of ended ones. The metrics pass a
bound, which limits the cost further. Under the faces' role, row-level security shows one tenant only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from core.db import Connection
from runtime.store.statements import statements

_SQL = statements("queue_reads")
_SNAPSHOT = _SQL["snapshot"]
_TENANTS = _SQL["tenants"]
_CAPS = _SQL["caps"]
_LANES = _SQL["lanes"]
_HELD = _SQL["held"]
_PARKED = _SQL["parked"]
_PARKED_NEWEST = _SQL["parked_newest"]
_MESSAGES = _SQL["messages"]
_QUESTIONS = _SQL["questions"]
_LEAVES = _SQL["leaves"]
# The most questions whose lines are read: more than people answer in a day.
QUESTIONS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LaneQueue:
    """One workspace. ``pending`` steps wait for their turn, ``admitted`` ones are at SQS, ``running`` ones are leased.

    ``abandoned`` counts running steps whose lease is over, and which no keeper has found yet. ``parked`` counts open
    waits by kind. ``oldest_pending_seconds`` is the time for which the oldest pending step has been ready; None if none
    is.
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
    """The messages of one kind and status in the outbox. ``oldest_seconds`` counts from the order of the oldest one."""

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
        """The numbers of pending, admitted and running steps of all lanes."""
        names = ("pending", "admitted", "running")
        return {name: sum(getattr(lane, name) for lane in self.lanes) for name in names}

    @property
    def parked(self) -> dict[str, int]:
        """The open waits of all lanes, by kind."""
        return dict(sum((Counter(lane.parked) for lane in self.lanes), Counter()))

    @property
    def oldest_pending_seconds(self) -> float | None:
        """The longest ``oldest_pending_seconds`` of all lanes."""
        return max((age for lane in self.lanes if (age := lane.oldest_pending_seconds) is not None), default=None)


@dataclass(frozen=True, slots=True)
class Standing:
    """The number of open questions of a kind, or of leaves of the log in a state, and the age of the oldest."""

    name: str
    count: int
    oldest_seconds: float


async def standing(connection: Connection, tenant: str, most: int) -> tuple[list[Standing], list[Standing]]:
    """Count the open questions of a tenant by kind, and the leaves of its log that wait for a keeper or a signer."""
    asked = await connection.fetch(_QUESTIONS, tenant, min(most, QUESTIONS_MAX))
    leaves = await connection.fetch(_LEAVES, tenant, most)
    questions, waiting = (
        [Standing(name, count, max(0.0, age or 0.0)) for name, count, age in rows] for rows in (asked, leaves)
    )
    return questions, waiting


async def queues(connection: Connection, tenant: str | None = None, most: int | None = None) -> list[TenantQueue]:
    """Read the queues of every tenant that the role sees, or of the named one. It must come first in its transaction.

    So all reads are of one snapshot. ``most`` bounds the rows that are counted of each kind; parked steps are counted
    among the newest ``most`` runs.
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
