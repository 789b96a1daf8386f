"""Every number, word, pattern and default of a module that has a name, as JSON."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
from cel_expr_python import cel
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).resolve().parents[2]
_UNTOLD = object()
_Factory = type(msgspec.defstruct("Made", [("one", dict, msgspec.field(default_factory=dict))]).__struct_defaults__[0])


def plain(value: Any) -> Any:
    """A value as JSON, if it is one that can be written out."""
    match value:
        case enum.Enum():
            return plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case timedelta():
            return f"{value.total_seconds():g} s"
        case re.Pattern():
            flags = sorted(str(flag.name) for flag in re.RegexFlag(value.flags))  # each Python has its own order
            return f"{value.pattern!a} {'|'.join(flags)}"
        case Mapping() if type(value) in (dict, MappingProxyType):  # others are caches, which fill up
            return {str(plain(key)): told(item) for key, item in value.items()}
        case set() | frozenset():
            return sorted((told(item) for item in value), key=str)
        case range() | UUID() | IPv4Network() | IPv6Network() | cel.Type():
            return str(value)
        case tuple() | list():
            return [told(item) for item in value]
        case type():
            return value.__name__
        case _Factory():
            return f"{value.factory.__name__}()"
    if isinstance(value, msgspec.Struct) or is_dataclass(value):
        return {name: told(getattr(value, name)) for name in value.__annotations__ if hasattr(value, name)}
    return plain(value.model_dump()) if isinstance(value, BaseModel) else _UNTOLD


def told(value: Any) -> Any:
    """A part of a value; a function inside is told by its kind alone."""
    found = plain(value)
    return f"({type(value).__name__})" if found is _UNTOLD else found


def constants(tree: ast.Module, module: Any) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for name in (each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)):
            yield name, plain(getattr(module, name, _UNTOLD))


def defaults(function: Any) -> dict[str, Any]:
    given = inspect.signature(function).parameters.values()
    return {one.name: told(one.default) for one in given if one.default is not inspect.Parameter.empty}


def of_class(kind: type) -> dict[str, Any]:
    """The members of an enum, or the defaults of fields and of methods."""
    if issubclass(kind, enum.Enum):
        return {name: plain(member) for name, member in kind.__members__.items()}
    found: dict[str, Any] = {}
    if issubclass(kind, BaseModel):
        given = {name: info.default for name, info in kind.model_fields.items()}
        found = {name: told(value) for name, value in given.items() if value is not PydanticUndefined}
    elif issubclass(kind, msgspec.Struct):
        values = kind.__struct_defaults__
        found = dict(zip(kind.__struct_fields__[-len(values) :], map(told, values), strict=True)) if values else {}
    elif is_dataclass(kind):
        found = {one.name: told(one.default) for one in fields(kind) if one.default is not MISSING}
    for name, member in vars(kind).items():
        function = getattr(member, "__func__", member)
        written = name == "__init__" and not is_dataclass(kind)
        if isinstance(function, FunctionType) and (written or not name.startswith("__")) and defaults(function):
            found[f"{name}()"] = defaults(function)
    return found


def names_below(*folders: str) -> list[str]:
    """The modules and packages of these folders, but for what runs if it is imported."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if path.stem != "__main__")
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]


def of_modules(names: Iterable[str]) -> dict[str, Any]:
    """Everything that each of these modules names, without the modules that name nothing."""
    every = {name: of_module(name) for name in names}
    return {name: found for name, found in every.items() if found}


def of_module(name: str) -> dict[str, Any]:
    module = importlib.import_module(name)
    found = dict(constants(ast.parse(inspect.getsource(module)), module))
    for key, value in vars(module).items():
        if getattr(value, "__module__", None) != name or isinstance(value, partial):
            continue
        if isinstance(value, FunctionType):
            found[f"{key}()"] = defaults(value) or _UNTOLD
        elif isinstance(value, type):
            found[key] = of_class(value) or _UNTOLD
    return {key: value for key, value in sorted(found.items()) if value is not _UNTOLD and not key.startswith("__")}
