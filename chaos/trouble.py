"""Injects the faults of the schedule and counts them."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.eyes import AWAY, Eyes
from chaos.machines import Machines, Postgres
from chaos.schedule import READS, WRITES, Kind, Trouble
from sandbox.faults import Effect, Fault, FaultKind, FaultTable
from sandbox.world import World

_SIGNALS = {
    Kind.KILL_WORKER: ("work", signal.SIGKILL),
    Kind.KILL_KEEPER: ("keep", signal.SIGKILL),
    Kind.KILL_FACE: ("serve", signal.SIGKILL),
    Kind.STOP_WORKER: ("work", signal.SIGTERM),
}
HANG_SECONDS = 3.0
SLOW_MS = (20, 500)


def slow_down(world: World, chance: random.Random) -> None:
    """Delay every request without another fault, so that faults can hit it while it is in flight."""
    assert world.bpmn is not None
    for table in (world.slack.faults, world.servicenow.faults, world.bpmn.faults, world.model.faults):
        table.otherwise = _slowly(chance)


def _slowly(chance: random.Random) -> Callable[[str, str], Fault]:
    def slowly(_: str, path: str) -> Fault:
        effect = Effect.LANDED if chance.random() < 0.5 else Effect.LOST
        return Fault(path, FaultKind.DELAY, effect, delay_ms=chance.randint(*SLOW_MS))

    return slowly


@dataclass
class TroubleMaker:
    """Injects faults. ``injected`` counts them by kind, ``missed`` those that had no target."""

    machines: Machines
    postgres: Postgres
    world: World
    eyes: Eyes
    injected: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)

    async def run(self, schedule: list[Trouble]) -> None:
        """Inject each fault of the schedule at its time; long ones run concurrently."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._release_what_hangs(began + schedule[-1].at + HANG_SECONDS if schedule else began))
            for trouble in schedule:
                await asyncio.sleep(max(0.0, began + trouble.at - asyncio.get_running_loop().time()))
                group.create_task(self._make(trouble))

    async def _make(self, trouble: Trouble) -> None:
        done = await self._do(trouble)
        (self.injected if done else self.missed)[str(trouble.kind)] += 1

    async def _do(self, trouble: Trouble) -> bool:
        match trouble.kind:
            case Kind.PAUSE_WORKER | Kind.PAUSE_KEEPER:
                part = "work" if trouble.kind is Kind.PAUSE_WORKER else "keep"
                return await self.machines.pause(self.machines.chosen(part, trouble.which), trouble.seconds, self._left)
            case Kind.POSTGRES_FAST | Kind.POSTGRES_IMMEDIATE:
                await self.postgres.restart(immediate=trouble.kind is Kind.POSTGRES_IMMEDIATE)
                return True
            case Kind.CONNECTIONS:
                return await self._end_connections()
            case Kind.WEBHOOKS:
                return self._deliver_again(trouble.which)
            case Kind.SLACK | Kind.SERVICENOW | Kind.BPMN:
                self._fail(trouble)
                return True
        part, number = _SIGNALS[trouble.kind]
        return self.machines.signal(self.machines.chosen(part, trouble.which), number)

    async def _left(self, process: int) -> bool:
        """True if the leases of this process have run out, and others have swept or taken them."""
        steps, messages = "queue WHERE owner LIKE $1", "commands WHERE lease_owner LIKE $1"
        sql = f"SELECT (SELECT count(*) FROM {steps}) + (SELECT count(*) FROM {messages})"
        try:
            return not await self.eyes.one(sql, f"%:{process}:%")
        except AWAY:
            return False

    async def _end_connections(self) -> bool:
        sql = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name = 'counterseal' AND pid <> pg_backend_pid()"
        )
        try:
            return bool(await self.eyes.one(sql))
        except AWAY:
            return False

    def _deliver_again(self, which: int) -> bool:
        """Deliver a webhook twice at once, acknowledged or not. False if none was sent yet."""
        webhooks = self.world.servicenow.webhooks
        sent = [delivery for delivery in webhooks.deliveries if delivery.done]
        for delivery in sent[which % len(sent) :][:1] * 2 if sent else []:
            webhooks.redeliver(delivery)
        return bool(sent)

    def _fail(self, trouble: Trouble) -> None:
        kind, effect, status = trouble.failure
        method, path = (WRITES if trouble.writes else READS)[trouble.kind]
        headers = {"Retry-After": "1"} if status == 429 else {}
        table = self._tables()[trouble.kind]
        found = Fault(
            path, FaultKind(kind), Effect(effect), method, times=trouble.times, status=status or 500, headers=headers
        )
        table.inject(found)

    def _tables(self) -> dict[Kind, FaultTable]:
        assert self.world.bpmn is not None
        return {
            Kind.SLACK: self.world.slack.faults,
            Kind.SERVICENOW: self.world.servicenow.faults,
            Kind.BPMN: self.world.bpmn.faults,
        }

    async def _release_what_hangs(self, until: float) -> None:
        """Break hanging requests after some seconds; faults that have not fired yet stay armed."""
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(HANG_SECONDS)
            for table in self._tables().values():
                table.released.set()
                table.released = asyncio.Event()

    def relent(self) -> Counter[str]:
        """Remove all faults. Returns the requests that were hit, by system, method and failure."""
        hit: Counter[str] = Counter()
        for kind, table in self._tables().items():
            table.clear()
            hit.update(f"{kind}: {call.method} {call.fault}" for call in table.calls if call.fault)
        return hit
