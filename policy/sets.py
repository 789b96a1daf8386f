"""All policies of a tenant that are in force together; the strictest outcome wins. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias

from msgspec import Struct

from core.expressions import ConditionSet, Expression
from policy.facts import SAME, is_traced
from policy.load import Policy, PolicyName, Rule
from policy.scope import EVERYTHING, Scope


class BrokenPolicy(Struct, frozen=True):
    """A policy in force that cannot be read; ``message`` says why. It denies everything in its scope."""

    digest: str
    message: str
    scope: Scope = EVERYTHING


# The number of rules above which they are evaluated in another thread.
RULES_LIGHT = 200
# The pairs of workflow and operation whose rules a set remembers, and the rules of all pairs together: some 15 MiB.
PAIRS_MAX, PAIRED_RULES_MAX = 1024, 100_000

Member: TypeAlias = "Policy | BrokenPolicy"


class Named(Struct, frozen=True):
    """A rule under the id that decisions use: with its policy's name before it if several policies were evaluated."""

    id: str
    place: tuple[int, int]
    rule: Rule
    policy: PolicyName


class Applying(Struct, frozen=True):
    """The policies that apply to one operation in one workflow, with their rules for it.

    Rules that agree on the types of facts form a group, which runs as one program. ``references`` are the facts that
    the rules read, sorted. ``traces``: a rule reads origins. ``recounts``: a rule reads the count of equal calls.
    ``unknown``: one of the policies does not know the operation. ``usable``: all policies can be evaluated.
    """

    policies: tuple[PolicyName, ...]
    broken: tuple[BrokenPolicy, ...]
    unknown: bool
    usable: bool
    groups: tuple[tuple[tuple[Named, ...], ConditionSet], ...]
    references: tuple[str, ...]
    traces: bool = False
    recounts: bool = False


class PolicySet:
    """The policies that are in force together, ordered by name. Immutable."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members = tuple(members)
        self.policies = tuple(
            sorted((one for one in self.members if isinstance(one, Policy)), key=lambda one: (one.name, one.version))
        )
        self.broken = tuple(one for one in self.members if isinstance(one, BrokenPolicy))
        rules = sum(len(policy.rules) for policy in self.policies)
        self.applying = lru_cache(min(PAIRS_MAX, max(1, PAIRED_RULES_MAX // (rules + 1))))(self._applying)
        """The policies and rules for an operation in a workflow; computed on first use."""

    @classmethod
    def of(cls, *members: Member | None) -> PolicySet:
        """The set of these members; None is left out."""
        return cls(one for one in members if one is not None)

    @cached_property
    def is_heavy(self) -> bool:
        """True if judging may take long even for a small action: there are many rules, or loops that build lists."""
        rules = [rule for policy in self.policies for rule in policy.rules]
        every = (one for rule in rules for one in (rule.condition, *rule.restrains.values()))
        return len(rules) > RULES_LIGHT or any(one.copies for one in every)

    @cached_property
    def traces(self) -> bool:
        """True if a rule in force reads origins, so that runs must pass origins on to the runs that they start."""
        return any(policy.traces for policy in self.policies)

    def before_gates(self, workflow: str, operation: str) -> tuple[PolicyName, ...]:
        """The policies that let an added step of this operation come before the gates ahead of its run."""
        if any(one.scope.covers(workflow, operation) for one in self.broken):
            return ()
        named = (one for one in self.policies if any(glob.matches(operation) for glob in one.before_gates))
        return tuple(one.named for one in named if one.scope.covers(workflow, operation))

    def rules_for(self, workflow: str, operation: str) -> list[tuple[Named, Expression]] | None:
        """The rules for an operation in a workflow, each with its condition; None if it is denied without any rule."""
        applies = self._covering(workflow, operation)
        broken = any(one.scope.covers(workflow, operation) for one in self.broken)
        if not applies or broken or any(operation not in one.operations for one in applies):
            return None
        return [*_rules_of(applies, operation)]

    def _covering(self, workflow: str, operation: str) -> list[Policy]:
        return [one for one in self.policies if one.scope.covers(workflow, operation)]

    def _applying(self, workflow: str, operation: str) -> Applying:
        applies = self._covering(workflow, operation)
        groups: list[tuple[dict[str, str], list[tuple[Named, Expression]]]] = []
        for named, condition in _rules_of(applies, operation):
            reads = {fact: condition.environment.variables[fact] for fact in condition.references}
            for types, group in groups:
                if all(types.get(fact, kind) == kind for fact, kind in reads.items()):
                    types.update(reads)
                    group.append((named, condition))
                    break
            else:
                groups.append((reads, [(named, condition)]))
        references = {fact for types, _ in groups for fact in types}
        references |= {fact for _, group in groups for named, _ in group for fact in named.rule.document.names_people}
        broken = tuple(one for one in self.broken if one.scope.covers(workflow, operation))
        unknown = any(operation not in one.operations for one in applies)
        return Applying(
            tuple(one.named for one in applies),
            broken,
            unknown,
            bool(applies) and not broken and not unknown,
            tuple(
                (tuple(named for named, _ in group), ConditionSet([condition for _, condition in group]))
                for _, group in groups
            ),
            tuple(sorted(references)),
            any(map(is_traced, references)),
            SAME in references,
        )


def _rules_of(applies: Sequence[Policy], operation: str) -> Iterator[tuple[Named, Expression]]:
    """The rules of these policies for an operation, in order, each with its condition."""
    for at, policy in enumerate(applies):
        for rule in policy.rules:
            if (condition := rule.condition_for(operation)) is not None:
                name = f"{policy.name}/{rule.id}" if len(applies) > 1 else rule.id
                yield Named(name, (at, rule.position), rule, policy.named), condition


NO_POLICIES = PolicySet()
