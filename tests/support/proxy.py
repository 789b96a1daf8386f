"""A TCP proxy in front of PostgreSQL that falls silent: connections stay open, bytes are taken, and nothing answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """A proxy: ``silence`` stops what goes through; ``only_old`` lets connections that are made later through again."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent = asyncio.Event()
        self.url = ""
        self.made = 0

    def silence(self, *, only_old: bool) -> None:
        self._silent.set()
        if only_old:
            self._silent = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent = self._silent
        self.made += 1
        there_reader, there_writer = await asyncio.open_connection(self._to.hostname, self._to.port)

        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    if silent.is_set():
                        continue  # it is taken, and goes nowhere
                    target.write(data)
                    await target.drain()
            target.close()

        for pair in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(carry(*pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    """A proxy in front of the server of this address; its own address is ``url``."""
    proxy = Proxy(url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[0]
    proxy.url = urlunsplit(parts._replace(netloc=f"{place}@127.0.0.1:{port}"))
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
