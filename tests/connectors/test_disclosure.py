from __future__ import annotations

from typing import Any

import pytest

from connectors.catalog import Catalog
from connectors.disclosure import leaves, secret_names


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


SECRET: Any = {"type": "string", "x-secret": True}
PLAIN: Any = {"type": "string"}


def obj(**properties: Any) -> Any:
    return {"type": "object", "properties": properties}


@pytest.mark.req("Q-20")
@pytest.mark.parametrize(
    ("schema", "value", "names"),
    [
        (obj(z=SECRET, a=SECRET, b=PLAIN), {"z": "1", "a": "2", "b": "3"}, ("a", "z")),
        (obj(z=SECRET, b=PLAIN), {"b": "3"}, ()),
        (obj(a=obj(b=obj(pin=SECRET, c=PLAIN))), {"a": {"b": {"pin": "1", "c": "2"}}}, ("a", "b", "pin")),
        # What stands in a secret is secret, whatever it is called: a card shows the members of what is written.
        (obj(fields={**obj(a=PLAIN), "x-secret": True}), {"fields": {"a": "1"}}, ("a", "fields")),
        (obj(f={"type": "object", "additionalProperties": SECRET}), {"f": {"k/~": "1"}}, ("f", "k/~")),
        (obj(f={"$ref": "#/$defs/f"}) | {"$defs": {"f": obj(t=SECRET)}}, {"f": {"t": "1"}}, ("f", "t")),
        (obj(many={"type": "array", "items": obj(t=SECRET)}), {"many": [{"t": "1"}]}, ("many",)),
        (obj(a=PLAIN), {"a": "1"}, ()),
    ],
)  # fmt: skip
def test_whatever_is_secret_or_holds_a_secret_is_named_for_a_card(schema: Any, value: Any, names: Any) -> None:
    assert secret_names(schema, value) == names


@pytest.mark.req("Q-20")
@pytest.mark.parametrize("depth", [1, 8, 9, 40])
def test_a_secret_in_a_list_is_found_at_any_depth(depth: int) -> None:
    item: Any = SECRET
    value: Any = "1"
    for _ in range(depth):
        item, value = obj(in_=item), {"in_": value}
    schema = obj(many={"type": "array", "items": item})
    assert secret_names(schema, {"many": [value]}) == ("many",)


def test_a_schema_that_refers_to_itself_is_walked_to_its_end() -> None:
    node = obj(name=PLAIN, below={"type": "array", "items": {"$ref": "#/$defs/node"}})
    schema = obj(tree={"$ref": "#/$defs/node"}) | {"$defs": {"node": node}}
    value = {"tree": {"name": "a", "below": [{"name": "b"}]}}
    assert secret_names(schema, value) == ()
    node["properties"]["name"] = SECRET
    assert secret_names(schema, value) == ("below", "name", "tree")


MARKS: dict[str, Any] = {"": {}, "value": {"x-evidence": "value"}, "omit": {"x-evidence": "omit"}, "secret": SECRET}
