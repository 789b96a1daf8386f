"""Places of posts: redrawn where one is known, looked for where it may be, made where there is none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from approvals.ports import Absent, MessageRef, NotPosted, Posted, PostInDoubt, PostRefused
from runtime.keep import messages
from runtime.keep.dispatcher import Delivered, Later, Undeliverable
from runtime.store.outbox import Message

pytestmark = pytest.mark.req("O-3")

ASKED = datetime(2026, 11, 1, tzinfo=UTC)
ABOUT = UUID(int=7)
THERE, NEW = MessageRef("C", "1"), MessageRef("C", "2")


class Slack:
    """A channel: what a look, a post and an update come to, and what was asked of it."""

    def __init__(self, found: Any = None, outcome: Any = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._found, self._outcome = found, outcome

    async def find_card(self, channel: str, key: str, since: float) -> Any:
        self.asked.append(("find", channel, key, since))
        return self._found

    async def post(self, key: str) -> Any:
        self.asked.append(("post", key))
        return self._outcome or Posted(NEW)

    async def update(self, ref: MessageRef) -> Any:
        self.asked.append(("update", ref))
        return self._outcome or Posted(ref)


async def delivered(slack: Any, *, attempts: int = 1, later: float = 0, known: MessageRef | None = None) -> Any:
    """The result, and where the post is remembered to be."""
    remembered: list[Any] = []

    async def shown(_: Any, about: UUID, posted: Posted) -> None:
        remembered.append((about, posted.ref))

    message = Message(UUID(int=1), "acme", None, "card", {}, attempts, ASKED.timestamp() + later)
    drawing = messages._Drawing(slack, "C", message, ABOUT, known, ASKED, slack.post, slack.update, shown)
    result: Any = await drawing.deliver()
    if isinstance(result, Delivered) and result.record is not None:
        remember: Any = result.record
        await remember(None)
    return result, remembered


LOOK = ("find", "C", str(ABOUT), ASKED.timestamp() - 60)
POST = ("post", str(ABOUT))


@pytest.mark.parametrize(
    ("given", "found", "asked", "remembered"),
    [
        ({}, None, [POST], [(ABOUT, NEW)]),
        ({"attempts": 2}, Absent(), [LOOK, POST], [(ABOUT, NEW)]),
        ({"attempts": 2}, Posted(THERE), [LOOK, ("update", THERE)], [(ABOUT, THERE)]),
        ({"later": 1}, Absent(), [LOOK, POST], [(ABOUT, NEW)]),
        ({"later": 1}, Posted(THERE), [LOOK, ("update", THERE)], [(ABOUT, THERE)]),
        ({"known": THERE, "attempts": 2, "later": 1}, None, [("update", THERE)], []),
    ],
)
async def test_it_is_looked_for_where_an_earlier_attempt_or_message_may_have_made_it(
    given: dict[str, Any], found: Any, asked: list[Any], remembered: list[Any]
) -> None:
    slack = Slack(found)
    result, kept = await delivered(slack, **given)
    assert isinstance(result, Delivered)
    assert (slack.asked, kept, result.shows_all) == (asked, remembered, True)


@pytest.mark.parametrize(
    ("found", "outcome", "result"),
    [
        (NotPosted("busy", 7.0), None, Later("busy", 7.0)),
        (PostRefused("gone", "The channel is gone."), None, Undeliverable("The channel is gone.")),
        (Absent(), NotPosted("busy", 7.0), Later("busy", 7.0)),
        (Absent(), PostInDoubt("no answer"), Later("no answer")),
        (Absent(), PostRefused("gone", "It is."), Undeliverable("gone: It is.")),
        (Posted(THERE), PostInDoubt("no answer"), Later("no answer")),
    ],
)
async def test_what_does_not_come_about_is_tried_again_or_said(found: Any, outcome: Any, result: Any) -> None:
    assert await delivered(Slack(found, outcome), attempts=2) == (result, [])
