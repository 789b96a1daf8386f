"""Changes of our own integration user start nothing, unless a workflow says so (promise 9, Q-1)."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.requests.triggers import Unstarted, start_from_servicenow

OWN = "counterseal.integration"
FLOW = """
workflow: NAME
version: 1
reference: ${{ run.id }}
triggers: {servicenow: {table: incident, events: [insert, update], dedupe: "${{ trigger.id }}"MORE}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
BY = {
    "a person": ({"sys_updated_by": "raj.quist"}, True),
    "us": ({"sys_updated_by": OWN}, False),
    "us in other letters": ({"sys_updated_by": f" {OWN.upper()} "}, False),
    "nobody": ({}, False),
    "an empty name": ({"sys_updated_by": " "}, False),
    "no text": ({"sys_updated_by": 7}, False),
}


async def told(runtime: Any, number: int = 1, own: str | None = OWN, **event: Any) -> tuple[list[str], list[Unstarted]]:
    found: Any = {"table": "incident", "event": "update", "id": str(number), **event}
    place = (runtime.definitions, "acme", "main", "sn", found, own)
    async with runtime.faces.transaction("acme") as connection:
        runs, unstarted = await start_from_servicenow(connection, *place)
    return [(await runtime.books.run(run.run_id)).workflow for run in runs], unstarted


async def listening(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(FLOW.replace("NAME", "usual").replace("MORE", ""))
    await runtime.publish(FLOW.replace("NAME", "wants").replace("MORE", ", own_events: true"))


@pytest.mark.parametrize("kind", ["insert", "update"])
@pytest.mark.parametrize("who", BY)
async def test_own_changes_start_only_what_wants_them(runtime: Any, who: str, kind: str) -> None:
    await listening(runtime)
    event, starts = BY[who]
    workflows, ignored = await told(runtime, event=kind, **event)
    assert workflows == (["usual", "wants"] if starts else ["wants"])
    assert [(one.workflow, one.ignored) for one in ignored] == ([] if starts else [("usual", True)])
    (kept,) = await runtime.books.notices()
    reasons = [one["reason"] for one in kept.result.get("ignored", [])]
    assert reasons == [one.reason for one in ignored]
    assert await told(runtime, event=kind, **event) == (workflows, ignored)  # delivered again


async def test_where_nothing_writes_to_servicenow_no_event_is_our_own(runtime: Any) -> None:
    await listening(runtime)
    assert (await told(runtime, own=None))[0] == ["usual", "wants"]


async def test_one_edit_of_a_person_starts_one_run(runtime: Any) -> None:
    """Each run writes a note, of which the business rule tells us."""
    await listening(runtime)
    runs = (await told(runtime, 1, sys_updated_by="raj.quist"))[0].count("usual")
    for number in range(2, 6):
        await runtime.worker().work_off()
        runs += (await told(runtime, number, sys_updated_by=OWN))[0].count("usual")
    assert runs == 1
