"""An agent of Google ADK with a scripted model, whose paused runs are stored by its session service."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.code_executors import UnsafeLocalCodeExecutor
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins import ReflectAndRetryToolPlugin
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import AgentTool, FunctionTool, google_search
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from counterseal_agents import Gate
from counterseal_agents.google_adk import governed
from tests.support.agents_stage import PAY, How

WHO = {"user_id": "ana", "session_id": "one"}
ASKED = "adk_request_confirmation"


class Scripted(BaseLlm):
    """A model that makes these calls in each turn, and then is done."""

    model: str = "scripted"
    turns: Any = ()
    name: str = "pay"

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        """The next turn."""
        calls = self.turns.pop(0) if self.turns else ()
        parts = [types.Part.from_function_call(name=self.name, args=one) for one in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts or [types.Part(text="done")]))


class Changing(BasePlugin):
    """A plugin that changes the arguments of each call before any callback."""

    def __init__(self, how: How) -> None:
        super().__init__(name="changing")
        self.how = how

    async def before_tool_callback(self, *, tool_args: dict[str, Any], **_: Any) -> None:
        """Changed."""
        tool_args.update(self.how.change[1] if self.how.change and self.how.change[0] == "before" else {})


def agent(how: How, *turns: list[dict[str, Any]], name: str = "pay", **given: Any) -> LlmAgent:
    """The agent, with a callback that changes arguments after the plugins."""
    body = how.apay if how.abody is not None or how.limit is not None else how.pay
    pay = FunctionTool(body)
    pay.name = "pay"

    def change(*, args: dict[str, Any], **_: Any) -> None:
        args.update(how.change[1] if how.change and how.change[0] == "after" else {})

    pay._get_declaration = lambda: types.FunctionDeclaration(name=name)
    made = LlmAgent(
        name="payer", model=Scripted(turns=list(turns), name=name), tools=[pay], before_tool_callback=change, **given
    )
    return made if how.ungoverned else governed(made, how.gate())


def _runner(how: How, made: LlmAgent, stored: bool = False) -> Runner:
    plugins = [Changing(how), *([ReflectAndRetryToolPlugin()] if how.retry else [])]
    sessions = SqliteSessionService(str(how.state)) if stored else InMemorySessionService()
    app = App(name="pays", root_agent=made, plugins=plugins)
    return Runner(app=app, session_service=sessions, auto_create_session=True)


async def _run(runner: Runner, *parts: types.Part) -> tuple[list[str], list[str]]:
    """The words that the model was told about its calls, and the ids of what waits to be confirmed."""
    said: list[str] = []
    waiting: list[str] = []
    async for event in runner.run_async(**WHO, new_message=types.Content(role="user", parts=list(parts))):
        answers = [one.response or {} for one in event.get_function_responses()]
        said += [str(one.get("result") or one.get("error") or one) for one in answers]
        waiting += [str(one.id) for one in event.get_function_calls() if one.name == ASKED]
    return said, waiting


def turn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The words that the model was told about its calls."""
    return asyncio.run(aturn(how, calls))


async def aturn(how: How, calls: list[dict[str, Any]]) -> list[str]:
    """The same, in a loop. A plugin of the framework has the model repeat what failed."""
    made = agent(how, *([calls, calls] if how.retry else [calls]), timeout=how.limit)
    async with asyncio.timeout(None if how.limit is None else how.limit + 5):
        return (await _run(_runner(how, made), types.Part(text="pay")))[0]


def pause(how: How, call: dict[str, Any]) -> None:
    """Run until it pauses, and leave it to its store."""
    said, waiting = asyncio.run(_run(_runner(how, agent(how, [call]), stored=True), types.Part(text="pay")))
    assert "waits for people" in said[0]
    how.state.with_suffix(".asked").write_text(waiting[0], encoding="utf-8")


def edit(how: How, arguments: dict[str, Any]) -> None:
    """Change the call in the store, wherever it stands."""
    with sqlite3.connect(how.state) as database:
        changed = database.execute(
            "UPDATE events SET event_data = replace(replace(event_data, '\"amount\":5', ?), '\"amount\": 5', ?)",
            [f'"amount":{arguments["amount"]}'] * 2,
        )
        assert changed.rowcount


def resume(how: How, call: dict[str, Any]) -> list[str]:
    """Go on with what is stored: with a confirmation, which is no yes."""
    asked = how.state.with_suffix(".asked")
    response = types.FunctionResponse(id=asked.read_text("utf-8"), name=ASKED, response={"confirmed": True})
    runner = _runner(how, agent(how), stored=True)
    said, waiting = asyncio.run(_run(runner, types.Part(function_response=response)))
    if waiting:
        asked.write_text(waiting[0], encoding="utf-8")
        return []
    return said


def hosted(how: How) -> None:
    """A tool that the model's provider runs."""
    _hosted(how.gate(), [])


def _hosted(gate: Gate, ungoverned: list[str]) -> None:
    named = ["google_search"] if ungoverned else []
    governed(LlmAgent(name="searcher", model=Scripted(), tools=[google_search]), gate, ungoverned=named)


def _code(gate: Gate, ungoverned: list[str]) -> None:
    made = LlmAgent(name="coder", model=Scripted(), code_executor=UnsafeLocalCodeExecutor())
    governed(made, gate, ungoverned=["code_executor"] if ungoverned else [])


def _brought(gate: Gate, ungoverned: list[str]) -> None:
    """A callback brings it into the request."""

    def bring(callback_context: Any, llm_request: Any) -> None:
        llm_request.config.tools = [types.Tool(google_search=types.GoogleSearch())]

    how = How(gate.url, Path(), ungoverned=True)
    made = LlmAgent(name="searcher", model=Scripted(), before_model_callback=bring)
    governed(made, gate, ungoverned=["google_search"] if ungoverned else [])
    asyncio.run(_run(_runner(how, made), types.Part(text="search")))


def _late(gate: Gate, ungoverned: list[str]) -> None:
    """A tool that is added to an agent after it was governed."""
    how = How(gate.url, Path(), ungoverned=True)
    made = governed(agent(how), gate, ungoverned=ungoverned)
    late = FunctionTool(how.pay)
    late.name = "web_search"
    made.tools.append(late)
    asyncio.run(_run(_runner(how, made), types.Part(text="search")))


UNSEEN = (_hosted, _code, _brought, _late)


def two_lines(program: str, how: How) -> None:
    """Run the program of two lines."""
    how.ungoverned = True
    room: dict[str, Any] = {"made": agent(how, [{"amount": 5}])}
    exec(program, room)
    asyncio.run(_run(_runner(how, room["agent"]), types.Part(text="pay")))
    assert how.ran[-1] == PAY


class Tools(BaseToolset):
    """A set of tools with a prefix."""

    def __init__(self, how: How) -> None:
        super().__init__(tool_name_prefix="set")
        self.how = how

    async def get_tools(self, readonly_context: Any = None) -> list[Any]:
        """One tool."""
        tool = FunctionTool(self.how.pay)
        tool.name = "added"
        return [tool]


def added(how: How) -> str:
    """The words about a call of a tool of a set, which an agent makes that is a tool of another one."""
    model = Scripted(turns=[[PAY]], name="set_added")
    inner = LlmAgent(name="inner", model=model, tools=[Tools(how)])
    governed(LlmAgent(name="outer", model=Scripted(), tools=[AgentTool(inner)]), how.gate())
    return asyncio.run(_run(_runner(how, inner), types.Part(text="pay")))[0][0]
