"""Signals that nobody waits for yet, or any more: whom they are for, what becomes of them, what their senders hear."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from core.errors import InputError
from runtime.requests.signaling import ID_CHARACTERS_MAX, KEY_CHARACTERS_MAX
from runtime.requests.steering import cancel_run
from runtime.store.inbox import KEPT_FOR
from tests.support.runtime_kept_signals import HEAD, MORE, PAID, TRIGGER, begun

PAUSE = "  - {id: pause, wait: {for: PT1H}}\n"


async def say(runtime: Any, amount: int) -> Any:
    """A signal whose sender gives it no id."""
    return await runtime.signal("paid:c1", {"amount": amount}, id=None)


async def cancel(runtime: Any, run_id: UUID) -> None:
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")


@pytest.mark.req("V-10")
async def test_the_same_body_without_an_id_is_no_second_signal_and_its_sender_is_told(runtime: Any) -> None:
    """The second wait may be meant, or the first signal is repeated: nobody can tell, so nobody hears *delivered*."""
    (run_id,) = await begun(runtime, HEAD + PAID + MORE)
    assert (await say(runtime, 7)).code == "delivered"
    again = await say(runtime, 7)
    assert (again.code, again.repeated, again.step) == ("delivered", True, "paid")  # nothing else waits yet
    await runtime.worker().work_off()
    again = await say(runtime, 7)
    assert (again.code, again.repeated, again.run_id, again.step) == ("duplicate", True, run_id, "paid")
    assert await runtime.status(run_id) == "waiting"
    own = await runtime.signal("paid:c1", {"amount": 7}, id="second")
    assert (own.code, own.repeated, own.step) == ("delivered", False, "more")
    again = await runtime.signal("paid:c1", {"amount": 7}, id="second")
    assert (again.code, again.repeated) == ("delivered", True)
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.history(run_id)


@pytest.mark.req("V-10")
async def test_of_a_signal_that_is_kept_the_first_content_counts(runtime: Any) -> None:
    await begun(runtime, HEAD + PAID, refs="")
    assert (await runtime.signal("paid:c1", {"amount": 7}, id="x")).code == "kept"
    run_id = (await runtime.start("w", TRIGGER)).run_id
    await runtime.worker().work_off()
    again = await runtime.signal("paid:c1", {"amount": 9}, id="x")
    assert (again.code, again.repeated, again.step) == ("delivered", True, "paid")
    await runtime.worker().work_off()
    assert (await runtime.state(run_id))["channels"] == {"got": [7]}
    await runtime.history(run_id)


@pytest.mark.req("V-10")
async def test_a_key_and_an_id_have_their_longest_length_and_no_more(runtime: Any) -> None:
    await runtime.tenant()
    key, own = "k" * KEY_CHARACTERS_MAX, "i" * ID_CHARACTERS_MAX
    assert (await runtime.signal(key, {}, id=own)).code == "kept"
    for longer, named in ((f"{key}k", own), (key, f"{own}i")):
        with pytest.raises(InputError, match="longer than"):
            await runtime.signal(longer, {}, id=named)


async def test_what_is_kept_twice_without_an_id_is_one_and_says_so(runtime: Any) -> None:
    await runtime.tenant()
    first, second = [await say(runtime, 3) for _ in range(2)]
    assert [(one.code, one.repeated) for one in (first, second)] == [("kept", False), ("kept", True)]
    assert first.id == second.id
    await runtime.policy()
    await runtime.publish(HEAD + PAID + MORE)
    run_id = (await runtime.start("w", TRIGGER)).run_id
    await runtime.worker().work_off()
    third = await say(runtime, 3)
    assert (third.code, third.repeated, third.run_id) == ("delivered", True, run_id)  # kept until now, and for it
    await runtime.go_on()
    assert (await say(runtime, 3)).code == "duplicate"


@pytest.mark.parametrize("swept", [True, False])
async def test_a_late_signal_for_a_run_that_is_over_ends_no_wait_of_the_next_run(runtime: Any, swept: bool) -> None:
    (first,) = await begun(runtime, HEAD + PAID)
    await cancel(runtime, first)
    late = await say(runtime, 1)
    assert (late.code, late.run_id) == ("kept", None)
    second = (await runtime.start("w", TRIGGER, ref="2")).run_id
    await runtime.worker().work_off()
    if swept:
        assert await runtime.sweep() == 0
    else:
        assert (await say(runtime, 1)).code == "duplicate"
    assert await runtime.status(second) == "waiting"
    assert (await say(runtime, 2)).run_id == second


@pytest.mark.parametrize("ends", [False, True])
async def test_a_signal_between_two_waits_of_a_run_is_for_that_run_alone(runtime: Any, ends: bool) -> None:
    """Another run that was there as well does not get it, also if the one that was meant ends."""
    first, meant = await begun(runtime, HEAD + PAID + PAUSE + MORE, refs="12")
    assert [(await say(runtime, n)).run_id for n in (1, 2)] == [first, meant]
    await runtime.worker().work_off()
    between = await say(runtime, 3)
    assert (between.code, between.run_id) == ("kept", meant)
    if ends:
        await cancel(runtime, meant)
    await runtime.trouble.make_waits_due(run=first)
    await runtime.go_on()
    assert (await runtime.status(first), await runtime.sweep()) == ("waiting", 0)
    if not ends:
        await runtime.trouble.make_waits_due(run=meant)
        await runtime.go_on()
        assert (await runtime.state(meant))["channels"]["got"] == [2, 3]


async def test_a_signal_for_a_run_that_was_there_meets_its_first_wait(runtime: Any) -> None:
    """The run before it is over; this one had begun when the signal came, and waits only later."""
    (first,) = await begun(runtime, HEAD + PAUSE + PAID)
    await runtime.wait_is_due()
    second = (await runtime.start("w", TRIGGER, ref="2")).run_id
    await runtime.worker().work_off()
    await cancel(runtime, first)
    assert (await say(runtime, 5)).code == "kept"
    await runtime.wait_is_due()
    await runtime.go_on()
    assert (await runtime.status(second), (await runtime.state(second))["channels"]["got"]) == ("succeeded", [5])


@pytest.mark.req("X-16")
@pytest.mark.parametrize("named", [{"token": "of-an-earlier-wait"}, {"version": 3}])
async def test_a_signal_for_one_wait_or_one_version_is_not_kept_for_another(
    runtime: Any, named: dict[str, Any]
) -> None:
    await runtime.tenant()
    answer = await runtime.signal("paid:c1", {"amount": 1}, id="s", **named)
    assert (answer.code, answer.run_id) == ("stale", None)
    assert (await runtime.books.notice(id="s")).processed


async def test_a_signal_is_kept_for_so_long_and_then_its_sender_hears_it(runtime: Any) -> None:
    await runtime.tenant()
    for amount, days in ((1, KEPT_FOR.days + 1), (2, KEPT_FOR.days - 1)):
        assert (await say(runtime, amount)).code == "kept"
        await runtime.trouble.age_notices(timedelta(days=days), amount)
    assert [await runtime.sweep(), await runtime.sweep()] == [1, 0]
    await runtime.policy()
    await runtime.publish(HEAD + PAID + MORE)
    run_id = (await runtime.start("w", TRIGGER)).run_id
    await runtime.go_on()
    assert (await runtime.status(run_id), (await runtime.books.wait(open=True)).step) == ("waiting", "more")
    over = await runtime.books.notice(processed=True, payload={})
    assert (over.result["code"], over.source) == ("expired", "signal")
    assert len(await runtime.books.audit(type="signal.ignored")) == 1
    again = await runtime.signal("paid:c1", {"amount": 1}, id=over.id)
    assert (again.code, again.repeated) == ("expired", True)


async def test_a_signal_whose_values_are_removed_already_ends_as_well(runtime: Any) -> None:
    await runtime.tenant()
    await say(runtime, 1)
    await runtime.trouble.age_notices(timedelta(days=KEPT_FOR.days + 1), 1)
    await runtime.trouble.unreadable_signals("acme")
    assert [await runtime.sweep(), await runtime.sweep()] == [1, 0]
    assert (await runtime.books.notice()).result["code"] == "expired"


async def test_what_one_tenant_keeps_does_not_hold_up_another(runtime: Any) -> None:
    """A hundred that a sweep takes up in vain are before it every time."""
    await begun(runtime, HEAD + PAID)
    for tenant in ("alpha", "zulu"):
        await runtime.tenant(tenant)
        await runtime.policy(tenant=tenant)
        await runtime.publish(HEAD + PAID, tenant)
    for n in range(120):
        await runtime.signal(f"paid:{n}", {"amount": n}, id=str(n), tenant_id="alpha")
    await runtime.signal("paid:c1", {"amount": 9}, tenant_id="zulu")
    for n in range(120):
        await runtime.start("w", {"ref": str(n)}, ref=str(n), tenant="alpha")
    served = (await runtime.start("w", TRIGGER, tenant="zulu")).run_id
    await runtime.worker().work_off()
    await runtime.trouble.unreadable_signals("alpha")
    await runtime.sweep()
    await runtime.worker().work_off()
    assert await runtime.status(served) == "succeeded"
