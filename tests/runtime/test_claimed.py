"""The reads of a worker that has claimed a step, and what the steps of one run have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.engine.commit import Claim, StepRow
from runtime.engine.states import StepState
from runtime.store.views import Unfinished
from runtime.work import holding
from runtime.work.chats import Chats
from runtime.work.holding import Tools, claim_of, read_claimed
from runtime.work.lease import Met, Recent
from runtime.work.means import Means
from tests.support.rows import uid

RUN, CLAIM = uid(7), Claim("a", uid(1), 1)
NOTHING: Any = None
READY, RUNNING = StepState.READY, StepState.RUNNING


def record(lines: Any = ("a line",), epoch: int = 1, gate: int = 3) -> Any:
    step = {"step_key": "a", "lease_id": str(uid(1)), "lease_epoch": epoch, "lease_owner": "owner"}
    return {"run": {"run_id": str(RUN), "gate": gate}, "step": step, "stop_number": 5, "lines": lines}


def view(version: int, status: StepState | None = READY) -> Any:
    """A run with one step, which another lease has had before."""
    row = None if status is None else StepRow(uid(2), "a", 0, "o", 1, status, 0, 0, "before")
    steps = {"other": NOTHING} if row is None else {"a": row}
    run = SimpleNamespace(steps=steps, finished=False, receipts={}, answers={}, waits={})
    return SimpleNamespace(run_id=RUN, version=version, gate=3, stop=5, run=run)


def met(found: Any, exact: Any = None) -> Met:
    return Met(exact or found, found, found.version, NOTHING, NOTHING, NOTHING)


def test_a_claim_names_the_lease_that_it_took() -> None:
    assert claim_of(record(epoch=4)) == (Claim("a", uid(1), 4), "owner")


class Store:
    """The book of a run, which is read as these views, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *views: Any, unfinished: bool = False) -> None:
        self.told: list[Any] = []
        self._views, self._unfinished = [*views], unfinished
        monkeypatch.setattr(holding, "view_of", self._view_of)
        monkeypatch.setattr(holding, "load", self._load)
        monkeypatch.setattr(holding, "meet", self._meet)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[str]:
        yield "the connection"

    async def _view_of(self, connection: str, row: Any, graphs: str, *, before: Any) -> Any:
        self.told.append(("of the claim", connection, row["lines"], graphs, before and before.version))
        if self._unfinished:
            raise Unfinished("not yet")
        return self._views.pop(0)

    async def _load(self, connection: str, run_id: Any, graphs: str, *, before: Any) -> Any:
        self.told.append(("of the book", connection, run_id, graphs, before and before.version))
        return self._views.pop(0)

    async def _meet(self, connection: str, definitions: Any, found: Any, asked: float) -> Met:
        self.told.append(("meets", connection, definitions.graphs, found.version, asked))
        return met(found)

    async def read(self, row: Any, recent: Recent) -> Any:
        database: Any = SimpleNamespace(connection=self.connection)
        definitions: Any = SimpleNamespace(graphs="the graphs")
        return await read_claimed(database, row, definitions, recent, 70.0)


def claims(lines: Any, before: int | None) -> Any:
    return ("of the claim", "the connection", lines, "the graphs", before)


def book(before: int | None) -> Any:
    return ("of the book", "the connection", RUN, "the graphs", before)


def meets(version: int) -> Any:
    return ("meets", "the connection", "the graphs", version, 70.0)


LINES = ("a line",)


@pytest.mark.parametrize(
    ("known", "row", "unfinished", "views", "told"),
    [
        # Nothing has happened to the step since the run was met last: nothing is read.
        (4, record(), False, [], []),
        (4, record(epoch=2), False, [view(6)], [claims(LINES, 4), meets(6)]),
        (4, record(gate=4), False, [view(6)], [claims(LINES, 4), meets(6)]),
        (None, record(), False, [view(6)], [claims(LINES, None), meets(6)]),
        # The claim read no book, or not all of it.
        (None, record(lines=None), False, [view(6)], [book(None), meets(6)]),
        (4, record(lines=None, epoch=2), False, [view(6)], [book(4), meets(6)]),
        (None, record(), True, [view(6)], [claims(LINES, None), book(None), meets(6)]),
        (4, record(epoch=2), True, [view(6)], [claims(LINES, 4), book(4), meets(6)]),
        # The claim did not see our own append before it.
        (None, record(), False, [view(6, RUNNING), view(8)], [claims(LINES, None), meets(6), book(6), meets(8)]),
        (None, record(), False, [view(6, None), view(8)], [claims(LINES, None), meets(6), book(6), meets(8)]),
    ],
)
async def test_no_more_is_read_than_a_worker_needs(
    monkeypatch: pytest.MonkeyPatch, known: int | None, row: Any, unfinished: bool, views: list[Any], told: list[Any]
) -> None:
    store, recent = Store(monkeypatch, *views, unfinished=unfinished), Recent()
    if known is not None:
        recent.put(met(view(known)))
    found, step, knowledge = await store.read(row, recent)
    assert store.told == told
    assert recent[RUN] is found
    assert found.view.version == (views[-1].version if views else known)
    epoch = row["step"]["lease_epoch"]
    assert (step.key, step.status, step.lease_owner, step.lease_epoch) == ("a", READY, "owner", epoch)
    assert (knowledge.receipt, knowledge.given, knowledge.wait) == (None, None, None)


async def test_what_is_read_again_follows_on_the_book_and_not_on_what_was_appended_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, recent = Store(monkeypatch, view(6)), Recent()
    recent.put(met(view(5), exact=view(2)))
    await store.read(record(epoch=2), recent)
    assert store.told[0] == claims(LINES, 2)


@pytest.mark.parametrize(("at_hand", "status"), [(7, RUNNING), (7, None), (6, RUNNING)])
async def test_what_is_read_twice_follows_on_the_book_both_times(
    monkeypatch: pytest.MonkeyPatch, at_hand: int, status: StepState | None
) -> None:
    """Our own append is newer than what the claim saw, so the state at hand stays, and it is none of the book's."""
    store, recent = Store(monkeypatch, view(5), view(8)), Recent()
    recent.put(met(view(at_hand, status), exact=view(2)))
    found, *_ = await store.read(record(epoch=2), recent)
    assert store.told == [claims(LINES, 2), meets(5), book(2), meets(8)]
    assert (found.view.version, recent[RUN] is found) == (8, True)


@pytest.mark.parametrize(
    ("number", "stop", "read"), [(5, 5, False), (6, 5, True), (5, 6, True)]
)  # fmt: skip
async def test_a_policy_that_has_changed_since_is_read_before_the_step_begins(
    monkeypatch: pytest.MonkeyPatch, number: int, stop: int, read: bool
) -> None:
    store, recent, known = Store(monkeypatch, view(6)), Recent(), view(4)
    known.stop = stop
    recent.put(met(known))
    await store.read(record() | {"stop_number": number}, recent)
    assert bool(store.told) is read


# -- what the steps of a worker have in common -----------------------------------------------------------------------


def tools(**more: Any) -> Any:
    connectors: Any = SimpleNamespace(targets={"probe": "a system"}, ready="is ready")
    database: Any = SimpleNamespace(connection="connects")
    return Tools(database, NOTHING, connectors, "me", timedelta(seconds=45), **more)


def test_the_steps_of_one_run_have_one_pump_while_one_of_them_is_held() -> None:
    found = tools()
    one, other = found.pump(RUN), found.pump(uid(8))
    assert found.pump(RUN) is one is not other
    assert found.pump(uid(8)) is other
    assert tools().pump(RUN) is not one
    one.drives = 9
    del one
    assert found.pump(RUN).drives == 0


def test_all_pumps_of_a_worker_have_its_means_and_what_it_has_met() -> None:
    found = tools()
    means: Means = found.pump(RUN)._means
    assert found.pump(uid(8))._means is means
    assert (means.database, means.definitions, means.owner, means.lease) == (
        found.database, NOTHING, "me", timedelta(seconds=45)
    )  # fmt: skip
    assert (means.systems, means.ready) == ({"probe": "a system"}, "is ready")
    assert means.recent is found.recent
    assert isinstance(found.recent, Recent)
    assert (isinstance(found.chats, Chats), found.chats is found.chats) == (True, True)
