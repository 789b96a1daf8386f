"""A start takes a tenant forward, never back: not its policy, not its people, not its workflows, however many start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from structlog.testing import capture_logs

from app import definitions
from app.access import Role, create_token
from app.faces import Faces, build_faces
from app.settings import DefinitionsMode, Settings
from app.wiring import build
from connectors.port import Connectors
from core.db import FACES_ROLE, Database
from core.errors import ConfigurationError
from core.terms import Stopped
from evidence.chain import Actor
from runtime.requests import pausing, policies, publishing
from tests.support.books import Books
from tests.support.databases import Databases

POLICY = """
policy: restarts
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
"""
DENY = POLICY.replace("version: 1", "version: 2").replace("outcome: allow", "outcome: deny")
PEOPLE = """
directory: people
people: [{id: ann, name: Ann}, {id: eve, name: Eve}]
groups: {leads: [ann, eve]}
"""
WITHOUT_EVE = PEOPLE.replace(", {id: eve, name: Eve}", "").replace("[ann, eve]", "[ann]")
FLOW = "workflow: flow\nversion: 1\nreference: x\nsteps:\n  - {id: a, do: probe.effect.apply, with: {name: x}}\n"
ADMIN = Actor("person", "admin")


def _version(text: str, number: int) -> str:
    return text.replace("version: 1", f"version: {number}")


def _numbered(number: int) -> str:
    return PEOPLE.replace("directory: people", f"directory: people\nversion: {number}")


def _lay_out(folder: Path, *, policy: str = POLICY, people: str = PEOPLE, flow: str = FLOW) -> None:
    for name, text in (("policies/p.yaml", policy), ("directory.yaml", people), ("workflows/f.yaml", flow)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(params=get_args(DefinitionsMode))
def mode(request: pytest.FixtureRequest) -> DefinitionsMode:
    found: DefinitionsMode = request.param
    return found


@pytest.fixture
async def faces(settings: Settings, mode: DefinitionsMode) -> AsyncIterator[Faces]:
    async with build_faces(settings.model_copy(update={"definitions_mode": mode})) as built:
        async with built.database.transaction("default") as connection:
            await definitions.declare(connection, built)
        yield built


async def _by_hand(faces: Faces, *, policy: str = "", people: str = "", flow: str = "") -> None:
    async with faces.database.transaction("default") as connection:
        if policy:
            await policies.publish_policy(connection, faces.definitions, "default", policy, "p", ADMIN)
        if people:
            await publishing.publish_directory(connection, "default", people, "d", ADMIN)
        if flow:
            await publishing.publish_workflow(connection, faces.definitions, "default", flow, "f", ADMIN)


async def _state(faces: Faces) -> tuple[Any, ...]:
    """The active policy's version, who is in the group, the versions that runs start with, and how many events."""
    async with faces.database.transaction("default") as connection:
        policy = await connection.fetchval(
            "SELECT string_agg(p.name || '@' || p.version, ' ' ORDER BY p.name) FROM tenants t"
            " JOIN policies p ON p.digest = ANY (t.policy_digests)"
        )
        people = await connection.fetch("SELECT person_id FROM group_members ORDER BY 1")
        flow = await connection.fetchval("SELECT max(version) FROM workflows WHERE retired_at IS NULL")
        events = [one for one in await Books(connection).audit() if one.type != "operation.published"]
    return policy, [row["person_id"] for row in people], flow, len(events)


@pytest.mark.req("X-1")
async def test_a_restart_does_not_undo_an_emergency(faces: Faces, definitions_dir: Path) -> None:
    _lay_out(definitions_dir)
    await definitions.prepare(faces)
    assert await _state(faces) == ("restarts@1", ["ann", "eve"], 1, 4)
    await _by_hand(faces, policy=DENY, people=WITHOUT_EVE, flow=_version(FLOW, 2))
    after = await _state(faces)
    assert after == ("restarts@2", ["ann"], 2, 8)
    with capture_logs() as logs:
        await definitions.prepare(faces)
    assert await _state(faces) == after
    said = {entry["name"]: entry["reason"] for entry in logs if entry["event"] == "definition not published"}
    assert "restarts version 2" in said["restarts"]
    assert "counterseal directory publish" in said["people"]


@pytest.mark.req("X-1")
async def test_a_restart_undoes_no_pause(faces: Faces, definitions_dir: Path) -> None:
    _lay_out(definitions_dir)
    await definitions.prepare(faces)
    await pausing.pause(faces.database, faces.definitions, "default", Stopped.WORKFLOW, "flow", "No.", ADMIN)
    _lay_out(definitions_dir, policy=_version(POLICY, 2), people=_numbered(2), flow=_version(FLOW, 2))
    await definitions.prepare(faces)
    assert [one.name for one in await faces.ask("default", pausing.listed)] == ["flow"]


async def test_an_emergency_under_another_name_judges_beside_newer_files(faces: Faces, definitions_dir: Path) -> None:
    _lay_out(definitions_dir)
    await definitions.prepare(faces)
    await _by_hand(faces, policy=DENY.replace("restarts", "emergency"))
    _lay_out(definitions_dir, policy=_version(POLICY, 3))
    await definitions.prepare(faces)
    assert (await _state(faces))[0] == "emergency@2 restarts@3"


async def test_a_start_replaces_no_directory_by_one_of_another_name(faces: Faces, definitions_dir: Path) -> None:
    _lay_out(definitions_dir)
    await definitions.prepare(faces)
    before = await _state(faces)
    others = PEOPLE.replace("directory: people", "directory: others\nversion: 9").replace("eve", "ida")
    _lay_out(definitions_dir, people=others)
    await definitions.prepare(faces)
    assert await _state(faces) == before


async def test_a_start_brings_no_policy_back_that_was_retired(faces: Faces, definitions_dir: Path) -> None:
    _lay_out(definitions_dir)
    await definitions.prepare(faces)
    async with faces.database.transaction("default") as connection:
        await policies.retire_policy(connection, faces.definitions, "default", "restarts", ADMIN)
    _lay_out(definitions_dir, policy=_version(POLICY, 3))
    with capture_logs() as logs:
        await definitions.prepare(faces)
    assert (await _state(faces))[0] is None
    said = {entry["name"]: entry["reason"] for entry in logs if entry["event"] == "definition not published"}
    assert "not in force" in said["restarts"]


async def test_an_older_folder_that_was_never_published_does_not_win(faces: Faces, definitions_dir: Path) -> None:
    await _by_hand(faces, policy=_version(POLICY, 3), people=_numbered(3), flow=_version(FLOW, 3))
    async with faces.database.transaction("default") as connection:
        await publishing.retire_workflow(connection, "default", "flow", 3, ADMIN)
    before = await _state(faces)
    older = _numbered(2).replace("[ann, eve]", "[ann]")
    _lay_out(definitions_dir, policy=_version(POLICY, 2), people=older, flow=_version(FLOW, 2))
    await definitions.prepare(faces)
    assert await _state(faces) == before == ("restarts@3", ["ann", "eve"], None, 5)


async def test_what_is_newer_is_published_at_start_once(faces: Faces, definitions_dir: Path) -> None:
    _lay_out(definitions_dir)
    for _ in range(3):
        await definitions.prepare(faces)
    assert (await _state(faces))[3] == 4, "one event of each, two of a policy, none later"
    people = _numbered(2).replace("[ann, eve]", "[ann]")
    _lay_out(definitions_dir, policy=_version(POLICY, 2), people=people, flow=_version(FLOW, 2))
    for _ in range(3):
        await definitions.prepare(faces)
    assert await _state(faces) == ("restarts@2", ["ann"], 2, 8)


async def test_several_versions_in_one_folder_end_with_the_highest(faces: Faces, definitions_dir: Path) -> None:
    _lay_out(definitions_dir, policy=_version(POLICY, 10), flow=_version(FLOW, 10))
    (definitions_dir / "policies" / "z.yaml").write_text(_version(POLICY, 9))
    (definitions_dir / "workflows" / "z.yaml").write_text(_version(FLOW, 9))
    await definitions.prepare(faces)
    assert (await _state(faces))[:3] == ("restarts@10", ["ann", "eve"], 10)
    async with faces.database.transaction("default") as connection:
        assert await connection.fetchval("SELECT count(*) FROM workflows") == 2, "runs may ask for either"


@pytest.mark.req("X-2")
async def test_another_text_of_the_same_version_is_said_and_not_published(faces: Faces, definitions_dir: Path) -> None:
    _lay_out(definitions_dir)
    await definitions.prepare(faces)
    before = await _state(faces)
    _lay_out(definitions_dir, people=WITHOUT_EVE)
    words = "people version 1 in .* was published with another text. Give this text a higher number"
    if faces.settings.definitions_mode == "strict":
        with pytest.raises(ConfigurationError, match=words):
            await definitions.prepare(faces)
    else:
        with capture_logs() as logs:
            await definitions.prepare(faces)
        (reason,) = [entry["reason"] for entry in logs if entry["event"] == "a definition is unavailable"]
        assert "another text" in reason
    assert await _state(faces) == before


async def test_twenty_tokens_that_are_made_at_once_are_all_made(database_url: str) -> None:
    async with Database(database_url, FACES_ROLE, connections=20) as database:
        text = "directory: d\npeople: [{id: ann, name: Ann}]\n"
        async with database.transaction("default") as connection:
            await publishing.publish_directory(connection, "default", text, "d", ADMIN)
        making = (
            create_token(database, "default", "ann", frozenset({*Role} - {Role.AGENT}), None, ADMIN) for _ in range(20)
        )
        assert len({made.token for made in await asyncio.gather(*making)}) == 20


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[str]:
    """A database without a schema."""
    with databases.made("empty") as url:
        yield url


TASKS, PROCESSES = 16, 4


@pytest.mark.timeout(300)
async def test_twenty_that_start_together_on_an_empty_database_all_come_up(
    settings: Settings, definitions_dir: Path, empty_database: str
) -> None:
    _lay_out(definitions_dir)
    given = settings.model_validate({**settings.model_dump(), "database_url": empty_database, "webhooks": {}})
    environment = {
        **os.environ,
        "COUNTERSEAL_DATABASE_URL": empty_database,
        "COUNTERSEAL_DEFINITIONS_DIR": str(definitions_dir),
        "COUNTERSEAL_PORT": "0",
    }
    ready = asyncio.Barrier(TASKS + 1)

    async def task() -> None:
        await ready.wait()
        async with build(given, connectors=Connectors({}), first_run=True) as app:
            await definitions.prepare(app.faces)

    async def process() -> None:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "app", "up", "--json")
        started = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
        assert started.stdout is not None
        try:
            up = await started.stdout.readline()
        finally:
            if started.returncode is None:
                started.send_signal(signal.SIGTERM)
            _, errors = await started.communicate()
        assert up, errors.decode()
        assert started.returncode == 0, errors.decode()

    async def tasks() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(task())
            await ready.wait()

    async with asyncio.TaskGroup() as group:
        for _ in range(PROCESSES):
            group.create_task(process())
        group.create_task(tasks())
    async with build_faces(given) as faces:
        assert await _state(faces) == ("restarts@1", ["ann", "eve"], 1, 4)
