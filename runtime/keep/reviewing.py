"""Judges an open question again, at once when the policy in force has changed (promise 3)."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from approvals.model import ApprovalStatus
from core.db import Database
from runtime.definition.catalog import Definitions
from runtime.engine import review
from runtime.engine.transition import Transition
from runtime.store import approvals
from runtime.store.commits import apply
from runtime.store.views import load


async def review_question(database: Database, definitions: Definitions, approval_id: UUID) -> bool:
    """Judge an open question on its run, which is locked and read anew; return true if the question was voided.

    A crash before the commit leaves the question to the next sweep, and its votes are judged again before any intent.
    """
    async with database.transaction() as connection:
        run_id = await approvals.run_of(connection, approval_id)
        view = await load(connection, run_id, definitions.graphs, lock=True, whole=True)
        asked, answer = view.run.approvals.get(approval_id), view.run.answers.get(approval_id)
        if asked is None or answer is None or answer.status != ApprovalStatus.REQUESTED or view.run.canceling:
            return False
        workflow = await definitions.of_run(connection, view.definition)
        policy = await definitions.policies(connection, view.tenant_id, view.policies, workflow)
        people = await definitions.directory(connection, view.tenant_id, view.directory_digest)
        view = replace(view, directory=people)
        transition, step = Transition(view, workflow.graph), view.run.steps[asked.step_key]
        if review.still_asks(transition, step, workflow, policy, asked):
            return False
        review.void(transition, step, asked)
        return await apply(connection, transition.commit()) is not None
