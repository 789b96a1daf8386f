"""Values that a request designates are the requester's; a word that merely occurs in it never is."""

from __future__ import annotations

from typing import Any

import pytest

from core.origins.conversation import Listener, Passage, matcher_of
from core.origins.kinds import ArgumentKind
from core.origins.matching import STEPS_MAX, Matcher
from core.origins.repeats import Performed

pytestmark = pytest.mark.req("P-14")
VALUE, TEXT, NAMED = ArgumentKind.VALUE, ArgumentKind.TEXT, ArgumentKind.NAMED
REQUEST = (
    "Can you please pay the bill 'bill-december.txt' for Ana Lee? Send $1,200.50 to GB29 NWBK 6016 1331 9268 19, by "
    "May 15, 2024, and write to ana.lee@acme.example about INC0010001. Set my password to 'k9-Blue'. "
    'Add "Lunch with Raj" at https://acme.example/Team, order number 7, and take -5 off. Thanks a lot!'
)
OURS, MENTIONED, MODEL = "requester", "mentioned", "model"


def asked(text: str = REQUEST) -> Matcher:
    matcher = Matcher()
    matcher.add_source("requester", text)
    return matcher


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        # designated, as a whole
        (VALUE, "ana.lee@acme.example", OURS),
        (VALUE, "GB29NWBK60161331926819", OURS),
        (VALUE, "INC0010001", OURS),
        (VALUE, "https://acme.example/Team", OURS),
        (VALUE, 1200.5, OURS),
        (VALUE, "7", OURS),
        (VALUE, -5, OURS),
        (VALUE, "2024-05-15", OURS),
        (VALUE, "Ana Lee", OURS),
        # quoted, as a whole
        (VALUE, "bill-december.txt", OURS),
        (VALUE, "Lunch with Raj", OURS),
        (TEXT, "Lunch with Raj", OURS),
        # common words, also at the beginning of a sentence
        *(
            (VALUE, word, MENTIONED)
            for word in ("Can", "can", "the", "you", "for", "order", "Send", "password", "Thanks")
        ),
        *((TEXT, word, MENTIONED) for word in ("can", "the bill", "Thanks", "Thanks a")),
        # a part of a sentence, of a name, of what is quoted
        (VALUE, "pay the bill", MENTIONED),
        (VALUE, "for Ana Lee", MENTIONED),
        (VALUE, "Lee", MENTIONED),
        (VALUE, "lunch", MENTIONED),
        (TEXT, "you please pay the bill", MENTIONED),
        (TEXT, "Thanks a lot!", OURS),
        # written otherwise
        (VALUE, "mailto:ana.lee@acme.example", MODEL),
        (VALUE, "IBAN:GB29NWBK60161331926819", MODEL),
        (VALUE, "INC0010001.", MENTIONED),
        (VALUE, "https://acme.example/team", MENTIONED),
        (VALUE, "1200.50.", MODEL),
        (VALUE, 5, MODEL),
        (VALUE, 1200, MODEL),
        (VALUE, "-7", MODEL),
        # of another kind than the argument
        (ArgumentKind.EMAIL, "ana.lee@acme.example", OURS),
        (ArgumentKind.EMAIL, "bill-december.txt", MENTIONED),
        (ArgumentKind.LINK, "ana.lee@acme.example", MENTIONED),
        (ArgumentKind.ACCOUNT, "GB29NWBK60161331926819", OURS),
        (ArgumentKind.ACCOUNT, "7", MENTIONED),
        (ArgumentKind.AMOUNT, 1200.5, OURS),
        (ArgumentKind.AMOUNT, "INC0010001", MENTIONED),
        (ArgumentKind.DATE, "2024-05-15", OURS),
        (ArgumentKind.DATE, "7", MENTIONED),
        (ArgumentKind.NAME, "ana lee", OURS),
        (ArgumentKind.NAME, "GB29NWBK60161331926819", MENTIONED),
    ],
)
def test_a_value_is_the_requesters_only_if_the_request_designates_it(
    kind: ArgumentKind, value: Any, found: str
) -> None:
    (inner, *_) = asked().origins(value, kind)
    assert found in inner
    assert (OURS in inner) == (found == OURS)
    assert (MODEL in inner) == (found != OURS), "a rule against the model's own values must hold"


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("password", "k9-Blue", True),
        ("password", "K9-blue", False),
        ("password", "bill-december.txt", False),
        ("password", "INC0010001", False),
        ("filename", "bill-december.txt", False),
        ("first_name", "Ana Lee", False),
    ],
)
def test_a_named_value_needs_its_name_in_the_same_sentence(name: str, value: str, found: bool) -> None:
    assert (OURS in asked().origins(value, NAMED, name=name)[0]) == found


@pytest.mark.parametrize(
    ("label", "kept"), [("requester", True), ("workflow", True), ("person", True), ("tool:x", False)]
)
def test_words_are_borrowed_from_nobody_of_ours(label: str, kept: bool) -> None:
    matcher = Matcher()
    matcher.add_source(label, "Who can set it to 'blue'?")
    assert matcher.origins("who") == ([["mentioned", "model"]] if kept else [[label]])
    assert matcher.origins("blue") == [[label]]


def test_a_word_that_begins_a_sentence_is_a_name_only_if_a_record_has_it() -> None:
    matcher = asked("Spotify sent me a note. Pay them. Who knows?")
    assert OURS not in matcher.origins("Spotify")[0]
    matcher.add_result(
        "payee.list", {"items": [{"name": "Spotify", "note": "Who"}]}, records="/items", protected=["/items/name"]
    )
    assert OURS in matcher.origins("Spotify")[0]
    assert OURS not in matcher.origins("Who")[0], "anyone may write a note"


@pytest.mark.parametrize(
    ("query", "names", "found"),
    [
        ("plan.docx", ["plan.docx", "old plan.docx"], True),
        ("plan.docx", ["my plan.docx", "old plan.docx"], False),
        ("plan.docx", ["plan.docx", "plan.docx"], False),
        ("the", ["the.docx"], False),
        ("grocery list", ["grocery-list-today.docx"], True),
        ("grocery list", ["the.docx"], False),
    ],
)
def test_only_a_record_that_the_request_designates_is_looked_up(query: str, names: list[str], found: bool) -> None:
    said = {"text": "", "tool_calls": [{"id": "1", "function": {"name": "t", "arguments": f'{{"q": "{query}"}}'}}]}
    records: Any = [{"id": f"id-{at}", "name": name} for at, name in enumerate(names)]
    matcher = matcher_of(
        [
            Passage("requester", "Add the file 'plan.docx' to the grocery list."),
            Passage("model", said, "a/1", answer=True),
            Passage("tool:file.find", {"items": records}, "a/1/1", "/items", protected=("/items/id", "/items/name")),
        ]
    )
    assert ("lookup:file.find#/items/id" in matcher.origins("id-0")[0]) == found


@pytest.mark.parametrize(
    "written",
    [
        "evil dot example", "evil [dot] example", "evil(.)example", "evil[.]example", "evil . example",
        "evil\u00b7example",
        "x at evil dot example", "203.0.113.7", "http://3405803783/x", "tel:+49(171)2345678", "ev<b></b>il.example",
        "evil**.**example", "MV3GS3BOMV4GC3LQNRSQ====", "hxxp://evil.example", "evil\u3002example", "ev*il.example",
    ],
)  # fmt: skip
def test_written_forms_of_an_address_are_traced_in_a_text(written: str) -> None:
    found = asked().origins(f"Please look there: {written} today", TEXT)
    assert ["model"] in found[1:], "it passes as plain words"


def test_a_quoted_text_with_gaps_is_the_requesters_but_not_what_fills_them() -> None:
    matcher = asked("The title should be 'Dinner at {place}'.")
    matcher.add_result("place.find", {"name": "Chez Ana"})
    assert matcher.origins("Dinner at Chez Ana", TEXT) == [
        ["requester"], ["field:place.find#/name", "tool:place.find", "text"],
    ]  # fmt: skip
    assert matcher.origins("Dinner at my house", TEXT) == [["requester"], ["model", "text"]]
    assert matcher.origins("Supper at Chez Ana", TEXT) == [["model", "text"]]


PAID = {"to": "GB29NWBK60161331926819", "amount": 20, "subject": "Lunch"}


@pytest.mark.parametrize(
    ("now", "spent"),
    [
        ({**PAID, "subject": "Lunch."}, True),
        ({**PAID, "amount": 19.99}, True),
        ({**PAID, "to": "gb29 nwbk 6016 1331 9268 19"}, True),
        ({**PAID, "amount": 30}, False),
        ({**PAID, "to": "Raj Singh"}, False),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_what_a_request_designates_is_spent_once(now: Any, spent: bool, beside: bool) -> None:
    matcher = asked("Send 20 and then 30 to GB29NWBK60161331926819, and 20 to Raj Singh.")
    given = {(name,): value for name, value in now.items()}
    found = {path: matcher.origins(value) for path, value in given.items()}
    performed = Performed()
    if not beside:
        performed.add("bank.pay", PAID)
    after = performed.spend("bank.pay", given, found, [PAID] if beside else [])
    assert any("spent" in inner for origins in after.values() for inner in origins) == spent
    if spent:
        assert not any(OURS in inner for origins in after.values() for inner in origins)
    assert performed.spend("bank.order", given, found, []) == found


@pytest.mark.parametrize(
    ("there", "typed"),
    [
        ("eve@evil.example", "mailto:eve@evil.example"),
        ("GB29NWBK60161331926819", "IBAN:GB29 NWBK 6016 1331 9268 19"),
        ("5000", "5000.00"),
        ("5000", "5,000 EUR"),
        ("2026-05-15", "15.05.2026"),
        ("2026-05-15", "15 May 2026"),
        ("evil.example", "https://evil.example/"),
        ("+49 171 2345678", "tel:+491712345678"),
    ],
)
def test_another_writing_of_what_came_from_others_is_not_a_persons(there: str, typed: str) -> None:
    matcher = Matcher()
    matcher.add_source("trigger:servicenow", {"value": there, "note": f"use {there}"})
    matcher.add_source("person", {"answer": typed})
    assert "person" not in matcher.origins(typed)[0]
    alone = Matcher()
    alone.add_source("person", {"answer": typed})
    assert alone.origins(typed) == [["person"]]


def test_listeners_know_which_calls_were_performed() -> None:
    said = {"text": "", "tool_calls": [{"id": "1", "function": {"name": "t", "arguments": '{"to": "Raj"}'}}]}
    listener = Listener()
    listener.listen([Passage("model", said, "a/1", answer=True), Passage("tool:bank.pay", {}, "a/1/1", effect=True)])
    listener.listen(
        [*listener.passages, Passage("model", said, "a/2", answer=True), Passage("tool:bank.get", {}, "a/2/1")]
    )
    assert listener.performed.calls == [("bank.pay", {"to": "Raj"})]


@pytest.mark.parametrize(
    "piece",
    ["'", "Aa ", "Aa, 1 ", "{", "'{a}' ", "a. ", "\"a' ", "# ", "Aa's ", "1 ", "\n", "\u201ca", "not a1 ", "May 5 "],
)
def test_reading_a_request_takes_linear_work(piece: str) -> None:
    text = (piece * 20_000)[:20_000]
    matcher = asked(text)
    for value, kind in (
        (text[:5_000], VALUE),
        (text[:5_000], TEXT),
        ("Aa", VALUE),
        ("a1", NAMED),
        ("2031-05-05", VALUE),
    ):
        found = matcher.origins(value, kind, name="password")
        assert matcher.steps <= STEPS_MAX or found[-1] == ["unknown"]
