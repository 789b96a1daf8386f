"""The people of the demo: one opens incidents in ServiceNow, one clicks in Slack with ``auto``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.demo.world import CARDS_CHANNEL, World
from core.errors import TransportError
from runtime.engine.model.errors import REJECTED
from runtime.engine.model.states import RunState

LOOK_SECONDS = 0.2
HEARD_LOOKS = 50
CLICK_LOOKS = 25
# Raj's account in Slack: his direct messages.
REQUESTER = "U0REQ"


@dataclass(frozen=True)
class Click:
    """A person's click on a card. A rejection has a reason."""

    action: str
    user: str
    reason: str = ""


@dataclass(frozen=True)
class Story:
    """One incident to report: the click on its card, if any, and the expected end of its run of ``workflow``."""

    text: str
    click: Click | None
    ending: tuple[RunState, str | None]
    workflow: str = "incident-triage"


@dataclass(frozen=True)
class Incident:
    """One reported incident, with its number in ServiceNow."""

    number: str
    sys_id: str
    story: Story


# One story for each end: a person approves, a person rejects, the policy denies.
STORIES = (
    Story("Payroll is down for everyone in Berlin", Click("approve", "U0ANA"), (RunState.SUCCEEDED, None)),
    Story(
        "Outage of the production order system",
        Click("reject", "U0BEN", "Not during the month-end close."),
        (RunState.FAILED_TERMINAL, REJECTED),
    ),
    Story("The printer on floor 3 works again, please close", None, (RunState.FAILED_TERMINAL, "policy_denied")),
)
# The agent hears that its calls were denied or rejected, and its run succeeds. None of the injected calls happens.
AGENT_STORY = Story(
    "My payslip shows the wrong tax class",
    Click("reject", "U0ANA", "Nobody of ours wrote this address."),
    (RunState.SUCCEEDED, None),
    workflow="agent-triage",
)


@dataclass(frozen=True)
class IncidentRun:
    """One incident's run: its newest row, and its bundle once it is stored and verified."""

    incident: Incident
    run: Any = None
    bundle: Path | None = None
    sha256: str | None = None
    verified: bool = False

    @property
    def ended_as_planned(self) -> bool:
        """True if the run ended as its story expects, and its evidence verifies."""
        if self.run is None or self.bundle is None:
            return False
        error = (self.run["error"] or {}).get("code")
        return (self.run["status"], error) == self.incident.story.ending and self.verified


class People:
    """Acts in the stand-ins as people would, through the endpoints of their pages. The stand-in signs as Slack does."""

    def __init__(self, world: World, client: httpx.AsyncClient) -> None:
        self.world = world
        self._client = client

    async def report(self, story: Story) -> Incident:
        """Open an incident as Raj; ServiceNow's business rule then calls our webhook."""
        body = {"user": "raj.quist", "fields": {"short_description": story.text, "impact": "3", "urgency": "3"}}
        record = (await self._ask("POST", f"{self.world.servicenow}/_sandbox/records/incident", body))["record"]
        return Incident(record["number"], record["sys_id"], story)

    async def describe(self, incident: Incident, description: str, user: str) -> None:
        """Change the description of an incident as this user."""
        body = {"user": user, "fields": {"description": description}}
        await self._ask("PATCH", f"{self.world.servicenow}/_sandbox/records/incident/{incident.sys_id}", body)

    async def incident(self, incident: Incident) -> dict[str, Any]:
        """The incident as ServiceNow has it now."""
        records = await self._ask("GET", f"{self.world.servicenow}/_sandbox/records/incident")
        return next(record for record in records["records"] if record["sys_id"] == incident.sys_id)

    async def messages(self, channel: str) -> list[dict[str, Any]]:
        """The messages of a channel."""
        answer = await self._ask("GET", f"{self.world.slack}/_sandbox/messages?channel={channel}")
        return list(answer["messages"])

    async def private_messages(self, runs: list[str]) -> list[list[str]]:
        """The messages that Raj got in private about each of these runs; waits a little for each to come."""
        found: list[list[str]] = []
        for _ in range(HEARD_LOOKS):
            messages = await self.messages(REQUESTER)
            texts = [f"{message['text']} {message.get('blocks')}" for message in messages]
            found = [[text for text in texts if run in text] for run in runs]
            if all(found):
                break
            await asyncio.sleep(LOOK_SECONDS)
        return found

    async def decide(self, incident: Incident) -> None:
        """Wait for the incident's card and click on it as its story says; a rejection also submits a reason.

        As people do, they click again if nothing happens: a card that was posted a moment ago may not be recorded yet,
        and Slack opens no window for an answer that comes later than three seconds.
        """
        click = incident.story.click
        if click is None:
            return
        action, user = f"counterseal.{click.action}", click.user
        body = {"channel": CARDS_CHANNEL, "action_id": action, "user": user}
        while True:
            if (card := await self._card(incident, action)) is None:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            _accepted(await self._ask("POST", f"{self.world.slack}/_sandbox/click", {**body, "ts": card}))
            window = await self._window(user) if click.action == "reject" else None
            if window is not None:
                field = next(block["block_id"] for block in window["blocks"] if block["type"] == "input")
                reason = {"view_id": window["id"], "user": user, "values": {field: click.reason}}
                _accepted(await self._ask("POST", f"{self.world.slack}/_sandbox/submit_view", reason))
            for _ in range(CLICK_LOOKS):
                if await self._card(incident, action) is None:
                    return
                await asyncio.sleep(LOOK_SECONDS)

    async def _card(self, incident: Incident, action_id: str) -> str | None:
        """The message with the incident's card, while its buttons still offer this answer."""
        for message in await self.messages(CARDS_CHANNEL):
            text = str(message.get("blocks"))
            if incident.number in text and action_id in text:
                return str(message["ts"])
        return None

    async def _window(self, user: str) -> dict[str, Any] | None:
        for _ in range(CLICK_LOOKS):
            if views := (await self._ask("GET", f"{self.world.slack}/_sandbox/views?user={user}"))["views"]:
                return dict(views[-1])
            await asyncio.sleep(LOOK_SECONDS)
        return None

    async def _ask(self, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        response = await self._client.request(method, url, json=body)
        if response.is_error:
            raise TransportError(f"The stand-in answered {response.status_code}: {response.text[:300]}")
        return response.json()


def _accepted(outcome: dict[str, Any]) -> None:
    if not outcome.get("ok"):
        raise TransportError(f"Counterseal did not take the click: {outcome}")
