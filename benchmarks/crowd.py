"""A filled database: finished and parked runs that the product made, and copies of them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from benchmarks.bulk import Copies, load
from benchmarks.world import World

# One in so many finished runs is W1, with its human decision; the others have one effect each.
W1_AMONG = 50
PARKED_APART_MILLISECONDS = 10


@dataclass
class Crowd:
    """A database that grows by copies of ``models``: so far ``finished`` and ``parked`` ones."""

    world: World
    models: dict[str, UUID]
    finished: int = 0
    parked: int = 0

    async def grow(self, *, finished: int, parked: int) -> None:
        """Add copies until there are so many finished and so many parked runs."""
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
        """The size of the database on disk, without WAL."""
        return float(await self.world.plain.fetchval("SELECT pg_database_size(current_database())")) / 1e9


async def begin(world: World) -> Crowd:
    """Make one run of each kind as a model, with its card and its evidence delivered."""
    models = {}
    for name in ("one", "w1", "parked"):
        models[name] = await world.start(name)
        assert await world.drive()
        if name == "w1":
            (approval,) = await world.open_approvals()
            await world.approve(approval)
            assert await world.drive()
    await world.dispatcher().work_off()
    await world.sweeper().sweep()  # keepers follow the policy's publication now, not once for each copy
    return Crowd(world, models)
