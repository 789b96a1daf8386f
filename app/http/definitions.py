"""Workflows and policies: publish, retire, and see what is published; the JSON Schemas of what people write."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from app.definitions import describe
from app.http import models
from app.http.parts import Admin, FacesDep, Reader
from runtime.definition.schemas import SchemaName, schema_text
from runtime.requests import publishing
from runtime.requests.publishing import Published
from runtime.store import documents, read_models
from runtime.store.documents import PublishedVersion

router = APIRouter(prefix="/v1", tags=["definitions"])

SCHEMA_MEDIA_TYPE = "application/schema+json"

Name = Annotated[str, Path(max_length=100, pattern=models.PRINTABLE, description="The workflow's name")]
Version = Annotated[int, Path(ge=1, lt=2**31, description="The version's number")]
OnlyName = Annotated[str | None, Query(max_length=100, pattern=models.PRINTABLE, description="Only this workflow")]


class Document(models.In):
    """A document's exact text (YAML 1.2); ``file`` is the name that problems are reported under."""

    source: Annotated[str, Field(min_length=1)]
    file: Annotated[str, Field(min_length=1, max_length=200, pattern=models.PRINTABLE)] = "document.yaml"


class PublishedOut(BaseModel):
    """A published version; ``changed`` is false if exactly this was published before.

    ``warnings`` say when nobody could decide what it asks people, by the tenant's directory.
    """

    name: str
    version: int
    digest: str
    changed: bool
    warnings: list[str]


class WorkflowVersion(BaseModel):
    """One published version."""

    name: str
    version: int
    digest: str
    published_by: str
    published_at: datetime
    retired_at: datetime | None


class PolicyVersion(BaseModel):
    """One published policy; the active one judges every action."""

    name: str
    version: int
    digest: str
    published_by: str
    published_at: datetime
    active: bool


class WorkflowSummary(WorkflowVersion):
    """One published version, with the names of the operations and connectors that it needs."""

    connectors: list[str]
    operations: list[str]


class WorkflowDetail(WorkflowVersion):
    """One published version, whole.

    ``operations`` maps each operation to the SHA-256 of its declaration as frozen with the version; ``outline`` is the
    graph as a tree. A version that this release cannot read has a ``problem`` instead of an outline, and runs nothing.
    """

    connectors: list[str]
    operations: dict[str, str]
    source: str
    definition_digest: str | None
    outline: dict[str, Any] | None
    problem: str | None


class WorkflowPublished(PublishedOut):
    """What is published now; ``retired`` if it has been retired meanwhile: it needs a new number then."""

    retired: bool


class WorkflowRetired(BaseModel):
    """What is retired now; ``changed`` is false when it was before. ``starts_with`` is what runs start with now."""

    name: str
    version: int
    changed: bool
    starts_with: int | None


@router.get("/workflows", response_model=models.Page[WorkflowSummary], summary="Every published workflow")
async def workflows(who: Reader, faces: FacesDep, name: OnlyName = None) -> dict[str, Any]:
    """All versions, also retired ones, the newest of each name first."""
    async with faces.database.transaction(who.tenant) as connection:
        found = await documents.workflow_versions(connection, who.tenant, name)
    return {"items": [_summary(one) for one in found]}


@router.get("/workflows/{name}/{version}", response_model=WorkflowDetail, summary="One version of a workflow")
async def workflow(name: Name, version: Version, who: Reader, faces: FacesDep) -> dict[str, Any]:
    """Its exact text, the digests of the declarations frozen with it, and an outline of what it does."""
    async with faces.database.transaction(who.tenant) as connection:
        found = await describe(connection, faces.definitions, who.tenant, name, version)
    return {
        **_summary(found.version),
        "operations": found.operations,
        "source": found.source,
        "definition_digest": found.definition_digest,
        "outline": found.outline,
        "problem": found.problem,
    }


@router.post("/workflows", status_code=201, response_model=WorkflowPublished, summary="Publish a workflow version")
async def publish_workflow(body: Document, who: Admin, faces: FacesDep, response: Response) -> dict[str, Any]:
    """Versions never change: 200 if exactly this was published, 409 if the version has another text. 422 lists every
    problem of the document with its line and column.
    """
    async with faces.database.transaction(who.tenant) as connection:
        published = await publishing.publish_workflow(
            connection, faces.definitions, who.tenant, body.source, body.file, who.actor
        )
    response.headers["Location"] = f"/v1/workflows/{published.name}/{published.version}"
    return _answer(published, response)


@router.post("/workflows/{name}/{version}/retire", response_model=WorkflowRetired, summary="Retire a workflow version")
async def retire_workflow(name: Name, version: Version, who: Admin, faces: FacesDep) -> dict[str, Any]:
    """No run starts with it any more, for good; runs that have started go on. Retiring it again changes nothing."""
    async with faces.database.transaction(who.tenant) as connection:
        return asdict(await publishing.retire_workflow(connection, who.tenant, name, version, who.actor))


@router.get("/policies", response_model=models.Page[PolicyVersion], summary="Every published policy")
async def policies(who: Reader, faces: FacesDep) -> dict[str, Any]:
    """The newest first, and which one is active."""
    async with faces.database.reading(who.tenant) as connection:
        return {"items": await read_models.policy_versions(connection, who.tenant)}


@router.post("/policies", status_code=201, response_model=PublishedOut, summary="Publish and activate a policy")
async def publish_policy(body: Document, who: Admin, faces: FacesDep, response: Response) -> dict[str, Any]:
    """It judges every action from this moment on, also those that an earlier policy had approved."""
    async with faces.database.transaction(who.tenant) as connection:
        published = await publishing.publish_policy(
            connection, faces.definitions, who.tenant, body.source, body.file, who.actor
        )
    return _answer(published, response)


@router.get("/schemas/{name}", response_class=Response, summary="The JSON Schema of a kind of document")
async def schema(name: SchemaName, who: Reader) -> Response:
    """JSON Schema (2020-12) for editors: of a workflow, a policy, a directory, or declarations of operations."""
    return Response(schema_text(name), media_type=SCHEMA_MEDIA_TYPE)


def _summary(version: PublishedVersion) -> dict[str, Any]:
    return {**asdict(version), "connectors": list(version.connectors)}


def _answer(published: Published, response: Response) -> dict[str, Any]:
    if not published.changed:
        response.status_code = 200
    return asdict(published)
