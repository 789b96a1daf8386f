"""Every reason for which evidence is refused, word for word: lines, histories, usage, keys, envelopes, stores."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from msgspec import to_builtins

from core.canonical import canonical_bytes, sha256_hex
from core.errors import CountersealError
from evidence import events, layout
from evidence.blobs import LockMode, StoredBlob, check_got, check_put, key_of
from evidence.chain import LINE_BYTES_MAX, ChainHead, line_of, seal, timestamp, verify_lines
from evidence.commitments import (
    blind,
    commit,
    commit_fields,
    commit_paths,
    disclosure,
    open_disclosure,
    path_of,
    reason_path,
)
from evidence.container import HeldFiles
from evidence.crosscheck import Crosscheck
from evidence.events import REQUIRED_DATA, RUN_EVENTS, TENANT_EVENTS, Actor, EventType
from evidence.history import History
from evidence.receipts import LateAnswer, ReceiptStatus, contradiction
from evidence.rollup import Rollup
from evidence.s3 import Retention, S3BlobStore
from evidence.signing import FileSigner, PublicKey, open_envelope, pae, seal_envelope
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("U-7")

EXPECTED = Path(__file__).with_name("every_refusal.json")
E = EventType
AT = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
KEY = b"k" * 32


def outcome(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """The result of a call, or the words of its refusal."""
    try:
        return call(*given, **named)
    except CountersealError as error:
        return f"{type(error).__name__}: {error}"


def of(kind: EventType, *, at: datetime = AT, step: str | None = None, **data: Any) -> dict[str, Any]:
    needed = dict.fromkeys(sorted(REQUIRED_DATA.get(kind, ())), "x")
    return line_of(kind, at, Actor("worker", "w"), step, {**needed, **data})


def sealed(*contents: dict[str, Any], stream: str = "run:r1", count: int = 0) -> Any:
    told = outcome(seal, ChainHead(stream, count, "0" * 64), [dict(each) for each in contents])
    return told if isinstance(told, str) else told[1].count


def test_lines_are_refused_as_they_were() -> None:
    opened = of(E.RUN_OPENED)
    found: dict[str, Any] = {}
    for kind in E:
        found[f"{kind} first in a run"] = sealed(of(kind))
        found[f"{kind} in a run"] = sealed(of(kind), count=1)
        found[f"{kind} of a tenant"] = sealed(of(kind), stream="tenant:t1")
        found[f"{kind} after the end"] = sealed(of(E.RUN_CLOSED), of(kind), count=1)
        stream = "run:r1" if kind in RUN_EVENTS else "tenant:t1"
        needed = sorted(REQUIRED_DATA.get(kind, ()))
        for name in needed:
            lacking = of(kind)
            del lacking["data"][name]
            if (kind, name) != (E.RUN_CLOSED, "count"):
                found[f"{kind} without {name}"] = sealed(lacking, stream=stream, count=int(kind is not E.RUN_OPENED))
        found[f"{kind}: needs"] = needed
    found["of both"] = sorted(RUN_EVENTS & TENANT_EVENTS)
    found["of neither"] = sorted(set(E) - RUN_EVENTS - TENANT_EVENTS)
    for name, value in {"float": 1.5, "2**53": 2**53, "2**53-1": 2**53 - 1, "key": {"é": 1}, "text": "é\u2028"}.items():
        found[f"data of {name}"] = sealed(of(E.STEP_STARTED, a=value), count=1)
    for depth in (29, 30, 31, 32, 33):
        deep: Any = 1
        for _ in range(depth):
            deep = [deep]
        found[f"data of {depth} lists"] = sealed(of(E.STEP_STARTED, a=deep), count=1)
    room = LINE_BYTES_MAX - len(canonical_bytes(of(E.STEP_STARTED, a="")))
    found["longest"] = [sealed(of(E.STEP_STARTED, a="x" * many), count=1) for many in (room, room + 1)]
    found["nothing"] = sealed(count=3)
    found["opened in the middle"] = sealed(opened, opened)
    closed = seal(ChainHead("run:r1", 5, "0" * 64), [of(E.STEP_STARTED), of(E.RUN_CLOSED, status="s", count=0)])[0][1]
    found["count of the end"] = json.loads(closed)["data"]
    as_it_was(EXPECTED.with_name("every_line.json"), found)


def test_times_are_written_in_utc_with_six_digits() -> None:
    east = timezone(timedelta(hours=2))
    assert [timestamp(at) for at in (AT, AT.replace(microsecond=7), datetime(2026, 1, 1, 1, tzinfo=east))] == [
        "2026-11-21T10:30:00.000000Z",
        "2026-11-21T10:30:00.000007Z",
        "2025-12-31T23:00:00.000000Z",
    ]
    assert outcome(timestamp, datetime(2026, 1, 1)) == "InputError: a time needs a time zone"


def line(**changed: Any) -> bytes:
    whole = {**of(E.STEP_STARTED, step="s1"), **changed}
    return canonical_bytes({name: value for name, value in whole.items() if value != "gone"})


def chain_report(lines: list[bytes], sizes: list[Any], count: int | None = None) -> Any:
    head, rest = ChainHead.of("run:r1"), list(lines)
    for size in sizes if set(map(type, sizes)) == {int} else [len(lines)]:
        head, rest = head.after(rest[:size]), rest[size:]
    told = verify_lines(ChainHead(head.stream, head.count if count is None else count, head.hash), lines, sizes)
    shown = to_builtins(told)
    del shown["head"]
    return {**shown, "last_ts": sorted(map(str, told.last_ts.items()))}


def test_chains_are_read_as_they_were() -> None:
    opened, end = (canonical_bytes(each) for each in (of(E.RUN_OPENED), of(E.RUN_CLOSED, count=3)))
    good, late = line(), canonical_bytes(of(E.ACTION_LATE))
    wrong = {
        "v = 1": line(v=1),
        "v = true": line(v=True),
        "v = text": line(v="2"),
        "v = 2.0": good.replace(b'"v":2', b'"v":2.0'),
        "no v": line(v="gone"),
        "more": line(more=1),
        "no ts": line(ts="gone"),
        "ts = 5": line(ts=5),
        **{
            f"ts = {ts}": line(ts=ts)
            for ts in (
                "2026-11-21T10:30:00.123456Z",
                "2026-11-21T10:30:00.12345Z",
                "2026-11-21T10:30:00Z",
                "2026-13-21T10:30:00.123456Z",
                "2026-12-41T10:30:00.123456Z",
                "2026-12-31T30:30:00.123456Z",
                "2026-12-31T23:60:00.123456Z",
                "2026-12-31T23:59:60.123456Z",
                "2026-12-31T23:59:70.123456Z",
                "2026-11-21T10:30:00.123456+00:00",
                "2026-11-21 10:30:00.123456Z",
            )
        },
        "actor = text": line(actor="x"),
        "actor without id": line(actor={"kind": "x"}),
        "actor with more": line(actor={"kind": "x", "id": "y", "z": 1}),
        "actor of numbers": line(actor={"kind": "x", "id": 1}),
        "actor of kind 1": line(actor={"kind": 1, "id": "x"}),
        "data = list": line(data=[]),
        "step = 5": line(step=5),
        "step = null": line(step=None),
        "type = 5": line(type=5),
        "type = x": line(type="x"),
        "type of a tenant": line(type="token.created", data={}),
        "opened": line(type="run.opened", data={"workflow": 1}),
        "lacking": line(type="wait.opened", data={"wait": "x"}),
        "reopened": line(type="run.reopened", data={"bundle": "x", "steps": []}),
        "closed by another count": line(type="run.closed", data={"status": "x", "count": 3}),
        "closed by this count": line(type="run.closed", data={"status": "x", "count": 2}),
        "a list": b"[]",
        "no JSON": b"{",
        "spaces": b" " + good,
        "another order": b'{"v":2,' + good[1:].replace(b',"v":2', b""),
        "nothing": b"",
        "a text": b'"x"',
        "a float": line(data={"a": 1}).replace(b'"a":1', b'"a":1.5'),
        "a long float": line(data={"a": "é", "b": 1}).replace(b'"b":1', b'"b":1.5'),
    }
    found = {name: chain_report([opened, each], [2]) for name, each in wrong.items()}
    room = LINE_BYTES_MAX - len(line(data={"a": ""}))
    found |= {f"longest {more}": chain_report([opened, line(data={"a": "x" * (room + more)})], [2]) for more in (0, 1)}
    again = canonical_bytes(of(E.RUN_REOPENED, steps=[]))
    twice = canonical_bytes(of(E.RUN_CLOSED, count=6))
    found["after the end"] = chain_report([opened, good, end, good], [4])
    found["late after the end"] = chain_report([opened, good, end, late, late], [3, 2])
    found["reopened after the end"] = chain_report([opened, good, end, again, good, twice], [3, 2, 1])
    found["reopened after a late answer"] = chain_report([opened, good, end, late, again, good], [3, 1, 2])
    portions: dict[str, list[Any]] = {
        "none": [],
        "too many": [2, 1],
        "too few": [1],
        "zero": [0, 2],
        "text": ["2"],
        "bool": [True, 1],
    }
    for name, sizes in portions.items():
        found[f"sizes: {name}"] = chain_report([opened, good], sizes)
    found["no lines"] = chain_report([], [])
    found["another count"] = chain_report([opened, good], [2], count=3)
    before, after = (line(ts=f"2026-11-21T10:30:0{second}.000000Z") for second in (1, 2))
    other = line(ts="2026-11-21T10:30:00.000000Z", step="s2")
    found["clocks"] = chain_report([opened, after, before, other, before, after], [6])
    as_it_was(EXPECTED.with_name("every_chain.json"), found)


P = {"name": "p", "version": 1, "digest": "0" * 64}
DECIDED = {"decision": "d1", "action": "A", "operation": "x.y.z", "outcome": "allow", "policies": [P]}
INTENT = {"receipt": "r1", "action": "A", "operation": "x.y.z", "attempt": 1, "decision": "d1", "approval": "a1"}
LATE = {"receipt": "r1", "attempt": 1, "epoch": 2, "known": "succeeded", "sent": True}
BEGUN = [(E.DECISION_MADE, DECIDED), (E.ACTION_INTENDED, INTENT)]


def history(*told: tuple[EventType, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "seq": seq,
            "type": str(kind),
            "actor": {"kind": "person", "id": "ana"},
            "ts": f"t{seq}",
            "step": f"s{seq}",
            "data": data,
        }
        for seq, (kind, data) in enumerate(told)
    ]


def asked(action: str | None = "A", choices: tuple[str, ...] = ("approve",), outcome: str = "approved") -> list[Any]:
    requested = (E.APPROVAL_REQUESTED, {"approval": "a1", "action": action, "card": "c"})
    votes = [(E.APPROVAL_VOTED, {"approval": "a1", "choice": choice}) for choice in choices]
    return [requested, *votes, *([(E.APPROVAL_DECIDED, {"approval": "a1", "outcome": outcome})] if outcome else [])]


def test_histories_add_up_as_they_did() -> None:
    asks = (E.DECISION_MADE, {**DECIDED, "outcome": "needs_approval"})
    go = (E.ACTION_INTENDED, INTENT)
    ended = {
        name: (kind, {"receipt": "r1", "receipt_digest": name})
        for name, kind in (
            ("done", E.ACTION_SUCCEEDED),
            ("failed", E.ACTION_FAILED),
            ("doubt", E.ACTION_IN_DOUBT),
            ("held", E.ACTION_HELD),
        )
    }
    resolved = {
        each: (E.ACTION_DOUBT_RESOLVED, {"receipt": "r1", "resolution": each, "receipt_digest": each})
        for each in ("applied", "not_applied", "failed", "x" * 41)
    }
    again = (E.ACTION_INTENDED, {**INTENT, "attempt": 2})
    late = (E.ACTION_LATE, LATE)
    histories: dict[str, list[Any]] = {
        "denied": [(E.DECISION_MADE, {**DECIDED, "outcome": "deny", "policies": []}), go],
        "allowed by nothing": [(E.DECISION_MADE, {**DECIDED, "policies": []}), go],
        "approved": [asks, *asked(), go, ended["done"]],
        "approved and again": [asks, *asked(), go, ended["failed"], again],
        "approved for another": [asks, *asked("B"), go],
        "approved for a gate": [asks, *asked(None), go],
        "approved by nobody": [asks, *asked(choices=()), go],
        "approved against": [asks, *asked(choices=("reject", "happened")), go],
        "undecided": [asks, *asked(outcome=""), go],
        "rejected": [asks, *asked(outcome="rejected"), go],
        "consumed": [asks, *asked(), go, (E.ACTION_INTENDED, {**INTENT, "receipt": "r2"})],
        "no approval named": [asks, *asked(), (E.ACTION_INTENDED, {**INTENT, "approval": None})],
        "an unknown approval": [asks, go],
        "no decision": [go],
        "expired": [asks, *asked(), (E.APPROVAL_EXPIRED, {"approval": "a1"}), go],
        "superseded": [asks, *asked(), (E.APPROVAL_SUPERSEDED, {"approval": "a1"}), go],
        "never asked": [(E.APPROVAL_VOTED, {"approval": "a1", "choice": "approve"})],
        "asked twice": [*asked(), *asked()],
        "done": [*BEGUN, ended["done"]],
        "done twice": [*BEGUN, ended["done"], ended["done"]],
        "done and again": [*BEGUN, ended["done"], again],
        "in doubt": [*BEGUN, ended["doubt"]],
        "held": [*BEGUN, ended["doubt"], ended["held"]],
        "held without doubt": [*BEGUN, ended["held"]],
        "again without an end": [*BEGUN, again],
        "again after a doubt": [*BEGUN, ended["doubt"], again, ended["done"]],
        **{f"resolved as {each[:12]}": [*BEGUN, ended["doubt"], one] for each, one in resolved.items()},
        **{f"resolved without doubt as {each[:12]}": [*BEGUN, one] for each, one in resolved.items()},
        "outcome of nothing": [ended["done"]],
        "late": [
            *BEGUN,
            ended["failed"],
            late,
            (E.ACTION_LATE, {**LATE, "known": "failed", "values": 1, "state": "x"}),
        ],
        "late after the end": [*BEGUN, ended["failed"], (E.RUN_CLOSED, {"status": "failed"}), late, late],
        "reopened": [*BEGUN, (E.RUN_CLOSED, {"status": "x"}), late, (E.RUN_REOPENED, {}), late],
        "canceled": [(E.RUN_CANCELED, {"committed": [["/cancel/reason", "c1"]]}), (E.RUN_CANCELED, {})],
        "canceled for nothing": [(E.RUN_CANCELED, {"committed": "x"})],
        "opened": [
            (E.RUN_OPENED, {"workflow": P, "committed": [["/trigger/a", "1"], ["/trigger", "2"], [], "x", [5]]})
        ],
        "opened by nothing": [(E.RUN_OPENED, {"workflow": P})],
    }
    found: dict[str, Any] = {}
    for name, told in histories.items():
        one = History()
        for event in history(*told):
            one.observe(event)
        found[name] = {**{key: value for key, value in to_builtins(one).items() if value}, "late": one.late_answers()}
    found["contradictions"] = {
        f"{known}, {status}, {attempt} of {last}": contradiction(known, attempt, status, last)
        for known in LateAnswer
        for status in ReceiptStatus
        for attempt, last in ((1, 1), (1, 2), (2, 1))
    }
    as_it_was(EXPECTED.with_name("every_history.json"), found)


def test_events_are_rolled_up_as_they_were() -> None:
    def usage(**changed: Any) -> dict[str, Any]:
        whole = {"provider": "p", "model": "m", "input_tokens": 3, "output_tokens": 5, "cost_usd": "0.10"}
        return {"usage": {**whole, **changed}}

    usages: list[Any] = [
        usage(),
        usage(cost_usd=None),
        usage(cost_usd="0.2"),
        usage(model="l"),
        usage(provider="o", cost_usd="3.00"),
        *(usage(**{name: None}) for name in ("provider", "model", "input_tokens", "output_tokens")),
        usage(input_tokens="3"),
        usage(output_tokens=1.5),
        usage(cost_usd=0.1),
        usage(cost_usd="x"),
        {"usage": None},
        {"usage": {}},
        usage(more=1),
    ]
    told = [
        *((E.AGENT_ANSWERED, each) for each in usages),
        (E.STEP_SUCCEEDED, {"writes": ["a", "b"]}),
        (E.STEP_SUCCEEDED, {"writes": []}),
        (E.STEP_SUCCEEDED, {}),
        (E.CHECKPOINT_COMMITTED, {"number": 0, "digest": "x"}),
        (E.STEP_SUCCEEDED, {"writes": ["b"]}),
        (E.STEP_SUCCEEDED, {"writes": ["c"]}),
        (E.STEP_FAILED, {"writes": ["d"]}),
        (E.STEP_SUCCEEDED, {"writes": "a"}),
        (E.STEP_SUCCEEDED, {"writes": ["a", 1]}),
        (E.CHECKPOINT_COMMITTED, {"number": 1, "digest": "y", "more": 1}),
        (E.RUN_EXTENDED, {}),
        (E.CHECKPOINT_COMMITTED, {"number": 2}),
        (E.RUN_REOPENED, {}),
        (E.RUN_EXTENDED, {}),
        (E.CHECKPOINT_COMMITTED, {"number": 3}),
        (E.CHECKPOINT_COMMITTED, {"number": 4}),
        (E.DECISION_MADE, DECIDED),
    ]
    rollup, early = Rollup(), Rollup()
    for event in history(*told):
        rollup.observe(event)
    for event in history((E.RUN_EXTENDED, {}), (E.CHECKPOINT_COMMITTED, {"number": 0})):
        early.observe(event)
    assert early.checkpoints[0]["source"] == "input"
    found = {
        "decisions": rollup.decisions,
        "checkpoints": rollup.checkpoints,
        "problems": rollup.problems,
        "costs": rollup.costs(),
        "no costs": early.costs(),
    }
    as_it_was(EXPECTED.with_name("every_sum.json"), found)


def test_what_commits_to_a_value_is_its_path_beside_its_commitment() -> None:
    bound = commit(KEY, "/a", 1)
    right, told = ["/a", bound], f"{disclosure(KEY, '/a', 1)}\n".encode()
    report: Any = None

    def row(kind: EventType, **data: Any) -> Any:
        check = Crosscheck(HeldFiles({layout.DISCLOSURES: told}))
        for event in history((kind, data)):
            check.observe(event)
        return outcome(dict(check.checks(report))["disclosures"])

    fine = "1 values disclosed as committed; {} commitments in all"
    stray = "InputError: disclosures.txt: nothing commits to what is disclosed: /a"
    wrong: list[Any] = [["/a"], ["/a", bound, 1], [5, bound], ["/a", 5], "/a", {"/a": bound}, ["/b", bound], []]
    for others in (wrong, wrong[::-1]):
        assert row(E.STEP_STARTED, committed=[*others, right]) == fine.format(2)
        assert row(E.STEP_STARTED, committed=others) == stray
    for held in (right, {"/a": bound}, "/a", None, 5):
        assert row(E.STEP_STARTED, committed=held) == stray
    assert row(E.STEP_STARTED, committed=[right, right]) == fine.format(2)
    for card, many in (("c", 2), (None, 1), (5, 1)):
        asked = {"approval": "a1", "action": "A", "card": card}
        assert row(E.APPROVAL_REQUESTED, **asked, committed=[right]) == fine.format(many)


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        (b"%s\n%s\n", None),
        (b"%s\n%s", "does not end with a newline"),
        (b"%s\n%s\n ", "does not end with a newline"),
        (b"%s\n%s\r", "does not end with a newline"),
        (b"%s\n%s\n\xff\n", "is not ASCII"),
    ],
)
def test_no_line_of_the_disclosures_is_left_unread(told: bytes, fault: str | None) -> None:
    pairs = [("/a", 1), ("/b", 2)]
    held = told % tuple(disclosure(KEY, *pair).encode() for pair in pairs)
    check = Crosscheck(HeldFiles({layout.DISCLOSURES: held}))
    for event in history((E.STEP_STARTED, {"committed": [[path, commit(KEY, path, value)] for path, value in pairs]})):
        check.observe(event)
    report: Any = None
    fine = "2 values disclosed as committed; 2 commitments in all"
    said = fine if fault is None else f"InputError: disclosures.txt: {fault}"
    assert outcome(dict(check.checks(report))["disclosures"]) == said


def text64(value: Any) -> str:
    return (
        base64.urlsafe_b64encode(value if isinstance(value, bytes) else json.dumps(value).encode())
        .rstrip(b"=")
        .decode()
    )


class Bucket:
    """A client of S3 that notes requests, and answers or raises what it was made with."""

    def __init__(self, put: Any, get: Any = None) -> None:
        self.answers, self.asked = {"put": put, "get": get}, list[Any]()

    def put_object(self, **request: Any) -> Any:
        return self._answer("put", request)

    def get_object(self, **request: Any) -> Any:
        return self._answer("get", request)

    def _answer(self, name: str, request: dict[str, Any]) -> Any:
        self.asked.append([name, {key: str(value) for key, value in request.items()}])
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Body:
    """The body of an answer of S3."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self.data = b""

    def read(self) -> bytes:
        return self.data


async def buckets() -> dict[str, Any]:
    """Put and get a blob while S3 answers in each of its ways."""

    def refuse(code: str | None) -> ClientError:
        return ClientError({"Error": {} if code is None else {"Code": code}}, "PutObject")

    data, digest = b"data", sha256_hex(b"data")
    found: dict[str, Any] = {}
    codes = (
        "PreconditionFailed",
        "412",
        "NoSuchKey",
        "NoSuchVersion",
        "404",
        "MethodNotAllowed",
        "405",
        "NoSuchBucket",
        "AccessDenied",
        "403",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "SlowDown",
        "409",
        None,
    )
    answers: dict[str, Any] = {f"{code}": refuse(code) for code in codes}
    answers |= {
        "away": EndpointConnectionError(endpoint_url="http://s3"),
        "no version": {},
        "null version": {"VersionId": "null"},
        "version": {"VersionId": "v7"},
    }
    for name, answer in answers.items():
        for held in (b"data", b"other"):
            got = (
                answer
                if isinstance(answer, Exception) and name not in ("PreconditionFailed", "412")
                else {"Body": Body(held)}
            )
            client = Bucket(answer, got if isinstance(got, Exception) else {**got, "VersionId": "v9"})
            store = S3BlobStore(client, "b1", "f1", retention=Retention(LockMode.COMPLIANCE, 30), now=lambda: AT)
            told = []
            for call in (store.put("run/x", data, digest), store.get(StoredBlob("s3://b1/f1/run/x", "v1", digest))):
                try:
                    told.append(to_builtins(await call) if not isinstance(call, str) else call)
                except CountersealError as error:
                    told.append(f"{type(error).__name__}: {error}")
            found[f"s3 {name}, holds {held.decode()}"] = [str(each) for each in told]
            found[f"s3 {name}, holds {held.decode()}, asked"] = client.asked
    plain = Bucket({}, {"Body": Body(data)})
    store = S3BlobStore(plain, "b1")
    await store.put("x", data, digest)
    await store.get(StoredBlob("s3://b1/x", None, digest))
    found["s3 without a lock, a folder and a version"] = plain.asked
    return found


def key_told(pem: bytes) -> list[str]:
    key = PublicKey.from_pem(pem)
    return [str(key.algorithm), key.key_id]


def lines_of(files: HeldFiles, name: str) -> list[str]:
    return [each.decode() for each in files.lines(name, 3)]


async def test_values_keys_and_stores_are_refused_as_they_were(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    salt = "0" * 32
    for name, text in {
        "whole": text64([salt, "/a", {"b": 1}]),
        "null": text64([salt, "/a", None]),
        "short salt": text64(["0" * 31, "/a", 1]),
        "long salt": text64(["0" * 33, "/a", 1]),
        "no path": text64([salt, 5, 1]),
        "more": text64([salt, "/a", 1, 2]),
        "less": text64([salt, "/a"]),
        "an object": text64({}),
        "padded": text64([salt, "/ab", 1]) + "=",
        "other alphabet": "+/+/",
        "one letter": "A",
        "loose bits": "AB",
        "no JSON": text64(b"x"),
        "empty": "",
    }.items():
        found[f"disclosure: {name}"] = to_builtins(outcome(open_disclosure, text))
    found["commitments"] = [
        commit(KEY, "/a", 1),
        commit(KEY, "/b", 1),
        commit(KEY, "/a", "é"),
        commit(b"l" * 32, "/a", 1),
        blind(KEY, "d"),
        blind(b"l" * 32, "d"),
        commit_paths(KEY, [("/b", 1), ("/a", [1.5])]),
        commit_fields(KEY, "/p", {"b": 1, "a/~": None}),
        disclosure(KEY, "/a", {"x": 1}),
        path_of("a", "b/c~d", ""),
        reason_path("a1", "p/1", "t"),
    ]
    key = FileSigner(ed25519.Ed25519PrivateKey.from_private_bytes(b"\7" * 32))
    other = FileSigner(ed25519.Ed25519PrivateKey.from_private_bytes(b"\6" * 32))
    good = seal_envelope("t", b"payload", key)
    whole = json.loads(good)
    [signed] = whole["signatures"]
    changed: dict[str, Any] = {
        "good": good,
        "another key": seal_envelope("t", b"payload", other),
        "another type": seal_envelope("u", b"payload", key),
        "another payload": canonical_bytes({**whole, "payload": base64.b64encode(b"other").decode()}),
        "a key's name": canonical_bytes({**whole, "signatures": [{**signed, "keyid": "x"}]}),
        "two signatures": canonical_bytes({**whole, "signatures": [signed, signed]}),
        "no signature": canonical_bytes({**whole, "signatures": []}),
        "not base64": canonical_bytes({**whole, "payload": "!"}),
        "spaces": json.dumps(whole).encode(),
        "more": canonical_bytes({**whole, "x": 1}),
        "a list": b"[]",
        "nothing": b"",
        "a type of 5": canonical_bytes({**whole, "payloadType": 5}),
    }
    for name, envelope in changed.items():
        found[f"envelope: {name}"] = str(outcome(open_envelope, envelope, "t", key.public_key))
    found["pae"] = pae("té", b"xyz").decode()
    info = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    curves = {"p256": ec.SECP256R1(), "p384": ec.SECP384R1()}
    for name, curve in curves.items():
        pem = ec.derive_private_key(7, curve).public_key().public_bytes(*info)
        found[f"key {name}"] = str(outcome(key_told, pem))
    found["key of words"] = outcome(PublicKey.from_pem, b"x", where="k.pem")
    digest = sha256_hex(b"x")
    keys = (
        "a",
        "a/b=c",
        "a" * 128,
        "a" * 129,
        "/".join(["a" * 127] * 4),
        "/".join(["a" * 127] * 4) + "b",
        "/".join(["a" * 127] * 4) + "/b",
        "",
        "a//b",
        ".a",
        "-a",
        "a/",
    )
    found["keys"] = {one: outcome(check_put, one, b"x", digest) for one in keys}
    found["digest"] = outcome(check_put, "a", b"y", digest)
    found["got"] = outcome(check_got, StoredBlob("file:a", None, digest), b"y")
    for uri in ("file:a/b", "file:", "s3://x", "a", "file:../x", "file:" + "x" * 300):
        found[f"uri {uri[:20]}"] = outcome(key_of, StoredBlob(uri, None, digest), "file:")
    files = HeldFiles({"a": b"x\ny\n", "b": b"x\ny", "c": b"", "d": b"xxxx\n"})
    for name in "abcdz":
        found[f"lines of {name}"] = outcome(lines_of, files, name)
    found |= await buckets()
    as_it_was(EXPECTED, found)


def test_names_of_files_and_the_readme_are_as_they_were() -> None:
    assert layout.text_file("policy", "p", 3) == "policy/p-3.yaml"
    assert layout.record_file("receipts", "r") == "receipts/r.json"
    for name in ("policy/a.yaml", "workflow/a.yaml", "approvals/a.json", "receipts/a.json"):
        assert layout.OTHERS.fullmatch(name)
    for name in ("policy/a.json", "receipts/a.yaml", "policy/a/b.yaml", "policy/.yaml", "x/a.json"):
        assert bool(layout.OTHERS.fullmatch(name)) is False
    for length, fits in ((128, True), (129, False)):
        assert bool(layout.NAME.fullmatch("a" * length)) is bool(layout.NAME.fullmatch(f"b/{'a' * length}")) is fits
        assert bool(layout.NAME.fullmatch(f"{'a' * length}/b")) is fits
    told = {each: layout.readme("run-1", "acme", "f" * 64, each) for each in ("ed25519", "ecdsa-p256-sha256")}
    for algorithm, words in told.items():
        assert [word in words for word in ("run-1", "acme", "f" * 64, layout._OPENSSL[algorithm])] == [True] * 4
    assert told["ed25519"].replace(layout._OPENSSL["ed25519"], "") == told["ecdsa-p256-sha256"].replace(
        layout._OPENSSL["ecdsa-p256-sha256"], ""
    )
    assert len({*events.REQUIRED_DATA}) == len(events.REQUIRED_DATA)
