"""Workflows and policies: publish, and see what is published."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from app.http import models
from app.http.parts import Admin, FacesDep, Reader
from core.canonical import JsonObject
from runtime import publishing
from runtime.publishing import Published
from runtime.store import read_models

router = APIRouter(prefix="/v1", tags=["definitions"])


@router.get("/workflows", response_model=models.Page[models.WorkflowVersion], summary="Every published workflow")
async def workflows(who: Reader, faces: FacesDep) -> dict[str, Any]:
    """All versions, the newest of each name first."""
    async with faces.database.reading(who.tenant) as connection:
        return {"items": await read_models.workflow_versions(connection, who.tenant)}


@router.post("/workflows", status_code=201, response_model=models.PublishedOut, summary="Publish a workflow version")
async def publish_workflow(body: models.Document, who: Admin, faces: FacesDep, response: Response) -> JsonObject:
    """Versions never change: 200 if exactly this was published, 409 if the version has another text. 422 lists every
    problem of the document with its line and column.
    """
    async with faces.database.transaction(who.tenant) as connection:
        published = await publishing.publish_workflow(
            connection, faces.definitions, who.tenant, body.source, body.file, who.actor
        )
    return _answer(published, response)


@router.get("/policies", response_model=models.Page[models.PolicyVersion], summary="Every published policy")
async def policies(who: Reader, faces: FacesDep) -> dict[str, Any]:
    """The newest first, and which one is active."""
    async with faces.database.reading(who.tenant) as connection:
        return {"items": await read_models.policy_versions(connection, who.tenant)}


@router.post("/policies", status_code=201, response_model=models.PublishedOut, summary="Publish and activate a policy")
async def publish_policy(body: models.Document, who: Admin, faces: FacesDep, response: Response) -> JsonObject:
    """It judges every action from this moment on, also those that an earlier policy had approved."""
    async with faces.database.transaction(who.tenant) as connection:
        published = await publishing.publish_policy(
            connection, faces.definitions, who.tenant, body.source, body.file, who.actor
        )
    return _answer(published, response)


def _answer(published: Published, response: Response) -> JsonObject:
    if not published.changed:
        response.status_code = 200
    return {
        "name": published.name,
        "version": published.version,
        "digest": published.digest,
        "changed": published.changed,
    }
