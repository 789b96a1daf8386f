"""Values against JSON Schemas, with errors that name the place and never repeat the value, which may be secret."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from core.canonical import Json
from core.errors import InputError

_NAMES_ONLY = frozenset({"required", "additionalProperties", "dependentRequired"})
_ARTICLES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def check(validator: Draft202012Validator, value: Json, *, where: str) -> None:
    """``InputError`` naming the JSON path of the first fault and how many more there are."""
    faults = sorted(validator.iter_errors(value), key=lambda fault: [str(part) for part in fault.absolute_path])
    if not faults:
        return
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    raise InputError(f"{_sentence(faults[0])}{more}", where=where + _path(faults[0].absolute_path))


def _path(parts: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _sentence(fault: ValidationError) -> str:
    rule: Any = fault.validator
    wanted: Any = fault.validator_value
    if "propertyNames" in fault.absolute_schema_path:
        return f"may not have a property named {fault.instance!r}"
    if rule in _NAMES_ONLY:
        return fault.message
    if rule == "type":
        kinds = [wanted] if isinstance(wanted, str) else list(wanted)
        return "must be " + " or ".join(_ARTICLES.get(kind, kind) for kind in kinds)
    if rule == "enum":
        return "must be one of " + ", ".join(str(choice) for choice in wanted)
    if rule == "const":
        return f"must be {wanted}"
    if rule == "pattern":
        return f"must match the pattern {wanted}"
    if rule in {"oneOf", "anyOf"}:
        return "fits none of the forms that are allowed here" if rule == "anyOf" else "must fit exactly one form"
    return f"breaks the rule {rule}: {wanted}"
