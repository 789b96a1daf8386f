"""PostgreSQL goes away between an effect and its outcome: what is known is kept, and told once (promises 2 and 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest
import structlog
from msgspec import field

from connectors.port import NotSent
from core.db import ENGINE_ROLE, Connection, Database
from runtime.engine.model.rows import Commit
from runtime.keep import sweeper as sweeper_module
from runtime.keep.dispatcher import Lanes
from runtime.keep.sweeper import Sweeper
from runtime.store.commits import apply, apply_together
from runtime.work import committer, pump
from tests.support.insides import beat, held_by

# Nobody can be asked about a mail but people: a dropped outcome is a question.
TWO = """
workflow: two
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.mail.send, with: {text: "a${{ trigger.n }}"}}
  - {id: b, do: probe.mail.send, with: {text: "b${{ trigger.n }}"}}
"""
PROBED = """
workflow: two
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
"""
RUNS = 8


class Line:
    """The line to PostgreSQL: whole, or cut and refusing everybody."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._cut = False
        self._refusals = asyncio.Condition()
        self.refused = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if not self._cut:
            there, back = await asyncio.open_connection(*self._to)
            self._writers.add(back)
        # The line may have been cut while the far end was opened, too.
        if self._cut:
            self.cut()
            async with self._refusals:
                self.refused += 1
                self._refusals.notify_all()
            return
        with suppress(OSError):
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    def cut(self) -> None:
        self._cut = True
        while self._writers:
            self._writers.pop().transport.abort()

    def mend(self) -> None:
        self._cut = False

    async def refuses(self, times: int) -> None:
        """Wait until that many more have been refused."""
        wanted = self.refused + times
        async with asyncio.timeout(60), self._refusals:
            await self._refusals.wait_for(lambda: self.refused >= wanted)


@pytest.fixture
async def line(database_url: str) -> AsyncIterator[tuple[Line, str]]:
    """A line, and the address at its near end."""
    url = urlsplit(database_url)
    line = Line(str(url.hostname), int(url.port or 0))
    server = await asyncio.start_server(line.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield line, url._replace(netloc=url.netloc.rpartition(":")[0] + f":{port}").geturl()
    line.cut()
    server.close()
    await server.wait_closed()


class Crowd:
    """Holds every call up after its effect, until all have come."""

    def __init__(self, runtime: Any, step: str, number: int) -> None:
        self.gates = [runtime.gate_type(after_effect=True) for _ in range(number)]
        perform = runtime.outside.perform

        async def held(call: Any) -> Any:
            outcome = await perform(call)
            if call.input["text"].startswith(step):
                await self.gates[int(call.input["text"][1:])].hold()
            return outcome

        runtime.outside.perform = held

    async def reached(self) -> None:
        await asyncio.wait_for(asyncio.gather(*(gate.reached.wait() for gate in self.gates)), 60)

    def go(self) -> None:
        for gate in self.gates:
            gate.opened.set()


async def begun(runtime: Any, text: str = TWO, runs: int = RUNS) -> list[UUID]:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(text)
    return [(await runtime.start("two", {"n": str(n)}, ref=str(n))).run_id for n in range(runs)]


@asynccontextmanager
async def working(world: Any, **options: Any) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    task = asyncio.create_task(world.worker("away", **options).run(stop))
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


async def ended(runtime: Any, runs: Sequence[UUID], effects: int) -> None:
    """Every outcome was told once, nothing was done twice, and nobody was asked."""

    async def all_succeeded() -> bool:
        return len(await runtime.books.runs(status="succeeded")) == len(runs)

    await runtime.until(all_succeeded)
    assert len(runtime.outside.effects) == effects
    assert await runtime.books.approvals() == []
    for run_id in runs:
        events = await runtime.events(run_id)
        assert (events.count("action.succeeded"), events.count("action.in_doubt")) == (effects // len(runs), 0)
        await runtime.history(run_id)
    await runtime.at_rest()


async def not_settled_at_once(runtime: Any) -> list[Any]:
    """The receipts of actions that took more than one attempt, or have not succeeded."""
    return [row for row in await runtime.books.receipts() if row.attempt > 1 or row.status != "succeeded"]


def tells(commit: Commit, kind: str) -> bool:
    """True if a line of this type is in the commit."""
    return any(f'"type":"{kind}"'.encode() in line for line in commit.lines)


class Fault:
    """The first commit of each run that settles an effect gets no answer: it is lost, or it landed."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, landed: bool, also: Callable[[], None] | None = None
    ) -> None:
        self.landed, self.also = landed, also
        self.faults: set[UUID] = set()
        self.grouped = 0
        monkeypatch.setattr(committer, "apply", self.apply)
        monkeypatch.setattr(pump, "apply", self.apply)
        monkeypatch.setattr(committer, "apply_together", self.apply_together)

    def _new(self, commits: Sequence[Commit]) -> bool:
        settles = {c.run_id for c in commits if tells(c, "action.succeeded")}
        new = settles - self.faults
        self.faults |= new
        return bool(new)

    async def apply(self, connection: Connection, commit: Commit) -> Any:
        return await self._do(connection, [commit], lambda: apply(connection, commit))

    async def apply_together(self, connection: Connection, commits: Sequence[Commit]) -> Any:
        self.grouped += 1
        return await self._do(connection, commits, lambda: apply_together(connection, commits))

    async def _do(self, connection: Connection, commits: Sequence[Commit], write: Callable[[], Any]) -> Any:
        fails = self._new(commits)
        if fails and not self.landed:
            await connection.execute("SELECT 1")  # the others come meanwhile, and wait for each other
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        written = await write()
        if fails:
            if self.also is not None:
                self.also()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return written


@pytest.mark.parametrize("landed", [False, True])
async def test_outcomes_whose_settle_got_no_answer_are_told_once(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, landed: bool, quiet: Any
) -> None:
    fault = Fault(monkeypatch, landed=landed)
    runs = await begun(runtime)
    crowd = Crowd(runtime, "a", RUNS)
    async with working(runtime, concurrency=RUNS):
        await crowd.reached()
        crowd.go()
        await ended(runtime, runs, 2 * RUNS)
    assert (len(fault.faults), fault.grouped > 0) == (RUNS, True)
    assert await not_settled_at_once(runtime) == []


@pytest.mark.parametrize("swept", [False, True])
async def test_outcomes_outlast_a_database_that_is_away_for_longer_than_the_leases(
    runtime: Any, line: tuple[Line, str], swept: bool, quiet: Any
) -> None:
    runs = await begun(runtime)
    crowd = Crowd(runtime, "a", RUNS)
    async with (
        Database(line[1], ENGINE_ROLE, connections=8) as database,
        working(replace(runtime, database=database), concurrency=RUNS, lease=1.5),
    ):
        await crowd.reached()
        line[0].cut()
        crowd.go()
        await line[0].refuses(4 * RUNS)
        await runtime.until(runtime.books.leases_are_over)
        if swept:
            assert await runtime.sweep() == RUNS
        line[0].mend()
        await ended(runtime, runs, 2 * RUNS)
    assert await not_settled_at_once(runtime) == []
    assert ("lease.expired" in await runtime.events(runs[0])) is swept


async def test_an_outcome_is_refused_once_somebody_else_has_the_step(
    runtime: Any, line: tuple[Line, str], late_gate: Any, quiet: Any
) -> None:
    (run_id,) = await begun(runtime, PROBED, runs=1)
    runtime.outside.gates["a"] = late_gate
    async with Database(line[1], ENGINE_ROLE) as database:
        async with working(replace(runtime, database=database), lease=1.5):
            await asyncio.wait_for(late_gate.reached.wait(), 60)
            line[0].cut()
            late_gate.opened.set()
            await line[0].refuses(4)
            await runtime.until(runtime.books.leases_are_over)
            assert await runtime.sweep() == 1
            other = runtime.gate_type()

            async def probe(call: Any, *, seconds_since_intent: float) -> Any:
                await other.hold()
                return await type(runtime.outside).probe(runtime.outside, call, seconds_since_intent=0)

            runtime.outside.probe = probe
            owner = asyncio.create_task(runtime.worker("owner").work_off())
            await asyncio.wait_for(other.reached.wait(), 60)
            before = (await runtime.books.run()).version
            line[0].mend()
        # The worker has ended: it was refused, and told what it knew once PostgreSQL was back, and nothing else.
        assert (await runtime.books.run()).version == before + 1
        assert (await runtime.events(run_id))[-1] == "action.late"
        other.opened.set()
        await owner
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert (await runtime.books.step()).output == {"applied": "found"}
    assert (await runtime.events(run_id)).count("action.succeeded") == 0
    await runtime.history(run_id)
    await runtime.at_rest()


@pytest.mark.parametrize("swept", [False, True])
async def test_what_was_intended_by_a_commit_without_answer_is_known_not_to_be_sent(
    runtime: Any, line: tuple[Line, str], monkeypatch: pytest.MonkeyPatch, swept: bool, quiet: Any
) -> None:
    """The commit that settles the first step intends the second, whose lease ends before PostgreSQL is back."""
    Fault(monkeypatch, landed=True, also=line[0].cut)
    (run_id,) = await begun(runtime, runs=1)
    async with (
        Database(line[1], ENGINE_ROLE) as database,
        working(replace(runtime, database=database), lease=1.5, concurrency=1),
    ):
        await line[0].refuses(8)
        await runtime.until(runtime.books.leases_are_over)
        assert [len(runtime.outside.effects), await runtime.steps(run_id)] == [
            1,
            {"a": "succeeded", "b": "running"},
        ]
        if swept:
            assert await runtime.sweep() == 1
        line[0].mend()
        await runtime.until(lambda: runtime.books.runs(status="failed_retryable"))
        await runtime.trouble.make_waits_due()
        assert await runtime.sweep() == 1
        await ended(runtime, [run_id], 2)


async def test_a_heartbeat_between_a_settle_and_its_answer_warns_of_nothing(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of the lease is gone because the step is over: nothing is lost, and nothing given up."""
    (run_id,) = await begun(runtime, PROBED, runs=1)
    worker = runtime.worker("w")
    beats = 0

    async def answered_late(connection: Connection, commit: Commit) -> Any:
        nonlocal beats
        applied = await apply(connection, commit)
        if tells(commit, "action.succeeded"):
            assert [claim.key for _, claim, _ in held_by(worker)] == ["a"]
            await beat(worker)
            beats += 1
        return applied

    monkeypatch.setattr(committer, "apply", answered_late)
    monkeypatch.setattr(pump, "apply", answered_late)
    with structlog.testing.capture_logs() as logs:
        stop = asyncio.Event()
        task = asyncio.create_task(worker.run(stop))
        await ended(runtime, [run_id], 1)
        stop.set()
        await asyncio.wait_for(task, 60)
    assert (beats, [entry for entry in logs if entry["log_level"] != "info"]) == (1, [])


async def test_a_process_that_ends_meanwhile_says_what_it_could_not_tell(runtime: Any, line: tuple[Line, str]) -> None:
    (run_id,) = await begun(runtime, PROBED, runs=1)
    gate = runtime.gate_type(after_effect=True)
    runtime.outside.gates["a"] = gate
    async with Database(line[1], ENGINE_ROLE) as database:
        with structlog.testing.capture_logs() as logs:
            async with working(replace(runtime, database=database)) as stop:
                await asyncio.wait_for(gate.reached.wait(), 60)
                line[0].cut()
                gate.opened.set()
                await line[0].refuses(4)
                stop.set()
    step = await runtime.books.step()
    assert [entry["step"] for entry in logs if entry["log_level"] == "error"] == [str(step.id)]
    await runtime.trouble.expire_leases()
    await runtime.sweep()
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


async def test_a_refusal_of_the_target_is_kept_as_well(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, quiet: Any
) -> None:
    """Keep a refusal like any other outcome: it certainly did not happen."""
    lost = 0

    async def faulty(connection: Connection, commit: Commit) -> Any:
        nonlocal lost
        if tells(commit, "action.failed") and not lost:
            lost += 1
            raise asyncpg.TooManyConnectionsError("sorry, too many clients already")
        return await apply(connection, commit)

    monkeypatch.setattr(committer, "apply", faulty)
    runtime.outside.script["a"] = [NotSent("busy")]
    (run_id,) = await begun(runtime, PROBED, runs=1)
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), lost) == ("failed_retryable", 1)
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


class Counted(Sweeper):
    """A sweeper that says when it has swept."""

    interval: timedelta = timedelta(milliseconds=20)
    swept: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    async def turn(self, lanes: Lanes) -> int:
        found = await super().turn(lanes)
        self.swept.put_nowait(found)
        return found


async def test_a_sweeper_spares_leases_that_nobody_could_beat(
    runtime: Any, line: tuple[Line, str], gate: Any, monkeypatch: pytest.MonkeyPatch, quiet: Any
) -> None:
    await begun(runtime, PROBED, runs=1)
    runtime.outside.gates["a"] = gate
    stop = asyncio.Event()
    async with Database(line[1], ENGINE_ROLE) as database, working(runtime, lease=60):
        await asyncio.wait_for(gate.reached.wait(), 60)
        await runtime.trouble.expire_leases()
        line[0].cut()
        sweeper = Counted(database, runtime.definitions)
        sweeping = asyncio.create_task(sweeper.run(stop))
        await line[0].refuses(2)
        line[0].mend()
        # Each of these has found the lease over.
        assert [await asyncio.wait_for(sweeper.swept.get(), 60) for _ in range(3)] == [0, 0, 0]
        assert (await runtime.books.step()).status == "running"
        gate.opened.set()
        stop.set()
        await sweeping
    assert len(runtime.outside.effects) == 1


async def test_a_sweeper_takes_leases_away_in_the_end(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its patience after an outage has an end."""
    await begun(runtime, PROBED, runs=1)
    gate = runtime.gate_type()
    runtime.outside.gates["a"] = gate
    dying = asyncio.create_task(runtime.worker("dying").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    dying.cancel()
    await asyncio.wait({dying})
    await runtime.trouble.expire_leases()
    sweeper, stop, turn = Counted(runtime.database, runtime.definitions), asyncio.Event(), Sweeper.turn

    async def away(_: Sweeper, lanes: Lanes) -> int:
        monkeypatch.setattr(Sweeper, "turn", turn)
        raise asyncpg.CannotConnectNowError("the database system is starting up")

    monkeypatch.setattr(sweeper_module, "SPARED_SECONDS", 0.1)
    monkeypatch.setattr(Sweeper, "turn", away)
    sweeping = asyncio.create_task(sweeper.run(stop))
    while await asyncio.wait_for(sweeper.swept.get(), 60) == 0:
        continue
    stop.set()
    await sweeping
    assert (await runtime.books.step()).status == "ready"
