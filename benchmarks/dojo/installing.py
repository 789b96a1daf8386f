"""Installs AgentDojo into its own environment, below build, which git ignores and `make clean` removes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parents[1] / "build" / "dojo"
REQUIREMENTS = HERE / "requirements-agentdojo.txt"
PATIENCE_SECONDS = 1200


class UnavailableError(Exception):
    """AgentDojo cannot be installed here; the text says why."""


def python() -> Path:
    """The interpreter with AgentDojo, which is installed first if needed. Raises UnavailableError."""
    stamp, pins = ENVIRONMENT / "stamp", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    found = ENVIRONMENT / "bin" / "python"
    if not stamp.exists() or stamp.read_text(encoding="ascii") != pins:
        print("Installing AgentDojo into build/dojo (once; 290 MB, some minutes) ...", flush=True)
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
        _run([str(found), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)])
        stamp.write_text(pins, encoding="ascii")
    return found


def _run(command: list[str]) -> None:
    what = " ".join(command[1:4])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{what}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UnavailableError(f"{what}: {said[-1] if said else f'exit code {done.returncode}'}")
