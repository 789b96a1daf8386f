"""Poison messages: what SQS gives up is held against the step's row by the keeper (moto's server, through boto3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from core.errors import TransportError
from runtime.keep.scheduler import Reconciler, Scheduler
from runtime.queue.port import DeadLetter
from runtime.queue.sqs import SqsAddress, SqsDeadLetters, SqsQueue
from runtime.work.holding import Tools
from runtime.work.setbacks import SETBACKS_MAX
from runtime.work.worker import Worker
from tests.support.for_all import ForAll

ONE_EFFECT = """
workflow: one
version: 1
reference: ${{ trigger.name }}
steps:
  - {id: only, do: probe.effect.apply, with: {name: a}}
"""
RECEIVES = 2


@pytest.fixture(scope="module")
def sqs_of_letters() -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "region_name": "us-east-1"}
    client = boto3.client("sqs", endpoint_url=f"http://{host}:{port}", **keys)
    yield client
    client.close()
    server.stop()


class PostOffice:
    """A run whose one step travels through a queue with dead letters, and nobody who claims it by itself."""

    def __init__(self, runtime: Any, client: Any, url: str, dead: str) -> None:
        self.runtime, self.client, self.url, self.dead = runtime, client, url, dead
        self.queue = SqsQueue(client, url, wait=timedelta(0))
        self.letters = SqsDeadLetters(client, dead, wait=timedelta(0))
        self.scheduler = Scheduler(runtime.database, self.queue, "s")
        self.reconciler = Reconciler(runtime.database, runtime.definitions, self.letters, "keeper")

    async def start(self) -> Any:
        await self.runtime.tenant()
        await self.runtime.policy()
        await self.runtime.publish(ONE_EFFECT)
        return (await self.runtime.start("one", {"name": "x"})).run_id

    def die_of_it(self) -> None:
        """Workers receive until SQS gives up, and none of them lives to claim anything."""
        for _ in range(RECEIVES + 1):
            self.client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10, VisibilityTimeout=0)

    async def left(self) -> list[int]:
        return [(await SqsAddress(self.client, url).depth()).waiting for url in (self.url, self.dead)]

    async def pause_is_over(self) -> None:
        await self.runtime.trouble.expire_leases()
        assert await self.runtime.sweep() == 1

    async def work_off(self) -> None:
        runtime = self.runtime
        tools = Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), "w", timedelta(seconds=30))
        await Worker(tools, self.queue).work_off()


@pytest.fixture(params=["standard", "fifo"])
async def office(runtime: Any, sqs_of_letters: Any, request: Any) -> AsyncIterator[PostOffice]:
    client, ending = sqs_of_letters, ".fifo" if request.param == "fifo" else ""
    fifo = {"FifoQueue": "true"} if ending else {}
    dead = client.create_queue(QueueName=f"dead{ending}", Attributes=fifo)["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": str(RECEIVES)})
    url = client.create_queue(QueueName=f"steps{ending}", Attributes={**fifo, "RedrivePolicy": redrive})["QueueUrl"]
    yield PostOffice(runtime, client, url, dead)
    for one in (url, dead):
        client.delete_queue(QueueUrl=one)


async def test_a_step_whose_message_died_is_admitted_again_and_done_once(office: PostOffice) -> None:
    run_id = await office.start()
    assert await office.scheduler.admit() == 1
    office.die_of_it()
    assert await office.left() == [0, 1]
    assert await office.reconciler.reconcile() == 1
    assert await office.left() == [0, 0]
    step = await office.runtime.books.step()
    assert (step.status, step.lease_owner, step.error["setbacks"]) == ("running", "keeper", 1)
    assert "workers' logs" in step.error["message"]
    await office.pause_is_over()
    assert await office.scheduler.admit() == 1
    await office.work_off()
    assert await office.runtime.status(run_id) == "succeeded"
    assert len(office.runtime.outside.effects) == 1
    await office.runtime.at_rest()
    await office.runtime.history(run_id)


async def test_a_step_that_nobody_survives_fails_after_a_bounded_number_of_letters(
    office: PostOffice, quiet: None
) -> None:
    run_id = await office.start()
    for number in range(1, SETBACKS_MAX + 1):
        assert await office.scheduler.admit() == 1
        office.die_of_it()
        assert await office.reconciler.reconcile() == 1
        if number < SETBACKS_MAX:
            await office.pause_is_over()
    assert await office.runtime.status(run_id) == "failed_terminal"
    error = await office.runtime.error(run_id)
    assert (error["step"], error["setbacks"]) == ("only", SETBACKS_MAX)
    assert "dead letters" in error["message"]
    assert "SQS message" in error["message"]
    assert office.runtime.outside.effects == []
    assert await office.scheduler.admit() == 0
    await office.runtime.at_rest()
    await office.runtime.history(run_id)


async def test_the_row_decides_what_becomes_of_a_letter(office: PostOffice) -> None:
    """Over, claimed, gone, or about to be admitted again: the letter is dropped, and nothing else changes."""
    run_id = await office.start()
    assert await office.scheduler.admit() == 1
    office.die_of_it()
    (letter,) = await office.letters.receive()
    trouble = office.runtime.trouble
    states = [("swept", trouble.lose_claims), ("claimed", partial(trouble.hand_steps_to, "w"))]
    for name, change in states:
        await change()
        before = await office.runtime.fingerprint()
        office.client.change_message_visibility(QueueUrl=office.dead, ReceiptHandle=letter.handle, VisibilityTimeout=0)
        assert await office.reconciler.reconcile() == 1, name
        assert await office.runtime.fingerprint() == before, name
        again(office, letter.body)
        (letter,) = await office.letters.receive()
    await trouble.send_steps("s")
    again(office, f'{{"step": "{letter.step_id}"}}', to=office.url)
    await office.work_off()
    assert await office.runtime.status(run_id) == "succeeded"
    again(office, f'{{"step":"{uuid4()}"}}')
    before = await office.runtime.fingerprint()
    office.client.change_message_visibility(QueueUrl=office.dead, ReceiptHandle=letter.handle, VisibilityTimeout=0)
    while await office.reconciler.reconcile():
        pass
    assert await office.runtime.fingerprint() == before
    assert await office.left() == [0, 0]


def again(office: PostOffice, body: str, *, to: str | None = None) -> None:
    url = to or office.dead
    more = {"MessageGroupId": str(uuid4()), "MessageDeduplicationId": str(uuid4())} if url.endswith("fifo") else {}
    office.client.send_message(QueueUrl=url, MessageBody=body, **more)


async def test_what_nobody_can_read_is_deleted_with_a_line_in_the_log(office: PostOffice, capfd: Any) -> None:
    for body in ("not json", '{"step": 7}', "\x1b[31m" + "x" * 900):
        again(office, body)
    while await office.reconciler.reconcile():
        pass
    assert await office.left() == [0, 0]
    said = "".join(capfd.readouterr())
    assert said.count("none of ours") == 3
    assert "x" * 300 not in said


async def test_a_keeper_that_dies_between_the_row_and_the_letter_counts_it_once(office: PostOffice) -> None:
    await office.start()
    await office.scheduler.admit()
    office.die_of_it()

    class Dying(SqsDeadLetters):
        async def delete(self, letter: DeadLetter) -> None:
            raise ConnectionAbortedError

    dying = Dying(office.client, office.dead, wait=timedelta(0))
    assert await Reconciler(office.runtime.database, office.runtime.definitions, dying, "k0").reconcile() == 0
    before = await office.runtime.fingerprint()
    (letter,) = await all_hidden(office)
    assert await office.reconciler.reconcile() == 1, letter
    assert await office.runtime.fingerprint() == before
    assert (await office.runtime.books.step()).error["setbacks"] == 1


async def all_hidden(office: PostOffice) -> list[Any]:
    """Send hidden letters once more: they come back by themselves, and SQS lets nobody wait for that here."""
    step = (await office.runtime.books.step()).id
    again(office, f'{{"step":"{step}"}}')
    return [step]


class Away:
    """Dead letters that cannot be reached until somebody repairs that."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def receive(self) -> list[DeadLetter]:
        self.asked.set()
        raise TransportError("SQS is away.")

    async def delete(self, letter: DeadLetter) -> None:
        raise AssertionError("there is nothing to delete")


async def test_dead_letters_that_are_away_stop_nothing_and_nobody_waits_for_them(runtime: Any) -> None:
    away, stop = Away(), asyncio.Event()
    running = asyncio.create_task(Reconciler(runtime.database, runtime.definitions, away, "k").run(stop))
    await asyncio.wait_for(away.asked.wait(), 60)
    stop.set()
    await asyncio.wait_for(running, 60)
