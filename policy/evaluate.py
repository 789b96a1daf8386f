"""The decision over one action: total, and fail-closed (U-4, Q-16).

Every rule that matches is evaluated. Deny outranks needs_approval outranks allow; nothing fired is deny; an error in
any rule is deny, and names the rule; no policy is deny. Nothing here raises for what a policy or an action says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from core.canonical import JsonObject
from core.durations import format_duration
from core.errors import ExpressionError
from policy.load import Plan, Policy, Rule
from policy.model import TIER_ORDER, Approver, Escalate, EscalateTo, Outcome, RuleDocument, Tier


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
    """``of`` different members of a group must approve. ``kind`` is ``group`` (ours) or ``slack_group``."""

    group: str
    of: int
    kind: str


@dataclass(frozen=True, slots=True)
class Escalation:
    """After ``after`` without a decision, the approval goes to ``name``, too: a group or a slack_group."""

    after: timedelta
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ApprovalTerms:
    """What an approval takes. ``two_person``: two different people at least, whatever the groups ask for."""

    tier: Tier
    approvers: tuple[GroupQuorum, ...]
    two_person: bool
    allow_requester: bool
    expires: timedelta
    remind: tuple[timedelta, ...]
    escalate: Escalation | None

    def to_json(self) -> JsonObject:
        """As plain JSON; durations in ISO 8601."""
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
        """As plain JSON, without the facts."""
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


def evaluate(policy: Policy | None, facts: Mapping[str, object], operation: str) -> Decision:
    """Judge one action. Never raises for what the policy or the facts say."""
    if policy is None:
        return deny("policy:none", "There is no policy, so nothing is allowed.")
    if operation not in policy.operations:
        return deny("policy:unknown_operation", f"The policy does not know the operation {operation}.", policy.digest)
    if facts.get("action.operation") != operation:
        return deny("policy:facts", f"The facts are not those of {operation}.", policy.digest)
    plan = policy.plan(operation)
    fired, errors = _run(plan, facts)
    facts_read = {"action.operation": operation, **{name: facts[name] for name in plan.references if name in facts}}
    outcome = _outcome(fired, errors)
    return Decision(
        outcome,
        policy.digest,
        tuple(FiredRule(rule.id, rule.outcome, rule.document.because) for rule in fired),
        errors,
        _reasons(policy, operation, outcome, fired, errors),
        terms_of([rule.document for rule in fired if rule.outcome is outcome])
        if outcome is Outcome.NEEDS_APPROVAL
        else None,
        facts_read,
    )


def _run(plan: Plan, facts: Mapping[str, object]) -> tuple[list[Rule], tuple[RuleError, ...]]:
    """The rules that fired, and the errors of those that are neither true nor false, in the policy's order."""
    fired = list(plan.always)
    failed: list[tuple[Rule, ExpressionError]] = []
    for environment, rules, conditions in plan.groups:
        try:
            found = conditions.run(environment.bind(facts, conditions.references))
        except ExpressionError:  # a fact does not have its declared type: find out whose rules read it
            found = [_alone(rule, facts) for rule in rules]
        for rule, result in zip(rules, found, strict=True):
            if result is True:
                fired.append(rule)
            elif result is not False:
                failed.append((rule, result))
    fired.sort(key=lambda rule: rule.position)
    failed.sort(key=lambda pair: pair[0].position)
    return fired, tuple(RuleError(rule.id, str(error)) for rule, error in failed)


def _alone(rule: Rule, facts: Mapping[str, object]) -> bool | ExpressionError:
    assert rule.condition is not None
    try:
        return rule.condition.test(rule.condition.environment.bind(facts, rule.condition.references))
    except ExpressionError as error:
        return error


def _outcome(fired: Sequence[Rule], errors: Sequence[RuleError]) -> Outcome:
    outcomes = {rule.outcome for rule in fired}
    if errors or Outcome.DENY in outcomes:
        return Outcome.DENY
    if Outcome.NEEDS_APPROVAL in outcomes:
        return Outcome.NEEDS_APPROVAL
    return Outcome.ALLOW if Outcome.ALLOW in outcomes else Outcome.DENY


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
    """Several rules add up: whatever any of them asks for is asked for."""
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
    """(kind, name) of the one that is named."""
    return next((kind, name) for kind in type(party).model_fields if isinstance(name := getattr(party, kind), str))


def _escalation(escalate: Escalate) -> Escalation:
    kind, name = _group(escalate.to)
    return Escalation(escalate.after, kind, name)
