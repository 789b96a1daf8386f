"""A tenant's records: a change is recorded and written in one append of its step, so it is never in doubt. Pure.

A change is judged, and may need an approval, like every effect. Its intent, its outcome and the row are one append;
the database refuses that append as a whole if the record is not as the step expects it (``refused``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connectors.marks import Writer, writer_at
from connectors.operation import Operation
from connectors.port import SOMEBODY, Done
from core.budgets import most
from core.canonical import Json, JsonObject, canonical_bytes, clean
from runtime.engine.book import contributors
from runtime.engine.book.draft import tell_of
from runtime.engine.life.transition import Transition, finish
from runtime.engine.model.errors import ErrorClass, StepError
from runtime.engine.model.events import ActionSucceeded
from runtime.engine.model.rows import ReceiptRow, RecordRow, StepRow

CONNECTOR = "records"
VALUE_BYTES_MAX = 64 * 1024


def unfit(operation: Operation, values: JsonObject) -> StepError | None:
    """The error for a value that is too large for a record; None if it fits."""
    size = len(canonical_bytes(values.get("value")))
    if not operation.has_effect or size <= VALUE_BYTES_MAX:
        return None
    message = f"The record would have {size} bytes; at most {VALUE_BYTES_MAX} are kept."
    return StepError(ErrorClass.DEFINITION, "record_too_large", message)


def write(transition: Transition, step: StepRow, operation: Operation, receipt: ReceiptRow, values: JsonObject) -> None:
    """Add the record's row to the append of this transition, and settle the receipt and the step in the same append."""
    given: dict[str, Any] = dict(values)
    removes = operation.function == "delete"
    marks = contributors.marks_of(transition.run.state, transition.graph, step.key)
    row = RecordRow(
        collection=given["collection"],
        key=given["key"],
        value=None if removes else given["value"],
        absent=bool(given.get("if_absent")),
        expects=given.get("version"),
        removes=removes,
        shaped=() if removes else contributors.kept_by(transition.run, marks),
    )
    # The database locks records in this order. Two rows of one record stay in the order of their steps.
    transition.rows.records = sorted([*transition.rows.records, row], key=lambda one: (one.collection, one.key))
    output: JsonObject = {"collection": row.collection, "key": row.key}
    tell_of(transition, receipt, ActionSucceeded(receipt.receipt_id, output))
    finish(transition, step, output)


def refused(transition: Transition, step: StepRow) -> None:
    """Fail a step whose record differs from what it expected. Its attempt wrote nothing."""
    message = "There is such a record already, or it has another version than the step expects."
    transition.fail(step, StepError(ErrorClass.CONSISTENCY, "record_conflict", message).to_json())


PRINCIPAL_CHARACTERS_MAX = most("person_characters")
EVERY = "*"


def read_by(transition: Transition, step: StepRow, operation: Operation, done: Done) -> list[str] | None:
    """The marks that a step gets with this output: of a record's writers, or of the last writers in the outside system.

    None if nobody but the run's requester can have shaped it.
    """
    if operation.connector == CONNECTOR:
        return contributors.handed_on(transition.run, step.key, done.writers)
    return contributors.written_by(step.key, _writers(operation, done)) or None


def refused_by(transition: Transition, step: StepRow, operation: Operation) -> list[str] | None:
    """The marks of those who wrote the message of a refusal: somebody outside, or nobody for a record of ours."""
    if operation.connector == CONNECTOR:
        return None
    return read_by(transition, step, operation, Done({}, writers=SOMEBODY))


def _writers(operation: Operation, done: Done) -> Iterator[str]:
    """The people who wrote the output outside, named by the declaration's ``written_by`` or else by the connector."""
    if not operation.written_by:
        # A value that only the system writes has no person as its writer.
        known = done.writers != SOMEBODY or writer_at(operation.output_schema, "") is not Writer.SYSTEM
        yield from (_plain(one) for one in done.writers if known)
        return
    for pointer in operation.written_by:
        for found in _at(done.output, pointer.split("/")[1:]):
            yield _plain(found)


def _at(value: Json, path: list[str]) -> Iterator[Json]:
    """The values at a path of members; ``*`` stands for every item of a list. Null where there is no value."""
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
    """The name of a writer as a principal; somebody unknown if the value is no name."""
    text = clean(found, PRINCIPAL_CHARACTERS_MAX).strip() if isinstance(found, str) else ""
    return text or SOMEBODY[0]
