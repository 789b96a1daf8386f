"""Rows that runs share: effects that several runs know by one key (Q-15), and a tenant's records."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject
from runtime.engine.states import EffectState


class RecordRow(Struct, frozen=True):
    """A change of a tenant's record. ``absent``: it must not exist yet. ``expects``: the version that it must have.

    ``shaped`` are the marks of its writers, who are handed on to every step that reads it.
    """

    collection: str
    key: str
    value: JsonObject | None
    absent: bool = False
    expects: int | None = None
    removes: bool = False
    shaped: tuple[str, ...] = ()


class EffectRow(Struct, frozen=True):
    """A shared effect that this run performs, as other runs see it. ``was`` is the receipt that held the key before.

    ``wait_id`` is the wait for its end, if it goes on outside.
    """

    key: str
    step_key: str
    receipt_id: UUID
    status: EffectState
    was: UUID | None
    wait_id: UUID | None = None


class ShareRow(Struct, frozen=True):
    """An effect that another step performed and this run took over. ``wait_id`` is this run's wait for its end."""

    key: str
    receipt_id: UUID
    status: EffectState
    wait_id: UUID


class JoinRow(Struct, frozen=True):
    """An effect under way whose end a step begins to wait for. The append is refused if that end has come since."""

    key: str
    receipt_id: UUID
