"""Times that calls of Slack may take: those of their callers, and the time of a click for what it asks."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from uuid import UUID

import pytest
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from approvals.model import CardView, Choice, TaskView
from approvals.ports import MessageRef, NotPosted
from approvals.slack import handlers, messenger, workspace
from approvals.slack.handlers import Answer
from approvals.slack.messenger import SlackMessenger
from approvals.slack.payloads import Click, Clicker, TaskClick
from approvals.slack.workspace import SlackUserGroups, SlackWorkspace
from core.terms import GroupQuorum, GroupSource

pytestmark = pytest.mark.req("U-8")

ANN = Clicker("T1", "U1", frozenset({"T1"}))
GROUP = GroupQuorum("S1", 1, GroupSource.SLACK_GROUP)


class Web:
    """Slack's client: a request is the name of its method."""

    retry_handlers: tuple[()] = ()

    def __getattr__(self, name: str) -> Any:
        return lambda **_: name


class Desk:
    """Both services, which allow nothing."""

    def __getattr__(self, name: str) -> Any:
        async def called(*_: Any) -> Answer:
            return Answer(False, "No.")

        return called


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each call: its method, and the seconds that it may take. Slack knows itself, and nothing else."""
    found: list[Any] = []

    async def call(request: Awaitable[AsyncSlackResponse], *, timeout_seconds: float) -> Any:
        found.append((request, timeout_seconds))
        return {"user_id": "U0", "team_id": "T1"} if str(request) == "auth_test" else NotPosted("away")

    for module in (messenger, workspace, handlers):
        monkeypatch.setattr(module, "call", call)
    return found


async def test_each_call_has_the_time_of_its_caller(waited: list[Any], view: CardView, task: TaskView) -> None:
    client: Any = Web()
    posting, ref = SlackMessenger(client, timeout_seconds=7.0), MessageRef("C1", "1.5")
    await posting.post_card("C1", view, "k")
    await posting.update_card(ref, view)
    await posting.post_task("C1", task, "k")
    await posting.update_task(ref, task)
    await posting.post_thread(ref, "x", "k")
    await posting.post_ephemeral("C1", "U1", "x")
    await posting.find_card("C1", "k", since=0)
    posts = ["chat_postMessage", "chat_update"] * 2
    posts += ["chat_postMessage", "chat_postEphemeral", "auth_test", "conversations_history"]
    assert waited == [(method, 7.0) for method in posts]
    waited.clear()
    asking = SlackWorkspace(client, timeout_seconds=3.0)
    await asking.stranger(ANN)
    assert waited == [("auth_test", 3.0), ("users_info", 3.0)]
    waited.clear()
    groups = SlackUserGroups(client, asking, timeout_seconds=4.0)
    await groups.membership("T1/U1", [GROUP])
    await groups.members([GROUP])
    assert waited == [("usergroups_users_list", 4.0)] * 2


async def test_a_window_is_opened_within_the_time_of_a_click(waited: list[Any]) -> None:
    client: Any = Web()
    await handlers._click(Desk(), client, Click(Choice.REJECT, UUID(int=1), "n", ANN, "C1", "t"))
    await handlers._open_task(Desk(), client, TaskClick(UUID(int=1), ANN, "C1", "t"))
    assert waited == [("views_open", 2.0)] * 2
