"""Figures for Prometheus, in a registry of our own. No label holds anything that a caller chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from app.spans import HISTOGRAMS, STEPS, Figure, Spans
from core.tracing import Appended, Called, Delivered
from runtime.store.queue_reads import Standing, TenantQueue

# The name under which unauthenticated requests are counted.
NOBODY = ""


class Metrics:
    """Counters of this process, separate for each tenant: no tenant sees what others do."""

    def __init__(self) -> None:
        self._of: dict[str, Counters] = {}

    def of(self, tenant: str) -> Counters:
        """The counters of a tenant that is known to exist, or of ``NOBODY``."""
        return self._of.get(tenant) or self._of.setdefault(tenant, Counters())

    def appended(self, done: Appended) -> None:
        """Count a decision; see ``Watcher``. Nothing else of an append is counted here."""
        if done.asked_at is not None:
            self._measure(done)

    def called(self, done: Called) -> None:
        """Count a call; see ``Watcher``."""
        self._measure(done)

    def delivered(self, done: Delivered) -> None:
        """Count nothing: the queue shows messages."""

    def _measure(self, done: Appended | Called) -> None:
        for made in Spans().of(done):
            if isinstance(made, Figure):
                self.of(done.tenant).measure(made)


class Counters:
    """Counters of one tenant in this process, and its figures at the moment of the request."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        self._requests = counter("counterseal_http_requests", "HTTP requests", ("method", "route", "status"))
        self._votes = counter("counterseal_votes", "Votes received", ("channel", "code"))
        self._refusals = counter("counterseal_requests_refused", "Signed requests refused", ("face", "code"))
        histogram = partial(Histogram, registry=self._registry)
        self._seconds = histogram(
            "counterseal_http_request_seconds",
            "Time to the first byte of the answer",
            ("route",),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3),
        )
        self._measured = {
            name: histogram(name.replace(".", "_").replace("duration", "seconds"), words, labels, buckets=buckets)
            for name, (words, labels, buckets) in HISTOGRAMS.items()
            if name != STEPS
        }

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request; ``route`` is the path's template."""
        known = method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH") else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def vote(self, channel: str, code: str) -> None:
        """Count one vote, by its result."""
        self._votes.labels(channel, code).inc()

    def refusal(self, face: str, code: str) -> None:
        """Count one request whose signature was missing or wrong."""
        self._refusals.labels(face, code).inc()

    def measure(self, figure: Figure) -> None:
        """Record one measurement. Measurements of steps are not shown here."""
        if (histogram := self._measured.get(figure.name)) is not None:
            labels = {name: value for name, value in figure.attributes.items() if name != "tenant"}
            histogram.labels(**labels).observe(figure.seconds)

    def text(
        self,
        runs: Iterable[tuple[str, int]],
        queues: Iterable[TenantQueue],
        questions: Iterable[Standing] = (),
        leaves: Iterable[Standing] = (),
    ) -> bytes:
        """The exposition format: our counters, the counts of runs by status, the tenant's queue, and waiting items."""
        registry = CollectorRegistry()
        gauge = partial(Gauge, registry=registry)
        by_status = gauge("counterseal_runs", "Runs of this tenant", ("status",))
        for status, count in runs:
            by_status.labels(status).set(count)
        for queue in queues:
            _add_queue(gauge, queue)
        _add_standing(gauge, "questions", "Open questions to people", "kind", ("decision", "in_doubt"), questions)
        _add_standing(gauge, "leaves", "Leaves of the log that wait", "state", ("unordered", "unsigned"), leaves)
        return generate_latest(self._registry) + generate_latest(registry)


def _add_standing(
    gauge: Callable[..., Gauge], what: str, words: str, label: str, names: Iterable[str], found: Iterable[Standing]
) -> None:
    """Add a number and the age of the oldest item, or 0 if there is none: an alert ends when its cause ends."""
    counts = gauge(f"counterseal_{what}", words, (label,))
    oldest = gauge(f"counterseal_{what}_oldest_seconds", "Age of the oldest", (label,))
    known = {one.name: one for one in found}
    for name in names:
        one = known.get(name)
        counts.labels(name).set(one.count if one else 0)
        oldest.labels(name).set(one.oldest_seconds if one else 0)


def _add_queue(gauge: Callable[..., Gauge], queue: TenantQueue) -> None:
    """Add one tenant's queue. Workspaces are added up: callers choose their names, which must not become labels."""
    commands = gauge("counterseal_commands", "Open outbox commands", ("kind", "status"))
    oldest = gauge("counterseal_commands_oldest_seconds", "Age of the oldest open one", ("kind", "status"))
    for message in queue.messages:
        commands.labels(message.kind, message.status).set(message.count)
        oldest.labels(message.kind, message.status).set(message.oldest_seconds)
    commands.labels("step", "pending").set(queue.steps["pending"])
    oldest.labels("step", "pending").set(queue.oldest_pending_seconds or 0)
    steps = gauge("counterseal_steps", "Steps in line or under way", ("state",))
    for state, count in queue.steps.items():
        steps.labels(state).set(count)
    steps.labels("abandoned").set(sum(lane.abandoned for lane in queue.lanes))
    waits = gauge("counterseal_waits", "What is parked, by what it waits for", ("kind",))
    for kind, count in queue.parked.items():
        waits.labels(kind).set(count)
    slots = gauge("counterseal_slots", "Steps that may execute at once", ("state",))
    slots.labels("used").set(queue.slots_used)
    slots.labels("free").set(queue.slots - queue.slots_used)
    starts = gauge("counterseal_starts_left", "Runs that may start at once under max_runs_per_min", ("cap",))
    if queue.starts_left is not None:
        starts.labels("tenant").set(queue.starts_left)
    capped = [cap.starts_left for cap in queue.caps if cap.starts_left is not None]
    if capped:  # authors choose the names of workflows, which must not become labels: only the minimum is shown
        starts.labels("workflow").set(min(capped))
