"""Lines and blocks on both sides of each limit: what stays on a line, what is hidden, what messages and pages hold."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from approvals.content import CardContent, CardState, InputField, ShapedBy, Source
from approvals.model import ApprovalKind, CardView, Choice, TaskState, TaskView
from approvals.slack import blocks, modals, tasks
from approvals.slack.blocks import (
    entry,
    fits_message,
    literal,
    pages,
    pieces,
    section,
    sections,
    shown,
    small_print,
    visible,
)
from approvals.slack.cards import link_line, moment, notification, render, reversal_lines
from approvals.slack.sources import source_lines
from core.action import Change, Risk
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("Q-20")

EXPECTED = Path(__file__).with_name("every_line.json")
BORDERS = (0x180A, 0x180B, 0x180F, 0x1810, 0xFDFF, 0xFE00, 0xFE0F, 0xFE10, 0xDFFFF, 0xE0000, 0xE0100, 0xE0FFF, 0xE1000)
LETTERS = (
    "\x00\t\n\r\x1f !~\x7f\x85\xa0\xad\u00e9\u0300\u034f\u0488\u115f\u1160\u17b4\u17b5\u1680\u2000\u200b\u200f"
    "\u2028\u2029\u202e\u202f\u2060\u2066\u27e8\u27e9\u2800\u3000\u3164\ud800\ue000\ufeff\uffa0\uffff\u6771\U0001f600"
    "\U000f0000`&<>"
)
LINKS = (
    "https://a/b?c=1&d=2", "http://a", "", "ftp://a", "javascript:x", "//a", "https", "https://a b", "https://a>b",
    "https://a<b", "https://a|b", "https://a`b", "https://é", "https://a\x7f", "HTTPS://a",
)  # fmt: skip
MOMENTS = (
    "2026-08-01T17:00:00+00:00", "2026-08-01T17:00:59.999+02:00", "2026-08-01T17:00:00", "2026-08-01", "soon", "",
    "1969-12-31T23:59:59+00:00",
)  # fmt: skip


VALUES: list[Any] = [None, "", " ", "x", True, False, 0, 1.5, [], {}, {"b": 1, "a": "é"}]


def of(drawn: list[dict[str, Any]]) -> list[str]:
    return [block["text"]["text"] for block in drawn if block["type"] == "section"]


def test_letters_and_lines_are_shown_as_they_were(content: CardContent) -> None:
    found: dict[str, Any] = {
        "letters": {f"{ord(each):04X}": [visible(f"a{each}b"), shown(f"a{each}b")] for each in LETTERS},
        "borders": {f"{code:04X}": visible(f"a{chr(code)}b") for code in BORDERS},
        "edges": [visible(text) for text in (" a", "a ", " ", "  ", "a b", "\ta")],
        "no edges": [visible(text, edges=False) for text in (" a", "a ", " ", "\ta")],
        "shown without edges": [shown(text, edges=False) for text in (" a ", " ", "  ", "<\t>")],
        "sections": [section(text) for text in ("", "a", "<https://a|b>", "*a* & `b`")],
        "marks": [visible("Z" + "\u0300" * many + "Z\u0301") for many in (3, 4, 5)],
        "marks alone": [visible("\u0300" * many + "Z") for many in (4, 5)],
        "marks after others": [visible(f"Z{other}" + "\u0300" * 4) for other in ("\u0488", "\u0903", "\u200b", "a")],
        "long values": [literal(value) for value in ({"b": "x" * 190, "a": {"d": 1, "c": 2}}, ["é" * 200])],
        "code": [blocks.code(text) for text in ("", " ", "a`<b>&", "a\nb")],
        "values": [literal(value) for value in VALUES],
        "links": {link: link_line(link) for link in LINKS},
        "moments": {each: moment(each) for each in MOMENTS},
        "entries": [
            entry("L", ""), entry("L", "x", note="n"), entry("", "x"), entry("L", "a", "b", note="n"),
            entry("L", "a\nb"), entry("L", "a\n\n b", note="n"), entry("L", "a\n\n b", note="_(JSON)_"),
            entry("L", "a", "b\nc", note="n"), entry("L", " a"), entry("L", "a\nb", "c", note="n"),
            entry("L", "a\nb", "c\nd"), entry("L", "a", "b", "c"), entry("L", "a", "b\n", "c"),
            entry("L", " a ", " b\n c "), entry("L", " a ", " b\n c ", note="_(JSON)_"),
        ],
    }  # fmt: skip
    for many in (200, 201):
        text, note = literal(["x" * (many - 4)])
        found[f"value of {many}"] = [text.count("\n"), note]
    for many in (396, 397):
        found[f"entry of {many}"] = [len(line) for line in entry("L", "x" * many)]
    for many in (300, 301):
        found[f"title of {many}"] = len(notification("W", "x" * many))
        found[f"codes of {many}"] = len(notification("W", "&" * 59 + "x" * (many - 295)))
    for reversible, reverse in product((True, False), ("", "undo it")):
        one = replace(content, reversible=reversible, reverse=reverse)
        found[f"undone: {reversible}, {reverse!r}"] = reversal_lines(one)
    as_it_was(EXPECTED, found | packed() | sourced(content))


@pytest.mark.usefixtures("far_from_utc")
def test_moments_are_those_of_utc_on_every_machine() -> None:
    assert {each: moment(each) for each in MOMENTS} == json.loads(EXPECTED.read_text(encoding="utf-8"))["moments"]


def packed() -> dict[str, Any]:
    """Pack lines into sections, small print, plain sections and pieces, each full and one more."""
    found: dict[str, Any] = {}
    for many in (2900, 2901):
        found[f"one line of {many}"] = [len(each) for each in of(sections(["`" + "x" * (many - 2) + "`"]))]
        found[f"two lines of {many}"] = [len(each) for each in of(sections(["y" * 100, "x" * (many - 101)]))]
        found[f"small print of {many}"] = [block["type"] for block in small_print(["y" * 100, "x" * (many - 101)])]
        found[f"plain text of {many}"] = [len(block["text"]["text"]) for block in blocks.plain_sections("x" * many)]
    found["no lines"] = [sections([]), blocks.plain_sections(""), blocks.plain_sections("  ")]
    found["empty lines"] = [of(sections(["", "a"])), of(sections(["a", "", "b"]))]
    found["plain blanks"] = of(blocks.plain_sections("x" * 2900 + " " * 2900 + "y"))
    found["small"] = small_print(["a", "b"])
    for cut in range(14, 24):
        found[f"pieces at {cut}"] = pieces("`0123456789&amp;abc⟨U+0060⟩def&lt;`", cut)
    found["pieces without rest"] = [pieces("`" + "x" * many + "`", 12) for many in (20, 21)]
    found["short piece"] = pieces("no code", 7)
    return found


def test_only_a_whole_quote_is_cut() -> None:
    long = "x" * 20
    lines = (long, f"`{long}", f"{long}`", f"{long}`a`", f"`a`{long}", f"`{long}` `b`", f"`{long}``", f"`{long}`b`")
    for line in lines:
        with pytest.raises(ValueError, match="only a line that is quoted as a whole can be longer than a block"):
            pieces(line, 10)
        assert pieces(line, len(line)) == [line]


def sourced(plain: CardContent) -> dict[str, Any]:
    """Draw sources: ours and strangers', short and long, with and without what they are of."""
    ours = [Source("f", "was chosen by", "Rita"), Source("g", "is the workflow's")]
    others = [Source("h", "comes from", "x.get", False, "v"), Source("i", "comes from a signal", ours=False)]
    mixed = replace(plain, sources=(*ours, *others))
    found: dict[str, Any] = {"sources": list(source_lines(mixed))}
    for many in (390, 391):
        long = replace(plain, sources=(Source("f" * many, "is by"),))
        found[f"source of {many}"] = [[len(line) for line in lines] for lines in source_lines(long)]
    return found


def test_a_message_holds_so_much_and_no_more() -> None:
    line = section("x")
    assert [fits_message([line] * many) for many in (45, 46)] == [True, False]
    room = 9000 - len(json.dumps([section("")]))
    assert [fits_message([section("x" * many)]) for many in (room, room + 1)] == [True, False]
    wide = 48 * 1024 - blocks.echo_bytes([section("")])
    full = section("é" * (wide // 8) + "x" * (wide % 8))
    assert blocks.echo_bytes([full]) == 48 * 1024
    assert len(json.dumps([full], ensure_ascii=False)) <= 9000
    more = section(full["text"]["text"] + "x")
    assert [fits_message([each]) for each in (full, more)] == [True, False]


def test_a_page_holds_what_slack_sends_back_and_no_more() -> None:
    half = 24 * 1024 - blocks.echo_bytes([section("")])
    first, second, more = (section("x" * many) for many in (half, half, half + 1))
    assert [blocks.echo_bytes([each]) for each in (first, more)] == [24 * 1024, 24 * 1024 + 1]
    assert pages([first, second, first]) == [[first, second], [first]]
    assert pages([first, more, first]) == [[first], [more], [first]]
    assert pages([first, second, first, second, first]) == [[first, second], [first, second], [first]]
    assert pages([]) == [[]]


@pytest.mark.parametrize("kind", ApprovalKind)
@pytest.mark.parametrize("state", CardState)
def test_buttons_are_those_of_kind_state_and_risk(view: CardView, kind: ApprovalKind, state: CardState) -> None:
    words = {"approve": "primary", "reject": "danger", "happened": None, "again": None, "fail": None}
    offered = ("happened", "again", "fail") if kind is ApprovalKind.IN_DOUBT else ("approve", "reject")
    for risk in Risk:
        for reversible in (True, False):
            one = replace(view, kind=kind, state=state, content=replace(view.content, risk=risk, reversible=reversible))
            drawn = [each for block in render(one).blocks if block["type"] == "actions" for each in block["elements"]]
            asked = [each for each in offered if state is CardState.PENDING]
            assert [each["action_id"] for each in drawn] == [f"counterseal.{each}" for each in asked]
            assert [each.get("style") for each in drawn] == [words[each] for each in asked]
            twice = [f"counterseal.{each}" for each in asked if each == "approve" and risk is Risk.HIGH]
            assert [each["action_id"] for each in drawn if "confirm" in each] == twice
            undo = "It can be undone." if reversible else "It cannot be undone."
            said = [each["confirm"]["text"]["text"] for each in drawn if "confirm" in each]
            assert said == [f"This action is of high risk. {undo}" for _ in twice]


def test_what_is_short_enough_for_a_long_card_is_on_it(view: CardView, task: TaskView) -> None:
    inputs = tuple(InputField(f"f{number}", "v" * 200) for number in range(45))
    found: dict[str, Any] = {}
    for many in (300, 301):
        word = "x" * many
        content = replace(
            view.content, title=word, target=word, system=word, operation=word, requester=word, inputs=inputs,
            shaped_by=(ShapedBy(word, "did"), ShapedBy("Bo", "did not", "n")), sources=(Source("f", "w"),),
        )  # fmt: skip
        card = render(replace(view, content=content, detail=word, late=word, paused=word))
        found[f"card of {many}"] = "\n".join(of(card.blocks)).replace(word, "W")
        long = replace(task, title=word, group=word, reference=word, run_id=word, description="d" * 9000)
        for state in (TaskState.OPEN, TaskState.COMPLETED, TaskState.EXPIRED):
            done = replace(long, state=state, completed_by=word)
            found[f"task of {many}, {state}"] = "\n".join(of(tasks.render(done).blocks)).replace(word, "W")
    as_it_was(EXPECTED.with_name("every_long_card.json"), found)


def test_hidden_values_are_hidden_everywhere_and_only_they(view: CardView) -> None:
    """A value that is zero, or that is one of ours, is hidden as any other."""
    ours = Source("c", "w", "o", True, "s6")
    content = replace(
        view.content,
        changes=(Change("a", 1, 2), Change("b", 3, 4)),
        inputs=(InputField("a", "s1"), InputField("c", 0), InputField("d", "s3")),
        sources=(Source("a", "w", "o", False, "s4"), Source("b", "w", "o", False, "s5"), Source("c", "w", "o"), ours),
        sensitive=("a", "c"),
    )
    mask = "[hidden: open Review]"
    assert content.masked() == replace(
        content,
        changes=(Change("a", mask, mask), Change("b", 3, 4)),
        inputs=(InputField("a", mask), InputField("c", mask), InputField("d", "s3")),
        sources=(
            Source("a", "w", "o", False, mask), Source("b", "w", "o", False, "s5"), Source("c", "w", "o"),
            replace(ours, value=mask),
        ),
    )  # fmt: skip
    assert replace(content, sensitive=()).masked() == replace(content, sensitive=())
    told = content.to_json()
    assert {name for name in told if name in ("sources", "agent")} == {"sources"}
    bare = replace(content, sources=(), rules=(), changes=(), inputs=(), sensitive=(), reverse="", expires_at=None)
    whole = [name for name in content.__struct_fields__ if name not in ("sources", "agent")]
    assert [*bare.to_json()] == whole
    assert CardContent.from_json(bare.to_json()) == bare
    assert [bare.to_json()[name] for name in ("rules", "sensitive", "shaped_by", "expires_at")] == [[], [], [], None]


@pytest.mark.parametrize("choice", Choice)
def test_a_modal_for_a_reason_carries_its_question(view: CardView, choice: Choice) -> None:
    modal = modals.reason(view.approval_id, "n2", choice)
    assert json.loads(modal["private_metadata"]) == {"a": str(view.approval_id), "n": "n2", "c": str(choice)}
    assert modal["callback_id"] == "counterseal.reason"
