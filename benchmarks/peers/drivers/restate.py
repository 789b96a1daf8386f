"""Restate: a server that journals what handlers do and calls them over HTTP/2. https://docs.restate.dev

The server is one process on this machine, with its data in a temporary folder; by default it syncs to disk before it
acknowledges. It does not use PostgreSQL, so it ignores ``--url`` and PostgreSQL's commit delay.
Hypercorn with uvloop serves the handlers, as in Restate's documentation, with its settings for production: HTTP/2
without a limit on streams.
"""

# These imports exist only in this driver's own environment, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import hypercorn
import restate
from hypercorn.asyncio import serve

from benchmarks.peers.drivers.harness import ASK_AFTER, EFFECTS, Decision, Effects, Order, main, release_of
from benchmarks.peers.drivers.light_http import Lines, connected

NODE = "n"  # short, like the folder's name: the path of a Unix socket must fit in 104 bytes
SERVICE = "Bench"
LOG = "server.log"
UNLIMITED = 2**31 - 1
PATIENCE_SECONDS = 60.0
SETTINGS = {
    "RESTATE_NODE_NAME": NODE,
    "RESTATE_LISTEN_MODE": "unix",
    "RESTATE_DISABLE_TELEMETRY": "true",
    "RESTATE_LOG_FILTER": "warn",
    "RESTATE_LOG_DISABLE_ANSI_CODES": "true",
    # Two per processor: the default of 24 is for a cluster, and reduced this workload's throughput by about a quarter.
    "RESTATE_DEFAULT_NUM_PARTITIONS": str(2 * (os.cpu_count() or 2)),
}


class Restate:
    """A driver's view of Restate."""

    configuration = (
        "one server process (Rust) reached over a Unix socket, two partitions per processor, fsync on; handlers and "
        "driver in one Python process with uvloop, Hypercorn, HTTP/2; not on PostgreSQL"
    )

    def __init__(self, server: str) -> None:
        self.release = f"{release_of('restate-sdk')}, {server}"
        self.effects = Effects()
        self.ingress: Lines | None = None
        self.service = restate.Service(SERVICE)
        self.decisions: dict[int, Decision] = {}
        for workflow in EFFECTS:
            self.service.handler(workflow)(self.handler(workflow))

    def handler(self, workflow: str) -> Any:
        """The handler of a workflow."""

        async def effect() -> dict[str, int]:
            return self.effects.perform()

        async def handler(context: restate.Context, number: int) -> bool:
            for place in range(EFFECTS[workflow]):
                if workflow == "w1" and place == ASK_AFTER:
                    name, decided = context.awakeable()
                    self.decisions[number].ask(name)
                    await decided
                await context.run_typed(f"effect-{place}", effect)
            return True

        return handler

    async def run(self, workflow: str, number: int) -> float:
        assert self.ingress is not None
        decision = self.decisions[number] = Decision()
        ended = asyncio.create_task(self.ingress.post(f"/{SERVICE}/{workflow}", str(number).encode()))
        if workflow == "w1":
            name = await decision.asked
            decision.give()
            await self.vote(name)
            await self.ingress.post(f"/restate/awakeables/{name}/resolve", b'{"approved": true}')
        if await ended != b"true":
            raise RuntimeError(f"run {number} did not end well")
        return decision.taken()

    async def vote(self, name: str) -> None:
        """Record the decision before the run is told of it. Restate alone keeps none but what it is told."""


Served = TypeVar("Served", bound=Restate)


async def _version(program: Path) -> str:
    """The name and version that the server reports."""
    process = await asyncio.create_subprocess_exec(program, "--version", stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return " ".join(said.decode().split()[:2])


class Server:
    """The server's process, and the folder of its data, sockets and log."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self.admin = folder / NODE / "admin.sock"
        self.ingress = folder / NODE / "ingress.sock"
        self._log = folder / LOG

    async def learn(self, uri: str) -> None:
        """Register the handlers, and wait until the server accepts them."""
        body = json.dumps({"uri": uri}).encode()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if self.process.returncode is not None:
                    raise RuntimeError(f"restate-server ended: {self._log.read_text(errors='replace')[-300:]}")
                try:
                    async with connected(self.admin) as lines:
                        await lines.post("/deployments", body)
                    return
                except (OSError, RuntimeError, asyncio.IncompleteReadError):
                    await asyncio.sleep(0.1)  # it is starting, or has no leader for its partitions yet


@asynccontextmanager
async def _server(program: Path) -> AsyncIterator[Server]:
    """Run the server in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / LOG).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                program, f"--base-dir={folder}", "--no-logo", env=os.environ | SETTINGS, stdout=log, stderr=log
            )
        try:
            yield Server(process, folder)
        finally:
            if process.returncode is None:
                process.kill()  # its data is thrown away with the folder
            await process.wait()


@asynccontextmanager
async def _endpoint(app: Any) -> AsyncIterator[str]:
    """Run Hypercorn in this process on a free port; yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = hypercorn.Config()
    config.bind = [f"fd://{os.dup(listener.fileno())}"]
    config.h2_max_concurrent_streams = UNLIMITED
    config.keep_alive_max_requests = UNLIMITED
    config.keep_alive_timeout = UNLIMITED
    config.loglevel = "ERROR"
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        listener.close()


@asynccontextmanager
async def serving(order: Order, make: Callable[[str], Served]) -> AsyncIterator[Served]:
    """Start the server and the handlers of an engine made of the server's version; register them with the server."""
    if order.server is None:
        raise RuntimeError("Restate needs --server, the path of restate-server")
    engine = make(await _version(order.server))
    async with _server(order.server) as server, _endpoint(restate.app([engine.service])) as uri:
        await server.learn(uri)
        async with connected(server.ingress) as engine.ingress:
            yield engine


@asynccontextmanager
async def started(order: Order) -> AsyncIterator[Restate]:
    """Start Restate alone."""
    async with serving(order, Restate) as engine:
        yield engine


if __name__ == "__main__":
    main(started)
