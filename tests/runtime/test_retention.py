"""Retention: when a run's time is over its payloads go, and its audit and its evidence stay (X-20)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.errors import CountersealError
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.engine.replay.past import REMOVED
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.errands import Errands
from runtime.requests.views import RunReader, folded
from runtime.store import books, read_models, retention

VALUE = "hunter2-is-a-value"
WORKFLOW = """
workflow: kept
version: 1
reference: ${{ trigger.ref }}
retention: P30D
search: {kept: "${{ trigger.value }}"}
result: ${{ state.seen }}
channels: {seen: {reduce: append, ledger: true}}
steps:
  - id: read
    do: probe.value.read
    with: {name: read, value: "${{ trigger.value }}"}
    set: {seen: "${{ output.value }}"}
  - foreach: ${{ [trigger.value, steps.read.output.value] }}
    as: thing
    steps:
      - {id: put, do: probe.effect.apply, with: {name: "n-${{ string(index) }}", value: "${{ thing }}"}}
  - id: record
    do: probe.record.update
    with: {name: rec, fields: {priority: "${{ trigger.value }} of ${{ trigger.ref }}"}}
  - id: told
    wait: {signal: told, correlate: "${{ run.reference }}"}
    set: {seen: "${{ signal.payload.value }}"}
  - id: filled
    task:
      title: "About ${{ trigger.value }}"
      form: {type: object, properties: {name: {type: string}}, required: [name]}
      assign: {group: owners}
    set: {seen: "${{ output.name }}"}
  - id: fails
    do: probe.effect.apply
    with: {name: fails, value: "${{ trigger.value }}"}
    on_failure:
      - {id: noted, do: probe.value.read, with: {name: noted}, set: {seen: "${{ error.message }}"}}
"""
ASKS = """
policy: asks
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
  - id: people
    match: {operation: probe.record.update}
    outcome: needs_approval
    approvers: [{group: owners, of: 1}]
    expires: PT8H
    because: People look at records.
"""
ONE = "steps:\n  - {id: a, do: probe.value.read, with: {}}\n"


class Keeper:
    """The runtime with people and a bundler."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        self.runtime, self.folder = runtime, folder
        self.signer = FileSigner.load_or_create(folder / "key.pem")
        bundling = Bundling(FileBlobStore(folder / "blobs"), self.signer, "test", runtime.definitions)
        self.dispatcher = Dispatcher(runtime.database, bundling.handlers(), "d")

    async def prepare(self) -> None:
        await self.runtime.tenant()
        await self.runtime.policy(ASKS)
        await self.runtime.publish(WORKFLOW)
        await self.runtime.person("ana", ("owners",))

    async def run(self, ref: str = "r1") -> UUID:
        """A run of everything that has a value in it, to its end."""
        from connectors.port import Refused

        self.runtime.outside.script["fails"] = [Refused("no", f"the record says {VALUE}")]
        run_id: UUID = (await self.runtime.start("kept", {"ref": ref, "value": VALUE}, ref=ref)).run_id
        await self.runtime.worker().work_off()
        await self.runtime.vote("ana", "approve")
        await self.runtime.worker().work_off()
        await self.runtime.signal(f"told:{ref}", {"value": VALUE}, id=f"s-{ref}")
        await self.runtime.worker().work_off()
        assert (await self.runtime.complete("ana", {"name": VALUE})).accepted
        await self.runtime.worker().work_off()
        assert await self.runtime.status(run_id) == "succeeded"
        return run_id

    async def bundle(self) -> None:
        await self.runtime.trouble.drop_messages_except("bundle", "step")
        await self.dispatcher.work_off()

    async def time_is_over(self, run_id: UUID) -> None:
        await self.runtime.trouble.make_purge_due(run_id)

    async def tables_with_values(self) -> set[str]:
        found: set[str] = await self.runtime.books.mentions(VALUE)
        return found

    async def of_run(self, run_id: UUID) -> dict[str, str]:
        """Digest every table's rows of a run."""
        found: dict[str, str] = await self.runtime.books.fingerprint_of(run_id)
        return found

    async def purged(self, run_id: UUID) -> bool:
        return (await self.runtime.books.run(run_id)).purged_at is not None


@pytest.fixture
async def keeper(runtime: Any, tmp_path: Path) -> Keeper:
    found = Keeper(runtime, tmp_path)
    await found.prepare()
    return found


@pytest.mark.req("X-20")
async def test_when_its_time_is_over_no_value_of_a_run_is_left(keeper: Keeper) -> None:
    runtime, run_id = keeper.runtime, await keeper.run()
    await keeper.bundle()
    kept = await runtime.books.run()
    assert kept.purge_at - kept.finished_at == timedelta(days=30)
    holding = {"journal", "ledger", "waits", "inbox", "searched"}
    assert holding <= await keeper.tables_with_values()
    assert await runtime.sweep() == 0
    lines = await runtime.books.lines(run_id)
    await keeper.time_is_over(run_id)
    assert await runtime.sweep() == 1
    assert await keeper.tables_with_values() == set()
    assert await runtime.sweep() == 0
    # What stays: the chain, the evidence, who decided what, what ran and how it ended, what was done under which key.
    assert lines == await runtime.books.lines(run_id)
    await runtime.history(run_id)
    assert await runtime.books.key_of(run_id) is None
    receipts = await runtime.books.receipts()
    assert [receipt.status for receipt in receipts] == ["succeeded", "succeeded", "succeeded", "failed"]
    receipt = await runtime.books.receipt(step="record")
    assert (receipt.external_id, len(receipt.action_digest)) == ("e3", 64)
    assert receipt.action["decision"]
    votes = await runtime.books.votes()
    assert [(vote.person, vote.choice) for vote in votes] == [("ana", "approve")]
    assert all(decision.facts is None for decision in await runtime.books.decisions())


@pytest.mark.req("X-20")
async def test_the_evidence_verifies_as_before_and_the_removal_is_on_record(keeper: Keeper, tmp_path: Path) -> None:
    runtime, run_id = keeper.runtime, await keeper.run()
    await keeper.bundle()
    await keeper.time_is_over(run_id)
    await runtime.sweep()
    bundle = await runtime.books.bundle(run=run_id)
    path, key = tmp_path / "bundle.zip", tmp_path / "public.pem"
    path.write_bytes((tmp_path / "blobs" / bundle.uri.removeprefix("file:")).read_bytes())
    key.write_bytes(keeper.signer.public_key.pem)
    verification = verify_bundle(path, public_key=key)
    assert verification.ok, verification.to_text()
    events = await runtime.books.tenant_events("acme")
    assert (await runtime.books.tenant_chain("acme")).problem is None
    last = events[-1]
    assert (last.type, last.data, last.actor["kind"]) == ("run.purged", {"run": str(run_id)}, "engine")


@pytest.mark.req("X-20")
async def test_nothing_is_removed_before_its_time_or_before_the_evidence_is_stored(keeper: Keeper) -> None:
    runtime, run_id = keeper.runtime, await keeper.run()
    await runtime.sweep()  # the policy is new
    await keeper.time_is_over(run_id)
    before = await runtime.fingerprint()
    assert await runtime.sweep() == 0
    assert await runtime.fingerprint() == before, "there is no bundle yet"
    await keeper.bundle()
    assert await runtime.trouble.send_again("bundle") == 1
    assert await runtime.sweep() == 0, "something is on its way"
    await keeper.dispatcher.work_off()
    await runtime.trouble.make_purge_due(after=timedelta(hours=1))
    assert (await runtime.sweep(), await keeper.purged(run_id)) == (0, False)
    await keeper.time_is_over(run_id)
    assert (await runtime.sweep(), await keeper.purged(run_id)) == (1, True)


async def test_a_run_without_retention_is_kept(runtime: Any, tmp_path: Path) -> None:
    run_id = await runtime.go(
        "workflow: w\nversion: 1\nreference: r\nsteps:\n  - {id: a, do: probe.value.read, with: {}}\n"
    )
    await Keeper(runtime, tmp_path).bundle()
    run = await runtime.books.run(run_id)
    assert (run.finished_at is not None, run.purge_at) == (True, None)


@pytest.mark.req("X-20")
async def test_a_crash_in_the_middle_leaves_all_or_nothing(keeper: Keeper) -> None:
    runtime, run_id = keeper.runtime, await keeper.run()
    await keeper.bundle()
    await keeper.time_is_over(run_id)
    before = await runtime.fingerprint()

    async def dies() -> None:
        async with runtime.database.transaction() as connection:
            assert await retention.hold(connection, run_id) == "acme"
            book = await books.read(connection, "acme", run_id)
            past = await folded(connection, runtime.definitions, book)
            await retention.remove_payloads(connection, book, past)
            raise CountersealError("the sweeper dies before it commits")

    with pytest.raises(CountersealError, match="dies"):
        await dies()
    assert await runtime.fingerprint() == before
    assert await runtime.sweep() == 1


@pytest.mark.req("X-20")
async def test_other_runs_keep_what_they_have(keeper: Keeper) -> None:
    runtime, first, other = keeper.runtime, await keeper.run("r1"), await keeper.run("r2")
    await keeper.bundle()
    before = await keeper.of_run(other)
    await keeper.time_is_over(first)
    await runtime.sweep()
    assert (await keeper.purged(first), await keeper.purged(other)) == (True, False)
    assert await keeper.of_run(other) == before
    payloads = {notice.id: notice.payload for notice in await runtime.books.notices()}
    assert payloads["s-r1"] == {}
    assert payloads["s-r2"]["output"] == {"value": VALUE}


async def test_a_child_is_kept_while_somebody_waits_for_its_result(runtime: Any, tmp_path: Path) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(f"workflow: child\nversion: 1\nreference: r\nretention: PT1H\n{ONE}")
    await runtime.publish(
        "workflow: parent\nversion: 1\nreference: r\nsteps:\n  - {id: c, run: child, with: {}}\n  - wait: {for: PT1H}\n"
    )
    await runtime.start("parent")
    await runtime.worker().work_off()
    keeper = Keeper(runtime, tmp_path)
    await keeper.bundle()
    child = (await runtime.books.run(workflow="child")).id
    await keeper.time_is_over(child)
    assert (await runtime.sweep(), await keeper.purged(child)) == (0, False)
    await runtime.wait_is_due()
    assert (await runtime.sweep(), await keeper.purged(child)) == (1, True)


@pytest.mark.req("X-20")
async def test_what_a_child_has_handed_over_goes_with_the_run_above(runtime: Any, tmp_path: Path) -> None:
    await runtime.tenant()
    await runtime.policy()
    head = "workflow: {0}\nversion: 1\nreference: r\nretention: PT1H\n"
    await runtime.publish(f"{head.format('child')}result: ${{{{ trigger.value }}}}\n{ONE}")
    step = "  - {id: c, run: child, with: {value: '${{ trigger.value }}'}}\n"
    await runtime.publish(f"{head.format('parent')}steps:\n{step}")
    await runtime.start("parent", {"value": VALUE})
    await runtime.worker().work_off()
    keeper = Keeper(runtime, tmp_path)
    errands = Errands(runtime.database, runtime.definitions, runtime.connectors)
    bundling = Bundling(FileBlobStore(tmp_path / "blobs"), keeper.signer, "test", runtime.definitions)
    await Dispatcher(runtime.database, {**bundling.handlers(), **errands.handlers()}, "d").work_off()
    assert "inbox" in await keeper.tables_with_values()
    for run in await runtime.books.runs():
        await keeper.time_is_over(run.id)
    await runtime.go_on()
    assert await keeper.tables_with_values() == set()


async def test_who_shares_an_effect_whose_output_is_gone_is_told_so(runtime: Any, tmp_path: Path) -> None:
    text = (
        "workflow: sharing\nversion: 1\nreference: same\nretention: PT1H\nsteps:\n"
        "  - {id: t, do: probe.ticket.open, with: {name: same}}\n"
    )
    first = await runtime.go(text)
    keeper = Keeper(runtime, tmp_path)
    await keeper.bundle()
    await keeper.time_is_over(first)
    assert await runtime.sweep() == 1
    second = (await runtime.start("sharing", ref="2")).run_id
    await runtime.worker().work_off()
    assert len(runtime.outside.effects) == 1, "it is not done again"
    error = await runtime.error(second)
    assert (await runtime.status(second), error["code"]) == ("failed_terminal", "output_removed")
    assert "retention has removed" in error["message"]


@pytest.mark.req("V-9")
async def test_who_shares_what_went_on_outside_is_told_that_its_end_is_gone(runtime: Any, tmp_path: Path) -> None:
    text = (
        "workflow: sharing\nversion: 1\nreference: same\nretention: PT1H\nsteps:\n"
        "  - {id: t, do: probe.case.share, with: {name: same}}\n"
    )
    first = await runtime.go(text)
    await runtime.signal(runtime.outside.effects[0].correlation_key, {"papers": 1})
    await runtime.worker().work_off()
    keeper = Keeper(runtime, tmp_path)
    await keeper.bundle()
    await keeper.time_is_over(first)
    assert await runtime.sweep() == 1
    second = (await runtime.start("sharing", ref="2")).run_id
    await runtime.worker().work_off()
    assert len(runtime.outside.effects) == 1, "it is not done again"
    assert (await runtime.status(second), (await runtime.error(second))["code"]) == (
        "failed_terminal",
        "output_removed",
    )


async def test_what_is_left_of_a_run_can_be_shown(keeper: Keeper) -> None:
    runtime, run_id = keeper.runtime, await keeper.run()
    await keeper.bundle()
    question = (await runtime.books.approval()).id
    reader = RunReader(runtime.faces, runtime.definitions)
    before = await reader.at("acme", run_id)
    await keeper.time_is_over(run_id)
    await runtime.sweep()
    from runtime.requests.voting import Voting

    view = await Voting(runtime.faces, runtime.definitions).view("acme", question)
    assert (view.content.summary, view.content.changes) == (REMOVED, ())
    async with runtime.faces.transaction("acme") as connection:
        assert (await read_models.run(connection, "acme", run_id))["status"] == "succeeded"
    after = await reader.at("acme", run_id, range(100))
    assert (after.purged, after.checkpoints, after.last) == (True, (), before.last)
    kept = ("step_id", "step_key", "operation", "superstep", "status", "attempt", "usage", "created_at", "finished_at")
    assert [[row[name] for name in kept] for row in after.steps] == [
        [row[name] for name in kept] for row in before.steps
    ]
    assert {row["output"] for row in after.steps} == {None}
    members = ("receipt_id", "target", "idempotency_key", "action_digest", "status", "external_id", "intended_at")
    assert [[row[name] for name in members] for row in after.receipts] == [
        [row[name] for name in members] for row in before.receipts
    ]
    assert {row["action"]["summary"] for row in after.receipts} == {REMOVED}
    report = await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)
    assert (report.ok, report.difference, report.purged_at is not None) == (False, None, True)


@pytest.mark.req("X-20")
async def test_of_steps_that_were_added_who_added_them_and_when_is_left(runtime: Any, tmp_path: Path) -> None:
    run_id = await runtime.go(
        "workflow: w\nversion: 1\nreference: r\nretention: PT1H\n"
        "steps:\n  - {id: told, wait: {signal: told, correlate: x}}\n"
    )
    await runtime.extend(run_id, {"steps": [{"id": "a", "do": "probe.value.read", "with": {"value": VALUE}}]})
    await runtime.signal("told:x", {})
    await runtime.worker().work_off()
    reader, keeper = RunReader(runtime.faces, runtime.definitions), Keeper(runtime, tmp_path)
    (added,) = (await reader.at("acme", run_id)).extensions
    assert (added["number"], added["source"]["steps"][0]["with"]) == (1, {"value": VALUE})
    await keeper.bundle()
    await keeper.time_is_over(run_id)
    assert await runtime.sweep() == 1
    assert (await reader.at("acme", run_id)).extensions == [{**added, "source": {}}]
    assert await keeper.tables_with_values() == set()


@pytest.mark.req("X-20")
@pytest.mark.parametrize("ending", ["failed", "canceled"])
async def test_when_a_run_closes_nothing_of_it_waits_any_more(runtime: Any, ending: str) -> None:
    from connectors.port import Refused
    from runtime.requests.steering import cancel_run

    runtime.outside.script["last"] = [Refused("no", "no")]
    run_id = await runtime.go(
        """
workflow: waits
version: 1
reference: r
steps:
  - {id: t, wait: {for: PT1H}, needs: []}
  - {id: s, wait: {signal: s, correlate: x}, needs: []}
  - {id: p, task: {title: T, form: {type: object, properties: {x: {type: string}}}, assign: {group: owners}}, needs: []}
  - {id: g, approve: {summary: Go on?, approvers: {group: owners}}, needs: []}
  - {id: c, do: probe.case.open, with: {name: c}, needs: []}
  - {id: first, wait: {signal: first, correlate: x}, needs: []}
  - {id: last, do: probe.effect.apply, with: {name: last}, needs: [first]}
"""
    )
    assert len(await runtime.books.waits(open=True)) == 6
    if ending == "failed":
        await runtime.signal("first:x", {})
        await runtime.worker().work_off()
    else:
        async with runtime.faces.transaction("acme") as connection:
            await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")
    assert (await runtime.status(run_id)).startswith(ending)
    await runtime.at_rest()
    assert await runtime.books.places() == []
    await runtime.sweep()  # the policy is new
    await runtime.trouble.put_all_waits_in_the_past(timedelta(hours=1))
    await runtime.errands()
    before = await runtime.fingerprint()
    assert await runtime.sweep() == 0
    assert await runtime.fingerprint() == before
