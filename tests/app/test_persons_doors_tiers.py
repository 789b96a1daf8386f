"""Persons x doors x tiers: who may not decide is refused with the reason at every door, and audited (promise 12).

A row is one case: how the question came about, what happened since, who votes, and what each door answers. Whoever
shaped the action in another way than by requesting it is a further row, with another ``opens``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from app.access import Role
from app.cli.outcome import Exit
from app.slack import Interactions
from app.slack_desk import Desk
from approvals.lists import mark_of
from approvals.slack.members import Clicker
from connectors.port import Done
from connectors.records.connector import RecordsConnector
from evidence.chain import Actor
from runtime.requests import policies, publishing
from runtime.store import records
from sandbox.faults import Fault
from sandbox.slack_state import TEAM_ID
from tests.support.browsing import Browser
from tests.support.people import deactivate, leave_group, remove_person

SYS_ID = "46d44a23a9fe19810012d100cca80666"
PEOPLE = f"""
directory: tests
version: 2
people:
  - {{id: ann, name: Ann, slack: [U0ANN, U0WHO], email: Ann@Example.com, servicenow: [ann.lee, {SYS_ID}, us], os: al}}
  - {{id: bob, name: Bob, slack: U0BOB, os: us}}
  - {{id: tess, name: Tess, manager: bob}}
  - {{id: dora, name: Dora}}
  - {{id: gina, name: Gina}}
  - {{id: fred, name: Fred, delegate: {{to: ann, from: 2020-01-01, until: 2090-01-01}}}}
service_accounts:
  - {{id: robot, owner: ann, servicenow: svc.robot, slack: U0EVE}}
groups: {{leads: [ann, bob, dora], seconds: [fred, gina], thirds: [dora, gina]}}
"""
WORKFLOW = """
workflow: asking
version: 2
reference: ${{ trigger.number }}
triggers: {servicenow: {table: problem, dedupe: "${{ trigger.number }}"}}
steps:
  - {id: danger, do: probe.danger.apply, with: {name: "${{ trigger.tier }}"}}
"""
# Runs to which somebody else says something before they ask.
DANGER = """{id: danger, do: probe.danger.apply, with: {name: "${{ trigger.tier }}"}}"""
SAID = f"""
  - if: ${{{{ steps.said.output.x == 'y' }}}}
    then: [{DANGER}]
"""
HEAD = "version: 2\nreference: ${{ trigger.number }}\nsteps:\n"
FORM = "{type: object, properties: {x: {type: string}}}"
KEPT = "  - {id: kept, do: records.put, with: {collection: c, key: k, value: {tier: '${{ trigger.tier }}'}}}\n"
OTHERS = (
    f"workflow: filled\n{HEAD}  - {{id: said, task: {{title: T, form: {FORM}, assign: {{group: leads}}}}}}{SAID}",
    f"workflow: heard\n{HEAD}  - {{id: said, wait: {{signal: said, correlate: '${{{{ trigger.number }}}}'}}}}{SAID}",
    f"workflow: grown\n{HEAD}  - {{id: said, wait: {{signal: never, correlate: '${{{{ trigger.number }}}}'}}}}\n",
    f"workflow: keeps\n{HEAD}{KEPT}",
    f"workflow: reads\n{HEAD}  - {{id: got, do: records.get, with: {{collection: c, key: k}}}}\n"
    + DANGER.join(("  - ", "\n")).replace("trigger.tier", "steps.got.output.value.tier"),
    f"workflow: files\n{HEAD}  - {{id: filed, do: probe.ticket.file, with: {{name: '${{{{ trigger.tier }}}}'}}}}\n",
    f"workflow: refiles\n{HEAD}  - {{id: got, do: probe.ticket.file, with: {{name: '${{{{ trigger.tier }}}}'}}}}\n"
    + DANGER.join(("  - ", "\n")).replace("trigger.tier", "steps.got.output.name"),
    f"workflow: looks\n{HEAD}  - {{id: got, do: probe.value.read, with: {{name: '${{{{ trigger.tier }}}}'}}}}\n"
    + DANGER.join(("  - ", "\n")).replace("trigger.tier", "steps.got.output.name"),
)
# Runs about somebody: by the workflow, by the run above, by the operation.
ABOUT, GIVEN = "subject: ${{ trigger.whom }}\n", "number: '${{ trigger.number }}', tier: '${{ trigger.tier }}'"
PERSON = "{id: danger, do: probe.danger.person, with: {name: '${{ trigger.tier }}', who: '${{ trigger.whom }}'}}"
HAND = "{id: danger, do: probe.danger.hand, with: {name: x, fields: {name: '${{ trigger.tier }}', owner: cy}}}"
ABOUTS = (
    f"workflow: hands\n{HEAD}  - {HAND}\n",
    f"workflow: about\n{ABOUT}{HEAD}  - {DANGER}\n",
    f"workflow: above\n{ABOUT}{HEAD}  - {{id: within, run: asking, with: {{{GIVEN}}}}}\n",
    f"workflow: person\n{HEAD}  - {PERSON}\n",
)
ALLOWED = "".join(
    f"\n  - {{id: {name}, match: {{{match}}}, outcome: allow}}"
    for name, match in (
        ("records", "connector: records"),
        ("files", "operation: probe.ticket.file"),
        ("looks", "operation: probe.value.read"),
    )
)
TESTER = Actor("test", "tester")
TIERS = ("low", "medium", "high")
DOORS = ("slack", "http", "cli", "console")
RULE = """
  - id: {tier}
    match: {{operation: probe.danger.*}}
    when: action.fields.name == '{tier}'
    outcome: needs_approval
    tier: {tier}
    approvers: [{approvers}]
    expires: PT1H
"""
# Asked besides: somebody whom the record names, or the requester's manager, so that the wider group is there, too.
FIELD = "{person: '${{ action.before.owner }}'}, {group: leads, of: 1}"
MANAGER = "{manager_of: requester}"
SECONDS, THIRDS = "{group: seconds, of: 1}", "{group: thirds, of: 1}"
OURS, SLACKS, TWO = "{group: leads, of: 1}", "{slack_group: S0LEADS, of: 1}", "{group: leads, of: 2}"


@dataclass
class Table:
    """One installation at its three doors."""

    installation: Any
    command: Any
    slack_world: Any
    environment: pytest.MonkeyPatch
    tokens: dict[str, str] = field(default_factory=dict)
    browsers: dict[str, Any] = field(default_factory=dict)
    numbers: Any = field(default_factory=itertools.count)
    asked: Any = None

    async def publish(self, approvers: str) -> None:
        faces, tester = self.installation.app.faces, TESTER
        reader = RecordsConnector(partial(records.read, self.installation.engine))
        self.installation.app.outsides.given.connectors["records"] = reader
        await self.people()  # a policy names groups of it
        rules = "".join(RULE.format(tier=tier, approvers=approvers) for tier in TIERS)
        async with faces.database.transaction("default") as connection:
            policy = f"policy: tests\nversion: 2\nrules:{ALLOWED}{rules}"
            await policies.publish_policy(connection, faces.definitions, "default", policy, "policy", tester)
            for text in (WORKFLOW, *OTHERS, *ABOUTS):
                await publishing.publish_workflow(connection, faces.definitions, "default", text, "w", tester)
        await self.people()
        for person in ("ann", "bob", "tess"):
            roles = (Role.APPROVER, Role.TRIGGER, Role.OPERATOR)
            self.tokens[person] = await self.installation.token(*roles, subject=person)
        self.tokens["robot"] = await self.installation.token(Role.TRIGGER, Role.OPERATOR, subject="robot")
        self.tokens["zoe"] = await self.installation.token(Role.APPROVER, subject="zoe", tenant="other")
        for person in ("ann", "zoe"):
            self.browsers[person] = await Browser.logged_in(self.installation, self.tokens[person])

    async def people(self) -> None:
        async with self.installation.app.faces.database.transaction("default") as connection:
            await publishing.publish_directory(connection, "default", PEOPLE, "people", TESTER)

    async def http(self, person: str, path: str, body: Any, **headers: str) -> Any:
        client = await self.installation.client()
        bearer = {"Authorization": f"Bearer {self.tokens[person]}"}
        return await client.post(path, json=body, headers=bearer | headers)

    async def open(
        self, tier: str, start: Callable[[dict[str, str]], Awaitable[Any]], then: Said | None = None
    ) -> None:
        """A question of this tier, by a run that was started so, and to which something was said."""
        number = f"INC{next(self.numbers)}"
        started = await start({"number": number, "tier": tier})
        assert started.status_code in (201, 202), started.text
        run = started.json().get("run_id") or started.json()["runs"][0]["run_id"]
        await self.installation.work()
        if then is not None:
            said = await then(self, UUID(run), number)
            assert said.is_success, said.text
            await self.installation.work()
        self.asked = await self.question(UUID(run))

    async def desk(self) -> Desk:
        """The service behind the app's Home."""
        faces = self.installation.app.faces
        chat = (await faces.outside("default")).chat
        return Desk(faces, Interactions(faces, "default", chat.workspace))

    async def question(self, run: UUID) -> Any:
        """The open question of this run, or of the one within it."""
        every = await self.installation.books.approvals(open=True)
        own = [one for one in every if one.run == run]
        return own[0] if own else every[-1]

    async def vote(self, door: str, row: Row) -> str:
        """Vote at a door; the code of the answer, which did not count."""
        if door == "slack":
            click = self.installation.click(self.asked.id, self.asked.nonce, row.account)
            before = len(await self.installation.books.commands(kind="note"))
            await self.installation.slack({**click, **row.claims})
            assert len(await self.installation.books.commands(kind="note")) == before + 1, "whoever clicks is answered"
            return await self.last_code()
        if door == "http":
            answer = await self.http(row.token, f"/v1/approvals/{self.asked.id}/votes", {"choice": "approve"})
            assert answer.json().get("counted", False) is False
            return str(answer.json()["code"])
        if door == "console":
            return str(await self.browsers[row.token].vote(self.asked.id, self.asked.action_digest))
        self.environment.setenv("COUNTERSEAL_TENANT", row.tenant)
        given = ("approval", "approve", str(self.asked.id), "--as", row.named)
        call = partial(self.command, *given, "--json", exit_code=Exit.CONFLICT)
        said = await asyncio.to_thread(call)
        self.environment.delenv("COUNTERSEAL_TENANT")
        # The installation that is served here logs to the same place.
        found = re.findall(r"^\{$.*?^\}$", said, re.MULTILINE | re.DOTALL)
        if not found and "There is no approval" in self.command.said:
            return "not_found"
        return str(json.loads(found[0])["code"])

    async def by_list(self, row: Row, code: str) -> None:
        """The button of a list's card refuses the same person for the same reason."""
        asked = await self.installation.books.approvals(run=self.asked.run)
        if len(asked) > 1 or "actions" in row.claims:
            return
        mark = mark_of([(str(self.asked.id), self.asked.action_digest, self.asked.nonce)])
        click = self.installation.click(self.asked.id, mark[:32], row.account, "list_approve")
        before = len(await self.installation.books.commands(kind="note"))
        voted = await self.installation.books.votes(approval=self.asked.id)
        assert (await self.installation.slack({**click, **row.claims})).status_code == 200
        assert len(await self.installation.books.commands(kind="note")) == before + 1
        assert await self.last_code() == code
        assert await self.installation.books.votes(approval=self.asked.id) == voted

    async def last_code(self) -> str:
        return str((await self.installation.tenant_events("approval.vote_refused"))[-1]["data"]["code"])


Opens = Callable[[Table, str], Awaitable[None]]
Said: TypeAlias = Callable[[Table, UUID, str], Awaitable[Any]]


def from_servicenow(**names: str) -> Opens:
    """A run that an incident has started which somebody opened, as ServiceNow names them."""

    async def opens(table: Table, tier: str) -> None:
        event = {"table": "problem", "event": "insert", **names}
        await table.open(tier, lambda about: table.installation.webhook({**event, **about}))

    return opens


def filled_in(by: str) -> Said:
    """Fill in the form of a task."""

    async def said(table: Table, run: UUID, number: str) -> Any:
        task = (await table.installation.books.wait(run=run, kind="task", open=True)).id
        return await table.http(by, f"/v1/tasks/{task}/complete", {"value": {"x": "y"}})

    return said


def signaled(by: str) -> Said:
    """The holder of a token sends a signal."""

    async def said(table: Table, run: UUID, number: str) -> Any:
        return await table.http(by, f"/v1/signals/said:{number}", {"output": {"x": "y"}})

    return said


def added(by: str) -> Said:
    """The holder of a token adds the step."""

    async def said(table: Table, run: UUID, number: str) -> Any:
        version = (await table.installation.books.run(run)).version
        step = {"id": "danger", "needs": [], "do": "probe.danger.apply", "with": {"name": "${{ trigger.tier }}"}}
        return await table.http(by, f"/v1/runs/{run}/steps", {"steps": [step]}, **{"If-Match": f'"{version}"'})

    return said


def shaped(workflow: str, said: Said) -> Opens:
    """A run of somebody else, to which somebody says something."""

    async def opens(table: Table, tier: str) -> None:
        start = {"workflow": workflow}
        await table.open(tier, lambda about: table.http("tess", "/v1/runs", {**start, "input": about}), said)

    return opens


def left_behind(writes: str, uses: str, by: str) -> Opens:
    """A run of somebody else uses what a run of this one has left: a record, or a shared effect."""

    async def opens(table: Table, tier: str) -> None:
        start = {"workflow": writes, "input": {"number": f"{writes}-{tier}", "tier": tier}}
        assert (await table.http(by, "/v1/runs", start)).status_code == 201
        await table.installation.work()
        await table.open(tier, lambda about: table.http("tess", "/v1/runs", {"workflow": uses, "input": about}))

    return opens


def edited_outside(name: str) -> Opens:
    """A run of somebody else reads outside what this one wrote there last."""

    async def opens(table: Table, tier: str) -> None:
        table.installation.outside.reshape = lambda done: Done(done.output, writers=(f"servicenow:{name}",))
        await table.open(tier, lambda about: table.http("tess", "/v1/runs", {"workflow": "looks", "input": about}))

    return opens


def handed(name: str) -> Opens:
    """A run of somebody else about a record in which this one wrote last that bob owns it."""

    async def opens(table: Table, tier: str) -> None:
        outside = table.installation.outside
        outside.records["x"] = {"version": 1, "fields": {"owner": "bob"}}
        outside.wrote = (f"servicenow:{name}",)
        await table.open(tier, lambda given: table.http("tess", "/v1/runs", {"workflow": "hands", "input": given}))

    return opens


def about(workflow: str, whom: str) -> Opens:
    """A run of somebody else about this person."""

    async def opens(table: Table, tier: str) -> None:
        start = {"workflow": workflow}
        await table.open(
            tier, lambda given: table.http("tess", "/v1/runs", {**start, "input": {**given, "whom": whom}})
        )

    return opens


def over_http(holder: str) -> Opens:
    """A run that the holder of a token has started."""

    async def opens(table: Table, tier: str) -> None:
        start = {"workflow": "asking"}
        await table.open(tier, lambda about: table.http(holder, "/v1/runs", {**start, "input": about}))

    return opens


async def retried(table: Table, tier: str) -> None:
    """Bob rejects what tess asks for, and ann goes on with the failed run: people are asked again, for her."""
    await over_http("tess")(table, tier)
    body = {"choice": "reject", "reason": "not now"}
    answer = await table.http("bob", f"/v1/approvals/{table.asked.id}/votes", body)
    assert answer.json()["status"] == "rejected", answer.text
    await table.installation.work()
    again = await table.http("ann", f"/v1/runs/{table.asked.run}/retry", {"reason": "mended"})
    assert again.is_success, again.text
    await table.installation.work()
    table.asked = await table.installation.books.approval(run=table.asked.run, open=True)


Change = Callable[[Table], Awaitable[None]]


async def nothing(table: Table) -> None:
    """Nothing has happened since."""


def of_directory(change: Callable[..., Awaitable[None]], *more: str) -> Change:
    async def happens(table: Table) -> None:
        await change(table.installation.engine, "default", "ann", *more)

    return happens


def of_account(*flags: str) -> Change:
    """Slack says this of ann's account now."""

    async def happens(table: Table) -> None:
        users = table.slack_world.state.users
        known = users["U0ANN"]
        users["U0ANN"] = replace(known, flags=flags)

    return happens


async def voted(table: Table) -> None:
    answer = await table.http("ann", f"/v1/approvals/{table.asked.id}/votes", {"choice": "approve"})
    assert answer.json()["counted"], answer.text


async def expired(table: Table) -> None:
    await table.installation.trouble.make_waits_due()
    await table.installation.app.sweeper().sweep()


async def superseded(table: Table) -> None:
    """Bob has approved, and may not any more when the action is about to go: the question is put anew."""
    await table.people()
    answer = await table.http("bob", f"/v1/approvals/{table.asked.id}/votes", {"choice": "approve"})
    assert answer.json()["status"] == "approved", answer.text
    await deactivate(table.installation.engine, "default", "bob")
    await table.installation.work()


async def edited(table: Table, tier: str) -> None:
    """Ann edits what tess asks for: people are asked again."""
    await handed("tess")(table, tier)
    values = {"values": {"owner": "gus"}}
    answer = await table.http("ann", f"/v1/approvals/{table.asked.id}/edit", values)
    assert answer.is_success, answer.text
    await table.installation.work()
    table.asked = await table.installation.books.approval(run=table.asked.run, open=True)


async def answered(table: Table) -> None:
    """Bob asks for more, and ann answers."""
    for who, said in (("bob", "asks"), ("ann", "answers")):
        told = await table.http(who, f"/v1/approvals/{table.asked.id}/said", {"said": said, "text": "w"})
        assert told.is_success, told.text


async def switched_off(table: Table) -> None:
    """The account that asks is switched off, and the keepers have looked at the question."""
    await deactivate(table.installation.engine, "default", "tess")
    await table.installation.app.sweeper().sweep()


async def slack_is_away(table: Table) -> None:
    table.slack_world.faults.inject(Fault("usergroups.users.list", times=0))


BY_SOMEBODY_ELSE = over_http("tess")


def everywhere(code: str) -> Mapping[str, str]:
    return dict.fromkeys(DOORS, code)


@dataclass(frozen=True)
class Row:
    """A case. ``says`` is what each door answers; ``account``, ``token`` and ``named`` are who votes there."""

    says: Mapping[str, str]
    opens: Opens = BY_SOMEBODY_ELSE
    happens: Change = nothing
    account: str = "U0ANN"
    token: str = "ann"
    named: str = "ann"
    claims: Mapping[str, Any] = field(default_factory=dict)
    tenant: str = "default"
    approvers: str = OURS


# The bot's other messages, with the same button, and the card's own place in a message that is none.
FALSE_CARD = {"type": "message", "channel_id": "C0LUNCH", "message_ts": "1.3"}
ONLY_FOR_ANN = {"type": "message", "channel_id": "C0CARDS", "message_ts": "1.2", "is_ephemeral": True}
SEPARATED = everywhere("separation_of_duties")
MACHINE = {"slack": "service_account", "cli": "service_account"}
ROWS = {
    "the requester, by a token": Row(SEPARATED, over_http("ann")),
    "the requester, as exact id": Row(SEPARATED, from_servicenow(opened_by_user_name="ann")),
    "the requester, in another case": Row(SEPARATED, from_servicenow(opened_by_user_name="Ann")),
    "the requester, with a trailing space": Row(SEPARATED, from_servicenow(opened_by_user_name="ann ")),
    "the requester, by user name": Row(SEPARATED, from_servicenow(opened_by_user_name="ANN.Lee")),
    "the requester, by e-mail": Row(SEPARATED, from_servicenow(opened_by_user_name="ann@example.COM")),
    "the requester, by sys_id": Row(SEPARATED, from_servicenow(opened_by=SYS_ID)),
    "the requester, by the operating system's name": Row(SEPARATED, from_servicenow(opened_by_user_name="al")),
    "somebody whom an ambiguous name may mean": Row(SEPARATED, from_servicenow(opened_by_user_name="us")),
    "the requester, with a second Slack account": Row(SEPARATED, over_http("ann"), account="U0WHO"),
    "the requester, by a service token": Row(SEPARATED, over_http("robot")),
    "the requester, by an integration user": Row(SEPARATED, from_servicenow(opened_by_user_name="svc.robot")),
    "the requester, who names themselves otherwise": Row(
        {"cli": "separation_of_duties"}, over_http("ann"), named=" Ann@example.com"
    ),
    "the requester's service account": Row(
        {"slack": "separation_of_duties", "cli": "separation_of_duties"},
        over_http("ann"),
        account="U0EVE",
        named="robot",
    ),
    **{
        f"who changed the record, as {name!r}": Row(
            SEPARATED, from_servicenow(opened_by_user_name="tess", sys_updated_by=name)
        )
        for name in ("ann", "Ann ", "ANN.Lee", "ann@example.COM", SYS_ID, "svc.robot")
    },
    **{
        f"whom it is about, by the {workflow}, as {name!r}": Row(SEPARATED, about(workflow, name))
        for workflow, name in (
            ("about", "ann"),
            ("about", "Ann@Example.com"),
            ("above", SYS_ID),
            ("person", "ANN.Lee"),
            ("person", "us"),
        )
    },
    "who changed the record, with a second Slack account": Row(
        {"slack": "separation_of_duties"},
        from_servicenow(opened_by_user_name="tess", sys_updated_by="ann.lee"),
        account="U0WHO",
    ),
    "who filled in the form": Row(SEPARATED, shaped("filled", filled_in("ann"))),
    "who sent the signal": Row(SEPARATED, shaped("heard", signaled("ann"))),
    "whose service token sent the signal": Row(SEPARATED, shaped("heard", signaled("robot"))),
    "who added the step": Row(SEPARATED, shaped("grown", added("ann"))),
    "whose service token added the step": Row(SEPARATED, shaped("grown", added("robot"))),
    "who has retried the run": Row(SEPARATED, retried),
    "who kept the record": Row(SEPARATED, left_behind("keeps", "reads", "ann")),
    "whose service token kept the record": Row(SEPARATED, left_behind("keeps", "reads", "robot")),
    "who shaped the shared effect": Row(SEPARATED, left_behind("files", "refiles", "ann")),
    "who edited the record outside": Row(SEPARATED, edited_outside("ann.lee")),
    "who edited the record outside, by sys_id": Row(SEPARATED, edited_outside(SYS_ID.upper())),
    "who named the approver in the record": Row(SEPARATED, handed("ann.lee"), approvers=FIELD),
    "who named the approver, by sys_id": Row(SEPARATED, handed(SYS_ID.upper()), approvers=FIELD),
    "who is not the manager": Row(everywhere("not_eligible"), approvers=MANAGER),
    "who edited it": Row(SEPARATED, edited),
    "who answered about it": Row(SEPARATED, happens=answered),
    "who decides for a member, and asked for it": Row(SEPARATED, over_http("ann"), approvers=SECONDS),
    "who decides for whom it is about": Row(everywhere("not_eligible"), about("about", "fred"), approvers=SECONDS),
    "who decides for somebody else": Row(everywhere("not_eligible"), approvers=THIRDS),
    "a service account": Row(MACHINE, account="U0EVE", named="robot"),
    "a guest": Row({"slack": "no_member"}, happens=of_account("is_restricted")),
    "a guest of one channel": Row({"slack": "no_member"}, happens=of_account("is_ultra_restricted")),
    "somebody connected": Row({"slack": "no_member"}, happens=of_account("is_stranger")),
    "a bot": Row({"slack": "no_member"}, happens=of_account("is_bot")),
    "somebody deactivated in Slack": Row({"slack": "no_member"}, happens=of_account("deleted")),
    "somebody deactivated": Row(
        {"slack": "deactivated", "http": "authentication", "cli": "deactivated", "console": "authentication"},
        happens=of_directory(deactivate),
    ),
    "somebody who left the group": Row(everywhere("not_eligible"), happens=of_directory(leave_group, "leads")),
    "somebody who left the directory": Row(
        {"slack": "unlinked", "http": "authentication", "cli": "not_in_directory", "console": "authentication"},
        happens=of_directory(remove_person),
    ),
    "somebody of another tenant": Row(
        {"http": "not_found", "cli": "not_found", "console": "not_found"}, token="zoe", named="zoe", tenant="other"
    ),
    "somebody of a foreign team": Row({"slack": "foreign_workspace"}, claims={"team": {"id": "T0ELSE"}}),
    "while the group cannot be looked up": Row(
        everywhere("group_unresolvable"), happens=slack_is_away, approvers=SLACKS
    ),
    "on a false card": Row({"slack": "false_card"}, claims={"container": FALSE_CARD}),
    "on a false card in the same channel": Row(
        {"slack": "false_card"}, claims={"container": FALSE_CARD | {"channel_id": "C0CARDS"}}
    ),
    "on a message that only one person sees": Row({"slack": "false_card"}, claims={"container": ONLY_FOR_ANN}),
    "in no message at all": Row(
        {"slack": "false_card"}, claims={"container": {"type": "view", "channel_id": "C0CARDS"}}
    ),
    "a second vote of one person": Row(everywhere("already_counted"), happens=voted, approvers=TWO),
    "after expiry": Row(everywhere("expired"), happens=expired),
    "on a superseded card": Row(everywhere("changed"), happens=superseded),
    "on a question of an inactive account": Row(everywhere("changed"), happens=switched_off),
}
# Whoever is refused before the question is looked at leaves no line of the question: nothing is known of them there.
UNTOLD = {"authentication", "not_found"}
# Whose vote would not count does not find the question at Home.
HOMELESS = ("separation_of_duties", "not_eligible", "deactivated", "already_counted", "expired", "changed")


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("name", ROWS)
async def test_who_may_not_decide_is_refused_at_every_door_and_tier(
    installation: Any, command: Any, slack_world: Any, clean_environment: pytest.MonkeyPatch, name: str
) -> None:
    row = ROWS[name]
    table = Table(installation, command, slack_world, clean_environment)
    users = dict(slack_world.state.users)
    slack_world.state.usergroups["S0LEADS"] = ("leads", ["U0ANN"])
    await table.publish(row.approvers)
    try:
        questions = []
        for tier in TIERS:
            await row.opens(table, tier)
            questions.append(table.asked)
        for question in questions:
            table.asked = question
            await row.happens(table)
            before = (await installation.books.approval(id=question.id)).status
            for door, code in row.says.items():
                told = len(await installation.tenant_events("approval.vote_refused"))
                assert await table.vote(door, row) == code, (question.terms["tier"], door)
                if code not in UNTOLD:
                    (*_, last) = await installation.tenant_events("approval.vote_refused")
                    assert last["data"]["code"] == code
                    assert last["data"]["approval"] == str(question.id)
                    assert len(await installation.tenant_events("approval.vote_refused")) == told + 1
                    if door == "slack":
                        await table.by_list(row, code)
            assert (await installation.books.approval(id=question.id)).status == before
            if row.says.get("slack") in HOMELESS:
                home = (await (await table.desk()).home(Clicker(TEAM_ID, row.account)))["blocks"]
                reference = (await installation.books.run(question.run)).reference
                waiting = json.dumps(home[: home.index({"type": "divider"})] if {"type": "divider"} in home else home)
                assert f"{reference} " not in waiting, "the Home offers what would not count"
        await installation.work()
        assert [one for one in installation.outside.effects if one.operation.startswith("probe.danger.")] == []
    finally:
        slack_world.state.users.clear()
        slack_world.state.users.update(users)
        slack_world.faults.clear()
