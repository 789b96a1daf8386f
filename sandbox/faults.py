"""Faults on demand: repeatable failures of a network or of a busy system.

A fault is *lost* if the stand-in never performed the request, *landed* if it did and only the answer went missing.
A client cannot tell the two apart, so tests use both to show that the client assumes neither.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox.server import RESET_EXTENSION
from sandbox.watch import Watched


class FaultKind(StrEnum):
    STATUS = "status"  # answer with a status of our choice
    HANG = "hang"  # never answer
    RESET = "reset"  # break the connection
    DELAY = "delay"  # give the real answer, but late


class Effect(StrEnum):
    LOST = "lost"  # the fault comes before the effect; a delayed request still has its effect, after the delay
    LANDED = "landed"  # the fault comes after the effect


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault for requests that match the method (or ``*``) and the path (a regular expression, searched).

    It hits ``times`` requests (0: all) after letting the first ``skip`` matching ones pass. ``body``: the JSON answer;
    None means the body that the real system would send with this status.
    """

    path: str
    kind: FaultKind = FaultKind.STATUS
    effect: Effect = Effect.LOST
    method: str = "*"
    times: int = 1
    skip: int = 0
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    delay_ms: int = 0

    def __post_init__(self) -> None:
        re.compile(self.path)
        if not 200 <= self.status <= 599:
            raise ValueError(f"status: {self.status} is not an HTTP status between 200 and 599")
        if min(self.times, self.skip, self.delay_ms) < 0:
            raise ValueError("times, skip and delay_ms cannot be negative")

    def matches(self, method: str, path: str) -> bool:
        return self.method in ("*", method) and re.search(self.path, path) is not None


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the stand-in received it, in order of arrival."""

    method: str
    path: str
    fault: str = ""


@dataclass(slots=True)
class _Armed:
    fault: Fault
    seen: int = 0
    hit: int = 0

    @property
    def spent(self) -> bool:
        return bool(self.fault.times) and self.hit >= self.fault.times


class FaultTable(Watched):
    """The pending faults of one stand-in, and the calls that it received. The fault injected first is matched first."""

    def __init__(self, error_body: Callable[[int], dict[str, object]], *, only: str) -> None:
        """Start without faults. ``error_body``: the real system's body for a status. ``only``: its paths."""
        super().__init__()
        self.error_body = error_body
        self.only = re.compile(only)
        self.calls: list[Call] = []
        self.released = asyncio.Event()
        self._armed: list[_Armed] = []
        # The effect on requests that no pending fault matches, such as a delay. It is not recorded as a fault.
        self.otherwise: Callable[[str, str], Fault | None] = lambda _method, _path: None

    def inject(self, fault: Fault) -> None:
        self._armed.append(_Armed(fault))

    def clear(self) -> None:
        """Remove all faults, and release the hanging requests."""
        self._armed.clear()
        self.released.set()
        self.released = asyncio.Event()

    @property
    def pending(self) -> int:
        return len(self._armed)

    def take(self, method: str, path: str) -> Fault | None:
        """Record the call, and return the fault that hits it, if any."""
        chosen: Fault | None = None
        for armed in self._armed:
            if not armed.fault.matches(method, path):
                continue
            armed.seen += 1
            if armed.seen > armed.fault.skip:
                armed.hit += 1
                chosen = armed.fault
                break
        self._armed = [armed for armed in self._armed if not armed.spent]
        self.calls.append(Call(method, path, f"{chosen.kind} {chosen.effect}" if chosen else ""))
        self.changed()
        return chosen or self.otherwise(method, path)

    def count(self, path: str, method: str = "*") -> int:
        """Count the calls whose path matches the regular expression."""
        return sum(1 for call in self.calls if method in ("*", call.method) and re.search(path, call.path))


class FaultMiddleware:
    """Applies faults. Plain ASGI, so that for a landed fault the application finishes and its answer is withheld."""

    def __init__(self, app: ASGIApp, table: FaultTable) -> None:
        self._app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._table.only.match(scope["path"]):
            await self._app(scope, receive, send)
            return
        fault = self._table.take(scope["method"], scope["path"])
        if fault is None:
            await self._app(scope, receive, send)
            return
        receive = await _arrived(receive)
        if fault.kind is FaultKind.DELAY:
            await self._late(fault, scope, receive, send)
        else:
            if fault.effect is Effect.LANDED:
                await self._app(scope, receive, _drop)
            await self._answer(fault, scope, receive, send)

    async def _late(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = fault.delay_ms / 1000
        if fault.effect is Effect.LOST:
            await asyncio.sleep(seconds)
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, keep)
        await asyncio.sleep(seconds)
        for message in messages:
            await send(message)

    async def _answer(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        if fault.kind is FaultKind.STATUS:
            body = self._table.error_body(fault.status) if fault.body is None else dict(fault.body)
            await JSONResponse(body, fault.status, headers=dict(fault.headers))(scope, receive, send)
            return
        if fault.kind is FaultKind.HANG:
            await self._hang(receive)
        scope["extensions"][RESET_EXTENSION]["reset"]()
        await _disconnected(receive)

    async def _hang(self, receive: Receive) -> None:
        """Wait until the client disconnects or the table is cleared."""
        disconnected = asyncio.create_task(_disconnected(receive))
        released = asyncio.create_task(self._table.released.wait())
        _, waiting = await asyncio.wait({disconnected, released}, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _arrived(receive: Receive) -> Receive:
    """Wait for the whole request, so that its effect no longer depends on the client staying connected."""
    messages: list[Message] = []
    while not messages or (messages[-1]["type"] == "http.request" and messages[-1].get("more_body")):
        messages.append(await receive())
    messages.reverse()

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def _drop(_message: Message) -> None:
    """Drop the answer of a landed fault."""


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def fault_from_json(data: object) -> Fault:
    """Parse a fault of ``POST /_sandbox/faults``, which has the fields of Fault. ValueError names the mistake."""
    if not isinstance(data, dict):
        raise ValueError("a fault is a JSON object")
    known = set(Fault.__dataclass_fields__)
    if unknown := set(data) - known:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}; a fault has {', '.join(sorted(known))}")
    if not isinstance(data.get("path"), str):
        raise ValueError("path: a regular expression is needed, such as ^/api/now/table/incident")
    values = dict(data)
    values["kind"] = FaultKind(values.get("kind", FaultKind.STATUS))
    values["effect"] = Effect(values.get("effect", Effect.LOST))
    try:
        return Fault(**values)
    except (TypeError, re.error) as error:
        raise ValueError(str(error)) from error


async def faults_endpoint(request: Request, table: FaultTable) -> Response:
    """Serve the table. GET: the calls so far and the number of pending faults. POST: inject a fault. DELETE: clear."""
    if request.method == "DELETE":
        table.clear()
    elif request.method == "POST":
        try:
            table.inject(fault_from_json(json.loads(await request.body())))
        except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors too
            return JSONResponse({"error": str(error)}, 400)
    calls = [{"method": call.method, "path": call.path, "fault": call.fault} for call in table.calls]
    return JSONResponse({"pending": table.pending, "calls": calls})
