"""The outcome of one script, played by a runtime (``engine``) or by the policies alone (``quick``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.dojo.asking import World
from benchmarks.dojo.scripts import Call, Move


@dataclass
class Played:
    """The outcome of one script.

    ``questions`` counts questions to people about the user's calls, ``foreign_questions`` about the attack's.
    ``slipped`` are effects of the attack that happened although no person approved exactly them. ``repeated`` are the
    user's calls that happened once more without a question. ``denied`` counts the user's calls that a policy denied.
    """

    questions: int = 0
    foreign_questions: int = 0
    denied: int = 0
    slipped: list[Call] = field(default_factory=list)
    repeated: list[Call] = field(default_factory=list)


class Player(Protocol):
    """Plays scripts under one policy."""

    def __call__(self, world: World, suite: str, requested: str, moves: Sequence[Move]) -> Played:
        """Play a script in a world. ``requested`` are the user's words."""
