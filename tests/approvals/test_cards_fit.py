"""Cards on a phone, in a real browser: at most ten lines open and two folded, nothing leaves them; and as designed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from playwright.async_api import async_playwright

from approvals.content import CardState
from approvals.slack.cards import render
from approvals.slack.lines import FOLDED_LINES_MAX, OPEN_LINES_MAX, lines_of
from sandbox.slack_blocks import message_problems, view_problems
from tests.support import card_page
from tests.support.card_scenes import scenes, windows

FOLDED = {"decided", "executing", "applied", "rejected", "superseded", "denied", "canceled"}
# The designed cards: the kinds of their blocks, and the labels of their buttons.
QUESTION = ["header", "section", "section", "context", "actions"]
DESIGNED: Mapping[str, tuple[list[str], list[str]]] = {
    "pending": (QUESTION, ["Approve", "Reject…", "Details"]),
    "pending-agent": (QUESTION, ["Look and decide", "Reject…"]),
    "in-doubt": (QUESTION, ["It happened…", "Do it again…", "It failed…"]),
    "decided": (["context"], []),
    "executing": (["context"], []),
    "applied": (["context"], []),
    "rejected": (["context"], []),
    "superseded": (["context"], []),
    "expired": (["section", "context", "actions"], ["Ask again", "Details"]),
}
# What is designed and not drawn, with the reason.
DIFFERENCES = {
    "pending-step-up": "policy has no tiers that need a fresh login yet",
    "batch": "it is a card of several questions: see test_list_cards.py",
    "denied-notice": "requesters are told nothing yet; the run says it",
    "app-home": "there is no App Home yet",
}


async def measured(chromium_path: str) -> dict[str, dict[str, Any]]:
    cards = [card_page.message(name, render(view).blocks) for name, view in scenes().items()]
    drawn = [*cards, *(card_page.window(name, view) for name, view in windows().items())]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 390, "height": 844})
        await page.set_content(card_page.page(drawn))
        found: dict[str, dict[str, Any]] = await page.evaluate(card_page.MEASURE)
        await browser.close()
    return found


async def test_every_card_fits_a_phone_and_every_answer_stands_above_the_fold(chromium_path: str) -> None:
    found = await measured(chromium_path)
    for name, view in scenes().items():
        told, most = found[name], FOLDED_LINES_MAX if name in FOLDED else OPEN_LINES_MAX
        assert told["lines"] + told["rows"] <= most, (name, told)
        assert told["lines"] + told["rows"] <= lines_of(render(view).blocks), f"{name}: our own count is too low"
    assert not {name: told["out"] for name, told in found.items() if told["out"]}, "something leaves its card"
    for name in windows().keys() - {"window-details", "window-answer"}:
        assert 0 < found[name]["answer"] < 500, f"{name}: the answer is below the fold"


def test_every_state_of_a_card_has_a_scene_that_slack_takes() -> None:
    assert {view.state for view in scenes().values()} == set(CardState)
    for name, view in scenes().items():
        assert message_problems(render(view).blocks) == [], name
    for name, window in windows().items():
        assert view_problems(window) == [], name


def test_cards_are_as_designed() -> None:
    for name, (kinds, labels) in DESIGNED.items():
        blocks = render(scenes()[name]).blocks
        assert [block["type"] for block in blocks] == kinds, name
        buttons = [each["text"]["text"] for block in blocks if block["type"] == "actions" for each in block["elements"]]
        assert buttons == labels, name
        told = [block.get("text") or each for block in blocks for each in block.get("elements", [block])]
        assert all(one["verbatim"] for one in told if one["type"] == "mrkdwn"), name
    assert len(DESIGNED.keys() | DIFFERENCES.keys()) == 13


@pytest.mark.parametrize(
    ("name", "approves"),
    [
        ("pending", True),
        ("pending-change", True),
        ("pending-again", True),
        ("pending-unreadable", True),
        ("pending-paused", True),
        ("pending-agent", False),
        ("pending-secret", False),
        ("pending-many", False),
        ("pending-text", False),
    ],
)
def test_only_a_card_that_shows_all_of_it_can_be_approved(name: str, approves: bool) -> None:
    blocks = render(scenes()[name]).blocks
    buttons = [element["action_id"] for element in blocks[-1]["elements"]]
    assert ("counterseal.approve" in buttons) is approves
    assert buttons[-1 if approves else 0] == "counterseal.review"
    assert "counterseal.reject" in buttons
