"""Listeners of cards of lists: one click is a vote for each question. Parse, let the service commit, answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec.structs import replace
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from approvals.lists import ListView
from approvals.model import Choice
from approvals.slack import lists, modals, talks
from approvals.slack.blocks import Block, plain, plain_sections
from approvals.slack.calls import NOT_OPENED, open_window
from approvals.slack.payloads import ListClick, ListSubmission, parse_list_click, parse_list_submission
from approvals.slack.talk_payloads import (
    ABOUT_FIELD,
    ListTalkClick,
    ListTalkSubmission,
    parse_list_talk,
    parse_list_talk_click,
)
from approvals.slack.windows import Windows
from approvals.talk import Saying
from core.canonical import JsonObject
from core.legible import embedded, visible

_NOTHING_CHOSEN = "Choose at least one, or reject all of them."
_NEEDED = "Please give a reason for what is rejected; it is kept with your answer."


class ListService(Protocol):
    """The service behind these listeners. It finds the person itself; every method commits before it returns."""

    async def vote_list(self, asked: ListClick | ListSubmission) -> str:
        """Take one vote for each question. The same transaction enqueues the sentence to the person who clicked."""

    async def look_list(self, asked: ListClick | ListSubmission) -> ListView | str:
        """The list for a person who may see it, with what they may see; otherwise the reason why not."""

    async def look_talk(self, click: ListTalkClick) -> tuple[ListView, Mapping[str, str]] | str:
        """The list, with the people to whom its questions may be handed; or why this person may not say this now."""

    async def say_list(self, submission: ListTalkSubmission) -> tuple[bool, str]:
        """Record what was said. Returns true if the text must be corrected, and a sentence for the person."""

    async def note_list(self, click: ListClick, sentence: str) -> None:
        """Enqueue a sentence to the person who clicked."""


def listen(bolt: AsyncApp, windows: Windows, service: ListService) -> None:
    """Register the listeners. They come before those of cards, whose patterns match these names too."""

    async def on_click(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        click = parse_list_click(body)
        if click.choice is Choice.APPROVE:
            await service.vote_list(click)
        else:
            found = await service.look_list(click)
            if isinstance(found, str):
                window = modals.answer(found)
            else:
                window = lists.window(found) if click.choice is None else lists.reason(found)
            if not await open_window(client, click.trigger_id, windows.marked(window, click.clicker)):
                await service.note_list(click, NOT_OPENED)
        await ack()

    async def on_submission(ack: AsyncAck, body: dict[str, Any]) -> None:
        asked = parse_list_submission(body)
        known = asked if windows.opened(body["view"], asked.clicker) else replace(asked, digest="")
        await ack(**await _submission(service, windows, known))

    async def on_talk(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        click = parse_list_talk_click(body)
        found = await service.look_talk(click)
        window = modals.answer(found) if isinstance(found, str) else _talk(click.saying, *found)
        await talks.opened(client, body, click.trigger_id, windows.marked(window, click.clicker))
        await ack()

    async def on_words(ack: AsyncAck, body: dict[str, Any]) -> None:
        submission = parse_list_talk(body)
        wrong, sentence = False, talks.NOT_THEIRS
        if windows.opened(body["view"], submission.clicker):
            wrong, sentence = await service.say_list(submission)
        await ack(**talks.response(sentence, wrong=wrong))

    # Register the buttons of talk first: the patterns below match their names too, and Bolt takes the first match.
    bolt.action(re.compile(re.escape(lists.LIST_TALK) + r"\.[a-z_]+"))(on_talk)
    bolt.view(lists.LIST_TALK)(on_words)
    bolt.action(re.compile(r"counterseal\.list_[a-z]+"))(on_click)
    bolt.view(re.compile(r"counterseal\.list(_reason)?"))(on_submission)


async def _submission(service: ListService, windows: Windows, asked: ListSubmission) -> dict[str, Any]:
    """The answer to a window: the next page, an error beside the field, or the result of the votes."""
    if asked.choice is None:
        shown = await service.look_list(asked)
        if isinstance(shown, str):
            return {"response_action": "update", "view": modals.answer(shown)}
        page = windows.marked(lists.window(shown, asked.page + 1), asked.clicker)
        return {"response_action": "update", "view": page}
    if asked.choice is Choice.REJECT and not asked.reason:
        return {"response_action": "errors", "errors": {modals.REASON_FIELD: _NEEDED}}
    if asked.choice is Choice.APPROVE and not asked.chosen:
        return {"response_action": "errors", "errors": {modals.CHOICE_FIELD: _NOTHING_CHOSEN}}
    if asked.choice is Choice.APPROVE and not asked.reason:
        shown = await service.look_list(asked)
        if not isinstance(shown, str) and any(one.approval_id not in asked.chosen for one in shown.open):
            return {"response_action": "errors", "errors": {modals.REASON_FIELD: _NEEDED}}
    return {"response_action": "update", "view": modals.answer(await service.vote_list(asked))}


def _talk(saying: Saying, view: ListView, choices: Mapping[str, str]) -> Block:
    """A window in which the viewer chooses one of the questions, and says something about it."""
    numbered = [*enumerate(lists.in_order(view), 1)]
    options = [lists.option_of(view, n, one) for n, one in numbered if saying in view.offers.get(one.approval_id, ())]
    element = {"type": "static_select", "action_id": ABOUT_FIELD, "options": options}
    which: Block = {"type": "input", "block_id": ABOUT_FIELD, "label": plain("About which"), "element": element}
    repeated = plain_sections(embedded(visible(lists.heading(view), edges=False)))
    metadata: JsonObject = {"a": str(view.first.approval_id), "d": view.mark, "s": str(saying)}
    return talks.asking(saying, [*repeated, which], choices, lists.LIST_TALK, metadata)
