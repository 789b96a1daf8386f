"""Collects the evidence of a period: all leaves, the runs that began in it, and the tenant's own lines.

Requesters and deciders are read from each run's book, not from columns of its row; the log has the book's head.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import NotFoundError
from evidence.chain import Actor
from evidence.events import EventType
from evidence.log import periods
from evidence.log.leaves import Leaf, LeafKind
from evidence.log.notes import Note
from evidence.receipts import ReceiptStatus
from runtime.engine.book.recorded import unpack_values
from runtime.store import audit, logs

_SETTLED = {
    EventType.ACTION_SUCCEEDED: "succeeded",
    EventType.ACTION_FAILED: "failed",
    EventType.ACTION_IN_DOUBT: "in doubt",
    EventType.ACTION_HELD: "held",
}
_COLUMNS = (
    "number", "run", "workflow", "version", "reference", "requested_by", "opened", "closed", "status", "decided",
    "changed",
)  # fmt: skip


async def collect(
    database: Database, tenant: str, since: datetime, until: datetime, draw: tuple[str, int], actor: Actor
) -> dict[str, bytes]:
    """The files of the period, by name; ``draw`` is the seed and the size of the sample. The export is audited.

    ``NotFoundError`` if nobody has signed the log. A crash leaves no event, and nothing was handed out.
    """
    first, last = periods.bounds(since, until)
    async with database.connection() as connection:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            note = await logs.checkpoint(connection, tenant)
            if note is None:
                raise NotFoundError("The tenant's log has no checkpoint.", remedy="Run `counterseal log sign`.")
            size = int(Note.parse(note).text.split("\n")[1])
            every = [leaf async for place, leaf in logs.leaves(connection, tenant) if place < size]
            opened = [leaf for leaf in every if leaf.kind is LeafKind.OPENED and first <= _ts(leaf) < last]
            runs = [await _run(connection, leaf) for leaf in opened]
            places = [leaf.count - 1 for leaf in every if leaf.kind is LeafKind.TOLD and first <= _ts(leaf) < last]
            lines = await logs.lines(connection, tenant, sorted(places))
        facts: JsonObject = {"what": "period", "since": first, "until": last, "runs": len(runs)}
        async with connection.transaction():
            await audit.record(connection, tenant, EventType.EVIDENCE_EXPORTED, actor, facts)
    seed, count = draw
    sample = periods.sampled([str(run["run"]) for run in runs], seed, count)
    summary = {"tenant": tenant, "since": first, "until": last, "runs": len(runs), "lines": len(lines), "leaves": size}
    return {
        periods.LEAVES: b"".join(leaf.bytes + b"\n" for leaf in every),
        periods.CHECKPOINT: note,
        periods.RUNS: _json(runs),
        "runs.csv": table(runs, _COLUMNS),
        periods.EVENTS: b"".join(line + b"\n" for line in lines),
        periods.SAMPLE: _json({"seed": seed, "runs": sample}),
        periods.SUMMARY: _json(summary),
    }


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """The rows as CSV. The members of a list are joined in one cell. No cell can be read as a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if isinstance(value, list):
        value = "; ".join(" ".join(str(each) for each in one.values() if each is not None) for one in value)
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _ts(leaf: Leaf) -> str:
    return periods.bounds(leaf.at, leaf.at)[0]


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


async def _run(connection: Connection, leaf: Leaf) -> dict[str, Any]:
    """A run's facts by its book, as far as its values are kept."""
    assert leaf.run is not None, "it is of a run"
    events = await events_of(connection, UUID(leaf.run))
    found: dict[str, Any] = {
        "number": leaf.number, "run": leaf.run, "workflow": None, "version": None, "reference": None,
        "requested_by": None, "opened": _ts(leaf), "closed": None, "status": "missing: its book was deleted",
        "lines": len(events), "head": None, "decided": [], "changed": [],
    }  # fmt: skip
    if not events:
        return found
    found["head"], found["status"] = await logs.head(connection, UUID(leaf.run)), "open"
    changed = dict[str, dict[str, Any]]()
    for event in events:
        kind, data = event["type"], event["data"]
        if kind == EventType.RUN_OPENED:
            found |= {"workflow": data["workflow"]["name"], "version": data["workflow"]["version"]}
            found |= {name: data.get(name) for name in ("reference", "requested_by")}
        elif kind == EventType.RUN_CLOSED:
            found |= {"closed": event["ts"], "status": data["status"]}
        elif kind == EventType.RUN_REOPENED:
            found |= {"closed": None, "status": "open"}
        elif kind == EventType.APPROVAL_VOTED:
            found["decided"].append({"who": event["actor"]["id"], "choice": data["choice"], "at": event["ts"]})
        elif kind == EventType.ACTION_INTENDED:
            before = changed.get(data["receipt"], {})
            target = data.get("target") or before.get("target")
            changed[data["receipt"]] = {
                "operation": data["operation"], "target": target, "status": str(ReceiptStatus.INTENDED),
                "at": event["ts"], "receipt": data["receipt"],
            }  # fmt: skip
        elif kind in _SETTLED and data["receipt"] in changed:
            changed[data["receipt"]] |= {"status": _SETTLED[EventType(kind)], "at": event["ts"]}
    found["changed"] = [*changed.values()]
    return found


async def events_of(connection: Connection, run: UUID) -> list[dict[str, Any]]:
    """The parsed events of a run's book, each with its kept values in ``data``."""
    found = list[dict[str, Any]]()
    for lines, values in await logs.book_and_values(connection, run):
        private = unpack_values(values)
        for number, line in enumerate(lines):
            event = orjson.loads(line)
            event["data"] = {**private.get(number, {}), **event["data"]}
            found.append(event)
    return found
