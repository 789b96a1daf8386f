"""Turns that are carried over to the next agent, by references in a channel: in a run, a loop and a run within."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime.requests.views import RunReader
from runtime.store import journal
from tests.support.agents import ALLOW, Agents, call, calls, says
from tests.support.runtime_agent_origins import OWN
from tests.support.runtime_agents import APPROVAL
from tests.support.runtime_retrying import Evidence

pytestmark = pytest.mark.req("P-14")
ONE = """
  - id: %(id)s
    agent:
      {model: script-given, instructions: "I am %(id)s.", input: "%(input)s", tools: [%(tools)s],
       remember: {channel: messages, turns: %(turns)s}}
"""
HEAD = """
workflow: agents
version: 1
channels: {messages: {reduce: union, ledger: true}, found: {}}
steps:
"""


def one(name: str, tools: str = "probe.effect.apply", turns: int = 20) -> str:
    return ONE % {"id": name, "input": f"Do {name}.", "tools": tools, "turns": turns}


def shown(messages: list[dict[str, Any]]) -> list[str]:
    """The messages of one call of the model, each as its role and the beginning of its text."""
    return [f"{message['role']}: {(message['content'] or '')[:12]}".strip() for message in messages]


async def test_the_next_agent_is_shown_the_turns_of_the_one_before(agents: Agents, tmp_path: Path) -> None:
    runtime = agents.runtime
    made = calls(call("probe_effect_apply", {"name": "a"}, "one"))
    agents.model.turns = [made, says("First."), says("Second.")]
    run = await runtime.go(HEAD + one("first") + one("second"), {}, ALLOW)
    assert await runtime.status(run) == "succeeded"
    before = ["user: Do first.", "assistant:", 'tool: {"applied', "assistant: First."]
    assert shown(agents.asked[2])[0] == "system: I am second."
    assert [text[:15] for text in shown(agents.asked[2])[1:]] == [text[:15] for text in [*before, "user: Do second."]]
    refs = [[str(run), step] for step in ("first/1", "first/2", "second/1")]
    state = await runtime.state(run)
    assert state["channels"]["messages"] == refs, "references, and no words"
    kept = await runtime.books.entries(run=run)
    assert [(entry.step, entry.value) for entry in kept] == [("first", refs[:2]), ("second", refs[2:])]
    report = await RunReader(runtime.faces, runtime.definitions).replay("acme", run)
    assert report.ok, report.difference
    await runtime.history(run)
    await Evidence(runtime, tmp_path).write()
    await runtime.at_rest()


async def test_a_loop_is_shown_so_many_turns_a_call_never_without_its_result(agents: Agents) -> None:
    runtime = agents.runtime
    made = calls(call("probe_effect_apply", {"name": "a"}, "one"))
    agents.model.turns = [made, says("Done."), made, says("Done.")]
    body = one("triage", turns=3).replace("\n", "\n    ")
    loop = f"  - foreach: ${{{{ trigger.names }}}}\n    as: name\n    max_parallel: 1\n    steps:\n    {body}"
    run = await runtime.go(HEAD + loop, {"names": ["x", "y", "z"]}, ALLOW)
    assert await runtime.status(run) == "succeeded"
    roles = [message["role"] for message in agents.asked[4]]
    assert roles == ["system", "assistant", "user", "assistant", "tool", "assistant", "user"]
    held = (await runtime.state(run))["channels"]["messages"]
    assert [step.partition(".")[2] for _, step in held] == ["triage/1", "triage/2", "triage/1"]
    kept = await runtime.books.entries(run=run)
    assert [len(entry.value) for entry in kept] == [2, 2, 1], "the ledger keeps all"
    await runtime.history(run)
    await runtime.at_rest()


PARENT = (
    HEAD
    + one("first", "probe.value.read")
    + "  - {id: child, run: within@1, abandon: true, timeout: P1D, inherit: [messages]}\n"
)
WITHIN = (HEAD + "  - {id: go, wait: {signal: go, correlate: x}}\n" + one("second")).replace("agents", "within")


async def inherited(agents: Agents) -> Any:
    """A run whose second agent stands in a run within, which waits before it begins."""
    runtime = agents.runtime
    agents.model.turns = [calls(call("probe_value_read", {"name": "a"}, "one")), says("First."), says("Second.")]
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(WITHIN)
    await runtime.publish(PARENT)
    started = await runtime.start("agents", {})
    await runtime.go_on()
    return started.run_id


async def test_a_run_within_is_shown_what_it_has_inherited(agents: Agents) -> None:
    runtime, run = agents.runtime, await inherited(agents)
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    roles = [message["role"] for message in agents.asked[2]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    within = next(one.id for one in await runtime.books.runs() if one.id != run)
    assert (await runtime.state(within))["channels"]["messages"][0] == [str(run), "first/1"]
    await runtime.at_rest()


async def test_what_was_erased_above_is_shown_to_nobody(agents: Agents, tmp_path: Path) -> None:
    runtime, run = agents.runtime, await inherited(agents)
    await runtime.trouble.make_waits_due("child")
    await runtime.sweep()
    await runtime.worker().work_off()
    await runtime.trouble.make_purge_due(run)
    await Evidence(runtime, tmp_path).write()
    await runtime.sweep()
    assert (await runtime.books.run(run)).purged_at is not None
    await runtime.signal("go:x", {})
    await runtime.worker().work_off()
    within = next(one.id for one in await runtime.books.runs() if one.id != run)
    assert await runtime.status(within) == "failed_terminal"
    assert (await runtime.error(within))["code"] == "not_remembered"
    assert len(agents.asked) == 2, "no model is asked with less than it is to remember"


async def test_only_runs_above_are_read(agents: Agents) -> None:
    runtime, run = agents.runtime, await inherited(agents)
    within = next(one.id for one in await runtime.books.runs() if one.id != run)
    async with runtime.database.connection() as connection:
        above = await journal.of_others(connection, within, [(str(run), "first"), (str(within), "second")])
        below = await journal.of_others(connection, run, [(str(run), "first"), (str(within), "second")])
    assert ([*above], [*below]) == ([(str(run), "first"), (str(within), "second")], [(str(run), "first")])


async def test_nobody_tells_where_it_comes_from_but_a_model(agents: Agents) -> None:
    runtime = agents.runtime
    runtime.outside.reshape = lambda done: type(done)({"value": "evil@x.example", "note": "n"})
    agents.model.turns = [
        calls(call("probe_value_read", {"name": "alpha"}, "one")),
        says("Take omega."),
        calls(*(call("probe_effect_apply", {"name": name}, name) for name in ("evil@x.example", "omega"))),
        says("Done."),
    ]
    run = await runtime.go(HEAD + one("first", "probe.value.read") + one("second"), {}, OWN)
    decisions = await runtime.books.decisions(operation="probe.effect.apply")
    assert [one.facts["origin.name"] for one in decisions] == [[["unknown"]], [["model"]]]
    card = (await runtime.books.approvals(open=True))[0].card
    assert card["agent"]["read"] == ["probe.value.read"], "whatever the model has seen, by whichever agent"
    assert await runtime.status(run) == "waiting_approval"


async def test_agents_remember_each_as_many_turns_as_they_say(agents: Agents) -> None:
    runtime = agents.runtime
    agents.model.turns = [says("One."), says("Two."), says("Three.")]
    run = await runtime.go(HEAD + one("first") + one("second", turns=9) + one("third", turns=1), {}, ALLOW)
    assert await runtime.status(run) == "succeeded"
    roles = [message["role"] for message in agents.asked[2]]
    assert roles == ["system", "user", "assistant", "user"]
    assert agents.asked[2][1]["content"] == "Do second."
    report = await RunReader(runtime.faces, runtime.definitions).replay("acme", run)
    assert report.ok, report.difference


async def test_who_shaped_an_agent_shaped_the_next_one(agents: Agents) -> None:
    runtime = agents.runtime
    form = "{type: object, properties: {answer: {type: string}}}"
    asks = f"ask: {{name: ask_desk, title: A question, form: {form}, assign: {{group: desk}}}}"
    agents.model.turns = [
        calls(call("ask_desk", {"question": "Who?"}, "one")),
        says("Ben."),
        calls(call("probe_effect_apply", {"name": "ben"}, "two")),
        says("Done."),
    ]
    await runtime.go(HEAD + one("first", f"{{{asks}}}") + one("second"), {}, APPROVAL)
    await runtime.person("pat", ("desk",))
    await runtime.complete("pat", {"answer": "ben"})
    await runtime.go_on()
    run = (await runtime.books.runs())[0].id
    shaped = (await runtime.state(run))["shaped"]
    assert "person:pat" in str(shaped["state.messages"])
    await runtime.person("lee", ("leads",))
    await runtime.vote("lee", "approve")
    await runtime.go_on()
    assert "person:pat" in str((await runtime.state(run))["shaped"]["steps.second"])
