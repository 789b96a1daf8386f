"""A delegate counts as the person for whom they decide, within the days of that one's record, and for nobody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from approvals.model import Approval, Choice, VoteChannel
from approvals.quorum import Counted, consider, counted_again
from approvals.tally import quorum_met
from core.identity import Contributor, Delegation, Directory, Entry, Role
from core.terms import POLICY_APPROVERS, GroupQuorum, GroupSource, Terms, Tier
from runtime.definition.people import load_directory
from runtime.requests.directory import NO_GROUPS, as_people, voter_of

pytestmark = pytest.mark.req("promise 12")
NOW = datetime(2026, 8, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LEADS, OWNERS = GroupQuorum("leads"), GroupQuorum("owners")


def delegation(to: str, begins: timedelta = -DAY, ends: timedelta = DAY) -> Delegation:
    return Delegation(to, NOW + begins, NOW + ends)


def people(**entries: dict[str, Any]) -> Directory:
    """Ann of the leads, and Bob, Cid and Tess, who are in no group; each may be another."""
    every: dict[str, dict[str, Any]] = {"ann": {"groups": frozenset({"leads"})}, "bob": {}, "cid": {}, "tess": {}}
    for name, facts in entries.items():
        every[name] = every.get(name, {}) | facts
    return Directory.of("d", [Entry(name, name.title(), **facts) for name, facts in every.items()])


def judged(
    asked: Approval, directory: Directory, who: str, choice: Choice = Choice.APPROVE, fresh: datetime | None = None
) -> tuple[str, Approval]:
    """The code of the answer, or for whom it counts; and the question with the vote."""
    found = as_people(asked, directory)
    voter = voter_of(who, directory.entry(who), NO_GROUPS, found, directory)
    answer = consider(found, voter, choice, "seen", at=NOW, channel=VoteChannel.HTTP, fresh=fresh)
    if not isinstance(answer, Counted):
        return str(answer.code), asked
    return answer.vote.name, replace(asked, votes=(*asked.votes, answer.vote))


AWAY = {"ann": {"delegate": delegation("bob")}}
BY_TESS = (Contributor(Role.REQUESTER, "tess", None),)


@pytest.mark.parametrize(
    ("entries", "who", "shaped", "code"),
    [
        (AWAY, "bob", "tess", "Bob for Ann"),
        ({}, "bob", "tess", "not_eligible"),
        (AWAY, "cid", "tess", "not_eligible"),
        ({"ann": {"delegate": delegation("bob", ends=timedelta(0))}}, "bob", "tess", "not_eligible"),
        ({"ann": {"delegate": delegation("bob", timedelta(seconds=1))}}, "bob", "tess", "not_eligible"),
        ({"ann": {"delegate": delegation("bob"), "active": False}}, "bob", "tess", "not_eligible"),
        ({"ann": {"delegate": delegation("bob"), "groups": frozenset[str]()}}, "bob", "tess", "not_eligible"),
        (AWAY | {"bob": {"active": False}}, "bob", "tess", "deactivated"),
        (AWAY | {"bob": {"owner": "cid"}}, "bob", "tess", "service_account"),
        (AWAY | {"bob": {"delegate": delegation("cid")}}, "cid", "tess", "not_eligible"),
        (AWAY, "bob", "bob", "separation_of_duties"),
        (AWAY, "bob", "ann", "not_eligible"),
        ({"ann": {"delegate": delegation("tess")}}, "tess", "tess", "separation_of_duties"),
        (AWAY | {"bob": {"groups": frozenset({"leads"})}}, "bob", "tess", "Bob"),
    ],
)  # fmt: skip
def test_who_decides_for_whom(approval: Approval, entries: Any, who: str, shaped: str, code: str) -> None:
    asked = replace(
        approval, terms=Terms(Tier.LOW, (LEADS,)), contributors=(Contributor(Role.REQUESTER, shaped, None),),
        expires_at=None, votes=(),
    )  # fmt: skip
    assert judged(asked, people(**entries), who)[0] == code


@pytest.mark.parametrize("group", [POLICY_APPROVERS, "S0LEADS"])
def test_some_groups_are_never_delegated(approval: Approval, group: str) -> None:
    source = GroupSource.SLACK_GROUP if group.startswith("S0") else GroupSource.GROUP
    terms = Terms(Tier.LOW, (GroupQuorum(group, source=source),))
    asked = replace(approval, terms=terms, contributors=BY_TESS, expires_at=None, votes=())
    directory = people(ann={"groups": frozenset({group}), "delegate": delegation("bob")})
    assert judged(asked, directory, "bob")[0] == "not_eligible"


def test_nobody_approves_for_somebody_what_asks_for_a_login_anew(approval: Approval) -> None:
    """An open browser of Ann's could name anybody, who would then log in anew as who they are."""
    terms = Terms(Tier.LOW, (LEADS,), step_up_seconds=300)
    asked = replace(approval, terms=terms, contributors=BY_TESS, expires_at=None, votes=())
    assert judged(asked, people(**AWAY), "bob", fresh=NOW)[0] == "not_eligible"
    assert judged(asked, people(**AWAY), "ann", fresh=NOW)[0] == "Ann"
    assert judged(asked, people(**AWAY), "bob", Choice.REJECT)[0] == "Bob for Ann", "to say no is always easy"


def test_a_vote_for_somebody_takes_the_seats_of_both(approval: Approval) -> None:
    terms = Terms(Tier.LOW, (LEADS, OWNERS), two_person=True)
    asked = replace(approval, terms=terms, contributors=BY_TESS, expires_at=None, votes=())
    directory = people(
        ann={"groups": frozenset({"leads", "owners"}), "delegate": delegation("bob")},
        cid={"groups": frozenset({"owners"}), "delegate": delegation("bob")},
    )
    said, by_bob = judged(asked, directory, "bob")
    assert said == "Bob for Ann"
    said, both = judged(by_bob, directory, "ann")
    assert (said, quorum_met(as_people(both, directory), Choice.APPROVE)) == ("Ann", False), "one seat for the two"
    assert judged(both, directory, "bob")[0] == "Bob for Cid", "nobody decides for somebody who has answered"
    again, once = judged(by_bob, directory, "bob")
    assert (again, once) == ("already_counted", by_bob)
    _, with_cid = judged(by_bob, directory, "cid")
    assert quorum_met(as_people(with_cid, directory), Choice.APPROVE), "another person fills the other seat"


@pytest.mark.parametrize(
    ("entries", "counts"),
    [
        (AWAY, True),
        ({"ann": {"delegate": delegation("bob", ends=timedelta(seconds=1))}}, True),
        ({"ann": {"delegate": delegation("cid")}}, False),
        ({"ann": {}}, False),
        ({"ann": {"delegate": delegation("bob"), "groups": frozenset[str]()}}, False),
        (AWAY | {"bob": {"active": False}}, False),
    ],
)
def test_a_vote_for_somebody_is_counted_again(approval: Approval, entries: Any, counts: bool) -> None:
    asked = replace(approval, terms=Terms(Tier.LOW, (LEADS,)), contributors=BY_TESS, expires_at=None, votes=())
    _, voted = judged(asked, people(**AWAY), "bob")
    assert bool([vote for vote in counted_again(voted.votes, people(**entries)) if vote.groups]) is counts


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("{to: bob, from: 2026-12-01, until: 2026-12-14}", None),
        ("{to: ann, from: 2026-12-01, until: 2026-12-14}", "would decide for themselves"),
        ("{to: eve, from: 2026-12-01, until: 2026-12-14}", "is not among the people"),
        ("{to: old, from: 2026-12-01, until: 2026-12-14}", "is not active"),
        ("{to: cid, from: 2026-12-01, until: 2026-12-14}", "has somebody else decide"),
        ("{to: cid, from: 2026-11-01, until: 2026-11-30}", None),
        ("{to: bob, from: 2026-12-14, until: 2026-12-01}", "ends before it begins"),
        ("{to: bob, from: 2026-02-30, until: 2026-12-01}", "no day 2026-02-30"),
    ],
)
def test_a_directory_has_no_cascade_and_no_cycle(record: str, problem: str | None) -> None:
    text = f"""
directory: d
people:
  - {{id: ann, name: Ann, time_zone: Europe/Berlin, delegate: {record}}}
  - {{id: bob, name: Bob}}
  - {{id: cid, name: Cid, delegate: {{to: bob, from: 2026-12-10, until: 2026-12-11}}}}
  - {{id: old, name: Old, active: false}}
"""
    if problem is not None:
        with pytest.raises(Exception, match=problem):
            load_directory(text, "d.yaml")
        return
    found = load_directory(text, "d.yaml").entries[0].delegate
    assert found is not None
    assert (found.begins.utcoffset(), found.begins.hour) == (timedelta(0), 23), "days are the person's own"
