"""The cold start of a new user: `counterseal demo --auto` in a fresh folder, until the first card is in Slack."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.children import ROOT, clean_environment, end_process
from benchmarks.figures import Figure, at_most, median, plain, spread_of
from benchmarks.stage import Stage

ROUNDS = 3
LIMIT_SECONDS = 120.0
LOOK_SECONDS = 0.05
# The demo prints the address of its Slack; the address ends with the channel of the cards.
SLACK = re.compile(r"Slack \(stand-in\)\s+(http://\S+)/c/(\S+)")


@dataclass(frozen=True, slots=True)
class Start:
    """The seconds until the first card, and until the end of the demo, with its evidence verified."""

    first_card: float
    end: float


async def measure(stage: Stage) -> list[Figure]:
    """Measure. Each round begins with no database, no key and no state; only the installed packages are there."""
    starts = [await start() for _ in range(stage.size(ROUNDS, 1))]
    cards, ends = [one.first_card for one in starts], [one.end for one in starts]
    return [
        at_most("first `make demo`: first card, after downloads", 15, median(cards), "s", spread=spread_of(cards)),
        plain("first `make demo`: all shown and verified", f"{median(ends):.1f} s", spread=spread_of(ends)),
    ]


async def start() -> Start:
    """Run one demo to its end. Raises RuntimeError if it fails."""
    with tempfile.TemporaryDirectory(prefix="counterseal-cold-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        await asyncio.to_thread(shutil.copytree, ROOT / "examples", folder / "examples")
        begun = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", "demo", "--auto",
            cwd=folder, env={**clean_environment(), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                url, channel = await _slack(process)
                await _first_card(url, channel)
                shown = time.perf_counter() - begun
                rest = await process.stdout.read() if process.stdout else b""
                if await process.wait():
                    raise RuntimeError(f"the demo failed: {rest.decode(errors='replace')[-2000:]}")
        finally:
            await end_process(process)
        return Start(shown, time.perf_counter() - begun)


async def _slack(process: asyncio.subprocess.Process) -> tuple[str, str]:
    assert process.stdout is not None
    said = ""
    while line := await process.stdout.readline():
        said += line.decode(errors="replace")
        if found := SLACK.search(said):
            return found[1], found[2]
    raise RuntimeError(f"the demo ended before it said where its Slack is: {said[-2000:]}")


async def _first_card(url: str, channel: str) -> None:
    """Poll the channel as its page does, until a message is there."""
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            answer = await client.get(f"{url}/_sandbox/messages", params={"channel": channel})
            if answer.json()["messages"]:
                return
            await asyncio.sleep(LOOK_SECONDS)
