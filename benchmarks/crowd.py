"""A database that is no longer empty: finished and parked runs, made by the product, and copies of them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from benchmarks.bulk import Copies, load
from benchmarks.world import World

# Of so many finished runs one is W1, with its human decision; the others are one effect each.
W1_AMONG = 50
PARKED_APART_MILLISECONDS = 10


@dataclass
class Crowd:
    """The copies of each model: how many there are so far."""

    world: World
    models: dict[str, UUID]
    finished: int = 0
    parked: int = 0

    async def grow(self, *, finished: int, parked: int) -> None:
        """Up to so many finished and so many parked runs."""
        copies: list[Copies] = []
        for name, now, then, apart in (
            ("one", self._ones(self.finished), self._ones(finished), 1000),
            ("w1", self.finished // W1_AMONG, finished // W1_AMONG, 1000),
            ("parked", self.parked, parked, PARKED_APART_MILLISECONDS),
        ):
            if then > now:
                copies.append(Copies(self.models[name], now + 1, then, apart))
        async with self.world.server_set(max_wal_size="2GB", autovacuum="off"):
            await load(self.world.url, copies)
        self.finished, self.parked = finished, parked

    def _ones(self, finished: int) -> int:
        return finished - finished // W1_AMONG

    async def gigabytes(self) -> float:
        """The size of the database on the disk, without the log."""
        return float(await self.world.plain.fetchval("SELECT pg_database_size(current_database())")) / 1e9


async def begin(world: World) -> Crowd:
    """One run of each kind, with its card and its evidence delivered, for copies to be made of."""
    models = {}
    for name in ("one", "w1", "parked"):
        models[name] = await world.start(name)
        assert await world.drive()
        if name == "w1":
            (approval,) = await world.open_approvals()
            await world.approve(approval)
            assert await world.drive()
    await world.dispatcher().work_off()
    return Crowd(world, models)
