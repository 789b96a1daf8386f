"""A peer's driver runs in a process of its own: what it says, how it fails, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import fcntl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.peers import environments
from benchmarks.peers.drivers.harness import Decision, Effects, Order, measure
from benchmarks.peers.drivers.light_http import Lines, connected
from benchmarks.peers.driving import DriverError, run_driver
from benchmarks.peers.engines import Spec
from benchmarks.peers.environments import Environment, UnavailableError

LINGERS = """
import fcntl, os, signal
lock = open(os.environ["TMPDIR"] + "/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
os.fork()
signal.signal(signal.SIGINT, lambda *_: open(os.environ["TMPDIR"] + "/asked", "w").close())
open(os.environ["TMPDIR"] + "/ready", "w").close()
while True:
    signal.pause()
"""


def interpreter(folder: Path, body: str) -> Environment:
    """A program that does this whatever it is asked."""
    program = folder / "python"
    program.write_text(f"#!{sys.executable}\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    return Environment(program)


async def test_the_last_line_is_the_result(tmp_path: Path) -> None:
    said = interpreter(
        tmp_path, "import sys; print('hello'); print('{\"runs\": 3}'); print('a warning', file=sys.stderr)"
    )
    assert await run_driver(said, "any", ["--url=x"], tmp_path) == {"runs": 3}


async def test_a_driver_is_told_nothing_but_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    told = interpreter(
        tmp_path, "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('LANGSMITH_TRACING')]))"
    )
    served = Environment(told.python, Path("/server"))
    assert await run_driver(served, "a.module", ["--runs=1"], tmp_path) == [
        ["-m", "a.module", "--runs=1", "--server", "/server"],
        None,
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise RuntimeError('no such table')", "RuntimeError: no such table"),
        ("raise SystemExit(3)", "exit code 3"),
        ("print('all is well')", "it printed no result"),
        ("", "it printed no result"),
    ],
)
async def test_a_driver_that_fails_says_why(tmp_path: Path, body: str, reason: str) -> None:
    with pytest.raises(DriverError, match=reason):
        await run_driver(interpreter(tmp_path, body), "any", [], tmp_path)


async def test_a_driver_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=r"gave up after 0\.5 s"):
        await run_driver(interpreter(tmp_path, LINGERS), "any", [], tmp_path, patience=0.5, farewell=0.1)
    await nobody_holds(tmp_path / "lock")


async def test_a_driver_is_asked_and_then_ended_with_all_that_it_started(tmp_path: Path) -> None:
    driving = asyncio.create_task(run_driver(interpreter(tmp_path, LINGERS), "any", [], tmp_path, farewell=3))
    while not (tmp_path / "ready").exists():  # noqa: ASYNC110  the fact is another process's
        await asyncio.sleep(0.02)
    driving.cancel()
    await asyncio.wait({driving})
    await nobody_holds(tmp_path / "lock")
    assert (tmp_path / "asked").exists()


async def nobody_holds(path: Path) -> None:
    """The driver and its child hold this one while they live: who has it knows that both are gone."""
    with path.open("a") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)


def test_what_cannot_be_installed_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements-odd.txt").write_text("odd==1\n", encoding="ascii")
    (tmp_path / "peers").write_text("no folder", encoding="ascii")
    monkeypatch.setattr(environments, "HERE", tmp_path)
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "peers")
    with pytest.raises(UnavailableError, match=r"-m venv .*: .*Not a directory"):
        environments.prepare(Spec("odd", "Odd", "odd"))


class FakeEngine:
    """An engine in memory. ``lost`` is a run whose last effect it forgets."""

    release = "fake 1"
    configuration = "none"

    def __init__(self, lost: int | None = None) -> None:
        self.effects = Effects()
        self.under_way = self.most = 0
        self._lost = lost

    async def run(self, workflow: str, number: int) -> float:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        for _ in range({"w1": 4, "w2": 10}[workflow] - (number == self._lost)):
            self.effects.perform()
        self.under_way -= 1
        return 2.0

    @asynccontextmanager
    async def started(self, _: Order) -> AsyncIterator[FakeEngine]:
        yield self


def order(workload: str) -> Order:
    return Order("x", workload, runs=20, in_flight=5, warm_up=3, server=None)


async def test_a_load_keeps_so_many_runs_in_flight() -> None:
    engine = FakeEngine()
    found = await measure(engine.started, order("w2"))
    assert engine.most == 5
    assert engine.effects.count == 230
    assert found["steps_per_second"] == pytest.approx(10 * float(str(found["runs_per_second"])))


async def test_latency_is_measured_one_at_a_time() -> None:
    engine = FakeEngine()
    found = await measure(engine.started, order("latency"))
    assert engine.most == 1
    assert (found["p50_ms"], found["p99_ms"]) == (2.0, 2.0)


async def test_an_engine_that_loses_an_effect_has_no_figure() -> None:
    with pytest.raises(RuntimeError, match="79 effects were performed where 80 were asked for"):
        await measure(FakeEngine(lost=10).started, order("w1"))


async def test_a_decision_is_asked_for_once_and_timed_from_when_it_is_given() -> None:
    decision = Decision()
    assert decision.taken() == 0
    decision.ask("first")
    decision.ask("replayed")
    assert await decision.asked == "first"
    decision.give()
    assert decision.taken() > 0


async def test_the_light_client_reads_both_kinds_of_answer(tmp_path: Path) -> None:
    answers = {
        b"/long": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue",
        b"/chunked": b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ntr\r\n2\r\nue\r\n0\r\n\r\n",
        b"/empty": b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
        b"/wrong": b"HTTP/1.1 404 Not Found\r\ncontent-length: 7\r\n\r\nnowhere",
    }
    connections, over = 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while head := await reader.read(4096):
            assert head.endswith(b"\r\ncontent-length: 2\r\n\r\n{}")
            writer.write(answers[head.split(b" ")[1]])
        writer.close()
        await writer.wait_closed()
        over.set()

    async def ask(lines: Lines) -> None:
        assert [await lines.post(path, b"{}") for path in ("/long", "/chunked", "/empty")] == [b"true", b"true", b""]
        with pytest.raises(RuntimeError, match=r"/wrong answered http/1.1 404 not found: nowhere"):
            await lines.post("/wrong", b"{}")

    server = await asyncio.start_unix_server(answer, tmp_path / "s")
    async with server:
        async with connected(tmp_path / "s") as lines:
            await ask(lines)
        await over.wait()
    assert connections == 1
