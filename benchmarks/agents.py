"""The cost of agents that wait for people: pending actions that nobody polls, and callers that a vote reaches.

The application runs in a process of its own, a worker and a keeper in two others, as `counterseal serve`, `work` and
`keep` do. Every action is asked for, voted on and waited for over HTTP; only the crowd of pending ones is copied.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from app.access import Role, create_token
from benchmarks import documents as texts
from benchmarks.bulk import Copies, load
from benchmarks.children import Child, child, environment
from benchmarks.clicker import Clicker
from benchmarks.figures import Figure, Verdict, at_most, median, percentile, plain, short, spread_of
from benchmarks.stage import Stage, tell
from benchmarks.world import ACTOR, World
from connectors.catalog import Source, load_catalog
from core.canonical import JsonObject
from runtime.definition.catalog import Definitions
from runtime.requests.acting import Wanted, act
from runtime.requests.declaring import publish_operations
from runtime.requests.publishing import publish_directory

PENDING = 10_000
CALLERS = 200
RATE = 10
ROUNDS = 2
SECONDS = 10.0
SETTLE_SECONDS = 3.0
# All of them are asked about within this time, or something has failed.
ASKED_SECONDS = 120.0
# An agent has so many actions open at once, and no more; each is somebody else's, who does not decide.
OF_ONE = 20
APART_MILLISECONDS = 10
DUTIES = ("serve", "work", "keep")


@dataclass
class _Door:
    """The application at ``host``, as agents and people reach it; ``tokens`` by subject."""

    host: str
    clicker: Clicker
    tokens: dict[str, str] = field(default_factory=dict)

    async def send(self, subject: str, method: str, path: str, body: Any = None) -> int:
        """Send one request of theirs. Returns the status of the answer."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {self.tokens[subject]}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return await self.clicker.send(head.encode() + content)


async def measure(stage: Stage) -> list[Figure]:
    """Copy the pending actions, look at the processes while nothing happens, then let callers wait, and vote."""
    pending, callers, seconds = stage.size((PENDING, CALLERS, SECONDS), (200, OF_ONE, 1.0))
    # The second batch shows whether a vote costs more when more of them wait: it is that of one agent alone.
    agents = [f"bot-{number}" for number in range(callers // OF_ONE + 1)]
    async with stage.world() as world, AsyncExitStack() as stack:
        await _publish(world, ["crowd", *agents])
        tell(f"loading {pending:,} pending actions")
        await _crowd(world, pending)  # nobody may use the tables while they are filled
        given = environment(world, COUNTERSEAL_BUDGETS=json.dumps({"open_questions": 2 * pending + callers}))
        children = [
            await stack.enter_async_context(
                child(["-m", "benchmarks.process", duty], given, world.folder / f"{duty}.log")
            )
            for duty in DUTIES
        ]
        door = await _door(world, children[0], [*agents, texts.PERSON])
        await asyncio.sleep(stage.size(SETTLE_SECONDS, 0.5))
        looks = [await _transactions(children)]
        for _ in range(ROUNDS):
            await asyncio.sleep(seconds)
            looks.append(await _transactions(children))
        idle = [(after - before) / seconds for before, after in pairwise(looks)]
        tell(f"{callers} callers wait")
        many = await _voted(world, door, children[0], agents[:-1])
        few = await _voted(world, door, children[0], agents[-1:])
        door.clicker.close()
    return _figures(pending, idle, many, few)


async def _publish(world: World, agents: Sequence[str]) -> None:
    # An owner counts as the requester, who has a bounded number of open questions: each agent has an owner of its own.
    people = [f"{{id: {texts.PERSON}, name: Ana, slack: {texts.SLACK_USER}}}"]
    people += [f"{{id: of-{one}, name: Eve}}" for one in agents]
    accounts = ", ".join(f"{{id: {one}, owner: of-{one}}}" for one in agents)
    text = (
        f"directory: bench\npeople: [{', '.join(people)}]\nservice_accounts: [{accounts}]\n"
        f"groups: {{{texts.GROUP}: [{texts.PERSON}]}}\n"
    )
    # What agents may ask for is what the tenant has published.
    sources, packaged = [Source("bench.yaml", texts.OPERATIONS)], Definitions(load_catalog())
    async with world.faces.transaction(texts.TENANT) as connection:
        await publish_operations(connection, packaged, texts.TENANT, sources, ACTOR)
    async with world.faces.transaction(texts.TENANT) as connection:
        await publish_directory(connection, texts.TENANT, text, "directory.yaml", ACTOR)


async def _crowd(world: World, pending: int) -> None:
    """Make one pending action, with its card delivered, and copy it."""
    given: JsonObject = {"name": "crowd", "category": "c", "priority": "urgent"}
    wanted = Wanted(texts.TENANT, "main", "crowd", ACTOR, texts.OPERATION, given, key="")
    async with world.faces.transaction(texts.TENANT) as connection:
        model = await act(connection, texts.TENANT, Definitions(load_catalog()), wanted)
    assert await world.drive()
    await world.dispatcher().work_off()
    await world.sweeper().sweep()  # keepers follow the publications now, not once for each copy
    await load(world.url, [Copies(model, 1, pending - 1, APART_MILLISECONDS)])


async def _door(world: World, served: Child, subjects: Sequence[str]) -> _Door:
    where = urlsplit(str(served.said["url"]))
    assert where.hostname is not None
    assert where.port is not None
    door = _Door(where.netloc, Clicker(where.hostname, where.port))
    for subject in subjects:
        role = Role.APPROVER if subject == texts.PERSON else Role.AGENT
        made = await create_token(world.faces, texts.TENANT, subject, frozenset({role}), None, ACTOR)
        door.tokens[subject] = made.token
    return door


async def _asked(world: World, door: _Door, agents: Sequence[str], each: int) -> list[UUID]:
    """Let each agent ask for so many actions. Returns them when people are asked about all of them."""
    query = """
SELECT a.run_id FROM approvals a JOIN runs r USING (run_id)
WHERE a.status = 'requested' AND r.requested_by = ANY ($1)"""
    for agent in agents:
        for number in range(each):
            given = {"name": f"{agent}-{number}", "category": "c", "priority": "urgent"}
            status = await door.send(agent, "POST", "/v1/actions", {"operation": texts.OPERATION, "input": given})
            assert status == 202, f"{agent} asked for an action and got {status}"
    async with asyncio.timeout(ASKED_SECONDS):
        while True:
            found = await world.plain.fetch(query, [*agents])
            if len(found) == len(agents) * each:
                return [row["run_id"] for row in found]
            await asyncio.sleep(0.1)


async def _transactions(children: Sequence[Child]) -> float:
    return sum([(await one.ask())["transactions"] for one in children])


@dataclass(frozen=True, slots=True)
class _Reached:
    """The result of votes on actions whose callers wait: milliseconds from a vote to its caller's answer."""

    rejected: list[float]
    approved: list[float]
    settled: int
    statements: float

    @property
    def all(self) -> list[float]:
        return self.rejected + self.approved


async def _voted(world: World, door: _Door, served: Child, agents: Sequence[str]) -> _Reached:
    """Let a caller wait for each action, and decide them all, one half each way, ``RATE`` a second."""
    await _asked(world, door, agents, OF_ONE)
    query = """
SELECT a.approval_id, a.run_id, r.requested_by FROM approvals a JOIN runs r USING (run_id)
WHERE a.status = 'requested' AND r.requested_by = ANY ($1) ORDER BY md5(a.run_id::text)"""
    rows = await world.plain.fetch(query, [*agents])
    answered: dict[UUID, tuple[float, int]] = {}

    async def wait(row: Any) -> None:
        status = await door.send(row["requested_by"], "GET", f"/v1/actions/{row['run_id']}?wait=50")
        answered[row["run_id"]] = (time.perf_counter(), status)

    begun: dict[UUID, float] = {}

    async def vote(number: int, row: Any) -> None:
        await asyncio.sleep(number / RATE)
        begun[row["run_id"]] = time.perf_counter()
        body = {"choice": "approve" if number % 2 else "reject", "reason": "So be it."}
        status = await door.send(texts.PERSON, "POST", f"/v1/approvals/{row['approval_id']}/votes", body)
        assert status == 200, f"a vote was answered with {status}"

    async with asyncio.TaskGroup() as callers:
        for row in rows:
            callers.create_task(wait(row))
        await asyncio.sleep(1.0)  # they have looked once, and wait now
        before = (await served.ask())["statements"]
        async with asyncio.TaskGroup() as voters:
            for number, row in enumerate(rows):
                voters.create_task(vote(number, row))
    statements = ((await served.ask())["statements"] - before) / len(rows)
    taken = [(answered[row["run_id"]][0] - begun[row["run_id"]]) * 1000 for row in rows]
    settled = sum(status == 200 for _, status in answered.values())
    return _Reached(taken[::2], taken[1::2], settled, statements)


def _figures(pending: int, idle: Sequence[float], many: _Reached, few: _Reached) -> list[Figure]:
    callers = len(many.all)
    what = f"{callers} callers wait: a vote reaches its caller"
    return [
        at_most(
            f"agents, {pending:,} pending actions, `serve`, worker and keeper: transactions/s",
            2,
            median(idle),
            "transactions/s",
            spread=spread_of(idle),
        ),
        plain(f"{what}, p50", f"{short(median(many.all))} ms", value=median(many.all)),
        at_most(f"{what}, p99", 100, percentile(many.all, 99), "ms", slowest=max(many.all)),
        plain(
            f"{what}, p99: rejected; approved, with its effect",
            f"{short(percentile(many.rejected, 99))}; {short(percentile(many.approved, 99))} ms",
            rejected=percentile(many.rejected, 99),
            approved=percentile(many.approved, 99),
        ),
        Figure(
            f"{callers} callers: answered with the settled action",
            f"{callers}",
            f"{many.settled}",
            Verdict.WITHIN if many.settled == callers else Verdict.OVER,
            {"settled": many.settled},
        ),
        plain(
            f"`serve`: statements per vote, with {callers} callers and with {len(few.all)}",
            f"{many.statements:.1f}; {few.statements:.1f}",
            many=many.statements,
            few=few.statements,
        ),
    ]
