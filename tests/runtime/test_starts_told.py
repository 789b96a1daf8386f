"""Starts of runs, what each is told: several who shaped it, a depth without a parent, the cap that holds it up."""

from __future__ import annotations

import time
from datetime import timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import InputError
from runtime.engine.told import unpack_values
from runtime.requests import starting
from runtime.requests.starting import Started, StartRequest
from tests.runtime.test_every_start import FLOW, HERE, NOW, REQUEST, STARTED, WHOLE, compiled
from tests.support.recorded import Connected, Recorded

pytestmark = pytest.mark.req("Q-1")

ZOE, BOB = "updater person:zoe", "signal_sender person:bob"


class Opened:
    """The store, which keeps what is written of a run that is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[Any] = []
        self.told: list[Any] = []
        monkeypatch.setattr(starting.faces, "open_run", self._open)

    async def _open(self, _: Any, commit: Any, run: Any) -> Any:
        self.rows.append(run)
        self.told.append(unpack_values(commit.values)[0])
        return NOW


async def opened(monkeypatch: pytest.MonkeyPatch, request: StartRequest) -> tuple[Any, dict[str, Any]]:
    """The row of a run that is started like this, and the values that its first line tells."""
    kept = Opened(monkeypatch)
    assert await starting._open(HERE, compiled(FLOW), request, NOW, pinned=True) is not None
    (row,), (values,) = kept.rows, kept.told
    return row, values


async def test_all_who_shaped_a_start_are_told_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for shaped in ((ZOE, BOB), (BOB, ZOE), (BOB,)):
        _, told = await opened(monkeypatch, replace(WHOLE, shaped=shaped))
        assert told["shaped"] == [*shaped]
    _, told = await opened(monkeypatch, REQUEST)
    assert "shaped" not in told


@pytest.mark.req("X-13")
async def test_a_continuation_is_as_deep_as_it_was_asked_for_though_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for parent in (None, WHOLE.parent):
        request = replace(WHOLE, parent=parent, depth=4)
        row, _ = await opened(monkeypatch, request)
        assert (row.parent, row.depth, row.pinned) == (parent, 4, True)
        view = starting._new_view(compiled(FLOW), request, NOW)
        assert (view.parent, view.depth, view.run_id) == (parent, 4, WHOLE.run_id)


@pytest.mark.req("P-8")
async def test_a_run_inherits_if_channels_are_given_to_it_whoever_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for parent in (None, WHOLE.parent):
        for inherited in (WHOLE.inherited, {}):
            row, _ = await opened(monkeypatch, replace(WHOLE, parent=parent, inherited=inherited))
            assert row.inherits is bool(inherited)


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("created", [True, False])
@pytest.mark.parametrize(("most", "concurrent"), [(7, None), (7, 2), (None, 2), (None, None)])
async def test_the_cap_that_holds_up_a_start_is_told_each_time_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, created: bool, most: int | None, concurrent: int | None
) -> None:
    """Only a bound on starts holds one up."""
    asked = Recorded(monkeypatch)
    asked.put(starting.read_models, start_held="workflow")
    monkeypatch.setattr(starting, "within", lambda at, tenant: at.transaction(tenant))
    database: Any = Connected()
    workflow: Any = SimpleNamespace(max_runs_per_min=most, max_concurrency=concurrent, cap="flow")
    started = replaced(STARTED, created=created)
    told = await starting._told(database, workflow, "acme", started)
    held = "workflow" if most is not None else None
    assert told == Started(STARTED.run_id, created, STARTED.reference, held)
    asks = f"read_models.start_held(transaction of acme, acme, {STARTED.run_id})"
    assert [call.replace("#5", str(STARTED.run_id)) for call in asked.calls] == ([asks] if held else [])


def replaced(started: Started, *, created: bool) -> Started:
    return Started(started.run_id, created, started.reference)


async def test_a_run_that_was_started_before_keeps_the_reference_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Recorded(monkeypatch)
    for reference in ("N9", ""):
        asked.put(starting.runs, run_of_trigger={"run_id": STARTED.run_id, "reference": reference})
        assert await starting._known(HERE, "flow", REQUEST) == Started(STARTED.run_id, False, reference)


@pytest.mark.parametrize("found", [True, False])
async def test_the_clock_of_a_start_may_be_off_by_the_whole_round_trip(
    monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    """Its reading was asked for before the database was, whether the run is a new one or is found."""
    asked = Recorded(monkeypatch)
    asked.put(starting.runs, run_of_trigger={"run_id": STARTED.run_id, "reference": "N9"})
    if found:
        asked.put(starting, _open=None)
    else:
        Opened(monkeypatch)
    now = time.monotonic()
    ticks = iter((now - 3600, now - 1800))
    monkeypatch.setattr(starting, "time", SimpleNamespace(monotonic=lambda: next(ticks, now)))
    connection: Any = SimpleNamespace(name="connection", fetchval=asked.verb("fetchval", NOW))
    _, clock = await starting._opened(connection, compiled(FLOW), REQUEST)
    least = timedelta(seconds=3600 if found else 1800)
    assert least <= clock.error < least + timedelta(seconds=600)


def test_a_moment_without_a_zone_is_utc() -> None:
    """The zone in which the database tells the time makes no difference."""
    here = NOW.astimezone(timezone(timedelta(hours=5)))
    workflow = compiled(FLOW)
    until = (NOW + timedelta(hours=1)).replace(tzinfo=None)
    request = replace(REQUEST, open=True, until=until)
    assert starting._open_for(workflow, request, here) == timedelta(hours=1)
    with pytest.raises(InputError, match="is past"):
        starting._open_for(workflow, replace(request, until=NOW.replace(tzinfo=None)), here)
