"""The dead letters: what the queue has given up is held against the step's row, and never left lying (Q-11).

The row decides here as everywhere. A message whose step is over, claimed, gone, or about to be admitted again is
dropped. A step that is admitted and that nobody could claim so far is claimed here, for nothing but to note a setback
and to leave it to a short lease: when that is over the sweeper orders the step anew, and the scheduler admits it under
the caps and in its turn. After ``SETBACKS_MAX`` setbacks in a row the step fails instead, and its run says why.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import structlog
from msgspec import Struct

from core.clock import rest
from core.db import Database
from core.errors import CountersealError
from runtime.definition.catalog import Definitions
from runtime.engine.finish import clean
from runtime.queue.port import DeadLetter, DeadLetters
from runtime.store import claims
from runtime.work.lease import claim_of
from runtime.work.setbacks import PAUSE, report, set_back

log = structlog.get_logger(__name__)

# So much of an unreadable message is logged.
_WORDS_MAX = 200


class PoisonMessage(CountersealError):
    """A step's message was received time and again, and no worker lived to say what became of it."""

    code = "consistency"


class Reconciler(Struct):
    """Looks at the dead letters every ``interval``. Stateless: any number of them do no harm."""

    database: Database
    definitions: Definitions
    letters: DeadLetters
    owner: str
    interval: timedelta = timedelta(seconds=30)
    pause: timedelta = PAUSE

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until ``stop`` is set. Whatever is away, the next look finds the letters where they were."""
        while not stop.is_set():
            try:
                found = await self.reconcile()
            except Exception as error:
                report("the dead letters could not be looked at", error)
                found = 0
            if not found:
                await rest(stop, self.interval.total_seconds())

    async def reconcile(self) -> int:
        """Deal with one batch; how many letters are dealt with and gone. One letter's trouble is no other's."""
        count = 0
        for letter in await self.letters.receive():
            try:
                count += await self._settle(letter)
            except Exception as error:
                report("a dead letter was left where it is", error, message=letter.message_id)
        return count

    async def _settle(self, letter: DeadLetter) -> int:
        """Do what the row asks for, then delete the letter.

        A crash in between leaves a letter whose step is leased, or has failed, by then: it comes again and is dropped.
        """
        if letter.step_id is None:
            words = clean(letter.body[:_WORDS_MAX])
            log.error("a message that is none of ours was deleted from the dead letters",
                      message=letter.message_id, characters=len(letter.body), begins=words)  # fmt: skip
        elif not await self._set_back(letter):
            log.info("a dead letter was dropped: its step is not waiting for it", step=str(letter.step_id))
        await self.letters.delete(letter)
        return 1

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
