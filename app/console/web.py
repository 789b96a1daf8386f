"""The parts of every page: the viewer, the form that was sent, the page around the content."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast
from urllib.parse import parse_qsl, quote, urlsplit
from uuid import UUID

from fastapi import Depends, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.access import Role
from app.console import marks
from app.console.questions import name_of
from app.console.sessions import Viewer, viewer_of
from app.faces import Faces, version
from app.http.middleware import read_body
from core.errors import InputError
from evidence.report import rendering
from runtime.requests import pausing
from runtime.store import glass, tenants

HOME = "/console"
COOKIE = "counterseal"
# A browser takes a cookie of this name only over https, for this host alone.
SECURE_COOKIE = "__Host-counterseal"
READERS = (Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR)
DECIDERS = (Role.ADMIN, Role.OPERATOR, Role.APPROVER)
OPERATORS = (Role.ADMIN, Role.OPERATOR)
OVERSEERS = (Role.ADMIN, Role.OPERATOR, Role.AUDITOR)
AUDITORS = (Role.ADMIN, Role.AUDITOR)
FIELDS_MAX = 1000
# The pages in the navigation, with the roles that open them.
PAGES = (
    ("inbox", "Inbox", DECIDERS),
    ("runs", "Runs", READERS),
    ("evidence", "Evidence", AUDITORS),
    ("policies", "Policies", READERS),
    ("workflows", "Workflows", READERS),
    ("people", "People", OVERSEERS),
    ("health", "Health", OPERATORS),
)


class Elsewhere(Exception):
    """The answer is another page: a GET without a login goes to the login."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


async def faces_of(request: Request) -> Faces:
    """The faces behind the request."""
    return cast("Faces", request.app.state.faces)


def is_secure(request: Request) -> bool:
    """True if the browser is reached over https."""
    url = cast("Faces", request.app.state.faces).settings.console_url or ""
    return request.url.scheme == "https" or url.startswith("https://")


def cookie_name(request: Request) -> str:
    """The name of the session's cookie."""
    return SECURE_COOKIE if is_secure(request) else COOKIE


async def logged_in(request: Request) -> Viewer:
    """The viewer. Without a login, a GET leads to the login and back; any other request is refused."""
    faces, secret = await faces_of(request), request.cookies.get(cookie_name(request), "")
    viewer = await viewer_of(faces.database, secret) if secret else None
    if viewer is None:
        if request.method != "GET":
            raise HTTPException(401, "You are not logged in (any more), so nothing was done.")
        there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        raise Elsewhere(f"{HOME}/login?next={quote(there, safe='')}")
    request.state.viewer, request.state.proved = viewer, True
    return viewer


def opened_to(*roles: Role) -> Callable[..., Awaitable[Viewer]]:
    """A dependency that gives the viewer. Viewers without any of the roles get 404."""

    async def check(viewer: Annotated[Viewer, Depends(logged_in)]) -> Viewer:
        if not viewer.has(*roles):
            raise HTTPException(404)
        return viewer

    return check


FacesDep: TypeAlias = Annotated[Faces, Depends(faces_of)]
Reader: TypeAlias = Annotated[Viewer, Depends(opened_to(*READERS))]
Decider: TypeAlias = Annotated[Viewer, Depends(opened_to(*DECIDERS))]
Operator: TypeAlias = Annotated[Viewer, Depends(opened_to(*OPERATORS))]
Overseer: TypeAlias = Annotated[Viewer, Depends(opened_to(*OVERSEERS))]


class FormFields(dict[str, list[str]]):
    """The fields of a form, each with all its values."""

    def one(self, name: str, most: int = 4000) -> str:
        """The first value of a field; "" if there is none."""
        text = next(iter(self.get(name, ())), "")
        if len(text) > most:
            raise InputError(f"has more than {most} characters.", where=name)
        return text.replace("\r\n", "\n")


async def read_form(request: Request) -> FormFields:
    """The form that was sent. ``HTTPException`` 403 if another site may have sent it."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Only a form is accepted here.")
    _same_site(request)
    try:
        text = (await read_body(request)).decode()
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=FIELDS_MAX)
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None
    fields = FormFields()
    for name, item in pairs:
        fields.setdefault(name, []).append(item)
    return fields


def _same_site(request: Request) -> None:
    """Refuse requests that a browser marks as from another site. Programs send no such header and no cookie."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    # A proxy may reach us under another host name than browsers use.
    ours = {request.url.netloc, urlsplit(cast("Faces", request.app.state.faces).settings.console_url or "").netloc}
    if site not in ("same-origin", "none") or (origin is not None and urlsplit(origin).netloc not in ours - {""}):
        raise HTTPException(403, "This form was sent from another site, so nothing was done.")


async def posted(request: Request, viewer: Annotated[Viewer, Depends(logged_in)]) -> FormFields:
    """The form of somebody who is logged in, which carries the token of this login."""
    fields = await read_form(request)
    if not hmac.compare_digest(fields.one("csrf").encode(), viewer.csrf.encode()):
        words = "This form is of another login, so nothing was done. Go back, load the page again, and repeat it."
        raise HTTPException(403, words)
    return fields


Posted: TypeAlias = Annotated[FormFields, Depends(posted)]


def within(path: str) -> str:
    """The path to go to next, if it is a path of the console; otherwise the console's home."""
    plain = path.isascii() and path.isprintable() and not set(path) & set("\\\"'<> ")
    return path if plain and (path == HOME or path.startswith((f"{HOME}/", f"{HOME}?"))) else HOME


def go(path: str) -> Response:
    """The page to look at after a form was taken."""
    return RedirectResponse(path, status_code=303)


def identified(text: str) -> UUID:
    """An id in a path; 404 for a text that is no id."""
    try:
        return UUID(text)
    except ValueError:
        raise HTTPException(404) from None


@cache
def _environment() -> Environment:
    # The symbols are those of the report.
    folder = FileSystemLoader([Path(__file__).parent / "templates", rendering.FOLDER])
    made = Environment(loader=folder, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    names = (
        "q",
        "soft",
        "block",
        "value",
        "icon",
        "st",
        "withheld",
        "short",
        "ident",
        "when",
        "due",
        "seal",
        "listed",
        "labeled",
    )
    made.globals.update({name: getattr(marks, name) for name in (*names, "cell", "plain", "length")})
    made.globals.update(home=HOME, version=version(), at_time=datetime.fromisoformat, name_of=name_of)
    made.filters.update(plain=marks.plain, line=marks.line, spoken=marks.spoken)
    return made


@dataclass(frozen=True, slots=True)
class Page:
    """A page under construction: who looks at it, and when, by the database's clock.

    ``glass`` is the use of emergency access (break-glass) that nobody has reviewed, if there is one.
    """

    request: Request
    viewer: Viewer
    now: datetime
    pauses: list[Any]
    glass: Any = None

    def show(self, template: str, *, at: str = "", status: int = 200, **values: Any) -> Response:
        """Draw the page. ``at`` is its place in the navigation."""
        pages = [(name, word) for name, word, roles in PAGES if self.viewer.has(*roles)]
        around = {"viewer": self.viewer, "now": self.now, "pauses": self.pauses, "pages": pages, "at": at}
        around["glass"] = self.glass
        return drawn(template, status, **around, **values)


async def page(request: Request, faces: Faces, viewer: Viewer) -> Page:
    """Begin a page: every page shows the time and the pauses of its tenant."""
    async with faces.database.transaction(viewer.who.tenant) as connection:
        now, *_ = await tenants.directory_now(connection, viewer.who.tenant)
        paused = list(await pausing.listed(connection, viewer.who.tenant))
        return Page(request, viewer, now, paused, await glass.unreviewed(connection, viewer.who.tenant))


def drawn(template: str, status: int = 200, **values: Any) -> Response:
    """Draw a page, also for somebody who is not logged in."""
    given: Mapping[str, Any] = {"viewer": None, "pauses": [], "glass": None, "pages": [], "at": "", **values}
    text = _environment().get_template(template).render(given)
    return HTMLResponse(text, status_code=status)
