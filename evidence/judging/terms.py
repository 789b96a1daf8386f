"""Judges the terms of questions: they ask for at least as much as the policy's rules or the workflow's gate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from core.canonical import JsonObject
from core.errors import InputError
from core.globs import Glob
from core.spans import parse_duration
from core.terms import Terms
from evidence.judging.case import Case, Step

OPERATORS = "group:operators"
_KINDS = ("group", "slack_group", "manager_of", "person")
_STRICTEST = ("deny", "needs_approval", "allow")
# The terms of a gate that its question must repeat exactly.
_OF_GATES = ("approvers", "two_person", "tier", "expires_seconds", "fresh_seconds", "escalate")


def rules_of(case: Case, policies: Iterable[str]) -> dict[str, JsonObject] | None:
    """The rules of these policies by their ids; None if the bundle lacks one of the policies."""
    found: dict[str, JsonObject] = {}
    for digest in policies:
        if digest not in case.policies:
            return None
        policy = case.policies[digest]
        rules = policy.get("rules")
        for rule in rules if isinstance(rules, list) else ():
            if isinstance(rule, dict):  # beside other policies, a rule is named with its own
                rule = _with_tiers(policy, rule)
                found[str(rule.get("id"))] = found[f"{policy.get('policy')}/{rule.get('id')}"] = rule
    return found


def _with_tiers(policy: JsonObject, rule: JsonObject) -> JsonObject:
    """The rule with the fresh login that its policy asks for in the rule's tier, unless the rule has its own."""
    tiers = policy.get("step_up")
    named = tiers.get(str(rule.get("tier", "medium"))) if isinstance(tiers, dict) else None
    return {**rule, "step_up": named} if named is not None and rule.get("step_up") is None else rule


def outcomes_of(rule: JsonObject) -> frozenset[str]:
    """The outcomes that a rule may have."""
    return frozenset(str(rule[name]) for name in ("outcome", "otherwise") if rule.get(name) is not None)


def misjudged(outcome: str, fired: Iterable[JsonObject]) -> str | None:
    """The reason why these rules do not come to this outcome; None if they may."""
    place, reached = _STRICTEST.index(outcome), False
    for rule in fired:
        mays = outcomes_of(rule)
        if mays and all(one in _STRICTEST and _STRICTEST.index(one) < place for one in mays):
            return f"the rule {rule.get('id')} comes to {', '.join(sorted(mays))}, and it is {outcome}"
        reached |= outcome in mays
    return None if reached else f"no rule that it names comes to {outcome}"


def always_fire(case: Case, policies: Iterable[str], operation: str) -> Iterator[tuple[str, str]]:
    """The rules without a condition that match this operation: each by its id, and by its policy and id."""
    for digest in policies:
        policy = case.policies.get(digest, {})
        rules = policy.get("rules")
        for rule in rules if isinstance(rules, list) else ():
            if isinstance(rule, dict) and rule.get("when") is None and _matches(case, rule.get("match"), operation):
                yield str(rule.get("id")), f"{policy.get('policy')}/{rule.get('id')}"


def _matches(case: Case, match: object, operation: str) -> bool:
    if not isinstance(match, dict) or not match:
        return False
    declared = case.definition.declared(operation) if case.definition is not None else None
    connector = (declared or {}).get("connector") or operation.partition(".")[0]
    if match.get("connector") not in (None, connector):
        return False
    glob = match.get("operation")
    return glob is None or Glob.of(str(glob)).matches(operation)


def weaker(terms: Terms, fired: Iterable[JsonObject]) -> Iterator[str]:
    """The ways in which terms are weaker than rules that ask people."""
    asked = {group.key: group.of for group in terms.approvers}
    for rule in fired:
        if outcomes_of(rule) != {"needs_approval"}:
            continue
        for key, of in _groups(rule.get("approvers")):
            named = asked.get(key, 0) or max((each for one, each in asked.items() if is_of(one, key)), default=0)
            if named < of:
                yield f"the rule {rule.get('id')} asks for {of} of {key}, and {named} were asked for"
        if rule.get("two_person") is True and not terms.two_person:
            yield f"the rule {rule.get('id')} asks for two people"
        if (most := _seconds(rule.get("step_up"))) is not None and not 0 <= (terms.step_up_seconds or -1) <= most:
            yield f"the rule {rule.get('id')} asks for a login anew, good for {most} seconds"
        if (glass := terms.break_glass) is not None:
            known = rule.get("break_glass")
            stated = known if isinstance(known, Mapping) else {}
            most = _seconds(stated.get("for"))
            if (
                stated.get("by") not in glass.by
                or stated.get("review") not in glass.review
                or glass.seconds > (most or -1)
            ):
                yield f"the rule {rule.get('id')} does not let them break the glass so"
        allow = rule.get("allow")
        allowed = {*map(str, allow)} if isinstance(allow, list) else set()
        if strange := sorted(role for role in terms.allow if str(role) not in allowed):
            yield f"the rule {rule.get('id')} does not let a {strange[0]} decide"


def _seconds(duration: object) -> int | None:
    """The seconds of a duration; None without one, and -1 if it cannot be read, which no terms meet."""
    try:
        return int(parse_duration(duration).total_seconds()) if isinstance(duration, str) else None
    except InputError:
        return -1


def other_gate(terms: Terms, gate: Step) -> str | None:
    """The first of the terms that is not the workflow's; None if there is none."""
    stated, given = terms.to_json(), gate.terms or {}
    for name in _OF_GATES:
        if stated.get(name) != given.get(name):
            return name
    allow = given.get("allow")
    allowed = {*map(str, allow)} if isinstance(allow, list) else set()
    return "allow" if any(str(role) not in allowed for role in terms.allow) else None


def of_doubt(case: Case, policies: Iterable[str]) -> frozenset[str]:
    """The groups that policies name for doubts."""
    rules = rules_of(case, policies) or {}
    named = [rule.get("in_doubt") for rule in rules.values()]
    return frozenset(key for one in named if isinstance(one, dict) for key, _ in _groups(one.get("approvers")))


def _groups(approvers: object) -> Iterator[tuple[str, int]]:
    for one in approvers if isinstance(approvers, list) else ():
        if isinstance(one, Mapping):
            of = one.get("of", 1)
            kind = next((kind for kind in _KINDS if one.get(kind) is not None), "slack_group")
            name = one.get(kind) if kind in _KINDS[:2] else ""  # who is asked as themself is found for each question
            yield f"{kind}:{name}", of if isinstance(of, int) else 1


def is_of(key: str, named: str) -> bool:
    """True if a question's group is the one that a rule names. For single persons, a rule names only the kind."""
    return key == named or (named.endswith(":") and key.startswith(named))
