"""Tells people the outcomes of runs in private: requesters hear every outcome, operators hear of failures.

Each outcome is one message of the outbox, ordered by the append that records the outcome. Before a post is repeated, an
earlier one is looked for by its key, so a person reads it once. Messages wait until a person's quiet hours end. A
machine hears nothing, and nobody hears a value that is secret.

Many failures of a topic (a workflow and the code of its failure) become one message to the operators, with their
number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import structlog
from msgspec import Struct
from msgspec.structs import replace

from approvals import ports
from approvals.content import CardContent
from approvals.notices import Line, Notice, Word
from approvals.ports import MessageRef, Messenger, Posted, PostOutcome
from core.canonical import JsonObject, derived_id
from core.db import Connection
from core.identity import Directory, Entry, Kind, Standing
from runtime.definition.catalog import Definitions
from runtime.engine.book.recorded import Diverged
from runtime.engine.life.closing import ALARM, TOLD
from runtime.engine.life.preflight import OWN_TRIGGER
from runtime.engine.replay.past import Row
from runtime.keep.dispatcher import ALARMED, Deliver, Delivered, Handler, Held, Later, Result, Undeliverable, saying
from runtime.keep.outcomes import Outcome
from runtime.requests.conversing import conversation
from runtime.requests.glass import BROKEN
from runtime.requests.talking import ASKED
from runtime.requests.views import folded
from runtime.store import approvals, books, outbox, tenants
from runtime.store.books import Book
from runtime.store.outbox import Message, Shown

log = structlog.get_logger(__name__)

# The group of the directory that hears of failed runs, doubts and failed messages.
OPERATORS = "operators"
# The time during which failures of one topic become one message.
WINDOW = timedelta(hours=1)
_MESSAGE, _DOUBT = "message:", "doubt:"


class Telling(Struct, frozen=True):
    """Delivers the private messages to people. ``pages`` is the address below which runs have pages, "" for none."""

    messenger: Messenger
    definitions: Definitions
    pages: str = ""

    def handlers(self) -> dict[str, Handler]:
        """The handlers by kind of message."""
        return {TOLD: self.outcome, ALARM: self.alarm, ALARMED: self.alarmed, ASKED: self.asked}

    async def outcome(self, connection: Connection, message: Message) -> Deliver:
        """Tell the requester of a run its outcome."""
        people = await tenants.directory(connection, message.tenant_id)
        book = await books.read(connection, message.tenant_id, UUID(message.payload["run"]))
        if book.purged or book.row["trigger_type"] == OWN_TRIGGER:
            return _nothing()  # a change of policy tells its proposer by itself
        outcome = await self._outcome(connection, book, people)
        entry = people.entry(outcome.requested_by)
        account = _account(entry)
        if entry is None or account is None:
            return _nothing()
        approval = message.payload.get("approval")
        if not (outcome.is_over if approval is None else outcome.asks(UUID(approval))):
            return _nothing()  # the run was retried, or the doubt is resolved: another message says what came of that
        if held := await _quiet_time(connection, message.tenant_id, entry):
            return partial(saying, held)
        notice = outcome.ended() if approval is None else outcome.doubted(UUID(approval))
        return partial(self._post, account, message, replace(notice, link=self._link(notice.run_id)))

    async def asked(self, connection: Connection, message: Message) -> Deliver:
        """Tell a person that approvers ask for more about their request, or that a question was handed to them."""
        people = await tenants.directory(connection, message.tenant_id)
        entry = people.entry(str(message.payload["person"]))
        account = _account(entry)
        stored = await approvals.read(connection, UUID(message.payload["approval"]))
        _, every = await conversation(connection, self.definitions, stored, people)
        remarks = every[message.payload["place"] : message.payload["place"] + 1]
        if entry is None or account is None or not remarks:
            return _nothing()  # a machine has asked, whose owner reads it in the thread; or the question is over
        if held := await _quiet_time(connection, message.tenant_id, entry):
            return partial(saying, held)
        [one], card, asked = remarks, CardContent.from_json(stored.card).masked(), stored.approval
        line = Line(Word.HANDED if one.to else Word.ASKED, card.title, by=one.name, quote=one.text)
        place = (asked.run_id, card.workflow, card.reference, one.at)
        link = f"{self.pages}/approvals/{asked.id}" if self.pages else ""
        answer = None if one.to else (asked.id, asked.nonce)
        return partial(self._post, account, message, Notice(line, *place, link=link, answer=answer))

    async def alarm(self, connection: Connection, message: Message) -> Deliver:
        """Order a message to each operator separately, so that one who cannot be reached delays no other."""
        people = await tenants.directory(connection, message.tenant_id)
        operators = [one for one in people.entries.values() if OPERATORS in one.groups and _account(one)]

        async def ordered(connection: Connection) -> None:
            for one in operators:
                facts: JsonObject = {**message.payload, "person": one.id}
                key = f"{ALARMED}:{message.tenant_id}:{one.id}:{message.payload['topic']}"
                place = (message.tenant_id, UUID(message.payload["run"]), ALARMED, facts)
                await outbox.order(connection, *place, derived_id(message.command_id, one.id), key)

        return partial(saying, Delivered(ordered))

    async def alarmed(self, connection: Connection, message: Message) -> Deliver:
        """Tell one operator of a failure; if one of the same topic came just before, count it in that message."""
        people = await tenants.directory(connection, message.tenant_id)
        person, topic = str(message.payload["person"]), str(message.payload["topic"])
        entry = people.entries.get(person)
        account = _account(entry)
        if entry is None or account is None or OPERATORS not in entry.groups:
            return _nothing()
        if held := await _quiet_time(connection, message.tenant_id, entry):
            return partial(saying, held)
        newest = await outbox.payload_of(connection, (message.command_id, *message.behind))
        shown = await outbox.notice(connection, message.tenant_id, person, topic, WINDOW)
        count = 1 + len(message.behind) + (shown.count if shown is not None else 0)
        notice = await self._failure(connection, message.tenant_id, newest, people)
        began = shown.began_at if shown is not None else datetime.fromtimestamp(message.created_at, UTC)
        newest_at = notice.at or began.isoformat(timespec="seconds")
        notice = replace(notice, count=count, since=began.isoformat(timespec="seconds"), at=newest_at)

        async def noticed(at: MessageRef, connection: Connection) -> None:
            facts = Shown(at.channel, at.ts, began, count)
            await outbox.noticed(connection, message.tenant_id, person, topic, facts)

        if shown is None:
            return partial(self._post, account, message, notice, noticed)
        return partial(self._update, MessageRef(shown.channel, shown.message_ts), notice, noticed)

    async def _failure(self, connection: Connection, tenant: str, facts: JsonObject, people: Directory) -> Notice:
        """The notice of a failure, from the run's book. If the book cannot be read, the notice says so."""
        run_id, topic = UUID(str(facts["run"])), str(facts["topic"])
        found = await books.fetch(connection, tenant, run_id)
        row = dict(found)
        if topic.startswith(_MESSAGE):
            kind = topic.removeprefix(_MESSAGE)
            remedy = f"Mend the cause, then send it again: counterseal queue again --kind {kind}"
            return _plain(
                row, Line(Word.UNDELIVERED, f"a message ({kind})", remedy, quote=str(facts.get("reason") or ""))
            )
        if topic.startswith(f"{BROKEN}:"):
            return replace(await self._broken(connection, UUID(str(facts["approval"])), row), link=self._link(run_id))
        if row["purged_at"] is not None:
            return _plain(row, Line(Word.FAILED, str(row["workflow"]), "Retention has removed what it held."))
        try:
            outcome = await self._outcome(connection, await books.checked(found), people)
        except Diverged as problem:
            line = Line(Word.FAILED, str(row["workflow"]), "Its book is not what was recorded.", quote=str(problem))
            return _plain(row, line)
        if topic.startswith(_DOUBT):
            notice = outcome.doubted(UUID(str(facts["approval"])))
        elif outcome.is_over:
            notice = replace(outcome.ended(), retry=True)
        else:
            notice = outcome.notice(Line(Word.FAILED, str(row["workflow"]), "Somebody has tried it again since."))
        return replace(notice, asked=False, link=self._link(run_id))

    async def _broken(self, connection: Connection, approval_id: UUID, row: Row) -> Notice:
        """The notice of emergency access (break glass): what goes out, who let it out and why, and who reviews it."""
        stored = await approvals.read(connection, approval_id)
        terms, voted = stored.approval.terms.break_glass, [one for one in stored.approval.votes if one.glass]
        review = " and ".join(terms.review) if terms is not None else OPERATORS
        because = f"It goes out without its approvers. Members of {review} review it; until then there is no other."
        card = CardContent.from_json(stored.card).masked()
        by, why, at = (voted[-1].name, voted[-1].reason, voted[-1].at) if voted else ("", "", "")
        return replace(_plain(row, Line(Word.GLASS, card.title, because, by, why)), at=at)

    async def _outcome(self, connection: Connection, book: Book, people: Directory) -> Outcome:
        past = await folded(connection, self.definitions, book)
        return Outcome(past, book.events, people, str(book.row["workflow"]))

    def _link(self, run_id: UUID) -> str:
        return f"{self.pages}/runs/{run_id}" if self.pages else ""

    async def _post(
        self,
        account: str,
        message: Message,
        notice: Notice,
        remember: Callable[[MessageRef, Connection], Awaitable[None]] | None = None,
    ) -> Result:
        """Post a notice once. Slack has no idempotency key by which it would refuse a second one.

        So an attempt after the first looks for the notice's key in the person's messages. After a crash between the
        post and its record, it finds the key there.
        """
        key = str(message.command_id)
        outcome: ports.FindOutcome | PostOutcome = ports.Absent()
        if message.attempts > 1:
            outcome = await self.messenger.find_notice(account, key, since=message.created_at - 60)
        if isinstance(outcome, ports.Absent):
            outcome = await self.messenger.post_notice(account, notice, key)
        return _result(outcome, remember)

    async def _update(
        self, at: MessageRef, notice: Notice, remember: Callable[[MessageRef, Connection], Awaitable[None]]
    ) -> Result:
        return _result(await self.messenger.update_notice(at, notice), remember)


def _result(
    outcome: ports.FindOutcome | PostOutcome, remember: Callable[[MessageRef, Connection], Awaitable[None]] | None
) -> Result:
    match outcome:
        case Posted(ref):
            return Delivered(None if remember is None else partial(remember, ref), shows_all=remember is not None)
        case ports.NotPosted(text, seconds):
            return Later(text, seconds)
        case ports.PostRefused(code, text):
            return Undeliverable(f"{code}: {text}")
        case _:
            return Later(outcome.message if isinstance(outcome, ports.PostInDoubt) else "It is not posted yet.")


def _plain(row: Row, line: Line) -> Notice:
    """A notice about a run, made only from its row."""
    return Notice(line, UUID(int=row["run_id"].int), str(row["workflow"]), str(row["reference"] or ""), "")


def _nothing() -> Deliver:
    return partial(saying, Delivered())


def _account(entry: Entry | None) -> str | None:
    """The Slack account of an active person; None for a machine, and for a person without one."""
    if entry is None or entry.standing is not Standing.PERSON:
        return None
    return next(iter(entry.accounts(Kind.SLACK)), "").rpartition("/")[2] or None


async def _quiet_time(connection: Connection, tenant: str, entry: Entry) -> Held | None:
    """The wait until a person's quiet hours end; None outside of quiet hours."""
    if entry.quiet is None:
        return None
    now, *_ = await tenants.directory_now(connection, tenant)
    left = entry.quiet.left(now).total_seconds()
    return Held(left) if left > 0 else None
