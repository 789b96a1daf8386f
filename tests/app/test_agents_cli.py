"""The story of an agent on the command line: its turns, its calls, what each came to, what it cost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from app.cli.telling import proposed_by, source_rows
from app.settings import load_settings
from app.wiring import build
from approvals.content import Agent, Source
from connectors.port import Call, Connectors, Done, Usage
from tests.support.insides import look_often

WORKFLOW = """
workflow: triage
version: 1
steps:
  - id: triage
    agent:
      model: gpt-4o-mini
      instructions: Triage.
      input: Now.
      tools:
        - probe.effect.apply
        - {do: probe.danger.apply, with: {pin: "4711-4712"}}
"""
POLICY = """
policy: all
version: 1
rules:
  - {id: model, match: {connector: model}, outcome: allow}
  - {id: all, match: {connector: probe}, outcome: allow}
  - {id: never, match: {operation: probe.effect.apply}, when: action.fields.name == 'b', outcome: deny, because: Not b.}
"""


class Scripted:
    """A model that calls four times in its first turn, once what there is not."""

    target = ""

    async def perform(self, call: Call) -> Done:
        first = len(call.input["messages"]) == 2
        names = ("probe_effect_apply", "probe_effect_apply", "nothing", "probe_danger_apply")
        made = [
            {"id": str(number), "type": "function", "function": {"name": name, "arguments": f'{{"name": "{given}"}}'}}
            for number, (name, given) in enumerate(zip(names, "abcd", strict=True))
        ]
        output: dict[str, Any] = {
            "text": "Let me \x1b[31m see." if first else "All \x1b[31m done.",
            "model": "m",
            "finish_reason": "stop",
        }
        usage = Usage("openai", "gpt-4o-mini", 100, 10, "0.25")
        return Done({**output, "tool_calls": made} if first else output, usage=usage)

    async def aclose(self) -> None:
        return None


@pytest.mark.req("P-14")
def test_run_show_tells_the_story(command: Any, outside_world: Any, tmp_path: Path) -> None:
    for name, text in (("workflow", WORKFLOW), ("policy", POLICY)):
        (tmp_path / f"{name}.yaml").write_text(text)
        command(name, "publish", str(tmp_path / f"{name}.yaml"))
    run_id = command.json("run", "start", "triage", "--input", "{}")["run_id"]

    async def work() -> None:
        async with build(load_settings(), connectors=Connectors({"probe": outside_world, "model": Scripted()})) as app:
            look_often(app.queue)
            await app.worker().work_off()

    asyncio.run(work())
    (agent,) = command.json("run", "show", run_id)["agents"]
    assert (agent["step_key"], agent["model"], agent["calls"], agent["tokens"]) == ("triage", "gpt-4o-mini", 4, 220)
    assert agent["cost_usd"] == "0.50"
    came = [(call["source"], call["came"], call["reason"]) for call in agent["turns"][0]["calls"]]
    assert came == [
        ("probe.effect.apply", "done", ""),
        ("probe.effect.apply", "denied", "Not b."),
        ("?", "refused", "There is no such tool."),
        ("probe.danger.apply", "done", ""),
    ]
    said = command("run", "show", run_id)
    assert "gpt-4o-mini  succeeded: 2 turns, 4 calls, 1 refused, 220 tokens, 0.50 USD" in said
    assert 'triage/1/2  probe.effect.apply {"name": "b"} → denied: Not b.' in said
    assert "nothing" in said
    assert 'triage/1/4  probe.danger.apply {"name": "d"} → done' in said
    assert "4711" not in said, "what the author fixed is not the model's, and may be secret"
    assert 'result: {"text":"All ' in said
    assert "the model says: Let me \\x1b[31m see." in said
    assert "\x1b" not in said


@pytest.mark.req("P-14")
def test_a_value_that_nobody_of_ours_chose_stands_out() -> None:
    address = Source("to", "was returned by", "mail.read", ours=False, value="x@y.example")
    rows = [*source_rows(to_builtins([address, Source("text", "was given by whoever requested this")]))]
    assert rows == [
        {"field": "to", "source": "NOT OURS: was returned by mail.read", "quoted": "x@y.example"},
        {"field": "text", "source": "was given by whoever requested this", "quoted": ""},
    ]
    agent = Agent("triage", "gpt-4o-mini", 3, "ana.lee", ("mail.read",), "It says so.")
    assert proposed_by(to_builtins(agent)) == {
        "proposed_by": "the agent of step triage (gpt-4o-mini), turn 3, for ana.lee",
        "has_read": "mail.read",
        "the_model_says": "It says so.",
    }
    assert proposed_by(None) == {}
