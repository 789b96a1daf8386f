"""One behaviour for every queue: it only says that it is time to look; the step's row decides (Q-11, U-3)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import boto3
import pytest

from core.errors import TransportError
from runtime.queue.postgres import PostgresQueue
from runtime.queue.sqs import SqsQueue

LEASE = timedelta(seconds=30)


class Postgres:
    """The database as the queue."""

    def __init__(self, office: Any) -> None:
        self.queue = PostgresQueue(idle=timedelta(milliseconds=10))
        self._office = office

    async def put(self, count: int = 1) -> None:
        await self._office.ready(count)
        self.queue.wake()

    async def put_again(self) -> None:
        self.queue.wake()


class Sqs:
    """SQS between the scheduler and the workers."""

    def __init__(self, office: Any, queue: Any) -> None:
        self.queue = queue
        self._office = office
        self._sent: list[tuple[str, str, str]] = []

    async def put(self, count: int = 1) -> None:
        self._sent = await self._office.admitted(count)
        assert len(self._sent) == count
        assert await self.queue.sent(self._sent) == [message[0] for message in self._sent]

    async def put_again(self) -> None:
        """The same messages again, past the minutes in which FIFO queues would drop them."""
        again = [(str(uuid4()), group, step) for _, group, step in self._sent]
        assert len(await self.queue.sent(again)) == len(again)


@pytest.fixture(params=["postgres", "sqs standard", "sqs fifo"])
def line(request: Any, office: Any, sqs_queue: Any) -> Any:
    if request.param == "postgres":
        return Postgres(office)
    return Sqs(office, sqs_queue(request.param.split()[1]))


async def all_deliveries(line: Any) -> list[Any]:
    """Receive as a worker does: again after a delivery was claimed, which here is each one that is handed out."""
    found: list[Any] = []
    while batch := await line.queue.receive(10):
        found += batch
        if isinstance(line, Postgres):
            if len(found) == 4:
                break
            line.queue.wake()
    return found


@pytest.mark.req("U-3")
@pytest.mark.req("Q-9")
async def test_what_is_put_in_is_claimed_once_and_gone_when_done(line: Any, office: Any) -> None:
    await line.put(3)
    claimed = []
    for delivery in await all_deliveries(line):
        claimed += await office.claim(delivery)
        await delivery.extend(LEASE)
        await delivery.done()
    assert len(set(claimed)) == len(claimed) == 3
    assert [await office.claim(delivery) for delivery in await line.queue.receive(10)] in ([], [[]])


@pytest.mark.req("Q-8")
@pytest.mark.req("Q-11")
async def test_a_message_that_comes_again_changes_nothing(line: Any, office: Any) -> None:
    await line.put(2)
    first = [step for delivery in await all_deliveries(line) for step in await office.claim(delivery)]
    await line.put_again()
    again = [step for delivery in await all_deliveries(line) for step in await office.claim(delivery, "other")]
    assert (len(first), again) == (2, [])


@pytest.mark.req("Q-9")
async def test_of_several_receivers_of_the_same_step_one_gets_it(line: Any, office: Any) -> None:
    await line.put()
    deliveries = await all_deliveries(line)
    await line.put_again()
    deliveries += await all_deliveries(line)
    found = await asyncio.gather(*(office.claim(delivery, f"w{n}") for n, delivery in enumerate(deliveries)))
    assert sum(len(steps) for steps in found) == 1


async def test_nothing_comes_where_nothing_is(line: Any, office: Any) -> None:
    for delivery in await line.queue.receive(10):
        assert await office.claim(delivery) == []


@pytest.mark.req("O-7")
async def test_more_than_a_batch_goes_through(line: Any, office: Any) -> None:
    await line.put(25)
    claimed = set()
    while True:
        found = [await office.claim(delivery) for delivery in await line.queue.receive(10)]
        if not any(found):
            break
        claimed |= {step for steps in found for step in steps}
        if isinstance(line, Postgres):
            line.queue.wake()
    assert len(claimed) == 25


def test_who_has_to_move_commands(line: Any) -> None:
    assert line.queue.needs_dispatch is isinstance(line, Sqs)


# -- what only PostgreSQL does -----------------------------------------------------------------------------------------


async def test_a_wake_up_gives_one_turn_and_so_does_idling(office: Any) -> None:
    queue = PostgresQueue(idle=timedelta(milliseconds=10))
    assert len(await queue.receive(4)) == 1, "whoever starts looks at once"
    assert len(await queue.receive(4)) == 1, "the look for a lost wake-up"
    queue = PostgresQueue(idle=timedelta(hours=1))
    await queue.receive(1)
    parked = asyncio.create_task(queue.receive(3))
    await asyncio.sleep(0)
    assert not parked.done()
    queue.wake()
    assert len(await parked) == 1
    assert await queue.sent([("k", "g", "s")]) == []


# -- what only SQS does ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["standard", "fifo"])
async def test_what_is_not_ours_goes_to_the_dead_letters(sqs: Any, sqs_queue: Any, office: Any, kind: str) -> None:
    queue = sqs_queue(kind, visibility=0)
    url, dead = queue.test_urls
    for number, body in enumerate(["not json", '{"step": 7}', '{"other": 1}', "[" * 900]):
        more = {"MessageGroupId": f"g{number}", "MessageDeduplicationId": f"d{number}"} if kind == "fifo" else {}
        sqs.send_message(QueueUrl=url, MessageBody=body, **more)
    for _ in range(20):
        assert await queue.receive(10) == []
    found: list[Any] = []
    while messages := sqs.receive_message(QueueUrl=dead, MaxNumberOfMessages=10).get("Messages"):
        found += messages
        for message in messages:
            sqs.delete_message(QueueUrl=dead, ReceiptHandle=message["ReceiptHandle"])
    assert len(found) == 4


@pytest.mark.req("Q-11")
async def test_a_message_whose_worker_died_comes_again(sqs_queue: Any, office: Any) -> None:
    line = Sqs(office, sqs_queue("standard", visibility=0))
    await line.put()
    (first,) = await line.queue.receive(1)
    assert len(await office.claim(first)) == 1
    await office.lose_leases()
    (second,) = await line.queue.receive(1)
    assert len(await office.claim(second, "other")) == 1


@pytest.mark.req("O-2")
async def test_a_command_that_is_sent_twice_comes_once_on_a_fifo_queue(sqs_queue: Any, office: Any) -> None:
    queue = sqs_queue("fifo")
    messages = await office.admitted(1)
    assert await queue.sent(messages) == await queue.sent(messages) == [messages[0][0]]
    assert len(await queue.receive(10)) == 1
    assert await queue.receive(10) == []


async def test_a_message_is_hidden_for_as_long_as_is_asked(sqs_queue: Any, office: Any) -> None:
    line = Sqs(office, sqs_queue("standard"))
    await line.put()
    (delivery,) = await line.queue.receive(1)
    assert await line.queue.receive(1) == []
    await delivery.extend(timedelta(0))
    (delivery,) = await line.queue.receive(1)
    await delivery.extend(timedelta(days=30))  # more than SQS takes
    assert await line.queue.receive(1) == []


async def test_a_message_that_is_gone_is_no_trouble(sqs_queue: Any, office: Any) -> None:
    line = Sqs(office, sqs_queue("standard"))
    await line.put()
    (delivery,) = await line.queue.receive(1)
    await delivery.done()
    await delivery.done()
    await delivery.extend(LEASE)


class Picky:
    """A client whose queue accepts every second message of a batch."""

    def send_message_batch(self, **arguments: Any) -> dict[str, Any]:
        entries = arguments["Entries"]
        failed = [{"Id": entry["Id"], "Code": "InternalError", "Message": "no"} for entry in entries[1::2]]
        return {"Successful": [{"Id": entry["Id"]} for entry in entries[::2]], "Failed": failed}


async def test_only_what_was_certainly_accepted_is_said_to_be() -> None:
    queue = SqsQueue(Picky(), "http://queue/steps")
    sent = [(f"k{number}", "g", str(uuid4())) for number in range(13)]
    assert await queue.sent(sent) == ["k0", "k2", "k4", "k6", "k8", "k10", "k12"]


@pytest.mark.req("X-18")
async def test_a_queue_that_cannot_be_reached_is_a_transport_error(sqs_endpoint: str) -> None:
    client = boto3.client(
        "sqs", endpoint_url=sqs_endpoint, region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    queue = SqsQueue(client, f"{sqs_endpoint}/123456789012/nobody", wait=timedelta(0))
    with pytest.raises(TransportError, match="COUNTERSEAL_SQS_QUEUE_URL"):
        await queue.receive(1)
    client.close()
