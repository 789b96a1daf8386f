"""Builds and checks the texts that a declaration shows to people: titles, summaries, links and their placeholders.

A title holds its author's words, and values. A value that is one plain word, such as a record's number, is shown as it
is. Any other is shown in “quotation marks”, so that nobody takes words from outside for the author's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from connectors.masking import hidden
from connectors.operation import Operation, text_parts
from connectors.proposal import render
from core.action import Action
from core.canonical import JsonObject
from core.legible import isolated, visible

# Slack accepts headings of at most 150 characters.
HEADING_LENGTH_MAX = 150
_WORD = re.compile(r"[A-Za-z0-9][\w.@/:+-]{0,39}", re.ASCII)
_LINK = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9_.~!$()*+,;=:@/?%&-]*")


def question_of(operation: Operation, action: Action, title: str = "") -> str:
    """The question on a card: the step's ``title``, the operation's, or the summary; "" if it would be too long."""
    text = title or operation.title or operation.summary
    values = _values(operation, action)
    made = "".join(part if isinstance(part, str) else _quoted(render_one(part, values)) for part in text_parts(text))
    made = made if made.endswith("?") else f"{made.rstrip('.')}?"
    return made if len(made) <= HEADING_LENGTH_MAX else ""


def link_of(operation: Operation, action: Action) -> str:
    """The address of the record in its system, for people to open; "" if none is declared, or if it is not plain."""
    if not operation.link:
        return ""
    values = {**_values(operation, action), "system": action.system.partition(" ")[0].rstrip("/")}
    made = render(operation.link, values)
    return made if _LINK.fullmatch(made) and len(made) <= 1000 else ""


def render_one(paths: tuple[tuple[str, ...], ...], values: JsonObject) -> str:
    """The value of one placeholder, as text."""
    return render("{" + "|".join(".".join(path) for path in paths) + "}", values)


def _quoted(value: str) -> str:
    if _WORD.fullmatch(value):
        return value
    return f"“{isolated(visible(value.translate(_MARKS), edges=False))}”"


# Quotation marks in a value are replaced: only ours may delimit it.
_MARKS = {ord("“"): "\u2018", ord("”"): "\u2019", ord("\n"): " "}


def _values(operation: Operation, action: Action) -> JsonObject:
    return {
        **hidden(operation, action.input),
        "target": action.target,
        "before": action.before,
        "facts": action.facts,
    }


def unfilled(operation: Operation, text: str) -> Iterator[str]:
    """Yield the placeholders of a text that can never get a value, each with the reason."""
    for part in text_parts(text):
        for path in part if not isinstance(part, str) else ():
            if why := _why_never(operation, path):
                yield f"{{{'.'.join(path)}}} {why}"


def _why_never(operation: Operation, path: tuple[str, ...]) -> str:
    """The reason why an action never has a value at this path; "" if it may have one."""
    root, *rest = path
    if root == "target":
        return "goes into a text" if rest else ""
    if root in ("before", "facts"):
        if operation.diff is None:
            return "is never known: the operation declares no `diff`, so nothing is read before it"
        if root == "before" and rest and isinstance(operation.writes, str):
            return _within(operation.input_schema.get("properties", {}).get(operation.writes), rest[:1])
        return ""
    if root in operation.params:
        return ""
    return _within(operation.input_schema, path)


def _within(schema: object, path: list[str] | tuple[str, ...]) -> str:
    """The reason why this schema never has a value at the path."""
    if not path:
        return ""
    node: JsonObject = schema if isinstance(schema, dict) else {}
    kind, properties = node.get("type"), node.get("properties")
    if isinstance(kind, str) and kind != "object":
        return f"goes into {'a list' if kind == 'array' else f'a value of type {kind}'}"
    if isinstance(properties, dict) and path[0] in properties:
        return _within(properties[path[0]], path[1:])
    more = node.get("additionalProperties", True)
    if more is False:
        known = ", ".join(sorted(properties)) if isinstance(properties, dict) and properties else "none"
        return f"is declared nowhere; there are: {known}"
    return _within(more, path[1:])
