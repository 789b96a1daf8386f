"""What may be done to runs under the faces' role: by these functions of the database, and not otherwise.

The functions belong to a role that nobody is: it has the rights on tables that they need, and row-level security binds
it to the tenant that each function sets for its own statement. So a face needs one exchange, without a transaction
around it, and has no right of its own on what runs are made of. The engine may call them as well: a request is the same
request whoever hands it on.

Their bodies are this package's own statements: ``tools/render_functions.py`` writes them into the migration, and a test
holds what is installed against what it renders. After a change of a part or a guard, run it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from runtime.engine.commit import Commit
from runtime.store import commits
from runtime.store.run_parts import Part

# What people and the outside say to a run that there is, and what follows from it in the same append: the end of a wait
# or a question, a step that resumes or ends with it, the barrier behind that step, and the end of the run. Nothing of
# an action is among it: what policy decides, what is intended and what a connector answers is the engine's. The one
# exception is a doubt that people give up, which performs nothing; the functions admit no other end of a doubt.
SAID = frozenset({
    E.APPROVAL_VOTED, E.APPROVAL_VOTE_REFUSED, E.APPROVAL_DECIDED, E.APPROVAL_SUPERSEDED,
    E.WAIT_COMPLETED, E.WAIT_CANCELED, E.RUN_CANCELED, E.RUN_EXTENDED,
})  # fmt: skip
FOLLOWS = frozenset({
    E.STEP_RESUMED, E.STEP_FAILED, E.STEP_CANCELED, E.RUN_REFERENCE_SET, E.CHECKPOINT_COMMITTED, E.RUN_STARTED,
    E.RUN_CLOSED, E.ACTION_DOUBT_RESOLVED,
})  # fmt: skip
OPENS = frozenset({E.RUN_OPENED, E.CHECKPOINT_COMMITTED})

# Whether anything was told of step {1} of run {0} since append {2}: a vote, a reminder, the end of its wait,
# a late answer. Whoever holds the run's row and asks in a statement of its own sees all of it.
TOLD_SINCE = """SELECT FROM journal j
    CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\\n') AS l(line)
    WHERE j.run_id = {0} AND j.n > {2} AND l.line::jsonb ->> 'step' = {1}"""


def _parts(names: str) -> tuple[Part, ...]:
    return tuple(part for part in commits.PARTS if part.name in names.split())


# Which rows come with such an append. Leases, new waits, new questions and new effects are the engine's.
PARTS = _parts("queued unqueued waits commands ledger journal cancel_queue effects approvals votes cancel_approvals")
START_PARTS = _parts("queued journal")

START_GUARD = """
guard AS (
  INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
    trigger_ref, reference, requested_by, status, version, superstep, executing, width, audit_count, audit_head,
    deadline_at, retention, parent_run_id, depth, run_key, cap)
  SELECT $1::uuid, $2::text, $3::text, $4::text, $5::int, $6::text, $7::text, $8::text, $9::text, $10::text, 'queued',
    1, $11::int, $12::int, $13::int, $14::int,
    encode(sha256(sha256(convert_to('run:' || $1, 'UTF8')) || $15::bytea), 'hex'),
    now() + $16::interval, $17::interval, $18::uuid, $19::int, $20::bytea, $21::text
  WHERE EXISTS (
      SELECT FROM workflows w WHERE w.tenant_id = $2 AND w.name = $4 AND w.version = $5 AND w.digest = $6
        AND w.retired_at IS NULL)
    AND ($22::bool OR NOT EXISTS (
      SELECT FROM workflows w WHERE w.tenant_id = $2 AND w.name = $4 AND w.version > $5 AND w.retired_at IS NULL))
  ON CONFLICT (tenant_id, workflow, trigger_type, trigger_ref) DO NOTHING
  RETURNING run_id, tenant_id, workspace_id, cap, version, executing, audit_count),
workspace AS (
  INSERT INTO workspaces (tenant_id, workspace_id) SELECT tenant_id, workspace_id FROM guard
  ON CONFLICT (tenant_id, workspace_id) DO NOTHING)"""


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a run's row holds from its first day. ``trigger_ref`` dedupes: one run per workflow, type and ref (Q-1).

    ``parent`` is the run that waits for this one; ``depth`` is how many runs are above it. ``cap`` is under which cap
    its steps execute besides the tenant's: the workflow's name, or nothing. ``pinned`` says that this version was asked
    for; otherwise it has to be the newest.
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


async def append(at: Connection | Database, commit: Commit, *, answers: str | None = None) -> bool:
    """Apply all of a commit that a face makes, or nothing: False when the run is not as expected any more.

    On a connection it is in the caller's transaction, if there is one; given the database it may share a transaction.

    ``answers`` is the step whose question or wait it answers: it commutes with what is told of other steps meanwhile,
    unless it moves the gate. A crash before this returns leaves either state; whoever asked asks again.
    """
    foreign = [part.name for part in commits.PARTS if part not in PARTS and part.present(commit)]
    if foreign:
        raise ConsistencyError(f"No face may write this of a run: {', '.join(foreign)}.")
    woken = commits.channels(commit)
    wakes = [commits.STEPS_CHANNEL in woken, commits.MESSAGES_CHANNEL in woken, bool(commit.unqueued)]
    commit.strict = answers is None or commit.moves_gate
    answered = [None if commit.strict else answers, commit.expected_version]
    parameters = [*commits.guarded(commit), *_values(PARTS, commit), *answered, *wakes, commit.tenant_id]
    # Runs are locked by id, and shared effects after all runs: what has those goes alone.
    order = None if commit.effects else ("", str(commit.run_id))
    return bool(await _called(at, Call("append_to_run", parameters, order)))


async def open_run(at: Connection | Database, commit: Commit, run: NewRun) -> datetime | None:
    """Write a new run with its first checkpoint and steps; the database's time then. ``at`` as for ``append``.

    None if its trigger has started one already, or if no run starts with this version any more.
    """
    guard: list[object] = [
        commit.run_id, commit.tenant_id, commit.workspace_id, run.workflow, run.workflow_version, run.workflow_digest,
        run.trigger_type, run.trigger_ref, run.reference, run.requested_by, commit.superstep, commit.executing,
        commit.width, *commits.moved(commit), run.sla, run.retention, run.parent, run.depth, run.run_key,
        run.cap, run.pinned,
    ]  # fmt: skip
    parameters = [*guard, *_values(START_PARTS, commit), bool(commit.queued), commit.tenant_id]
    # Nobody knows the run yet: who starts the same waits at its trigger, or at a workspace that is new.
    order = (commit.tenant_id, commit.workspace_id, run.workflow, run.trigger_type, run.trigger_ref)
    opened: datetime | None = await _called(at, Call("open_run", parameters, order))
    return opened


async def order_message(connection: Connection, tenant: str, run_id: UUID, kind: str, payload: JsonObject) -> None:
    """Order a message that no append orders: a ``note`` to one person, or the ``bundle`` of a run once more."""
    await _called(connection, Call("order_message", [new_id(), run_id, kind, payload, tenant]))


def _values(parts: Sequence[Part], commit: Commit) -> list[object]:
    return [value for part in parts for value in part.parameters([commit])]


async def _called(at: Connection | Database, call: Call) -> Any:
    return await at.call(call) if isinstance(at, Database) else (await called(at, [call]))[0]
