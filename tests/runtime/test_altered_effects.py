"""An effect that happened otherwise than asked: done on its receipt, never sent again, a failure with a branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Done, InDoubt, Probe, ProbeVerdict
from tests.support.runtime_again import ALLOW, approved_by, begun
from tests.support.runtime_cards_of_actions import card
from tests.support.runtime_retrying import Evidence

STEPS = """
workflow: w
version: 1
reference: %s
channels: {why: {}}
steps:
  - id: a
    do: %s
"""
BRANCH = """    on_failure:
      - {id: f, set: {why: "${{ error.class }} ${{ error.code }}: ${{ error.message }}"}}
"""
ALTERED = {"value": {"asked": "x", "found": "y"}}
KINDS = {
    "a call": "probe.effect.apply, with: {name: a, value: x}",
    "an update": "probe.record.update, with: {name: a, fields: {priority: high}}",
    "one that dedupes": "probe.key.put, with: {name: a}",
    "a shared one": "probe.ticket.open, with: {name: a}",
    "one that goes on outside": "probe.case.open, with: {name: a}",
}


def text(kind: str, branch: str = "", reference: str = "${{ run.id }}") -> str:
    do, given = KINDS[kind].split(", with: ")
    return STEPS % (reference, do) + f"    with: {given}\n" + branch


def altered(runtime: Any) -> None:
    """Let the target keep another value of every effect, and say that all is well."""
    runtime.outside.reshape = lambda done: replace(done, output={"altered": ["value"]}, altered=ALTERED)


async def receipt_is_done(runtime: Any, run_id: Any) -> None:
    (receipt,) = await runtime.books.receipts(run=run_id)
    assert (receipt.status, receipt.error["code"], receipt.error["fields"]) == ("succeeded", "altered", ["value"])
    assert len(runtime.outside.effects) == 1
    events = (await runtime.history(run_id)).altered()
    assert len(events) == 1
    assert events[0].endswith(": value")


@pytest.mark.parametrize("kind", [one for one in KINDS if one != "one that goes on outside"])
async def test_it_fails_the_step_and_is_never_sent_again(runtime: Any, tmp_path: Path, kind: str) -> None:
    altered(runtime)
    run_id = await begun(runtime, text(kind))
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "failed_terminal"
    error = await runtime.error(run_id)
    assert (error["class"], error["code"], error["sent"]) == ("consistency", "altered", True)
    assert "value: asked 'x', found 'y'" in error["message"]
    await receipt_is_done(runtime, run_id)
    await Evidence(runtime, tmp_path).write()
    await runtime.retry(run_id)
    runtime.outside.reshape = None
    await runtime.worker().work_off()
    assert (await runtime.error(run_id))["code"] == "altered"
    await receipt_is_done(runtime, run_id)


@pytest.mark.parametrize("kind", [one for one in KINDS if one != "one that goes on outside"])
async def test_a_branch_says_what_is_done_then(runtime: Any, kind: str) -> None:
    altered(runtime)
    run_id = await begun(runtime, text(kind, BRANCH))
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert "consistency altered: It was done, but altered." in (await runtime.state(run_id))["channels"]["why"]
    await receipt_is_done(runtime, run_id)


async def test_what_a_probe_finds_altered_is_altered(runtime: Any) -> None:
    runtime.outside.script["a"] = [InDoubt("no answer")]
    run_id = await begun(runtime, text("a call"))
    await runtime.worker().work_off()
    done = Done({"altered": ["value"]}, "e1", altered=ALTERED)
    runtime.outside.verdict = Probe(ProbeVerdict.APPLIED, "It is there.", done)
    await runtime.wait_is_due()
    assert (await runtime.error(run_id))["code"] == "altered"
    (receipt,) = await runtime.books.receipts(run=run_id)
    assert (receipt.status, receipt.error["code"]) == ("succeeded", "altered")
    assert len((await runtime.history(run_id)).altered()) == 1


async def test_who_shares_it_fails_as_well(runtime: Any) -> None:
    altered(runtime)
    await begun(runtime, text("a shared one", reference="INC1"))
    await runtime.worker().work_off()
    second = (await runtime.start("w", ref="2")).run_id
    await runtime.worker().work_off()
    assert (await runtime.error(second))["code"] == "altered"
    assert len(runtime.outside.effects) == 1


async def test_its_card_says_done_but_altered_after_a_doubt_too(runtime: Any) -> None:
    altered(runtime)
    run_id = await begun(runtime, text("a call"), approved_by("leads", 1))
    await runtime.worker().work_off()
    question = await runtime.question()
    await runtime.vote("lea", "approve")
    await runtime.worker().work_off()
    shown = await card(runtime, question)
    assert str(shown.state) == "altered"
    assert "value: asked 'x', found 'y'" in shown.detail
    await receipt_is_done(runtime, run_id)


async def test_a_secret_value_is_not_told(runtime: Any) -> None:
    runtime.outside.reshape = lambda done: replace(done, altered={"password": {"asked": "s3cret", "found": "0ther"}})
    given = "probe.secret.send\n    with: {name: a, password: s3cret}"
    run_id = await begun(runtime, STEPS % ("${{ run.id }}", given), ALLOW)
    await runtime.worker().work_off()
    message = (await runtime.error(run_id))["message"]
    assert "password: its values are hidden" in message
    assert "s3cret" not in message
    assert "0ther" not in message
