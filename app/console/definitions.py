"""Policies, workflows and people: versions in force, proposals with those who have to agree, and earlier versions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.access import Role
from app.cli.telling import consequence_lines
from app.console.web import HOME, FacesDep, Overseer, Page, Posted, Reader, go, page
from app.definitions import describe
from app.faces import Faces
from core.errors import CountersealError, InputError
from core.identity import Kind, Standing
from core.terms import POLICY_APPROVERS
from runtime.definition.difference import canonical_lines, difference
from runtime.definition.reserved import POLICY_CHANGE
from runtime.engine.model.states import RunState
from runtime.requests import policies as policy_requests
from runtime.requests.directory import approvers
from runtime.store import console, documents, read_models, replication, tenants, tokens
from runtime.store.console import RunsFilter
from runtime.store.read_models import Row

router = APIRouter()

PROPOSALS_MAX = 20
LINES_MAX = 2000
_OPEN = [str(state) for state in (RunState.QUEUED, RunState.RUNNING, RunState.WAITING_APPROVAL, RunState.WAITING)]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPException(404)
    return int(text)


@router.get("/policies")
async def policies(request: Request, viewer: Reader, faces: FacesDep) -> Response:
    """List the policies in force, the proposals, and every earlier version."""
    shown, tenant = await page(request, faces, viewer), viewer.who.tenant
    async with faces.database.transaction(tenant) as connection:
        versions = await read_models.policy_versions(connection, tenant)
        wanted = RunsFilter(statuses=_OPEN, workflow=POLICY_CHANGE)
        asking = await console.runs(connection, tenant, wanted, PROPOSALS_MAX)
        people = await tenants.directory(connection, tenant)
        used = await faces.definitions.policies(connection, tenant, await documents.in_force(connection, tenant))
    proposed = [await _proposed(faces, tenant, run, versions) for run in asking]
    values: dict[str, Any] = {
        "active": [row for row in versions if row["active"]],
        "broken": [one.message for one in used.broken],
        "rules": {one.digest: one.rules for one in used.policies},
        "proposed": [one for one in proposed if one is not None],
        "versions": versions,
        "approvers": sorted(people.entries[one].name for one in approvers(people)),
        "group": POLICY_APPROVERS,
        "people": people,
    }
    return shown.show("policies.html", at="policies", **values)


async def _proposed(faces: Faces, tenant: str, run: Row, versions: list[Row]) -> dict[str, Any] | None:
    trigger = await faces.reader.trigger(tenant, run["run_id"])
    if trigger is None:
        return None
    name, number, way = str(trigger["name"]), int(trigger["version"]), str(trigger["change"])
    now = next((row for row in versions if row["active"] and row["name"] == name), None)
    lines = await _difference(faces, tenant, name, now["version"] if now else None, None if way == "retire" else number)
    return {"run": run, "name": name, "version": number, "way": way, "now": now, "lines": lines}


async def _difference(faces: Faces, tenant: str, name: str, before: int | None, after: int | None) -> list[str]:
    """The lines that are removed and added between two versions; None has no lines."""
    texts = []
    async with faces.database.transaction(tenant) as connection:
        for number in (before, after):
            text = "" if number is None else (await documents.policy_of(connection, tenant, name, number))[1]
            texts.append([] if number is None else canonical_lines(text, f"{name}@{number}"))
    return difference(*texts)[:LINES_MAX]


@router.get("/policies/{name}/{version}")
async def policy(request: Request, name: str, version: str, viewer: Reader, faces: FacesDep) -> Response:
    """Show one version: its text, and the differences from the version in force, or from the one before it."""
    return await _policy(faces, await page(request, faces, viewer), name, _number(version))


async def _policy(faces: Faces, shown: Page, name: str, number: int, *, status: int = 200, **more: Any) -> Response:
    tenant = shown.viewer.who.tenant
    async with faces.database.transaction(tenant) as connection:
        digest, text, author = await documents.policy_of(connection, tenant, name, number)
        every = [row for row in await read_models.policy_versions(connection, tenant) if row["name"] == name]
    mine = next(row for row in every if row["version"] == number)
    other = next((row for row in every if row["active"] and row["version"] != number), None)
    other = other or max(
        (row for row in every if row["version"] < number), key=lambda row: row["version"], default=None
    )
    values: dict[str, Any] = {
        "name": name,
        "row": mine,
        "digest": digest,
        "text": text,
        "author": author,
        "other": other,
        "lines": await _difference(faces, tenant, name, other["version"], number) if other else [],
        "admin": shown.viewer.has(Role.ADMIN) and not mine["active"],
        "foreseen": None,
        "problem": "",
        "waits": "waits" in shown.request.query_params,
    }
    return shown.show("policy.html", at="policies", status=status, **{**values, **more})


@router.get("/policies/{name}/{version}/activate")
async def foresee(request: Request, name: str, version: str, viewer: Reader, faces: FacesDep) -> Response:
    """Show an admin the consequences if this version came into force. Looking changes nothing."""
    if not viewer.has(Role.ADMIN):
        raise HTTPException(404)
    shown, number = await page(request, faces, viewer), _number(version)
    given = (faces.definitions, viewer.who.tenant, name, number, viewer.actor)
    try:
        async with faces.database.transaction(viewer.who.tenant) as connection:
            found = await policy_requests.activate_policy(connection, *given, dry_run=True)
    except InputError as error:
        return await _policy(faces, shown, name, number, status=422, problem=str(error))
    lines = [*consequence_lines(found.consequences or {})]
    return await _policy(faces, shown, name, number, foreseen=lines, warnings=found.warnings)


@router.post("/policies/{name}/{version}/activate")
async def activate(
    request: Request, name: str, version: str, viewer: Reader, faces: FacesDep, fields: Posted
) -> Response:
    """Put a version in force, or propose it if that takes two people; as over HTTP."""
    if not viewer.has(Role.ADMIN):
        raise HTTPException(404)
    number = _number(version)
    given = (faces.definitions, viewer.who.tenant, name, number, viewer.actor)
    try:
        async with faces.database.transaction(viewer.who.tenant) as connection:
            done = await policy_requests.activate_policy(connection, *given)
    except CountersealError as error:
        shown = await page(request, faces, viewer)
        return await _policy(faces, shown, name, number, status=409, problem=str(error))
    return go(f"{HOME}/policies/{name}/{number}?waits" if done.waits else f"{HOME}/policies")


@router.get("/workflows")
async def workflows(request: Request, viewer: Reader, faces: FacesDep) -> Response:
    """List every version of every workflow, the newest of each name first."""
    shown, tenant = await page(request, faces, viewer), viewer.who.tenant
    async with faces.database.transaction(tenant) as connection:
        versions = await documents.workflow_versions(connection, tenant)
        unusable = await replication.listed(connection, tenant, "workflow", None)
        people = await tenants.directory(connection, tenant)
    return shown.show("workflows.html", at="workflows", versions=versions, unusable=unusable, people=people)


@router.get("/workflows/{name}/{version}")
async def workflow(request: Request, name: str, version: str, viewer: Reader, faces: FacesDep) -> Response:
    """Show one version: its steps as a tree, and its text with a mark in place of each secret."""
    shown, tenant = await page(request, faces, viewer), viewer.who.tenant
    async with faces.database.transaction(tenant) as connection:
        described = await describe(connection, faces.definitions, tenant, name, _number(version))
    return shown.show("workflow.html", at="workflows", one=described)


@router.get("/people")
async def people(request: Request, viewer: Overseer, faces: FacesDep) -> Response:
    """List the people of the directory with their groups, the service accounts, and who has tokens."""
    shown, tenant = await page(request, faces, viewer), viewer.who.tenant
    async with faces.database.transaction(tenant) as connection:
        directory = await tenants.directory(connection, tenant)
        issued = await tokens.listed(connection, tenant) if viewer.has(Role.ADMIN) else []
    roles: dict[str, set[str]] = {}
    for row in issued:
        if row["ended"] is None:
            roles.setdefault(row["subject"], set()).update(row["roles"])
    entries = sorted(directory.entries.values(), key=lambda one: (one.owner is not None, not one.active, one.name))
    values: dict[str, Any] = {
        "entries": entries,
        "roles": roles,
        "admin": viewer.has(Role.ADMIN),
        "person": Standing.PERSON,
        "machine": Standing.MACHINE,
        "slack": Kind.SLACK,
        "named": lambda one: directory.entries[one].name if one in directory.entries else one,
    }
    return shown.show("people.html", at="people", **values)
