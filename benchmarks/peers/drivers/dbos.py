"""DBOS: workflows whose steps are checkpointed in PostgreSQL. https://docs.dbos.dev/python

Workflows start in the process that runs them, without a queue: that is DBOS's fastest way, as a queue would add a poll.
They are synchronous, each on a thread of DBOS. Its coroutines switch to a thread for every statement; when this was
written, that took more CPU per run and more time from the decision to the end.
"""

# These imports exist only in this driver's own environment, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from dbos import DBOS, SetWorkflowID, WorkflowHandle

from benchmarks.peers.drivers.harness import ASK_AFTER, EFFECTS, Decision, Effects, Order, main, release_of

# More connections did not help: Python's GIL is the limit, and a workflow that waits for a message holds none.
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
                    # DBOS keeps a message that arrives before recv, which then need not wait.
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
    """Start DBOS in this process, on its system database."""
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
    # At most two calls of a run wait in threads at once: sending its decision, and waiting for its result.
    with ThreadPoolExecutor(2 * order.in_flight) as threads:
        engine = Dbos(threads)
        DBOS.launch()
        try:
            yield engine
        finally:
            await asyncio.to_thread(DBOS.destroy)


if __name__ == "__main__":
    main(started)
