"""Members of Slack user groups, looked up at the moment of a vote."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from slack_sdk.web.async_client import AsyncWebClient

from approvals.model import GroupQuorum, GroupSource
from approvals.ports import Membership
from approvals.slack.calls import call
from approvals.slack.workspace import SlackWorkspace


class SlackUserGroups:
    """Needs the scope ``usergroups:read``. Nothing is cached: a right that was withdrawn is gone at once.

    Whatever goes wrong (Slack slow or down, group gone or disabled, rate limit) makes the group unresolvable, so that
    it allows nobody. ``timeout_seconds`` is short because a click is waiting.
    """

    def __init__(
        self, client: AsyncWebClient, workspace: SlackWorkspace | None = None, *, timeout_seconds: float = 1.5
    ) -> None:
        self._client = client
        self._workspace = workspace
        self._timeout_seconds = timeout_seconds

    async def membership(self, user: str, wanted: Collection[GroupQuorum]) -> Membership:
        """Tell which of the ``wanted`` Slack groups ``user`` is in; groups of ours are left out.

        ``user`` is a Slack user id, or ``team/user``: whoever is of another team is in none of this one's groups.
        """
        groups = {group.key: group.group for group in wanted if group.source is GroupSource.SLACK_GROUP}
        team, _, user = user.rpartition("/")
        if team:
            home = await self._workspace.home() if self._workspace is not None else None
            if home is None:
                return Membership(frozenset(), frozenset(groups))
            if team != home.id:
                return Membership(frozenset(), frozenset())
        found = await asyncio.gather(*(self._members(group) for group in groups.values()))
        members = dict(zip(groups, found, strict=True))
        return Membership(
            frozenset(key for key, users in members.items() if users is not None and user in users),
            frozenset(key for key, users in members.items() if users is None),
        )

    async def _members(self, group: str) -> frozenset[str] | None:
        request = self._client.usergroups_users_list(usergroup=group, include_disabled=False)
        answer = await call(request, timeout_seconds=self._timeout_seconds)
        users = answer.get("users") if isinstance(answer, dict) else None
        if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
            return None
        return frozenset(users)
