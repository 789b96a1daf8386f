"""Each lock of a row: who takes it keeps others off until its transaction ends, and who has to pass by does not wait.

Whoever would wait here is refused by PostgreSQL at once, so nothing in these tests takes time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from core.db import Connection
from core.grouping import Grouping
from evidence.chain import Actor, EventType
from runtime.engine.book.draft import ENGINE
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import RunPaused
from runtime.engine.model.graph import NO_GRAPH
from runtime.engine.model.rows import Claim, Commit, FamilyMove
from runtime.requests.steering import cancel_run
from runtime.store import audit, claims, outbox, retention, runs, sweeps, tenants, views
from runtime.store.commits import apply, apply_together
from tests.support.runtime_shared_cases import begun
from tests.support.store_claims import LEASE, ONE
from tests.support.store_locks import GATE

pytestmark = pytest.mark.tampers

WITHIN = "workflow: within\nversion: 1\nsteps:\n  - {id: c, run: gate}\n"
AT_ONCE = "SET LOCAL lock_timeout = '1s'"
Ask = Callable[[Connection], Awaitable[Any]]


async def is_kept(runtime: Any, row: str) -> bool:
    """True if somebody keeps this row: `table WHERE condition`."""
    async with runtime.database.transaction() as other:
        try:
            await other.execute(f"SELECT FROM {row} FOR UPDATE NOWAIT")
        except asyncpg.LockNotAvailableError:
            return True
    return False


async def keeps(runtime: Any, ask: Ask, row: str, *, at: Any = None) -> Any:
    """Ask in a transaction, and hold it to keeping the row until that ends."""
    async with (at or runtime.database).transaction() as connection:
        answer = await ask(connection)
        assert await is_kept(runtime, row)
    assert not await is_kept(runtime, row)
    return answer


@asynccontextmanager
async def somebody_has(runtime: Any, row: str) -> AsyncIterator[None]:
    async with runtime.database.transaction() as other:
        await other.execute(f"SELECT FROM {row} FOR UPDATE")
        yield


async def passes_by(runtime: Any, ask: Ask) -> Any:
    """Ask, and fail if that had to wait for a row."""
    try:
        async with runtime.database.transaction() as connection:
            await connection.execute(AT_ONCE)
            return await ask(connection)
    except asyncpg.LockNotAvailableError:
        raise AssertionError("it waits for a row that somebody has") from None


async def one(runtime: Any, text: str = ONE, name: str = "one") -> UUID:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(text)
    return UUID(str((await runtime.start(name)).run_id))


async def leased(runtime: Any) -> tuple[UUID, Claim]:
    """A run, and the claim of a step of it."""
    run_id = await one(runtime)
    async with runtime.database.connection() as connection:
        (row,) = await claims.claim_next(connection, "w", LEASE)
    return run_id, Claim(row["step"]["step_key"], UUID(row["step"]["lease_id"]), row["step"]["lease_epoch"])


async def family(runtime: Any) -> tuple[UUID, Commit]:
    """A run that has started another one, and an append to it that rests on what both have counted."""
    await one(runtime)
    for text in (GATE, WITHIN):
        await runtime.publish(text)
    run_id = UUID(str((await runtime.start("within")).run_id))
    await runtime.worker().work_off()
    async with runtime.database.connection() as connection:
        view = await views.load(connection, run_id, runtime.definitions.graphs)
    assert view.family is not None
    transition = Transition(view, NO_GRAPH)
    transition.tell(RunPaused(False, None, ""), actor=ENGINE)
    commit = transition.commit()
    commit.family = FamilyMove(0, 0, {}, {}, 0, True, number=view.family.number)
    return run_id, commit


async def waits(runtime: Any, commit: Commit) -> asyncio.Task[Any]:
    """The append under way: it waits for a row that somebody has."""

    async def append() -> Any:
        async with runtime.database.connection() as connection:
            return await apply(connection, commit)

    waiting = asyncio.create_task(append())
    while not await runtime.one("SELECT 1 FROM pg_locks WHERE NOT granted"):
        assert not waiting.done()
    return waiting


# -- who takes a lock ------------------------------------------------------------------------------------------------


@pytest.mark.req("V-7")
async def test_whoever_reads_a_run_to_append_to_it_keeps_it(runtime: Any) -> None:
    run_id, graphs = await one(runtime), runtime.definitions.graphs
    row = f"runs WHERE run_id = '{run_id}'"
    await keeps(runtime, lambda c: views.load(c, run_id, graphs, lock=True), row)
    await keeps(runtime, lambda c: views.load(c, run_id, graphs, lock=True, tenant="acme"), row, at=runtime.faces)


@pytest.mark.req("Q-12")
async def test_whoever_reads_a_run_to_append_to_it_keeps_what_it_counts_with_others(runtime: Any) -> None:
    """A caller that has lost a race for these counters is sure to win the next one (promise 4)."""
    run_id, _ = await family(runtime)
    await keeps(runtime, lambda c: views.load(c, run_id, runtime.definitions.graphs, lock=True), "families")


@pytest.mark.req("Q-12")
async def test_whoever_looks_for_the_outermost_run_keeps_the_run(runtime: Any) -> None:
    """Two steps start the first other runs at once: one begins the counters, and no append goes past it (promise 9)."""
    run_id = await one(runtime)
    await keeps(runtime, lambda c: runs.root_of(c, run_id), f"runs WHERE run_id = '{run_id}'")


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("by", ["a rule", "a cap"])
async def test_an_append_that_waited_for_the_counters_looks_at_them_again(runtime: Any, by: str) -> None:
    """Another run counts meanwhile: what rests on the count before that is refused (promise 9)."""
    _, commit = await family(runtime)
    if by == "a cap":
        commit.writes, commit.family = 1, FamilyMove(0, 0, {}, {}, 0, True, writes_max=1)
    async with runtime.database.transaction() as other:
        await other.execute("UPDATE families SET number = number + 1, writes = writes + 1")
        waiting = await waits(runtime, commit)
    assert await waiting is None


async def test_an_append_that_waits_for_its_run_keeps_no_counters_of_others(runtime: Any) -> None:
    """Run first, counters then, as for all others: nobody waits in a circle (promise 4)."""
    run_id, commit = await family(runtime)
    async with somebody_has(runtime, f"runs WHERE run_id = '{run_id}'"):
        waiting = await waits(runtime, commit)
        kept = await is_kept(runtime, "families")
    assert (await waiting is not None, kept) == (True, False)


@pytest.mark.req("Q-17")
async def test_whoever_reads_a_question_to_decide_it_keeps_its_run(runtime: Any) -> None:
    run_id = await runtime.go(GATE)
    asked = "SELECT FROM read_question($1, 'acme', true)"
    question = await runtime.question()
    row = f"runs WHERE run_id = '{run_id}'"
    await keeps(runtime, lambda c: c.fetch(asked, question), row, at=runtime.faces)


@pytest.mark.req("Q-15")
async def test_whoever_joins_an_effect_keeps_it(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold it until the wait for its end is written."""
    apply, held = Grouping.apply, []

    async def looked(grouping: Any, item: Any) -> Any:
        if not isinstance(item, Commit) or not item.joins:
            return await apply(grouping, item)
        async with runtime.database.transaction() as connection:
            found = await apply_together(connection, [item])
            held.append(await is_kept(runtime, "effects"))
        return found[item.run_id]

    monkeypatch.setattr(Grouping, "apply", looked)
    await begun(runtime, 2)
    assert held == [True]


@pytest.mark.req("Q-11")
async def test_whoever_says_what_it_knows_late_keeps_its_lease(runtime: Any) -> None:
    run_id, claim = await leased(runtime)
    found = await keeps(runtime, lambda c: claims.hold(c, run_id, [claim]), f"queue WHERE run_id = '{run_id}'")
    assert found == {claim.id: "leased"}


@pytest.mark.req("Q-11")
async def test_whoever_takes_a_lease_away_keeps_it(runtime: Any) -> None:
    run_id, claim = await leased(runtime)
    await runtime.trouble.expire_leases()
    row = f"queue WHERE run_id = '{run_id}'"
    assert await keeps(runtime, lambda c: sweeps.take_away(c, run_id, claim), row) == "w"


@pytest.mark.req("Q-12")
async def test_whoever_claims_keeps_the_tenant(runtime: Any) -> None:
    """Until then nobody else counts what this tenant has under way (promise 9)."""
    await one(runtime)
    async with runtime.database.transaction() as connection:
        await claims.claim_next(connection, "w", LEASE)
        assert await is_kept(runtime, "tenants WHERE tenant_id = 'acme'")


@pytest.mark.req("X-20")
async def test_whoever_empties_a_run_keeps_it(runtime: Any) -> None:
    run_id = await runtime.go(ONE)
    await runtime.execute(
        "INSERT INTO bundles (run_id, tenant_id, lines, name, uri, sha256, bytes, key_id) "
        "SELECT run_id, tenant_id, audit_count, 'n', 'u', 's', 1, 'k' FROM runs"
    )
    await runtime.trouble.drop_messages_except("none")
    await runtime.execute("UPDATE runs SET retention = interval '0', purge_at = now()")
    held = await keeps(runtime, lambda c: retention.hold(c, run_id), f"runs WHERE run_id = '{run_id}'")
    assert held == "acme"


async def test_whoever_tells_the_audit_of_a_tenant_keeps_its_end(runtime: Any) -> None:
    """Two that tell at once have different places in the chain (promise 7)."""
    await runtime.tenant()

    async def tell(number: int) -> None:
        said = {"token": "t", "count": 1}
        async with runtime.faces.transaction("acme") as connection:
            await audit.record(connection, "acme", EventType.TOKEN_REVOKED, Actor("test", str(number)), said)

    said = await asyncio.gather(*(tell(number) for number in range(8)), return_exceptions=True)
    assert said == [None] * 8
    assert await runtime.one("SELECT count(*) AS told FROM audit_events") == (8,)


async def test_whoever_publishes_in_a_tenant_keeps_others_from_it(runtime: Any) -> None:
    await runtime.tenant()
    async with runtime.database.transaction() as first:
        await tenants.lock(first, "acme")
        async with runtime.database.transaction() as second:
            await second.execute("SET LOCAL statement_timeout = '1s'")
            await tenants.lock(second, "another")
            with pytest.raises(asyncpg.QueryCanceledError):
                await tenants.lock(second, "acme")


@pytest.mark.req("Q-10")
async def test_a_heartbeat_that_waited_for_its_lease_looks_at_it_again(runtime: Any) -> None:
    """Another one takes the step meanwhile: the one before is told that its lease is gone (promise 4)."""
    run_id, claim = await leased(runtime)

    async def beat() -> set[UUID]:
        async with runtime.database.connection() as connection:
            return await claims.heartbeat(connection, LEASE, [(run_id, claim)])

    async with runtime.database.transaction() as other:
        await other.execute("UPDATE queue SET owner = 'x', lease_id = gen_random_uuid(), epoch = epoch + 1")
        beating = asyncio.create_task(beat())
        while not await runtime.one("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not beating.done()
    assert await beating == set()


# -- who passes by ---------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-9")
async def test_a_claim_passes_by_a_step_that_somebody_has(runtime: Any) -> None:
    first = await one(runtime)
    second = (await runtime.start("one", ref="2")).run_id
    async with somebody_has(runtime, f"queue WHERE run_id = '{first}'"):
        (row,) = await passes_by(runtime, lambda c: claims.claim_next(c, "w", LEASE, 2))
    assert row["run"]["run_id"] == str(second)


@pytest.mark.req("V-13")
async def test_a_cancel_passes_by_the_steps_of_others(runtime: Any) -> None:
    """A run that has not begun is over at once; whoever has its step just now finds that out."""
    run_id = await one(runtime)
    async with somebody_has(runtime, "queue WHERE step_key = 'a'"):
        said = (runtime.definitions, "acme", run_id, Actor("test", "t"), "no")
        await passes_by(runtime, lambda c: cancel_run(c, *said))
    assert await runtime.status(run_id) == "canceled"


async def messages(runtime: Any, *orders: str) -> list[UUID]:
    """Pending messages of these ordering keys."""
    run_id, made = await one(runtime), []
    for order in orders:
        made.append(uuid4())
        await runtime.execute(
            "INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key) "
            "VALUES ($1, 'acme', $2, 'card', '{}', 'pending', $3)",
            made[-1],
            run_id,
            order,
        )
    return made


@pytest.mark.req("O-7")
@pytest.mark.parametrize("named", [False, True])
async def test_a_dispatcher_passes_by_a_message_that_another_has(runtime: Any, named: bool) -> None:
    first, second = await messages(runtime, "a", "b")
    only = first if named else None

    def lease(connection: Connection) -> Any:
        return outbox.lease_message(connection, "d", LEASE, ("", ""), [], only=only)

    async with somebody_has(runtime, f"commands WHERE command_id = '{first}'"):
        message = await passes_by(runtime, lease)
    assert (message and message.command_id) == (None if named else second)


@pytest.mark.req("O-7")
async def test_two_dispatchers_at_once_lease_different_messages(runtime: Any) -> None:
    made = await messages(runtime, *(str(number) for number in range(8)))

    async def lease(name: str) -> Any:
        async with runtime.database.transaction() as connection:
            return await outbox.lease_message(connection, name, LEASE, ("", ""), [])

    found = await asyncio.gather(*(lease(str(number)) for number in range(8)))
    assert {message.command_id for message in found} == set(made)


@pytest.mark.req("O-8")
@pytest.mark.parametrize(
    ("row", "arrange"),
    [
        ("queue", "UPDATE queue SET status = 'sent', owner = 'q', expires_at = now() - interval '1 s'"),
        ("queue", "UPDATE queue SET expires_at = now() + interval '9 days'"),
        ("commands", "UPDATE commands SET status = 'leased', lease_expires_at = now() - interval '1 s'"),
    ],
    ids=["sent", "a lease ahead of the clock", "a message"],
)
async def test_a_sweep_passes_by_what_somebody_has(runtime: Any, row: str, arrange: str) -> None:
    run_id, _ = await leased(runtime)
    await runtime.execute(
        "INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status) "
        "VALUES (gen_random_uuid(), 'acme', $1, 'card', '{}', 'pending')",
        run_id,
    )
    await runtime.execute(arrange)

    def due(connection: Connection) -> Any:
        return sweeps.due(connection, timedelta(seconds=30), whole=False)

    async with somebody_has(runtime, row):
        assert (await passes_by(runtime, due)).freed == 0
    await passes_by(runtime, due)
