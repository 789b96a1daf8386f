"""The card of one approval, as Block Kit. Pure. Text from the request is in monospace; everything else is ours.

An open card has at most ten lines on a phone: the question, what would change, who asks and why, the small print, and
at most three buttons. A card with *Approve* shows all that would be changed. A card without room for that, or whose
values are hidden or come from outside, offers *Look and decide*: a window that shows everything and takes the decision.
Nothing is ever cut: what is not on the card is counted on it. A decided card folds to two lines, and has a
button only while something can be taken back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from approvals.content import CardState
from approvals.model import AGENT, ApprovalKind, CardView, Choice, choices_of
from approvals.slack import facts
from approvals.slack.blocks import (
    Block,
    code,
    context,
    entry,
    escaped,
    fits_message,
    header,
    link,
    plain,
    section,
    words,
)
from approvals.slack.details import moment
from approvals.slack.facts import Fact, Line
from approvals.slack.folded import ended
from approvals.slack.lines import OPEN_LINES_MAX, lines_of
from core.action import Risk

REVIEW = "counterseal.review"
ASK_AGAIN, TAKE_BACK = "counterseal.ask_again", "counterseal.take_back"
ACTION_IDS = {choice: f"counterseal.{choice}" for choice in Choice}
BUTTON_WORDS = {
    Choice.APPROVE: "Approve",
    Choice.REJECT: "Reject",
    Choice.HAPPENED: "It happened",
    Choice.AGAIN: "Do it again",
    Choice.FAIL: "It failed",
}
OPEN, IN_BROWSER = "counterseal.open_decide", "Approve in browser"
LOOK, DETAILS, AGAIN = "Look and decide", "Details", "Ask again"
_SHORT = 300


class Rendered(Struct, frozen=True):
    """A message: ``text`` for notifications, ``blocks`` for the screen.

    ``complete``: the blocks show all that a person decides on.
    """

    text: str
    blocks: list[Block]
    complete: bool


def render_short(view: CardView) -> Rendered:
    """Draw a card of our own words alone, if Slack refuses the full card: the window shows the whole request."""
    shown = "*Slack did not take the whole card.* Nothing of the request is shown here"
    pending = view.state is CardState.PENDING
    body = [section(f"{shown}; *{LOOK if pending else DETAILS}* shows all of it. Risk *{view.content.risk}*.")]
    buttons = [actions([_look(view)])] if pending else [actions([_details(view)])]
    return Rendered("A question for you", [header(_GENERIC[view.kind]), *body, *buttons], complete=False)


def render(view: CardView) -> Rendered:
    """Draw the card in its current state."""
    hidden = replace(view, content=view.content.masked())
    if view.state is not CardState.PENDING:
        text, blocks = ended(hidden)
        folded = len(blocks) == 1
        buttons = [_again(view)] if view.again and not folded else []
        buttons += [_take_back(view)] if view.granted is not None and view.granted.open else []
        buttons += [] if folded else [_details(view)]
        return Rendered(text, [*blocks, *([actions(buttons)] if buttons else [])], complete=folded)
    doubt = view.kind is ApprovalKind.IN_DOUBT
    complete, body = _doubt(hidden) if doubt else _question(hidden)
    if view.step_up is not None:
        buttons = _in_browser(view, complete=complete)
    else:
        buttons = _answers(view) if complete else [_look(view), *([] if doubt else [_choice(view, Choice.REJECT)])]
    return Rendered(notification(view), [header(heading(view)), *body, actions(buttons)], complete)


def button_value(view: CardView) -> str:
    """The value of a button: the approval's id and the card's nonce. Opaque; grants nothing."""
    return json.dumps({"a": str(view.approval_id), "n": view.nonce}, separators=(",", ":"))


def actions(buttons: Sequence[Block]) -> Block:
    """A row of buttons."""
    return {"type": "actions", "elements": [*buttons]}


def _answers(view: CardView) -> list[Block]:
    offered = [_choice(view, choice) for choice in choices_of(view.kind, view.content.connector)]
    return offered if view.kind is ApprovalKind.IN_DOUBT else [*offered, _details(view)]


def _in_browser(view: CardView, *, complete: bool) -> list[Block]:
    """The buttons of a question that needs a fresh login: people log in and approve on its page in the browser."""
    leads = {"type": "button", "text": plain(IN_BROWSER), "action_id": OPEN, "style": "primary"}
    there = [{**leads, "url": f"{view.link}#decide"}] if view.link else []
    return [*there, *([] if complete and there else [_details(view)]), _choice(view, Choice.REJECT)]


def _look(view: CardView) -> Block:
    return button(LOOK, REVIEW, button_value(view))


def _details(view: CardView) -> Block:
    return button(DETAILS, REVIEW, button_value(view))


def _again(view: CardView) -> Block:
    return button(AGAIN, ASK_AGAIN, button_value(view))


def _take_back(view: CardView) -> Block:
    return button("Take back…", TAKE_BACK, button_value(view))


def _choice(view: CardView, choice: Choice) -> Block:
    style = {Choice.APPROVE: {"style": "primary"}, Choice.REJECT: {"style": "danger"}}.get(choice, {})
    label = BUTTON_WORDS[choice] if choice is Choice.APPROVE else f"{BUTTON_WORDS[choice]}…"
    drawn = button(label, ACTION_IDS[choice], button_value(view), **style)
    if choice is Choice.APPROVE and view.content.risk is Risk.HIGH:
        undo = "It can be undone." if view.content.reversible else "It cannot be undone."
        asked = {"title": plain("Approve this?"), "text": plain(f"This action is of high risk. {undo}")}
        drawn["confirm"] = {**asked, "confirm": plain("Approve"), "deny": plain("Back")}
    return drawn


_GENERIC = {
    ApprovalKind.ACTION: "Shall this be done?",
    ApprovalKind.GATE: "Shall this go on?",
    ApprovalKind.IN_DOUBT: "Was this done?",
}


def heading(view: CardView) -> str:
    """The question, as a heading: the author's words, or ours if these are too long for one."""
    question = view.content.question
    if not question:
        return _GENERIC[view.kind]
    return f"{question.removesuffix('?')}: was it done?" if view.kind is ApprovalKind.IN_DOUBT else question


def notification(view: CardView) -> str:
    """The line in a notification. It shows the question in full or, if that is long, not at all."""
    content = view.content
    if content.question:
        return escaped(heading(view), edges=False)
    return f"{heading(view)} {code(content.title)}" if len(escaped(content.title)) <= _SHORT else heading(view)


def card_body(view: CardView) -> list[Block]:
    """The body of an open card, as a window repeats it above the decision, with the values that it may show there."""
    return _doubt(view)[1] if view.kind is ApprovalKind.IN_DOUBT else _question(view)[1]


def _fits(view: CardView, body: list[Block]) -> bool:
    drawn = [header(heading(view)), *body]
    rows = lines_of([actions(_answers(view))])
    return lines_of(drawn) + rows <= OPEN_LINES_MAX and fits_message(drawn)


def _question(view: CardView) -> tuple[bool, list[Block]]:
    """The body of an open question, and true if it shows all that a person decides on."""
    content = view.content
    lines = facts.value_lines(content)
    texts = [] if content.question else [content.title]
    texts += [content.summary] if (texts or not lines) and content.summary not in ("", content.question, *texts) else []
    lines = [*(Line("\n".join(filter(None, entry("", each))), outside=False) for each in texts), *lines]
    about, small = [*facts.request_facts(view)], " · ".join(facts.small_facts(view))
    free = not content.sensitive and not any(line.outside for line in lines)
    return next((free and whole, body) for whole, body in _bodies(lines, about, small) if _fits(view, body))


def _bodies(lines: Sequence[Line], about: Sequence[Fact], small: str) -> Iterator[tuple[bool, list[Block]]]:
    """Yield the bodies, the fullest first, and true if a body is complete. A body counts what it leaves out."""
    lines = sorted(lines, key=lambda line: line.text.count("\n") > 1)  # what is long leaves first
    for short in _shortened(about):
        texts = [fact.short if at in short else fact.whole for at, fact in enumerate(about)]
        whole = not any(about[at].vital for at in short)
        for count in range(len(lines), -1, -1):
            shown = [*(line.text for line in lines[:count]), *_omitted(lines, count)]
            yield whole and count == len(lines), _body(shown, texts, small)
    yield False, _body(_omitted(lines, 0), ["*Too long for a card*"], f"*{LOOK}* shows all of it")
    yield False, [section(f"*Too long for a card: {LOOK}* shows all of it")]


def _shortened(about: Sequence[Fact]) -> Iterator[frozenset[int]]:
    """Yield the facts to shorten: first none, then those that do not matter for the decision, then the longest ones."""
    order = sorted(range(len(about)), key=lambda at: (about[at].vital, -len(about[at].whole)))
    for number in range(len(order) + 1):
        yield frozenset(order[:number])


def _omitted(lines: Sequence[Line], count: int) -> list[str]:
    """The lines that count what is left out."""
    left = lines[count:]
    if not left:
        return []
    noun = "field" if len(left) == 1 else "fields"
    rows = [line.text.count("\n") + 1 for line in left if not line.outside]
    if rows and (most := max(rows)) > 2:
        return [f"*{most} lines*, too long for a card"]
    summary = [f"*{len(left)} more {noun}*" if count else f"*{len(left)} {noun}*, too long for a card"]
    outside = sum(line.outside for line in left)
    return [*summary, *([f"*Nobody of yours chose {outside} of its values*"] if outside else [])]


def _body(lines: Sequence[str], about: Sequence[str], small: str) -> list[Block]:
    first = [section("\n".join(lines))] if lines else []
    return [*first, section("\n".join(about)), context(small)]


def _doubt(view: CardView) -> tuple[bool, list[Block]]:
    """The body of a question about an action in doubt: when it was sent, what is known, where to look."""
    content = view.content
    sent = f"Sent {moment(content.sent_at)}" if content.sent_at else "It was sent"
    answered = f", answered {code(content.answer)}" if content.answer else ", no answer"
    source = "What is known" if content.connector == AGENT else "The system says"
    shown = f" {source}: {code(content.evidence)}" if content.evidence else ""
    named = code(content.target) if content.target else "the record"
    label = words(content.reference) if content.reference else "the record"
    place = link(content.link, label if "`" not in label else "the record") or named
    reference = [facts.reference_words(content.reference)] if content.reference and not place.startswith("<") else []
    small = " · ".join([*reference, *facts.small_facts(view)])
    warned = [fact.whole for fact in facts.request_facts(view)][1:]
    look = "\n".join([f"*Look first:* {place}", *warned])
    whole = [section(f"{sent}{answered}.{shown}"), section(look), context(small)]
    if _fits(view, whole):
        return not content.sensitive, whole
    body = [section(f"{sent}. *{LOOK}* shows what the system says."), section(f"*Look first:* {place}"), context(small)]
    if not _fits(view, body):
        body = [section(f"{sent}. *{LOOK}* shows all of it.")]
    return False, body


def button(label: str, action_id: str, value: str, **more: str) -> Block:
    """A button; ``more`` holds further members for Slack, such as ``style``."""
    return {"type": "button", "text": plain(label), "action_id": action_id, "value": value, **more}
