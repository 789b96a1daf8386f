"""The state of an agent in a checkpoint: counters, the current turn, a digest. It holds no message and no value.

An agent is a step: its loop is unrolled into turns and calls, each a step with an id of its own. The agent's own step
waits, as for a child run; ``agent_loop`` begins and ends it. A turn is the step ``triage/3``, a judged call of the
model (``agent_turns``); ``agent_loop`` parses its answer. Each call is a step ``triage/3/2``, and ``agent_plan`` says
which is next. The messages for the model are put together from the book when it is asked (``agent_chat``).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from core.canonical import Json, JsonObject

# The variable that holds the input of a call, as the model gave it, or the input of a turn.
GIVEN = "agent.given"
# The name of the operation that calls a model, and the operation of an agent's own step.
CHAT = "model.chat.complete"
OPERATION = "agent"


class Stage(StrEnum):
    """The stage of an agent in its turn: what it is waiting for, or the kind of its last answer."""

    BEGUN = "begun"
    ASKED = "asked"
    CALLS = "calls"
    ANSWER = "answer"
    MISFIT = "misfit"
    FAILED = "failed"
    OVER = "over"


class CallResult(StrEnum):
    """The result of one call; each call gets exactly one. ``open`` means that its step has none yet."""

    OPEN = "open"
    DONE = "done"
    DENIED = "denied"
    REJECTED = "rejected"
    EXPIRED = "expired"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELED = "canceled"


class Called(Struct, omit_defaults=True):
    """One call of the current turn. ``after`` is the number of the call that must be over first, 0 for none.

    ``digest`` is that of the tool and the input, ``said`` that of the result as the model is told. ``came`` is the
    result (``CallResult``), "" before the call begins.
    """

    digest: str
    after: int = 0
    came: str = ""
    said: str = ""

    @property
    def over(self) -> bool:
        """True if the call has its result."""
        return self.came not in ("", CallResult.OPEN)


class Agent(Struct, omit_defaults=True):
    """An agent between its first turn and its end. ``first`` is the number of its first turn.

    ``barred`` are the digests of calls that were denied, rejected or left unanswered: they are not asked again.
    ``limit`` is the limit that makes it conclude, ``digest`` is that of all messages so far.
    """

    stage: Stage = Stage.BEGUN
    turn: int = 0
    first: int = 1
    calls: dict[int, Called] = field(default_factory=dict)
    made: int = 0
    asks: int = 0
    refusals: int = 0
    repairs: int = 0
    tokens: int = 0
    cost: str = "0"
    unpriced: bool = False
    barred: list[str] = field(default_factory=list)
    limit: str = ""
    digest: str = ""

    def copy(self) -> Agent:
        """An independent copy, as deep as the fold's changes go."""
        calls = {number: replace(call) for number, call in self.calls.items()}
        return replace(self, calls=calls, barred=[*self.barred])


class AgentValues(Struct, frozen=True):
    """The values of an agent's step, which the run holds beside its state while they are needed.

    For a call: its tool and its input. For an agent: the fixed inputs of its tools, by tool, and its result or error.
    """

    key: str
    tool: str = ""
    input: JsonObject | None = None
    result: Json = None
    error: JsonObject | None = None
