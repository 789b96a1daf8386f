"""An account is a workspace and a user: what Slack signs for somebody elsewhere does nothing, and is told so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from app import refusals
from app.refusals import WINDOW_SECONDS, StrangerLog
from approvals.slack import workspace as workspaces
from approvals.slack.members import Clicker
from approvals.slack.workspace import KNOWN_SECONDS, Home, SlackWorkspace, StrangerCode
from core.terms import GroupQuorum, GroupSource
from evidence.chain import Actor, EventType
from runtime.requests import publishing
from sandbox.faults import Fault
from sandbox.slack import Slack, SlackConfig
from sandbox.slack_state import TEAM_ID
from sandbox.world import SandboxConfig, sandbox_world

HERE, ELSEWHERE = TEAM_ID, "T0ELSE"
ORGANISATION = "E0ORG"
OF_HERE = {"enterprise_id": ORGANISATION, "teams": [HERE]}
FOREIGN = "another Slack workspace"
NO_MEMBER = "Only full members"
AWAY = "Slack could not be asked"


class Office:
    """An installation, and the stand-in for Slack that it asks who people are."""

    def __init__(self, slack: Slack, installation: Any) -> None:
        self.slack, self.installation = slack, installation

    def mark(self, *flags: str, user: str = "U0ANA", team: str = HERE) -> None:
        self.slack.state.users[user] = replace(self.slack.state.users[user], flags=flags, team_id=team)

    async def refused(self, payload: dict[str, Any], words: str) -> None:
        """The payload does nothing, and whoever sent it is told why."""
        before = await self.installation.books.votes()
        answer = await self.installation.slack(payload)
        assert answer.status_code == 200
        notes = await self.installation.books.commands(kind="note")
        assert words in (answer.text or " ".join(note.payload["text"] for note in notes))
        assert await self.installation.books.votes() == before == []

    async def codes(self, kind: str = "approval.vote_refused") -> list[str]:
        return [event["data"]["code"] for event in await self.installation.tenant_events(kind)]


@pytest.fixture
async def office(settings: Any, serve: Any) -> AsyncIterator[Office]:
    secret = settings.slack_signing_secret.get_secret_value()
    config = SlackConfig(bot_token="xoxb-test", signing_secret=secret, ack_seconds=60.0)  # however busy the machine is
    async with sandbox_world(SandboxConfig(slack=config)) as world:
        installation = await serve(settings.model_copy(update={"slack_api_url": f"{world.slack.url}/api/"}))
        world.slack.people.url = f"{installation.url}/slack/events"
        await installation.publish()
        office = Office(world.slack, installation)
        await _people(office, "slack: U0ANA")
        yield office


async def _people(office: Office, account: str, *more: str) -> None:
    others = "".join(f"  - {{id: p{number}, name: P, {line}}}\n" for number, line in enumerate(more))
    text = f"directory: d\npeople:\n  - {{id: ana, name: Ana, {account}}}\n{others}groups: {{leads: [ana]}}\n"
    async with office.installation.app.faces.database.transaction("default") as connection:
        await publishing.publish_directory(connection, "default", text, "people.yaml", Actor("test", "tester"))


CLAIMS: list[dict[str, Any]] = [
    {"user": {"id": "U0ANA", "team_id": ELSEWHERE}},
    {"team": {"id": ELSEWHERE}},
    {"user": {"id": "U0ANA", "team_id": ELSEWHERE}, "team": {"id": ELSEWHERE}},
    {"user": {"id": "U0ANA"}, "team": {"id": ELSEWHERE}},
    {"enterprise": {"id": "E0ELSE"}},
    {"team": {"id": HERE, "enterprise_id": "E0ELSE"}},
    {"user": {"id": "U0ANA", "team_id": ELSEWHERE}, "team": None},
]


@pytest.mark.parametrize("claims", CLAIMS)
async def test_a_click_from_elsewhere_does_not_count(office: Office, claims: dict[str, Any]) -> None:
    run_id, approval_id, nonce = await office.installation.asked()
    await office.refused({**office.installation.click(approval_id, nonce, "U0ANA"), **claims}, FOREIGN)
    assert await office.codes() == ["foreign_workspace"]
    await office.installation.work()
    assert office.installation.outside.effects == []
    assert await office.installation.status(run_id) == "waiting_approval"


async def test_a_modal_from_elsewhere_does_not_count(office: Office) -> None:
    _, approval_id, nonce = await office.installation.asked()
    sent = office.installation.submission(approval_id, nonce, "reject", "because", "U0ANA")
    await office.refused({**sent, "team": {"id": ELSEWHERE}}, FOREIGN)
    assert await office.codes() == ["foreign_workspace"]


async def test_a_card_is_not_shown_elsewhere(office: Office) -> None:
    _, approval_id, nonce = await office.installation.asked()
    sent = office.installation.submission(approval_id, nonce, "approve", "", "U0ANA")
    sent["view"] |= {
        "callback_id": "counterseal.review",
        "private_metadata": json.dumps({"a": str(approval_id), "n": nonce}),
    }
    answer = await office.installation.slack({**sent, "team": {"id": ELSEWHERE}})
    assert FOREIGN in answer.text
    assert "4711" not in answer.text


@pytest.mark.parametrize(
    "flag", ["deleted", "is_bot", "is_restricted", "is_ultra_restricted", "is_stranger", "is_workflow_bot"]
)
async def test_guests_bots_and_leavers_do_not_count(office: Office, flag: str) -> None:
    _, approval_id, nonce = await office.installation.asked()
    office.mark(flag)
    await office.refused(office.installation.click(approval_id, nonce, "U0ANA"), NO_MEMBER)
    assert await office.codes() == ["no_member"]


async def test_hidden_values_are_shown_to_those_who_are_asked_alone(office: Office) -> None:
    """Also once somebody has voted."""
    await _people(office, "slack: U0ANA", "slack: U0BEN")
    _, approval_id, nonce = await office.installation.asked()
    await office.installation.slack(office.installation.click(approval_id, nonce, "U0ANA"))
    assert len(await office.installation.books.votes()) == 1
    shown = {}
    for user in ("U0ANA", "U0BEN"):
        sent = office.installation.submission(approval_id, nonce, "approve", "", user)
        sent["view"] |= {
            "callback_id": "counterseal.review",
            "private_metadata": json.dumps({"a": str(approval_id), "n": nonce}),
        }
        shown[user] = "4711" in (await office.installation.slack(sent)).text
    assert shown == {"U0ANA": True, "U0BEN": False}


async def test_groups_of_slack_hold_accounts_of_this_workspace_alone(office: Office) -> None:
    group = GroupQuorum("S0ITLEADS", source=GroupSource.SLACK_GROUP)
    asked = office.installation.app.faces.slack_groups("default")
    for team, groups in ((HERE, {group.key}), (ELSEWHERE, set())):
        found = await asked.membership(f"{team}/U0ANA", [group])
        assert (found.groups, found.unresolvable) == (groups, set())


async def test_an_account_that_slack_places_elsewhere_does_not_count(office: Office) -> None:
    """The payload may say what it likes: Slack's own answer is asked for."""
    _, approval_id, nonce = await office.installation.asked()
    office.mark(team=ELSEWHERE)
    await office.refused(office.installation.click(approval_id, nonce, "U0ANA"), FOREIGN)


async def test_an_account_that_slack_does_not_know_does_not_count(office: Office) -> None:
    _, approval_id, nonce = await office.installation.asked()
    await office.refused(office.installation.click(approval_id, nonce, "U0GONE"), NO_MEMBER)


@pytest.mark.parametrize("method", ["auth.test", "users.info"])
async def test_while_slack_is_away_nothing_counts_and_afterwards_it_does(office: Office, method: str) -> None:
    _, approval_id, nonce = await office.installation.asked()
    office.slack.faults.inject(Fault(method, status=500))
    click = office.installation.click(approval_id, nonce, "U0ANA")
    await office.refused(click, AWAY)
    assert await office.codes() == [], "that Slack is away is nobody's doing"
    assert (await office.installation.slack(click)).status_code == 200
    assert len(await office.installation.books.votes()) == 1


async def test_forms_of_tasks_are_for_members_too(office: Office) -> None:
    await office.installation.add(
        "workflow: asks\nversion: 1\nsteps:\n  - id: sign\n    task:\n      title: Sign\n      assign: {group: leads}\n"
        "      form: {type: object, properties: {owner: {type: string}}}\n"
    )
    run_id = await office.installation.parked("asks")
    task = str((await office.installation.books.wait(run=run_id)).id)
    sent = office.installation.submission(UUID(int=7), "n", "approve", "", "U0ANA")
    sent["view"] |= {"callback_id": "counterseal.task", "private_metadata": json.dumps({"t": task})}
    sent["view"]["state"] = {"values": {"owner": {"owner": {"type": "plain_text_input", "value": "x"}}}}
    await office.refused({**sent, "team": {"id": ELSEWHERE}}, FOREIGN)
    office.mark("is_restricted")
    await office.refused(sent, NO_MEMBER)
    assert await office.codes("task.refused") == ["foreign_workspace", "no_member"]
    assert await office.installation.status(run_id) == "waiting"


async def test_the_audit_names_the_account_and_is_not_flooded(office: Office) -> None:
    _, approval_id, nonce = await office.installation.asked()
    click = {**office.installation.click(approval_id, nonce, "U0ANA"), "team": {"id": ELSEWHERE}}
    for _ in range(10):
        assert (await office.installation.slack(click)).status_code == 200
    (event,) = await office.installation.tenant_events("approval.vote_refused")
    assert event["actor"] == {"kind": "slack_user", "id": f"{HERE}:U0ANA"}
    assert event["data"] == {
        "approval": str(approval_id),
        "channel": "slack",
        "code": "foreign_workspace",
        "count": 1,
    }


async def test_what_was_only_counted_is_in_the_next_line(office: Office) -> None:
    now = [0.0]
    log = StrangerLog(office.installation.app.faces.database, now=lambda: now[0])
    for number in range(5):
        now[0] = WINDOW_SECONDS if number == 4 else 0.0
        data = {"approval": "a", "code": "no_member"}
        await log.note("default", EventType.APPROVAL_VOTE_REFUSED, Actor("slack_user", "T:U"), data)
    counts = [event["data"]["count"] for event in await office.installation.tenant_events("approval.vote_refused")]
    assert counts == [1, 4]


@pytest.mark.parametrize(
    ("account", "counts"),
    [("slack: U0ANA", True), (f"slack: {HERE}/U0ANA", True), (f"slack: {ELSEWHERE}/U0ANA", False)],
)
async def test_the_directory_names_the_pair(office: Office, account: str, counts: bool) -> None:
    await _people(office, account)
    _, approval_id, nonce = await office.installation.asked()
    assert (await office.installation.slack(office.installation.click(approval_id, nonce, "U0ANA"))).status_code == 200
    assert len(await office.installation.books.votes()) == int(counts)
    assert await office.codes() == ([] if counts else ["unlinked"])


async def test_an_account_that_two_people_have_is_nobodys(office: Office) -> None:
    await _people(office, "slack: U0ANA", f"slack: {HERE}/U0ANA")
    _, approval_id, nonce = await office.installation.asked()
    await office.installation.slack(office.installation.click(approval_id, nonce, "U0ANA"))
    assert await office.installation.books.votes() == []


def client_of(office: Office) -> AsyncWebClient:
    return AsyncWebClient("xoxb-test", base_url=f"{office.slack.url}/api/", retry_handlers=[])


class TestOrganisations:
    """Enterprise Grid: the app is installed in one workspace of an organisation, or in all of it."""

    @staticmethod
    def of(office: Office, *, org_wide: bool) -> SlackWorkspace:
        office.slack.state.enterprise_id, office.slack.state.org_wide = ORGANISATION, org_wide
        return SlackWorkspace(client_of(office))

    @pytest.mark.parametrize(
        ("org_wide", "teams", "enterprises", "found"),
        [
            (False, {HERE}, {ORGANISATION}, None),
            (False, {HERE}, set(), None),
            (False, {ELSEWHERE}, {ORGANISATION}, StrangerCode.FOREIGN),
            (False, {HERE}, {"E0ELSE"}, StrangerCode.FOREIGN),
            (True, {HERE}, {ORGANISATION}, None),
            (True, {ELSEWHERE}, {ORGANISATION}, None),
            (True, set(), {ORGANISATION}, None),
            (True, {HERE}, set(), StrangerCode.FOREIGN),
            (True, {HERE}, {"E0ELSE"}, StrangerCode.FOREIGN),
            (True, {HERE}, {ORGANISATION, "E0ELSE"}, StrangerCode.FOREIGN),
        ],
    )
    async def test_claims(
        self, office: Office, org_wide: bool, teams: set[str], enterprises: set[str], found: StrangerCode | None
    ) -> None:
        workspace = self.of(office, org_wide=org_wide)
        clicker = Clicker(HERE, "U0ANA", frozenset(teams), frozenset(enterprises))
        assert await workspace.stranger(clicker) is found

    @pytest.mark.parametrize(
        ("home", "account", "held"),
        [
            (Home(HERE, "", False), {"team_id": HERE}, True),
            (Home(HERE, "", False), {"team_id": ELSEWHERE}, False),
            (Home(HERE, "", False), {"enterprise_user": {"enterprise_id": "", "teams": [HERE]}}, False),
            (Home(HERE, ORGANISATION, False), {"team_id": ORGANISATION, "enterprise_user": OF_HERE}, True),
            (Home(HERE, ORGANISATION, False), {"enterprise_user": {**OF_HERE, "teams": [ELSEWHERE]}}, False),
            (Home(HERE, ORGANISATION, False), {"enterprise_user": {**OF_HERE, "enterprise_id": "E0ELSE"}}, False),
            (Home("", ORGANISATION, True), {"enterprise_user": {"enterprise_id": ORGANISATION}}, True),
            (Home("", ORGANISATION, True), {"enterprise_user": {"enterprise_id": "E0ELSE"}}, False),
            (Home("", ORGANISATION, True), {"team_id": ""}, False),
        ],
    )
    def test_an_account_is_of_here_by_its_team_or_its_organisation(
        self, home: Home, account: dict[str, Any], held: bool
    ) -> None:
        assert home.holds(account) is held

    async def test_an_account_without_the_organisation_is_foreign(self, office: Office) -> None:
        workspace = self.of(office, org_wide=True)
        office.mark("is_stranger")
        clicker = Clicker(HERE, "U0ANA", frozenset({HERE}), frozenset({ORGANISATION}))
        assert await workspace.stranger(clicker) is StrangerCode.NO_MEMBER

    async def test_a_person_of_the_organisation_votes(self, office: Office) -> None:
        office.slack.state.enterprise_id, office.slack.state.org_wide = ORGANISATION, True
        await _people(office, f"slack: {ORGANISATION}/U0ANA")
        _, approval_id, nonce = await office.installation.asked()
        click = office.installation.click(approval_id, nonce, "U0ANA")
        click |= {"team": None, "enterprise": {"id": ORGANISATION}, "is_enterprise_install": True}
        assert (await office.installation.slack(click)).status_code == 200
        assert len(await office.installation.books.votes()) == 1


async def test_what_is_known_of_an_account_is_soon_asked_again(office: Office) -> None:
    now = [0.0]
    workspace = SlackWorkspace(client_of(office), now=lambda: now[0])
    clicker = Clicker(HERE, "U0ANA", frozenset({HERE}))
    assert await workspace.stranger(clicker) is None
    office.mark("deleted")
    assert await workspace.stranger(clicker) is None
    now[0] = KNOWN_SECONDS
    assert await workspace.stranger(clicker) is StrangerCode.NO_MEMBER


async def test_of_many_accounts_the_one_asked_about_longest_ago_is_forgotten(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "KNOWN_MAX", 2)
    workspace = SlackWorkspace(client_of(office), now=lambda: 0.0)

    async def stranger(user: str) -> StrangerCode | None:
        return await workspace.stranger(Clicker(HERE, user, frozenset({HERE})))

    ana, *others = ("U0ANA", *[user for user in office.slack.state.users if user.startswith("U0") and user != "U0ANA"])
    for user in (ana, *others[:2]):
        assert await stranger(user) is None
    for user in (ana, *others[:2]):
        office.mark("deleted", user=user)
    assert [await stranger(user) for user in others[:2]] == [None, None], "these are still known"
    assert await stranger(ana) is StrangerCode.NO_MEMBER


@pytest.mark.parametrize("count", [1, 2])
async def test_of_many_strangers_the_one_refused_longest_ago_is_forgotten(
    office: Office, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(refusals, "STRANGERS_MAX", 2)
    strangers = StrangerLog(office.installation.app.faces.database, now=lambda: 0.0)

    async def note(user: str) -> None:
        data = {"code": "foreign_workspace", "approval": str(UUID(int=1))}
        await strangers.note("default", EventType.APPROVAL_VOTE_REFUSED, Actor("slack_user", user), {**data})

    for user in ("a", "b", "c"):
        await note(user)
    for user in ("c", "b")[:count]:
        await note(user)
    assert len(await office.codes()) == 3, "their windows are open"
    await note("a")
    assert len(await office.codes()) == 4


async def test_the_pin_stays_when_the_answer_changes(office: Office) -> None:
    workspace = SlackWorkspace(client_of(office))
    home = await workspace.home()
    office.slack.state.team_id = ELSEWHERE
    assert await workspace.home() is home
    assert home is not None
    assert home.id == HERE
