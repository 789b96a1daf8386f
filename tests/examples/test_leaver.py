"""The workflow leaver: five systems, two groups, a timer. One system fails and is tried again; the taps are counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sandbox.faults import Fault
from sandbox.slack_interact import Interactivity

SYSTEMS = ("badge", "mail", "chat", "payroll", "ledger")
SECRET = "a-slack-signing-secret"
ANA, BEN, CARA = "U0ANA", "U0BEN", "U0CARA"


class People:
    """The people of the Slack, whose taps are counted."""

    def __init__(self, clicks: Interactivity) -> None:
        self.clicks, self.taps = clicks, Counter[str]()

    def cards(self, word: str) -> list[Any]:
        return [one for one in self.clicks.state.messages("C0INC") if word in json.dumps(one.blocks)]

    def card(self, key: str) -> Any:
        (found,) = [one for one in self.clicks.state.messages("C0INC") if key in json.dumps(one.metadata)]
        return found

    async def press(self, user: str, button: str, message: Any) -> None:
        self.taps[user] += 1
        assert (await self.clicks.click(message.channel, message.ts, button, user)).ok

    async def send(self, user: str, **entered: Any) -> str:
        self.taps[user] += 1
        assert (await self.clicks.submit_view(self.clicks.state.top_view(user).view_id, user, entered)).ok
        return json.dumps(self.clicks.state.top_view(user).body)


@pytest.mark.req("X-18")
async def test_one_system_fails_and_nobody_is_asked_twice(office: Any, examples_folder: Path) -> None:
    await office.close()
    office.settings = office.settings.model_copy(update={"slack_channel": "C0INC"})
    office.settings = office.settings.model_validate({**office.settings.model_dump(), "slack_signing_secret": SECRET})
    await office.open()
    for name in SYSTEMS:
        office.insert("u_account", name, u_system=name, u_state="open")
    await office.publish(
        examples_folder / "workflows" / "leaver.yaml", policy=examples_folder / "policies" / "leaver.yaml"
    )
    url = f"http://127.0.0.1:{office.settings.port}/slack/events"
    slack = office.world.slack
    people = People(Interactivity(slack.state, url=url, signing_secret=SECRET, base_url=lambda: f"{slack.url}/"))
    trigger = {"number": "HR1", "leaver": "raj.quist", "channel": "C0INC", "last_day": "2020-01-31T16:00:00Z"}
    trigger |= {"accounts": {name: name for name in SYSTEMS}}
    office.world.servicenow.faults.inject(Fault("u_account/payroll", method="PATCH", status=403))
    answer = await office.http("POST", "/v1/runs", json={"workflow": "leaver", "input": trigger})
    assert answer.status_code == 201, answer.text
    run_id = UUID(answer.json()["run_id"])
    await office.go_on()
    asked = {one.step: str(one.id) for one in await office.books.approvals()}
    payroll, ledger = people.card(asked["payroll"]), people.card(asked["ledger"])
    for user in (ANA, CARA):
        await people.press(user, "counterseal.approve", payroll)
    await office.go_on()
    (held,) = people.cards("counterseal.hold.again")
    states = {name: office.record("u_account", name)["u_state"] for name in SYSTEMS}
    assert states == {"badge": "closed", "mail": "closed", "chat": "closed", "payroll": "open", "ledger": "open"}
    await people.press(BEN, "counterseal.hold.again", held)
    assert "Recorded" in await people.send(BEN, reason="The rights there are mended.")
    await office.go_on()
    assert office.record("u_account", "payroll")["u_state"] == "closed", "while the ledger still waits for people"
    for user in (ANA, CARA):
        await people.press(user, "counterseal.approve", ledger)
    await office.go_on()
    assert await office.status(run_id) == "succeeded"
    assert len(office.world.servicenow.state.writes("u_account", "payroll")) == 1
    assert len(await office.books.approvals()) == 2, "no question is asked twice"
    assert {user: people.taps[user] for user in (ANA, CARA, BEN)} == {ANA: 2, CARA: 2, BEN: 2}
    await people.clicks.close()
    await office.verified(run_id)
