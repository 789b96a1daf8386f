"""Every crash point: a process dies just before or after each call of each port, and nothing is lost or done twice.

The quick selection takes points all over each workload; ``make test DEEP=1`` takes all of them, and prints how many.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import crash_rows
import crash_servicenow
import crash_stage
import crash_workloads
import pytest

from connectors.catalog import load_catalog
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.definition.catalog import Definitions
from runtime.definition.reserved import POLICY_CHANGE
from runtime.requests.views import RunReader
from runtime.store.records import read
from tests.support.beside import wrong_beside
from tests.support.books import Books, books_at
from tests.support.databases import Databases
from tests.support.other_verifiers import by_node, by_python

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
QUICK_POINTS = 5
SUMMARY = "summary"  # tests/conftest.py prints what has this name
Fresh = Callable[[], str]


@pytest.fixture
def fresh(databases: Databases, template_database: str) -> Iterator[Fresh]:
    """Makes databases for one process after the other, and drops them at the end."""
    made: list[str] = []

    def make() -> str:
        made.append(databases.create("crash", template_database))
        return made[-1]

    yield make
    for url in made:
        databases.drop(url)
        databases.drop(crash_rows.beside(url))


@cache
def forkserver() -> Any:
    """Everything is imported once, in a process that does nothing else; each stage is forked from that."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["crash_stage"])
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([known] if known else [])])
    try:
        warm = context.Process(target=os.getpid)
        warm.start()
        warm.join()
    finally:
        os.environ.pop("PYTHONPATH")
        if known:
            os.environ["PYTHONPATH"] = known
    return context


async def acted(plan: crash_stage.Plan) -> int:
    """Run the process to its end; its exit code, negative for a signal."""
    context = forkserver()
    process = context.Process(target=crash_stage.act, args=(plan,))
    process.start()
    await asyncio.to_thread(process.join, 120)
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


async def numbered(fresh: Fresh, tmp_path: Path, workload: str) -> list[tuple[int, str]]:
    """The calls of a run that nobody kills, by number; those that prepare it are left out."""
    folder = tmp_path / "whole"
    folder.mkdir()
    url = fresh()
    assert await acted(crash_stage.Plan(str(folder), url, workload)) == 0
    await check(url, folder, workload)
    found = json.loads((folder / "calls.json").read_text())
    return list(enumerate(found["calls"]))[found["first"] :]


def chosen(points: list[tuple[int, str]]) -> list[tuple[int, str, str]]:
    every = [(number, name, when) for number, name in points for when in ("before", "after")]
    if DEEP:
        return every
    outside = [point for point in every if not point[1].startswith("database")]
    stride = max(1, len(every) // (QUICK_POINTS // 2))
    found = [*every[stride // 2 :: stride], *outside[1 :: max(1, len(outside) // (QUICK_POINTS // 2))]]
    return [*dict.fromkeys(found)][:QUICK_POINTS]


@pytest.mark.timeout(7200 if DEEP else 240)
@pytest.mark.req("O-8")
@pytest.mark.req("V-14")
@pytest.mark.parametrize("workload", crash_workloads.WORKLOADS)
async def test_a_crash_anywhere_loses_nothing_and_repeats_nothing(
    fresh: Fresh, tmp_path: Path, workload: str, record_property: Any
) -> None:
    points = await numbered(fresh, tmp_path, workload)
    reached = 0
    for number, name, when in chosen(points):
        folder = tmp_path / f"{number}-{when}"
        folder.mkdir()
        url = fresh()
        code = await acted(crash_stage.Plan(str(folder), url, workload, number, when))
        assert code in (-signal.SIGKILL, 0), f"{when} {number} {name}: exit code {code}"
        reached += code == -signal.SIGKILL
        again = await acted(crash_stage.Plan(str(folder), url, workload))
        assert again == 0, f"{when} {number} {name}: what was left cannot be gone on with"
        try:
            await check(url, folder, workload)
        except AssertionError as error:
            raise AssertionError(f"{when} {number} {name}: {error}") from None
    record_property(SUMMARY, f"{workload}: {len(points) * 2} crash points, {reached} tried")
    assert reached > 0


@pytest.mark.timeout(3600 if DEEP else 240)
@pytest.mark.req("P-6")
@pytest.mark.req("O-1")
@pytest.mark.parametrize("workload", ["w1", "child", "continued"])
async def test_a_crash_right_after_a_commit_loses_no_message(
    fresh: Fresh, tmp_path: Path, workload: str, record_property: Any
) -> None:
    """Messages are in the database as soon as the append that orders them (promise 6)."""
    points = [
        number for number, name in await numbered(fresh, tmp_path, workload) if name.endswith(crash_stage.MESSAGE)
    ]
    assert len(points) > 1
    for number in points:
        folder = tmp_path / f"{number}-after"
        folder.mkdir()
        url = fresh()
        code = await acted(crash_stage.Plan(str(folder), url, workload, number, "after"))
        assert code == -signal.SIGKILL, f"{number}: exit code {code}"
        assert await acted(crash_stage.Plan(str(folder), url, workload)) == 0
        await check(url, folder, workload)
    record_property(SUMMARY, f"{workload}: {len(points)} crashes after a commit with a message")


@pytest.mark.timeout(3600 if DEEP else 240)
@pytest.mark.parametrize("workload", ["w1", "retry", "durable"])
@pytest.mark.parametrize("stop", ["pause", "deny"])
async def test_after_a_stop_nothing_more_is_intended_wherever_it_had_crashed(
    fresh: Fresh, tmp_path: Path, workload: str, stop: str, record_property: Any
) -> None:
    """Promise 11. After a pause that is over the run comes to its usual end, by the same checks."""
    points = await numbered(fresh, tmp_path, workload)
    reached = 0
    for number, name, when in chosen(points):
        folder = tmp_path / f"{number}-{when}"
        folder.mkdir()
        url = fresh()
        reached += await acted(crash_stage.Plan(str(folder), url, workload, number, when)) == -signal.SIGKILL
        assert await acted(crash_stage.Plan(str(folder), url, workload, stop=stop)) == 0, f"{when} {number} {name}"
        (stopped,) = crash_stage.Ledger(folder / "ledger.jsonl").all(what="stopped")
        assert stopped["before"] == stopped["after"], f"{when} {number} {name}: {stopped}"
        if stop == "pause":
            await check(url, folder, workload)
            continue
        async with books_at(url) as books:
            assert {run.status for run in await books.runs()} <= {"succeeded", "failed_terminal"}
            happened = {fact["name"] for fact in crash_stage.Ledger(folder / "ledger.jsonl").all(what="effect")}
            assert happened <= crash_workloads.WORKLOADS[workload].effects
    record_property(SUMMARY, f"{workload}, then {stop}: {len(points) * 2} crash points, {reached} tried")
    assert reached > 0


# What is told by the commits of a gate: fetch and report, intent, heartbeat, outcome, the end of the lease, the doubt.
OF_A_GATE = ("wait.completed", "action.intended", "wait.postponed", "action.succeeded", "wait.timed_out", "in_doubt")


@pytest.mark.timeout(3600 if DEEP else 400)
@pytest.mark.req("promise 1")
@pytest.mark.req("promise 2")
async def test_a_crash_at_each_commit_of_a_gate_lets_no_second_permit_out(
    fresh: Fresh, tmp_path: Path, record_property: Any
) -> None:
    """Each is lost (the process dies before it) and landed (it dies before its next call); its tool, as well.

    Afterwards three verifiers agree about every bundle.
    """
    told = [point for point in await numbered(fresh, tmp_path, "gate") if not point[1].startswith("blobs")]
    points = [number for number, name in told if name == "agent.tool" or any(one in name for one in OF_A_GATE)]
    assert len(points) > 10
    signer, bundles = FileSigner.load_or_create(tmp_path / "key.pem"), list[Path]()
    (tmp_path / "public.pem").write_bytes(signer.public_key.pem)
    tried = [(number + landed, number, landed) for number in points[0 if DEEP else 3 :] for landed in (0, 1)]
    for died, number, landed in tried:
        folder = tmp_path / f"{number}-{landed}"
        folder.mkdir()
        shutil.copy(tmp_path / "key.pem", folder)
        url, what = fresh(), f"{'landed' if landed else 'lost'}: {dict(told)[number]}"
        assert await acted(crash_stage.Plan(str(folder), url, "gate", died, "before")) == -signal.SIGKILL, what
        assert await acted(crash_stage.Plan(str(folder), url, "gate")) == 0, what
        try:
            await check(url, folder, "gate")
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
        bundles += (folder / "evidence").rglob("*.zip")
    agreed = [(0, set[str]())] * len(bundles)
    key = tmp_path / "public.pem"
    assert by_python(tmp_path, key, bundles) == by_node(tmp_path, key, bundles) == agreed
    record_property(SUMMARY, f"gate: {len(tried)} crashes at commits, {len(bundles)} bundles")


async def frozen(plan: crash_stage.Plan) -> Any:
    """A process that stands still at its point, with its connections and leases; None if it came to its end."""
    process = forkserver().Process(target=crash_stage.act, args=(plan,))
    process.start()
    return process if await asyncio.to_thread(_stood_still, process) else None


def _stood_still(process: Any) -> bool:
    """Wait until the process stands still (true) or has ended."""
    state = Path(f"/proc/{process.pid}/stat")
    while process.exitcode is None:
        if state.exists() and state.read_text().rpartition(") ")[2].startswith("T"):
            return True
        process.join(0.02)
    return False


@pytest.mark.timeout(3600 if DEEP else 240)
@pytest.mark.req("O-8")
@pytest.mark.parametrize("workload", ["family", "records", "rejected", "shared", "retry"])
async def test_a_process_that_stands_still_and_wakes_up_does_nothing_twice(
    fresh: Fresh, tmp_path: Path, workload: str, record_property: Any
) -> None:
    """Meanwhile somebody else has taken its leases, and has done what it was about to do (promises 2 and 4).

    Not tried: right before a call of the target or a post, after the last look at the lease. Only they can know it. A
    dispatcher posts several cards at once, so a stop after one post may be one right before another.
    """
    points = await numbered(fresh, tmp_path, workload)
    reached = 0
    for number, name, when in chosen(points):
        if name.startswith("messenger.post") or (when == "before" and name.startswith("connector.perform")):
            continue
        folder = tmp_path / f"{number}-{when}"
        folder.mkdir()
        url = fresh()
        sleeper = await frozen(crash_stage.Plan(str(folder), url, workload, number, when, freezes=True))
        others = 1
        for _ in range(12):  # until the sleeper's transaction, and with it its locks, are ended by their limits
            if others:
                others = await acted(crash_stage.Plan(str(folder), url, workload))
        if sleeper is not None:
            reached += 1
            os.kill(sleeper.pid, signal.SIGCONT)
            await asyncio.to_thread(sleeper.join, 120)
            assert sleeper.exitcode is not None, "it ends"
        again = await acted(crash_stage.Plan(str(folder), url, workload))
        try:
            assert (others, again) == (0, 0)
            await check(url, folder, workload)
        except AssertionError as error:
            raise AssertionError(f"{when} {number} {name}: {error}") from None
    record_property(SUMMARY, f"{workload}: stood still at {reached} points")
    assert reached > 0


async def check(url: str, folder: Path, workload: str) -> None:
    """All invariants, by the database, by what happened outside, and by the evidence."""
    work = crash_workloads.WORKLOADS[workload]
    ledger = crash_stage.Ledger(folder / "ledger.jsonl")
    if work.gate:
        await check_gate(url, folder, ledger)
        return
    happened = [fact["name"] for fact in ledger.all(what="effect")]
    assert sorted(happened) == sorted(work.effects), f"effects: {happened}"
    (acknowledged, *_) = ledger.all(what="acknowledged")
    async with books_at(url) as books:
        run = await books.run(workflow=work.name)
        assert str(run.id) == acknowledged["run"], "an acknowledged start has its run"
        assert run.status == work.status, f"{run.status}: {run.error}"
        assert await leftovers(books) == {}
        if work.proposes:
            made = await books.tenant_events(crash_stage.TENANT, type="policy.activated")
            told = [(line.data["version"], line.data.get("by"), line.data["approver"]) for line in made]
            assert told[1:] == [(2, "nina", "olga")], "the vote of the second has put it in force, once"
            named = await books.tenant_events(crash_stage.TENANT, type="directory.proposed")
            assert [line.data["by"] for line in named] == ["nina"], "a change of members is proposed once"
            published = await books.tenant_events(crash_stage.TENANT, type="directory.published")
            last = {line.data["digest"] for line in published[2:]}
            assert last == {named[0].data["digest"]}, "and made by the second"
            assert (await books.run(workflow=POLICY_CHANGE)).status == "succeeded"
        runs = await books.runs()
        assert {bundle.run for bundle in await books.bundles()} == {run.id for run in runs}
        cards = [fact["key"] for fact in ledger.all(what="card")]
        assert len(cards) == len(set(cards)), "a card is posted once"
        asked: list[Any] = [*await books.approvals(), *await books.waits(kind="task")]
        messages = {one.message_ts for one in asked}  # the questions of a list stand on one message
        assert None not in messages, "whoever is asked is shown a card"
        assert len(cards) == len(messages)
        asks = work.proposes  # the question about the policy is a run of its own
        wanted = len(work.workflows) if work.runs is None else work.runs
        assert len(runs) == wanted + asks, "each run is started once"
        remembered = len(await books.bundles())
        for fact in ledger.all(what="voted"):
            if fact["code"] == "counted":
                assert not (await books.approval(id=UUID(fact["approval"]))).open
    async with Database(url, ENGINE_ROLE) as database:
        assert await wrong_beside(database, Definitions(load_catalog())) == []
        kept: Any = (await read(database, crash_stage.TENANT, "query", {"collection": "kept"}))["records"]
    assert {row["key"]: row["version"] for row in kept} == dict.fromkeys(work.records, 1)
    if work.calls:
        assert ledger.all(what="strange") == [], "no answer of a model is asked for again once it is recorded"
        told = [fact["came"] for fact in ledger.all(what="told")]
        assert told
        assert all(came == {"ask": None, "doubt": None, "denied": "denied"} for came in told)
    if work.rows:
        assert await crash_rows.written(url) == sorted(work.rows), "each row is written once"
    if work.incidents:
        assert crash_servicenow.written(folder) == [*work.incidents], "each record is made once, and removed once"
    stored = sorted((folder / "evidence").rglob("*.zip"))
    ended_twice = work.refused_once and not work.holds
    # The late answer of a process that had stood still makes a longer edition of its run's bundle.
    assert len(stored) == remembered >= len(runs) + bool(ended_twice), "every bundle that is remembered is stored"
    for path in stored:
        report = verify_bundle(path)
        assert report.ok, report


async def check_gate(url: str, folder: Path, ledger: crash_stage.Ledger) -> None:
    """No effect without an intent, one permit at most, and each action is settled as it happened."""
    definitions, asked = Definitions(load_catalog()), ledger.all(what="asked")
    assert len(asked) == 2
    async with books_at(url) as books, Database(url, FACES_ROLE) as faces:
        for name, run in ((one["name"], UUID(one["run"])) for one in asked):
            intents = (await books.event_types(run)).count("action.intended")
            effects = ledger.all(what="effect", name=name)
            permits = {fact["permit"] for fact in ledger.all(what="permit", name=name)}
            assert len(effects) <= len(permits) <= intents <= 1
            assert await books.status_of(run) == ("succeeded" if effects else "failed_terminal"), name
            assert (await RunReader(faces, definitions).replay(crash_stage.TENANT, run)).ok
        assert await leftovers(books) == {}
        assert len(await books.runs()) == len(asked), "each is asked for once"
        assert {bundle.run for bundle in await books.bundles()} == {UUID(one["run"]) for one in asked}
    assert ledger.all(what="second permit") == [], "another nonce gets nothing"
    for path in sorted((folder / "evidence").rglob("*.zip")):
        report = verify_bundle(path)
        assert report.ok, report


async def leftovers(books: Books) -> dict[str, list[str]]:
    """List whatever is open, in doubt, counted as at work, or held."""
    doubts = [receipt.step for receipt in await books.receipts(status={"intended", "in_doubt"})]
    counters = [str(run.id) for run in await books.runs() if run.executing]
    leases = [step.key for step in await books.steps() if step.lease_owner is not None]
    more = {"receipts": doubts, "counters": counters, "leases": leases}
    return await books.left_open(crash_stage.TENANT) | {name: found for name, found in more.items() if found}
