"""A connection that notes every statement with its values, and answers with rows that were made up for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any


class Row:
    """A row like asyncpg's: its columns by name and by place; whoever goes through it gets the values."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns

    def __getitem__(self, key: str | int) -> Any:
        return list(self._columns.values())[key] if isinstance(key, int) else self._columns[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._columns.values())

    def __len__(self) -> int:
        return len(self._columns)

    def keys(self) -> Sequence[str]:
        return list(self._columns)

    def values(self) -> Sequence[Any]:
        return list(self._columns.values())

    def items(self) -> Sequence[tuple[str, Any]]:
        return list(self._columns.items())


class Asked:
    """The connection. ``answers`` are given one after the other: rows, a row or None, a value, or a tag."""

    def __init__(self, *answers: Any) -> None:
        self.told: list[Any] = []
        self._answers = [*answers]

    async def _next(self, statement: str, *values: Any) -> Any:
        self.told.append((statement, *values))
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    fetchrow = fetchval = execute = _next

    async def fetch(self, statement: str, *values: Any) -> Any:
        return await self._next(statement, *values) or []

    @asynccontextmanager
    async def transaction(self, tenant: str) -> Any:
        """Note whose transaction it is."""
        self.told.append(f"of {tenant}")
        yield self
