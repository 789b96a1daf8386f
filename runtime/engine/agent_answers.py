"""Taking a model's answer apart: calls that become steps, calls that are refused, or the agent's result. Pure.

Whatever the model wrote is data. Its arguments are read by the tool's schema before anything is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from connectors.proposal import given_action
from connectors.schema import misfit, validator_of
from core.bounded_json import parse
from core.canonical import Json, JsonObject, digest, unfit
from core.errors import InputError
from runtime.engine.agent_node import AgentNode, AgentTool
from runtime.engine.agent_state import Agent, Stage
from runtime.engine.events import AgentAnswered
from runtime.engine.tools import ToolKind

ANSWER_BYTES_MAX = 256 * 1024
UNKNOWN, ARGUMENTS, LIMIT, BEFORE = "unknown_tool", "arguments", "limit", "asked_before"


def answered(node: AgentNode, agent: Agent, fixed: Mapping[str, Json], output: Json) -> AgentAnswered:
    """Take an answer of this agent apart."""
    said: JsonObject = output if isinstance(output, dict) else {}
    calls = said.get("tool_calls")
    if isinstance(calls, list) and calls:
        return _calls(node, agent, fixed, [cast(JsonObject, call) for call in calls])
    return _answer(node, agent, str(said.get("text") or ""))


def _answer(node: AgentNode, agent: Agent, text: str) -> AgentAnswered:
    if node.result is None:
        result: JsonObject = {"text": text}
        return AgentAnswered(Stage.ANSWER, [], result={**result, "limit": agent.limit} if agent.limit else result)
    try:
        value = parse(_bare(text).encode(errors="replace"), bytes_max=ANSWER_BYTES_MAX, where="the answer")
        validator = validator_of(node.result)
        if not validator.is_valid(value):
            raise misfit(validator, value, where="the answer")
        if problem := unfit(value, "The answer"):
            raise InputError(problem)
    except InputError as error:
        return AgentAnswered(Stage.MISFIT, [], problem=str(error))
    return AgentAnswered(Stage.ANSWER, [], result=value)


def _bare(text: str) -> str:
    """The text without the fence that models put around JSON."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```") and "\n" in bare:
        return bare[bare.index("\n") : -3]
    return bare


def _calls(node: AgentNode, agent: Agent, fixed: Mapping[str, Json], calls: list[JsonObject]) -> AgentAnswered:
    told: list[Json] = []
    values: list[JsonObject] = []
    lanes: dict[str, int] = {}
    made, asks = agent.made, agent.asks
    for number, call in enumerate(calls, start=1):
        function = cast(JsonObject, call["function"])
        tool = node.tools.get(str(function["name"]))
        is_ask = tool is not None and tool.tool.kind is ToolKind.PEOPLE
        source = "?" if tool is None else tool.tool.source
        value: JsonObject = {"id": call["id"], "tool": str(function["name"]), "source": source}
        code, reason, read = _read(tool, fixed, str(function["arguments"]))
        mark = digest([source, value["tool"], read])
        if not code:
            code, reason = _over(node, agent, made, asks, is_ask=is_ask)
        if not code and mark in agent.barred:
            code, reason = BEFORE, "The same call was denied, rejected or left unanswered before."
        told.append([source, code])
        if code:
            values.append({**value, "refused": reason})
            continue
        assert tool is not None, "it was read"
        lane, made, asks = _lane(tool, read) or mark, made + 1, asks + is_ask
        after = lanes.get(lane, 0)  # the same call has the same target
        lanes[lane] = number
        known: JsonObject = {"input": read, "digest": mark, **({"after": after} if after else {})}
        values.append({**value, **known, **({"ask": True} if is_ask else {})})
    return AgentAnswered(Stage.CALLS, told, values)


def _read(tool: AgentTool | None, fixed: Mapping[str, Json], arguments: str) -> tuple[str, str, JsonObject]:
    """The input of a call; or the code and the words with which it is refused."""
    if tool is None:
        return UNKNOWN, "There is no such tool.", {}
    try:
        given = fixed.get(tool.tool.name)
        read = tool.tool.read(arguments, given if isinstance(given, dict) else {})
        if problem := unfit(read, "The arguments"):
            raise InputError(problem)
        if tool.operation is not None:
            given_action(tool.operation, read)
    except InputError as error:
        return ARGUMENTS, str(error), {}
    return "", "", read


def _over(node: AgentNode, agent: Agent, made: int, asks: int, *, is_ask: bool) -> tuple[str, str]:
    if agent.limit:
        return LIMIT, "No tools are called any more: the agent has to conclude."
    if made >= node.limits.calls:
        return LIMIT, f"At most {node.limits.calls} calls are made."
    if is_ask and asks >= node.limits.asks:
        return LIMIT, f"People are asked at most {node.limits.asks} times."
    return "", ""


def _lane(tool: AgentTool, read: JsonObject) -> str:
    """The target whose calls are made one after the other; "" if the call has none."""
    if tool.operation is None:
        return ""
    return f"{tool.operation.name.rpartition('.')[0]} {given_action(tool.operation, read).target}"
