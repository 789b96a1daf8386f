"""The gate: it drives the contract's flows, runs a tool's body under its permit, and reports what became of it.

A crash of this process between permit and report leaves the action to its lease: when that ends, the server holds it in
doubt, people find out, and there is no second permit. What sends and waits is imported when something is sent, because
the hook of a command-line agent starts for each call, and needs none of it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from inspect import isasyncgen, isawaitable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from counterseal_agents import contract
from counterseal_agents.canonical import Json, as_json, canonical
from counterseal_agents.contract import Answer, Call, Ended, Flow, Pause, Permit, Send, Terms, Unreachable, advance
from counterseal_agents.errors import Closed, Unreported

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("counterseal_agents")
T = TypeVar("T")
Raised = type[BaseException] | tuple[type[BaseException], ...]
# Variables of the environment for a gate that is given none.
URL, TOKEN = "COUNTERSEAL_AGENT_URL", "COUNTERSEAL_AGENT_TOKEN"
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class Deferred(TypeError):
    """A tool gave back something that has yet to run, so its report would come before its effect."""


class Spoiled(OSError):
    """An answer that is not read to its end."""


@dataclass(frozen=True)
class Ran:
    """A report: the outcome, with what the body gave back or why it ended."""

    outcome: str
    output: Json = None
    detail: str = ""


class Gate:
    """The client of one agent: a server's address, the token of its service account, and the terms of asking.

    ``wait`` is how long a call waits for its yes, ``timeout`` how long for any answer besides. Without ``url`` and
    ``token`` they are COUNTERSEAL_AGENT_URL and COUNTERSEAL_AGENT_TOKEN of the environment.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        terms: Terms | None = None,
        plain_http: bool = False,
        transport: httpx.BaseTransport | None = None,
        async_transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = _address(url or os.environ.get(URL, ""), plain_http)
        token = token or os.environ.get(TOKEN, "")
        if not token or not token.isascii() or not token.isprintable():
            raise ValueError(f"There is no usable token: give one, or set {TOKEN}.")
        self.terms, self.token = terms or Terms(), token
        self._headers = {
            "Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json",
            "Accept-Encoding": "identity",
        }  # fmt: skip
        self._transport, self._async_transport = transport, async_transport

    def waiting(self, seconds: float) -> Gate:
        """The same gate, which waits so long for a yes."""
        other = object.__new__(Gate)
        other.__dict__.update(self.__dict__, terms=replace(self.terms, wait=seconds))
        return other

    def run(self, call: Call, body: Callable[[], T], harmless: Raised = ()) -> T:
        """Run the body once, if there is a yes to this call, and report. ``NotRun`` if it did not run."""
        import httpx

        with httpx.Client(**self._options(), transport=self._transport) as client:
            permit = _drive(client, self.url, contract.obtain(call, self.terms))
            if permit.over:
                self._told(client, permit, _not_run())
                raise _late(permit)
            with self._beating(permit):
                try:
                    result = body()
                    _refuse_deferred(result)
                except BaseException as error:
                    self._told(client, permit, _raised(error, harmless), error)
                    raise
            self._told(client, permit, _returned(result), result=result)
            return result

    async def arun(self, call: Call, body: Callable[[], Awaitable[T]], harmless: Raised = ()) -> T:
        """Run the coroutine once, if there is a yes to this call, and report. ``NotRun`` if it did not run."""
        import asyncio

        import httpx

        async with httpx.AsyncClient(**self._options(), transport=self._async_transport) as client:
            permit = await _adrive(client, self.url, contract.obtain(call, self.terms))
            if permit.over:
                await self._atold(client, permit, _not_run())
                raise _late(permit)
            async with self._abeating(client, permit):
                try:
                    result = await body()
                    _refuse_deferred(result)
                except BaseException as error:
                    # A cancelled call reports, too: whoever cancels again waits for as long as a report may take.
                    await asyncio.shield(self._atold(client, permit, _raised(error, harmless), error))
                    raise
            await self._atold(client, permit, _returned(result), result=result)
            return result

    def waits(self, call: Call) -> bool:
        """Ask, and say if people are still to decide. Nothing is let out by this."""
        import httpx

        with httpx.Client(**self._options(), transport=self._transport) as client:
            return _drive(client, self.url, contract.look(call, self.terms))

    async def awaits(self, call: Call) -> bool:
        """Ask, and say if people are still to decide. Nothing is let out by this."""
        return await self.adrive(contract.look(call, self.terms))

    async def adrive(self, flow: Flow[T]) -> T:
        """Send what a flow asks for, until it returns. Canceled, it sends nothing more."""
        import httpx

        async with httpx.AsyncClient(**self._options(), transport=self._async_transport) as client:
            return await _adrive(client, self.url, flow)

    def _options(self) -> dict[str, Any]:
        return {"headers": self._headers, "follow_redirects": False, "timeout": self.terms.timeout}

    def _report(self, permit: Permit, ran: Ran) -> Flow[None]:
        return contract.report(permit, ran.outcome, self.terms.timeout, self.terms.pause, ran.output, ran.detail)

    def _told(
        self, client: httpx.Client, permit: Permit, ran: Ran, error: BaseException | None = None, result: object = None
    ) -> None:
        try:
            _drive(client, self.url, self._report(permit, ran))
        except Unreachable as problem:
            _unreported(permit, ran, problem, error, result)

    async def _atold(
        self,
        client: httpx.AsyncClient,
        permit: Permit,
        ran: Ran,
        error: BaseException | None = None,
        result: object = None,
    ) -> None:
        try:
            await _adrive(client, self.url, self._report(permit, ran))
        except Unreachable as problem:
            _unreported(permit, ran, problem, error, result)

    @contextmanager
    def _beating(self, permit: Permit) -> Iterator[None]:
        """Extends the lease, in a thread, while the body runs."""
        import httpx

        done = threading.Event()

        def beat() -> None:
            with httpx.Client(**self._options(), transport=self._transport) as client:
                while not done.wait(permit.lease / 3):
                    try:
                        if _drive(client, self.url, contract.beat(permit, self.terms.timeout)) is None:
                            logger.warning("The lease of action %s is over; people find out about it.", permit.action)
                            return
                    except Unreachable as problem:
                        logger.warning("A heartbeat of action %s had no answer: %s.", permit.action, problem)

        thread = threading.Thread(target=beat, name="counterseal-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()

    @asynccontextmanager
    async def _abeating(self, client: httpx.AsyncClient, permit: Permit) -> AsyncIterator[None]:
        """Extends the lease while the body runs."""
        import asyncio

        async def beat() -> None:
            while True:
                await asyncio.sleep(permit.lease / 3)
                try:
                    if await _adrive(client, self.url, contract.beat(permit, self.terms.timeout)) is None:
                        logger.warning("The lease of action %s is over; people find out about it.", permit.action)
                        return
                except Unreachable as problem:
                    logger.warning("A heartbeat of action %s had no answer: %s.", permit.action, problem)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()


def _address(url: str, plain_http: bool) -> str:
    parts = urlsplit(url)
    if not parts.hostname or parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"There is no usable address: give https://HOST, or set {URL}.")
    if parts.scheme != "https" and not (parts.scheme == "http" and (plain_http or parts.hostname in _LOCAL)):
        raise ValueError(f"{url} would show the token to the network: use https, or say plain_http=True.")
    return url.rstrip("/")


def _drive(client: httpx.Client, url: str, flow: Flow[T]) -> T:
    """Send what the flow asks for, until it returns."""
    import httpx

    given: Answer | Unreachable | None = None
    while not isinstance(step := advance(flow, given), Ended):
        if isinstance(step, Pause):
            given = None
            time.sleep(step.seconds)
            continue
        try:
            given = _sent(client, url, step)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            given = Unreachable(_no_answer(error))
    return step.value


def _sent(client: httpx.Client, url: str, step: Send) -> Answer:
    until = contract.now() + step.seconds
    headers = {} if step.key is None else {"Idempotency-Key": step.key}
    request = client.stream(step.method, url + step.path, content=step.body, headers=headers, timeout=step.seconds)
    with request as response:
        _check_encoding(response)
        body = bytearray()
        for part in response.iter_bytes():
            body += part
            _check(body, until)
        return Answer(response.status_code, response.headers.get("content-type", ""), bytes(body))


async def _adrive(client: httpx.AsyncClient, url: str, flow: Flow[T]) -> T:
    """Send what the flow asks for, until it returns."""
    import asyncio

    import httpx

    given: Answer | Unreachable | None = None
    while not isinstance(step := advance(flow, given), Ended):
        if isinstance(step, Pause):
            given = None
            await asyncio.sleep(step.seconds)
            continue
        try:
            async with asyncio.timeout(step.seconds):
                given = await _asent(client, url, step)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            given = Unreachable(_no_answer(error))
    return step.value


async def _asent(client: httpx.AsyncClient, url: str, step: Send) -> Answer:
    until = contract.now() + step.seconds
    headers = {} if step.key is None else {"Idempotency-Key": step.key}
    request = client.stream(step.method, url + step.path, content=step.body, headers=headers, timeout=step.seconds)
    async with request as response:
        _check_encoding(response)
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            _check(body, until)
        return Answer(response.status_code, response.headers.get("content-type", ""), bytes(body))


def _check(body: bytearray, until: float) -> None:
    if len(body) > contract.ANSWER_BYTES_MAX:
        raise Spoiled("the answer is too large")
    if contract.now() > until:
        raise TimeoutError("the answer came too slowly")


def _check_encoding(response: httpx.Response) -> None:
    """Refuse a body that would grow when it is unpacked."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise Spoiled("the answer is encoded, which was not asked for")


def _no_answer(error: Exception) -> str:
    import httpx

    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "it did not answer in time"
    if isinstance(error, httpx.ConnectError):
        return "it could not be reached"
    return f"its answer did not come whole ({type(error).__name__})"


def _refuse_deferred(result: object) -> None:
    if isinstance(result, GeneratorType) or isawaitable(result) or isasyncgen(result):
        close = getattr(result, "close", None)
        if callable(close):
            close()
        raise Deferred("The tool gave back something that has yet to run: give back its result, or make it async.")


def _raised(error: BaseException, harmless: Raised) -> Ran:
    outcome = "failed" if isinstance(error, harmless) else "unknown"
    return Ran(outcome, detail=f"{type(error).__name__}: {error}")


def _not_run() -> Ran:
    return Ran("not_run", detail="The lease had ended before the tool began.")


def _returned(result: object) -> Ran:
    try:
        output = as_json(result)
        if len(canonical(output)) <= contract.OUTPUT_BYTES_MAX:
            return Ran("succeeded", output)
    except ValueError:
        return Ran("succeeded", detail=f"Its result, a {type(result).__name__}, is no JSON and is not shown.")
    return Ran("succeeded", detail="Its result is too large to be shown.")


def _late(permit: Permit) -> Closed:
    words = f"{permit.call.tool} was not run: its permit came too late. It may be tried again later."
    return Closed(words, action=permit.action)


def _unreported(permit: Permit, ran: Ran, problem: Unreachable, error: BaseException | None, result: object) -> None:
    """Say that the server does not know what became of the call. The action is then in doubt, once its lease ends."""
    if ran.outcome == "not_run":
        logger.warning("That action %s was not run could not be reported: %s.", permit.action, problem)
        return
    words = (
        f"{permit.call.tool} has run, and what became of it could not be reported: {problem} (action {permit.action}). "
        "Do not repeat it: people find out what was done."
    )
    if error is None:
        raise Unreported(words, action=permit.action, result=result)
    logger.warning("%s", words)
    error.add_note(words)
