"""JSON Schemas (2020-12) of the documents that people write, for editors; derived from the pydantic models.

A schema accepts every document that the loader accepts, and refuses faults that show without compiling: unknown keys,
wrong types, values out of bounds, keys that do not go together. ``counterseal workflow check`` checks expressions,
operations and needs.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from pydantic import BaseModel

from connectors.canonical import canonical
from connectors.catalog import OperationsDocument
from connectors.headers import problem_of
from connectors.masking import HEADERS
from connectors.operation import HTTP, Operation
from core.canonical import Json
from core.documents import Document, Path, load_document
from core.errors import DefinitionError, InputError, Problem
from policy.model import APPROVAL_KEYS, PolicyDocument, Ruling
from runtime.definition.model import KINDS, WorkflowDocument
from runtime.definition.people import DirectoryDocument

# The names that core.expressions.is_variable_name accepts.
IDENTIFIER = r"^(?!(?:in|true|false|null)$)[A-Za-z_][A-Za-z0-9_]*$"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

JsonSchema: TypeAlias = dict[str, Any]


class SchemaName(StrEnum):
    """The kinds of documents that have a schema."""

    WORKFLOW = "workflow"
    POLICY = "policy"
    DIRECTORY = "directory"
    OPERATIONS = "operations"


# The model that reads the document, and the title of its schema.
_MODELS: Mapping[SchemaName, tuple[type[BaseModel], str]] = {
    SchemaName.WORKFLOW: (WorkflowDocument, "Counterseal workflow"),
    SchemaName.POLICY: (PolicyDocument, "Counterseal policy"),
    SchemaName.DIRECTORY: (DirectoryDocument, "Counterseal directory of people"),
    SchemaName.OPERATIONS: (OperationsDocument, "Counterseal operations"),
}


@cache
def descriptions() -> Mapping[str, Mapping[str, str]]:
    """The meaning of each key in a sentence, by the model's name and the key."""
    return tomllib.loads(files("runtime.definition").joinpath("key_descriptions.toml").read_text(encoding="utf-8"))


@cache
def schema_text(name: SchemaName) -> str:
    """The schema as indented JSON, which is always the same for the same models."""
    model, title = _MODELS[name]
    made = model.model_json_schema(by_alias=True, mode="validation")
    definitions: Mapping[str, JsonSchema] = made.pop("$defs", {})
    for part_name, part in ((model.__name__, made), *definitions.items()):
        _edit(part_name, part)
    head = {"$schema": DIALECT, "$id": f"urn:counterseal:schema:{name}"}
    body = {**head, **made, "title": title, **({"$defs": definitions} if definitions else {})}
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _edit(model: str, part: JsonSchema) -> None:
    """Make what pydantic wrote readable in an editor, and add what its validators check beyond the types."""
    part["title"] = model.removesuffix("Document")
    if "description" in part:
        part["description"] = _plain(part["description"])
    for name, value in part.get("properties", {}).items():
        value.pop("title", None)
        _take_null(value)
        if "patternProperties" in value:
            value.setdefault("additionalProperties", False)
        words = descriptions().get(model, {}).get(name)
        if words is not None:
            value["description"] = words
    if model in _RULES:
        part.update(_RULES[model]())


def _take_null(value: JsonSchema) -> None:
    """Take null out of a key's values: a key may be left out, but not be empty (``core.validation.empty_keys``)."""
    if {"type": "null"} not in value.get("anyOf", []):
        return
    choices = [choice for choice in value.pop("anyOf") if choice != {"type": "null"}]
    if value.get("default", "") is None:
        del value["default"]
    value.update(choices[0] if len(choices) == 1 else {"anyOf": choices})


def _plain(docstring: str) -> str:
    """A docstring's words without its markup and line breaks."""
    paragraphs = docstring.replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _requiring(*names: str) -> list[JsonSchema]:
    """Schemas that each require one of these keys."""
    return [{"required": [name]} for name in names]


def _approval_terms() -> JsonSchema:
    """Require approvers if an approval is needed, and allow an approval's terms only then."""
    asks = [
        {"properties": {key: {"const": str(Ruling.NEEDS_APPROVAL)}}, "required": [key]}
        for key in ("outcome", "otherwise")
    ]
    needed = {"required": ["approvers"], "properties": {"approvers": {"minItems": 1}}}
    unasked = {"properties": dict.fromkeys(APPROVAL_KEYS, False)}
    return {"if": {"anyOf": asks}, "then": needed, "else": unasked, "dependentRequired": {"otherwise": ["when"]}}


_RULES: Mapping[str, Callable[[], JsonSchema]] = {
    "StepDocument": lambda: {
        "oneOf": [*_requiring(*KINDS), {"anyOf": _requiring("set", "reference"), "not": {"anyOf": _requiring(*KINDS)}}],
        "allOf": [{"properties": {name: {"pattern": IDENTIFIER} for name in ("id", "as")}}],
    },
    "PolicyDocument": lambda: {"allOf": [{"properties": {"rules": {"minItems": 1}}}]},
    "AppliesDocument": lambda: {"minProperties": 1},
    "RuleDocument": _approval_terms,
    "Match": lambda: {"anyOf": _requiring("operation", "connector")},
    "Approver": lambda: {"oneOf": _requiring("group", "slack_group")},
    "RuleApprover": lambda: {
        "oneOf": _requiring("group", "slack_group", "manager_of", "person"),
        "if": {"anyOf": _requiring("manager_of", "person")},
        "then": {"properties": {"of": {"const": 1}}},
    },
    "EscalateTo": lambda: {"oneOf": _requiring("group", "slack_group")},
}


def refuse_unsendable(text: str, file: str, operations: Mapping[str, Operation]) -> None:
    """List, as a ``DefinitionError``, each literal input, and each name of a header, that its handler refuses."""
    document = load_document(text, file)
    if problems := tuple(_problems(document, document.value, (), operations)):
        raise DefinitionError(problems)


def _problems(document: Document, value: Json, path: Path, operations: Mapping[str, Operation]) -> Iterator[Problem]:
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from _problems(document, item, (*path, at), operations)
    if not isinstance(value, dict):
        return
    operation, given = operations.get(str(value.get("do"))), value.get("with")
    if operation is not None and isinstance(given, dict):
        for place, message in _of_call(operation, given):
            yield document.problem((*path, "with", *place), message)
    for name, item in value.items():
        yield from _problems(document, item, (*path, name), operations)


def _of_call(operation: Operation, given: Mapping[str, Json]) -> Iterator[tuple[Path, str]]:
    headers = given.get(HEADERS)
    named = isinstance(headers, dict) and operation.handler == HTTP
    for name in headers if named and isinstance(headers, dict) else ():
        if (problem := problem_of(name)) is not None:
            yield (HEADERS, name), f"{problem[0].upper()}{problem[1:]}."
    for name, item in given.items():
        if (name == HEADERS and named) or _computed(item):
            continue
        try:
            canonical(operation.handler, {name: item})
        except InputError as error:
            yield (name,), str(error)


def _computed(value: Json) -> bool:
    """True if the value holds an expression."""
    if isinstance(value, dict | list):
        return any(map(_computed, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and "${{" in value
