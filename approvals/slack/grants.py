"""Listeners of grants: a button on the decided card, or in Home, opens a window that takes the grant back."""

from __future__ import annotations

import json
from typing import Any, Protocol
from uuid import UUID

from msgspec.structs import replace
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from approvals.model import CardView
from approvals.quorum import REASON_CHARACTERS_MAX
from approvals.slack import modals
from approvals.slack.blocks import Block, context, plain, plain_sections, section
from approvals.slack.calls import NOT_OPENED, open_window
from approvals.slack.cards import TAKE_BACK, heading
from approvals.slack.folded import granted_words
from approvals.slack.home import HOME_TAKE_BACK
from approvals.slack.members import Clicker
from approvals.slack.payloads import Click, Submission, parse_click, parse_home_click, parse_revocation
from approvals.slack.windows import Windows
from core.legible import embedded, visible

_NEEDED = "Say why: it is kept in the audit."
_CAUSE = "Nothing more goes out by it; people are asked again. What was done stays. Whoever may see the run reads why."


class GrantService(Protocol):
    """The service behind these listeners. It finds the person itself, and checks every right anew."""

    async def look(self, click: Click) -> CardView | str:
        """The card of the approval that gave the grant, for somebody who may take it back; otherwise why not."""

    async def look_at_home(self, approval_id: UUID, clicker: Clicker) -> CardView | str:
        """The same as ``look`` for somebody who pressed the button in the app's Home, which is no card."""

    async def take_back(self, submission: Submission) -> str:
        """Take the grant back; the sentence tells the result."""

    async def note(self, click: Click, sentence: str) -> None:
        """Enqueue a sentence to the person who clicked."""


def listen(bolt: AsyncApp, windows: Windows, service: GrantService) -> None:
    """Register the listeners. They come before those of cards, whose patterns match these names too."""

    async def on_button(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        click = parse_click(body)
        window = _window_or_reason(await service.look(click))
        if not await open_window(client, click.trigger_id, windows.marked(window, click.clicker)):
            await service.note(click, NOT_OPENED)
        await ack()

    async def on_home(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        approval_id, clicker, trigger = parse_home_click(body, HOME_TAKE_BACK)
        window = _window_or_reason(await service.look_at_home(approval_id, clicker))
        await open_window(client, trigger, windows.marked(window, clicker))  # if not, the button is still there
        await ack()

    async def on_reason(ack: AsyncAck, body: dict[str, Any]) -> None:
        asked = parse_revocation(body)
        if not asked.reason:
            await ack(response_action="errors", errors={modals.REASON_FIELD: _NEEDED})
            return
        known = asked if windows.opened(body["view"], asked.clicker) else replace(asked, digest="")
        await ack(response_action="update", view=modals.answer(await service.take_back(known)))

    bolt.action(TAKE_BACK)(on_button)
    bolt.action(HOME_TAKE_BACK)(on_home)
    bolt.view(TAKE_BACK)(on_reason)


def _window_or_reason(found: CardView | str) -> Block:
    if isinstance(found, str):
        return modals.answer(found)
    if found.granted is None or not found.granted.open:
        return modals.answer("Nothing is allowed in advance by this any more.")
    return _window(found, granted_words(found.granted))


def _window(view: CardView, given: str) -> Block:
    """A window that repeats what was asked and what is allowed, and asks why it is taken back."""
    repeated = plain_sections(embedded(visible(heading(view), edges=False)))
    element = {"type": "plain_text_input", "action_id": modals.REASON_FIELD, "multiline": True}
    element["max_length"] = REASON_CHARACTERS_MAX
    asked = {"type": "input", "block_id": modals.REASON_FIELD, "label": plain("Reason"), "element": element}
    drawn = modals.modal("Take back?", [*repeated, section(given), asked, context(_CAUSE)], close="Back")
    metadata = json.dumps({"a": str(view.approval_id), "n": view.nonce, "d": view.digest})
    return {**drawn, "callback_id": TAKE_BACK, "private_metadata": metadata, "submit": plain("Take back")}
