"""The use of models by a run within another one is handed over once it is over, if an agent has started it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from runtime.engine.states import RunState
from runtime.requests import handing

RUN = UUID(int=7)
ENDS = {RunState.SUCCEEDED, RunState.FAILED_TERMINAL, RunState.CANCELED}


@pytest.mark.parametrize(
    ("usage", "calls", "told"),
    [
        ([], 0, None),
        ([{"cost": "0.1"}], 0, {"usage": [{"cost": "0.1"}], "calls": 0}),
        ([], 2, {"usage": [], "calls": 2}),
        ([{"cost": None}, {}], 3, {"usage": [{"cost": None}, {}], "calls": 3}),
    ],
)
async def test_what_was_used_is_told_of_a_call_whose_run_is_over(
    monkeypatch: pytest.MonkeyPatch, usage: list[Any], calls: int, told: Any
) -> None:
    connection: Any = object()
    asked: list[Any] = []

    async def used(connection: Any, run: UUID) -> tuple[list[Any], int]:
        asked.append((connection, run))
        return usage, calls

    monkeypatch.setattr(handing.journal, "used", used)
    for status in RunState:
        for step in ("a/1/1", "a"):
            ending: Any = {"run_id": RUN, "status": str(status)}
            found = await handing.used_within(connection, ending, step)
            assert found == (told if status in ENDS and step == "a/1/1" else None), (status, step)
    assert asked == [(connection, RUN)] * len(ENDS)
