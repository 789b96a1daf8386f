"""A card reaches people: it names them, goes where its rule says, and the book knows that it was delivered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.quiet import Quiet
from evidence.chain import Actor
from runtime.requests.publishing import publish_directory
from runtime.requests.views import RunReader
from sandbox.faults import Fault
from tests.support.telling import CHANNEL, Chat, chatting

pytestmark = pytest.mark.req("Q-3")

ACT = """
workflow: w
version: 1
reference: INC1
steps:
  - {id: act, do: probe.effect.apply, with: {name: door, value: open}}
"""
GATE = """
workflow: g
version: 1
steps:
  - {id: act, approve: {summary: "Go on?", approvers: [{group: leads, of: 2}], channel: C0INC}}
"""
ASKS = "{{id: ask, match: {{connector: probe}}, outcome: needs_approval, approvers: {0}{1}}}"


def policy(approvers: str = "[{group: leads, of: 2}]", more: str = "", channels: str = "{}") -> str:
    return f"policy: doors\nversion: 1\nchannels: {channels}\nrules:\n  - {ASKS.format(approvers, more)}\n"


@pytest.fixture
async def chat(runtime: Any) -> AsyncIterator[Chat]:
    async with chatting(runtime) as made:
        yield made


def mentions(card: Any) -> str:
    texts = [str(part.get("text")) for block in card.blocks for part in block.get("elements", ())]
    return next((text for text in texts if text.startswith("For ")), "")


async def test_a_card_calls_those_who_may_still_vote(chat: Chat) -> None:
    await chat.begin(policy("[{group: leads, of: 2}, {slack_group: S0ITLEADS, of: 1}]"), ACT)
    chat.slack.state.usergroups["S0ITLEADS"] = ("it-leads", ["ULEA", "ULOU"])
    for person, groups in (("lou", ("leads",)), ("requester", ("leads",))):
        await chat.person(person, groups)
    await chat.go("w")
    await chat.deliver()
    (card,) = chat.cards()
    assert card.text.startswith("Requester asks: Set door to open. Until <!date^")
    assert mentions(card) == "For <@ULEA>, <@ULOU>, <!subteam^S0ITLEADS>"
    assert (await chat.runtime.vote("lea", "approve")).counted
    await chat.deliver()
    assert mentions(chat.cards()[0]) == "For <@ULOU>, <!subteam^S0ITLEADS>"


async def test_beyond_the_limit_the_groups_are_named(chat: Chat) -> None:
    await chat.begin(policy(), ACT)
    for number in range(9):
        await chat.person(f"lead{number}", ("leads",))
    await chat.go("w")
    await chat.deliver()
    assert mentions(chat.cards()[0]) == "For members of leads"


@pytest.mark.parametrize(
    ("text", "made", "channel"),
    [
        ("w", policy(), CHANNEL),
        ("w", policy(more=", channel: C0INC"), "C0INC"),
        ("w", policy(more=", tier: high", channels="{high: C0INC}"), "C0INC"),
        ("w", policy(channels="{high: C0INC}"), CHANNEL),
        ("g", policy(), "C0INC"),
    ],
    ids=["the usual place", "the rule's", "the tier's", "another tier's", "the gate's"],
)
async def test_a_card_goes_where_its_rule_or_tier_says(chat: Chat, text: str, made: str, channel: str) -> None:
    await chat.begin(made, ACT, GATE)
    await chat.go(text)
    await chat.deliver()
    assert {one: len(chat.cards(one)) for one in (CHANNEL, "C0INC")} == {CHANNEL: 0, "C0INC": 0, channel: 1}


async def test_another_channel_voids_no_approval(chat: Chat) -> None:
    await chat.begin(policy("[{group: leads}]"), ACT)
    await chat.go("w")
    await chat.runtime.policy(policy("[{group: leads}]", ", channel: C0INC").replace("version: 1", "version: 2"))
    assert (await chat.runtime.vote("lea", "approve")).counted
    await chat.runtime.worker().work_off()
    assert len(chat.runtime.outside.effects) == 1


@pytest.mark.parametrize("arrives", [True, False], ids=["it arrives", "it never arrives"])
async def test_the_book_knows_if_the_card_was_delivered(chat: Chat, arrives: bool) -> None:
    await chat.begin(policy(), ACT)
    if not arrives:
        chat.slack.faults.inject(
            Fault("chat.postMessage", times=0, status=200, body={"ok": False, "error": "is_archived"})
        )
    run_id = await chat.go("w")
    await chat.deliver()
    chat.slack.faults.clear()
    await chat.runtime.wait_is_due()
    await chat.deliver()
    delivered = [one.data for one in await chat.runtime.books.events(run_id, type="approval.delivered")]
    assert [(one["channel"], one["message"]) for one in delivered] == [
        (CHANNEL, card.ts) for card in chat.cards()[:arrives]
    ]
    (expired,) = await chat.runtime.books.events(run_id, type="approval.expired")
    assert expired.data.get("undelivered", False) is not arrives
    error = (await chat.runtime.error(run_id))["message"]
    assert ("Nobody decided" in error, "never delivered" in error) == (arrives, not arrives)
    (told,) = chat.told("requester")
    assert error in str(told.blocks)
    assert (await RunReader(chat.runtime.faces, chat.runtime.definitions).replay("acme", run_id)).ok


async def be_quiet(chat: Chat, begins: int, ends: int) -> None:
    """Publish a directory in which the requester hears nothing between these hours from now."""
    hours = [f"{datetime.now(UTC) + timedelta(hours=hour):%H:%M}" for hour in (begins, ends)]
    quiet = f"{{from: '{hours[0]}', to: '{hours[1]}'}}"
    text = f"""
directory: d
people:
  - {{id: requester, name: Requester, slack: UREQUESTER, time_zone: UTC, quiet: {quiet}}}
  - {{id: lea, name: Lea, slack: ULEA}}
groups: {{leads: [lea]}}
"""
    async with chat.runtime.faces.transaction("acme") as connection:
        await publish_directory(connection, "acme", text, "d.yaml", Actor("test", "tester"))


async def test_quiet_hours_hold_messages_and_move_no_deadline(chat: Chat) -> None:
    await chat.begin(policy("[{group: leads}]"), ACT)
    await be_quiet(chat, -1, 1)
    await chat.go("w")
    await chat.deliver()
    assert len(chat.cards()) == 1
    await chat.runtime.wait_is_due()
    await chat.deliver()
    assert chat.told("requester") == []
    await be_quiet(chat, 1, 2)
    await chat.runtime.trouble.hurry_messages()
    await chat.deliver()
    assert len(chat.told("requester")) == 1


@pytest.mark.parametrize(
    ("zone", "hours", "now", "left"),
    [
        ("Europe/Berlin", ("22:00", "07:00"), "2026-01-05T21:00+00:00", 9.0),
        ("Europe/Berlin", ("22:00", "07:00"), "2026-01-05T20:59+00:00", 0),
        ("Europe/Berlin", ("22:00", "07:00"), "2026-01-06T05:30+00:00", 0.5),
        ("Europe/Berlin", ("22:00", "07:00"), "2026-01-06T06:00+00:00", 0),
        ("Europe/Berlin", ("22:00", "07:00"), "2026-03-28T21:00+00:00", 8.0),
        ("Asia/Kolkata", ("12:00", "13:00"), "2026-01-05T06:45+00:00", 0.75),
        ("No/Where", ("00:00", "23:59"), "2026-01-05T06:45+00:00", 0),
    ],
)
def test_quiet_hours_are_by_the_clock_of_the_person(zone: str, hours: tuple[str, str], now: str, left: float) -> None:
    begins, ends = (datetime.fromisoformat(f"2026-01-01T{one}").time() for one in hours)
    assert Quiet(zone, begins, ends).left(datetime.fromisoformat(now)) == timedelta(hours=left)
