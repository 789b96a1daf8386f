"""Open runs: when its steps are done, such a run waits for more, until it is closed or its time is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from core.errors import ConsistencyError, InputError
from runtime.requests.steering import cancel_run, close_run
from runtime.requests.views import RunReader
from runtime.store import read_models

pytestmark = pytest.mark.req("V-6")

FIRST = "workflow: w\nversion: 1\nresult: done\nsteps: [{id: a, do: probe.effect.apply, with: {name: a}}]\n"
NONE = "workflow: w\nversion: 1\nsteps: [{if: '${{ false }}', then: [{wait: {for: PT1H}}]}]\n"
MORE = {"steps": [{"id": "b", "do": "probe.effect.apply", "with": {"name": "b"}}]}


async def opened(runtime: Any, text: str = FIRST, **more: Any) -> UUID:
    """An open run whose steps are done."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(text)
    run: UUID = (await runtime.start("w", open=True, **more)).run_id
    await runtime.worker().work_off()
    assert await runtime.status(run) == "waiting"
    return run


async def close(runtime: Any, run: UUID, reason: str = "") -> str:
    async with runtime.faces.transaction("acme") as connection:
        return str(await close_run(connection, runtime.definitions, "acme", run, runtime.actor, reason))


async def shown(runtime: Any, run: UUID) -> Any:
    async with runtime.faces.transaction("acme") as connection:
        return await read_models.run(connection, "acme", run)


@pytest.mark.parametrize("text", [FIRST, NONE])
async def test_it_waits_for_more_steps_and_does_them(runtime: Any, text: str) -> None:
    run = await opened(runtime, text)
    await runtime.at_rest_but_waiting()
    assert (await shown(runtime, run))["waiting_for"] == "more steps"
    for name in ("b", "c"):
        await runtime.extend(run, {"steps": [{"id": name, "do": "probe.effect.apply", "with": {"name": name}}]})
        assert (await shown(runtime, run))["waiting_for"] is None
        await runtime.worker().work_off()
        assert await runtime.status(run) == "waiting"
    assert await close(runtime, run, "nothing more") == "succeeded"
    assert [call.input["name"] for call in runtime.outside.effects][-2:] == ["b", "c"]
    told = await runtime.events(run)
    assert told[-2:] == ["run.sealed", "run.closed"]
    assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run)).ok
    await runtime.at_rest()


async def test_it_ends_when_its_time_is_over(runtime: Any) -> None:
    run = await opened(runtime)
    until = (await shown(runtime, run))["open_until"]
    assert timedelta(days=6, hours=23) < until - datetime.now(UTC) <= timedelta(days=7)
    await runtime.sweep()
    assert await runtime.status(run) == "waiting"
    await runtime.trouble.make_open_runs_due()
    await runtime.sweep()
    assert await runtime.status(run) == "succeeded"
    assert (await shown(runtime, run))["result"] == "done"


async def test_the_sla_or_the_start_says_how_long_it_waits(runtime: Any) -> None:
    run = await opened(runtime, FIRST.replace("steps:", "sla: PT2H\nsteps:"))
    assert (await shown(runtime, run))["open_until"] - datetime.now(UTC) <= timedelta(hours=2)
    until = datetime.now(UTC) + timedelta(days=3)
    other = (await runtime.start("w", ref="2", open=True, until=until)).run_id
    assert abs((await shown(runtime, other))["open_until"] - until) < timedelta(minutes=1)


@pytest.mark.parametrize(("more", "words"), [({"days": -1}, "is past"), ({"days": 400}, "more than 366 days")])
async def test_a_deadline_that_cannot_be_is_refused(runtime: Any, more: dict[str, int], words: str) -> None:
    await runtime.tenant()
    await runtime.publish(FIRST)
    with pytest.raises(InputError, match=words):
        await runtime.start("w", open=True, until=datetime.now(UTC) + timedelta(**more))
    with pytest.raises(InputError, match="deadline of an open run"):
        await runtime.start("w", until=datetime.now(UTC))


async def test_what_is_closed_early_ends_when_its_steps_are_done(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(FIRST)
    run = (await runtime.start("w", open=True)).run_id
    assert await close(runtime, run) == "queued"
    await runtime.worker().work_off()
    assert await runtime.status(run) == "succeeded"
    with pytest.raises(ConsistencyError, match="waits for no more steps"):
        await close(runtime, run)


async def test_a_run_that_was_not_opened_is_not_closed(runtime: Any) -> None:
    run = await runtime.go("workflow: w\nversion: 1\nsteps: [{wait: {for: PT1H}}]\n")
    with pytest.raises(ConsistencyError, match="waits for no more steps"):
        await close(runtime, run)


async def test_a_failed_step_fails_it_and_a_cancel_ends_it(runtime: Any) -> None:
    run = await opened(runtime)
    async with runtime.faces.transaction("acme") as connection:
        assert await cancel_run(connection, runtime.definitions, "acme", run, runtime.actor, "") == "canceled"
    other = (await runtime.start("w", ref="2", open=True)).run_id
    await runtime.worker().work_off()
    await runtime.extend(other, {"steps": [{"id": "x", "set": {}, "wait": {"until": "never"}}]})
    await runtime.worker().work_off()
    assert await runtime.status(other) == "failed_terminal"
    await runtime.at_rest()
