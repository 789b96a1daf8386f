"""Access control: roles, principals and the bearer tokens behind them."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import asyncpg

from core.canonical import JsonObject, sha256_hex
from core.db import Database
from core.errors import AuthenticationError, InputError, NotFoundError
from evidence.chain import Actor, EventType
from runtime.store import audit, tenants, tokens

PREFIX = "cst_"
_TOKEN = re.compile(r"cst_[A-Za-z0-9_-]{43}\Z")
_HASH_PREFIX = re.compile(r"[0-9a-f]{8,64}\Z")
_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,99}\Z")


class Role(StrEnum):
    """The use of a token. No role contains another, so publishing policy gives no right to approve."""

    ADMIN = "admin"
    OPERATOR = "operator"
    APPROVER = "approver"
    AUDITOR = "auditor"
    TRIGGER = "trigger"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller, in the one tenant of the token. A person's ``subject`` is their id in the directory."""

    tenant: str
    subject: str
    roles: frozenset[str]

    @property
    def actor(self) -> Actor:
        """The caller as the audit names them."""
        return Actor("token", self.subject)

    def has(self, *roles: Role) -> bool:
        """True if the caller has any of the roles."""
        return not self.roles.isdisjoint(roles)


def token_hash(token: str) -> str:
    """The stored form of a token. Tokens are 256 random bits, so guessing cannot reverse a plain hash."""
    return sha256_hex(token.encode())


async def principal_of(database: Database, token: str) -> Principal:
    """The principal of a token; ``AuthenticationError`` if it is unknown, expired or revoked."""
    if _TOKEN.match(token):
        async with database.connection() as connection:
            row = await tokens.owner(connection, token_hash(token))
        if row is not None:
            return Principal(row["tenant_id"], row["subject"], frozenset(row["roles"]))
    remedy = "Create one with `counterseal token create`."
    raise AuthenticationError("The bearer token is not valid: it is wrong, expired or revoked.", remedy=remedy)


async def create_token(
    database: Database, tenant: str, subject: str, roles: frozenset[Role], lifetime: timedelta | None, actor: Actor
) -> str:
    """Make a token and audit that it was made. Only its hash is kept. ``NotFoundError`` if there is no such tenant."""
    if not _SUBJECT.match(subject):
        remedy = "Use the person's id in the directory, or a name of letters, digits and . _ @ : -."
        raise InputError("is not a subject.", where="subject", remedy=remedy)
    if not roles:
        raise InputError("names no role.", where="role", remedy=f"One of {', '.join(Role)}.")
    token = PREFIX + secrets.token_urlsafe(32)
    names = sorted(str(role) for role in roles)
    async with database.transaction(tenant) as connection:
        await tenants.lock(connection, tenant)
        try:
            await tokens.create(connection, tenant, token_hash(token), subject, names, lifetime)
        except asyncpg.ForeignKeyViolationError:
            remedy = f"Create it with `counterseal tenant create {tenant}`."
            raise NotFoundError(f"There is no tenant {tenant!r}.", remedy=remedy) from None
        data: JsonObject = {"token": token_hash(token)[:12], "subject": subject, "roles": [*names]}
        await audit.record(connection, tenant, EventType.TOKEN_CREATED, actor, data)
    return token


async def revoke_token(database: Database, tenant: str, named: str, actor: Actor) -> int:
    """Revoke by token or by the start of its hash (8 digits or more); return how many. ``NotFoundError`` if none.

    It takes effect with the next request: nothing caches tokens.
    """
    prefix = token_hash(named) if _TOKEN.match(named) else named
    if not _HASH_PREFIX.match(prefix):
        raise InputError("is neither a token nor the beginning of a token's hash", where="token")
    async with database.transaction(tenant) as connection:
        count = await tokens.revoke(connection, tenant, prefix)
        if not count:
            raise NotFoundError("There is no such token that is still valid.")
        data: JsonObject = {"token": prefix[:12], "count": count}
        await audit.record(connection, tenant, EventType.TOKEN_REVOKED, actor, data)
    return count
