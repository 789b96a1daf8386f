"""The schedule of faults: drawn from a seed before anything starts. Pure.

The same seed gives the same faults at the same seconds. It does not give the same interleaving: the instruction at
which a process is killed depends on the machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of trouble."""

    KILL_WORKER = "SIGKILL of a worker"
    KILL_KEEPER = "SIGKILL of a keeper"
    KILL_FACE = "SIGKILL of the HTTP face"
    STOP_WORKER = "SIGTERM of a worker (a deployment)"
    PAUSE_WORKER = "SIGSTOP of a worker past its lease, then SIGCONT"
    PAUSE_KEEPER = "SIGSTOP of a keeper, then SIGCONT"
    POSTGRES_FAST = "PostgreSQL restarted, fast"
    POSTGRES_IMMEDIATE = "PostgreSQL restarted, immediate (crash recovery)"
    CONNECTIONS = "every database connection ended"
    SLACK = "Slack fails"
    SERVICENOW = "ServiceNow fails"
    BPMN = "the BPMN engine fails"
    WEBHOOKS = "a webhook delivered again"


KILLS = (Kind.KILL_WORKER, Kind.KILL_KEEPER, Kind.KILL_FACE)
_WEIGHTS = {
    Kind.KILL_WORKER: 6,
    Kind.KILL_KEEPER: 4,
    Kind.KILL_FACE: 2,
    Kind.STOP_WORKER: 1,
    Kind.PAUSE_WORKER: 4,
    Kind.PAUSE_KEEPER: 2,
    Kind.POSTGRES_FAST: 1,
    Kind.POSTGRES_IMMEDIATE: 1,
    Kind.CONNECTIONS: 2,
    Kind.SLACK: 8,
    Kind.SERVICENOW: 10,
    Kind.BPMN: 4,
    Kind.WEBHOOKS: 4,
}
# The failures of an outside system: fault kind, did the effect happen, status. A 429 always comes before the effect.
FAILURES = (
    ("status", "lost", 429),
    ("status", "lost", 500),
    ("status", "landed", 500),
    ("status", "lost", 503),
    ("status", "landed", 503),
    ("hang", "lost", 0),
    ("hang", "landed", 0),
    ("reset", "lost", 0),
    ("reset", "landed", 0),
)
WRITES = {
    Kind.SLACK: ("POST", "/api/chat"),
    Kind.SERVICENOW: ("PATCH", "/api/now/table"),
    Kind.BPMN: ("POST", "/start"),
}
READS = {
    Kind.SLACK: ("*", "/api/conversations"),
    Kind.SERVICENOW: ("GET", "/api/now/table"),
    Kind.BPMN: ("*", "external-task|process-instance"),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """One fault: after ``at`` seconds, against the ``which``-th target, for ``seconds``; ``failure`` is of FAILURES."""

    at: float
    kind: Kind
    which: int
    seconds: float
    failure: tuple[str, str, int]
    times: int
    writes: bool


def plan(seed: int, seconds: float, *, kinds: tuple[Kind, ...] = tuple(Kind)) -> list[Trouble]:
    """The schedule of a seed: about one fault every one and a half seconds, after three seconds without faults."""
    chance = random.Random(seed)
    found: list[Trouble] = []
    at = 3.0
    while at < seconds:
        kind = chance.choices(kinds, [_WEIGHTS[one] for one in kinds])[0]
        found.append(
            Trouble(
                round(at, 2),
                kind,
                chance.randrange(1000),
                round(chance.uniform(3.0, 6.0), 2),
                chance.choice(FAILURES),
                chance.randint(1, 3),
                chance.random() < 0.75,
            )
        )
        at += chance.uniform(0.4, 2.6)
    return found
