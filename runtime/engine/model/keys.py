"""The key of a step: the iterations around it, its node, and for a step of an agent its turn and call. Pure.

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
    ``own`` is the key without its iterations, which ``step.id`` shows. ``turn`` and ``call`` count from 1, and are 0 if
    there is none. ``agent`` is the key of the agent to which a turn or a call belongs, and for any other step its own
    key; ``in_turn`` is the key of the turn.
    """

    node: str
    scopes: tuple[str, ...]
    own: str
    agent: str
    turn: int
    call: int
    in_turn: str
    # True for a turn or a call of an agent.
    is_inner: bool
    is_turn: bool
    is_call: bool

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(text: str) -> StepKey:
        """Parse a key."""
        agent, _, inner = text.partition("/")
        *around, node = agent.split(".")
        scopes = ("", *(".".join(around[: depth + 1]) + "." for depth in range(len(around))))
        turn, call = (int(part or 0) for part in inner.partition("/")[::2])
        own = text[len(scopes[-1]) :]
        return StepKey(
            node, scopes, own, agent, turn, call, f"{agent}/{turn}", turn > 0, turn > 0 and not call, call > 0
        )
