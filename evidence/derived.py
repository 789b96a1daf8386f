"""Derives the files of a bundle from its events, in one pass: the writer writes them, the verifier compares them.

Each line is the RFC 8785 bytes of an object. Every fact in a file comes from an event, so nobody can add one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from core.canonical import Json, JsonObject, canonical_bytes
from evidence import layout
from evidence.chain import ChainReport
from evidence.events import EventType
from evidence.history import History
from evidence.rollup import Rollup

# Receives the name of a file and its next line.
Emit: TypeAlias = Callable[[str, bytes], None]
OPEN = "open"
_OF_ATTEMPTS = ("receipt", "operation", "attempt", "decision", "approval")


class Derived:
    """Follows the events of a run, and emits the lines of the files in their order."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.history = History(lists=False)
        self.rollup = Rollup()
        self.attempts = 0
        self.checkpoints = 0

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one verified event."""
        self.history.observe(event)
        self.rollup.observe(event)
        kind, data = event["type"], event["data"]
        self.rollup.decisions.clear()
        if kind == EventType.ACTION_INTENDED:
            self.attempts += 1
            facts = {name: data.get(name) for name in _OF_ATTEMPTS}
            self._write(layout.ATTEMPTS, {**facts, **{name: event[name] for name in ("seq", "step", "ts")}})
        while self.rollup.checkpoints:
            self.checkpoints += 1
            self._write(layout.CHECKPOINT_LINES, self.rollup.checkpoints.pop())

    def finish(self, report: ChainReport, tenant: str, appends: list[Json]) -> None:
        """Emit the files that need the whole history. ``tenant`` is for histories whose lines do not name it."""
        history, run = self.history, report.stream.removeprefix("run:")
        for key, approval in history.approvals.items():
            votes = [{**vote, "reason": reason} for vote, reason in zip(approval.votes, approval.reasons, strict=True)]
            facts: dict[str, Any] = {"approval": key, "action": approval.action, "status": approval.status}
            facts |= {"votes": votes, "card": approval.card, "asked": approval.asked, **approval.facts}
            self._write(layout.APPROVALS, facts)
        for key, receipt in history.receipts.items():
            facts = {"receipt": key, "operation": receipt.operation, "status": str(receipt.status)}
            facts |= {"attempt": receipt.attempt, "step": receipt.step, "events": [*receipt.events]}
            facts |= {"intended_at": receipt.intended_at, "settled_at": receipt.settled_at}
            more = {"late": [*receipt.late], "altered": receipt.altered, "reverses": receipt.reverses}
            more |= {"carried_out_by": receipt.carried_out_by}
            facts |= {name: fact for name, fact in more.items() if fact}
            self._write(layout.RECEIPTS, facts)
        self._emit(layout.COSTS, canonical_bytes(self.rollup.costs()))
        head: JsonObject = {"v": 2, "tenant": tenant, "run": run, "count": report.count, "head": report.head}
        self._write(layout.RUN_HEAD, {**head, "final": report.final, "appends": appends})
        self._write(layout.RUN_FILE, {"tenant": tenant, "run": run, **self._run(report)})

    def _run(self, report: ChainReport) -> JsonObject:
        run: Mapping[str, Any] = self.history.run
        workflow: Any = self.history.workflow
        canceled = self.history.canceled
        return {
            "workflow": workflow,
            "status": status_of(self.history, report),
            **{name: run.get(name) for name in ("opened_at", "closed_at", "trigger", "workspace")},
            "canceled": None if canceled is None else {"by": canceled[0], "reason": canceled[1]},
        }

    def _write(self, name: str, facts: Mapping[str, Any]) -> None:
        self._emit(name, canonical_bytes(facts))


def status_of(history: History, report: ChainReport) -> Json:
    """The status with which the run closed; ``OPEN`` if it is open."""
    status: Any = history.run_status
    return status if report.final else OPEN


def predicate_of(history: History, report: ChainReport, tenant: str, producer: str, named: JsonObject) -> JsonObject:
    """The predicate of the signed statement. ``named`` names the sidecar, in formats that have one."""
    policies: list[Any] = [*history.policies.values()]
    workflow: Any = history.workflow
    return {
        "tenant": tenant,
        "run": report.stream.removeprefix("run:"),
        "status": status_of(history, report),
        "workflow": workflow,
        "policies": sorted(policies, key=lambda one: (str(one.get("name")), str(one.get("version")), one["digest"])),
        "first_seq": 0,
        "last_seq": report.count - 1,
        "count": report.count,
        "head": report.head,
        "final": report.final,
        "redaction": "metadata",
        "producer": producer,
        **named,
    }
