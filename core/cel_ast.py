"""The syntax of a compiled CEL expression, and its limits.

The engine does not expose its syntax tree, but it serializes to protocol buffers (google/api/expr/v1alpha1/
checked.proto). We decode the few fields that linting needs, without a protobuf library.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from core.cel_functions import OF_ZONES, ZONED
from core.errors import ExpressionError

# The field numbers of Expr, one for each kind of node.
CONSTANT, IDENT, SELECT, CALL, LIST, STRUCT, COMPREHENSION = 3, 4, 5, 6, 7, 8, 9
ACCUMULATORS = frozenset({"@result", "__result__"})  # names that macros make; authors cannot write them


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an expression: characters, syntax nodes, and depth of nested or chained comprehensions."""

    characters: int = 2_000
    nodes: int = 300
    loops: int = 1


@dataclass
class Syntax:
    """Counts and names of an expression's parts.

    ``loops`` is the deepest chain or nesting of comprehensions. ``patterns`` are the literal patterns of ``matches``,
    ``zones`` the literal time zones.
    ``calls`` are functions and operators; macros are expanded before and do not appear.
    """

    nodes: int = 0
    loops: int = 0
    names: set[str] = field(default_factory=set)
    loop_variables: set[str] = field(default_factory=set)
    presence_tests: int = 0
    adds_in_loop: bool = False
    patterns: list[str] = field(default_factory=list)
    zones: list[str] = field(default_factory=list)
    calls: set[str] = field(default_factory=set)


def read_syntax(serialized: bytes) -> Syntax:
    """The syntax of ``Expression.serialize()``: an Any that holds a CheckedExpr (checked) or ParsedExpr (unchecked)."""
    root, syntax = root_of(serialized), Syntax()
    syntax.loops = _walk(root, syntax, in_loop=False)
    return syntax


def root_of(serialized: bytes) -> bytes:
    """The expression's outermost node."""
    fields = fields_of(first_of(serialized, 2))
    roots = {number: value for number, value in fields if isinstance(value, bytes)}
    root = roots.get(4) or roots.get(2)  # CheckedExpr.expr, or ParsedExpr.expr
    if root is None:
        raise ValueError("no expression in the serialized form")
    return root


def is_bind(body: bytes) -> bool:
    """True for a comprehension over an empty list with an unused variable: the expansion of ``cel.bind``."""
    (over,) = messages_of(body, 2)
    lists = [*messages_of(over, LIST)]
    return len(lists) == 1 and not [*messages_of(lists[0], 1)] and [*texts_of(body, 1)] == ["#unused"]


def lint(syntax: Syntax, unchecked: Syntax, limits: Limits, declared: Collection[str]) -> None:
    """Raise ``ExpressionError`` for syntax that compiles but is too large or misleading.

    ``unchecked`` is the syntax before types are resolved. ``declared`` are the first parts of the variables' names.
    """
    if syntax.nodes > limits.nodes:
        raise ExpressionError(f"has {syntax.nodes} parts; at most {limits.nodes} are accepted", remedy="Split it.")
    if syntax.loops > limits.loops:
        raise ExpressionError(
            f"has {syntax.loops} comprehensions (all, exists, map, filter) in or over one another",
            remedy=f"At most {limits.loops} are accepted.",
        )
    if syntax.adds_in_loop:
        raise ExpressionError(
            "uses '+' inside a comprehension, which can grow without bound", remedy="Add outside of it."
        )
    if syntax.presence_tests != unchecked.presence_tests:
        raise ExpressionError(
            "has() on a declared variable would mean the variable's value",
            remedy="For an action's field write 'name' in action.present.",
        )
    shadowed = sorted(syntax.loop_variables.intersection(declared))
    if shadowed:
        raise ExpressionError(f"the loop variable {shadowed[0]!r} hides a declared one", remedy="Rename it.")


# Calls that read one member of a value: ``a[b]``, ``a[?b]`` and ``a.?b``.
_MEMBER_CALLS = frozenset({"_[_]", "_[?_]", "_?._"})


def reads_of(expr: bytes) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what an expression reads: each variable with the path of members down to the value that is used."""
    chain = _chain(expr)
    if chain is not None:
        yield chain
        return
    for kind, body in fields_of(expr):
        if not isinstance(body, bytes):
            continue
        numbers = {SELECT: (1,), CALL: (1, 3), LIST: (1,), COMPREHENSION: (2, 4, 5, 6, 7)}.get(kind, ())
        for part in [part for number in numbers for part in messages_of(body, number)]:
            yield from reads_of(part)
        for entry in messages_of(body, 2) if kind == STRUCT else ():
            for part in [part for number in (3, 4) for part in messages_of(entry, number)]:
                yield from reads_of(part)


def _chain(expr: bytes) -> tuple[str, tuple[str, ...]] | None:
    """The variable and its members if the expression is just a path; else None."""
    for kind, body in fields_of(expr):
        if not isinstance(body, bytes):
            continue
        if kind == IDENT:
            return next(texts_of(body, 1), ""), ()
        if kind == SELECT:
            above = _chain(first_of(body, 1))
            return None if above is None else (above[0], (*above[1], next(texts_of(body, 2), "")))
        if kind == CALL and next(texts_of(body, 2), "") in _MEMBER_CALLS:
            operand, *index = messages_of(body, 3)
            names = [text for one in index for constant in messages_of(one, CONSTANT) for text in texts_of(constant, 6)]
            above = _chain(operand)
            return (above[0], (*above[1], names[0])) if above is not None and len(names) == 1 else None
    return None


# The member of a place that means any item of a list.
ITEM = "[]"


def places_of(
    expr: bytes, loops: Mapping[str, tuple[str, tuple[str, ...]] | None] = MappingProxyType({})
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every place that an expression names: a variable, and the members below it; ``ITEM`` for items of lists.

    ``loops`` are the variables of the loops around it, each with the place of the list that the loop iterates over.
    """
    place = place_of(expr, loops)
    if place is not None:
        yield place
    yield from _looked_up(expr, loops)
    for kind, body in fields_of(expr):
        if not isinstance(body, bytes):
            continue
        inner = loops
        if kind == COMPREHENSION:
            over = place_of(first_of(body, 2), loops)
            items = None if over is None else (over[0], (*over[1], ITEM))
            inner = {**loops, **dict.fromkeys(texts_of(body, 1), items)}
            yield from places_of(first_of(body, 2), loops)
        numbers = {SELECT: (1,), CALL: (1, 3), LIST: (1,), COMPREHENSION: (4, 5, 6, 7)}.get(kind, ())
        if place is not None and kind == SELECT:
            numbers = ()  # the operand is a part of the place
        for part in [part for number in numbers for part in messages_of(body, number)]:
            yield from places_of(part, inner)
        for entry in messages_of(body, 2) if kind == STRUCT else ():
            for part in [part for number in (3, 4) for part in messages_of(entry, number)]:
                yield from places_of(part, inner)


def place_of(
    expr: bytes, loops: Mapping[str, tuple[str, tuple[str, ...]] | None] = MappingProxyType({})
) -> tuple[str, tuple[str, ...]] | None:
    """The place that the expression names if it is just a place; else None."""
    for kind, body in fields_of(expr):
        if not isinstance(body, bytes):
            continue
        if kind == IDENT:
            name = next(texts_of(body, 1), "")
            return loops.get(name, (name, ()))
        if kind == SELECT:
            above = place_of(first_of(body, 1), loops)
            return None if above is None else (above[0], (*above[1], next(texts_of(body, 2), "")))
        if kind == CALL and next(texts_of(body, 2), "") in _MEMBER_CALLS:
            operand, *index = messages_of(body, 3)
            names = [text for one in index for constant in messages_of(one, CONSTANT) for text in texts_of(constant, 6)]
            above = place_of(operand, loops)
            return None if above is None else (above[0], (*above[1], names[0] if names else ITEM))
        if kind == COMPREHENSION and _is_filter(body):
            return place_of(first_of(body, 2), loops)
    return None


def _looked_up(
    expr: bytes, loops: Mapping[str, tuple[str, tuple[str, ...]] | None]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the place that ``'name' in place`` asks for."""
    for call in messages_of(expr, CALL):
        arguments = [*messages_of(call, 3)] if next(texts_of(call, 2), "") == "@in" else []
        if len(arguments) == 2 and (above := place_of(arguments[1], loops)):
            for constant in messages_of(arguments[0], CONSTANT):
                yield from ((above[0], (*above[1], name)) for name in texts_of(constant, 6))


def _is_filter(body: bytes) -> bool:
    """True for a loop that keeps items unchanged, so that its result's items have the members of its list's items."""
    variable = [*texts_of(body, 1)]
    for choice in messages_of(first_of(body, 6), CALL):
        for added in [call for part in messages_of(choice, 3) for call in messages_of(part, CALL)]:
            lists = [one for part in messages_of(added, 3) for one in messages_of(part, LIST)]
            items = [name for one in lists for item in messages_of(one, 1) for name in messages_of(item, IDENT)]
            if next(texts_of(choice, 2), "") == "_?_:_" and items and [*texts_of(items[0], 1)] == variable:
                return True
    return False


def _walk(expr: bytes, syntax: Syntax, *, in_loop: bool) -> int:
    """Add a node and its children to ``syntax``. Returns its depth in comprehensions."""
    syntax.nodes += 1
    deepest = 0
    for kind, body in fields_of(expr):
        if not isinstance(body, bytes):
            continue
        if kind == IDENT:
            syntax.names.update(texts_of(body, 1))
        elif kind == SELECT:
            deepest = max(deepest, _select(body, syntax, in_loop=in_loop))
        elif kind == CALL:
            deepest = max(deepest, _call(body, syntax, in_loop=in_loop))
        elif kind == LIST:
            deepest = max(deepest, *(_walk(item, syntax, in_loop=in_loop) for item in messages_of(body, 1)), 0)
        elif kind == STRUCT:
            parts = [part for entry in messages_of(body, 2) for number in (3, 4) for part in messages_of(entry, number)]
            deepest = max(deepest, *(_walk(part, syntax, in_loop=in_loop) for part in parts), 0)
        elif kind == COMPREHENSION:
            deepest = max(deepest, _comprehension(body, syntax, in_loop=in_loop))
    return deepest


def _select(body: bytes, syntax: Syntax, *, in_loop: bool) -> int:
    if any(number == 3 and value for number, value in fields_of(body)):
        syntax.presence_tests += 1
    return max((_walk(part, syntax, in_loop=in_loop) for part in messages_of(body, 1)), default=0)


def _call(body: bytes, syntax: Syntax, *, in_loop: bool) -> int:
    function = next(texts_of(body, 2), "")
    syntax.calls.add(function)
    arguments = list(messages_of(body, 3))
    if function == "_+_" and in_loop and not _is_accumulator(arguments[0]):
        syntax.adds_in_loop = True
    if function == "matches" and arguments:
        constants = messages_of(arguments[-1], CONSTANT)
        syntax.patterns.extend(text for constant in constants for text in texts_of(constant, 6))
    if function in ZONED | OF_ZONES and arguments:
        syntax.zones.extend(text for constant in messages_of(arguments[-1], CONSTANT) for text in texts_of(constant, 6))
    parts = [*messages_of(body, 1), *arguments]
    return max((_walk(part, syntax, in_loop=in_loop) for part in parts), default=0)


def _comprehension(body: bytes, syntax: Syntax, *, in_loop: bool) -> int:
    """Add a comprehension. One over the result of another counts as nested, because both multiply the work."""
    if is_bind(body):
        syntax.loop_variables.update(texts_of(body, 3))
        parts = [part for number in (4, 7) for part in messages_of(body, number)]
        return max((_walk(part, syntax, in_loop=in_loop) for part in parts), default=0)
    syntax.loop_variables.update(texts_of(body, 1), texts_of(body, 8))
    over = [_walk(part, syntax, in_loop=in_loop) for part in messages_of(body, 2)]
    inside = [_walk(part, syntax, in_loop=True) for number in (4, 5, 6, 7) for part in messages_of(body, number)]
    return 1 + max(over + inside, default=0)


def _is_accumulator(expr: bytes) -> bool:
    return any(name in ACCUMULATORS for ident in messages_of(expr, IDENT) for name in texts_of(ident, 1))


def texts_of(message: bytes, number: int) -> Iterator[str]:
    """The texts in a field of a message."""
    return (value.decode() for value in messages_of(message, number))


def messages_of(message: bytes, number: int) -> Iterator[bytes]:
    """The messages, or texts, in a field of a message."""
    return (value for found, value in fields_of(message) if found == number and isinstance(value, bytes))


def first_of(message: bytes, number: int) -> bytes:
    """The first message in a field of a message; empty if there is none."""
    return next(messages_of(message, number), b"")


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of one protocol buffer message, in order."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} in a serialized expression")
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
