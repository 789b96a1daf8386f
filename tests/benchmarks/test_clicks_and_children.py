"""The load of clicks: sent when due, counted as answered, and every one of them checked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks import clicks
from benchmarks.children import child, working
from benchmarks.clicker import click
from benchmarks.figures import Verdict
from benchmarks.stage import Stage
from benchmarks.timed import Load, machine


@pytest.fixture
async def answering() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers in turns: well, with an error, and by closing the line in the middle of the answer."""
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                writer.close()
                return
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")
            )
            bodies.append(await reader.readexactly(length))
            match len(bodies) % 3:
                case 1:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                case 2:
                    writer.write(b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\nConnection: close\r\n\r\n")
                case _:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nhalf")
                    writer.close()
                    return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"http://{host}:{port}", bodies
    server.close()
    await server.wait_closed()


async def test_every_answer_is_counted_as_what_it_was(answering: tuple[str, list[bytes]]) -> None:
    url, bodies = answering
    found = await click(
        url, [{"approval": f"a{number}", "nonce": "n", "channel": "C1", "ts": "1.0"} for number in range(6)], 20
    )
    assert found["statuses"] == [200, 500, 0, 200, 500, 0]
    assert all(f"a{number}".encode() in bodies[number] for number in range(6))
    assert found["connections"] == 4  # each but those that were closed is used again


@pytest.mark.skipif(os.name != "posix", reason="the embedded PostgreSQL needs Linux or macOS")
async def test_clicks_decide_once_each(postgres_url: str, tmp_path: Path) -> None:
    half, last, _, checked, drawn = await clicks.measure(Stage(postgres_url, tmp_path, quick=True))
    assert checked.verdict is Verdict.WITHIN, checked.measured
    assert checked.measured == "50; 0"
    assert drawn.measured == "50; 2", "each card says that it is decided, though Slack has asked for fewer requests"
    assert float(half.numbers["value"]) <= float(last.numbers["value"])


async def test_a_process_that_ends_early_says_why(tmp_path: Path) -> None:
    code = "import sys; sys.exit('the reason')"
    with pytest.raises(RuntimeError, match="the reason"):
        async with child(["-c", code], {}, tmp_path / "log"):
            pytest.fail("it never said that it was ready")


async def test_a_process_is_asked_and_ended(tmp_path: Path) -> None:
    code = "import sys\nprint('{}', flush=True)\nfor line in sys.stdin: print('{\"transactions\": 3}', flush=True)"
    async with child(["-c", code], {}, tmp_path / "log") as one:
        assert await one.ask() == {"transactions": 3}
    assert one.process.returncode is not None


@pytest.mark.skipif(os.name != "posix", reason="the embedded PostgreSQL needs Linux or macOS")
async def test_a_workers_process_does_what_the_benchmark_measures(postgres_url: str, tmp_path: Path) -> None:
    stage = Stage(postgres_url, tmp_path, quick=True)
    async with stage.world() as world, working(world, 4), machine(world, concurrency=0) as running:
        await Load(world, running, "w1").run(2)
        # It counts those that succeeded: one that failed before its writes would be cheap, and look like speed.
        assert await world.finished() == 2
