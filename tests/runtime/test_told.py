"""Outcomes are told once, with the reason: to whoever asked for the run, and what failed to the operators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from connectors.port import InDoubt, Refused
from evidence.chain import Actor
from runtime.requests.steering import cancel_run
from sandbox.faults import Effect, Fault, FaultKind
from tests.support.runtime_stage import ALLOW_ALL
from tests.support.telling import Chat, chatting

pytestmark = pytest.mark.req("Q-3")

ACT = """
workflow: w
version: 1
reference: INC1
steps:
  - {id: act, do: probe.effect.apply, with: {name: door, value: open}}
"""
MAIL = "workflow: mail\nversion: 1\nsteps:\n  - {id: a, do: probe.mail.send, with: {text: hello}}\n"
ASKS = """
policy: doors
version: 4
rules:
  - {id: ask, match: {connector: probe}, outcome: needs_approval, approvers: [{group: leads}]}
"""
DENIES = """
policy: doors
version: 4
rules:
  - {id: shut, match: {connector: probe}, outcome: deny, because: "Doors are opened by people, never by automation."}
"""
WRONG = Refused("no_such_door", "there is *no* such door <!channel>")


@pytest.fixture
async def chat(runtime: Any) -> AsyncIterator[Chat]:
    async with chatting(runtime) as made:
        yield made


async def over(chat: Chat) -> None:
    await chat.go("w")


async def rejected(chat: Chat) -> None:
    await chat.go("w")
    assert (await chat.runtime.vote("lea", "reject")).counted
    await chat.runtime.worker().work_off()


async def expired(chat: Chat) -> None:
    await chat.go("w")
    await chat.deliver()
    await chat.runtime.wait_is_due()


async def canceled(chat: Chat) -> None:
    run_id = await chat.go("w")
    async with chat.runtime.faces.transaction("acme") as connection:
        place = (connection, chat.runtime.definitions, "acme", run_id)
        await cancel_run(*place, Actor("person", "olga"), "The door is gone.")


async def failed(chat: Chat) -> None:
    chat.runtime.outside.script["door"] = [WRONG]
    await chat.go("w")


async def in_doubt(chat: Chat) -> None:
    chat.runtime.outside.script["probe.mail.send"] = [InDoubt("the line went dead")]
    await chat.go("mail")
    await chat.runtime.wait_is_due()


# The policy, what is played, and what the one message says.
ENDS: dict[str, tuple[str, Callable[[Chat], Awaitable[None]], list[str]]] = {
    "done": (ALLOW_ALL, over, ["*Done:* `Set door to open`, which you asked for."]),
    "denied": (DENIES, over, ["*Not done:* `Set door to open`", "Doors are opened by people", "Rule shut of doors 4"]),
    "rejected": (ASKS, rejected, ["*Rejected:* `Set door to open`", "Lea: `because`"]),
    "expired": (ASKS, expired, ["*Expired:* `Set door to open`", "Nobody decided in time"]),
    "canceled": (ASKS, canceled, ["*Canceled:* `w for INC1`", "Olga: `The door is gone.`"]),
    "failed": (ALLOW_ALL, failed, ["*Failed:* `Set door to open`", "`there is *no* such door &lt;!channel&gt;`"]),
    "in doubt": (ALLOW_ALL, in_doubt, ["*In doubt:* `Send hello`", "nobody knows yet"]),
}
# Of these the operators hear, too.
ALARMS = {"denied", "rejected", "expired", "failed", "in doubt"}


@pytest.mark.parametrize("end", ENDS)
async def test_each_outcome_is_told_once_with_its_reason(chat: Chat, end: str) -> None:
    policy, play, words = ENDS[end]
    await chat.begin(policy, ACT, MAIL)
    await play(chat)
    await chat.deliver()
    (message,) = chat.told("requester")
    assert [word for word in words if word not in "\n".join(_texts(message))] == []
    for operator in ("olga", "omar"):
        heard = chat.told(operator)
        assert len(heard) == (end in ALARMS)
        assert not any("you asked for" in text for one in heard for text in _texts(one))
    assert chat.told("lea") == []


def _texts(message: Any) -> list[str]:
    held = [block.get("text") or part for block in message.blocks for part in block.get("elements", [{}])]
    return [str(text.get("text", "")) for text in held]


@pytest.mark.parametrize("fault", [Effect.LOST, Effect.LANDED, None])
async def test_what_may_have_arrived_is_not_said_twice(chat: Chat, fault: Effect | None) -> None:
    """The answer to the post is lost, before or after its effect, or the dispatcher dies with the post made."""
    await chat.begin(ALLOW_ALL, ACT)
    await over(chat)
    if fault is not None:
        chat.slack.faults.inject(Fault("chat.postMessage", FaultKind.RESET, fault))
    await chat.deliver()
    if fault is None:
        assert await chat.runtime.trouble.send_again("told")
    await chat.runtime.trouble.retry_messages_now()
    await chat.deliver()
    assert len(chat.told("requester")) == 1


async def test_too_many_requests_lose_nothing(chat: Chat) -> None:
    await chat.begin(ALLOW_ALL, ACT)
    await over(chat)
    chat.slack.faults.inject(Fault("chat.postMessage", status=429, headers={"Retry-After": "70"}))
    await chat.deliver()
    heard = []
    for seconds in (60, 11):  # Slack asked for 70
        await chat.runtime.trouble.pass_time_of_messages(timedelta(seconds=seconds))
        await chat.deliver()
        heard.append(len(chat.told("requester")))
    assert heard == [0, 1]


@pytest.mark.parametrize("who", ["a machine", "deactivated", "without an account"])
async def test_nobody_else_hears_it(chat: Chat, who: str) -> None:
    from tests.support.people import add_person, deactivate, remove_person

    await chat.begin(ALLOW_ALL, ACT)
    database = chat.runtime.database
    if who == "deactivated":
        await over(chat)
        await deactivate(database, "acme", "requester")
    else:
        await remove_person(database, "acme", "requester")
        machine = {"owner": "lea", "principals": ("slack:UREQUESTER",)} if who == "a machine" else {}
        await add_person(database, "acme", "requester", **machine)
        await over(chat)
    await chat.deliver()
    assert [chat.told(person) for person in ("requester", "lea")] == [[], []]
    assert await chat.runtime.books.commands(kind="told", status="failed") == []


async def test_many_failures_of_a_kind_are_one_message_that_counts(chat: Chat) -> None:
    await chat.begin(ALLOW_ALL, ACT, MAIL)
    chat.runtime.outside.script["door"] = [WRONG] * 5
    for ref in "123":
        await chat.go("w", ref)
    await chat.deliver()
    for ref in "45":
        await chat.go("w", ref)
    chat.runtime.outside.script["probe.mail.send"] = [Refused("no_such_box", "there is no such box")]
    await chat.go("mail")
    await chat.deliver()
    doors, mail = chat.told("olga")
    assert (doors.text, mail.text) == ("5 times Failed: Set door to open", "Failed: Send hello")
    assert len(chat.told("requester")) == 6


async def test_a_message_that_failed_for_good_is_told_to_operators(chat: Chat) -> None:
    await chat.begin(ASKS, ACT)
    chat.slack.faults.inject(
        Fault("chat.postMessage", times=1, status=200, body={"ok": False, "error": "channel_not_found"})
    )
    await chat.go("w")
    await chat.deliver()
    (message,) = chat.told("olga")
    assert "*Not delivered:* `a message (card)`." in _texts(message)[0]
    assert "channel_not_found" in str(message.blocks)
