"""The card of a list: one message for all questions that a step asks in the iterations of a loop.

Messages about one list are delivered one at a time. A question joins the newest card of its list as long as nobody has
answered anything on that card. After that it comes on a new card, with all other questions that have no card yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

from msgspec import Struct

from approvals import ports
from approvals.lists import ListView
from approvals.model import ApprovalStatus, Call
from approvals.ports import MessageRef, Messenger, Posted, PostOutcome
from core.db import Connection
from core.errors import ConsistencyError
from runtime.definition.catalog import Definitions
from runtime.engine.book.questions import LIST_MAX
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ApprovalDelivered
from runtime.engine.model.graph import NO_GRAPH
from runtime.keep.dispatcher import LATE, Deliver, Delivered, Later, Result, Undeliverable
from runtime.requests.views import drawn_list
from runtime.store import approvals, lists
from runtime.store.approvals import StoredApproval
from runtime.store.commits import apply
from runtime.store.lists import Listed
from runtime.store.outbox import Message
from runtime.store.views import load


class Shared(Struct, frozen=True):
    """The questions on one message: the place of the message (None before it is posted), and which of them are new."""

    at: MessageRef | None
    on: tuple[UUID, ...]
    new: tuple[UUID, ...]

    @property
    def several(self) -> bool:
        """True if one card is to show more than one question."""
        return len(self.on) + len(self.new) > 1


async def gather(connection: Connection, stored: StoredApproval) -> Shared:
    """Find the questions that share, or will share, a message with this one."""
    every = await lists.of_list(connection, stored.approval.id)
    own = next(one for one in every if one.approval_id == stored.approval.id)
    bare = [one for one in every if one.message is None]
    at = own.message if own.message is not None or not own.fresh else _open_card(every)
    on = [one for one in every if at is not None and one.message == at]
    if at is None:
        # The first question stays the same, whatever comes meanwhile, because the message is found again by its id.
        begin = bare.index(own) // LIST_MAX * LIST_MAX
        new = bare[begin : begin + LIST_MAX]
    else:
        new = [one for one in bare if one.fresh][: LIST_MAX - len(on)] if all(one.fresh for one in on) else []
    return Shared(at, tuple(one.approval_id for one in on), tuple(one.approval_id for one in new))


def _open_card(every: list[Listed]) -> MessageRef | None:
    """The newest card of the list, if it has room and nobody has answered anything on it."""
    posted = [one.message for one in every if one.message is not None]
    if not posted:
        return None
    on = [one for one in every if one.message == posted[-1]]
    return posted[-1] if len(on) < LIST_MAX and all(one.fresh for one in on) else None


class ListCards(Struct, frozen=True):
    """Delivers the cards of lists to a channel."""

    messenger: Messenger
    channel: str
    definitions: Definitions

    async def card(
        self,
        connection: Connection,
        message: Message,
        shared: Shared,
        calls: Callable[[StoredApproval], Awaitable[Call | None]],
    ) -> Deliver:
        """Post the card of the list, or redraw it."""
        found = await lists.several(connection, [*shared.on, *shared.new])
        views = await drawn_list(connection, self.definitions, found)
        waiting = next((one for one in found if one.approval.status is ApprovalStatus.REQUESTED), None)
        view = ListView(tuple(views), await calls(waiting) if waiting is not None else None)
        return partial(self._deliver, message, shared, found, view)

    async def _deliver(self, message: Message, shared: Shared, found: list[StoredApproval], view: ListView) -> Result:
        """Redraw the message if there is one; otherwise look for an earlier attempt's post, or else post it.

        A crash after the post and before its record leaves a card whose clicks are refused; the next attempt finds it
        by its key.
        """
        at, key = shared.at, str(found[0].approval.id)
        if at is not None:
            return self._ended(await self.messenger.update_list(at, view), shared, found)
        began = found[0].created_at.timestamp()
        if message.attempts > 1 or message.created_at > began:
            match await self.messenger.find_card(self.channel, key, since=began - 60):
                case Posted(ref):
                    return self._ended(await self.messenger.update_list(ref, view), shared, found)
                case ports.NotPosted(text, seconds):
                    return Later(text, seconds)
                case ports.PostRefused(_, text):
                    return Undeliverable(text)
                case ports.Absent():
                    pass
        if message.late:
            return LATE
        return self._ended(await self.messenger.post_list(self.channel, view, key), shared, found)

    def _ended(self, outcome: PostOutcome, shared: Shared, found: list[StoredApproval]) -> Result:
        about = (*shared.on, *shared.new)
        refused = tuple(one.approval.id for one in found if one.card_state == approvals.CARD_REFUSED)
        match outcome:
            case Posted():
                record = partial(self._delivered, found, {*shared.new, *refused}, outcome)
                return Delivered(record, shows_all=True, shows=about)
            case ports.NotPosted(text, seconds):
                return Later(text, seconds)
            case ports.PostInDoubt(text):
                return Later(text)
            case ports.PostRefused(code, text):
                return Undeliverable(f"{code}: {text}", partial(_refused, about, f"{code}: {text}"))

    async def _delivered(
        self, found: list[StoredApproval], new: set[UUID], posted: Posted, connection: Connection
    ) -> None:
        """Record the place of each question's card, also in the run's book, in the transaction that ends the message.

        A crash before its end leaves the card unrecorded: the next attempt finds it by its key, and records it.
        """
        fresh = [one for one in found if one.approval.id in new]
        waiting = [one for one in fresh if one.approval.status is ApprovalStatus.REQUESTED]
        if waiting:
            view = await load(connection, waiting[0].approval.run_id, self.definitions.graphs, lock=True)
            transition = Transition(view, NO_GRAPH)
            for one in waiting:
                answer = transition.run.answers.get(one.approval.id)
                if answer is not None and answer.status == ApprovalStatus.REQUESTED and not answer.delivered:
                    event = ApprovalDelivered(one.approval.id, posted.ref.channel, posted.ref.ts)
                    transition.tell(event, step=one.approval.step_key)
            commit = None if view.run.finished else transition.commit()
            if commit is not None and commit.lines and await apply(connection, commit) is None:
                raise ConsistencyError("The run has just moved on.", remedy="The card is found, and this is told then.")
        for one in fresh:
            await approvals.shown(connection, one.approval.id, posted)


async def _refused(about: tuple[UUID, ...], problem: str, connection: Connection) -> None:
    for one in about:
        await approvals.refused(connection, one, problem)
