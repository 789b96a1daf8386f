"""The way in and out: login by a token or by a link that works once, logout, and the first page."""

from __future__ import annotations

import hmac
import secrets
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from app.access import Role
from app.console import sessions
from app.console.sessions import LIFETIME, Viewer
from app.console.web import (
    HOME,
    FacesDep,
    FormFields,
    Posted,
    cookie_name,
    drawn,
    go,
    is_secure,
    logged_in,
    read_form,
    within,
)
from app.faces import Faces
from core.errors import AuthenticationError

router = APIRouter()

_LOGIN_COOKIE = "counterseal-login"
_LOGIN_SECONDS = 3600


@router.get("")
async def first(viewer: Annotated[Viewer, Depends(logged_in)]) -> Response:
    """Lead to the first page of this role."""
    inbox = viewer.has(Role.APPROVER, Role.OPERATOR, Role.ADMIN)
    return go(f"{HOME}/inbox" if inbox else f"{HOME}/runs")


@router.get("/login")
async def ask(request: Request) -> Response:
    """Ask for a token."""
    return form(request, within(request.query_params.get("next", HOME)))


@router.post("/login")
async def enter(request: Request, faces: FacesDep, fields: Annotated[FormFields, Depends(read_form)]) -> Response:
    """Log in by a token."""
    following = within(fields.one("next"))
    _own(request, fields)
    try:
        viewer = await sessions.log_in(faces.database, fields.one("token", 200))
    except AuthenticationError as error:
        return form(request, following, f"{error.message} {error.remedy}")
    return await entered(request, faces, viewer, following)


@router.get("/login/{code}")
async def by_link(request: Request, code: str, faces: FacesDep) -> Response:
    """Log in by a link. If another site leads here, ask first, so that nobody is logged in as somebody else unnoticed.

    So a browser that prefetches the page does not use the link up either.
    """
    direct = request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
    if not direct or "sec-purpose" in request.headers:
        return form(request, HOME, code=code)
    return await _by_code(request, code, faces)


@router.post("/login/{code}")
async def by_button(
    request: Request, code: str, faces: FacesDep, fields: Annotated[FormFields, Depends(read_form)]
) -> Response:
    """Log in by a link, after the person has pressed the button on its page."""
    _own(request, fields)
    return await _by_code(request, code, faces)


@router.post("/logout")
async def leave(request: Request, faces: FacesDep, fields: Posted) -> Response:
    """Log out: the cookie is worth nothing from now on."""
    await sessions.log_out(faces.database, request.state.viewer)
    answer = go(f"{HOME}/login?left")
    answer.delete_cookie(cookie_name(request), path="/", secure=is_secure(request), httponly=True, samesite="lax")
    return answer


async def _by_code(request: Request, code: str, faces: FacesDep) -> Response:
    try:
        viewer = await sessions.log_in_by_link(faces.database, code[:200])
    except AuthenticationError as error:
        return form(request, HOME, f"{error.message} {error.remedy}")
    return await entered(request, faces, viewer, HOME)


def _own(request: Request, fields: FormFields) -> None:
    """Refuse a form that this browser did not get from us: another site could log people in as somebody else."""
    given = request.cookies.get(_LOGIN_COOKIE, "")
    if not given or not hmac.compare_digest(fields.one("csrf").encode(), given.encode()):
        raise HTTPException(403, "This form is too old, or of another browser. Load the page again.")


def form(request: Request, following: str, problem: str = "", code: str = "") -> Response:
    """The page for the login. Its cookie and its form hold the same secret, which no other site knows."""
    secret = request.cookies.get(_LOGIN_COOKIE) or secrets.token_urlsafe(32)
    issuer = request.app.state.faces.settings.oidc_issuer
    values: dict[str, object] = {"csrf": secret, "next": following, "problem": problem, "code": code}
    values |= {
        "left": "left" in request.query_params,
        "provider": urlsplit(issuer).netloc if issuer is not None else "",
    }
    answer = drawn("login.html", 401 if problem else 200, **values)
    # Strict: nobody returns to this form from another site while filling it in.
    answer.set_cookie(
        _LOGIN_COOKIE,
        secret,
        max_age=_LOGIN_SECONDS,
        path=HOME,
        secure=is_secure(request),
        httponly=True,
        samesite="strict",
    )
    return answer


async def entered(request: Request, faces: Faces, viewer: Viewer, following: str) -> Response:
    """Give the browser its new session, and end its old one: whoever knew the old cookie can do nothing with it."""
    before = request.cookies.get(cookie_name(request), "")
    if before and (old := await sessions.viewer_of(faces.database, before)) is not None:
        await sessions.log_out(faces.database, old)
    answer = RedirectResponse(following, status_code=303)
    # Lax, not Strict: a link in Slack or in a mail leads to the page itself. Forms are protected by their own token.
    answer.set_cookie(
        cookie_name(request),
        viewer.secret,
        max_age=int(LIFETIME.total_seconds()),
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="lax",
    )
    return answer
