"""A helper that somebody ends says nothing about a text; what a tenant's text does to one is its own (promise 9)."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.access import Role
from app.helpers import Helpers
from core.budgets import TooCostly
from core.errors import TransportError
from runtime.requests import tenancy
from tests.support.outside import Gate
from tests.support.two_tenants import OPERATOR

LONG = "workflow: x\n" + "# y\n" * 5_000


class Closing(Helpers):
    """Helpers that end with their test."""

    async def aclose(self) -> None:
        await self.close()


def pids() -> list[int]:
    """The helpers of this process that live."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = place.joinpath("stat").read_text().rpartition(")")[2].split()[:2]
            mine = parent == str(os.getpid()) and b"app.helper" in place.joinpath("cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if mine and state != "Z":
            found.append(int(place.name))
    return found


async def one_helper() -> int:
    """The helper of this process, once there is one."""
    while True:
        if found := pids():
            return found[0]
        await asyncio.sleep(0)


async def test_a_helper_that_is_killed_while_it_has_no_work_refuses_nobodys_text() -> None:
    async with aclosing(Closing()) as helpers:
        await helpers.read("acme", "workflow", LONG, "a.yaml", {})
        (idle,) = pids()
        os.kill(idle, signal.SIGKILL)
        await helpers.read("zeta", "workflow", LONG, "z.yaml", {})
        assert [*map(bool, pids())] == [True]


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGKILL, TooCostly), (signal.SIGXCPU, TooCostly), (signal.SIGTERM, TransportError)]
)
async def test_whoever_stops_all_processes_tells_nothing_of_the_text(number: signal.Signals, said: Any) -> None:
    async with aclosing(Closing()) as helpers:
        reading = asyncio.create_task(helpers.read("acme", "workflow", LONG, "a.yaml", {}))
        os.kill(await one_helper(), number)  # it starts, and has not read yet
        with pytest.raises(said):
            await reading
        await helpers.read("acme", "workflow", LONG, "a.yaml", {})  # its place is free again


async def test_a_helper_at_work_ends_with_its_work_when_all_are_told_to_stop() -> None:
    async with aclosing(Closing()) as helpers:
        await helpers.read("acme", "workflow", LONG, "a.yaml", {})
        (helper,) = pids()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(helper, number)
        await helpers.read("acme", "workflow", LONG, "a.yaml", {})
        assert pids() == [helper]
    assert pids() == []


async def test_texts_of_one_tenant_leave_a_helper_to_another() -> None:
    async with aclosing(Closing()) as helpers:
        loud = [asyncio.create_task(helpers.read("loud", "workflow", LONG, "a.yaml", {})) for _ in range(6)]
        first = await one_helper()
        os.kill(first, signal.SIGSTOP)  # it reads for ever
        await helpers.read("quiet", "workflow", LONG, "q.yaml", {})
        assert not any(one.done() for one in loud)
        os.kill(first, signal.SIGKILL)
        ends = await asyncio.gather(*loud, return_exceptions=True)
        assert [isinstance(one, TooCostly) for one in ends] == [True] + [False] * 5
        assert len(pids()) <= 2


async def test_a_tenant_is_suspended_while_its_work_and_a_helper_are_under_way(installation: Any) -> None:
    gate = installation.outside.gates["INC1"] = Gate(after_effect=True)
    running = await installation.start("simple")
    author = await installation.client(Role.AUTHOR)
    working = asyncio.create_task(installation.app.worker().work_off())
    await gate.reached.wait()
    checking = asyncio.create_task(author.post("/v1/workflows/check", json={"source": LONG, "file": "a.yaml"}))
    os.kill(reading := await one_helper(), signal.SIGSTOP)
    stopping = tenancy.suspend(installation.engine, "default", "unpaid", OPERATOR)
    assert await stopping, "it waits neither for the call that is out, nor for the helper"
    assert not checking.done()
    assert not working.done()
    os.kill(reading, signal.SIGCONT)
    gate.opened.set()
    await working
    assert (await checking).status_code < 500
    assert await installation.status(running) == "succeeded"
    assert len(installation.outside.effects) == 1
    trigger = await installation.client(Role.TRIGGER)
    body = {"workflow": "simple", "input": {"number": "INC2"}}
    assert (await trigger.post("/v1/runs", json=body)).status_code == 409
