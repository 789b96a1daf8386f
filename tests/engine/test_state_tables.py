"""Every state and every event of every machine: what the table draws happens, and nothing else does."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from approvals.model import APPROVAL
from core.errors import ConsistencyError
from core.machine import Machine
from evidence.receipts import RECEIPT
from runtime.engine.states import COMMAND, EFFECT, RUN, STEP, WAIT

MACHINES: list[Machine[Any, Any]] = [RUN, STEP, WAIT, COMMAND, APPROVAL, RECEIPT, EFFECT]


def pairs() -> list[Any]:
    found = []
    for machine in MACHINES:
        state, event = next(iter(machine.table))
        found += [
            pytest.param(machine, s, e, id=f"{machine.name}-{s}-{e}") for s, e in product(type(state), type(event))
        ]
    return found


@pytest.mark.req("Q-5")
@pytest.mark.req("Q-6")
@pytest.mark.req("O-3")
@pytest.mark.req("O-4")
@pytest.mark.parametrize(("machine", "state", "event"), pairs())
def test_an_event_leads_where_the_table_says_or_nowhere(machine: Machine[Any, Any], state: Any, event: Any) -> None:
    if (state, event) in machine.table:
        assert machine.next[state, event] is machine.table[(state, event)]
    else:
        with pytest.raises(ConsistencyError, match=f"a {machine.name} that is {state} cannot {event}"):
            machine.next[state, event]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_every_state_is_reachable_and_every_event_used(machine: Machine[Any, Any]) -> None:
    state, event = next(iter(machine.table))
    assert set(machine.table.values()) | machine.initial == set(type(state))
    assert {used for _, used in machine.table} == set(type(event))


@pytest.mark.req("Q-5")
@pytest.mark.req("Q-6")
@pytest.mark.parametrize("machine", [RUN, STEP], ids=lambda machine: machine.name)
def test_runs_and_steps_end_in_three_ways_only(machine: Machine[Any, Any]) -> None:
    state, _ = next(iter(machine.table))
    assert {str(s) for s in type(state) if s in machine.terminal} == {"succeeded", "failed_terminal", "canceled"}
