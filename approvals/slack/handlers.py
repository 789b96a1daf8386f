"""Bolt listeners: parse, let the service commit, acknowledge. In that order.

A click is acknowledged only after the vote or the task is committed, so an acknowledged click is never lost. If the
service fails, the listener does not acknowledge: Slack gets 503 and tells the person that it did not work. The service
sends the result of a click through the outbox, in the vote's transaction. The only call to Slack made here opens a
modal, which is possible only while the click's trigger is valid (3 seconds).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.error import BoltUnhandledRequestError
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from approvals.model import CardView, Choice, TaskAnswer, TaskState, TaskView
from approvals.slack import modals
from approvals.slack.calls import NOT_OPENED, open_window
from approvals.slack.cards import ACTION_IDS, ASK_AGAIN, OPEN, REVIEW
from approvals.slack.desk import DeskService, listen
from approvals.slack.edits import EditService
from approvals.slack.edits import listen as listen_to_edits
from approvals.slack.forms import errors_of, values_of
from approvals.slack.grants import GrantService
from approvals.slack.grants import listen as listen_to_grants
from approvals.slack.holds import HoldService
from approvals.slack.holds import listen as listen_to_holds
from approvals.slack.listing import ListService
from approvals.slack.listing import listen as listen_to_lists
from approvals.slack.payloads import (
    Click,
    Submission,
    TaskClick,
    TaskSubmission,
    parse_click,
    parse_submission,
    parse_task_click,
    parse_task_submission,
)
from approvals.slack.talks import TalkService
from approvals.slack.talks import listen as listen_to_talks
from approvals.slack.tasks import OPEN_ACTION, TASK_CALLBACK, closed_sentence, form_modal
from approvals.slack.windows import Windows
from core.canonical import JsonObject
from core.errors import InputError

_log = logging.getLogger("counterseal.slack")
# The buttons of a card. Bolt searches a name for a pattern, so this one holds both ends.
_ANSWERS = re.compile(rf"\A(?:{'|'.join(map(re.escape, (*ACTION_IDS.values(), REVIEW)))})\Z")
_ANY = re.compile(r"counterseal\.[a-z_]+")


class Answer(Struct, frozen=True):
    """The result of one person's answer, with a sentence for them. ``about_reason``: their reason was not accepted.

    ``noted``: the sentence is already being sent to them, so no window must be opened.
    """

    counted: bool
    sentence: str
    about_reason: bool = False
    noted: bool = False


class InteractionService(Protocol):
    """The service that handlers call for votes. Every method commits before it returns; a failure raises."""

    async def vote(self, click: Click) -> Answer:
        """Take a vote that needs no reason, and enqueue the sentence to the person in the same transaction."""

    async def submit(self, submission: Submission) -> Answer:
        """Take a vote from a modal (``choice`` is not None). The modal shows the sentence."""

    async def review(self, asked: Click | Submission) -> CardView | Answer:
        """The whole card, with sensitive values, for a person who may see it; otherwise an answer that says why not."""

    async def ask(self, click: Click) -> CardView | Answer:
        """The card for a window that asks for a reason, with secret values hidden; otherwise an answer with why not."""

    async def ask_again(self, click: Click) -> Answer:
        """Ask an expired question again, for whoever asked it; the answer tells the result."""

    async def note(self, click: Click, sentence: str) -> None:
        """Enqueue a sentence to the person who clicked."""


class TaskService(Protocol):
    """The service that handlers call for tasks. It finds the tenant and the person itself, never from the payload."""

    async def task(self, asked: TaskClick | TaskSubmission) -> TaskView | Answer:
        """The task, open or not; otherwise an answer that says why the person cannot see or complete it."""

    async def complete(self, submission: TaskSubmission, value: JsonObject) -> TaskAnswer:
        """Complete the task as the person who submitted; ``value`` is unchecked. See ``runtime.requests.tasks``."""

    async def note_task(self, click: TaskClick, sentence: str) -> None:
        """Enqueue a sentence to the person who clicked."""


def build_bolt(
    *,
    signing_secret: str,
    authorize: Callable[..., Awaitable[AuthorizeResult]],
    client: AsyncWebClient,
    service: InteractionService,
    tasks: TaskService,
    desk: DeskService | None = None,
    lists: ListService | None = None,
    holds: HoldService | None = None,
    talks: TalkService | None = None,
    edits: EditService | None = None,
    grants: GrantService | None = None,
) -> AsyncApp:
    """The Bolt app with our listeners. ``client`` has no retry handlers: a retry would come after the trigger's end."""
    # Bolt logs whole bodies at INFO (failed signatures) and DEBUG; its loggers copy this level.
    logger = logging.getLogger("counterseal.slack.bolt")
    logger.setLevel(logging.WARNING)
    bolt = AsyncApp(
        # Without a name, Bolt looks for one in the source of every caller: 70 ms. With each request it gives the level
        # of its own logger to the logger of this name.
        name=logger.name,
        logger=logger,
        signing_secret=signing_secret,
        authorize=authorize,
        client=client,
        process_before_response=True,
        raise_error_for_unhandled_request=True,
        ssl_check_enabled=False,
    )

    windows = Windows(signing_secret)
    # Bolt tries one listener after the other, and builds all arguments for each: the most frequent click comes first.
    _listen_to_clicks(bolt, windows, service, _ANSWERS)
    if desk is not None:
        listen(bolt, windows, desk)
    if lists is not None:
        listen_to_lists(bolt, windows, lists)
    if holds is not None:
        listen_to_holds(bolt, windows, holds)
    if talks is not None:
        listen_to_talks(bolt, windows, talks)
    if edits is not None:
        listen_to_edits(bolt, windows, edits)
    if grants is not None:
        listen_to_grants(bolt, windows, grants)
    _listen(bolt, windows, service, tasks)
    _listen_to_clicks(bolt, windows, service, _ANY)
    bolt.error(_failed)
    return bolt


def _listen_to_clicks(bolt: AsyncApp, windows: Windows, service: InteractionService, names: re.Pattern[str]) -> None:
    """Register the listener of a card's buttons of these names."""

    async def on_click(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        await _click(service, windows, client, parse_click(body))
        await ack()

    bolt.action(names)(on_click)


def _listen(bolt: AsyncApp, windows: Windows, service: InteractionService, tasks: TaskService) -> None:
    """Register the listeners of tasks, of their windows, and of the windows of cards."""

    async def on_open(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        await _open_task(tasks, windows, client, parse_task_click(body))
        await ack()

    async def on_complete(ack: AsyncAck, body: dict[str, Any]) -> None:
        asked = parse_task_submission(body)
        known = asked if windows.opened(body["view"], asked.clicker) else replace(asked, digest="")
        await ack(**await _complete_task(tasks, known))

    async def on_again(ack: AsyncAck, body: dict[str, Any], client: AsyncWebClient) -> None:
        click = parse_click(body)
        answer = await service.ask_again(click)
        if not answer.noted:
            await open_window(client, click.trigger_id, modals.answer(answer.sentence))
        await ack()

    async def on_submission(ack: AsyncAck, body: dict[str, Any]) -> None:
        asked = parse_submission(body)
        known = asked if windows.opened(body["view"], asked.clicker) else replace(asked, digest="")
        await ack(**await _submission(service, windows, known))

    async def on_link(ack: AsyncAck) -> None:
        await ack()  # Slack tells of a button that is only a link, too

    # Register tasks first: the pattern for a card's windows matches their names too, and Bolt takes the first match.
    bolt.action(OPEN_ACTION)(on_open)
    bolt.action(ASK_AGAIN)(on_again)
    bolt.action(OPEN)(on_link)
    bolt.view(TASK_CALLBACK)(on_complete)
    bolt.view(re.compile(r"counterseal\.[a-z_]+"))(on_submission)


async def _click(service: InteractionService, windows: Windows, client: AsyncWebClient, click: Click) -> None:
    if click.choice is Choice.APPROVE:
        await service.vote(click)
        return
    shown = await (service.review(click) if click.choice is None else service.ask(click))
    if isinstance(shown, Answer):
        if shown.noted:
            return
        modal = modals.answer(shown.sentence)
    else:
        modal = modals.review(shown) if click.choice is None else modals.reason(shown, click.choice)
    if not await open_window(client, click.trigger_id, windows.marked(modal, click.clicker)):
        await service.note(click, NOT_OPENED)


async def _submission(service: InteractionService, windows: Windows, submission: Submission) -> dict[str, Any]:
    """The answer to a modal: the next page, an error at the reason's field, or the service's sentence."""
    if submission.choice is None:
        shown = await service.review(submission)
        if isinstance(shown, CardView):
            page = windows.marked(modals.review(shown, submission.page + 1), submission.clicker)
            return {"response_action": "update", "view": page}
        return {"response_action": "update", "view": modals.answer(shown.sentence)}
    answer = await service.submit(submission)
    if answer.about_reason:
        return {"response_action": "errors", "errors": {modals.REASON_FIELD: answer.sentence}}
    return {"response_action": "update", "view": modals.answer(answer.sentence)}


async def _open_task(tasks: TaskService, windows: Windows, client: AsyncWebClient, click: TaskClick) -> None:
    shown = await tasks.task(click)
    if isinstance(shown, Answer):
        if shown.noted:
            return
        modal = modals.answer(shown.sentence)
    else:
        modal = form_modal(shown) if shown.state is TaskState.OPEN else modals.answer(closed_sentence(shown))
    if not await open_window(client, click.trigger_id, windows.marked(modal, click.clicker)):
        await tasks.note_task(click, NOT_OPENED)


async def _complete_task(tasks: TaskService, submission: TaskSubmission) -> dict[str, Any]:
    """The answer to a submitted form: faults at their fields, or the service's sentence.

    The form is read again, and ``task`` refuses what comes from a window that was not opened for this account and form.
    ``complete`` checks right, state and value, in this order, so that a person without the right learns nothing about
    the form.
    """
    shown = await tasks.task(submission)
    if isinstance(shown, Answer):
        return {"response_action": "update", "view": modals.answer(shown.sentence)}
    answer = await tasks.complete(submission, values_of(shown.form, submission.state))
    if answer.problems and not answer.accepted:
        return {"response_action": "errors", "errors": errors_of(shown.form, answer.problems)}
    return {"response_action": "update", "view": modals.answer(answer.sentence)}


async def _failed(error: Exception) -> BoltResponse:
    """The answer to Slack after a failure, instead of an acknowledgement. No log line holds a body."""
    if isinstance(error, InputError):
        return BoltResponse(status=400, body={"error": "malformed", "detail": str(error)})
    if isinstance(error, BoltUnhandledRequestError):
        return BoltResponse(status=404, body={"error": "unhandled"})
    _log.error("a Slack interaction failed and was not acknowledged", exc_info=error)
    return BoltResponse(status=503, body={"error": "unavailable"}, headers={"Retry-After": "1"})
