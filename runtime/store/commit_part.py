"""What a commit's statement is made of: one ``Part`` for each table and kind of change."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson

from runtime.engine.commit import Commit


@dataclass(frozen=True, slots=True)
class Part:
    """One table's share of a commit: SQL with {0}, {1}, … for its parameters, and their values.

    The statement may be of several commits, of one run each: every row names its run, or is found by it, and is written
    only if the guard of that run holds. A part that is ``alone`` cannot do so, or is too rare for a statement that has
    every part.
    """

    name: str
    sql: str
    parameters: Callable[[Sequence[Commit]], Sequence[object]]
    present: Callable[[Commit], bool]
    alone: bool = False

    @property
    def cte(self) -> str:
        """Its name in the statement: never that of a table, which it would hide from the other parts."""
        return f"do_{self.name}"

    @property
    def count(self) -> int:
        """How many parameters the SQL takes."""
        return len(self.types)

    @property
    def types(self) -> list[str]:
        """The types of the parameters, as the SQL says them."""
        found = re.findall(r"(json_to_recordset\()?\{(\d)\}(?:::(\w+(?:\[\])?))?", self.sql)
        said = {int(number): cast or ("json" if records_ else "") for records_, number, cast in found}
        return [said[number] for number in sorted(said)]


def records(commits: Sequence[Commit], rows: str, *names: str) -> list[dict[str, object]]:
    """Every row of the commits' lists of this name, for one parameter that ``json_to_recordset`` reads.

    A row has its ``run`` and the named attributes; durations are in seconds, None is NULL, also for jsonb. One
    parameter for a table is cheaper than an array for each column, on both sides. For inserts only: the planner takes
    it for a hundred rows, and would rather read a small table whole than join it.
    """
    return [
        {"run": commit.run_id, **{name: _plain(getattr(row, name)) for name in names}}
        for commit in commits
        for row in getattr(commit, rows)
    ]


def runs(commits: Sequence[Commit], rows: str) -> list[UUID]:
    """The run of every row of the commits' list of this name."""
    return [commit.run_id for commit in commits for _ in getattr(commit, rows)]


def columns(commits: Sequence[Commit], rows: str, *names: str) -> list[list[object]]:
    """One array for each attribute of these rows, as ``unnest`` wants them."""
    every: list[Any] = [row for commit in commits for row in getattr(commit, rows)]
    return [[getattr(row, name) for row in every] for name in names]


def texts(commits: Sequence[Commit], rows: str, *names: str) -> list[list[str | None]]:
    """As ``columns``, for attributes that are stored as jsonb."""
    every: list[Any] = [row for commit in commits for row in getattr(commit, rows)]
    return [[_as_json(getattr(row, name)) for row in every] for name in names]


def _as_json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _plain(value: object) -> object:
    return value.total_seconds() if type(value) is timedelta else value
