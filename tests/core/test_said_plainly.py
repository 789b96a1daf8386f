"""Words of core about values: the limits of what is kept, places of errors, identifiers, pauses, and what is logged."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from core import clock, ids
from core.canonical import DEPTH_MAX, TEXT_CHARACTERS_MAX, check_text, clean, unfit
from core.cel_functions import written
from core.cel_values import Unfit, compile_error, fits, kind_of, moment, quote, runtime_text, to_json
from core.documents import VALUES_MAX, load_document
from core.durations import format_duration, parse_duration
from core.errors import DefinitionError, InputError, TransportError, nearest, path_text
from core.escaping import Language, check_meaning
from core.outage import report
from core.templates import TEXT_CHARACTERS_MAX as RENDERED_MAX
from core.templates import _check_length


def deep(levels: int, of: type[Any] = list) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if of is list else {"a": value}
    return value


@pytest.mark.parametrize("of", [list, dict])
def test_a_value_is_kept_to_its_depth_and_no_deeper(of: type[Any]) -> None:
    assert unfit(deep(DEPTH_MAX, of), "It") is None
    assert unfit(deep(DEPTH_MAX + 1, of), "It") == (
        f"It cannot be recorded: it is nested deeper than {DEPTH_MAX} levels."
    )
    assert to_json(deep(DEPTH_MAX, of), 0) == deep(DEPTH_MAX, of)
    with pytest.raises(Unfit, match=f"deeper than {DEPTH_MAX} levels"):
        to_json(deep(DEPTH_MAX + 1, of), 0)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * 8, None),
        ("x" * 9, "It is 11 bytes long; at most 10 are kept."),
        ({"a": ["\0"]}, "It is 16 bytes long; at most 10 are kept."),
        ("\0", "It cannot be recorded: it holds the character U+0000."),
        (["\0"], "It cannot be recorded: it holds the character U+0000."),
        ("\\u0000", None),
    ],
)
def test_what_cannot_be_kept_is_said(value: Any, why: str | None) -> None:
    assert unfit(value, "It", bytes_max=10) == why
    for held in ({"a\0": 1}, {"a": "\0", "b": 1}, ("x", "\0"), {"a": ["b", ("\0",)]}, [1.5, {"b": {"\0": 1}}]):
        assert unfit(held, "It") == "It cannot be recorded: it holds the character U+0000."


def test_words_are_kept_to_their_length() -> None:
    longest = "x" * TEXT_CHARACTERS_MAX
    assert check_text(longest, "reason") == longest
    with pytest.raises(InputError, match=r"^reason: is 4001 characters long; at most 4000 are kept$"):
        check_text(f"{longest}x", "reason")
    for wrong in ("a\0", "a\ud800"):
        with pytest.raises(InputError, match=r"^reason: holds a character that cannot be stored"):
            check_text(wrong, "reason")
    assert (clean("abc", 3), clean("abcd", 3), clean("a\0\ud800"), clean(5)) == ("abc", "ab\u2026", "a\ufffd?", "5")


@pytest.mark.parametrize(
    ("place", "said"),
    [("1:4", " at column 4"), ("1:1", " at column 1"), ("1:0", ""), ("-1:-1", ""), ("2:3", " at line 2, column 3")],
)
def test_an_error_of_an_expression_names_its_place(place: str, said: str) -> None:
    error = compile_error(
        "amont > 1", f"X: ERROR: <input>:{place}: undeclared reference to 'amont' (in container '')\n", ["amount"]
    )
    assert (error.message, error.remedy) == (
        f"undeclared reference to 'amont'{said} of `amont > 1`.",
        "Did you mean 'amount'?",
    )
    other = compile_error("x", f"ERROR: <input>:{place}: no matching overload.", ["amount"])
    assert (other.message, other.remedy) == (f"no matching overload{said} of `x`.", "")


def test_an_error_without_a_place_is_told_as_it_is() -> None:
    assert compile_error("x", "INVALID_ARGUMENT: bad [INVALID_ARGUMENT]\nmore", []).message == "bad in `x`"
    assert runtime_text('NOT_FOUND: No value with name "a" found in Activation') == "'a' has no value"
    long = compile_error("s.a.b", "ERROR: <input>:1:1: undeclared reference to 's'", ["s.a.c"])
    assert long.remedy == "Did you mean 's.a.c'?"


@pytest.mark.parametrize(("length", "shown"), [(159, 159), (160, 160), (161, 160), (400, 160)])
def test_long_expressions_are_cut(length: int, shown: int) -> None:
    source = "ab" * 200
    assert quote(source[:length]) == f"`{source[:length] if length <= 160 else source[:157] + '...'}`"
    assert len(quote(source[:length])) == shown + 2


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03:00:00Z"),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=5))), "2026-01-01T22:00:00Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=timezone(-timedelta(hours=1))), "2026-01-02T04:04:05.000600Z"),
        (timedelta(seconds=90), "PT90S"),
        (timedelta(0), "PT0S"),
        (timedelta(days=2, seconds=3), "PT172803S"),
        (timedelta(seconds=-100), "PT-100S"),
        (timedelta(microseconds=1), "PT0.000001S"),
        (timedelta(milliseconds=1500), "PT1.5S"),
        (True, True),
        (3, 3),
        (1.5, 1.5),
        ([1, {"a": None}], [1, {"a": None}]),
    ],
)
def test_results_are_plain(value: Any, made: Any) -> None:
    assert to_json(value, 0) == made
    assert type(to_json(value, 0)) is type(made)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("inf"), "a number that JSON cannot hold"),
        ({1: 2}, "a map whose keys are not strings"),
        ({"a": 1, 2: 3}, "a map whose keys are not strings"),
        ([{"a": {True: 1}}], "a map whose keys are not strings"),
        ([float("-inf")], "a number that JSON cannot hold"),
        (bytearray(b"x"), "bytes"),
        (b"x", "bytes"),
        (UUID(int=0), "a value of type UUID"),
    ],
)
def test_results_that_have_no_place_say_why(value: Any, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        to_json(value, 0)
    assert [kind_of(one) for one in (None, True, 1, 1.5, "", [], {})] == [
        "null", "a bool", "an int", "a double", "a string", "a list", "a map",
    ]  # fmt: skip


KINDS: dict[str, str] = {
    "string": "s", "int": "i", "bool": "b", "double": "d", "timestamp": "s", "list": "lLn", "list<string>": "Ln",
    "list<list<string>>": "n", "map": "mM", "map<string,string>": "M", "dyn": "sibdlLnmM0",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_of_their_types_alone(kind: str) -> None:
    values: dict[str, Any] = {
        "s": "x", "i": 1, "b": True, "d": 1.5, "l": ["x", 1], "L": ["x"], "n": [], "m": {"a": 1}, "M": {"a": "x"},
        "0": None,
    }  # fmt: skip
    assert "".join(name for name, value in values.items() if fits(value, kind)) == KINDS[kind]
    assert fits([["x"]], "list<list<string>>")
    assert not fits([["x"], [1]], "list<list<string>>")


def test_a_moment_has_a_zone() -> None:
    assert moment("2026-01-02T03:00:00Z") == moment(datetime(2026, 1, 2, 3, tzinfo=UTC))
    cases = [("soon", "not an RFC 3339"), ("2026-01-02T03:00:00", "time zone"), (5, "time zone"), (None, "time zone")]
    cases += [("2026-01-02", "time zone"), ("2026-01-02T00:00:00", "time zone"), (datetime(2026, 1, 2), "time zone")]
    for wrong, why in cases:
        with pytest.raises(Unfit, match=why):
            moment(wrong)


def test_what_an_author_has_written_is_not_in_quotes() -> None:
    assert written("a.map(x, x).exists(y, y) && 'has(' == \"all(\" + size(b)", ["size", "_&&_", "@in"]) == {
        "map", "exists", "size",
    }  # fmt: skip


def test_a_document_holds_so_many_values_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert VALUES_MAX > 1000
    monkeypatch.setattr("core.documents.VALUES_MAX", 4)
    assert load_document("a: [1, 2]\n", "f").value == {"a": [1, 2]}
    with pytest.raises(DefinitionError, match="holds more than 4 values"):
        load_document("a: [1, 2, 3]\n", "f")


@pytest.mark.parametrize(
    ("drawn", "made"),
    [
        ("112233445566778899aa", "01234567-89ab-7112-b344-5566778899aa"),
        ("ffffffffffffffffffff", "01234567-89ab-7fff-bfff-ffffffffffff"),
        ("00000000000000000000", "01234567-89ab-7000-8000-000000000000"),
    ],
)
def test_an_identifier_is_its_time_and_chance(drawn: str, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 0x0123456789AB * 1_000_000 + 999_999)
    monkeypatch.setattr("os.urandom", lambda count: bytes.fromhex(drawn)[:count])
    assert str(ids.new_id()) == made


class _Slept:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def rest(self, event: asyncio.Event, seconds: float, woken: asyncio.Event | None = None) -> None:
        self.seconds.append(seconds)


@pytest.mark.parametrize(("tries", "longest"), [(0, 0.1), (1, 0.2), (2, 0.4), (3, 0.5), (50, 0.5)])
async def test_pauses_grow_to_a_bound_and_differ(tries: int, longest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = _Slept()
    monkeypatch.setattr(clock, "rest", slept.rest)
    for drawn in (0.0, 1.0):
        monkeypatch.setattr("random.random", lambda drawn=drawn: drawn)
        with capture_logs() as logs:
            await clock.Patience().pause("a", tries, TransportError("gone"))
        assert [(one["log_level"], one["tries"], one["reason"]) for one in logs] == [
            ("warning", tries + 1, "TransportError: gone")
        ]
    assert slept.seconds == pytest.approx([longest / 2, longest])


async def test_it_is_calm_when_everybody_has_told_what_they_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "rest", _Slept().rest)
    stop = asyncio.Event()
    patience = clock.Patience(stop)
    await patience.calm()
    for who in ("a", "b"):
        await patience.pause(who, 0, TransportError("gone"))
    patience.told("a")
    calm = asyncio.create_task(patience.calm())
    await asyncio.sleep(0)
    assert not calm.done()
    patience.told("b")
    await calm
    stop.set()
    with pytest.raises(TransportError, match="gone"):
        await patience.pause("a", 0, TransportError("gone"))


def test_a_loop_that_goes_on_says_what_failed() -> None:
    with capture_logs() as logs:
        for error in (ConnectionResetError("reset"), InputError("wrong"), KeyError("k")):
            report("Sweeping failed.", error, tenant="acme")
    assert [(one["log_level"], one["event"], one.get("reason"), one["tenant"]) for one in logs] == [
        ("warning", "Sweeping failed.", "ConnectionResetError: reset", "acme"),
        ("error", "Sweeping failed.", "wrong", "acme"),
        ("error", "Sweeping failed.", None, "acme"),
    ]
    assert isinstance(logs[2]["exc_info"], KeyError)


def test_a_rendered_text_has_its_length() -> None:
    _check_length("x" * RENDERED_MAX)
    with pytest.raises(InputError, match=f"gives {RENDERED_MAX + 1} characters"):
        _check_length("x" * (RENDERED_MAX + 1))


def test_meaning_that_was_put_in_is_refused_and_an_authors_own_is_not() -> None:
    for language, text in ((Language.ENCODED_QUERY, "a=javascript:x"), (Language.URL_PART, "/a/../b")):
        check_meaning(language, text, text)
        with pytest.raises(InputError, match="by what was put into it"):
            check_meaning(language, text, "")
        with pytest.raises(InputError, match="by what was put into it"):
            check_meaning(language, text * 2, text)
    check_meaning(Language.HTML, "javascript:", "")


def test_names_that_nothing_has_are_answered_with_those_there_are() -> None:
    assert nearest("amont", ["amount", "name"]) == "Did you mean 'amount'?"
    assert nearest("zzz", ["b", "a"], "Known keys") == "Known keys: a, b."
    assert nearest("zzz", []) == ""
    assert nearest("#", [f"{n:02}" for n in range(20)]).endswith("18, 19.")
    assert nearest("#", [f"{n:02}" for n in range(21)]).endswith("18, 19, \u2026.")
    assert (path_text(("fields", "tags", 0), "with"), path_text((0, "a"))) == ("with.fields.tags[0]", "[0].a")


@pytest.mark.parametrize(
    "text", ["PT1S", "PT0.5S", "PT1M", "PT1M1S", "PT1H", "PT10H", "P1D", "P1DT12H", "P1DT1H1M1.25S", "P3660D"]
)
def test_durations_are_read_and_written(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


def test_durations_have_their_bounds() -> None:
    assert (format_duration(timedelta(0)), parse_duration("P2W")) == ("PT0S", timedelta(14))
    for wrong in ("PT0S", "P3661D", "P3660DT1S", "P1M", "P", "PT", "P1DT"):
        with pytest.raises(InputError):
            parse_duration(wrong)
