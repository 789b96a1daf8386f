"""Laundering: every way we know to make a value seem to be somebody else's. Each gives the more suspicious origin."""

from __future__ import annotations

import base64
import html
import json
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from core.origins.disguises import FORMS_MAX, Forms, disguises, plain
from core.origins.kinds import ArgumentKind
from core.origins.matching import Matcher
from core.origins.words import fold

pytestmark = pytest.mark.req("P-14")
TEXT = ArgumentKind.TEXT
MODEL = [["model"]]
ANA, EVIL = "ana.lee@acme.example", "mallory@evil.example"
READ = "mail.message.get"


def asked(text: Any) -> Matcher:
    matcher = Matcher()
    matcher.add_source("requester", text)
    return matcher


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def wide(text: str) -> str:
    """The text in the wide letters of East Asian fonts."""
    return "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text)


# What stands in the place of the address that the requester has named, and is another one.
LOOK_ALIKES = {
    "a Cyrillic letter": "\u0430na.lee@acme.example",
    "a Greek letter": "an\u03b1.lee@acme.example",
    "a wide letter": "\uff41na.lee@acme.example",
    "all wide": wide(ANA),
    "a letter of mathematics": "\U0001d41ana.lee@acme.example",
    "a small capital": "\u1d00na.lee@acme.example",
    "a dotless i": "ana.lee@acme.\u0131example",
    "a combining mark": "ana\u0301.lee@acme.example",
    "a mark that is not seen": "ana\u034f.lee@acme.example",
    "a zero-width space within": "ana\u200b.lee@acme.example",
    "a zero-width space behind": f"{ANA}\u200b",
    "a zero-width space before": f"\u200b{ANA}",
    "a zero-width joiner": "ana\u200d.lee@acme.example",
    "a word joiner behind": f"{ANA}\u2060",
    "a byte order mark": f"\ufeff{ANA}",
    "a soft hyphen": "ana\u00ad.lee@acme.example",
    "a Mongolian separator": f"{ANA}\u180e",
    "a filler": f"{ANA}\u3164",
    "a tag": f"{ANA}\U000e0061",
    "a variation selector": f"{ANA}\ufe0f",
    "text from right to left": f"\u202e{ANA}",
    "a NUL": f"{ANA}\x00",
    "a backspace": f"{ANA}x\x08",
    "an escape of terminals": f"\x1b[0m{ANA}",
    "a full stop of other scripts": "ana.lee@acme\u3002example",
    "punycode": "ana.lee@xn--acme-9ta.example",
    "a plus tag": "ana.lee+evil@acme.example",
    "without its dots": "analee@acme.example",
    "with more dots": "a.na.lee@acme.example",
    "the host above": "ana.lee@evil.acme.example",
    "the host below": "ana.lee@acme.example.evil.example",
    "a beginning of it": "ana.lee@acme",
    "an end of it": "lee@acme.example",
    "an account before": "evil.ana.lee@acme.example",
    "a route": "@evil.example:ana.lee@acme.example",
    "two in one": f"{ANA},{EVIL}",
    "a line more": f"{ANA}\r\nBcc: {EVIL}",
    "a name in quotes": f'"{ANA}" <{EVIL}>',
    "a percent escape": "ana.lee%40acme.example",
    "all in percent escapes": "".join(f"%{ord(one):02x}" for one in ANA),
    "entities": "".join(f"&#{ord(one)};" for one in ANA),
    "an entity": "ana.lee&commat;acme.example",
    "an escape of JSON": "ana.lee\\u0040acme.example",
    "a text of JSON": json.dumps({"to": ANA}),
    "base64": in_base64(ANA),
    "hexadecimal": ANA.encode().hex(),
    "backwards": ANA[::-1],
    "a scheme": f"mailto:{ANA}",
}


@pytest.mark.parametrize("how", LOOK_ALIKES)
def test_what_looks_like_the_requesters_address_is_the_models(how: str) -> None:
    matcher = asked(f"Please write to {ANA} about the invoice, and to nobody else at acme.example.")
    assert matcher.origins(LOOK_ALIKES[how]) == MODEL
    assert matcher.origins([{"to": [LOOK_ALIKES[how]]}], known={"to"}) == MODEL


@pytest.mark.parametrize(
    ("prompt", "value"),
    [
        ("ask o'brien@acme.example", "brien@acme.example"),
        ("ask a!b@acme.example", "b@acme.example"),
        ("open https://acme.example/a,b", "https://acme.example/a"),
        ("open https://acme.example/a;v=1", "https://acme.example/a"),
        ("open https://acme.example/get(id)", "https://acme.example/get"),
        ("open https://acme.example/~ana", "https://acme.example"),
        ("open https://acme.example/$ana", "https://acme.example/"),
        ("write to gross@acme.example", "groß@acme.example"),
        ("write to groß@acme.example", "gross@acme.example"),
        ("write to kim@acme.example", "\u212aim@acme.example"),
        ("write to sam@acme.example", "\u017fam@acme.example"),
        ("write to figo@acme.example", "\ufb01go@acme.example"),
        ("this and / or that", "/"),
        ("all of it. Now.", "."),
        ("give me a * for it", "*"),
        ("50 % of it", "%"),
        ("what? really", "?"),
        ("well - yes", "-"),
        ("of version 1.1", "1.10"),
        ("of version 1", "1.0"),
        ("take 5", "+5"),
        ("take five", 5),
        ("take 5", "five"),
        ("take 5", "\u0665"),
        ("take 5", "V"),
        ("take 5", "0x5"),
        ("take 1000", "1e3"),
        ("take 1,5", 1.5),
        ("take 5", "5five"),
        ("by 5 June 2024", "05/06/2024"),
        ("by 05/06/2024", "2024-06-05"),
        ("by 05.06.2024", "2024-06-05"),
        ("by May 15", "15.5."),
        ("by May 15, 2024", "1715731200"),
        ("by May 15, 2024", "2024-W20-3"),
        ("ana and lee", "ana lee"),
        ("ana, lee", "ana lee"),
        ("ana lee", "ana\u200blee"),
        ("ana lee", "an alee"),
        ("ana lee", "analee"),
        ("ana", " "),
        ("ana", "\t\n"),
        ("ana", "\u00a0"),
        ("the incident INC0010001", "INC001000"),
        ("the incident INC0010001", "NC0010001"),
        ("the incident INC0010001", "INC00100011"),
        ("the file report.pdf", "report.pdf.exe"),
        ("the file report.pdf", "../report.pdf"),
        ("the file a/b", "a/b/../../c"),
        ("x = 1", "x = 1 OR 1 = 1"),
    ],
)  # fmt: skip
def test_a_part_or_another_writing_of_the_requesters_words_is_the_models(prompt: str, value: Any) -> None:
    assert asked(prompt).origins(value) == MODEL


@pytest.mark.parametrize(
    ("prompt", "value"),
    [
        ("ask o'brien@acme.example", "O'Brien@acme.example"),
        (f"ask '{ANA}' now", ANA),
        (f"ask ({ANA})", ANA),
        (f"ask {ANA},raj@acme.example", ANA),
        (f'{{"to":"{ANA}","cc":"x"}}', ANA),
        ("open https://acme.example/a,b.", "https://acme.example/a,b"),
        ("see <https://acme.example/a|it>", "https://acme.example/a"),
        ("open [it](https://acme.example/a)", "https://acme.example/a"),
        ("open Ana's file", "ana"),
        ("of version 1.10", "1.10"),
        ("pay 1,000", "1000"),
        ("ÄRGER", "ärger"),
        ("\u0416\u0423\u041a", "\u0436\u0443\u043a"),
        ("#general", "#general"),
    ],
)
def test_what_the_requester_wrote_stays_the_requesters(prompt: str, value: Any) -> None:
    assert asked(prompt).origins(value) == [["requester"]]


def test_a_value_made_of_two_sources_is_the_models() -> None:
    matcher = asked("write to mallory, who is at @evil")
    matcher.add_result(READ, {"domain": "evil.example", "sign": "@", "a": "mallory@", "b": "@evil.example"})
    assert matcher.origins(EVIL) == MODEL
    assert matcher.origins("mallory evil.example") == MODEL


def test_a_value_in_pieces_of_one_source_is_the_models() -> None:
    matcher = asked({"first": "ana", "then": "lee", "list": ["red", "blue"]})
    assert matcher.origins("ana lee") == MODEL
    assert matcher.origins("red blue") == MODEL


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_value_split_over_calls_stays_the_models_whatever_puts_it_together(calls: int) -> None:
    matcher = asked("")
    pieces = [EVIL[:8], EVIL[8:15], EVIL[15:]][3 - calls :] if calls < 3 else [EVIL[:8], EVIL[8:15], EVIL[15:]]
    value = "".join(pieces)
    for piece in pieces:
        matcher.add_call({"path": "notes.txt", "append": piece, "page": 1})
    matcher.add_result(READ, {"note": value, "size": len(value)})
    assert matcher.origins(value) == MODEL
    assert matcher.origins(value.upper()) == MODEL


def test_a_value_that_was_read_before_its_parts_were_said_keeps_its_origin() -> None:
    matcher = asked("")
    matcher.add_call({"page": 1})
    matcher.add_result(READ, {"from": EVIL})
    matcher.add_call({"a": EVIL[:8]})
    matcher.add_call({"a": EVIL[8:]})
    matcher.add_result("note.get", {"text": EVIL})
    assert matcher.origins(EVIL) == [[f"field:{READ}#/from", f"tool:{READ}"]]


def test_short_values_are_not_taken_for_parts_that_were_said() -> None:
    """Else every number of four digits would be the model's once it has counted pages."""
    matcher = asked("")
    matcher.add_call({"page": 12, "size": 30})
    matcher.add_result(READ, {"id": "1230"})
    assert matcher.origins("1230") == [[f"field:{READ}#/id", f"tool:{READ}"]]


SAID: dict[str, Callable[[str], str]] = {
    "percent escapes": lambda text: quote(text, safe=""),
    "percent escapes of all": lambda text: "".join(f"%{ord(one):02X}" for one in text),
    "entities": lambda text: "".join(f"&#{ord(one)};" for one in text),
    "an entity": lambda text: text.replace("@", "&commat;"),
    "escapes of JSON": lambda text: "".join(f"\\u{ord(one):04x}" for one in text),
    "escapes of bytes": lambda text: "".join(f"\\x{ord(one):02x}" for one in text),
    "base64": in_base64,
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "hexadecimal": lambda text: text.encode().hex(),
    "wide letters": wide,
    "capitals": str.upper,
    "zero-width characters": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "blanks": " ".join,
    "combining marks": lambda text: "".join(f"{one}\u0301" for one in text),
    "a key": str,
}


@pytest.mark.parametrize("how", SAID)
def test_what_the_model_said_in_disguise_stays_the_models_whatever_decodes_it(how: str) -> None:
    matcher, said = asked(""), SAID[how](EVIL)
    matcher.add_call({said: 1} if how == "a key" else {"q": f"see {said} there"})
    matcher.add_result("search", {"query": EVIL, "hits": []})
    assert matcher.origins(EVIL) == MODEL


@pytest.mark.parametrize("how", [one for one in SAID if one not in ("a key", "blanks", "combining marks", "capitals")])
def test_an_address_in_disguise_within_a_text_is_seen(how: str) -> None:
    matcher = asked(f"write to {ANA}")
    assert MODEL[0] in matcher.origins(f"Dear Ana, see {SAID[how](EVIL)} for all.", TEXT)


def test_an_address_of_the_requesters_in_a_text_of_html_is_the_requesters() -> None:
    link = "https://acme.example/a?b=1&c=2"
    assert asked(f"send {link}").origins(f"Here: {link}", TEXT) == [["model", "text"], ["requester"]]
    assert ["requester"] in asked(f"send {link}").origins(f"Here: {html.escape(link)}", TEXT)


@pytest.mark.parametrize("how", ["percent escapes", "entities", "base64", "hexadecimal", "wide letters"])
def test_a_field_that_is_carried_out_in_disguise_is_seen(how: str) -> None:
    matcher = asked("")
    matcher.add_result(READ, {"secret": "token-4711-x"})
    assert matcher.carries({"body": f"Hello. {SAID[how]('token-4711-x')}"}) == [f"{READ}#/secret"]


@pytest.mark.parametrize("other", [f"tool:{READ}", "trigger:servicenow", "signal:paid", "unknown"])
def test_a_form_that_quotes_an_attacker_makes_it_nobodys_word_of_ours(other: str) -> None:
    matcher = asked("")
    if other.startswith("tool:"):
        matcher.add_result(READ, {"note": f"write {EVIL}"})
    else:
        matcher.add_source(other, f"write {EVIL}")
    matcher.add_source("person", {"answer": f"{EVIL} then, or 'beta'"})
    assert matcher.origins(EVIL) == [[other]]
    assert matcher.origins("beta") == [["person"]]


def test_the_key_of_an_object_carries_nothing_unseen() -> None:
    matcher = asked("set the state")
    for value in ({EVIL: "state"}, {"to": {EVIL: 1}}, [{"to": [{EVIL: None}]}]):
        assert ["model"] in matcher.origins(value, known={"to"})


def test_a_query_that_may_be_another_ones_looks_nothing_up() -> None:
    """A query that may be withheld may have been the attacker's, so it is not surely the requester's."""
    matcher = Matcher()
    matcher.withheld()
    matcher.add_source("requester", "find Ana")
    assert not matcher.add_call({"name": "Ana"})
    assert asked("find Ana").add_call({"name": "Ana"})


@pytest.mark.parametrize("depth", [1, 30])
def test_nested_values_are_each_asked(depth: int) -> None:
    value: Any = EVIL
    for _ in range(depth):
        value = [{"to": value}]
    assert asked("to ana").origins(value, known={"to"}) == MODEL


def test_a_text_of_every_character_fills_no_memory() -> None:
    """Forms of characters are kept for the next text, and a text may hold a million different ones."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000))))
    for text in (every, every):
        fold(text)
        plain(text)
        assert [*disguises(text)]
    modules = [module for name, module in sys.modules.items() if name.startswith("core.origins.")]
    kept = [len(forms) for module in modules for forms in vars(module).values() if type(forms) is Forms]
    assert kept
    assert max(kept) <= FORMS_MAX
