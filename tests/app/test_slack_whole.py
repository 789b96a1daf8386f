"""Answers to Slack, whole: clicks and modals of people with and without rights, the notes, the audit, the count.

``whole_slack.json`` holds what is expected; ids and times are told apart by the order in which they appear.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.access import Role
from tests.app.test_http_whole import FORM, Orders
from tests.support.whole import as_it_was

EXPECTED = Path(__file__).with_name("whole_slack.json")
PEOPLE = ("U0ANN", "U0EVE", "U0WHO", "U0GONE")


class Clicks:
    """Sends interactions, and keeps the answer and the window that opened, under words of their own."""

    def __init__(self, installation: Any, slack: Any, send: Orders) -> None:
        self._installation = installation
        self._slack = slack
        self._send = send

    async def __call__(self, name: str, payload: dict[str, Any]) -> None:
        """Send one interaction with a valid trigger."""
        user = payload["user"]["id"]
        if user in self._slack.state.users and "trigger_id" in payload:
            payload["trigger_id"] = self._slack.state.new_trigger(user)
        self._slack.state.stacks.clear()
        answer = await self._installation.slack(payload)
        shown = self._slack.state.top_view(user)
        opened = {each: shown.body[each] for each in ("title", "callback_id", "submit")} if shown else None
        blocks = [_words(block) for block in shown.body["blocks"]] if shown else None
        said = answer.json() if answer.headers.get("content-type", "").startswith("application") else answer.text
        if isinstance(said, dict) and "view" in said:
            said["view"]["blocks"] = [_words(block) for block in said["view"]["blocks"]]
        self._send.tell(f"{user} {name}", [answer.status_code, said, opened, blocks])

    def card(self, question: tuple[Any, Any, str], button: str, user: str) -> dict[str, Any]:
        """A press of a button of the card."""
        _, approval, nonce = question
        pressed: dict[str, Any] = self._installation.click(approval, nonce, user, button)
        return pressed

    def modal(self, question: tuple[Any, Any, str], choice: str, reason: str, user: str) -> dict[str, Any]:
        """A submission of the modal that asks for a reason."""
        _, approval, nonce = question
        sent: dict[str, Any] = self._installation.submission(approval, nonce, choice, reason, user)
        return sent

    def task(self, task: str, user: str) -> dict[str, Any]:
        """A press of *Fill in*."""
        pressed: dict[str, Any] = self._installation.click(task, "", user, "task_open")
        pressed["actions"][0]["value"] = json.dumps({"t": task})
        return pressed

    def form(self, task: str, name: str | None, user: str) -> dict[str, Any]:
        """A submission of the task's form."""
        sent: dict[str, Any] = self._installation.submission(task, "", "approve", "", user)
        values = {} if name is None else {"name": {"name": {"type": "plain_text_input", "value": name}}}
        sent["view"] |= {"callback_id": "counterseal.task", "private_metadata": json.dumps({"t": task})}
        sent["view"]["state"] = {"values": values}
        return sent


def _words(block: dict[str, Any]) -> Any:
    """A block's own words; of a field its name and kind."""
    if block["type"] == "input":
        return [block["block_id"], block.get("optional", False), block["element"]["type"]]
    said = block.get("text") or block["elements"][0]["text"]
    return said["text"] if isinstance(said, dict) else said


@pytest.mark.req("U-5", "Q-5")
async def test_interactions_are_answered_as_they_were(serve: Any, settings: Any, slack_world: Any) -> None:
    installation = await serve(settings.model_copy(update={"slack_channel": "C0INC"}))
    await installation.publish()
    await installation.publish("other")
    await installation.add(FORM)
    send = Orders(installation)
    clicks = Clicks(installation, slack_world, send)
    first, second = await installation.asked("A1"), await installation.asked("A2")
    theirs = await installation.asked("B1", "other")
    await installation.parked("form", "F1")
    ann = await installation.client(Role.APPROVER, subject="ann")
    task = (await ann.get("/v1/tasks")).json()["items"][0]["task_id"]
    for user in PEOPLE:
        for button in ("review", "reject", "approve"):
            await clicks(button, clicks.card(first if user == "U0ANN" else second, button, user))
        await clicks("rejects with a reason", clicks.modal(second, "reject", "It is not.", user))
        await clicks("opens the task", clicks.task(task, user))
        await clicks("leaves the form empty", clicks.form(task, None, user))
        await clicks("fills in the form", clicks.form(task, "x", user))
    await clicks("another tenant's card", clicks.card(theirs, "approve", "U0ANN"))
    await clicks("another tenant's review", clicks.card(theirs, "review", "U0ANN"))
    await clicks("another tenant's modal", clicks.modal(theirs, "reject", "No.", "U0ANN"))
    third = await installation.asked("A3")
    await clicks("an old card", clicks.card((None, third[1], "old"), "approve", "U0BOB"))
    await clicks("rejects without a reason", clicks.modal(third, "reject", " ", "U0BOB"))
    await clicks("rejects with too long a reason", clicks.modal(third, "reject", "x" * 2001, "U0BOB"))
    await clicks("is late", {**clicks.card(third, "reject", "U0BOB"), "user": {"id": "U0BOB", "team_id": "T0ELSE"}})
    notes = [one.payload for one in await installation.books.commands(kind="note")]
    send.tell("notes", sorted(notes, key=lambda note: (note["user"], note["text"])))
    await send.audit()
    counted = (await ann.get("/metrics")).text.splitlines()
    send.tell("counted", sorted(line for line in counted if line.startswith("counterseal_votes_total")))
    as_it_was(EXPECTED, send.found)
