"""Timers, signals and tasks: what a run is parked on, and what ends that (X-7, X-9, X-16, X-17, P-4, P-5, P-12)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from core.errors import InputError

HEAD = "workflow: w\nversion: 1\nreference: ${{ trigger.ref }}\nchannels: {got: {}, by: {}}\nsteps:\n"
AFTER = "  - {id: after, do: probe.value.read, with: {name: after}}\n"
TIMER = HEAD + "  - wait: {for: P9D}\n" + AFTER
SIGNAL = (
    HEAD
    + "  - {id: paid, wait: {signal: paid, correlate: '${{ run.reference }}'}, timeout: P2D,"
    + " set: {got: '${{ output.amount }}', by: '${{ signal.by }}'}}\n"
    + AFTER
)
TASK = (
    HEAD
    + """  - id: owner
    task:
      title: "Who owns ${{ run.reference }}?"
      description: Look it up.
      form: {type: object, properties: {name: {type: string, maxLength: 20}, share: {type: integer}}, required: [name]}
      assign: {group: kyc}
    timeout: P3D
    set: {got: "${{ output.name }}", by: "${{ signal.by }}"}
"""
    + AFTER
)
TRIGGER = {"ref": "c1"}


async def waiting(runtime: Any, run_id: Any) -> str:
    found: str = (await runtime.books.wait(run=run_id, open=True)).kind
    return found


@pytest.mark.req("X-7")
@pytest.mark.req("X-6")
async def test_a_timer_holds_nothing_and_goes_on_when_its_time_has_come(runtime: Any) -> None:
    run_id = await runtime.go(TIMER, TRIGGER)
    assert (await runtime.status(run_id), await waiting(runtime, run_id)) == ("waiting", "timer")
    wait = await runtime.books.wait()
    assert wait.due_at - wait.created_at == timedelta(days=9)
    held = [step.key for step in await runtime.books.steps() if step.lease_owner is not None]
    assert (held, await runtime.books.slots_taken(), await runtime.sweep()) == ([], 0, 0)
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.at_rest()
    kinds = await runtime.events(run_id)
    assert kinds.index("step.parked") < kinds.index("wait.completed") < kinds.index("step.resumed")
    await runtime.history(run_id)


async def test_a_moment_that_has_passed_is_not_waited_for(runtime: Any) -> None:
    text = HEAD + "  - wait: {until: '${{ trigger.at }}'}\n" + AFTER
    run_id = await runtime.go(text, {**TRIGGER, "at": "2020-01-01T00:00:00Z"})
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.parametrize(
    ("at", "words"), [("tomorrow", "RFC 3339"), ("2030-01-01T10:00:00", "Write its offset, or at('2030-01-01'")]
)
async def test_a_moment_that_is_none_or_has_no_zone_fails_the_step(runtime: Any, at: str, words: str) -> None:
    run_id = await runtime.go(HEAD + "  - wait: {until: '${{ trigger.at }}'}\n", {**TRIGGER, "at": at})
    assert await runtime.status(run_id) == "failed_terminal"
    assert words in (await runtime.error(run_id))["message"]


@pytest.mark.req("V-10")
@pytest.mark.req("P-5")
@pytest.mark.req("X-4")
async def test_a_signal_resumes_the_run_that_waits_for_it_once(runtime: Any) -> None:
    run_id = await runtime.go(SIGNAL, TRIGGER)
    first = await runtime.signal("paid:c1", {"amount": 7}, id="s1")
    assert (first.code, first.repeated, first.run_id) == ("delivered", False, run_id)
    again = await runtime.signal("paid:c1", {"amount": 7}, id="s1")
    assert (again.code, again.repeated) == ("delivered", True)
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    state = await runtime.state(run_id)
    assert (state["channels"]["got"], state["channels"]["by"]) == (7, "test:tester")
    assert (await runtime.events(run_id)).count("wait.completed") == 1
    await runtime.at_rest()
    await runtime.history(run_id)


@pytest.mark.req("P-11")
async def test_a_signal_sent_ten_times_at_once_is_one(runtime: Any) -> None:
    run_id = await runtime.go(SIGNAL, TRIGGER)
    answers = await asyncio.gather(*(runtime.signal("paid:c1", {"amount": 7}, id="s1") for _ in range(10)))
    assert {answer.code for answer in answers} == {"delivered"}
    assert [answer.repeated for answer in answers].count(False) == 1
    assert (await runtime.events(run_id)).count("wait.completed") == 1


@pytest.mark.req("X-16")
async def test_a_signal_that_comes_before_its_wait_is_kept_for_it(runtime: Any) -> None:
    await runtime.tenant()
    early = await runtime.signal("paid:c1", {"amount": 3})
    assert early.code == "kept"
    await runtime.policy()
    await runtime.publish(SIGNAL)
    run_id = (await runtime.start("w", TRIGGER)).run_id
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["got"] == 3
    assert await runtime.books.notices(processed=False) == []


async def test_of_two_that_wait_for_one_signal_each_takes_its_own(runtime: Any) -> None:
    first = await runtime.go(SIGNAL, TRIGGER)
    second = (await runtime.start("w", TRIGGER, ref="2")).run_id
    await runtime.worker().work_off()
    assert (await runtime.signal("paid:c1", {"amount": 1})).run_id == first
    assert (await runtime.signal("paid:c1", {"amount": 2})).run_id == second
    assert (await runtime.signal("paid:c1", {"amount": 3})).code == "kept"


@pytest.mark.req("X-16")
@pytest.mark.req("X-17")
@pytest.mark.parametrize("more", [{"token": "another"}, {"version": 1}])
async def test_a_signal_for_another_wait_is_ignored_and_recorded(runtime: Any, more: dict[str, Any]) -> None:
    run_id = await runtime.go(SIGNAL, TRIGGER)
    answer = await runtime.signal("paid:c1", {"amount": 7}, id="s", **more)
    assert (answer.code, await runtime.status(run_id)) == ("stale", "waiting")
    kept = await runtime.books.notice(id="s")
    assert (kept.result["code"], kept.processed) == ("stale", True)
    assert await runtime.books.audit(type="signal.ignored") != []
    token, version = (await runtime.books.wait()).token, (await runtime.books.run()).version
    assert (await runtime.signal("paid:c1", {"amount": 7}, token=token, version=version)).code == "delivered"


@pytest.mark.parametrize(
    ("more", "place"),
    [({"id": ""}, "id"), ({"id": "x" * 300}, "id"), ({"output": {"x": "y" * 300_000}}, "output")],
)
async def test_a_signal_that_cannot_be_kept_is_refused_at_its_place(
    runtime: Any, more: dict[str, Any], place: str
) -> None:
    await runtime.tenant()
    with pytest.raises(InputError, match=place):
        await runtime.signal("k", **more)
    assert await runtime.books.notices() == []


@pytest.mark.req("V-12")
@pytest.mark.req("P-4")
async def test_a_wait_past_its_timeout_fails_its_step(runtime: Any) -> None:
    run_id = await runtime.go(SIGNAL, TRIGGER)
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "failed_terminal"
    error = await runtime.error(run_id)
    assert (error["class"], error["code"], error["step"]) == ("timeout", "timed_out", "paid")
    assert "wait.timed_out" in await runtime.events(run_id)
    await runtime.at_rest()


@pytest.mark.req("X-9")
@pytest.mark.req("V-16")
async def test_a_task_waits_for_a_member_of_its_group_to_fill_in_its_form(runtime: Any) -> None:
    run_id = await runtime.go(TASK, TRIGGER)
    await runtime.person("kim", ("kyc",))
    assert (await runtime.status(run_id), await waiting(runtime, run_id)) == ("waiting", "task")
    task = await runtime.books.wait(kind="task")
    assert task.context["title"] == "Who owns c1?"
    faulty = await runtime.complete("kim", {"share": "much"})
    assert (faulty.accepted, {problem.where for problem in faulty.problems}) == (False, {"name", "share"})
    done = await runtime.complete("kim", {"name": "Ada"})
    assert done.accepted
    assert (await runtime.complete("kim", {"name": "Ada"}, task.id)).accepted
    other = await runtime.complete("kim", {"name": "Bob"}, task.id)
    assert (other.accepted, other.code) == (False, "completed")
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    channels = (await runtime.state(run_id))["channels"]
    assert (channels["got"], channels["by"]) == ("Ada", "person:kim")
    await runtime.history(run_id)


@pytest.mark.req("P-12")
@pytest.mark.parametrize("groups", [None, ("sales",)])
async def test_who_may_not_complete_a_task_is_told_why_and_recorded(
    runtime: Any, groups: tuple[str, ...] | None
) -> None:
    run_id = await runtime.go(TASK, TRIGGER)
    if groups is not None:
        await runtime.person("sam", groups)
    answer = await runtime.complete("sam", {"name": "Ada"})
    assert (answer.accepted, answer.code, answer.problems) == (False, "not_assigned", ())
    assert "kyc" in answer.sentence or "directory" in answer.sentence
    assert await runtime.books.audit(type="task.refused") != []
    assert await runtime.status(run_id) == "waiting"


async def test_a_task_that_nobody_completes_expires_and_says_so(runtime: Any) -> None:
    run_id = await runtime.go(TASK, TRIGGER)
    await runtime.person("kim", ("kyc",))
    task = (await runtime.books.wait()).id
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "failed_terminal"
    late = await runtime.complete("kim", {"name": "Ada"}, task)
    assert (late.accepted, late.code) == (False, "expired")


async def test_two_people_who_complete_a_task_at_once_are_one_completion(runtime: Any) -> None:
    run_id = await runtime.go(TASK, TRIGGER)
    for name in ("kim", "lee"):
        await runtime.person(name, ("kyc",))
    task = (await runtime.books.wait()).id
    answers = await asyncio.gather(
        *(runtime.complete(name, {"name": name}, task) for name in ("kim", "lee", "kim", "lee"))
    )
    winner = "kim" if answers[0].accepted else "lee"
    assert [a.accepted for a in answers] == [name == winner for name in ("kim", "lee", "kim", "lee")]
    await runtime.worker().work_off()
    assert (await runtime.state(run_id))["channels"]["got"] == winner


@pytest.mark.req("X-20")
async def test_a_canceled_run_waits_for_nothing_and_a_late_signal_changes_nothing(runtime: Any) -> None:
    from runtime.requests.steering import cancel_run

    run_id = await runtime.go(SIGNAL, TRIGGER)
    async with runtime.faces.transaction("acme") as connection:
        assert await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no") == "canceled"
    await runtime.at_rest()
    assert (await runtime.signal("paid:c1", {"amount": 1})).code == "kept"
    assert await runtime.status(run_id) == "canceled"
    assert await runtime.books.places() == []
