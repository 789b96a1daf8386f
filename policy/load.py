"""Compiles and type-checks a policy's text into rules for the operations that they match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from core.canonical import JsonObject, sha256_hex
from core.documents import Document, Path, load_document
from core.errors import CountersealError, DefinitionError, ExpressionError, Problem, nearest
from core.expressions import POLICY_LIMITS, Expression, environment_of
from core.globs import Glob
from core.validation import validate
from policy.facts import OperationFacts, absent, declare, is_traced
from policy.model import APPROVAL_KEYS, AppliesDocument, PolicyDocument, RuleDocument, Ruling
from policy.scope import EVERYTHING, Scope, early_problems, scope_problems


class Rule(Struct, frozen=True):
    """A compiled rule. Without ``when`` its condition is ``true``.

    A rule of the document with ``otherwise`` becomes two of these, with one id and opposite conditions.

    ``restrains`` maps broader operations, which the rule does not match but which can do the same, to the conditions
    under which the rule holds for them. For them the rule can only deny, or ask people if another rule allows the
    action.
    """

    position: int
    id: str
    outcome: Ruling
    document: RuleDocument
    operations: frozenset[str]
    condition: Expression
    restrains: Mapping[str, Expression] = {}

    def condition_for(self, operation: str) -> Expression | None:
        """The condition under which the rule holds for this operation; None if it never does."""
        return self.condition if operation in self.operations else self.restrains.get(operation)


class PolicyName(Struct, frozen=True):
    """The name, version and digest of a policy, as decisions record them."""

    name: str
    version: int
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def to_json(self) -> JsonObject:
        """The policy as decisions and bundles name it."""
        return {"name": self.name, "version": self.version, "digest": self.digest}


class Policy:
    """One version of a policy. Immutable; ``digest`` is the SHA-256 of its exact text."""

    def __init__(
        self,
        document: PolicyDocument,
        text: str,
        rules: Sequence[Rule],
        operations: frozenset[str],
        scope: Scope = EVERYTHING,
    ) -> None:
        self.name = document.policy
        self.version = document.version
        self.text = text
        self.digest = sha256_hex(text.encode())
        self.named = PolicyName(self.name, self.version, self.digest)
        self.rules = tuple(rules)
        self.operations = operations
        self.scope = scope
        self.applies = document.applies
        named = document.extensions.before_gates if document.extensions else ()
        self.before_gates = tuple(map(Glob.of, named))
        conditions = [one for rule in rules for one in (rule.condition, *rule.restrains.values())]
        self.traces = any(is_traced(fact) for one in conditions for fact in one.references)


def load_policy(text: str, file: str, operations: Mapping[str, OperationFacts]) -> Policy:
    """Read, check and compile a policy for the operations of this installation.

    ``DefinitionError`` with every problem: syntax, unknown keys, a rule that matches no known operation, an expression
    that does not compile, approval terms that are superfluous or missing.
    """
    document = load_document(text, file)
    content = validate(document, PolicyDocument)
    problems = list(_structure_problems(document, content))
    problems += scope_problems(document, content, operations)
    problems += early_problems(document, content, operations)
    scope = Scope.of(content.applies, operations)

    def compiled(source: str, names: Iterable[str]) -> Expression:
        variables = declare(operations[name] for name in sorted(names))
        return environment_of(variables, POLICY_LIMITS).compile(source, "bool")

    rules = []
    for index, rule in enumerate(content.rules):
        matched = _matched(rule, operations)
        if not matched:
            problems.append(_unmatched(document, index, rule, operations))
            continue
        matched = frozenset(filter(scope.holds, matched))
        if not matched:
            message = f"rule {rule.id}: `applies` leaves none of the operations that it matches."
            problems.append(document.problem(("rules", index, "match"), message, "Widen `applies`, or drop the rule."))
            continue
        problems += _person_problems(document, index, rule, declare(operations[name] for name in sorted(matched)))
        try:
            if "${{" in (rule.when or ""):
                raise ExpressionError("`when` is an expression already.", remedy="Write it without ${{ }}.")
            # A rule that names no channel or no `step_up` takes the policy's value for its tier.
            where, fresh = rule.channel or content.channels.get(rule.tier), _step_up(content, rule)
            for branch in rule.model_copy(update={"channel": where, "step_up": fresh}).branches:
                condition = compiled(branch.when or "true", matched)
                siblings = _siblings(branch, matched, operations)
                restrains = {name: compiled(source, {*matched, name}) for name, source in siblings.items()}
                rules.append(Rule(index, rule.id, branch.outcome, branch, matched, condition, restrains))
        except ExpressionError as error:
            message = f"rule {rule.id}: {error.message}"
            problems.append(document.problem(("rules", index, "when"), message, error.remedy))
    if problems:
        raise DefinitionError(tuple(sorted(problems, key=lambda problem: (problem.line, problem.column))))
    return Policy(content, text, rules, frozenset(operations), scope)


def _step_up(content: PolicyDocument, rule: RuleDocument) -> timedelta | None:
    """The time for which a new login (step-up) is valid, by the rule or by its tier; None if none is needed."""
    return rule.step_up or (content.step_up.get(rule.tier) if rule.asks else None)


def check_names(policy: Policy, file: str, operations: Mapping[str, OperationFacts]) -> None:
    """Refuse names in ``action.present`` and ``action.read`` that no operation of the rule has: ``DefinitionError``.

    A policy that an earlier release published is not checked again, so that it stays usable.
    """
    document, problems = load_document(policy.text, file), list[Problem]()
    for rule in policy.rules:
        facts = [operations[name] for name in sorted(rule.operations)]
        if words := absent(rule.condition.places, facts):
            known = sorted({name for one in facts for name in (*one.fields, *one.before)})
            place = ("rules", rule.position, "when")
            remedy = f"The operations have {', '.join(known) or 'no fields'}."
            problems.append(document.problem(place, f"rule {rule.id}: {words}.", remedy))
    if problems:
        raise DefinitionError(tuple(problems))


def scope_of(text: str, file: str, operations: Mapping[str, OperationFacts]) -> Scope:
    """The scope of a policy that cannot be compiled: everything, unless its ``applies`` can be read."""
    try:
        value = load_document(text, file).value
        if not isinstance(value, dict) or "applies" not in value:
            return EVERYTHING
        return Scope.of(AppliesDocument.model_validate(value["applies"]), operations)
    except (CountersealError, ValidationError):
        return EVERYTHING


def _matched(rule: RuleDocument, operations: Mapping[str, OperationFacts]) -> frozenset[str]:
    glob, connector = rule.match.operation, rule.match.connector
    pattern = Glob.of(glob or "*")
    return frozenset(
        name
        for name in operations
        if pattern.matches(name) and (connector is None or operations[name].connector_of(name) == connector)
    )


def _siblings(rule: RuleDocument, matched: frozenset[str], operations: Mapping[str, OperationFacts]) -> dict[str, str]:
    """The broader operations that can do what the matched ones do, each with the rule's condition for it."""
    found: dict[str, list[str]] = {}
    for name in sorted(matched) if rule.outcome is not Ruling.ALLOW else ():
        for generic, condition in operations[name].generics.items():
            if generic not in matched and generic in operations:
                found.setdefault(generic, []).append(condition)
    return {name: f"({' || '.join(many)}) && ({rule.when or 'true'}\n)" for name, many in found.items()}


def _unmatched(document: Document, index: int, rule: RuleDocument, operations: Mapping[str, OperationFacts]) -> Problem:
    connectors = {facts.connector_of(name) for name, facts in operations.items()}
    connector, glob = rule.match.connector, rule.match.operation
    if connector is not None and connector not in connectors:
        key, message, remedy = "connector", f"there is no connector {connector!r}.", nearest(connector, connectors)
    else:
        place = f" in connector {connector!r}" if connector else ""
        key, message, remedy = "operation", f"no operation matches {glob!r}{place}.", nearest(glob or "", operations)
    return document.problem(("rules", index, "match", key), f"rule {rule.id}: {message}", remedy)


def _structure_problems(document: Document, content: PolicyDocument) -> Iterator[Problem]:
    if not content.rules:
        yield document.problem(("rules",), "a policy without rules denies everything.", "Write at least one rule.")
    seen: set[str] = set()
    for index, rule in enumerate(content.rules):
        if rule.id in seen:
            yield document.problem(("rules", index, "id"), f"the id {rule.id!r} is taken.", "Ids are unique.")
        seen.add(rule.id)
        yield from _otherwise_problems(document, index, rule)
        if rule.in_doubt is not None and rule.outcome is Ruling.DENY and rule.otherwise in (None, Ruling.DENY):
            message = f"rule {rule.id}: 'in_doubt' has no meaning with outcome deny: nothing is done."
            yield document.problem(("rules", index, "in_doubt"), message, "Remove it, or make it another outcome.")
        if rule.overwrite_unreadable and Ruling.ALLOW not in (rule.outcome, rule.otherwise):
            message = f"rule {rule.id}: 'overwrite_unreadable' has no meaning where the rule allows nothing."
            yield document.problem(("rules", index, "overwrite_unreadable"), message, "Remove it.")
        if rule.asks:
            yield from _approval_problems(document, index, rule)
            if rule.grants is not None and _step_up(content, rule) is not None:
                message = f"rule {rule.id}: 'grants' would let out more than the login anew was for ('step_up')."
                yield document.problem(("rules", index, "grants"), message, "Remove one of the two.")
            continue
        for key in [key for key in APPROVAL_KEYS if key in rule.model_fields_set]:
            message = f"rule {rule.id}: {key!r} has no meaning with outcome {rule.outcome}."
            yield document.problem(("rules", index, key), message, "Remove it, or make the outcome needs_approval.")


def _otherwise_problems(document: Document, index: int, rule: RuleDocument) -> Iterator[Problem]:
    place = ("rules", index, "otherwise")
    if rule.otherwise is not None and rule.when is None:
        message = f"rule {rule.id}: 'otherwise' has no meaning without 'when'."
        yield document.problem(place, message, "Say when, or remove it.")
    if rule.otherwise is rule.outcome:
        message = f"rule {rule.id}: 'otherwise' is what 'outcome' is, so 'when' has no meaning."
        yield document.problem(place, message, "Give another outcome, or remove it.")


def _approval_problems(document: Document, index: int, rule: RuleDocument) -> Iterator[Problem]:
    if not rule.approvers:
        key = "approvers" if "approvers" in rule.model_fields_set else "outcome"
        remedy = "Name approvers, such as approvers: [{group: service-owners, of: 1}]."
        yield document.problem(("rules", index, key), f"rule {rule.id}: nobody could approve.", remedy)
    for path, message in late_times(rule):
        yield document.problem(("rules", index, *path), f"rule {rule.id}: {message}")


def _person_problems(document: Document, index: int, rule: RuleDocument, facts: Mapping[str, str]) -> Iterator[Problem]:
    """The faults of approvers whom a field names: it must be a readable text, and nobody may name themselves in it."""
    for at, approver in enumerate(rule.approvers):
        fact, place = approver.fact, ("rules", index, "approvers", at, "person")
        if fact is not None and facts.get(fact) not in ("string", "dyn"):
            message = f"rule {rule.id}: {fact} is no text of the operations that it matches."
            known = sorted(name for name in facts if name.startswith(("action.before.", "action.fields.")))
            yield document.problem(place, message, nearest(fact, known))
    if rule.allow and rule.names_people:
        message = f"rule {rule.id}: with `allow`, whoever may write the field could name themselves, and decide."
        yield document.problem(("rules", index, "allow"), message, "Leave `allow` out, or ask a group.")


def late_times(asked: Any) -> Iterator[tuple[Path, str]]:
    """Yield the times of a rule or a gate that are after its question's expiry: each path, and the problem."""
    late = "when the approval has expired already."
    for at, remind in enumerate(asked.remind):
        if remind >= asked.expires:
            yield ("remind", at), f"reminds {late}"
    if asked.escalate is not None and asked.escalate.after >= asked.expires:
        yield ("escalate", "after"), f"escalates {late}"
