"""Packing lines into Slack's blocks without losing a character."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias
from urllib.parse import quote_plus

from approvals.slack.text import pieces, visible

Block: TypeAlias = dict[str, Any]

SECTION_CHARACTERS_MAX = 2900  # Slack: 3000
MESSAGE_BLOCKS_MAX = 45  # Slack: 50; the rest is for heading, buttons and footer
# Slack refuses a message (msg_blocks_too_long) from about 11,300 characters over all blocks, and does not say how it
# counts; the JSON of the blocks is an upper bound of any such count.
MESSAGE_CHARACTERS_MAX = 9_000
MODAL_BLOCKS_MAX = 90  # Slack: 100
# Slack sends the whole message or modal back with each click, form-encoded; the guard in front takes BODY_BYTES_MAX.
ECHO_BYTES_MAX = 48 * 1024


def section(text: str) -> Block:
    """Text that is always shown whole (``expand``), in which Slack makes no links of its own (``verbatim``)."""
    return {"type": "section", "expand": True, "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def plain(words: str) -> Block:
    """Text in which Slack interprets nothing; the caller sees to its length."""
    return {"type": "plain_text", "text": words, "emoji": False}


def header(words: str) -> Block:
    """A heading; ``words`` are ours."""
    return {"type": "header", "text": plain(words)}


def sections(lines: Sequence[str]) -> list[Block]:
    """All lines, in order, in as few sections as hold them."""
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
    """Lines in Slack's smaller type, if they fit one block of it; as sections otherwise."""
    text = "\n".join(lines)
    if len(text) > SECTION_CHARACTERS_MAX:
        return sections(lines)
    return [{"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}]


def plain_sections(text: str) -> list[Block]:
    """Our own words that may name people or groups: no mrkdwn is interpreted in them at all."""
    shown = visible(text, edges=False)
    parts = [shown[start : start + SECTION_CHARACTERS_MAX] for start in range(0, len(shown), SECTION_CHARACTERS_MAX)]
    return [{"type": "section", "text": plain(part)} for part in parts]


def echo_bytes(blocks: Sequence[Block]) -> int:
    """How long these blocks are when Slack sends them back with a click."""
    return len(quote_plus(json.dumps(blocks)))


def fits_message(blocks: Sequence[Block]) -> bool:
    """Whether Slack takes these blocks as part of one message, and we take the clicks on it."""
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
