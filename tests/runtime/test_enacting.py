"""The question about a policy says what would change, in numbers and names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runtime.requests.consequences import NAMED_MAX, QUESTIONS_MAX, Consequences
from runtime.requests.enacting import _changes, _led

STEP = ("w@1", "s", "o", "always allowed", "always denied")
QUESTION = ("a", "r", "s", "deny")
_NOTHING = "The rules cannot be compared, because one of the two cannot be read any more."


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Consequences(), ""),
        (Consequences(rules=(("a", "is new"),) * 60), ""),
        (Consequences(steps=(STEP,)), " Decided otherwise: 1 steps of published workflows, 0 open questions."),
        (
            Consequences(questions=(QUESTION,) * 2),
            " Decided otherwise: 0 steps of published workflows, 2 open questions.",
        ),
        (
            Consequences(steps=(STEP,) * (NAMED_MAX + 1), questions=(QUESTION,) * (NAMED_MAX + 2)),
            " Decided otherwise: 51 steps of published workflows, 52 open questions.",
        ),
        (Consequences(unread=3), " 3 more open questions were not looked at."),
        (Consequences(rollback=0), " It goes back to an older version."),
        (
            Consequences(unread=1, rollback=2),
            " 1 more open questions were not looked at. It goes back to an older version.",
        ),
    ],
)
def test_consequences_are_counted_all_of_them(found: Consequences, words: str) -> None:
    assert _led(found.to_json()) == words


@pytest.mark.parametrize("count", [0, 1, NAMED_MAX - 1, NAMED_MAX, NAMED_MAX + 1, QUESTIONS_MAX])
def test_fifty_of_each_kind_are_named_and_the_rest_is_counted(count: int) -> None:
    many = Consequences(
        tuple((f"rule {n}", "is new") for n in range(count)),
        tuple((f"w@{n}", "s", "o", "x", "y") for n in range(count + 1)),
        tuple((f"a{n}", "r", "s", "deny") for n in range(count + 2)),
        7,
        8,
    )
    told: Any = many.to_json()
    assert told["rules"] == [{"rule": f"rule {n}", "what": "is new"} for n in range(min(count, 50))]
    step = {"step": "s", "operation": "o", "before": "x", "after": "y"}
    assert told["steps"] == [{"workflow": f"w@{n}", **step} for n in range(min(count + 1, 50))]
    asked = {"run": "r", "step": "s", "outcome": "deny"}
    assert told["questions"] == [{"approval": f"a{n}", **asked} for n in range(min(count + 2, 50))]
    over = {"rules": max(0, count - 50), "steps": max(0, count - 49), "questions": max(0, count - 48)}
    assert (told["more"], told["unread"], told["rollback_from"]) == (over, 7, 8)


def test_rules_that_were_added_removed_and_changed_are_named(runtime: Any) -> None:
    def rules(*given: str) -> Any:
        text = "policy: p\nversion: 1\nrules:\n" + "".join(f"  - {{{one}}}\n" for one in given)
        return runtime.definitions.compile_policy(text, "p.yaml").rules

    same, match = "id: same, match: {connector: probe}, outcome: allow", "match: {connector: probe}"
    before = rules(same, f"id: changes, {match}, outcome: allow", f"id: goes, {match}, outcome: deny")
    after = rules(f"id: comes, {match}, outcome: deny", f"id: changes, {match}, outcome: deny", same)
    assert _changes(before, after) == "Rules added: comes. Rules removed: goes. Rules changed: changes."
    assert _changes((), after) == "Rules added: comes, changes, same."
    assert _changes(before, ()) == "Rules removed: same, changes, goes."
    turned = rules(f"id: changes, {match}, outcome: deny", "id: same, match: {connector: probe}, outcome: deny")
    assert _changes(before, turned) == "Rules removed: goes. Rules changed: changes, same.", "as the new one has them"
    assert _changes(before, tuple(reversed(before))) == "No rule is added, removed or changed."
    assert _changes(before, before) == "No rule is added, removed or changed."
    assert (_changes(None, after), _changes(before, None)) == (_NOTHING, _NOTHING)


def test_every_rule_that_changes_is_named_in_its_order() -> None:
    many: Any = [SimpleNamespace(id=f"rule {number}", document={"n": number}) for number in range(60)]
    other: Any = [SimpleNamespace(id=one.id, document={}) for one in many]
    names = ", ".join(one.id for one in many)
    assert _changes((), many) == f"Rules added: {names}."
    assert _changes(many, ()) == f"Rules removed: {names}."
    assert _changes(many, other) == f"Rules changed: {names}."
