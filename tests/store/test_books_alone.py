"""The book of a run as it is read and compared: what of it is checked, when, and which values are the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import NotFoundError
from evidence.chain import Actor, ChainHead
from runtime.engine import contributors
from runtime.engine.commit import MutationRow
from runtime.engine.events import RunExtended, RunOpened
from runtime.engine.states import StepState
from runtime.engine.told import Diverged
from runtime.store import books, journal, runs, views
from runtime.store.books import Book
from runtime.store.views import Purged
from tests.support.asked import Asked
from tests.support.rows import uid

pytestmark = pytest.mark.req("Q-21")

NOTHING: Any = None


class Appended:
    """Stands in for an append of lines; what it tells names the key and how it was read."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = lines

    def told(self, key: bytes, *, each: bool = False) -> list[Any]:
        return [(line, key, each) for line in self.lines]


EVERY: Any = [Appended(b"one", b"two"), Appended(b"three")]


@pytest.fixture
def _unbroken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "_unbroken", lambda row: EVERY)


def row(**more: Any) -> Any:
    return {"run_id": uid(1), "audit_count": 3, "audit_head": "7" * 64, "purged_at": None, "run_key": b"k", **more}


@pytest.mark.usefixtures("_unbroken")
@pytest.mark.parametrize("key", [b"k", b"", None])
async def test_a_book_whose_values_were_erased_has_no_events_whatever_is_left_of_its_key(key: bytes | None) -> None:
    assert not Book(row(run_key=key), (), ()).purged
    emptied = await books.checked(row(purged_at="then", run_key=key))
    assert (emptied.told, emptied.appends, emptied.purged) == ((), EVERY, True)
    if key:
        whole = await books.checked(row(run_key=key))
        told: Any = [*whole.told]
        assert told == [(line, b"k", True) for line in (b"one", b"two", b"three")], "each value is compared"
        assert (whole.appends, whole.purged, whole.run_id) == (EVERY, False, uid(1))
        assert whole.head == ChainHead(f"run:{uid(1)}", 3, "7" * 64)
    else:
        with pytest.raises(Diverged, match="The run's key was deleted"):
            await books.checked(row(run_key=key))


@pytest.mark.usefixtures("_unbroken")
async def test_lines_alone_are_those_of_an_unbroken_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    connection: Any = Asked(row(purged_at="then", run_key=None), None)
    assert await books.lines(connection, "Acme", uid(1)) == [b"one", b"two", b"three"]
    with pytest.raises(NotFoundError) as caught:
        await books.lines(connection, "Acme", uid(2))
    assert str(caught.value) == f"There is no run {uid(2)}. See `counterseal run list`."
    assert connection.told == [(books._RUN, "Acme", uid(1)), (books._RUN, "Acme", uid(2))]

    def broken(_: Any) -> Any:
        raise Diverged("broken")

    monkeypatch.setattr(books, "_unbroken", broken)
    for verb in (books.lines, books.read):
        again: Any = Asked(row())
        with pytest.raises(Diverged, match="broken"):
            await verb(again, "acme", uid(1))


@pytest.mark.parametrize(
    ("stored", "told", "alike"),
    [
        (1, 1, True), ([1, {"a": None}], (1, {"a": None}), True), ({"a": (1, 2)}, {"a": [1, 2]}, True),
        (StepState.READY, "ready", True), (1.0, 1, True), (None, None, True),
        (None, "", False), ("", None, False), (None, 0, False), (0, None, False), ([], None, False),
        (None, {}, False), ({}, [], False), ("1", 1, False), ([1], [1, 1], False), ([1, 2], [2, 1], False),
        ({"a": None}, {}, False),
    ],
)  # fmt: skip
def test_nothing_is_another_value_than_an_empty_one(stored: Any, told: Any, alike: bool) -> None:
    assert books.same(stored, told) is alike


def extended(number: int, gates: Any, seq: int) -> Any:
    event = RunExtended(**{**dict.fromkeys(RunExtended.__struct_fields__), "number": number, "source": {"n": number},
                           "operations": {"o": {}}, "gates": gates})  # fmt: skip
    return SimpleNamespace(event=event, actor=Actor("person", f"by {number}"), seq=seq)


def opened(trigger: str) -> Any:
    values: dict[str, Any] = dict.fromkeys(RunOpened.__struct_fields__)
    return SimpleNamespace(event=RunOpened(**{**values, "trigger": trigger}), actor=Actor("person", "ann"), seq=0)


async def test_extensions_are_the_first_so_many_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [opened("api"), extended(1, None, 5), extended(2, ["b", "a"], 9), extended(3, (), 12)]
    rows = [
        MutationRow(number, f"by {number}", {"n": number}, {"o": {}}, gates)
        for number, gates in ((1, ()), (2, ("b", "a")), (3, ()))
    ]
    assert books.extensions_in(told) == rows

    async def of_type(*given: Any) -> Any:
        assert given == (NOTHING, uid(1), b"k", "run.extended")
        return told

    monkeypatch.setattr(journal, "of_type", of_type)
    for count in (0, 1, 2, 3, 4):
        assert await books.extensions(NOTHING, uid(1), b"k", count) == rows[:count]


def test_a_book_begins_with_its_first_event() -> None:
    told = [opened("first"), opened("second")]
    assert Book(row(), (), told).opened == told[0].event
    with pytest.raises(AssertionError):
        _ = Book(row(), (), [extended(1, None, 0), told[0]]).opened


# -- who reads a run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parent", [None, uid(9)])
@pytest.mark.parametrize("shaped", [True, False])
async def test_whoever_has_shaped_a_run_is_told_in_one_order(
    monkeypatch: pytest.MonkeyPatch, shaped: bool, parent: Any
) -> None:
    loads: list[Any] = []

    async def load(*given: Any) -> Any:
        loads.append(given)
        return SimpleNamespace(run=SimpleNamespace(state="the state"))

    monkeypatch.setattr(runs, "load", load)
    monkeypatch.setattr(contributors, "everybody", lambda state: (state, "person:b", "person:a"))
    graphs: Any = "the graphs"
    ending: Any = {"shaped": shaped, "run_id": uid(1), "parent_run_id": parent}
    found = await runs.shapers_of(NOTHING, ending, graphs)
    assert found == (("person:a", "person:b", "the state") if shaped else ())
    assert loads == ([(NOTHING, uid(1), "the graphs")] if shaped else [])


@pytest.mark.parametrize(
    ("status", "over"),
    [(each, each in ("succeeded", "failed_terminal", "canceled")) for each in StepState] + [(None, True)],
)
async def test_a_step_is_over_when_nothing_more_can_happen_to_it(
    monkeypatch: pytest.MonkeyPatch, status: Any, over: bool
) -> None:
    async def load(*given: Any, **how: Any) -> Any:
        assert (given, how) == ((NOTHING, uid(1), "the graphs"), {"tenant": "acme"})
        if status is StepState.READY:
            steps = {"a": SimpleNamespace(status=status), "b": SimpleNamespace(status=StepState.SUCCEEDED)}
        else:
            steps = {"b": SimpleNamespace(status=StepState.READY)}
            steps |= {} if status is None else {"a": SimpleNamespace(status=status)}
        return SimpleNamespace(run=SimpleNamespace(steps=steps))

    monkeypatch.setattr(views, "load", load)
    graphs: Any = "the graphs"
    assert await views.step_is_over(NOTHING, "acme", uid(1), "a", graphs) is over


async def test_every_step_of_a_run_that_was_emptied_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(*given: Any, **how: Any) -> Any:
        raise Purged("It was emptied.")

    monkeypatch.setattr(views, "load", load)
    assert await views.step_is_over(NOTHING, "acme", uid(1), "a", NOTHING) is True
