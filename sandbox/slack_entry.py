"""People's entries in a modal, in the form in which Slack sends them, with the checks of Slack's own client."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

from sandbox.slack_blocks import DATE, NUMBER
from sandbox.slack_state import JsonObject

_TEXTS: Final = ("plain_text_input", "number_input", "email_text_input", "url_text_input")
_SEVERAL: Final = ("checkboxes", "multi_static_select")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+\Z")


def option_of(element: Mapping[str, Any], value: object) -> JsonObject | None:
    """The element's option with this value."""
    return next((dict(option) for option in element["options"] if option["value"] == value), None)


def state_values(blocks: list[JsonObject], given: Mapping[str, object]) -> tuple[JsonObject, dict[str, str]]:
    """The ``state.values`` of the submission, and the complaints of Slack's client by block_id."""
    values: JsonObject = {}
    errors: dict[str, str] = {}
    for block, element in _inputs(blocks):
        entered = given.get(block["block_id"], given.get(element["action_id"]))
        value = _entered(element, entered)
        values.setdefault(block["block_id"], {})[element["action_id"]] = value
        empty = not any(value[name] for name in value if name != "type")
        if empty and not block.get("optional"):
            errors[block["block_id"]] = "Please complete this required field."
        elif not empty and (complaint := _complaint(element, value)):
            errors[block["block_id"]] = complaint
    return values, errors


def _inputs(blocks: list[JsonObject]) -> Iterator[tuple[JsonObject, JsonObject]]:
    for block in blocks:
        if block["type"] == "input":
            yield block, block["element"]


def _entered(element: JsonObject, entered: object) -> JsonObject:
    """The value of one input; ``entered`` None: the person has kept the initial value."""
    kind = element["type"]
    if kind in _TEXTS or kind == "datepicker":
        initial, name = ("initial_date", "selected_date") if kind == "datepicker" else ("initial_value", "value")
        text = element.get(initial) if entered is None else str(entered)
        return {"type": kind, name: text or None}
    if kind in _SEVERAL:
        if entered is None:
            return {"type": kind, "selected_options": list(element.get("initial_options", []))}
        wanted = entered if isinstance(entered, list) else [entered]
        chosen = [option for value in wanted if (option := option_of(element, value)) is not None]
        return {"type": kind, "selected_options": chosen}
    option = option_of(element, entered) if entered is not None else element.get("initial_option")
    return {"type": kind, "selected_option": option}


def _complaint(element: JsonObject, value: JsonObject) -> str:
    """The complaint of Slack's client about an entered value; "" if there is none."""
    match element["type"]:
        case "number_input":
            return _number_complaint(element, str(value["value"]))
        case "email_text_input":
            return "" if _EMAIL.match(str(value["value"])) else "Please enter a valid email address."
        case "url_text_input":
            return "" if _is_url(str(value["value"])) else "Please enter a valid URL."
        case "datepicker":
            return "" if DATE.match(str(value["selected_date"])) else "Please enter a valid date."
        case "multi_static_select":
            most = int(element.get("max_selected_items", 100))
            return "" if len(value["selected_options"]) <= most else f"At most {most} can be chosen."
        case "plain_text_input":
            least, most = int(element.get("min_length", 0)), int(element.get("max_length", 3000))
            fits = least <= len(value["value"]) <= most
            return "" if fits else f"Between {least} and {most} characters are needed."
        case _:
            return ""


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path))


def _number_complaint(element: JsonObject, text: str) -> str:
    if not NUMBER.match(text):
        return "Please enter a valid number."
    if "." in text and not element["is_decimal_allowed"]:
        return "Please enter a whole number."
    number = Decimal(text)
    if "min_value" in element and number < Decimal(element["min_value"]):
        return f"Please enter a number of at least {element['min_value']}."
    if "max_value" in element and number > Decimal(element["max_value"]):
        return f"Please enter a number of at most {element['max_value']}."
    return ""
