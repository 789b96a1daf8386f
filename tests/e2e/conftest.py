"""The whole product in processes of its own, against the stand-ins, on a database of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import storage
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from sandbox.slack import SlackConfig
from sandbox.world import SandboxConfig, World, sandbox_world
from tests.support.book import Run
from tests.support.books import Books
from tests.support.trouble import Trouble

WAIT_SECONDS = 60.0
WEBHOOK_SECRET = "a-webhook-secret-of-the-tests"
SIGNING_SECRET = "a-signing-secret-of-the-tests"


class Stack:
    """Starts and kills processes, and waits for facts in the database or the stand-ins."""

    def __init__(self, world: World, database_url: str, home: Path, books: Books, trouble: Trouble, port: int) -> None:
        self.world, self.home, self.port = world, home, port
        self.books = books
        self.trouble = trouble
        self.client = httpx.AsyncClient(timeout=30)
        self._processes: list[asyncio.subprocess.Process] = []
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "COUNTERSEAL_HOME": str(home / ".counterseal"),
            "COUNTERSEAL_DATABASE_URL": database_url,
            "COUNTERSEAL_PORT": str(port),
            "COUNTERSEAL_LEASE_SECONDS": "2",
            "COUNTERSEAL_SLACK_BOT_TOKEN": "xoxb-sandbox",
            "COUNTERSEAL_SLACK_SIGNING_SECRET": SIGNING_SECRET,
            "COUNTERSEAL_SLACK_API_URL": f"{world.slack.url}/api/",
            "COUNTERSEAL_SLACK_CHANNEL": "C0OPS",
            "COUNTERSEAL_SERVICENOW_URL": world.servicenow.url,
            "COUNTERSEAL_SERVICENOW_USERNAME": "counterseal.integration",
            "COUNTERSEAL_SERVICENOW_PASSWORD": "sandbox",
            "COUNTERSEAL_SERVICENOW_TRANSACTION_LIMIT_SECONDS": "1",
            "COUNTERSEAL_MODEL_URL": f"{world.model.url}/v1",
            "COUNTERSEAL_MODEL_API_KEY": "sk-sandbox",
            "COUNTERSEAL_WEBHOOKS": json.dumps({"tests": {"secret": WEBHOOK_SECRET}}),
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def spawn(self, *arguments: str, module: str = "app") -> asyncio.subprocess.Process:
        log = (self.home / f"{len(self._processes)}-{arguments[0]}.log").open("wb")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, env=self.environment, stdout=log, stderr=log, cwd=Path.cwd()
        )
        log.close()
        self._processes.append(process)
        return process

    async def run(self, *arguments: str, check: bool = True) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", *arguments, env=self.environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=Path.cwd(),
        )  # fmt: skip
        out, err = await process.communicate()
        assert not check or process.returncode == 0, err.decode()
        return out.decode()

    async def healthy(self) -> None:
        """Wait until HTTP answers; ServiceNow gives up on a webhook after a few tries."""

        async def answers() -> bool:
            try:
                return (await self.client.get(f"{self.url}/healthz")).status_code == 200
            except httpx.TransportError:
                return False

        await self.until(answers)

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        process.kill()
        await process.wait()

    async def publish_examples(self) -> None:
        await self.run("workflow", "publish", "examples/workflows/incident-triage.yaml")
        await self.run("policy", "publish", "examples/policies/it-operations.yaml")
        await self.run("directory", "publish", "examples/directory.yaml")

    async def until(self, fact: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for a fact outside of this process; there is nothing that could tell us of it."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                if found := await fact():
                    return found
                await asyncio.sleep(0.05)

    async def run_status(self, status: str, count: int = 1) -> list[Run]:
        async def reached() -> list[Run] | None:
            runs = await self.books.runs(status=status)
            return runs if len(runs) >= count else None

        found: list[Run] = await self.until(reached)
        return found

    async def close(self) -> None:
        await self.client.aclose()
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                await process.wait()


@pytest.fixture
async def database_url(database_url: str) -> str:
    """With the tenant `default`, as the first `up` leaves it."""
    async with Database(database_url, FACES_ROLE) as database:
        await storage.create_default_tenant(database)
    return database_url


@pytest.fixture
async def stack(database_url: str, tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[Stack]:
    slack = SlackConfig(
        signing_secret=SIGNING_SECRET,
        interactivity_url=f"http://127.0.0.1:{unused_tcp_port}/slack/events",
        ack_seconds=60.0,
    )
    async with AsyncExitStack() as exits:
        world = await exits.enter_async_context(sandbox_world(SandboxConfig(slack=slack)))
        world.servicenow.webhooks.url = f"http://127.0.0.1:{unused_tcp_port}/webhooks/servicenow/tests"
        world.servicenow.webhooks.secret = WEBHOOK_SECRET
        database = await exits.enter_async_context(Database(database_url, ENGINE_ROLE, connections=2))
        found = Stack(world, database_url, tmp_path, Books(database), Trouble(database), unused_tcp_port)
        exits.push_async_callback(found.close)
        yield found
