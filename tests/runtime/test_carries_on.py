"""A database of 0.2.0 with a run parked on every kind of wait: every later migration carries on from it.

The fixture is a whole dump: the schema as the migration of 0.2.0 made it, and the rows. It and that migration never
change. ``COUNTERSEAL_WRITE_FIXTURE=<pg_dump>`` writes that of a later release, beside it.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import re
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import migrations
from app import storage
from connectors.port import NotSent
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from core.terms import Stopped
from runtime.engine.model.states import WaitKind
from runtime.requests import pausing
from tests.support.agents import Agents, call, calls, says
from tests.support.databases import Databases
from tests.support.schema import QUESTIONS as SCHEMA

FIXTURE = Path(__file__).with_name("parked_0_2_0.sql.gz")
VERSIONS = Path(migrations.__file__).parent / "versions"
# The released migrations, and the digest of each with its files of SQL.
RELEASED = {"0006": "283a968af695c8afcf5e349722caf2e7417c734c1aaa72f12a909c65fb89af9e"}
LONG = "P3000D"
POLICY = f"""
policy: parked
version: 1
rules:
  - {{id: all, match: {{connector: probe}}, outcome: allow, because: It is a test.}}
  - {{id: model, match: {{connector: model}}, outcome: allow, because: It is a test.}}
  - id: ask
    match: {{operation: probe.effect.apply}}
    when: action.fields.name == 'ask'
    outcome: needs_approval
    approvers: [{{group: owners, of: 1}}]
    expires: {LONG}
    because: People decide.
"""
ROLES = ("counterseal_engine", "counterseal_faces", "counterseal_appender", "counterseal_finder")
ROLE = "DO $$ BEGIN CREATE ROLE {0} NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
FORM = "{type: object, properties: {ok: {type: boolean}}}"
STEPS = {
    WaitKind.APPROVAL: "{id: it, do: probe.effect.apply, with: {name: ask}}",
    WaitKind.RETRY: "{id: it, do: probe.effect.apply, with: {name: busy}}",
    WaitKind.PAUSE: "{id: it, do: probe.effect.apply, with: {name: a}}",
    WaitKind.TASK: f"{{id: it, task: {{title: Look, assign: {{group: owners}}, form: {FORM}}}}}",
    WaitKind.TIMER: "{id: it, wait: {for: PT1H}}",
    WaitKind.SIGNAL: "{id: it, wait: {signal: go, correlate: here}}",
    WaitKind.CHILD: "{id: it, run: inside}",
    WaitKind.EXTERNAL: f"{{id: it, do: probe.case.open, with: {{name: a}}, timeout: {LONG}}}",
    WaitKind.AGENT: "{id: it, agent: {model: script-given, instructions: Open., input: x, tools: [probe.case.open]}}",
    WaitKind.SHARED: f"{{id: it, do: probe.case.share, with: {{name: shared}}, timeout: {LONG}}}",
}
CHILD = "workflow: inside\nversion: 1\nsteps:\n  - {id: inside, wait: {signal: inner, correlate: there}}\n"


def text(kind: WaitKind) -> str:
    """A workflow that waits, and then has one more effect."""
    after = "{id: after, do: probe.effect.apply, with: {name: after}}"
    return f"workflow: {kind}\nversion: 1\nreference: of-{kind}\nsteps:\n  - {STEPS[kind]}\n  - {after}\n"


def paused(runtime: Any) -> tuple[Any, Any, str, Stopped, str]:
    """The one workflow of the runs that is paused, as the verbs take it."""
    return runtime.faces, runtime.definitions, "acme", Stopped.WORKFLOW, str(WaitKind.PAUSE)


async def park(agents: Agents) -> None:
    """One run parked on each kind of wait; of two that share an effect, one waits for what the other began."""
    runtime = agents.runtime
    agents.model.turns = [calls(call("probe_case_open", {"name": "wanted"}))]
    await runtime.tenant()
    await runtime.policy(POLICY)
    await runtime.person("olga", ("owners",))
    runtime.outside.script["busy"] = [NotSent("busy")]
    await runtime.publish(CHILD)
    for kind in WaitKind:
        await runtime.publish(text(kind))
        await runtime.start(str(kind), ref=str(kind))
    await runtime.start(str(WaitKind.SHARED), ref="second")
    await pausing.pause(*paused(runtime), "Wait.", runtime.actor)
    await runtime.worker().work_off()
    kinds = {wait.kind for wait in await runtime.books.waits(open=True)}
    assert kinds == {str(kind) for kind in WaitKind}


@pytest.fixture
async def older(agents: Agents, databases: Databases) -> AsyncIterator[Any]:
    """The runtime on a database of 0.2.0, as it was left then, brought to the newest schema."""
    agents.model.turns = [says("Done.")]
    url = databases.create("older")
    owner = await asyncpg.connect(url)
    await owner.execute(gzip.decompress(FIXTURE.read_bytes()).decode())
    await owner.close()
    await storage.upgrade(url)
    async with Database(url, ENGINE_ROLE) as database, Database(url, FACES_ROLE) as faces:
        yield replace(agents.runtime, database=database, faces=faces)
    databases.drop(url)


def whole(dumped: str) -> str:
    """A dump that one statement of a client restores, whoever owns the database: with its roles, and without psql."""
    left_out = ("\\", "--", "SELECT pg_catalog.set_config", "SET ")
    lines = [line for line in dumped.splitlines() if line and not line.startswith(left_out)]
    # The role that migrates is another one on each server.
    ours = [re.sub(r" TO postgres\b", " TO CURRENT_USER", line) for line in lines]
    return "\n".join(["SET check_function_bodies = false;", *map(ROLE.format, ROLES), *ours, ""])


@pytest.mark.skipif("COUNTERSEAL_WRITE_FIXTURE" not in os.environ, reason="the fixture is written once a release")
async def test_write_the_fixture(agents: Agents, database_url: str) -> None:
    await park(agents)
    program = os.environ["COUNTERSEAL_WRITE_FIXTURE"]
    dumped = await asyncio.to_thread(subprocess.check_output, [program, "--inserts", database_url], text=True)
    FIXTURE.write_bytes(gzip.compress(whole(dumped).encode(), mtime=0))


@pytest.mark.parametrize("revision", RELEASED)
def test_a_released_migration_never_changes(revision: str) -> None:
    files = sorted(path for path in VERSIONS.glob(f"{revision}_*") if path.suffix in (".py", ".sql"))
    digest = hashlib.sha256(b"".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)).hexdigest()
    assert digest == RELEASED[revision], "give the change to the migration of the next release"


async def told(url: str) -> dict[str, list[str]]:
    """The schema, in words. A dump sets parentheses of its own."""
    questions = SCHEMA | {"bodies": "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace"}
    owner = await asyncpg.connect(url)
    found = {
        what: sorted(re.sub("[()]", "", str(tuple(row))) for row in await owner.fetch(question))
        for what, question in questions.items()
    }
    await owner.close()
    return found


async def test_the_fixture_has_the_schema_of_its_migration(databases: Databases) -> None:
    """So the upgrade begins where an installation of 0.2.0 stands."""
    restored, migrated = databases.create("restored"), databases.create("migrated")
    owner = await asyncpg.connect(restored)
    await owner.execute(gzip.decompress(FIXTURE.read_bytes()).decode())
    await owner.close()
    await storage.upgrade(migrated, *RELEASED)
    assert await told(restored) == await told(migrated)
    for url in (restored, migrated):
        databases.drop(url)


@pytest.mark.req("X-17")
@pytest.mark.req("V-16")
async def test_runs_that_0_2_0_left_parked_go_on_to_their_ends(older: Any) -> None:
    waits = await older.books.waits(open=True)
    assert {str(kind) for kind in WaitKind if kind not in (WaitKind.HOLD, WaitKind.PERMIT)} <= {
        wait.kind for wait in waits
    }
    assert (await older.vote("olga", "approve")).counted
    await older.complete("olga", {"ok": True})
    begun = [wait.correlation_key for wait in waits if wait.kind == WaitKind.EXTERNAL]
    for key in ("go:here", "inner:there", *begun):
        assert (await older.signal(key, {})).code == "delivered"
    await pausing.resume(*paused(older), "", older.actor)
    await older.trouble.make_waits_due()
    await older.go_on()
    runs = await older.books.runs()
    assert {run.status for run in runs} == {"succeeded"}, [(run.workflow, run.status, run.error) for run in runs]
    assert len(runs) == len(WaitKind)
    await older.at_rest()
