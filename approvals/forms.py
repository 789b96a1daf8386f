"""Forms that people fill in: the part of JSON Schema 2020-12 that every face can show, and checks of values against it.

A form is a flat object. Its limits are those of the narrowest face, a modal in Slack, so every face can show an
accepted form. ``check_form`` runs when the workflow is published, so faults are found before a run waits for a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from approvals.fields import (
    OPTION_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    WEIGHT_MAX,
    FieldKind,
    FieldPath,
    FormField,
    FormProblem,
    faults_of,
    field_of,
    fields_of,
    kind_of,
    weight_of,
)
from core.canonical import INTEGER_MAX, Json, JsonObject, canonical_bytes
from core.errors import InputError

__all__ = ["FieldKind", "FormField", "FormProblem", "check_form", "check_value", "fields_of"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FIELDS_MAX = 20
OPTIONS_MAX = 100
TITLE_CHARACTERS_MAX = 200  # Slack: 2000 for a label; an unusual character takes up to nine characters as a code
DESCRIPTION_CHARACTERS_MAX = 1000
VALUE_BYTES_MAX = 64 * 1024
_STRANGERS_NAMED = 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Printable by their Unicode category, but invisible.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_FORM_KEYS = frozenset({"$schema", "type", "title", "description", "properties", "required", "additionalProperties"})
_COMMON_KEYS = frozenset({"type", "title", "description", "default"})
KEYS_OF: dict[FieldKind, frozenset[str]] = {
    FieldKind.TEXT: frozenset({"minLength", "maxLength", "x-multiline"}),
    FieldKind.DATE: frozenset({"format"}),
    FieldKind.EMAIL: frozenset({"format", "minLength", "maxLength"}),
    FieldKind.URI: frozenset({"format", "minLength", "maxLength"}),
    FieldKind.CHOICE: frozenset({"enum"}),
    FieldKind.CHOICES: frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
    FieldKind.INTEGER: frozenset({"minimum", "maximum"}),
    FieldKind.NUMBER: frozenset({"minimum", "maximum"}),
    FieldKind.BOOLEAN: frozenset(),
}


def check_value(form: Mapping[str, Any], value: Json) -> list[FormProblem]:
    """All faults of ``value`` as the answer to an accepted form; paths begin with a field's name.

    Stricter than JSON Schema in three ways: unknown properties are refused, formats are checked, and a list of options
    has no duplicates. Check a value before storing it: only accepted values are sure to have a canonical form.
    """
    if not isinstance(value, dict):
        return [FormProblem((), "The value of a form is an object.", "Give the fields by their names.")]
    fields = {field.name: field for field in fields_of(form)}
    strangers = [name for name in value if name not in fields]
    known = f"Its fields are {', '.join(fields)}."
    problems = [FormProblem((name,), "The form has no such field.", known) for name in strangers[:_STRANGERS_NAMED]]
    if len(strangers) > _STRANGERS_NAMED:
        problems.append(FormProblem((), f"The form has none of {len(strangers)} fields that were given.", known))
    for field in fields.values():
        if field.name in value:
            problems += faults_of(field, value[field.name])
        elif field.required:
            problems.append(FormProblem((field.name,), "It is missing.", "This field has to be filled in."))
    if problems:
        return problems
    try:
        size = len(canonical_bytes(value))
    except InputError as error:
        return [FormProblem((), f"The value {error.message}.")]
    too_large = f"At most {VALUE_BYTES_MAX} are accepted; write less."
    return [FormProblem((), f"The value has {size} bytes.", too_large)] if size > VALUE_BYTES_MAX else []


def check_form(form: Json) -> list[FormProblem]:
    """All faults of this JSON Schema as a form, each with its place and a remedy."""
    if not isinstance(form, dict):
        return [FormProblem((), "A form is a JSON Schema object.", "Write type: object and properties.")]
    problems = [*_faults(form)]
    if not problems and (weight := weight_of(form)) > WEIGHT_MAX:
        message = f"The form is too large to be shown: {weight} of at most {WEIGHT_MAX} encoded bytes."
        return [FormProblem(("properties",), message, "Use fewer options or words, or split it into several tasks.")]
    return problems


def _faults(form: JsonObject) -> Iterator[FormProblem]:
    yield from _unknown(form, _FORM_KEYS, (), "a form")
    yield from _labels(form, ())
    if form.get("type") != "object":
        yield FormProblem(("type",), "A form has the type object.", "Write type: object.")
    if form.get("$schema", DIALECT) != DIALECT:
        yield FormProblem(("$schema",), "Forms are written in JSON Schema 2020-12.", f"Write {DIALECT}.")
    if form.get("additionalProperties", False) is not False:
        message = "A form takes no other properties than those that it names."
        yield FormProblem(("additionalProperties",), message, "Leave it out, or write false.")
    properties = form.get("properties")
    if not isinstance(properties, dict) or not 0 < len(properties) <= FIELDS_MAX:
        message = f"A form has between 1 and {FIELDS_MAX} properties."
        yield FormProblem(("properties",), message, "Split a longer form into several tasks.")
        return
    yield from _required(form.get("required", []), properties)
    for name, schema in properties.items():
        yield from _property(name, schema)


def _required(required: Json, properties: Mapping[str, Json]) -> Iterator[FormProblem]:
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield FormProblem(("required",), "It is not a list of names.", "List the properties that are required.")
        return
    known = f"The properties are {', '.join(properties)}."
    for index, name in enumerate(required):
        if name not in properties:
            yield FormProblem(("required", index), f"There is no property {name!r}.", known)
        elif name in required[:index]:
            yield FormProblem(("required", index), f"{name!r} is named twice.", "Name it once.")


def _property(name: str, schema: Json) -> Iterator[FormProblem]:
    at: FieldPath = ("properties", name)
    if not _NAME.fullmatch(name):
        remedy = "Letters, digits and underscores, no digit first, at most 64; the title may say more."
        yield FormProblem(at, f"{name!r} is no name of a field.", remedy)
    if not isinstance(schema, dict):
        yield FormProblem(at, "A property is described by an object.", "Write its type.")
        return
    kind = kind_of(schema)
    if kind is None and schema.get("type") == "string":
        remedy = "One of date, email, uri; or leave it out."
        yield FormProblem((*at, "format"), "No form can show this format.", remedy)
    elif kind is None:
        remedy = "One of string, integer, number, boolean, array; a property that may be left out is not in `required`."
        yield FormProblem((*at, "type"), "No form can show a property of this type.", remedy)
    else:
        faults = [*_of_kind(schema, kind, at)]
        yield from faults
        if "default" in schema and not faults and _NAME.fullmatch(name):
            yield from _default(field_of(name, schema), schema["default"], (*at, "default"))


def _of_kind(schema: JsonObject, kind: FieldKind, at: FieldPath) -> Iterator[FormProblem]:
    """The faults of a field of this kind, except those of its default."""
    yield from _unknown(schema, _COMMON_KEYS | KEYS_OF[kind], at, f"a field of this type ({kind})")
    yield from _labels(schema, at)
    yield from _limits(schema, kind, at)
    if kind is FieldKind.CHOICE:
        yield from _options(schema["enum"], (*at, "enum"))
    elif kind is FieldKind.CHOICES:
        yield from _items(schema, at)


def _unknown(schema: Mapping[str, Json], known: frozenset[str], at: FieldPath, what: str) -> Iterator[FormProblem]:
    remedy = f"Known here: {', '.join(sorted(known))}."
    for key in sorted(schema.keys() - known):
        yield FormProblem((*at, key), f"{key!r} means nothing in {what}.", remedy)


def _labels(schema: Mapping[str, Json], at: FieldPath) -> Iterator[FormProblem]:
    for key, limit in (("title", TITLE_CHARACTERS_MAX), ("description", DESCRIPTION_CHARACTERS_MAX)):
        text = schema.get(key, "A")
        if not isinstance(text, str) or not text.strip() or len(text) > limit:
            message = f"It is not a text of 1 to {limit} characters."
            yield FormProblem((*at, key), message, "Shorten it, or leave it out.")
        else:
            yield from _unseen(text, (*at, key), lines=key == "description")


def _limits(schema: Mapping[str, Json], kind: FieldKind, at: FieldPath) -> Iterator[FormProblem]:
    whole = kind is not FieldKind.NUMBER
    for low, high, least, most in (
        ("minLength", "maxLength", 0, TEXT_CHARACTERS_MAX),
        ("minItems", "maxItems", 0, OPTIONS_MAX),
        ("minimum", "maximum", -INTEGER_MAX, INTEGER_MAX),
    ):
        given = [(key, schema[key]) for key in (low, high) if key in schema]
        wrong = [key for key, value in given if not _is_limit(value, least, most, whole=whole)]
        words = f"It is not a {'whole ' if whole else ''}number between {least} and {most}."
        for key in wrong:
            yield FormProblem((*at, key), words, "Correct it, or leave it out.")
        numbers = [value for _, value in given if isinstance(value, int | float)]
        if len(numbers) == 2 and not wrong and numbers[0] > numbers[1]:
            yield FormProblem((*at, high), f"It is less than {low}.", "No value could meet both.")
    for key in ("maxLength", "maxItems"):
        if schema.get(key) == 0:
            yield FormProblem((*at, key), "Nothing could be entered.", "At least 1.")
    if not isinstance(schema.get("x-multiline", False), bool):
        yield FormProblem((*at, "x-multiline"), "It is neither true nor false.", "Write true or false.")
    if schema.get("uniqueItems", True) is not True:
        message = "An option is named once or not at all."
        yield FormProblem((*at, "uniqueItems"), message, "Leave it out, or write true.")


def _is_limit(value: Json, least: int, most: int, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value <= most and (not whole or value == int(value))


def _items(schema: JsonObject, at: FieldPath) -> Iterator[FormProblem]:
    items, least = schema.get("items"), schema.get("minItems", 0)
    place: FieldPath = (*at, "items")
    if not isinstance(items, dict) or items.get("type") != "string" or "enum" not in items:
        yield FormProblem(place, "A list in a form is a list of options.", "Write {type: string, enum: [...]}.")
        return
    faults = [*_unknown(items, frozenset({"type", "enum"}), place, "the items of a list")]
    faults += _options(items["enum"], (*place, "enum"))
    yield from faults
    options = items["enum"]
    if not faults and isinstance(options, list) and isinstance(least, int | float) and least > len(options):
        most = len(options)
        yield FormProblem((*at, "minItems"), f"There are only {most} options.", f"At most {most}.")


def _options(options: Json, at: FieldPath) -> Iterator[FormProblem]:
    if not isinstance(options, list) or not 0 < len(options) <= OPTIONS_MAX:
        message = f"It is not a list of 1 to {OPTIONS_MAX} options."
        yield FormProblem(at, message, "If there are more, ask for a text.")
        return
    for index, option in enumerate(options):
        place = (*at, index)
        if not isinstance(option, str) or not option or option != option.strip() or len(option) > OPTION_CHARACTERS_MAX:
            message = f"An option is a text of 1 to {OPTION_CHARACTERS_MAX} characters, without spaces around it."
            yield FormProblem(place, message, "Shorten it; the description has room for more.")
        elif unseen := [*_unseen(option, place)]:
            yield from unseen
        elif option in options[:index]:
            yield FormProblem(place, "The option is there twice.", "Remove one.")


def _default(field: FormField, value: Json, at: FieldPath) -> list[FormProblem]:
    lines = field.schema.get("x-multiline", False)
    if isinstance(value, str) and (unseen := [*_unseen(value, at, lines=lines)]):
        return unseen
    return [FormProblem((*at, *fault.path[1:]), fault.message, fault.remedy) for fault in faults_of(field, value)]


def _unseen(text: str, at: FieldPath, *, lines: bool = False) -> Iterator[FormProblem]:
    """A fault for the first invisible character of the text, if any; With ``lines``, line breaks are allowed."""
    for character in text:
        if not ((character.isprintable() and character not in _BLANKS) or (lines and character == "\n")):
            yield FormProblem(at, f"It holds a character that cannot be seen (U+{ord(character):04X}).", "Remove it.")
            return
