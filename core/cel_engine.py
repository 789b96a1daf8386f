"""The enabled extensions of the CEL engine, the types that an expression may return, and the checks at load."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from cel_expr_python import cel
from cel_expr_python.ext.ext_bindings import ExtBindings
from cel_expr_python.ext.ext_math import ExtMath
from cel_expr_python.ext.ext_optional import ExtOptional
from cel_expr_python.ext.ext_strings import ExtStrings

from core import cel_dates, cel_network
from core.cel_values import runtime_text
from core.errors import ExpressionError, nearest

_EXTENSIONS = (ExtStrings(), ExtMath(), ExtBindings(), ExtOptional(), cel_network.extension(), cel_dates.extension())
_OPTIONAL = "optional"
NO_VALUE = (cel.Type.ERROR, cel.Type.UNKNOWN)
"""The types of results that are none: an error's value is its text."""

# Types that JSON cannot hold, by the engine's names, each with a remedy.
_UNFIT = {
    cel_network.TYPE_NAME: ("an address or a network", "Write string(…) around it."),
    _OPTIONAL: ("an optional", "Write .orValue(…) behind it."),
    "bytes": ("bytes", "Compare them inside of the expression, or use texts."),
    "type": ("a type", "Compare it inside of the expression."),
}


def extensions() -> list[Any]:
    """The extensions that every expression may use: texts, numbers, names, optionals, addresses, dates."""
    return [*_EXTENSIONS]


def result_type(program: Any) -> str:
    """The engine's name of the type of a program's result."""
    try:
        return str(program.return_type().name())
    except TypeError:  # the engine cannot name the type of an optional
        return _OPTIONAL


def _check_result(name: str) -> None:
    for part, (what, remedy) in _UNFIT.items():
        if part in name.lower():
            raise ExpressionError(f"gives {what}, which no document can hold", remedy=remedy)


def check_pattern(pattern: str) -> None:
    """Refuse a broken regular expression at load; the engine would compile it only at evaluation."""
    probe = cel.NewEnv(variables={"pattern": cel.Type.STRING}).compile("''.matches(pattern)")
    try:
        found = probe.eval(data={"pattern": pattern})
        if found.type() in NO_VALUE:
            raise ExpressionError(str(found.value()))
    except Exception as error:
        raise ExpressionError(f"matches({pattern!r}): {runtime_text(str(error))}") from None


_EPOCH = "timestamp('1970-01-01T00:00:00Z').getHours(zone)"


def check_zone(zone: str) -> None:
    """Refuse a time zone that the engine does not know at load; it would look it up only at evaluation."""
    probe = cel.NewEnv(variables={"zone": cel.Type.STRING}).compile(_EPOCH)
    try:
        found = probe.eval(data={"zone": zone})
        known = zone != "" and found.type() not in NO_VALUE
    except Exception:  # the engine does not document which errors it raises
        known = False
    if not known:
        near = nearest(zone, available_timezones())
        remedy = near if near.startswith("Did") else "Name one as the IANA does, such as 'Europe/Berlin'."
        raise ExpressionError(f"there is no time zone {zone!r}", remedy=remedy)


def check_type(name: str, want: str | None) -> None:
    """Raise ``ExpressionError`` if a result of the type of this name is not one of ``want``, or fits no JSON."""
    _check_result(name)
    found = name.replace(", ", ",").lower()
    if want in (None, "dyn", found) or found == "dyn":
        return
    # Element types are checked by value: the compiler cannot name the element type of [1, dyn] or [].
    if want is not None and found.split("<")[0] == want.split("<")[0] and ("dyn" in found or "<" not in want):
        return
    raise ExpressionError(f"is of type {found}, not {want}")
