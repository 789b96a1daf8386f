"""The people who shaped something, as barriers, cards and votes need them; facts about calls (promise 12)."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind
from connectors.catalog import Source, catalog_of
from core.action import Action, Risk, SideEffects
from core.identity import Contributor, Directory, Entry, Role
from core.terms import GroupQuorum, Terms, Tier
from policy.facts import FactContext
from policy.sets import PolicySet
from runtime.definition.workflow import load_workflow
from runtime.engine import agent_given, contributors
from runtime.engine.agent_chat import Chat, Shown
from runtime.engine.agent_given import given_of, weakest, with_sources
from runtime.engine.agent_origins import (
    AgentFacts,
    chat_first,
    facts_of_agent,
    handed_by_model,
    known_of,
    matching_of,
    read_of,
    trace_call,
)
from runtime.engine.agent_state import OPERATION, Spoken
from runtime.engine.beginnings import Inherited
from runtime.engine.commit import StepRow, VoteRow, WaitRow, step_id_of
from runtime.engine.contributors import mark
from runtime.engine.events import AgentBegan
from runtime.engine.facts import call_of, further_facts, handed_on, trace_of
from runtime.engine.flow import flow_of
from runtime.engine.following import following as origins_of
from runtime.engine.following import starter_of, starters_of
from runtime.engine.graph import Graph, Reducer, Scope
from runtime.engine.instructions import Known, Over, ReadChat, StartRun
from runtime.engine.origins import follower_of
from runtime.engine.plan import variables
from runtime.engine.run import Loop, Run, State
from runtime.engine.states import StepState, WaitKind, WaitState
from runtime.engine.tools import of_operation, of_workflow
from runtime.engine.tracing import Trace
from runtime.engine.transition import Transition
from tests.engine.conftest import OPERATIONS, RUN_ID
from tests.engine.governing import CATALOG, CHILD, EFFECT, HEAD, governed
from tests.engine.test_agent_tables import NODE, node_of
from tests.engine.test_folds import A, V, W, approval, run_of
from tests.support.agents import agent, call

pytestmark = pytest.mark.req("P-14")

DONE, FAILED = StepState.SUCCEEDED, StepState.FAILED_TERMINAL
TEXT = HEAD.replace("steps:", "channels: {n: {initial: 0}, m: {initial: 0}}\nsteps:") + (
    "  - {id: form, needs: [], task: {title: t, form: {type: object, properties: {x: {type: string}}},"
    " assign: {group: g}}}\n"
    "  - {id: gate, needs: [], approve: {summary: s, approvers: {group: g}}}\n"
    "  - {id: a, needs: [form], do: probe.value.read, with: {name: '${{ steps.form.output.x }}'}, set: {n: 1}}\n"
    "  - {id: b, needs: [form], do: probe.value.read, with: {name: '${{ string(state.n) }}'}}\n"
)
GRAPH: Graph = load_workflow(TEXT, "w.yaml", catalog_of([Source("test", OPERATIONS)])).graph


def step(key: str, status: StepState = DONE, operation: str = "o", **more: Any) -> StepRow:
    return StepRow(step_id_of(RUN_ID, key), key, 0, operation, 3, status, **more)


def vote(person: str, reason: str = "Why.", of: UUID = A) -> VoteRow:
    return VoteRow(of, person, "approve", reason, [], "cli")


def settled(*rows: StepRow, **more: Any) -> dict[str, list[str]]:
    run = run_of(*more.pop("questions", ()), **more)
    contributors.settled(run, run.state, rows, GRAPH)
    return run.state.shaped


# -- what a barrier marks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "status", "marked"),
    [
        ("gate", DONE, True),
        ("gate", FAILED, True),
        ("gate", StepState.CANCELED, False),
        ("gate", StepState.WAITING_APPROVAL, False),
        ("a", FAILED, True),
        ("a", DONE, False),
        ("triage/1/1", DONE, False),
        ("triage/1/1", FAILED, False),
    ],
)
def test_the_reason_of_a_vote_is_a_part_of_a_gates_result_and_of_a_failure(
    key: str, status: StepState, marked: bool
) -> None:
    votes = [vote("ann"), vote("ben"), vote("cy", "")]
    found = settled(step(key, status), questions=[approval(key=key)], votes=votes)
    marks = [f"form_filler {key} person:{name}" for name in ("ann", "ben")]
    assert found == ({f"votes.{key}": marks} if marked else {})
    assert settled(step("form"), questions=[approval(key=key)], votes=votes) == {}, "it is of another step"


def test_votes_on_a_call_of_an_agent_are_passed_over_and_those_after_them_count() -> None:
    questions = [approval(key="triage/1/1"), approval(key="gate", number=W), approval(key="a", number=V)]
    votes = [vote("ann"), vote("ben", of=W), vote("cy"), vote("dee", of=V), vote("eve", "", of=W)]
    rows = [step("triage/1/1", FAILED), step("gate"), step("a", FAILED)]
    assert settled(*rows, questions=questions, votes=votes) == {
        "votes.gate": ["form_filler gate person:ben"], "votes.a": ["form_filler a person:dee"],
    }  # fmt: skip


def test_the_marks_of_a_vote_name_the_step_of_the_workflow_and_not_its_round() -> None:
    found = settled(step("each[3].gate"), questions=[approval(key="each[3].gate")], votes=[vote("ann")])
    assert found == {"votes.each[3].gate": ["form_filler gate person:ann"]}


def ends(key: str = "form", kind: WaitKind = WaitKind.TASK, number: UUID = W, **result: Any) -> WaitRow:
    return WaitRow(number, V, key, kind, WaitState.COMPLETED, "t", result=result or None)


PAT = "form_filler form person:pat"


def test_what_a_step_wrote_is_marked_with_those_who_shaped_it_once_it_is_over() -> None:
    rows = [
        step("form", writes={"n": 1, "$reference": "R"}),
        step("a", StepState.FAILED_RETRYABLE, writes={"m": 1}),
    ]
    assert settled(*rows, waits={W: ends(by="person:pat")}) == {
        "steps.form": [PAT], "state.n": [PAT], "run.reference": [PAT],
    }  # fmt: skip
    failed = replace(rows[0], status=FAILED)
    assert settled(failed, waits={W: ends(by="person:pat")}) == {"steps.form": [PAT]}


def test_no_step_sees_what_the_others_of_its_super_step_write() -> None:
    shaped = {"steps.form": [PAT], "run": ["updater  person:eve"]}
    found = settled(step("a", writes={"n": 1}), step("b"), shaped={**shaped})
    assert found == {**shaped, "steps.a": [PAT], "state.n": [PAT]}
    after = settled(step("b"), shaped={**found})
    assert after == {**found, "steps.b": [PAT]}, "what shaped the whole run is told once"


def test_an_agent_is_shaped_by_everybody() -> None:
    shaped = {"state.m": ["updater  person:x"], "steps.form": [PAT], "votes.gate": ["form_filler gate person:v"]}
    found = settled(step("bot", operation=OPERATION), shaped={**shaped})
    assert found["steps.bot"] == [PAT, "updater  person:x"]
    assert settled(step("b", operation="agents"), shaped={"state.m": ["updater  person:x"]}) == {
        "state.m": ["updater  person:x"]
    }


def test_a_run_within_passes_its_marks_on_and_each_wait_adds_its_own() -> None:
    waits = {
        W: ends(by="person:pat"), V: ends("form", WaitKind.CHILD, V, by="run:x", shaped=["signal_sender s desk"]),
        A: ends("other", WaitKind.SIGNAL, A, by="slack:U1", shaped="none"), UUID(int=9): ends(),
    }  # fmt: skip
    assert settled(step("form"), step("other"), waits=waits) == {
        "steps.form": [PAT, "signal_sender s desk"], "steps.other": ["signal_sender other slack:U1"],
    }  # fmt: skip
    same = {"run": ["signal_sender s desk"]}
    found = settled(step("form"), waits=waits, shaped={**same})
    assert found == {**same, "steps.form": [PAT, "signal_sender s desk"]}, "what was said here is told here"


@pytest.mark.parametrize(
    ("kind", "principal"), [("person", "person:ann"), ("token", "token:ann"), ("cli", "ann"), ("webhook", "ann")]
)
def test_who_adds_steps_or_retries_is_marked_by_the_directorys_name(kind: str, principal: str) -> None:
    state = State({})
    contributors.added(state, ["x", "y"], kind, "ann")
    contributors.reopened(state, kind, "ann")
    contributors.opened(state, ["updater  person:z"])
    assert state.shaped == {
        "added.x": [f"step_adder x {principal}"], "added.y": [f"step_adder y {principal}"],
        "run": [f"retrier  {principal}", "updater  person:z"],
    }  # fmt: skip
    assert contributors.added_by(state, "each[2].x") == principal
    assert contributors.added_by(state, "z") == ""


def test_only_the_marks_of_one_iteration_are_dropped() -> None:
    names = ["steps.each[1].a", "steps.each[12].a", "votes.each[1].a", "state.each[1].a", "steps.other", "added.x"]
    state = State({}, shaped={name: ["m"] for name in names})
    contributors.forget(state, "each[1].")
    assert [*state.shaped] == ["steps.each[12].a", "state.each[1].a", "steps.other", "added.x"]


# -- what cards and votes need -----------------------------------------------------------------------------------------

PEOPLE = Directory.of("d", [Entry("rita", "Rita Roe"), Entry("ben", "Ben Ortiz")])


def test_those_who_may_not_vote_are_those_of_then_and_at_a_gate_also_those_of_now() -> None:
    then: Any = [Contributor(Role.UPDATER, "person:ben", "ben").to_json()]
    run = run_of(requested_by="rita", shaped={"run": ["signal_sender s desk"]})
    for kind in ApprovalKind:
        asked = replace(approval(str(kind)), contributors=then)
        now = [Contributor(Role.REQUESTER, "rita", None), Contributor(Role.SIGNAL_SENDER, "desk", None)]
        found = contributors.barred_from(run, asked)
        assert found == (Contributor(Role.UPDATER, "person:ben", "ben"), *(now if kind is ApprovalKind.GATE else []))
    assert contributors.told_of(approval()) == (Contributor(Role.REQUESTER, "ann", "ann"),)
    assert contributors.people_of(run, ["updater  person:ben"], PEOPLE) == (
        Contributor(Role.REQUESTER, "rita", "rita"), Contributor(Role.UPDATER, "person:ben", "ben"),
    )  # fmt: skip


def test_contributors_come_in_the_order_of_their_parts_with_what_they_did_and_where() -> None:
    run = run_of(requested_by="rita")
    marks = [
        mark(Role.RETRIER, "person:ben"), mark(Role.SIGNAL_SENDER, "desk", "s"), mark(Role.UPDATER, "eve"),
        mark(Role.FORM_FILLER, "person:x", "z"), mark(Role.FORM_FILLER, "person:x", "f"),
        mark(Role.FORM_FILLER, "person:ben", "f"), mark(Role.STEP_ADDER, "person:ben", "n"),
        mark(Role.FORM_FILLER, "person:a", "y"),
    ]  # fmt: skip
    terms = Terms(Tier.LOW, (GroupQuorum("g"),), allow=(Role.FORM_FILLER, Role.UPDATER))
    nobody = "nobody whom the directory knows"
    assert [(one.name, one.did, one.note) for one in contributors.shaped_by(run, marks, terms, PEOPLE)] == [
        ("Rita Roe", "requested this", ""),
        ("eve", "changed the record", nobody),
        ("Ben Ortiz", "added this step (n)", ""),
        ("Ben Ortiz", "filled in a form (f)", "may decide all the same"),
        ("person:x", "filled in a form (f)", nobody),
        ("person:a", "filled in a form (y)", nobody),
        ("person:x", "filled in a form (z)", nobody),
        ("desk", "sent a signal (s)", nobody),
        ("Ben Ortiz", "went on with the failed run", ""),
    ]
    assert contributors.contributors_of(run, marks) == (
        Contributor(Role.REQUESTER, "rita", None), *(Contributor(role, name, None) for role, name in [
            (Role.FORM_FILLER, "person:a"), (Role.FORM_FILLER, "person:ben"), (Role.FORM_FILLER, "person:x"),
            (Role.RETRIER, "person:ben"),
            (Role.SIGNAL_SENDER, "desk"), (Role.STEP_ADDER, "person:ben"), (Role.UPDATER, "eve"),
        ]),
    )  # fmt: skip
    allowing = Terms(Tier.LOW, (GroupQuorum("g"),), allow=(Role.REQUESTER,))
    (alone,) = contributors.shaped_by(run, [], allowing, PEOPLE)
    assert (alone.name, alone.note) == ("Rita Roe", "may decide all the same")


def test_nobody_is_asked_about_what_strangers_have_shaped_and_the_remedy_is_said() -> None:
    known = Contributor(Role.REQUESTER, "rita", "rita")
    strangers = [Contributor(Role.UPDATER, "eve", None), Contributor(Role.FORM_FILLER, "person:x", None)]
    assert not contributors.refusal([known], Tier.HIGH)
    assert contributors.refusal([known, *strangers], Tier.HIGH) == (
        "'eve' changed the record and 'person:x' filled in a form, and the directory knows nobody of that name. At "
        "tier high nobody is asked then, because they could not be kept from deciding on what they shaped. Add them "
        "to the directory, or put `unresolved: ask` there."
    )


ACTION = Action(
    "probe.effect.apply", {"name": "x"}, {}, "t", None, None, Risk.LOW, SideEffects.EXTERNAL_CALL, False, "s"
)


@pytest.mark.parametrize(("shaped", "system"), [({}, ""), ({}, "desk"), ({"run": ["updater  eve"]}, "")])
def test_an_action_is_bound_to_its_system_and_to_those_who_shaped_it(shaped: Any, system: str) -> None:
    found = contributors.whole(State({}, shaped=shaped), GRAPH, "a", ACTION, system)
    assert found == replace(ACTION, system=system, shaped=("updater:eve",) if shaped else ())


# -- facts -------------------------------------------------------------------------------------------------------------

UPDATE = CATALOG.operations["probe.record.update"]
WORKFLOW = load_workflow(agent(), "test.yaml", CATALOG)
CALL = "triage/2/1"
SEEN = [
    Shown("system", "", "You triage."), Shown("user", "", "help"),
    Shown("assistant", "triage/1", {"text": "", "tool_calls": [call("probe_value_read", {"name": "alpha"}, "1")]}),
    Shown("tool", "triage/1/1", {"value": "betaic"}, "done", "probe.value.read", "probe_value_read", "1"),
    Shown("assistant", "triage/2", {"text": "", "tool_calls": [call("probe_effect_apply", {"name": "betaic"}, "2")]}),
]  # fmt: skip
SOURCES: Any = [{"origin": "workflow", "message": 0}, {"origin": "requester", "message": 1}]
FIELD = ["field:probe.value.read#/value", "tool:probe.value.read"]


def chat() -> Chat:
    return Chat([*SEEN], "end", [*SOURCES], {"triage/1": "m1", "triage/2": "m2"})


def run_with(key: str = CALL, **spoken: Any) -> Run:
    run = run_of(step("triage", StepState.WAITING))
    run.spoken = spoken or {key: Spoken(key, "probe_effect_apply", {"name": "betaic"})}
    return run


def following(run: Run, text: str = "help") -> Any:
    values = variables(WORKFLOW.graph, run.state, {"trigger": {"text": text}}, "triage")
    return follower_of(run, WORKFLOW.graph, "requester", WORKFLOW, values)


def action(**given: Any) -> Action:
    return replace(ACTION, input=given)


def test_a_call_has_the_origins_of_what_its_model_was_shown_before() -> None:
    found = trace_call(following(run_with()), NODE, step(CALL), chat(), action(name="betaic", value="new", amount=3))
    assert found.facts == {
        "origin.name": [FIELD], "carries.name": ["probe.value.read#/value"], "origin.value": [["model"]],
        "carries.value": [], "origin.amount": [["model"]], "carries.amount": [],
    }  # fmt: skip
    arguments: Any = found.told["arguments"]
    assert arguments["name"] == {"origins": [FIELD], "matched": [["name"]], "fixed": []}
    assert (found.told["turn"], found.told["matcher"]) == ("triage/2", found.told["matcher"])
    assert (found.of_agent, found.read) == (True, ("probe.value.read",))
    first = trace_call(following(run_with("triage/1/1")), NODE, step("triage/1/1"), chat(), action(name="betaic"))
    assert (first.facts["origin.name"], first.read) == ([["model"]], ())
    assert first.told["shown"] != found.told["shown"]


def test_a_call_whose_conversation_is_not_known_has_unknown_origins() -> None:
    found = trace_call(following(run_with()), NODE, step(CALL), None, action(name="betaic"))
    assert found.facts["origin.name"] == [["unknown"]]
    assert (found.facts["carries.name"], found.facts["origin.value"]) == (["unknown"], [])
    assert (found.told["shown"], found.read) == (None, ())


def test_a_turn_has_its_settings_of_the_author_and_its_messages_of_nobody() -> None:
    operation = CATALOG.operations["model.chat.complete"]
    made = replace(ACTION, operation=operation.name, input={"model": "m", "tools": [], "messages": []})
    found = trace_call(following(run_with()), NODE, step("triage/2"), chat(), made)
    shown = {name: value for name, value in found.facts.items() if value}
    assert shown == {
        "origin.model": [["workflow"]], "origin.tools": [["workflow"]], "origin.messages": [["unknown"]],
    }  # fmt: skip


def test_what_the_author_has_fixed_is_theirs_in_every_argument() -> None:
    fixed = '        - {do: probe.effect.apply, with: {name: "${{ trigger.text }}", value: now}}\n'
    node = node_of(text=agent().replace("        - probe.effect.apply\n", fixed))
    found = trace_call(following(run_with()), node, step(CALL), chat(), action(name="betaic", value="now", amount=3))
    arguments: Any = found.told["arguments"]
    assert arguments == {
        "name": {"origins": [["requester"]], "matched": [], "fixed": [["requester"]]},
        "value": {"origins": [["workflow"]], "matched": [], "fixed": [["workflow"]]},
        "amount": {"origins": [["model"]], "matched": [["amount"]], "fixed": []},
    }  # fmt: skip
    other = trace_call(following(run_with(CALL, **{CALL: Spoken(CALL, "probe_mail_send")})), node, step(CALL), chat(),
                       action(name="betaic"))  # fmt: skip
    assert other.facts["origin.name"] == [FIELD]


def test_what_a_declaration_fixes_is_its_authors_whatever_stands_there() -> None:
    follower, apply = following(run_with()), CATALOG.operations["probe.effect.apply"]
    follower.operations = {apply.name: apply.model_copy(update={"params": {"name": "betaic"}})}
    found = trace_call(follower, NODE, step(CALL), chat(), action(name="betaic", value="betaic"))
    arguments: Any = found.told["arguments"]
    assert arguments["name"] == {"origins": [["workflow"]], "matched": [], "fixed": [["workflow"]]}
    assert arguments["value"] == {"origins": [FIELD], "matched": [["value"]], "fixed": []}
    assert (found.facts["carries.name"], found.facts["carries.value"]) == ([], ["probe.value.read#/value"])


def test_an_argument_that_stands_in_two_places_has_the_origins_of_both() -> None:
    """The author has fixed the name of the record, and the model writes a field of the same name."""
    fixed = '        - {do: probe.record.update, with: {name: "${{ trigger.text }}"}}\n'
    node = node_of(text=agent().replace("        - probe.effect.apply\n", fixed))
    inner: Any = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "fields": inner}}
    follower = following(run_with(CALL, **{CALL: Spoken(CALL, "probe_record_update")}))
    follower.operations = {"probe.record.update": UPDATE.model_copy(update={"input_schema": schema})}
    given: Any = {"name": "help", "fields": {"name": "mine"}}
    made = replace(ACTION, operation="probe.record.update", input=given, fields=given["fields"])
    found = trace_call(follower, node, step(CALL), chat(), made)
    told: Any = found.told["arguments"]
    assert found.facts["origin.name"] == [["model"], ["requester"]]
    assert told["name"] == {
        "origins": [["model"], ["requester"]], "matched": [["fields", "name"]], "fixed": [["requester"]],
    }  # fmt: skip
    follower.run.spoken = {}
    given = {"name": "betaic", "fields": {"name": "mine"}}
    both = trace_call(follower, node, step(CALL), chat(), replace(made, input=given, fields=given["fields"]))
    assert both.facts["origin.name"] == [FIELD, ["model"]]
    assert both.facts["carries.name"] == ["probe.value.read#/value"]


def test_what_an_operation_calls_its_inputs_is_no_word_of_the_model() -> None:
    follower, apply = following(run_with()), CATALOG.operations["probe.effect.apply"]
    follower.operations = {apply.name: apply.model_copy(update={"output_schema": {"properties": {"mine": {}}}})}
    for word, wanted in (("value", [FIELD]), ("mine", [["model"], FIELD])):
        found = trace_call(follower, NODE, step(CALL), chat(), action(name={word: "betaic"}))
        assert sorted(found.facts["origin.name"]) == sorted(wanted)


def test_what_a_call_hands_to_another_run_has_its_origins_by_name() -> None:
    follower, given = following(run_with()), {"x": "betaic", "y": "help", "z": ["betaic", "mine"]}
    found = handed_by_model(follower, NODE, step(CALL), chat(), given)  # type: ignore[arg-type]
    assert found == ((("x",), [FIELD]), (("y",), [["requester"]]), (("z",), [FIELD, ["model"]]))
    unknown = handed_by_model(follower, NODE, step(CALL), None, given)  # type: ignore[arg-type]
    assert unknown == tuple(((name,), [["unknown"]]) for name in given)


def test_a_conversation_is_kept_under_its_run_its_agent_and_its_mark() -> None:
    run, talk = run_with(), chat()
    known = known_of(following(run), NODE, step(CALL), talk)
    assert (known.turn, known.mark) == ("triage/2", "m2")
    assert known_of(following(run), NODE, step("triage/3"), talk).mark == "end"
    assert [*talk.listeners._kept] == [(RUN_ID, "triage")]


ACTS = load_workflow(EFFECT, "t", CATALOG).graph.leaves["a"]
ASKS = GRAPH.leaves["form"]
RUNS = load_workflow(CHILD, "t", CATALOG).graph.leaves["a"]


@pytest.mark.parametrize("traces", [False, True])
@pytest.mark.parametrize(("leaf", "reads"), [(ACTS, True), (ASKS, False), (RUNS, None)])
def test_what_a_model_was_shown_is_read_before_what_depends_on_it(leaf: Any, reads: bool | None, traces: bool) -> None:
    policy: Any = SimpleNamespace(traces=traces)
    wanted = traces if reads is None else reads
    known = Known()
    found = chat_first(step(CALL), leaf, known, policy)
    assert found == (ReadChat(step(CALL), "triage", known) if wanted else None)
    assert chat_first(step("triage/2"), leaf, known, policy) is None
    assert chat_first(step(CALL), leaf, replace(known, chat=chat()), policy) is None
    shared: Any = SimpleNamespace(wait=None)
    known = Known(wait=ends(CALL), receipt_checked=True, shared=shared, slack={})
    assert chat_first(step(CALL), leaf, known, policy) == (ReadChat(step(CALL), "triage", known) if wanted else None)


def test_the_facts_about_an_agent_are_those_of_its_turn() -> None:
    assert facts_of_agent(NODE, step(CALL), chat()) == AgentFacts("triage", 2, "script-given", ("probe.value.read",))
    assert facts_of_agent(NODE, step("triage/2"), chat()).read == ("probe.value.read",)
    assert facts_of_agent(NODE, step("triage/1/1"), chat()) == AgentFacts("triage", 1, "script-given")
    assert facts_of_agent(NODE, step("x.triage/3/1"), None) == AgentFacts("x.triage", 3, "script-given")
    assert read_of(NODE, [replace(SEEN[3], role="user"), replace(SEEN[3], came="failed")]) == ()


def test_a_verifier_is_told_the_kinds_of_all_arguments_and_of_all_fields_that_are_written() -> None:
    kind: Any = {"type": "string", "x-argument": "text"}
    fields: Any = {"type": "object", "properties": {"note": kind, "owner": {"type": "string"}}}
    inputs = {"name": {"type": "string"}, "urgent": {"type": "boolean", "x-argument": "flag"}, "fields": fields}
    operation = UPDATE.model_copy(update={
        "input_schema": {"type": "object", "properties": inputs},
        "output_schema": {"type": "object", "x-records": "/rows", "properties": {"pin": {"x-secret": True}}},
    })  # fmt: skip
    leaf: Any = None
    tools = {"u": dataclasses.replace(NODE.tools["probe_mail_send"], tool=of_operation(operation), operation=operation),
             "w": dataclasses.replace(NODE.tools["ask_desk"], tool=of_workflow("w@1", "W", None), leaf=leaf),
             "d": NODE.tools["ask_desk"]}  # fmt: skip
    assert matching_of(dataclasses.replace(NODE, tools=tools)) == {
        "u": {"operation": "probe.record.update", "records": "/rows", "secret": True,
              "kinds": {"urgent": "flag", "fields/note": "text"},
              "names": ["fields", "name", "note", "owner", "urgent"]},
        "w": {"people": False}, "d": {"people": True},
    }  # fmt: skip


def test_the_first_messages_of_an_agent_have_their_sources() -> None:
    run = run_of(step("triage", StepState.WAITING))
    messages: Any = [{"role": "system", "content": "You triage. Say what you changed."}, {"content": "help"}]
    assert given_of(following(run), NODE, messages) == [
        {"origin": "workflow", "message": 0}, {"origin": "requester", "message": 1},
    ]  # fmt: skip
    assert given_of(following(run), NODE, messages[:1]) == [
        {"origin": "workflow", "message": 0}, {"origin": "requester", "value": "help"},
    ]  # fmt: skip
    run.state.shaped = {"added.triage": ["step_adder triage person:eve"]}
    assert given_of(following(run), NODE, messages)[0] == {"origin": "unknown", "message": 0}
    run.state.shaped = {}
    twice = node_of(text=agent().replace("You triage. Say what you changed.", "${{ trigger.text }}").replace(
        "input: ${{ trigger.text }}", "input: help"))  # fmt: skip
    assert given_of(following(run), twice, [{"content": "s"}, {"content": "help"}, {"content": "help"}]) == [
        {"origin": "requester", "message": 1}, {"origin": "workflow", "message": 1},
    ]  # fmt: skip
    assert given_of(following(run, text=""), NODE, [{"content": "s"}, {"content": ""}])[1:] == [
        {"origin": "requester", "message": 1},
    ]  # fmt: skip


def test_what_another_run_has_given_is_told_piece_by_piece() -> None:
    node = node_of(text=agent().replace("input: ${{ trigger.text }}", 'input: "${{ trigger.a }} ${{ trigger.b }}"'))
    run = run_of(step("triage", StepState.WAITING))
    run.origins = {"trigger": [[["a"], [["person"]]], [["b"], [["requester"]]]]}
    values = variables(WORKFLOW.graph, run.state, {"trigger": {"a": "x", "b": "y"}}, "triage")
    follower = follower_of(run, WORKFLOW.graph, "", WORKFLOW, values)
    told = [one for one in given_of(follower, node, []) if one["origin"] != "workflow"]
    assert told == [{"origin": "person", "value": "x"}, {"origin": "requester", "value": "y"}]


@pytest.mark.parametrize("found", [[], [{"origin": "workflow", "message": 0}]])
def test_a_beginning_tells_its_sources_if_there_are_any(monkeypatch: pytest.MonkeyPatch, found: list[Any]) -> None:
    asked: list[Any] = []

    def given(*told: Any) -> list[Any]:
        asked.append(told[1:])
        return found

    monkeypatch.setattr(agent_given, "given_of", given)
    made = Transition(replace(governed(EFFECT).view(), run=run_with()), WORKFLOW.graph)
    messages: list[Any] = [{"content": "s"}, {"content": "help"}]
    began = AgentBegan("m", [], messages, matching={"t": {}})
    made.workflow = WORKFLOW
    assert with_sources(made, step("triage"), NODE, began) == replace(began, sources=found or None)
    assert asked == [(NODE, messages)]


def test_of_a_longer_text_each_piece_has_its_own_source() -> None:
    words = "See ${{ trigger.text }} and ${{ steps.a.output.value }} by ${{ steps.a.output.name }}."
    text = HEAD.replace("workflow: w", "workflow: agents") + (
        "  - {id: a, do: probe.value.read, with: {name: x}}\n"
        "  - {id: triage, agent: {model: script-given, instructions: 'Say it.', input: '" + words + "',"
        " tools: [probe.value.read]}}\n"
    )
    workflow = load_workflow(text, "test.yaml", CATALOG)
    run = run_of(step("triage", StepState.WAITING))
    run.state.outputs, run.state.status = {"a": {"value": "v", "name": "n"}}, {"a": "succeeded"}
    values = variables(workflow.graph, run.state, {"trigger": {"text": "help"}}, "triage")
    node: Any = workflow.graph.leaf("triage")
    said = [{"content": "Say it."}, {"content": "See help and v by n."}]
    read = "tool:probe.value.read"
    found = given_of(follower_of(run, workflow.graph, "requester", workflow, values), node, said)  # type: ignore[arg-type]
    assert found == [
        {"origin": "workflow", "message": 0}, {"origin": "workflow", "value": "See "},
        {"origin": "workflow", "value": " and "}, {"origin": "workflow", "value": " by "},
        {"origin": "workflow", "value": "."}, {"origin": read, "value": "n"}, {"origin": read, "value": "v"},
        {"origin": "requester", "value": "help"},
    ]  # fmt: skip
    ingredients: list[list[list[str]]] = [[["requester", "unknown"]], [], [["x"]], [["workflow"], ["tool:a.b"]]]
    assert [*map(weakest, ingredients)] == ["unknown", "unknown", "unknown", "tool:a.b"]


CONTEXT = FactContext(run_id="r", same_in_run=7, agent_step="other", agent_turn=9, agent_model="o", agent_read=("o",))
NO_AGENT: Any = {"agent_step": "", "agent_turn": 0, "agent_model": "", "agent_read": ()}


def facts(key: str, *, traces: bool = False, kept: Trace | None = None, talk: Any = None) -> Any:
    made = Transition(replace(governed(EFFECT).view(), run=run_with()), WORKFLOW.graph)
    made.run.same = {}
    if kept is not None:
        made.traces = {key: kept}
    applying: Any = SimpleNamespace(traces=traces, recounts=False)
    context, traced = further_facts(made, step(key), WORKFLOW, applying, action(name="betaic"), CONTEXT, talk)
    return context, traced, made.traces


def test_the_facts_of_a_call_are_about_its_agent_and_its_origins() -> None:
    context, traced, kept = facts(CALL, talk=chat())
    assert context == replace(
        CONTEXT, same_in_run=0, agent_step="triage", agent_turn=2, agent_model="script-given",
        agent_read=("probe.value.read",),
    )  # fmt: skip
    assert traced["origin.name"] == [FIELD]
    assert kept[CALL].facts is traced
    before = Trace({"origin.name": [["person"]]}, {}, True, ("x.y.z",))
    context, traced, _ = facts(CALL, kept=before, talk=chat())
    assert (traced, context.agent_read, context.agent_turn) == (before.facts, ("x.y.z",), 2)
    context, traced, kept = facts("triage/2", talk=chat())
    assert (traced, kept, context.agent_step, context.agent_turn) == ({}, {}, "triage", 2)
    context, traced, kept = facts("triage/2", traces=True, talk=chat())
    assert traced
    assert kept


def test_the_facts_of_a_step_are_of_no_agent_and_have_origins_only_if_a_rule_reads_them() -> None:
    run = governed(EFFECT)
    for traces, counts, same in ((False, False, 0), (True, False, 0), (False, True, 1)):
        made = Transition(run.view(), run.workflow.graph)
        applying: Any = SimpleNamespace(traces=traces, recounts=counts)
        made.run.same = {call_of(action(name="x")): ["a", "z"]}
        context, traced = further_facts(
            made, run.rows["a"], run.workflow, applying, action(name="x"), CONTEXT, None
        )  # fmt: skip
        assert context == replace(CONTEXT, same_in_run=same, **NO_AGENT)
        found: Any = dict(traced)
        assert found.get("origin.name") == ([["workflow"]] if traces else None)
        assert [*made.traces] == (["a"] if traces else [])


PARENT = CHILD.replace("steps:", "channels: {n: {initial: 5}, m: {}}\nsteps:")
PARENT = PARENT.replace("who: x", 'who: "${{ trigger.w }}"')


@pytest.mark.parametrize("traces", [False, True])
def test_another_run_is_told_the_origins_of_its_input_and_of_its_copies_if_a_rule_reads_any(traces: bool) -> None:
    workflow = load_workflow(PARENT, "test.yaml", CATALOG)
    view = replace(governed(EFFECT).view(), run=run_of(step("a", StepState.RUNNING)), trigger_type="http")
    made = Transition(view, workflow.graph)
    copies = {"n": Inherited(5, Reducer.REPLACE), "m": Inherited(None, Reducer.REPLACE)}
    order = StartRun(step("a"), V, "other", None, {"who": "x"}, True, inherited=copies)
    policy: Any = SimpleNamespace(traces=traces)
    found = handed_on(made, order, workflow, policy)
    assert handed_on(made, order, workflow, policy, chat()) == found, "what a model was shown is no rule"
    told = {
        "trigger": [[["who"], [["requester"]]]], "state.n": [[[], [["workflow"]]]], "state.m": [[[], [["workflow"]]]],
    }  # fmt: skip
    assert found == replace(order, origins=told if traces else None)
    assert handed_on(made, Over(), workflow, policy) == Over()
    assert PolicySet().traces is False


def test_what_a_loops_round_hands_on_or_does_comes_from_its_items() -> None:
    text = HEAD + (
        "  - id: each\n    foreach: ${{ trigger.items }}\n    as: item\n    steps:\n"
        "      - {id: kid, run: other, with: {who: '${{ item.x }}'}}\n"
        "      - {id: act, do: probe.effect.apply, with: {name: '${{ item.x }}', value: v}}\n"
    )
    workflow = load_workflow(text, "test.yaml", CATALOG)
    kid, act = (replace(step(f"each[0].{name}", StepState.RUNNING)) for name in ("kid", "act"))
    view = replace(governed(EFFECT).view(), run=run_of(kid, act), trigger_type="http")
    view.run.state.loops = {"each": Loop("item", 1, 1, {0: {"x": "betaic"}})}
    made = Transition(view, workflow.graph)
    policy: Any = SimpleNamespace(traces=True)
    found: Any = handed_on(made, StartRun(kid, V, "other", None, {"who": "x"}, True), workflow, policy)
    assert found.origins == {"trigger": [[["who"], [["requester"]]]]}
    traced = trace_of(made, act, workflow, action(name="x", value="v"), None)
    assert (traced.facts["origin.name"], traced.facts["origin.value"]) == ([["requester"]], [["workflow"]])


def test_a_machine_whose_name_somebody_else_has_elsewhere_is_a_machine_all_the_same() -> None:
    people = Directory.of("d", [Entry("ann", "Ann", principals=("slack:bot",)), Entry("bot", "Bot", owner="ann")])
    assert people.entry("bot") is None, "the bare name is ambiguous"
    assert [starter_of(trigger, "bot", people) for trigger in ("http", "cli")] == ["trigger:http", "trigger:cli"]
    assert starter_of("http", "ann", people) == "requester"
    assert starters_of("http") == ("requester", "trigger:http")
    assert starters_of("schedule") == ("trigger:schedule",)


def test_origins_are_followed_from_the_step_and_from_whoever_started_the_run() -> None:
    people = Directory.of("d", [Entry("ann", "Ann"), Entry("bot", "Bot", owner="ann")])
    for requester, starter in (("ann", "requester"), ("bot", "trigger:http")):
        run = run_of(step("a/1/1"), requested_by=requester, spoken={"a/1/1": Spoken("a/1/1", "t", {"n": 1})})
        view = replace(governed(EFFECT).view(), run=run, trigger_type="http", directory=people, workflow="bot")
        made = Transition(view, load_workflow(EFFECT, "w.yaml", CATALOG).graph)
        found = origins_of(made, step("a/1/1"), None)
        assert (found.starter, found.run, found.values["agent.given"]) == (starter, made.run, {"n": 1})
        assert "agent.given" not in origins_of(made, None, None).values


FLOWS = HEAD.replace("steps:", "channels: {n: {initial: 0}, m: {initial: []}}\nsteps:") + (
    "  - {id: form, task: {title: '${{ run.reference }}', form: {type: object, properties: {x: {type: string}}},"
    " assign: {group: g}}}\n"
    "  - {id: gate, approve: {summary: '${{ steps.form.output.x }}', approvers: {group: g}}}\n"
    "  - id: each\n    foreach: ${{ state.m }}\n    steps:\n"
    "      - {id: inner, do: probe.value.read, with: {name: '${{ steps.gate.status }}'}, set: {n: '${{ item }}'},"
    " on_failure: [{id: handles, do: probe.value.read, with: {name: '${{ error.code }}'}}]}\n"
    "  - if: ${{ state.n > 1 }}\n    id: big\n"
    "    then: [{id: yes, do: probe.value.read, with: {name: '${{ steps.gate.output.reason }}'}}]\n"
    "  - {id: within, run: other, with: {who: x}, inherit: [n, m]}\n"
    "  - {id: sets, set: {n: '${{ state.m[0] }}', m: '${{ [steps.gate.status] }}'},"
    " reference: '${{ steps.form.output.x }}'}\n"
    "  - id: breaks\n    do: probe.value.read\n    with: {name: '${{ state.n }}'}\n    on_failure:\n"
    "      - id: if_late\n        if: ${{ error.code == 'late' }}\n"
    "        then: [{id: told, do: probe.value.read, with: {name: '${{ error.message }}'}}]\n"
    "        else: [{id: kept, do: probe.value.read, with: {name: x}}]\n"
)


def test_values_flow_into_a_node_from_what_it_reads_and_from_what_decides_that_it_is_taken() -> None:
    graph = load_workflow(FLOWS, "w.yaml", CATALOG).graph
    items, gate, condition = {"state.m"}, {"steps.gate"}, {"state.n"}
    found: Any = dict(flow_of(graph.root))
    assert found == {
        "form": ({"run.reference"}, set()),
        "gate": ({"steps.form", "votes.form"}, set()),
        "each": (items, items),
        "inner": (items | gate, items),
        "handles": (items | {"steps.inner", "votes.inner"}, items | {"steps.inner"}),
        "big": (condition, condition),
        "yes": (condition | gate | {"votes.gate"}, condition),
        "within": ({"state.n", "state.m"}, set()),
        "sets": (items | gate | {"steps.form", "votes.form"}, set()),
        "breaks": ({"state.n"}, set()),
        "if_late": ({"steps.breaks", "votes.breaks"}, {"steps.breaks", "votes.breaks"}),
        "told": ({"steps.breaks", "votes.breaks"}, {"steps.breaks", "votes.breaks"}),
        "kept": ({"steps.breaks", "votes.breaks"}, {"steps.breaks", "votes.breaks"}),
    }


WITH_EXPRESSIONS = (
    "inputs", "summary", "until", "correlate", "title", "description", "reference", "condition", "items",
    "instructions", "input",
)  # fmt: skip


@pytest.mark.parametrize("name", WITH_EXPRESSIONS)
def test_values_flow_into_a_node_from_each_of_its_expressions(name: str) -> None:
    source = SimpleNamespace(references=frozenset({"state.x", "steps.y.status", "run.id"}))
    node: Any = SimpleNamespace(id="n", branches={}, **{name: source})
    assert flow_of(Scope((node,)))["n"][0] == {"state.x", "steps.y"}
