"""Stored values are decoded by type: a wrong one is refused with the event and field that hold it (promise 6)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
import pytest
from msgspec import NODEFAULT, inspect

from core.errors import ConsistencyError
from evidence.chain import ChainHead
from runtime.engine.book.recorded import from_parts, parts
from runtime.engine.book.snapshot import pack, unpack
from runtime.engine.model.events import EVENTS
from runtime.engine.model.graph import NO_GRAPH
from runtime.engine.model.run import Run, State
from runtime.engine.replay.replay import unopened

# A value of each kind of type, and one of another kind.
GOOD: dict[type, Any] = {
    inspect.StrType: "word", inspect.IntType: 1, inspect.BoolType: True, inspect.UUIDType: str(uuid4()),
    inspect.ListType: [], inspect.DictType: {}, inspect.FloatType: 0.5, inspect.DateTimeType: "2026-11-22T00:00:00Z",
}  # fmt: skip


def kinds(declared: Any) -> list[Any]:
    """The types that a declared type admits, besides None."""
    if isinstance(declared, inspect.Metadata):
        return kinds(declared.type)
    admitted = declared.types if isinstance(declared, inspect.UnionType) else (declared,)
    return [each for each in admitted if not isinstance(each, inspect.NoneType)]


def good(declared: Any) -> Any:
    """A value that this type admits."""
    first = kinds(declared)[0]
    if isinstance(first, inspect.EnumType):
        return next(iter(first.cls)).value
    return GOOD.get(type(first), "anything")


def fields_of(kind: Any) -> tuple[inspect.Field, ...]:
    """The fields of an event."""
    info = inspect.type_info(EVENTS[kind])
    assert isinstance(info, inspect.StructType)
    return info.fields


def checked(kind: Any) -> list[inspect.Field]:
    """The fields of an event that hold one type: any JSON is not checked."""
    return [
        field for field in fields_of(kind) if not any(isinstance(each, inspect.AnyType) for each in kinds(field.type))
    ]


@pytest.mark.parametrize("kind", EVENTS)
def test_a_wrong_type_in_any_field_of_an_event_is_named(kind: Any) -> None:
    whole = {field.encode_name: good(field.type) for field in fields_of(kind)}
    event = from_parts(kind, whole, whole)
    assert from_parts(kind, *map(plain, parts(event))) == event
    for field in checked(kind):
        wrong = {**whole, field.encode_name: 7 if isinstance(good(field.type), str | bool | list | dict) else "seven"}
        with pytest.raises(ConsistencyError, match=rf"{kind} .*\$\.{field.encode_name}\b"):
            from_parts(kind, wrong, wrong)
        if field.default is NODEFAULT and field.default_factory is NODEFAULT:
            less = {name: value for name, value in whole.items() if name != field.encode_name}
            with pytest.raises(ConsistencyError, match=rf"{kind} .*`{field.encode_name}`"):
                from_parts(kind, less, less)


def plain(value: Any) -> Any:
    """The value as it comes out of the database."""
    return orjson.loads(orjson.dumps(value))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("channels", []), ("status", {"a": 1}), ("loops", {"a": {"name": "x"}}), ("open", "a"), ("reference", 1)],
)
def test_a_wrong_type_in_a_state_is_named(name: str, wrong: Any) -> None:
    with pytest.raises(ConsistencyError, match=rf"\$\.{name}"):
        State.from_json({"channels": {}, name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"), [("superstep", "1"), ("status", "lost"), ("times", {"a": 1}), ("paused", "no"), ("votes", [{}])]
)
def test_a_wrong_type_in_a_kept_run_is_named(name: str, wrong: Any) -> None:
    run: Run = unopened(uuid4(), b"key", NO_GRAPH)
    head = ChainHead.of(f"run:{run.run_id}")
    kept = orjson.loads(pack(run, head))
    assert unpack(orjson.dumps(kept), run.run_id, b"key") == (run, head)
    with pytest.raises(ConsistencyError, match=rf"kept state of run {run.run_id} .*\$\.{name}"):
        unpack(orjson.dumps({**kept, name: wrong}), run.run_id, b"key")
