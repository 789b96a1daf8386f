"""Conversations that a worker keeps: what was taken in once is not taken in again."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from core.origins.conversation import Passage, matcher_of
from core.origins.matching import Matcher
from runtime.engine.book.agent_chat import KEPT_MAX, ConversationCache

pytestmark = pytest.mark.req("P-14")
RUN = uuid4()
TURNS = 20


def said(turn: int) -> Passage:
    return Passage("model", {"text": f"turn {turn}"}, f"a/{turn}", answer=True)


def result(turn: int) -> Passage:
    return Passage("tool:x.y", {"name": f"value-{turn}"}, f"a/{turn}/1")


def conversation(turn: int) -> list[Passage | None]:
    return [
        Passage("requester", "Look at 'alpha'."),
        *(one for before in range(1, turn) for one in (said(before), result(before))),
    ]


class Asking:
    def __init__(self) -> None:
        self.listeners = ConversationCache()
        self.told: list[int] = []

    def at(self, turn: int, mark: str = "", run: UUID = RUN, agent: str = "a") -> list[list[str]]:
        def heard() -> list[Passage | None]:
            self.told.append(turn)
            return conversation(turn)

        known = self.listeners.known(run, agent, f"{agent}/{turn}", mark or f"{turn}", heard)
        return known.matcher.origins([f"value-{turn - 1}", f"value-{turn}", "alpha"])


def test_a_conversation_is_told_once_a_turn_and_taken_in_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, asking, shown = list[object](), Asking(), Matcher.add_result

    def counting(self: Matcher, *args: Any, **more: Any) -> None:
        taken.append(args)
        shown(self, *args, **more)

    monkeypatch.setattr(Matcher, "add_result", counting)
    for turn in range(2, TURNS):
        for _ in range(5):
            assert asking.at(turn) == [["field:x.y#/name", "tool:x.y"], ["model"], ["requester"]]
    assert asking.told == [*range(2, TURNS)]
    assert len(taken) == TURNS - 2


def test_what_is_asked_about_an_earlier_turn_knows_nothing_of_later_ones() -> None:
    asking = Asking()
    for turn in (7, 3, 7):
        fresh = matcher_of(conversation(turn)).origins([f"value-{turn - 1}", f"value-{turn}", "alpha"])
        assert asking.at(turn) == fresh


def test_another_digest_another_run_and_another_agent_are_other_conversations() -> None:
    asking = Asking()
    asking.at(3)
    asking.at(3, "other")
    asking.at(3, run=uuid4())
    asking.at(3, agent="b")
    assert asking.told == [3] * 4
    asking.at(4, "3", agent="b")
    assert asking.told == [3, 3, 3, 3, 4], "another turn is another conversation, whatever its digest"


def test_no_more_are_kept_than_so_many() -> None:
    asking, runs = Asking(), [uuid4() for _ in range(KEPT_MAX + 1)]
    for run in runs:
        asking.at(2, run=run)
    told = [len(asking.told)]
    for run in (runs[-1], *runs[1:-1], runs[0], runs[-1]):
        asking.at(2, run=run)
        told.append(len(asking.told))
    first = KEPT_MAX + 1
    assert told == [*[first] * (KEPT_MAX + 1), first + 1, first + 2], "the one that was used first makes room"
