"""The graph of a run as it is now: its nodes and what depends on what (V-5)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel

from app.http.parts import FacesDep, Reader
from app.http.runs import run_row
from runtime.definition.edges import EdgeKind, edges_of, nodes_of

router = APIRouter(prefix="/v1/runs", tags=["runs"])


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
    row = await run_row(faces, who, run_id)
    *earlier, workflow = await faces.looking.editions(who.tenant, run_id)
    edges = [{"source": e.source, "target": e.target, "kind": e.kind} for e in edges_of(workflow.graph)]
    named = {"workflow": row["workflow"], "version": row["workflow_version"], "extensions": len(earlier)}
    return {**named, "nodes": nodes_of(workflow.graph), "edges": edges}
