"""The log lines for operators: one for each notable event, in words, with the public members of its audit line.

A line of the log holds no value: an event's public members are ids, codes, numbers and names (``evidence.events``).
The reference is the run's name in the other system, and is cut at ``REFERENCE_MAX`` characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import to_builtins

from core.canonical import JsonObject, clean
from evidence.events import EventType as E
from policy.model import Ruling
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model.events import DecisionMade, Event, StepRetryScheduled
from runtime.engine.model.graph import Graph, OperationNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import Notice
from runtime.engine.model.run import Run
from runtime.engine.model.states import RunState

INFO, WARNING = "info", "warning"
OPERATION = "operation"
REFERENCE_MAX = 120


class Kind(NamedTuple):
    """The log line of a kind of event: its words, its level, and the public members of the event in it."""

    level: str
    words: str
    members: tuple[str, ...] = ()


OF_RUNS: Mapping[E, Kind] = {
    E.RUN_OPENED: Kind(INFO, "run started", ("workflow", "trigger", "parent")),
    E.RUN_CANCELED: Kind(WARNING, "run canceled"),
    E.RUN_PAUSED: Kind(WARNING, "run paused"),
    E.RUN_RESUMED: Kind(INFO, "run resumed"),
    E.RUN_REOPENED: Kind(INFO, "run tried again", ("steps",)),
    E.RUN_EXTENDED: Kind(INFO, "steps added to the run", ("number", "steps")),
    E.RUN_FORKED: Kind(WARNING, "run begun from a point of another one", ("origin", "line", "steps", "again")),
    E.RUN_MIGRATED: Kind(WARNING, "run moved to another version of its workflow", ("number", "workflow")),
    E.RUN_CLOSED: Kind(INFO, "run ended", ("status", "error")),
    E.STEP_FAILED: Kind(WARNING, "step failed", ("class", "code", "released")),
    E.STEP_HELD: Kind(WARNING, "step failed and is held", ("group", "class", "code")),
    E.STEP_RETRY_SCHEDULED: Kind(INFO, "step failed and is tried again", ("attempt", "seconds")),
    E.HOLD_ANSWERED: Kind(INFO, "held step answered", ("choice", "channel")),
    E.LEASE_EXPIRED: Kind(WARNING, "a worker is gone; its step is ready for another", ("epoch", "owner")),
    E.WAIT_TIMED_OUT: Kind(WARNING, "a wait took too long", ("kind",)),
    E.DECISION_MADE: Kind(WARNING, "action denied", ("rules", "errors", "decision")),
    E.PREFLIGHT_FAILED: Kind(WARNING, "action not asked about: it could not be done", ("check",)),
    E.APPROVAL_REQUESTED: Kind(INFO, "question asked", ("approval", "kind", "tier")),
    E.APPROVAL_VOTED: Kind(INFO, "vote recorded", ("approval", "choice", "channel")),
    E.APPROVAL_VOTE_REFUSED: Kind(WARNING, "vote refused", ("approval", "code")),
    E.APPROVAL_SAID: Kind(INFO, "something was said about a question", ("approval", "said", "channel")),
    E.APPROVAL_REASSIGNED: Kind(INFO, "question handed on", ("approval", "to", "channel")),
    E.APPROVAL_EDITED: Kind(INFO, "action edited; its question is void", ("approval", "fields", "channel")),
    E.APPROVAL_DECIDED: Kind(INFO, "question answered", ("approval", "outcome")),
    E.APPROVAL_SUPERSEDED: Kind(INFO, "question is void", ("approval", "why")),
    E.APPROVAL_EXPIRED: Kind(WARNING, "question ran out of time", ("approval", "undelivered")),
    E.APPROVAL_ESCALATED: Kind(WARNING, "question escalated", ("approval", "rung")),
    E.GRANT_GIVEN: Kind(INFO, "grant given", ("grant", "approval", "uses", "until")),
    E.GRANT_REVOKED: Kind(INFO, "grant taken back", ("grant",)),
    E.ACTION_FAILED: Kind(WARNING, "action failed", ("receipt", "class", "code")),
    E.ACTION_IN_DOUBT: Kind(WARNING, "action in doubt", ("receipt",)),
    E.ACTION_HELD: Kind(WARNING, "action in doubt, and people have to say what happened", ("receipt",)),
    E.ACTION_DOUBT_RESOLVED: Kind(INFO, "doubt resolved", ("receipt", "resolution", "by")),
    E.ACTION_LATE: Kind(WARNING, "an answer came after its lease", ("receipt", "known", "code")),
}
"""The facts of a run that have a line."""

# Events without a log line: bundle, console and `run show` have them, and so many lines would hide the others.
SILENT_OF_RUNS = frozenset({
    E.RUN_STARTED, E.RUN_REFERENCE_SET, E.RUN_CONTINUED, E.RUN_SEALED, E.STEP_STARTED, E.STEP_SUCCEEDED, E.STEP_PARKED,
    E.STEP_RESUMED, E.STEP_SET_BACK, E.STEP_CANCELED, E.WAIT_OPENED, E.WAIT_POSTPONED, E.WAIT_COMPLETED,
    E.WAIT_CANCELED, E.AGENT_BEGAN, E.AGENT_ANSWERED, E.APPROVAL_DELIVERED, E.APPROVAL_CONSUMED, E.APPROVAL_REMINDED,
    E.GRANT_ENDED, E.ACTION_INTENDED, E.ACTION_SUCCEEDED, E.ACTION_RECALLED, E.ACTION_UNNEEDED, E.CHECKPOINT_COMMITTED,
})  # fmt: skip

WAITING = Kind(INFO, "step waits", ("waits", "attempt", "seconds"))
"""The line of the same event for a step that merely waits for its next attempt, and has not failed."""

OF_TENANTS: Mapping[E, Kind] = {
    E.RUN_PURGED: Kind(INFO, "values of a run erased", ("run",)),
    E.HOLD_REFUSED: Kind(WARNING, "answer to a held step refused", ("wait", "code")),
    E.APPROVAL_VOTE_REFUSED: Kind(WARNING, "vote refused", ("approval", "code")),
    E.ACTION_LATE: Kind(WARNING, "an answer came after its run had ended", ("run", "receipt", "known", "code")),
    E.SIGNAL_IGNORED: Kind(WARNING, "signal ignored", ("signal", "code")),
    E.TASK_REFUSED: Kind(WARNING, "task's answer refused", ("task", "code")),
    E.REQUEST_REFUSED: Kind(WARNING, "request refused", ("endpoint", "code", "count")),
    E.EVIDENCE_MONITORED: Kind(INFO, "log, database and evidence compared", ("size", "problems")),
    E.EVIDENCE_FAILED: Kind(WARNING, "evidence not signed: it does not verify", ("run", "checks")),
    E.TENANT_APPLIED: Kind(INFO, "settings of the tenant applied", ("version", "digest")),
    E.TOKEN_CREATED: Kind(INFO, "token created", ("role",)),
    E.TOKEN_REVOKED: Kind(INFO, "token revoked"),
    E.POLICY_PUBLISHED: Kind(INFO, "policy published", ("name", "version")),
    E.POLICY_PROPOSED: Kind(INFO, "policy proposed", ("name", "version", "by")),
    E.POLICY_ACTIVATED: Kind(WARNING, "policy in force", ("name", "version", "author", "approver")),
    E.POLICY_RETIREMENT_PROPOSED: Kind(INFO, "retirement of a policy proposed", ("name", "version", "by")),
    E.POLICY_RETIRED: Kind(WARNING, "policy retired", ("name", "version", "approver")),
    E.OPERATION_PUBLISHED: Kind(INFO, "operation published", ("name", "version")),
    E.WORKFLOW_PUBLISHED: Kind(INFO, "workflow published", ("name", "version")),
    E.WORKFLOW_ACTIVATED: Kind(INFO, "workflow may start runs", ("name", "version", "author")),
    E.WORKFLOW_RETIRED: Kind(INFO, "workflow retired", ("name", "version")),
    E.WORKFLOW_UNSTARTED: Kind(WARNING, "an event started no run", ("name", "version", "code")),
    E.SCHEDULE_MISSED: Kind(WARNING, "a moment of a schedule was missed", ("name", "version", "moment", "code")),
    E.DIRECTORY_PUBLISHED: Kind(INFO, "directory published", ("name", "version")),
    E.DIRECTORY_PROPOSED: Kind(INFO, "directory proposed", ("name", "version", "by")),
    E.GLASS_BROKEN: Kind(WARNING, "glass broken: an action goes out without its approvers", ("approval", "run")),
    E.GLASS_REVIEWED: Kind(INFO, "use of broken glass reviewed", ("approval", "run", "reason")),
    E.MESSAGE_GIVEN_UP: Kind(WARNING, "message given up", ("message", "kind", "run", "reason")),
    E.PAUSE_SET: Kind(WARNING, "pause set", ("paused", "reason")),
    E.PAUSE_LIFTED: Kind(WARNING, "pause lifted", ("paused", "reason")),
}
"""The facts of a tenant that have a line."""

SILENT_OF_TENANTS = frozenset({
    E.EVIDENCE_EXPORTED, E.EVIDENCE_READ, E.SESSION_OFFERED, E.SESSION_OPENED, E.SESSION_ENDED,
})  # fmt: skip


def of_run(recorded: RecordedEvent, run: Run, graph: Graph) -> Notice | None:
    """The log line of an event of a run; None if it has none. ``run`` is the run after the event."""
    event = recorded.event
    kind = OF_RUNS.get(event.TYPE)
    if kind is None or (isinstance(event, DecisionMade) and event.outcome != Ruling.DENY):
        return None
    if isinstance(event, StepRetryScheduled) and event.waits is not None:
        kind = WAITING
    data = _public(event, kind.members)
    facts = _facts(kind, data, recorded.actor.id)
    if run.reference:
        facts["reference"] = clean(run.reference)[:REFERENCE_MAX]
    if recorded.step is not None:
        facts |= {"step": recorded.step, **_operation(recorded.step, data, run, graph)}
    if isinstance(event, StepRetryScheduled):
        facts |= _until(recorded.at, event)
    failed = event.TYPE is E.RUN_CLOSED and run.status is not RunState.SUCCEEDED
    return (WARNING if failed else kind.level), kind.words, facts


def _until(at: datetime, event: StepRetryScheduled) -> JsonObject:
    """The time of the next attempt; and the target, if a step waits for that."""
    facts: JsonObject = {"until": (at + timedelta(seconds=event.due or event.seconds)).isoformat(timespec="seconds")}
    if event.waits is not None and event.detail is not None and "target" in event.detail:
        facts["target"] = event.detail["target"]
    return facts


def of_tenant(kind: E, actor: str, data: JsonObject) -> Notice | None:
    """The log line of an event of a tenant; None if it has none."""
    form = OF_TENANTS.get(kind)
    return None if form is None else (form.level, form.words, _facts(form, data, actor))


def _public(event: Event, members: tuple[str, ...]) -> JsonObject:
    """The members of an event that its log line has, and the event's operation. Other members may be large."""
    names = zip(event.__struct_encode_fields__, event.__struct_fields__, strict=True)
    return {name: to_builtins(getattr(event, field)) for name, field in names if name in members or name == OPERATION}


def _facts(kind: Kind, data: JsonObject, actor: str) -> JsonObject:
    facts: JsonObject = {}
    for name in kind.members:
        value = data.get(name)
        if name == "workflow" and isinstance(value, dict):
            facts[name] = f"{value.get('name')} {value.get('version', '')}".strip()
        elif name == "error" and isinstance(value, dict):
            facts |= value
        elif value not in (None, "", [], False):
            facts[name] = value
    return {**facts, "actor": actor}


def _operation(step: str, data: JsonObject, run: Run, graph: Graph) -> JsonObject:
    """The operation of a step, as the event names it, or else the graph or the agent's call."""
    if named := data.get(OPERATION):
        return {OPERATION: named}
    if StepKey.of(step).node not in graph.leaves:  # who takes an expired lease away needs no graph, and reads none
        return {}
    values = run.spoken.get(step)
    leaf = graph.leaf(step, None if values is None else values.tool or None)
    return {OPERATION: leaf.operation} if isinstance(leaf, OperationNode) else {}
