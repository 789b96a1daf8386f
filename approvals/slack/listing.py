"""Listeners of cards of lists: one click is a vote for each question. Parse, let it be committed, answer."""

from __future__ import annotations

import re
from typing import Any, Protocol

from msgspec.structs import replace
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from approvals.lists import ListView
from approvals.model import Choice
from approvals.slack import lists, modals
from approvals.slack.calls import NOT_OPENED, open_window
from approvals.slack.payloads import ListClick, ListSubmission, parse_list_click, parse_list_submission
from approvals.slack.windows import Windows

_NOTHING_CHOSEN = "Choose at least one, or reject all of them."
_NEEDED = "Please give a reason for what is rejected; it is kept with your answer."


class ListService(Protocol):
    """The service behind these listeners. It finds the person itself; every method commits before it returns."""

    async def vote_list(self, asked: ListClick | ListSubmission) -> str:
        """Take one vote for each question, and enqueue the sentence to who clicked in the same transaction."""

    async def look_list(self, asked: ListClick | ListSubmission) -> ListView | str:
        """The list for a person who may see it, with what they may see; otherwise the reason why not."""

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

    bolt.action(re.compile(r"counterseal\.list_[a-z]+"))(on_click)
    bolt.view(re.compile(r"counterseal\.list(_reason)?"))(on_submission)


async def _submission(service: ListService, windows: Windows, asked: ListSubmission) -> dict[str, Any]:
    """The answer to a window: the next page, an error beside the field, or what became of the votes."""
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
