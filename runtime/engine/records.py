"""A tenant's records: a change is told and written in one append of its step, so it is never in doubt. Pure.

A change is judged, and may need an approval, like every effect. Its intent, its outcome and the row are one append;
the database refuses that append as a whole if the record is not as the step expects it (``refused``).
"""

from __future__ import annotations

from typing import Any

from connectors.operation import Operation
from core.canonical import JsonObject, canonical_bytes
from runtime.engine import contributors
from runtime.engine.commit import ReceiptRow, StepRow
from runtime.engine.draft import tell_of
from runtime.engine.errors import ErrorClass, StepError
from runtime.engine.events import ActionSucceeded
from runtime.engine.shared_rows import RecordRow
from runtime.engine.transition import Transition, finish

CONNECTOR = "records"
VALUE_BYTES_MAX = 64 * 1024


def unfit(operation: Operation, values: JsonObject) -> StepError | None:
    """The error if a value is too large for a record; None if it fits."""
    size = len(canonical_bytes(values.get("value")))
    if not operation.has_effect or size <= VALUE_BYTES_MAX:
        return None
    message = f"The record would have {size} bytes; at most {VALUE_BYTES_MAX} are kept."
    return StepError(ErrorClass.DEFINITION, "record_too_large", message)


def write(transition: Transition, step: StepRow, operation: Operation, receipt: ReceiptRow, values: JsonObject) -> None:
    """Add the row to the append of this transition, and settle the receipt and the step with it."""
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
    # Records are locked in this order; two rows of one record stay in the order of their steps.
    transition.rows.records = sorted([*transition.rows.records, row], key=lambda one: (one.collection, one.key))
    output: JsonObject = {"collection": row.collection, "key": row.key}
    tell_of(transition, receipt, ActionSucceeded(receipt.receipt_id, output))
    finish(transition, step, output)


def refused(transition: Transition, step: StepRow) -> None:
    """Fail a step whose record was not as it expected. Its attempt wrote nothing."""
    message = "There is such a record already, or it has another version than the step expects."
    transition.fail(step, StepError(ErrorClass.CONSISTENCY, "record_conflict", message).to_json())
