"""A run is kept beside its book now and then. Where it is not what the book says, it is never acted on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from runtime.engine.book import draft
from runtime.engine.book.recorded import Diverged
from runtime.queue.postgres import PostgresQueue
from runtime.store import offload, views
from runtime.store.journal import appends
from runtime.store.views import load
from runtime.work import lease
from runtime.work.holding import Tools
from runtime.work.worker import Worker
from tests.support.for_all import ForAll
from tests.support.trouble import Forger

LONG = """
workflow: long
version: 1
reference: ${{ trigger.ref }}
channels: {names: {reduce: append}}
steps:
  - id: first
    do: probe.effect.apply
    with: {name: a}
  - foreach: ${{ trigger.items }}
    max_parallel: 2
    steps:
      - {id: each, do: probe.effect.apply, with: {name: "${{ item }}"}, set: {names: "${{ output.name }}"}}
  - {id: hold, wait: {signal: go, correlate: "${{ trigger.ref }}"}}
  - {id: last, do: probe.effect.apply, with: {name: "${{ steps.first.output.name + trigger.ref }}"}}
result: ${{ state.names }}
"""
ITEMS = [f"i{number}" for number in range(7)]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second append keeps the run."""
    monkeypatch.setattr(draft, "EVERY", 2)


@pytest.fixture
def forger(database_url: str) -> Forger:
    return Forger(database_url)


async def parked(runtime: Any) -> Any:
    run_id = await runtime.go(LONG, {"ref": "r1", "items": ITEMS})
    assert await runtime.status(run_id) == "waiting"
    return run_id


@pytest.mark.usefixtures("kept")
async def test_a_run_goes_on_from_what_is_kept_of_it(runtime: Any) -> None:
    run_id = await parked(runtime)
    assert await runtime.books.kept(run_id) is not None
    await runtime.signal("go:r1", {})
    await runtime.worker().work_off()
    run = await runtime.books.run(run_id)
    assert (run.status, run.result) == ("succeeded", ITEMS)
    assert [call.input["name"] for call in runtime.outside.effects] == ["a", *ITEMS, "ar1"]
    assert await runtime.books.kept(run_id) is None


@pytest.mark.req("X-4")
@pytest.mark.usefixtures("kept")
async def test_a_run_that_is_kept_began_when_its_book_did(runtime: Any) -> None:
    run_id = await runtime.go(
        LONG.replace("${{ state.names }}", "${{ run.started_at }}"), {"ref": "r1", "items": ITEMS}
    )
    assert await runtime.books.kept(run_id) is not None
    await runtime.signal("go:r1", {})
    await runtime.worker().work_off()
    (opened, *_) = await runtime.books.events(run_id)
    result = (await runtime.books.run(run_id)).result
    assert datetime.fromisoformat(result) == datetime.fromisoformat(opened.ts)


async def test_a_short_run_is_not_kept(runtime: Any) -> None:
    assert await runtime.books.kept(await parked(runtime)) is None


Way = Callable[[Forger, Any], Awaitable[None]]
REQUESTER = '"requested_by":"requester"', '"requested_by":"ana"'
# Ways to alter a run behind the engine, and the words that name each. Who asked is in no checkpoint's digest.
WAYS: dict[str, tuple[Way, str]] = {
    "the requester that is kept": (lambda forger, run: forger.kept_text(run, *REQUESTER), "kept state"),
    "what is kept, whole": (lambda forger, run: forger.kept_nothing(run), "is broken"),
    "a value of the book": (lambda forger, run: forger.journal_text(run, *REQUESTER, column="vals"), "other values"),
    "all values of the book": (lambda forger, run: forger.lost_values_of(run), "other values"),
    "a line of the book": (
        lambda forger, run: forger.journal_text(run, '"step.parked"', '"step.waits"', column="lines"),
        "is broken",
    ),
    "the end of the book": (lambda forger, run: forger.lost_append(run), "not as long"),
}


@pytest.mark.tampers
@pytest.mark.usefixtures("kept", "quiet")
@pytest.mark.parametrize("way", WAYS)
async def test_what_was_altered_is_never_acted_on(runtime: Any, forger: Forger, way: str) -> None:
    run_id = await parked(runtime)
    effects = len(runtime.outside.effects)
    alter, words = WAYS[way]
    await alter(forger, run_id)
    with pytest.raises(Diverged, match=words):
        await runtime.signal("go:r1", {})
    await runtime.trouble.make_waits_due()
    for _ in range(6):
        await runtime.sweep()
        await runtime.worker().work_off()
    assert len(runtime.outside.effects) == effects
    assert await runtime.status(run_id) in ("waiting", "failed_terminal")


async def test_what_a_worker_remembers_of_a_run_is_what_its_book_says(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(LONG)
    run_id = (await runtime.start("long", {"ref": "r1", "items": ITEMS})).run_id
    tools = Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), "w1", timedelta(seconds=30))
    worker = Worker(tools, PostgresQueue(idle=timedelta(milliseconds=20)), concurrency=4)
    await worker.work_off()
    met = tools.recent.get(run_id)
    assert met is not None
    remembered = met.exact
    await runtime.signal("go:r1", {})
    async with runtime.database.connection() as connection:
        graphs = runtime.definitions.graphs
        whole = await load(connection, run_id, graphs)
        followed = await load(connection, run_id, graphs, before=remembered)
        assert (await load(connection, run_id, graphs, before=whole)).run == whole.run
        # Of a view that is not one of this book, nothing is taken.
        stray = replace(remembered, head=replace(remembered.head, hash="0" * 64))
        assert (await load(connection, run_id, graphs, before=stray)).run == whole.run
    assert remembered.head.count < whole.head.count
    assert (followed.run, followed.head) == (whole.run, whole.head)
    await worker.work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert tools.recent.get(run_id) is None


async def test_a_worker_remembers_runs_up_to_a_size_and_goes_on_with_all(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RECENT_LINES_MAX", 1_600)
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(LONG)
    tools = Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), "w1", timedelta(seconds=30))
    worker = Worker(tools, PostgresQueue(idle=timedelta(milliseconds=20)), concurrency=4)
    runs = []
    for number in range(4):
        given = {"ref": f"r{number}", "items": ["i"], "more": "x" * 40_000}
        runs.append((await runtime.start("long", given, ref=str(number))).run_id)
        await worker.work_off()
    assert [tools.recent.get(run_id) is not None for run_id in runs] == [False, False, True, True]
    parked = tools.recent.get(runs[3])
    assert parked is not None
    for number in range(4):
        await runtime.signal(f"go:r{number}", {})
    await worker.work_off()
    assert {await runtime.status(run_id) for run_id in runs} == {"succeeded"}
    assert all(tools.recent.get(run_id) is None for run_id in runs)
    # A late outcome is recorded on a run that is over: what is heavy about it is still known, and done in a thread.
    async with runtime.database.connection() as connection:
        over = await load(connection, runs[3], runtime.definitions.graphs)
    late = tools.recent.put(replace(parked, exact=over, view=over, seen=over.version, lines=0))
    assert (late.lines > offload.LONG, tools.recent.get(runs[3])) == (True, None)


@pytest.mark.tampers
async def test_of_a_run_that_is_remembered_only_what_is_new_is_read(
    runtime: Any, forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await parked(runtime)
    graphs = runtime.definitions.graphs
    async with runtime.database.connection() as connection:
        before = await load(connection, run_id, graphs)
        await runtime.signal("go:r1", {})
        whole = await load(connection, run_id, graphs)
        rows: list[Any] = []
        monkeypatch.setattr(views, "appends", lambda *columns: (rows.append(columns), appends(*columns))[1])
        followed = await load(connection, run_id, graphs, before=before)
        ((firsts, _, _),) = rows
        assert min(firsts) == before.head.count, "an append that was known is read once more"
        await forger.lost_appends(run_id, before.version)
        assert (await load(connection, run_id, graphs, before=before)).run == whole.run
        with pytest.raises(Diverged, match="is broken"):
            await load(connection, run_id, graphs)
    assert before.version < whole.version == followed.version
    assert (followed.run, followed.head) == (whole.run, whole.head)
