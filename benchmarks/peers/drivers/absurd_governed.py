"""Absurd, governed by hand: the same load as ``absurd``, with policy, audit, votes and a file from ``governed``."""

# These imports exist only in this driver's own environment, which mypy does not see.
# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from absurd_sdk import AsyncAbsurd

from benchmarks.peers.drivers.absurd import Absurd, Tasks, serving
from benchmarks.peers.drivers.governed import CONFIGURATION, REQUIREMENTS, Action, Governed, Head, governed
from benchmarks.peers.drivers.harness import Order, main, release_of


class AbsurdGoverned(Absurd):
    """A driver's view of Absurd with governance by hand."""

    configuration = f"Absurd as it is alone; {CONFIGURATION}"

    def __init__(self, by_hand: Governed, clients: list[AsyncAbsurd], tasks: Tasks) -> None:
        super().__init__(clients, tasks)
        self.release = f"{self.release}, {release_of(*REQUIREMENTS)}"
        self._by_hand = by_hand

    def handler(self, workflow: str, effects: int) -> Any:
        async def handler(params: Any, context: Any) -> dict[str, bool]:
            number, head = params["number"], None
            question = f"decision:{number}"

            async def effect(place: int, *, approved: bool) -> Head:
                action = Action(workflow, number, place)
                return await self._by_hand.effect(action, head, self.effects.perform, question, approved=approved)

            for place in range(effects):
                head = await context.step(f"effect-{place}", partial(effect, place, approved=False))
                if head["asked"]:
                    await context.await_event(question)
                    head = await context.step(f"approved-{place}", partial(effect, place, approved=True))
            await context.step("close", partial(self._by_hand.close, f"{workflow}-{number}", head))
            self.tasks.finished.add(number)
            return {"done": True}

        return handler

    async def vote(self, event: str) -> None:
        await self._by_hand.vote(event)


@asynccontextmanager
async def started(order: Order) -> AsyncIterator[AbsurdGoverned]:
    """Start Absurd, with the tables of the governance in the same database."""
    async with governed(order.url) as by_hand, serving(order, partial(AbsurdGoverned, by_hand)) as engine:
        yield engine


if __name__ == "__main__":
    main(started)
