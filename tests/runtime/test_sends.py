"""Intents that a worker sends, and those that it keeps back: by its clock alone, without a database."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.port import Done, NotSent
from runtime.engine.instructions import Over
from runtime.work import driving
from runtime.work.calling import Calling
from runtime.work.driving import Drive
from runtime.work.lease import Lease, LostLease

pytestmark = pytest.mark.req("Q-9")


class Sent(Exception):
    """The call goes out."""


def calls(*_: Any) -> Any:
    raise Sent


@pytest.mark.parametrize(
    ("now", "until", "receipt", "sends"),
    [
        (104.9, 130.0, True, True),
        (105.0, 130.0, True, True),
        (105.1, 130.0, True, False),
        (102.9, 103.0, True, True),
        (103.0, 103.0, True, False),
        (103.1, 103.0, True, False),
        (105.1, 103.0, True, False),
        (999.0, 103.0, False, True),
    ],
)
async def test_only_a_fresh_intent_under_a_lease_that_is_surely_ours_is_sent(
    monkeypatch: pytest.MonkeyPatch, now: float, until: float, receipt: bool, sends: bool
) -> None:
    """A call without a receipt has no side effect, so it may go out late."""
    tools: Any = SimpleNamespace(lease=timedelta(seconds=30))
    drive = Drive(tools)
    hold: Any = SimpleNamespace(began=100.0)
    drive._holding.hold, drive._holding.lease.until = hold, until
    committed: list[Any] = []

    async def commit(build: Any, *, known: bool = False) -> Any:
        step: Any = SimpleNamespace(key="a")
        build("transition", step, None, None)
        committed.append(known)
        return Over()

    def unsent(transition: Any, work: Any) -> None:
        committed.append((transition, work.step.key))

    monkeypatch.setattr(Lease, "now", staticmethod(lambda: now))
    monkeypatch.setattr(drive._holding, "commit", commit)
    monkeypatch.setattr(driving, "Calling", calls)
    monkeypatch.setattr(driving, "unsent", unsent)
    monkeypatch.setattr(driving, "replace", lambda work, **more: SimpleNamespace(**{**vars(work), **more}))
    work: Any = SimpleNamespace(receipt="receipt" if receipt else None, step=SimpleNamespace(key="before"))
    if sends:
        with pytest.raises(Sent):
            await drive._perform(work)
        assert committed == []
    else:
        assert await drive._perform(work) == Over()
        assert committed == [("transition", "a"), True]


class Told(Calling):
    """A call whose worker notes what it would tell of a lost lease, instead of telling it."""

    def __init__(self, holding: Any) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, holding, nothing, nothing)
        self.told: list[Any] = []

    async def _tell(self, outcome: Any) -> None:
        self.told.append(outcome)


@pytest.mark.req("Q-8")
@pytest.mark.parametrize(
    ("lost", "told"), [("before", [None]), ("after", [Done({"n": 1})]), ("never", []), ("unsent", [NotSent("busy")])]
)
async def test_what_is_known_of_a_call_is_told_when_its_lease_is_lost(lost: str, told: list[Any]) -> None:
    async def call(_: Any) -> Any:
        if lost == "before":
            raise LostLease
        return NotSent("busy") if lost == "unsent" else Done({"n": 1})

    async def commit(build: Any, *, known: bool = False) -> Any:
        assert known, "an outcome is recorded also behind its lease"
        if lost != "never":
            raise LostLease
        return Over()

    holding: Any = SimpleNamespace(lease=SimpleNamespace(call=call), commit=commit)
    made = Told(holding)
    if lost == "never":
        assert await made.perform() == Over()
    else:
        with pytest.raises(LostLease):
            await made.perform()
    assert made.told == told
