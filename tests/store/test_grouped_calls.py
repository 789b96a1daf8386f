"""Starts and votes that are ready at the same moment share statements, hence flushes; each has its own answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from benchmarks.counting import writes
from core.db import FACES_ROLE, Connection, Database
from core.grouping import TOGETHER_MAX, WRITERS, Call, called
from runtime.requests.starting import StartRequest, start_named
from runtime.store import approvals, faces
from tests.support.insides import waiting_calls

ASKS = """
policy: asks
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: needs_approval, approvers: [{group: owners}]}
"""
ONE = """
workflow: one
version: 1
reference: ${{ trigger.name }}
steps: [{id: a, do: probe.effect.apply, with: {name: "${{ trigger.name }}"}}]
"""
COUNT = 8


class Listened(Database):
    """A database of the faces that tells what was written over it."""

    def __init__(self, url: str) -> None:
        super().__init__(url, FACES_ROLE)
        self.written: list[Any] = []

    async def connect(self) -> Connection:
        connection = await super().connect()
        connection.add_query_logger(lambda record: writes(record.query) and self.written.append(record))
        return connection

    def counts(self, function: str) -> list[int]:
        """Count the calls in each statement; what fills up a statement's shape is no call."""
        found = []
        for record in self.written:
            firsts = re.findall(rf"\b{function}\(\$(\d+)", record.query)
            found.append(sum(record.args[int(first) - 1] is not None for first in firsts))
        return [count for count in found if count]


@pytest.fixture
async def world(runtime: Any, database_url: str) -> AsyncIterator[Any]:
    async with Listened(database_url) as database:
        await runtime.tenant(concurrency=100)
        await runtime.policy(ASKS)
        await runtime.publish(ONE)
        for person in ("olga", "otto"):
            await runtime.person(person, ("owners",))
        yield replace(runtime, faces=database)


@asynccontextmanager
async def busy(world: Any) -> AsyncIterator[None]:
    """All writers wait for a lock meanwhile."""
    async with world.database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(7)")
        calls = [world.faces.call(Call("pg_advisory_xact_lock_shared", [7])) for _ in range(WRITERS)]
        tasks = [asyncio.create_task(call) for call in calls]
        await world.until(f"SELECT FROM pg_locks WHERE NOT granted HAVING count(*) = {WRITERS}")
        yield
    await asyncio.gather(*tasks)


async def waiting(world: Any, count: int) -> None:
    """So many wait for a writer. Nothing in the database tells that."""

    async def enough() -> bool:
        return waiting_calls(world.faces) >= count

    await world.until(enough)


async def questions(world: Any, count: int = COUNT) -> dict[UUID, UUID]:
    """Runs that wait for an owner, each with its question."""
    for number in range(count):
        await world.start("one", {"name": f"n{number}"}, ref=str(number))
    await world.worker().work_off()
    world.faces.written.clear()
    return {row.run: row.id for row in await world.books.approvals(open=True)}


@pytest.mark.parametrize("function", ["open_run", "append_to_run"])
async def test_what_comes_at_the_same_moment_shares_a_flush_and_each_has_its_answer(world: Any, function: str) -> None:
    asked = await questions(world)
    async with busy(world):
        if function == "open_run":
            wanted = [f"new{number}" for number in reversed(range(COUNT))]
            doing = [world.start("one", {"name": name}, ref=name) for name in wanted]
        else:
            asked = dict(sorted(asked.items(), reverse=True))
            doing = [world.vote("olga", "approve", on=question) for question in asked.values()]
        tasks = [asyncio.create_task(each) for each in doing]
        await waiting(world, COUNT)
        world.faces.written.clear()
    answers = await asyncio.gather(*tasks)
    assert world.faces.counts(function) == [COUNT]
    if function == "open_run":
        assert [answer.reference for answer in answers] == wanted
        assert [(await world.books.run(answer.run_id)).reference for answer in answers] == wanted
    else:
        assert [(answer.run_id, answer.status) for answer in answers] == [(run, "approved") for run in asked]
        await world.worker().work_off()
        assert {run.status for run in await world.books.runs()} == {"succeeded"}


async def test_more_than_a_statement_holds_goes_in_several(world: Any) -> None:
    await questions(world, 1)
    async with busy(world):
        many = [world.start("one", {"name": f"m{n}"}, ref=f"m{n}") for n in range(TOGETHER_MAX + 3)]
        tasks = [asyncio.create_task(each) for each in many]
        await waiting(world, len(tasks))
        world.faces.written.clear()
    assert all(answer.created for answer in await asyncio.gather(*tasks))
    assert sorted(world.faces.counts("open_run")) == [3, TOGETHER_MAX]


async def test_starts_and_votes_of_one_run_or_trigger_are_each_themselves(world: Any) -> None:
    """Two votes on one question, two starts by one trigger, and a vote on another question, in one statement."""
    (first, one), (second, two) = (await questions(world, 2)).items()
    async with busy(world):
        doing: list[Any] = [world.vote(person, "approve", on=one) for person in ("olga", "otto")]
        doing += [world.start("one", {"name": "x"}, ref="x") for _ in range(2)]
        doing += [world.vote("olga", "reject", on=two)]
        tasks = [asyncio.create_task(each) for each in doing]
        await waiting(world, 5)
        world.faces.written.clear()
    olga, otto, new, known, other = await asyncio.gather(*tasks)
    assert (world.faces.counts("append_to_run")[0], world.faces.counts("open_run")[0]) == (3, 2)
    assert sorted([olga.code, otto.code]) == ["already_decided", "counted"]
    assert sorted([new.created, known.created]) == [False, True]
    assert new.run_id == known.run_id
    assert (olga.run_id, other.run_id, other.status) == (first, second, "rejected")
    assert [approval.status for approval in await world.books.approvals(run=first)] == ["approved"]


async def test_one_that_the_database_refuses_costs_the_others_nothing(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list((await questions(world, 3)).values())
    append = faces.append

    async def spoiled(at: Any, commit: Any, **how: Any) -> bool:
        if commit.votes and commit.votes[0].approval_id == asked[1]:
            commit.lines = [line.replace(b'"approval.voted"', b'"action.intended"') for line in commit.lines]
        return await append(at, commit, **how)

    monkeypatch.setattr(faces, "append", spoiled)
    async with busy(world):
        tasks = [asyncio.create_task(world.vote("olga", "approve", on=question)) for question in asked]
        await waiting(world, 3)
        world.faces.written.clear()
    one, other, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert (one.counted, third.counted) == (True, True)
    assert isinstance(other, asyncpg.InsufficientPrivilegeError)
    assert world.faces.counts("append_to_run") == [3, 1, 1, 1]
    assert sorted(run.status for run in await world.books.runs()).count("waiting_approval") == 1


async def test_one_whose_run_has_moved_on_costs_the_others_nothing(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list((await questions(world, 3)).values())
    read, reads = approvals.read_to_decide, []

    async def overtaken(connection: Any, tenant: str, question: UUID, *more: Any, **how: Any) -> Any:
        found = await read(connection, tenant, question, *more, **how)
        reads.append(question)
        if reads.count(asked[1]) == 1 and question == asked[1]:
            update = "UPDATE runs SET gate = gate + 1 WHERE run_id = $1"
            await world.execute(update, found[0].approval.run_id)
        return found

    monkeypatch.setattr(approvals, "read_to_decide", overtaken)
    async with busy(world):
        tasks = [asyncio.create_task(world.vote("olga", "approve", on=question)) for question in asked]
        await waiting(world, 3)
        world.faces.written.clear()
    assert all(answer.counted for answer in await asyncio.gather(*tasks))
    assert world.faces.counts("append_to_run") == [3, 1]
    assert sorted(reads, key=asked.index) == [asked[0], asked[1], asked[1], asked[2]]


async def test_who_waits_for_others_holds_no_connection(world: Any, database_url: str) -> None:
    """Sixteen starts and sixteen votes over the one connection that there is."""
    asked = await questions(world, 16)
    async with Database(database_url, FACES_ROLE, connections=1) as one:
        narrow = replace(world, faces=one)
        votes = [narrow.vote("olga", "approve", on=question) for question in asked.values()]
        starts = [narrow.start("one", {"name": f"s{number}"}, ref=f"s{number}") for number in range(16)]
        answers = await asyncio.wait_for(asyncio.gather(*votes, *starts), 60)
    assert all(answer.counted for answer in answers[:16])
    assert all(answer.created for answer in answers[16:])


async def test_a_caller_in_a_transaction_of_its_own_stays_alone(world: Any) -> None:
    await questions(world, 1)
    async with busy(world), world.faces.transaction("acme") as connection:
        request = StartRequest("acme", "main", "test", "own", {"name": "own"}, "requester", world.actor)
        assert (await start_named(connection, world.definitions, "one", None, request)).created
        assert connection.is_in_transaction()
    assert world.faces.counts("open_run") == [1]


async def test_statements_that_lock_the_same_rows_lock_them_in_one_order(world: Any) -> None:
    """One that comes the other way round would hold what the first one wants, and want what the first one holds."""
    calls = [Call("pg_advisory_xact_lock", [number], (str(number),)) for number in (1, 2)]

    async def locking(calls: list[Call]) -> None:
        async with world.database.connection() as connection:
            await called(connection, calls)

    async with world.database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(2)")
        tasks = []
        for number, order in enumerate((calls[::-1], calls)):
            tasks.append(asyncio.create_task(locking(order)))
            await world.until(f"SELECT FROM pg_locks WHERE NOT granted HAVING count(*) = {number + 1}")
    await asyncio.gather(*tasks)
