"""Bolt listeners: parse, let the service commit, acknowledge. In that order.

A click is acknowledged only after the vote is committed, so a vote that Slack believes we took is never lost. If the
service fails, nothing is acknowledged: Slack gets 503 and tells the person that it did not work. What became of a click
is told by the service through the outbox, written in the transaction of the vote; the one call to Slack made here opens
a modal, which is possible only while the click's trigger lives (3 seconds).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from approvals.model import CardView
from approvals.slack import modals
from approvals.slack.calls import call
from approvals.slack.payloads import Button, Click, Submission, parse_click, parse_submission
from core.errors import InputError

_OPEN_MODAL_SECONDS_MAX = 2.0
_log = logging.getLogger("counterseal.slack")


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one person's answer, in a sentence for that person. ``about_reason``: the reason is at fault."""

    counted: bool
    sentence: str
    about_reason: bool = False


class InteractionService(Protocol):
    """What the handlers need done. Every method has committed when it returns; a failure raises."""

    async def vote(self, click: Click) -> Answer:
        """Take a vote that needs no reason, and enqueue the sentence to the person in the same transaction."""

    async def submit(self, submission: Submission) -> Answer:
        """Take a vote from a modal (``choice`` is not None). The modal shows the sentence."""

    async def review(self, asked: Click | Submission) -> CardView | Answer:
        """The whole card, with sensitive values, for somebody who may see it; otherwise why not."""

    async def note(self, click: Click, sentence: str) -> None:
        """Enqueue a sentence to the person who clicked."""


def build_bolt(
    *,
    signing_secret: str,
    authorize: Callable[..., Awaitable[AuthorizeResult]],
    client: AsyncWebClient,
    service: InteractionService,
) -> AsyncApp:
    """The bolt app with our listeners. ``client`` has no retry handlers: a second try would outlive the trigger."""
    bolt = AsyncApp(
        logger=_bolt_logger(),
        signing_secret=signing_secret,
        authorize=authorize,
        client=client,
        process_before_response=True,
        raise_error_for_unhandled_request=True,
        ssl_check_enabled=False,
    )

    async def on_click(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        await _click(service, client, parse_click(body))
        await ack()

    async def on_submission(ack: AsyncAck, body: dict[str, Any]) -> None:
        await ack(**await _submission(service, parse_submission(body)))

    bolt.action(re.compile(r"counterseal\.[a-z_]+"))(on_click)
    bolt.view(re.compile(r"counterseal\.[a-z_]+"))(on_submission)
    bolt.error(_failed)
    return bolt


async def _click(service: InteractionService, client: AsyncWebClient, click: Click) -> None:
    if click.button is Button.APPROVE:
        await service.vote(click)
        return
    if click.choice is not None:
        modal = modals.reason(click.approval_id, click.nonce, click.choice)
    else:
        shown = await service.review(click)
        modal = modals.review(shown) if isinstance(shown, CardView) else modals.answer(shown.sentence)
    if not await _opened(client, click.trigger_id, modal):
        sentence = "Slack did not open the window in time, so nothing was counted. Please click again."
        await service.note(click, sentence)


async def _opened(client: AsyncWebClient, trigger_id: str, modal: dict[str, Any]) -> bool:
    opened = await call(client.views_open(trigger_id=trigger_id, view=modal), timeout_seconds=_OPEN_MODAL_SECONDS_MAX)
    if isinstance(opened, dict):
        return True
    _log.warning("a modal could not be opened: %s", opened.message)
    return False


async def _submission(service: InteractionService, submission: Submission) -> dict[str, Any]:
    """How Slack is to answer the modal: the next page, an error at the reason, or the sentence."""
    if submission.choice is None:
        shown = await service.review(submission)
        if isinstance(shown, CardView):
            return {"response_action": "update", "view": modals.review(shown, submission.page + 1)}
        return {"response_action": "update", "view": modals.answer(shown.sentence)}
    answer = await service.submit(submission)
    if answer.about_reason:
        return {"response_action": "errors", "errors": {modals.REASON_FIELD: answer.sentence}}
    return {"response_action": "update", "view": modals.answer(answer.sentence)}


async def _failed(error: Exception) -> BoltResponse:
    """What Slack is told instead of an acknowledgement. No answer carries details, no log line a body."""
    if isinstance(error, InputError):
        return BoltResponse(status=400, body={"error": "malformed", "detail": str(error)})
    if isinstance(error, BoltUnhandledRequestError):
        return BoltResponse(status=404, body={"error": "unhandled"})
    _log.error("a Slack interaction failed and was not acknowledged", exc_info=error)
    return BoltResponse(status=503, body={"error": "unavailable"})


def _bolt_logger() -> logging.Logger:
    """Bolt writes whole bodies at INFO (failed signatures) and DEBUG; its loggers copy this level."""
    logger = logging.getLogger("counterseal.slack.bolt")
    logger.setLevel(logging.WARNING)
    return logger
