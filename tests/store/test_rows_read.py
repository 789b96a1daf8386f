"""Rows as the store reads them: every column in its place, and words where there is no row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from approvals.model import TaskState, TaskView
from approvals.ports import MessageRef
from core.errors import ConsistencyError, NotFoundError
from core.identity import Directory, Entry
from evidence.chain import Actor, ChainHead, Event, append
from evidence.events import EventType
from runtime.store import approvals, audit, retention, runs, tasks, tenants, unavailable
from runtime.store.tasks import StoredTask
from tests.support.asked import Asked, Row
from tests.support.rows import uid

NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
ANN = Actor("person", "ann")
NOTHING: Any = None

# -- the tenant's audit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 3])
async def test_a_fact_is_told_behind_the_end_of_its_tenant_s_chain(count: int) -> None:
    row = Row(stream_id=uid(1), audit_count=count, audit_head="ab" * 32, now=NOON)
    connection: Any = Asked(row)
    await audit.record(connection, "acme", EventType.POLICY_PUBLISHED, ANN, {"n": 1})
    head = ChainHead("tenant:acme", 3, "ab" * 32) if count else ChainHead.of("tenant:acme")
    (line,), after = append(head, [Event(EventType.POLICY_PUBLISHED, ANN, NOON, {"n": 1})])
    assert connection.told == [
        (audit._HEAD, "acme"), (audit._LINE, "acme", uid(1), count, "policy.published", line, after.hash)
    ]  # fmt: skip


async def refused(asking: Any) -> str:
    with pytest.raises((NotFoundError, ConsistencyError)) as caught:
        await asking
    return str(caught.value)


async def test_what_is_not_there_is_named_with_what_to_do() -> None:
    nothing: Any = Asked()
    create = "Create it with `counterseal tenant create`."
    told = audit.record(nothing, "acme", EventType.POLICY_PUBLISHED, ANN, {})
    assert await refused(told) == f"There is no tenant 'acme'. {create}"
    assert await refused(tasks.read(nothing, uid(1))) == f"There is no task {uid(1)}."
    assert await refused(runs.ending_of(nothing, uid(1))) == f"There is no run {uid(1)}."
    assert await refused(approvals.run_of(nothing, uid(1))) == f"There is no approval {uid(1)}."
    assert await refused(approvals.read(nothing, uid(1))) == f"There is no approval {uid(1)}."
    missing = await refused(retention.remains(nothing, uid(1)))
    assert missing.startswith(f"The row that retention kept of the run {uid(1)} is missing.")


# -- tasks -----------------------------------------------------------------------------------------------------------

FORM = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
CONTEXT = {"title": "T", "description": "D", "group": "g", "form": FORM, "fields": ["a", "b"]}


def task_row(*, wait: Any = NOTHING, **more: Any) -> Row:
    wait = wait or {}
    columns = {
        "wait_id": str(uid(1)), "run_id": str(uid(2)), "tenant_id": "acme", "step_key": "a", "status": "completed",
        "context": CONTEXT, "result": {"output": {"b": "x"}, "by": "person:ann"}, "channel": "C1", "message_ts": "9.1",
        **wait,
    }  # fmt: skip
    row = {
        "wait": columns, "workspace_id": "main", "workflow": "w", "workflow_version": 3, "reference": "r",
        "due_at": LATER, "created_at": NOON, "by": "Ann", "person": {"name": "Bob", "groups": ["g", "h"]},
    }  # fmt: skip
    return Row(**{**row, **more})


def task(**more: Any) -> StoredTask:
    view: dict[str, Any] = {
        "task_id": uid(1), "title": "T", "description": "D", "form": FORM, "group": "g", "state": TaskState.COMPLETED,
        "workflow": "w", "workflow_version": 3, "run_id": str(uid(2)), "reference": "r", "step": "a",
        "due_at": "2026-01-01T13:00:00+00:00", "completed_by": "Ann", "link": "", **more.pop("view", {}),
    }  # fmt: skip
    row: dict[str, Any] = {
        "view": TaskView(**view), "tenant_id": "acme", "workspace_id": "main", "run_id": uid(2), "value": {"b": "x"},
        "by": "person:ann", "groups": frozenset({"g", "h"}), "message": MessageRef("C1", "9.1"), "created_at": NOON,
    }  # fmt: skip
    return StoredTask(**{**row, **more})


OPEN = {"status": "waiting", "result": None, "message_ts": None}


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (task_row(), task()),
        (
            task_row(wait=OPEN, by=None, due_at=None, person=None),
            task(view={"state": TaskState.OPEN, "due_at": "", "completed_by": ""}, value=None, by="", groups=None,
                 message=None),
        ),
        # Whoever is not in the directory any more is told by the name in the book.
        (task_row(by=None), task(view={"completed_by": "ann"})),
        (
            task_row(wait={"result": {"output": 0, "by": "token:ci"}}, by=None),
            task(view={"completed_by": "token:ci"}, value=0, by="token:ci"),
        ),
        (
            task_row(wait={"result": {"output": "", "by": None}}, by=None),
            task(view={"completed_by": ""}, value="", by=""),
        ),
        (task_row(wait={"result": {"output": {}}}, by=None), task(view={"completed_by": ""}, value={}, by="")),
        (task_row(wait={"message_ts": None}), task(message=None)),
        (
            task_row(wait={"step_key": "a/1/b"}, due_at=LATER.replace(microsecond=7)),
            task(view={"step": "a/1/b", "due_at": "2026-01-01T13:00:00+00:00"}),
        ),
        (task_row(person={"name": "Bob", "groups": []}), task(groups=frozenset())),
        (task_row(person={"name": "Bob", "groups": None}), task(groups=frozenset())),
        (task_row(wait={"status": "timed_out"}), task(view={"state": TaskState.EXPIRED})),
        (task_row(wait={"status": "canceled"}), task(view={"state": TaskState.CANCELED})),
    ],
)  # fmt: skip
async def test_a_task_is_read_with_every_part_of_it(row: Row, wanted: StoredTask) -> None:
    connection: Any = Asked(row)
    found = await tasks.read(connection, uid(1), "bob")
    assert found == wanted
    properties: Any = found.view.form["properties"]
    assert [*properties] == ["a", "b"], "its fields are in their author's order"
    assert connection.told == [(tasks._READ, uid(1), "bob")]


@pytest.mark.parametrize(
    ("state", "status"),
    [(None, None), (TaskState.OPEN, "waiting"), (TaskState.COMPLETED, "completed"), (TaskState.EXPIRED, "timed_out"),
     (TaskState.CANCELED, "canceled")],
)  # fmt: skip
async def test_tasks_are_listed_by_their_state_and_group(state: TaskState | None, status: str | None) -> None:
    rows = [task_row(workflow="v"), task_row()]
    connection: Any = Asked(rows)
    listed = [task(view={"workflow": "v"}), task()]
    assert await tasks.page(connection, "acme", 5, uid(9), state=state, group="g") == listed
    assert connection.told == [(tasks._PAGE, "acme", uid(9), status, "g", 5)]


# -- tenants and people ----------------------------------------------------------------------------------------------


async def test_a_directory_is_made_of_all_that_its_rows_say() -> None:
    rows = [
        Row(directory_digest="d", person_id="ann", name="Ann", active=True, owner=None,
            principals=["slack:U2", "mail:a"], groups=["g", "h"]),
        Row(directory_digest="d", person_id="bot", name="Bot", active=False, owner="ann", principals=[], groups=None),
    ]  # fmt: skip
    connection: Any = Asked(rows)
    assert await tenants.directory(connection, "acme") == Directory.of("d", [
        Entry("ann", "Ann", True, frozenset({"g", "h"}), ("slack:U2", "mail:a"), None),
        Entry("bot", "Bot", False, frozenset(), (), "ann"),
    ])  # fmt: skip
    assert connection.told == [(tenants._DIRECTORY, "acme")]
    bare: Any = Asked([Row(**{**dict(rows[0].items()), "person_id": None, "directory_digest": None})])
    assert await tenants.directory(bare, "acme") == await tenants.directory(Asked([]), "acme")  # type: ignore[arg-type]


async def test_a_directory_is_replaced_with_all_of_it_and_whoever_is_not_active_is_in_no_group() -> None:
    connection: Any = Asked()
    await tenants.replace_directory(connection, "acme", Directory.of("d", [
        Entry("ann", "Ann", True, frozenset({"h", "g"}), ("slack:U2", "mail:a"), None),
        Entry("bot", "Bot", False, frozenset({"g"}), (), "ann"),
    ]))  # fmt: skip
    ((statement, people, members, digest, tenant),) = connection.told
    assert (statement, digest, tenant) == ("SELECT replace_directory($1, $2, $3, $4)", "d", "acme")
    assert people == [
        {"tenant_id": "acme", "person_id": "ann", "name": "Ann", "active": True, "owner": None,
         "principals": ["slack:U2", "mail:a"]},
        {"tenant_id": "acme", "person_id": "bot", "name": "Bot", "active": False, "owner": "ann", "principals": []},
    ]  # fmt: skip
    assert sorted(members, key=lambda row: str(row["group_name"])) == [
        {"tenant_id": "acme", "group_name": group, "person_id": "ann"} for group in ("g", "h")
    ]


@pytest.mark.parametrize(("held", "refuses"), [(2, False), (3, False), (4, True), (9, True)])
async def test_a_cap_below_what_is_held_is_refused(held: int, refuses: bool) -> None:
    connection: Any = Asked(None, held)
    setting = tenants.set_slots(connection, "acme", 3)
    if refuses:
        words = f"{held - 3} steps above the new cap are executing. Try again when they have ended."
        assert await refused(setting) == words
    else:
        await setting
    assert connection.told == [(tenants._SET_CONCURRENCY, "acme", 3), (tenants._HELD, "acme")]


async def test_groups_are_those_of_a_directory_that_names_somebody() -> None:
    connection: Any = Asked(True, [Row(group_name="g", members=["ann", "bob"])])
    assert await tenants.groups(connection, "acme") == {"g": frozenset({"ann", "bob"})}
    assert [told[1] for told in connection.told] == ["acme", "acme"]
    assert await tenants.groups(Asked(False), "acme") is None  # type: ignore[arg-type]


async def test_what_is_unavailable_is_written_one_by_one_after_what_was() -> None:
    connection: Any = Asked()
    found = [unavailable.Unavailable("k", "n", "p", "r"), unavailable.Unavailable("l", "", "q", "s")]
    await unavailable.replace(connection, "acme", found)
    assert connection.told == [
        (unavailable._FORGET, "acme"), (unavailable._NOTE, "acme", "p", "k", "n", "r"),
        (unavailable._NOTE, "acme", "q", "l", "", "s"),
    ]  # fmt: skip
    repaired: Any = Asked()
    await unavailable.replace(repaired, "acme", [])
    assert repaired.told == [(unavailable._FORGET, "acme")], "what was repaired is forgotten"
