"""Runs one driver in its own process, with a time limit, and kills everything that it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import ROOT, Environment

PATIENCE_SECONDS = 180.0
FAREWELL_SECONDS = 15.0
# No other variable is passed on: some engines would read settings from them, or send traces.
_HANDED_ON = ("PATH", "HOME", "LANG", "LC_ALL")


class DriverError(Exception):
    """A driver failed or took too long; the text is its last output."""


async def run_driver(
    environment: Environment,
    module: str,
    arguments: Sequence[str],
    scratch: Path,
    *,
    patience: float = PATIENCE_SECONDS,
    farewell: float = FAREWELL_SECONDS,
) -> dict[str, Any]:
    """Run a driver and return its result. ``scratch`` is for its temporary files. Raises DriverError."""
    command = [str(environment.python), "-m", module, *arguments]
    if environment.server is not None:
        command += ["--server", str(environment.server)]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={name: os.environ[name] for name in _HANDED_ON if name in os.environ} | {"TMPDIR": str(scratch)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(patience):
            said, complained = await process.communicate()
    except TimeoutError:
        raise DriverError(f"gave up after {patience:g} s") from None
    finally:
        await _end(process, farewell)
    if process.returncode:
        raise DriverError(_last_line(complained)[:300] or f"exit code {process.returncode}")
    try:
        found: dict[str, Any] = json.loads(_last_line(said))
    except ValueError:
        raise DriverError("it printed no result") from None
    return found


async def _end(process: asyncio.subprocess.Process, farewell: float) -> None:
    """End the driver and everything that it started: SIGINT lets it clean up, then its whole session is killed."""
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(farewell):
                await process.communicate()
        except TimeoutError:
            pass  # it had its time
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing is left, as it should be
    await process.wait()


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
