"""The journal: a run's book, one row for each append (promise 6). Written by the append itself; see ``commits``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.canonical import JsonObject
from core.db import Connection
from runtime.kernel.told import Told, read_line, unpack_values

_READ = "SELECT n, first_seq, lines, vals FROM journal WHERE tenant_id = $1 AND run_id = $2 ORDER BY n"
_LINES = "SELECT lines FROM journal WHERE run_id = $1 ORDER BY n"


@dataclass(frozen=True, slots=True)
class Append:
    """One append: the version of the run that it made, and its lines with their values by place."""

    n: int
    first_seq: int
    lines: Sequence[bytes]
    values: Mapping[int, JsonObject]

    def told(self, run_key: bytes) -> Iterator[Told]:
        """The events of the append. ``Diverged`` if a value is not the one that its line commits to."""
        for number, line in enumerate(self.lines):
            yield read_line(line, self.values.get(self.first_seq + number, {}), run_key)


async def read(connection: Connection, tenant: str, run_id: UUID) -> list[Append]:
    """The appends of a run, in their order."""
    return [_append(row) for row in await connection.fetch(_READ, tenant, run_id)]


async def lines(connection: Connection, run_id: UUID) -> list[bytes]:
    """The audit lines of a run."""
    return [line for row in await connection.fetch(_LINES, run_id) for line in row["lines"].split(b"\n")]


def _append(row: Any) -> Append:
    return Append(row["n"], row["first_seq"], row["lines"].split(b"\n"), unpack_values(row["vals"]))
