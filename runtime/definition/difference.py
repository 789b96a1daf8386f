"""The difference of two documents, line by line, as people see it before they decide on a change. Pure.

The whole document is compared in one canonical form: every member in the order of its name, one line for each, texts as
JSON with their line breaks as codes. So no layout, comment, anchor or line break hides a change or forges a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import unified_diff

from core.canonical import Json
from core.documents import load_document
from core.errors import DefinitionError

HEAD = "The whole document, line by line ('-' goes, '+' comes, '·' stays):"
SAME = "No line of the document changes: only its comments or its layout do."
_CONTEXT_LINES = 3
# Beyond this many comparisons, all old lines are shown as removed and all new ones as added: also true, and cheap.
_COMPARISONS_MAX = 4_000_000


def canonical_lines(text: str, file: str) -> list[str]:
    """The lines of a document in canonical form; its written lines if it cannot be parsed any more."""
    try:
        return [*_lines(load_document(text, file).value, "")]
    except DefinitionError:
        return [json.dumps(line, ensure_ascii=False) for line in text.split("\n")]


def lines_of(value: Json) -> list[str]:
    """The lines of a value in canonical form."""
    return [*_lines(value, "")]


def _lines(value: Json, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name in sorted(value):
            yield from _member(f"{indent}{_name(name)}:", value[name], f"{indent}  ")
    elif isinstance(value, list) and value:
        for item in value:
            yield from _member(f"{indent}-", item, f"{indent}  ")
    else:
        yield f"{indent}{json.dumps(value, ensure_ascii=False)}"


def _member(head: str, value: Json, indent: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield head
        yield from _lines(value, indent)
    else:
        yield f"{head} {json.dumps(value, ensure_ascii=False)}"


def _name(name: str) -> str:
    """A key, unquoted if nothing in it could be read as structure, else as JSON."""
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def difference(before: list[str], after: list[str]) -> list[str]:
    """The removed and added lines, each with three unchanged lines around it; empty if nothing changes."""
    if before == after:
        return []
    if not before or not after or len(before) * len(after) > _COMPARISONS_MAX:
        return [f"-{line}" for line in before] + [f"+{line}" for line in after]
    found = [*unified_diff(before, after, n=_CONTEXT_LINES, lineterm="")][2:]
    return [f"·{line[1:]}" if line.startswith(" ") else line for line in found]
