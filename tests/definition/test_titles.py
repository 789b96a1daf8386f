"""Titles of cards: filled from paths, quoted where they hold words from outside, and refused if nothing fills them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from connectors.operation import Operation
from connectors.proposal import build_action
from connectors.texts import link_of, question_of, unfilled

DECLARED: dict[str, Any] = {
    "name": "erp.account.revoke",
    "handler": "erp:send",
    "side_effects": "external_call",
    "risk": "medium",
    "in_doubt": "ask",
    "summary": "Revoke {json.role} of {json.user}.",
    "target": "{json.user}",
    "link": "{system}/accounts/{json.user}",
    "output_schema": {"type": "object"},
    "input_schema": {
        "type": "object",
        "properties": {
            "json": {
                "type": "object",
                "properties": {"user": {"type": "string"}, "role": {"type": "string"}},
                "additionalProperties": False,
            },
            "note": {"type": "string"},
        },
    },
}


def operation(**more: Any) -> Operation:
    return Operation.model_validate({**DECLARED, **more})


@pytest.mark.parametrize(
    ("title", "user", "said"),
    [
        ("", "ana.lee", "Revoke admin of ana.lee?"),
        ("Take {json.role} from {json.user}?", "ana.lee", "Take admin from ana.lee?"),
        ("Take it from {json.user}", "x? Approved by Ann", "Take it from “x? Approved by Ann”?"),
        ("Take it from {json.user}?", "a”\nb", "Take it from “a\u2019 b”?"),
        ("Take it from {json.user}?", "p\u0430ypal", "Take it from “p⟨U+0430⟩ypal”?"),
        ("Take it from {json.user}?", "word " * 40, ""),
    ],
)
def test_a_title_is_a_question_with_its_values(title: str, user: str, said: str) -> None:
    declared = operation()
    action = build_action(declared, {"json": {"user": user, "role": "admin"}})
    assert question_of(declared, action, title) == said
    assert question_of(operation(title=title or None), action) == said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{json.user}", ""),
        ("{target}", ""),
        ("{json.usr}", "is declared nowhere; there are: role, user"),
        ("{json.user.name}", "goes into a value of type string"),
        ("{nothing}", ""),
        ("{before.user}", "is never known"),
        ("{facts.number|json.user}", "is never known"),
    ],
)
def test_a_placeholder_that_nothing_can_fill_is_named(text: str, why: str) -> None:
    found = " ".join(unfilled(operation(), text))
    assert why in found
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    ("system", "user", "link"),
    [
        ("https://erp.example as svc", "ana.lee", "https://erp.example/accounts/ana.lee"),
        ("", "ana.lee", ""),
        ("https://erp.example as svc", "a|b> <!channel>", ""),
    ],
)
def test_people_are_led_to_plain_addresses_alone(system: str, user: str, link: str) -> None:
    action = build_action(operation(), {"json": {"user": user, "role": "x"}})
    assert link_of(operation(), replace(action, system=system)) == link
