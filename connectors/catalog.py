"""The catalog of operations: the packaged declarations and those of this installation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from importlib.resources import files
from types import MappingProxyType

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from connectors.frozen import taken
from connectors.handlers import faults
from connectors.operation import Operation
from core.documents import Document, load_document
from core.errors import DefinitionError, InputError, Problem, nearest
from core.validation import validate

PACKAGED = ("servicenow", "slack", "http", "model", "bpmn", "transform", "records", "agent")


class Source(Struct, frozen=True):
    """One document of declarations: ``operations: [...]`` in YAML 1.2, and its name in error messages."""

    file: str
    text: str


class OperationsDocument(BaseModel):
    """Declarations of operations in one document."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    operations: tuple[Operation, ...] = Field(min_length=1)


class Catalog(Struct, frozen=True, dict=True):
    """Every operation that a workflow may name. Immutable. ``packaged`` are the names of Counterseal's own operations.

    ``broken`` has the reason for each published declaration that this release cannot read.
    """

    operations: Mapping[str, Operation]
    packaged: frozenset[str] = frozenset()
    broken: Mapping[str, str] = MappingProxyType({})

    @cached_property
    def own(self) -> Mapping[str, Operation]:
        """The operations that are not packaged with Counterseal, by name."""
        return {name: one for name, one in sorted(self.operations.items()) if name not in self.packaged}

    @cached_property
    def digests(self) -> frozenset[tuple[str, str]]:
        """The name and the digest of each operation, which are equal for catalogs with equal declarations."""
        return frozenset((name, operation.digest) for name, operation in self.operations.items())

    def get(self, name: str) -> Operation:
        """The operation; ``InputError`` with the nearest known name if there is none."""
        found = self.operations.get(name)
        if found is None and name in self.broken:
            raise InputError(self.broken[name], remedy="Publish it again: `counterseal operation publish FILE`.")
        if found is None:
            raise InputError(f"there is no operation {name!r}.", remedy=nearest(name, self.operations))
        return found


def load_catalog(extra: Iterable[Source] = (), known: Mapping[str, Operation] = MappingProxyType({})) -> Catalog:
    """The packaged declarations and ``extra`` ones. ``DefinitionError`` lists every fault of every document.

    ``known`` are published declarations; a declaration of the same name in ``extra`` replaces one.
    """
    names = [f"{system}/operations.yaml" for system in PACKAGED]
    texts = {f"connectors/{name}": files("connectors").joinpath(name).read_text(encoding="utf-8") for name in names}
    packaged = (Source(file, text) for file, text in texts.items())
    return catalog_of([*packaged, *extra], packaged=frozenset(texts), known=known)


def names_in(sources: Iterable[Source]) -> list[str]:
    """The names of the operations that documents declare, in order; ``DefinitionError`` for one that is not right."""
    return [operation.name for source in sources for operation in _declared(source)[1]]


@lru_cache(maxsize=32)  # parsing YAML takes longer than anything else at the start of a process
def _declared(source: Source) -> tuple[Document, tuple[Operation, ...]]:
    """A document and its declarations, both immutable. ``DefinitionError`` lists its faults."""
    document = load_document(source.text, source.file)
    return document, validate(document, OperationsDocument).operations


def catalog_of(
    sources: Iterable[Source],
    *,
    packaged: frozenset[str] = frozenset(),
    known: Mapping[str, Operation] = MappingProxyType({}),
) -> Catalog:
    """A catalog of these documents and the ``known`` declarations. ``packaged`` are the files of Counterseal's own."""
    places: dict[str, tuple[Document, int]] = {}
    operations: dict[str, Operation] = {}
    problems: list[Problem] = []
    for source in sources:
        try:
            document, declared = _declared(source)
        except DefinitionError as error:
            problems += error.problems
            continue
        for index, operation in enumerate(declared):
            if operation.name in operations:
                first, _ = places[operation.name]
                message = f"{operation.name} is declared in {first.file} already."
                problems.append(document.problem(("operations", index, "name"), message))
                continue
            operations[operation.name], places[operation.name] = operation, (document, index)
    own = frozenset(name for name, (document, _) in places.items() if document.file in packaged)
    for name, operation in () if problems or not own else operations.items():
        document, index = places[name]
        for key, message, remedy in () if name in own else faults(operation, [operations[one] for one in sorted(own)]):
            problems.append(document.problem(("operations", index, key), f"{name}: {message}", remedy))
        if words := taken(operation, known.get(name)):
            remedy = "Choose a name that does not begin with `mcp.`, and declare `connector: mcp`."
            problems.append(document.problem(("operations", index, "name"), f"{name} {words}.", remedy))
    every = {**known, **operations}
    for name, operation in () if problems else operations.items():
        if operation.reverse and operation.reverse.operation not in every:
            document, index = places[name]
            message = f"{name} is reversed by {operation.reverse.operation!r}, which does not exist."
            remedy = nearest(operation.reverse.operation, every)
            problems.append(document.problem(("operations", index, "reverse"), message, remedy))
    if problems:
        raise DefinitionError(tuple(problems))
    return Catalog(MappingProxyType(every), own)
