"""Reading a run into the kernel's view: by one statement, in one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from core.canonical import Json
from core.db import Connection
from core.errors import ConsistencyError, NotFoundError
from evidence.chain import ChainHead
from runtime.kernel.commit import StepRow, WaitRow
from runtime.kernel.plan import WINDOW, Window
from runtime.kernel.state import State
from runtime.kernel.states import RunState, StepState, WaitKind, WaitState
from runtime.kernel.view import OpenApproval, OpenElsewhere, RunView

_SELECT = f"""
SELECT to_jsonb(r) - 'result' AS run, i.trigger, i.run_key, k.state, t.policy_digest, t.max_writes_per_run,
  now() AS now,
  (SELECT jsonb_agg(to_jsonb(s)) FROM steps s WHERE s.run_id = r.run_id
    AND (s.superstep >= r.superstep OR s.step_key = ANY ($2::text[]))) AS steps,
  (SELECT jsonb_agg(jsonb_build_object('approval_id', a.approval_id, 'action_digest', a.action_digest))
    FROM approvals a WHERE a.run_id = r.run_id AND a.status = 'requested') AS approvals,
  (SELECT jsonb_agg(to_jsonb(w)) FROM waits w WHERE w.run_id = r.run_id AND w.status = 'waiting'
    AND w.step_key = ANY ($2::text[])) AS waits,
  (SELECT jsonb_agg(to_jsonb(w)) FROM waits w WHERE w.run_id = r.run_id AND w.status = 'waiting'
    AND w.kind IN ('child', 'external', 'task')) AS elsewhere,
  (SELECT jsonb_agg(jsonb_build_array(i.loop_key, i.index, i.item) ORDER BY i.index)
    FROM jsonb_each(k.state->'loops') l JOIN loop_items i ON i.run_id = r.run_id AND i.loop_key = l.key
      AND i.index >= (l.value->>'next')::int AND i.index < (l.value->>'next')::int + {WINDOW}) AS items
FROM runs r JOIN run_inputs i USING (run_id) JOIN tenants t ON t.tenant_id = r.tenant_id
LEFT JOIN checkpoints k ON k.run_id = r.run_id AND k.superstep = r.superstep
WHERE r.run_id = $1"""

_LOCK = "SELECT version FROM runs WHERE run_id = $1 FOR UPDATE"


async def load(
    connection: Connection, run_id: UUID, step_keys: Sequence[str] = (), *, lock: bool = False
) -> tuple[RunView, dict[str, WaitRow]]:
    """The whole view of a run, with the named steps and the open waits of those steps by step key.

    Without ``lock`` the commit's version guard is what keeps the view honest; a caller that has lost that race before
    asks for the lock, so that it is sure to win the next one. ``NotFoundError`` if there is no such run,
    ``ConsistencyError`` if retention has emptied it.
    """
    if lock:
        await connection.fetchrow(_LOCK, run_id)
    row = await connection.fetchrow(_SELECT, run_id, list(step_keys))
    if row is None:
        raise NotFoundError(f"There is no run {run_id}.")
    if row["run"]["purged_at"] is not None:
        raise ConsistencyError(
            f"The run {run_id} is over, and what it held was removed when its retention ended.",
            remedy="Its audit and its evidence bundle are kept.",
        )
    steps = {item["step_key"]: step_row(item) for item in row["steps"] or ()}
    approvals = tuple(OpenApproval(UUID(item["approval_id"]), item["action_digest"]) for item in row["approvals"] or ())
    waits = {item["step_key"]: wait_row(item) for item in row["waits"] or ()}
    whole = replace(
        run_view(row, whole=True, steps=steps),
        open_approvals=approvals,
        open_elsewhere=tuple(_elsewhere(item) for item in row["elsewhere"] or ()),
        windows=_windows(row["items"] or ()),
    )
    return whole, waits


def _elsewhere(item: Mapping[str, Any]) -> OpenElsewhere:
    return OpenElsewhere(
        wait_id=UUID(item["wait_id"]),
        step_key=item["step_key"],
        kind=WaitKind(item["kind"]),
        context=item["context"] or {},
    )


def _windows(items: Iterable[tuple[str, int, Json]]) -> dict[str, Window]:
    """The next items of each active loop, which follow one another."""
    found: dict[str, Window] = {}
    for key, index, item in items:
        known = found.get(key, Window(index, ()))
        found[key] = Window(known.start, (*known.items, item))
    return found


def run_view(row: Any, *, whole: bool, steps: Mapping[str, StepRow]) -> RunView:
    """A view from a row with ``run``, ``trigger``, ``run_key``, ``state`` and the tenant's columns."""
    run = row["run"]
    constants = {
        "trigger": row["trigger"],
        "run.id": run["run_id"],
        "run.workflow": run["workflow"],
        "run.version": run["workflow_version"],
        "run.reference": run["reference"],
        "run.requested_by": run["requested_by"],
    }
    return RunView(
        run_id=UUID(run["run_id"]),
        tenant_id=run["tenant_id"],
        workspace_id=run["workspace_id"],
        workflow=run["workflow"],
        workflow_version=run["workflow_version"],
        workflow_digest=run["workflow_digest"],
        reference=run["reference"],
        requested_by=run["requested_by"],
        trigger_type=run["trigger_type"],
        status=RunState(run["status"]),
        version=run["version"],
        superstep=run["superstep"],
        executing=run["executing"],
        width=run["width"],
        writes=run["writes"],
        head=ChainHead(f"run:{run['run_id']}", run["audit_count"], run["audit_head"]),
        state=State.from_json(row["state"]),
        constants=constants,
        run_key=row["run_key"],
        now=row["now"],
        deadline_at=_time(run["deadline_at"]),
        canceling=run["canceling"],
        policy_digest=row["policy_digest"],
        writes_max=row["max_writes_per_run"],
        parent=UUID(run["parent_run_id"]) if run["parent_run_id"] else None,
        depth=run["depth"],
        extensions=run["extensions"],
        whole=whole,
        steps=steps,
    )


def step_row(item: Mapping[str, Any]) -> StepRow:
    """A step from its row as JSON."""
    return StepRow(
        step_id=UUID(item["step_id"]),
        key=item["step_key"],
        index=item["step_index"],
        operation=item["operation"],
        superstep=item["superstep"],
        status=StepState(item["status"]),
        attempt=item["attempt"],
        lease_epoch=item["lease_epoch"],
        lease_owner=item["lease_owner"],
        idempotency_key=item["idempotency_key"],
        output=item["output"],
        writes=item["writes"],
        usage=item["usage"],
        last_error=item["last_error"],
    )


def wait_row(item: Mapping[str, Any]) -> WaitRow:
    """A wait from its row as JSON."""
    return WaitRow(
        wait_id=UUID(item["wait_id"]),
        step_id=UUID(item["step_id"]),
        step_key=item["step_key"],
        kind=WaitKind(item["kind"]),
        status=WaitState(item["status"]),
        token=item["token"],
        context=item["context"],
        correlation_key=item["correlation_key"],
        result=item["result"],
    )


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
