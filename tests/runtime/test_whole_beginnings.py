"""Beginnings of runs and ends of tasks, whole: each answer or refusal, with every line that it leaves in an audit."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import to_builtins

from approvals.model import VoteChannel
from evidence.chain import Actor
from runtime.requests import publishing, steering
from runtime.requests.starting import StartRequest, start_named
from runtime.requests.tasks import Tasks
from runtime.requests.triggers import start_from_servicenow
from tests.runtime.test_whole_requests import ANN, BOB, Told, compared, told

__all__ = ["told"]

LISTENS = """workflow: {}
version: 1
reference: "${{{{ trigger.number }}}}"
triggers: {{servicenow: {{table: {}, events: [{}]{}}}}}
steps: [{{id: wait, wait: {{for: P1D}}}}]
"""
TASK = """workflow: form
version: 1
reference: "${{ trigger.number }}"
steps:
  - id: sign
    task:
      title: "Sign ${{ trigger.number }}"
      description: In ink.
      assign: {group: leads}
      form: {type: object, additionalProperties: false, properties: {name: {type: string}}, required: [name]}
"""


async def published(told: Told, *texts: str) -> None:
    for tenant in ("other", "acme"):
        for text in texts:
            async with told.runtime.faces.transaction(tenant) as connection:
                await publishing.publish_workflow(connection, told.runtime.definitions, tenant, text, "f.yaml", ANN)
    await told.lines()


@pytest.mark.req("Q-1")
async def test_events_start_runs(told: Told) -> None:
    runtime = told.runtime
    await published(
        told,
        LISTENS.format("all", "incident", "insert, update", ""),
        LISTENS.format("by_condition".replace("_", "-"), "incident", "insert", ', when: "${{ trigger.state == 1 }}"'),
        LISTENS.format("by-urgency", "incident", "insert", ', when: "${{ trigger.urgency == 1 }}"'),
        LISTENS.format("once", "incident", "update", ', dedupe: "${{ trigger.number }}"'),
        LISTENS.format("nameless", "incident", "update", ', dedupe: "${{ trigger.nothing }}"'),
        LISTENS.format("elsewhere", "problem", "insert", ""),
    )
    record = {"table": "incident", "sys_id": "a1", "sys_mod_count": "0", "number": "INC1", "state": 1}
    names = {"opened_by": "0" * 32, "opened_by_user_name": "ann.lee", "sys_updated_by": "Bob"}
    events: dict[str, Any] = {
        "inserted": record | names | {"event": "insert"},
        "the same again": record | names | {"event": "insert"},
        "updated": record | names | {"event": "update", "sys_mod_count": "1", "sys_updated_by": "ANN.LEE"},
        "updated again": record | {"event": "update", "sys_mod_count": "2", "opened_by": "0" * 32},
        "by nobody": record | {"event": "insert", "sys_id": "a2", "urgency": 1, "state": 2, "sys_updated_by": " "},
        "of another table": record | {"event": "insert", "table": "change"},
        "deleted": record | {"event": "delete"},
        "of no table": {"event": "insert"},
        "without a number": {"table": "incident", "event": "insert", "sys_id": "a3", "sys_mod_count": "0"},
    }
    for name, event in events.items():
        call = (start_from_servicenow, runtime.definitions, "acme", "main", "sn", event)

        async def answered(call: Any = call) -> Any:
            async with runtime.faces.transaction("acme") as connection:
                runs, unstarted = await call[0](connection, *call[1:])
            return to_builtins({"runs": [[run.created, run.reference] for run in runs], "unstarted": unstarted})

        await told(name, answered())
    notices = await runtime.books.notices()
    told.found["kept"] = told.named([[one.tenant, one.source, one.processed, one.result] for one in notices])
    begun = sorted(await runtime.books.runs(), key=lambda run: str(run.id))
    told.found["begun"] = told.named([[run.tenant, run.workflow, run.reference, run.requested_by] for run in begun])
    compared(told, "events")


@pytest.mark.req("Q-1")
async def test_runs_begin_with_what_was_asked(told: Told) -> None:
    runtime, now = told.runtime, datetime.now(UTC)
    await published(told, LISTENS.format("slow", "incident", "insert", "") + "sla: P3D\n")
    base = StartRequest("acme", "main", "http", "1", {"number": "N1", "name": "n"}, "person:ann", BOB)

    def start(name: str = "flow", number: int | None = None, **more: Any) -> Awaitable[Any]:
        fields = {field: getattr(base, field) for field in base.__struct_fields__} | more
        return start_named(runtime.faces, runtime.definitions, name, number, StartRequest(**fields))

    opened = (await told("open", start("slow", open=True))).run_id
    await told("of this version", start(number=1, trigger_ref="2", workspace_id="side", requested_by="ann"))
    await told("of no version", start(number=2, trigger_ref="3"))
    await told("until a moment, and not open", start(trigger_ref="4", until=now + timedelta(days=1)))
    for name, days in (("the past", -1), ("too far", 367)):
        await told(f"open until {name}", start(trigger_ref="5", open=True, until=now + timedelta(days=days)))
    await told("shaped by others", start(trigger_ref="6", shaped=("updater:person:bob",), depth=2))
    await told("the same key of another kind", start(trigger_ref="1", trigger_type="cli"))
    await told("the same key for another workflow", start("slow", trigger_ref="1", trigger_type="cli"))
    await told.within("close", steering.close_run, runtime.definitions, "acme", opened, BOB, "no more")
    await told.within("close again", steering.close_run, runtime.definitions, "acme", opened, BOB, "no more")
    async with runtime.faces.transaction("acme") as connection:
        await publishing.retire_workflow(connection, "acme", "flow", 1, ANN)
    await told.lines()
    await told("retired", start(trigger_ref="7"))
    await told("retired, with a key that has started one", start(trigger_ref="6"))
    compared(told, "starts")


@pytest.mark.req("X-9")
async def test_tasks_are_completed(told: Told) -> None:
    runtime = told.runtime
    await published(told, TASK)
    runs = [(await runtime.start("form", {"number": f"N{n}"}, ref=str(n))).run_id for n in (1, 2)]
    theirs = (await runtime.start("form", {"number": "N1"}, tenant="other")).run_id
    await runtime.worker().work_off()
    first, second, other = [(await runtime.books.wait(run=run, open=True)).id for run in (*runs, theirs)]
    await told.lines()
    tasks = Tasks(runtime.faces, runtime.definitions)

    def complete(task: Any, person: str, value: Any) -> Awaitable[Any]:
        return tasks.complete("acme", task, person, value, VoteChannel.SLACK)

    await told("as it stands", tasks.view("acme", first))
    await told("a stranger's", tasks.view("acme", other))
    await told("complete a stranger's", complete(other, "ann", {"name": "a"}))
    for person in ("zoe", "bob", "cid", "eve"):
        await told(f"by {person}", complete(first, person, {"name": "a"}))
    await told("without what it needs", complete(first, "ann", {}))
    await told("with more than it takes", complete(first, "ann", {"name": "a", "more": 1}))
    await told("done", complete(first, "ann", {"name": "a"}))
    await told("done again", complete(first, "ann", {"name": "a"}))
    await told("done again otherwise", complete(first, "ann", {"name": "b"}))
    await told("as it stands then", tasks.view("acme", first))
    async with runtime.faces.transaction("acme") as connection:
        actor = Actor("person", "ann")
        await steering.cancel_run(connection, runtime.definitions, "acme", runs[1], actor, "enough")
    await told.lines()
    await told("when it is not needed any more", complete(second, "ann", {"name": "a"}))
    compared(told, "tasks")
