"""A run, its state and what is kept of it, field by field: copies share nothing, what is kept comes back the same."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec.structs import replace

from evidence.chain import ChainHead
from runtime.engine.agent_state import Agent, Called, Spoken, Stage
from runtime.engine.commit import (
    ApprovalMove,
    ApprovalRow,
    CheckpointRow,
    LedgerRow,
    MutationRow,
    StepRow,
    VoteRow,
)
from runtime.engine.graph import NO_GRAPH
from runtime.engine.keeping import pack, unpack
from runtime.engine.plan import WINDOW
from runtime.engine.replaying import unopened
from runtime.engine.run import Failed, Loop, Run, State
from runtime.engine.states import RunState, StepState
from runtime.engine.windows import Window
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.test_lives import receipt, wait

pytestmark = pytest.mark.req("X-15")

HEAD = ChainHead(f"run:{RUN_ID}", 7, "ab" * 32)
HOUR = timedelta(hours=1)


def full_state() -> State:
    """A state none of whose parts is empty."""
    return State(
        channels={"c": [1], "d": None},
        outputs={"a": {"n": 1}},
        status={"a": "succeeded"},
        branches={"if_1": False},
        loops={"each": Loop("item", 9, 3, {1: "one", 2: {"n": 2}}), "loop": Loop("", None, 1, {0: None})},
        failures={"f": Failed("on_failure", {"class": "timeout"})},
        open=["b"],
        parked={"p": "wait:1"},
        reference="r2",
        shaped={"run": ["m"]},
        origins={"child": [["x"]]},
        agents={"bot": full_agent()},
    )


def full_agent() -> Agent:
    calls = {1: Called("d1", 0, "done", "s1"), 2: Called("d2", 1)}
    return Agent(Stage.CALLS, 3, 2, calls, 4, 5, 6, 7, 8, "0.9", True, ["d0"], "turns", "d3")


def step(key: str, status: str = "running", **more: Any) -> StepRow:
    return replace(StepRow(UUID(int=1), key, 2, "o", 3, StepState(status)), **more)


def full_run() -> Run:
    """A run none of whose fields has its default value."""
    held = wait(1, due_in=HOUR, context={"c": 1}, correlation_key="k", result={"r": 1}, left=True)
    asked = ApprovalRow(
        UUID(int=5), UUID(int=1), "a", "action", "d", "n", "high", {"t": 1}, "someone", {"card": 1}, {"act": 1}, HOUR,
        "approved", [{"c": 1}],
    )  # fmt: skip
    more = {"error": {"message": "m"}, "replaces": UUID(int=2), "late": ({"epoch": 1},), "settled_at": NOW}
    return Run(
        run_id=RUN_ID,
        run_key=KEY,
        status=RunState.WAITING,
        superstep=2,
        executing=3,
        width=4,
        writes=5,
        reference="r",
        requested_by="someone",
        state=full_state(),
        canceling={"by": "p"},
        paused=True,
        error={"class": "timeout"},
        result={"n": 1},
        finished=True,
        checkpointed=True,
        extensions=6,
        reopened=7,
        held_open=True,
        anew={"a": 8},
        trigger={"name": "x"},
        origins={"trigger": []},
        copied=["c"],
        refused=9,
        asked=10,
        same={"d": ["a"]},
        opened_at=NOW,
        steps={"a": step("a", eligible_in=HOUR, writes={"c": 1}, last_error={"class": "x"}, again=2)},
        past={"b": step("b", "succeeded")},
        waits={held.wait_id: held},
        approvals={asked.approval_id: asked},
        answers={UUID(int=5): ApprovalMove(UUID(int=5), "approved", "approve", "because", True, True, NOW)},
        receipts={UUID(int=3): receipt(3, "failed", **more)},
        windows={"each": Window(2, (*range(2, 200),)), "over": Window(0, (1,))},
        votes=[VoteRow(UUID(int=5), "ana", "approve", "r", ["group:owners"], "cli")],
        checkpoints=[CheckpointRow(1, {}, "d")],
        ledger=[LedgerRow("c", 1, "a", 1)],
        mutations=[MutationRow(1, "ann", {}, {})],
        times={"a": NOW, "gone": NOW},
        spoken={"bot/1/1": Spoken("bot/1/1", "t", {"i": 1}, {"r": 1}, {"e": 1})},
    )


def test_nothing_is_empty_in_what_is_compared_here() -> None:
    for whole in (full_state(), full_run(), full_agent()):
        least = type(whole)(**{name: getattr(whole, name) for name in required(whole)})
        for name in {*whole.__struct_fields__} - {*required(whole)}:
            assert getattr(whole, name) != getattr(least, name), name


def required(whole: Any) -> tuple[str, ...]:
    """The names of the fields that have no default value."""
    return tuple(whole.__struct_fields__[: len(whole.__struct_fields__) - len(whole.__struct_defaults__)])


def changed(value: Any) -> bool:
    """Change a list or a mapping in place; False if it is neither."""
    if isinstance(value, dict):
        value[next(iter(value))] = value["new"] = "changed"
    elif isinstance(value, list):
        value.append("changed")
    return isinstance(value, dict | list)


# The fields of a run that nobody changes in place.
SHARED = ("copied", "trigger", "canceling", "error", "origins", "result")


@pytest.mark.parametrize("whole", [full_state, full_run, full_agent])
def test_what_is_changed_in_a_copy_is_not_changed_in_what_was_copied(whole: Any) -> None:
    first = whole()
    second, untouched = first.copy(), deepcopy(first)
    assert second == first
    apart = {*first.__struct_fields__} - ({*SHARED} if isinstance(first, Run) else set())
    for name in sorted(apart):
        changed(getattr(second, name))
        assert getattr(first, name) == getattr(untouched, name), name


def test_the_loops_and_agents_of_a_copy_are_its_own() -> None:
    first = full_run()
    second, untouched = first.copy(), deepcopy(first)
    loop, agent = second.state.loops["each"], second.state.agents["bot"]
    loop.next, loop.total, loop.active[1] = 9, 99, "other"
    agent.turn, agent.calls[1].came = 99, "failed"
    agent.barred.append("more")
    for part in (second.state.channels, second.state.open, second.state.parked):
        assert changed(part)
    assert first == untouched


def test_a_checkpoint_holds_the_state_and_gives_it_back() -> None:
    state = full_state()
    written: dict[str, Any] = orjson.loads(orjson.dumps(state.to_json()))
    assert State.from_json(written) == state
    assert sorted(written) == sorted(state.__struct_fields__)
    assert written["loops"] == {
        "each": {"name": "item", "total": 9, "next": 3, "active": {"1": "one", "2": {"n": 2}}},
        "loop": {"name": "", "total": None, "next": 1, "active": {"0": None}},
    }
    assert State({}).to_json() == {"channels": {}}
    assert State.from_json({"channels": {}}) == State({})


def test_what_is_read_from_a_checkpoint_is_apart_from_it() -> None:
    written = full_state().to_json()
    kept = deepcopy(written)
    read = State.from_json(written)
    for name in read.__struct_fields__:
        changed(getattr(read, name))
    assert written == kept


# The fields of a run that only the append that told them needs, and those that its book's first line gives.
DROPPED = ("past", "checkpoints", "ledger", "mutations")
NOT_KEPT = ("trigger", "error", "result", "finished", "anew", "opened_at")


def test_a_rested_run_has_dropped_what_is_behind_it() -> None:
    run, whole = full_run().rest(), full_run()
    assert [getattr(run, name) for name in DROPPED] == [{}, [], [], []]
    assert run.times == {"a": NOW}
    assert run.steps == {"a": replace(whole.steps["a"], eligible_in=None)}
    assert run.waits == {key: replace(row, due_in=None) for key, row in whole.waits.items()}
    assert run.approvals == {key: replace(row, card={}, action=None) for key, row in whole.approvals.items()}
    for name in ("receipts", "answers", "votes", "windows", "spoken", "same", "state", "trigger"):
        assert getattr(run, name) == getattr(whole, name), name


@pytest.mark.parametrize("name", ["waits", "approvals", "receipts", "answers", "votes", "times"])
def test_a_rested_run_keeps_nothing_of_steps_that_are_no_longer_open(name: str) -> None:
    run = full_run()
    run.steps = {"other": step("other")}
    assert not getattr(run.rest(), name)


def test_rest_keeps_every_vote_on_what_is_open() -> None:
    run = full_run()
    (vote,) = run.votes
    run.votes = [replace(vote, person_id=name) for name in ("ana", "ben", "col", "dan")]
    run.votes.insert(2, replace(vote, approval_id=UUID(int=99)))
    assert [one.person_id for one in run.rest().votes] == ["ana", "ben", "col", "dan"]


@pytest.mark.parametrize("span", [timedelta(0), timedelta(seconds=1)])
def test_rest_drops_every_span_however_short(span: timedelta) -> None:
    run = full_run()
    run.steps = {"a": step("a", eligible_in=span), "b": step("b")}
    run.waits = {key: replace(row, due_in=span) for key, row in run.waits.items()}
    rested = run.rest()
    assert [row.eligible_in for row in rested.steps.values()] == [None, None]
    assert [row.due_in for row in rested.waits.values()] == [None]


def test_rest_drops_a_cards_contents_whichever_of_them_there_is() -> None:
    for card, action in (({"card": 1}, None), ({}, {"act": 1}), ({}, None)):
        run = full_run()
        run.approvals = {key: replace(row, card=card, action=action) for key, row in run.approvals.items()}
        (row,) = run.rest().approvals.values()
        assert (row.card, row.action) == ({}, None)


def test_a_run_that_is_kept_comes_back_with_all_its_fields() -> None:
    run = full_run().rest()
    kept, head = unpack(pack(run, HEAD), RUN_ID, KEY)
    assert head == HEAD
    expected = replace(run, windows={"each": Window(3, (*range(3, 3 + WINDOW),))})
    blank = unopened(RUN_ID, KEY, NO_GRAPH)
    expected = replace(expected, **{name: getattr(blank, name) for name in NOT_KEPT})
    for name in run.__struct_fields__:
        assert getattr(kept, name) == getattr(expected, name), name


PARTS = [name for name in Run.__struct_fields__ if name not in (*DROPPED, *NOT_KEPT, "run_id", "run_key", "windows")]


@pytest.mark.parametrize("name", PARTS)
def test_each_part_of_a_run_is_kept_whatever_else_there_is(name: str) -> None:
    whole = full_run().rest()
    blank = replace(unopened(RUN_ID, KEY, NO_GRAPH), requested_by="", reference="")
    run = replace(blank, **{name: getattr(whole, name)})
    assert unpack(pack(run, HEAD), RUN_ID, KEY) == (run, HEAD)


def test_each_of_several_rows_of_a_run_is_kept_in_its_order() -> None:
    run = full_run().rest()
    (vote,), (spoken,) = run.votes, run.spoken.values()
    again = replace(vote, reason="Once more.")
    run.votes = [vote, again, replace(vote, approval_id=UUID(int=6)), replace(vote, person_id="ben")]
    run.spoken |= {"bot/1/2": replace(spoken, key="bot/1/2")}
    run.steps |= {"b": step("b", "waiting"), "A": step("A", "ready")}
    kept, _ = unpack(pack(run, HEAD), RUN_ID, KEY)
    assert (kept.votes, [*kept.spoken], [*kept.steps]) == (run.votes, ["bot/1/1", "bot/1/2"], ["a", "b", "A"])
    assert (kept.spoken, kept.steps) == (run.spoken, run.steps)


def test_a_row_without_its_optional_parts_is_kept_as_it_is() -> None:
    run = replace(unopened(RUN_ID, KEY, NO_GRAPH), requested_by="", reference="")
    run.steps, run.waits, run.receipts = {"a": step("a")}, {UUID(int=1): wait(1)}, {UUID(int=3): receipt(3)}
    asked = ApprovalRow(
        UUID(int=5), UUID(int=1), "a", "gate", "d", "n", "low", {}, "ann", {}, None, timedelta(seconds=1.5)
    )
    run.approvals, run.answers = {UUID(int=5): asked}, {UUID(int=5): ApprovalMove(UUID(int=5), "requested")}
    assert unpack(pack(run, HEAD), RUN_ID, KEY) == (run, HEAD)
    (kept,) = unpack(pack(run, HEAD), RUN_ID, KEY)[0].receipts.values()
    assert (kept.late, kept.settled_at, kept.replaces) == ((), None, None)


@pytest.mark.parametrize(
    ("window", "then", "wanted"),
    [
        (Window(0, (*range(9),)), 3, Window(3, (3, 4, 5, 6, 7, 8))),
        (Window(3, (3, 4)), 3, Window(3, (3, 4))),
        (Window(5, (5, 6)), 3, Window(5, (5, 6))),
        (Window(0, (0, 1, 2)), 3, Window(3, ())),
        (Window(0, (*range(WINDOW + 4),)), 3, Window(3, (*range(3, WINDOW + 3),))),
        (Window(0, (*range(WINDOW + 3),)), 3, Window(3, (*range(3, WINDOW + 3),))),
    ],
)
def test_of_a_loops_items_the_next_ones_are_kept(window: Window, then: int, wanted: Window) -> None:
    run = full_run().rest()
    run.windows, run.state.loops["each"].next = {"each": window}, then
    assert unpack(pack(run, HEAD), RUN_ID, KEY)[0].windows == {"each": wanted}


def test_what_is_no_span_is_not_kept() -> None:
    run = full_run().rest()
    run.steps["a"] = replace(run.steps["a"], output={1, 2})
    with pytest.raises(TypeError):
        pack(run, HEAD)


@pytest.mark.parametrize(
    ("more", "waits_for_more"),
    [
        ({}, True),
        ({"held_open": False}, False),
        ({"status": RunState.RUNNING}, False),
        ({"status": RunState.WAITING_APPROVAL}, False),
        ({"executing": 1}, False),
        ({"state": State({}, parked={"a": "wait:1"})}, False),
    ],
)
def test_a_run_waits_for_more_if_it_is_held_open_and_all_it_has_is_done(more: Any, waits_for_more: bool) -> None:
    run = replace(full_run(), executing=0, state=State({}))
    assert replace(run, **more).waits_for_more is waits_for_more
