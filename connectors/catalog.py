"""The catalog of operations: the packaged declarations, and those of this installation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from types import MappingProxyType

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from connectors.operation import Operation
from core.documents import Document, load_document, validate
from core.errors import DefinitionError, InputError, Problem, nearest

PACKAGED = ("servicenow", "slack", "http", "model", "bpmn", "transform")


class Source(Struct, frozen=True):
    """One document of declarations: ``operations: [...]`` in YAML 1.2, and the name to report its errors under."""

    file: str
    text: str


class OperationsDocument(BaseModel):
    """Declarations of operations, besides those that are part of Counterseal."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    operations: tuple[Operation, ...] = Field(min_length=1)


class _Place(Struct, frozen=True):
    """Where one declaration stands."""

    document: Document
    index: int

    def problem(self, key: str, message: str, remedy: str = "") -> Problem:
        return self.document.problem(("operations", self.index, key), message, remedy)


class Catalog(Struct, frozen=True):
    """Every operation that a workflow may name. Immutable."""

    operations: Mapping[str, Operation]

    def get(self, name: str) -> Operation:
        """The operation; ``InputError`` with the nearest known name if there is none."""
        found = self.operations.get(name)
        if found is None:
            raise InputError(f"there is no operation {name!r}.", remedy=nearest(name, self.operations))
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
            declared = validate(document, OperationsDocument).operations
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


def _packaged_text(system: str) -> str:
    return files("connectors").joinpath(system, "operations.yaml").read_text(encoding="utf-8")


def _check_reversals(operations: Mapping[str, Operation], places: Mapping[str, _Place]) -> list[Problem]:
    return [
        places[operation.name].problem(
            "reverse",
            f"{operation.name} is reversed by {operation.reverse.operation!r}, which does not exist.",
            nearest(operation.reverse.operation, operations),
        )
        for operation in operations.values()
        if operation.reverse and operation.reverse.operation not in operations
    ]
