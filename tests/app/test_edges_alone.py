"""Small parts of the application, alone: every condition for itself, and on both sides of its limit."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from app import adapters, logins, postgres_cluster, storage
from app.cli import service
from app.http import connections, signed
from app.logins import Logins
from app.postgres_cluster import Cluster
from app.settings import load_settings
from core.db import ENGINE_ROLE, FACES_ROLE
from core.errors import ConfigurationError, TransportError
from evidence.s3 import Retention
from runtime.requests import publishing
from tests.app.test_storage_alone import URL, Server
from tests.support.recorded import Connected, Recorded

DIGEST = bytes(range(32))
HEX, BASE64 = DIGEST.hex(), base64.b64encode(DIGEST).decode()


@pytest.mark.req("P-9")
@pytest.mark.parametrize("prefix", ["", "p"])
@pytest.mark.parametrize(
    ("mode", "days", "kept"),
    [(None, 9, None), ("GOVERNANCE", 1, ("GOVERNANCE", 1)), ("COMPLIANCE", 9, ("COMPLIANCE", 9))],
)
def test_evidence_in_a_bucket_is_kept_as_long_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch, mode: Any, days: int, kept: Any, prefix: str
) -> None:
    monkeypatch.setattr(adapters, "_aws_client", lambda _, service: service)
    settings = load_settings(s3_bucket="b", s3_prefix=prefix, s3_object_lock_mode=mode, s3_object_lock_days=days)
    made = vars(adapters.blobs_of(settings))
    assert (made["_client"], made["_bucket"], made["_folder"]) == ("s3", "b", "p/" if prefix else "")
    assert made["_retention"] == (None if kept is None else Retention(*kept))


@pytest.mark.req("U-5")
@pytest.mark.parametrize(
    ("text", "read"),
    [
        *((before + form + after, DIGEST) for form in (HEX, HEX.upper(), BASE64)
          for before in ("", "sha256=", " sha256=") for after in ("", " ", "\t")),
        *((text, None) for text in ("sha512=" + HEX, "sha256=sha256=" + HEX, "sha256= " + HEX, "!", "=")),
        *((text, None) for text in (HEX[:30] + " " + HEX[30:], BASE64[:9] + "\n" + BASE64[9:], BASE64[:-2], "é")),
        ("", b""),
        (HEX[:-1], None),
        ("abcd", base64.b64decode("abcd")),
    ],
)  # fmt: skip
def test_a_signature_is_read_in_two_forms_and_no_other(text: str, read: bytes | None) -> None:
    assert signed._signature(text) == read


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(("durable", "relaxed"), [(True, {}), (False, postgres_cluster._RELAXED)])
def test_only_a_server_whose_data_is_thrown_away_is_relaxed(
    tmp_path: Path, durable: bool, relaxed: dict[str, str], there: bool
) -> None:
    root = tmp_path if there else tmp_path / "new"
    assert Cluster(root, durable=durable)._relaxed == relaxed


@pytest.mark.parametrize(
    "error",
    [
        OSError("away"), TimeoutError("away"), asyncpg.InterfaceError("away"), asyncpg.PostgresError("away"),
        TransportError("away"),
    ],
)  # fmt: skip
async def test_the_schema_is_held_again_after_whatever_breaks_once_connected(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server, stop, rests = Server(monkeypatch), asyncio.Event(), list[float]()
    server.breaks, server.closed_after = error, 1

    async def rest(_: asyncio.Event, seconds: float) -> None:
        rests.append(seconds)
        server.breaks = None
        if len(rests) == 3:
            stop.set()

    monkeypatch.setattr(storage, "rest", rest)
    await storage.keep_schema(load_settings(faces_database_url=URL), stop)
    held = f"SELECT pg_advisory_lock_shared({storage._RUNNING_KEY})"
    assert [done[0] for done in server.did if isinstance(done, tuple)] == ["connect", held] * 2
    assert rests == [storage.WATCH_SECONDS] * 3


@pytest.mark.parametrize("engine", [None, "postgresql://e:p@h/d"])
@pytest.mark.parametrize("owner", [None, "postgresql://o:p@h/d"])
async def test_an_address_that_is_not_set_is_not_made_of_another(engine: str | None, owner: str | None) -> None:
    settings = load_settings(faces_database_url=URL, engine_database_url=engine, database_url=owner)
    async with storage.server(settings) as found:
        assert found == Logins(URL, engine, owner)


@pytest.mark.parametrize("engine", [None, "e"])
@pytest.mark.parametrize("faces", ["f", ""])
@pytest.mark.parametrize("owner", [None, "o"])
def test_only_the_owner_of_a_database_changes_it(faces: str, engine: str | None, owner: str | None) -> None:
    if owner is not None:
        assert service._owner(Logins(faces, engine, owner)) == owner
        return
    with pytest.raises(ConfigurationError) as refused:
        service._owner(Logins(faces, engine, owner))
    assert str(refused.value) == (
        "COUNTERSEAL_DATABASE_URL is not set: only the owner of the database may change it. "
        "Set it to the owner's address for this command."
    )


async def test_the_default_tenant_is_founded_in_a_transaction_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told, database = Recorded(monkeypatch), Connected()
    told.put(publishing, ensure_tenant=True)
    founded: Any = database
    await storage.found_default_tenant(founded)
    assert told.calls == ["publishing.ensure_tenant(transaction of default, default)"]


@pytest.mark.parametrize(("kind", "role"), [("faces", FACES_ROLE), ("engine", ENGINE_ROLE)])
async def test_a_login_that_is_more_than_its_role_is_told_with_the_way_out(kind: str, role: str) -> None:
    asked: list[Any] = []
    more: str | None = None

    class Connection:
        async def fetchval(self, sql: str, *given: Any) -> str | None:
            asked.append((sql, *given))
            return more

    connection: Any = Connection()
    await logins.check(connection, kind)
    more = "a superuser"
    with pytest.raises(ConfigurationError) as refused:
        await logins.check(connection, kind)
    words = f"the database login of the {kind} is also a superuser, so nothing parts it from the rest."
    assert (refused.value.message, refused.value.remedy) == (words, "Use the logins that `counterseal db setup` makes.")
    assert asked == [(logins._MORE, role)] * 2


@pytest.mark.parametrize(
    ("url", "user"),
    [
        ("postgresql://a%2Fb:p%40w%2F@h/d", ("a/b", "p@w/")),
        ("postgresql://a@h/d", ("a", "")),
        ("postgresql://h/d", ("", "")),
    ],
)
def test_a_login_is_made_with_the_name_and_password_that_will_sign_in(url: str, user: tuple[str, str]) -> None:
    assert logins._user(url) == user


@pytest.mark.parametrize("closing", [True, False])
def test_an_answer_goes_to_the_connection_and_ends_it_politely(closing: bool) -> None:
    did: list[Any] = []
    transport = SimpleNamespace(write=did.append, is_closing=lambda: closing, close=lambda: did.append("rudely"))
    protocol: Any = SimpleNamespace(transport=transport, close_politely=lambda: did.append("politely"))
    answering = connections._Answering(protocol)
    answering.write(b"a")
    assert answering.is_closing() is closing
    answering.close()
    assert did == [b"a", "politely"]
