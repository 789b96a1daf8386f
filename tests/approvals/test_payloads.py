"""Slack's payloads, parsed whole, with each fault by its place; values as they are masked, and text as it is shown."""

from __future__ import annotations

import copy
import json
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.content import MASK, CardContent, InputField, Source
from approvals.model import Choice
from approvals.slack.blocks import code, escaped, literal
from approvals.slack.members import Clicker
from approvals.slack.payloads import (
    Click,
    Submission,
    TaskClick,
    TaskSubmission,
    parse_click,
    parse_submission,
    parse_task_click,
    parse_task_submission,
)
from core.action import Change
from core.errors import InputError
from core.legible import visible

ID = UUID(int=7)
WHO = Clicker("T1", "U1", frozenset({"T1"}), frozenset())
FROM = {"user": {"id": "U1", "team_id": "T1"}, "team": {"id": "T1"}}
CLICK: dict[str, Any] = {
    **FROM,
    "container": {"channel_id": "C1"},
    "trigger_id": "1.2",
    "actions": [{"action_id": "counterseal.approve", "value": json.dumps({"a": str(ID), "n": "nonce"})}],
}
TASK: dict[str, Any] = {
    **CLICK,
    "actions": [{"action_id": "counterseal.task_open", "value": json.dumps({"t": str(ID)})}],
}
REASON: dict[str, Any] = {
    **FROM,
    "view": {
        "callback_id": "counterseal.reason",
        "private_metadata": json.dumps({"a": str(ID), "n": "nonce", "c": "reject"}),
        "state": {"values": {"reason": {"reason": {"value": " It is not. "}}}},
    },
}
CHOSEN = {"choice": {"choice": {"selected_option": {"value": "approve"}}}, "reason": {"reason": {"value": None}}}
LAST = json.dumps({"a": str(ID), "n": "nonce", "p": 2, "l": True})
REVIEW: dict[str, Any] = {
    **FROM,
    "view": {"callback_id": "counterseal.review", "private_metadata": LAST, "state": {"values": CHOSEN}},
}
FORM: dict[str, Any] = {
    **FROM,
    "view": {
        "callback_id": "counterseal.task",
        "private_metadata": json.dumps({"t": str(ID)}),
        "state": {"values": {"name": {"name": {"value": "x"}}}},
    },
}


def at(body: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """The body with another value at this place; ``KeyError`` as a value removes the member."""
    changed = copy.deepcopy(body)
    *path, last = (int(part) if part.isdigit() else part for part in place.split("."))
    inner: Any = changed
    for part in path:
        inner = inner[part]
    if value is KeyError:
        del inner[last]
    else:
        inner[last] = value
    return changed


def metadata(body: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The body whose modal carries other members."""
    told = json.loads(body["view"]["private_metadata"]) | more
    return at(body, "view.private_metadata", json.dumps({name: item for name, item in told.items() if item != ""}))


ACTION = "actions.0.action_id"
PARSED: list[tuple[Any, dict[str, Any], Any]] = [
    (parse_click, CLICK, Click(Choice.APPROVE, ID, "nonce", WHO, "C1", "1.2")),
    *(
        (parse_click, at(CLICK, ACTION, f"counterseal.{name}"), Click(choice, ID, "nonce", WHO, "C1", "1.2"))
        for name, choice in [(str(choice), choice) for choice in Choice] + [("review", None)]
    ),
    (parse_click, at(CLICK, "container", KeyError), Click(Choice.APPROVE, ID, "nonce", WHO, "", "1.2")),
    (parse_click, at(CLICK, "container.channel_id", None), Click(Choice.APPROVE, ID, "nonce", WHO, "", "1.2")),
    (parse_task_click, TASK, TaskClick(ID, WHO, "C1", "1.2")),
    (parse_submission, REASON, Submission(ID, "nonce", WHO, Choice.REJECT, "It is not.", 0)),
    (parse_submission, REVIEW, Submission(ID, "nonce", WHO, Choice.APPROVE, "", 2)),
    (parse_submission, metadata(REVIEW, l=False), Submission(ID, "nonce", WHO, None, "", 2)),
    (parse_submission, metadata(REVIEW, p=9999), Submission(ID, "nonce", WHO, Choice.APPROVE, "", 9999)),
    (parse_submission, at(metadata(REVIEW, l=1), "view.state", KeyError), Submission(ID, "nonce", WHO, None, "", 2)),
    (parse_task_submission, FORM, TaskSubmission(ID, WHO, {"name": {"name": {"value": "x"}}})),
    (parse_task_submission, at(FORM, "view.state", KeyError), TaskSubmission(ID, WHO, {})),
]


@pytest.mark.parametrize(("parse", "body", "wanted"), PARSED)
def test_a_payload_is_parsed_whole(parse: Any, body: dict[str, Any], wanted: Any) -> None:
    assert parse(body) == wanted


def of(*teams: str, own: str = "T1", enterprises: tuple[str, ...] = ()) -> Clicker:
    return Clicker(own, "U1", frozenset(teams), frozenset(enterprises))


CLICKERS: list[tuple[dict[str, Any], Clicker]] = [
    ({"user": {"id": "U1", "team_id": "T1"}, "team": {"id": "T2"}}, of("T1", "T2")),
    ({"user": {"id": "U1"}, "team": {"id": "T2"}}, of("T2", own="T2")),
    ({"user": {"id": "U1", "team_id": "T1"}, "team": None}, of("T1")),
    ({"user": {"id": "U1", "team_id": "T1"}, "team": None, "enterprise": {"id": "E1"}}, of("T1", enterprises=("E1",))),
    (
        {"user": {"id": "U1"}, "team": {"id": "T1", "enterprise_id": "E2"}, "enterprise": {"id": "E1"}},
        of("T1", enterprises=("E1", "E2")),
    ),
]


@pytest.mark.parametrize(("told", "who"), CLICKERS)
def test_a_clicker_is_of_all_that_the_payload_names(told: dict[str, Any], who: Clicker) -> None:
    assert parse_click({**CLICK, **told}).clicker == who


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (parse_click, at(CLICK, "actions", []), "actions: is not a list of exactly one action"),
    (parse_click, at(CLICK, "actions", CLICK["actions"] * 2), "actions: is not a list of exactly one action"),
    (parse_click, at(CLICK, "actions", ["x"]), "actions: is not a list of exactly one action"),
    (parse_click, at(CLICK, ACTION, "counterseal.task_open"), "actions[0].action_id: is none of our buttons"),
    (parse_click, at(CLICK, ACTION, 7), "actions[0].action_id: is not a text"),
    (parse_click, at(CLICK, "actions.0.value", "{}"), "actions[0].value.a: is not a text"),
    (
        parse_click,
        at(CLICK, "actions.0.value", '{"a": "x"}'),
        "actions[0].value.a: is not the id of a question or task",
    ),
    (parse_click, at(CLICK, "actions.0.value", json.dumps({"a": str(ID)})), "actions[0].value.n: is not a text"),
    (
        parse_click,
        at(CLICK, "actions.0.value", json.dumps({"a": str(ID), "n": ""})),
        "actions[0].value.n: is not an id",
    ),
    (parse_click, at(CLICK, "trigger_id", KeyError), "trigger_id: is not a text"),
    (parse_click, at(CLICK, "container", []), "container: is not an object"),
    (parse_click, at(CLICK, "container.channel_id", "x" * 65), "container.channel_id: is not an id"),
    (parse_click, at(CLICK, "user", KeyError), "user: is not an object"),
    (parse_click, at(CLICK, "user.id", "é"), "user.id: is not an id"),
    (parse_click, at(CLICK, "user.team_id", "T\n"), "user.team_id: is not an id"),
    (parse_click, at(CLICK, "team", {}), ""),
    (parse_click, at(at(CLICK, "team", {}), "user.team_id", None), "team.id: is not a text"),
    (parse_click, {**CLICK, "enterprise": {"id": 7}}, "enterprise.id: is not a text"),
    (parse_task_click, CLICK, "actions[0].action_id: is not the button of a task"),
    (parse_submission, FORM, "view.callback_id: is none of our modals"),
    (parse_submission, at(REASON, "view.callback_id", KeyError), "view.callback_id: is not a text"),
    (parse_submission, metadata(REASON, c="maybe"), "view.private_metadata.c: is none of our choices"),
    (parse_submission, metadata(REASON, p=-1), "view.private_metadata.p: is no page number"),
    (parse_submission, metadata(REASON, p=10_000), "view.private_metadata.p: is no page number"),
    (parse_submission, metadata(REASON, p=True), "view.private_metadata.p: is no page number"),
    (parse_submission, metadata(REASON, n="x" * 65), "view.private_metadata.n: is not an id"),
    (parse_submission, at(REASON, "view.state", []), "view.state: is not an object"),
    (
        parse_submission,
        at(REASON, "view.state.values.reason.reason.value", 7),
        "view.state.values.reason.value: is not a text",
    ),
    (
        parse_submission,
        at(REVIEW, "view.state.values.choice.choice.selected_option", None),
        "view.state.values.choice.selected_option: is not an object",
    ),
    (
        parse_submission,
        at(REVIEW, "view.state.values.choice.choice.selected_option.value", "x"),
        "view.state.values.choice.value: is none of our choices",
    ),
    (parse_task_submission, REASON, "view.callback_id: is not the form of a task"),
    (parse_task_submission, metadata(FORM, t="x"), "view.private_metadata.t: is not the id of a question or task"),
]


@pytest.mark.parametrize(("parse", "body", "words"), WRONG)
def test_what_is_wrong_in_a_payload_is_named(parse: Any, body: dict[str, Any], words: str) -> None:
    if not words:
        parse(body)
        return
    with pytest.raises(InputError) as refused:
        parse(body)
    assert str(refused.value) == words


def test_the_values_of_hidden_fields_are_masked_wherever_they_stand(content: CardContent) -> None:
    changes, inputs = (Change("a", 1, 2), Change("b", 3, 4)), (InputField("c", 5), InputField("d", 6))
    sources = (
        Source("a", "w", "o", ours=False, value="x"),
        Source("a", "w", "o", value="mine"),
        Source("a", "w", ours=False),
        Source("b", "w", "o", ours=False, value="y"),
        Source("c", "w", value="z"),
    )
    masked = replace(content, changes=changes, inputs=inputs, sources=sources, sensitive=("a", "c")).masked()
    assert masked.changes == (Change("a", MASK, MASK), Change("b", 3, 4))
    assert masked.inputs == (InputField("c", MASK), InputField("d", 6))
    assert masked.sources == (
        Source("a", "w", "o", ours=False, value=MASK),
        Source("a", "w", "o", value=MASK),
        Source("a", "w", ours=False),
        Source("b", "w", "o", ours=False, value="y"),
        Source("c", "w", value=MASK),
    )
    bare = replace(content, changes=changes, inputs=inputs, sources=sources, sensitive=())
    assert bare.masked() == bare


HIDDEN = "\u00a0\u2003\u3000\u1680\u202e\u200b\ufeff\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe0f\u180b\u2028"
HIDDEN += "\u2029`⟨\x00\n\t\x7f\x85\ue000\U000e0001\U000e0fff\u20dd"
PLAIN = "aZ09 é漢😀\u0301⟩&<>*_~|:@#!"


@pytest.mark.parametrize("character", HIDDEN)
def test_a_character_that_cannot_be_seen_is_shown_as_its_code(character: str) -> None:
    assert visible(f"a{character}b") == f"a⟨U+{ord(character):04X}⟩b"


@pytest.mark.parametrize("character", PLAIN)
def test_a_character_that_can_be_seen_stays(character: str) -> None:
    assert visible(f"a{character}b") == f"a{character}b"


def test_edges_marks_and_escapes_are_shown() -> None:
    assert visible(" a b ") == "⟨U+0020⟩a b⟨U+0020⟩"
    assert visible(" a b ", edges=False) == " a b "
    assert visible("a" + "\u0301" * 4 + "b\u0301") == "a" + "\u0301" * 3 + "⟨U+0301⟩b\u0301"
    assert escaped("a&b<c>d`") == "a&amp;b&lt;c&gt;d⟨U+0060⟩"
    assert (code(""), code("<")) == ("_empty_", "`&lt;`")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, ("", "_not set_")),
        ("", ("", "_empty text_")),
        ("x", ("x", "")),
        (True, ("true", "_(yes/no)_")),
        (False, ("false", "_(yes/no)_")),
        (0, ("0", "_(number)_")),
        (1.5, ("1.5", "_(number)_")),
        ({"b": 1, "a": "é"}, ('{"a": "é", "b": 1}', "_(JSON)_")),
        (["x" * 196], (f'["{"x" * 196}"]', "_(JSON)_")),
        (["x" * 197], (f'[\n "{"x" * 197}"\n]', "_(JSON)_")),
    ],
)
def test_a_value_is_told_with_its_kind(value: Any, told: tuple[str, str]) -> None:
    assert literal(value) == told
