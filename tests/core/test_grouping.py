"""Writers that group what comes while they are busy: each caller gets its own answer, whatever befalls the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from core.grouping import TOGETHER_MAX, Call, Grouping, call_alone, called, can_share


class Desk:
    """Notes what is written, and holds the first write up until it is let go. ``faults`` are raised in their order."""

    def __init__(self, *faults: Exception | None, writers: int = 1) -> None:
        self.begun: list[Any] = []
        self.gate = asyncio.Event()
        self.faults = [*faults]
        self.open = 0
        self.grouping: Grouping[int, int] = Grouping(
            self.connection, self.alone, self.together, self.fits, writers=writers
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        self.open += 1
        try:
            yield None
        finally:
            self.open -= 1

    async def alone(self, connection: Any, item: int) -> int:
        self.begun.append(item)
        if len(self.begun) == 1:
            await self.gate.wait()
        if item < 0:
            raise ValueError(item)
        return item * 10

    async def together(self, connection: Any, items: Sequence[int]) -> list[int]:
        self.begun.append([*items])
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault
        return [item * 10 for item in items]

    def fits(self, item: int, taken: Sequence[int]) -> bool:
        return item != 99 and item not in taken

    async def all(self, *items: int) -> list[Any]:
        """Apply the first, then the others while it is written."""
        tasks = [asyncio.create_task(self.grouping.apply(items[0]))]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(self.grouping.apply(item)) for item in items[1:]]
        await asyncio.sleep(0)
        self.gate.set()
        found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
        assert self.open == 0
        return found


async def test_what_comes_while_all_write_goes_together() -> None:
    desk = Desk()
    assert await desk.all(1, 2, 3, 4) == [10, 20, 30, 40]
    assert desk.begun == [1, [2, 3, 4]]
    assert await desk.grouping.apply(5) == 50, "a writer is free again"
    assert desk.begun[-1] == 5


async def test_a_single_one_that_waited_is_written_alone() -> None:
    desk = Desk()
    assert await desk.all(1, 2) == [10, 20]
    assert desk.begun == [1, 2]


async def test_what_does_not_fit_does_not_wait_or_goes_next() -> None:
    desk = Desk()
    assert await desk.all(1, 99, 2, 2, 3) == [10, 990, 20, 20, 30]
    assert desk.begun == [1, 99, [2, 3], 2]


async def test_so_many_go_together() -> None:
    desk = Desk()
    items = range(1, TOGETHER_MAX + 4)
    assert await desk.all(*items) == [item * 10 for item in items]
    assert desk.begun[1:] == [[*items[1 : TOGETHER_MAX + 1]], [*items[TOGETHER_MAX + 1 :]]], "in their order"


async def test_an_error_of_the_database_is_found_out_one_by_one() -> None:
    """Nothing of them was written, so each is tried alone, and only the faulty one fails."""
    desk = Desk(asyncpg.UniqueViolationError("taken"))
    one, two, bad, three = await desk.all(1, 2, -3, 4)
    assert (one, two, three) == (10, 20, 40)
    assert isinstance(bad, ValueError)
    assert desk.begun == [1, [2, -3, 4], 2, -3, 4]


@pytest.mark.parametrize(
    "fault",
    [
        asyncpg.DeadlockDetectedError("lost"),
        asyncpg.SerializationError("lost"),
        asyncpg.UniqueViolationError("taken"),
        asyncpg.CheckViolationError("strange"),
        asyncpg.RaiseError("not so"),
    ],
)
async def test_what_postgresql_has_rolled_back_is_tried_one_by_one(fault: Exception) -> None:
    desk = Desk(fault)
    assert await desk.all(1, 2, 3) == [10, 20, 30]
    assert desk.begun == [1, [2, 3], 2, 3]


@pytest.mark.parametrize(
    "fault",
    [
        *(ConnectionResetError("gone"), asyncpg.ConnectionDoesNotExistError("gone"), OSError()),
        *(asyncpg.AdminShutdownError("gone"), asyncpg.ReadOnlySQLTransactionError("gone"), TimeoutError()),
        asyncpg.TooManyConnectionsError("gone"),
    ],
)
async def test_a_lost_answer_is_told_to_each_and_nothing_is_written_twice(fault: Exception) -> None:
    desk = Desk(fault)
    found = await desk.all(1, 2, 3)
    assert (found[0], found[1:]) == (10, [fault, fault])
    assert desk.begun == [1, [2, 3]]
    assert await desk.grouping.apply(5) == 50


async def test_an_error_of_one_alone_is_its_own() -> None:
    desk = Desk()
    found = await desk.all(-1, 2, 3)
    assert isinstance(found[0], ValueError)
    assert found[1:] == [20, 30]


@pytest.mark.parametrize("fault", [None, OSError("gone")])
async def test_who_has_gone_is_not_told(fault: Exception | None) -> None:
    desk = Desk(fault)
    first = asyncio.create_task(desk.grouping.apply(1))
    await asyncio.sleep(0)
    gone, stays = (asyncio.create_task(desk.grouping.apply(item)) for item in (2, 3))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    desk.gate.set()
    assert await asyncio.wait_for(first, 30) == 10
    assert desk.begun == [1, [2, 3]], "what was to be written is written"
    if fault is None:
        assert await asyncio.wait_for(stays, 30) == 30
    else:
        with pytest.raises(OSError, match="gone"):
            await asyncio.wait_for(stays, 30)


async def test_so_many_writers_write_at_once() -> None:
    desk = Desk(writers=2)
    tasks = [asyncio.create_task(desk.grouping.apply(item)) for item in (1, 2, 3, 4)]
    await asyncio.sleep(0)
    assert desk.begun[:2] == [1, 2]
    desk.gate.set()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 30) == [10, 20, 30, 40]
    assert desk.begun in ([1, 2, [3, 4]], [1, 2, 3, 4])


class Row:
    """A connection that notes the one statement, and returns the place of each column."""

    def __init__(self) -> None:
        self.said = ""
        self.parameters: tuple[Any, ...] = ()

    async def fetchrow(self, statement: str, *parameters: Any) -> list[Any]:
        self.said, self.parameters = statement, parameters
        return [f"c{number}" for number in range(statement.count("f(") + statement.count("g("))]


async def test_calls_are_made_in_the_order_of_locks_in_few_shapes() -> None:
    row: Any = Row()
    assert await called(row, [Call("f", (1, "a"))]) == ["c0"]
    assert (row.said, row.parameters) == ("SELECT f($1, $2)", (1, "a"))
    assert await call_alone(row, Call("f", (2, "b"))) == "c0"
    found = await called(row, [Call("f", (1, "a"), ("z",)), Call("f", (2, "b"), ("a",)), Call("g", (3,), ("b",))])
    assert found == ["c2", "c0", "c1"]
    assert (row.said, row.parameters) == ("SELECT f($1, $2), g($3), f($4, $5)", (2, "b", 3, 1, "a"))


async def test_answers_are_those_of_their_places_behind_what_fills_up() -> None:
    row: Any = Row()
    calls = [Call("g", (9, "x"), ("z",)), *(Call("f", (n,), (f"{n}",)) for n in (3, 1, 2)), Call("f", (7,), ("zz",))]
    assert await called(row, calls) == ["c4", "c2", "c0", "c1", "c5"]
    assert row.parameters == (1, 2, 3, None, 9, "x", 7)
    fills = ", ".join(f"(SELECT f(${place}) WHERE ${place} IS NOT NULL)" for place in (3, 4))
    assert row.said == f"SELECT f($1), f($2), {fills}, g($5, $6), f($7)"


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 4), (4, 4), (5, 16), (16, 16)])
async def test_a_statement_is_filled_up_with_calls_that_are_not_made(count: int, size: int) -> None:
    row: Any = Row()
    calls = [Call("f", (number,), (f"{number:02}",)) for number in reversed(range(count))]
    found = await called(row, calls)
    assert found == [f"c{number}" for number in reversed(range(count))]
    assert row.parameters == (*range(count), *[None] * (size - count))
    always = row.said.split("(SELECT")[0].count("f(")
    assert always <= count, "one that fills it up has a condition"
    assert (row.said.count("f("), row.said.count("IS NOT NULL")) == (size, size - always)


def test_a_call_that_takes_no_lock_in_order_goes_alone() -> None:
    assert can_share(Call("f", (), ("a",)), [])
    assert not can_share(Call("f", ()), [])
    assert can_share(Call("f", (), ()), [Call("g", (), ("b",))]), "one that takes no lock at all"
