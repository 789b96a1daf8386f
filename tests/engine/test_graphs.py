"""The canonical graph by itself: which branch handles which failure, which leaf is behind a key, what a walk meets."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import orjson
import pytest

from core.errors import ExpressionError
from runtime.definition.workflow import load_workflow
from runtime.engine.graph import NO_GRAPH, Branch, Graph, Scope, SetNode, scopes_of
from runtime.engine.transition import Transition, checked_reference
from tests.engine.agents import piloted
from tests.engine.governing import CATALOG, EFFECT, HEAD, Governed, governed
from tests.engine.test_agent_runs import BOTH
from tests.engine.test_copies import step
from tests.engine.test_whole_books import extended
from tests.support.agents import agent, says

pytestmark = pytest.mark.req("X-10")

EVERY = [*chain.from_iterable(combinations(Branch, size) for size in range(4))]
ERRORS: dict[str, tuple[dict[str, Any], tuple[Branch, ...]]] = {
    "any": ({"class": "transport", "code": "404"}, (Branch.FAILURE,)),
    "nothing told": ({}, (Branch.FAILURE,)),
    "too late": ({"class": "timeout", "code": "timed_out"}, (Branch.TIMEOUT, Branch.FAILURE)),
    "rejected": ({"class": "authorization", "code": "rejected"}, (Branch.REJECTED, Branch.FAILURE)),
    "rejected too late": ({"class": "timeout", "code": "rejected"}, (Branch.TIMEOUT, Branch.FAILURE)),
    "denied": ({"class": "authorization", "code": "policy_denied"}, (Branch.FAILURE,)),
    "a code like a class": ({"class": "transport", "code": "timeout"}, (Branch.FAILURE,)),
}


def graph(*branches: Branch) -> Graph:
    leaf = SetNode(id="a", index=0, needs=(), branches=dict.fromkeys(branches, Scope(())))
    return Graph("w", 1, "", {}, Scope((leaf,)), {"a": leaf}, frozenset())


@pytest.mark.parametrize("branches", EVERY)
@pytest.mark.parametrize("what", ERRORS)
def test_a_failure_is_handled_by_the_most_specific_branch_that_there_is(what: str, branches: Any) -> None:
    error, wanted = ERRORS[what]
    taken = next((branch for branch in wanted if branch in branches), None)
    for key in ("a", "each[3].a", "each[3].inner[0].a"):
        assert graph(*branches).branch(key, error) == taken
        assert graph(*branches).fails_run(key, error) is (taken is None)
    for key in ("none", "a[0].none"):
        assert graph(*branches).branch(key, error) is None
        assert graph(*branches).fails_run(key, error)
    for key in ("a/1", "a/1/2", "each[3].a/1/2"):
        assert not graph(*branches).fails_run(key, error)


def test_the_leaf_of_a_key_is_that_of_its_last_name() -> None:
    found = graph()
    assert found.leaf("a") is found.leaf("each[2].a") is found.leaves["a"]
    for key in ("b", "a.b"):
        with pytest.raises(KeyError):
            found.leaf(key)
    with pytest.raises(KeyError):
        NO_GRAPH.leaf("a")


def test_the_leaf_of_a_call_is_that_of_its_tool_and_of_a_turn_the_models() -> None:
    run = piloted(agent(), BOTH, says("Done."))
    of = run.workflow.graph
    assert len(run.said_of("agent.answered")[0]["calls"]) == 2
    assert of.leaf("triage/1").operation == "model.chat.complete"
    assert of.leaf("triage").operation == "agent"


WALKED = HEAD + (
    "  - {id: a, do: probe.value.read, with: {name: x}, on_failure: [{id: f, do: probe.value.read, with: {name: x}}],"
    " on_timeout: [{id: t, do: probe.value.read, with: {name: x}}]}\n"
    "  - if: ${{ trigger.n == 1 }}\n    id: c\n"
    "    then: [{id: y, do: probe.value.read, with: {name: x}}]\n"
    "    else: [{id: n, do: probe.value.read, with: {name: x}}]\n"
    "  - foreach: ${{ trigger.l }}\n    id: e\n    as: i\n    steps:\n"
    "      - while: ${{ trigger.n == 1 }}\n        id: w\n"
    "        steps: [{id: z, do: probe.value.read, with: {name: x}}]\n"
)


def test_a_walk_meets_every_node_also_inside_of_others() -> None:
    found = load_workflow(WALKED, "w.yaml", CATALOG).graph
    assert [node.id for node in found.root.walk()] == ["a", "f", "t", "c", "y", "n", "e", "w", "z"]
    assert [len(scopes_of(node)) for node in found.root.nodes] == [2, 2, 1]
    assert {*found.leaves} == {"a", "f", "t", "y", "n", "z"}
    assert found.failed == {"f": "a", "t": "a"}


TWO = HEAD + "".join(
    f"  - {{id: {name}, needs: [], do: probe.effect.apply, with: {{name: {name}}}}}\n" for name in "ab"
)


def both(text: str = TWO) -> Governed:
    run = governed(text)
    for key in ("a", "b"):
        run.claim(key)
    return run


@pytest.mark.req("X-19")
def test_a_step_that_is_given_up_ends_its_run_when_nothing_else_executes() -> None:
    run = both()
    error = {"class": "consistency", "code": "unexpected", "setbacks": 5}
    run.attempt("a", lambda t, s: t.give_up(s, error))
    assert run.status == "running"
    run.attempt("b", lambda t, s: t.give_up(s, error))
    assert (run.status, run.view().run.error) == ("failed_terminal", {**error, "step": "b"})


def test_the_error_of_a_run_names_the_step_that_failed() -> None:
    run = both()
    run.attempt("b", lambda t, s: t.fail(s, {"class": "transport", "code": "x", "message": "m"}))
    run.attempt("a", lambda t, s: t.succeed(s, {}, {}))
    assert run.view().run.error == {"class": "transport", "code": "x", "message": "m", "step": "b"}


def test_a_worker_takes_the_next_step_that_is_planned_under_the_lease_that_it_has() -> None:
    text = EFFECT + "  - {id: b, do: probe.effect.apply, with: {name: y}}\n"
    run = governed(text)
    run.claim("a")
    transition = Transition(run.view(), run.workflow.graph)
    assert transition.take("w", "a") is None, "nothing is planned yet"
    transition.succeed(run.rows["a"], {}, {})
    taken = transition.take("w2", "a")
    assert taken is not None
    assert (taken.key, taken.lease_owner, taken.lease_epoch, taken.status) == ("b", "w2", 1, "running")
    assert transition.commit().taken == {"b": "a"}


@pytest.mark.parametrize(("finished", "taken"), [(False, "b"), (True, None)])
def test_only_a_step_that_is_ready_is_taken_and_none_of_a_run_that_is_over(finished: bool, taken: str | None) -> None:
    run = governed(EFFECT + "  - {id: b, do: probe.effect.apply, with: {name: y}}\n")
    run.claim("a")
    transition = Transition(run.view(), run.workflow.graph)
    transition.succeed(run.rows["a"], {}, {})
    transition.run.steps = {"z": step("z", "canceled"), **transition.run.steps}
    transition.run.finished = finished
    found = transition.take("w", "a")
    assert (None if found is None else found.key) == taken


@pytest.mark.req("V-6")
def test_a_run_that_nobody_has_begun_is_extended_and_stays_queued() -> None:
    run = governed(EFFECT)
    since = len(run.lines)
    extended(run)
    assert (run.status, [orjson.loads(line)["type"] for line in run.lines[since:]]) == ("queued", ["run.extended"])


@pytest.mark.parametrize("text", ["a\x00b", "a" * 201, ""])
def test_a_reference_holds_what_a_text_can(text: str) -> None:
    assert (checked_reference("a" * 200), checked_reference(7)) == ("a" * 200, "7")
    with pytest.raises(ExpressionError):
        checked_reference(text)


def test_an_output_that_no_line_can_hold_fails_its_step_with_what_it_cost() -> None:
    run = governed(EFFECT)
    run.claim("a")
    run.attempt("a", lambda t, s: t.succeed(s, {"n": 2**60}, {}, {"cost_usd": "0.01"}))
    error: Any = run.rows["a"].last_error
    assert (error["class"], error["code"]) == ("transport", "unusable_output")
    lines = [orjson.loads(line) for line in run.lines]
    (told,) = [line["data"] for line in lines if line["type"] == "step.failed"]
    assert told["usage"] == {"cost_usd": "0.01"}
