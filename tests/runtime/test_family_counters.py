"""Counters and caps are those of the outermost run: whatever it leads to counts for all of it (promise 9, Q-12)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from connectors.port import Refused
from evidence.chain import Actor
from runtime.requests.views import RunReader
from tests.support.agents import Agents, call, calls, says
from tests.support.runtime_refusals_hold import bundling_in

CHILD = """workflow: child
version: 1
reference: r
steps:
  - {id: pay, do: probe.effect.apply, with: {name: "${{ string(trigger.n) }}"}}
"""
EACH = """workflow: w
version: 1
reference: r
CAPSsteps:
  - foreach: ${{ [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] }}
    as: n
    max_parallel: 12
    id: each
    steps: [STEP]
"""
SUB = "{id: sub, run: child, with: {n: '${{ n }}'}, on_failure: [{id: no, wait: {for: PT1S}}]}"
DEEP = SUB.replace("child", "middle")
MIDDLE = (
    "workflow: middle\nversion: 1\nreference: r\nsteps:\n  - {id: inner, run: child, with: {n: '${{ trigger.n }}'}}\n"
)
CONTINUES = "{id: sub, continue_with: {workflow: child, with: {n: '${{ n }}'}}}"
CHAIN = """workflow: chain
version: 1
reference: r
steps:
  - {id: pay, do: probe.effect.apply, with: {name: "${{ string(trigger.n) }}"}}
  - {id: again, continue_with: {workflow: chain, with: {n: "${{ trigger.n + 1 }}"}}}
"""
RULES = """policy: p
version: 1
rules:
  - {id: model, match: {connector: model}, outcome: allow}
  - {id: pays, match: {connector: probe}, when: WHEN, outcome: allow}
"""
COUNTED = RULES.replace("WHEN", "counters.writes_in_run < 3")
EVERY = RULES.replace("WHEN", "1 == 1")


async def tenant(runtime: Any, policy: str, *texts: str, **caps: Any) -> None:
    await runtime.tenant(**caps)
    await runtime.policy(policy)
    for text in (CHILD, MIDDLE, *texts):
        await runtime.publish(text)


async def goes_on(runtime: Any, **more: Any) -> None:
    """Several workers at once, until nothing moves."""
    moved = 1
    while moved:
        workers = [runtime.worker(f"w{n}", concurrency=8) for n in range(3)]
        moved = sum(await asyncio.gather(*(worker.work_off() for worker in workers)))
        moved += await runtime.errands(**more)


def paid(runtime: Any) -> int:
    return len(runtime.outside.effects)


async def replays(runtime: Any) -> None:
    for run in await runtime.books.runs():
        report = await RunReader(runtime.faces, runtime.definitions).replay("acme", run.id)
        assert report.ok, report.difference
        assert (await runtime.books.chain(run.id)).ok


@pytest.mark.parametrize("step", [SUB, DEEP, CONTINUES], ids=["runs within", "two deep", "continuations"])
@pytest.mark.parametrize("by", ["a rule", "the tenant's cap", "the workflow's cap"])
async def test_runs_that_a_run_leads_to_write_no_more_than_it_may(runtime: Any, by: str, step: str) -> None:
    caps = "caps: {max_writes_per_run: 3}\n" if by == "the workflow's cap" else ""
    flow = EACH.replace("CAPS", caps).replace("STEP", step)
    columns = {"max_writes_per_run": 3} if by == "the tenant's cap" else {}
    await tenant(runtime, COUNTED if by == "a rule" else EVERY, flow, **columns)
    await runtime.start("w", {})
    await goes_on(runtime)
    assert paid(runtime) == 3
    await replays(runtime)


@pytest.mark.parametrize("by", ["a rule", "the tenant's cap"])
async def test_a_chain_of_continuations_does_not_begin_to_count_anew(runtime: Any, by: str) -> None:
    await tenant(
        runtime, COUNTED if by == "a rule" else EVERY, CHAIN, **({"max_writes_per_run": 3} if by != "a rule" else {})
    )
    await runtime.start("chain", {"n": 1})
    await goes_on(runtime)
    assert paid(runtime) == 3
    await replays(runtime)


async def test_what_the_outermost_run_did_before_and_does_after_counts_as_well(runtime: Any) -> None:
    flow = (
        "workflow: w\nversion: 1\nreference: r\nsteps:\n"
        "  - {id: one, do: probe.effect.apply, with: {name: one}}\n"
        "  - {id: sub, run: child, with: {n: two}}\n"
        "  - {id: three, do: probe.effect.apply, with: {name: three}}\n"
        "  - {id: four, do: probe.effect.apply, with: {name: four}}\n"
    )
    await tenant(runtime, COUNTED, flow.replace("string(trigger.n)", "trigger.n"))
    run_id = (await runtime.start("w", {})).run_id
    await goes_on(runtime)
    assert [one.input["name"] for one in runtime.outside.effects] == ["one", "two", "three"]
    assert (await runtime.error(run_id))["code"] == "policy_denied"
    await replays(runtime)


async def test_a_run_within_keeps_to_its_own_cap_besides(runtime: Any) -> None:
    capped = CHILD.replace("steps:", "caps: {max_writes_per_run: 1}\nsteps:") + (
        "  - {id: more, do: probe.effect.apply, with: {name: more}}\n"
    )
    await tenant(runtime, EVERY, "workflow: w\nversion: 1\nsteps:\n  - {id: sub, run: capped, with: {n: 1}}\n",
                 capped.replace("workflow: child", "workflow: capped"))  # fmt: skip
    await runtime.start("w", {})
    await goes_on(runtime)
    assert paid(runtime) == 1


SAME = RULES.replace("WHEN", "counters.same_in_run < 2")
ASKING = """policy: p
version: 1
rules:
  - {id: enough, match: {connector: probe}, when: COUNTER >= 2, outcome: deny}
  - {id: ask, match: {connector: probe}, outcome: needs_approval, approvers: [{group: leads}]}
"""


async def test_equal_calls_count_across_runs(runtime: Any) -> None:
    await tenant(runtime, SAME, EACH.replace("CAPS", "").replace("STEP", SUB.replace("${{ n }}", "${{ 7 }}")))
    await runtime.start("w", {})
    await goes_on(runtime)
    assert paid(runtime) == 2
    await replays(runtime)


async def test_questions_count_across_runs(runtime: Any) -> None:
    flow = EACH.replace("CAPS", "").replace("STEP", SUB)
    await tenant(runtime, ASKING.replace("COUNTER", "counters.asked_in_run"), flow)
    await runtime.person("ana", ("leads",))
    await runtime.start("w", {})
    await goes_on(runtime)
    assert len(await runtime.books.approvals(open=True)) == 2


async def test_refusals_count_across_runs(runtime: Any) -> None:
    """The runs within ask one after the other, and are rejected; the third of them is not asked about."""
    flow = EACH.replace("CAPS", "").replace("STEP", SUB).replace("max_parallel: 12", "max_parallel: 1")
    flow = flow.replace("wait: {for: PT1S}", "set: {x: 1}").replace("r\n", "r\nchannels: {x: {}}\n", 1)
    await tenant(runtime, ASKING.replace("COUNTER", "counters.refused_in_run"), flow)
    await runtime.person("ana", ("leads",))
    await runtime.start("w", {})
    asked = 0
    await goes_on(runtime)
    while found := await runtime.books.approvals(open=True):
        asked += len(found)
        assert (await runtime.vote("ana", "reject", on=found[0].id)).counted
        await goes_on(runtime)
    assert (asked, paid(runtime)) == (2, 0)
    await replays(runtime)


async def test_what_an_agent_runs_counts_for_its_run(agents: Agents) -> None:
    runtime: Any = agents.runtime
    flow = (
        "workflow: w\nversion: 1\nsteps:\n"
        "  - {id: bot, agent: {model: script-given, instructions: i, input: x, tools: [{run: child, name: pay}]}}\n"
    )
    await tenant(runtime, COUNTED, flow)
    agents.model.turns = [calls(*(call("pay", {"n": n}, str(n)) for n in range(6))), says("done")]
    await runtime.start("w", {})
    await goes_on(runtime)
    assert paid(runtime) == 3


FAILS = """policy: p
version: 1
rules:
  - {id: ask, match: {connector: probe}, outcome: needs_approval, approvers: [{group: leads}]}
"""


async def _approved_in_turn(runtime: Any, **more: Any) -> int:
    """Approve one question after the other until nothing is asked any more; the number of questions."""
    asked = 0
    await goes_on(runtime, **more)
    while found := await runtime.books.approvals(open=True):
        asked += len(found)
        assert (await runtime.vote("ana", "approve", on=found[0].id)).counted
        await goes_on(runtime, **more)
    return asked


@pytest.mark.parametrize("step", [SUB, DEEP], ids=["runs within", "two deep"])
async def test_failures_of_an_approved_call_count_across_runs(runtime: Any, tmp_path: Path, step: str) -> None:
    """Each run within makes the call that has failed in the one before: after three failures nobody is asked."""
    one_by_one = EACH.replace("CAPS", "").replace("max_parallel: 12", "max_parallel: 1")
    flow = one_by_one.replace("STEP", step.replace("${{ n }}", "${{ 7 }}")).replace("wait: {for: PT1S}", "set: {x: 1}")
    flow = flow.replace("reference: r\n", "reference: r\nchannels: {x: {}}\n", 1)
    flow += "  - {id: last, run: child, with: {n: '${{ 7 }}'}}\n"
    await tenant(runtime, FAILS, flow)
    await runtime.person("ana", ("leads",))
    runtime.outside.script["7"] = [Refused("busy", "not now") for _ in range(40)]
    run_id = (await runtime.start("w", {})).run_id
    assert (await _approved_in_turn(runtime, **bundling_in(runtime, tmp_path).handlers()), paid(runtime)) == (3, 0)
    await replays(runtime)
    # A person has the run begin anew: the run within asks once more, and its card tells of all that failed.
    await runtime.retry(run_id, actor=Actor("person", "raj"))
    await goes_on(runtime)
    (question,) = await runtime.books.approvals(open=True)
    assert "failed 3 times" in question.card["evidence"]
