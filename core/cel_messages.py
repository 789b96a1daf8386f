"""The CEL engine's messages, put so that an author sees what is wrong and what would be right."""

from __future__ import annotations

import re
from collections.abc import Collection

from core.errors import ExpressionError, nearest


def compile_error(source: str, text: str, variables: Collection[str]) -> ExpressionError:
    """The engine's first error about ``source``, with its column and the nearest declared name."""
    match = re.search(r"ERROR: <input>:(-?\d+):(-?\d+): ([^\n]*)", text)
    if match is None:
        return ExpressionError(f"{runtime_text(text)} in {quote(source)}")
    line, column, message = int(match[1]), int(match[2]), match[3]
    message = message.replace(" (in container '')", "").split(" expecting {")[0].removesuffix(" [INVALID_ARGUMENT]")
    message = message.rstrip(".")
    place = "" if column < 1 else f" at column {column}" if line == 1 else f" at line {line}, column {column}"
    undeclared = re.search(r"undeclared reference to '([^']+)'", message)
    remedy = _suggest(undeclared[1], source, variables) if undeclared else ""
    return ExpressionError(f"{message}{place} of {quote(source)}.", remedy=remedy)


def runtime_text(text: str) -> str:
    """An engine's message without its status codes."""
    text = re.sub(r"^[A-Z_]+: |\s*\[[A-Z_]+\]\Z", "", text.split("\n", 1)[0])
    missing = re.match(r'No value with name "([^"]+)" found in Activation', text)
    return f"{missing[1]!r} has no value" if missing else text


def quote(source: str) -> str:
    """An expression inside a message, shortened if it is long."""
    return f"`{source if len(source) <= 160 else source[:157] + '...'}`"


def one_of(names: Collection[str]) -> str:
    """The remedy for a name that is not among ``names``."""
    return f"One of {', '.join(sorted(names))}."


def _suggest(name: str, source: str, variables: Collection[str]) -> str:
    # The engine names only as much of a dotted name as it tried; the author meant all of it.
    longer = re.search(re.escape(name) + r"(\.[A-Za-z_][A-Za-z0-9_]*)*", source)
    return nearest(longer[0] if longer else name, variables)
