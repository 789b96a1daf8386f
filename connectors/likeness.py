"""Reduces a call to its likeness, which is equal for calls that people would consider the same. It is never sent.

A rejection binds all calls with the same likeness (``runtime.engine.refusals``): another blank, an empty member, a
header or another operation of the same handler makes no different call; another amount, address, person or record does.
"""

from __future__ import annotations

import unicodedata

from core.canonical import INTEGER_MAX, Json, JsonObject

# Inputs that do not change what is done: the manner of sending, and expectations of the answer.
_BESIDES = {"http:send": frozenset({"headers", "expect_status", "expect_json"})}


def likeness(handler: str, values: JsonObject) -> JsonObject:
    """Reduce a call of this handler to the parts that make a difference to people."""
    besides = _BESIDES.get(handler, frozenset[str]())
    made = plain({name: value for name, value in values.items() if name not in besides})
    return made if isinstance(made, dict) else {}


def plain(value: Json) -> Json:
    """The value without case, blanks, invisible characters and empty members; a whole number as an integer."""
    if isinstance(value, str):
        if not value.isascii():  # ASCII has one form, and nothing invisible
            seen = unicodedata.normalize("NFKC", value)
            value = "".join(char for char in seen if unicodedata.category(char) != "Cf")
        return " ".join(value.casefold().split())
    if isinstance(value, float) and value.is_integer() and abs(value) <= INTEGER_MAX:  # larger integers are not exact
        return int(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        members = {name: plain(item) for name, item in value.items()}
        return {name: item for name, item in members.items() if item not in (None, "", [], {})}
    return value
