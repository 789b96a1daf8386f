"""What a commit's statement is made of: one ``Part`` for each table and kind of change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from runtime.kernel.commit import Commit


@dataclass(frozen=True, slots=True)
class Part:
    """One table's share of a commit: SQL with {0}, {1}, … for its parameters, and the values of one commit."""

    name: str
    sql: str
    parameters: Callable[[Commit], Sequence[object]]
    present: Callable[[Commit], bool]

    @property
    def cte(self) -> str:
        """Its name in the statement: never that of a table, which it would hide from the other parts."""
        return f"do_{self.name}"

    @property
    def count(self) -> int:
        """How many parameters the SQL takes."""
        return next(n for n in range(40) if f"{{{n}}}" not in self.sql)


def records(rows: Sequence[Any], *names: str) -> list[dict[str, object]]:
    """The named attributes of every row, for one parameter that ``json_to_recordset`` reads; durations in seconds.

    One parameter for a table is cheaper than an array for each column, on both sides. None is NULL, also for jsonb.
    For inserts only: the planner takes it for a hundred rows, and would rather read a small table whole than join it.
    """
    return [{name: _plain(getattr(row, name)) for name in names} for row in rows]


def columns(rows: Sequence[Any], *names: str) -> list[list[object]]:
    """One array for each attribute, as ``unnest`` wants them."""
    return [[getattr(row, name) for row in rows] for name in names]


def texts(rows: Sequence[Any], *names: str) -> list[list[str | None]]:
    """As ``columns``, for attributes that are stored as jsonb."""
    return [[_as_json(getattr(row, name)) for row in rows] for name in names]


def _as_json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _plain(value: object) -> object:
    return value.total_seconds() if type(value) is timedelta else value
