"""A durable effect that several runs share: one of them begins it, all of them have its end, the last one ends it."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from connectors.port import Refused
from core.grouping import Grouping
from evidence.chain import Actor
from runtime.engine.model.rows import Commit
from runtime.requests.steering import cancel_run
from tests.support.runtime_shared_cases import CASE, another, begun

pytestmark = [pytest.mark.req("V-9"), pytest.mark.req("Q-15")]

BY = {
    "asks": "policy: asks\nversion: 2\nrules: [{id: ask, match: {operation: probe.case.share}, outcome: needs_approval,"
    " approvers: [{group: owners}]}, {id: all, match: {operation: probe.effect.apply}, outcome: allow}]\n",
    "denies": "policy: denies\nversion: 3\nrules: [{id: not, match: {operation: probe.case.share}, outcome: deny},"
    " {id: all, match: {operation: probe.effect.apply}, outcome: allow}]\n",
}


def in_step(monkeypatch: pytest.MonkeyPatch, rows: str) -> set[UUID]:
    """Let the first two appends with these rows wait for each other. Whose they are is in what this returns."""
    who, met, apply = set[UUID](), asyncio.Event(), Grouping.apply

    async def together(grouping: Any, item: Any) -> Any:
        if isinstance(item, Commit) and getattr(item, rows) and len(who) < 2:
            who.add(item.run_id)
            if len(who) == 2:
                met.set()
            await asyncio.wait_for(met.wait(), 30)
        return await apply(grouping, item)

    monkeypatch.setattr(Grouping, "apply", together)
    return who


async def key_of(runtime: Any) -> str:
    """The key that the outside was given."""
    key: str = runtime.outside.effects[-1].correlation_key
    return key


async def cancel(runtime: Any, run: UUID) -> None:
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run, Actor("user", "olga"), "not needed")


async def ended(runtime: Any, runs: list[UUID], papers: int = 1) -> None:
    """Assert that all have the end of the one case."""
    await runtime.go_on()
    assert [(await runtime.books.run(run)).error for run in runs] == [None] * len(runs)
    assert [await runtime.status(run) for run in runs] == ["succeeded"] * len(runs)
    states = [(await runtime.state(run))["channels"] for run in runs]
    assert states == [{"papers": papers, "by": "test:tester"}] * len(runs)
    await runtime.at_rest()


async def cases(runtime: Any) -> int:
    """Count how often the outside was told to begin one."""
    return sum(call.operation == "probe.case.share" for call in runtime.outside.effects)


async def test_its_end_wakes_everybody_who_shares_it_and_whoever_comes_later_has_it_at_once(runtime: Any) -> None:
    runs = await begun(runtime)
    waiting = {wait.kind for wait in await runtime.books.waits(open=True)}
    assert waiting == {"external", "shared"}
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await runtime.go_on()
    runs.append(await another(runtime, "late"))
    await ended(runtime, runs)
    assert await cases(runtime) == 1


async def test_its_failure_fails_all_who_share_it_and_the_next_one_begins_anew(runtime: Any) -> None:
    runs = await begun(runtime)
    first = runtime.outside.effects[0]
    await runtime.signal(await key_of(runtime), error={"class": "transport", "code": "no", "message": "No papers."})
    await runtime.go_on()
    assert [await runtime.status(run) for run in runs] == ["failed_terminal"] * 3
    assert {(await runtime.error(run))["code"] for run in runs} == {"no"}
    late = await another(runtime, "late")
    second = runtime.outside.effects[-1]
    assert second.idempotency_key != first.idempotency_key, "the target would hand back the old one"
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, [late])


async def test_who_begins_it_may_leave_and_another_takes_it_over(runtime: Any) -> None:
    first, second, third = await begun(runtime)
    key = await key_of(runtime)
    await cancel(runtime, first)
    await runtime.go_on()
    assert runtime.outside.canceled == []
    assert sorted([wait.kind for wait in await runtime.books.waits(open=True)]) == ["external", "shared"]
    await runtime.signal(key, {"papers": 1})
    await ended(runtime, [second, third])
    assert await cases(runtime) == 1


async def test_the_last_one_who_leaves_ends_it_outside(runtime: Any) -> None:
    runs = await begun(runtime)
    key = await key_of(runtime)
    for run in runs:
        assert runtime.outside.canceled == []
        await cancel(runtime, run)
        await runtime.go_on()
        await runtime.trouble.retry_messages_now()
        await runtime.go_on()
    assert [of for of, _ in runtime.outside.canceled] == [key]
    late = await another(runtime, "late")
    assert await cases(runtime) == 2
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, [late])


async def test_of_two_who_take_it_over_at_once_one_has_it(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen that it was left: the second one decides anew, and waits for the first one's end."""
    first, second, third = await begun(runtime)
    await cancel(runtime, first)
    await runtime.errands()
    taking = in_step(monkeypatch, "shares")
    await asyncio.gather(*(runtime.worker(name, concurrency=1).work_off() for name in ("w1", "w2")))
    assert taking == {second, third}
    assert sorted([wait.kind for wait in await runtime.books.waits(open=True)]) == ["external", "shared"]
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, [second, third])


async def test_who_joins_what_has_just_ended_has_its_end(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it end, and tell all who share it, between the look at it and the wait for its end."""
    (first,) = await begun(runtime, 1)
    key, apply = await key_of(runtime), Grouping.apply
    joined: list[Any] = []

    async def overtaken(grouping: Any, item: Any) -> Any:
        if isinstance(item, Commit) and item.joins and not joined:
            joined.append(item.run_id)
            await runtime.signal(key, {"papers": 1})
            await runtime.worker("other").work_off()
            await runtime.errands()
        return await apply(grouping, item)

    monkeypatch.setattr(Grouping, "apply", overtaken)
    late = await another(runtime, "late")
    assert joined == [late]
    assert [wait.kind for wait in await runtime.books.waits(open=True)] == []
    await ended(runtime, [first, late])
    assert await cases(runtime) == 1


async def test_an_end_between_leaving_and_taking_over_is_kept_for_whoever_takes_over(runtime: Any) -> None:
    first, second, third = await begun(runtime)
    await cancel(runtime, first)
    answer = await runtime.signal(await key_of(runtime), {"papers": 1})
    assert answer.code == "kept"
    await ended(runtime, [second, third])


@pytest.mark.parametrize("rule", BY)
async def test_who_takes_over_is_judged_again(runtime: Any, rule: str) -> None:
    first, second = await begun(runtime, 2)
    await runtime.person("olga", ("owners",))
    await runtime.policy(BY[rule])
    await cancel(runtime, first)
    await runtime.go_on()
    if rule == "denies":
        assert (await runtime.error(second))["code"] == "policy_denied"
        await runtime.trouble.retry_messages_now()
        await runtime.go_on()
        assert len(runtime.outside.canceled) == 1
        await runtime.at_rest()
        return
    assert await runtime.status(second) == "waiting_approval"
    assert runtime.outside.canceled == []
    await runtime.vote("olga", "approve")
    await runtime.go_on()
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, [second])


@pytest.mark.parametrize("rule", BY)
async def test_who_comes_later_is_judged_before_it_shares(runtime: Any, rule: str) -> None:
    (first,) = await begun(runtime, 1)
    await runtime.person("olga", ("owners",))
    await runtime.policy(BY[rule])
    second = await another(runtime, "late")
    assert await runtime.status(second) == ("failed_terminal" if rule == "denies" else "waiting_approval")
    if rule == "asks":
        await runtime.vote("olga", "approve")
        await runtime.go_on()
        assert await runtime.status(second) == "waiting"
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, [first] if rule == "denies" else [first, second])


async def test_a_crash_of_whoever_begins_it_is_waited_for(runtime: Any, late_gate: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CASE)
    first = (await runtime.start("case", {"number": "INC1"}, ref="1")).run_id
    await runtime.crash(late_gate, "t")
    second = (await runtime.start("case", {"number": "INC1"}, ref="2")).run_id
    await runtime.go_on()
    assert [await runtime.status(run) for run in (first, second)] == ["waiting", "waiting"]
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, [first, second])
    assert await cases(runtime) == 1


async def test_a_refusal_fails_those_who_had_joined(runtime: Any, gate: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CASE)
    runtime.outside.script["t"] = [Refused("closed", "Not today.")]
    runtime.outside.gates["t"] = gate
    first = (await runtime.start("case", {"number": "INC1"}, ref="1")).run_id
    working = asyncio.create_task(runtime.worker("w1").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    second = await another(runtime, "2")
    assert await runtime.status(second) == "waiting"
    gate.opened.set()
    await working
    await runtime.go_on()
    assert [(await runtime.error(run))["code"] for run in (first, second)] == ["closed", "closed"]
    third = await another(runtime, "3")
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, [third])


async def test_two_first_intents_race_and_one_call_goes_out(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked, and found that nobody has the key: the second one decides anew, and joins the first."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CASE)
    runs = [(await runtime.start("case", {"number": "INC1"}, ref=str(number))).run_id for number in range(2)]
    first = in_step(monkeypatch, "effects")
    await asyncio.gather(*(runtime.worker(name, concurrency=1).work_off() for name in ("w1", "w2")))
    assert first == set(runs)
    assert sorted([wait.kind for wait in await runtime.books.waits(open=True)]) == ["external", "shared"]
    await runtime.go_on()
    assert await cases(runtime) == 1
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, runs)


async def test_a_lost_word_of_the_end_is_made_good_by_a_sweep(runtime: Any) -> None:
    runs = await begun(runtime, 2)
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await runtime.trouble.drop_messages("shared")
    await runtime.go_on()
    await ended(runtime, runs)


async def test_a_time_limit_is_each_ones_own(runtime: Any) -> None:
    first, second = await begun(runtime, 2)
    await runtime.trouble.make_waits_due("external", run=first)
    await runtime.go_on()
    assert await runtime.status(first) == "failed_terminal"
    assert runtime.outside.canceled == []
    await runtime.signal(await key_of(runtime), {"papers": 1})
    await ended(runtime, [second])
