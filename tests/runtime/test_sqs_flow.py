"""The same runs over SQS (moto's server, spoken to through boto3): admission, loss, duplicates, a dead dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from runtime.keep.scheduler import Scheduler
from runtime.keep.sweeper import Sweeper
from runtime.queue.postgres import PostgresQueue
from runtime.queue.sqs import SqsQueue
from runtime.work.holding import Tools
from runtime.work.worker import Worker
from tests.support.for_all import ForAll

TWO_STEPS = """
workflow: two
version: 1
reference: ${{ trigger.name }}
steps:
  - id: first
    do: probe.effect.apply
    with: {name: a}
    needs: []
  - id: second
    do: probe.effect.apply
    with: {name: b}
    needs: []
"""


@pytest.fixture(scope="module")
def sqs_client() -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "sqs",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )
    yield client
    client.close()
    server.stop()


class Line:
    """A runtime whose steps travel through SQS."""

    def __init__(self, runtime: Any, client: Any, url: str) -> None:
        self.runtime, self.client, self.url = runtime, client, url
        self.queue = SqsQueue(client, url, wait=timedelta(0))
        self.scheduler = Scheduler(runtime.database, self.queue, "s1")
        self.sweeper = Sweeper(runtime.database, runtime.definitions)

    def worker(self, owner: str = "w1") -> Worker:
        runtime = self.runtime
        tools = Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), owner, timedelta(seconds=30))
        return Worker(tools, self.queue)

    async def go(self) -> None:
        while await self.scheduler.admit() or await self.worker().work_off():
            pass

    async def start(self, **columns: Any) -> Any:
        await self.runtime.tenant(**columns)
        await self.runtime.policy()
        await self.runtime.publish(TWO_STEPS)
        return (await self.runtime.start("two", {"name": "x"})).run_id


@pytest.fixture(params=["standard", "fifo"])
async def line(runtime: Any, sqs_client: Any, request: Any) -> AsyncIterator[Line]:
    fifo = {"FifoQueue": "true"} if request.param == "fifo" else {}
    name = "steps.fifo" if fifo else "steps"
    url = sqs_client.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]
    yield Line(runtime, sqs_client, url)
    sqs_client.delete_queue(QueueUrl=url)


@pytest.mark.req("U-3")
@pytest.mark.req("O-1")
async def test_a_run_goes_through_sqs(line: Line) -> None:
    run_id = await line.start()
    await line.go()
    assert await line.runtime.status(run_id) == "succeeded"
    assert len(line.runtime.outside.effects) == 2


@pytest.mark.req("O-8")
@pytest.mark.req("Q-8")
async def test_a_lost_message_is_found_by_the_sweep_and_a_late_one_changes_nothing(line: Line) -> None:
    run_id = await line.start()
    assert await line.scheduler.admit() == 1  # the step beside it waits for the run's start
    lost = line.client.receive_message(QueueUrl=line.url, MaxNumberOfMessages=10)["Messages"]
    await line.worker().work_off()
    assert line.runtime.outside.effects == []
    await line.runtime.trouble.expire_sent()
    assert await line.sweeper.sweep() == 1
    await line.runtime.trouble.forget_steps_were_sent()  # past FIFO's 5 minutes
    await line.go()
    for message in lost:
        line.client.change_message_visibility(
            QueueUrl=line.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
    await line.go()
    assert await line.runtime.status(run_id) == "succeeded"
    assert len(line.runtime.outside.effects) == 2
    assert await line.runtime.books.slots_taken() == 0


@pytest.mark.req("O-8")
async def test_what_was_sent_has_longer_than_a_lease_to_be_claimed(line: Line) -> None:
    await line.start()
    assert await line.scheduler.admit() == 1
    await line.sweeper.sweep()
    # None of those that were sent ends within the next minute and a half.
    assert await line.runtime.trouble.expire_sent(older_than=timedelta(seconds=-30)) == 0


@pytest.mark.req("Q-12")
async def test_the_cap_holds_at_admission(line: Line) -> None:
    run_id = await line.start(concurrency=1)
    assert await line.scheduler.admit() == 1
    assert await line.scheduler.admit() == 0
    await line.go()
    assert await line.runtime.status(run_id) == "succeeded"


class Dying(SqsQueue):
    """Dies at the moment of sending: before SQS has the messages (lost), or after it (landed)."""

    def __init__(self, client: Any, url: str, fault: str) -> None:
        super().__init__(client, url, wait=timedelta(0))
        self._fault = fault

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        if self._fault == "landed":
            await super().sent(messages)
        raise ConnectionAbortedError(self._fault)


@pytest.mark.req("O-8")
@pytest.mark.parametrize("fault", ["lost", "landed"])
async def test_a_scheduler_that_dies_while_sending_loses_and_doubles_nothing(line: Line, fault: str) -> None:
    run_id = await line.start()
    dying = Scheduler(line.runtime.database, Dying(line.client, line.url, fault), "s0")
    with pytest.raises(ConnectionAbortedError):
        await dying.admit()
    await line.worker().work_off()
    assert len(line.runtime.outside.effects) == (1 if fault == "landed" else 0)
    await line.runtime.trouble.expire_sent()
    await line.sweeper.sweep()
    await line.go()
    assert await line.runtime.status(run_id) == "succeeded"
    assert len(line.runtime.outside.effects) == 2


class Beaten:
    """A delivery of PostgreSQL's queue that notes how often its message is to stay hidden."""

    def __init__(self, own: Any, told: asyncio.Queue[timedelta]) -> None:
        self.own, self.told = own, told
        self.claim, self.done = own.claim, own.done

    async def extend(self, lease: timedelta) -> None:
        await self.told.put(lease)


@pytest.mark.req("Q-10")
async def test_whoever_beats_its_lease_keeps_the_message_hidden_too(runtime: Any, gate: Any) -> None:
    told: asyncio.Queue[timedelta] = asyncio.Queue()

    class Watched(PostgresQueue):
        async def receive(self, count: int) -> list[Any]:
            return [Beaten(delivery, told) for delivery in await super().receive(count)]

    runtime.outside.gates["a"] = gate
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(TWO_STEPS)
    await runtime.start("two", {"name": "x"})
    lease, stop = timedelta(seconds=3), asyncio.Event()
    tools = Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), "w", lease)
    working = asyncio.create_task(Worker(tools, Watched(idle=timedelta(milliseconds=20))).run(stop))
    beaten, _ = await asyncio.wait({asyncio.create_task(told.get())}, timeout=30)
    assert [task.result() for task in beaten] == [lease]
    gate.opened.set()
    stop.set()
    await working
