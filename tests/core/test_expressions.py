"""The four ways in which an expression engine fails open, and everything else that an expression may not do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import cel as oracle  # another implementation of CEL, in Rust
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.canonical import DEPTH_MAX, Json
from core.errors import ExpressionError
from core.expressions import POLICY_LIMITS, WORKFLOW_LIMITS, ConditionSet, Environment, Expression
from core.templates import TemplateError, compile_template, compile_value

VARIABLES = {
    "trigger": "dyn",
    "steps.a.output": "dyn",
    "run.id": "string",
    "run.started": "timestamp",
    "actor.mfa": "bool",
    "amount": "int",
    "ratio": "double",
    "tags": "list<string>",
    "labels": "map<string,string>",
}
VALUES: dict[str, object] = {
    "trigger": {"number": "INC1", "n": 1, "items": [1, 2, 3], "none": None, "evil": "${{ run.id }}"},
    "steps.a.output": {"priority": "1"},
    "run.id": "r1",
    "run.started": "2026-11-21T09:00:00Z",
    "actor.mfa": False,
    "amount": 5000,
    "ratio": 0.5,
    "tags": ["a", "b"],
    "labels": {"env": "prod"},
}
ENV = Environment(VARIABLES)
WORKFLOW = Environment(VARIABLES, WORKFLOW_LIMITS)


def holds(source: str, values: dict[str, object] | None = None) -> bool:
    expression = ENV.compile(source, "bool")
    return expression.test(VALUES if values is None else values)


def evaluated(expression: Expression, values: Mapping[str, object]) -> Json:
    return expression.value(expression.environment.bind(values))


class TestTrapsThatFailOpen:
    @pytest.mark.req("U-4")
    def test_an_error_is_not_a_true_string(self) -> None:
        with pytest.raises(ExpressionError, match="'amount' has no value"):
            holds("amount <= 100", {})

    @pytest.mark.req("U-4")
    def test_a_false_result_is_false(self) -> None:
        assert holds("amount <= 100") is False
        assert holds("amount > 100") is True

    @pytest.mark.req("U-4")
    def test_has_on_a_declared_variable_is_refused(self) -> None:
        with pytest.raises(ExpressionError, match=r"has\(\) on a declared variable"):
            ENV.compile("has(actor.mfa)", "bool")
        assert holds("has(trigger.number) && !has(trigger.nope)") is True
        with pytest.raises(ExpressionError, match=r"has\(\)"):
            ENV.compile("has(trigger.number) && has(actor.mfa)", "bool")

    @pytest.mark.req("U-4")
    def test_values_of_another_environment_do_not_bypass_type_checks(self) -> None:
        other = Environment({"amount": "string"})
        with pytest.raises(ExpressionError, match="another environment"):
            ENV.compile("amount == 1").value(other.bind({"amount": "1"}))

    @pytest.mark.req("U-4")
    def test_deep_data_is_refused_before_the_engine_sees_it(self) -> None:
        deep: Any = "x"
        for _ in range(DEPTH_MAX):
            deep = {"k": deep}
        assert evaluated(ENV.compile("trigger.k == 1"), {"trigger": deep}) is False
        for _ in range(20_000):
            deep = [deep]
        with pytest.raises(ExpressionError, match="trigger: is nested deeper than 32"):
            ENV.bind({"trigger": deep})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("run.idd == 'x'", r"undeclared reference to 'run.idd' at column 4 .*Did you mean 'run.id'\?"),
        ("amont > 1", r"Did you mean 'amount'\?"),
        ("amount == 'x'", "no matching overload"),
        ("amount +", "Syntax error.*column 9"),
        ("amount", "is of type int, not bool"),
        ("run.id.matches('(')", "invalid regular expression"),
        ("run.id.matches('(a{1,1000}){1,1000}b')", "matches"),
        ("duration('soon') < duration('1h')", "Duration"),
        ("1 / 0 == 1", "divide by zero"),
        ("tags.all(x, tags.exists(y, x == y))", "2 comprehensions"),
        ("tags.map(x, x).exists(y, y == 'a')", "2 comprehensions"),
        ("tags.exists(x, x + x == 'aa')", r"'\+' inside a comprehension"),
        ("tags.exists(run, run == 'a')", "'run' hides"),
        ("(" * 40 + "true" + ")" * 40, "recursion"),
        ("amount == 1 || " * 200 + "true", "at most"),
        (" || ".join(["amount==1"] * 120), "parts; at most 300"),
    ],
)
def test_what_is_wrong_is_refused_at_load(source: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        ENV.compile(source, "bool")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("amount", True, "is a bool where int is declared"),
        ("amount", "1", "is a string"),
        ("amount", 2**63, "over 64 bit"),
        ("trigger", {"a": [2**70]}, "over 64 bit"),
        ("trigger", float("nan"), "double"),
        ("trigger", (1,), "tuple"),
        ("trigger", {1: 2}, "key that is not a string"),
        ("trigger", {"a": object()}, "object"),
        ("ratio", float("inf"), "double"),
        ("run.id", None, "is null"),
        ("run.started", "yesterday", "RFC 3339"),
        ("run.started", "2026-11-21T09:00:00", "time zone"),
        ("tags", ["a", 1], "list"),
        ("labels", {"a": 1}, "map"),
        ("actor.mfa", 1, "int"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        ENV.bind({**VALUES, name: value})
    assert caught.value.where == name


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("trigger", VALUES["trigger"]),
        ("trigger.none", None),
        ("trigger.items", [1, 2, 3]),
        ("{'a': [1, 2.5, true, null]}", {"a": [1, 2.5, True, None]}),
        ("run.started", "2026-11-21T09:00:00Z"),
        ("run.started + duration('90s')", "2026-11-21T09:01:30Z"),
        ("duration('90s')", "PT90S"),
        ("duration('100s')", "PT100S"),
        ("duration('0s')", "PT0S"),
        ("duration('0.5s')", "PT0.5S"),
        ("duration('90.000001s')", "PT90.000001S"),
        ("timestamp('2026-11-21T09:00:00.000001Z')", "2026-11-21T09:00:00.000001Z"),
        ("steps.a.output.priority == '1'", True),
        ("trigger.n == '1'", False),
        ("ratio", 0.5),
    ],
)
def test_values_come_out_as_plain_json(source: str, value: object) -> None:
    result = evaluated(ENV.compile(source), VALUES)
    assert result == value
    assert json.loads(json.dumps(result)) == value


@pytest.mark.parametrize("source", ["b'abc'", "type(1)", "{1: 'a'}", "ratio / 0.0", "trigger.nope", "trigger.n.deeper"])
def test_what_json_cannot_hold_or_is_missing_is_an_error(source: str) -> None:
    with pytest.raises(ExpressionError):
        evaluated(ENV.compile(source), VALUES)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "x", [1, [2]], {"a": {"b": [None]}}])
def test_dyn_takes_any_json(value: object) -> None:
    assert evaluated(ENV.compile("trigger"), {"trigger": value}) == value


def test_a_dynamic_value_is_checked_when_it_is_demanded() -> None:
    expression = ENV.compile("trigger.n", "bool")
    with pytest.raises(ExpressionError, match="gives an int, not bool"):
        expression.test(VALUES)
    with pytest.raises(ExpressionError, match="gives an int, not list"):
        evaluated(ENV.compile("trigger.n", "list"), VALUES)
    with pytest.raises(ExpressionError, match="not int"):
        evaluated(ENV.compile("trigger.flag", "int"), {"trigger": {"flag": True}})
    assert evaluated(ENV.compile("trigger.items", "list"), VALUES) == [1, 2, 3]


def test_references_are_the_declared_variables_that_are_read() -> None:
    expression = ENV.compile("tags.exists(t, t == run.id) && steps.a.output.priority == '1'")
    assert expression.references == {"tags", "run.id", "steps.a.output"}
    assert expression.source.startswith("tags")


def test_a_nested_loop_over_much_data_ends() -> None:
    expression = WORKFLOW.compile("trigger.all(x, trigger.all(y, x == y))", "bool")
    with pytest.raises(ExpressionError, match="too long"):
        expression.test({"trigger": ["a"] * 1_000})


def test_an_undeclared_value_cannot_be_read_and_does_no_harm() -> None:
    assert holds("amount > 1", {"amount": 2, "nobody.declared": object()}) is True


@pytest.mark.parametrize("name", ["my-step.x", "in", "a.in", "", "a..b", "1a", "a b"])
def test_names_that_cannot_be_written_are_refused(name: str) -> None:
    with pytest.raises(ExpressionError):
        Environment({name: "string"})
    with pytest.raises(ExpressionError, match="unknown type"):
        Environment({"ok": "text"})


class TestSeveralTestsAtOnce:
    SOURCES = ("amount > 1 // a comment", "tags.exists(t, t == 'z')", "trigger.n == 1", "1.0 / ratio > 1.0")

    def test_each_counts_alone(self) -> None:
        tests = ConditionSet([ENV.compile(source, "bool") for source in self.SOURCES])
        assert tests.run(VALUES) == [True, False, True, True]
        assert tests.references == {"amount", "tags", "trigger", "ratio"}

    def test_an_error_names_its_own_and_leaves_the_others(self) -> None:
        tests = ConditionSet([ENV.compile(source, "bool") for source in self.SOURCES])
        values = {name: value for name, value in VALUES.items() if name != "tags"}
        first, second, *others = tests.run(values)
        assert (first, others) == (True, [True, True])
        assert isinstance(second, ExpressionError)
        assert "'tags' has no value" in str(second)

    def test_a_dynamic_value_that_is_no_bool_is_an_error(self) -> None:
        tests = ConditionSet([ENV.compile("trigger.n", "bool"), ENV.compile("amount > 1", "bool")])
        first, second = tests.run(VALUES)
        assert isinstance(first, ExpressionError)
        assert second is True

    def test_environments_that_agree_on_what_is_read_share_a_program(self) -> None:
        other = Environment({"amount": "int", "trigger": "string"})
        tests = ConditionSet([ENV.compile("trigger.n == 1", "bool"), other.compile("amount > 1", "bool")])
        assert tests.run(VALUES) == [True, True]
        first, second = tests.run({**VALUES, "amount": "2"})
        assert first is True
        assert "is a string where int is declared" in str(second)

    def test_environments_that_do_not_agree_are_not_mixed(self) -> None:
        other = Environment({"amount": "dyn"})
        tests = ConditionSet([ENV.compile("amount != 1", "bool"), other.compile("amount == 'a'", "bool")])
        assert tests.run({"amount": 2}) == [True, False]
        first, second = tests.run({"amount": "a"})
        assert isinstance(first, ExpressionError)
        assert second is True

    def test_expressions_near_the_depth_limit_still_run(self) -> None:
        source = "+".join(["amount"] * 31) + " > 0"
        tests = ConditionSet([ENV.compile(source, "bool")] * 3)
        assert tests.run(VALUES) == [True] * 3


class TestTemplates:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("plain", "plain"),
            ("", ""),
            ("${{ trigger.n }}", 1),
            ("  ${{ trigger.items }}\n", [1, 2, 3]),
            ("n=${{ trigger.n }} of ${{run.id}}", "n=1 of r1"),
            ("${{ actor.mfa }}/${{ ratio }}", "false/0.5"),
            ("${{ trigger.evil }}", "${{ run.id }}"),
            ("x ${{ trigger.evil }}", "x ${{ run.id }}"),
            ("${{ {'a': {'b': '}}'}} }}", {"a": {"b": "}}"}}),
            ("${{ '${{' }} is literal", "${{ is literal"),
            ("${{ trigger.items.filter(i, i > 1).map(i, i * 2) }}", [4, 6]),
        ],
    )
    def test_rendering(self, text: str, value: object) -> None:
        assert compile_template(WORKFLOW, text).render(VALUES) == value

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x ${{ trigger }}", "a map, which has no place"),
            ("x ${{ trigger.none }}", "null, which has no place"),
            ("${{ trigger.nope }}", "nope"),
            ("${{ trigger.n", "column 1 is not closed"),
            ("${{ }}", "Syntax error"),
        ],
    )
    def test_errors(self, text: str, message: str) -> None:
        with pytest.raises(ExpressionError, match=message):
            compile_template(WORKFLOW, text).render(VALUES)

    def test_a_demanded_type_needs_one_expression(self) -> None:
        with pytest.raises(ExpressionError, match="is not one"):
            compile_template(WORKFLOW, "yes", "bool")
        with pytest.raises(ExpressionError, match="is not one"):
            compile_template(WORKFLOW, "${{ true }} and more", "bool")
        assert compile_template(WORKFLOW, "${{ amount > 1 }}", "bool").render(VALUES) is True

    def test_a_text_cannot_grow_without_bound(self) -> None:
        template = compile_template(WORKFLOW, "${{ run.id }}" * 200)
        with pytest.raises(ExpressionError, match="characters; at most"):
            template.render({"run.id": "x" * 10_000})

    def test_nested_values(self) -> None:
        value = {"fields": {"priority": "${{ trigger.n }}", "on": [True, None, 3, "as ${{ run.id }}"]}, "n": 1.5}
        template = compile_value(WORKFLOW, value, "with")
        assert template.references == {"trigger", "run.id"}
        first = template.render(VALUES)
        assert first == {"fields": {"priority": 1, "on": [True, None, 3, "as r1"]}, "n": 1.5}
        assert first is not template.render(VALUES)

    def test_errors_name_the_path(self) -> None:
        with pytest.raises(TemplateError, match=r"with\.fields\.tags\[1\]: undeclared reference") as at_load:
            compile_value(WORKFLOW, {"fields": {"tags": ["a", "${{ triger.n }}"]}}, "with")
        assert at_load.value.path == ("fields", "tags", 1)
        template = compile_value(WORKFLOW, {"fields": {"priority": "${{ trigger.nope }}"}}, "with")
        with pytest.raises(TemplateError, match=r"with\.fields\.priority: Key not found") as at_run:
            template.render(VALUES)
        assert at_run.value.path == ("fields", "priority")
        with pytest.raises(TemplateError, match="expression in a key"):
            compile_value(WORKFLOW, {"${{ run.id }}": 1})


# Evaluations in which two independent implementations may only differ between a boolean and an error.
ORACLE_VARIABLES = {"amount": "dyn", "risk": "dyn", "tags": "dyn", "name": "dyn", "fields": "dyn"}
ORACLE_SOURCES = (
    "amount > 10",
    "amount <= 10 || risk == 3",
    "amount == 250.0 && name != ''",
    "'infra' in tags",
    "tags.exists(t, t == name)",
    "tags.all(t, t.startswith('i') || size(t) > 2)".replace("startswith", "startsWith"),
    "tags.exists_one(t, t == 'a')",
    "fields.priority in ['1', '2']",
    "has(fields.priority) && fields.priority == '1'",
    "has(fields.priority) ? fields.priority == name : risk > 1",
    "risk in [1, 2, 3]",
    "amount / risk > 1",
    "amount % risk == 0",
    "size(name) > 3 && name.contains('a')",
    "name.matches('^[a-z]+$')",
    "!(amount == risk) || name.endsWith('x')",
    "fields == {'priority': '1'}",
    "size(fields) == 1 && size(tags) == 0",
)
ORACLE_ENV = Environment(ORACLE_VARIABLES)
ORACLE_PAIRS = [(ORACLE_ENV.compile(source, "bool"), oracle.compile(source)) for source in ORACLE_SOURCES]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.sampled_from([0, 1, 3, 250, 1.5, 0.0, 250.0]),
    st.sampled_from(["", "a", "infra", "x", "1", "é😀"]),
)  # fmt: skip
ORACLE_VALUES = st.fixed_dictionaries(
    {},
    optional={
        "amount": SCALARS,
        "risk": SCALARS,
        "name": SCALARS,
        "tags": st.one_of(SCALARS, st.lists(SCALARS, max_size=4)),
        "fields": st.one_of(SCALARS, st.dictionaries(st.sampled_from(["priority", "state"]), SCALARS, max_size=2)),
    },
)


@settings(max_examples=150, deadline=None)
@given(values=ORACLE_VALUES, index=st.integers(0, len(ORACLE_SOURCES) - 1))
def test_another_implementation_never_says_the_opposite(values: dict[str, object], index: int) -> None:
    ours, theirs = ORACLE_PAIRS[index]
    try:
        mine: object = ours.test(values)
    except ExpressionError:
        mine = "error"
    try:
        other: object = theirs.execute(dict(values))
    except Exception:
        other = "error"
    assert mine == other or "error" in (mine, other), ours.source


@settings(max_examples=100, deadline=None)
@given(values=ORACLE_VALUES)
def test_the_common_program_agrees_with_each_alone(values: dict[str, object]) -> None:
    expressions = [ours for ours, _ in ORACLE_PAIRS]
    for expression, together in zip(expressions, ConditionSet(expressions).run(values), strict=True):
        try:
            assert expression.test(values) is together
        except ExpressionError:
            assert isinstance(together, ExpressionError)


@settings(max_examples=150, deadline=None)
@given(source=st.text(max_size=60))
def test_no_text_crashes_the_compiler(source: str) -> None:
    with contextlib.suppress(ExpressionError):
        ENV.compile(source, "bool")


def test_the_limits_of_policies_are_the_tighter_ones() -> None:
    assert POLICY_LIMITS.loops < WORKFLOW_LIMITS.loops
    assert POLICY_LIMITS.nodes < WORKFLOW_LIMITS.nodes


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


class TestPlainPaths:
    @given(value=_VALUES, path=st.sampled_from(["", ".a", ".b.a", ".c.b.a"]), want=st.sampled_from([None, "string"]))
    @example(value={"a": "\ud800"}, path=".a", want=None)
    def test_what_is_read_without_the_engine_is_what_the_engine_gives(
        self, value: object, path: str, want: str | None
    ) -> None:
        """In parentheses the same path is read by the engine."""

        def given(source: str) -> str:
            expression = ENV.compile(source, want)
            try:
                return repr(evaluated(expression, {"trigger": value}))
            except ExpressionError as error:
                return str(error).replace(source, "…")

        assert given(f"trigger{path}") == given(f"(trigger{path})")

    @pytest.mark.parametrize("source", ["run.id", "trigger.n", "steps.a.output.priority", "actor.mfa"])
    def test_a_plain_path_does_not_ask_the_engine(self, source: str) -> None:
        bound = ENV.bind(VALUES)
        assert ENV.compile(source).value(bound) is not None
        assert bound.activation is None


def test_a_whole_number_is_a_double_as_long_as_it_is_exact() -> None:
    environment = Environment({"x": "double"})
    expression = environment.compile("x")
    for number in (0, 2**53, -(2**53)):
        assert expression.value(environment.bind({"x": number})) == number
    for number in (2**53 + 1, -(2**53) - 1):
        with pytest.raises(ExpressionError, match="where double is declared"):
            environment.bind({"x": number})
