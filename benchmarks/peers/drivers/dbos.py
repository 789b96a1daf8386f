"""DBOS: workflows whose steps are checkpointed in PostgreSQL. https://docs.dbos.dev/python

Workflows are started where they run, without a queue: that is DBOS's shortest way, a queue would add a poll to it. They
are synchronous, each on a thread of DBOS's: its coroutines cross to a thread for every statement, which took more CPU
per run and made the way from the decision to the end longer, as measured when this was written.
"""

# What is imported here is in the environment of this driver alone, where mypy does not look.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from dbos import DBOS, SetWorkflowID, WorkflowHandle

from benchmarks.peers.drivers.harness import ASK_AFTER, EFFECTS, Decision, Effects, Order, main, release_of

# More connections did not help: Python's lock is the limit, and who waits for a message holds none.
POOL = 10
TOPIC = "decision"
PATIENCE_SECONDS = 60
Answer = TypeVar("Answer")


class Dbos:
    """A driver's view of DBOS."""

    configuration = (
        f"one process, synchronous workflows started in process, a pool of {POOL} connections without pings, "
        "LISTEN/NOTIFY on; psycopg[binary]"
    )

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.effects = Effects()
        self.release = release_of("dbos")
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._decisions: dict[int, Decision] = {}

        def effect() -> dict[str, int]:
            return self.effects.perform()

        self._effect = DBOS.step(name="effect")(effect)
        self._workflows = {name: DBOS.workflow(name=name)(self._body(name)) for name in EFFECTS}

    def _body(self, workflow: str) -> Callable[[int], bool]:
        def body(number: int) -> bool:
            for place in range(EFFECTS[workflow]):
                if workflow == "w1" and place == ASK_AFTER:
                    # A message that comes before recv looks for it is kept, and spares DBOS the wait.
                    self._loop.call_soon_threadsafe(self._decisions[number].ask)
                    if DBOS.recv(TOPIC, timeout_seconds=PATIENCE_SECONDS) is None:
                        raise RuntimeError(f"run {number} got no decision")
                self._effect()
            return True

        return body

    async def run(self, workflow: str, number: int) -> float:
        decision = self._decisions[number] = Decision()
        name = f"{workflow}-{number}"

        def start() -> WorkflowHandle[bool]:
            with SetWorkflowID(name):
                return DBOS.start_workflow(self._workflows[workflow], number)

        handle = await self._threaded(start)
        if workflow == "w1":
            await decision.asked
            decision.give()
            await self._threaded(lambda: DBOS.send(name, {"approved": True}, TOPIC))
        if await self._threaded(handle.get_result) is not True:
            raise RuntimeError(f"{name} did not end well")
        return decision.taken()

    async def _threaded(self, work: Callable[[], Answer]) -> Answer:
        return await self._loop.run_in_executor(self._threads, work)


@asynccontextmanager
async def started(order: Order) -> AsyncIterator[Dbos]:
    """DBOS in this process, on its system database."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": order.url,
            "sys_db_pool_size": POOL,
            "db_engine_kwargs": {"pool_pre_ping": False, "max_overflow": 0},
            "use_listen_notify": True,
            "log_level": "ERROR",
            "enable_otlp": False,
        }
    )
    # Two of each run's calls wait in a thread at once, at most: its decision being sent, and its result.
    with ThreadPoolExecutor(2 * order.in_flight) as threads:
        engine = Dbos(threads)
        DBOS.launch()
        try:
            yield engine
        finally:
            await asyncio.to_thread(DBOS.destroy)


if __name__ == "__main__":
    main(started)
