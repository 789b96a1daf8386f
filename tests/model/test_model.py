"""A model beside the engine: the real engine on a real PostgreSQL, driven at random, compared after every step.

Starts, votes, signals, timers, crashes, lost leases, policies and cancels of two tenants come in any order, also while
a call of a worker is held up. At the end everything is let finish. 2,000 steps; 200,000 with COUNTERSEAL_DEEP=1.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from connectors.port import Connectors
from core.db import ENGINE_ROLE, FACES_ROLE, Database, DatabaseClock
from core.errors import CountersealError
from core.terms import Stopped
from runtime.definition.catalog import Definitions
from runtime.engine.life import doubt
from runtime.requests import pausing
from runtime.requests.steering import cancel_run
from tests.model.world import OWNERS, TENANTS, WORKFLOW, Held, Model, Watched, policy
from tests.support.arrivals import Arrivals
from tests.support.book import Approval
from tests.support.databases import Databases
from tests.support.runtime_stage import ACTOR, Runtime, probes, wrong_in

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
# Few long examples: making a database for each, and letting everything finish in it, takes longer than the steps.
STEPS = 130
EXAMPLES = 1600 if DEEP else 16
RUNS, WORKERS = 8, 2
CATALOG = probes()

# Each of these has to happen; else the search does not search.
SEEN = (
    "held read", "held before", "held after", "crashed read", "crashed before", "crashed after", "canceled", "paused",
    "vote counted", "vote twice", "vote too late", "signal twice", "signal with timers", "two workers",
    "overtaken read", "overtaken before", "overtaken after", "deny while held", "needs_approval while held",
    "cancel while held", "pause while held", "deny in doubt", "needs_approval in doubt", "cancel in doubt",
    "pause in doubt", "released after it", "lost after it", "silent after it",
    "run succeeded", "run failed_terminal", "run canceled",
)  # fmt: skip

tenants = st.sampled_from(TENANTS)
places = st.sampled_from(["read", "before", "after"])
# What people do while a call is held up, and what happens then: it goes on; or its lease runs out, after the time in
# which it may arrive ("lost") or within that time ("silent").
WHAT, THEN = ("deny", "needs_approval", "cancel", "cancel", "pause"), ("released", "lost", "silent")


class Machine(RuleBasedStateMachine):
    """One world for each example; ``url`` and ``template`` are set by the test."""

    make: Callable[[], Any]
    # What has happened in all examples together.
    seen: Counter[str]

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.Runner()
        self.stack, self.model, self.version = AsyncExitStack(), Model(), 0
        self.runs: dict[str, UUID] = {}
        self.held: list[Held] = []
        self.told: set[str] = set()
        self.does(self.open())
        # Hypothesis leaves out some rules for a whole example: without a run, nothing would happen in it.
        for tenant in TENANTS:
            self.does(self.starting(tenant))

    def does(self, doing: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(doing, 60)

        return self.loop.run(bounded())

    async def open(self) -> None:
        url = self.stack.enter_context(type(self).make())
        database = await self.stack.enter_async_context(Database(url, ENGINE_ROLE, connections=6))
        faces = await self.stack.enter_async_context(Database(url, FACES_ROLE))
        self.arrivals, self.outside = Arrivals(), Watched(model=self.model)
        doubt.rest = self.arrivals.rest
        connectors = Connectors({"probe": self.outside})
        self.world = Runtime(database, faces, Definitions(CATALOG), self.outside, connectors, CATALOG, self.arrivals)
        for tenant in TENANTS:
            await self.world.tenant(tenant)
            await self.world.publish(WORKFLOW, tenant)
            for person in OWNERS:
                await self.world.person(person, ("owners",), tenant)
            await self.rule_by(tenant, "allow")

    async def rule_by(self, tenant: str, outcome: str) -> None:
        self.version += 1
        await self.world.policy(policy(outcome, self.version), tenant)
        self.model.ruled(tenant, outcome)

    # -- what is asked of it -------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.runs) < RUNS)
    @rule(tenant=tenants)
    def start(self, tenant: str) -> None:
        self.does(self.starting(tenant))

    async def starting(self, tenant: str) -> None:
        ref = f"{tenant}{len(self.runs)}"
        self.model.started(tenant, ref)
        self.runs[ref] = (await self.world.start("w", {"ref": ref}, ref=ref, tenant=tenant)).run_id
        self.seen["started"] += 1

    @rule(tenant=tenants, place=places, what=st.sampled_from(WHAT), then=st.sampled_from(THEN))
    def steer(self, tenant: str, place: str, what: str, then: str) -> None:
        """A run begins, and while its first call is held up, people say something else.

        Then the call goes on; or its worker has lost its lease, and another one is there before it.
        """
        self.begun(tenant, Held(place))
        self.does(self.steering(what, tenant))
        self.seen[f"{what} while held"] += bool(self.held)
        if then != "released":
            self.does(self.running_out(False, silent=then == "silent"))
            self.does(self.working("w"))
        self.seen[f"{then} after it"] += bool(self.held)
        self.does(self.releasing_all())

    @rule(tenant=tenants, first=places, second=places, what=st.sampled_from([*WHAT, "", "", "", ""]))
    def overtake(self, tenant: str, first: str, second: str, what: str) -> None:
        """A worker that has lost its lease goes on while another one has its step."""
        late = Held(first)
        self.begun(tenant, late)
        self.does(self.running_out(False, silent=True))
        self.does(self.holding(Held(second)))
        if what:
            self.does(self.steering(what, tenant))
        self.seen[f"overtaken {first}"] += late in self.held
        self.does(self.releasing_all())

    @rule(tenant=tenants, place=places, what=st.sampled_from(WHAT))
    def doubt(self, tenant: str, place: str, what: str) -> None:
        """A worker is gone in the middle of a call, and people say something while another asks what became of it."""
        self.begun(tenant, Held(place))
        for held in [*self.held]:
            self.does(self.crashing(held))
        self.does(self.running_out(False))
        self.does(self.holding(Held("probe")))
        self.seen[f"{what} in doubt"] += bool(self.held)
        self.does(self.steering(what, tenant))
        self.does(self.releasing_all())

    def begun(self, tenant: str, held: Held) -> None:
        """Hold a call up that is allowed: of a run that starts, or of those that have been waited for."""
        self.does(self.releasing_all())
        self.does(self.stirring(tenant, "allow"))
        self.does(self.holding(held))

    async def stirring(self, tenant: str, outcome: str) -> None:
        """Let a tenant have something to do, by a policy."""
        await self.resuming(tenant)
        if self.model.policies[tenant] != outcome:
            await self.rule_by(tenant, outcome)
        if len(self.runs) < RUNS:
            await self.starting(tenant)
        else:
            for ref in [ref for ref, of in self.model.runs.items() if of == tenant and ref not in self.told][:2]:
                await self.signaling(ref)
            await self.passing()

    async def steering(self, what: str, tenant: str) -> None:
        if what == "cancel":
            await self.canceling(self.held[-1].name.rpartition("-")[0] if self.held else [*self.runs][-1])
        elif what == "pause":
            await self.pausing(tenant)
        else:
            await self.rule_by(tenant, what)

    @rule(tenant=tenants)
    def pause(self, tenant: str) -> None:
        """A person stops a tenant, or lets it go on."""
        self.does(self.resuming(tenant) if tenant in self.model.paused else self.pausing(tenant))

    async def pausing(self, tenant: str) -> None:
        said = (Stopped.TENANT, "", "enough", ACTOR)
        await pausing.pause(self.world.faces, self.world.definitions, tenant, *said)
        self.model.paused.add(tenant)
        self.seen["paused"] += 1

    async def resuming(self, tenant: str) -> None:
        if tenant in self.model.paused:
            self.model.paused.remove(tenant)
            said = (Stopped.TENANT, "", "go on", ACTOR)
            await pausing.resume(self.world.faces, self.world.definitions, tenant, *said)
            await self.world.sweep()

    @rule(tenant=tenants, outcome=st.sampled_from(["allow", "needs_approval", "needs_approval", "deny"]))
    def publish(self, tenant: str, outcome: str) -> None:
        self.does(self.rule_by(tenant, outcome))

    @rule(person=st.sampled_from(OWNERS), number=st.integers(0, RUNS - 1), stranger=st.booleans())
    def vote(self, person: str, number: int, stranger: bool) -> None:
        self.does(self.voting(person, number, stranger))

    @rule(people=st.permutations(OWNERS), number=st.integers(0, RUNS - 1), late=st.booleans())
    def vote_at_once(self, people: list[str], number: int, late: bool) -> None:
        """Two people click at the same moment, and a sweeper comes by; ``late`` is just after the time is up."""
        self.does(self.voting_at_once(people[:2], number, late))

    async def voting_at_once(self, people: list[str], number: int, late: bool) -> None:
        if not await self.world.books.approvals(open=True):
            await self.stirring(TENANTS[number % 2], "needs_approval")
            await self.working("w")
        found = await self.world.books.approvals(open=True)
        if not found:
            return
        asked, world = found[number % len(found)], self.world
        if late:
            await world.trouble.leave_questions_alone(timedelta(days=30, seconds=1))
            self.model.expired([str(each.id) for each in found], [self.ref_of(each.run) for each in found])
        choice = "approve" if asked.kind == "action" else "fail"
        votes = [world.vote(person, choice, asked.tenant, on=asked.id) for person in people]
        answers = (await asyncio.gather(*votes, world.sweep()))[:2]
        # A vote that is refused may have been judged after the one that decided, whoever of the two is named first.
        order = {("counted", "requested"): 0, ("counted", "approved"): 1}
        told = sorted(zip(people, answers, strict=True), key=lambda one: order.get((one[1].code, one[1].status), 2))
        for person, answer in told if asked.kind == "action" else ():
            self.model.voted(str(asked.id), person, answer.code, answer.status)
        self.seen["vote too late" if late else "vote twice"] += 1

    def voting_again(self) -> None:
        """One vote, then two at once, in time and too late."""
        self.does(self.stirring(TENANTS[0], "needs_approval"))
        self.does(self.working("w"))
        self.does(self.voting(OWNERS[0], 0, False))
        for late in (False, True):
            self.does(self.voting_at_once([*OWNERS[:2]], 0, late))

    async def voting(self, person: str, number: int, stranger: bool) -> None:
        found = await self.world.books.approvals(open=True)
        if not found:
            return
        asked = found[number % len(found)]
        tenant = asked.tenant if not stranger else next(other for other in TENANTS if other != asked.tenant)
        await self.voting_on(asked, person, tenant)

    async def voting_on(self, asked: Approval, person: str, tenant: str) -> None:
        stranger = tenant != asked.tenant
        try:
            answer = await self.world.vote(person, "approve" if asked.kind == "action" else "fail", tenant, on=asked.id)
        except CountersealError:
            if not stranger:
                raise
            return
        if stranger:
            self.model.broken.append("promise 8: somebody votes in another tenant")
        elif asked.kind == "action":
            self.model.voted(str(asked.id), person, answer.code, answer.status)
            self.seen[f"vote {answer.code}"] += 1

    @rule(number=st.integers(0, RUNS - 1))
    def signal(self, number: int) -> None:
        ref = [*self.runs][number % len(self.runs)]
        self.does(self.signaling(ref))

    async def signaling(self, ref: str, number: int = 0) -> None:
        self.told.add(ref)
        await self.world.signal(f"told:{ref}", tenant_id=self.model.runs[ref], id=f"told-{ref}-{number}")

    @rule(number=st.integers(0, RUNS - 1), timers=st.booleans())
    def signal_at_once(self, number: int, timers: bool) -> None:
        """Two signals for one wait come at the same moment, while a worker works or timers are due."""
        ref = [*self.runs][number % len(self.runs)]
        self.seen["signal with timers" if timers else "signal twice"] += 1
        beside = self.passing() if timers else self.working("w")
        self.does(self.all_of(self.signaling(ref), self.signaling(ref, 1), beside))

    async def all_of(self, *doing: Awaitable[Any]) -> None:
        await asyncio.gather(*doing)

    @rule(number=st.integers(0, RUNS - 1))
    def cancel(self, number: int) -> None:
        ref = [*self.runs][number % len(self.runs)]
        self.does(self.canceling(ref))

    async def canceling(self, ref: str) -> None:
        said = (self.world.definitions, self.model.runs[ref], self.runs[ref], ACTOR, "enough")
        try:
            async with self.world.database.transaction() as connection:
                await cancel_run(connection, *said)
        except CountersealError:
            return  # it is over, or has moved on
        self.model.canceled(ref)
        self.seen["canceled"] += 1

    # -- what goes on -------------------------------------------------------------------------------------------------

    @rule()
    def work(self) -> None:
        self.does(self.working("w"))

    @rule()
    def work_at_once(self) -> None:
        """Two workers work at the same moment."""
        self.seen["two workers"] += 1
        self.does(self.working("w", "x"))

    async def working(self, *owners: str) -> int:
        await self.look()
        done = await asyncio.gather(*(self.world.worker(owner).work_off() for owner in owners))
        await self.look()
        return sum(done)

    async def look(self) -> None:
        """Learn which questions there are, and about what."""
        for asked in await self.world.books.approvals():
            self.outside.asked.setdefault(f"{self.ref_of(asked.run)}-{asked.step}", set()).add(str(asked.id))

    def ref_of(self, run: UUID) -> str:
        return next(ref for ref, own in self.runs.items() if own == run)

    # Preconditions know what was asked, and not how the engine took it: hypothesis wants them to be the same again.
    @rule(place=places)
    def hold(self, place: str) -> None:
        """A worker works until a call of its is held up, or until there is nothing to do."""
        if len(self.held) < WORKERS:
            self.does(self.holding(Held(place)))

    async def holding(self, held: Held) -> None:
        await self.look()
        self.outside.next = held
        held.task = asyncio.create_task(self.world.worker(f"held{len(self.held)}").work_off())
        reached = asyncio.create_task(held.reached.wait())
        await asyncio.wait({held.task, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        self.outside.next = None
        if held.task.done():
            held.task.result()
        else:
            self.held.append(held)
            self.seen[f"held {held.place}"] += 1

    @rule(number=st.integers(0, WORKERS - 1), outcome=st.sampled_from(["", "", "needs_approval", "deny"]))
    def release(self, number: int, outcome: str) -> None:
        """Let a held call go on, under a policy that may be newer than it."""
        for tenant in TENANTS if outcome and self.held else ():
            self.does(self.rule_by(tenant, outcome))
        if self.held:
            self.does(self.releasing(self.held[number % len(self.held)]))

    async def releasing(self, held: Held) -> None:
        self.held.remove(held)
        await self.look()
        held.opened.set()
        assert held.task is not None
        await held.task

    async def releasing_all(self) -> None:
        for held in [*self.held]:
            await self.releasing(held)

    @rule(place=places, number=st.integers(0, WORKERS - 1))
    def crash(self, place: str, number: int) -> None:
        """End a worker in the middle of a call."""
        if not self.held:
            self.begun(TENANTS[number], Held(place))
        if self.held:
            self.does(self.crashing(self.held[number % len(self.held)]))

    async def crashing(self, held: Held) -> None:
        self.held.remove(held)
        self.seen[f"crashed {held.place}"] += 1
        assert held.task is not None
        held.task.cancel()
        await asyncio.wait({held.task})

    @rule(crowd=st.booleans(), silent=st.booleans())
    def leases_run_out(self, crowd: bool, silent: bool) -> None:
        self.does(self.running_out(crowd, silent=silent))

    async def running_out(self, crowd: bool, *, silent: bool = False) -> None:
        """Let all leases run out, and be swept by two keepers at once (``crowd``).

        ``silent`` is so soon that a call which is held up may still arrive; else it never will.
        """
        for held in [held for held in self.held if held.place == "before"]:
            held.late = True
            if not silent:
                await self.crashing(held)
        if not silent:
            await self.world.time_passes()
        await self.world.trouble.expire_leases()
        await (asyncio.gather(self.world.sweep(), self.world.sweep()) if crowd else self.world.sweep())

    @rule()
    def time_passes(self) -> None:
        self.does(self.passing())

    async def passing(self) -> None:
        if all(held.place != "before" for held in self.held):
            await self.world.time_passes()
        await self.world.trouble.make_waits_due("retry", "timer")
        await self.world.sweep()

    # -- what is compared ---------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_broken(self) -> None:
        if not hasattr(self, "world"):
            return
        assert self.model.broken == []
        assert all(count == 1 for count in self.outside.landed().values())
        if not self.held:
            self.does(self.holds_nothing())

    async def holds_nothing(self) -> None:
        """Waiting runs hold no lease (promise 10), and every run is in its own tenant (promise 8)."""
        for run in await self.world.books.runs():
            ref = self.ref_of(run.id)
            assert run.tenant == self.model.runs[ref]
            if run.status in ("waiting", "waiting_approval", "failed_retryable"):
                places = [place for place in await self.world.books.places() if place.run == run.id]
                assert [place for place in places if place.status == "leased"] == []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                if not self.model.broken:
                    self.does(self.ending())
            finally:
                self.does(self.stack.aclose())
                self.loop.close()

    async def ending(self) -> None:
        """Nothing that was answered is lost: whatever can come to an end does, with each effect once (promise 4)."""
        await self.releasing_all()
        for tenant in TENANTS:
            await self.resuming(tenant)
            await self.rule_by(tenant, "allow")
        for _ in range(60):
            await self.running_out(False)
            await self.passing()
            for ref in [ref for ref in self.runs if ref not in self.told]:
                await self.signaling(ref)
            for asked in await self.world.books.approvals(open=True):
                for person in ("ana", "ben"):
                    await self.voting_on(asked, person, asked.tenant)
            moved = await self.working("w")
            over = [run.status in ("succeeded", "failed_terminal", "canceled") for run in await self.world.books.runs()]
            if all(over) and not moved:
                break
        assert self.model.broken == []
        for run in await self.world.books.runs():
            self.seen[f"run {run.status}"] += 1
            ref = self.ref_of(run.id)
            if ref not in self.model.excused:
                assert run.status == "succeeded", (ref, run.status, run.error)
            if run.status == "succeeded":
                assert {name for name in self.model.landed if name.startswith(f"{ref}-")} == self.model.effects_of(ref)
        said: defaultdict[str, set[str]] = defaultdict(set)
        for receipt in await self.world.books.receipts():
            said[f"{self.ref_of(receipt.run)}-{receipt.step}"].add(receipt.status)
        assert self.model.untrue(said) == []
        assert await wrong_in(self.world) == []


def toured(what: str) -> None:
    """Play the moments of one kind in turn: what the search comes to seldom comes about all the same."""
    tenant, machine = TENANTS[0], Machine()
    try:
        machine.begin()
        machine.nothing_is_broken()
        for place in ("read", "before", "after"):
            machine.overtake(tenant=tenant, first=place, second="read", what="")
            machine.nothing_is_broken()
        machine.doubt(tenant=tenant, place="after", what=what)
        machine.nothing_is_broken()
        machine.steer(tenant=TENANTS[1], place="before", what=what, then="silent")
        machine.nothing_is_broken()
        machine.voting_again()
    finally:
        machine.teardown()


@pytest.mark.req("P-1")
@pytest.mark.req("Q-8")
@pytest.mark.timeout(0 if DEEP else 600)
def test_the_engine_keeps_what_the_model_knows(
    databases: Databases, template_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "rest", doubt.rest)
    monkeypatch.setattr(DatabaseClock, "error", timedelta(0))
    monkeypatch.setattr(Machine, "seen", Counter(), raising=False)
    monkeypatch.setattr(
        Machine, "make", staticmethod(lambda: databases.made("model", template_database)), raising=False
    )
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    told = {"max_examples": EXAMPLES, "stateful_step_count": STEPS, "deadline": None, "derandomize": not DEEP}
    for what in dict.fromkeys(WHAT):
        toured(what)
    run_state_machine_as_test(Machine, settings=settings(**told, suppress_health_check=checks, phases=phases))
    assert [name for name in SEEN if not Machine.seen[name]] == [], Machine.seen
    assert Machine.seen["started"] >= 2 * EXAMPLES
