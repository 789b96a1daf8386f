"""Applies commits: one call of the database's function ``append``, which does all of a commit or nothing of it.

``functions/append.sql`` says what it compares, what it writes and in which order it locks. A part that a commit does
not have costs one comparison. Commits of different runs may share a statement, which calls the function for each. A
commit whose guard fails is left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import structlog
from msgspec.structs import asdict

from core import tracing
from core.canonical import Json
from core.db import Connection, after_commit
from core.grouping import Call, called
from runtime.engine.model.rows import Commit
from runtime.engine.model.states import WaitKind
from runtime.store import audit
from runtime.store.records import RecordRefused
from runtime.store.statements import statements

log = structlog.get_logger(__name__)

# The seconds between two warnings about a clock that has gone back: every append of every run meets it.
_SAY_SECONDS = 30.0
_SAID: dict[str, float] = {}

STEPS_CHANNEL = "counterseal_steps"
MESSAGES_CHANNEL = "counterseal_messages"

# The SQLSTATE of a refused record (the part ``records``): the statement is rolled back, and its commit with it.
REFUSED_RECORD = "CS001"

# The parts of a commit whose rows are found by keys (queue, waits, commands, shared effects, approvals, votes), with
# the columns that the function takes. A part without columns is sent as it is.
PARTS: Mapping[str, tuple[str, ...]] = {
    "cancels_rest": (),
    "requeued": (),
    "waits": ("wait_id", "status", "context", "result", "due_in", "parked"),
    "approvals": ("approval_id", "status", "choice", "reason", "consumed", "escalated", "outcome", "why"),
    "effects": ("key", "step_key", "receipt_id", "status", "was", "wait_id"),
    "sealed": (),
    "shares": ("key", "receipt_id", "status", "wait_id"),
    "joins": ("key", "receipt_id"),
    "new_waits": (
        "wait_id", "step_id", "step_key", "kind", "status", "token", "context", "due_in", "correlation_key", "parked",
    ),
    "new_approvals": ("approval_id", "step_key", "status", "expires_in", "asker", "listed"),
    "votes": ("approval_id", "person_id", "choice", "reason", "groups", "channel", "on_behalf", "glass"),
    "refusals": ("approval_id", "key", "groups", "askers", "by", "reason", "holds"),
    "commands": ("command_id", "kind", "status", "payload", "ordering_key"),
    "records": ("collection", "key", "value", "absent", "expects", "removes", "shaped"),
    "ledger": ("channel", "superstep", "step_key", "value"),
    "queued": ("key", "step_id", "epoch", "starts_run"),
}  # fmt: skip

_SQL = statements("commits")
_APPEND = _SQL["append"]
_LANDED = _SQL["landed"]


class Applied(NamedTuple):
    """The run's version after an append, and the number of steps of its super-step that still execute."""

    version: int
    executing: int


async def apply(connection: Connection, commit: Commit) -> Applied | None:
    """Apply all of a commit or nothing: None if the run, or the tenant's policy, has changed since it was read.

    ``RecordRefused`` if a record is not as the commit expects it.

    After a crash before this returns, the commit is applied or not; both are consistent, and the expired lease is
    found.
    """
    try:
        found = await connection.fetchval(_APPEND, *sent(commit, engine=True))
    except asyncpg.PostgresError as error:
        if error.sqlstate != REFUSED_RECORD:
            raise
        raise RecordRefused("A record is not as the step expects it.") from None
    if found and (commit.notices or commit.clock_behind or tracing.watchers):  # else nobody would hear of it
        after_commit(connection, partial(say, commit))
    return Applied(*found) if found else None


async def landed(connection: Connection, commit: Commit) -> bool:
    """True if a commit was applied although its answer was lost: its lines, which are unique, are in the book."""
    if not commit.lines:
        return False
    lines = b"\n".join(commit.lines)
    return bool(await connection.fetchval(_LANDED, commit.run_id, commit.expected_version, lines))


def say(commit: Commit) -> None:
    """Write a commit's facts into the log, and now and then a warning that a clock went back.

    A crash before this loses these lines of the log; the book has all facts.
    """
    for notice in commit.notices:
        audit.say(notice, tenant=commit.tenant_id, run=str(commit.run_id))
    for watcher in tracing.watchers:
        watcher.appended(_appended(commit))
    now = time.monotonic()
    if commit.clock_behind and now >= _SAID.get("next", 0.0):
        _SAID["next"] = now + _SAY_SECONDS
        words = "the database's clock has gone back; lines keep the latest time of their book until it has caught up"
        log.warning(words, run=str(commit.run_id), seconds=round(commit.clock_behind.total_seconds()))


def _appended(commit: Commit) -> tracing.Appended:
    about = (commit.tenant_id, commit.run_id, commit.lines, commit.asked_at, tracing.INBOUND.get())
    return tracing.Appended(*about)


def can_go_together(commit: Commit) -> bool:
    """True if this commit may share a statement with those of other runs: its run's lock is the last that it waits for.

    A commit that changes records goes alone, because a refused record rolls the whole statement back.
    """
    rows = commit.effects or commit.shares or commit.joins or commit.records
    return not (rows or commit.family or commit.cancels_rest or commit.requeued)


async def apply_together(connection: Connection, commits: Sequence[Commit]) -> dict[UUID, Applied]:
    """Apply commits of different runs; return ``Applied`` for each run whose commit was applied.

    An error of any commit means that nothing was applied.
    """
    calls = [Call("append", sent(commit, engine=True), ("", str(commit.run_id))) for commit in commits]
    landed = await called(connection, calls)
    made = {commit.run_id: Applied(*found) for commit, found in zip(commits, landed, strict=True) if found}
    for commit in commits:
        if commit.run_id in made and (commit.notices or commit.clock_behind or tracing.watchers):
            after_commit(connection, partial(say, commit))
    return made


def sent(commit: Commit, *, engine: bool = False) -> list[object]:
    """The parameters of an append as the functions declare them; with ``engine``, those of the engine's appends too."""
    wakes_steps = bool(commit.queued or commit.requeued)
    wakes_messages = bool(commit.commands) or any(wait.kind is WaitKind.PERMIT for wait in commit.new_waits)
    acts_for = None if commit.stop is None else commit.tenant_id
    held = commit.held
    values: list[object] = [
        commit.run_id, commit.expected_version if commit.strict else None, str(commit.status), commit.superstep,
        commit.executing, commit.width, commit.writes, len(commit.lines), commit.error, commit.canceling,
        commit.finished, acts_for, commit.stop, commit.reference, commit.result,
        commit.extended, commit.gate, commit.writes_max if commit.writes or commit.counted else None,
        int(commit.moves_gate), commit.latest, b"\n".join(commit.lines) or None, commit.values, wakes_steps,
        wakes_messages, commit.unqueued or None, part_rows(commit), [claim.key for claim in held] or None,
        [claim.id for claim in held] or None, [claim.epoch for claim in held] or None,
    ]  # fmt: skip
    if not engine:
        return values
    keys, steps = [key for key, _ in commit.handed], [step for _, step in commit.handed]
    return [
        *values, commit.state, commit.lease, keys or None, [step.key for step in steps] or None,
        [step.step_id for step in steps] or None, [step.lease_epoch for step in steps] or None,
    ]  # fmt: skip


def part_rows(commit: Commit) -> dict[str, Json] | None:
    """The rows of the parts that the commit has, by the part's name; None if it has none."""
    found: dict[str, Json] = {}
    for name, columns in PARTS.items():
        if rows := getattr(commit, name):
            found[name] = _rows(rows, columns) if columns else rows
    if commit.executing < 0 and not commit.moves_gate:  # it may be the last step of its super-step
        found["barrier"] = True
    if commit.people is not None:
        found["people"] = commit.people
    if commit.agent is not None:
        found["agent"] = commit.agent
    if (move := commit.family) is not None:
        found["family"] = {
            "refused": move.refused, "asked": move.asked, "same": {call: [*keys] for call, keys in move.same.items()},
            "failures": {key: [*ones] for key, ones in move.failed.items()}, "anew": move.anew,
            "moves": move.moves, "max": move.writes_max, "number": move.number,
        }  # fmt: skip
    if commit.asks:
        found["asks"] = [asdict(row) for row in commit.asks]
    return found or None


def _rows(rows: Any, columns: Sequence[str]) -> Json:
    """The rows of one part as JSON for the function: durations in seconds; None is NULL, also for jsonb."""
    found: list[Json] = []
    for row in rows:
        values = {name: getattr(row, name) for name in columns}
        spans = {name: value.total_seconds() for name, value in values.items() if type(value) is timedelta}
        found.append({**values, **spans} if spans else values)
    return found
