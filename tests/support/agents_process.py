"""One turn of an agent in a process of its own: it may be killed in it, or resume what another process has left.

python -m tests.support.agents_process STAGE ACT URL FOLDER KILL
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.support.agents_gate import Books
from tests.support.agents_stage import FAST, PAY, How, die

ROOT = Path(__file__).resolve().parents[2]


def run(stage: str, act: str, how: How, kill: str = "") -> int:
    """Do this in another process; return its exit code."""
    begun = _begin(stage, act, how, kill)
    try:
        return begun.wait(timeout=110)
    finally:
        _end_others(begun)


def interrupted(stage: str, how: How, kill: str, books: Books, fact: Callable[[], bool]) -> None:
    """Begin a turn in another process, and end it as Ctrl-C does, or else by force, once the fact holds."""
    begun = _begin(stage, "turn", how, kill)
    books.until(fact)
    begun.send_signal(signal.SIGINT)
    try:
        begun.wait(timeout=10)
    except subprocess.TimeoutExpired:
        begun.kill()
        begun.wait()
    finally:
        _end_others(begun)


def _end_others(begun: subprocess.Popen[bytes]) -> None:
    """End what the process has started and left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(begun.pid, signal.SIGKILL)


def _begin(stage: str, act: str, how: How, kill: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.agents_process", stage, act, how.url, str(how.effects.parent), kill]
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'packages' / 'agents'}", "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=nowhere, stderr=nowhere, start_new_session=True)


def main(stage: str, act: str, url: str, folder: str, kill: str) -> None:
    """The turn."""
    terms = replace(FAST, timeout=5.0, wait=20.0 if kill == "wait" else 0.0, pause=0.05)
    how = How(url, Path(folder) / "effects", terms=terms, state=Path(folder) / "state")
    bodies: dict[str, Callable[[], Any]] = {"body": die, "hang": threading.Event().wait}
    if kill in bodies:
        how.body = bodies[kill]
    elif kill != "wait":
        how.kill = kill
    room = import_module(f"tests.support.agents_{stage}")
    if act == "turn":
        room.turn(how, [PAY])
    else:
        getattr(room, act)(how, PAY)


if __name__ == "__main__":
    main(*sys.argv[1:])
