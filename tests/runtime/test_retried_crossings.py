"""A run that is gone on with, where it waits for signals, shares an effect with others, or is open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from connectors.port import Refused
from core.errors import ConsistencyError
from evidence.bundle import assemble
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.keep.bundling import Bundling, content_of
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.errands import Errands
from runtime.requests.steering import close_run

pytestmark = pytest.mark.req("X-18")

WAITS = """
workflow: waits
version: 1
reference: ${{ run.id }}
channels: {got: {}}
steps:
  - {id: bad, needs: [], do: probe.effect.apply, with: {name: bad}}
  - {id: paid, needs: [], wait: {signal: paid, correlate: c1}, set: {got: "${{ output }}"}}
"""
SHARES = """
workflow: shares
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: case, needs: [], do: probe.case.share, with: {name: t}, timeout: P2D}
  - {id: bad, needs: [], do: probe.effect.apply, with: {name: "${{ trigger.name }}"}}
"""
OPEN = """
workflow: opened
version: 1
reference: ${{ run.id }}
steps:
  - {id: bad, do: probe.effect.apply, with: {name: bad}}
"""


async def bundled(runtime: Any, folder: Path) -> None:
    bundling = Bundling(
        FileBlobStore(folder / "blobs"), FileSigner.load_or_create(folder / "key"), "t", runtime.definitions
    )
    await runtime.trouble.drop_messages_except("bundle", "cancel", "shared", "return")
    errands = Errands(runtime.database, runtime.definitions, runtime.connectors)
    await Dispatcher(runtime.database, {**bundling.handlers(), **errands.handlers()}, "d").work_off()


@pytest.mark.req("X-17")
async def test_the_token_of_a_wait_before_the_retry_ends_no_wait_after_it(runtime: Any, tmp_path: Path) -> None:
    runtime.outside.script["bad"] = [Refused("no", "not today")]
    run: UUID = await runtime.go(WAITS)
    assert await runtime.status(run) == "failed_terminal"
    old = await runtime.books.wait(run=run, step="paid")
    await bundled(runtime, tmp_path)
    await runtime.retry(run)
    await runtime.worker().work_off()
    assert await runtime.status(run) == "waiting"
    new = await runtime.books.wait(run=run, step="paid", open=True)
    assert new.token != old.token
    for number in range(2):
        late = await runtime.signal("paid:c1", {"amount": 1}, id=f"late{number}", token=old.token)
        assert late.code == "already_ended"
    assert (await runtime.signal("paid:c1", {"amount": 2}, id="new", token=new.token)).code == "delivered"
    await runtime.worker().work_off()
    assert await runtime.status(run) == "succeeded"
    assert (await runtime.state(run))["channels"]["got"] == {"amount": 2}
    await runtime.history(run)
    await runtime.at_rest()


@pytest.mark.req("Q-21")
async def test_the_evidence_says_when_a_run_ended_last(runtime: Any, tmp_path: Path) -> None:
    runtime.outside.script["bad"] = [Refused("no", "not today")]
    run: UUID = await runtime.go(OPEN)
    await bundled(runtime, tmp_path)
    await runtime.retry(run)
    await runtime.worker().work_off()
    signer = FileSigner.load_or_create(tmp_path / "key")
    bundling = Bundling(FileBlobStore(tmp_path / "blobs"), signer, "t", runtime.definitions)
    async with runtime.database.transaction("acme") as connection:
        content = content_of(await bundling.material(connection, "acme", run), "t")
    lines = [json.loads(line) for append in content.appends for line in append]
    first, last = [line["ts"] for line in lines if line["type"] == "run.closed"]
    assert first < last
    made = assemble(content, signer.public_key)
    told = json.loads(made.files.read("run.json"))
    made.files.close()
    assert (told["opened_at"], told["closed_at"]) == (lines[0]["ts"], last)


@pytest.mark.req("Q-15")
@pytest.mark.parametrize("ends", ["before the retry", "after the retry"])
async def test_a_retried_run_has_the_end_of_what_it_had_shared(runtime: Any, tmp_path: Path, ends: str) -> None:
    """Another run shares the case and keeps it going, whoever had begun it."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(SHARES)
    runtime.outside.script["bad"] = [Refused("no", "not today")]
    failing = (await runtime.start("shares", {"number": "INC1", "name": "bad"}, ref="1")).run_id
    other = (await runtime.start("shares", {"number": "INC1", "name": "good"}, ref="2")).run_id
    await runtime.worker().work_off()
    assert [await runtime.status(run) for run in (failing, other)] == ["failed_terminal", "waiting"]
    await bundled(runtime, tmp_path)
    cases = [call for call in runtime.outside.effects if call.correlation_key]
    assert len(cases) == 1
    if ends == "before the retry":
        assert (await runtime.signal(cases[0].correlation_key, {"papers": 1})).code == "delivered"
        await runtime.worker().work_off()
        assert await runtime.status(other) == "succeeded"
    await runtime.retry(failing)
    await runtime.worker().work_off()
    if ends == "after the retry":
        assert (await runtime.signal(cases[0].correlation_key, {"papers": 1})).code == "delivered"
    await runtime.go_on()
    assert [await runtime.status(run) for run in (failing, other)] == ["succeeded", "succeeded"]
    assert len([call for call in runtime.outside.effects if call.correlation_key]) == 1, "the case was opened once"
    for run in (failing, other):
        await runtime.history(run)
    await runtime.at_rest()


@pytest.mark.req("Q-15")
async def test_a_retried_run_that_shared_with_nobody_begins_anew_what_was_canceled(
    runtime: Any, tmp_path: Path
) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(SHARES)
    runtime.outside.script["bad"] = [Refused("no", "not today")]
    run = (await runtime.start("shares", {"number": "INC1", "name": "bad"})).run_id
    await runtime.worker().work_off()
    await bundled(runtime, tmp_path)
    await runtime.retry(run)
    await runtime.worker().work_off()
    cases = [call for call in runtime.outside.effects if call.correlation_key]
    assert (len(cases), await runtime.status(run)) == (2, "waiting")
    assert (await runtime.signal(cases[1].correlation_key, {"papers": 1})).code == "delivered"
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    await runtime.history(run)
    await runtime.at_rest()


async def test_an_open_run_that_failed_is_open_again_after_its_retry(runtime: Any, tmp_path: Path) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(OPEN)
    runtime.outside.script["bad"] = [Refused("no", "not today")]
    run = (await runtime.start("opened", open=True)).run_id
    await runtime.worker().work_off()
    assert await runtime.status(run) == "failed_terminal"
    await bundled(runtime, tmp_path)
    more = {"steps": [{"id": "more", "do": "probe.effect.apply", "with": {"name": "more"}}]}
    with pytest.raises(ConsistencyError):
        await runtime.extend(run, more)
    await runtime.retry(run)
    await runtime.worker().work_off()
    assert await runtime.status(run) == "waiting", "it waits for more steps, as it was started to"
    await runtime.extend(run, more)
    await runtime.worker().work_off()
    async with runtime.faces.transaction("acme") as connection:
        await close_run(connection, runtime.definitions, "acme", run, runtime.actor, "done")
    assert await runtime.status(run) == "succeeded"
    assert [call.input["name"] for call in runtime.outside.effects] == ["bad", "more"]
    await runtime.history(run)
    await runtime.at_rest()
