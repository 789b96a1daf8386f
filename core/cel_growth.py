"""Bounds how far an expression can grow a text or a list, as a factor of the length of everything that it reads.

The bound is computed from the syntax alone, when the document is checked. Outside of comprehensions every function
that builds a new text has a factor. Inside one, such a function may only use the loop's own variable: each item is
visited once, so all results together are no longer than the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from core.cel_ast import (
    ACCUMULATORS,
    CALL,
    COMPREHENSION,
    CONSTANT,
    IDENT,
    LIST,
    SELECT,
    STRUCT,
    fields_of,
    first_of,
    is_bind,
    messages_of,
    texts_of,
)
from core.cel_functions import BUILDING, GROWTH_MAX, KNOWN, SMALL, WRITTEN
from core.errors import ExpressionError, nearest

_UINT, _STRING = 4, 6  # kinds of constants
_CHOICE = "_?_:_"
_TWICE = frozenset({"strings.quote"})


def check_growth(root: bytes) -> None:
    """Raise ``ExpressionError`` for an expression that could grow too far, or uses a function that is not supported."""
    _Growth().of(root, {}, None)


class _Growth:
    """The walk over one expression. A growth is a factor; ``inf`` means that there is no bound."""

    def of(self, expr: bytes, known: Mapping[str, float], item: str | None) -> float:
        """The growth of a node. ``known`` are the bound variables, ``item`` is the innermost loop's own variable."""
        for kind, body in fields_of(expr):
            if not isinstance(body, bytes):
                continue
            if kind == CONSTANT:
                return 0
            if kind == IDENT:
                return max((known.get(name, 1) for name in texts_of(body, 1)), default=1)
            if kind == SELECT:
                return max((self.of(part, known, item) for part in messages_of(body, 1)), default=1)
            if kind == CALL:
                return self._call(body, known, item)
            if kind == LIST:
                return max(1, sum(self.of(part, known, item) for part in messages_of(body, 1)))
            if kind == STRUCT:
                return self._map(body, known, item)
            if kind == COMPREHENSION:
                return self._comprehension(body, known, item)
        return 1

    def _map(self, body: bytes, known: Mapping[str, float], item: str | None) -> float:
        keys = {_constant(key) for entry in messages_of(body, 2) for key in messages_of(entry, 3)}
        if _UINT in keys and len(keys) > 1:
            # The engine stores 0 and 0u as two keys, but treats them as one key in a lookup.
            raise ExpressionError("has a map with unsigned and other keys", remedy="Use keys of one kind.")
        parts = [part for entry in messages_of(body, 2) for number in (3, 4) for part in messages_of(entry, number)]
        return max(1, sum(self.of(part, known, item) for part in parts))

    def _call(self, body: bytes, known: Mapping[str, float], item: str | None) -> float:
        name = next(texts_of(body, 2), "")
        parts = [*messages_of(body, 1), *messages_of(body, 3)]
        if name not in KNOWN:
            remedy = nearest(name, WRITTEN, "docs/policies.md lists all of them, such as")
            raise ExpressionError(f"uses {name}(), which is not supported", remedy=remedy)
        found = [self.of(part, known, item) for part in parts]
        if name in SMALL:
            return 1
        if name == _CHOICE:
            return max(found[1:])
        if name not in BUILDING:
            return max([1, *found])
        if item is not None and not (name == "_+_" or all(_is_of(part, item) for part in parts)):
            raise ExpressionError(
                f"uses {name}() inside a comprehension on something else than its own item {item!r}, "
                "which can grow without bound",
                remedy="Use it outside of it; cel.bind gives a name to the result.",
            )
        growth = self._built(name, parts, found)
        if growth > GROWTH_MAX:
            raise ExpressionError(
                f"uses {'+' if name == '_+_' else name + '()'} so that a text or list could grow without bound",
                remedy="Give replace and join texts that are written down, and build on what is read only.",
            )
        return growth

    def _built(self, name: str, parts: list[bytes], found: list[float]) -> float:
        if name == "replace":
            old, new = _text(parts[1]), _text(parts[2])
            if new is None:
                return inf
            return found[0] * (1 + len(new) if not old else max(1, -(-len(new) // len(old))))
        if name == "join":
            between = "" if len(parts) == 1 else _text(parts[1])
            return inf if between is None else found[0] * (1 + len(between))
        if name in _TWICE:
            return 2 * found[0]
        return sum(found) if name == "_+_" else max([1, *found])

    def _comprehension(self, body: bytes, known: Mapping[str, float], item: str | None) -> float:
        over, first = first_of(body, 2), first_of(body, 4)
        if is_bind(body):
            given = self.of(first, known, item)
            if given > GROWTH_MAX:
                raise ExpressionError(
                    "gives a name to something that could grow without bound", remedy="Write it once."
                )
            bound = dict.fromkeys(texts_of(body, 3), given)
            return self.of(first_of(body, 7), {**known, **bound}, item)
        growth = self.of(over, known, item)
        own = next(texts_of(body, 1), "")
        inside = {**known, own: 1.0}
        steps = [part for number in (4, 5, 6, 7) for part in messages_of(body, number)]
        for part in steps:
            self.of(part, inside, own)
        # A result that is built from anything but the items is built again for each item, so it has no bound.
        return growth if all(_is_of(part, own) for part in steps) else inf


def _is_of(expr: bytes, item: str) -> bool:
    """True if a node's value consists only of parts of the item, accumulators, small values and literals."""
    for kind, body in fields_of(expr):
        if not isinstance(body, bytes):
            continue
        if kind == IDENT:
            return all(name == item or name in ACCUMULATORS for name in texts_of(body, 1))
        if kind == SELECT:
            return all(_is_of(part, item) for part in messages_of(body, 1))
        if kind == CALL:
            name = next(texts_of(body, 2), "")
            parts = [*messages_of(body, 1), *messages_of(body, 3)]
            return name in SMALL or all(_is_of(part, item) for part in (parts[1:] if name == _CHOICE else parts))
        if kind == LIST:
            return all(_is_of(part, item) for part in messages_of(body, 1))
        if kind in (STRUCT, COMPREHENSION):
            return False
    return True


def _constant(expr: bytes) -> int | None:
    """The field number of a literal's kind; None if the node is no literal."""
    kinds = [number for constant in messages_of(expr, CONSTANT) for number, _ in fields_of(constant)]
    return kinds[0] if kinds else None


def _text(expr: bytes) -> str | None:
    """The text of a string literal; None for anything else."""
    for constant in messages_of(expr, CONSTANT):
        for number, value in fields_of(constant):
            if number == _STRING and isinstance(value, bytes):
                return value.decode()
    return None
