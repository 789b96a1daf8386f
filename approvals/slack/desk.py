"""Listeners besides cards and tasks: the app's Home, and the operators' button to go on with a failed run."""

from __future__ import annotations

import json
import logging
import re
from typing import Any, Protocol
from uuid import UUID

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from approvals.slack import modals
from approvals.slack.blocks import Block, plain, section
from approvals.slack.calls import call, open_window
from approvals.slack.home import HOME_AGAIN
from approvals.slack.members import METADATA_BYTES_MAX, Clicker, clicker_of, visitor_of
from approvals.slack.notices import RETRY
from approvals.slack.payloads import parse_home_click
from approvals.slack.windows import Windows
from core.bounded_json import parse_object
from core.errors import InputError

RETRY_CALLBACK = "counterseal.run.retry"
_SECONDS = 2.0
_log = logging.getLogger("counterseal.slack")


class DeskService(Protocol):
    """The service behind these listeners. It finds the person itself, and checks every right anew."""

    async def home(self, clicker: Clicker) -> Block:
        """The Home of the person behind the account, or a sentence that says why there is none."""

    async def ask_again(self, approval_id: UUID, clicker: Clicker) -> str:
        """Ask an expired question again, for whoever asked it; the sentence tells the result."""

    async def may_retry(self, clicker: Clicker) -> str:
        """The reason why this account may not go on with failed runs; "" if it may."""

    async def retry(self, clicker: Clicker, run_id: UUID, reason: str) -> str:
        """Go on with a failed run; the sentence tells the result."""


def listen(bolt: AsyncApp, windows: Windows, service: DeskService) -> None:
    """Register the listeners. They come before those of cards, whose patterns match these names too."""

    async def on_home(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        visitor = visitor_of(body)
        if body["event"].get("tab", "home") == "home":
            request = client.views_publish(user_id=visitor.user, view=await service.home(visitor))
            shown = await call(request, timeout_seconds=_SECONDS)
            if not isinstance(shown, dict):  # Slack shows what it had; the next visit draws it anew
                _log.warning("a Home could not be shown: %s", shown.message)
        await ack()

    async def on_again(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        approval_id, clicker, trigger = parse_home_click(body, HOME_AGAIN)
        sentence = await service.ask_again(approval_id, clicker)
        await open_window(client, trigger, modals.answer(sentence))
        await ack()

    async def on_retry(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        clicker, run_id = clicker_of(body), _run_of(body)
        refusal = await service.may_retry(clicker)
        window = modals.answer(refusal) if refusal else _window(run_id)
        trigger = str(body.get("trigger_id") or "")
        request = client.views_open(trigger_id=trigger, view=windows.marked(window, clicker))
        opened = await call(request, timeout_seconds=_SECONDS)
        if not isinstance(opened, dict):  # nothing was done, and the button is still there
            _log.warning("a window could not be opened: %s", opened.message)
        await ack()

    async def on_reason(ack: AsyncAck, body: dict[str, Any]) -> None:
        clicker = clicker_of(body)
        view = body["view"]
        if not windows.opened(view, clicker):
            raise InputError("was not opened for this account", where="view")
        metadata = parse_object(str(view["private_metadata"]).encode(), bytes_max=METADATA_BYTES_MAX)
        entered = ((view.get("state") or {}).get("values") or {}).get(modals.REASON_FIELD) or {}
        reason = str((entered.get(modals.REASON_FIELD) or {}).get("value") or "").strip()
        sentence = await service.retry(clicker, UUID(str(metadata["r"])), reason)
        await ack(response_action="update", view=modals.answer(sentence))

    async def on_link(ack: AsyncAck) -> None:
        await ack()  # Slack tells of a button that is only a link, too

    bolt.event("app_home_opened")(on_home)
    bolt.action(HOME_AGAIN)(on_again)
    bolt.action(RETRY)(on_retry)
    bolt.view(RETRY_CALLBACK)(on_reason)
    bolt.action(re.compile(r"counterseal\.home\.\d+"))(on_link)


def _run_of(body: dict[str, Any]) -> UUID:
    actions = body.get("actions")
    if not isinstance(actions, list) or len(actions) != 1 or not isinstance(actions[0], dict):
        raise InputError("is not a list of exactly one action", where="actions")
    value = parse_object(str(actions[0].get("value") or "").encode(), bytes_max=2000, where="actions[0].value")
    try:
        return UUID(str(value.get("r")))
    except ValueError:
        raise InputError("is not the id of a run", where="actions[0].value.r") from None


def _window(run_id: UUID) -> Block:
    """A window that asks why the run may go on now."""
    asked = section("The failed steps begin anew; what is done stays done. Whoever may see the run reads your reason.")
    element = {"type": "plain_text_input", "action_id": modals.REASON_FIELD, "multiline": True, "max_length": 2000}
    named = {"type": "input", "block_id": modals.REASON_FIELD, "label": plain("Reason"), "element": element}
    drawn = modals.modal("Try again", [asked, named], close="Back")
    metadata = json.dumps({"r": str(run_id)})
    return {**drawn, "callback_id": RETRY_CALLBACK, "private_metadata": metadata, "submit": plain("Try again")}
