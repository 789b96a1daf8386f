"""The life of a shared effect, derived from the books of the runs that share it; its row follows. Pure.

The step that performs the effect has the receipt. The step that waits for the end of a durable effect holds it: the one
that began it, or one that took it over since. The holder's wait says how the effect ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from runtime.engine.model.rows import EffectRow, JoinRow, ReceiptRow, ShareRow, WaitRow
from runtime.engine.model.run import Run
from runtime.engine.model.states import EffectState, WaitKind, WaitState

# Keys in the context of a wait: the key of the shared effect, and the receipt of the step that performed it.
KEY, RECEIPT = "shared", "receipt"

# The states of an effect that is under way: the steps that share it wait.
UNDER_WAY = (EffectState.INTENDED, EffectState.IN_DOUBT, EffectState.BEGUN)
_ENDED = (EffectState.SUCCEEDED, EffectState.FAILED, EffectState.LEFT)


def name_of(key: str) -> str:
    """The correlation key of those who wait for the end of a shared effect."""
    return f"{KEY}:{key}"


def life_of(receipt: ReceiptRow, wait: WaitRow | None) -> EffectState:
    """The state of an effect. ``wait`` is its holder's wait; None if the effect does not go on outside."""
    if receipt.status != EffectState.SUCCEEDED or wait is None:
        return EffectState(receipt.status)
    return _of_wait(wait)


def _of_wait(wait: WaitRow) -> EffectState:
    match wait.status:
        case WaitState.WAITING:
            return EffectState.BEGUN
        case WaitState.COMPLETED:
            good = wait.result is not None and "error" not in wait.result
            return EffectState.SUCCEEDED if good else EffectState.FAILED
        case _:
            return EffectState.LEFT


def held_by(run: Run, receipt: ReceiptRow) -> WaitRow | None:
    """The wait of this run's own step for the end of the effect that its receipt began."""
    last = None
    for wait in run.waits.values():
        if (
            wait.step_key == receipt.step_key
            and wait.kind is WaitKind.EXTERNAL
            and wait.parked
            and not _is_shared(wait)
        ):
            last = wait
    return last


def performed(run: Run) -> dict[UUID, tuple[ReceiptRow, EffectState, WaitRow | None]]:
    """The shared effects that this run has performed, by receipt."""
    found = {}
    replaced = {receipt.replaces for receipt in run.receipts.values()}
    for receipt in run.receipts.values():
        if receipt.shared and receipt.receipt_id not in replaced:
            wait = held_by(run, receipt) if receipt.status == EffectState.SUCCEEDED else None
            found[receipt.receipt_id] = (receipt, life_of(receipt, wait), wait)
    return found


def moved(before: Run, run: Run) -> list[EffectRow]:
    """The effects performed by this run whose state has changed, in the order in which their rows are locked."""
    now = performed(run)
    if not now:
        return []
    was, rows = performed(before), []
    for receipt, life, wait in now.values():
        known = was.get(receipt.receipt_id)
        if known is None or known[1] is not life:
            of = receipt.replaces if known is None else receipt.receipt_id
            held = None if wait is None else wait.wait_id
            rows.append(EffectRow(receipt.idempotency_key, receipt.step_key, receipt.receipt_id, life, of, held))
    return sorted(rows, key=lambda row: row.key)


def taken_over(before: Run, run: Run) -> list[ShareRow]:
    """The effects of others that this run has newly taken over, or whose state has changed since."""
    known = {row.wait_id: row for row in taken(before)}
    rows = [row for row in taken(run) if known.get(row.wait_id) != row]
    return sorted(rows, key=lambda row: row.key)


def taken(run: Run) -> Iterator[ShareRow]:
    """The effects of others that this run has taken over."""
    for wait in run.waits.values():
        if wait.kind is WaitKind.EXTERNAL and _is_shared(wait):
            context = wait.context or {}
            yield ShareRow(str(context[KEY]), UUID(str(context[RECEIPT])), _of_wait(wait), wait.wait_id)


def joined(before: Run, run: Run) -> list[JoinRow]:
    """The effects whose end steps of this run begin to wait for."""
    new = [wait for wait in run.waits.values() if wait.kind is WaitKind.SHARED and wait.wait_id not in before.waits]
    contexts = [wait.context or {} for wait in new if wait.status is WaitState.WAITING and _is_shared(wait)]
    return sorted((JoinRow(str(c[KEY]), UUID(str(c[RECEIPT]))) for c in contexts), key=lambda row: row.key)


def ended(before: Run, run: Run, moves: list[EffectRow], shares: list[ShareRow]) -> Iterator[tuple[str, str]]:
    """The keys of effects whose sharers are to be told now, each with a name by which the message is deduplicated."""
    changes = [(row.key, row.receipt_id, row.wait_id, row.status) for row in moves]
    changes += [(row.key, row.receipt_id, row.wait_id, row.status) for row in shares]
    for key, receipt, wait, status in changes:
        if status in _ENDED:
            yield key, f"{receipt}:{wait}:{status}"
    if run.finished and not before.finished:
        for left, life, _ in performed(run).values():
            if life in (EffectState.INTENDED, EffectState.IN_DOUBT):  # nobody will resolve this doubt any more
                yield left.idempotency_key, f"{left.receipt_id}:doubt"


def _is_shared(wait: WaitRow) -> bool:
    return KEY in (wait.context or {})
