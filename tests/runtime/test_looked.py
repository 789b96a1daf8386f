"""A look at another run, by the step that has started it: what it asks of whom, and what it makes of the answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import InputError
from runtime.engine.instructions import OtherRun, StartRun
from runtime.engine.states import RunState
from runtime.store import runs
from runtime.work import other_runs
from tests.support.driving import in_transaction
from tests.support.rows import uid

pytestmark = pytest.mark.req("X-13")

STEP: Any = SimpleNamespace(key="a", again=0)
CONNECTION: Any = "the connection"
DEFINITIONS: Any = SimpleNamespace(graphs="the graphs")


def work(origins: Any) -> StartRun:
    return StartRun(STEP, uid(2), "other", 3, {}, True, shaped=("zoe",), origins=origins)


@pytest.mark.parametrize("shaped", [("ann",), ()])
@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("status", [*RunState])
async def test_where_a_result_came_from_is_asked_of_a_run_that_has_one(
    monkeypatch: pytest.MonkeyPatch, status: RunState, traced: bool, shaped: tuple[str, ...]
) -> None:
    """People of the other run have shaped it, and not those who shaped its input."""
    asked: list[Any] = []
    row = {"status": str(status), "result": {"n": 1}, "error": {"code": "x"}}

    def answers(name: str, answer: Any) -> Any:
        async def answer_(*given: Any, **named: Any) -> Any:
            asked.append((name, *given, *([named] if named else [])))
            return answer

        return answer_

    monkeypatch.setattr(runs, "ending_of", answers("ending", row))
    monkeypatch.setattr(runs, "shapers_of", answers("shapers", shaped))
    monkeypatch.setattr(other_runs, "origins_of", answers("origins", ["its origins"]))
    monkeypatch.setattr(other_runs, "used_within", answers("used", {"turns": 2}))
    found = await other_runs.look(CONNECTION, work({} if traced else None), DEFINITIONS)
    ended = status is RunState.SUCCEEDED
    assert found == OtherRun(
        str(status), {"n": 1}, {"code": "x"}, shaped=shaped, origins=["its origins"] if ended else None,
        used={"turns": 2},
    )  # fmt: skip
    origins = ("origins", CONNECTION, DEFINITIONS, row, {"traced": traced})
    assert asked == [
        ("ending", CONNECTION, uid(2)), ("shapers", CONNECTION, row, "the graphs"), *([origins] if ended else []),
        ("used", CONNECTION, row, "a"),
    ]  # fmt: skip


async def test_an_order_that_is_wrong_is_told_in_words_and_fails_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(*_: Any) -> None:
        raise InputError("who is missing", remedy="Give it.")

    monkeypatch.setattr(other_runs, "start_named", refuses)
    database: Any = SimpleNamespace(transaction=in_transaction)
    view: Any = SimpleNamespace(
        run_id=uid(1), tenant_id="acme", workspace_id="two", depth=4, run=SimpleNamespace(requested_by="ann")
    )
    found = await other_runs.start_other(database, DEFINITIONS, view, work(None))
    assert found == OtherRun(problem="who is missing. Give it.")
