"""A tool with an effect, for agents of every framework: what it did stands in a file, so it survives its process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from counterseal_agents import Gate, digest_of_call
from counterseal_agents.contract import Terms
from tests.support.agents_gate import TOKEN, Books

PAY = {"amount": 5, "to": "ana"}
LARGE = {"amount": 1_000_000, "to": "ana"}
# Terms that make a test fast: no pauses, and half a second for an answer.
FAST = Terms(wait=0.0, timeout=0.5, pause=0.0)


class Broken(Exception):
    """The tool's own fault, which says nothing about its effect."""


class Harmless(Exception):
    """The tool's word that it had no effect."""


@dataclass
class How:
    """The way a turn is run: the gate's terms, what the tool's body does besides, and what others do around it."""

    url: str
    effects: Path
    terms: Terms = FAST
    token: str = TOKEN
    # Called in the body after its effect; `abody` is awaited where the framework awaits bodies.
    body: Callable[[], Any] = lambda: None
    abody: Callable[[], Awaitable[Any]] | None = None
    # The process kills itself before it sends to this stage, or (with a `+`) after that stage's answer.
    kill: str = ""
    # Another hook changes the arguments to these, before us or after us; or calls again when a call failed.
    change: tuple[str, dict[str, Any]] | None = None
    retry: str = ""
    limit: float | None = None
    ungoverned: bool = False
    # Calls of one turn run together, if the framework has a way.
    together: bool = True
    state: Path = Path()
    # The tool's name where the framework gives it another one.
    tool: str = "pay"
    texts: list[str] = field(default_factory=list)

    def gate(self) -> Gate:
        """The client, which may die at a stage."""
        death = {"transport": _Deadly(self.kill), "async_transport": _AsyncDeadly(self.kill)} if self.kill else {}
        return Gate(self.url, self.token, terms=self.terms, **death)

    def pay(self, amount: int, to: str = "ana") -> str:
        """Pay somebody."""
        self.done({"amount": amount, "to": to})
        self.body()
        return f"paid {amount}"

    async def apay(self, amount: int, to: str = "ana") -> str:
        """Pay somebody."""
        self.done({"amount": amount, "to": to})
        self.body()
        if self.abody is not None:
            await self.abody()
        return f"paid {amount}"

    def done(self, arguments: dict[str, Any]) -> None:
        """The effect itself."""
        with self.effects.open("a", encoding="utf-8") as file:
            file.write(json.dumps(arguments) + "\n")

    @property
    def ran(self) -> list[dict[str, Any]]:
        """Each effect, with the arguments that its body got."""
        lines = self.effects.read_text(encoding="utf-8").splitlines() if self.effects.exists() else []
        return [json.loads(line) for line in lines]


def end_of(books: Books, how: How) -> str:
    """The end of a call, by its effects and by what the server knows. Each effect needs a permit of its own."""
    books.end_leases()
    permits = [one for one in books.actions.values() if one.permit is not None]
    spent = {one.digest: [other for other in permits if other.digest == one.digest] for one in permits}
    certain = True
    for arguments in how.ran:
        mine = spent.get(digest_of_call(how.tool, arguments), [])
        if not mine:
            return "ran without a yes"
        certain &= mine.pop().status in ("applied", "failed")
    if not how.ran:
        return "did not run"
    if not certain:
        return "ran, in doubt" if len(how.ran) == 1 else "ran again, in doubt"
    return "ran once, as approved" if len(how.ran) == 1 else "ran again, each as approved"


def die() -> None:
    """End this process as a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def _dies(kill: str, request: httpx.Request, *, after: bool) -> None:
    if request.url.path.endswith("/" + kill.rstrip("+")) and kill.endswith("+") is after:
        die()


class _Deadly(httpx.HTTPTransport):
    def __init__(self, kill: str) -> None:
        super().__init__()
        self.kill = kill

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _dies(self.kill, request, after=False)
        response = super().handle_request(request)
        response.read()
        _dies(self.kill, request, after=True)
        return httpx.Response(response.status_code, headers=response.headers, content=response.content)


class _AsyncDeadly(httpx.AsyncHTTPTransport):
    def __init__(self, kill: str) -> None:
        super().__init__()
        self.kill = kill

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _dies(self.kill, request, after=False)
        response = await super().handle_async_request(request)
        await response.aread()
        _dies(self.kill, request, after=True)
        return httpx.Response(response.status_code, headers=response.headers, content=response.content)


async def canceled_when(books: Books, work: Awaitable[Any], fact: Callable[[], bool]) -> None:
    """Cancel the work as soon as the fact holds."""
    task = asyncio.ensure_future(work)
    await asyncio.to_thread(books.until, fact)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
