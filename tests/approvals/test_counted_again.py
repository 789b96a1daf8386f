"""Votes are counted again by the directory as it is now, and by what Slack had said of its groups."""

from __future__ import annotations

import pytest

from approvals.model import Choice, Vote, VoteChannel
from approvals.quorum import counted_again
from core.identity import Directory, Entry

OURS, SLACKS = "group:leads", "slack_group:S0LEADS"
VOTE = Vote("ann", "Ann", Choice.APPROVE, "", frozenset({OURS, SLACKS}), VoteChannel.SLACK, "", "")


@pytest.mark.parametrize(
    ("entry", "counts"),
    [
        (Entry("ann", "Ann", groups=frozenset({"leads", "others"})), {OURS, SLACKS}),
        (Entry("ann", "Ann", groups=frozenset({"others"})), {SLACKS}),
        (Entry("ann", "Ann", active=False, groups=frozenset({"leads"})), None),
        (Entry("ann", "Ann", owner="bob", groups=frozenset({"leads"})), None),
        (Entry("Ann", "Another", groups=frozenset({"leads"})), None),
    ],
)
def test_a_vote_counts_for_the_groups_that_its_voter_is_still_in(entry: Entry, counts: set[str] | None) -> None:
    again = counted_again([VOTE], Directory.of("d", [entry]))
    assert [set(vote.groups) for vote in again] == ([] if counts is None else [counts])
