"""Triggers know what is running: one run for a reference, the newest one, or one for many events (Q-1)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from core.errors import DefinitionError
from evidence.chain import Actor
from runtime.definition.workflow import load_workflow
from runtime.requests.publishing import retire_workflow
from runtime.requests.triggers import start_from_servicenow
from tests.support.trouble import Forger

pytestmark = pytest.mark.req("Q-1")
WORKFLOW = """
workflow: NAME
version: VERSION
reference: ${{ trigger.number }}
triggers: {servicenow: {table: incident, dedupe: "${{ trigger.id }}", MORE}}
steps:
  - {id: ok, approve: {summary: "Go on with ${{ trigger.id }}?", approvers: {group: leads}}}
  - {id: act, do: probe.effect.apply, with: {name: "${{ trigger.id }}"}}
"""
SKIP, NEWEST, DEBOUNCE = "overrun: skip", "overrun: newest", "debounce: PT30S"


def workflow(more: str, name: str = "w", version: int = 1) -> str:
    return WORKFLOW.replace("MORE", more).replace("NAME", name).replace("VERSION", str(version))


async def listening(runtime: Any, more: str, *tenants: str) -> None:
    for tenant in ("acme", *tenants):
        await runtime.tenant(tenant)
        await runtime.policy(tenant=tenant)
        await runtime.publish(workflow(more), tenant)
        for person in ("lea", "ana", "ben"):
            await runtime.person(person, ("leads",), tenant)


async def event(runtime: Any, id_: str, number: str = "INC1", tenant: str = "acme", **more: Any) -> Any:
    told = {"table": "incident", "event": "insert", "id": id_, "number": number, "opened_by": "requester", **more}
    async with runtime.faces.transaction(tenant) as connection:
        return await start_from_servicenow(connection, runtime.definitions, tenant, "main", "sn", told)


async def run_of(runtime: Any, id_: str, **more: Any) -> UUID:
    ((started,), unstarted) = await event(runtime, id_, **more)
    assert unstarted == []
    run_id: UUID = started.run_id
    return run_id


async def going(runtime: Any, tenant: str = "acme") -> list[Any]:
    return [one.id for one in await runtime.books.runs(tenant=tenant) if one.finished_at is None]


async def kept(runtime: Any, id_: str) -> dict[str, Any]:
    """Read what the inbox says of an event."""
    (found,) = [one.result for one in await runtime.books.notices(tenant="acme") if one.payload["id"] == id_]
    return dict(found)


async def storm(runtime: Any, count: int = 8) -> None:
    await asyncio.gather(*(event(runtime, f"s{number}") for number in range(count)))


async def test_skip_starts_nothing_while_a_run_goes_on_and_the_inbox_says_why(runtime: Any) -> None:
    await listening(runtime, SKIP, "other")
    first = await run_of(runtime, "1")
    for _ in range(2):  # the second time it is the same delivery again
        ((), (skipped,)) = await event(runtime, "2")
        assert (skipped.ignored, f"The run {first} for INC1 is not over" in skipped.reason) == (True, True)
    assert (await kept(runtime, "2"))["ignored"][0]["reason"] == skipped.reason
    await run_of(runtime, "3", number="INC2")
    await run_of(runtime, "4", tenant="other")
    by_hand = (await runtime.start("w", {"id": "9", "number": "INC3"}, ref="INC3")).run_id
    assert await run_of(runtime, "5", number="INC3") != by_hand, "a run that somebody starts by hand holds up no event"
    await runtime.worker().work_off()
    for asked in await runtime.books.approvals(open=True):
        if asked.run == first:
            assert (await runtime.vote("lea", "approve", on=asked.id)).counted
    await runtime.worker().work_off()
    assert await runtime.status(first) == "succeeded"
    ((), (again,)) = await event(runtime, "2")
    assert again.reason == skipped.reason, "what was decided about an event stays so"
    second = await run_of(runtime, "6")
    ((same,), _) = await event(runtime, "6")
    assert (same.run_id, same.created) == (second, False)


async def test_newest_cancels_what_goes_on_and_nothing_else(runtime: Any) -> None:
    await listening(runtime, NEWEST, "other")
    first = await run_of(runtime, "1")
    elsewhere = [
        await run_of(runtime, "2", number="INC2"),
        (await runtime.start("w", {"id": "9", "number": "INC1"})).run_id,
    ]
    other = await run_of(runtime, "1", tenant="other")
    await runtime.worker().work_off()
    (question,) = [one for one in await runtime.books.approvals(open=True) if one.run == first]
    second = await run_of(runtime, "3")
    ((same,), _) = await event(runtime, "3")
    assert (same.run_id, same.created) == (second, False), "a delivery again cancels nothing"
    assert not (await runtime.vote("lea", "approve", on=question.id)).counted
    await runtime.worker().work_off()
    assert await runtime.status(first) == "canceled"
    (canceled,) = [one for one in await runtime.books.events(first) if one.type == "run.canceled"]
    assert (canceled.actor["kind"], canceled.actor["id"]) == ("webhook", "sn")
    assert runtime.outside.effects == []
    assert {*await going(runtime)} == {*elsewhere, second}
    assert await going(runtime, "other") == [other]
    await runtime.history(first)


async def test_newest_lets_no_intent_out_of_a_run_whose_answer_came_too_late(runtime: Any) -> None:
    await listening(runtime, NEWEST)
    first = await run_of(runtime, "1")
    await runtime.worker().work_off()
    assert (await runtime.vote("lea", "approve")).counted
    await run_of(runtime, "2")
    await runtime.worker().work_off()
    assert (await runtime.status(first), runtime.outside.effects) == ("canceled", [])


@pytest.mark.parametrize("more", [SKIP, NEWEST])
async def test_events_at_the_same_moment_leave_one_run(runtime: Any, more: str) -> None:
    await listening(runtime, more)
    await storm(runtime)
    assert len(await going(runtime)) == 1
    assert len(await runtime.books.runs()) == (1 if more == SKIP else 8)


async def sweeps(runtime: Any, count: int) -> None:
    await asyncio.gather(*(runtime.restarted().sweep() for _ in range(count)))


async def test_debounce_makes_one_run_of_many_events_with_the_last_content(runtime: Any) -> None:
    await listening(runtime, DEBOUNCE)
    ((), (waits,)) = await event(runtime, "1", sys_updated_by="ana")
    ((), (later,)) = await event(runtime, "2", sys_updated_by="ben")
    assert (waits.until, (await event(runtime, "1"))[1][0].until) == (later.until, None), (
        "the window ends when it was to"
    )
    await event(runtime, "3", number="INC2")
    await sweeps(runtime, 1)
    assert await runtime.books.runs() == []
    await runtime.trouble.make_windows_due()
    await sweeps(runtime, 2)  # two keepers at once
    assert len(await runtime.books.runs()) == 2
    ((one,), _) = await event(runtime, "2", sys_updated_by="ben")
    assert (await kept(runtime, "2"))["runs"] == [str(one.run_id)]
    await runtime.worker().work_off()
    (asked,) = [each for each in await runtime.books.approvals(open=True) if each.run == one.run_id]
    assert asked.card["title"] == "Go on with 2?"
    for shaper in ("ana", "ben"):  # whoever shaped any of its events does not decide
        assert (await runtime.vote(shaper, "approve", on=asked.id)).code == "separation_of_duties"
    ((), (merged,)) = await event(runtime, "1", sys_updated_by="ana")
    assert merged.reason == "A later event for INC1 has taken its place."
    ((), (anew,)) = await event(runtime, "4")
    assert anew.until > later.until, "the next event begins another window"


async def test_a_window_ends_as_what_is_running_allows(runtime: Any) -> None:
    await listening(runtime, f"{SKIP}, {DEBOUNCE}")
    for id_ in ("1", "2"):
        await event(runtime, id_)
        await runtime.trouble.make_windows_due()
        await sweeps(runtime, 2)
    assert len(await runtime.books.runs()) == 1
    assert "is not over" in (await kept(runtime, "2"))["ignored"][0]["reason"]


async def test_what_waited_makes_room_for_an_event_that_waits_no_more(runtime: Any) -> None:
    await listening(runtime, DEBOUNCE)
    await event(runtime, "1")
    await runtime.publish(workflow(NEWEST, version=2))
    second = await run_of(runtime, "2")
    await runtime.trouble.make_windows_due()
    await sweeps(runtime, 2)
    assert await going(runtime) == [second], "an older event cancels no newer run"


async def test_a_window_whose_workflow_cannot_start_says_so(runtime: Any) -> None:
    await listening(runtime, DEBOUNCE)
    await event(runtime, "1")
    async with runtime.faces.transaction("acme") as connection:
        await retire_workflow(connection, "acme", "w", 1, Actor("test", "tester"))
    await runtime.trouble.make_windows_due()
    await sweeps(runtime, 2)
    assert "retired" in (await kept(runtime, "1"))["unstarted"][0]["reason"]
    assert await runtime.books.runs() == []
    assert await event(runtime, "1") == ([], []), "nothing listens any more"


async def test_a_crash_at_the_end_of_a_window_loses_nothing_and_doubles_nothing(
    runtime: Any, database_url: str, quiet: Any
) -> None:
    await listening(runtime, DEBOUNCE)
    await storm(runtime)
    await runtime.trouble.make_windows_due()
    async with Forger(database_url).windows_that_do_not_end():
        await sweeps(runtime, 2)
    assert await runtime.books.runs() == []
    await sweeps(runtime, 2)
    assert len(await runtime.books.runs()) == 1


@pytest.mark.parametrize(
    ("more", "reference", "words"),
    [
        (SKIP, "${{ run.id }}", "not made from the event"),
        (DEBOUNCE, "${{ trigger.number + run.id }}", "not made from the event"),
        ("overrun: some", "${{ trigger.number }}", "all"),
        ("debounce: PT0.1S", "${{ trigger.number }}", "at least a second"),
        ("debounce: P2D", "${{ trigger.number }}", "at most a day"),
    ],
)
def test_a_workflow_says_what_cannot_be_looked_at(runtime: Any, more: str, reference: str, words: str) -> None:
    text = workflow(more).replace("${{ trigger.number }}", reference)
    with pytest.raises(DefinitionError, match=words):
        load_workflow(text, "w.yaml", runtime.catalog)
