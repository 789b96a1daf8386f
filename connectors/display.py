"""Checks Slack blocks: an operation may post only blocks that show something.

A button with our ids on another message would be pressed for another reason. So an element that people can press,
choose or fill in is refused at any place. The allowed members are listed: a kind of block that Slack adds later is
refused until it is listed.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.canonical import DEPTH_MAX, Json, JsonObject
from core.errors import InputError

_TEXT = ("mrkdwn", "plain_text")
_STYLED = frozenset({"type", "style"})
# The allowed members of each object that only shows something, by the object's type.
_MEMBERS: Mapping[str, frozenset[str]] = {
    "divider": frozenset({"type", "block_id"}),
    "header": frozenset({"type", "block_id", "text", "level"}),
    "section": frozenset({"type", "block_id", "text", "fields", "expand", "accessory"}),
    "context": frozenset({"type", "block_id", "elements"}),
    "image": frozenset({"type", "block_id", "image_url", "slack_file", "alt_text", "title"}),
    "table": frozenset({"type", "block_id", "rows", "column_settings"}),
    "rich_text": frozenset({"type", "block_id", "elements"}),
    "rich_text_section": frozenset({"type", "elements"}),
    "rich_text_list": frozenset({"type", "elements", "style", "indent", "offset", "border"}),
    "rich_text_quote": frozenset({"type", "elements", "border"}),
    "rich_text_preformatted": frozenset({"type", "elements", "border", "language"}),
    "mrkdwn": frozenset({"type", "text", "verbatim"}),
    "plain_text": frozenset({"type", "text", "emoji"}),
    "raw_text": frozenset({"type", "text"}),
    "text": _STYLED | {"text"},
    "emoji": _STYLED | {"name", "unicode", "skin_tone"},
    "link": _STYLED | {"url", "text", "unsafe"},
    "user": _STYLED | {"user_id"},
    "usergroup": _STYLED | {"usergroup_id"},
    "channel": _STYLED | {"channel_id"},
    "broadcast": _STYLED | {"range"},
    "date": _STYLED | {"timestamp", "format", "url", "fallback"},
    "color": _STYLED | {"value"},
}
# The types of objects that a member may hold; other members hold plain values.
_INLINE = ("text", "emoji", "link", "user", "usergroup", "channel", "broadcast", "date", "color")
_RICH = ("rich_text_section", "rich_text_list", "rich_text_quote", "rich_text_preformatted")
BLOCKS = ("divider", "header", "section", "context", "image", "table", "rich_text")
_HOLDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("header", "text"): ("plain_text",),
    ("section", "text"): _TEXT,
    ("section", "fields"): _TEXT,
    ("section", "accessory"): ("image",),
    ("context", "elements"): ("image", *_TEXT),
    ("image", "title"): _TEXT,
    ("table", "rows"): ("raw_text", "rich_text"),
    ("rich_text", "elements"): _RICH,
    ("rich_text_list", "elements"): ("rich_text_section",),
    **{(name, "elements"): _INLINE for name in ("rich_text_section", "rich_text_quote", "rich_text_preformatted")},
}
_REMEDY = "Post only what shows something; ask people with a policy's approval, a step `approve:` or a step `task:`."


def check(values: JsonObject, where: str = "input") -> None:
    """Refuse a message with anything to press, choose or fill in. ``InputError`` names its place and the remedy."""
    if "blocks" in values:
        _objects(values["blocks"], BLOCKS, f"{where}.blocks", 0)
    attachments = values.get("attachments", [])
    for number, one in enumerate(attachments if isinstance(attachments, list) else [attachments]):
        place = f"{where}.attachments[{number}]"
        if not isinstance(one, dict):
            raise InputError("is not an object", where=place, remedy=_REMEDY)
        for name in sorted(one.keys() & {"actions", "callback_id", "id", "attachment_type"}):
            raise InputError(
                "is or belongs to something that people can press", where=f"{place}.{name}", remedy=_REMEDY
            )
        if "blocks" in one:
            _objects(one["blocks"], BLOCKS, f"{place}.blocks", 0)


def _objects(value: Json, allowed: tuple[str, ...], where: str, depth: int) -> None:
    """Check an object or lists of objects: each has one of the ``allowed`` types."""
    if depth > DEPTH_MAX:
        raise InputError("is nested too deeply", where=where, remedy=_REMEDY)
    if isinstance(value, list):
        for number, item in enumerate(value):
            _objects(item, allowed, f"{where}[{number}]", depth + 1)
        return
    if not isinstance(value, dict):
        raise InputError("is not an object", where=where, remedy=f"It is one of: {', '.join(allowed)}.")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in allowed:
        named = f"the type {kind!r}" if isinstance(kind, str) else "no type"
        words = f"has {named}, which does not belong to what only shows something here: {', '.join(allowed)}"
        raise InputError(words, where=where, remedy=_REMEDY)
    for name, item in value.items():
        place = f"{where}.{name}"
        if name not in _MEMBERS[kind]:
            raise InputError(f"is no member of a {kind} that only shows something", where=place, remedy=_REMEDY)
        if (kind, name) in _HOLDS:
            _objects(item, _HOLDS[kind, name], place, depth + 1)
        else:
            _plain(item, place, depth + 1)


def _plain(value: Json, where: str, depth: int) -> None:
    """Check a value that must hold no Slack object, which is anything with a ``type`` or an action's id."""
    if depth > DEPTH_MAX:
        raise InputError("is nested too deeply", where=where, remedy=_REMEDY)
    if isinstance(value, dict):
        for name in sorted(value.keys() & {"type", "action_id", "elements", "accessory", "element"}):
            raise InputError(
                "stands where nothing that people can press may stand", where=f"{where}.{name}", remedy=_REMEDY
            )
        for name, item in value.items():
            _plain(item, f"{where}.{name}", depth + 1)
    for number, item in enumerate(value) if isinstance(value, list) else ():
        _plain(item, f"{where}[{number}]", depth + 1)
