"""The parts of the benchmark by name: `make bench` runs them, and `--only` selects among them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from benchmarks import (
    agents,
    clicks,
    cold_start,
    counted,
    idle,
    policy_decision,
    run_size,
    scale,
    table_size,
    timed,
    verifying,
    wide,
)
from benchmarks.figures import Figure
from benchmarks.stage import Stage


@dataclass(frozen=True, slots=True)
class Part:
    """A measurement. If ``asked``, it runs only when it is named."""

    name: str
    says: str
    measure: Callable[[Stage], Awaitable[list[Figure]]]
    asked: bool = False


class UnknownPartError(ValueError):
    """A name that is no part; the text lists the parts."""


async def _policy(stage: Stage) -> list[Figure]:
    return [await asyncio.to_thread(policy_decision.measure, stage.size(policy_decision.DECISIONS, 100))]


async def _verify(stage: Stage) -> list[Figure]:
    return await asyncio.to_thread(verifying.measure, stage.folder, stage.size(verifying.EFFECTS, 200))


PARTS = (
    Part("counted", "transactions, statements and WAL per run", counted.measure),
    Part("run-size", "a step's commit as its run gets longer", run_size.measure),
    Part("latency", "one run at a time: decision to end", timed.latency),
    Part("throughput", "runs and steps per second, and with 2 ms commits", timed.throughput),
    Part("wide", "one run of 1,000 parallel steps, by one, two and four processes", wide.measure),
    Part("policy", "one policy decision", _policy),
    Part("verify", "verifying a bundle", _verify),
    Part("clicks", "Slack's clicks, 200 a second", clicks.measure),
    Part("cold-start", "the demo's first card", cold_start.measure),
    Part("idle", "what 100,000 parked runs cost", idle.measure),
    Part("agents", "what 10,000 pending actions cost, and how fast a vote reaches its caller", agents.measure),
    Part("table-size", "throughput with 1,000,000 finished runs", table_size.measure),
    Part("scale", "throughput against workers and keepers", scale.measure, asked=True),
)


def chosen(only: Sequence[str] | None) -> list[Part]:
    """The parts with these names, in the order of ``PARTS``; without names, all but those marked ``asked``."""
    if only is None:
        return [part for part in PARTS if not part.asked]
    known = [part.name for part in PARTS]
    if strange := [name for name in only if name not in known]:
        what = ", ".join(repr(name) for name in strange)
        raise UnknownPartError(f"{what}: no such measurement. There are {', '.join(known)}.")
    return [part for part in PARTS if part.name in only]
