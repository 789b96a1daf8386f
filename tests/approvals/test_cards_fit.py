"""Cards on a phone, in a real browser: at most ten lines open and two folded, nothing leaves them; and as designed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace
from playwright.async_api import async_playwright

from approvals.content import CardState
from approvals.lists import ListView
from approvals.notices import Line, Notice, Rule, Word
from approvals.slack import lists, notices
from approvals.slack.blocks import Block
from approvals.slack.cards import render
from approvals.slack.home import Request, Waiting, home
from approvals.slack.lines import FOLDED_LINES_MAX, OPEN_LINES_MAX, lines_of
from sandbox.slack_blocks import message_problems, view_problems
from tests.support import card_page
from tests.support.card_scenes import scenes, windows

FOLDED = {"decided", "executing", "applied", "rejected", "superseded", "denied", "canceled", "taken-back"}
# The designed cards: the kinds of their blocks, and the labels of their buttons.
QUESTION = ["header", "section", "section", "context", "actions"]
DESIGNED: Mapping[str, tuple[list[str], list[str]]] = {
    "pending": (QUESTION, ["Approve", "Reject…", "Details"]),
    "pending-step-up": (QUESTION, ["Approve in browser", "Reject…"]),
    "pending-agent": (QUESTION, ["Look and decide", "Reject…"]),
    "in-doubt": (QUESTION, ["It happened…", "Do it again…", "It failed…"]),
    "decided": (["context"], []),
    "executing": (["context"], []),
    "applied": (["context"], []),
    "granted": (["context", "actions"], ["Take back…"]),
    "taken-back": (["context"], []),
    "rejected": (["context"], []),
    "superseded": (["context"], []),
    "expired": (["section", "context", "actions"], ["Ask again", "Details"]),
    "batch": (QUESTION, ["Approve 12", "Reject…", "Choose…"]),
    "app-home": (["header", "context", *["section"] * 5, "divider", *["section"] * 3, "context"], []),
}
# Designed, and drawn in another way: what is drawn, and the reason.
DIFFERENCES: Mapping[str, tuple[list[str], str]] = {
    "denied-notice": (
        ["section", "section", "context", "context"],
        "its last block leads to the run instead of to the record: that is not of the requester's own system alone",
    ),
}


def drawn(name: str) -> list[Block]:
    """The blocks of a designed card, from the real builders."""
    if name == "batch":
        change = scenes()["pending-change"]
        items = [replace(change, approval_id=UUID(int=number)) for number in range(12)]
        return lists.render(ListView(tuple(items))).blocks
    if name == "app-home":
        waiting = [Waiting("A question?", "INC1", "high", "2026-11-03T15:00:00+00:00", "https://x.example/1")] * 5
        asked = [Request("Done", "triage for INC1", "2026-11-03T15:00:00+00:00")] * 2
        return list(home(waiting, asked, "https://counterseal.example.com/console")["blocks"])
    if name == "denied-notice":
        whole = Line(Word.NOT_DONE, "closing INC0010003", "Incidents are closed by people.")
        rule = Rule("people-close", "it-operations", 4)
        return notices.render(
            Notice(
                whole,
                UUID(int=1),
                "triage",
                "INC1",
                "2026-11-03T15:00:00+00:00",
                True,
                rule=rule,
                link="https://x.example",
            )
        ).blocks
    return render(scenes()[name]).blocks


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
        most = FOLDED_LINES_MAX + 1 if name == "granted" else most
        assert told["lines"] + told["rows"] <= most, (name, told)
        assert told["lines"] + told["rows"] <= lines_of(render(view).blocks), f"{name}: our own count is too low"
    assert not {name: told["out"] for name, told in found.items() if told["out"]}, "something leaves its card"
    for name in windows().keys() - {"window-details", "window-answer"}:
        assert 0 < found[name]["answer"] < 500, f"{name}: the answer is below the fold"


def test_whoever_took_a_grant_back_is_named_however_long_the_card() -> None:
    taken = scenes()["taken-back"]
    assert taken.granted is not None
    for name in ("Cara Diaz", "A name that is as long as no name of anybody should be, and longer still"):
        for link in ("", "https://counterseal.example.com/console/approvals/1"):
            view = replace(taken, link=link, granted=replace(taken.granted, by=name))
            assert f"taken back by {name}" in str(render(view).blocks)


def test_every_state_of_a_card_has_a_scene_that_slack_takes() -> None:
    assert {view.state for view in scenes().values()} == set(CardState)
    for name, view in scenes().items():
        assert message_problems(render(view).blocks) == [], name
    for name, window in windows().items():
        assert view_problems(window) == [], name


def test_cards_are_as_designed() -> None:
    for name, (kinds, labels) in DESIGNED.items():
        blocks = drawn(name)
        assert [block["type"] for block in blocks] == kinds, name
        buttons = [each["text"]["text"] for block in blocks if block["type"] == "actions" for each in block["elements"]]
        assert buttons == labels, name
        told = [block.get("text") or each for block in blocks for each in block.get("elements", [block])]
        assert all(one["verbatim"] for one in told if one["type"] == "mrkdwn"), name
    for name, (kinds, why) in DIFFERENCES.items():
        assert [block["type"] for block in drawn(name)] == kinds, (name, why)
    assert len(DESIGNED.keys() | DIFFERENCES.keys()) == 13 + len({"granted", "taken-back"})


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
