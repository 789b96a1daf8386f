"""The people who are asked what became of an action in doubt: those who can look, not those who let it out. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import convert
from msgspec.structs import replace

from approvals.electorate import slack_groups, unanswerable
from core.terms import GroupQuorum, Terms, Tier
from runtime.engine import contributors
from runtime.engine.ask import DOUBT_EXPIRES_SECONDS
from runtime.engine.commit import ReceiptRow
from runtime.engine.transition import Transition

OPERATORS = "operators"
# In a receipt's action: the groups that policy named for this case when it let the action out.
IN_DOUBT = "in_doubt"


def asked_about(transition: Transition, receipt: ReceiptRow, marks: frozenset[str]) -> Terms:
    """The terms of the question: those of the first candidates that have enough people to answer.

    Candidates are the groups that policy names, then the group ``operators`` of the directory, then the approvers of
    the action. If none can answer now, the first are asked all the same: a doubt is never left without a question.
    """
    view = transition.view
    asked = [*_candidates(transition, receipt)]
    shaped = contributors.people_of(view.run, marks, view.directory)
    for terms in asked:
        # The members of a Slack group are known only when somebody votes.
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
