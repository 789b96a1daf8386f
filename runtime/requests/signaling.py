"""Signals: what the outside says to a run that waits (V-10, X-7, X-16, X-17, P-5, P-11).

A signal is kept in the inbox under its own id before anything is made of it. It completes the oldest wait with its
correlation key; one that comes before its wait exists is kept and delivered when it does. The end of a child run takes
the same way. Whatever is late, stale or repeated changes nothing, and is on record. A completed task ends its wait like
a signal: under the run's lock, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
from msgspec import Struct

from core.canonical import JsonObject, digest
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine import waits
from runtime.engine.finish import check_text, unfit
from runtime.engine.moves import open_wait
from runtime.engine.states import StepState, WaitKind
from runtime.engine.transition import Transition
from runtime.store import audit, faces, notices
from runtime.store.notices import Found
from runtime.store.views import load, step_is_over

Answer = TypeVar("Answer")

CONFLICTS_MAX = 20
KEY_CHARACTERS_MAX = 500
ID_CHARACTERS_MAX = 200

SIGNAL = "signal"
RUN = "run"
# Which waits what comes from where may end: nobody outside speaks for a child run or for a person.
_KINDS = {SIGNAL: (WaitKind.SIGNAL, WaitKind.EXTERNAL), RUN: (WaitKind.CHILD,)}


class SignalCode(StrEnum):
    """The outcome of a signal."""

    DELIVERED = "delivered"
    KEPT = "kept"
    LATE = "late"
    STALE = "stale"
    VERSION = "version"


class Signal(Struct, frozen=True):
    """The content of a signal: ``output``, or ``error`` with ``code`` and ``message``.

    ``id`` is the sender's: the same one said again is one. ``token`` and ``version`` must be those of the wait and of
    its run where they are given.
    """

    tenant_id: str
    correlation_key: str
    id: str
    actor: Actor
    output: Any = None
    error: JsonObject | None = None
    token: str | None = None
    version: int | None = None
    source: str = SIGNAL


class SignalAnswer(Struct, frozen=True):
    """The answer to a signal. ``repeated`` says that it was known before."""

    code: SignalCode
    repeated: bool = False
    run_id: UUID | None = None
    step: str | None = None


def default_id(correlation_key: str, said: Mapping[str, Any]) -> str:
    """The id of a signal that its sender gave none: SHA-256 over the key and all that was said (V-10).

    So a repeated delivery is one signal. ``InputError`` if what was said has no canonical form: it could not be
    recorded either.
    """
    return digest({**said, "key": correlation_key})


class Signaling(Struct, frozen=True):
    """Delivers signals, under the faces' role or the engine's."""

    database: Database
    definitions: Definitions

    async def signal(self, signal: Signal) -> SignalAnswer:
        """Keep the signal and act on it. When this returns, it is committed; repeating it is harmless."""
        _check(signal)

        async def attempt(lock: bool) -> SignalAnswer:
            async with self.database.transaction(signal.tenant_id) as connection:
                return await self._receive(connection, signal, lock=lock)

        return await persistently(attempt)

    async def deliver_kept(self) -> int:
        """Deliver what came before its wait; how many were. For the sweeper."""
        async with self.database.connection() as connection:
            found = await notices.kept(connection)
        return sum([await self._deliver_again(*key) for key in found])

    async def _deliver_again(self, tenant: str, source: str, notice_id: str) -> bool:
        try:
            async with self.database.transaction(tenant) as connection:
                notice = await notices.read(connection, tenant, source, notice_id)
                if notice is None or notice.processed:
                    return False
                signal = _from_payload(tenant, source, notice_id, notice.correlation_key or "", notice.payload)
                return (await self._act(connection, signal, lock=True)).code is not SignalCode.KEPT
        except (Moved, asyncpg.TransactionRollbackError):
            return False

    async def _receive(self, connection: Connection, signal: Signal, *, lock: bool) -> SignalAnswer:
        named = (signal.tenant_id, signal.source, signal.id)
        if not await notices.record(connection, *named, _payload(signal), signal.correlation_key):
            known = await notices.read(connection, *named)
            assert known is not None
            if known.correlation_key != signal.correlation_key:
                message = "was sent before, with another correlation key"
                raise InputError(message, where="id", remedy="Give every signal an id of its own.")
            if known.processed:
                return _answer(known.result or {}, repeated=True)
        return await self._act(connection, signal, lock=lock)

    async def _act(self, connection: Connection, signal: Signal, *, lock: bool) -> SignalAnswer:
        found = await notices.find(connection, signal.tenant_id, signal.correlation_key, _KINDS[signal.source])
        if found is None:
            return SignalAnswer(SignalCode.KEPT)
        code = None
        if not found.waiting:
            # The name of a signal may be waited for again; what a run began outside is over with its step.
            place = (signal.tenant_id, found.run_id, found.step_key)
            if found.kind != WaitKind.SIGNAL and await step_is_over(connection, *place, self.definitions.graphs):
                code = SignalCode.LATE
        elif signal.token not in (None, found.token):
            code = SignalCode.STALE
        elif signal.version not in (None, found.run_version):
            code = SignalCode.VERSION
        elif found.parked:
            result: JsonObject = {"output": signal.output} if signal.error is None else {"error": signal.error}
            said_to = (self.definitions, signal.tenant_id, (found.run_id, found.step_key, found.wait_id))
            strict = signal.version is not None
            await end_wait(connection, *said_to, result, signal.actor, lock=lock, strict=strict)
            return await self._note(connection, signal, SignalCode.DELIVERED, found)
        if code is None:
            return SignalAnswer(SignalCode.KEPT, run_id=found.run_id, step=found.step_key)
        facts: JsonObject = {"signal": signal.id, "code": str(code), "run": str(found.run_id), "source": signal.source}
        await audit.record(connection, signal.tenant_id, EventType.SIGNAL_IGNORED, signal.actor, facts)
        return await self._note(connection, signal, code, found)

    async def _note(self, connection: Connection, signal: Signal, code: SignalCode, found: Found) -> SignalAnswer:
        result: JsonObject = {"code": str(code), "run": str(found.run_id), "step": found.step_key}
        await notices.processed(connection, signal.tenant_id, signal.source, signal.id, result)
        return _answer(result)


def _answer(result: Mapping[str, Any], *, repeated: bool = False) -> SignalAnswer:
    return SignalAnswer(SignalCode(result["code"]), repeated, UUID(result["run"]), result["step"])


def _check(signal: Signal) -> None:
    texts = (("key", signal.correlation_key, KEY_CHARACTERS_MAX), ("id", signal.id, ID_CHARACTERS_MAX))
    for where, text, limit in texts:
        check_text(text, where)
        if not text or len(text) > limit:
            raise InputError(f"is empty or longer than {limit} characters", where=where)
    if problem := unfit(signal.output, "The output") or unfit(signal.error, "The error"):
        raise InputError(problem, where="output" if signal.error is None else "error")


def _payload(signal: Signal) -> JsonObject:
    actor: JsonObject = {"kind": signal.actor.kind, "id": signal.actor.id}
    said: JsonObject = {"output": signal.output, "error": signal.error, "token": signal.token}
    return {**said, "version": signal.version, "actor": actor}


def _from_payload(tenant: str, source: str, notice_id: str, key: str, payload: Any) -> Signal:
    actor = Actor(payload["actor"]["kind"], payload["actor"]["id"])
    # A version that a kept signal expected is that of a run which did not wait yet: it says nothing any more.
    return Signal(tenant, key, notice_id, actor, payload["output"], payload["error"], payload["token"], None, source)


class Moved(Exception):
    """The run has moved on since it was looked at: all is undone and looked at again."""


async def persistently(attempt: Callable[[bool], Awaitable[Answer]]) -> Answer:
    """Try until the run holds still; from the second time on with its lock (the argument), so that it has to."""
    for number in range(CONFLICTS_MAX):
        try:
            return await attempt(number > 0)
        except (Moved, asyncpg.TransactionRollbackError):
            continue
    raise ConsistencyError("The run moves too fast to record this.", remedy="Try again.")


async def end_wait(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    place: tuple[UUID, str, UUID],
    result: JsonObject,
    actor: Actor,
    *,
    lock: bool,
    strict: bool = False,
) -> bool:
    """Complete the wait at ``place`` (run, step key, wait) in the caller's transaction. ``Moved`` if it is not there.

    It commutes with what is told of other steps meanwhile, unless it is ``strict``: said of one version of the run.
    False for a task that asks something else by now: it is put anew, and what was said is not taken. A crash before the
    commit leaves nothing, and whoever said it repeats it; after it, the run has resumed.
    """
    run_id, step_key, wait_id = place
    view = await load(connection, run_id, definitions.graphs, lock=lock, tenant=tenant)
    step, wait = view.run.steps.get(step_key), open_wait(view.run, step_key)
    if step is None or wait is None or wait.wait_id != wait_id or step.status is not StepState.WAITING:
        raise Moved
    workflow = await definitions.of_run(connection, view.definition)
    transition = Transition(view, workflow.graph)
    taken = waits.still_asks(transition, step, wait)
    if taken:
        waits.complete(transition, step, wait, result, actor)
    else:
        waits.ask_anew(transition, step, wait, actor)
    if not await faces.append(connection, transition.commit(), answers=None if strict else step_key):
        raise Moved
    return taken
