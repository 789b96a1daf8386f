"""The card of one approval, as Block Kit. Pure.

A card that can be decided is complete. One that would not fit Slack's limits, or that has sensitive fields, offers only
*Review*, which shows everything in a modal and takes the decision there; nothing is cut silently anywhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from approvals.content import CardContent, CardState
from approvals.model import CardView, Choice, choices_of
from approvals.slack.blocks import Block, fits_message, header, plain, section, sections, small_print
from approvals.slack.lines import content_lines, decision_lines, detail_lines, heading, outcome_lines, vote_lines
from approvals.slack.text import code, shown
from core.action import Risk

REVIEW = "counterseal.review"
ACTION_IDS = {choice: f"counterseal.{choice}" for choice in Choice}
BUTTON_WORDS = {
    Choice.APPROVE: "Approve",
    Choice.REJECT: "Reject",
    Choice.HAPPENED: "It happened",
    Choice.AGAIN: "Do it again",
    Choice.FAIL: "Count it as failed",
}
_SHORT = 300


@dataclass(frozen=True, slots=True)
class Rendered:
    """A message: ``text`` for notifications, ``blocks`` for the screen. ``complete``: nothing is left to Review."""

    text: str
    blocks: list[Block]
    complete: bool


def render(view: CardView) -> Rendered:
    """Draw the card as it stands."""
    masked = bool(view.content.sensitive)
    content = view.content.masked()
    footer = [*outcome_lines(view), *vote_lines(view)]
    body = [*sections(decision_lines(content)), *sections(footer), *small_print(detail_lines(content))]
    complete = not masked and fits_message(body)
    if masked and fits_message(body):
        body.append(section("Hidden values stay out of this channel. *Review* shows them to those who may decide."))
    elif not fits_message(body):
        body = _short_body(view)
    blocks = [header(heading(view)), *body, *_buttons(view, complete), *link_line(view.link)]
    return Rendered(notification(heading(view), content.title), blocks, complete)


def button_value(view: CardView) -> str:
    """What a button carries: which question, and which printing of its card. Opaque; grants nothing."""
    return json.dumps({"a": str(view.approval_id), "n": view.nonce}, separators=(",", ":"))


def _buttons(view: CardView, complete: bool) -> list[Block]:
    review = _button("Review", REVIEW, button_value(view))
    if view.state is not CardState.PENDING:
        buttons = [] if complete else [review]
    elif complete:
        buttons = [_choice_button(view, choice) for choice in choices_of(view.kind)]
    else:
        buttons = [{**review, "style": "primary"}]
    return [{"type": "actions", "elements": buttons}] if buttons else []


def _choice_button(view: CardView, choice: Choice) -> Block:
    button = _button(BUTTON_WORDS[choice], ACTION_IDS[choice], button_value(view))
    if choice is Choice.APPROVE:
        button["style"] = "primary"
        if view.content.risk is Risk.HIGH:
            button["confirm"] = _confirmation(view.content)
    elif choice is Choice.REJECT:
        button["style"] = "danger"
    return button


def _confirmation(content: CardContent) -> Block:
    undo = "It can be undone." if content.reversible else "It cannot be undone."
    text = plain(f"This action is of high risk. {undo}")
    return {"title": plain("Approve this?"), "text": text, "confirm": plain("Approve"), "deny": plain("Back")}


def _button(words: str, action_id: str, value: str) -> Block:
    return {"type": "button", "text": plain(words), "action_id": action_id, "value": value}


def _short_body(view: CardView) -> list[Block]:
    """What a card says that cannot say everything: its size, and the facts that are short."""
    content = view.content
    size = sum(len(line) for line in content_lines(content))
    lines = [
        "*This request is too long for a card.* Nothing of it is shown in part.",
        f"{len(content.changes)} changed and {len(content.inputs)} other fields, {size} characters in all.",
        f"Risk *{content.risk}*.",
        *("*Cannot be undone*" for _ in range(not content.reversible)),
        *_if_short("*Request*", content.title),
        *_if_short("*Target*", content.target),
        *_if_short("*Operation*", content.operation),
        *_if_short("*Requested by*", content.requester),
        *_if_short("*Outcome*", view.detail),
        *_if_short("*Late answer*", view.late),
        f"{len(view.votes)} votes so far.",
        "*Review* shows all of it.",
    ]
    return sections(lines)


def _if_short(label: str, text: str) -> list[str]:
    if not text:
        return []
    return [f"{label} {code(text)}"] if len(shown(text)) <= _SHORT else [f"{label} is in *Review*"]


def link_line(link: str) -> list[Block]:
    """A link of ours; a setting decides its beginning, so only a plain web address is drawn."""
    if not link.startswith(("https://", "http://")) or set(link) & set("<>| `") or len(link) > 2000:
        return []
    if not (link.isascii() and link.isprintable()):
        return []
    address = link.replace("&", "&amp;")
    return [{"type": "context", "elements": [{"type": "mrkdwn", "text": f"<{address}|Open in Counterseal>"}]}]


def notification(words: str, title: str) -> str:
    """The line in a notification: short, and never a part of something longer."""
    return f"{words}: {code(title)}" if len(shown(title)) <= _SHORT else words
