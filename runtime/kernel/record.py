"""What is recorded of a run, as replay reads it: the audit's order, and the values that are stored beside it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from core.canonical import Json, JsonObject
from evidence.chain import Actor, EventType
from runtime.kernel.commit import MutationRow, StepRow
from runtime.kernel.graph import Graph, LeafNode
from runtime.kernel.states import WaitKind
from runtime.kernel.transition import Transition
from runtime.kernel.view import RunView

# Evaluates what a step with this output writes, and succeeds; the last argument is what ended its wait.
Settle: TypeAlias = "Callable[[Transition, StepRow, LeafNode, Json, JsonObject | None], None]"


class Divergence(Exception):
    """What the record says does not follow from what it said before; ``where`` names the fact."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the run's audit."""

    seq: int
    type: EventType
    actor: Actor
    step: str | None
    data: Mapping[str, Any]

    def __str__(self) -> str:
        return f"line {self.seq} ({self.type}{f' of {self.step}' if self.step else ''})"


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored of a step besides the audit. A step that was ever about to act has an idempotency key."""

    output: Json
    last_error: JsonObject | None
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """What is stored of a wait: its kind, and what it ended with."""

    kind: WaitKind
    result: Mapping[str, Any] | None


@dataclass(frozen=True)
class Record:
    """Everything that is recorded of a run. ``first`` is the run as it was before its first move.

    ``graphs`` are the graph as published and after each extension, ``mutations`` those extensions; ``settle`` evaluates
    what a step writes and succeeds, or fails where an expression does.
    """

    first: RunView
    graphs: Sequence[Graph]
    facts: Iterable[Fact]
    steps: Mapping[str, Known]
    waits: Mapping[UUID, Ended]
    mutations: Sequence[MutationRow]
    settle: Settle


@dataclass(frozen=True, slots=True)
class Derived:
    """A checkpoint as it was derived again; ``recorded`` is its blinded digest as the audit has it."""

    number: int
    state: JsonObject
    digest: str
    recorded: str
