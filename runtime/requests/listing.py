"""Takes answers to a list of questions: one click is a vote on each question, judged by itself (promise 3).

All questions of a list are of one run. So the run is locked, each question is judged on the run as the earlier votes
have left it, and one append records all votes that count: a crash leaves all of them or none, and a repeated click
finds them counted. A refused vote on one question does not hold up the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from uuid import UUID

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from approvals import click_proof
from approvals.content import CardContent
from approvals.lists import mark_of, names_of
from approvals.model import ApprovalKind, ApprovalStatus, Choice, VoteChannel
from approvals.ports import Membership, MessageRef
from approvals.quorum import Counted, NotCounted, RefusalCode, consider
from approvals.tally import plans
from core.canonical import JsonObject, check_text
from core.db import Connection
from core.errors import ConsistencyError, InputError
from core.identity import Directory
from core.ids import new_id
from core.terms import GroupSource
from evidence.chain import EventType
from runtime.engine.book.contributors import barred_from
from runtime.engine.book.instructions import open_wait
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import CommandRow
from runtime.engine.model.run import RunView
from runtime.engine.model.states import CommandState
from runtime.requests.directory import NO_GROUPS, actor_of, as_people, voter_of
from runtime.requests.signaling import CONFLICTS_MAX
from runtime.requests.voting import NOTE, TELLING, AnswerTo, Voting, count
from runtime.store import approvals, audit, faces, lists
from runtime.store.approvals import StoredApproval

_GROWN = NotCounted(
    RefusalCode.STALE,
    "This list has changed since it was shown to you: another question has come to stand on it. Nothing was counted. "
    "Please look at it again.",
)
_CANCELED = NotCounted(RefusalCode.ALREADY_DECIDED, "This question ended with the answers before it; nothing is done.")


class ListVote(Struct, frozen=True):
    """One person's answers to the questions of a list, as a face received them.

    ``choice`` is the answer to all questions. If some are ``chosen``, it is the answer to these only, and all others
    are rejected. A messenger proves what it showed by the ``mark`` of the message that asks ``first``, and by the
    ``place`` that was clicked; any other face by the ``digests`` of the questions that it showed. ``identity`` is how
    the face has identified the person; the votes' lines show it.
    """

    tenant_id: str
    first: UUID
    person_id: str
    choice: Choice
    reason: str
    channel: VoteChannel
    chosen: frozenset[UUID] | None = None
    mark: str | None = None
    place: MessageRef | None = None
    digests: Mapping[UUID, str] | None = None
    answer_to: AnswerTo | None = None
    identity: JsonObject | None = None


class Refusal(Struct, frozen=True):
    """A question for which the answer does not count: the ``name`` of its record, and the reason."""

    approval_id: UUID
    name: str
    code: str
    sentence: str


class ListAnswer(Struct, frozen=True):
    """The outcome of an answer: the number of counted votes for each choice, and the refused ones."""

    approved: int
    rejected: int
    refused: tuple[Refusal, ...]
    run_id: UUID

    @property
    def sentence(self) -> str:
        """The outcome in words, for the person who answered."""
        counts = [f"{self.approved} approved"] * bool(self.approved) + [f"{self.rejected} rejected"] * bool(
            self.rejected
        )
        by: dict[str, list[str]] = {}
        for one in self.refused:
            by.setdefault(one.sentence, []).append(one.name)
        if not counts and len(by) == 1:
            return next(iter(by))
        whys = [f"{', '.join(names)}: {sentence}" for sentence, names in by.items()]
        counted = ", ".join(counts) or "Nothing was counted"
        if not whys:
            return f"{counted}."
        were = f"{len(self.refused)} could not be"
        return f"{counted}, {were}: {' '.join(whys)}"


async def vote_list(voting: Voting, request: ListVote) -> ListAnswer:
    """Judge and record the votes. ``NotFoundError`` if the tenant has no such question."""
    check_text(request.reason, "reason")
    slack: Membership | None = None
    for _ in range(CONFLICTS_MAX):
        try:
            async with voting.database.transaction(request.tenant_id) as connection:
                if slack is None and (slack := await _groups(voting, connection, request)) is None:
                    continue
                answer = await _judged(voting, connection, request, slack)
                if answer is not None:
                    return answer
                raise _Moved
        except (_Moved, asyncpg.TransactionRollbackError):
            continue
    raise ConsistencyError("The run changed during every attempt to record these votes.", remedy="Try again.")


class _Moved(Exception):
    """The append was refused: its transaction is rolled back, and everything is judged again."""


async def _groups(voting: Voting, connection: Connection, request: ListVote) -> Membership | None:
    """The Slack groups of the person; Slack is asked only if the list has a question to one of its groups."""
    stored = await approvals.read(connection, request.first)
    ids = await lists.of_message(connection, request.first) if request.digests is None else [*request.digests]
    every = {
        one.key: one for each in await lists.several(connection, ids) for plan in plans(each.approval) for one in plan
    }
    asked = [one for one in every.values() if one.source is GroupSource.SLACK_GROUP]
    if not asked:
        return NO_GROUPS
    people = await voting.definitions.directory(connection, request.tenant_id, stored.directory_digest)
    if voting.directory is None:
        return Membership(frozenset(), frozenset(group.key for group in asked))
    return await voting.directory(request.tenant_id).slack_membership(people.entry(request.person_id), asked)


async def _judged(voting: Voting, connection: Connection, request: ListVote, slack: Membership) -> ListAnswer | None:
    """Judge every question in one snapshot, with the run locked, and append; None if the run has moved on."""
    graphs = voting.definitions.graphs
    first, view = await approvals.read_to_decide(connection, request.tenant_id, request.first, graphs, lock=True)
    found = await _questions(connection, request, view)
    people = await voting.definitions.directory(connection, request.tenant_id, first.directory_digest)
    if (false := _unproven(request, first, found)) is not None:
        refused = [(first, false)]
        return await _conclude(connection, request, people, (0, 0), refused, view)
    workflow = await voting.definitions.of_run(connection, view.definition)
    transition, counts, refused = Transition(view, workflow.graph), {Choice.APPROVE: 0, Choice.REJECT: 0}, []
    answers = _answers(request, found)
    mixed = len({choice for _, choice in answers}) > 1  # then the reason belongs to the rejected questions
    for stored, choice in answers:
        reason = "" if mixed and choice is Choice.APPROVE else request.reason
        judged = _judge(transition, stored, replace(request, reason=reason), choice, people, slack)
        if isinstance(judged, NotCounted):
            refused.append((stored, judged))
        else:
            count(transition, stored, judged, identity=request.identity or {"named": request.person_id})
            counts[choice] += 1
    given = counts[Choice.APPROVE], counts[Choice.REJECT]
    if not any(given):
        return await _conclude(connection, request, people, given, refused, view)
    answer = await _conclude(connection, request, people, given, refused, view, transition)
    # A crash before this leaves no vote, and the person clicks again; after it, votes and answer are recorded.
    return answer if await faces.append(connection, transition.commit()) else None


async def _questions(connection: Connection, request: ListVote, view: RunView) -> list[StoredApproval]:
    """The questions that were shown, each with the people who have shaped it by now."""
    ids = await lists.of_message(connection, request.first) if request.digests is None else [*request.digests]
    found = await lists.several(connection, ids)
    own = [one for one in found if one.approval.run_id == view.run_id and one.approval.kind is ApprovalKind.ACTION]
    if len(own) != len(ids) or len({one.listed for one in own}) > 1:
        raise InputError("names questions that do not stand on one list", where="list")
    questions = []
    for one in own:
        asked = view.run.approvals.get(one.approval.id)
        shaped = one.approval.contributors if asked is None else barred_from(view.run, asked)
        questions.append(dataclasses.replace(one, approval=replace(one.approval, contributors=shaped)))
    return questions


def _unproven(request: ListVote, first: StoredApproval, found: Sequence[StoredApproval]) -> NotCounted | None:
    """The reason why the request is no proven answer to the questions on the message now. Fails closed."""
    if request.place is not None and (false := click_proof.wrong_message(first.message, request.place)) is not None:
        return false
    if request.digests is not None:
        return None
    mark = mark_of([(str(one.approval.id), one.approval.action_digest, one.approval.nonce) for one in found])
    return None if found and request.mark and len(request.mark) >= 32 and mark.startswith(request.mark) else _GROWN


def _answers(request: ListVote, found: Sequence[StoredApproval]) -> list[tuple[StoredApproval, Choice]]:
    """The answer to each question, approvals first, because a rejection may end the run.

    A question that is already decided gets no answer, unless it was chosen, or all questions are decided.
    """
    chosen = request.chosen if request.chosen is not None else {one.approval.id for one in found}
    if not chosen <= {one.approval.id for one in found}:
        raise InputError("names questions that do not stand on this list", where="items")
    left = [one for one in found if one.approval.status not in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED)]
    if request.chosen is not None:
        left = [one for one in found if one in left or one.approval.id in chosen]
    answers = [(one, request.choice if one.approval.id in chosen else Choice.REJECT) for one in left or found]
    return sorted(answers, key=lambda one: one[1] is Choice.REJECT)


def _judge(
    transition: Transition,
    stored: StoredApproval,
    request: ListVote,
    choice: Choice,
    people: Directory,
    slack: Membership,
) -> Counted | NotCounted:
    approval = stored.approval
    asked = as_people(approval, people)
    judged = consider(
        asked,
        voter_of(request.person_id, people.entry(request.person_id), slack, asked, people),
        choice,
        request.reason,
        at=stored.now,
        channel=request.channel,
        digest=request.digests.get(approval.id) if request.digests is not None else None,
    )
    if isinstance(judged, NotCounted):
        return judged
    answer = transition.run.answers.get(approval.id)
    waits = answer is not None and answer.status == ApprovalStatus.REQUESTED
    return judged if waits and open_wait(transition.run, approval.step_key) is not None else _CANCELED


async def _conclude(
    connection: Connection,
    request: ListVote,
    people: Directory,
    given: tuple[int, int],
    refused: Sequence[tuple[StoredApproval, NotCounted]],
    view: RunView,
    transition: Transition | None = None,
) -> ListAnswer:
    """Record the refusals worth auditing, and order the answer to the person, in the transaction of the votes."""
    named, names = [], names_of([(one.approval.id, CardContent.from_json(one.card)) for one, _ in refused if one.card])
    for stored, why in refused:
        approval = stored.approval
        if why.code in TELLING:
            data: JsonObject = {"approval": str(approval.id), "run": str(view.run_id)}
            data |= {"code": str(why.code), "channel": str(request.channel)}
            actor = actor_of(request.person_id, people.entry(request.person_id))
            await audit.record(connection, request.tenant_id, EventType.APPROVAL_VOTE_REFUSED, actor, data)
        name = names.get(approval.id, approval.step_key)
        named.append(Refusal(approval.id, name, str(why.code), why.sentence))
    answer = ListAnswer(*given, tuple(named), view.run_id)
    if request.answer_to is not None:
        to = request.answer_to
        note: JsonObject = {"approval": str(request.first), "channel": to.channel, "user": to.user}
        note["text"] = answer.sentence
        if transition is not None:
            transition.rows.commands.append(CommandRow(new_id(), NOTE, CommandState.PENDING, note))
        else:
            await faces.order_message(connection, request.tenant_id, view.run_id, NOTE, note)
    return answer
