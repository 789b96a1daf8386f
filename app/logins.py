"""The two logins of a database: one for faces, one for the engine. Neither can become the other, nor the owner.

A login is a member of exactly one role (``core.db``): its rights are those that the migrations grant to that role.
Passwords are made here. They leave this process only in the settings that ``counterseal db setup`` writes. PostgreSQL
gets SCRAM verifiers, so no statement log holds a password.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import asyncpg

from core.db import ENGINE_ROLE, FACES_ROLE, address
from core.errors import ConfigurationError
from core.limits import Limits

_ITERATIONS = 4096
ROLES = {"engine": ENGINE_ROLE, "faces": FACES_ROLE}
_THERE = "SELECT rolname FROM pg_roles WHERE rolname = ANY ($1) ORDER BY 1"
# PostgreSQL quotes the names (%I). An existing login gets the new password and keeps its rights.
_MAKE = """
SELECT format(CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = $1) THEN 'ALTER ROLE %1$I LOGIN PASSWORD %2$L'
    ELSE 'CREATE ROLE %1$I LOGIN PASSWORD %2$L' END, $1::text, $2::text)
  || format('; GRANT %1$I TO %2$I; GRANT CONNECT ON DATABASE %3$I TO %2$I', $3::text, $1, current_database())"""
# The limits are settings of the login, so that they hold for every connection of it, through a pooler too.
_LIMIT = "SELECT format('ALTER ROLE %I SET %I = %L', $1::text, $2::text, $3::text)"
# A right or a role that this login has beyond those it needs, or null. A superuser counts as a member of every role.
_MORE = """
SELECT CASE WHEN l.rolsuper THEN 'a superuser' WHEN l.rolcreaterole THEN 'one who creates roles'
    WHEN l.rolbypassrls THEN 'one whom no row is hidden from'
    ELSE (SELECT min(r.rolname) FROM pg_roles r
      WHERE r.rolname NOT IN (session_user, $1) AND pg_has_role(session_user, r.oid, 'MEMBER')) END
FROM pg_roles l WHERE l.rolname = session_user"""


@dataclass(frozen=True, slots=True)
class Logins:
    """The addresses of one database. ``engine`` is None in a process of faces alone; ``owner`` is None if not given."""

    faces: str
    engine: str | None
    owner: str | None = None

    @property
    def of_engine(self) -> str:
        """The engine's address; ``ConfigurationError`` if this process has none."""
        if self.engine is None:
            words = "COUNTERSEAL_ENGINE_DATABASE_URL is not set, and this needs the engine's login."
            raise ConfigurationError(words, remedy="`counterseal db setup` makes it; `serve` does without.")
        return self.engine


def of_owner(owner: str) -> Logins:
    """The logins that follow from the owner's address alone, as for the embedded server. They need not exist yet.

    Their passwords are an HMAC under the owner's password, so they need not be stored and do not reveal it.
    ``ConfigurationError`` if the owner has no password.
    """
    parts = urlsplit(address(owner))
    if not parts.password:
        words = "COUNTERSEAL_DATABASE_URL has no password, so none can be made for the two logins."
        raise ConfigurationError(words, remedy="Run `counterseal db setup`, and set what it prints.")
    user, key = unquote(parts.username or ""), unquote(parts.password).encode()
    made = {kind: hmac.new(key, f"counterseal {kind}".encode(), hashlib.sha256).hexdigest() for kind in ROLES}
    return _named(owner, user, made)


def drawn(owner: str) -> Logins:
    """Logins with new random passwords, named after the database."""
    name = unquote(urlsplit(address(owner)).path.strip("/"))
    return _named(owner, name, {kind: secrets.token_urlsafe(24) for kind in ROLES})


async def make(connection: asyncpg.Connection[asyncpg.Record], logins: Logins, *, renew: bool = True) -> None:
    """Create the logins, or give them these passwords. ``connection`` is the owner's, who may create roles.

    It runs in the caller's transaction: a crash leaves both or none. ``ConfigurationError`` if a login exists already
    and ``renew`` is false.
    """
    for kind, url in (("faces", logins.faces), ("engine", logins.of_engine)):
        name, password = _user(url)
        if not renew and await connection.fetch(_THERE, [name]):
            remedy = "`counterseal db setup --renew` gives both new passwords; then change the settings."
            raise ConfigurationError(f"there is a login {name} already.", remedy=remedy)
        await connection.execute(await connection.fetchval(_MAKE, name, _verifier(password), ROLES[kind]))
        for setting, value in Limits().settings().items():
            await connection.execute(await connection.fetchval(_LIMIT, name, setting, value))


async def check(connection: asyncpg.Connection[asyncpg.Record], kind: str) -> None:
    """Raise ``ConfigurationError`` if the connection's login has more rights than the role of this kind."""
    more = await connection.fetchval(_MORE, ROLES[kind])
    if more is not None:
        words = f"the database login of the {kind} is also {more}, so nothing parts it from the rest."
        raise ConfigurationError(words, remedy="Use the logins that `counterseal db setup` makes.")


def settings_of(logins: Logins) -> dict[str, str]:
    """The settings that name the logins, by kind: one line of an environment file each."""
    faces, engine = (shlex.quote(address(url)) for url in (logins.faces, logins.of_engine))
    return {
        "faces": f"COUNTERSEAL_FACES_DATABASE_URL={faces}\n",
        "engine": f"COUNTERSEAL_ENGINE_DATABASE_URL={engine}\n",
    }


def _named(owner: str, name: str, passwords: Mapping[str, str]) -> Logins:
    parts = urlsplit(address(owner))
    place = parts.netloc.rpartition("@")[2]
    users = {kind: f"{quote(f'{name}_{kind}', safe='')}:{quote(word, safe='')}" for kind, word in passwords.items()}
    made = {kind: urlunsplit(parts._replace(netloc=f"{user}@{place}")) for kind, user in users.items()}
    return Logins(made["faces"], made["engine"], owner)


def _user(url: str) -> tuple[str, str]:
    parts = urlsplit(address(url))
    return unquote(parts.username or ""), unquote(parts.password or "")


def _verifier(password: str) -> str:
    """The form in which PostgreSQL keeps a password (RFC 5803, SCRAM-SHA-256)."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    client, server = (
        hmac.new(salted, f"{side} Key".encode(), hashlib.sha256).digest() for side in ("Client", "Server")
    )
    stored = hashlib.sha256(client).digest()
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${_ITERATIONS}:{salt64}${stored64}:{server64}"
