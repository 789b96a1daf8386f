"""Helpers of tests/runtime that several test files share: from test_durable."""

from __future__ import annotations

from uuid import UUID, uuid5


def correlation(run_id: UUID) -> str:
    return str(uuid5(run_id, "external:case"))
