"""The catalog of operations, and how a call of one becomes an action with a key and a way back."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field

from connectors.operation import Operation, Scope
from connectors.port import Before
from connectors.schema import check
from connectors.text import fill_object, render
from core.action import Action
from core.canonical import Json, JsonObject, digest
from core.documents import Document, load_document, validate
from core.errors import DefinitionError, InputError, Problem

PACKAGED = ("servicenow", "slack", "http", "model", "bpmn", "transform")
SUMMARY_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True)
class Source:
    """One document of declarations: ``operations: [...]`` in YAML 1.2, and the name to report its errors under."""

    file: str
    text: str


class _Declarations(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    operations: tuple[Operation, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one declaration stands."""

    document: Document
    index: int

    def problem(self, key: str, message: str, remedy: str = "") -> Problem:
        return self.document.problem(("operations", self.index, key), message, remedy)


@dataclass(frozen=True)
class Catalog:
    """Every operation that a workflow may name. Immutable."""

    operations: Mapping[str, Operation]

    def get(self, name: str) -> Operation:
        """The operation; ``InputError`` with the nearest known name if there is none."""
        found = self.operations.get(name)
        if found is None:
            raise InputError(f"there is no operation {name!r}.", remedy=_nearest(name, self.operations))
        return found


def load_catalog(extra: Iterable[Source] = ()) -> Catalog:
    """The packaged declarations and ``extra`` ones. ``DefinitionError`` lists every fault of every document."""
    packaged = (Source(f"connectors/{system}/operations.yaml", _packaged_text(system)) for system in PACKAGED)
    return catalog_of([*packaged, *extra])


def catalog_of(sources: Iterable[Source]) -> Catalog:
    """A catalog of exactly these documents."""
    places: dict[str, _Place] = {}
    operations: dict[str, Operation] = {}
    problems: list[Problem] = []
    for source in sources:
        try:
            document = load_document(source.text, source.file)
            declared = validate(document, _Declarations).operations
        except DefinitionError as error:
            problems += error.problems
            continue
        for index, operation in enumerate(declared):
            place = _Place(document, index)
            if operation.name in operations:
                first = places[operation.name].document.file
                problems.append(place.problem("name", f"{operation.name} is declared in {first} already."))
                continue
            operations[operation.name], places[operation.name] = operation, place
    problems += [] if problems else _check_reversals(operations, places)
    if problems:
        raise DefinitionError(tuple(problems))
    return Catalog(MappingProxyType(operations))


def build_action(operation: Operation, values: JsonObject, before: Before | None = None) -> Action:
    """The action that calling ``operation`` with this input is; ``InputError`` names the JSON path of a wrong input.

    ``before`` is the pre-read of operations that declare ``diff``; without it nothing is known to be reversible.
    """
    check(operation.input_validator, values, where="input")
    fields = operation.writes_of(values)
    target = render(operation.target, values)
    words: dict[str, Json] = {**values, "target": target}
    words["before"] = before.values if before else None
    words["facts"] = before.facts if before else None
    summary = render(operation.summary, words)
    return Action(
        operation=operation.name,
        input=values,
        fields=fields,
        target=target,
        target_version=before.version if before else None,
        before=before.values if before else None,
        risk=operation.risk,
        side_effects=operation.side_effects,
        reversible=_reversible(operation, fields, before),
        summary=summary if len(summary) <= SUMMARY_LENGTH_MAX else summary[: SUMMARY_LENGTH_MAX - 1] + "…",
    )


def idempotency_key(
    operation: Operation, action: Action, *, tenant: str, workflow: str, run: str, step: str, reference: str | None
) -> str:
    """SHA-256 over the scope and what tells effects apart inside it; the same for every attempt at one action.

    Scope ``step``: one effect per execution of a step (``step`` names the execution: each iteration of a loop has its
    own), so setting A, then B, then A again is three effects. ``reference`` and ``tenant``: the same call (the declared
    key fields, or the whole input) is one effect for the business reference, or for the tenant, whoever asks.
    """
    scope = operation.idempotency.scope
    chosen: Json = {name: action.input.get(name) for name in operation.idempotency.key}
    if scope is Scope.STEP:
        return digest(["step", tenant, workflow, run, step, operation.name, chosen])
    effect: Json = chosen if operation.idempotency.key else action.input
    if scope is Scope.TENANT:
        return digest(["tenant", tenant, operation.name, action.target, effect])
    if not reference:
        raise InputError(
            f"{operation.name} is idempotent within the run's reference, and this run has none.",
            where="reference",
            remedy="Give the workflow a reference.",
        )
    return digest(["reference", tenant, reference, operation.name, action.target, effect])


def reverse_of(operation: Operation, action: Action, before: Before | None) -> JsonObject | None:
    """``{operation, input}`` that restores every field whose value was read before, or None where there is none (Q-4).

    Fields that cannot be restored are left out; ``action.reversible`` says whether nothing remains.
    """
    if operation.reverse is None or before is None:
        return None
    restorable = {name: before.values[name] for name in action.fields if name in before.values}
    if not restorable:
        return None
    values: dict[str, Json] = {**action.input, "before": restorable, "facts": before.facts, "target": action.target}
    return {"operation": operation.reverse.operation, "input": fill_object(operation.reverse.input, values)}


def _reversible(operation: Operation, fields: JsonObject, before: Before | None) -> bool:
    if not operation.has_effect:
        return True
    harmless = set(operation.diff.harmless) if operation.diff else set()
    known = set(before.values) if before and operation.reverse else set()
    return bool(fields) and all(name in harmless or name in known for name in fields)


def _packaged_text(system: str) -> str:
    return files("connectors").joinpath(system, "operations.yaml").read_text(encoding="utf-8")


def _check_reversals(operations: Mapping[str, Operation], places: Mapping[str, _Place]) -> list[Problem]:
    return [
        places[operation.name].problem(
            "reverse",
            f"{operation.name} is reversed by {operation.reverse.operation!r}, which does not exist.",
            _nearest(operation.reverse.operation, operations),
        )
        for operation in operations.values()
        if operation.reverse and operation.reverse.operation not in operations
    ]


def _nearest(name: str, known: Iterable[str]) -> str:
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"Known operations: {', '.join(choices)}."
