"""One verb for many runs over HTTP: what would become of each, or what has."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from msgspec import to_builtins
from pydantic import BaseModel, Field

from app.http import models
from app.http.dependencies import FacesDep, Operator
from runtime.requests import several

router = APIRouter(prefix="/v1/bulk", tags=["runs"])

RUNS_MAX = 1000


class Several(models.In):
    """The verb, the runs (`where`: texts such as `status=failed`), and why. `dry_run` changes nothing."""

    verb: several.Verb
    where: Annotated[list[Annotated[str, Field(max_length=300)]], Field(min_length=1, max_length=10)]
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
    place = (faces.database, faces.definitions, who.tenant, body.verb)
    found = await several.plan(*place, several.where_of(body.where), who.actor, body.reason, RUNS_MAX)
    if not body.dry_run:
        # Each run that is moved is a request: the one that was charged for all stands for the first.
        faces.budgets.meter.take("requests", who.tenant, amount=max(0, len(found) - 1))
        found = [one async for one in several.carry_out(*place, found, who.actor, body.reason)]
    return {"items": [to_builtins(one) for one in found]}
