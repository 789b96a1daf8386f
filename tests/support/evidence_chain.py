"""Helpers of tests/evidence that several test files share: from test_chain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from evidence.chain import Actor, Event, EventType

AT = datetime(2026, 11, 21, 10, 30, 0, 123456, tzinfo=UTC)


KEEPER = Actor("keeper", "k1")


WORKFLOW = {"name": "w", "version": 1, "digest": "0" * 64}


def opened(**data: Any) -> Event:
    return Event(EventType.RUN_OPENED, KEEPER, AT, {"workflow": WORKFLOW, **data})
