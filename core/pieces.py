"""Splits a text with expressions into words and the expressions between ``${{`` and ``}}``."""

from __future__ import annotations

from collections.abc import Iterator

from core.errors import ExpressionError


def split(text: str) -> Iterator[tuple[bool, str]]:
    """Yield (is_expression, text), in order. Braces and quotes inside an expression do not end it."""
    at = 0
    while (start := text.find("${{", at)) >= 0:
        if start > at:
            yield False, text[at:start]
        end = _end_of_expression(text, start)
        yield True, text[start + 3 : end].strip()
        at = end + 2
    if at < len(text) or not text:
        yield False, text[at:]


def _end_of_expression(text: str, start: int) -> int:
    """The place of the ``}}`` that closes the expression opened at ``start``."""
    at, depth, quote = start + 3, 0, ""
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}" and depth:
            depth -= 1
        elif character == "}" and text.startswith("}}", at):
            return at
        at += 1
    raise ExpressionError(f"the expression at column {start + 1} is not closed", remedy="End it with }}.")
