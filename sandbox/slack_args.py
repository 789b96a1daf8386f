"""Arguments of Web API methods, decoded as Slack decodes them: JSON values, or JSON text inside a form."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from sandbox.slack_blocks import VIEW_BYTES, message_problems, view_problems
from sandbox.slack_state import JsonObject

METADATA_BYTES: Final = 16_000
Arguments = Mapping[str, Any]


class ApiError(Exception):
    """The error ``{"ok": false, "error": name}``; ``messages`` are the details in response_metadata."""

    def __init__(self, name: str, messages: list[str] | None = None) -> None:
        super().__init__(name)
        self.name = name
        self.messages = messages or []

    def body(self) -> JsonObject:
        if not self.messages:
            return {"ok": False, "error": self.name}
        errors = [message.removeprefix("[ERROR] ") for message in self.messages]
        return {"ok": False, "error": self.name, "errors": errors, "response_metadata": {"messages": self.messages}}


def decoded(value: object, error: str) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as problem:
        raise ApiError(error) from problem


def blocks_of(given: Arguments) -> list[JsonObject] | None:
    if given.get("blocks") is None:
        return None
    blocks = decoded(given["blocks"], "invalid_blocks_format")
    if problems := message_problems(blocks):
        raise ApiError("invalid_blocks", problems)
    assert isinstance(blocks, list)
    return blocks


def view_of(given: Arguments) -> JsonObject:
    view = decoded(given.get("view"), "invalid_arguments")
    if problems := view_problems(view):
        raise ApiError("invalid_arguments", problems)
    if len(json.dumps(view)) > VIEW_BYTES:
        raise ApiError("view_too_large")
    assert isinstance(view, dict)
    return view


def text_of(given: Arguments, most: int) -> str | None:
    text = given.get("text")
    if text is None:
        return None
    if len(str(text)) > most:
        raise ApiError("msg_too_long")
    return str(text)


def metadata_of(given: Arguments) -> JsonObject | None:
    if not given.get("metadata"):
        return None
    metadata = decoded(given["metadata"], "invalid_metadata_format")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("event_type"), str):
        raise ApiError("invalid_metadata_format")
    if not isinstance(metadata.get("event_payload"), dict):
        raise ApiError("invalid_metadata_schema")
    if len(json.dumps(metadata)) > METADATA_BYTES:
        raise ApiError("metadata_too_large")
    return metadata


def flag(value: object) -> bool:
    return value is True or str(value).lower() in ("1", "true")


def integer(value: object, default: int) -> int:
    text = str(value if value is not None else default)
    if not text.isascii() or not text.isdigit():
        raise ApiError("invalid_limit")
    return int(text)


def micros(value: object, default: int) -> int:
    """A timestamp in whole microseconds, because equal timestamps must compare equal."""
    seconds, _, fraction = str(value or "").partition(".")
    if not seconds:
        return default
    if not (seconds + fraction).isascii() or not (seconds + fraction).isdigit():
        raise ApiError("invalid_ts_latest")
    return int(seconds) * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def cursor_of(value: object) -> int:
    if not value:
        return 0
    try:
        return integer(base64.b64decode(str(value), validate=True).decode().removeprefix("next:"), 0)
    except ValueError as error:
        raise ApiError("invalid_cursor") from error
