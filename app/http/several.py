"""One verb for many runs over HTTP: what would become of each, or what has."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from msgspec import to_builtins
from pydantic import BaseModel, Field

from app.access import Principal, Role
from app.faces import Faces
from app.http import models
from app.http.dependencies import Author, FacesDep, Operator
from runtime.requests import migrating, several

router = APIRouter(prefix="/v1/bulk", tags=["runs"])

RUNS_MAX = 1000


class Several(models.In):
    """The verb, the runs (`where`: texts such as `status=failed`), and why. `dry_run` changes nothing."""

    verb: several.Verb
    where: Annotated[list[Annotated[str, Field(max_length=300)]], Field(min_length=1, max_length=10)]
    reason: Annotated[str, Field(min_length=1, max_length=1000)]
    dry_run: bool = False


class Migration(models.In):
    """The workflow, the version that its runs are of (`since`), and the one that they go on with (`to`).

    `where`: as for other verbs. `dry_run` changes nothing.
    """

    workflow: Annotated[str, Field(min_length=1, max_length=100, pattern=models.PRINTABLE)]
    since: Annotated[int, Field(ge=1, lt=2**31)]
    to: Annotated[int, Field(ge=1, lt=2**31)]
    where: Annotated[tuple[Annotated[str, Field(max_length=300)], ...], Field(max_length=10)] = ()
    reason: Annotated[str, Field(min_length=1, max_length=1000)]
    dry_run: bool = False


class ToldOut(BaseModel):
    """The plan or the result for one run: `ok`, and `says` its status then, or why not."""

    run_id: UUID
    reference: str
    workflow: str
    was: str
    ok: bool
    says: str


@router.post("/runs", response_model=models.Page[ToldOut], summary="Retry, cancel or pause many runs")
async def runs(body: Several, who: Operator, faces: FacesDep) -> dict[str, Any]:
    """Does it to every run that fits, the oldest first, and answers with a result for each. At most 1000 runs: narrow
    the filter by `before`. A run that cannot stops no other.
    """
    return await _in_bulk(faces, who, body.verb, several.where_of(body.where), body)


@router.post("/migrations", response_model=models.Page[ToldOut], summary="Move runs to another version")
async def migrations(body: Migration, who: Author, faces: FacesDep) -> dict[str, Any]:
    """Moves runs that wait to another version of their workflow, and answers with a result for each: it moves, or why
    not. A question whose action changes is void and asked anew. Roles are those of publishing: an author gets 403 for
    somebody else's workflow. At most 1000 runs.
    """
    move = migrating.Move(body.workflow, body.since, body.to, body.where)
    owned = not who.has(Role.ADMIN)
    act = await migrating.prepared(faces.database, faces.definitions, who.tenant, move, who.actor, owned=owned)
    return await _in_bulk(faces, who, act, move.filter(), body)


async def _in_bulk(
    faces: Faces, who: Principal, act: several.Verb | several.Steer, where: several.Where, body: Several | Migration
) -> dict[str, Any]:
    place = (faces.database, faces.definitions, who.tenant, act)
    found = await several.plan(*place, where, who.actor, body.reason, RUNS_MAX)
    if not body.dry_run:
        # Each run counts as a request. The request itself was charged already, and counts for the first run.
        faces.budgets.meter.take("requests", who.tenant, amount=max(0, len(found) - 1))
        found = [one async for one in several.carry_out(*place, found, who.actor, body.reason)]
    return {"items": [to_builtins(one) for one in found]}
