"""The decision over one action: total, and fail-closed.

Every matching rule of every policy that applies is evaluated. Deny outranks needs_approval, which outranks allow. The
decision is also deny if no rule fired, if a rule fails (the decision names it), if there is no policy, or if one cannot
be read. The content of a policy or an action never raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from core.action import Action
from core.canonical import JsonObject
from core.errors import ExpressionError
from core.identity import Role
from core.terms import (
    REJECTION_SECONDS,
    UNFOUND,
    BreakGlass,
    Escalation,
    GroupQuorum,
    GroupSource,
    Terms,
    Tier,
    Unresolved,
)
from policy.facts import AGENT, BY_AGENT, COUNTERSEAL, EXTENSION, NOW, PUBLISHED, UNREADABLE, FactContext
from policy.load import PolicyName
from policy.model import STRENGTH, Approver, EscalateTo, RuleApprover, RuleDocument, Ruling
from policy.sets import Applying, Named, PolicySet


class FiredRule(Struct, frozen=True):
    """A rule whose condition held. ``id`` begins with its policy's name if several policies were evaluated."""

    id: str
    outcome: Ruling
    because: str | None

    @property
    def own_id(self) -> str:
        """The rule's id within its policy."""
        return self.id.rpartition("/")[2]


class RuleError(Struct, frozen=True):
    """A rule that could not be evaluated, and the reason."""

    rule: str
    message: str


class Decision(Struct, frozen=True):
    """The decision of the policies on one action.

    ``policies`` are all evaluated policies; ``asking`` are the policies whose rules decided the outcome. ``rules`` are
    all rules that fired, in the policies' order, including outranked ones. ``reasons`` are sentences for people, at
    least one. ``approval`` is set exactly if the outcome is needs_approval. ``facts_read`` are the operation and the
    facts that the matching rules read, with their values (sensitive ones too): enough to judge the action again.
    ``in_doubt`` are the groups that the rules name to resolve a doubt about the action.
    """

    outcome: Ruling
    policies: tuple[PolicyName, ...]
    rules: tuple[FiredRule, ...]
    errors: tuple[RuleError, ...]
    reasons: tuple[str, ...]
    approval: Terms | None = None
    facts_read: Mapping[str, object] = field(default_factory=dict)
    asking: tuple[PolicyName, ...] = ()
    in_doubt: tuple[GroupQuorum, ...] = ()

    def to_json(self) -> JsonObject:
        """The decision as plain JSON, without the facts."""
        return {
            "outcome": str(self.outcome),
            "policies": [policy.to_json() for policy in self.policies],
            "rules": [{"id": r.id, "outcome": str(r.outcome), "because": r.because} for r in self.rules],
            "errors": [{"rule": e.rule, "message": e.message} for e in self.errors],
            "reasons": list(self.reasons),
            "approval": None if self.approval is None else self.approval.to_json(),
        }


def deny(
    code: str,
    sentence: str,
    policies: tuple[PolicyName, ...] = (),
    read: Mapping[str, object] = MappingProxyType({}),
) -> Decision:
    """A denial that no rule made: by a cap (``cap:max_writes_per_run``), or because there is no usable policy."""
    fired = (FiredRule(code, Ruling.DENY, sentence),)
    return Decision(Ruling.DENY, policies, fired, (), (sentence,), None, read)


def build_facts(
    action: Action, context: FactContext, traced: Mapping[str, object] = MappingProxyType({})
) -> dict[str, object]:
    """The facts of one action, by their dotted names, as plain JSON values. ``traced`` are the facts about origins."""
    before, connector = action.before, action.connector or action.operation.partition(".")[0]
    added = EXTENSION if context.step_added_by else PUBLISHED
    text = context.run_requested_by_text or context.run_requested_by
    texts = (f"{Role.REQUESTER}:{text}", *action.shaped)
    facts: dict[str, object] = {
        "action.operation": action.operation,
        "action.connector": connector,
        "action.target": action.target,
        "action.risk": str(action.risk),
        "action.reversible": action.reversible,
        "action.side_effects": str(action.side_effects),
        "action.changed": _changed(action),
        "action.present": list(action.fields),
        UNREADABLE: [*action.unreadable],
        "action.read": sorted(before) if before is not None else [],
        "action.system": action.system,
        "action.contributors": [*(context.contributors or texts)],
        "action.contributors_text": [*texts],
        "action.carried_out_by": BY_AGENT if connector == BY_AGENT else COUNTERSEAL,
        "run.workflow": context.run_workflow,
        "run.version": context.run_version,
        "run.id": context.run_id,
        "run.reference": context.run_reference,
        "run.requested_by": context.run_requested_by,
        "run.requested_by_text": text,
        "run.trigger": context.run_trigger,
        "run.step": context.run_step,
        "step.origin": AGENT if (context.agent_step or context.agent_id) and not context.step_added_by else added,
        "step.added_by": context.step_added_by,
        "step.added_by_text": context.step_added_by_text or context.step_added_by,
        "actor.id": context.actor_id,
        "actor.kind": context.actor_kind,
        "counters.writes_in_run": context.writes_in_run,
        "counters.same_in_run": context.same_in_run,
        "counters.refused_in_run": context.refused_in_run,
        "counters.asked_in_run": context.asked_in_run,
        **_of_agent(context),
        "tenant.id": context.tenant_id,
        "tenant.workspace": context.tenant_workspace,
    }
    facts |= {NOW: context.now} if context.now else {}
    facts.update((f"action.fields.{name}", value) for name, value in action.fields.items())
    return {**facts, **{f"action.before.{name}": value for name, value in (before or {}).items()}, **traced}


def _of_agent(context: FactContext) -> dict[str, object]:
    counted = {
        "agent.asked_24h": context.agent_asked,
        "agent.refused_24h": context.agent_refused,
        "agent.same_24h": context.agent_same,
    }
    return {
        **{name: value for name, value in counted.items() if value is not None},
        "agent.id": context.agent_id,
        "agent.owner": context.agent_owner,
        "agent.step": context.agent_step,
        "agent.turn": context.agent_turn,
        "agent.model": context.agent_model,
        "agent.read": [*context.agent_read],
    }


def _changed(action: Action) -> list[str]:
    """The written fields whose present value differs, as far as it was read."""
    before = {} if action.before is None else action.before
    return [field for field, after in action.fields.items() if field not in before or before[field] != after]


_PLAIN_REASONS = {
    Ruling.DENY: "Rule {} denies it.",
    Ruling.NEEDS_APPROVAL: "Rule {} asks for an approval.",
    Ruling.ALLOW: "Rule {} allows it.",
}


def evaluate(policies: PolicySet, facts: Mapping[str, object], operation: str, workflow: str | None = None) -> Decision:
    """Judge one action. The content of policies or facts never raises.

    ``workflow`` selects the applying policies if the facts lack it: a recorded decision holds only the facts that rules
    have read.
    """
    workflow = str(facts.get("run.workflow", "")) if workflow is None else workflow
    applying = policies.applying(workflow, operation)
    if not applying.usable or facts.get("action.operation") != operation:
        return _refusal(applying, operation)
    fired: list[Named] = []
    failed: list[tuple[Named, ExpressionError]] = []
    for rules, conditions in applying.groups:
        for named, held in zip(rules, conditions.run(facts), strict=True):
            if held is True:
                fired.append(named)
            elif held is not False:
                failed.append((named, held))
    fired.sort(key=_PLACE)
    failed.sort(key=lambda pair: pair[0].place)
    # Both branches of a rule with `otherwise` fail together: report one error, that of the first.
    errors = tuple({named.id: RuleError(named.id, str(error)) for named, error in reversed(failed)}.values())[::-1]
    outcomes = {named.rule.outcome for named in fired}
    # A rule for a narrower operation can only restrict this one: unless a rule for this operation fires too, it is
    # denied.
    own = any(operation in named.rule.operations for named in fired)
    outcome = Ruling.DENY if errors or not own else next(one for one in STRENGTH if one in outcomes)
    decisive = [named for named in fired if named.rule.outcome is outcome]
    read = {"action.operation": operation, **{name: facts[name] for name in applying.references if name in facts}}
    # A decision of an earlier release lacks this fact, so judging it again gives the same result as then.
    read |= {UNREADABLE: unreadable} if (unreadable := facts.get(UNREADABLE)) else {}
    if outcome is Ruling.ALLOW and unreadable and not any(one.rule.document.overwrite_unreadable for one in decisive):
        return _overwrites(applying, fired, unreadable, read)
    in_doubt = [asked for named in fired if (asked := named.rule.document.in_doubt)]
    reasons = [f"Rule {error.rule} could not be evaluated: {error.message}" for error in errors]
    reasons += [named.rule.document.because or _PLAIN_REASONS[outcome].format(named.id) for named in decisive]
    return Decision(
        outcome,
        applying.policies,
        tuple(FiredRule(named.id, named.rule.outcome, named.rule.document.because) for named in fired),
        errors,
        tuple(reasons) or (_none(applying, operation),),
        terms_of([named.rule.document for named in decisive], facts) if outcome is Ruling.NEEDS_APPROVAL else None,
        read,
        tuple(dict.fromkeys(named.policy for named in decisive)),
        quorums(one for asked in in_doubt for one in asked.approvers) if in_doubt else (),
    )


_PLACE = attrgetter("place")


def _overwrites(applying: Applying, fired: Sequence[Named], unreadable: object, read: Mapping[str, object]) -> Decision:
    """The denial of a write to a field whose value could not be read, if no rule allows exactly that."""
    names = ", ".join(map(str, unreadable)) if isinstance(unreadable, list) else str(unreadable)
    words = f"What {names} holds now could not be read, and no rule allows to overwrite it all the same."
    denied = deny("policy:unreadable_field", words, applying.policies, read)
    rules = tuple(FiredRule(named.id, named.rule.outcome, named.rule.document.because) for named in fired)
    return replace(denied, rules=(*rules, *denied.rules))


def _refusal(applying: Applying, operation: str) -> Decision:
    """The denial of an operation for which no rule can be evaluated."""
    if applying.broken:
        sentence = f"The policy cannot be read, so nothing is allowed. {applying.broken[0].message}"
        return deny("policy:unreadable", sentence)
    if not applying.policies:
        return deny("policy:none", "There is no policy for it, so nothing is allowed.")
    if applying.unknown:
        return deny("policy:unknown_operation", f"A policy does not know the operation {operation}.", applying.policies)
    return deny("policy:facts", f"The facts are not those of {operation}.", applying.policies)


def _none(applying: Applying, operation: str) -> str:
    if len(applying.policies) == 1:
        (policy,) = applying.policies
        return f"No rule of the policy {policy.name} (version {policy.version}) allows {operation}."
    return f"No rule of the policies {', '.join(map(str, applying.policies))} allows {operation}."


def terms_of(documents: Sequence[RuleDocument], facts: Mapping[str, object] = MappingProxyType({})) -> Terms:
    """Combine the terms of several rules: the result is at least as strict as each of them.

    ``facts`` are those by which its approvers are found later. Whoever named an approver must be known, so that they
    are kept from deciding.
    """
    expires = min(document.expires for document in documents)
    reminders = {remind for document in documents for remind in document.remind if remind < expires}
    overdue = [document.escalate for document in documents if document.escalate and document.escalate.after < expires]
    first = min(overdue, key=lambda escalate: escalate.after, default=None)
    escalate = None
    if first is not None:
        name, source = _group(first.to)
        escalate = Escalation(int(first.after.total_seconds()), GroupQuorum(name, 1, source))
    tier = max((document.tier for document in documents), key=[*Tier].index)
    named = any(document.names_people for document in documents)
    usual = Unresolved.DENY if tier is Tier.HIGH or named else Unresolved.ASK
    denies = any((document.unresolved or usual) is Unresolved.DENY for document in documents)
    return Terms(
        tier=tier,
        approvers=quorums((approver for document in documents for approver in document.approvers), facts),
        two_person=any(document.two_person for document in documents),
        allow=tuple(role for role in Role if all(role in document.allow for document in documents)),
        unresolved=Unresolved.DENY if denies else Unresolved.ASK,
        expires_seconds=int(expires.total_seconds()),
        remind_seconds=tuple(int(remind.total_seconds()) for remind in sorted(reminders)),
        escalate=escalate,
        fresh_seconds=int(min(document.fresh_for for document in documents).total_seconds()),
        rejection_seconds=_rejection_seconds(documents),
        questions=_bounds(documents),
        channel=_channel(documents),
        grants=_grants(documents),
        step_up_seconds=_step_up(documents),
        break_glass=_break_glass(documents),
    )


def _break_glass(documents: Sequence[RuleDocument]) -> BreakGlass | None:
    """The terms of an emergency, as strict as all of them; None unless each of the rules knows one."""
    named = [one.break_glass for one in documents if one.break_glass is not None]
    if not named or len(named) < len(documents):
        return None
    by, review = ({one.by for one in named}, {one.review for one in named})
    seconds = min(int(one.span.total_seconds()) for one in named)
    return BreakGlass(tuple(sorted(by)), tuple(sorted(review)), seconds)


def _step_up(documents: Sequence[RuleDocument]) -> int | None:
    """The shortest time for which a login anew is good; None if none of the rules asks for one."""
    return min((int(one.step_up.total_seconds()) for one in documents if one.step_up is not None), default=None)


def _grants(documents: Sequence[RuleDocument]) -> dict[str, int] | None:
    """The smallest bounds of grants; None unless each rule lets approvers give one, and none asks for a login."""
    named = [document.grants for document in documents if document.grants is not None]
    if not named or len(named) < len(documents) or _step_up(documents) is not None:
        return None
    spans = (int(one.span.total_seconds()) for one in named)
    return {"uses": min(one.uses for one in named), "seconds": min(spans)}


def _channel(documents: Sequence[RuleDocument]) -> str | None:
    """The channel of the rule with the highest tier that names one; None if no rule does."""
    named = [document for document in documents if document.channel is not None]
    return max(named, key=lambda document: [*Tier].index(document.tier)).channel if named else None


def _rejection_seconds(documents: Sequence[RuleDocument]) -> int | None:
    """The longest time for which a rejection binds by these rules; None if none of them names one."""
    named = [document.rejection.holds for document in documents if document.rejection is not None]
    usual = [timedelta(seconds=REJECTION_SECONDS)] if len(named) < len(documents) else []
    return int(max([*named, *usual]).total_seconds()) if named else None


def _bounds(documents: Sequence[RuleDocument]) -> dict[str, int] | None:
    """The smallest bound for each name that the rules bound; None if they bound nothing."""
    found: dict[str, int] = {}
    for document in documents:
        for name, most in (document.questions.model_dump() if document.questions is not None else {}).items():
            if most is not None:
                found[name] = min(most, found.get(name, most))
    return found or None


def quorums(
    approvers: Iterable[Approver | RuleApprover], facts: Mapping[str, object] = MappingProxyType({})
) -> tuple[GroupQuorum, ...]:
    """Each group once, with the largest number of approvals that a rule asks of it."""
    quorum: dict[tuple[str, GroupSource], int] = {}
    for approver in approvers:
        one = isinstance(approver, RuleApprover) and (approver.manager_of or approver.person)
        key = _person_key(approver, facts) if isinstance(approver, RuleApprover) and one else _group(approver)
        quorum[key] = max(approver.of, quorum.get(key, 0))
    return tuple(GroupQuorum(name, of, source) for (name, source), of in quorum.items())


def _person_key(approver: RuleApprover, facts: Mapping[str, object]) -> tuple[str, GroupSource]:
    """The key of one person to be found later: the manager of somebody, or whom a field names, with its value."""
    if approver.manager_of is not None:
        return f"{UNFOUND}/{approver.manager_of}", GroupSource.MANAGER_OF
    value = facts.get(approver.fact or "")
    return f"{UNFOUND}/{approver.fact}={value if isinstance(value, str) else ''}", GroupSource.PERSON


def _group(party: EscalateTo | RuleApprover) -> tuple[str, GroupSource]:
    """The named group and its source."""
    if party.group is not None:
        return party.group, GroupSource.GROUP
    assert party.slack_group is not None, "the document names exactly one"
    return party.slack_group, GroupSource.SLACK_GROUP
