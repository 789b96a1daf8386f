"""Pauses: no call goes out of anything that a person has paused (promise 11). Pure.

A pause stops every new call of a connector: a first intent, a retry, a probe after doubt, a read. A stopped step parks
on a wait that has no due time and holds nothing (promise 10); a keeper resumes it once the pause is over. A call that
was intended before the pause settles. The tenant's number, which every pause changes, guards each append before a call.
So the append is refused if a pause came in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import convert
from msgspec.structs import replace

from approvals.electorate import slack_groups, unanswerable
from connectors.operation import Operation
from core.terms import GroupQuorum, Stopped, Terms, Tier
from runtime.engine.book import contributors
from runtime.engine.book.instructions import Nonce
from runtime.engine.life.ask import DOUBT_EXPIRES_SECONDS
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import ReceiptRow, StepRow
from runtime.engine.model.states import WaitKind


def key_of(kind: Stopped, name: str = "") -> str:
    """The key under which a pause is kept. A pause of the whole tenant has no name."""
    return f"{kind}:{name}" if name else str(kind)


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause in force: what is paused, by whom, why, and since when."""

    what: Stopped
    name: str
    by: str
    reason: str
    at: datetime

    @classmethod
    def of(cls, key: str, stored: Mapping[str, Any]) -> Pause:
        """The pause that is kept under this key."""
        return cls(*parts_of(key), stored["by"], stored["reason"], datetime.fromisoformat(stored["at"]))

    def __str__(self) -> str:
        about, verb = f"{self.what} {self.name}".strip(), "paused"
        if self.what is Stopped.SUSPENDED:
            about, verb = "this tenant", "suspended"
        return f"{about} is {verb} since {self.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC by {self.by}: {self.reason}"


def parts_of(key: str) -> tuple[Stopped, str]:
    """The kind and the name in a key."""
    kind, _, name = key.partition(":")
    return Stopped(kind), name


def keys_of(workflow: str, connector: str, run_id: UUID, agent: str = "") -> list[str]:
    """The keys of all pauses that would stop a connector's calls in a run, the widest first.

    ``agent`` is the account that has asked for the run over HTTP, "" for any other run.
    """
    own = [(Stopped.WORKFLOW, workflow), (Stopped.CONNECTOR, connector), (Stopped.RUN, str(run_id))]
    if agent:
        own.insert(0, (Stopped.AGENT, account_key(agent)))
    return [key_of(Stopped.SUSPENDED), key_of(Stopped.TENANT), *(key_of(*one) for one in own)]


def account_key(account: str) -> str:
    """The name under which the pause of an agent is kept: in lower case, because directories ignore the case of ids."""
    return account.lower()


def stopped(transition: Transition, step: StepRow, operation: Operation, nonce: Nonce) -> bool:
    """Park the step if a pause forbids its call; true if so. The tenant's number guards the append either way.

    Nothing is used up: the step's attempts, its count of probes and the people's answers stay as they are. A crash
    before the append leaves a lease that runs out, and the step's next worker comes here again.
    """
    view = transition.view
    transition.rows.stop = view.stop
    keys = keys_of(view.workflow, operation.connector, view.run_id, view.agent)
    key = next((one for one in keys if one in view.paused), None)
    if key is not None:
        transition.park(step, WaitKind.PAUSE, nonce(), context={"paused": key}, error=step.last_error)
    return key is not None


OPERATORS = "operators"
# The member of a receipt's action with the groups that policy named for a doubt when it let the action out.
IN_DOUBT = "in_doubt"


def asked_about(transition: Transition, receipt: ReceiptRow, marks: frozenset[str]) -> Terms:
    """The terms of a question about a doubt: those of the first candidates that have enough people to answer.

    Candidates are the groups that policy names, then the group ``operators`` of the directory, then the approvers of
    the action. If none can answer now, the first are asked all the same: a doubt is never left without a question.
    """
    view = transition.view
    asked = [*_candidates(transition, receipt)]
    shaped = contributors.people_of(view.run, marks, view.directory)
    for terms in asked:
        # The members of a Slack group become known only when somebody votes, so its terms always count as answerable.
        if slack_groups(terms) or unanswerable(terms, shaped, view.directory, {}) is None:
            return terms
    return asked[0]


def _candidates(transition: Transition, receipt: ReceiptRow) -> Iterator[Terms]:
    operators = GroupQuorum(OPERATORS)
    if (named := receipt.action.get(IN_DOUBT)) is not None:
        yield _about(convert(named, tuple[GroupQuorum, ...]))
    stored = receipt.action.get("terms")
    there = any(OPERATORS in entry.groups for entry in transition.view.directory.entries.values())
    if there or not isinstance(stored, dict):
        yield _about((operators,))
    if isinstance(stored, dict):
        yield replace(Terms.from_json(stored), remind_seconds=(), escalate=None, expires_seconds=DOUBT_EXPIRES_SECONDS)


def _about(groups: tuple[GroupQuorum, ...]) -> Terms:
    return Terms(Tier.HIGH, groups, expires_seconds=DOUBT_EXPIRES_SECONDS)
