"""People: who decides for somebody meanwhile. Each person says so for themselves, an admin for anybody."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.access import Principal, Role
from app.http import models
from app.http.dependencies import Delegator, FacesDep
from core.errors import AuthorizationError
from runtime.requests.delegating import delegate

router = APIRouter(prefix="/v1/people", tags=["people"])

_Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]


class DelegationIn(models.In):
    """A delegation: who may decide for a person, from a day to another, which is included."""

    to: Annotated[str, Field(min_length=1, max_length=200)]
    first: Annotated[_Day, Field(alias="from")]
    last: Annotated[_Day, Field(alias="until")]


class DelegationOut(BaseModel):
    """The digest of the directory that says so. ``waits``: it takes a second person."""

    digest: str
    waits: bool
    warnings: list[str]


def _own(who: Principal, person: str) -> None:
    if who.subject != person and not who.has(Role.ADMIN):
        raise AuthorizationError(
            f"The record of {person!r} is not yours.", remedy="They change it themselves, or an administrator does."
        )


@router.put("/{person}/delegation", response_model=DelegationOut, summary="Let somebody else decide for a person")
async def put(person: str, body: DelegationIn, who: Delegator, faces: FacesDep) -> dict[str, Any]:
    """Publishes the directory with just that changed. It takes effect at once, for votes within these days."""
    _own(who, person)
    days = (body.to, body.first, body.last)
    found = await faces.ask(who.tenant, delegate, person, days, who.actor)
    return {"digest": found.digest, "waits": found.waits, "warnings": list(found.warnings)}


@router.delete("/{person}/delegation", response_model=DelegationOut, summary="Let nobody else decide for a person")
async def end(person: str, who: Delegator, faces: FacesDep) -> dict[str, Any]:
    """Ends the delegation. Votes that were given by it and are not used yet do not count any more."""
    _own(who, person)
    found = await faces.ask(who.tenant, delegate, person, None, who.actor)
    return {"digest": found.digest, "waits": found.waits, "warnings": list(found.warnings)}
