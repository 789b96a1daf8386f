"""The explanation of a decision: the result of every rule of the policies that apply. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from msgspec import Struct, to_builtins

from core.action import Action
from core.canonical import Json, JsonObject
from policy.evaluate import Decision, build_facts, evaluate
from policy.facts import FactContext
from policy.model import Ruling
from policy.sets import PolicySet


class RuleExplanation(Struct, frozen=True):
    """The result of one rule for one action. ``missing`` are facts that the rule reads and the action lacks."""

    id: str
    outcome: Ruling
    when: str | None
    matched: bool
    fired: bool
    error: str | None
    facts: JsonObject
    missing: tuple[str, ...]


class Explanation(Struct, frozen=True):
    """The decision, and every rule of the policies that apply, in their order."""

    decision: Decision
    rules: tuple[RuleExplanation, ...]

    def to_json(self) -> JsonObject:
        """The explanation as plain JSON; the facts are the action's own values."""
        return {"decision": self.decision.to_json(), "rules": to_builtins(self.rules)}


def explain(
    policies: PolicySet,
    action: Action,
    context: FactContext,
    traced: Mapping[str, object] = MappingProxyType({}),
) -> Explanation:
    """Judge an action and show the result of every rule."""
    facts = build_facts(action, context, traced)
    decision = evaluate(policies, facts, action.operation)
    fired = {(rule.id, rule.outcome) for rule in decision.rules}
    errors = {error.rule: error.message for error in decision.errors}
    several = len(decision.policies) > 1
    explained = [
        RuleExplanation(
            id=name,
            outcome=rule.outcome,
            when=rule.document.when,
            matched=rule.condition_for(action.operation) is not None,
            fired=(name, rule.outcome) in fired,
            error=errors.get(name),
            facts={name: cast(Json, facts[name]) for name in sorted(condition.references) if name in facts},
            missing=tuple(sorted(condition.references - facts.keys())),
        )
        for policy in policies.policies
        if policy.named in decision.policies
        for rule in policy.rules
        for name in [f"{policy.name}/{rule.id}" if several else rule.id]
        for condition in [rule.condition_for(action.operation) or rule.condition]
    ]
    return Explanation(decision, tuple(explained))
