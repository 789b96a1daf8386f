"""A webhook says what becomes of an event whose trigger looks at what is running: started, not started, not yet."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.chain import Actor
from runtime.requests.publishing import publish_workflow

WORKFLOW = """
workflow: looks
version: 1
reference: ${{ trigger.number }}
triggers: {servicenow: {table: problem, dedupe: "${{ trigger.id }}", MORE}}
steps:
  - {id: ok, approve: {summary: Go on?, approvers: {group: leads}}}
"""


@pytest.mark.req("Q-1")
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("overrun: skip", [(202, "1 started."), (200, "is not over, so no other is started.")]),
        ("overrun: newest", [(202, "1 started."), (202, "1 started.")]),
        ("debounce: PT30S", [(202, "It waits for further events for INC1"), (202, "It waits for further events")]),
    ],
)
async def test_the_answer_says_what_becomes_of_an_event(installation: Any, more: str, says: Any) -> None:
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        text = WORKFLOW.replace("MORE", more)
        await publish_workflow(connection, faces.definitions, "default", text, "w", Actor("test", "tester"))
    for number, (status, words) in enumerate(says):
        told = {"table": "problem", "event": "insert", "id": str(number), "number": "INC1"}
        for _ in range(2):  # delivered again, it gets the same answer
            answer = await installation.webhook(told)
            assert (answer.status_code, words in answer.json()["sentence"]) == (status, True), answer.text
