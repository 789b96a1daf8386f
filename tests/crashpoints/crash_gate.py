"""An agent that dies with the process: it asks through the gate, and runs tools by its permits. A ledger outlives it.

It notes that it begins, before its tool runs. An agent that finds such a note and knows nothing else does not run its
tool again, and reports that it does not know.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from app.access import Role, create_token
from core.canonical import digest
from core.db import Database
from core.errors import ConsistencyError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine.life.permits import Outcome
from runtime.requests import permits
from runtime.requests.acting import Wanted, act
from runtime.requests.permits import PermitDecision, Permits, Report

ACCOUNT = "bot"
ACTOR = Actor("token", ACCOUNT)
LEASE = timedelta(seconds=300)
NONCE, OTHER = "a" * 32, "b" * 32
# The tools: people are asked about the first. The second one runs, and its agent never says so.
ASK, SILENT = "ask", "silent"


def call_of(tool: str) -> dict[str, Any]:
    return {"mode": "gate", "tool": tool, "arguments": {"n": 1}}


class Agent:
    """The agent and its tools, which are calls of a port."""

    def __init__(self, tenant: str, database: Database, definitions: Definitions, trouble: Any, ledger: Any) -> None:
        self._tenant, self._database, self._definitions = tenant, database, definitions
        self._trouble, self._ledger = trouble, ledger
        self._desk = Permits(database, definitions, int(LEASE.total_seconds()), 14_400)
        self._seen: dict[str, object] = {}

    async def ask(self) -> None:
        """Ask for each tool, again until that is acknowledged."""
        if not self._ledger.all(what="token"):
            await create_token(self._database, self._tenant, ACCOUNT, frozenset({Role.AGENT}), None, ACTOR)
            self._ledger.add(what="token")
        for tool in (ASK, SILENT):
            if not self._ledger.all(what="asked", name=tool):
                given = (self._tenant, "main", ACCOUNT, ACTOR, "", {"n": 1}, f"key-{tool}")
                async with self._database.transaction(self._tenant) as connection:
                    run = await act(connection, self._tenant, self._definitions, Wanted(*given, tool=tool))
                self._ledger.add(what="asked", name=tool, run=str(run))

    async def go_on(self) -> bool:
        """One round; whether anything moved."""
        moved = [await self._act(one["name"], UUID(one["run"])) for one in self._ledger.all(what="asked")]
        return any(moved)

    async def tool(self, name: str) -> None:
        """The tool: whatever it is told to do happens."""
        self._ledger.add(what="effect", name=name)

    async def refused(self) -> bool:
        """True if another nonce gets nothing of any action."""
        for one in self._ledger.all(what="asked"):
            try:
                await self._fetch(UUID(one["run"]), one["name"], OTHER)
            except ConsistencyError:
                continue
            return False
        return True

    async def lease_over(self) -> int:
        """The time of a permit is over whose holder says nothing any more."""
        silent = self._ledger.all(what="asked", name=SILENT) if self._ledger.all(what="done", name=SILENT) else []
        return sum([await self._trouble.make_waits_due("permit", run=UUID(one["run"])) for one in silent])

    async def _fetch(self, run: UUID, tool: str, nonce: str) -> permits.Fetched:
        who = permits.Agent(self._tenant, ACCOUNT, ACTOR, run)
        return await self._desk.fetch(who, nonce, digest(call_of(tool)))

    async def _act(self, tool: str, run: UUID) -> bool:
        if self._ledger.all(what="done", name=tool):
            return False
        found = await self._fetch(run, tool, NONCE)
        if found.decision is PermitDecision.WAIT:
            before, self._seen[tool] = self._seen.get(tool), found.status
            return before != found.status
        if found.permit is not None:
            self._ledger.add(what="permit", name=tool, permit=found.permit)
            await self._carry_out(tool, permits.Agent(self._tenant, ACCOUNT, ACTOR, run), found.permit)
        self._ledger.add(what="done", name=tool)
        return True

    async def _carry_out(self, tool: str, who: permits.Agent, permit: str) -> None:
        outcome = Outcome.SUCCEEDED
        if not self._ledger.all(what="began", name=tool):
            self._ledger.add(what="began", name=tool)
            await self.tool(tool)
            self._ledger.add(what="ran", name=tool)
        elif not self._ledger.all(what="ran", name=tool):
            outcome = Outcome.UNKNOWN
        if tool == SILENT:
            return
        if not self._ledger.all(what="aged"):
            self._ledger.add(what="aged")
            await self._trouble.begin_waits_earlier(LEASE * 0.6)
        await self._desk.beat(who, permit)
        await self._desk.report(who, Report(permit, outcome, digest(call_of(tool)), {"done": tool}))
