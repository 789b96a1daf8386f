"""Events from outside start what listens to them, and nothing else (Q-1)."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.requests.triggers import start_from_servicenow

LISTENS = """
workflow: %s
version: 1
reference: ${{ run.id }}
triggers: {servicenow: {table: %s, events: [%s], dedupe: "${{ trigger.id }}"%s}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""


async def listening(runtime: Any, *texts: str) -> None:
    await runtime.tenant()
    await runtime.policy()
    for text in texts:
        await runtime.publish(text)


async def started(runtime: Any, **event: Any) -> tuple[list[str], list[str]]:
    """The workflows that an event has started, and those that it could not start."""
    told: Any = {"table": "incident", "event": "insert", "id": "1", **event}
    async with runtime.faces.transaction("acme") as connection:
        runs, unstarted = await start_from_servicenow(connection, runtime.definitions, "acme", "main", "sn", told)
    workflows = [(await runtime.books.run(run.run_id)).workflow for run in runs if run.created]
    return workflows, [one.workflow for one in unstarted]


@pytest.mark.parametrize(
    ("event", "workflows"),
    [
        ({"event": "insert"}, ["both", "inserts"]),
        ({"event": "update"}, ["both", "updates"]),
        ({"table": "problem", "event": "insert"}, ["elsewhere"]),
        ({"table": "problem", "event": "update"}, []),
        ({"table": "Incident"}, []),
    ],
)
async def test_an_event_starts_what_listens_to_its_table_and_its_kind(
    runtime: Any, event: Any, workflows: list[str]
) -> None:
    of = {
        "inserts": ("incident", "insert"),
        "updates": ("incident", "update"),
        "both": ("incident", "insert, update"),
        "elsewhere": ("problem", "insert"),
    }
    await listening(runtime, *(LISTENS % (name, *which, "") for name, which in of.items()))
    assert await started(runtime, **event) == (workflows, [])
    assert await started(runtime, **event) == ([], [])  # the same delivery again


@pytest.mark.parametrize(
    ("n", "workflows", "unstarted"),
    [(True, ["w"], []), (False, [], []), *((other, [], ["w"]) for other in (1, "yes", [1], None))],
)
async def test_a_condition_starts_what_it_is_true_of_and_says_of_what_it_is_neither_true_nor_false(
    runtime: Any, n: Any, workflows: list[str], unstarted: list[str]
) -> None:
    await listening(runtime, LISTENS % ("w", "incident", "insert", ', when: "${{ trigger.n }}"'))
    assert await started(runtime, n=n) == (workflows, unstarted)
