"""Every request to Slack's Web API as it is sent, and every answer as it is taken: without a network, whole."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from slack_bolt.error import BoltUnhandledRequestError
from slack_sdk.errors import SlackApiError

from approvals.content import CardState
from approvals.fields import FormProblem
from approvals.model import CardView, Choice, TaskAnswer, TaskState, TaskView
from approvals.ports import Membership, MessageRef
from approvals.slack import handlers, modals
from approvals.slack.cards import render
from approvals.slack.handlers import Answer
from approvals.slack.messenger import SlackMessenger
from approvals.slack.payloads import Click, Clicker, Submission, TaskClick, TaskSubmission
from approvals.slack.tasks import closed_sentence, form_modal
from approvals.slack.tasks import render as render_task
from approvals.slack.workspace import SENTENCES, Home, SlackUserGroups, SlackWorkspace, StrangerCode
from core.errors import InputError
from core.terms import GroupQuorum, GroupSource
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("U-8")

EXPECTED = Path(__file__).with_name("every_call.json")
ANN = Clicker("T1", "U1", frozenset({"T1"}))
REF = MessageRef("C1", "1.5")


def refuse(code: str, status: int = 200) -> SlackApiError:
    failure: Callable[[str, Any], SlackApiError] = SlackApiError
    return failure("x", SimpleNamespace(status_code=status, data={"ok": False, "error": code}, headers={}))


AWAY, SLOW, REFUSED = TimeoutError(), refuse("ratelimited", 429), refuse("is_archived")


class Web:
    """Slack's client: each method notes what it is asked, and gives the next answer of its list, the last for ever."""

    def __init__(self, **answers: Any) -> None:
        self.retry_handlers: list[Any] = []
        self.asked: list[Any] = []
        self._answers = {name: list(each) if isinstance(each, list) else [each] for name, each in answers.items()}

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def request(**arguments: Any) -> Any:
            self.asked.append([name, arguments])
            left = self._answers[name]
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(data=answer)

        return request


def told(outcome: Any) -> Any:
    return [type(outcome).__name__, to_builtins(outcome)]


def messenger(web: Web) -> SlackMessenger:
    client: Any = web
    return SlackMessenger(client)


async def test_what_is_posted_is_sent_as_it_was(view: CardView, task: TaskView) -> None:
    answer = {"ok": True, "channel": "D9", "ts": "7.5"}
    web = Web(chat_postMessage=answer, chat_update=answer, chat_postEphemeral={"ok": True, "message_ts": "8.5"})
    posting = messenger(web)
    card, message = render(view), render_task(task)
    there = {"unfurl_links": False, "unfurl_media": False}
    metadata = {"event_type": "counterseal_approval", "event_payload": {"key": "k1"}}
    words = {"text": "a &lt;b&gt;", "blocks": [{"type": "section", "text": plain("a <b>")}]}
    for outcome, asked in (
        (
            await posting.post_card("C1", view, "k1"),
            [
                "chat_postMessage",
                {"channel": "C1", "text": card.text, "blocks": card.blocks, "thread_ts": None, **there}
                | {"metadata": metadata},
            ],
        ),
        (
            await posting.post_task("C1", task, "k1"),
            [
                "chat_postMessage",
                {"channel": "C1", "text": message.text, "blocks": message.blocks, "thread_ts": None, **there}
                | {"metadata": metadata},
            ],
        ),
        (
            await posting.post_thread(REF, "a <b>", "k1"),
            ["chat_postMessage", {"channel": "C1", "thread_ts": "1.5", **words, **there, "metadata": metadata}],
        ),
        (
            await posting.update_card(REF, view),
            ["chat_update", {"channel": "C1", "ts": "1.5", "text": card.text, "blocks": card.blocks}],
        ),
        (
            await posting.update_task(REF, task),
            ["chat_update", {"channel": "C1", "ts": "1.5", "text": message.text, "blocks": message.blocks}],
        ),
    ):
        assert told(outcome) == ["Posted", {"ref": {"channel": "D9", "ts": "7.5"}}]
        assert web.asked.pop(0) == asked
    answered = await posting.post_ephemeral("C1", "U1", "a <b>")
    assert told(answered) == ["Posted", {"ref": {"channel": "C1", "ts": "8.5"}}]
    assert web.asked == [["chat_postEphemeral", {"channel": "C1", "user": "U1", **words}]]


def plain(words: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": words, "emoji": False}


@pytest.mark.parametrize(("many", "text"), [(3000, "x" * 3000), (3001, "A message from Counterseal")])
async def test_long_words_are_whole_in_the_blocks(many: int, text: str) -> None:
    web = Web(chat_postMessage={"ts": "1"})
    await messenger(web).post_thread(REF, "x" * many, "k")
    [[_, asked]] = web.asked
    assert asked["text"] == text
    assert [block["text"]["text"] for block in asked["blocks"]] == ["x" * 2900, "x" * (many - 2900)]


async def test_spaces_around_words_are_ours_and_stay() -> None:
    web = Web(chat_postMessage={"ts": "1"}, chat_postEphemeral={"message_ts": "1"})
    await messenger(web).post_thread(REF, " a & b\u200b ", "k")
    await messenger(web).post_ephemeral("C1", "U1", " a & b\u200b ")
    for _, asked in web.asked:
        assert asked["text"] == " a &amp; b⟨U+200B⟩ "
        assert [block["text"] for block in asked["blocks"]] == [plain(" a & b⟨U+200B⟩ ")]


async def test_answers_to_posts_are_taken_as_they_were(view: CardView) -> None:
    found: dict[str, Any] = {}
    for name, answer in {
        "without a channel": {"ts": "7.5"},
        "with an empty channel": {"ts": "7.5", "channel": ""},
        "without a time": {"channel": "C9"},
        "with a time of another type": {"ts": 7.5},
        "too late": AWAY,
        "throttled": SLOW,
        "refused": REFUSED,
    }.items():
        web = Web(chat_postMessage=answer, chat_update=answer, chat_postEphemeral=answer)
        found[name] = [
            told(await messenger(web).post_card("C1", view, "k")),
            told(await messenger(web).update_card(REF, view)),
            told(await messenger(web).post_ephemeral("C1", "U1", "x")),
        ]
    as_it_was(EXPECTED, found | await searched() | await grouped() | await strangers())


def posted(ts: str, key: Any = "k", user: str = "U_BOT", kind: Any = "counterseal_approval") -> dict[str, Any]:
    return {"ts": ts, "user": user, "metadata": {"event_type": kind, "event_payload": {"key": key}}}


async def searched() -> dict[str, Any]:
    """Search a channel: what is asked, what is taken for ours, and when a search says that nothing is there."""
    me = {"user_id": "U_BOT"}
    others = [
        posted("1", user="U_EVIL"), posted("2", key="other"), posted("3", kind="other"), posted("4", key=5),
        {"ts": "5", "user": "U_BOT"}, {"ts": "6", "user": "U_BOT", "metadata": {}},
    ]  # fmt: skip
    histories: dict[str, list[Any]] = {
        "found": [{"messages": [*others, posted("7"), posted("8")]}],
        "absent": [{"messages": others}],
        "absent of nothing": [{}],
        "on the next page": [
            {"messages": others, "response_metadata": {"next_cursor": "c2"}},
            {"messages": [posted("9")]},
        ],
        "empty cursor": [{"messages": [], "response_metadata": {"next_cursor": ""}}],
        "no metadata of the answer": [{"messages": [], "response_metadata": None}],
        "more without a cursor": [{"messages": [], "has_more": True, "response_metadata": {}}],
        "more with a cursor": [{"has_more": True, "response_metadata": {"next_cursor": "c2"}}, {"messages": []}],
        "too late": [AWAY],
        "throttled": [SLOW],
        "refused": [REFUSED],
        "too late on the next page": [{"response_metadata": {"next_cursor": "c2"}}, AWAY],
    }
    found: dict[str, Any] = {}
    for name, answers in histories.items():
        web = Web(auth_test=me, conversations_history=answers)
        found[f"search: {name}"] = [told(await messenger(web).find_card("C1", "k", since=1000.25)), web.asked]
    page = {"response_metadata": {"next_cursor": "c"}}
    for many in (24, 25):
        web = Web(auth_test=me, conversations_history=[*[page] * many, {"messages": [posted("9")]}])
        found[f"search: {many} pages"] = [told(await messenger(web).find_card("C1", "k", since=0)), len(web.asked)]
    for name, answer in {"too late": AWAY, "throttled": SLOW, "refused": REFUSED}.items():
        web = Web(auth_test=[answer, me, answer], conversations_history={"messages": [posted("9")]})
        searching = messenger(web)
        told_thrice = [told(await searching.find_card("C1", "k", since=0)) for _ in range(3)]
        found[f"search: {name} for itself"] = [told_thrice, [method for method, _ in web.asked]]
    return found


HOMES = {
    "team": Home("T1", "", False),
    "team of an organisation": Home("T1", "E1", False),
    "organisation": Home("T1", "E1", True),
}


def workspace(web: Web, now: Callable[[], float] = lambda: 0.0) -> SlackWorkspace:
    client: Any = web
    return SlackWorkspace(client, now=now)


async def grouped() -> dict[str, Any]:
    """Look up groups of Slack: for one account of here, of elsewhere and of nowhere, and for everybody."""
    slack = [GroupQuorum(name, 1, GroupSource.SLACK_GROUP) for name in ("S1", "S2", "S3")]
    wanted = [GroupQuorum("ours"), *slack]
    lists: dict[str, list[Any]] = {
        "all": [{"users": ["U1", "U2"]}, {"users": ["U2"]}, {"users": []}],
        "one too late": [{"users": ["U1"]}, AWAY, {"users": ["U1"]}],
        "one throttled": [{"users": ["U1"]}, SLOW, {"users": ["U1"]}],
        "one refused": [{"users": ["U1"]}, refuse("no_such_subteam"), {"users": ["U1"]}],
        "one without users": [{"users": ["U1"]}, {}, {"users": ["U1"]}],
        "one of numbers": [{"users": ["U1"]}, {"users": ["U1", 5]}, {"users": ["U1"]}],
    }
    homes: dict[str, Any] = {
        "known": {"team_id": "T1"},
        "organisation": {"team_id": "T1", "enterprise_id": "E1"},
        "away": AWAY,
    }
    homes["organisation"]["is_enterprise_install"] = True
    found: dict[str, Any] = {}
    for name, answers in lists.items():
        for where, home in homes.items():
            for user in ("U1", "T1/U1", "E1/U1", "T2/U1"):
                web = Web(usergroups_users_list=answers, auth_test=home)
                client: Any = web
                groups = SlackUserGroups(client, workspace(web))
                found[f"{user} of groups, {name}, home {where}"] = member(await groups.membership(user, wanted))
            web = Web(usergroups_users_list=answers, auth_test=home)
            client = web
            everybody = await SlackUserGroups(client, workspace(web)).members(wanted)
            found[f"groups: {name}, home {where}"] = everybody and {
                key: sorted(each) for key, each in everybody.items()
            }
            found[f"groups: {name}, home {where}, asked"] = web.asked
        web = Web(usergroups_users_list=answers)
        client = web
        found[f"groups: {name}, no home"] = [
            member(await SlackUserGroups(client).membership(user, wanted)) for user in ("U1", "T1/U1")
        ]
    return found


def member(one: Membership) -> Any:
    return [sorted(one.groups), sorted(one.unresolvable)]


async def strangers() -> dict[str, Any]:
    """Ask who an account is: what Slack may say, and what each of it means."""
    found: dict[str, Any] = {}
    here = {"id": "U1", "team_id": "T1"}
    for name, about in {
        "member": {"user": here},
        "of another team": {"user": {**here, "team_id": "T2"}},
        "of no team": {"user": {"id": "U1"}},
        "another account": {"user": {**here, "id": "U2"}},
        "nobody": {},
        "an account of text": {"user": "U1"},
        "unknown": refuse("user_not_found"),
        "unseen": refuse("user_not_visible"),
        "unknown of several": refuse("users_not_found"),
        "refused": REFUSED,
        "throttled": SLOW,
        "too late": AWAY,
        **{
            f"{mark} = {value!r}": {"user": {**here, mark: value}}
            for mark in (
                "deleted", "is_bot", "is_workflow_bot", "is_connector_bot", "is_restricted", "is_ultra_restricted",
                "is_stranger", "is_admin",
            )
            for value in (True, False, None, 0, "no")
        },
    }.items():  # fmt: skip
        web = Web(auth_test={"team_id": "T1"}, users_info=[about, {"user": here}])
        asking = workspace(web)
        found[f"account: {name}"] = [await asking.stranger(ANN), await asking.stranger(ANN), web.asked]
    for name, answer in {
        "team": {"team_id": "T1"},
        "enterprise": {"team_id": "T1", "enterprise_id": "E1"},
        "organisation": {"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": True},
        "organisation by a word": {"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": "true"},
        "organisation without an id": {"team_id": "T1", "is_enterprise_install": True},
        "no team": {"enterprise_id": "E1"},
        "empty team": {"team_id": ""},
        "null team": {"team_id": None},
        "team of a number": {"team_id": 5},
        "enterprise of a number": {"team_id": "T1", "enterprise_id": 5},
        "too late": AWAY,
        "refused": REFUSED,
    }.items():
        web = Web(auth_test=[answer, {"team_id": "T9"}])
        asking = workspace(web)
        homes = [await asking.home() for _ in range(3)]
        found[f"home: {name}"] = [[one and [to_builtins(one), one.id] for one in homes], len(web.asked)]
    return found


def test_a_home_knows_its_own() -> None:
    claims = [
        Clicker("T1", "U1", frozenset(teams), frozenset(enterprises))
        for teams in ((), ("T1",), ("T2",), ("T1", "T2"))
        for enterprises in ((), ("E1",), ("E2",), ("E1", "E2"))
    ]
    accounts: list[dict[str, Any]] = [
        {}, {"team_id": "T1"}, {"team_id": "T2"},
        *({"team_id": team, "enterprise_user": of}
          for team in ("T1", "T2")
           for of in (None, "E1", {}, {"enterprise_id": ""}, {"enterprise_id": "E1"},
                     {"enterprise_id": "E2", "teams": ["T1"]},
                     {"enterprise_id": "", "teams": ["T1"]},
                     {"enterprise_id": "E1", "teams": ["T1"]}, {"enterprise_id": "E1", "teams": ["T2"]},
                     {"enterprise_id": "E1", "teams": "T1"})),
    ]  # fmt: skip
    found = {
        name: [[home.claims(one) for one in claims], [home.holds(one) for one in accounts], home.id]
        for name, home in HOMES.items()
    }
    as_it_was(EXPECTED.with_name("every_home.json"), found)


@pytest.mark.parametrize(("seconds", "asked"), [(29.9, 1), (30.0, 2), (31.0, 2)])
async def test_an_answer_about_an_account_is_kept_for_half_a_minute(seconds: float, asked: int) -> None:
    clock = [0.0]
    web = Web(auth_test={"team_id": "T1"}, users_info={"user": {"id": "U1", "team_id": "T1"}})
    asking = workspace(web, lambda: clock[0])
    for clock[0] in (0.0, seconds):
        assert await asking.stranger(ANN) is None
    assert [name for name, _ in web.asked] == ["auth_test"] + ["users_info"] * asked


async def test_an_answer_that_is_asked_for_anew_is_kept_from_then_on() -> None:
    clock, web = [0.0], Web(auth_test={"team_id": "T1"}, users_info={"user": {"id": "U1", "team_id": "T1"}})
    asking = workspace(web, lambda: clock[0])
    asked = []
    for clock[0] in (0.0, 29.0, 31.0, 40.0, 60.0, 62.0):
        assert await asking.stranger(ANN) is None
        asked.append(len(web.asked) - 1)
    assert asked == [1, 1, 2, 2, 2, 3]


async def test_a_thousand_accounts_are_kept_and_the_oldest_goes() -> None:
    web = Web(auth_test={"team_id": "T1"}, users_info=refuse("user_not_found"))
    asking = workspace(web)
    accounts = [replace(ANN, user=f"U{number}") for number in range(1001)]
    for one in (*accounts[:1000], accounts[0]):
        assert await asking.stranger(one) is StrangerCode.NO_MEMBER
    assert len(web.asked) == 1001
    await asking.stranger(accounts[1000])
    await asking.stranger(accounts[1])
    assert len(web.asked) == 1002
    await asking.stranger(accounts[0])
    assert [each["user"] for _, each in web.asked[-2:]] == ["U1000", "U0"]


async def test_an_account_that_is_looked_up_again_is_the_newest() -> None:
    clock = [0.0]
    web = Web(auth_test={"team_id": "T1"}, users_info=refuse("user_not_found"))
    asking = workspace(web, lambda: clock[0])
    for number in range(1000):
        await asking.stranger(replace(ANN, user=f"U{number}"))
    for clock[0], user in ((40.0, "U0"), (41.0, "U1000"), (42.0, "U0")):
        await asking.stranger(replace(ANN, user=user))
    assert [each["user"] for _, each in web.asked[-2:]] == ["U0", "U1000"]


async def test_whoever_claims_to_be_elsewhere_is_not_looked_up() -> None:
    web = Web(auth_test={"team_id": "T1"}, users_info={"user": {"id": "U1", "team_id": "T1"}})
    assert await workspace(web).stranger(replace(ANN, teams=frozenset({"T2"}))) is StrangerCode.FOREIGN
    assert [name for name, _ in web.asked] == ["auth_test"]
    assert await workspace(Web(auth_test=AWAY)).stranger(ANN) is StrangerCode.UNAVAILABLE
    assert set(SENTENCES) == set(StrangerCode) - {StrangerCode.UNLINKED}


# -- listeners


class Desk:
    """Both services: notes each call, and gives the answers that it was made with."""

    def __init__(self, shown: Any, answer: Any = None) -> None:
        self.shown, self.answer = shown, answer
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def called(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            return self.shown if name in ("review", "task") else self.answer

        return called


def click_of(view: CardView, choice: Choice | None) -> Click:
    return Click(choice, view.approval_id, "nonce-9", ANN, "C1", "trigger")


@pytest.mark.parametrize("choice", [*Choice, None])
@pytest.mark.parametrize("opens", [True, False])
async def test_a_click_is_voted_or_opens_its_modal(view: CardView, choice: Choice | None, opens: bool) -> None:
    desk, web = Desk(replace(view, state=CardState.APPLIED)), Web(views_open={"ok": True} if opens else AWAY)
    click = click_of(view, choice)
    client: Any = web
    await handlers._click(desk, client, click)
    if choice is Choice.APPROVE:
        assert (desk.calls, web.asked) == ([("vote", click)], [])
        return
    modal = modals.review(desk.shown) if choice is None else modals.reason(view.approval_id, "nonce-9", choice)
    assert web.asked == [["views_open", {"trigger_id": "trigger", "view": modal}]]
    late = "Slack did not open the window in time, so nothing was counted. Please click again."
    reviewed = [("review", click)] if choice is None else []
    assert desk.calls == [*reviewed, *([] if opens else [("note", click, late)])]


async def test_who_may_not_review_is_told_so(view: CardView) -> None:
    desk, web = Desk(Answer(False, "Ask the leads.")), Web(views_open={"ok": True})
    client: Any = web
    await handlers._click(desk, client, click_of(view, None))
    assert web.asked == [["views_open", {"trigger_id": "trigger", "view": modals.answer("Ask the leads.")}]]


async def test_a_submission_is_answered_by_a_page_a_fault_or_a_sentence(view: CardView) -> None:
    asked = Submission(view.approval_id, "n", ANN, None, "", 4)
    long = replace(view, content=replace(view.content, summary="é" * 15_000))
    update = {"response_action": "update"}
    for page in (0, 1):
        desk = Desk(long)
        given = replace(asked, page=page)
        assert await handlers._submission(desk, given) == update | {"view": modals.review(long, page + 1)}
        assert desk.calls == [("review", given)]
    assert modals.review(long, 1) != modals.review(long, 2)
    refused = Desk(Answer(True, "Ask the leads."))
    assert await handlers._submission(refused, asked) == update | {"view": modals.answer("Ask the leads.")}
    decided = replace(asked, choice=Choice.REJECT, reason="no")
    for counted in (True, False):
        desk = Desk(None, Answer(counted, "Said."))
        assert await handlers._submission(desk, decided) == update | {"view": modals.answer("Said.")}
        assert desk.calls == [("submit", decided)]
    for counted in (True, False):
        faulty = Desk(None, Answer(counted, "Give a reason.", about_reason=True))
        for reason in ("no", ""):
            assert await handlers._submission(faulty, replace(decided, reason=reason)) == {
                "response_action": "errors",
                "errors": {"reason": "Give a reason."},
            }


@pytest.mark.parametrize("state", TaskState)
@pytest.mark.parametrize("opens", [True, False])
async def test_a_task_opens_its_form_or_says_that_it_is_over(task: TaskView, state: TaskState, opens: bool) -> None:
    one = replace(task, state=state, completed_by="Bob")
    click = TaskClick(task.task_id, ANN, "C1", "trigger")
    desk, web = Desk(one), Web(views_open={"ok": True} if opens else REFUSED)
    client: Any = web
    await handlers._open_task(desk, client, click)
    modal = form_modal(one) if state is TaskState.OPEN else modals.answer(closed_sentence(one))
    assert web.asked == [["views_open", {"trigger_id": "trigger", "view": modal}]]
    late = "Slack did not open the window in time, so nothing was counted. Please click again."
    assert desk.calls == [("task", click), *([] if opens else [("note_task", click, late)])]


async def test_who_may_not_see_a_task_is_told_so(task: TaskView) -> None:
    update = {"response_action": "update", "view": modals.answer("Ask kyc.")}
    desk, web = Desk(Answer(False, "Ask kyc.")), Web(views_open={"ok": True})
    client: Any = web
    await handlers._open_task(desk, client, TaskClick(task.task_id, ANN, "C1", "trigger"))
    assert web.asked == [["views_open", {"trigger_id": "trigger", "view": modals.answer("Ask kyc.")}]]
    sent = TaskSubmission(task.task_id, ANN, {})
    assert await handlers._complete_task(desk, sent) == update
    assert desk.calls[1:] == [("task", sent)]


async def test_a_form_is_completed_by_its_values_or_its_faults_are_shown(task: TaskView) -> None:
    sent = TaskSubmission(task.task_id, ANN, {"owner": {"owner": {"value": "Bo"}}, "x": {}})
    fault = (FormProblem(("risk",), "It is missing.", "Fill it in."),)
    said = {"response_action": "update", "view": modals.answer("Said.")}
    for answer, expected in (
        (TaskAnswer(True, "recorded", "Said."), said),
        (TaskAnswer(True, "recorded", "Said.", fault), said),
        (TaskAnswer(False, "not_allowed", "Said."), said),
        (
            TaskAnswer(False, "form", "Said.", fault),
            {"response_action": "errors", "errors": {"risk": "It is missing. Fill it in."}},
        ),
    ):
        desk = Desk(task, answer)
        assert await handlers._complete_task(desk, sent) == expected
        assert desk.calls == [("task", sent), ("complete", sent, {"owner": "Bo"})]


async def test_a_failure_is_answered_by_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    unknown: Callable[..., BoltUnhandledRequestError] = BoltUnhandledRequestError
    nothing: Any = SimpleNamespace(body={})
    found = []
    for error in (
        InputError("is wrong", where="x"),
        unknown(request=nothing, current_response=None),
        OSError("secret"),
    ):
        answer = await handlers._failed(error)
        headers = {name: list(value) for name, value in answer.headers.items() if name != "content-type"}
        found.append([answer.status, answer.body, headers])
    assert found == [
        [400, '{"error": "malformed", "detail": "x: is wrong"}', {}],
        [404, '{"error": "unhandled"}', {}],
        [503, '{"error": "unavailable"}', {"retry-after": ["1"]}],
    ]
    assert [record.message for record in caplog.records] == ["a Slack interaction failed and was not acknowledged"]


async def test_the_failure_itself_is_logged_and_not_what_led_to_it(caplog: pytest.LogCaptureFixture) -> None:
    error = OSError("the database is away")
    error.__cause__ = ValueError("first")
    await handlers._failed(error)
    [record] = caplog.records
    assert record.exc_info is not None
    assert (record.exc_info[1], record.levelname) == (error, "ERROR")


async def test_an_operator_reads_why_clicks_are_refused_or_from_whom_they_are_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    client: Any = Web(views_open=AWAY)
    assert not await handlers._opened(client, "t", {})
    web = Web(auth_test=[AWAY, {}, {"team_id": "T1"}], users_info=SLOW)
    asking = workspace(web)
    for _ in range(4):
        await asking.home()
    await asking.stranger(ANN)
    refused = "Slack does not say where the app is installed, so clicks are refused: "
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "a modal could not be opened: no answer from Slack: TimeoutError"),
        ("WARNING", f"{refused}no answer from Slack: TimeoutError"),
        ("WARNING", f"{refused}the answer names no team"),
        ("INFO", "accepting clicks of members of T1"),
        (
            "WARNING",
            "Slack cannot be asked about an account, so its clicks are refused: Slack asks for fewer requests",
        ),
    ]


ORGANISATION = {"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": True}


@pytest.mark.parametrize(
    ("home", "about", "code"),
    [
        ({"team_id": "T1"}, {"team_id": "T1"}, None),
        ({"team_id": "T1"}, {"team_id": "T2"}, StrangerCode.FOREIGN),
        (ORGANISATION, {"team_id": "T1"}, StrangerCode.FOREIGN),
        (ORGANISATION, {"enterprise_user": {"enterprise_id": "E2", "teams": ["T1"]}}, StrangerCode.FOREIGN),
        (ORGANISATION, {"team_id": "T2", "enterprise_user": {"enterprise_id": "E1"}}, None),
        (ORGANISATION, {"deleted": True, "enterprise_user": {"enterprise_id": "E1"}}, StrangerCode.NO_MEMBER),
    ],
)
async def test_what_slack_says_of_an_account_outweighs_what_a_payload_claims(
    home: dict[str, Any], about: dict[str, Any], code: StrangerCode | None
) -> None:
    """The payload claims to come from here; whoever Slack does not call one of ours is a stranger all the same."""
    ours = frozenset({"E1"}) if home is ORGANISATION else frozenset[str]()
    web = Web(auth_test=home, users_info={"user": {"id": "U1", **about}})
    assert await workspace(web).stranger(replace(ANN, enterprises=ours)) == code


async def test_nothing_that_is_posted_unfolds_the_pages_behind_its_links(view: CardView) -> None:
    """Nor does what does not show everything."""
    web = Web(chat_postMessage={"ts": "1"})
    hidden = replace(view, content=replace(view.content, sensitive=("work_notes",)))
    assert not render(hidden).complete
    await messenger(web).post_card("C1", hidden, "k")
    await messenger(web).post_thread(REF, "see https://a.example", "k")
    assert [(asked["unfurl_links"], asked["unfurl_media"]) for _, asked in web.asked] == [(False, False)] * 2


def test_an_answer_is_shown_with_its_own_spaces() -> None:
    [block] = modals.answer(" Ask <@U1>\u200b ")["blocks"]
    assert block == {"type": "section", "text": plain(" Ask <@U1>⟨U+200B⟩ ")}
