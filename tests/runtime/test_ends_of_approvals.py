"""Every way in which an approved action can end has its status and its card (O-3, promise 6).

Each row makes one end happen through the public doors. ``test_every_state_has_a_row`` holds the rows against the state
tables: a status of steps, receipts, approvals or cards without a row fails it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from approvals.content import CardState
from approvals.model import ApprovalStatus
from connectors.port import InDoubt, NotSent, Refused
from evidence.chain import Actor
from evidence.receipts import ReceiptStatus
from runtime.engine.model.states import STEP
from runtime.requests.steering import cancel_run
from runtime.store import approvals
from tests.support.agents import agent, call, calls, says
from tests.support.people import leave_group
from tests.support.runtime_again import ASKED, DENY, PROBED, STEPS, UPDATED, approved_by, begun
from tests.support.runtime_agents import APPROVAL
from tests.support.runtime_ends_of_approvals import card

pytestmark = pytest.mark.req("O-3")
OLGA = Actor("person", "olga")
CASE = STEPS % "probe.case.open, with: {name: a}"
TICKET = """
workflow: w
version: 1
reference: one
steps:
  - {id: a, do: probe.ticket.open, with: {name: a}}
"""
GATE = """
workflow: w
version: 1
steps:
  - {id: a, approve: {summary: "Go on?", approvers: {group: leads}}}
"""
BRANCH = UPDATED.rstrip().removesuffix("}") + ", on_failure: [{id: f, do: probe.value.read, with: {name: f}}]}\n"
# In whole seconds that is none: every approval is too old.
FRESH = approved_by("leads", 1).replace("}]}", "}], fresh_for: PT0.5S}")
OF_W = """
policy: p
version: 1
rules:
  - id: ask
    match: {connector: probe}
    when: run.workflow == 'w'
    outcome: needs_approval
    otherwise: allow
    approvers: [{group: leads}]
"""


async def row_of(runtime: Any, question: Any) -> Any:
    async with runtime.faces.transaction("acme") as connection:
        return await approvals.approval(connection, "acme", question)


async def cancel(runtime: Any, run_id: Any) -> None:
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, OLGA, "No longer needed")
    await runtime.worker().work_off()


async def gone(runtime: Any, run_id: Any) -> None:
    runtime.outside.gone = True
    await runtime.worker().work_off()


async def worked(runtime: Any, run_id: Any) -> None:
    await runtime.worker().work_off()


async def denied(runtime: Any, run_id: Any) -> None:
    await runtime.policy(DENY)
    await runtime.worker().work_off()


async def drifted(runtime: Any, run_id: Any) -> None:
    runtime.outside.records["a"] = {"version": 7, "fields": {"priority": "low"}}
    await runtime.worker().work_off()


async def left(runtime: Any, run_id: Any) -> None:
    await leave_group(runtime.database, "acme", "lea", "leads")
    await runtime.worker().work_off()


async def shared(runtime: Any, run_id: Any) -> None:
    """Another run, which needs no approval, does it before the vote."""
    await runtime.publish(TICKET.replace("workflow: w", "workflow: free"))
    await runtime.start("free", ref="other")
    await runtime.worker().work_off()


async def in_doubt(runtime: Any, run_id: Any) -> None:
    runtime.outside.script["probe.mail.send"] = [InDoubt("no answer")]
    await runtime.worker().work_off()
    await runtime.wait_is_due()


async def happened(runtime: Any, run_id: Any) -> None:
    await in_doubt(runtime, run_id)
    assert (await runtime.vote("olga", "happened")).counted
    await runtime.worker().work_off()


async def given_up(runtime: Any, run_id: Any) -> None:
    await in_doubt(runtime, run_id)
    assert (await runtime.vote("olga", "fail")).counted
    await runtime.worker().work_off()


async def failed_outside(runtime: Any, run_id: Any) -> None:
    await runtime.worker().work_off()
    await runtime.wait_is_due()


async def refused(runtime: Any, run_id: Any) -> None:
    runtime.outside.script["a"] = [Refused("400", "The input is wrong.")]
    await runtime.worker().work_off()


async def altered(runtime: Any, run_id: Any) -> None:
    found: dict[str, Any] = {"value": {"asked": "1", "found": "5"}}
    runtime.outside.reshape = lambda done: replace(done, altered=found)
    await runtime.worker().work_off()


async def busy(runtime: Any, run_id: Any) -> None:
    runtime.outside.script["a"] = [NotSent("busy")]
    await runtime.worker().work_off()


async def canceled_outside(runtime: Any, run_id: Any) -> None:
    await runtime.worker().work_off()
    await cancel(runtime, run_id)


@dataclass(frozen=True)
class Row:
    """One end: what is asked, how it ends after the vote, and what is shown of it then."""

    text: str
    end: Callable[[Any, Any], Awaitable[None]]
    state: str
    words: str
    step: str
    receipt: str | None = None
    approval: str = "approved"
    why: str | None = None
    policy: str = approved_by("leads", 1)
    before: Callable[[Any, Any], Awaitable[None]] | None = None


ROWS = {
    "done": Row(PROBED, worked, "applied", "", "succeeded", "succeeded"),
    "the call is refused": Row(
        PROBED, refused, "failed", "The input is wrong.", "failed_terminal", "failed", why="400"
    ),
    "the target holds something else": Row(
        PROBED, altered, "altered", "", "failed_terminal", "succeeded", why="altered"
    ),
    "it is tried again": Row(PROBED, busy, "failed", "busy", "failed_retryable", "failed", why="not_sent"),
    "the record is gone": Row(UPDATED, gone, "failed", "no such record", "failed_terminal", why="not_found"),
    "gone, and a branch goes on": Row(BRANCH, gone, "failed", "no such record", "failed_terminal", why="not_found"),
    "the run is canceled": Row(
        PROBED, cancel, "canceled", "canceled by olga: No longer needed", "canceled", why="canceled"
    ),
    "the run is canceled at a gate": Row(GATE, cancel, "canceled", "canceled by olga", "canceled", why="canceled"),
    "the gate goes on": Row(GATE, worked, "recorded", "", "succeeded"),
    "policy denies it": Row(
        PROBED, denied, "superseded", "Emergency.", "failed_terminal", None, "superseded", "policy_denied"
    ),
    "the record has changed": Row(
        UPDATED, drifted, "superseded", "and is 'low' now", "waiting_approval", None, "superseded", "changed"
    ),
    "its voters have left": Row(
        PROBED, left, "superseded", "may not decide", "waiting_approval", None, "superseded", "votes_lost"
    ),
    "it is too old": Row(
        PROBED, worked, "superseded", "Too much time", "waiting_approval", None, "superseded", "stale", FRESH
    ),
    "another run had done it": Row(
        TICKET, worked, "applied", "had done it already", "succeeded", why="shared", policy=OF_W, before=shared
    ),
    "in doubt": Row(ASKED, in_doubt, "in_doubt", "", "waiting_approval", "in_doubt"),
    "in doubt, and it happened": Row(ASKED, happened, "applied", "a person said it happened", "succeeded", "succeeded"),
    "in doubt, and given up": Row(ASKED, given_up, "failed", "gave it up", "failed_terminal", "failed"),
    "begun outside": Row(CASE, worked, "executing", "still to come", "waiting", "succeeded", why="begun_outside"),
    "not ended outside in time": Row(
        CASE, failed_outside, "failed", "begun outside", "failed_terminal", "succeeded", why="timed_out"
    ),
    "canceled outside": Row(
        CASE, canceled_outside, "canceled", "begun outside", "canceled", "succeeded", why="canceled"
    ),
}


@pytest.mark.parametrize("name", ROWS)
async def test_an_end_has_its_status_and_its_card(runtime: Any, name: str) -> None:
    row = ROWS[name]
    run_id = await begun(runtime, row.text, row.policy)
    await runtime.worker().work_off()
    question = await runtime.question()
    if row.before is not None:
        await row.before(runtime, run_id)
    assert (await runtime.vote("lea", "approve")).counted
    drawn = len(await runtime.books.commands(kind="card"))
    await row.end(runtime, run_id)
    step = next(iter(await runtime.books.steps(run=run_id, key="a")))
    receipts = [one.status for one in await runtime.books.receipts(run=run_id)]
    assert (step.status, receipts) == (row.step, [row.receipt] if row.receipt else [])
    view, stored = await card(runtime, question), await row_of(runtime, question)
    assert (str(view.state), stored["status"], stored["why"]) == (row.state, row.approval, row.why)
    assert row.words in view.detail
    assert stored["outcome"] == (row.state if row.approval == "approved" else row.approval)
    quiet = row.state in ("recorded", "executing")
    assert quiet or len(await runtime.books.commands(kind="card")) > drawn


async def test_an_approved_call_of_an_agent_that_is_over_is_canceled(agents: Any) -> None:
    runtime = agents.runtime
    turn = calls(call("probe_effect_apply", {"name": "a"}, "one"))
    await agents.go(turn, says("Never."), policy=APPROVAL, workflow=agent(beside="timeout: P1D"))
    question = await runtime.question()
    await runtime.person("olga", ("owners", "leads", "desk"))
    assert (await runtime.vote("olga", "approve")).counted
    await runtime.trouble.make_waits_due("agent")
    await runtime.sweep()
    await runtime.go_on()
    assert runtime.outside.effects == []
    view, stored = await card(runtime, question), await row_of(runtime, question)
    assert (str(view.state), stored["outcome"], stored["why"]) == ("canceled", "canceled", "canceled")


UNASKED = {"requested", "rejected", "expired", "canceled"}  # no approved action: the tests of votes have these


def test_every_state_has_a_row() -> None:
    rows = ROWS.values()
    assert {str(state) for state in STEP.terminal} <= {row.step for row in rows}
    assert {str(status) for status in ReceiptStatus} - {"intended"} <= {str(row.receipt) for row in rows}
    assert {str(status) for status in ApprovalStatus} - UNASKED <= {row.approval for row in rows}
    shown = {str(state) for state in CardState} - {"pending", "rejected", "expired"}
    assert shown <= {row.state for row in rows}
