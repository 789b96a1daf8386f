"""A stop is answered when every append with an intent that began before it has ended: two connections, every order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import combinations
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from core.db import Connection
from core.ids import new_nonce
from evidence.chain import Actor
from runtime.engine.book.instructions import Perform
from runtime.engine.life.proposal import Leased
from runtime.engine.life.step import begin
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import Commit
from runtime.requests import policies
from runtime.store import claims, pauses
from runtime.store.commits import apply, apply_together
from runtime.store.views import load
from runtime.work.holding import claim_of

ONE = """
workflow: one
version: 1
reference: ${{ run.id }}
steps: [{id: a, do: probe.effect.apply, with: {name: a}}]
"""
ALLOW = "policy: p\nversion: 1\nrules:\n  - {id: all, match: {connector: probe}, outcome: allow}\n"
DENY = "policy: p\nversion: 2\nrules:\n  - {id: none, match: {connector: probe}, outcome: deny}\n"
OPS = Actor("person", "olga")
AS_FACE = "BEGIN; SET LOCAL counterseal.tenant = 'acme'"

# a: the append's BEGIN, itself and COMMIT; s: those of the stop.
ORDERS = ["".join("a" if place in mine else "s" for place in range(6)) for mine in combinations(range(6), 3)]


async def intent(runtime: Any) -> Commit:
    """The append of an intent, decided by what is in force now."""
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(ONE)
    run_id = (await runtime.start("one")).run_id
    async with runtime.database.connection() as connection:
        (record,) = await claims.claim_next(connection, "w", timedelta(seconds=30))
        view = await load(connection, run_id, runtime.definitions.graphs)
        workflow = await runtime.definitions.of_run(connection, view.definition)
        policy = await runtime.definitions.policies(connection, "acme", view.policies)
    transition = Transition(view, workflow.graph)
    step = transition.started(replace(view.run.steps["a"], lease_owner="w", lease_epoch=1))
    assert isinstance(begin(Leased(transition, step, workflow, policy, new_nonce)), Perform)
    commit = transition.commit()
    commit.held = [claim_of(record)[0]]
    return commit


async def paused(runtime: Any, connection: Connection) -> None:
    await pauses.pause(connection, "acme", "connector:probe", OPS, "An emergency.")


async def denied(runtime: Any, connection: Connection) -> None:
    await policies.publish_policy(connection, runtime.definitions, "acme", DENY, "p.yaml", OPS)


async def intents(runtime: Any) -> int:
    every = "SELECT count(*) FROM run_lines WHERE type = 'action.intended'"
    return int((await runtime.one(every))[0])


class Side:
    """A connection that does its statements one by one, each when it is told to and the one before has ended."""

    def __init__(self, runtime: Any, connection: Connection, *statements: Callable[[], Any]) -> None:
        self.answers: list[Any] = []
        self._runtime, self._connection, self._told = runtime, connection, asyncio.Semaphore(0)
        self.asked = 0
        self.work = asyncio.create_task(self._do(statements))

    async def _do(self, statements: Sequence[Callable[[], Any]]) -> None:
        for statement in statements:
            await self._told.acquire()
            self.answers.append(await statement())

    async def next(self) -> None:
        """Ask for the next statement; until everything that was asked for has ended, or waits for a lock."""
        self._told.release()
        self.asked += 1
        waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)"
        while len(self.answers) < self.asked and not self.work.done():
            if (await self._runtime.one(waits, self._connection.get_server_pid()))[0]:
                return
            await asyncio.sleep(0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("change", [paused, denied])
@pytest.mark.parametrize("together", [False, True])
async def test_no_intent_commits_after_the_answer(
    runtime: Any, order: str, change: Callable[..., Any], together: bool
) -> None:
    commit, at_answer = await intent(runtime), None
    async with runtime.database.connection() as first, runtime.faces.connection() as second:

        async def append() -> bool:
            return bool(await (apply_together(first, [commit]) if together else apply(first, commit)))

        async def answer() -> int:
            await second.execute("COMMIT")
            return await intents(runtime)

        one = Side(runtime, first, lambda: first.execute("BEGIN"), append, lambda: first.execute("COMMIT"))
        other = Side(runtime, second, lambda: second.execute(AS_FACE), lambda: change(runtime, second), answer)
        async with asyncio.timeout(60):
            for side in order:
                await (one if side == "a" else other).next()
            await asyncio.gather(one.work, other.work)
        applied, at_answer = one.answers[1], other.answers[2]
    assert at_answer == await intents(runtime) == int(applied)
    appended, changed = (nth(order, side, 1) for side in "as")
    assert applied is (appended < changed)


def nth(order: str, side: str, number: int) -> int:
    return [place for place, each in enumerate(order) if each == side][number]


async def test_an_append_without_an_intent_waits_for_nobody(runtime: Any) -> None:
    commit = await intent(runtime)
    commit.stop = None
    async with runtime.database.transaction() as one, runtime.database.connection() as other:
        await paused(runtime, one)
        await other.execute("SET lock_timeout = '5 s'")
        assert await apply(other, commit)
        await other.execute("RESET lock_timeout")


async def test_only_one_tenant_waits(runtime: Any) -> None:
    commit = await intent(runtime)
    await runtime.tenant("other")
    async with runtime.database.transaction() as one, runtime.database.connection() as other:
        await pauses.pause(one, "other", "tenant", OPS, "An emergency.")
        await other.execute("SET lock_timeout = '5 s'")
        assert await apply(other, commit)
        await other.execute("RESET lock_timeout")


async def test_a_statement_of_somebody_else_moves_the_number(runtime: Any) -> None:
    await runtime.tenant()
    numbers = []
    for change in ("paused = '{\"tenant\": {}}'", "paused = NULL", "policy_digests = '{x}'", "policy_digests = '{x}'"):
        await runtime.execute(f"UPDATE tenants SET {change}")
        numbers.append((await runtime.one("SELECT stop_number FROM tenants"))[0])
    assert numbers == [1, 2, 3, 3]
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with runtime.faces.transaction("acme") as connection:
            await connection.execute("UPDATE tenants SET stop_number = 7")
