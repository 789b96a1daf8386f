"""The database's clock goes back: everything goes on at once, and lines keep the latest time of their book (promise 4).

A failover to a host whose clock is behind does this, or an operator who mends a clock that was ahead.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import structlog
from msgspec.structs import replace

from runtime.engine.book.draft import ENGINE
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import RunPaused
from runtime.engine.model.graph import NO_GRAPH
from runtime.keep.sweeper import Sweeper
from runtime.requests.steering import cancel_run
from runtime.store import commits, faces
from runtime.store.views import load
from tests.support.clocks import Clock

POLICY = """
policy: p
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
  - {id: asked, match: {operation: probe.effect.apply}, when: action.fields.name == 'ask', outcome: needs_approval,
     approvers: [{group: owners}]}
"""
HEAD = "workflow: w\nversion: 1\nreference: r\nsteps:\n"
AFTER = "  - {id: z, do: probe.effect.apply, with: {name: z}}\n"
STEPS = {
    "vote": "  - {id: a, do: probe.effect.apply, with: {name: ask}}\n",
    "signal": "  - {id: a, wait: {signal: go, correlate: x}}\n",
    "task": "  - id: a\n    task: {title: T, assign: {group: kyc},"
    " form: {type: object, properties: {name: {type: string}}}}\n",
    "timer": "  - {id: a, wait: {for: PT1S}}\n",
    "start": "",
    "cancel": "  - {id: a, wait: {signal: go, correlate: x}}\n",
    "lease": "  - {id: a, do: probe.effect.apply, with: {name: a}}\n",
}


@pytest.fixture
async def clock(database_url: str) -> Clock:
    found = Clock(database_url)
    await found.install()
    return found


@pytest.mark.parametrize("by", [timedelta(seconds=60), timedelta(hours=2)])
@pytest.mark.parametrize("door", [*STEPS])
async def test_everything_goes_on_at_once_when_the_clock_has_gone_back(
    clock: Clock, runtime: Any, door: str, by: timedelta
) -> None:
    await clock.set(by)
    await runtime.tenant()
    await runtime.policy(POLICY)
    await runtime.publish(HEAD + STEPS[door] + AFTER)
    await runtime.person("olga", ("owners", "kyc"))
    keeper = Sweeper(runtime.database, runtime.definitions)
    await keeper.sweep()
    run_id = (await runtime.start("w")).run_id  # this process keeps a reading of the clock
    if door == "lease":
        await runtime.crash(runtime.gate_type(after_effect=True), "a", long_ago=True)
    elif door != "start":
        await runtime.worker().work_off()

    await clock.set(timedelta(0))
    with structlog.testing.capture_logs() as said:
        await _go_through(runtime, door, run_id)
        for _ in range(2):
            await keeper.sweep()
            if door == "timer":
                await runtime.trouble.bring_waits_nearer(timedelta(seconds=2))  # the second that it takes
            await keeper.sweep()
            await runtime.worker("after").work_off()
    run = await runtime.books.run(run_id)
    assert run.status == ("canceled" if door == "cancel" else "succeeded"), run.error
    await _lines_keep_the_latest_time(runtime, run_id, by)
    if door == "timer":
        assert [each for each in said if "clock has gone back" in each["event"]], "and the log says so"


async def _go_through(runtime: Any, door: str, run_id: Any) -> None:
    match door:
        case "vote":
            assert (await runtime.vote("olga", "approve")).counted
        case "signal":
            await runtime.signal("go:x", {})
        case "task":
            await runtime.complete("olga", {"name": "x"})
        case "start":
            assert (await runtime.start("w", ref="2")).created, "a reading that was kept is read again"
        case "cancel":
            async with runtime.faces.transaction("acme") as connection:
                await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "enough")


async def _lines_keep_the_latest_time(runtime: Any, run_id: Any, by: timedelta) -> None:
    lines = [json.loads(line) for line in await runtime.books.lines(run_id)]
    times = [line["ts"] for line in lines]
    marked = [line for line in lines if "clock_behind" in line["data"]]
    assert times[-1] == max(times), "no line goes back behind its book"
    assert marked, "and those that keep a later time say so"
    assert all(by.total_seconds() - 60 < line["data"]["clock_behind"] <= by.total_seconds() + 1 for line in marked)
    assert len({line["ts"] for line in marked}) == 1, "the later time is kept, and does not go on"


async def test_a_line_far_ahead_of_the_clock_and_of_its_book_is_still_refused(clock: Clock, runtime: Any) -> None:
    """The exception is for the book's own latest time, and for nothing behind it."""
    await runtime.tenant()
    await runtime.policy(POLICY)
    await runtime.publish(HEAD + STEPS["signal"] + AFTER)
    run_id = (await runtime.start("w")).run_id
    await runtime.worker().work_off()
    told = await runtime.books.event_types(run_id)

    async with runtime.database.connection() as connection:
        view = await load(connection, run_id, runtime.definitions.graphs)
        ahead = replace(view, now=view.now + timedelta(seconds=60), last_at=None)
        transition = Transition(ahead, NO_GRAPH)
        transition.tell(RunPaused(False, None, ""), actor=ENGINE)
        commit = transition.commit()
        assert await commits.apply(connection, commit) is None
    assert not await faces.append(runtime.faces, commit), "refused, and not an error: the caller reads the clock again"
    assert await runtime.books.event_types(run_id) == told
