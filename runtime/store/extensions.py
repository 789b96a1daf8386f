"""Extensions of running graphs, as their books tell them (V-6)."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from core.db import Connection
from evidence.events import EventType
from runtime.engine.commit import MutationRow
from runtime.engine.events import RunExtended
from runtime.engine.told import Told
from runtime.store import journal


async def of_run(connection: Connection, run_id: UUID, run_key: bytes, count: int) -> list[MutationRow]:
    """The first ``count`` extensions of a run, in their order. ``Diverged`` if one is not what was told."""
    return told_in(await journal.of_type(connection, run_id, run_key, EventType.RUN_EXTENDED))[:count]


def told_in(told: Iterable[Told]) -> list[MutationRow]:
    """The extensions among these events."""
    return [
        MutationRow(each.event.number, each.actor.id, each.event.source, each.event.operations)
        for each in told
        if isinstance(each.event, RunExtended)
    ]
