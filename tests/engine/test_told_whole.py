"""Every event taken apart and put together again; lines that cannot be read; values as they are stored beside lines."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec import NODEFAULT

from core.canonical import plain_bytes
from core.errors import ConsistencyError
from evidence.chain import Actor
from evidence.receipts import LateAnswer, Resolution
from runtime.engine import events as e
from runtime.engine.events import EVENTS, AgentAnswered, Event, RunPaused, StepStarted
from runtime.engine.states import RunState, WaitKind
from runtime.engine.told import (
    STORED,
    VALUES_BYTES_MAX,
    WORTH_DEFLATING,
    Diverged,
    Told,
    check_stored,
    digest_of,
    from_parts,
    line_of,
    names,
    pack_values,
    parts,
    read_line,
    unpack_values,
    values_committed,
)
from tests.engine.conftest import KEY, NOW
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("U-7")

ID = UUID(int=7)
SAMPLES: dict[str, tuple[Any, Any]] = {
    "UUID": (ID, str(ID)),
    "str": ("text", "text"),
    "int": (7, 7),
    "int | float": (1.5, 1.5),
    "bool": (True, True),
    "Json": ({"n": [1]}, {"n": [1]}),
    "JsonObject": ({"n": 1}, {"n": 1}),
    "list[Json]": ([1, "a"], [1, "a"]),
    "list[str]": (["a"], ["a"]),
    "list[JsonObject]": ([{"n": 1}], [{"n": 1}]),
    "RunState": (RunState.CANCELED, "canceled"),
    "WaitKind": (WaitKind.TASK, "task"),
    "Resolution": (Resolution.FAILED, "failed"),
    "LateAnswer": (LateAnswer.IN_DOUBT, "in_doubt"),
}
IN_LINES = {("StepFailed", "kind"): "class", ("ActionFailed", "kind"): "class"}


def declared(kind: type[Event]) -> dict[str, tuple[str, bool, Any]]:
    """The fields of an event: the type, whether it is private, and the default."""
    every = kind.__struct_fields__
    defaults = [NODEFAULT] * (len(every) - len(kind.__struct_defaults__)) + [*kind.__struct_defaults__]
    found = {}
    for name, default in zip(every, defaults, strict=True):
        told = kind.__annotations__[name]
        private = told.startswith("Private[")
        plain = told.removeprefix("Private[").removesuffix("]") if private else told
        found[name] = (plain.removesuffix(" | None"), private, default)
    return found


def in_line(kind: type[Event], name: str) -> str:
    return IN_LINES.get((kind.__name__, name), name)


@pytest.mark.parametrize("kind", EVENTS.values(), ids=lambda kind: kind.__name__)
def test_an_event_is_taken_apart_and_put_together_again(kind: type[Any]) -> None:
    fields = declared(kind)
    event = kind(**{name: SAMPLES[told][0] for name, (told, _, _) in fields.items()})
    facts = {in_line(kind, name): SAMPLES[told][1] for name, (told, private, _) in fields.items() if not private}
    values = {name: SAMPLES[told][1] for name, (told, private, _) in fields.items() if private}
    assert parts(event) == (facts, values)
    assert all(type(value) in (str, int, float, bool, dict, list) for value in (*facts.values(), *values.values()))
    read = from_parts(kind.TYPE, orjson.loads(orjson.dumps(facts)), orjson.loads(orjson.dumps(values)))
    assert read == event
    assert [type(getattr(read, name)) for name in fields] == [type(getattr(event, name)) for name in fields]


@pytest.mark.parametrize("kind", EVENTS.values(), ids=lambda kind: kind.__name__)
def test_what_an_event_does_not_say_is_not_in_it_and_what_it_has_to_say_is_missed(kind: type[Any]) -> None:
    fields = declared(kind)
    needed = {name: SAMPLES[told] for name, (told, _, default) in fields.items() if default is NODEFAULT}
    least = kind(**{name: value for name, (value, _) in needed.items()})
    facts, values = parts(least)
    assert {*facts, *values} == {in_line(kind, name) for name in needed}
    assert from_parts(kind.TYPE, facts, values) == least
    for name in needed:
        private = fields[name][1]
        short = [{key: value for key, value in each.items() if key != in_line(kind, name)} for each in (facts, values)]
        with pytest.raises(ConsistencyError) as raised:
            from_parts(kind.TYPE, *short)
        assert raised.value.message == f"{kind.TYPE} lacks its {in_line(kind, name)}"
        # A value in the wrong place is none: nothing private is read from a line, nothing public from beside it.
        with pytest.raises(ConsistencyError, match="lacks its"):
            from_parts(kind.TYPE, *((short[0] | values, short[1]) if private else (short[0], short[1] | facts)))


@pytest.mark.parametrize("kind", EVENTS.values(), ids=lambda kind: kind.__name__)
def test_a_fact_of_another_type_makes_no_event(kind: type[Any]) -> None:
    fields = declared(kind)
    whole = kind(**{name: SAMPLES[told][0] for name, (told, _, _) in fields.items()})
    for name, (told, private, _) in fields.items():
        if told not in ("UUID", "RunState", "WaitKind", "Resolution", "LateAnswer"):
            continue
        for wrong in ("no such thing", "", 5, 0, False, [], [str(ID)]):
            facts, values = parts(whole)
            (values if private else facts)[in_line(kind, name)] = wrong
            with pytest.raises(ConsistencyError) as raised:
                from_parts(kind.TYPE, facts, values)
            assert raised.value.message == f"{kind.TYPE} has {wrong!r} as its {in_line(kind, name)}"


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (e.RunClosed(RunState.SUCCEEDED, None), "error"),
        (e.RunReopened(None, [], False), "bundle"),
        (e.ActionIntended(ID, "#", "o", 1, "d", None), "approval"),
    ],
)
def test_what_has_to_be_said_is_said_even_if_it_is_nothing(event: Any, name: str) -> None:
    facts, values = parts(event)
    assert (facts[name], from_parts(event.TYPE, facts, values)) == (None, event)


def test_a_contradiction_says_what_is_wrong_and_what_to_do() -> None:
    found = Diverged("line 3 is another", "chain")
    assert (found.message, found.check, Diverged("x").check) == ("line 3 is another.", "chain", "book")
    assert "compare it with a backup" in str(found.remedy)


def test_what_is_no_event_of_a_run_is_none() -> None:
    with pytest.raises(ConsistencyError, match=r"tenant\.x is no event of a run"):
        from_parts("tenant.x", {}, {})  # type: ignore[arg-type]


def test_the_fields_of_events_are_public_or_private_as_they_were() -> None:
    found: dict[str, list[str]] = {}
    for kind, event in EVENTS.items():
        fields = {name: default for name, (*_, default) in declared(event).items()}
        optional = {name: f" = {default!r}" for name, default in fields.items() if default is not NODEFAULT}
        told = event.__annotations__
        found[str(kind)] = [f"{in_line(event, name)}: {told[name]}{optional.get(name, '')}" for name in fields]
    as_it_was(Path(__file__).with_name("whole_events.json"), found)


TOLD = Told(RunPaused(True, ["c"], "calm"), Actor("person", "ann"), NOW, None)


def stored_line(told: Told = TOLD) -> tuple[dict[str, Any], Any]:
    line, values = line_of(told, KEY)
    sealed: dict[str, Any] = orjson.loads(orjson.dumps(line))
    return sealed, values


def test_a_line_is_read_as_it_was_told() -> None:
    for told in (TOLD, Told(StepStarted("o", 1, 2), Actor("worker", "w"), NOW + timedelta(microseconds=1), "a")):
        line, values = stored_line(told)
        found = read_line(orjson.dumps(line), values, KEY, 5)
        assert found == Told(told.event, told.actor, told.at, told.step, 5)
        assert read_line(orjson.dumps(line), values, KEY) == told
        first = read_line(orjson.dumps(line), values, KEY, 0)
        assert (first.seq, first.step) == (0, told.step), "the first line has a number, too"


def test_each_value_and_each_member_of_one_is_committed_to_by_its_own_path() -> None:
    line, values = {"type": "x", "data": {}}, {"z": 1, "a": {"n": 2, "b/c": 3}, "none": None, "empty": {}, "list": []}
    found = values_committed(KEY, line, values)
    event = sha256(plain_bytes(line)).hexdigest()
    paths = [one[0] for one in found if isinstance(one, list)]
    assert paths == sorted(f"/{event}/{name}" for name in ("z", "a/n", "a/b~1c", "none", "empty", "list"))
    assert len({str(one) for one in found}) == 6
    assert values_committed(KEY, line, dict(reversed(values.items()))) == found
    others = [values_committed(b"x" * 32, line, values), values_committed(KEY, {**line, "type": "y"}, values)]
    assert all(one not in found for other in others for one in other)


BROKEN: dict[str, Any] = {
    "no type": lambda line: line.pop("type"),
    "no data": lambda line: line.pop("data"),
    "no actor": lambda line: line.pop("actor"),
    "no time": lambda line: line.pop("ts"),
    "no step": lambda line: line.pop("step"),
    "no kind of actor": lambda line: line["actor"].pop("kind"),
    "no id of the actor": lambda line: line["actor"].pop("id"),
    "another type": lambda line: line.update(type="run.nothing"),
    "a type that is a list": lambda line: line.update(type=[]),
    "a time that is none": lambda line: line.update(ts="soon"),
    "a time that is a number": lambda line: line.update(ts=5),
    "an actor that is a text": lambda line: line.update(actor="ann"),
    "data that are a list": lambda line: line.update(data=[]),
    "data that are a text": lambda line: line.update(data="ann"),
    "data that are nothing": lambda line: line.update(data=None),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("verify", [True, False])
def test_a_line_that_cannot_be_read_breaks_the_chain(what: str, verify: bool) -> None:
    line, values = stored_line()
    BROKEN[what](line)
    with pytest.raises(Diverged, match="a line of the book cannot be read") as raised:
        read_line(orjson.dumps(line), values, KEY, verify=verify)
    assert raised.value.check == "chain"


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"5", b'"x"', b"null", b"\xff"])
def test_what_is_no_line_cannot_be_read(line: bytes) -> None:
    with pytest.raises(Diverged, match="a line of the book cannot be read"):
        read_line(line, {}, KEY)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"reason": "other"}, KEY),
        ({"reason": "calm", "more": 1}, KEY),
        ({}, KEY),
        ({"reason": 2**60}, KEY),
        ({"reason": "calm"}, b"x" * 32),
    ],
)
@pytest.mark.parametrize("commits", [True, False])
def test_a_line_commits_to_all_its_values_and_to_no_others(change: Any, key: bytes, commits: bool) -> None:
    line, values = stored_line()
    assert values == {"reason": "calm"}
    if not commits:  # then there may be none
        del line["data"]["values"]
        change = change or values
    with pytest.raises(Diverged) as raised:
        read_line(orjson.dumps(line), change, key, 4)
    assert (raised.value.message, raised.value.check) == (
        "line 4 (run.paused) commits to other values than those that are stored.", "book",
    )  # fmt: skip
    unread = read_line(orjson.dumps(line), {}, key, verify=False)
    assert unread.event == RunPaused(True, ["c"])


def test_without_its_key_a_line_commits_to_nothing() -> None:
    line, values = line_of(TOLD, b"")
    assert (values, "values" in line["data"]) == ({}, False)
    assert line["data"] == {"reason_given": True, "committed": ["c"]}
    told = Told(AgentAnswered("answer", [], result={}), TOLD.actor, NOW, "a/1")
    assert line_of(told, KEY)[1] == {"result": {}}


def sized(size: int) -> list[Any]:
    """Values that are so long when they are packed."""
    empty = len(orjson.dumps({"0": {"t": ""}}))
    return [{"t": "x" * (size - empty)}]


@pytest.mark.parametrize(
    ("size", "plain"),
    [(WORTH_DEFLATING - 1, True), (WORTH_DEFLATING, False), (WORTH_DEFLATING + 1, False), (99_999, False)],
)
def test_values_are_deflated_from_a_size_on_and_read_again(size: int, plain: bool) -> None:
    values = sized(size)
    packed = pack_values(values)
    assert packed is not None
    assert packed.startswith(b"{") is plain
    assert len(packed) == size if plain else len(packed) < size
    assert unpack_values(packed) == {0: values[0]}


def test_only_lines_that_have_values_are_packed_under_their_numbers() -> None:
    assert pack_values([{}, {"a": 1}, {}, {"b": [2]}]) == b'{"1":{"a":1},"3":{"b":[2]}}'
    assert (pack_values([]), pack_values([{}, {}]), unpack_values(None)) == (None, None, {})
    assert unpack_values(b'{"1":{"a":1},"3":{"b":[2]}}') == {1: {"a": 1}, 3: {"b": [2]}}


DEFLATED = zlib.compress(b'{"0":{"a":1}}')


@pytest.mark.parametrize(
    "stored",
    [b"", b"{", b"nothing", b'{"x":{}}', b'{"0":5}', b'{"0":[1]}', DEFLATED[:5], zlib.compress(b"[]"), b"\x00" * 9],
)
def test_values_that_cannot_be_read_contradict_the_book(stored: bytes) -> None:
    with pytest.raises(Diverged) as raised:
        unpack_values(stored)
    assert raised.value.message == "the values of an append cannot be read."
    assert unpack_values(DEFLATED) == {0: {"a": 1}}


def test_values_are_inflated_to_their_largest_size_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack_values(sized(1000))
    for most, fits in ((1001, True), (1000, True), (999, False)):
        monkeypatch.setattr("runtime.engine.told.VALUES_BYTES_MAX", most)
        if fits:
            assert unpack_values(packed)
        else:
            with pytest.raises(Diverged):
                unpack_values(packed)
    assert VALUES_BYTES_MAX == 256 * 1024 * 1024


def test_a_digest_stands_under_its_own_name_and_depends_on_the_key() -> None:
    shown = f'{{"data":{{"{STORED}":"{digest_of(b"x", KEY)}"}}}}'.encode()
    assert names(shown, STORED, b"x", KEY)
    for name, stored, key in (("state", b"x", KEY), (STORED, b"y", KEY), (STORED, b"x", b"o" * 32)):
        assert not names(shown, name, stored, key)
    check_stored(shown, b"x", KEY)
    check_stored(b'{"data":{}}', None, KEY)
    for line, stored in ((shown, None), (shown, b"y"), (b'{"data":{}}', b"x")):
        with pytest.raises(Diverged, match="other values than those that its line names"):
            check_stored(line, stored, KEY)
    assert len(digest_of(b"x", KEY)) == 32
    keys = [KEY, KEY[:-1] + b"x", b"x" + KEY[1:]]
    assert len({digest_of(b"x", key) for key in keys}) == 3, "the whole key counts"


def test_a_time_is_told_in_utc() -> None:
    east = timezone(timedelta(hours=5))
    line, _ = stored_line(Told(TOLD.event, TOLD.actor, datetime(2026, 1, 1, 5, tzinfo=east)))
    assert line["ts"] == "2026-01-01T00:00:00.000000Z"
