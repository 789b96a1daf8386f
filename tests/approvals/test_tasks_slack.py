"""Human tasks in Slack: the message, the modal out of a JSON Schema, and what people entered back out of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient

from approvals.fields import FieldKind, weight_of
from approvals.forms import FormProblem, check_form, check_value, fields_of
from approvals.model import TaskAnswer, TaskState, TaskView
from approvals.ports import Absent, MessageRef, Posted, PostInDoubt
from approvals.slack.blocks import ECHO_BYTES_MAX, echo_bytes
from approvals.slack.forms import cut, errors_of, input_blocks, values_of
from approvals.slack.guard import BODY_BYTES_MAX, SlackEndpoint
from approvals.slack.handlers import Answer, TaskService, build_bolt
from approvals.slack.messenger import SlackMessenger
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
from approvals.slack.tasks import button_value, form_modal, render
from core.canonical import INTEGER_MAX, JsonObject, canonical_bytes
from core.errors import InputError
from core.legible import visible

pytestmark = pytest.mark.req("X-9")

KEY = "8f742231b10e8888abcd99yyyzzz85a5"
CLOCK = 1_700_000_000
NASTY_WORDS = [
    "`*_~<!channel> <@U1> <https://evil|ok> &amp;",
    "a\u202eb\u200bc",
    "\n\n*Completed by* `Ann`\n",
    "Z\u0300\u0301\u0302\u0303\u0304",
    "⟨U+0041⟩ " + "`" * 60,
]


def words_in(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(block["text"]["text"] for block in blocks if block["type"] == "section")


def outside_monospace(words: str) -> str:
    assert all(line.count("`") % 2 == 0 for line in words.split("\n"))
    return re.sub(r"`[^`\n]*`", "", words)


def inputs_in(blocks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {block["block_id"]: block for block in blocks if block["type"] == "input"}


def entered(blocks: list[dict[str, Any]], value: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Build ``view.state.values`` as Slack sends it when a person fills in the value: empty inputs are null."""
    state = {}
    for name, block in inputs_in(blocks).items():
        element = block["element"]
        state[name] = {element["action_id"]: _entered(element, value.get(name), options.get(name, ()))}
        assert block["optional"] or name in value, "Slack sends no form with a required input left empty"
    return json.loads(json.dumps(state))


def _entered(element: dict[str, Any], value: Any, options: Any) -> dict[str, Any]:
    kind = element["type"]
    match kind:
        case "plain_text_input" | "email_text_input" | "url_text_input":
            return {"type": kind, "value": value}
        case "number_input":
            digits = None if value is None else format(value, "d") if isinstance(value, int) else f"{value:.6f}"
            return {"type": kind, "value": digits}
        case "datepicker":
            return {"type": kind, "selected_date": value}
        case "radio_buttons":
            picked = None if value is None else element["options"][0 if value else 1]
            return {"type": kind, "selected_option": picked}
        case "static_select":
            picked = None if value is None else element["options"][options.index(value)]
            return {"type": kind, "selected_option": picked}
        case "multi_static_select":
            picks = [element["options"][options.index(item)] for item in value or ()]
            return {"type": kind, "selected_options": picks}
    raise AssertionError(f"nobody can fill in a {kind}")


def options_in(form: Mapping[str, Any]) -> dict[str, Any]:
    return {item.name: item.options for item in fields_of(form)}


# -- the modal


def test_every_field_has_its_input(task: TaskView, check_blocks: Any) -> None:
    modal = form_modal(task)
    check_blocks(modal["blocks"], True)
    drawn = inputs_in(modal["blocks"])
    assert {name: block["element"]["type"] for name, block in drawn.items()} == {
        "owner": "plain_text_input",
        "share": "number_input",
        "checked_on": "datepicker",
        "risk": "static_select",
        "documents": "multi_static_select",
        "sanctioned": "radio_buttons",
    }
    assert [name for name, block in drawn.items() if not block["optional"]] == ["owner", "risk"]
    assert drawn["owner"]["label"]["text"] == "Name of the owner"
    assert drawn["checked_on"]["label"]["text"] == "checked_on"
    assert drawn["risk"]["hint"]["text"] == "As the handbook says."
    assert drawn["owner"]["element"]["max_length"] == 80
    assert drawn["share"]["element"]["min_value"] == "0"
    assert drawn["share"]["element"]["max_value"] == "100"
    assert [option["text"]["text"] for option in drawn["risk"]["element"]["options"]] == ["low", "high"]
    assert modal["title"]["text"] == "Confirm the beneficial …"[:24]
    assert "*Task* `Confirm the beneficial owner`" in words_in(modal["blocks"])
    assert json.loads(modal["private_metadata"]) == {"t": str(task.task_id), "d": task.digest}
    assert modal["submit"]["text"] == "Send"


def test_defaults_are_filled_in(task: TaskView, check_blocks: Any) -> None:
    form: Any = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "x-multiline": True, "default": "a\nb", "minLength": 2},
            "none": {"type": "string", "default": ""},
            "mail": {"type": "string", "format": "email", "default": "a@b.example"},
            "page": {"type": "string", "format": "uri", "default": "https://b.example"},
            "day": {"type": "string", "format": "date", "default": "2026-01-02"},
            "some": {"type": "integer", "default": 3.0, "minimum": -5},
            "tiny": {"type": "number", "default": 0.5, "maximum": 1e15, "minimum": 1.5e-300},
            "yes": {"type": "boolean", "default": True},
            "no": {"type": "boolean", "default": False},
            "one": {"type": "string", "enum": ["a", "b"], "default": "b"},
            "more": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["b"], "maxItems": 1},
        },
    }
    assert check_form(form) == []
    blocks = form_modal(replace(task, form=form))["blocks"]
    check_blocks(blocks, True)
    element = {name: block["element"] for name, block in inputs_in(blocks).items()}
    assert element["text"]["initial_value"] == "a\nb"
    assert element["text"]["min_length"] == 2
    assert element["text"]["multiline"] is True
    assert "initial_value" not in element["none"]
    assert element["mail"]["initial_value"] == "a@b.example"
    assert element["page"]["initial_value"] == "https://b.example"
    assert element["day"]["initial_date"] == "2026-01-02"
    assert (element["some"]["initial_value"], element["some"]["min_value"]) == ("3", "-5")
    assert (element["tiny"]["initial_value"], element["tiny"]["max_value"]) == ("0.5", "1000000000000000")
    assert "min_value" not in element["tiny"], "a limit of 300 digits is checked by us alone"
    assert element["yes"]["initial_option"]["text"]["text"] == "Yes"
    assert element["no"]["initial_option"]["text"]["text"] == "No"
    assert element["one"]["initial_option"]["text"]["text"] == "b"
    assert [option["text"]["text"] for option in element["more"]["initial_options"]] == ["b"]
    assert element["more"]["max_selected_items"] == 1


def test_what_does_not_fit_an_input_stands_before_it(check_blocks: Any) -> None:
    long = "`" * 74
    form = {
        "type": "object",
        "title": "The form",
        "description": "Line one.\nLine two.",
        "properties": {
            "f": {"type": "string", "enum": [f"{long}1", f"{long}2", "short"], "description": "⟨" * 300},
        },
    }
    assert check_form(form) == []
    blocks = input_blocks(form)
    check_blocks(blocks, True)
    assert words_in(blocks[:2]) == "The form\nLine one.\nLine two."
    assert "hint" not in blocks[-1]
    words = words_in(blocks[2:])
    assert words.count("⟨U+27E8⟩") == 300
    assert words.count("⟨U+0060⟩") == 148
    assert "short" not in words
    texts = [option["text"]["text"] for option in blocks[-1]["element"]["options"]]
    assert texts[0].endswith("⟩…")
    assert texts[2] == "short"


def test_titles_are_cut_where_it_shows() -> None:
    assert cut("x" * 24, 24) == "x" * 24
    assert cut("x" * 25, 24) == "x" * 23 + "…"
    assert cut("x" * 20 + "\u202e" + "yy", 24) == "x" * 20 + "…"
    assert cut("\u202e" * 5, 24) == "⟨U+202E⟩⟨U+202E⟩…"
    for text in ("a`b`c`d", "``", "`abcdefgh", "abcdefgh`", "⟨a⟩⟨b⟩`", "⟩a⟩b`c", "a⟩`"):
        shown = [visible(each, edges=False) for each in text]
        for limit in range(1, len("".join(shown)) + 2):
            whole = ["".join(shown[:many]) for many in range(len(shown) + 1)]
            longest = max((each for each in whole if len(each) < limit), key=len)
            assert cut(text, limit) == (whole[-1] if len(whole[-1]) <= limit else f"{longest}…"), (text, limit)


@pytest.mark.parametrize("character", ["a", "`", '"', "⟨", "東", "\U0001f600", "\u0301", "é", "ㅤ", "\ufe0f", "."])
@pytest.mark.parametrize("options", [0, 1, 40])
def test_largest_form_is_shown_and_its_submission_passes_the_guard(
    task: TaskView, check_blocks: Any, character: str, options: int
) -> None:
    """Bound Slack's echo of what was drawn: ``check_form`` weighs a form by its characters alone."""
    accepted: dict[str, Any] | None = None
    for size in range(1, 75):
        fields: dict[str, Any] = {}
        for number in range(20):
            words = character * size
            fields[f"f{number}"] = {"type": "string", "title": words, "description": words * 4}
            if number < 3 and options:
                fields[f"f{number}"]["enum"] = [f"{n:02}{words[:70]}" for n in range(options)]
                fields[f"f{number}"]["default"] = f"00{words[:70]}"
        form = {"type": "object", "properties": fields}
        if check_form(form):
            break
        accepted = form
    if accepted is None:
        assert character == "ㅤ", "what cannot be seen is no word"
        return
    modal = form_modal(replace(task, form=accepted, description="東" * 400))
    check_blocks(modal["blocks"], True)
    assert echo_bytes(input_blocks(accepted)) <= weight_of(accepted)
    assert echo_bytes(modal["blocks"]) <= ECHO_BYTES_MAX
    assert len(inputs_in(modal["blocks"])) == 20
    state = entered(modal["blocks"], {}, {}) | {"f19": {"f19": {"type": "plain_text_input", "value": "東" * 3000}}}
    payload = {"type": "view_submission", "view": {**modal, "state": {"values": state}}, "user": {"id": "U" * 60}}
    assert len("payload=" + quote_plus(json.dumps(payload))) < BODY_BYTES_MAX - 8_000


@pytest.mark.parametrize("words", ["`" * 10 + "x" * 63, "`" * 3 + "x" * 60, "`" + "é" * 68])
def test_options_that_are_said_twice_are_weighed_twice(words: str) -> None:
    options = [f"{number:02}{words}" for number in range(20)]
    form = {"type": "object", "properties": {"f": {"type": "string", "enum": options, "default": options[0]}}}
    blocks = input_blocks(form)
    assert words_in(blocks).count("*") == 0
    assert words_in(blocks).count("Option") == 20
    assert echo_bytes(blocks) <= weight_of(form)


@pytest.mark.parametrize("title", ["", "   "])
def test_modal_without_words_has_a_title(task: TaskView, title: str) -> None:
    assert form_modal(replace(task, title=title))["title"]["text"] == "Task"


# -- the round trip

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
letters = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
seen = st.characters(categories=["L", "N", "P", "S"], exclude_characters="\u115f\u1160\u2800\u3164\uffa0")
option_lists = st.lists(st.text(seen, min_size=1, max_size=75), min_size=1, max_size=8, unique=True)
numbers = st.integers(-10_000_000, 10_000_000).map(lambda number: number / 64)


@st.composite
def described_fields(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """Fields as of ``filled_fields``, perhaps with a description, and with the value as the default."""
    schema, value = draw(filled_fields())
    words = {"description": draw(st.text(seen, min_size=1, max_size=300)), "default": value}
    for name in draw(st.sets(st.sampled_from(sorted(words)))):
        longer = {**schema, name: words[name]}
        schema = longer if not check_form({"type": "object", "properties": {"f": longer}}) else schema
    return schema, value


@st.composite
def filled_fields(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """A field, and a value that somebody could enter in it."""
    words = draw(st.fixed_dictionaries({}, optional={"title": st.text(seen, min_size=1, max_size=60)}))
    match draw(st.sampled_from(FieldKind)):
        case FieldKind.TEXT:
            text = draw(st.text(letters, min_size=1, max_size=40))
            limits = {"minLength": draw(st.integers(0, len(text))), "maxLength": draw(st.integers(len(text), 3000))}
            return {"type": "string", "x-multiline": draw(st.booleans()), **limits, **words}, text
        case FieldKind.DATE:
            return {"type": "string", "format": "date", **words}, draw(st.dates()).isoformat()
        case FieldKind.EMAIL:
            name, host = draw(names), draw(st.from_regex(r"[a-z]{1,9}\.example", fullmatch=True))
            return {"type": "string", "format": "email", **words}, f"{name}@{host}"
        case FieldKind.URI:
            return {"type": "string", "format": "uri", **words}, f"https://a.example/{draw(names)}?q=1#x"
        case FieldKind.CHOICE:
            options = draw(option_lists)
            return {"type": "string", "enum": options, **words}, draw(st.sampled_from(options))
        case FieldKind.CHOICES:
            options = draw(option_lists)
            value = draw(st.lists(st.sampled_from(options), min_size=1, unique=True))
            return {"type": "array", "items": {"type": "string", "enum": options}, **words}, value
        case FieldKind.INTEGER:
            number = draw(st.integers(-INTEGER_MAX, INTEGER_MAX))
            return {"type": "integer", "minimum": draw(st.integers(-INTEGER_MAX, number)), **words}, number
        case FieldKind.NUMBER:
            return {"type": "number", "maximum": 1e6, **words}, draw(numbers | st.integers(-9, 9))
        case _:
            return {"type": "boolean", **words}, draw(st.booleans())


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(filled=st.dictionaries(names, described_fields(), min_size=1, max_size=8), data=st.data())
def test_what_is_entered_is_what_is_recorded(
    task: TaskView, check_blocks: Any, filled: dict[str, Any], data: st.DataObject
) -> None:
    required = data.draw(st.lists(st.sampled_from(sorted(filled)), unique=True))
    given_up = data.draw(st.sets(st.sampled_from(sorted(filled)))) - set(required)
    form = {"type": "object", "required": required, "properties": {name: item[0] for name, item in filled.items()}}
    value = {name: item[1] for name, item in filled.items() if name not in given_up}
    assert check_form(form) == []
    modal = form_modal(replace(task, form=form))
    check_blocks(modal["blocks"], True)
    assert echo_bytes(input_blocks(form)) <= weight_of(form)
    read = values_of(form, entered(modal["blocks"], value, options_in(form)))
    assert read == value
    assert all(type(read[name]) is type(item) or item == int(item) for name, item in value.items())
    assert check_value(form, read) == []
    assert canonical_bytes(read) == canonical_bytes(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-1", -1),
        ("+7", 7),
        ("007", 7),
        (" 5 ", 5),
        ("1.50", 1.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("1e3", 1000.0),
        ("1,5", "1,5"),
        ("٤٢", "٤٢"),
        ("1_000", "1_000"),
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        ("0x10", "0x10"),
    ],
)
def test_numbers_as_people_write_them(text: str, value: Any) -> None:
    form = {"type": "object", "properties": {"n": {"type": "number"}}}
    read = values_of(form, {"n": {"n": {"type": "number_input", "value": text}}})
    assert read == {"n": value}
    assert type(read["n"]) is type(value)
    assert bool(check_value(form, read)) is isinstance(value, str)


def test_nothing_entered_is_absent_and_not_null(task: TaskView) -> None:
    blocks = form_modal(replace(task, form={**task.form, "required": []}))["blocks"]
    assert values_of(task.form, entered(blocks, {}, {})) == {}
    assert values_of(task.form, {}) == {}
    for text in ("", None):
        assert values_of(task.form, {"owner": {"owner": {"value": text}}}) == {}
    assert values_of(task.form, {"share": {"share": {"value": "  "}}}) == {}
    assert values_of(task.form, {"owner": {"owner": {"value": "  "}}}) == {"owner": "  "}
    assert [problem.where for problem in check_value(task.form, {})] == ["owner", "risk"]


json_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=50) | st.just("o7"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["value", "selected_option", "selected_options", "selected_date", "type"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
FIELD_NAMES = ["owner", "share", "checked_on", "risk", "documents", "sanctioned"]


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=300)
@given(
    state=st.dictionaries(st.text(max_size=5), json_junk, max_size=3)
    | st.fixed_dictionaries({}, optional=dict.fromkeys(FIELD_NAMES, json_junk))
    | st.fixed_dictionaries({}, optional={name: st.fixed_dictionaries({name: json_junk}) for name in FIELD_NAMES})
    | st.fixed_dictionaries(
        {},
        optional={
            name: st.fixed_dictionaries(
                {name: st.dictionaries(st.sampled_from(["value", "selected_option", "selected_options"]), json_junk)}
            )
            for name in FIELD_NAMES
        },
    )
)
def test_hostile_submissions_are_placed_and_never_raise(task: TaskView, state: dict[str, Any]) -> None:
    value = values_of(task.form, state)
    assert set(value) <= set(FIELD_NAMES)
    problems = check_value(task.form, value)
    errors = errors_of(task.form, problems)
    assert bool(errors) is bool(problems)
    assert set(errors) <= set(inputs_in(form_modal(task)["blocks"]))
    assert all(0 < len(words) <= 500 for words in errors.values())
    if not problems:
        canonical_bytes(value)


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ({"selected_option": {"value": "o2"}}, "One of low, high"),
        ({"selected_option": {"value": "low"}}, "One of low, high"),
        ({"selected_option": {"value": 0}}, "One of low, high"),
        ({"selected_option": {}}, "One of low, high"),
        ({"selected_option": "o0"}, "One of low, high"),
        ({"selected_option": None}, "It is missing."),
        ({"value": "low"}, "It is missing."),
    ],
)
def test_options_that_were_never_offered(task: TaskView, element: dict[str, Any], words: str) -> None:
    value = values_of(task.form, {"owner": {"owner": {"value": "Ann"}}, "risk": {"risk": element}})
    (problem,) = check_value(task.form, value)
    assert problem.where == "risk"
    assert words in errors_of(task.form, [problem])["risk"]


def test_faults_without_a_field_stand_at_the_first(task: TaskView) -> None:
    problems = [FormProblem((), "Too large."), FormProblem(("gone",), "No such field.")]
    assert errors_of(task.form, problems) == {"owner": "Too large. No such field."}
    (words,) = errors_of(task.form, [FormProblem(("owner",), "\u202e" + "x" * 900)]).values()
    assert words.startswith("⟨U+202E⟩x")
    assert words.endswith("…")


# -- the message


def test_message_says_what_is_asked_of_whom(task: TaskView, check_blocks: Any) -> None:
    message = render(task)
    check_blocks(message.blocks, False)
    assert message.complete
    assert message.text == "Task: `Confirm the beneficial owner`"
    assert words_in(message.blocks).split("\n") == [
        "*Task* `Confirm the beneficial owner`",
        "*Description* `Compare the register with the passport.`",
        "*Who may do it* members of `kyc`",
        "*Due* <!date^1785603600^{date_short_pretty} {time}|2026-08-01 17:00 UTC>",
    ]
    small = message.blocks[2]["elements"][0]["text"].split("\n")
    assert small[:3] == ["Reference `C-1009`", "Workflow `client-onboarding` version 2", "Step `sign`"]
    (button,) = message.blocks[3]["elements"]
    assert (button["action_id"], button["text"]["text"]) == ("counterseal.task_open", "Fill in")
    assert json.loads(button["value"]) == {"t": str(task.task_id)}
    assert "owner" not in button["value"]
    assert message.blocks[4]["elements"][0]["text"] == "<https://counterseal.example/t/1|Open in Counterseal>"


@pytest.mark.parametrize("state", [state for state in TaskState if state is not TaskState.OPEN])
def test_button_is_gone_once_it_is_closed(task: TaskView, state: TaskState, check_blocks: Any) -> None:
    done = replace(task, state=state, completed_by="Ann" if state is TaskState.COMPLETED else "")
    message = render(done)
    check_blocks(message.blocks, False)
    assert all(block["type"] != "actions" for block in message.blocks)
    assert ("*Completed by* `Ann`" in words_in(message.blocks)) is (state is TaskState.COMPLETED)
    assert message.blocks[0]["text"]["text"] != render(task).blocks[0]["text"]["text"]


def test_task_that_is_too_long_is_not_shown_in_part(task: TaskView, check_blocks: Any) -> None:
    long = replace(task, description="secret plan " * 2000)
    message, modal = render(long), form_modal(replace(long, description="secret plan " * 9000))
    check_blocks(message.blocks, False)
    check_blocks(modal["blocks"], True)
    assert not message.complete
    for blocks in (message.blocks, modal["blocks"]):
        assert "too long to be shown here" in words_in(blocks)
        assert "secret plan" not in json.dumps(blocks)
        assert str(task.task_id) in words_in(blocks)
    assert echo_bytes(modal["blocks"]) <= ECHO_BYTES_MAX
    assert set(inputs_in(modal["blocks"])) == set(inputs_in(form_modal(task)["blocks"]))


task_words = (
    st.sampled_from(NASTY_WORDS) | st.text(max_size=200) | st.text(min_size=2950, max_size=3300, alphabet="a`\n&")
)


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=60)
@given(
    title=task_words, description=task_words, group=task_words, reference=task_words, by=task_words, due=task_words,
    state=st.sampled_from(TaskState),
)  # fmt: skip
def test_hostile_words_are_within_limits_and_forge_nothing(
    task: TaskView, check_blocks: Any, title: str, description: str, group: str, reference: str, by: str, due: str,
    state: TaskState,
) -> None:  # fmt: skip
    drawn = replace(
        task, title=title, description=description, group=group, reference=reference, completed_by=by, due_at=due,
        state=state, link=f"https://x/{title}",
    )  # fmt: skip
    message, modal = render(drawn), form_modal(drawn)
    check_blocks(message.blocks, False)
    check_blocks(modal["blocks"], True)
    assert 0 < len(modal["title"]["text"]) <= 24
    dates = r"<!date\^-?\d+\^\{date_short_pretty\} \{time\}\|[-0-9: ]+UTC>"
    for blocks in (message.blocks, modal["blocks"]):
        assert "<" not in re.sub(dates, "", outside_monospace(words_in(blocks)))
        assert not re.search("[\u200b-\u200f\u202a-\u202e\u2066\u2067\ufeff]", json.dumps(blocks, ensure_ascii=False))
    assert "<" not in outside_monospace(message.text)


# -- posting


async def test_task_is_posted_found_and_redrawn(client: AsyncWebClient, slack: Any, task: TaskView) -> None:
    messenger = SlackMessenger(client, timeout_seconds=5)
    posted = await messenger.post_task("C1", task, str(task.task_id))
    assert isinstance(posted, Posted)
    assert any(block["type"] == "actions" for block in slack.messages[0]["blocks"])
    assert await messenger.find_card("C1", str(task.task_id), since=CLOCK) == posted
    assert await messenger.find_card("C1", "other", since=CLOCK) == Absent()
    done = replace(task, state=TaskState.COMPLETED, completed_by="Ann")
    assert await messenger.update_task(posted.ref, done) == posted
    assert all(block["type"] != "actions" for block in slack.messages[0]["blocks"])


async def test_lost_post_of_a_task_is_in_doubt(client: AsyncWebClient, slack: Any, task: TaskView) -> None:
    slack.faults["chat.postMessage"] = ["landed"]
    slack.faults["chat.update"] = ["lost"]
    messenger = SlackMessenger(client, timeout_seconds=5)
    assert isinstance(await messenger.post_task("C1", task, "key"), PostInDoubt)
    assert isinstance(await messenger.find_card("C1", "key", since=CLOCK), Posted)
    assert isinstance(await messenger.update_task(MessageRef("C1", "1700000000.000000"), task), PostInDoubt)


# -- clicks and submissions


class NoCards:
    """The service of cards, which no click on a task may reach."""

    async def vote(self, click: Click) -> Answer:
        raise AssertionError(click)

    async def submit(self, submission: Submission) -> Answer:
        raise AssertionError(submission)

    async def review(self, asked: Click | Submission) -> Any:
        raise AssertionError(asked)

    async def note(self, click: Click, sentence: str) -> None:
        raise AssertionError(click)


@dataclass
class RecordingTasks:
    """Checks as a desk does: the right, then the state, then the value; records what it accepted."""

    shown: TaskView | Answer
    may: frozenset[str] = frozenset({"U1"})
    failure: Exception | None = None
    accepted: list[tuple[str, JsonObject]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    async def task(self, asked: TaskClick | TaskSubmission) -> TaskView | Answer:
        return self.shown

    async def complete(self, submission: TaskSubmission, value: JsonObject) -> TaskAnswer:
        assert isinstance(self.shown, TaskView)
        if self.failure is not None:
            raise self.failure
        if submission.clicker.user not in self.may:
            return TaskAnswer(False, "not_allowed", "You may not complete this: ask the members of kyc.")
        if self.shown.state is not TaskState.OPEN:
            return TaskAnswer(False, "completed", "This task was completed by Ann.")
        if problems := check_value(self.shown.form, value):
            return TaskAnswer(False, "form", "Please correct what is marked.", tuple(problems))
        self.accepted.append((submission.clicker.user, value))
        return TaskAnswer(True, "recorded", "Recorded. Thank you.")

    async def note_task(self, click: TaskClick, sentence: str) -> None:
        self.notes.append(sentence)


@dataclass
class TaskFace:
    http: httpx.AsyncClient
    tasks: RecordingTasks

    async def send(self, payload: object, *, key: str = KEY) -> httpx.Response:
        body = urlencode({"payload": json.dumps(payload)}).encode()
        mac = hmac.new(key.encode(), f"v0:{CLOCK}:".encode() + body, hashlib.sha256).hexdigest()
        headers = {
            "X-Slack-Request-Timestamp": str(CLOCK),
            "X-Slack-Signature": f"v0={mac}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return await self.http.post("/slack/events", content=body, headers=headers)


def endpoint_for(client: AsyncWebClient, tasks: TaskService) -> FastAPI:
    async def authorize(**_: Any) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=None, team_id="T1", bot_token="xoxb-test")

    bolt = build_bolt(signing_secret=KEY, authorize=authorize, client=client, service=NoCards(), tasks=tasks)
    for middleware in bolt._async_middleware_list:
        if verifier := getattr(middleware, "verifier", None):
            verifier.clock = SimpleNamespace(now=lambda: float(CLOCK))  # bolt verifies as well, by its own clock
    endpoint = SlackEndpoint(bolt, signing_secret=KEY, now=lambda: float(CLOCK))
    app = FastAPI()

    @app.post("/slack/events")
    async def events(request: Request) -> Response:
        return await endpoint(request)

    return app


@pytest.fixture
async def desk(task: TaskView, client: AsyncWebClient, serve: Any) -> AsyncIterator[TaskFace]:
    tasks = RecordingTasks(task)
    async with serve(endpoint_for(client, tasks)) as url, httpx.AsyncClient(base_url=url) as http:
        yield TaskFace(http, tasks)


def open_payload(task: TaskView, **more: Any) -> dict[str, Any]:
    action = {"type": "button", "block_id": "b", "action_id": "counterseal.task_open", "value": button_value(task)}
    return {
        "type": "block_actions",
        "team": {"id": "T1"},
        "user": {"id": "U1", "team_id": "T9"},
        "container": {"type": "message", "message_ts": "1700000000.000001", "channel_id": "C1"},
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        "actions": [action],
        **more,
    }


def form_payload(modal: dict[str, Any], state: Any, *, user: str = "U1") -> dict[str, Any]:
    view = {"id": "V1", "type": "modal", **modal, "state": {"values": state}}
    return {"type": "view_submission", "team": {"id": "T1"}, "user": {"id": user}, "view": view}


def state_of(task: TaskView, **value: Any) -> dict[str, Any]:
    return entered(form_modal(task)["blocks"], {"owner": "Ann", "risk": "high", **value}, options_in(task.form))


async def test_fill_in_opens_the_form_and_sending_it_completes(desk: TaskFace, task: TaskView, slack: Any) -> None:
    opened = await desk.send(open_payload(task))
    assert (opened.status_code, opened.text) == (200, "")
    assert slack.calls == ["views.open"]
    (modal,) = slack.views
    answer = await desk.send(form_payload(modal, state_of(task, share=12.5, documents=["register"], sanctioned=False)))
    assert answer.json()["response_action"] == "update"
    assert "Recorded. Thank you." in answer.text
    value = {"owner": "Ann", "risk": "high", "share": 12.5, "documents": ["register"], "sanctioned": False}
    assert desk.tasks.accepted == [("U1", value)]


async def test_faults_stand_at_their_fields(desk: TaskFace, task: TaskView) -> None:
    state = state_of(task, checked_on="2026-02-30")
    state["share"]["share"]["value"] = "101"
    del state["owner"]
    answer = await desk.send(form_payload(form_modal(task), state))
    assert answer.json() == {
        "response_action": "errors",
        "errors": {
            "owner": "It is missing. This field has to be filled in.",
            "share": "The number is too large. At most 100.",
            "checked_on": "It is not a date. Write it as 2026-12-31.",
        },
    }
    assert desk.tasks.accepted == []


@pytest.mark.req("P-12")
async def test_who_may_not_complete_is_refused_before_the_value_counts(desk: TaskFace, task: TaskView) -> None:
    for state in (state_of(task), {}, {"owner": {"owner": {"value": 5}}}):
        answer = await desk.send(form_payload(form_modal(task), state, user="U2"))
        assert answer.json()["response_action"] == "update"
        assert "You may not complete this: ask the members of kyc." in answer.text
    assert desk.tasks.accepted == []


@pytest.mark.req("P-12")
async def test_who_is_unknown_sees_no_form(desk: TaskFace, task: TaskView, slack: Any) -> None:
    desk.tasks.shown = Answer(False, "You are not in the directory.")
    assert (await desk.send(open_payload(task))).status_code == 200
    (modal,) = slack.views
    assert modal["blocks"][0]["text"]["text"] == "You are not in the directory."
    assert "submit" not in modal
    answer = await desk.send(form_payload(form_modal(task), state_of(task)))
    assert "You are not in the directory." in answer.text
    assert desk.tasks.accepted == []


@pytest.mark.req("P-12")
async def test_what_the_modal_says_about_its_form_is_not_believed(desk: TaskFace, task: TaskView) -> None:
    """Refuse what a signer adds to the form: fields, options and limits come from the desk."""
    wide = replace(
        task, form={"type": "object", "properties": {"owner": {"type": "string"}, "admin": {"type": "boolean"}}}
    )
    modal = form_modal(wide)
    state = entered(modal["blocks"], {"owner": "x" * 81, "admin": True}, {})
    errors = (await desk.send(form_payload(modal, state))).json()["errors"]
    assert set(errors) == {"owner", "risk"}
    assert desk.tasks.accepted == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TaskState.COMPLETED, "completed by *Ann*"),
        (TaskState.EXPIRED, "expired"),
        (TaskState.CANCELED, "canceled"),
    ],
)
async def test_closed_task_says_so(desk: TaskFace, task: TaskView, slack: Any, state: TaskState, words: str) -> None:
    desk.tasks.shown = replace(task, state=state, completed_by="*Ann*")
    assert (await desk.send(open_payload(task))).status_code == 200
    (modal,) = slack.views
    assert modal["blocks"][0]["text"]["type"] == "plain_text"
    assert words in modal["blocks"][0]["text"]["text"]
    assert "submit" not in modal
    late = await desk.send(form_payload(form_modal(task), {}))
    assert late.json()["response_action"] == "update"
    assert "This task was completed by Ann." in late.text


async def test_same_submission_twice_is_answered_twice(desk: TaskFace, task: TaskView) -> None:
    payload = form_payload(form_modal(task), state_of(task))
    first, second = await desk.send(payload), await desk.send(payload)
    assert first.json() == second.json()
    assert desk.tasks.accepted[0] == desk.tasks.accepted[1]


async def test_failed_completion_is_not_acknowledged(desk: TaskFace, task: TaskView, caplog: Any) -> None:
    desk.tasks.failure = RuntimeError("away")
    answer = await desk.send(form_payload(form_modal(task), state_of(task, owner="very-private")))
    assert answer.status_code == 503
    assert "was not acknowledged" in caplog.text
    assert "very-private" not in caplog.text


@pytest.mark.parametrize("fault", ["lost", (200, {}, {"ok": False, "error": "expired_trigger_id"}), (500, {}, "oops")])
async def test_form_that_does_not_open_is_explained(desk: TaskFace, task: TaskView, slack: Any, fault: Any) -> None:
    slack.faults["views.open"] = [fault]
    assert (await desk.send(open_payload(task))).status_code == 200
    assert slack.calls == ["views.open"]
    assert len(desk.tasks.notes) == 1
    assert "click again" in desk.tasks.notes[0]


async def test_unsigned_submission_is_refused(desk: TaskFace, task: TaskView) -> None:
    answer = await desk.send(form_payload(form_modal(task), state_of(task)), key="other")
    assert answer.status_code == 401
    assert desk.tasks.accepted == []


async def test_signed_nonsense_about_tasks_is_refused(desk: TaskFace, task: TaskView) -> None:
    modal = form_modal(task)
    button = open_payload(task)["actions"][0]
    for payload in (
        open_payload(task, actions=[button, button]),
        open_payload(task, actions=[{**button, "value": "{"}]),
        open_payload(task, actions=[{**button, "value": '{"t": "x"}'}]),
        open_payload(task, actions=[{**button, "value": '{"a": "01890000-0000-7000-8000-000000000001"}'}]),
        open_payload(task, trigger_id=None),
        open_payload(task, user={"name": "ann"}),
        form_payload({**modal, "private_metadata": "[]"}, {}),
        form_payload({**modal, "private_metadata": None}, {}),
        form_payload({**modal, "private_metadata": '{"t": 5}'}, {}),
        form_payload(modal, []),
        form_payload(modal, "x"),
    ):
        assert (await desk.send(payload)).status_code == 400
    assert desk.tasks.accepted == []


def test_cards_and_tasks_are_not_taken_for_each_other(task: TaskView) -> None:
    click = open_payload(task)
    with pytest.raises(InputError, match="none of our buttons"):
        parse_click(click)
    click["actions"][0]["action_id"] = "counterseal.approve"
    with pytest.raises(InputError, match="not the button of a task"):
        parse_task_click(click)
    with pytest.raises(InputError, match="none of our modals"):
        parse_submission(form_payload(form_modal(task), {}))
    with pytest.raises(InputError, match="not the form of a task"):
        parse_task_submission(form_payload({**form_modal(task), "callback_id": "counterseal.review"}, {}))


async def test_hostile_states_over_http_are_answered(desk: TaskFace, task: TaskView) -> None:
    for state in (
        {},
        {"owner": None, "risk": None},
        {"owner": [], "risk": 5},
        {"owner": {"other": {"value": "x"}}, "risk": {"risk": []}},
        {"owner": {"owner": {"value": {"a": ["b"]}}}, "risk": {"risk": {"selected_option": {"value": "o99"}}}},
        {"owner": {"owner": {"value": "x" * 50_000}}, "documents": {"documents": {"selected_options": ["o0"] * 900}}},
        {"__proto__": {}, "owner": {"owner": {"value": "\u202e"}}},
    ):
        answer = await desk.send(form_payload(form_modal(task), state))
        assert answer.status_code == 200
        assert answer.json()["response_action"] == "errors"
    assert desk.tasks.accepted == []
