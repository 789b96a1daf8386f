"""Processes: they say where they listen, stop gracefully, and start only with definitions that their mode accepts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import definitions, file_locks, storage
from app.faces import build_faces
from app.http.server import HttpServer
from app.processes import Duty, run_settings
from app.settings import load_settings
from app.wiring import build
from connectors.port import Connectors
from core.db import ENGINE_ROLE, Database
from core.errors import ConfigurationError, TransportError
from runtime.store import read_models


@asynccontextmanager
async def _started(*arguments: str, settings: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app",
        *arguments,
        env={**os.environ, **{f"COUNTERSEAL_{name}": value for name, value in settings.items()}},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _running(process: asyncio.subprocess.Process) -> dict[str, object]:
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(60):
        line = await process.stdout.readline()
    assert line, (await process.stderr.read()).decode()
    return json.loads(line)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_up_serves_until_it_is_asked_to_stop(
    clean_environment: Any, database_url: str, number: signal.Signals
) -> None:
    settings = {"DATABASE_URL": database_url, "PORT": "0", "LOG_FORMAT": "json"}
    async with _started("up", "--json", settings=settings) as process:
        running = await _running(process)
        assert running["parts"] == ["keep", "serve", "work"]
        async with httpx.AsyncClient(base_url=str(running["url"]), trust_env=False, verify=False) as client:
            assert (await client.get("/healthz")).json()["status"] == "ok"
            # The connection is kept alive, and must not keep the process.
            process.send_signal(number)
            async with asyncio.timeout(30):
                _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert b"Traceback" not in errors


async def test_parts_run_in_processes_of_their_own(clean_environment: Any, database_url: str) -> None:
    settings = {"DATABASE_URL": database_url}
    async with (
        _started("work", "--json", settings=settings) as worker,
        _started("keep", "--json", settings=settings) as keeper,
    ):
        assert await _running(worker) == {"parts": ["work"], "url": None}
        assert await _running(keeper) == {"parts": ["keep"], "url": None}
        for process in (worker, keeper):
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await asyncio.gather(worker.communicate(), keeper.communicate())
        assert (worker.returncode, keeper.returncode) == (0, 0)


async def test_a_port_that_is_taken_is_a_configuration_error(clean_environment: Any, database_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="COUNTERSEAL_PORT"):
            HttpServer(_nothing, "127.0.0.1", port)
        async with _started("up", settings={"DATABASE_URL": database_url, "PORT": str(port)}) as process:
            async with asyncio.timeout(60):
                _, errors = await process.communicate()
            assert process.returncode == 3, errors.decode()
            assert b"cannot be listened on" in errors
            assert b"Traceback" not in errors


async def _nothing(*_: object) -> None:
    raise AssertionError


BROKEN = "workflow: broken\nversion: 1\nsteps: 7\n"
GOOD = "workflow: good\nversion: 1\nreference: x\nsteps:\n  - {id: a, do: probe.effect.apply, with: {name: x}}\n"


def _write(folder: Path, texts: Sequence[tuple[str, str]]) -> None:
    (folder / "workflows").mkdir(exist_ok=True)
    for name, text in texts:
        (folder / "workflows" / name).write_text(text)


async def _names(settings: Any) -> list[str]:
    assert settings.database_url is not None
    url = settings.database_url.get_secret_value()
    async with Database(url, ENGINE_ROLE) as database, database.connection() as connection:
        return [row["name"] for row in await connection.fetch("SELECT name FROM workflows ORDER BY name")]


@pytest.mark.req("X-2")
async def test_an_invalid_definition_stops_a_strict_start_and_only_itself_in_warn_mode(
    settings: Any, definitions_dir: Any
) -> None:
    _write(definitions_dir, [("broken.yaml", BROKEN), ("good.yaml", GOOD)])
    async with build_faces(settings) as faces:
        await definitions.prepare(faces)
        assert await _names(settings) == ["good"]
        await definitions.prepare(faces)  # again, as at the next start
    strict = settings.model_copy(update={"definitions_mode": "strict"})
    async with build_faces(strict) as faces:
        with pytest.raises(ConfigurationError, match=r"broken\.yaml:3:"):
            await definitions.prepare(faces)
        (definitions_dir / "workflows" / "broken.yaml").unlink()
        await definitions.prepare(faces)


def test_a_demo_and_an_installation_do_not_share_a_home(tmp_path: Path) -> None:
    with (
        file_locks.installation(tmp_path),
        file_locks.installation(tmp_path),
        pytest.raises(ConfigurationError, match="running"),
        file_locks.demo(tmp_path),
    ):
        pytest.fail("the demo began")
    with file_locks.demo(tmp_path):
        with pytest.raises(ConfigurationError, match="demo is running"), file_locks.installation(tmp_path):
            pytest.fail("the installation began")
        with pytest.raises(ConfigurationError, match="already"), file_locks.demo(tmp_path):
            pytest.fail("another demo began")
    with file_locks.installation(tmp_path):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="COUNTERSEAL_HOME"), file_locks.installation(tmp_path / "file"):
        pytest.fail("a file is no folder")


@pytest.mark.req("X-2")
async def test_a_strict_start_that_is_refused_has_published_nothing(settings: Any, definitions_dir: Any) -> None:
    _write(definitions_dir, [("broken.yaml", BROKEN), ("good.yaml", GOOD)])
    strict = settings.model_copy(update={"definitions_mode": "strict"})
    async with build_faces(strict) as faces:
        with pytest.raises(ConfigurationError, match="DEFINITIONS_MODE is strict"):
            await definitions.prepare(faces)
        assert await _names(settings) == []
        (definitions_dir / "workflows" / "broken.yaml").unlink()
        await definitions.prepare(faces)
        assert await _names(settings) == ["good"]


async def test_a_workflow_whose_connector_is_not_configured_is_named_at_the_start(
    settings: Any, definitions_dir: Any
) -> None:
    _write(definitions_dir, [("good.yaml", GOOD)])
    strict = settings.model_copy(update={"definitions_mode": "strict"})
    async with build(strict, connectors=Connectors({})) as app:
        with pytest.raises(ConfigurationError, match="good@1: the connector 'probe' is not configured"):
            await definitions.prepare(app.faces, app.outsides.given.connectors)


class Misfit:
    """A connector whose declarations do not fit its system, or whose system cannot be asked."""

    def __init__(self, found: list[str] | str) -> None:
        self._found = found

    async def faults(self, names: object = None) -> list[str] | str:
        return self._found


@pytest.mark.req("X-2")
async def test_declarations_that_do_not_fit_their_system_stop_a_strict_start(
    settings: Any, definitions_dir: Any
) -> None:
    _write(definitions_dir, [("good.yaml", GOOD)])
    misfit: dict[str, Any] = {"sql": Misfit(["orders.read: there is no table public.orders."])}
    away: dict[str, Any] = {"sql": Misfit("the database gave no answer")}
    async with build_faces(settings.model_copy(update={"definitions_mode": "strict"})) as faces:
        with pytest.raises(ConfigurationError, match=r"orders\.read: there is no table public\.orders\."):
            await definitions.prepare(faces, Connectors({"probe": Misfit([]), **misfit}))
        assert await _names(settings) == []
        await definitions.prepare(faces, Connectors({"probe": Misfit([]), **away}))
        assert await _names(settings) == ["good"], "its first call finds out"


async def test_a_published_version_that_changed_is_reported(settings: Any, definitions_dir: Any) -> None:
    _write(definitions_dir, [("good.yaml", GOOD)])
    strict = settings.model_copy(update={"definitions_mode": "strict"})
    async with build_faces(strict) as faces:
        await definitions.prepare(faces)
        _write(definitions_dir, [("good.yaml", GOOD.replace("name: x", "name: y"))])
        with pytest.raises(ConfigurationError, match="published with another text"):
            await definitions.prepare(faces)


async def test_a_schema_that_is_behind_is_upgraded_or_said(settings: Any, postgres_url: str) -> None:
    assert settings.database_url is not None
    url = settings.database_url.get_secret_value()
    assert await storage.schema_revision(url) == storage.head_revision()
    async with storage.ready_database(settings) as found:
        assert found.owner == url
    empty = load_settings(database_url=postgres_url, auto_migrate=False)
    with pytest.raises(ConfigurationError, match="counterseal db upgrade"):
        async with storage.ready_database(empty):
            raise AssertionError
    with pytest.raises(TransportError, match="COUNTERSEAL_DATABASE_URL"):
        await storage.schema_revision("postgresql://nobody:word@127.0.0.1:9/nothing")


async def test_a_process_of_faces_alone_needs_no_login_of_the_engine(settings: Any) -> None:
    """Serve as deploy/ does: this process reads and writes as a face, and can do no work of the engine."""
    assert settings.database_url is not None
    async with storage.ready_database(settings) as found:
        alone = load_settings(faces_database_url=found.faces)
    async with build(alone) as app:
        async with app.faces.database.transaction("default") as connection:
            assert await read_models.runs_page(connection, "default", read_models.RunFilter(), 1) == []
        with pytest.raises(TransportError, match="permission denied to set role"):
            async with app.database.connection():
                raise AssertionError
    for duties in ([Duty.WORK], [Duty.KEEP], list(Duty)):
        with pytest.raises(ConfigurationError, match="COUNTERSEAL_ENGINE_DATABASE_URL is not set"):
            await run_settings(alone, frozenset(duties), lambda url: None)


async def test_with_no_settings_a_database_is_found_in_home(clean_environment: Any, tmp_path: Path) -> None:
    """The embedded default: nothing is configured, and the runtime is built on a PostgreSQL of its own."""
    async with build(load_settings(), first_run=True) as app:
        async with app.faces.database.transaction("default") as connection:
            assert connection is not None
        assert (tmp_path / "home" / "postgres").is_dir()
        assert (tmp_path / "home" / "keys" / "evidence.pem").stat().st_mode & 0o077 == 0


def test_a_process_whose_loop_is_held_is_ended_by_the_system_and_says_where_it_was() -> None:
    code = """
import asyncio
from app import processes

processes.STUCK_SECONDS = 0.1

async def main():
    watching = asyncio.create_task(processes.end_if_stuck())
    await asyncio.sleep(0)
    while True:
        pass

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=120, check=False)
    assert ended.returncode == -signal.SIGPROF
    assert b"in main" in ended.stderr
