"""The tools of a tenant's MCP server, imported and published as people do, with a workflow that calls one."""

from __future__ import annotations

import json
from typing import Any

from app import upstream
from connectors.catalog import Source
from runtime.requests import declaring, policies, publishing
from tests.support.two_tenants import OPERATOR, POLICY, Walls

TOOL = "mcp.crm.create_ticket"
RULE = "  - {id: tool, match: {connector: mcp}, outcome: needs_approval, approvers: [{group: leads}]}\n"


def workflow(version: int) -> str:
    step = {"id": "a", "do": TOOL, "with": {"title": "${{ trigger.number }}"}, "set": {"found": "${{ output }}"}}
    head = f"workflow: ticket\nversion: {version}\nreference: ${{{{ run.id }}}}\nchannels: {{found: {{}}}}\nsteps:\n"
    return f"{head}  - {json.dumps(step)}\n"


async def accept(walls: Walls, tenant: str, version: int = 1) -> str:
    """Import the tools of the tenant's server as they are now, and publish them with the workflow. The document."""
    faces = walls.installation.app.faces
    found = await upstream.imported(faces, tenant, "crm")
    assert found.left_out == {}
    sources = [Source(name, text) for name, text in found.documents.items()]
    async with faces.database.transaction(tenant) as connection:
        await declaring.publish_operations(connection, faces.definitions, tenant, sources, OPERATOR)
        policy = POLICY.replace("version: 1", f"version: {version + 1}") + RULE
        await policies.publish_policy(connection, faces.definitions, tenant, policy, "policy.yaml", OPERATOR)
        text = workflow(version)
        await publishing.publish_workflow(connection, faces.definitions, tenant, text, "test.yaml", OPERATOR)
    return found.documents[TOOL]


async def decided(walls: Walls, tenant: str, choice: str = "approve") -> Any:
    """Ana answers the one open question of the tenant, and everything is done that can be done."""
    question = next(one for one in await walls.installation.books.approvals() if one.open)
    client = await walls.installation.client("approver", subject="ana", tenant=tenant)
    body = {"choice": choice, "reason": "because"}
    answer = await client.post(f"/v1/approvals/{question.id}/votes", json=body)
    assert answer.status_code == 200, answer.text
    await walls.installation.work()
    return question
