"""The demo itself: publish the examples, report four incidents, follow their runs, verify their evidence."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from app import file_locks
from app.access import Role
from app.console.sessions import make_link
from app.demo import helper
from app.demo.people import AGENT_STORY, STORIES, IncidentRun, People
from app.demo.view import View
from app.demo.world import demo_world
from app.examples import examples
from app.faces import Faces, build_faces
from app.settings import PREFIX, load_settings
from app.shown import values_of
from evidence.blobs import StoredBlob
from evidence.chain import Actor
from evidence.layout import VALUES
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.requests.policies import publish_policy
from runtime.requests.publishing import publish_directory, publish_workflow
from runtime.store import read_models
from runtime.store.read_models import RunFilter

ACTOR = Actor("demo", "counterseal demo")
ANNOUNCEMENTS = "C0INC"
AUTO_SECONDS = 240.0
# The person whom the demo's address logs in.
ANA = "ana.lee"
ROLES = frozenset({Role.APPROVER, Role.OPERATOR, Role.ADMIN})


async def run_demo(*, auto: bool, aws: bool) -> int:
    """Run the demo; return the exit code. With ``auto`` it clicks by itself, and its last line is one JSON object."""
    began = time.monotonic()
    installation = load_settings().home.absolute()
    # The demo has its own home, with its own database, key and evidence, beside the installation's home if it can be.
    home = installation.with_name(f"{installation.name}-demo")
    if not (home.exists() or os.access(home.parent, os.W_OK)):
        home = installation / "demo"  # in a container with a read-only root nothing beside the home can be written
    # Ignore the installation's settings: the demo must not touch, for example, its database.
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    stop_at_signals()
    view = View(auto=auto)
    with file_locks.demo(home):
        view.say("Starting PostgreSQL, Counterseal and the stand-ins for ServiceNow, Slack and a model …")
        async with demo_world(home, aws=aws) as world, httpx.AsyncClient(timeout=30) as client:
            os.environ.update(world.environment)
            people = People(world, client)
            async with build_faces(load_settings()) as faces:
                runs = await _play(faces, people, examples(), view, auto=auto)
                view.farewell(world, runs)
                if not auto:
                    with suppress(asyncio.CancelledError):  # Ctrl-C
                        await asyncio.Event().wait()
                    sys.stdout.flush()
                    return 0
                as_planned = all(item.ended_as_planned for item in runs) and await _outside_agrees(people, runs)
                messages = await people.private_messages([str((item.run or {}).get("run_id")) for item in runs])
                report = _report(runs, messages, time.monotonic() - began)
                sys.stdout.write(f"{json.dumps(report)}\n")  # the promised last line
                return 0 if as_planned else 1


def stop_at_signals() -> None:
    """End the demo, with all that it has started, at SIGTERM and when its terminal is closed."""
    main, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert main is not None
    loop.add_signal_handler(signal.SIGTERM, main.cancel)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        loop.add_signal_handler(signal.SIGHUP, main.cancel)


async def publish(faces: Faces, folder: Path) -> datetime:
    """Publish the demo's documents; return the database's time. Only runs created after it belong to this demo.

    Each has a transaction of its own, because a publication holds the tenant's row until it ends.
    """
    tenant, definitions = faces.settings.tenant, faces.definitions
    for path in sorted((folder / "workflows").glob("*.yaml")):
        async with faces.database.transaction(tenant) as connection:
            await publish_workflow(connection, definitions, tenant, path.read_text(), str(path), ACTOR)
    for path in sorted((folder / "policies").glob("*.yaml")):
        async with faces.database.transaction(tenant) as connection:
            await publish_policy(connection, definitions, tenant, path.read_text(), str(path), ACTOR)
    path = folder / "directory.yaml"
    async with faces.database.transaction(tenant) as connection:
        await publish_directory(connection, tenant, path.read_text(), str(path), ACTOR)
        now: datetime = await connection.fetchval("SELECT now()")
        return now


async def _play(faces: Faces, people: People, folder: Path, view: View, *, auto: bool) -> list[IncidentRun]:
    """Report the incidents, and show their runs until each has a bundle; with ``auto``, click meanwhile."""
    since = await publish(faces, folder)
    code, _ = await make_link(faces.database, faces.settings.tenant, ANA, ROLES, ACTOR)
    incidents = [await people.report(story) for story in STORIES]
    last = await people.report(AGENT_STORY)
    await people.describe(last, helper.planted(last, incidents), helper.GUEST)
    await helper.ask_for_help(faces, last)
    runs = [IncidentRun(incident) for incident in (*incidents, last)]
    view.introduce(people.world, [item.incident for item in runs], f"{faces.settings.console_address}/login/{code}")
    async with asyncio.TaskGroup() as group:
        clicking = [group.create_task(people.decide(item.incident)) for item in runs] if auto else []
        try:
            async with asyncio.timeout(AUTO_SECONDS if auto else None):
                with view.live():
                    while not all(item.bundle for item in runs):
                        runs = [await _look(faces, item, since) for item in runs]
                        view.show(runs)
                        await asyncio.sleep(0.25)
        except TimeoutError:
            view.say(f"Not everything ended within {AUTO_SECONDS:g} seconds.")
        for task in clicking:
            task.cancel()
    return runs


async def _look(faces: Faces, item: IncidentRun, since: datetime) -> IncidentRun:
    tenant = faces.settings.tenant
    async with faces.database.transaction(tenant) as connection:
        wanted = RunFilter(workflow=item.incident.story.workflow, reference=item.incident.number)
        rows = await read_models.runs_page(connection, tenant, wanted, 1)
        if not rows or rows[0]["created_at"] < since:
            return item
        run = await read_models.run(connection, tenant, rows[0]["run_id"])
        bundle = await read_models.bundle(connection, tenant, rows[0]["run_id"])
    if bundle is None or item.bundle is not None:
        return replace(item, run=run)
    folder = faces.settings.home / "demo"
    path, key = folder / str(bundle["name"]), folder / "evidence.pub.pem"
    store = await faces.blobs(faces.settings.tenant)
    data = await store.get(StoredBlob(bundle["uri"], bundle["version_id"], bundle["sha256"]))
    await asyncio.to_thread(path.write_bytes, data)
    if (values := await values_of(faces, tenant, bundle, data)) is not None:
        await asyncio.to_thread(path.with_name(path.name + VALUES).write_bytes, values)
    signer = await asyncio.to_thread(FileSigner.load, faces.settings.signing_key_path)
    await asyncio.to_thread(key.write_bytes, signer.public_key.pem)
    verification = await asyncio.to_thread(verify_bundle, path, public_key=key)
    return IncidentRun(item.incident, run, path, str(bundle["sha256"]), verification.ok)


async def _outside_agrees(people: People, runs: list[IncidentRun]) -> bool:
    """True if ServiceNow and Slack agree with the runs: one incident raised and announced, none closed, none mailed."""
    records = [await people.incident(item.incident) for item in runs]
    announced = [str(message["text"]) for message in await people.messages(ANNOUNCEMENTS)]
    return (
        [record["priority"] == "1" for record in records] == [True, False, False, False]
        and not any(record["state"] in ("6", "7") for record in records)
        and not any(record.get("watch_list") or record.get("comments") for record in records)
        and [sum(item.incident.number in text for text in announced) for item in runs] == [1, 0, 0, 0]
    )


def _report(incidents: list[IncidentRun], messages: list[list[str]], seconds: float) -> dict[str, Any]:
    runs = [
        {
            "run_id": str(item.run["run_id"]) if item.run else None,
            "reference": item.incident.number,
            "status": item.run["status"] if item.run else None,
            "bundle": str(item.bundle) if item.bundle else None,
            "sha256": item.sha256,
            "verified": item.verified,
            "told": own,
        }
        for item, own in zip(incidents, messages, strict=True)
    ]
    return {"runs": runs, "seconds": round(seconds, 1)}
