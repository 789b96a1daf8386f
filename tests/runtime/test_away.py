"""Outages end: messages wait for it without end, and keepers that come back late postpone nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from approvals import ports
from approvals.ports import PostOutcome
from core.errors import ConfigurationError, CountersealError, TransportError
from evidence.blobs import StoredBlob
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.store import outbox
from tests.support.runtime_voting import Board, Office

Weather = Callable[[], CountersealError | None]


class Slack(Board):
    """A board that answers with what is the matter with it, if anything is."""

    trouble: PostOutcome | None = None

    async def post_card(self, channel: str, view: Any, key: str) -> PostOutcome:
        return self.trouble or await super().post_card(channel, view, key)

    async def update_card(self, ref: Any, view: Any) -> PostOutcome:
        return self.trouble or await super().update_card(ref, view)

    async def find_card(self, channel: str, key: str, *, since: float) -> Any:
        return self.trouble or await super().find_card(channel, key, since=since)


class Away(Office):
    """An office whose Slack and whose store of evidence may have trouble."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        super().__init__(runtime, folder)
        self.board = self.slack = Slack()
        self.store_trouble: CountersealError | None = None
        self.elapsed = timedelta(0)
        bundling = Bundling(self, self.signer, "test", runtime.definitions)
        handlers = {**self.messages(self.board), **bundling.handlers()}
        self.dispatcher = Dispatcher(runtime.database, handlers, "d1")

    async def put(self, key: str, data: bytes, sha256: str, *, erasable: bool = False) -> StoredBlob:
        if self.store_trouble is not None:
            raise self.store_trouble
        return await self.blobs.put(key, data, sha256, erasable=erasable)

    async def keys(self, prefix: str) -> list[str]:
        return await self.blobs.keys(prefix)

    async def erase(self, prefix: str, end: str) -> int:
        return await self.blobs.erase(prefix, end)

    async def get(self, blob: StoredBlob) -> bytes:
        return await self.blobs.get(blob)

    async def pass_time(self, by: timedelta) -> None:
        """Time passes, minute by minute, and the dispatcher works meanwhile."""
        end = self.elapsed + by
        while self.elapsed < end:
            self.elapsed += timedelta(minutes=1)
            await self.runtime.trouble.pass_time_of_messages(timedelta(minutes=1))
            await self.dispatcher.work_off()

    async def send_again(self, kind: str | None = None) -> list[tuple[str, int]]:
        async with self.runtime.database.connection() as connection:
            return [(row["kind"], row["count"]) for row in await outbox.send_again(connection, "acme", kind)]


@pytest.fixture
async def away(runtime: Any, tmp_path: Path) -> Away:
    return Away(runtime, tmp_path)


async def test_after_two_hours_without_slack_and_s3_everything_is_delivered(away: Away) -> None:
    away.slack.trouble = ports.NotPosted("Slack could not be reached")
    away.store_trouble = TransportError("S3 could not be reached")
    run_id = await away.open()
    await away.vote("ana")
    await away.runtime.worker().work_off()
    assert await away.runtime.status(run_id) == "succeeded"
    await away.pass_time(timedelta(hours=2))
    assert away.board.cards == {}
    orders = [one for one in await away.runtime.books.commands() if one.kind in ("card", "bundle")]
    assert {order.status for order in orders} == {"pending"}
    away.slack.trouble = away.store_trouble = None
    await away.pass_time(timedelta(minutes=15))
    assert {command.status for command in await away.runtime.books.commands()} == {"dispatched"}
    assert away.board.states() == ["applied"]
    assert (await away.verified(run_id)).ok


async def test_an_outage_of_two_weeks_is_tried_without_end(away: Away) -> None:
    """The pause does not grow beyond what a number holds."""
    away.slack.trouble = ports.NotPosted("Slack could not be reached")
    await away.open()
    await away.runtime.trouble.messages_were_tried(2000)
    await away.dispatcher.work_off()
    (card,) = await away.runtime.books.commands(kind="card")
    assert (card.status, card.attempts) == ("pending", 2001)
    away.slack.trouble = None
    await away.pass_time(timedelta(minutes=15))
    assert away.board.states() == ["pending"]


@pytest.mark.parametrize("code", ["channel_not_found", "token_revoked"])
async def test_what_slack_refuses_fails_with_its_reason_and_is_sent_again_on_demand(away: Away, code: str) -> None:
    away.slack.trouble = ports.PostRefused(code, f"Slack refused: {code}.")
    await away.open()
    (card,) = await away.runtime.books.commands(kind="card")
    assert (card.status, card.attempts) == ("failed", 1)
    assert code in card.last_error
    away.slack.trouble = None
    await away.pass_time(timedelta(hours=1))
    assert away.board.cards == {}, "nobody has said that it is mended"
    assert await away.send_again("bundle") == []
    assert await away.send_again() == [("card", 1)]
    await away.dispatcher.work_off()
    assert away.board.states() == ["pending"]
    assert await away.send_again() == []


async def test_a_store_that_refuses_ends_it_at_once_and_retention_goes_on_when_it_is_mended(away: Away) -> None:
    away.store_trouble = ConfigurationError("S3 refused s3://b/x: AccessDenied.", remedy="Check the credentials.")
    run_id = await away.open()
    await away.vote("ana")
    await away.finish()
    (order,) = await away.runtime.books.commands(kind="bundle")
    assert (order.status, order.attempts) == ("failed", 1)
    assert "AccessDenied" in order.last_error
    assert "Check the credentials." in order.last_error
    await away.runtime.trouble.make_purge_due(run_id)
    assert await away.sweeper.sweep() == 0, "nothing is removed before its evidence is stored"
    away.store_trouble = None
    assert await away.send_again("bundle") == [("bundle", 1)]
    await away.dispatcher.work_off()
    assert (await away.verified(run_id)).ok
    assert await away.sweeper.sweep() == 1
    assert (await away.runtime.books.run(run_id)).purged_at is not None


async def test_a_message_that_nobody_takes_holds_the_payloads_of_its_run_for_thirty_days(away: Away) -> None:
    away.slack.trouble = ports.NotPosted("Slack is gone for good")
    run_id = await away.open()
    await away.vote("ana")
    await away.finish()
    await away.runtime.trouble.make_purge_due(run_id)
    await away.runtime.trouble.pass_time_of_messages(timedelta(days=29))
    assert await away.sweeper.sweep() == 0
    await away.runtime.trouble.pass_time_of_messages(timedelta(days=1))
    assert await away.sweeper.sweep() == 1
    assert (await away.runtime.books.run(run_id)).purged_at is not None
    away.slack.trouble = None
    await away.dispatcher.work_off()
    assert {command.status for command in await away.runtime.books.commands()} == {"dispatched"}


@pytest.mark.parametrize("hours", [9, 7])
async def test_keepers_that_come_back_end_what_has_expired_and_postpone_nothing(away: Away, hours: int) -> None:
    """Remind after 1 h, escalate after 6 h, expire after 8 h."""
    run_id = await away.open()
    await away.runtime.trouble.leave_questions_alone(timedelta(hours=hours))
    await away.sweeper.sweep()
    await away.finish()
    if hours == 9:
        assert away.board.threads == [], "nobody is reminded of what has expired"
        assert away.board.states() == ["expired"]
        assert await away.runtime.status(run_id) == "failed_terminal"
        assert (await away.runtime.error(run_id))["code"] == "expired"
        return
    await away.sweeper.sweep()
    await away.dispatcher.work_off()
    assert len(away.board.threads) == 2, "both stages are past, and it still waits"
    assert await away.sweeper.sweep() == 0
    await away.runtime.trouble.leave_questions_alone(timedelta(hours=1))
    await away.sweeper.sweep()
    await away.finish()
    assert away.board.states() == ["expired"], "it expires when it was to expire, and not two hours later"
