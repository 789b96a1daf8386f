"""Restate, governed by hand: the same load as ``restate``, with policy, audit, votes and a file from ``governed``.

It is the leanest that we could write: one journaled step an effect, and one awakeable, made anew only when it was used.
"""

# These imports exist only in this driver's own environment, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import restate

from benchmarks.peers.drivers.governed import (
    CONFIGURATION,
    REQUIREMENTS,
    Action,
    Governed,
    Head,
    RefusedError,
    governed,
)
from benchmarks.peers.drivers.harness import EFFECTS, Order, main, release_of
from benchmarks.peers.drivers.restate import Restate, serving


class RestateGoverned(Restate):
    """A driver's view of Restate with governance by hand."""

    configuration = f"Restate as it is alone; {CONFIGURATION}"

    def __init__(self, by_hand: Governed, server: str) -> None:
        super().__init__(server)
        self.release = f"{self.release}, {release_of(*REQUIREMENTS)}"
        self._by_hand = by_hand

    def handler(self, workflow: str) -> Any:
        async def handler(context: restate.Context, number: int) -> bool:
            question, decided = context.awakeable()
            head: Head | None = None

            async def effect(place: int, *, approved: bool) -> Head:
                action = Action(workflow, number, place)
                try:
                    return await self._by_hand.effect(action, head, self.effects.perform, question, approved=approved)
                except RefusedError as refused:
                    raise restate.TerminalError(str(refused)) from refused

            for place in range(EFFECTS[workflow]):
                head = await context.run_typed(f"effect-{place}", partial(effect, place, approved=False))
                if head["asked"]:
                    self.decisions[number].ask(question)
                    await decided
                    head = await context.run_typed(f"approved-{place}", partial(effect, place, approved=True))
                    question, decided = context.awakeable()
            await context.run_typed("close", partial(self._by_hand.close, f"{workflow}-{number}", head))
            return True

        return handler

    async def vote(self, name: str) -> None:
        await self._by_hand.vote(name)


@asynccontextmanager
async def started(order: Order) -> AsyncIterator[RestateGoverned]:
    """Start Restate, with the tables of the governance in the database."""
    async with governed(order.url) as by_hand, serving(order, partial(RestateGoverned, by_hand)) as engine:
        yield engine


if __name__ == "__main__":
    main(started)
