"""Declarations of operations: what a connector can do, with all facts that governance needs.

A declaration is authored in YAML, validated here, and frozen; each step of a run stores its ``digest`` when the
run is created.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, TypeAlias

from jsonschema_rs import Draft202012Validator, ValidationError
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from connectors.marks import check_marks
from connectors.parts import NAME_PATTERN, Diff, Idempotency, JsonDocument, Part, Retry, Reverse, TimedOut, Timeouts
from connectors.schema import check_keywords, check_references, validator_of
from core.action import Risk, SideEffects
from core.canonical import Json, JsonObject, canonical_bytes, digest
from core.errors import InputError, path_text

# A placeholder: ``{fields.priority}``, or ``{facts.number|sys_id}`` for the first path that has a value.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.]*(?:\|[A-Za-z_][\w.]*)*)\}")
Paths: TypeAlias = tuple[tuple[str, ...], ...]

TITLE_LENGTH_MAX = 150
# The handler whose headers may hold secrets, whatever its declaration says.
HTTP = "http:send"
HANDLER_PATTERN = r"^[a-z][a-z0-9_]*:[a-z][a-z0-9_]*$"


@cache
def text_parts(text: str) -> tuple[str | Paths, ...]:
    """The plain pieces of a declared text and its placeholders, each placeholder as its alternative paths."""
    return tuple(
        tuple(tuple(path.split(".")) for path in piece.split("|")) if at % 2 else piece
        for at, piece in enumerate(_PLACEHOLDER.split(text))  # every other piece is a placeholder
        if piece
    )


def _placeholders(text: str) -> list[tuple[str, ...]]:
    return [path for part in text_parts(text) if not isinstance(part, str) for path in part]


class Kind(StrEnum):
    """The kind of operation: SYNC answers within its call, DURABLE parks the run until an outside process ends."""

    SYNC = "sync"
    DURABLE = "durable"


class InDoubtRule(StrEnum):
    """The way to resolve a doubt after a crash or timeout between intent and outcome."""

    IDEMPOTENT = "idempotent"
    PROBE = "probe"
    ASK = "ask"


# The connector of tools that an agent carries out itself.
AGENT = "agent"
# The connectors that only compute, without a call to an outside system.
INSIDE = frozenset({"transform"})


class Operation(Part):
    """One operation, as declared. Its handler (``servicenow:update``) starts with the connector.

    Its name does too, unless ``connector`` is declared. ``params`` are fixed inputs that no workflow can change.
    ``written_by`` are the places in its output that name the last writers (``/rows/*/changed_by``). ``subject`` is the
    input that names the person whom the action is about (``{user}``): that person does not decide on it (promise 12).
    ``tool`` is the description that a tool's server gave when the tool was imported (``connectors.frozen``).
    ``agent_tool`` is the name by which an agent calls it, if the agent carries it out itself under another name.
    """

    LATER: ClassVar[frozenset[str]] = frozenset(
        {"owner", "params", "on_timeout", "written_by", "title", "link", "subject", "tool", "agent_tool"}
    )
    name: str = Field(pattern=NAME_PATTERN)
    owner: str | None = Field(default=None, alias="connector", pattern=r"^[a-z][a-z0-9_]*$")
    agent_tool: str | None = Field(default=None, min_length=1, max_length=200)
    description: str = ""
    kind: Kind = Kind.SYNC
    handler: str = Field(pattern=HANDLER_PATTERN)
    side_effects: SideEffects
    risk: Risk
    title: str | None = Field(default=None, min_length=1, max_length=TITLE_LENGTH_MAX)
    summary: str = Field(min_length=1)
    link: str | None = Field(default=None, pattern=r"^(\{system\}/|https://)", max_length=500)
    target: str = Field(min_length=1)
    subject: str | None = Field(default=None, min_length=1, max_length=300)
    input_schema: JsonDocument
    output_schema: JsonDocument
    writes: str | tuple[str, ...] | None = None
    idempotency: Idempotency = Idempotency()
    in_doubt: InDoubtRule = InDoubtRule.ASK
    reverse: Reverse | None = None
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    diff: Diff | None = None
    params: JsonDocument = Field(default_factory=dict)
    on_timeout: TimedOut | None = None
    written_by: tuple[Annotated[str, Field(pattern=r"^(/[^/]+)+$", max_length=300)], ...] | None = None
    tool: JsonDocument | None = None

    @cached_property
    def by_agent(self) -> bool:
        """True if the agent that asks for it carries it out itself, so that no connector is called."""
        return self.connector == AGENT

    @cached_property
    def connector(self) -> str:
        """The connector that performs it: as declared, or the first part of the name."""
        return self.owner or self.name.split(".", 1)[0]

    @property
    def function(self) -> str:
        """The function of the connector: the second part of ``handler``."""
        return self.handler.split(":", 1)[1]

    @cached_property
    def has_effect(self) -> bool:
        """True if a call changes anything outside, and so needs a receipt."""
        return self.side_effects is not SideEffects.NONE

    @cached_property
    def removes(self) -> bool:
        """True if a call removes a whole record, so that every field of the record changes."""
        return self.diff is not None and self.diff.fields == "record"

    @cached_property
    def has_secrets(self) -> bool:
        """True if the declaration marks any input as secret."""
        return b"x-secret" in canonical_bytes(self.input_schema)

    @cached_property
    def takes_secrets(self) -> bool:
        """True if an input may hold a secret: it is marked as secret, or is a header of an HTTP request."""
        return self.has_secrets or self.handler == HTTP

    @cached_property
    def stays_inside(self) -> bool:
        """True if a call reaches no outside system, so policy need not judge it."""
        return self.handler.partition(":")[0] in INSIDE and not self.has_effect

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical declaration, in hexadecimal."""
        return digest(self.model_dump(mode="json"))

    @cached_property
    def input_validator(self) -> Draft202012Validator:
        """The compiled input schema."""
        return validator_of(self.input_schema)

    def fact_types(self) -> Mapping[str, str]:
        """The fields it may write, each with its type in policies: string, int, bool, double, list<string> or dyn."""
        properties = {**_object(self.input_schema.get("properties")), **_schemas_of(self.params)}
        if isinstance(self.writes, str):
            properties = _object(_object(properties.get(self.writes)).get("properties"))
        elif self.writes is not None:
            properties = {name: properties[name] for name in self.writes}
        return {name: _fact_type(schema) for name, schema in properties.items()}

    @property
    def takes_other_fields(self) -> bool:
        """True if it may write fields that it does not declare."""
        if isinstance(self.writes, tuple):
            return self.removes
        schema: JsonObject = self.input_schema
        if self.writes is not None:
            schema = _object(_object(schema.get("properties")).get(self.writes))
        return schema.get("additionalProperties", True) is not False or "patternProperties" in schema

    @property
    def arguments(self) -> frozenset[str]:
        """The names whose origins policies may read: its inputs, and the fields that it may write."""
        return frozenset(_object(self.input_schema.get("properties"))) | frozenset(self.fact_types())

    @model_serializer(mode="wrap")
    def _as_declared(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        facts = self.declared_facts(serialize(self))
        owner = facts.pop("owner", None)
        return facts if owner is None else {**facts, "connector": owner}

    @field_validator("input_schema", "output_schema")
    @classmethod
    def _usable_schema(cls, schema: JsonDocument, info: ValidationInfo) -> JsonDocument:
        check_keywords(schema)
        check_references(schema)
        check_marks(schema, output=info.field_name == "output_schema")
        try:
            validator_of(schema)
        except ValidationError as error:
            place = path_text(error.instance_path, "$")
            raise ValueError(f"is not a JSON Schema (2020-12): {error.message} at {place}") from None
        if schema.get("type") != "object":
            raise ValueError("describes an object: it needs `type: object`")
        return schema

    @model_validator(mode="after")
    def _coherent(self) -> Operation:
        if self.handler.split(":", 1)[0] != self.connector:
            raise ValueError(
                f"handler {self.handler!r} must belong to the connector {self.connector!r}, "
                "which is the first part of the name unless `connector` is declared"
            )
        if self.has_effect and "in_doubt" not in self.model_fields_set:
            raise ValueError(
                "has side effects, so it must say how doubt is resolved: in_doubt: idempotent | probe | ask"
            )
        if self.kind is Kind.SYNC and (self.on_timeout is not None or self.timeouts.extend_to is not None):
            raise ValueError("answers within its call: on_timeout and extend_to belong to `kind: durable`")
        self._check_names()
        try:
            canonical_bytes(self.model_dump(mode="json"))
        except InputError as error:
            raise ValueError(error.message) from None
        return self

    def _check_names(self) -> None:
        properties = {**_object(self.input_schema.get("properties"))}
        if twice := sorted(self.params.keys() & properties.keys()):
            raise ValueError(f"has fixed params that input_schema declares as inputs, too: {', '.join(twice)}")
        if isinstance(self.writes, str) and _object(properties.get(self.writes)).get("type") != "object":
            raise ValueError(f"writes names {self.writes!r}, which is not an object property of input_schema")
        properties |= dict.fromkeys(self.params)
        names = [*self.idempotency.key, *(self.writes if isinstance(self.writes, tuple) else ())]
        names += [path[0] for path in (*_placeholders(self.target), *_placeholders(self.subject or ""))]
        if self.subject is not None and not _placeholders(self.subject):
            raise ValueError("subject names nobody: write an input in braces, such as {user}")
        unknown = sorted({name for name in names if name not in properties})
        if unknown:
            raise ValueError(f"names input fields that input_schema does not declare: {', '.join(unknown)}")
        roots = {*properties, "before", "facts", "target"}
        strange = [path for path in _placeholders(self.link or "") if path[0] not in {*roots, "system"}]
        if strange:
            raise ValueError(f"link names what nothing fills: {', '.join('.'.join(path) for path in strange)}")
        texts = [self.summary, self.title or "", *_texts(self.reverse.input if self.reverse else {})]
        unknown = sorted({".".join(path) for text in texts for path in _placeholders(text) if path[0] not in roots})
        if unknown:
            raise ValueError(f"has placeholders that nothing fills: {', '.join(unknown)}")


def _object(value: Json | None) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _schemas_of(values: JsonObject) -> JsonObject:
    """Schemas with the types of fixed values."""
    names: dict[type, Json] = {str: "string", bool: "boolean", int: "integer"}
    found: JsonObject = {}
    for name, value in values.items():
        texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        found[name] = {"type": "array", "items": {"type": "string"}} if texts else {"type": names.get(type(value))}
    return found


def _texts(value: Json) -> list[str]:
    if isinstance(value, dict | list):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _fact_type(schema: Json) -> str:
    declared = _object(schema)
    kind = declared.get("type")
    if kind == "array" and _object(declared.get("items")).get("type") == "string":
        return "list<string>"
    names = {"string": "string", "integer": "int", "boolean": "bool", "number": "double"}
    return names.get(str(kind), "dyn")
