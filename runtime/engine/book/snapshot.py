"""Snapshots of a folded run: loading replays only the lines after the last one. Pure.

The stored run is a cache; the book stays the truth. Its keyed digest stands in the last line of its append (``KEPT``),
and is compared when the run is read again. The chain's head before that append is stored with it: from there on the
chain is checked. So only an append that is guarded by the version may store a run.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from msgspec.structs import asdict

from evidence.chain import ChainHead
from runtime.engine.book.plan import WINDOW
from runtime.engine.model.agent_state import Spoken
from runtime.engine.model.graph import Window
from runtime.engine.model.rows import ApprovalMove, ApprovalRow, ReceiptRow, StepRow, VoteRow, WaitRow
from runtime.engine.model.run import Run, State
from runtime.engine.model.states import RunState, StepState, WaitKind, WaitState

# So many appends may lie between the stored run and the end of the book.
EVERY = 64

_FACTS = (
    "superstep", "executing", "width", "writes", "reference", "requested_by", "canceling", "checkpointed", "extensions",
    "paused", "reopened", "held_open",
)  # fmt: skip
# Facts that few runs have.
_SELDOM = (
    "origins", "copied", "refused", "asked", "same", "retried_by", "failures", "adders", "requester", "started_by",
)  # fmt: skip
_ROWS: Mapping[str, tuple[type[Any], str]] = {
    "steps": (StepRow, "key"),
    "waits": (WaitRow, "wait_id"),
    "approvals": (ApprovalRow, "approval_id"),
    "answers": (ApprovalMove, "approval_id"),
    "receipts": (ReceiptRow, "receipt_id"),
}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "UUID": UUID,
    "StepState": StepState,
    "WaitKind": WaitKind,
    "WaitState": WaitState,
    "datetime": datetime.fromisoformat,
    "tuple[JsonObject, ...]": tuple,
    "tuple[str, ...]": tuple,
    "timedelta": lambda value: timedelta(seconds=value),
}


def pack(run: Run, before: ChainHead) -> bytes:
    """A rested run as JSON, to be stored. Left out: its trigger, and all items of loops but the next ones."""
    whole: dict[str, Any] = {name: getattr(run, name) for name in _FACTS}
    whole |= {name: value for name in _SELDOM if (value := getattr(run, name))}
    whole |= {name: [asdict(row) for row in getattr(run, name).values()] for name in _ROWS}
    whole["votes"] = [asdict(vote) for vote in run.votes]
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


def unpack(kept: bytes, run_id: UUID, run_key: bytes) -> tuple[Run, ChainHead]:
    """Read what ``pack`` wrote. The trigger is not in it: the book's first line has it."""
    whole: dict[str, Any] = orjson.loads(kept)
    rows = {name: [_row(cls, row) for row in whole[name]] for name, (cls, _) in _ROWS.items()}
    keyed: dict[str, Any] = {name: {getattr(row, key): row for row in rows[name]} for name, (_, key) in _ROWS.items()}
    run = Run(
        run_id=run_id,
        run_key=run_key,
        status=RunState(whole["status"]),
        state=State.from_json(whole["state"]),
        votes=[_row(VoteRow, row) for row in whole["votes"]],
        spoken={row["key"]: _row(Spoken, row) for row in whole.get("spoken", ())},
        times={key: datetime.fromisoformat(at) for key, at in whole["times"].items()},
        windows={key: Window(start, tuple(items)) for key, (start, items) in whole["windows"].items()},
        **{name: whole[name] for name in (*_FACTS, *_SELDOM) if name in whole},
        **keyed,
    )
    return run, ChainHead(f"run:{run_id}", *whole["head"])


def _windows(run: Run) -> dict[str, tuple[int, list[Any]]]:
    found = {}
    for key, loop in run.state.loops.items():
        window = run.windows.get(key)
        if window is not None:
            first = max(loop.next, window.start)
            found[key] = (first, [*window.items[first - window.start :][:WINDOW]])
    return found


def _row(cls: Any, stored: Mapping[str, Any]) -> Any:
    read: dict[str, Any] = {}
    declared = ChainMap(*(vars(each).get("__annotations__", {}) for each in cls.__mro__))
    for name in [name for name in cls.__struct_fields__ if name in stored]:
        reader = _READERS.get(declared[name].removesuffix(" | None"))
        value = stored[name]
        read[name] = value if reader is None or value is None else reader(value)
    return cls(**read)


def _seconds(value: object) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    raise TypeError(f"{type(value).__name__} cannot be kept")
