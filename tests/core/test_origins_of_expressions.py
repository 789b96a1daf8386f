"""Origins of what expressions make: every input is an ingredient, and none falls out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core.expressions import WORKFLOW_LIMITS, Environment
from core.origins.expressions import of_template, under
from core.templates import compile_value

ENVIRONMENT = Environment(
    {"trigger": "dyn", "steps.mail.output": "dyn", "state": "dyn", "item": "dyn"}, WORKFLOW_LIMITS
)
KNOWN = {
    "trigger.a": [["requester"]],
    "trigger": [["requester"], ["trigger:servicenow"]],
    "steps.mail.output.b": [["field:mail.get#/b", "tool:mail.get"]],
    "steps.mail.output": [["tool:mail.get"]],
    "state.x": [],
    "item": [[]],
}


def known(path: str) -> Sequence[Sequence[str]]:
    found: Any = KNOWN.get(path, [["unknown"]])
    return list(found)


MAIL = ["field:mail.get#/b", "tool:mail.get"]


@pytest.mark.parametrize(
    ("value", "origins"),
    [
        ("${{ trigger.a }}", [["requester"]]),
        ("${{ trigger.a }}${{ steps.mail.output.b }}", [["requester"], MAIL]),
        ("${{ trigger.a }} ${{ trigger.a }}", [["requester"]]),
        ("Dear ${{ trigger.a }}", [["workflow"], ["requester"]]),
        ("fixed", [["workflow"]]),
        ("", [["workflow"]]),
        (None, [["workflow"]]),
        (7, [["workflow"]]),
        ({}, [["workflow"]]),
        ([], [["workflow"]]),
        ("${{ 'a' + 'b' }}", [["workflow"]]),
        (
            "${{ steps.mail.output.b == 'x' ? trigger.a : 'y' }}",
            [["tool:mail.get"], ["requester"], ["trigger:servicenow"]],
        ),
        ("${{ steps.mail.output.map(o, o.b) }}", [["tool:mail.get"]]),
        ("${{ size(trigger.a) }}", [["requester"], ["trigger:servicenow"]]),
        ("${{ trigger['a'] }}", [["requester"], ["trigger:servicenow"]]),
        ("${{ state.x }}", [["unknown"]]),
        ("${{ item }}", [["unknown"]]),
        ("${{ state.unheard }}", [["unknown"]]),
    ],
)
def test_every_input_is_an_ingredient(value: Any, origins: list[list[str]]) -> None:
    [(path, found)] = of_template(compile_value(ENVIRONMENT, value), known)
    assert path == ()
    assert found == origins


def test_origins_are_asked_for_by_place() -> None:
    template = compile_value(
        ENVIRONMENT, {"fields": {"to": "${{ trigger.a }}", "cc": ["x", "${{ steps.mail.output.b }}"]}, "n": 1}
    )
    found = of_template(template, known)
    assert under(found, ("fields", "to")) == [["requester"]]
    assert under(found, ("fields", "cc")) == [["workflow"], MAIL]
    assert under(found, ("fields",)) == [["requester"], ["workflow"], MAIL]
    assert under(found, ("absent",)) == []
    whole = of_template(compile_value(ENVIRONMENT, {"fields": "${{ trigger.a }}"}), known)
    assert under(whole, ("fields", "to")) == [["requester"]]
