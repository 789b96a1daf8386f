"""Rules beside rules: what one of them adds to the others, or takes from them, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from core.action import Action
from core.globs import Glob
from core.identity import Role
from core.terms import GroupQuorum, Tier
from policy.evaluate import build_facts, evaluate
from policy.explain import explain
from policy.facts import FactContext, OperationFacts
from policy.foresee import Foreseen, Verdict
from policy.load import Policy, load_policy
from policy.model import AppliesDocument, Ruling
from policy.scope import Scope
from policy.sets import BrokenPolicy, PolicySet

pytestmark = pytest.mark.req("U-4")

UPDATE, NOTE, RECORD = (
    "servicenow.incident.update",
    "servicenow.incident.add_work_note",
    "servicenow.record.update",
)
Known = Mapping[str, OperationFacts]


@pytest.fixture(scope="module")
def known(operations: Known) -> Known:
    """The operations; two of them do what a third can do as well."""
    narrower = {UPDATE: "action.target.startsWith('incident')", NOTE: "'work_notes' in action.present"}
    return {**operations, **{name: OperationFacts({}, generics={RECORD: one}) for name, one in narrower.items()}}


def policy(known: Known, *rules: str, name: str = "p", version: int = 1) -> Policy:
    text = "\n".join([f"policy: {name}\nversion: {version}\nrules:", *(f"- {{{rule}}}" for rule in rules)])
    return load_policy(text, f"{name}.yaml", known)


def judged(update: Callable[..., Action], policies: PolicySet, operation: str, **changes: Any) -> Any:
    action = update({"state": "2"}, operation=operation, **changes)
    return evaluate(policies, build_facts(action, FactContext()), operation)


ASK = "outcome: needs_approval, approvers: [{group: g, of: 2}]"


@pytest.mark.parametrize("beside", ["outcome: allow", "when: action.target == '', outcome: allow, otherwise: deny"])
def test_whoever_asks_says_how_whatever_else_allows_it(known: Known, update: Any, beside: str) -> None:
    """A rule that allows has no terms, so it neither shortens nor loosens those of a rule that asks."""
    asks = (
        f"id: ask, match: {{operation: '{UPDATE}'}}, {ASK}, allow: [editor], expires: P60D, fresh_for: P50D, tier: low"
    )
    policies = PolicySet.of(policy(known, asks, f"id: other, match: {{operation: '*'}}, {beside}"))
    decision = judged(update, policies, UPDATE, target="")
    assert (decision.outcome, [one.id for one in decision.rules]) == (Ruling.NEEDS_APPROVAL, ["ask", "other"])
    terms = decision.approval
    assert (terms.tier, terms.approvers, terms.allow) == (Tier.LOW, (GroupQuorum("g", 2),), (Role.EDITOR,))
    assert (terms.expires_seconds, terms.fresh_seconds) == (60 * 86400, 50 * 86400)


def test_a_denial_names_the_version_of_each_policy(known: Known, update: Any) -> None:
    never = f"id: a, match: {{operation: '{UPDATE}'}}, when: 'false', outcome: allow"
    one, two = policy(known, never, name="one", version=3), policy(known, never, name="two", version=12)
    assert judged(update, PolicySet.of(two, one), UPDATE).reasons == (
        f"No rule of the policies one@3, two@12 allows {UPDATE}.",
    )
    assert judged(update, PolicySet.of(two), UPDATE).reasons == (
        f"No rule of the policy two (version 12) allows {UPDATE}.",
    )


def test_of_several_that_cannot_be_read_the_first_is_told(known: Known, update: Any) -> None:
    good = policy(known, "id: a, match: {operation: '*'}, outcome: allow")
    broken = [BrokenPolicy(digest, f"It is {digest}.") for digest in ("first", "second", "third")]
    decision = judged(update, PolicySet.of(broken[0], good, broken[1], broken[2]), UPDATE)
    assert decision.reasons == ("The policy cannot be read, so nothing is allowed. It is first.",)
    assert [(one.id, one.outcome) for one in decision.rules] == [("policy:unreadable", Ruling.DENY)]


def test_policies_stand_by_their_names_and_then_by_their_versions(known: Known) -> None:
    rule = "id: a, match: {operation: '*'}, outcome: allow"
    every = [policy(known, rule, name=name, version=version) for name, version in (("b", 10), ("a", 2), ("b", 9))]
    for members in (every, every[::-1]):
        assert [str(one.named) for one in PolicySet(members).policies] == ["a@2", "b@9", "b@10"]


@pytest.mark.parametrize(
    ("glob", "names", "others"),
    [
        ("tri*", ("tri", "triage", "tri.a.b"), ("atri", "tr", "")),
        ("*", ("", "a", "a.b"), ()),
        ("*.get", (".get", "a.get", "a.b.get"), ("get", "a.get.b", "agett")),
        ("a*b*c", ("abc", "a.b.c", "axbxc", "abbcc"), ("ab", "acb", "xabc", "abcx")),
        ("a.b", ("a.b",), ("axb", "a.b.c", "A.b")),
        ("a**", ("a", "ab"), ("b",)),
    ],
)
def test_a_star_stands_for_any_characters_or_for_none(
    glob: str, names: tuple[str, ...], others: tuple[str, ...]
) -> None:
    assert [name for name in (*names, *others) if Glob.of(glob).matches(name)] == [*names]
    scope = Scope.of(AppliesDocument(workflows=(glob, "never")), {})
    assert [name for name in (*names, *others) if scope.covers(name, "x.y")] == [*names]


@pytest.mark.parametrize(
    ("target", "fields", "held"),
    [
        ("incident:1", {"state": "2"}, True),
        ("problem:1", {"work_notes": "x"}, True),
        ("incident:1", {"work_notes": "x"}, True),
        ("problem:1", {"state": "2"}, False),
    ],
)
@pytest.mark.parametrize("rest", ["outcome: deny", "when: 'true', outcome: deny, otherwise: allow"])
def test_what_can_do_one_of_several_is_restrained_as_that_one_is(
    known: Known, update: Any, target: str, fields: dict[str, Any], held: bool, rest: str
) -> None:
    """A rule that allows otherwise restrains by its denial, and never allows what it does not match."""
    narrow = f"id: narrow, match: {{operation: servicenow.incident.*}}, {rest}"
    broad = f"id: broad, match: {{operation: '{RECORD}'}}, outcome: allow"
    action = update(fields, operation=RECORD, target=target)
    for rules in ((narrow, broad), (broad, narrow)):
        decision = evaluate(PolicySet.of(policy(known, *rules)), build_facts(action, FactContext()), RECORD)
        assert decision.outcome is (Ruling.DENY if held else Ruling.ALLOW)
    alone = evaluate(PolicySet.of(policy(known, narrow)), build_facts(action, FactContext()), RECORD)
    assert alone.outcome is Ruling.DENY


def test_an_explanation_shows_what_each_rule_read_and_what_it_lacked(known: Known, update: Any) -> None:
    traced = {NOTE: OperationFacts({"a": "string", "b": "string", "c": "int"}, arguments=frozenset({"text"}))}
    conditions = {
        "lacks": "action.fields.c == 1 && action.fields.b == action.fields.a",
        "traced": "origin.text.exists(one, 'model' in one) && carries.text.size() == 1",
    }
    rules = [
        f"id: {name}, match: {{operation: '{NOTE}'}}, outcome: {outcome}, when: \"{conditions[name]}\""
        for name, outcome in (("lacks", "deny"), ("traced", "allow"))
    ]
    action = update({"b": "x"}, operation=NOTE)
    policies = PolicySet.of(policy({**known, **traced}, *rules))
    origins = {"origin.text": [["model"]], "carries.text": ["mail.get#/text"]}
    lacks, told = explain(policies, action, FactContext(), origins).rules
    assert (lacks.facts, lacks.missing) == ({"action.fields.b": "x"}, ("action.fields.a", "action.fields.c"))
    assert (told.fired, told.error, told.facts, told.missing) == (True, None, origins, ())
    untold = explain(policies, action, FactContext()).rules[1]
    assert (untold.fired, untold.missing) == (False, ("carries.text", "origin.text"))


def test_foresight_is_told_in_the_order_in_which_it_was_found() -> None:
    found = Foreseen(Verdict.DEPENDS, (Ruling.NEEDS_APPROVAL, Ruling.ALLOW), ("q/b", "p/a", "p/b"))
    told = found.to_json()
    assert (told["outcomes"], told["rules"]) == (["needs_approval", "allow"], ["q/b", "p/a", "p/b"])
    assert (told["verdict"], told["words"]) == (str(Verdict.DEPENDS), found.words)
