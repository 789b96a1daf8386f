"""Server for one stand-in on loopback, in the caller's event loop. Lets faults reset a connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

RESET_EXTENSION: Final = "sandbox.reset"
_TICK_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 2


class _ResettableProtocol(HttpToolsProtocol):
    """Puts a ``reset()`` into each request's scope: ASGI itself has no message for a broken connection."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        transport = self.transport

        def reset() -> None:
            raw = transport.get_extra_info("socket")
            # With linger 0, closing sends an RST, as on a broken connection.
            if raw is not None and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()

        self.scope["extensions"] = {**(self.scope.get("extensions") or {}), RESET_EXTENSION: {"reset": reset}}


class _Server(uvicorn.Server):
    """A uvicorn server that handles no signals, announces when it is ready, and stops at once on request."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        counter = 0
        while not self.stopping.is_set() and not await self.on_tick(counter):
            counter = (counter + 1) % 864_000
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), _TICK_SECONDS)


class LoopbackServer:
    """A server: ``async with LoopbackServer(app, port) as server: server.url``. Port 0 takes a free one."""

    def __init__(self, app: ASGIApp, *, port: int = 0, host: str = "127.0.0.1") -> None:
        self._app = app
        self._host = host
        # Name the protocol: only then does asyncio set TCP_NODELAY, without which every answer takes 40 ms.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, port))
        self._socket.listen(128)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{host}:{self.port}"
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        config = uvicorn.Config(
            self._app,
            http=_ResettableProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name=f"sandbox:{self.port}")
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait({ready, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():  # the server has ended before it was ready: raise its error
            ready.cancel()
            await self._task

    async def stop(self) -> None:
        if self._server is None or self._task is None:
            self._socket.close()
            return
        self._server.stopping.set()
        self._server.should_exit = True
        await self._task

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
