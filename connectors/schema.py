"""Values against JSON Schemas, with errors that name the place and never repeat the value, which may be secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from core.canonical import Json
from core.errors import InputError, path_text

_ARTICLES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_SENTENCES = {
    "required": "{!r} is a required property",
    "const": "must be {}",
    "pattern": "must match the pattern {}",
    "anyOf": "fits none of the forms that are allowed here",
    "oneOf": "must fit exactly one form",
}


def validator_of(schema: Mapping[str, Any]) -> Draft202012Validator:
    """The schema's validator; ``ValidationError``, a ``ValueError``, if it is none. It fetches nothing."""
    return Draft202012Validator(dict(schema), offline=True)


def misfit(validator: Draft202012Validator, value: Json, *, where: str) -> InputError:
    """The error that says why a value does not fit."""
    faults = sorted(validator.iter_errors(value), key=lambda fault: [str(part) for part in fault.instance_path])
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    return InputError(f"{_sentence(faults[0])}{more}", where=path_text(faults[0].instance_path, where))


def _sentence(fault: ValidationError) -> str:
    rule, wanted = fault.kind.name, fault.kind.value
    match rule:
        case "propertyNames":
            assert isinstance(fault.kind, ValidationErrorKind.PropertyNames)
            return f"may not have a property named {fault.kind.error.instance!r}"
        case "additionalProperties":
            return fault.message
        case "type":
            return "must be " + " or ".join(_ARTICLES.get(kind, kind) for kind in wanted)
        case "enum":
            return "must be one of " + ", ".join(str(choice) for choice in wanted)
    return _SENTENCES[rule].format(wanted) if rule in _SENTENCES else f"breaks the rule {rule}: {wanted}"
