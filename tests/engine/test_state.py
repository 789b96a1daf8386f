"""The content of a checkpoint: the author's state, the engine's, and where a run goes on (X-5, X-15, P-4)."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import DefinitionError
from runtime.engine.model.run import State

TEXT = """
workflow: w
version: 1
reference: r
channels: {seen: {reduce: append, initial: []}}
steps:
  - id: each
    foreach: ${{ trigger.items }}
    steps: [{id: one, do: probe.value.read, with: {name: "${{ item }}"}, set: {seen: "${{ item }}"}}]
"""


@pytest.mark.req("X-5")
def test_the_authors_state_is_apart_from_the_engines(simulate: Any) -> None:
    run = simulate(TEXT, {"items": ["a", "b"]})
    run.claim("each[0].one")
    run.succeed("each[0].one")
    state = run.state.to_json()
    assert state["channels"] == {"seen": ["a"]}
    assert set(state) - {"channels"} == {"loops", "open"}


@pytest.mark.req("X-5")
@pytest.mark.parametrize("name", ["open", "parked", "loops", "status"])
def test_no_expression_reaches_the_engines_state(simulate: Any, name: str) -> None:
    with pytest.raises(DefinitionError, match=name):
        simulate(TEXT.replace('name: "${{ item }}"}', f'name: "${{{{ state.{name} }}}}"}}'))


@pytest.mark.req("X-15")
@pytest.mark.req("P-4")
def test_a_checkpoint_says_by_itself_where_the_run_goes_on(simulate: Any) -> None:
    run = simulate(TEXT, {"items": ["a", "b", "c"]})
    run.claim("each[0].one")
    run.succeed("each[0].one")
    run.claim("each[1].one")
    run.park("each[1].one")
    state = run.state.to_json()
    assert list(state["parked"]) == ["each[1].one"]
    assert state["loops"]["each"] == {"name": "item", "total": 3, "next": 2, "active": {"1": "b"}}
    assert State.from_json(state).to_json() == state, "nothing of it is in memory only"
    run.resume("each[1].one")
    run.settle_all()
    assert run.status == "succeeded"
    assert run.state.channels["seen"] == ["a", "b", "c"]
