from __future__ import annotations

from typing import Any

import pytest

from connectors.catalog import Catalog
from connectors.disclosure import leaves


def shown(schema: Any, value: Any) -> dict[str, str]:
    assert all(leaf.treatment == "omit" for leaf in leaves(schema, value) if leaf.secret)
    return {leaf.path: "secret" if leaf.secret else str(leaf.treatment) for leaf in leaves(schema, value)}


@pytest.mark.req("Q-21")
def test_codes_are_shown_and_texts_are_not(catalog: Catalog) -> None:
    update = catalog.get("servicenow.incident.update")
    value = {"sys_id": "a", "fields": {"priority": "1", "work_notes": "the caller's mother", "u_other": "x"}}
    assert shown(update.input_schema, value) == {
        "/sys_id": "value",
        "/fields/priority": "value",
        "/fields/work_notes": "digest",
        "/fields/u_other": "digest",
    }


@pytest.mark.req("Q-21")
def test_secrets_are_in_no_evidence(catalog: Catalog) -> None:
    send = catalog.get("http.request.send")
    value: Any = {
        "method": "POST",
        "url": "https://a.example",
        "headers": {"Authorization": "t"},
        "json": {"a/b~": [1]},
    }
    assert shown(send.input_schema, value) == {
        "/method": "value",
        "/url": "value",
        "/headers/Authorization": "secret",
        "/json/a~1b~0": "digest",
    }


def test_a_list_is_as_open_as_its_most_closed_part() -> None:
    pin = {"type": "string", "x-secret": True}
    items = {"type": "object", "properties": {"name": {"type": "string"}, "pin": pin}}
    schema = {"type": "object", "x-evidence": "value", "properties": {"people": {"type": "array", "items": items}}}
    assert shown(schema, {"people": [{"name": "a", "pin": "1"}], "n": 1, "o": {}}) == {
        "/people": "secret",
        "/n": "value",
        "/o": "value",
    }


@pytest.mark.parametrize(
    "items",
    [
        {"x-secret": True},
        {"type": "object", "properties": {"a": {"x-secret": True}}},
        {"type": "object", "additionalProperties": {"x-secret": True}},
        {"type": "array", "items": {"x-secret": True}},
        {"type": "object", "additionalProperties": {"type": "array", "items": {"x-secret": True}}},
    ],
)
def test_a_secret_anywhere_in_a_list_hides_all_of_it(items: Any) -> None:
    schema = {"type": "object", "x-evidence": "value", "properties": {"all": {"type": "array", "items": items}}}
    assert shown(schema, {"all": [{"b": "1"}]}) == {"/all": "secret"}


def test_local_references_are_followed_and_circles_end() -> None:
    schema = {
        "type": "object",
        "$defs": {"code": {"type": "string", "x-evidence": "value"}, "loop": {"$ref": "#/$defs/loop"}},
        "properties": {"a": {"$ref": "#/$defs/code"}, "b": {"$ref": "#/$defs/loop"}, "c": {"$ref": "#/$defs/none"}},
    }
    assert shown(schema, {"a": "1", "b": "2", "c": "3"}) == {"/a": "value", "/b": "digest", "/c": "digest"}
