"""Counts the steps that executed at the same time, from the audit alone: no cap may ever be exceeded.

An execution opens with ``step.started`` and closes with the event that ends its lease. A run's chain orders its own
events; between runs we compare times, which all come from the one database's clock. The first event of an execution is
stamped after its slot was taken. The last event may be stamped too late, by up to the error of the clock. So an
execution counts only from ``blur`` after its first event; executions that overlap then did overlap. If an end and a
beginning have the same time, the end came first: the slot was handed on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from core.db import Database
from evidence.events import EventType
from runtime.store import journal

_CLOSES = frozenset(
    str(kind)
    for kind in (
        EventType.STEP_SUCCEEDED,
        EventType.STEP_FAILED,
        EventType.STEP_PARKED,
        EventType.STEP_RETRY_SCHEDULED,
        EventType.LEASE_EXPIRED,
    )
)


@dataclass(frozen=True, slots=True)
class Execution:
    """One lease of one step. ``closed`` is None while it executes."""

    tenant: str
    workflow: str
    run: UUID
    step: str
    opened: datetime
    closed: datetime | None


@dataclass(frozen=True, slots=True)
class Crowd:
    """The most executions at one time: their number, since when, and which."""

    count: int
    at: datetime | None
    who: tuple[Execution, ...]


def executions(tenant: str, run: UUID, lines: Iterable[bytes]) -> list[Execution]:
    """Every execution of a run, from the lines of its chain in their order.

    A step that ends because its run is canceled has no end event: it ends with the last event that names it.
    """
    found: list[Execution] = []
    workflow, canceled = "", False
    opened: dict[str, datetime] = {}
    last: dict[str, datetime] = {}

    def close(step: str, at: datetime | None) -> None:
        found.append(Execution(tenant, workflow, run, step, opened.pop(step), at))

    for event in map(orjson.loads, lines):
        kind, step, at = event["type"], event["step"], datetime.fromisoformat(event["ts"])
        if step is not None:
            last[step] = at
        if kind == EventType.RUN_OPENED:
            workflow = event["data"]["workflow"]["name"]
        elif kind == EventType.STEP_STARTED:
            opened[step] = at
        elif kind in _CLOSES and step in opened:
            close(step, at)
        elif kind == EventType.RUN_CANCELED:
            canceled = True
        elif kind == EventType.RUN_CLOSED:
            for left in list(opened):
                close(left, last[left] if canceled else at)
    for left in list(opened):
        close(left, last[left] if canceled else None)
    return found


def most_at_once(found: Iterable[Execution], blur: timedelta = timedelta(0)) -> Crowd:
    """The instant with the most executions. An execution counts only from ``blur`` after its first event."""
    moves: list[tuple[datetime, int, int]] = []
    known = list(found)
    for number, one in enumerate(known):
        begins = one.opened + blur
        if one.closed is not None and one.closed <= begins:
            continue
        moves.append((begins, 1, number))
        if one.closed is not None:
            moves.append((one.closed, 0, number))
    inside: set[int] = set()
    most = Crowd(0, None, ())
    for at, opens, number in sorted(moves):
        if opens:
            inside.add(number)
            if len(inside) > most.count:
                most = Crowd(len(inside), at, tuple(known[other] for other in sorted(inside)))
        else:
            inside.discard(number)
    return most


def exceeded(
    found: Sequence[Execution],
    caps: Mapping[Any, int],
    key: Callable[[Execution], Any] = lambda one: one.tenant,
    blur: timedelta = timedelta(0),
) -> list[str]:
    """Every cap that was exceeded at any instant, in words; ``key`` gives the cap that an execution is under."""
    words = []
    for name, cap in caps.items():
        crowd = most_at_once((one for one in found if key(one) == name), blur)
        if crowd.count > cap:
            which = ", ".join(f"{one.run}/{one.step}" for one in crowd.who)
            words.append(f"{crowd.count} steps of {name} executed at once at {crowd.at}, and the cap is {cap}: {which}")
    return words


def turns(found: Iterable[Execution]) -> list[Execution]:
    """The executions, ordered by their beginning."""
    return sorted(found, key=lambda one: one.opened)


async def recorded(database: Database, runs: Iterable[tuple[str, UUID]]) -> list[Execution]:
    """Every execution of these runs (tenant and id), from their audit. Needs the engine's role."""
    found: list[Execution] = []
    for tenant, run in runs:
        async with database.transaction() as connection:
            lines = await journal.lines(connection, run)
        found += executions(tenant, run, lines)
    return found


def counts(found: Iterable[Execution]) -> Counter[str]:
    """The number of executions of each tenant."""
    return Counter(one.tenant for one in found)
