"""Tools of an agent: the operations, people and workflows that a model may call, and the arguments that it may give.

The schema that a model is offered is only a help. ``read`` decides: it makes the operation's whole input from the text
of a call's arguments and the inputs that the author fixed, or says why that is not possible.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

from jsonschema_rs import Draft202012Validator
from msgspec import Struct

from connectors.disclosure import leaves, resolved
from connectors.operation import Operation
from connectors.schema import misfit, validator_of
from core.bounded_json import parse_object
from core.canonical import Json, JsonObject, sha256_hex
from core.errors import InputError

TOOLS_MAX = 128
NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 1024
QUESTION_CHARS_MAX = 2000
_UNUSABLE = re.compile(r"[^a-zA-Z0-9_-]")
# Keywords that servers refuse at the top of a tool's parameters. The check of the input still applies them.
_NOT_AT_THE_TOP = (
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const"),
    *("dependentSchemas", "dependentRequired", "$schema", "$id"),
)
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")  # names, not keywords


class ToolKind(StrEnum):
    """The kind of step that a call of a tool becomes."""

    OPERATION = "operation"
    PEOPLE = "people"
    WORKFLOW = "workflow"


class Tool(Struct, frozen=True, dict=True):
    """One tool of an agent, frozen with its run.

    ``source`` is the operation, the workflow (``owner-check@2``) or the id of the question to people. ``schema`` is
    that of the whole input. The model never gives the arguments in ``fixed``, nor secret ones. ``params`` are arguments
    outside the schema, which the declaration itself fixes.
    """

    name: str
    kind: ToolKind
    source: str
    description: str
    schema: JsonObject
    fixed: frozenset[str] = frozenset()
    params: frozenset[str] = frozenset()

    @cached_property
    def parameters(self) -> JsonObject:
        """The schema of the model's arguments: without fixed ones, without secrets, without keywords ``x-…``."""
        offered = _offered(self.schema, self.schema, "", self.fixed)
        made = {name: item for name, item in offered.items() if name not in _NOT_AT_THE_TOP}
        return {"type": "object", "properties": {}, **made}

    @cached_property
    def validator(self) -> Draft202012Validator:
        """The validator of the whole input."""
        return validator_of(self.schema)

    def offer(self) -> JsonObject:
        """The tool as an OpenAI-compatible server takes it."""
        words: JsonObject = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": {name: item for name, item in words.items() if item != ""}}

    def read(self, text: str, fixed: Mapping[str, Json]) -> JsonObject:
        """The input of a call: the model's arguments with the fixed ones. ``InputError`` is for the model to read."""
        where = "arguments"
        given = parse_object(text.encode(errors="replace"), where=where) if text.strip() else {}
        taken = sorted(given.keys() & (self.fixed | self.params | fixed.keys()))
        if taken:
            raise InputError("is fixed, so it cannot be given", where=f"{where}.{taken[0]}")
        hidden = next((leaf.path for leaf in leaves(self.schema, given) if leaf.secret), None)
        if hidden is not None:
            raise InputError("is secret, so a model cannot give it", where=f"{where}{hidden.replace('/', '.')}")
        value: JsonObject = {**given, **fixed}
        if not self.validator.is_valid(value):
            raise misfit(self.validator, value, where=where)
        return value


def tool_name(source: str) -> str:
    """The tool's name for models, such as ``servicenow_incident_get``. A long one is cut and ends in a digest."""
    plain = _UNUSABLE.sub("_", source)
    if len(plain) <= NAME_CHARS_MAX:
        return plain
    return f"{plain[: NAME_CHARS_MAX - 9]}_{sha256_hex(source.encode())[:8]}"


def of_operation(operation: Operation, *, fixed: Collection[str] = (), name: str | None = None) -> Tool:
    """The tool that calls an operation."""
    named = tool_name(name or operation.name)
    words, params = operation.description or operation.name, frozenset(operation.params)
    schema = operation.input_schema
    return Tool(named, ToolKind.OPERATION, operation.name, _cut(words), schema, frozenset(fixed), params)


def of_people(ask: str, title: str, form: JsonObject) -> Tool:
    """The tool that asks people: the model words the question, and a person fills in the author's form."""
    properties = form.get("properties")
    asked = ", ".join(properties) if isinstance(properties, dict) else ""
    words = f"Ask a person: {title}." + (f" The answer holds {asked}." if asked else "")
    question: JsonObject = {"type": "string", "minLength": 1, "maxLength": QUESTION_CHARS_MAX}
    schema: JsonObject = {
        "type": "object",
        "additionalProperties": False,
        "required": ["question"],
        "properties": {"question": question},
    }
    return Tool(tool_name(ask), ToolKind.PEOPLE, ask, _cut(words), schema)


def of_workflow(
    reference: str, title: str, trigger: JsonObject | None, *, fixed: Collection[str] = (), name: str | None = None
) -> Tool:
    """The tool that runs a workflow (``owner-check@2``); ``trigger`` is the schema of its input."""
    schema: JsonObject = trigger if trigger is not None else {"type": "object"}
    words = f"Run the workflow {title or reference}, and wait for its result."
    return Tool(tool_name(name or reference), ToolKind.WORKFLOW, reference, _cut(words), schema, frozenset(fixed))


def problems(tools: Sequence[Tool]) -> Iterator[str]:
    """Find the problems of an agent's tools. The check of the workflow reports them."""
    if len(tools) > TOOLS_MAX:
        yield f"an agent has {TOOLS_MAX} tools at most, and this one has {len(tools)}"
    taken: dict[str, str] = {}
    for tool in tools:
        other = taken.setdefault(tool.name, tool.source)
        if tool is not next(one for one in tools if one.name == tool.name):
            yield f"{other} and {tool.source} are both called {tool.name!r}; give one of them a name of its own"
        yield from (f"{tool.source}: {problem}" for problem in _unusable(tool))


def _unusable(tool: Tool) -> Iterator[str]:
    properties = resolved(tool.schema, tool.schema).get("properties")
    known = properties if isinstance(properties, dict) else {}
    if not tool.name:
        yield "needs a name"
    if resolved(tool.schema, tool.schema).get("additionalProperties") is False:
        yield from (f"fixes {name!r}, which is no input of it" for name in sorted(tool.fixed - known.keys()))
    for path in _required_secrets(tool.schema, tool.schema, "", 0):
        if path.split(".")[0] not in tool.fixed:
            yield f"needs {path}, which is secret and never offered to a model; fix {path.split('.')[0]}"


def _required_secrets(root: JsonObject, schema: Json, path: str, depth: int) -> Iterator[str]:
    """The paths of the secrets that an input requires, followed only through required objects."""
    here = resolved(root, schema)
    required, properties = here.get("required"), here.get("properties")
    if depth > NAME_CHARS_MAX or not isinstance(required, list) or not isinstance(properties, dict):
        return
    for name in required:
        inner = properties.get(str(name))
        if _secret(root, inner, 0):
            yield f"{path}{name}"
        else:
            yield from _required_secrets(root, inner, f"{path}{name}.", depth + 1)


def _secret(root: JsonObject, schema: Json, depth: int) -> bool:
    """True if a value of this schema is secret, or is a list or map of secrets."""
    here = resolved(root, schema)
    if here.get("x-secret") is True:
        return True
    return depth < NAME_CHARS_MAX and "items" in here and _secret(root, here["items"], depth + 1)


def _offered(root: JsonObject, schema: JsonObject, parent: str, less: Collection[str] = ()) -> JsonObject:
    """A schema without the properties ``less``, without secrets at any depth and without keywords ``x-…``."""
    if parent in _NAMED:
        return {name: _inner(root, item, "") for name, item in schema.items()}
    made: JsonObject = {}
    properties = schema.get("properties")
    hidden = {*less}
    if isinstance(properties, dict):
        hidden |= {name for name, item in properties.items() if _secret(root, item, 0)}
    for keyword, item in schema.items():
        if keyword.startswith("x-") or (keyword == "additionalProperties" and _secret(root, item, 0)):
            continue
        if keyword == "required" and isinstance(item, list):
            item = [name for name in item if name not in hidden]
            if not item:
                continue
        if keyword == "properties" and isinstance(item, dict):
            item = {name: inner for name, inner in item.items() if name not in hidden}
        made[keyword] = _inner(root, item, keyword)
    if _secret(root, schema.get("additionalProperties"), 0):
        made["additionalProperties"] = False
    return made


def _inner(root: JsonObject, value: Json, parent: str) -> Json:
    if parent in ("const", "enum", "default", "examples"):
        return value
    if isinstance(value, list):
        return [_inner(root, item, "") for item in value]
    return _offered(root, value, parent) if isinstance(value, dict) else value


def _cut(words: str) -> str:
    return words if len(words) <= DESCRIPTION_CHARS_MAX else f"{words[: DESCRIPTION_CHARS_MAX - 1]}…"
