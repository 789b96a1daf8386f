"""A drive of one leased step by itself: what it commits and calls is written down, and nothing has a database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from core.ids import new_nonce
from runtime.engine.commit import Claim
from runtime.engine.instructions import Known
from runtime.work import driving
from runtime.work.driving import Drive
from runtime.work.lease import HeldStep, Lease
from tests.support.rows import uid

SPAN = timedelta(seconds=30)
RUN, CLAIM = uid(7), Claim("a", uid(1), 1)
# What every move is given.
TRANSITION: Any = SimpleNamespace(run="the run", leaf=lambda key: f"the leaf {key}")
WORKFLOW: Any = "the workflow"
POLICY: Any = "the policy"
GIVEN = (WORKFLOW, POLICY)


def step(key: str = "a", status: str = "running") -> Any:
    """A step with this key."""
    return SimpleNamespace(key=key, status=status, step_id=f"the id of {key}")


@asynccontextmanager
async def connected() -> AsyncIterator[str]:
    yield "the connection"


@asynccontextmanager
async def in_transaction() -> AsyncIterator[str]:
    yield "the transaction"


class Driving:
    """A drive that holds the step ``a``. ``told`` is what it did, in order; ``fails`` is raised by its next commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now: float = 100.0, **more: Any) -> None:
        self.told: list[Any] = []
        self.fails: list[Exception | None] = []
        self.step = step()
        database: Any = SimpleNamespace(connection=connected, transaction=in_transaction)
        definitions: Any = SimpleNamespace(graphs="the graphs")
        self.pump = SimpleNamespace(drives=0, append="the append")
        tools: Any = SimpleNamespace(
            lease=SPAN, owner="me", database=database, definitions=definitions, connectors="the connectors",
            slack=None, recent="the recent", pump=self._pump, **more,
        )  # fmt: skip
        self.tools = tools
        self.drive = Drive(tools)
        self.now = now
        monkeypatch.setattr(Lease, "now", staticmethod(lambda: self.now))
        monkeypatch.setattr(self.drive._holding, "commit", self._commit)
        monkeypatch.setattr(driving, "begin", self.noted("begins", "what is next"))
        self.hold(began=now)

    def hold(self, began: float) -> None:
        """Let it hold the step since then."""
        view: Any = SimpleNamespace(run_id=RUN, tenant_id="acme", run=SimpleNamespace(run_key=b"k"))
        met: Any = SimpleNamespace(view=view, clock="the clock")
        self.drive._holding.begin(HeldStep(met, self.step, CLAIM, began, self.pump.append))

    def noted(self, name: str, answer: Any = None) -> Any:
        """Take any call down under this name, and give this answer."""

        def call(*given: Any, **named: Any) -> Any:
            self.told.append((name, *given, *([named] if named else [])))
            return answer

        return call

    def asked(self, name: str, answer: Any = None) -> Any:
        """Take down what is awaited, like ``noted``. An exception is raised."""
        note = self.noted(name)

        async def call(*given: Any, **named: Any) -> Any:
            note(*given, **named)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def begins(self, known: Known) -> Any:
        """The note of a step that begins with this knowledge."""
        return ("begins", TRANSITION, self.step, *GIVEN, known, new_nonce)

    def _pump(self, run_id: Any) -> Any:
        assert run_id == RUN
        return self.pump

    async def _commit(self, build: Any, *, known: bool = False) -> Any:
        self.told.append("commits a known outcome" if known else "commits")
        error = self.fails.pop(0) if self.fails else None
        if error is not None:
            raise error
        return build(TRANSITION, self.step, *GIVEN)
