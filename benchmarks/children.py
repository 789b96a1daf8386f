"""Child processes that a measurement starts, queries and stops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import documents as texts
from benchmarks.world import World

ROOT = Path(__file__).parents[1]
START_SECONDS = 60.0
STOP_SECONDS = 20.0
LINE_BYTES_MAX = 16 * 1024 * 1024
SIGNING_SECRET = "benchmark-signing-secret"
SLACK_TOKEN = "xoxb-benchmark"


@dataclass(frozen=True, slots=True)
class Child:
    """One process. ``said`` is its first line, parsed."""

    process: asyncio.subprocess.Process
    said: dict[str, Any]
    log: Path

    async def ask(self) -> dict[str, float]:
        """Ask a child for its resource use so far: see ``benchmarks.process``."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()
        answer: dict[str, float] = await _line(self.process, self.log)
        return answer


def environment(world: World, **more: str) -> dict[str, str]:
    """The settings of a process on this world's database, without the developer's own settings."""
    definitions = world.folder / "definitions"
    (definitions / "operations").mkdir(parents=True, exist_ok=True)
    (definitions / "operations" / "bench.yaml").write_text(texts.OPERATIONS, encoding="utf-8")
    return {
        **clean_environment(),
        "COUNTERSEAL_HOME": str(world.folder / "home"),
        "COUNTERSEAL_DATABASE_URL": world.url,
        "COUNTERSEAL_DEFINITIONS_DIR": str(definitions),
        "COUNTERSEAL_TENANT": texts.TENANT,
        "COUNTERSEAL_PORT": "0",
        "COUNTERSEAL_SLACK_BOT_TOKEN": SLACK_TOKEN,
        "COUNTERSEAL_SLACK_SIGNING_SECRET": SIGNING_SECRET,
        "COUNTERSEAL_SLACK_CHANNEL": "C0BENCH",
        # Nobody listens at this address: most measurements do not call Slack.
        "COUNTERSEAL_SLACK_API_URL": "http://127.0.0.1:9/api/",
        **more,
    }


def clean_environment() -> dict[str, str]:
    """The environment without settings of Counterseal."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSEAL_")}


@asynccontextmanager
async def child(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path, *, folder: Path = ROOT
) -> AsyncIterator[Child]:
    """Start ``python ARGUMENTS`` and wait for its first line, a JSON object; stop it at the end."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            env={**environment, "PYTHONPATH": str(ROOT)},
            cwd=folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=LINE_BYTES_MAX,
        )
    try:
        async with asyncio.timeout(START_SECONDS):
            said = await _line(process, log)
        yield Child(process, said, log)
    finally:
        await end_process(process)


@asynccontextmanager
async def working(world: World, concurrency: int) -> AsyncIterator[Child]:
    """One worker in a process of its own, as `counterseal work` is."""
    settings = environment(world, COUNTERSEAL_WORKER_CONCURRENCY=str(concurrency))
    async with child(["-m", "benchmarks.process", "work"], settings, world.folder / "work.log") as worker:
        yield worker


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, and SIGKILL if the process does not stop."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process, log: Path) -> Any:
    assert process.stdout is not None
    line = await process.stdout.readline()
    try:
        return json.loads(line)
    except ValueError:
        end = (await asyncio.to_thread(log.read_text, encoding="utf-8", errors="replace"))[-2000:]
        raise RuntimeError(f"a process ended early, or said {line!r}; its log ends with:\n{end}") from None
