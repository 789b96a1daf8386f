"""SQS simulated by moto, and a second consumer of the queue that duplicates, delays, reorders and loses messages.

SQS delivers at least once, in any order, and late. It does not lose messages, but purging a queue does. A message that
is received a few times and not deleted goes to the dead letters, including foreign messages, which nobody can read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

PLACES = 3
VISIBILITY_SECONDS = 5
RECEIVES_MAX = 4
STRANGERS = ("chaos", "{}", '{"step": 7}')
_HABITS = {"duplicated": 40, "delayed": 30, "held back (reordered)": 35, "lost": 4, "joined by a stranger": 4}


@dataclass
class Gremlin:
    """A second consumer of the queue, which does harm. ``did`` counts messages by what happened to them."""

    client: Any
    url: str
    dead: str
    chance: random.Random
    did: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Consume messages forever, with as many tasks as there are workers, so the workers are not always faster."""
        async with asyncio.TaskGroup() as group:
            for _ in range(PLACES):
                group.create_task(self._at_one_place())

    async def _at_one_place(self) -> None:
        while True:
            await asyncio.to_thread(self._meddle)

    def _meddle(self) -> None:
        answer = self.client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=2, WaitTimeSeconds=1)
        for message in answer.get("Messages", ()):
            habit = self.chance.choices(list(_HABITS), list(_HABITS.values()))[0]
            self._befall(habit, message["Body"], message["ReceiptHandle"])
            self.did[f"SQS messages {habit}"] += 1

    def dead_letters(self) -> int:
        """The number of dead letters that are not handled yet."""
        name = "ApproximateNumberOfMessages"
        answer = self.client.get_queue_attributes(QueueUrl=self.dead, AttributeNames=[name])
        return int(answer["Attributes"][name])

    def _befall(self, habit: str, body: str, handle: str) -> None:
        if habit == "held back (reordered)":
            seconds = self.chance.randint(1, 4)
            self.client.change_message_visibility(QueueUrl=self.url, ReceiptHandle=handle, VisibilityTimeout=seconds)
            return
        if habit == "joined by a stranger":
            self.client.send_message(QueueUrl=self.url, MessageBody=self.chance.choice(STRANGERS))
            return
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=handle)
        if habit == "lost":
            return
        delay = self.chance.randint(1, 5) if habit == "delayed" else 0
        for _ in range(self.chance.randint(2, 4) if habit == "duplicated" else 1):
            self.client.send_message(QueueUrl=self.url, MessageBody=body, DelaySeconds=delay)


@contextmanager
def sqs(chance: random.Random) -> Iterator[tuple[Gremlin, dict[str, str]]]:
    """A queue: yields its gremlin and the settings with which Counterseal finds the queue."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        keys = {"AWS_ACCESS_KEY_ID": "chaos", "AWS_SECRET_ACCESS_KEY": "chaos", "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ.update(keys)
        endpoint = f"http://{host}:{port}"
        client = boto3.client("sqs", endpoint_url=endpoint, region_name="us-east-1")
        dead = client.create_queue(QueueName="chaos-dead-letters")["QueueUrl"]
        arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": str(RECEIVES_MAX)})
        attributes = {"VisibilityTimeout": str(VISIBILITY_SECONDS), "RedrivePolicy": redrive}
        url = client.create_queue(QueueName="chaos", Attributes=attributes)["QueueUrl"]
        settings = {
            "COUNTERSEAL_AWS_ENDPOINT_URL": endpoint,
            "COUNTERSEAL_AWS_REGION": "us-east-1",
            "COUNTERSEAL_SQS_QUEUE_URL": url,
            "COUNTERSEAL_SQS_DLQ_URL": dead,
        }
        yield Gremlin(client, url, dead, chance), keys | settings
    finally:
        server.stop()
