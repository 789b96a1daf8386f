"""Shared parts of all commands: settings, the faces, and the acting person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from core.errors import InputError
from evidence.chain import Actor

if TYPE_CHECKING:
    from app.faces import Faces
    from app.settings import Settings
    from connectors.catalog import Catalog
    from core.db import Database
    from policy.sets import PolicySet

# The largest number that the database's integers hold.
INT4_MAX = 2**31 - 1
# How many runs an ambiguous name lists.
NAMED_MAX = 5


def settings(*, quiet: bool = False, **given: str) -> Settings:
    """Load the settings and set up logging. With ``quiet``, only warnings and errors go beside a command's output."""
    from app import logs
    from app.settings import load_settings

    found = load_settings(**given)
    level = "warning" if quiet and found.log_level != "error" else found.log_level
    logs.configure(found.log_format, level, facts=not quiet)
    return found


@asynccontextmanager
async def faces(tenant: str | None = None, what: str = "--tenant", *, new_tenant: bool = False) -> AsyncIterator[Faces]:
    """The faces, on the database of this installation, for the given tenant or the one of the settings.

    ``NotFoundError`` if the tenant does not exist, unless the command creates it. ``InputError``, which names the
    option ``what``, if the text is not a valid tenant's name.
    """
    from app.faces import build_faces

    given = {"tenant": name(tenant, what)} if tenant else {}
    async with build_faces(settings(quiet=True, **given), new_tenant=new_tenant) as built:
        yield built


async def policies_in_force() -> tuple[PolicySet, Catalog]:
    """The tenant's policies in force, and the operations that are published in it."""
    from runtime.store import documents

    async with faces() as built, built.database.transaction(built.settings.tenant) as connection:
        digests = await documents.in_force(connection, built.settings.tenant)
        found = await built.definitions.policies(connection, built.settings.tenant, digests)
        return found, await built.definitions.published(connection, built.settings.tenant)


@asynccontextmanager
async def overview(tenant: str | None = None) -> AsyncIterator[tuple[Settings, Database]]:
    """A database that sees all tenants, under the engine's role. Only the command line may use it (promise 8).

    ``InputError`` if ``tenant`` is not a valid tenant's name, ``NotFoundError`` if there is none of that name.
    """
    from app.storage import engine_of, ready_database, unknown_tenant
    from core.db import ENGINE_ROLE, Database
    from runtime.store import tenants

    found = settings(quiet=True)
    wanted = name(tenant, "--tenant") if tenant else None
    async with (
        ready_database(found) as logins,
        Database(logins.of_engine, ENGINE_ROLE, connections=1) as database,
    ):
        await engine_of(logins)
        if wanted is not None:
            async with database.transaction() as connection:
                if not await tenants.exists(connection, wanted):
                    raise await unknown_tenant(connection, wanted)
        yield found, database


def actor(settings_: Settings) -> Actor:
    """The acting person of the command line, as the audit names them."""
    return Actor("person", settings_.person_id)


async def record_read(faces: Faces, what: str, *, run: UUID | None = None, thing: UUID | None = None) -> None:
    """Record that the person at the command line is shown something, before it is printed."""
    from runtime.store import audit

    person = actor(faces.settings)
    await faces.ask(faces.settings.tenant, audit.read_by, person, what, "cli", run=run, thing=thing)


def check_word(text: str, words: Sequence[str], what: str) -> None:
    """Refuse a word that the option ``--what`` does not accept; ``InputError`` lists the accepted words."""
    if text not in words:
        raise InputError(f"{text!r} is not a {what}.", where=f"--{what}", remedy=f"One of {', '.join(words)}.")


def moment(option: str, text: str | None) -> datetime | None:
    """A typed moment, with its time zone; ``InputError`` names the option."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InputError(f"{text!r} is no moment in RFC 3339.", where=option, remedy="Such as 2026-11-01T00:00:00Z.")
    return found


def id_of(what: str) -> Callable[[str], UUID]:
    """A function that reads a typed id; ``InputError`` if it is not a UUID."""

    def read(text: str) -> UUID:
        try:
            return UUID(text)
        except ValueError:
            raise InputError("is not an id.", where=what, remedy="Copy it from the list command.") from None

    return read


def run_of(text: str) -> UUID:
    """The id of the run with this id, this beginning of an id, or this reference.

    ``InputError`` if there is none, or more than one: it lists them.
    """
    try:
        return UUID(text)
    except ValueError:
        return asyncio.run(_run_named(text.strip()))


def approval_of(text: str) -> UUID:
    """The id of the approval with this id or the beginning of it; ``InputError`` as of ``run_of``."""
    try:
        return UUID(text)
    except ValueError:
        return asyncio.run(_approval_named(text.strip()))


async def _approval_named(text: str) -> UUID:
    from runtime.store import read_models

    first, last = _begins(text)
    async with faces() as found, found.database.transaction(found.settings.tenant) as connection:
        ids = await read_models.approvals_named(connection, found.settings.tenant, first, last, NAMED_MAX)
    if len(ids) != 1:
        several = f"means several approvals: {', '.join(map(str, ids))}" if ids else "is no approval's id"
        raise InputError(f"{text!r} {several}.", where="APPROVAL", remedy="See `approval list`.")
    return ids[0]


def _begins(text: str) -> tuple[UUID | None, UUID | None]:
    """The first and the last id that begin like this; None if no id does."""
    digits = text.replace("-", "").lower()
    if len(digits) not in range(4, 32) or not set(digits) <= set("0123456789abcdef"):
        return None, None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


async def _run_named(text: str) -> UUID:
    from runtime.store import read_models

    first, last = _begins(text)
    async with faces() as found, found.database.transaction(found.settings.tenant) as connection:
        runs = await read_models.named(connection, found.settings.tenant, text, first, last, NAMED_MAX + 1)
    if not runs:
        raise InputError(f"No run has the reference or the id {text!r}.", where="RUN", remedy="See `run list`.")
    if len(runs) > 1:
        ids = ", ".join(f"{row['run_id']} ({row['workflow']}, {row['status']})" for row in runs[:NAMED_MAX])
        more = " and more" if len(runs) > NAMED_MAX else ""
        raise InputError(f"{text!r} means several runs: {ids}{more}.", where="RUN", remedy="Give the id of one.")
    return UUID(str(runs[0]["run_id"]))


def name(text: str, what: str) -> str:
    """A typed name of a tenant or workspace. An invalid name raises ``InputError``, which names the option ``what``."""
    from core.db import check_tenant

    try:
        return check_tenant(text)
    except InputError as error:
        raise InputError(f"{text!r} is no name.", where=what, remedy=error.remedy) from None


def read_input(path: Path, bytes_max: int = 1024 * 1024) -> bytes:
    """A file's bytes; ``InputError`` if it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if len(data) > bytes_max:
        raise InputError(f"is larger than {bytes_max} bytes", where=str(path))
    return data


def typed(text: str) -> bytes:
    """The typed text as bytes, or the content of the file if the text is ``@FILE``."""
    return read_input(Path(text[1:])) if text.startswith("@") else text.encode(errors="surrogateescape")


def read_text(path: Path) -> str:
    """A file's text; ``InputError`` as ``read_input``, or if it is not UTF-8."""
    try:
        return read_input(path).decode()
    except UnicodeDecodeError:
        raise InputError("is not UTF-8", where=str(path)) from None
