"""Permits of agents: fetched once an action is let out, held by heartbeats, and answered by a report.

Fetching and reporting end a wait of the run. What follows is decided by the worker that claims the step next: it judges
anew and intends, or it settles (``runtime.engine.life.permits``). So a permit goes out only after its intent is in the
book. It is derived each time, and stored nowhere; the same nonce gets the same one, should the answer be lost.
"""

from __future__ import annotations

import hmac
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from connectors.operation import AGENT
from core.canonical import Json, JsonObject, clean, sha256_hex, unfit
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor, timestamp
from evidence.receipts import LateAnswer
from runtime.definition.catalog import Definitions
from runtime.engine.book.instructions import FETCH, PERMIT, REPORT
from runtime.engine.life import late
from runtime.engine.life.outside import GATE
from runtime.engine.life.pausing import keys_of
from runtime.engine.life.permits import (
    AT,
    DETAIL_CHARACTERS_MAX,
    LEASE,
    NONCE,
    Outcome,
    newest,
    nonce_of,
    permit_of,
    withheld,
)
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ActionLate, WaitPostponed
from runtime.engine.model.rows import WaitRow
from runtime.engine.model.run import Run, RunView
from runtime.engine.model.states import WaitState
from runtime.requests.acting import STEP, ActionStatus, Standing, standing
from runtime.requests.signaling import Moved, end_wait, persistently
from runtime.store import faces, inbox
from runtime.store.views import load

_NO_GATE = "This action is performed here, and its agent carries out nothing."


class PermitDecision(StrEnum):
    """The answer to a fetch."""

    PERMIT = "permit"
    DENY = "deny"
    WAIT = "wait"


class Agent(Struct, frozen=True):
    """The agent that asks, by its account, and the action that it asks about."""

    tenant_id: str
    account: str
    actor: Actor
    action: UUID


class Fetched(Struct, frozen=True):
    """The answer to a fetch. ``permit``, ``expires_at`` and ``seconds`` are set if it is a permit."""

    decision: PermitDecision
    status: ActionStatus
    detail: str = ""
    permit: str | None = None
    expires_at: datetime | None = None
    seconds: int = 0


class Report(Struct, frozen=True):
    """The report of an agent: the outcome, and the digest of the call that ran."""

    permit: str
    outcome: Outcome
    digest: str
    output: Json = None
    detail: str = ""

    def facts(self) -> JsonObject:
        """The members that the book holds of it."""
        detail = clean(self.detail, DETAIL_CHARACTERS_MAX)
        return {"outcome": str(self.outcome), "digest": self.digest, "output": self.output, "detail": detail}


class Permits(Struct, frozen=True):
    """Hands out permits, extends their leases, and takes reports, under the faces' role.

    ``lease`` are the seconds of a lease, and ``most`` those up to which heartbeats extend it.
    """

    database: Database
    definitions: Definitions
    lease: int
    most: int

    async def fetch(self, agent: Agent, nonce: str, call: str) -> Fetched:
        """Fetch the permit of an action that is let out. ``ConsistencyError`` for another call, or another nonce.

        The first fetch ends the wait, and says *wait*: the permit is there once the intent is recorded. A crash before
        the commit leaves nothing; after it, the same nonce fetches again.
        """

        async def attempt(lock: bool) -> Fetched:
            async with self.database.transaction(agent.tenant_id) as connection:
                found = await self._standing(connection, agent)
                if found.digest != call:
                    raise ConsistencyError("The digest is of another call.", remedy="Ask for the call that would run.")
                return await self._fetch(connection, agent, found, sha256_hex(nonce.encode()), lock=lock)

        return await persistently(attempt)

    async def _fetch(self, connection: Connection, agent: Agent, found: Standing, nonce: str, *, lock: bool) -> Fetched:
        view = await self._read(connection, agent, lock=lock)
        wait = newest(view.run, STEP, permit=True)
        if wait is not None and nonce_of(wait) not in (None, nonce):
            words = "The permit of this action is fetched by another nonce."
            raise ConsistencyError(words, remedy="Use the nonce of the first fetch, or ask for a new action.")
        if found.settled or found.status is ActionStatus.IN_DOUBT:
            return Fetched(PermitDecision.DENY, found.status, found.detail)
        if wait is None or wait.status is not WaitState.WAITING:
            return Fetched(PermitDecision.WAIT, found.status)
        if _is(wait, FETCH):
            facts: JsonObject = {NONCE: nonce, AT: timestamp(view.now), LEASE: self.lease}
            await self._end(connection, agent, wait, facts, lock=lock)
            return Fetched(PermitDecision.WAIT, ActionStatus.JUDGING)
        _, due_at, now = await inbox.times_of(connection, wait.wait_id)
        seconds = 0 if due_at is None else int((due_at - now).total_seconds())
        if seconds < 1:  # a lease that ends before its answer is there lets nobody begin
            return Fetched(PermitDecision.DENY, ActionStatus.IN_DOUBT, "The lease of the permit is over.")
        if (stopped := await self._stopped(connection, agent, view, wait)) is not None:
            return stopped
        return Fetched(PermitDecision.PERMIT, found.status, "", permit_of(view.run, wait), due_at, seconds)

    async def _stopped(self, connection: Connection, agent: Agent, view: RunView, wait: WaitRow) -> Fetched | None:
        """The answer if what was intended does not go out (again) now; None if it does.

        It is canceled or paused, or its agent is off, or policy and votes let it out no more. It may have gone out
        before, so nothing is settled here: without a report it is in doubt, and people decide.
        """
        status, in_doubt = ActionStatus.EXECUTING, "Unless it is reported, people decide what has become of it."
        if view.run.canceling is not None:
            return Fetched(PermitDecision.DENY, status, f"It was canceled after its intent. {in_doubt}")
        if not {*keys_of(view.workflow, AGENT, view.run_id, view.agent)}.isdisjoint(view.paused):
            return Fetched(PermitDecision.WAIT, status)
        workflow = await self.definitions.of_run(connection, view.definition)
        policy = await self.definitions.policies(connection, agent.tenant_id, view.policies, workflow)
        people = await self.definitions.directory(connection, agent.tenant_id, view.directory_digest)
        transition = Transition(replace(view, directory=people), workflow.graph)
        receipt = view.run.receipts[UUID(str((wait.context or {})["receipt"]))]
        why = withheld(transition, view.run.steps[STEP], workflow, policy, receipt)
        return None if why is None else Fetched(PermitDecision.DENY, status, f"{why} {in_doubt}")

    async def beat(self, agent: Agent, permit: str) -> datetime:
        """Extend the lease of a permit; its end now. ``ConsistencyError`` if it is over, or not of this permit."""

        async def attempt(lock: bool) -> datetime:
            async with self.database.transaction(agent.tenant_id) as connection:
                await self._standing(connection, agent)
                view = await self._read(connection, agent, lock=lock)
                wait = _out(view.run, permit)
                began, due_at, now = await inbox.times_of(connection, wait.wait_id)
                if wait.status is not WaitState.WAITING or due_at is None or due_at <= now:
                    raise ConsistencyError("The lease of this permit is over.", remedy="Report what has become of it.")
                until = min(now + timedelta(seconds=self.lease), began + timedelta(seconds=self.most))
                if until - due_at < timedelta(seconds=self.lease) / 4:
                    return due_at  # it is held long enough, or as long as it may be
                transition = await self._transition(connection, view)
                left = int((until - now).total_seconds())
                transition.tell(WaitPostponed(wait.wait_id, wait.kind, left), step=STEP, actor=agent.actor)
                if not await faces.append(connection, transition.commit(), answers=STEP):
                    raise Moved
                return now + timedelta(seconds=left)

        return await persistently(attempt)

    async def report(self, agent: Agent, report: Report) -> bool:
        """Take a report. False if it was taken before. ``ConsistencyError`` if another was, or if it is over.

        One that comes after the lease decides nothing: it stands with the doubt, for the people who decide that. A
        crash before the commit leaves nothing, and the agent reports again.
        """
        if problem := unfit(report.output, "The output"):
            raise InputError(problem, where="output")

        async def attempt(lock: bool) -> bool:
            async with self.database.transaction(agent.tenant_id) as connection:
                await self._standing(connection, agent)
                return await self._report(connection, agent, report, lock=lock)

        return await persistently(attempt)

    async def _report(self, connection: Connection, agent: Agent, report: Report, *, lock: bool) -> bool:
        view = await self._read(connection, agent, lock=lock)
        wait, facts = _out(view.run, report.permit), report.facts()
        if wait.status is WaitState.WAITING:
            _, due_at, now = await inbox.times_of(connection, wait.wait_id)
            facts |= {"late": True} if due_at is None or due_at <= now else {}
            await self._end(connection, agent, wait, facts, lock=lock)
            return True
        earlier: dict[str, Any] = dict(wait.result or {})
        if wait.status is WaitState.COMPLETED:
            if any(earlier.get(name) != value for name, value in facts.items()):
                raise ConsistencyError("Another report of this action was taken before.", remedy="It stays as it is.")
            return False
        return await self._late(connection, agent, view, report)

    async def _late(self, connection: Connection, agent: Agent, view: RunView, report: Report) -> bool:
        """Tell a report that comes after its lease. It moves nothing, and the cards of the doubt show it."""
        receipt = max(view.run.receipts.values(), key=lambda row: row.intended_at)
        if view.run.finished:
            raise ConsistencyError("Its lease is over, and so is the action.", remedy="People have decided on it.")
        ran = report.outcome in (Outcome.SUCCEEDED, Outcome.FAILED) and report.digest == view.run.trigger.get(GATE)
        known = {Outcome.SUCCEEDED: LateAnswer.SUCCEEDED, Outcome.FAILED: LateAnswer.FAILED}
        answer = known[report.outcome] if ran else LateAnswer.IN_DOUBT
        answer = LateAnswer.FAILED if report.outcome is Outcome.NOT_RUN else answer
        transition, facts = await self._transition(connection, view), report.facts()
        event = ActionLate(
            receipt.receipt_id, receipt.attempt, receipt.lease_epoch, answer, timestamp(receipt.intended_at),
            timestamp(view.now), str(report.outcome), facts.pop("output") if ran else None, detail=facts,
        )  # fmt: skip
        if any(one.get("detail") == event.detail for one in receipt.late):
            return False
        if receipt.late:
            raise ConsistencyError("Another report of this action was taken before.", remedy="It stays as it is.")
        late.tell(transition, event, agent.actor)
        if not await faces.append(connection, transition.commit(), answers=STEP):
            raise Moved
        return True

    async def _standing(self, connection: Connection, agent: Agent) -> Standing:
        """The action of just this account; ``NotFoundError`` for all others."""
        return await standing(connection, agent.tenant_id, self.definitions, agent.account, agent.action)

    async def _read(self, connection: Connection, agent: Agent, *, lock: bool) -> RunView:
        place, of_tenant = (connection, agent.action, self.definitions.graphs), agent.tenant_id
        view = await load(*place, lock=lock, tenant=of_tenant)
        if view.run.finished:  # its waits are behind its last barrier
            view = await load(*place, whole=True, tenant=of_tenant)
        if not isinstance(view.run.trigger.get(GATE), str):
            raise ConsistencyError(_NO_GATE, remedy='Ask with `"mode": "gate"` for a tool of your own.')
        return view

    async def _transition(self, connection: Connection, view: RunView) -> Transition:
        return Transition(view, (await self.definitions.of_run(connection, view.definition)).graph)

    async def _end(self, connection: Connection, agent: Agent, wait: WaitRow, facts: JsonObject, *, lock: bool) -> None:
        place = (agent.action, STEP, wait.wait_id)
        await end_wait(connection, self.definitions, agent.tenant_id, place, facts, agent.actor, lock=lock)


def _is(wait: WaitRow, phase: str) -> bool:
    return (wait.context or {}).get(PERMIT) == phase


def _out(run: Run, permit: str) -> WaitRow:
    """The wait for the report of this permit. ``ConsistencyError`` if no permit has gone out, or another."""
    wait = newest(run, STEP, permit=True)
    if wait is None or not _is(wait, REPORT) or not hmac.compare_digest(permit_of(run, wait), permit):
        raise ConsistencyError(
            "This is not the permit of the action.", remedy="Fetch it: POST /v1/actions/{id}/permit."
        )
    return wait
