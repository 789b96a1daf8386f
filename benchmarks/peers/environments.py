"""A virtual environment for each engine, so that dependencies do not conflict with each other's or ours.

The environments are below .venv, which git ignores and `make clean` removes. The packages are pinned in files beside
this module; an environment is rebuilt if its pins have changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.engines import OURS, Spec
from benchmarks.peers.interpreters import best, own

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".venv" / "peers"
PATIENCE_SECONDS = 600
_SERVERS = "node_modules/@restatedev/restate-server-*/bin/restate-server"


class UnavailableError(Exception):
    """An engine cannot be installed here; the text says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of a driver: the interpreter, and the server's program if there is one."""

    python: Path
    server: Path | None = None


def prepare(spec: Spec) -> Environment:
    """The engine's environment on the best interpreter; installs it if needed. Raises UnavailableError."""
    if spec == OURS and best().path == own().path:
        return Environment(Path(sys.executable))
    folder = ENVIRONMENTS / spec.key
    stamp, pins = folder / "stamp", _pins(spec)
    if not stamp.exists() or stamp.read_text(encoding="ascii") != pins:
        shutil.rmtree(folder, ignore_errors=True)
        _install(spec, folder)
        stamp.write_text(pins, encoding="ascii")
    return Environment(folder / "bin" / "python", _server(folder) if spec.needs_server else None)


def _requirements(spec: Spec) -> Path:
    return ROOT / "requirements.txt" if spec == OURS else HERE / f"requirements-{spec.key}.txt"


def _pins(spec: Spec) -> str:
    pinned = _requirements(spec).read_bytes() + ((HERE / "package.json").read_bytes() if spec.needs_server else b"")
    return hashlib.sha256(pinned + f"{best().path} {best().version}".encode()).hexdigest()


def _install(spec: Spec, folder: Path) -> None:
    _run([str(best().path), "-m", "venv", str(folder)])
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(_requirements(spec))])
    if spec == OURS:
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--editable", str(ROOT)])
    if spec.needs_server:
        npm = shutil.which("npm")
        if npm is None:
            raise UnavailableError("its server is installed by npm, which is not here")
        shutil.copy(HERE / "package.json", folder)
        # --ignore-scripts: the only install script just reports the installation.
        _run([npm, "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"], folder)


def _server(folder: Path) -> Path:
    found = next(folder.glob(_SERVERS), None)
    if found is None:
        raise UnavailableError("npm has no server for this platform")
    return found


def _run(command: list[str], folder: Path = ROOT) -> None:
    """Run one step of the installation. If it fails, the last line of its output is the reason."""
    what = " ".join([Path(command[0]).name, *command[1:4]])
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{what}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UnavailableError(f"{what}: {said[-1] if said else f'exit code {done.returncode}'}")
