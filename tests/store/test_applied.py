"""Commits as they are applied, and queues as they are counted: what is asked in which order, and every answer."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from core.grouping import Call
from runtime.store import commits, queue_reads
from runtime.store.commits import Applied, sent
from runtime.store.queue_reads import CapQueue, LaneQueue, MessageQueue, TenantQueue, queues
from runtime.store.records import RecordRefused
from tests.store.test_sent import COMMIT
from tests.support.asked import Asked, Row
from tests.support.rows import uid

NOTHING: Any = "the connection"


class Refused(asyncpg.RaiseError):
    """The error that the part for records raises."""

    sqlstate = commits.REFUSED_RECORD


class Otherwise(asyncpg.RaiseError):
    """An error of this project's class that says something else."""

    sqlstate = "CS002"


@pytest.mark.req("V-7")
async def test_commits_that_go_together_are_sent_whole_and_in_the_order_of_their_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that were refused are left out, and the others have their own answers."""
    items = [replace(COMMIT, run_id=uid(number), held=[]) for number in (3, 1, 2)]

    async def called(connection: Any, calls: Any) -> Any:
        assert connection == NOTHING
        assert [*calls] == [Call("append", sent(each, engine=True), ("", str(each.run_id))) for each in items]
        return [[5, 1], None, [6, 0]]

    monkeypatch.setattr(commits, "called", called)
    found: dict[UUID, Applied] = await commits.apply_together(NOTHING, items)
    assert found == {uid(3): Applied(5, 1), uid(2): Applied(6, 0)}


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ([7, 2], Applied(version=7, executing=2)),
        (None, None),
        (asyncpg.RaiseError("no"), asyncpg.RaiseError),
        (asyncpg.UniqueViolationError("no"), asyncpg.UniqueViolationError),
        (Refused("a record is not as expected"), RecordRefused),
        (Otherwise("nobody knows"), Otherwise),
    ],
)
async def test_a_commit_is_applied_by_one_statement_with_all_of_its_values(answer: Any, result: Any) -> None:
    connection: Any = Asked(answer)
    applying = commits.apply(connection, COMMIT)
    if isinstance(result, type):
        with pytest.raises(result) as caught:
            await applying
        if result is RecordRefused:
            assert str(caught.value) == "A record is not as the step expects it."
    else:
        assert await applying == result
    assert connection.told == [(commits._APPEND, *sent(COMMIT, engine=True))]


@pytest.mark.req("P-12")
@pytest.mark.parametrize(("people", "told"), [(None, {}), ("", {"people": ""}), ("d1", {"people": "d1"})])
@pytest.mark.parametrize("executing", [1, 0, -1, -2])
@pytest.mark.parametrize("moves_gate", [False, True])
def test_people_and_barriers_are_asked_for_where_they_matter(
    people: str | None, told: dict[str, Any], executing: int, moves_gate: bool
) -> None:
    empty = replace(COMMIT, **{name: type(getattr(COMMIT, name))() for name in commits.PARTS})
    one = replace(empty, people=people, executing=executing, moves_gate=moves_gate)
    barrier = {"barrier": True} if executing < 0 and not moves_gate else {}
    assert commits.rest(one) == ({**barrier, **told} or None)


# -- queues ----------------------------------------------------------------------------------------------------------

TENANTS = [
    Row(tenant="acme", weight=2.0, slots=16, slots_used=3, max_runs_per_min=60, starts_left=5),
    Row(tenant="beta", weight=1.0, slots=8, slots_used=0, max_runs_per_min=None, starts_left=None),
]
HELD = [
    Row(tenant_id="acme", workspace_id="main", admitted=1, running=2, abandoned=3),
    Row(tenant_id="beta", workspace_id="main", admitted=7, running=8, abandoned=9),
]
PARKED = [
    Row(tenant_id="acme", workspace_id="main", kind="timer", count=4),
    Row(tenant_id="acme", workspace_id="main", kind="signal", count=5),
    Row(tenant_id="beta", workspace_id="other", kind="timer", count=6),
]
LANES = [
    Row(tenant_id="acme", workspace_id="main", weight=1.5, pending=6, oldest=2.5),
    Row(tenant_id="acme", workspace_id="two", weight=1.0, pending=1, oldest=-0.5),
    Row(tenant_id="beta", workspace_id="main", weight=1.0, pending=0, oldest=None),
]
CAPS = [
    Row(tenant_id="acme", cap="w", slots=2, used=1, pending=4, max_runs_per_min=9, starts_left=8),
    Row(tenant_id="acme", cap="x", slots=7, used=0, pending=0, max_runs_per_min=0, starts_left=0),
    Row(tenant_id="beta", cap="v", slots=None, used=0, pending=0, max_runs_per_min=None, starts_left=None),
]
MESSAGES = [
    Row(tenant_id="acme", kind="card", status="pending", count=3, oldest=-1.0),
    Row(tenant_id="acme", kind="card", status="failed", count=2, oldest=0.25),
    Row(tenant_id="beta", kind="note", status="failed", count=1, oldest=7.5),
]
NAMES = ["acme", "beta"]
WANTED = [
    TenantQueue(
        "acme", 2.0, 16, 3, 60, 5,
        (
            LaneQueue("main", 1.5, 6, 2.5, 1, 2, 3, {"signal": 5, "timer": 4}),
            LaneQueue("two", 1.0, 1, 0.0, 0, 0, 0, {}),
        ),
        (CapQueue("w", 2, 1, 4, 9, 8), CapQueue("x", 7, 0, 0, 0, 0)),
        (MessageQueue("card", "pending", 3, 0.0), MessageQueue("card", "failed", 2, 0.25)),
    ),
    TenantQueue(
        "beta", 1.0, 8, 0, None, None, (LaneQueue("main", 1.0, 0, None, 7, 8, 9, {}),),
        (CapQueue("v", None, 0, 0, None, None),), (MessageQueue("note", "failed", 1, 7.5),),
    ),
]  # fmt: skip


@pytest.mark.req("O-7")
@pytest.mark.parametrize("most", [None, 100])
async def test_queues_are_counted_in_one_snapshot_each_figure_in_its_place(most: int | None) -> None:
    connection: Any = Asked(None, TENANTS, HELD, PARKED, LANES, CAPS, MESSAGES)
    found = await queues(connection, "acme", most)
    assert found == WANTED
    assert [*found[0].lanes[0].parked] == ["signal", "timer"], "kinds are in order"
    parked = (queue_reads._PARKED, NAMES) if most is None else (queue_reads._PARKED_NEWEST, NAMES, most)
    assert connection.told == [
        (queue_reads._SNAPSHOT,), (queue_reads._TENANTS, "acme"), (queue_reads._HELD, NAMES), parked,
        (queue_reads._LANES, NAMES, most), (queue_reads._CAPS, NAMES, most), (queue_reads._MESSAGES, NAMES, most),
    ]  # fmt: skip


async def test_queues_are_counted_as_they_were_at_one_moment() -> None:
    connection: Any = Asked()
    assert await queues(connection) == []
    assert connection.told[:2] == [(queue_reads._SNAPSHOT,), (queue_reads._TENANTS, None)]
    nameless: Any = Asked()
    assert await queues(nameless, "", 0) == []
    assert nameless.told[1:4] == [
        (queue_reads._TENANTS, ""), (queue_reads._HELD, []), (queue_reads._PARKED_NEWEST, [], 0)
    ]  # fmt: skip


def test_the_figures_of_a_tenant_are_those_of_all_its_lanes() -> None:
    acme, beta = WANTED
    assert (acme.steps, beta.steps) == (
        {"pending": 7, "admitted": 1, "running": 2}, {"pending": 0, "admitted": 7, "running": 8}
    )  # fmt: skip
    assert (acme.oldest_pending_seconds, beta.oldest_pending_seconds) == (2.5, None)
    ages = {(0.0,): 0.0, (0.0, None): 0.0, (None, None): None, (1.5, 3.0, None, 2.0): 3.0}
    for each, oldest in ages.items():
        waiting = tuple(LaneQueue("a", 1.0, 1, age, 0, 0, 0, {}) for age in each)
        assert TenantQueue("t", 1.0, 1, 0, None, None, waiting, (), ()).oldest_pending_seconds == oldest
    lanes = tuple(LaneQueue(name, 1.0, 0, None, 0, 0, 0, {"timer": n, "task": 1}) for n, name in enumerate("abc"))
    assert TenantQueue("t", 1.0, 1, 0, None, None, lanes, (), ()).parked == {"timer": 3, "task": 3}
