"""A program that uses the embedded server, to be started as a process of its own, killed, or run as another user."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_USER = """
import sys
from pathlib import Path
from app.embedded_postgres import EmbeddedPostgres

server = EmbeddedPostgres(Path(sys.argv[1]), durable=True)
print(server.start(), flush=True)
for line in sys.stdin:
    break
server.stop()
print("stopped", flush=True)
"""

User = subprocess.Popen[str]


def _interpreter_for(uid: int | None) -> str:
    """A Python that this user can run; ours may lie in a home that is closed to others."""
    if uid is None:
        return sys.executable
    for candidate in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        with suppress(OSError):
            check = [candidate, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if subprocess.run(check, cwd="/", user=uid, group=uid, extra_groups=[], check=False).returncode == 0:
                return candidate
    pytest.skip("no Python 3.11 that an ordinary user could run")


@pytest.fixture
def start_user() -> Iterator[Callable[..., User]]:
    """Start a process that uses the server below a folder: prints the DSN, waits for a line, stops using it."""
    started: list[User] = []

    def start(root: Path, *, uid: int | None = None, program: str = _USER) -> User:
        process = subprocess.Popen(
            [_interpreter_for(uid), "-P", "-c", program, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), sysconfig.get_path("purelib")])},
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()
