"""Calls of SQS, one by one, with a client that notes what it is asked. Without a server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import orjson
import pytest
import structlog
from botocore.exceptions import ClientError, EndpointConnectionError

from core.errors import TransportError
from runtime.queue import postgres
from runtime.queue.port import DeadLetter, Depth
from runtime.queue.postgres import PostgresDelivery, PostgresQueue
from runtime.queue.sqs import BATCH_MAX, SqsAddress, SqsDeadLetters, SqsDelivery, SqsQueue
from runtime.store import claims as store
from tests.support.rows import uid

pytestmark = pytest.mark.req("Q-11")

PLAIN, FIFO = "https://sqs.example/1/steps", "https://sqs.example/1/steps.fifo"
OF_FIFO = "https://sqs.fifo.example/1/steps"


class Client:
    """A boto3 client: the answers by method, and the calls in their order."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._answers = answers

    def __getattr__(self, method: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append((method, arguments))
            answer = self._answers.get(method, {})
            if isinstance(answer, Exception):
                raise answer
            return answer(arguments) if callable(answer) else answer

        return call


def messages(count: int) -> list[tuple[str, str, str]]:
    return [(f"key {number}", f"group {number}", str(uid(number))) for number in range(count)]


def entry(number: int, place: int, *, fifo: bool) -> dict[str, str]:
    plain = {"Id": str(place), "MessageBody": f'{{"step":"{uid(number)}"}}'}
    return plain | ({"MessageGroupId": f"group {number}", "MessageDeduplicationId": f"key {number}"} if fifo else {})


def accepted(arguments: dict[str, Any]) -> Any:
    return {"Successful": [{"Id": each["Id"]} for each in arguments["Entries"]]}


@pytest.mark.parametrize(("url", "fifo"), [(PLAIN, False), (FIFO, True), (OF_FIFO, False)])
@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (10, [10]), (11, [10, 1]), (20, [10, 10])])
async def test_steps_are_sent_in_batches_under_their_own_keys(
    url: str, fifo: bool, count: int, sizes: list[int]
) -> None:
    client = Client(send_message_batch=accepted)
    sent = await SqsQueue(client, url).sent(messages(count))
    assert sent == [f"key {number}" for number in range(count)]
    assert [method for method, _ in client.calls] == ["send_message_batch"] * len(sizes)
    assert [len(arguments["Entries"]) for _, arguments in client.calls] == sizes
    every = [each for _, arguments in client.calls for each in arguments["Entries"]]
    assert every == [entry(number, number % BATCH_MAX, fifo=fifo) for number in range(count)]
    assert {arguments["QueueUrl"] for _, arguments in client.calls} <= {url}


async def test_what_sqs_did_not_accept_was_not_sent() -> None:
    def some(arguments: dict[str, Any]) -> Any:
        failed = [{"Id": "1", "Code": "Throttled", "Message": "slow down"}]
        return {"Successful": [{"Id": "2"}, {"Id": "0"}] if len(arguments["Entries"]) > 1 else [], "Failed": failed}

    with structlog.testing.capture_logs() as logs:
        assert await SqsQueue(Client(send_message_batch=some), PLAIN).sent(messages(11)) == ["key 2", "key 0"]
    said = {"event": "SQS did not accept a message", "code": "Throttled", "reason": "slow down"}
    assert logs == [{**said, "log_level": "warning"}] * 2


def came(number: int, **more: Any) -> dict[str, Any]:
    body = orjson.dumps({"step": str(uid(number))}).decode()
    return {"MessageId": f"m{number}", "ReceiptHandle": f"h{number}", "Body": body, **more}


@pytest.mark.parametrize(("count", "most"), [(0, 1), (1, 1), (9, 9), (10, 10), (11, 10)])
@pytest.mark.parametrize(("wait", "seconds"), [(-1, 0), (0.9, 0), (10, 10), (20, 20), (21, 20), (86_401, 20)])
async def test_so_many_messages_are_waited_for_so_long(count: int, most: int, wait: float, seconds: int) -> None:
    client = Client(receive_message={"Messages": [came(1), came(2)]})
    found = await SqsQueue(client, PLAIN, wait=timedelta(seconds=wait)).receive(count)
    asked = {"QueueUrl": PLAIN, "MaxNumberOfMessages": most, "WaitTimeSeconds": seconds}
    assert client.calls == [("receive_message", asked)]
    address = SqsAddress(client, PLAIN)
    assert found == [SqsDelivery(address, uid(1), "h1"), SqsDelivery(address, uid(2), "h2")]


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"step":"x"}', '{"step":1}', '{"step":"' + "0" * 1100 + '"}'])
async def test_a_message_that_is_none_of_ours_is_left_where_it_is(body: str) -> None:
    client = Client(receive_message={"Messages": [came(1, Body=body), came(2)]})
    assert [each.step_id for each in await SqsQueue(client, PLAIN).receive(5)] == [uid(2)]
    letters = await SqsDeadLetters(client, PLAIN).receive()
    assert letters == [DeadLetter("m1", None, body, "h1"), DeadLetter("m2", uid(2), came(2)["Body"], "h2")]
    asked = {"QueueUrl": PLAIN, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1, "VisibilityTimeout": 20}
    assert client.calls[1] == ("receive_message", asked)


async def test_a_message_without_a_body_is_none_of_ours() -> None:
    client = Client(receive_message={"Messages": [{"MessageId": "m1", "ReceiptHandle": "h1"}, came(2)]})
    assert [each.step_id for each in await SqsQueue(client, PLAIN).receive(5)] == [uid(2)]
    assert (await SqsDeadLetters(client, PLAIN).receive())[0] == DeadLetter("m1", None, "", "h1")
    assert await SqsQueue(Client(receive_message={}), PLAIN).receive(5) == []


@pytest.mark.parametrize(("hours", "seconds"), [(0.01, 36), (11.9, 42_840), (12, 43_200), (13, 43_200), (25, 43_200)])
async def test_a_message_is_kept_hidden_as_long_as_sqs_lets_it(hours: float, seconds: int) -> None:
    client = Client()
    delivery = SqsDelivery(SqsAddress(client, PLAIN), uid(1), "h1")
    await delivery.extend(timedelta(hours=hours))
    await delivery.done()
    assert client.calls == [
        ("change_message_visibility", {"QueueUrl": PLAIN, "ReceiptHandle": "h1", "VisibilityTimeout": seconds}),
        ("delete_message", {"QueueUrl": PLAIN, "ReceiptHandle": "h1"}),
    ]


async def test_a_dead_letter_is_deleted_by_its_handle() -> None:
    client = Client()
    await SqsDeadLetters(client, PLAIN).delete(DeadLetter("m1", uid(1), "", "h1"))
    assert client.calls == [("delete_message", {"QueueUrl": PLAIN, "ReceiptHandle": "h1"})]


@pytest.mark.req("O-7")
async def test_a_queue_has_three_counts() -> None:
    names = (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    )
    client = Client(get_queue_attributes={"Attributes": dict(zip(names, ("3", "4", "5"), strict=True))})
    assert await SqsAddress(client, PLAIN).depth() == Depth(waiting=3, in_flight=4, delayed=5)
    assert client.calls == [("get_queue_attributes", {"QueueUrl": PLAIN, "AttributeNames": [*names]})]
    assert await SqsAddress(Client(), PLAIN).depth() == Depth(0, 0, 0)


AWAY = EndpointConnectionError(endpoint_url=PLAIN)
REFUSED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ReceiveMessage")


@pytest.mark.parametrize("error", [AWAY, REFUSED])
async def test_what_sqs_refuses_names_the_setting_of_its_queue(error: Exception) -> None:
    methods = ("receive_message", "send_message_batch", "get_queue_attributes")
    client = Client(**dict.fromkeys((*methods, "delete_message", "change_message_visibility"), error))
    queue, letters = SqsQueue(client, PLAIN), SqsDeadLetters(client, PLAIN)
    named = {
        "COUNTERSEAL_SQS_QUEUE_URL": [queue.receive(1), queue.sent(messages(1)), SqsAddress(client, PLAIN).depth()]
    }
    named["COUNTERSEAL_SQS_DLQ_URL"] = [letters.receive()]
    for setting, asked in named.items():
        for each in asked:
            with pytest.raises(TransportError, match="SQS: ") as raised:
                await each
            assert raised.value.remedy == f"Check {setting} and the credentials."
    delivery = SqsDelivery(SqsAddress(client, PLAIN), uid(1), "h1")
    await delivery.extend(timedelta(seconds=1))
    await delivery.done()
    await letters.delete(DeadLetter("m1", None, "", "h1"))


async def test_what_cannot_be_told_sqs_is_told_in_the_log() -> None:
    """A message that is not deleted, or is not hidden for longer, comes again, and finds nothing to do."""
    client = Client(delete_message=AWAY, change_message_visibility=AWAY)
    delivery = SqsDelivery(SqsAddress(client, PLAIN), uid(1), "h1")
    with structlog.testing.capture_logs() as logs:
        await delivery.extend(timedelta(seconds=30))
        await delivery.done()
    said = [(each["event"], each["log_level"], each["reason"]) for each in logs]
    assert [each[:2] for each in said] == [("visibility not extended", "warning"), ("message not deleted", "warning")]
    assert {each[2] for each in said} == {f"SQS: {AWAY}"}


async def test_a_message_that_is_left_to_the_dead_letters_is_named() -> None:
    client = Client(receive_message={"Messages": [came(1, Body="{")]})
    with structlog.testing.capture_logs() as logs:
        assert await SqsQueue(client, PLAIN).receive(5) == []
    assert logs == [
        {"event": "unknown message left to the dead letters", "message_id": "m1", "log_level": "error"}
    ]  # fmt: skip


@pytest.mark.req("Q-11")
async def test_a_worker_gets_a_turn_for_each_wake_up_and_one_when_it_has_idled(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its whole idle time: days and parts of a second count."""
    rested, idle = list[tuple[bool, float]](), 86_407.5

    async def rest(event: asyncio.Event, seconds: float) -> None:
        rested.append((event.is_set(), seconds))

    monkeypatch.setattr(postgres, "rest", rest)
    queue = PostgresQueue(idle=timedelta(days=1, seconds=7, milliseconds=500))
    turns = [await queue.receive(3), await queue.receive(3)]
    queue.wake()
    queue.wake()
    turns += [await queue.receive(3), await queue.receive(3)]
    assert rested == [(True, idle), (False, idle), (True, idle), (False, idle)]
    assert [[type(each) for each in turn] for turn in turns] == [[PostgresDelivery]] * 4
    assert (await queue.sent(messages(2)), queue.needs_dispatch, SqsQueue.needs_dispatch) == ([], False, True)


async def test_a_turn_claims_what_is_next_and_a_message_the_step_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def claims(name: str) -> Any:
        async def claim(*given: Any) -> Any:
            asked.append((name, *given))
            return [name]

        return claim

    monkeypatch.setattr(store, "claim_next", claims("next"))
    monkeypatch.setattr(store, "claim_step", claims("step"))
    connection: Any = "the connection"
    given = (connection, "me", timedelta(seconds=30))
    turn, message = PostgresDelivery(), SqsDelivery(SqsAddress(Client(), PLAIN), uid(1), "h1")
    found: list[Any] = [await turn.claim(*given, 11), await message.claim(*given, 11)]
    assert found == [["next"], ["step"]]
    assert asked == [("next", *given, 11), ("step", *given, uid(1))]
    await turn.extend(timedelta(seconds=30))
    await turn.done()
