"""The database of an installation, by itself: what its server refuses, the logins that are made, its schema."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg
import pytest
import sqlalchemy.ext.asyncio

from app import logins, storage
from app.logins import Logins
from app.settings import load_settings
from core.db import ENGINE_ROLE, FACES_ROLE
from core.errors import ConfigurationError, CountersealError, InputError, NotFoundError, TransportError
from runtime.store import tenants

URL = "postgresql://o:p@h/d"
OFTEN = "Check COUNTERSEAL_DATABASE_URL, or the two logins' URLs; `counterseal doctor` says what is reachable."
HEAD = "0002"


class Server:
    """A database that answers as it is told, and keeps what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, revision: str | None = HEAD) -> None:
        self.revision = revision
        self.did: list[Any] = []
        self.refuses: Exception | None = None
        self.breaks: Exception | None = None
        self.closed_after = 0
        monkeypatch.setattr(asyncpg, "connect", self._connect)
        monkeypatch.setattr(storage, "_revisions", lambda: {"0001", HEAD})

    async def _connect(self, url: str, **given: Any) -> Server:
        self.did.append(("connect", url, given))
        if self.refuses is not None:
            raise self.refuses
        return self

    async def fetchval(self, sql: str, *given: Any) -> Any:
        if self.breaks is not None:
            raise self.breaks
        if "to_regclass" in sql:
            return self.revision is not None
        assert sql == "SELECT version_num FROM alembic_version"
        return self.revision

    async def execute(self, sql: str, *given: Any) -> None:
        self.did.append((sql, *given))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        self.did.append("begin")
        yield
        self.did.append("commit")

    async def close(self) -> None:
        self.did.append("close")

    def is_closed(self) -> bool:
        self.closed_after -= 1
        return self.closed_after < 0


CONNECTED = ("connect", URL, {"timeout": 10, "server_settings": {"application_name": "counterseal"}})


@pytest.mark.parametrize(
    "error", [OSError("no"), TimeoutError("no"), asyncpg.PostgresError("no"), asyncpg.InterfaceError("no")]
)
async def test_a_server_that_cannot_be_reached_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server = Server(monkeypatch)
    server.refuses = error
    with pytest.raises(TransportError) as away:
        await storage.schema_revision(URL)
    assert (away.value.message, away.value.remedy) == ("PostgreSQL cannot be reached: no.", OFTEN)
    assert server.did == [CONNECTED]
    with pytest.raises(InputError):
        await storage.schema_revision("mysql://o:p@h/d")
    assert not await storage._at_head(URL), "the next connection tells why"
    server.refuses = None
    server.breaks = ValueError("not of the server")
    with pytest.raises(ValueError, match="not of the server"):
        await storage.schema_revision(URL)
    assert server.did[-1] == "close"


ANOTHER = (
    "Keep it with the release that made it, for its evidence, and give this release an empty database "
    "(COUNTERSEAL_DATABASE_URL, or another COUNTERSEAL_HOME)."
)


@pytest.mark.parametrize(("revision", "at_head"), [(None, False), ("0001", False), (HEAD, True)])
async def test_a_schema_is_held_at_its_head_alone(
    monkeypatch: pytest.MonkeyPatch, revision: str | None, at_head: bool
) -> None:
    server = Server(monkeypatch, revision)
    kept: Any = server
    assert await storage.schema_revision(URL) == revision
    assert await storage._at_head(URL) is at_head
    assert server.did == [CONNECTED, "close"] * 2
    server.did.clear()
    if at_head:
        await storage._hold_schema(kept)
    else:
        with pytest.raises(ConfigurationError) as behind:
            await storage._hold_schema(kept)
        words = f"the database's schema is at {revision or 'nothing'}, and this release needs {HEAD}."
        assert (behind.value.message, behind.value.remedy) == (words, "Run `counterseal db upgrade`.")
    assert server.did == [(f"SELECT pg_advisory_lock_shared({storage._RUNNING_KEY})",)], "the lock comes first"


async def test_a_schema_of_another_release_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, "0999")
    kept: Any = server
    for asking in (storage.schema_revision(URL), storage._hold_schema(kept)):
        with pytest.raises(ConfigurationError) as unknown:
            await asking
        assert unknown.value.message == (
            "the database's schema is at 0999, which this release cannot carry on: another release made it."
        )
        assert unknown.value.remedy == ANOTHER
    assert not await storage._at_head(URL)


@pytest.mark.parametrize(
    ("error", "kind", "words", "remedy"),
    [
        (
            asyncpg.InsufficientPrivilegeError("no"), ConfigurationError,
            "this database user may not change the schema: no.",
            "Run `counterseal db upgrade` once as the owner of the database, who may create roles.",
        ),
        (asyncpg.PostgresError("no"), TransportError, "the schema cannot be upgraded: no.", OFTEN),
        (asyncpg.DiskFullError("no"), TransportError, "the schema cannot be upgraded: no.", OFTEN),
        (OSError("no"), TransportError, "the schema cannot be upgraded: no.", OFTEN),
        (ConfigurationError("no", remedy="Stop."), ConfigurationError, "no", "Stop."),
    ],
)  # fmt: skip
async def test_an_upgrade_that_is_refused_tells_why_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[CountersealError], words: str, remedy: str
) -> None:
    done: list[Any] = []

    @asynccontextmanager
    async def begin() -> AsyncIterator[None]:
        raise error
        yield

    async def dispose() -> None:
        done.append("disposed")

    def engine(url: Any) -> Any:
        done.append(url.render_as_string(hide_password=False))
        return SimpleNamespace(begin=begin, dispose=dispose)

    monkeypatch.setattr(sqlalchemy.ext.asyncio, "create_async_engine", engine)
    with pytest.raises((CountersealError, asyncpg.PostgresError, OSError)) as refused:
        await storage.upgrade(URL)
    assert isinstance(refused.value, kind)
    assert (refused.value.message, refused.value.remedy) == (words, remedy)
    assert done == ["postgresql+asyncpg://o:p@h/d", "disposed"]


@pytest.mark.parametrize("renew", [False, True])
async def test_logins_are_made_in_one_transaction_that_keeps_them_first(
    monkeypatch: pytest.MonkeyPatch, renew: bool
) -> None:
    server, made = Server(monkeypatch), Logins("f", "e", URL)

    async def make(connection: Any, which: Logins, *, renew: bool) -> None:
        assert connection is server
        server.did.append((which, renew))

    monkeypatch.setattr(logins, "make", make)
    await storage.make_logins(URL, made, renew=renew, keep=lambda: server.did.append("kept"))
    lock = ("SELECT pg_advisory_xact_lock($1)", storage._LOCK_KEY)
    assert server.did == [CONNECTED, "begin", lock, (made, renew), "kept", "commit", "close"]

    async def refuse(*_: Any, **__: Any) -> None:
        raise asyncpg.InsufficientPrivilegeError("no")

    monkeypatch.setattr(logins, "make", refuse)
    server.did.clear()
    with pytest.raises(ConfigurationError) as refused:
        await storage.make_logins(URL, made)
    assert str(refused.value) == (
        "this database user may not make logins: no. "
        "Give `counterseal db setup` the address of the database's owner, who may create roles."
    )
    assert server.did == [CONNECTED, "begin", lock, "close"], "nothing is committed"


@pytest.mark.parametrize("error", [OSError("away"), asyncpg.InterfaceError("away"), asyncpg.PostgresError("away")])
async def test_the_schema_is_held_again_whenever_the_connection_is_lost(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server, stop = Server(monkeypatch), asyncio.Event()
    rests: list[float] = []

    async def rest(event: asyncio.Event, seconds: float) -> None:
        assert event is stop
        rests.append(seconds)
        server.refuses = error if len(rests) == 4 else None
        if len(rests) == 8:
            stop.set()

    monkeypatch.setattr(storage, "rest", rest)
    server.closed_after = 2
    held = (f"SELECT pg_advisory_lock_shared({storage._RUNNING_KEY})",)
    settings = load_settings(faces_database_url=URL)
    await storage.keep_schema(settings, stop)
    assert server.did[:3] == [CONNECTED, held, "close"]
    assert server.did.count(held) >= 2, "it was taken again"
    assert {*rests} == {storage.WATCH_SECONDS}
    stop.clear()
    server.revision = "0001"
    with pytest.raises(ConfigurationError, match="this release needs"):
        await storage.keep_schema(settings, stop)


@pytest.mark.parametrize("engine", [None, "postgresql://e:p@h/d"])
async def test_others_are_named_only_to_whoever_operates_the_installation(
    monkeypatch: pytest.MonkeyPatch, engine: str | None
) -> None:
    opened: list[Any] = []

    class Database:
        def __init__(self, url: str, role: str, *, connections: int = 1) -> None:
            self._of = (url, role, connections)

        async def __aenter__(self) -> Database:
            opened.append(self._of)
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

        @asynccontextmanager
        async def transaction(self, tenant: str = "") -> AsyncIterator[tuple[str, str]]:
            yield (self._of[1], tenant)

    async def exists(connection: tuple[str, str], name: str) -> bool:
        assert connection == (FACES_ROLE, name)
        return name != "acmee"

    async def names(connection: tuple[str, str]) -> list[str]:
        assert connection == (ENGINE_ROLE, "")
        return ["other", "acme"]

    monkeypatch.setattr(storage, "Database", Database)
    monkeypatch.setattr(tenants, "exists", exists)
    monkeypatch.setattr(tenants, "names", names)
    faces: Any = Database("f", FACES_ROLE)
    found = Logins("f", engine)
    await storage.require_tenants(faces, found, ["acme", "other"])
    assert opened == []
    with pytest.raises(NotFoundError) as lacking:
        await storage.require_tenants(faces, found, ["acme", "acmee", "other"])
    near = "" if engine is None else "Did you mean 'acme'? "
    assert lacking.value.message == "There is no tenant 'acmee'."
    assert lacking.value.remedy == f"{near}`counterseal tenant create acmee` creates it."
    assert opened == ([] if engine is None else [(engine, ENGINE_ROLE, 1)])


async def test_the_engine_s_login_is_checked_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    Server(monkeypatch)

    async def check(connection: Any, kind: str) -> None:
        checked.append(kind)

    monkeypatch.setattr(logins, "check", check)
    assert await storage.engine_of(Logins("f", None, "o")) == "f"
    assert checked == []
    assert await storage.engine_of(Logins("f", URL, "o")) == URL
    assert checked == ["engine"]


@pytest.mark.parametrize("revision", [HEAD, "0001", None])
@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("migrates", [False, True])
async def test_only_an_owner_prepares_a_database_and_only_one_that_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, revision: str | None, owned: bool, migrates: bool
) -> None:
    server, done = Server(monkeypatch, revision), list[Any]()
    found = Logins(URL, None, "postgresql://owner:p@h/d" if owned else None)

    @asynccontextmanager
    async def given(settings: Any) -> AsyncIterator[Logins]:
        yield found

    async def prepare(owner: str, which: Logins, *, migrates: bool) -> None:
        done.append((owner, which, migrates))
        server.revision = HEAD

    async def check(connection: Any, kind: str) -> None:
        done.append(kind)

    monkeypatch.setattr(storage, "server", given)
    monkeypatch.setattr(storage, "_prepare", prepare)
    monkeypatch.setattr(logins, "check", check)
    settings = load_settings(faces_database_url=URL, auto_migrate=migrates)
    prepares = owned and revision != HEAD
    if prepares or revision == HEAD:
        async with storage.ready_database(settings) as ready:
            assert ready is found
            assert server.did[-1] == (f"SELECT pg_advisory_lock_shared({storage._RUNNING_KEY})",), "and holds it"
        assert server.did[-1] == "close"
    else:
        with pytest.raises(ConfigurationError, match="this release needs"):
            async with storage.ready_database(settings):
                raise AssertionError
    assert done == [*([(found.owner, found, migrates)] if prepares else []), "faces"]


SPECIAL = "postgresql://us%40er:p%2Fw@h:1,i:2/the%20d?sslmode=require"


def test_a_slash_in_a_name_is_no_part_of_the_address() -> None:
    made, drawn = logins.of_owner("postgresql://a%2Fb:p%2Fw@h/d"), logins.drawn("postgresql://o:p@h/a%2Fb")
    assert made.faces == f"postgresql://a%2Fb_faces:{_hmac('faces')}@h/d"
    assert drawn.faces.startswith("postgresql://a%2Fb_faces:")
    assert drawn.of_engine.startswith("postgresql://a%2Fb_engine:")
    assert drawn.faces.endswith("@h/a%2Fb")


def _hmac(kind: str) -> str:
    return hmac.new(b"p/w", f"counterseal {kind}".encode(), hashlib.sha256).hexdigest()


def test_logins_are_named_after_the_owner_or_the_database_and_keep_the_place() -> None:
    made = logins.of_owner(SPECIAL)
    place = "h:1,i:2/the%20d?sslmode=require"
    assert made == Logins(
        f"postgresql://us%40er_faces:{_hmac('faces')}@{place}",
        f"postgresql://us%40er_engine:{_hmac('engine')}@{place}",
        SPECIAL,
    )
    assert (made.of_engine, logins.of_owner(SPECIAL)) == (made.engine, made), "the same each time"
    one, two = logins.drawn(SPECIAL), logins.drawn(SPECIAL)
    for url, kind in ((one.faces, "faces"), (one.of_engine, "engine")):
        parts = urlsplit(url)
        assert (unquote(parts.username or ""), len(parts.password or "")) == (f"the d_{kind}", 32)
        assert url == f"postgresql://the%20d_{kind}:{parts.password}@{place}"
    words = [urlsplit(url).password for url in (one.faces, one.of_engine, two.faces, two.of_engine)]
    assert len({*words}) == 4
    assert one.owner == SPECIAL


@pytest.mark.parametrize("url", ["postgresql://o@h/d", "postgresql://o:@h/d", "postgresql://h/d"])
def test_an_owner_without_a_password_makes_no_logins(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        logins.of_owner(url)
    assert str(refused.value) == (
        "COUNTERSEAL_DATABASE_URL has no password, so none can be made for the two logins. "
        "Run `counterseal db setup`, and set what it prints."
    )


def test_a_process_of_faces_alone_has_no_login_of_the_engine() -> None:
    with pytest.raises(ConfigurationError) as refused:
        assert Logins("f", None).of_engine
    assert str(refused.value) == (
        "COUNTERSEAL_ENGINE_DATABASE_URL is not set, and this needs the engine's login. "
        "`counterseal db setup` makes it; `serve` does without."
    )


def test_the_lines_of_an_environment_file_are_quoted_for_a_shell() -> None:
    made = Logins("postgresql://f:a%27b@h/d?x=1&y=2", "postgresql://e:p@h/d", URL)
    assert logins.settings_of(made) == {
        "faces": "COUNTERSEAL_FACES_DATABASE_URL='postgresql://f:a%27b@h/d?x=1&y=2'\n",
        "engine": "COUNTERSEAL_ENGINE_DATABASE_URL=postgresql://e:p@h/d\n",
    }


def test_a_verifier_proves_its_password_alone_and_has_a_salt_of_its_own() -> None:
    texts = [logins._verifier("word") for _ in range(2)]
    assert texts[0] != texts[1]
    for text in texts:
        method, rounds, keys = text.split("$")
        count, salt = rounds.split(":")
        assert (method, count, len(base64.b64decode(salt))) == ("SCRAM-SHA-256", "4096", 16)
        salted = hashlib.pbkdf2_hmac("sha256", b"word", base64.b64decode(salt), 4096)
        client, server = (hmac.new(salted, f"{side} Key".encode(), hashlib.sha256) for side in ("Client", "Server"))
        proofs = (hashlib.sha256(client.digest()).digest(), server.digest())
        assert keys == ":".join(base64.b64encode(proof).decode() for proof in proofs)


@pytest.mark.parametrize("there", [[], ["engine"], ["faces"], ["engine", "faces"]])
@pytest.mark.parametrize("renew", [False, True])
async def test_a_login_that_is_there_is_changed_only_on_purpose(there: list[str], renew: bool) -> None:
    made, done = logins.of_owner(SPECIAL), list[Any]()

    class Owner:
        async def fetch(self, sql: str, names: list[str]) -> list[str]:
            return [name for name in names if name.removeprefix("us@er_") in there]

        async def fetchval(self, sql: str, name: str, verifier: str, role: str) -> str:
            assert verifier.startswith("SCRAM-SHA-256$4096:")
            done.append((name, role))
            return f"make {name}"

        async def execute(self, sql: str) -> None:
            done.append(sql)

    owner: Any = Owner()
    all_of_them = [("us@er_faces", FACES_ROLE), "make us@er_faces", ("us@er_engine", ENGINE_ROLE), "make us@er_engine"]
    if renew or not there:
        await logins.make(owner, made, renew=renew)
        assert done == all_of_them
        return
    first = "faces" if "faces" in there else "engine"
    with pytest.raises(ConfigurationError) as refused:
        await logins.make(owner, made, renew=renew)
    assert str(refused.value) == (
        f"there is a login us@er_{first} already. "
        "`counterseal db setup --renew` gives both new passwords; then change the settings."
    )
    assert done == (all_of_them[:2] if first == "engine" else [])


def test_revisions_are_told_by_the_names_of_their_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("0001_a_b.py", "0010_c.py", "0009_d.py", "notes.py", "0011.py", "x_0012_e.py", "0013_f.txt"):
        (tmp_path / name).touch()
    monkeypatch.setattr(storage, "_VERSIONS", tmp_path)
    assert (storage._revisions(), storage.head_revision()) == ({"0001", "0009", "0010"}, "0010")
