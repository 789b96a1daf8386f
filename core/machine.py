"""State machines as tables. A move that the table lacks is illegal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Generic, TypeVar

from core.errors import ConsistencyError

State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class _Moves(dict[tuple[State, Event], State]):
    """The states after events: ``moves[state, event]``; ``ConsistencyError`` if the table has no such row."""

    def __init__(self, name: str, table: Mapping[tuple[State, Event], State]) -> None:
        super().__init__(table)
        self._name = name

    def __missing__(self, move: tuple[State, Event]) -> State:
        raise ConsistencyError(f"a {self._name} that is {move[0]} cannot {move[1]}")


@dataclass(frozen=True)
class Machine(Generic[State, Event]):
    """The states that one kind of thing can be in, and the only moves between them.

    ``ends`` are terminal states that a person can still reopen.
    """

    name: str
    initial: frozenset[State]
    table: Mapping[tuple[State, Event], State]
    ends: frozenset[State] = frozenset()

    @cached_property
    def next(self) -> _Moves[State, Event]:
        """The state after an event in a state: ``next[state, event]``."""
        return _Moves(self.name, self.table)

    @cached_property
    def terminal(self) -> frozenset[State]:
        """The states that have no move, or only moves by a person."""
        every = frozenset(state for first in self.initial for state in type(first))
        return (every - {state for state, _ in self.table}) | self.ends

    def moves(self) -> frozenset[tuple[str, str]]:
        """Every legal (from, to) pair that changes the state; the database enforces these."""
        return frozenset((str(a), str(b)) for (a, _), b in self.table.items() if a is not b)
