"""The card of a list: ten lines, the odd ones by name, nothing cut, and no *Approve* on what is not all shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.content import CardState, Source
from approvals.lists import ListView
from approvals.model import CardView
from approvals.slack import lists
from approvals.slack.lines import OPEN_LINES_MAX, lines_of
from core.action import Change
from sandbox.slack_blocks import message_problems, view_problems
from tests.support.card_scenes import scenes

BASE = scenes()["pending-change"]


def item(number: int, name: str = "", before: str = "2.3", after: str = "2.4", **more: Any) -> CardView:
    name = name or f"web {number}"
    asked = {"question": f"Bring version 2.4 to “{name}”?", "target": f"server/{number:032x}", "inputs": ()}
    content = replace(BASE.content, changes=(Change("version", before, after),), **{**asked, **more.pop("content", {})})
    return replace(BASE, approval_id=UUID(int=number + 1), digest=f"d{number}", content=content, **more)


def told(blocks: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(blocks, ensure_ascii=False)


OUTSIDE = (Source("version", "is from outside", "", ours=False, value="2.4"),)
REFUSED = {"evidence": "It was rejected before."}
ALIKE = [item(n) for n in range(11)]
CASES: dict[str, tuple[list[CardView], bool, list[str]]] = {
    "as designed": ([*ALIKE, item(11, "db 2", "2.1")], True, ["*11 alike:*", "*1 differs:* `db 2`", "~2.1~ → *2.4*"]),
    "all alike": (ALIKE[:3], True, ["*3 alike:* `web 0`, `web 1`, `web 2`"]),
    "warned": ([*ALIKE, item(11, "db 2", content=REFUSED)], True, ["*1 differs:* `db 2`", "*Before:*"]),
    "some are over": ([*ALIKE, item(11, state=CardState.APPLIED)], True, ["*So far:* 1 done", "2.4 to 11 records?"]),
    "each is another": ([item(n, after=f"v{n}") for n in range(30)], False, ["more differ"]),
    "hidden": ([item(n, content={"sensitive": ("version",)}) for n in range(4)], False, ["_hidden_"]),
    "from outside": ([item(n, content={"sources": OUTSIDE}) for n in range(4)], False, []),
    "one from outside": ([*ALIKE, item(11, content={"sources": OUTSIDE})], False, ["*1 differs:*"]),
    "a hundred": ([item(n) for n in range(100)], True, ["*100 alike:*"]),
    "long names": ([item(n, "x" * 300 + str(n)) for n in range(20)], True, ["*20 alike:*"]),
    "hostile names": ([item(n, f"<!channel> *b* `c` {n}") for n in range(3)], True, ["*3 alike:*"]),
    "without a question": ([item(n, content={"question": ""}) for n in range(3)], True, ["Shall these 3 be done?"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_open_list_fits_a_phone_and_is_approved_only_if_all_kinds_are_shown(name: str) -> None:
    items, approves, words = CASES[name]
    view = ListView(tuple(items))
    card = lists.render(view)
    assert message_problems(card.blocks) == []
    assert lines_of(card.blocks) <= OPEN_LINES_MAX
    assert all(word in told(card.blocks) for word in words), told(card.blocks)
    labels = [one["text"]["text"] for one in card.blocks[-1]["elements"]]
    many = len(view.open)
    assert labels == ([f"Approve {many}", "Reject…", "Choose…"] if approves else ["Look and decide", "Reject…"])
    seen, page = [], 0
    while True:
        window = lists.window(view, page)
        assert view_problems(window) == []
        seen += window["blocks"]
        if json.loads(window["private_metadata"])["l"]:
            break
        page += 1
    boxes = [one for block in window["blocks"] for one in block.get("element", {}).get("initial_options", ())]
    assert {one["value"] for one in boxes} == {str(one.approval_id) for one in view.open}
    shown = told(seen)
    assert "[hidden]" in shown or all(str(one.content.changes[0].after) in shown for one in view.open)
    assert view_problems(lists.reason(view)) == []
    assert message_problems(lists.render(view, short=True).blocks) == []


def test_a_folded_list_says_how_many_and_names_what_was_not_done() -> None:
    moved = (Change("version", "2.3", "2.2"),)
    done = [item(n, state=CardState.APPLIED) for n in range(47)]
    void = [item(50 + n, f"db {n}", state=CardState.SUPERSEDED, moved=moved) for n in range(3)]
    card = lists.render(ListView((*done, *void)))
    words = told(card.blocks)
    assert message_problems(card.blocks) == []
    assert "*Done* 47 of 50" in words
    assert "*Void* 3 of 50: `db 0`, `db 1`, `db 2`" in words
    assert "`db 1`: Version 2.3 → 2.2, asked anew" in words
    assert view_problems(lists.window(ListView((*done, *void)))) == []


@pytest.mark.parametrize(("page", "anew", "leads"), [("https://x.example/console", 900, True), ("", 900, False)])
def test_a_void_question_of_a_list_leads_to_the_one_in_its_place(page: str, anew: int, leads: bool) -> None:
    """Each leads to its own new question, by the page of that one; without pages it says so in words."""
    moved = (Change("version", "2.3", "2.2"),)
    void = [item(n, state=CardState.SUPERSEDED, moved=moved, anew=UUID(int=anew + n)) for n in range(2)]
    view = ListView((item(5, state=CardState.APPLIED), *void), link=f"{page}/approvals/{UUID(int=6)}/list" * bool(page))
    words = told(lists.render(view).blocks)
    for n in range(2):
        assert (f"<{page}/approvals/{UUID(int=anew + n)}|asked anew>" in words) is leads, words
        assert f"`web {n}`: Version 2.3 → 2.2, {'<' if leads else 'asked anew'}" in words


def test_the_mark_of_a_drawing_differs_with_what_stands_on_it() -> None:
    marks = {
        ListView(tuple(items)).mark
        for items in (ALIKE, ALIKE[:-1], [*ALIKE, item(12)], [replace(ALIKE[0], digest="x"), *ALIKE[1:]])
    }
    assert len(marks) == 4
    over = [replace(ALIKE[0], state=CardState.APPLIED), *ALIKE[1:]]
    assert ListView(tuple(over)).mark == ListView(tuple(reversed(ALIKE))).mark
