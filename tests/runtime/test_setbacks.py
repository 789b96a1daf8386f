"""Faults that break a commit, a claim or a sweep break one step only: values, rows and leases made by an enemy."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from approvals.model import Choice, VoteChannel
from connectors.port import InDoubt, NotSent, Refused
from core.db import Connection
from core.errors import InputError, TransportError
from core.outage import is_passing
from core.unkept import NOT_KEPT, first_marker
from runtime.keep.dispatcher import Delivered, Dispatcher, Later
from runtime.requests.steering import cancel_run
from runtime.requests.triggers import start_from_servicenow
from runtime.requests.views import RunReader
from runtime.requests.voting import VoteRequest, Voting
from runtime.store.outbox import Message
from runtime.work.setbacks import LEASES_MAX
from tests.support.trouble import Forger

# -- values that no row can hold -------------------------------------------------------------------------------------

EFFECT = """
workflow: effect
version: 1
reference: ${{ run.id }}
channels: {kept: {}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}, set: {kept: "${{ 1 }}"}}
"""


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


UNUSABLE: dict[str, Any] = {
    "U+0000": {"text": "a\x00b"},
    "U+0000 in a key": {"a\x00b": 1},
    "lone surrogate": {"text": "\ud800"},
    "not a number": {"n": float("nan")},
    "infinite": {"n": float("inf")},
    "beyond 2^53": {"n": 2**63},
    "beyond 64 bits": {"n": 10**40},
    "too deep": {"n": deep(40)},
    "far too deep": {"n": deep(100_000)},
    "too large": {"text": "x" * 300_000},
    "bytes": {"data": b"x"},
    "a key that is no text": {1: 2},
    "a set": {"s": {1, 2}},
    "a list": [1],
    "nothing": None,
}


def odd(runtime: Any, output: Any) -> None:
    """Let the outside system give this as its every answer."""
    runtime.outside.reshape = lambda done: replace(done, output=output)


async def failed_clearly(runtime: Any, run_id: Any, code: str, word: str = "") -> Any:
    """The run ended, with a reason in words, and its evidence is whole."""
    assert await runtime.status(run_id) == "failed_terminal"
    step = await runtime.books.step(run=run_id, status="failed_terminal")
    assert step.error["code"] == code
    assert word in step.error["message"]
    await runtime.history(run_id)
    await runtime.at_rest()
    return step.error


@pytest.mark.parametrize("name", UNUSABLE)
async def test_an_effect_whose_output_cannot_be_kept_is_done_and_says_what_is_missing(runtime: Any, name: str) -> None:
    odd(runtime, UNUSABLE[name])
    run_id = await runtime.go(EFFECT)
    assert await runtime.status(run_id) == "succeeded"
    assert len(runtime.outside.effects) == 1
    receipt = await runtime.books.receipt()
    assert (receipt.status, receipt.external_id) == ("succeeded", "e1")
    seen = await RunReader(runtime.faces, runtime.definitions).at("acme", run_id)
    found = first_marker([dict(one)["output"] for one in seen.receipts])
    assert found is not None
    assert found[NOT_KEPT].keys() == {"reason", "bytes", "sha256"}
    await runtime.history(run_id)
    await runtime.at_rest()


READS = """
workflow: effect
version: 1
reference: ${{ run.id }}
channels: {seen: {}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a, value: x}}
  - {id: b, set: {seen: "${{ %s }}"}}
"""


@pytest.mark.parametrize("how", ["body", "body.size() > 3", "rows.map(r, r.text)", "", "rows[1].text == 'x'"])
async def test_a_step_that_reads_what_was_not_kept_fails_and_says_so(runtime: Any, how: str) -> None:
    odd(runtime, {"body": "x" * 300_000, "rows": [{"text": "a"}, {"text": "b\x00"}], "status": 200})
    run_id = await runtime.go(READS % f"steps.a.output.{how}".rstrip("."))
    error = await failed_clearly(runtime, run_id, "expression", "was not kept")
    assert "SHA-256" in error["message"]
    assert (await runtime.books.receipt()).status == "succeeded"


async def test_what_was_kept_beside_it_can_be_read(runtime: Any) -> None:
    odd(runtime, {"body": "x" * 300_000, "status": 200, "headers": {"etag": "7", "x": "a\x00"}})
    run_id = await runtime.go(READS % "[steps.a.output.status, steps.a.output.headers.etag]")
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["seen"] == [200, "7"]


async def test_who_shares_an_effect_has_the_same_of_its_output(runtime: Any) -> None:
    text = EFFECT.replace("probe.effect.apply", "probe.ticket.open").replace("run.id", "trigger.number")
    odd(runtime, UNUSABLE["U+0000"])
    run_id = await runtime.go(text, {"number": "INC1"})
    assert await runtime.status(run_id) == "succeeded"
    second = (await runtime.start("effect", {"number": "INC1"}, ref="2")).run_id
    await runtime.worker().work_off()
    assert await runtime.status(second) == "succeeded"
    assert len(runtime.outside.effects) == 1


@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [
        (Refused("no\x00way" * 100, "because\ud800\x00" * 9000), "no\ufffdway", "failed_terminal"),
        (NotSent("later\x00", retry_after_seconds=float("nan")), "not_sent", "failed_retryable"),
        (NotSent("later", retry_after_seconds=1e300), "busy", "waiting"),
        (InDoubt("who\x00knows"), "in_doubt", "failed_retryable"),
        (RuntimeError("a bug\x00\ud800" * 9000), "in_doubt", "failed_retryable"),
    ],
)
async def test_words_from_outside_are_kept_as_far_as_they_can(
    runtime: Any, answer: Any, code: str, status: str
) -> None:
    runtime.outside.script["a"] = [answer]
    run_id = await runtime.go(EFFECT)
    assert await runtime.status(run_id) == status
    error = (await runtime.books.step()).error
    assert error["code"].startswith(code)
    assert len(error["message"]) <= 5000
    await runtime.history(run_id)


NUL, LARGE, LONG = (
    r"${{ 'a\\u0000b' }}",
    "${{ trigger.large + trigger.large }}",
    "${{ trigger.large }}${{ trigger.large }}",
)
WITH = "do: probe.effect.apply, with: {name: VALUE}"
SET = "do: probe.effect.apply, with: {name: a}, set: {kept: VALUE}"
GATE = "approve: {summary: VALUE, approvers: {group: owners}}"


@pytest.mark.parametrize(
    ("step", "value", "word"),
    [
        *((step, NUL, "U+0000") for step in (WITH, SET, GATE)),
        *((step, LARGE, "bytes") for step in (WITH, SET, GATE)),
        *((step, LONG, "characters") for step in (WITH, GATE)),
    ],
)
async def test_a_value_that_an_expression_gives_is_bounded_too(runtime: Any, step: str, value: str, word: str) -> None:
    line = step.replace("VALUE", f'"{value}"')
    text = EFFECT.partition("  - {id: a")[0] + f"  - {{id: a, {line}}}\n"
    run_id = await runtime.go(text, {"large": "x" * 200_000})
    await failed_clearly(runtime, run_id, "expression", word)


GROWING = """
workflow: growing
version: 1
reference: ${{ run.id }}
channels: {all: {reduce: append}}
steps:
  - foreach: ${{ [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] }}
    steps:
      - {id: r, do: probe.value.read, with: {name: "${{ trigger.large }}"}, set: {all: "${{ output.name }}"}}
"""


@pytest.mark.req("P-3")
async def test_a_state_that_grows_too_large_fails_its_run(runtime: Any) -> None:
    run_id = await runtime.go(GROWING, {"large": "x" * 120_000})
    assert await runtime.status(run_id) == "failed_terminal"
    error = (await runtime.books.run()).error
    assert "the run's state is" in error["message"]
    await runtime.history(run_id)
    await runtime.at_rest()
    largest = max(checkpoint.size for checkpoint in await runtime.books.checkpoints())
    assert 900_000 < largest < 1024 * 1024


# -- what cannot be worked on ----------------------------------------------------------------------------------------


async def pass_leases(runtime: Any, times: int = 8) -> None:
    """Leases run out and waits are due, so many times."""
    for _ in range(times):
        await runtime.trouble.expire_leases()
        await runtime.wait_is_due()


@pytest.mark.tampers
@pytest.mark.parametrize(
    "damage",
    [
        lambda runtime: runtime.execute("UPDATE workflows SET source = 'steps: [' WHERE tenant_id = 'acme'"),
        lambda runtime: runtime.execute("UPDATE workflows SET digest = repeat('0', 64) WHERE tenant_id = 'acme'"),
        lambda runtime: runtime.trouble.lose_run_keys("acme"),
    ],
    ids=["source", "digest", "key"],
)
async def test_a_run_that_cannot_be_read_fails_and_holds_nobody_up(runtime: Any, quiet: Any, damage: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    broken = (await runtime.start("effect")).run_id
    await runtime.tenant("other")
    await runtime.policy(tenant="other")
    await runtime.publish(EFFECT.replace("version: 1", "version: 2"), "other")
    await damage(runtime)
    runtime.definitions = type(runtime.definitions)(runtime.catalog)  # a process that has not seen it before
    healthy = (await runtime.start("effect", tenant="other")).run_id
    await runtime.worker().work_off()
    assert await runtime.status(healthy) == "succeeded"
    error = (await runtime.books.step(run=broken)).error
    assert (await runtime.status(broken), error["setbacks"]) == ("running", 1)
    await pass_leases(runtime)
    await failed_clearly(runtime, broken, "unexpected")
    assert (await runtime.books.step(run=broken)).lease_epoch == 5
    assert len(runtime.outside.effects) == 1


@pytest.mark.tampers
async def test_a_wait_whose_run_cannot_be_read_any_more_ends(runtime: Any, quiet: Any) -> None:
    runtime.outside.script["a"] = [NotSent("not now")]
    run_id = await runtime.go(EFFECT)
    await runtime.execute("UPDATE workflows SET source = 'steps: ['")
    runtime.definitions = type(runtime.definitions)(runtime.catalog)
    await pass_leases(runtime, 4)
    wait = await runtime.books.wait()
    assert (wait.status, wait.context["setbacks"], wait.due_in > timedelta(minutes=1)) == ("waiting", 4, True)
    await pass_leases(runtime, 1)
    await failed_clearly(runtime, run_id, "unexpected")


TWO = EFFECT + "  - {id: b, do: probe.effect.apply, with: {name: b}}\n"


async def test_a_step_that_cannot_begin_costs_the_one_before_it_nothing(
    runtime: Any, database_url: str, quiet: Any
) -> None:
    await Forger(database_url).refuse_intents("b")
    run_id = await runtime.go(TWO)
    assert await runtime.steps(run_id) == {"a": "succeeded", "b": "running"}
    await pass_leases(runtime)
    await failed_clearly(runtime, run_id, "unexpected", "boom")
    assert await runtime.steps(run_id) == {"a": "succeeded", "b": "failed_terminal"}
    assert [call.input["name"] for call in runtime.outside.effects] == ["a"]


async def test_an_outcome_that_cannot_be_recorded_ends_in_doubt_and_is_not_repeated(
    runtime: Any, database_url: str, quiet: Any
) -> None:
    await Forger(database_url).refuse_outcomes("b")
    run_id = await runtime.go(TWO)
    await pass_leases(runtime)
    await failed_clearly(runtime, run_id, "unexpected", "boom")
    assert [call.input["name"] for call in runtime.outside.effects] == ["a", "b"]
    receipts = {receipt.step: receipt.status for receipt in await runtime.books.receipts()}
    assert receipts == {"a": "succeeded", "b": "in_doubt"}


@pytest.mark.tampers
async def test_what_cannot_be_read_stops_no_sweep(runtime: Any, database_url: str, quiet: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    await runtime.start("effect", ref="1")
    broken = (await runtime.start("effect", ref="2")).run_id
    runtime.outside.script["a"] = [NotSent("1"), NotSent("2")]
    await runtime.worker().work_off()
    await Forger(database_url).lost_values_of(broken)
    await runtime.trouble.make_waits_due_first(broken)
    assert await runtime.sweep() == 1


# -- cancels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [True, False])
async def test_a_cancel_between_two_leases_still_finds_out_what_happened(
    runtime: Any, gate: Any, late_gate: Any, landed: bool
) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    run_id = (await runtime.start("effect")).run_id
    await runtime.crash(late_gate if landed else gate, "a")
    async with runtime.database.transaction() as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "canceled"
    receipt = await runtime.books.receipt()
    assert (receipt.status, len(runtime.outside.effects)) == (("succeeded", 1) if landed else ("failed", 0))
    await runtime.history(run_id)
    await runtime.at_rest()


async def test_a_run_that_cannot_be_read_can_be_canceled(runtime: Any) -> None:
    runtime.outside.script["a"] = [NotSent("not now")]
    run_id = await runtime.go(EFFECT)
    await runtime.execute("UPDATE workflows SET source = 'steps: ['")
    async with runtime.database.transaction() as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")
    assert await runtime.status(run_id) == "canceled"
    await runtime.at_rest()


# -- leases that are lost without anybody noticing -------------------------------------------------------------------


@pytest.mark.req("Q-9")
async def test_a_worker_that_was_stopped_for_too_long_sends_nothing(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    run_id = (await runtime.start("effect")).run_id
    await runtime.worker("stopped", lease=0).work_off()  # its lease is over when the intent is recorded
    assert (await runtime.books.receipt()).status == "failed"  # which it knows, and says
    assert runtime.outside.effects == []
    await runtime.wait_is_due()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert runtime.outside.probes == 0


@pytest.mark.tampers  # it takes leases by hand
@pytest.mark.req("Q-10")
async def test_a_call_whose_lease_is_lost_is_given_up(runtime: Any, gate: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    run_id = (await runtime.start("effect")).run_id
    runtime.outside.gates["a"] = gate
    stop = asyncio.Event()
    working = asyncio.create_task(runtime.worker("slow", lease=6.0).run(stop))
    await asyncio.wait_for(gate.reached.wait(), 60)
    await runtime.trouble.steal_leases("fast")
    stop.set()
    await asyncio.wait_for(working, 60)
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "running"


@pytest.mark.req("Q-8")
async def test_a_step_that_ends_every_worker_ends_itself(runtime: Any, quiet: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    run_id = (await runtime.start("effect")).run_id
    for count in range(1, LEASES_MAX):
        await runtime.crash(runtime.gate_type(), "a")
        step = await runtime.books.step()
        assert (step.status, step.error["code"], step.error["leases"]) == ("ready", "lease_lost", count)
    await runtime.crash(runtime.gate_type(), "a")
    assert await runtime.status(run_id) == "failed_terminal"
    error = await runtime.error(run_id)
    assert (error["code"], error["step"]) == ("lease_lost", "a")
    assert "10 times in a row" in error["message"]
    assert (await runtime.books.receipt()).status == "in_doubt"
    assert runtime.outside.effects == []
    assert await runtime.books.slots_taken() == 0


async def test_leases_are_counted_in_a_row(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(EFFECT)
    run_id = (await runtime.start("effect")).run_id
    for _ in range(LEASES_MAX - 1):
        await runtime.crash(runtime.gate_type(), "a")
    runtime.outside.script["a"] = [NotSent("not now")]
    await runtime.worker().work_off()
    assert (await runtime.books.step()).error.get("leases") is None
    await runtime.trouble.make_waits_due()
    await runtime.sweep()
    await runtime.crash(runtime.gate_type(), "a")
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)


# -- messages --------------------------------------------------------------------------------------------------------


async def test_a_message_that_always_goes_wrong_is_given_up_with_its_reason(runtime: Any, quiet: Any) -> None:
    tries = 0

    async def bundle(connection: Connection, message: Message) -> Any:
        nonlocal tries
        tries += 1
        if tries % 4 == 1:
            raise RuntimeError("a bug\x00\ud800")
        if tries % 4 == 2:
            await connection.execute("SELECT 1 / 0")
        return deliver

    async def deliver() -> Any:
        if tries % 4 == 3:
            raise RuntimeError("another bug")

        async def record(connection: Connection) -> None:
            await connection.execute("SELECT 1 / 0")

        return Delivered(record)

    await runtime.go(EFFECT)
    dispatcher = Dispatcher(runtime.database, {"bundle": bundle}, "d")
    while await dispatcher.work_off():
        await runtime.trouble.retry_messages_now()
    order = await runtime.books.command(kind="bundle")
    assert (order.status, order.attempts, tries) == ("failed", 20, 20)
    assert "division by zero" in order.last_error


@pytest.mark.req("O-4")
async def test_a_message_is_tried_again_no_sooner_than_its_receiver_has_asked_for(runtime: Any) -> None:
    tries = 0

    async def bundle(_: Connection, __: Message) -> Any:
        return deliver

    async def deliver() -> Any:
        nonlocal tries
        tries += 1
        return Later("Too many requests.", 300)

    await runtime.go(EFFECT)
    dispatcher = Dispatcher(runtime.database, {"bundle": bundle}, "d")
    await dispatcher.work_off()
    await runtime.trouble.pass_time_of_messages(timedelta(seconds=240))
    await dispatcher.work_off()
    assert tries == 1
    await runtime.trouble.pass_time_of_messages(timedelta(seconds=61))
    await dispatcher.work_off()
    assert tries == 2


@pytest.mark.parametrize("reason", ["x" * 5000, "a\x00b", "\ud800"])
async def test_words_that_cannot_be_kept_are_refused_by_name(runtime: Any, reason: str) -> None:
    runtime.outside.script["a"] = [NotSent("not now")]
    run_id = await runtime.go(EFFECT)
    vote = VoteRequest("acme", run_id, "ana", Choice.APPROVE, reason, VoteChannel.CLI)
    with pytest.raises(InputError, match="reason"):
        await Voting(runtime.faces, runtime.definitions).vote(vote)
    async with runtime.database.connection() as connection:
        with pytest.raises(InputError, match="reason"):
            await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, reason)


async def test_triggers_told_apart_by_a_long_text_start_a_run_each(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(
        EFFECT.replace(
            "channels:", 'triggers: {servicenow: {table: t, events: [insert], dedupe: "${{ trigger.key }}"}}\nchannels:'
        )
    )
    started = []
    for end in ("a", "b", "a"):
        event = {"table": "t", "event": "insert", "key": "x" * 900 + end}
        async with runtime.database.transaction() as connection:
            started += (await start_from_servicenow(connection, runtime.definitions, "acme", "main", "sn", event))[0]
    assert [run.created for run in started] == [True, True, False]
    assert started[0].run_id == started[2].run_id != started[1].run_id


async def test_a_server_that_goes_away_in_the_middle_is_no_fault_of_a_step(runtime: Any) -> None:
    with pytest.raises(TransportError, match="went away") as caught:
        async with runtime.database.connection():
            raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")
    assert is_passing(caught.value)
    assert await runtime.all("SELECT 1") != []
