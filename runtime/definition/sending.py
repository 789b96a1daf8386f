"""The literal inputs of a workflow that could never be sent: found when it is checked, and not when a step runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from connectors.canonical import canonical
from connectors.headers import problem_of
from connectors.masking import HEADERS, HTTP
from connectors.operation import Operation
from core.canonical import Json
from core.documents import Document, Path, load_document
from core.errors import DefinitionError, InputError, Problem


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
    """True if an expression makes a part of it."""
    if isinstance(value, dict | list):
        return any(map(_computed, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and "${{" in value
