"""Reduced environments for our own child processes: no secret reaches a process that does not use it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel, SecretStr

from app.settings import PREFIX, Settings
from core.db import address

# The variables that Python, certificates and the clock need. None of them holds a secret.
_PLAIN = re.compile(r"PATH|PYTHON\w*|COVERAGE\w*|LD_LIBRARY_PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|SSL_CERT_FILE|SSL_CERT_DIR")
# The variables for connecting to PostgreSQL and for making a client of AWS, without AWS credentials.
_CONNECTING = re.compile(
    r"PG[A-Z]+|AWS_(DEFAULT_)?REGION|AWS_PROFILE|AWS_CONFIG_FILE|AWS_SHARED_CREDENTIALS_FILE|AWS_CA_BUNDLE"
)
# The placeholder for a secret. It is long enough for every setting, and has the prefix that one setting requires.
_UNREAD = "xapp-this-secret-is-not-for-helpers"
_PASSWORD = re.compile(r"(?<=password=)[^&]*")


def plain(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for a process that needs none of our settings."""
    return {name: value for name, value in environment.items() if _PLAIN.fullmatch(name)}


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables for a process that reads the settings but calls no system: placeholders replace the secrets.

    A process that needs our database gets its address in another way. Variables that nothing reads are left out.
    """
    made = {name: value for name, value in environment.items() if _CONNECTING.fullmatch(name)}
    for field, setting in Settings.model_fields.items():
        name, kinds = PREFIX + field.upper(), {*_kinds(setting.annotation)}
        value = environment.get(name)
        if not value:
            continue
        if SecretStr not in kinds:
            made[name] = value
        elif field == "sql_url":  # its place says which target is meant
            made[name] = _without_password(value)
        elif field == "mcp_servers":  # their addresses say which servers are meant
            made[name] = _without_headers(value)
        elif kinds <= {SecretStr, NoneType} and not field.endswith("_url"):
            made[name] = _UNREAD
    return plain(environment) | made


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that the type of a setting is made of, down to those of its members."""
    inner = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        inner = tuple(one.annotation for one in annotation.model_fields.values())
    elif not inner:
        yield annotation
    elif get_origin(annotation) is Annotated:
        inner = inner[:1]
    elif get_origin(annotation) not in (Union, UnionType):
        yield get_origin(annotation)
    for one in inner:
        yield from _kinds(one)


def _without_headers(servers: str) -> str:
    """The servers, with placeholders for the values of their headers; "{}" for text that the settings refuse anyway."""
    try:
        found = orjson.loads(servers)
        for one in found.values():
            one |= {"headers": dict.fromkeys(one.get("headers", {}), _UNREAD)}
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return "{}"
    return orjson.dumps(found).decode()


def _without_password(url: str) -> str:
    parts = urlsplit(address(url))
    login, at, host = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    place = f"{user}{colon}{_UNREAD if colon else ''}{at}{host}"
    return parts._replace(netloc=place, query=_PASSWORD.sub(_UNREAD, parts.query)).geturl()
