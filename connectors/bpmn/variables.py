"""Process variables as the engine writes them, ``{"value", "type", "valueInfo"}``, and as plain JSON.

Types: https://docs.camunda.org/manual/7.21/user-guide/process-engine/variables/#supported-variable-values
"""

from __future__ import annotations

import json

from core.bounded_json import BODY_BYTES_MAX, parse
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import InputError

OWN_PREFIX = "counterseal_"
TEXT_LENGTH_MAX = 4000
INTEGER_MAX = 2**31 - 1
_JSON_FORMAT = "application/json"


def typed(values: JsonObject) -> JsonObject:
    """Each value with the type that it has in the engine; lists and objects go as ``Json``.

    ``InputError`` names a text longer than the engine's column for it.
    """
    return {name: _typed(name, value) for name, value in values.items()}


def plain(variables: Json) -> JsonObject:
    """The process's own variables as plain JSON, without ours. ``InputError`` if they cannot be recorded.

    ``Json`` values, and ``Object`` values that were serialized as JSON, are read; a file is its null value.
    """
    output = {name: _plain(name, item) for name, item in items(variables).items() if not name.startswith(OWN_PREFIX)}
    size = len(canonical_bytes(output))
    if size > BODY_BYTES_MAX:
        raise InputError(f"are {size} bytes long; at most {BODY_BYTES_MAX} are accepted", where="variables")
    return output


def text(variables: Json, name: str) -> str | None:
    """One variable of the engine that holds text; None where it is absent, null or something else."""
    value = items(items(variables).get(name)).get("value")
    return value if isinstance(value, str) else None


def holds(variables: Json, name: str) -> bool:
    """Whether a variable of the engine is there and not null, whatever its type."""
    return items(items(variables).get(name)).get("value") is not None


def items(value: Json) -> JsonObject:
    """What the engine says as an object; nothing where it says something else."""
    return value if isinstance(value, dict) else {}


def _typed(name: str, value: Json) -> JsonObject:
    if value is None:
        return {"value": None, "type": "Null"}
    if isinstance(value, bool):
        return {"value": value, "type": "Boolean"}
    if isinstance(value, int):
        return {"value": value, "type": "Integer" if -INTEGER_MAX <= value <= INTEGER_MAX else "Long"}
    if isinstance(value, float):
        return {"value": value, "type": "Double"}
    if isinstance(value, str):
        if len(value) > TEXT_LENGTH_MAX:
            raise InputError(
                f"holds {len(value)} characters; the engine keeps {TEXT_LENGTH_MAX} of a text",
                where=f"variables.{name}",
                remedy="Put the text into an object or a list.",
            )
        return {"value": value, "type": "String"}
    return {"value": json.dumps(value, ensure_ascii=False, separators=(",", ":")), "type": "Json"}


def _plain(name: str, item: Json) -> Json:
    if not isinstance(item, dict):
        raise InputError("is not a variable with a value", where=f"variables.{name}")
    value, info = item.get("value"), items(item.get("valueInfo"))
    serialized = item.get("type") == "Object" and info.get("serializationDataFormat") == _JSON_FORMAT
    if (item.get("type") == "Json" or serialized) and isinstance(value, str):
        return parse(value.encode(), bytes_max=BODY_BYTES_MAX, where=f"variables.{name}")
    return value
