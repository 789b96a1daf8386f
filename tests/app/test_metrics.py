"""Figures for Prometheus, from what stands in a tenant's queue."""

from __future__ import annotations

import re

import pytest

from app.metrics import Counters, Metrics
from runtime.store.queue_reads import CapQueue, LaneQueue, MessageQueue, Standing, TenantQueue

pytestmark = pytest.mark.req("Q-12")

QUEUE = TenantQueue(
    tenant="default",
    weight=1.0,
    slots=16,
    slots_used=5,
    max_runs_per_min=9,
    starts_left=4,
    lanes=(
        LaneQueue("main", 1.0, 2, 3.5, 1, 4, 1, {"approval": 2, "signal": 1}),
        LaneQueue("second", 1.0, 3, 7.5, 2, 8, 2, {"approval": 5}),
    ),
    caps=(
        CapQueue("wide", 3, 0, 1, 7, 6),
        CapQueue("narrow", 3, 0, 1, 7, 2),
        CapQueue("middle", 3, 0, 1, 7, 5),
        CapQueue("uncounted", 3, 0, 1),
    ),
    messages=(MessageQueue("card", "pending", 6, 2.5), MessageQueue("card", "failed", 1, 90.0)),
)


def figures(queue: TenantQueue) -> dict[str, float]:
    """The gauges of the queue: by name and labels."""
    standing = [Standing("in_doubt", 2, 60.0)], [Standing("unsigned", 4, 7.5)]
    text = Counters().text([("succeeded", 3)], [queue], *standing).decode()
    found = re.findall(r"^counterseal_(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    return {name.replace('"', ""): float(value) for name, value in found if not name.startswith(("http", "votes"))}


def test_each_figure_is_that_of_the_queue() -> None:
    assert figures(QUEUE) == {
        "runs{status=succeeded}": 3,
        "commands{kind=card,status=pending}": 6,
        "commands{kind=card,status=failed}": 1,
        "commands{kind=step,status=pending}": 5,
        "commands_oldest_seconds{kind=card,status=pending}": 2.5,
        "commands_oldest_seconds{kind=card,status=failed}": 90,
        "commands_oldest_seconds{kind=step,status=pending}": 7.5,
        "steps{state=pending}": 5,
        "steps{state=admitted}": 3,
        "steps{state=running}": 12,
        "steps{state=abandoned}": 3,
        "waits{kind=approval}": 7,
        "waits{kind=signal}": 1,
        "slots{state=used}": 5,
        "slots{state=free}": 11,
        "starts_left{cap=tenant}": 4,
        "starts_left{cap=workflow}": 2,
        "questions{kind=decision}": 0,
        "questions{kind=in_doubt}": 2,
        "questions_oldest_seconds{kind=decision}": 0,
        "questions_oldest_seconds{kind=in_doubt}": 60,
        "leaves{state=unordered}": 0,
        "leaves{state=unsigned}": 4,
        "leaves_oldest_seconds{state=unordered}": 0,
        "leaves_oldest_seconds{state=unsigned}": 7.5,
    }


def test_counters_tell_what_they_count_apart() -> None:
    metrics = Counters()
    metrics.vote("slack", "counted")
    metrics.vote("http", "counted")
    metrics.vote("http", "expired")
    metrics.refusal("slack", "signature")
    metrics.request("BREW", "/v1/runs", 405, 0.2)
    metrics.request("GET", "/v1/runs", 200, 0.02)
    text = metrics.text((), ()).decode()
    for line in (
        'votes_total{channel="slack",code="counted"} 1.0',
        'votes_total{channel="http",code="expired"} 1.0',
        'requests_refused_total{code="signature",face="slack"} 1.0',
        'http_requests_total{method="other",route="/v1/runs",status="405"} 1.0',
        'http_requests_total{method="GET",route="/v1/runs",status="200"} 1.0',
        'http_request_seconds_bucket{le="0.025",route="/v1/runs"} 1.0',
        'http_request_seconds_bucket{le="0.25",route="/v1/runs"} 2.0',
    ):
        assert f"counterseal_{line}\n" in text


def test_a_tenant_sees_its_own_counters_and_no_other_s() -> None:
    metrics = Metrics()
    metrics.of("acme").vote("slack", "counted")
    assert b'votes_total{channel="slack",code="counted"} 1.0' in metrics.of("acme").text((), ())
    assert b"counted" not in metrics.of("globex").text((), ())
