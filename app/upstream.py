"""The tools of a tenant's MCP servers for review: declarations to import, and their differences from the tools now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct

from app.faces import Faces
from connectors.catalog import Source, load_catalog
from connectors.frozen import CALL, DEFINITION, SERVER, TOOL, Tool, check_names, declared, differing, hints, tool_of
from connectors.lending import Lending
from connectors.mcp.connector import McpConnector, McpServers
from connectors.operation import Operation
from connectors.port import Connectors, NotSent, Refused
from core.canonical import Json, JsonObject
from core.errors import ConfigurationError, DefinitionError, InputError, TransportError, nearest
from runtime.definition.difference import difference, lines_of
from runtime.requests import declaring
from runtime.store import operations

_HEAD = """\
# A tool of the MCP server {server}, as it described itself. Nobody has verified a word of it.
# Read it, and what it would do. Say what is true: side_effects, risk, which values evidence may show.
# Then: counterseal operation publish FILE. Whatever the server changes in its own words stops this operation.
"""


class Imported(Struct, frozen=True):
    """Declarations of a server's tools, by name, as documents. ``left_out`` says why others cannot be declared."""

    documents: Mapping[str, str]
    left_out: Mapping[str, str]


class Compared(Struct, frozen=True):
    """A published operation compared with the server's tool of now: ``same``, ``changed`` or ``gone``.

    A tool that is not published at all is ``new``.
    """

    name: str
    tool: str
    state: str
    lines: Sequence[str] = ()


async def imported(faces: Faces, tenant: str, server: str, wanted: Sequence[str] = ()) -> Imported:
    """The declarations of a server's tools, or of the ``wanted`` ones. ``InputError`` names tools whose names clash."""
    url, listed = await _listed(faces, tenant, server)
    read, left_out = _read(listed)
    if unknown := sorted({*wanted} - {one.name for one in read} - {*left_out}):
        names = nearest(unknown[0], [one.name for one in read], "It has")
        raise InputError(f"has no tool {unknown[0]!r}.", where=server, remedy=names)
    chosen = [one for one in read if not wanted or one.name in wanted]
    check_names(server, [one.name for one in chosen])
    known = (await faces.ask(tenant, faces.definitions.published)).operations
    documents: dict[str, str] = {}
    for one in chosen:
        try:
            made = declared(server, url, one)
            documents[str(made["name"])] = _document(server, made, one, known)
        except InputError as error:
            left_out[one.name] = str(error)
        except DefinitionError as error:
            left_out[one.name] = "; ".join(problem.message for problem in error.problems)
    return Imported(documents, {name: why for name, why in left_out.items() if not wanted or name in wanted})


async def compared(faces: Faces, tenant: str, server: str) -> list[Compared]:
    """Compare each published operation of a server with its tool of now, and list the tools that are not published."""
    _, listed = await _listed(faces, tenant, server)
    now: dict[str, list[Json]] = {}
    for one in listed:
        now.setdefault(str(one.get("name") if isinstance(one, dict) else None), []).append(one)
    found = []
    for stored in await faces.ask(tenant, operations.newest):
        operation: dict[str, Any] = orjson.loads(stored.source)
        if operation["handler"] == CALL and operation["params"][SERVER] == server:
            tool = operation["params"][TOOL]
            found.append(_comparison(stored.name, operation, now.pop(tool, [])))
    return [*found, *(Compared("", name, "new") for name in sorted(now))]


def _comparison(name: str, operation: Mapping[str, Any], now: Sequence[Json]) -> Compared:
    tool, frozen = operation["params"][TOOL], operation["tool"]
    if len(now) != 1:
        return Compared(name, tool, "listed more than once" if now else "gone")
    try:
        read = tool_of(now[0])
    except InputError as error:
        return Compared(name, tool, "changed", [str(error)])
    if read.digest == operation["params"][DEFINITION]:
        return Compared(name, tool, "same")
    lines = list[str]()
    for key in differing(frozen, read.definition):
        lines += [f"{key}:", *(f"  {line}" for line in difference(_of(frozen, key), _of(read.definition, key)))]
    return Compared(name, tool, "changed", lines)


def _of(definition: Mapping[str, Json], key: str) -> list[str]:
    return lines_of(definition[key]) if key in definition else []


async def _listed(faces: Faces, tenant: str, server: str) -> tuple[str, list[Json]]:
    """The address of a server, and its list of tools now. ``TransportError`` if it cannot be read."""
    found = _server(tenant, (await faces.outside(tenant)).connectors, server)
    connector = await found.lent() if isinstance(found, Lending) else found
    assert isinstance(connector, McpConnector), "servers are of this kind"
    listed = await connector.listed()
    if isinstance(listed, Refused | NotSent):
        raise TransportError(f"{listed.message}.")
    return connector.url, listed


def _server(tenant: str, connectors: Connectors, server: str) -> object:
    servers = connectors["mcp"]
    assert isinstance(servers, McpServers), "the connector of this name"
    if server not in servers.servers:
        words = f"the tenant {tenant} has no MCP server {server!r}."
        raise ConfigurationError(words, remedy=nearest(server, servers.servers))
    return servers.servers[server]


def _read(listed: Sequence[Json]) -> tuple[list[Tool], dict[str, str]]:
    """The tools of a list, and the reasons why some items are no tools."""
    read, left_out = list[Tool](), dict[str, str]()
    for at, one in enumerate(listed):
        try:
            read.append(tool_of(one))
        except InputError as error:
            name = one.get("name") if isinstance(one, dict) else None
            left_out[name if isinstance(name, str) else f"[{at}]"] = str(error)
    return read, left_out


def _document(server: str, made: JsonObject, tool: Tool, known: Mapping[str, Operation]) -> str:
    """A declaration as a document for publishing. ``DefinitionError`` says why it cannot be published."""
    name = str(made["name"])
    notes = "".join(f"# It says of itself (unverified, allows nothing): {line}\n" for line in hints(tool))
    text = declaring.document([made])
    if _reads(name, text, known) != made["params"]:
        text = json.dumps({"operations": [made]}, indent=2) + "\n"  # JSON is YAML, too
        _reads(name, text, known)
    return f"{_HEAD.format(server=server)}{notes}{text}"


def _reads(name: str, text: str, known: Mapping[str, Operation]) -> JsonObject | None:
    try:
        return load_catalog([Source(name, text)], known).get(name).params
    except DefinitionError:
        if text.startswith("{"):
            raise
        return None


def words_of(found: Sequence[Compared]) -> Iterator[str]:
    """The comparison, line by line."""
    for one in found:
        yield f"{one.name or '(not published)'}: {one.tool} is {one.state}"
        yield from (f"  {line}" for line in one.lines)
