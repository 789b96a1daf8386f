"""Checks of clickers: only members of the workspace (or organisation) in which the app is installed count.

Slack also signs clicks from other workspaces: a channel shared by Slack Connect has strangers in it, and a guest is no
member. So ``auth.test`` pins the home, and ``users.info`` looks up each account before it may do anything. An account
that cannot be looked up is refused. Members of user groups are looked up at the moment of a vote.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from slack_sdk.web.async_client import AsyncWebClient

from approvals.ports import Membership, NotPosted, PostInDoubt, PostRefused
from approvals.slack.calls import call
from approvals.slack.members import Clicker
from core.terms import GroupQuorum, GroupSource

_log = logging.getLogger("counterseal.slack")

# Seconds for which an answer about an account is cached. A person who is deactivated still counts for this long.
KNOWN_SECONDS = 30.0
KNOWN_MAX = 1000
_NO_MEMBER = ("deleted", "is_bot", "is_workflow_bot", "is_connector_bot", "is_restricted", "is_ultra_restricted")


class StrangerCode(StrEnum):
    """The reason why an account has no rights here."""

    UNLINKED = "unlinked"
    UNAVAILABLE = "slack_unavailable"
    FOREIGN = "foreign_workspace"
    NO_MEMBER = "no_member"


SENTENCES: Mapping[StrangerCode, str] = {
    StrangerCode.UNAVAILABLE: "Slack could not be asked who you are, so nothing was counted. Please try again.",
    StrangerCode.FOREIGN: "You are in another Slack workspace than this app, so nothing was counted. "
    "Ask a member of its own workspace.",
    StrangerCode.NO_MEMBER: "Only full members of this Slack workspace can do this; guests, connected people, bots and "
    "deactivated accounts cannot. Nothing was counted.",
}


class Home(Struct, frozen=True):
    """The workspace where the app is installed, or the organisation (``org_wide``), which has no team of its own."""

    team: str
    enterprise: str
    org_wide: bool
    url: str = ""

    @property
    def id(self) -> str:
        """The id that, together with a user id, identifies an account: the team's, or the organisation's."""
        return self.enterprise if self.org_wide else self.team

    def claims(self, clicker: Clicker) -> bool:
        """True if every team and enterprise that the payload names is this home."""
        enterprises = clicker.enterprises <= {self.enterprise}
        if self.org_wide:
            return enterprises and bool(clicker.enterprises)
        return enterprises and clicker.teams == {self.team}

    def holds(self, user: Mapping[str, Any]) -> bool:
        """True if Slack's own answer about an account says that it belongs to this home."""
        match user.get("enterprise_user"):
            case {"enterprise_id": enterprise, **more} if self.enterprise and enterprise == self.enterprise:
                teams = more.get("teams")
                if self.org_wide or (isinstance(teams, list) and self.team in teams):
                    return True
        return not self.org_wide and user.get("team_id") == self.team


class SlackWorkspace:
    """Caches the home for good and accounts for a short time. One per process. ``now`` is monotonic."""

    def __init__(
        self, client: AsyncWebClient, *, timeout_seconds: float = 1.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._home: Home | None = None
        self._known: OrderedDict[str, tuple[float, StrangerCode | None]] = OrderedDict()

    async def home(self) -> Home | None:
        """The home of the app; None while Slack is unavailable. The first answer is kept."""
        if self._home is None:
            answer = await call(self._client.auth_test(), timeout_seconds=self._timeout_seconds)
            found = _home(answer) if isinstance(answer, dict) else None
            if found is None:
                reason = "the answer names no team" if isinstance(answer, dict) else answer.message
                _log.warning("Slack does not say where the app is installed, so clicks are refused: %s", reason)
                return None
            # Concurrent clicks may both set it, to the same value.
            self._home = found
            _log.info("accepting clicks of members of %s", found.id)
        return self._home

    async def stranger(self, clicker: Clicker) -> StrangerCode | None:
        """The reason why the account has no rights here; None for a full member."""
        home = await self.home()
        if home is None:
            return StrangerCode.UNAVAILABLE
        if not home.claims(clicker):
            return StrangerCode.FOREIGN
        known = self._known.get(clicker.user)
        if known is not None and self._now() - known[0] < KNOWN_SECONDS:
            return known[1]
        found = await self._look_up(home, clicker.user)
        if found is not StrangerCode.UNAVAILABLE:
            self._known[clicker.user] = (self._now(), found)
            self._known.move_to_end(clicker.user)
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return found

    async def _look_up(self, home: Home, user: str) -> StrangerCode | None:
        answer = await call(self._client.users_info(user=user), timeout_seconds=self._timeout_seconds)
        if not isinstance(answer, dict):
            code = getattr(answer, "code", "")
            if code in ("user_not_found", "user_not_visible", "users_not_found"):
                return StrangerCode.NO_MEMBER
            _log.warning("Slack cannot be asked about an account, so its clicks are refused: %s", answer.message)
            return StrangerCode.UNAVAILABLE
        about = answer.get("user")
        if not isinstance(about, dict) or about.get("id") != user:
            return StrangerCode.UNAVAILABLE
        # Any mark that is present and not false counts as set.
        if any(about.get(mark) not in (None, False) for mark in (*_NO_MEMBER, "is_stranger")):
            return StrangerCode.NO_MEMBER
        return None if home.holds(about) else StrangerCode.FOREIGN


def _home(answer: Mapping[str, Any]) -> Home | None:
    team, enterprise = answer.get("team_id") or "", answer.get("enterprise_id") or ""
    org_wide = answer.get("is_enterprise_install") is True
    if not isinstance(team, str) or not isinstance(enterprise, str) or not (enterprise if org_wide else team):
        return None
    url = answer.get("url")
    return Home(team, enterprise, org_wide, url if isinstance(url, str) else "")


class SlackUserGroups:
    """Looks up members of user groups; needs the scope ``usergroups:read``. Caches nothing: withdrawals hold at once.

    Any failure (Slack slow or down, group gone or disabled, rate limit) makes the group unresolvable, so that
    it allows nobody. ``timeout_seconds`` is short because a click is waiting.
    """

    def __init__(
        self, client: AsyncWebClient, workspace: SlackWorkspace | None = None, *, timeout_seconds: float = 1.5
    ) -> None:
        self._client = client
        self._workspace = workspace
        self._timeout_seconds = timeout_seconds

    async def membership(self, user: str, wanted: Collection[GroupQuorum]) -> Membership:
        """The ``wanted`` Slack groups that ``user`` is in; groups of the directory are left out.

        ``user`` is a Slack user id, or ``team/user``: a user of another team is in none of this home's groups.
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

    async def members(self, wanted: Collection[GroupQuorum]) -> Mapping[str, frozenset[str]] | None:
        """The accounts in each Slack group that Slack knows, each as ``user`` and ``team/user``."""
        groups = {group.key: group.group for group in wanted if group.source is GroupSource.SLACK_GROUP}
        found = dict(zip(groups, await asyncio.gather(*map(self._users, groups.values())), strict=True))
        if any(isinstance(answer, NotPosted | PostInDoubt) for answer in found.values()):
            return None
        home = await self._workspace.home() if self._workspace is not None else None
        teams = [f"{home.id}/"] if home is not None else []
        members = {key: users for key, users in found.items() if isinstance(users, frozenset)}
        return {key: users | {f"{team}{user}" for user in users for team in teams} for key, users in members.items()}

    async def _members(self, group: str) -> frozenset[str] | None:
        users = await self._users(group)
        return users if isinstance(users, frozenset) else None

    async def _users(self, group: str) -> frozenset[str] | NotPosted | PostInDoubt | PostRefused:
        """The users in a group, or a failure: Slack is unavailable, or it refuses."""
        request = self._client.usergroups_users_list(usergroup=group, include_disabled=False)
        answer = await call(request, timeout_seconds=self._timeout_seconds)
        if not isinstance(answer, dict):
            return answer
        users = answer.get("users")
        if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
            return PostRefused("unreadable", f"Slack's answer about the group {group} names no users.")
        return frozenset(users)
