"""Undoes an effect: starts a run of Counterseal's own workflow, whose one step does what the receipt's reversal says.

The step is judged like any action, by today's policies and declarations, and may need an approval. The engine refuses
it if the record was changed after the effect (``runtime.engine.life.reversal``). An effect is reversed once: while one
reversal of it is under way or done, no other begins.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import Struct

from connectors.catalog import Catalog
from connectors.disclosure import secret_names
from connectors.languages import InputLanguages
from connectors.operation import Operation
from connectors.proposal import rebuilt_action
from core.canonical import Json, JsonObject, check_text
from core.db import Connection
from core.errors import ConsistencyError, InputError, NotFoundError
from core.identity import Role
from evidence.chain import Actor
from evidence.receipts import ReceiptStatus
from runtime.definition.catalog import Definitions
from runtime.definition.one_step import of_input, one_step
from runtime.definition.reserved import UNDO
from runtime.engine.book import contributors
from runtime.engine.life.reversal import REVERSAL
from runtime.engine.model.rows import ReceiptRow
from runtime.engine.model.run import Run
from runtime.engine.model.states import RunState
from runtime.requests.starting import Started, StartRequest, start_run
from runtime.requests.views import folded
from runtime.store import books, documents, runs
from runtime.store.documents import StoredWorkflow

_OVER = (RunState.FAILED_TERMINAL, RunState.CANCELED)


class Undo(Struct, frozen=True):
    """An order to reverse a receipt's effect. ``started_by`` is the authenticated account of an HTTP request."""

    tenant_id: str
    workspace_id: str
    receipt_id: UUID
    reason: str
    requested_by: str
    actor: Actor
    started_by: str | None = None


async def reverse(connection: Connection, tenant: str, definitions: Definitions, asked: Undo) -> Started:
    """Start the run that reverses an effect, in the caller's transaction. ``ConsistencyError`` if that is impossible.

    A crash before the commit leaves nothing; after it, the run goes on by itself.
    """
    check_text(asked.reason, "reason")
    if not asked.reason.strip():
        raise InputError("is empty", where="reason", remedy="Say why it is undone: it is kept with the run.")
    run, receipt, operations = await _find_receipt(connection, definitions, tenant, asked.receipt_id)
    known = await runs.reversals(connection, tenant, asked.receipt_id)
    if going := [row for row in known if RunState(row["status"]) not in _OVER]:
        words = f"The run {going[0]['run_id']} reverses it, or has reversed it, already."
        raise ConsistencyError(words, remedy="Look at that run.")
    wanted = _reversal_of(receipt)
    catalog = await definitions.published(connection, tenant)
    operation = catalog.get(str(wanted["operation"]))
    original = operations.get(receipt.operation) or catalog.get(receipt.operation)
    wrote = _wrote(original, receipt, operation, wanted["input"])
    removed: JsonObject = {"removed": True} if original.removes else {}
    stored = _workflow(catalog, operation, wanted["input"])
    await documents.publish_workflow(connection, tenant, stored, REVERSAL)
    trigger: JsonObject = {
        "receipt": str(receipt.receipt_id),
        "run": str(run.run_id),
        "step": receipt.step_key,
        "reference": run.reference,
        "reason": asked.reason,
        "input": wanted["input"],
        "wrote": wrote,
        **removed,
    }
    subjects = [one for one in run.state.shaped.get(contributors.RUN, ()) if _is_subject(one)]
    request = StartRequest(
        tenant, asked.workspace_id, REVERSAL, f"{receipt.receipt_id}:{len(known)}", trigger, asked.requested_by,
        asked.actor, shaped=tuple(subjects), started_by=asked.started_by,
    )  # fmt: skip
    started = await start_run(connection, definitions.compiled(stored), request, definitions)
    if not started.created:
        raise ConsistencyError(f"The run {started.run_id} reverses it already.", remedy="Look at that run.")
    return started


def _is_subject(marked: str) -> bool:
    return contributors.parted(marked)[0] is Role.SUBJECT


async def _find_receipt(
    connection: Connection, definitions: Definitions, tenant: str, receipt_id: UUID
) -> tuple[Run, ReceiptRow, dict[str, Operation]]:
    """Find a receipt, its run and that run's declarations. The first bytes of a receipt's id are those of its run."""
    for run_id in await runs.of_part(connection, tenant, receipt_id):
        book = await books.read(connection, tenant, run_id)
        if book.purged:
            continue
        past = await folded(connection, definitions, book)
        if receipt_id in past.run.receipts:
            editions = await definitions.editions(connection, book)
            return past.run, past.run.receipts[receipt_id], dict(editions[-1].operations)
    raise NotFoundError(f"There is no receipt {receipt_id}, or retention has removed what it held.")


def _reversal_of(receipt: ReceiptRow) -> dict[str, Any]:
    if receipt.status != ReceiptStatus.SUCCEEDED:
        words = f"The receipt is {receipt.status}: only what was done can be undone."
        raise ConsistencyError(words, remedy="Look at the run.")
    if receipt.reverse is None:
        words = f"{receipt.operation} says of no way back, or the values before were not read."
        raise ConsistencyError(words, remedy="Undo it in the target itself.")
    return dict(receipt.reverse)


def _wrote(operation: Operation, receipt: ReceiptRow, reversal: Operation, given: JsonObject) -> JsonObject:
    """The values that the effect wrote to the fields to be restored; secret values are left out."""
    effect_input: Any = receipt.action["input"]
    if secret_names(operation.input_schema, effect_input) or secret_names(reversal.input_schema, given):
        words = "It holds secret values, which no run's input may hold."
        raise ConsistencyError(words, remedy="Undo it in the target itself.")
    restored = rebuilt_action(reversal, given, None).fields
    return {
        name: value for name, value in rebuilt_action(operation, effect_input, None).fields.items() if name in restored
    }


def _workflow(catalog: Catalog, operation: Operation, wanted: Json) -> StoredWorkflow:
    """The workflow with the one step. Its input was escaped when it was first proposed, so it is not escaped again."""
    assert isinstance(wanted, dict), "an input is an object"
    names, languages = sorted(wanted.keys() - operation.params.keys()), InputLanguages(operation.input_schema)
    values = {name: of_input(name, raw=languages.within((name,))) for name in names}
    return one_step(UNDO, "Undo", "undo", operation, values, catalog)
