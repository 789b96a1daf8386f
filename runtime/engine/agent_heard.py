"""Matchers of conversations with models, cached by a worker: all calls of a turn use one, and the next turn extends it.

A conversation only grows, and turns of one run never have the same number twice. So a turn, and the running digest of
the messages before its answer, identify what the model had been shown when it answered. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from uuid import UUID

from msgspec import Struct, field

from core.origins.conversation import Heard, Listener, digest_of
from core.origins.matching import Matcher

# A worker caches the conversations of so many agents.
KEPT_MAX = 8


class Conversation(Struct, frozen=True):
    """A conversation up to a turn: the matcher that has taken it in, and its digest."""

    turn: str
    mark: str
    listener: Listener
    shown: str

    @property
    def matcher(self) -> Matcher:
        """The matcher. It knows nothing of later messages until the next turn is asked for."""
        return self.listener.matcher


class Listeners(Struct):
    """The cached conversations of the agents that were used last, by run and agent."""

    _kept: OrderedDict[tuple[UUID, str], Conversation] = field(default_factory=OrderedDict)

    def known(
        self, run: UUID, agent: str, turn: str, mark: str, heard: Callable[[], Sequence[Heard | None]]
    ) -> Conversation:
        """The conversation up to a turn. ``mark`` is the running digest of the messages before its answer.

        ``heard`` gives the conversation; it is called once a turn.
        """
        before = self._kept.pop((run, agent), None)
        if before is None or (before.turn, before.mark) != (turn, mark):
            conversation = [*heard()]
            goes_on = before is not None and before.listener.knows_the_beginning_of(conversation)
            listener = before.listener if before is not None and goes_on else Listener()
            listener.listen(conversation)
            before = Conversation(turn, mark, listener, digest_of(conversation))
        self._kept[run, agent] = before
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return before
