"""Whole words of core about values, texts and documents: each message with its value, limits from both sides."""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from core import bounded_json, canonical, errors
from core.bounded_json import parse, parse_object
from core.canonical import canonical_bytes, digest, in_audit_domain, plain_bytes, sha256_hex, unfit
from core.changes import Change, ChangeKind, changes
from core.documents import load_document
from core.durations import parse_duration
from core.errors import ConsistencyError, DefinitionError, ExpressionError, InputError, Problem, path_text, sentences
from core.escaping import Language, check_meaning
from core.identity import NOBODY, Directory, Entry, Kind, Role, claims, normalised, principal, readings
from core.machine import Machine
from core.pieces import split
from core.terms import Escalation, GroupQuorum, Terms, Tier
from core.validation import empty_keys, validate

# Errors


def test_each_error_has_a_code_of_its_own() -> None:
    told = {
        kind.__name__: kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")
    }
    assert told == {
        "CountersealError": "counterseal",
        "InputError": "input",
        "DefinitionError": "definition",
        "ExpressionError": "expression",
        "AuthenticationError": "authentication",
        "AuthorizationError": "authorization",
        "NotFoundError": "not_found",
        "ConsistencyError": "consistency",
        "TransportError": "transport",
        "DeadlineError": "timeout",
        "ConfigurationError": "configuration",
    }


def test_an_error_is_told_with_its_place_and_remedy() -> None:
    assert str(InputError("is bad.", where="a.b", remedy="Mend it.")) == "a.b: is bad. Mend it."
    assert str(InputError("is bad.", remedy="Mend it.")) == "is bad. Mend it."
    assert str(InputError("is bad.")) == "is bad."
    told = {("Is bad", "Mend it."), ("Is bad.", "Mend it."), ("Is bad:", "a"), ("Is bad?", "b"), ("Is bad!", "c")}
    told |= {("", "Mend it."), ("Is bad", ""), ("", "")}
    assert {sentences(*one) for one in told} == {
        *("Is bad. Mend it.", "Is bad: a", "Is bad? b", "Is bad! c", "Mend it.", "Is bad", ""),
    }
    assert str(InputError("", remedy="Mend it.")) == "Mend it."
    first, second = Problem("f.yaml", 3, 7, "is bad.", "Mend it."), Problem("f.yaml", 4, 1, "is worse.")
    assert [str(first), str(second)] == ["f.yaml:3:7: is bad. Mend it.", "f.yaml:4:1: is worse."]
    both = DefinitionError((first, second))
    assert (both.problems, str(both)) == ((first, second), f"{first}\n{second}")
    paths: list[Any] = [("a", "b", 0, 1, "c"), (), (0,), ("a",)]
    assert [path_text(path, "in") for path in paths] == ["in.a.b[0][1].c", "in", "in[0]", "in.a"]
    assert [path_text(path) for path in paths] == ["a.b[0][1].c", "", "[0]", "a"]


# JSON


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"x" * 11, "in: is 11 bytes long; at most 10 are accepted"),
        (b'"\xff"', "in: is not UTF-8"),
        (b'{"a":{}', "in: is not JSON: Expecting ',' delimiter: line 1 column 8 (char 7)"),
        (b"-Infinity", "in: is not JSON: -Infinity is not JSON"),
        (b"NaN", "in: is not JSON: NaN is not JSON"),
        (b'"\\u0000"', "in: holds a character that cannot be stored (U+0000 or a lone surrogate)"),
        (b'"\\ud800"', "in: holds a character that cannot be stored (U+0000 or a lone surrogate)"),
        (b'"\\udfff"', "in: holds a character that cannot be stored (U+0000 or a lone surrogate)"),
    ],
)
def test_a_body_that_cannot_be_read_says_why(body: bytes, told: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(body, bytes_max=10, where="in")
    assert str(caught.value) == told


def test_a_body_names_the_place_of_what_it_cannot_hold() -> None:
    stored = "holds a character that cannot be stored (U+0000 or a lone surrogate)"
    cases = {
        '{"a":{"a":1,"b":2,"a":3}}': "body: has the key 'a' twice in one object",
        '{"b":1,"a":null,"a":1}': "body: has the key 'a' twice in one object",
        '{"a":[],"a":0}': "body: has the key 'a' twice in one object",
        '{"x":{"a":1,"a":1}}': "body: has the key 'a' twice in one object",
        '{"a":{"b":["x","\\u0000"]}}': f"body.a.b: {stored}",
        '{"a":{"b\\u0000":1}}': f"body.a: {stored}",
        "[" * 33 + "]" * 33: "body: is nested deeper than 32 levels",
    }
    for text, told in cases.items():
        with pytest.raises(InputError) as caught:
            parse(text.encode())
        assert str(caught.value) == told
    with pytest.raises(InputError) as caught:
        parse_object(b"[]", where="arguments")
    assert str(caught.value) == "arguments: is not a JSON object"
    assert parse(b'{"a":[{"b":"\\ud83d\\ude00"},1.5,null,"\\ue000"]}') == {
        "a": [{"b": "\U0001f600"}, 1.5, None, "\ue000"]
    }
    assert bounded_json.BODY_BYTES_MAX == canonical.VALUE_BYTES_MAX == 256 * 1024


def test_bytes_are_canonical_whichever_writer_writes_them() -> None:
    value = {"b": [1, True, None, "ü\n"], "a": {}}
    assert canonical_bytes(value) == plain_bytes(value) == '{"a":{},"b":[1,true,null,"ü\\n"]}'.encode()
    assert canonical_bytes({"é": 1.0, "a": -0.0, "z": 1e21}) == '{"a":0,"z":1e+21,"é":1}'.encode()
    assert digest(value) == sha256_hex(canonical_bytes(value))
    assert [digest(one) for one in ("a", None, 1)] == [sha256_hex(one) for one in (b'"a"', b"null", b"1")]
    assert canonical_bytes([2**53 - 1, -(2**53 - 1)]) == b"[9007199254740991,-9007199254740991]"
    for wrong in (2**53, -(2**53), "\ud800"):
        with pytest.raises(InputError) as caught:
            plain_bytes([wrong])
        assert caught.value.message.startswith("has no canonical JSON form: ")
        assert str(unfit([wrong], "It")).startswith("It cannot be recorded: it has no canonical JSON form: ")


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (None, True),
        (1, True),
        (2**60, True),
        ("ü", True),
        (1.0, False),
        ({"a": [1, (2, "x")]}, True),
        ({"ü": 1}, False),
        ({"a": 1, "ü": 1}, False),
        ({"a": 1, 2: 1}, False),
        ([1, "a", 1.5], False),
        ({"a": 1, "b": [True, 0.5]}, False),
        ({1: 1}, False),
        ({"a": {"b": 1.5}}, False),
        ([[], {}, [None]], True),
        ([[object()]], False),
        (b"x", False),
    ],
)
def test_the_audit_domain_has_no_floats_and_plain_keys(value: Any, held: bool) -> None:
    assert in_audit_domain(value) is held
    nothing: list[Any] = [[], {}]
    for deepest in nothing:
        for _ in range(canonical.DEPTH_MAX):
            deepest = [deepest]
        assert in_audit_domain(deepest)
        assert not in_audit_domain([deepest])


def test_changes_are_told_in_the_order_in_which_they_apply() -> None:
    before: Any = {"z": 1, "a/b~c": [1, 2, 3, 4], "same": {"x": 1.0}, "kind": 1, "list": [1], "none": None}
    after: Any = {"new": {}, "a/b~c": [1, 5], "same": {"x": 1}, "kind": True, "list": {"0": 1}, "none": 0}
    add, remove, replace = ChangeKind.ADD, ChangeKind.REMOVE, ChangeKind.REPLACE
    assert list(changes(before, after)) == [
        Change(replace, "/a~1b~0c/1", 2, 5),
        Change(remove, "/a~1b~0c/3", before=4),
        Change(remove, "/a~1b~0c/2", before=3),
        Change(replace, "/kind", 1, True),
        Change(replace, "/list", [1], {"0": 1}),
        Change(add, "/new", after={}),
        Change(replace, "/none", None, 0),
        Change(remove, "/z", before=1),
    ]
    assert list(changes([1], [1, 2, 3])) == [Change(add, "/1", after=2), Change(add, "/2", after=3)]
    assert list(changes(1, 2, "/p")) == [Change(replace, "/p", 1, 2)]


def test_a_duration_that_is_none_says_what_to_write() -> None:
    remedy = "Write PT30M, PT8H or P14D."
    told = {
        "1h": f"'1h' is not an ISO 8601 duration. {remedy}",
        "P" + "1" * 64 + "D": f"'P{'1' * 63}' is not an ISO 8601 duration. {remedy}",
        "PT0S": f"'PT0S' is a duration of zero. {remedy}",
        "P3661D": "'P3661D' is longer than ten years.",
    }
    for text, words in told.items():
        with pytest.raises(InputError) as caught:
            parse_duration(text)
        assert str(caught.value) == words
    assert parse_duration("P" + "0" * 61 + "1D").days == 1, "64 characters are read"


# Documents

STORED = "holds a character that cannot be stored (U+0000 or a lone surrogate)."
TEXT = "Quote it if it is text."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "f:1:1: the document is empty."),
        ("a: 1\n---\nb: 1", "f:2:1: a second document begins here. Keep one document in a file."),
        ("%YAML 1.1\n---\na: b", "f:2:1: is not YAML 1.2. Remove the %YAML directive."),
        ("a: *b", "f:1:4: the alias *b has no anchor before it."),
        ("a: !!str b", "f:1:4: the tag tag:yaml.org,2002:str is not accepted. Remove it."),
        ("x: {2: a}", "f:1:5: a key is not a string. Quote it."),
        ("a: &x {}\nb:\n  <<: *x", "f:3:3: merge keys are not part of YAML 1.2. Write the keys out."),
        ("b:\n  x: 0\n  c: 1\n  d: 2\n  c: 2", "f:5:3: the key 'c' is here twice, first in line 3. Remove one."),
        ("a: {<<: 1}", "f:1:5: merge keys are not part of YAML 1.2. Write the keys out."),
        ("a: {b: 1, '<<': 1}", "f:1:11: merge keys are not part of YAML 1.2. Write the keys out."),
        ("a: {~: 1}", "f:1:5: a key is not a string. Quote it."),
        ("a: {1: 1}", "f:1:5: a key is not a string. Quote it."),
        ("a: 1\nb:\n      c: 1\n      c: 2", "f:4:7: the key 'c' is here twice, first in line 3. Remove one."),
        ('a: "\\0"', f"f:1:4: {STORED}"),
        ("a: +.INF", f"f:1:4: +.INF is not a number that JSON can hold. {TEXT}"),
        ("a: .NaN", f"f:1:4: .NaN is not a number that JSON can hold. {TEXT}"),
        ("a: 9007199254740992", f"f:1:4: 9007199254740992 is beyond 2^53. {TEXT}"),
        ("a: " + "9" * 50, f"f:1:4: {'9' * 40} is beyond 2^53. {TEXT}"),
        ("a: 1e400", f"f:1:4: 1e400 is too large a number. {TEXT}"),
        ("[" * 34, "f:1:34: is nested deeper than 32 levels."),
    ],
)
def test_a_document_that_is_not_accepted_says_where_why_and_what_to_do(text: str, told: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        load_document(text, "f")
    assert str(caught.value) == told


def test_a_key_that_begins_like_another_is_its_own() -> None:
    assert load_document("'<<<': 1\n<<x: 2\n'1': 3\n'~': 4\n'': 5\n", "f").value == {
        "<<<": 1, "<<x": 2, "1": 3, "~": 4, "": 5,
    }  # fmt: skip


def test_scalars_are_those_of_the_core_schema() -> None:
    text = "[Null, NULL, TRUE, FALSE, tRUE, ~, '', '~', 0o7, 0xfF, 0b1, 9007199254740991, +.5, 5., 1E2, 1e, .inf.]"
    value = load_document(text, "f").value
    assert value == [
        *(
            None,
            None,
            True,
            False,
            "tRUE",
            None,
            "",
            "~",
            7,
            255,
            "0b1",
            9007199254740991,
            0.5,
            5.0,
            100.0,
            "1e",
            ".inf.",
        )
    ]


class Inner(BaseModel):
    model_config = {"extra": "forbid"}
    name: str | None = None
    more: Any = None
    tags: tuple[str, ...] = ()


class Outer(BaseModel):
    model_config = {"extra": "forbid"}
    when: str | None = Field(default=None, alias="if")
    inner: Inner | None = None
    each: tuple[Inner, ...] = ()
    named: dict[str, Inner] = Field(default_factory=dict)
    text: Annotated[str, Field(min_length=1)] = "x"
    some: Annotated[tuple[int, ...], Field(min_length=2)] = (1, 2)


class Several(BaseModel):
    d: int
    b: int
    e: int
    a: int
    c: int


def problems(text: str) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        validate(load_document(text, "f"), Outer)
    return [str(problem) for problem in caught.value.problems]


EMPTY = "the key is here and has no value. Write its value, or take the key out."


def test_a_key_without_a_value_is_told_wherever_it_stands() -> None:
    text = "if:\ninner: {name: , more: , tags: []}\neach:\n- name: a\n- name:\nnamed: {a: {name: }}\n"
    assert problems(text) == [
        f"f:1:1: if: {EMPTY}",
        f"f:2:9: inner.name: {EMPTY}",
        f"f:5:3: each[1].name: {EMPTY}",
        f"f:6:13: named.a.name: {EMPTY}",
    ]
    assert list(empty_keys(Outer())) == []
    assert problems("text: ''") == [f"f:1:1: text: {EMPTY}"]


def test_problems_of_a_document_come_in_its_order() -> None:
    assert problems("zzz: 1\nsome: [1]\ninner: {nam: a}\nif: 3\n") == [
        "f:1:1: unknown key 'zzz'. Known keys: each, if, inner, named, some, text.",
        "f:2:1: some: holds 1 of at least 2 items.",
        "f:3:9: inner: unknown key 'nam'. Did you mean 'name'?",
        "f:4:1: if: input should be a valid string.",
    ]
    missing = [f"f:1:1: the key {name!r} is missing." for name in ("a", "b", "c", "d", "e")]
    with pytest.raises(DefinitionError) as caught:
        validate(load_document("{}", "f"), Several)
    assert [str(problem) for problem in caught.value.problems] == missing, "of one place in the order of their words"
    assert problems("some: [x]") == ["f:1:8: some[0]: input should be a valid integer."], "too short is its echo"


# Texts with expressions


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", [(False, "")]),
        ("a", [(False, "a")]),
        ("${{ a }}", [(True, "a")]),
        ("a${{b}}c${{ d }}", [(False, "a"), (True, "b"), (False, "c"), (True, "d")]),
        ("${{a}}${{b}}", [(True, "a"), (True, "b")]),
        ("${{ {'a': {'b': 1}} }}x", [(True, "{'a': {'b': 1}}"), (False, "x")]),
        ("${{ '}}' }}", [(True, "'}}'")]),
        ('${{ "}}" }}', [(True, '"}}"')]),
        ("${{ '\\'}}' }}", [(True, "'\\'}}'")]),
        ("${{ '\"' + a }}", [(True, "'\"' + a")]),
        ("${ {a}} }}", [(False, "${ {a}} }}")]),
        ("${{ a } b }}", [(True, "a } b")]),
        ("x }} ${{ a }} }}", [(False, "x }} "), (True, "a"), (False, " }}")]),
    ],
)
def test_a_text_is_split_into_words_and_expressions(text: str, pieces: list[tuple[bool, str]]) -> None:
    assert list(split(text)) == pieces


@pytest.mark.parametrize(("text", "column"), [("${{", 1), ("ab${{ '}}", 3), ("${{ a }}${{ {b }}", 9), ("${{ a }", 1)])
def test_an_expression_that_is_not_closed_is_told_by_its_column(text: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        list(split(text))
    assert str(caught.value) == f"the expression at column {column} is not closed. End it with }}}}."


def test_a_meaning_that_was_put_in_is_told() -> None:
    remedy = "Check the value first, or say raw(…) if it is meant to be one."
    told = {
        (Language.ENCODED_QUERY, "javascript\t:"): "a script that the instance would run",
        (Language.URL_PART, "a/.?b"): "a step to another path",
        (Language.URL_PART, "..#b"): "a step to another path",
    }
    for (language, text), what in told.items():
        with pytest.raises(ExpressionError) as caught:
            check_meaning(language, text, "")
        assert (caught.value.message, caught.value.remedy) == (f"gives {what}, by what was put into it", remedy)
    for harmless in ("a/...", "a./b", ".a", "a.b/..c"):
        check_meaning(Language.URL_PART, harmless, "")


# States


class Light(StrEnum):
    GREEN = auto()
    RED = auto()
    DARK = auto()
    GONE = auto()


class Press(StrEnum):
    STOP = auto()
    HOLD = auto()
    BREAK = auto()
    MEND = auto()


LIGHT: Machine[Light, Press] = Machine(
    "light",
    frozenset({Light.GREEN}),
    {
        (Light.GREEN, Press.STOP): Light.RED,
        (Light.RED, Press.HOLD): Light.RED,
        (Light.RED, Press.BREAK): Light.DARK,
        (Light.DARK, Press.MEND): Light.GREEN,
        (Light.GREEN, Press.BREAK): Light.GONE,
    },
    ends=frozenset({Light.DARK}),
)


def test_a_machine_moves_as_its_table_says_and_no_other_way() -> None:
    assert LIGHT.terminal == {Light.DARK, Light.GONE}
    assert LIGHT.moves() == {("green", "red"), ("red", "dark"), ("dark", "green"), ("green", "gone")}
    assert {move: LIGHT.next[move] for move in LIGHT.table} == LIGHT.table
    with pytest.raises(ConsistencyError) as caught:
        LIGHT.next[Light.GONE, Press.MEND]
    assert str(caught.value) == "a light that is gone cannot mend"
    assert (Light.GONE, Press.MEND) not in LIGHT.next


# People


def test_a_principal_has_one_form() -> None:
    told = {kind: principal(kind, " Ána\u200b \uff32aj  X ") for kind in Kind}
    assert told == {
        Kind.PERSON: "person:ána raj x",
        Kind.SLACK: "slack:ÁNA RAJ X",
        Kind.BEARER: "token:ána raj x",
        Kind.OS: "os:ána raj x",
        Kind.SERVICENOW: "servicenow:ána raj x",
        Kind.EMAIL: "email:ána raj x",
        Kind.OIDC: "oidc:Ána Raj X",
    }
    same = {
        principal(kind, name) for kind in (Kind.EMAIL, Kind.OS) for name in ("STRASSE", "stra\u00dfe", "Stra\u1e9ee")
    }
    assert same == {"email:strasse", "os:strasse"}, "letters that are the same but for their case"
    assert principal(Kind.OIDC, "stra\u00dfe") != principal(Kind.OIDC, "strasse")
    assert normalised("Slack: t1/u1 ") == "slack:T1/U1"
    assert normalised("other: A  b ") == "other: A b"
    assert [normalised(text) for text in ("os:", "  A  B ")] == ["os:", "A B"]


def test_a_text_may_mean_these_principals_and_no_others() -> None:
    assert readings("servicenow:Ana") == ("servicenow:ana", "email:ana")
    assert readings("token:Ana") == ("token:ana", "person:ana")
    assert readings("email:Ana") == ("email:ana",)
    assert readings("oidc:Ana") == ("oidc:Ana",)
    assert readings("Ana") == (
        *("person:ana", "slack:ANA", "token:ana", "person:ana", "os:ana", "servicenow:ana", "email:ana", "email:ana"),
        "oidc:Ana",
    )
    assert readings("T1:Ana Lee") == tuple(
        principal(kind, "T1:Ana Lee")
        for kind in (
            *(Kind.PERSON, Kind.SLACK, Kind.BEARER, Kind.PERSON, Kind.OS, Kind.SERVICENOW, Kind.EMAIL, Kind.EMAIL),
            Kind.OIDC,
        )
    ), "a colon names no kind"
    assert readings("email:") == readings("Email: ")
    assert readings(" ") == readings("") == ()


def test_a_directory_knows_whom_a_text_stands_for() -> None:
    ana = Entry("Ana", "Ana Lee", principals=("slack:u1", "email:ana@x", "os:both"))
    ben = Entry("ben", "Ben", active=False, principals=("os:both", "oidc:Ben"))
    bot = Entry("bot", "Bot", principals=("token:t1", "servicenow:svc"), owner="Ana")
    known = Directory.of("d1", [ana, ben, bot])
    assert list(claims(ana)) == ["person:ana", "slack:U1", "email:ana@x", "os:both"]
    people = {text: known.people(text) for text in ("ana", "U1", "os:both", "both", "svc", "ben", "nobody", "")}
    assert people == {
        "ana": {"Ana"},
        "U1": {"Ana"},
        "os:both": frozenset(),
        "both": frozenset(),
        "svc": {"Ana"},
        "ben": {"ben"},
        "nobody": frozenset(),
        "": frozenset(),
    }
    assert known.entry("svc") == known.entry("token:t1", "servicenow:svc") == bot
    assert known.entry("u1", "svc") is None, "two entries, though of one person"
    assert known.entry() is None
    twice = Entry("dan", "Dan", principals=("os:dan", "OS: Dan", "person:DAN", "slack:u9"))
    others = [Entry(name, name, principals=("slack:U9",)) for name in ("e", "f")]
    crowded = Directory.of("d2", [twice, *others])
    assert [crowded.resolve(text) for text in ("os:dan", "dan", "slack:u9", "e")] == ["dan", "dan", None, "e"]
    assert (known.resolve("svc"), known.resolve("nobody"), known.digest) == ("Ana", None, "d1")
    assert (NOBODY.digest, NOBODY.resolve("ana")) == ("", None)
    assert [role.value for role in Role] == [
        *("requester", "updater", "step_adder", "form_filler", "signal_sender", "editor", "token_owner", "agent_owner"),
        "retrier",
    ]


def test_terms_are_stored_with_all_their_defaults() -> None:
    assert Terms(Tier.LOW, ()).to_json() == {
        "tier": "low",
        "approvers": [],
        "two_person": False,
        "allow": [],
        "unresolved": "ask",
        "expires_seconds": None,
        "remind_seconds": [],
        "escalate": None,
        "fresh_seconds": 86400,
    }


def test_a_quorum_without_a_seat_is_told() -> None:
    with pytest.raises(ValueError, match=r"^the quorum of 'leads' is 0; it is at least 1$"):
        GroupQuorum("leads", 0)
    covered = Terms(Tier.HIGH, (GroupQuorum("a"),), escalate=Escalation(60, GroupQuorum("b", 2)))
    assert covered.to_json()["escalate"] == {
        "after_seconds": 60,
        "to": {"group": "b", "of": 2, "source": "group"},
        "covers": [],
    }


def test_a_place_in_a_document_is_that_of_its_nearest_part() -> None:
    document = load_document("a:\n  - b: 1\n  - [x, y]\nc: {d: }\n", "f")
    paths: dict[Any, tuple[int, int]] = {
        (): (1, 1),
        ("a",): (1, 1),
        ("a", 0): (2, 5),
        ("a", 0, "b"): (2, 5),
        ("a", 0, "b", "deeper"): (2, 5),
        ("a", 1): (3, 5),
        ("a", 1, 1): (3, 9),
        ("a", 1, 2): (3, 5),
        ("a", -1): (1, 1),
        ("a", 2): (1, 1),
        ("a", "0"): (1, 1),
        ("c", "d"): (4, 5),
        ("z", "d"): (1, 1),
    }
    assert {path: document.position(path) for path in paths} == paths
    assert (document.file, document.text[:2]) == ("f", "a:")
