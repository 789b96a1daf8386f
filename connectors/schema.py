"""Validates values by JSON Schemas. Errors name the place and never repeat the value, which may be secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from core.budgets import most
from core.canonical import Json
from core.errors import InputError, path_text
from core.escaping import Language

EVIDENCE_TREATMENTS = ("value", "digest", "omit")

# Keywords under which a mark would apply to some values only. Marks are not read there, so one there is refused.
CONDITIONAL = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "patternProperties", "dependentSchemas", "prefixItems"}
)

# The most parts of a schema after its references are followed: each part may apply to the same value.
PARTS_MAX = most("schema_parts")
REFERENCES_MAX = 100
# Other keywords that name or refer to schemas; they are not supported.
_OTHER_NAMES = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef"})
# Keywords whose schemas apply to the same value as the schema around them: a reference back in one doubles the work.
_SAME_VALUE = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "patternProperties"}
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

    It asserts formats: uuid, email, date, date-time, uri and the others of JSON Schema 2020-12. ``InputError`` if the
    references of the schema, which an earlier release may have frozen, make it too large to validate by.
    """
    try:
        check_references(schema)
    except ValueError as error:
        raise InputError(str(error)) from None
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


def check_references(schema: Mapping[str, Any]) -> None:
    """Refuse a schema whose references make it too large, or lead back to a schema for the same value."""
    if _Expansion(schema).parts(dict(schema), same_value=False) > PARTS_MAX:
        raise ValueError(f"has more than {PARTS_MAX} parts once its references are followed")


class _Expansion:
    """Counts the parts of a schema with its references followed, each reference once."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._counted: dict[tuple[str, bool], int] = {}
        self._open: list[str] = []

    def parts(self, schema: Json, *, same_value: bool) -> int:
        """The parts of one schema. ``same_value``: it applies to a value that another schema applies to as well."""
        if isinstance(schema, list):
            return sum(self.parts(item, same_value=same_value) for item in schema)
        if not isinstance(schema, dict):
            return 0
        parts = 1
        for name, item in schema.items():
            if name in ("const", "enum", "default", "examples", "$defs", "definitions"):
                continue
            if name in _OTHER_NAMES and isinstance(item, str):
                raise ValueError(f"{name} is not supported; give a $ref a path in the document, such as #/$defs/name")
            if name == "$ref" and isinstance(item, str):
                parts += self._followed(item, same_value=same_value)
            else:
                parts += self.parts(item, same_value=same_value or name in _SAME_VALUE)
        return parts

    def _followed(self, reference: str, *, same_value: bool) -> int:
        if reference in self._open:
            if same_value:
                raise ValueError(f"$ref {reference!r} leads back to itself within {', '.join(sorted(_SAME_VALUE))}")
            return 1
        if (reference, same_value) not in self._counted:
            if len(self._open) == REFERENCES_MAX:
                raise ValueError(f"has references that lead from one to the next more than {REFERENCES_MAX} times")
            found = pointed(self._root, reference)
            if not isinstance(found, dict | bool):
                raise ValueError(f"$ref {reference!r} points to no schema of the document")
            self._open.append(reference)
            self._counted[reference, same_value] = self.parts(found, same_value=same_value)
            self._open.pop()
        return self._counted[reference, same_value]


def pointed(root: Mapping[str, Any], reference: str) -> Json:
    """The target of a reference within a document (``#/$defs/name``); None if there is nothing."""
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
    return cast(Json, found)


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
