"""Rows that no single run's book holds, against all books together (promises 4 and 6).

Counters of families, rejections that bind, times of the latest lines, what became of approved actions, cards, writers
of records: each must be what the books fold to, whatever crashed while it was written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import orjson

from core.db import Connection, Database
from runtime.definition.catalog import Definitions
from runtime.engine.book import ends
from runtime.engine.model.run import Run
from runtime.requests.views import folded
from runtime.store import books
from tests.support.asking import asking

_RUNS = """
SELECT run_id, tenant_id, root_run_id AS root, parent_run_id AS parent, trigger_type, trigger_ref, last_at,
  (SELECT string_agg(lines, '\n'::bytea ORDER BY n) FROM journal j WHERE j.run_id = r.run_id) AS lines
FROM runs r WHERE purged_at IS NULL ORDER BY created_at"""
_FAMILIES = "SELECT root_run_id AS root, writes, refused, asked, same, failed, anew FROM families"
_REFUSALS = "SELECT approval_id FROM refusals JOIN runs USING (run_id) WHERE purged_at IS NULL"
_APPROVALS = "SELECT approval_id, run_id, status, outcome, why, message_ts, card FROM approvals"
_RECORDS = "SELECT collection, key, shaped FROM records WHERE shaped IS NULL"


async def wrong_beside(database: Database, definitions: Definitions) -> list[str]:
    """Say what of these rows is not what the books say. A family of which a run was purged is left out."""
    async with asking(database) as connection:
        rows = {row["run_id"]: row for row in await connection.fetch(_RUNS)}
        runs = {UUID(int=key.int): await _run(connection, definitions, row) for key, row in rows.items()}
        families = [dict(row) for row in await connection.fetch(_FAMILIES)]
        approvals = [dict(row) for row in await connection.fetch(_APPROVALS)]
        refused = {row["approval_id"] for row in await connection.fetch(_REFUSALS)}
        unmarked = [row["key"] for row in await connection.fetch(_RECORDS)]
    return [
        *_wrong_families(rows, runs, families),
        *_wrong_times(rows),
        *(f"the rejection {one} binds nothing" for one in _rejections(runs.values()) - refused),
        *(f"nothing tells of the rejection {one}" for one in refused - _rejections(runs.values())),
        *(problem for row in approvals if (run := runs.get(row["run_id"])) for problem in _wrong_end(run, row)),
        *(f"the record {key} names no writer" for key in unmarked),
    ]


async def _run(connection: Connection, definitions: Definitions, row: Mapping[str, Any]) -> Run:
    book = await books.read(connection, row["tenant_id"], row["run_id"])
    return (await folded(connection, definitions, book)).run


def _wrong_families(
    rows: Mapping[UUID, Mapping[str, Any]], runs: Mapping[UUID, Run], families: list[dict[str, Any]]
) -> Iterator[str]:
    members = defaultdict[UUID, list[Run]](list)
    for key, row in rows.items():
        if row["root"] is not None:
            members[row["root"]].append(runs[key])
        elif row["parent"] is not None:
            yield f"the run {key} was started by another, and has no outermost run"
    if {row["root"] for row in families if row["root"] in rows} != {root for root in members if root in rows}:
        yield "a family without counters, or counters without a family"
    for row in families:
        within = members[row["root"]]
        found = {name: sum(getattr(run, name) for run in within) for name in ("writes", "refused", "asked")}
        found["same"] = {}
        for run in within:
            for call, keys in run.same.items():
                known = {*found["same"].get(call, ()), *(f"{run.run_id}:{key}" for key in keys)}
                found["same"][call] = sorted(known)
        found["anew"] = sum(run.begun_anew for run in within)
        told = {(key, one["run"], one["approval"]) for key, many in row["failed"].items() for one in many}
        if not told <= {(key, str(run.run_id), one["approval"]) for run in within for key, many in run.failures.items()
                        for one in many}:  # fmt: skip
            yield f"the family {row['root']} counts failures that none of its runs has"
        if found != {name: row[name] for name in found}:
            yield f"the counters of the family {row['root']}: {row}, and its runs count {found}"


def _wrong_times(rows: Mapping[UUID, Mapping[str, Any]]) -> Iterator[str]:
    for key, row in rows.items():
        told = max(orjson.loads(line)["ts"] for line in row["lines"].split(b"\n"))
        if row["last_at"] is not None and f"{row['last_at']:%Y-%m-%dT%H:%M:%S.%fZ}" != told:
            yield f"the latest line of {key} is of {told}, and its row says {row['last_at']}"


def _rejections(runs: Any) -> set[UUID]:
    return {
        key
        for run in runs
        for key, answer in run.answers.items()
        if answer.status == "rejected" and run.approvals[key].key and run.approvals[key].kind != "in_doubt"
    }


def _wrong_end(run: Run, row: Mapping[str, Any]) -> Iterator[str]:
    end = ends.end_of(run, row["approval_id"])
    if row["status"] == "approved" and end is not None:
        stored, told = (row["outcome"] or "recorded", row["why"] or ""), (str(end.state), end.code)
        if stored != told:
            yield f"the approval {row['approval_id']} ended as {told}, and its row says {stored}"
    if row["message_ts"] is not None and row["card"] is None:
        yield f"the card of {row['approval_id']} is posted, and nothing says how"
