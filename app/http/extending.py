"""A running graph: what it waits for, steps that are added to it, and what it is now (V-5, V-6, X-17)."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel, Field

from app.access import Role
from app.http import models, problems
from app.http.parts import FacesDep, Operator, Paged, Reader
from app.http.runs import etag, run_row
from core.errors import InputError
from runtime.definition.edges import EdgeKind, edges_of, nodes_of
from runtime.requests.extending import VersionMoved
from runtime.store import read_models

router = APIRouter(prefix="/v1/runs", tags=["runs"])

_VERSION = re.compile(r'\s*"?(?P<version>[1-9][0-9]{0,8})"?\s*\Z')

IfMatch = Annotated[
    str | None,
    Header(max_length=100, description="The run's version that was looked at: the `ETag` of `GET /v1/runs/{run_id}`"),
]


class Extension(models.In):
    """New steps, as in a workflow. Each existing step named in `before` waits for the last of them."""

    steps: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100)]
    before: Annotated[list[str], Field(max_length=100)] = Field(default_factory=list)


class ExtendedOut(BaseModel):
    """The extension's number among the run's, the ids that are new in the graph, and the run's version now."""

    number: int
    steps: list[str]
    version: int


class Mutation(BaseModel):
    """One extension: who added what, and when. `source` is what was sent."""

    number: int
    actor: str
    source: dict[str, Any]
    created_at: datetime


class Wait(BaseModel):
    """Something that a run is or was parked on. `token` is null unless the caller may operate runs."""

    wait_id: UUID
    step_key: str
    kind: str
    status: str
    correlation_key: str | None
    token: str | None
    due_at: datetime | None
    created_at: datetime
    completed_at: datetime | None


class NodeOut(BaseModel):
    """One node; `inside` and `part` say in which condition, loop or branch it stands."""

    id: str
    operation: str
    inside: str | None
    part: str | None


class EdgeOut(BaseModel):
    """From one node to another."""

    source: str
    target: str
    kind: EdgeKind


class GraphOut(BaseModel):
    """The workflow's graph with everything that was added to this run."""

    workflow: str
    version: int
    extensions: int
    nodes: list[NodeOut]
    edges: list[EdgeOut]


@router.get("/{run_id}/graph", response_model=GraphOut, summary="The graph of a run")
async def graph(run_id: UUID, who: Reader, faces: FacesDep) -> dict[str, Any]:
    """Nodes, and edges of kind `sequence` (must be over), `data` (is read) and `branch` (stands inside)."""
    row = await run_row(faces, who.tenant, run_id)
    *earlier, workflow = await faces.looking.editions(who.tenant, run_id)
    edges = [{"source": e.source, "target": e.target, "kind": e.kind} for e in edges_of(workflow.graph)]
    named = {"workflow": row["workflow"], "version": row["workflow_version"], "extensions": len(earlier)}
    return {**named, "nodes": nodes_of(workflow.graph), "edges": edges}


@router.get("/{run_id}/waits", response_model=models.Page[Wait], summary="What a run waits for")
async def waits(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """And what it has waited for, oldest first. A signal to the `correlation_key` ends a wait that has one."""
    after = paging.after(datetime, UUID)
    ids = await faces.looking.waits(who.tenant, run_id)
    async with faces.database.reading(who.tenant) as connection:
        rows = await read_models.waits_page(connection, who.tenant, ids, paging.limit + 1, *after)
    hidden = {} if who.has(Role.OPERATOR) else {"token": None}
    return paging.page([{**row, **hidden} for row in rows], "created_at", "wait_id")


@router.get("/{run_id}/mutations", response_model=models.Page[Mutation], summary="What was added to a run")
async def mutations(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Every extension of its graph, in its order."""
    seen = await faces.looking.at(who.tenant, run_id)
    return paging.page_of_all(seen.extensions, number=int)


@router.post(
    "/{run_id}/steps",
    status_code=201,
    response_model=ExtendedOut,
    summary="Add steps to a run",
    responses={
        409: {"description": "The run has ended, or the steps read what cannot be read back now"},
        412: {"description": "The run has moved on since it was looked at"},
        428: {"description": "`If-Match` is missing"},
    },
)
async def extend(
    run_id: UUID, body: Extension, who: Operator, faces: FacesDep, response: Response, if_match: IfMatch = None
) -> Any:
    """Checked like a definition, each step governed like any other, the change on record with who made it."""
    if if_match is None:
        await run_row(faces, who.tenant, run_id)
        words = "If-Match is missing: say which version of the run you have looked at."
        return problems.problem(428, "precondition_required", words, remedy="Send the ETag of GET /v1/runs/{run_id}.")
    source = {"steps": body.steps, **({"before": body.before} if body.before else {})}
    try:
        extended = await faces.extending.extend(who.tenant, run_id, who.actor, source, _version(if_match))
    except VersionMoved as error:
        return problems.problem(412, "version", error.message, remedy=error.remedy)
    response.headers["ETag"] = etag(extended.version)
    response.headers["Location"] = f"/v1/runs/{run_id}/mutations"
    return {"number": extended.number, "steps": list(extended.steps), "version": extended.version}


def _version(text: str) -> int:
    match = _VERSION.match(text)
    if match is None:
        raise InputError(
            "is not one version of a run.", where="If-Match", remedy='Send the ETag of the run, such as "12".'
        )
    return int(match["version"])
