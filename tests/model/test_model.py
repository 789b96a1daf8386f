"""A model beside the engine: the real engine on a real PostgreSQL, driven at random, compared after every step.

Starts, votes, signals, timers, crashes, lost leases, policies and cancels of two tenants come in any order, also while
a call of a worker is held up. At the end everything is let finish. 3,000 steps; 200,000 with COUNTERSEAL_DEEP=1.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
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

from connectors.catalog import Source, load_catalog
from connectors.port import Connectors
from core.db import ENGINE_ROLE, FACES_ROLE, Database, DatabaseClock
from core.errors import CountersealError
from runtime.definition.catalog import Definitions
from runtime.engine import doubt
from runtime.requests.steering import cancel_run
from tests.conftest import copied
from tests.model.world import OWNERS, TENANTS, WORKFLOW, Held, Model, Watched, policy
from tests.runtime.conftest import ACTOR, OPERATIONS, Runtime, wrong_in
from tests.support.arrivals import Arrivals

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
# Few long examples: making a database for each, and letting everything finish in it, takes longer than the steps.
STEPS = 100
EXAMPLES = 2500 if DEEP else 32
RUNS, WORKERS = 6, 2
CATALOG = load_catalog([Source("probe.yaml", OPERATIONS)])

# Each of these has to happen; else the search does not search.
SEEN = (
    "held read", "held before", "held after", "overtaken", "crashed", "canceled", "vote counted", "run succeeded",
    "run failed_terminal", "run canceled",
)  # fmt: skip

tenants = st.sampled_from(TENANTS)


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
        self.does(self.open())
        # Hypothesis leaves out some rules for a whole example: without a run, nothing would happen in it.
        for tenant in TENANTS:
            self.started(tenant)

    def does(self, doing: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(doing, 60)

        return self.loop.run(bounded())

    async def open(self) -> None:
        url = await self.stack.enter_async_context(type(self).make())
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
        self.started(tenant)

    def started(self, tenant: str) -> None:
        ref = f"{tenant}{len(self.runs)}"
        self.model.started(tenant, ref)
        self.runs[ref] = self.does(self.world.start("w", {"ref": ref}, ref=ref, tenant=tenant)).run_id
        self.seen["started"] += 1

    @precondition(lambda self: not self.held and len(self.runs) < RUNS)
    @rule(
        tenant=tenants,
        place=st.sampled_from(["read", "before", "after"]),
        outcome=st.sampled_from(["deny", "needs_approval"]),
    )
    def overrule(self, tenant: str, place: str, outcome: str) -> None:
        """A run begins, and while its first call is held up, another policy comes into force."""
        self.does(self.rule_by(tenant, "allow"))
        self.started(tenant)
        self.does(self.holding(Held(place)))
        self.does(self.rule_by(tenant, outcome))
        for held in [*self.held]:
            self.does(self.releasing(held))

    @rule(tenant=tenants, outcome=st.sampled_from(["allow", "needs_approval", "needs_approval", "deny"]))
    def publish(self, tenant: str, outcome: str) -> None:
        self.does(self.rule_by(tenant, outcome))

    @rule(person=st.sampled_from(OWNERS), number=st.integers(0, RUNS - 1), stranger=st.booleans())
    def vote(self, person: str, number: int, stranger: bool) -> None:
        self.does(self.voting(person, number, stranger))

    async def voting(self, person: str, number: int, stranger: bool) -> None:
        found = await self.world.books.approvals(open=True)
        if not found:
            return
        asked = found[number % len(found)]
        tenant = asked.tenant if not stranger else next(other for other in TENANTS if other != asked.tenant)
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

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, RUNS - 1))
    def signal(self, number: int) -> None:
        ref = [*self.runs][number % len(self.runs)]
        self.does(self.world.signal(f"told:{ref}", tenant_id=self.model.runs[ref], id=f"told-{ref}"))
        self.model.signaled.add(ref)

    @precondition(lambda self: self.runs)
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

    async def working(self, owner: str) -> int:
        await self.look()
        done: int = await self.world.worker(owner).work_off()
        await self.look()
        return done

    async def look(self) -> None:
        """Learn which questions there are, and about what."""
        for asked in await self.world.books.approvals():
            ref = next(ref for ref, run in self.runs.items() if run == asked.run)
            self.outside.asked.setdefault(f"{ref}-{asked.step}", set()).add(str(asked.id))

    @precondition(lambda self: len(self.held) < WORKERS)
    @rule(place=st.sampled_from(["read", "read", "before", "after"]), late=st.booleans(), crowd=st.booleans())
    def hold(self, place: str, late: bool, crowd: bool) -> None:
        """A worker works until a call of its is held up, or until there is nothing to do.

        Also behind another one, which was held up until its lease had run out, and goes on then.
        """
        self.does(self.holding(Held(place)) if self.held or not late else self.overtaking(Held(place), crowd))

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

    async def overtaking(self, other: Held, crowd: bool) -> None:
        late = Held("read")
        await self.holding(late)
        if late in self.held:
            await self.running_out(crowd)
        await self.holding(other)
        if late in self.held:
            await self.releasing(late)
            self.seen["overtaken"] += 1

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, WORKERS - 1), outcome=st.sampled_from(["", "", "needs_approval", "deny"]))
    def release(self, number: int, outcome: str) -> None:
        """Let it go on, under a policy that may be newer than its call."""
        for tenant in TENANTS if outcome else ():
            self.does(self.rule_by(tenant, outcome))
        self.does(self.releasing(self.held[number % len(self.held)]))

    async def releasing(self, held: Held) -> None:
        self.held.remove(held)
        await self.look()
        held.opened.set()
        assert held.task is not None
        await held.task

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, WORKERS - 1))
    def crash(self, number: int) -> None:
        self.does(self.crashing(self.held[number % len(self.held)]))

    async def crashing(self, held: Held) -> None:
        self.held.remove(held)
        self.seen["crashed"] += 1
        assert held.task is not None
        held.task.cancel()
        await asyncio.wait({held.task})

    @rule(crowd=st.booleans())
    def leases_run_out(self, crowd: bool) -> None:
        """A call that is held up before its effect is lost: it does not arrive after the time in which it may."""
        self.does(self.running_out(crowd))

    async def running_out(self, crowd: bool) -> None:
        for held in [held for held in self.held if held.place == "before"]:
            await self.crashing(held)
        await self.world.trouble.expire_leases()
        await self.world.time_passes()
        await (asyncio.gather(self.world.sweep(), self.world.sweep()) if crowd else self.world.sweep())

    @rule()
    def time_passes(self) -> None:
        self.does(self.passing())

    async def passing(self) -> None:
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
            ref = next(ref for ref, own in self.runs.items() if own == run.id)
            assert run.tenant == self.model.runs[ref]
            if run.status in ("waiting", "waiting_approval", "failed_retryable"):
                places = [place for place in await self.world.books.places() if place.run == run.id]
                assert [place for place in places if place.status == "leased"] == []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.does(self.ending())
            finally:
                self.does(self.stack.aclose())
                self.loop.close()

    async def ending(self) -> None:
        """Nothing that was answered is lost: whatever can come to an end does, with each effect once (promise 4)."""
        for held in [*self.held]:
            await self.releasing(held)
        for tenant in TENANTS:
            await self.rule_by(tenant, "allow")
        for _ in range(60):
            await self.running_out(False)
            await self.passing()
            for ref in self.runs:
                await self.world.signal(f"told:{ref}", tenant_id=self.model.runs[ref], id=f"told-{ref}")
            for number, _ in enumerate(await self.world.books.approvals(open=True)):
                for person in ("ana", "ben"):
                    await self.voting(person, number, stranger=False)
            moved = await self.working("w")
            over = [run.status in ("succeeded", "failed_terminal", "canceled") for run in await self.world.books.runs()]
            if all(over) and not moved:
                break
        assert self.model.broken == []
        for run in await self.world.books.runs():
            self.seen[f"run {run.status}"] += 1
            ref = next(ref for ref, own in self.runs.items() if own == run.id)
            if ref not in self.model.excused:
                assert run.status == "succeeded", (ref, run.status, run.error)
            if run.status == "succeeded":
                assert {name for name in self.model.landed if name.startswith(f"{ref}-")} == self.model.effects_of(ref)
        assert await wrong_in(self.world) == []


@pytest.mark.req("P-1")
@pytest.mark.req("Q-8")
@pytest.mark.timeout(0 if DEEP else 600)
def test_the_engine_keeps_what_the_model_knows(
    postgres_url: str, template_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "rest", doubt.rest)
    monkeypatch.setattr(DatabaseClock, "error", timedelta(0))
    monkeypatch.setattr(Machine, "seen", Counter(), raising=False)
    monkeypatch.setattr(Machine, "make", staticmethod(lambda: copied(postgres_url, template_database)), raising=False)
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    told = {"max_examples": EXAMPLES, "stateful_step_count": STEPS, "deadline": None, "derandomize": not DEEP}
    run_state_machine_as_test(Machine, settings=settings(**told, suppress_health_check=checks, phases=phases))
    assert [name for name in SEEN if not Machine.seen[name]] == [], Machine.seen
    assert Machine.seen["started"] >= 2 * EXAMPLES
