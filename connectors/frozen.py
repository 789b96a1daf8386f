"""Tools of other servers (Model Context Protocol), frozen in declarations as they were when a person reviewed them.

All that a server says of a tool is data from outside: the declaration holds it word for word under ``tool``, and its
digest in ``params``, so every action and every approval binds it. What it says of itself allows nothing: each tool is
declared as a write of high risk whose doubts people decide, until a person writes something else.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from connectors.hosts import SERVER_PATTERN
from connectors.marks import FORMATS
from connectors.operation import InDoubtRule, Kind, Operation
from core.canonical import Json, JsonObject, canonical_bytes, digest
from core.errors import InputError

MCP, CALL = "mcp", "mcp:call"
SERVER, URL, TOOL, DEFINITION = "mcp_server", "mcp_url", "mcp_tool", "mcp_definition"
PARAMS = (SERVER, URL, TOOL, DEFINITION)
CONTENT, STRUCTURED = "content", "structured"
# The words of a server about a tool that are frozen: a person has read them, or they say how it is called.
FROZEN = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution")
DEFINITION_BYTES_MAX = 64 * 1024
TOOL_CHARACTERS_MAX = 128

_DIALECTS = re.compile(r"https?://json-schema\.org/(draft/2020-12|draft/2019-09|draft-07)/schema#?")
# Our own marks: a server's schema that holds them would decide what is secret or shown, and who is believed.
_MARKS = frozenset({"x-evidence", "x-secret", "x-language", "x-argument", "x-written-by", "x-records"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples", "example", "required", "dependentRequired"})
_HEADER = "x-mcp-header"
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cn", "Zl", "Zp"})


class Tool(Struct, frozen=True):
    """A tool as its server tells it now: the words that are frozen, and their digest."""

    name: str
    definition: JsonObject
    digest: str


def tool_of(listed: Json) -> Tool:
    """Read one item of a server's list. ``InputError`` if it is no tool, or has no digest."""
    name = listed.get("name") if isinstance(listed, dict) else None
    if not isinstance(listed, dict) or not isinstance(name, str) or not 0 < len(name) <= TOOL_CHARACTERS_MAX:
        raise InputError(f"is no tool with a name of at most {TOOL_CHARACTERS_MAX} characters", where="tools")
    definition: JsonObject = {key: listed[key] for key in FROZEN if listed.get(key) is not None}
    if len(canonical_bytes(definition)) > DEFINITION_BYTES_MAX:
        raise InputError(f"is described by more than {DEFINITION_BYTES_MAX} bytes", where=repr(name))
    return Tool(name, definition, digest(definition))


def operation_name(server: str, tool: str) -> str:
    """The name of a tool's operation: ``mcp.crm.create_ticket`` for ``create-ticket`` and ``createTicket``."""
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", tool).lower()
    word = re.sub(r"[^a-z0-9_]", "_", word)
    return f"{MCP}.{server}.{word if re.match(r'[a-z]', word) else f't_{word}'}"


def check_names(server: str, tools: Iterable[str]) -> dict[str, str]:
    """The tool of each operation's name. ``InputError`` names tools that are listed twice, or would share a name."""
    found: dict[str, str] = {}
    for tool in tools:
        name = operation_name(server, tool)
        if name in found:
            both = f"{found[name]!r} twice" if found[name] == tool else f"{found[name]!r} and {tool!r}"
            raise InputError(
                f"has {both}, which would be one operation, {name}",
                where=server,
                remedy="Import one of them (`--tool`), and give it a name of its own: `connector: mcp`.",
            )
        found[name] = tool
    return found


def declared(server: str, url: str, tool: Tool) -> JsonObject:
    """The declaration of a tool, for a person to review. ``InputError`` if it cannot be declared."""
    definition = tool.definition
    if _object(definition.get("execution")).get("taskSupport") == "required":
        raise InputError("can only be called as a task, which Counterseal does not do", where=repr(tool.name))
    inputs = _own(definition.get("inputSchema"), tool.name, "")
    if inputs.get("type") != "object":
        raise InputError("has an input schema without `type: object`", where=repr(tool.name))
    if taken := sorted({*PARAMS} & {*_object(inputs.get("properties"))}):
        raise InputError(f"has an input {taken[0]}, which is a name that Counterseal needs", where=repr(tool.name))
    outputs: JsonObject = {CONTENT: {"type": "array", "items": {"type": "object"}}}
    if "outputSchema" in definition:
        outputs[STRUCTURED] = _own(definition["outputSchema"], tool.name, f"/properties/{STRUCTURED}", output=True)
    params: JsonObject = {SERVER: server, URL: url, TOOL: tool.name, DEFINITION: tool.digest}
    words = definition.get("description")
    return {
        "name": operation_name(server, tool.name),
        "description": words if isinstance(words, str) else "",
        "handler": CALL,
        "params": params,
        "side_effects": "external_call",
        "risk": "high",
        "title": f"Call a tool of {server}?",
        "summary": f"Call {{{TOOL}}} of {{{SERVER}}}",
        "target": f"{{{URL}}} {{{TOOL}}}",
        "in_doubt": "ask",
        "timeouts": {"perform": "PT60S"},
        "input_schema": inputs,
        "output_schema": {"type": "object", "required": [*outputs], "properties": outputs},
        "tool": definition,
    }


def _own(schema: Json, tool: str, at: str, *, output: bool = False) -> JsonObject:
    """A server's schema as a declaration may have it: without our marks, its references moved to where it stands."""
    if not isinstance(schema, dict):
        raise InputError("has a schema that is no object", where=repr(tool))
    dialect = schema.get("$schema")
    if dialect is not None and not (isinstance(dialect, str) and _DIALECTS.fullmatch(dialect)):
        raise InputError(f"has a schema in a dialect that is not known: {dialect!r}", where=repr(tool))
    made = _walked(schema, tool, at, output=output)
    assert isinstance(made, dict)
    return made


def _walked(schema: Json, tool: str, at: str, *, output: bool) -> Json:
    if isinstance(schema, list):
        return [_walked(item, tool, at, output=output) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if _HEADER in schema:
        raise InputError(f"sends inputs as headers ({_HEADER}), which Counterseal does not do", where=repr(tool))
    made: JsonObject = {}
    for key, value in schema.items():
        if key in _MARKS or key == "$schema" or (key == "format" and (output or value not in FORMATS)):
            continue
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: _walked(one, tool, at, output=output) for name, one in value.items()}
        elif key in _VALUES:
            made[key] = value
        elif key == "$ref" and isinstance(value, str) and value.startswith("#"):
            made[key] = f"#{at}{value[1:]}"
        else:
            made[key] = _walked(value, tool, at, output=output)
    return made


def hints(tool: Tool) -> list[str]:
    """The words of a server about a tool that nobody has verified, one a line, in characters that can be seen."""
    definition = tool.definition
    facts = {"title": definition.get("title"), **_object(definition.get("annotations"))}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}"[:300] for name, value in facts.items() if value is not None]
    text = json.dumps(definition, ensure_ascii=False)
    unseen = sorted({f"U+{ord(char):04X}" for char in text if unicodedata.category(char) in _UNSEEN})
    if unseen:
        lines.append(f"ITS WORDS HOLD CHARACTERS THAT CANNOT BE SEEN: {', '.join(unseen[:20])}")
    return lines


def differing(frozen: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The keys in which two definitions differ."""
    return [key for key in FROZEN if frozen.get(key) != now.get(key)]


def faults_of(operation: Operation) -> Iterator[tuple[str, str, str]]:
    """Yield the faults of a declaration of a tool: key, fault, remedy."""
    again = "Import it: `counterseal operation import mcp SERVER`."
    params = operation.params
    if operation.handler != CALL:
        yield "handler", f"there is no handler {operation.handler!r}.", f"It is {CALL}."
        return
    if {*params} != {*PARAMS} or not all(isinstance(value, str) for value in params.values()):
        yield "params", f"params are the texts {', '.join(PARAMS)}.", again
        return
    if operation.tool is None or digest(operation.tool) != params[DEFINITION]:
        yield "tool", f"params.{DEFINITION} is not the digest of `tool`.", again
        return
    if operation.tool.get("name") != params[TOOL]:
        yield "params", f"params.{TOOL} is not the name in `tool`.", again
    if re.fullmatch(SERVER_PATTERN, params[SERVER]) is None:
        yield "params", f"params.{SERVER} is no name of a server.", again
    if operation.name.startswith(f"{MCP}.") and operation.name != operation_name(params[SERVER], params[TOOL]):
        remedy = "Choose a name that does not begin with `mcp.`, and declare `connector: mcp`."
        yield "name", f"the tool is {operation_name(params[SERVER], params[TOOL])}.", remedy
    if operation.kind is not Kind.SYNC:
        yield "kind", f"{CALL} answers within its call.", "Declare `kind: sync`."
    if operation.has_effect and operation.in_doubt is not InDoubtRule.ASK:
        yield "in_doubt", "A server cannot tell if an earlier call took effect.", "Declare `in_doubt: ask`."
    if operation.diff is not None:
        yield "diff", "A tool has nothing that could be read first.", "Take it out."


def taken(operation: Operation, known: Operation | None) -> str:
    """Say which other tool has the name already; "" if none has."""
    if known is None or operation.handler != CALL or known.handler != CALL:
        return ""
    one, other = ((each.params.get(SERVER), each.params.get(TOOL)) for each in (operation, known))
    return (
        "" if one == other else f"is the tool {other[1]!r} of {other[0]} already, and would be {one[1]!r} of {one[0]}"
    )


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
