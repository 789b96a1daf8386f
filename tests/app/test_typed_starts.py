"""A start that does not fit the `trigger` of its workflow starts nothing, and the answer names the field."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role

TYPED = """
workflow: typed
version: 1
reference: ${{ trigger.number }}
trigger:
  type: object
  required: [number, priority]
  properties: {number: {type: string}, priority: {enum: ["1", "2"]}}
triggers: {servicenow: {table: change, events: [insert], dedupe: "${{ trigger.number }}"}}
steps: [{id: go, do: probe.effect.apply, with: {name: "${{ trigger.number }}"}}]
"""


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"number": "C1", "priority": "1"}, ""),
        ({"number": "C2", "priority": "9"}, "trigger.priority"),
        ({"number": "C3"}, "priority"),
        ({"number": 7, "priority": "1"}, "trigger.number"),
    ],
)
async def test_a_start_and_a_webhook_that_do_not_fit_are_a_422_with_the_field(
    installation: Any, given: dict[str, Any], field: str
) -> None:
    await installation.add(TYPED)
    client = await installation.client(Role.OPERATOR, Role.TRIGGER)
    started = await client.post("/v1/runs", json={"workflow": "typed", "input": given})
    sent = await installation.webhook({**given, "table": "change", "event": "insert", "sys_id": "s1"})
    for answer in (started, sent):
        assert (answer.status_code in (200, 201, 202)) is (field == ""), answer.text
        assert field == "" or (answer.status_code == 422 and field in answer.text), answer.text
    assert len(await installation.books.runs(workflow="typed")) == (2 if field == "" else 0)
