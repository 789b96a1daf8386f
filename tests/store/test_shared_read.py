"""Shared effects as the books tell them, whatever has become of the runs that performed or took them over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runtime.engine.commit import ReceiptRow, WaitRow
from runtime.engine.instructions import Shared
from runtime.engine.states import EffectState, WaitKind, WaitState
from runtime.engine.told import Diverged
from runtime.store import effects, retention
from runtime.store.views import Purged
from tests.support.rows import uid

PERFORMED, HOLDER = uid(1), uid(2)
RECEIPT, OTHER, WAIT = uid(3), uid(4), uid(5)
KEY = "the key"
NOTHING: Any = None


def receipt(status: str = "succeeded", number: Any = RECEIPT, key: str = KEY, run: Any = PERFORMED) -> ReceiptRow:
    values: dict[str, Any] = dict.fromkeys(ReceiptRow.__struct_fields__)
    values |= {"receipt_id": number, "run_id": run, "idempotency_key": key, "step_key": "a", "status": status}
    return ReceiptRow(**values)


def wait(status: WaitState = WaitState.WAITING, number: Any = WAIT, result: Any = None) -> WaitRow:
    return WaitRow(number, NOTHING, "a", WaitKind.EXTERNAL, status, "t", result=result)


def run(*receipts: ReceiptRow, waits: tuple[WaitRow, ...] = (), finished: bool = False) -> Any:
    return SimpleNamespace(
        receipts={each.receipt_id: each for each in receipts}, waits={each.wait_id: each for each in waits},
        finished=finished,
    )  # fmt: skip


DONE = wait(WaitState.COMPLETED, result={"output": 1})
FAILED = wait(WaitState.COMPLETED, result={"error": {}})
LEFT = wait(WaitState.CANCELED)
SUCCEEDED, BEGUN = EffectState.SUCCEEDED, EffectState.BEGUN
OURS: dict[str, Any] = {"holder": None, "wait_id": None}
OWN = {"holder": PERFORMED, "wait_id": WAIT}
TAKEN = {"holder": HOLDER, "wait_id": WAIT}


def told(life: EffectState, waits: WaitRow | None = None, *, status: str = "succeeded", **more: bool) -> Shared:
    return Shared(receipt(status), life, waits, **more)


class Books:
    """The books of two runs, or None if retention has emptied them; the receipts that it kept of the first one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: Any, second: Any, kept: list[ReceiptRow]) -> None:
        self._runs, self._kept = {PERFORMED: first, HOLDER: second}, kept
        self.asked: list[Any] = []
        self.read: list[Any] = []
        monkeypatch.setattr(effects, "load", self._load)
        monkeypatch.setattr(retention, "remains", self._remains)

    async def _load(self, connection: Any, run_id: Any, graphs: Any, *, whole: bool) -> Any:
        assert (connection, graphs, whole) == (self, "the graphs", True)
        self.read.append(run_id)
        if self._runs[run_id] is None:
            raise Purged("The run is over.")
        return SimpleNamespace(run=self._runs[run_id])

    async def _remains(self, connection: Any, run_id: Any) -> Any:
        assert (connection, run_id) == (self, PERFORMED)
        rows = [{name: getattr(each, name) for name in each.__struct_fields__} for each in self._kept]
        return [], rows, []

    async def fetchrow(self, statement: str, *parameters: Any) -> Any:
        self.asked.append((statement, *parameters))
        return self._row

    async def by_key(self, status: str = "succeeded", **row: Any) -> Shared | None:
        self._row: Any = {"run_id": PERFORMED, "receipt_id": RECEIPT, "status": status, **row}
        connection: Any = self
        graphs: Any = "the graphs"
        return await effects.by_key(connection, graphs, "acme", KEY)


@pytest.mark.req("Q-14")
@pytest.mark.parametrize(
    ("first", "second", "row", "status", "shared", "read"),
    [
        # Its own run tells it: a plain effect, a durable one that goes on, ended, failed, was left.
        (run(receipt()), None, OURS, "succeeded", told(SUCCEEDED), 1),
        (run(receipt("intended")), None, OURS, "intended", told(EffectState.INTENDED, status="intended"), 1),
        (run(receipt("in_doubt")), None, OURS, "in_doubt", told(EffectState.IN_DOUBT, status="in_doubt"), 1),
        (run(receipt(), finished=True), None, OURS, "succeeded", told(SUCCEEDED, over=True), 1),
        (run(receipt(), waits=(wait(),)), None, OURS, "begun", told(BEGUN, wait()), 1),
        (run(receipt(), waits=(wait(),)), None, OWN, "begun", told(BEGUN, wait()), 1),
        (run(receipt(), waits=(DONE,)), None, OWN, "succeeded", told(SUCCEEDED, DONE), 1),
        (run(receipt(), waits=(FAILED,)), None, OWN, "failed", told(EffectState.FAILED, FAILED), 1),
        (run(receipt(), waits=(LEFT,)), None, OWN, "left", told(EffectState.LEFT, LEFT), 1),
        # Nobody who shared it was left, so it was ended outside.
        (run(receipt(), waits=(LEFT,)), None, OWN, "failed", told(EffectState.FAILED, LEFT), 1),
        # The row says only where to look: what the book tells of an end or of its going on is believed.
        (run(receipt(), waits=(DONE,)), None, OWN, "failed", told(SUCCEEDED, DONE), 1),
        (run(receipt(), waits=(wait(),)), None, OWN, "failed", told(BEGUN, wait()), 1),
        (run(receipt("intended")), None, OURS, "failed", told(EffectState.INTENDED, status="intended"), 1),
        (run(receipt(), waits=(FAILED,)), None, OWN, "begun", told(EffectState.FAILED, FAILED), 1),
        (run(receipt(), waits=(wait(),)), None, {**OWN, "wait_id": None}, "succeeded", told(BEGUN, wait()), 1),
        (None, None, OURS, "failed", told(SUCCEEDED, over=True, erased=True), 1),
        # Another run has taken it over, whose own wait tells it.
        (run(receipt(), waits=(LEFT,)), run(waits=(wait(),)), TAKEN, "begun", told(BEGUN, wait()), 2),
        (run(receipt(), finished=True), run(waits=(DONE,)), TAKEN, "succeeded", told(SUCCEEDED, DONE, over=True), 2),
        (run(receipt()), run(), TAKEN, "begun", told(SUCCEEDED), 2),
        # Retention has emptied the run that performed it, or the one that holds it.
        (None, None, OURS, "succeeded", told(SUCCEEDED, over=True, erased=True), 1),
        (None, run(waits=(DONE,)), TAKEN, "succeeded", told(SUCCEEDED, DONE, over=True, erased=True), 2),
        (None, run(waits=(wait(),)), TAKEN, "begun", told(BEGUN, wait(), over=True, erased=True), 2),
        (run(receipt()), None, TAKEN, "succeeded", told(SUCCEEDED, erased=True), 2),
        (run(receipt()), None, TAKEN, "failed", told(EffectState.FAILED, erased=True), 2),
        (None, None, OWN, "left", told(EffectState.LEFT, over=True, erased=True), 2),
    ],
)  # fmt: skip
async def test_an_effect_is_what_the_books_tell_of_it(
    monkeypatch: pytest.MonkeyPatch, first: Any, second: Any, row: Any, status: str, shared: Shared, read: int
) -> None:
    books = Books(monkeypatch, first, second, [receipt("failed", OTHER), receipt()])
    assert await books.by_key(status, **row) == shared
    assert books.asked == [(effects._BY_KEY, "acme", KEY)]
    assert len(books.read) == read


@pytest.mark.parametrize(
    ("first", "kept"),
    [
        (run(), []),
        (run(receipt(number=OTHER)), []),
        (run(receipt(key="another")), []),
        (run(receipt(run=HOLDER)), []),
        (None, []),
        (None, [receipt(number=OTHER)]),
        (None, [receipt(key="another")]),
    ],
)
async def test_an_effect_of_which_its_run_tells_nothing_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, first: Any, kept: list[ReceiptRow]
) -> None:
    books = Books(monkeypatch, first, None, kept)
    with pytest.raises(Diverged) as caught:
        await books.by_key(**OURS)
    words = f"The run {PERFORMED} does not tell of the receipt {RECEIPT}, which holds the effect {KEY}."
    assert str(caught.value).startswith(words)


async def test_an_effect_that_nobody_has_begun_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    books: Any = Books(monkeypatch, None, None, [])

    async def nothing(*_: Any) -> None:
        return None

    books.fetchrow = nothing
    assert await effects.by_key(books, NOTHING, "acme", KEY) is None
