"""Each moment of a schedule starts one run, or is named: with daylight saving, outages, two keepers (Q-1)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from core.errors import DefinitionError
from evidence.chain import Actor
from runtime.definition.workflow import load_workflow
from runtime.requests.publishing import publish_workflow, retire_workflow
from runtime.requests.scheduling import fire
from runtime.store import schedules

pytestmark = pytest.mark.req("Q-1")
WORKFLOW = """
workflow: w
version: VERSION
reference: ${{ trigger.report }}
triggers:
  schedule: {cron: CRON, timezone: Europe/Berlin, MORE, with: {report: weekly}}
steps:
  - {id: ok, approve: {summary: Go on?, approvers: {group: leads}}}
"""
ACTOR = Actor("test", "tester")


def workflow(cron: str, more: str = "missed: run_once", version: int = 1) -> str:
    return WORKFLOW.replace("CRON", f"'{cron}'").replace("MORE", more).replace("VERSION", str(version))


async def publish(runtime: Any, text: str) -> None:
    async with runtime.faces.transaction("acme") as connection:
        await publish_workflow(connection, runtime.definitions, "acme", text, "w", ACTOR)


async def scheduled(runtime: Any, text: str, since: str) -> None:
    """Publish a schedule of which all moments up to ``since`` are decided."""
    await runtime.tenant("acme")
    await runtime.person("lea", ("leads",))
    await publish(runtime, text)
    await runtime.sweep()
    await runtime.execute("UPDATE schedules SET upto = $1, next_at = $1", at(since))
    await runtime.execute("UPDATE workflows SET published_at = $1, startable_at = $1", at(since) - timedelta(days=1))


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


async def keep(runtime: Any, begin: str, end: str, every: timedelta = timedelta(hours=1)) -> None:
    """Let two keepers look again and again from one moment to another."""
    now = at(begin)
    while now <= at(end):
        both = (fire(runtime.database, runtime.definitions, "acme", "w", now) for _ in range(2))
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [one for one in found if isinstance(one, BaseException)] == []
        now += every


async def told(runtime: Any) -> list[tuple[str, str]]:
    """Each moment and its outcome, in order."""
    async with runtime.faces.transaction("acme") as connection:
        found = await schedules.moments(connection, "acme", "w", 1000)
    return [(one["moment"][5:16], one["outcome"]) for one in reversed(found)]


async def test_each_moment_across_both_changes_of_the_clocks_and_an_outage_starts_once_or_is_told(runtime: Any) -> None:
    await scheduled(runtime, workflow("30 2 * 3,10 *"), "2027-03-26T12:00")
    await keep(runtime, "2027-03-26T12:30", "2027-03-29T12:30")
    # Nobody is there from the 29th of March to the 30th of October.
    await keep(runtime, "2027-10-30T12:30", "2027-11-02T12:30")
    found = await told(runtime)
    started = [moment for moment, outcome in found if outcome == "started"]
    assert started == ["03-27T01:30", "03-28T01:30", "03-29T00:30", "10-30T00:30", "10-31T00:30"]
    missed = [moment for moment, outcome in found if outcome == "missed"]
    assert len(missed) == 2 + 29
    assert len(found) == len(started) + len(missed)
    lines = [one.data["moment"][5:16] for one in await runtime.books.audit(type="schedule.missed")]
    assert lines == missed, "each missed moment has a line"
    runs = await runtime.books.runs()
    assert len(runs) == len(started)
    assert {one.reference for one in runs} == {"weekly"}


@pytest.mark.parametrize(
    ("more", "second", "after_outage"),
    [
        ("missed: run_once", "started", "started"),
        ("missed: skip", "started", "missed"),
        ("overrun: skip", "skipped", "skipped"),
        ("overrun: newest", "started", "started"),
    ],
)
async def test_policies_for_what_was_missed_and_for_what_still_runs(
    runtime: Any, more: str, second: str, after_outage: str
) -> None:
    await scheduled(runtime, workflow("0 18 * * *", more), "2027-01-01T12:00")
    await keep(runtime, "2027-01-01T17:01", "2027-01-02T17:01", timedelta(days=1))
    await keep(runtime, "2027-01-05T11:00", "2027-01-05T11:00")
    days = [("01-01T17:00", "started"), ("01-02T17:00", second), ("01-03T17:00", "missed")]
    assert await told(runtime) == [*days, ("01-04T17:00", after_outage)]
    going = [one for one in await runtime.books.runs() if one.status not in ("canceled", "failed", "failed_terminal")]
    assert len(going) == {"overrun: skip": 1, "missed: skip": 2}.get(more, len(going))


async def test_a_new_version_takes_the_old_ones_place_and_a_retired_one_starts_nothing(runtime: Any) -> None:
    await scheduled(runtime, workflow("0 18 * * *"), "2027-01-01T12:00")
    await keep(runtime, "2027-01-01T17:01", "2027-01-01T17:01")
    await publish(runtime, workflow("0 6 * * *", version=2))
    await runtime.execute("UPDATE workflows SET startable_at = published_at, published_at = $1", at("2027-01-02T12:00"))
    await keep(runtime, "2027-01-03T05:01", "2027-01-03T05:01")
    assert await told(runtime) == [("01-01T17:00", "started"), ("01-03T05:00", "started")]
    async with runtime.faces.transaction("acme") as connection:
        for version in (1, 2):
            await retire_workflow(connection, "acme", "w", version, ACTOR)
    await runtime.execute("UPDATE workflows SET retired_at = $1", at("2027-01-03T12:00"))
    await keep(runtime, "2027-01-05T05:01", "2027-01-06T05:01", timedelta(days=1))
    assert len(await told(runtime)) == 2
    async with runtime.faces.transaction("acme") as connection:
        assert await schedules.listed(connection, "acme") == []


async def test_retiring_the_newest_version_goes_back_to_the_schedule_of_the_one_before(runtime: Any) -> None:
    await scheduled(runtime, workflow("0 6 * * *"), "2027-01-01T12:00")
    await publish(runtime, workflow("0 18 * * *", version=2))
    await keep(runtime, "2027-01-01T13:00", "2027-01-01T13:00")
    await runtime.execute("UPDATE workflows SET retired_at = $1 WHERE version = 2", at("2027-01-02T12:00"))
    await keep(runtime, "2027-01-03T12:00", "2027-01-03T12:00")
    assert await told(runtime) == [("01-01T17:00", "missed"), ("01-03T05:00", "started")]


async def test_a_moment_that_cannot_start_is_named_and_the_sweep_finds_what_is_due(runtime: Any) -> None:
    await scheduled(runtime, workflow("* * * * *").replace("{report: weekly}", "{other: 1}"), "2026-01-01T12:00")
    assert await runtime.sweep() > 0
    found = await told(runtime)
    assert (len(found), {outcome for _, outcome in found}) == (100, {"missed"}), "many moments go in batches"
    await runtime.execute("UPDATE schedules SET upto = now() - interval '1 minute', next_at = now()")
    await runtime.sweep()
    assert [outcome for _, outcome in await told(runtime)][-1] == "failed"
    assert await runtime.books.audit(type="workflow.unstarted") != []
    async with runtime.faces.transaction("acme") as connection:
        (listed,) = await schedules.listed(connection, "acme")
    assert (listed.cron, listed.missed, listed.last_outcome) == ("* * * * *", 100, "failed")
    assert listed.next_at is not None
    assert "reference" in str(listed.last_reason)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 18 * *", "has 4 fields"),
        ("60 18 * * *", "is no minute"),
        ("0 18 30 2 *", "never comes"),
        ("0 18 * * 5-1", "is no day of the week"),
        ("0 18 1W * *", "is no day of the month"),
    ],
)
def test_a_cron_expression_is_strict(runtime: Any, cron: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        load_workflow(workflow(cron), "w.yaml", runtime.catalog)
    with pytest.raises(DefinitionError, match="Did you mean 'Europe/Berlin'"):
        load_workflow(workflow("0 18 * * *").replace("Berlin", "Berln"), "w.yaml", runtime.catalog)
