"""The chain: what is appended verifies, and nothing else does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from core.errors import InputError
from evidence.chain import ChainHead, ChainReport, Event, EventType, append, timestamp, verify_lines
from evidence.events import REQUIRED_DATA, RUN_EVENTS, TENANT_EVENTS
from tests.support.evidence_chain import AT, KEEPER, WORKFLOW, opened

HEAD = ChainHead.of("run:r1")

ascii_keys = st.text(st.characters(max_codepoint=127), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20)
audit_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ascii_keys, inner, max_size=4), max_leaves=12
)
payloads = st.dictionaries(ascii_keys, audit_values, max_size=5)


def started(data: Any = None, at: datetime = AT) -> Event:
    return Event(EventType.STEP_STARTED, KEEPER, at, data or {}, "s1")


def closed() -> Event:
    return Event(EventType.RUN_CLOSED, KEEPER, AT, {"status": "succeeded"})


def chain_of(*events: Event) -> list[bytes]:
    """The lines of one append."""
    return append(HEAD, events)[0]


def appended(*portions: list[Event]) -> tuple[list[list[bytes]], ChainHead]:
    """The lines of each append, and the head after all of them."""
    head, appends = HEAD, []
    for portion in portions:
        lines, head = append(head, portion)
        appends.append(lines)
    return appends, head


def verified(head: ChainHead, appends: list[list[bytes]]) -> ChainReport:
    return verify_lines(head, chain.from_iterable(appends), [len(lines) for lines in appends])


def read(lines: list[bytes]) -> ChainReport:
    """The report about lines as those of one append, whose head is true."""
    return verify_lines(HEAD.after(lines), lines, [len(lines)])


@pytest.mark.req("U-7")
def test_a_line_is_what_the_format_says() -> None:
    (line,), head = append(HEAD, [opened()])
    assert line == (
        b'{"actor":{"id":"k1","kind":"keeper"},"data":{"workflow":{"digest":"'
        + b"0" * 64
        + b'","name":"w","version":1}},"step":null,"ts":"2026-11-21T10:30:00.123456Z","type":"run.opened","v":2}'
    )
    assert ChainHead("run:r1", 0, sha256(b"run:r1").hexdigest()) == HEAD
    assert head == ChainHead("run:r1", 1, sha256(sha256(b"run:r1").digest() + sha256(line).digest()).hexdigest())


@given(st.lists(payloads, max_size=6), st.integers(1, 6))
def test_what_is_appended_in_any_portions_verifies(payload: list[dict[str, Any]], cut: int) -> None:
    events = [opened(), *(started(data) for data in payload), closed()]
    portions = [portion for portion in (events[:cut], events[cut:]) if portion]
    appends, head = appended(*portions)
    assert [line for lines in appends for line in lines] == chain_of(*events), "a line says nothing of its append"
    seen: list[int] = []
    report = verify_lines(
        head, chain.from_iterable(appends), map(len, appends), lambda event: seen.append(event["seq"])
    )
    assert report.problem is None
    assert report.final
    assert ChainHead(report.stream, report.count, report.head) == head
    assert seen == list(range(len(events)))


@given(st.lists(payloads, min_size=1, max_size=4), st.integers(0, 4))
def test_the_head_of_an_append_needs_only_the_digest_of_its_lines(payload: list[dict[str, Any]], cut: int) -> None:
    """Compute the head as the database does, whatever was appended in between."""
    (first, *rest), _ = appended([opened()], *([started(data)] for data in payload))
    head = HEAD.after(first)
    for lines in rest[cut:] + rest[:cut]:
        told = sha256(bytes.fromhex(head.hash) + sha256(b"\n".join(lines)).digest()).hexdigest()
        head = head.after(lines)
        assert head.hash == told
    assert verified(head, [first, *rest[cut:], *rest[:cut]]).ok


@given(payloads)
def test_orjson_rfc8785_and_json_write_the_same_line(data: dict[str, Any]) -> None:
    line = chain_of(opened(), started(data))[1]
    value = json.loads(line)
    assert rfc8785.dumps(value) == line
    assert json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == line
    assert orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == line


@given(st.data(), st.lists(payloads, min_size=1, max_size=5))
def test_any_alteration_of_lines_and_appends_is_found(data: st.DataObject, payload: list[dict[str, Any]]) -> None:
    """Also where each remaining line stands in its order, and only the borders between appends have moved."""
    steps = [started({"n": number, "data": item}) for number, item in enumerate(payload)]
    appends, head = appended([opened(), *steps], [*steps, started()], [started({"x": 1}), closed()])
    assert verified(head, appends).ok
    first, second, third = appends
    at = data.draw(st.integers(0, len(second) - 1))
    attacks = {
        "a line is gone": [first, [*second[:at], *second[at + 1 :]], third],
        "a line is there twice": [first, [*second[:at], second[at], *second[at:]], third],
        "two lines are swapped": [first, [second[-1], *second[1:-1], second[0]], third],
        "a line is in the append before": [[*first, second[0]], second[1:], third],
        "a line is in the append after": [first, second[:-1], [second[-1], *third]],
        "one append is two": [first[:1], first[1:], second, third],
        "two appends are one": [[*first, *second], third],
        "an append is gone": [first, third],
        "the last append is gone": [first, second],
        "an append is there twice": [first, second, second, third],
        "an append is empty": [first, [], second, third],
    }
    ok = [name for name, attack in attacks.items() if verified(head, attack).ok]
    assert ok == []
    assert not verified(head, [first, third[:1], second, third[1:]]).ok


def test_what_the_appends_do_not_hold_is_found() -> None:
    (lines,), head = appended([opened(), started(), closed()])
    for sizes in ([2], [4], [3, 1], [], [0, 3], [-3], [True, 2], [3.0], ["3"], [None], [3, 10**12]):
        assert verify_lines(head, lines, sizes).problem, sizes
    assert verify_lines(head, lines, [3]).ok
    (open_end,), head = appended([opened(), started()])
    assert verify_lines(head, open_end, [2]).ok
    assert "in no append" in str(verify_lines(head, [*open_end, open_end[-1]], [2]).problem)


@pytest.mark.parametrize("at", [0, 1])
def test_an_append_without_lines_is_none_though_it_moved_the_head(at: int) -> None:
    (lines,), head = appended([opened(), started()])
    nothing, told = sha256().digest(), sha256(b"\n".join(lines)).digest()
    moved = bytes.fromhex(ChainHead.of(head.stream).hash)
    for part in (nothing, told) if at == 0 else (told, nothing):
        moved = sha256(moved + part).digest()
    sizes = [0, 2] if at == 0 else [2, 0]
    report = verify_lines(ChainHead(head.stream, 2, moved.hex()), lines, sizes)
    assert "cannot have 0 lines" in str(report.problem)


def test_the_chain_of_one_run_is_not_that_of_another() -> None:
    appends, head = appended([opened()], [started(), closed()])
    other = ChainHead("run:r2", head.count, head.hash)
    assert "do not come to the head" in str(verified(other, appends).problem)


@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    (lines,), head = appended([opened(), started({"a": "b", "n": [1, {"x": None}]}), closed()])
    at = data.draw(st.integers(0, 2))
    position = data.draw(st.integers(0, len(lines[at]) - 1))
    changed = bytearray(lines[at])
    changed[position] ^= data.draw(st.integers(1, 255))
    assert verified(head, [[*lines[:at], bytes(changed), *lines[at + 1 :]]]).problem


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'{"x":1}', b'{"x":1,"x":1}', "canonical"),
        (b'{"x":1}', b'{"x": 1}', "canonical"),
        (b'{"x":1}', b'{"x":1.5}', "audit line holds"),
        (b'{"x":1}', b'{"x":[1.5]}', "audit line holds"),
        (b'{"x":1}', b'{"x":[1,"a",1.5]}', "audit line holds"),
        (b'{"x":1}', b'{"w":"a","x":[{"a":1,"b":[null,1.5]}],"y":1}', "audit line holds"),
        (b'{"x":1}', b'{"x":1e+300}', "audit line holds"),
        (b'{"x":1}', b'{"x":1.0}', "audit line holds"),
        (b'{"x":1}', b'{"x":9007199254740992}', "not JSON"),
        (b'{"x":1}', b'{"x":NaN}', "not JSON"),
        (b'{"x":1}', '{"é":1}'.encode(), "audit line holds"),
        (b'{"x":1}', b'{"x":' + b"[" * 40 + b"]" * 40 + b"}", "audit line holds"),
        (b'{"x":1}', b'{"x":' + b"[" * 3000 + b"]" * 3000 + b"}", "not JSON"),
        (b'{"x":1}', b"[]", "data or step"),
        (b'{"x":1}', b'{"x":"\\u0041"}', "canonical"),
        (b'{"x":1}', b'{"x":"\xff"}', "not JSON"),
        (b'"step.started"', b'"step.invented"', "unknown"),
        (b'"step.started"', b'["step.started"]', "unknown"),
        (b'"step.started"', b'"token.created"', "does not belong"),
        (b'"step.started"', b'"run.opened"', "starts with run.opened"),
        (b'"step.started"', b'"run.closed"', "lacks count, status"),
        (b'"v":2', b'"v":1', "version"),
        *((b'"v":2', b'"v":' + other, "version") for other in (b"true", b"2.0", b'"2"', b"null", b"3")),
        *((b'"step":"s1"', b'"step":' + other, "step") for other in (b"1", b"0", b"false", b"true", b"[]", b"{}")),
        *((b'"kind":"keeper"', b'"kind":' + other, "actor") for other in (b"1", b"null", b"[]")),
        *((b'"id":"k1"', b'"id":' + other, "actor") for other in (b"1", b"null", b"[]")),
        (b'"actor":{"id":"k1","kind":"keeper"}', b'"actor":{"id":"k1"}', "actor"),
        (b'"actor":{"id":"k1","kind":"keeper"}', b'"actor":["id","kind"]', "actor"),
        (b'"actor":{"id":"k1","kind":"keeper"}', b'"actor":null', "actor"),
        (b'"kind":"keeper"', b'"kind":"keeper","zeal":1', "actor"),
        (b".123456Z", b".123Z", "ts"),
        (b"T10:30", b"T10:61", "ts"),
        (b',"v":2', b',"v":2,"w":1', "keys"),
    ],
)
def test_malformed_lines_are_refused_with_the_reason(old: bytes, new: bytes, says: str) -> None:
    lines = chain_of(opened(), started({"x": 1}))
    assert old in lines[1]
    report = read([lines[0], lines[1].replace(old, new, 1)])
    assert report.problem is not None
    assert report.problem.startswith("line 2:")
    assert says in report.problem
    assert report.count == 1


@pytest.mark.parametrize("lines", [[], [b""], [b"[]"], [b"null"], [b"{}"], [b"\0"], [b"1"], [b"{" * 99999]])
def test_no_chain_at_all_is_a_problem(lines: list[bytes]) -> None:
    assert read(lines).problem


def test_depth_up_to_the_bound_is_accepted() -> None:
    value: Any = "x"
    for _ in range(30):
        value = [value]
    lines = chain_of(opened(), started({"x": value}))
    assert read(lines).ok
    with pytest.raises(InputError):
        chain_of(opened(), started({"x": [[value]]}))


def test_a_line_of_the_longest_length_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = chain_of(opened(), started({"x": "y" * 500}))
    longest = max(map(len, lines))
    monkeypatch.setattr("evidence.chain.LINE_BYTES_MAX", longest)
    assert read(lines).ok
    assert chain_of(opened(), started({"x": "y" * 500})) == lines
    monkeypatch.setattr("evidence.chain.LINE_BYTES_MAX", longest - 1)
    assert f"longer than {longest - 1} bytes" in (read(lines).problem or "")
    with pytest.raises(InputError, match=f"longer than {longest - 1} bytes"):
        chain_of(opened(), started({"x": "y" * 500}))


@pytest.mark.parametrize("kind", sorted(RUN_EVENTS))
def test_of_one_append_only_a_late_answer_follows_the_end(kind: EventType) -> None:
    data = {**dict.fromkeys(REQUIRED_DATA.get(kind, ())), "status": "succeeded"}
    after = Event(kind, KEEPER, AT, data)
    if kind is EventType.ACTION_LATE:
        assert len(chain_of(opened(), closed(), after, after)) == 4
    else:
        with pytest.raises(InputError, match=rf"{kind} cannot follow run\.closed"):
            chain_of(opened(), closed(), after)


def test_a_closed_run_takes_nothing_more() -> None:
    with pytest.raises(InputError, match="cannot follow"):
        chain_of(opened(), closed(), started())
    appends, head = appended([opened(), closed()], [started()])
    assert "follows run.closed" in str(verified(head, appends).problem)


def test_the_closing_count_must_be_true() -> None:
    lines = chain_of(opened(), closed())
    report = read([lines[0], lines[1].replace(b'"count":2', b'"count":3')])
    assert "3 lines" in str(report.problem)


@pytest.mark.parametrize(
    "event",
    [
        replace(opened(), at=AT.replace(tzinfo=None)),
        replace(opened(), data={}),
        opened(amount=1.5),
        opened(number=2**53),
        replace(opened(), data={"workflow": WORKFLOW, "schlüssel": 1}),
        opened(text="x" * 300_000),
        opened(text="\ud800"),
        started(),
        replace(started(), type=EventType.TOKEN_CREATED),
    ],
)
def test_what_would_not_verify_is_not_appended(event: Event) -> None:
    with pytest.raises(InputError):
        chain_of(event)


def test_a_tenant_s_stream_holds_what_belongs_to_no_run() -> None:
    head = ChainHead.of("tenant:acme")
    lines, after = append(head, [Event(EventType.EVIDENCE_READ, KEEPER, AT, {"run": "r1"})])
    report = verify_lines(after, lines, [1])
    assert report.ok
    assert not report.final
    with pytest.raises(InputError):
        append(head, [started()])


def test_every_type_has_a_stream_and_required_data_is_of_known_types() -> None:
    assert set(EventType) == RUN_EVENTS | TENANT_EVENTS
    assert set(REQUIRED_DATA) <= set(EventType)


def test_time_is_written_in_utc_and_steps_back_are_counted() -> None:
    east = AT.astimezone(timezone(timedelta(hours=9)))
    assert timestamp(east) == timestamp(AT.replace(microsecond=123456)) == "2026-11-21T10:30:00.123456Z"
    assert timestamp(AT.replace(microsecond=0)) == "2026-11-21T10:30:00.000000Z"
    report = read(chain_of(opened(), started(at=AT), started(at=AT - timedelta(seconds=1))))
    assert report.ok
    assert report.clock_steps_back == 1
    assert read(chain_of(opened(), started(at=AT), started(at=AT))).clock_steps_back == 0, "one commit has one time"
    # Steps commute, so another step's earlier line may come later in the book.
    other = replace(started(at=AT - timedelta(seconds=1)), step="s2")
    assert read(chain_of(opened(), started(at=AT), other)).clock_steps_back == 0


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=2, max_size=5))
def test_timestamps_sort_as_times_do(times: list[datetime]) -> None:
    ordered = sorted(times)
    assert all(timestamp(a) <= timestamp(b) for a, b in pairwise(ordered))


@pytest.mark.parametrize(
    ("ts", "good"),
    [
        ("2026-11-21T10:30:00.123456Z", True),
        ("2026-12-31T23:59:60.000000Z", True),
        ("2026-11-21T10:30:00.123456Z ", False),
        ("2026-11-21T10:30:00.123456ZZ", False),
        (" 2026-11-21T10:30:00.123456Z", False),
        ("2026-11-21T10:30:00.12345Z", False),
        ("2026-11-21T10:30:00.1234567Z", False),
        ("2026-11-21T10:30:00.123456+00:00", False),
        ("2026-13-21T10:30:00.123456Z", False),
        ("2026-11-41T10:30:00.123456Z", False),
        ("2026-11-21T30:30:00.123456Z", False),
        ("2026-11-21T10:60:00.123456Z", False),
        ("2026-11-21 10:30:00.123456Z", False),
        ("", False),
    ],
)
def test_a_line_has_its_time_in_its_one_form(ts: str, good: bool) -> None:
    line = json.loads(chain_of(opened())[0]) | {"ts": ts}
    lines = [orjson.dumps(line, option=orjson.OPT_SORT_KEYS)]
    problem = verify_lines(HEAD.after(lines), lines, [1]).problem
    assert problem == (None if good else "line 1: its ts is not a UTC time with six digits of the second")


@pytest.mark.parametrize("more", [b"", b" ", b"{}"])
def test_no_line_is_behind_the_last_append(more: bytes) -> None:
    (lines,), head = appended([opened(), closed()])
    report = verify_lines(head, [*lines, more], [2])
    assert (report.problem, report.ok) == ("line 3: it is in no append", False)
    assert verify_lines(head, lines, [2]).ok
