"""The final checks: in the outside world, in the database, in the evidence."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from chaos import agents, cases
from chaos.authority import unauthorised
from chaos.caps import Execution, exceeded, most_at_once, recorded
from chaos.eyes import RECEIPTS, Eyes
from chaos.people import CHANNEL, People
from chaos.publish import Office
from core.db import CLOCK_ERROR_MAX, ENGINE_ROLE, FACES_ROLE, Database
from evidence.verify import verify_bundle
from runtime.requests.views import RunReader
from runtime.store import journal
from sandbox.bpmn_state import ACTIVE
from sandbox.world import World

LEFT = {
    "runs that have not ended": "SELECT count(*) FROM runs WHERE finished_at IS NULL",
    "runs that count steps as executing": "SELECT count(*) FROM runs WHERE executing <> 0",
    "steps in line or held": "SELECT count(*) FROM queue",
    "failed runs that nobody has gone on with": "SELECT count(*) FROM runs "
    "WHERE workflow = 'retried' AND status = 'failed_terminal'",
    "open waits": "SELECT count(*) FROM waits WHERE status = 'waiting'",
    "open approvals": "SELECT count(*) FROM approvals WHERE status = 'requested'",
    "commands not done": "SELECT count(*) FROM commands WHERE status IN ('pending', 'leased')",
    "receipts without an outcome": f"SELECT count(*) FROM ({RECEIPTS.format('')}) r "
    "WHERE r.type IN ('action.intended', 'action.in_doubt')",
    "runs without a bundle of their whole book": "SELECT count(*) FROM runs r LEFT JOIN bundles b "
    "ON b.run_id = r.run_id AND b.lines = r.audit_count WHERE b.run_id IS NULL",
}
NEVER = {
    "messages given up": "SELECT count(*) FROM commands WHERE status = 'failed'",
    "runs whose audit was not counted": "SELECT count(*) FROM runs r WHERE audit_count <> "
    "(SELECT count(*) FROM run_lines e WHERE e.run_id = r.run_id)",
    "effects without a decision or an approval": f"SELECT count(*) FROM ({RECEIPTS.format('')}) r WHERE NOT EXISTS "
    "(SELECT FROM run_lines d, convert_from(d.line, 'UTF8') AS t(line) WHERE d.run_id = r.run_id AND "
    "d.type = 'decision.made' AND t.line::json->>'step' = r.step "
    "AND t.line::json->'data'->>'outcome' IN ('allow', 'needs_approval'))",
}


async def left(eyes: Eyes) -> dict[str, int]:
    """Count the unfinished things, by name; empty if the system has settled."""
    counts = {name: await eyes.one(sql) for name, sql in LEFT.items()}
    return {name: count for name, count in counts.items() if count}


async def executed(eyes: Eyes, url: str) -> list[Execution]:
    """Every execution of every step, from the audit."""
    runs = [(row["tenant_id"], row["run_id"]) for row in await eyes.all("SELECT tenant_id, run_id FROM runs")]
    async with Database(url, ENGINE_ROLE, connections=1) as database:
        return await recorded(database, runs)


async def violations(people: People, world: World, home: Path, executions: list[Execution]) -> list[str]:
    """Every promise that was broken, in words."""
    eyes = people.eyes
    found = [f"{count} {name}" for name, count in (await left(eyes)).items()]
    found += [f"{count} {name}" for name, sql in NEVER.items() if (count := await eyes.one(sql))]
    found += cases.unexpected(people.cases, world)
    found += await _runs(people)
    found += await _clicks(people)
    found += await agents.misled(eyes, world.model.completions)
    found += _cards(world)
    found += await asyncio.to_thread(_bundles, home)
    tenants = await eyes.all("SELECT tenant_id, max_concurrency FROM tenants")
    # An end may be stamped too late, by up to the error of the clock.
    blur = CLOCK_ERROR_MAX
    found += exceeded(executions, {row["tenant_id"]: row["max_concurrency"] for row in tenants}, blur=blur)
    assert world.bpmn is not None
    for instance in world.bpmn.state.instances.values():
        if instance.state == ACTIVE:
            found.append(f"the process of {instance.execution.variables['client']} still runs")
    return found


async def read_again(eyes: Eyes, url: str, office: Office, figures: dict[str, int]) -> list[str]:
    """Replay every run, and recount the authority of each action. Adds counts to ``figures``."""
    found: list[str] = []
    runs = await eyes.all("SELECT tenant_id, run_id FROM runs ORDER BY created_at")
    async with Database(url, ENGINE_ROLE, connections=1) as database, Database(url, FACES_ROLE) as faces:
        replaying = RunReader(faces, office.definitions)
        for tenant, run in runs:
            async with database.transaction() as connection:
                lines = await journal.lines(connection, run)
            found += [f"{run}: {why}" for why in unauthorised(lines, office.owned)]
            report = await replaying.replay(tenant, run)
            figures["checkpoints derived again"] = figures.get("checkpoints derived again", 0) + report.equal
            if not report.ok and report.purged_at is None:
                found.append(f"{run} is not what its book says: {report.difference}")
    return found


def crowd(executions: list[Execution]) -> dict[str, int]:
    """The number of executions and the most at one time, for the report."""
    return {"executions of steps": len(executions), "most steps at once": most_at_once(executions).count}


def complaints(home: Path) -> Counter[str]:
    """Count the errors in the processes' logs: no broken promise by themselves, but they would page somebody."""
    found: Counter[str] = Counter()
    for path in home.glob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            if '"level": "error"' in line:
                entry = json.loads(line)
                last = str(entry.get("exception", entry.get("reason", ""))).strip().splitlines()[-1:]
                found[f"{entry['event']}: {' '.join(last)[:150]}"] += 1
    return found


async def _runs(people: People) -> list[str]:
    rows = await people.eyes.all(
        "SELECT run_id, tenant_id, workflow, reference, status, error FROM runs WHERE depth = 0"
    )
    by_reference: dict[str, list[Any]] = {}
    for row in rows:
        by_reference.setdefault(row["reference"], []).append(row)
    found = []
    for case in people.cases:
        runs = by_reference.get(case.ref, [])
        if not case.started:
            found.append(f"{case.ref} was never acknowledged")
        elif len(runs) != case.runs:
            found.append(f"{case.ref} was acknowledged and has {len(runs)} runs, not {case.runs}")
        elif elsewhere := {run["tenant_id"] for run in runs} - {case.tenant}:
            found.append(f"{case.ref} is a run of {elsewhere}")
        elif others := [run for run in runs if run["status"] != case.status]:
            found.append(f"{case.ref} is {others[0]['status']}: {others[0]['error']}")
        elif {one for one in case.acknowledged if one} - (known := {str(run["run_id"]) for run in runs}):
            found.append(f"{case.ref} was acknowledged with {case.acknowledged}, and is {known}")
    return found


async def _clicks(people: People) -> list[str]:
    """Check that every acknowledged vote is stored, and every acknowledged click has an answer, counted or not."""
    rows = await people.eyes.all("SELECT approval_id::text AS approval, person_id FROM votes")
    voted = {(row["approval"], row["person_id"]) for row in rows}
    notes = await people.eyes.all(
        "SELECT payload->>'approval' AS approval, payload->>'user' AS person FROM commands "
        "WHERE kind = 'note' AND status = 'dispatched'"
    )
    answered = {(row["approval"], row["person"]) for row in notes}
    found = [f"the vote of {person} on {one} was acknowledged and is lost" for one, person in people.votes - voted]
    found += [f"the click of {user} on {one} was acknowledged and is lost" for one, user in people.clicks - answered]
    return sorted(found)


def _cards(world: World) -> list[str]:
    keys: Counter[str] = Counter()
    for message in world.slack.state.messages(CHANNEL):
        if message.metadata and not message.thread_ts and not message.ephemeral_for:
            keys[str(message.metadata)] += 1
    return [f"a card was posted {count} times: {key[:200]}" for key, count in keys.items() if count > 1]


def _bundles(home: Path) -> list[str]:
    found = []
    for path in sorted((home / ".counterseal" / "evidence").rglob("*.zip")):
        report = verify_bundle(path)
        if not report.ok:
            found.append(f"{path.name} does not verify: {[str(row) for row in report.rows if row.status == 'failed']}")
    return found
