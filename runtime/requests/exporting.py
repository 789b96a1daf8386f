"""Exports the audit (of runs and of the tenant's own stream) in the order of the tenant's log, from a cursor on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct

from core.canonical import JsonObject
from core.db import Connection
from evidence import ocsf
from evidence.chain import Actor
from evidence.events import EventType
from evidence.log.leaves import Leaf
from runtime.store import audit, books, logs, streams

WHAT = "ocsf"
LEAVES_MAX = 1000


class Exported(Struct, frozen=True):
    """Events in the order of the log; ``next`` is the place of the leaf with which the next export begins."""

    events: Sequence[JsonObject]
    next: int


async def export(
    connection: Connection, tenant: str, actor: Actor, product: str, first: int, leaves_max: int = LEAVES_MAX
) -> Exported:
    """Export the events that up to ``leaves_max`` leaves from ``first`` on have added. The export is audited.

    ``Diverged`` if a stream is not what was written, ``NotFoundError`` if a logged run is missing: then nothing is
    handed out. A crash before the commit leaves no event. The caller moves its cursor once the events are stored: after
    a crash before that they are exported again, each with the same ``metadata.uid``.
    """
    events, following, page = list[JsonObject](), first, list[Leaf]()
    async for place, leaf in logs.leaves(connection, tenant, first):
        if place >= first + leaves_max:
            break
        page.append(leaf)
        following = place + 1
    counts = await logs.counted(connection, tenant, first, {leaf.run for leaf in page if leaf.run is not None})
    known: dict[str | None, Sequence[JsonObject]] = {}
    for leaf in page:
        before = counts.get(leaf.run, 0)
        counts[leaf.run] = max(before, leaf.count)
        if leaf.count <= before:
            continue
        if leaf.run not in known:
            known[leaf.run] = await _events(connection, tenant, product, leaf.run)
        events += known[leaf.run][before : leaf.count]
    if any(not _is_own(event) for event in events):
        facts: JsonObject = {"what": WHAT, "leaves": [first, following], "events": len(events)}
        await audit.record(connection, tenant, EventType.EVIDENCE_EXPORTED, actor, facts)
    return Exported(events, following)


async def _events(connection: Connection, tenant: str, product: str, run: str | None) -> Sequence[JsonObject]:
    """All events of a run's stream, or of the tenant's own."""
    if run is not None:
        lines = [orjson.loads(line) for line in await books.lines(connection, tenant, UUID(run))]
        return [*ocsf.events(f"run:{run}", tenant, product, lines)]
    stream = await streams.read(connection, tenant)
    return [*ocsf.events(f"tenant:{tenant}", tenant, product, map(_line, stream.events))]


def _line(event: Mapping[str, Any]) -> JsonObject:
    return {name: event[name] for name in ("v", "ts", "type", "actor", "step", "data")}


def _is_own(event: Mapping[str, Any]) -> bool:
    """True for the event of an earlier export. An export of only such events is not audited: it would never end."""
    return event["message"] == EventType.EVIDENCE_EXPORTED and f'"what":"{WHAT}"' in event["raw_data"]
