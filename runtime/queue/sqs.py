"""The SQS queue through boto3: long poll, batches of ten, deduplication ids on FIFO queues.

SQS delivers at least once, in any order, and its visibility timeout is advisory: the message names a step, and the
step's row decides. A message that cannot be read stays on the queue until its redrive policy moves it to the dead
letters.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import structlog
from botocore.exceptions import BotoCoreError, ClientError
from msgspec import Struct

from core.bounded_json import parse_object
from core.db import Connection
from core.errors import InputError, TransportError
from runtime.queue.port import DeadLetter, Depth
from runtime.store import claims

log = structlog.get_logger(__name__)

BATCH_MAX = 10
VISIBILITY_MAX_SECONDS = 12 * 3600
_MESSAGE_BYTES_MAX = 1024
# The seconds for which a keeper hides a dead letter from others: less than the lease that it may take.
_DEAD_LETTER_SECONDS = 20
_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")


class SqsAddress(Struct, frozen=True):
    """One queue at SQS. ``client`` is a client of boto3, made by ``app``; its calls block, so they run in threads.

    ``setting`` is the variable that names the queue, for error messages.
    """

    client: Any
    url: str
    setting: str = "COUNTERSEAL_SQS_QUEUE_URL"

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call one of the client's methods for this queue; ``TransportError`` if anything goes wrong."""
        function = getattr(self.client, method)
        try:
            answer: dict[str, Any] = await asyncio.to_thread(function, QueueUrl=self.url, **arguments)
        except (BotoCoreError, ClientError) as error:
            raise TransportError(f"SQS: {error}", remedy=f"Check {self.setting} and the credentials.") from None
        return answer

    async def delete(self, handle: str) -> None:
        """Delete a message; if that fails it comes again, finds nothing to do and is deleted then."""
        try:
            await self.call("delete_message", ReceiptHandle=handle)
        except TransportError as error:
            log.warning("message not deleted", reason=error.message)

    async def receive(self, count: int, wait: timedelta, **arguments: int) -> list[dict[str, Any]]:
        """Up to ``count`` messages, and ten at most; waits for the first one, for 20 seconds at most."""
        seconds, most = max(0, min(int(wait.total_seconds()), 20)), max(1, min(count, BATCH_MAX))
        named = {"MaxNumberOfMessages": most, "WaitTimeSeconds": seconds, **arguments}
        messages: list[dict[str, Any]] = (await self.call("receive_message", **named)).get("Messages", [])
        return messages

    async def depth(self) -> Depth:
        """The number of messages. ``TransportError`` if SQS cannot be reached, or does not let us ask."""
        answer = await self.call("get_queue_attributes", AttributeNames=list(_COUNTS))
        counts = answer.get("Attributes", {})
        return Depth(*(int(counts.get(name, 0)) for name in _COUNTS))


class SqsDelivery(Struct, frozen=True):
    """One message: a step's id and the handle to acknowledge it with."""

    queue: SqsAddress
    step_id: UUID
    handle: str

    async def claim(self, connection: Connection, owner: str, lease: timedelta, _: int) -> list[asyncpg.Record]:
        """Lease the step that the message names."""
        return await claims.claim_step(connection, owner, lease, self.step_id)

    async def extend(self, lease: timedelta) -> None:
        """Keep the message hidden during the work. After a failure it only comes again, and finds the lease."""
        seconds = min(int(lease.total_seconds()), VISIBILITY_MAX_SECONDS)
        try:
            await self.queue.call("change_message_visibility", ReceiptHandle=self.handle, VisibilityTimeout=seconds)
        except TransportError as error:
            log.warning("visibility not extended", reason=error.message)

    async def done(self) -> None:
        """Delete the message."""
        await self.queue.delete(self.handle)


class SqsQueue:
    """One SQS queue for steps, to which the scheduler sends them."""

    needs_dispatch = True

    def __init__(self, client: Any, url: str, *, wait: timedelta = timedelta(seconds=10)) -> None:
        self._address = SqsAddress(client, url)
        self._wait = wait
        self._fifo = url.endswith(".fifo")

    async def receive(self, count: int) -> list[SqsDelivery]:
        """Long poll for up to ten messages. ``TransportError`` if SQS cannot be reached."""
        deliveries = []
        for message in await self._address.receive(count, self._wait):
            step_id = _step_of(message.get("Body", ""))
            if step_id is None:
                log.error("unknown message left to the dead letters", message_id=message.get("MessageId"))
                continue
            deliveries.append(SqsDelivery(self._address, step_id, message["ReceiptHandle"]))
        return deliveries

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        """Send in batches of ten. A message that SQS did not accept is sent again when its mark has expired."""
        accepted: list[str] = []
        for start in range(0, len(messages), BATCH_MAX):
            batch = messages[start : start + BATCH_MAX]
            entries = [self._entry(number, *message) for number, message in enumerate(batch)]
            answer = await self._address.call("send_message_batch", Entries=entries)
            accepted += [batch[int(item["Id"])][0] for item in answer.get("Successful", ())]
            for failed in answer.get("Failed", ()):
                log.warning("SQS did not accept a message", code=failed.get("Code"), reason=failed.get("Message"))
        return accepted

    def _entry(self, number: int, dedupe_key: str, group: str, step_id: str) -> dict[str, str]:
        entry = {"Id": str(number), "MessageBody": f'{{"step":"{step_id}"}}'}
        if self._fifo:
            entry |= {"MessageGroupId": group, "MessageDeduplicationId": dedupe_key}
        return entry


class SqsDeadLetters:
    """The dead-letter queue that the redrive policy of the queue for steps names."""

    def __init__(self, client: Any, url: str, *, wait: timedelta = timedelta(seconds=1)) -> None:
        self._address = SqsAddress(client, url, "COUNTERSEAL_SQS_DLQ_URL")
        self._wait = wait

    async def receive(self) -> list[DeadLetter]:
        """Receive up to ten dead letters. ``TransportError`` if SQS cannot be reached."""
        found = await self._address.receive(BATCH_MAX, self._wait, VisibilityTimeout=_DEAD_LETTER_SECONDS)
        return [_dead_letter(message) for message in found]

    async def delete(self, letter: DeadLetter) -> None:
        """Delete a dead letter; see ``SqsAddress.delete``."""
        await self._address.delete(letter.handle)


def _dead_letter(message: dict[str, Any]) -> DeadLetter:
    body = str(message.get("Body", ""))
    return DeadLetter(str(message.get("MessageId")), _step_of(body), body, message["ReceiptHandle"])


def _step_of(body: str) -> UUID | None:
    try:
        return UUID(str(parse_object(body.encode(), bytes_max=_MESSAGE_BYTES_MAX)["step"]))
    except (InputError, KeyError, ValueError):
        return None
