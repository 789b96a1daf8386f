"""Small parts of the engine: what a workflow needs, who has a lease, what is still asked, what a line shows."""

from __future__ import annotations

from dataclasses import replace as copied
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec.structs import replace

from core.canonical import canonical_bytes, digest
from core.errors import ConsistencyError
from core.identity import Directory, Entry
from core.ids import correlation_id
from runtime.definition.workflow import load_workflow
from runtime.engine.ask import gate_still_asks
from runtime.engine.commit import Claim
from runtime.engine.errors import ErrorClass, StepError
from runtime.engine.facts import result_origins
from runtime.engine.instructions import leased
from runtime.engine.outside import correlation_of, own_token
from runtime.engine.plan import Recorded
from runtime.engine.run import Definition, Loop, State
from runtime.engine.told import Diverged, shown_values
from runtime.engine.transition import Transition
from runtime.engine.waits import still_asks
from runtime.engine.windows import NeedsItems, Window
from tests.engine.governing import ALLOW_ALL, CATALOG, EFFECT, GATE, WRITE, Governed, governed
from tests.support.engine_scenes import HANDS_OUT, SCENES, TASK, asked, book_of, driven
from tests.support.engine_stage import KEY, RUN_ID

pytestmark = pytest.mark.req("X-3")

NOTHING: Any = None  # an expression that nobody evaluates


@pytest.mark.parametrize(
    ("limits", "cap"), [("", ""), ("caps: {max_concurrency: 2}\n", "w"), ("caps: {max_runs_per_min: 3}\n", "w")]
)
def test_a_workflow_says_what_it_needs_and_whether_it_is_counted_apart(limits: str, cap: str) -> None:
    text = EFFECT.replace("steps:\n", f"{limits}steps:\n")
    found = load_workflow(text, "test.yaml", CATALOG)
    operation = CATALOG.operations["probe.effect.apply"]
    assert (found.cap, found.connectors) == (cap, ("probe",))
    assert found.frozen_operations == {"probe.effect.apply": operation.model_dump(mode="json")}
    assert found.definition_digest == digest([found.digest, {"probe.effect.apply": operation.digest}])


def test_a_workflow_needs_each_connector_once_and_is_known_by_its_text_and_its_operations() -> None:
    found, of = load_workflow(EFFECT, "test.yaml", CATALOG), CATALOG.operations["probe.effect.apply"]
    names = {"z.b": "late", "a.c": "early", "z.a": "late", "m.x": "Middle"}
    many = {
        name: of.model_copy(update={"name": name, "connector": connector, "summary": name})
        for name, connector in names.items()
    }
    whole = copied(found, operations=many)
    assert whole.connectors == ("Middle", "early", "late")
    assert [*whole.frozen_operations] == ["a.c", "m.x", "z.a", "z.b"]
    assert whole.frozen_operations["z.a"] == many["z.a"].model_dump(mode="json")
    assert whole.definition_digest == digest([found.digest, {name: one.digest for name, one in many.items()}])
    others = [
        copied(whole, digest="0" * 64),
        copied(whole, operations={**many, "z.a": CATALOG.operations["probe.key.put"]}),
    ]
    assert len({whole.definition_digest, *(other.definition_digest for other in others)}) == 3
    both = copied(found, max_concurrency=1, max_runs_per_min=1)
    assert (both.cap, copied(found, max_concurrency=0).cap, copied(found, max_runs_per_min=0).cap) == ("w", "w", "w")


@pytest.mark.parametrize(("index", "item"), [(4, None), (5, "five"), (6, "six"), (7, "seven"), (8, None)])
def test_a_window_has_its_own_items_and_no_others(index: int, item: str | None) -> None:
    window = Window(5, ("five", "six", "seven"))
    if item is not None:
        assert window.get(index) == item
        return
    with pytest.raises(NeedsItems):
        window.get(index)
    with pytest.raises(NeedsItems):
        Window(index, ()).get(index)


def test_the_items_of_a_loop_that_are_under_way_are_kept_in_their_order() -> None:
    loops = {"each": Loop("item", 12, 12, {9: None, 10: 0, 2: "", 11: []}), "none": Loop("item", 0, 0, {})}
    read = State.from_json(State({}, loops=loops).to_json())
    assert read.loops == loops
    assert [*read.loops["each"].active] == [9, 10, 2, 11]
    assert isinstance(read.loops["none"].total, int)


@pytest.mark.parametrize("asked_for", ["each[0].if_1", "each[11].if_1", "if_1", "each[1].if_2", "other[1].if_1"])
def test_a_choice_is_read_back_for_the_very_node_that_it_was_made_for(asked_for: str) -> None:
    with pytest.raises(ConsistencyError, match=r"recorded next is \['each\[1\].if_1', True\]"):
        Recorded([["each[1].if_1", True]]).choose(State({}), NOTHING, asked_for)
    assert Recorded([["each[1].if_1", True]]).choose(State({}), NOTHING, "each[1].if_1") is True


@pytest.mark.parametrize(("code", "shown"), [(None, {}), ("", {"code": ""}), ("x", {"code": "x"})])
def test_an_error_tells_its_class_its_words_its_code_if_it_has_one_and_more(code: Any, shown: dict[str, Any]) -> None:
    error = StepError(ErrorClass.TIMEOUT, code, "Late.", {"sent": True, "step": "a"})
    assert error.to_json() == {"class": "timeout", "message": "Late.", "sent": True, "step": "a", **shown}
    assert StepError(ErrorClass.CANCELED, code, "").to_json() == {"class": "canceled", "message": "", **shown}


@pytest.mark.parametrize(("again", "mark"), [(0, ""), (1, "#1"), (2, "#2"), (12, "#12")])
def test_what_a_step_begins_outside_has_a_key_for_each_time_that_the_step_began(again: int, mark: str) -> None:
    assert correlation_of(RUN_ID, "a", again) == str(correlation_id(RUN_ID, f"external:a{mark}"))


def test_a_lease_is_taken_on_a_step_that_is_open() -> None:
    view = governed(EFFECT).view()
    claim = Claim("a", UUID(int=5), 7)
    found = leased(view, claim, "w2")
    assert found == replace(view.run.steps["a"], lease_owner="w2", lease_epoch=7)
    view.run.past["a"] = view.run.steps.pop("a")
    with pytest.raises(Diverged, match="on the step a, which is not open"):
        leased(view, claim, "w2")


def test_a_gate_and_a_task_still_ask_what_they_have_asked() -> None:
    run = asked(GATE)
    (row,) = run.view().run.approvals.values()
    transition = Transition(run.view(), run.workflow.graph)
    step = run.rows["a"]
    assert gate_still_asks(transition, step, row.action_digest)
    assert not gate_still_asks(transition, step, "0" * 64)
    other = asked(WRITE)
    assert not gate_still_asks(Transition(other.view(), other.workflow.graph), other.rows["a"], row.action_digest)
    task = asked(TASK, ALLOW_ALL)
    transition = Transition(task.view(), task.workflow.graph)
    assert still_asks(transition, task.rows["a"], task.waits["a"])
    for name in ("title", "description"):
        changed = replace(task.waits["a"], context={**(task.waits["a"].context or {}), name: "Another"})
        assert not still_asks(transition, task.rows["a"], changed)


def test_a_step_that_hands_out_its_token_has_the_same_at_every_attempt() -> None:
    run = governed(HANDS_OUT)
    first = own_token(run.view().run, run.rows["a"])
    assert own_token(run.view().run, run.rows["a"]) == first
    assert own_token(run.view().run, replace(run.rows["a"], again=1)) != first
    assert SCENES["case-hands-out-its-token"]().waits["a"].token == first
    assert SCENES["case-waits"]().waits["a"].token == "n1"


def test_a_result_has_origins_if_there_is_one() -> None:
    run = SCENES["loop-of-few"]()
    assert result_origins(run.view(), run.workflow) == [
        [["seen"], [["trigger:test"]]],
        [["last"], [["workflow"]]],
    ]
    text = EFFECT.replace(
        "steps:", "result: {name: '${{ trigger.who }}', value: '${{ steps.a.output.value }}'}\nsteps:"
    )
    made = Governed(load_workflow(text, "test.yaml", CATALOG), {"who": "ann"})
    made.open()
    run = driven(made.rule_by(ALLOW_ALL))
    people = Directory.of("d", [Entry("ann", "Ann"), Entry("bot", "Bot", owner="ann")])
    for requester, theirs in (("ann", "requester"), ("bot", "trigger:http")):
        view = run.view()
        view = replace(view, trigger_type="http", directory=people, run=replace(view.run, requested_by=requester))
        assert result_origins(view, run.workflow) == [
            [["name"], [[theirs]]],
            [["value"], [["field:probe.effect.apply#/value", "tool:probe.effect.apply"]]],
        ]
    alone = SCENES["effect"]()
    assert result_origins(alone.view(), alone.workflow) == []


def test_the_values_of_a_line_are_shown_as_it_binds_them() -> None:
    run = SCENES["effect"]()
    book = book_of(run)
    (at,) = [n for n, told in enumerate(book) if told.event.TYPE == "action.succeeded"]
    shown = shown_values(book[at], run.lines[at], KEY)
    assert shown is not None
    other = replace(book[at], event=replace(book[at].event, external_id="e2"))
    assert shown_values(other, run.lines[at], KEY) is None
    (empty,) = [n for n, told in enumerate(book) if told.event.TYPE == "step.started"]
    assert shown_values(book[empty], run.lines[empty], KEY) is None
    data = orjson.loads(run.lines[at])["data"]
    assert {"values", "receipt_digest"} <= {*data}, "the line has what was added to it later"
    assert sha256(canonical_bytes(shown)).hexdigest() == data["values"]
    names: list[Any] = [commitment[0] for commitment in shown if isinstance(commitment, list)]
    assert [str(name).split("/", 2)[2] for name in names] == ["external_id", "output/value"]


def test_a_run_has_a_definition_of_its_own() -> None:
    view = replace(governed(EFFECT).view(), directory_digest="d" * 64, workflow_version=5)
    view = replace(view, run=replace(view.run, extensions=3))
    text = (view.workflow, 5, view.workflow_digest)
    assert view.definition == Definition(RUN_ID, "acme", *text, 3, KEY)
    found = governed(EFFECT).view().definition
    assert (found.run_id, found.tenant_id, found.extensions, found.run_key) == (RUN_ID, "acme", 0, KEY)
