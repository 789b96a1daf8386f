"""Accounts, rate limits and access rules of the ServiceNow stand-in."""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

INTEGRATION_USER: Final = "counterseal.integration"


@dataclass(frozen=True, slots=True)
class AclRule:
    """Denies ``user`` (``*``: everybody) an operation on a table. A record whose read is denied seems not to exist."""

    table: str
    operation: str  # read | create | write | delete
    user: str = "*"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """Denies ``user`` one field, silently as in the real system: a hidden field is absent from answers that say 200,
    and a write of a protected one is dropped by a write that answers 200."""

    table: str
    field: str
    operation: str  # read | write
    user: str = "*"


@dataclass(frozen=True, slots=True)
class RateRule:
    """At most ``limit`` requests per user in each window of ``seconds`` (ServiceNow's own rules count by the hour)."""

    limit: int
    seconds: int = 3600
    name: str = "sandbox rate limit"


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts. ``passwords``: user -> password, for basic auth. ``clients``: client_id -> (secret, user)."""

    passwords: Mapping[str, str] = field(
        default_factory=lambda: {INTEGRATION_USER: "sandbox", "ana.lee": "sandbox", "raj.quist": "sandbox"}
    )
    clients: Mapping[str, tuple[str, str]] = field(
        default_factory=lambda: {"counterseal": ("sandbox-secret", INTEGRATION_USER)}
    )
    token_seconds: int = 1800


DEFAULT_ACL: Final = (
    AclRule("sys_user", "create"),
    AclRule("sys_user", "write"),
    AclRule("sys_user", "delete"),
    AclRule("sys_user_group", "create"),
    AclRule("sys_user_group", "write"),
    AclRule("sys_user_group", "delete"),
    AclRule("sys_journal_field", "create"),
    AclRule("sys_journal_field", "write"),
    AclRule("sys_journal_field", "delete"),
)


class Access:
    """Tokens and counters. Holds no records."""

    def __init__(
        self,
        accounts: Accounts,
        acl: tuple[AclRule, ...],
        rate: RateRule | None,
        clock: Callable[[], float],
        fields: tuple[FieldRule, ...] = (),
    ) -> None:
        self.accounts = accounts
        self.acl = acl
        self.fields = fields
        self.rate = rate
        self._clock = clock
        self._tokens: dict[str, tuple[str, float]] = {}
        self._used: dict[tuple[str, int], int] = {}

    def issue(self, client_id: str, secret: str) -> tuple[str, int] | None:
        """A bearer token and its lifetime in seconds, or None for wrong credentials."""
        known, user = self.accounts.clients.get(client_id, ("", ""))
        if not known or not hmac.compare_digest(known.encode(), secret.encode()):
            return None
        token = secrets.token_urlsafe(32)
        self._tokens[token] = (user, self._clock() + self.accounts.token_seconds)
        return token, self.accounts.token_seconds

    def user(self, authorization: str) -> str | None:
        """The user behind an Authorization header, or None."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer":
            user, expires = self._tokens.get(value.strip(), ("", 0.0))
            return user if user and self._clock() < expires else None
        if scheme.lower() == "basic":
            return self._basic(value.strip())
        return None

    def _basic(self, value: str) -> str | None:
        try:
            name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        known = self.accounts.passwords.get(name)
        return name if known and hmac.compare_digest(known.encode(), password.encode()) else None

    def allows(self, user: str, table: str, operation: str) -> bool:
        return not any(
            rule.table == table and rule.operation == operation and rule.user in ("*", user) for rule in self.acl
        )

    def denied(self, user: str, table: str, operation: str) -> frozenset[str]:
        """The fields that this user may not read or write."""
        return frozenset(
            rule.field
            for rule in self.fields
            if rule.table == table and rule.operation == operation and rule.user in ("*", user)
        )

    def count(self, user: str) -> tuple[bool, dict[str, str]]:
        """Count one request. Return True if it is within the rate rule, and the headers with the rate limit."""
        if self.rate is None:
            return True, {}
        now = self._clock()
        window = int(now // self.rate.seconds)
        reset = (window + 1) * self.rate.seconds
        used = self._used.get((user, window), 0) + 1
        self._used[(user, window)] = used
        headers = {
            "X-RateLimit-Limit": str(self.rate.limit),
            "X-RateLimit-Reset": str(reset),
            "X-RateLimit-Rule": self.rate.name,
        }
        if used <= self.rate.limit:
            return True, headers
        return False, headers | {"Retry-After": str(max(1, math.ceil(reset - now)))}
