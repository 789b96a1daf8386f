"""The login by the provider that the settings name: the way to it, and back with its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from app.access import Role
from app.console import sessions
from app.console.entrance import entered, form
from app.console.web import HOME, FacesDep, go, identified, is_secure, logged_in, within
from app.faces import Faces
from core.errors import AuthenticationError, TransportError
from runtime.store import tenants

if TYPE_CHECKING:
    from app.console.oidc import Begun, Provider

router = APIRouter(prefix="/oidc")


@router.get("")
async def begin(request: Request, faces: FacesDep) -> Response:
    """Lead to the provider, with secrets that only this browser and its answer hold.

    With `approval` and `digest` somebody who is logged in logs in anew, for that question and action.
    """
    from app.console.oidc import COOKIE_SECONDS, Begun

    provider, asked = _provider(request, faces), request.query_params
    begun = Begun.new(within(asked.get("next", HOME)))
    if "approval" in asked:
        question = identified(asked["approval"])
        there = f"{HOME}/approvals/{question}"
        digest = asked.get("digest", "")[:100]
        begun = Begun.new(there, (str(question), digest))
        await sessions.begin_step_up(faces.database, await logged_in(request), begun.state, question, digest)
    try:
        address = await provider.begin(begun, fresh="fresh" in asked or bool(begun.anew[0]))
    except TransportError as error:
        return form(request, begun.following, f"{error.message} {error.remedy}")
    answer = RedirectResponse(address, status_code=303, headers={"Cache-Control": "no-store"})
    # Lax: the provider leads back here, and that is another site.
    flags: dict[str, Any] = {"path": "/", "secure": is_secure(request), "httponly": True, "samesite": "lax"}
    answer.set_cookie(_cookie(request), begun.cookie, max_age=COOKIE_SECONDS, **flags)
    return answer


@router.get("/callback")
async def back(request: Request, faces: FacesDep) -> Response:
    """Log in the person whom the provider names, if this browser began the login. Its secrets are used up anyway."""
    from app.console.oidc import Begun, person_of, roles_of

    provider = _provider(request, faces)
    begun = Begun.of(request.cookies.get(_cookie(request), ""))
    try:
        if begun is None:
            words = "This browser has begun no login, or too long ago."
            raise AuthenticationError(words, remedy="Log in again.")
        since = await _since(request, faces, begun)
        who = await provider.finish(begun, dict(request.query_params), faces.now(), since)
        settings, tenant = faces.settings, faces.settings.tenant
        async with faces.database.transaction(tenant) as connection:
            people = await tenants.directory(connection, tenant)
        entry = person_of(people, who, by_email=settings.oidc_email)
        if begun.anew[0]:
            answer = await _anew(request, faces, begun, (tenant, entry.id))
        else:
            groups = {Role(role): names for role, names in settings.oidc_roles.items()}
            viewer = await sessions.log_in_as(faces.database, tenant, entry.id, roles_of(entry, groups))
            answer = await entered(request, faces, viewer, within(begun.following))
    except (AuthenticationError, TransportError) as error:
        answer = form(request, HOME, f"{error.message} {error.remedy}")
    answer.delete_cookie(_cookie(request), path="/", secure=is_secure(request), httponly=True, samesite="lax")
    return answer


async def _since(request: Request, faces: Faces, begun: Begun) -> float | None:
    """The recorded time at which the person here began to log in again; None for a first login."""
    question, digest = begun.anew
    if not question:
        return None
    viewer = await logged_in(request)
    return await sessions.step_up_begun(faces.database, viewer, begun.state, identified(question), digest)


async def _anew(request: Request, faces: Faces, begun: Begun, who: tuple[str, str]) -> Response:
    """Record that the person of this browser has logged in again; ``AuthenticationError`` for anybody else."""
    viewer = await logged_in(request)
    question, digest = begun.anew
    await sessions.step_up(faces.database, viewer, who, "oidc", identified(question), digest)
    return go(f"{HOME}/approvals/{question}#decide")


def _provider(request: Request, faces: Faces) -> Provider:
    """The provider, one for the process, because it caches its keys. Without a provider there is no such page."""
    if faces.settings.oidc_issuer is None:
        raise HTTPException(404)
    if getattr(request.app.state, "oidc", None) is None:
        from app.console.oidc import Provider

        request.app.state.oidc = Provider(faces.settings)
    return cast("Provider", request.app.state.oidc)


def _cookie(request: Request) -> str:
    from app.console.oidc import COOKIE, SECURE_COOKIE

    return SECURE_COOKIE if is_secure(request) else COOKIE
