"""Each fact of a card by itself: the lines that it adds, at the values at which it begins to be told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from approvals.content import Agent, CardContent, CardState, InputField, RuleReason, ShapedBy, Source
from approvals.model import ApprovalKind, CardView, Choice, GroupProgress, Vote, VoteChannel
from approvals.slack import cards, modals
from approvals.slack.blocks import section
from approvals.slack.cards import (
    content_lines,
    decision_lines,
    detail_lines,
    heading,
    outcome_lines,
    render,
    vote_lines,
)
from core.action import Change, Risk
from core.terms import GroupQuorum

pytestmark = pytest.mark.req("Q-20")


@pytest.fixture
def bare(content: CardContent) -> CardContent:
    return replace(
        content, title="T of it", summary="T of it", target="t", operation="o", rules=(), changes=(), inputs=(),
        reverse="", requester="Rita", reference="", expires_at=None, policy_name="", policy_version=0,
        policy_digest_short="", risk=Risk.LOW,
    )  # fmt: skip


def test_a_bare_card_says_what_everybody_needs(bare: CardContent) -> None:
    assert decision_lines(bare) == [
        "*Request* `T of it`",
        "*Risk* low",
        "*Can be undone*",
        "*Requested by* `Rita`",
        "*Expires* never by itself",
    ]
    assert detail_lines(bare) == [
        "Target `t`",
        "Operation `o`",
        "Workflow `incident-triage` version 4",
        "Step `escalate`",
        f"Run `{bare.run_id}`",
    ]
    assert content_lines(bare) == [*decision_lines(bare), *detail_lines(bare)]


def asked(**more: Any) -> Agent:
    return replace(Agent("s", "m", 1, "Ann"), **more)


READ = ["*Proposed by the agent of step* `s` (a model), turn 1", "Model `m`", "For `Ann`"]


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({"summary": "T"}, ["*Summary* `T`"]),
        ({"summary": "T of it, and more"}, ["*Summary* `T of it, and more`"]),
        ({"tier": "high"}, ["*Risk* low · approval tier `high`"]),
        ({"rules": (RuleReason("r", ""),)}, ["*Why people are asked*", "• rule `r`"]),
        (
            {"rules": (RuleReason("r", "b"), RuleReason("q", "a"))},
            ["*Why people are asked*", "• rule `r`", "because: `b`", "• rule `q`", "because: `a`"],
        ),
        ({"changes": (Change("f", "", 0),)}, ["*Changes*", "• `f` _empty text_ → `0` _(number)_"]),
        ({"changes": (Change("f", None, False),)}, ["*Changes*", "• `f` _not set_ → `false` _(yes/no)_"]),
        ({"changes": (Change("g", 0, ""), Change("f", "x", None))}, [
            "*Changes*", "• `g` `0` _(number)_ → _empty text_", "• `f` `x` → _not set_",
        ]),
        ({"inputs": (InputField("b", None), InputField("a", []))}, [
            "Also sent", "• `b` _not set_", "• `a` `[]` _(JSON)_",
        ]),
        ({"evidence": "e"}, ["*What the target system says* `e`"]),
        ({"system": "t"}, ["System `t`"]),
        ({"reference": "R"}, ["Reference `R`"]),
        ({"policy_name": "p"}, ["Policy `p`", "Policy digest _empty_"]),
        ({"policy_name": "p", "policy_version": 1, "policy_digest_short": "d"}, [
            "Policy `p` version 1", "Policy digest `d`",
        ]),
        ({"policy_version": 1, "policy_digest_short": "d"}, []),
        ({"reverse": "undo it"}, ["*Can be undone:* `undo it`"]),
        ({"reversible": False}, ["*Cannot be undone*"]),
        ({"reversible": False, "reverse": "undo it"}, ["*Cannot be undone*"]),
        ({"agent": asked()}, [*READ, "It has read nothing."]),
        ({"agent": asked(read=("x.get",))}, [*READ, "*It has read*", "• `x.get`"]),
        ({"agent": asked(read=("x.get", "a.get"), says="now")}, [
            *READ, "*It has read*", "• `x.get`", "• `a.get`", "The model's own words, which nobody has checked: `now`",
        ]),
        ({"agent": asked(step="t", model="n", turn=2, requester="Rita")}, [
            "*Proposed by the agent of step* `t` (a model), turn 2", "Model `n`", "For `Rita`", "It has read nothing.",
        ]),
        ({"shaped_by": (ShapedBy("Ann", "edited this"),)}, ["*Shaped by*", "• `Ann` edited this"]),
        ({"shaped_by": (ShapedBy("Bo", "did", "n"), ShapedBy("Ann", "", "may"))}, [
            "*Shaped by*", "• `Bo` did, n", "• `Ann` may",
        ]),
        ({"sources": (Source("b", "is by", "Ann"), Source("a", "is by"))}, [
            "*Where it comes from*", "• `b` is by `Ann`", "• `a` is by",
        ]),
        ({"sources": (Source("b", "is ours"), Source("z", "is x's", ours=False), Source("a", "is y's", "y", False, " "),
        )}, [
            "*Where it comes from*",
            "• *Nobody of yours chose this value.*", "• `z` is x's",
            "• *Nobody of yours chose this value:* `⟨U+0020⟩`", "• `a` is y's `y`",
            "• `b` is ours",
        ]),
    ],
)  # fmt: skip
def test_a_fact_adds_its_own_lines(bare: CardContent, more: dict[str, Any], lines: list[str]) -> None:
    """The lines that a bare card has stay in their order, except those that the fact takes the place of."""
    before, after = content_lines(bare), content_lines(replace(bare, **more))
    assert [line for line in after if line not in before] == lines
    assert [line for line in after if line in before] == [line for line in before if line in after]
    gone = [line for line in before if line not in after]
    assert len(gone) == (1 if more.keys() & {"tier", "reverse", "reversible", "shaped_by"} else 0)


def vote(person: str, choice: Choice = Choice.APPROVE, reason: str = "") -> Vote:
    at = "2026-08-01T12:00:00+00:00"
    return Vote(person.lower(), person, choice, reason, frozenset({"group:leads"}), VoteChannel.SLACK, at, "d1")


AT = "<!date^1785585600^{date_short_pretty} {time}|2026-08-01 12:00 UTC>, by slack"
LATE = "*Late answer* `It was done.`"
PAUSED = "*Paused* `The tenant is paused. Answers count, and nothing goes out until it is resumed.`"


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, []),
        ({"detail": "x"}, ["*Outcome* `x`"]),
        ({"detail": "x", "votes": (vote("Ann", reason="x"),)}, []),
        ({"detail": "x", "votes": (vote("Ann", reason="xy"),)}, ["*Outcome* `x`"]),
        ({"detail": "xy", "votes": (vote("Ann", reason="x"),)}, ["*Outcome* `xy`"]),
        ({"detail": "x", "votes": (vote("Bo"), vote("Ann", reason="x"), vote("Cy"))}, []),
        ({"detail": "x", "votes": (vote("Ann", reason="x"), vote("Ann"))}, ["*Outcome* `x`"]),
        ({"late": "It was done."}, [LATE]),
        ({"paused": "The tenant is paused."}, [PAUSED]),
        ({"late": "It was done.", "paused": "The tenant is paused."}, [LATE, PAUSED]),
        (
            {"detail": "x", "late": "It was done.", "paused": "The tenant is paused."},
            ["*Outcome* `x`", LATE, PAUSED],
        ),
        ({"detail": "x", "late": "It was done.", "votes": (vote("Ann", reason="x"),)}, [LATE]),
    ],
)
def test_an_outcome_is_told_once(view: CardView, more: dict[str, Any], lines: list[str]) -> None:
    assert outcome_lines(replace(view, **more)) == lines


ONE, TWO = GroupProgress(GroupQuorum("leads", 2), ("Ann",)), GroupProgress(GroupQuorum("owners", 1), ())
COUNTED = ["• 1 of 2 from `leads`", "• 0 of 1 from `owners`"]


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, []),
        ({"two_person": True}, []),
        ({"progress": (ONE,)}, ["*Votes*", COUNTED[0]]),
        ({"progress": (ONE, TWO)}, ["*Votes*", *COUNTED]),
        ({"progress": (ONE,), "two_person": True}, [
            "*Votes*", COUNTED[0], "• at least two people, each counting once",
        ]),
        ({"votes": (vote("Ann", Choice.REJECT, "no"), vote("Bo"))}, [
            "*Votes*", f"• rejected: `Ann` {AT}", "reason: `no`", f"• approved: `Bo` {AT}",
        ]),
        ({"votes": (vote("Ann", Choice.REJECT, "no"), vote("Bo"), vote("Ann", reason="yes"))}, [
            "*Votes*", f"• approved: `Bo` {AT}", f"• approved: `Ann` {AT}", "reason: `yes`",
        ]),
    ],
)  # fmt: skip
def test_votes_are_the_last_of_each_person(view: CardView, more: dict[str, Any], lines: list[str]) -> None:
    assert vote_lines(replace(view, **more)) == lines


def texts(blocks: list[Any]) -> list[str]:
    return [line for block in blocks if block["type"] == "section" for line in block["text"]["text"].split("\n")]


@pytest.fixture
def long(view: CardView, monkeypatch: pytest.MonkeyPatch) -> CardView:
    """A card that fits no message."""
    monkeypatch.setattr(cards, "fits_message", lambda blocks: False)
    return replace(view, content=replace(view.content, changes=(Change("c", 1, 2),), reference=""))


def test_a_card_that_is_too_long_says_what_is_short(long: CardView) -> None:
    size = sum(map(len, content_lines(long.content)))
    assert texts(render(long).blocks) == [
        "*This request is too long for a card.* Nothing of it is shown in part.",
        f"1 changed and 1 other fields, {size} characters in all.",
        "Risk *medium*.",
        "*Request* `Raise the priority of INC0010023`",
        "*Target* `incident INC0010023`",
        "*Operation* `servicenow.incident.update`",
        "*Requested by* `triage-agent`",
        "0 votes so far.",
        "*Review* shows all of it.",
    ]


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({"reversible": False}, ["*Cannot be undone*"]),
        ({"reversible": False, "reverse": ""}, ["*Cannot be undone*"]),
        ({"reverse": ""}, []),
        ({"system": "s"}, ["*System* `s`"]),
        ({"shaped_by": (ShapedBy("Bo", "edited this", "n"), ShapedBy("Ann", "asked"))}, [
            "`Bo` edited this", "`Ann` asked",
        ]),
        ({"shaped_by": (ShapedBy("&" * 60, "did"), ShapedBy("&" * 61, "did"))}, [f"`{'&amp;' * 60}` did"]),
        ({"agent": asked(step="plan")}, ["*Proposed by the agent of step* `plan`"]),
        ({"agent": asked(step="&" * 61)}, ["*Proposed by the agent of step* is in *Review*"]),
        ({"agent": asked(step="")}, []),
        ({"sources": (Source("a", "is ours"), Source("b", "is not", ours=False), Source("c", "is ours"))}, [
            "*Nobody of yours chose some of its values.*",
        ]),
        ({"sources": (Source("a", "is ours"),)}, []),
    ],
)  # fmt: skip
def test_a_short_fact_is_on_a_long_card(long: CardView, more: dict[str, Any], lines: list[str]) -> None:
    before = texts(render(long).blocks)
    after = texts(render(replace(long, content=replace(long.content, **more))).blocks)
    added = [line for line in after if line not in before and "characters in all" not in line]
    assert added == lines


def test_a_long_card_counts_every_vote_and_offers_its_review(long: CardView) -> None:
    """Count what was said: a person who changed their mind said two things."""
    votes = (vote("Ann", Choice.REJECT, "no"), vote("Ann"), vote("Bo"))
    drawn = render(replace(long, votes=votes))
    assert "3 votes so far." in texts(drawn.blocks)
    assert not drawn.complete
    [buttons] = [block["elements"] for block in drawn.blocks if block["type"] == "actions"]
    assert [(one["text"]["text"], one.get("style")) for one in buttons] == [("Review", "primary")]
    over = render(replace(long, state=CardState.APPLIED))
    [buttons] = [block["elements"] for block in over.blocks if block["type"] == "actions"]
    assert [(one["text"]["text"], one.get("style")) for one in buttons] == [("Review", None)]


def test_a_card_with_hidden_values_offers_them_to_those_who_may_decide(view: CardView) -> None:
    hidden = replace(view, content=replace(view.content, sensitive=("work_notes", "priority")), votes=(vote("Ann"),))
    hidden = replace(hidden, detail="done", link="https://us.example/1")
    drawn = render(hidden)
    assert not drawn.complete
    assert "raised by triage" not in str(drawn)
    lines = texts(drawn.blocks)
    assert lines.index("*Outcome* `done`") < lines.index("*Votes*")
    assert lines[-1] == "Hidden values stay out of this channel. *Review* shows them to those who may decide."
    assert [block["type"] for block in drawn.blocks][-2:] == ["actions", "context"]
    shown = render(replace(hidden, content=replace(hidden.content, sensitive=())))
    assert shown.complete
    assert "raised by triage" in str(shown)
    closed = render(replace(hidden, state=CardState.APPLIED))
    assert [one["text"]["text"] for block in closed.blocks for one in block.get("elements", ()) if "value" in one] == [
        "Review"
    ]


@pytest.mark.parametrize("kind", ApprovalKind)
@pytest.mark.parametrize("state", CardState)
def test_a_heading_is_the_question_only_while_it_is_asked(view: CardView, kind: ApprovalKind, state: CardState) -> None:
    told = heading(replace(view, kind=kind, state=state))
    assert (told == "In doubt: what became of this?") is (kind is ApprovalKind.IN_DOUBT and state is CardState.PENDING)


@pytest.mark.parametrize("kind", ApprovalKind)
def test_the_last_page_of_a_review_asks_for_the_decision(view: CardView, kind: ApprovalKind) -> None:
    """Only in doubt each answer needs a reason."""
    drawn = modals.review(replace(view, kind=kind))
    choice, reason = drawn["blocks"][-2:]
    doubt = kind is ApprovalKind.IN_DOUBT
    words = ("happened", "again", "fail") if doubt else ("approve", "reject")
    assert [option["value"] for option in choice["element"]["options"]] == [*words]
    assert (reason["optional"], reason["label"]["text"]) == (
        (False, "Reason") if doubt else (True, "Reason (needed to reject)")
    )
    for answer in Choice:
        [asked] = modals.reason(view.approval_id, "n", answer)["blocks"]
        assert (asked["optional"], asked["label"]["text"]) == (False, "Reason")
    assert (drawn["title"]["text"], drawn["close"]["text"]) == ("Review", "Close")


@pytest.mark.parametrize("state", CardState)
@pytest.mark.parametrize(("page", "place"), [(-9, 0), (-1, 0), (0, 0), (1, 1), (2, 2), (3, 2), (99, 2)])
def test_each_page_carries_its_question_and_place(
    monkeypatch: pytest.MonkeyPatch, view: CardView, state: CardState, page: int, place: int
) -> None:
    """The first page and the last are the ends; what is over is read to its end and asks for nothing there."""
    monkeypatch.setattr(modals, "sections", lambda lines: [section(line) for line in lines[:3]])
    monkeypatch.setattr(modals, "pages", lambda blocks: [[block] for block in blocks])
    one = replace(view, state=state)
    drawn = modals.review(one, page)
    assert drawn["blocks"][1:3] == [section(f"Page {place + 1} of 3"), section(content_lines(view.content)[place])]
    last, asks = place == 2, state is CardState.PENDING
    assert [block["type"] for block in drawn["blocks"][3:]] == (["input", "input"] if last and asks else [])
    if last and not asks:
        assert drawn.keys() == {"type", "title", "close", "blocks"}
        return
    assert json.loads(drawn["private_metadata"]) == {
        "a": str(view.approval_id), "n": "nonce-1", "p": place, "l": last,
    }  # fmt: skip
    assert drawn["callback_id"] == "counterseal.review"
    assert drawn["submit"]["text"] == ("Send" if last else "Next page")
