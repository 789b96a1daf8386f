"""Searches a tenant's runs for auditors: a bounded number at a time, by an index whose first column is the tenant.

The statement names the tenant, and row-level security restricts it to that tenant as well (promise 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from core.db import Connection
from runtime.store.read_models import FIRST_TIME, LAST_ID, LAST_TIME, Row, every
from runtime.store.statements import statements

_SQL = statements("searching")
_SCAN = _SQL["scan"]
# The key of the last run that was read: its beginning and its id.
Place: TypeAlias = tuple[datetime, UUID]
NEWEST: Place = (LAST_TIME, LAST_ID)


class Narrowed(Struct, frozen=True):
    """The part of a search that columns can answer. ``texts`` name the requester; ``lines`` occur in the run's lines.

    ``outcome`` is the status of one of the run's questions; the times bound the run's beginning, or the vote.
    """

    reference: str | None = None
    workflow: str | None = None
    requester: str | None = None
    texts: Sequence[str] = ()
    voter: str | None = None
    since: datetime = FIRST_TIME
    until: datetime = LAST_TIME
    outcome: str | None = None
    lines: Sequence[bytes] = ()


async def scan(connection: Connection, tenant: str, wanted: Narrowed, after: Place, limit: int) -> list[Row]:
    """The next runs, newest first; a false ``fits`` rules a run out. Fewer rows than ``limit`` are the last ones."""
    # Whoever voted in a period may have done so on a run that began before it.
    begun = FIRST_TIME if wanted.voter is not None else wanted.since
    given = (wanted.reference, wanted.workflow, wanted.requester, [*wanted.texts], wanted.voter)
    times = (wanted.since, wanted.until, wanted.outcome, [*wanted.lines])
    return await every(connection, _SCAN, tenant, *after, begun, limit, *given, *times)
