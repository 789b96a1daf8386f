"""Origins followed along expressions, of operations as they are declared."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from connectors.catalog import load_catalog
from runtime.definition.workflow import load_workflow
from runtime.engine.book.plan import variables
from runtime.engine.origins.follow import Follower, carried, follower_of
from runtime.engine.replay.replay import unopened
from tests.support.engine_stage import KEY, RUN_ID

CATALOG = load_catalog()
HEAD = "workflow: w\nversion: 1\nreference: ${{ trigger.id }}\nchannels: {c: {}}\nsteps:\n"
QUERY = """
  - {id: find, do: servicenow.incident.query, with: {query: "%s", limit: 2}}
"""
ONE, TWO = {"records": [{"sys_id": "a"}], "count": 1}, {"records": [{"sys_id": "a"}, {"sys_id": "b"}], "count": 2}
FOUND = ["field:servicenow.incident.query#/records/sys_id", "tool:servicenow.incident.query"]
LOOKED_UP = [FOUND[0], "lookup:servicenow.incident.query#/records/sys_id", FOUND[1]]


def follower(steps: str, outputs: dict[str, Any] | None = None, starter: str = "requester", **changes: Any) -> Follower:
    workflow = load_workflow(HEAD + steps, "w.yaml", CATALOG)
    run = replace(unopened(RUN_ID, KEY, workflow.graph), **changes)
    run.state.outputs = outputs or {}
    run.state.status = dict.fromkeys(workflow.graph.leaves, "succeeded")
    values = variables(workflow.graph, run.state, {"trigger": {"id": "INC1"}}, "")
    return follower_of(run, workflow.graph, starter, workflow, values)


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("query", "output", "wanted"),
    [
        ("number=${{ trigger.id }}", ONE, LOOKED_UP),
        ("number=${{ trigger.id }}", TWO, FOUND),
        ("number=${{ trigger.id }}", {"records": {"sys_id": "a"}}, LOOKED_UP),
        ("number=${{ trigger.id }}", {"records": []}, FOUND),
        ("number=${{ trigger.id }}", {"records": ["a"]}, FOUND),
        ("number=${{ trigger.id }}", {"records": [["a"]]}, FOUND),
        ("number=${{ trigger.id }}", {"records": "a"}, FOUND),
        ("number=${{ trigger.id }}", {"count": 1}, FOUND),
        ("number=INC1", ONE, FOUND),
        ("number=${{ steps.other.output.number }}", ONE, FOUND),
        ("number=${{ trigger.id }}${{ steps.other.output.number }}", ONE, FOUND),
    ],
)
def test_the_only_record_of_the_requesters_query_is_looked_up(query: str, output: Any, wanted: list[str]) -> None:
    other = "  - {id: other, do: servicenow.incident.get, with: {sys_id: x}}\n"
    found = follower(other + QUERY.strip("\n") % query + "\n", {"find": output})
    items = found.path("steps.find.output.records.sys_id", "find")
    assert items == [wanted]
    by_machine = follower(other + QUERY.strip("\n") % query + "\n", {"find": output}, "trigger:servicenow")
    assert by_machine.path("steps.find.output.records.sys_id", "find") == [FOUND]


SHAPE = '  - {id: shape, do: transform.data.apply, with: {value: {a: "${{ steps.get.output.number }}"}}}\n'
GET = "  - {id: get, do: servicenow.incident.get, with: {sys_id: x}}\n"
ASKED = '  - {id: ask, do: model.chat.complete, with: {model: m, prompt: "${{ trigger.id }}"}}\n'
AGENT = "  - {id: bot, agent: {model: gpt-4o-mini, instructions: Do., input: x, tools: [servicenow.incident.get]}}\n"
GOT = ["field:servicenow.incident.get#/number", "tool:servicenow.incident.get"]


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("steps", "path", "wanted"),
    [
        (GET + SHAPE, "steps.shape.output.value.a", [GOT]),
        (AGENT, "steps.bot.output.text", [["model"]]),
        (ASKED, "steps.ask.output.text", [["model"]]),
        (GET, "steps.get.status", [["workflow"]]),
        (GET, "steps.nothing.output.x", [["unknown"]]),
        (GET, "error.message", [["unknown"]]),
        (GET, "signal.by", [["unknown"]]),
        (GET, "run.requested_by", [["requester"]]),
        ("  - {id: note, do: records.get, with: {collection: notes, key: k}}\n", "steps.note.output.value.text",
         [["field:records.get#/value/text", "tool:records.get"]]),
    ],
)  # fmt: skip
def test_what_steps_give_is_named(steps: str, path: str, wanted: list[list[str]]) -> None:
    assert follower(steps).path(path, "get") == wanted


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("told", "wanted"),
    [(None, [["unknown"]]), ({}, [["unknown"]]), ({"trigger": carried(((("id",), [["person"]]),))}, [["person"]]),
     ({"trigger": carried(((("other",), [["requester"]]),))}, [["unknown"]])],
)  # fmt: skip
def test_a_run_that_another_has_started_knows_what_it_was_told(told: Any, wanted: Any) -> None:
    assert follower(GET, starter="", origins=told).path("trigger.id", "get") == wanted


@pytest.mark.req("P-14")
def test_loops_of_channels_come_to_an_end() -> None:
    text = (
        '  - {id: a, set: {c: "${{ state.c }}"}}\n'
        "  - while: ${{ state.c == 'x' }}\n"
        "    steps:\n"
        '      - {id: r, do: servicenow.incident.query, with: {query: "${{ state.c }}", limit: 1}}\n'
        '      - {id: b, set: {c: "${{ steps.r.output.records[0].sys_id }}${{ trigger.id }}"}}\n'
    )
    found = follower(text, {"r": ONE}).path("state.c", "b")
    assert sorted(found) == [["requester"], ["tool:servicenow.incident.query"]]


ONE_KID, OTHER_KID = carried(((("id",), [["person"]]),)), carried(((("id",), [["requester"]]),))
ELSE = carried(((("other",), [["model"]]),))
