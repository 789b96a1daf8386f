"""A long book is bundled beside the keeper's loop: timers and commands of others go on meanwhile."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from evidence.bundle import build_bundle
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.replay.past import past_of
from runtime.keep import bundling, judged_by
from runtime.requests import views
from runtime.store import books, offload, rows
from tests.support.verified import sound

STEPS = """
workflow: steps
version: 1
channels: {log: {reduce: append}}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}, set: {log: one}}
  - {id: two, do: probe.effect.apply, with: {name: two}, set: {log: two}}
"""
LOOP = """
workflow: loop
version: 1
channels: {sum: {reduce: sum, initial: 0}}
steps:
  - foreach: ${{ trigger.items }}
    steps: [{id: put, do: probe.effect.apply, with: {name: "${{ string(item) }}"}, set: {sum: "${{ item }}"}}]
"""
PARKS = """
workflow: parks
version: 1
reference: r
steps: [{id: go, wait: {signal: go, correlate: "1"}}, {id: one, do: probe.effect.apply, with: {name: one}}]
"""
EVENTS_OF_AN_APPEND = 6
# Everything that takes the longer, the longer the book is.
PARTS = {
    "the chain": (books, "verify_lines"), "the fold": (views, "past_of"), "the rows": (rows, "compare"),
    "what it is judged by": (judged_by, "gathered"), "the files, the judge and the seal": (bundling, "build_bundle"),
}  # fmt: skip


async def test_no_part_of_a_long_bundle_is_made_on_the_keepers_loop(
    runtime: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await runtime.go(STEPS)
    monkeypatch.setattr(offload, "LONG", -1)
    on_the_loop, beside = Counter[str](), Counter[str]()

    def watched(name: str, work: Any) -> Any:
        def watching(*given: Any, **named: Any) -> Any:
            (on_the_loop if threading.current_thread() is threading.main_thread() else beside)[name] += 1
            return work(*given, **named)

        return watching

    for name, (module, attribute) in PARTS.items():
        monkeypatch.setattr(module, attribute, watched(name, getattr(module, attribute)))
    await sound(runtime, run, tmp_path)
    assert (beside.keys(), on_the_loop) == (PARTS.keys(), {})


def _alive() -> int:
    return sum(isinstance(one, RecordedEvent) for one in gc.get_objects())


async def test_a_long_book_is_gone_through_one_append_at_a_time(
    runtime: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a book is folded, and when its bundle is built, no more of its events are held than one append has."""
    run = await runtime.go(LOOP, {"items": [*range(20)]})
    signer, held, pages = FileSigner.load_or_create(tmp_path / "key.pem"), list[int](), list[str]()
    making = bundling.Bundling(FileBlobStore(tmp_path), signer, "test", runtime.definitions)
    monkeypatch.setattr(books, "PAGE", 10)

    def folding(first: Any, recorded: Iterable[RecordedEvent], *more: Any) -> Any:
        return past_of(first, (held.append(_alive()) or each for each in recorded), *more)

    async with runtime.database.connection() as connection:
        told = [*(await books.read(connection, "acme", run)).events]
        assert _alive() > len(told) / 2  # so that counting them means something
        sought = {at: told[at] for at in (0, len(told) // 2, -1)}
        lines, same = len(told), sha256(repr(told).encode())
        del told
        before = _alive()
        monkeypatch.setattr(views, "past_of", folding)
        connection.add_query_logger(lambda sent: pages.append(sent.query) if "LIMIT" in sent.query else None)
        material = await making.material(connection, "acme", run)
    monkeypatch.setattr(views, "past_of", past_of)  # whatever compares the book later counts nothing
    assert max(held) - before <= EVENTS_OF_AN_APPEND
    assert (len(held), len(pages)) == (lines, -(-len(material.book.appends) // 10) + 1)
    built = build_bundle(bundling.content_of(material, "test"), signer)
    assert (built.name, _alive() - before) == (f"evidence-{run}-{lines}.zip", 0)
    assert sha256(repr([*material.book.events]).encode()).digest() == same.digest()
    assert {at: material.book.events[at] for at in sought} == sought


class Between:
    """A connection; once, after its first page, something else happens."""

    def __init__(self, connection: Any, happens: Callable[[], Awaitable[object]]) -> None:
        self._connection, self._happens = connection, [happens]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, query: str, *given: Any) -> Any:
        found = await self._connection.fetch(query, *given)
        while self._happens:
            await self._happens.pop()()
        return found


async def test_a_book_that_moves_on_between_two_pages_is_read_as_it_is_then(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await runtime.go(PARKS)
    monkeypatch.setattr(books, "PAGE", 1)

    async def goes_on() -> None:
        await runtime.signal("go:1", {})
        await runtime.worker().work_off()

    async with runtime.database.connection() as connection:
        before = await books.read(connection, "acme", run)
        paged: Any = Between(connection, goes_on)
        found, now = await books.paged(paged, "acme", run), await books.read(connection, "acme", run)
    assert (found.head, [*found.events]) == (now.head, [*now.events])
    assert now.head.count > before.head.count
