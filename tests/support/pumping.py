"""A run in memory whose guards are those of the database, for a pump that appends to it: nothing waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from msgspec.structs import replace

from connectors.catalog import Source, load_catalog
from evidence.chain import Actor
from runtime.definition.workflow import load_workflow
from runtime.engine.commit import HELD, Claim, Commit
from runtime.engine.instructions import Over
from runtime.engine.run import RunView
from runtime.engine.told import unpack_values
from runtime.engine.transition import Transition
from runtime.store import claims
from runtime.store.commits import Applied
from runtime.work import pump
from runtime.work.lease import Build, Met, Move, Recent
from runtime.work.means import Means
from runtime.work.pump import Pump
from tests.engine.conftest import NOW, OPERATIONS, RUN_ID, Simulation
from tests.support.rows import uid

CATALOG = load_catalog([Source("probe.yaml", OPERATIONS)])
NOTHING: Any = None
SPAN = timedelta(seconds=45)
SYSTEMS = {"probe": "a system"}
# Who is waited for so long never comes; a test that waits so long has failed.
NEVER, SOON = 600.0, 20.0
DEADLOCK = asyncpg.DeadlockDetectedError("deadlock detected")

HEAD = """
workflow: w
version: 1
reference: r
channels: {seen: {reduce: append}}
steps:
  - {id: s, do: probe.value.read, with: {name: x}}
"""


def wide(count: int) -> str:
    """A workflow of one step, so many at once, and one behind them."""
    names = [f"p{number}" for number in range(count)]
    read = "do: probe.value.read, with: {name: x}"
    steps = [f"  - {{id: {name}, {read}, needs: [s], set: {{seen: {name}}}}}" for name in names]
    return HEAD + "\n".join([*steps, f"  - {{id: z, {read}, needs: [{', '.join(names)}]}}", ""])


def away() -> Exception:
    """The error of a connection that PostgreSQL has closed."""
    return asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


@dataclass
class World:
    """A run, and the leases of its steps. ``told`` is everything that was asked of the database, in order.

    ``before`` is called before the append with its number; what it raises is the answer. ``unheard`` are the numbers of
    the appends that are applied, and whose answers are lost. ``over`` are steps whose lease has run out. ``error`` is
    how far the clock of a worker may be off.
    """

    run: Simulation
    told: list[str] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    before: dict[int, Callable[[], Any]] = field(default_factory=dict)
    unheard: set[int] = field(default_factory=set)
    sent: int = 0
    error: timedelta = timedelta(0)

    @classmethod
    def of(cls, count: int, *, leased: int | None = None) -> World:
        """A run that has come to its steps at once, so many. Somebody has leased so many of them, or all."""
        run = Simulation(load_workflow(wide(count), "test.yaml", CATALOG), {}).open()
        run.claim("s")
        run.succeed("s")
        world = cls(run)
        for number in range(count if leased is None else leased):
            world.lease(f"p{number}")
        return world

    def lease(self, key: str, epoch: int = 1) -> Claim:
        """Give somebody the lease of a step."""
        self.claims[key] = Claim(key, uid(100 * epoch + len(self.claims)), epoch)
        return self.claims[key]

    def view(self) -> RunView:
        """The run, folded from its first line."""
        self.run.kept, self.run.read = None, 0
        return self.run.view()

    # -- the database ------------------------------------------------------------------------------------------------

    def append(self, where: str, commit: Commit) -> Applied | None:
        """Apply a commit if its guards hold: the gate, the version of a strict one, the leases that it holds."""
        number, self.sent = self.sent, self.sent + 1
        if (act := self.before.pop(number, None)) is not None:
            act()
        run = self.run
        fits = commit.gate == run.gate and (not commit.strict or commit.expected_version == run.version)
        held = all(self.claims.get(claim.key) == claim and claim.key not in self.over for claim in commit.held)
        holds = f", holds {' '.join(claim.key for claim in commit.held)}" if commit.held else ""
        what = f"{where}{', strict' if commit.strict else ''}: {' '.join(map(_said, commit.lines))}{holds}"
        if not (fits and held):
            self.told.append(f"{what}: refused")
            return None
        values = unpack_values(commit.values)
        run.values.update({len(run.lines) + place: each for place, each in values.items()})
        run.lines += commit.lines
        run.head = run.head.after(commit.lines)
        run.version, run.gate = run.version + 1, run.gate + commit.moves_gate
        run.executing += commit.executing
        for key in commit.unqueued:
            self.claims.pop(key, None)
        for key, step in commit.handed:
            self.claims[step.key] = Claim(step.key, self.claims.pop(key).id, step.lease_epoch)
        self.told.append(f"{what}: version {run.version}, {run.executing} executing")
        if number in self.unheard:
            raise away()
        return Applied(run.version, run.executing)

    async def hold(self, _: Any, run_id: UUID, held: Sequence[Claim]) -> dict[UUID, str]:
        """Stand in for ``claims.hold``."""
        assert run_id == RUN_ID
        self.told.append(f"locks {' '.join(claim.key for claim in held)}")
        newest = [claim for claim in held if self.claims.get(claim.key) == claim]
        return {claim.id: "claimable" if claim.key in self.over else HELD for claim in newest}

    async def load(self, _: Any, run_id: UUID, __: Any, *, before: Any, **how: bool) -> RunView:
        """Stand in for ``views.load``."""
        assert run_id == RUN_ID
        asked = [name for name, value in how.items() if value]
        since = "" if before is None else f" since version {before.version}"
        self.told.append(f"{' '.join(['reads', *asked])}{since}")
        return self.view()

    async def landed(self, _: Any, commit: Commit) -> bool:
        """Stand in for ``commits.landed``."""
        found = b"\n".join(commit.lines) in b"\n".join(self.run.lines)
        self.told.append("finds it" if found else "finds nothing")
        return found

    async def meet(self, _: Any, __: Any, view: Any, asked: float) -> Met:
        """Stand in for ``lease.meet``."""
        return self.met(view)

    def met(self, view: Any = None, **more: Any) -> Met:
        """The run as a worker knows it that has just read it."""
        clock: Any = SimpleNamespace(error=self.error, now=lambda: NOW)
        view = view or self.view()
        return Met(view, view, view.version, self.run.workflow, NOTHING, clock, **more)

    # -- what others do meanwhile ------------------------------------------------------------------------------------

    def elsewhere(self, key: str) -> None:
        """Another process settles its step, as it knows the run now."""
        view = self.view()
        transition = Transition(view, self.run.workflow.graph)
        transition.succeed(transition.started(replace(view.run.steps[key], lease_owner="other")), key, {})
        commit = transition.commit()
        commit.strict = False
        assert self.append("elsewhere", commit) is not None

    def gate_moves(self) -> None:
        """Another process appends something that does not commute."""
        self.run.gate += 1

    def canceled(self) -> None:
        """Cancel the run, as a person does."""
        transition = Transition(self.view(), self.run.workflow.graph)
        transition.cancel(Actor("person", "ann"), "no")
        assert self.append("elsewhere", transition.commit()) is not None


def _said(line: bytes) -> str:
    event = orjson.loads(line)
    step = f"{event['step']}." if event.get("step") else ""
    return f"{step}{event['type'].rpartition('.')[2]}"


def unready(connector: str, operation: str, inputs: Any) -> None:
    """Refuse nothing."""


def fails(error: Exception) -> Callable[..., Any]:
    """A function that raises this error, whatever it is given."""

    def raising(*_: Any, **__: Any) -> Any:
        raise error

    return raising


def settles(output: Any = None) -> Build:
    """A move that ends its step."""

    def build(transition: Transition, step: Any, _: Any, __: Any) -> Over:
        transition.succeed(step, output, {"seen": step.key})
        return Over()

    return build


class Pumping:
    """A pump over a world, as one worker has it. It waits for so many seconds for whoever may still come."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, linger: float = NEVER) -> None:
        self.world, self.recent = world, Recent()

        async def at_hand(commit: Commit) -> Applied | None:
            return await self.committing(commit)

        async def on_the_book(_: Any, commit: Commit) -> Applied | None:
            return world.append("on the book", commit)

        @asynccontextmanager
        async def connection() -> AsyncIterator[None]:
            yield None

        for name, value in (("apply", on_the_book), ("load", world.load), ("landed", world.landed)):
            monkeypatch.setattr(pump, name, value)
        monkeypatch.setattr(pump, "meet", world.meet)
        monkeypatch.setattr(pump, "LINGER_SECONDS", linger)
        monkeypatch.setattr(claims, "hold", world.hold)
        database: Any = SimpleNamespace(connection=connection, transaction=connection)
        definitions: Any = SimpleNamespace(graphs=None)
        committer: Any = SimpleNamespace(apply=at_hand)
        means = Means(database, definitions, committer, self.recent, "me", SPAN, SYSTEMS, unready)
        self.pump = Pump(means, RUN_ID)

    async def committing(self, commit: Commit) -> Applied | None:
        """Append what was decided at hand."""
        return self.world.append("at hand", commit)

    def met(self, **more: Any) -> Met:
        """Let the worker know the run as it is now."""
        return self.recent.put(self.world.met(**more))

    def move(
        self,
        key: str,
        build: Build | None = None,
        *,
        goes_on: bool = False,
        known: bool = False,
        unanswered: list[Any] | None = None,
        claim: Claim | None = None,
    ) -> Move:
        """A move of the holder of this step; it settles the step, if nothing else is said."""
        claim = claim or self.world.claims[key]
        return Move(claim, build or settles(key), goes_on, known, [] if unanswered is None else unanswered)


def met_wide(monkeypatch: pytest.MonkeyPatch, count: int, *, drives: int | None = None, **how: Any) -> Pumping:
    """A worker that has just met a run with so many steps at once, and drives all of them, or so many."""
    pumping = Pumping(World.of(count, **how), monkeypatch)
    pumping.pump.drives += count if drives is None else drives
    pumping.met()
    return pumping


async def moved(pumping: Pumping, *moves: Move) -> list[Any]:
    """Make these moves at once; the results, or the errors. Nothing is left to be done then."""
    async with asyncio.timeout(20):
        found = await asyncio.gather(*(pumping.pump.append(move) for move in moves), return_exceptions=True)
    told = [*pumping.world.told]
    for _ in range(10):
        await asyncio.sleep(0)
    assert (pumping.world.told, pumping.pump._busy) == (told, False)
    return found


__all__ = [
    "DEADLOCK", "NEVER", "NOTHING", "RUN_ID", "SOON", "SPAN", "SYSTEMS", "Pumping", "World", "away", "fails",
    "met_wide", "moved", "settles", "unready",
]  # fmt: skip
