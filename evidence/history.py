"""A fold of a run's events for the verifier: authorised actions, and the states of receipts and approvals.

It checks promise 1 afterwards, from the events alone: no side effect without a recorded ``allow``, or a recorded
approval of exactly that action.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from core.errors import ConsistencyError
from evidence.commitments import path_of, reason_path
from evidence.events import EventType
from evidence.receipts import BY_AGENT, RECEIPT, ReceiptEvent, ReceiptStatus, Resolution, contradiction

_SETTLES = {
    EventType.ACTION_SUCCEEDED: ReceiptEvent.SUCCEED,
    EventType.ACTION_FAILED: ReceiptEvent.FAIL,
    EventType.ACTION_IN_DOUBT: ReceiptEvent.DOUBT,
}
_RESOLVES = {Resolution.APPLIED: ReceiptEvent.RESOLVE_APPLIED, Resolution.FAILED: ReceiptEvent.RESOLVE_FAILED}
_OF_DOUBT = (EventType.ACTION_HELD, EventType.ACTION_DOUBT_RESOLVED)
_ENDS = {EventType.APPROVAL_SUPERSEDED: "superseded", EventType.APPROVAL_EXPIRED: "expired"}
_OF_APPROVALS = {EventType.APPROVAL_REQUESTED, EventType.APPROVAL_VOTED, EventType.APPROVAL_DECIDED, *_ENDS}
_OF_GRANTS = {EventType.GRANT_GIVEN, EventType.GRANT_REVOKED, EventType.GRANT_ENDED}
_OF_RUNS = (
    EventType.RUN_OPENED, EventType.RUN_CANCELED, EventType.RUN_CLOSED, EventType.RUN_REOPENED, EventType.RUN_MIGRATED,
)  # fmt: skip
_OF_ACTIONS = (
    EventType.DECISION_MADE, EventType.ACTION_INTENDED, EventType.ACTION_UNNEEDED, *_SETTLES, *_OF_DOUBT,
    EventType.ACTION_LATE,
)  # fmt: skip
# Plain strings: most events of a run are of other types, and hashing an enum is slow.
_FOLLOWED = {str(kind) for kind in (*_OF_RUNS, *_OF_ACTIONS, *_OF_APPROVALS, *_OF_GRANTS)}

# Members of a late answer's data that describe its line, not the call.
_BESIDES = frozenset({"receipt", "receipt_digest", "values", "stored", "state", "clock_behind"})


class ReceiptHistory(Struct):
    """One receipt by its events, whose numbers are ``events``; ``late`` are facts of its late answers.

    ``digest`` is the last ``receipt_digest``, which lines of earlier releases name. ``altered`` are the names of the
    fields that the target held otherwise than asked. ``carried_out_by`` says if the agent carried it out itself and
    reported the outcome.
    """

    action: str
    operation: str
    status: ReceiptStatus
    attempt: int
    step: str | None = None
    intended_at: str | None = None
    settled_at: str | None = None
    events: list[int] = field(default_factory=list)
    reverses: object = None
    carried_out_by: str | None = None
    digest: object = None
    late: list[dict[str, Any]] = field(default_factory=list)
    altered: object = None


class ApprovalHistory(Struct):
    """One approval by its events. ``votes`` are its votes' facts in order; ``reasons`` the commitments to reasons.

    ``asked`` is the commitment to the kind, the requester and the terms; None if the chain has none. ``facts`` are the
    other facts of its first line.
    """

    action: str | None
    card: str | None
    asked: str | None
    status: str = "requested"
    votes: list[dict[str, object]] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    consumed_by: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Decided(Struct, frozen=True):
    """One decision: about which action, and its outcome."""

    action: object
    operation: object
    outcome: object


class GrantHistory(Struct):
    """One grant by its events: what it covers, how often and until when, and the uses so far."""

    covers: object
    uses: int
    until: str
    used: int = 0
    over: bool = False


def _is_named(policy: object) -> bool:
    return type(policy) is dict and type(policy.get("digest")) is str


def _names(value: object) -> str:
    return ", ".join(str(name)[:100] for name in value[:20]) if isinstance(value, list) else "?"


# The facts of an intent that a bundle lists.
ATTEMPTED = ("receipt", "action", "operation", "attempt", "decision", "approval")


class History(Struct):
    """Follows a chain event by event. Collects faults with their event numbers and never raises them.

    ``run`` holds the members of `run.json` that the events tell. With ``lists``, ``attempts`` are kept.
    """

    lists: bool = True

    workflow: object = None
    moved_to: list[object] = field(default_factory=list)
    tenant: object = None
    run_status: object = None
    run: dict[str, object] = field(default_factory=dict)
    canceled: tuple[str, str | None] | None = None
    decisions: dict[str, Decided] = field(default_factory=dict)
    policies: dict[str, object] = field(default_factory=dict)
    approvals: dict[str, ApprovalHistory] = field(default_factory=dict)
    receipts: dict[str, ReceiptHistory] = field(default_factory=dict)
    grants: dict[str, GrantHistory] = field(default_factory=dict)
    attempts: list[tuple[dict[str, Any], str | None]] = field(default_factory=list)
    performed: int = 0
    after_the_end: int = 0
    unauthorised: list[str] = field(default_factory=list)
    irregular: list[str] = field(default_factory=list)

    def observe(self, event: dict[str, Any]) -> None:
        """Fold one event of the chain, whose required data is present."""
        if event["type"] not in _FOLLOWED:
            return
        kind, data = EventType(event["type"]), event["data"]
        for name in ("receipt", "approval", "decision"):
            if name in data and not (type(data[name]) is str or (name == "approval" and data[name] is None)):
                self.irregular.append(f"event {event['seq']}: its {name} is not an id")
                return
        if kind is EventType.RUN_OPENED:
            self.workflow, self.tenant = data["workflow"], data.get("tenant")
            self.run = {"opened_at": event["ts"], "closed_at": None}
            self.run |= {name: data[name] for name in ("trigger", "workspace") if name in data}
            if type(data.get("committed")) is list:
                pairs = [pair for pair in data["committed"] if type(pair) is list and pair]
                self.run["inputs"] = [pair for pair in pairs if str(pair[0]).startswith("/trigger/")]
        elif kind is EventType.RUN_MIGRATED:
            self.moved_to.append(data["workflow"])
        elif kind is EventType.RUN_CANCELED:
            self.canceled = self.canceled or (event["actor"]["id"], _committed(data, path_of("cancel", "reason")))
        elif kind is EventType.RUN_CLOSED:
            self.run_status, self.run["closed_at"] = data["status"], event["ts"]
        elif kind is EventType.RUN_REOPENED:
            self.run_status, self.after_the_end = None, 0
        elif kind is EventType.DECISION_MADE:
            self._decide(event)
        elif kind in _OF_APPROVALS and data["approval"] is not None:
            self._approval(kind, event)
        elif kind in _OF_GRANTS:
            self._grant(kind, event)
        elif kind is EventType.ACTION_INTENDED:
            self._intend(event)
        elif kind is EventType.ACTION_UNNEEDED:
            self._unneeded(event)
        elif kind in _SETTLES or kind in _OF_DOUBT or kind is EventType.ACTION_LATE:
            self._settle(kind, event)

    def altered(self) -> list[str]:
        """The actions that were done otherwise than asked, each with the fields that differ."""
        every = self.receipts.values()
        return [f"{one.operation}: {_names(one.altered)}" for one in every if one.altered]

    def late_answers(self) -> list[tuple[str, str | None]]:
        """The late answers of workers without a lease, each with its contradiction to the receipt, or None."""
        return [
            (
                f"attempt {late['attempt']} of {receipt.operation}: {late['known']}",
                contradiction(str(late["known"]), late["attempt"], str(receipt.status), receipt.attempt),
            )
            for receipt in self.receipts.values()
            for late in receipt.late
        ]

    def _decide(self, event: dict[str, Any]) -> None:
        data = event["data"]
        if data["decision"] in self.decisions:
            self.irregular.append(f"event {event['seq']}: the decision {data['decision']} was made before")
        self.decisions[data["decision"]] = Decided(data["action"], data["operation"], data["outcome"])
        policies = data["policies"]
        if type(policies) is not list or not all(map(_is_named, policies)):
            self.irregular.append(f"event {event['seq']}: its policies are no list of what has a digest")
            return
        if not policies and data["outcome"] != "deny":
            self.irregular.append(f"event {event['seq']}: a decision names no policy and is not a denial")
        for policy in policies:
            if str(self.policies.setdefault(policy["digest"], policy)) != str(policy):
                self.irregular.append(f"event {event['seq']}: it names a policy otherwise than an event before")

    def _approval(self, kind: EventType, event: dict[str, Any]) -> None:
        data, where = event["data"], f"event {event['seq']}"
        if kind is EventType.APPROVAL_REQUESTED:
            if data["approval"] in self.approvals:
                self.irregular.append(f"{where}: the approval {data['approval']} was requested before")
                return
            bound = _committed(data, path_of("approval", data["approval"], "asked"))
            facts = {name: data.get(name) for name in ("kind", "tier", "secret")}
            facts |= {"step": event["step"], "requested_at": event["ts"]}
            self.approvals[data["approval"]] = ApprovalHistory(data["action"], data["card"], bound, facts=facts)
            return
        approval = self.approvals.get(data["approval"])
        if approval is None:
            self.irregular.append(f"{where}: the approval {data['approval']} was never requested")
        elif kind is EventType.APPROVAL_VOTED:
            vote = {"voter": event["actor"]["id"], "choice": str(data["choice"]), "at": event["ts"]}
            # Events of other producers may lack the channel.
            approval.votes.append(vote | {name: data[name] for name in ("channel", "grant") if name in data})
            path = reason_path(data["approval"], event["actor"]["id"], event["ts"])
            approval.reasons.append(_committed(data, path))
        elif kind is EventType.APPROVAL_DECIDED:
            if approval.status != "requested":
                self.irregular.append(f"{where}: the approval was {approval.status} already")
            approval.status = str(data["outcome"])
        elif kind in _ENDS:
            approval.status = _ENDS[kind]

    def _grant(self, kind: EventType, event: dict[str, Any]) -> None:
        """Follow a grant. Only the voters of an approval give one, and only as much as each of them has allowed."""
        data, where, name = event["data"], f"event {event['seq']}", str(event["data"]["grant"])
        if kind is not EventType.GRANT_GIVEN:
            if name in self.grants:
                self.grants[name].over = True
            else:
                self.irregular.append(f"{where}: the grant {name[:40]} was never given")
            return
        approval, uses = self.approvals.get(str(data["approval"])), data["uses"]
        last = {vote["voter"]: vote for vote in approval.votes} if approval is not None else {}
        grants = [vote.get("grant") for vote in last.values() if vote["choice"] == "approve"]
        uses_allowed = [one.get("uses") for one in grants if isinstance(one, dict)]
        fits = type(uses) is int and uses_allowed and all(type(one) is int and uses <= one for one in uses_allowed)
        if approval is None or approval.status != "approved" or not fits or name in self.grants:
            self.irregular.append(f"{where}: the grant {name[:40]} is not what the voters of an approval have given")
            return
        self.grants[name] = GrantHistory(data["covers"], uses, str(data["until"]))

    def _by_grant(self, intent: dict[str, Any], at: str) -> str | None:
        """The reason why the grant that an intent names gave no authority; None if it did. Counts the use."""
        grant = self.grants.get(str(intent["grant"]))
        if grant is None:
            return "by a grant that nobody gave"
        if grant.over or grant.used >= grant.uses:
            return "by a grant that was over"
        if intent.get("covers") != grant.covers:
            return "by a grant of something else"
        if at > grant.until:
            return "by a grant that had expired"
        grant.used += 1
        return None

    def _intend(self, event: dict[str, Any]) -> None:
        data, where = event["data"], f"event {event['seq']}"
        self.performed += 1
        if self.lists:
            facts = {name: data.get(name) for name in ATTEMPTED}
            facts |= {name: event[name] for name in ("seq", "step", "ts")}
            self.attempts.append((facts, data.get("values")))
        reason = self._why_not(data, event["ts"])
        if reason:
            self.unauthorised.append(f"{where}: {data['operation']} was let out {reason}")
        receipt = self.receipts.get(data["receipt"])
        if receipt is None:
            status, attempt = ReceiptStatus.INTENDED, data["attempt"]
            receipt = ReceiptHistory(data["action"], data["operation"], status, attempt, event["step"], event["ts"])
            receipt.events.append(event["seq"])
            receipt.reverses = data.get("reverses")
            receipt.carried_out_by = BY_AGENT if data.get("gate") is not None else None
            self.receipts[data["receipt"]] = receipt
            return
        if receipt.action != data["action"] or receipt.operation != data["operation"]:
            self.irregular.append(f"{where}: the receipt {data['receipt']} is of another action")
        self._move(receipt, ReceiptEvent.RETRY, where)
        receipt.attempt, receipt.digest = data["attempt"], None
        receipt.intended_at, receipt.settled_at = event["ts"], None
        receipt.events.append(event["seq"])

    def _unneeded(self, event: dict[str, Any]) -> None:
        """Follow a write that had nothing to do. Nothing was let out, but policy must not have denied it."""
        data, where = event["data"], f"event {event['seq']}"
        decision = self.decisions.get(data["decision"])
        if decision is None or decision.action != data["action"] or decision.operation != data["operation"]:
            self.unauthorised.append(f"{where}: {data['operation']} had nothing to do by no decision about it")
        elif decision.outcome == "deny":
            self.unauthorised.append(f"{where}: {data['operation']} counts as done although it was denied")
        if data["receipt"] in self.receipts:
            self.irregular.append(f"{where}: the receipt {data['receipt']} was of an attempt")
            return
        where_to = (event["step"], event["ts"], event["ts"], [event["seq"]])
        receipt = ReceiptHistory(data["action"], data["operation"], ReceiptStatus.SUCCEEDED, 0, *where_to)
        receipt.digest = data.get("receipt_digest")
        self.receipts[data["receipt"]] = receipt

    def _why_not(self, intent: dict[str, Any], at: str) -> str | None:
        """The reason why an intent had no authority; None if it had."""
        decision = self.decisions.get(intent["decision"])
        if decision is None:
            return "without a decision"
        if decision.action != intent["action"] or decision.operation != intent["operation"]:
            return "by a decision about another action"
        if decision.outcome == "allow":
            return None
        if decision.outcome != "needs_approval":
            return f"although the decision was {decision.outcome}"
        if intent.get("grant") is not None:
            return self._by_grant(intent, at)
        approval = self.approvals.get(intent["approval"]) if intent["approval"] is not None else None
        if approval is None:
            return "without the approval that policy asked for"
        if approval.action is None or approval.action != intent["action"]:
            return "by an approval of another action"
        if approval.status != "approved":
            return f"by an approval that was {approval.status}"
        if not any(vote["choice"] == "approve" for vote in approval.votes):
            return "by an approval that nobody voted for"
        if approval.consumed_by not in (None, intent["receipt"]):
            return "by an approval that another action had consumed"
        approval.consumed_by = intent["receipt"]
        return None

    def _settle(self, kind: EventType, event: dict[str, Any]) -> None:
        data, where = event["data"], f"event {event['seq']}"
        receipt = self.receipts.get(data["receipt"])
        if receipt is None:
            self.unauthorised.append(f"{where}: an outcome is recorded for an action that was never intended")
            return
        receipt.digest = data.get("receipt_digest")
        receipt.altered = data.get("altered", receipt.altered)
        receipt.events.append(event["seq"])
        in_doubt = receipt.status is ReceiptStatus.IN_DOUBT
        if kind is EventType.ACTION_LATE:
            self.after_the_end += self.run_status is not None
            receipt.late.append({name: data[name] for name in data if name not in _BESIDES})
        elif kind in _SETTLES:
            self._move(receipt, _SETTLES[kind], where, event["ts"])
        elif kind is EventType.ACTION_HELD:
            if not in_doubt:
                self.irregular.append(f"{where}: an action is held that is not in doubt")
        elif (resolution := str(data["resolution"])) in _RESOLVES:
            self._move(receipt, _RESOLVES[Resolution(resolution)], where, event["ts"])
        elif resolution != Resolution.NOT_APPLIED or not in_doubt:
            self.irregular.append(f"{where}: {resolution[:40]!r} resolves nothing")

    def _move(self, receipt: ReceiptHistory, event: ReceiptEvent, where: str, at: str | None = None) -> None:
        try:
            receipt.status = RECEIPT.next[receipt.status, event]
            receipt.settled_at = at if receipt.status in (ReceiptStatus.SUCCEEDED, ReceiptStatus.FAILED) else None
        except ConsistencyError as error:
            self.irregular.append(f"{where}: {error}")


def _committed(data: dict[str, Any], path: str) -> str | None:
    """The event's commitment to the value at this path; None if it has none."""
    for pair in data["committed"] if type(data.get("committed")) is list else ():
        if type(pair) is list and len(pair) == 2 and pair[0] == path and type(pair[1]) is str:
            return pair[1]
    return None
