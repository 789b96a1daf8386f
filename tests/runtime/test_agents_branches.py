"""Branches of agents that fail, and what outlives an agent: limits, doubts, cancels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connectors.port import InDoubt
from runtime.requests.steering import cancel_run
from runtime.requests.views import RunReader
from tests.support.agents import ALLOW, Agents, agent, call, calls, says
from tests.support.runtime_agents import APPROVAL
from tests.support.runtime_agents_waiting import doubted

pytestmark = pytest.mark.req("P-14")
APPLY = call("probe_effect_apply", {"name": "a"}, "one")
ASKS_THE_MODEL = ALLOW.replace(
    "{id: model, match: {connector: model}, outcome: allow, because: It is a test.}",
    "{id: model, match: {connector: model}, outcome: needs_approval, because: A test., approvers: [{group: leads}]}",
)
BRANCHES = "\n".join(
    f'on_{name}:\n  - {{id: {name}, do: probe.effect.apply, with: {{name: {name}, value: "${{{{ error.code }}}}"}}}}'
    for name in ("failure", "timeout", "rejected")
)


def branches(more: str = "", beside: str = "") -> str:
    return agent(more=more, beside=f"{beside}\n{BRANCHES}")


def taken(agents: Agents) -> list[tuple[Any, Any]]:
    return [(effect.input["name"], effect.input.get("value")) for effect in agents.runtime.outside.effects]


async def replayed(agents: Agents, run: Any) -> None:
    report = await RunReader(agents.runtime.faces, agents.runtime.definitions).replay("acme", run)
    assert report.ok, report.difference
    await agents.runtime.at_rest()


@pytest.mark.parametrize(
    ("choice", "branch"), [("reject", ("rejected", "rejected")), ("approve", None)], ids=["rejected", "approved"]
)
async def test_people_may_reject_that_a_model_is_asked(agents: Agents, choice: str, branch: Any) -> None:
    run = await agents.go(says("Done."), policy=ASKS_THE_MODEL, workflow=branches())
    await agents.runtime.person("lee", ("leads",))
    await agents.runtime.vote("lee", choice)
    await agents.runtime.go_on()
    assert await agents.runtime.status(run) == "succeeded"
    assert taken(agents) == ([branch] if branch else [])
    assert len(agents.asked) == (choice == "approve")
    await replayed(agents, run)


async def test_a_question_about_a_turn_that_expires_fails_the_agent(agents: Agents) -> None:
    run = await agents.go(says("Done."), policy=ASKS_THE_MODEL, workflow=branches())
    await agents.runtime.trouble.make_waits_due("approval")
    await agents.runtime.sweep()
    await agents.runtime.go_on()
    assert await agents.runtime.status(run) == "succeeded"
    assert taken(agents) == [("timeout", "expired")]
    assert agents.asked == []
    await replayed(agents, run)


@pytest.mark.parametrize(
    ("more", "turns", "code"),
    [
        ("on_limit: fail\nlimits: {calls: 1}", [calls(APPLY), says("?")], "agent_limit"),
        ("on_limit: fail\nlimits: {tokens: 1}", [calls(APPLY), says("?")], "agent_limit"),
        ("limits: {turns: 1}", [calls(APPLY)], "agent_limit"),
        ("limits: {turns: 1}\nresult: {type: integer}", [says("?")], "agent_result"),
        ("on_denied: fail", [calls(call("probe_mail_send", {"text": "x"}))], "agent_denied"),
    ],
    ids=["calls", "tokens", "calls on", "no result", "denied"],
)
async def test_an_agent_that_fails_is_handled(agents: Agents, more: str, turns: list[Any], code: str) -> None:
    deny = "rules:\n  - {id: no, match: {operation: probe.mail.send}, outcome: deny, because: No.}"
    run = await agents.go(*turns, policy=ALLOW.replace("rules:", deny), workflow=branches(more))
    assert await agents.runtime.status(run) == "succeeded"
    assert taken(agents)[-1] == ("failure", code)
    await replayed(agents, run)


async def test_a_rejected_call_may_fail_the_agent_which_is_no_rejection_of_it(agents: Agents) -> None:
    policy = APPROVAL.replace("match: {operation: probe.effect.apply}", "match: {operation: probe.mail.send}").replace(
        "rules:", "rules:\n  - {id: effects, match: {operation: probe.effect.apply}, outcome: allow}"
    )
    mail = call("probe_mail_send", {"text": "x"}, "mail")
    run = await agents.go(calls(mail), says("?"), policy=policy, workflow=branches("on_denied: fail"))
    await agents.runtime.person("lee", ("leads",))
    await agents.runtime.vote("lee", "reject")
    await agents.runtime.go_on()
    assert await agents.runtime.status(run) == "succeeded"
    assert taken(agents) == [("failure", "agent_denied")]
    assert len(agents.asked) == 1
    await replayed(agents, run)


@pytest.mark.parametrize("also", [[], ["probe_effect_apply"]], ids=["parked", "next in its lane"])
async def test_an_agent_that_fails_with_a_denied_call_waits_for_nobody(agents: Agents, also: list[str]) -> None:
    deny = "rules:\n  - {id: no, match: {operation: probe.mail.send}, outcome: deny, because: No.}"
    turn = [call("probe_mail_send", {"text": "x"}, "mail"), APPLY, *[call(name, {"name": "a"}, "two") for name in also]]
    policy = APPROVAL.replace("rules:", deny)
    run = await agents.go(calls(*turn), policy=policy, workflow=agent(more="on_denied: fail"))
    assert await agents.runtime.status(run) == "failed_terminal"
    assert (await agents.runtime.error(run))["code"] == "agent_denied"
    assert [approval.status for approval in await agents.runtime.books.approvals()] == ["canceled"]
    assert agents.runtime.outside.effects == []
    assert len(agents.asked) == 1
    await replayed(agents, run)


LOOP = """
workflow: agents
version: 1
steps:
  - id: each
    foreach: ${{ trigger.names }}
    as: name
    steps:
      - id: triage
        agent: {model: script-given, instructions: Do it., input: "${{ name }}", tools: [probe.mail.send]}
        timeout: P1D
        on_timeout:
          - {id: instead, do: probe.effect.apply, with: {name: "${{ name }}"}}
  - {id: after, do: probe.effect.apply, with: {name: after}}
"""


@pytest.mark.parametrize("choice", ["happened", "again"])
@pytest.mark.parametrize("names", [["x"], ["x", "y"], []], ids=["loop", "longer loop", "no loop"])
async def test_a_doubt_is_decided_when_its_agent_and_its_loop_are_over(
    agents: Agents, choice: str, names: list[str]
) -> None:
    runtime = agents.runtime
    runtime.outside.script["probe.mail.send"] = [InDoubt("The line broke.")]
    runtime.outside.may_repeat.add("probe.mail.send")
    agents.model.turns = [calls(call("probe_mail_send", {"text": "mail"}, "one")), says("Done.")]
    key = "each[0].triage/1/1" if names else "triage/1/1"
    beside = "timeout: P1D\non_timeout:\n  - {id: instead, do: probe.effect.apply, with: {name: x}}"
    text = LOOP if names else agent(beside=beside)
    run = await runtime.go(text, {"names": names, "text": "x"}, ALLOW)
    await runtime.trouble.make_waits_due("agent")
    await runtime.sweep()
    await runtime.worker().work_off()
    assert (await runtime.steps(run))[key] == "failed_retryable"
    await doubted(runtime)
    await runtime.person("op", ("operators",))
    await runtime.vote("op", choice)
    await runtime.go_on()
    while await runtime.status(run) == "failed_retryable":
        await runtime.wait_is_due()
    assert await runtime.error(run) is None
    assert await runtime.status(run) == "succeeded"
    await replayed(agents, run)


async def test_a_cancel_while_the_model_is_asked_keeps_no_answer_waiting(agents: Agents) -> None:
    runtime = agents.runtime
    run = await agents.go(calls(APPLY, call("ask_desk", {"question": "?"}, "two")), says("Never."))
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run, runtime.actor, "enough")
    await runtime.go_on()
    assert await runtime.status(run) == "canceled"
    assert json.dumps(agents.asked).count("Never") == 0
    await replayed(agents, run)
