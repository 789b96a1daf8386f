"""``govern()``: any callable, run only on an explicit yes to the very arguments that it gets."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from counterseal_agents.canonical import Json, JsonObject, as_json
from counterseal_agents.contract import Call
from counterseal_agents.errors import Closed, Ungoverned
from counterseal_agents.gate import Gate, Raised

P = ParamSpec("P")
R = TypeVar("R")
GOVERNED = "__counterseal__"


@overload
def govern(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def govern(
    function: Callable[P, R],
    /,
    *,
    gate: Gate | None = None,
    tool: str | None = None,
    harmless: Raised = (),
    unseen: Collection[str] = (),
) -> Callable[P, R]: ...
@overload
def govern(
    *, gate: Gate | None = None, tool: str | None = None, harmless: Raised = (), unseen: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def govern(
    function: Callable[..., Any] | None = None,
    /,
    *,
    gate: Gate | None = None,
    tool: str | None = None,
    harmless: Raised = (),
    unseen: Collection[str] = (),
) -> Any:
    """Make of a callable one that asks before it runs; also a decorator.

    ``harmless``: exceptions by which the tool says that it has had no effect. ``unseen``: parameters that the program
    gives and nobody decides on; they are in no digest and on no card. Arguments are copied before they are shown.
    """
    if function is None:
        return lambda given: govern(given, gate=gate, tool=tool, harmless=harmless, unseen=unseen)
    if getattr(function, GOVERNED, False):
        return function
    asking, name = gate or Gate(), tool or _name(function)
    signature = inspect.signature(function)
    if unknown := sorted(set(unseen) - set(signature.parameters)):
        raise Ungoverned(f"{name} has no parameter {unknown[0]}, which is said to be unseen.")
    # Of a method, the object is the program's own.
    own = [one for one in list(signature.parameters)[:1] if one in ("self", "cls")]
    call_of = _Arguments(name, signature, frozenset((*unseen, *own))).bound
    if _is_async(function):

        @wraps(function)
        async def governed_async(*args: Any, **kwargs: Any) -> Any:
            call, bound = call_of(args, kwargs)
            return await asking.arun(call, lambda: function(*bound.args, **bound.kwargs), harmless)

        return _marked(governed_async)

    @wraps(function)
    def governed(*args: Any, **kwargs: Any) -> Any:
        call, bound = call_of(args, kwargs)
        return asking.run(call, lambda: function(*bound.args, **bound.kwargs), harmless)

    return _marked(governed)


class _Arguments:
    """The arguments of a callable: as it gets them, and as they are shown."""

    def __init__(self, name: str, signature: inspect.Signature, unseen: frozenset[str]) -> None:
        self.name, self.signature, self.unseen = name, signature, unseen

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, inspect.BoundArguments]:
        """The call, and its own copies of the arguments: nobody else can change them before the body has them."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        shown: JsonObject = {}
        for name in list(bound.arguments):
            if name in self.unseen:
                continue
            bound.arguments[name], value = _copied(self.name, name, bound.arguments[name])
            if self.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD and isinstance(value, dict):
                if taken := sorted(value.keys() & self.signature.parameters.keys()):
                    raise Closed(f"{self.name} was not run: its argument {taken[0]} stands twice.")
                shown |= value
            else:
                shown[name] = value
        return Call(self.name, shown), bound


def call_of(tool: str, arguments: Mapping[str, Any]) -> tuple[Call, dict[str, Any]]:
    """The call of a tool with these arguments, and its own copies of them for the body."""
    pairs = {name: _copied(tool, name, value) for name, value in arguments.items()}
    own = {name: pair[0] for name, pair in pairs.items()}
    return Call(tool, {name: pair[1] for name, pair in pairs.items()}), own


def _copied(tool: str, name: str, value: object) -> tuple[Any, Json]:
    """The copy of an argument, and its JSON form."""
    try:
        own = copy.deepcopy(value)
        return own, as_json(own)
    except Exception as error:
        words = f"its argument {name} {error}" if isinstance(error, ValueError) else f"{name}: {error}"
        raise Closed(f"{tool} was not run: {words}, so it cannot be asked about.") from error


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    setattr(function, GOVERNED, True)
    return function


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        raise Ungoverned("A callable without a name of its own needs one: govern(..., tool=NAME).")
    return str(name)


def _is_async(function: Callable[..., Any]) -> bool:
    """True for whatever gives a coroutine. What runs bit by bit is refused: its report would come before its effect."""
    of_object = inspect.getattr_static(type(function), "__call__", None)
    for one in (function, of_object):
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise Ungoverned(f"{_name(function)} runs bit by bit while it is read: give back its whole result.")
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_object)
