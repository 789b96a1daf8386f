"""Tasks in Slack: shown in the channel as they stand, filled in in a modal by those to whom they are assigned."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import async_playwright, expect

from app.settings import Settings
from evidence.chain import Actor
from runtime.requests import publishing
from sandbox.faults import Effect, Fault, FaultKind
from sandbox.slack import SlackConfig
from sandbox.slack_state import Message, View
from sandbox.world import SandboxConfig, World, sandbox_world
from tests.support.asking import owning

CHANNEL = "C0OPS"
PEOPLE = """
directory: tests
people:
  - {id: ana, name: Ana, slack: U0ANA}
  - {id: ben, name: Ben, slack: U0BEN}
  - {id: raj, name: Raj, slack: U0REQ}
groups:
  leads: [ana, ben]
"""
ONBOARDING = """
workflow: onboarding
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.sign.output }}
steps:
  - id: sign
    task:
      title: "Confirm the owner of ${{ trigger.number }}"
      description: "Look at the register of companies, then fill this in."
      form:
        type: object
        title: Ultimate beneficial owner
        required: [owner, share, since, contact, kinds, domestic]
        properties:
          owner: {type: string, title: Name of the owner, minLength: 2, description: As in the passport}
          notes: {type: string, title: Notes, x-multiline: true}
          share: {type: number, title: Share in percent, minimum: 0, maximum: 100}
          children: {type: integer, title: Number of children}
          since: {type: string, format: date, title: Owner since}
          contact: {type: string, format: email, title: Contact}
          register: {type: string, format: uri, title: Entry in the register}
          country: {type: string, enum: [AT, DE, FR], title: Country}
          kinds: {type: array, items: {type: string, enum: [person, trust, company]}, title: Kinds, maxItems: 2}
          domestic: {type: boolean, title: Lives here}
      assign: {group: leads}
    timeout: P3D
"""
ENTERED = {
    "owner": "Jürgen Ünal",
    "share": "12.5",
    "since": "2020-02-29",
    "contact": "j.unal@example.com",
    "kinds": ["o0", "o2"],
    "domestic": "true",
}
VALUE = {
    "owner": "Jürgen Ünal",
    "share": 12.5,
    "since": "2020-02-29",
    "contact": "j.unal@example.com",
    "kinds": ["person", "company"],
    "domestic": True,
}


class Workspace:
    """An installation whose cards and tasks go to the stand-in for Slack, which calls it back."""

    def __init__(self, world: World, installation: Any) -> None:
        self.world, self.installation = world, installation
        self.slack = world.slack

    async def asked(self, number: str = "C1") -> UUID:
        run_id: UUID = await self.installation.parked("onboarding", number)
        return run_id

    @property
    def messages(self) -> list[Message]:
        return [message for message in self.slack.state.messages(CHANNEL) if not message.ephemeral_for]

    @property
    def heading(self) -> str:
        (message,) = self.messages
        return str(message.blocks[0]["text"]["text"])

    async def open_form(self, user: str = "U0ANA", *, stale: bool = False) -> View:
        (message,) = self.messages
        outcome = await self.slack.people.click(CHANNEL, message.ts, "counterseal.task_open", user, stale=stale)
        assert outcome.ok, outcome
        view = self.slack.state.top_view(user)
        assert view is not None
        return view

    async def send(self, view: View, values: dict[str, Any], user: str = "U0ANA") -> Any:
        return await self.slack.people.submit_view(view.view_id, user, values)

    def said(self, user: str = "U0ANA") -> str:
        """All that the window in front of the person says."""
        view = self.slack.state.top_view(user)
        assert view is not None
        return json.dumps(view.body["blocks"], ensure_ascii=False)

    async def hurry(self) -> None:
        """Make every message that is to be tried later due now."""
        await self.installation.trouble.retry_messages_now()
        await self.installation.work()


@pytest.fixture
async def workspace(settings: Settings, serve: Any) -> AsyncIterator[Workspace]:
    assert settings.slack_signing_secret is not None
    secret = settings.slack_signing_secret.get_secret_value()
    config = SlackConfig(bot_token="xoxb-test", signing_secret=secret, ack_seconds=60.0)  # however busy the machine is
    async with sandbox_world(SandboxConfig(slack=config)) as world:
        changes = {"slack_api_url": f"{world.slack.url}/api/", "slack_channel": CHANNEL}
        installation = await serve(settings.model_copy(update=changes))
        world.slack.people.url = f"{installation.url}/slack/events"
        await installation.publish()
        faces = installation.app.faces
        async with faces.database.transaction("default") as connection:
            await publishing.publish_directory(connection, "default", PEOPLE, "people.yaml", Actor("test", "tester"))
        await installation.add(ONBOARDING)
        yield Workspace(world, installation)


@pytest.mark.req("X-9", "P-12")
async def test_a_task_is_filled_in_in_slack(workspace: Workspace) -> None:
    run_id = await workspace.asked()
    assert workspace.heading == "Task"
    view = await workspace.open_form()
    assert "Look at the register of companies" in workspace.said()
    asked = [block["block_id"] for block in view.body["blocks"] if block["type"] == "input"]
    assert asked == [
        "owner",
        "notes",
        "share",
        "children",
        "since",
        "contact",
        "register",
        "country",
        "kinds",
        "domestic",
    ]
    assert (await workspace.send(view, ENTERED)).ok
    assert "Recorded. The run goes on." in workspace.said()
    await workspace.installation.work()
    run = await workspace.installation.books.run(run_id)
    assert (run.status, run.result) == ("succeeded", VALUE)
    assert workspace.heading == "Task completed"
    (message,) = workspace.messages
    assert "Ana" in json.dumps(message.blocks)
    assert not any(block["type"] == "actions" for block in message.blocks)
    wait = await workspace.installation.books.wait(run=run_id)
    assert (wait.channel, wait.message_ts, wait.result["by"]) == (CHANNEL, message.ts, "person:ana")


async def test_faults_stand_at_their_fields_and_the_form_stays(workspace: Workspace) -> None:
    run_id = await workspace.asked()
    view = await workspace.open_form()
    outcome = await workspace.send(view, {**ENTERED, "since": "2021-02-29", "children": "3", "register": "https:///"})
    assert set(outcome.errors) == {"since", "register"}
    assert workspace.slack.state.top_view("U0ANA") is view
    assert await workspace.installation.status(run_id) == "waiting"
    assert (await workspace.send(view, {**ENTERED, "children": "3"})).errors == {}
    assert "Recorded" in workspace.said()


@pytest.mark.req("P-12")
async def test_who_may_not_complete_a_task_is_told_so_and_sees_no_form(workspace: Workspace) -> None:
    run_id = await workspace.asked()
    for user, words in (("U0REQ", "members of the group leads"), ("U0CARA", "You are not in the directory")):
        view = await workspace.open_form(user)
        assert words in workspace.said(user)
        assert view.body["submit"] is None
    (refused,) = await workspace.installation.tenant_events("task.refused")
    assert (refused["data"]["code"], refused["actor"]) == ("unlinked", {"kind": "slack_user", "id": "T0DEMO:U0CARA"})
    assert await workspace.installation.status(run_id) == "waiting"


@pytest.mark.req("P-12")
async def test_the_right_is_read_when_the_form_arrives(workspace: Workspace) -> None:
    run_id = await workspace.asked()
    ana, ben = await workspace.open_form("U0ANA"), await workspace.open_form("U0BEN")
    async with owning(workspace.installation.engine) as connection:
        await connection.execute("DELETE FROM group_members WHERE person_id = 'ana'")
        await connection.execute("UPDATE people SET principals = '{}' WHERE person_id = 'ben'")
        await connection.execute("UPDATE tenants SET directory_digest = 'another'")
    assert (await workspace.send(ana, ENTERED)).errors == {}
    assert "You are not in the group leads" in workspace.said()
    assert (await workspace.send(ben, ENTERED, "U0BEN")).errors == {}
    assert "You are not in the directory" in workspace.said("U0BEN")
    codes = [event["data"]["code"] for event in await workspace.installation.tenant_events("task.refused")]
    assert codes == ["not_assigned", "unlinked"]
    assert await workspace.installation.status(run_id) == "waiting"


async def test_two_people_fill_in_one_task_and_one_counts(workspace: Workspace) -> None:
    await workspace.asked()
    ana, ben = await workspace.open_form("U0ANA"), await workspace.open_form("U0BEN")
    assert (await workspace.send(ana, ENTERED)).ok
    assert (await workspace.send(ben, {**ENTERED, "owner": "Another"}, "U0BEN")).ok
    assert "Ana has completed this task already" in workspace.said("U0BEN")
    await workspace.installation.work()
    await workspace.open_form("U0BEN", stale=True)
    assert "was completed by Ana" in workspace.said("U0BEN")


@pytest.mark.parametrize(
    ("ending", "heading", "words"),
    [
        ("expire", "Task expired", "has expired"),
        ("cancel", "Task canceled", "was canceled"),
    ],
)
async def test_a_task_that_is_over_says_so(workspace: Workspace, ending: str, heading: str, words: str) -> None:
    run_id = await workspace.asked()
    installation = workspace.installation
    if ending == "expire":
        await installation.trouble.make_waits_due(run=run_id)
        await installation.app.sweeper().sweep()
    else:
        await _cancel(installation, run_id)
    await installation.work()
    assert workspace.heading == heading
    await workspace.open_form(stale=True)
    assert words in workspace.said()


async def _cancel(installation: Any, run_id: UUID) -> None:
    from app.access import Role

    client = await installation.client(Role.OPERATOR)
    assert (await client.post(f"/v1/runs/{run_id}/cancel", json={})).status_code == 200


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_lost_answer_never_makes_two_messages_of_one_task(workspace: Workspace, effect: Effect) -> None:
    workspace.slack.faults.inject(Fault("chat.postMessage", FaultKind.RESET, effect))
    await workspace.asked()
    assert len(workspace.messages) == (effect is Effect.LANDED)
    await workspace.hurry()
    view = await workspace.open_form()
    assert (await workspace.send(view, ENTERED)).ok
    await workspace.hurry()
    assert workspace.heading == "Task completed"


async def test_a_form_of_another_installation_is_not_known(workspace: Workspace) -> None:
    await workspace.asked()
    view = await workspace.open_form()
    view.body["private_metadata"] = json.dumps({"t": str(UUID(int=7))})
    assert (await workspace.send(view, ENTERED)).ok
    assert "not known here" in workspace.said()
    again = await workspace.open_form()
    again.body["private_metadata"] = "odd"
    refused = await workspace.send(again, ENTERED)
    assert (refused.ok, refused.status) == (False, 400)


@pytest.mark.parametrize("value", ["", "{", "[]", "{}", '{"t": 7}', '{"t": "odd"}', "x" * 3000])
async def test_a_button_that_is_none_of_ours_is_refused(workspace: Workspace, value: str) -> None:
    clicked: dict[str, Any] = workspace.installation.click(UUID(int=7), "n")
    clicked["actions"][0] |= {"action_id": "counterseal.task_open", "value": value}
    answer = await workspace.installation.slack(clicked)
    assert answer.status_code == 400, answer.text
    sent: dict[str, Any] = workspace.installation.submission(UUID(int=7), "n", "approve", "")
    sent["view"] |= {"callback_id": "counterseal.task", "private_metadata": value}
    assert (await workspace.installation.slack(sent)).status_code == 400


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"owner": None},
        {"owner": 7},
        {"owner": {"owner": "text"}},
        {"share": {"share": {"type": "number_input", "value": ["1"]}}},
        {"kinds": {"kinds": {"selected_options": [{"value": "o9"}, 7, None]}}},
        {"domestic": {"domestic": {"selected_option": []}}},
        {"since": {"since": {"selected_date": {"x": 1}}}},
        {"stranger": {"stranger": {"value": "x"}}},
    ],
)
async def test_whatever_a_form_holds_is_answered_at_its_fields(workspace: Workspace, state: dict[str, Any]) -> None:
    run_id = await workspace.asked()
    opened = await workspace.open_form()
    sent: dict[str, Any] = workspace.installation.submission(UUID(int=7), "n", "approve", "", user="U0ANA")
    sent["view"] |= {
        "callback_id": "counterseal.task",
        "private_metadata": opened.body["private_metadata"],
        "state": {"values": state},
    }
    answer = await workspace.installation.slack(sent)
    assert (answer.status_code, answer.json()["response_action"]) == (200, "errors"), answer.text
    assert answer.json()["errors"]
    assert await workspace.installation.status(run_id) == "waiting"


async def test_the_answer_to_a_window_that_did_not_open_comes_in_the_channel(workspace: Workspace) -> None:
    await workspace.asked()
    workspace.slack.faults.inject(Fault("views.open", status=500))
    (message,) = workspace.messages
    assert (await workspace.slack.people.click(CHANNEL, message.ts, "counterseal.task_open", "U0ANA")).ok
    assert workspace.slack.state.top_view("U0ANA") is None
    await workspace.installation.work()
    (note,) = [item for item in workspace.slack.state.messages(CHANNEL) if item.ephemeral_for == "U0ANA"]
    assert "Please click again" in json.dumps(note.blocks)


async def test_without_a_channel_tasks_are_shown_nowhere(installation: Any) -> None:
    await installation.add(ONBOARDING)
    await installation.parked("onboarding", "C1")
    assert (await installation.books.command(kind="task")).status == "dispatched"


@pytest.mark.req("X-9")
async def test_a_person_fills_in_a_task_in_a_browser(workspace: Workspace, chromium_path: str, tmp_path: Path) -> None:
    run_id = await workspace.asked()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium_path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = await browser.new_page(viewport={"width": 1100, "height": 1100})
        failures: list[str] = []
        page.on("pageerror", lambda error: failures.append(str(error)))
        await page.goto(f"{workspace.slack.url}/c/{CHANNEL}?user=U0ANA")
        await page.get_by_role("button", name="Fill in").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Name of the owner").fill("Jürgen Ünal")
        await dialog.get_by_label("Share in percent").fill("a lot")
        await dialog.get_by_label("Owner since").fill("2020-02-29")
        await dialog.get_by_label("Contact").fill("j.unal@example.com")
        await dialog.get_by_label("person", exact=True).check()
        await dialog.get_by_label("company", exact=True).check()
        await dialog.get_by_label("Yes", exact=True).check()
        await dialog.get_by_label("Country").select_option("DE")
        await dialog.get_by_role("button", name="Send").click()
        await expect(dialog.get_by_text("Please enter a valid number.")).to_be_visible()
        await page.screenshot(path=tmp_path / "task-with-a-fault.png")
        await expect(dialog.get_by_label("company", exact=True)).to_be_checked()
        await expect(dialog.get_by_label("Owner since")).to_have_value("2020-02-29")
        await dialog.get_by_label("Share in percent").fill("12.5")
        await dialog.get_by_role("button", name="Send").click()
        await expect(dialog.get_by_text("Recorded. The run goes on.")).to_be_visible()
        await page.screenshot(path=tmp_path / "task-recorded.png")
        await workspace.installation.work()
        await dialog.get_by_role("button", name="Close").first.click()
        await expect(page.get_by_role("heading", name="Task completed")).to_be_visible()
        assert failures == []
        await browser.close()
    run = await workspace.installation.books.run(run_id)
    assert run.result == {**VALUE, "country": "DE"}
