"""Spans and figures of what a process did: from the lines of its appends, its calls and its deliveries.

A line holds no value of a run (``evidence.events``), and of its members only ids, codes and names become attributes.
The times of a line are the database's. A span that began in another process has no length here, unless its beginning is
known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct, field

from core import tracing
from core.tracing import Appended, Called, Delivered
from evidence.events import EventType as E

# The number of open steps and questions that are remembered; a forgotten one gets a span without a length.
BEGUN_MAX = 10_000
MILLIS_OF_V7 = 7

ENDS_OF_STEPS: Mapping[str, str] = {
    E.STEP_SUCCEEDED: "succeeded",
    E.STEP_FAILED: "failed",
    E.STEP_HELD: "held",
    E.STEP_RETRY_SCHEDULED: "retry",
    E.STEP_PARKED: "parked",
    E.STEP_CANCELED: "canceled",
    E.STEP_SET_BACK: "set_back",
    E.LEASE_EXPIRED: "lease_expired",
}
ENDS_OF_QUESTIONS: Mapping[str, str] = {
    E.APPROVAL_DECIDED: "",  # the event names it
    E.APPROVAL_EXPIRED: "expired",
    E.APPROVAL_SUPERSEDED: "superseded",
}
ENDS_OF_ACTIONS: Mapping[str, str] = {
    E.ACTION_SUCCEEDED: "succeeded",
    E.ACTION_FAILED: "failed",
    E.ACTION_IN_DOUBT: "in_doubt",
    E.ACTION_HELD: "held",
    E.ACTION_DOUBT_RESOLVED: "doubt_resolved",
    E.ACTION_LATE: "late",
}
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LONG = (1, 5, 15, 60, 300, 900, 3_600, 4 * 3_600, 24 * 3_600, 7 * 24 * 3_600)
"""The buckets of what machines do, and of what people do."""
STEPS, CALLS, DECISIONS = "counterseal.step.duration", "counterseal.call.duration", "counterseal.decision.duration"
HISTOGRAMS: Mapping[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    STEPS: ("Time from a step's lease to its settle", ("operation", "outcome"), SECONDS),
    CALLS: ("Time of a connector's call", ("connector", "outcome"), SECONDS),
    DECISIONS: ("Time from a question to its decision", ("outcome",), LONG),
}
"""The histograms: their words, their labels besides the tenant, and their buckets."""
BAD = frozenset({"failed", "held", "in_doubt", "refused", "not_sent", "undeliverable", "lease_expired"})
"""The outcomes that make a span an error."""


class Span(Struct, frozen=True):
    """One span as it is sent: ids, times in Unix nanoseconds, attributes, and the traces that it is linked to."""

    trace: int
    id: int
    parent: int | None
    name: str
    began: int
    ended: int
    attributes: Mapping[str, str]
    kind: str = "internal"
    links: tuple[tuple[int, int], ...] = ()

    @property
    def is_bad(self) -> bool:
        """True if the span is shown as an error."""
        return self.attributes.get("outcome") in BAD


class Figure(Struct, frozen=True):
    """One measurement of a histogram."""

    name: str
    seconds: float
    attributes: Mapping[str, str]


class _Lease(Struct, frozen=True):
    began: int
    epoch: int
    operation: str


class Spans(Struct):
    """Makes spans and figures. Remembers what has begun in this process, within a bound."""

    _leases: OrderedDict[tuple[UUID, str], _Lease] = field(default_factory=OrderedDict)
    _asked: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def of(self, done: Appended | Called | Delivered) -> Iterator[Span | Figure]:
        """The spans and figures of one append, call or delivery of this process."""
        match done:
            case Appended():
                for line in done.lines:
                    read = orjson.loads(line)
                    yield from self._of_line(done, read, _nanos(datetime.fromisoformat(read["ts"])))
            case Called():
                yield from _of_call(done)
            case Delivered():
                yield _of_message(done)

    def _of_line(self, done: Appended, read: Mapping[str, Any], at: int) -> Iterator[Span | Figure]:
        kind, data, step = read["type"], read["data"], read["step"]
        if kind == E.RUN_OPENED:
            yield _start(done, data, at)
        elif kind == E.RUN_CLOSED:
            yield _run(done, data, at)
        elif kind == E.STEP_STARTED:
            _remember(self._leases, (done.run_id, step), _Lease(at, data["epoch"], data["operation"]))
        elif kind in ENDS_OF_STEPS:
            yield from self._step(done, read, at)
        elif kind == E.APPROVAL_REQUESTED:
            _remember(self._asked, data["approval"], at)
        elif kind == E.APPROVAL_VOTED:
            about = _about(done, step=step, choice=data["choice"], channel=data["channel"])
            within = tracing.span_id(done.run_id, "question", data["approval"])
            yield _span(done, ("vote", data["approval"], read["actor"]["id"], at), within, "vote", at, at, about)
        elif kind in ENDS_OF_QUESTIONS:
            yield from self._question(done, read, at)
        elif kind in ENDS_OF_ACTIONS:
            yield self._receipt(done, read, at)

    def _step(self, done: Appended, read: Mapping[str, Any], at: int) -> Iterator[Span | Figure]:
        """The span of a lease; None if this process did not see it begin."""
        step, outcome = read["step"], "waits" if read["data"].get("waits") else ENDS_OF_STEPS[read["type"]]
        lease = self._leases.pop((done.run_id, step), None)
        if lease is None:
            return
        about = _about(done, step=step, operation=lease.operation, outcome=outcome, code=_code(read["data"]))
        own = ("step", step, *((lease.epoch,) if lease.epoch > 1 else ()))
        within = tracing.step_span(done.run_id, step) if lease.epoch > 1 else tracing.span_id(done.run_id)
        yield _span(done, own, within, f"step {step}", lease.began, at, about)
        labels = {"tenant": done.tenant, "operation": lease.operation, "outcome": outcome}
        yield Figure(STEPS, _seconds(lease.began, at), labels)

    def _question(self, done: Appended, read: Mapping[str, Any], at: int) -> Iterator[Span | Figure]:
        approval, outcome = read["data"]["approval"], ENDS_OF_QUESTIONS[read["type"]] or read["data"]["outcome"]
        asked = self._asked.pop(approval, None)
        decides = done.asked_at is not None and read["type"] == E.APPROVAL_DECIDED
        if decides and done.asked_at is not None:
            asked = _nanos(done.asked_at)
        about = _about(done, step=read["step"], outcome=outcome)
        within = tracing.step_span(done.run_id, read["step"])
        yield _span(done, ("question", approval), within, "question", asked or at, at, about)
        if decides and asked is not None:
            labels = {"tenant": done.tenant, "outcome": outcome}
            yield Figure(DECISIONS, _seconds(asked, at), labels)

    def _receipt(self, done: Appended, read: Mapping[str, Any], at: int) -> Span:
        step, outcome = read["step"], ENDS_OF_ACTIONS[read["type"]]
        lease = self._leases.get((done.run_id, step))
        within = tracing.step_span(done.run_id, step)
        operation = ""
        if lease is not None:
            within, operation = tracing.call_span(done.run_id, step, lease.epoch), lease.operation
        data = read["data"]
        about = _about(done, step=step, operation=operation, outcome=outcome, code=_code(data), receipt=data["receipt"])
        return _span(done, ("receipt", data["receipt"], outcome, at), within, "receipt", at, at, about)


def _start(done: Appended, data: Mapping[str, Any], at: int) -> Span:
    """The start of a run: the root of its trace, linked to what its caller named, and to the run that started it."""
    workflow, trigger, parent = data.get("workflow") or {}, data.get("trigger"), data.get("parent")
    links: list[tuple[int, int]] = []
    began = at
    if done.inbound is not None:
        began = min(done.inbound.began, at)
        links += filter(None, [tracing.parent_of(done.inbound.traceparent)])
    if isinstance(parent, str):
        links.append((tracing.trace_id(UUID(parent)), tracing.span_id(UUID(parent))))
    named = f"{workflow.get('name', '')} {workflow.get('version', '')}".strip() if isinstance(workflow, dict) else ""
    about = _about(done, workflow=named, trigger=trigger if isinstance(trigger, str) else "")
    kind = "internal" if done.inbound is None else "server"
    return _span(done, (), None, f"start {named}", began, at, about, kind=kind, links=tuple(links))


def _run(done: Appended, data: Mapping[str, Any], at: int) -> Span:
    """The whole run. The id of a run tells the millisecond of its start."""
    run = done.run_id
    began = min((run.int >> 80) * 1_000_000, at) if run.version == MILLIS_OF_V7 else at
    error = data.get("error")
    about = _about(done, outcome=data.get("status", ""), code=_code(error if isinstance(error, dict) else {}))
    return _span(done, ("run", at), tracing.span_id(run), "run", began, at, about)


def _of_call(done: Called) -> Iterator[Span | Figure]:
    began, ended = _nanos(done.sent), _nanos(done.answered)
    about = _about(done, step=done.step, operation=done.operation, connector=done.connector)
    about |= {"outcome": done.outcome} | ({"code": done.code} if done.code else {})
    own, within = ("call", done.step, done.epoch), tracing.step_span(done.run_id, done.step, done.epoch)
    yield _span(done, own, within, f"call {done.connector}", began, ended, about, kind="client")
    labels = {"tenant": done.tenant, "connector": done.connector, "outcome": done.outcome}
    yield Figure(CALLS, _seconds(began, ended), labels)


def _of_message(done: Delivered) -> Span:
    question = done.approval is not None
    within = tracing.span_id(done.run_id, *(("question", done.approval) if question else ()))
    name = done.kind if done.kind == "bundle" else f"message {done.kind}"
    about = _about(done, message=done.kind, outcome=done.outcome)
    own = ("message", done.message, done.attempt)
    return _span(done, own, within, name, done.at - int(done.seconds * 1e9), done.at, about, kind="producer")


def _about(done: Appended | Called | Delivered, **named: str) -> dict[str, str]:
    return {"tenant": done.tenant, "run": str(done.run_id)} | {name: value for name, value in named.items() if value}


def _span(
    done: Appended | Called | Delivered,
    own: tuple[object, ...],
    within: int | None,
    name: str,
    began: int,
    ended: int,
    about: Mapping[str, str],
    *,
    kind: str = "internal",
    links: tuple[tuple[int, int], ...] = (),
) -> Span:
    ids = (tracing.trace_id(done.run_id), tracing.span_id(done.run_id, *own))
    return Span(*ids, within, name, began, max(began, ended), about, kind, links)


def _code(data: Mapping[str, Any]) -> str:
    code = data.get("code")
    return code if isinstance(code, str) else ""


def _nanos(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000) * 1_000


def _seconds(began: int, ended: int) -> float:
    return max(0, ended - began) / 1_000_000_000


def _remember(memory: OrderedDict[Any, Any], key: object, value: object) -> None:
    memory[key] = value
    while len(memory) > BEGUN_MAX:
        memory.popitem(last=False)
