"""The explanation of a decision: every rule, if it matched and fired, and what it read. Pure data."""

from __future__ import annotations

from typing import cast

from msgspec import Struct, to_builtins

from core.action import Action
from core.canonical import Json, JsonObject
from policy.evaluate import Decision, build_facts, evaluate
from policy.facts import FactContext
from policy.load import Policy
from policy.model import Outcome


class RuleExplanation(Struct, frozen=True):
    """One rule against one action. ``missing`` are facts that the rule reads and the action does not have."""

    id: str
    outcome: Outcome
    when: str | None
    matched: bool
    fired: bool
    error: str | None
    facts: JsonObject
    missing: tuple[str, ...]


class Explanation(Struct, frozen=True):
    """The decision, and every rule of the policy in its order."""

    decision: Decision
    rules: tuple[RuleExplanation, ...]

    def to_json(self) -> JsonObject:
        """The explanation as plain JSON; the facts are the action's own values."""
        return {"decision": self.decision.to_json(), "rules": to_builtins(self.rules)}


def explain(policy: Policy, action: Action, context: FactContext) -> Explanation:
    """Judge an action and show how every rule came out."""
    facts = build_facts(action, context)
    decision = evaluate(policy, facts, action.operation)
    fired = {rule.id for rule in decision.rules}
    errors = {error.rule: error.message for error in decision.errors}
    explained = [
        RuleExplanation(
            id=rule.id,
            outcome=rule.outcome,
            when=rule.document.when,
            matched=action.operation in rule.operations,
            fired=rule.id in fired,
            error=errors.get(rule.id),
            facts={name: cast(Json, facts[name]) for name in sorted(rule.condition.references) if name in facts},
            missing=tuple(sorted(rule.condition.references - facts.keys())),
        )
        for rule in policy.rules
    ]
    return Explanation(decision, tuple(explained))
