"""The CEL engine's extensions that we enable, and the types that an expression may return."""

from __future__ import annotations

from typing import Any

from cel_expr_python.ext.ext_bindings import ExtBindings
from cel_expr_python.ext.ext_math import ExtMath
from cel_expr_python.ext.ext_optional import ExtOptional
from cel_expr_python.ext.ext_strings import ExtStrings

from core import cel_network
from core.errors import ExpressionError

_EXTENSIONS = (ExtStrings(), ExtMath(), ExtBindings(), ExtOptional(), cel_network.extension())
_OPTIONAL = "optional"
# Types that JSON cannot hold, by the engine's names, each with a remedy.
_UNFIT = {
    cel_network.TYPE_NAME: ("an address or a network", "Write string(…) around it."),
    _OPTIONAL: ("an optional", "Write .orValue(…) behind it."),
    "bytes": ("bytes", "Compare them inside of the expression, or use texts."),
    "type": ("a type", "Compare it inside of the expression."),
}


def extensions() -> list[Any]:
    """The extensions that every expression may use: texts, numbers, names, optionals, addresses."""
    return [*_EXTENSIONS]


def result_type(program: Any) -> str:
    """The engine's name of the type of a program's result."""
    try:
        return str(program.return_type().name())
    except TypeError:  # the engine cannot name the type of an optional
        return _OPTIONAL


def check_result(name: str) -> None:
    """Raise ``ExpressionError`` if JSON cannot hold a result of this type."""
    for part, (what, remedy) in _UNFIT.items():
        if part in name.lower():
            raise ExpressionError(f"gives {what}, which no document can hold", remedy=remedy)
