"""Tells other systems of failed and stuck runs, by signed webhook or e-mail, as the tenant's settings say.

An alarm becomes one order for each channel, in the transaction that leases the alarm. The first order of a topic is
sent at once; those that follow within an hour become one message, which counts them. The count is frozen in the
message's own order before it is sent, so each attempt says the same under the same id. No channel waits for another.

No text from outside is sent: the answers of systems and the inputs of steps stay in the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Protocol
from uuid import UUID

from asyncpg import Record
from msgspec import Struct

from core.canonical import JsonObject, derived_id
from core.db import Connection
from runtime.definition.catalog import Definitions
from runtime.engine.book.recorded import Diverged
from runtime.engine.model.rows import StepRow
from runtime.engine.model.run import Run
from runtime.keep.dispatcher import Deliver, Delivered, Handler, Held, Result, saying
from runtime.keep.telling import WINDOW
from runtime.requests.glass import BROKEN
from runtime.requests.views import folded
from runtime.store import books, holds, outbox
from runtime.store.outbox import Message, Shown

# The kinds of the orders that are counted, and of the messages that go out.
GATHER, WEBHOOK, EMAIL = "gather", "webhook", "email"
PUSHED = (GATHER, WEBHOOK, EMAIL)
_HELD = "held"


class PushType(StrEnum):
    """The types of messages."""

    FAILED = "run.failed"
    IN_DOUBT = "action.in_doubt"
    HELD = "step.held"
    GLASS = "glass.broken"
    UNDELIVERED = "message.failed"


_TYPES = {
    "failed:": PushType.FAILED,
    "doubt:": PushType.IN_DOUBT,
    f"{_HELD}:": PushType.HELD,
    f"{BROKEN}:": PushType.GLASS,
}
_SENTENCES = {
    PushType.FAILED: "The run of {workflow} failed{where}: {code}.",
    PushType.IN_DOUBT: "An action of {workflow} was sent{where}, and nobody knows yet whether it was done.",
    PushType.HELD: "A step of {workflow} has failed{where} and is held, until people say what becomes of it: {code}.",
    PushType.GLASS: "Somebody has broken the glass: an action of {workflow} goes out{where} without its approvers.",
    PushType.UNDELIVERED: "A message ({code}) of {workflow} was not delivered. Mend the cause, then send it again: "
    "counterseal queue again --kind {code}",
}


class Push(Struct, frozen=True):
    """A message. ``id`` is the same at each attempt. ``to`` is the recipient if it is a person, "" for a system."""

    id: UUID
    type: str
    at: str
    data: JsonObject
    to: str = ""


class Sender(Protocol):
    """A channel to another system."""

    @property
    def recipients(self) -> tuple[str, ...]:
        """The recipients who each get a message of their own."""

    async def send(self, push: Push) -> Result:
        """Send a message. After ``Later`` it is sent again with the same id, although it may have arrived."""


class Pushing(Struct, frozen=True):
    """Tells the systems of one tenant, by the kinds of their messages."""

    senders: Mapping[str, Sender]
    definitions: Definitions
    pages: str = ""

    def handlers(self) -> dict[str, Handler]:
        """The handlers of the messages to the configured channels."""
        return {GATHER: self.gather, **{kind: partial(self.push, one) for kind, one in self.senders.items()}}

    async def alarm(self, operators: Handler | None, connection: Connection, message: Message) -> Deliver:
        """Order a message about an alarm for each channel, besides that for the operators in Slack.

        A failed push causes no alarm on these channels, because that would fail again and again.
        """
        kind, _, about = str(message.payload["topic"]).partition(":")
        if not (kind == "message" and about in PUSHED):
            await self._order(connection, message, message.payload, message.command_id)
        return partial(saying, Delivered()) if operators is None else await operators(connection, message)

    async def order_hold(self, shown: Handler, connection: Connection, message: Message) -> Deliver:
        """Order one message about a held step for each channel, besides that for the people asked in Slack."""
        wait = UUID(str(message.payload["wait"]))
        hold = await holds.read(connection, wait)
        if hold.open:
            facts = {"run": str(hold.run_id), "topic": f"{_HELD}:{hold.workflow}:{hold.step}", "step": hold.step}
            await self._order(connection, message, facts, wait)
        return await shown(connection, message)

    async def _order(self, connection: Connection, message: Message, about: Mapping[str, object], once: UUID) -> None:
        """Order one message for each channel. A crash leaves all of them or none, and none is ordered twice."""
        facts: JsonObject = {"at": _moment(message.created_at)}
        facts |= {name: str(about[name]) for name in ("run", "topic", "approval", "step") if about.get(name)}
        facts |= await self._facts(connection, message.tenant_id, facts)
        run, tenant = UUID(str(facts["run"])), message.tenant_id
        for channel in self.senders:
            key = f"{GATHER}:{tenant}:{channel}:{facts['topic']}"
            command = derived_id(once, f"{GATHER}:{channel}")
            await outbox.order(connection, tenant, run, GATHER, {**facts, "channel": channel}, command, key)

    async def gather(self, connection: Connection, message: Message) -> Deliver:
        """Count the orders that become one message, and order that message; hold it if one was sent just before."""
        channel, topic = str(message.payload["channel"]), str(message.payload["topic"])
        sender, whose = self.senders.get(channel), f"tell:{channel}"
        if sender is None:
            return partial(saying, Delivered())  # the tenant has taken this channel out of its settings
        every = (message.command_id, *message.behind)
        since, now = await outbox.eldest(connection, every)
        if (last := await outbox.notice(connection, message.tenant_id, whose, topic, WINDOW)) is not None:
            return partial(saying, Held(max(1.0, (last.began_at + WINDOW - now).total_seconds())))
        facts = {**await outbox.payload_of(connection, every), "count": len(every), "since": _moment(since)}

        async def ordered(connection: Connection) -> None:
            """Freeze the message, and end the orders that it counts. After a crash before that, nothing is counted."""
            for to in sender.recipients:
                command = derived_id(message.command_id, f"{channel}:{to}")
                whole: JsonObject = {**facts, "to": to}
                await outbox.order(connection, message.tenant_id, UUID(str(facts["run"])), channel, whole, command)
            shown = Shown(channel, str(message.command_id), now, len(every))
            await outbox.noticed(connection, message.tenant_id, whose, topic, shown)

        return partial(saying, Delivered(ordered, shows_all=True))

    async def push(self, sender: Sender, connection: Connection, message: Message) -> Deliver:
        """Send the frozen message, with the run's reference as long as retention keeps it."""
        facts = message.payload
        row = await books.fetch(connection, message.tenant_id, UUID(facts["run"]))
        data: JsonObject = {"tenant": message.tenant_id, "run": facts["run"], "workflow": row["workflow"]}
        data["reference"] = "" if row["purged_at"] is not None else row["reference"] or ""
        data |= {name: facts.get(name, "") for name in ("step", "operation", "code", "sentence", "count", "since")}
        data["link"] = f"{self.pages}/runs/{facts['run']}" if self.pages else ""
        push = Push(message.command_id, str(facts["type"]), str(facts["at"]), data, str(facts["to"]))
        return partial(sender.send, push)

    async def _facts(self, connection: Connection, tenant: str, about: JsonObject) -> JsonObject:
        """The step, the operation and the code, from the run's book. If that cannot be read, only the topic is sent."""
        kind, colon, rest = str(about["topic"]).partition(":")
        event = _TYPES.get(kind + colon, PushType.UNDELIVERED)
        found = await books.fetch(connection, tenant, UUID(str(about["run"])))
        code = (
            rest.rpartition(":")[2]
            if event is PushType.FAILED
            else rest
            if event is PushType.UNDELIVERED
            else str(event)
        )
        step = None if event is PushType.UNDELIVERED else await self._step(connection, found, about)
        if step is not None and event is PushType.HELD:
            error = step.last_error or {}
            code = str(error.get("code") or error.get("class") or code)
        place = f" at {step.key} ({step.operation})" if step is not None else ""
        sentence = _SENTENCES[event].format(workflow=found["workflow"], where=place, code=code)
        facts: JsonObject = {"type": str(event), "code": code, "sentence": sentence}
        return facts if step is None else {**facts, "step": step.key, "operation": step.operation}

    async def _step(self, connection: Connection, found: Record, about: JsonObject) -> StepRow | None:
        """The step that the message is about. None if there is none, or if the run's book can no longer be read."""
        if found["purged_at"] is not None:
            return None
        try:
            run = (await folded(connection, self.definitions, await books.checked(found))).run
        except Diverged:
            return None
        key = about.get("step") or _asked(run, about) or (run.error or {}).get("step")
        return run.steps.get(str(key)) or run.past.get(str(key))


def _asked(run: Run, about: JsonObject) -> str:
    """The step of the question that the message is about; "" if it is about none."""
    row = run.approvals.get(UUID(str(about["approval"]))) if "approval" in about else None
    return "" if row is None else row.step_key


def _moment(at: float | datetime) -> str:
    moment = datetime.fromtimestamp(at, UTC) if isinstance(at, float) else at
    return moment.isoformat(timespec="seconds")
