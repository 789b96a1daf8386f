"""The message about a held step, as a notice: what failed and why, who is asked, and later the answer."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from approvals.notices import Hold, Line, Notice, Word
from core.db import Connection
from core.identity import Directory, Kind
from runtime.definition.catalog import Definitions
from runtime.keep.outcomes import Outcome
from runtime.requests.views import folded
from runtime.store import books, tenants
from runtime.store.holds import StoredHold

_ANSWERED = {"again": Word.AGAIN, "without": Word.WITHOUT}


async def held_notice(connection: Connection, definitions: Definitions, stored: StoredHold, mentions: int) -> Notice:
    """The notice to show now. It mentions at most ``mentions`` people; if more may answer, it names the group."""
    people = await tenants.directory(connection, stored.tenant_id)
    at = stored.created_at.isoformat(timespec="seconds")
    book = await books.read(connection, stored.tenant_id, stored.run_id)
    if book.purged:
        line = Line(Word.HELD, stored.step, "Retention has removed what it held.")
        return _closed(Notice(line, _plain(stored.run_id), stored.workflow, stored.reference, at), stored)
    past = await folded(connection, definitions, book)
    notice = Outcome(past, book.events, people, stored.workflow).held_step(stored.step, at)
    if not stored.open:
        return _closed(notice, stored)
    accounts = _accounts(people, stored.group)
    named = accounts if len(accounts) <= mentions else ()
    return replace(notice, hold=Hold(stored.wait_id, stored.group, named, stored.doubtful))


def _closed(notice: Notice, stored: StoredHold) -> Notice:
    """The notice of a hold that is over: the answer, by whom it was given, and why."""
    word, subject = _ANSWERED.get(stored.choice, Word.CANCELED), notice.whole.subject
    because = "" if stored.reason else "Its run has ended."
    return replace(notice, whole=Line(word, subject, because, stored.by, stored.reason))


def _accounts(people: Directory, group: str) -> tuple[str, ...]:
    found = (next(iter(one.accounts(Kind.SLACK)), "") for one in people.members(group))
    return tuple(account.rpartition("/")[2] for account in found if account)


def _plain(run_id: UUID) -> UUID:
    return UUID(int=run_id.int)
