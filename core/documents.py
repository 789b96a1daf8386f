"""Documents that people write: YAML 1.2, read strictly, with the place of every value.

A document is plain JSON written in YAML's core schema: ``yes``, ``no``, ``on`` and dates are strings. Duplicate keys,
tags, merge keys and a second document are errors. Size, depth and the expansion of aliases are bounded. Every problem
names file, line, column and a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from core.budgets import most
from core.canonical import DEPTH_MAX, INTEGER_MAX, Json
from core.errors import DefinitionError, Problem

TEXT_BYTES_MAX = most("document_bytes")
VALUES_MAX = most("document_values")
# The number of texts whose nodes are cached, and the size of the longest cached text: about 2 MB of nodes each.
REMEMBERED_MAX, REMEMBERED_BYTES_MAX = 16, 32 * 1024

Path: TypeAlias = Sequence[str | int]

# The core schema of YAML 1.2.2, section 10.3.2.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+\Z")
_OTHER_INT = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")


@dataclass(slots=True)
class _Node:
    """One value and its position; for a mapping also the position of each key."""

    line: int
    column: int
    scalar: bool | int | float | str | None = None
    items: list[_Node] | None = None
    entries: dict[str, _Node] | None = None
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)


class Document:
    """A parsed document: its exact text, its value as plain JSON, and the position of every part."""

    def __init__(self, file: str, text: str, root: _Node) -> None:
        self.file = file
        self.text = text
        self._root = root
        self._values = 0
        self.value: Json = self._plain(root, 0)

    def position(self, path: Path) -> tuple[int, int]:
        """Line and column, 1-based, of the value at ``path`` (of its key, in a mapping), or of its nearest parent."""
        node, place = self._root, (self._root.line, self._root.column)
        for part in path:
            if node.entries is not None and isinstance(part, str) and part in node.entries:
                place, node = node.keys[part], node.entries[part]
            elif node.items is not None and isinstance(part, int) and 0 <= part < len(node.items):
                node = node.items[part]
                place = (node.line, node.column)
            else:
                break
        return place

    def problem(self, path: Path, message: str, remedy: str = "") -> Problem:
        """A fault at ``path``."""
        line, column = self.position(path)
        return Problem(self.file, line, column, message, remedy)

    def _plain(self, node: _Node, depth: int) -> Json:
        self._values += 1
        if self._values > VALUES_MAX:
            raise _fault(self.file, node, f"holds more than {VALUES_MAX} values, aliases included.")
        if depth > DEPTH_MAX:
            raise _fault(self.file, node, f"is nested deeper than {DEPTH_MAX} levels.")
        if node.entries is not None:
            return {key: self._plain(item, depth + 1) for key, item in node.entries.items()}
        if node.items is not None:
            return [self._plain(item, depth + 1) for item in node.items]
        return node.scalar


def load_document(text: str, file: str) -> Document:
    """Read one YAML document; ``file`` is only its name in messages. ``DefinitionError`` if it is not accepted."""
    size = len(text.encode(errors="surrogatepass"))
    if size > TEXT_BYTES_MAX:
        problem = Problem(file, 1, 1, f"the document is {size} bytes long; at most {TEXT_BYTES_MAX} are accepted.")
        raise DefinitionError((problem,))
    return Document(file, text, _remembered(text, file) if size <= REMEMBERED_BYTES_MAX else _root_of(text, file))


def _root_of(text: str, file: str) -> _Node:
    try:
        return _Builder(file).build(YAML(typ="safe", pure=True).parse(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = " ".join(str(error.problem or error.context).split())
        raise DefinitionError((Problem(file, line, column, f"not YAML: {message}."),)) from None
    except YAMLError as error:
        message = " ".join(str(error).split())
        raise DefinitionError((Problem(file, 1, 1, f"not YAML: {message}."),)) from None


# A text is read up to four times while it is checked and published. Nobody changes its nodes.
_remembered = lru_cache(REMEMBERED_MAX)(_root_of)


class _Builder:
    """Builds nodes from the parser's events on its own stack, so that a deep document cannot exhaust Python's."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._anchors: dict[str, _Node] = {}
        self._open: list[tuple[_Node, str | None]] = []  # unfinished collections, with their anchors
        self._pending: list[_Node | None] = []  # for each unfinished collection, the key that waits for its value
        self._root: _Node | None = None
        self._documents = 0

    def build(self, events: Iterator[Event]) -> _Node:
        for event in events:
            self._take(event)
        if self._root is None:
            raise DefinitionError((Problem(self._file, 1, 1, "the document is empty."),))
        return self._root

    def _take(self, event: Any) -> None:
        node = _Node(event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _fault(self._file, node, "a second document begins here.", "Keep one document in a file.")
            if event.version not in (None, (1, 2)):
                raise _fault(self._file, node, "is not YAML 1.2.", "Remove the %YAML directive.")
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            done, anchor = self._open.pop()
            self._pending.pop()
            self._place(done, anchor)
        elif isinstance(event, AliasEvent):
            if event.anchor not in self._anchors:
                raise _fault(self._file, node, f"the alias *{event.anchor} has no anchor before it.")
            self._place(self._anchors[event.anchor], None)
        elif isinstance(event, ScalarEvent | MappingStartEvent | SequenceStartEvent):
            self._begin(event, node)

    def _begin(self, event: Any, node: _Node) -> None:
        if event.tag is not None and event.tag != "!":
            raise _fault(self._file, node, f"the tag {event.tag} is not accepted.", "Remove it.")
        if isinstance(event, ScalarEvent):
            node.scalar = self._scalar(event, node)
            self._place(node, event.anchor)
            return
        if len(self._open) > DEPTH_MAX:
            raise _fault(self._file, node, f"is nested deeper than {DEPTH_MAX} levels.")
        if isinstance(event, MappingStartEvent):
            node.entries = {}
        else:
            node.items = []
        self._open.append((node, event.anchor))
        self._pending.append(None)

    def _place(self, node: _Node, anchor: str | None) -> None:
        """Add a finished node to its parent. An anchor is defined at its node's end, so no node contains itself."""
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._open:
            self._root = node
            return
        parent, _ = self._open[-1]
        if parent.items is not None:
            parent.items.append(node)
            return
        assert parent.entries is not None
        key = self._pending[-1]
        if key is None:
            self._pending[-1] = self._checked_key(node, parent)
            return
        assert isinstance(key.scalar, str)
        parent.entries[key.scalar] = node
        parent.keys[key.scalar] = (key.line, key.column)
        self._pending[-1] = None

    def _checked_key(self, key: _Node, parent: _Node) -> _Node:
        name = key.scalar
        if not isinstance(name, str):
            raise _fault(self._file, key, "a key is not a string.", "Quote it.")
        if name == "<<":
            raise _fault(self._file, key, "merge keys are not part of YAML 1.2.", "Write the keys out.")
        if name in parent.keys:
            line = parent.keys[name][0]
            raise _fault(self._file, key, f"the key {name!r} is here twice, first in line {line}.", "Remove one.")
        return key

    def _scalar(self, event: ScalarEvent, node: _Node) -> bool | int | float | str | None:
        text: str = event.value
        if any(character == "\x00" or "\ud800" <= character <= "\udfff" for character in text):
            raise _fault(self._file, node, "holds a character that cannot be stored (U+0000 or a lone surrogate).")
        plain = event.style in (None, "") and event.tag is None
        if not plain:
            return text
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _NOT_FINITE.match(text):
            raise _fault(self._file, node, f"{text} is not a number that JSON can hold.", "Quote it if it is text.")
        if _INT.match(text) or _OTHER_INT.match(text):
            number = int(text, 0) if _OTHER_INT.match(text) else int(text) if len(text) < 32 else INTEGER_MAX + 1
            if abs(number) > INTEGER_MAX:
                raise _fault(self._file, node, f"{text[:40]} is beyond 2^53.", "Quote it if it is text.")
            return number
        if _FLOAT.match(text):
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise _fault(self._file, node, f"{text[:40]} is too large a number.", "Quote it if it is text.")
            return value
        return text


def _fault(file: str, node: _Node, message: str, remedy: str = "") -> DefinitionError:
    return DefinitionError((Problem(file, node.line, node.column, message, remedy),))
