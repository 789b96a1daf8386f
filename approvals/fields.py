"""The fields of a form, and checks of their values. Pure; used through ``approvals.forms``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sized
from datetime import date
from enum import StrEnum
from typing import Any, TypeAlias
from urllib.parse import quote_plus, urlsplit

from jsonschema_rs import Draft202012Validator, ValidationError
from msgspec import Struct

from core.bounded_json import UNSTORABLE
from core.canonical import INTEGER_MAX, Json
from core.errors import path_text, sentences
from core.legible import confusing, isolated

OPTION_CHARACTERS_MAX = 75
TEXT_CHARACTERS_MAX = 3000
_OPTIONS_NAMED = 10

FieldPath: TypeAlias = tuple[str | int, ...]


class FormProblem(Struct, frozen=True):
    """One fault of a form or of a value. ``path`` is its place from the root; () is the whole."""

    path: FieldPath
    message: str
    remedy: str = ""

    @property
    def where(self) -> str:
        """The place as text, such as ``properties.owner.enum[3]``; "" for the whole."""
        return path_text(self.path)

    @property
    def sentence(self) -> str:
        """The fault and its remedy, for people."""
        return sentences(self.message, self.remedy)


class FieldKind(StrEnum):
    """The kind of input that a field takes."""

    TEXT = "text"
    DATE = "date"
    EMAIL = "email"
    URI = "uri"
    CHOICE = "choice"
    CHOICES = "choices"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


class FormField(Struct, frozen=True):
    """One property of an accepted form. ``options`` are those of a choice; ``schema`` is the property's schema."""

    name: str
    kind: FieldKind
    title: str
    description: str
    required: bool
    options: tuple[str, ...]
    schema: Mapping[str, Any]


def kind_of(schema: Mapping[str, Any]) -> FieldKind | None:
    """The kind of a property's field; None if no face can show it."""
    match schema:
        case {"type": "string", "enum": _}:
            return FieldKind.CHOICE
        case {"type": "string", "format": "date" | "email" | "uri" as name}:
            return FieldKind(name)
        case {"type": "string", "format": _}:
            return None
        case {"type": "string"}:
            return FieldKind.TEXT
        case {"type": "integer" | "number" | "boolean" as name}:
            return FieldKind(name)
        case {"type": "array"}:
            return FieldKind.CHOICES
        case _:
            return None


def fields_of(form: Mapping[str, Any]) -> tuple[FormField, ...]:
    """The fields of a form for which ``check_form`` found nothing, in the author's order."""
    required = form.get("required", ())
    return tuple(field_of(name, schema, required=name in required) for name, schema in form["properties"].items())


def field_of(name: str, schema: Mapping[str, Any], *, required: bool = False) -> FormField:
    """The field that an accepted property describes."""
    kind = kind_of(schema)
    if kind is None:
        raise ValueError(f"the field {name!r} was never accepted by check_form")
    options = (schema["items"] if kind is FieldKind.CHOICES else schema).get("enum", ())
    return FormField(
        name, kind, schema.get("title", name), schema.get("description", ""), required, tuple(options), schema
    )


def faults_of(field: FormField, value: Json) -> list[FormProblem]:
    """The faults of one field's value; paths begin with the field's name."""
    at: FieldPath = (field.name,)
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
        return [FormProblem(at, f"It has {len(value)} characters.", f"At most {TEXT_CHARACTERS_MAX} are accepted.")]
    if isinstance(value, str) and UNSTORABLE.search(value):
        return [FormProblem(at, "It holds a character that cannot be stored.", "Remove U+0000 and lone surrogates.")]
    if isinstance(value, int | float) and not abs(value) <= INTEGER_MAX:
        return [FormProblem(at, "The number is too large.", f"At most {INTEGER_MAX}, above or below zero.")]
    if field.kind is FieldKind.CHOICES and isinstance(value, list):
        return _choices_faults(field, value)
    errors = list(_validator(field.schema).iter_errors(value))
    wrong_type = [error for error in errors if error.kind.name == "type"]
    return [FormProblem(at, *_words(field, error)) for error in wrong_type or errors]


def _choices_faults(field: FormField, value: list[Json]) -> list[FormProblem]:
    """The faults of a list of options. The list is a set, because no face can offer an option twice."""
    at, once = (field.name,), "Name each at most once."
    if len(value) > len(field.options):
        return [FormProblem(at, f"It names {len(value)} options, and there are {len(field.options)}.", once)]
    remedy = _one_of(field.options)
    strange = [index for index, item in enumerate(value) if item not in field.options]
    if strange:
        return [FormProblem((field.name, index), "It is none of the options.", remedy) for index in strange]
    if len({str(item) for item in value}) < len(value):
        return [FormProblem(at, "It names an option twice.", once)]
    return [FormProblem(at, *_words(field, error)) for error in _validator(field.schema).iter_errors(value)]


def _validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(dict(schema), formats=_FORMATS, validate_formats=True, offline=True)


def _words(field: FormField, error: ValidationError) -> tuple[str, str]:
    """The message and remedy for one error of the validator."""
    given, limit = error.instance, error.kind.value
    if limits := _LIMIT_WORDS.get(error.kind.name):
        return limits[0].format(len(given) if isinstance(given, Sized) else given), limits[1].format(limit)
    wrong, remedy = _KIND_WORDS[field.kind]
    return wrong, remedy or _one_of(field.options)


def _one_of(options: tuple[str, ...]) -> str:
    named = ", ".join(options[:_OPTIONS_NAMED])
    more = len(options) - _OPTIONS_NAMED
    return f"One of {named} and {more} more." if more > 0 else f"One of {named}."


_LIMIT_WORDS = {
    "minLength": ("It has {} characters.", "At least {} are needed."),
    "maxLength": ("It has {} characters.", "At most {} are accepted."),
    "minimum": ("The number is too small.", "At least {}."),
    "maximum": ("The number is too large.", "At most {}."),
    "minItems": ("It names {} options.", "At least {} are needed."),
    "maxItems": ("It names {} options.", "At most {} are accepted."),
}
_KIND_WORDS = {
    FieldKind.TEXT: ("It is not a text.", "Write text."),
    FieldKind.DATE: ("It is not a date.", "Write it as 2026-12-31."),
    FieldKind.EMAIL: ("It is not an email address.", "Write it as name@example.com."),
    FieldKind.URI: ("It is not a web address (URI).", "Write it with its beginning, as https://example.com/page."),
    FieldKind.CHOICE: ("It is none of the options.", ""),
    FieldKind.CHOICES: ("It is not a list of options.", "Write a list."),
    FieldKind.INTEGER: ("It is not a whole number.", "Write digits only."),
    FieldKind.NUMBER: ("It is not a number.", "Write it as 12 or 0.5."),
    FieldKind.BOOLEAN: ("It is neither true nor false.", "Choose one of the two."),
}
# HTML Living Standard, "valid email address"; RFC 3986, the characters of a URI after its scheme.
_EMAIL = re.compile(
    r"[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}"
    r"@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*"
)
_EMAIL_CHARACTERS_MAX = 254
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


def _is_email(text: str) -> bool:
    return bool(len(text) <= _EMAIL_CHARACTERS_MAX and _EMAIL.fullmatch(text))


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(_URI.fullmatch(text) and (parts.hostname or parts.scheme not in ("http", "https")))


# Our own formats instead of the library's: they accept exactly what Slack's fields for addresses and links accept.
_FORMATS = {"date": _is_date, "email": _is_email, "uri": _is_uri}

# The largest form that Slack can carry. Slack sends the modal back with each submission, form-encoded, and the entered
# values need room in it too.
WEIGHT_MAX = 36 * 1024  # bytes, as weight_of counts them
_FIELD_WEIGHT = 480
_PARAGRAPH_WEIGHT = 300
_OPTION_WEIGHT = 150
_CODE_CHARACTERS = 9  # ⟨U+E0100⟩
_CODE_BYTES = 25  # the same, form-encoded


def weight_of(form: Mapping[str, Any]) -> int:
    """An upper bound, in bytes, of the part of each submission that comes from the form itself.

    It is computed without rendering the form, so that publishing a workflow depends on no face.
    """
    total = 2 * _PARAGRAPH_WEIGHT + _encoded(form.get("title", "")) + _encoded(form.get("description", ""))
    for field in fields_of(form):
        default = field.schema.get("default", [])
        chosen = default if isinstance(default, list) else [default]
        answers = ("Yes", "No") if field.kind is FieldKind.BOOLEAN else field.options
        total += _FIELD_WEIGHT + 2 * len(field.name) + _encoded(field.title) + _encoded(field.description)
        total += sum(_OPTION_WEIGHT + _encoded(str(words)) for words in (*answers, *chosen))
        # An option that Slack would truncate is shown in full in a paragraph before the field.
        total += sum(_PARAGRAPH_WEIGHT + _encoded(words) for words in field.options if _may_be_cut(words))
    return total


def _encoded(text: str) -> int:
    """An upper bound of the encoded length of a text in a submission."""
    coded = _coded(text)
    plain = "".join(character for at, character in enumerate(text) if at not in coded)
    isolations = 0 if isolated(text) == text else text.count("\n") + 1
    return len(quote_plus(json.dumps(plain))) + _CODE_BYTES * (len(coded) + isolations)


def _may_be_cut(option: str) -> bool:
    coded = len(_coded(option))
    return len(isolated(option)) - coded + _CODE_CHARACTERS * coded > OPTION_CHARACTERS_MAX


def _coded(text: str) -> set[int]:
    """The places of characters that a face may show as codes, when it shows the text as a whole or line by line."""
    found = {at for at, character in enumerate(text) if _is_coded(character)} | set(confusing(text))
    start = 0
    for line in text.split("\n"):
        found |= {start + at for at in confusing(line)}
        start += len(line) + 1
    return found


def _is_coded(character: str) -> bool:
    """True if a face may show the character as a code such as ⟨U+0060⟩, because it could forge or hide something."""
    return character == "`" or not (character.isascii() or character.isalpha())
