"""A workflow's own cap: exact at every instant, of nobody else's concern, and never in the way of what is behind it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from chaos import caps
from runtime.requests.publishing import publish_workflow
from runtime.requests.steering import cancel_run
from runtime.store import claims
from tests.support.insides import take_one

LEASE = timedelta(seconds=30)


def document(name: str, cap: int | None, *, version: int = 1, steps: int = 1) -> str:
    capped = f"caps: {{max_concurrency: {cap}}}\n" if cap else ""
    rest = "".join(f"  - {{id: s{n}, do: probe.effect.apply, with: {{name: {name}}}}}\n" for n in range(steps))
    return f"workflow: {name}\nversion: {version}\nreference: ${{{{ run.id }}}}\n{capped}steps:\n{rest}"


NESTED = """
workflow: nested
version: 1
reference: ${{ run.id }}
caps: {max_concurrency: 1}
steps:
  - if: ${{ trigger.depth > 0 }}
    then:
      - {id: inner, run: nested, with: {depth: "${{ trigger.depth - 1 }}"}}
  - {id: last, do: probe.effect.apply, with: {name: x}}
"""


async def published(runtime: Any, *texts: str) -> None:
    for text in texts:
        async with runtime.faces.transaction("acme") as connection:
            await publish_workflow(connection, runtime.definitions, "acme", text, "test.yaml", runtime.actor)


@pytest.fixture
async def tenant(runtime: Any) -> Any:
    await runtime.tenant()
    await runtime.policy()
    return runtime


async def begun(runtime: Any, name: str, count: int) -> list[UUID]:
    return [(await runtime.start(name, ref=f"{name}:{number}")).run_id for number in range(count)]


async def claimed(runtime: Any, count: int = 1) -> list[str]:
    """The workflows of what so many claims at once get."""

    async def claim(number: int) -> Any:
        while True:
            async with runtime.database.connection() as connection:
                try:
                    return await claims.claim_next(connection, f"w{number}", LEASE)
                except asyncpg.LockNotAvailableError:
                    continue  # another claim of the tenant holds its row for longer than a claim waits

    found = await asyncio.gather(*(claim(number) for number in range(count)))
    return sorted(row["run"]["workflow"] for rows in found for row in rows)


async def freed(runtime: Any, workflow: str) -> None:
    """One of a workflow's steps gives its slots back."""
    await runtime.trouble.free_a_slot_of(workflow)


async def slots(runtime: Any) -> dict[str, tuple[int, int]]:
    return {slots.cap: (slots.all, slots.taken) for slots in await runtime.books.slots()}


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-12")
async def test_no_more_steps_of_a_workflow_run_at_once_and_others_go_on(tenant: Any) -> None:
    await published(tenant, document("capped", 2), document("free", None))
    await begun(tenant, "capped", 8)
    await begun(tenant, "free", 3)
    assert await claimed(tenant, 10) == ["capped", "capped", "free", "free", "free"]
    assert await slots(tenant) == {"": (16, 5), "capped": (2, 2)}
    assert await claimed(tenant, 3) == []
    await freed(tenant, "free")
    assert await claimed(tenant, 3) == []
    await freed(tenant, "capped")
    assert await claimed(tenant, 3) == ["capped"]


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-12")
async def test_the_tenant_s_cap_holds_beside_it(runtime: Any) -> None:
    await runtime.tenant(concurrency=3)
    await runtime.policy()
    await published(runtime, document("one", 2), document("two", 2))
    await begun(runtime, "one", 4)
    await begun(runtime, "two", 4)
    found = await claimed(runtime, 8)
    found += await claimed(runtime, 1)
    assert len(found) == 3
    assert await claimed(runtime, 3) == []


@pytest.mark.req("Q-12")
async def test_at_every_instant_by_the_audit(tenant: Any) -> None:
    at_once = tenant.outside.perform

    async def taking_time(call: Any) -> Any:
        await asyncio.sleep(0.015)
        return await at_once(call)

    tenant.outside.perform = taking_time
    await published(tenant, document("capped", 2, steps=3), document("free", None, steps=2))
    await begun(tenant, "capped", 12)
    await begun(tenant, "free", 12)
    stop = asyncio.Event()

    async def all_over() -> bool:
        return not await tenant.books.runs_under_way()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(tenant.worker(f"w{number}").run(stop))
        await tenant.until(all_over)
        stop.set()
    runs = await tenant.books.runs()
    found = await caps.recorded(tenant.database, [(run.tenant, run.id) for run in runs])
    assert len(found) == 12 * 5
    assert caps.exceeded(found, {"capped": 2}, key=lambda one: one.workflow) == []
    assert caps.exceeded(found, {"capped": 1}, key=lambda one: one.workflow), "the cap was reached"
    assert caps.most_at_once(one for one in found if one.workflow == "free").count > 2
    await tenant.at_rest()
    assert await slots(tenant) == {"": (16, 0), "capped": (2, 0)}


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-12")
async def test_it_holds_at_admission_to_a_queue(tenant: Any) -> None:
    await published(tenant, document("capped", 1), document("free", None))
    await begun(tenant, "capped", 3)
    await begun(tenant, "free", 2)
    admitted = []
    async with tenant.database.connection() as connection:
        while rows := await claims.admit(connection, "s", LEASE, 2):
            admitted += [row["step_id"] for row in rows]
    assert len(admitted) == 3
    for step in admitted:
        async with tenant.database.transaction() as connection:
            assert await claims.claim_step(connection, "w", LEASE, step)
    assert await slots(tenant) == {"": (16, 3), "capped": (1, 1)}


async def test_runs_of_one_workflow_within_each_other_get_through_a_cap_of_one(tenant: Any) -> None:
    """A step that waits for its child holds nothing; while it drives it, the child waits for its turn."""
    await published(tenant, NESTED)
    run_id = (await tenant.start("nested", {"depth": 3})).run_id
    for _ in range(12):
        await tenant.go_on()
    assert await tenant.status(run_id) == "succeeded"
    assert len(tenant.outside.effects) == 4
    await tenant.at_rest()


@pytest.mark.tampers  # it takes leases by hand
async def test_a_cap_is_raised_lowered_and_left(tenant: Any) -> None:
    await published(tenant, document("capped", 3))
    await begun(tenant, "capped", 9)
    assert len(await claimed(tenant, 5)) == 3
    await published(tenant, document("capped", 1, version=2))
    assert await slots(tenant) == {"": (16, 3), "capped": (1, 3)}, "what executes goes on"
    assert await claimed(tenant, 3) == []
    for _ in range(3):
        await freed(tenant, "capped")
    assert len(await claimed(tenant, 3)) == 1
    await published(tenant, document("capped", 4, version=3))
    assert await slots(tenant) == {"": (16, 1), "capped": (4, 1)}
    assert len(await claimed(tenant, 9)) == 3
    await published(tenant, document("capped", None, version=4))
    assert await slots(tenant) == {"": (16, 4), "capped": (4, 4)}, "runs of the versions before are still bound by it"
    await begun(tenant, "capped", 12)
    assert len(await claimed(tenant, 12)) == 3, "those of the version without are not"


async def test_a_canceled_run_gives_both_slots_back(tenant: Any) -> None:
    await published(tenant, document("capped", 1))
    (run_id,) = await begun(tenant, "capped", 1)
    async with tenant.database.connection() as connection:
        assert await claims.admit(connection, "s", LEASE)
    assert await slots(tenant) == {"": (16, 1), "capped": (1, 1)}
    async with tenant.database.transaction() as connection:
        await cancel_run(connection, tenant.definitions, "acme", run_id, tenant.actor, "no")
    assert await slots(tenant) == {"": (16, 0), "capped": (1, 0)}


async def test_whoever_waits_for_the_workflow_s_slot_is_woken(tenant: Any, gate: Any) -> None:
    """Poll slowly: without the wake-up the second run would wait for seconds."""
    await published(tenant, document("capped", 1))
    await begun(tenant, "capped", 2)
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with tenant.database.listening(("counterseal_steps",), lambda channel, _: heard.put_nowait(channel)):
        assert await take_one(tenant.worker())
        assert await asyncio.wait_for(heard.get(), 60) == "counterseal_steps"


@pytest.mark.parametrize("cap", ["0", "257", "-1", "many"])
async def test_a_cap_that_is_none_is_a_fault_of_the_document(tenant: Any, cap: str) -> None:
    with pytest.raises(Exception, match="max_concurrency"):
        await published(tenant, document("capped", 1).replace("max_concurrency: 1", f"max_concurrency: {cap}"))


def metered(name: str, starts: int, *, version: int = 1, more: str = "", steps: int = 1) -> str:
    text = document(name, None, version=version, steps=steps)
    return text.replace("steps:\n", f"caps: {{max_runs_per_min: {starts}{more}}}\nsteps:\n", 1)


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-12")
async def test_runs_of_a_workflow_start_no_faster_than_it_says_and_others_go_on(tenant: Any) -> None:
    await published(tenant, metered("capped", 3), document("free", None))
    await begun(tenant, "capped", 9)
    await begun(tenant, "free", 4)
    assert await claimed(tenant, 14) == ["capped"] * 3 + ["free"] * 4
    await tenant.trouble.starts_wait(41)
    assert await claimed(tenant, 6) == ["capped"] * 2
    await tenant.trouble.starts_wait(3600)
    assert await claimed(tenant, 6) == ["capped"] * 3, "a minute's starts are saved up, not an hour's"


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-13")
async def test_starts_that_are_held_back_keep_no_other_tenant_waiting(tenant: Any) -> None:
    await published(tenant, metered("capped", 1))
    await begun(tenant, "capped", 9)
    await tenant.tenant("other")
    await tenant.policy(tenant="other")
    await tenant.publish(document("theirs", None), "other")
    for number in range(3):
        await tenant.start("theirs", ref=str(number), tenant="other")
    assert await claimed(tenant, 1) + await claimed(tenant, 1) + await claimed(tenant, 1) == [
        "capped",
        "theirs",
        "theirs",
    ]


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-12")
async def test_a_batch_takes_the_starts_that_are_left_and_fills_up_with_others(tenant: Any) -> None:
    await published(tenant, metered("capped", 2), document("free", None))
    await begun(tenant, "capped", 9)
    await begun(tenant, "free", 3)
    async with tenant.database.transaction() as connection:
        rows = await claims.claim_next(connection, "w", LEASE, 8)
    assert sorted(row["run"]["workflow"] for row in rows) == ["capped"] * 2 + ["free"] * 3


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-12")
async def test_a_workflow_cannot_give_itself_more_starts_than_its_tenant_has(runtime: Any) -> None:
    await runtime.tenant(max_runs_per_min=2)
    await runtime.policy()
    await published(runtime, metered("capped", 600), document("free", None))
    await begun(runtime, "capped", 4)
    await begun(runtime, "free", 4)
    assert len(await claimed(runtime, 8)) == 2


@pytest.mark.req("Q-12")
async def test_a_cap_on_starts_holds_up_no_run_that_has_started(tenant: Any) -> None:
    await published(tenant, metered("capped", 1, steps=3))
    runs = await begun(tenant, "capped", 2)
    await tenant.worker().work_off()
    assert [await tenant.status(run_id) for run_id in runs] == ["succeeded", "queued"]


@pytest.mark.req("Q-12")
async def test_a_run_within_a_run_waits_for_its_workflow_s_turn_as_well(tenant: Any) -> None:
    parent = "workflow: parent\nversion: 1\nreference: ${{ run.id }}\nsteps:\n  - {id: c, run: capped, with: {}}\n"
    await published(tenant, metered("capped", 1), parent)
    runs = await begun(tenant, "parent", 2)
    await tenant.worker().work_off()
    await tenant.go_on()
    assert sorted([await tenant.status(run_id) for run_id in runs]) == ["succeeded", "waiting"]
    await tenant.trouble.starts_wait(60)
    await tenant.go_on()
    assert [await tenant.status(run_id) for run_id in runs] == ["succeeded"] * 2


@pytest.mark.req("Q-12")
async def test_whoever_starts_a_run_hears_which_cap_holds_it_up(tenant: Any) -> None:
    await published(tenant, metered("capped", 1), document("free", None))
    first = await tenant.start("capped", ref="1")
    assert first.waiting_for is None
    await tenant.worker().work_off()
    second = await tenant.start("capped", ref="2")
    assert second.waiting_for == "its start: caps.max_runs_per_min of capped is 1"
    assert (await tenant.start("capped", ref="2")).waiting_for == second.waiting_for, "also who asks again"
    assert (await tenant.start("free", ref="1")).waiting_for is None
    await published(tenant, metered("capped", 5, version=2))
    await tenant.trouble.starts_wait(13)
    assert (await tenant.start("capped", ref="3")).waiting_for is None, "the newest version's cap counts"


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-12")
async def test_the_newest_version_s_caps_count_and_what_it_does_not_name_is_lifted(tenant: Any) -> None:
    await published(tenant, metered("capped", 1, more=", max_concurrency: 1"), metered("capped", 60, version=2))
    await begun(tenant, "capped", 3)
    assert await claimed(tenant, 3) == ["capped"] * 3


@pytest.mark.parametrize("cap", ["0", "1000001", "-1", "many"])
async def test_a_cap_on_starts_that_is_none_is_a_fault_of_the_document(tenant: Any, cap: str) -> None:
    with pytest.raises(Exception, match="max_runs_per_min"):
        await published(tenant, metered("capped", 1).replace("max_runs_per_min: 1", f"max_runs_per_min: {cap}"))
