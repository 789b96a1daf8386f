"""A whole job behind a real PgBouncer in session mode: start, question, vote, end (docs/scaling.md says so).

Debian's PgBouncer is found on PATH. Where there is none, the test is skipped and says so; with
COUNTERSEAL_REQUIRE_PGBOUNCER=1 it fails instead.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import asyncpg
import pytest

from app import doctor, logins, storage
from app.faces import build_faces
from app.settings import load_settings
from core.db import ENGINE_ROLE, FACES_ROLE, Database, address
from core.limits import Limits
from tests.support.runtime_stage import runtime as runtime

NONE = "no PgBouncer (apt-get install pgbouncer)"
POLICY = """
policy: p
version: 1
rules:
  - {id: asked, match: {connector: probe}, outcome: needs_approval, approvers: [{group: owners}]}
"""
TEXT = """
workflow: w
version: 1
reference: r
steps: [{id: a, do: probe.effect.apply, with: {name: a}}, {id: t, wait: {for: PT1H}}]
"""


def _pgbouncer() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@pytest.fixture
def found(database_url: str) -> logins.Logins:
    return logins.of_owner(database_url)


@pytest.fixture
def pooled(found: logins.Logins, tmp_path: Path, unused_tcp_port: int) -> Iterator[logins.Logins]:
    """The logins' addresses behind a PgBouncer as Debian ships it, in session mode, with few connections."""
    program = _pgbouncer()
    if program is None:
        assert os.environ.get("COUNTERSEAL_REQUIRE_PGBOUNCER") != "1", NONE
        pytest.skip(NONE)
    parts = urlsplit(address(found.faces))
    users = [urlsplit(address(url)) for url in (found.faces, found.of_engine)]
    (tmp_path / "users.txt").write_text(
        "".join(f'"{unquote(user.username or "")}" "{unquote(user.password or "")}"\n' for user in users)
    )
    (tmp_path / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={parts.hostname} port={parts.port}\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {unused_tcp_port}\nunix_socket_dir =\nauth_type = plain\n"
        f"auth_file = {tmp_path}/users.txt\npool_mode = session\ndefault_pool_size = 30\nmax_client_conn = 100\n"
        f"logfile = {tmp_path}/log\npidfile = {tmp_path}/pid\n"
    )
    command = [program, str(tmp_path / "pgbouncer.ini")]
    if getpass.getuser() == "root":  # it refuses to run as root
        shutil.chown(tmp_path, "postgres", "postgres")
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == os.getuid() and folder != Path("/tmp"):
                folder.chmod(folder.stat().st_mode | 0o055)
        for path in tmp_path.iterdir():
            path.chmod(0o644)
        command[1:1] = ["-u", "postgres"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def through(url: str) -> str:
        each = urlsplit(address(url))
        place = each.netloc.rpartition("@")[0]
        return urlunsplit(each._replace(netloc=f"{place}@127.0.0.1:{unused_tcp_port}"))

    try:
        yield logins.Logins(through(found.faces), through(found.of_engine))
    finally:
        process.terminate()
        process.wait(30)


async def _answers(url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await (await asyncpg.connect(url)).close()
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_job_with_a_question_is_done_behind_a_pooler_in_session_mode(pooled: Any, runtime: Any) -> None:
    await _answers(pooled.faces)
    await runtime.tenant()
    await runtime.policy(POLICY)
    await runtime.publish(TEXT)
    await runtime.person("olga", ("owners",))
    async with Database(pooled.of_engine, ENGINE_ROLE) as engine, Database(pooled.faces, FACES_ROLE) as faces:
        behind = replace(runtime, database=runtime.database, faces=faces)
        run_id = (await behind.start("w")).run_id
        working = replace(behind, database=engine)
        await working.worker().work_off()
        assert (await behind.vote("olga", "approve")).counted
        await working.worker().work_off()
        await runtime.trouble.make_waits_due("timer")
        await working.sweep()
        await working.worker().work_off()
        assert await runtime.status(run_id) == "succeeded"
        for database, role in ((engine, ENGINE_ROLE), (faces, FACES_ROLE)):
            async with database.connection() as connection:
                assert await connection.fetchval("SELECT current_user") == role
                assert await connection.fetchval("SHOW plan_cache_mode") == "force_generic_plan"
                assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "10s"
        heard = asyncio.Event()
        async with engine.listening(("told",), lambda *_: heard.set()), faces.connection() as connection:
            await connection.execute("NOTIFY told")
            await asyncio.wait_for(heard.wait(), 60)


async def test_the_limits_of_a_login_hold_through_a_pooler_for_whoever_uses_it(pooled: Any, runtime: Any) -> None:
    del runtime
    await _answers(pooled.faces)
    for url in (pooled.faces, pooled.of_engine):
        connection = await asyncpg.connect(url)
        for name, value in Limits().settings().items():
            if not name.startswith("tcp_"):  # the server's side is what the pooler connects with
                shown = await connection.fetchval(
                    "SELECT setting || coalesce(unit, '') FROM pg_settings WHERE name = $1", name
                )
                assert shown == value, name
        await connection.close()


async def test_faces_and_doctor_start_behind_a_pooler(
    pooled: Any, runtime: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await _answers(pooled.faces)
    del runtime
    monkeypatch.setenv("COUNTERSEAL_FACES_DATABASE_URL", pooled.faces)
    monkeypatch.setenv("COUNTERSEAL_ENGINE_DATABASE_URL", pooled.of_engine)
    settings = load_settings(home=tmp_path / "home")
    async with build_faces(settings) as faces:
        await faces.answering()
    checks = {check.what: check for check in await doctor.examine(settings)}
    assert checks["database"].state == "ok", checks["database"]
    assert checks["standby"].detail.startswith("none")
    assert storage.head_revision() in checks["schema"].detail
