"""Takes votes, for every face. A vote is committed before anybody is told that it counts (promise 4).

A vote is one read and one guarded append. It commutes with events of other steps. If another vote on its question comes
first, or another event that does not commute, the vote is judged again on the new state; the last attempt locks the
run's row. So ten equal clicks, or two people at once, make one decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
from msgspec import Struct

from approvals import click_proof, granting
from approvals.model import APPROVAL, Approval, ApprovalEvent, ApprovalKind, CardView, Choice, VoteChannel, Voter
from approvals.ports import Membership, MessageRef
from approvals.quorum import Counted, NotCounted, RefusalCode, consider, glass_vote
from approvals.tally import plans
from core.canonical import Json, JsonObject, check_text
from core.db import Connection, Database, within
from core.errors import ConsistencyError
from core.identity import Entry
from core.ids import new_id
from core.terms import Grant, GroupQuorum, GroupSource
from evidence.chain import Actor, EventType, timestamp
from evidence.commitments import commit, reason_path
from runtime.definition.catalog import Definitions
from runtime.definition.reserved import POLICY_CHANGE
from runtime.engine.book.instructions import last_receipt, open_wait
from runtime.engine.life import ask, doubt, waits
from runtime.engine.life.preflight import PROPOSAL
from runtime.engine.life.transition import Transition
from runtime.engine.model.errors import REJECTED, SENT, ErrorClass, StepError
from runtime.engine.model.events import ApprovalDecided, ApprovalVoted, ApprovalVoteRefused, WaitCompleted
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import CommandRow, StepRow, WaitRow
from runtime.engine.model.states import CommandState
from runtime.requests import glass
from runtime.requests.directory import NO_GROUPS, DatabaseDirectory, actor_of, as_people, voter_of
from runtime.requests.policy_changes import Then, following, may_concern, refusal
from runtime.requests.signaling import CONFLICTS_MAX
from runtime.requests.views import drawn
from runtime.store import approvals, audit, faces, sessions, tenants
from runtime.store.approvals import StoredApproval
from runtime.store.sessions import StepUp

NOTE = "note"
ASKED_ANEW = (
    "What this asks has changed since the card was made, so your answer does not count. "
    "A new card asks it as it is now; please look at that one."
)
# Refusals that the audit records, because they show who tried what; a second click on a decided card shows nothing.
TELLING = frozenset({
    RefusalCode.STALE, RefusalCode.CHANGED, RefusalCode.SEPARATION, RefusalCode.UNRESOLVABLE, RefusalCode.NOT_ELIGIBLE,
    RefusalCode.UNKNOWN, RefusalCode.DEACTIVATED, RefusalCode.MACHINE, RefusalCode.EXPIRED, RefusalCode.ALREADY_COUNTED,
    RefusalCode.FALSE_CARD, RefusalCode.GRANT, RefusalCode.STEP_UP, RefusalCode.GLASS, RefusalCode.UNREVIEWED,
})  # fmt: skip


class AnswerTo(Struct, frozen=True):
    """The Slack channel and user to which the outcome is reported to the person who clicked."""

    channel: str
    user: str


class VoteRequest(Struct, frozen=True):
    """One person's answer, as a face received it. ``nonce`` and ``digest`` must match if they are given.

    ``person_id`` is a principal, or a name of any kind, which the directory resolves. ``place`` is the message that was
    clicked, which must be the question's own; None if the face shows the question itself. ``grant`` is what the person
    allows in advance. ``identity`` is how the face has identified the person; the vote's line shows it. ``step_up`` is
    the key of their new login for this question and action, if the face has asked for one. ``glass``: they break the
    glass.
    """

    tenant_id: str
    approval_id: UUID
    person_id: str
    choice: Choice
    reason: str
    channel: VoteChannel
    nonce: str | None = None
    digest: str | None = None
    answer_to: AnswerTo | None = None
    place: MessageRef | None = None
    grant: Grant | None = None
    identity: JsonObject | None = None
    step_up: str | None = None
    glass: bool = False


@dataclass(frozen=True, slots=True)
class VoteAnswer:
    """The outcome of a vote. ``code`` is ``counted`` or why it was refused; ``status`` is the approval's new one."""

    counted: bool
    code: str
    sentence: str
    status: str
    run_id: UUID


# A function that appends a vote's events and returns the answer; None if the run has moved on since the decision.
_Decided: TypeAlias = "Callable[[Connection | Database], Awaitable[VoteAnswer | None]]"


class Voting(Struct, frozen=True):
    """Takes votes on approvals of any tenant, under the faces' role. ``directory`` gives the people of a tenant."""

    database: Database
    definitions: Definitions
    directory: Callable[[str], DatabaseDirectory] | None = None

    async def vote(self, request: VoteRequest) -> VoteAnswer:
        """Judge and record one vote. ``NotFoundError`` if the tenant has no such approval."""
        check_text(request.reason, "reason")
        slack, governs = None, False
        for attempt in range(CONFLICTS_MAX):
            lock = governs or request.glass or attempt > 1
            # With the lock, read and append are one transaction, on one connection.
            reached = self.database.transaction(request.tenant_id) if lock else self.database.connection()
            try:
                async with reached as connection:
                    if governs or request.glass:
                        await tenants.lock(connection, request.tenant_id)
                    stored, entry, answer = await _judge(self.definitions, connection, request, slack, lock=lock)
                    if not governs and callable(answer) and may_concern(stored.approval):
                        governs = True
                        continue
                    if lock and callable(answer):
                        answer = await answer(connection)
                # The append may wait for other appends, which need a connection: hold none meanwhile.
                if callable(answer):
                    answer = await answer(self.database)
            except asyncpg.TransactionRollbackError:
                continue  # PostgreSQL has chosen this transaction as a deadlock victim
            except asyncpg.UniqueViolationError:
                if not request.glass:
                    raise
                continue  # another person has just broken the glass
            if answer is not None:
                return answer
            # Slack is asked outside of any transaction; its answer is of this moment, when the vote is judged.
            if slack is None and (wanted := _slack_groups(stored)):
                slack = await self._ask_slack(request.tenant_id, entry, wanted)
        raise ConsistencyError("The run changed during every attempt to record this vote.", remedy="Try again.")

    async def view(self, tenant: str, approval_id: UUID) -> CardView:
        """The approval as every face shows it."""
        return (await self.look(tenant, approval_id))[0]

    async def look(self, tenant: str, approval_id: UUID) -> tuple[CardView, MessageRef | None]:
        """The approval as every face shows it, and the message that asks it; None if no message is recorded."""
        async with self.database.transaction(tenant) as connection:
            stored = await approvals.read(connection, approval_id)
            return await drawn(connection, self.definitions, stored), stored.message

    async def note(self, tenant: str, approval_id: UUID, answer_to: AnswerTo, sentence: str) -> None:
        """Order a message to one person, without a vote."""
        async with self.database.transaction(tenant) as connection:
            stored = await approvals.read(connection, approval_id)
            note = _answer(stored, answer_to, sentence)
            await faces.order_message(connection, tenant, stored.approval.run_id, NOTE, note)

    async def _ask_slack(self, tenant: str, entry: Entry | None, wanted: list[GroupQuorum]) -> Membership:
        if self.directory is None:
            return Membership(frozenset(), frozenset(group.key for group in wanted))
        return await self.directory(tenant).slack_membership(entry, wanted)


async def _judge(
    definitions: Definitions, connection: Connection, request: VoteRequest, slack: Membership | None, *, lock: bool
) -> tuple[StoredApproval, Entry | None, VoteAnswer | _Decided | None]:
    """The approval, the voter, and the answer or the append to make; None in its place if Slack must be asked first."""
    named = (request.tenant_id, request.approval_id)
    stored, view = await approvals.read_to_decide(connection, *named, definitions.graphs, lock=lock)
    people = await definitions.directory(connection, request.tenant_id, stored.directory_digest)
    entry = people.entry(request.person_id)
    if request.place is not None and (false := click_proof.wrong_message(stored.message, request.place)) is not None:
        return stored, entry, await _refuse(connection, request, stored, actor_of(request.person_id, entry), false)
    if slack is None and _slack_groups(stored):
        return stored, entry, None
    asked = as_people(stored.approval, people)
    fresh = await _fresh(connection, request, asked, entry)
    voter = voter_of(request.person_id, entry, slack or NO_GROUPS, asked, people)
    judged = await _considered(connection, request, stored, asked, (voter, entry, fresh))
    if isinstance(judged, NotCounted):
        return stored, entry, await _refuse(connection, request, stored, actor_of(request.person_id, entry), judged)
    inner = StepKey.of(stored.approval.step_key).is_inner
    if request.grant is not None and (no := granting.refused(asked, judged.vote, request.grant, of_agent=inner)):
        return stored, entry, await _refuse(connection, request, stored, actor_of(request.person_id, entry), no)
    if (refused := refusal(view, stored.approval.step_key, judged.effect, people)) is not None:
        return stored, entry, await _refuse(connection, request, stored, actor_of(request.person_id, entry), refused)
    workflow = await definitions.of_run(connection, view.definition)
    transition = Transition(view, workflow.graph)
    step = view.run.steps[stored.approval.step_key]
    gate = stored.approval.kind is ApprovalKind.GATE
    if gate and not ask.gate_still_asks(transition, step, stored.approval.action_digest):
        actor = actor_of(request.person_id, entry)
        return stored, entry, _ask_anew(transition, request, stored, actor, wait_of(transition, step))
    identity = request.identity or {"named": request.person_id}
    if fresh is not None and judged.vote.choice is Choice.APPROVE:
        identity = {**identity, "step_up": {"at": timestamp(fresh.at), "by": fresh.by}}
    status = count(transition, stored, judged, request.grant, identity)
    answer = VoteAnswer(True, "counted", judged.sentence, status, stored.approval.run_id)
    then = following(view, stored.approval.step_key, definitions, judged.effect, judged.vote.voter)
    if judged.vote.glass:
        then = glass.loud(transition, asked, judged.vote.voter)
    return stored, entry, _decided(transition, stored, request.answer_to, answer, then)


async def _considered(
    connection: Connection,
    request: VoteRequest,
    stored: StoredApproval,
    asked: Approval,
    who: tuple[Voter, Entry | None, StepUp | None],
) -> Counted | NotCounted:
    """Judge the vote by the common rules, or by the rules for breaking the glass if the person does that."""
    voter, entry, login = who
    about: dict[str, Any] = {"at": stored.now, "channel": request.channel, "fresh": login.at if login else None}
    if not request.glass:
        about |= {"nonce": request.nonce, "digest": request.digest}
        return consider(asked, voter, request.choice, request.reason, **about)
    given = (request.reason, request.nonce, request.digest)
    no = await glass.judged(connection, stored, asked, voter, entry, given)
    return no or glass_vote(asked, voter, request.reason, **about)


async def _fresh(connection: Connection, request: VoteRequest, asked: Approval, entry: Entry | None) -> StepUp | None:
    """The new login of this person for this question and action; None if there was none, or if none is needed."""
    if request.step_up is None or asked.terms.step_up_seconds is None or entry is None:
        return None
    async with within(connection, request.tenant_id):
        found = await sessions.stepped_up(connection, request.tenant_id, request.step_up)
    return found if found is not None and found.subject == entry.id else None


async def vote_within(connection: Connection, definitions: Definitions, request: VoteRequest) -> VoteAnswer:
    """Judge and record a vote in the caller's transaction, which holds the tenant's lock. Slack is not asked here."""
    _, _, answer = await _judge(definitions, connection, request, None, lock=True)
    if callable(answer):
        answer = await answer(connection)
    if answer is None:
        raise ConsistencyError("The question cannot be answered here.", remedy="Answer it where it is shown.")
    return answer


def _slack_groups(stored: StoredApproval) -> list[GroupQuorum]:
    return [group for plan in plans(stored.approval) for group in plan if group.source is GroupSource.SLACK_GROUP]


async def _refuse(
    connection: Connection, request: VoteRequest, stored: StoredApproval, actor: Actor, refused: NotCounted
) -> VoteAnswer:
    """Record a refusal worth auditing, and answer. After a crash before the commit the click gets no answer."""
    approval = stored.approval
    async with within(connection, request.tenant_id):
        if refused.code in TELLING:
            data: JsonObject = {
                "approval": str(approval.id),
                "run": str(approval.run_id),
                "code": str(refused.code),
                "channel": str(request.channel),
            }
            await audit.record(connection, request.tenant_id, EventType.APPROVAL_VOTE_REFUSED, actor, data)
        if request.answer_to is not None:
            note = _answer(stored, request.answer_to, refused.sentence)
            await faces.order_message(connection, request.tenant_id, approval.run_id, NOTE, note)
    return VoteAnswer(False, str(refused.code), refused.sentence, str(approval.status), approval.run_id)


def _ask_anew(
    transition: Transition, request: VoteRequest, stored: StoredApproval, actor: Actor, wait: WaitRow
) -> _Decided:
    """Refuse a vote on a gate that would now ask something else; the worker that claims the step asks it.

    It is one guarded commit: a crash before it leaves everything as it was; after it, the step is ready to ask again.
    """
    approval = stored.approval
    step = transition.view.run.steps[approval.step_key]
    refused = ApprovalVoteRefused(approval.id, str(RefusalCode.CHANGED), str(request.channel))
    transition.tell(refused, step=step.key, actor=actor)
    ask.supersede(transition, step, approval.id)
    transition.resume(step, wait)
    status = str(APPROVAL.next[approval.status, ApprovalEvent.SUPERSEDE])
    answer = VoteAnswer(False, str(RefusalCode.CHANGED), ASKED_ANEW, status, approval.run_id)
    return _decided(transition, stored, request.answer_to, answer)


def _decided(
    transition: Transition, stored: StoredApproval, to: AnswerTo | None, answer: VoteAnswer, then: Then | None = None
) -> _Decided:
    """The effect of a vote, with the note to the person who clicked.

    A crash before the append leaves nothing, and the person clicks again; after it, vote and answer are recorded.
    """
    commit = transition.commit()
    commit.asked_at = stored.created_at
    if to is not None:
        note = _answer(stored, to, answer.sentence)
        commit.commands.append(CommandRow(new_id(), NOTE, CommandState.PENDING, note))

    async def append(at: Connection | Database) -> VoteAnswer | None:
        if not await faces.append(at, commit, answers=stored.approval.step_key):
            return None
        if then is not None:
            assert not isinstance(at, Database), "what follows is of the vote's own transaction"
            await then(at)
        return answer

    return append


def _answer(stored: StoredApproval, to: AnswerTo, sentence: str) -> JsonObject:
    return {"approval": str(stored.approval.id), "channel": to.channel, "user": to.user, "text": sentence}


def wait_of(transition: Transition, step: StepRow) -> WaitRow:
    """The wait of the step that the question is about."""
    wait = open_wait(transition.run, step.key)
    if wait is None:
        raise ConsistencyError(f"The step {step.key} does not wait for this answer.")
    return wait


def _voted(
    transition: Transition, stored: StoredApproval, counted: Counted, grant: Grant | None, identity: JsonObject | None
) -> ApprovalVoted:
    """The event of a vote."""
    approval, vote = stored.approval, counted.vote
    committed: list[Json] | None = None
    if vote.reason:
        path = reason_path(str(approval.id), vote.voter, timestamp(transition.view.at))
        committed = [[path, commit(transition.view.run.run_key, path, vote.reason)]]
    return ApprovalVoted(
        approval=approval.id,
        choice=str(vote.choice),
        channel=str(vote.channel),
        reason_given=bool(vote.reason),
        separation_waived=counted.separation_waived,
        committed=committed,
        reason=vote.reason,
        groups=sorted(vote.groups),
        grant=None if grant is None else grant.to_json(),
        directory=stored.directory_digest,
        identity=identity,
        on_behalf=vote.on_behalf or None,
        glass=vote.glass,
    )


def count(
    transition: Transition,
    stored: StoredApproval,
    counted: Counted,
    grant: Grant | None = None,
    identity: JsonObject | None = None,
) -> str:
    """Make the moves that the vote causes; return the approval's status afterwards."""
    approval, vote = stored.approval, counted.vote
    person = Actor("person", vote.voter)
    voted = _voted(transition, stored, counted, grant, identity)
    transition.tell(voted, step=approval.step_key, actor=person)
    if counted.effect is None:
        transition.message("card", approval.id, f"votes:{len(approval.votes)}:{vote.voter}")
        return str(approval.status)
    status = str(APPROVAL.next[approval.status, counted.effect])
    outcome = str(counted.decision) if approval.kind is ApprovalKind.IN_DOUBT else status
    decided = ApprovalDecided(approval.id, outcome, str(counted.decision), vote.reason)
    transition.tell(decided, step=approval.step_key, actor=person)
    transition.message("card", approval.id, "decided")
    if transition.view.workflow == POLICY_CHANGE:
        transition.message(PROPOSAL, approval.id, status)
    step = transition.view.run.steps[approval.step_key]
    wait = wait_of(transition, step)
    if counted.effect is ApprovalEvent.APPROVE:
        transition.resume(step, wait)
        return status
    # Giving a doubt up is no rejection: people were asked for the outcome of the action, not for approval.
    doubtful = approval.kind is ApprovalKind.IN_DOUBT
    receipt = last_receipt(transition.run, approval.step_key) if doubtful else None
    if receipt is not None:
        why = doubt.Found(f"a person gave it up: {vote.reason}", doubt.PEOPLE, approval.id)
        doubt.given_up(transition, receipt, why)
    kind, code = (ErrorClass.CONSISTENCY, "given_up") if doubtful else (ErrorClass.AUTHORIZATION, REJECTED)
    error = StepError(kind, code, vote.reason, {"by": vote.voter, **(SENT if doubtful else {})})
    waits.end_badly(transition, step, wait, WaitCompleted, error.to_json())
    return status
