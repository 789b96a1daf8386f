"""The users of an embedded server and its guardian, by themselves: who starts it, who stops it, what is left locked.

The server is stood in for; the locks are real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from app import embedded_postgres, file_locks
from app.embedded_postgres import EmbeddedPostgres
from app.postgres_cluster import REMEDY
from core.errors import ConfigurationError
from tests.app.test_lower_parts import Cluster


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for a server that is stood in for, with a guardian in place."""
    monkeypatch.setattr(embedded_postgres, "Cluster", Cluster)
    monkeypatch.setattr(EmbeddedPostgres, "_keep_guardian", lambda self: None)
    return tmp_path / "postgres"


def stand_in(server: EmbeddedPostgres) -> Any:
    """The stand-in for its cluster."""
    return server._cluster


@pytest.mark.parametrize("durable", [True, False])
def test_a_server_lives_in_one_folder_however_that_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, durable: bool
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(embedded_postgres, "Cluster", lambda root, *, durable: made.append((root, durable)))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for given in ("~/real", f"{tmp_path}/link", f"{tmp_path}/real/../real"):
        assert EmbeddedPostgres(Path(given), durable=durable)._root == tmp_path / "real"
    assert made == [(tmp_path / "real", durable)] * 3
    EmbeddedPostgres(tmp_path)
    assert made[3] == (tmp_path, True)
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigurationError) as refused:
        EmbeddedPostgres(tmp_path)
    assert refused.value.message == "The embedded PostgreSQL needs Linux or macOS."
    assert refused.value.remedy == "Set COUNTERSEAL_DATABASE_URL to a PostgreSQL of yours, or use WSL."


@pytest.mark.parametrize("verb", ["start", "stop", "ensure_running"])
def test_nobody_else_starts_or_stops_the_server_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    server, alone = EmbeddedPostgres(root), list[bool]()
    if verb != "start":
        server.start()
    stand_in(server).alive = verb == "stop"

    def noted(name: str) -> Any:
        was = getattr(stand_in(server), name)

        def done(*given: Any) -> Any:
            alone.append(file_locks.is_held(root / "server.lock"))
            return was(*given)

        return done

    for name in ("launch", "stop"):
        monkeypatch.setattr(stand_in(server), name, noted(name))
    getattr(server, verb)()
    assert alone == [True]
    if verb != "stop":
        server.stop()


@pytest.mark.parametrize(
    "error",
    [OSError("no room"), PermissionError("no room"), subprocess.SubprocessError("no room")],
)
@pytest.mark.parametrize(
    ("verb", "looks"), [("start", False), ("stop", False), ("ensure_running", False), ("ensure_running", True)]
)
def test_whatever_the_system_refuses_is_told_with_a_remedy_and_leaves_nothing_locked(
    root: Path, error: Exception, verb: str, looks: bool
) -> None:
    server = EmbeddedPostgres(root)
    server.start()
    stand_in(server).alive = verb == "stop"

    def refuse(*_: Any) -> None:
        raise error

    for name in ("launch", "stop", "dsn", *(["is_alive"] if looks else [])):
        setattr(stand_in(server), name, refuse)
    files = psutil.Process().num_fds()
    with pytest.raises(ConfigurationError) as refused:
        getattr(server, verb)()
    assert refused.value.message == f"The embedded PostgreSQL in {root} cannot be used: no room."
    assert refused.value.remedy == REMEDY
    assert not file_locks.is_held(root / "server.lock")
    # Whoever had joined stays a user, unless it has left.
    assert file_locks.is_held(root / "users.lock") is (verb != "stop")
    assert psutil.Process().num_fds() == files - (verb == "stop")


@pytest.mark.parametrize("error", [OSError("no"), ConfigurationError("no"), KeyboardInterrupt()])
def test_whoever_could_not_join_is_no_user(root: Path, error: BaseException) -> None:
    server = EmbeddedPostgres(root)

    def refuse() -> None:
        raise error

    stand_in(server).answers = refuse
    for _ in range(2):
        with pytest.raises((ConfigurationError, KeyboardInterrupt)):
            server.start()
        assert not file_locks.is_held(root / "users.lock")
    server.stop()
    assert stand_in(server).done == [], "it uses none"


def test_a_server_is_used_once_however_often_it_is_started(root: Path) -> None:
    server = EmbeddedPostgres(root)
    assert server.start() == "dsn"
    files = psutil.Process().num_fds()
    assert server.start() == "dsn"
    assert psutil.Process().num_fds() == files
    assert stand_in(server).done == ["launch"]
    server.stop()
    assert not file_locks.is_held(root / "users.lock")
    assert server.start() == "dsn"
    assert stand_in(server).done == ["launch", "stop", "launch"]
    server.stop()


def test_only_whoever_holds_the_lock_of_the_server_looks_whether_it_lives(root: Path) -> None:
    server = EmbeddedPostgres(root)
    server.start()
    held: list[bool] = []

    def is_alive() -> bool:
        held.append(file_locks.is_held(root / "server.lock"))
        return True

    stand_in(server).is_alive = is_alive
    assert server.ensure_running() is None
    assert held == [True]
    assert not file_locks.is_held(root / "server.lock")
    server.stop()


def test_a_server_stops_with_its_last_user_and_not_while_another_uses_it(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """The guardian looks as well, for a moment; it counts for no user."""
    server = EmbeddedPostgres(root)
    server.start()
    users = root / "users.lock"
    other = file_locks.lock(users, shared=True)
    server.stop()
    assert stand_in(server).done == ["launch"]
    os.close(other)
    looks = file_locks.lock(users)
    lock, waited = file_locks.lock, list[Any]()

    def wait(path: Path, **how: Any) -> int:
        if how.get("wait", True):
            waited.append((path, how))
            os.close(looks)
        return lock(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(file_locks, "lock", wait)
        assert server._stop_if_unused()
    assert waited == [(users, {"shared": True})]
    assert stand_in(server).done == ["launch", "stop"]
    assert not file_locks.is_held(users)


def test_a_guardian_waits_for_the_last_user_and_is_gone_before_another_starts(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    root.mkdir()
    guardian = file_locks.lock(root / "guardian.lock")
    server, told = EmbeddedPostgres(root), list[Any]()
    unused = iter([False, True])

    def stop_if_unused(self: EmbeddedPostgres) -> bool:
        told.append([file_locks.is_held(root / f"{name}.lock") for name in ("users", "server", "guardian")])
        return next(unused)

    close = os.close

    def closing(handle: int) -> None:
        if handle == guardian:
            told.append(("leaves", file_locks.is_held(root / "server.lock")))
        close(handle)

    monkeypatch.setattr(EmbeddedPostgres, "_stop_if_unused", stop_if_unused)
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", closing)
        server.guard(guardian)
    assert told == [[False, True, True], [False, True, True], ("leaves", True)]
    assert not file_locks.is_held(root / "guardian.lock")
    assert not file_locks.is_held(root / "server.lock")


@pytest.mark.parametrize("error", [None, OSError("no shell"), subprocess.CalledProcessError(1, "sh")])
def test_a_guardian_is_started_once_with_its_lock_and_our_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception | None
) -> None:
    server, ran = EmbeddedPostgres(tmp_path), list[Any]()

    def run(command: list[str], **given: Any) -> None:
        (handle,) = given["pass_fds"]
        logs = [os.path.samestat(os.fstat(given[name].fileno()), server._cluster.log.stat()) for name in outs]
        env = given.pop("env")
        ran.append((command, {name: value for name, value in given.items() if name not in outs}))
        assert (env["OF_OURS"], env["PYTHONPATH"]) == ("kept", os.pathsep.join([str(tmp_path), "/opt/lib"]))
        assert file_locks.is_held(tmp_path / "guardian.lock")
        assert logs == [True, True]
        assert command[-1] == str(handle)
        if error is not None:
            raise error

    outs = ("stdout", "stderr")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("OF_OURS", "kept")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/opt/lib"])
    server._cluster.log.write_text("first\n")
    files = psutil.Process().num_fds()
    if error is None:
        server._keep_guardian()
    else:
        with pytest.raises(type(error)):
            server._keep_guardian()
    assert psutil.Process().num_fds() == files
    assert not file_locks.is_held(tmp_path / "guardian.lock")
    assert server._cluster.log.read_text() == "first\n"
    command, given = ran[0]
    started = ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-P", "-m", "app.embedded_postgres", str(tmp_path)]
    assert command[:-1] == started
    (handle,) = given.pop("pass_fds")
    assert isinstance(handle, int)
    assert given == {"stdin": subprocess.DEVNULL, "cwd": "/", "start_new_session": True, "check": True}
    with file_locks.held(tmp_path / "guardian.lock"):
        server._keep_guardian()
    assert len(ran) == 1, "there is one already"
