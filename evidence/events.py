"""The closed vocabulary of the audit: the types of events, and the data that each must have.

A run has its own stream. Every tenant has one stream for events of no run, and for events that reach a run after it
closed. An event never holds a value; it commits to values under the key ``committed``, a list of
``[path, commitment]`` pairs (see ``evidence.commitments``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field

from core.canonical import JsonObject


class EventType(StrEnum):
    """Every kind of fact that the audit knows. A line of any other type does not verify."""

    RUN_OPENED = "run.opened"
    RUN_STARTED = "run.started"
    RUN_REFERENCE_SET = "run.reference_set"
    RUN_EXTENDED = "run.extended"
    RUN_MIGRATED = "run.migrated"
    RUN_FORKED = "run.forked"
    RUN_CONTINUED = "run.continued"
    RUN_CANCELED = "run.canceled"
    RUN_PAUSED = "run.paused"
    RUN_RESUMED = "run.resumed"
    RUN_CLOSED = "run.closed"
    RUN_REOPENED = "run.reopened"
    RUN_SEALED = "run.sealed"
    RUN_PURGED = "run.purged"
    STEP_STARTED = "step.started"
    STEP_SUCCEEDED = "step.succeeded"
    STEP_FAILED = "step.failed"
    STEP_PARKED = "step.parked"
    STEP_RESUMED = "step.resumed"
    STEP_RETRY_SCHEDULED = "step.retry_scheduled"
    STEP_SET_BACK = "step.set_back"
    STEP_CANCELED = "step.canceled"
    STEP_HELD = "step.held"
    HOLD_ANSWERED = "hold.answered"
    HOLD_REFUSED = "hold.refused"
    WAIT_OPENED = "wait.opened"
    WAIT_POSTPONED = "wait.postponed"
    WAIT_COMPLETED = "wait.completed"
    WAIT_TIMED_OUT = "wait.timed_out"
    WAIT_CANCELED = "wait.canceled"
    SIGNAL_IGNORED = "signal.ignored"
    TASK_REFUSED = "task.refused"
    LEASE_EXPIRED = "lease.expired"
    AGENT_BEGAN = "agent.began"
    AGENT_ANSWERED = "agent.answered"
    DECISION_MADE = "decision.made"
    PREFLIGHT_FAILED = "preflight.failed"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_DELIVERED = "approval.delivered"
    APPROVAL_SAID = "approval.said"
    APPROVAL_REASSIGNED = "approval.reassigned"
    APPROVAL_EDITED = "approval.edited"
    APPROVAL_VOTED = "approval.voted"
    APPROVAL_VOTE_REFUSED = "approval.vote_refused"
    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_CONSUMED = "approval.consumed"
    APPROVAL_SUPERSEDED = "approval.superseded"
    APPROVAL_EXPIRED = "approval.expired"
    APPROVAL_REMINDED = "approval.reminded"
    APPROVAL_ESCALATED = "approval.escalated"
    GRANT_GIVEN = "grant.given"
    GRANT_REVOKED = "grant.revoked"
    GRANT_ENDED = "grant.ended"
    ACTION_INTENDED = "action.intended"
    ACTION_SUCCEEDED = "action.succeeded"
    ACTION_FAILED = "action.failed"
    ACTION_IN_DOUBT = "action.in_doubt"
    ACTION_HELD = "action.held"
    ACTION_DOUBT_RESOLVED = "action.doubt_resolved"
    ACTION_RECALLED = "action.recalled"
    ACTION_LATE = "action.late"
    ACTION_UNNEEDED = "action.unneeded"
    CHECKPOINT_COMMITTED = "checkpoint.committed"
    REQUEST_REFUSED = "request.refused"
    EVIDENCE_EXPORTED = "evidence.exported"
    EVIDENCE_READ = "evidence.read"
    EVIDENCE_FAILED = "evidence.failed"
    EVIDENCE_MONITORED = "evidence.monitored"
    TOKEN_CREATED = "token.created"  # noqa: S105  the name of an event
    TOKEN_REVOKED = "token.revoked"  # noqa: S105  the name of an event
    SESSION_OFFERED = "session.offered"
    SESSION_OPENED = "session.opened"
    SESSION_ENDED = "session.ended"
    POLICY_PUBLISHED = "policy.published"
    POLICY_PROPOSED = "policy.proposed"
    POLICY_ACTIVATED = "policy.activated"
    POLICY_RETIREMENT_PROPOSED = "policy.retirement_proposed"
    POLICY_RETIRED = "policy.retired"
    OPERATION_PUBLISHED = "operation.published"
    WORKFLOW_PUBLISHED = "workflow.published"
    WORKFLOW_ACTIVATED = "workflow.activated"
    WORKFLOW_RETIRED = "workflow.retired"
    WORKFLOW_UNSTARTED = "workflow.unstarted"
    SCHEDULE_MISSED = "schedule.missed"
    DIRECTORY_PUBLISHED = "directory.published"
    DIRECTORY_PROPOSED = "directory.proposed"
    GLASS_BROKEN = "glass.broken"
    GLASS_REVIEWED = "glass.reviewed"
    PAUSE_SET = "pause.set"
    PAUSE_LIFTED = "pause.lifted"
    TENANT_APPLIED = "tenant.applied"
    MESSAGE_GIVEN_UP = "message.given_up"


# The prefixes of events that belong to no run.
_TENANTS = (
    *("signal.", "task.", "request.", "evidence.", "token.", "session.", "policy.", "workflow.", "directory."),
    *("pause.", "glass.", "schedule.", "tenant.", "operation.", "message."),
)
_OF_TENANTS = (kind for kind in EventType if kind.startswith(_TENANTS))
_TENANT_ONLY = {EventType.RUN_PURGED, EventType.HOLD_REFUSED, *_OF_TENANTS}
RUN_EVENTS: frozenset[EventType] = frozenset(EventType) - _TENANT_ONLY
# A click that arrives after its run closed cannot go into the run's closed chain. A late answer can, unless retention
# has purged the run: then the key for commitments is gone.
TENANT_EVENTS: frozenset[EventType] = frozenset({*_TENANT_ONLY, EventType.APPROVAL_VOTE_REFUSED, EventType.ACTION_LATE})


# Facts on which every intent rests. Their ``stop`` is the tenant's stop number before them: they hold for each intent
# whose ``stop`` is greater.
STOPPING: frozenset[EventType] = frozenset({
    EventType.PAUSE_SET, EventType.PAUSE_LIFTED, EventType.POLICY_ACTIVATED, EventType.POLICY_RETIRED,
    EventType.DIRECTORY_PUBLISHED,
})  # fmt: skip


# The names of policies that deny an operation until a time: this prefix, then the operation. They apply to every
# workflow, so each decision about that operation names them as long as they are in force.
DENIALS = "counterseal-deny."


def _every(area: str, *names: str) -> dict[EventType, frozenset[str]]:
    return dict.fromkeys((kind for kind in EventType if kind.startswith(area)), frozenset(names))


REQUIRED_DATA: Mapping[EventType, frozenset[str]] = {
    # kind: runtime.engine.model.states.WaitKind; wait.completed also has by: signal, timer, person, run, ...
    **_every("wait.", "wait", "kind"),
    # Some of these need more data; they are listed again below.
    **_every("approval.", "approval"),
    # succeeded, failed, in_doubt and doubt_resolved hold receipt_digest, of Receipt.to_evidence at that time;
    # held: the action is in doubt and is not sent again, for now or for good
    **_every("action.", "receipt"),
    # workflow: {name, version, digest}
    EventType.RUN_OPENED: frozenset({"workflow"}),
    # committed: the reason under /cancel/reason, in the first such event, if one was given
    EventType.RUN_CANCELED: frozenset(),
    # committed: the reason under /paused/<version> or /resumed/<version>, if one was given
    EventType.RUN_PAUSED: frozenset(),
    EventType.RUN_RESUMED: frozenset(),
    # committed: the reason under /sealed, if one was given
    EventType.RUN_SEALED: frozenset(),
    # bundle: the SHA-256 of the evidence so far; steps: the steps that begin again, each with its last lease's epoch;
    # committed: the reason under /reopened/<how often>
    EventType.RUN_REOPENED: frozenset({"bundle", "steps"}),
    # paused: the paused thing as kind:name; reason: the operator's own words
    **_every("pause.", "paused", "reason"),
    # digest: the SHA-256 of the text of the settings that are in force from then on
    EventType.TENANT_APPLIED: frozenset({"version", "digest"}),
    # digest: the SHA-256 of the declaration's canonical JSON; version: 1, 2, 3 ... of its name in the tenant
    EventType.OPERATION_PUBLISHED: frozenset({"name", "version", "digest"}),
    # subject: the id of the person of a console's login; offered: a link that logs in once; by: token|link|oidc
    **_every("session.", "subject"),
    # count is filled in by the chain: the number of lines, this one included
    EventType.RUN_CLOSED: frozenset({"status", "count"}),
    # tools: the operations, people and workflows that the model may call; messages: the number of initial messages
    EventType.AGENT_BEGAN: frozenset({"model", "tools"}),
    # came: calls|answer|misfit; calls: the tool of each call, and why it was refused, if it was
    EventType.AGENT_ANSWERED: frozenset({"came", "calls"}),
    # outcome: deny|needs_approval|allow; action: its digest (see blind); policies: {name, version, digest} of every
    # policy that was evaluated
    EventType.DECISION_MADE: frozenset({"decision", "action", "operation", "outcome", "policies"}),
    # check: connector|target|people|refused|failed (runtime.engine.life.preflight.Check)
    EventType.PREFLIGHT_FAILED: frozenset({"check"}),
    # card: the commitment to the card as shown; action is null for a gate; committed: kind, requester and terms
    # under /approval/<id>/asked
    EventType.APPROVAL_REQUESTED: frozenset({"approval", "action", "card"}),
    # channel and message: the place of the card in the messenger
    EventType.APPROVAL_DELIVERED: frozenset({"approval", "channel", "message"}),
    # said: asks|answers|comments
    EventType.APPROVAL_SAID: frozenset({"approval", "said", "channel"}),
    # fields: the names of the edited values, which are values themselves
    EventType.APPROVAL_EDITED: frozenset({"approval", "fields", "channel"}),
    # to: the id of a person, or the key of a group, such as group:leads
    EventType.APPROVAL_REASSIGNED: frozenset({"approval", "to", "channel"}),
    # committed: the reason under /approval/<id>/vote/<actor's id>/<ts of this line>/reason, if one was given
    EventType.APPROVAL_VOTED: frozenset({"approval", "choice"}),
    EventType.APPROVAL_VOTE_REFUSED: frozenset({"approval", "code"}),
    # outcome: approved|rejected|canceled, or for an in-doubt approval happened|again|fail
    EventType.APPROVAL_DECIDED: frozenset({"approval", "outcome"}),
    # approval: the one whose voters give it; covers: the blinded digest of what it covers; until: RFC 3339
    EventType.GRANT_GIVEN: frozenset({"grant", "approval", "covers", "uses", "until"}),
    # by a person; committed: the reason under /grant/<id>/revoked
    EventType.GRANT_REVOKED: frozenset({"grant"}),
    # why: expired|used_up|votes_lost
    EventType.GRANT_ENDED: frozenset({"grant", "why"}),
    # decision: the id of the decision that permits it; approval: the id of the approval it consumed, or null; grant and
    # covers: the grant that it uses, and what that covers
    EventType.ACTION_INTENDED: frozenset({"receipt", "action", "operation", "attempt", "decision", "approval"}),
    # decision: the id of the decision that did not deny it; nothing was sent, because the target held every value
    EventType.ACTION_UNNEEDED: frozenset({"receipt", "action", "operation", "decision"}),
    # resolution: applied|not_applied|failed (evidence.receipts.Resolution)
    EventType.ACTION_DOUBT_RESOLVED: frozenset({"receipt", "resolution"}),
    # known: unanswered|succeeded|failed|in_doubt (evidence.receipts.LateAnswer); run: only in the tenant's stream
    EventType.ACTION_LATE: frozenset({"receipt", "attempt", "epoch", "known", "sent"}),
    EventType.RUN_PURGED: frozenset({"run"}),
    EventType.SIGNAL_IGNORED: frozenset({"signal", "code"}),
    EventType.TASK_REFUSED: frozenset({"task", "code"}),
    # group: whose members say what becomes of the step
    EventType.STEP_HELD: frozenset({"wait", "group"}),
    # kind: hold|retry; choice: again|without|cancel
    EventType.HOLD_ANSWERED: frozenset({"wait", "kind", "choice", "channel"}),
    EventType.HOLD_REFUSED: frozenset({"wait", "code"}),
    EventType.RUN_EXTENDED: frozenset({"number", "steps"}),
    # workflow: the new {name, version, digest}; definition: the digest of the new definition; before: of the old one
    EventType.RUN_MIGRATED: frozenset({"number", "workflow", "definition", "before"}),
    # origin: the run that was forked; line, digest: the line of the checkpoint from which it goes on, and its SHA-256;
    # steps: [key, operation, status] of the steps that were done there
    EventType.RUN_FORKED: frozenset({"origin", "line", "digest", "checkpoint", "steps", "receipts"}),
    EventType.RUN_CONTINUED: frozenset({"run", "workflow"}),
    EventType.CHECKPOINT_COMMITTED: frozenset({"number", "digest"}),
    # author: the person who published the text; by: who proposed it; approver: who put it in force
    EventType.POLICY_ACTIVATED: frozenset({"name", "version", "digest", "author", "approver"}),
    EventType.POLICY_PROPOSED: frozenset({"name", "version", "digest", "by"}),
    EventType.POLICY_RETIRED: frozenset({"name", "version", "digest", "approver"}),
    EventType.POLICY_RETIREMENT_PROPOSED: frozenset({"name", "version", "digest", "by"}),
    EventType.DIRECTORY_PROPOSED: frozenset({"name", "version", "digest", "by"}),
    # an admin lets runs start with a version that an author has published; author: who published it
    EventType.WORKFLOW_ACTIVATED: frozenset({"name", "version", "digest", "author"}),
    EventType.WORKFLOW_RETIRED: frozenset({"name", "version"}),
    # an event failed to start this workflow; event: the SHA-256 of the event's content, which is its id in the inbox
    EventType.WORKFLOW_UNSTARTED: frozenset({"name", "version", "event"}),
    # a moment of this workflow's schedule, in UTC, at which no run started; code: down|newer
    # message: its id; kind: of message, such as card or note; a person says why it is sent no more
    EventType.MESSAGE_GIVEN_UP: frozenset({"message", "kind", "reason"}),
    EventType.SCHEDULE_MISSED: frozenset({"name", "version", "moment", "code"}),
    # checks: the verifier's checks that the run's bundle failed; the bundle was not signed
    EventType.EVIDENCE_FAILED: frozenset({"run", "checks"}),
    # the size and root of the tenant's log, and how many differences were found between log, database and store
    EventType.EVIDENCE_MONITORED: frozenset({"size", "root", "problems"}),
}
"""The members that ``data`` must hold, by type. Other members are allowed, but never values. Ids are strings."""


class Actor(Struct, frozen=True):
    """The actor of an event: its kind (``person``, ``token``, ``worker``, ``keeper``, ``policy``, ...) and its id."""

    kind: str
    id: str


class Event(Struct, frozen=True):
    """One fact to be recorded. ``at`` is the database's time, with a time zone; ``data`` holds no values."""

    type: EventType
    actor: Actor
    at: datetime
    data: JsonObject = field(default_factory=dict)
    step: str | None = None
