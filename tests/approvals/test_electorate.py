"""People who could decide a question, counted before anybody is asked, and said in words. Pure."""

from __future__ import annotations

import pytest

from approvals.electorate import slack_groups, unanswerable
from core.identity import Contributor, Directory, Entry, Role
from core.terms import Escalation, GroupQuorum, GroupSource, Terms, Tier

pytestmark = pytest.mark.req("Q-3")

PEOPLE = Directory.of(
    "d1",
    [
        Entry("ann", "Ann", groups=frozenset({"leads", "owners"})),
        Entry("bob", "Bob", groups=frozenset({"leads"})),
        Entry("cat", "Cat", groups=frozenset({"leads"}), active=False),
    ],
)
ANN = (Contributor(Role.REQUESTER, "person:ann", "ann"),)
S0IT = GroupQuorum("S0IT", 1, GroupSource.SLACK_GROUP)


def terms(*groups: GroupQuorum, **more: object) -> Terms:
    return Terms(Tier.HIGH, groups, **more)


def said(of: Terms, shaped: tuple[Contributor, ...] = ()) -> str:
    found = unanswerable(of, shaped, PEOPLE, {})
    assert found is None or found.remedy
    return "" if found is None else found.message


def test_exactly_enough_people_are_enough() -> None:
    assert said(terms(GroupQuorum("leads", 2))) == ""
    assert said(terms(GroupQuorum("leads", 2), GroupQuorum("owners", 1))) == ""


def test_only_the_group_that_lacks_somebody_is_named() -> None:
    words = said(terms(GroupQuorum("leads", 2), GroupQuorum("owners", 2)))
    assert words == (
        "It asks for 2 of the group 'owners', which has 1 person in the directory, of whom 1 may decide this."
    )
    assert "'leads'" in said(terms(GroupQuorum("leads", 3), GroupQuorum("owners", 1)))


def test_who_shaped_it_is_not_counted_and_is_named() -> None:
    assert said(terms(GroupQuorum("leads", 1)), ANN) == ""
    words = said(terms(GroupQuorum("leads", 2)), ANN)
    assert "which has 2 people in the directory, of whom 1 may decide this." in words
    assert "Whoever shaped it does not decide it: Ann " in words
    assert said(terms(GroupQuorum("leads", 2), allow=(Role.REQUESTER,)), ANN) == ""


def test_an_escalation_is_a_way_too() -> None:
    escalate = Escalation(60, GroupQuorum("leads", 1))
    assert said(terms(GroupQuorum("nobody", 1), escalate=escalate)) == ""
    none = "It asks for 1 of the group 'nobody', which has nobody in the directory"
    assert said(terms(GroupQuorum("nobody", 1))) == f"{none}."
    unpublished = unanswerable(terms(GroupQuorum("nobody", 1)), (), Directory.of("", []), {})
    assert unpublished is not None
    assert unpublished.message == f"{none}, for none is published."


def test_two_people_take_a_seat_each() -> None:
    one = terms(GroupQuorum("owners", 1), two_person=True)
    assert said(one) == "It asks for 2 different people, a seat each, and 1 of its groups may decide this."
    assert said(terms(GroupQuorum("leads", 1), two_person=True)) == ""


def test_nobody_is_named_and_nobody_may() -> None:
    assert "name no approvers" in said(terms())


def test_who_is_in_a_slack_group_has_to_be_looked_up() -> None:
    escalated = terms(S0IT, GroupQuorum("leads", 1), escalate=Escalation(60, GroupQuorum("S0X", 1, S0IT.source)))
    assert [group.group for group in slack_groups(escalated)] == ["S0IT", "S0X"]
    assert slack_groups(terms(GroupQuorum("leads", 1))) == ()
    assert said(terms(S0IT)) == "It asks for 1 of the Slack group S0IT, whose members cannot be looked up."
