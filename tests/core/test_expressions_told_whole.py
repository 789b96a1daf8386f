"""Whole results of expressions and templates: each address, each limit, each message, each ingredient."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from core.canonical import DEPTH_MAX
from core.cel_functions import OPT_MAPS_MAX
from core.errors import ExpressionError
from core.escaping import Language
from core.expressions import POLICY_LIMITS, WORKFLOW_LIMITS, ConditionSet, Environment, environment_of, is_variable_name
from core.origins.expressions import distinct, of_template, under
from core.origins.leaves import Leaf, leaves, pointed, same, scalars
from core.origins.matching import ArgumentKind, Matcher
from core.templates import Path, TemplateError, compile_template, compile_value

VARIABLES = {"trigger": "dyn", "run.id": "string", "amount": "int", "tags": "list<string>", "host": "string"}
ENV = Environment(VARIABLES)
WORKFLOW = Environment(VARIABLES, WORKFLOW_LIMITS)
VALUES: dict[str, Any] = {"trigger": {"n": 1, "t": "a^b"}, "run.id": "r1", "amount": 7, "tags": ["x", "<y>"]}


def give(source: str, **values: Any) -> Any:
    expression = WORKFLOW.compile(source)
    return expression.value(WORKFLOW.bind(VALUES | values))


@pytest.mark.parametrize("source", ["trigger.t", "run.id"])
def test_a_plain_path_gives_what_the_engine_gives(source: str) -> None:
    for text in ("", "a", "é", "\U0001f600", "\x00"):
        assert give(source, trigger={"t": text}, **{"run.id": text}) == text
    for text in ("\ud800", "a\udfff"):
        with pytest.raises(ExpressionError):
            give(source, trigger={"t": text}, **{"run.id": text})


@pytest.mark.parametrize("inside", [7, 1.5, True, None, "x", [], {}])
@pytest.mark.parametrize("how", ["list", "map"])
def test_a_value_of_any_kind_stands_as_deep_as_data_may_be(how: str, inside: Any) -> None:
    def nested(depth: int, value: Any) -> Any:
        for _ in range(depth):
            value = [value] if how == "list" else {"a": value}
        return value

    WORKFLOW.bind({"trigger": nested(DEPTH_MAX, inside)})
    with pytest.raises(ExpressionError, match=rf"^trigger: is nested deeper than {DEPTH_MAX} levels where dyn is"):
        WORKFLOW.bind({"trigger": nested(DEPTH_MAX + 1, inside)})


@pytest.mark.parametrize(
    ("said", "value", "own"),
    [
        # Five characters and more are the model's in any place; fewer, if they are words of their own.
        ("alpha", "alpha", True),
        ("alpha beta", "alpha", True),
        ("alpha beta", "alpha beta", True),
        ("alph beta", "alph", True),
        ("alphabeta", "alph", False),
        # A number is the model's in any text, also where the value is one.
        ("it costs 12345 in all", "12345", True),
        ("it costs 12,345 in all", "12345", True),
        ("it costs 12345", 12345, True),
        (12345, "12345", True),
        ("it costs 23456", "12345", False),
    ],
)
def test_what_the_model_said_first_stays_its_own(said: Any, value: Any, own: bool) -> None:
    matcher = Matcher()
    matcher.said({"a": said})
    matcher.shown("crm.person.get", {"found": value})
    told = ["model"] if own else ["field:crm.person.get#/found", "tool:crm.person.get"]
    assert matcher.origins(value) == [told]


# Addresses


FACTS = ("isUnspecified", "isLoopback", "isGlobalUnicast", "isLinkLocalUnicast", "isLinkLocalMulticast")


@pytest.mark.parametrize(
    ("address", "family", "held"),
    [
        ("0.0.0.0", 4, ["isUnspecified"]),
        ("0.0.0.1", 4, ["isGlobalUnicast"]),
        ("127.0.0.1", 4, ["isLoopback"]),
        ("127.255.255.255", 4, ["isLoopback"]),
        ("128.0.0.0", 4, ["isGlobalUnicast"]),
        ("10.1.2.3", 4, ["isGlobalUnicast"]),
        ("8.8.8.8", 4, ["isGlobalUnicast"]),
        ("169.254.0.1", 4, ["isLinkLocalUnicast"]),
        ("169.255.0.1", 4, ["isGlobalUnicast"]),
        ("224.0.0.255", 4, ["isLinkLocalMulticast"]),
        ("224.0.1.0", 4, []),
        ("239.1.1.1", 4, []),
        ("255.255.255.254", 4, ["isGlobalUnicast"]),
        ("255.255.255.255", 4, []),
        ("::", 6, ["isUnspecified"]),
        ("::1", 6, ["isLoopback"]),
        ("::2", 6, ["isGlobalUnicast"]),
        ("fe80::1", 6, ["isLinkLocalUnicast"]),
        ("fec0::1", 6, ["isGlobalUnicast"]),
        ("fd00::1", 6, ["isGlobalUnicast"]),
        ("ff02::1", 6, ["isLinkLocalMulticast"]),
        ("ff12::1", 6, ["isLinkLocalMulticast"]),
        ("ff01::1", 6, []),
        ("ff05::1", 6, []),
    ],
)
def test_an_address_is_of_these_kinds(address: str, family: int, held: list[str]) -> None:
    asked = ", ".join(f"ip(host).{fact}()" for fact in FACTS)
    told = give(f"[{asked}, isIP(host), ip.isCanonical(host)]", host=address)
    assert [fact for fact, is_so in zip(FACTS, told, strict=False) if is_so] == held
    assert told[len(FACTS) :] == [True, True]
    assert give("[ip(host).family(), int(isCIDR(host) ? 1 : 0)]", host=address) == [family, 0]
    assert give("string(ip(host))", host=address) == address


@pytest.mark.parametrize(
    ("network", "first", "masked", "length", "inside", "outside"),
    [
        ("10.9.8.7/8", "10.9.8.7", "10.0.0.0/8", 8, ["10.0.0.0", "10.255.255.255"], ["9.255.255.255", "11.0.0.0"]),
        ("10.9.8.7/32", "10.9.8.7", "10.9.8.7/32", 32, ["10.9.8.7"], ["10.9.8.6", "10.9.8.8"]),
        ("10.9.8.7/0", "10.9.8.7", "0.0.0.0/0", 0, ["0.0.0.0", "255.255.255.255"], ["::", "::1"]),
        ("10.0.0.128/25", "10.0.0.128", "10.0.0.128/25", 25, ["10.0.0.128", "10.0.0.255"], ["10.0.0.127", "10.0.1.0"]),
        ("2001:db8::1/32", "2001:db8::1", "2001:db8::/32", 32, ["2001:db8:ffff::"], ["2001:db9::", "32.1.13.184"]),
    ],
)
def test_a_network_contains_what_is_in_it(
    network: str, first: str, masked: str, length: int, inside: list[str], outside: list[str]
) -> None:
    source = f"cidr('{network}')"
    told = [give(f"string({source})"), give(f"string({source}.ip())"), give(f"string({source}.masked())")]
    assert [*told, give(f"{source}.prefixLength()")] == [network, first, masked, length]
    for address in inside + outside:
        asked = f"[{source}.containsIP('{address}'), {source}.containsIP(ip('{address}'))]"
        assert give(asked) == [address in inside] * 2, address
    same_family = [one for one in inside + outside if (":" in one) == (":" in network)]
    bits = 128 if ":" in network else 32
    for address in same_family:
        one = f"{source}.containsCIDR('{address}/{bits}')"
        assert give(one) is (address in inside)
    assert give(f"{source}.containsCIDR({source}) && {source}.containsCIDR('{network}')") is True
    if length:
        wider = f"cidr('{masked.partition('/')[0]}/{length - 1}')"
        assert give(f"[{wider}.containsCIDR({source}), {source}.containsCIDR({wider})]") == [True, False]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("10.0.0.1/8", (False, True)),
        ("10.0.0.1", (True, False)),
        ("10.0.0.1/", (False, False)),
        ("10.0.0.1/33", (False, False)),
        ("10.0.0.1/08", (False, False)),
        ("10.0.0.1/0", (False, True)),
        ("10.0.0.1/+8", (False, False)),
        ("10.0.0.1/255.0.0.0", (False, False)),
        ("10.0.0.1/\u0668", (False, False)),
        ("::1/128", (False, True)),
        ("::1/129", (False, False)),
        ("::ffff:10.0.0.1", (False, False)),
        ("::ffff:10.0.0.1/128", (False, False)),
        ("fe80::1%eth0", (False, False)),
        ("fe80::1%eth0/64", (False, False)),
        ("", (False, False)),
        (" 10.0.0.1", (False, False)),
    ],
)
def test_a_text_is_an_address_or_a_network(text: str, told: tuple[bool, bool]) -> None:
    assert give("[isIP(host), isCIDR(host)]", host=text) == [*told]
    assert give("isIP(host) && ip.isCanonical(host)", host=text) is told[0]


def test_an_address_that_is_written_otherwise_is_not_canonical() -> None:
    for text in ("2001:DB8::1", "2001:db8:0::1", "::0"):
        assert give("[isIP(host), ip.isCanonical(host)]", host=text) == [True, False]


# Limits and messages


def refused(source: str, want: str | None = None, environment: Environment = ENV) -> str:
    with pytest.raises(ExpressionError) as caught:
        environment.compile(source, want)
    return str(caught.value)


def test_an_expression_has_so_many_characters_parts_and_loops() -> None:
    for environment, limits in ((ENV, POLICY_LIMITS), (WORKFLOW, WORKFLOW_LIMITS)):
        longest = "'" + "x" * (limits.characters - 2) + "'"
        assert environment.compile(longest).source == longest
        words = f"is {limits.characters + 1} characters long; at most {limits.characters} are accepted"
        assert refused(f"{longest} ", environment=environment) == words
        most = "[" + ",".join("1" * (limits.nodes - 1)) + "]"
        assert environment.compile(most).source == most
        words = f"has {limits.nodes + 1} parts; at most {limits.nodes} are accepted. Split it."
        assert refused(most.replace("]", ",1]"), environment=environment) == words
    assert [(one.characters, one.nodes, one.loops) for one in (POLICY_LIMITS, WORKFLOW_LIMITS)] == [
        (2000, 300, 1),
        (4000, 500, 2),
    ]
    twice = "tags.all(a, tags.all(b, a == b))"
    words = "has 2 comprehensions (all, exists, map, filter) in or over one another. At most 1 are accepted."
    assert refused(twice) == words
    assert give(twice) is False
    assert refused(f"tags.all(c, {twice})", environment=WORKFLOW).startswith("has 3 comprehensions")
    maps = "optional.of(1)" + ".optMap(x, x)" * OPT_MAPS_MAX + ".orValue(0)"
    assert ENV.compile(maps).source == maps
    more = maps.replace(".orValue", ".optFlatMap(x, optional.of(x)).orValue")
    assert refused(more) == "has more than 3 of optMap and optFlatMap. Split it."


@pytest.mark.parametrize("broken", ["(", "(a{1,1000}){1,1000}b"])
@pytest.mark.parametrize(
    "source",
    ["host.matches({a}) || host.matches({b})", "tags.all(t, t.matches({a})) && tags.exists(t, t.matches({b}))"],
)
def test_each_pattern_of_an_expression_is_checked_when_it_is_loaded(source: str, broken: str) -> None:
    good = "'^a+$'"
    assert ENV.compile(source.format(a=good, b="'b'")).references
    for given in ({"a": good, "b": f"'{broken}'"}, {"a": f"'{broken}'", "b": good}):
        assert refused(source.format(**given)).startswith(f"matches({broken!r}): ")


@pytest.mark.parametrize(
    ("source", "value"),
    [("trigger.t.u", {"t": "x"}), ("trigger.t.u", {"t": 1}), ("trigger.t.u.v", {"t": True}), ("trigger.t", {"u": "x"})],
)
def test_a_path_beyond_a_value_gives_no_value(source: str, value: Any) -> None:
    """Neither that of what is above it: a policy would judge another value than it names."""
    for want in (None, "string", "int", "bool", "dyn"):
        expression = WORKFLOW.compile(source, want)
        with pytest.raises(ExpressionError):
            expression.value(WORKFLOW.bind(VALUES | {"trigger": value}))


def test_elements_that_only_a_run_knows_are_checked_by_their_values() -> None:
    for source, want, good, bad in (
        ("[trigger.x]", "list<string>", "a", 1),
        ("[[trigger.x]]", "list<list<string>>", "a", 1),
        ("{'k': trigger.x}", "map<string,string>", "a", None),
        ("[]", "list<string>", None, None),
        ("trigger.x", "list<string>", ["a"], ["a", 1]),
    ):
        expression = ENV.compile(source, want)
        made = expression.value(ENV.bind({"trigger": {"x": good}}))
        assert str(good) in str(made) or made == []
        if source != "[]":
            with pytest.raises(ExpressionError, match=f", not {want}$"):
                expression.value(ENV.bind({"trigger": {"x": bad}}))
    for source in ("tags", "['a', trigger.x]"):
        assert ENV.compile(source, "list").want == "list"


KINDS = "bool, double, dyn, int, list, list<list<string>>, list<string>, map, map<string,string>, string, timestamp"


@pytest.mark.parametrize(
    ("source", "want", "told"),
    [
        ("1", "text", f"cannot demand the type 'text'. One of {KINDS}."),
        ("1", "string", "is of type int, not string"),
        ("'a'", "int", "is of type string, not int"),
        ("[1]", "map", "is of type list<int>, not map"),
        ("tags", "list<list<string>>", "is of type list<string>, not list<list<string>>"),
        ("{'a': 1}", "list", "is of type map<string,int>, not list"),
        ("tags.exists(run, run == 'a')", "bool", "the loop variable 'run' hides a declared one. Rename it."),
        (
            "tags.exists(x, x + 'a' == 'b')",
            "bool",
            "uses '+' inside a comprehension, which can grow without bound. Add outside of it.",
        ),
        (
            "has(run.id)",
            "bool",
            (
                "has() on a declared variable would mean the variable's value. "
                "For an action's field write 'name' in action.present."
            ),
        ),
        ("b'a'", None, "gives bytes, which no document can hold. Compare them inside of the expression, or use texts."),
        ("type(1)", None, "gives a type, which no document can hold. Compare it inside of the expression."),
        ("ip('::')", None, "gives an address or a network, which no document can hold. Write string(…) around it."),
        ("trigger.?a", None, "gives an optional, which no document can hold. Write .orValue(…) behind it."),
    ],
)
def test_what_is_refused_is_told_with_its_remedy(source: str, want: str | None, told: str) -> None:
    assert refused(source, want) == told


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("amount +", "mismatched input '<EOF>' at column 9"),
        ("{1: }", "mismatched input '}' at column 5"),
        ("amount.", "no viable alternative at input '.' at column 8"),
        ("\n (amount", "missing ')' at '<EOF>' at line 2, column 9"),
        ("amount\n+ ", "mismatched input '<EOF>' at line 2, column 3"),
    ],
)
def test_what_is_no_expression_is_told_in_few_words(source: str, place: str) -> None:
    """Without the engine's list of everything that could have stood there."""
    assert refused(source, None) == f"Syntax error: {place} of `{source}`."


def test_the_first_part_of_a_name_is_declared_and_stays_so() -> None:
    variables = {"steps.a.output": "dyn", "l": "list<string>"}
    own = Environment(variables)
    for name in ("steps", "l"):
        with pytest.raises(ExpressionError, match=f"the loop variable '{name}' hides a declared one"):
            own.compile(f"l.exists({name}, true)")
    assert own.compile("l.exists(a, a == 'x') || l.exists(output, true)").references == {"l"}
    assert Environment({"a": "dyn"}).bind({"a": Language.HTML}).values == {"a": "html"}
    variables["more"] = "int"
    assert own.variables == {"steps.a.output": "dyn", "l": "list<string>"}
    assert own.bind({"more": 1, "l": ["x"]}).values == {"l": ["x"]}


def test_a_value_that_does_not_fit_is_told_with_its_place() -> None:
    told = {}
    cases: list[tuple[str, Any]] = [("amount", 2**63), ("amount", -(2**63) - 1), ("amount", "x"), ("tags", ["x", 1])]
    cases += [("trigger", {1: 2}), ("trigger", {"a": b"x"}), ("run.id", None), ("trigger", [2**63])]
    for value in ({"a": 1, 2: 3}, [{"a": {"b": 1, None: 2}}]):
        with pytest.raises(ExpressionError, match=r"^trigger: has a key that is not a string where dyn is declared"):
            ENV.bind({"trigger": value})
    for number in (float("inf"), float("-inf"), float("nan")):
        for value in (number, [number], {"a": number}, [1.5, {"a": [number]}]):
            with pytest.raises(ExpressionError, match=r"^trigger: "):
                ENV.bind({"trigger": value})
    for name, value in cases:
        with pytest.raises(ExpressionError) as caught:
            ENV.bind({name: value})
        told[f"{name} {value!r}"[:24]] = str(caught.value)
    assert [*told.values()] == [
        "amount: is an integer over 64 bit where int is declared",
        "amount: is an integer over 64 bit where int is declared",
        "amount: is a string where int is declared",
        "tags: is a list where list<string> is declared",
        "trigger: has a key that is not a string where dyn is declared",
        "trigger: holds bytes where dyn is declared",
        "run.id: is null where string is declared",
        "trigger: is an integer over 64 bit where dyn is declared",
    ]
    for edge in (2**63 - 1, -(2**63)):
        assert ENV.compile("amount").value(ENV.bind({"amount": edge})) == edge
    with pytest.raises(ExpressionError) as unknown:
        Environment({"a": "text"})
    kinds = "bool, double, dyn, int, list<list<string>>, list<string>, map<string,string>, string, timestamp"
    assert str(unknown.value) == f"a: has the unknown type 'text'. One of {kinds}."
    with pytest.raises(ExpressionError) as unnamed:
        Environment({"a-b": "int"})
    assert str(unnamed.value) == "a-b: is not a name that an expression can use"
    names = {name: is_variable_name(name) for name in ("a", "_a.b1", "a.true", "null", "a.", "1a", "a-b", "in", "ina")}
    assert [name for name, good in names.items() if good] == ["a", "_a.b1", "ina"]


def test_a_result_that_does_not_fit_is_told_with_its_expression() -> None:
    bound = ENV.bind(VALUES | {"trigger": {"n": 1, "t": "a^b", "z": None}})
    for source, want, told in (
        ("trigger.n", "string", "`trigger.n` gives an int, not string"),
        ("trigger.t", "bool", "`trigger.t` gives a string, not bool"),
        ("trigger.z", "int", "`trigger.z` gives null, not int"),
        ("[trigger.z][0]", "string", "`[trigger.z][0]` gives null, not string"),
        ("trigger.t == '' ? 1 : trigger.n", "string", "`trigger.t == '' ? 1 : trigger.n` gives an int, not string"),
        ("1.0 / 0.0", None, "`1.0 / 0.0` gives a number that JSON cannot hold"),
    ):
        with pytest.raises(ExpressionError) as caught:
            ENV.compile(source, want).value(bound)
        assert str(caught.value) == told
    with pytest.raises(ExpressionError) as caught:
        ENV.compile("trigger.n").test(VALUES)
    assert str(caught.value) == "`trigger.n` gives an int, not bool"
    for other, kind in ((None, "null"), (0, "an int"), (1, "an int"), ("", "a string"), ([], "a list"), ({}, "a map")):
        with pytest.raises(ExpressionError, match=f"^`trigger` gives {kind}, not bool$"):
            ENV.compile("trigger").test({"trigger": other})
    with pytest.raises(ExpressionError) as caught:
        ENV.compile("amount > 1", "bool").test({})
    assert str(caught.value) == "'amount' has no value in `amount > 1`"
    with pytest.raises(ExpressionError) as caught:
        ENV.compile("amount").value(WORKFLOW.bind(VALUES))
    assert str(caught.value) == "`amount` was given values of another environment"


def test_an_expression_says_what_it_reads_and_calls() -> None:
    assert ENV.compile(" amount\n").source == " amount\n", "places in it are those of the document"
    told = {}
    for source in (
        "trigger.a.b",
        "run.id",
        "tags.map(t, t.size()).size() + amount",
        "1",
        "trigger['a']",
        "run.id + ''",
    ):
        one = ENV.compile(source)
        told[source] = (one.reads, sorted(one.references), sorted(one.calls))
    assert told == {
        "trigger.a.b": (("trigger.a.b",), ["trigger"], []),
        "run.id": (("run.id",), ["run.id"], []),
        "tags.map(t, t.size()).size() + amount": (("amount", "tags"), ["amount", "tags"], ["map", "size"]),
        "1": ((), [], []),
        "trigger['a']": (("trigger",), ["trigger"], []),
        "run.id + ''": (("run.id",), ["run.id"], []),
    }


def test_tests_that_run_together_are_told_apart() -> None:
    sources = ("amount > 6", "amount > 7", "tags.size() > 2", "trigger.n", "trigger.zzz == 1", "true")
    together = ConditionSet([ENV.compile(source) for source in sources])
    assert together.references == {"amount", "tags", "trigger"}
    told = [one if isinstance(one, bool) else str(one) for one in together.run(VALUES)]
    assert told == [
        True,
        False,
        False,
        "`trigger.n` gives an int, not bool",
        'Key not found in map : "zzz" in `trigger.zzz == 1`',
        True,
    ]
    assert ConditionSet([]).run({}) == []


# Templates


class Spoken:
    """Texts under ``q`` are queries, those under ``deep.h`` are HTML."""

    def at(self, path: Path) -> Language | None:
        return Language.ENCODED_QUERY if path[:1] == ("q",) else Language.HTML if path[:2] == ("deep", "h") else None

    def within(self, path: Path) -> bool:
        return not path or path[0] in ("q", "deep")


def test_values_are_escaped_where_a_language_is_spoken_and_nowhere_else() -> None:
    value: Any = {
        "q": "a=${{ trigger.t }}^b=${{ raw(trigger.t) }}^c=${{ amount }}",
        "deep": {"h": ["${{ tags }}", "${{ raw(tags) }}"], "p": "${{ trigger.t }}"},
        "plain": "${{ trigger.t }} <${{ amount }}>",
        "fixed": ["x", 1, None, {"n": 1.5}],
    }
    template = compile_value(WORKFLOW, value, "with", Spoken())
    assert template.render(VALUES) == {
        "q": "a=a^^b^b=a^b^c=7",
        "deep": {"h": [["x", "&lt;y&gt;"], ["x", "<y>"]], "p": "a^b"},
        "plain": "a^b <7>",
        "fixed": ["x", 1, None, {"n": 1.5}],
    }
    assert template.references == {"trigger", "amount", "tags"}
    assert template.functions == {"raw"}
    assert list(template.authored()) == ["a=", "^b=", "^c=", " <", ">", "x"]
    assert template.literals() == {"fixed": ["x", 1, None, {"n": 1.5}]}


def test_each_text_has_its_ingredients() -> None:
    value: Any = {
        "a": "${{ trigger.n }}",
        "b": "see ${{ trigger.n }} and ${{ amount + 1 }}${{ trigger.n }}",
        "c": [" ${{ run.id }} ", "x", 7, None, {}, []],
        "d": "${{ 'x' }}",
        "e": "${{ run.id }} ${{ host }}",
    }
    assert list(compile_value(WORKFLOW, value).ingredients()) == [
        (("a",), ("trigger.n",)),
        (("b",), (None, "trigger.n", "amount")),
        (("c", 0), ("run.id",)),
        (("c", 1), (None,)),
        (("c", 2), (None,)),
        (("c", 3), (None,)),
        (("c", 4), (None,)),
        (("c", 5), (None,)),
        (("d",), (None,)),
        (("e",), ("run.id", "host")),
    ]
    assert list(compile_value(WORKFLOW, value).authored()) == ["see ", " and ", "x"]
    assert compile_template(WORKFLOW, "${{ size(tags) }}").functions == {"size"}
    raw = "${{ raw(run.id) }} ${{ raw(host) }} ${{ size(tags) }}"
    assert compile_value(WORKFLOW, {"q": [raw]}, languages=Spoken()).functions == {"raw", "size"}
    assert [*compile_value(WORKFLOW, [" ", "", "a ${{ host }} ${{ host }} b", 7]).authored()] == [" ", "", "a ", " b"]
    parts = "${{ size([1]) }} ${{ 'a'.trim() }} ${{ run.id.lowerAscii() }}"
    assert compile_template(WORKFLOW, parts).functions == {"size", "trim", "lowerAscii"}
    assert compile_value(WORKFLOW, {"a": "${{ size([1]) }}"}).functions == {"size"}
    sure = "${{ true || amount > 1 }}"  # it gives a value without the variable that it reads
    failing = compile_value(WORKFLOW, {"a": "x", "b": "${{ amount }}", "c": "${{ 1 + 1 }}", "d": sure})
    assert failing.literals() == {"a": "x", "c": 2}
    assert compile_value(WORKFLOW, ["x"]).literals() == {}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": ["x", "${{ amont }}"]}, "with.a[1]: undeclared reference to 'amont' at column 1 of `amont`."),
        ({"a": {"${{ b }}": 1}}, "with.a: has an expression in a key. Keys are fixed; only values can be computed."),
        ({"a": {"x ${{ b }}": 1}}, "with.a: has an expression in a key. Keys are fixed; only values can be computed."),
        ({"a": "${{ b"}, "with.a: the expression at column 1 is not closed. End it with }}."),
    ],
)
def test_a_template_that_does_not_compile_is_told_by_its_path(value: Any, told: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_value(WORKFLOW, value, "with")
    assert str(caught.value).startswith(told)


def test_each_item_of_a_value_is_escaped_as_its_own_place_says() -> None:
    class ByPlace:
        def at(self, path: Path) -> Language | None:
            places = {("a", 1): Language.HTML, ("a", 2, "x"): Language.URL_PART, ("a", 2, "y", 0): Language.MRKDWN}
            return places.get(path)

        def within(self, path: Path) -> bool:
            return True

    given = {"trigger": ["<a&'>", "<a&'>", {"x": "<a&'>", "y": ["<a&'>", "<a&'>", 5, True, None]}]}
    template = compile_value(WORKFLOW, {"a": "${{ trigger }}"}, languages=ByPlace())
    assert template.render(given) == {
        "a": ["<a&'>", "&lt;a&amp;&#x27;&gt;", {"x": "%3Ca%26%27%3E", "y": ["&lt;a&amp;'&gt;", "<a&'>", 5, True, None]}]
    }


def test_numbers_stand_in_a_text_as_json_writes_them() -> None:
    text = "${{ 1 }} ${{ 1.0 }} ${{ -0.5 }} ${{ true }} ${{ 100000000000000000000.0 }} ${{ trigger.n }}"
    assert compile_template(WORKFLOW, text).render(VALUES | {"trigger": {"n": 2.0}}) == "1 1.0 -0.5 true 1e+20 2.0"


def test_a_value_of_any_form_is_a_template() -> None:
    """A list or a text by itself is escaped, and placed, as one inside of a map is."""

    class Everywhere:
        def at(self, path: Path) -> Language | None:
            return Language.HTML

        def within(self, path: Path) -> bool:
            return True

    listed: Any = ["${{ tags }}", {"a": "<i>${{ tags[1] }}</i>"}]
    assert compile_value(WORKFLOW, listed, languages=Everywhere()).render(VALUES) == [
        ["x", "&lt;y&gt;"],
        {"a": "<i>&lt;y&gt;</i>"},
    ]
    assert compile_value(WORKFLOW, "${{ tags[1] }}", languages=Everywhere()).render(VALUES) == "&lt;y&gt;"
    cases: list[tuple[Any, str]] = [("${{ trigger.z.y }}", "result"), (["x", "${{ trigger.z.y }}"], "result[1]")]
    for value, place in cases:
        with pytest.raises(TemplateError, match=rf"^{place.replace('[', '.').replace(']', '.')}: ") as caught:
            compile_value(WORKFLOW, value, "result").render(VALUES)
        assert caught.value.where == place
    inner = TemplateError(ExpressionError("is bad", where="run.id", remedy="Mend it."), ("a", 0), "with")
    assert str(inner) == "with.a[0]: run.id: is bad. Mend it."


@pytest.mark.parametrize("leaf", ["x", "${{ run.id }}", 1])
def test_a_template_is_nested_as_deep_as_data_may_be(leaf: Any) -> None:
    value, made = leaf, 1 if leaf == 1 else VALUES["run.id"] if "$" in leaf else leaf
    for _ in range(DEPTH_MAX):
        value, made = [value], [made]
    assert compile_value(WORKFLOW, value).render(VALUES) == made
    with pytest.raises(TemplateError, match=f"is nested deeper than {DEPTH_MAX} levels"):
        compile_value(WORKFLOW, [value])


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("x ${{ tags }}", "`tags` gives a list"),
        ("x ${{ trigger }}", "`trigger` gives a map"),
        ("x ${{ trigger.z }}", "`trigger.z` gives null"),
    ],
)
def test_what_has_no_place_in_a_text_is_told(value: str, told: str) -> None:
    remedy = "Use the expression as the whole value, or string(…) of a part of it."
    with pytest.raises(TemplateError) as caught:
        compile_value(WORKFLOW, {"a": value}, "with").render(VALUES | {"trigger": {"z": None}})
    assert str(caught.value) == f"with.a: {told}, which has no place inside a text. {remedy}"
    assert caught.value.path == ("a",)
    with pytest.raises(ExpressionError) as unwanted:
        compile_template(WORKFLOW, "yes", "int")
    assert str(unwanted.value) == "'yes' is not one ${{ … }} expression. It must give a int."
    assert compile_template(WORKFLOW, "n=${{ amount }}", "string").render(VALUES) == "n=7"


# Origins


def test_origins_of_expressions_are_distinct_and_never_dropped() -> None:
    template = compile_value(WORKFLOW, {"a": {"b": "x ${{ amount }}", "c": "${{ run.id }}"}, "d": "${{ host }}"})
    known = {"amount": [["b", "a"], ["a", "b"], []], "run.id": [["a", "b"]]}
    found = of_template(template, lambda path: known.get(path, []))
    assert found == [
        (("a", "b"), [["workflow"], ["a", "b"], ["unknown"]]),
        (("a", "c"), [["a", "b"]]),
        (("d",), [["unknown"]]),
    ]
    assert under(found, ("a",)) == [["workflow"], ["a", "b"], ["unknown"]]
    assert under(found, ("a", "c", "deeper")) == [["a", "b"]]
    assert under(found, ()) == [["workflow"], ["a", "b"], ["unknown"]]
    assert under(found, ("z",)) == []
    assert distinct([["b", "a", "b"], ["a", "b"], ["c"]]) == [["a", "b"], ["c"]]


def test_a_source_is_taken_apart_into_leaves() -> None:
    value: Any = {"a/b": [1, {"c~": "x"}], "n": None, "t": True, "e": {}, "l": []}
    assert list(leaves(value)) == [
        Leaf("a/b", "/a~1b", "/a~1b", key=True),
        Leaf(1, "/a~1b/0", "/a~1b"),
        Leaf("c~", "/a~1b/1/c~0", "/a~1b/c~0", key=True),
        Leaf("x", "/a~1b/1/c~0", "/a~1b/c~0"),
        Leaf("n", "/n", "/n", key=True),
        Leaf("t", "/t", "/t", key=True),
        Leaf(True, "/t", "/t"),
        Leaf("e", "/e", "/e", key=True),
        Leaf("l", "/l", "/l", key=True),
    ]
    assert list(scalars(value)) == [1, "x", None, True]
    assert list(scalars(value, ("n", "t"))) == ["a/b", 1, "c~", "x", None, True, "e", "l"]
    assert [pointed(value, at) for at in ("", "/a~1b", "/t", "/z", "/t/u")] == [value, value["a/b"], True, None, None]
    nested: Any = {"a~1b": {"~0": {"c": 1}}, "a/b": 2, "l": [3]}
    places = {"/a~01b/~00/c": 1, "/a~01b/~00": {"c": 1}, "/a~1b": 2, "/a~01b/c": None, "/l/0": None}
    assert {at: pointed(nested, at) for at in places} == places
    assert [Leaf(number, "", "").text for number in (1.0, 100.0, 0.1, -0.5, 1e-7, 7, False)] == [
        *("1", "100", "0.1", "-0.5", "0.0000001", "7", "false"),
    ]
    told = [
        (leaf.text, leaf.number, leaf.numeral) for leaf in (Leaf(v, "", "") for v in (1.50, 1e21, True, " 7 ", "x"))
    ]
    assert told == [
        ("1.5", Decimal("1.5"), "1.5"),
        ("1000000000000000000000", Decimal(10**21), "1000000000000000000000"),
        ("true", None, None),
        (" 7 ", Decimal(7), "7"),
        ("x", None, None),
    ]


@pytest.mark.parametrize(
    ("leaf", "wanted", "held"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, "1", True),
        (1.5, "1.5", True),
        (1.5, "1.50", False),
        (1, "01", False),
        ("1", 1, True),
        ("1.0", 1, True),
        ("x", 1, False),
        (True, True, False),
        (True, "true", False),
        (1, True, False),
        ("Ana  Lee", "ana lee", True),
        ("ana", "ana lee", False),
        ("", "", False),
        (" ", "  ", False),
        ("x", True, False),
        ("true", True, False),
        (1, " 1 ", True),
        (1000, "1,000", True),
        (100.0, "100", True),
        (100, "1e2", False),
    ],
)
def test_a_whole_leaf_is_the_wanted_value_or_not(leaf: Any, wanted: Any, held: bool) -> None:
    assert same(Leaf(leaf, "", ""), Leaf(wanted, "", "")) is held


def test_a_conversation_is_traced_whole() -> None:
    matcher = Matcher()
    matcher.given("requester", "Close INC7 for ana@x.example, 3 days")
    assert matcher.said({"number": "INC7"})
    assert not matcher.said({"number": "INC7", "more": "invented"})
    assert not matcher.said({}), "nothing is in nobody's words"
    matcher.shown("now.get", {"rows": [{"owner": "Raj Quist", "n": 41}]}, records="/rows", own=True)
    matcher.shown("now.list", {"rows": [{"owner": "Kim Chen"}]}, records="/rows")
    matcher.given("person", {"answer": "Kim Chen", "mine": "Zoe Ray"})
    values: list[Any] = [
        "INC7",
        "ana@x.example",
        3,
        "3",
        "Raj Quist",
        41,
        "quist",
        "Kim Chen",
        "Zoe Ray",
        "nobody at all",
    ]
    found: Any = {value: matcher.origins(value) for value in values}
    row = "field:now.get#/rows"
    assert found == {
        "INC7": [["requester"]],
        "ana@x.example": [["requester"]],
        3: [["requester"]],
        "3": [["requester"]],
        "Raj Quist": [[f"{row}/owner", "lookup:now.get#/rows/owner", "tool:now.get"]],
        41: [[f"{row}/n", "lookup:now.get#/rows/n", "tool:now.get"]],
        "quist": [["tool:now.get"]],
        "Kim Chen": [["field:now.list#/rows/owner", "tool:now.list"]],
        "Zoe Ray": [["person"]],
        "nobody at all": [["model"]],
    }
    body = "Tell Raj Quist and ana@x.example, not bob@x.example."
    assert matcher.origins(body, ArgumentKind.TEXT) == [["model", "text"], ["requester"], ["model"]]
    assert matcher.origins(body, ArgumentKind.FLAG) == [["model"]]
    assert matcher.carries([body, {"x": "Kim Chen"}]) == ["now.get#/rows/owner", "now.list#/rows/owner"]
    matcher.withheld()
    assert matcher.origins("nobody at all") == [["unknown"]]
    assert matcher.carries(7) == []


def test_what_is_kept_is_that_of_the_same_variables_types_limits_and_demand() -> None:
    kept = environment_of({"a": "int", "b": "string"})
    assert environment_of({"a": "int", "b": "string"}) is kept
    others = [
        environment_of({"a": "string", "b": "string"}),
        environment_of({"a": "int"}),
        environment_of({"a": "int", "b": "string"}, WORKFLOW_LIMITS),
    ]
    assert [one.variables for one in others] == [{"a": "string", "b": "string"}, {"a": "int"}, kept.variables]
    assert [one.limits for one in (kept, *others)] == [POLICY_LIMITS, POLICY_LIMITS, POLICY_LIMITS, WORKFLOW_LIMITS]
    found = kept.compile("a", "int")
    assert kept.compile("a", "int") is found
    assert (kept.compile("a").want, kept.compile("b").source) == (None, "b")
    assert others[0].compile("a", "string").environment is others[0]
    for _ in range(2):
        with pytest.raises(ExpressionError, match="is of type int, not string"):
            kept.compile("a", "string")
