"""A conversation as the matcher takes it in: in its order, and the same for all who hold it (P-14)."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from core.origins.conversation import Heard, Listener, digest_of, matcher_of
from core.origins.matching import MODEL, PERSON, ArgumentKind

pytestmark = pytest.mark.req("P-14")
UNKNOWN = [["unknown"]]


def answer(step: str, *calls: Any, text: str = "") -> Heard:
    """The answer of a turn; a call is its arguments, as a value or as the text that the model wrote."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in calls]
    made = [{"id": str(n), "function": {"name": "t", "arguments": each}} for n, each in enumerate(texts)]
    return Heard(MODEL, {"text": text, "tool_calls": made}, step, answer=True)


ASKED = Heard("requester", "Read INC0010001 for ann@x.example, true or false.")
FOUND = Heard("tool:t.get", {"records": [{"id": "alpha"}]}, "a/1/1", "/records")
LOOKUP = ["field:t.get#/records/id", "lookup:t.get#/records/id", "tool:t.get"]


def test_each_thing_that_was_shown_is_a_source() -> None:
    matcher = matcher_of(
        [ASKED, Heard(PERSON, {"answer": "omega"}), Heard("tool:t.get", {"note": "has beta"}, "a/1/1")]
    )
    assert matcher.origins("INC0010001") == [["requester"]]
    assert matcher.origins("omega") == [["person"]]
    assert matcher.origins("beta") == [["tool:t.get"]]
    assert matcher.origins("gamma") == [["model"]]


@pytest.mark.parametrize(
    ("said", "shown", "wanted"),
    [
        ([], "alpha", [["tool:t.get"]]),
        ([Heard(MODEL, "alpha it is")], "alpha", [["model"]]),
        ([answer("a/1", {"name": "alpha"})], "alpha", [["model"]]),
        ([answer("a/1", '{"name": "alpha"')], "alpha", [["model"]]),
        ([answer("a/1", text="alpha it is")], "alpha", [["model"]]),
        ([answer("a/1", "", "  ")], "alpha", [["tool:t.get"]]),
        ([Heard(MODEL, "no object", "a/1", answer=True)], "alpha", [["tool:t.get"]]),
        ([Heard(MODEL, {"text": None}, "a/1", answer=True)], "alpha", [["tool:t.get"]]),
    ],
)
def test_what_the_model_said_before_stays_its_own(said: Any, shown: str, wanted: Any) -> None:
    after = Heard("tool:t.get", {"note": f"has {shown}"}, "a/1/1")
    assert matcher_of([ASKED, *said, after]).origins(shown) == wanted
    assert matcher_of([ASKED, after, *said]).origins(shown) == [["tool:t.get"]], "it had been shown before"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"q": "INC0010001"}, LOOKUP),
        ({"q": "made up"}, [LOOKUP[0], LOOKUP[2]]),
        ({"q": "INC0010001", "more": "made up"}, [LOOKUP[0], LOOKUP[2]]),
        ({"q": "INC0010001", "more": None}, [LOOKUP[0], LOOKUP[2]]),
        ({}, [LOOKUP[0], LOOKUP[2]]),
        ({"q": "INC0010001", "all": True}, [LOOKUP[0], LOOKUP[2]]),
        ({"q": "INC0010001", "all": False}, [LOOKUP[0], LOOKUP[2]]),
        ({"q": "INC0010001", "to": "ann@x.example"}, LOOKUP),
        ({"INC0010001": "made up"}, [LOOKUP[0], LOOKUP[2]]),
        ({"made up": "INC0010001"}, LOOKUP),
    ],
)
def test_the_only_record_of_a_call_in_the_requesters_words_is_looked_up(arguments: Any, wanted: list[str]) -> None:
    assert matcher_of([ASKED, answer("a/1", arguments), FOUND]).origins("alpha") == [wanted]


def test_a_call_is_in_the_requesters_words_although_others_have_said_them_too() -> None:
    other = Heard("tool:t.other", {"note": "INC0010001 is open"}, "a/0/1")
    for before in ([ASKED, other], [other, ASKED]):
        assert matcher_of([*before, answer("a/1", {"q": "INC0010001"}), FOUND]).origins("alpha") == [LOOKUP]
    withheld = matcher_of([ASKED, None, answer("a/1", {"q": "INC0010001"}), FOUND])
    assert withheld.origins("alpha") == [[LOOKUP[0], LOOKUP[2], "unknown"]]


@pytest.mark.parametrize(
    ("said", "shown", "own"),
    [
        ("pay 5.50", 5.5, True),
        ("pay 5.51", 5.5, False),
        ("pay 1,000.00", 1000, True),
        ("xabcdex", "abcde", True),
        ("xabcdx", "abcd", False),
        ("x abcd x", "abcd", True),
        ("x ab-cde x", "abcde", True),
        ("x ab-cd x", "abcd", False),
    ],
)
def test_a_value_was_said_as_a_number_within_a_longer_text_or_as_a_word(said: str, shown: Any, own: bool) -> None:
    """Short values are words of their own; longer ones may stand anywhere, whatever is between their letters."""
    found = matcher_of([answer("a/1", {"t": said}), Heard("tool:t.get", {"n": shown}, "a/1/1")]).origins(shown)
    assert found == ([["model"]] if own else [["field:t.get#/n", "tool:t.get"]])


def test_a_call_is_remembered_until_its_result_comes() -> None:
    for between in ([answer("a/2", {"q": "made up"})], [Heard(PERSON, "yes"), answer("a/2"), answer("a/3")]):
        assert matcher_of([ASKED, answer("a/1", {"q": "INC0010001"}), *between, FOUND]).origins("alpha") == [LOOKUP]


def test_a_result_without_a_step_is_a_source_of_its_label_alone() -> None:
    matcher = matcher_of([ASKED, Heard("tool:t.get", {"records": [{"id": "alpha"}]}, "", "/records")])
    assert matcher.origins("alpha") == [["tool:t.get"]]
    assert matcher.carries("see alpha") == []


def test_each_field_that_holds_a_value_is_named() -> None:
    rows: Any = {"records": [{"a": "alpha", "b": "alpha"}, {"c": {"a": "alpha"}}], "alpha": 1}
    matcher = matcher_of([ASKED, Heard("tool:t.get", rows, "a/1/1")])
    fields = [f"field:t.get#/records/{name}" for name in ("a", "b", "c/a")]
    assert matcher.origins("alpha") == [[*fields, "tool:t.get"]]


def test_what_is_carried_is_found_in_each_text_and_its_disguises() -> None:
    matcher = matcher_of([ASKED, Heard("tool:t.get", {"a": "secret word", "b": "other word"}, "a/1/1")])
    hidden = b64encode(b"the secret word").decode()
    several: list[Any] = [[hidden, "x"], ["x", hidden], ["other word", hidden], {"p": "y", "q": [hidden]}]
    for texts in several:
        assert "t.get#/a" in matcher.carries(texts)
    assert matcher.carries(["other word", hidden]) == ["t.get#/a", "t.get#/b"]


def test_a_result_belongs_to_its_own_call() -> None:
    """The second call was in the requester's words; the first one was not."""
    both = answer("a/1", {"q": "made up"}, {"q": "INC0010001"})
    second = Heard("tool:t.get", {"records": [{"id": "beta"}]}, "a/1/2", "/records")
    matcher = matcher_of([ASKED, both, FOUND, second])
    assert matcher.origins("alpha") == [[LOOKUP[0], LOOKUP[2]]]
    assert matcher.origins("beta") == [LOOKUP]


@pytest.mark.parametrize(
    "before",
    [
        [],
        [None],
        [Heard(MODEL, "INC0010001")],
        [Heard(MODEL, "INC0010001", "a/1", answer=True)],
        [answer("a/1", text="INC0010001")],
        [answer("a/2", {"q": "INC0010001"})],
        [answer("a/1"), answer("a/2", {"q": "INC0010001"})],
    ],
)
def test_the_result_of_a_call_that_was_not_heard_is_no_lookup(before: list[Heard | None]) -> None:
    origins = matcher_of([ASKED, *before, FOUND]).origins("alpha")
    assert origins == [[LOOKUP[0], LOOKUP[2], *(["unknown"] if None in before else [])]]


@pytest.mark.parametrize("records", [[], [{"id": "alpha"}, {"id": "other"}], ["alpha"], "alpha", None, 7])
def test_only_one_record_can_be_looked_up(records: Any) -> None:
    shown = Heard("tool:t.get", {"records": records}, "a/1/1", "/records")
    found = matcher_of([ASKED, answer("a/1", {"q": "INC0010001"}), shown]).origins("alpha")
    assert not any(one.startswith("lookup:") for inner in found for one in inner)
    alone = Heard("tool:t.get", {"records": {"id": "alpha"}}, "a/1/1", "/records")
    assert matcher_of([ASKED, answer("a/1", {"q": "INC0010001"}), alone]).origins("alpha") == [LOOKUP]


def test_what_cannot_be_read_may_have_held_anything() -> None:
    matcher = matcher_of([ASKED, None])
    assert matcher.origins("gamma") == UNKNOWN
    assert "unknown" in str(matcher.carries("gamma delta"))
    assert matcher_of([ASKED]).carries("gamma delta") == []
    for heard in ([None, ASKED, FOUND], [ASKED, None, FOUND], [ASKED, FOUND, None]):
        assert matcher_of(heard).carries("gamma delta") == ["unknown"]
        assert matcher_of(heard).carries("see alpha") == ["t.get#/records/id", "unknown"]
        assert matcher_of(heard).carries(["gamma", 7]) == ["unknown"]
        assert matcher_of(heard).carries([7, None]) == []


def test_a_conversation_goes_on_as_if_it_were_heard_at_once() -> None:
    whole = [ASKED, answer("a/1", {"q": "INC0010001"}), FOUND, answer("a/2", {"name": "beta"}), Heard(PERSON, "beta")]
    listener = Listener()
    for length in range(len(whole) + 1):
        assert listener.knows_the_beginning_of(whole)
        listener.listen(whole[:length])
        assert listener.heard == whole[:length]
    for value in ("alpha", "beta", "INC0010001", "none"):
        assert listener.matcher.origins(value) == matcher_of(whole).origins(value)
    assert not listener.knows_the_beginning_of(whole[:2])
    assert not listener.knows_the_beginning_of([*whole[:2], None, *whole[3:]])


def test_a_digest_is_of_everything_that_decides() -> None:
    assert digest_of([ASKED, FOUND, None]) == digest_of([ASKED, FOUND, None])
    others = [
        [FOUND, ASKED],
        [ASKED, FOUND],
        [ASKED],
        [ASKED, None],
        [ASKED, Heard(FOUND.origin, FOUND.value, "a/1/2", FOUND.records)],
        [ASKED, Heard(FOUND.origin, FOUND.value, FOUND.step)],
        [ASKED, Heard(FOUND.origin, {}, FOUND.step, FOUND.records)],
        [ASKED, Heard("tool:other", FOUND.value, FOUND.step, FOUND.records)],
    ]
    assert len({digest_of(each) for each in others}) == len(others)


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        (None, ArgumentKind.VALUE, [["model"]]),
        (True, ArgumentKind.VALUE, [["model"]]),
        ("", ArgumentKind.VALUE, [["model"]]),
        ([], ArgumentKind.VALUE, [["model"]]),
        ({}, ArgumentKind.TEXT, [["model"]]),
        ("INC0010001", ArgumentKind.FLAG, [["model"]]),
        (["INC0010001", "x"], ArgumentKind.VALUE, [["requester"], ["model"]]),
        ({"INC0010001": "x"}, ArgumentKind.VALUE, [["requester"], ["model"]]),
    ],
)
def test_every_part_of_a_value_has_an_origin(value: Any, kind: ArgumentKind, wanted: Any) -> None:
    assert sorted(matcher_of([ASKED]).origins(value, kind)) == sorted(wanted)


def test_names_that_a_schema_declares_are_no_values() -> None:
    matcher = matcher_of([ASKED])
    assert matcher.origins({"q": "INC0010001"}, known=("q",)) == [["requester"]]
    assert sorted(matcher.origins({"q": "INC0010001"})) == [["model"], ["requester"]]
