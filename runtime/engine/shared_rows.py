"""Rows that runs share: effects that several of them mean by one key (Q-15), and a tenant's records."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject
from runtime.engine.states import EffectState


class RecordRow(Struct, frozen=True):
    """A change of a tenant's record. ``absent`` says that there must be none yet, ``expects`` which version it has."""

    collection: str
    key: str
    value: JsonObject | None
    absent: bool = False
    expects: int | None = None
    removes: bool = False


class EffectRow(Struct, frozen=True):
    """A shared effect that this run performs, as others have to know it. ``was`` is the receipt that held the key.

    ``wait_id`` is the wait for the end of what goes on outside, where it does.
    """

    key: str
    step_key: str
    receipt_id: UUID
    status: EffectState
    was: UUID | None
    wait_id: UUID | None = None


class ShareRow(Struct, frozen=True):
    """An effect that another step performed and this run took over: its end is awaited by the wait of this id."""

    key: str
    receipt_id: UUID
    status: EffectState
    wait_id: UUID


class JoinRow(Struct, frozen=True):
    """An effect under way for whose end a step begins to wait: the append is refused if it has ended since."""

    key: str
    receipt_id: UUID
