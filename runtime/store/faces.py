"""Changes runs under the faces' role: by these functions of the database, and by nothing else.

The functions belong to a role that cannot log in. It has the rights on tables that they need, and row-level security
binds it to the tenant that each function sets for its own statement. So a face needs one round trip, without a
transaction around it, and has no rights of its own on the tables of runs. The engine may call the functions as well: a
request is the same, whoever hands it on.

Their bodies are this package's own statements: ``tools/render_functions.py`` writes them into the migration, and a test
compares what is installed with what it renders. After a change of a part or a guard, run it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import ConsistencyError
from core.grouping import Call, called
from core.ids import new_id
from evidence.events import EventType as E
from runtime.engine.model.rows import Commit
from runtime.store import commits, parts

# The events that a face may append to a run: what people and the outside say (``SAID``), and what ``FOLLOWS`` from it
# in the same append: the end of a wait or a question, a step that resumes or ends with it, the barrier behind that
# step, and the end of the run. Events of actions are not among them: only the engine tells what policy decides, what is
# intended and what a connector answers. The one exception is a doubt that people count as failed, which performs
# nothing; the functions admit no other end of a doubt.
SAID = frozenset({
    E.APPROVAL_VOTED, E.APPROVAL_VOTE_REFUSED, E.APPROVAL_DECIDED, E.APPROVAL_SUPERSEDED,
    E.WAIT_COMPLETED, E.WAIT_CANCELED, E.WAIT_POSTPONED, E.RUN_CANCELED, E.RUN_EXTENDED,
    E.RUN_PAUSED, E.RUN_RESUMED, E.RUN_REOPENED, E.RUN_SEALED,
})  # fmt: skip
FOLLOWS = frozenset({
    E.STEP_RESUMED, E.STEP_FAILED, E.STEP_CANCELED, E.RUN_REFERENCE_SET, E.CHECKPOINT_COMMITTED, E.RUN_STARTED,
    E.RUN_CLOSED, E.ACTION_DOUBT_RESOLVED,
})  # fmt: skip
OPENS = frozenset({E.RUN_OPENED, E.CHECKPOINT_COMMITTED})

# The rows that come with such an append. Only the engine writes leases, new waits, new questions and new effects.
PARTS = (
    "queued", "waits", "commands", "ledger", "effects", "shares", "approvals", "votes", "refusals", "cancels_rest",
    "sealed",
)  # fmt: skip
# A rejection counts for all runs of the family. What is sent can only add to its counters.
_ADMITTED = (*PARTS, "family")

# Refuse an append with a line that no face may write. If a line has a name twice, jsonb keeps the last one.
_ADMIT = f"""
  IF EXISTS (
    SELECT FROM string_to_table(convert_from(_lines, 'UTF8'), E'\\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' = ANY ('{{{{{{0}}}}}}'::text[])) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= greatest(clock_timestamp() + interval '{commits.AHEAD}', book_at))
        IS NOT TRUE
      OR t.line ->> 'type' = 'action.doubt_resolved'
        AND (t.line #>> '{{{{data,resolution}}}}' = 'failed') IS NOT TRUE){{1}} THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;"""

# A time that is ahead of the clock was read before that went back, or is the book's own: the caller reads it again.
_NOT_AHEAD = f"""
  IF _latest > clock_timestamp() + interval '{commits.AHEAD}' THEN
    SELECT last_at INTO book_at FROM runs WHERE run_id = _run_id;
    IF (_latest <= book_at) IS NOT TRUE THEN
      RETURN false;
    END IF;
  END IF;"""
_FIRST_AT = """(split_part(convert_from(_lines, 'UTF8'), E'\\n', 1)::jsonb ->> 'ts')::timestamptz"""
_FOREIGN = f" OR _rest - '{{{','.join(_ADMITTED)}}}'::text[] <> '{{}}'"
# The run's row is locked first, so that we wait for what others tell of the step meanwhile, and then see it: a vote, a
# reminder, the end of its wait, a late answer. ``append`` does the rest, with the rights of this function's owner.
APPEND = f"""{_NOT_AHEAD}{_ADMIT.format(",".join(sorted(SAID | FOLLOWS)), _FOREIGN)}
  IF _answers IS NOT NULL THEN
    SELECT version INTO seen FROM runs WHERE run_id = _run_id FOR NO KEY UPDATE;
    IF seen > _expected THEN
      IF EXISTS (
          SELECT FROM journal j
          CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\\n') AS l(line)
          WHERE j.run_id = _run_id AND j.n > _expected AND l.line::jsonb ->> 'step' = _answers) THEN
        RETURN false;
      END IF;
    END IF;
  END IF;
  RETURN append({commits.SENT_NAMES}) IS NOT NULL;"""

# The values of ``open_run``, in this order.
OPENED = """_run_id uuid, _tenant_id text, _workspace_id text, _workflow text, _workflow_version int,
  _workflow_digest text, _trigger_type text, _trigger_ref text, _reference text, _requested_by text, _superstep int,
  _executing int, _width int, _sla interval, _retention interval, _parent uuid, _depth int, _run_key bytea, _cap text,
  _pinned bool, _inherits bool, _open interval, _root uuid, _count int, _lines bytea, _vals bytea, _rest jsonb,
  _requester text, _started_by text, _people text"""

OPEN = f"""
  IF {_FIRST_AT} > clock_timestamp() + interval '{commits.AHEAD}' THEN
    RETURN NULL;
  END IF;{_ADMIT.format(",".join(sorted(OPENS)), "")}
  INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
    trigger_ref, reference, requested_by, status, version, superstep, executing, width, audit_count, audit_head,
    deadline_at, retention, parent_run_id, depth, run_key, cap, inherits, open_until,
    root_run_id, last_at, requester, started_by)
  SELECT _run_id, _tenant_id, _workspace_id, _workflow, _workflow_version, _workflow_digest, _trigger_type,
    _trigger_ref, _reference, _requested_by, 'queued', 1, _superstep, _executing, _width, _count,
    encode(sha256(sha256(convert_to('run:' || _run_id, 'UTF8')) || sha256(_lines)), 'hex'),
    now() + _sla, _retention, _parent, _depth, _run_key, _cap, _inherits, now() + _open, _root,
    {_FIRST_AT}, _requester, _started_by
  WHERE EXISTS (
      SELECT FROM workflows w WHERE w.tenant_id = _tenant_id AND w.name = _workflow AND w.version = _workflow_version
        AND w.digest = _workflow_digest AND w.retired_at IS NULL AND w.waits_for IS NULL)
    AND (_pinned OR NOT EXISTS (
      SELECT FROM workflows w WHERE w.tenant_id = _tenant_id AND w.name = _workflow AND w.version > _workflow_version
        AND w.retired_at IS NULL AND w.waits_for IS NULL))
    AND (_people IS NULL OR EXISTS (
      SELECT FROM tenants t WHERE t.tenant_id = _tenant_id AND coalesce(t.directory_digest, '') = _people))
  ON CONFLICT (tenant_id, workflow, trigger_type, trigger_ref) DO NOTHING
  RETURNING tenant_id, workspace_id, cap, version, audit_count
  INTO its_tenant, its_workspace, its_cap, its_version, its_count;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  {parts.JOURNAL};
  {parts.statement("queued")};
  IF _rest ? 'ledger' THEN
    {parts.statement("ledger")};
  END IF;
  INSERT INTO workspaces (tenant_id, workspace_id) VALUES (_tenant_id, _workspace_id) ON CONFLICT DO NOTHING;
  {commits.NOTIFY.format("_rest ? 'queued'", commits.STEPS_CHANNEL).strip()}
  RETURN clock_timestamp();"""

# A message that no append orders.
ORDER = f"""
  IF _kind NOT IN ('note', 'bundle') THEN
    RAISE EXCEPTION 'no face may order %', _kind USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
  SELECT _command_id, tenant_id, run_id, _kind, _payload, 'pending',
    CASE _kind WHEN 'bundle' THEN 'bundle:' || run_id END
  FROM runs WHERE run_id = _run_id;
  PERFORM pg_notify('{commits.MESSAGES_CHANNEL}', '');"""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run's row when it starts. ``trigger_ref`` dedupes: one run per workflow, type and ref (Q-1).

    ``parent`` is the run that waits for this one; ``depth`` is how many runs are above it. ``cap`` names the cap of its
    steps besides the tenant's: the workflow's name, or nothing. ``pinned`` says that this version was asked for;
    otherwise it has to be the newest. ``inherits`` says that it holds copies of what its parent knows, ``open_for`` how
    long it waits for more steps, ``root`` whose counters count for it. ``requester`` is the person who requests it,
    ``started_by`` the account that started it; ``people`` is the digest of the directory that said so, if a newer one
    is to refuse the start.
    """

    workflow: str
    workflow_version: int
    workflow_digest: str
    trigger_type: str
    trigger_ref: str
    reference: str
    requested_by: str
    sla: timedelta | None
    run_key: bytes
    retention: timedelta | None = None
    parent: UUID | None = None
    depth: int = 0
    cap: str = ""
    pinned: bool = True
    inherits: bool = False
    open_for: timedelta | None = None
    root: UUID | None = None
    requester: str | None = None
    started_by: str | None = None
    people: str | None = None


async def append(at: Connection | Database, commit: Commit, *, answers: str | None = None) -> bool:
    """Apply all of a commit that a face makes, or nothing: False when the run is not as expected any more.

    Given a connection, it joins the caller's transaction, if there is one. Given the database, it may share a
    transaction with other appends.

    ``answers`` is the step whose question or wait it answers: it commutes with what is told of other steps meanwhile,
    unless it moves the gate. A crash before this returns leaves either state; the caller asks again.
    """
    foreign = [name for name in ("handed", *parts.PARTS) if name not in PARTS and getattr(commit, name)]
    if foreign:
        raise ConsistencyError(f"No face may write this of a run: {', '.join(foreign)}.")
    commit.strict = answers is None or commit.moves_gate
    answered = [None if commit.strict else answers, commit.expected_version]
    # Runs are locked by id, and shared effects and counters after all runs: a commit with these goes alone.
    order = None if commit.effects or commit.shares or commit.family else ("", str(commit.run_id))
    commits.note(commit)
    return bool(await _called(at, Call("append_to_run", [*commits.sent(commit), *answered, commit.tenant_id], order)))


async def open_run(at: Connection | Database, commit: Commit, run: NewRun) -> datetime | None:
    """Write a new run with its first checkpoint and steps; return the database's time. ``at`` as for ``append``.

    None if the trigger has started a run already, if no run starts with this version any more, or if the time was read
    before the database's clock went back.
    """
    parameters: list[object] = [
        commit.run_id, commit.tenant_id, commit.workspace_id, run.workflow, run.workflow_version, run.workflow_digest,
        run.trigger_type, run.trigger_ref, run.reference, run.requested_by, commit.superstep, commit.executing,
        commit.width, run.sla, run.retention, run.parent, run.depth, run.run_key, run.cap, run.pinned,
        run.inherits, run.open_for, run.root, len(commit.lines), b"\n".join(commit.lines), commit.values,
        commits.rest(commit), run.requester, run.started_by, run.people,
    ]  # fmt: skip
    # Nobody else knows the new run's id. Callers can meet only at its trigger, or at a workspace that is new.
    order = (commit.tenant_id, commit.workspace_id, run.workflow, run.trigger_type, run.trigger_ref)
    opened: datetime | None = await _called(at, Call("open_run", parameters, order))
    return opened


async def order_message(connection: Connection, tenant: str, run_id: UUID, kind: str, payload: JsonObject) -> None:
    """Order a message that no append orders: a ``note`` to one person, or the ``bundle`` of a run once more."""
    await _called(connection, Call("order_message", [new_id(), run_id, kind, payload, tenant]))


async def _called(at: Connection | Database, call: Call) -> Any:
    return await at.call(call) if isinstance(at, Database) else (await called(at, [call]))[0]
