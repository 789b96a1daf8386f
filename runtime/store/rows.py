"""Holding the rows of a run against the run that its book comes to: fold(journal) == tables (promise 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from core.canonical import canonical_bytes
from core.db import Connection
from runtime.kernel.run import Run
from runtime.kernel.states import StepState

# Rows by what names them, each a mapping from column to value.
Rows: TypeAlias = "Mapping[str, Mapping[str, Any]]"

_RUN = """
SELECT status, superstep, executing, width, writes, reference, extensions, error, canceling, result FROM runs
WHERE run_id = $1"""
_STEPS = """
SELECT step_key, step_index, operation, superstep, status, attempt, idempotency_key, lease_epoch, output, writes, usage,
  last_error, CASE WHEN status = 'running' THEN lease_owner END AS lease_owner
FROM steps WHERE run_id = $1"""
_WAITS = """
SELECT wait_id::text, step_key, kind, status, token, correlation_key, context, result FROM waits WHERE run_id = $1"""
_RECEIPTS = """
SELECT receipt_id::text, step_key, operation, target, idempotency_key, action_digest, action, status, attempt,
  lease_epoch, reversible, reverse, external_id, output, usage, resolution, error
FROM receipts WHERE run_id = $1"""
_APPROVALS = """
SELECT approval_id::text, step_key, kind, action_digest, nonce, tier, terms, requester, card, action, status, choice,
  reason, escalated, consumed_at IS NOT NULL AS consumed
FROM approvals WHERE run_id = $1"""
_VOTES = """
SELECT v.approval_id || ' ' || v.person_id AS vote, v.choice, v.reason, v.groups, v.channel
FROM votes v JOIN approvals a USING (approval_id) WHERE a.run_id = $1"""
_DECISIONS = """
SELECT decision_id::text, step_key, operation, action_digest, outcome, policy_digest, rules, errors, reasons, facts
FROM decisions WHERE run_id = $1"""
_LEDGER = """
SELECT superstep || ' ' || step_key || ' ' || channel AS entry, value FROM ledger WHERE run_id = $1"""
_MUTATIONS = "SELECT number::text, actor, source, operations FROM mutations WHERE run_id = $1"


async def difference_of_rows(connection: Connection, run: Run) -> str | None:
    """The first row that is not what the run says, in words; None if all are.

    A failed receipt may have given its key up to another run that shares the effect: its own id follows the key then.
    """
    for what, statement, expected in _tables(run):
        stored = {str(row[0]): dict(list(row.items())[1:]) for row in await connection.fetch(statement, run.run_id)}
        for name in sorted(stored.keys() | expected.keys()):
            if name not in stored or name not in expected:
                return f"The {what} {name} is {'not stored' if name in expected else 'stored, and in no line'}."
            for column, value in expected[name].items():
                if not _same(stored[name][column], value) and stored[name][column] != f"{value}:{name}":
                    place = f" of {expected[name]['step_key']}" if "step_key" in expected[name] else ""
                    return f"The {column} of the {what} {name}{place} is not what its lines tell."
    return None


def _tables(run: Run) -> Iterator[tuple[str, str, Rows]]:
    yield "run", _RUN.replace("SELECT", "SELECT run_id::text,"), {str(run.run_id): _run(run)}
    yield "step", _STEPS, {step.key: _step(step) for step in [*run.past.values(), *run.steps.values()]}
    yield (
        "wait",
        _WAITS,
        _by(run.waits.values(), "wait_id", "step_key kind status token correlation_key context result"),
    )
    yield "receipt", _RECEIPTS, _by(run.receipts.values(), "receipt_id", _RECEIPT)
    yield "approval", _APPROVALS, {str(key): _approval(run, key) for key in run.approvals}
    yield "vote", _VOTES, {f"{vote.approval_id} {vote.person_id}": _columns(vote, _VOTE) for vote in run.votes}
    yield "decision", _DECISIONS, _by(run.decisions, "decision_id", _DECISION)
    entries = {f"{row.superstep} {row.step_key} {row.channel}": {"value": row.value} for row in run.ledger}
    yield "entry of the ledger", _LEDGER, entries
    yield "extension", _MUTATIONS, _by(run.mutations, "number", "actor source operations")


_RECEIPT = (
    "step_key operation target idempotency_key action_digest action status attempt lease_epoch reversible reverse "
    "external_id output usage resolution error"
)
_APPROVAL = "step_key kind action_digest nonce tier terms requester card action"
_VOTE = "choice reason groups channel"
_DECISION = "step_key operation action_digest outcome policy_digest rules errors reasons facts"
_STEP = "operation superstep status attempt idempotency_key lease_epoch output writes usage last_error"


def _columns(row: Any, names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names.split()}


def _by(rows: Iterable[Any], key: str, names: str) -> Rows:
    return {str(getattr(row, key)): _columns(row, names) for row in rows}


def _run(run: Run) -> Mapping[str, Any]:
    names = "status superstep executing width writes reference extensions error canceling result"
    return _columns(run, names)


def _step(step: Any) -> Mapping[str, Any]:
    owner = step.lease_owner if step.status is StepState.RUNNING else None
    return {"step_index": step.index, **_columns(step, _STEP), "lease_owner": owner}


def _approval(run: Run, key: Any) -> Mapping[str, Any]:
    answer = run.answers[key]
    return {**_columns(run.approvals[key], _APPROVAL), **_columns(answer, "status choice reason escalated consumed")}


def _same(stored: Any, expected: Any) -> bool:
    return stored == expected or canonical_bytes(stored) == canonical_bytes(expected)
