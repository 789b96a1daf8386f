"""Declarations of operations: what a connector can do, and everything that governance must know about it.

A declaration is authored in YAML (V-2), validated here, and frozen; its ``digest`` is frozen into each step when a run
is created (V-4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any, Literal, TypeAlias

from jsonschema_rs import Draft202012Validator, ValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from connectors.marks import check_marks
from connectors.schema import validator_of
from core.action import Risk, SideEffects
from core.canonical import Json, JsonObject, canonical_bytes, digest
from core.durations import Duration
from core.errors import InputError, path_text
from core.escaping import Language

# ``{fields.priority}``, or ``{facts.number|sys_id}`` for the first that has a value.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.]*(?:\|[A-Za-z_][\w.]*)*)\}")
Paths: TypeAlias = tuple[tuple[str, ...], ...]

NAME_PATTERN = r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){1,4}$"
HANDLER_PATTERN = r"^[a-z][a-z0-9_]*:[a-z][a-z0-9_]*$"
EVIDENCE_TREATMENTS = ("value", "digest", "omit")

# Keywords under which a mark would hold for some values only: it would not be found there, so it is refused.
_CONDITIONAL = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "patternProperties", "dependentSchemas", "prefixItems"}
)

JsonDocument: TypeAlias = dict[str, Any]  # pydantic cannot read the recursive alias of core.canonical


@cache
def text_parts(text: str) -> tuple[str | Paths, ...]:
    """The plain pieces of a declared text and its placeholders, each as the paths that it names; parsed once."""
    return tuple(
        tuple(tuple(path.split(".")) for path in piece.split("|")) if at % 2 else piece
        for at, piece in enumerate(_PLACEHOLDER.split(text))  # every other piece is a placeholder
        if piece
    )


def _placeholders(text: str) -> list[tuple[str, ...]]:
    return [path for part in text_parts(text) if not isinstance(part, str) for path in part]


class Kind(StrEnum):
    """The kind of operation: it answers within its call, or parks the run until something outside completes."""

    SYNC = "sync"
    DURABLE = "durable"


class KeyScope(StrEnum):
    """The scope within which one idempotency key means one effect."""

    STEP = "step"
    REFERENCE = "reference"
    TENANT = "tenant"


class InDoubtRule(StrEnum):
    """The way to resolve a crash or timeout between intent and outcome."""

    IDEMPOTENT = "idempotent"
    PROBE = "probe"
    ASK = "ask"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Idempotency(_Part):
    """The rule that makes two calls one effect: the scope, and the input fields that tell effects inside it apart.

    With no ``key``, scope ``step`` means one effect per step, and a wider scope compares the whole input.
    """

    scope: KeyScope = KeyScope.STEP
    key: tuple[str, ...] = ()


class Reverse(_Part):
    """The operation that undoes this one, and its input. A value that is one whole placeholder keeps its type.

    Placeholders name input fields, or ``before``: the restorable values that were read before the write.
    """

    operation: str = Field(pattern=NAME_PATTERN)
    input: JsonDocument


class Diff(_Part):
    """The fields to read before the write, so that people see before → after and the write can be undone.

    ``written`` reads the fields that the call writes. ``appended`` fields only ever grow (ServiceNow journals), so they
    have no value before; of those, ``harmless`` ones need no undoing (Q-22 counts internal notes as reversible).
    """

    fields: Literal["written"] | tuple[str, ...] = "written"
    appended: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _harmless_is_appended(self) -> Diff:
        extra = set(self.harmless) - set(self.appended)
        if extra:
            raise ValueError(f"harmless names fields that are not in appended: {', '.join(sorted(extra))}")
        return self


class Timeouts(_Part):
    """Time limits: ``perform`` of one call; ``complete`` of a durable operation, after which its wait times out."""

    perform: Duration = timedelta(seconds=30)
    complete: Duration = timedelta(days=7)


class Retry(_Part):
    """The retries of a failure that certainly had no effect: how often, and after how many seconds (Q-19).

    ``attempts`` counts the first one. The last ``backoff`` repeats; ``jitter`` is the largest fraction added or taken
    away at random; ``cap`` bounds any single delay, in seconds.
    """

    attempts: int = Field(default=5, ge=1, le=20)
    backoff: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(5, 30, 120, 600), min_length=1)
    jitter: float = Field(default=0.2, ge=0, le=1)
    cap: float = Field(default=600, gt=0)

    def delay_seconds(self, attempt: int, *, chance: float) -> float:
        """The wait in seconds after the failed ``attempt`` (from 1); ``chance`` in [0, 1) chooses the jitter."""
        base = self.backoff[min(attempt, len(self.backoff)) - 1]
        return min(base * (1 + self.jitter * (2 * chance - 1)), self.cap)


class Operation(_Part):
    """One operation, as declared. Its name and its handler (``servicenow:update``) start with the connector."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str = ""
    kind: Kind = Kind.SYNC
    handler: str = Field(pattern=HANDLER_PATTERN)
    side_effects: SideEffects
    risk: Risk
    summary: str = Field(min_length=1)
    target: str = Field(min_length=1)
    input_schema: JsonDocument
    output_schema: JsonDocument
    writes: str | tuple[str, ...] | None = None
    idempotency: Idempotency = Idempotency()
    in_doubt: InDoubtRule = InDoubtRule.ASK
    reverse: Reverse | None = None
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    diff: Diff | None = None

    @cached_property
    def connector(self) -> str:
        """The connector that performs it: the first part of the name."""
        return self.name.split(".", 1)[0]

    @property
    def function(self) -> str:
        """The function of the connector: the second part of ``handler``."""
        return self.handler.split(":", 1)[1]

    @cached_property
    def has_effect(self) -> bool:
        """True if a call changes anything outside, and so needs a receipt."""
        return self.side_effects is not SideEffects.NONE

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
        properties = _object(self.input_schema.get("properties"))
        if isinstance(self.writes, str):
            properties = _object(_object(properties.get(self.writes)).get("properties"))
        elif self.writes is not None:
            properties = {name: properties[name] for name in self.writes}
        return {name: _fact_type(schema) for name, schema in properties.items()}

    @field_validator("input_schema", "output_schema")
    @classmethod
    def _usable_schema(cls, schema: JsonDocument, info: ValidationInfo) -> JsonDocument:
        _check_keywords(schema)
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
            raise ValueError(f"handler {self.handler!r} must belong to the connector {self.connector!r} of the name")
        if self.has_effect and "in_doubt" not in self.model_fields_set:
            raise ValueError(
                "has side effects, so it must say how doubt is resolved: in_doubt: idempotent | probe | ask"
            )
        self._check_names()
        try:
            canonical_bytes(self.model_dump(mode="json"))
        except InputError as error:
            raise ValueError(error.message) from None
        return self

    def _check_names(self) -> None:
        properties = _object(self.input_schema.get("properties"))
        if isinstance(self.writes, str) and _object(properties.get(self.writes)).get("type") != "object":
            raise ValueError(f"writes names {self.writes!r}, which is not an object property of input_schema")
        names = [*self.idempotency.key, *(self.writes if isinstance(self.writes, tuple) else ())]
        names += [path[0] for path in _placeholders(self.target)]
        unknown = sorted({name for name in names if name not in properties})
        if unknown:
            raise ValueError(f"names input fields that input_schema does not declare: {', '.join(unknown)}")
        roots = {*properties, "before", "facts", "target"}
        texts = [self.summary, *_texts(self.reverse.input if self.reverse else {})]
        unknown = sorted({".".join(path) for text in texts for path in _placeholders(text) if path[0] not in roots})
        if unknown:
            raise ValueError(f"has placeholders that nothing fills: {', '.join(unknown)}")


def _object(value: Json | None) -> JsonObject:
    return value if isinstance(value, dict) else {}


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


def _check_keywords(schema: Json, *, marks: bool = True) -> None:
    """Refuse what would reach out of the document, and marks of evidence that do not exist or would not be seen."""
    if isinstance(schema, list):
        for item in schema:
            _check_keywords(item, marks=marks)
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise ValueError(f"$ref {reference!r} leaves the document; only references that start with # are followed")
    treatment = schema.get("x-evidence", "digest")
    if not isinstance(treatment, dict) and treatment not in EVIDENCE_TREATMENTS:
        raise ValueError(f"x-evidence is {treatment!r}; it must be one of {', '.join(EVIDENCE_TREATMENTS)}")
    if not isinstance(schema.get("x-secret", False), bool | dict):
        raise ValueError("x-secret must be true or false")
    language = schema.get("x-language", Language.HTML)
    if not isinstance(language, dict) and language not in [*Language]:
        raise ValueError(f"x-language is {language!r}; it must be one of {', '.join(Language)}")
    if not marks and {"x-evidence", "x-secret", "x-language"} & schema.keys():
        raise ValueError("x-evidence, x-secret and x-language belong in properties, items or additionalProperties")
    for name, item in schema.items():
        _check_keywords(item, marks=marks and name not in _CONDITIONAL)
