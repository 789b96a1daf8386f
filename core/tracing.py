"""Traces of runs: ids that are derived from a run and its parts, and watchers of what this process does.

A trace has the id of its run. The id of a span is derived from the run and the subject of the span, so processes need
not exchange anything, and nothing is stored. By default there is no watcher: then each report costs one comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple, Protocol
from uuid import UUID

# W3C Trace Context: version 00, or a later one that begins like it.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?\Z")


class Inbound(NamedTuple):
    """The request that is being served: its time of arrival (Unix nanoseconds), and the trace that its caller named."""

    began: int
    traceparent: str


class Appended(NamedTuple):
    """The lines of one append to a run's book, without values. ``asked_at``: when the question it decides was asked."""

    tenant: str
    run_id: UUID
    lines: Sequence[bytes]
    asked_at: datetime | None
    inbound: Inbound | None


class Called(NamedTuple):
    """A call of a connector, under the lease with this epoch; ``outcome`` is the kind of its outcome."""

    tenant: str
    run_id: UUID
    step: str
    epoch: int
    operation: str
    connector: str
    outcome: str
    code: str
    sent: datetime
    answered: datetime


class Delivered(NamedTuple):
    """A delivery of a message, such as a card or a bundle, that took ``seconds``. It was reported ``at`` this time."""

    tenant: str
    run_id: UUID
    message: UUID
    kind: str
    attempt: int
    outcome: str
    approval: UUID | None
    seconds: float
    at: int = 0


class Watcher(Protocol):
    """Gets reports of what this process does. Its methods neither raise nor wait."""

    def appended(self, done: Appended) -> None:
        """Take the report of an append that was made."""

    def called(self, done: Called) -> None:
        """Take the report of a call that was answered or given up."""

    def delivered(self, done: Delivered) -> None:
        """Take the report of a delivery."""


watchers: tuple[Watcher, ...] = ()
"""The watchers of this process."""

INBOUND: ContextVar[Inbound | None] = ContextVar("inbound", default=None)
OUTBOUND: ContextVar[str | None] = ContextVar("outbound", default=None)
"""The ``traceparent`` that a call of a connector carries; None for none."""


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Report to this watcher, too, inside the block."""
    global watchers
    watchers = (*watchers, watcher)
    try:
        yield
    finally:
        watchers = tuple(one for one in watchers if one is not watcher)


def trace_id(run_id: UUID) -> int:
    """The id of a run's trace: the run's own, so that it is found by it."""
    return run_id.int


def span_id(run_id: UUID, *about: object) -> int:
    """The id of the span about this part of a run; without a part, of the run's start, the parent of all others."""
    name = "\0".join(str(part) for part in about)
    return int.from_bytes(sha256(run_id.bytes + name.encode()).digest()[:8], "big") or 1


def step_span(run_id: UUID, step: str, epoch: int = 1) -> int:
    """The id of the span of a step's lease. Spans about the step itself are below the span of its first lease."""
    return span_id(run_id, "step", step, *((epoch,) if epoch > 1 else ()))


def call_span(run_id: UUID, step: str, epoch: int) -> int:
    """The id of the span of the call under a lease."""
    return span_id(run_id, "call", step, epoch)


def traceparent(run_id: UUID, step: str, epoch: int) -> str:
    """The header that a call carries."""
    return f"00-{trace_id(run_id):032x}-{call_span(run_id, step, epoch):016x}-01"


def kind_of(outcome: object) -> str:
    """The kind of an outcome as attributes spell it: ``in_doubt``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(outcome).__name__).lower()


def parent_of(header: str) -> tuple[int, int] | None:
    """The ids of trace and span that a ``traceparent`` names; None if it is none."""
    found = _TRACEPARENT.match(header)
    ids = (int(found[1], 16), int(found[2], 16)) if found else (0, 0)
    return ids if all(ids) else None
