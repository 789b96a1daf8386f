"""The app's Home: the questions that wait for one person, and the state of their requests. Pure. It decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from approvals.model import Granted
from approvals.slack.blocks import Block, header, link_line, plain, section, words
from approvals.slack.cards import AGAIN, button
from approvals.slack.details import moment
from approvals.slack.folded import granted_words

LOOK = "counterseal.home"
HOME_AGAIN, HOME_TAKE_BACK = "counterseal.home.ask_again", "counterseal.home.take_back"
QUESTIONS_MAX = 20
REQUESTS_MAX = 5
_LONG = 200


class Waiting(Struct, frozen=True):
    """A question that waits for a person: its title, subject, tier, deadline and place."""

    title: str
    about: str
    weight: str
    until: str
    link: str


class Request(Struct, frozen=True):
    """A request of a person: its state in a word, its title, and ``since`` when (ISO 8601).

    ``again`` is the value of a button to ask again, "" for none.
    """

    word: str
    about: str
    since: str
    again: str = ""


class Grant(Struct, frozen=True):
    """Something that a person has allowed in advance: its title, the grant, and the value of its button."""

    title: str
    given: Granted
    value: str


def home(waiting: Sequence[Waiting], requests: Sequence[Request], link: str = "", given: Sequence[Grant] = ()) -> Block:
    """The view. Questions come in the order of their deadlines; those without room are counted."""
    titles = {0: "Nothing waits for you", 1: "1 question waits for you"}
    title = titles.get(len(waiting), f"{len(waiting)} questions wait for you")
    order = "The one that runs out first is on top. Nothing is approved because time passes."
    shown = sorted(waiting, key=lambda one: one.until or "~")[:QUESTIONS_MAX]
    left = len(waiting) - len(shown)
    blocks = [header(title), _context(order if waiting else "Questions of your groups come here. Nothing is due.")]
    blocks += [_question(one, number) for number, one in enumerate(shown, 1)]
    blocks += [_context(f"and {left} more")] if left else []
    blocks += [{"type": "divider"}, section("*Your requests*"), *map(_request, requests[:REQUESTS_MAX])]
    blocks += [] if requests else [_context("You have asked for nothing yet.")]
    if given:
        blocks += [{"type": "divider"}, section("*What you have allowed in advance*"), *map(_grant, given)]
    return {"type": "home", "blocks": [*blocks, *link_line(link)]}


def refused(sentence: str) -> Block:
    """The view for somebody who is not known here, or who cannot be looked up."""
    return {"type": "home", "blocks": [{"type": "section", "text": plain(sentence)}]}


def _question(one: Waiting, number: int) -> Block:
    title = words(one.title) if len(one.title) <= _LONG else "A question with a long title"
    until = f" · until {moment(one.until)}" if one.until else ""
    drawn = section(f"*{title}*\n{words(one.about)}\n{one.weight.capitalize()}{until}")
    if one.link:
        label = f"Look at: {one.title}"
        drawn["accessory"] = {
            "type": "button",
            "text": plain("Look"),
            "action_id": f"{LOOK}.{number}",
            "url": one.link,
            **({"accessibility_label": label} if len(label) <= 75 else {}),
        }
    return drawn


def _request(one: Request) -> Block:
    drawn = section(f"*{one.word}:* {words(one.about)}\nsince {moment(one.since)}")
    return {**drawn, "accessory": button(AGAIN, HOME_AGAIN, one.again)} if one.again else drawn


def _grant(one: Grant) -> Block:
    title = words(one.title) if len(one.title) <= _LONG else "An action with a long title"
    drawn = section(f"*{title}*\n{granted_words(one.given)}")
    return {**drawn, "accessory": button("Take back…", HOME_TAKE_BACK, one.value)}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}
