"""Plays scripts without a runtime: judges each call, lets people approve the user's own, and makes permitted calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.dojo.asking import ToolError, World
from benchmarks.dojo.declared import Declared
from benchmarks.dojo.judging import Sitting
from benchmarks.dojo.playing import Played
from benchmarks.dojo.scripts import Move
from policy.model import Ruling


@dataclass(frozen=True)
class Quick:
    """A player that asks the policies of ``declared`` directly."""

    declared: Declared

    def __call__(self, world: World, suite: str, requested: str, moves: Sequence[Move]) -> Played:
        """Play a script in a world."""
        sitting, played = Sitting(self.declared, suite, requested), Played()
        wanted = Counter(move.call.digest for move in moves if not move.attack)
        happened: Counter[str] = Counter()
        for move in moves:
            call, digest = move.call, move.call.digest
            outcome = sitting.judge(call).outcome
            approved = happened[digest] < wanted[digest]
            if outcome is Ruling.NEEDS_APPROVAL:
                sitting.asked()
                played.questions += not move.attack
                played.foreign_questions += move.attack
            elif outcome is Ruling.DENY:
                played.denied += not move.attack
            if outcome is Ruling.DENY or (outcome is Ruling.NEEDS_APPROVAL and not approved):
                sitting.refused()
                continue
            try:
                result = world.call(call)
            except ToolError:
                continue
            sitting.done(call, result)
            happened[digest] += 1
            if self.declared.operation(suite, call.tool).has_effect and not approved:
                (played.repeated if digest in wanted else played.slipped).append(call)
        return played
