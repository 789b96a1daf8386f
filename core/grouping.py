"""Writes items that are ready at the same moment in one statement (hybrid group commit).

An item that finds a free writer is written at once, alone. While all writers are busy, items wait; the next free writer
takes those that fit together, in one statement. So under low load no item waits, and under high load many share
transactions and flushes. A crash loses or keeps a whole statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from itertools import groupby
from typing import Any, Generic, TypeAlias, TypeVar

import asyncpg
from msgspec import Struct

from core.outage import is_away

WRITERS = 2
TOGETHER_MAX = 16
# The numbers of calls that a statement of one function may have.
SHAPES = (1, 4, TOGETHER_MAX)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Waiting(Struct, Generic[Item, Result], frozen=True, eq=False):
    item: Item
    result: asyncio.Future[Result]


class Grouping(Generic[Item, Result]):
    """Writes the items of one process, over connections that ``connection`` gives.

    ``alone`` writes one item. ``together`` writes several in one statement, and returns the result of each; if it
    raises, nothing was written. ``fits`` is True if an item may join those taken; with none taken, if it may be grouped
    at all.
    """

    def __init__(
        self,
        connection: Callable[[], AbstractAsyncContextManager[Connection]],
        alone: Callable[[Connection, Item], Awaitable[Result]],
        together: Callable[[Connection, Sequence[Item]], Awaitable[Sequence[Result]]],
        fits: Callable[[Item, Sequence[Item]], bool],
        *,
        writers: int = WRITERS,
    ) -> None:
        self._connection, self._alone, self._together, self._fits = connection, alone, together, fits
        self._free = writers
        self._waiting: list[_Waiting[Item, Result]] = []
        self._writing: set[asyncio.Task[None]] = set()

    async def apply(self, item: Item) -> Result:
        """Write an item, alone or with others. Raises only this item's errors. The caller must hold no connection."""
        if not self._free and self._fits(item, ()):
            waiting: _Waiting[Item, Result] = _Waiting(item, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            return await waiting.result
        self._free -= 1
        try:
            async with self._connection() as connection:
                return await self._alone(connection, item)
        finally:
            self._free += 1
            if self._waiting:
                self._go_on()

    def _go_on(self) -> None:
        """Let a free writer take waiting items."""
        if self._waiting and self._free > 0:
            self._free -= 1
            task = asyncio.get_running_loop().create_task(self._write(self._take()))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    def _take(self) -> list[_Waiting[Item, Result]]:
        taken: list[_Waiting[Item, Result]] = []
        left: list[_Waiting[Item, Result]] = []
        for waiting in self._waiting:
            fits = len(taken) < TOGETHER_MAX and self._fits(waiting.item, [other.item for other in taken])
            (taken if fits else left).append(waiting)
        self._waiting = left
        return taken

    async def _write(self, together: Sequence[_Waiting[Item, Result]]) -> None:
        try:
            if len(together) > 1 and await self._all(together):
                return
            for waiting in together:
                await self._each(waiting)
        finally:
            self._free += 1
            self._go_on()

    async def _all(self, together: Sequence[_Waiting[Item, Result]]) -> bool:
        """Write the items in one statement. Returns False if nothing was written, so that each is tried alone."""
        try:
            async with self._connection() as connection:
                results = await self._together(connection, [waiting.item for waiting in together])
        except Exception as error:
            # If the answer was lost, the items may have been written: each caller finds out for itself.
            lost = is_away(error) and not isinstance(error, asyncpg.TransactionRollbackError)
            if isinstance(error, asyncpg.PostgresError) and not lost:
                return False
            for waiting in together:
                _fail(waiting, error)
            return True
        for waiting, result in zip(together, results, strict=True):
            _tell(waiting, result)
        return True

    async def _each(self, waiting: _Waiting[Item, Result]) -> None:
        try:
            async with self._connection() as connection:
                _tell(waiting, await self._alone(connection, waiting.item))
        except Exception as error:
            _fail(waiting, error)


def _tell(waiting: _Waiting[Item, Result], result: Result) -> None:
    # A caller that was canceled meanwhile no longer waits for the future.
    if not waiting.result.done():
        waiting.result.set_result(result)


def _fail(waiting: _Waiting[Item, Result], error: Exception) -> None:
    if not waiting.result.done():
        waiting.result.set_exception(error)


class Call(Struct, frozen=True):
    """A call of a function of the database. Calls in one statement run by ``order``; a call without it runs alone."""

    function: str
    parameters: Sequence[object]
    order: tuple[str, ...] | None = None


async def called(connection: Connection, calls: Sequence[Call]) -> list[Any]:
    """Call functions one after the other, in the common lock order; return the result of each.

    Every connection plans every shape of statement, so there are few shapes: 1, 4 or 16 calls of a function. Padding
    calls have no id, which is the first parameter, and the database skips them.
    """
    places = sorted(range(len(calls)), key=lambda place: calls[place].order or ())
    texts, parameters, columns = list[str](), list[object](), list[int]()
    for function, block in groupby(places, key=lambda place: calls[place].function):
        together = [calls[place].parameters for place in block]
        size, count = next(size for size in SHAPES if size >= len(together)), len(together[0])
        columns += range(len(texts), len(texts) + len(together))
        for number, each in enumerate(together + [[None] * count] * (size - len(together))):
            texts.append(_call(function, len(parameters) + 1, count, number <= size // 4))
            parameters += each
    row = await connection.fetchrow(f"SELECT {', '.join(texts)}", *parameters)
    returned = dict(zip(places, [(row or ())[column] for column in columns], strict=True))
    return [returned[place] for place in range(len(calls))]


@lru_cache(maxsize=1024)  # the shapes are few
def _call(function: str, first: int, count: int, always: bool) -> str:
    call = f"{function}({', '.join(f'${place}' for place in range(first, first + count))})"
    return call if always else f"(SELECT {call} WHERE ${first} IS NOT NULL)"


async def call_alone(connection: Connection, item: Call) -> Any:
    """Call one function in its own statement."""
    return (await called(connection, [item]))[0]


def can_share(item: Call, taken: Sequence[Call]) -> bool:
    """True if the call may share its transaction with other calls."""
    return item.order is not None
