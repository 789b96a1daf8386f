"""Decides what an agent does next: begin turns or calls, or end. It reads counters, never values. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from msgspec import Struct

from core.canonical import JsonObject, digest
from runtime.engine.model.agent_node import AgentNode, Limits
from runtime.engine.model.agent_state import Agent, Called, CallResult, Stage
from runtime.engine.model.errors import ErrorClass, StepError

# The number of times that the model is told that its answer does not fit the wanted result.
REPAIRS_MAX = 2
ASKED_BEFORE = "The same call was denied, rejected or left unanswered before, so nobody is asked again."


class Ahead(Struct, frozen=True):
    """The next move of an agent after a turn: it ends (``over``, with an error if it failed), or takes another turn.

    ``limit`` is the limit that makes the next turn the last one.
    """

    over: bool
    error: JsonObject | None = None
    limit: str = ""


def reached(limits: Limits, agent: Agent) -> str:
    """The name of the limit that an agent has reached; "" for none."""
    turns = agent.turn - agent.first + 1
    found = {
        "refusals": agent.refusals >= limits.refusals,
        "turns": turns >= limits.turns,
        "calls": agent.made >= limits.calls,
        "tokens": agent.tokens >= limits.tokens,
        "cost": limits.cost is not None and (agent.unpriced or Decimal(agent.cost) >= Decimal(limits.cost)),
    }
    return next((name for name, is_reached in found.items() if is_reached), "")


def ahead(node: AgentNode, agent: Agent) -> Ahead | None:
    """Decide what the agent does next. None while its turn is under way, and once the agent is over."""
    if agent.stage is Stage.ANSWER or agent.stage is Stage.FAILED:
        return Ahead(True)
    if agent.stage is Stage.BEGUN:
        return Ahead(False)
    outcomes = {call.came for call in agent.calls.values()}
    # People may still be asked about other calls of this turn. The agent does not wait for their answers.
    if node.fails_if_denied and agent.stage is Stage.CALLS and outcomes & {CallResult.DENIED, CallResult.REJECTED}:
        words = "A call of the agent was denied or rejected, and `on_denied` says that it fails then."
        return Ahead(True, StepError(ErrorClass.AUTHORIZATION, "agent_denied", words).to_json())
    waits = agent.stage is Stage.CALLS and not all(call.over for call in settled(agent))
    if waits or agent.stage in (Stage.ASKED, Stage.OVER):
        return None
    if agent.stage is Stage.MISFIT and agent.repairs > REPAIRS_MAX:
        words = f"The model gave no result that fits, although it was told what is wrong {REPAIRS_MAX} times."
        return Ahead(True, StepError(ErrorClass.TRANSPORT, "agent_result", words).to_json())
    if agent.limit and agent.stage is Stage.MISFIT:
        return Ahead(False, limit=agent.limit)
    limit = reached(node.limits, agent)
    if agent.limit or (limit and node.fails_at_limit):
        words = f"The agent has come to its limit of {agent.limit or limit}"
        words += ", and did not conclude when it was told to." if agent.limit else "."
        return Ahead(True, StepError(ErrorClass.DEFINITION, "agent_limit", words).to_json())
    return Ahead(False, limit=limit)


def settled(agent: Agent) -> list[Called]:
    """Refuse the calls of the turn that repeat a call denied meanwhile; return all calls of the turn."""
    for call in agent.calls.values():
        first = agent.calls.get(call.after)
        if not call.came and (first is None or first.over) and call.digest in agent.barred:
            call.came, call.said = CallResult.REFUSED, digest(ASKED_BEFORE)
            agent.refusals += 1
    return [*agent.calls.values()]


def due(node: AgentNode, key: str, agent: Agent) -> Iterator[str]:
    """Begin the calls that can begin, or the next turn, and yield the keys of these steps."""
    if agent.stage is Stage.CALLS:
        settled(agent)
        for number, call in agent.calls.items():
            first = agent.calls.get(call.after)
            if not call.came and (first is None or first.over):
                call.came = CallResult.OPEN
                yield f"{key}/{agent.turn}/{number}"
    after = ahead(node, agent)
    if after is None or after.over:
        return
    agent.digest = heard(agent)
    agent.turn, agent.calls, agent.limit, agent.stage = agent.turn + 1, {}, after.limit, Stage.ASKED
    yield f"{key}/{agent.turn}"


def heard(agent: Agent) -> str:
    """The digest of all messages, including the results of the current turn."""
    results = [agent.calls[number].said for number in sorted(agent.calls)]
    return digest([agent.digest, *results]) if results else agent.digest
