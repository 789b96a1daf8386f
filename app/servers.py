"""The MCP servers that the settings name: of the environment, and of each tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

from pydantic import SecretStr

from app.server_settings import McpServer
from connectors.hosts import AllowedHost
from connectors.lending import Lender, lending
from connectors.mcp.client import Server
from connectors.mcp.connector import McpConnector, McpServers
from connectors.port import SETTINGS, Connector
from core.secret_values import filled, named_in
from runtime.definition.tenant import TenantDocument, placed

Made: TypeAlias = Callable[[str, Mapping[str, str]], Connector]
# The placeholder for a value that is not read yet. Nothing is ever sent with it.
UNREAD = "unread"


def own(content: TenantDocument, values: Mapping[str, str]) -> dict[str, McpServer]:
    """The servers of a tenant's own settings; ``values`` are the values of the secrets that were read."""
    found: dict[str, McpServer] = {}
    for name, one in content.mcp.servers.items() if content.mcp is not None else ():
        known = {secret: values.get(secret, UNREAD) for text in one.headers.values() for secret in named_in(text)}
        headers = {header: SecretStr(str(filled(text, known))) for header, text in one.headers.items()}
        found[name] = McpServer.model_construct(url=one.url, headers=headers)  # what no header can hold is never sent
    return found


def connector_of(servers: Mapping[str, McpServer], hosts: tuple[AllowedHost, ...], owner: str) -> McpServers:
    """The connector ``mcp``. A server may have a private address only if the allowed hosts include it."""
    setting = f"mcp.servers of the tenant {owner}" if owner else SETTINGS["mcp"]
    made: dict[str, Connector] = {}
    for name, server in servers.items():
        url, headers = urlsplit(server.url), {one: text.get_secret_value() for one, text in server.headers.items()}
        port = None if url.port == {"https": 443, "http": 80}.get(url.scheme) else url.port
        listed = [one for one in hosts if (one.host, one.port) == ((url.hostname or "").lower(), port)]
        private = any(one.allow_private for one in listed)
        made[name] = McpConnector(Server(name, server.url, headers, private, setting))
    return McpServers(made, setting)


def lent(bare: Connector, content: TenantDocument | None, make: Made, lender: Lender) -> Connector:
    """The same servers, each with only its own credentials: a call of one server reads no secret of another."""

    def build(name: str, values: Mapping[str, str]) -> Connector:
        servers = make("mcp", values)
        assert isinstance(servers, McpServers), "made of the same settings as the bare ones"
        return servers.servers[name]

    def one(name: str, server: Connector) -> Connector:
        every = placed(content) if content is not None else ()
        parts = [(text, at) for path, text, at in every if path[:3] == ("mcp", "servers", name)]
        return lending(server, partial(build, name), lender, parts) if parts else server

    assert isinstance(bare, McpServers), "the connector of this name"
    return bare.each(one)
