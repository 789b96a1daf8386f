"""Secrets by reference: a document has ``${{ secrets.NAME }}`` in place of a value, which is read at the call.

A declaration says where the value is kept and which targets may get it. The keeper itself adds the tenant's own place
to the name, so no declaration can name another tenant's secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from core.canonical import Json
from core.errors import ConfigurationError, InputError

REFERENCE = re.compile(r"\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]{0,62})\s*\}\}")
# Matches everything that looks like a reference: one in a text from outside never counts as an author's.
LIKE_REFERENCE = re.compile(r"\$\{\{\s*secrets\b")
_TARGET = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?(?: as (?P<account>\S.*))?\Z")


class Use(StrEnum):
    """The uses of a secret that is never sent: to check signatures of incoming requests, or to sign evidence."""

    INCOMING = "incoming"
    EVIDENCE = "evidence"


class Keeper(StrEnum):
    """The places that keep values of secrets."""

    ENVIRONMENT = "environment"
    FILE = "file"
    VAULT = "vault"
    AWS = "aws"


class SecretError(ConfigurationError):
    """A secret that cannot be read, or that its declaration does not allow here. The error never holds a value.

    ``again``: a later try may help, because the keeper of the value did not answer.
    """

    def __init__(self, message: str, *, remedy: str = "", again: bool = False) -> None:
        super().__init__(message, remedy=remedy)
        self.again = again


class Target(Struct, frozen=True):
    """A host that may get a secret, perhaps only at a port or for an account. Without ``port``: the scheme's port."""

    host: str
    port: int | None = None
    account: str | None = None

    @classmethod
    def of(cls, text: str) -> Target:
        """Read ``host``, ``host:port``, each maybe with ``as ACCOUNT``. ``InputError`` otherwise."""
        match = _TARGET.match(text)
        if match is None or int(match["port"] or 0) > 65535:
            raise InputError(f"{text[:80]!r} is no target.", remedy="Write host, host:port or host as account.")
        port = int(match["port"]) if match["port"] else None
        return cls(match["host"].strip("[]").lower(), port, match["account"])

    def covers(self, other: Target) -> bool:
        """True if a secret that is declared for this target may be sent to ``other``."""
        return (self.host, self.port) == (other.host, other.port) and self.account in (None, other.account)

    def __str__(self) -> str:
        port, account = f":{self.port}" if self.port else "", f" as {self.account}" if self.account else ""
        return f"{self.host}{port}{account}"


class Secret(Struct, frozen=True):
    """The declaration of a tenant's secret: its keeper, its name and key there, and the targets that may get it."""

    tenant: str
    name: str
    keeper: Keeper
    place: str
    key: str | None = None
    targets: tuple[Target, ...] = ()
    uses: tuple[Use, ...] = ()

    def check(self, target: Target | Use) -> None:
        """Raise ``SecretError`` unless the declaration names this target."""
        fits = target in self.uses if isinstance(target, Use) else any(one.covers(target) for one in self.targets)
        if not fits:
            words = f"The secret {self.name} of the tenant {self.tenant} is not for {target}."
            remedy = f"Name it under `for` of secrets.{self.name} in the tenant's settings, if it is meant."
            raise SecretError(words, remedy=remedy)


class Value(Struct, frozen=True):
    """The value of a secret from its keeper. ``version`` identifies the value without revealing anything of it."""

    text: str
    version: str

    def __repr__(self) -> str:
        return f"Value(version={self.version!r})"


class Vault(Protocol):
    """Reads values from their keepers. Safe for concurrent use; caches no value that is sent."""

    async def read(self, secret: Secret) -> Value:
        """The value now. ``SecretError`` names the secret, and never a value."""


def named_in(value: Json) -> Iterator[str]:
    """Yield the name of each secret that a value refers to, in texts at any depth."""
    if isinstance(value, str):
        yield from (match[1] for match in REFERENCE.finditer(value))
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from named_in(item)


def filled(value: Json, values: Mapping[str, str]) -> Json:
    """The value with every reference replaced, in texts at any depth. A filled-in value is not searched again."""
    if isinstance(value, str):
        return REFERENCE.sub(lambda match: values[match[1]], value)
    if isinstance(value, list):
        return [filled(item, values) for item in value]
    if isinstance(value, dict):
        return {name: filled(item, values) for name, item in value.items()}
    return value
