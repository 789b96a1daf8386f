"""Slack's checks of Block Kit: each refusal with its place. Slack accepts a card that passes these checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

MESSAGE_BLOCKS: Final = 50
MODAL_BLOCKS: Final = 100
VIEW_BYTES: Final = 250_000
_ACTION_ELEMENTS: Final = frozenset({"button", "static_select", "radio_buttons", "checkboxes", "overflow"})
_TEXT_ELEMENTS: Final = frozenset({"plain_text_input", "number_input", "email_text_input", "url_text_input"})
_INPUT_ELEMENTS: Final = _TEXT_ELEMENTS | {
    "static_select",
    "multi_static_select",
    "radio_buttons",
    "checkboxes",
    "datepicker",
}
_OPTION_ELEMENTS: Final = {
    "static_select": 100,
    "multi_static_select": 100,
    "radio_buttons": 10,
    "checkboxes": 10,
    "overflow": 5,
}
NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)\Z", re.ASCII)
DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
Problems = list[str]


def message_problems(blocks: object) -> Problems:
    """Slack's errors about a message's blocks, each with a JSON pointer; empty if the blocks are valid."""
    return _Checker("message").blocks(blocks, MESSAGE_BLOCKS)


def view_problems(view: object) -> Problems:
    """Slack's errors about a modal; empty if it is valid."""
    checker = _Checker("modal")
    if not isinstance(view, Mapping):
        return ["view must be an object [json-pointer:/view]"]
    if view.get("type") == "home":
        return home_problems(view)
    if view.get("type") != "modal":
        checker.say("/type", "must be modal or home")
    checker.text(view.get("title"), "/title", 24, plain=True)
    for name in ("submit", "close"):
        if name in view and view[name] is not None:
            checker.text(view[name], f"/{name}", 24, plain=True)
    for name, most in (("private_metadata", 3000), ("callback_id", 255), ("external_id", 255)):
        checker.string(view.get(name, ""), f"/{name}", most, least=0)
    checker.blocks(view.get("blocks"), MODAL_BLOCKS)
    blocks = view.get("blocks")
    if any(_kind(block) == "input" for block in (blocks if isinstance(blocks, list) else [])) and not view.get(
        "submit"
    ):
        checker.say("/submit", "is required when a block is an input block")
    return checker.problems


def home_problems(view: Mapping[str, object]) -> Problems:
    """Slack's errors about a Home: it has blocks, and no title and no buttons of its own."""
    checker = _Checker("home")
    for name in ("title", "submit", "close"):
        if name in view:
            checker.say(f"/{name}", "is not a member of a home view")
    return checker.blocks(view.get("blocks"), MODAL_BLOCKS)


def _kind(block: object) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else ""


def elements(blocks: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """All interactive elements, in order, as (block_id, element)."""
    for block in blocks if isinstance(blocks, list) else []:
        held = (
            block.get("elements", []) if _kind(block) == "actions" else [block.get("accessory"), block.get("element")]
        )
        for element in held:
            if isinstance(element, Mapping) and "action_id" in element:
                yield str(block.get("block_id", "")), element


class _Checker:
    def __init__(self, surface: str) -> None:
        self.surface = surface
        self.problems: Problems = []
        self._block_ids: set[str] = set()
        self._action_ids: set[str] = set()

    def say(self, pointer: str, problem: str) -> None:
        self.problems.append(f"[ERROR] {problem} [json-pointer:{pointer}]")

    def string(self, value: object, pointer: str, most: int, *, least: int = 1) -> None:
        if not isinstance(value, str):
            self.say(pointer, "must provide a string")
        elif len(value) > most:
            self.say(pointer, f"must be less than {most + 1} characters")
        elif len(value) < least:
            self.say(pointer, f"must be more than {least - 1} characters")

    def text(self, value: object, pointer: str, most: int, *, plain: bool = False) -> None:
        kinds = ("plain_text",) if plain else ("plain_text", "mrkdwn")
        if not isinstance(value, Mapping) or value.get("type") not in kinds:
            self.say(pointer, f"must be a text object of type {' or '.join(kinds)}")
            return
        self.string(value.get("text"), f"{pointer}/text", most)

    def items(self, value: object, pointer: str, most: int) -> list[object]:
        if not isinstance(value, list) or not value:
            self.say(pointer, "must contain at least one item")
            return []
        if len(value) > most:
            self.say(pointer, f"no more than {most} items allowed")
        return value

    def blocks(self, blocks: object, most: int) -> Problems:
        if not isinstance(blocks, list):
            self.say("/blocks", "must be an array of blocks")
            return self.problems
        if len(blocks) > most:
            self.say("/blocks", f"no more than {most} items allowed")
        for index, block in enumerate(blocks):
            self._block(block, f"/blocks/{index}")
        return self.problems

    def _block(self, block: object, pointer: str) -> None:
        checks: Mapping[str, Callable[[Mapping[str, object], str], None]] = {
            "section": self._section,
            "header": lambda item, at: self.text(item.get("text"), f"{at}/text", 150, plain=True),
            "divider": lambda _item, _at: None,
            "context": self._context,
            "actions": self._actions,
            "input": self._input,
            "image": self._image,
            "markdown": lambda item, at: self.string(item.get("text"), f"{at}/text", 12_000),
        }
        kind = _kind(block)
        if not isinstance(block, Mapping) or kind not in checks:
            self.say(f"{pointer}/type", f"unsupported type: {kind}")
            return
        if kind == "input" and self.surface == "message":
            self.say(f"{pointer}/type", "the sandbox takes input blocks in modals only")
        if "block_id" in block:
            self.string(block["block_id"], f"{pointer}/block_id", 255)
            self._unique(block["block_id"], self._block_ids, f"{pointer}/block_id", "block_id")
        self._action_ids = set()  # an action_id is unique within its block
        checks[kind](block, pointer)

    def _unique(self, value: object, seen: set[str], pointer: str, name: str) -> None:
        if not isinstance(value, str):
            return
        if value in seen:
            self.say(pointer, f"{name} {value!r} already exists")
        seen.add(value)

    def _section(self, block: Mapping[str, object], pointer: str) -> None:
        if block.get("text") is None and not block.get("fields"):
            self.say(pointer, "must have text or fields")
        if block.get("text") is not None:
            self.text(block["text"], f"{pointer}/text", 3000)
        if "fields" in block:
            for index, item in enumerate(self.items(block["fields"], f"{pointer}/fields", 10)):
                self.text(item, f"{pointer}/fields/{index}", 2000)
        accessory = block.get("accessory")
        if isinstance(accessory, Mapping) and accessory.get("type") == "image":
            self._image(accessory, f"{pointer}/accessory")
        elif accessory is not None:
            self._element(accessory, f"{pointer}/accessory", _ACTION_ELEMENTS)

    def _context(self, block: Mapping[str, object], pointer: str) -> None:
        for index, item in enumerate(self.items(block.get("elements"), f"{pointer}/elements", 10)):
            at = f"{pointer}/elements/{index}"
            if isinstance(item, Mapping) and item.get("type") == "image":
                self._image(item, at)
            else:
                self.text(item, at, 2000)

    def _image(self, block: Mapping[str, object], pointer: str) -> None:
        self.string(block.get("image_url"), f"{pointer}/image_url", 3000)
        self.string(block.get("alt_text"), f"{pointer}/alt_text", 2000)

    def _actions(self, block: Mapping[str, object], pointer: str) -> None:
        for index, item in enumerate(self.items(block.get("elements"), f"{pointer}/elements", 25)):
            self._element(item, f"{pointer}/elements/{index}", _ACTION_ELEMENTS)

    def _input(self, block: Mapping[str, object], pointer: str) -> None:
        self.text(block.get("label"), f"{pointer}/label", 2000, plain=True)
        if block.get("hint") is not None:
            self.text(block["hint"], f"{pointer}/hint", 2000, plain=True)
        self._element(block.get("element"), f"{pointer}/element", _INPUT_ELEMENTS)

    def _element(self, item: object, pointer: str, allowed: frozenset[str]) -> None:
        kind = _kind(item)
        if not isinstance(item, Mapping) or kind not in allowed:
            self.say(f"{pointer}/type", f"unsupported type: {kind}")
            return
        if "action_id" in item:
            self.string(item["action_id"], f"{pointer}/action_id", 255)
            self._unique(item["action_id"], self._action_ids, f"{pointer}/action_id", "action_id")
        if item.get("confirm") is not None:
            self._confirm(item["confirm"], f"{pointer}/confirm")
        if item.get("placeholder") is not None:
            self.text(item["placeholder"], f"{pointer}/placeholder", 150, plain=True)
        if kind == "button":
            self._button(item, pointer)
        elif kind in _OPTION_ELEMENTS:
            self._choice(item, pointer, kind)
        elif kind == "number_input":
            self._number(item, pointer)
        elif kind in _TEXT_ELEMENTS:
            self._text_input(item, pointer)
        elif kind == "datepicker" and "initial_date" in item:
            self._matching(item["initial_date"], DATE, f"{pointer}/initial_date", "a date as YYYY-MM-DD")

    def _choice(self, item: Mapping[str, object], pointer: str, kind: str) -> None:
        options = self.items(item.get("options"), f"{pointer}/options", _OPTION_ELEMENTS[kind])
        for index, option in enumerate(options):
            self._option(option, f"{pointer}/options/{index}")
        several = kind in ("multi_static_select", "checkboxes")
        name = "initial_options" if several else "initial_option"
        if name in item:
            initial = item[name] if several else [item[name]]
            chosen = initial if isinstance(initial, list) and initial else [None]
            if any(option not in options for option in chosen):
                self.say(f"{pointer}/{name}", "must be among the options, exactly as it is there")
        most = item.get("max_selected_items", 1)
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            self.say(f"{pointer}/max_selected_items", "must be a whole number, at least 1")

    def _text_input(self, item: Mapping[str, object], pointer: str) -> None:
        if "initial_value" in item:
            self.string(item["initial_value"], f"{pointer}/initial_value", 3000)
        for name, least in (("min_length", 0), ("max_length", 1)):
            value = item.get(name, least)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 3000:
                self.say(f"{pointer}/{name}", f"must be a whole number between {least} and 3000")

    def _number(self, item: Mapping[str, object], pointer: str) -> None:
        if not isinstance(item.get("is_decimal_allowed"), bool):
            self.say(f"{pointer}/is_decimal_allowed", "must provide a boolean")
        for name in ("min_value", "max_value", "initial_value"):
            if name in item:
                self._matching(item[name], NUMBER, f"{pointer}/{name}", "a number written as a string")

    def _matching(self, value: object, pattern: re.Pattern[str], pointer: str, what: str) -> None:
        if not isinstance(value, str) or not pattern.match(value):
            self.say(pointer, f"must be {what}")

    def _button(self, item: Mapping[str, object], pointer: str) -> None:
        self.text(item.get("text"), f"{pointer}/text", 75, plain=True)
        if "value" in item:
            self.string(item["value"], f"{pointer}/value", 2000, least=0)
        if "style" in item and item["style"] not in ("primary", "danger"):
            self.say(f"{pointer}/style", "must be primary or danger")
        if "url" in item:
            self.string(item["url"], f"{pointer}/url", 3000)

    def _option(self, option: object, pointer: str) -> None:
        if not isinstance(option, Mapping):
            self.say(pointer, "must be an option object")
            return
        self.text(option.get("text"), f"{pointer}/text", 75)
        self.string(option.get("value"), f"{pointer}/value", 150)

    def _confirm(self, confirm: object, pointer: str) -> None:
        if not isinstance(confirm, Mapping):
            self.say(pointer, "must be a confirmation dialog object")
            return
        self.text(confirm.get("title"), f"{pointer}/title", 100, plain=True)
        self.text(confirm.get("text"), f"{pointer}/text", 300)
        self.text(confirm.get("confirm"), f"{pointer}/confirm", 30, plain=True)
        self.text(confirm.get("deny"), f"{pointer}/deny", 30, plain=True)
