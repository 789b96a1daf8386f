"""Parts below the faces, by themselves: how commands end, how programs are run, how servers are bounded and joined."""

from __future__ import annotations

import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
import structlog

from app import embedded_postgres, own_database
from app.cli.outcome import explained
from app.embedded_postgres import EmbeddedPostgres
from app.http import server
from app.http.connections import Limits
from app.logins import Logins
from app.logs import HIDDEN, hide_secrets
from app.postgres_programs import Account
from app.settings import load_settings
from connectors.sql.statements import IDENTITY
from core.errors import (
    AuthorizationError,
    ConfigurationError,
    ConsistencyError,
    CountersealError,
    InputError,
    NotFoundError,
    TransportError,
)

INPUT, GONE, AWAY = InputError("is wrong", where="x", remedy="Mend it."), NotFoundError("no"), TransportError("away")
ENDS: list[tuple[BaseException, int | None, str]] = [
    (INPUT, 2, "x: is wrong. Mend it.\n"),
    (ConfigurationError("unset"), 3, "unset\n"),
    (GONE, 4, "no\n"),
    (ConsistencyError("moved"), 4, "moved\n"),
    (AuthorizationError("may not"), 4, "may not\n"),
    (AWAY, 5, "away\n"),
    (CountersealError("strange"), 1, "strange\n"),
    (ExceptionGroup("g", [AWAY, INPUT]), 5, "away\ncounterseal: x: is wrong. Mend it.\n"),
    (ExceptionGroup("g", [INPUT, ExceptionGroup("h", [GONE])]), 2, "x: is wrong. Mend it.\ncounterseal: no\n"),
    (ExceptionGroup("g", [AWAY, GONE, INPUT]), 5, "away\ncounterseal: no\ncounterseal: x: is wrong. Mend it.\n"),
    (ExceptionGroup("g", [INPUT, ValueError("ours")]), None, ""),
    (ExceptionGroup("g", [ValueError("ours")]), None, ""),
    (ValueError("ours"), None, ""),
    (KeyboardInterrupt(), None, ""),
    (asyncpg.PostgresError("a\nb"), 5, "the database failed: a\n"),
    (asyncpg.InterfaceError(""), 5, "the database failed: InterfaceError\n"),
]


@pytest.mark.parametrize(("error", "code", "words"), ENDS)
def test_an_error_ends_a_command_with_its_code_and_words(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int | None, words: str
) -> None:
    with pytest.raises(BaseException) as ended, explained():
        raise error
    if code is None:
        assert ended.value is error
        assert capsys.readouterr().err == ""
    else:
        assert isinstance(ended.value, SystemExit)
        assert (ended.value.code, capsys.readouterr().err) == (code, f"counterseal: {words}")


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        *((name, True) for name in ("secret", "Token", "bot_token", "PASSWORD", "Authorization", "x-api_key")),
        *((name, True) for name in ("signature", "set-cookie", "private_key", "client_secret")),
        *((name, False) for name in ("event", "run", "key", "keys", "passed", "sign")),
    ],
)
def test_members_that_say_secret_are_hidden(name: str, hidden: bool) -> None:
    assert hide_secrets(None, "", {name: "x", "run": "r1"})[name] == (
        HIDDEN if hidden else "r1" if name == "run" else "x"
    )


@pytest.mark.parametrize(
    ("soft", "wanted", "taken"),
    [
        (server.resource.RLIM_INFINITY, 65535, 65535),
        (server.OTHER_DESCRIPTORS + 512, 512, 512),
        (server.OTHER_DESCRIPTORS + 511, 512, 511),
        (server.OTHER_DESCRIPTORS + 512, 511, 511),
        (server.OTHER_DESCRIPTORS + 1, 512, 1),
        (server.OTHER_DESCRIPTORS, 512, 1),
        (64, 512, 1),
    ],
)
def test_no_more_connections_are_taken_than_there_are_descriptors(
    monkeypatch: pytest.MonkeyPatch, soft: int, wanted: int, taken: int
) -> None:
    monkeypatch.setattr(server.resource, "getrlimit", lambda _: (soft, soft))
    limits = Limits(1, 2, 3, 4, connections=wanted)
    with structlog.testing.capture_logs() as captured:
        assert server._affordable(limits) == Limits(1, 2, 3, 4, connections=taken)
    told = [(line["wanted"], line["connections"]) for line in captured]
    assert told == ([(wanted, taken)] if taken < wanted else [])


@pytest.mark.parametrize(
    ("logins", "asked"),
    [
        (Logins("postgresql://f:p@h/d", "postgresql://e:p@h/d", "postgresql://o:p@h/d"), "postgresql://e:p@h/d"),
        (Logins("postgresql://f:p@h/d", None, "postgresql://o:p@h/d"), "postgresql://f:p@h/d"),
    ],
)
async def test_our_own_database_is_asked_who_it_is_by_the_engine_or_else_the_faces(
    monkeypatch: pytest.MonkeyPatch, logins: Logins, asked: str
) -> None:
    said: list[Any] = []

    @asynccontextmanager
    async def server_of(_: Any) -> Any:
        yield logins

    class Connection:
        async def fetchval(self, sql: str) -> int:
            said.append(sql)
            return 42

        async def close(self) -> None:
            said.append("closed")

    async def connect(url: str, timeout: int) -> Connection:
        said.append((url, timeout))
        return Connection()

    monkeypatch.setattr(own_database.storage, "server", server_of)
    monkeypatch.setattr(asyncpg, "connect", connect)
    assert await own_database.identity(load_settings()) == "42"
    assert said == [(asked, 10), IDENTITY, "closed"]

    for error in (OSError("gone"), asyncpg.PostgresError("gone"), asyncpg.InterfaceError("gone")):

        async def refuse(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        for place, name in ((asyncpg, "connect"), (Connection, "fetchval")):
            with monkeypatch.context() as patch:
                patch.setattr(place, name, refuse)
                said.clear()
                with pytest.raises(TransportError, match="cannot be told from the one to write to: gone"):
                    await own_database.identity(load_settings())
                assert said[1:] == ([] if place is asyncpg else ["closed"])


@pytest.mark.parametrize(("account", "groups"), [(Account(), None), (Account(65534, 65533), [])])
def test_a_program_gets_nothing_of_ours_but_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, account: Account, groups: Any
) -> None:
    ran: list[Any] = []

    def run(command: list[str], **given: Any) -> Any:
        ran.append((command, given))
        return SimpleNamespace(returncode=7)

    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    monkeypatch.setenv("PGOPTIONS", "-c x=1")
    monkeypatch.setattr(subprocess, "run", run)
    assert account.run(["a", "b"]) == account.run(["c"], cwd=tmp_path, output=5, keep=6) == 7
    plain = {
        "stdin": subprocess.DEVNULL,
        "user": account.uid,
        "group": account.gid,
        "extra_groups": groups,
        "env": {"PATH": "/bin:/usr/bin", "LC_ALL": "C"},
        "timeout": 120.0,
        "check": False,
    }
    quiet = {"cwd": None, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "pass_fds": ()}
    loud = {"cwd": tmp_path, "stdout": 5, "stderr": 5, "pass_fds": (6,)}
    assert ran == [(["a", "b"], {**plain, **quiet}), (["c"], {**plain, **loud})]


class Cluster:
    """A server that answers, or that cannot be started."""

    def __init__(self, root: Path, *, durable: bool) -> None:
        self.log = root / "server.log"
        self.done: list[str] = []
        self.broken = False
        self.alive = False

    def answers(self) -> bool:
        return self.alive

    def is_alive(self) -> bool:
        return self.alive

    def launch(self) -> None:
        self.done.append("launch")
        if self.broken:
            raise ConfigurationError("it does not start")
        self.alive = True

    def stop(self) -> None:
        self.done.append("stop")
        self.alive = False

    def dsn(self) -> str:
        return "dsn"


def test_whoever_has_joined_a_server_stays_its_user_until_it_leaves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded_postgres, "Cluster", Cluster)
    monkeypatch.setattr(EmbeddedPostgres, "_keep_guardian", lambda self: None)
    one, two = EmbeddedPostgres(tmp_path), EmbeddedPostgres(tmp_path)
    first: Any = one._cluster
    two._cluster = first
    assert one.start() == one.start() == two.start() == "dsn"
    assert one.ensure_running() is None
    first.alive, first.broken = False, True
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="it does not start"):
            one.ensure_running()
    two.stop()
    assert first.done == ["launch"] * 3, "the other has failed to start it, and uses it still"
    first.broken = False
    assert one.ensure_running() == "dsn"
    assert first.done == ["launch"] * 4
    one.stop()
    one.stop()
    assert first.done == [*["launch"] * 4, "stop"]
    third = EmbeddedPostgres(tmp_path)
    third._cluster = first
    first.broken = True
    with pytest.raises(ConfigurationError, match="it does not start"):
        third.start()
    third.stop()
    assert first.done == [*["launch"] * 4, "stop", "launch"], "it had never joined"
