"""Derives the JSON Schema of a workflow's result, which the run that starts it can read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.naming import within
from core.canonical import Json
from core.templates import Template

_TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def shape_of(result: Json, template: Template | None, schemas: Mapping[str, Json]) -> dict[str, Any]:
    """The schema of a workflow's ``result``: null without one. ``schemas`` are those of variables that are known."""
    place = None if template is None else template.one_place
    if place is not None:
        return within(schemas[place[0]], place[1]) if place[0] in schemas else {}
    return _shape(result)


def _shape(value: Json) -> dict[str, Any]:
    """The schema of a value with expressions. A text that is one expression may give anything."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {name: _shape(item) for name, item in value.items()}}
    if isinstance(value, list):
        return {"type": "array"}
    alone = isinstance(value, str) and value.strip().startswith("${{") and value.strip().endswith("}}")
    return {} if alone else {"type": _TYPES[type(value)]}
