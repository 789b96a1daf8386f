"""A state machine is a table. What the table lacks is illegal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from core.errors import ConsistencyError

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


@dataclass(frozen=True)
class Machine(Generic[State, Event]):
    """The states one kind of thing can be in, and the only moves between them."""

    name: str
    initial: frozenset[State]
    table: Mapping[tuple[State, Event], State]

    def next(self, state: State, event: Event) -> State:
        """Where ``event`` leads from ``state``; ``ConsistencyError`` if the table has no such row."""
        try:
            return self.table[(state, event)]
        except KeyError:
            raise ConsistencyError(f"a {self.name} that is {state} cannot {event}") from None

    def moves(self) -> frozenset[tuple[str, str]]:
        """Every legal (from, to) pair that changes state: what the database enforces."""
        return frozenset((str(a), str(b)) for (a, _), b in self.table.items() if a is not b)

    def terminal(self, state: State) -> bool:
        """Whether nothing leads out of ``state``."""
        return all(source is not state for source, _ in self.table)

    def mermaid(self) -> str:
        """The diagram of this table, for docs/."""
        lines = ["stateDiagram-v2", *(f"    [*] --> {state}" for state in sorted(self.initial))]
        lines += [f"    {a} --> {b}: {event}" for (a, event), b in sorted(self.table.items())]
        states = {state for state, _ in self.table} | set(self.table.values())
        lines += [f"    {state} --> [*]" for state in sorted(states) if self.terminal(state)]
        return "\n".join(lines) + "\n"
