"""A field whose value nobody could read is overwritten only where a rule says so, or where people have seen that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from core.action import Action
from core.errors import DefinitionError
from policy.evaluate import build_facts, evaluate
from policy.facts import UNREADABLE, FactContext
from policy.load import Policy
from policy.model import Ruling
from policy.sets import PolicySet

RULE = "- {id: a, match: {operation: servicenow.incident.update}, "
ALSO = "- {id: b, match: {connector: servicenow}, outcome: allow, overwrite_unreadable: true"
NONE = "size(action.unreadable) == 0"
ASKS = "outcome: needs_approval, approvers: [{group: leads}]}"
CASES: dict[str, tuple[str, Ruling, Ruling]] = {
    "it allows": (f"{RULE}outcome: allow}}", Ruling.ALLOW, Ruling.DENY),
    "it says so": (f"{RULE}outcome: allow, overwrite_unreadable: true}}", Ruling.ALLOW, Ruling.ALLOW),
    "one of two says so": (f"{RULE}outcome: allow}}\n{ALSO}}}", Ruling.ALLOW, Ruling.ALLOW),
    "one says so, not here": (f"{RULE}outcome: allow}}\n{ALSO}, when: 'false'}}", Ruling.ALLOW, Ruling.DENY),
    "it asks": (f"{RULE}{ASKS}", Ruling.NEEDS_APPROVAL, Ruling.NEEDS_APPROVAL),
    "it asks for just that": (
        f"{RULE}when: {NONE}, otherwise: allow, {ASKS}".replace("== 0", "> 0"), Ruling.ALLOW, Ruling.NEEDS_APPROVAL,
    ),
    "it denies": (f"{RULE}outcome: deny}}", Ruling.DENY, Ruling.DENY),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_could_not_be_read_is_overwritten_only_if_a_rule_says_so(
    load: Callable[[str], Policy], update: Callable[..., Action], name: str
) -> None:
    rules, readable, not_readable = CASES[name]
    policy, action = PolicySet.of(load(rules)), update({"state": "2"})

    def judged(of: Action) -> Any:
        facts = build_facts(of, FactContext(run_workflow="incident-triage"))
        return evaluate(policy, facts, of.operation)

    hidden = judged(replace(action, unreadable=("state",)))
    assert (judged(action).outcome, hidden.outcome) == (readable, not_readable)
    assert hidden.facts_read[UNREADABLE] == ["state"], "so it is judged like this once more, whenever it is replayed"
    again = evaluate(policy, hidden.facts_read, action.operation, "incident-triage")
    assert (again.outcome, again.rules) == (hidden.outcome, hidden.rules)
    if readable is not not_readable and hidden.outcome is Ruling.DENY:
        assert "state" in hidden.reasons[0]
        # A decision of an earlier release holds no such fact, and comes out as it did then.
        old = {name: value for name, value in hidden.facts_read.items() if name != UNREADABLE}
        assert evaluate(policy, old, action.operation, "incident-triage").outcome is readable


def test_it_has_no_meaning_where_nothing_is_allowed(load: Callable[[str], Policy]) -> None:
    with pytest.raises(DefinitionError, match="no meaning where the rule allows nothing"):
        load(f"{RULE}outcome: deny, overwrite_unreadable: true}}")
