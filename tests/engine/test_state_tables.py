"""Every state and every event of every machine: what the documents draw happens, and nothing else does."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from approvals.model import APPROVAL
from core.errors import ConsistencyError
from core.machine import Machine
from evidence.receipts import RECEIPT
from runtime.engine.model.states import COMMAND, EFFECT, RUN, STEP, WAIT

# `state: event > next, ...`. Written out by hand from the requirements and docs/concepts.md, never from the tables.
DRAWN: dict[str, str] = {
    "run": """
queued: start > running, cancel > canceled
running: park > waiting_approval, wait > waiting, retry_later > failed_retryable
running: succeed > succeeded, fail > failed_terminal, cancel > canceled
waiting_approval: resume > running, fail > failed_terminal, cancel > canceled
waiting: resume > running, succeed > succeeded, fail > failed_terminal, cancel > canceled
failed_retryable: resume > running, fail > failed_terminal, cancel > canceled
failed_terminal: reopen > running
""",
    "step": """
ready: claim > running, cancel > canceled
running: lease_expire > ready, park > waiting_approval, wait > waiting, retry_later > failed_retryable
running: succeed > succeeded, fail > failed_terminal, cancel > canceled
waiting_approval: resume > ready, fail > failed_terminal, cancel > canceled
waiting: resume > ready, fail > failed_terminal, cancel > canceled
failed_retryable: resume > ready, fail > failed_terminal, cancel > canceled
""",
    "wait": """
waiting: complete > completed, time_out > timed_out, cancel > canceled
""",
    "command": """
deferred: release > pending, reject > rejected
pending: lease > leased, claim > dispatched, reject > rejected
leased: return > pending, dispatch > dispatched, reject > rejected, fail > failed
dispatched: return > pending
failed: return > pending
""",
    "approval": """
requested: approve > approved, reject > rejected, expire > expired, cancel > canceled, supersede > superseded
approved: supersede > superseded
""",
    "receipt": """
intended: succeed > succeeded, fail > failed, doubt > in_doubt
failed: retry > intended
in_doubt: retry > intended, resolve_applied > succeeded, resolve_failed > failed
""",
    "effect": """
intended: doubt > in_doubt, begin > begun, succeed > succeeded, fail > failed
in_doubt: intend > intended, begin > begun, succeed > succeeded, fail > failed
begun: succeed > succeeded, fail > failed, leave > left
left: take_over > begun, fail > failed
failed: intend > intended
""",
}
STATES: dict[str, set[str]] = {
    "run": {
        *("queued", "running", "waiting_approval", "waiting", "succeeded", "failed_retryable", "failed_terminal"),
        "canceled",
    },
    "step": {
        *("ready", "running", "waiting_approval", "waiting", "succeeded", "failed_retryable", "failed_terminal"),
        "canceled",
    },
    "wait": {"waiting", "completed", "timed_out", "canceled"},
    "command": {"pending", "deferred", "leased", "dispatched", "rejected", "failed"},
    "approval": {"requested", "approved", "rejected", "expired", "canceled", "superseded"},
    "receipt": {"intended", "succeeded", "failed", "in_doubt"},
    "effect": {"intended", "in_doubt", "begun", "left", "succeeded", "failed"},
}
# In what a row may be born: see the head of runtime/engine/states.
BORN: dict[str, set[str]] = {
    "run": {"queued"},
    "step": {"ready", "running", "waiting_approval", "waiting", "succeeded", "failed_terminal", "canceled"},
    "wait": {"waiting", "canceled"},
    "command": {"pending", "deferred"},
    "approval": {"requested", "canceled"},
    "receipt": {"intended"},
    "effect": {"intended"},
}
MACHINES: dict[str, Machine[Any, Any]] = {
    "run": RUN, "step": STEP, "wait": WAIT, "command": COMMAND,
    "approval": APPROVAL, "receipt": RECEIPT, "effect": EFFECT,
}  # fmt: skip


def drawn(name: str) -> dict[tuple[str, str], str]:
    """A drawing as (state, event) to state."""
    moves: dict[tuple[str, str], str] = {}
    for line in DRAWN[name].strip().splitlines():
        state, _, rest = line.partition(": ")
        for move in rest.split(", "):
            event, _, after = move.partition(" > ")
            assert (state, event) not in moves
            moves[state, event] = after
    return moves


def kinds(machine: Machine[Any, Any]) -> tuple[Any, Any]:
    """The enums of its states and of its events."""
    state, event = next(iter(machine.table))
    return type(state), type(event)


def pairs() -> list[Any]:
    return [
        pytest.param(name, str(state), event, id=f"{name}-{state}-{event}")
        for name in DRAWN
        for state, event in product(sorted(STATES[name]), sorted({event for _, event in drawn(name)}))
    ]


@pytest.mark.req("Q-5")
@pytest.mark.req("Q-6")
@pytest.mark.req("O-3")
@pytest.mark.req("O-4")
@pytest.mark.parametrize(("name", "state", "event"), pairs())
def test_an_event_leads_where_it_is_drawn_or_nowhere(name: str, state: str, event: str) -> None:
    machine, after = MACHINES[name], drawn(name).get((state, event))
    states, events = kinds(machine)
    if after is not None:
        assert machine.next[states(state), events(event)] is states(after)
    else:
        with pytest.raises(ConsistencyError, match=f"a {name} that is {state} cannot {event}"):
            machine.next[states(state), events(event)]


@pytest.mark.parametrize("name", DRAWN)
def test_there_is_no_state_no_event_and_no_birth_but_those_drawn(name: str) -> None:
    states, events = kinds(MACHINES[name])
    assert {str(state) for state in states} == STATES[name]
    assert {str(event) for event in events} == {event for _, event in drawn(name)}
    assert {str(state) for state in MACHINES[name].initial} == BORN[name]


@pytest.mark.req("Q-5")
@pytest.mark.req("Q-6")
@pytest.mark.parametrize("name", ["run", "step"])
def test_runs_and_steps_end_in_three_ways_only(name: str) -> None:
    assert {str(state) for state in MACHINES[name].terminal} == {"succeeded", "failed_terminal", "canceled"}
