"""The origins of one action's arguments, as facts for policies and as recorded in the book. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field, to_builtins

from core.canonical import JsonObject
from core.origins.ingredients import Origins
from policy.facts import ORIGIN

KEPT = "origins"


class Trace(Struct, frozen=True):
    """The origins of an action's arguments, as facts for policies and as recorded in the book.

    For an agent's call, ``read`` are the operations whose results its model has seen.
    """

    facts: Mapping[str, list[list[str]] | list[str]]
    recorded: JsonObject = field(name="told")
    of_agent: bool = False
    read: tuple[str, ...] = ()

    def kept(self) -> JsonObject:
        """The trace as stored with a question, because the agent's messages are not at hand later."""
        return {KEPT: to_builtins(self)}

    @classmethod
    def of_kept(cls, action: Mapping[str, Any]) -> Trace | None:
        """The trace that was stored with the action of a question; None if there is none."""
        stored = action.get(KEPT)
        return (
            None if stored is None else cls(stored["facts"], stored["told"], stored["of_agent"], tuple(stored["read"]))
        )

    def of(self, name: str) -> Origins:
        """The origins of one argument; none if the argument is absent or not known."""
        found: Origins = [[*one] for one in self.facts.get(f"{ORIGIN}{name}", [])]
        return found
