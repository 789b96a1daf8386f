"""The speed of verifying a bundle, and its memory as the run gets longer."""

from __future__ import annotations

import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.figures import Figure, at_least, median, plain, spread_of
from core.canonical import JsonObject
from evidence.bundle import BundleContent, DocumentText, RunRecord, build_bundle
from evidence.chain import Actor, ChainHead, Event, EventType, append, timestamp
from evidence.signing import FileSigner
from evidence.verify import verify_bundle

EVENTS = 60_000
ROUNDS = 3
RUN = UUID("0198a000-0000-7000-8000-000000000001")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def measure(folder: Path, events: int = EVENTS) -> list[Figure]:
    """Measure events per second of a whole verification, and peak memory for a tenth of the events and for all."""
    small, large = _bundle(folder, events // 10), _bundle(folder, events)
    rates = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        assert verify_bundle(large).ok
        rates.append(events / (time.perf_counter() - begun))
    first, second = _peak(small), _peak(large)
    return [
        at_least(
            "verify a bundle: events/s", 100_000, median(rates), "events/s", spread=spread_of(rates), events=events
        ),
        plain(
            f"verify a bundle: memory, {events // 10:,} and {events:,} events",
            f"{first:.1f} and {second:.1f} MiB",
            small=first,
            large=second,
        ),
    ]


def _bundle(folder: Path, events: int) -> Path:
    """Build the bundle of a long run without effects: step.started and step.succeeded, repeated."""
    workflow = DocumentText("long", 1, "workflow: long\nversion: 1\n")
    named: JsonObject = {"name": workflow.name, "version": 1, "digest": workflow.digest}
    actor = Actor("worker", "bench:1:abcdef")
    facts: JsonObject = {"operation": "bench.record.update", "attempt": 0, "epoch": 1}
    story = [Event(EventType.RUN_OPENED, actor, AT, {"workflow": named})]
    for n in range((events - 2) // 2):
        step = f"each[{n}].effect"
        story.append(Event(EventType.STEP_STARTED, actor, AT, facts, step))
        story.append(Event(EventType.STEP_SUCCEEDED, actor, AT, {"writes": []}, step))
    story.append(Event(EventType.RUN_CLOSED, actor, AT, {"status": "succeeded"}))
    head, appends = ChainHead.of(f"run:{RUN}"), list[list[bytes]]()
    for n in range(0, len(story), 4):
        lines, head = append(head, story[n : n + 4])
        appends.append(lines)
    at = timestamp(AT)
    run = RunRecord("bench", "main", str(RUN), "bench", "succeeded", at, at)
    content = BundleContent(run, workflow, (), appends, head, producer="benchmark")
    path = folder / f"bundle-{events}.zip"
    path.write_bytes(build_bundle(content, FileSigner(Ed25519PrivateKey.generate())).bytes)
    return path


def _peak(path: Path) -> float:
    """The peak of Python's memory during a verification, in MiB."""
    tracemalloc.start()
    try:
        verify_bundle(path)
        return tracemalloc.get_traced_memory()[1] / 1024 / 1024
    finally:
        tracemalloc.stop()
