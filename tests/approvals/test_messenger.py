"""The messenger and the group look-up against a strict stand-in: lost and landed, refused and throttled."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from slack_sdk.web.async_client import AsyncWebClient

from approvals.content import CardState
from approvals.model import CardView
from approvals.ports import Absent, MessageRef, NotPosted, Posted, PostInDoubt, PostRefused
from approvals.slack.messenger import SlackMessenger
from approvals.slack.workspace import SlackUserGroups, SlackWorkspace
from core.errors import ConfigurationError
from core.terms import GroupQuorum, GroupSource


@pytest.fixture
def messenger(client: AsyncWebClient) -> SlackMessenger:
    return SlackMessenger(client, timeout_seconds=5)


@pytest.mark.req("U-5")
async def test_card_is_posted_found_and_redrawn(messenger: SlackMessenger, slack: Any, view: CardView) -> None:
    posted = await messenger.post_card("C1", view, "key-1")
    assert isinstance(posted, Posted)
    assert slack.messages[0]["blocks"][-1]["type"] == "actions"
    assert await messenger.find_card("C1", "key-1", since=1_700_000_000) == posted
    assert await messenger.find_card("C1", "key-2", since=1_700_000_000) == Absent()
    assert await messenger.find_card("C2", "key-1", since=1_700_000_000) == Absent()
    again = await messenger.update_card(posted.ref, replace(view, state=CardState.APPLIED))
    assert again == posted
    assert all(block["type"] != "actions" for block in slack.messages[0]["blocks"])


@pytest.mark.parametrize(("pages", "linked"), [("https://gov.example/console", True), ("", False)])
async def test_a_decided_card_leads_to_its_page_where_an_address_is_set(
    client: AsyncWebClient, slack: Any, view: CardView, pages: str, linked: bool
) -> None:
    messenger = SlackMessenger(client, timeout_seconds=5, pages=pages)
    posted = await messenger.post_card("C1", view, "key-1")
    assert isinstance(posted, Posted)
    await messenger.update_card(posted.ref, replace(view, state=CardState.APPLIED))
    assert (f"<https://gov.example/console/approvals/{view.approval_id}|" in str(slack.messages[0]["blocks"])) is linked


@pytest.mark.parametrize(("fault", "there"), [("lost", 0), ("landed", 1)])
async def test_lost_answer_is_in_doubt_and_resolved_by_looking(
    messenger: SlackMessenger, slack: Any, view: CardView, fault: str, there: int
) -> None:
    slack.faults["chat.postMessage"] = [fault]
    assert isinstance(await messenger.post_card("C1", view, "key-1"), PostInDoubt)
    assert slack.calls == ["chat.postMessage"]
    found = await messenger.find_card("C1", "key-1", since=1_700_000_000)
    assert isinstance(found, Posted) is bool(there)
    assert len(slack.messages) == there


async def test_foreign_message_with_our_key_is_not_our_card(messenger: SlackMessenger, slack: Any) -> None:
    metadata = {"event_type": "counterseal_approval", "event_payload": {"key": "key-1"}}
    slack.messages.append({"channel": "C1", "ts": "1700000000.000009", "user": "U_EVIL", "metadata": metadata})
    assert await messenger.find_card("C1", "key-1", since=1_700_000_000) == Absent()


async def test_whole_history_is_searched(messenger: SlackMessenger, slack: Any, view: CardView) -> None:
    await messenger.post_card("C1", view, "key-1")
    slack.messages += [{"channel": "C1", "ts": f"1700000001.{i:06d}", "user": "U2"} for i in range(450)]
    assert isinstance(await messenger.find_card("C1", "key-1", since=1_700_000_000), Posted)
    assert slack.calls.count("conversations.history") == 3


@pytest.mark.parametrize("fault", ["lost", (429, {"Retry-After": "7"}, {"ok": False, "error": "ratelimited"})])
async def test_failed_search_is_not_absence(messenger: SlackMessenger, slack: Any, fault: Any) -> None:
    slack.faults["conversations.history"] = [fault]
    assert isinstance(await messenger.find_card("C1", "key-1", since=1_700_000_000), NotPosted)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ((429, {"Retry-After": "7"}, {"ok": False, "error": "ratelimited"}), NotPosted),
        ((429, {}, "slow down"), NotPosted),
        ((500, {}, "oops"), PostInDoubt),
        ((503, {"content-type": "text/html"}, "<html>"), PostInDoubt),
        ((200, {"content-type": "text/plain"}, "hello"), PostInDoubt),
        ((200, {"content-type": "application/json"}, "{"), PostInDoubt),
        ((200, {}, []), PostInDoubt),
        ((500, {}, {"ok": False, "error": "is_archived"}), PostInDoubt),
        ((200, {}, {"ok": False, "error": "fatal_error"}), PostInDoubt),
        ((200, {}, {"ok": False, "error": "internal_error"}), PostInDoubt),
        ((200, {}, {"ok": True}), PostInDoubt),
        ((200, {}, {"ok": False, "error": "is_archived"}), PostRefused),
        ((200, {}, {"ok": False, "error": "something_new"}), PostRefused),
    ],
)
async def test_answers_are_told_apart(
    messenger: SlackMessenger, slack: Any, view: CardView, fault: Any, expected: type
) -> None:
    slack.faults["chat.postMessage"] = [fault]
    outcome = await messenger.post_card("C1", view, "key-1")
    assert type(outcome) is expected, outcome
    assert slack.calls == ["chat.postMessage"], "one try"
    if fault[1].get("Retry-After"):
        assert outcome.retry_after_seconds == 7


async def test_refusals_name_the_remedy(messenger: SlackMessenger, view: CardView) -> None:
    outcome = await messenger.post_card("C_ABSENT", view, "key-1")
    assert isinstance(outcome, PostRefused)
    assert "/invite" in outcome.message


@pytest.mark.parametrize("error", ["message_not_found", "cant_update_message", "edit_window_closed"])
async def test_update_refused(messenger: SlackMessenger, slack: Any, view: CardView, error: str) -> None:
    slack.faults["chat.update"] = [(200, {}, {"ok": False, "error": error})]
    outcome = await messenger.update_card(MessageRef("C1", "1700000000.000001"), view)
    assert isinstance(outcome, PostRefused)
    assert outcome.code == error
    assert "approval itself is unchanged" in outcome.message


async def test_hanging_slack_is_in_doubt(client: AsyncWebClient, slack: Any, view: CardView) -> None:
    slack.faults["chat.postMessage"] = ["hang"]
    outcome = await SlackMessenger(client, timeout_seconds=0.2).post_card("C1", view, "key-1")
    slack.released.set()
    assert isinstance(outcome, PostInDoubt)


async def test_refused_connection_is_certainly_not_posted(client: AsyncWebClient, view: CardView) -> None:
    client.base_url = "http://127.0.0.1:1/api/"
    assert isinstance(await SlackMessenger(client).post_card("C1", view, "key-1"), NotPosted)


async def test_words_to_people_are_plain(messenger: SlackMessenger, slack: Any) -> None:
    text = "Already decided by *Ann* <!channel> \u202e."
    assert isinstance(await messenger.post_thread(MessageRef("C1", "1.2"), text, "remind-1"), Posted)
    assert isinstance(await messenger.post_ephemeral("C1", "U1", text), Posted)
    for sent in (slack.messages[0], slack.ephemerals[0]):
        assert sent["blocks"][0]["text"]["type"] == "plain_text"
        assert "<!channel>" not in sent["text"]
        assert "⟨U+202E⟩" in sent["text"]
    assert slack.messages[0]["thread_ts"] == "1.2"


def test_client_that_retries_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        SlackMessenger(AsyncWebClient(token="xoxb-test"))


async def test_group_members_are_looked_up_each_time(client: AsyncWebClient, slack: Any) -> None:
    leads = GroupQuorum("S0LEADS", 1, GroupSource.SLACK_GROUP)
    gone = GroupQuorum("S0GONE", 1, GroupSource.SLACK_GROUP)
    groups = SlackUserGroups(client)
    slack.groups["S0LEADS"] = ["U1"]
    first = await groups.membership("U1", [leads, gone, GroupQuorum("ours")])
    assert (first.groups, first.unresolvable) == ({leads.key}, {gone.key})
    slack.groups["S0LEADS"] = []
    assert (await groups.membership("U1", [leads])).groups == frozenset()


async def test_who_is_in_a_group_is_told_by_account_and_who_cannot_be_told_is_left_out(
    client: AsyncWebClient, slack: Any
) -> None:
    leads, gone = (GroupQuorum(name, 1, GroupSource.SLACK_GROUP) for name in ("S0LEADS", "S0GONE"))
    slack.groups["S0LEADS"] = ["U1", "U2"]
    assert await SlackUserGroups(client).members([leads, gone, GroupQuorum("ours")]) == {leads.key: {"U1", "U2"}}
    home = await SlackWorkspace(client).home()
    assert home is not None
    found = await SlackUserGroups(client, SlackWorkspace(client)).members([leads])
    assert found == {leads.key: {"U1", "U2", f"{home.id}/U1", f"{home.id}/U2"}}


@pytest.mark.parametrize(
    ("user", "org_wide", "member"),
    [("U1", False, True), ("T1/U1", False, True), ("T2/U1", False, False),
     ("E1/U1", True, True), ("T1/U1", True, False)],
)  # fmt: skip
async def test_a_user_of_another_workspace_is_in_no_group_of_this_one(
    client: AsyncWebClient, slack: Any, user: str, org_wide: bool, member: bool
) -> None:
    slack.groups["S0LEADS"] = ["U1"]
    home = {"ok": True, "team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": org_wide}
    slack.faults["auth.test"] = [(200, {}, home)]
    leads = GroupQuorum("S0LEADS", 1, GroupSource.SLACK_GROUP)
    found = await SlackUserGroups(client, SlackWorkspace(client)).membership(user, [leads])
    assert (found.groups, found.unresolvable) == ({leads.key} if member else frozenset(), frozenset())


@pytest.mark.parametrize("fault", ["lost", "hang", (429, {}, {"ok": False})])
async def test_while_slack_is_away_nobody_can_say_who_is_in_a_group(
    client: AsyncWebClient, slack: Any, fault: Any
) -> None:
    slack.groups["S0LEADS"] = ["U1"]
    slack.faults["usergroups.users.list"] = [fault]
    leads = GroupQuorum("S0LEADS", 1, GroupSource.SLACK_GROUP)
    found = await SlackUserGroups(client, timeout_seconds=0.2).members([leads])
    slack.released.set()
    assert found is None


@pytest.mark.parametrize("fault", ["lost", "hang", (429, {}, {"ok": False}), (200, {}, {"ok": True, "users": "U1"})])
async def test_group_that_cannot_be_read_is_unresolvable(client: AsyncWebClient, slack: Any, fault: Any) -> None:
    leads = GroupQuorum("S0LEADS", 1, GroupSource.SLACK_GROUP)
    slack.groups["S0LEADS"] = ["U1"]
    slack.faults["usergroups.users.list"] = [fault]
    membership = await SlackUserGroups(client, timeout_seconds=0.2).membership("U1", [leads])
    slack.released.set()
    assert (membership.groups, membership.unresolvable) == (frozenset(), {leads.key})
