"""Modals: the full text with the decision at its end, the reason for a rejection, and answers. Pure.

Each further page is the answer to a submission, so that only the first page needs a call to Slack.
"""

from __future__ import annotations

import json
from datetime import timedelta

from approvals.content import CardState
from approvals.model import ApprovalKind, CardView, Choice, choices_of
from approvals.quorum import REASON_CHARACTERS_MAX
from approvals.slack.blocks import (
    Block,
    code,
    context,
    entry,
    header,
    pages,
    plain,
    plain_sections,
    section,
    sections,
    words,
)
from approvals.slack.cards import BUTTON_WORDS, IN_BROWSER, actions, button, button_value, card_body, heading
from approvals.slack.details import content_lines, outcome_lines, statement_lines, vote_lines
from approvals.slack.folded import granted_words, word_of
from approvals.talk import WORDS, Saying
from core.durations import format_duration
from core.legible import embedded, visible

REASON_CALLBACK = "counterseal.reason"
REVIEW_CALLBACK = "counterseal.review"
REASON_FIELD = "reason"
TALK, EDIT, EDITS = "counterseal.talk.", "counterseal.edit", "edits"
CHOICE_FIELD = "choice"
GRANT_FIELD = "grant"
ONCE = "once"


# The consequence of each answer to a doubt.
_CAUSES = {
    Choice.HAPPENED: "The run goes on as if it was done once. Nothing is sent.",
    Choice.AGAIN: "The same call is sent once more. If it did happen after all, it happens twice.",
    Choice.FAIL: "The step counts as failed, and the run goes on from there. Nothing is sent.",
}


def review(view: CardView, page: int = 0) -> Block:
    """Page ``page`` of the full text (from 0, at most the last). The last page asks for the decision, at its top."""
    given = [f"*In advance:* {granted_words(view.granted)}"] if view.granted is not None else []
    history = [*statement_lines(view), *outcome_lines(view), *given, *vote_lines(view)]
    all_pages = pages(sections([*content_lines(view.content), *history]))
    page = max(0, min(page, len(all_pages) - 1))
    last = page == len(all_pages) - 1
    place = [section(f"Page {page + 1} of {len(all_pages)}")] if len(all_pages) > 1 else []
    open_ = view.state is CardState.PENDING
    asked = [*card_body(view), *_decision(view), *_in_advance(view)] if last and open_ else []
    asked += [*_offered(view), header("All of it")] if asked else []
    head = heading(view) if open_ else word_of(view)
    title = "Look and decide" if open_ else "Details"
    drawn = modal(title, [header(head), *place, *asked, *all_pages[page]], close="Close")
    if not last or open_:
        metadata = {"a": str(view.approval_id), "n": view.nonce, "d": view.digest, "p": page, "l": last}
        drawn |= {"callback_id": REVIEW_CALLBACK, "private_metadata": json.dumps(metadata)}
        drawn["submit"] = plain("Send" if last else "Next page")
    return drawn


def reason(view: CardView, choice: Choice) -> Block:
    """A window that asks for the reason of an answer. It repeats the question, and says what the answer will cause."""
    content = view.content
    question = heading(view) if content.question else ""
    repeated = plain_sections(embedded(visible(question, edges=False))) or sections(entry("", content.title))
    if choice in _CAUSES:
        cause = _CAUSES[choice]
    else:
        who = words(content.asker) if content.asker else code(content.requester)
        cause = f"Nothing is done then. {who}, who asked, reads your reason, and so does whoever may see the run."
    drawn = modal(BUTTON_WORDS[choice], [*repeated, _reason_input(optional=False), context(cause)], close="Back")
    metadata = {"a": str(view.approval_id), "n": view.nonce, "d": view.digest, "c": str(choice)}
    sent = {"callback_id": REASON_CALLBACK, "private_metadata": json.dumps(metadata), "submit": plain("Send")}
    return {**drawn, **sent}


def answer(sentence: str) -> Block:
    """A modal that tells one person the result of their answer. The sentence may name people and groups."""
    return modal("Counterseal", plain_sections(embedded(visible(sentence, edges=False))), close="Close")


def _offered(view: CardView) -> list[Block]:
    """The row of buttons for what the viewer may say about the question now; none if they may say nothing."""
    value = button_value(view)
    drawn = [button(f"{WORDS[one]}…", f"{TALK}{one}", value) for one in Saying if one in view.offers]
    drawn += [button("Edit…", EDIT, value)] if EDITS in view.offers else []
    return [actions(drawn)] if drawn else []


def _in_advance(view: CardView) -> list[Block]:
    """The choice to allow the same again in advance, within the bounds of policy; nothing if policy has none."""
    bounds = view.grants
    if bounds is None:
        return []
    most, seconds = bounds["uses"], bounds["seconds"]
    uses = sorted({1, max(1, most // 2), most})
    who = " by this agent" if view.of_agent else ""
    duration = format_duration(timedelta(seconds=seconds)).removeprefix("P").removeprefix("T").lower()
    labels = {n: f"Also the next {'one' if n == 1 else n}{who}, for {duration}" for n in uses}
    options = [{"text": plain("Only this once"), "value": ONCE}]
    options += [{"text": plain(words_), "value": f"{n}:{seconds}"} for n, words_ in labels.items()]
    radio = {"type": "radio_buttons", "action_id": GRANT_FIELD, "options": options, "initial_option": options[0]}
    return [{"type": "input", "block_id": GRANT_FIELD, "label": plain("If you approve"), "element": radio}]


def _decision(view: CardView) -> list[Block]:
    kind, anew = view.kind, view.step_up is not None
    every = choices_of(kind, view.content.connector)
    offered = [choice for choice in every if not anew or choice is not Choice.APPROVE]
    options = [{"text": plain(BUTTON_WORDS[choice]), "value": str(choice)} for choice in offered]
    radio = {"type": "radio_buttons", "action_id": CHOICE_FIELD, "options": options}
    return [
        *([context(f"To approve it, log in anew on its page: *{IN_BROWSER}* on the card leads there")] if anew else []),
        {"type": "input", "block_id": CHOICE_FIELD, "label": plain("Your answer"), "element": radio},
        _reason_input(optional=kind is not ApprovalKind.IN_DOUBT),
    ]


def _reason_input(*, optional: bool) -> Block:
    label = plain("Reason (needed to reject)" if optional else "Reason")
    element = {"type": "plain_text_input", "action_id": REASON_FIELD, "multiline": True}
    element["max_length"] = REASON_CHARACTERS_MAX
    return {"type": "input", "block_id": REASON_FIELD, "optional": optional, "label": label, "element": element}


def modal(title: str, blocks: list[Block], *, close: str) -> Block:
    """A modal. ``title`` has at most 24 characters. If blocks ask for input, the caller must add ``submit``."""
    return {"type": "modal", "title": plain(title), "close": plain(close), "blocks": blocks}
