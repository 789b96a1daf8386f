"""A known outcome is never dropped: a worker that lost its lease tells what it knows, and decides nothing by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
import structlog

from connectors.port import Done, InDoubt, NotSent, Probe, ProbeVerdict, Refused
from core.db import Connection
from runtime.engine.model.rows import Commit
from runtime.requests.views import RunReader
from runtime.store.commits import apply
from runtime.work import calling
from runtime.work.lease import LostLease

STEPS = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: %s}
"""
PROBED = STEPS % "probe.effect.apply, with: {name: a}"
ASKED = STEPS % "probe.mail.send, with: {text: hello}"
LONG = """
workflow: long
version: 1
reference: ${{ run.id }}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}}
  - {id: on, wait: {signal: on, correlate: "1"}}
  - foreach: "${{ ['b', 'c', 'd'] }}"
    as: item
    steps: [{id: each, do: probe.effect.apply, with: {name: "${{ item }}"}}]
"""
READING = STEPS % "probe.value.read, with: {name: a}"
MAIL = "probe.mail.send"


async def begun(runtime: Any, text: str = PROBED) -> Any:
    await runtime.tenant()
    await runtime.policy()
    await runtime.person("olga", ("operators",))
    await runtime.publish(text)
    return (await runtime.start("w")).run_id


@asynccontextmanager
async def stalled(runtime: Any, gate: Any, name: str = "a") -> AsyncIterator[None]:
    """A worker hangs in its call while its lease ends; its answer comes at the end of the block."""
    runtime.outside.gates[name] = gate
    slow = asyncio.create_task(runtime.worker("slow").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    await runtime.trouble.expire_leases()
    await runtime.time_passes()
    assert await runtime.sweep() == 1
    yield
    gate.opened.set()
    await slow


async def told(runtime: Any, run_id: Any) -> list[dict[str, Any]]:
    """The public facts of the late answers in a run's book."""
    return [event.data for event in await runtime.books.events(run_id) if event.type == "action.late"]


async def seen(runtime: Any, run_id: Any) -> Any:
    return await RunReader(runtime.faces, runtime.definitions).at("acme", run_id)


@pytest.mark.req("Q-9")
async def test_a_stalled_worker_whose_request_lands_late(runtime: Any, gate: Any) -> None:
    """A stalled worker's request lands after the probe said that it was not there, and it was done again."""
    run_id = await begun(runtime)
    async with stalled(runtime, gate):
        await runtime.worker("fast").work_off()
        assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
        before = await runtime.books.run(run_id)
    runtime.outside.may_repeat.add("a")  # nobody could have kept it back: what is demanded is that it is not silent
    assert len(runtime.outside.effects) == 2
    after = await runtime.books.run(run_id)
    assert (after.status, after.finished_at, after.purge_at) == ("succeeded", before.finished_at, before.purge_at)
    assert after.audit_count == before.audit_count + 1
    assert (await runtime.events(run_id))[-2:] == ["run.closed", "action.late"]
    (answer,) = await told(runtime, run_id)
    assert {name: answer[name] for name in ("attempt", "epoch", "known")} == {
        "attempt": 1, "epoch": 1, "known": "succeeded",
    }  # fmt: skip
    assert answer["sent"] < answer["answered"]
    assert (await seen(runtime, run_id)).late == [
        "a: A late answer: attempt 1 happened (e2). Attempt 2 counts as done as well: it may have happened twice."
    ]
    assert (await runtime.books.receipt()).external_id == "e1"
    history = await runtime.history(run_id)
    ((_, odds),) = history.late_answers()
    assert odds == "Attempt 2 counts as done as well: it may have happened twice."
    await runtime.at_rest()


async def test_a_late_answer_while_another_has_the_step_is_told_and_changes_nothing(
    runtime: Any, late_gate: Any, gate: Any
) -> None:
    run_id = await begun(runtime)
    runtime.outside.verdict = Probe(ProbeVerdict.CANNOT_TELL, "no idea")
    async with stalled(runtime, late_gate):
        await runtime.worker("fast").work_off()
        assert await runtime.status(run_id) == "waiting_approval"
        places = await runtime.books.places()
    assert await runtime.status(run_id) == "waiting_approval"
    assert await runtime.books.places() == places
    assert (await runtime.books.receipt()).status == "in_doubt"
    assert [each["known"] for each in await told(runtime, run_id)] == ["succeeded"]
    assert (await seen(runtime, run_id)).late == ["a: A late answer: attempt 1 happened (e1)."]
    assert (await runtime.vote("olga", "happened")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.history(run_id)


async def test_what_people_gave_up_and_happened_after_all_is_said_plainly(runtime: Any, late_gate: Any) -> None:
    run_id = await begun(runtime, ASKED)
    async with stalled(runtime, late_gate, MAIL):
        await runtime.worker("fast").work_off()
        assert (await runtime.vote("olga", "fail")).counted
        await runtime.worker("fast").work_off()
        assert await runtime.status(run_id) == "failed_terminal"
    assert await runtime.status(run_id) == "failed_terminal"
    assert (await seen(runtime, run_id)).late == ["a: A late answer: attempt 1 happened (e1). It counts as failed."]
    assert [odds for _, odds in (await runtime.history(run_id)).late_answers()] == ["It counts as failed."]


@pytest.mark.parametrize(
    ("answer", "known", "says"),
    [
        (Refused("400", "no such thing"), "failed", "A late answer: attempt 1 failed (400)."),
        (InDoubt("it broke"), "in_doubt", "A late answer: nobody knows what became of attempt 1."),
        (Done({"big": 2**70}, "e9"), "succeeded", "A late answer: attempt 1 happened (e9). Attempt 2 counts"),
        (NotSent("busy"), None, ""),
    ],
)
async def test_every_answer_is_told_but_that_nothing_was_sent(
    runtime: Any, gate: Any, answer: Any, known: str | None, says: str
) -> None:
    run_id = await begun(runtime)
    runtime.outside.script["a"] = [Done({"name": "a"}), answer]
    async with stalled(runtime, gate):
        await runtime.worker("fast").work_off()
        assert await runtime.status(run_id) == "succeeded"
        runtime.outside.script["a"] = [answer]
        runtime.outside.reshape = (lambda _: answer) if isinstance(answer, Done) else None
        runtime.outside.may_repeat.add("a")
    assert [each["known"] for each in await told(runtime, run_id)] == ([known] if known else [])
    assert "".join((await seen(runtime, run_id)).late).removeprefix("a: ").startswith(says)


async def test_of_a_call_without_side_effects_nothing_is_told(runtime: Any, gate: Any) -> None:
    run_id = await begun(runtime, READING)
    async with stalled(runtime, gate):
        await runtime.worker("fast").work_off()
    assert await told(runtime, run_id) == []


async def test_a_call_that_a_heartbeat_cuts_off_is_told_as_unanswered(runtime: Any, gate: Any) -> None:
    run_id = await begun(runtime)
    runtime.outside.gates["a"] = gate
    stop = asyncio.Event()
    with structlog.testing.capture_logs() as logs:
        worker = asyncio.create_task(runtime.worker("slow", lease=3).run(stop))
        await asyncio.wait_for(gate.reached.wait(), 60)
        await runtime.trouble.expire_leases()
        await runtime.time_passes()
        assert await runtime.sweep() == 1

        async def is_told() -> bool:
            return bool(await told(runtime, run_id))

        await runtime.until(is_told)  # the gate never opened: the call was given up
        stop.set()
        await asyncio.wait_for(worker, 60)
    assert any("its call is given up" in entry["event"] for entry in logs)
    (answer,) = await told(runtime, run_id)
    assert (answer["known"], "answered" in answer) == ("unanswered", False)
    says = "a: The lease of attempt 1 was lost: it may have been sent, and no answer is known."
    assert (await seen(runtime, run_id)).late == [says]
    assert len(runtime.outside.effects) == 1


async def test_nothing_is_told_of_a_call_that_never_began(runtime: Any, gate: Any) -> None:
    """The lease was over before the connector was called."""
    run_id = await begun(runtime)

    async def lost(call: Any) -> Any:
        raise LostLease

    worker = runtime.worker("slow")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("runtime.work.lease.Lease.call", lambda self, call: lost(call))
        await worker.work_off()
    assert await told(runtime, run_id) == []
    assert "step.set_back" not in await runtime.events(run_id)
    await runtime.trouble.expire_leases()
    await runtime.time_passes()
    await runtime.sweep()
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"


@pytest.mark.parametrize("landed", [False, True])
async def test_it_is_told_once_while_postgresql_is_away_or_its_answer_is_lost(
    runtime: Any, gate: Any, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    run_id, faults = await begun(runtime), 0

    async def fails(connection: Connection, commit: Commit) -> Any:
        nonlocal faults
        faults += 1
        written = await apply(connection, commit) if faults > 2 or landed else False
        if landed and faults == 1:
            await connection.execute("COMMIT")
        if faults < 3:
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return written

    monkeypatch.setattr(calling, "apply", fails)
    async with stalled(runtime, gate):
        await runtime.worker("fast").work_off()
    runtime.outside.may_repeat.add("a")
    assert len(await told(runtime, run_id)) == 1
    assert faults == (1 if landed else 3)
    await runtime.history(run_id)


async def test_a_long_run_takes_it_in_when_its_step_is_long_left_behind(runtime: Any, gate: Any) -> None:
    """The run at rest has let go of the step's receipt, and goes on from what is kept of it."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(LONG)
    run_id, fast = (await runtime.start("long")).run_id, runtime.worker("fast")
    async with stalled(runtime, gate):
        await fast.work_off()
        assert (await runtime.status(run_id), await runtime.books.kept(run_id)) == ("waiting", None)
    runtime.outside.may_repeat.add("a")
    assert [each["known"] for each in await told(runtime, run_id)] == ["succeeded"]
    await runtime.signal("on:1")
    await fast.work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert len((await seen(runtime, run_id)).late) == 1
    await runtime.at_rest()
