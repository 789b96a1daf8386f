"""The next thing that an agent does: turns and calls that begin, or its end. It reads counters, never values. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from msgspec import Struct

from core.canonical import JsonObject, digest
from runtime.engine.model.agent_node import AgentNode, Limits
from runtime.engine.model.agent_state import Agent, Called, Came, Stage
from runtime.engine.model.errors import ErrorClass, StepError

# So often the model is told that its answer does not fit the result that is wanted.
REPAIRS_MAX = 2
ASKED_BEFORE = "The same call was denied, rejected or left unanswered before, so nobody is asked again."


class Ahead(Struct, frozen=True):
    """The next thing of an agent whose turn is over: its end, with an error if it failed, or another turn.

    ``limit`` is the limit that makes that turn the concluding one.
    """

    over: bool
    error: JsonObject | None = None
    limit: str = ""


def reached(limits: Limits, agent: Agent) -> str:
    """The limit that an agent has come to; "" for none."""
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
    """Say what comes next. None while the agent's turn is under way, or if the agent is over already."""
    if agent.stage is Stage.ANSWER or agent.stage is Stage.FAILED:
        return Ahead(True)
    if agent.stage is Stage.BEGUN:
        return Ahead(False)
    came = {call.came for call in agent.calls.values()}
    # People may still be asked about other calls of this turn. The agent does not wait for their answers.
    if node.fails_if_denied and agent.stage is Stage.CALLS and came & {Came.DENIED, Came.REJECTED}:
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
    """The calls of the turn. Those that repeat what was denied meanwhile are refused first."""
    for call in agent.calls.values():
        first = agent.calls.get(call.after)
        if not call.came and (first is None or first.over) and call.digest in agent.barred:
            call.came, call.said = Came.REFUSED, digest(ASKED_BEFORE)
            agent.refusals += 1
    return [*agent.calls.values()]


def due(node: AgentNode, key: str, agent: Agent) -> Iterator[str]:
    """Begin the calls that can begin, or the next turn, and give the keys of these steps."""
    if agent.stage is Stage.CALLS:
        settled(agent)
        for number, call in agent.calls.items():
            first = agent.calls.get(call.after)
            if not call.came and (first is None or first.over):
                call.came = Came.OPEN
                yield f"{key}/{agent.turn}/{number}"
    after = ahead(node, agent)
    if after is None or after.over:
        return
    agent.digest = heard(agent)
    agent.turn, agent.calls, agent.limit, agent.stage = agent.turn + 1, {}, after.limit, Stage.ASKED
    yield f"{key}/{agent.turn}"


def heard(agent: Agent) -> str:
    """The digest of all messages, once the results of a turn are among them."""
    said = [agent.calls[number].said for number in sorted(agent.calls)]
    return digest([agent.digest, *said]) if said else agent.digest
