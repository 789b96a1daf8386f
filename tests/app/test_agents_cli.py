"""The story of an agent on the command line: its turns, its calls, what each came to, what it cost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.settings import load_settings
from app.wiring import build
from connectors.port import Call, Connectors, Done, Usage
from runtime.queue.postgres import PostgresQueue

WORKFLOW = """
workflow: triage
version: 1
steps:
  - id: triage
    agent:
      model: gpt-4o-mini
      instructions: Triage.
      input: Now.
      tools: [probe.effect.apply]
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
    """A model that calls three times in its first turn, once what there is not."""

    target = ""

    async def perform(self, call: Call) -> Done:
        first = len(call.input["messages"]) == 2
        names = ("probe_effect_apply", "probe_effect_apply", "nothing")
        made = [
            {"id": str(number), "type": "function", "function": {"name": name, "arguments": f'{{"name": "{given}"}}'}}
            for number, (name, given) in enumerate(zip(names, "abc", strict=True))
        ]
        output: dict[str, Any] = {"text": "" if first else "All \x1b[31m done.", "model": "m", "finish_reason": "stop"}
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
            assert isinstance(app.queue, PostgresQueue)
            app.queue._idle = 0.01
            await app.worker().work_off()

    asyncio.run(work())
    (agent,) = command.json("run", "show", run_id)["agents"]
    assert (agent["step_key"], agent["model"], agent["calls"], agent["tokens"]) == ("triage", "gpt-4o-mini", 3, 220)
    assert agent["cost_usd"] == "0.50"
    came = [(call["calls"], call["came"], call["reason"]) for call in agent["turns"][0]["calls"]]
    assert came == [
        ("probe.effect.apply", "done", ""),
        ("probe.effect.apply", "denied", "Not b."),
        ("?", "refused", "There is no such tool."),
    ]
    said = command("run", "show", run_id)
    assert "gpt-4o-mini, 2 turns, 3 calls, 220 tokens, 0.50 USD" in said
    assert "denied" in said
    assert "\x1b" not in said
