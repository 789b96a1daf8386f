"""Untrusted text as Slack mrkdwn that cannot forge structure, and hides nothing.

One rule that people can learn: what stands in monospace came from the request; everything else is ours. Inside a code
span Slack interprets neither formatting nor emoji, and with ``&<>`` escaped no mention or link either. What would end
the span, or could not be seen, is written as ``⟨U+XXXX⟩``; so is ``⟨`` itself, so that the original can always be read
back from what is shown.
"""

from __future__ import annotations

import json
import unicodedata

from core.canonical import Json

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Me"})
# Letters and marks that Unicode calls default-ignorable, or that are drawn as nothing.
_HIDDEN_CHARACTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0`⟨")
_HIDDEN_RANGES = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0000, 0xE0FFF))
_MARKS_MAX = 3  # more combining marks than this on one letter overlay the lines around them
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def visible(text: str, *, edges: bool = True) -> str:
    """``text`` with everything invisible or structural made visible; ``edges``: spaces at either end as well."""
    parts = []
    marks = 0
    last = len(text) - 1
    for position, character in enumerate(text):
        marks = marks + 1 if unicodedata.category(character) == "Mn" else 0
        at_edge = edges and character == " " and position in (0, last)
        hide = _hidden(character) or marks > _MARKS_MAX or at_edge
        parts.append(f"⟨U+{ord(character):04X}⟩" if hide else character)
    return "".join(parts)


def shown(text: str, *, edges: bool = True) -> str:
    """``visible`` text, escaped for mrkdwn."""
    return visible(text, edges=edges).translate(_ESCAPES)


def _hidden(character: str) -> bool:
    if character in _HIDDEN_CHARACTERS:
        return True
    if character.isascii() and character.isprintable():
        return False
    category = unicodedata.category(character)
    code = ord(character)
    return (
        category in _HIDDEN_CATEGORIES
        or (category == "Zs" and character != " ")
        or any(low <= code <= high for low, high in _HIDDEN_RANGES)
    )


JSON_NOTE = "_(JSON)_"
_SHORT_LINE = 400


def code(text: str) -> str:
    """Untrusted words as one monospace span; line breaks are shown as ``⟨U+000A⟩``."""
    return f"`{shown(text)}`" if text else "_empty_"


def literal(value: Json) -> tuple[str, str]:
    """A JSON value as (text, note): what to show in monospace, and our word where the text alone is ambiguous."""
    match value:
        case None:
            return "", "_not set_"
        case "":
            return "", "_empty text_"
        case str():
            return value, ""
        case bool():
            return ("true" if value else "false"), "_(yes/no)_"
        case int() | float():
            return json.dumps(value), "_(number)_"
        case _:
            line = json.dumps(value, ensure_ascii=False, sort_keys=True)
            pretty = json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)
            return (line if len(line) <= _SHORT_LINE // 2 else pretty), JSON_NOTE


def entry(label: str, *texts: str, note: str = "") -> list[str]:
    """``label`text` → `text` note`` on one line if that is short, else every text on lines of its own.

    ``label`` and ``note`` are ours and short. The indentation of JSON is ours as well, so it is not marked.
    """
    line = f"{label} {' → '.join(code(text) for text in texts)} {note}".strip()
    if len(line) <= _SHORT_LINE and not any("\n" in text for text in texts):
        return [line]
    rows = [f"{label} {note}".strip()]
    for position, text in enumerate(texts):
        rows += [] if position == 0 else ["→"]
        rows += [f"`{shown(row, edges=note != JSON_NOTE)}`" if row else "` `" for row in text.split("\n")]
    return rows


def pieces(line: str, limit: int) -> list[str]:
    """A line that is longer than ``limit`` as several, each a complete code span."""
    if len(line) <= limit:
        return [line]
    if not (line.startswith("`") and line.endswith("`") and line.count("`") == 2):
        raise ValueError("only a line that is quoted as a whole can be longer than a block")
    body = line[1:-1]
    result = []
    while len(body) > limit - 2:
        cut = _cut(body, limit - 2)
        result.append(f"`{body[:cut]}`")
        body = body[cut:]
    return [*result, f"`{body}`"]


def _cut(body: str, room: int) -> int:
    """The last place at or before ``room`` that splits neither an escape (&amp;) nor a ⟨U+XXXX⟩."""
    for opener, closer in (("&", ";"), ("⟨", "⟩")):
        start = body.rfind(opener, 0, room)
        if start >= 0 and body.find(closer, start) >= room:
            room = start
    return room
