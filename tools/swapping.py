"""Swap the functions and plain constants of another text of a module into a process that has imported the module.

A process that has collected its tests looks at a change in milliseconds then. What cannot be swapped raises
`CannotSwap`, and has to be imported anew: class bodies, decorators, defaults, and constants that are objects.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

# A file, and the name and first line of a function. A function that a factory made twice is there twice.
Functions = dict[tuple[str, str, int], list[FunctionType]]
_PLAIN = (str, bytes, int, float, tuple, list, frozenset, set, dict)


class CannotSwap(Exception):
    """A change that a running process cannot take over; the text says why."""


def live_functions(root: Path) -> Functions:
    """Find every function of this process whose file is below ``root``."""
    found: Functions = {}
    gc.unfreeze()  # what is frozen is not told
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(f"{root}/"):
            code = each.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(each)
    return found


def swap(path: Path, old: str, new: str, live: Functions) -> None:
    """Let this process do what ``new`` says, where it has imported ``old`` from the file.

    :raises CannotSwap: nothing may be concluded from this process any more, as a part may be swapped.
    """
    module = next((one for one in list(sys.modules.values()) if getattr(one, "__file__", None) == str(path)), None)
    if module is None:
        raise CannotSwap(f"{path} is not imported")
    before, after = (compile(text, str(path), "exec", dont_inherit=True) for text in (old, new))
    pairs = list(zip(_defined(before), _defined(after), strict=False))
    if len(list(_defined(before))) != len(list(_defined(after))) or any(x.co_name != y.co_name for x, y in pairs):
        raise CannotSwap("other functions are defined")
    if _without_functions(before) != _without_functions(after):
        _swap_constants(module, before, after)
    for was, becomes in pairs:
        if _is_class(was):
            if _without_functions(was) != _without_functions(becomes):
                raise CannotSwap(f"the class {was.co_name} is another one")
        elif _meaning(was) != _meaning(becomes):
            _swap_function(live.get((str(path), was.co_qualname, was.co_firstlineno), []), becomes)


def _is_class(code: CodeType) -> bool:
    return not code.co_flags & inspect.CO_OPTIMIZED


def _defined(code: CodeType) -> Iterator[CodeType]:
    """Yield the classes and the outermost functions of a module or class, in their order."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            if _is_class(each):
                yield from _defined(each)


def _constants(code: CodeType) -> tuple[object, ...]:
    # 1, True and 1.0 are equal, and mean different things.
    return tuple((type(each), repr(each)) for each in code.co_consts if not isinstance(each, CodeType))


def _without_functions(code: CodeType) -> object:
    return code.co_code, code.co_names, _constants(code)


def _meaning(code: CodeType) -> object:
    """Everything of a function but its lines."""
    inner = tuple(_meaning(each) for each in code.co_consts if isinstance(each, CodeType))
    arguments = (code.co_argcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, code.co_exceptiontable, arguments, names, _constants(code), inner


def _swap_function(functions: list[FunctionType], becomes: CodeType) -> None:
    if not functions:
        raise CannotSwap(f"nobody holds {becomes.co_qualname}")
    for function in functions:
        if len(function.__code__.co_freevars) != len(becomes.co_freevars):
            raise CannotSwap(f"{becomes.co_qualname} closes over other variables")
        function.__code__ = becomes


def _swap_constants(module: ModuleType, before: CodeType, after: CodeType) -> None:
    """Give this module, and those that import from it, the plain constants that a text makes of the module."""
    was, becomes = _namespace(module, before), _namespace(module, after)
    if was.keys() != becomes.keys():
        raise CannotSwap("other names are defined")
    others = [name for name, value in was.items() if isinstance(value, _PLAIN) and repr(value) != repr(becomes[name])]
    if not others:
        raise CannotSwap("something else than a plain constant is another one")
    for name in others:
        held = vars(module).get(name)
        for importer in list(sys.modules.values()):
            if vars(importer).get(name) is held:
                setattr(importer, name, becomes[name])


def _namespace(module: ModuleType, code: CodeType) -> dict[str, object]:
    """The names that a module's text defines, when it is run beside the module."""
    made: dict[str, object] = {
        "__name__": module.__name__, "__file__": module.__file__, "__package__": module.__package__
    }  # fmt: skip
    try:
        exec(code, made)  # noqa: S102 -- it is a text of this tree, which is imported otherwise
    except Exception as problem:
        raise CannotSwap(f"the module cannot be run once more: {problem}") from problem
    return {name: value for name, value in made.items() if not name.startswith("__")}
