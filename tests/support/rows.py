"""Rows written by hand, for tests that ask what a statement of the store finds among them.

They are of no book, so a test that writes them is marked ``tampers``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.support.asking import Source, owning

_RUN = {
    "workspace_id": "main", "workflow": "w", "workflow_version": 1, "workflow_digest": "d", "trigger_type": "test",
    "reference": "r", "requested_by": "ann", "status": "waiting",
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "runs": _RUN,
    "waits": {"step_id": UUID(int=0), "step_key": "s", "kind": "signal", "status": "waiting", "token": ""},
    "approvals": {"n": 1, "step_key": "s", "expires_at": datetime(2099, 1, 1, tzinfo=UTC), "status": "requested"},
    "commands": {"kind": "card", "payload": {}, "status": "pending"},
    "bundles": {"name": "b", "uri": "u", "sha256": "0", "bytes": 1, "key_id": "k"},
    "queue": {
        "step_key": "s", "workspace_id": "main", "cap": "", "starts_run": False, "status": "claimable", "epoch": 0,
        "step_id": UUID(int=0),
    },
    "effects": {"step_key": "s", "receipt_id": UUID(int=0), "status": "begun"},
    "inbox": {"source": "signal", "payload": {"said": "it"}},
    "journal": {"first_seq": 0, "lines": b"{}"},
    "votes": {"choice": "approve", "reason": "yes", "groups": ["g"], "channel": "cli"},
}  # fmt: skip


def uid(number: int) -> UUID:
    """The id of this number."""
    return UUID(int=number)


def ago(**span: float) -> datetime:
    """The time so long ago."""
    return datetime.now(UTC) - timedelta(**span)


async def put(source: Source, table: str, tenant: str, /, **columns: Any) -> None:
    """Write a row of a tenant as it is given. No trigger looks at it; ids may be numbers."""
    row = {"tenant_id": tenant, **_DEFAULTS.get(table, {}), **columns}
    row = {
        name: uid(value) if name.endswith("_id") and isinstance(value, int) else value for name, value in row.items()
    }
    places = ", ".join(f"${number + 1}" for number in range(len(row)))
    async with owning(source) as connection:
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", *row.values())


async def put_run(source: Source, tenant: str, number: int, /, **columns: Any) -> None:
    """Write the row of a run with this number."""
    await put(source, "runs", tenant, **{"run_id": number, "trigger_ref": str(number), **columns})


async def read(source: Source, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Read rows as the engine does."""
    async with owning(source) as connection:
        return [tuple(row) for row in await connection.fetch(sql, *parameters)]


async def change(source: Source, sql: str, *parameters: Any) -> None:
    """Change rows by hand; no trigger looks at it."""
    async with owning(source) as connection:
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(sql, *parameters)
