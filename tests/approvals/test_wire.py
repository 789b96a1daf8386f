"""Requests to Slack as they are sent, and its answers about messages, accounts and groups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError

from approvals.model import CardView, TaskView
from approvals.ports import Absent, Membership, MessageRef, NotPosted, Posted, PostInDoubt, PostRefused
from approvals.slack.cards import render
from approvals.slack.messenger import SlackMessenger
from approvals.slack.payloads import Clicker
from approvals.slack.tasks import render as render_task
from approvals.slack.workspace import KNOWN_SECONDS, Home, SlackUserGroups, SlackWorkspace, StrangerCode
from core.terms import GroupQuorum, GroupSource

REF = MessageRef("C1", "5.6")
AUTH = {"ok": True, "team_id": "T1", "enterprise_id": "E1", "user_id": "UBOT"}
NO_MEMBER, AWAY, FOREIGN = StrangerCode.NO_MEMBER, StrangerCode.UNAVAILABLE, StrangerCode.FOREIGN


class Wire:
    """A client of Slack's Web API that notes each request and answers from a list for each method."""

    retry_handlers: tuple[Any, ...] = ()

    def __init__(self, **answers: Any) -> None:
        self._answers = {name: list(item) if isinstance(item, list) else [item] for name, item in answers.items()}
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, method: str) -> Any:
        async def request(**arguments: Any) -> Any:
            self.sent.append((method, arguments))
            left = self._answers[method]
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, str):
                data = {"ok": False, "error": answer}
                raise SlackApiError(answer, SimpleNamespace(status_code=200, data=data, headers={}))
            return SimpleNamespace(data=answer)

        return request


def messenger(**answers: Any) -> tuple[SlackMessenger, Wire]:
    wire: Any = Wire(**answers)
    return SlackMessenger(wire), wire


def post(channel: str, drawn: Any, key: str, thread: str | None = None) -> dict[str, Any]:
    """The arguments of a post."""
    metadata = {"event_type": "counterseal_approval", "event_payload": {"key": key}}
    said = {"text": drawn.text, "blocks": drawn.blocks, "thread_ts": thread, "metadata": metadata}
    return {"channel": channel, **said, "unfurl_links": False, "unfurl_media": False}


async def test_each_message_is_sent_as_it_must_be(view: CardView, task: TaskView) -> None:
    slack, wire = messenger(
        chat_postMessage={"ok": True, "channel": "D9", "ts": "1.2"},
        chat_update={"ok": True, "channel": "C1", "ts": "5.6"},
        chat_postEphemeral={"ok": True, "message_ts": "7.8"},
    )
    assert await slack.post_card("U1", view, "k1") == Posted(MessageRef("D9", "1.2"))
    assert await slack.post_task("C1", task, "k2") == Posted(MessageRef("D9", "1.2"))
    assert await slack.update_card(REF, view) == Posted(REF)
    assert await slack.update_task(REF, task) == Posted(REF)
    assert await slack.post_thread(REF, "a *b* `c`", "k3") == Posted(MessageRef("D9", "1.2"))
    assert await slack.post_ephemeral("C1", "U2", "x" * 3000) == Posted(MessageRef("C1", "7.8"))
    assert await slack.post_ephemeral("C1", "U2", "x" * 3001) == Posted(MessageRef("C1", "7.8"))
    card, form = render(view), render_task(task)
    plain = {"type": "plain_text", "emoji": False}

    def words(*texts: str) -> list[dict[str, Any]]:
        return [{"type": "section", "text": {**plain, "text": text}} for text in texts]

    thread = SimpleNamespace(text="a *b* ⟨U+0060⟩c⟨U+0060⟩", blocks=words("a *b* ⟨U+0060⟩c⟨U+0060⟩"))
    long = {"channel": "C1", "user": "U2", "text": "x" * 3000, "blocks": words("x" * 2900, "x" * 100)}
    assert wire.sent == [
        ("chat_postMessage", post("U1", card, "k1")),
        ("chat_postMessage", post("C1", form, "k2")),
        ("chat_update", {"channel": "C1", "ts": "5.6", "text": card.text, "blocks": card.blocks}),
        ("chat_update", {"channel": "C1", "ts": "5.6", "text": form.text, "blocks": form.blocks}),
        ("chat_postMessage", post("C1", thread, "k3", "5.6")),
        ("chat_postEphemeral", long),
        (
            "chat_postEphemeral",
            {**long, "text": "A message from Counterseal", "blocks": words("x" * 2900, "x" * 101)},
        ),
    ]


def found(ts: str, key: str, user: str = "UBOT", kind: str = "counterseal_approval") -> dict[str, Any]:
    return {"ts": ts, "user": user, "metadata": {"event_type": kind, "event_payload": {"key": key}}}


OTHERS = [found("1", "k", "U2"), found("2", "other"), found("3", "k", kind="x"), {"ts": "4", "user": "UBOT"}]
MORE = {"response_metadata": {"next_cursor": "next"}}
HISTORIES: list[tuple[Any, Any, int]] = [
    ({"messages": [*OTHERS, found("5", "k")]}, Posted(MessageRef("C1", "5")), 1),
    ({"messages": OTHERS}, Absent(), 1),
    ({"messages": OTHERS, "has_more": True}, NotPosted("Slack did not give the whole history"), 1),
    ([{"messages": OTHERS, **MORE}, {"messages": [found("5", "k")]}], Posted(MessageRef("C1", "5")), 2),
    ({"messages": [], **MORE}, NotPosted("the channel has more than 5000 messages since the card was due"), 25),
    ("not_in_channel", "not_in_channel", 1),
    ("internal_error", NotPosted("Slack answered 200 internal_error"), 1),
    ([{"messages": [], **MORE}, "ratelimited"], NotPosted("Slack asks for fewer requests", 30.0), 2),
]


@pytest.mark.parametrize(("history", "outcome", "asked"), HISTORIES)
async def test_a_card_is_looked_for_in_the_whole_history(history: Any, outcome: Any, asked: int) -> None:
    slack, wire = messenger(auth_test=AUTH, conversations_history=history)
    answer = await slack.find_card("C1", "k", since=1000.25)
    assert (answer.code if isinstance(answer, PostRefused) else answer) == outcome
    request = {"channel": "C1", "oldest": "940.250000", "inclusive": True, "include_all_metadata": True, "limit": 200}
    cursors = [None, *["next"] * (asked - 1)]
    assert wire.sent == [
        ("auth_test", {}),
        *(("conversations_history", {**request, "cursor": cursor}) for cursor in cursors),
    ]


@pytest.mark.parametrize(("error", "outcome"), [("invalid_auth", "invalid_auth"), ("fatal_error", None)])
async def test_without_its_own_name_nothing_is_looked_for(error: str, outcome: str | None) -> None:
    slack, wire = messenger(auth_test=error)
    answer = await slack.find_card("C1", "k", since=0)
    wanted: Any = NotPosted("Slack answered 200 fatal_error")
    assert answer.code == outcome if isinstance(answer, PostRefused) else answer == wanted
    assert wire.sent == [("auth_test", {})]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"ts": "1.2"}, Posted(MessageRef("C1", "1.2"))),
        ({"ts": 1.2}, PostInDoubt("Slack's answer has no timestamp of the message")),
        ({}, PostInDoubt("Slack's answer has no timestamp of the message")),
        ("ratelimited", NotPosted("Slack asks for fewer requests", 30.0)),
    ],
)
async def test_a_post_is_where_slack_says_it_is(view: CardView, answer: Any, outcome: Any) -> None:
    slack, _ = messenger(chat_postMessage=answer)
    assert await slack.post_card("C1", view, "k") == outcome


def clicker(user: str = "U1", team: str = "T1", enterprise: str = "") -> Clicker:
    return Clicker(team, user, frozenset({team}), frozenset({enterprise} - {""}))


def account(user: str = "U1", **more: Any) -> dict[str, Any]:
    return {"user": {"id": user, "team_id": "T1", **more}}


MARKS = ("deleted", "is_bot", "is_workflow_bot", "is_connector_bot", "is_restricted", "is_ultra_restricted")
ACCOUNTS: list[tuple[Any, Any, bool]] = [
    (account(), None, True),
    *((account(**{mark: True}), NO_MEMBER, True) for mark in (*MARKS, "is_stranger")),
    *((account(**{mark: value}), None, True) for mark in MARKS for value in (False, None)),
    (account(is_restricted="maybe"), NO_MEMBER, True),
    (account(team_id="T2"), FOREIGN, True),
    (account(team_id="T2", enterprise_user={"enterprise_id": "E1", "teams": ["T1"]}), None, True),
    (account(team_id="T2", enterprise_user={"enterprise_id": "E1", "teams": ["T2"]}), FOREIGN, True),
    (account(team_id="T2", enterprise_user={"enterprise_id": "E2", "teams": ["T1"]}), FOREIGN, True),
    (account("U2"), AWAY, False),
    ({"user": None}, AWAY, False),
    *((error, NO_MEMBER, True) for error in ("user_not_found", "user_not_visible", "users_not_found")),
    *((error, AWAY, False) for error in ("ratelimited", "internal_error", "missing_scope")),
]


@pytest.mark.parametrize(("answer", "code", "kept"), ACCOUNTS)
async def test_what_slack_says_of_an_account_is_kept_for_a_moment(answer: Any, code: Any, kept: bool) -> None:
    now = [0.0]
    wire: Any = Wire(auth_test=AUTH, users_info=answer)
    workspace = SlackWorkspace(wire, now=lambda: now[0])
    for at, asked in ((0.0, 1), (KNOWN_SECONDS - 0.1, 1 if kept else 2), (KNOWN_SECONDS, 2 if kept else 3)):
        now[0] = at
        assert await workspace.stranger(clicker()) is code
        assert wire.sent == [("auth_test", {}), *[("users_info", {"user": "U1"})] * asked]


@pytest.mark.parametrize(
    ("answer", "home"),
    [
        (AUTH, Home("T1", "E1", org_wide=False)),
        ({"team_id": "T1"}, Home("T1", "", org_wide=False)),
        ({"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": True}, Home("T1", "E1", org_wide=True)),
        ({"enterprise_id": "E1", "is_enterprise_install": True}, Home("", "E1", org_wide=True)),
        ({"enterprise_id": "E1"}, None),
        ({"team_id": "T1", "is_enterprise_install": True}, None),
        ({"team_id": 7}, None),
        ("invalid_auth", None),
    ],
)
async def test_where_the_app_is_at_home(answer: Any, home: Home | None) -> None:
    wire: Any = Wire(auth_test=answer, users_info=account())
    workspace = SlackWorkspace(wire)
    assert await workspace.home() == await workspace.home() == home
    assert len(wire.sent) == (1 if home else 2), "only what is known is kept"
    if home is None:
        assert await workspace.stranger(clicker()) is AWAY
    else:
        assert home.id == ("E1" if home.org_wide else "T1")


WANTED = [
    GroupQuorum("S1", 1, GroupSource.SLACK_GROUP),
    GroupQuorum("S2", 1, GroupSource.SLACK_GROUP),
    GroupQuorum("leads", 1),
]
ONE, TWO = WANTED[0].key, WANTED[1].key
ORG = {"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": True}


@pytest.mark.parametrize(
    ("user", "auth", "groups", "membership", "asked"),
    [
        ("U1", AUTH, [{"users": ["U1"]}, {"users": ["U2"]}], ({ONE}, set()), ["S1", "S2"]),
        ("T1/U1", AUTH, [{"users": ["U1"]}, {"users": ["U1", "U2"]}], ({ONE, TWO}, set()), ["S1", "S2"]),
        ("E1/U1", ORG, [{"users": ["U1"]}, {"users": []}], ({ONE}, set()), ["S1", "S2"]),
        ("T1/U1", ORG, [{"users": ["U1"]}], (set(), set()), []),
        ("T2/U1", AUTH, [{"users": ["U1"]}], (set(), set()), []),
        ("T1/U1", "invalid_auth", [{"users": ["U1"]}], (set(), {ONE, TWO}), []),
        ("U1", AUTH, ["ratelimited", {"users": ["U1"]}], ({TWO}, {ONE}), ["S1", "S2"]),
        ("U1", AUTH, ["no_such_subteam", {"users": [7]}], (set(), {ONE, TWO}), ["S1", "S2"]),
    ],
)
async def test_who_is_in_a_user_group(user: str, auth: Any, groups: Any, membership: Any, asked: list[str]) -> None:
    wire: Any = Wire(auth_test=auth, usergroups_users_list=groups)
    resolved = await SlackUserGroups(wire, SlackWorkspace(wire)).membership(user, WANTED)
    assert resolved == Membership(frozenset(membership[0]), frozenset(membership[1]))
    sent = [arguments for method, arguments in wire.sent if method == "usergroups_users_list"]
    assert sent == [{"usergroup": group, "include_disabled": False} for group in asked]


@pytest.mark.parametrize(
    ("groups", "members"),
    [
        ([{"users": ["U1"]}, {"users": []}], {ONE: frozenset({"U1", "T1/U1"}), TWO: frozenset()}),
        (["no_such_subteam", {"users": ["U1"]}], {TWO: frozenset({"U1", "T1/U1"})}),
        ([{"users": "U1"}, {"users": ["U1"]}], {TWO: frozenset({"U1", "T1/U1"})}),
        (["ratelimited", {"users": ["U1"]}], None),
        ([{"users": ["U1"]}, "internal_error"], None),
    ],
)
async def test_who_the_members_of_user_groups_are(groups: Any, members: Any) -> None:
    wire: Any = Wire(auth_test=AUTH, usergroups_users_list=groups)
    assert await SlackUserGroups(wire, SlackWorkspace(wire)).members(WANTED) == members


async def test_groups_of_an_app_without_a_home_have_accounts_alone() -> None:
    wire: Any = Wire(usergroups_users_list=[{"users": ["U1"]}, {"users": []}])
    groups = SlackUserGroups(wire)
    assert await groups.members(WANTED) == {ONE: frozenset({"U1"}), TWO: frozenset()}
    assert await groups.membership("T1/U1", WANTED) == Membership(frozenset(), frozenset({ONE, TWO}))
