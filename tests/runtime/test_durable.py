"""Durable operations: the same surface as any other, and a wait that is there before anything begins (V-1 to V-16)."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from connectors.port import Done, InDoubt, NotSent, Parked, Refused
from runtime.requests.steering import cancel_run
from tests.support.runtime_durable import correlation

HEAD = "workflow: w\nversion: 1\nreference: r\nchannels: {got: {}, why: {}}\nsteps:\n"
CASE = HEAD + "  - {id: case, do: probe.case.open, with: {name: a}, set: {got: '${{ output.papers }}'}%s}\n"
AFTER = "  - {id: after, do: probe.effect.apply, with: {name: after}}\n"


async def external(runtime: Any) -> Any:
    return (await runtime.books.waits(kind="external"))[-1]


@pytest.mark.req("V-1")
@pytest.mark.req("V-3")
@pytest.mark.req("V-9")
async def test_what_goes_on_outside_is_waited_for_and_completed_by_a_signal(runtime: Any) -> None:
    run_id = await runtime.go(CASE % "" + AFTER)
    (call,) = runtime.outside.effects
    assert call.correlation_key == correlation(run_id)
    wait = await external(runtime)
    assert (wait.correlation_key, wait.status, await runtime.status(run_id)) == (
        correlation(run_id),
        "waiting",
        "waiting",
    )
    receipt = await runtime.books.receipt()
    assert (receipt.status, receipt.external_id) == ("succeeded", "case-1")
    await runtime.at_rest_but_waiting()
    answer = await runtime.signal(correlation(run_id), {"papers": ["passport"]})
    assert answer.code == "delivered"
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["got"] == ["passport"]
    await runtime.at_rest()
    await runtime.history(run_id)


@pytest.mark.req("V-9")
async def test_the_wait_is_there_before_anything_begins(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CASE % "")

    gate = runtime.gate_type()
    runtime.outside.gates["a"] = gate
    await runtime.start("w")
    async with runtime.working():
        await gate.reached.wait()
        wait, step = await runtime.books.wait(), await runtime.books.step()
        gate.opened.set()
        await runtime.until(partial(runtime.books.steps, status="waiting"))
    assert (wait.status, step.status, wait.step_id) == ("waiting", "running", step.id)


@pytest.mark.req("V-10")
async def test_an_end_that_is_told_while_it_is_being_begun_is_not_lost(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CASE % "")
    gate = runtime.gate_type(after_effect=True)
    runtime.outside.gates["a"] = gate
    run_id = (await runtime.start("w")).run_id
    async with runtime.working():
        await gate.reached.wait()
        assert (await runtime.signal(correlation(run_id), {"papers": []})).code == "kept"
        gate.opened.set()
        await runtime.until(partial(runtime.books.steps, status="waiting"))
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.req("V-3")
async def test_what_is_done_within_the_call_needs_no_wait(runtime: Any) -> None:
    runtime.outside.script["a"] = [Done({"papers": ["now"]})]
    run_id = await runtime.go(CASE % "")
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["got"] == ["now"]
    await runtime.at_rest()


async def test_what_is_refused_waits_for_nothing(runtime: Any) -> None:
    runtime.outside.script["a"] = [Refused("404", "No such process.")]
    run_id = await runtime.go(CASE % "")
    assert await runtime.status(run_id) == "failed_terminal"
    assert (await external(runtime)).status == "canceled"
    await runtime.at_rest()


@pytest.mark.req("X-19")
async def test_what_was_not_sent_is_begun_later_under_the_same_key(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("no connection"), Parked("case-x")]
    run_id = await runtime.go(CASE % "")
    assert await runtime.status(run_id) == "failed_retryable"
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "waiting"
    waits = await runtime.books.waits(kind="external")
    assert [wait.status for wait in waits] == ["canceled", "waiting"]
    assert {wait.correlation_key for wait in waits} == {correlation(run_id)}
    await runtime.signal(correlation(run_id), {"papers": 1})
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.at_rest()


@pytest.mark.req("V-14")
@pytest.mark.parametrize("landed", [True, False])
async def test_a_worker_that_dies_while_beginning_begins_it_once(runtime: Any, landed: bool) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CASE % "")
    run_id = (await runtime.start("w")).run_id
    await runtime.crash(runtime.gate_type(after_effect=landed), "a")
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("waiting", 1)
    await runtime.signal(correlation(run_id), {"papers": 2})
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.at_rest()
    await runtime.history(run_id)


async def test_a_start_in_doubt_is_looked_for_and_then_waited_for(runtime: Any) -> None:
    runtime.outside.script["a"] = [InDoubt("no answer")]
    run_id = await runtime.go(CASE % "")
    assert await runtime.status(run_id) == "failed_retryable"
    runtime.outside.effects.append(runtime.outside.last_call)
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), runtime.outside.probes) == ("waiting", 1)
    await runtime.signal(correlation(run_id), {"papers": 2})
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.req("V-12")
async def test_what_takes_too_long_is_ended_outside_and_fails(runtime: Any) -> None:
    run_id = await runtime.go(CASE % ", timeout: P1D")
    wait = await runtime.books.wait()
    assert wait.due_at - wait.created_at == timedelta(days=1)
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "failed_terminal"
    await runtime.errands()
    assert runtime.outside.canceled == [(correlation(run_id), "case-1")]
    late = await runtime.signal(correlation(run_id), {"papers": 1})
    assert late.code == "already_ended"
    assert (await runtime.signal(correlation(run_id), {"papers": 1}, id="x")).code == "already_ended"


@pytest.mark.req("V-12")
async def test_an_escalation_asks_a_group_and_may_start_another_workflow(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.publish(
        "workflow: chase\nversion: 1\nsteps:\n  - {id: c, do: probe.effect.apply, with: {name: chase}}\n"
    )
    text = (
        CASE
        % ", timeout: P1D, on_timeout: {escalate: bosses, start: {workflow: chase, with: {about: '${{ error.step }}'}}}"
    )
    await runtime.policy()
    await runtime.publish(text + AFTER)
    run_id = (await runtime.start("w")).run_id
    await runtime.person("ada", ("bosses",))
    await runtime.worker().work_off()
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "waiting_approval"
    chased = await runtime.books.run(workflow="chase")
    assert (chased.status, await runtime.books.trigger_of(chased.id)) == ("succeeded", {"about": "case"})
    await runtime.vote("ada", "approve")
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    assert "after" in [call.input["name"] for call in runtime.outside.effects]
    await runtime.history(run_id)


@pytest.mark.req("V-13")
async def test_canceling_a_run_ends_what_it_began_outside(runtime: Any) -> None:
    run_id = await runtime.go(CASE % "")
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "not needed")
    assert await runtime.status(run_id) == "canceled"
    await runtime.errands()
    assert runtime.outside.canceled == [(correlation(run_id), "case-1")]
    assert (await runtime.signal(correlation(run_id), {"papers": 1})).code == "already_ended"
    assert "wait.canceled" in await runtime.events(run_id)
    await runtime.at_rest()


@pytest.mark.req("V-13")
async def test_what_was_begun_at_one_system_is_not_ended_at_another(runtime: Any) -> None:
    runtime.outside.target = "https://a.example"
    run_id = await runtime.go(CASE % "")
    runtime.outside.target = "https://b.example"
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "not needed")
    await runtime.errands()
    assert runtime.outside.canceled == []
    order = await runtime.books.command(kind="cancel")
    assert (order.status, "https://a.example" in order.last_error) == ("failed", True)


async def test_an_error_from_outside_takes_the_failure_branch(runtime: Any) -> None:
    branch = ", on_failure: [{id: note, do: probe.value.read, with: {name: n}, set: {why: '${{ error.code }}'}}]"
    run_id = await runtime.go(CASE % branch)
    error = {"code": "rejected_by_registry", "message": "No."}
    await runtime.signal(correlation(run_id), None, error=error)
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["why"] == "rejected_by_registry"


async def test_a_durable_operation_that_needs_approval_begins_only_then(runtime: Any) -> None:
    policy = (
        "policy: p\nversion: 1\nrules:\n  - {id: r, match: {operation: probe.case.open}, outcome: needs_approval,"
        " approvers: [{group: owners}]}\n"
    )
    run_id = await runtime.go(CASE % "", policy=policy)
    assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])
    await runtime.person("olga", ("owners",))
    await runtime.vote("olga", "approve")
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("waiting", 1)
    await runtime.signal(correlation(run_id), {"papers": 1})
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.history(run_id)


@pytest.mark.req("X-4")
@pytest.mark.req("X-16")
async def test_a_step_hands_its_waiting_token_out_and_an_approval_of_that_binds(runtime: Any) -> None:
    policy = (
        "policy: p\nversion: 1\nrules:\n  - {id: r, match: {operation: probe.case.open}, outcome: needs_approval,"
        " approvers: [{group: owners}]}\n"
    )
    run_id = await runtime.go((CASE % "").replace("name: a", "name: '${{ wait.token }}'"), policy=policy)
    await runtime.person("olga", ("owners",))
    await runtime.vote("olga", "approve")
    await runtime.worker().work_off()
    (call,), wait = runtime.outside.effects, await external(runtime)
    assert (call.input["name"], wait.status) == (wait.token, "waiting")
    assert (await runtime.signal(correlation(run_id), {}, token="another")).code == "stale"
    assert (await runtime.signal(correlation(run_id), {"papers": 1}, token=call.input["name"])).code == "delivered"
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.history(run_id)
