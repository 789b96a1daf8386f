"""Attacks by a second reader of the matcher, of other kinds than those of ``make dojo``.

Each is a value that a request has somehow, for an argument for which nobody meant it. Names, suites and arguments are
none that a policy was made with.
"""

from __future__ import annotations

from typing import Any

import pytest

from core.origins.kinds import ArgumentKind
from core.origins.matching import Matcher
from core.origins.repeats import Performed

pytestmark = pytest.mark.req("P-14")
OURS = "requester"
AMOUNT, DATE, NAME, EMAIL, LINK, ACCOUNT, NAMED, TEXT, VALUE = (
    ArgumentKind(one) for one in ("amount", "date", "name", "email", "link", "account", "named", "text", "value")
)


def origins(request: str, value: Any, kind: ArgumentKind, name: str = "") -> list[list[str]]:
    matcher = Matcher()
    matcher.add_source(OURS, request)
    return matcher.origins(value, kind, name=name)


NUMBERS = (
    "Give 310.50 back to Mira Olsen by May 15, 2031, for 6 chairs in room 204 of version 2.10; call +47 221 90 411."
)
SPLIT = "Pay 1 000 or 1\u202f500 or 2'000 or 7,50 or 3.000 EUR, not 900, and 4 million or 30 percent or $8 vouchers."
VISIT = (
    "Put the visit on 2031-05-15 at 09:15. The other one, of 2031-06-20, is at 18:30. Ref 2031-07-01/7, no. 20310801."
)
WEEK = "She may 5 times march 4 miles on Friday with OK from Lars Berg."
PLACES = "Read notes.zip and acme.example, then https://acme.example/@mira, then ask mira@acme.example."
DIAL = "Call +47 22 19 04 11 88 (or tel. +47 (221) 904118 82) on 2031-05-15 about account NO93 8601 1117 947."
WORDS_OF = (
    "Set my password to 'k9-Blue' and name the file 'plan.odt'. The file 'old.odt' has my password, street 7 in Rome."
)
PINS = "Pay Ana. My PIN is 4711, it is page 1 of 7, from 3 to 9. Pay; go to 42, press 2, then 8."
DENIED = "Write to Mira Olsen, not to Lars Berg. Don't use 'random'; ignore eve@evil.example, and pay 70 instead of 80."
SAID = (
    "Tell her: the door is open. Wait, i.e. leave the door wide open. He paid; never pay him again. Go now: run away!"
)


@pytest.mark.parametrize(
    ("attack", "request_", "kind", "name", "values"),
    [
        ("an amount that is a day, a year, a count, a room, a version", NUMBERS, AMOUNT, "", [15, 2031, 6, 204, 2.1]),
        ("an amount that is a group of a telephone number", NUMBERS, AMOUNT, "", [47, 221, 90, 411, "221"]),
        ("a number that is a part of a date or a telephone number", NUMBERS, VALUE, "", [15, "2031", 221, "+47"]),
        ("a number with other separators", SPLIT, AMOUNT, "", [1, 0, 500, 2, 7, 50, 3, 3000, 1000, "2000"]),
        ("an amount that is denied, a share or more than it says", SPLIT, AMOUNT, "", [900, 4, 30, 8]),
        ("a date with the time of another one", VISIT, DATE, "", ["2031-05-15 18:30", "2031-06-20T09:15"]),
        ("a date in an identifier, or in another notation", VISIT, DATE, "", ["2031-07-01", "15.05.2031"]),
        ("a word that is a month too", WEEK, DATE, "", ["2031-05-05", "2031-03-04"]),
        ("a relative date", WEEK, DATE, "", ["tomorrow", "friday", "next week"]),
        ("a day of the week as a name", WEEK, NAME, "", ["Friday", "friday"]),
        ("a part of a name, a name with a sign more", WEEK, NAME, "", ["Lars", "Berg", "Lars Berg.", "lars.berg"]),
        ("letters that look alike", WEEK, NAME, "", ["L\u0430rs Berg", "Lars B\u200berg", "Lar\u017f"]),
        ("a file, mailbox or host as a link", PLACES, LINK, "", ["notes.zip", "acme.example", "mira@acme.example"]),
        ("a link as a mailbox, another name", PLACES, EMAIL, "", ["https://acme.example/@mira", "mira@evil.example"]),
        ("a link with another path or case", PLACES, LINK, "", ["https://acme.example/@MIRA", "https://acme.example/"]),
        ("a telephone number as an account", DIAL, ACCOUNT, "", ["2219041188", "22 19 04 11 88", "90411882"]),
        ("a date as an account", DIAL, ACCOUNT, "", ["20310515", "2031-05-15"]),
        ("an account like it", DIAL, ACCOUNT, "", ["NO9386011117974", "NO93 8601 1117 974", "93 8601 1117 947"]),
        ("an account as an amount", DIAL, AMOUNT, "", [8601, 947, 9386011117947]),
        ("what a sentence names for something else", WORDS_OF, NAMED, "password", ["plan.odt", "old.odt"]),
        ("a file that is called as a password", WORDS_OF, NAMED, "filename", ["k9-Blue", "file", "password"]),
        ("a street that is a city", WORDS_OF, NAMED, "street", ["Rome", "in Rome"]),
        ("a password that has its name", "Title it 'password reset' for Password Ltd.", NAMED, "password",
            ["password reset", "Password Ltd"]),
        ("a number that something else is", PINS, AMOUNT, "",
            [4711, 1, 7, 3, 9, 42, 2, 8]),
        ("all but one", "Write to all but Lars Berg. Or to anybody other than Mira Olsen.", NAME, "",
            ["Lars Berg", "Mira Olsen"]),
        ("a name in two arguments", WEEK, NAMED, "first_name", ["Lars", "Berg"]),
        ("somebody whom the request leaves out", DENIED, NAME, "", ["Lars Berg", "random"]),
        ("a mailbox that shall be ignored", DENIED, EMAIL, "", ["eve@evil.example"]),
        ("an amount that another one replaces", DENIED, AMOUNT, "", [80]),
        ("a text that is a part of a sentence", SAID, TEXT, "", ["leave the door wide open", "never pay him again"]),
        ("a text that ends before a colon", SAID, TEXT, "", ["Go now right", "Wait, i.e", "Tell her the door"]),
        ("a nested value beside a designated one", WEEK, VALUE, "", [{"to": {"cc": ["Lars"]}}, ["Lars"], [["march"]]]),
    ],
)  # fmt: skip
def test_what_a_request_has_otherwise_is_not_the_requesters(
    attack: str, request_: str, kind: ArgumentKind, name: str, values: list[Any]
) -> None:
    for value in values:
        found = origins(request_, value, kind, name)
        assert not any(OURS in inner for inner in found), f"{attack}: {value!r}"
        assert all("model" in inner for inner in found), f"{attack}: {value!r}"


@pytest.mark.parametrize(
    ("request_", "kind", "name", "values"),
    [
        (NUMBERS, AMOUNT, "", [310.5, "310.50"]),
        (NUMBERS, VALUE, "", [6, "204", 2.1]),
        ("Pay $20, then 30, 40 EUR and 5 dollars, or 7€. Rent is 2200, not 9.", AMOUNT, "", [20, 30, 40, 5, 7, 2200]),
        (VISIT, DATE, "", ["2031-05-15 09:15", "2031-06-20 18:30", "2031-05-15"]),
        ("Am I free at 12:00? Then book 2031-05-19.", DATE, "", ["2031-05-19 12:00"]),
        ("On May 5, on 4 March or on 3rd of may", DATE, "", ["2031-05-05", "2031-03-04", "2031-05-03"]),
        (WEEK, NAME, "", ["Lars Berg", "LARS BERG"]),
        (PLACES, LINK, "", ["https://acme.example/@mira"]),
        (PLACES, EMAIL, "", ["mira@acme.example"]),
        (DIAL, ACCOUNT, "", ["NO9386011117947", "NO93 8601 1117 947"]),
        (WORDS_OF, NAMED, "password", ["k9-Blue"]),
        (WORDS_OF, NAMED, "filename", ["plan.odt", "old.odt"]),
        ("Use 'k9' as my new password.", NAMED, "password", ["k9"]),
        (DENIED, NAME, "", ["Mira Olsen"]),
        ("Don't forget to ask Lars Berg", NAME, "", ["Lars Berg"]),
        (DENIED, AMOUNT, "", [70]),
        (SAID, TEXT, "", ["the door is open", "The door is open."]),
    ],
)
def test_what_it_designates_still_is(request_: str, kind: ArgumentKind, name: str, values: list[Any]) -> None:
    for value in values:
        assert OURS in origins(request_, value, kind, name)[0], value


def test_a_list_with_a_foreign_value_tells_it() -> None:
    found = origins(WEEK, ["Lars Berg", "Eve Moss", "Lars Berg"], NAME)
    assert [OURS in inner for inner in found] == [True, False, True]


@pytest.mark.parametrize(
    ("attack", "now"),
    [
        ("values of two calls in one", {"to": ["Mira Olsen"], "sum": 30}),
        ("an empty list more", {"to": ["Mira Olsen"], "sum": 20, "tags": []}),
        ("a list in another order, one twice", {"to": ["Lars Berg", "Lars Berg"], "sum": 20}),
        ("names in other case", {"to": ["LARS  BERG"], "sum": 30}),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_what_earlier_calls_used_makes_no_call_more(attack: str, now: dict[str, Any], nested: bool) -> None:
    matcher, performed = Matcher(), Performed()
    matcher.add_source(OURS, "Pay 20 to Mira Olsen and 30 to Lars Berg, or 40.")
    for to, amount in (("Mira Olsen", 20), ("Lars Berg", 30)):
        made = {"to": [to], "sum": amount}
        performed.add("bank.pay", {"order": made} if nested else made)
    given = {("order",): now} if nested else {(name,): value for name, value in now.items() if value}
    found = {path: matcher.origins(value, known={"to", "sum", "tags"}) for path, value in given.items()}
    spent = performed.spend("bank.pay", given, found, [])
    assert not any(OURS in inner for inners in spent.values() for inner in inners), attack
    other = {**given, ("sum",): 40}
    found = {path: matcher.origins(value, known={"to", "sum", "tags"}) for path, value in other.items()}
    assert OURS in performed.spend("bank.pay", other, found, [])[("sum",)][0], "an amount that is left is a call"


@pytest.mark.parametrize(
    ("query", "name", "found"),
    [
        ("is artful", "thisartful.odt", False),
        ("grocery list", "grocery_list-2.odt", True),
        ("list gro", "my list groceries", False),
    ],
)
def test_a_record_is_found_by_whole_words_of_its_name(query: str, name: str, found: bool) -> None:
    matcher = Matcher()
    matcher.add_source(OURS, "It is artful to add to the grocery list gro and so on.")
    own = matcher.add_call({"q": query})
    shown: Any = {"items": [{"id": "f-77", "name": name}]}
    matcher.add_result(
        "file.find", shown, records="/items", own=own, protected=["/items/id", "/items/name"], asked={"q": query}
    )
    assert ("lookup:file.find#/items/id" in matcher.origins("f-77")[0]) == found
