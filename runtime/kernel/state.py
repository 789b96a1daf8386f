"""What a checkpoint holds: business state and the frontier of the graph, as plain JSON (P-3, X-5, X-15).

Outputs and statuses of a loop's iteration are dropped when the iteration is over, so the state grows with what is
active, not with what is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.canonical import Json, JsonObject

SUCCEEDED = "succeeded"
SKIPPED = "skipped"


@dataclass(slots=True)
class Loop:
    """One active ``foreach``: the item's name, the items, the next index to start, and the indexes under way."""

    name: str
    items: list[Json]
    next: int
    active: list[int]


@dataclass(slots=True)
class State:
    """The state of one run. Mutable only inside the kernel, on a copy of its own.

    ``channels`` is the author's business state. ``outputs`` and ``status`` are keyed by step key, for scopes that are
    still active; ``branches`` remembers each condition's outcome; ``open`` are the leaves of the current super-step,
    ``parked`` maps those that wait to ``<kind>:<wait id>``.
    """

    channels: JsonObject
    outputs: JsonObject = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)
    branches: dict[str, bool] = field(default_factory=dict)
    loops: dict[str, Loop] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    parked: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """The checkpoint's content; empty parts are left out."""
        loops: JsonObject = {
            key: {"name": loop.name, "items": loop.items, "next": loop.next, "active": list(loop.active)}
            for key, loop in self.loops.items()
        }
        whole: JsonObject = {
            "channels": self.channels,
            "outputs": self.outputs,
            "status": dict(self.status),
            "branches": dict(self.branches),
            "loops": loops,
            "open": list(self.open),
            "parked": dict(self.parked),
        }
        return {name: value for name, value in whole.items() if value or name == "channels"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> State:
        """Read what ``to_json`` wrote. The result shares nothing with ``value`` that the kernel changes in place."""
        return cls(
            channels=dict(value["channels"]),
            outputs=dict(value.get("outputs", {})),
            status=dict(value.get("status", {})),
            branches=dict(value.get("branches", {})),
            loops={
                key: Loop(loop["name"], loop["items"], loop["next"], list(loop["active"]))
                for key, loop in value.get("loops", {}).items()
            },
            open=list(value.get("open", [])),
            parked=dict(value.get("parked", {})),
        )

    def copy(self) -> State:
        """An independent copy, as deep as the kernel's changes go."""
        return State.from_json(self.to_json())
