"""Compares the rows that are found by keys with the run to which the book folds (promise 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from core.db import Connection
from runtime.engine.book import ends, shared_effects
from runtime.engine.book.draft import BARRIER, queued
from runtime.engine.book.recorded import Diverged
from runtime.engine.model.rows import HELD, StepRow
from runtime.engine.model.run import Run
from runtime.engine.model.states import EffectState, StepState
from runtime.store.books import same
from runtime.store.offload import offload
from runtime.store.statements import statements

# Rows by their key; each row maps columns to values.
Rows: TypeAlias = "Mapping[str, Mapping[str, Any]]"

_SQL = statements("rows")
_QUEUE = _SQL["queue"]
_WAITS = _SQL["waits"]
_APPROVALS = _SQL["approvals"]
_ENDS = _SQL["ends"]
_VOTES = _SQL["votes"]
_EFFECTS = _SQL["effects"]
_LEDGER = _SQL["ledger"]


async def check_rows(connection: Connection, run: Run) -> None:
    """Compare every row with the folded run. ``Diverged`` names the first that differs."""
    for check, what, statement, expected in _tables(run):
        await hold(connection, run.run_id, (check, what), statement, expected)
    for row in await connection.fetch(_ENDS, run.run_id):
        end = ends.end_of(run, row["approval_id"])
        if end is not None and (row["outcome"], row["why"]) != (str(end.state), end.code):
            raise Diverged(f"The end of the approval {row['approval_id']} is not what its lines tell", "approvals")


async def hold(connection: Connection, run_id: UUID, names: tuple[str, str], statement: str, expected: Rows) -> None:
    """Compare the rows of one statement with the expected ones. ``names``: the check's name, and the word for a row."""
    rows = await connection.fetch(statement, run_id)
    await offload(max(len(rows), len(expected)), lambda: compare(names, rows, expected), connection)


def compare(names: tuple[str, str], rows: Sequence[Any], expected: Rows) -> None:
    """Compare rows with the expected ones. Takes long for many rows."""
    check, what = names
    stored = {str(next(iter(row.values()))): dict(list(row.items())[1:]) for row in rows}
    for name in sorted(stored.keys() | expected.keys()):
        if name not in stored or name not in expected:
            problem = "not stored" if name in expected else "stored, and in no line"
            raise Diverged(f"The {what} {name} is {problem}", check)
        for column, value in expected[name].items():
            if not same(stored[name][column], value):
                place = f" of {expected[name]['step_key']}" if "step_key" in expected[name] else ""
                raise Diverged(f"The {column} of the {what} {name}{place} is not what its lines tell", check)


_WAIT = "step_key kind status token correlation_key context result"
_ANSWER = "status choice reason escalated consumed"
_VOTE = "choice reason groups channel on_behalf glass"


def _tables(run: Run) -> Iterator[tuple[str, str, str, Rows]]:
    if not run.finished and run.canceling is None:  # a cancel leaves locked rows until their leases end
        yield "queue", "place in the queue", _QUEUE, _places(run)
    yield "waits", "wait", _WAITS, by(run.waits.values(), "wait_id", _WAIT)
    asked = {
        str(key): {"step_key": row.step_key, **columns(run.answers[key], _ANSWER)} for key, row in run.approvals.items()
    }
    yield "approvals", "approval", _APPROVALS, asked
    votes = {f"{vote.approval_id} {vote.person_id}": columns(vote, _VOTE) for vote in run.votes}
    yield "approvals", "vote", _VOTES, votes
    yield "effects", "effect", _EFFECTS, _effects(run)
    entries = {f"{row.superstep} {row.step_key} {row.channel}": {"value": row.value} for row in run.ledger}
    yield "ledger", "entry of the ledger", _LEDGER, entries


def _effects(run: Run) -> Rows:
    """The shared effects that this run has performed and still holds."""
    held: dict[str, Mapping[str, Any]] = {}
    for receipt, life, _ in shared_effects.performed(run).values():
        if life not in (EffectState.FAILED, EffectState.LEFT):
            facts = {"step_key": receipt.step_key, "receipt_id": str(receipt.receipt_id), "status": life}
            held[receipt.idempotency_key] = facts
    return held


def columns(row: Any, names: str) -> dict[str, Any]:
    """These attributes of a row."""
    return {name: getattr(row, name) for name in names.split()}


def by(rows: Iterable[Any], key: str, names: str) -> Rows:
    """These attributes of each row, by its key."""
    return {str(getattr(row, key)): columns(row, names) for row in rows}


def _places(run: Run) -> Rows:
    """The expected rows of the queue: one for each step in line or leased, and one for a barrier to be crossed."""
    if run.width and not run.executing:
        return {BARRIER: {}}
    first = next(iter(run.state.open), None)
    return {key: _place(step) for key, step in queued(run.steps, run.status, run.superstep, first).items()}


def _place(step: StepRow) -> Mapping[str, Any]:
    if step.status is not StepState.RUNNING:
        return {"step_id": str(step.step_id)}
    return {"step_id": str(step.step_id), "status": HELD, "owner": step.lease_owner, "epoch": step.lease_epoch}
