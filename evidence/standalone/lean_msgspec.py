"""Replaces the package msgspec in the single-file verifier: the parts that the verifier uses.

It is three modules in one: ``msgspec``, ``msgspec.structs`` and ``msgspec.json``.
"""

from __future__ import annotations

import dataclasses
import json as plain_json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, dataclass_transform, get_args, get_origin, get_type_hints

field = dataclasses.field
replace = dataclasses.replace
_EMPTY = (list, dict, set)


class ValidationError(ValueError):
    """The value is not of the type."""


@dataclass_transform(field_specifiers=(dataclasses.field,))
class Struct:
    """A class whose annotations are its fields."""

    __struct_fields__: tuple[str, ...] = ()
    __struct_closed__ = False

    def __init_subclass__(cls, *, frozen: bool = False, forbid_unknown_fields: bool = False, **_: bool) -> None:
        """Make the subclass a dataclass. Each object gets its own copy of an empty default. Each has a ``__dict__``."""
        super().__init_subclass__()
        for name in cls.__annotations__:
            default = cls.__dict__.get(name)
            if type(default) in _EMPTY:
                setattr(cls, name, dataclasses.field(default_factory=type(default)))
        made: Any = dataclasses.dataclass(frozen=frozen)(cls)
        cls.__struct_fields__ = tuple(one.name for one in dataclasses.fields(made))
        cls.__struct_closed__ = forbid_unknown_fields


def asdict(value: Any) -> dict[str, Any]:
    """The fields of a struct by their names."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def to_builtins(value: Any) -> Any:
    """The value as JSON."""
    if isinstance(value, Struct):
        return {name: to_builtins(each) for name, each in asdict(value).items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): to_builtins(each) for name, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(to_builtins(each) for each in value)
    if isinstance(value, list | tuple):
        return [to_builtins(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def convert(value: Any, kind: Any) -> Any:
    """The value as one of this type. ``ValidationError`` if it is none."""
    if kind is Any:
        return value
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(value, inner)
    if kind in (None, NoneType):
        return _of(value, value is None)
    if isinstance(origin, type) and issubclass(origin, Struct):
        return _struct(value, origin)
    if isinstance(origin, type) and issubclass(origin, Enum):
        try:
            return origin(value)
        except ValueError as error:
            raise ValidationError(str(error)) from None
    if origin in (list, tuple, frozenset, set) or getattr(origin, "__name__", "") == "Sequence":
        return _several(value, origin, inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        of = inner[1] if inner else Any
        return {name: convert(each, of) for name, each in _of(value, isinstance(value, dict)).items()}
    if origin is datetime:
        return _moment(value)
    fits = type(value) is origin or (origin is float and type(value) is int) or origin is object
    return _of(value, fits)


def _of(value: Any, fits: bool) -> Any:
    if not fits:
        raise ValidationError(f"{str(value)[:100]!r} is of another type")
    return value


def _one_of(value: Any, kinds: tuple[Any, ...]) -> Any:
    for kind in kinds:
        try:
            return convert(value, kind)
        except ValidationError:
            continue
    raise ValidationError(f"{str(value)[:100]!r} is of another type")


def _several(value: Any, origin: Any, inner: tuple[Any, ...]) -> Any:
    items = _of(value, isinstance(value, list | tuple))
    if origin is tuple and inner and inner[-1] is not ...:
        _of(value, len(items) == len(inner))
        return tuple(convert(each, kind) for each, kind in zip(items, inner, strict=True))
    made = [convert(each, inner[0] if inner else Any) for each in items]
    return origin(made) if origin in (tuple, frozenset, set) else made


def _moment(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(_of(value, isinstance(value, str)))
    except ValueError as error:
        raise ValidationError(str(error)) from None


def _struct(value: Any, kind: Any) -> Any:
    if isinstance(value, kind):
        return value
    members, hints = _of(value, isinstance(value, dict)), get_type_hints(kind)
    if kind.__struct_closed__ and not members.keys() <= {*kind.__struct_fields__}:
        raise ValidationError(f"has unknown members {sorted(members.keys() - {*kind.__struct_fields__})}")
    given = {name: convert(members[name], hints[name]) for name in kind.__struct_fields__ if name in members}
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise ValidationError(str(error)) from None


def encode(value: Any, *, order: str) -> bytes:
    """The JSON of a value. Sets are always sorted, whatever ``order`` says."""
    assert order == "deterministic", "no other order is used"
    return plain_json.dumps(to_builtins(value), ensure_ascii=False).encode()


def decode(data: bytes) -> Any:
    """Parse JSON."""
    return plain_json.loads(data)
