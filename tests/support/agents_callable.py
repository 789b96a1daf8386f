"""Governed callables without a framework, as the other stages have agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from counterseal_agents import NotRun, govern
from tests.support.agents_stage import Broken, How


def _tool(how: How) -> Callable[..., Any]:
    inner: Callable[..., Any] = how.apay if how.abody else how.pay

    def repeated(**arguments: Any) -> Any:
        for _ in range(2):
            try:
                result = inner(**arguments)
            except Broken:
                continue
            return result
        return None

    def changed(**_: Any) -> Any:
        assert how.change is not None
        return inner(**how.change[1])

    body = repeated if how.retry == "inside" else inner
    body = changed if how.change is not None and how.change[0] == "after" else body
    return body if how.ungoverned else govern(body, gate=how.gate(), tool="pay")


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the callers were told."""
    if how.abody is not None:
        return asyncio.run(aturn(how, calls))
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda one: _called(how, one), calls))


def _called(how: How, arguments: dict[str, Any]) -> str:
    tool, said = _tool(how), ""
    arguments = how.change[1] if how.change is not None and how.change[0] == "before" else arguments
    for _ in range(2 if how.retry == "around" else 1):
        try:
            return str(tool(**arguments))
        except (NotRun, Broken) as error:
            said = str(error)
    return said


async def aturn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The same, in a loop."""
    done = await asyncio.gather(
        *(asyncio.wait_for(_tool(how)(**one), how.limit) for one in calls), return_exceptions=True
    )
    return [str(one) for one in done]


def pause(how: How, call: dict[str, Any]) -> None:
    """Call, and be told that it waits."""
    assert "Call it again later" in turn(how, [call])[0]
    how.state.write_text(json.dumps(call), encoding="utf-8")


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call that is to be made again."""
    how.state.write_text(json.dumps(arguments), encoding="utf-8")


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Call again."""
    return turn(how, [json.loads(how.state.read_text(encoding="utf-8"))])


def hosted(how: How) -> None:
    """A tool of a provider is no callable."""
    hosted_tool: Any = {"type": "web_search"}
    govern(hosted_tool, gate=how.gate())
