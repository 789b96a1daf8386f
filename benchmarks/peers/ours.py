"""Counterseal under the same load, with everything on: policy of 50 rules, receipts, audit, checkpoints and caps.

Its load is that of `make bench`: it polls the database for waiting and ended runs, which the peers' drivers need not.
Its count of transactions leaves out those polls, but includes the worker's polls for work.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
import time
from pathlib import Path

import structlog
import uvloop

from benchmarks.children import working
from benchmarks.peers.drivers.harness import Order, describe, read_order, release_of
from benchmarks.timed import CONCURRENCY, Finish, Load, Used, decided, machine
from benchmarks.world import World, new_world

CONFIGURATION = (
    f"one worker process of concurrency {CONCURRENCY}, as `counterseal work` is one; starts and votes in the load's"
    " process, as faces have theirs; uvloop, asyncpg"
)


async def _latency(world: World, order: Order) -> list[float]:
    finish = Finish()
    world.outside.on_effect = finish
    async with machine(world, concurrency=2) as running:
        for _ in range(order.warm_up):
            await decided(world, running, finish)
        return [await decided(world, running, finish) for _ in range(order.runs)]


async def _throughput(world: World, order: Order) -> tuple[float, float]:
    """The seconds, and the transactions per run."""
    async with working(world, CONCURRENCY) as worker, machine(world, concurrency=0) as running:
        load = Load(world, running, order.workflow)
        await load.run(order.warm_up)
        before = await Used.by_now(world, worker)
        seconds = await load.run(order.runs)
        used = (await Used.by_now(world, worker)).since(before, max(order.runs, 1))
    return seconds, used.transactions


async def _measure(order: Order) -> dict[str, object]:
    release = release_of("counterseal")
    with tempfile.TemporaryDirectory(prefix="counterseal-peers-") as folder:
        async with new_world(order.url, Path(folder)) as world:
            if order.workload == "latency":
                begun = time.perf_counter()
                taken = await _latency(world, order)
                return describe(order, time.perf_counter() - begun, taken, release, CONFIGURATION)
            seconds, transactions = await _throughput(world, order)
            found = describe(order, seconds, [], release, CONFIGURATION)
            return found | ({"transactions_per_run": transactions} if order.runs else {})


def main() -> None:
    """Drive Counterseal like the peers. ``--url`` is the server, because this driver creates its database itself."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    order = read_order()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(_measure(order))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
