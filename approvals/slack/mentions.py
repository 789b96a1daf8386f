"""Mentions on open cards, and the sentence of their notifications. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from approvals.content import CardState
from approvals.model import ApprovalKind, Call, CardView
from approvals.slack.blocks import Block, words
from approvals.slack.cards import Rendered
from approvals.slack.details import moment

_LONG = 300
_ASKED = {
    ApprovalKind.ACTION: "{asker} asks: {title}.",
    ApprovalKind.GATE: "{asker} asks: {title}.",
    ApprovalKind.IN_DOUBT: "In doubt, was it done? {title}.",
}


def called(drawn: Rendered, view: CardView) -> Rendered:
    """The card of an open question with those who may vote mentioned, and a sentence for the notification.

    A mention counts in a block: Slack reads ``text`` only for the notification. A card that is redrawn calls nobody
    again: Slack notifies of posts, not of edits.
    """
    call = view.call
    if call is None or view.state is not CardState.PENDING:
        return drawn
    return replace(drawn, text=_sentence(view, call), blocks=[*drawn.blocks, *mentions(call)])


def _sentence(view: CardView, call: Call) -> str:
    content = view.content
    title = content.title if len(content.title) <= _LONG else f"{content.workflow} {content.reference}".strip()
    asked = _ASKED[view.kind].format(asker=words(call.asker), title=words(title.rstrip(".?")))
    return f"{asked} Until {moment(content.expires_at)}" if content.expires_at else asked


def mentions(call: Call) -> list[Block]:
    """The line that mentions those who may still vote; nothing if nobody is known."""
    named = [f"<@{account}>" for account in call.accounts]
    named += [f"<!subteam^{group}>" for group in call.slack_groups]
    named += [f"members of {words(group)}" for group in call.groups]
    if not named:
        return []
    element = {"type": "mrkdwn", "text": f"For {', '.join(named)}", "verbatim": True}
    return [{"type": "context", "elements": [element]}]
