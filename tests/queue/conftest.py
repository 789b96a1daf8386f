"""A database with one tenant and runs of one step, and SQS as moto serves it on loopback."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from connectors.catalog import Source, load_catalog
from core.db import ENGINE_ROLE, Database
from evidence.chain import Actor
from runtime.definition.workflow import load_workflow
from runtime.engine.model.workflow import Workflow
from runtime.queue.sqs import SqsQueue
from runtime.requests.starting import StartRequest, start_run
from runtime.store import claims, documents
from runtime.store.documents import StoredWorkflow
from tests.support.asking import owning
from tests.support.trouble import Trouble

OPERATIONS = """
operations:
  - name: probe.value.read
    handler: probe:read
    side_effects: none
    risk: low
    summary: "Read"
    target: "thing"
    input_schema: {type: object}
    output_schema: {type: object}
"""
ONE_STEP = "workflow: one\nversion: 1\nreference: r\nsteps: [{id: a, do: probe.value.read}]\n"
LEASE = timedelta(seconds=30)


class Office:
    """A tenant whose runs have one step each; ``ready`` makes so many, ``admitted`` those that a scheduler let out."""

    def __init__(self, database: Database, workflow: Workflow) -> None:
        self.database = database
        self._workflow = workflow
        self._started = 0

    async def ready(self, count: int = 1) -> None:
        async with self.database.transaction() as connection:
            for _ in range(count):
                self._started += 1
                request = StartRequest("acme", "main", "test", str(self._started), {}, "p", Actor("test", "t"))
                await start_run(connection, self._workflow, request)

    async def admitted(self, count: int = 1) -> list[tuple[str, str, str]]:
        """Messages as the scheduler would send them."""
        await self.ready(count)
        async with self.database.connection() as connection:
            rows = await claims.admit(connection, "s", LEASE, count)
        return [(str(uuid4()), str(row["run_id"]), str(row["step_id"])) for row in rows]

    async def claim(self, delivery: Any, owner: str = "w") -> list[UUID]:
        async with self.database.transaction() as connection:
            found = await delivery.claim(connection, owner, LEASE, 10)
            return [UUID(row["step"]["step_id"]) for row in found]

    async def lose_leases(self) -> None:
        """Every claimed step is admitted once more, as after crashes that a sweeper has found."""
        await Trouble(self.database).send_steps("s")


@pytest.fixture
async def office(database_url: str) -> AsyncIterator[Office]:
    workflow = load_workflow(ONE_STEP, "one.yaml", load_catalog([Source("probe.yaml", OPERATIONS)]))
    async with Database(database_url, ENGINE_ROLE) as database:
        async with owning(database) as connection:
            await connection.execute("INSERT INTO tenants (tenant_id, stream_id) VALUES ('acme', gen_random_uuid())")
            stored = (workflow.name, workflow.version, workflow.digest, ONE_STEP, workflow.frozen_operations)
            await documents.publish_workflow(connection, "acme", StoredWorkflow(*stored), "test")
        await Trouble(database).set_slots("acme", 50)
        yield Office(database, workflow)


@pytest.fixture(scope="session")
def sqs_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def sqs(sqs_endpoint: str) -> Iterator[Any]:
    client = boto3.client(
        "sqs", endpoint_url=sqs_endpoint, region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="botocore")
        yield client
    client.close()


@pytest.fixture
def sqs_queue(sqs: Any) -> Iterator[Callable[..., SqsQueue]]:
    """A new queue with a dead-letter queue behind it (three receives), spoken to through ours."""
    urls: list[str] = []

    def make(kind: str, *, visibility: int = 30) -> SqsQueue:
        ending, fifo = (".fifo", {"FifoQueue": "true"}) if kind == "fifo" else ("", {})
        dead = sqs.create_queue(QueueName=f"dead{len(urls)}{ending}", Attributes=fifo)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"3"}}'
        attributes = {**fifo, "VisibilityTimeout": str(visibility), "RedrivePolicy": redrive}
        url = sqs.create_queue(QueueName=f"steps{len(urls)}{ending}", Attributes=attributes)["QueueUrl"]
        urls.extend((url, dead))
        queue = SqsQueue(sqs, url, wait=timedelta(0))
        queue.test_urls = (url, dead)  # type: ignore[attr-defined]
        return queue

    yield make
    for url in urls:
        sqs.delete_queue(QueueUrl=url)
