"""Drafts declarations of an agent's tools from a list by its framework or server, for a person to review.

A list is not trusted: its descriptions and hints become comments, and every tool counts as high risk. Two forms are
read: an answer to MCP's ``tools/list``, and functions in the form of OpenAI's API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from connectors.catalog import Source, load_catalog
from core.bounded_json import parse
from core.canonical import Json, JsonObject, canonical_bytes, clean
from core.errors import DefinitionError, InputError

LIST_BYTES_MAX = 4 * 1024 * 1024
TOOLS_MAX = 1000
NAME_CHARACTERS_MAX = 128
_NAME = re.compile(r"[A-Za-z0-9_.\-/ ]{1,128}")
# Keys by which a schema names itself; they are dropped, because the operation has its own name.
_OF_ITSELF = ("$schema", "$id")


class Tool(Struct, frozen=True):
    """A tool as its list describes it. ``hints`` are the server's own words, which nobody has checked."""

    name: str
    description: str
    schema: JsonObject
    hints: JsonObject


class Draft(Struct, frozen=True):
    """A drafted declaration: its file, its text, the operation and the tool; ``problem`` if it cannot be published."""

    file: str
    text: str
    operation: str
    tool: str
    problem: str


def drafts(data: bytes, where: str, prefix: str = "tools") -> list[Draft]:
    """Draft a declaration for each tool of a list. ``InputError`` if it is no list of tools, or names one twice."""
    made: dict[str, Draft] = {}
    for tool in _tools(parse(data, bytes_max=LIST_BYTES_MAX, where=where), where):
        draft = _draft(tool, prefix)
        if (other := made.get(draft.operation)) is not None:
            words = f"the tools {other.tool!r} and {tool.name!r} would both be {draft.operation}"
            raise InputError(words, where=where, remedy="Take one of them out, and declare it by hand.")
        made[draft.operation] = draft
    if not made:
        raise InputError("names no tool", where=where)
    return [*made.values()]


def _tools(found: Json, where: str) -> Iterator[Tool]:
    if isinstance(found, dict):
        inner = next((found[name] for name in ("result", "tools", "functions") if name in found), None)
        if isinstance(inner, dict | list):
            yield from _tools(inner, where)
            return
    listed = found if isinstance(found, list) else [found]
    if len(listed) > TOOLS_MAX:
        raise InputError(f"has {len(listed)} tools; at most {TOOLS_MAX} are read", where=where)
    for at, each in enumerate(listed):
        yield _tool(each, f"{where}[{at}]")


def _tool(found: Json, where: str) -> Tool:
    """Read a tool in either form. ``InputError`` if it has neither."""
    function = found.get("function") if isinstance(found, dict) else None
    declared: Mapping[str, Json] = function if isinstance(function, dict) else found if isinstance(found, dict) else {}
    name, schema = declared.get("name"), declared.get("inputSchema", declared.get("parameters", {"type": "object"}))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(schema, dict):
        remedy = "Give an answer to tools/list of MCP, or functions with `name` and `parameters`."
        raise InputError("is no tool with a plain name and a schema", where=where, remedy=remedy)
    hints, words = declared.get("annotations"), declared.get("description")
    return Tool(name, str(words or ""), schema, hints if isinstance(hints, dict) else {})


def _draft(tool: Tool, prefix: str) -> Draft:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", tool.name)
    slug = re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")[:80] or "tool"
    slug = slug if slug[0].isalpha() else f"t_{slug}"
    operation, schema = f"{prefix}.{slug}", {name: each for name, each in tool.schema.items() if name not in _OF_ITSELF}
    schema["type"] = schema.get("type", "object")
    text = "\n".join(
        [
            "# Drafted by `counterseal tools import`: look at it, change it, then `counterseal operation publish` it.",
            *_comment("The list says, and nobody has checked it", tool.description),
            *_comment("Hints of the server, unverified, which allow nothing", _json(tool.hints) if tool.hints else ""),
            "# Mark each argument that is a secret with `x-secret: true`: such a call is refused.",
            "operations:",
            f"  - name: {operation}",
            "    connector: agent",
            f"    agent_tool: {_json(tool.name)}",
            "    handler: agent:call",
            "    side_effects: external_call",
            "    risk: high",
            f"    summary: {_json(f'Call the tool {tool.name}')}",
            f"    target: {_json(f'tool/{tool.name}')}",
            "    in_doubt: ask",
            f"    input_schema: {_json(schema)}",
            "    output_schema: {type: object}",
            "",
        ]
    )
    return Draft(f"{slug}.yaml", text, operation, tool.name, _problem(text, f"{slug}.yaml"))


def _problem(text: str, file: str) -> str:
    try:
        load_catalog([Source(file, text)])
    except DefinitionError as error:
        return str(error)
    return ""


def _comment(title: str, words: str) -> list[str]:
    """Turn words of a list into comments, line by line, so that none of them is read as a declaration."""
    lines = re.split(r"[\r\n\x85\u2028\u2029]+", clean(words, 4000).strip())
    plain = ["".join(one if one.isprintable() else " " for one in line)[:200] for line in lines]
    return [f"# {title}:", *(f"#   {line}" for line in plain if line)] if any(plain) else []


def _json(value: Json) -> str:
    return canonical_bytes(value).decode()
