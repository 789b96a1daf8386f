"""The likeness of a call: two calls that people would take for the same have one. It is compared, and never sent.

A rejection binds all calls that are alike (``runtime.engine.refusals``): another blank, an empty member, a header or
another operation of the same handler makes no other call. Another amount, address, person or record does.
"""

from __future__ import annotations

import unicodedata

from core.canonical import INTEGER_MAX, Json, JsonObject

# What is not a part of what is done: how it is sent, and what is expected of the answer.
_BESIDES = {"http:send": frozenset({"headers", "expect_status", "expect_json"})}


def likeness(handler: str, values: JsonObject) -> JsonObject:
    """Reduce a call of this handler to what makes a difference to people."""
    besides = _BESIDES.get(handler, frozenset[str]())
    made = plain({name: value for name, value in values.items() if name not in besides})
    return made if isinstance(made, dict) else {}


def plain(value: Json) -> Json:
    """The value without case, blanks, invisible characters and empty members; a whole number as such."""
    if isinstance(value, str):
        if not value.isascii():  # ASCII has one form, and nothing invisible
            seen = unicodedata.normalize("NFKC", value)
            value = "".join(char for char in seen if unicodedata.category(char) != "Cf")
        return " ".join(value.casefold().split())
    if isinstance(value, float) and value.is_integer() and abs(value) <= INTEGER_MAX:  # beyond it no integer is kept
        return int(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        members = {name: plain(item) for name, item in value.items()}
        return {name: item for name, item in members.items() if item not in (None, "", [], {})}
    return value
