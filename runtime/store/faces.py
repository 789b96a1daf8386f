"""Changes runs under the faces' role, which may do so only by these functions of the database.

The functions belong to a role that cannot log in. That role has the rights on tables that the functions need, and
row-level security binds it to the tenant that each function sets for its own statement. So a face needs one round trip,
without a transaction around it, and has no rights of its own on the tables of runs. The engine may call the functions
as well: it passes requests on in the same way.

``functions/*.sql`` say what they accept: ``append_to_run.sql`` lists the events that a face may append to a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from core.canonical import JsonObject
from core.db import Connection, Database, after_commit
from core.errors import ConsistencyError
from core.grouping import Call, called
from core.ids import new_id
from runtime.engine.model.rows import Commit
from runtime.store import commits

# The rows that an append of a face may write, as ``append_to_run`` accepts them. Only the engine writes leases, new
# waits, new questions and new effects.
PARTS = (
    "queued", "waits", "commands", "ledger", "effects", "shares", "approvals", "votes", "refusals", "cancels_rest",
    "sealed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run's row when it starts. ``trigger_ref`` dedupes: one run per workflow, type and ref.

    ``parent`` is the run that waits for this one; ``depth`` is the number of runs above it. ``cap`` names the cap of
    its steps besides the tenant's: the workflow's name, or "". ``pinned`` says that this version was asked for;
    otherwise it has to be the newest. ``inherits`` says that it holds copies of its parent's channels, ``open_for`` is
    how long it waits for more steps, and ``root`` is the run whose counters count for it. ``requester`` is the person
    who requests it, ``started_by`` the account that started it. ``people`` is the digest of the directory that named
    them: a newer directory refuses the start. ``searched`` are the values by which it is found.
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
    searched: Mapping[str, str] = field(default_factory=dict)


async def append(at: Connection | Database, commit: Commit, *, answers: str | None = None) -> bool:
    """Apply all of a face's commit or nothing: False if the run has changed since it was read.

    Given a connection, it joins the caller's transaction, if there is one. Given the database, it may share a
    transaction with other appends.

    ``answers`` is the step whose question or wait is answered: the append commutes with events of other steps,
    unless it moves the gate. After a crash before this returns, it is applied or not; the caller asks again.
    """
    foreign = [name for name in ("handed", *commits.PARTS) if name not in PARTS and getattr(commit, name)]
    if foreign:
        raise ConsistencyError(f"No face may write this of a run: {', '.join(foreign)}.")
    commit.strict = answers is None or commit.moves_gate
    answered = [None if commit.strict else answers, commit.expected_version]
    # Runs are locked in the order of their ids, shared effects and counters after all runs. So a commit that has these
    # goes alone.
    order = None if commit.effects or commit.shares or commit.family else ("", str(commit.run_id))
    made = await _called(at, Call("append_to_run", [*commits.sent(commit), *answered, commit.tenant_id], order))
    if made:
        _say(at, commit)
    return bool(made)


async def open_run(at: Connection | Database, commit: Commit, run: NewRun) -> datetime | None:
    """Write a new run with its first checkpoint and steps; return the database's time. ``at`` as for ``append``.

    None if the trigger has started a run already, if this version starts no runs any more, or if the time was read
    before the database's clock went back.
    """
    rest = commits.part_rows(commit)
    if run.searched:
        rest = {**(rest or {}), "searched": dict(run.searched)}
    parameters: list[object] = [
        commit.run_id, commit.tenant_id, commit.workspace_id, run.workflow, run.workflow_version, run.workflow_digest,
        run.trigger_type, run.trigger_ref, run.reference, run.requested_by, commit.superstep, commit.executing,
        commit.width, run.sla, run.retention, run.parent, run.depth, run.run_key, run.cap, run.pinned,
        run.inherits, run.open_for, run.root, len(commit.lines), b"\n".join(commit.lines), commit.values,
        rest, run.requester, run.started_by, run.people,
    ]  # fmt: skip
    # Nobody else knows the new run's id. Two callers can conflict only over its trigger, or over a new workspace.
    order = (commit.tenant_id, commit.workspace_id, run.workflow, run.trigger_type, run.trigger_ref)
    opened: datetime | None = await _called(at, Call("open_run", parameters, order))
    if opened is not None:
        _say(at, commit)
    return opened


async def order_message(connection: Connection, tenant: str, run_id: UUID, kind: str, payload: JsonObject) -> None:
    """Order a message that belongs to no append: a ``note`` to one person, or the ``bundle`` of a run once more."""
    await _called(connection, Call("order_message", [new_id(), run_id, kind, payload, tenant]))


def _say(at: Connection | Database, commit: Commit) -> None:
    """Write the log once the commit is final; after a call through the database it is final already."""
    if isinstance(at, Database):
        commits.say(commit)
    else:
        after_commit(at, partial(commits.say, commit))


async def _called(at: Connection | Database, call: Call) -> Any:
    return await at.call(call) if isinstance(at, Database) else (await called(at, [call]))[0]
