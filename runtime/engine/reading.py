"""The writers of what a step has read: a tenant's record, or something outside (promise 12). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from connectors.marks import Writer, writer_at
from connectors.operation import Operation
from connectors.port import SOMEBODY, Done
from core.canonical import Json, clean
from runtime.engine import contributors, records
from runtime.engine.commit import StepRow
from runtime.engine.transition import Transition

PRINCIPAL_CHARACTERS_MAX = 200
EVERY = "*"


def read_by(transition: Transition, step: StepRow, operation: Operation, done: Done) -> list[str] | None:
    """The marks that a step gets with this output: those of a record's writers, or of the last writers outside.

    None if nobody but the run's requester can have shaped it.
    """
    if operation.connector == records.CONNECTOR:
        return contributors.handed_on(transition.run, step.key, done.writers)
    return contributors.written_by(step.key, _writers(operation, done)) or None


def _writers(operation: Operation, done: Done) -> Iterator[str]:
    """The people who wrote the output outside, as the declaration's ``written_by`` or else the connector names them."""
    if not operation.written_by:
        # What only the system writes is nobody's word.
        told = done.writers != SOMEBODY or writer_at(operation.output_schema, "") is not Writer.SYSTEM
        yield from (_plain(one) for one in done.writers if told)
        return
    for pointer in operation.written_by:
        for found in _at(done.output, pointer.split("/")[1:]):
            yield _plain(found)


def _at(value: Json, path: list[str]) -> Iterator[Json]:
    """The values at a path of members, each place in a list if it says ``*``; null where nothing is."""
    if not path:
        yield value
        return
    name, rest = path[0].replace("~1", "/").replace("~0", "~"), path[1:]
    if name == EVERY and isinstance(value, list):
        for item in value:
            yield from _at(item, rest)
        return
    yield from _at(value.get(name) if isinstance(value, dict) else None, rest)


def _plain(found: Json) -> str:
    """The name of a writer as a principal; what is none counts as somebody unknown."""
    text = clean(found, PRINCIPAL_CHARACTERS_MAX).strip() if isinstance(found, str) else ""
    return text or SOMEBODY[0]
