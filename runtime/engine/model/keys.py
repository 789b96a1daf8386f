"""The key of a step: the iterations around it, its node, and of an agent's step also its turn and its call. Pure.

``assign`` is a step of the outermost list, ``each[3].assign`` one of an iteration, ``triage/3`` the third turn of the
agent ``triage``, and ``triage/3/2`` the second call in that turn. Keys are texts in events and rows; this is the only
place that parses them.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct


class StepKey(Struct, frozen=True):
    """A parsed key. ``node`` is the id in the graph of the leaf, or of the agent to which a turn or a call belongs.

    ``scopes`` are the prefixes of the steps that it sees: "", then one for each iteration around, outermost first.
    ``turn`` and ``call`` count from 1, and are 0 where there is none.
    """

    text: str
    node: str
    scopes: tuple[str, ...]
    turn: int = 0
    call: int = 0

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(text: str) -> StepKey:
        """Parse a key."""
        agent, _, inner = text.partition("/")
        *around, node = agent.split(".")
        scopes = ["", *(".".join(around[: depth + 1]) + "." for depth in range(len(around)))]
        turn, _, call = inner.partition("/")
        return StepKey(text, node, tuple(scopes), int(turn or 0), int(call or 0))

    @property
    def own(self) -> str:
        """The key without its iterations: what ``step.id`` shows."""
        return self.text[len(self.scopes[-1]) :]

    @property
    def is_inner(self) -> bool:
        """True for a turn or a call of an agent, which is no step of the workflow's own."""
        return self.turn > 0

    @property
    def is_turn(self) -> bool:
        """True for a turn of an agent."""
        return self.turn > 0 and not self.call

    @property
    def is_call(self) -> bool:
        """True for a call of an agent."""
        return self.call > 0

    @property
    def agent(self) -> str:
        """The key of the agent to which a turn or a call belongs; the key itself of any other step."""
        return self.text.partition("/")[0]

    @property
    def in_turn(self) -> str:
        """The key of the turn of a call; of a turn, its own."""
        return f"{self.agent}/{self.turn}"
