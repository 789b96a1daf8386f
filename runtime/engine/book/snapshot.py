"""Snapshots of a folded run: loading replays only the lines after the last one. Pure.

The stored run is a cache; the book stays the truth. The keyed digest of the stored run is in the last line of its
append (``KEPT``), and is compared when the run is read. The head of the chain before that append is stored with it, and
the chain is checked from there. So only an append that is guarded by the version may store a run.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
from msgspec import ValidationError, convert
from msgspec.structs import asdict

from core.errors import ConsistencyError
from evidence.chain import ChainHead
from runtime.engine.book.plan import WINDOW
from runtime.engine.model.run import Run

# The number of appends after which the folded run is stored again.
EVERY = 64

_FACTS = (
    "superstep", "executing", "width", "writes", "reference", "requested_by", "canceling", "checkpointed", "extensions",
    "paused", "reopened", "held_open",
)  # fmt: skip
# Fields that few runs have: they are left out if empty.
_SELDOM = (
    "origins", "copied", "refused", "asked", "same", "retried_by", "failures", "adders", "requester", "started_by",
    "tried", "tried_by", "edits",
)  # fmt: skip
# The fields of a run that hold rows, each with the column that is the key of its rows.
_ROWS = {
    "steps": "key", "waits": "wait_id", "approvals": "approval_id", "answers": "approval_id", "receipts": "receipt_id",
}  # fmt: skip
# Fields that are durations, stored as seconds.
_SPANS = ("eligible_in", "due_in", "expires_in")


def pack(run: Run, before: ChainHead) -> bytes:
    """Write a rested run as JSON, without its trigger, and with only the next items of its loops."""
    whole: dict[str, Any] = {name: getattr(run, name) for name in _FACTS}
    whole |= {name: value for name in _SELDOM if (value := getattr(run, name))}
    whole |= {name: [asdict(row) for row in getattr(run, name).values()] for name in _ROWS}
    votes = (asdict(vote) for vote in run.votes)
    whole["votes"] = [{name: value for name, value in vote.items() if value is not None} for vote in votes]
    if run.said:
        whole["said"] = [asdict(one) for one in run.said]
    if run.grants:
        whole["grants"] = [asdict(one) for one in run.grants.values()]
    if run.spoken:
        whole["spoken"] = [asdict(one) for one in run.spoken.values()]
    whole |= {
        "head": [before.count, before.hash],
        "status": str(run.status),
        "state": run.state.to_json(),
        "windows": _windows(run),
        "times": run.times,
    }
    return orjson.dumps(whole, default=_seconds)


def unpack(packed: bytes, run_id: UUID, run_key: bytes) -> tuple[Run, ChainHead]:
    """Read what ``pack`` wrote. The trigger is not in it: the book's first line has it."""
    whole: dict[str, Any] = orjson.loads(packed)
    head = ChainHead(f"run:{run_id}", *whole.pop("head"))
    for name, key in _ROWS.items():
        whole[name] = {row[key]: _spanned(row) for row in whole[name]}
    whole["grants"] = {row["grant_id"]: row for row in whole.get("grants", ())}
    whole["spoken"] = {row["key"]: row for row in whole.get("spoken", ())}
    whole["windows"] = {key: {"start": start, "items": items} for key, (start, items) in whole["windows"].items()}
    try:
        return convert({**whole, "run_id": run_id, "run_key": run_key}, Run, str_keys=True), head
    except ValidationError as error:
        raise ConsistencyError(f"the kept state of run {run_id} cannot be read: {error}") from None


def _windows(run: Run) -> dict[str, tuple[int, list[Any]]]:
    found = {}
    for key, loop in run.state.loops.items():
        window = run.windows.get(key)
        if window is not None:
            first = max(loop.next, window.start)
            found[key] = (first, [*window.items[first - window.start :][:WINDOW]])
    return found


def _spanned(row: dict[str, Any]) -> dict[str, Any]:
    spans = {name: timedelta(seconds=row[name]) for name in _SPANS if row.get(name) is not None}
    return {**row, **spans} if spans else row


def _seconds(value: object) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{type(value).__name__} cannot be kept")
