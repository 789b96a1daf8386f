"""A light HTTP/1.1 client over a Unix socket: the cost of a general client would count against Restate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path


class Line:
    """One connection that is kept alive. One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def post(self, path: str, body: bytes) -> bytes:
        """Send JSON, return the answer's body. Raises RuntimeError for an answer that is not 2xx."""
        head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        self._writer.write(head.encode() + b"\r\n\r\n" + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:] if line)
        if fields.get(b"transfer-encoding") == b"chunked":
            answer = await self._chunks()
        else:
            answer = await self._reader.readexactly(int(fields.get(b"content-length", b"0")))
        if not lines[0].startswith(b"http/1.1 2"):
            raise RuntimeError(f"{path} answered {lines[0].decode()}: {answer.decode(errors='replace')[:300]}")
        return answer

    async def _chunks(self) -> bytes:
        found = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            found += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)
        return found


class Lines:
    """A pool of connections, as many as there are concurrent requests."""

    def __init__(self, socket: Path, stack: AsyncExitStack) -> None:
        self._socket = socket
        self._stack = stack
        self._free: list[Line] = []

    async def post(self, path: str, body: bytes) -> bytes:
        """Post like ``Line.post``, on a free connection."""
        line = self._free.pop() if self._free else await self._open()
        answer = await line.post(path, body)
        self._free.append(line)
        return answer

    async def _open(self) -> Line:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        self._stack.callback(writer.close)
        return Line(reader, writer)


@asynccontextmanager
async def connected(socket: Path) -> AsyncIterator[Lines]:
    """A pool of connections to a server that listens on this Unix socket."""
    async with AsyncExitStack() as stack:
        yield Lines(socket, stack)
