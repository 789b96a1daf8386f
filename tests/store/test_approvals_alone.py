"""Approvals as they are read for a card: all of their votes, whoever shaped them, and the card that was shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from approvals.model import ApprovalKind, Choice, Vote, VoteChannel
from core.errors import NotFoundError
from runtime.engine.events import ApprovalRequested
from runtime.store import approvals, journal
from tests.store.test_questions_read import ABOUT, ASKED, ITEM, LATER, OTHER, TERMS, VOTE, event
from tests.support.asked import Asked, Row


def test_an_approval_has_every_vote_and_contributor_in_their_order() -> None:
    listed = [
        {"vote": {**VOTE, "person_id": "cat", "reason": None, "groups": ["h", "g"]}, "name": "Bob"},
        {"vote": {**VOTE, "choice": "reject", "reason": "", "groups": []}, "name": "bob"},
        {"vote": VOTE, "name": "Bob"},
    ]
    unsaid: Any = None
    votes: Any = (
        Vote("cat", "Bob", Choice.APPROVE, unsaid, frozenset({"g", "h"}), VoteChannel.CLI, "then", "d"),
        Vote("bob", "bob", Choice.REJECT, "", frozenset(), VoteChannel.CLI, "then", "d"),
        Vote("bob", "Bob", Choice.APPROVE, "yes", frozenset({"g"}), VoteChannel.CLI, "then", "d"),
    )
    given: Any = ("b", "a")
    values = {"approval": ITEM, "votes": listed, "now": LATER, "workspace_id": "main", "directory_digest": None,
              "paused": {}}  # fmt: skip
    gate: Any = SimpleNamespace(kind="gate", nonce="n", terms=TERMS.to_json(), requester="")
    found: Any = approvals._stored(Row(**values), gate, "d", {}, given)
    assert (found.approval.votes, found.approval.contributors) == (votes, given)
    assert (found.approval.requester, found.approval.kind) == ("", ApprovalKind.GATE)


@pytest.mark.parametrize(("shown", "card"), [({"the": "card"}, {"the": "card"}), ({}, {}), (None, {})])
async def test_an_approval_is_read_with_its_card_and_with_whoever_shaped_it(
    monkeypatch: pytest.MonkeyPatch, shown: Any, card: Any
) -> None:
    asked = event()
    given: dict[str, Any] = {name: getattr(asked, name) for name in ApprovalRequested.__struct_fields__}
    asked = ApprovalRequested(**{**given, "shown": shown})
    found_row = Row(approval=ITEM, votes=None, now=LATER, workspace_id="main", directory_digest="dir", paused=None)
    told = (found_row, ASKED)
    monkeypatch.setattr(approvals, "question", lambda row, approval: asked if (row, approval) == told else None)
    monkeypatch.setattr(approvals, "told_of", lambda each: ("b", "a") if each is asked else ())
    connection: Any = Asked(found_row)
    found: Any = await approvals.read(connection, ASKED)
    assert (found.card, found.approval.contributors, found.approval.action_digest) == (card, ("b", "a"), "d")
    assert connection.told == [(approvals._READ_ONE, ASKED)]
    with pytest.raises(NotFoundError) as caught:
        await approvals.read(Asked(None), OTHER)  # type: ignore[arg-type]
    assert str(caught.value) == f"There is no approval {OTHER}."


def test_what_retention_kept_of_a_question_goes_before_what_its_append_still_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Any] = []

    def read_line(line: bytes, values: Any, *_: Any, **__: Any) -> Any:
        read.append(values)
        return SimpleNamespace(event=event())

    monkeypatch.setattr(approvals, "read_line", read_line)
    monkeypatch.setattr(approvals, "check_stored", lambda *_: None)
    monkeypatch.setattr(journal, "unpack_values", lambda stored: {0: {"of": "the append"}})
    for kept, values in ((None, {"of": "the append"}), ({"of": "the rest"}, {"of": "the rest"}), ({}, {})):
        row = Row(kept=kept, run_key=b"k", asked_at=7, asked=ABOUT, shown=b"stored")
        assert approvals.question(row, ASKED) == event()
        assert read.pop() == values


@pytest.mark.parametrize("shown", [None, {}, {"the": "card"}])
@pytest.mark.parametrize("tier", [None, "", "peer"])
async def test_a_listed_approval_has_the_card_and_the_tier_that_were_told_or_none(
    monkeypatch: pytest.MonkeyPatch, shown: Any, tier: str | None
) -> None:
    given: dict[str, Any] = {name: getattr(event(), name) for name in ApprovalRequested.__struct_fields__}
    asked = ApprovalRequested(**{**given, "shown": shown, "tier": tier})
    monkeypatch.setattr(approvals, "question", lambda row, approval: asked)
    rows = [Row(approval_id=each, status="expired") for each in (OTHER, ASKED)]
    found = await approvals.approvals_page(Asked(rows), "acme", 5)  # type: ignore[arg-type]
    told = {
        "status": "expired",
        "kind": "action",
        "tier": tier,
        "requester": "ann",
        "card": shown,
        "action_digest": "d",
    }
    assert found == [{"approval_id": each, **told} for each in (OTHER, ASKED)]
