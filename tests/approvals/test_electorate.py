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


@pytest.mark.parametrize(("shaped", "named"), [(1, 1), (5, 5), (6, 5), (7, 5)])
def test_of_those_who_shaped_it_five_are_named(shaped: int, named: int) -> None:
    many = Directory.of("d", [Entry(f"p{n}", f"P{n}", groups=frozenset({"leads"})) for n in range(9)])
    did = [Contributor(Role.EDITOR, f"person:p{n}", f"p{n}") for n in range(shaped)]
    found = unanswerable(terms(GroupQuorum("leads", 9)), did, many, {})
    assert found is not None
    names = ", ".join(f"P{n} edited this" for n in range(named)) + (" and others" if shaped > 5 else "")
    assert found.message == (
        "It asks for 9 of the group 'leads', which has 9 people in the directory, "
        f"of whom {9 - shaped} may decide this. Whoever shaped it does not decide it: {names}."
    )
    assert found.remedy == (
        "Publish a directory with more people in the group, or let the policy or the workflow ask others."
    )


LINKED = Directory.of(
    "d1",
    [
        Entry("ann", "Ann", principals=frozenset({"slack:U1"})),
        Entry("bob", "Bob", principals=frozenset({"slack:T1/U2"})),
        Entry("cat", "Cat", principals=frozenset({"slack:U3"}), active=False),
        Entry("dan", "Dan"),
    ],
)


@pytest.mark.parametrize(
    ("of", "accounts", "words"),
    [
        (1, {"U1"}, ""),
        (2, {"U1", "T1/U2", "U9"}, ""),
        (2, {"U1", "U2"}, "which has 1 person in the directory, of whom 1 may decide this."),
        (1, {"U3", "U9"}, "which has nobody in the directory."),
        (3, {"U1", "T1/U2"}, "which has 2 people in the directory, of whom 2 may decide this."),
    ],
)
def test_of_a_slack_group_those_count_whom_the_directory_knows(of: int, accounts: set[str], words: str) -> None:
    group = GroupQuorum("S0IT", of, GroupSource.SLACK_GROUP)
    found = unanswerable(terms(group), (), LINKED, {group.key: frozenset(accounts)})
    assert ("" if found is None else found.message) == (
        words and f"It asks for {of} of the Slack group 'S0IT', {words}"
    )


def test_who_has_no_approvers_is_told_to_name_some() -> None:
    found = unanswerable(terms(), (), PEOPLE, {})
    assert found is not None
    assert (found.message, found.remedy) == (
        "Nobody may decide this: its terms name no approvers.",
        "Name some in the policy's rule.",
    )


def test_a_directory_without_anybody_is_published_all_the_same() -> None:
    """Send nobody to publish a directory where people are to be added to one."""
    found = unanswerable(terms(GroupQuorum("leads", 1)), (), Directory.of("d9", []), {})
    assert found is not None
    assert found.message == "It asks for 1 of the group 'leads', which has nobody in the directory."


def test_groups_of_one_name_and_two_sources_are_two_groups() -> None:
    """Only that of Slack has to be looked up, and only its members are Slack's."""
    ours, slack = GroupQuorum("leads", 1), GroupQuorum("leads", 1, GroupSource.SLACK_GROUP)
    for groups in ((ours, slack), (slack, ours)):
        assert slack_groups(terms(*groups)) == (slack,)
        escalate = Escalation(60, groups[1])
        assert slack_groups(terms(groups[0], escalate=escalate)) == (slack,)
    found = unanswerable(terms(ours, slack), (), PEOPLE, {ours.key: frozenset({"U1"}), slack.key: frozenset()})
    assert found is not None
    assert found.message == "It asks for 1 of the Slack group 'leads', which has nobody in the directory."


def test_who_shaped_it_is_named_for_the_groups_of_every_plan() -> None:
    """Ann is in none of the groups that are asked first, and bars those that are asked later."""
    escalate = Escalation(60, GroupQuorum("owners", 1), frozenset({"group:nobody"}))
    words = said(terms(GroupQuorum("nobody", 1), escalate=escalate), ANN)
    assert words == (
        "It asks for 1 of the group 'nobody', which has nobody in the directory. "
        "Whoever shaped it does not decide it: Ann requested this."
    )


def test_every_group_that_lacks_somebody_is_named() -> None:
    words = said(terms(GroupQuorum("nobody", 1), GroupQuorum("owners", 2), GroupQuorum("leads", 2)))
    assert words == (
        "It asks for 1 of the group 'nobody', which has nobody in the directory. "
        "It asks for 2 of the group 'owners', which has 1 person in the directory, of whom 1 may decide this."
    )


def test_of_two_people_each_takes_a_seat_of_every_group() -> None:
    """Three seats of two groups, and two people."""
    both = terms(GroupQuorum("leads", 2), GroupQuorum("owners", 1), two_person=True)
    assert said(both) == "It asks for 3 different people, a seat each, and 2 of its groups may decide this."
    assert said(terms(GroupQuorum("leads", 1), GroupQuorum("owners", 1), two_person=True)) == ""


def test_an_account_is_any_of_a_persons() -> None:
    """One of a person's accounts in the group is enough, whichever it is."""
    several = Directory.of(
        "d1", [Entry("ann", "Ann", principals=("slack:U1", "slack:T2/U2", "email:a@b.example", "slack:U3"))]
    )
    for account in ("U1", "T2/U2", "U3"):
        assert unanswerable(terms(S0IT), (), several, {S0IT.key: frozenset({account, "U9"})}) is None
    assert unanswerable(terms(S0IT), (), several, {S0IT.key: frozenset({"U2", "T1/U1"})}) is not None


def test_two_people_are_asked_for_by_what_is_asked_first() -> None:
    escalate = Escalation(60, GroupQuorum("leads", 2), frozenset({"group:other"}))
    words = said(terms(GroupQuorum("owners", 1), escalate=escalate, two_person=True))
    assert words == "It asks for 2 different people, a seat each, and 2 of its groups may decide this."
    assert (
        said(terms(GroupQuorum("owners", 1), escalate=Escalation(60, GroupQuorum("leads", 2)), two_person=True)) == ""
    )
