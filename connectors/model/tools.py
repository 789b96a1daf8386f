"""Tools of a chat: reads the tool calls of a model's answer, and checks tools before they are sent.

Arguments stay the text that the model wrote, even if it is broken JSON; the caller decides about it.
"""

from __future__ import annotations

import json
from collections import Counter

from core.canonical import Json, JsonObject
from core.errors import InputError

CALLS_MAX = 128
NAME_CHARS_MAX = 256
ID_CHARS_MAX = 256
ARGUMENT_BYTES_MAX = 256 * 1024
_CALLS = "the model's tool_calls"


def misuse(values: JsonObject) -> str | None:
    """The reason why these tools cannot be offered, as a sentence; None if they can."""
    names = [_text(_object(_object(tool).get("function")).get("name")) for tool in _list(values.get("tools"))]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return f"tools: the name {twice[0]!r} is taken twice; each tool has a name of its own"
    choice = values.get("tool_choice")
    wanted = _object(_object(choice).get("function")).get("name")
    if isinstance(choice, dict) and wanted not in names:
        return f"tool_choice: no tool has the name {wanted!r}; name one of tools"
    return None


def tool_calls(message: JsonObject) -> list[Json]:
    """The calls of an answer, each as ``{id, type, function: {name, arguments}}``; ``InputError`` if one is malformed.

    Some servers omit ids; such a call gets an id by its place. Two calls with one id are an error.
    """
    given = message.get("tool_calls")
    if given is None:
        return []
    if not isinstance(given, list):
        raise InputError("must be a list", where=_CALLS)
    if len(given) > CALLS_MAX:
        raise InputError(f"has {len(given)} calls; at most {CALLS_MAX} are accepted", where=_CALLS)
    calls = [_call(item, at) for at, item in enumerate(given)]
    ids = Counter(str(call["id"]) for call in calls)
    twice = next((name for name, count in ids.items() if count > 1), None)
    if twice is not None:
        raise InputError(f"has {ids[twice]} calls with the id {twice!r}", where=_CALLS)
    return [*calls]


def _call(item: Json, at: int) -> JsonObject:
    where = f"{_CALLS}[{at}]"
    if not isinstance(item, dict):
        raise InputError("must be an object", where=where)
    if item.get("type", "function") != "function" or not isinstance(item.get("function"), dict):
        raise InputError("must be the call of a function", where=where)
    function = _object(item["function"])
    name, named = function.get("name"), item.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        raise InputError(f"must be a text of 1 to {NAME_CHARS_MAX} characters", where=f"{where}.function.name")
    if named is None or named == "":
        named = f"call_{at + 1}"
    if not isinstance(named, str) or len(named) > ID_CHARS_MAX:
        raise InputError(f"must be a text of 1 to {ID_CHARS_MAX} characters", where=f"{where}.id")
    return {"id": named, "type": "function", "function": {"name": name, "arguments": _arguments(function, where)}}


def _arguments(function: JsonObject, where: str) -> str:
    """The arguments as text. Some servers send an object, others leave them out."""
    where, given = f"{where}.function.arguments", function.get("arguments")
    if isinstance(given, dict):
        given = _written(given, where)
    if given is None:
        return ""
    if not isinstance(given, str):
        raise InputError("must be a text or an object", where=where)
    size = len(given.encode(errors="replace"))
    if size > ARGUMENT_BYTES_MAX:
        raise InputError(f"are {size} bytes long; at most {ARGUMENT_BYTES_MAX} are accepted", where=where)
    return given


def _written(arguments: JsonObject, where: str) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise InputError("holds a number that JSON does not have", where=where) from None


def _object(value: Json | None) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: Json | None) -> list[Json]:
    return value if isinstance(value, list) else []


def _text(value: Json | None) -> str:
    return value if isinstance(value, str) else ""
