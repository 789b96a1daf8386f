"""Placeholders in declarations: ``{fields.priority}``, or ``{facts.number|sys_id}`` for the first that has a value.

Rendering never fails: what is missing reads ``?``. Values are inserted once and never read again as placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.canonical import Json, JsonObject, canonical_bytes

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.]*(?:\|[A-Za-z_][\w.]*)*)\}")
MISSING = "?"


def placeholders(template: str) -> tuple[str, ...]:
    """Every path that the template names."""
    return tuple(path for match in _PLACEHOLDER.finditer(template) for path in match[1].split("|"))


def render(template: str, values: Mapping[str, Json]) -> str:
    """The text with its placeholders filled: objects read as the names of their keys, other values as themselves."""
    return _PLACEHOLDER.sub(lambda match: _words(_first(match[1], values)), template)


def fill(template: Json, values: Mapping[str, Json]) -> Json:
    """A structure with its placeholders filled; a text that is one whole placeholder becomes the value itself."""
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        return _first(whole[1], values) if whole else render(template, values)
    if isinstance(template, dict):
        return {key: fill(item, values) for key, item in template.items()}
    if isinstance(template, list):
        return [fill(item, values) for item in template]
    return template


def fill_object(template: JsonObject, values: Mapping[str, Json]) -> JsonObject:
    """As ``fill``, for an object."""
    return {key: fill(item, values) for key, item in template.items()}


def is_present(value: Json) -> bool:
    """Whether there is something to show: neither null nor empty text."""
    return value is not None and value != ""


def _first(paths: str, values: Mapping[str, Json]) -> Json:
    for path in paths.split("|"):
        found = _lookup(path, values)
        if is_present(found):
            return found
    return None


def _lookup(path: str, values: Mapping[str, Json]) -> Json:
    current: Json = dict(values)
    for part in path.split("."):
        if not isinstance(current, dict):
            return None
        current = current.get(part)
    return current


def _words(value: Json) -> str:
    if not is_present(value):
        return MISSING
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(value) or MISSING
    return canonical_bytes(value).decode()
