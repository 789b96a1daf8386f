"""Listeners of held steps: each button opens a window that asks for the reason; its answer is committed, then shown."""

from __future__ import annotations

import json
import logging
import re
from typing import Any, Protocol

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from approvals.quorum import REASON_CHARACTERS_MAX
from approvals.slack import modals
from approvals.slack.blocks import Block, entry, plain, section, sections
from approvals.slack.calls import call
from approvals.slack.notices import HOLD_CALLBACK, HOLD_WORDS
from approvals.slack.payloads import HoldClick, HoldSubmission, parse_hold_click, parse_hold_submission
from approvals.slack.windows import Windows

_SECONDS = 2.0
_CAUSES = {
    "again": "The step begins anew. Nobody is asked again about what an approval still covers.",
    "without": "The step counts as failed, and the run goes on without it. Nothing is undone.",
    "cancel": "The whole run ends. What is done stays done, and open questions are withdrawn.",
}
_log = logging.getLogger("counterseal.slack")


class HoldService(Protocol):
    """The service behind these listeners. It finds the person itself, and checks every right anew."""

    async def look(self, click: HoldClick) -> tuple[str, str]:
        """The step in words, and "" if this person may answer; otherwise "" and the reason why not."""

    async def answer(self, submission: HoldSubmission) -> str:
        """Take the answer; the sentence tells the result."""


def listen(bolt: AsyncApp, windows: Windows, service: HoldService) -> None:
    """Register the listeners. They come before those of cards, whose patterns match these names too."""

    async def on_button(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        click = parse_hold_click(body)
        step, refusal = await service.look(click)
        window = modals.answer(refusal) if refusal else _window(click, step)
        request = client.views_open(trigger_id=click.trigger_id, view=windows.marked(window, click.clicker))
        opened = await call(request, timeout_seconds=_SECONDS)
        if not isinstance(opened, dict):  # nothing was done, and the button is still there
            _log.warning("a window could not be opened: %s", opened.message)
        await ack()

    async def on_reason(ack: AsyncAck, body: dict[str, Any]) -> None:
        submission = parse_hold_submission(body)
        if not submission.reason:
            await ack(response_action="errors", errors={modals.REASON_FIELD: "Say why: it is kept in the audit."})
            return
        sentence = "This window was not opened for you, so nothing was recorded. Open it from the message."
        if windows.opened(body["view"], submission.clicker):
            sentence = await service.answer(submission)
        await ack(response_action="update", view=modals.answer(sentence))

    bolt.action(re.compile(r"counterseal\.hold\.[a-z]+"))(on_button)
    bolt.view(HOLD_CALLBACK)(on_reason)


def _window(click: HoldClick, step: str) -> Block:
    """A window that repeats the step, says what the answer causes, and asks why."""
    element = {"type": "plain_text_input", "action_id": modals.REASON_FIELD, "multiline": True}
    element["max_length"] = REASON_CHARACTERS_MAX
    asked = {"type": "input", "block_id": modals.REASON_FIELD, "label": plain("Reason"), "element": element}
    words = HOLD_WORDS[click.choice]
    effect = f"{_CAUSES[click.choice]} Whoever may see the run reads your reason."
    drawn = modals.modal(f"{words}?", [*sections(entry("", step)), asked, section(effect)], close="Back")
    metadata = json.dumps({"w": str(click.wait_id), "c": click.choice})
    return {**drawn, "callback_id": HOLD_CALLBACK, "private_metadata": metadata, "submit": plain(words)}
