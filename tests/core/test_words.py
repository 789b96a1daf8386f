"""Texts as they are compared: their words, numbers, dates, accounts and addresses, and what else they may mean."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from core.origins.disguises import disguises, plain
from core.origins.kinds import ArgumentKind
from core.origins.matching import Matcher
from core.origins.model_words import ModelWords, Parts
from core.origins.words import Words, at_clock, moment, number, numeral

pytestmark = pytest.mark.req("P-14")

# The words of each text but for its blanks; its numbers as they are written; dates; accounts; addresses.
TEXTS: dict[str, tuple[str, set[str], set[Any], set[str], list[str]]] = {
    "Pay 1,000.50 or -5, +7 and 1,5 of 007; 0 0.5 00": (
        "pay 1,000.50 or -5 , +7 and 1 , 5 of 007 ; 0 0.5 00",
        {"1000.50", "-5", "+7", "1", "5", "0", "0.5"},
        set(),
        set(),
        [],
    ),
    "on May 15th, 2024 or 3 of june at Sept. 4 2023, 31 dec": (
        "on may 15th , 2024 or 3 of june at sept . 4 2023 , 31 dec",
        {"2024", "3", "4", "2023", "31"},
        {("2024", 5, 15), (None, 6, 3), ("2023", 9, 4), (None, 12, 31)},
        set(),
        [],
    ),
    "1,234,567.8901 of 1,234,567, 8 or 12,345x 5-1,000 x+2 -a": (
        "1,234,567.8901 of 1,234,567 , 8 or 12 , 345x 5-1 , 000 x+2 - a",
        {"1234567.8901", "1234567", "8", "12"},
        set(),
        set(),
        [],
    ),
    "_'x@a.example or _ 'y@b.example": (
        "_'x@a.example or _ ' y@b.example",
        set(),
        set(),
        set(),
        ["_'x@a.example", "y@b.example"],
    ),
    "2 may 3, may 5 99, june 6 12345, or 7th july 2020 8": (
        "2 may 3 , may 5 99 , june 6 12345 , or 7th july 2020 8",
        {"2", "3", "5", "6", "8", "99", "2020", "12345"},
        {(None, 5, 2), (None, 5, 3), (None, 5, 5), (None, 6, 6), ("2020", 7, 7)},
        set(),
        [],
    ),
    "see www.a.b;c;d;e and x;y https://h.i'j'k at a1.b2.example, c.exam9 or b.c!": (
        "see www.a.b;c;d;e and x ; y https://h.i'j'k at a1.b2.example , c.exam9 or b.c !",
        set(),
        set(),
        set(),
        ["www.a.b;c;d;e", "https://h.i'j'k", "a1.b2.example"],
    ),
    "may, 2024-05-15t10:00 1999": ("may , 2024-05-15t10:00 1999", {"1999"}, {("2024", 5, 15)}, set(), []),
    "1 of 2 of may and june 31 of 1999": (
        "1 of 2 of may and june 31 of 1999",
        {"1", "2", "31", "1999"},
        {(None, 5, 2), (None, 6, 31)},
        set(),
        [],
    ),
    "US13 3000-0000 1212, 1234567; ab12345678. call 12345 67890.": (
        "us13 3000-0000 1212 , 1234567 ; ab12345678 . call 12345 67890 .",
        {"1212", "1234567", "12345", "67890"},
        set(),
        {"us13300000001212", "ab12345678", "1234567890"},
        ["1234567890", "ab12345678", "us13300000001212"],
    ),
    "ask o'brien@acme.example, b@c.d,e@f.g; see www.a.b/c;d|e https://x.y/(z) host.example:80 @me a@": (
        "ask o'brien@acme.example , b@c.d , e@f.g ; see www.a.b/c;d | e https://x.y/(z ) host.example:80 @ me a @",
        set(),
        set(),
        set(),
        ["o'brien@acme.example", "b@c.d", "e@f.g", "www.a.b/c;d", "https://x.y/(z", "host.example:80"],
    ),
    "a_b _ x--y 5-3 a/b/c... #tag 10:30 v1.2.3": (
        "a_b _ x--y 5-3 a/b/c . . . # tag 10:30 v1.2.3",
        set(),
        set(),
        set(),
        [],
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_cut_into_its_words(text: str) -> None:
    cut, words = Words.of(text), TEXTS[text]
    found = (" ".join(one for one in cut.lexemes if one != " "), cut.numerals, cut.dates, cut.accounts, cut.addresses())
    assert found == words
    assert "".join(cut.lexemes) == cut.folded == text.lower()
    assert cut.numbers == {Decimal(one) for one in words[1]}


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("0", "0"),
        ("00", None),
        ("07", None),
        ("10", "10"),
        ("0.5", "0.5"),
        ("1,000", "1000"),
        ("1,00", None),
        ("-3", "-3"),
        ("+3", "+3"),
        ("1.", None),
        ("x", None),
        ("1,234,567.80", "1234567.80"),
        ("1" * 40, "1" * 40),
        ("1" * 41, None),
    ],
)
def test_a_word_is_a_number_or_a_name(word: str, written: str | None) -> None:
    assert numeral(word) == written
    assert number(word) == (None if written is None else Decimal(written))


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("2024-05-15", None),
        (" 2024-05-15 ", None),
        ("2024-05-15 00:00", None),
        ("2024-05-15T10:00", "10:00"),
        ("2024-05-15 10:00:00", "10:00"),
        ("2024-05-15T10:00:00.000", "10:00"),
    ],
)
def test_a_moment_is_a_day_and_perhaps_a_clock(text: str, clock: str | None) -> None:
    assert moment(text) == (("2024", 5, 15), clock)


@pytest.mark.parametrize("text", ["2024-05-15 10:00:01", "2024-05-15 10:00+02", "15.05.2024", "2024-05-15" + " " * 31])
def test_other_times_are_texts(text: str) -> None:
    assert moment(text) is None


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("at 10:00", True),
        ("at 2024-05-15t10:00 sharp", True),
        ("at 110:00", False),
        ("at 10:001", False),
        ("at 10 00", False),
        ("x" * 34 + "/10:00", True),
        ("x" * 35 + "/10:00", False),
    ],
)
def test_a_clock_stands_alone_or_behind_a_date(text: str, stands: bool) -> None:
    assert at_clock("10:00", Words.of(text)) is stands


@pytest.mark.parametrize(
    ("text", "others", "left"),
    [
        ("a%20b", ["a b"], "a20b"),
        ("a&amp;b", ["a&b"], "aampb"),
        ("\\u0041\\x42", ["AB"], "u0041x42"),
        ("QUJDREVGR0g= 4142434445", ["ABCDEFGH", "ABCDE"], "qujdrevgr0g4142434445"),
        ("Pz8_Pj4-", ["???>>>"], "pz8pj4"),
        ("Pz8/Pj4+ \\x41", ["Pz8/Pj4+ A", "???>>>"], "pz8pj4x41"),
        ("QUJDREVGR0g= SUpLTE1OT1A=", ["ABCDEFGH IJKLMNOP"], "qujdrevgr0gsuplte1ot1a"),
        ("4142434445 4647484950", ["ABCDE FGHIP"], "41424344454647484950"),
        ("R3LDvMOfZSBhdXM=", ["Gr\u00fc\u00dfe aus"], "r3ldvmofzsbhdxm"),
        ("ana\u3164lee\u115f", ["analee"], "analee"),
        ("plain", [], "plain"),
        ("\ue000-\u0378 Stra\u00dfe", [], "\ue000\u0378strasse"),
        ("\u00c5ngstr\u00f6m \u0130 \u2460", ["\u00c5ngstr\u00f6m \u0130 1"], "angstromi1"),
        ("\ufb01go\uff20x\u3002y", ["figo@x.y"], "figoxy"),
        ("ana\u200b lee", ["ana lee"], "analee"),
        ("QUJDREVGR0", ["ABCDEFG"], "qujdrevgr0"),
        ("QUJDRE", [], "qujdre"),
        ("41424344", ["ABCD"], "41424344"),
        ("4142434", [], "4142434"),
        ("0041424344", [], "0041424344"),
        ("a\u0301" * 1_000, ["\u00e1" * 1_000], "a" * 1_000),
        ("a\u0301" * 1_001, ["a" * 1_001], "a" * 1_001),
        ("\u00dcBER \u2167", ["\u00dcBER VIII"], "uberviii"),
    ],
)
def test_a_text_is_read_as_it_may_be_meant(text: str, others: list[str], left: str) -> None:
    assert ([*disguises(text)], plain(text)) == (others, left)


def parts(*said: tuple[int, str]) -> Parts:
    found = Parts()
    for at, text in said:
        found.add([text], at)
    return found


@pytest.mark.parametrize(
    ("said", "wanted", "place"),
    [
        ([(0, "ab"), (1, "cde")], "abcde", 1),
        ([(3, "ab"), (1, "cde")], "abcde", 3),
        ([(0, "abcde")], "abcde", 0),
        ([(5, "abcde"), (1, "ab"), (2, "cde")], "abcde", 2),
        ([(1, "abcde"), (2, "ab"), (3, "cde")], "abcde", 1),
        ([(2, "ab"), (0, "ab"), (1, "cde")], "abcde", 2),
        ([(0, "ab"), (1, "cd")], "abcd", None),
        ([(0, "ab"), (1, "cd")], "abcde", None),
        ([(0, "ab"), (1, "cd"), (2, "e")], "abcde", None),
        ([(0, "ab"), (4, "AB-"), (1, "x y z")], "ababxyz", 1),
        ([], "abcde", None),
    ],
)
def test_a_value_is_said_when_its_last_part_is(said: list[tuple[int, str]], wanted: str, place: int | None) -> None:
    assert parts(*said).complete(wanted, lambda _: None) == place


def test_the_work_on_parts_is_counted() -> None:
    counted: list[int] = []
    assert parts((0, "ab"), (1, "cde")).complete("ababcde", counted.append) == 1
    assert sorted(counted) == [2, 2, 2, 3, 3, 3]


def test_what_was_said_is_kept_with_what_it_may_mean() -> None:
    assert ModelWords.of(["A-b", "c%41"]) == ModelWords(Words.of("A-b c%41"), "abc41\nabca")


COUNTED: list[tuple[Any, list[str], int]] = [
    ("ana lee", ["requester"], 167),
    ("ana", ["mentioned", "model"], 112),
    (5, ["field:mail.get#/size", "requester", "tool:mail.get"], 133),
    ("5", ["field:mail.get#/size", "requester", "tool:mail.get"], 138),
    ("m-1", ["field:mail.get#/id", "tool:mail.get"], 48),
    ("2024-05-15 10:00", ["requester"], 187),
    ("US13300000001212121212", ["tool:mail.get"], 77),
    ("zoe", ["model"], 49),
]


def test_each_value_has_the_work_that_it_needs() -> None:
    """The work is bounded by what is counted, so what is counted does not change unseen."""
    matcher = Matcher()
    matcher.add_source("requester", "write to Ana Lee on 2024-05-15 at 10:00, pay 5")
    matcher.add_call({"name": "ana lee"})
    matcher.add_result("mail.get", {"id": "m-1", "text": "see ana lee about US13 3000 0000 1212 1212 12", "size": 5})
    assert [(value, matcher.origins(value)[0], matcher.steps) for value, *_ in COUNTED] == COUNTED
    matcher.origins("ask ana lee, or zoe@a.example", ArgumentKind.TEXT)
    assert matcher.steps == 339
    assert matcher.carries("see m-1, or see ana lee about US13 3000 0000 1212 1212 12") == ["mail.get#/text"]
    assert matcher.steps == 191


@pytest.mark.parametrize(
    ("text", "accounts"),
    [
        ("1234567", set()),
        ("12345678", {"12345678"}),
        ("1234-5678", {"12345678"}),
        ("1234567 8", {"12345678"}),
        ("1234567 ab 8", {"1234567ab8"}),
        ("12345678 abcd", {"12345678abcd"}),
        ("12345678 abcde", {"12345678"}),
        ("12345678 ab-cd", {"12345678abcd"}),
        ("12345678 ab.cd", {"12345678"}),
        ("12345678, 9", {"12345678"}),
        ("12345678 für x", {"12345678"}),
        ("12345678 \u0663", {"12345678"}),
        ("12345678\u0663", set()),
        ("abcd 12345678", {"12345678"}),
        ("abcd1 2345678", {"abcd12345678"}),
        ("abcde1 2345678", set()),
        ("12345678 (23456789)", {"12345678", "23456789"}),
    ],
)
def test_an_account_is_a_run_of_short_groups_with_eight_digits(text: str, accounts: set[str]) -> None:
    assert Words.of(text).accounts == accounts
