"""Listeners of edits: a button opens a window made from the operation's own schema; the edited action is judged again.

The button may be anywhere: it only opens a window of ours, which repeats the question. Values count only from that
window (``windows``).
"""

from __future__ import annotations

import json
import logging
from typing import Any, Protocol

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from approvals.fields import FormProblem
from approvals.model import CardView
from approvals.slack import modals
from approvals.slack.blocks import Block, context, plain, plain_sections
from approvals.slack.calls import call
from approvals.slack.cards import heading
from approvals.slack.forms import errors_of, input_blocks, values_of
from approvals.slack.talk_payloads import EDIT_CALLBACK, EditClick, EditSubmission, parse_edit, parse_edit_click
from approvals.slack.windows import Windows
from core.canonical import JsonObject
from core.legible import embedded, visible

_SECONDS = 2.0
_CAUSE = (
    "What you write is judged by policy. The question is void then, with its votes. If people are asked anew, others "
    "than you decide."
)
_log = logging.getLogger("counterseal.slack")


class EditService(Protocol):
    """The service behind these listeners. It finds the person itself, and checks every right anew."""

    async def form(self, asked: EditClick | EditSubmission) -> tuple[CardView, JsonObject] | str:
        """The question with the form for this person; or why they may not edit it."""

    async def edit(self, submission: EditSubmission, values: JsonObject) -> tuple[tuple[FormProblem, ...], str]:
        """Record the edit: the faults of its values, and a sentence for the person."""


def listen(bolt: AsyncApp, windows: Windows, service: EditService) -> None:
    """Register the listeners. They come before those of cards, whose patterns match these names too."""

    async def on_button(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        click = parse_edit_click(body)
        found = await service.form(click)
        window = modals.answer(found) if isinstance(found, str) else _window(*found)
        shown = windows.marked(window, click.clicker)
        opens = client.views_push if "view" in body else client.views_open
        opened = await call(opens(trigger_id=click.trigger_id, view=shown), timeout_seconds=_SECONDS)
        if not isinstance(opened, dict):  # nothing was edited, and the button is still there
            _log.warning("a window could not be opened: %s", opened.message)
        await ack()

    async def on_values(ack: AsyncAck, body: dict[str, Any]) -> None:
        sent = parse_edit(body)
        if not windows.opened(body["view"], sent.clicker):
            words = "This window was not opened for you, so nothing was edited. Open it again."
            await ack(response_action="update", view=modals.answer(words))
            return
        found = await service.form(sent)
        if isinstance(found, str):
            await ack(response_action="update", view=modals.answer(found))
            return
        problems, sentence = await service.edit(sent, values_of(found[1], sent.state))
        if problems:
            await ack(response_action="errors", errors=errors_of(found[1], problems))
            return
        await ack(response_action="update", view=modals.answer(sentence))

    bolt.action(modals.EDIT)(on_button)
    bolt.view(EDIT_CALLBACK)(on_values)


def _window(view: CardView, form: JsonObject) -> Block:
    """A window that repeats the question, and takes the values."""
    repeated = plain_sections(embedded(visible(heading(view), edges=False)))
    drawn = modals.modal("Edit", [*repeated, context(_CAUSE), *input_blocks(form)], close="Back")
    metadata = {"a": str(view.approval_id), "n": view.nonce, "d": view.digest}
    return {**drawn, "callback_id": EDIT_CALLBACK, "private_metadata": json.dumps(metadata), "submit": plain("Send")}
