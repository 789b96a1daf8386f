"""An agent with two questions in one turn goes through three sets of processes, and three days."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import timedelta
from typing import Any

import pytest

from tests.support.agents import call, calls, says

WORKFLOW = """
workflow: look-after
version: 1
reference: x
steps:
  - id: triage
    agent:
      model: script-given
      instructions: Look after them.
      input: Both, please.
      tools: [servicenow.incident.update]
"""
POLICY = """
policy: some-ask
version: 1
rules:
  - {id: model, match: {connector: model}, outcome: allow}
  - id: ask
    match: {operation: servicenow.incident.update}
    outcome: needs_approval
    approvers: [{group: leads}]
    expires: P7D
"""
PEOPLE = "directory: d\npeople: [{id: lee, name: Lee}]\ngroups: {leads: [lee]}\n"
PARTS = ("work", "keep")


async def _publish(stack: Any) -> None:
    for kind, text in (("directory", PEOPLE), ("policy", POLICY), ("workflow", WORKFLOW)):
        (stack.home / f"{kind}.yaml").write_text(text)
        await stack.run(kind, "publish", str(stack.home / f"{kind}.yaml"))


async def _answered(stack: Any, command: str, approval: Any) -> None:
    await stack.run("approval", command, str(approval), "--as", "lee", "--reason", "It is a test.")


@pytest.mark.timeout(300)
@pytest.mark.req("P-14")
@pytest.mark.req("O-8")
async def test_two_questions_of_one_turn_across_days_and_processes(stack: Any) -> None:
    await _publish(stack)
    state, model = stack.world.servicenow.state, stack.world.model
    ids = [state.insert("incident", {"short_description": name, "urgency": "3"}, "raj")["sys_id"] for name in "ab"]
    given = [call("servicenow_incident_update", {"sys_id": one, "fields": {"urgency": "1"}}, one) for one in ids]
    model.turns = [calls(*given), says("One of them.")]
    first = [await stack.spawn(part) for part in PARTS]
    run = json.loads(await stack.run("run", "start", "look-after", "--input", "{}", "--json"))["run_id"]
    await stack.run_status("waiting_approval")
    cards = {one.step: one.id for one in await stack.books.approvals(open=True)}
    assert set(cards) == {"triage/1/1", "triage/1/2"}
    for process in first:
        await stack.kill(process)

    await _answered(stack, "approve", cards["triage/1/1"])
    second = [await stack.spawn(part) for part in PARTS]

    async def is_done() -> bool:
        return await _steps(stack, "triage/1/1") == "succeeded"

    await stack.until(is_done)
    for process in second:
        process.send_signal(signal.SIGTERM)
    await asyncio.gather(*(process.wait() for process in second))
    await stack.trouble.leave_questions_alone(timedelta(days=3))

    third = [await stack.spawn(part) for part in PARTS]
    await _answered(stack, "reject", cards["triage/1/2"])
    await stack.run_status("succeeded")
    assert all(process.returncode is None for process in third)
    assert {one.id for one in await stack.books.approvals()} == {*cards.values()}, "two cards, and no third"
    assert [effect.sys_id for effect in state.effects if effect.user == "counterseal.integration"] == ids[:1]
    assert len(model.completions) == 2, "the model is asked once a turn"
    told = {one["tool_call_id"]: json.loads(one["content"]) for one in _results(model.completions[-1])}
    assert len(_results(model.completions[-1])) == 2
    assert (told[ids[0]].get("status"), told[ids[1]]["status"]) == (None, "rejected")
    shown = json.loads(await stack.run("run", "show", run, "--json"))
    assert [each["came"] for each in shown["agents"][0]["turns"][0]["calls"]] == ["done", "rejected"]


def _results(request: Any) -> list[Any]:
    return [one for one in request["messages"] if one["role"] == "tool"]


async def _steps(stack: Any, key: str) -> str:
    return next(str(step.status) for step in await stack.books.steps() if step.key == key)
