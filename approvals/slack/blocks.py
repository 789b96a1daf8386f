"""Untrusted text as Slack mrkdwn that cannot forge structure and hides nothing; and its packing into Slack's blocks.

People can learn one rule: text in monospace came from the request; everything else is ours. Inside a code span Slack
interprets neither formatting nor emoji, and with ``&<>`` escaped no mention or link either. A character that would end
the span, that is invisible or that is disguised as another, is written as ``⟨U+XXXX⟩`` (``core.legible``). A value that
is written from right to left is isolated. No character is lost when lines become blocks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias
from urllib.parse import quote_plus

from core.canonical import Json
from core.legible import bare, isolated, visible

Block: TypeAlias = dict[str, Any]

SECTION_CHARACTERS_MAX = 2900  # Slack: 3000
MESSAGE_BLOCKS_MAX = 45  # Slack: 50; the rest is for heading, buttons and footer
# Slack refuses a message (msg_blocks_too_long) from about 11,300 characters over all blocks, and does not document how
# it counts. The length of the blocks' JSON is an upper bound of any such count.
MESSAGE_CHARACTERS_MAX = 9_000
MODAL_BLOCKS_MAX = 90  # Slack: 100
# Slack sends the whole message or modal back with each click, form-encoded; ``guard`` accepts BODY_BYTES_MAX.
ECHO_BYTES_MAX = 48 * 1024

JSON_NOTE = "_(JSON)_"
LINK_MAX = 2000
_SHORT_LINE = 400
_WORDS_MAX = 400
_LABEL_MAX = 40
_NUMBER_NOTE = "_(number)_"
# Text that Slack would format: bold, struck, code, italics at a word's edge, emoji, quotations, lists at line starts.
_FORMATS = re.compile(r"[*~`\n]|(?<!\w)_|_(?!\w)|:[a-z0-9_+'-]+:|^\s*(?:>|[-•]\s|\d+[.)]\s)")
# A value that is one plain word, such as a state or a number, and makes no statement.
_CODED = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,23}")
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def section(text: str) -> Block:
    """Text that Slack always shows in full (``expand``), and in which it creates no links (``verbatim``)."""
    return {"type": "section", "expand": True, "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def plain(words: str) -> Block:
    """Text in which Slack interprets nothing; the caller limits its length."""
    return {"type": "plain_text", "text": words, "emoji": False}


def header(words: str) -> Block:
    """A heading; ``words`` are ours."""
    return {"type": "header", "text": plain(words)}


def sections(lines: Sequence[str]) -> list[Block]:
    """All lines, in order, in as few sections as possible."""
    blocks: list[Block] = []
    current = ""
    for line in chain.from_iterable(pieces(row, SECTION_CHARACTERS_MAX) for row in lines):
        if current and len(current) + 1 + len(line) > SECTION_CHARACTERS_MAX:
            blocks.append(section(current))
            current = line
        else:
            current = f"{current}\n{line}" if current else line
    return [*blocks, section(current)] if current else blocks


def small_print(lines: Sequence[str]) -> list[Block]:
    """Lines in Slack's smaller type if they fit one block, otherwise as sections."""
    text = "\n".join(lines)
    if len(text) > SECTION_CHARACTERS_MAX:
        return sections(lines)
    return [context(text)]


def context(text: str) -> Block:
    """Small print: one text, without links that Slack would make."""
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def link(address: str, label: str) -> str:
    """A link with our own label; "" unless the address is a plain one of the web."""
    if not address.startswith(("https://", "http://")) or set(address) & set("<>| `") or len(address) > LINK_MAX:
        return ""
    if not (address.isascii() and address.isprintable()):
        return ""
    return f"<{address.replace('&', '&amp;')}|{label}>"


def link_line(address: str) -> list[Block]:
    """A link to Counterseal. A setting gives its beginning, so we draw it only if it is a plain web address."""
    made = link(address, "Open in Counterseal")
    return [context(made)] if made else []


def plain_sections(text: str) -> list[Block]:
    """Sections of plain text, without any mrkdwn, such as our own sentences that may contain names."""
    parts = [text[start : start + SECTION_CHARACTERS_MAX] for start in range(0, len(text), SECTION_CHARACTERS_MAX)]
    return [{"type": "section", "text": plain(part)} for part in parts if part.strip()]


def echo_bytes(blocks: Sequence[Block]) -> int:
    """The bytes that these blocks take when Slack sends them back with a click."""
    return len(quote_plus(json.dumps(blocks)))


def fits_message(blocks: Sequence[Block]) -> bool:
    """True if Slack accepts these blocks in one message, and we accept the size of clicks on it."""
    return (
        len(blocks) <= MESSAGE_BLOCKS_MAX
        and len(json.dumps(blocks, ensure_ascii=False)) <= MESSAGE_CHARACTERS_MAX
        and echo_bytes(blocks) <= ECHO_BYTES_MAX
    )


def pages(blocks: Sequence[Block]) -> list[list[Block]]:
    """The blocks in pages that fit a modal, at least one."""
    result: list[list[Block]] = [[]]
    size = 0
    for block in blocks:
        length = echo_bytes([block])
        if result[-1] and (len(result[-1]) >= MODAL_BLOCKS_MAX or size + length > ECHO_BYTES_MAX):
            result.append([])
            size = 0
        result[-1].append(block)
        size += length
    return result


def escaped(text: str, *, edges: bool = True) -> str:
    """Apply ``visible`` to text, and escape it for mrkdwn."""
    return visible(text, edges=edges).translate(_ESCAPES)


def quoted(text: str, *, edges: bool = True) -> str:
    """One line of untrusted words as a monospace span, isolated if it is written from right to left."""
    return f"`{isolated(escaped(text, edges=edges))}`"


def words(text: str) -> str:
    """Words of our own people, such as a name in the directory or a rule's reason; quoted if they could be anything.

    Plain words stay as they are. In other words Slack could see formatting, an emoji or a new line, so these are quoted
    like text from a request.
    """
    shown = visible(text, edges=False)
    safe = text and shown == text and not _FORMATS.search(text) and len(text) <= _WORDS_MAX
    return isolated(shown.translate(_ESCAPES)) if safe else code(text)


def value_words(value: Json, label: str = "") -> str:
    """A value on a card, with the target's label if there is one: a plain word stays plain, other text is quoted."""
    text, note = literal(value)
    if label and label != text and _CODED.fullmatch(text):
        label_words = words(label)
        return f"{text} \u2013 {label_words}" if not label_words.startswith("`") and len(label) <= _LABEL_MAX else text
    if label and _ID.fullmatch(text) and not words(label).startswith("`"):
        return words(label)
    if text and (note == _NUMBER_NOTE or isinstance(value, bool) or _CODED.fullmatch(text)):
        return text
    return note if not text else code(text)


def code(text: str) -> str:
    """Untrusted words as one monospace span; line breaks are shown as ``⟨U+000A⟩``."""
    return quoted(text) if text else "_empty_"


def literal(value: Json) -> tuple[str, str]:
    """A JSON value as (text, note): the text for monospace, and our note if the text alone is ambiguous."""
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
            return json.dumps(value), _NUMBER_NOTE
        case _:
            line = json.dumps(value, ensure_ascii=False, sort_keys=True)
            pretty = json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)
            return (line if len(line) <= _SHORT_LINE // 2 else pretty), JSON_NOTE


def entry(label: str, *texts: str, note: str = "") -> list[str]:
    """Write ``label`text` → `text` note`` on one line if it is short, otherwise each text on lines of its own.

    ``label`` and ``note`` are ours and short. We also indent JSON ourselves, so its edge spaces get no codes.
    """
    line = f"{label} {' → '.join(code(text) for text in texts)} {note}".strip()
    if len(line) <= _SHORT_LINE and not any("\n" in text for text in texts):
        return [line]
    rows = [f"{label} {note}".strip()]
    for position, text in enumerate(texts):
        rows += [] if position == 0 else ["→"]
        rows += [quoted(row, edges=note != JSON_NOTE) if row else "` `" for row in text.split("\n")]
    return rows


def pieces(line: str, limit: int) -> list[str]:
    """Split a line that is longer than ``limit`` into several, each a complete code span."""
    if len(line) <= limit:
        return [line]
    if not (line.startswith("`") and line.endswith("`") and line.count("`") == 2):
        raise ValueError("only a line that is quoted as a whole can be longer than a block")
    body = bare(line[1:-1])
    room = limit - 4  # two for the span, two for the isolation that each piece needs by itself
    result = []
    while len(body) > room:
        cut = _cut(body, room)
        result.append(f"`{isolated(body[:cut])}`")
        body = body[cut:]
    return [*result, f"`{isolated(body)}`"]


def _cut(body: str, room: int) -> int:
    """The last position at or before ``room`` that splits neither an escape (&amp;) nor a ⟨U+XXXX⟩."""
    for opener, closer in (("&", ";"), ("⟨", "⟩")):
        start = body.rfind(opener, 0, room)
        if start >= 0 and body.find(closer, start) >= room:
            room = start
    return room
