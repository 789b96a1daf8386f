"""All limits of a tenant in one place: on what it sends, stores, requests and lets the service compute.

A budget bounds work, not only numbers of things. Code that reads a tenant's text takes its limit from here. There are
three kinds: a *size* is checked where something is read; a *rate* is counted by each process, and refills with time; a
*stock* bounds what the tenant has in the database. Beyond a rate or a stock the answer is 429 with ``Retry-After``,
beyond the size of a request 413; both name the limit. A step that exceeds a size fails, and names the limit.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from core.errors import CountersealError, InputError

KIB, MIB = 1024, 1024 * 1024


class Kind(StrEnum):
    """The way in which a limit counts."""

    SIZE = "size"
    RATE = "rate"
    STOCK = "stock"


class Limit(NamedTuple):
    """A limit: at most ``most`` of ``unit``; for a rate, within ``seconds``. ``words`` name what it bounds."""

    name: str
    kind: Kind
    most: int
    unit: str
    words: str
    seconds: float = 0.0


def _size(name: str, most: int, unit: str, words: str) -> Limit:
    return Limit(name, Kind.SIZE, most, unit, words)


LIMITS: Mapping[str, Limit] = {
    one.name: one
    for one in (
        # Sizes: bytes and items of one thing.
        _size("request_bytes", 256 * KIB, "bytes", "one request"),
        _size("document_bytes", 256 * KIB, "bytes", "one workflow, policy, directory or declaration"),
        _size("document_values", 20_000, "values", "one document, with its aliases"),
        _size("document_steps", 500, "steps", "one workflow, with those added to a run"),
        _size("schema_parts", 20_000, "parts", "one JSON Schema, with what its references lead to"),
        _size("value_bytes", 256 * KIB, "bytes", "one value of a step, in its canonical form"),
        _size("state_bytes", MIB, "bytes", "the channels of one run"),
        _size("loop_items", 10_000, "items", "one loop"),
        _size("loop_bytes", 4 * MIB, "bytes", "the items of one loop"),
        _size("outside_bytes", 4 * MIB, "bytes", "one answer of another system"),
        _size("page_bytes", MIB, "bytes", "one page of a list; the rest comes with `next`"),
        _size("reference_characters", 200, "characters", "the business reference of a run"),
        _size("person_characters", 200, "characters", "the name of a requester from outside"),
        # Sizes of work.
        _size("evaluation_units", 4_000_000, "units", "one evaluation of an expression"),
        _size("helper_bytes", 2048 * MIB, "bytes", "the memory of a process that reads a text aside"),
        _size("helper_seconds", 10, "seconds", "its processor time"),
        _size("loop_seconds", 15, "seconds", "the processor time of a process between two looks at its loop"),
        _size("permit_seconds", 300, "seconds", "the lease of an agent's permit, which its heartbeats extend"),
        _size("permit_most_seconds", 14_400, "seconds", "that lease with all heartbeats"),
        _size("helper_ends", 2, "times", "how often a step is ended at that; then it fails"),
        # Rates.
        Limit("requests", Kind.RATE, 30_000, "requests", "requests of its tokens", 60.0),
        Limit("starts", Kind.RATE, 12_000, "runs", "runs started by requests and events", 60.0),
        Limit(
            "compile_units", Kind.RATE, 8 * MIB, "bytes", "compiling: documents that are checked and published", 60.0
        ),
        Limit("answer_bytes", Kind.RATE, 512 * MIB, "bytes", "answers to its requests", 60.0),
        Limit("agent_actions", Kind.RATE, 60, "actions", "actions that one agent asks for", 60.0),
        Limit("cards", Kind.RATE, 2_000, "cards", "questions shown in its Slack", 3600.0),
        Limit("channel_messages", Kind.RATE, 120, "messages", "what is shown in one channel", 60.0),
        Limit("log_lines", Kind.RATE, 6_000, "lines", "lines of the log about it", 60.0),
        Limit("log_warnings", Kind.RATE, 1, "lines", "the line that says that lines are left out", 60.0),
        # Stocks.
        Limit("open_runs", Kind.STOCK, 100_000, "runs", "its newest runs that have not ended"),
        Limit("signals_kept", Kind.STOCK, 10_000, "signals", "signals that no run has waited for yet"),
        Limit("agent_questions", Kind.STOCK, 20, "questions", "actions of one agent that are not over"),
        Limit("open_questions", Kind.STOCK, 10_000, "questions", "questions that people have not answered"),
    )
}


def most(name: str) -> int:
    """The largest amount that is allowed."""
    return LIMITS[name].most


class OverLimit(CountersealError):
    """A tenant has used up a limit; trying again makes sense after ``seconds``."""

    code = "limit"

    def __init__(self, limit: Limit, seconds: float) -> None:
        per = f" in {limit.seconds:.0f} seconds" if limit.seconds else ""
        super().__init__(
            f"The limit {limit.name} of this tenant is reached: {limit.most} {limit.unit}{per} ({limit.words}).",
            remedy="Try again after the time in Retry-After.",
        )
        self.limit, self.seconds = limit.name, max(1, math.ceil(seconds))


class TooCostly(InputError):
    """Reading a text was stopped at its limit of time or memory: it takes more work than any request may cause."""

    code = "too_costly"


KEYS_MAX = 10_000


class Meter:
    """Counts what each tenant has left of its rates in this process. A bucket refills evenly with time.

    An amount that is known only afterwards (the bytes of an answer) may bring a bucket below zero: then the next use
    waits. ``given`` replaces limits; ``now`` gives monotonic seconds.
    """

    def __init__(self, given: Mapping[str, int] | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._limits = {name: one._replace(most=(given or {}).get(name, one.most)) for name, one in LIMITS.items()}
        self._left: OrderedDict[tuple[str, ...], tuple[float, float]] = OrderedDict()

    def limit(self, name: str) -> Limit:
        """The limit of this name, with this installation's replacement."""
        return self._limits[name]

    def wait(self, name: str, *whose: str) -> float:
        """The seconds until the bucket is above zero; 0 if it is."""
        limit = self._limits[name]
        left = self._now_left(limit, whose)
        return 0.0 if left >= 1 else max(1.0, (1 - left) * limit.seconds / max(1, limit.most))

    def take(self, name: str, *whose: str, amount: float = 1) -> None:
        """Use an amount of a limit. ``OverLimit`` if nothing is left, and then nothing is used."""
        if (seconds := self.wait(name, *whose)) > 0:
            raise OverLimit(self._limits[name], seconds)
        self.used(name, *whose, amount=amount)

    def used(self, name: str, *whose: str, amount: float) -> None:
        """Count an amount that was used already, even if it was not left."""
        key = (name, *whose)
        left = self._now_left(self._limits[name], whose) - amount
        self._left[key] = (left, self._now())
        self._left.move_to_end(key)
        if len(self._left) > KEYS_MAX:
            self._left.popitem(last=False)

    def _now_left(self, limit: Limit, whose: tuple[str, ...]) -> float:
        left, since = self._left.get((limit.name, *whose), (float(limit.most), 0.0))
        return min(float(limit.most), left + (self._now() - since) * limit.most / limit.seconds)
