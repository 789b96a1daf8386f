"""Keeps a queue: admits steps to it, and settles its dead letters.

Steps are sent in fair order, under the caps, in batches. For each dead letter, the step's row decides
what is done, here as everywhere, and no letter is left in the queue. If the step is over, claimed, gone, or
about to be admitted again, the letter is dropped. If the step is admitted and nobody could claim it so far, it is
claimed here only to note a setback and to leave it to a short lease. When that runs out, the sweeper makes the step
ready, and it is admitted again under the caps and in its turn. After ``SETBACKS_MAX`` setbacks in a row the step fails
instead, and its run says why.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog
from msgspec import Struct, field

from core.canonical import clean, digest
from core.clock import repeat
from core.db import Database
from core.errors import CountersealError
from core.outage import report
from runtime.definition.catalog import Definitions
from runtime.queue.port import DeadLetter, DeadLetters, WorkQueue
from runtime.store import claims
from runtime.work.holding import claim_of
from runtime.work.setbacks import PAUSE, set_back

log = structlog.get_logger(__name__)

BATCH = 10
LEASE = timedelta(seconds=60)
# The most characters of an unreadable message that are logged.
_WORDS_MAX = 200


class Scheduler(Struct):
    """Sends steps to a queue outside the database. Does nothing if workers lease their steps from the database."""

    database: Database
    queue: WorkQueue
    owner: str
    idle: timedelta = timedelta(seconds=5)
    claimed_within: timedelta = timedelta(seconds=120)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Look for steps at once, because one may be ready, or a slot free."""
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Admit until ``stop`` is set."""
        if not self.queue.needs_dispatch:
            return
        await repeat(stop, self.admit, self.idle.total_seconds(), "queue unavailable", woken=self._woken)

    async def admit(self) -> int:
        """Send one batch; return how many steps were admitted.

        Each step is marked as sent, and takes its place under the caps, in one statement. A crash before the queue has
        the message, or before its receipt is recorded, leaves a mark that expires: the sweeper then frees the step and
        its place. So the message may come twice, and the step's row lets only one through.
        """
        batch: dict[str, asyncpg.Record] = {}
        async with self.database.connection() as connection:
            while len(batch) < BATCH:
                try:
                    rows = await claims.admit(connection, self.owner, LEASE, BATCH - len(batch))
                except asyncpg.LockNotAvailableError:
                    if batch:
                        break  # what was admitted is sent, though somebody holds the row of whose turn it is next
                    raise
                if not rows:
                    break
                batch |= {_dedupe_key(row): row for row in rows}
        if not batch:
            return 0
        accepted = await self.queue.sent([(key, str(row["run_id"]), str(row["step_id"])) for key, row in batch.items()])
        async with self.database.connection() as connection:
            steps = [(batch[key]["run_id"], batch[key]["step_key"]) for key in accepted]
            await claims.expected(connection, steps, self.claimed_within)
        return len(accepted)


def _dedupe_key(row: asyncpg.Record) -> str:
    """The key of the step's next lease: a FIFO queue drops a second message for that lease, not for a later one."""
    return digest([str(row["run_id"]), row["step_key"], row["epoch"] + 1])


class PoisonMessage(CountersealError):
    """A step's message was received again and again, and no worker survived to record an outcome."""

    code = "consistency"


class Reconciler(Struct):
    """Settles the dead letters every ``interval``. Stateless: any number of reconcilers do no harm."""

    database: Database
    definitions: Definitions
    letters: DeadLetters
    owner: str
    interval: timedelta = timedelta(seconds=30)
    pause: timedelta = PAUSE

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until ``stop`` is set. If the queue or PostgreSQL is away, the letters stay for the next look."""
        await repeat(stop, self.reconcile, self.interval.total_seconds(), "the dead letters could not be looked at")

    async def reconcile(self) -> int:
        """Settle one batch; return how many letters are settled and gone. A failure does not stop the others."""
        count = 0
        for letter in await self.letters.receive():
            try:
                await self._settle(letter)
                count += 1
            except Exception as error:
                report("dead letter not settled; retrying later", error, message=letter.message_id)
        return count

    async def _settle(self, letter: DeadLetter) -> None:
        """Do what the step's row requires, then delete the letter.

        A crash in between leaves a letter whose step is already leased or failed: the letter comes again and is
        dropped.
        """
        if letter.step_id is None:
            words = clean(letter.body[:_WORDS_MAX])
            log.error("a message that is none of ours was deleted from the dead letters",
                      message=letter.message_id, characters=len(letter.body), begins=words)  # fmt: skip
        elif not await self._set_back(letter):
            log.info("a dead letter was dropped: its step is not waiting for it", step=str(letter.step_id))
        await self.letters.delete(letter)

    async def _set_back(self, letter: DeadLetter) -> bool:
        """Claim the step if it can be claimed, and note the setback; False if there is nothing to claim.

        One transaction: a crash inside it leaves the step as it was, and the letter comes again.
        """
        assert letter.step_id is not None
        error = PoisonMessage(
            f"The message for this step went to the dead letters (SQS message {letter.message_id}): it was received as "
            "often as the queue's redrive policy allows, and no worker claimed the step.",
            remedy="Look in the workers' logs for what ends them, or keeps them from the database, at this step.",
        )
        async with self.database.transaction() as connection:
            records = await claims.claim_step(connection, self.owner, self.pause, letter.step_id)
            for record in records:
                run_id, (claim, owner) = UUID(record["run"]["run_id"]), claim_of(record)
                await set_back(connection, self.definitions, run_id, claim, owner, error)
        return bool(records)
