"""The facts by which policy judges a step's action: all of them at once, each with a value of its own (Q-16)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind
from connectors.port import Before
from connectors.proposal import build_action
from core.action import Action
from core.identity import Role
from policy.evaluate import Decision
from policy.facts import BASE_FACTS
from policy.model import Ruling
from runtime.engine.contributors import mark, whole
from runtime.engine.facts import call_of
from runtime.engine.instructions import known_of
from runtime.engine.intend import Proposal, binding, judge, void
from runtime.engine.transition import Transition
from tests.engine.agents import piloted
from tests.engine.conftest import RUN_ID
from tests.engine.governing import ASK, WRITE, Governed, governed
from tests.engine.test_agent_sources import apply, decided, read
from tests.support.agents import agent, calls, says

pytestmark = pytest.mark.req("Q-16")

READS = {"string": "size({}) >= 0", "int": "{} >= 0", "bool": "({0} || !{0})"}
ALL = " && ".join(READS.get(kind, "size({}) >= 0").format(fact) for fact, kind in BASE_FACTS.items())
MODELS = "  - {id: model, match: {connector: model}, outcome: allow}\n"
RULE = f'  - {{id: all, match: {{connector: probe}}, when: "{ALL}", outcome: allow}}\n'
READS_ALL = f"policy: all\nversion: 1\nrules:\n{MODELS}{RULE}"
FACTS = {
    "action.operation": "probe.record.update",
    "action.connector": "probe",
    "action.target": "record/x",
    "action.risk": "medium",
    "action.reversible": True,
    "action.side_effects": "external_call",
    "action.changed": ["priority"],
    "action.present": ["priority"],
    "action.system": "desk.example",
    "action.contributors": ["requester:someone", "step_adder:person:eve"],
    "run.workflow": "w",
    "run.version": 5,
    "run.id": str(RUN_ID),
    "run.reference": "r",
    "run.requested_by": "someone",
    "run.trigger": "schedule",
    "run.step": "a",
    "step.origin": "extension",
    "step.added_by": "person:eve",
    "actor.id": "workflow:w",
    "actor.kind": "workflow",
    "counters.writes_in_run": 4,
    "counters.same_in_run": 2,
    "counters.refused_in_run": 7,
    "counters.asked_in_run": 3,
    "agent.step": "",
    "agent.turn": 0,
    "agent.model": "",
    "agent.read": [],
    "tenant.id": "acme",
    "tenant.workspace": "main",
}


def at_hand(run: Governed, **changes: Any) -> tuple[Transition, Action]:
    """The run with counters of its own, and the action that its step would perform."""
    operation, state = run.workflow.operations["probe.record.update"], run.view().run.state
    state.shaped = {"added.a": [mark(Role.STEP_ADDER, "person:eve", "a")]}
    inputs = {"name": "x", "fields": {"priority": "1"}}
    action = build_action(operation, inputs, Before({"priority": "3"}, "7"))
    action = whole(state, run.workflow.graph, "a", action, "desk.example")
    counted = {"writes": 4, "refused": 7, "asked": 3, "same": {call_of(action): ["a", "b", "c"], "other": ["d"] * 9}}
    view = replace(run.view(), run=replace(run.view().run, state=state, **counted), workflow_version=5)
    return Transition(replace(view, trigger_type="schedule", **changes), run.workflow.graph), action


def judged(run: Governed, *, counted: bool = False, **changes: Any) -> tuple[Decision, int | None]:
    transition, action = at_hand(run, **changes)
    step = transition.run.steps["a"]
    return judge(transition, step, run.workflow, run.policy, action, counted=counted), transition.rows.writes_max


def test_a_rule_can_read_every_fact_and_each_is_what_it_says() -> None:
    decision, _ = judged(governed(WRITE, READS_ALL))
    assert (decision.outcome, dict(decision.facts_read)) == (Ruling.ALLOW, FACTS)
    again, _ = judged(governed(WRITE, READS_ALL), counted=True)
    assert dict(again.facts_read) == {**FACTS, "counters.writes_in_run": 3}


def test_an_agents_call_has_its_own_facts() -> None:
    turns = calls(read("alpha")), calls(apply("beta"), apply("beta")), says("Done.")
    run = piloted(agent(), *turns, policy=READS_ALL)
    own = {"agent.step": "triage", "agent.turn": 2, "agent.model": "script-given", "step.origin": "agent"}
    own |= {"agent.read": ["probe.value.read"], "run.trigger": "http", "run.workflow": "agents", "run.version": 1}
    found = [dict(each.facts or {}) for each in decided(run)]
    names = ("run.step", "counters.writes_in_run", "counters.same_in_run")
    assert [[each[name] for name in names] for each in found] == [["triage/2/1", 0, 0], ["triage/2/2", 1, 1]]
    assert [{name: each[name] for name in own} for each in found] == [own, own]


CAPPED = WRITE.replace("reference:", "caps: {max_writes_per_run: 5}\nreference:")
WORDS = "This run has made 4 writes; at most {} are allowed."


@pytest.mark.req("Q-12")
@pytest.mark.parametrize(
    ("text", "tenants", "counted", "guard", "words"),
    [
        (WRITE, None, False, None, None),
        (WRITE, 5, False, 5, None),
        (WRITE, 4, False, 4, WORDS.format(4)),
        (WRITE, 3, False, 3, WORDS.format(3)),
        (WRITE, 4, True, 4, None),
        (CAPPED, None, False, 5, None),
        (CAPPED, 9, False, 5, None),
        (CAPPED, 4, False, 4, WORDS.format(4)),
    ],
)
def test_a_run_makes_as_many_writes_as_the_lower_cap_allows(
    text: str, tenants: int | None, counted: bool, guard: int | None, words: str | None
) -> None:
    decision, writes_max = judged(governed(text, READS_ALL), counted=counted, writes_max=tenants)
    reasons = () if words is None else (words,)
    assert (writes_max, decision.outcome) == (guard, Ruling.DENY if words else Ruling.ALLOW)
    assert (decision.reasons if words else ()) == reasons
    assert [rule.id for rule in decision.rules] == (["cap:max_writes_per_run"] if words else ["all"])
    assert [policy.name for policy in decision.policies] == ["all"]


@pytest.mark.req("Q-12")
@pytest.mark.parametrize(("writes", "outcome"), [(4, Ruling.ALLOW), (5, Ruling.ALLOW), (99, Ruling.ALLOW)])
def test_a_read_is_no_write_however_many_there_were(writes: int, outcome: Ruling) -> None:
    run = governed(CAPPED.replace("record.update", "value.read").replace(', fields: {priority: "1"}', ""), READS_ALL)
    view = replace(run.view(), run=replace(run.view().run, writes=writes), writes_max=5)
    transition = Transition(view, run.workflow.graph)
    action = build_action(run.workflow.operations["probe.value.read"], {"name": "x"})
    decision = judge(transition, transition.run.steps["a"], run.workflow, run.policy, action)
    assert (decision.outcome, transition.rows.writes_max) == (outcome, 5)


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("key", ["a", "each[0].a"])
def test_an_added_step_is_known_by_who_added_it_wherever_it_is(key: str) -> None:
    run = governed(WRITE, READS_ALL)
    transition, action = at_hand(run)
    found = judge(transition, replace(transition.run.steps["a"], key=key), run.workflow, run.policy, action)
    assert (found.facts_read["step.added_by"], found.facts_read["step.origin"]) == ("person:eve", "extension")
    assert found.facts_read["run.step"] == key


ASKS_ALL = READS_ALL.replace("allow}\n", "needs_approval, tier: TIER, approvers: [{group: owners}]}\n").replace(
    MODELS.replace("allow}\n", "needs_approval, tier: TIER, approvers: [{group: owners}]}\n"), MODELS
)


@pytest.mark.parametrize(("tier", "denied"), [("medium", False), ("high", True), ("high, unresolved: ask", False)])
def test_what_somebody_unknown_has_shaped_is_denied_with_all_that_was_read(tier: str, denied: bool) -> None:
    decision, _ = judged(governed(WRITE, ASKS_ALL.replace("TIER", tier)))
    assert decision.outcome is (Ruling.DENY if denied else Ruling.NEEDS_APPROVAL)
    assert dict(decision.facts_read) == FACTS
    assert [policy.name for policy in decision.policies] == ["all"]
    assert [rule.id for rule in decision.rules] == (["contributors:unresolved"] if denied else ["all"])
    assert ("'someone' requested this and 'person:eve' added this step" in decision.reasons[0]) is denied


MAY = "  - {id: may, match: {connector: probe}, outcome: allow}\n"


def bound(policy: str, **changes: Any) -> str:
    """The digest that an approval of the action would bind to under this policy."""
    run = governed(WRITE, policy)
    transition, action = at_hand(run)
    decision = judge(transition, transition.run.steps["a"], run.workflow, run.policy, action)
    return binding(replace(action, **changes), decision)


@pytest.mark.req("Q-14")
def test_an_approval_binds_to_the_action_its_terms_and_the_rules_that_ask_for_it() -> None:
    first = bound(ASK)
    for same in (ASK + MAY, ASK.replace("version: 1", "version: 2"), ASK.replace("policy: ask", "policy: other")):
        assert bound(same) == first
    assert bound(ASK.replace("because: Look.", "because: Look closely.")) == first
    for other in ("id: acts", "id: act"), ("of: 2", "of: 1"), ("because: Look.", "because: Look., expires: PT1H"):
        assert bound(ASK.replace(*other)) != first
    also = ASK + MAY.replace("id: may", "id: also").replace("allow", "needs_approval, approvers: [{group: owners}]")
    assert bound(also) != first
    changes: list[dict[str, Any]] = [{"input": {"name": "y"}}, {"target": "t"}, {"system": "other"}, {"shaped": ()}]
    assert len({first, *(bound(ASK, **change) for change in changes)}) == 5


@pytest.mark.parametrize(
    ("kind", "voids"),
    [(None, False), *((kind, kind is ApprovalKind.ACTION) for kind in ApprovalKind)],
)
def test_only_the_approval_of_an_action_is_void_with_it(kind: ApprovalKind | None, voids: bool) -> None:
    run = governed(WRITE, ASK).drive().answer("ana", "ben")
    known = known_of(run.view().run, "a")
    assert known.given is not None
    known = replace(known, given=None if kind is None else replace(known.given, kind=kind))
    transition, leaf = Transition(run.view(), run.workflow.graph), run.workflow.graph.leaf("a")
    operation = run.workflow.operations[leaf.operation]
    place: Any = (transition, run.rows["a"], leaf, operation, run.workflow, run.policy, known, run.nonce)
    void(Proposal(*place))
    told = [orjson.loads(line)["type"] for line in transition.commit().lines]
    assert told == (["approval.superseded"] if voids else [])
