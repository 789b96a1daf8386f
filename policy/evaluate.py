"""The decision over one action: total, and fail-closed (U-4, Q-16).

Every rule that matches is evaluated. Deny outranks needs_approval outranks allow; nothing fired is deny; an error in
any rule is deny, and names the rule; no policy is deny. Nothing here raises for what a policy or an action says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from core.action import Action
from core.canonical import JsonObject
from core.durations import format_duration
from core.errors import ExpressionError
from policy.facts import FactContext
from policy.load import Policy, Rule
from policy.model import STRENGTH, TIER_ORDER, Approver, Escalate, EscalateTo, Outcome, RuleDocument, Tier


@dataclass(frozen=True, slots=True)
class FiredRule:
    """A rule whose condition held."""

    id: str
    outcome: Outcome
    because: str | None


@dataclass(frozen=True, slots=True)
class RuleError:
    """A rule that could not be evaluated, and why."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class GroupQuorum:
    """A quorum: ``of`` different members of a group must approve. ``kind`` is ``group`` (ours) or ``slack_group``."""

    group: str
    of: int
    kind: str


@dataclass(frozen=True, slots=True)
class Escalation:
    """An escalation: after ``after`` without a decision, ``name`` may decide, too: a group or a slack_group."""

    after: timedelta
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ApprovalTerms:
    """The terms of an approval. ``two_person``: two different people at least, whatever the groups ask for."""

    tier: Tier
    approvers: tuple[GroupQuorum, ...]
    two_person: bool
    allow_requester: bool
    expires: timedelta
    remind: tuple[timedelta, ...]
    escalate: Escalation | None

    def to_json(self) -> JsonObject:
        """The terms as plain JSON; durations in ISO 8601."""
        escalate = self.escalate
        return {
            "tier": str(self.tier),
            "approvers": [{"group": g.group, "kind": g.kind, "of": g.of} for g in self.approvers],
            "two_person": self.two_person,
            "allow_requester": self.allow_requester,
            "expires": format_duration(self.expires),
            "remind": [format_duration(remind) for remind in self.remind],
            "escalate": None
            if escalate is None
            else {"after": format_duration(escalate.after), "kind": escalate.kind, "name": escalate.name},
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """Policy's answer for one action.

    ``rules`` are all that fired, in the policy's order, outranked ones included. ``reasons`` are sentences for people,
    never none. ``approval`` is there exactly when the outcome is needs_approval. ``facts_read`` are the operation and
    the facts that the matching rules read, values included (sensitive ones too): enough to judge the action again.
    """

    outcome: Outcome
    policy_digest: str | None
    rules: tuple[FiredRule, ...]
    errors: tuple[RuleError, ...]
    reasons: tuple[str, ...]
    approval: ApprovalTerms | None = None
    facts_read: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """The decision as plain JSON, without the facts."""
        return {
            "outcome": str(self.outcome),
            "policy": self.policy_digest,
            "rules": [{"id": r.id, "outcome": str(r.outcome), "because": r.because} for r in self.rules],
            "errors": [{"rule": e.rule, "message": e.message} for e in self.errors],
            "reasons": list(self.reasons),
            "approval": None if self.approval is None else self.approval.to_json(),
        }


def deny(code: str, sentence: str, policy_digest: str | None = None) -> Decision:
    """A denial that is not a rule's: a cap (``cap:max_writes_per_run``), or a policy that is missing."""
    return Decision(
        Outcome.DENY, policy_digest, (FiredRule(code, Outcome.DENY, sentence),), (), (sentence,), facts_read={}
    )


def build_facts(action: Action, context: FactContext) -> dict[str, object]:
    """The facts of one action, by their dotted names, as plain JSON values."""
    facts: dict[str, object] = {
        "action.operation": action.operation,
        "action.connector": action.connector,
        "action.target": action.target,
        "action.risk": str(action.risk),
        "action.reversible": action.reversible,
        "action.side_effects": str(action.side_effects),
        "action.changed": [change.field for change in action.changes],
        "action.present": list(action.fields),
        "run.workflow": context.run_workflow,
        "run.version": context.run_version,
        "run.id": context.run_id,
        "run.reference": context.run_reference,
        "run.requested_by": context.run_requested_by,
        "run.trigger": context.run_trigger,
        "run.step": context.run_step,
        "actor.id": context.actor_id,
        "actor.kind": context.actor_kind,
        "counters.writes_in_run": context.writes_in_run,
        "tenant.id": context.tenant_id,
        "tenant.workspace": context.tenant_workspace,
    }
    facts.update((f"action.fields.{name}", value) for name, value in action.fields.items())
    facts.update((f"action.before.{name}", value) for name, value in (action.before or {}).items())
    return facts


def evaluate(policy: Policy | None, facts: Mapping[str, object], operation: str) -> Decision:
    """Judge one action. Never raises for what the policy or the facts say."""
    if policy is None:
        return deny("policy:none", "There is no policy, so nothing is allowed.")
    if operation not in policy.operations:
        return deny("policy:unknown_operation", f"The policy does not know the operation {operation}.", policy.digest)
    if facts.get("action.operation") != operation:
        return deny("policy:facts", f"The facts are not those of {operation}.", policy.digest)
    plan = policy.plan(operation)
    fired: list[Rule] = []
    failed: list[tuple[Rule, ExpressionError]] = []
    for rules, conditions in plan.groups:
        for rule, held in zip(rules, conditions.run(facts), strict=True):
            if held is True:
                fired.append(rule)
            elif held is not False:
                failed.append((rule, held))
    fired.sort(key=lambda rule: rule.position)
    errors = tuple(RuleError(rule.id, str(error)) for rule, error in sorted(failed, key=lambda pair: pair[0].position))
    outcomes = {rule.outcome for rule in fired}
    outcome = Outcome.DENY if errors else next((one for one in STRENGTH if one in outcomes), Outcome.DENY)
    return Decision(
        outcome,
        policy.digest,
        tuple(FiredRule(rule.id, rule.outcome, rule.document.because) for rule in fired),
        errors,
        _reasons(policy, operation, outcome, fired, errors),
        terms_of([rule.document for rule in fired if rule.outcome is outcome])
        if outcome is Outcome.NEEDS_APPROVAL
        else None,
        {"action.operation": operation, **{name: facts[name] for name in plan.references if name in facts}},
    )


_PLAIN_REASONS = {
    Outcome.DENY: "Rule {} denies it.",
    Outcome.NEEDS_APPROVAL: "Rule {} asks for an approval.",
    Outcome.ALLOW: "Rule {} allows it.",
}


def _reasons(
    policy: Policy, operation: str, outcome: Outcome, fired: Sequence[Rule], errors: Sequence[RuleError]
) -> tuple[str, ...]:
    reasons = [f"Rule {error.rule} could not be evaluated: {error.message}" for error in errors]
    reasons += [
        rule.document.because or _PLAIN_REASONS[outcome].format(rule.id) for rule in fired if rule.outcome is outcome
    ]
    return tuple(reasons) or (f"No rule of the policy {policy.name} (version {policy.version}) allows {operation}.",)


def terms_of(documents: Sequence[RuleDocument]) -> ApprovalTerms:
    """Add up the terms of several rules: the sum asks for all that any of them asks for."""
    quorum: dict[tuple[str, str], int] = {}
    for document in documents:
        for approver in document.approvers:
            key = _group(approver)
            quorum[key] = max(approver.of, quorum.get(key, 0))
    expires = min(document.expires for document in documents)
    escalations = [
        document.escalate for document in documents if document.escalate and document.escalate.after < expires
    ]
    return ApprovalTerms(
        tier=max((document.tier for document in documents), key=TIER_ORDER.__getitem__),
        approvers=tuple(GroupQuorum(name, of, kind) for (kind, name), of in quorum.items()),
        two_person=any(document.two_person for document in documents),
        allow_requester=all(document.allow_requester for document in documents),
        expires=expires,
        remind=tuple(sorted({remind for document in documents for remind in document.remind if remind < expires})),
        escalate=_escalation(min(escalations, key=lambda escalate: escalate.after)) if escalations else None,
    )


def _group(party: Approver | EscalateTo) -> tuple[str, str]:
    """The (kind, name) of the group that is named."""
    return next((kind, name) for kind in type(party).model_fields if isinstance(name := getattr(party, kind), str))


def _escalation(escalate: Escalate) -> Escalation:
    kind, name = _group(escalate.to)
    return Escalation(escalate.after, kind, name)
