"""Delivers signals: messages of outside systems to a run that waits.

A signal is stored in the inbox under its own id before it is acted on. It completes the oldest wait with its
correlation key. A signal that comes before its wait is kept for ``inbox.KEPT_FOR``, and delivered once the wait exists.
If a run has waited for its key before, the signal is for that run; if that run is over, it is for any run that exists
then, so it never ends a wait of a later run. A signal with a token or a version names one wait: it ends that wait, or
nothing. The end of a child run is delivered in the same way. A late, stale or repeated signal changes nothing, and is
recorded. A completed task ends its wait like a signal: once, under the run's lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from connectors.port import SOMEBODY
from core.action import SideEffects
from core.canonical import JsonObject, check_text, digest, unfit
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError
from core.identity import Directory, Kind, Standing, principal
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine.book.contributors import written_by
from runtime.engine.book.draft import ENGINE
from runtime.engine.book.instructions import open_wait
from runtime.engine.life import waits
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import WaitRow
from runtime.engine.model.states import StepState, WaitKind
from runtime.engine.model.workflow import Workflow
from runtime.requests.child_runs import origins_of, used_within
from runtime.store import audit, effects, faces, inbox, runs
from runtime.store.inbox import FoundWait, Notice
from runtime.store.views import load, step_is_over

Answer = TypeVar("Answer")

CONFLICTS_MAX = 20
KEY_CHARACTERS_MAX = 500
ID_CHARACTERS_MAX = 200

SIGNAL = "signal"
OF_RUNS = "run"
# The kinds of actors that the directory knows as people or service accounts.
TELLERS = ("token", "person", "slack")
# The kinds of waits that a signal from each source may end: nobody outside may answer for a child run or a person.
_KINDS = {SIGNAL: (WaitKind.SIGNAL, WaitKind.EXTERNAL), OF_RUNS: (WaitKind.CHILD,)}


class SignalCode(StrEnum):
    """The outcome of a signal.

    ``already_ended``: its wait is known, and over. ``stale``: no wait has its token or version.
    """

    DELIVERED = "delivered"
    KEPT = "kept"
    ENDED = "already_ended"
    STALE = "stale"
    DUPLICATE = "duplicate"
    EXPIRED = "expired"


class Signal(Struct, frozen=True):
    """The content of a signal: ``output``, or ``error`` with ``code`` and ``message``.

    ``id`` is the sender's id for it, by which repeated deliveries are found. Without it, the digest of key and content
    is the id. If ``token`` or ``version`` is given, it must be the wait's: the version is that of the commit that
    opened the wait. A signal that names a wait is for that wait only, and is never kept for another. ``writers`` are
    the people who worked in the ended process, as principals; None if the sender itself produced the content.
    """

    tenant_id: str
    correlation_key: str
    id: str | None
    actor: Actor
    output: Any = None
    error: JsonObject | None = None
    token: str | None = None
    version: int | None = None
    source: str = SIGNAL
    writers: tuple[str, ...] | None = None


class SignalAnswer(Struct, frozen=True):
    """The answer to a signal. ``repeated``: this signal came before.

    A ``duplicate`` is a signal without an id that equals the last one while another wait is open: it has ended no wait.
    """

    code: SignalCode
    id: str
    repeated: bool = False
    run_id: UUID | None = None
    step: str | None = None


class Signaling(Struct, frozen=True):
    """Delivers signals, under the faces' role or the engine's."""

    database: Database
    definitions: Definitions

    async def signal(self, signal: Signal) -> SignalAnswer:
        """Store the signal and act on it. When this returns, all is committed; a repeated call is harmless.

        ``InputError`` if it has no canonical form, because then it could not be recorded.
        """
        _check(signal)
        key: JsonObject = {"key": signal.correlation_key}
        sent = signal if signal.id else replace(signal, id=digest({**_content(signal), **key}))

        async def attempt(lock: bool) -> SignalAnswer:
            async with self.database.transaction(signal.tenant_id) as connection:
                return await self._receive(connection, sent, named=signal.id is not None, lock=lock)

        return await persistently(attempt)

    async def deliver(self, stored: inbox.StoredSignal) -> bool:
        """Deliver a signal that came before its wait, or drop one that found no wait in time. For the sweeper.

        It is one transaction: a crash leaves the signal kept, and the next sweep takes it up again.
        """
        named = (stored.tenant_id, stored.source, stored.notification_id)
        try:
            async with self.database.transaction(stored.tenant_id) as connection:
                notice = await inbox.read(connection, *named)
                if notice is None or notice.processed:
                    return False
                if stored.run_id is None:
                    # Its content may have been purged with the run that it was meant for.
                    place = (stored.tenant_id, notice.correlation_key or "", stored.notification_id)
                    ended = Signal(*place, ENGINE, source=stored.source)
                    await self._end(connection, ended, SignalCode.EXPIRED, None)
                    await inbox.empty(connection, *named)
                    return True
                answer = await self._act(connection, _kept_as(*named, notice), notice, lock=True)
                return answer.code is not SignalCode.KEPT
        except (Moved, asyncpg.TransactionRollbackError):
            return False

    async def _receive(self, connection: Connection, signal: Signal, *, named: bool, lock: bool) -> SignalAnswer:
        place = (signal.tenant_id, signal.source, signal.id or "")
        actor: JsonObject = {"kind": signal.actor.kind, "id": signal.actor.id}
        if await inbox.record(connection, *place, {**_content(signal), "actor": actor}, signal.correlation_key):
            return await self._act(connection, signal, lock=lock)
        known = await inbox.read(connection, *place)
        assert known is not None
        if known.correlation_key != signal.correlation_key:
            message = "was sent before, with another correlation key"
            raise InputError(message, where="id", remedy="Give every signal an id of its own.")
        if known.processed:
            answer = _answer(signal, known.result or {})
        else:  # the content that was stored first counts, as in a delivery by a sweep
            answer = await self._act(connection, _kept_as(*place, known), known, lock=lock)
        if not named and not _names_a_wait(signal) and (known.processed or answer.code is SignalCode.KEPT):
            # It may be a repetition or a new signal. It ends nothing, so the sender has to be told.
            found = await self._find(connection, signal)
            if found is not None and found.waiting and (found.run_id, found.step_key) != (answer.run_id, answer.step):
                answer = replace(answer, code=SignalCode.DUPLICATE)
        return replace(answer, repeated=True)

    async def _find(self, connection: Connection, signal: Signal, stored: Notice | None = None) -> FoundWait | None:
        place = (signal.tenant_id, signal.correlation_key, _KINDS[signal.source])
        if _names_a_wait(signal):
            return await inbox.find_named(connection, *place, signal.token, signal.version)
        return await inbox.find(connection, *place, stored)

    async def _act(
        self, connection: Connection, signal: Signal, stored: Notice | None = None, *, lock: bool
    ) -> SignalAnswer:
        names, found = _names_a_wait(signal), await self._find(connection, signal, stored)
        if names and found is None:
            code = SignalCode.STALE
        elif found is None or not found.waiting:
            code = SignalCode.ENDED if names else await self._unawaited(connection, signal, found)
        elif not found.parked:
            code = SignalCode.KEPT
        else:
            result: JsonObject = {"output": signal.output} if signal.error is None else {"error": signal.error}
            said_to = (self.definitions, signal.tenant_id, (found.run_id, found.step_key, found.wait_id))
            if signal.source == OF_RUNS:
                ending = await runs.ending_of(connection, UUID(signal.correlation_key))
                result["shaped"] = [*await runs.shapers_of(connection, ending, self.definitions.graphs)]
                origins = await origins_of(connection, self.definitions, ending)
                result |= {} if origins is None else {"origins": origins}
                used = await used_within(connection, ending, found.step_key)
                result |= {} if used is None else {"used": used}
            elif found.kind == WaitKind.EXTERNAL and signal.writers is not None:
                result["shaped"] = [*written_by(found.step_key, signal.writers)]
            await end_wait(connection, *said_to, result, signal.actor, lock=lock)
            code = SignalCode.DELIVERED
        if code is not SignalCode.KEPT:
            return await self._end(connection, signal, code, found)
        if found is not None and not found.waiting and stored is None:
            left = await effects.left_by(connection, signal.tenant_id, found.wait_id)
            run = str(found.run_id) if found.going and not left else None
            await inbox.reserve_for(connection, signal.tenant_id, signal.source, signal.id or "", {"run": run})
        known = found is not None and (found.waiting or (stored is None and found.going))
        return _answer(signal, _result(code, found if known else None))

    async def _unawaited(self, connection: Connection, signal: Signal, found: FoundWait | None) -> SignalCode:
        """The code for a signal that names no wait and has none now: usually it is kept for a later wait."""
        # A run may wait for a signal's name again; but an outside process ends with its step.
        if found is not None and found.kind != WaitKind.SIGNAL:
            if await effects.left_by(connection, signal.tenant_id, found.wait_id):
                return SignalCode.KEPT  # another step that shares the effect is about to wait in its place
            place = (signal.tenant_id, found.run_id, found.step_key)
            if await step_is_over(connection, *place, self.definitions.graphs):
                return SignalCode.ENDED
        return SignalCode.KEPT

    async def _end(
        self, connection: Connection, signal: Signal, code: SignalCode, found: FoundWait | None
    ) -> SignalAnswer:
        """Store the outcome of the signal; one that ended nothing is recorded in the audit."""
        if code is not SignalCode.DELIVERED:
            facts: JsonObject = {"signal": signal.id, "code": str(code), "source": signal.source}
            if found is not None:
                facts["run"] = str(found.run_id)
            await audit.record(connection, signal.tenant_id, EventType.SIGNAL_IGNORED, signal.actor, facts)
        result = _result(code, found)
        await inbox.processed(connection, signal.tenant_id, signal.source, signal.id or "", result)
        return _answer(signal, result)


def _names_a_wait(signal: Signal) -> bool:
    return signal.token is not None or signal.version is not None


def _result(code: SignalCode, found: FoundWait | None) -> JsonObject:
    place = (None, None) if found is None else (str(found.run_id), found.step_key)
    return {"code": str(code), **dict(zip(("run", "step"), place, strict=True))}


def _answer(signal: Signal, result: Mapping[str, Any]) -> SignalAnswer:
    run = result["run"] and UUID(result["run"])
    return SignalAnswer(SignalCode(result["code"]), signal.id or "", False, run, result["step"])


def _check(signal: Signal) -> None:
    texts = (("key", signal.correlation_key, KEY_CHARACTERS_MAX), ("id", signal.id, ID_CHARACTERS_MAX))
    for where, text, limit in texts:
        if text is None:
            continue
        check_text(text, where)
        if not text or len(text) > limit:
            raise InputError(f"is empty or longer than {limit} characters", where=where)
    if problem := unfit(signal.output, "The output") or unfit(signal.error, "The error"):
        raise InputError(problem, where="output" if signal.error is None else "error")


def _content(signal: Signal) -> JsonObject:
    content: JsonObject = {"output": signal.output, "error": signal.error, "token": signal.token}
    content["version"] = signal.version
    return content if signal.writers is None else {**content, "writers": [*signal.writers]}


def _kept_as(tenant: str, source: str, notice_id: str, notice: inbox.Notice) -> Signal:
    payload, actor = notice.payload, Actor(**notice.payload["actor"])
    values = (payload["output"], payload["error"], payload["token"], payload["version"])
    content = payload.get("writers")
    writers = None if content is None else tuple(map(str, content))
    return Signal(tenant, notice.correlation_key or "", notice_id, actor, *values, source, writers)


class Moved(Exception):
    """The run has moved on since it was read: the transaction is rolled back and retried."""


async def persistently(attempt: Callable[[bool], Awaitable[Answer]]) -> Answer:
    """Retry while the run moves on in between; from the second attempt on, the argument asks it to lock the run."""
    for number in range(CONFLICTS_MAX):
        with suppress(Moved, asyncpg.TransactionRollbackError):
            return await attempt(number > 0)
    raise ConsistencyError("The run changed during every attempt to record this.", remedy="Try again.")


async def end_wait(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    place: tuple[UUID, str, UUID],
    result: JsonObject,
    actor: Actor,
    *,
    lock: bool,
) -> bool:
    """Complete the wait at ``place`` (run, step key, wait) in the caller's transaction. ``Moved`` if it is not open.

    It commutes with events of other steps. False for a task that would now ask something else: the task is asked anew,
    and the answer is not taken. A crash before the commit leaves nothing, and the sender repeats; after it, the run has
    resumed.
    """
    run_id, step_key, wait_id = place
    view = await load(connection, run_id, definitions.graphs, lock=lock, tenant=tenant)
    step, wait = view.run.steps.get(step_key), open_wait(view.run, step_key)
    if step is None or wait is None or wait.wait_id != wait_id or step.status is not StepState.WAITING:
        raise Moved
    workflow = await definitions.of_run(connection, view.definition)
    transition = Transition(view, workflow.graph)
    taken = waits.still_asks(transition, step, wait)
    if taken and "shaped" not in result and _people_worked(workflow, wait, actor, view.directory):
        result = {**result, "shaped": [*written_by(step_key, SOMEBODY)]}
    if taken:
        waits.complete(transition, step, wait, result, actor)
    else:
        waits.ask_anew(transition, step, wait, actor)
    if not await faces.append(connection, transition.commit(), answers=step_key):
        raise Moved
    return taken


def _people_worked(workflow: Workflow, wait: WaitRow, actor: Actor, people: Directory) -> bool:
    """True if a machine reports the end of a process in which people work: then nobody knows who they were."""
    operation = workflow.operations.get(str((wait.context or {}).get("operation")))
    if wait.kind is not WaitKind.EXTERNAL or operation is None:
        return False
    if operation.side_effects is not SideEffects.HUMAN_PROCESS:
        return False
    entry = people.entry(principal(Kind.PERSON, actor.id)) if actor.kind in TELLERS else None
    return entry is None or entry.standing is not Standing.PERSON
