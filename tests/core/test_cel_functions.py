"""Functions of expressions: what they give, and that nothing which they make can grow without bound."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from core.canonical import Json
from core.cel_ast import Limits
from core.cel_functions import GROWTH_MAX, WRITTEN
from core.errors import ExpressionError
from core.expressions import POLICY_LIMITS, WORKFLOW_LIMITS, ConditionSet, Environment

VARIABLES = {"text": "string", "texts": "list<string>", "named": "map<string,string>", "any": "dyn", "host": "string"}
VALUES = {"text": " Élan, Vital ", "texts": ["a", "B"], "named": {"k": "v"}, "any": {"x": {"y": 2}}, "host": "10.1.2.3"}


def give(source: str, limits: Limits = POLICY_LIMITS) -> Json:
    environment = Environment(VARIABLES, limits)
    return environment.compile(source).value(environment.bind(VALUES))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("text.trim().lowerAscii()", "Élan, vital"),
        ("text.trim().upperAscii()", "ÉLAN, VITAL"),
        ("text.trim().split(', ')", ["Élan", "Vital"]),
        ("text.substring(1, 5)", "Élan"),
        ("text.replace(' ', '')", "Élan,Vital"),
        ("text.trim().charAt(0)", "É"),
        ("text.indexOf('Vital')", 7),
        ("texts.join('+')", "a+B"),
        ("'abc'.reverse()", "cba"),
        ("strings.quote('a\\\"b')", '"a\\"b"'),
        ("texts.all(t, t.lowerAscii() in ['a', 'b'])", True),
        ("texts.map(t, t.upperAscii()).join(',')", "A,B"),
        ("(texts.exists(t, t == text) ? 'a' : 'b') + 'c'", "bc"),
        ("texts.filter(t, t != text).join('-')", "a-B"),
        ("math.greatest(1, 3, 2)", 3),
        ("math.ceil(1.2)", 2.0),
        ("cel.bind(t, text.trim(), t.startsWith('É') && t.endsWith('l'))", True),
        ("named.?k.orValue('none')", "v"),
        ("named.?other.orValue('none')", "none"),
        ("any.?x.?y.orValue(0)", 2),
        ("named.?k.optMap(v, v + '!').orValue('')", "v!"),
        ("any.?z.hasValue()", False),
        ("cidr('10.0.0.0/8').containsIP(host)", True),
        ("cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))", False),
        ("cidr('10.0.0.0/8').containsCIDR('10.2.0.0/16')", True),
        ("cidr('10.2.0.0/16').containsCIDR(cidr('10.0.0.0/8'))", False),
        ("cidr('2001:db8::/32').containsIP('10.1.2.3')", False),
        ("isIP(host) && ip(host).family() == 4", True),
        ("string(cidr('10.9.8.7/8').masked())", "10.0.0.0/8"),
        ("cidr('10.9.8.7/8').prefixLength()", 8),
        ("['10.0.0.0/8', '192.168.0.0/16'].exists(n, cidr(n).containsIP(host))", True),
    ],
)
def test_what_functions_give(source: str, value: Json) -> None:
    assert give(source) == value
    assert type(give(source)) is type(value)


@pytest.mark.parametrize(
    "source",
    [
        "ip('10.0.0.256').family() == 4", "ip('010.0.0.1').family() == 4", "ip('::ffff:10.0.0.1').family() == 4",
        "ip('fe80::1%eth0').family() == 6", "ip('10.1.2.3 ').family() == 4", "cidr('10.0.0.0').prefixLength() == 32",
        "cidr('10.0.0.0/33').prefixLength() == 8", "cidr('10.0.0.0/255.0.0.0').prefixLength() == 8",
        "cidr('10.0.0.0/08').prefixLength() == 8", "cidr('10.0.0.0/8').containsIP(text)",
        "cidr(any).prefixLength() == 1", "any.family() == 4",
    ],
)  # fmt: skip
def test_what_is_no_address_is_an_error_and_never_an_answer(source: str) -> None:
    environment = Environment(VARIABLES)
    with pytest.raises(ExpressionError):
        environment.compile(source, "bool").test(VALUES)
    try:
        conditions = ConditionSet([environment.compile(source, "bool"), environment.compile("true", "bool")])
    except ExpressionError:
        return  # refused when it was checked
    (failed, held) = conditions.run(VALUES)
    assert isinstance(failed, ExpressionError)
    assert held is True


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("text.replace('a', text)", "without bound"),
        ("text.replace('', text)", "without bound"),
        ("text.replace('a', 'aaaaaaaaaa').replace('a', 'aaaaaaaaaa')", "without bound"),
        (f"text.replace('a', '{'a' * (GROWTH_MAX + 1)}')", "without bound"),
        ("texts.join(text)", "without bound"),
        (f"texts.join('{'-' * GROWTH_MAX}')", "without bound"),
        ("texts.map(t, text).join('')", "without bound"),
        ("texts.map(t, text.lowerAscii())", "inside a comprehension"),
        ("texts.all(t, texts.join('') == t)", "inside a comprehension"),
        ("texts.map(t, string(any)).size() > 0", "inside a comprehension"),
        ("texts.map(t, t == 'a' ? text : t).join('')", "without bound"),
        ("texts.map(t, text + t)", "inside a comprehension"),
        ("'%s'.format([text])", "format() which is not supported"),
        (
            "cel.bind(a, text + text, cel.bind(b, a + a + a + a, cel.bind(c, b + b + b + b, c + c + c + c)))",
            "without bound",
        ),
        (
            (
                "cel.bind(a, [text, text, text, text, text], cel.bind(b, [a, a, a, a, a], "
                "cel.bind(c, [b, b, b, b, b], cel.bind(d, [c, c, c, c, c], [d, d, d, d, d]))))"
            ),
            "without bound",
        ),
        ("cel.bind(a, texts.map(t, {'a': text}), [a, a])", "without bound"),
        ("named.?k.optMap(a, a + a).optMap(b, b + b).optMap(c, c).optMap(d, d).orValue('')", "optMap"),
        ("text.split('').map(t, text).join('-') == ''", "without bound"),
        ("{0: 1, 0u: 2}[0] == 1", "unsigned"),
        ("cidr('10.0.0.0/8')", "gives an address"),
        ("[ip(host)]", "gives an address"),
        ("named.?k", "gives an optional"),
        ("isIP(cidr('10.0.0.0/8'))", "isIP"),
        ("text.family() == 4", "family"),
        ("string(texts)", "string"),
        ("base64.encode(b'x')", "base64"),
        ("lists.range(100000)", "lists"),
        ("text.lowercase()", "lower"),
    ],
)
def test_what_is_not_supported_or_could_grow_is_refused_when_it_is_checked(source: str, words: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        Environment(VARIABLES, WORKFLOW_LIMITS).compile(source)
    assert words in str(refused.value).replace("(), which", "() which")


LARGEST = (
    "cel.bind(a, text + text, cel.bind(b, a + a + a + a, b + b + b + b + b + b + b + b))",
    "text.replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')",
    "text.split('').join('----------')",
    "text.split('').map(t, t.upperAscii()).join(', ')",
    "text.split('').filter(t, t.trim() != '').join('')",
)


@pytest.mark.parametrize("source", LARGEST)
def test_what_is_accepted_stays_within_the_bound(source: str) -> None:
    environment = Environment(VARIABLES, WORKFLOW_LIMITS)
    given, before = "a" * 5_000, time.process_time()
    made = environment.compile(source).value(environment.bind({"text": given}))
    assert isinstance(made, str)
    assert len(made) <= GROWTH_MAX * len(given)
    assert time.process_time() - before < 20


@pytest.mark.parametrize("name", WRITTEN)
def test_every_function_is_in_the_documentation(name: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
    assert re.search(rf"`[^`\n]*\b{re.escape(name)}\b[^`\n]*`", text), name


AMBIENT = [
    "now()", "now() > timestamp('2026-01-01T00:00:00Z')", "timestamp(now)", "time.now()", "today()", "random()",
    "math.random()", "rand()", "uuid()", "uuid4()", "env('HOME')", "getenv('HOME')", "os.name", "hostname()",
    "string(ip('localhost'))", "cidr('localhost/8').prefixLength() > 0", "file('/etc/passwd')", "http.get('http://a')",
]  # fmt: skip


@pytest.mark.req("X-21")
@pytest.mark.parametrize("source", AMBIENT)
@pytest.mark.parametrize("limits", [POLICY_LIMITS, WORKFLOW_LIMITS])
def test_there_is_no_clock_no_chance_and_no_world_around_an_expression(source: str, limits: Limits) -> None:
    with pytest.raises(ExpressionError):
        give(source, limits)


@pytest.mark.req("X-21")
def test_the_time_zone_of_the_machine_is_not_that_of_an_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    said = set()
    for zone in ("UTC", "Asia/Tokyo", "America/Lima"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        said.add(
            (give("timestamp('2026-07-01T23:30:00Z').getHours()"), give("string(timestamp('2026-07-01T00:00:00Z'))"))
        )
    monkeypatch.undo()
    time.tzset()
    assert said == {(23, "2026-07-01T00:00:00Z")}
