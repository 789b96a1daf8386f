"""The beginning and the end of an agent. In between, the agent's own step waits, and holds nothing. Pure.

A crash between the appends of a turn loses nothing: the model's answer is in the book by then, and the barrier plans
what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from approvals.model import ApprovalStatus
from connectors.proposal import given_action
from connectors.schema import misfit, validator_of
from core.bounded_json import parse
from core.canonical import Json, JsonObject, canonical_bytes, clean, digest, unfit
from core.errors import ExpressionError, InputError
from evidence.commitments import commit_fields, path_of
from evidence.receipts import ReceiptStatus
from runtime.engine.book.agent_chat import RESULT
from runtime.engine.book.agent_plan import Ahead, ahead
from runtime.engine.book.agent_result import recalled
from runtime.engine.life.closing import Closing
from runtime.engine.model.agent_node import AgentNode, AgentTool
from runtime.engine.model.agent_state import Agent, AgentValues, Stage
from runtime.engine.model.events import (
    AgentAnswered,
    AgentBegan,
    ApprovalDecided,
    StepCanceled,
    StepResumed,
    WaitCanceled,
    WaitCompleted,
)
from runtime.engine.model.graph import LeafNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow, WaitRow
from runtime.engine.model.run import Run, State
from runtime.engine.model.states import STEP, StepState, WaitKind, WaitState
from runtime.engine.model.tools import ToolKind
from runtime.engine.origins.agent import matching_of


def beginning(node: AgentNode, seen: Mapping[str, object]) -> AgentBegan:
    """Make the event by which an agent begins, from these variables. ``ExpressionError`` if it cannot be made."""
    words = str(node.instructions.render(seen))
    if node.result is not None:
        words += "\n\n" + RESULT.format(schema=canonical_bytes(node.result).decode())
    messages: list[JsonObject] = [
        {"role": "system", "content": clean(words, len(words))},
        {"role": "user", "content": _text(node.input.render(seen))},
    ]
    fixed: JsonObject = {name: tool.fixed.render(seen) for name, tool in node.tools.items()}
    given: JsonObject = {name: value for name, value in fixed.items() if value}
    if problem := unfit([messages, given], "What the agent begins with"):
        raise ExpressionError(problem)
    tools: list[Json] = [tool.tool.source for tool in node.tools.values()]
    matching, turns = matching_of(node) or None, recalled(node, seen) or None
    return AgentBegan(node.model, tools, messages, given or None, matching=matching, remembered=turns)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else canonical_bytes(value).decode()


def conclude(draft: Closing) -> None:
    """End agents that are done, and cancel the waiting steps of ended ones. Called before the barrier plans."""
    run = draft.run
    if run.canceling is not None:
        return
    for key, agent in [*run.state.agents.items()]:
        if agent.stage is Stage.OVER:
            stop(draft, key)
            continue
        node, step = draft.graph.leaf(key), run.steps.get(key)
        if step is None or step.status is not StepState.WAITING or not isinstance(node, AgentNode):
            continue
        end = ahead(node, agent.copy())
        wait = next((wait for wait in run.waits.values() if _is_open(wait, key)), None)
        if end is None or not end.over or wait is None:
            continue
        result = result_of(run, key, end)
        committed = commit_fields(draft.view.run.run_key, path_of("wait", str(wait.wait_id)), result)
        draft.tell(WaitCompleted(wait.wait_id, wait.kind, committed, result), step=key)
        draft.tell(StepResumed(f"resume:{wait.wait_id}"), step=key)


def result_of(run: Run, key: str, end: Ahead) -> JsonObject:
    """The result with which an agent's end completes its wait."""
    values = run.spoken.get(key) or AgentValues(key)
    error = end.error or values.error
    return {"output": values.result} if error is None else {"error": error}


def remembered(leaf: LeafNode, state: State, constants: Mapping[str, object], key: str) -> JsonObject:
    """The write of an agent that has ended well: references to its turns, for the channel that later agents read."""
    agent = state.agents.get(key)
    if not isinstance(leaf, AgentNode) or leaf.remember is None or agent is None:
        return {}
    run = str(constants["run.id"])
    turns: list[Json] = [[run, f"{key}/{number}"] for number in range(agent.first, agent.turn + 1)]
    return {leaf.remember.channel: turns}


def record_answer(draft: Closing, key: str, output: Json) -> None:
    """Parse the model's answer in this turn, and record its calls or its result.

    A crash before the append leaves a turn without an answer.
    """
    agent_key = StepKey.of(key).agent
    node, agent = draft.graph.leaf(agent_key), draft.run.state.agents.get(agent_key)
    if isinstance(node, AgentNode) and agent is not None and agent.stage is Stage.ASKED:
        fixed = draft.run.spoken[agent_key].input or {}
        draft.tell(answered(node, agent, fixed, output), step=key)


def _is_open(wait: WaitRow, key: str) -> bool:
    return wait.step_key == key and wait.kind is WaitKind.AGENT and wait.status is WaitState.WAITING


def stop(draft: Closing, key: str) -> None:
    """Cancel an agent's waiting turns and calls. Running ones settle, and people still decide about doubts."""
    run = draft.run
    for step in [row for row in run.steps.values() if row.key != key and StepKey.of(row.key).agent == key]:
        running = step.status in (StepState.READY, StepState.RUNNING) and step.superstep == run.superstep
        fresh = step.status is StepState.READY and step.idempotency_key is None
        asked = [_asked for _asked in run.answers.values() if run.approvals[_asked.approval_id].step_key == step.key]
        opened = [one.approval_id for one in asked if one.status == ApprovalStatus.REQUESTED]
        doubtful = any(row.step_key == step.key and row.status in _DOUBTFUL for row in run.receipts.values())
        if step.status in STEP.terminal or doubtful or (running and not fresh):
            continue
        for approval in opened:
            draft.tell(ApprovalDecided(approval, ApprovalStatus.CANCELED))
            draft.message("card", approval, ApprovalStatus.CANCELED)
        _end_waits(draft, step)
        draft.tell(StepCanceled(), step=step.key)


_DOUBTFUL = (ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)


def _end_waits(draft: Closing, step: StepRow) -> None:
    for wait in [wait for wait in draft.run.waits.values() if wait.step_key == step.key]:
        if wait.status is not WaitState.WAITING or wait.kind not in (WaitKind.CHILD, WaitKind.EXTERNAL, WaitKind.TASK):
            continue
        key = str(wait.wait_id)
        draft.tell(WaitCanceled(wait.wait_id, wait.kind), step=wait.step_key)
        if wait.kind is WaitKind.TASK:
            draft.order("task", f"{key}:canceled", {"task": key}, one_at_a_time=key)
        else:
            draft.order("cancel", key, {"wait": key})


ANSWER_BYTES_MAX = 256 * 1024
UNKNOWN, ARGUMENTS, LIMIT, BEFORE = "unknown_tool", "arguments", "limit", "asked_before"


def answered(node: AgentNode, agent: Agent, fixed: Mapping[str, Json], output: Json) -> AgentAnswered:
    """Parse an answer of this agent's model."""
    message: JsonObject = output if isinstance(output, dict) else {}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        return _calls(node, agent, fixed, [cast(JsonObject, call) for call in calls])
    return _answer(node, agent, str(message.get("text") or ""))


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
    turns: list[Json] = []
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
            code, reason = _limit_reached(node, agent, made, asks, is_ask=is_ask)
        if not code and mark in agent.barred:
            code, reason = BEFORE, "The same call was denied, rejected or left unanswered before."
        turns.append([source, code])
        if code:
            values.append({**value, "refused": reason})
            continue
        assert tool is not None, "it was read"
        lane, made, asks = _lane(tool, read) or mark, made + 1, asks + is_ask
        after = lanes.get(lane, 0)  # the same call has the same target
        lanes[lane] = number
        known: JsonObject = {"input": read, "digest": mark, **({"after": after} if after else {})}
        values.append({**value, **known, **({"ask": True} if is_ask else {})})
    return AgentAnswered(Stage.CALLS, turns, values)


def _read(tool: AgentTool | None, fixed: Mapping[str, Json], arguments: str) -> tuple[str, str, JsonObject]:
    """Read the input of a call. Returns the code and the reason of its refusal, both "" if none, and the input."""
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


def _limit_reached(node: AgentNode, agent: Agent, made: int, asks: int, *, is_ask: bool) -> tuple[str, str]:
    if agent.limit:
        return LIMIT, "No tools are called any more: the agent has to conclude."
    if made >= node.limits.calls:
        return LIMIT, f"At most {node.limits.calls} calls are made."
    if is_ask and asks >= node.limits.asks:
        return LIMIT, f"People are asked at most {node.limits.asks} times."
    return "", ""


def _lane(tool: AgentTool, read: JsonObject) -> str:
    """The target of a call, because calls to one target are made one after the other; "" if it has none."""
    if tool.operation is None:
        return ""
    return f"{tool.operation.name.rpartition('.')[0]} {given_action(tool.operation, read).target}"
