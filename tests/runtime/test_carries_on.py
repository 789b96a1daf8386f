"""A database of 0.2.0 with a run parked on every kind of wait: every later migration carries on from it.

``COUNTERSEAL_WRITE_FIXTURE=<pg_dump>`` writes the fixture anew; a later release writes one of its own beside it.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app import storage
from connectors.port import NotSent
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from core.terms import Stopped
from runtime.engine.model.states import WaitKind
from runtime.requests import pausing
from tests.support.agents import Agents, call, calls, says
from tests.support.databases import Databases

FIXTURE = Path(__file__).with_name("parked_0_2_0.sql.gz")
REVISION = "0006"
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
    await storage.upgrade(url, REVISION)
    owner = await asyncpg.connect(url)
    await owner.execute(gzip.decompress(FIXTURE.read_bytes()).decode())
    await owner.close()
    await storage.upgrade(url)
    async with Database(url, ENGINE_ROLE) as database, Database(url, FACES_ROLE) as faces:
        yield replace(agents.runtime, database=database, faces=faces)
    databases.drop(url)


@pytest.mark.skipif("COUNTERSEAL_WRITE_FIXTURE" not in os.environ, reason="the fixture is written once a release")
async def test_write_the_fixture(agents: Agents, database_url: str) -> None:
    await park(agents)
    program = os.environ["COUNTERSEAL_WRITE_FIXTURE"]
    options = ["--data-only", "--inserts", "--disable-triggers", "--exclude-table=alembic_version"]
    dumped = await asyncio.to_thread(subprocess.check_output, [program, *options, database_url], text=True)
    # What psql alone understands is left out, and what makes the connection forget where it is.
    lines = [
        line for line in dumped.splitlines() if not line.startswith(("\\", "SELECT pg_catalog.set_config", "SET "))
    ]
    FIXTURE.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


@pytest.mark.req("X-17")
@pytest.mark.req("V-16")
async def test_runs_that_0_2_0_left_parked_go_on_to_their_ends(older: Any) -> None:
    waits = await older.books.waits(open=True)
    assert {str(kind) for kind in WaitKind} <= {wait.kind for wait in waits}
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
    assert len(runs) == len(WaitKind) + 2
    await older.at_rest()
