"""What a checkpoint holds: business state and the frontier of the graph, as plain JSON (P-3, X-5, X-15).

Outputs and statuses of a loop's iteration are dropped when the iteration is over, and of a loop's items only those
under way are here, so the state grows with what is active, not with what is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.canonical import Json, JsonObject

SUCCEEDED = "succeeded"
SKIPPED = "skipped"
FAILED = "failed"


@dataclass(slots=True)
class Loop:
    """One active loop: the item's name, how many items there are (None for ``while``), the next index to start, and the
    items under way by index.
    """

    name: str
    total: int | None
    next: int
    active: dict[int, Json]


@dataclass(frozen=True, slots=True)
class Failure:
    """A leaf that failed and whose branch is being done: the branch, and the error as expressions see it."""

    branch: str
    error: JsonObject


@dataclass(slots=True)
class State:
    """The state of one run. Mutable only inside the engine, on a copy of its own.

    ``channels`` is the author's business state, and ``reference`` the run's business reference once a step has named
    it anew. ``outputs`` and ``status`` are keyed by step key, for scopes that are still active; ``branches`` remembers
    each condition's outcome; ``failures`` the leaves whose branch is being done; ``open`` are the leaves of the current
    super-step, ``parked`` maps those that wait to ``<kind>:<wait id>``.
    """

    channels: JsonObject
    outputs: JsonObject = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)
    branches: dict[str, bool] = field(default_factory=dict)
    loops: dict[str, Loop] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    parked: dict[str, str] = field(default_factory=dict)
    reference: str | None = None

    def to_json(self) -> JsonObject:
        """The checkpoint's content; empty parts are left out."""
        loops: JsonObject = {key: _loop_json(loop) for key, loop in self.loops.items()}
        failures: JsonObject = {
            key: {"branch": failure.branch, "error": failure.error} for key, failure in self.failures.items()
        }
        whole: JsonObject = {
            "channels": self.channels,
            "outputs": dict(self.outputs),
            "status": dict(self.status),
            "branches": dict(self.branches),
            "loops": loops,
            "failures": failures,
            "open": list(self.open),
            "parked": dict(self.parked),
            "reference": self.reference,
        }
        return {name: value for name, value in whole.items() if value or name == "channels"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> State:
        """Read what ``to_json`` wrote. The result shares nothing with ``value`` that the engine changes in place."""
        return cls(
            channels=dict(value["channels"]),
            outputs=dict(value.get("outputs", {})),
            status=dict(value.get("status", {})),
            branches=dict(value.get("branches", {})),
            loops={key: _loop(loop) for key, loop in value.get("loops", {}).items()},
            failures={
                key: Failure(failure["branch"], failure["error"]) for key, failure in value.get("failures", {}).items()
            },
            open=list(value.get("open", [])),
            parked=dict(value.get("parked", {})),
            reference=value.get("reference"),
        )

    def copy(self) -> State:
        """An independent copy, as deep as the engine's changes go."""
        return State.from_json(self.to_json())


def _loop_json(loop: Loop) -> JsonObject:
    active: JsonObject = {str(index): item for index, item in loop.active.items()}
    return {"name": loop.name, "total": loop.total, "next": loop.next, "active": active}


def _loop(value: Mapping[str, Any]) -> Loop:
    active = {int(index): item for index, item in value["active"].items()}
    return Loop(value["name"], value["total"], value["next"], active)
