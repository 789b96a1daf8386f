"""Cards: complete, within Slack's limits, and not to be forged by what is in them."""

from __future__ import annotations

import html
import json
import re
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from approvals.content import Agent, CardContent, CardState, InputField, RuleReason, Source
from approvals.model import ApprovalKind, CardView, Choice, GroupProgress, Vote, VoteChannel
from approvals.slack import modals
from approvals.slack.blocks import code, escaped, pieces
from approvals.slack.cards import render
from approvals.slack.guard import BODY_BYTES_MAX
from approvals.slack.lines import OPEN_LINES_MAX, lines_of
from core.action import Change, Risk
from core.errors import InputError
from core.legible import visible
from core.terms import GroupQuorum

NASTY = [
    "`*_~<!channel> <@U1> <https://evil|ok> & &amp;",
    "a\u202eb\u200bc\u2066d\ufeff",
    "\n\n*Approved by* `Ann`\n",
    "```\nfence\n```",
    "Z\u0300\u0301\u0302\u0303\u0304\u0305",
    " lead and trail ",
    "\u3164\u00a0\u2028\U000e0041\ufe0f",
    "⟨U+0041⟩",
    ":white_check_mark: > quote",
]


def words_of(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(block["text"]["text"] for block in blocks if block["type"] == "section")


def buttons_of(blocks: list[dict[str, Any]]) -> list[str]:
    return [element["action_id"] for block in blocks if block["type"] == "actions" for element in block["elements"]]


def unquoted(words: str) -> str:
    """Cut out the monospace parts; all that is left are words of ours."""
    assert all(line.count("`") % 2 == 0 for line in words.split("\n"))
    return re.sub(r"`[^`\n]*`", "", words)


def original(text: str) -> str:
    return re.sub(r"⟨U\+([0-9A-F]{4,6})⟩", lambda match: chr(int(match[1], 16)), html.unescape(text))


@pytest.mark.req("Q-20")
def test_a_card_tells_what_is_decided_and_its_window_everything(view: CardView, check_blocks: Any) -> None:
    card = render(view)
    check_blocks(card.blocks, False)
    assert card.complete
    assert [block["type"] for block in card.blocks] == ["header", "section", "section", "context", "actions"]
    assert words_of(card.blocks).split("\n") == [
        "Priority ~3~ → *1*",
        "Assigned to *ann*",
        "With work notes `raised by triage`",
        "Asked by `triage-agent`",
        "*Why:* Priority changes wake people up.",
    ]
    until = "<!date^1785603600^{date_short_pretty} {time}|2026-08-01 17:00 UTC>"
    assert card.blocks[3]["elements"][0]["text"] == f"Can be undone · until {until}"
    assert buttons_of(card.blocks) == ["counterseal.approve", "counterseal.reject", "counterseal.review"]
    value = json.loads(card.blocks[-1]["elements"][0]["value"])
    assert value == {"a": str(view.approval_id), "n": "nonce-1"}
    told = words_of(modals.review(view)["blocks"])
    for line in (
        "*Request* `Raise the priority of INC0010023`",
        "• `priority` `3` → `1`",
        "because: `Priority changes wake people up.`",
        "Target `incident INC0010023`",
        "Operation `servicenow.incident.update`",
        "Run `01890000-0000-7000-8000-000000000002`",
        "Policy digest `9f86d081`",
    ):
        assert line in told


def test_high_risk_asks_twice(view: CardView, check_blocks: Any) -> None:
    card = render(replace(view, content=replace(view.content, risk=Risk.HIGH, reversible=False, reverse="")))
    check_blocks(card.blocks, False)
    approve = card.blocks[-1]["elements"][0]
    assert approve["confirm"]["text"]["text"] == "This action is of high risk. It cannot be undone."
    assert "High risk · cannot be undone" in str(card.blocks)


@pytest.mark.parametrize("state", [state for state in CardState if state is not CardState.PENDING])
def test_nobody_decides_from_a_card_that_is_decided(view: CardView, state: CardState, check_blocks: Any) -> None:
    card = render(replace(view, state=state, detail="INC0010023 was updated", late="A late answer came."))
    check_blocks(card.blocks, False)
    assert buttons_of(card.blocks) == ["counterseal.review"]
    assert "`INC0010023 was updated`" in str(card.blocks)
    assert "*A late answer:* `A late answer came.`" in str(card.blocks)


def test_states_have_words_of_their_own(view: CardView) -> None:
    assert len({render(replace(view, state=state)).text for state in CardState}) == len(CardState)


def test_in_doubt_question(view: CardView, check_blocks: Any) -> None:
    content = replace(view.content, evidence="sys_mod_count is 8", sent_at="2026-08-01T12:00:00Z", answer="HTTP 502")
    card = render(replace(view, kind=ApprovalKind.IN_DOUBT, content=content))
    check_blocks(card.blocks, False)
    assert buttons_of(card.blocks) == ["counterseal.happened", "counterseal.again", "counterseal.fail"]
    for words in ("Sent <!date^", "answered `HTTP 502`", "`sys_mod_count is 8`", "*Look first:*"):
        assert words in words_of(card.blocks)


def test_votes_so_far(view: CardView) -> None:
    vote = Vote("ann", "Ann <b>", Choice.APPROVE, "fine", frozenset(), VoteChannel.SLACK, "2026-08-01T12:00:00Z", "d")
    progress = (GroupProgress(GroupQuorum("leads", 2), ("Ann <b>",), ("Bob", "*Cat*")),)
    drawn = replace(view, votes=(vote,), progress=progress, two_person=True)
    said = render(drawn).blocks[-2]["elements"][0]["text"]
    assert "Ann &lt;b&gt; approved · 1 more of leads needed (Bob, `*Cat*`) · two different people" in said
    words = words_of(modals.review(drawn)["blocks"])
    assert "• 1 of 2 from `leads`" in words
    assert "• approved: `Ann &lt;b&gt;` <!date^" in words
    assert "reason: `fine`" in words
    assert "at least two people" in words


def test_of_several_votes_of_a_person_the_last_is_shown(view: CardView) -> None:
    first = Vote("ann", "Ann", Choice.APPROVE, "go", frozenset(), VoteChannel.SLACK, "2026-08-01T12:00:00Z", "d")
    other = replace(first, voter="ben", name="Ben", reason="well")
    last = replace(first, choice=Choice.REJECT, reason="stop", at="2026-08-01T13:00:00Z")
    shown_at = json.dumps(modals.review(replace(view, votes=(first, other, last))), ensure_ascii=False)
    assert "rejected: `Ann`" in shown_at
    assert "approved: `Ben`" in shown_at
    assert "approved: `Ann`" not in shown_at
    assert "`go`" not in shown_at


@pytest.mark.parametrize("text", ["a&b" * 20, "<" * 30, "ab⟨" * 12, "&amp;⟨" * 8, "\u200b" * 12, "x" * 90])
def test_a_long_text_is_cut_between_what_is_shown_of_its_characters(text: str) -> None:
    for limit in range(14, 80):
        parts = pieces(code(text), limit)
        assert all(len(part) <= limit for part in parts)
        bodies = [part[1:-1] for part in parts]
        assert "".join(map(original, bodies)) == text, limit
        assert all(html.escape(html.unescape(body), quote=False) == body for body in bodies), limit
        assert all(body.count("⟨") == body.count("⟩") for body in bodies), limit


@pytest.mark.req("Q-20")
def test_sensitive_values_stay_out_of_the_channel(view: CardView, check_blocks: Any) -> None:
    content = replace(view.content, sensitive=("assigned_to", "work_notes"))
    card = render(replace(view, content=content))
    check_blocks(card.blocks, False)
    assert "`ann`" not in words_of(card.blocks)
    assert "raised by triage" not in json.dumps(card.blocks)
    assert buttons_of(card.blocks) == ["counterseal.review", "counterseal.reject"]
    modal = modals.review(replace(view, content=content))
    assert "`ann`" in words_of(modal["blocks"])
    assert modal["submit"]["text"] == "Send"


def test_what_does_not_fit_is_not_shown_in_part(view: CardView, check_blocks: Any) -> None:
    changes = tuple(Change(f"field_{index}", "x" * 900, "y" * 900) for index in range(40))
    big = replace(view, content=replace(view.content, changes=changes))
    card = render(big)
    check_blocks(card.blocks, False)
    assert not card.complete
    assert buttons_of(card.blocks) == ["counterseal.review", "counterseal.reject"]
    assert "*41 fields*, too long for a card" in words_of(card.blocks)
    assert "xxx" not in words_of(card.blocks)
    seen = ""
    for page in range(100):
        modal = modals.review(big, page)
        check_blocks(modal["blocks"], True)
        assert len(json.dumps(modal)) < 250_000
        assert len(modal["private_metadata"]) <= 3000
        seen += words_of(modal["blocks"])
        if modal["submit"]["text"] == "Send":
            break
        assert not any(block["type"] == "input" for block in modal["blocks"])
    for change in changes:
        assert f"`{change.field}`" in seen
    assert seen.count("x" * 900) == seen.count("y" * 900) == 40
    assert any(block["type"] == "input" for block in modal["blocks"])


def test_review_of_a_decided_approval_takes_no_decision(view: CardView) -> None:
    modal = modals.review(replace(view, state=CardState.APPLIED, detail="done"))
    assert "submit" not in modal
    assert not any(block["type"] == "input" for block in modal["blocks"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=300) | st.sampled_from(NASTY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=6,
)
hostile = (
    st.sampled_from(NASTY) | st.text(max_size=200) | st.text(min_size=3000, max_size=3500, alphabet="ab`\u202e\n&")
)


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=60)
@given(
    title=hostile,
    target=hostile,
    because=hostile,
    field=hostile,
    before=json_values,
    after=json_values | hostile,
    detail=hostile,
    state=st.sampled_from(CardState),
    kind=st.sampled_from(ApprovalKind),
)
def test_hostile_content_is_within_limits_and_forges_nothing(
    view: CardView, check_blocks: Any, title: str, target: str, because: str, field: str, before: Any, after: Any,
    detail: str, state: CardState, kind: ApprovalKind,
) -> None:  # fmt: skip
    content = replace(
        view.content,
        question="",
        title=title,
        target=target,
        rules=(RuleReason("r", because),),
        changes=(Change(field, before, after),),
        inputs=(InputField(field, after),),
    )
    drawn = replace(view, content=content, state=state, kind=kind, detail=detail)
    card = render(drawn)
    plain = render(replace(drawn, content=view.content, detail=""))
    check_blocks(card.blocks, False)
    ours = unquoted(words_of(card.blocks)) + unquoted(card.text)
    links = r"<!date\^\d+\^\{date_short_pretty\} \{time\}\|[-0-9: ]+UTC>"
    assert "<" not in re.sub(links, "", ours)
    assert lines_of(card.blocks) <= OPEN_LINES_MAX
    whole = re.sub("\u2068([^\u2066-\u2069]*)\u2069", r"\1", json.dumps(card.blocks, ensure_ascii=False))
    assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]", whole)
    assert len(buttons_of(card.blocks)) <= len(buttons_of(plain.blocks)) or not card.complete
    assert card.complete or "counterseal.approve" not in buttons_of(card.blocks)
    page = modals.review(drawn)
    check_blocks(page["blocks"], True)
    unquoted(words_of(page["blocks"]))


@settings(deadline=None)
@given(st.text(max_size=200) | st.sampled_from(NASTY))
def test_what_is_shown_can_be_read_back(text: str) -> None:
    assert original(escaped(text)) == text
    assert "`" not in escaped(text)
    assert "\n" not in escaped(text)


def test_invisible_characters_become_visible() -> None:
    assert visible("pay\u202eevil") == "pay⟨U+202E⟩evil"
    assert visible("a\u200bb") == "a⟨U+200B⟩b"
    assert visible("naïve Grüße 東京") == "naïve Grüße 東京"
    assert code("") == "_empty_"


def test_largest_echo_passes_the_guard(view: CardView) -> None:
    """Slack sends the modal back with a click; a card or page that we draw must never make its own clicks too large."""
    content = replace(view.content, changes=(Change("f", "", "東\U0001f600" * 40_000),))
    modal = modals.review(replace(view, content=content))
    state = {"reason": {"reason": {"type": "plain_text_input", "value": "\U0001f600" * 2000}}}
    payload = {"type": "view_submission", "view": {**modal, "state": {"values": state}}, "user": {"id": "U" * 60}}
    assert len("payload=" + quote_plus(json.dumps(payload))) < BODY_BYTES_MAX - 8_000


def test_card_content_round_trip(content: CardContent) -> None:
    nested = replace(content, inputs=(InputField("x", {"a": [1, 2.5, None, True]}),), sensitive=("x",))
    assert CardContent.from_json(json.loads(json.dumps(nested.to_json()))) == nested


@pytest.mark.parametrize(
    ("edit", "where"),
    [
        ({"title": 5}, "card.title"),
        ({"risk": "extreme"}, "card.risk"),
        ({"reversible": 1}, "card.reversible"),
        ({"workflow_version": True}, "card.workflow_version"),
        ({"changes": [{"field": "x"}]}, "card.changes[0].before"),
        ({"rules": {}}, "card.rules"),
        ({"colour": "red"}, "card.colour"),
    ],
)
def test_card_content_names_what_is_wrong(content: CardContent, edit: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as caught:
        CardContent.from_json({**content.to_json(), **edit})
    assert caught.value.where == where


def test_card_content_names_what_is_missing(content: CardContent) -> None:
    value = content.to_json()
    del value["target"]
    with pytest.raises(InputError, match=r"card\.target: is missing"):
        CardContent.from_json(value)


def test_a_reason_is_not_said_twice(view: CardView) -> None:
    at = "2026-01-01T10:00:00+00:00"
    vote = Vote("bob", "Bob", Choice.REJECT, "Not now.", frozenset(), VoteChannel.SLACK, at, "d" * 64)
    rejected = replace(view, state=CardState.REJECTED, votes=(vote,), detail="Not now.")
    assert str(render(rejected).blocks).count("Not now.") == 1
    window = words_of(modals.review(replace(rejected, detail="Too late."))["blocks"])
    assert window.count("*Outcome* `Too late.`") == 1


@pytest.mark.req("P-14")
@pytest.mark.parametrize("nasty", NASTY)
def test_what_an_agent_and_its_sources_say_is_quoted_and_never_ours(
    view: CardView, check_blocks: Any, nasty: str
) -> None:
    asked = Agent(nasty, nasty, 3, nasty, (nasty, nasty), nasty)
    sources = (Source(nasty, "was given by a person"), Source(nasty, "was returned by", nasty, False, nasty))
    content = replace(view.content, agent=asked, sources=sources, asker=nasty, question=nasty)
    card, window = render(replace(view, content=content)), modals.review(replace(view, content=content))
    check_blocks(card.blocks, False)
    assert "counterseal.approve" not in buttons_of(card.blocks), "what comes from outside is not approved from a card"
    for drawn in (card.blocks, window["blocks"]):
        words = unquoted(words_of(drawn))
        assert not any(found in words for found in ("evil", "Approved by", "Ann"))
    assert "which nobody has checked" in words, "the model's reason is marked as the model's"
    assert "*Nobody of yours chose this value" in words
    assert words.index("Nobody of yours") < words.index("was given by a person"), "it comes first"
    assert CardContent.from_json(content.to_json()) == content


@pytest.mark.req("P-14")
def test_a_secret_value_that_nobody_chose_is_hidden_with_its_field(view: CardView) -> None:
    source = Source("state", "was returned by", "x.get", False, "hunter2")
    content = replace(view.content, sources=(source,), sensitive=("state",))
    assert "hunter2" not in json.dumps(render(replace(view, content=content)).blocks)
