"""Handlers of messages about approvals and tasks: cards, reminders, escalations, answers.

A card is drawn from the approval's state when the message is delivered. So the order of the messages does not matter,
one drawing is enough for all waiting messages, and a repeated drawing does no harm. Before a post is repeated, an
earlier one is looked for by its metadata.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals import ports, talk
from approvals.calling import call
from approvals.model import ApprovalStatus, Call, CardView
from approvals.ports import MessageRef, Messenger, Posted, PostOutcome
from approvals.tally import current_votes
from core.db import Connection
from core.errors import ConsistencyError
from core.identity import Kind
from runtime.definition.catalog import Definitions
from runtime.engine.book.edits import EDITED
from runtime.engine.book.refusals import INACTIVE
from runtime.engine.life.closing import HOLD
from runtime.engine.life.preflight import NOBODY, PROPOSAL
from runtime.engine.life.readers import VOIDED
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ApprovalDelivered
from runtime.engine.model.graph import NO_GRAPH
from runtime.keep.dispatcher import LATE, Deliver, Delivered, Handler, Later, Remember, Result, Undeliverable, saying
from runtime.keep.holding import held_notice
from runtime.keep.lists import ListCards, gather
from runtime.requests.conversing import conversation
from runtime.requests.directory import as_people
from runtime.requests.glass import BROKEN
from runtime.requests.talking import SAID
from runtime.requests.views import drawn
from runtime.store import approvals, holds, lists, tasks, tenants
from runtime.store.approvals import StoredApproval
from runtime.store.commits import apply
from runtime.store.outbox import Message
from runtime.store.views import load

ANEW = "If people are still to decide it, a new card asks them; no answer to this one counts."

VOID = {
    EDITED: "Somebody has edited this, so it is void, and is judged anew as it is now.",
    INACTIVE: "Whoever asked for this is not active any more, so this is void.",
    NOBODY: "Nobody who was asked may decide this any more, so this is void.",
}


class Messages(Struct, frozen=True):
    """Delivers cards and tasks, and the messages in their threads: reminders, escalations, answers and the like.

    A card goes to the channel that its rule or tier names, or else to ``channel``. It mentions at most ``mentions``
    people; if more may vote, it names their groups. ``pages`` is the address below which runs have pages, "" for none.
    """

    messenger: Messenger
    channel: str
    definitions: Definitions
    mentions: int = 8
    pages: str = ""

    def handlers(self) -> dict[str, Handler]:
        """The handlers by kind of message."""
        kinds = {"card": self.card, "remind": self.remind, "escalate": self.escalate, VOIDED: self.voided}
        kinds |= {SAID: self.repeat_remark, PROPOSAL: self.proposal, BROKEN: self.glass}
        return {**kinds, "note": self.note, "task": self.task, HOLD: self.hold}

    async def card(self, connection: Connection, message: Message) -> Deliver:
        """Post the card, or redraw it. Questions of a list share one."""
        stored = await _approval(connection, message)
        if stored.listed is not None and (shared := await gather(connection, stored)).several:
            cards = ListCards(self.messenger, stored.approval.terms.channel or self.channel, self.definitions)
            return await cards.card(connection, message, shared, partial(self._call, connection))
        view = await drawn(connection, self.definitions, stored)
        handed = next((one.to for one in reversed(view.remarks) if one.to), "")
        view = replace(view, call=await self._call(connection, stored, handed))
        channel = stored.approval.terms.channel or self.channel
        post = partial(self._posted, channel, view, await self._preceding(connection, stored))
        update = partial(self.messenger.update_card, view=view)
        place = (self.messenger, channel, message, stored.approval.id)
        delivered = partial(self._delivered, stored)
        drawing = _Drawing(*place, stored.message, stored.created_at, post, update, delivered, stored.card_state)
        return partial(_card, drawing, stored.approval.id)

    async def _preceding(self, connection: Connection, stored: StoredApproval) -> tuple[MessageRef, CardView] | None:
        """The card of the question that this one replaces, if this one is to be posted now."""
        if stored.preceded is None or stored.message is not None:
            return None
        old = await approvals.read(connection, stored.preceded)
        return (old.message, await drawn(connection, self.definitions, old)) if old.message is not None else None

    async def _posted(
        self, channel: str, view: CardView, old: tuple[MessageRef, CardView] | None, key: str
    ) -> PostOutcome:
        """Post a card, and link the card that it replaces to it.

        A crash before the old card is drawn again leaves it without the link. It still says that the question was asked
        anew.
        """
        posted = await self.messenger.post_card(channel, view, key)
        if old is not None and isinstance(posted, Posted):
            await self.messenger.update_card(old[0], replace(old[1], anew_place=(posted.ref.channel, posted.ref.ts)))
        return posted

    async def _call(self, connection: Connection, stored: StoredApproval, handed: str = "") -> Call | None:
        """The people to mention at an open question: those who may still vote by the directory."""
        if stored.approval.status is not ApprovalStatus.REQUESTED:
            return None
        people = await tenants.directory(connection, stored.approval.tenant_id)
        return call(as_people(stored.approval, people), people, self.mentions, handed, stored.now)

    async def _delivered(
        self, stored: StoredApproval, connection: Connection, approval_id: UUID, posted: Posted
    ) -> None:
        """Record the card's place, and its delivery in the run's book, in one transaction.

        A crash before its end leaves the card unrecorded: the next attempt finds it by its key, and records it. A
        question that is decided already, or whose run has ended, needs no event in the book.
        """
        if stored.approval.status is ApprovalStatus.REQUESTED:
            await self._tell(stored, connection, posted)
        await approvals.shown(connection, approval_id, posted)

    async def _tell(self, stored: StoredApproval, connection: Connection, posted: Posted) -> None:
        approval = stored.approval
        view = await load(connection, approval.run_id, self.definitions.graphs, lock=True)
        answer = view.run.answers.get(approval.id)
        if answer is None or answer.status != ApprovalStatus.REQUESTED or answer.delivered or view.run.finished:
            return
        transition = Transition(view, NO_GRAPH)
        transition.tell(ApprovalDelivered(approval.id, posted.ref.channel, posted.ref.ts), step=approval.step_key)
        if await apply(connection, transition.commit()) is None:
            raise ConsistencyError("The run has just moved on.", remedy="The card is found, and this is told then.")

    async def task(self, connection: Connection, message: Message) -> Deliver:
        """Post the task's message, or redraw it."""
        stored = await tasks.read(connection, UUID(message.payload["task"]))
        post = partial(self.messenger.post_task, self.channel, stored.view)
        update = partial(self.messenger.update_task, view=stored.view)
        place = (self.messenger, self.channel, message, stored.view.task_id)
        return _Drawing(*place, stored.message, stored.created_at, post, update, tasks.shown).deliver

    async def hold(self, connection: Connection, message: Message) -> Deliver:
        """Post the message about a held step to the people who decide about it, or redraw it."""
        stored = await holds.read(connection, UUID(message.payload["wait"]))
        notice = await held_notice(connection, self.definitions, stored, self.mentions)
        notice = replace(notice, link=f"{self.pages}/runs/{stored.run_id}" if self.pages else "")
        post = partial(self.messenger.post_notice, self.channel, notice)
        update = partial(self.messenger.update_notice, notice=notice)
        place = (self.messenger, self.channel, message, stored.wait_id)
        return _Drawing(*place, stored.message, stored.created_at, post, update, holds.shown).deliver

    async def remind(self, connection: Connection, message: Message) -> Deliver:
        """Remind people in the card's thread, if the question is still open."""
        stored = await _approval(connection, message)
        text = "This still waits for a decision. Without one it expires, and is not done."
        if not await self._speaks(connection, stored):
            return partial(saying, Delivered())
        return partial(self._thread, stored, message, text)

    async def escalate(self, connection: Connection, message: Message) -> Deliver:
        """Say in the card's thread who may decide now, if the question is still open."""
        stored = await _approval(connection, message)
        to = stored.approval.terms.escalate
        who = to.to.group if to else "others"
        text = f"Nobody has decided in time: members of {who} may decide this now, too."
        if not await self._speaks(connection, stored):
            return partial(saying, Delivered())
        return partial(self._thread, stored, message, text)

    async def repeat_remark(self, connection: Connection, message: Message) -> Deliver:
        """Repeat a person's remark about the question in the card's thread, if the question is still open."""
        stored = await _approval(connection, message)
        people = await tenants.directory(connection, message.tenant_id)
        _, every = await conversation(connection, self.definitions, stored, people)
        remarks = every[message.payload["place"] : message.payload["place"] + 1]
        if not remarks:
            return partial(saying, Delivered())
        [one] = remarks
        several = stored.listed is not None and (await gather(connection, stored)).several
        title = f"About “{stored.card.get('title') or ''}”: " if several else ""
        asker, words = stored.approval.requester, f": “{one.text}”" if one.text else "."
        entry = people.entry(asker)
        sentence = {
            talk.Saying.ASKS: f"{one.name} asks {entry.name if entry else asker} for more: “{one.text}” "
            f"It stays open meanwhile. The button {'Choose' if several else 'Details'} takes the answer.",
            talk.Saying.ANSWERS: f"{one.name} answers: “{one.text}”",
            talk.Saying.COMMENTS: f"{one.name} says: “{one.text}”",
            talk.Saying.HANDS_ON: f"{one.name} has handed this to {one.to_name}{words}",
        }[talk.Saying(one.said)]
        return partial(self._thread, stored, message, f"{title}{sentence}")

    async def glass(self, connection: Connection, message: Message) -> Deliver:
        """Tell the approvers, in the card's thread, that somebody used emergency access, why, and who reviews that."""
        stored = await _approval(connection, message)
        terms, voted = stored.approval.terms.break_glass, [one for one in stored.approval.votes if one.glass]
        if terms is None or not voted:
            return partial(saying, Delivered())
        who = " and ".join(terms.review)
        text = (
            f"{voted[-1].name}: it goes out without you. The reason: “{voted[-1].reason}” Members of {who} review it."
        )
        return partial(self._below, stored, message, text)

    async def voided(self, connection: Connection, message: Message) -> Deliver:
        """Tell the approvers, in the card's thread, that the question is void."""
        stored = await _approval(connection, message)
        reason = VOID.get(stored.why or "", "A new policy decides otherwise, so this is void.")
        return partial(self._below, stored, message, f"{reason} {ANEW}")

    async def proposal(self, connection: Connection, message: Message) -> Deliver:
        """Tell the proposer of a policy the outcome: in the card's thread, or in private if nobody was asked."""
        if "approval" not in message.payload:
            return partial(self._note, await self._unasked(connection, message))
        stored = await _approval(connection, message)
        approval = stored.approval
        people = await tenants.directory(connection, approval.tenant_id)
        entry = people.entry(approval.requester)
        who = entry.name if entry is not None else approval.requester
        by = " and ".join(vote.name for vote in current_votes(approval.votes))
        became = {
            ApprovalStatus.APPROVED: f"was approved by {by} and is in force",
            ApprovalStatus.REJECTED: f"was rejected by {by}: {stored.reason or ''}",
        }.get(approval.status, "ended without a decision, and is not in force. Propose it again if it is still wanted")
        return partial(self._below, stored, message, f"{who}, the change of policy that you proposed {became}.")

    async def _unasked(self, connection: Connection, message: Message) -> tuple[str, str]:
        """The Slack account of a policy's proposer, and the words for them; "" if the account is not known."""
        people = await tenants.directory(connection, message.tenant_id)
        entry = people.entry(message.payload["person"])
        accounts = entry.accounts(Kind.SLACK) if entry is not None else ()
        name = entry.name if entry is not None else ""
        return next(iter(accounts), "").rpartition("/")[2], f"{name}, {message.payload['text']}"

    async def note(self, connection: Connection, message: Message) -> Deliver:
        """Send an answer to one person."""
        payload = message.payload
        return partial(self._note, (payload["user"], payload["text"]), payload["channel"])

    async def _note(self, note: tuple[str, str], channel: str = "") -> Result:
        user, text = note
        if not user:
            return Delivered()  # the run says it, too
        outcome = await self.messenger.post_ephemeral(channel or self.channel, user, text)
        # Do not repeat an answer that may have arrived: an answer that comes late or twice is confusing.
        return Delivered() if isinstance(outcome, ports.PostInDoubt) else _result(outcome)

    async def _thread(self, stored: StoredApproval, message: Message, text: str) -> Result:
        if stored.approval.status != ApprovalStatus.REQUESTED:
            return Delivered()
        return await self._below(stored, message, text)

    async def _speaks(self, connection: Connection, stored: StoredApproval) -> bool:
        """True if this is the first open question on its message: that one stands for all of them."""
        if stored.listed is None or stored.message is None:
            return True
        every = [one for one in await lists.of_list(connection, stored.approval.id) if one.message == stored.message]
        open_ = [one.approval_id for one in every if one.status is ApprovalStatus.REQUESTED]
        return open_[:1] == [stored.approval.id]

    async def _below(self, stored: StoredApproval, message: Message, text: str) -> Result:
        if stored.message is None:
            return Later("The card is not posted yet.")
        result = _result(await self.messenger.post_thread(stored.message, text, str(message.command_id)))
        # Each question of a list causes this message for the same card, but one message is enough.
        return Delivered(shows_all=True) if isinstance(result, Delivered) and stored.listed is not None else result


class _Drawing(Struct, frozen=True):
    """One post that shows a state: its place, if that is ``known``, and how to make and redraw it.

    ``about`` is the id of the shown thing, which began at ``asked_at``. ``shown`` records the place of the post with
    its ``state``.
    """

    messenger: Messenger
    channel: str
    message: Message
    about: UUID
    known: MessageRef | None
    asked_at: datetime
    post: Callable[[str], Awaitable[PostOutcome]]
    update: Callable[[MessageRef], Awaitable[PostOutcome]]
    shown: Callable[[Connection, UUID, Posted], Awaitable[None]]
    state: str | None = None

    async def deliver(self) -> Result:
        """Redraw the post if there is one; post it otherwise."""
        if self.known is not None:
            return self._redrawn(await self.update(self.known))
        began = self.asked_at.timestamp()
        # An earlier attempt of this or a dead dispatcher may have posted it. An earlier message about the same may
        # have, too, without a record of its post. Only the first message is as old as the question.
        if self.message.attempts > 1 or self.message.created_at > began:
            match await self.messenger.find_card(self.channel, str(self.about), since=began - 60):
                case Posted(ref):
                    drawn = await self.update(ref)
                    note = Posted(ref, isinstance(drawn, Posted) and drawn.short)
                    return _drawn(drawn, self._record(note))
                case ports.NotPosted(text, seconds):
                    return Later(text, seconds)
                case ports.PostRefused(_, text):
                    return Undeliverable(text)
                case ports.Absent():
                    pass
        if self.message.late:
            return LATE
        posted = await self.post(str(self.about))
        return _drawn(posted, self._record(posted) if isinstance(posted, Posted) else None)

    def _redrawn(self, outcome: PostOutcome) -> Result:
        """The result of a redrawing. It records a card that had been refused as delivered."""
        again = isinstance(outcome, Posted) and self.state == approvals.CARD_REFUSED
        return _drawn(outcome, self._record(outcome) if again and isinstance(outcome, Posted) else None)

    def _record(self, posted: Posted) -> Remember:
        return lambda connection: self.shown(connection, self.about, posted)


async def _card(drawing: _Drawing, approval_id: UUID) -> Result:
    """Deliver a card. A refusal is recorded with the question, and `approval show` and `doctor` report it."""
    result = await drawing.deliver()
    if not isinstance(result, Undeliverable):
        return result

    async def refused(connection: Connection) -> None:
        await approvals.refused(connection, approval_id, result.message)

    return Undeliverable(result.message, refused)


async def _approval(connection: Connection, message: Message) -> StoredApproval:
    return await approvals.read(connection, UUID(message.payload["approval"]))


def _drawn(outcome: PostOutcome, record: Remember | None = None) -> Result:
    return Delivered(record, shows_all=True) if isinstance(outcome, Posted) else _result(outcome)


def _result(outcome: PostOutcome) -> Result:
    match outcome:
        case Posted():
            return Delivered()
        case ports.NotPosted(text, seconds):
            return Later(text, seconds)
        case ports.PostInDoubt(text):
            return Later(text)
        case ports.PostRefused(code, text):
            return Undeliverable(f"{code}: {text}")
