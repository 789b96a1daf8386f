"""The speed of verifying a bundle; the memory that building and verifying take, and the size of the file."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.figures import Figure, at_least, at_most, median, spread_of
from core.canonical import JsonObject, digest, sha256_hex
from evidence.bundle import BundleContent, DocumentText, JudgedBy, build_bundle
from evidence.chain import Actor, ChainHead, Event, EventType, append
from evidence.signing import FileSigner
from evidence.verify import verify_bundle

EFFECTS = 10_000
ROUNDS = 3
MEGABYTE = 1_000_000
RUN = UUID("0198a000-0000-7000-8000-000000000001")
AT = datetime(2026, 1, 1, tzinfo=UTC)
ENGINE, WORKER, POLICY = Actor("engine", "counterseal"), Actor("worker", "bench:1:abcdef"), Actor("policy", "all@1")
OPERATION = "bench.record.update"
DECLARED: JsonObject = {"name": OPERATION, "connector": "bench", "side_effects": "write", "in_doubt": "people"}
RULES: JsonObject = {
    "policy": "all", "version": 1, "rules": [{"id": "bench", "match": {"connector": "bench"}, "outcome": "allow"}]
}  # fmt: skip
WORKFLOW = DocumentText("long", 1, "workflow: long\nversion: 1\n")
ALL = DocumentText("all", 1, "policy: all\nversion: 1\n", RULES)


def measure(folder: Path, effects: int = EFFECTS) -> list[Figure]:
    """Measure events per second of a whole verification; the memory of building and verifying, and the file."""
    content, path = content_of(effects), folder / "bundle.zip"
    built = peak(lambda: path.write_bytes(build_bundle(content, _signer()).bytes))
    rates, events, size = list[float](), content.head.count, path.stat().st_size / MEGABYTE
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        assert verify_bundle(path).ok
        rates.append(events / (time.perf_counter() - begun))
    verified, rate = peak(lambda: verify_bundle(path)), median(rates)
    return [
        at_least(
            f"verify a bundle of {effects:,} writes, judged: events/s",
            15_000,
            rate,
            "events/s",
            spread=spread_of(rates),
            events=events,
        ),
        at_most(f"build a bundle: memory for {effects:,} effects", 150, built, "MB"),
        at_most(f"verify a bundle: memory for {effects:,} effects", 64, verified, "MB"),
        at_most(f"a bundle: size for {effects:,} effects", 25, size, "MB"),
    ]


def peak(work: Callable[[], object]) -> float:
    """The peak of Python's memory during some work, above what there was before, in megabytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()


def content_of(effects: int) -> BundleContent:
    """The content of the bundle of a run with so many allowed writes, ten at a time, with lines as they really are."""
    head, appends = ChainHead.of(f"run:{RUN}"), list[list[bytes]]()
    for story in _story(effects):
        lines, head = append(head, story)
        appends.append(lines)
    steps: JsonObject = {
        "each": {"operation": "foreach", "loops": True, "needs": []},
        "put": {"operation": OPERATION, "needs": [], "within": "each", "branch": "steps"},
    }
    judged_by = JudgedBy({"operations": {OPERATION: DECLARED}, "added": {}, "editions": [steps]}, {})
    return BundleContent("bench", WORKFLOW, (ALL,), appends, head, judged_by, (), "benchmark")


def _signer() -> FileSigner:
    return FileSigner(Ed25519PrivateKey.generate())


def _story(effects: int) -> Iterator[list[Event]]:
    """Yield the events of each append."""

    def of(kind: EventType, data: JsonObject, actor: Actor = ENGINE, step: str | None = None) -> Event:
        return Event(kind, actor, AT, data, step)

    named: JsonObject = {"name": WORKFLOW.name, "version": 1, "digest": WORKFLOW.digest}
    policy: JsonObject = {"name": ALL.name, "version": 1, "digest": ALL.digest}
    declared = digest([WORKFLOW.digest, {OPERATION: digest(DECLARED)}])
    facts: JsonObject = {"workflow": named, "definition": declared, "tenant": "bench", "trigger": "api"}
    yield [of(EventType.RUN_OPENED, {**facts, "workspace": "main"})]
    yield [of(EventType.CHECKPOINT_COMMITTED, {"number": 0, "digest": sha256_hex(b"0")})]
    for n in range(effects):
        step, value, stored = f"each[{n}].put", sha256_hex(str(n).encode()), {"stored": f"{n:032x}"}
        receipt, decision = str(UUID(int=n)), str(UUID(int=effects + n))
        acts: JsonObject = {"action": value, "operation": OPERATION, "decision": decision}
        judged: JsonObject = {"outcome": "allow", "policies": [policy], "rules": ["bench"], "errors": []}
        values: JsonObject = {"values": value}
        let: JsonObject = {"receipt": receipt, "attempt": 1, "approval": None, "stop": 0, "shared": False, **stored}
        yield [
            of(EventType.STEP_STARTED, {"operation": OPERATION, "attempt": 0, "epoch": 1}, WORKER, step),
            of(EventType.DECISION_MADE, {**acts, **judged, **values}, POLICY, step),
            of(EventType.ACTION_INTENDED, {**acts, **let, **values}, step=step),
        ]
        yield [
            of(EventType.ACTION_SUCCEEDED, {"receipt": receipt, **values}, step=step),
            of(EventType.STEP_SUCCEEDED, {"writes": [], **values, **stored}, step=step),
        ]
        if n % 10 == 9:
            yield [of(EventType.CHECKPOINT_COMMITTED, {"number": n // 10 + 1, "digest": value})]
    yield [of(EventType.RUN_CLOSED, {"status": "succeeded", "error": None})]
