"""Views of runs that were altered or emptied: which values are believed of a line, and whose run is read again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ConsistencyError, InputError
from evidence.chain import ChainHead
from runtime.engine.told import Diverged
from runtime.store import views
from runtime.store.journal import Append
from runtime.store.views import Purged, Unfinished
from tests.store.test_views_made import row_of, simulated
from tests.support.pumping import RUN_ID
from tests.support.rows import OneRow

pytestmark = pytest.mark.req("V-8")

NOTHING: Any = None


@pytest.mark.parametrize(
    ("first", "second", "read"),
    [
        (None, None, "verified"),
        (Diverged("altered"), None, "bare"),
        (ConsistencyError("altered"), None, "bare"),
        (InputError("no JSON"), None, "bare"),
        (Diverged("altered"), InputError("no JSON"), None),
        (InputError("no JSON"), Diverged("altered"), None),
        (Diverged("altered"), ConsistencyError("altered"), None),
    ],
)
def test_a_line_is_read_with_values_that_are_its_own_or_without_any_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, first: Any, second: Any, read: str | None
) -> None:
    asked: list[Any] = []

    def read_line(line: bytes, values: Any, key: bytes, *, verify: bool = True) -> Any:
        asked.append((line, values, key, verify))
        error = second if len(asked) > 1 else first
        if error is not None:
            raise error
        return "verified" if verify else "bare"

    monkeypatch.setattr(views, "read_line", read_line)
    found: Any = views._read(b"line", {"a": 1}, b"k")
    assert found == read
    assert asked == [(b"line", {"a": 1}, b"k", True), (b"line", {}, b"k", False)][: 1 if first is None else 2]


def test_every_line_that_can_be_read_is_read_with_the_values_of_its_own_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    appends = [
        SimpleNamespace(lines=[b"one", b"two", b"lost"], values={1: {"of": "two"}, 2: {"of": "lost"}}),
        SimpleNamespace(lines=[b"three"], values={0: {"of": "three"}}),
    ]
    monkeypatch.setattr(views, "_appends", lambda row: appends)
    monkeypatch.setattr(views, "_read", lambda line, values, key: None if line == b"lost" else (line, values, key))
    for key, used in ((b"k", b"k"), (None, b"")):
        found: Any = [*views._unverified({"run_key": key})]
        assert found == [(b"one", {}, used), (b"two", {"of": "two"}, used), (b"three", {"of": "three"}, used)]


@pytest.mark.parametrize("tenant", [None, "acme"])
@pytest.mark.parametrize("lock", [True, False])
async def test_a_run_that_cannot_be_read_is_read_again_whole_in_its_tenant_and_under_the_lock_that_is_held(
    monkeypatch: pytest.MonkeyPatch, tenant: str | None, lock: bool
) -> None:
    async def broken(*given: Any, **how: Any) -> Any:
        assert (given, how) == ((connection, RUN_ID, "the graphs"), {"lock": lock, "tenant": tenant})
        raise Diverged("The book is broken")

    monkeypatch.setattr(views, "load", broken)
    connection: Any = OneRow(row_of(simulated(), status="waiting", executing=7))
    graphs: Any = "the graphs"
    found = await views.load_to_end(connection, RUN_ID, graphs, lock=lock, tenant=tenant)
    whole = (views.SELECT, RUN_ID, True) if tenant is None else (views._READ_RUN, RUN_ID, True, "acme", False)
    assert connection.asked == [whole]
    assert (found.blind, found.run.status, found.run.executing) == (True, "waiting", 7)


async def test_a_run_that_can_be_read_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(*given: Any, **how: Any) -> Any:
        return "the view"

    monkeypatch.setattr(views, "load", load)
    connection: Any = OneRow(None)
    found: Any = await views.load_to_end(connection, RUN_ID, NOTHING, leased="p0")
    assert (found, connection.asked) == ("the view", [])


async def test_a_row_of_one_moment_that_is_not_whole_was_altered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more can come of a row that somebody else has read."""

    async def unfinished(*given: Any, **how: Any) -> Any:
        raise Unfinished("not read whole")

    monkeypatch.setattr(views, "view_of", unfinished)
    with pytest.raises(Diverged) as caught:
        await views.loaded(NOTHING, row_of(simulated()), NOTHING)
    assert str(caught.value).startswith(f"The book of run {RUN_ID} is not as long as the run says")
    with pytest.raises(Purged):
        await views.loaded(NOTHING, row_of(simulated(), purged_at="2026-01-01"), NOTHING)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_row_is_folded_whole_only_where_that_is_asked(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    async def view_of(*given: Any, **how: Any) -> Any:
        return given, how

    monkeypatch.setattr(views, "view_of", view_of)
    row, graphs = row_of(simulated()), "the graphs"
    found: Any = await views.loaded(NOTHING, row, graphs, whole=whole)  # type: ignore[arg-type]
    assert found == ((NOTHING, row, "the graphs"), {"whole": whole})


def test_the_head_behind_appends_is_that_of_all_their_lines() -> None:
    run = simulated()
    row = row_of(run)
    appends = views._appends(row)
    assert views._head_after(run.head, []) == run.head
    assert [each.first_seq for each in appends] == row["firsts"]
    assert all(isinstance(each, Append) for each in appends)
    start = ChainHead.of(run.head.stream)
    assert views._head_after(start, appends) == run.head
    assert views._head_after(start, appends[:-1]).count == appends[-1].first_seq
