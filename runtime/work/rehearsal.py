"""The rehearsal of a step: everything that a worker does to begin it, without an append and without a call.

If a step stops its worker, only an expired lease is left. The next worker lets another process rehearse the step first:
if that stops the process, no worker is lost.
"""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from connectors.of_tenants import TenantConnectors
from core.db import Database
from core.ids import new_nonce
from runtime.definition.catalog import Definitions
from runtime.engine.book.instructions import Over, known_of, leased
from runtime.engine.life.proposal import Leased
from runtime.engine.life.step import begin
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import Claim
from runtime.engine.model.states import StepState
from runtime.store.views import load
from runtime.work.lease import meet


async def rehearse(
    database: Database,
    definitions: Definitions,
    connectors: TenantConnectors,
    run_id: UUID,
    claim: Claim,
    owner: str,
    lease: timedelta,
) -> None:
    """Begin a leased step, and those that follow in the same append, without appending anything."""
    asked = time.monotonic()
    async with database.connection() as connection:
        view = await load(connection, run_id, definitions.graphs)
        met = await meet(connection, definitions, connectors, view, asked)
    step, known = leased(met.view, claim, owner), known_of(met.view.run, claim.key)
    if step.status is not StepState.READY:
        return
    place = (met.view, met.workflow.graph)
    transition = Transition(*place, lease=lease, systems=met.connectors.targets, ready=met.connectors.ready)
    begun = transition.started(replace(step, lease_owner=owner, lease_epoch=claim.epoch))
    work = begin(Leased(transition, begun, met.workflow, met.policy, new_nonce).knowing(known))
    while isinstance(work, Over):
        following = transition.take(owner, begun.key)
        if following is None:
            break
        begun = following
        work = begin(Leased(transition, begun, met.workflow, met.policy, new_nonce))
    transition.commit()
