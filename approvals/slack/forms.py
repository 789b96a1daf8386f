"""A form as Slack's input blocks, the entered values read back from them, and the faults of each field. Pure.

A field's name is both its ``block_id`` and its ``action_id``. An option's value is its position (``o0``, ``o1``, …),
because its text may exceed Slack's limit after structural characters are replaced by codes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import UNSET

from approvals.fields import FieldKind, FormField, FormProblem
from approvals.forms import fields_of
from approvals.slack.blocks import Block, entry, plain, plain_sections, sections
from core.canonical import Json, JsonObject
from core.legible import isolated, visible

# Marks a field that was left empty. Null differs: it is a value that no field accepts.
_EMPTY = UNSET

OPTION_CHARACTERS_MAX = 75  # Slack
HINT_CHARACTERS_MAX = 2000  # Slack
ERROR_CHARACTERS_MAX = 500  # our own limit: Slack shows it in red below one field
_NUMBER_CHARACTERS_MAX = 32  # a longer limit or default is not sent to Slack; only we check it
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_ENTERED_CHARACTERS_MAX = 400  # a longer text is never read as a number
_TRUE, _FALSE = "true", "false"


def input_blocks(form: Mapping[str, Any]) -> list[Block]:
    """One input block per field of an accepted form. Texts that do not fit a block are shown before it."""
    blocks = [*plain_sections(_words(form.get("title", ""))), *plain_sections(_words(form.get("description", "")))]
    for field in fields_of(form):
        blocks += _field_blocks(field)
    return blocks


def values_of(form: Mapping[str, Any], state: Mapping[str, Any]) -> JsonObject:
    """The entered values by field, from ``view.state.values``; a field that was left empty is absent.

    Never raises, whatever was sent: a value of the wrong shape becomes null and a malformed number stays text.
    ``check_value`` then refuses both at their field.
    """
    values: JsonObject = {}
    for field in fields_of(form):
        block = state.get(field.name)
        if block is None:
            continue
        element = block.get(field.name) if isinstance(block, dict) else ""
        if element is None:
            continue
        value = _value(field, element) if isinstance(element, dict) else None
        if value is not _EMPTY:
            values[field.name] = value
    return values


def errors_of(form: Mapping[str, Any], problems: Sequence[FormProblem]) -> dict[str, str]:
    """Faults by ``block_id``, as Slack shows them; faults of no field are shown at the first field."""
    names = [field.name for field in fields_of(form)]
    words: dict[str, list[str]] = {}
    for problem in problems:
        name = problem.path[0] if problem.path else ""
        words.setdefault(name if isinstance(name, str) and name in names else names[0], []).append(problem.sentence)
    return {name: cut(" ".join(dict.fromkeys(sentences)), ERROR_CHARACTERS_MAX) for name, sentences in words.items()}


def cut(text: str, limit: int) -> str:
    """Apply ``visible`` and truncate to ``limit`` characters; an ellipsis marks a truncated text."""
    shown = visible(text, edges=False)
    limit -= len(isolated(shown)) - len(shown)
    if len(shown) <= limit:
        return isolated(shown)
    head = shown[: limit - 1]
    escape = head.rfind("⟨")
    return isolated((head[:escape] if escape > head.rfind("⟩") else head) + "…")


def _words(text: str) -> str:
    """The author's words with their line breaks; invisible characters become codes."""
    return "\n".join(isolated(visible(line, edges=False)) for line in text.split("\n"))


def _field_blocks(field: FormField) -> list[Block]:
    hint = _words(field.description)
    long_options = [option for option in field.options if len(isolated(visible(option))) > OPTION_CHARACTERS_MAX]
    before = [] if len(hint) <= HINT_CHARACTERS_MAX else plain_sections(hint)
    before += sections([line for option in long_options for line in entry("Option", option)])
    block: Block = {
        "type": "input",
        "block_id": field.name,
        "optional": not field.required,
        "label": plain(isolated(visible(field.title, edges=False))),
        "element": {"action_id": field.name, **_element(field)},
    }
    if hint and len(hint) <= HINT_CHARACTERS_MAX:
        block["hint"] = plain(hint)
    return [*before, block]


def _element(field: FormField) -> Block:
    default: Any = field.schema.get("default")
    least = int(field.schema.get("minLength", 0))
    match field.kind:
        case FieldKind.TEXT:
            limits = {"max_length": int(field.schema.get("maxLength", 3000)), **_if("min_length", least)}
            multiline = field.schema.get("x-multiline", False)
            return {"type": "plain_text_input", "multiline": multiline, **limits, **_if("initial_value", default)}
        case FieldKind.EMAIL:
            return {"type": "email_text_input", **_if("initial_value", default)}
        case FieldKind.URI:
            return {"type": "url_text_input", **_if("initial_value", default)}
        case FieldKind.DATE:
            return {"type": "datepicker", **_if("initial_date", default)}
        case FieldKind.INTEGER | FieldKind.NUMBER:
            return _number_element(field, default)
        case FieldKind.BOOLEAN:
            options = [_option("Yes", _TRUE), _option("No", _FALSE)]
            chosen = {} if default is None else {"initial_option": options[0 if default else 1]}
            return {"type": "radio_buttons", "options": options, **chosen}
        case FieldKind.CHOICE | FieldKind.CHOICES:
            return _select_element(field, default)


def _number_element(field: FormField, default: Any) -> Block:
    element: Block = {"type": "number_input", "is_decimal_allowed": field.kind is FieldKind.NUMBER}
    for name, value in (
        ("min_value", field.schema.get("minimum")),
        ("max_value", field.schema.get("maximum")),
        ("initial_value", default),
    ):
        if value is not None and len(digits := _digits(value)) <= _NUMBER_CHARACTERS_MAX:
            element[name] = digits
    return element


def _select_element(field: FormField, default: Any) -> Block:
    options = [_option(cut(option, OPTION_CHARACTERS_MAX), f"o{index}") for index, option in enumerate(field.options)]
    if field.kind is FieldKind.CHOICE:
        chosen = {} if default is None else {"initial_option": options[field.options.index(default)]}
        return {"type": "static_select", "options": options, **chosen}
    element: Block = {"type": "multi_static_select", "options": options}
    if default:
        element["initial_options"] = [options[field.options.index(option)] for option in default]
    if (most := field.schema.get("maxItems")) is not None and most >= 1:
        element["max_selected_items"] = int(most)
    return element


def _option(words: str, value: str) -> Block:
    return {"text": plain(words), "value": value}


def _if(name: str, value: Any) -> Block:
    return {name: value} if value else {}


def _digits(value: float) -> str:
    """A number without an exponent, which Slack would not accept."""
    number = Decimal(repr(value))
    return format(number.quantize(Decimal(1)) if number == number.to_integral_value() else number, "f")


def _value(field: FormField, element: Mapping[str, Any]) -> Any:
    match field.kind:
        case FieldKind.BOOLEAN:
            return _chosen(element.get("selected_option"), {_TRUE: True, _FALSE: False})
        case FieldKind.CHOICE:
            return _chosen(element.get("selected_option"), _options(field))
        case FieldKind.CHOICES:
            selected = element.get("selected_options")
            if selected is None or selected == []:
                return _EMPTY
            return [_chosen(item, _options(field), None) for item in selected] if isinstance(selected, list) else None
    entered = element.get("selected_date" if field.kind is FieldKind.DATE else "value")
    if entered is not None and not isinstance(entered, str):
        return None
    words = (entered or "") if field.kind in (FieldKind.TEXT, FieldKind.DATE) else (entered or "").strip()
    if not words:
        return _EMPTY
    return _number(words) if field.kind in (FieldKind.INTEGER, FieldKind.NUMBER) else words


def _number(text: str) -> Any:
    if len(text) > _ENTERED_CHARACTERS_MAX or not _NUMBER.fullmatch(text):
        return text
    number = int(text) if _WHOLE.fullmatch(text) else float(text)
    return number if abs(number) != math.inf else text


def _chosen(option: Any, options: Mapping[str, Json], empty: Any = _EMPTY) -> Any:
    if option is None:
        return empty
    value = option.get("value") if isinstance(option, dict) else None
    return options.get(value) if isinstance(value, str) else None


def _options(field: FormField) -> dict[str, Json]:
    return {f"o{index}": option for index, option in enumerate(field.options)}
