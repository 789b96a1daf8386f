"""The journal: a run's book, one row for each append (promise 6). Written by the append itself; see ``commits``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from msgspec import Struct

from core.canonical import Json, JsonObject
from core.db import Connection
from evidence.events import EventType
from runtime.engine.book.recorded import Told, check_stored, read_line, unpack_values

# The events that tell what a call has used.
_USING = (EventType.STEP_SUCCEEDED, EventType.STEP_FAILED, EventType.STEP_RETRY_SCHEDULED)
_LINES = "SELECT lines FROM journal WHERE run_id = $1 ORDER BY n"
_OPENED = """
SELECT w.id, min(j.n) AS n FROM unnest($2::uuid[]) w(id)
JOIN journal j ON j.run_id = $1 AND position(convert_to(w.id::text, 'UTF8') IN j.lines) > 0 GROUP BY w.id"""
_WITH = """
SELECT n, first_seq, lines, vals FROM journal
WHERE run_id = $1 AND n > $3 AND position($2::bytea IN lines) > 0 ORDER BY n"""

_ABOVE = """
WITH RECURSIVE above AS (
  SELECT r.run_id, r.tenant_id, r.run_key, r.parent_run_id FROM runs r WHERE r.run_id = $1
  UNION SELECT r.run_id, r.tenant_id, r.run_key, r.parent_run_id
  FROM above JOIN runs r ON r.run_id = above.parent_run_id AND r.tenant_id = above.tenant_id)
SELECT run_id, run_key FROM above"""

_USED = """
WITH RECURSIVE within AS (
  SELECT r.run_id, r.tenant_id FROM runs r WHERE r.run_id = $1
  UNION SELECT r.run_id, r.tenant_id
  FROM within JOIN runs r ON r.parent_run_id = within.run_id AND r.tenant_id = within.tenant_id)
SELECT j.lines FROM within JOIN journal j USING (run_id)
WHERE position('"usage":{'::bytea IN j.lines) > 0 OR position('"agent.answered"'::bytea IN j.lines) > 0
ORDER BY j.run_id, j.n"""

# The appends of the run in ``{0}`` that ``{1}`` chooses.
TAIL = """LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j WHERE j.run_id = {0}.run_id AND ({1})) tail ON true"""
# All appends from the one whose state is kept, and the first append, which tells the trigger.
KEPT_ON = "j.n >= {0}.state_n OR j.n = 1"

# The row of a run: what a view of it is made of.
RUN_ROW = """(SELECT row_to_json(x) FROM (SELECT {0}.run_id, {0}.tenant_id, {0}.workspace_id, {0}.workflow,
    {0}.workflow_version, {0}.workflow_digest, {0}.trigger_type, {0}.status, {0}.version, {0}.gate, {0}.executing,
    {0}.extensions, {0}.audit_count, {0}.audit_head, {0}.state_n, {0}.deadline_at, {0}.parent_run_id, {0}.depth,
    {0}.purged_at, {0}.last_at, CASE WHEN {0}.root_run_id IS NOT NULL THEN (
      SELECT row_to_json(f) FROM families f WHERE f.root_run_id = {0}.root_run_id) END AS family) x) AS run"""
# The columns of the tenant ``t`` that decisions need, and their types.
OF_TENANT = "t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused"
OF_TENANT_TYPES = "policy_digests text[], directory_digest text, max_writes_per_run int, stop_number int, paused jsonb"
# Lock in a statement of its own, so that the read sees what was committed while we waited for the lock.
LOCKED = """
  IF _lock THEN
    PERFORM FROM runs WHERE run_id = {0} FOR UPDATE;
  END IF;
  RETURN QUERY {1};"""


class Append(Struct, frozen=True, dict=True):
    """One append: its lines, the place of the first, and their values as they are stored."""

    first_seq: int
    lines: Sequence[bytes]
    stored: bytes | None

    @cached_property
    def values(self) -> Mapping[int, JsonObject]:
        """The values of the lines, by their number in the append."""
        return unpack_values(self.stored)

    def told(self, run_key: bytes, *, each: bool = False) -> Iterator[Told]:
        """The events of the append. ``Diverged`` if its values are not those that were told.

        ``each`` also checks what each line commits to, value by value.
        """
        if not each:
            check_stored(self.lines[-1], self.stored, run_key)
        for number, line in enumerate(self.lines):
            yield read_line(line, self.values.get(number, {}), run_key, self.first_seq + number, verify=each)
        if each:  # last, because a line says more precisely what was altered
            check_stored(self.lines[-1], self.stored, run_key)


def appends(firsts: Sequence[int], lines: Sequence[bytes], vals: Sequence[bytes | None]) -> list[Append]:
    """The appends of a run, from the columns of its rows."""
    columns = zip(firsts, lines, vals, strict=True)
    return [Append(first, told.split(b"\n"), values) for first, told, values in columns]


async def of_type(connection: Connection, run_id: UUID, run_key: bytes, kind: EventType) -> list[Told]:
    """All events of one type. Only the appends that have one are read."""
    rows = await connection.fetch(_WITH, run_id, f'"type":"{kind}"'.encode(), 0)
    found = appends(*(([row[name] for row in rows]) for name in ("first_seq", "lines", "vals")))
    return [told for append in found for told in append.told(run_key) if told.event.TYPE is kind]


async def of_step(
    connection: Connection, run_id: UUID, run_key: bytes, key: str, *, after: int = 0
) -> tuple[int, list[Told]]:
    """All events of a step in appends after this one; of an agent also those of its turns and calls.

    Returned with the number of the last of these appends.
    """
    rows = await connection.fetch(_WITH, run_id, f'"step":"{key}'.encode(), after)
    found = appends(*(([row[name] for row in rows]) for name in ("first_seq", "lines", "vals")))
    told = [each for append in found for each in append.told(run_key)]
    own = [each for each in told if each.step == key or (each.step or "").startswith(f"{key}/")]
    return rows[-1]["n"] if rows else after, own


async def of_others(
    connection: Connection, run_id: UUID, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], list[Told]]:
    """All events of these agents (run and key), which are of this run or of runs above it, as far as they are kept."""
    if not wanted:
        return {}
    above = {str(row["run_id"]): row["run_key"] for row in await connection.fetch(_ABOVE, run_id)}
    found = [at for at in wanted if above.get(at[0])]
    return {at: (await of_step(connection, UUID(at[0]), above[at[0]], at[1]))[1] for at in found}


async def used(connection: Connection, run_id: UUID) -> tuple[list[Json], int]:
    """Read what each turn of models has used in a run and the runs within it, and the calls that were made there."""
    rows = await connection.fetch(_USED, run_id)
    lines: list[dict[str, Any]] = [json.loads(line) for row in rows for line in row["lines"].split(b"\n")]
    said = [line["data"] for line in lines if line["type"] in _USING]
    calls = [call for line in lines if line["type"] == EventType.AGENT_ANSWERED for call in line["data"]["calls"]]
    return [data["usage"] for data in said if data.get("usage")], sum(not code for _, code in calls)


async def opened(connection: Connection, run_id: UUID, waits: Sequence[UUID]) -> dict[UUID, int]:
    """The number of the append that opened each wait: the first that names it. It is the run's version by then."""
    return {UUID(str(row["id"])): row["n"] for row in await connection.fetch(_OPENED, run_id, waits)}


async def lines(connection: Connection, run_id: UUID) -> list[bytes]:
    """The audit lines of a run."""
    return [line for row in await connection.fetch(_LINES, run_id) for line in row["lines"].split(b"\n")]
