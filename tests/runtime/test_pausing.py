"""Stop means stop: after the answer to a pause nothing new goes out, and no restart undoes it (promise 11)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.errors import ConsistencyError, InputError, NotFoundError
from core.terms import Stopped
from runtime.requests import pausing
from runtime.store import sweeps
from tests.support.runtime_again import ALLOW, approved_by, begun, in_doubt
from tests.support.runtime_pausing import KINDS, OPS, pause, resume

STEPS = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
  - {id: b, do: %s}
"""
WRITES = STEPS % "probe.effect.apply, with: {name: b}"
READS = STEPS % "probe.value.read, with: {name: b}"
DIFFS = STEPS % "probe.record.update, with: {name: b, fields: {priority: high}}"
BEGINS = STEPS % "probe.case.open, with: {name: b}"


async def names(runtime: Any) -> list[str]:
    return [effect.input["name"] for effect in runtime.outside.effects]


@pytest.mark.parametrize("what", [*KINDS])
@pytest.mark.parametrize("text", [WRITES, READS, DIFFS, BEGINS])
async def test_what_is_under_way_settles_and_nothing_new_goes_out_until_it_is_resumed(
    runtime: Any, text: str, what: str
) -> None:
    run_id = await begun(runtime, text)
    gate = runtime.outside.gates["a"] = runtime.gate_type()
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    assert (await pause(runtime, what, run_id)).changed
    reads = runtime.outside.reads
    gate.opened.set()
    await working
    assert await runtime.steps(run_id) == {"a": "succeeded", "b": "waiting"}
    wait = await runtime.books.wait(open=True)
    assert (wait.kind, wait.due_at) == ("pause", None)
    await runtime.at_rest_but_waiting()
    for _ in range(2):  # nobody looks at it while it is paused, also after a restart
        runtime = runtime.restarted()
        events = await runtime.events(run_id)
        await runtime.sweep()
        await runtime.worker().work_off()
        assert await runtime.events(run_id) == events
    assert (await names(runtime), runtime.outside.reads, runtime.outside.last_call.input["name"]) == (["a"], reads, "a")
    assert (await resume(runtime, what, run_id)).changed
    await runtime.sweep()
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == ("waiting" if text is BEGINS else "succeeded")
    assert runtime.outside.last_call.input["name"] == "b"
    (step,) = [step for step in await runtime.books.steps(run=run_id) if step.key == "b"]
    assert step.attempt == 0
    await runtime.history(run_id)


async def test_what_it_does_not_name_goes_on(runtime: Any) -> None:
    run_id = await begun(runtime, WRITES)
    await runtime.publish(WRITES.replace("workflow: w", "workflow: other"))
    verb = (runtime.faces, runtime.definitions, "acme")
    await pausing.pause(*verb, Stopped.WORKFLOW, "other", "No.", OPS)
    await pausing.pause(*verb, Stopped.CONNECTOR, "slack", "No.", OPS)
    other = await runtime.start("other", ref="2")
    await pausing.pause(*verb, Stopped.RUN, str(other.run_id), "No.", OPS)
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert await runtime.status(other.run_id) == "waiting"
    # Two pauses stop it, so one that is lifted lets it look again, and wait for the other.
    await pausing.resume(*verb, Stopped.WORKFLOW, "other", "", OPS)
    await runtime.go_on()
    assert await runtime.status(other.run_id) == "waiting"
    await pausing.resume(*verb, Stopped.RUN, str(other.run_id), "", OPS)
    await runtime.go_on()
    assert await runtime.status(other.run_id) == "succeeded"


@pytest.mark.parametrize("how", ["retry", "probe", "person"])
async def test_a_doubt_is_neither_probed_nor_sent_again_meanwhile(runtime: Any, how: str) -> None:
    run_id = await in_doubt(runtime, how)
    await pause(runtime, "connector")
    await runtime.wait_is_due()
    assert (runtime.outside.effects, runtime.outside.probes) == ([], 0)
    assert (await runtime.books.wait(open=True)).kind == "pause"
    before = await runtime.books.receipt()
    await resume(runtime, "connector")
    await runtime.sweep()
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    after = await runtime.books.receipt()
    assert (before.status, before.attempt, after.attempt) == ("in_doubt", 1, 2)
    await runtime.history(run_id)


async def test_a_person_may_say_meanwhile_that_it_happened(runtime: Any) -> None:
    run_id = await begun(runtime, WRITES.replace("probe.effect.apply, with: {name: a}", "probe.mail.send, with: {}"))
    await runtime.crash(runtime.gate_type(after_effect=True), "probe.mail.send")
    await runtime.worker().work_off()
    await pause(runtime, "tenant")
    assert (await runtime.vote("olga", "happened")).counted
    await runtime.worker().work_off()
    assert await runtime.steps(run_id) == {"a": "succeeded", "b": "waiting"}


async def test_votes_are_taken_meanwhile_and_the_action_waits(runtime: Any) -> None:
    run_id = await begun(runtime, STEPS % "probe.value.read, with: {name: b}", approved_by("leads", 1))
    await runtime.worker().work_off()
    await pause(runtime, "workflow")
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert [one.status for one in await runtime.books.approvals()] == ["approved"]
    await resume(runtime, "workflow")
    await runtime.sweep()
    await runtime.worker().work_off()
    assert await names(runtime) == ["a"]
    assert (await runtime.steps(run_id))["b"] == "waiting_approval"


async def test_a_retry_waits_too_and_uses_nothing_up(runtime: Any) -> None:
    from connectors.port import NotSent

    run_id = await begun(runtime, WRITES)
    runtime.outside.script["a"] = [NotSent("refused")] * 2  # three attempts are declared
    await runtime.worker().work_off()
    await pause(runtime, "run", run_id)
    await runtime.wait_is_due()
    assert (await runtime.books.wait(open=True)).kind == "pause"
    await resume(runtime, "run", run_id)
    await runtime.sweep()
    await runtime.worker().work_off()
    await runtime.wait_is_due()
    assert await runtime.status(run_id) == "succeeded"


async def test_it_is_audited_and_repeating_it_changes_nothing(runtime: Any) -> None:
    run_id = await begun(runtime, WRITES)
    for changed in (True, False):
        assert (await pause(runtime, "run", run_id)).changed is changed
    async with runtime.faces.transaction("acme") as connection:
        (held,) = await pausing.listed(connection, "acme")
        assert await pausing.of_run(connection, "acme", run_id) == [held]
    assert (held.what, held.name, held.by, held.reason) == ("run", str(run_id), "olga", "An emergency.")
    for changed in (True, False):
        assert (await resume(runtime, "run", run_id)).changed is changed
    events = await runtime.books.tenant_events("acme")
    assert [(event.type, event.data["paused"], event.actor["id"]) for event in events] == [
        ("pause.set", f"run:{run_id}", "olga"),
        ("pause.lifted", f"run:{run_id}", "olga"),
    ]
    assert [kind for kind in await runtime.events(run_id) if kind in ("run.paused", "run.resumed")] == [
        "run.paused",
        "run.resumed",
    ]


async def test_a_run_that_is_paused_can_be_canceled_and_its_pause_goes_with_the_next_one(runtime: Any) -> None:
    from runtime.requests.steering import cancel_run

    run_id = await begun(runtime, WRITES)
    await pause(runtime, "run", run_id)
    await runtime.worker().work_off()
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, OPS, "enough")
        assert await pausing.listed(connection, "acme") == []
    await runtime.at_rest()
    with pytest.raises(ConsistencyError, match="nothing left to pause"):
        await pause(runtime, "run", run_id)
    await pause(runtime, "connector")
    assert (await runtime.one("SELECT count(*) FROM tenants, jsonb_object_keys(paused)"))[0] == 1


@pytest.mark.parametrize(
    ("what", "name", "error", "words"),
    [
        (Stopped.TENANT, "other", NotFoundError, "This is the tenant 'acme'"),
        (Stopped.WORKFLOW, "ww", NotFoundError, "There is no workflow 'ww'"),
        (Stopped.CONNECTOR, "prob", NotFoundError, "There is no connector 'prob'"),
        (Stopped.RUN, "0198c0de-0000-7000-8000-000000000000", NotFoundError, "There is no run"),
        (Stopped.RUN, "x", InputError, "'x' is not an id"),
    ],
)
async def test_an_unknown_thing_is_named(runtime: Any, what: Any, name: str, error: Any, words: str) -> None:
    await begun(runtime, WRITES)
    for verb in (pausing.pause, pausing.resume):
        with pytest.raises(error, match=words):
            await verb(runtime.faces, runtime.definitions, "acme", what, name, "Why.", OPS)
    with pytest.raises(InputError, match="is empty"):
        await pause(runtime, "tenant", reason=" ")


async def test_so_many_pauses_are_kept_and_no_more(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausing, "PAUSES_MAX", 2)
    await begun(runtime, WRITES)
    assert [(await pause(runtime, what)).changed for what in ("workflow", "connector")] == [True, True]
    with pytest.raises(ConsistencyError, match="2 pauses are in force"):
        await pause(runtime, "tenant")
    await resume(runtime, "workflow")
    assert (await pause(runtime, "tenant")).changed


async def test_a_wait_that_was_parked_before_a_crash_of_the_keeper_goes_on(runtime: Any) -> None:
    """The tenant's row holds the keys that keepers have still to set going."""
    run_id = await begun(runtime, WRITES, ALLOW)
    await pause(runtime, "tenant")
    await runtime.worker().work_off()
    await resume(runtime, "tenant")
    assert (await runtime.one("SELECT resumed FROM tenants"))["resumed"] == ["tenant"]
    await runtime.sweep()
    assert (await runtime.steps(run_id))["a"] == "ready"
    await runtime.sweep()
    row = await runtime.one("SELECT resumed, judge_after FROM tenants")
    assert (row["resumed"], row["judge_after"]) == (None, None)


async def test_a_run_is_paused_and_resumed_under_any_spelling_of_its_id(runtime: Any) -> None:
    run_id = await begun(runtime, WRITES)
    done = await pause(runtime, "run", str(run_id).upper())
    assert (done.name, done.changed) == (str(run_id), True)
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert not (await pause(runtime, "run", f"{{{run_id}}}")).changed
    assert (await resume(runtime, "run", run_id.hex)).changed
    await runtime.go_on()
    assert (await runtime.status(run_id), await names(runtime)) == ("succeeded", ["a", "b"])


@pytest.mark.parametrize(("tenants", "runs"), [(1, 3), (3, 1)])
async def test_what_was_resumed_goes_on_whole_however_little_a_sweep_takes(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, tenants: int, runs: int
) -> None:
    """More steps than a sweep takes, and more tenants than it has a share for."""
    for number in range(tenants):
        await runtime.tenant(f"t{number}")
        await runtime.policy(tenant=f"t{number}")
        await runtime.publish(WRITES, f"t{number}")
        for ref in range(runs):
            await runtime.start("w", ref=str(ref), tenant=f"t{number}")
        verb = (runtime.faces, runtime.definitions, f"t{number}", Stopped.TENANT, "")
        await pausing.pause(*verb, "An emergency.", OPS)
    await runtime.go_on()
    assert (runtime.outside.effects, len(await runtime.books.waits(kind="pause", open=True))) == ([], tenants * runs)
    for number in range(tenants):
        verb = (runtime.faces, runtime.definitions, f"t{number}", Stopped.TENANT, "")
        await pausing.resume(*verb, "", OPS)
    monkeypatch.setattr(sweeps, "BATCH", 2)
    await runtime.go_on()
    assert sorted(await names(runtime)) == ["a"] * tenants * runs + ["b"] * tenants * runs
    assert {run.status for run in await runtime.books.runs()} == {"succeeded"}
    rows = await runtime.all("SELECT resumed, judge_after FROM tenants")
    assert {(row["resumed"], row["judge_after"]) for row in rows} == {(None, None)}
