"""Absurd: tasks with steps and events, all of it functions in PostgreSQL. https://github.com/earendil-works/absurd

Its workers poll for work, every 250 ms by default, and each client runs its statements one by one on one connection. So
it gets several workers, each with its own connection, that poll every 10 ms.
"""

# These imports exist only in this driver's own environment, which mypy does not see.
# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from typing import Any, TypeVar

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd

from benchmarks.peers.drivers.harness import ASK_AFTER, EFFECTS, Decision, Effects, Order, main, release_of

QUEUE = "bench"
WORKERS = 8
CONCURRENCY = 6  # 8 workers then hold about as many tasks as are in flight, so that none waits for a worker
CLIENTS = 4
POLL_SECONDS = 0.01


class Tasks:
    """The tasks in progress, by the number of their run."""

    def __init__(self) -> None:
        self.decisions: dict[int, Decision] = {}
        self.ended: dict[int, asyncio.Future[None]] = {}
        self.finished: set[int] = set()


class Worker(AsyncAbsurd):
    """Absurd's own worker, which also tells its process that a task was committed as suspended or completed.

    The documented ways to learn that poll the database, which would cost Absurd throughput.
    """

    def __init__(self, url: str, tasks: Tasks) -> None:
        super().__init__(url, queue_name=QUEUE)
        self._tasks = tasks

    async def _execute_task(self, task: Any, claim_timeout: int) -> None:
        await super()._execute_task(task, claim_timeout)
        number = task["params"]["number"]
        if number in self._tasks.finished:
            self._tasks.ended[number].set_result(None)
        elif number in self._tasks.decisions:
            self._tasks.decisions[number].ask()


class Absurd:
    """A driver's view of Absurd."""

    configuration = (
        f"one process with uvloop, {WORKERS} workers of concurrency {CONCURRENCY} that poll every "
        f"{POLL_SECONDS * 1000:.0f} ms, each with its own connection; {CLIENTS} clients; psycopg[binary]"
    )

    def __init__(self, clients: list[AsyncAbsurd], tasks: Tasks) -> None:
        self.effects = Effects()
        self.release = release_of("absurd-sdk")
        self.tasks = tasks
        self._clients = cycle(clients)

    def register(self, worker: Worker) -> None:
        """Register the two workflows with a worker."""
        for workflow, effects in EFFECTS.items():
            worker.register_task(workflow)(self.handler(workflow, effects))

    def handler(self, workflow: str, effects: int) -> Any:
        """The handler of a workflow of so many effects."""

        async def effect() -> dict[str, int]:
            return self.effects.perform()

        async def handler(params: Any, context: Any) -> dict[str, bool]:
            for place in range(effects):
                if workflow == "w1" and place == ASK_AFTER:
                    await context.await_event(f"decision:{params['number']}")
                await context.step(f"effect-{place}", effect)
            self.tasks.finished.add(params["number"])
            return {"done": True}

        return handler

    async def run(self, workflow: str, number: int) -> float:
        client, decision = next(self._clients), Decision()
        ended = self.tasks.ended[number] = asyncio.get_running_loop().create_future()
        if workflow == "w1":
            self.tasks.decisions[number] = decision
        await client.spawn(workflow, {"number": number}, queue=QUEUE)
        if workflow == "w1":
            await decision.asked
            decision.give()
            await self.vote(f"decision:{number}")
            await client.emit_event(f"decision:{number}", {"approved": True})
        await ended
        return decision.taken()

    async def vote(self, event: str) -> None:
        """Record the decision before the task is told of it. Absurd alone keeps none but what it is told."""


Served = TypeVar("Served", bound=Absurd)


@asynccontextmanager
async def serving(order: Order, make: Callable[[list[AsyncAbsurd], Tasks], Served]) -> AsyncIterator[Served]:
    """Install the schema, and start the workers and the clients of an engine made of its clients and tasks."""
    async with await psycopg.AsyncConnection.connect(order.url, autocommit=True) as connection:
        await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
    tasks = Tasks()
    async with AsyncExitStack() as stack:
        clients = [AsyncAbsurd(order.url, queue_name=QUEUE) for _ in range(CLIENTS)]
        workers = [Worker(order.url, tasks) for _ in range(WORKERS)]
        for each in (*clients, *workers):
            stack.push_async_callback(each.close)
        await clients[0].create_queue()
        engine = make(clients, tasks)
        async with asyncio.TaskGroup() as group:
            for place, worker in enumerate(workers):
                engine.register(worker)
                group.create_task(
                    worker.start_worker(worker_id=f"bench-{place}", concurrency=CONCURRENCY, poll_interval=POLL_SECONDS)
                )
            try:
                yield engine
            finally:
                for worker in workers:
                    worker.stop_worker()


@asynccontextmanager
async def started(order: Order) -> AsyncIterator[Absurd]:
    """Start Absurd alone."""
    async with serving(order, Absurd) as engine:
        yield engine


if __name__ == "__main__":
    main(started)
