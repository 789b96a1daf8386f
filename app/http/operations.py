"""Declarations of operations: publish them, list them, show one, and see what a change changes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from msgspec import structs
from pydantic import BaseModel

from app.access import Role
from app.faces import Faces
from app.http import models
from app.http.definitions import Document
from app.http.dependencies import Admin, Composer, FacesDep
from app.operations import hidden, in_use, shown
from connectors.catalog import Source
from core.canonical import JsonObject
from core.errors import InputError
from runtime.requests import declaring
from runtime.store.operations import StoredOperation

router = APIRouter(prefix="/v1/operations", tags=["definitions"])

Name = Annotated[str, Path(max_length=200, pattern=models.PRINTABLE, description="The operation's name")]
Version = Annotated[int | None, Query(ge=1, lt=2**31, description="The version in use without a number.")]


class OperationInUse(BaseModel):
    """An operation that workflows may name; `version` is null for one that is part of Counterseal.

    `problem` says why this release cannot read it; then no workflow may name it.
    """

    name: str
    version: int | None
    connector: str
    risk: str
    digest: str
    published_by: str
    published_at: datetime | None
    problem: str


class OperationDetail(BaseModel):
    """A declaration as it was published, and the numbers of all `versions` of its name."""

    name: str
    version: int | None
    digest: str
    published_by: str
    published_at: datetime | None
    versions: list[int]
    declaration: JsonObject


class OperationPublished(BaseModel):
    """A published declaration; `changed` is false if exactly this one is in use."""

    name: str
    version: int
    digest: str
    changed: bool


class OperationChange(BaseModel):
    """The difference of two declarations, line by line; `before` is null for a new name, `after` for a document."""

    name: str
    before: int | None
    after: int | None
    lines: list[str]


@router.get("", response_model=models.Page[OperationInUse], summary="Every operation that workflows may name")
async def operations(who: Composer, faces: FacesDep) -> dict[str, Any]:
    """Lists published declarations in use, and those that are part of Counterseal."""
    return {"items": await in_use(faces, who.tenant)}


@router.get("/{name}", response_model=OperationDetail, summary="One declaration of an operation")
async def operation(name: Name, who: Composer, faces: FacesDep, version: Version = None) -> dict[str, Any]:
    """Shows a declaration as it was published, also one that is not in use any more. Its fixed inputs (`params`), which
    may be secret, are for admins; others see their names.
    """
    found = await shown(faces, who.tenant, name, version)
    if not who.has(Role.ADMIN):
        found["declaration"] = hidden(found["declaration"])
    return found


@router.get("/{name}/diff", response_model=OperationChange, summary="What changed between two versions")
async def diff(
    name: Name,
    who: Admin,
    faces: FacesDep,
    since: Annotated[int, Query(alias="from", ge=1, lt=2**31)],
    to: Annotated[int, Query(ge=1, lt=2**31)],
) -> dict[str, Any]:
    """Compares two published versions of a declaration."""
    async with faces.database.transaction(who.tenant) as connection:
        found = [await declaring.find(connection, faces.definitions, who.tenant, name, one) for one in (since, to)]
    stored = [one for one in found if isinstance(one, StoredOperation)]
    if len(stored) != 2:
        raise InputError("has no published versions.", where="name", remedy="It is part of Counterseal.")
    return structs.asdict(declaring.compared(*stored))


@router.post("/diff", response_model=models.Page[OperationChange], summary="What publishing would change")
async def changes(body: Document, who: Admin, faces: FacesDep) -> dict[str, Any]:
    """Compares the declarations of a document with those in use, and publishes nothing."""
    await _read(faces, who.tenant, body)
    async with faces.database.transaction(who.tenant) as connection:
        found = await declaring.changes(connection, faces.definitions, who.tenant, [Source(body.file, body.source)])
    return {"items": [structs.asdict(one) for one in found]}


@router.post(
    "",
    status_code=201,
    response_model=models.Page[OperationPublished],
    summary="Publish declarations",
    responses={200: {"model": models.Page[OperationPublished], "description": "Exactly these are in use"}},
)
async def publish(body: Document, who: Admin, faces: FacesDep, response: Response) -> dict[str, Any]:
    """Publishes all declarations of a document, or none: 200 if exactly these are in use. Each one that differs is the
    next version of its name. 422 lists every problem of the document with its line and column.
    """
    await _read(faces, who.tenant, body)
    sources = [Source(body.file, body.source)]
    async with faces.database.transaction(who.tenant) as connection:
        found = await declaring.publish_operations(connection, faces.definitions, who.tenant, sources, who.actor)
    if not any(one.changed for one in found):
        response.status_code = 200
    return {"items": [structs.asdict(one) for one in found]}


async def _read(faces: Faces, tenant: str, body: Document) -> None:
    """Read the document first in a helper process, which is ended if that takes too much."""
    declared = (await faces.ask(tenant, faces.definitions.published)).own
    await faces.helpers.read(tenant, "operations", body.source, body.file, declared)
