"""Signals: what the outside says to a run that waits (V-10, X-7, X-16, X-17, P-5, P-11).

A signal is kept in the inbox under its own id before anything is made of it. It completes the oldest wait with its
correlation key; one that comes before its wait exists is kept and delivered when it does. The end of a child run takes
the same way. Whatever is late, stale or repeated changes nothing, and is on record.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from core.canonical import JsonObject, digest
from core.db import Connection, Database
from core.errors import InputError
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine.finish import check_text, unfit
from runtime.engine.states import WaitKind
from runtime.requests.resuming import Moved, end_wait, persistently
from runtime.store import audit, notices
from runtime.store.notices import Found
from runtime.store.views import step_is_over

KEY_CHARACTERS_MAX = 500
ID_CHARACTERS_MAX = 200

SIGNAL = "signal"
RUN = "run"
# Which waits what comes from where may end: nobody outside speaks for a child run or for a person.
_KINDS = {SIGNAL: (WaitKind.SIGNAL, WaitKind.EXTERNAL), RUN: (WaitKind.CHILD,)}


class SignalCode(StrEnum):
    """What became of a signal."""

    DELIVERED = "delivered"
    KEPT = "kept"
    LATE = "late"
    STALE = "stale"
    VERSION = "version"


class Signal(Struct, frozen=True):
    """What was said: ``output``, or ``error`` with ``code`` and ``message``.

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
    """What became of it. ``repeated`` says that it was known before."""

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
        kinds = _KINDS[signal.source]
        found = await notices.find(connection, signal.tenant_id, signal.correlation_key, kinds)
        if found is None:
            return SignalAnswer(SignalCode.KEPT)
        if not found.waiting:
            # The name of a signal may be waited for again; what a run began outside is over with its step.
            place = (signal.tenant_id, found.run_id, found.step_key)
            late = found.kind != WaitKind.SIGNAL and await step_is_over(connection, *place, self.definitions.graphs)
            return await self._ignored(connection, signal, SignalCode.LATE, found) if late else _kept(found)
        if signal.token is not None and signal.token != found.token:
            return await self._ignored(connection, signal, SignalCode.STALE, found)
        if signal.version is not None and signal.version != found.run_version:
            return await self._ignored(connection, signal, SignalCode.VERSION, found)
        if not found.parked:
            return _kept(found)
        return await self._complete(connection, signal, found, lock=lock)

    async def _complete(self, connection: Connection, signal: Signal, found: Found, *, lock: bool) -> SignalAnswer:
        result: JsonObject = {"output": signal.output} if signal.error is None else {"error": signal.error}
        place = (found.run_id, found.step_key, found.wait_id)
        strict = signal.version is not None
        said_to = (connection, self.definitions, signal.tenant_id, place)
        await end_wait(*said_to, result, signal.actor, lock=lock, strict=strict)
        return await self._note(connection, signal, SignalCode.DELIVERED, found)

    async def _ignored(self, connection: Connection, signal: Signal, code: SignalCode, found: Found) -> SignalAnswer:
        facts: JsonObject = {"signal": signal.id, "code": str(code), "run": str(found.run_id), "source": signal.source}
        await audit.record(connection, signal.tenant_id, EventType.SIGNAL_IGNORED, signal.actor, facts)
        return await self._note(connection, signal, code, found)

    async def _note(self, connection: Connection, signal: Signal, code: SignalCode, found: Found) -> SignalAnswer:
        result: JsonObject = {"code": str(code), "run": str(found.run_id), "step": found.step_key}
        await notices.processed(connection, signal.tenant_id, signal.source, signal.id, result)
        return _answer(result)


def _kept(found: Found) -> SignalAnswer:
    return SignalAnswer(SignalCode.KEPT, run_id=found.run_id, step=found.step_key)


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
