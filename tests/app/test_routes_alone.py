"""Routes by themselves, whole: what each asks of the runtime, with every part of a request and with none; its answer.

``whole_routes_alone_*.json`` hold, for each request, its status, the headers that mean something, the body, and calls.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.access import Principal
from app.checking import Standing
from app.http import definitions as documents_over_http
from app.http import middleware, runs, signals, signed
from app.http.application import create_app
from app.http.dependencies import encode_cursor
from app.metrics import Metrics
from app.settings import load_settings
from approvals.model import TaskAnswer
from approvals.quorum import RefusalCode
from connectors.catalog import load_catalog
from core.errors import InputError
from core.terms import Stopped
from runtime.definition.workflow import load_workflow
from runtime.engine.pausing import Pause
from runtime.requests import publishing
from runtime.requests.looking import Seen
from runtime.requests.pausing import Changed
from runtime.requests.policies import Published
from runtime.requests.publishing import Retired
from runtime.requests.putting_off import Later
from runtime.requests.signaling import SignalAnswer, SignalCode
from runtime.requests.starting import Started
from runtime.requests.steering import Extended, VersionMoved
from runtime.requests.triggers import Unstarted
from runtime.requests.voting import VoteAnswer
from runtime.store import read_models
from runtime.store.documents import PublishedVersion
from runtime.store.unavailable import Unavailable
from tests.app.test_cli_alone import FAULTS, ID, QUEUES, REQUESTS, RUN, STORED, Office
from tests.app.test_definitions_outline import CALLS
from tests.app.test_http_alone import signed as signed_at
from tests.app.test_shown_alone import ROW, SECRET, VIEW
from tests.support.whole import as_it_was

HERE = Path(__file__).parent
NOW = 1_000_000
TOLD = (
    "location",
    "etag",
    "retry-after",
    "www-authenticate",
    "allow",
    "content-type",
    "content-disposition",
    "content-digest",
    "cache-control",
)
A, R = str(ID), str(RUN)
LATER = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
# Moments that differ, so that one member never stands for another.
D1, D2, D3, D4, D5, D6 = (datetime(2026, 3, day, tzinfo=UTC) for day in range(1, 7))
ROW_OF_A_RUN = {
    "run_id": RUN, "workspace_id": "main", "workflow": "w", "workflow_version": 3, "trigger_type": "http",
    "trigger_ref": "k", "reference": "R1", "requested_by": "ann", "status": "succeeded", "version": 9, "superstep": 4,
    "writes": 2, "error": None, "created_at": D1, "started_at": D2, "finished_at": D3, "purged_at": D4,
    "deadline_at": D5,
}  # fmt: skip
WHOLE_RUN = {
    **ROW_OF_A_RUN, "audit_count": 12, "audit_head": "h", "result": {"a": 1}, "parent_run_id": ID, "children_count": 3,
    "children": [ID], "extensions": 2, "open_until": D6, "waiting_for": "slots", "editions": ["b1", "b2"],
    "bundle": {"name": "b", "uri": "file:b", "sha256": "5" * 64, "bytes": 3}, "evidence_problem": "It is large.",
}  # fmt: skip
STEPS = [
    {
        "step_id": UUID(int=number), "step_key": f"s{number}", "step_index": number, "operation": "a.b.c",
        "superstep": 1, "status": "succeeded", "attempt": 2, "output": {"n": number}, "usage": None,
        "last_error": None, "next_eligible_at": D1, "created_at": D2, "finished_at": D3,
    }
    for number in range(3)
]  # fmt: skip
LATE = {"attempt": 1, "epoch": 2, "known": "k", "sent": "s", "says": "It did."}
RECEIPTS = [
    {
        "receipt_id": UUID(int=number), "step_key": "s", "operation": "a.b.c", "target": "t/1", "idempotency_key": "i",
        "action_digest": "d", "status": "succeeded", "attempt": 2, "reversible": True, "reverse": {"undo": 1},
        "external_id": "x", "output": {"o": 1}, "usage": {"u": 1}, "resolution": "happened", "error": {"e": 1},
        "intended_at": D1, "settled_at": D2, "late": [LATE],
        "action": {"summary": "Set it", "input": {"b": 1, "a": 2}, "decision": "d", "approval": "p"},
    }
    for number in range(2)
]  # fmt: skip
CHECKPOINTS = [
    {
        "superstep": number, "digest": f"d{number}", "state": {"channels": {"c": number}}, "source": "loop",
        "writes": [{"step": "s", "channel": "c", "value": number}], "versions_seen": {"c": number}, "created_at": D1,
    }
    for number in range(3)
]  # fmt: skip
EXTENSIONS = [{"number": number, "actor": "person:ann", "source": {"n": number}, "created_at": D1} for number in (1, 2)]
CALL = {"step_key": "t/1/1", "tool": "look", "source": "crm.look", "asked": "{}", "came": "done", "reason": "r",
        "by": "bob", "status": "succeeded"}  # fmt: skip
AGENTS = [
    {
        "step_key": key, "model": "m", "tools": ["look"], "status": "running", "limit": "turns", "calls": 3,
        "refusals": 4, "tokens": 5, "cost_usd": "0.50",
        "turns": [{"turn": 1, "step_key": "t/1", "status": "succeeded", "came": "calls", "reason": "r", "tokens": 6,
                   "says": "s", "result": {"r": 1}, "calls": [CALL]}],
    }
    for key in ("s", "t")
]  # fmt: skip
SEEN = Seen(STEPS, RECEIPTS, EXTENSIONS, CHECKPOINTS, 2, channels={"c": 2}, agents=AGENTS)
LINES = [
    b'{"ts":"t%d","type":"x","actor":{"kind":"p","id":"ann"},"step":null,"data":{"n":%d}}' % (n, n) for n in (0, 1)
]
LEDGER = [
    {"superstep": 1, "number": number, "step_key": "s", "channel": "c", "value": number, "written_at": D1}
    for number in range(2)
]
AUDITED = [{"seq": number, "append": 7, "type": "x", "line": b"a\xff"} for number in range(2)]
WAITS = [
    {
        "wait_id": which, "step_key": "s", "kind": "signal", "status": "waiting", "correlation_key": "k", "token": "t",
        "due_at": D2, "created_at": D1, "completed_at": D3,
    }
    for which in (ID, RUN)
]  # fmt: skip
STARTED = Started(RUN, True, "R1", "slots")
AGAIN = Started(RUN, False, "R1")
VERSIONS = [
    PublishedVersion("w", 2, "d2", "ann", D1, None, ("a.b.c",), ("a", "b")),
    PublishedVersion("w", 1, "d1", "bob", D2, D3, (), ()),
]
BUNDLE = {"name": "b.zip", "uri": "file:b", "sha256": "5" * 64, "version_id": "v", "bytes": 3, "run_id": RUN}
PUBLISHED = Published("w", 2, "d", True, warnings=("Nobody decides.",), waits=True, questions=3)
FORCE: Any = {"rollback_from": 7, "rules": [{"rule": "p/r", "what": "is new"}], "steps": [], "questions": [],
         "more": {"rules": 1}, "unread": 2}  # fmt: skip
CHANGE = Published("p", 2, "d", True, staged=True, dry_run=True, retired=True, consequences=FORCE)
SHOWN = {
    "name": "w", "version": 2, "digest": "d2", "published_by": "ann", "published_at": D1, "retired_at": D2,
    "operations": {"a.b.c": "o1"}, "connectors": ["a"], "source": "workflow: w\n", "definition_digest": "dd",
    "outline": {"o": 1}, "problem": "It is new.",
}  # fmt: skip
POLICY = {"name": "p", "version": 3, "digest": "d", "published_by": "ann", "published_at": D1, "active": True}


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch, clean_environment: pytest.MonkeyPatch) -> Office:
    """An installation behind its routes; a token is the roles of its owner."""
    found = Office(monkeypatch)
    hooks = {
        "plain": {"secret": "a-webhook-secret"},
        "moved": {"secret": "a-webhook-secret", "tenant": "other", "workspace": "side"},
    }
    # A token may be of another tenant than the one of the settings.
    found.settings = load_settings(tenant="home", workspace="yard", webhooks=hooks)

    async def principal_of(database: Any, token: str) -> Principal:
        assert database is found
        return Principal("acme", "ann", frozenset(token.split("+")))

    monkeypatch.setattr(middleware, "principal_of", principal_of)
    monkeypatch.setattr(signals, "Signaling", found.service("signal"))
    monkeypatch.setattr(signals, "Extending", found.service("extend"))
    for module, *names in (
        *REQUESTS,
        (read_models, "ledger_page", "audit_page", "run_counts"),
        (documents_over_http, "describe", "stand"),
        (signals, "put_off"),
        (signed, "start_from_servicenow"),
    ):
        found.take(module, *names)
    monkeypatch.setattr(publishing, "check_workflow", lambda *given: found.keep("check_workflow", *given))
    monkeypatch.setattr(runs, "new_id", lambda: "new")
    return found


class Asked:
    """One request, and the answers to what it asks: ``roles`` by +, a method and a path, then a body and headers."""

    def __init__(self, line: str, body: Any = None, headers: dict[str, str] | None = None, **answers: Any) -> None:
        self.roles, self.method, self.path = line.split(" ")
        self.line, self.body, self.headers, self.answers = line, body, headers or {}, answers


STEP = {"id": "m", "do": "a.b.c"}
EXTENDED = Extended(2, ("m",), 10)
PAST = encode_cursor([D1, ID])
RUNS = f"/v1/runs/{R}"
OUTLINED = load_workflow(CALLS.replace("version: 1", "version: 6"), "w.yaml", load_catalog())
OF_RUNS = [
    Asked("trigger POST /v1/runs", {"workflow": "w"}, start_named=STARTED),
    Asked("operator POST /v1/runs", {"workflow": "w"}, {"Idempotency-Key": "h"}, start_named=STARTED),
    Asked(
        "admin POST /v1/runs",
        {"workflow": "w", "version": 3, "input": {"a": 1}, "workspace": "side", "idempotency_key": "b", "open": True,
         "until": "2030-01-01T00:00:00Z"},
        {"Idempotency-Key": "b"}, start_named=STARTED,
    ),
    Asked("admin POST /v1/runs", {"workflow": "w", "idempotency_key": "b"}, {"Idempotency-Key": "h"}),
    *(
        Asked("admin POST /v1/runs", {"workflow": "w", "input": {"a": 1}}, start_named=AGAIN, trigger=known)
        for known in ({"a": 1}, {"a": 2}, {}, None)
    ),
    *(
        Asked(f"auditor GET /v1/runs?{one}", runs_page=[ROW_OF_A_RUN])
        for one in ("status=waiting", "workflow=x", "reference=y")
    ),
    Asked("auditor GET /v1/runs?limit=1", runs_page=[ROW_OF_A_RUN, {**ROW_OF_A_RUN, "run_id": ID}]),
    Asked(f"auditor GET /v1/runs?limit=2&cursor={PAST}&status=waiting&workflow=x&reference=y", runs_page=[]),
    Asked("auditor GET /v1/runs", runs_page=[ROW_OF_A_RUN]),
    *(Asked(f"{role} GET {RUNS}", at=SEEN, run=WHOLE_RUN, of_run=[Pause(Stopped.RUN, R, "bob", "Look.", D1)])
      for role in ("auditor", "author")),
    Asked(f"author GET {RUNS}", at=SEEN, run={**WHOLE_RUN, "requested_by": "bob"}),
    Asked(f"auditor GET {RUNS}", at=SEEN, run=None),
    Asked(f"auditor GET {RUNS}/steps?limit=2", at=SEEN),
    Asked(f"auditor GET {RUNS}/steps?cursor={encode_cursor([1, 1, STEPS[1]['step_id']])}", at=SEEN),
    Asked(f"auditor GET {RUNS}/checkpoints?limit=2", at=SEEN),
    Asked(f"auditor GET {RUNS}/checkpoints?limit=2&cursor={encode_cursor([4])}", at=SEEN),
    Asked(f"auditor GET {RUNS}/checkpoints/diff?from=2&to=1", checkpoints=[CHECKPOINTS[2], CHECKPOINTS[1]]),
    Asked(f"auditor GET {RUNS}/checkpoints/7", checkpoints=[CHECKPOINTS[1]]),
    Asked(f"auditor GET {RUNS}/ledger?limit=1", run=WHOLE_RUN, ledger_page=LEDGER),
    Asked(f"auditor GET {RUNS}/ledger?limit=1&cursor={encode_cursor([3, 4])}", run=WHOLE_RUN, ledger_page=[]),
    Asked(f"auditor GET {RUNS}/ledger", run=None),
    Asked(f"auditor GET {RUNS}/receipts?limit=1", at=SEEN),
    Asked(f"auditor GET {RUNS}/receipts?cursor={encode_cursor([D1, RECEIPTS[0]['receipt_id']])}", at=SEEN),
    Asked(f"auditor GET {RUNS}/timeline?limit=1", lines=LINES),
    Asked(f"auditor GET {RUNS}/timeline?cursor={encode_cursor([0])}", lines=LINES),
    Asked(f"auditor GET {RUNS}/timeline?cursor={encode_cursor([-7])}", lines=LINES),
    Asked(f"auditor GET {RUNS}/audit?limit=1", run=WHOLE_RUN, audit_page=AUDITED),
    Asked(f"auditor GET {RUNS}/audit?cursor={encode_cursor([5])}", run=WHOLE_RUN, audit_page=[]),
    Asked(f"auditor GET {RUNS}/audit", run=None),
    *(Asked(f"operator POST {RUNS}/{verb}", body, None, **{f"{verb}_run": "running"})
      for body in ({"reason": "Why."}, {}) for verb in ("cancel", "close", "retry")),
    *(Asked(f"auditor GET {RUNS}/evidence", run={**WHOLE_RUN, **more}, bundle=bundle, get=b"zip") for more, bundle in (
        ({}, BUNDLE), ({}, None), ({"evidence_problem": None}, None), ({"status": "failed_terminal"}, BUNDLE),
        ({"status": "canceled"}, BUNDLE), ({"status": "running"}, BUNDLE), ({"status": "failed_retryable"}, BUNDLE))),
    Asked(f"auditor GET {RUNS}/evidence", run=None),
    Asked(f"auditor GET {RUNS}/agents?limit=1", at=SEEN),
    Asked(f"auditor GET {RUNS}/agents?cursor={encode_cursor(['s'])}", at=SEEN),
    Asked(f"auditor GET {RUNS}/mutations?limit=1", at=SEEN),
    Asked(f"auditor GET {RUNS}/mutations?cursor={encode_cursor([1])}", at=SEEN),
    *(Asked(f"{role} GET {RUNS}/waits?limit=1", waits={ID: 3, RUN: 5}, waits_page=WAITS)
      for role in ("operator", "auditor", "admin")),
    Asked(f"operator GET {RUNS}/waits?cursor={PAST}", waits={ID: 3}, waits_page=WAITS[:1]),
    *(Asked(f"{role} GET {RUNS}/graph", run={**WHOLE_RUN, "requested_by": by}, editions=[None, OUTLINED])
      for role, by in (("auditor", "bob"), ("author", "ann"), ("author", "bob"))),
]  # fmt: skip
EXTEND = f"POST {RUNS}/steps"
SIGNAL = "trigger POST /v1/signals/a%2Fb:c"
OF_SIGNALS = [
    *(Asked(f"operator {EXTEND}", {"steps": [STEP]}, {"If-Match": tag}, run=WHOLE_RUN, extend=EXTENDED)
      for tag in ('"9"', "9", ' "123456789" ', "0", '"9', 'W/"9"', "*", "1234567890", '"9","8"', "")),
    Asked(f"operator {EXTEND}", {"steps": [STEP], "before": ["z"]}, {"If-Match": '"9"'}, run=WHOLE_RUN,
          extend=EXTENDED),
    Asked(f"operator {EXTEND}", {"steps": [STEP]}, run=WHOLE_RUN),
    Asked(f"author {EXTEND}", {"steps": [STEP]}, {"If-Match": '"9"'}, run=WHOLE_RUN, extend=EXTENDED),
    Asked(f"author {EXTEND}", {"steps": [STEP]}, {"If-Match": '"9"'}, run={**WHOLE_RUN, "requested_by": "bob"}),
    Asked(f"operator {EXTEND}", {"steps": [STEP]}, {"If-Match": '"9"'}, run=WHOLE_RUN,
          extend=VersionMoved("It is at 10.", remedy="Look again.")),
    Asked(f"operator {EXTEND}", {"steps": [STEP]}, {"If-Match": '"9"'}, run=None),
    *(Asked(SIGNAL, {"id": "i", "output": 1, "token": "t", "version": 5},
            signal=SignalAnswer(code, "i", True, RUN, "s")) for code in SignalCode),
    Asked(SIGNAL, {}, signal=SignalAnswer(SignalCode.KEPT, "i")),
    Asked(SIGNAL, {"error": {"code": "c", "message": "m"}}, signal=SignalAnswer(SignalCode.STALE, "i")),
    Asked(SIGNAL, {"error": {"code": "c"}, "output": 0}),
    Asked(SIGNAL, {"token": "", "output": ""}, signal=SignalAnswer(SignalCode.STALE, "i")),
    *(Asked(f"{SIGNAL}/extend", body, put_off=Later(RUN, "s", LATER, True))
      for body in ({"for": "P1DT2H", "token": "t"}, {"for": "P1D", "token": ""},
                   {"until": "2030-01-01T00:00:00Z"}, {}, {"for": "soon"},
                   {"for": "P4000D"})),
]  # fmt: skip
VOTES = f"approver POST /v1/approvals/{A}/votes"
COMPLETE = f"approver POST /v1/tasks/{A}/complete"
QUESTION = {**ROW, "card": SECRET.to_json(), "run_id": RUN}
OF_PEOPLE = [
    *(Asked(f"auditor GET /v1/approvals?{one}", approvals_page=[QUESTION])
      for one in ("status=approved", f"run_id={R}")),
    Asked("auditor GET /v1/approvals?limit=1", approvals_page=[QUESTION, {**QUESTION, "approval_id": RUN}]),
    Asked(f"auditor GET /v1/approvals?status=expired&run_id={R}&cursor={PAST}", approvals_page=[]),
    *(Asked(f"{roles} GET /v1/approvals/{A}", approval=QUESTION, view=VIEW, members=True)
      for roles in ("auditor", "approver", "admin+approver")),
    Asked(f"approver GET /v1/approvals/{A}", approval=QUESTION, view=VIEW, members=False),
    Asked(f"auditor GET /v1/approvals/{A}"),
    Asked(VOTES, {"choice": "reject", "reason": "No.", "digest": "d" * 64},
          vote=VoteAnswer(True, "counted", "Thanks.", "rejected", RUN)),
    Asked(VOTES, {"choice": "approve", "digest": "", "reason": ""},
          vote=VoteAnswer(False, "stale", "No.", "requested", RUN)),
    *(Asked(VOTES, {"choice": "approve"}, vote=VoteAnswer(False, code, "No.", "requested", RUN))
      for code in RefusalCode),
    *(Asked(f"auditor GET /v1/tasks?{one}", page=[STORED]) for one in ("state=completed", "group=leads")),
    Asked("auditor GET /v1/tasks?limit=1", page=[STORED, STORED]),
    Asked(f"auditor GET /v1/tasks?state=expired&group=leads&cursor={encode_cursor([RUN])}", page=[]),
    Asked(f"auditor GET /v1/tasks/{A}", read=STORED),
    Asked(COMPLETE, {"value": {"n": 1}}, complete=TaskAnswer(True, "completed", "Done.")),
    *(Asked(COMPLETE, {"value": {}}, complete=TaskAnswer(False, code, "No.", FAULTS if code == "invalid" else ()))
      for code in ("not_assigned", "invalid", "changed", "completed", "expired", "canceled")),
    Asked("auditor GET /v1/pauses", listed=[Pause(Stopped.TENANT, "", "bob", "All.", D1)]),
    Asked("operator POST /v1/pauses", {"what": "connector", "name": "probe", "reason": "Look."},
          pause=Changed(Stopped.CONNECTOR, "probe", True, True)),
    Asked("operator POST /v1/pauses/resume", {"what": "connector", "name": "probe", "reason": "Seen."},
          resume=Changed(Stopped.CONNECTOR, "probe", False, False)),
    Asked("admin POST /v1/pauses/resume", {"what": "tenant"}, resume=Changed(Stopped.TENANT, "", False, True)),
    Asked("trigger GET /readyz", listed=[Pause(Stopped.TENANT, "", "b", "r", D1), Pause(Stopped.RUN, R, "b", "r", D1)]),
    Asked("trigger GET /metrics", queues=QUEUES[2:], run_counts=[("succeeded", 3)]),
    Asked(" GET /healthz"),
    *(Asked(f"admin GET {path}") for path in ("/docs", "/redoc", "/v1/runs/", "/v1/runs?_=1", "/healthz?x=1", "/v1")),
    *(Asked(f" {method} /healthz") for method in ("POST", "DELETE")),
    *(Asked(f" GET {path}") for path in ("/readyz", "/metrics", "/openapi.json", "/v1/runs", "/nowhere", "/healthz/")),
    Asked("trigger GET /v1/runs"),
]  # fmt: skip
DOCUMENT = {"source": "workflow: w\n", "file": "w.yaml"}
OF_DOCUMENTS = [
    Asked("author GET /v1/workflows?name=w", workflow_versions=VERSIONS,
          listed=[Unavailable("workflow", "bad", "bad.yaml", "No.")]),
    Asked("author GET /v1/workflows", workflow_versions=[], listed=[]),
    Asked("author GET /v1/workflows/w/2", describe=SHOWN),
    Asked("author POST /v1/workflows/check", DOCUMENT, check_workflow=OUTLINED, stand=Standing({"a": "b"}, ["Odd."])),
    *(Asked(f"{role} POST /v1/workflows", DOCUMENT, publish_workflow=PUBLISHED)
      for role in ("author", "admin", "admin+author")),
    Asked("author POST /v1/workflows", {"source": "x"}, publish_workflow=Published("w", 2, "d", False, retired=True)),
    Asked("admin POST /v1/workflows/w/2/retire", retire_workflow=Retired("w", 2, True, 1)),
    Asked("auditor GET /v1/policies", policy_versions=[POLICY]),
    Asked("admin POST /v1/policies", DOCUMENT, publish_policy=CHANGE),
    Asked("admin POST /v1/policies?stage=true&dry_run=true", DOCUMENT, publish_policy=CHANGE),
    Asked("admin POST /v1/policies?stage=true", DOCUMENT, publish_policy=Published("p", 2, "d", False)),
    Asked("admin POST /v1/policies?dry_run=true", DOCUMENT, publish_policy=CHANGE),
    *(Asked(f"admin POST /v1/policies/p/retire{more}", retire_policy=CHANGE) for more in ("", "?dry_run=true")),
    *(Asked(f"admin POST /v1/policies/p/3/activate{more}", activate_policy=CHANGE) for more in ("", "?dry_run=true")),
    *(Asked(f"admin POST /v1/policies/p/retire?{one}=true") for one in ("stage", "Dry_Run", "dry_run=true&x")),
    Asked("admin GET /v1/schemas/nothing"),
]  # fmt: skip
HOOK = " POST /webhooks/servicenow/"
EVENT = b'{"table": "incident"}'
UNSTARTED = Unstarted("x", 3, "No.")
OF_HOOKS = [
    *(Asked(f"{HOOK}{name}", EVENT, signed_at(str(NOW), EVENT), start_from_servicenow=([STARTED, AGAIN], []))
      for name in ("plain", "moved", "nobody")),
    *(Asked(f"{HOOK}plain", EVENT, signed_at(str(NOW), EVENT), start_from_servicenow=found) for found in (
        ([], []), ([STARTED], [UNSTARTED]), ([], [UNSTARTED, Unstarted("y", 1, "Nor.")]))),
    Asked(f"{HOOK}moved", EVENT, signed_at(str(NOW - 301), EVENT)),
    Asked(f"{HOOK}moved", EVENT, signed_at(str(NOW), EVENT, "another-secret-of-16")),
    Asked(f"{HOOK}plain", b"[]", signed_at(str(NOW), b"[]")),
    Asked(f"{HOOK}plain", b"x" * 262_145, signed_at(str(NOW), b"x" * 262_145)),
    Asked(f"{HOOK}moved", EVENT, signed_at(str(NOW), EVENT),
          start_from_servicenow=InputError("is odd.", where="table")),
    Asked(" POST /slack/events", b"x"),
]  # fmt: skip
PARTS = {"runs": OF_RUNS, "signals": OF_SIGNALS, "people": OF_PEOPLE, "documents": OF_DOCUMENTS, "hooks": OF_HOOKS}


class KeptMetrics(Metrics):
    """Metrics whose votes and refusals are kept among the calls."""

    def __init__(self, office: Office) -> None:
        super().__init__()
        self._office = office

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count nothing: a request's time is never the same."""

    def vote(self, channel: str, code: str) -> None:
        self._office.keep("counts a vote", str(channel), str(code))

    def refusal(self, face: str, code: str) -> None:
        self._office.keep("counts a refusal", face, code)


def _faces(office: Office) -> Any:
    """Faces of which everything is kept that is asked of them."""
    office.answers = {}
    return SimpleNamespace(
        ask=office.ask,
        database=office,
        settings=office.settings,
        definitions=office.definitions,
        looking=office.looking,
        voting=office.voting,
        tasks=office.tasks,
        blobs=SimpleNamespace(get=office.function("get")),
        refusals=SimpleNamespace(note=office.function("notes a refusal")),
        directory=office.directory,
        metrics=KeptMetrics(office),
        slack=None,
        now=lambda: float(NOW),
    )


@pytest.mark.req("U-8")
@pytest.mark.parametrize("part", PARTS)
async def test_each_route_asks_and_answers_what_it_did(office: Office, part: str) -> None:
    served = httpx.ASGITransport(create_app(_faces(office)))
    found: dict[str, Any] = {}
    async with httpx.AsyncClient(transport=served, base_url="http://here") as client:
        for asked in PARTS[part]:
            office.calls.clear()
            office.answers = asked.answers
            headers = {"Authorization": f"Bearer {asked.roles}"} if asked.roles else {}
            given = {"content": asked.body} if isinstance(asked.body, bytes) else {"json": asked.body}
            answer = await client.request(
                asked.method,
                asked.path,
                headers={**headers, **asked.headers},
                **(given if asked.body is not None else {}),
            )
            name = f"{asked.line} {_short(asked)}".strip()
            while name in found:
                name += " (again)"
            told = {each: answer.headers[each] for each in TOLD if each in answer.headers}
            is_json = told.get("content-type", "").endswith("json")
            body = answer.json() if is_json else answer.text.splitlines()
            found[name] = [answer.status_code, told, body, list(office.calls)]
    as_it_was(HERE / f"whole_routes_alone_{part}.json", found)


def _short(asked: Asked) -> str:
    body = f"{len(asked.body)} bytes" if isinstance(asked.body, bytes) else json.dumps(asked.body) if asked.body else ""
    tags = [value for name, value in asked.headers.items() if name in ("If-Match", "Idempotency-Key")]
    return " ".join([body, *map(repr, tags)])
