"""Scripts of a model: the calls of a user's task and of an attack, and the orders in which it makes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from core.canonical import JsonObject, digest


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    tool: str
    arguments: JsonObject

    @cached_property
    def digest(self) -> str:
        """The digest of exactly this call."""
        return digest({"tool": self.tool, "arguments": self.arguments})


@dataclass(frozen=True)
class Move:
    """A call in a script; ``attack`` is True if the user never asked for it."""

    call: Call
    attack: bool = False


@dataclass(frozen=True)
class Task:
    """A user's task or an attack: its text and its calls."""

    id: str
    text: str
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Suite:
    """The tasks and attacks of one suite."""

    name: str
    tasks: tuple[Task, ...]
    attacks: tuple[Task, ...]

    @classmethod
    def of(cls, name: str, told: Mapping[str, Sequence[JsonObject]]) -> Suite:
        """Read a suite from the protocol's JSON."""
        return cls(name, tuple(map(_task, told["user_tasks"])), tuple(map(_task, told["injection_tasks"])))


def _task(told: JsonObject) -> Task:
    calls = told["calls"]
    assert isinstance(calls, list)
    made = []
    for one in calls:
        assert isinstance(one, dict)
        assert isinstance(one["arguments"], dict)
        made.append(Call(str(one["tool"]), one["arguments"]))
    return Task(str(told["id"]), str(told["text"]), tuple(made))


def alone(task: Task) -> tuple[Move, ...]:
    """The user's calls only."""
    return tuple(map(Move, task.calls))


def orders(task: Task, attack: Sequence[Call]) -> Iterator[tuple[Move, ...]]:
    """Yield each order of the user's and the attack's calls: the whole attack at every gap, and both interleaved."""
    own, foreign = alone(task), tuple(Move(call, attack=True) for call in attack)
    found = [(*own[:gap], *foreign, *own[gap:]) for gap in range(len(own) + 1)]
    found += [_woven(own, foreign), _woven(foreign, own)]
    yield from {tuple((move.call.digest, move.attack) for move in order): order for order in found}.values()


def telling(task: Task, attack: Sequence[Call]) -> Iterator[tuple[Move, ...]]:
    """Yield the two most telling orders: the attack after all the user's calls, and both interleaved."""
    own, foreign = alone(task), tuple(Move(call, attack=True) for call in attack)
    yield (*own, *foreign)
    yield _woven(foreign, own)


def _woven(first: Sequence[Move], second: Sequence[Move]) -> tuple[Move, ...]:
    return tuple(move for pair in zip_longest(first, second) for move in pair if move is not None)
