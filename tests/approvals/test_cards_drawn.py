"""Cards, modals and tasks as they are drawn, whole: every line, its order, the buttons, and what they carry."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from approvals.content import CardContent, Source
from approvals.model import TaskState, TaskView
from approvals.slack import modals, tasks
from approvals.slack.blocks import echo_bytes, link_line, pages, section
from approvals.slack.cards import render
from approvals.slack.forms import cut, input_blocks
from approvals.slack.sources import source_lines
from tests.support.card_scenes import scenes, windows
from tests.support.golden import matches_golden


@pytest.mark.golden
@pytest.mark.req("Q-20")
def test_cards_and_tasks_are_drawn_like_the_golden_file(task: TaskView) -> None:
    found: dict[str, Any] = {}
    each = {(one.kind, one.state): name for name, one in reversed(scenes().items())}
    for name in sorted({*each.values(), "pending-agent", "pending-secret"}):
        drawn = render(scenes()[name])
        found[f"card: {name}"] = {"text": drawn.text, "complete": drawn.complete, "blocks": drawn.blocks}
    found |= {name: window for name, window in windows().items() if name not in ("window-again", "window-fail")}
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


def test_content_is_whole_over_json() -> None:
    for one in scenes().values():
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
