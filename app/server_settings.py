"""The settings of the environment's MCP servers. This module imports little: every command reads the settings."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

from connectors.headers import canonical_headers
from connectors.hosts import SERVER_PATTERN
from core.errors import InputError


def web_address(value: str) -> str:
    """The address. ``ValueError`` if it is no web address."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is not an http:// or https:// URL")
    return value


class McpServer(BaseModel):
    """One server of tools: its address, and headers that Counterseal adds to each request to it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    url: Annotated[str, AfterValidator(web_address)]
    headers: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("headers")
    @classmethod
    def _sendable(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        try:
            canonical_headers({name: text.get_secret_value() for name, text in value.items()})
        except InputError as error:
            raise ValueError(error.message) from None
        return value


def _named(value: dict[str, McpServer]) -> dict[str, McpServer]:
    for name in value:
        if not re.fullmatch(SERVER_PATTERN, name):
            raise ValueError(f"the server {name[:80]!r} is not lower-case letters, digits and _")
    return value


Servers: TypeAlias = Annotated[dict[str, McpServer], AfterValidator(_named)]
