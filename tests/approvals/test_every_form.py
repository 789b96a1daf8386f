"""Every fault of a form, of a value and of what Slack sends of it: place, words and remedy, on both sides of limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from approvals.fields import WEIGHT_MAX, FieldKind, FormField, FormProblem, field_of, fields_of, kind_of, weight_of
from approvals.forms import check_form, check_value
from approvals.slack.forms import errors_of, input_blocks, values_of
from core.canonical import INTEGER_MAX
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("X-9")

EXPECTED = Path(__file__).with_name("every_form.json")
TEXT: dict[str, Any] = {"type": "string"}


def lines(problems: list[FormProblem]) -> list[str]:
    return [f"{problem.where} | {problem.message} | {problem.remedy}" for problem in problems]


def of_field(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"f": schema}}


def options(many: int) -> list[str]:
    return [f"o{number}" for number in range(many)]


def listed(many: int = 3, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "enum": options(many)}, **more}


FORMS: dict[str, Any] = {
    "not an object": 5,
    "a list": [],
    "nothing": {},
    "another type": {**of_field(**TEXT), "type": "array"},
    "another dialect": {**of_field(**TEXT), "$schema": "http://json-schema.org/draft-07/schema#"},
    "no dialect": {**of_field(**TEXT), "$schema": None},
    "more properties": {**of_field(**TEXT), "additionalProperties": True},
    "more properties by null": {**of_field(**TEXT), "additionalProperties": None},
    "no more properties by zero": {**of_field(**TEXT), "additionalProperties": 0},
    "properties in a list": {"type": "object", "properties": ["f"]},
    "no property": {"type": "object", "properties": {}},
    "twenty properties": {"type": "object", "properties": dict.fromkeys(options(20), TEXT)},
    "one property more": {"type": "object", "properties": dict.fromkeys(options(21), TEXT)},
    "unknown keys": {**of_field(**TEXT), "z": 1, "allOf": [], "default": {}},
    "a text is required": {**of_field(**TEXT), "required": "f"},
    "nothing is required": {**of_field(**TEXT), "required": []},
    "null is required": {**of_field(**TEXT), "required": None},
    "an empty text is required": {**of_field(**TEXT), "required": ""},
    "a number is required": {**of_field(**TEXT), "required": ["f", 5]},
    "strangers are required": {**of_field(**TEXT), "required": ["g", "f", "g", "f"]},
    "title of 200": {**of_field(**TEXT), "title": "t" * 200},
    "title of 201": {**of_field(**TEXT), "title": "t" * 201},
    "title of two lines": {**of_field(**TEXT), "title": "a\nb"},
    "title of blanks": {**of_field(**TEXT), "title": " \t"},
    "title of no text": {**of_field(**TEXT), "title": None},
    "description of 1000": {**of_field(**TEXT), "description": "a\n" + "d" * 998},
    "description of 1001": {**of_field(**TEXT), "description": "d" * 1001},
    "description with a tab": {**of_field(**TEXT), "description": "a\tb"},
    "names": {
        "type": "object",
        "properties": dict.fromkeys(["_", "a" * 64, "a" * 65, "1a", "a-b", "", "é", "a\n"], TEXT),
    },
    "a property of no object": {"type": "object", "properties": {"f": "string"}},
    **{
        f"invisible {ord(each):04X}": of_field(**TEXT, title=f"a{each}b")
        for each in "\u034f\u115f\u1160\u17b4\u17b5\u2800"
    },
    **{
        f"invisible {ord(each):04X}": of_field(**TEXT, title=f"a{each}b") for each in "\u3164\uffa0\u200b\u202e\x7f\xa0"
    },
}
FIELDS: dict[str, Any] = {
    "no type": {},
    "several types": {"type": ["string", "null"]},
    "an object": {"type": "object"},
    "format of time": {**TEXT, "format": "time"},
    "format of nothing": {**TEXT, "format": None},
    **{
        f"unknown key of {kind}": {**schema, "pattern": "x"}
        for kind, schema in (
            ("text", TEXT),
            ("date", {**TEXT, "format": "date"}),
            ("email", {**TEXT, "format": "email"}),
            ("uri", {**TEXT, "format": "uri"}),
            ("choice", {**TEXT, "enum": ["a"]}),
            ("choices", listed()),
            ("integer", {"type": "integer"}),
            ("number", {"type": "number"}),
            ("boolean", {"type": "boolean"}),
        )
    },
    **{f"minLength {value!r}": {**TEXT, "minLength": value} for value in (-1, 0, 1.0, 1.5, 3000, 3001, True, "1")},
    **{f"maxLength {value!r}": {**TEXT, "maxLength": value} for value in (-1, 0, 1, 3000, 3001)},
    **{
        f"lengths {low} {high}": {**TEXT, "minLength": low, "maxLength": high}
        for low, high in ((4, 4), (5, 4), (9999, 4))
    },
    **{f"minItems {value!r}": listed(minItems=value) for value in (-1, 0, 3, 4, 100, 101, "1")},
    **{f"maxItems {value!r}": listed(maxItems=value) for value in (0, 1, 100, 101, None)},
    "items 2 1": listed(minItems=2, maxItems=1),
    **{
        f"integer minimum {value!r}": {"type": "integer", "minimum": value}
        for value in (-INTEGER_MAX, -INTEGER_MAX - 1, INTEGER_MAX, 0.5, 2.0)
    },
    **{
        f"number maximum {value!r}": {"type": "number", "maximum": value}
        for value in (0.5, INTEGER_MAX + 1, float("inf"))
    },
    "numbers 2 2": {"type": "number", "minimum": 2, "maximum": 2},
    "numbers 2 1": {"type": "number", "minimum": 2, "maximum": 1},
    "multiline as text": {**TEXT, "x-multiline": "yes"},
    "multiline": {**TEXT, "x-multiline": True, "default": "a\nb"},
    "lines in one line": {**TEXT, "default": "a\nb"},
    "lines in no lines": {**TEXT, "x-multiline": False, "default": "a\nb"},
    "unique": listed(uniqueItems=True),
    "not unique": listed(uniqueItems=False),
    "unique by one": listed(uniqueItems=1),
    "items of text": listed(items={"type": "string"}),
    "items of numbers": listed(items={"type": "integer", "enum": [1]}),
    "items with more": listed(items={"type": "string", "enum": ["a"], "title": "t"}, minItems=2),
    **{f"{many} options": {**TEXT, "enum": options(many)} for many in (0, 1, 100, 101)},
    **{f"{many} items": listed(many) for many in (0, 100, 101)},
    "options of all kinds": {
        **TEXT,
        "enum": ["a", 5, "", " a", "a ", "x" * 75, "x" * 76, "a\u200b", "a\nb", "a", "b", "b", "b"],
    },
    "options in a text": {**TEXT, "enum": "abc"},
    "options of two cases": {**TEXT, "enum": ["no", "No", "NO"]},
    "options of one case twice": {**TEXT, "enum": ["No", "no", "No"]},
    "default of no option": {**TEXT, "enum": ["a"], "default": "b"},
    "default beside another fault": {**TEXT, "enum": ["a", "a"], "default": "b"},
    "defaults of no option": listed(default=["o0", "x", "y"]),
    "default of no list": listed(default="o0"),
    "default of another type": {"type": "integer", "default": "5"},
    "default that is too short": {**TEXT, "minLength": 5, "default": "abcd"},
    "default of blanks": {**TEXT, "default": "a\u3164"},
}
PERSON: dict[str, Any] = {
    "type": "object",
    "required": ["name", "risk"],
    "properties": {
        "name": {"type": "string", "title": "Full name", "minLength": 2, "maxLength": 4},
        "born": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email", "maxLength": 254},
        "page": {"type": "string", "format": "uri"},
        "risk": {"type": "string", "enum": options(11)},
        "shares": {"type": "integer", "minimum": 1, "maximum": 10},
        "ratio": {"type": "number", "minimum": -0.5, "maximum": 0.5},
        "listed": {"type": "boolean", "default": False},
        "papers": listed(minItems=1, maxItems=2),
        "notes": {"type": "string"},
        "ten": {"type": "string", "enum": options(10)},
    },
}
VALUES: dict[str, list[Any]] = {
    "name": [None, 5, "", "B", "Bo", "Bobb", "Bobby", "x" * 3001, "\x00", "\ud800", "a\x00", "Bo\ud800"],
    "born": [
        "2024-02-29",
        "2023-02-29",
        "2024-2-29",
        "20240229",
        "2024-02-29T00:00",
        "",
        "\u0662\u0660\u0662\u0664-02-29",
    ],
    "mail": [
        *(
            "a@b",
            "a@b.example",
            "a.b+c@d-e.example",
            "@b",
            "a@",
            "a b@c",
            "a@-b",
            "a@b-",
            "a@b..c",
            "a@b\n",
            "é@b",
            "a@é",
        ),
        *("x" * 64 + "@b", "x" * 65 + "@b", "a@" + "x" * 63, "a@" + "x" * 64),
        *("a@" + ("x" * 62 + ".") * 4, "a@" + ("x" * 62 + ".") * 3 + "x" * 63, "a@" + ("x" * 62 + ".") * 4 + "x"),
    ],
    "page": [
        *(
            "https://a.example/b?c=%20#d",
            "https://",
            "http://a",
            "mailto:a@b",
            "urn:x:y",
            "a.example",
            "https:a",
            "://a",
        ),
        *(
            "https://a b",
            "https://a/%2",
            "https://a/%zz",
            "https://[::1]/",
            "https://[::1",
            "https://a/é",
            "1a:b",
            "a:",
        ),
        *("HTTPS://", "https://@", "https://a\n", 5),
    ],
    "risk": [None, "o0", "o10", "o11", "", ["o0"]],
    "shares": [None, 0, 1, 10, 11, 1.0, 1.5, True, "1", INTEGER_MAX, INTEGER_MAX + 1, -INTEGER_MAX, -INTEGER_MAX - 1],
    "ratio": [-0.51, -0.5, 0.5, 0.51, float("nan"), float("inf"), True, "0.1", None],
    "listed": [True, False, 0, 1, "true", None],
    "papers": [
        *([], ["o0"], ["o0", "o1"], ["o0", "o1", "o2"], ["o0", "o0"], ["o0", "x", 5], ["o0"] * 3, ["o0"] * 4),
        *("o0", None, {}, [None], [["o0"]]),
    ],
    "notes": ["", "x" * 3000, "x" * 3001],
    "ten": ["x"],
}
RIGHT = {"name": "Bo", "risk": "o0"}


def test_faults_of_forms_are_said_as_they_were() -> None:
    found: dict[str, Any] = {f"form: {name}": lines(check_form(form)) for name, form in FORMS.items()}
    found |= {f"field: {name}": lines(check_form(of_field(**schema))) for name, schema in FIELDS.items()}
    for name, values in VALUES.items():
        found[name] = [[repr(value)[:40], *lines(check_value(PERSON, {**RIGHT, name: value}))] for value in values]
    wholes: list[Any] = [None, [], {}, {"a": 1, **RIGHT, "b": 2}]
    found["values"] = [lines(check_value(PERSON, value)) for value in wholes]
    wide = {"type": "object", "properties": dict.fromkeys(options(20), TEXT)}
    found["too much"] = lines(check_value(wide, dict.fromkeys(options(20), "é" * 3000)))
    found["too much and a fault"] = lines(check_value(wide, {**dict.fromkeys(options(20), "é" * 3000), "o0": 5}))
    found["weights"] = {name: weight_of(form) for name, form in WEIGHED.items()}
    as_it_was(EXPECTED, found)


def test_fields_are_told_whole() -> None:
    fields: dict[str, Any] = {
        "a": {"type": "string", "title": "T", "description": "D", "enum": ["x", "y"]},
        "b": listed(2, title="U"),
        "c": {"type": "number"},
    }
    form = {"type": "object", "required": ["b"], "properties": fields}
    assert fields_of(form) == (
        FormField("a", FieldKind.CHOICE, "T", "D", False, ("x", "y"), fields["a"]),
        FormField("b", FieldKind.CHOICES, "U", "", True, ("o0", "o1"), fields["b"]),
        FormField("c", FieldKind.NUMBER, "c", "", False, (), fields["c"]),
    )
    assert not field_of("c", fields["c"]).required
    with pytest.raises(ValueError, match="the field 'd' was never accepted by check_form"):
        field_of("d", {"type": "null"})


def test_kinds_are_told_by_their_schemas() -> None:
    assert [
        kind_of(schema)
        for schema in (
            TEXT,
            {**TEXT, "format": "date"},
            {**TEXT, "format": "email"},
            {**TEXT, "format": "uri"},
            {**TEXT, "format": "time"},
            {**TEXT, "enum": 1},
            {**TEXT, "enum": 1, "format": "date"},
            {"type": "array"},
            {"type": "integer"},
            {"type": "number"},
            {"type": "boolean"},
            {"type": "object"},
            {},
        )
    ] == [
        FieldKind.TEXT,
        FieldKind.DATE,
        FieldKind.EMAIL,
        FieldKind.URI,
        None,
        FieldKind.CHOICE,
        FieldKind.CHOICE,
        FieldKind.CHOICES,
        FieldKind.INTEGER,
        FieldKind.NUMBER,
        FieldKind.BOOLEAN,
        None,
        None,
    ]


WEIGHED = {
    "text": of_field(**TEXT),
    "words": of_field(**TEXT, title="abc", description="é`"),
    "heading": {**of_field(**TEXT), "title": "a b", "description": "⟨"},
    "yes or no": of_field(type="boolean", default=True),
    "cut options": of_field(**TEXT, enum=["x" * 75, "x" * 76, "`" * 9, "`" * 8]),
    "default options": of_field(**listed(2, default=["o1"])),
    "default number": of_field(type="number", default=0.5),
}


@pytest.mark.parametrize(("more", "words"), [(0, []), (1, ["properties"])])
def test_a_form_has_its_largest_weight_and_no_more(more: int, words: list[str]) -> None:
    form: Any = {"type": "object", "properties": {name: {**TEXT, "description": "d"} for name in options(20)}}
    form["properties"]["o0"]["enum"] = [f"{'x' * 60}{number}" for number in range(40)]
    for field in form["properties"].values():
        field["description"] += "d" * min(999, max(0, WEIGHT_MAX - weight_of(form) + more))
    assert weight_of(form) == WEIGHT_MAX + more
    assert [problem.where for problem in check_form(form)] == words


ENTERED: dict[str, Any] = {
    "nothing": {},
    "empty blocks": dict.fromkeys(PERSON["properties"], None),
    "empty elements": {name: {name: None} for name in PERSON["properties"]},
    "elements of nothing": {name: {name: {}} for name in PERSON["properties"]},
    "elements of texts": {name: {name: "x"} for name in PERSON["properties"]},
    "blocks of texts": dict.fromkeys(PERSON["properties"], "x"),
    "blocks of empty texts": dict.fromkeys(PERSON["properties"], ""),
    "blocks of no elements": {name: {} for name in PERSON["properties"]},
    "blocks of lists": {name: [] for name in PERSON["properties"]},
    "elements of empty texts": {name: {name: ""} for name in PERSON["properties"]},
    "elements of other fields": {name: {"z": {"value": "x"}} for name in PERSON["properties"]},
    "values": {name: {name: {"value": " 7 "}} for name in PERSON["properties"]},
    "numbers": {name: {name: {"value": 7}} for name in PERSON["properties"]},
    "blanks": {name: {name: {"value": "  "}} for name in PERSON["properties"]},
    "dates": {name: {name: {"selected_date": "2026-01-02"}} for name in PERSON["properties"]},
    "options": {name: {name: {"selected_option": {"value": "o1"}}} for name in PERSON["properties"]},
    "true": {name: {name: {"selected_option": {"value": "true"}}} for name in PERSON["properties"]},
    "false": {name: {name: {"selected_option": {"value": "false"}}} for name in PERSON["properties"]},
    "option of a number": {name: {name: {"selected_option": {"value": 1}}} for name in PERSON["properties"]},
    "option of a text": {name: {name: {"selected_option": "o1"}} for name in PERSON["properties"]},
    "no option": {name: {name: {"selected_option": None}} for name in PERSON["properties"]},
    "several options": {
        name: {name: {"selected_options": [{"value": "o1"}, {"value": "o9"}, "o2", None]}}
        for name in PERSON["properties"]
    },
    "no options": {name: {name: {"selected_options": []}} for name in PERSON["properties"]},
    "options of a text": {name: {name: {"selected_options": "o1"}} for name in PERSON["properties"]},
    **{
        f"{member} {odd!r}": {name: {name: {member: odd}} for name in PERSON["properties"]}
        for member in ("value", "selected_date", "selected_option", "selected_options")
        for odd in ("", " 2026-01-02 ", 0, False, [], {}, ["o0"], [{"value": "o0"}, {"value": "o0"}])
    },
}


def test_what_was_entered_is_read_as_it_was() -> None:
    found = {name: values_of(PERSON, state) for name, state in ENTERED.items()}
    as_it_was(EXPECTED.with_name("every_entry.json"), {**found, **drawn()})


def drawn() -> dict[str, Any]:
    """Draw inputs on both sides of each limit of Slack's."""
    at = {"title": "T" * 200, "description": "`" * 250}
    limits = {
        "hint of 2000": {**TEXT, **at},
        "hint of 2001": {**TEXT, "description": at["description"] + "x"},
        "option of 75": {**TEXT, "enum": ["x" * 75], "default": "x" * 75},
        "option of 76": {**TEXT, "enum": ["x" * 68 + "`"], "default": "x" * 68 + "`"},
        "options of 75": listed(items={"type": "string", "enum": ["x" * 67 + "`", "x" * 68 + "`"]}, maxItems=1),
        "no choice": {**TEXT, "enum": ["a", "b"]},
        "spaces around words": {**TEXT, "title": " a ", "description": " b "},
        "no default": {"type": "boolean"},
        "yes": {"type": "boolean", "default": True},
        "no": {"type": "boolean", "default": False},
        "empty default": {**TEXT, "default": "", "minLength": 0},
        "zero": {"type": "integer", "default": 0, "minimum": 0, "maximum": 0},
        "half": {"type": "number", "default": 1.5, "minimum": -1e3, "maximum": 1e15},
        "digits of 32": {"type": "number", "minimum": 1.5e-29, "maximum": 1.5e-30},
        "no defaults": listed(default=[]),
        "most of a whole": listed(maxItems=2.0),
    }
    found: dict[str, Any] = {name: input_blocks(of_field(**schema)) for name, schema in limits.items()}
    found["heading"] = input_blocks({**of_field(**TEXT), "title": "a\u200bb", "description": "a\n b"})
    found["title alone"] = input_blocks({**of_field(**TEXT), "title": " a "})
    found["description alone"] = input_blocks({**of_field(**TEXT), "description": " a "})
    return found


def test_faults_stand_at_their_fields() -> None:
    form = {"type": "object", "properties": dict.fromkeys(("a", "b"), TEXT)}
    problems = [
        FormProblem(("b",), "It is wrong.", "Mend it."),
        FormProblem(("b", 2), "It is wrong.", "Mend it."),
        FormProblem(("b",), "It is small."),
        FormProblem(("c",), "No such field."),
        FormProblem((0,), "No such place."),
        FormProblem((), "All of it."),
    ]
    assert errors_of(form, problems) == {
        "b": "It is wrong. Mend it. It is small.",
        "a": "No such field. No such place. All of it.",
    }
    assert errors_of(form, []) == {}
    long = [FormProblem(("a",), "x" * many) for many in (500, 501)]
    assert [errors_of(form, [one]) for one in long] == [{"a": "x" * 500}, {"a": "x" * 499 + "…"}]
