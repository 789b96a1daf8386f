"""Keepers' choices by themselves: what is let go of, whose leases are spared, whom a proposer hears of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from approvals.model import ApprovalStatus, Choice, Vote, VoteChannel
from core.identity import Directory, Entry
from runtime.engine.commit import Claim
from runtime.keep import errands, messages, sweeper
from runtime.keep.dispatcher import Delivered, Later
from runtime.keep.errands import Errands
from runtime.keep.messages import Messages
from runtime.keep.sweeper import Sweeper
from runtime.store.sweeps import Due
from tests.support.rows import ago, uid

NOTHING: Any = None
MINE = uid(5)
SHARED_LATER = Later("Others share it, and one of them is to take it over.")
TAKEN_LATER = Later("Somebody has just taken it over.")


@pytest.mark.req("Q-15")
@pytest.mark.parametrize(
    ("row", "open_", "abandoned", "result", "receipt", "calls"),
    [
        (None, 0, True, None, "own", 1),
        ({"wait_id": None, "status": "intended"}, 1, True, None, "own", 1),
        ({"wait_id": uid(6), "status": "left"}, 0, True, Delivered(), None, 1),
        ({"wait_id": MINE, "status": "begun"}, 0, True, Delivered(), None, 1),
        ({"wait_id": MINE, "status": "succeeded"}, 0, True, Delivered(), None, 1),
        ({"wait_id": MINE, "status": "left"}, 1, True, SHARED_LATER, None, 4),
        ({"wait_id": MINE, "status": "left"}, 0, False, TAKEN_LATER, None, 5),
        ({"wait_id": MINE, "status": "left"}, 0, True, None, "the effect's", 6),
        ({"wait_id": MINE, "status": "failed"}, 0, False, None, "the effect's", 5),
        ({"wait_id": MINE, "status": "failed"}, 1, False, SHARED_LATER, None, 4),
        ({"wait_id": MINE, "status": "gone"}, 0, False, None, None, 5),
    ],
)
async def test_a_shared_effect_is_ended_outside_by_the_last_one_who_leaves_it(
    monkeypatch: pytest.MonkeyPatch, row: Any, open_: int, abandoned: bool, result: Any, receipt: Any, calls: int
) -> None:
    asked: list[Any] = []

    def noted(name: str, answer: Any) -> Any:
        async def verb(*given: Any) -> Any:
            asked.append((name, *given))
            return answer(*given) if callable(answer) else answer

        return verb

    def over(_: Any, tenant: str, run: Any, step: str, graphs: Any) -> bool:
        return run != uid(1) or not open_

    others = [{"run_id": uid(number), "step_key": f"s{number}"} for number in range(2)]
    shared = None if row and row["status"] == "gone" else SimpleNamespace(receipt="the effect's")
    answers = {"row_of": row, "sharing": others, "abandon": abandoned, "by_key": shared}
    for name, answer in answers.items():
        monkeypatch.setattr(errands.effects, name, noted(name, answer))
    monkeypatch.setattr(errands, "step_is_over", noted("over", over))
    definitions: Any = SimpleNamespace(graphs="graphs")
    keeper = Errands(NOTHING, definitions, NOTHING)
    at: Any = "transaction"
    own: Any = "own"
    assert await keeper._leave(at, "acme", "k", MINE, own) == (result, receipt)
    place = ("transaction", "acme")
    ways = [
        ("row_of", *place, "k"),
        ("sharing", *place, "k"),
        ("over", *place, uid(0), "s0", "graphs"),
        ("over", *place, uid(1), "s1", "graphs"),
        *([("abandon", *place, "k", MINE)] if row and row["status"] == "left" else []),
        ("by_key", "transaction", "graphs", "acme", "k"),
    ]
    assert asked == ways[:calls]


class Connected:
    """A database whose connections nobody uses."""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        yield None


@pytest.mark.req("Q-9")
@pytest.mark.parametrize(("spared", "taken"), [(-1.0, 1), (3600.0, 0)])
async def test_leases_are_spared_for_a_while_after_postgresql_was_away(
    monkeypatch: pytest.MonkeyPatch, spared: float, taken: int
) -> None:
    """Waits and all else that is due are not: only a lease has a worker behind it."""

    async def due(*_: Any, **__: Any) -> Due:
        leases = ((uid(1), Claim("a", uid(2), 1)),)
        return Due(leases, ((uid(1), "b", uid(3), 7.0),), 0, (), (), (), (), ())

    met: list[str] = []
    database: Any = Connected()
    keeper = Sweeper(database, NOTHING)

    async def expire(*_: Any) -> bool:
        met.append("lease")
        return True

    async def end(*_: Any) -> bool:
        met.append("wait")
        return True

    monkeypatch.setattr(sweeper.sweeps, "due", due)
    monkeypatch.setattr(Sweeper, "_expire_lease", expire)
    monkeypatch.setattr(Sweeper, "_end_wait", end)
    keeper._spared_until = asyncio.get_running_loop().time() + spared
    assert await keeper.sweep() == 1 + taken
    assert met == ["lease"] * taken + ["wait"]


def vote(person: str, choice: Choice) -> Vote:
    return Vote(person, person.title(), choice, "", frozenset(), VoteChannel.CLI, ago(hours=1), "d")


@pytest.mark.req("P-12")
@pytest.mark.parametrize(
    ("status", "became"),
    [
        (ApprovalStatus.APPROVED, "was approved by Olga and Otto and is in force"),
        (ApprovalStatus.REJECTED, "was rejected by Olga and Otto: not yet"),
        (
            ApprovalStatus.EXPIRED,
            "ended without a decision, and is not in force. Propose it again if it is still wanted",
        ),
    ],
)
async def test_whoever_proposed_a_policy_hears_what_became_of_it_and_by_whom(
    monkeypatch: pytest.MonkeyPatch, status: ApprovalStatus, became: str
) -> None:
    """A person who has voted twice is named once."""
    votes = (vote("olga", Choice.REJECT), vote("olga", Choice.APPROVE), vote("otto", Choice.APPROVE))
    approval = SimpleNamespace(tenant_id="acme", requester="ann", status=status, votes=votes)

    async def stored(*_: Any) -> Any:
        return SimpleNamespace(approval=approval, reason="not yet", message=None)

    async def directory(*_: Any) -> Directory:
        return Directory.of("d", [Entry("ann", "Ann A.")])

    said: list[str] = []

    async def below(_: Any, stored: Any, message: Any, text: str) -> Delivered:
        said.append(text)
        return Delivered()

    monkeypatch.setattr(messages, "_approval", stored)
    monkeypatch.setattr(messages.tenants, "directory", directory)
    monkeypatch.setattr(Messages, "_below", below)
    message: Any = SimpleNamespace(payload={"approval": str(uid(1))}, tenant_id="acme")
    handlers: Any = Messages(NOTHING, "C1", NOTHING)
    deliver = await handlers.proposal(NOTHING, message)
    assert await deliver() == Delivered()
    assert said == [f"Ann A., the change of policy that you proposed {became}."]
