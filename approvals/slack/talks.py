"""Listeners of what people say about a question: each button opens a window of ours, whose text is committed.

A button may be in a window, on a message to one person, or anywhere: it only opens a window that we draw ourselves,
which repeats the question. Words count only from that window (``windows``).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Protocol

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from approvals.model import CardView
from approvals.quorum import REASON_CHARACTERS_MAX
from approvals.slack import modals
from approvals.slack.blocks import Block, context, plain, plain_sections, sections
from approvals.slack.calls import call
from approvals.slack.cards import heading
from approvals.slack.details import statement_lines
from approvals.slack.talk_payloads import (
    TALK_CALLBACK,
    TO_FIELD,
    TalkClick,
    TalkSubmission,
    parse_talk_click,
    parse_talk_submission,
)
from approvals.slack.windows import Windows
from approvals.talk import WORDS, Saying
from core.canonical import JsonObject
from core.legible import embedded, visible

_OPTIONS_MAX = 100
_SECONDS = 2.0
_LABELS = {
    Saying.ASKS: "What do you need to know?",
    Saying.ANSWERS: "Your answer",
    Saying.COMMENTS: "Your comment",
    Saying.HANDS_ON: "Why",
}
_READ = "Whoever sees the question reads it, in the channel too; it is kept with the evidence."
_CAUSES = {
    Saying.ASKS: f"The question stays open. Whoever requested it is asked to answer. {_READ}",
    Saying.ANSWERS: f"It stands on the card as your words. You have a part in this then, and do not decide it. {_READ}",
    Saying.COMMENTS: _READ,
    Saying.HANDS_ON: "They are called, and may decide it already. Who may decide does not change.",
}
NOT_THEIRS = "This window was not opened for you, so nothing was recorded. Open it again."
_log = logging.getLogger("counterseal.slack")


class TalkService(Protocol):
    """The service behind these listeners. It finds the person itself, and checks every right anew."""

    async def look(self, click: TalkClick) -> tuple[CardView, Mapping[str, str]] | str:
        """The question, with the people to whom it may be handed; or why this person may not say this now."""

    async def say(self, submission: TalkSubmission) -> tuple[bool, str]:
        """Record what was said. Returns true if the text must be corrected, and a sentence for the person."""


def listen(bolt: AsyncApp, windows: Windows, service: TalkService) -> None:
    """Register the listeners. They come before those of cards, whose patterns match these names too."""

    async def on_button(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        click = parse_talk_click(body)
        found = await service.look(click)
        window = modals.answer(found) if isinstance(found, str) else _window(click.saying, *found)
        await opened(client, body, click.trigger_id, windows.marked(window, click.clicker))
        await ack()

    async def on_words(ack: AsyncAck, body: dict[str, Any]) -> None:
        submission = parse_talk_submission(body)
        wrong, sentence = False, NOT_THEIRS
        if windows.opened(body["view"], submission.clicker):
            wrong, sentence = await service.say(submission)
        await ack(**response(sentence, wrong=wrong))

    bolt.action(re.compile(re.escape(modals.TALK) + r"[a-z_]+"))(on_button)
    bolt.view(TALK_CALLBACK)(on_words)


async def opened(client: AsyncWebClient, body: Mapping[str, Any], trigger_id: str, view: Block) -> None:
    """Open a window, above the one whose button was pressed if there is one."""
    opens = client.views_push if "view" in body else client.views_open
    done = await call(opens(trigger_id=trigger_id, view=view), timeout_seconds=_SECONDS)
    if not isinstance(done, dict):  # nothing was said, and the button is still there
        _log.warning("a window could not be opened: %s", done.message)


def response(sentence: str, *, wrong: bool) -> dict[str, Any]:
    """The answer to a window: an error beside the text field, or a window with the sentence."""
    if wrong:
        return {"response_action": "errors", "errors": {modals.REASON_FIELD: sentence}}
    return {"response_action": "update", "view": modals.answer(sentence)}


def _window(saying: Saying, view: CardView, choices: Mapping[str, str]) -> Block:
    """A window that repeats the question and what was said about it, and takes the words."""
    repeated = [*plain_sections(embedded(visible(heading(view), edges=False))), *sections(statement_lines(view))]
    metadata: JsonObject = {"a": str(view.approval_id), "n": view.nonce, "d": view.digest, "s": str(saying)}
    return asking(saying, repeated, choices, TALK_CALLBACK, metadata)


def asking(
    saying: Saying, repeated: list[Block], choices: Mapping[str, str], callback: str, metadata: JsonObject
) -> Block:
    """A window that repeats its subject, takes the words, and says what they cause."""
    asked: list[Block] = [_whom(choices)] if saying is Saying.HANDS_ON else []
    element = {"type": "plain_text_input", "action_id": modals.REASON_FIELD, "multiline": True}
    element["max_length"] = REASON_CHARACTERS_MAX
    label, free = plain(_LABELS[saying]), saying is Saying.HANDS_ON
    asked.append(
        {"type": "input", "block_id": modals.REASON_FIELD, "label": label, "element": element, "optional": free}
    )
    drawn = modals.modal(WORDS[saying], [*repeated, *asked, context(_CAUSES[saying])], close="Back")
    return {**drawn, "callback_id": callback, "private_metadata": json.dumps(metadata), "submit": plain("Send")}


def _whom(choices: Mapping[str, str]) -> Block:
    options = [{"text": plain(name[:75]), "value": key[:75]} for key, name in [*choices.items()][:_OPTIONS_MAX]]
    element = {"type": "static_select", "action_id": TO_FIELD, "options": options}
    return {"type": "input", "block_id": TO_FIELD, "label": plain("To whom"), "element": element}
