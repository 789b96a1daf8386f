"""Commands by themselves, whole: what each asks of the runtime, with every option and with none; what it prints of it.

``whole_cli_alone_*.json`` hold, for each command line, its exit code, what it printed, and the calls that it made.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec import structs, to_builtins

import app.faces
from app import access, adapters, definitions, doctor, logins, processes, shown, storage
from app.cli import context, runs
from app.demo import story
from app.doctor import Check, State
from app.logins import Logins
from app.settings import Settings
from approvals.content import Agent, CardState
from approvals.fields import FormProblem
from approvals.model import ApprovalKind, CardView, TaskAnswer, TaskState
from core.errors import TransportError
from core.terms import Stopped
from evidence.chain import Actor
from policy.sets import PolicySet
from runtime.engine.pausing import Pause
from runtime.engine.workflow import Workflow
from runtime.keep import bundling
from runtime.queue.port import Depth
from runtime.requests import pausing, policies, publishing, retrying, signaling, starting, steering
from runtime.requests.looking import ReplayReport, Seen
from runtime.requests.pausing import Changed
from runtime.requests.policies import Published
from runtime.requests.publishing import Retired
from runtime.requests.signaling import SignalAnswer, SignalCode
from runtime.requests.starting import Started
from runtime.requests.steering import Extended
from runtime.requests.voting import VoteAnswer
from runtime.store import (
    approvals,
    audit,
    documents,
    outbox,
    queue_reads,
    read_models,
    tasks,
    tenants,
    tokens,
    unavailable,
)
from runtime.store.documents import PublishedVersion
from runtime.store.queue_reads import CapQueue, LaneQueue, MessageQueue, TenantQueue
from runtime.store.tasks import StoredTask
from runtime.store.unavailable import Unavailable
from tests.app.conftest import Command
from tests.app.test_shown_alone import CARD, ROW, TASK, VIEW
from tests.app.test_telling import AGENT, TURN
from tests.support.whole import as_it_was

HERE = Path(__file__).parent
ID, RUN = UUID(int=1), UUID(int=2)
# Each time is another: none may stand in the place of a second one.
AT, LATER, LAST, GONE = (datetime(2026, 1, day, 3, 4, 5, tzinfo=UTC) for day in (2, 3, 4, 5))
A, R = str(ID), str(RUN)
# Text from outside may hold it: a terminal would carry it out.
ESCAPE = "\x1b[2J"
CAPS = {"max_concurrency": 3, "max_runs_per_min": None, "max_writes_per_run": 0, "weight": 0.5}
TENANT = {"tenant_id": "acme", **CAPS, "policy_digests": ["d1"], "created_at": AT, "stream_id": ID}
ERROR = {"code": "refused", "step": "s", "by": "ann", "message": "No."}
STEP = {"step_id": ID, "step_key": "s", "operation": "a.b.c", "attempt": 2, "next_eligible_at": AT, "last_error": None}
STEPS = [{**STEP, "status": "failed_retryable", "last_error": ERROR}, {**STEP, "step_key": "t", "status": "succeeded"}]
RECEIPT = {
    "step_key": "s", "operation": "a.b.c", "target": "t/1", "status": "succeeded", "attempt": 2, "reversible": True,
    "resolution": None, "action": {"summary": "Set it", "input": {"a": 1}, "decision": "d"}, "late": [],
}  # fmt: skip
RUN_ROW = {
    "run_id": RUN, "reference": "R1", "workflow": "w", "workflow_version": 3, "status": "succeeded", "version": 9,
    "requested_by": "tess", "created_at": AT, "finished_at": LATER, "bundle": {"uri": "file:b", "sha256": "e" * 64},
    "evidence_problem": None, "parent_run_id": None, "result": None, "editions": ["b"], "waiting_for": None,
    "open_until": None, "purged_at": None, "error": None,
}  # fmt: skip
RICH = {
    **RUN_ROW, "status": "failed_terminal", "finished_at": None, "evidence_problem": "It is too large.",
    "parent_run_id": ID, "result": {"b": 1}, "editions": ["a", "b"], "waiting_for": "slots", "open_until": LAST,
    "purged_at": GONE, "error": {"message": "Gone."}, "bundle": None,
}  # fmt: skip
LINE = json.dumps({"ts": "t", "type": "run.started", "actor": {"kind": "person", "id": "tess"}, "step": None}).encode()
AGENTS = [{**AGENT, "turns": [{**TURN, "says": f"Let {ESCAPE}me."}]}, {**AGENT, "step_key": "u", "turns": []}]
LATE = [{"says": "It did."}]
NEXT = json.dumps({"ts": "u", "type": "step.started", "actor": {"kind": "worker", "id": "H:7"}, "step": "s/1"}).encode()
CHECKPOINTS = {
    number: {
        "superstep": number, "created_at": AT, "digest": f"d{number}", "source": "loop", "versions_seen": {},
        "writes": [{"step": "s", "channel": "c", "value": number}] if number else [],
        "state": {"channels": {"c": number}, "list": ["x", {"y": 1}], "text": "z"},
    }
    for number in (1, 2)
}  # fmt: skip
WAIT = {"wait_id": ID, "step_key": "s", "kind": "signal", "status": "waiting", "correlation_key": "k", "due_at": AT,
        "token": "t"}  # fmt: skip
WAITS = [WAIT, {**WAIT, "wait_id": RUN, "step_key": "u", "status": "completed"}]
QUEUES = [
    TenantQueue(
        "acme", 2.0, 16, 5, 9, 4,
        (LaneQueue("main", 1.0, 2, 61.0, 1, 4, 1, {"approval": 2, "signal": 1}),
         LaneQueue("side", 1.0, 3, None, 2, 8, 2, {})),
        (CapQueue("wide", 3, 1, 6, 7, 2), CapQueue("free", None, 0, 1), CapQueue("spent", 2, 2, 1, 7, 0)),
        (MessageQueue("card", "pending", 6, 3600.0), MessageQueue("card", "failed", 1, 5.0)),
    ),
    TenantQueue(
        "other", 1.0, 8, 0, 0, 0, (), (CapQueue("narrow", 0, 0, 4, 0, 0),), (MessageQueue("note", "pending", 2, 59.0),),
    ),
    TenantQueue("third", 1.0, 8, 0, None, None, (), (), ()),
]  # fmt: skip
VERSIONS = [
    PublishedVersion("w", 2, "d2", "ann", AT, None, ("a.b.c",), ("a", "b")),
    PublishedVersion("w", 1, "d1", "bob", LATER, LAST, (), ()),
]
SHOWN = {
    "name": "w", "version": 2, "digest": "d2", "published_by": "ann", "published_at": AT, "retired_at": None,
    "operations": {"a.b.c": "o1"}, "connectors": ["a"], "source": "workflow: w\n", "definition_digest": None,
    "outline": None, "problem": f"It is too {ESCAPE}new.",
}  # fmt: skip
PUBLISHED = Published("w", 2, "0123456789abcdef", True, warnings=("Nobody decides.",))


# The functions that both the commands and the HTTP routes ask.
REQUESTS = (
    (starting, "start_named"),
    (retrying, "retry_run"),
    (steering, "close_run", "cancel_run"),
    (read_models, "runs_page", "run", "bundle", "waits_page", "policy_versions"),
    (queue_reads, "queues"),
    (pausing, "listed", "of_run", "pause", "resume"),
    (approvals, "approvals_page", "approval"),
    (tasks, "page", "read"),
    (publishing, "publish_workflow", "retire_workflow"),
    (policies, "publish_policy", "retire_policy", "activate_policy"),
    (documents, "workflow_versions"),
    (unavailable, "listed"),
    (audit, "record"),
)


class Office:
    """An installation that keeps whatever is asked of it, and answers from ``answers`` by the name of the question."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.calls: list[Any] = []
        self.answers: dict[str, Any] = {}
        self.database = self
        self.definitions = SimpleNamespace(catalog="catalog")
        self.voting = self._asked("vote", "view")
        self.tasks = self._asked("complete", "view")
        self.looking = self._asked("at", "lines", "waits", "checkpoints", "replay", "trigger", "editions")
        self.settings: Any = None

    def keep(self, name: str, *given: Any, **named: Any) -> Any:
        """Keep a call, and answer it."""
        plain = [self._plain(one) for one in given]
        self.calls.append([name, *plain, *([{key: self._plain(one) for key, one in named.items()}] if named else [])])
        answer = self.answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        return next(answer) if isinstance(answer, cycle) else answer

    def _plain(self, value: Any) -> Any:
        if isinstance(value, frozenset):
            return sorted(value)
        known = {id(self): "database", id(self.definitions): "definitions"}
        if isinstance(value, Settings | CardView | Workflow | SimpleNamespace):
            known[id(value)] = known.get(id(value), type(value).__name__)
        return known.get(id(value)) or to_builtins(value, enc_hook=str)

    def _asked(self, *names: str) -> Any:
        return SimpleNamespace(**{name: self.function(name) for name in names})

    def function(self, name: str) -> Any:
        """A coroutine function that keeps its calls."""

        async def asked(*given: Any, **named: Any) -> Any:
            return self.keep(name, *given, **named)

        return asked

    def service(self, verb: str) -> Any:
        """In place of a service that is made for one call."""
        return lambda database, definitions: SimpleNamespace(**{verb: self.function(verb)})

    def directory(self, tenant: str) -> Any:
        """The people of a tenant, of whom all or none are members."""

        async def membership(person: str, wanted: Any) -> Any:
            members = self.keep("membership", tenant, person, [one.group for one in wanted])
            return SimpleNamespace(groups=self.answers.get("members", members))

        return SimpleNamespace(membership=membership)

    def take(self, module: Any, *names: str) -> None:
        """Answer in place of these functions."""
        for name in names:
            self._monkeypatch.setattr(module, name, self.function(name))

    async def ask(self, tenant: str, function: Any, *given: Any, **named: Any) -> Any:
        return await function(f"of {tenant}", tenant, *given, **named)

    @asynccontextmanager
    async def transaction(self, tenant: str = "") -> AsyncIterator[str]:
        yield f"of {tenant}" if tenant else "of all"

    @asynccontextmanager
    async def build(self, settings: Any, *, new_tenant: bool = False) -> AsyncIterator[Office]:
        """In place of ``build_faces``."""
        self.settings = settings
        if new_tenant:
            self.calls.append("makes a tenant")
        yield self

    @asynccontextmanager
    async def server(self, settings: Any) -> AsyncIterator[Logins]:
        """In place of ``storage.server``."""
        yield Logins("faces", "engine", "owner")

    @asynccontextmanager
    async def overview(self, tenant: str | None = None) -> AsyncIterator[tuple[Any, Any]]:
        """In place of ``context.overview``."""
        self.calls.append(["overview", tenant])
        yield SimpleNamespace(sqs_queue_url=self.answers.get("sqs")), self


@pytest.fixture
def office(
    monkeypatch: pytest.MonkeyPatch, clean_environment: pytest.MonkeyPatch, restored_logging: None, tmp_path: Path
) -> Office:
    """An installation of the tenant ``acme``, in a folder of its own."""
    found = Office(monkeypatch)
    for name, value in (("TENANT", "acme"), ("WORKSPACE", "yard"), ("PERSON", "tess"), ("HOME", "home")):
        clean_environment.setenv(f"COUNTERSEAL_{name}", value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app.faces, "build_faces", found.build)
    monkeypatch.setattr(context, "overview", found.overview)
    monkeypatch.setattr(storage, "server", found.server)
    monkeypatch.setattr(storage, "head_revision", lambda: "0009")
    monkeypatch.setattr(signaling, "Signaling", found.service("signal"))
    monkeypatch.setattr(steering, "Extending", found.service("extend"))
    for module, *names in (
        *REQUESTS,
        (tokens, "listed"),
        (access, "create_token", "revoke_token"),
        (publishing, "ensure_tenant", "publish_directory"),
        (definitions, "describe", "standing"),
        (outbox, "send_again"),
        (tenants, "listed"),
        (bundling, "write_again"),
        (adapters, "queue_depths"),
        (doctor, "examine"),
        (storage, "schema_revision", "upgrade"),
        (shown, "may_see_all"),
    ):
        found.take(module, *names)
    return found


TOKEN = access.NewToken("cst_x", "ann", AT)
TOKEN_ROW = {
    "token": "a1", "subject": "ann", "roles": ["admin"], "created_at": AT, "expires_at": LATER, "ended": "left",
}  # fmt: skip
SIGNAL = ("signal", "send", "k", "--output", '{"a": 1}', "--id", "i", "--token", "t", "--version", "5")
REFUSED = VoteAnswer(False, "stale", "It is old.", "requested", RUN)
COUNTED = VoteAnswer(True, "counted", "Thank you.", "approved", RUN)
STARTED = Started(RUN, True, "R1", "slots")
# The command line, its exit code, and the answers to what it asks.
Case = tuple[tuple[str, ...], int, dict[str, Any]]
OF_RUNS: list[Case] = [
    (("run", "start", "w"), 0, {"start_named": STARTED}),
    (
        ("run", "start", "w", "--input", '{"a": 1}', "--version", "3", "--key", "k", "--workspace", "side", "--open",
         "--until", "2030-01-01T00:00:00+00:00"),
        0, {"start_named": STARTED},
    ),
    (("run", "start", "w", "--key", "k", "--until", "soon"), 2, {}),
    (("run", "start", "w", "--key", "k", "--workspace", "No"), 2, {}),
    (("run", "start", "w", "--input", "[]"), 2, {}),
    (("run", "list"), 0, {"runs_page": [RUN_ROW]}),
    (
        ("run", "list", "--status", "failed_terminal", "--workflow", "w", "--reference", "r", "--limit", "7"),
        0, {"runs_page": []},
    ),
    *(
        (("run", "list", f"--{name}", value), 0, {"runs_page": [RUN_ROW, RICH]})
        for name, value in (("status", "running"), ("workflow", "w"), ("reference", "r"))
    ),
    (("run", "list", "--status", "bad"), 2, {}),
    *(
        (
            ("run", "show", R), 0,
            {"at": seen, "lines": [LINE, NEXT], "run": row, "of_run": held, "approvals_page": [ROW]},
        )
        for seen, row, held in (
            (Seen([], [], [], [], 0), RUN_ROW, []),
            (
                Seen(STEPS, [RECEIPT, {**RECEIPT, "late": LATE}], [], [], 7, channels={"c": 1}, agents=AGENTS), RICH,
                [Pause(Stopped.CONNECTOR, "probe", "ann", "Look.", AT)],
            ),
            (
                Seen([{**STEP, "status": "failed_terminal"}], [], [], [], 1), RUN_ROW,
                [Pause(Stopped.TENANT, "", "ann", "All.", AT), Pause(Stopped.RUN, R, "bob", "One.", AT)],
            ),
            (Seen([{**STEP, "status": "failed_terminal"}] * 2, [], [], [], 1), {**RUN_ROW, "result": 0}, []),
        )
    ),
    (("run", "show", R, "--at", "2"), 0, {"checkpoints": [CHECKPOINTS[2]]}),
    (("run", "show", R, "--at", "2", "--json"), 0, {"checkpoints": [CHECKPOINTS[2]]}),
    (("run", "diff", R, "1", "2"), 0, {"checkpoints": [CHECKPOINTS[1], CHECKPOINTS[2]]}),
    (("run", "diff", R, "2", "2"), 0, {"checkpoints": [CHECKPOINTS[2], CHECKPOINTS[2]]}),
    (("run", "diff", R, "2", "1"), 0, {"checkpoints": [CHECKPOINTS[2], CHECKPOINTS[1]]}),
    *(
        (("run", "replay", R, *more), 0 if report.ok else 1, {"replay": report})
        for more in ((), ("--json",))
        for report in (
            ReplayReport(RUN, "succeeded", 4),
            ReplayReport(RUN, "succeeded", 4, "Line 3 differs."),
            ReplayReport(RUN, "succeeded", 0, None, AT),
        )
    ),
    *((("run", verb, R), 0, {f"{verb}_run": "canceled"}) for verb in ("close", "cancel")),
    *((("run", verb, R, "--reason", "Why."), 0, {f"{verb}_run": "running"}) for verb in ("retry", "close", "cancel")),
    *((("run", "waits", R, *more), 0, {"waits": {ID: 3, RUN: 5}, "waits_page": WAITS}) for more in ((), ("--all",))),
    (("run", "extend", R, "more.yaml", "--if-version", "4"), 0, {"extend": Extended(2, ("m",), 5)}),
    *((("run", "extend", R, f"docs/{name}.yaml", "--if-version", "4"), 2, {}) for name in ("list", "broken")),
    *(
        (SIGNAL, {"delivered": 0, "already_ended": 0, "kept": 6}.get(code, 4),
         {"signal": SignalAnswer(code, "i", True, RUN, "s")})
        for code in SignalCode
    ),
    (("signal", "send", "k"), 0, {"signal": SignalAnswer(SignalCode.DELIVERED, "i", False, RUN, "s")}),
    (
        ("signal", "send", "k", "--error", "lost", "--message", "Gone.", "--id", ""),
        0, {"signal": SignalAnswer(SignalCode.ENDED, "i")},
    ),
    *(
        (("signal", "send", "k", *more), 4, {"signal": SignalAnswer(SignalCode.STALE, "i")})
        for more in (("--token", ""), ("--version", "5"))
    ),
    (("signal", "send", "k", "--error", "gone"), 0, {"signal": SignalAnswer(SignalCode.ENDED, "i")}),
    (("signal", "send", "k", "--error", "lost", "--output", "1"), 2, {}),
    (("signal", "send", "k", "--error", "lost", "--output", ""), 2, {}),
    (("signal", "send", "k", "--error", "", "--output", "1"), 2, {}),
    (("signal", "send", "k", "--error", "", "--message", "Gone."), 0, {"signal": SignalAnswer(SignalCode.ENDED, "i")}),
    (("signal", "send", "k", "--output", ""), 2, {}),
    (("signal", "send", "k", "--output", "x"), 2, {}),
    (("signal", "send", "k", "--message", "Gone."), 2, {}),
]  # fmt: skip
FORM: Any = {"type": "object", "properties": {"n": {"type": "integer", "title": "N"},
        "m": {"type": "array", "title": "M", "items": {"type": "string", "enum": ["a", "b"]}}}}  # fmt: skip
FILLED = StoredTask(
    structs.replace(TASK, form=FORM, due_at="", state=TaskState.COMPLETED),
    "acme",
    "main",
    RUN,
    {"n": 1},
    "",
    None,
    None,
    AT,
)
STORED = StoredTask(TASK, "acme", "main", RUN, None, "", None, None, AT)
ROW_SHOWN = {**ROW, "card": CARD.to_json()}
FAULTS = (FormProblem(("n",), "is wrong.", "Mend it."), FormProblem((), f"is {ESCAPE}empty."))
BY_AGENT = structs.replace(
    CARD, title="Same", summary="Same", reverse="", changes=(), inputs=(), sources=(), rules=(),
    agent=Agent("triage", "gpt", 3, "ana", ("mail.read", "crm.look"), "It says so."),
)  # fmt: skip
WORDY = structs.replace(CARD, title="Same", summary="Same as ever", sources=(CARD.sources[0], *CARD.sources[::-1]))
PLAIN = CardView(ID, "n", ApprovalKind.ACTION, CARD, CardState.PENDING)
OF_PEOPLE: list[Case] = [
    (("approval", "list"), 0, {"approvals_page": [ROW_SHOWN]}),
    (("approval", "list", "--status", "all", "--limit", "3"), 0, {"approvals_page": []}),
    (("approval", "list", "--status", "expired"), 0, {"approvals_page": []}),
    (("approval", "list", "--status", "open"), 2, {}),
    (("approval", "show", A), 0, {"approval": ROW_SHOWN, "view": PLAIN, "may_see_all": False}),
    (("approval", "show", A, "--as", "bob"), 0, {"approval": ROW_SHOWN, "view": VIEW, "may_see_all": True}),
    (("approval", "show", A), 0, {"approval": {**ROW, "card": BY_AGENT.to_json()}, "view": PLAIN, "may_see_all": True}),
    (
        ("approval", "show", A, "--as", "eve"),
        0, {"approval": {**ROW, "card": WORDY.to_json()}, "view": PLAIN, "may_see_all": True},
    ),
    (("approval", "show", A, "--as", "bob"), 4, {}),
    (("approval", "approve", A), 0, {"vote": COUNTED}),
    (("approval", "approve", A, "--reason", "Fine.", "--as", "bob"), 4, {"vote": REFUSED}),
    (("approval", "reject", A, "--reason", "No.", "--as", "bob", "--json"), 0, {"vote": COUNTED}),
    (("approval", "reject", A, "--reason", "No."), 4, {"vote": REFUSED}),
    *(
        (("approval", "resolve", A, word, "--reason", "Seen.", "--as", "bob"), 0, {"vote": COUNTED})
        for word in ("happened", "again", "fail")
    ),
    (("approval", "resolve", A, "approve", "--reason", "Seen."), 2, {}),
    (("task", "list"), 0, {"page": [STORED]}),
    (("task", "list", "--state", "all", "--group", "leads", "--limit", "3"), 0, {"page": []}),
    (("task", "list", "--state", "expired"), 0, {"page": []}),
    (("task", "list", "--group", "leads"), 0, {"page": [FILLED]}),
    (("task", "list", "--state", "completed", "--group", "leads"), 0, {"page": [STORED, FILLED]}),
    (("task", "list", "--state", "done"), 2, {}),
    (("task", "complete", A, "--value", '{"n": 1}'), 0, {"complete": TaskAnswer(True, "completed", "Done.")}),
    (
        ("task", "complete", A, "--as", "bob", "-f", "n=7", "-f", "m=a", "-f", "m=b", "-f", "o=x=y"),
        4, {"complete": TaskAnswer(False, "changed", "It is another."), "view": SimpleNamespace(form=FORM)},
    ),
    (
        ("task", "complete", A, "--as", "bob"),
        2, {"complete": TaskAnswer(False, "invalid", "Not yet.", FAULTS), "view": SimpleNamespace(form=FORM)},
    ),
    (
        ("task", "complete", A, "--value", "{}", "--json"), 2,
        {"complete": TaskAnswer(False, "invalid", "Not yet.", FAULTS)},
    ),
    (("task", "complete", A, "-f", "n=1", "-f", "n=2"), 2, {"view": SimpleNamespace(form=FORM)}),
    (("task", "complete", A, "-f", "=1"), 2, {"view": SimpleNamespace(form=FORM)}),
    (
        ("task", "complete", A, "-f", "m= a ", "-f", "n= 7 ", "-f", "o=", "-f", "p= "),
        0, {"complete": TaskAnswer(True, "completed", "Done."), "view": SimpleNamespace(form=FORM)},
    ),
    (("task", "complete", A, "--value", "", "-f", "n=1"), 2, {"view": SimpleNamespace(form=FORM)}),
    (("task", "complete", A, "--value", ""), 2, {"view": SimpleNamespace(form=FORM)}),
    (("task", "complete", A, "-f", "n"), 2, {"view": SimpleNamespace(form=FORM)}),
    (("task", "complete", A, "--value", "[]"), 2, {}),
    (("task", "complete", A, "--value", "{}", "-f", "n=1"), 2, {}),
]  # fmt: skip
WHAT = {"waiting": 1, "in_flight": 2, "delayed": 3}
OF_THE_SERVICE: list[Case] = [
    (("token", "create", "--subject", "ann", "--role", "auditor", "--role", "admin"), 0, {"create_token": TOKEN}),
    (
        ("token", "create", "--subject", "ann", "--role", "author", "--tenant", "other", "--expires", "PT8H", "--json"),
        0, {"create_token": TOKEN},
    ),
    (
        ("token", "create", "--subject", "ann", "--role", "admin", "--role", "admin", "--json"),
        0, {"create_token": TOKEN},
    ),
    (("token", "create", "--subject", "ann", "--role", "owner"), 2, {}),
    (("token", "create", "--subject", "ann", "--role", "admin", "--role", "owner"), 2, {}),
    *((("token", "create", "--subject", "ann", "--role", "admin", "--expires", text), 2, {})
      for text in ("soon", "PT0S", "P4000D")),
    (("token", "create", "--subject", "ann", "--role", "admin", "--tenant", "No"), 2, {}),
    *((("token", "list", *more), 0, {"listed": [TOKEN_ROW]}) for more in ((), ("--tenant", "other"))),
    (("token", "revoke", "cst_x"), 0, {"revoke_token": 2}),
    (("token", "revoke", "abcdef01", "--tenant", "other"), 0, {"revoke_token": 1}),
    (
        ("tenant", "create", "new", "--max-concurrency", "3", "--max-runs-per-min", "4", "--max-writes-per-run", "5",
         "--weight", "6"),
        0, {"ensure_tenant": True, "listed": [TENANT]},
    ),
    (("tenant", "create", "new"), 4, {"ensure_tenant": False, "listed": [TENANT]}),
    (("tenant", "create", "No"), 2, {}),
    (("tenant", "set"), 0, {"ensure_tenant": False, "listed": [TENANT]}),
    (("tenant", "set", "other", "--max-writes-per-run", "0"), 0, {"ensure_tenant": True, "listed": [TENANT]}),
    (("tenant", "list"), 0, {"listed": [TENANT]}),
    (("queue", "status"), 0, {"queues": QUEUES}),
    (("queue", "status", "--tenant", "acme"), 0, {"queues": []}),
    (("queue", "status", "--tenant", ""), 0, {"queues": QUEUES[1:]}),
    *(
        (("queue", "status", *more), 0,
         {"queues": QUEUES[1:], "sqs": "https://q", "queue_depths": {"steps": Depth(1, 2, 3)}})
        for more in ((), ("--json",))
    ),
    *(
        (("queue", "status", *more), 5, {"queues": [], "sqs": "https://q", "queue_depths": TransportError("no SQS")})
        for more in ((), ("--json",))
    ),
    (("queue", "again"), 0, {"send_again": []}),
    (("queue", "again", "--tenant", "", "--kind", ""), 0, {"send_again": []}),
    (
        ("queue", "again", "--tenant", "acme", "--kind", "card"), 0,
        {"send_again": [{"tenant": "acme", "kind": "card", "count": 2}]},
    ),
    (("pause",), 0, {"listed": [Pause(Stopped.CONNECTOR, "probe", "ann", "Look.", AT)]}),
    (("pause", "connector"), 2, {}),
    *(
        (line, 0, {line[0]: Changed(Stopped.CONNECTOR, "known", paused=line[0] == "pause", changed=changed)})
        for changed in (True, False)
        for line in (("pause", "connector", "probe", "--reason", "Look."), ("resume", "connector", "probe"))
    ),
    (("pause", "tenant"), 0, {"pause": Changed(Stopped.TENANT, "", paused=True, changed=True)}),
    (("resume", "tenant", "--reason", "Seen."), 0, {"resume": Changed(Stopped.TENANT, "", paused=False, changed=True)}),
    (("doctor",), 0, {"examine": [Check(str(state), state, "x") for state in State if state is not State.BROKEN]}),
    (("doctor",), 1, {"examine": [Check("a", State.OK, "x"), Check("b", State.BROKEN, "y")]}),
    (("evidence", "get", R, "-o", "b.zip"), 4, {"run": {**RUN_ROW, "status": "running"}}),
    (("evidence", "get", R, "-o", "b.zip"), 4, {"run": RICH, "bundle": None}),
    (("evidence", "get", R, "-o", "b.zip"), 4, {"run": RUN_ROW, "bundle": None}),
    (("evidence", "get", R, "-o", "b.zip"), 4, {}),
    (("evidence", "again", R), 0, {}),
    (("policy", "list"), 0, {"policy_versions": [{"name": "p", "version": 3, "active": True, "published_at": AT}]}),
    (("policy", "list"), 0, {"policy_versions": []}),
    (("task", "show", A), 0, {"read": FILLED}),
    (("task", "show", A), 0, {"read": structs.replace(FILLED, value={})}),
    *((("db", "upgrade"), 0, {"schema_revision": before}) for before in (None, "0001", "0009")),
    (("demo", "--aws", "real"), 2, {}),
    (("demo", "--aws", ""), 2, {}),
]  # fmt: skip
SHOWS = {"at": Seen(STEPS, [RECEIPT], [], [], 7), "lines": [LINE], "run": RUN_ROW, "approvals_page": [ROW]}
FOR_PROGRAMS: list[Case] = [
    (("run", "start", "w"), 0, {"start_named": STARTED}),
    (("run", "list"), 0, {"runs_page": [RUN_ROW]}),
    (("run", "show", R), 0, {**SHOWS, "of_run": [Pause(Stopped.CONNECTOR, "probe", "ann", "Look.", AT)]}),
    (("run", "diff", R, "1", "2"), 0, {"checkpoints": [CHECKPOINTS[1], CHECKPOINTS[2]]}),
    *((("run", verb, R, "--reason", "Why."), 0, {f"{verb}_run": "running"}) for verb in ("retry", "close", "cancel")),
    (("run", "waits", R), 0, {"waits": {ID: 3, RUN: 5}, "waits_page": WAITS}),
    (("run", "extend", R, "more.yaml", "--if-version", "4"), 0, {"extend": Extended(2, ("m",), 5)}),
    (("signal", "send", "k"), 4, {"signal": SignalAnswer(SignalCode.STALE, "i", False, RUN, "s")}),
    (("approval", "list"), 0, {"approvals_page": [ROW_SHOWN]}),
    (("approval", "show", A), 0, {"approval": ROW_SHOWN, "view": VIEW, "may_see_all": True}),
    (("approval", "approve", A), 4, {"vote": REFUSED}),
    (("approval", "resolve", A, "again", "--reason", "Seen."), 0, {"vote": COUNTED}),
    (("task", "list"), 0, {"page": [STORED]}),
    (("task", "show", A), 0, {"read": FILLED}),
    (("token", "list"), 0, {"listed": [TOKEN_ROW]}),
    (("tenant", "create", "new"), 0, {"ensure_tenant": True, "listed": [TENANT]}),
    (("tenant", "set", "--weight", "2"), 0, {"listed": [TENANT]}),
    (("tenant", "list"), 0, {"listed": [TENANT]}),
    (("queue", "status"), 0, {"queues": QUEUES}),
    (("queue", "again"), 0, {"send_again": [{"tenant": "acme", "kind": "card", "count": 2}]}),
    (("pause",), 0, {"listed": [Pause(Stopped.CONNECTOR, "probe", "ann", "Look.", AT)]}),
    *((line, 0, {line[0]: Changed(Stopped.TENANT, "", paused=line[0] == "pause", changed=True)})
      for line in (("pause", "tenant"), ("resume", "tenant"))),
    (("doctor",), 1, {"examine": [Check("b", State.BROKEN, "y")]}),
    (("evidence", "again", R), 0, {}),
    (("directory", "publish", "w.yaml"), 0, {"publish_directory": PUBLISHED}),
    (("policy", "list"), 0, {"policy_versions": [{"name": "p", "version": 3, "active": True, "published_at": AT}]}),
    (("db", "upgrade"), 0, {"schema_revision": "0001"}),
]  # fmt: skip
FOR_PROGRAMS = [((*line, "--json"), code, answers) for line, code, answers in FOR_PROGRAMS]
CHANGES: Any = {
    "rollback_from": 7, "rules": [{"rule": "p/r", "what": f"is {ESCAPE}new"}], "steps": [], "questions": [], "more": {},
    "unread": 0,
}  # fmt: skip
STEP_TOLD: Any = {"step": "s", "operation": "a.b.c", "words": f"always {ESCAPE}denied"}
POLICIES = [
    PUBLISHED,
    Published("p", 2, "0123456789abcdef", False),
    Published("p", 2, "0123456789abcdef", True, questions=3, consequences=CHANGES),
    Published("p", 2, "0123456789abcdef", True, waits=True, questions=3),
    Published("p", 2, "0123456789abcdef", True, staged=True),
    Published("p", 2, "0123456789abcdef", True, dry_run=True, consequences=CHANGES),
    Published("p", 2, "0123456789abcdef", True, dry_run=True, retired=True),
    Published("p", 2, "0123456789abcdef", False, dry_run=True, staged=True, consequences=CHANGES),
]
UNUSABLE = [
    Unavailable("workflow", *(f"{ESCAPE}{each}" for each in ("bad", "bad.yaml", "No."))),
    Unavailable("workflow", "worse", "worse.yaml", "Never."),
]
# What becomes of each of three documents, in their order.
THREE = [
    Published("w", 2, "0123456789abcdef", True, retired=True, warnings=("Nobody decides.",), steps=(STEP_TOLD,)),
    Published("v", 7, "123456789abcdef0", True, warnings=("Somebody decides.", "Anybody decides.")),
    Published("u", 1, "23456789abcdef01", False, retired=True, questions=2),
]
OF_DOCUMENTS: list[Case] = [
    *((("workflow", "list", *more), 0, {"workflow_versions": VERSIONS, "listed": UNUSABLE})
      for more in ((), ("--json",))),
    *((("workflow", "show", "w@2", *more), 0, {"describe": SHOWN, "standing": {"a": "configured"}})
      for more in ((), ("--json",), ("--source",))),
    (("workflow", "show", "w"), 0, {"describe": {**SHOWN, "operations": {}}, "standing": {}}),
    *((("workflow", "show", name), 2, {}) for name in ("w@0", "w@x", "@1", "w@", "w w", "w@12345678", "w@²")),
    (("workflow", "retire", "w"), 2, {}),
    *((("workflow", "retire", "w@2", *more), 0, {"retire_workflow": retired}) for more, retired in (
        ((), Retired("w", 2, True, 1)), ((), Retired("w", 2, False, None)), (("--json",), Retired("w", 2, True, 1)))),
    *((("workflow", "publish", "w.yaml", "docs/more.yaml", "docs/list.yaml", *more), 0,
       {"publish_workflow": cycle(THREE)}) for more in ((), ("--json",))),
    (("workflow", "publish", "w.yaml", "docs/missing.yaml"), 2, {}),
    (("directory", "publish", "w.yaml"), 0, {"publish_directory": PUBLISHED}),
    *((("policy", "publish", "w.yaml"), 0, {"publish_policy": done}) for done in POLICIES),
    (("policy", "publish", "docs/w.yaml", "--stage", "--json"), 0, {"publish_policy": PUBLISHED}),
    (("policy", "publish", "w.yaml", "--dry-run"), 0, {"publish_policy": POLICIES[-1]}),
    *((("policy", "retire", "p", *more), 0, {"retire_policy": done})
      for more, done in (((), POLICIES[0]), (("--dry-run",), POLICIES[1]), (("--json",), POLICIES[2]))),
    *((("policy", "activate", "p@7", *more), 0, {"activate_policy": done})
      for more, done in (((), POLICIES[0]), (("--dry-run",), POLICIES[1]), (("--json",), POLICIES[2]))),
    (("policy", "activate", "q@7"), 0, {"activate_policy": Published("q", 7, "0123456789abcdef", False, waits=True)}),
    (("policy", "activate", "q@8"), 0, {"activate_policy": Published("q", 8, "0123456789abcdef", True, questions=1)}),
    (("policy", "activate", "a@b@12"), 0, {"activate_policy": POLICIES[3]}),
    *((("policy", "activate", name), 2, {}) for name in ("p", "@1", "p@", "p@x", "p@-1", "p@²", "p@1234567890")),
    (("policy", "activate", "p@123456789"), 0, {"activate_policy": POLICIES[3]}),
    (("schema", "nothing"), 4, {}),
]  # fmt: skip


PARTS = {
    "runs": OF_RUNS,
    "people": OF_PEOPLE,
    "service": OF_THE_SERVICE,
    "documents": OF_DOCUMENTS,
    "programs": FOR_PROGRAMS,
}


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The documents that command lines name, and the id of whatever is new."""
    (tmp_path / "docs").mkdir()
    for name, text in (("more", "steps:\n  - {id: m}\n"), ("list", "[]\n"), ("w", "workflow: w\n"), ("broken", "[")):
        for folder in (tmp_path, tmp_path / "docs"):
            (folder / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(runs, "new_id", lambda: "new")


@pytest.mark.req("U-8")
@pytest.mark.parametrize("part", PARTS)
def test_each_command_asks_and_prints_what_it_did(
    office: Office,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    papers: None,
    part: str,
) -> None:
    command, found = Command(capsys, monkeypatch), dict[str, Any]()
    for line, code, answers in PARTS[part]:
        office.calls.clear()
        office.answers = answers
        out = command(*line, exit_code=code)
        name = " ".join(line)
        while name in found:
            name += " (again)"
        found[name] = [
            code,
            _read(out) if "--json" in line else out.splitlines(),
            command.said.splitlines(),
            list(office.calls),
        ]
    as_it_was(HERE / f"whole_cli_alone_{part}.json", found)


# Command lines that are for people only, or have it already.
_FOR_PEOPLE = ("--json", "--source", "demo", "-o", "revoke")


@pytest.mark.req("U-8")
@pytest.mark.parametrize("part", [name for name in PARTS if name != "programs"])
def test_a_program_is_told_what_a_person_is_told(
    office: Office,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    papers: None,
    part: str,
) -> None:
    """Ask the same with ``--json``, and end with the same code."""
    command, wanted = Command(capsys, monkeypatch), json.loads((HERE / f"whole_cli_alone_{part}.json").read_text())
    seen = set[str]()
    for line, code, answers in PARTS[part]:
        name = " ".join(line)
        while name in seen:
            name += " (again)"
        seen.add(name)
        if not wanted[name][3] or any(word in line for word in _FOR_PEOPLE):
            continue
        office.calls.clear()
        office.answers = answers
        out = command(*line, "--json", exit_code=code)
        assert [line, json.loads(json.dumps(office.calls))] == [line, wanted[name][3]]
        assert not out or not str(_read(out)).startswith("no JSON"), line


def _read(out: str) -> Any:
    try:
        return json.loads(out)
    except ValueError:
        return f"no JSON: {out}"


def test_of_a_long_run_everything_is_shown(
    office: Office, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen([{**STEPS[0], "attempt": number} for number in range(300)], [RECEIPT] * 200, [], [], 7, agents=AGENTS)
    office.answers = {**SHOWS, "at": seen, "lines": [LINE] * 400, "of_run": []}
    shown = json.loads(Command(capsys, monkeypatch)("run", "show", R, "--json"))
    counts = {name: len(shown[name]) for name in ("steps", "receipts", "timeline", "agents", "approvals")}
    assert counts == {"steps": 300, "receipts": 200, "timeline": 400, "agents": 2, "approvals": 1}
    assert [step["attempt"] for step in shown["steps"]] == [*range(300)]


def test_the_acting_person_is_the_one_of_the_settings(office: Office) -> None:
    assert context.actor(context.settings()) == Actor("person", "tess")


@pytest.mark.parametrize(
    ("verb", "duties"),
    [("up", ["keep", "serve", "work"]), ("serve", ["serve"]), ("work", ["work"]), ("keep", ["keep"])],
)
def test_a_process_runs_the_parts_of_its_command_and_says_where(
    office: Office, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str, duties: list[str]
) -> None:
    ran: list[Any] = []

    async def run_settings(settings: Any, which: Any, announce: Any) -> None:
        ran.append((settings.tenant, type(which), sorted(which), type(asyncio.get_running_loop()).__module__))
        announce("http://here:1" if "serve" in which else None)

    monkeypatch.setattr(processes, "run_settings", run_settings)
    command, url = Command(capsys, monkeypatch), "http://here:1" if "serve" in duties else None
    place = f" at {url}" if url else ""
    assert command(verb) == f"Counterseal is up ({', '.join(duties)}){place}. Stop it with Ctrl-C.\n"
    assert command(verb, "--json") == f"{json.dumps({'parts': duties, 'url': url})}\n"
    assert ran == [("acme", frozenset, duties, "uvloop")] * 2


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ((), (False, False)),
        (("--auto",), (True, False)),
        (("--aws", "moto"), (False, True)),
        (("--auto", "--aws", "moto"), (True, True)),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_demo_ends_with_its_own_code(
    office: Office,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: tuple[str, ...],
    asked: tuple[bool, bool],
    code: int,
) -> None:
    ran: list[Any] = []

    async def run_demo(*, auto: bool, aws: bool) -> int:
        print("a story")
        ran.append((auto, aws))
        return code

    monkeypatch.setattr(story, "run_demo", run_demo)
    Command(capsys, monkeypatch)("demo", *line, exit_code=code)
    assert ran == [asked]


@pytest.mark.parametrize("renew", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_setup_keeps_the_new_passwords_before_they_count(
    office: Office,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    renew: bool,
    kept: bool,
) -> None:
    command, lines = (
        Command(capsys, monkeypatch),
        [*(["--renew"] if renew else []), *(["--directory", "."] if kept else [])],
    )
    assert command("db", "setup", *lines, exit_code=3) == ""
    assert command.said == (
        "counterseal: COUNTERSEAL_DATABASE_URL is not set. "
        "Set it to the address of the database's owner. The embedded server needs no setup.\n"
    )
    owner = "postgresql://o:p@h/d?sslmode=require"
    made = Logins("postgresql://f:w@h/d", "postgresql://e:w@h/d", owner)
    monkeypatch.setenv("COUNTERSEAL_DATABASE_URL", owner)
    did: list[Any] = []

    def written() -> dict[str, str]:
        return {path.name: path.read_text() for path in tmp_path.glob("*.env")}

    async def make(url: str, found: Any, *, renew: bool, keep: Any) -> None:
        did.append(("make", url, found, renew, list(office.calls)))
        keep()
        did.append(written())

    monkeypatch.setattr(logins, "drawn", lambda url: made if url == owner else None)
    monkeypatch.setattr(storage, "make_logins", make)
    office.calls.clear()
    out = command("db", "setup", *lines)
    told = {
        "faces": "COUNTERSEAL_FACES_DATABASE_URL=postgresql://f:w@h/d\n",
        "engine": "COUNTERSEAL_ENGINE_DATABASE_URL=postgresql://e:w@h/d\n",
    }
    files = {f"{kind}.env": line for kind, line in told.items()} if kept else {}
    assert office.calls == [["upgrade", owner]]
    assert did == [("make", owner, made, renew, [["upgrade", owner]]), files]
    assert out == ("Written to ./faces.env and ./engine.env.\n" if kept else "".join(told.values()))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*.env")} == ({0o600} if kept else set())


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("in_force", [False, True])
def test_a_workflow_is_checked_under_the_policies_in_force_for_people_and_programs(
    office: Office,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    in_force: bool,
    as_json: bool,
) -> None:
    text = "workflow: w\nversion: 1\nreference: r\nsteps: [{id: a, wait: {for: P1D}}]\n"
    (tmp_path / "w.yaml").write_text(text)
    monkeypatch.setattr(context, "policies_in_force", office.function("in force"))
    office.answers = {"in force": (PolicySet(), "catalog")}
    more = [word for word, given in (("--in-force", in_force), ("--json", as_json)) if given]
    assert Command(capsys, monkeypatch)("workflow", "check", "w.yaml", *more)
    assert office.calls == [["in force"]] * in_force
