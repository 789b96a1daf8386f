"""Counted budgets (docs/performance.md): exchanges, flushes and statements per run, counted at the driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.counting import writes
from benchmarks.world import Silent
from core.db import ENGINE_ROLE, FACES_ROLE, Connection, Database
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.messages import Messages
from runtime.queue.postgres import PostgresQueue
from runtime.store import claims
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.lease import Lease
from runtime.work.worker import Worker
from tests.support.for_all import ForAll
from tests.support.insides import take_one

RULES = "".join(
    f"  - {{id: r{number}, match: {{operation: probe.effect.apply}}, outcome: deny,"
    f" when: \"action.fields.name == 'never{number}' && counters.writes_in_run > {number}\"}}\n"
    for number in range(48)
)
POLICY = f"""
policy: fifty
version: 1
rules:
{RULES}  - {{id: all, match: {{connector: probe}}, outcome: allow}}
  - id: third
    match: {{operation: probe.effect.apply}}
    when: action.fields.name == 'e3'
    outcome: needs_approval
    approvers: [{{group: owners}}]
"""


def effects(name: str, count: int, first: int = 1) -> str:
    steps = "".join(
        f"  - {{id: s{number}, do: probe.effect.apply, with: {{name: e{number}}}}}\n"
        for number in range(first, first + count)
    )
    return f"workflow: {name}\nversion: 1\nreference: ${{{{ run.id }}}}\nsteps:\n{steps}"


@dataclass
class Counter:
    """The traffic of a workload. ``statements`` are those besides BEGIN, COMMIT and the tenant of a transaction.

    ``flushes`` are the transactions whose end waits for the disk: all that write but claims, which need not. ``inside``
    says of each open transaction whether it has written.
    """

    flushes: int = 0
    exchanges: int = 0
    statements: list[str] = field(default_factory=list)
    inside: dict[int, bool] = field(default_factory=dict)

    def note(self, connection: int, query: str) -> None:
        self.exchanges += 1
        if query.startswith("BEGIN"):
            self.inside[connection] = False
        elif query in ("COMMIT", "ROLLBACK"):
            self.flushes += self.inside.pop(connection) and query == "COMMIT"
        else:
            self.statements.append(" ".join(query.split())[:60])
            if connection in self.inside:
                self.inside[connection] |= writes(query)
            else:
                self.flushes += writes(query)

    async def settled(self) -> None:
        """Let the loop turn once: asyncpg tells its loggers in the next turn."""
        await asyncio.sleep(0)
        assert not self.inside

    def reset(self) -> None:
        self.flushes = self.exchanges = 0
        self.statements.clear()


class CountedDatabase(Database):
    """A database whose every statement is counted, however it is sent."""

    def __init__(self, url: str, role: str, counter: Counter) -> None:
        super().__init__(url, role)
        self._counter = counter

    async def connect(self) -> Connection:
        connection = await super().connect()
        connection.add_query_logger(lambda record: self._counter.note(id(connection), record.query))
        return connection


@pytest.fixture
async def counted(runtime: Any, database_url: str) -> AsyncIterator[tuple[Any, Counter]]:
    """The runtime, its policy of fifty rules, and a count of what it sends; everything compiled and prepared."""
    counter = Counter()
    async with (
        CountedDatabase(database_url, ENGINE_ROLE, counter) as engine,
        CountedDatabase(database_url, FACES_ROLE, counter) as faces,
    ):
        world = replace(runtime, database=engine, faces=faces)
        await world.tenant()
        await world.policy(POLICY)
        await world.person("olga", ("owners",))
        for text in (effects("w1", 4), effects("w2", 10, first=10)):
            await world.publish(text)
        world.uncounted = runtime
        await w1(world, "warm")
        await w2(world, "warm")
        await counter.settled()
        counter.reset()
        yield world, counter


async def claimed(world: Any) -> None:
    """One delivery that has work; a look that finds none belongs to no run."""
    assert await take_one(world.worker())


async def w1(world: Any, ref: str) -> Any:
    started = await world.start("w1", ref=ref)
    await claimed(world)
    question = await world.uncounted.question()
    assert (await world.vote("olga", "approve", on=question)).counted
    await claimed(world)
    return started.run_id


async def w2(world: Any, ref: str) -> Any:
    started = await world.start("w2", ref=ref)
    await claimed(world)
    return started.run_id


async def test_w1_four_effects_and_a_human_decision(counted: tuple[Any, Counter]) -> None:
    world, counter = counted
    run_id = await w1(world, "counted")
    await counter.settled()
    assert counter.flushes <= 8, "\n".join(counter.statements)
    assert counter.exchanges <= 11, "\n".join(counter.statements)
    assert await world.status(run_id) == "succeeded"
    assert len(world.outside.effects) == 4 + 10 + 4


@pytest.mark.parametrize("waited", [0.0, 5.0])
async def test_a_claimed_step_that_has_waited_for_its_turn_costs_no_further_exchange(
    counted: tuple[Any, Counter], waited: float
) -> None:
    """Its reading of the clock is as exact as when it arrived. Else an overloaded worker would ask ever more."""
    world, counter = counted
    await world.start("w2", ref="waited")
    tools = Tools(world.database, world.definitions, ForAll(world.connectors), "w", timedelta(minutes=1))
    async with world.uncounted.database.connection() as connection:
        (record,) = await claims.claim_next(connection, "w", tools.lease)
    await counter.settled()
    counter.reset()
    now = Lease.now() - waited
    await Drive(tools).run(record, now, now)
    await counter.settled()
    assert counter.exchanges == 11, "\n".join(counter.statements)


async def test_w1_with_its_card_the_card_s_drawings_and_its_bundle(
    counted: tuple[Any, Counter], tmp_path: Path
) -> None:
    """Three deliveries: the question, its card as it is in the end, the bundle. A look in vain belongs to no run."""
    world, counter = counted
    cards = Messages(Silent(), "C1", world.definitions)
    bundling = Bundling(
        FileBlobStore(tmp_path / "blobs"), FileSigner.load_or_create(tmp_path / "key.pem"), "test", world.definitions
    )
    dispatcher = Dispatcher(world.database, {**cards.handlers(), **bundling.handlers()}, "d1")
    await dispatcher.work_off()
    await counter.settled()
    counter.reset()
    await world.start("w1", ref="delivered")
    await claimed(world)
    assert await dispatcher.work_off() == 1
    assert (await world.vote("olga", "approve", on=await world.uncounted.question())).counted
    await claimed(world)
    assert await dispatcher.work_off() == 2
    await counter.settled()
    assert counter.flushes - 2 <= 14, "\n".join(counter.statements)


async def test_w2_ten_effects_in_sequence(counted: tuple[Any, Counter]) -> None:
    world, counter = counted
    run_id = await w2(world, "counted")
    await counter.settled()
    assert counter.flushes <= 12, "\n".join(counter.statements)
    assert counter.exchanges <= 13, "\n".join(counter.statements)
    assert await world.status(run_id) == "succeeded"


async def test_a_commit_costs_the_same_in_a_long_run(counted: tuple[Any, Counter]) -> None:
    """Rows and statements of one step do not grow with the steps that are done."""
    world, counter = counted
    await world.publish(effects("long", 60, first=100))
    await world.start("long")
    await claimed(world)
    await counter.settled()
    kinds = {statement for statement in counter.statements if statement.startswith("SELECT append(")}
    assert len(kinds) == 1
    assert counter.flushes <= 64


async def test_a_burst_is_claimed_by_one_statement_for_all_places(counted: tuple[Any, Counter]) -> None:
    world, counter = counted
    for number in range(6):
        await world.start("w2", ref=f"burst:{number}")
    await counter.settled()
    counter.reset()
    tools = Tools(world.database, world.definitions, ForAll(world.connectors), "w1", timedelta(seconds=30))
    stop = asyncio.Event()
    working = asyncio.create_task(Worker(tools, PostgresQueue(idle=timedelta(hours=1)), concurrency=6).run(stop))

    async def over() -> bool:
        return not await world.uncounted.books.runs_under_way()

    await world.uncounted.until(over)
    stop.set()
    await working
    assert [text[:12] for text in counter.statements].count("WITH lane AS") == 2, "one that found all, one in vain"


async def test_a_record_costs_no_more_than_a_step_without_effect_but_its_own_row(counted: tuple[Any, Counter]) -> None:
    world, counter = counted
    rule = "  - {id: kept, match: {connector: records}, outcome: allow}\n"
    await world.policy(POLICY.replace("version: 1", "version: 2") + rule)
    inputs = {"records.put": "collection: c, key: '${{ run.id }}', value: {n: 1}", "probe.value.read": "name: n"}
    told = {}
    for operation, given in inputs.items():
        name = operation.replace(".", "-")
        steps = "".join(f"  - {{id: s{number}, do: {operation}, with: {{{given}}}}}\n" for number in range(5))
        await world.publish(f"workflow: {name}\nversion: 1\nreference: ${{{{ run.id }}}}\nsteps:\n{steps}")
        for ref in ("warm", "counted"):
            await counter.settled()
            counter.reset()
            started = await world.start(name, ref=ref)
            await claimed(world)
            await counter.settled()
        run = await world.uncounted.books.run(started.run_id)
        assert run.status == "succeeded"
        told[operation] = (counter.flushes, counter.exchanges, run.version)  # a version is a row of the book
    kept, read = told["records.put"], told["probe.value.read"]
    assert all(one <= other for one, other in zip(kept, read, strict=True)), told
