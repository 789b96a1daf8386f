"""Forms in the Slack stand-in: every element that Slack has for them is checked, filled in and sent as Slack does."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import pytest

from sandbox.slack_blocks import view_problems
from sandbox.world import World


def plain_text(words: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": words}


def options(*values: str) -> list[dict[str, Any]]:
    return [{"text": plain_text(value.upper()), "value": value} for value in values]


def field(name: str, kind: str, *, optional: bool = False, **more: Any) -> dict[str, Any]:
    element = {"type": kind, "action_id": name, **more}
    return {"type": "input", "block_id": name, "label": plain_text(name), "optional": optional, "element": element}


def form(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "modal", "title": plain_text("Task"), "submit": plain_text("Send"), "blocks": list(fields)}


NUMBER = field("share", "number_input", is_decimal_allowed=True, min_value="0", max_value="100")
WHOLE = field("children", "number_input", is_decimal_allowed=False)
EMAIL = field("contact", "email_text_input")
URL = field("register", "url_text_input")
DATE = field("since", "datepicker")
MANY = field("kinds", "multi_static_select", options=options("a", "b", "c"), max_selected_items=2)
RADIO = field("domestic", "radio_buttons", options=options("true", "false"))
ALL = form(NUMBER, WHOLE, EMAIL, URL, DATE, MANY, RADIO)


def test_a_form_with_every_element_is_fine() -> None:
    assert view_problems(ALL) == []
    filled = form(
        field("n", "number_input", is_decimal_allowed=True, initial_value="1.5"),
        field("e", "email_text_input", initial_value="a@b.example"),
        field("d", "datepicker", initial_date="2026-02-28"),
        field("m", "multi_static_select", options=options("a", "b"), initial_options=options("b")),
        field("r", "radio_buttons", options=options("a", "b"), initial_option=options("b")[0]),
    )
    assert view_problems(filled) == []


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        (field("n", "number_input"), "is_decimal_allowed"),
        (field("n", "number_input", is_decimal_allowed="yes"), "is_decimal_allowed"),
        (field("n", "number_input", is_decimal_allowed=True, min_value=1), "min_value"),
        (field("n", "number_input", is_decimal_allowed=True, max_value="1e3"), "max_value"),
        (field("n", "number_input", is_decimal_allowed=True, initial_value="many"), "initial_value"),
        (field("d", "datepicker", initial_date="28.2.2026"), "initial_date"),
        (field("d", "datepicker", initial_date=None), "initial_date"),
        (field("e", "email_text_input", initial_value=""), "initial_value"),
        (field("t", "plain_text_input", max_length=3001), "max_length"),
        (field("t", "plain_text_input", min_length=-1), "min_length"),
        (field("t", "plain_text_input", max_length="9"), "max_length"),
        (field("m", "multi_static_select"), "options"),
        (field("m", "multi_static_select", options=options(*map(str, range(101)))), "options"),
        (field("m", "multi_static_select", options=options("a"), initial_options=options("b")), "initial_options"),
        (field("m", "multi_static_select", options=options("a"), initial_options=[]), "initial_options"),
        (field("m", "multi_static_select", options=options("a"), max_selected_items=0), "max_selected_items"),
        (field("s", "static_select", options=options("a"), initial_option="a"), "initial_option"),
        (field("r", "radio_buttons", options=options("a"), initial_option=options("b")[0]), "initial_option"),
        (field("x", "timepicker"), "type"),
    ],
)
def test_an_element_that_slack_would_not_take_is_refused_at_its_place(wrong: dict[str, Any], pointer: str) -> None:
    (problem,) = view_problems(form(wrong))
    assert f"[json-pointer:/blocks/0/element/{pointer}" in problem


async def entered(world: World, receiver: Any, body: dict[str, Any], values: dict[str, Any]) -> tuple[Any, Any]:
    """Enter values; the client's complaints, and ``state.values`` as sent."""
    view = world.slack.state.show_view("U0ANA", body)
    outcome = await world.slack.people.submit_view(view.view_id, "U0ANA", values)
    if outcome.errors:
        assert receiver.received == []
        return dict(outcome.errors), None
    payload = json.loads(parse_qs(receiver.received[-1].body.decode())["payload"][0])
    return {}, {name: block[name] for name, block in payload["view"]["state"]["values"].items()}


async def test_what_people_enter_arrives_as_slack_sends_it(world: World, receiver: Any) -> None:
    values = {
        "share": "12.5",
        "children": 3,
        "contact": "ann@example.com",
        "register": "https://example.com/1",
        "since": "2020-02-29",
        "kinds": ["c", "a"],
        "domestic": "false",
    }
    errors, sent = await entered(world, receiver, ALL, values)
    assert errors == {}
    assert sent == {
        "share": {"type": "number_input", "value": "12.5"},
        "children": {"type": "number_input", "value": "3"},
        "contact": {"type": "email_text_input", "value": "ann@example.com"},
        "register": {"type": "url_text_input", "value": "https://example.com/1"},
        "since": {"type": "datepicker", "selected_date": "2020-02-29"},
        "kinds": {"type": "multi_static_select", "selected_options": options("c", "a")},
        "domestic": {"type": "radio_buttons", "selected_option": options("false")[0]},
    }


async def test_what_is_left_alone_stays_and_what_is_emptied_is_null(world: World, receiver: Any) -> None:
    body = form(
        field("n", "number_input", optional=True, is_decimal_allowed=False, initial_value="7"),
        field("d", "datepicker", optional=True, initial_date="2026-02-28"),
        field("m", "multi_static_select", optional=True, options=options("a", "b"), initial_options=options("b")),
        field("e", "email_text_input", optional=True),
        field("r", "radio_buttons", optional=True, options=options("a", "b")),
    )
    _, sent = await entered(world, receiver, body, {})
    assert [next(iter(value[name] for name in value if name != "type")) for value in sent.values()] == [
        "7",
        "2026-02-28",
        options("b"),
        None,
        None,
    ]
    _, sent = await entered(world, receiver, body, {"n": "", "d": "", "m": [], "e": "", "r": ""})
    assert [next(iter(value[name] for name in value if name != "type")) for value in sent.values()] == [
        None,
        None,
        [],
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        (NUMBER, "many"),
        (NUMBER, "1e3"),
        (NUMBER, "-1"),
        (NUMBER, "100.01"),
        (NUMBER, ""),
        (WHOLE, "1.5"),
        (EMAIL, "ann"),
        (EMAIL, "a b@example.com"),
        (URL, "example.com"),
        (URL, "http://["),
        (DATE, "tomorrow"),
        (DATE, ""),
        (MANY, ["a", "b", "c"]),
        (MANY, []),
        (MANY, ["z"]),
        (RADIO, "z"),
        (RADIO, ""),
    ],
)
async def test_what_slacks_own_client_refuses_is_never_sent(
    world: World, receiver: Any, asked: dict[str, Any], value: Any
) -> None:
    errors, _ = await entered(world, receiver, form(asked), {asked["block_id"]: value})
    assert list(errors) == [asked["block_id"]]


async def test_the_page_draws_every_element(world: World, plain: Any) -> None:
    world.slack.state.show_view("U0ANA", ALL)
    page = (await plain.get(f"{world.slack.url}/c/C0OPS?user=U0ANA")).text
    for kind in ("number_input", "email_text_input", "url_text_input", "datepicker", "multi_static_select"):
        assert f'data-kind="{kind}"' in page
    assert 'type="date"' in page
    assert page.count('type="checkbox"') == 3
    assert page.count('type="radio"') == 2
