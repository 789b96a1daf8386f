"""One PostgreSQL data folder and its server; who uses it, and for how long, is ``embedded_postgres``'s concern.

Below its root::

    cluster/data, cluster/password   made in one piece: built under ``init-*`` and renamed when complete
    alive.lock                       held by every process of the server, inherited from whoever started it
    port, server.log

If ``alive.lock`` is free, no process of the server is left, and a stale ``postmaster.pid`` may be removed. We never
trust a process id: another process may have it by now.

The server listens on 127.0.0.1 alone, asks for a password (SCRAM-SHA-256) and opens no Unix socket, because a socket's
path must fit in 107 bytes. Its port stays the same unless another program takes it. If we are root, the server runs as
``nobody`` (see ``postgres_programs``). ``nobody`` may have no access to the parents of the data folder; so the server
gets the data folder as its working folder, which needs no such access.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from app import file_locks
from app.postgres_programs import MAJOR_VERSION, Account, find_programs
from core.errors import ConfigurationError

DATABASE = "counterseal"
REMEDY = "Set COUNTERSEAL_DATABASE_URL to a PostgreSQL of yours, or remove the cause and start again."
_PATIENCE = 60.0  # seconds; recovery after a crash is the longest wait, and the log of a small cluster is short
_LOG_LIMIT = 10_000_000  # bytes, after which the log is set aside at the next start
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "jit": "off",  # our statements are short: compiling one costs more than running it
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# For databases that are thrown away; their password need not withstand a guess, and each connection is quicker.
_RELAXED = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "scram_iterations": "1"}


class Cluster:
    """The data folder below ``root``. Callers must never run ``launch`` and ``stop`` at the same time."""

    def __init__(self, root: Path, *, durable: bool) -> None:
        self._root = root
        self._data = root / "cluster" / "data"
        self._relaxed = {} if durable else _RELAXED
        self.log = root / "server.log"
        self._account = Account.of_server()

    def dsn(self) -> str:
        """The DSN to connect with, once the server answers."""
        password = (self._root / "cluster" / "password").read_text(encoding="ascii")
        return f"postgresql://postgres:{password}@127.0.0.1:{self._port()}/{DATABASE}"

    def answers(self) -> bool:
        """True if the server accepts connections; waits while it starts up or shuts down."""
        if not file_locks.wait_until(lambda: not self.is_alive() or self._is_ready(), _PATIENCE):
            raise self._failure("PostgreSQL is there but does not answer")
        return self.is_alive()

    def launch(self) -> None:
        """Start the server. Precondition: none of its processes is left. Creates the data folder if it is missing."""
        alive = file_locks.try_lock(self._root / "alive.lock")
        if alive is None:
            raise self._failure("PostgreSQL is there but does not answer")
        try:
            if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
                self.log.replace(self._root / "server.log.old")
            self._initialize()
            (self._data / "postmaster.pid").unlink(missing_ok=True)
            settings = " ".join(f"-c {name}='{value}'" for name, value in (_SETTINGS | self._relaxed).items())
            for _ in range(5):
                port = self._port()
                if not _is_free(port):  # never chosen, or taken by another program since
                    port = free_port()
                    write_private(self._root / "port", str(port))
                if self._pg_ctl("start", f"--options=-p {port} {settings}", keep=alive) == 0:
                    return
                if _is_free(port):  # then the start failed for another reason than the port
                    break
            raise self._failure("PostgreSQL did not start")
        finally:
            os.close(alive)

    def stop(self) -> None:
        """Stop the server, if there is one, and wait until none of its processes is left."""
        if self.is_alive():
            self._pg_ctl("stop", "--mode=fast")
            if not file_locks.wait_until(lambda: not self.is_alive(), _PATIENCE):
                raise self._failure("PostgreSQL did not stop")

    def is_alive(self) -> bool:
        """True if any process of the server is left, even a dying one."""
        return file_locks.is_held(self._root / "alive.lock")

    def _is_ready(self) -> bool:
        probe = [str(self._programs / "pg_isready"), "--host=127.0.0.1", f"--port={self._port()}", "--quiet"]
        return Account().run(probe) == 0

    def _initialize(self) -> None:
        """Create the data folder and the database unless they exist. Only a complete one is renamed to its final name.

        A crash leaves an ``init-*`` folder, which the next call removes.
        """
        if self._data.exists():
            found = (self._data / "PG_VERSION").read_text(encoding="ascii").strip()
            if found != MAJOR_VERSION:
                raise ConfigurationError(
                    f"{self._data} was made by PostgreSQL {found}, and this is {MAJOR_VERSION}.",
                    remedy="Dump it with the version that made it, or move it away to begin anew.",
                )
            return
        for leftover in self._root.glob("init-*"):
            shutil.rmtree(leftover)
        staging = Path(tempfile.mkdtemp(prefix="init-", dir=self._root))
        data, password = staging / "data", staging / "password"
        data.mkdir(mode=0o700)
        write_private(password, secrets.token_urlsafe(24))
        self._account.own(staging, data, password)
        here = self._name_of(data)
        options = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={here}/../password", "--encoding=UTF8"]
        options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        options += [f"--set={name}={value}" for name, value in self._relaxed.items()]
        options += ["--no-sync"] if self._relaxed else []
        create = f'echo "CREATE DATABASE {DATABASE}" | "$0" --single -D "$1" -c exit_on_error=true postgres'
        for step in (
            [str(self._programs / "initdb"), f"--pgdata={here}", *options],
            ["/bin/sh", "-c", create, str(self._programs / "postgres"), here],
        ):
            if self._run_logged(step, cwd=data) != 0:
                raise self._failure("PostgreSQL could not make its data folder")
        staging.rename(self._root / "cluster")

    def _name_of(self, data: Path) -> str:
        """A path of the data folder that the account can open: /proc/self/cwd, because it is the working folder."""
        in_place = self._account.uid is not None and Path("/proc/self/cwd").exists()
        return "/proc/self/cwd" if in_place else str(data)

    def _pg_ctl(self, action: str, *options: str, keep: int | None = None) -> int:
        command = [str(self._programs / "pg_ctl"), action, f"--pgdata={self._name_of(self._data)}", "--wait"]
        return self._run_logged([*command, f"--timeout={_PATIENCE:.0f}", *options], cwd=self._data, keep=keep)

    def _run_logged(self, command: list[str], *, cwd: Path, keep: int | None = None) -> int:
        with open_private(self.log) as log:
            return self._account.run(command, cwd=cwd, output=log.fileno(), keep=keep)

    @cached_property
    def _programs(self) -> Path:
        return find_programs(self._root, self._account)

    def _port(self) -> int:
        """The port last used, or 0."""
        with suppress(OSError, ValueError):
            return int((self._root / "port").read_text(encoding="ascii"))
        return 0

    def _failure(self, what: str) -> ConfigurationError:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return ConfigurationError("\n".join([f"{what}. The end of {self.log}:", *lines[-15:]]), remedy=f"\n{REMEDY}")


def _is_free(port: int) -> bool:
    if not 0 < port < 65536:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port of this machine that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def open_private(path: Path) -> BinaryIO:
    """Open a file for appending, and let only its owner read it, whatever its mode was."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.fchmod(handle, 0o600)
    return os.fdopen(handle, "ab")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically."""
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(text, encoding="ascii")
    draft.replace(path)
