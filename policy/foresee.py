"""The outcome of an operation in a workflow, as far as it is known before any run. Pure.

The result is never a guess: it holds for every action of the step, apart from caps and pauses. A rule is certain if it
has no condition, or if the facts fixed by workflow and operation decide its condition whatever the other facts are
(CEL's `&&` and `||` allow that). An uncertain rule may fire, may not fire, or may raise an error, which denies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct

from core.canonical import JsonObject
from core.errors import ExpressionError
from core.expressions import Expression
from policy.model import STRENGTH, Ruling
from policy.sets import PolicySet


class Verdict(StrEnum):
    """The outcome of every action of a step, in words."""

    DENIED = "always denied"
    ASKS = "always asks people"
    ALLOWED = "always allowed"
    DEPENDS = "it depends"


_ALWAYS = {Ruling.DENY: Verdict.DENIED, Ruling.NEEDS_APPROVAL: Verdict.ASKS, Ruling.ALLOW: Verdict.ALLOWED}


_MAY = {Ruling.DENY: "denied", Ruling.NEEDS_APPROVAL: "asks people", Ruling.ALLOW: "allowed"}

_Seen: TypeAlias = tuple[str, Ruling, bool, bool | None]
"""A rule that may fire: name, outcome, is it about this operation itself, is it certain (None: undecided)."""


class Foreseen(Struct, frozen=True):
    """The possible ``outcomes``, the strictest first (several: it depends), and the ``rules`` that may decide.

    If the verdict is DEPENDS, ``outcomes`` leaves out the denial by a condition that cannot be evaluated.
    """

    verdict: Verdict
    outcomes: tuple[Ruling, ...]
    rules: tuple[str, ...]

    @property
    def words(self) -> str:
        """The verdict in words; if it depends, with the possible outcomes."""
        if self.verdict is not Verdict.DEPENDS:
            return str(self.verdict)
        return f"{self.verdict}: " + " or ".join(_MAY[outcome] for outcome in self.outcomes[::-1])

    def to_json(self) -> JsonObject:
        """The foresight as plain JSON."""
        return {
            "verdict": str(self.verdict),
            "words": self.words,
            "outcomes": [str(outcome) for outcome in self.outcomes],
            "rules": [*self.rules],
        }


def foresee(policies: PolicySet, workflow: str, operation: str, fixed: Mapping[str, object]) -> Foreseen:
    """Foresee the outcome of the operation in this workflow. ``fixed`` are facts that hold in all of its runs."""
    applying = policies.rules_for(workflow, operation)
    if applying is None:
        return Foreseen(Verdict.DENIED, (Ruling.DENY,), ())
    rules = [
        (named.id, named.rule.outcome, operation in named.rule.operations, _certain(condition, fixed))
        for named, condition in applying
    ]
    rules = [rule for rule in rules if rule[3] is not False]
    either = _weakest(rules)
    sure = [outcome for _, outcome, _, certain in rules if certain] + either
    # A rule for a narrower operation can only restrict this one: unless a rule for this operation fires too, it is
    # denied.
    own = any(is_own for _, _, is_own, _ in rules)
    let = bool(either) or any(is_own and certain for _, _, is_own, certain in rules)
    names = tuple(dict.fromkeys(name for name, *_ in rules))
    if not own or Ruling.DENY in sure:
        return Foreseen(Verdict.DENIED, (Ruling.DENY,), names)
    if {outcome for _, outcome, *_ in rules} == {Ruling.DENY}:
        return Foreseen(Verdict.DENIED, (Ruling.DENY,), names)
    floor = min(sure, key=STRENGTH.index) if let else Ruling.DENY  # perhaps no rule for this operation fires: denied
    stricter = STRENGTH[: STRENGTH.index(floor)] if let else STRENGTH
    possible = {outcome for _, outcome, _, certain in rules if not certain and outcome in stricter} | {floor}
    certain = let and all(rule[3] is not None for rule in rules)
    verdict = _ALWAYS[floor] if certain else Verdict.DEPENDS
    return Foreseen(verdict, tuple(one for one in STRENGTH if one in possible), names)


def _weakest(rules: Sequence[_Seen]) -> list[Ruling]:
    """List the weaker outcome of each undecided rule with `otherwise`: one of its two outcomes always holds.

    The two halves of such a rule have one name and are adjacent. Of a rule whose condition is decided, only one half is
    among ``rules``.
    """
    pairs = [(one[1], other[1]) for one, other in pairwise(rules) if one[0] == other[0] and one[2]]
    return [max(pair, key=STRENGTH.index) for pair in pairs]


def _certain(condition: Expression, fixed: Mapping[str, object]) -> bool | None:
    """True or False if the fixed facts decide the condition; None if they do not."""
    try:
        return condition.test(fixed)
    except ExpressionError:
        return None


def changed(before: PolicySet, after: PolicySet) -> Iterator[tuple[str, str]]:
    """Yield each rule that is added, removed or changed: its name with its policy's, and the kind of change."""
    old, new = _rules(before), _rules(after)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield name, "falls away"
        elif name not in old:
            yield name, "is new"
        elif old[name] != new[name]:
            yield name, "changes"


def _rules(policies: PolicySet) -> dict[str, object]:
    """Every rule by name, as its document with its policy's scope, which is part of the rule's meaning.

    A rule with `otherwise` is represented by its first half, which holds the document as written.
    """
    return {
        f"{policy.name}/{rule.id}": (rule.document, policy.applies)
        for policy in policies.policies
        for rule in reversed(policy.rules)
    }
