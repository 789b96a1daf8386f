"""The engine's instructions, each carried out by a worker: what it asks whom, and what it commits of the answer."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from connectors.port import Before, NotSent
from core.errors import CountersealError
from core.ids import new_nonce
from runtime.engine import waits
from runtime.engine.doubt import SEND_WITHIN
from runtime.engine.graph import OperationNode
from runtime.engine.instructions import (
    Inquire,
    Known,
    LookUp,
    OtherRun,
    Over,
    Perform,
    ReadBefore,
    ReadChat,
    Resolve,
    StartRun,
)
from runtime.engine.intend import Proposal
from runtime.engine.states import StepState
from runtime.store import effects
from runtime.work import driving
from runtime.work.lease import HeldStep, LostLease
from runtime.work.pump import CONFLICTS_MAX
from tests.support.driving import CLAIM, GIVEN, RUN, SPAN, TRANSITION, Driving, step
from tests.support.rows import uid

TAKEN = asyncpg.UniqueViolationError("the effect has moved on")
OPERATION: Any = "the operation"
CALL: Any = "the call"
RECEIPT: Any = SimpleNamespace(receipt_id=uid(5))
KNOWN = Known(receipt=RECEIPT)


@pytest.fixture
def driving_(monkeypatch: pytest.MonkeyPatch) -> Driving:
    monkeypatch.setattr(random, "random", lambda: 0.25)
    return Driving(monkeypatch)


def carry_out(found: Driving, work: Any) -> Any:
    return found.drive._CARRY_OUT[type(work)](found.drive, work)


# -- the beginning ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [*StepState])
async def test_only_a_step_that_is_ready_is_begun(monkeypatch: pytest.MonkeyPatch, status: StepState) -> None:
    found = Driving(monkeypatch)
    met: Any = SimpleNamespace(view=SimpleNamespace(run_id=RUN))
    found.step = step(status=status)
    found.drive._holding.hold = None
    monkeypatch.setattr(driving, "read_claimed", found.asked("reads", (met, found.step, KNOWN)))
    record: Any = "the record"
    begin = found.drive._begin(record, CLAIM, 70.0)
    tools = found.tools
    reads = ("reads", tools.database, "the record", tools.definitions, "the recent", 70.0)
    if status is not StepState.READY:
        with pytest.raises(LostLease):
            await begin
        assert (found.told, found.drive.held) == ([reads], None)
        return
    following: Any = await begin
    assert following == "what is next"
    assert found.told == [reads, "commits", found.begins(KNOWN)]
    assert found.drive._holding.hold == HeldStep(met, found.step, CLAIM, 70.0, found.pump.append)
    assert found.drive._holding.lease.until == 70.0 + SPAN.total_seconds()


# -- what is read before a step begins -------------------------------------------------------------------------------


async def test_what_was_read_of_the_target_is_known_when_the_step_begins_again(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, work = Before({"n": 1}, "v"), ReadBefore(step("b"), OPERATION, CALL, KNOWN)
    monkeypatch.setattr(driving, "read_before", driving_.asked("asks", read))
    assert await carry_out(driving_, work) == "what is next"
    known = Known(receipt=RECEIPT, before=read)
    assert driving_.told == [("asks", "the connectors", work), "commits", driving_.begins(known)]


async def test_a_target_that_cannot_be_read_is_the_outcome_of_the_step(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, work = NotSent("not now"), ReadBefore(step("b"), OPERATION, CALL, KNOWN)
    monkeypatch.setattr(driving, "read_before", driving_.asked("asks", read))
    monkeypatch.setattr(driving, "performed", driving_.noted("performed"))
    assert await carry_out(driving_, work) == Over()
    perform, how = Perform(driving_.step, OPERATION, CALL, None), {"nonce": new_nonce, "chance": 0.25}
    assert driving_.told == [
        ("asks", "the connectors", work), "commits", ("performed", TRANSITION, perform, read, how)
    ]  # fmt: skip


@pytest.mark.parametrize("found", [None, {}, {"slack:S1": frozenset({"U1"})}])
async def test_people_are_asked_only_if_slack_has_said_who_they_are(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, found: Any
) -> None:
    groups: Any = ("slack:S1",)
    driving_.tools.slack = SimpleNamespace(members=driving_.asked("asks slack", found))
    monkeypatch.setattr(driving, "put_off", driving_.noted("puts off"))
    result = await carry_out(driving_, Resolve(step("b"), groups, KNOWN))
    then = driving_.begins(Known(receipt=RECEIPT, slack=found))
    if found is None:
        then = ("puts off", TRANSITION, driving_.step)
    assert result == (Over() if found is None else "what is next")
    assert driving_.told == [("asks slack", groups), "commits", then]


async def test_without_slack_nobody_is_in_its_groups(driving_: Driving) -> None:
    assert await carry_out(driving_, Resolve(step("b"), (), KNOWN)) == "what is next"
    assert driving_.told == ["commits", driving_.begins(Known(receipt=RECEIPT, slack={}))]


async def test_a_model_is_shown_the_chat_of_its_agent_in_its_run(driving_: Driving) -> None:
    driving_.tools.chats = SimpleNamespace(read=driving_.asked("reads", "the chat"))
    assert await carry_out(driving_, ReadChat(step("b"), "agent", KNOWN)) == "what is next"
    known = Known(receipt=RECEIPT, chat="the chat")  # type: ignore[arg-type]
    reads = ("reads", "the connection", RUN, b"k", "agent")
    assert driving_.told == [reads, "commits", driving_.begins(known)]


@pytest.mark.parametrize("lost", ["before the call", "never"])
async def test_the_outside_is_asked_only_under_a_lease(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The lease ends at this very moment, or a moment later."""
    until = driving_.drive._holding.lease.until
    driving_.now = until if lost == "before the call" else until - 0.001
    for name in ("read_before", "start_other", "inquire"):
        monkeypatch.setattr(driving, name, driving_.asked("asks", OtherRun(problem="none")))
    monkeypatch.setattr(driving, "performed", driving_.noted("performed"))
    monkeypatch.setattr(waits, "started", driving_.noted("started"))
    driving_.tools.slack = SimpleNamespace(members=driving_.asked("asks", {}))
    asked = [
        ReadBefore(step(), OPERATION, CALL, KNOWN),
        Resolve(step(), (), KNOWN),
        StartRun(step(), uid(2), "other", None, {}, True),
    ]
    for work in asked:
        if lost == "never":
            await carry_out(driving_, work)
        else:
            with pytest.raises(LostLease):
                await carry_out(driving_, work)
    assert [each[0] for each in driving_.told].count("asks") == (0 if lost != "never" else 3)


# -- shared effects that others move ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["target", "slack", "chat"])
async def test_a_step_whose_effect_another_has_moved_meanwhile_begins_anew(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With what its run knows now, and not with what was read before that."""
    anew = Known(receipt=RECEIPT, receipt_checked=True)
    monkeypatch.setattr(driving, "known_of", driving_.noted("knows", anew))
    monkeypatch.setattr(driving, "read_before", driving_.asked("asks", Before({}, "v")))
    driving_.tools.chats = SimpleNamespace(read=driving_.asked("asks", "the chat"))
    works = {
        "target": ReadBefore(step("b"), OPERATION, CALL, KNOWN),
        "slack": Resolve(step("b"), (), KNOWN),
        "chat": ReadChat(step("b"), "agent", KNOWN),
    }
    driving_.fails = [TAKEN]
    assert await carry_out(driving_, works[kind]) == "what is next"
    assert [each for each in driving_.told if each[0] != "asks"] == [
        "commits", "commits", ("knows", "the run", "a"), driving_.begins(anew)
    ]  # fmt: skip


@pytest.mark.req("Q-14")
@pytest.mark.parametrize("shared", [None, SimpleNamespace(receipt="its receipt")])
async def test_a_shared_effect_is_looked_up_in_the_tenant_by_its_key(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, shared: Any
) -> None:
    monkeypatch.setattr(effects, "by_key", driving_.asked("looks", shared))
    work = LookUp(step("b"), "the key", Known(wait="the wait", receipt="an earlier one"))  # type: ignore[arg-type]
    assert await carry_out(driving_, work) == "what is next"
    receipt: Any = None if shared is None else "its receipt"
    known = Known(wait="the wait", receipt=receipt, receipt_checked=True, shared=shared)  # type: ignore[arg-type]
    looks = ("looks", "the connection", "the graphs", "acme", "the key")
    assert driving_.told == [looks, "commits", driving_.begins(known)]


@pytest.mark.parametrize("times", [1, CONFLICTS_MAX - 1, CONFLICTS_MAX])
async def test_an_effect_that_moves_while_it_is_looked_up_is_looked_up_again(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(effects, "by_key", driving_.asked("looks"))
    driving_.fails = [TAKEN] * times
    work = carry_out(driving_, LookUp(step("b"), "the key", KNOWN))
    if times < CONFLICTS_MAX:
        assert await work == "what is next"
    else:
        with pytest.raises(CountersealError) as refused:
            await work
        assert str(refused.value) == "The effect the key changed during every attempt to look it up."
    assert driving_.told.count("commits") == min(times + 1, CONFLICTS_MAX)


# -- what is sent ----------------------------------------------------------------------------------------------------

UNTIL = SPAN.total_seconds()
WITHIN = SEND_WITHIN.total_seconds()


@pytest.mark.req("Q-9")
@pytest.mark.parametrize("receipt", [RECEIPT, None])
@pytest.mark.parametrize(
    ("until", "passed", "sent"),
    [
        (1000.0, 0.0, True),
        (1000.0, WITHIN, True),
        (1000.0, WITHIN + 0.001, False),
        (0.001, 0.0, True),
        (0.0, 0.0, False),
        (-1.0, 0.0, False),
    ],
)
async def test_what_was_intended_is_sent_while_the_lease_is_ours_and_the_intent_fresh(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch, until: float, passed: float, sent: bool, receipt: Any
) -> None:
    """A call without a receipt has no side effect, so it can be made whenever the lease allows it."""
    driving_.now += passed
    driving_.drive._holding.lease.until = driving_.now + until
    monkeypatch.setattr(driving, "unsent", driving_.noted("unsent"))
    hold = driving_.drive._holding.hold

    class Calling:
        def __init__(self, *given: Any) -> None:
            self.perform = driving_.asked("performs", given)
            assert given == (driving_.tools, driving_.drive._patience, driving_.drive._holding, hold, work)

    monkeypatch.setattr(driving, "Calling", Calling)
    work = Perform(step("b"), OPERATION, CALL, receipt)
    await carry_out(driving_, work)
    if sent or receipt is None:
        assert driving_.told == [("performs",)]
    else:
        kept_back = Perform(driving_.step, OPERATION, CALL, receipt)
        assert driving_.told == ["commits a known outcome", ("unsent", TRANSITION, kept_back)]


@pytest.mark.req("Q-8")
async def test_what_the_target_says_of_an_intent_decides_about_that_intent(
    driving_: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = object.__new__(OperationNode)
    monkeypatch.setattr(TRANSITION, "leaf", lambda key: leaf if key == "a" else None)
    monkeypatch.setattr(driving, "inquire", driving_.asked("asks", "the probe"))
    monkeypatch.setattr(driving, "inquired", driving_.noted("decides", Over()))
    work = Inquire(step("b"), OPERATION, CALL, RECEIPT, KNOWN, 3.0)
    assert await carry_out(driving_, work) == Over()
    proposal = Proposal(TRANSITION, driving_.step, leaf, OPERATION, *GIVEN, KNOWN, new_nonce)
    assert driving_.told == [
        ("asks", "the connectors", work), "commits", ("decides", proposal, RECEIPT, "the probe")
    ]  # fmt: skip
