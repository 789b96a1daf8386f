"""Reads held steps: a hold is a wait, and its row says where the message about it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from approvals.ports import MessageRef, Posted
from core.db import Connection
from core.errors import NotFoundError
from runtime.engine.model.states import WaitState
from runtime.store.statements import statements

_SQL = statements("holds")
_READ = _SQL["read"]
_SHOWN = _SQL["shown"]


class StoredHold(Struct, frozen=True):
    """A hold with what its message needs. ``choice``, ``by`` and ``reason`` are the answer, "" for none.

    ``doubtful``: nobody knows whether the step's action happened. ``over``: its run has ended, or it needs no answer
    any more.
    """

    wait_id: UUID
    tenant_id: str
    run_id: UUID
    step: str
    group: str
    workflow: str
    reference: str
    open: bool
    choice: str
    by: str
    reason: str
    doubtful: bool
    message: MessageRef | None
    created_at: datetime


async def read(connection: Connection, wait_id: UUID) -> StoredHold:
    """One hold; ``NotFoundError`` if there is none that this connection may see."""
    row = await connection.fetchrow(_READ, wait_id)
    if row is None:
        raise NotFoundError(f"There is no held step {wait_id}.")
    wait: Any = row["wait"]
    context, result = wait["context"] or {}, wait["result"] or {}
    return StoredHold(
        wait_id=wait_id,
        tenant_id=wait["tenant_id"],
        run_id=UUID(wait["run_id"]),
        step=wait["step_key"],
        group=str(context.get("group") or ""),
        workflow=row["workflow"],
        reference=row["reference"] or "",
        open=wait["status"] == WaitState.WAITING,
        choice=str(result.get("choice") or ""),
        by=row["by"] or str(result.get("by") or "").removeprefix("person:"),
        reason=str(result.get("reason") or ""),
        doubtful=context.get("doubtful") is True,
        message=MessageRef(wait["channel"], wait["message_ts"]) if wait["message_ts"] else None,
        created_at=row["created_at"],
    )


async def shown(connection: Connection, wait_id: UUID, posted: Posted) -> None:
    """Store the place of the message about a held step."""
    await connection.execute(_SHOWN, wait_id, posted.ref.channel, posted.ref.ts)
