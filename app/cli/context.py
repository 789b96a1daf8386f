"""What every command needs: settings, the faces, and who is acting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from core.errors import InputError

if TYPE_CHECKING:
    from app.settings import Settings
    from app.wiring import Faces, Overview
    from evidence.chain import Actor


def settings() -> Settings:
    """The settings of this process, with logging set up as they say."""
    from app import logs
    from app.settings import load_settings

    found = load_settings()
    logs.configure(found.log_format, found.log_level)
    return found


@asynccontextmanager
async def faces(tenant: str | None = None, *, new_tenant: bool = False) -> AsyncIterator[Faces]:
    """The faces' part of the runtime, on the database of this installation, for the tenant given or the settings'.

    ``NotFoundError`` if there is no such tenant, unless the command creates it.
    """
    from app.wiring import build_faces

    async with build_faces(_quietly(**({"tenant": tenant} if tenant else {})), new_tenant=new_tenant) as built:
        yield built


@asynccontextmanager
async def overview() -> AsyncIterator[Overview]:
    """All tenants of this installation, to be looked at by whoever operates it."""
    from app.wiring import build_overview

    async with build_overview(_quietly()) as built:
        yield built


def _quietly(**given: str) -> Settings:
    """The settings. A command's answer is its output: what the parts say meanwhile matters only when it is bad."""
    from app import logs
    from app.settings import LogLevel, load_settings

    found = load_settings(**given)
    logs.configure(found.log_format, max(found.log_level, LogLevel.WARNING, key=list(LogLevel).index))
    return found


def person(settings_: Settings, given: str | None) -> str:
    """Who acts: the one given, COUNTERSEAL_PERSON, or the operating system's user."""
    return given or settings_.person_id


def actor(settings_: Settings) -> Actor:
    """Who acts on the command line, as the audit names them."""
    from evidence.chain import Actor

    return Actor("person", settings_.person_id)


def uuid(text: str, what: str) -> UUID:
    """An id as it was typed; ``InputError`` if it is none."""
    try:
        return UUID(text)
    except ValueError:
        raise InputError("is not an id.", where=what, remedy="Copy it from the list command.") from None


def name(text: str, what: str) -> str:
    """A tenant's or workspace's name as it was typed; ``InputError`` that says where, if it cannot be one."""
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


def read_text(path: Path) -> str:
    """As ``read_input``, as UTF-8."""
    try:
        return read_input(path).decode()
    except UnicodeDecodeError:
        raise InputError("is not UTF-8", where=str(path)) from None
