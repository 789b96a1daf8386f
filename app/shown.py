"""The words in which runs, approvals, tasks and evidence are shown, the same over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from msgspec import structs

from app.faces import Faces
from approvals.content import CardContent
from approvals.model import CardView, TaskAnswer, TaskState
from core.canonical import JsonObject, sha256_hex
from core.errors import ConsistencyError, CountersealError, NotFoundError
from evidence import layout
from evidence.blobs import StoredBlob
from evidence.chain import Actor, EventType
from evidence.container import read_predicate
from evidence.receipts import ReceiptStatus
from runtime.engine.life.forking import Preview
from runtime.engine.model.states import RunState
from runtime.requests.signaling import SignalAnswer, SignalCode
from runtime.requests.views import Seen
from runtime.store import approvals, audit, inbox, read_models
from runtime.store.read_models import Row
from runtime.store.tasks import StoredTask

log = structlog.get_logger(__name__)

ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED_TERMINAL, RunState.CANCELED})
_SAID = ("person", "name", "said", "text", "at", "to")
_SHOWN = (
    *(
        "approval_id",
        "run_id",
        "kind",
        "status",
        "tier",
        "requester",
        "choice",
        "reason",
        "outcome",
        "why",
        "delivered",
        "card_problem",
    ),
    *("created_at", "expires_at", "decided_at"),
)


# The outcome of a signal. A kept signal goes only to a run that exists now, unless nobody has ever waited for its key.
_SIGNALED: Mapping[SignalCode, str] = {
    SignalCode.DELIVERED: "It ended the wait at step {step} of run {run_id}.",
    SignalCode.KEPT: "Nobody waits for {key!r} now. The signal is kept for {days} days, and goes to {whom}. If that is "
    "not what you meant, compare the key with those that `counterseal run waits RUN` shows.",
    SignalCode.ENDED: "What this signal is for has ended already. It was recorded, and changes nothing.",
    SignalCode.STALE: "No wait for {key!r} has this token, or was opened at this version. It was recorded, and changes "
    "nothing. `counterseal run waits RUN` shows them.",
    SignalCode.DUPLICATE: "The same was said before, without an `id`: it is taken for a repetition, and ends no wait. "
    "Another wait is open; to end that one, say it with an `id` of its own.",
    SignalCode.EXPIRED: "It was kept for {days} days, and nothing has waited for it. To say it anew, give it another "
    "`id`.",
}
_ANYBODY = (
    "the first wait for this key; if a run that is over has waited for it, only to one of a run that was there already"
)


def signal_sentence(answer: SignalAnswer, key: str) -> str:
    """The outcome of a signal that was sent to ``key``, in words."""
    receiver = _ANYBODY if answer.run_id is None else f"run {answer.run_id} alone, once it waits for this key"
    fields = structs.asdict(answer)
    return _SIGNALED[answer.code].format(**fields, key=key, whom=receiver, days=inbox.KEPT_FOR.days)


async def run_row(faces: Faces, tenant: str, run_id: UUID, see: str = "") -> Row:
    """The run; ``NotFoundError`` if the tenant has none of this id."""
    row = await faces.ask(tenant, read_models.run, run_id)
    if row is None:
        raise NotFoundError(f"There is no run {run_id}.", remedy=see)
    return row


def run_state(row: Row, seen: Seen) -> dict[str, Any]:
    """The business state of a run at its last checkpoint, and the number of failures that branches have handled."""
    handled = seen.handled if row["status"] == RunState.SUCCEEDED else 0
    return {"channels": seen.channels, "checkpoint": seen.last, "failures_handled": handled}


def fork_summary(found: Preview) -> dict[str, Any]:
    """The point at which a fork begins, the steps that it takes over, and those that it may do again."""
    parts = {"done": found.done, "again": found.again}
    listed = {name: [{"step": step, "operation": what} for step, what in part] for name, part in parts.items()}
    return {"line": found.line, "checkpoint": found.checkpoint, **listed}


async def effects_of(faces: Faces, tenant: str, run_id: UUID) -> list[dict[str, Any]] | None:
    """The effects that a run has had, each with a flag for whether it can be reversed.

    None if its book or its workflow cannot be read any more: such a run is canceled all the same.
    """
    try:
        seen = await faces.reader.at(tenant, run_id)
    except CountersealError as problem:
        log.warning("what a canceled run has done cannot be listed", run=str(run_id), problem=str(problem))
        return None
    return [
        {
            **{name: row[name] for name in ("receipt_id", "step_key", "operation")},
            "summary": attempted(row)["summary"],
            "reversible": row["reverse"] is not None,
        }
        for row in seen.receipts
        if row["status"] == ReceiptStatus.SUCCEEDED and row["attempt"]
    ]


def attempted(receipt: Row) -> dict[str, Any]:
    """A receipt's action without its values: these are in the book, and a bundle discloses them."""
    action = receipt["action"]
    inputs = sorted(action.get("input") or {})
    facts = {name: action.get(name) for name in ("decision", "approval", "grant")}
    return {"summary": action.get("summary") or "", "inputs": inputs, **facts}


async def exported(faces: Faces, tenant: str, actor: Actor, row: Row) -> bytes:
    """Record the export, then return the bundle's bytes. Errors as for ``fetched``: then nothing is recorded."""
    data = await fetched(faces, tenant, row)
    facts: JsonObject = {"run": str(row["run_id"]), "sha256": row["sha256"]}
    await faces.ask(tenant, audit.record, EventType.EVIDENCE_EXPORTED, actor, facts)
    return data


async def values_exported(faces: Faces, tenant: str, actor: Actor, row: Row, data: bytes) -> bytes | None:
    """Record the export of a bundle's values, then return its sidecar. Errors and None as for ``values_of``."""
    found = await values_of(faces, tenant, row, data)
    if found is not None:
        facts: JsonObject = {"run": str(row["run_id"]), "what": "values", "sha256": sha256_hex(found)}
        await faces.ask(tenant, audit.record, EventType.EVIDENCE_EXPORTED, actor, facts)
    return found


async def values_of(faces: Faces, tenant: str, row: Row, data: bytes) -> bytes | None:
    """The sidecar that a bundle names; None if it names none, or if retention has erased it.

    ``ConsistencyError`` if it was changed, or is gone although nothing erased it.
    """
    named = read_predicate(data)[layout.SIDECAR]
    if named is None or row["purged_at"] is not None:
        return None
    store = await faces.blobs(tenant)
    try:
        # The digest is checked: if somebody writes another version over the sidecar, it is not handed out.
        return await store.get(StoredBlob(row["uri"] + layout.VALUES, None, str(named)))
    except NotFoundError:
        words = f"The values of {row['name']} are gone from the store, and no retention has erased them."
        raise ConsistencyError(words, remedy="Somebody has deleted them: look for a backup of the store.") from None


async def fetched(faces: Faces, tenant: str, row: Row) -> bytes:
    """The bundle's bytes. ``ConsistencyError`` if it is not the one of this run, tenant and number of lines.

    Otherwise somebody who may write a row could make it name another run's bundle.
    """
    store = await faces.blobs(tenant)
    data = await store.get(StoredBlob(row["uri"], row["version_id"], row["sha256"]))
    if len(data) != row["bytes"]:
        raise ConsistencyError(f"{row['uri']} does not have the length that was recorded.")
    claimed, asked = {**read_predicate(data)}, {"tenant": tenant, "run": str(row["run_id"]), "count": row["lines"]}
    claimed.pop(layout.SIDECAR)
    asked["head"] = row["audit_head"] if row["lines"] == row["audit_count"] else claimed["head"]
    if claimed != asked or row["lines"] > row["audit_count"]:
        words = f"{row['uri']} is not the evidence of run {row['run_id']} as it is kept, but says {dict(claimed)}."
        raise ConsistencyError(words, remedy="Somebody has changed what is stored: compare it with a backup.")
    return data


def approval_summary(row: Row, *, whole: bool = False) -> dict[str, Any]:
    """An approval as lists show it."""
    content = CardContent.from_json(row["card"])
    shown = content if whole else content.masked()
    return {
        **{name: row[name] for name in _SHOWN},
        "step": row["step_key"],
        "digest": row["action_digest"],
        "masked": bool(content.sensitive) and not whole,
        "card": shown.to_json(),
    }


async def approval_detail(
    faces: Faces, tenant: str, approval_id: UUID, person: str | None, remedy: str = ""
) -> dict[str, Any]:
    """An approval with its votes and the action's outcome, as far as the person may see it.

    ``NotFoundError`` if there is none of this id.
    """
    row = await faces.ask(tenant, approvals.approval, approval_id)
    if row is None:
        raise NotFoundError(f"There is no approval {approval_id}.", remedy=remedy)
    view = await faces.voting.view(tenant, approval_id)
    whole = person is not None and await may_see_all(faces, tenant, person, view)
    return {
        **approval_summary(row, whole=whole),
        "state": str(view.state),
        "detail": view.detail,
        "late": view.late,
        "paused": view.paused,
        "two_person": view.two_person,
        "step_up_seconds": view.step_up,
        "votes": [
            {"person": v.voter, **{name: getattr(v, name) for name in ("name", "choice", "reason", "channel", "at")}}
            for v in view.votes
        ],
        "said": [{name: getattr(one, name) for name in _SAID} for one in view.remarks],
        "progress": [
            {"group": p.group.group, "source": str(p.group.source), "of": p.group.of, "names": list(p.names)}
            for p in view.progress
        ],
    }


async def may_see_all(faces: Faces, tenant: str, person_id: str, view: CardView) -> bool:
    """True if the person is in a group that this question asks, and therefore may see sensitive values."""
    wanted = [item.group for item in view.progress]
    return bool((await faces.directory(tenant).membership(person_id, wanted)).groups)


def task_faults(answer: TaskAnswer) -> list[dict[str, str]]:
    """The faults of a value, field by field; `where` is "" for the whole value."""
    return [{"where": one.where, "message": one.message, "remedy": one.remedy} for one in answer.problems]


def task_summary(task: StoredTask) -> dict[str, Any]:
    """A task as lists show it."""
    view = task.view
    names = ("task_id", "step", "workflow", "workflow_version", "reference", "title", "group", "state")
    return {
        **{name: getattr(view, name) for name in names},
        "run_id": task.run_id,
        "created_at": task.created_at,
        "due_at": datetime.fromisoformat(view.due_at) if view.due_at else None,
        "completed_by": view.completed_by or None,
    }


def task_detail(task: StoredTask) -> dict[str, Any]:
    """A task as it is shown alone."""
    return {
        **task_summary(task),
        "description": task.view.description,
        "form": task.view.form,
        "value": task.value if task.view.state is TaskState.COMPLETED else None,
    }
