"""The hostile world of ``make chaos``, for a few seconds: that it finds nothing, and that it would find something."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import cases
from chaos.schedule import Kind, plan
from chaos.story import Plan, run

QUICK = (Kind.KILL_WORKER, Kind.KILL_FACE, Kind.PAUSE_WORKER, Kind.SERVICENOW, Kind.WEBHOOKS)


@pytest.mark.timeout(400)
@pytest.mark.req("O-8")
async def test_a_few_hostile_seconds(tmp_path: Path) -> None:
    report = await run(Plan(7, 5.0, tmp_path, QUICK, pause=(0.2, 0.5), most=10), print)
    assert report.violations == []
    assert sum(report.injected.values()) > 0
    assert report.figures["receipts"] > 0


def test_a_seed_is_a_schedule() -> None:
    assert plan(1, 60.0) == plan(1, 60.0)
    assert plan(1, 60.0) != plan(2, 60.0)
    assert {trouble.kind for trouble in plan(1, 600.0)} == set(Kind)
    assert all(trouble.at < 60.0 for trouble in plan(1, 60.0))


def test_an_effect_twice_or_never_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    world: Any = SimpleNamespace()
    wanted = cases.Case("task", "task-1", Counter(["task-1:z"]), acknowledged=["id"])
    for found, words in ((Counter({"task-1:z": 2}), "2 times, not 1"), (Counter(), "0 times, not 1")):
        monkeypatch.setattr(cases, "happened", lambda _, found=found: found)
        assert cases.unexpected([wanted], world) == [f"task-1:z: {words}"]
    monkeypatch.setattr(cases, "happened", lambda _: Counter({"task-1:z": 1}))
    assert cases.unexpected([wanted], world) == []
