"""A click counts only from the question's own message, or from a window opened for this person and question."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from typing import Any

import httpx
import pytest

from app.settings import Settings
from core.errors import DefinitionError
from evidence.chain import Actor
from runtime.requests import publishing
from sandbox.slack import SlackConfig
from sandbox.world import SandboxConfig, sandbox_world

CARDS, LUNCH = "C0OPS", "C0INC"
PEOPLE = """
directory: tests
people:
  - {id: ana, name: Ana, slack: U0ANA}
  - {id: ben, name: Ben, slack: U0BEN}
  - {id: raj, name: Raj, slack: U0REQ}
groups: {leads: [ana, ben]}
"""
OPEN = """
workflow: open
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: danger, do: probe.danger.apply, with: {name: "${{ trigger.number }}"}}
"""
TASK = """
workflow: asked
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: fill, task: {title: Fill this in, assign: {group: leads},
      form: {type: object, required: [x], properties: {x: {type: string}}}}}
"""


class Place:
    """An installation whose cards go to the stand-in for Slack, which calls it back."""

    def __init__(self, slack: Any, installation: Any) -> None:
        self.slack, self.installation = slack, installation

    @property
    def last(self) -> Any:
        """The last message in the channel of cards."""
        return [one for one in self.slack.state.messages(CARDS) if not one.ephemeral_for][-1]

    async def asked(self, workflow: str = "open", number: str = "INC1") -> Any:
        """A question, or a task, whose message stands in the channel."""
        run = await self.installation.parked(workflow, number)
        books = self.installation.books
        return await (books.wait(run=run) if workflow == "asked" else books.approval(run=run))

    async def post(self, channel: str, blocks: list[Any]) -> str:
        """Post as the bot does, for whoever holds its token."""
        async with httpx.AsyncClient(base_url=self.slack.url, trust_env=False) as client:
            bearer = {"Authorization": "Bearer xoxb-test"}
            body = {"channel": channel, "text": "Team lunch on Friday?", "blocks": blocks}
            answer = (await client.post("/api/chat.postMessage", json=body, headers=bearer)).json()
        assert answer["ok"], answer
        return str(answer["ts"])

    async def told(self, user: str) -> list[str]:
        """The notes that only this person has got, after everything was delivered."""
        await self.installation.work()
        every = [*self.slack.state.channels[CARDS].messages, *self.slack.state.channels[LUNCH].messages]
        return [one.text for one in every if one.ephemeral_for == user]

    async def window(self, action: str, user: str = "U0ANA") -> Any:
        """The window that a click on the question's own message opens."""
        assert (await self.slack.people.click(CARDS, self.last.ts, action, user)).ok
        view = self.slack.state.top_view(user)
        assert view is not None
        assert view.body["submit"], view.body
        return view

    def words(self, answer: httpx.Response) -> str:
        """The words of the window after a submission."""
        assert answer.status_code == 200, answer.text
        return json.dumps(answer.json()["view"]["blocks"], ensure_ascii=False)


@pytest.fixture
async def place(settings: Settings, serve: Any) -> AsyncIterator[Place]:
    assert settings.slack_signing_secret is not None
    secret = settings.slack_signing_secret.get_secret_value()
    config = SlackConfig(bot_token="xoxb-test", signing_secret=secret, ack_seconds=60.0)  # however busy the machine is
    async with sandbox_world(SandboxConfig(slack=config)) as world:
        changes = {"slack_api_url": f"{world.slack.url}/api/", "slack_channel": CARDS}
        installation = await serve(settings.model_copy(update=changes))
        world.slack.people.url = f"{installation.url}/slack/events"
        await installation.publish()
        faces = installation.app.faces
        async with faces.database.transaction("default") as connection:
            await publishing.publish_directory(connection, "default", PEOPLE, "people.yaml", Actor("test", "tester"))
        for text in (OPEN, TASK):
            await installation.add(text)
        for channel in (CARDS, LUNCH):
            world.slack.state.channels[channel].members.update({"U0ANA", "U0BEN", "U0REQ"})
        yield Place(world.slack, installation)


def lunch(blocks: list[Any], action: str) -> list[Any]:
    """Another question above the button of a card, whose id and nonce every member of the channel can read."""
    (buttons,) = [block for block in blocks if block["type"] == "actions"]
    value, words = buttons["elements"][0]["value"], {"type": "plain_text", "text": "Count me in"}
    element = {"type": "button", "action_id": action, "value": value, "text": words}
    question = {"type": "section", "text": {"type": "mrkdwn", "text": "Team lunch on Friday?"}}
    return [question, {"type": "actions", "elements": [element]}]


@pytest.mark.parametrize("channel", [CARDS, LUNCH])
@pytest.mark.parametrize("action", ["counterseal.approve", "counterseal.reject", "counterseal.review"])
@pytest.mark.req("Q-3")
async def test_a_click_on_another_message_of_the_bot_does_not_count(place: Place, channel: str, action: str) -> None:
    question = await place.asked()
    ts = await place.post(channel, lunch(place.last.blocks, action))
    assert (await place.slack.people.click(channel, ts, action, "U0ANA")).ok
    (told,) = await place.told("U0ANA")
    assert "not the card that Counterseal has posted. Nothing was counted." in told
    assert place.slack.state.top_view("U0ANA") is None, "no window is opened from a false card"
    assert (await place.installation.books.approval(id=question.id)).open
    assert await place.installation.books.votes(approval=question.id) == []
    (refused,) = await place.installation.tenant_events("approval.vote_refused")
    assert (refused["data"]["code"], refused["data"]["approval"]) == ("false_card", str(question.id))
    # The card itself still decides.
    assert (await place.slack.people.click(CARDS, question.message_ts, "counterseal.approve", "U0ANA")).ok
    assert (await place.installation.books.approval(id=question.id)).status == "approved"


async def test_a_click_on_a_false_task_opens_no_form(place: Place) -> None:
    task = await place.asked("asked")
    ts = await place.post(LUNCH, lunch(place.last.blocks, "counterseal.task_open"))
    assert (await place.slack.people.click(LUNCH, ts, "counterseal.task_open", "U0ANA")).ok
    (told,) = await place.told("U0ANA")
    assert "not the message of this task" in told
    assert place.slack.state.top_view("U0ANA") is None
    (refused,) = await place.installation.tenant_events("task.refused")
    assert (refused["data"]["code"], refused["data"]["task"]) == ("false_card", str(task.id))


CONTAINERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "none": lambda own: None,
    "empty": lambda own: {},
    "no time": lambda own: {name: value for name, value in own.items() if name != "message_ts"},
    "no channel": lambda own: {name: value for name, value in own.items() if name != "channel_id"},
    "a window": lambda own: {**own, "type": "view", "view_id": "V1"},
    "an attachment": lambda own: {**own, "type": "message_attachment"},
    "a message for one": lambda own: {**own, "is_ephemeral": True},
    "another time": lambda own: {**own, "message_ts": own["message_ts"][:-1] + "x"},
    "a channel in another case": lambda own: {**own, "channel_id": own["channel_id"].lower()},
}


@pytest.mark.parametrize("name", CONTAINERS)
async def test_a_place_that_is_not_the_cards_own_proves_nothing(place: Place, name: str) -> None:
    question = await place.asked()
    own = {"type": "message", "channel_id": CARDS, "message_ts": question.message_ts}
    click = place.installation.click(question.id, question.nonce, "U0ANA")
    assert (
        await place.installation.slack({**click, "container": CONTAINERS[name](own)}, honest=False)
    ).status_code in (
        200,
        400,
    )
    assert await place.installation.books.votes(approval=question.id) == []
    assert (await place.installation.slack({**click, "container": own}, honest=False)).status_code == 200
    assert len(await place.installation.books.votes(approval=question.id)) == 1


async def test_a_card_whose_place_is_not_recorded_yet_says_so(place: Place) -> None:
    run = await place.installation.start("open")
    await place.installation.app.worker().work_off()
    question = await place.installation.books.approval(run=run)
    click = place.installation.click(question.id, question.nonce, "U0ANA")
    assert (await place.installation.slack(click, honest=False)).status_code == 200
    (note,) = await place.installation.books.commands(kind="note")
    assert "Click again" in note.payload["text"]
    assert await place.installation.books.votes(approval=question.id) == []


def submitted(view: Any, user: str, values: dict[str, Any]) -> dict[str, Any]:
    """The payload of a submission, as Slack sends it."""
    body = {name: view.body[name] for name in ("id", "type", "callback_id", "private_metadata")}
    entered = {name: {name: {"type": "x", **value}} for name, value in values.items()}
    who = {"user": {"id": user, "team_id": "T0DEMO"}, "team": {"id": "T0DEMO"}}
    return {"type": "view_submission", **who, "view": {**body, "state": {"values": entered}}}


def altered(**members: Any) -> Callable[[dict[str, Any]], None]:
    def change(payload: dict[str, Any]) -> None:
        metadata = json.loads(payload["view"]["private_metadata"])
        metadata.update(members)
        kept = {name: value for name, value in metadata.items() if value is not None}
        payload["view"]["private_metadata"] = json.dumps(kept)

    return change


def by(user: str) -> Callable[[dict[str, Any]], None]:
    def change(payload: dict[str, Any]) -> None:
        payload["user"]["id"] = user

    return change


def as_other_window(payload: dict[str, Any]) -> None:
    """The metadata of one kind of window under the name of another."""
    name = payload["view"]["callback_id"]
    payload["view"]["callback_id"] = "counterseal.review" if name == "counterseal.reason" else "counterseal.reason"
    altered(c="approve", l=True)(payload)


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "no mark": altered(m=None),
    "an empty mark": altered(m=""),
    "a mark of another type": altered(m=7),
    "another mark": altered(m="0" * 64),
    "a mark that is no ASCII": altered(m="é" * 32),
    "another choice": altered(c="approve"),
    "another digest": altered(d="0" * 64),
    "no digest": altered(d=None),
    "another nonce": altered(n="other"),
    "another page": altered(p=7),
    "not the last page": altered(l=False),
    "one member more": altered(z=1),
    "another member of the group": by("U0BEN"),
    "another window": as_other_window,
}
DECIDE = {
    "counterseal.reject": {"reason": {"value": "No."}},
    "counterseal.review": {"choice": {"selected_option": {"value": "reject"}}, "reason": {"value": "No."}},
}


@pytest.mark.parametrize("action", DECIDE)
async def test_only_the_window_that_was_opened_for_this_person_decides(place: Place, action: str) -> None:
    """Every other submission is refused, and its window says why; the true one still counts afterwards."""
    question = await place.asked("asking" if action == "counterseal.review" else "open")
    view = await place.window(action)
    true = submitted(view, "U0ANA", DECIDE[action])
    for name, forge in FORGED.items():
        payload = deepcopy(true)
        forge(payload)
        if payload == true:
            continue
        answer = await place.installation.slack(payload, honest=False)
        if answer.status_code != 400:  # entries that do not belong to such a window: Slack says that it did not work
            assert "not opened" in place.words(answer), (name, answer.text)
        assert await place.installation.books.votes(approval=question.id) == [], name
    codes = {one["data"]["code"] for one in await place.installation.tenant_events("approval.vote_refused")}
    assert codes == {"false_window"}
    assert "is counted" in place.words(await place.installation.slack(true, honest=False))
    assert (await place.installation.books.approval(id=question.id)).status == "rejected"


async def test_a_window_of_one_question_does_not_decide_another(place: Place) -> None:
    first = await place.asked(number="INC1")
    view = await place.window("counterseal.reject")
    other = await place.asked(number="INC2")
    payload = submitted(view, "U0ANA", DECIDE["counterseal.reject"])
    altered(a=str(other.id), n=other.nonce)(payload)
    assert "not opened" in place.words(await place.installation.slack(payload, honest=False))
    assert [one.status for one in (first, other)] == ["requested", "requested"]
    assert await place.installation.books.votes(approval=other.id) == []


async def test_a_form_is_sent_only_from_the_window_that_was_opened_for_this_person(place: Place) -> None:
    task = await place.asked("asked")
    view = await place.window("counterseal.task_open")
    true = submitted(view, "U0ANA", {"x": {"value": "y"}})
    other = await place.asked("asked", "INC2")
    forgeries = {name: FORGED[name] for name in ("no mark", "another mark", "another digest", "no digest")}
    for forge in (*forgeries.values(), by("U0BEN"), altered(t=str(other.id))):
        payload = deepcopy(true)
        forge(payload)
        assert "not opened" in place.words(await place.installation.slack(payload, honest=False))
    for one in (task, other):
        assert (await place.installation.books.wait(id=one.id)).open
    assert "Recorded" in place.words(await place.installation.slack(true, honest=False))


FORGING = """
workflow: lunch
version: 1
steps:
  - {id: say, do: slack.message.post, with: {channel: C0OPS, text: Lunch?, blocks: %s}}
"""
PRESSED = """[{type: actions, elements: [{type: button, action_id: counterseal.approve, value: "%s",
  text: {type: plain_text, text: Count me in}}]}]"""


async def test_no_tenant_posts_a_button_through_the_bot_that_it_shares(place: Place) -> None:
    """A button that stands in the workflow is refused when that is published; a rendered one, when it is proposed."""
    question = await place.asked()
    value = json.dumps({"a": str(question.id), "n": question.nonce}).replace('"', '\\"')
    await place.installation.publish("other")
    with pytest.raises(DefinitionError, match=r"with.blocks\[0\] has the type 'actions'"):
        await place.installation.add(FORGING % (PRESSED % value), "other")
    rendered = FORGING % PRESSED.replace('"%s"', '"${{ trigger.number }}"')
    await place.installation.add(rendered, "other")
    before = len(place.slack.state.messages(CARDS))
    run = await place.installation.parked("lunch", json.dumps({"a": str(question.id), "n": question.nonce}), "other")
    assert await place.installation.status(run) == "failed_terminal"
    error = (await place.installation.books.run(run)).error
    assert "input.blocks[0]" in str(error), error
    assert len(place.slack.state.messages(CARDS)) == before
