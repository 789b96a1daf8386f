"""Bounds the work of an expression's comprehensions before the engine runs.

The engine counts the visits of its loops, but not what a visit costs: ``a.all(x, b == b)`` compares all of ``b`` at
each item of ``a``. So the syntax gives products of sizes (the items of ``a`` by the size of ``b``), and these are
computed from the values before they are evaluated. What concerns a loop's own item alone costs no more than the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from core.budgets import most
from core.cel_ast import (
    ACCUMULATORS,
    CALL,
    COMPREHENSION,
    LIST,
    SELECT,
    STRUCT,
    fields_of,
    first_of,
    is_bind,
    messages_of,
    reads_of,
    texts_of,
)

WORK_MAX = most("evaluation_units")
"""The largest sum of products in one evaluation: about a second of processor time at worst."""
_CHARACTERS = 16  # characters of a text count as much as one item of a list

# A variable, and the members down to the value that is used.
Path: TypeAlias = tuple[str, tuple[str, ...]]

# The functions whose work does not depend on the size of their operands.
_CONSTANT = frozenset({
    "_&&_", "_||_", "!_", "_?_:_", "_[_]", "_[?_]", "_?._", "@not_strictly_false", "dyn", "type", "optional.of",
    "optional.none", "or", "orValue", "value", "hasValue",
})  # fmt: skip


class Factor(NamedTuple):
    """One factor of a product: the number of items of a list, or the whole size of the values at the paths."""

    items: bool
    paths: tuple[Path, ...]


Work: TypeAlias = tuple[tuple[Factor, ...], ...]


def work_of(root: bytes) -> Work:
    """The products of an expression; empty if each of its values is visited a constant number of times."""
    return tuple(_walk(root, (), {}, None))


def copies_of(expr: bytes) -> bool:
    """True if a loop of it builds a list. The engine copies that list at each item, so its work is quadratic."""
    for kind, body in fields_of(expr):
        if not isinstance(body, bytes):
            continue
        if kind == COMPREHENSION and not is_bind(body) and [*messages_of(first_of(body, 4), LIST)]:
            return True
        if kind == STRUCT:
            entries = [
                part for entry in messages_of(body, 2) for number in (3, 4) for part in messages_of(entry, number)
            ]
            if any(map(copies_of, entries)):
                return True
        numbers = {SELECT: (1,), CALL: (1, 3), LIST: (1,), COMPREHENSION: (2, 4, 5, 6, 7)}.get(kind, ())
        if any(copies_of(part) for number in numbers for part in messages_of(body, number)):
            return True
    return False


def exceeds(work: Work, values: Mapping[str, object]) -> bool:
    """True if the sum of the products exceeds ``WORK_MAX`` for these values."""
    return sum(_product(factors, values) for factors in work) > WORK_MAX


def _product(factors: tuple[Factor, ...], values: Mapping[str, object]) -> int:
    made = 1
    for factor in factors:
        found = [_at(values, *path) for path in factor.paths]
        made *= max(1, sum(_items(each) if factor.items else _size(each) for each in found))
    return made


def _at(values: Mapping[str, object], variable: str, members: tuple[str, ...]) -> object:
    found = values.get(variable)
    for member in members:
        if not isinstance(found, dict):
            break
        found = found.get(member)
    return found


def _items(value: object) -> int:
    if isinstance(value, str):
        return len(value)  # a text may be split into as many items
    return len(value) if isinstance(value, list | dict) else 1


def _size(value: object) -> int:
    """The size of a value in units. Counting stops soon after the limit, because more would change nothing."""
    if isinstance(value, str):
        return 1 + len(value) // _CHARACTERS
    units = 1
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        units += _size(item)
        if units > WORK_MAX:
            break
    return units


def _walk(
    expr: bytes, loops: tuple[Factor, ...], names: Mapping[str, tuple[Path, ...]], own: str | None
) -> Iterator[tuple[Factor, ...]]:
    """Yield the products of a node. ``loops`` are the factors of the comprehensions around it.

    ``own`` is the item of the innermost comprehension. ``names`` maps bound names and outer items to their paths.
    """
    for kind, body in fields_of(expr):
        if not isinstance(body, bytes):
            continue
        if kind == COMPREHENSION:
            yield from _comprehension(body, loops, names, own)
            continue
        if kind == CALL and loops and next(texts_of(body, 2), "") not in _CONSTANT:
            operands = [*messages_of(body, 1), *messages_of(body, 3)]
            read = _paths(operands, names, own)
            if read:
                yield (*loops, Factor(False, read))
        numbers = {SELECT: (1,), CALL: (1, 3), LIST: (1,)}.get(kind, ())
        parts = [part for number in numbers for part in messages_of(body, number)]
        if kind == STRUCT:
            parts = [part for entry in messages_of(body, 2) for number in (3, 4) for part in messages_of(entry, number)]
        for part in parts:
            yield from _walk(part, loops, names, own)


def _comprehension(
    body: bytes, loops: tuple[Factor, ...], names: Mapping[str, tuple[Path, ...]], own: str | None
) -> Iterator[tuple[Factor, ...]]:
    if is_bind(body):
        given = first_of(body, 4)
        yield from _walk(given, loops, names, own)
        bound = {name: _paths([given], names, own) for name in texts_of(body, 3)}
        yield from _walk(first_of(body, 7), loops, {**names, **bound}, own)
        return
    over = first_of(body, 2)
    yield from _walk(over, loops, names, own)
    paths = _paths([over], names, own)
    # In a loop over the outer loop's item, all visits together are no more than the outer list is large.
    over_item = loops and not paths
    within = (*loops[:-1], Factor(False, loops[-1].paths)) if over_item else (*loops, Factor(True, paths))
    mine = next(texts_of(body, 1), "")
    outer = {} if own is None else {own: loops[-1].paths}
    for number in (4, 5, 6, 7):
        for part in messages_of(body, number):
            yield from _walk(part, within, {**names, **outer, mine: ()}, mine)


def _paths(parts: list[bytes], names: Mapping[str, tuple[Path, ...]], own: str | None) -> tuple[Path, ...]:
    """The paths outside the innermost loop that the parts read; a path occurs as often as it is read."""
    found: list[Path] = []
    for part in parts:
        for variable, members in reads_of(part):
            if variable != own and variable not in ACCUMULATORS:
                found += names.get(variable, ((variable, members),))
    return tuple(found)
