"""Cards, modals and tasks as they are drawn, whole: every line, its order, the buttons, and what they carry."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from approvals.content import Agent, CardContent, CardState, InputField, ShapedBy, Source
from approvals.model import ApprovalKind, CardView, Choice, GroupProgress, TaskState, TaskView, Vote, VoteChannel
from approvals.slack import modals, tasks
from approvals.slack.blocks import echo_bytes, pages, section
from approvals.slack.cards import link_line, render
from approvals.slack.forms import cut, input_blocks
from approvals.slack.sources import source_lines
from core.action import Change, Risk
from core.terms import GroupQuorum, GroupSource
from tests.support.golden import matches_golden


def vote(person: str, choice: Choice, reason: str, at: str) -> Vote:
    groups = frozenset({"group:leads"})
    return Vote(person.lower(), person, choice, reason, groups, VoteChannel.SLACK, at, "d1")


VOTES = (
    vote("Ann", Choice.REJECT, "not now", "2026-08-01T12:00:00+00:00"),
    vote("Bob", Choice.APPROVE, "", "2026-08-01T14:00:00+02:00"),
    vote("Ann", Choice.APPROVE, "now it may", "2026-08-01T12:30:00"),
    vote("Cat", Choice.APPROVE, "fine", "yesterday"),
)
PROGRESS = (
    GroupProgress(GroupQuorum("leads", 3), ("Bob", "Ann")),
    GroupProgress(GroupQuorum("S0OPS", 1, GroupSource.SLACK_GROUP), ()),
)


def views(view: CardView) -> dict[str, CardView]:
    """Cards that differ in everything that a card may show."""
    plain = view.content
    said = replace(
        plain,
        risk=Risk.HIGH,
        reversible=False,
        reverse="",
        tier="high",
        system="https://acme.service-now.com as svc",
        evidence="sys_mod_count is still 4",
        changes=(Change("state", {"b": [1.5, None], "a": True}, ""), Change("note", "x\ny", "é <&> `*` \u200b")),
        inputs=(InputField("token", "hunter2"), InputField("many", ["x" * 150, "y" * 150])),
        sensitive=("token",),
        shaped_by=(ShapedBy("Rita", "requested this", "may decide"), ShapedBy("U0X", "edited this")),
        sources=(
            Source("state", "was chosen by", "Rita"),
            Source("note", "comes from the result of", "crm.customer.get", ours=False, value="ignore that"),
            Source("many", "comes from a signal", ours=False),
        ),
        agent=Agent("triage", "gpt-x", 3, "Rita", ("crm.customer.get", "x.y.z"), "it is urgent"),
    )
    bare = replace(
        plain, rules=(), changes=(), inputs=(), policy_name="", reference="", expires_at=None, summary=plain.title
    )
    long = replace(said, sensitive=(), title="T" * 301, inputs=tuple(InputField(f"f{n}", "v" * 200) for n in range(60)))
    asked = replace(
        view, content=said, progress=PROGRESS, votes=VOTES, two_person=True, link="https://us.example/a?b=1&c=2"
    )
    doubt = replace(asked, kind=ApprovalKind.IN_DOUBT, content=replace(said, sensitive=()))
    over = replace(asked, content=plain, state=CardState.APPLIED, detail="INC0010023@5", late="It was done twice.")
    return {
        "asks": view,
        "asks for much": replace(asked, content=replace(said, sensitive=())),
        "masked": asked,
        "masked inputs": replace(
            view, content=replace(plain, changes=(), inputs=(InputField("token", "hunter2"),), sensitive=("token",))
        ),
        "masked changes": replace(view, content=replace(plain, inputs=(), sensitive=("priority", "gone"))),
        "bare": replace(view, content=replace(bare, reverse="")),
        "gate": replace(view, kind=ApprovalKind.GATE, content=bare, paused="the tenant is paused."),
        "in doubt": doubt,
        "too long": replace(asked, content=long, detail="d" * 301, late="l", paused="p"),
        "too long and over": replace(asked, content=replace(long, reversible=True), state=CardState.EXPIRED),
        "over": over,
        "over by a reason": replace(over, state=CardState.REJECTED, detail="fine"),
        "over by a replaced reason": replace(over, state=CardState.FAILED, detail="not now", late="", paused="stop"),
        **{str(state): replace(view, state=state) for state in CardState},
    }


@pytest.mark.golden
@pytest.mark.req("Q-20")
def test_cards_and_tasks_are_drawn_like_the_golden_file(view: CardView, task: TaskView) -> None:
    found: dict[str, Any] = {}
    for name, one in views(view).items():
        drawn = render(one)
        found[f"card: {name}"] = {"text": drawn.text, "complete": drawn.complete, "blocks": drawn.blocks}
    for name in ("asks for much", "in doubt", "over"):
        found[f"review: {name}"] = modals.review(views(view)[name])
    for choice in Choice:
        found[f"reason: {choice}"] = modals.reason(view.approval_id, view.nonce, choice)
    found["answer"] = modals.answer("Ask <@U1> & `Ann`.")
    asked: Any = task.form["properties"]
    properties: dict[str, Any] = {
        **asked,
        "limited": {"type": "string", "minLength": 2, "maxLength": 9, "x-multiline": True, "default": "a\nb"},
        "mail": {"type": "string", "format": "email", "default": "a@b.example"},
        "page": {"type": "string", "format": "uri"},
        "on": {"type": "string", "format": "date", "default": "2026-08-01"},
        "count": {"type": "integer", "minimum": -5, "maximum": 10**15, "default": 7},
        "some": {
            "type": "array", "maxItems": 2, "default": ["b", "c"],
            "items": {"type": "string", "enum": ["a", "b", "c", "`" * 75]},
        },
        "one": {"type": "string", "enum": ["x", "y"], "default": "y"},
        "yes": {"type": "boolean", "default": False},
    }  # fmt: skip
    full = replace(task, form={**task.form, "description": "line\u200b\nother", "properties": properties})
    for state in TaskState:
        shown = replace(full, state=state, completed_by="Ann" if state is TaskState.COMPLETED else "")
        message = tasks.render(shown)
        found[f"task: {state}"] = [message.text, message.complete, message.blocks, tasks.closed_sentence(shown)]
    found["form"] = tasks.form_modal(full)
    found["long task"] = tasks.render(replace(full, description="d" * 12000, due_at="", reference="")).blocks
    matches_golden("cards", found)


@pytest.mark.parametrize(("count", "each"), [(90, [90]), (91, [90, 1]), (181, [90, 90, 1])])
def test_a_page_of_a_modal_holds_ninety_blocks(count: int, each: list[int]) -> None:
    assert [len(page) for page in pages([section("x")] * count)] == each


@pytest.mark.parametrize(("extra", "shown"), [(0, True), (1, False)])
def test_a_link_has_its_longest_length_and_no_more(extra: int, shown: bool) -> None:
    assert bool(link_line("https://us.example/".ljust(2000 + extra, "x"))) is shown


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [("abcd", 4, "abcd"), ("abcde", 4, "abc…"), ("ab\u200bcd", 9, "ab…"), ("ab\u200bcd", 12, "ab⟨U+200B⟩cd")],
)
def test_words_are_cut_where_it_shows_and_never_in_an_escape(text: str, limit: int, kept: str) -> None:
    assert cut(text, limit) == kept


def test_content_is_whole_over_json(content: CardContent) -> None:
    said = views(CardView(uuid4(), "n", ApprovalKind.ACTION, content, CardState.PENDING))
    for one in said.values():
        assert CardContent.from_json(one.content.to_json()) == one.content


@pytest.mark.parametrize("less", [0, 1])
@pytest.mark.parametrize("limit", ["MODAL_BLOCKS_MAX", "ECHO_BYTES_MAX"])
def test_a_form_is_shown_below_the_whole_task_if_both_fit(
    monkeypatch: pytest.MonkeyPatch, task: TaskView, limit: str, less: int
) -> None:
    task = replace(task, description="d" * 500)
    whole = tasks.form_modal(task)["blocks"]
    head, form = len(whole) - len(input_blocks(task.form)), input_blocks(task.form)
    size = {"MODAL_BLOCKS_MAX": len(whole), "ECHO_BYTES_MAX": echo_bytes(whole[:head]) + echo_bytes(form)}[limit]
    monkeypatch.setattr(tasks, limit, size - less)
    drawn = tasks.form_modal(task)["blocks"]
    assert (drawn == whole) is (less == 0)
    assert drawn[-len(form) :] == form
    if less:
        assert "This task is too long to be shown here" in drawn[0]["text"]["text"]


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("ours", [True, False])
def test_the_source_of_a_long_value_is_on_lines_of_its_own(content: CardContent, extra: int, ours: bool) -> None:
    room = 400 - len("• `` comes from `crm`")
    name = "f" * (room + extra)
    source = Source(name, "comes from", "crm", ours=ours, value="" if ours else "they said")
    [lines] = source_lines(replace(content, sources=(source,)))
    told = [f"• `{name}` comes from `crm`"] if not extra else ["• comes from", f"`{name}`", "→", "`crm`"]
    assert lines == told if ours else lines == ["• *Nobody of yours chose this value:* `they said`", *told]


@pytest.mark.parametrize(
    ("length", "shown"), [(300, "*Outcome* `{}`"), (301, "*Outcome* is in *Review*")], ids=["short", "long"]
)
def test_a_short_fact_of_a_long_card_is_shown_up_to_its_length(view: CardView, length: int, shown: str) -> None:
    detail = "d" * length
    long = replace(views(view)["too long"], detail=detail)
    assert shown.format(detail) in str(render(long).blocks)
