"""Applies one verb (retry, cancel, pause) to many runs that a filter finds: first a plan, then a result for each run.

The plan applies the verb to each run in a transaction that is rolled back: so it knows exactly for which runs the verb
fails, and why. Each run has its own transaction when the plan is carried out, too: a failure stops no other run. A
crash leaves the later runs as they were, and a repeated request finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from core.canonical import check_text
from core.db import Connection, Database
from core.errors import AuthorizationError, ConsistencyError, InputError, NotFoundError
from core.terms import Stopped
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine.model.states import RUN, RunState
from runtime.requests import pausing
from runtime.requests.finding import of_person
from runtime.requests.steering import cancel_run, retry_run
from runtime.store import read_models

RUNS_MAX = 10_000
PAGE = 500
PARALLEL = 4
# The word for the status of a run that has failed for good.
FAILED = "failed"


class Verb(StrEnum):
    """An action on each run."""

    RETRY = "retry"
    CANCEL = "cancel"
    PAUSE = "pause"


KEYS = ("status", "workflow", "version", "reference", "requested-by", "error", "after", "before")


class Where(Struct, frozen=True):
    """A filter of runs. ``error`` is the code of their failure; ``after`` and ``before`` bound their start.

    ``going``: only open runs.
    """

    status: str | None = None
    workflow: str | None = None
    version: int | None = None
    reference: str | None = None
    requested_by: str | None = None
    error: str | None = None
    after: datetime | None = None
    before: datetime | None = None
    going: bool = False

    def fits(self, row: Mapping[str, Any]) -> bool:
        """True if a row fits those conditions of the filter that the database did not check."""
        return (
            (self.version is None or row["workflow_version"] == self.version)
            and (self.error is None or (row["error"] or {}).get("code") == self.error)
            and (self.after is None or row["created_at"] >= self.after)
            and (self.before is None or row["created_at"] < self.before)
            and not (self.going and row["finished_at"] is not None)
        )


# A function that acts on one run inside a transaction, and returns the outcome in words.
Steer: TypeAlias = Callable[[Connection, Definitions, str, UUID, Actor, str], Awaitable[str]]


class Result(Struct, frozen=True):
    """The plan or result for one run: ``ok``, and in ``says`` its status afterwards, or the reason of the failure."""

    run_id: UUID
    reference: str
    workflow: str
    was: str
    ok: bool
    says: str


def where_of(texts: Sequence[str]) -> Where:
    """Parse a filter from one or more texts such as ``status=failed``. ``InputError`` names what is wrong."""
    found: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or key not in KEYS or not value or key in found:
            remedy = f"Write KEY=VALUE, each once: {', '.join(KEYS)}."
            raise InputError(f"{text!r} is no filter.", where="where", remedy=remedy)
        found[key] = _value(key, value)
    if not found:
        raise InputError("is empty.", where="where", remedy="Say which runs: --where status=failed, or workflow=NAME.")
    return Where(**{key.replace("-", "_"): value for key, value in found.items()})


def _value(key: str, text: str) -> Any:
    check_text(text, key)
    try:
        if key in ("after", "before"):
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                raise ValueError
            return moment
        if key == "version":
            return int(text)
    except ValueError:
        remedy = "Such as 2026-11-01T00:00:00Z." if key != "version" else "Such as 2."
        raise InputError(f"{text!r} is none.", where=key, remedy=remedy) from None
    if key == "status":
        text = RunState.FAILED_TERMINAL if text == FAILED else text
        if text not in list(RunState):
            raise InputError(f"{text!r} is no status.", where=key, remedy=f"One of {', '.join(RunState)}, {FAILED}.")
    return text


async def plan(
    database: Database,
    definitions: Definitions,
    tenant: str,
    verb: Verb | Steer,
    where: Where,
    actor: Actor,
    reason: str,
    most: int = RUNS_MAX,
) -> list[Result]:
    """Work out for each run, the oldest first, what the verb would do; change nothing.

    ``InputError`` if the filter finds more than ``most``, or without a reason.
    """
    check_text(reason, "reason")
    if not reason.strip():
        raise InputError("is empty.", where="reason", remedy="Say why; each run's book keeps it.")
    rows = await _rows(database, tenant, where, most)
    results = list[Result]()
    for some in _chunks(rows):
        trying = (_try(database, definitions, tenant, verb, row, actor, reason, undo=True) for row in some)
        results += await asyncio.gather(*trying)
    return results


async def carry_out(
    database: Database,
    definitions: Definitions,
    tenant: str,
    verb: Verb | Steer,
    planned: Sequence[Result],
    actor: Actor,
    reason: str,
) -> AsyncIterator[Result]:
    """Carry the plan out for each run that is ``ok``, and yield each result; other runs are yielded as planned."""

    async def act(one: Result) -> Result:
        if not one.ok:
            return one
        row = {"run_id": one.run_id, "reference": one.reference, "workflow": one.workflow, "status": one.was}
        return await _try(database, definitions, tenant, verb, row, actor, reason, undo=False)

    for some in _chunks(planned):
        for result in await asyncio.gather(*map(act, some)):
            yield result


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the rows in groups of those that are worked on at the same time."""
    for begin in range(0, len(rows), PARALLEL):
        yield rows[begin : begin + PARALLEL]


async def _rows(database: Database, tenant: str, where: Where, most: int) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    async with database.transaction(tenant) as connection:
        wanted = read_models.RunFilter(where.status, where.workflow, where.reference)
        wanted = await of_person(connection, tenant, wanted, where.requested_by)
        after: tuple[Any, ...] = ()
        while rows := await read_models.runs_page(connection, tenant, wanted, PAGE, *after):
            found += [row for row in rows if where.fits(row)]
            after = (rows[-1]["created_at"], rows[-1]["run_id"])
            if len(found) > most:
                raise InputError(f"finds more than {most} runs.", where="where", remedy="Narrow it, as by before.")
    return found[::-1]


class _Undone(Exception):
    """Raised to roll back the transaction of a plan."""


async def _try(
    database: Database,
    definitions: Definitions,
    tenant: str,
    verb: Verb | Steer,
    row: Mapping[str, Any],
    actor: Actor,
    reason: str,
    *,
    undo: bool,
) -> Result:
    result = Result(row["run_id"], row["reference"], row["workflow"], row["status"], True, "")
    try:
        if verb is Verb.PAUSE:
            return replace(result, says=await _pause(database, definitions, tenant, result, actor, reason, undo=undo))
        status = ""
        try:
            async with database.transaction(tenant) as connection:
                steer = _STEERS[verb] if isinstance(verb, Verb) else verb
                status = str(await steer(connection, definitions, tenant, result.run_id, actor, reason))
                if undo:
                    raise _Undone
        except _Undone:
            pass
        return replace(result, says=status)
    except (asyncpg.TransactionRollbackError, asyncpg.LockNotAvailableError):
        return replace(result, ok=False, says="Somebody else is working on it at this moment. Try it again.")
    except (ConsistencyError, NotFoundError, AuthorizationError, InputError) as error:
        return replace(result, ok=False, says=" ".join(str(error).split()))


async def _pause(
    database: Database, definitions: Definitions, tenant: str, result: Result, actor: Actor, reason: str, *, undo: bool
) -> str:
    if RunState(result.was) in RUN.terminal:
        raise ConsistencyError(f"The run is {result.was}; there is nothing left to pause.")
    if not undo:
        what = (tenant, Stopped.RUN, str(result.run_id), reason, actor)
        changed = (await pausing.pause(database, definitions, *what)).changed
        return "paused" if changed else "was paused already"
    return "paused"


_STEERS: Mapping[Verb, Steer] = {Verb.RETRY: retry_run, Verb.CANCEL: cancel_run}
