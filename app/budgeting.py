"""Holds each tenant to its limits at the doors: 429 with ``Retry-After``, the limit's name, and a line of the audit.

Rates are counted in this process. Stocks, such as open runs, are counted in the database every minute for tenants that
were active since, and new ones are added in between, so that no request needs a query for its limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http import problems
from app.refusals import RefusalLog
from core.budgets import Kind, Meter, OverLimit
from core.clock import repeat
from core.db import Database
from runtime.store import budgets

if TYPE_CHECKING:
    from app.faces import Faces

LOOK_SECONDS = 60.0
SEEN_MAX = 1_000

# What a route uses up besides a request, by its method and path.
CHARGES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("POST", "/v1/runs"): ("starts", "open_runs", "open_questions"),
    ("POST", "/v1/actions"): ("starts", "open_runs", "open_questions"),
    ("POST", "/v1/signals/{correlation_key:path}"): ("signals_kept",),
    ("POST", "/v1/runs/{run_id}/steps"): ("compile_units",),
    ("POST", "/v1/workflows"): ("compile_units",),
    ("POST", "/v1/workflows/check"): ("compile_units",),
    ("POST", "/v1/policies"): ("compile_units",),
    ("POST", "/v1/operations"): ("compile_units",),
    ("POST", "/v1/operations/diff"): ("compile_units",),
}
# What an event from outside uses up.
OF_EVENTS = ("requests", "starts", "open_runs", "open_questions")


@dataclass
class Budgets:
    """The budgets of all tenants in this process."""

    database: Database
    refusals: RefusalLog
    given: Mapping[str, int] = field(default_factory=dict)
    now: Callable[[], float] = monotonic
    meter: Meter = field(init=False)
    _stock: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.meter = Meter(self.given, self.now)

    def take(self, tenant: str, names: tuple[str, ...], amount: int = 1) -> None:
        """Charge all that a request uses, or nothing. ``OverLimit`` names the first limit that is reached."""
        stock = self._stock.setdefault(tenant, {})
        for name in (*names, "answer_bytes"):
            limit = self.meter.limit(name)
            if limit.kind is Kind.STOCK and stock.get(name, 0) >= limit.most:
                raise OverLimit(limit, LOOK_SECONDS)
            if limit.kind is Kind.RATE and (seconds := self.meter.wait(name, tenant)) > 0:
                raise OverLimit(limit, seconds)
        for name in names:
            if self.meter.limit(name).kind is Kind.STOCK:
                stock[name] = stock.get(name, 0) + (name != "open_questions")
            else:
                self.meter.used(name, tenant, amount=amount if name == "compile_units" else 1)

    async def look(self) -> None:
        """Count the stocks of the tenants that were active since the last look; forget all other tenants."""
        seen = [*self._stock][-SEEN_MAX:]
        self._stock.clear()
        most = {name: self.meter.limit(name).most for name in budgets.NAMES}
        for tenant in seen:
            async with self.database.transaction(tenant) as connection:
                found = await budgets.stock(connection, tenant, most)
            if any(found.values()):
                self._stock[tenant] = found

    async def run(self, stop: asyncio.Event) -> None:
        """Look once a minute."""
        await repeat(stop, self.look, LOOK_SECONDS, "the stock of tenants could not be counted")


async def charge(request: Request) -> None:
    """Charge a request with a token to its tenant. A dependency of every route; signed routes charge themselves."""
    principal = getattr(request.state, "principal", None)
    if principal is None:
        return
    more = CHARGES.get((request.method, request.scope["route"].path), ())
    size = len(await request.body()) if "compile_units" in more else 1
    request.app.state.faces.budgets.take(principal.tenant, ("requests", *more), size)


class Counted:
    """Middleware within the authentication: counts the bytes of answers, and records what a limit has refused."""

    def __init__(self, app: ASGIApp, faces: Faces) -> None:
        self._app, self._faces = app, faces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer first, then write the line of the audit, so that nobody waits for it."""
        state = scope.setdefault("state", {})
        principal, own = state.get("principal"), self._faces.budgets if "principal" in state else None
        if own is not None and (seconds := own.meter.wait("requests", principal.tenant)) > 0:
            # Refuse before the body is read: reading it costs more than refusing.
            error = OverLimit(own.meter.limit("requests"), seconds)
            await problems.of_error(error)(scope, receive, send)
            await own.refusals.note(principal.tenant, "http", error.limit)
            return
        size = 0

        async def sending(message: Message) -> None:
            nonlocal size
            size += len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, sending)
        if own is not None:
            own.meter.used("answer_bytes", principal.tenant, amount=size)
            if (limit := state.get("limit")) is not None:
                await own.refusals.note(principal.tenant, "http", limit)
