"""The statements of the read models: SQLAlchemy Core, built once at import. Each names the tenant."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    DateTime,
    Integer,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    exists,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from runtime.store.schema import (
    approvals,
    bundles,
    commands,
    journal,
    ledger,
    policies,
    runs,
    tenants,
    waits,
    workflows,
)

CHILDREN_MAX = 100

_tenant = bindparam("tenant", type_=Text)
_run = bindparam("run", type_=UUID(as_uuid=True))
_limit = bindparam("limit", type_=Integer)
_after_at = bindparam("after_at", type_=DateTime(timezone=True))
_after_id = bindparam("after_id", type_=UUID(as_uuid=True))


def _own(table: Table, *columns: Any) -> Select[Any]:
    return select(*(columns or (table,))).where(table.c.tenant_id == _tenant)


def _wanted(column: Any, name: str) -> Any:
    value = bindparam(name, type_=Text)
    return or_(value.is_(None), column == value)


_RUN_COLUMNS = (
    runs.c.run_id,
    runs.c.workspace_id,
    runs.c.workflow,
    runs.c.workflow_version,
    runs.c.trigger_type,
    runs.c.trigger_ref,
    runs.c.reference,
    runs.c.requested_by,
    runs.c.status,
    runs.c.version,
    runs.c.superstep,
    runs.c.writes,
    runs.c.error,
    runs.c.created_at,
    runs.c.started_at,
    runs.c.finished_at,
    runs.c.purged_at,
    runs.c.deadline_at,
)
_BUNDLE = (
    select(
        func.jsonb_build_object(
            "name", bundles.c.name, "uri", bundles.c.uri, "sha256", bundles.c.sha256, "bytes", bundles.c.bytes
        )
    )
    .where(bundles.c.run_id == runs.c.run_id)
    .order_by(bundles.c.lines.desc())
    .limit(1)
)
_EDITIONS = select(bundles.c.name).where(bundles.c.run_id == runs.c.run_id).order_by(bundles.c.lines)
# Why its evidence was not signed or stored, where nobody tries that any more.
_EVIDENCE_PROBLEM = (
    select(commands.c.last_error)
    .where(
        commands.c.tenant_id == runs.c.tenant_id,
        commands.c.run_id == runs.c.run_id,
        commands.c.kind == "bundle",
        commands.c.status == "failed",
        ~exists(
            select(bundles.c.run_id).where(bundles.c.run_id == commands.c.run_id, bundles.c.lines == runs.c.audit_count)
        ),
    )
    .order_by(commands.c.command_id.desc())
    .limit(1)
)

RUNS = (
    _own(runs, *_RUN_COLUMNS)
    .where(
        tuple_(runs.c.created_at, runs.c.run_id) < tuple_(_after_at, _after_id),
        _wanted(runs.c.status, "status"),
        _wanted(runs.c.workflow, "workflow"),
        _wanted(runs.c.reference, "reference"),
    )
    .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
    .limit(_limit)
)
_children = runs.alias("children")
_CHILDREN = select(func.count()).where(_children.c.parent_run_id == runs.c.run_id)
# The oldest; a loop over many items may have one for each.
_FIRST_CHILDREN = (
    select(_children.c.run_id)
    .where(_children.c.parent_run_id == runs.c.run_id)
    .order_by(_children.c.created_at, _children.c.run_id)
    .limit(CHILDREN_MAX)
)
RUN = _own(
    runs,
    *_RUN_COLUMNS,
    runs.c.audit_count,
    runs.c.audit_head,
    runs.c.result,
    runs.c.parent_run_id,
    runs.c.extensions,
    _CHILDREN.scalar_subquery().label("children_count"),
    func.array(_FIRST_CHILDREN.scalar_subquery()).label("children"),
    _BUNDLE.scalar_subquery().label("bundle"),
    func.array(_EDITIONS.scalar_subquery()).label("editions"),
    _EVIDENCE_PROBLEM.scalar_subquery().label("evidence_problem"),
).where(runs.c.run_id == _run)
WAITS = (
    _own(
        waits,
        waits.c.wait_id,
        waits.c.step_key,
        waits.c.kind,
        waits.c.status,
        waits.c.correlation_key,
        waits.c.token,
        waits.c.due_at,
        waits.c.created_at,
        waits.c.completed_at,
    )
    # By their ids, because only the open waits are indexed by their run.
    .where(
        waits.c.wait_id == any_(bindparam("ids", type_=ARRAY(UUID(as_uuid=True)))),
        tuple_(waits.c.created_at, waits.c.wait_id) > tuple_(_after_at, _after_id),
    )
    .order_by(waits.c.created_at, waits.c.wait_id)
    .limit(_limit)
)
# The writes of a super-step are recorded in one commit, so their numbers within it never change.
_NUMBERED = (
    select(
        ledger.c.superstep,
        ledger.c.step_key,
        ledger.c.channel,
        ledger.c.value,
        ledger.c.written_at,
        func.row_number()
        .over(partition_by=ledger.c.superstep, order_by=(ledger.c.step_key, ledger.c.channel))
        .label("number"),
    )
    .where(
        ledger.c.tenant_id == _tenant,
        ledger.c.run_id == _run,
        ledger.c.superstep >= bindparam("after_superstep", type_=Integer),
    )
    .subquery()
)
LEDGER: Select[Any] = (
    select(_NUMBERED)
    .where(
        tuple_(_NUMBERED.c.superstep, _NUMBERED.c.number)
        > tuple_(bindparam("after_superstep", type_=Integer), bindparam("after_number", type_=Integer))
    )
    .order_by(_NUMBERED.c.superstep, _NUMBERED.c.number)
    .limit(bindparam("limit", type_=Integer))
)
_after_seq = bindparam("after_seq", type_=Integer)
# From the append of the wanted line on: a long run is read page by page, and each append has a line at least.
_first_append = (
    select(func.coalesce(func.max(journal.c.n), 0))
    .where(journal.c.run_id == _run, journal.c.tenant_id == _tenant, journal.c.first_seq <= _after_seq + 1)
    .scalar_subquery()
)
APPENDS = (
    _own(journal, journal.c.n, journal.c.first_seq, journal.c.lines)
    .where(journal.c.run_id == _run, journal.c.n >= _first_append)
    .order_by(journal.c.n)
    .limit(_limit)
)
APPROVALS = (
    _own(approvals)
    .where(
        tuple_(approvals.c.created_at, approvals.c.approval_id) < tuple_(_after_at, _after_id),
        _wanted(approvals.c.status, "status"),
        or_(
            bindparam("run_or_none", type_=UUID(as_uuid=True)).is_(None),
            approvals.c.run_id == bindparam("run_or_none", type_=UUID(as_uuid=True)),
        ),
    )
    .order_by(approvals.c.created_at.desc(), approvals.c.approval_id.desc())
    .limit(_limit)
)
APPROVAL = _own(approvals).where(approvals.c.approval_id == bindparam("approval", type_=UUID(as_uuid=True)))
BUNDLE_OF_RUN = _own(bundles).where(bundles.c.run_id == _run).order_by(bundles.c.lines.desc()).limit(1)
WORKFLOWS = _own(
    workflows,
    workflows.c.name,
    workflows.c.version,
    workflows.c.digest,
    workflows.c.published_by,
    workflows.c.published_at,
    workflows.c.retired_at,
).order_by(workflows.c.name, workflows.c.version.desc())
POLICIES = (
    _own(
        policies,
        policies.c.name,
        policies.c.version,
        policies.c.digest,
        policies.c.published_by,
        policies.c.published_at,
        (policies.c.digest == tenants.c.policy_digest).label("active"),
    )
    .join_from(policies, tenants, policies.c.tenant_id == tenants.c.tenant_id)
    .order_by(policies.c.published_at.desc(), policies.c.digest)
)
ACTIVE_POLICY = (
    _own(policies)
    .join_from(policies, tenants, policies.c.tenant_id == tenants.c.tenant_id)
    .where(policies.c.digest == tenants.c.policy_digest)
)
TENANT = _own(tenants)
COUNTS = _own(runs, runs.c.status, func.count().label("count")).group_by(runs.c.status)
