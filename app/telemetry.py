"""OpenTelemetry: spans and figures go to a collector, over OTLP and HTTP. Off unless a setting names a collector.

Work hands over its facts and goes on: a thread makes spans of them and sends them. Facts that the thread cannot keep up
with are dropped and counted, so a slow or unreachable collector slows nothing down. A crash loses unsent facts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic, time_ns

import structlog

from app.settings import Settings
from app.spans import Figure, Span, Spans
from core import tracing
from core.errors import ConfigurationError
from core.tracing import Appended, Called, Delivered

log = structlog.get_logger(__name__)

# The most facts that wait for the thread, which are some megabytes. Further ones are dropped.
WAITING_MAX = 4_096
BATCH_MAX = 512
# A batch is sent at this number of spans, or after this interval: a request costs more than its spans.
BATCH_SECONDS = 5.0
# The time to send the remaining facts at the end.
LAST_SECONDS = 3.0
SAY_SECONDS = 60.0
QUEUE_FULL, NOT_SENT, UNREADABLE = "queue_full", "not_sent", "unreadable"


class Telemetry:
    """Takes the facts of this process, and sends them from a thread. ``send`` returns true if a batch has arrived."""

    def __init__(self, send: Callable[[list[Span]], bool], measure: Callable[[Figure], None]) -> None:
        self._send, self._measure = send, measure
        self._waiting: deque[Appended | Called | Delivered] = deque()
        self._woken, self._stopping = threading.Event(), False
        self._dropped: dict[str, int] = {}
        self._logged_at = -SAY_SECONDS
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    @property
    def dropped(self) -> dict[str, int]:
        """The number of dropped facts, by reason."""
        return dict(self._dropped)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send the remaining facts within ``LAST_SECONDS``, and end."""
        self._stopping = True
        self._woken.set()
        self._thread.join(LAST_SECONDS)

    def appended(self, done: Appended) -> None:
        """See ``Watcher``."""
        self._put(done)

    def called(self, done: Called) -> None:
        """See ``Watcher``."""
        self._put(done)

    def delivered(self, done: Delivered) -> None:
        """See ``Watcher``."""
        self._put(done._replace(at=time_ns()))

    def _put(self, done: Appended | Called | Delivered) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._drop(QUEUE_FULL)
            return
        self._waiting.append(done)
        if len(self._waiting) == WAITING_MAX // 4:
            self._woken.set()

    def _drop(self, why: str, count: int = 1) -> None:
        """Count dropped facts, and log that once a minute. The count is not exact under races, and need not be."""
        self._dropped[why] = self._dropped.get(why, 0) + count
        if monotonic() - self._logged_at > SAY_SECONDS:
            self._logged_at = monotonic()
            log.warning("telemetry is dropped; work goes on", why=why, dropped=self.dropped)

    def _run(self) -> None:
        spans, batch = Spans(), list[Span]()
        while True:
            stopping = self._stopping
            if not stopping:
                self._woken.wait(BATCH_SECONDS)
                self._woken.clear()
            while self._waiting:
                self._take(spans, batch)
                if len(batch) >= BATCH_MAX:
                    batch = self._sent(batch)
            batch = self._sent(batch)
            if stopping:
                return

    def _take(self, spans: Spans, batch: list[Span]) -> None:
        done = self._waiting.popleft()
        try:
            for made in spans.of(done):
                if isinstance(made, Span):
                    batch.append(made)
                else:
                    self._measure(made)
        except Exception as error:  # a line of another release, say: the others are sent
            log.debug("telemetry cannot read this", kind=type(error).__name__)
            self._drop(UNREADABLE)

    def _sent(self, batch: list[Span]) -> list[Span]:
        """Send a batch, or drop it if it cannot be sent. Returns the empty batch that follows."""
        if batch and not self._send(batch):
            self._drop(NOT_SENT, len(batch))
        return []


@dataclass
class _Shared:
    """The sender of all parts of this process that send to the same collector."""

    ends: ExitStack
    users: int = 0


_RUNNING: dict[str, _Shared] = {}


@contextmanager
def telemetry(settings: Settings, version: str) -> Iterator[None]:
    """Send to the collector that the settings name, until the end; nothing if they name none.

    ``ConfigurationError`` if the libraries are not installed.
    """
    if settings.otel_endpoint is None:
        yield
        return
    shared = _RUNNING.get(settings.otel_endpoint)
    if shared is None:
        shared = _RUNNING[settings.otel_endpoint] = _Shared(_begun(settings, version))
    shared.users += 1
    try:
        yield
    finally:
        shared.users -= 1
        if not shared.users:
            del _RUNNING[settings.otel_endpoint]
            shared.ends.close()


def _begun(settings: Settings, version: str) -> ExitStack:
    try:
        from app.otlp import Collector
    except ModuleNotFoundError as error:
        words = f"COUNTERSEAL_OTEL_ENDPOINT is set, and {error.name} is not installed."
        raise ConfigurationError(words, remedy="Install counterseal[otel], or unset it.") from None
    headers = {name: value.get_secret_value() for name, value in settings.otel_headers.items()}
    collector = Collector(str(settings.otel_endpoint), headers, version)
    made = Telemetry(collector.send, collector.measure)
    collector.count(lambda: made.dropped)
    made.start()
    ends = ExitStack()
    ends.callback(collector.close)
    ends.callback(made.stop)
    ends.enter_context(tracing.watched(made))
    return ends
