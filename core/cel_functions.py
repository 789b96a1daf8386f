"""The functions and macros that an expression may use, and bounds on how far a value can grow in one.

The engine has no memory limit. So every allowed function is listed here by the size of its result: small, as large as
an operand, or a new text or list that is longer by a factor known before it runs. A function that is not listed is
refused when the document is checked.
"""

from __future__ import annotations

import re
from collections.abc import Collection

OPERATORS = frozenset({
    "_&&_", "_||_", "!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_-_", "_*_", "_/_", "_%_", "-_",
    "@not_strictly_false",
})  # fmt: skip
"""Operators whose result is small: a number, a boolean, a time."""

MATH = frozenset(
    f"math.{name}"
    for name in (
        "greatest", "least", "@max", "@min", "ceil", "floor", "round", "trunc", "abs", "sign", "isNaN", "isInf",
        "isFinite", "sqrt", "bitOr", "bitAnd", "bitXor", "bitNot", "bitShiftLeft", "bitShiftRight",
    )
)  # fmt: skip
ZONED = frozenset({
    "getFullYear", "getMonth", "getDayOfMonth", "getDate", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes",
    "getSeconds", "getMilliseconds",
})  # fmt: skip
"""Functions of a time that may be given a time zone."""
TIMES = ZONED | {"timestamp", "duration"}
NETWORK = frozenset({
    "ip", "isIP", "ip.isCanonical", "cidr", "isCIDR", "containsIP", "containsCIDR", "masked", "prefixLength", "family",
    "isUnspecified", "isLoopback", "isGlobalUnicast", "isLinkLocalUnicast", "isLinkLocalMulticast",
})  # fmt: skip
OF_ZONES = frozenset({"at", "day"})
"""Functions of dates whose last operand is a time zone."""
DATES = OF_ZONES | {"addDays", "addMonths", "lastOfMonth"}
TESTS = frozenset({"size", "contains", "startsWith", "endsWith", "matches", "hasValue"})
SMALL = (
    OPERATORS
    | MATH
    | TIMES
    | NETWORK
    | DATES
    | TESTS
    | {"int", "uint", "double", "bool", "indexOf", "lastIndexOf", "type"}
)
"""Functions whose result is small, whatever they are given."""

OPTIONALS = frozenset({
    "optional.of", "optional.ofNonZeroValue", "optional.none", "or", "orValue", "value", "_?._", "_[?_]",
})  # fmt: skip
PASSING = frozenset({"_[_]", "_?_:_", "dyn"}) | OPTIONALS
"""Functions whose result is one of their operands, or a part of it."""

STRINGS = frozenset({
    "charAt", "substring", "trim", "lowerAscii", "upperAscii", "reverse", "split", "strings.quote", "string", "bytes",
})  # fmt: skip
BUILDING = STRINGS | {"_+_", "replace", "join"}
"""Functions whose result is a new value built from all of their operands."""

MACROS = ("all", "exists", "exists_one", "map", "filter", "has", "cel.bind", "optMap", "optFlatMap")
KNOWN = SMALL | PASSING | BUILDING
WRITTEN = sorted({name for name in KNOWN if name[0].isalpha() and "@" not in name} | set(MACROS))
"""The names that authors write."""

_LITERAL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_MACRO = re.compile(rf"\b({'|'.join(map(re.escape, MACROS))})\s*\(")


def written(source: str, calls: Collection[str]) -> frozenset[str]:
    """The functions and macros that an author has written in an expression with these calls."""
    return frozenset([*_MACRO.findall(_LITERAL.sub("''", source)), *(name for name in WRITTEN if name in calls)])


GROWTH_MAX = 64
"""The factor by which a text or list may be longer than everything that the expression reads."""
OPT_MAPS_MAX = 3
"""The limit of optMap and optFlatMap in one expression: each duplicates its operand before any check can run."""
