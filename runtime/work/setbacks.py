"""Setbacks: a step with an unexpected error is tried again, with pauses, a bounded number of times.

If a step cannot be worked on (a bug of ours, a row that cannot be read, a value that cannot be stored), the error is
noted and the step left to its lease: the lease's time is the pause before the next try. After ``SETBACKS_MAX`` in a row
the step fails, and its run with it. An error of the database or the network is no setback of a step.

A lease that runs out without an outcome is counted as well. Otherwise a step that kills each of its workers would do so
for ever, and harm the other steps that these workers hold. ``LEASES_MAX`` in a row are allowed, because workers end for
many reasons besides the step. From the second lease on, the step is rehearsed before it is begun: another process does
the same work without an append. If that process is ended at its deadline ``ENDS_MAX`` times, the step fails with
``too_costly``, so that it stops no worker.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import structlog
from msgspec.structs import replace

from core.budgets import TooCostly, most
from core.canonical import JsonObject, clean
from core.db import Connection
from evidence.receipts import ReceiptStatus
from runtime.definition.catalog import Definitions
from runtime.engine.book.instructions import last_receipt, open_wait
from runtime.engine.life import doubt
from runtime.engine.life.transition import GIVEN_UP, Transition
from runtime.engine.model.errors import ErrorClass, StepError
from runtime.engine.model.events import StepSetBack, WaitPostponed, WaitTimedOut
from runtime.engine.model.graph import NO_GRAPH
from runtime.engine.model.rows import HELD, Claim, StepRow
from runtime.engine.model.states import StepState
from runtime.store import claims
from runtime.store.commits import apply
from runtime.store.views import load_to_end

log = structlog.get_logger(__name__)

SETBACKS_MAX = 5
ENDS_MAX = most("helper_ends")
LEASES_MAX = 10
# The pause before a due wait whose resume failed is tried again, times the number of its setbacks.
PAUSE = timedelta(seconds=30)

_SETBACKS, _LEASES, _ENDS = GIVEN_UP["unexpected"], GIVEN_UP["lease_lost"], GIVEN_UP["too_costly"]
# The key, in a step's last error, of the epoch of the lease under which the error happened.
_NOTED = "epoch"


async def set_back(
    connection: Connection, definitions: Definitions, run_id: UUID, claim: Claim, owner: str | None, error: Exception
) -> None:
    """Note a setback of a leased step, or give the step up, in the caller's transaction.

    The step stays leased, begun or not. A no-op if another worker has the lease by now.
    """
    status = (await claims.hold(connection, run_id, [claim])).get(claim.id)
    view = await load_to_end(connection, run_id, definitions.graphs, lock=True, leased=claim.key)
    transition = Transition(view, NO_GRAPH)
    step = leased(transition, claim, owner)
    if status != HELD or step is None:
        return
    costly = isinstance(error, TooCostly)
    count, most_ = (_count(step.last_error, _ENDS), ENDS_MAX) if costly else (_count(step.last_error), SETBACKS_MAX)
    if costly:
        log.error("a step takes too much work", tenant=view.tenant_id, run=str(run_id), step=step.key, ended=count)
    else:
        log.error("unexpected error at a step", run=str(run_id), step=step.key, setbacks=count, exc_info=error)
    facts = {**_facts(error, count), _NOTED: step.lease_epoch}
    if count < most_:
        transition.tell(StepSetBack(count, facts), step=step.key)
    else:
        _give_up(transition, step, facts)
    await apply(connection, transition.commit())


def is_suspect(step: StepRow) -> bool:
    """True if a lease of this step ran out without an outcome, or its rehearsal was ended, since it last went well."""
    return any(name in (step.last_error or {}) for name in (_LEASES, _ENDS))


def leased(transition: Transition, claim: Claim, owner: str | None) -> StepRow | None:
    """The step of a lease, begun now if its owner has not begun it; None if it is over, or waits."""
    step = transition.view.run.steps.get(claim.key)
    if step is None or step.status not in (StepState.READY, StepState.RUNNING):
        return None
    step = replace(step, lease_owner=owner, lease_epoch=claim.epoch)
    return transition.started(step) if step.status is StepState.READY else step


def release_expired(transition: Transition, step: StepRow) -> None:
    """Make a step whose lease ran out ready for another worker, or give it up after ``LEASES_MAX`` in a row.

    If ``set_back`` has noted an error under this lease, its running out is only the pause after the error, and not
    counted.
    """
    if (step.last_error or {}).get(_NOTED) == step.lease_epoch:
        transition.expire_lease(step)
        return
    count = _count(step.last_error, _LEASES)
    message = (
        f"The lease of this step ran out {count} times in a row without an outcome (last of {step.lease_owner}). "
        "Look in the workers' logs for what ends or stalls them at this step."
    )
    facts = StepError(ErrorClass.CONSISTENCY, "lease_lost", message, {_LEASES: count}).to_json()
    if count < LEASES_MAX:
        transition.expire_lease(step, facts)
        return
    log.error("step failed: its lease ran out too often", run=str(transition.view.run_id), step=step.key)
    _give_up(transition, step, facts)


def _give_up(transition: Transition, step: StepRow, facts: JsonObject) -> None:
    receipt = last_receipt(transition.run, step.key)
    if receipt is not None and receipt.status == ReceiptStatus.INTENDED:
        doubt.mark(transition, receipt, "its outcome could not be recorded")
    transition.give_up(step, facts)


async def set_back_wait(
    connection: Connection, definitions: Definitions, run_id: UUID, step_key: str, wait_id: UUID, error: Exception
) -> None:
    """Note a setback of a due wait whose step cannot be resumed, or give the step up."""
    view = await load_to_end(connection, run_id, definitions.graphs, lock=True)
    step, wait = view.run.steps.get(step_key), open_wait(view.run, step_key)
    if step is None or wait is None or wait.wait_id != wait_id:
        return
    transition = Transition(view, NO_GRAPH)
    count = _count(wait.context)
    log.error("unexpected error at a due wait", run=str(run_id), step=step_key, setbacks=count, exc_info=error)
    if count < SETBACKS_MAX:
        due = int((PAUSE * count).total_seconds())
        transition.tell(WaitPostponed(wait.wait_id, wait.kind, due, count), step=step_key)
    else:
        transition.tell(WaitTimedOut(wait.wait_id, wait.kind), step=step_key)
        transition.give_up(step, _facts(error, count))
    await apply(connection, transition.commit())


def _count(noted: JsonObject | None, what: str = _SETBACKS) -> int:
    before = (noted or {}).get(what)
    return before + 1 if isinstance(before, int) else 1


def _facts(error: Exception, count: int) -> JsonObject:
    if isinstance(error, TooCostly):
        return StepError(ErrorClass.CONSISTENCY, "too_costly", str(error), {_ENDS: count}).to_json()
    message = clean(f"{type(error).__name__}: {error}")
    return StepError(ErrorClass.CONSISTENCY, "unexpected", message, {_SETBACKS: count}).to_json()
