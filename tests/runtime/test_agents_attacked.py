"""Agents under an enemy's hands: odd ids, enormous results, fixed secrets, lost operations, cancels in flight."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from connectors.port import Connectors, Done, InDoubt
from runtime.definition.catalog import Definitions
from runtime.requests.steering import cancel_run
from runtime.requests.views import RunReader
from sandbox.faults import Effect, Fault, FaultKind
from tests.support.agents import ALLOW, Agents, agent, call, calls, says
from tests.support.runtime_agents import APPROVAL
from tests.support.runtime_agents_waiting import doubted
from tests.support.runtime_retrying import Evidence

pytestmark = pytest.mark.req("P-14")
APPLY = call("probe_effect_apply", {"name": "a"}, "one")
MAIL = call("probe_mail_send", {"text": "x"}, "one")


async def checked(agents: Agents, run: Any) -> None:
    report = await RunReader(agents.runtime.faces, agents.runtime.definitions).replay("acme", run)
    assert report.ok, report.difference
    await agents.runtime.at_rest()


def told(agents: Agents, name: str = "one") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(agents.results()[name])
    return found


@pytest.mark.parametrize("name", ["", None, "\u202e\u200b<b>", "ünï"], ids=["empty", "none", "turned", "letters"])
async def test_an_odd_id_has_its_result(agents: Agents, name: Any) -> None:
    run = await agents.go(calls({**APPLY, "id": name}), says("Done."))
    assert await agents.runtime.status(run) == "succeeded"
    assert len(agents.results()) == len(agents.runtime.outside.effects) == 1
    await checked(agents, run)


@pytest.mark.parametrize(
    "name", ["x" * 10_000, "a\x00b", "\ud800", 5, {"a": 1}], ids=["long", "zero", "half", "number", "object"]
)
async def test_an_id_that_is_none_fails_the_turn(agents: Agents, name: Any) -> None:
    run = await agents.go(calls({**APPLY, "id": name}), says("Done."))
    for _ in range(4):
        await agents.runtime.wait_is_due()
    assert await agents.runtime.status(run) == "failed_terminal"
    assert agents.runtime.outside.effects == []
    await checked(agents, run)


@pytest.mark.parametrize("value", ["x" * 5_000_000, ["y"] * 500_000], ids=["text", "list"])
async def test_an_enormous_result_is_told_as_what_may_have_been_done(agents: Agents, value: Any) -> None:
    agents.runtime.outside.reshape = lambda done: Done({"value": value})
    run = await agents.go(calls(APPLY, call("probe_value_read", {"name": "b"}, "two")), says("Done."))
    assert await agents.runtime.status(run) == "succeeded"
    assert len(agents.runtime.outside.effects) == 1
    assert "$not_kept" in str(told(agents)), "it was done, and what it answered cannot be kept"
    assert told(agents, "two")["what"] == "The call failed.", "a reading has done nothing"
    assert sum(len(str(message)) for message in agents.asked[-1]) < 3000
    await checked(agents, run)


@pytest.mark.parametrize(("choice", "status"), [("fail", "failed"), (None, "expired")], ids=["given up", "expired"])
async def test_a_doubt_that_nobody_can_clear_up_is_not_told_as_nothing(
    agents: Agents, choice: str | None, status: str
) -> None:
    runtime = agents.runtime
    runtime.outside.script["probe.mail.send"] = [InDoubt("The line broke.")]
    run = await agents.go(calls(MAIL), says("Done."))
    await doubted(runtime)
    if choice is None:
        await runtime.trouble.begin_waits_earlier(timedelta(days=60))
        await runtime.trouble.make_waits_due("approval")
        await runtime.sweep()
    else:
        await runtime.person("op", ("operators",))
        await runtime.vote("op", choice)
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert told(agents)["status"] == status
    assert "Nothing was done" not in agents.results()["one"]
    assert "may have been done" in told(agents)["what"]
    await checked(agents, run)


async def test_a_secret_that_a_tool_is_fixed_to_goes_nowhere_else(agents: Agents, tmp_path: Path) -> None:
    evidence = Evidence(agents.runtime, tmp_path)
    fixed = '        - {do: probe.secret.send, with: {password: "${{ trigger.text }}"}}\n'
    workflow = agent().replace("        - probe.effect.apply\n", fixed)
    agents.runtime.outside.reshape = lambda done: Done({"value": "ok"})
    theirs = call("probe_secret_send", {"name": "n", "password": "p"}, "two")
    made = calls(call("probe_secret_send", {"name": "n"}, "one"), theirs)
    quiet = workflow.replace("input: ${{ trigger.text }}", "input: Go.")
    run = await agents.go(made, says("Done."), workflow=quiet, text="hunter2")
    assert await agents.runtime.status(run) == "succeeded"
    assert [effect.input for effect in agents.runtime.outside.effects] == [{"name": "n", "password": "hunter2"}]
    assert told(agents, "two")["status"] == "refused"
    assert "hunter2" not in json.dumps(agents.model.completions)
    await evidence.write()
    (bundle,) = evidence.all()
    with zipfile.ZipFile(bundle) as files:
        assert [name for name in files.namelist() if b"hunter2" in files.read(name)] == []
    await checked(agents, run)


async def test_an_operation_that_is_gone_here_is_carried_out_as_it_was_frozen(agents: Agents) -> None:
    run = await agents.go(calls(APPLY), says("Done."), policy=APPROVAL)
    runtime: Any = agents.runtime
    await runtime.person("lee", ("leads",))
    known = runtime.catalog.operations
    less = changed(runtime.catalog, operations={name: known[name] for name in known if name != "probe.effect.apply"})
    later = replace(runtime, definitions=Definitions(less), catalog=less)
    await later.vote("lee", "approve")
    await later.go_on()
    assert await later.status(run) == "succeeded"
    assert len(runtime.outside.effects) == 1
    await checked(agents, run)


async def test_a_connector_that_is_gone_is_said_to_the_model(agents: Agents) -> None:
    run = await agents.go(calls(APPLY), says("Done."), policy=APPROVAL)
    runtime: Any = agents.runtime
    await runtime.person("lee", ("leads",))
    later = replace(runtime, connectors=Connectors({"model": runtime.connectors.get("model")}))
    await later.vote("lee", "approve")
    await later.go_on()
    assert await later.status(run) == "succeeded"
    assert (told(agents)["status"], "'probe' is not configured" in told(agents)["reason"]) == ("failed", True)
    await checked(agents, run)


async def test_a_cancel_while_the_model_is_asked(agents: Agents) -> None:
    runtime: Any = agents.runtime
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(agent())
    agents.model.turns = [calls(APPLY), says("Done.")]
    agents.model.faults.inject(Fault("/v1/chat", FaultKind.HANG, Effect.LANDED))
    async with runtime.working():
        run = (await runtime.start("agents", {"text": "x"})).run_id

        async def hit() -> bool:
            return bool(agents.model.completions)

        await runtime.until(hit)
        async with runtime.faces.transaction("acme") as connection:
            await cancel_run(connection, runtime.definitions, "acme", run, runtime.actor, "enough")
        agents.model.faults.clear()

        async def over() -> bool:
            return await runtime.status(run) == "canceled"

        await runtime.until(over)
    assert await runtime.steps(run) == {"triage": "canceled", "triage/1": "canceled"}
    assert runtime.outside.effects == []
    await checked(agents, run)


CHILD = """
workflow: inner
version: 1
channels: {found: {reduce: append}}
result: "${{ state.found }}"
steps:
  - foreach: ${{ trigger.names }}
    as: name
    max_parallel: 2
    steps:
      - id: triage
        agent: {model: script-given, instructions: Do it., input: "${{ name }}", tools: [probe.effect.apply]}
        set: {found: "${{ output.text }}"}
"""
PARENT = """
workflow: outer
version: 1
channels: {found: {}}
steps:
  - {id: c, run: inner@1, with: {names: "${{ trigger.names }}"}, set: {found: "${{ output }}"}}
"""


async def test_agents_in_a_loop_of_a_child(agents: Agents) -> None:
    runtime: Any = agents.runtime
    await runtime.tenant()
    await runtime.policy(APPROVAL)
    await runtime.publish(CHILD)
    await runtime.publish(PARENT)
    agents.model.turns = [calls(APPLY), says("Done.")]
    run = (await runtime.start("outer", {"names": ["x", "y", "z"]})).run_id
    await runtime.go_on()
    await runtime.person("lee", ("leads",))
    for count in (2, 1, 0):
        asked = await runtime.books.approvals(open=True)
        assert len(asked) == count
        for one in asked:
            await runtime.vote("lee", "approve", on=one.id)
        await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert (await runtime.state(run))["channels"]["found"] == ["Done."] * 3
    await checked(agents, run)
