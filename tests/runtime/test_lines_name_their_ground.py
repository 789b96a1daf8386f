"""Lines name what they rest on, so that somebody without the database can judge them (issue 42, stage 1, item 3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from core.terms import Stopped
from evidence.chain import Actor
from runtime.engine.book.recorded import line_of, read_line
from runtime.engine.model.events import ApprovalVoted
from runtime.requests import pausing
from tests.support.runtime_stage import ACTOR
from tests.support.runtime_voting import Office

SLACK = {"slack": {"team": "T1", "user": "UANA", "channel": "C1", "message": "1.0"}}


async def test_each_line_names_what_it_rests_on(office: Office) -> None:
    run, books = await office.open(), office.runtime.books
    held = (office.runtime.faces, office.runtime.definitions, "acme", Stopped.RUN, str(run), "look first", ACTOR)
    assert (await pausing.pause(*held)).changed
    assert (await office.vote("ana", identity=SLACK)).counted
    assert (await pausing.resume(*held)).changed
    await office.finish()
    told: dict[str, Any] = {event.type: event for event in await books.events(run)}
    people = (await books.approvals())[0]
    assert (told["run.opened"].data["tenant"], "parent" in told["run.opened"].data) == ("acme", False)
    asked, voted = told["approval.requested"].data, told["approval.voted"].data
    assert (asked["directory"], "secret" in asked) == (voted["directory"], False)
    assert (voted["groups"], voted["identity"], people.status) == (["group:owners"], SLACK, "approved")
    stream = [event.data for event in await books.tenant_events("acme") if "paused" in event.data]
    first, last = (line["stop"] for line in stream)
    # A line holds for the intents of a greater number: the pause held this one back, until it was lifted.
    assert (told["run.paused"].data["stop"], told["action.intended"].data["stop"]) == (first + 1, last + 1)
    events = await books.events(run)
    assert told["run.closed"].ts == max(event.ts for event in events)


async def test_votes_of_books_of_before_keep_their_groups() -> None:
    voted = ApprovalVoted(UUID(int=1), "approve", "cli", False, groups=["group:owners"])
    ana, at = Actor("person", "ana"), datetime(2026, 11, 1, tzinfo=UTC)
    told = read_line(b'{"actor":{"id":"ana","kind":"person"},"data":{"approval":"00000000-0000-0000-0000-000000000001",'
        b'"channel":"cli","choice":"approve","reason_given":false},"step":"a","ts":"2026-11-01T00:00:00.000000Z",'
        b'"type":"approval.voted","v":2}', {"groups": ["group:owners"]}, b"", verify=False)  # fmt: skip
    assert (told.event, told.actor, told.at) == (voted, ana, at)
    assert "groups" in line_of(told, b"k" * 32)[0]["data"], "a line that is written today shows them"
