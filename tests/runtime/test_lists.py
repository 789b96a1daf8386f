"""One card for a list: what a loop asks under the same rule is answered at once, each question by itself."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from approvals.model import Choice, VoteChannel
from approvals.ports import MessageRef
from core.errors import InputError
from runtime.requests.listing import ListVote, vote_list
from runtime.requests.voting import AnswerTo
from tests.support.runtime_voting import Office
from tests.support.verified import sound

LOOP = """
workflow: each
version: 1
reference: ${{ run.id }}
channels: {lost: {}}
steps:
  - id: each
    foreach: ${{ trigger.items }}
    max_parallel: 100
    steps:
      - id: raise
        do: probe.record.update
        with: {name: "${{ item }}", fields: {priority: high}}
        on_rejected: [{set: {lost: "${{ item }}"}}]
"""
LATE = LOOP.replace(
    "    steps:",
    """    steps:
      - if: ${{ item == 'r03' }}
        then: [{id: soon, wait: {for: PT1H}}]
      - if: ${{ item == 'r04' }}
        then: [{id: late, wait: {for: PT2H}}]""",
)
ASK = """
policy: p
version: 1
rules:
  - id: ask
    match: {connector: probe}
    outcome: needs_approval
    approvers: [{group: owners, of: 1}]
    because: Every wave is let go by people.
"""


class Wave:
    """An office in which a loop asks about many records."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        self.office, self.runtime = Office(runtime, folder), runtime
        self.board, self.books = self.office.board, runtime.books

    async def asks(self, count: int, **more: Any) -> UUID:
        await self.runtime.tenant()
        await self.runtime.policy(more.get("policy", ASK))
        await self.runtime.publish(more.get("workflow", LOOP))
        for person in ("ana", "ben", "requester"):
            await self.runtime.person(person, ("owners",))
        names = [f"r{n:02}" for n in range(count)]
        self.runtime.outside.records |= {name: {"version": 1, "fields": {"priority": "low"}} for name in names}
        run_id: UUID = (await self.runtime.start("each", {"items": names})).run_id
        await self.works()
        return run_id

    async def works(self) -> None:
        await self.runtime.worker().work_off()
        await self.office.dispatcher.work_off()

    async def passes(self) -> None:
        """Let what is due happen."""
        await self.office.sweeper.sweep()
        await self.works()

    async def answers(self, person: str = "ana", choice: str = "approve", **more: Any) -> Any:
        """Answer the newest card from its own message."""
        ts, view = [*self.board.cards.items()][-1]
        told = {"mark": view.mark, "place": MessageRef("C1", ts), "reason": "", "answer_to": AnswerTo("C1", "U1")}
        first = view.first.approval_id
        request = ListVote("acme", first, person, Choice(choice), channel=VoteChannel.SLACK, **{**told, **more})
        return await vote_list(self.office.voting, request)


@pytest.fixture
def wave(runtime: Any, tmp_path: Path) -> Wave:
    return Wave(runtime, tmp_path)


async def test_of_fifty_questions_three_changed_and_are_asked_anew(wave: Wave, tmp_path: Path) -> None:
    run_id = await wave.asks(50)
    assert (wave.board.posts, len(wave.board.cards)) == (1, 1)
    for name in ("r07", "r21", "r33"):
        wave.runtime.outside.records[name] = {"version": 2, "fields": {"priority": "medium"}}
    answer = await wave.answers()
    assert (answer.approved, answer.refused) == (50, ())
    assert (await wave.answers()).approved == 0  # the same click once more
    await wave.works()
    assert len(wave.runtime.outside.effects) == 47
    old, new = wave.board.cards.values()
    assert sorted(one.content.target[-3:] for one in new.open) == ["r07", "r21", "r33"]
    assert sorted(str(one.state) for one in old.items) == ["applied"] * 47 + ["superseded"] * 3
    assert wave.board.notes[0][1] == "50 approved."
    assert (await wave.answers("ben")).approved == 3
    await wave.works()
    assert await wave.runtime.status(run_id) == "succeeded"
    assert len(wave.runtime.outside.effects) == 50
    await sound(wave.runtime, run_id, tmp_path)


async def test_each_question_of_a_list_is_judged_by_itself(wave: Wave, tmp_path: Path) -> None:
    policy = ASK.replace("of: 1}]", "of: 1}]\n    expires: PT8H\n    remind: [PT1H]")
    run_id = await wave.asks(6, policy=policy)
    view = [*wave.board.cards.values()][-1]
    ids = {one.content.target[-3:]: one.approval_id for one in view.items}
    # Nobody who is not asked, from no other message, and from no drawing that showed something else.
    refusals = {
        "not_eligible": {"person": "stranger"},
        "false_card": {"place": MessageRef("C1", "9.9")},
        "stale": {"mark": "0" * 64},
        "reason_missing": {"choice": "reject"},
        "separation_of_duties": {"person": "requester"},
    }
    await wave.runtime.person("stranger", ())
    for code, more in refusals.items():
        answer = await wave.answers(**more)
        assert (answer.approved, answer.rejected, {one.code for one in answer.refused}) == (0, 0, {code}), code
    # Each is reminded of at the same time; the message hears it once.
    await wave.office.later(hours=1)
    await wave.office.sweeper.sweep()
    await wave.office.dispatcher.work_off()
    assert len(wave.board.threads) == 1
    # Some are approved and the others rejected, with a reason; what was not shown cannot be chosen.
    chosen = frozenset({ids["r01"], ids["r02"]})
    with pytest.raises(InputError):
        await wave.answers(chosen=chosen | {run_id}, reason="no")
    answer = await wave.answers(chosen=chosen, reason="Ask their owner first.")
    assert (answer.approved, answer.rejected, answer.refused) == (2, 4, ())
    votes = await wave.books.votes()
    assert (
        sorted((vote.choice, vote.reason) for vote in votes)
        == [("approve", "")] * 2 + [("reject", "Ask their owner first.")] * 4
    )
    await wave.works()
    assert sorted(call.input["name"] for call in wave.runtime.outside.effects) == ["r01", "r02"]
    assert wave.board.posts == 1
    await sound(wave.runtime, run_id, tmp_path)


async def test_a_list_takes_what_is_asked_later_until_somebody_has_answered(wave: Wave) -> None:
    """A drawing with fewer questions answers none of those that came after it."""
    run_id = await wave.asks(5, workflow=LATE)
    [(ts, first)] = wave.board.cards.items()
    assert len(first.open) == 3
    await wave.runtime.trouble.bring_waits_nearer(timedelta(hours=1))
    await wave.passes()
    [(same, grown)] = wave.board.cards.items()
    assert (same, len(grown.open), wave.board.posts) == (ts, 4, 1)
    assert [one.code for one in (await wave.answers(mark=first.mark)).refused] == ["stale"]
    assert (await wave.answers(chosen=frozenset({grown.first.approval_id}), reason="Not these.")).rejected == 3
    await wave.runtime.trouble.bring_waits_nearer(timedelta(hours=1))
    await wave.passes()
    assert [type(one).__name__ for one in wave.board.cards.values()] == ["ListView", "CardView"]
    assert (await wave.office.vote("ben")).counted
    await wave.passes()
    assert len(wave.runtime.outside.effects) == 2
    assert await wave.runtime.status(run_id) == "succeeded"


@pytest.mark.parametrize("fault", ["landed", "lost"])
async def test_a_crash_between_post_and_record_leaves_one_card(wave: Wave, fault: str) -> None:
    wave.board.fault = fault
    await wave.asks(4)
    await wave.runtime.trouble.hurry_messages()
    await wave.office.dispatcher.work_off()
    assert (wave.board.posts, len(wave.board.cards)) == (1, 1)
    assert (await wave.answers()).approved == 4
