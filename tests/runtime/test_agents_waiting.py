"""Agents whose calls wait, fail, are in doubt or run elsewhere; agents that are stopped, canceled or gone on with."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from connectors.port import InDoubt, Refused
from runtime.requests.steering import cancel_run
from runtime.requests.views import RunReader
from tests.support.agents import ALLOW, Agents, agent, call, calls, says
from tests.support.runtime_agents import APPROVAL
from tests.support.runtime_agents_waiting import doubted
from tests.support.runtime_retrying import Evidence

pytestmark = pytest.mark.req("P-14")
BOTH = calls(call("probe_effect_apply", {"name": "a"}, "one"), call("ask_desk", {"question": "Why?"}, "two"))


def statuses(agents: Agents) -> dict[str, str]:
    told = {name: json.loads(said) for name, said in agents.results().items()}
    return {name: said.get("status", "done") for name, said in told.items()}


async def test_a_timeout_cancels_what_waits(agents: Agents) -> None:
    run = await agents.go(BOTH, says("Never."), policy=APPROVAL, workflow=agent(beside="timeout: P1D"))
    runtime = agents.runtime
    assert await runtime.status(run) == "waiting_approval"
    await runtime.trouble.make_waits_due("agent")
    await runtime.sweep()
    await runtime.go_on()
    assert (await runtime.error(run))["code"] == "timed_out"
    steps = await runtime.steps(run)
    assert (steps["triage/1/1"], steps["triage/1/2"]) == ("canceled", "canceled")
    assert len(agents.asked) == 1
    await runtime.at_rest()


async def test_a_timeout_may_be_handled(agents: Agents) -> None:
    beside = "timeout: P1D\non_timeout:\n  - {id: instead, do: probe.effect.apply, with: {name: instead}}"
    run = await agents.go(BOTH, says("Never."), workflow=agent(beside=beside))
    runtime = agents.runtime
    await runtime.trouble.make_waits_due("agent")
    await runtime.sweep()
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert [effect.input["name"] for effect in runtime.outside.effects] == ["a", "instead"]
    await runtime.at_rest()


async def test_a_canceled_run_leaves_nothing(agents: Agents) -> None:
    run = await agents.go(BOTH, says("Never."), policy=APPROVAL)
    runtime = agents.runtime
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run, runtime.actor, "enough")
    await runtime.go_on()
    assert await runtime.status(run) == "canceled"
    await runtime.at_rest()


async def test_a_failed_call_is_told_and_may_be_tried_again(agents: Agents) -> None:
    agents.runtime.outside.script["a"] = [Refused("not_found", "There is no a.")]
    again = calls(call("probe_effect_apply", {"name": "a"}, "two"))
    run = await agents.go(calls(call("probe_effect_apply", {"name": "a"}, "one")), again, says("Done."))
    assert await agents.runtime.status(run) == "succeeded"
    assert statuses(agents) == {"one": "failed", "two": "done"}
    assert "There is no a." in agents.results()["one"]
    assert len(agents.runtime.outside.effects) == 1


async def test_a_doubt_outlives_its_agent(agents: Agents) -> None:
    agents.runtime.outside.script["probe.mail.send"] = [InDoubt("The line broke.")]
    runtime = agents.runtime
    beside = "timeout: P1D\non_timeout:\n  - {id: instead, do: probe.effect.apply, with: {name: instead}}"
    made = calls(call("probe_mail_send", {"text": "mail"}, "one"), call("ask_desk", {"question": "?"}, "two"))
    run = await agents.go(made, says("Never."), workflow=agent(beside=beside))
    await runtime.trouble.make_waits_due("agent")
    await runtime.sweep()
    await runtime.worker().work_off()
    steps = await runtime.steps(run)
    assert (steps["triage/1/1"], steps["triage/1/2"], steps["instead"]) == ("failed_retryable", "canceled", "succeeded")
    await doubted(runtime)
    await runtime.person("op", ("operators",))
    await runtime.vote("op", "happened")
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert len(agents.asked) == 1
    await runtime.at_rest()


async def test_a_doubt_is_decided_by_people_before_the_model_is_told(agents: Agents) -> None:
    agents.runtime.outside.script["probe.mail.send"] = [InDoubt("The line broke.")]
    runtime = agents.runtime
    run = await agents.go(calls(call("probe_mail_send", {"text": "mail"}, "one")), says("Done."))
    await doubted(runtime)
    assert await runtime.status(run) == "waiting_approval"
    assert len(agents.asked) == 1
    await runtime.person("op", ("operators",))
    await runtime.vote("op", "happened")
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert statuses(agents) == {"one": "done"}
    assert len(agents.asked) == 2


async def test_calls_on_one_target_keep_their_order(agents: Agents, gate: Any) -> None:
    made = [call("probe_effect_apply", {"name": "a", "value": str(number)}, str(number)) for number in range(3)]
    run = await agents.go(calls(*made, call("probe_effect_apply", {"name": "b"}, "b")), says("Done."))
    runtime = agents.runtime
    assert await runtime.status(run) == "succeeded"
    assert [effect.input.get("value") for effect in runtime.outside.effects if effect.input["name"] == "a"] == [
        "0",
        "1",
        "2",
    ]
    begun = {step.key: step.superstep for step in await runtime.books.steps(run=run)}
    assert begun["triage/1/1"] == begun["triage/1/4"] < begun["triage/1/2"] < begun["triage/1/3"]


CHILD = """
workflow: check
version: 1
reference: ${{ trigger.name }}
result: {who: "${{ trigger.name }}"}
steps:
  - {id: go, wait: {signal: go, correlate: x}}
"""


async def test_a_workflow_is_a_tool(agents: Agents) -> None:
    runtime = agents.runtime
    workflow = agent(more="").replace("        - probe.value.read\n", "        - {run: check@1, with: {name: ada}}\n")
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(CHILD)
    await runtime.publish(workflow)
    agents.model.turns = [calls(call("check_1", {}, "one")), says("Done.")]
    started = await runtime.start("agents", {"text": "x"})
    await runtime.go_on()
    assert await runtime.status(started.run_id) == "waiting"
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert await runtime.status(started.run_id) == "succeeded"
    assert json.loads(agents.results()["one"]) == {"who": "ada"}


async def test_what_is_fixed_is_not_the_models(agents: Agents) -> None:
    fixed = '        - {do: probe.effect.apply, with: {name: "${{ trigger.text }}"}}\n'
    workflow = agent().replace("        - probe.effect.apply\n", fixed)
    one, two = ({"value": "1"}, "one"), ({"name": "theirs"}, "two")
    run = await agents.go(
        calls(*(call("probe_effect_apply", *each) for each in (one, two))),
        says("Done."),
        workflow=workflow,
        text="ours",
    )
    assert await agents.runtime.status(run) == "succeeded"
    assert [effect.input for effect in agents.runtime.outside.effects] == [{"name": "ours", "value": "1"}]
    assert statuses(agents) == {"one": "done", "two": "refused"}
    first: Any = agents.model.completions[0]
    tools = {tool["function"]["name"]: tool["function"] for tool in first["tools"]}
    assert "name" not in tools["probe_effect_apply"]["parameters"]["properties"]


async def test_a_run_is_gone_on_with(agents: Agents, tmp_path: Path) -> None:
    evidence = Evidence(agents.runtime, tmp_path)
    run = await agents.go(calls(call("probe_effect_apply", {"name": "a"}, "one")), *[{"content": 1}] * 4, says("Done."))
    runtime = agents.runtime
    while await runtime.status(run) == "failed_retryable":
        await runtime.wait_is_due()
    assert await runtime.status(run) == "failed_terminal"
    agents.model.turns = [calls(call("probe_effect_apply", {"name": "b"}, "one")), says("Done.")]
    await evidence.write()
    await runtime.retry(run)
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert [effect.input["name"] for effect in runtime.outside.effects] == ["a", "b"]


LOOP = """
workflow: agents
version: 1
channels: {found: {reduce: append}}
steps:
  - foreach: ${{ trigger.names }}
    as: name
    max_parallel: 2
    steps:
      - id: triage
        agent:
          {model: script-given, instructions: Do it., input: "${{ name }}", tools: [probe.effect.apply],
           limits: {turns: 1}}
        set: {found: "${{ output.text }}"}
        on_failure: [{set: {found: "${{ error.code }}"}}]
"""


async def test_agents_work_side_by_side_in_a_loop(agents: Agents) -> None:
    runtime = agents.runtime
    agents.model.turns = [calls(call("probe_effect_apply", {"name": "a"}, "one")), says("Done.")]
    run = await runtime.go(LOOP, {"names": ["x", "y", "z"]}, ALLOW)
    assert await runtime.status(run) == "succeeded"
    assert (await runtime.state(run))["channels"]["found"] == ["Done."] * 3
    assert len(agents.asked) == 6
    assert len(runtime.outside.effects) == 3
    assert "agents" not in await runtime.state(run)


async def test_a_failed_agent_in_a_loop_is_handled(agents: Agents) -> None:
    runtime = agents.runtime
    agents.model.turns = [calls(call("probe_effect_apply", {"name": "a"}, "one"))]
    run = await runtime.go(LOOP, {"names": ["x", "y", "z"]}, ALLOW)
    assert await runtime.status(run) == "succeeded"
    assert (await runtime.state(run))["channels"]["found"] == ["agent_limit"] * 3
    assert "agents" not in await runtime.state(run)


async def test_a_question_that_expires_is_told(agents: Agents) -> None:
    run = await agents.go(calls(call("probe_effect_apply", {"name": "a"}, "one")), says("Late."), policy=APPROVAL)
    runtime = agents.runtime
    await runtime.trouble.begin_waits_earlier(timedelta(days=60))
    await runtime.trouble.make_waits_due("approval")
    await runtime.sweep()
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert statuses(agents) == {"one": "expired"}
    await runtime.at_rest()


INNER = """
workflow: check
version: 1
steps:
%s
  - id: inner
    agent:
      {model: script-obedient, instructions: Do., tools: [probe.value.read],
       input: "CALL probe_value_read {}\\nANSWER In."}
%s
"""
WAITS = "  - {id: go, wait: {signal: go, correlate: x}}"


@pytest.mark.parametrize("waits", [("", ""), (WAITS, ""), ("", WAITS)])
@pytest.mark.parametrize(
    ("limit", "reached"), [("calls: 2", "calls"), ("calls: 3", None), ("tokens: 57", "tokens"), ("tokens: 58", None)]
)
async def test_what_a_run_within_uses_counts(
    agents: Agents, waits: tuple[str, str], limit: str, reached: str | None
) -> None:
    runtime = agents.runtime
    workflow = agent(more=f"limits: {{{limit}}}").replace("        - probe.value.read\n", "        - {run: check@1}\n")
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(INNER % waits)
    await runtime.publish(workflow)
    agents.model.turns = [calls(call("check_1", {}, "one")), says("Done.")]
    run = (await runtime.start("agents", {"text": "x"})).run_id
    await runtime.go_on()
    if any(waits):
        await runtime.signal("go:x", {})
        await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert (await agents.found(run)).get("limit") == reached
    report = await RunReader(runtime.faces, runtime.definitions).replay("acme", run)
    assert report.ok, report.difference
    await runtime.at_rest()
