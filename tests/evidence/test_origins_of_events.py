"""Origins from events that were made up for it: which values are opened, and what a turn of an agent was shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from core.errors import InputError
from core.origins.conversation import Heard, digest_of
from core.origins.matching import MODEL, PERSON, VERSION
from evidence.origins import (
    ANSWERED,
    BEGAN,
    DECIDED,
    FAILED,
    SUCCEEDED,
    Event,
    Recount,
    _beginning,
    _turn,
    _Withheld,
    listed,
    recompute,
)

pytestmark = pytest.mark.req("P-14")
WITHHELD = object()


class Book:
    """Events with their values; a value that is ``WITHHELD`` is not disclosed."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._values: dict[tuple[str, str], Any] = {}

    def tell(
        self, kind: str, step: str | None, values: Mapping[str, Any] | None = None, seq: int | None = None
    ) -> Event:
        pairs = [(f"/{len(self.events)}/{path}", f"of {path}") for path in values or ()]
        self._values |= dict(zip(pairs, (values or {}).values(), strict=True))
        event = Event(len(self.events) if seq is None else seq, kind, step, pairs)
        self.events.append(event)
        return event

    def opened(self, path: str, commitment: str) -> tuple[bool, Any]:
        value = self._values[path, commitment]
        return value is not WITHHELD, None if value is WITHHELD else value


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, None),
        ({"said": 7}, 7),
        ({"said": None}, None),
        ({"said": 0}, 0),
        ({"said/a": 1, "said/b": None}, {"a": 1, "b": None}),
        ({"said/a~1b": 1, "said/a~01": 2, "said/~1": 3}, {"a/b": 1, "a~1": 2, "/": 3}),
        ({"said/a/b": 1, "said/b": 2}, {"a/b": 1, "b": 2}),
        ({"saids": 1, "sai": 2, "other/said": 3}, None),
        ({"other": WITHHELD, "saids": WITHHELD, "said/a": 1}, {"a": 1}),
        ({"said": WITHHELD}, WITHHELD),
        ({"said/a": 1, "said/b": WITHHELD}, WITHHELD),
        ({"said/a": WITHHELD, "said/b": 1}, WITHHELD),
    ],
)
def test_a_private_value_is_put_together_of_all_its_parts(values: Any, found: Any) -> None:
    book = Book()
    event = book.tell(ANSWERED, "a/1", values)
    if found is WITHHELD:
        with pytest.raises(_Withheld):
            event.opened("said", book.opened)
    else:
        assert event.opened("said", book.opened) == found
    assert Event(1, ANSWERED, "a/1").opened("said", book.opened) is None


def test_what_an_agent_begins_with_is_what_its_sources_name() -> None:
    """A source names a message by its place, also the first one, or has a value of its own."""
    book = Book()
    sources = [
        {"origin": "first", "message": 0, "value": "not this"}, {"origin": "second", "message": 1},
        {"origin": "own", "value": {"n": 1}}, {"origin": "none", "message": None, "value": 0}, {"origin": "empty"},
    ]  # fmt: skip
    messages = [{"role": "user", "content": "zero"}, {"role": "user", "content": "one"}]
    began = book.tell(BEGAN, "a", {"messages": messages, "sources": sources})
    assert _beginning(began, book.opened) == [
        Heard("first", "zero"), Heard("second", "one"), Heard("own", {"n": 1}), Heard("none", 0), Heard("empty", None)
    ]  # fmt: skip
    assert _beginning(book.tell(BEGAN, "a", {"messages": messages}), book.opened) == []


READS = {"operation": "x.y.read", "records": "items", "secret": False, "kinds": {}, "names": []}
TOOLS: Any = {
    "read": READS, "bare": {**READS, "operation": "x.y.bare", "records": None}, "ask": {"people": True},
    "hidden": {**READS, "secret": True}, "run": {"secret": False},
}  # fmt: skip


def turned(calls: list[str], done: dict[int, Any]) -> tuple[Book, dict[tuple[str, str], Event]]:
    """A turn in which the model has said these calls, and those that are ``done`` have answered."""
    book = Book()
    book.tell(SUCCEEDED, "a/2", {"output": {"text": "t"}})
    book.tell(ANSWERED, "a/2", {"said": [{"tool": tool, "input": {}} for tool in calls]})
    for number, value in done.items():
        book.tell(SUCCEEDED, f"a/2/{number}", {"output": value})
    return book, {(event.type, event.step or ""): event for event in book.events}


ANSWER = Heard(MODEL, {"text": "t"}, "a/2", answer=True)


@pytest.mark.parametrize(
    ("calls", "done", "heard"),
    [
        ([], {}, []),
        (["read"], {1: "one"}, [Heard("tool:x.y.read", "one", "a/2/1", "items")]),
        (["read"], {1: None}, [Heard("tool:x.y.read", None, "a/2/1", "items")]),
        (
            ["read", "bare", "ask"],
            {1: "one", 2: "two", 3: "three"},
            [Heard("tool:x.y.read", "one", "a/2/1", "items"), Heard("tool:x.y.bare", "two", "a/2/2", None),
             Heard(PERSON, "three")],
        ),
        # A call that failed has no result, and is followed by others; a secret tool that failed hides nothing.
        (["read", "bare"], {2: "two"}, [Heard("tool:x.y.bare", "two", "a/2/2", None)]),
        (["hidden", "read", "run", "ask"], {2: "two", 4: "four"},
         [Heard("tool:x.y.read", "two", "a/2/2", "items"), Heard(PERSON, "four")]),
        (["hidden"], {1: "one"}, None),
        (["run"], {1: "one"}, None),
        (["read", "hidden"], {1: "one", 2: "two"}, None),
        (["read"], {1: WITHHELD}, None),
    ],
)  # fmt: skip
def test_a_turn_shows_its_answer_and_the_result_of_each_call_that_succeeded(
    calls: list[str], done: dict[int, Any], heard: list[Heard] | None
) -> None:
    book, own = turned(calls, done)
    if heard is None:
        with pytest.raises(_Withheld):
            _turn("a/2", own, TOOLS, book.opened)
    else:
        assert _turn("a/2", own, TOOLS, book.opened) == [ANSWER, *heard]


def test_a_turn_that_did_not_succeed_shows_nothing() -> None:
    book, own = turned(["read"], {1: "one"})
    without = {at: event for at, event in own.items() if at != (SUCCEEDED, "a/2")}
    assert _turn("a/2", without, TOOLS, book.opened) == []
    silent = {at: event for at, event in own.items() if at != (ANSWERED, "a/2")}
    assert _turn("a/2", silent, TOOLS, book.opened) == [ANSWER]


@pytest.mark.parametrize(
    ("step", "told", "count"),
    [
        ("a/1/1", {}, Recount(followed=1)),
        ("act", {"origins/arguments": {}}, Recount(followed=1)),
        ("a/1/1", {"origins/turn": "a/1", "origins/matcher": VERSION + 1}, Recount(withheld=1)),
        ("a/1/1", {"origins/turn": "a/1", "origins/matcher": VERSION - 1}, Recount(withheld=1)),
        ("a/1/1", {"origins/turn": "a/1", "origins/matcher": WITHHELD}, Recount(withheld=1)),
        # Only a call is two below its agent. The origins of anything else are not those of a call.
        ("a/1", {"origins/turn": "a/1", "origins/matcher": VERSION}, Recount(withheld=1)),
        ("act", {"origins/turn": "a/1", "origins/matcher": VERSION}, Recount(withheld=1)),
        (None, {"origins/turn": "a/1", "origins/matcher": VERSION}, Recount(withheld=1)),
    ],
)
def test_origins_that_are_not_of_a_call_are_not_computed_again(step: str | None, told: Any, count: Recount) -> None:
    book = Book()
    book.tell(DECIDED, step, told)
    assert recompute(book.events, book.opened) == count


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (7, "AttributeError"), ({"n": {"matched": [["no"]], "origins": []}}, "KeyError"),
        ({"n": {"matched": [["list", "x"]], "origins": []}}, "TypeError"), ({"n": {}}, "KeyError"),
    ],
)  # fmt: skip
def test_whatever_cannot_be_read_is_said_with_its_event(arguments: Any, wrong: str) -> None:
    book = called(arguments)
    with pytest.raises(InputError, match=rf"event 7: its origins cannot be read: {wrong}"):
        recompute(book.events, book.opened)


def called(arguments: Any, step: str = "a/1/1") -> Book:
    """An agent whose model calls a tool in its first turn; what it was shown was nothing."""
    book = Book()
    book.tell(BEGAN, "a", {"matching": TOOLS, "sources": [], "messages": []}, seq=3)
    book.tell(ANSWERED, "a/1", {"said": [{"tool": "read", "input": {"list": [1]}}]}, seq=4)
    told = {"turn": "a/1", "matcher": VERSION, "shown": digest_of([]), "arguments": arguments}
    book.tell(DECIDED, step, {f"origins/{name}": value for name, value in told.items()}, seq=7)
    return book


@pytest.mark.parametrize("number", ["x", "", "1x"])
def test_a_call_has_a_number(number: str) -> None:
    book = called({}, f"a/1/{number}")
    with pytest.raises(InputError, match="event 7: its origins cannot be read: ValueError"):
        recompute(book.events, book.opened)
    assert recompute(called({}).events, called({}).opened) == Recount(again=1)


def test_of_two_events_that_are_missing_the_first_is_named() -> None:
    chained: Any = {5: (FAILED, "a/1", None), 2: (ANSWERED, "a/1", None), 3: (ANSWERED, "a/2", None)}
    told: Any = [{"seq": 5, "type": FAILED, "step": "a/1"}]
    with pytest.raises(InputError, match="event 2 is not listed among the origins"):
        listed(told, chained)
    with pytest.raises(InputError, match="event 9 is listed with other values"):
        listed([{"seq": 9, "type": FAILED, "step": "a/1"}], chained)
    with pytest.raises(InputError, match="event 5 is listed with other values"):
        listed([{"seq": 5, "type": FAILED, "step": "a/1", "values": []}], chained)
