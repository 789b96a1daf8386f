"""Posting and redrawing cards and tasks through Slack's Web API. One attempt per call: the outbox does the retries."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from slack_sdk.web.async_client import AsyncWebClient

from approvals.lists import ListView
from approvals.model import CardView, TaskView
from approvals.notices import Notice
from approvals.ports import Absent, FindOutcome, MessageRef, NotPosted, Posted, PostInDoubt, PostOutcome, PostRefused
from approvals.slack.blocks import escaped, plain_sections
from approvals.slack.calls import Answered, call
from approvals.slack.cards import Rendered, render, render_short
from approvals.slack.lists import render as render_list
from approvals.slack.mentions import called
from approvals.slack.notices import render as render_notice
from approvals.slack.tasks import render as render_task
from core.errors import ConfigurationError
from core.legible import embedded, visible

EVENT_TYPE = "counterseal_approval"
# Slack's errors for a message that it refuses because of its content.
_TOO_MUCH = frozenset({
    "invalid_blocks", "invalid_blocks_format", "invalid_arguments", "msg_too_long", "msg_blocks_too_long",
    "too_many_blocks", "no_text", "invalid_attachments",
})  # fmt: skip
_PAGE_MESSAGES = 200
_PAGES_MAX = 25
_SINCE_MARGIN_SECONDS = 60.0  # allowed difference between the database's clock and Slack's


class SlackMessenger:
    """A Messenger over one Slack workspace.

    ``client`` has ``retry_handlers=[]`` (a retry after a lost answer would post a card twice) and a shared ``session``.
    ``pages`` is the address below which questions have pages of their own (``/approvals/ID``), "" for none.
    """

    def __init__(self, client: AsyncWebClient, *, timeout_seconds: float = 10.0, pages: str = "") -> None:
        if client.retry_handlers:
            message = "the Slack client retries by itself, which can post a card twice"
            raise ConfigurationError(message, remedy="Construct AsyncWebClient(retry_handlers=[]).")
        self._client, self._pages = client, pages
        self._timeout_seconds = timeout_seconds
        self._own_user: str | None = None
        self._url = ""

    async def post_card(self, channel: str, view: CardView, key: str) -> PostOutcome:
        """Post the card with ``key`` in its metadata, which anybody in the workspace may read."""
        view = self._linked(view)
        posted = await self._post(channel, called(render(view), view), key)
        if not _too_much(posted):
            return posted
        posted = await self._post(channel, called(render_short(view), view), key)
        return replace(posted, short=True) if isinstance(posted, Posted) else posted

    async def update_card(self, ref: MessageRef, view: CardView) -> PostOutcome:
        """Redraw the card. Always sends blocks: without them Slack would keep the old ones with their buttons."""
        view = self._linked(view)
        if view.anew_place is not None:
            view = replace(view, anew_link=await self._link(*view.anew_place))
        drawn = await self._update(ref, called(render(view), view))
        if not _too_much(drawn):
            return drawn
        drawn = await self._update(ref, called(render_short(view), view))
        return replace(drawn, short=True) if isinstance(drawn, Posted) else drawn

    async def post_list(self, channel: str, view: ListView, key: str) -> PostOutcome:
        """Post the card of a list; ``find_card`` finds it by ``key``."""
        posted = await self._post(channel, render_list(self._on_page(view)), key)
        if not _too_much(posted):
            return posted
        posted = await self._post(channel, render_list(self._on_page(view), short=True), key)
        return replace(posted, short=True) if isinstance(posted, Posted) else posted

    async def update_list(self, ref: MessageRef, view: ListView) -> PostOutcome:
        """Redraw the card of a list."""
        drawn = await self._update(ref, render_list(self._on_page(view)))
        if not _too_much(drawn):
            return drawn
        drawn = await self._update(ref, render_list(self._on_page(view), short=True))
        return replace(drawn, short=True) if isinstance(drawn, Posted) else drawn

    def _on_page(self, view: ListView) -> ListView:
        at = f"{self._pages}/approvals/{view.first.approval_id}/list" if self._pages else ""
        return replace(view, link=at)

    def _linked(self, view: CardView) -> CardView:
        return replace(view, link=f"{self._pages}/approvals/{view.approval_id}") if self._pages else view

    async def post_task(self, channel: str, view: TaskView, key: str) -> PostOutcome:
        """Post the task like a card; ``find_card`` finds it by ``key``."""
        return await self._post(channel, render_task(view), key)

    async def update_task(self, ref: MessageRef, view: TaskView) -> PostOutcome:
        """Redraw the task."""
        return await self._update(ref, render_task(view))

    async def post_thread(self, ref: MessageRef, text: str, key: str) -> PostOutcome:
        """Post text in a card's thread."""
        return await self._post(ref.channel, _words(text), key, thread_ts=ref.ts)

    async def post_notice(self, to: str, notice: Notice, key: str) -> PostOutcome:
        """Send a direct message. Slack takes the account for its channel, and answers with the channel's id."""
        return await self._post(to, render_notice(notice), key)

    async def update_notice(self, ref: MessageRef, notice: Notice) -> PostOutcome:
        """Redraw a direct message."""
        return await self._update(ref, render_notice(notice))

    async def find_notice(self, to: str, key: str, *, since: float) -> FindOutcome:
        """Search the direct messages between us and this account."""
        opened = await call(self._client.conversations_open(users=to), timeout_seconds=self._timeout_seconds)
        if not isinstance(opened, dict):
            return NotPosted(opened.message) if isinstance(opened, PostInDoubt) else opened
        return await self.find_card(str((opened.get("channel") or {}).get("id")), key, since=since)

    async def post_ephemeral(self, channel: str, user: str, text: str) -> PostOutcome:
        """Answer one person, who must be in the channel."""
        drawn = _words(text)
        request = self._client.chat_postEphemeral(channel=channel, user=user, text=drawn.text, blocks=drawn.blocks)
        answer = await call(request, timeout_seconds=self._timeout_seconds)
        return Posted(MessageRef(channel, str(answer.get("message_ts", "")))) if isinstance(answer, dict) else answer

    async def find_card(self, channel: str, key: str, *, since: float) -> FindOutcome:
        """Search the channel's history, newest first. Only our own messages count: anybody can write metadata."""
        if (unknown := await self._know()) is not None:
            return NotPosted(unknown.message) if isinstance(unknown, PostInDoubt) else unknown
        cursor: str | None = None
        for _ in range(_PAGES_MAX):
            request = self._client.conversations_history(
                channel=channel,
                oldest=f"{since - _SINCE_MARGIN_SECONDS:.6f}",
                inclusive=True,
                include_all_metadata=True,
                limit=_PAGE_MESSAGES,
                cursor=cursor,
            )
            answer = await call(request, timeout_seconds=self._timeout_seconds)
            if not isinstance(answer, dict):
                return NotPosted(answer.message) if isinstance(answer, PostInDoubt) else answer
            for message in answer.get("messages", []):
                if message.get("user") == self._own_user and _key_of(message) == key:
                    return Posted(MessageRef(channel, str(message["ts"])))
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                # has_more without a cursor: older messages exist, but we cannot read them
                return NotPosted("Slack did not give the whole history") if answer.get("has_more") else Absent()
        return NotPosted(f"the channel has more than {_PAGES_MAX * _PAGE_MESSAGES} messages since the card was due")

    async def _know(self) -> NotPosted | PostInDoubt | PostRefused | None:
        """Ask Slack once who we are, and where our workspace is; a failure, or None once we know."""
        if self._own_user is None:
            answer = await call(self._client.auth_test(), timeout_seconds=self._timeout_seconds)
            if not isinstance(answer, dict):
                return answer
            self._own_user, self._url = str(answer["user_id"]), str(answer.get("url") or "")
        return None

    async def _link(self, channel: str, ts: str) -> str:
        """The address of a message in our workspace; "" if Slack does not tell where that is."""
        await self._know()
        return f"{self._url}archives/{channel}/p{ts.replace('.', '')}" if self._url else ""

    async def _update(self, ref: MessageRef, drawn: Rendered) -> PostOutcome:
        request = self._client.chat_update(channel=ref.channel, ts=ref.ts, text=drawn.text, blocks=drawn.blocks)
        return _posted(await call(request, timeout_seconds=self._timeout_seconds), ref.channel)

    async def _post(self, channel: str, drawn: Rendered, key: str, thread_ts: str | None = None) -> PostOutcome:
        request = self._client.chat_postMessage(
            channel=channel,
            text=drawn.text,
            blocks=drawn.blocks,
            thread_ts=thread_ts,
            unfurl_links=False,
            unfurl_media=False,
            metadata={"event_type": EVENT_TYPE, "event_payload": {"key": key}},
        )
        return _posted(await call(request, timeout_seconds=self._timeout_seconds), channel)


def _posted(answer: Answered | NotPosted | PostInDoubt | PostRefused, channel: str) -> PostOutcome:
    if not isinstance(answer, dict):
        return answer
    ts = answer.get("ts")
    if not isinstance(ts, str):
        return PostInDoubt("Slack's answer has no timestamp of the message")
    # A direct message is sent to a user id. Slack answers with the id of its D… channel, which updates need.
    return Posted(MessageRef(str(answer.get("channel") or channel), ts))


def _too_much(outcome: PostOutcome) -> bool:
    """True if Slack refused the card because of its content: it may accept a short card."""
    return isinstance(outcome, PostRefused) and outcome.code in _TOO_MUCH


def _key_of(message: dict[str, Any]) -> str | None:
    match message.get("metadata"):
        case {"event_type": str(kind), "event_payload": {"key": str(key)}} if kind == EVENT_TYPE:
            return key
    return None


def _words(text: str) -> Rendered:
    """Text as a message; the blocks hold all of it."""
    line = embedded(escaped(text, edges=False))
    short = line if len(line) <= 3000 else "A message from Counterseal"
    return Rendered(short, plain_sections(embedded(visible(text, edges=False))), complete=True)
