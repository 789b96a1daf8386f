"""Delivers messages, each with the outside systems of its tenant. A missing setting is an error that names it.

A handler is made for a tenant at the moment of its message, so no message goes out with another tenant's parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

import structlog
from msgspec import Struct

from app.budgeting import Budgets
from app.outside import LendingSigner, Outside, Outsides
from core.db import Connection, Database
from core.errors import ConfigurationError
from runtime.definition.catalog import Definitions
from runtime.engine.life.closing import ALARM, HOLD, TOLD
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import ALARMED, Deliver, Delivered, Handler, Held, Later, Result, Undeliverable, saying
from runtime.keep.errands import Errands
from runtime.keep.messages import Messages
from runtime.keep.pushing import PUSHED, Pushing
from runtime.keep.telling import Telling
from runtime.requests.glass import BROKEN
from runtime.requests.talking import ASKED, SAID
from runtime.store import approvals
from runtime.store.outbox import Message

log = structlog.get_logger(__name__)

# The kinds of messages in a channel, and of private messages.
SHOWN = ("card", "remind", "escalate", "voided", "proposal", "note", "task", HOLD, SAID, BROKEN)
HEARD = (TOLD, ALARM, ALARMED, ASKED)
OTHERS = ("bundle", "cancel", "return", "shared", *PUSHED)
KINDS = (*SHOWN, *HEARD, *OTHERS)


class Delivering(Struct, frozen=True):
    """The handlers of all kinds of messages, for all tenants. ``producer`` is the version that signs evidence."""

    database: Database
    definitions: Definitions
    outsides: Outsides
    producer: str
    budgets: Budgets

    def handlers(self) -> Mapping[str, Handler]:
        """The handlers by kind of message."""
        return dict.fromkeys(KINDS, self._handle)

    async def _handle(self, connection: Connection, message: Message) -> Deliver:
        outside = await self.outsides.of(connection, message.tenant_id)
        if (seconds := await self._wait_seconds(outside, message.kind)) > 0:
            return partial(saying, Held(seconds))
        return await self._of(outside)[message.kind](connection, message)

    async def _wait_seconds(self, outside: Outside, kind: str) -> float:
        """The seconds for which a message waits because the tenant has sent too many; 0 if it may go out."""
        if outside.chat is None or kind not in SHOWN:
            return 0.0
        used = [("channel_messages", (outside.tenant, outside.chat.channel or "")), ("cards", (outside.tenant,))]
        for name, whose in used[: 1 + (kind == "card")]:
            if (seconds := self.budgets.meter.wait(name, *whose)) > 0:
                await self.budgets.refusals.note(outside.tenant, "slack", name)
                return seconds
        for name, whose in used[: 1 + (kind == "card")]:
            self.budgets.meter.used(name, *whose, amount=1)
        return 0.0

    def _of(self, outside: Outside) -> Mapping[str, Handler]:
        """The handlers of one tenant."""
        chat, pages = outside.chat, outside.settings.pages
        found: dict[str, Handler] = dict.fromkeys((*SHOWN, *HEARD), partial(_unset, outside, "slack"))
        if chat is not None:
            channel = chat.channel
            found |= dict.fromkeys(SHOWN, partial(_unset, outside, "slack.channel"))
            if channel is not None:
                found |= Messages(chat.messenger, channel, self.definitions, chat.mentions, pages).handlers()
            found |= Telling(chat.messenger, self.definitions, pages=pages).handlers()
        found |= {kind: partial(_unset, outside, f"tell.{kind}") for kind in PUSHED}
        pushing = Pushing(outside.senders, self.definitions, pages)
        found |= pushing.handlers()
        if outside.senders:
            found[ALARM] = partial(pushing.alarm, None if chat is None else found[ALARM])
            found[HOLD] = partial(pushing.order_hold, found[HOLD])
        found |= Errands(self.database, self.definitions, outside.connectors).handlers()
        if outside.signer is None or outside.blobs is None:
            found["bundle"] = partial(_unset, outside, "evidence")
        else:
            bundling = Bundling(outside.blobs, outside.signer, self.producer, self.definitions)
            found["bundle"] = partial(_signed, outside.signer, bundling.bundle)
        return found


async def _unset(outside: Outside, what: str, connection: Connection, message: Message) -> Deliver:
    """Report the missing setting. The environment's tenant may do without Slack, because it has other faces."""
    if outside.content is None and outside.connectors.owner == "" and message.kind not in ("bundle", *PUSHED):
        log.info("no Slack channel is configured; answer on the command line or over HTTP", kind=message.kind)
        return partial(saying, Delivered())
    words = str(outside.unset(what))
    if message.kind != "card":
        return partial(saying, Undeliverable(words))
    refused = partial(_refused, UUID(str(message.payload["approval"])), words)
    return partial(saying, Undeliverable(words, refused))


async def _refused(approval_id: UUID, words: str, connection: Connection) -> None:
    await approvals.refused(connection, approval_id, words)


async def _signed(signer: object, handler: Handler, connection: Connection, message: Message) -> Deliver:
    """Read the tenant's key after the evidence is read, and before it is signed: no transaction is open then."""
    deliver = await handler(connection, message)
    return partial(_with_key, signer, deliver) if isinstance(signer, LendingSigner) else deliver


async def _with_key(signer: LendingSigner, deliver: Deliver) -> Result:
    try:
        await signer.read()
    except ConfigurationError as error:
        return Later(str(error), counted=not getattr(error, "again", False))
    return await deliver()
