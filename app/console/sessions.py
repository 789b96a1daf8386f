"""Logins of browsers: a random cookie whose SHA-256 is stored, by a token or by a link that works once.

A session ends when it expires, at logout, when the token that made it ends, and when its person is removed from the
directory or deactivated: nothing caches it. The token of a form is derived from the cookie, so no other site knows it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from app.access import TOKEN_DIGITS, Principal, Role, principal_of, token_hash
from core.canonical import JsonObject, sha256_hex
from core.db import Database
from core.errors import AuthenticationError, InputError
from core.identity import Kind, Standing, principal
from evidence.chain import Actor, EventType
from runtime.store import audit, sessions, tenants
from runtime.store.sessions import Session, SessionKind, begun_hash, step_up_hash

LIFETIME = timedelta(hours=12)
LINK_LIFETIME = timedelta(minutes=15)
# The longest time for which a fresh login counts; policies name shorter times.
STEP_UP_LIFETIME = timedelta(hours=1)
STEP_UP_BEGUN_LIFETIME = timedelta(minutes=10)
# The roles that open a page. An author or a trigger works by program.
ROLES = frozenset({Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR})
_REMEDY = "Create a token with `counterseal token create`, and paste it here."
_OVER = "This link is used, or too old."


@dataclass(frozen=True, slots=True)
class Viewer:
    """A person who is logged in. ``name`` is the directory's, ``secret`` the cookie."""

    who: Principal
    name: str
    secret: str = field(repr=False)

    @property
    def csrf(self) -> str:
        """The token that each form carries."""
        return hmac.new(self.secret.encode(), b"counterseal console form", hashlib.sha256).hexdigest()

    @property
    def named(self) -> str:
        """The session as the audit names it: the beginning of its hash."""
        return sha256_hex(self.secret.encode())[:TOKEN_DIGITS]

    @property
    def actor(self) -> Actor:
        """The viewer as the audit names them."""
        return Actor("person", self.who.subject)

    def step_up(self, approval_id: UUID, digest: str) -> str:
        """The key of a fresh login in this browser, for this question and action."""
        return step_up_hash(self.secret, approval_id, digest)

    def has(self, *roles: Role) -> bool:
        """True if the viewer has any of the roles."""
        return self.who.has(*roles)


async def viewer_of(database: Database, secret: str) -> Viewer | None:
    """The person behind a cookie; None if nobody is logged in by it (any more)."""
    found = await _active(database, secret, SessionKind.LOGIN)
    if found is None:
        return None
    who = Principal(found.tenant_id, found.subject, frozenset(found.roles))
    return Viewer(who, found.name or found.subject, secret)


async def log_in(database: Database, token: str) -> Viewer:
    """Make a session from a bearer token; ``AuthenticationError`` says why not. It ends when the token ends."""
    try:
        who = await principal_of(database, token.strip())
    except AuthenticationError as error:
        raise AuthenticationError(error.message, remedy=_REMEDY) from None
    return await _open(database, who.tenant, who.subject, who.roles, "token", token_hash(token.strip()))


async def log_in_as(database: Database, tenant: str, person: str, roles: frozenset[Role]) -> Viewer:
    """Make a session for somebody whom the provider has logged in; ``AuthenticationError`` if they are not active."""
    return await _open(database, tenant, person, frozenset(map(str, roles)), "oidc")


async def log_in_by_link(database: Database, code: str) -> Viewer:
    """Make a session from a link, which works only once; ``AuthenticationError`` if it does not work.

    A crash after its use leaves it used: the person asks for another.
    """
    found = await _active(database, code, SessionKind.LINK)
    used = False
    if found is not None:
        async with database.transaction(found.tenant_id) as connection:
            used = await sessions.end(connection, found.tenant_id, sha256_hex(code.encode()))
    if found is None or not used:
        raise AuthenticationError(_OVER, remedy="Ask for another with `counterseal login`.")
    return await _open(database, found.tenant_id, found.subject, frozenset(found.roles), "link")


async def make_link(
    database: Database, tenant: str, subject: str, roles: frozenset[Role], actor: Actor
) -> tuple[str, str]:
    """Make a link for a person of the directory: its code, and the person's id. ``InputError`` if there is no such."""
    code = secrets.token_urlsafe(32)
    if not roles & ROLES:
        raise InputError("opens no page.", where="role", remedy=f"One of {', '.join(sorted(ROLES))}.")
    async with database.transaction(tenant) as connection:
        holder = (await tenants.directory(connection, tenant)).entry(principal(Kind.PERSON, subject))
        if holder is None or holder.standing is not Standing.PERSON:
            remedy = "Use the id of an active person of the directory."
            raise InputError(f"{subject!r} is no such person.", where="subject", remedy=remedy)
        names = sorted(map(str, roles))
        given = (sha256_hex(code.encode()), holder.id, names, SessionKind.LINK, LINK_LIFETIME)
        await sessions.create(connection, tenant, *given)
        data: JsonObject = {"subject": holder.id, "roles": [*names], "by": "link"}
        await audit.record(connection, tenant, EventType.SESSION_OFFERED, actor, data)
    return code, holder.id


async def log_out(database: Database, viewer: Viewer) -> None:
    """End the session. A crash before the commit leaves the person logged in, and they press again."""
    tenant = viewer.who.tenant
    async with database.transaction(tenant) as connection:
        if await sessions.end(connection, tenant, sha256_hex(viewer.secret.encode())):
            data: JsonObject = {"subject": viewer.who.subject}
            await audit.record(connection, tenant, EventType.SESSION_ENDED, viewer.actor, data)


async def step_up_by_token(database: Database, viewer: Viewer, token: str, approval_id: UUID, digest: str) -> None:
    """Log the viewer in again by their own token; ``AuthenticationError`` if it is not theirs or has ended."""
    try:
        who = await principal_of(database, token.strip())
    except AuthenticationError as error:
        raise AuthenticationError(error.message, remedy="Paste a token of yours.") from None
    await step_up(database, viewer, (who.tenant, who.subject), "token", approval_id, digest)


async def step_up(
    database: Database, viewer: Viewer, who: tuple[str, str], by: str, approval_id: UUID, digest: str
) -> None:
    """Record that the viewer has logged in again for a question and its action. ``who``: the tenant and the person.

    ``AuthenticationError`` if ``who`` is somebody else. Votes judge how long the login counts; at most an hour.
    """
    if who != (viewer.who.tenant, viewer.who.subject):
        raise AuthenticationError("That login is somebody else's.", remedy=f"Log in as {viewer.name}.")
    async with database.transaction(viewer.who.tenant) as connection:
        key = viewer.step_up(approval_id, digest)
        await sessions.step_up(connection, viewer.who.tenant, key, viewer.who.subject, by, STEP_UP_LIFETIME)


async def begin_step_up(database: Database, viewer: Viewer, state: str, approval_id: UUID, digest: str) -> None:
    """Record that the viewer begins to log in again by the provider, for a question and its action.

    A browser could change its cookie. So the time after which the person must log in, and the question, are stored
    here. A crash before the commit leaves nothing, and the provider's answer is refused.
    """
    tenant, key = viewer.who.tenant, begun_hash(viewer.secret, state, approval_id, digest)
    async with database.transaction(tenant) as connection:
        await sessions.step_up(connection, tenant, key, viewer.who.subject, sessions.BEGUN, STEP_UP_BEGUN_LIFETIME)


async def step_up_begun(database: Database, viewer: Viewer, state: str, approval_id: UUID, digest: str) -> float:
    """Take the time at which the viewer began to log in again for this; ``AuthenticationError`` if there is none."""
    tenant, key = viewer.who.tenant, begun_hash(viewer.secret, state, approval_id, digest)
    async with database.transaction(tenant) as connection:
        since = await sessions.begun(connection, tenant, key)
    if since is None:
        words = "This login has begun no login anew for this question, or too long ago."
        raise AuthenticationError(words, remedy="Begin again on the page of the question.")
    return since


async def _active(database: Database, secret: str, kind: SessionKind) -> Session | None:
    async with database.connection() as connection:
        found = await sessions.owner(connection, sha256_hex(secret.encode()))
    return found if found is not None and found.kind is kind and found.ended is None else None


async def _open(
    database: Database, tenant: str, subject: str, roles: frozenset[str], by: str, token: str | None = None
) -> Viewer:
    if not roles & {str(role) for role in ROLES}:
        words = "This login has none of the roles that open a page."
        raise AuthenticationError(words, remedy=f"Ask an administrator for one of {', '.join(sorted(ROLES))}.")
    secret = secrets.token_urlsafe(32)
    async with database.transaction(tenant) as connection:
        # Publishing a directory takes this lock too, so the person cannot be deactivated meanwhile.
        await tenants.lock(connection, tenant)
        entry = (await tenants.directory(connection, tenant)).entry(principal(Kind.PERSON, subject))
        if entry is None or entry.standing is not Standing.PERSON:
            words = "Only active people of the directory use the console."
            raise AuthenticationError(words, remedy="A service account works over HTTP.")
        names = sorted(roles)
        given = (sha256_hex(secret.encode()), entry.id, names, SessionKind.LOGIN, LIFETIME, token)
        await sessions.create(connection, tenant, *given)
        viewer = Viewer(Principal(tenant, entry.id, roles), entry.name, secret)
        data: JsonObject = {"subject": entry.id, "roles": [*names], "by": by, "session": viewer.named}
        await audit.record(connection, tenant, EventType.SESSION_OPENED, viewer.actor, data)
    return viewer
