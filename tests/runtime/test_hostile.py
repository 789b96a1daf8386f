"""A bounded, seeded storm: workers die at any await, leases are stolen, people click at once, policies change.

What goes wrong is planned by the seed alone: the fates of calls by their target and turn, those of the database by the
dying worker's name and turn. After the storm everything is let finish, and then the promises are counted.
COUNTERSEAL_DEEP=1 weathers many more.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from approvals.model import CardView, Choice, TaskView, VoteChannel
from approvals.ports import Absent, FindOutcome, MessageRef, NotPosted, Posted, PostInDoubt, PostOutcome
from connectors.port import Before, Call, Connectors, Done, InDoubt, NotSent, Outcome, Probe, ProbeVerdict, Refused
from core.db import ENGINE_ROLE, FACES_ROLE, Connection, Database
from core.errors import ConsistencyError
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.errands import Errands
from runtime.keep.messages import Messages
from runtime.keep.scheduler import Scheduler
from runtime.keep.sweeper import Sweeper
from runtime.queue.postgres import PostgresQueue
from runtime.requests.steering import cancel_run
from runtime.requests.voting import VoteRequest, Voting
from runtime.store import claims
from runtime.work.holding import Tools
from runtime.work.worker import Worker
from tests.support.book import Question
from tests.support.for_all import ForAll
from tests.support.telling import UNTOLD

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
SEEDS = range(40) if DEEP else range(4)
RUNS = 10
CAP = 4
STORM_SECONDS = 1.3
LEASE = timedelta(seconds=0.4)
CALM_ROUNDS = 400

WORKFLOWS = (
    """
workflow: sequence
version: 1
reference: ${{ trigger.ref }}
channels: {names: {reduce: append}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: "${{ trigger.n }}-a"}, set: {names: "${{ output.name }}"}}
  - {id: r, do: probe.value.read, with: {name: "${{ trigger.n }}-r"}}
  - {id: b, do: probe.key.put, with: {name: "${{ trigger.n }}-b"}}
  - {id: c, do: probe.mail.send, with: {text: "${{ trigger.n }}-c"}}
""",
    """
workflow: diamond
version: 1
reference: ${{ trigger.ref }}
channels: {names: {reduce: append}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: "${{ trigger.n }}-a"}, needs: []}
  - {id: b, do: probe.record.update, with: {name: "${{ trigger.n }}-b", fields: {priority: "1"}}, needs: []}
  - {id: c, do: probe.mail.send, with: {text: "${{ trigger.n }}-c"}, needs: []}
  - {id: d, do: probe.effect.apply, with: {name: "${{ trigger.n }}-d"}, needs: [a, b, c], set: {names: "${{ 'd' }}"}}
""",
    """
workflow: branch
version: 1
reference: ${{ trigger.ref }}
steps:
  - {id: r, do: probe.value.read, with: {name: "${{ trigger.n }}-r", value: "${{ trigger.n }}"}}
  - if: ${{ steps.r.output.value == trigger.n }}
    then:
      - id: ok
        approve: {summary: Go on?, approvers: {group: owners}}
      - {id: t, do: probe.ticket.open, with: {name: "${{ trigger.ref }}"}}
    else:
      - {id: e, do: probe.effect.apply, with: {name: "${{ trigger.n }}-e"}}
  - {id: z, do: probe.effect.apply, with: {name: "${{ trigger.n }}-z"}}
""",
    """
workflow: loop
version: 1
reference: ${{ trigger.ref }}
channels: {seen: {reduce: append}}
steps:
  - foreach: ${{ trigger.items }}
    max_parallel: 3
    steps:
      - {id: p, do: probe.effect.apply, with: {name: "${{ item }}-p"}, set: {seen: "${{ item }}"}}
      - {id: q, do: probe.record.update, with: {name: "${{ item }}-q", fields: {owner: "x"}}}
  - {id: z, do: probe.ticket.open, with: {name: "${{ trigger.ref }}"}}
""",
)
POLICY = """
policy: storm
version: VERSION
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
  - id: people
    match: {operation: probe.record.update}
    outcome: needs_approval
    tier: high
    unresolved: ask
    approvers: [{group: owners, of: 1}]
    expires: PT8H
    remind: [PT1H]
    because: People look at records.
"""


# -- the weather -----------------------------------------------------------------------------------------------------


# The task dies here, as if its process had. (A task group tells a subclass from the real thing.)
Killed = asyncio.CancelledError


@dataclass
class Weather:
    """The odds that something goes wrong now; calm means never."""

    seed: int
    wild: bool = True

    def chance(self, *name: object) -> float:
        """A number of [0, 1), always the same for the same name; 1 when it is calm."""
        return Random(":".join(map(str, (self.seed, *name)))).random() if self.wild else 1.0


class FaultyDatabase(Database):
    """A database whose users die before, during or after what they do with it."""

    async def __aenter__(self) -> FaultyDatabase:
        await super().__aenter__()
        return self

    def weather(self, weather: Weather, owner: str, rate: float = 0.03) -> FaultyDatabase:
        self._weather, self._owner, self._rate, self._turn = weather, owner, rate, 0
        return self

    def _dies(self) -> str:
        self._turn += 1
        chance = self._weather.chance("db", self._owner, self._turn) / self._rate
        return ["lost", "torn", "landed"][int(chance * 3)] if chance < 1 else ""

    @asynccontextmanager
    async def connection(self, tenant: str = "") -> AsyncIterator[Connection]:
        fate = self._dies()
        if fate == "lost":
            raise Killed
        async with super().connection(tenant) as connection:
            yield connection
        if fate:
            raise Killed

    @asynccontextmanager
    async def transaction(
        self, tenant: str | None = None, *, patience: float | None = None
    ) -> AsyncIterator[Connection]:
        torn = self._dies() == "torn"
        async with super().transaction(tenant, patience=patience) as connection:
            yield connection
            if torn:
                raise Killed


@dataclass
class StormyOutside:
    """The outside system: counts effects by key, and fails before or after them as the weather says."""

    weather: Weather
    effects: Counter[str] = field(default_factory=Counter)
    inside: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    target: str = ""

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        if self._fate(call, "read") < 0.1:
            return NotSent("not now")
        return Before(dict.fromkeys(call.input["fields"], None), str(self.versions[call.input["name"]]))

    def _fate(self, call: Call, what: str) -> float:
        name = f"{what}:{call.operation}:{call.input.get('name', call.input.get('text'))}"
        self.turns[name] += 1
        return self.weather.chance(name, self.turns[name])

    async def perform(self, call: Call) -> Outcome:
        key = call.idempotency_key
        self.inside[key] += 1
        try:
            return await self._act(call)
        finally:
            self.inside[key] -= 1

    async def _act(self, call: Call) -> Outcome:
        fate = self._fate(call, "perform")
        before: dict[float, Callable[[], Outcome]] = {
            0.04: lambda: NotSent("refused connection", retry_after_seconds=1),
            0.08: lambda: InDoubt("lost before"),
            0.11: lambda: self._raise(RuntimeError("a connector's bug")),
            0.15: lambda: self._raise(Killed()),
            0.16: lambda: Refused("409", "conflict"),
        }
        after: dict[float, Callable[[], Outcome]] = {
            0.20: lambda: InDoubt("lost after"),
            0.24: lambda: self._raise(RuntimeError("a connector's bug")),
            0.28: lambda: self._raise(Killed()),
        }
        for limit, answer in before.items():
            if fate < limit:
                return answer()
        await asyncio.sleep(0.6 if 0.28 <= fate < 0.31 else 0)
        done = self._apply(call)
        for limit, answer in after.items():
            if 0.16 <= fate < limit:
                return answer()
        await asyncio.sleep(0.6 if 0.31 <= fate < 0.34 else 0)
        return done

    def _raise(self, error: BaseException) -> Outcome:
        raise error

    def _apply(self, call: Call) -> Done:
        if call.operation == "probe.value.read":
            return Done({"value": call.input.get("value", "")})
        if call.operation != "probe.key.put" or not self.effects[call.idempotency_key]:
            self.effects[call.idempotency_key] += 1
        if call.operation == "probe.record.update":
            self.versions[call.input["name"]] += 1
        return Done({"name": call.input.get("name", "")}, external_id="x")

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        if self.inside[call.idempotency_key] or self._fate(call, "probe") < 0.2:
            return Probe(ProbeVerdict.CANNOT_TELL, "too early", retry_after_seconds=1)
        if self.effects[call.idempotency_key]:
            return Probe(ProbeVerdict.APPLIED, "there", Done({"name": call.input.get("name", "")}))
        return Probe(ProbeVerdict.NOT_APPLIED, "not there")

    async def check(self) -> tuple[bool, str]:
        return True, "stormy"

    async def aclose(self) -> None:
        return None


@dataclass
class StormyBoard:
    """A messenger that loses and lands posts; a card is never posted twice."""

    weather: Weather
    keys: dict[str, str] = field(default_factory=dict)
    turn: int = 0

    async def post_card(self, channel: str, view: CardView, key: str) -> PostOutcome:
        self.turn += 1
        chance = self.weather.chance("card", self.turn)
        if chance < 0.1:
            return NotPosted("busy", 0.0)
        if chance < 0.2:
            return PostInDoubt("lost")
        assert key not in self.keys, f"the card {key} was posted twice"
        self.keys[key] = f"{self.turn}.0"
        return PostInDoubt("landed") if chance < 0.3 else Posted(MessageRef(channel, self.keys[key]))

    async def post_list(self, channel: str, view: Any, key: str) -> PostOutcome:
        return await self.post_card(channel, view, key)

    async def update_list(self, ref: MessageRef, view: Any) -> PostOutcome:
        return await self.update_card(ref, view)

    async def update_card(self, ref: MessageRef, view: CardView) -> PostOutcome:
        assert ref.ts in self.keys.values()
        return Posted(ref)

    async def find_card(self, channel: str, key: str, *, since: float) -> FindOutcome:
        return Posted(MessageRef(channel, self.keys[key])) if key in self.keys else Absent()

    async def post_task(self, channel: str, view: TaskView, key: str) -> PostOutcome:
        raise AssertionError("there are no tasks here")

    async def update_task(self, ref: MessageRef, view: TaskView) -> PostOutcome:
        raise AssertionError("there are no tasks here")

    async def post_thread(self, ref: MessageRef, text: str, key: str) -> PostOutcome:
        return Posted(ref)

    async def post_ephemeral(self, channel: str, user: str, text: str) -> PostOutcome:
        return Posted(MessageRef(channel, "0.0"))


@dataclass
class LossyDelivery:
    """A message that names a step; it dies with whoever received it."""

    step_id: UUID

    async def claim(self, connection: Connection, owner: str, lease: timedelta, count: int) -> Any:
        return await claims.claim_step(connection, owner, lease, self.step_id)

    async def extend(self, lease: timedelta) -> None:
        return None

    async def done(self) -> None:
        return None


@dataclass
class LossyQueue:
    """A queue that refuses, loses, doubles and reorders messages."""

    weather: Weather
    needs_dispatch = True
    messages: list[UUID] = field(default_factory=list)
    turn: int = 0

    async def receive(self, count: int) -> list[LossyDelivery]:
        await asyncio.sleep(0.01 if self.weather.wild else 0)
        return [LossyDelivery(self.messages.pop()) for _ in range(min(count, len(self.messages)))]

    async def sent(self, messages: list[tuple[str, str, str]]) -> list[str]:
        accepted = []
        for dedupe_key, _, step_id in messages:
            self.turn += 1
            chance = self.weather.chance("queue", self.turn)
            copies = 0 if chance < 0.2 else 2 if chance < 0.35 else 1
            self.messages += [UUID(step_id)] * copies
            if chance > 0.1:
                accepted.append(dedupe_key)
        return accepted

    async def aclose(self) -> None:
        return None


# -- one storm -------------------------------------------------------------------------------------------------------


class Storm:
    """One tenant, its runs, and everybody who works, clicks, steals and dies."""

    def __init__(self, runtime: Any, url: str, folder: Path, seed: int) -> None:
        self.runtime, self.url, self.folder, self.seed = runtime, url, folder, seed
        self.tenant = f"storm{seed}"
        self.weather = Weather(seed)
        self.random = Random(seed)
        self.outside = StormyOutside(self.weather)
        self.board = StormyBoard(self.weather)
        self.lossy = LossyQueue(self.weather) if seed % 2 else None
        self.signer = FileSigner.load_or_create(folder / "key.pem")
        self.runs: list[UUID] = []
        self.policies = 1
        self.deaths = 0
        self.stop = asyncio.Event()
        self.wrong: list[str] = []

    async def prepare(self) -> None:
        await self.runtime.tenant(self.tenant, concurrency=CAP)
        await self.runtime.policy(POLICY.replace("VERSION", "1"), self.tenant)
        for text in WORKFLOWS:
            await self.runtime.publish(text, self.tenant)
        for person, group in (("ana", "owners"), ("ben", "owners"), ("olga", "operators"), ("otto", "operators")):
            await self.runtime.person(person, (group,), self.tenant)
        for number in range(RUNS):
            name = self.random.choice(WORKFLOWS).split()[1]
            unique = f"{self.seed}.{number}"
            trigger = {"n": unique, "ref": f"{self.seed}.{number % 4}", "items": [f"{unique}.{n}" for n in range(4)]}
            started = await self.runtime.start(name, trigger, ref=unique, tenant=self.tenant)
            self.runs.append(started.run_id)

    def tools(self, database: Database, owner: str) -> Tools:
        return Tools(database, self.runtime.definitions, ForAll(Connectors({"probe": self.outside})), owner, LEASE)

    def dispatcher(self, database: Database, owner: str) -> Dispatcher:
        messages = Messages(self.board, "C1", self.runtime.definitions)
        bundling = Bundling(FileBlobStore(self.folder / "blobs"), self.signer, "test", self.runtime.definitions)
        errands = Errands(database, self.runtime.definitions, Connectors({"probe": self.outside}))
        handlers = {**messages.handlers(), **bundling.handlers(), **errands.handlers(), **UNTOLD}
        return Dispatcher(database, handlers, owner, idle=timedelta(seconds=0.05))

    async def weather_it(self) -> None:
        """The storm itself."""
        actors = [
            *(self._reborn(f"w{n}", self._work) for n in range(3)),
            *(self._reborn(f"d{n}", self._dispatch) for n in range(2)),
            *(self._reborn(f"q{n}", self._admit) for n in range(2) if self.lossy),
            self._again(self._sweep, 0.05),
            self._again(self._sweep, 0.08),
            self._again(self._steal, 0.12),
            self._again(self._hurry, 0.06),
            self._again(self._vote, 0.03),
            self._again(self._vote, 0.05),
            self._again(self._cancel, 0.5),
            self._again(self._republish, 0.4),
            self._again(self._look, 0.01),
        ]
        tasks = [asyncio.create_task(actor) for actor in actors]
        await asyncio.wait(tasks, timeout=STORM_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        self.stop.set()
        self.weather.wild = False
        await asyncio.gather(*tasks)

    async def _again(self, act: Callable[[], Awaitable[object]], every: float) -> None:
        while not self.stop.is_set():
            with suppress(Killed):
                await act()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), every)

    async def _reborn(self, name: str, live: Callable[[Database, str], Awaitable[object]]) -> None:
        """Lives that end by the weather, or by being killed at any await, one after the other."""
        life = 0
        while not self.stop.is_set():
            life += 1
            owner = f"{name}.{life}"
            async with FaultyDatabase(self.url, ENGINE_ROLE, connections=6) as database:
                living: asyncio.Task[Any] = asyncio.create_task(live(database.weather(self.weather, owner), owner))
                span = 0.05 + self.weather.chance("life", owner) * 0.8
                stopping = asyncio.create_task(self.stop.wait())
                await asyncio.wait({living, stopping}, timeout=span, return_when=asyncio.FIRST_COMPLETED)
                if not self.stop.is_set():
                    self.deaths += 1
                    living.cancel()
                stopping.cancel()
                await asyncio.wait({living, stopping})
                if not living.cancelled() and (error := living.exception()):
                    self.wrong.append(f"{owner} ended by {error!r}")

    async def _work(self, database: Database, owner: str) -> None:
        queue = self.lossy or PostgresQueue(idle=timedelta(seconds=0.01))
        await Worker(self.tools(database, owner), queue, concurrency=4).run(self.stop)

    def scheduler(self, database: Database, owner: str) -> Scheduler:
        assert self.lossy
        return Scheduler(
            database,
            self.lossy,
            owner,
            idle=timedelta(seconds=0.03),
            claimed_within=timedelta(seconds=0.3),
        )

    async def _admit(self, database: Database, owner: str) -> None:
        await self.scheduler(database, owner).run(self.stop)

    async def _dispatch(self, database: Database, owner: str) -> None:
        await self.dispatcher(database, owner).run(self.stop)

    async def _sweep(self) -> None:
        await self.runtime.trouble.expire_message_leases(older_than=timedelta(seconds=0.5))
        await self.runtime.trouble.expire_sent(older_than=timedelta(seconds=0.5))
        async with FaultyDatabase(self.url, ENGINE_ROLE) as database:
            name = f"s{self.random.random()}"
            with suppress(asyncpg.DeadlockDetectedError):  # PostgreSQL chose this one; the next sweep comes soon
                await Sweeper(database.weather(self.weather, name, 0.05), self.runtime.definitions).sweep()

    async def _steal(self) -> None:
        await self.runtime.trouble.expire_some_lease(self.tenant)

    async def _hurry(self) -> None:
        await self.runtime.time_passes()
        await self.runtime.trouble.make_waits_due("retry", tenant=self.tenant)
        await self.runtime.trouble.retry_messages_now(tenant=self.tenant)

    async def _vote(self) -> None:
        for question in await self.runtime.books.open_questions(self.tenant):
            choices = self._choices(question)
            if choices is None:
                continue
            people = ("olga", "otto") if question.kind == "in_doubt" else ("ana", "ben")
            asked = [(person, choice) for person in people for choice in choices]
            await asyncio.gather(*(self._click(question.id, *vote) for vote in asked))

    def _choices(self, question: Question) -> list[Choice] | None:
        """The choices of honest people, who sometimes contradict each other; None if they cannot know yet."""
        lucky = self.random.random()
        if question.kind != "in_doubt":
            if not self.weather.wild:
                return [Choice.APPROVE]
            return [Choice.REJECT] if lucky < 0.04 else [Choice.APPROVE] * (1 + int(lucky * 3))
        if self.outside.inside[question.key]:
            return None
        if self.weather.wild and lucky < 0.1:
            return [Choice.FAIL]
        return [Choice.HAPPENED if self.outside.effects[question.key] else Choice.AGAIN]

    async def _click(self, approval: UUID, person: str, choice: Choice) -> None:
        async with FaultyDatabase(self.url, FACES_ROLE) as faces:
            name = f"v{self.random.random()}"
            voting = Voting(faces.weather(self.weather, name), self.runtime.definitions)
            request = VoteRequest(self.tenant, approval, person, choice, "because", VoteChannel.CLI)
            with suppress(Killed):
                await voting.vote(request)

    async def _cancel(self) -> None:
        if self.random.random() < 0.5:
            return
        run_id = self.random.choice(self.runs)
        async with FaultyDatabase(self.url, ENGINE_ROLE) as database:
            with suppress(ConsistencyError):
                name = f"c{self.random.random()}"
                actor = self.runtime.actor
                async with database.weather(self.weather, name).transaction() as connection:
                    await cancel_run(connection, self.runtime.definitions, self.tenant, run_id, actor, "no")

    async def _republish(self) -> None:
        self.policies += 1
        await self.runtime.policy(POLICY.replace("VERSION", str(self.policies)), self.tenant)

    async def _look(self) -> None:
        held = await self.runtime.books.held(self.tenant)
        fits = self.lossy or held.sent == 0  # what is on its way through a queue holds a slot already
        if not (fits and held.running == held.both and held.taken <= CAP):
            self.wrong.append(f"slots and leases disagree: {held}")

    # -- afterwards --------------------------------------------------------------------------------------------------

    async def calm_down(self) -> None:
        """Everybody is well again, and everything is let finish."""
        queue = self.lossy or PostgresQueue(idle=timedelta(0))
        worker = Worker(self.tools(self.runtime.database, "calm"), queue)
        dispatcher = self.dispatcher(self.runtime.database, "calm")
        for _ in range(CALM_ROUNDS):
            await self.runtime.trouble.expire_leases()
            await self._hurry()
            await self.runtime.trouble.expire_message_leases()
            await self.runtime.trouble.expire_sent()
            await self.runtime.sweep()
            while self.lossy and await self.scheduler(self.runtime.database, "calm").admit():
                await worker.work_off()
            await worker.work_off()
            await self._vote()
            await dispatcher.work_off()
            if not await self._left():
                return
        pytest.fail(f"storm {self.seed} does not end: {await self._left()}")

    async def _left(self) -> dict[str, list[str]]:
        """List what is still open, by kind."""
        left: dict[str, list[str]] = await self.runtime.books.left_open(self.tenant)
        return left

    async def check(self) -> None:
        """Count the promises."""
        assert self.wrong == []
        assert max(self.outside.effects.values()) == 1, self.outside.effects
        await self._receipts_tell_the_truth()
        for run_id in self.runs:
            await self.runtime.history(run_id)
            await self._gap_free(run_id)
            await self._bundle_verifies(run_id)

    async def _receipts_tell_the_truth(self) -> None:
        told: set[str] = set()
        runs = {run.id: run.status for run in await self.runtime.books.runs(tenant=self.tenant)}
        receipts = await self.runtime.books.receipts(tenant=self.tenant)
        last = {receipt.key: receipt.id for receipt in receipts}
        for receipt in receipts:
            told.add(receipt.key)
            happened = self.outside.effects[receipt.key]
            replaced = last[receipt.key] != receipt.id
            story = f"{receipt} {happened}"
            match receipt.status:
                case "succeeded":
                    assert happened == 1, story
                case "failed":
                    assert replaced or not happened or receipt.resolution, story
                case "in_doubt":
                    assert runs[receipt.run] in ("canceled", "failed_terminal"), story
                case other:
                    pytest.fail(f"{other}: {story}")
        assert set(self.outside.effects) - {key for key, n in self.outside.effects.items() if not n} <= told

    async def _gap_free(self, run_id: UUID) -> None:
        barriers = [checkpoint.superstep for checkpoint in await self.runtime.books.checkpoints(run=run_id)]
        run = await self.runtime.books.run(run_id)
        assert barriers == list(range(run.superstep + 1))
        assert len(await self.runtime.events(run_id)) == run.audit_count

    async def _bundle_verifies(self, run_id: UUID) -> None:
        bundle = await self.runtime.books.bundle(run=run_id)
        path, key = self.folder / "bundle.zip", self.folder / "public.pem"
        path.write_bytes((self.folder / "blobs" / bundle.uri.removeprefix("file:")).read_bytes())
        key.write_bytes(self.signer.public_key.pem)
        verification = verify_bundle(path, public_key=key)
        assert verification.ok, verification.to_text()


@pytest.mark.timeout(60)
@pytest.mark.req("Q-8")
@pytest.mark.req("Q-9")
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_promise_holds_through_a_storm(
    runtime: Any, database_url: str, tmp_path: Path, quiet: Any, seed: int
) -> None:
    storm = Storm(runtime, database_url, tmp_path, seed)
    await storm.prepare()
    await storm.weather_it()
    await storm.calm_down()
    await storm.check()
