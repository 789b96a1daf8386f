"""Runs as a worker knows them: which state it keeps, and when it decides on that without a read. Without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from core.identity import NOBODY, Directory
from runtime.engine.commit import Claim
from runtime.engine.run import RunView
from runtime.engine.states import StepState
from runtime.work import holding
from runtime.work.lease import RECENT_MAX, Met, Recent, meet
from tests.support.rows import uid

pytestmark = pytest.mark.req("V-8")

NOTHING: Any = None
NOW = datetime(2026, 1, 1, 2, 3, 4, 567_890, tzinfo=UTC)


def met(seen: int, *, exact: int = 0, run: int = 1, drifted: bool = False, finished: bool = False) -> Met:
    """A state of a run: its newest known version, that of its book as it was read last, and if others have appended."""
    view: Any = SimpleNamespace(run_id=uid(run), run=SimpleNamespace(finished=finished))
    book: Any = SimpleNamespace(version=exact or seen)
    return Met(book, view, seen, NOTHING, NOTHING, NOTHING, drifted)


@pytest.mark.parametrize(
    ("known", "new", "kept", "behind"),
    [
        (met(4), met(5), "new", False),
        (met(5), met(4), "known", False),
        (met(5), met(5), "new", False),
        (met(5, drifted=True), met(5), "new", False),
        (met(5), met(5, drifted=True), "known", False),
        (met(5, exact=3), met(6, exact=2, drifted=True), "new", True),
        (met(5, exact=3), met(6, exact=3, drifted=True), "new", False),
        (met(5, exact=3), met(6, exact=2), "new", False),
        (met(7), met(6, drifted=True), "known", False),
    ],
)
def test_the_newest_state_is_kept_and_one_that_others_have_moved_on_is_no_newer(
    known: Met, new: Met, kept: str, behind: bool
) -> None:
    recent = Recent()
    assert recent.put(known) is known
    found = recent.put(new)
    wanted = known if kept == "known" else new
    assert (found.seen, found.view, found.behind) == (wanted.seen, wanted.view, behind)
    assert found.exact is (known.exact if behind or kept == "known" else new.exact)
    assert recent[uid(1)] is found
    assert len(recent) == 1


def test_a_run_that_is_over_is_known_no_longer() -> None:
    recent = Recent()
    recent.put(met(4))
    over = met(5, finished=True)
    assert (recent.put(over), [*recent]) == (over, [])


def test_those_that_were_met_last_are_kept() -> None:
    recent = Recent()
    for number in range(RECENT_MAX):
        recent.put(met(1, run=number))
    recent.put(met(2, run=0))
    recent.put(met(1, run=RECENT_MAX))
    assert (len(recent), uid(0) in recent, uid(1) in recent, uid(2) in recent) == (RECENT_MAX, True, False, True)


@pytest.mark.parametrize("known", [True, False])
async def test_a_run_is_met_with_all_that_decides_on_it(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Its workflow, the policies of its tenant and its people, as the row of the tenant names them."""
    asked: list[Any] = []
    people = Directory.of("d", [])

    def answers(name: str, answer: Any) -> Any:
        async def answer_(*given: Any) -> Any:
            asked.append((name, *given))
            return answer

        return answer_

    definitions: Any = SimpleNamespace(
        of_run=answers("workflow", "the workflow"), policies=answers("policies", "the policies"),
        directory=answers("people", people),
    )  # fmt: skip
    values: dict[str, Any] = dict.fromkeys(RunView.__struct_fields__)
    values |= {"run_id": uid(1), "tenant_id": "acme", "workflow": "w", "workflow_version": 2, "workflow_digest": "x"}
    values |= {"policies": ("p",), "directory_digest": "d", "version": 9, "now": NOW, "run": SimpleNamespace(
        run_key=b"k", extensions=3)}  # fmt: skip
    view = RunView(**{**values, "directory": people if known else NOBODY})
    monkeypatch.setattr("time.monotonic", lambda: 103.0)
    connection: Any = "the connection"
    found = await meet(connection, definitions, view, 100.5)
    assert asked == [
        ("workflow", connection, view.definition), ("policies", connection, "acme", ("p",)),
        ("people", connection, "acme", "d"),
    ]  # fmt: skip
    assert (found.exact is found.view, found.view.directory is people, found.view.run is view.run) == (True,) * 3
    assert (found.view is view) is known
    decides: Any = (found.seen, found.workflow, found.policy)
    assert decides == (9, "the workflow", "the policies")
    assert (found.drifted, found.behind) == (False, False)
    assert (found.clock.now(), found.clock.error) == (NOW, timedelta(seconds=2.5))


READY, RUNNING = StepState.READY, StepState.RUNNING


@pytest.mark.parametrize(
    ("gate", "stop", "epoch", "step", "behind", "first"),
    [
        (3, 7, 1, READY, False, True),
        (4, 7, 1, READY, False, False),
        (2, 7, 1, READY, False, False),
        (3, 6, 1, READY, False, False),
        (3, 8, 1, READY, False, False),
        (3, 7, 2, READY, False, False),
        (3, 7, 1, RUNNING, False, False),
        (3, 7, 1, None, False, False),
        (3, 7, 1, READY, True, False),
    ],
)
def test_a_step_is_begun_without_a_read_only_if_nothing_has_happened_to_it_before(
    gate: int, stop: int, epoch: int, step: StepState | None, behind: bool, first: bool
) -> None:
    steps = {} if step is None else {"a": SimpleNamespace(status=step)}
    view = SimpleNamespace(gate=3, stop=7, run=SimpleNamespace(steps=steps))
    known: Any = SimpleNamespace(view=view, behind=behind)
    record: Any = {"run": {"gate": gate}, "stop_number": stop}
    assert holding._is_first(known, record, Claim("a", uid(1), epoch)) is first
