"""The parts of an append that others find by their keys: queue, waits, commands, the book, and the end of the rest."""

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


# The rows of the queue. What the holder of a lease settles is locked by the guard. A row of another step, as a cancel
# meets it, is left to whoever has it locked just now: that one waits for the run's row, and then finds its step over.
_QUEUED = Part(
    "queued",
    """INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, epoch)
      SELECT g.run_id, q.key, q.step_id, g.tenant_id, g.workspace_id, g.cap, q.starts_run, 'claimable', q.epoch
      FROM unnest({0}::uuid[], {1}::text[], {2}::uuid[], {3}::int[], {4}::bool[])
        AS q(run, key, step_id, epoch, starts_run) JOIN guard g ON g.run_id = q.run""",
    lambda cs: [runs(cs, "queued"), *columns(cs, "queued", "key", "step_id", "epoch", "starts_run")],
    lambda c: bool(c.queued),
)

_REQUEUED = Part(
    "requeued",
    """UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL, created_at = now()
      FROM guard g, unnest({0}::text[]) AS r(key) WHERE queue.run_id = g.run_id AND queue.step_key = r.key""",
    lambda cs: [cs[0].requeued],
    lambda c: bool(c.requeued),
    alone=True,
)

_UNQUEUED = Part(
    "unqueued",
    """DELETE FROM queue USING (
        SELECT q.run_id, q.step_key FROM unnest({0}::uuid[], {1}::text[]) AS u(run, key)
          JOIN guard g ON g.run_id = u.run JOIN queue q ON q.run_id = u.run AND q.step_key = u.key
        FOR UPDATE OF q SKIP LOCKED) AS u
      WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key""",
    lambda cs: [runs(cs, "unqueued"), [key for c in cs for key in c.unqueued]],
    lambda c: bool(c.unqueued),
)

# One step's end is the next one's start: the row goes on with its worker, under the same lease and in the same slot.
_HANDED = Part(
    "handed",
    """UPDATE queue SET step_key = h.next, step_id = h.step_id, epoch = h.epoch, starts_run = false,
        expires_at = now() + {5}, created_at = now()
      FROM unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::uuid[], {4}::int[]) AS h(run, key, next, step_id, epoch)
      JOIN guard g ON g.run_id = h.run
      WHERE queue.run_id = h.run AND queue.step_key = h.key""",
    lambda cs: [
        runs(cs, "handed"),
        [key for c in cs for key, _ in c.handed],
        *([getattr(step, name) for c in cs for _, step in c.handed] for name in ("key", "step_id", "lease_epoch")),
        cs[0].lease,
    ],
    lambda c: bool(c.handed),
)

# The last step leaves and nobody has seen all of the others leave: whoever is told so by this append commits the
# barrier, and deletes this row with it. If that one dies first the row's lease runs out, and the sweeper does it.
_BARRIER = Part(
    "barrier",
    """INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, owner, lease_id,
        epoch, expires_at)
      SELECT g.run_id, '', gen_random_uuid(), g.tenant_id, g.workspace_id, g.cap, false, 'leased', 'barrier',
        gen_random_uuid(), 1, now() + {1}
      FROM unnest({0}::uuid[]) AS b(run) JOIN guard g ON g.run_id = b.run WHERE g.executing = 0
      ON CONFLICT DO NOTHING""",
    lambda cs: [[c.run_id for c in cs if _may_be_last(c)], cs[0].lease],
    lambda c: _may_be_last(c),
)


def _may_be_last(commit: Commit) -> bool:
    return commit.executing < 0 and not commit.moves_gate


_NEW_WAITS = Part(
    "new_waits",
    """INSERT INTO waits (wait_id, run_id, tenant_id, step_id, step_key, kind, status, token, context, due_at,
        correlation_key, parked)
      SELECT w.wait_id, g.run_id, g.tenant_id, w.step_id, w.step_key, w.kind, w.status, w.token, w.context,
        now() + make_interval(secs => w.due_in), w.correlation_key, w.parked
      FROM json_to_recordset({0}) AS w(run uuid, wait_id uuid, step_id uuid, step_key text, kind text, status text,
        token text, context jsonb, due_in float8, correlation_key text, parked bool)
        JOIN guard g ON g.run_id = w.run""",
    lambda cs: [
        records(cs, "new_waits", "wait_id", "step_id", "step_key", "kind", "status", "token", "context", "due_in",
            "correlation_key", "parked",
        )
    ],
    lambda c: bool(c.new_waits),
)  # fmt: skip

_WAITS = Part(
    "waits",
    """UPDATE waits SET status = w.status, context = w.context::jsonb, result = w.result::jsonb, parked = w.parked,
        due_at = CASE WHEN w.due IS NULL THEN waits.due_at ELSE now() + w.due END,
        completed_at = CASE WHEN w.status = 'waiting' THEN NULL ELSE now() END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::interval[],
        {5}::bool[]) AS w(wait_id, status, context, result, due, parked)
      WHERE waits.wait_id = w.wait_id AND (waits.run_id = g.run_id) IS TRUE AND waits.status = 'waiting'""",
    lambda cs: [
        *columns(cs, "waits", "wait_id", "status"),
        *texts(cs, "waits", "context", "result"),
        *columns(cs, "waits", "due_in", "parked"),
    ],
    lambda c: bool(c.waits),
)

_COMMANDS = Part(
    "commands",
    """INSERT INTO commands (command_id, tenant_id, run_id, kind, status, payload, ordering_key)
      SELECT c.command_id, g.tenant_id, g.run_id, c.kind, c.status, c.payload, c.ordering_key
      FROM json_to_recordset({0}) AS c(run uuid, command_id uuid, kind text, status text, payload jsonb,
        ordering_key text) JOIN guard g ON g.run_id = c.run
      ON CONFLICT (command_id) DO NOTHING""",
    lambda cs: [records(cs, "commands", "command_id", "kind", "status", "payload", "ordering_key")],
    lambda c: bool(c.commands),
)

_LEDGER = Part(
    "ledger",
    """INSERT INTO ledger (run_id, tenant_id, superstep, step_key, channel, value)
      SELECT g.run_id, g.tenant_id, l.superstep, l.step_key, l.channel, l.value
      FROM json_to_recordset({0}) AS l(run uuid, superstep int, step_key text, channel text, value jsonb)
      JOIN guard g ON g.run_id = l.run""",
    lambda cs: [records(cs, "ledger", "superstep", "step_key", "channel", "value")],
    lambda c: bool(c.ledger),
    alone=True,
)

# The book: all lines of the append in one row, with the values that they commit to (promise 6). A crash leaves
# all of it or nothing, as of every part: it is one statement with its guard, and whoever lost it decides again.
_JOURNAL = Part(
    "journal",
    """INSERT INTO journal (run_id, n, tenant_id, first_seq, lines, vals)
      SELECT g.run_id, g.version, g.tenant_id, g.audit_count - j.count, j.lines, j.vals
      FROM unnest({0}::uuid[], {1}::int[], {2}::bytea[], {3}::bytea[]) AS j(run, count, lines, vals)
      JOIN guard g ON g.run_id = j.run""",
    lambda cs: [
        [c.run_id for c in cs if c.lines],
        [len(c.lines) for c in cs if c.lines],
        [b"\n".join(c.lines) for c in cs if c.lines],
        [c.values for c in cs if c.lines],
    ],
    lambda c: bool(c.lines),
)

_CANCEL_QUEUE = Part(
    "cancel_queue",
    """DELETE FROM queue USING (
        SELECT q.run_id, q.step_key FROM queue q JOIN guard g ON g.run_id = q.run_id
        WHERE {0}::bool FOR UPDATE OF q SKIP LOCKED) AS u
      WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key""",
    lambda cs: [cs[0].cancels_rest],
    lambda c: c.cancels_rest,
    alone=True,
)

RUN_PARTS: tuple[Part, ...] = (
    _QUEUED, _REQUEUED, _UNQUEUED, _HANDED, _BARRIER, _NEW_WAITS, _WAITS, _COMMANDS,
    _LEDGER, _JOURNAL, _CANCEL_QUEUE,
)  # fmt: skip
