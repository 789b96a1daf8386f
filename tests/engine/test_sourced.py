"""The words of a card about where values come from, and the facts about origins: a row for each label."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.content import Agent, Source
from connectors.operation import Operation
from connectors.proposal import build_action
from runtime.definition.workflow import load_workflow
from runtime.engine.agent_chat import Chat, Shown
from runtime.engine.commit import StepRow
from runtime.engine.instructions import Known
from runtime.engine.sourced import _sources, _told, agent_of_card
from runtime.engine.states import StepState
from runtime.engine.tracing import Trace, _carried
from tests.engine.governing import CATALOG
from tests.engine.test_tools import operation
from tests.support.agents import agent

pytestmark = pytest.mark.req("P-14")

GIVES = operation({}, "desk.case.get").model_copy(
    update={
        "output_schema": {
            "type": "object",
            "properties": {
                "number": {"type": "string", "x-written-by": "system"},
                "note": {"type": "string", "x-written-by": "people"},
                "words": {"type": "string"},
            },
        }
    }
)
OPERATIONS = {GIVES.name: GIVES}
NOBODY = "comes from where nobody can tell"
FIELD = "field:desk.case.get#/"
TOOL = "tool:desk.case.get"


@pytest.mark.parametrize(
    ("labels", "words", "of", "ours"),
    [
        (["requester"], "was given by whoever requested this", "", True),
        (["workflow"], "was written by the author of the workflow", "", True),
        (["person"], "was given by a person", "", True),
        (["model"], "was made up by the model", "", False),
        (["model", "text"], "is in the model's own words", "", True),
        (["unknown"], NOBODY, "", False),
        (["unknown", "requester"], NOBODY, "", False),
        (["model", "requester"], "was given by whoever requested this", "", True),
        ([TOOL, "person"], "was given by a person", "", True),
        ([TOOL], "stands in a result of", "desk.case.get", False),
        ([f"{FIELD}words", TOOL], "is the whole of a field that anyone may write:", "desk.case.get#/words", False),
        ([f"{FIELD}note", TOOL], "is the whole of a field that people there write:", "desk.case.get#/note", False),
        (
            [f"{FIELD}number", TOOL],
            "is the whole of a field that only the other system writes:",
            "desk.case.get#/number",
            True,
        ),
        (["field:a.b.c#/x", "tool:a.b.c"], "is the whole of a field:", "a.b.c#/x", False),
        (
            [f"{FIELD}words", "lookup:desk.case.get#/words", TOOL],
            "is of the only record that was found, asked for in the requester's words:",
            "desk.case.get#/words",
            True,
        ),
        (["trigger:servicenow"], "came with what started the run, from", "servicenow", False),
        (["signal:paid"], "came with the signal", "paid", False),
        (["signal:paid", TOOL], "stands in a result of", "desk.case.get", False),
        ([], NOBODY, "", False),
    ],
)
def test_a_source_is_named_by_its_most_trustworthy_label(labels: list[str], words: str, of: str, ours: bool) -> None:
    assert _told(labels, OPERATIONS) == (words, of, ours)


SETS = operation(
    {
        "properties": {
            "name": {"type": "string"},
            "urgent": {"type": "boolean", "x-argument": "flag"},
            "fields": {
                "type": "object",
                "properties": {"owner": {"type": "string"}, "open": {"type": "string", "x-argument": "flag"}},
            },
        }
    },
    "desk.case.update",
).model_copy(update={"writes": "fields"})


def sources(origins: dict[str, Any], inputs: dict[str, Any], of: Operation = SETS) -> list[Source]:
    facts = {f"origin.{name}": labels for name, labels in origins.items()}
    return [*_sources(Trace(facts, {}), of, OPERATIONS, build_action(of, inputs))]


def test_each_argument_and_each_field_that_is_written_has_a_source_of_its_own() -> None:
    """Flags stand out nowhere, whoever chose them; what is ours and what is long is not quoted."""
    inputs = {"name": "x", "urgent": True, "fields": {"owner": "eve", "open": "no"}}
    model, requester = [["model"]], [["requester"]]
    made, given = "was made up by the model", "was given by whoever requested this"
    assert sources({"name": model, "urgent": model, "owner": model, "open": model, "fields": model}, inputs) == [
        Source("name", made, "", False, "x"),
        Source("open", made, "", True, ""),
        Source("owner", made, "", False, "eve"),
        Source("urgent", made, "", True, ""),
    ]
    assert sources({"name": requester, "owner": [["requester"], ["model"]]}, inputs) == [
        Source("name", given, "", True, ""),
        Source("owner", given, "", True, ""),
        Source("owner", made, "", False, "eve"),
    ]
    for length, quoted in ((200, True), (201, False)):
        (one,) = sources({"name": model}, {**inputs, "name": "y" * length})
        assert one.value == ("y" * length if quoted else "")
    (number,) = sources({"urgent": [["unknown"]]}, {**inputs, "urgent": False}, replace_flag(SETS))
    assert number == Source("urgent", NOBODY, "", False, "false")


def replace_flag(of: Operation) -> Operation:
    """The same operation whose argument is no flag."""
    schema: Any = of.input_schema
    schema = {**schema, "properties": {**schema["properties"], "urgent": {"type": "boolean"}}}
    return of.model_copy(update={"input_schema": schema})


READ = ("probe.effect.apply", "probe.value.read")


def answer(step: str, text: Any, *, past: bool = False) -> Shown:
    return Shown("assistant", step, {"text": text, "tool_calls": []}, past=past)


@pytest.mark.parametrize(
    ("key", "turn", "says"),
    [("triage/1/2", 1, "First."), ("triage/2/1", 2, ""), ("triage/3/1", 3, "Third."), ("triage/4/1", 4, "")],
)
def test_a_card_gives_the_reason_of_the_agents_own_turn(key: str, turn: int, says: str) -> None:
    """An agent of a run above may have the same key: what it said in its turns is no reason of this one."""
    shown = [
        Shown("system", "", "s"), *(answer(f"triage/{number}", "Earlier.", past=True) for number in (1, 2, 3, 4)),
        answer("triage/1", "First."),
        *(Shown("tool", "triage/1/1", {}, "done", of, of.replace(".", "_")) for of in READ),
        answer("triage/2", None), Shown("user", "triage/3", "No.", problem="No."),
        answer("triage/3", "Third."), Shown("assistant", "triage/4", "no object"),
    ]  # fmt: skip
    graph = load_workflow(agent(), "test.yaml", CATALOG).graph
    transition = SimpleNamespace(graph=graph, view=SimpleNamespace(run=SimpleNamespace(requested_by="ann")))
    step = StepRow(UUID(int=1), key, 0, "o", 1, StepState.RUNNING)
    proposal: Any = SimpleNamespace(transition=transition, step=step, known=Known(chat=Chat(shown)))
    assert agent_of_card(proposal) == Agent("triage", "script-given", turn, "ann", READ if turn > 1 else (), says)
    proposal.known = Known()
    assert agent_of_card(proposal) == Agent("triage", "script-given", turn, "ann", (), "")
    proposal.step = replace(step, key="other")
    transition.graph = SimpleNamespace(leaf=lambda key: None)
    assert agent_of_card(proposal) is None


@pytest.mark.parametrize(
    ("origins", "carried"),
    [
        ([[f"{FIELD}note", TOOL]], ["desk.case.get#/note"]),
        ([[f"{FIELD}note", f"{FIELD}words", TOOL]], ["desk.case.get#/note", "desk.case.get#/words"]),
        ([[TOOL]], ["desk.case.get#"]),
        ([["unknown"]], ["unknown"]),
        ([["unknown", TOOL]], ["desk.case.get#", "unknown"]),
        ([["unknown", f"{FIELD}note", TOOL]], ["desk.case.get#/note", "unknown"]),
        ([[TOOL], ["requester"], [f"{FIELD}note", TOOL]], ["desk.case.get#", "desk.case.get#/note"]),
        ([["requester"], ["workflow"], ["person"], ["model"], ["signal:paid"]], []),
        ([], []),
    ],
)
def test_an_argument_carries_the_fields_that_it_may_be_and_nothing_unknown_in_silence(
    origins: Any, carried: list[str]
) -> None:
    assert _carried(origins) == carried


def test_a_trace_is_kept_with_a_question_and_read_again() -> None:
    one = Trace({"origin.name": [["model"]], "carries.name": ["a.b.c#"]}, {"matcher": 1}, True, ("a.b.c",))
    kept = one.kept()
    assert Trace.of_kept(kept) == replace(one, read=("a.b.c",))
    assert (Trace.of_kept({}), one.of("name"), one.of("other")) == (None, [["model"]], [])
