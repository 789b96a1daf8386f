"""People by the names that the faces give them: accounts of Slack, machines with an owner, groups of one name."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from approvals.ports import Membership
from core.identity import Directory, Entry
from core.terms import GroupQuorum, GroupSource
from evidence.chain import Actor
from runtime.definition.reserved import POLICY_APPROVERS
from runtime.requests import directory, twofold
from runtime.requests.directory import NO_GROUPS, DatabaseDirectory
from tests.support.recorded import Connected, Recorded

pytestmark = pytest.mark.req("P-12")

ANN = Entry("ann", "Ann", groups=frozenset({"leads"}), principals=("slack:T1/U1", "slack:U4"))
BOB = Entry("bob", "Bob", principals=("slack:U1", "slack:T1/U2"))
BOT = Entry("bot", "The bot", groups=frozenset({"bots"}), principals=("slack:T1/U3",), owner="ann")
OLD = Entry("old", "Old", active=False, groups=frozenset({"leads"}), principals=("slack:U5",))
PEOPLE = Directory.of("d", [ANN, BOB, BOT, OLD])
OF_US, OF_SLACK = GroupQuorum("leads"), GroupQuorum("leads", 1, GroupSource.SLACK_GROUP)


class Slack:
    """Slack, in which everybody is in every group that is asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    async def membership(self, account: str, wanted: Collection[GroupQuorum]) -> Membership:
        self.asked.append((account, [group.key for group in wanted]))
        return Membership(frozenset(group.key for group in wanted), frozenset())


def now(monkeypatch: pytest.MonkeyPatch, slack: Any = None) -> DatabaseDirectory:
    """The directory of a tenant whose people were published."""
    asked = Recorded(monkeypatch)
    asked.put(directory.tenants, directory_digest="digest")
    definitions: Any = SimpleNamespace(directory=asked.verb("directory", PEOPLE))
    database: Any = Connected()
    return DatabaseDirectory(database, definitions, "acme", slack)


@pytest.mark.parametrize(
    ("team", "user", "person"),
    [
        ("T1", "U2", ("bob", "Bob")),
        ("T1", "U4", ("ann", "Ann")),
        ("T1", "U5", ("old", "Old")),
        ("T1", "U3", ("bot", "The bot")),
        ("T1", "U1", None),
        ("T2", "U1", ("bob", "Bob")),
        ("T2", "U2", None),
        ("T1", "U6", None),
    ],
)
async def test_an_account_is_of_the_one_entry_that_names_it(
    monkeypatch: pytest.MonkeyPatch, team: str, user: str, person: tuple[str, str] | None
) -> None:
    """A machine's account is the machine's. One that two entries name, with the team and without, is nobody's."""
    found = await now(monkeypatch).person_of_slack_user(team, user)
    assert (found and (found.id, found.name)) == person


async def test_a_group_of_slack_is_none_of_ours_though_it_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    both = frozenset({OF_US.key, OF_SLACK.key})
    slack = Slack()
    people = now(monkeypatch, slack)
    assert await people.membership("ann", [OF_US, OF_SLACK]) == Membership(both, frozenset())
    assert slack.asked == [("T1/U1", [OF_SLACK.key]), ("U4", [OF_SLACK.key])]
    alone = now(monkeypatch)
    assert await alone.membership("ann", [OF_US, OF_SLACK]) == Membership(
        frozenset({OF_US.key}), frozenset({OF_SLACK.key})
    )
    assert await alone.membership("ann", [OF_SLACK]) == Membership(frozenset(), frozenset({OF_SLACK.key}))
    assert await alone.membership("ann", [OF_US]) == Membership(frozenset({OF_US.key}), frozenset())
    assert await alone.membership("ann", []) == NO_GROUPS


@pytest.mark.parametrize(
    ("before", "first", "proposed"),
    [
        ({"dan", "bob"}, "bob", False),
        ({"dan"}, "dan", False),
        ({"ann", "dan"}, "dan", False),
        ({"ann"}, None, False),
        ({"old", "eve"}, None, True),
        (set(), None, True),
    ],
)
async def test_another_of_the_group_has_proposed_it_before(
    monkeypatch: pytest.MonkeyPatch, before: set[str], first: str | None, proposed: bool
) -> None:
    """Take somebody who is in the group today, the first by name. Who proposes it again is not noted again."""
    group = frozenset({POLICY_APPROVERS})
    people = [Entry(name, name, active=name != "old", groups=group) for name in ("old", "dan", "bob", "ann")]
    asked = Recorded(monkeypatch)
    asked.put(twofold.tenants, directory=Directory.of("d", [*people, Entry("eve", "Eve")]))
    asked.put(twofold.documents, proposers=before)
    asked.put(twofold.audit, record=None)
    here: Any = "transaction"
    ends: Any = ("proposed", "published", "retired")
    told = await twofold.first_of_two(here, "acme", ends, {"digest": "d", "name": "n"}, Actor("person", "ann"))
    noted = "audit.record(transaction, acme, proposed, {'kind': 'person', 'id': 'ann'}, "
    assert (told, asked.calls[2:3]) == (
        first,
        ["documents.proposers(transaction, acme, proposed, ['published', 'retired'], d)"],
    )
    assert asked.calls[3:] == ([f"{noted}{{'by': 'ann', 'digest': 'd', 'name': 'n'}})"] if proposed else [])
