"""Takes comments on an open question, for every face. The right to comment is read when the comment arrives.

Each is one guarded append, like a vote. If the question's step gets another event meanwhile, it is judged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals import click_proof, talk
from approvals.model import Approval, VoteChannel
from approvals.ports import Membership, MessageRef
from approvals.quorum import NotCounted, RefusalCode
from approvals.talk import Saying
from approvals.tally import plans
from core.canonical import JsonObject, check_text
from core.db import Connection, Database
from core.terms import GroupSource
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine.book.contributors import barred_from
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ApprovalReassigned, ApprovalSaid
from runtime.engine.model.graph import NO_GRAPH
from runtime.requests.conversing import comments_of, conversation
from runtime.requests.directory import NO_GROUPS, DatabaseDirectory, actor_of, as_people, voter_of
from runtime.requests.signaling import Moved, persistently
from runtime.store import approvals, audit, faces, lists
from runtime.store.approvals import StoredApproval
from runtime.store.views import load

# The message below the card that repeats the comment, and the private message to the requester of the action.
SAID, ASKED = "said", "asked"


class SayRequest(Struct, frozen=True):
    """A person's comment on a question, as a face received it.

    ``nonce`` and ``digest`` must match if they are given. ``to`` is the person or group to whom it is addressed.
    ``place`` and ``identity`` as in ``VoteRequest``.
    """

    tenant_id: str
    approval_id: UUID
    person_id: str
    saying: Saying
    text: str
    channel: VoteChannel
    to: str = ""
    nonce: str | None = None
    digest: str | None = None
    place: MessageRef | None = None
    identity: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class SayAnswer:
    """The answer to a comment: ``code`` is ``recorded``, or the reason for the refusal."""

    recorded: bool
    code: str
    sentence: str
    run_id: UUID


class Talking(Struct, frozen=True):
    """Takes comments on questions of any tenant, under the faces' role."""

    database: Database
    definitions: Definitions
    directory: DatabaseDirectory | None = None

    async def say(self, asked: SayRequest) -> SayAnswer:
        """Judge and record a comment. ``NotFoundError`` if the tenant has no such question."""
        check_text(asked.text, "text")
        slack = await slack_of(
            self.database, self.definitions, self.directory, asked.tenant_id, asked.approval_id, asked.person_id
        )

        async def attempt(lock: bool) -> SayAnswer:
            async with self.database.transaction(asked.tenant_id) as connection:
                return await self._say(connection, asked, slack, lock=lock)

        return await persistently(attempt)

    async def offers(self, tenant: str, approval_id: UUID, person: str) -> tuple[Saying, ...]:
        """The kinds of comments that this person may make on the question now."""
        slack = await slack_of(self.database, self.definitions, self.directory, tenant, approval_id, person)
        async with self.database.transaction(tenant) as connection:
            stored = await approvals.read(connection, approval_id)
            people = await self.definitions.directory(connection, tenant, stored.directory_digest)
            stored, remarks = await conversation(connection, self.definitions, stored, people)
        approval = as_people(stored.approval, people)
        voter = voter_of(person, people.entry(person), slack, approval, people)
        return talk.offered(approval, voter, remarks, stored.now)

    async def offers_of(self, tenant: str, ids: Sequence[UUID], person: str) -> dict[UUID, tuple[Saying, ...]]:
        """The kinds of comments that this person may make on each open question of a list. The run is read once."""
        if not ids:
            return {}
        slack = await slack_of(self.database, self.definitions, self.directory, tenant, ids[0], person)
        async with self.database.transaction(tenant) as connection:
            found = await lists.several(connection, ids)
            view = await load(connection, found[0].approval.run_id, self.definitions.graphs, tenant=tenant)
            people = await self.definitions.directory(connection, tenant, found[0].directory_digest)
        offers = {}
        for one in found:
            asked = view.run.approvals.get(one.approval.id)
            if asked is not None and one.approval.run_id == view.run_id:
                approval = as_people(replace(one.approval, contributors=barred_from(view.run, asked)), people)
                voter = voter_of(person, people.entry(person), slack, approval, people)
                offers[approval.id] = talk.offered(approval, voter, comments_of(view.run, approval.id, people), one.now)
        return offers

    async def _say(self, connection: Connection, asked: SayRequest, slack: Membership, *, lock: bool) -> SayAnswer:
        named = (asked.tenant_id, asked.approval_id)
        stored, view = await approvals.read_to_decide(connection, *named, self.definitions.graphs, lock=lock)
        people = await self.definitions.directory(connection, asked.tenant_id, stored.directory_digest)
        entry, approval = people.entry(asked.person_id), as_people(stored.approval, people)
        text, so_far = asked.text.strip(), comments_of(view.run, approval.id, people)
        to = talk.handed(approval, asked.to, people) if asked.saying is Saying.HANDS_ON else ""
        voter = voter_of(asked.person_id, entry, slack, approval, people)
        refused = _elsewhere(stored, asked) or talk.refused(
            approval, voter, asked.saying, so_far, at=stored.now, nonce=asked.nonce, digest=asked.digest
        )
        refused = refused or talk.unusable(asked.saying, text) or _unnamed(to)
        if refused is not None:
            return await _refuse(connection, asked, approval, actor_of(asked.person_id, entry), refused)
        assert entry is not None, "nobody else may say anything"
        transition = Transition(view, NO_GRAPH)
        known = (str(asked.channel), stored.directory_digest, asked.identity or {"named": asked.person_id}, text)
        event = ApprovalReassigned(approval.id, to, *known) if to else ApprovalSaid(
            approval.id, str(asked.saying), *known
        )  # fmt: skip
        transition.tell(event, step=approval.step_key, actor=Actor("person", entry.id))
        _announce(transition, approval, asked.saying, len(so_far), to or "")
        # A crash before the append leaves nothing, and the person repeats it; after it, the comment is on the card.
        if not await faces.append(connection, transition.commit(), answers=approval.step_key):
            raise Moved
        return SayAnswer(True, "recorded", talk.DONE[asked.saying], approval.run_id)


async def slack_of(
    database: Database,
    definitions: Definitions,
    directory: DatabaseDirectory | None,
    tenant: str,
    approval_id: UUID,
    person: str,
) -> Membership:
    """The question's Slack groups to which this person belongs; Slack is asked outside of any transaction."""
    async with database.transaction(tenant) as connection:
        stored = await approvals.read(connection, approval_id)
        people = await definitions.directory(connection, tenant, stored.directory_digest)
    every = [group for plan in plans(stored.approval) for group in plan]
    wanted = [group for group in every if group.source is GroupSource.SLACK_GROUP]
    if not wanted:
        return NO_GROUPS
    if directory is None:
        return Membership(frozenset(), frozenset(group.key for group in wanted))
    return await directory.slack_membership(people.entry(person), wanted)


def _announce(transition: Transition, approval: Approval, saying: Saying, place: int, to: str) -> None:
    """Order the new card, the message below it, and messages to those who are to answer or were named.

    ``place`` is the number of earlier comments on the question.
    """
    facts: JsonObject = {"approval": str(approval.id), "place": place}
    transition.message("card", approval.id, f"said:{place}")
    transition.order(SAID, f"{approval.id}:{place}", facts, one_at_a_time=f"{approval.id}")
    if saying is Saying.ASKS or (to and ":" not in to):
        person: JsonObject = {"person": to or approval.requester}
        transition.order(ASKED, f"{approval.id}:{place}", facts | person, one_at_a_time=f"{approval.id}")


def _unnamed(to: str | None) -> NotCounted | None:
    if to is not None:
        return None
    words = "It can be handed to a group that may decide it now, or to somebody of such a group who has no part in it."
    return NotCounted(RefusalCode.NOT_NAMED, words)


def _elsewhere(stored: StoredApproval, asked: SayRequest) -> NotCounted | None:
    return None if asked.place is None else click_proof.wrong_message(stored.message, asked.place)


async def _refuse(
    connection: Connection, asked: SayRequest, approval: Approval, actor: Actor, refused: NotCounted
) -> SayAnswer:
    """Record the refused comment, and answer. After a crash before the commit the person gets no answer."""
    facts: JsonObject = {"approval": str(approval.id), "run": str(approval.run_id), "code": str(refused.code)}
    facts |= {"channel": str(asked.channel), "said": str(asked.saying)}
    await audit.record(connection, asked.tenant_id, EventType.APPROVAL_VOTE_REFUSED, actor, facts)
    return SayAnswer(False, str(refused.code), refused.sentence, approval.run_id)
