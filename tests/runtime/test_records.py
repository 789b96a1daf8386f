"""A tenant's records: written by the append of their step, so never in doubt, and never at a neighbour's cost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from asyncpg import ConnectionDoesNotExistError

from connectors.port import Connectors
from connectors.records.connector import RecordsConnector
from core.db import FACES_ROLE, Connection, Database
from core.grouping import Grouping
from runtime.engine.model.rows import Commit
from runtime.store import records
from runtime.store.commits import apply, apply_together
from runtime.work import committer, pump

POLICY = """
policy: records
version: 1
rules:
  - {id: all, match: {connector: records}, outcome: allow}
  - {id: probes, match: {connector: probe}, outcome: allow}
  - id: ledgers
    match: {operation: records.put}
    when: action.fields.collection == 'ledgers'
    outcome: deny
    because: Ledgers are kept by people.
  - id: asked
    match: {operation: records.put}
    when: action.fields.collection == 'asked'
    outcome: needs_approval
    approvers: [{group: owners}]
"""
HEAD = "workflow: w\nversion: 1\nreference: r\nsteps:\n"


def put(step: str, key: str, value: str = "{n: 1}", collection: str = "cases", **more: Any) -> str:
    said = "".join(f", {name}: {json.dumps(given)}" for name, given in more.items())
    return (
        f"  - {{id: {step}, do: records.put, with: {{collection: {collection}, key: '{key}', value: {value}{said}}}}}\n"
    )


@pytest.fixture
def kept(runtime: Any) -> Any:
    reader = RecordsConnector(partial(records.read, runtime.database))
    runtime.connectors = Connectors({**runtime.connectors, "records": reader})
    return runtime


async def stored(runtime: Any, tenant: str = "acme") -> dict[str, Any]:
    rows = await records.read(runtime.database, tenant, "query", {"collection": "cases"})
    listed: Any = rows["records"]
    return {row["key"]: (row["value"], row["version"]) for row in listed}


async def stored_by(database: Database, tenant: str) -> Any:
    return await records.read(database, tenant, "query", {"collection": "cases"})


@pytest.mark.req("V-2")
async def test_a_record_is_kept_read_listed_and_removed(kept: Any) -> None:
    text = (
        HEAD
        + put("a", "c1")
        + put("b", "c1", "{n: 2, of: ann}")
        + put("c", "c2", "{of: ann}")
        + "  - {id: one, do: records.get, with: {collection: cases, key: c1}}\n"
        + "  - {id: none, do: records.get, with: {collection: cases, key: c9}}\n"
        + "  - {id: all, do: records.query, with: {collection: cases, where: {of: ann}, limit: 1}}\n"
        + "  - {id: rest, do: records.query, with: {collection: cases, after: c1}}\n"
        + "  - {id: gone, do: records.delete, with: {collection: cases, key: c2}}\n"
    )
    run_id = await kept.go(text, policy=POLICY)
    assert await kept.status(run_id) == "succeeded"
    outputs = {step.key: step.output for step in await kept.books.steps(run=run_id)}
    assert outputs["one"] == {"found": True, "value": {"n": 2, "of": "ann"}, "version": 2}
    assert outputs["none"] == {"found": False, "value": None, "version": None}
    assert outputs["all"]["records"] == [{"key": "c1", "value": {"n": 2, "of": "ann"}, "version": 2}]
    assert outputs["all"]["truncated"] is True
    assert ([one["key"] for one in outputs["rest"]["records"]], outputs["rest"]["truncated"]) == (["c2"], False)
    assert await stored(kept) == {"c1": ({"n": 2, "of": "ann"}, 2)}
    receipts = await kept.books.receipts(run=run_id)
    assert [receipt.status for receipt in receipts] == ["succeeded"] * 4
    assert (await kept.history(run_id)) is not None
    await kept.at_rest()


@pytest.mark.req("Q-16")
async def test_what_policy_denies_or_people_reject_is_not_kept(kept: Any) -> None:
    await kept.tenant()
    await kept.policy(POLICY)
    await kept.person("olga", ("owners",))
    await kept.publish(HEAD + put("a", "x", collection="ledgers"))
    await kept.publish((HEAD + put("a", "x", collection="asked")).replace("workflow: w", "workflow: v"))
    denied = await kept.start("w")
    asked = await kept.start("v")
    await kept.worker().work_off()
    assert await kept.status(denied.run_id) == "failed_terminal"
    assert await kept.status(asked.run_id) == "waiting_approval"
    found = partial(records.read, kept.database, "acme", "query")
    assert (await found({"collection": "ledgers"}))["records"] == []
    assert (await found({"collection": "asked"}))["records"] == []
    await kept.vote("olga", "approve")
    await kept.worker().work_off()
    assert await kept.status(asked.run_id) == "succeeded"
    listed: Any = (await found({"collection": "asked"}))["records"]
    assert [row["key"] for row in listed] == ["x"]


async def test_a_record_that_is_not_as_expected_fails_its_own_run_alone(kept: Any) -> None:
    await kept.tenant()
    await kept.policy(POLICY)
    await kept.publish(
        HEAD + put("first", "own-${{ run.requested_by }}") + put("a", "${{ trigger.key }}", if_absent=True)
    )
    runs = [await kept.start("w", {"key": f"k{number % 3}"}, ref=str(number)) for number in range(9)]
    await kept.worker(concurrency=9).work_off()
    ended = [await kept.status(run.run_id) for run in runs]
    assert sorted(ended) == ["failed_terminal"] * 6 + ["succeeded"] * 3
    lost = runs[ended.index("failed_terminal")]
    error = await kept.error(lost.run_id)
    assert (error["class"], error["code"], error["step"]) == ("consistency", "record_conflict", "a")
    assert set(await stored(kept)) == {"own-requester", "k0", "k1", "k2"}
    assert {(await stored(kept))[key][1] for key in ("k0", "k1", "k2")} == {1}
    assert [r.step for r in await kept.books.receipts(run=lost.run_id)] == ["first"], "nothing was let out"
    await kept.at_rest()


async def test_a_version_that_has_passed_is_refused_and_a_branch_may_handle_it(kept: Any) -> None:
    text = (
        HEAD
        + put("a", "c1")
        + put("b", "c1", "{n: 2}", version=1)
        + "  - id: c\n    do: records.put\n    with: {collection: cases, key: c1, value: {n: 3}, version: 1}\n"
        + "    on_failure:\n    "
        + put("t", "told", "{by: '${{ error.code }}'}")
        + "  - {id: d, do: records.delete, with: {collection: cases, key: c1, version: 2}}\n"
    )
    run_id = await kept.go(text, policy=POLICY)
    assert await kept.status(run_id) == "succeeded"
    assert await stored(kept) == {"told": ({"by": "record_conflict"}, 1)}


async def test_a_record_that_is_too_large_fails_its_step(kept: Any) -> None:
    await kept.tenant()
    await kept.policy(POLICY)
    await kept.publish(HEAD + put("a", "c1", "{text: '${{ trigger.text }}'}"))
    large = await kept.start("w", {"text": "x" * 70_000})
    await kept.worker().work_off()
    assert (await kept.error(large.run_id))["code"] == "record_too_large"
    assert await stored(kept) == {}


async def test_a_read_that_is_refused_fails_its_step_and_a_branch_may_handle_it(runtime: Any) -> None:
    """No reader is set up here: a refusal of ours has no writer outside, and no worker comes back to it for ever."""
    text = (
        HEAD
        + "  - id: one\n    do: records.get\n    with: {collection: cases, key: c1}\n    on_failure:\n    "
        + put("t", "told", "{by: '${{ error.code }}'}")
    )
    run_id = await runtime.go(text, policy=POLICY)
    assert await runtime.status(run_id) == "succeeded"
    assert await stored(runtime) == {"told": ({"by": "not_configured"}, 1)}
    await runtime.at_rest()


async def test_records_of_one_step_order_are_kept_in_that_order(kept: Any) -> None:
    """Steps of one super-step that are appended together: the last in step order wins, and nothing is lost."""
    text = HEAD + "".join(
        put(f"s{number}", "same", f"{{n: {number}}}").replace("do:", "needs: [], do:") for number in range(4)
    )
    run_id = await kept.go(text, policy=POLICY)
    assert await kept.status(run_id) == "succeeded"
    value, version = (await stored(kept))["same"]
    assert version == 4
    assert value["n"] in range(4)


async def test_no_tenant_sees_another_ones_records(kept: Any, database_url: str) -> None:
    await kept.go(HEAD + put("a", "c1"), policy=POLICY)
    await kept.tenant("other")
    assert await stored(kept, "other") == {}
    async with Database(database_url, FACES_ROLE) as faces:
        assert (await stored_by(faces, "acme"))["records"] != []
        assert (await stored_by(faces, "other"))["records"] == []


@pytest.mark.req("V-2")
async def test_many_at_once_from_two_workers_lose_nothing(kept: Any) -> None:
    await kept.tenant(concurrency=64)
    await kept.policy(POLICY)
    await kept.publish(HEAD + put("a", "x") + put("b", "y") + put("c", "${{ run.id }}"))
    await kept.publish((HEAD + put("a", "y") + put("b", "x")).replace("workflow: w", "workflow: v"))
    runs = [await kept.start("wv"[number % 2], ref=str(number)) for number in range(20)]
    await asyncio.gather(kept.worker("w1", concurrency=8).work_off(), kept.worker("w2", concurrency=8).work_off())
    assert {await kept.status(run.run_id) for run in runs} == {"succeeded"}
    found = await stored(kept)
    assert (found["x"][1], found["y"][1]) == (20, 20)
    assert len(found) == 12


class Statements:
    """The appends of a worker, as they go to the database: which went together, and which answer gets lost.

    All wait until so many appends have come, so that there are groups.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, wanted: int = 0, lost: str = "") -> None:
        self.groups: list[Sequence[Commit]] = []
        self.refused_groups = self.come = 0
        self.wanted, self.lost, self.enough = wanted, lost, asyncio.Event()
        if not wanted:
            self.enough.set()
        self.lost_of: set[UUID] = set()
        for module in (committer, pump):
            monkeypatch.setattr(module, "apply", self.apply)
        monkeypatch.setattr(committer, "apply_together", self.apply_together)
        waited_for = Grouping.apply

        async def comes(grouping: Grouping[Commit, Any], commit: Commit) -> Any:
            self.come += 1
            if self.come >= self.wanted:
                self.enough.set()
            return await waited_for(grouping, commit)

        monkeypatch.setattr(Grouping, "apply", comes)

    async def apply(self, connection: Connection, commit: Commit) -> Any:
        await self.enough.wait()
        loses = self.lost and commit.records and commit.run_id not in self.lost_of
        if loses:
            self.lost_of.add(commit.run_id)
        if loses and self.lost == "before":
            raise ConnectionDoesNotExistError("it is gone")
        applied = await apply(connection, commit)
        if loses:
            raise ConnectionDoesNotExistError("it is gone, and its answer with it")
        return applied

    async def apply_together(self, connection: Connection, commits: Sequence[Commit]) -> Any:
        await self.enough.wait()
        self.groups.append(commits)
        try:
            return await apply_together(connection, commits)
        except Exception:
            self.refused_groups += 1
            raise


async def over(kept: Any, runs: Sequence[Any]) -> list[str]:
    async def none_is_open() -> bool:
        return all(run.finished_at for run in await kept.books.runs())

    await kept.until(none_is_open)
    return [await kept.status(run.run_id) for run in runs]


@pytest.mark.req("V-2")
async def test_in_a_group_of_appends_a_refused_record_fails_its_own_run_alone(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept.tenant(concurrency=64)
    await kept.policy(POLICY)
    await kept.publish(HEAD + put("a", "same", if_absent=True))
    await kept.publish((HEAD + put("a", "${{ run.id }}")).replace("workflow: w", "workflow: own"))
    plain = HEAD + "  - {id: a, do: probe.effect.apply, with: {name: x}}\n"
    await kept.publish(plain.replace("workflow: w", "workflow: plain"))
    names = [*["plain"] * 6, *["w", "own"] * 4, *["plain"] * 6]
    runs = [await kept.start(name, ref=str(number)) for number, name in enumerate(names)]
    statements = Statements(monkeypatch, wanted=len(runs) - 4)
    async with kept.working(concurrency=20):
        ended = await over(kept, runs)
    told = Counter(zip(names, ended, strict=True))
    assert told == {("plain", "succeeded"): 12, ("own", "succeeded"): 4} | {
        ("w", "succeeded"): 1,
        ("w", "failed_terminal"): 3,
    }
    assert statements.refused_groups == 0, "no group was refused for a neighbour's sake"
    assert (await stored(kept))["same"][1] == 1
    assert len(kept.outside.effects) == 12
    await kept.at_rest()


@pytest.mark.req("V-2")
@pytest.mark.parametrize("lost", ["before", "after"])
async def test_an_answer_that_is_lost_writes_a_record_once(
    kept: Any, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The connection goes before the append, or after it has landed: a version would tell of a second write."""
    await kept.tenant(concurrency=64)
    await kept.policy(POLICY)
    await kept.publish(HEAD + put("a", "${{ run.id }}") + put("b", "all") + put("c", "${{ run.id }}", version=1))
    runs = [await kept.start("w", ref=str(number)) for number in range(6)]
    statements = Statements(monkeypatch, lost=lost)
    async with kept.working(concurrency=8):
        assert set(await over(kept, runs)) == {"succeeded"}
    assert statements.lost_of == {run.run_id for run in runs}
    found = await stored(kept)
    assert {key: version for key, (_, version) in found.items()} == {"all": 6} | {str(run.run_id): 2 for run in runs}
    assert not [row for row in await kept.books.receipts() if row.status != "succeeded"]
    for run in runs:
        assert (await kept.events(run.run_id)).count("action.succeeded") == 3
        await kept.history(run.run_id)
    await kept.at_rest()
