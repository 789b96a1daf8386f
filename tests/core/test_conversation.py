"""A conversation as the matcher takes it in: in its order, and the same for all who hold it (P-14)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.origins.conversation import Listener, Passage, digest_of, matcher_of
from core.origins.kinds import ArgumentKind
from core.origins.matching import MODEL, PERSON

pytestmark = pytest.mark.req("P-14")
UNKNOWN = [["unknown"]]


def answer(step: str, *calls: Any, text: str = "") -> Passage:
    """The answer of a turn; a call is its arguments, as a value or as the text that the model wrote."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in calls]
    made = [{"id": str(n), "function": {"name": "t", "arguments": each}} for n, each in enumerate(texts)]
    return Passage(MODEL, {"text": text, "tool_calls": made}, step, answer=True)


ASKED = Passage("requester", "Read INC0010001 for ann@x.example, true or false.")
FOUND = Passage("tool:t.get", {"records": [{"id": "alpha"}]}, "a/1/1", "/records")
LOOKUP = ["field:t.get#/records/id", "lookup:t.get#/records/id", "tool:t.get"]


def test_each_thing_that_was_shown_is_a_source() -> None:
    matcher = matcher_of(
        [ASKED, Passage(PERSON, {"answer": "omega"}), Passage("tool:t.get", {"note": "has beta"}, "a/1/1")]
    )
    assert matcher.origins("INC0010001") == [["requester"]]
    assert matcher.origins("omega") == [["person"]]
    assert matcher.origins("beta") == [["tool:t.get"]]
    assert matcher.origins("gamma") == [["model"]]


@pytest.mark.parametrize(
    ("said", "shown", "wanted"),
    [
        ([], "alpha", [["tool:t.get"]]),
        ([Passage(MODEL, "alpha it is")], "alpha", [["model"]]),
        ([answer("a/1", {"name": "alpha"})], "alpha", [["model"]]),
        ([answer("a/1", '{"name": "alpha"')], "alpha", [["model"]]),
        ([answer("a/1", text="alpha it is")], "alpha", [["model"]]),
        ([answer("a/1", "", "  ")], "alpha", [["tool:t.get"]]),
        ([Passage(MODEL, "no object", "a/1", answer=True)], "alpha", [["tool:t.get"]]),
        ([Passage(MODEL, {"text": None}, "a/1", answer=True)], "alpha", [["tool:t.get"]]),
    ],
)
def test_what_the_model_said_before_stays_its_own(said: Any, shown: str, wanted: Any) -> None:
    after = Passage("tool:t.get", {"note": f"has {shown}"}, "a/1/1")
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


def test_a_result_belongs_to_its_own_call() -> None:
    """The second call was in the requester's words; the first one was not."""
    both = answer("a/1", {"q": "made up"}, {"q": "INC0010001"})
    second = Passage("tool:t.get", {"records": [{"id": "beta"}]}, "a/1/2", "/records")
    matcher = matcher_of([ASKED, both, FOUND, second])
    assert matcher.origins("alpha") == [[LOOKUP[0], LOOKUP[2]]]
    assert matcher.origins("beta") == [LOOKUP]


@pytest.mark.parametrize("records", [[], [{"id": "alpha"}, {"id": "other"}], ["alpha"], "alpha", None, 7])
def test_only_one_record_can_be_looked_up(records: Any) -> None:
    shown = Passage("tool:t.get", {"records": records}, "a/1/1", "/records")
    found = matcher_of([ASKED, answer("a/1", {"q": "INC0010001"}), shown]).origins("alpha")
    assert not any(one.startswith("lookup:") for inner in found for one in inner)
    alone = Passage("tool:t.get", {"records": {"id": "alpha"}}, "a/1/1", "/records")
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
    whole = [ASKED, answer("a/1", {"q": "INC0010001"}), FOUND, answer("a/2", {"name": "beta"}), Passage(PERSON, "beta")]
    listener = Listener()
    for length in range(len(whole) + 1):
        assert listener.knows_the_beginning_of(whole)
        listener.listen(whole[:length])
        assert listener.passages == whole[:length]
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
        [ASKED, Passage(FOUND.origin, FOUND.value, "a/1/2", FOUND.records)],
        [ASKED, Passage(FOUND.origin, FOUND.value, FOUND.step)],
        [ASKED, Passage(FOUND.origin, {}, FOUND.step, FOUND.records)],
        [ASKED, Passage("tool:other", FOUND.value, FOUND.step, FOUND.records)],
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
