"""Figures for Prometheus, in a registry of our own. No label holds anything that a caller chose."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]


class Metrics:
    """What this process has counted, and what one tenant's rows say at the moment of asking."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "counterseal_http_requests", "HTTP requests", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "counterseal_http_request_seconds",
            "Time to the first byte of the answer",
            ("route",),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3),
            registry=self._registry,
        )
        self._votes = Counter("counterseal_votes", "Votes received", ("channel", "code"), registry=self._registry)
        self._refusals = Counter(
            "counterseal_requests_refused", "Signed requests refused", ("face", "code"), registry=self._registry
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request; ``route`` is the path's template."""
        known = method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH") else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def vote(self, channel: str, code: str) -> None:
        """Count one vote and what became of it."""
        self._votes.labels(channel, code).inc()

    def refusal(self, face: str, code: str) -> None:
        """Count one request that was not signed as it must be."""
        self._refusals.labels(face, code).inc()

    def text(self, runs: Iterable[tuple[str, int]], commands: Iterable[tuple[str, str, int]]) -> bytes:
        """The exposition format: our counters, and the given counts of runs by status, commands by kind and status."""
        registry = CollectorRegistry()
        by_status = Gauge("counterseal_runs", "Runs of this tenant", ("status",), registry=registry)
        for status, count in runs:
            by_status.labels(status).set(count)
        by_kind = Gauge("counterseal_commands", "Open outbox commands", ("kind", "status"), registry=registry)
        for kind, status, count in commands:
            by_kind.labels(kind, status).set(count)
        return generate_latest(self._registry) + generate_latest(registry)
