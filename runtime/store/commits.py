"""Applies commits: one call of the database's function ``append``, which does all of a commit or nothing of it.

The guard is the UPDATE of the run's row. It requires the gate that the commit expects, so commuting commits may come in
between; a strict commit also requires the version. All other parts come after it, in the same transaction. Each part is
a statement of its own, which is planned once per connection; a part that the commit does not have costs a comparison.

Lock order: of each run the rows of its queue by step, then its row, then the counters of its family, then shared
effects by key, then the rest; of several runs, by id. A settle locks the row of its lease first, and then checks in
that statement that the lease is still its own: after a wait for a lock, PostgreSQL shows the locked row as it is now.
Nobody waits for a row of the queue while holding the lock of its run, or of a run behind it.

Commits of different runs may go in one statement, which calls the function for each. One whose guard fails is left out.

The functions are written into the migration by ``tools/render_functions.py``: run it after a change here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg
import structlog
from msgspec.structs import asdict

from core.canonical import Json
from core.db import Connection
from core.grouping import Call, called
from runtime.engine.model.rows import Commit
from runtime.store.parts import BARRIER, HANDED, JOURNAL, PARTS, UNQUEUED, sent_of, statement
from runtime.store.records import RecordRefused

log = structlog.get_logger(__name__)

# A clock that has gone back is said once in so many seconds: every append of every run meets it.
_SAY_SECONDS = 30.0
_SAID: dict[str, float] = {}

STEPS_CHANNEL = "counterseal_steps"
MESSAGES_CHANNEL = "counterseal_messages"

# The SQLSTATE that the part ``records`` raises; the statement is rolled back, with all of its commit.
REFUSED_RECORD = "CS001"

# The guard refuses a time further ahead of the database's clock: it is made up, or from a clock that is wrong. A line
# may keep the latest time of its book, which the clock had when that was told: it may have gone back since.
AHEAD = "10 seconds"

# The lock of a tenant's intents.
INTENTS_KEY = "hashtextextended('counterseal.intents:' || {0}, 0)"

# The parameters of the function: first those that a face sends too, then those that only the engine sends.
SENT = """_run_id uuid, _version int, _status text, _superstep int, _executing int, _width int, _writes int, _count int,
  _error jsonb, _canceling jsonb, _finished bool, _acts_for text, _stop int, _reference text, _result jsonb,
  _extended int, _gate int, _writes_max int, _moved int, _latest timestamptz, _lines bytea, _vals bytea,
  _wakes_steps bool, _wakes_messages bool, _unqueued text[], _rest jsonb, _held text[], _leases uuid[],
  _epochs int[]"""
SENT_NAMES = ", ".join(value.split()[0] for value in SENT.split(","))
ENGINES = """_state bytea DEFAULT NULL, _lease interval DEFAULT NULL, _handed text[] DEFAULT NULL,
  _next text[] DEFAULT NULL, _next_ids uuid[] DEFAULT NULL, _next_epochs int[] DEFAULT NULL"""

_HELD = """
  IF _held IS NOT NULL THEN
    PERFORM FROM queue q WHERE q.run_id = _run_id AND q.step_key = ANY (_held) AND q.status = 'leased'
      AND q.lease_id = _leases[array_position(_held, q.step_key)]
      AND q.epoch = _epochs[array_position(_held, q.step_key)]
    ORDER BY q.step_key FOR NO KEY UPDATE;
    GET DIAGNOSTICS met = ROW_COUNT;
    IF met <> cardinality(_held) THEN
      RETURN NULL;
    END IF;
  END IF;"""

# An append that lets something out shares this lock until its transaction ends. A change of the policy in force, the
# people or the pauses takes it exclusively, in the trigger that moves ``stop_number``. So the change returns only when
# every append begun before it has ended, and an append that waited for it reads the new number in its next statement.
STOP = f"""
  IF _acts_for IS NOT NULL THEN
    notified := pg_advisory_xact_lock_shared({INTENTS_KEY.format("_acts_for")}) IS NULL;
  END IF;"""

# Votes were counted by one directory. If there is a newer one, they must be counted again (promise 12).
_COUNTED = """
  IF _rest ? 'people' THEN
    IF NOT EXISTS (SELECT FROM runs r JOIN tenants t USING (tenant_id)
        WHERE r.run_id = _run_id AND t.directory_digest = _rest ->> 'people') THEN
      RETURN NULL;
    END IF;
  END IF;"""

# The counters of the run's family are locked after its row, and only then compared: what is read before a lock may be
# old. They are moved after the guard, so that an append which is refused moves nothing.
_OF_FAMILY = "root_run_id = (SELECT r.root_run_id FROM runs r WHERE r.run_id = _run_id)"
_FAMILY = f"""
  IF _rest ? 'family' THEN
    PERFORM FROM runs r WHERE r.run_id = _run_id FOR NO KEY UPDATE;
    PERFORM FROM families f WHERE f.{_OF_FAMILY}
      AND coalesce(f.writes + _writes <= (_rest #>> '{{family,max}}')::int, true)
      AND coalesce(f.number = (_rest #>> '{{family,number}}')::int, true) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
  END IF;"""
_COUNTS = f"""UPDATE families SET writes = writes + _writes, number = number + 1,
      refused = refused + greatest((_rest #>> '{{family,refused}}')::int, 0),
      asked = asked + greatest((_rest #>> '{{family,asked}}')::int, 0),
      same = same || coalesce(_rest #> '{{family,same}}', '{{}}')
    WHERE {_OF_FAMILY}"""
# Nobody is asked again what people have refused to whoever asks, nor more at once than the bound of whoever asks.
# The caller reads the refusals and the count then, and decides again.
_ASKS = """
  IF _rest ? 'asks' THEN
    IF EXISTS (SELECT FROM runs r CROSS JOIN jsonb_to_recordset(_rest -> 'asks')
          AS a(key text, asker text, most int, known jsonb)
        WHERE r.run_id = _run_id AND (EXISTS (SELECT FROM refusals f WHERE f.tenant_id = r.tenant_id
            AND f.key = a.key AND f.until > now() AND NOT a.known ? f.approval_id::text)
          OR (SELECT count(*) FROM (SELECT FROM approvals o WHERE o.tenant_id = r.tenant_id AND o.asker = a.asker
            AND o.status = 'requested' LIMIT greatest(a.most, 0)) n) >= a.most)) THEN
      RETURN NULL;
    END IF;
  END IF;"""

# A reopened run is not over any more: what it holds is kept until it ends again.
OVER = "_status IN ('succeeded', 'failed_terminal', 'canceled')"

# A run has begun (``started_at``) when it leaves ``queued``, unless it is canceled then.
GUARD = f"""
  UPDATE runs SET version = version + 1, gate = gate + _moved, status = _status, superstep = _superstep,
    executing = executing + _executing, width = _width, writes = writes + _writes, audit_count = audit_count + _count,
    audit_head = coalesce(encode(sha256(decode(audit_head, 'hex') || sha256(_lines)), 'hex'), audit_head),
    error = _error, canceling = _canceling, reference = coalesce(_reference, reference), result = _result,
    extensions = extensions + _extended,
    state = CASE WHEN _finished THEN NULL ELSE coalesce(_state, state) END,
    state_n = CASE WHEN _finished THEN 0 WHEN _state IS NULL THEN state_n ELSE version + 1 END,
    started_at = CASE WHEN _status IN ('queued', 'canceled') THEN started_at ELSE coalesce(started_at, now()) END,
    finished_at = CASE WHEN _finished THEN now() WHEN {OVER} THEN finished_at END,
    purge_at = CASE WHEN _finished THEN now() + retention WHEN {OVER} THEN purge_at END,
    last_at = greatest(last_at, _latest)
  WHERE run_id = _run_id AND gate = _gate AND (_version IS NULL OR version = _version)
    AND coalesce(_latest <= greatest(clock_timestamp() + interval '{AHEAD}', last_at), true)
    AND (_writes_max IS NULL OR writes + _writes <= _writes_max) AND (_stop IS NULL
      OR (SELECT t.stop_number FROM tenants t WHERE t.tenant_id = runs.tenant_id) = _stop)
  RETURNING tenant_id, workspace_id, cap, version, executing, audit_count
  INTO its_tenant, its_workspace, its_cap, its_version, its_executing, its_count;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;"""

# In PL/pgSQL an assignment is cheaper than a query. NOTIFY is sent on commit.
NOTIFY = """
  IF {0} THEN
    notified := pg_notify('{1}', '') IS NULL;
  END IF;"""

# If the tenant or the workflow is at its cap before the slot is free, a step may be waiting for this very slot: wake
# all workers. The conditions are nested, because a condition with a query in it costs a query even if its first part
# is false.
_FREES_SLOT = f"""
  IF _unqueued IS NOT NULL AND NOT _wakes_steps THEN
    IF EXISTS (SELECT FROM queue q WHERE q.tenant_id = its_tenant AND q.status = 'claimable') THEN
      IF (SELECT count(*) FROM queue q WHERE q.tenant_id = its_tenant AND q.status <> 'claimable')
          >= (SELECT t.max_concurrency FROM tenants t WHERE t.tenant_id = its_tenant)
        OR its_cap > ''
          AND (SELECT count(*) FROM queue q
            WHERE q.tenant_id = its_tenant AND q.cap = its_cap AND q.status <> 'claimable')
          >= (SELECT c.slots FROM caps c WHERE c.tenant_id = its_tenant AND c.cap = its_cap) THEN
        notified := pg_notify('{STEPS_CHANNEL}', '') IS NULL;
      END IF;
    END IF;
  END IF;"""

ITS = """its_tenant text; its_workspace text; its_cap text; its_version int; its_executing int; its_count int;
  met int; notified bool; one record;"""


def _if(condition: str, statement: str) -> str:
    return f"\n  IF {condition} THEN\n    {statement};\n  END IF;"


# Returns what ``Applied`` holds; NULL if a guard does not hold.
APPEND = "".join((
    STOP,
    _HELD,
    _COUNTED,
    _FAMILY,
    _ASKS,
    GUARD,
    _if("_rest @> '{\"family\": {\"moves\": true}}'", _COUNTS),
    _if("_lines IS NOT NULL", JOURNAL),
    _FREES_SLOT,
    _if("_unqueued IS NOT NULL", UNQUEUED.format(" AND q.step_key = ANY (_unqueued)")),
    f"\n  FOR i IN 1..coalesce(cardinality(_handed), 0) LOOP\n    {HANDED};\n  END LOOP;",
    "\n  IF _rest IS NOT NULL THEN",
    *(_if(f"_rest ? '{name}'", statement(name)) for name in PARTS),
    _if("_rest ? 'barrier' AND its_executing = 0", BARRIER),
    "\n  END IF;",
    NOTIFY.format("_wakes_steps", STEPS_CHANNEL),
    NOTIFY.format("_wakes_messages", MESSAGES_CHANNEL),
    "\n  RETURN ARRAY[its_version, its_executing];",
))  # fmt: skip

_APPEND = f"SELECT append({', '.join(f'${place + 1}' for place in range(f'{SENT},{ENGINES}'.count(',') + 1))})"
_LANDED = "SELECT EXISTS (SELECT FROM journal WHERE run_id = $1 AND n > $2 AND lines = $3)"


class Applied(NamedTuple):
    """The run after an append: its version, and how many steps of its super-step still execute."""

    version: int
    executing: int


async def apply(connection: Connection, commit: Commit) -> Applied | None:
    """Apply all of a commit, or nothing: None when the run (or the tenant's policy) is not as expected any more.

    ``RecordRefused`` when a record is not as the commit expects it.

    A crash before this returns leaves either state; both are consistent, and the lease's expiry finds what is left.
    """
    try:
        found = await connection.fetchval(_APPEND, *sent(commit, engine=True))
    except asyncpg.PostgresError as error:
        if error.sqlstate != REFUSED_RECORD:
            raise
        raise RecordRefused("A record is not as the step expects it.") from None
    if found:
        note(commit)
    return Applied(*found) if found else None


async def landed(connection: Connection, commit: Commit) -> bool:
    """True if a commit whose answer was lost was applied: its lines, which no other commit has, are in the book."""
    if not commit.lines:
        return False
    lines = b"\n".join(commit.lines)
    return bool(await connection.fetchval(_LANDED, commit.run_id, commit.expected_version, lines))


def note(commit: Commit) -> None:
    """Say in the log, now and then, that lines keep a later time because the database's clock has gone back."""
    now = time.monotonic()
    if commit.clock_behind and now >= _SAID.get("next", 0.0):
        _SAID["next"] = now + _SAY_SECONDS
        words = "the database's clock has gone back; lines keep the latest time of their book until it has caught up"
        log.warning(words, run=str(commit.run_id), seconds=round(commit.clock_behind.total_seconds()))


def can_go_together(commit: Commit) -> bool:
    """True if this commit may share a statement with those of other runs: it waits for no lock after that of its run.

    One that changes records goes alone, because a refused record rolls the whole statement back.
    """
    rows = commit.effects or commit.shares or commit.joins or commit.records
    return not (rows or commit.family or commit.cancels_rest or commit.requeued)


async def apply_together(connection: Connection, commits: Sequence[Commit]) -> dict[UUID, Applied]:
    """Apply commits of different runs; return ``Applied`` for each run whose commit was applied.

    An error may come from any of them: then nothing was applied.
    """
    calls = [Call("append", sent(commit, engine=True), ("", str(commit.run_id))) for commit in commits]
    landed = await called(connection, calls)
    for commit in commits:
        note(commit)
    return {commit.run_id: Applied(*found) for commit, found in zip(commits, landed, strict=True) if found}


def sent(commit: Commit, *, engine: bool = False) -> list[object]:
    """The values of ``SENT``, and of ``ENGINES`` too if the engine sends them."""
    wakes_steps, wakes_messages = bool(commit.queued or commit.requeued), bool(commit.commands)
    acts_for = None if commit.stop is None else commit.tenant_id
    held = commit.held
    values: list[object] = [
        commit.run_id, commit.expected_version if commit.strict else None, str(commit.status), commit.superstep,
        commit.executing, commit.width, commit.writes, len(commit.lines), commit.error, commit.canceling,
        commit.finished, acts_for, commit.stop, commit.reference, commit.result,
        commit.extended, commit.gate, commit.writes_max if commit.writes or commit.counted else None,
        int(commit.moves_gate), commit.latest, b"\n".join(commit.lines) or None, commit.values, wakes_steps,
        wakes_messages, commit.unqueued or None, rest(commit), [claim.key for claim in held] or None,
        [claim.id for claim in held] or None, [claim.epoch for claim in held] or None,
    ]  # fmt: skip
    if not engine:
        return values
    keys, steps = [key for key, _ in commit.handed], [step for _, step in commit.handed]
    return [
        *values, commit.state, commit.lease, keys or None, [step.key for step in steps] or None,
        [step.step_id for step in steps] or None, [step.lease_epoch for step in steps] or None,
    ]  # fmt: skip


def rest(commit: Commit) -> dict[str, Json] | None:
    """The rows of the parts that the commit has, by name."""
    found = {name: sent_of(name, commit) for name in PARTS if getattr(commit, name)}
    if commit.executing < 0 and not commit.moves_gate:  # it may be the last of its super-step
        found["barrier"] = True
    if commit.people is not None:
        found["people"] = commit.people
    if (move := commit.family) is not None:
        found["family"] = {
            "refused": move.refused, "asked": move.asked, "same": {call: [*keys] for call, keys in move.same.items()},
            "moves": move.moves, "max": move.writes_max, "number": move.number,
        }  # fmt: skip
    if commit.asks:
        found["asks"] = [asdict(row) for row in commit.asks]
    return found or None
