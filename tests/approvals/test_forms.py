"""Forms: which JSON Schemas are forms, and which values complete them. Every fault has a place and a remedy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from approvals.fields import WEIGHT_MAX, FieldKind, FormProblem
from approvals.forms import check_form, check_value, fields_of
from core.canonical import INTEGER_MAX

pytestmark = pytest.mark.req("X-9")

PERSON: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "title": "Owner",
    "description": "Who owns it.\nAsk the register.",
    "additionalProperties": False,
    "required": ["name", "risk"],
    "properties": {
        "name": {"type": "string", "title": "Full name", "minLength": 2, "maxLength": 40, "default": "Ann"},
        "notes": {"type": "string", "x-multiline": True, "default": "one\ntwo"},
        "born": {"type": "string", "format": "date", "default": "1990-02-28"},
        "mail": {"type": "string", "format": "email"},
        "page": {"type": "string", "format": "uri"},
        "risk": {"type": "string", "enum": ["low", "high"], "default": "low"},
        "shares": {"type": "integer", "minimum": 1, "maximum": 10},
        "ratio": {"type": "number", "minimum": -0.5, "maximum": 0.5},
        "listed": {"type": "boolean", "default": False},
        "papers": {
            "type": "array",
            "items": {"type": "string", "enum": ["passport", "register", "deed"]},
            "minItems": 1,
            "maxItems": 2,
            "uniqueItems": True,
            "default": ["deed"],
        },
    },
}
GOOD: dict[str, Any] = {
    "name": "Bo",
    "notes": "",
    "born": "2024-02-29",
    "mail": "bo@example.com",
    "page": "https://example.com/a?b=%20#c",
    "risk": "high",
    "shares": 1.0,
    "ratio": 0.25,
    "listed": True,
    "papers": ["deed", "passport"],
}


NO_BOOLEANS: tuple[Any, ...] = (0, "", None, [])
NO_TEXTS: tuple[Any, ...] = (0, False, None, [])


def form_of(**field: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"f": field}}


def places(problems: list[FormProblem]) -> list[str]:
    assert all(problem.message and problem.message[-1] in ".)" for problem in problems)
    return [problem.where for problem in problems]


def test_every_kind_of_field_is_accepted() -> None:
    assert check_form(PERSON) == []
    assert check_value(PERSON, GOOD) == []
    assert check_value(PERSON, {"name": "Bo", "risk": "low"}) == []
    Draft202012Validator.check_schema(PERSON)
    fields = fields_of(PERSON)
    assert [field.name for field in fields] == list(PERSON["properties"])
    assert {field.kind for field in fields} == set(FieldKind)
    assert [field.name for field in fields if field.required] == ["name", "risk"]
    assert fields[0].title == "Full name"
    assert fields[1].title == "notes"
    assert fields[-1].options == ("passport", "register", "deed")


@pytest.mark.parametrize(
    ("form", "where"),
    [
        (None, ""),
        ([], ""),
        ({}, "type"),
        ({}, "properties"),
        ({"type": "array", "properties": {"f": {"type": "string"}}}, "type"),
        ({"type": "object", "properties": []}, "properties"),
        ({"type": "object", "properties": {}}, "properties"),
        ({"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(21)}}, "properties"),
        ({**form_of(type="string"), "$schema": "http://json-schema.org/draft-07/schema#"}, "$schema"),
        ({**form_of(type="string"), "additionalProperties": True}, "additionalProperties"),
        ({**form_of(type="string"), "additionalProperties": {}}, "additionalProperties"),
        ({**form_of(type="string"), "allOf": []}, "allOf"),
        ({**form_of(type="string"), "title": ""}, "title"),
        ({**form_of(type="string"), "description": 5}, "description"),
        ({**form_of(type="string"), "required": "f"}, "required"),
        ({**form_of(type="string"), "required": [5]}, "required"),
        ({**form_of(type="string"), "required": ["f", "g"]}, "required[1]"),
        ({**form_of(type="string"), "required": ["f", "f"]}, "required[1]"),
        ({"type": "object", "properties": {"a-b": {"type": "string"}}}, "properties.a-b"),
        ({"type": "object", "properties": {"1a": {"type": "string"}}}, "properties.1a"),
        ({"type": "object", "properties": {"": {"type": "string"}}}, "properties."),
        ({"type": "object", "properties": {"a" * 65: {"type": "string"}}}, "properties." + "a" * 65),
        ({"type": "object", "properties": {"f": True}}, "properties.f"),
    ],
)
def test_what_is_no_form_is_placed(form: Any, where: str) -> None:
    assert where in places(check_form(form))


@pytest.mark.parametrize(
    ("field", "where"),
    [
        ({}, "type"),
        ({"type": "object", "properties": {}}, "type"),
        ({"type": "null"}, "type"),
        ({"type": ["string", "null"]}, "type"),
        ({"type": "string", "format": "time"}, "format"),
        ({"type": "string", "format": ["date"]}, "format"),
        ({"type": "string", "pattern": "(a+)+$"}, "pattern"),
        ({"type": "string", "format": "date", "minLength": 3}, "minLength"),
        ({"type": "string", "format": "email", "x-multiline": True}, "x-multiline"),
        ({"type": "string", "x-multiline": "yes"}, "x-multiline"),
        ({"type": "string", "title": "t" * 201}, "title"),
        ({"type": "string", "title": "  "}, "title"),
        ({"type": "string", "title": "a\u202eb"}, "title"),
        ({"type": "string", "title": "a\nb"}, "title"),
        ({"type": "string", "title": "\u3164"}, "title"),
        ({"type": "string", "description": "d" * 1001}, "description"),
        ({"type": "string", "description": "a\tb"}, "description"),
        ({"type": "string", "minLength": -1}, "minLength"),
        ({"type": "string", "minLength": True}, "minLength"),
        ({"type": "string", "minLength": 1.5}, "minLength"),
        ({"type": "string", "maxLength": 3001}, "maxLength"),
        ({"type": "string", "maxLength": 0}, "maxLength"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "maxLength"),
        ({"type": "string", "minLength": 5, "default": "abcd"}, "default"),
        ({"type": "string", "default": "a\nb"}, "default"),
        ({"type": "string", "default": 5}, "default"),
        ({"type": "string", "format": "date", "default": "2023-02-29"}, "default"),
        ({"type": "string", "enum": []}, "enum"),
        ({"type": "string", "enum": "abc"}, "enum"),
        ({"type": "string", "enum": [str(n) for n in range(101)]}, "enum"),
        ({"type": "string", "enum": ["a", 5]}, "enum[1]"),
        ({"type": "string", "enum": ["a", ""]}, "enum[1]"),
        ({"type": "string", "enum": ["a", "a "]}, "enum[1]"),
        ({"type": "string", "enum": ["a", "b", "a"]}, "enum[2]"),
        ({"type": "string", "enum": ["a", "x" * 76]}, "enum[1]"),
        ({"type": "string", "enum": ["a", "a\u200b"]}, "enum[1]"),
        ({"type": "string", "enum": ["a"], "format": "date"}, "format"),
        ({"type": "string", "enum": ["a"], "maxLength": 4}, "maxLength"),
        ({"type": "string", "enum": ["a"], "default": "b"}, "default"),
        ({"type": "integer", "minimum": 0.5}, "minimum"),
        ({"type": "integer", "maximum": INTEGER_MAX + 1}, "maximum"),
        ({"type": "number", "minimum": "0"}, "minimum"),
        ({"type": "number", "minimum": float("nan")}, "minimum"),
        ({"type": "number", "maximum": float("inf")}, "maximum"),
        ({"type": "number", "minimum": 2, "maximum": 1}, "maximum"),
        ({"type": "number", "exclusiveMinimum": 2}, "exclusiveMinimum"),
        ({"type": "number", "multipleOf": 2}, "multipleOf"),
        ({"type": "integer", "enum": [1, 2]}, "enum"),
        ({"type": "integer", "default": 1.5}, "default"),
        ({"type": "boolean", "default": "no"}, "default"),
        *(({"type": "boolean", "default": value}, "default") for value in NO_BOOLEANS),
        *(({"type": "string", "default": value}, "default") for value in NO_TEXTS),
        *(({"type": "number", "default": value}, "default") for value in ("", False, None)),
        ({"type": "array"}, "items"),
        ({"type": "array", "items": {"type": "string"}}, "items"),
        ({"type": "array", "items": {"type": "integer", "enum": [1]}}, "items"),
        ({"type": "array", "items": {"type": "string", "enum": []}}, "items.enum"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"], "title": "t"}}, "items.title"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "uniqueItems": False}, "uniqueItems"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 2}, "minItems"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": "2"}, "minItems"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "maxItems": 0}, "maxItems"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["b"]}, "default[0]"),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": "a"}, "default"),
    ],
)
def test_faulty_fields_are_placed(field: dict[str, Any], where: str) -> None:
    problems = check_form(form_of(**field))
    assert f"properties.f.{where}" in places(problems)
    assert all(problem.remedy for problem in problems)


def test_all_faults_are_named_at_once() -> None:
    form = {"type": "object", "required": ["x"], "properties": {"a": {"type": "string", "pattern": "a"}, "b": {}}}
    assert places(check_form(form)) == ["required[0]", "properties.a.pattern", "properties.b.type"]


def test_form_that_no_modal_could_carry_is_refused() -> None:
    options = [f"{'x' * 70}{index}" for index in range(100)]
    form = {"type": "object", "properties": {f"f{n}": {"type": "string", "enum": options} for n in range(20)}}
    (problem,) = check_form(form)
    assert problem.where == "properties"
    assert f"at most {WEIGHT_MAX}" in problem.message
    assert check_form({"type": "object", "properties": {"f": {"type": "string", "enum": options}}}) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("name", 5, "not a text"),
        ("name", None, "not a text"),
        ("name", "B", "At least 2"),
        ("name", "B" * 41, "At most 40"),
        ("notes", "n" * 3001, "At most 3000"),
        ("notes", "a\x00b", "cannot be stored"),
        ("notes", "a\ud800", "cannot be stored"),
        ("born", "29.02.2024", "2026-12-31"),
        ("born", "2023-02-29", "not a date"),
        ("born", "2024-02-29T00:00", "not a date"),
        ("born", "٢٠٢٤-02-29", "not a date"),
        ("mail", "bo", "email address"),
        ("mail", "bo@exa mple.com", "email address"),
        ("mail", "bo@example.com\n", "email address"),
        ("mail", "bo@-example.com", "email address"),
        ("mail", f"bo@{'a.' * 130}com", "email address"),
        ("page", "example.com", "web address"),
        ("page", "https://", "web address"),
        ("page", "https://exa mple.com", "web address"),
        ("page", "https://[::1", "web address"),
        ("page", "https://example.com/%zz", "web address"),
        ("risk", "middle", "One of low, high."),
        ("risk", None, "One of low, high."),
        ("risk", ["low"], "One of low, high."),
        ("shares", "3", "whole number"),
        ("shares", 1.5, "whole number"),
        ("shares", True, "whole number"),
        ("shares", 0, "At least 1"),
        ("shares", 11, "At most 10"),
        ("shares", 10**400, "too large"),
        ("ratio", float("nan"), "too large"),
        ("ratio", float("-inf"), "too large"),
        ("ratio", INTEGER_MAX + 1, "too large"),
        ("ratio", "half", "not a number"),
        ("listed", "true", "true nor false"),
        ("listed", 1, "true nor false"),
        ("papers", "deed", "list of options"),
        ("papers", [], "At least 1"),
        ("papers", ["deed", "passport", "register"], "At most 2"),
        ("papers", ["deed"] * 5000, "there are 3"),
        ("papers", ["deed", "deed"], "twice"),
        ("colour", "red", "no such field"),
    ],
)
def test_faulty_values_are_placed_and_explained(name: str, value: Any, words: str) -> None:
    (problem,) = check_value(PERSON, {**GOOD, name: value})
    assert problem.where == name
    assert words in problem.sentence
    assert problem.remedy


@pytest.mark.parametrize("item", ["will", 5, None, ["deed"], {"a": 1}])
def test_items_are_placed_by_their_position(item: Any) -> None:
    (problem,) = check_value(PERSON, {**GOOD, "papers": ["deed", item]})
    assert problem.where == "papers[1]"
    assert problem.remedy == "One of passport, register, deed."


def test_many_options_are_not_all_repeated() -> None:
    form = form_of(type="string", enum=[f"option-{number}" for number in range(100)])
    (problem,) = check_value(form, {"f": "x"})
    assert problem.remedy.endswith("option-9 and 90 more.")


def test_every_fault_of_a_value_is_named() -> None:
    problems = check_value(PERSON, {"shares": 0, "mail": "x", "more": 1})
    assert places(problems) == ["more", "name", "mail", "risk", "shares"]
    assert [problem.message for problem in problems if problem.where == "name"] == ["It is missing."]


@pytest.mark.parametrize("value", [None, [], "x", 5, True])
def test_value_is_an_object(value: Any) -> None:
    (problem,) = check_value(PERSON, value)
    assert problem.path == ()


def test_value_has_a_size() -> None:
    form = {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(20)}}
    assert check_value(form, {f"f{n}": "x" * 3000 for n in range(20)}) == []
    (problem,) = check_value(form, {f"f{n}": "é" * 3000 for n in range(20)})
    assert problem.path == ()
    assert "At most 65536" in problem.sentence


def test_a_flood_of_strange_fields_is_counted() -> None:
    problems = check_value(PERSON, {**GOOD, **{f"x{n}": n for n in range(5000)}})
    assert len(problems) == 21
    assert "none of 5000 fields" in problems[-1].message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["string", "f"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "enum", "items", "format", "title", "default", "minLength", "maxItems", "minimum"])
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
fieldlike = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean", "array", "object", 5])},
    optional={
        "enum": json_values,
        "items": st.fixed_dictionaries({"type": st.just("string"), "enum": json_values}) | json_values,
        "default": json_values,
        "format": st.sampled_from(["date", "email", "uri", "x"]) | json_values,
        "minLength": json_values,
        "maxItems": json_values,
        "minItems": json_values,
        "minimum": json_values,
        "title": json_values,
        "uniqueItems": json_values,
    },
)


@settings(deadline=None)
@given(
    form=json_values
    | st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.text(max_size=5), fieldlike, max_size=3)},
        optional={"required": json_values, "title": json_values},
    ),
    value=json_values,
)
def test_nothing_makes_a_check_fail(form: Any, value: Any) -> None:
    problems = check_form(form)
    assert all(problem.remedy for problem in problems)
    if not problems:
        check_value(form, value)


@settings(deadline=None)
@given(value=st.dictionaries(st.sampled_from([*PERSON["properties"], "x"]), json_values, max_size=6))
def test_what_is_accepted_is_valid_json_schema_as_well(value: Any) -> None:
    """Stricter than the standard, never laxer: an auditor with any validator agrees with what was accepted."""
    if not check_value(PERSON, {"name": "Bo", "risk": "low", **value}):
        Draft202012Validator(PERSON).validate({"name": "Bo", "risk": "low", **value})


LETTERS = [f"option {number}" for number in range(100)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 2}, ["b", "a"]),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1, "maxItems": 1}, ["a"]),
        ({"type": "array", "items": {"type": "string", "enum": LETTERS}}, LETTERS),
        ({"type": "string", "enum": LETTERS}, LETTERS[-1]),
        ({"type": "string", "enum": ["x" * 75]}, "x" * 75),
        ({"type": "string", "minLength": 4, "maxLength": 4}, "four"),
        ({"type": "string", "maxLength": 3000}, "x" * 3000),
        ({"type": "integer", "minimum": 7, "maximum": 7}, 7),
        ({"type": "integer", "maximum": INTEGER_MAX, "minimum": -INTEGER_MAX}, INTEGER_MAX),
        ({"type": "integer"}, -INTEGER_MAX),
        ({"type": "string", "title": "t" * 200, "description": "d" * 1000}, "x"),
    ],
)
def test_a_limit_itself_is_allowed(field: dict[str, Any], value: Any) -> None:
    assert check_form(form_of(**field)) == []
    assert check_value(form_of(**field), {"f": value}) == []


def test_a_form_may_have_as_many_fields_as_it_may() -> None:
    properties = {f"f{number}": {"type": "boolean"} for number in range(20)}
    assert check_form({"type": "object", "properties": properties}) == []
    assert check_form({"type": "object", "properties": properties | {"more": {"type": "boolean"}}}) != []
