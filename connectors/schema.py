"""Validates values by JSON Schemas. Errors name the place and never repeat the value, which may be secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from core.canonical import Json
from core.errors import InputError, path_text
from core.escaping import Language

EVIDENCE_TREATMENTS = ("value", "digest", "omit")

# Keywords under which a mark would apply to some values only. We do not look there, so a mark there is refused.
CONDITIONAL = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "patternProperties", "dependentSchemas", "prefixItems"}
)

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
    """The schema's validator; ``ValidationError``, a ``ValueError``, if the schema is invalid. It fetches nothing.

    It asserts formats: uuid, email, date, date-time, uri and the others of JSON Schema 2020-12.
    """
    return Draft202012Validator(dict(schema), offline=True, validate_formats=True)


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


def check_keywords(schema: Json, *, marks: bool = True) -> None:
    """Refuse references out of the document, unknown marks, and marks in places where nothing reads them."""
    if isinstance(schema, list):
        for item in schema:
            check_keywords(item, marks=marks)
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise ValueError(f"$ref {reference!r} leaves the document; only references that start with # are followed")
    treatment = schema.get("x-evidence", "digest")
    if not isinstance(treatment, dict) and treatment not in EVIDENCE_TREATMENTS:
        raise ValueError(f"x-evidence is {treatment!r}; it must be one of {', '.join(EVIDENCE_TREATMENTS)}")
    if not isinstance(schema.get("x-secret", False), bool | dict):
        raise ValueError("x-secret must be true or false")
    language = schema.get("x-language", Language.HTML)
    if not isinstance(language, dict) and language not in [*Language]:
        raise ValueError(f"x-language is {language!r}; it must be one of {', '.join(Language)}")
    if not marks and {"x-evidence", "x-secret", "x-language"} & schema.keys():
        raise ValueError("x-evidence, x-secret and x-language belong in properties, items or additionalProperties")
    for name, item in schema.items():
        check_keywords(item, marks=marks and name not in CONDITIONAL)
