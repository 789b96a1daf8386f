"""Access control: roles, principals and the bearer tokens behind them."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from core.canonical import JsonObject, sha256_hex
from core.db import Database
from core.errors import AuthenticationError, InputError, NotFoundError
from core.identity import Directory, Entry, Kind, Standing, principal
from evidence.chain import Actor, EventType, timestamp
from runtime.store import audit, tenants, tokens
from runtime.store.tokens import Ending

PREFIX = "cst_"
# The number of digits of a hash by which the audit names a token or a session.
TOKEN_DIGITS = 12
_TOKEN = re.compile(r"cst_[A-Za-z0-9_-]{43}\Z")
_HASH_PREFIX = re.compile(r"[0-9a-f]{8,64}\Z")
LIFETIME_DEFAULT = timedelta(days=90)
LIFETIME_MAX = timedelta(days=365)
_ENDED = {
    Ending.REVOKED: "it was revoked",
    Ending.EXPIRED: "it has expired",
    Ending.LEFT: "whoever it belongs to is not in the directory any more",
    Ending.DEACTIVATED: "whoever it belongs to is deactivated in the directory",
}


class Role(StrEnum):
    """The use of a token. No role contains another, so publishing policy gives no right to approve.

    An author publishes workflows under names of its own, and adds steps to runs that it has started. It may not
    change what others publish or start. An agent asks for actions, and sees only its own: its token has no other role,
    and belongs to a service account.
    """

    ADMIN = "admin"
    AUTHOR = "author"
    OPERATOR = "operator"
    APPROVER = "approver"
    AUDITOR = "auditor"
    TRIGGER = "trigger"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller, in the one tenant of the token. ``subject`` is the id of a person or service account there.

    ``credential`` is the beginning of the hash by which the audit names the token; "" for a session of the console.
    """

    tenant: str
    subject: str
    roles: frozenset[str]
    credential: str = ""

    @property
    def person(self) -> str:
        """The caller as a principal that the directory resolves."""
        return principal(Kind.PERSON, self.subject)

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
    """The principal of a token. ``AuthenticationError`` says why a token is not valid, or no longer valid."""
    why = "it is none of ours"
    if _TOKEN.match(token):
        async with database.connection() as connection:
            row = await tokens.owner(connection, token_hash(token))
        if row is not None and row["ended"] is None:
            named = (row["tenant_id"], row["subject"], frozenset(row["roles"]))
            return Principal(*named, token_hash(token)[:TOKEN_DIGITS])
        # Telling why is safe: only the holder of the token can send it.
        why = _ENDED[row["ended"]] if row is not None else why
    remedy = "Create one with `counterseal token create`."
    raise AuthenticationError(f"The bearer token is not valid: {why}.", remedy=remedy)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made. ``token`` is shown once; ``subject`` is the id in the directory."""

    token: str
    subject: str
    expires_at: datetime


async def create_token(
    database: Database, tenant: str, subject: str, roles: frozenset[Role], lifetime: timedelta | None, actor: Actor
) -> NewToken:
    """Make a token for an entry of the directory and audit it. Without a ``lifetime`` it is valid for 90 days.

    ``NotFoundError`` if there is no such tenant, ``InputError`` for an invalid subject, role or lifetime.
    """
    if not roles:
        raise InputError("names no role.", where="role", remedy=f"One of {', '.join(Role)}.")
    if lifetime is not None and lifetime > LIFETIME_MAX:
        words = f"is longer than {LIFETIME_MAX.days} days."
        raise InputError(words, where="expires", remedy=f"Give P{LIFETIME_MAX.days}D at most, and make a new one then.")
    token = PREFIX + secrets.token_urlsafe(32)
    names = sorted(str(role) for role in roles)
    async with database.transaction(tenant) as connection:
        # Publishing a directory takes this lock too, so the subject cannot be removed meanwhile.
        await tenants.lock(connection, tenant)
        if not await tenants.exists(connection, tenant):
            remedy = f"Create it with `counterseal tenant create {tenant}`."
            raise NotFoundError(f"There is no tenant {tenant!r}.", remedy=remedy)
        holder = _holder(await tenants.directory(connection, tenant), subject, roles)
        given = (token_hash(token), holder.id, names, lifetime or LIFETIME_DEFAULT)
        expires = await tokens.create(connection, tenant, *given)
        data: JsonObject = {"token": token_hash(token)[:TOKEN_DIGITS], "subject": holder.id, "roles": [*names]}
        data["expires"] = timestamp(expires)
        await audit.record(connection, tenant, EventType.TOKEN_CREATED, actor, data)
    return NewToken(token, holder.id, expires)


def _holder(people: Directory, subject: str, roles: frozenset[Role]) -> Entry:
    """The person or service account that a token is for; ``InputError`` for anybody else."""
    # Look for a person's id first: a service account may have the same name.
    holder = people.entry(principal(Kind.PERSON, subject)) or people.entry(subject)
    if holder is None:
        remedy = (
            "Use a person's id in the directory; for a machine, add it there under service_accounts, with its owner. "
            "`counterseal directory publish FILE` publishes it."
        )
        raise InputError(f"{subject!r} is nobody whom the directory knows.", where="subject", remedy=remedy)
    if not holder.active:
        remedy = "Take `active: false` away in the directory, and publish it."
        raise InputError(f"{holder.id!r} is deactivated in the directory.", where="subject", remedy=remedy)
    if holder.standing is Standing.MACHINE and Role.APPROVER in roles:
        remedy = f"Leave the role out, or make a token for a person, such as its owner {holder.owner}."
        raise InputError(f"{holder.id!r} is a service account, and those never decide.", where="role", remedy=remedy)
    if Role.AGENT in roles and (holder.standing is not Standing.MACHINE or len(roles) > 1):
        remedy = "Make a token with this role alone, for an entry of service_accounts that stands for the agent."
        raise InputError("is for service accounts, and for nothing besides", where="role", remedy=remedy)
    return holder


async def revoke_token(database: Database, tenant: str, named: str, actor: Actor) -> int:
    """Revoke by token or by the start of its hash (8 digits or more); return how many. ``NotFoundError`` if none.

    It takes effect with the next request: nothing caches tokens. If it was an agent's last token, no action that this
    agent asked for goes out any more, and keepers void its questions. A crash before the commit changes nothing.
    """
    prefix = token_hash(named) if _TOKEN.match(named) else named
    if not _HASH_PREFIX.match(prefix):
        raise InputError("is neither a token nor the beginning of a token's hash", where="token")
    async with database.transaction(tenant) as connection:
        await tenants.lock(connection, tenant)
        count = await tokens.revoke(connection, tenant, prefix)
        if not count:
            raise NotFoundError("There is no such token that is still valid.")
        data: JsonObject = {"token": prefix[:TOKEN_DIGITS], "count": count}
        await audit.record(connection, tenant, EventType.TOKEN_REVOKED, actor, data)
    return count
