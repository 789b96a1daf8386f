"""The HTTP server: uvicorn as one task among others. It handles no signals; its socket is bound before it starts."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import structlog
import uvicorn
from starlette.types import ASGIApp

from app.http.connections import GuardedConfig, Limits
from core.errors import ConfigurationError

log = structlog.get_logger(__name__)

GRACE_SECONDS = 10
# The most connections that wait to be accepted. The system drops further ones, and their clients try again after some
# seconds. So this is large, as far as there are file descriptors: a flood of one client must leave room for others.
BACKLOG_MIN, BACKLOG_MAX = 128, 2048
# File descriptors reserved for the database, queues, files, and connections accepted before the cap is checked.
OTHER_DESCRIPTORS = 384


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to ``app.processes``, which stops all parts of the process."""
        yield


class HttpServer:
    """Listens at ``url`` once constructed; ``port`` 0 takes a free one. ``ConfigurationError`` if it cannot bind."""

    def __init__(self, application: ASGIApp, host: str, port: int, limits: Limits | None = None) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = _listening(family, host, port)
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"{host}:{port} cannot be listened on: {getattr(error, 'strerror', None) or error}.",
                remedy="Set COUNTERSEAL_PORT (0 takes a free port) or COUNTERSEAL_HOST.",
            ) from None
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}"
        config = GuardedConfig(
            application,
            _affordable(limits or Limits()),
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            # asyncio accepts at most this many connections before we check the cap; each takes a file descriptor.
            backlog=_backlog(),
        )
        self._server = _Server(config)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; requests under way are answered first."""

        async def end() -> None:
            await stop.wait()
            self._server.should_exit = True

        ending = asyncio.create_task(end())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            ending.cancel()
            self._socket.close()


def _affordable(limits: Limits) -> Limits:
    """The limits, with no more connections than the process has file descriptors for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = max(1, soft - OTHER_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or limits.connections <= room:
        return limits
    log.warning("too few file descriptors: raise `ulimit -n`", wanted=limits.connections, connections=room)
    return replace(limits, connections=room)


def _backlog() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return BACKLOG_MAX if soft == resource.RLIM_INFINITY else max(BACKLOG_MIN, min(BACKLOG_MAX, soft // 2))


def _listening(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # Name the protocol: only then asyncio turns Nagle's algorithm off, which would delay every answer by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_backlog())
    except BaseException:
        listening.close()
        raise
    return listening
