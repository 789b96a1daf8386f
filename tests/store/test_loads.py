"""The statements that read a run, in their order: what is locked, what is read again, and for whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import NotFoundError
from runtime.engine.run import RunView
from runtime.engine.windows import NeedsItems
from runtime.store import views
from runtime.store.views import Purged, load
from tests.support.rows import OneRow, uid

RUN = uid(7)
LOCK = (views._LOCK, RUN)
BEFORE: Any = SimpleNamespace(version=4)
NOTHING: Any = None


ROW = {"run": {"run_id": str(RUN), "purged_at": None}}


def view(name: str) -> Any:
    values = dict.fromkeys(RunView.__struct_fields__, NOTHING)
    return RunView(**{**values, "workflow": name, "version": 9, "kept_at": 3})


class Reading:
    """Views that are made of the rows: ``followed`` and ``loaded`` are answers or errors, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, followed: Any = None, loaded: Any = ()) -> None:
        self.told: list[Any] = []
        self._followed, self._loaded = followed, [*loaded] or [view("loaded")]
        monkeypatch.setattr(views, "_followed", self._follow)
        monkeypatch.setattr(views, "loaded", self._load)

    async def _follow(self, connection: Any, row: Any, graphs: str, before: Any) -> Any:
        self.told.append(("follows", row, graphs, before.version))
        if isinstance(self._followed, Exception):
            raise self._followed
        return self._followed

    async def _load(self, connection: Any, row: Any, graphs: str, *, whole: bool) -> Any:
        self.told.append(("loads", row, graphs, whole))
        answer = self._loaded.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def read(whole: bool) -> Any:
    return (views.SELECT, RUN, whole)


AFTER = (views._AFTER, RUN, 4)


@pytest.mark.parametrize(
    ("how", "asked", "loads"),
    [
        ({}, [read(False)], False),
        ({"lock": True}, [LOCK, read(False)], False),
        ({"whole": True}, [read(True)], True),
        ({"whole": True, "lock": True}, [LOCK, read(True)], True),
        ({"afresh": True}, [read(True)], False),
        ({"afresh": True, "lock": True}, [LOCK, read(True)], False),
        ({"afresh": True, "before": BEFORE}, [read(True)], False),
        ({"tenant": "acme"}, [(views._READ_RUN, RUN, False, "acme", False)], False),
        ({"tenant": "acme", "lock": True}, [(views._READ_RUN, RUN, False, "acme", True)], False),
        ({"tenant": "acme", "whole": True}, [(views._READ_RUN, RUN, True, "acme", False)], True),
        ({"tenant": "acme", "afresh": True}, [(views._READ_RUN, RUN, True, "acme", False)], False),
    ],
)
async def test_a_run_is_locked_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, how: Any, asked: list[Any], loads: bool
) -> None:
    """By one statement after the other, so that the second one sees what was committed while the first one waited."""
    reading, connection = Reading(monkeypatch), OneRow(ROW)
    given: Any = connection, RUN, "the graphs"
    found = await load(*given, **how)
    assert connection.asked == asked
    assert reading.told == [("loads", ROW, "the graphs", loads)]
    # A face keeps nothing beside the book.
    assert (found.workflow, found.kept_at) == ("loaded", 9 if "tenant" in how else 3)


@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.parametrize("followed", [view("followed"), None, NeedsItems()])
async def test_only_what_came_since_is_read_of_a_run_that_is_known(
    monkeypatch: pytest.MonkeyPatch, followed: Any, lock: bool
) -> None:
    """If that does not lead to its head, or needs items that were let go, the run is read again; the lock is held."""
    reading, connection = Reading(monkeypatch, followed), OneRow(ROW)
    given: Any = connection, RUN, "the graphs"
    found = await load(*given, before=BEFORE, lock=lock)
    locks = [LOCK] * lock
    again = not isinstance(followed, RunView)
    assert connection.asked == [*locks, AFTER, *([*locks, read(False)] if again else [])]
    assert found.workflow == ("loaded" if again else "followed")
    assert reading.told[0] == ("follows", ROW, "the graphs", 4)
    assert len(reading.told) == 1 + again


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_a_run_whose_kept_state_has_too_few_items_is_folded_from_its_first_line(
    monkeypatch: pytest.MonkeyPatch, tenant: str | None
) -> None:
    reading, connection = Reading(monkeypatch, loaded=[NeedsItems(), view("whole")]), OneRow(ROW)
    given: Any = connection, RUN, "the graphs"
    found = await load(*given, tenant=tenant)
    assert (found.workflow, found.kept_at) == ("whole", 3 if tenant is None else 9)
    assert [each[2] for each in connection.asked] == [False, True]
    assert [each[3:] for each in connection.asked] == ([(), ()] if tenant is None else [("acme", False)] * 2)
    assert [each[3] for each in reading.told] == [False, False]


@pytest.mark.parametrize("before", [None, BEFORE])
async def test_a_run_that_is_not_there_or_was_emptied_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, before: Any
) -> None:
    Reading(monkeypatch)
    for row, error, words in (
        (None, NotFoundError, f"There is no run {RUN}."),
        (
            {"run": {"run_id": str(RUN), "purged_at": "2026-01-01"}},
            Purged,
            (
                f"The run {RUN} is over, and what it held was removed when its retention ended."
                " Its audit and its evidence bundle are kept."
            ),
        ),
    ):
        given: Any = OneRow(row), RUN, "the graphs"
        with pytest.raises(error) as caught:
            await load(*given, before=before)
        assert str(caught.value) == words
