"""Handlers of messages about approvals: cards, reminders, escalations, answers. What is sent is read when it is sent.

A card is drawn from the approval as it stands, so the order in which its messages are delivered does not matter, and a
repeated one does no harm. A post that may have landed is looked for by its metadata before it is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from approvals.ports import Absent, MessageRef, Messenger, NotPosted, Posted, PostInDoubt, PostOutcome, PostRefused
from core.db import Connection, Database
from runtime.dispatcher import Delivered, Handler, Later, Record, Result, Undeliverable
from runtime.store import approvals
from runtime.store.approvals import StoredApproval
from runtime.store.outbox import Message


@dataclass(frozen=True)
class ApprovalMessages:
    """Delivers messages of the kinds ``card``, ``remind``, ``escalate`` and ``note`` to one channel.

    ``link`` is where an approval can be seen without the messenger, with ``{approval}`` for its id; "" for none.
    """

    database: Database
    messenger: Messenger
    channel: str
    link: str = ""

    def handlers(self) -> dict[str, Handler]:
        """The handlers by kind of message."""
        return {"card": self.card, "remind": self.remind, "escalate": self.escalate, "note": self.note}

    async def card(self, message: Message) -> Result:
        """Post the card, or redraw it."""
        stored = await self._read(message)
        view = approvals.card_view(stored, self.link.format(approval=stored.approval.id) if self.link else "")
        if stored.message is not None:
            return _result(await self.messenger.update_card(stored.message, view))
        key = str(stored.approval.id)
        if message.attempts > 1:
            # An earlier attempt, ours or that of a dispatcher that died, may have posted it.
            found = await self.messenger.find_card(self.channel, key, since=stored.created_at.timestamp() - 60)
            match found:
                case Posted(ref):
                    updated = await self.messenger.update_card(ref, view)
                    return _result(updated, _shown(stored, ref))
                case NotPosted(text, seconds):
                    return Later(text, seconds)
                case PostRefused(_, text):
                    return Undeliverable(text)
                case Absent():
                    pass
        posted = await self.messenger.post_card(self.channel, view, key)
        return _result(posted, _shown(stored, posted.ref) if isinstance(posted, Posted) else None)

    async def remind(self, message: Message) -> Result:
        """Remind below the card, if it still waits."""
        return await self._thread(message, "This still waits for a decision. Without one it expires, and is not done.")

    async def escalate(self, message: Message) -> Result:
        """Say below the card who may decide now, if it still waits."""
        stored = await self._read(message)
        to = stored.approval.terms.escalate
        who = to.to.group if to else "others"
        return await self._thread(message, f"Nobody has decided in time: members of {who} may decide this now, too.")

    async def note(self, message: Message) -> Result:
        """Answer one person."""
        payload = message.payload
        outcome = await self.messenger.post_ephemeral(payload["channel"], payload["user"], payload["text"])
        # An answer that comes late or twice confuses; one that cannot be given is not worth a repair by hand.
        return Delivered() if isinstance(outcome, PostInDoubt) else _result(outcome)

    async def _thread(self, message: Message, text: str) -> Result:
        stored = await self._read(message)
        if stored.approval.status != "requested":
            return Delivered()
        if stored.message is None:
            return Later("The card is not posted yet.")
        return _result(await self.messenger.post_thread(stored.message, text, message.dedupe_key))

    async def _read(self, message: Message) -> StoredApproval:
        async with self.database.connection() as connection:
            return await approvals.read(connection, UUID(message.payload["approval"]))


def _shown(stored: StoredApproval, ref: MessageRef) -> Record:
    async def record(connection: Connection) -> None:
        await approvals.shown(connection, stored.approval.id, ref)

    return record


def _result(outcome: PostOutcome, record: Record | None = None) -> Result:
    match outcome:
        case Posted():
            return Delivered(record)
        case NotPosted(text, seconds):
            return Later(text, seconds)
        case PostInDoubt(text):
            return Later(text)
        case PostRefused(code, text):
            return Undeliverable(f"{code}: {text}")
