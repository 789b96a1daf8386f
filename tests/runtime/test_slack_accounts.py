"""One person with several Slack accounts: what one account cannot tell, another may."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from approvals.ports import Membership
from core.identity import Entry
from core.terms import GroupQuorum, GroupSource
from runtime.requests.directory import DatabaseDirectory

LEADS = GroupQuorum("S0LEADS", 1, GroupSource.SLACK_GROUP)
OTHERS = GroupQuorum("S0OTHERS", 1, GroupSource.SLACK_GROUP)


class Slack:
    """Knows one account as a member of the leads, and cannot look anything up for the other one."""

    async def membership(self, user: str, wanted: Collection[GroupQuorum]) -> Membership:
        every = frozenset(group.key for group in wanted)
        return Membership(every & {LEADS.key}, frozenset()) if user == "T1/U1" else Membership(frozenset(), every)

    async def members(self, wanted: Collection[GroupQuorum]) -> Mapping[str, frozenset[str]] | None:
        return {}


@pytest.mark.req("P-12")
async def test_a_group_that_one_account_is_in_is_resolved_whatever_the_other_says(runtime: Any) -> None:
    ana = Entry("ana", "Ana", principals=("slack:T1/U1", "slack:T1/U2"))
    directory = DatabaseDirectory(runtime.faces, runtime.definitions, "acme", Slack())
    found = await directory.slack_membership(ana, [LEADS, OTHERS])
    assert (found.groups, found.unresolvable) == ({LEADS.key}, {OTHERS.key})
