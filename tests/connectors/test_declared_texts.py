"""Whole texts of declarations and their refusals: schemas, parts, operations, handlers, documents, languages."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.catalog import Catalog, Source, catalog_of, load_catalog
from connectors.disclosure import LOCAL_REFERENCES_MAX, Leaf, Treatment, leaves, resolved
from connectors.handlers import faults
from connectors.languages import InputLanguages
from connectors.marks import Writer, kind_at, writer_at
from connectors.operation import Operation, text_parts
from connectors.parts import Diff, Retry, Timeouts
from connectors.prices import has_price
from connectors.schema import CONDITIONAL, check_keywords, misfit, validator_of
from core.canonical import DEPTH_MAX
from core.errors import DefinitionError, InputError
from core.escaping import Language
from core.origins.matching import ArgumentKind

TEXT: dict[str, Any] = {"type": "string"}


def declaration(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"name": "crm.ticket.set", "handler": "crm:set", "side_effects": "external_call"}
    base |= {"risk": "low", "summary": "Set {id}", "target": "ticket/{id}", "in_doubt": "ask"}
    schema = {"type": "object", "properties": {"id": TEXT, "value": TEXT}}
    return base | {"input_schema": schema, "output_schema": {"type": "object"}} | changes


# Values and their schema


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"type": "string"}, 1, "in: must be text"),
        ({"type": "integer"}, "1", "in: must be a whole number"),
        ({"type": "number"}, "1", "in: must be a number"),
        ({"type": "boolean"}, 1, "in: must be true or false"),
        ({"type": "object"}, 1, "in: must be an object"),
        ({"type": "array"}, 1, "in: must be a list"),
        ({"type": "null"}, 1, "in: must be null"),
        ({"type": ["string", "null"]}, 1, "in: must be null or text"),
        ({"required": ["a"]}, {}, "in: 'a' is a required property"),
        ({"const": 3}, 4, "in: must be 3"),
        ({"pattern": "^a$"}, "b", "in: must match the pattern ^a$"),
        ({"enum": ["a", 2]}, "b", "in: must be one of a, 2"),
        ({"anyOf": [{"type": "null"}, {"const": 1}]}, 2, "in: fits none of the forms that are allowed here"),
        ({"oneOf": [{"type": "null"}, {"const": 1}]}, 2, "in: must fit exactly one form"),
        ({"propertyNames": {"pattern": "^a$"}}, {"bcd": 1}, "in: may not have a property named 'bcd'"),
        ({"maxLength": 2}, "abc", "in: breaks the rule maxLength: 2"),
        ({"minimum": 2}, 1, "in: breaks the rule minimum: 2"),
        ({"format": "uuid"}, "x", "in: breaks the rule format: uuid"),
        (
            {"properties": {"b": TEXT, "a": {"items": TEXT}}},
            {"b": 1, "a": ["x", 2]},
            "in.a[1]: must be text (1 more)",
        ),
        ({"properties": dict.fromkeys("cab", TEXT)}, {"c": 1, "a": 1, "b": 1}, "in.a: must be text (2 more)"),
    ],
)
def test_a_value_that_does_not_fit_is_told_by_its_place_and_rule(schema: Any, value: Any, told: str) -> None:
    assert str(misfit(validator_of(schema), value, where="in")) == told


BELONG = "x-evidence, x-secret and x-language belong in properties, items or additionalProperties"


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"$ref": "other#/a"}, "$ref 'other#/a' leaves the document; only references that start with # are followed"),
        ({"items": [{"$ref": ""}]}, "$ref '' leaves the document; only references that start with # are followed"),
        ({"x-evidence": "shown"}, "x-evidence is 'shown'; it must be one of value, digest, omit"),
        ({"x-evidence": None}, "x-evidence is None; it must be one of value, digest, omit"),
        ({"x-secret": "yes"}, "x-secret must be true or false"),
        ({"x-secret": 1}, "x-secret must be true or false"),
        ({"x-language": "sql"}, "x-language is 'sql'; it must be one of mrkdwn, encoded-query, url-part, html"),
        *(
            ({word: {"properties": {"a": mark}}}, BELONG)
            for word in sorted(CONDITIONAL)
            for mark in ({"x-evidence": "omit"}, {"x-secret": True}, {"x-language": "html"})
        ),
    ],
)
def test_a_keyword_that_nothing_reads_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_keywords({"properties": {"p": schema}})
    assert str(caught.value) == told


def test_keywords_that_are_read_pass() -> None:
    marks: dict[str, Any] = {"x-evidence": "omit", "x-secret": False, "x-language": "mrkdwn"}
    for word in ("properties", "$defs"):
        check_keywords({word: {"a": marks}})
    for word in ("items", "additionalProperties"):
        check_keywords({word: marks})
    check_keywords({"$ref": "#/$defs/a", "properties": {"x-evidence": TEXT, "x-secret": TEXT, "x-language": TEXT}})
    assert sorted(CONDITIONAL) == [
        *("allOf", "anyOf", "dependentSchemas", "else", "if", "not", "oneOf", "patternProperties", "prefixItems"),
        "then",
    ]


# The parts of a declaration


def refused(part: Any, **values: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        part(**values)
    return [str(fault["msg"]).removeprefix("Value error, ") for fault in caught.value.errors()]


def test_parts_that_contradict_themselves_are_refused() -> None:
    extra = "harmless names fields that are not in appended: a, c"
    assert refused(Diff, appended=("b",), harmless=("c", "b", "a")) == [extra]
    assert Diff(appended=("a", "b"), harmless=("a",)).harmless == ("a",)
    both = "park and complete are the same limit; declare one of them"
    assert refused(Timeouts, park="P1D", complete="P1D") == [both]
    late = "extend_to is not later than park: nothing could be put off"
    assert refused(Timeouts, park="P2D", extend_to="P2D") == [late]
    assert refused(Timeouts, complete="P2D", extend_to="P2D") == [late]
    assert refused(Timeouts, extend_to="P7D") == [late]
    assert Timeouts(park="P2D", extend_to="P2DT1S").parked == timedelta(days=2)
    assert Timeouts(complete="P3D").parked == timedelta(days=3)
    plain = Timeouts()
    assert (plain.perform, plain.complete, plain.parked) == (timedelta(seconds=30), timedelta(7), timedelta(7))
    parked = Timeouts(park="P2D").model_dump(mode="json")
    assert sorted(parked) == ["park", "perform"]
    assert sorted(plain.model_dump(mode="json")) == ["complete", "perform"]


def test_delays_grow_by_their_list_and_end_at_the_cap() -> None:
    plain = Retry()
    assert (plain.attempts, plain.backoff, plain.jitter, plain.cap) == (5, (5, 30, 120, 600), 0.2, 600)
    assert [plain.delay_seconds(attempt, chance=0.5) for attempt in (1, 2, 3, 4, 5, 9)] == [5, 30, 120, 600, 600, 600]
    assert [plain.delay_seconds(1, chance=chance) for chance in (0.0, 0.25, 0.75)] == [4.0, 4.5, 5.5]
    own = Retry(backoff=(10,), jitter=1, cap=15)
    assert [own.delay_seconds(2, chance=chance) for chance in (0.0, 0.5, 0.7, 0.9)] == [0.0, 10.0, 14.0, 15.0]
    assert [Retry(attempts=n).attempts for n in (1, 20)] == [1, 20]
    for values in ({"attempts": 0}, {"attempts": 21}, {"backoff": ()}, {"backoff": (-1,)}, {"jitter": 1.1}, {"cap": 0}):
        assert refused(Retry, **values), values


# Operations

FIRST_PART = "which is the first part of the name unless `connector` is declared"
DOUBT = "has side effects, so it must say how doubt is resolved: in_doubt: idempotent | probe | ask"
SYNC = "answers within its call: on_timeout and extend_to belong to `kind: durable`"
UNDECLARED = "names input fields that input_schema does not declare: "
UNFILLED = "has placeholders that nothing fills: "
NESTED = {"type": "object", "properties": {"id": TEXT, "more": {"type": "object"}, "value": TEXT}}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"handler": "other:set"},
            f"handler 'other:set' must belong to the connector 'crm', {FIRST_PART}",
        ),
        (
            {"connector": "mail"},
            f"handler 'crm:set' must belong to the connector 'mail', {FIRST_PART}",
        ),
        ({"in_doubt": None}, DOUBT),
        ({"side_effects": "internal_db", "in_doubt": None}, DOUBT),
        ({"side_effects": "human_process", "in_doubt": None}, DOUBT),
        ({"on_timeout": {"escalate": "ops"}}, SYNC),
        ({"timeouts": {"extend_to": "P8D"}}, SYNC),
        (
            {"params": {"value": 1, "id": 2, "more": 3}},
            "has fixed params that input_schema declares as inputs, too: id, value",
        ),
        ({"writes": "value"}, "writes names 'value', which is not an object property of input_schema"),
        ({"writes": "none"}, "writes names 'none', which is not an object property of input_schema"),
        ({"writes": ["value", "b", "a"]}, f"{UNDECLARED}a, b"),
        ({"idempotency": {"key": ["id", "when"]}}, f"{UNDECLARED}when"),
        ({"target": "{id}/{kind|place.name}"}, f"{UNDECLARED}kind, place"),
        ({"target": "{before.id}"}, f"{UNDECLARED}before"),
        ({"summary": "{b.c} {a|id} {facts.x} {before.y} {target}"}, f"{UNFILLED}a, b.c"),
        ({"reverse": {"operation": "crm.ticket.set", "input": {"a": [{"b": "{who.x}"}], "c": 1}}}, f"{UNFILLED}who.x"),
        ({"input_schema": {"type": "array"}}, "describes an object: it needs `type: object`"),
        ({"output_schema": {}}, "describes an object: it needs `type: object`"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused_whole(changes: dict[str, Any], told: str) -> None:
    declared = {name: value for name, value in declaration(**changes).items() if value is not None}
    assert refused(Operation.model_validate, obj=declared) == [told]


@pytest.mark.parametrize(
    "changes",
    [
        {"connector": "mail", "handler": "mail:set"},
        {"side_effects": "none", "in_doubt": None},
        {"kind": "durable", "on_timeout": {"escalate": "ops"}, "timeouts": {"extend_to": "P8D"}},
        {"params": {"more": 3}, "writes": ["more"], "target": "{more}", "idempotency": {"key": ["more"]}},
        {"input_schema": NESTED, "writes": "more"},
        {"reverse": {"operation": "crm.ticket.set", "input": {"id": "{id}", "was": ["{before.value}", "{target}"]}}},
    ],
)
def test_a_declaration_that_does_not_is_taken(changes: dict[str, Any]) -> None:
    declared = {name: value for name, value in declaration(**changes).items() if value is not None}
    assert Operation.model_validate(declared).name == "crm.ticket.set"


def test_an_operation_says_who_performs_it_and_whether_it_stays_inside() -> None:
    plain = Operation.model_validate(declaration())
    assert (plain.connector, plain.function, plain.has_effect, plain.stays_inside) == ("crm", "set", True, False)
    assert (plain.kind, plain.description, plain.params, plain.writes) == ("sync", "", {}, None)
    assert plain.arguments == {"id", "value"}
    owned = Operation.model_validate(declaration(connector="mail", handler="mail:send"))
    assert (owned.connector, owned.function) == ("mail", "send")
    told = owned.model_dump(mode="json")
    assert (told["connector"], "owner" in told) == ("mail", False)
    assert {"connector", "owner", "params", "on_timeout"} & plain.model_dump(mode="json").keys() == set()
    assert plain.digest != owned.digest
    inside = {"name": "transform.data.own", "handler": "transform:apply"}
    nothing, something = ({"side_effects": effect} for effect in ("none", "internal_db"))
    assert Operation.model_validate(declaration(**inside, **nothing)).stays_inside
    assert not Operation.model_validate(declaration(**inside, **something)).stays_inside
    assert not Operation.model_validate(declaration(**nothing)).stays_inside
    for handler in ("transformer:apply", "transform_more:apply", "own_transform:apply", "transfor:apply"):
        outside = {"name": "transform.data.own", "connector": handler.partition(":")[0], "handler": handler}
        assert not Operation.model_validate(declaration(**outside, **nothing)).stays_inside, handler
    nested = Operation.model_validate(declaration(input_schema=NESTED, writes="more"))
    assert nested.fact_types() == {}
    assert nested.arguments == {"id", "more", "value"}


def test_a_text_is_read_as_its_pieces() -> None:
    assert text_parts("a {b.c|d} e{f}") == ("a ", (("b", "c"), ("d",)), " e", (("f",),))
    assert text_parts("{} {1a} {a-b} { a }") == ("{} {1a} {a-b} { a }",)
    assert text_parts("") == ()


# Handlers and documents


def own(catalog: Catalog, name: str, like: str, **changes: Any) -> list[tuple[str, str, str]]:
    """The faults of a declaration like a packaged one, with these changes."""
    packaged = [operation for key, operation in catalog.operations.items() if key in catalog.packaged]
    one = catalog.get(like)
    told = {"handler": one.handler, "kind": one.kind, "input_schema": one.input_schema, "target": "t", "summary": "s"}
    return list(faults(Operation.model_validate(declaration(**{"name": name} | told | changes)), packaged))


NEEDS = "Give it in params, or declare it under input_schema and name it in `required`."
SENDS = "It sends blocks, channel, text, thread_ts."


def test_a_handler_sends_what_packaged_declarations_name(catalog: Catalog) -> None:
    post = "slack.message.post"
    schema = catalog.get(post).input_schema
    properties = schema["properties"]
    more = {**schema, "properties": {**properties, "when": TEXT, "as": TEXT}}
    fewer = {**schema, "required": [], "properties": {"text": TEXT}}
    assert own(catalog, "slack.own.post", post) == []
    assert own(catalog, "slack.own.post", post, input_schema=more) == [
        ("input_schema", "slack:post does not send 'as'.", SENDS),
        ("input_schema", "slack:post does not send 'when'.", SENDS),
    ]
    named = own(catalog, "slack.own.post", post, input_schema=more, writes=["when", "as"])
    assert [one[1] for one in named] == ["slack:post does not send 'as'.", "slack:post does not send 'when'."]
    assert own(catalog, "slack.own.post", post, params={"icon": "x"}) == [
        ("params", "slack:post does not send 'icon'.", SENDS)
    ]
    assert own(catalog, "slack.own.post", post, input_schema=fewer) == [
        ("input_schema", "slack:post needs the input 'channel'.", NEEDS),
        ("input_schema", "slack:post needs the input 'text'.", NEEDS),
    ]
    fixed = {"input_schema": {**fewer, "required": ["text"]}, "params": {"channel": "C0OPS"}}
    assert own(catalog, "slack.own.post", post, **fixed) == []
    assert own(catalog, "slack.own.post", post, kind="durable") == [
        ("kind", "slack:post is sync.", "Declare `kind: sync`.")
    ]
    assert own(catalog, "slack.own.post", post, handler="slack:posts") == [
        ("handler", "there is no handler 'slack:posts'.", "Did you mean 'slack:post'?")
    ]
    assert own(catalog, "sql.own.post", post, handler="sql:post") == [
        (
            "handler",
            "there is no handler 'sql:post'.",
            "Did you mean 'sql:update'?",
        )
    ]
    assert own(catalog, "crm.own.post", post, handler="crm:post") == [], "nothing is known of this connector"


def test_an_update_of_a_record_may_write_any_field_by_name(catalog: Catalog) -> None:
    schema = {"type": "object", "required": ["sys_id"], "properties": {"sys_id": TEXT, "u_own": TEXT, "u_more": TEXT}}
    given = {"input_schema": schema, "params": {"table": "incident"}}
    update = "servicenow.record.update"
    told = own(catalog, "servicenow.own.set", update, **given, writes=["u_own"])
    assert [one[:2] for one in told] == [("input_schema", "servicenow:update does not send 'u_more'.")]
    assert own(catalog, "servicenow.own.set", update, **given, writes=["u_own", "u_more"]) == []
    letters = {"sys_id": TEXT, "fields": {"type": "object"}, "f": TEXT, "s": TEXT}
    told = own(catalog, "servicenow.own.set", update, input_schema=schema | {"properties": letters}, writes="fields")
    faults = [("input_schema", f"servicenow:update does not send {name!r}.") for name in ("f", "s")]
    assert [one[:2] for one in told][:2] == faults


def document(*declared: dict[str, Any]) -> str:
    return json.dumps({"operations": list(declared)}, indent=1)


def test_every_fault_of_every_document_is_told() -> None:
    reverse = {"operation": "crm.ticket.sett", "input": {}}
    one, two = declaration(name="crm.ticket.put"), declaration(reverse=reverse)
    sources = [Source("a.yaml", document(one, declaration(name="crm.ticket.put"))), Source("b.yaml", document(one))]
    with pytest.raises(DefinitionError) as caught:
        catalog_of([*sources, Source("c.yaml", document(declaration(risk="none"))), Source("d.yaml", document(two))])
    told = [(problem.file, problem.message) for problem in caught.value.problems]
    already = "crm.ticket.put is declared in a.yaml already."
    assert told[:2] == [("a.yaml", already), ("b.yaml", already)]
    assert [file for file, _ in told[2:]] == ["c.yaml"]
    with pytest.raises(DefinitionError) as caught:
        catalog_of([Source("d.yaml", document(one, two))])
    (problem,) = caught.value.problems
    words = "crm.ticket.set is reversed by 'crm.ticket.sett', which does not exist."
    assert (problem.file, problem.message, problem.remedy) == ("d.yaml", words, "Did you mean 'crm.ticket.set'?")
    text = document(one, two).splitlines()
    assert text[problem.line - 1].strip().startswith(('"reverse"', '"operation"', "{"))


def test_faults_of_handlers_are_told_by_operation_and_line(catalog: Catalog) -> None:
    wrong = declaration(
        name="slack.own.post", handler="slack:post", input_schema=catalog.get("slack.message.post").input_schema
    )
    text = document(declaration(), wrong | {"kind": "durable", "target": "t", "summary": "s"})
    with pytest.raises(DefinitionError) as caught:
        load_catalog([Source("own.yaml", text)])
    (problem,) = caught.value.problems
    assert (problem.message, problem.remedy) == ("slack.own.post: slack:post is sync.", "Declare `kind: sync`.")
    assert '"durable"' in text.splitlines()[problem.line - 1]
    loaded = load_catalog([Source("own.yaml", document(declaration()))])
    assert loaded.operations.keys() - loaded.packaged == {"crm.ticket.set"}
    assert loaded.packaged == catalog.packaged == frozenset(catalog.operations)
    both = [Source(f"{name}.yaml", document(declaration(name=f"crm.{name}.set"))) for name in ("a", "b")]
    assert catalog_of(both).packaged == frozenset()
    assert catalog_of(both, packaged=frozenset({"b.yaml"})).packaged == {"crm.b.set"}
    with pytest.raises(InputError) as missing:
        loaded.get("crm.ticket.sett")
    assert str(missing.value) == "there is no operation 'crm.ticket.sett'. Did you mean 'crm.ticket.set'?"


# Marks


def chain(length: int, end: dict[str, Any]) -> dict[str, Any]:
    """A schema whose property ``a`` is reached by this many references."""
    links: dict[str, Any] = {f"n{at}": {"$ref": f"#/$defs/n{at + 1}"} for at in range(1, length)}
    return {"$defs": {**links, f"n{length}": end}, "properties": {"a": {"$ref": "#/$defs/n1"}}}


def test_references_are_followed_to_a_limit() -> None:
    end: dict[str, Any] = {"x-evidence": "value"}
    for length in range(1, LOCAL_REFERENCES_MAX):
        schema = chain(length, end)
        assert resolved(schema, schema["properties"]["a"]) == end
    schema = chain(LOCAL_REFERENCES_MAX, end)
    assert resolved(schema, schema["properties"]["a"]) == {}
    assert resolved({"a/b": {"c~d": end}}, {"$ref": "#/a~1b/c~0d"}) == end
    assert resolved({"type": "object"}, {"$ref": "#"}) == {"type": "object"}
    assert resolved({}, True) == resolved({}, {"$ref": "#/none/there"}) == {}


def test_each_leaf_has_the_treatment_of_the_nearest_mark() -> None:
    properties = {
        "open": {"x-evidence": "value", "properties": {"shut": {"x-evidence": "omit"}}},
        "key": {"x-secret": True, "properties": {"id": {"x-evidence": "value", "x-secret": False}}},
        "list": {"x-evidence": "value", "items": {"properties": {"a": {"x-evidence": "digest"}}}},
        "lists": {"x-evidence": "value", "items": {"items": {"additionalProperties": {"x-evidence": "omit"}}}},
        "same": {"x-evidence": "digest", "items": {"x-evidence": "value"}},
        "none": {"x-evidence": "digest", "items": {"x-evidence": "omit"}},
    }
    schema: dict[str, Any] = {"properties": properties, "additionalProperties": {"x-evidence": "value"}}
    value: Any = {
        "open": {"a/b": 1, "shut": 2, "~": {}},
        "key": {"id": 3},
        "list": [{}],
        "lists": [],
        "same": [1],
        "none": [2],
    }
    assert list(leaves(schema, value | {"else": None})) == [
        Leaf("/open/a~1b", 1, Treatment.VALUE, False),
        Leaf("/open/shut", 2, Treatment.OMIT, False),
        Leaf("/open/~0", {}, Treatment.VALUE, False),
        Leaf("/key/id", 3, Treatment.OMIT, True),
        Leaf("/list", [{}], Treatment.DIGEST, False),
        Leaf("/lists", [], Treatment.OMIT, False),
        Leaf("/same", [1], Treatment.DIGEST, False),
        Leaf("/none", [2], Treatment.OMIT, False),
        Leaf("/else", None, Treatment.VALUE, False),
    ]
    assert list(leaves({}, {"a": 1})) == [Leaf("/a", 1, Treatment.DIGEST, False)]
    assert list(leaves({"x-evidence": "value"}, 7)) == [Leaf("", 7, Treatment.VALUE, False)]


def test_kinds_go_down_through_references_and_other_properties() -> None:
    schema: dict[str, Any] = {
        "$defs": {"note": {"x-argument": "text", "properties": {"id": {"x-argument": "value"}}}},
        "properties": {"note": {"$ref": "#/$defs/note"}, "plain": {}},
        "additionalProperties": {"x-argument": "flag"},
    }
    told = {path: kind_at(schema, path) for path in [(), ("note",), ("note", "x"), ("note", "id"), ("plain",), ("z",)]}
    value, text, flag = ArgumentKind.VALUE, ArgumentKind.TEXT, ArgumentKind.FLAG
    assert list(told.values()) == [value, text, text, value, value, flag]


def test_a_writer_is_the_least_trusted_on_the_way_down_and_below() -> None:
    people, system, anyone = ({"x-written-by": writer} for writer in ("people", "system", "anyone"))
    schema: dict[str, Any] = {
        **people,
        "$defs": {"row": {**system, "properties": {"a/b": anyone, "id": {}}}},
        "properties": {"rows": {**system, "items": {"items": {"$ref": "#/$defs/row"}}}, "n": system, "m": {}},
        "additionalProperties": {**system, "properties": {"free": anyone}},
    }
    told = {path: writer_at(schema, path) for path in ("", "/rows", "/rows/id", "/rows/a~1b", "/n", "/m", "/z", "/z/y")}
    assert told == {
        "": Writer.ANYONE,
        "/rows": Writer.ANYONE,
        "/rows/id": Writer.SYSTEM,
        "/rows/a~1b": Writer.ANYONE,
        "/n": Writer.SYSTEM,
        "/m": Writer.PEOPLE,
        "/z": Writer.ANYONE,
        "/z/y": Writer.SYSTEM,
    }
    rows: dict[str, Any] = {**people, "properties": {"l": {"items": {}}}}
    assert writer_at(rows, "/l/x") is Writer.PEOPLE
    rows = {"properties": {"l": {**system, "items": people}}}
    assert writer_at(rows, "/l") is Writer.PEOPLE


def test_a_text_has_the_language_of_the_nearest_declaration() -> None:
    schema: dict[str, Any] = {
        "$defs": {"part": {"x-language": "url-part"}},
        "properties": {
            "text": {"x-language": "mrkdwn"},
            "rows": {"items": {"properties": {"q": {"x-language": "encoded-query"}}}},
            "deep": {"x-language": "html", "properties": {"more": {}, "part": {"$ref": "#/$defs/part"}}},
            "plain": {"properties": {"n": {"type": "integer"}}},
            "bag": {"additionalProperties": {"x-language": "html"}},
        },
    }
    languages = InputLanguages(schema)
    paths: list[Any] = [("text",), ("rows", 0, "q"), ("rows", 0), ("rows", "q"), ("deep", "more"), ("deep", "part")]
    paths += [("bag", "x"), ("bag",), ("plain",), ("plain", "n"), ("none",), ()]
    told = {path: (languages.at(path), languages.within(path)) for path in paths}
    assert told == {
        ("text",): (Language.MRKDWN, True),
        ("rows", 0, "q"): (Language.ENCODED_QUERY, True),
        ("rows", 0): (None, True),
        ("rows", "q"): (None, False),
        ("deep", "more"): (Language.HTML, True),
        ("deep", "part"): (Language.URL_PART, True),
        ("bag", "x"): (Language.HTML, True),
        ("bag",): (None, True),
        ("plain",): (None, False),
        ("plain", "n"): (None, False),
        ("none",): (None, False),
        (): (None, True),
    }
    circle: dict[str, Any] = {"properties": {"a": {"$ref": "#"}}}
    assert InputLanguages(circle).within(()) is False
    nested: dict[str, Any] = {"x-language": "html"}
    for _ in range(DEPTH_MAX):
        nested = {"items": nested}
    assert InputLanguages(nested).within(()) is True


def test_a_price_is_known_by_the_models_name() -> None:
    assert {name: has_price(name) for name in ("gpt-4o", "no-such-model-at-all", "")} == {
        "gpt-4o": True,
        "no-such-model-at-all": False,
        "": False,
    }
