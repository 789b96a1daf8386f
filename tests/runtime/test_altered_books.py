"""A book of which one append is altered is found out by the chain, also where everything else of it agrees."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from runtime.engine.book.recorded import Diverged
from runtime.store import books
from runtime.store.views import load
from tests.support.trouble import Appends, Forger

PARKS = """
workflow: parks
version: 1
reference: ${{ trigger.ref }}
steps:
  - {id: first, do: probe.effect.apply, with: {name: a}}
  - {id: second, do: probe.effect.apply, with: {name: b}}
  - {id: hold, wait: {signal: go, correlate: "${{ trigger.ref }}"}}
  - {id: last, do: probe.effect.apply, with: {name: c}}
"""
pytestmark = [pytest.mark.tampers, pytest.mark.usefixtures("quiet")]


@pytest.fixture
def forger(database_url: str) -> Forger:
    return Forger(database_url)


def changed(appends: Appends) -> Appends:
    """Another actor did what has no values: no rule of the fold depends on that."""
    return [
        [(line if values else line.replace(b'"kind":"engine"', b'"kind":"ghosts"'), values) for line, values in append]
        for append in appends
    ]


def removed(appends: Appends) -> Appends:
    return [*appends[:-1], appends[-1][:-1]]


def moved(appends: Appends) -> Appends:
    """The order of all lines is as it was, and so is their number."""
    return [*appends[:-2], appends[-2][:-1], [appends[-2][-1], *appends[-1]]]


def merged(appends: Appends) -> Appends:
    return [*appends[:-2], [*appends[-2], *appends[-1]]]


def split(appends: Appends) -> Appends:
    return [*appends[:-1], appends[-1][:1], appends[-1][1:]]


def swapped(appends: Appends) -> Appends:
    return [*appends[:-2], appends[-1], appends[-2]]


def truncated(appends: Appends) -> Appends:
    return appends[:-1]


def repeated(appends: Appends) -> Appends:
    return [*appends, appends[-1]]


WAYS = [changed, removed, moved, merged, split, swapped, truncated, repeated]


async def parked(runtime: Any, ref: str = "r1") -> Any:
    run_id = await runtime.go(PARKS, {"ref": ref})
    assert await runtime.status(run_id) == "waiting"
    return run_id


async def refused(runtime: Any, run_id: Any) -> None:
    """Neither a worker nor a face reads the run, whether it has met the run before or not."""
    async with runtime.database.connection() as connection:
        with pytest.raises(Diverged):
            await load(connection, run_id, runtime.definitions.graphs)
        with pytest.raises(Diverged, match="chain is broken"):
            await books.read(connection, "acme", run_id)
    assert (await runtime.books.chain(run_id)).problem is not None


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_an_altered_append_is_found_when_the_run_is_read(
    runtime: Any, forger: Forger, way: Callable[[Appends], Appends]
) -> None:
    run_id = await parked(runtime)
    effects = len(runtime.outside.effects)
    await forger.retold(run_id, way(await forger.appends(run_id)))
    await refused(runtime, run_id)
    with pytest.raises(Diverged):
        await runtime.signal("go:r1", {})
    await runtime.worker().work_off()
    assert len(runtime.outside.effects) == effects


CHECKPOINT = re.compile(rb'(?<="digest":")[0-9a-f]{64}(?=".*"type":"checkpoint.committed")')


@pytest.mark.req("P-3")
async def test_a_wrong_digest_of_a_checkpoint_is_found_also_where_the_chain_is_whole(
    runtime: Any, forger: Forger
) -> None:
    """The digest in the audit is that of the state that the book gives, whenever the run is read (promise 6)."""
    run_id = await parked(runtime)
    effects = len(runtime.outside.effects)
    appends = [
        [(CHECKPOINT.sub(b"0" * 64, line), values) for line, values in append]
        for append in await forger.appends(run_id)
    ]
    await forger.reheaded(run_id, appends)
    async with runtime.database.connection() as connection:
        with pytest.raises(Diverged, match=r"checkpoint \d is not the one that was recorded"):
            await load(connection, run_id, runtime.definitions.graphs)
    assert (await runtime.books.chain(run_id)).problem is None
    with pytest.raises(Diverged):
        await runtime.signal("go:r1", {})
    await runtime.worker().work_off()
    assert len(runtime.outside.effects) == effects


async def test_an_append_of_another_run_is_found(runtime: Any, forger: Forger) -> None:
    run_id = await parked(runtime)
    other = await runtime.start("parks", {"ref": "r2"}, ref="2")
    await runtime.worker().work_off()
    own, foreign = await forger.appends(run_id), await forger.appends(other.run_id)
    assert [len(append) for append in own] == [len(append) for append in foreign]
    await forger.retold(run_id, [*own[:-1], foreign[-1]])
    await refused(runtime, run_id)


async def test_the_book_of_another_run_is_not_that_of_this_one(runtime: Any, forger: Forger) -> None:
    """Not even where the other run is whole, and its key, its length and its head come with it."""
    run_id = await parked(runtime)
    other = await runtime.start("parks", {"ref": "r2"}, ref="2")
    await runtime.worker().work_off()
    await forger.book_of_another(run_id, other.run_id)
    assert (await runtime.books.chain(other.run_id)).problem is None
    await refused(runtime, run_id)


@pytest.mark.parametrize("way", [changed, truncated, repeated], ids=lambda way: way.__name__)
async def test_what_follows_a_view_that_a_worker_remembers_is_checked_too(
    runtime: Any, forger: Forger, way: Callable[[Appends], Appends]
) -> None:
    run_id = await parked(runtime)
    graphs = runtime.definitions.graphs
    async with runtime.database.connection() as connection:
        before = await load(connection, run_id, graphs)
        await runtime.signal("go:r1", {})
        appends = await forger.appends(run_id)
        await forger.retold(run_id, [*appends[:-1], *way([appends[-1]])])
        with pytest.raises(Diverged):
            await load(connection, run_id, graphs, before=before)
