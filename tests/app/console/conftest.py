"""The console of an installation, as a browser without script meets it: cookies, forms, redirects."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from app.access import Role
from evidence.chain import Actor
from runtime.requests import policies, publishing
from tests.support.browsing import Browser

TESTER = Actor("test", "tester")
APPROVER, OPERATOR, AUDITOR, ADMIN = Role.APPROVER, Role.OPERATOR, Role.AUDITOR, Role.ADMIN


@dataclass
class Door:
    """Opens browsers at an installation."""

    installation: Any
    tester: Actor = TESTER

    def task(self, work: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(work)

    async def stranger(self) -> Browser:
        return await Browser.stranger(self.installation)

    async def enter(self, subject: str, *roles: Role, tenant: str = "default") -> Browser:
        """A browser whose person has logged in with a token of these roles."""
        return await self.with_token(await self.installation.token(*roles, subject=subject, tenant=tenant))

    async def with_token(self, token: str) -> Browser:
        return await Browser.logged_in(self.installation, token)


@pytest.fixture
def door(installation: Any) -> Door:
    return Door(installation)


# Text of an event that anybody may have written; tags, a right-to-left override, and a letter of another script.
HOSTILE = "<script>alert(1)</script>\"'><img src=x> \u202eevil\u202c p\u0430ypal"

WORKFLOWS = (
    """
workflow: strange
version: 1
title: Strange
reference: ${{ trigger.number }}
triggers: {servicenow: {table: problem, dedupe: "${{ trigger.number }}"}}
steps:
  - id: danger
    do: probe.danger.apply
    with: {name: "${{ trigger.short_description }}"}
""",
    """
workflow: branches
version: 1
reference: ${{ trigger.number }}
channels: {kept: {initial: "a secret of the run"}}
steps:
  - {id: first, do: probe.effect.apply, with: {name: a}}
  - {id: left, needs: [first], do: probe.effect.apply, with: {name: b}}
  - {id: right, needs: [first], do: probe.effect.apply, with: {name: c}}
  - id: each
    needs: [left, right]
    foreach: ${{ [1, 2] }}
    steps:
      - {id: inner, do: probe.effect.apply, with: {name: "${{ string(item) }}"}}
  - id: gate
    needs: [each]
    approve: {summary: Go on with it, approvers: {group: leads}}
""",
    """
workflow: listed
version: 1
reference: ${{ trigger.number }}
steps:
  - id: each
    foreach: ${{ ["a", "b"] }}
    steps: [{id: danger, do: probe.danger.apply, with: {name: "${{ item }}"}}]
""",
    """
workflow: forms
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.owner.output }}
steps:
  - id: owner
    task:
      title: Who owns it?
      description: As the register says.
      assign: {group: leads}
      form:
        type: object
        required: [name, kind]
        properties:
          name: {type: string, title: Name, description: First and last}
          share: {type: number, title: Share}
          kind: {type: string, title: Kind, enum: [person, company]}
          many: {type: array, title: Several, items: {type: string, enum: [x, y]}}
          sure: {type: boolean, title: Are you sure}
          digest: {type: string, title: A name that forms have too}
""",
)
POLICY = """
policy: strangers
version: 1
rules:
  - id: from-outside
    match: {operation: probe.danger.apply}
    when: origin.name.all(o, 'requester' in o || 'workflow' in o)
    outcome: allow
    otherwise: needs_approval
    tier: high
    approvers: [{group: leads, of: 1}]
    expires: PT8H
    because: Nobody of ours wrote it.
"""


@dataclass
class Stage:
    """An installation with something of everything. ``pages`` are the paths of all pages, by name."""

    installation: Any
    door: Door
    pages: dict[str, str]
    ids: dict[str, Any]


@pytest.fixture
async def stage(installation: Any, door: Door) -> Stage:
    found = installation.app.faces
    async with found.database.transaction("default") as connection:
        for text in WORKFLOWS:
            await publishing.publish_workflow(connection, found.definitions, "default", text, "w.yaml", TESTER)
        await policies.publish_policy(connection, found.definitions, "default", POLICY, "p.yaml", TESTER)
        staged = POLICY.replace("version: 1", "version: 2").replace("PT8H", "PT4H")
        await policies.publish_policy(connection, found.definitions, "default", staged, "p", TESTER, stage=True)
    ids: dict[str, Any] = {}
    ids["run"], ids["pending"], _ = await installation.asked("INC1")
    ids["rejected run"], ids["rejected"], _ = await installation.asked("INC2")
    ann = await door.enter("ann", APPROVER)
    await ann.send(f"/approvals/{ids['rejected']}", choice="reject", reason="Not today, says the owner.")
    event = {"table": "problem", "event": "insert", "number": "PRB1", "opened_by_user_name": "tess"}
    answer = await installation.webhook({**event, "short_description": HOSTILE})
    ids["strange run"] = answer.json()["runs"][0]["run_id"]
    ids["branches run"] = await installation.parked("branches", "BR1")
    ids["forms run"] = await installation.parked("forms", "FO1")
    ids["list run"] = await installation.parked("listed", "LI1")
    await installation.work()
    ids["strange"] = (await installation.books.approval(run=UUID(ids["strange run"]))).id
    ids["gate"] = (await installation.books.approval(run=ids["branches run"])).id
    ids["list"] = (await installation.books.approvals(run=ids["list run"]))[0].id
    ids["task"] = (await installation.books.wait(kind="task", open=True)).id
    pages = {
        **{name: f"/approvals/{ids[name]}" for name in ("pending", "rejected", "strange", "gate")},
        **{name: f"/runs/{ids[name]}" for name in ids if name.endswith("run")},
        "task": f"/tasks/{ids['task']}",
        "list": f"/approvals/{ids['list']}/list",
        "inbox": "/inbox",
        "runs": "/runs?view=all",
        "none": "/runs?q=INC00100O1",
        "several": f"/runs/several?do=retry&run={ids['run']}&run={ids['rejected run']}",
        "policies": "/policies",
        "policy": "/policies/strangers/2",
        "activate": "/policies/strangers/2/activate",
        "workflows": "/workflows",
        "workflow": "/workflows/branches/1",
        "evidence": "/evidence",
        "asked": "/evidence?ask=1&person=ann&part=approver",
        "bundle": f"/evidence/{ids['rejected run']}",
        "report": f"/evidence/{ids['rejected run']}/report",
        "people": "/people",
        "health": "/health",
        "nothing": "/nothing",
    }
    return Stage(installation, door, pages, ids)
