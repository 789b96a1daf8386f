"""The interpreter of the comparison: the fastest CPython on the machine, the same for every engine in Python.

The build of an interpreter accounts for 10 to 25 % of an engine's speed. Distributions build with profile-guided
optimisation but do not say so in their configuration. So we measure: each interpreter does the same work, and the one
with the least processor time is chosen.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NAMES = ("python3.11", "python3.12", "python3.13", "python3.14", "python3")
_ABOUT = """
import ensurepip, json, platform, sys, sysconfig, time, venv
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def work():
    begun, found = time.process_time(), {}
    fib(20)
    for n in range(50000):
        found[n % 997] = found.get(n % 997, 0) + n
    json.dumps([{"a": n, "b": [n] * 3} for n in range(5000)])
    return time.process_time() - begun
said = f"{sysconfig.get_config_var('CONFIG_ARGS')} {sysconfig.get_config_var('PY_CFLAGS')}"
level = next((flag for flag in reversed(said.replace("'", " ").split()) if flag.startswith("-O")), "none")
print(json.dumps({
    "path": sys.executable, "version": platform.python_version(), "cpython": platform.python_implementation(),
    "optimised": "--enable-optimizations" in said, "level": level, "system": sys.base_prefix in ("/usr", "/usr/local"),
    "seconds": min(work() for _ in range(5)),
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A CPython. ``seconds`` is its processor time for a fixed piece of work."""

    path: Path
    version: str
    optimised: bool
    level: str
    system: bool
    seconds: float

    @property
    def words(self) -> str:
        """The version and, as far as known, the build of the interpreter."""
        built = "built with --enable-optimizations" if self.optimised else "not built with --enable-optimizations"
        if self.system and not self.optimised:
            built = "the system's, which does not say whether it was built with --enable-optimizations"
        return f"CPython {self.version} ({built}; {self.level}; {1000 * self.seconds:.0f} ms for a fixed piece of work)"


def examine(program: str) -> Interpreter | None:
    """Ask an interpreter about itself; None if it is no CPython of 3.11 or newer that can make environments."""
    try:
        done = subprocess.run([program, "-I", "-c", _ABOUT], capture_output=True, text=True, timeout=60, check=True)
        said = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    is_cpython, version = said.pop("cpython") == "CPython", tuple(map(int, said["version"].split(".")[:2]))
    return Interpreter(**{**said, "path": Path(said["path"])}) if is_cpython and version >= (3, 11) else None


def own() -> Interpreter:
    """The interpreter of this process."""
    found = examine(sys.executable)
    assert found is not None
    return found


@cache
def best() -> Interpreter:
    """The fastest interpreter found, or this process's own unless another is at least 5 % faster.

    It has the same minor version as this process, because the engines are pinned for that version.
    """
    minor = ".".join(map(str, sys.version_info[:2]))
    programs = {
        str(Path(path).resolve()) for name in _NAMES for path in (shutil.which(name), f"/usr/bin/{name}") if path
    }
    found = [one for one in map(examine, sorted(programs)) if one is not None and one.version.startswith(f"{minor}.")]
    mine = own()
    fastest = min([mine, *found], key=lambda one: one.seconds)
    return fastest if fastest.seconds < 0.95 * mine.seconds else mine
