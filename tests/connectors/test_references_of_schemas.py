"""A schema cannot cost more than its text: references are followed when it is checked, and never without end."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.schema import check_references, validator_of
from core.errors import InputError


def doubled(keyword: str, reference: str = "#/$defs/{}", **more: Any) -> dict[str, Any]:
    """A schema of which each definition applies the next one twice, forty times over."""

    def twice(number: int) -> Any:
        if number == 40:
            return {"type": "string"}
        refer = {"$ref": reference.format(f"d{number + 1}"), **more}
        return {keyword: {"a": refer, "b": dict(refer)} if keyword == "properties" else [refer, dict(refer)]}

    return {"type": "object", "$defs": {f"d{n}": twice(n) for n in range(41)}, **twice(0)}


REFUSED: dict[str, Any] = {
    "doubled for one value": doubled("allOf"),
    "doubled for a choice": doubled("oneOf"),
    "doubled in members": doubled("properties"),
    "itself, twice for one value": {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
    "itself, by way of another": {
        "allOf": [{"$ref": "#/$defs/a"}],
        "$defs": {"a": {"properties": {"b": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}}},
    },
    "by an anchor": {"allOf": [{"$ref": "#a"}], "$defs": {"a": {"$anchor": "a"}}},
    "by a dynamic reference": {"properties": {"a": {"$dynamicRef": "#a"}}},
    "by an id": {"properties": {"a": {"$id": "https://example.org/a"}}},
    "to nothing": {"properties": {"a": {"$ref": "#/$defs/none"}}},
    "percent-encoded": {"$defs": {"a": {}}, "properties": {"a": {"$ref": "#/%24defs/a"}}},
    "a chain": {
        "$ref": "#/$defs/d0",
        "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5_000)} | {"d5000": {}},
    },
}
TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}, "$id": {}},
}


@pytest.mark.parametrize("schema", REFUSED.values(), ids=REFUSED)
def test_references_that_would_cost_without_end_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        check_references(schema)
    with pytest.raises(InputError):  # also one that an earlier release has frozen with a run
        validator_of(schema)


def test_a_tree_may_refer_to_itself() -> None:
    check_references(TREE)
    validator = validator_of(TREE)
    assert validator.is_valid({"name": "a", "children": [{"name": "b", "children": []}]})
    assert not validator.is_valid({"children": [{"name": 1}]})
