"""Values against JSON Schemas, with errors that name the place and never repeat the value, which may be secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from core.canonical import Json
from core.errors import InputError, path_text

# Under these, keys are names and not keywords; under those, everything is a value and not a schema.
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples"})
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


def validator_of(schema: Mapping[str, Any]) -> Draft202012Validator:
    """The schema's validator. ``$`` in its patterns is the end of the text, as JSON Schema has it.

    Python's own ``$`` stands before a line break at the end as well.
    """
    return Draft202012Validator(_ended(schema, named=False))


def _ended(schema: Any, *, named: bool) -> Any:
    """A copy in which every pattern ends where ECMA-262 says that it ends."""
    if isinstance(schema, list):
        return [_ended(item, named=False) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for name, item in schema.items():
        if not named and name == "pattern" and isinstance(item, str):
            made[name] = _ended_pattern(item)
        elif not named and name == "patternProperties" and isinstance(item, Mapping):
            made[name] = {_ended_pattern(pattern): _ended(part, named=False) for pattern, part in item.items()}
        else:
            made[name] = item if not named and name in _VALUES else _ended(item, named=not named and name in _NAMED)
    return made


def _ended_pattern(pattern: str) -> str:
    r"""``$`` outside of a character class and not escaped becomes ``\Z``."""
    made, in_class, escaped = "", False, False
    for character in pattern:
        made += r"\Z" if character == "$" and not (in_class or escaped) else character
        if not escaped:
            in_class = character == "[" or (in_class and character != "]")
        escaped = character == "\\" and not escaped
    return made


def fault(validator: Draft202012Validator, value: Json, *, where: str) -> InputError:
    """What is wrong with a value that does not fit: the JSON path of the first fault, and how many more there are."""
    faults = sorted(validator.iter_errors(value), key=lambda fault: [str(part) for part in fault.absolute_path])
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    return InputError(f"{_sentence(faults[0])}{more}", where=path_text(faults[0].absolute_path, where))


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
        return "must match the pattern " + str(wanted).replace(r"\Z", "$")
    if rule in {"oneOf", "anyOf"}:
        return "fits none of the forms that are allowed here" if rule == "anyOf" else "must fit exactly one form"
    return f"breaks the rule {rule}: {wanted}"
