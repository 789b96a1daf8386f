"""The collector, over OTLP and HTTP: the only module that imports the libraries of OpenTelemetry."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from app.spans import HISTOGRAMS, Figure, Span

# The time for one batch, with all retries.
SEND_SECONDS = 5.0
FIGURES_SECONDS = 30.0
KINDS = {kind.name.lower(): kind for kind in SpanKind}
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class _Resource(Resource):
    """A resource that is hashed once: the libraries hash it for each span, by writing all of it as JSON."""

    def __hash__(self) -> int:
        return self._hashed

    @cached_property
    def _hashed(self) -> int:
        return super().__hash__()


class Collector:
    """Sends spans and figures. The caller counts failures, so the libraries log nothing."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], version: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        base = endpoint.rstrip("/")
        named = {"service.name": "counterseal", "service.version": version}
        found = Resource.create(named | {"service.instance.id": f"{socket.gethostname()}:{os.getpid()}"})
        self._resource = _Resource(dict(found.attributes))
        self._scope = InstrumentationScope("counterseal", version)
        self._spans: SpanExporter = OTLPSpanExporter(f"{base}/v1/traces", headers=headers, timeout=SEND_SECONDS)
        figures = OTLPMetricExporter(f"{base}/v1/metrics", headers=headers, timeout=SEND_SECONDS)
        reader = PeriodicExportingMetricReader(figures, FIGURES_SECONDS * 1_000, SEND_SECONDS * 1_000)
        views = [
            View(instrument_name=name, aggregation=ExplicitBucketHistogramAggregation(buckets))
            for name, (_, _, buckets) in HISTOGRAMS.items()
        ]
        self._provider = MeterProvider([reader], self._resource, shutdown_on_exit=False, views=views)
        self._meter = self._provider.get_meter("counterseal", version)
        self._histograms = {
            name: self._meter.create_histogram(name, "s", words) for name, (words, _, _) in HISTOGRAMS.items()
        }

    def send(self, spans: list[Span]) -> bool:
        """Send a batch; False if the collector has not taken it in time."""
        return self._spans.export([self._readable(span) for span in spans]) is SpanExportResult.SUCCESS

    def measure(self, figure: Figure) -> None:
        """Record one measurement."""
        self._histograms[figure.name].record(figure.seconds, dict(figure.attributes))

    def count(self, dropped: Callable[[], Mapping[str, int]]) -> None:
        """Count dropped items in a figure of the collector, too."""

        def observed(_: CallbackOptions) -> Iterator[Observation]:
            yield from (Observation(count, {"why": why}) for why, count in dropped().items())

        words = "Spans, and what would have become spans, that were not sent"
        self._meter.create_observable_counter("counterseal.telemetry.dropped", [observed], description=words)

    def close(self) -> None:
        """Send the last figures, and close connections."""
        self._provider.shutdown(SEND_SECONDS * 1_000)
        self._spans.shutdown()

    def _readable(self, span: Span) -> ReadableSpan:
        within = None if span.parent is None else _context(span.trace, span.parent)
        return ReadableSpan(
            span.name,
            _context(span.trace, span.id),
            within,
            self._resource,
            span.attributes,
            links=[Link(_context(*ids)) for ids in span.links],
            kind=KINDS[span.kind],
            status=Status(StatusCode.ERROR if span.is_bad else StatusCode.UNSET),
            start_time=span.began,
            end_time=span.ended,
            instrumentation_scope=self._scope,
        )


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=True, trace_flags=SAMPLED)
