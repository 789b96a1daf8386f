"""Tests of the two logins: what PostgreSQL refuses to each, and that neither becomes the other (promises 1 and 8)."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from app import doctor, logins, storage
from app.settings import load_settings
from core.db import ENGINE_ROLE, FACES_ROLE
from core.errors import ConfigurationError
from tests.support.store_faces import asked

pytestmark = pytest.mark.tampers

APPEND_ONLY = ("journal", "audit_events", "ledger", "remains", "effects", "bundles")
OF_RUNS = ("runs", "queue", "waits", "approvals", "votes", "commands", *APPEND_ONLY[:-1])
# What is in force in a tenant, and its stream: they change only together.
IN_FORCE = ("policy_digests", "directory_digest", "paused", "resumed", "stop_number", "judge_after", "settings_version")
OF_STREAM = ("audit_count", "audit_head", "stream_id")
OTHER_STOP = '{"by":"m","paused":"tenant:","reason":"r","stop":99}'
OF_NOTHING = f'{{"digest":"{sha256(b"").hexdigest()}","version":7}}'
NAMED = '{"author":"m","digest":"d","name":"n","version":1}'
ANOTHERS = NAMED.replace('"d"', f'"{"0" * 64}","stop":<stop>')


def line(kind: str, data: str = "{}", at: str = "now()") -> str:
    """A line that somebody makes up, as an SQL expression."""
    ts = f"""to_char({at} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    told = f'{{"actor":{{"id":"m","kind":"person"}},"data":{data},"step":null,"ts":"%s","type":"{kind}","v":2}}'
    stop = "(SELECT stop_number FROM tenants WHERE tenant_id = 'acme')"
    return f"convert_to(format('{told}', {ts}), 'UTF8')".replace("<stop>", f"' || {stop} || '")


# Lines of the past, lines that say more than is done with them, and lines of what was never published.
WITHOUT_THEIR_LINE = [
    *(
        f"tell_tenant({line(kind)}, 'acme')"
        for kind in ("policy.activated", "policy.published", "policy.retired", "directory.published", "pause.set")
    ),
    f"tell_tenant({line('operation.published')}, 'acme')",
    f"tell_tenant({line('pause.lifted')}, 'acme')",
    f"tell_tenant({line('run.opened')}, 'acme')",
    f"tell_tenant({line('token.created', at='(now() - interval $$1 day$$)')}, 'acme')",
    f"tell_tenant({line('token.created')}, 'nobody')",
    f"change_policies({line('policy.activated', NAMED)}, 'acme')",
    "change_policies(NULL, 'acme')",
    f"publish_policy({line('policy.published', NAMED)}, '', NULL, 'acme')",
    f"replace_directory({line('directory.published', ANOTHERS)}, '', '[]', '[]', 'acme')",
    f"publish_operation({line('operation.published', NAMED)}, '', 'acme')",
    f"publish_operation({line('operation.published', OF_NOTHING)}, '', 'acme')",
    f"apply_settings({line('tenant.applied', NAMED)}, '', 'acme')",
    f"apply_settings({line('tenant.applied', OF_NOTHING)}, '', 'acme')",
    f"link_line({line('token.created')}, '', 'acme')",
    f"change_pause({line('pause.set', OTHER_STOP)}, 'acme')",
]
# Neither may do this: become somebody, change a rule or what is on record, or bring an erasure forward.
OF_BOTH = [
    *(f"SET ROLE {role}" for role in ("postgres", "counterseal_appender", "pg_read_all_data", "pg_write_all_data")),
    "SET SESSION AUTHORIZATION postgres",
    "SET session_replication_role = replica",
    "GRANT counterseal_engine TO counterseal_faces",
    "CREATE ROLE mallory LOGIN SUPERUSER",
    "CREATE TABLE public.mine (a int)",
    "CREATE FUNCTION public.queue() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER TABLE runs DISABLE TRIGGER ALL",
    "ALTER TABLE runs DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE runs NO FORCE ROW LEVEL SECURITY",
    "DROP POLICY tenant ON runs",
    "DROP TRIGGER legal_move ON runs",
    "ALTER FUNCTION read_run(uuid, bool, text, bool) SECURITY INVOKER",
    "TRUNCATE journal",
    "COPY runs TO PROGRAM 'true'",
    "SELECT pg_read_file('/etc/hostname')",
    "SELECT lo_import('/etc/hostname')",
    "SELECT rolpassword FROM pg_authid",
    "UPDATE alembic_version SET version_num = '0001'",
    "UPDATE runs SET run_key = NULL",
    "UPDATE runs SET retention = interval '0'",
    "UPDATE runs SET purged_at = now()",
    "UPDATE runs SET tenant_id = 'other'",
    "UPDATE runs SET purge_at = now() - interval '1 day'",
    "UPDATE runs SET purge_at = now()",
    "INSERT INTO runs SELECT * FROM runs",
    "DELETE FROM runs",
    "DELETE FROM votes",
    "DELETE FROM approvals",
    "UPDATE people SET principals = '{slack:UMALLORY}'",
    "INSERT INTO people (tenant_id, person_id, name) VALUES ('acme', 'mallory', 'M')",
    "DELETE FROM people",
    "INSERT INTO group_members (tenant_id, group_name, person_id) VALUES ('acme', 'owners', 'mallory')",
    *(f"UPDATE tenants SET {column} = {column}" for column in IN_FORCE + OF_STREAM),
    *(f"SELECT {function}" for function in WITHOUT_THEIR_LINE),
    "INSERT INTO audit_events SELECT stream_id, 99, tenant_id, 'pause.set', '', '' FROM tenants",
    "INSERT INTO policies (tenant_id, digest, name, version, source, published_by) SELECT 'acme', '', '', 1, '', ''",
    "INSERT INTO directories (tenant_id, digest, name, version, source, published_by) SELECT 'acme', '', '', 1, '', ''",
    "INSERT INTO tenant_settings (tenant_id, version, digest, source, applied_by) SELECT 'acme', 9, '', '', 'm'",
    "INSERT INTO operations (tenant_id, name, version, digest, source, published_by) SELECT 'acme', '', 9, '', '', 'm'",
    "UPDATE operations SET source = ''",
    "DELETE FROM operations",
    "UPDATE tenant_settings SET source = ''",
    "UPDATE directories SET source = ''",
    "DELETE FROM directories",
    "DELETE FROM policies",
    "UPDATE workflows SET source = ''",
    "UPDATE policies SET source = ''",
    *(f"{what} {table}" for table in APPEND_ONLY for what in ("DELETE FROM",)),
    *(f"UPDATE {table} SET tenant_id = tenant_id" for table in ("journal", "audit_events", "ledger", "remains")),
]
OF_FACES = [
    f"SET ROLE {ENGINE_ROLE}",
    "SET ROLE {engine}",
    "ALTER ROLE {engine} PASSWORD 'x'",
    "UPDATE approvals SET status = 'approved'",
    "UPDATE approvals SET status = 'approved', choice = 'approve', decided_at = now()",
    (
        "INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel)"
        " SELECT approval_id, 'olga', tenant_id, 'approve', '', '{owners}', 'slack' FROM approvals"
    ),
    *(f"DELETE FROM {table}" for table in OF_RUNS),
    *(f"UPDATE {table} SET tenant_id = tenant_id" for table in OF_RUNS),
    "INSERT INTO journal (run_id, n, tenant_id, first_seq, lines) SELECT run_id, 99, tenant_id, 99, '' FROM runs",
    "SELECT state FROM runs",
    "SELECT purge_records(gen_random_uuid())",
    f"SELECT append({', '.join(['NULL'] * 29)})",
    "UPDATE tokens SET roles = '{admin}'",
    "UPDATE tokens SET expires_at = NULL",
    "UPDATE sessions SET roles = '{admin}'",
    "UPDATE sessions SET expires_at = 'infinity'",
]
OF_ENGINE = [
    f"SET ROLE {FACES_ROLE}",
    "SET ROLE {faces}",
    "ALTER ROLE {faces} PASSWORD 'x'",
    "SELECT token_owner('x')",
    "SELECT approval_owner(gen_random_uuid())",
    "INSERT INTO tokens (token_hash, tenant_id, subject, roles) VALUES ('h', 'acme', 'mallory', '{admin}')",
    "UPDATE tokens SET revoked_at = NULL",
    (
        "INSERT INTO policies (tenant_id, digest, name, version, source, published_by)"
        " VALUES ('acme', 'd', 'n', 1, 's', 'mallory')"
    ),
    (
        "INSERT INTO workflows (tenant_id, name, version, digest, source, operations, published_by)"
        " VALUES ('acme', 'w', 9, 'd', 's', '{}', 'mallory')"
    ),
    "INSERT INTO tenants (tenant_id, stream_id) VALUES ('mallory', gen_random_uuid())",
]


@pytest.fixture
async def stolen(runtime: Any, database_url: str) -> AsyncIterator[Any]:
    """Connections of each stolen login, in a tenant with a run that waits for people."""
    await asked(runtime)
    found = logins.of_owner(database_url)
    both = {kind: await asyncpg.connect(url) for kind, url in (("faces", found.faces), ("engine", found.of_engine))}
    for connection in both.values():
        await connection.execute("SET counterseal.tenant = 'acme'")
    yield both
    for connection in both.values():
        await connection.close()


@pytest.mark.parametrize(("kind", "own"), [("faces", OF_FACES), ("engine", OF_ENGINE)])
async def test_postgresql_refuses_every_forbidden_statement(
    runtime: Any, stolen: Any, kind: str, own: list[str]
) -> None:
    before, allowed = await runtime.fingerprint(), []
    users = {kind: await one.fetchval("SELECT quote_ident(session_user)") for kind, one in stolen.items()}
    for text in [*OF_BOTH, *own]:
        statement = text.replace("{engine}", users["engine"]).replace("{faces}", users["faces"])
        try:
            await stolen[kind].execute(statement)
            allowed.append((statement, "done"))
        except asyncpg.InsufficientPrivilegeError:
            pass
        except asyncpg.PostgresError as error:
            allowed.append((statement, str(error)))
    assert allowed == []
    assert await runtime.fingerprint() == before


@pytest.mark.parametrize("kind", ["faces", "engine"])
async def test_no_path_leads_from_one_login_to_another(stolen: Any, kind: str) -> None:
    """Roles, ownership and functions: what a login is, owns, and may call with another's rights."""
    one, role = stolen[kind], logins.ROLES[kind]
    member = "SELECT rolname FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER') AND rolname <> session_user"
    assert [row["rolname"] for row in await one.fetch(member)] == [role]
    owned = (
        "SELECT objid FROM pg_shdepend WHERE refobjid IN (session_user::regrole, $1::text::regrole) AND deptype = 'o'"
    )
    assert await one.fetch(owned, role) == []
    # A text that a function of another's takes is a value; no such function executes one.
    definers = (
        "SELECT proname FROM pg_proc WHERE prosecdef AND has_function_privilege(oid, 'EXECUTE') "
        "AND prosrc ~* '\\mexecute\\M'"
    )
    assert await one.fetch(definers) == []


async def test_what_retention_keeps_goes_when_its_time_is_over_and_not_before(runtime: Any, stolen: Any) -> None:
    engine = stolen["engine"]
    run_id = await engine.fetchval("SELECT run_id FROM runs")
    kept = "SELECT count(*) FROM journal WHERE vals IS NOT NULL"
    before = await engine.fetchval(kept)
    await engine.execute("SELECT purge_records($1)", run_id)
    assert await engine.fetchval(kept) == before > 0
    await runtime.trouble.make_purge_due(run_id)
    await engine.execute("UPDATE runs SET purge_at = purge_at + interval '1 day'")
    for earlier in ("purge_at - interval '1 hour'", "now()"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="retention cannot be brought forward"):
            await engine.execute(f"UPDATE runs SET purge_at = {earlier}")
    await runtime.trouble.make_purge_due(run_id)
    await engine.execute("SELECT purge_records($1)", run_id)
    assert await engine.fetchval(kept) == 0
    assert await engine.fetchval("SELECT run_key IS NULL AND purged_at IS NOT NULL FROM runs")


async def test_a_login_that_is_more_than_its_role_is_refused(runtime: Any, database_url: str) -> None:
    """M4: one login that may be both roles, a superuser, or an owner is no configuration."""
    found = logins.of_owner(database_url)
    owner = await asyncpg.connect(database_url)
    name = f"both_{uuid4().hex}"
    await owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'word' IN ROLE {ENGINE_ROLE}, {FACES_ROLE}")
    try:
        both = database_url.replace(urlsplit(database_url).netloc.rpartition("@")[0], f"{name}:word", 1)
        for wrong in (both, database_url, found.of_engine):
            settings = load_settings(faces_database_url=wrong, engine_database_url=found.engine)
            with pytest.raises(ConfigurationError, match="login of the faces is also"):
                async with storage.ready_database(settings):
                    raise AssertionError
            (shown,) = [one for one in await doctor.examine(settings) if one.what == "database"]
            assert (shown.state, "login of the faces is also" in shown.detail) == (doctor.State.BROKEN, True)
        for wrong in (both, database_url, found.faces):
            with pytest.raises(ConfigurationError, match="login of the engine is also"):
                await storage.engine_of(logins.Logins(found.faces, wrong))
    finally:
        await owner.execute(f"DROP ROLE {name}")
        await owner.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("SELECT '{}'", ""),
        ("ALTER ROLE {} SUPERUSER", "a superuser"),
        ("ALTER ROLE {} CREATEROLE", "one who creates roles"),
        ("ALTER ROLE {} BYPASSRLS", "one whom no row is hidden from"),
        (f"GRANT {ENGINE_ROLE} TO {{}}", ENGINE_ROLE),
        ("GRANT pg_monitor TO {}", "pg_monitor"),
    ],
)
async def test_each_right_beyond_the_role_is_named(database_url: str, given: str, words: str) -> None:
    name, owner = f"more_{uuid4().hex}", await asyncpg.connect(database_url)
    found = ""
    try:
        await owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'word'; GRANT {FACES_ROLE} TO {name}")
        await owner.execute(given.format(name))
        place = urlsplit(database_url).netloc.rpartition("@")[0]
        try:
            await storage.check_login("faces", database_url.replace(place, f"{name}:word", 1))
        except ConfigurationError as error:
            found = error.message
    finally:
        await owner.execute(f"DROP ROLE {name}")
        await owner.close()
    said = f"the database login of the faces is also {words}, so nothing parts it from the rest."
    assert found == (words and said)


async def test_setup_makes_logins_that_work_and_says_their_passwords_once(
    runtime: Any, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from app.cli.service import db_setup

    monkeypatch.setenv("COUNTERSEAL_DATABASE_URL", database_url)
    owner = await asyncpg.connect(database_url)
    said: list[object] = []
    for name in ("execute", "fetchval", "fetch"):
        plain = getattr(asyncpg.Connection, name)

        async def heard(self: Any, *arguments: Any, plain: Any = plain, **more: Any) -> Any:
            said.append(arguments)
            return await plain(self, *arguments, **more)

        monkeypatch.setattr(asyncpg.Connection, name, heard)
    urls: dict[str, str] = {}
    try:
        await db_setup(tmp_path, renew=False)
        texts = {kind: (tmp_path / f"{kind}.env").read_text() for kind in logins.ROLES}
        assert {stat.S_IMODE((tmp_path / f"{kind}.env").stat().st_mode) for kind in texts} == {0o600}
        urls = {kind: text.strip().partition("=")[2] for kind, text in texts.items()}
        assert said, "what is sent was not heard"
        assert not [one for one in said for url in urls.values() if str(urlsplit(url).password) in str(one)]
        for kind, url in urls.items():
            one = await asyncpg.connect(url)
            await logins.check(one, kind)
            await one.close()
        with pytest.raises(ConfigurationError, match="--renew"):
            await db_setup(tmp_path, renew=False)
        assert {kind: (tmp_path / f"{kind}.env").read_text() for kind in texts} == texts
        await db_setup(None, renew=True)
        printed = capsys.readouterr().out
        assert all(text not in printed for text in texts.values())
        assert printed.count("DATABASE_URL=postgresql://") == 2
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(urls["faces"])
        seen = await owner.fetch(
            "SELECT rolpassword FROM pg_authid WHERE rolname = $1", urlsplit(urls["faces"]).username
        )
        assert seen[0]["rolpassword"].startswith("SCRAM-SHA-256$4096:")
    finally:
        for url in urls.values():
            user = urlsplit(url).username
            await owner.execute(f'DROP OWNED BY "{user}"')
            await owner.execute(f'DROP ROLE "{user}"')
        await owner.close()
