"""SQS simulated by moto's server, in its own process. Its cost says nothing about AWS's own latency."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from benchmarks.children import clean_environment, end_process

REGION = "us-east-1"
START_SECONDS = 60.0
_KEYS = {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark"}


@dataclass(frozen=True, slots=True)
class Queues:
    """The server's address, a client that creates queues there, and the id of the server's process."""

    url: str
    client: Any
    pid: int

    def settings(self, name: str) -> dict[str, str]:
        """Create a queue. Returns the settings of a process that uses it."""
        made = self.client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})
        return {
            "COUNTERSEAL_SQS_QUEUE_URL": made["QueueUrl"],
            "COUNTERSEAL_AWS_ENDPOINT_URL": self.url,
            "COUNTERSEAL_AWS_REGION": REGION,
            **_KEYS,
        }


@asynccontextmanager
async def queues(folder: Path) -> AsyncIterator[Queues]:
    """Start the server, and stop it at the end."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (folder / "moto.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port),
            stdout=log, stderr=log, env=clean_environment(),
        )  # fmt: skip
    try:
        await _answers(process, port)
        url = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "sqs",
            endpoint_url=url,
            region_name=REGION,
            aws_access_key_id="benchmark",
            aws_secret_access_key="benchmark",
        )
        yield Queues(url, client, process.pid)
        client.close()
    finally:
        await end_process(process)


async def _answers(process: asyncio.subprocess.Process, port: int) -> None:
    async with asyncio.timeout(START_SECONDS):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            writer.close()
            return
    raise RuntimeError("moto's server ended early")
