"""Each bound holds exactly where it is said: what reaches it is taken, what is one beyond it is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core import bounded_json, canonical, documents, durations
from core.canonical import clean
from core.cel_values import Unfit, to_json
from core.errors import CountersealError, DefinitionError, InputError
from core.escaping import Language, check_meaning, escaped
from core.origins.matching import SOURCE_CHARS_MAX, VALUE_CHARS_MAX, VALUE_COSTS, Matcher


def nested(depth: int, leaf: Any = 1) -> Any:
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


def test_a_document_has_so_many_bytes() -> None:
    text = "a: " + "x" * (documents.TEXT_BYTES_MAX - 3)
    assert documents.load_document(text, "d.yaml").value == {"a": text[3:]}
    with pytest.raises(DefinitionError, match=f"is {documents.TEXT_BYTES_MAX + 1} bytes long"):
        documents.load_document(text + "x", "d.yaml")
    wide = "a: " + "é" * (documents.TEXT_BYTES_MAX // 2 - 2)
    assert documents.load_document(wide, "d.yaml").value == {"a": wide[3:]}
    with pytest.raises(DefinitionError, match=f"is {documents.TEXT_BYTES_MAX + 1} bytes long"):
        documents.load_document(wide + "é", "d.yaml")


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_a_document_has_a_place_in_json(sign: str) -> None:
    most = canonical.INTEGER_MAX
    assert documents.load_document(f"a: {sign}{most}", "d.yaml").value == {"a": int(f"{sign}{most}")}
    for beyond in (f"{most + 1}", "9" * 31, "9" * 32, "9" * 400):
        with pytest.raises(DefinitionError, match="is beyond 2"):
            documents.load_document(f"a: {sign}{beyond}", "d.yaml")


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [("a: [1, 2", (1, 9), "expected"), ("a:\n\t- b", (2, 1), "not YAML"), ("a: 'x", (1, 6), "end of stream")],
)
def test_what_is_not_yaml_is_named_at_its_place(text: str, place: tuple[int, int], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        documents.load_document(text, "d.yaml")
    (problem,) = refused.value.problems
    assert (problem.file, problem.line) == ("d.yaml", place[0])
    assert problem.column <= place[1]
    assert said in problem.message


@pytest.mark.parametrize("depth", [canonical.DEPTH_MAX - 1, canonical.DEPTH_MAX])
def test_a_body_is_nested_so_deep(depth: int) -> None:
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        text = f"{opened * depth}1{closed * depth}"
        assert bounded_json.parse(text.encode()) is not None
        with pytest.raises(InputError, match="nested deeper"):
            bounded_json.parse(f"{opened * (canonical.DEPTH_MAX + 1)}1{closed * (canonical.DEPTH_MAX + 1)}".encode())


def test_siblings_are_no_deeper_than_one_of_them() -> None:
    assert bounded_json.parse(b"[" + b",".join([b'{"a":[1]}'] * 500) + b"]") == [{"a": [1]}] * 500
    quoted = b'["' + b"[{" * 100 + b'", "\\"' + b"[{" * 100 + b'"]'
    assert bounded_json.parse(quoted) == ["[{" * 100, '"' + "[{" * 100]
    deep = b"[" * canonical.DEPTH_MAX + b"]" * canonical.DEPTH_MAX
    for body in (b"[%b,[1]]", b"[[1],%b]", b"[1,%b,{}]"):
        with pytest.raises(InputError, match="nested deeper"):
            bounded_json.parse(body % deep)


def test_a_body_has_so_many_bytes_and_is_an_object_where_one_is_wanted() -> None:
    assert bounded_json.parse(b"[1]", bytes_max=3) == [1]
    with pytest.raises(InputError, match="bytes"):
        bounded_json.parse(b"[12]", bytes_max=3)
    assert bounded_json.parse_object(b'{"a": 1}') == {"a": 1}
    assert bounded_json.parse_object(b'{"a": 1}', bytes_max=8) == {"a": 1}
    for read in (bounded_json.parse, bounded_json.parse_object):
        with pytest.raises(InputError, match=r"^of it: is 8 bytes long; at most 7 are accepted"):
            read(b'{"a": 1}', bytes_max=7, where="of it")
        with pytest.raises(InputError, match=r"^of it: is nested deeper"):
            read(b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", where="of it")
    for body in (b"[1]", b'"x"', b"1", b"null"):
        with pytest.raises(InputError, match="is not a JSON object"):
            bounded_json.parse_object(body, where="body")


def test_a_result_of_an_expression_is_nested_so_deep() -> None:
    depth = canonical.DEPTH_MAX
    assert to_json(nested(depth), 0) == nested(depth)
    for leaf in (1, "x", None, 1.5, True, {"a": 1}):
        with pytest.raises(Unfit, match=f"nested deeper than {depth} levels"):
            to_json(nested(depth + 1, leaf), 0)
    with pytest.raises(Unfit, match="keys are not strings"):
        to_json({1: "a"}, 0)
    for number in (float("inf"), float("nan")):
        with pytest.raises(Unfit, match="JSON cannot hold"):
            to_json([number], 0)


@pytest.mark.parametrize(
    ("text", "days"),
    [("P3660D", 3660), ("P522W6D", 3660), ("PT87840H", 3660), ("P3659DT24H", 3660), ("P3659DT23H60M", 3660)],
)
def test_a_duration_is_ten_years_at_most(text: str, days: int) -> None:
    assert durations.parse_duration(text) == timedelta(days=days)
    beyond = {"D": "P3661D", "W": "P523W", "H": "PT87841H", "M": "P3660DT1M", "S": "P3660DT1S"}
    for longer in beyond.values():
        with pytest.raises(InputError, match="longer than ten years"):
            durations.parse_duration(longer)
    for none in ("PT0S", "P0D"):
        with pytest.raises(InputError, match="a duration of zero"):
            durations.parse_duration(none)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "PT0S"),
        (timedelta(seconds=1), "PT1S"),
        (timedelta(seconds=90), "PT1M30S"),
        (timedelta(hours=1), "PT1H"),
        (timedelta(days=1, hours=12), "P1DT12H"),
        (timedelta(days=14), "P14D"),
        (timedelta(seconds=1.5), "PT1.5S"),
        (timedelta(minutes=10), "PT10M"),
        (timedelta(hours=1, microseconds=10), "PT1H0.00001S"),
    ],
)
def test_a_duration_is_written_as_short_as_it_can_be(span: timedelta, text: str) -> None:
    assert durations.format_duration(span) == text
    if span:
        assert durations.parse_duration(text) == span


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("a\x00", 3, "a\ufffd"), ("\ud800x", 3, "?x"), ("", 3, "")],
)
def test_words_from_outside_are_cut_and_cleaned(text: str, most: int, kept: str) -> None:
    assert clean(text, most) == kept


def test_a_value_that_is_too_long_to_be_matched_is_unknown() -> None:
    matcher = Matcher()
    matcher.add_source("requester", "word " * 10)
    assert matcher.origins(("word " * (VALUE_CHARS_MAX // 5)).strip() + "x" * 0) != [["unknown"]]
    assert matcher.origins("w" * (VALUE_CHARS_MAX + 1)) == [["unknown"]]
    assert matcher.origins("w" * VALUE_CHARS_MAX) == [["model"]]


def test_a_source_that_is_too_long_may_hold_anything() -> None:
    """A call of the model beyond that is hidden as well: nobody can tell whether it had said a value before."""
    longest = SOURCE_CHARS_MAX - VALUE_COSTS
    for length, wanted in ((longest, ["model"]), (longest + 1, ["unknown"])):
        given, said = Matcher(), Matcher()
        given.add_source("requester", "w" * length)
        said.add_call("w" * length)
        assert wanted[0] in given.origins("other")[0]
        assert wanted[0] in said.origins("other")[0]


@pytest.mark.parametrize(
    ("language", "text", "authored", "refused"),
    [
        (Language.ENCODED_QUERY, "a=javascript:x", "a=\0", True),
        (Language.ENCODED_QUERY, "a=JavaScript : x", "a=\0", True),
        (Language.ENCODED_QUERY, "a=javascript:x", "a=javascript:x", False),
        (Language.ENCODED_QUERY, "a=javascript:x^b=javascript:y", "a=javascript:x^b=\0", True),
        (Language.URL_PART, "a/../b", "a/\0/b", True),
        (Language.URL_PART, "a/%2E%2e/b", "a/\0/b", True),
        (Language.URL_PART, "a/..b/c", "a/\0/c", False),
        (Language.URL_PART, "..", "\0", True),
        (Language.MRKDWN, "javascript:x", "\0", False),
    ],
)
def test_no_value_brings_a_meaning_that_its_author_did_not_write(
    language: Language, text: str, authored: str, refused: bool
) -> None:
    if refused:
        with pytest.raises(CountersealError, match="by what was put into it"):
            check_meaning(language, text, authored)
    else:
        check_meaning(language, text, authored)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        (Language.MRKDWN, "&lt;a&amp;\"'^/ "),
        (Language.ENCODED_QUERY, "<a&\"'^^/ "),
        (Language.URL_PART, "%3Ca%26%22%27%5E%2F%20"),
        (Language.HTML, "&lt;a&amp;&quot;&#x27;^/ "),
    ],
)
def test_each_language_has_its_escapes(language: Language, said: str) -> None:
    assert escaped(language, "<a&\"'^/ ") == said
