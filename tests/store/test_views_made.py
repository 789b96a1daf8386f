"""Views that are made of the rows of a run: every column in its place, and what is known if it cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from msgspec import structs

from core.identity import NOBODY
from runtime.definition.workflow import load_workflow
from runtime.engine import draft
from runtime.engine.commit import StepRow, step_id_of
from runtime.engine.run import Definition, RunView
from runtime.engine.states import StepState
from runtime.engine.told import Diverged
from runtime.store import views
from tests.engine.conftest import KEY, NOW, Simulation
from tests.support.pumping import CATALOG, RUN_ID, wide
from tests.support.rows import OneRow, uid

NOTHING: Any = None
LATER = NOW + timedelta(hours=1)


def row_of(run: Simulation, **stored: Any) -> dict[str, Any]:
    """The row of a simulated run, as its statement gives it. No two values of one type are the same."""
    lines = [commit.lines for commit in run.commits]
    firsts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    columns = {
        "run_id": str(RUN_ID), "tenant_id": "a tenant", "workspace_id": "a workspace", "workflow": "a workflow",
        "workflow_version": 11, "workflow_digest": "a digest", "trigger_type": "a type", "status": "running",
        "version": 12, "gate": 13, "executing": 2, "extensions": 0, "audit_count": run.head.count,
        "audit_head": run.head.hash, "state_n": 14, "deadline_at": "2026-02-03T04:05:06+00:00",
        "parent_run_id": str(uid(15)), "depth": 16, "purged_at": None, **stored,
    }  # fmt: skip
    tenants = {"policy_digests": ["p", "q"], "directory_digest": "d", "max_writes_per_run": 17, "stop_number": 18}
    return {
        "run": columns, "run_key": KEY, "state": None, **tenants, "paused": {"tenant": {"by": "ann"}}, "now": LATER,
        "firsts": firsts, "lines": [b"\n".join(each) for each in lines],
        "vals": [commit.values for commit in run.commits],
    }  # fmt: skip


def simulated(trigger: dict[str, Any] | None = None) -> Simulation:
    """A run with two steps at once, one of them begun."""
    run = Simulation(load_workflow(wide(2), "test.yaml", CATALOG), {"n": 1} if trigger is None else trigger).open()
    run.claim("s")
    run.succeed("s")
    run.claim("p0")
    return run


async def viewed(run: Simulation, row: Any, **how: Any) -> RunView:
    asked: list[Any] = []

    async def graphs(connection: Any, definition: Any) -> Any:
        asked.append((connection, definition))
        return [run.workflow.graph]

    connection: Any = "the connection"
    found = await views.view_of(connection, row, graphs, **how)
    assert asked == [(connection, Definition(RUN_ID, "a tenant", "a workflow", 11, "a digest", 0, KEY))]
    return found


async def test_a_view_has_every_column_in_its_place() -> None:
    run = simulated()
    found = await viewed(run, row_of(run))
    assert {name: getattr(found, name) for name in RunView.__struct_fields__ if name != "run"} == {
        "run_id": RUN_ID, "tenant_id": "a tenant", "workspace_id": "a workspace", "workflow": "a workflow",
        "workflow_version": 11, "workflow_digest": "a digest", "trigger_type": "a type", "version": 12, "gate": 13,
        "head": run.head, "now": LATER, "deadline_at": datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
        "policies": ("p", "q"), "writes_max": 17, "stop": 18, "paused": {"tenant": {"by": "ann"}}, "parent": uid(15),
        "depth": 16, "kept_at": 14, "blind": False, "error": timedelta(0), "directory_digest": "d",
        "directory": NOBODY,
        "constants": {
            "trigger": {"n": 1}, "run.id": str(RUN_ID), "run.workflow": "a workflow", "run.version": 11,
            "run.reference": "r", "run.requested_by": "someone", "run.started_at": NOW,
        },
    }  # fmt: skip
    told = {key: (step.status, step.lease_epoch) for key, step in found.run.steps.items()}
    assert told == {"p0": ("running", 1), "p1": ("ready", 0)}
    assert [*found.run.past] == [], "a worker lets go of what is behind the barrier"
    assert "s" in {*(await viewed(run, row_of(run), whole=True)).run.past}


async def test_a_view_without_the_rest_has_nothing_of_it() -> None:
    run = simulated()
    nothing = {"deadline_at": None, "parent_run_id": None, "state_n": 0, "depth": 0, "gate": 0}
    tenants: dict[str, Any] = {
        "paused": None,
        "policy_digests": [],
        "directory_digest": None,
        "max_writes_per_run": None,
    }
    found = await viewed(run, row_of(run, **nothing) | tenants)
    assert (found.deadline_at, found.parent, found.paused, found.policies) == (None, None, {}, ())
    assert (found.directory_digest, found.writes_max, found.kept_at, found.depth, found.gate) == (None, None, 0, 0, 0)


@pytest.mark.req("V-6")
async def test_a_book_that_is_shorter_than_the_run_says_is_not_read_whole() -> None:
    run = simulated()
    row = row_of(run, audit_count=run.head.count + 1)
    with pytest.raises(views.Unfinished) as caught:
        await viewed(run, row)
    assert str(caught.value) == f"The book of run {RUN_ID} is not read whole. Try again."
    with pytest.raises(views.Unfinished):
        await viewed(run, row_of(run) | {"firsts": None, "lines": None, "vals": None})


@pytest.mark.parametrize("wrong", ["head", "line"])
async def test_a_book_that_does_not_come_to_its_head_is_not_believed(wrong: str) -> None:
    run = simulated()
    row = row_of(run, **({"audit_head": "0" * 64} if wrong == "head" else {}))
    if wrong == "line":
        row["lines"][1] = row["lines"][1].replace(b"{", b"{ ", 1)
    with pytest.raises(Diverged) as caught:
        await viewed(run, row)
    assert str(caught.value).startswith(f"The book of run:{RUN_ID} is broken: its appends do not come to the head")


@pytest.mark.req("V-8")
async def test_an_earlier_view_is_brought_up_to_date_by_what_came_since() -> None:
    run = simulated()
    before = await viewed(run, row_of(run))
    run.succeed("p0")
    row = row_of(run, version=13, gate=14) | {"stop_number": 19}
    found = await viewed(run, {**row, "firsts": row["firsts"][-1:], "lines": row["lines"][-1:],
                               "vals": row["vals"][-1:]}, before=before)  # fmt: skip
    assert (found.version, found.gate, found.head, found.stop) == (13, 14, run.head, 19)
    assert {key: step.status for key, step in found.run.steps.items()} == {"p0": "succeeded", "p1": "ready"}
    assert before.run.steps["p0"].status == "running", "whoever has the earlier view keeps it"
    # More lines than are new are no harm, and a view that is ahead of the row stays as it is.
    assert (await viewed(run, row, before=before)).head == run.head
    old = row_of(simulated(), version=12) | {"stop_number": 20, "now": NOW + timedelta(seconds=1)}
    connection: Any = NOTHING
    ahead = await views.view_of(connection, old, NOTHING, before=structs.replace(found, error=timedelta(1)))
    assert ahead == structs.replace(found, stop=20, now=NOW + timedelta(seconds=1))


@pytest.mark.req("V-8")
async def test_what_moved_in_the_row_alone_is_seen_without_a_new_line() -> None:
    """An append without lines moves the version and the gate; the book stays as long as it was."""
    run = simulated()
    before = await viewed(run, row_of(run))
    row = row_of(run, version=13, gate=14, state_n=15, deadline_at=None) | {"stop_number": 19, "paused": None}
    tail: Any = {"firsts": None, "lines": None, "vals": None}
    whole: Any = {}
    for since in (tail, whole):
        found = await viewed(run, {**row, **since}, before=before)
        assert (found.version, found.gate, found.kept_at, found.deadline_at) == (13, 14, 15, None)
        assert (found.head, found.stop, found.paused) == (before.head, 19, {})
        assert found.run is not before.run


@pytest.mark.req("Q-21")
async def test_an_earlier_view_is_not_believed_of_a_book_of_its_length_with_another_head() -> None:
    run = simulated()
    before = await viewed(run, row_of(run))
    with pytest.raises(Diverged, match="its appends do not come to the head"):
        await viewed(run, row_of(run, audit_head="0" * 64), before=before)


@pytest.mark.parametrize("key", [None, b""])
async def test_a_run_whose_key_is_lost_has_an_empty_one(key: bytes | None) -> None:
    definition, head = views._places(row_of(simulated()) | {"run_key": key})
    assert definition == Definition(RUN_ID, "a tenant", "a workflow", 11, "a digest", 0, b"")
    assert head == simulated().head


# -- a run that is kept beside its book ------------------------------------------------------------------------------


def kept(
    monkeypatch: pytest.MonkeyPatch, trigger: dict[str, Any] | None = None
) -> tuple[Simulation, dict[str, Any], int]:
    """A run that two of its appends have stored beside the book; its row with the last of them, and their number."""
    monkeypatch.setattr(draft, "EVERY", 1)
    run = simulated(trigger)
    run.succeed("p0")
    run.claim("p1")
    run.succeed("p1")
    run.claim("z")
    *_, number = (n for n, commit in enumerate(run.commits) if commit.state is not None)
    whole = row_of(run, state_n=number + 1)
    tail = {name: [whole[name][0], *whole[name][number:]] for name in ("firsts", "lines", "vals")}
    return run, {**whole, **tail, "state": run.commits[number].state}, number


@pytest.mark.req("V-8")
@pytest.mark.parametrize("trigger", [{"n": 1}, {}, {"n": None, "m": 0}])
async def test_a_kept_run_is_the_run_that_its_book_folds_to(
    monkeypatch: pytest.MonkeyPatch, trigger: dict[str, Any]
) -> None:
    run, row, _ = kept(monkeypatch, trigger)
    whole = row_of(run, state_n=row["run"]["state_n"])
    by_state, by_book = await viewed(run, row), await viewed(run, whole)
    assert {**structs.asdict(by_state), "run": 0} == {**structs.asdict(by_book), "run": 0}
    assert (by_state.run.steps, by_state.run.state, by_state.run.trigger, by_state.run.opened_at) == (
        by_book.run.steps, by_book.run.state, trigger, NOW
    )  # fmt: skip


@pytest.mark.req("Q-21")
@pytest.mark.parametrize("wrong", ["another", "altered", "nameless", "alone"])
async def test_a_kept_run_without_the_digest_that_its_book_names_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    run, row, number = kept(monkeypatch)
    earlier = next(commit.state for commit in run.commits if commit.state is not None)
    if wrong == "another":
        row["state"] = earlier
    elif wrong == "altered":
        row["state"] = row["state"][:-1] + bytes([row["state"][-1] ^ 1])
    elif wrong == "alone":  # of the book there is only the opening, to which the row's length is made to fit
        row |= {name: row[name][:1] for name in ("firsts", "lines", "vals")}
        row["run"]["audit_count"] = row["lines"][0].count(b"\n") + 1
    else:  # the append from which the rest is folded has kept nothing
        for name in ("firsts", "lines", "vals"):
            del row[name][1]
        assert number < len(run.commits) - 1
    with pytest.raises(Diverged) as caught:
        await viewed(run, row)
    words = f"The kept state of run {RUN_ID} does not have the digest that its book names."
    assert str(caught.value).startswith(words)


# -- a run that cannot be read any more ------------------------------------------------------------------------------


@pytest.mark.parametrize("leased", [None, "p0", "p1", "z"])
async def test_of_a_run_that_cannot_be_read_it_is_known_what_is_open(
    monkeypatch: pytest.MonkeyPatch, leased: str | None
) -> None:
    run = simulated()
    row, connection = row_of(run, executing=3, status="running"), OneRow(NOTHING)
    connection._row = row

    async def broken(*given: Any, **how: Any) -> Any:
        assert (given[1:], how) == ((RUN_ID, "the graphs"), {"lock": True, "tenant": None})
        raise Diverged("The book is broken")

    monkeypatch.setattr(views, "load", broken)
    given: Any = connection, RUN_ID, "the graphs"
    found = await views.load_to_end(*given, lock=True, leased=leased)
    assert connection.asked == [(views.SELECT, RUN_ID, True)]
    assert (found.blind, found.run.status, found.run.executing, found.head) == (True, "running", 3, run.head)
    assert found.run.run_key == KEY
    steps = {key: str(step.status) for key, step in found.run.steps.items() if key in found.run.state.open}
    assert steps == {"p0": "running"} | ({leased: "ready"} if leased in ("p1", "z") else {})
    if leased == "z":
        ready = StepRow(step_id_of(RUN_ID, "z"), "z", 0, "", found.run.superstep, StepState.READY)
        assert found.run.steps["z"] == ready


async def test_of_a_run_whose_key_is_lost_it_is_still_known_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise Diverged("The book is broken")

    monkeypatch.setattr(views, "load", broken)
    given: Any = OneRow(row_of(simulated()) | {"run_key": None}), RUN_ID, "the graphs"
    with structlog.testing.capture_logs() as logs:
        found = await views.load_to_end(*given)
    assert (found.run.run_key, sorted(found.run.state.open)) == (b"", ["p0"])
    ((said, of_run),) = [(each["event"], each["run"]) for each in logs]
    assert (said, of_run, logs[0]["reason"].startswith("The book is broken.")) == (
        "a run cannot be read", str(RUN_ID), True
    )  # fmt: skip


async def test_a_run_that_was_emptied_or_is_not_there_cannot_be_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise Diverged("The book is broken")

    monkeypatch.setattr(views, "load", broken)
    for row in (None, row_of(simulated(), purged_at="2026-01-01")):
        given: Any = OneRow(row), RUN_ID, "the graphs"
        with pytest.raises(Diverged):
            await views.load_to_end(*given)
