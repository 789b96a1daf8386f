"""A real PostgreSQL of our own, for an installation that configures none, shared by all its processes.

Everything lives under one folder (by default ``.counterseal/postgres``): what ``postgres_cluster`` lists, and::

    server.lock    held while the server is started or stopped, so that only one process does so at a time
    users.lock     held shared by each process that uses the server: free if nobody uses it
    guardian.lock  held by the guardian: a small process that stops the server when its last user is gone

The kernel drops a lock when its holder dies. So a killed user no longer counts. If all users were killed, the guardian
stops the server. If the guardian was killed as well, the next user finds the server running and joins it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import ConfigurationError

if sys.platform != "win32":
    from app import file_locks
    from app.postgres_cluster import REMEDY, Cluster, open_private


class EmbeddedPostgres:
    """The server below ``root``. Its methods block: call them by ``asyncio.to_thread``.

    ``durable=False`` trades safety against power loss for speed; for tests that throw their data away.
    """

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        if sys.platform == "win32":
            remedy = "Set COUNTERSEAL_DATABASE_URL to a PostgreSQL of yours, or use WSL."
            raise ConfigurationError("The embedded PostgreSQL needs Linux or macOS.", remedy=remedy)
        self._root = root.expanduser().resolve()
        self._cluster = Cluster(self._root, durable=durable)
        self._use: int | None = None

    def start(self) -> str:
        """Start the server, or join the one that runs; returns its DSN. May be called again at any time.

        Raises ConfigurationError, with the end of the server's log, if the server does not start.
        """
        with self._explained():
            self._root.mkdir(parents=True, exist_ok=True)
            self._root.chmod(0o700)
            with file_locks.held(self._root / "server.lock"):
                joins = self._use is None
                if self._use is None:
                    self._use = file_locks.lock(self._root / "users.lock", shared=True)
                try:
                    self._keep_guardian()
                    if not self._cluster.answers():
                        self._cluster.launch()
                    return self._cluster.dsn()
                except BaseException:
                    if joins:
                        self._leave()
                    raise

    def ensure_running(self) -> str | None:
        """Start the server again if none of its processes is left and return its DSN; None if it is still running.

        PostgreSQL recovers everything that was committed. Concurrent callers start the server only once.
        """
        with self._explained(), file_locks.held(self._root / "server.lock"):
            # Check only under server.lock: the check takes alive.lock for an instant, and could disturb a start.
            alive = self._cluster.is_alive()
        return None if alive else self.start()

    def stop(self) -> None:
        """Stop using the server; its last user stops it. Does nothing if it was not started."""
        if self._use is None:
            return
        with self._explained(), file_locks.held(self._root / "server.lock"):
            self._leave()
            self._stop_if_unused()

    def guard(self, guardian_lock: int) -> None:
        """Run the guardian: wait until nobody uses the server, stop it, and release ``guardian_lock``."""
        while True:
            os.close(file_locks.lock(self._root / "users.lock"))
            with file_locks.held(self._root / "server.lock"):
                if self._stop_if_unused():
                    # Release it before server.lock: the next process to start the server has to find the guardian gone.
                    os.close(guardian_lock)
                    return

    def _keep_guardian(self) -> None:
        """Start a guardian unless there is one. It inherits guardian.lock, so it holds it from its first instant."""
        from app import environments  # the guardian imports this module, and needs no settings

        guardian_lock = file_locks.try_lock(self._root / "guardian.lock")
        if guardian_lock is None:
            return
        found = [str(Path(entry).resolve()) for entry in sys.path]
        command = [sys.executable, "-P", "-m", "app.embedded_postgres", str(self._root), str(guardian_lock)]
        try:
            with open_private(self._cluster.log) as log:
                # The shell exits at once, so the guardian is not our child and outlives us.
                subprocess.run(
                    ["/bin/sh", "-c", '"$@" &', "sh", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(guardian_lock,),
                    cwd="/",
                    env=environments.plain(os.environ) | {"PYTHONPATH": os.pathsep.join(found)},
                    start_new_session=True,
                    check=True,
                )
        finally:
            os.close(guardian_lock)

    def _leave(self) -> None:
        if self._use is not None:
            os.close(self._use)
            self._use = None

    def _stop_if_unused(self) -> bool:
        """Stop the server if nobody uses it; True if so. The caller holds server.lock."""
        users = self._root / "users.lock"
        alone = file_locks.try_lock(users)
        if alone is None:
            # The guardian may hold users.lock, but only briefly: then it waits for server.lock, which we hold.
            os.close(file_locks.lock(users, shared=True))
            alone = file_locks.try_lock(users)
        if alone is None:
            return False
        try:
            self._cluster.stop()
        finally:
            os.close(alone)
        return True

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an error of the operating system into a ``ConfigurationError`` with a remedy."""
        try:
            yield
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigurationError(
                f"The embedded PostgreSQL in {self._root} cannot be used: {error}.", remedy=REMEDY
            ) from error


if __name__ == "__main__":
    EmbeddedPostgres(Path(sys.argv[1])).guard(int(sys.argv[2]))
