"""The shared part of the engines' drivers: the command line, the load, and the line of JSON that they print.

It imports only the standard library and uvloop, which every environment has. One coroutine takes a run from start to
end; ``in_flight`` of them run at once. The effect does nothing, so only the engine is measured.

The driver's own process tells the decider that a run waits, without polling, so this costs the engine nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import uvloop

EFFECTS = {"w1": 4, "w2": 10}
ASK_AFTER = 2
_STEPS = {"w1": "w1", "w2": "w2", "latency": "w1"}


@dataclass(frozen=True, slots=True)
class Order:
    """The parameters of a measurement. ``workload`` is w1, w2 or latency (w1, one run at a time)."""

    url: str
    workload: str
    runs: int
    in_flight: int
    warm_up: int
    server: Path | None

    @property
    def workflow(self) -> str:
        return _STEPS[self.workload]


@dataclass
class Effects:
    """The outside system. It counts effects, to detect a run that skipped or repeated one."""

    count: int = 0

    def perform(self) -> dict[str, int]:
        self.count += 1
        return {"applied": self.count}


@dataclass
class Decision:
    """The human decision of one run: the driver waits on ``asked``, which the run sets when it asks."""

    asked: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    given: float = 0.0

    def ask(self, handle: str = "") -> None:
        """Note that the run asks. Idempotent, because a replayed run asks again."""
        if not self.asked.done():
            self.asked.set_result(handle)

    def give(self) -> None:
        """Give the decision: starts its clock."""
        self.given = time.perf_counter()

    def taken(self) -> float:
        """The milliseconds since the decision was given, or 0 if there was none."""
        return (time.perf_counter() - self.given) * 1000 if self.given else 0.0


class Engine(Protocol):
    """One engine, started and ready."""

    effects: Effects
    release: str
    configuration: str

    async def run(self, workflow: str, number: int) -> float:
        """Run one workflow from start to end, and give the decision as soon as it waits.

        Returns the milliseconds from the decision to the end, 0 if the workflow asks for none.
        """


EngineFactory = Callable[[Order], AbstractAsyncContextManager[Engine]]


async def _load(engine: Engine, workflow: str, numbers: range, in_flight: int) -> list[float]:
    todo = iter(numbers)

    async def work() -> list[float]:
        return [await engine.run(workflow, number) for number in todo]

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(min(in_flight, len(numbers)))]
    return [taken for worker in workers for taken in worker.result()]


async def measure(make: EngineFactory, order: Order) -> dict[str, object]:
    """Warm the engine up, then measure. Raises RuntimeError if the number of performed effects is wrong."""
    in_flight = 1 if order.workload == "latency" else order.in_flight
    async with make(order) as engine:
        await _load(engine, order.workflow, range(order.warm_up), in_flight)
        before, begun = engine.effects.count, time.perf_counter()
        numbers = range(order.warm_up, order.warm_up + order.runs)
        taken = await _load(engine, order.workflow, numbers, in_flight)
        seconds = time.perf_counter() - begun
        effects = engine.effects.count - before
        expected = order.runs * EFFECTS[order.workflow]
        if effects != expected:
            raise RuntimeError(f"{effects} effects were performed where {expected} were asked for")
        return describe(order, seconds, taken, engine.release, engine.configuration)


def describe(order: Order, seconds: float, taken: list[float], release: str, configuration: str) -> dict[str, object]:
    """The result that a driver prints. Rates and latencies are absent if nothing was measured."""
    found: dict[str, object] = {
        "workload": order.workload,
        "version": release,
        "configuration": configuration,
        "runs": order.runs,
        "warm_up": order.warm_up,
        "seconds": seconds,
    }
    if not order.runs:
        return found
    found["runs_per_second"] = order.runs / seconds
    found["steps_per_second"] = order.runs * EFFECTS[order.workflow] / seconds
    if order.workload == "latency":
        found["p50_ms"] = statistics.median(taken)
        found["p99_ms"] = statistics.quantiles(taken, n=100, method="inclusive")[98]
    return found


def release_of(*packages: str) -> str:
    """The installed versions of these packages, as text."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


def read_order() -> Order:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure one engine and print one line of JSON.")
    parser.add_argument("--url", required=True, help="a database of PostgreSQL that is empty and the engine's alone")
    parser.add_argument("--workload", choices=sorted(_STEPS), required=True)
    parser.add_argument("--runs", type=int, required=True, help="0 sets up and warms up only")
    parser.add_argument("--in-flight", type=int, default=50)
    parser.add_argument("--warm-up", type=int, default=50, help="runs before the clock starts")
    parser.add_argument("--server", type=Path, help="the server's program, for an engine that has one")
    return Order(**vars(parser.parse_args()))


def main(make: EngineFactory) -> None:
    """Run a driver: read the order, measure, print."""
    order = read_order()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(measure(make, order))
    except BaseExceptionGroup as group:
        fault: BaseException = group
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]  # the others are the same, one for each run in flight
        raise fault from None
    print(json.dumps(found), flush=True)
