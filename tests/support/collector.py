"""A collector of OpenTelemetry, in a thread: it takes OTLP over HTTP and keeps what it was sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Keeps what has arrived; ``hangs``: it takes a request, and answers none."""

    def __init__(self) -> None:
        self.url = ""
        self.hangs = False
        self.bodies: list[bytes] = []
        self.spans: list[Any] = []
        self.figures: dict[str, set[tuple[tuple[str, str], ...]]] = {}
        self.headers: list[dict[str, str]] = []
        self.ended = threading.Event()
        self.arrived = threading.Condition()

    def of(self, run: UUID | str) -> dict[str, list[Any]]:
        """The spans of a run's trace, by the first word of their names."""
        found: dict[str, list[Any]] = {}
        for span in self.spans:
            if span.trace_id == UUID(str(run)).bytes:
                found.setdefault(span.name.split()[0], []).append(span)
        return found

    async def until(self, fact: Callable[[], object]) -> None:
        """Wait until what has arrived makes this true."""

        def wait() -> None:
            with self.arrived:
                assert self.arrived.wait_for(fact, 60)

        await asyncio.to_thread(wait)

    def take(self, path: str, body: bytes) -> None:
        with self.arrived:
            self._take(path, body)
            self.arrived.notify_all()

    def _take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            sent = ExportTraceServiceRequest.FromString(body)
            self.spans += [span for one in sent.resource_spans for scope in one.scope_spans for span in scope.spans]
        if path != "/v1/metrics":
            return
        for one in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (metric for scope in one.scope_metrics for metric in scope.metrics):
                for point in (*metric.histogram.data_points, *metric.sum.data_points):
                    self.figures.setdefault(metric.name, set()).add(tuple(sorted(attributes(point).items())))


def attributes(of: Any) -> dict[str, str]:
    """The attributes of a span or a point."""
    return {one.key: one.value.string_value for one in of.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on loopback."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if found.hangs:
                found.ended.wait()
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            found.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        found.ended.set()
        server.shutdown()
        thread.join()
