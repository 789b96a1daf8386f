"""Several workers on one run with many steps at once: one state, one barrier, and no outcome lost (X-6, X-17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from msgspec import structs

from connectors.port import Done
from core.db import ENGINE_ROLE, Connection, Database
from runtime.engine.book import draft, snapshot
from runtime.engine.model.rows import Commit
from runtime.requests.steering import cancel_run
from runtime.store import claims
from runtime.store.commits import apply, apply_together
from runtime.store.views import load
from runtime.work import committer, pump
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.lease import Lease
from tests.support import oracle
from tests.support.for_all import ForAll
from tests.support.trouble import Trouble
from tests.support.verified import sound

WIDE = """
workflow: wide
version: 1
reference: ${{ run.id }}
channels: {names: {reduce: append}, count: {reduce: sum, initial: 0}}
steps:
  - id: each
    foreach: ${{ trigger.items }}
    max_parallel: 1000
    steps:
      - {id: put, do: probe.effect.apply, with: {name: "${{ item }}"}, set: {names: "${{ item }}", count: 1}}
  - {id: last, do: probe.effect.apply, with: {name: last}}
"""
READ_FIRST = WIDE.replace(
    'probe.effect.apply, with: {name: "${{ item }}"}, set: {names: "${{ item }}", count: 1}',
    'probe.record.update, with: {name: "${{ item }}", fields: {owner: x}}',
)
AT_MOST_TWO = """
policy: two
version: 1
rules:
  - {id: everything, match: {connector: probe}, outcome: allow}
  - {id: enough, match: {connector: probe}, when: counters.writes_in_run >= 2, outcome: deny, because: Two are enough.}
"""
TWICE_REFUSED = """
policy: two
version: 1
rules:
  - id: refused
    match: {connector: probe}
    when: action.fields.name != 'i000' && counters.refused_in_run < 2
    outcome: deny
    otherwise: allow
"""
LEASE = timedelta(seconds=30)


def items(count: int) -> list[str]:
    return [f"i{number:03}" for number in range(count)]


async def begun(runtime: Any, count: int, text: str = WIDE, **tenant: Any) -> UUID:
    """A run over so many items, whose outcomes say nothing about the order in which they came."""

    def alike(done: Done) -> Done:
        return structs.replace(done, output={"name": done.output["name"]}) if "name" in done.output else done

    runtime.outside.reshape = alike
    if not await runtime.books.runs():
        await runtime.tenant(concurrency=500, **tenant)
        await runtime.policy()
        await runtime.publish(text)
    run: UUID = (await runtime.start("wide", {"items": items(count)}, ref=str(len(await runtime.books.runs())))).run_id
    return run


def gated(runtime: Any, names: Sequence[str], *, after_effect: bool = True) -> dict[str, Any]:
    """The calls of these names are held up."""
    gates = {name: runtime.gate_type(after_effect=after_effect) for name in names}
    runtime.outside.gates.update(gates)
    return gates


async def reached(gates: dict[str, Any]) -> None:
    async with asyncio.timeout(60):
        await asyncio.gather(*(gates[name].reached.wait() for name in gates))


def opened(gates: dict[str, Any], names: Sequence[str] | None = None) -> None:
    for name in gates if names is None else names:
        gates[name].opened.set()


@asynccontextmanager
async def crew(runtime: Any, *owners: str, concurrency: int, lease: float = 30) -> AsyncIterator[None]:
    """Workers with nothing in common but the database."""
    stop = asyncio.Event()
    workers = [runtime.worker(owner, concurrency=concurrency, lease=lease) for owner in owners]
    tasks = [asyncio.create_task(worker.run(stop)) for worker in workers]
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60)


@asynccontextmanager
async def held_up(runtime: Any, run_id: UUID) -> AsyncIterator[Callable[[int], Any]]:
    """Hold up every append to the run; what is given waits until so many try to."""

    async def tried(count: int) -> None:
        async def waiting() -> bool:
            found = await runtime.one("SELECT count(*) AS waiting FROM pg_locks WHERE NOT granted")
            return bool(found["waiting"] >= count)

        await runtime.until(waiting)

    async with runtime.database.transaction() as connection:
        await load(connection, run_id, runtime.definitions.graphs, lock=True)
        yield tried


@asynccontextmanager
async def one_holds_a_step(runtime: Any, name: str) -> AsyncIterator[Any]:
    """The run has begun: one worker is held up in the call of this name, all other steps stand in line."""
    (gate,) = gated(runtime, [name], after_effect=False).values()
    task = asyncio.create_task(runtime.worker("starter").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    try:
        yield gate
    finally:
        gate.opened.set()
        await asyncio.wait_for(task, 60)


async def ended(runtime: Any, run_id: UUID) -> bool:
    return bool((await runtime.books.run(run_id)).finished_at is not None)


async def over(runtime: Any, run_id: UUID, status: str = "succeeded") -> list[Any]:
    """The run ends so, by itself; its lines."""

    await runtime.until(lambda: ended(runtime, run_id))
    assert await runtime.status(run_id) == status, await runtime.error(run_id)
    await runtime.history(run_id)
    await runtime.at_rest()
    return list(await runtime.books.events(run_id))


def told(events: Sequence[Any], kind: str) -> list[str]:
    """The steps of which a line of this type tells, in the order of the lines."""
    return [event.step for event in events if event.type == kind]


def barriers(events: Sequence[Any]) -> list[int]:
    return [event.data["number"] for event in events if event.type == "checkpoint.committed"]


@dataclass
class Wire:
    """The wire of appends. ``fate`` says of one whether it is ``lost``, or has ``landed`` unheard."""

    fate: Callable[[Commit], str] = lambda commit: ""
    sent: list[Commit] = field(default_factory=list)
    applied: Callable[[Commit, int], None] = lambda commit, executing: None

    async def apply(self, connection: Connection, commit: Commit) -> Any:
        fate = self.fate(commit)
        if fate == "lost":
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        found = await apply(connection, commit)
        if found is not None:
            self.sent.append(commit)
            self.applied(commit, found.executing)
        if fate == "landed":
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return found

    async def apply_together(self, connection: Connection, commits: Sequence[Commit]) -> Any:
        found = await apply_together(connection, commits)
        self.sent += [commit for commit in commits if commit.run_id in found]
        return found

    def widths(self, kind: str) -> list[int]:
        """Count the lines of this type in each append that has one."""
        counts = [sum(f'"type":"{kind}"'.encode() in line for line in commit.lines) for commit in self.sent]
        return [count for count in counts if count]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    found = Wire()
    monkeypatch.setattr(committer, "apply", found.apply)
    monkeypatch.setattr(committer, "apply_together", found.apply_together)
    monkeypatch.setattr(pump, "apply", found.apply)
    return found


# -- one state, one barrier ------------------------------------------------------------------------------------------


@pytest.mark.req("X-17")
async def test_whatever_the_order_of_settles_the_state_is_one(runtime: Any) -> None:
    """Three workers hold 24 steps, whose outcomes come one by one or many at once, in an order of their own."""
    names, found, orders = items(24), [], []
    for seed in range(3):
        run_id, chance = await begun(runtime, 24), Random(seed)
        gates, order = gated(runtime, names), chance.sample(names, 24)
        async with crew(runtime, "a", "b", "c", concurrency=8):
            await reached(gates)
            settled = 0
            while order:
                some, order = order[: (size := chance.randint(1, 8))], order[size:]
                opened(gates, some)
                settled += len(some)
                if chance.random() < 0.5:
                    await runtime.until(partial(settles, runtime, run_id, settled))
            events = await over(runtime, run_id)
        began = [event for event in events if event.type == "step.started" and event.step.startswith("each")]
        assert (len(began), {event.actor["id"] for event in began}) == (24, {"a", "b", "c"})
        orders.append(told(events, "action.succeeded"))
        found.append((await runtime.state(run_id), await of_steps(runtime, run_id), barriers(events)))
    assert len({tuple(order) for order in orders}) == 3
    assert found[0][0]["channels"] == {"names": names, "count": 24}
    assert found[1:] == found[:1] * 2


async def settles(runtime: Any, run_id: UUID, least: int) -> bool:
    return bool((await runtime.events(run_id)).count("action.succeeded") >= least)


async def of_steps(runtime: Any, run_id: UUID) -> dict[str, Any]:
    """Collect the end of each step, and the types of its lines."""
    events = await runtime.books.events(run_id)
    steps = await runtime.books.steps(run=run_id)
    return {
        step.key: [step.output, step.superstep, *(event.type for event in events if event.step == step.key)]
        for step in steps
    }


async def test_two_last_settles_at_once_make_one_barrier(runtime: Any) -> None:
    """Neither worker knows that the other's step is about to leave."""
    for count in (2, 2, 9):
        run_id, names = await begun(runtime, count), items(count)
        gates = gated(runtime, names)
        async with crew(runtime, "a", "b", concurrency=(count + 1) // 2):
            await reached(gates)
            opened(gates, names[2:])
            await runtime.until(partial(settles, runtime, run_id, count - 2))
            owners = {place.owner for place in await runtime.books.places()}
            async with held_up(runtime, run_id) as tried:
                opened(gates)
                await tried(len(owners))
            events = await over(runtime, run_id)
        assert barriers(events) == [0, 1, 2]
        assert sorted(told(events, "action.succeeded")) == [*(f"each[{n}].put" for n in range(count)), "last"]


class Mortal(Database):
    """A database of a process that dies once ``dead`` is set: nothing that it does reaches PostgreSQL any more."""

    dead = False

    @asynccontextmanager
    async def connection(self, tenant: str = "") -> AsyncIterator[Connection]:
        if self.dead:
            raise asyncio.CancelledError
        async with super().connection(tenant) as connection:
            yield connection


@pytest.fixture
async def mortal(database_url: str) -> AsyncIterator[Mortal]:
    database = Mortal(database_url, ENGINE_ROLE, connections=8)
    async with database:
        yield database


async def dies_before_its_barrier(runtime: Any, wire: Wire, mortal: Mortal, run_id: UUID, names: list[str]) -> None:
    """A worker settles the last of these steps, of which another has settled the first, and dies there and then."""

    def dies(commit: Commit, executing: int) -> None:
        mortal.dead = executing == 0 and not commit.moves_gate

    mine, theirs = gated(runtime, names[-1:]), gated(runtime, names[:-1])
    doomed = asyncio.create_task(replace(runtime, database=mortal).worker("doomed", concurrency=1).run(asyncio.Event()))
    try:
        # Whoever is first holds any of them, so the doomed one is given what the other leaves.
        async with crew(runtime, "other", concurrency=len(names) - 1):
            await reached(mine | theirs)
            doomed_holds = next(place.step for place in await runtime.books.places() if place.owner == "doomed")
            number = int(doomed_holds.partition("[")[2].partition("]")[0])
            late = next(name for name in names if int(name[1:]) == number)
            early = [name for name in names if name != late]
            opened(mine | theirs, early)
            steps = {f"each[{int(name[1:])}].put" for name in early}

            async def all_but_one() -> bool:
                return steps <= set(told(await runtime.books.events(run_id), "action.succeeded"))

            await runtime.until(all_but_one)
        wire.applied = dies
        opened(mine | theirs, [late])
        await asyncio.wait_for(asyncio.wait({doomed}), 60)
    finally:
        doomed.cancel()
        await asyncio.wait({doomed})
    assert mortal.dead


@pytest.mark.req("Q-8")
async def test_a_barrier_whose_worker_died_before_it_is_brought_back(
    runtime: Any, wire: Wire, mortal: Mortal, quiet: Any
) -> None:
    run_id, names = await begun(runtime, 6), items(6)
    await dies_before_its_barrier(runtime, wire, mortal, run_id, names)
    assert barriers(await runtime.books.events(run_id)) == [0]
    assert [(place.step, place.status) for place in await runtime.books.places()] == [("", "leased")]
    assert await oracle.wrong(runtime.faces, runtime.definitions, "acme", run_id) == []
    assert await runtime.worker().work_off() == 0, "nobody may claim a barrier"
    assert await runtime.sweep() == 0, "its process may still be about to append it"
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1
    await runtime.worker().work_off()
    assert barriers(await over(runtime, run_id)) == [0, 1, 2]


async def test_a_barrier_is_brought_back_also_where_few_of_a_loop_s_items_are_kept(
    runtime: Any, wire: Wire, mortal: Mortal, monkeypatch: pytest.MonkeyPatch, quiet: Any
) -> None:
    """The sweeper reads what is kept of the run, and the barrier wants more items than that holds."""
    monkeypatch.setattr(draft, "EVERY", 1)
    monkeypatch.setattr(snapshot, "WINDOW", 2)
    run_id = await begun(runtime, 12, WIDE.replace("1000", "4"))
    await dies_before_its_barrier(runtime, wire, mortal, run_id, items(4))
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1
    await runtime.worker().work_off()
    assert barriers(await over(runtime, run_id)) == [0, 1, 2, 3, 4]


# -- what does not commute -------------------------------------------------------------------------------------------


@pytest.mark.req("V-13")
@pytest.mark.parametrize("first", ["cancel", "settles"])
async def test_a_cancel_in_mid_batch_lets_nothing_out_and_loses_no_outcome(runtime: Any, first: str) -> None:
    """Cancel a run at the moment in which 16 of its 24 steps are settled (promise 11: no new intent goes out)."""
    run_id, names = await begun(runtime, 24), items(24)
    gates = gated(runtime, names)

    async def under_way() -> bool:
        return len([gate for gate in gates.values() if gate.reached.is_set()]) == 16

    async def cancel(connection: Connection) -> None:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")

    async def canceled() -> None:
        async with runtime.database.transaction() as connection:
            await cancel(connection)

    async with crew(runtime, "a", "b", concurrency=8):
        await runtime.until(under_way)
        async with held_up(runtime, run_id) as tried:
            canceling = asyncio.create_task(canceled()) if first == "cancel" else None
            await tried(1 if canceling else 0)
            opened(gates)
            await tried(3 if canceling else 2)
            canceling = canceling or asyncio.create_task(canceled())
            await tried(3)
        await canceling
        # A step that was claimed and not begun is left to its lease by whoever cancels.
        await runtime.until(lambda: ended(runtime, run_id))
        await runtime.trouble.expire_leases()
        await runtime.sweep()
        events = await over(runtime, run_id, "canceled")
    after = [event.type for event in events[[event.type for event in events].index("run.canceled") :]]
    assert "action.intended" not in after
    assert len(told(events, "action.intended")) == 16
    assert sorted(told(events, "action.succeeded")) == sorted(told(events, "action.intended"))
    assert len(runtime.outside.effects) == 16


@pytest.mark.req("V-13")
async def test_a_step_that_reads_while_its_run_is_canceled_does_nothing_after_it(runtime: Any) -> None:
    """Decide on what the worker knew before the cancel, which is not good any more."""
    run_id, reading, go = await begun(runtime, 6, READ_FIRST), asyncio.Semaphore(0), asyncio.Event()
    read_before = runtime.outside.read_before

    async def slowly(call: Any) -> Any:
        reading.release()
        await go.wait()
        return await read_before(call)

    runtime.outside.read_before = slowly
    async with crew(runtime, "a", "b", concurrency=3):
        async with asyncio.timeout(60):
            for _ in range(6):
                await reading.acquire()
        async with runtime.database.transaction() as connection:
            await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")
        go.set()
        events = await over(runtime, run_id, "canceled")
    assert (told(events, "action.intended"), runtime.outside.effects) == ([], [])
    assert (len(told(events, "step.started")), len(told(events, "step.canceled"))) == (6, 6)


@pytest.mark.req("V-13")
async def test_what_is_claimed_while_its_run_is_canceled_contradicts_nothing(runtime: Any, quiet: Any) -> None:
    """The cancel leaves the rows that somebody has locked: they are no evidence against the book, and run out."""

    async def cancel() -> None:
        async with runtime.database.transaction() as connection:
            await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")

    run_id = await begun(runtime, 12)
    async with one_holds_a_step(runtime, "i000"), AsyncExitStack() as stack:
        async with held_up(runtime, run_id) as tried:
            canceling = asyncio.create_task(cancel())
            await tried(1)
            await stack.enter_async_context(crew(runtime, "late", concurrency=11))
            await tried(2)
        await canceling
        assert {place.owner for place in await runtime.books.places()} == {"starter", "late"}
        assert await oracle.wrong(runtime.faces, runtime.definitions, "acme", run_id) == []
    await runtime.until(lambda: ended(runtime, run_id))
    assert {place.owner for place in await runtime.books.places()} == {"late"}
    assert await oracle.wrong(runtime.faces, runtime.definitions, "acme", run_id) == []
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() > 0
    await over(runtime, run_id, "canceled")
    assert len(runtime.outside.effects) == 1


@pytest.mark.req("V-6")
@pytest.mark.parametrize("first", [True, False])
async def test_an_extension_in_mid_batch_costs_nobody_anything(runtime: Any, first: bool) -> None:
    run_id, names = await begun(runtime, 16), items(16)
    gates = gated(runtime, names)
    more = {"steps": [{"id": "more", "do": "probe.effect.apply", "with": {"name": "more"}}], "before": ["last"]}
    async with crew(runtime, "a", "b", concurrency=8):
        await reached(gates)
        if first:
            async with held_up(runtime, run_id) as tried:
                extending = asyncio.create_task(runtime.extend(run_id, more))
                await tried(1)
                opened(gates)
                await tried(3)
            await extending
        else:
            opened(gates, names[1:])
            await runtime.until(lambda: settles(runtime, run_id, 15))
            await runtime.extend(run_id, more)
            opened(gates)
        events = await over(runtime, run_id)
    assert told(events, "action.succeeded")[-2:] == ["more", "last"]
    assert len(runtime.outside.effects) == 18
    assert barriers(events) == sorted(set(barriers(events)))


# -- leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-9")
@pytest.mark.parametrize("waiting", [False, True])
async def test_one_lost_lease_in_a_batch_costs_the_others_nothing(
    runtime: Any, wire: Wire, waiting: bool, quiet: Any
) -> None:
    """Lose a lease before the batch goes, or while the batch waits for the row of that lease."""
    run_id, names = await begun(runtime, 8), items(8)
    gates = gated(runtime, names)
    lost = "each[3].put"
    async with crew(runtime, "a", concurrency=8):
        await reached(gates)
        async with runtime.database.transaction() as connection:
            assert await Trouble(connection).steal_leases("thief", step=lost) == 1
            if waiting:
                opened(gates)
                await runtime.until("SELECT FROM pg_locks WHERE NOT granted")
        opened(gates)

        async def late() -> bool:
            return "action.late" in await runtime.events(run_id)

        await runtime.until(late)
        await runtime.until(lambda: settles(runtime, run_id, 7))
        events = await runtime.books.events(run_id)
        assert (told(events, "action.late"), lost in told(events, "action.succeeded")) == ([lost], False)
        assert wire.widths("action.succeeded") == [7]
        await runtime.time_passes()
        await runtime.trouble.expire_leases()
        assert await runtime.sweep() == 1
        events = await over(runtime, run_id)
    assert told(events, "action.doubt_resolved") == [lost]
    assert (len(runtime.outside.effects), runtime.outside.probes) == (9, 1)


@pytest.mark.req("Q-9")
async def test_claims_that_postgresql_lost_do_nothing_beside_those_that_have_their_epochs(runtime: Any) -> None:
    """Two workers claimed the same steps under the same epochs: a crash of PostgreSQL took the first claims along."""

    async def claimed(owner: str) -> list[Any]:
        began, tools = (
            Lease.now(),
            Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), owner, LEASE),
        )
        async with runtime.database.connection() as connection:
            records = await claims.claim_next(connection, owner, LEASE, 50)
        return [Drive(tools).run(record, began) for record in records]

    run_id = await begun(runtime, 12)
    async with one_holds_a_step(runtime, "i000"):
        lost = await claimed("first")
        assert await runtime.trouble.forget_claims("first") == 11
        kept = await claimed("second")
        assert len(lost) == len(kept) == 11
        await asyncio.gather(*(drive for pair in zip(lost, kept, strict=True) for drive in pair))
    async with crew(runtime, "other", concurrency=1):
        events = await over(runtime, run_id)
    began = [event for event in events if event.type == "step.started" and event.step.startswith("each")]
    assert {(event.actor["id"], event.data["epoch"]) for event in began} == {("starter", 1), ("second", 1)}
    assert len(runtime.outside.effects) == 13


# -- caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("cap", [2, 7])
async def test_a_cap_that_is_reached_inside_a_batch_is_exact(runtime: Any, cap: int) -> None:
    """Two workers have each decided for themselves that the run may write, and cannot both be right."""
    text = WIDE.replace("steps:\n  - id: each", f"caps: {{max_writes_per_run: {cap}}}\nsteps:\n  - id: each")
    await two_decide_at_once(runtime, await begun(runtime, 24, text), cap)


@pytest.mark.req("Q-12")
async def test_a_rule_that_counts_a_run_s_writes_lets_no_more_out_than_it_says(runtime: Any) -> None:
    run_id = await begun(runtime, 24)
    await runtime.policy(AT_MOST_TWO)
    await two_decide_at_once(runtime, run_id, 2)


@pytest.mark.req("P-14")
async def test_a_rule_that_counts_what_was_refused_refuses_no_more_than_it_says(runtime: Any) -> None:
    run_id = await begun(runtime, 24)
    await runtime.policy(TWICE_REFUSED)
    await two_decide_at_once(runtime, run_id, 22)


async def two_decide_at_once(runtime: Any, run_id: UUID, writes: int) -> None:
    async with one_holds_a_step(runtime, "i000"), crew_held_up(runtime, run_id):
        pass
    events = await over(runtime, run_id, "failed_terminal")
    assert len(runtime.outside.effects) == len(told(events, "action.intended")) == writes
    outcomes = [event.data["outcome"] for event in events if event.type == "decision.made"]
    assert (outcomes.count("allow"), outcomes.count("deny")) == (writes, 24 - writes)


@asynccontextmanager
async def crew_held_up(runtime: Any, run_id: UUID) -> AsyncIterator[None]:
    """Two workers have decided about many steps each on the same state before either could append."""
    async with crew(runtime, "a", "b", concurrency=12):
        async with held_up(runtime, run_id) as tried:
            await tried(2)
        yield


# -- PostgreSQL is away ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [("a",), ("a", "b")], ids=["one", "two"])
@pytest.mark.parametrize("fate", ["lost", "landed"])
async def test_each_outcome_whose_append_got_no_answer_is_told_once(
    runtime: Any, wire: Wire, fate: str, workers: tuple[str, ...], quiet: Any
) -> None:
    """The first append of each outcome fails, of many at once: it is lost, or it landed and its answer is lost."""
    run_id, names = await begun(runtime, 24), items(24)
    gates = gated(runtime, names)
    failed: set[str] = set()
    widths: list[int] = []

    def fails(commit: Commit) -> str:
        settled = {orjson.loads(line)["step"] for line in commit.lines if b'"type":"action.succeeded"' in line}
        new = settled - failed
        failed.update(new)
        widths.append(len(settled))
        return fate if new else ""

    wire.fate = fails
    async with crew(runtime, *workers, concurrency=24 // len(workers)):
        await reached(gates)
        opened(gates)
        await runtime.until(lambda: settles(runtime, run_id, 24))
        # Whoever was not told that the last step has left appends no barrier.
        await runtime.trouble.expire_leases(step="")
        await runtime.sweep()
        events = await over(runtime, run_id)
    assert (len(failed), max(widths) > 1) == (25, True)
    outcomes = told(events, "action.succeeded")
    assert sorted(outcomes) == sorted([*(f"each[{n}].put" for n in range(24)), "last"])
    assert (told(events, "action.in_doubt"), told(events, "action.late")) == ([], [])
    assert len(runtime.outside.effects) == 25


@pytest.mark.req("Q-9")
async def test_a_known_outcome_whose_lease_was_taken_away_is_told_after_that(runtime: Any) -> None:
    """A sweeper takes the lease away; nobody has the step anew when the answer comes, and the view at hand is older."""
    run = await begun(runtime, 2)
    gates = gated(runtime, items(2))
    worker = runtime.worker()
    async with asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        group.create_task(worker.run(stop))
        await reached(gates)
        await runtime.trouble.expire_leases(step="each[0].put")
        assert await runtime.sweep() == 1
        gates["i000"].opened.set()
        await runtime.until(partial(_is_over, runtime, run, "each[0].put"))
        gates["i001"].opened.set()
        await runtime.until(partial(_has_ended, runtime, run))
        stop.set()
    assert [event for event in await runtime.events(run) if event == "step.succeeded"] == ["step.succeeded"] * 3
    assert len(runtime.outside.effects) == 3


async def _is_over(runtime: Any, run: UUID, step: str) -> bool:
    return (await runtime.steps(run))[step] == "succeeded"


async def _has_ended(runtime: Any, run: UUID) -> bool:
    return (await runtime.status(run)) == "succeeded"


@pytest.mark.req("Q-9")
async def test_a_late_answer_between_a_decision_and_its_append_contradicts_nothing(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next holder has decided, at a time before that of the late answer, and appends after it."""
    run = await begun(runtime, 2)
    gate = gated(runtime, ["i000"])["i000"]
    slow = asyncio.create_task(runtime.worker("slow").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    await runtime.time_passes()
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() == 1

    async def is_told() -> bool:
        return "action.late" in await runtime.events(run)

    async def late_first(connection: Connection, commit: Commit) -> Any:
        if any(b'"each[0].put","ts"' in line and b'"step.started"' in line for line in commit.lines):
            gate.opened.set()
            await runtime.until(is_told)
        return await apply(connection, commit)

    monkeypatch.setattr(committer, "apply", late_first)
    await runtime.worker("fast").work_off()
    await slow
    events = await over(runtime, run)
    assert told(events, "action.late") == told(events, "action.doubt_resolved") == ["each[0].put"]


@pytest.mark.req("Q-9")
@pytest.mark.parametrize("kind", ["action.in_doubt", "action.doubt_resolved"])
async def test_a_late_answer_that_an_outcome_did_not_know_leaves_the_run_its_evidence(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """An open neighbor keeps the barrier away, so the outcome commutes: it is appended as it was decided."""
    run = await begun(runtime, 3)
    gates = gated(runtime, ["i000", "i002"])
    slow = asyncio.create_task(runtime.worker("slow", concurrency=1).work_off())
    await reached({"i000": gates["i000"]})
    await runtime.time_passes()
    await runtime.trouble.expire_leases(step="each[0].put")
    assert await runtime.sweep() == 1

    async def is_told() -> bool:
        return "action.late" in await runtime.events(run)

    async def late_first(connection: Connection, commit: Commit) -> Any:
        if any(b'"each[0].put","ts"' in line and f'"type":"{kind}"'.encode() in line for line in commit.lines):
            gates["i000"].opened.set()
            await runtime.until(is_told)
        return await apply(connection, commit)

    monkeypatch.setattr(committer, "apply", late_first)
    async with crew(runtime, "fast", concurrency=4):
        await runtime.until(is_told)
        gates["i002"].opened.set()
        await slow
        await over(runtime, run)
    await sound(runtime, run, tmp_path)


@pytest.mark.req("Q-9")
async def test_what_is_claimed_anew_during_an_append_from_here_is_decided_on_the_book(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, quiet: Any
) -> None:
    """The append was built before the lease of another step was taken away; that step comes back to the same worker.

    What the worker holds after its append has the step as running, and the book has it as ready.
    """
    run, tools = (
        await begun(runtime, 3),
        Tools(runtime.database, runtime.definitions, ForAll(runtime.connectors), "a", LEASE),
    )
    held_back, claimed_anew = asyncio.Event(), asyncio.Event()

    async def slowly(connection: Connection, commit: Commit) -> Any:
        if any(b'"type":"action.succeeded"' in line and b'"each[1].put"' in line for line in commit.lines):
            held_back.set()
            await claimed_anew.wait()
        return await apply(connection, commit)

    async def drives(count: int) -> list[Any]:
        began = Lease.now()
        async with runtime.database.connection() as connection:
            records = await claims.claim_next(connection, "a", LEASE, count)
        return [Drive(tools).run(record, began) for record in records]

    monkeypatch.setattr(committer, "apply", slowly)

    async def begins(count: int) -> bool:
        return len(told(await runtime.books.events(run), "step.started")) >= count

    gates = gated(runtime, items(3))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for drive in await drives(1):
            group.create_task(drive)
        await runtime.until(partial(begins, 1))
        for drive in await drives(2):
            group.create_task(drive)
        await reached(gates)
        await runtime.trouble.expire_leases(step="each[0].put")
        assert await runtime.sweep() == 1
        gates["i001"].opened.set()
        await held_back.wait()
        before = tools.recent.get(run).exact.version
        for drive in await drives(1):
            group.create_task(drive)

        async def read() -> bool:
            return tools.recent.get(run).exact.version > before

        await runtime.until(read)
        claimed_anew.set()
        await runtime.until(partial(_is_over, runtime, run, "each[0].put"))
        opened(gates)
    async with crew(runtime, "other", concurrency=1):
        events = await over(runtime, run)
    began = [event.data["epoch"] for event in events if event.type == "step.started" and event.step == "each[0].put"]
    assert (began, len(runtime.outside.effects)) == ([1, 2], 4)
