"""Handlers of messages about approvals and tasks: cards, reminders, escalations, answers; what is sent is read then.

A card is drawn from the approval as it stands, so the order in which its messages are delivered does not matter, one
drawing does for all that wait, and a repeated one does no harm. A post that may have landed is looked for by its
metadata before it is repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from msgspec import Struct

from approvals.ports import (
    Absent,
    FindOutcome,
    MessageRef,
    Messenger,
    NotPosted,
    Posted,
    PostInDoubt,
    PostOutcome,
    PostRefused,
)
from approvals.states import ApprovalStatus
from core.db import Connection
from runtime.definition.catalog import Definitions
from runtime.keep.dispatcher import Deliver, Delivered, Handler, Later, Record, Result, Undeliverable
from runtime.requests.looking import receipt_of
from runtime.store import approvals, tasks
from runtime.store.approvals import StoredApproval
from runtime.store.outbox import Message


class ApprovalMessages(Struct, frozen=True):
    """Delivers messages of the kinds ``card``, ``remind``, ``escalate`` and ``note`` to one channel.

    ``link`` is where an approval can be seen without the messenger, with ``{approval}`` for its id; "" for none.
    """

    messenger: Messenger
    channel: str
    definitions: Definitions
    link: str = ""

    def handlers(self) -> dict[str, Handler]:
        """The handlers by kind of message."""
        return {"card": self.card, "remind": self.remind, "escalate": self.escalate, "note": self.note}

    async def card(self, connection: Connection, message: Message) -> Deliver:
        """Post the card, or redraw it."""
        stored = await _approval(connection, message)
        receipt = await receipt_of(connection, self.definitions, stored)
        view = approvals.card_view(stored, receipt, self.link.format(approval=stored.approval.id) if self.link else "")
        key = str(stored.approval.id)

        async def shown(connection: Connection, ref: MessageRef) -> None:
            await approvals.shown(connection, stored.approval.id, ref)

        post = partial(self.messenger.post_card, self.channel, view, key)
        update = partial(self.messenger.update_card, view=view)
        find = partial(self.messenger.find_card, self.channel, key)
        return _Drawing(message, stored.message, stored.created_at, find, post, update, shown).deliver

    async def remind(self, connection: Connection, message: Message) -> Deliver:
        """Remind below the card, if it still waits."""
        stored = await _approval(connection, message)
        text = "This still waits for a decision. Without one it expires, and is not done."
        return partial(self._thread, stored, message, text)

    async def escalate(self, connection: Connection, message: Message) -> Deliver:
        """Say below the card who may decide now, if it still waits."""
        stored = await _approval(connection, message)
        to = stored.approval.terms.escalate
        who = to.to.group if to else "others"
        text = f"Nobody has decided in time: members of {who} may decide this now, too."
        return partial(self._thread, stored, message, text)

    async def note(self, connection: Connection, message: Message) -> Deliver:
        """Answer one person."""
        return partial(self._note, message)

    async def _note(self, message: Message) -> Result:
        payload = message.payload
        outcome = await self.messenger.post_ephemeral(payload["channel"], payload["user"], payload["text"])
        # An answer that comes late or twice confuses; one that cannot be given is not worth a repair by hand.
        return Delivered() if isinstance(outcome, PostInDoubt) else _result(outcome)

    async def _thread(self, stored: StoredApproval, message: Message, text: str) -> Result:
        if stored.approval.status != ApprovalStatus.REQUESTED:
            return Delivered()
        if stored.message is None:
            return Later("The card is not posted yet.")
        return _result(await self.messenger.post_thread(stored.message, text, str(message.command_id)))


class TaskMessages(Struct, frozen=True):
    """Delivers messages of the kind ``task`` to one channel: a task's message is posted, and redrawn as it changes.

    ``link`` is where a task can be seen without the messenger, with ``{task}`` for its id; "" for none.
    """

    messenger: Messenger
    channel: str
    link: str = ""

    def handlers(self) -> dict[str, Handler]:
        """The handlers by kind of message."""
        return {"task": self.task}

    async def task(self, connection: Connection, message: Message) -> Deliver:
        """Post the task's message, or redraw it."""
        stored = await tasks.read(connection, UUID(message.payload["task"]))
        key = str(stored.view.task_id)
        view = replace(stored.view, link=self.link.format(task=key)) if self.link else stored.view

        async def shown(connection: Connection, ref: MessageRef) -> None:
            await tasks.shown(connection, view.task_id, ref)

        post = partial(self.messenger.post_task, self.channel, view, key)
        update = partial(self.messenger.update_task, view=view)
        find = partial(self.messenger.find_card, self.channel, key)
        return _Drawing(message, stored.message, stored.created_at, find, post, update, shown).deliver


class _Drawing(Struct, frozen=True):
    """One post that is to show how something stands: where it is known to be, and how it is found, made and redrawn.

    ``asked_at`` is when what it shows began.
    """

    message: Message
    known: MessageRef | None
    asked_at: datetime
    find: Callable[..., Awaitable[FindOutcome]]
    post: Callable[[], Awaitable[PostOutcome]]
    update: Callable[[MessageRef], Awaitable[PostOutcome]]
    shown: Callable[[Connection, MessageRef], Awaitable[None]]

    async def deliver(self) -> Result:
        """Redraw the post where it is; make it where there is none."""
        if self.known is not None:
            return _drawn(await self.update(self.known))
        began = self.asked_at.timestamp()
        # An earlier attempt, ours or that of a dispatcher that died, may have posted it. So may an earlier message
        # about the same, whose post is recorded nowhere; the first message is of the very moment of the question.
        if self.message.attempts > 1 or self.message.created_at > began:
            match await self.find(since=began - 60):
                case Posted(ref):
                    return _drawn(await self.update(ref), self._record(ref))
                case NotPosted(text, seconds):
                    return Later(text, seconds)
                case PostRefused(_, text):
                    return Undeliverable(text)
                case Absent():
                    pass
        posted = await self.post()
        return _drawn(posted, self._record(posted.ref) if isinstance(posted, Posted) else None)

    def _record(self, ref: MessageRef) -> Record:
        async def record(connection: Connection) -> None:
            await self.shown(connection, ref)

        return record


async def _approval(connection: Connection, message: Message) -> StoredApproval:
    return await approvals.read(connection, UUID(message.payload["approval"]))


def _drawn(outcome: PostOutcome, record: Record | None = None) -> Result:
    return Delivered(record, shows_all=True) if isinstance(outcome, Posted) else _result(outcome)


def _result(outcome: PostOutcome) -> Result:
    match outcome:
        case Posted():
            return Delivered()
        case NotPosted(text, seconds):
            return Later(text, seconds)
        case PostInDoubt(text):
            return Later(text)
        case PostRefused(code, text):
            return Undeliverable(f"{code}: {text}")
