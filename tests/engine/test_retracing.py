"""Origins and judgements once more, without a database: a book is believed only if both are found anew (promise 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from connectors.port import Done
from evidence.chain import Actor
from policy.evaluate import evaluate
from runtime.definition.workflow import load_workflow
from runtime.engine.book.agent_result import remembered_agents
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.life.transition import Transition, writes_of
from runtime.engine.model.events import (
    ActionRecalled,
    AgentAnswered,
    AgentBegan,
    DecisionMade,
    RunExtended,
    RunOpened,
    StepSucceeded,
    WaitCompleted,
)
from runtime.engine.model.keys import StepKey
from runtime.engine.origins.follow import starter_of, starters_of
from runtime.engine.replay.replay import Divergence, Replay, replay, unopened
from runtime.engine.replay.retracing import Retracing
from tests.engine.agents import piloted
from tests.engine.governing import CATALOG, HEAD, PEOPLE, Governed, governed
from tests.support.agents import agent, calls, says
from tests.support.engine_agent_sources import OWN, apply, read
from tests.support.engine_scenes import SCENES, book_of, driven
from tests.support.engine_stage import KEY, RUN_ID

pytestmark = pytest.mark.req("P-14")
ALONE = [name for name in SCENES if not name.startswith("extended")]
CALL = "triage/1/2"


def retracing(run: Governed, book: Sequence[RecordedEvent], *starters: str) -> Retracing:
    """All that origins are found by, of a run that these may have started."""
    view = run.view()
    began = [told for told in book if isinstance(told.event, AgentBegan)]
    places = {at for told in began for at in remembered_agents([told], told.step or "")}
    others = {at: [told for told in book if StepKey.of(told.step or "").agent == at[1]] for at in places}
    found = starters or (starter_of(view.trigger_type, view.run.requested_by, PEOPLE),)
    return Retracing([run.workflow], view.constants, lambda _: found, others)


def judged(run: Governed) -> Callable[[DecisionMade], Any]:
    """The policy in force, asked once more."""

    def judge(event: DecisionMade) -> Any:
        if any(str(rule).startswith("cap:") for rule in event.rules) or not run.policy.policies:
            return None
        if [one["name"] for one in event.policies] != [one.name for one in run.policy.policies]:
            return None
        decision = evaluate(run.policy, event.facts or {}, event.operation, run.workflow.name)
        return str(decision.outcome), [rule.id for rule in decision.rules]

    return judge


def derived(run: Governed, book: Sequence[RecordedEvent], *starters: str) -> dict[int, str]:
    graph = run.workflow.graph
    first, origins = unopened(RUN_ID, KEY, graph), retracing(run, book, *starters)
    found = replay(Replay(first, book, [graph], run.view().constants, writes_of, judged(run), origins))
    return {each.number: each.digest for each in found}


def found_anew(run: Governed) -> dict[int, str] | str:
    """The checkpoints as the book gives them, or why it gives none."""
    try:
        return derived(run, book_of(run))
    except Divergence as divergence:
        return str(divergence)


@pytest.mark.parametrize("scene", ALONE)
def test_a_book_gives_its_checkpoints_its_judgements_and_its_origins_anew(scene: str) -> None:
    run = SCENES[scene]()
    assert derived(run, book_of(run)) == {number: digest for number, (_, digest) in run.checkpoints.items()}


CARRIES = OWN.replace("origin.name.all(o, 'requester' in o)", "carries.name == ['probe.value.read#/value']")
HANDED_ON = HEAD + (
    "  - {id: r, do: probe.value.read, with: {name: x}}\n"
    "  - {id: w, do: probe.effect.apply, with: {name: '${{ steps.r.output.value }}'}}\n"
)


def of_agent() -> Governed:
    turns = calls(read("alpha")), calls(apply("secret7")), says("Done.")
    return piloted(agent(), *turns, policy=CARRIES, outside=lambda *_: Done({"value": "secret7"}))


def of_workflow() -> Governed:
    return driven(governed(HANDED_ON, CARRIES, said=(Done({"value": "secret7"}), Done({}))))


@pytest.mark.parametrize(("made", "key"), [(of_agent, "triage/2/1"), (of_workflow, "w")])
def test_what_an_argument_carries_is_found_anew(made: Callable[[], Governed], key: str) -> None:
    run = made()
    assert found_anew(run) == {number: digest for number, (_, digest) in run.checkpoints.items()}
    (judged_by,) = [told.event for told in book_of(run) if isinstance(told.event, DecisionMade) and told.step == key]
    assert (judged_by.outcome, (judged_by.facts or {})["carries.name"]) == ("allow", ["probe.value.read#/value"])
    for carried in ([], ["probe.value.read#"], ["probe.value.read#/value", "unknown"]):
        change = {"facts": lambda facts, carried=carried: {**facts, "carries.name": carried}}
        with pytest.raises(Divergence, match="was judged by other origins than its values have"):
            derived(run, altered(run, DecisionMade, key, **change))


def altered(run: Governed, kind: type[Any], step: str | None, **change: Any) -> list[RecordedEvent]:
    """The book in which one event of this step says something else."""
    book = book_of(run)
    (at,) = [n for n, told in enumerate(book) if isinstance(told.event, kind) and told.step == step]
    event = book[at].event
    known = {name: to_builtins(getattr(event, name)) for name in change}
    new = {name: value(known[name]) if callable(value) else value for name, value in change.items()}
    book[at] = replace(book[at], event=replace(event, **new))
    return book


def other_name(origins: Any) -> Any:
    origins["arguments"]["name"]["origins"] = [["requester"]]
    return origins


WRONG: dict[str, tuple[type[Any], str, dict[str, Any], str]] = {
    "an outcome": (DecisionMade, CALL, {"outcome": "allow"}, "was judged allow; by its policy and facts it is needs_a"),
    "rules": (DecisionMade, CALL, {"rules": ["read"]}, "by its policy and facts"),
    "origins": (DecisionMade, CALL, {"origins": other_name}, "was judged by other origins than its values have"),
    "facts": (
        DecisionMade,
        CALL,
        {"facts": lambda facts: {**facts, "origin.name": [["requester"]]}},
        "was judged by other origins than its values have",
    ),
    "results that were seen": (
        DecisionMade,
        CALL,
        {"facts": lambda facts: {**facts, "agent.read": ["x.y.z"]}},
        "was judged by other results than its model had seen",
    ),
    "no origins": (
        DecisionMade,
        CALL,
        {"origins": None, "facts": lambda facts: {"action.operation": facts["action.operation"]}},
        "was judged without the origins of its values",
    ),
    "facts without origins": (DecisionMade, CALL, {"origins": None}, "was judged by origins that nobody has found"),
    "a matcher that is to come": (
        DecisionMade,
        CALL,
        {"origins": lambda origins: {**origins, "matcher": 99}},
        "was judged by origins that nobody has found",
    ),
    "a matcher that is none": (
        DecisionMade,
        CALL,
        {"origins": lambda origins: {**origins, "matcher": 0}},
        "was judged by origins that nobody has found",
    ),
    "another operation than that of its step": (
        DecisionMade,
        CALL,
        {"operation": "probe.mail.send"},
        f"does not follow from what was before: {CALL} does not call probe.mail.send",
    ),
    "a matcher that is a text": (
        DecisionMade,
        CALL,
        {"origins": lambda origins: {**origins, "matcher": "1"}},
        "was judged by origins that nobody has found",
    ),
    "no matcher": (
        DecisionMade,
        CALL,
        {"origins": lambda origins: {name: one for name, one in origins.items() if name != "matcher"}},
        "was judged by origins that nobody has found",
    ),
    "origins of an argument that there is not": (
        DecisionMade,
        CALL,
        {"facts": lambda facts: {**facts, "origin.nothing": []}},
        "was judged by other origins than its values have",
    ),
    "a matcher that is no number": (
        DecisionMade,
        CALL,
        {"origins": lambda origins: {**origins, "matcher": True}},
        "was judged by origins that nobody has found",
    ),
    "sources": (
        AgentBegan,
        "triage",
        {"sources": lambda sources: [{**one, "origin": "requester"} for one in sources]},
        "began with other sources than its words have",
    ),
    **{
        name: (AgentBegan, "triage", {"sources": change}, "began with other sources than its words have")
        for name, change in dict[str, Any](
            {
                "no sources": None,
                "no source at all": [],
                "all sources but the last": lambda sources: sources[:-1],
                "all sources but the first": lambda sources: sources[1:],
                "a source twice": lambda sources: [*sources, sources[-1]],
            }
        ).items()
    },
    "messages": (
        AgentBegan,
        "triage",
        {"messages": lambda messages: [*messages, messages[-1]]},
        "began with other words than its expressions give",
    ),
    "a model": (AgentBegan, "triage", {"model": "other"}, "began with other words than its expressions give"),
    "what was written": (StepSucceeded, "triage/1", {"values": {"found": 1}}, "wrote something else than its expr"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_book_that_says_something_else_is_not_believed(what: str) -> None:
    kind, step, change, words = WRONG[what]
    run = SCENES["agent-own"]()
    book = altered(run, kind, step, **change)
    with pytest.raises(Divergence) as raised:
        derived(run, book)
    assert words in str(raised.value)


def test_capped_calls_have_no_origins_and_those_of_an_earlier_matcher_are_not_found_anew() -> None:
    run = SCENES["agent-own"]()
    for rules in (["cap:writes"], ["other", "cap:writes"]):
        capped = altered(run, DecisionMade, CALL, origins=None, rules=rules, facts={"action.operation": "x"})
        assert derived(run, capped)


def test_whoever_may_have_started_it_at_that_time_is_tried() -> None:
    run = SCENES["agent-own"]()
    assert derived(run, book_of(run), "trigger:http", "requester")
    with pytest.raises(Divergence, match="began with other sources than its words have"):
        derived(run, book_of(run), "trigger:http")
    assert starters_of("http") == ("requester", "trigger:http")
    assert starters_of("servicenow") == ("trigger:servicenow",)
    assert [starter_of(kind, "ana", PEOPLE) for kind in ("http", "workflow", "servicenow")] == [
        "requester", "", "trigger:servicenow",
    ]  # fmt: skip


ELSEWHERE: dict[str, tuple[str, type[Any], str | None, dict[str, Any], str]] = {
    "the end of what went on outside": (
        "case-comes", WaitCompleted, "a", {"result": lambda result: {**result, "output": {"n": 6}}},
        "has another output than what its wait ended with",
    ),
    "the answer to a task": (
        "task-filled", WaitCompleted, "a", {"result": lambda result: {**result, "output": {"x": "blue"}}},
        "has another output than what its wait ended with",
    ),
    "who ended a wait": (
        "shared-written", ActionRecalled, "a", {"ended": {"by": "token:u"}},
        "wrote something else than its expressions give",
    ),
    "an agent's own end": (
        "agent", WaitCompleted, "triage", {"result": {"output": {"text": "Else."}}},
        "ended otherwise than its turns and limits say",
    ),
    "the result of an agent": (
        "agent", AgentAnswered, "triage/2", {"result": {"text": "Else."}},
        "was taken apart otherwise than the model's answer says",
    ),
    "a call of an agent": (
        "agent", AgentAnswered, "triage/1", {"said": lambda said: [{**said[0], "input": {"name": "b"}}]},
        "was taken apart otherwise than the model's answer says",
    ),
    "a code of a call": (
        "agent", AgentAnswered, "triage/1", {"calls": lambda calls: [[calls[0][0], "limit"]]},
        "was taken apart otherwise than the model's answer says",
    ),
    "what a channel began with": (
        "loop-of-many", RunOpened, None, {"channels": {"seen": ["w"]}},
        "began with other values than its expressions give",
    ),
    "a channel that there is not": (
        "loop-of-many", RunOpened, None, {"channels": lambda channels: {**(channels or {}), "other": 1}},
        "began with other values than its expressions give",
    ),
    "a write of another type": (
        "loop-of-many", StepSucceeded, "each[0].one", {"values": lambda values: {**values, "total": True}},
        "wrote something else than its expressions give",
    ),
    "no write of a step": (
        "loop-of-many", StepSucceeded, "each[0].one", {"values": None},
        "wrote something else than its expressions give",
    ),
    "a write of a step": (
        "loop-of-many", StepSucceeded, "each[0].one", {"values": lambda values: {**values, "total": 2}},
        "wrote something else than its expressions give",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ELSEWHERE)
def test_what_does_not_follow_from_the_book_is_named_with_its_line(what: str) -> None:
    scene, kind, step, change, words = ELSEWHERE[what]
    run, of = SCENES[scene](), f" of {step}" if step else ""
    with pytest.raises(Divergence) as raised:
        derived(run, altered(run, kind, step, **change))
    assert raised.value.what == words
    assert kind in (WaitCompleted, ActionRecalled) or raised.value.where.endswith(f"({kind.TYPE}{of})")


GROWS = """
workflow: w
version: 1
channels: {n: {initial: x}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: "${{ state.n }}"}}
  - {id: later, do: probe.value.read, with: {name: x}}
"""
GROWN = f"""{GROWS}
  - id: each
    foreach: ${{{{ [trigger.who] }}}}
    as: who
    steps: [{{id: keep, set: {{n: "${{{{ who }}}}"}}}}]
  - {{id: b, do: probe.effect.apply, with: {{name: "${{{{ state.n }}}}"}}}}
"""
TRACED = OWN.replace("origin.name.all(o, 'requester' in o)", "origin.name.size() > 0")


def test_a_decision_is_retraced_in_the_graph_of_its_time() -> None:
    """A step that was added later may write what an earlier one has read: that changes nothing of then."""
    first, then = (load_workflow(text, "test.yaml", CATALOG) for text in (GROWS, GROWN))
    run = Governed(first, {"who": "ann"}).open().rule_by(TRACED)  # type: ignore[attr-defined]
    run.drive("a")
    run.before.append(first.graph)
    run.workflow = then
    transition = Transition(run.whole(), then.graph)
    transition.extend(RunExtended(1, ["each", "keep", "b"], [], {"steps": []}, {}, {}, []), Actor("person", "ann"))
    run.apply(transition)
    assert driven(run).status == "succeeded"
    decided = {told.step: told.event.facts for told in book_of(run) if isinstance(told.event, DecisionMade)}
    origins = [(decided[key] or {})["origin.name"] for key in ("a", "b")]
    assert origins == [[["workflow"]], [["unknown"], ["trigger:test"]]]
    retraced = retracing(run, book_of(run))
    retraced.editions = [first, then]
    graphs, first_run = [first.graph, then.graph], unopened(RUN_ID, KEY, first.graph)
    found = replay(Replay(first_run, book_of(run), graphs, run.view().constants, writes_of, judged(run), retraced))
    assert {each.number: each.digest for each in found} == {n: digest for n, (_, digest) in run.checkpoints.items()}


COUNTED = """
workflow: w
version: 1
reference: r
channels: {at: {reduce: append}}
steps:
  - if: ${{ run.checkpoint == 0 }}
    then: [{id: a, set: {at: "${{ run.checkpoint }}"}}]
    else: [{id: b, set: {at: 100}}]
  - {id: c, set: {at: "${{ run.checkpoint }}"}}
  - if: ${{ run.checkpoint == 2 }}
    then: [{id: d, set: {at: "${{ run.checkpoint }}"}}]
"""


def test_each_barrier_is_planned_anew_with_its_own_number() -> None:
    run = driven(governed(COUNTED))
    assert (run.status, run.state.channels["at"]) == ("succeeded", [0, 1, 2])
    assert found_anew(run) == {number: digest for number, (_, digest) in run.checkpoints.items()}
