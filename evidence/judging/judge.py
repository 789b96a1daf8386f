"""The judgement of a run's history: all parts, in the order in which they follow each event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evidence.events import EventType as E
from evidence.judging.actions import Actions
from evidence.judging.case import Case, Judge
from evidence.judging.inner import Inner
from evidence.judging.people import People
from evidence.judging.standing import Standing
from evidence.judging.steps import Steps

# The events that the judges know. An event of any other type is newer than this verifier, which says so. Whoever adds
# a type to the audit has it judged, and adds it here.
KNOWN: frozenset[str] = frozenset({
    E.RUN_OPENED, E.RUN_STARTED, E.RUN_REFERENCE_SET, E.RUN_EXTENDED, E.RUN_CONTINUED, E.RUN_CANCELED, E.RUN_PAUSED,
    E.RUN_RESUMED, E.RUN_CLOSED, E.RUN_REOPENED, E.RUN_SEALED, E.RUN_MIGRATED, E.RUN_FORKED,
    E.STEP_STARTED, E.STEP_SUCCEEDED, E.STEP_FAILED, E.STEP_PARKED, E.STEP_RESUMED, E.STEP_RETRY_SCHEDULED,
    E.STEP_SET_BACK, E.STEP_CANCELED, E.STEP_HELD, E.HOLD_ANSWERED, E.LEASE_EXPIRED,
    E.WAIT_OPENED, E.WAIT_POSTPONED, E.WAIT_COMPLETED, E.WAIT_TIMED_OUT, E.WAIT_CANCELED,
    E.AGENT_BEGAN, E.AGENT_ANSWERED, E.DECISION_MADE, E.PREFLIGHT_FAILED,
    E.APPROVAL_REQUESTED, E.APPROVAL_DELIVERED, E.APPROVAL_SAID, E.APPROVAL_REASSIGNED, E.APPROVAL_EDITED,
    E.APPROVAL_VOTED, E.APPROVAL_VOTE_REFUSED, E.APPROVAL_DECIDED,
    E.APPROVAL_CONSUMED, E.APPROVAL_SUPERSEDED, E.APPROVAL_EXPIRED, E.APPROVAL_REMINDED, E.APPROVAL_ESCALATED,
    E.GRANT_GIVEN, E.GRANT_REVOKED, E.GRANT_ENDED,
    E.ACTION_INTENDED, E.ACTION_SUCCEEDED, E.ACTION_FAILED, E.ACTION_IN_DOUBT, E.ACTION_HELD, E.ACTION_DOUBT_RESOLVED,
    E.ACTION_RECALLED, E.ACTION_LATE, E.ACTION_UNNEEDED, E.CHECKPOINT_COMMITTED,
})  # fmt: skip


class Judgement:
    """Follows the events of one run, and says what is wrong with its history."""

    def __init__(self, case: Case) -> None:
        self.people = People(case)
        self.actions = Actions(case, self.people)
        self.steps = Steps(case, self.actions)
        self.inner = Inner(case, self.steps)
        self.standing = Standing(case)
        self.whole = False
        self._parts: tuple[Judge, ...] = (self.people, self.actions, self.steps, self.inner, self.standing)

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one event of the chain."""
        if event["type"] == E.RUN_OPENED:
            self.whole = event["data"].get("tenant") is not None
            for part in self._parts:
                part.whole = self.whole
        for part in self._parts:
            part.observe(event)

    def rows(self) -> Iterator[tuple[str, list[str], str]]:
        """Each part: its name, its faults, and what it found if there are none."""
        for part in self._parts:
            part.end()
        yield self.people.name, self.people.faults, self._people()
        yield self.actions.name, self.actions.faults, "every effect follows its newest decision and its attempts"
        yield self.steps.name, self.steps.faults, self.steps.words
        yield self.inner.name, self.inner.faults, f"{self.inner.calls} calls, each made by its model"
        yield self.standing.name, self.standing.faults, self.standing.words

    def _people(self) -> str:
        return f"{self.people.votes} votes on {len(self.people.asked)} questions meet their terms"
