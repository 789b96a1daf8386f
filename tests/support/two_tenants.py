"""Two tenants of one installation, each with a world of its own outside; and hosts that say what they were sent."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.server_settings import McpServer
from app.settings import Settings
from connectors.catalog import Source
from connectors.hosts import AllowedHost
from evidence.chain import Actor
from runtime.requests import declaring, policies, publishing, tenancy
from sandbox.mcp import Mcp
from sandbox.model import ModelConfig
from sandbox.server import LoopbackServer
from sandbox.servicenow import ServiceNowConfig
from sandbox.servicenow_access import INTEGRATION_USER, Accounts
from sandbox.slack import SlackConfig
from sandbox.world import SandboxConfig, World, sandbox_world

OPERATOR = Actor("person", "root")
CARDS = "C0OPS"
PEOPLE = """
directory: people
people:
  - {id: ana, name: Ana, slack: T0DEMO/U0ANA}
  - {id: ben, name: Ben, slack: T0DEMO/U0BEN}
  - {id: raj, name: Raj, slack: T0DEMO/U0REQ}
groups: {leads: [ana, ben]}
"""
POLICY = """
policy: all
version: 1
rules:
  - {id: post, match: {connector: slack}, outcome: allow}
  - {id: call, match: {connector: http}, when: "action.fields.method != 'PUT'", outcome: allow}
  - id: put
    match: {connector: http}
    when: action.fields.method == 'PUT'
    outcome: needs_approval
    approvers: [{group: leads}]
  - {id: complete, match: {connector: model}, outcome: allow}
  - {id: process, match: {connector: bpmn}, outcome: allow}
  - {id: write, match: {connector: servicenow}, outcome: needs_approval, approvers: [{group: leads}]}
"""


@dataclass
class Echo:
    """A host that answers with all that it was sent, and remembers it."""

    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200

    @property
    def app(self) -> Starlette:
        async def answer(request: Request) -> Response:
            body = (await request.body()).decode()
            self.seen.append({"headers": dict(request.headers), "body": body, "path": request.url.path})
            told = " ".join(request.headers.values())
            ways = [told, quote(told, safe=""), base64.b64encode(f"x{told}".encode()).decode(), told.encode().hex()]
            said = json.dumps({"error": {"message": f"you sent {ways}"}, "body": body, told: ways})
            headers = {"Location": f"/else?t={quote(told)}", "ETag": quote(told)}
            return Response(said, self.status, headers=headers, media_type="application/json")

        return Starlette(routes=[Route("/{rest:path}", answer, methods=["GET", "POST", "PUT"])])


def word(tenant: str, name: str) -> str:
    """The value of a secret, which names its tenant."""
    return f"{tenant}-{name}-c4n4ry+/=9"


@dataclass
class Side:
    """One tenant and its world. ``secret`` gives the values that its world takes, all of which name the tenant."""

    tenant: str
    world: World
    echo: Echo
    folder: Any
    mcp: Mcp
    more: list[str] = field(default_factory=list)

    def secret(self, name: str) -> str:
        return word(self.tenant, name)

    @property
    def seen(self) -> str:
        """Everything that this world was shown."""
        messages = [one.text + json.dumps(one.blocks) for one in self.world.slack.state.messages(CARDS)]
        return " ".join([*messages, *(json.dumps(one) for one in self.echo.seen)])

    def document(self, **without: bool) -> str:
        """The tenant's settings, which name this world; parts can be left out."""
        host, tools = self.echo.url.removeprefix("http://"), self.mcp.url.removeprefix("http://")
        slack, now = (url.removeprefix("http://") for url in (self.world.slack.url, self.world.servicenow.url))
        parts = {
            "slack": "slack: {bot_token: '${{ secrets.slack_bot }}', signing_secret: '${{ secrets.signing }}',"
            f" channel: {CARDS}, api_url: '{self.world.slack.url}/api/'}}",
            "servicenow": f"servicenow: {{url: '{self.world.servicenow.url}', username: {INTEGRATION_USER},"
            " password: '${{ secrets.sn }}'}",
            "model": f"model: {{url: '{self.world.model.url}/v1', api_key: '${{{{ secrets.model }}}}'}}",
            "http": f"http: {{hosts: [{{host: '{host}/private',"
            f" headers: {{X-Crm-Key: 'key ${{{{ secrets.crm }}}}'}}}}, {{host: '{tools}/private'}}]}}",
            "mcp": f"mcp: {{servers: {{crm: {{url: '{self.mcp.endpoint}',"
            " headers: {Authorization: 'Bearer ${{ secrets.mcp }}'}}}}",
            "webhooks": "webhooks: {incidents: {secret: '${{ secrets.hook }}'}}",
            "evidence": f"evidence: {{signing_key: '${{{{ secrets.pem }}}}', directory: '{self.folder}'}}",
        }
        model = self.world.model.url.removeprefix("http://")
        return "\n".join(
            [
                f"tenant: {self.tenant}",
                "secrets:",
                f"  slack_bot: {{from: environment, for: ['{slack}']}}",
                "  signing: {from: environment, for: [incoming]}",
                f"  sn: {{from: environment, for: ['{now} as {INTEGRATION_USER}']}}",
                f"  model: {{from: environment, for: ['{model}']}}",
                f"  crm: {{from: environment, for: ['{host}']}}",
                f"  mcp: {{from: environment, for: ['{tools}']}}",
                f"  crm_token: {{from: environment, for: ['{host}']}}",
                "  hook: {from: environment, for: [incoming]}",
                "  pem: {from: file, name: evidence.pem, for: [evidence]}",
                *self.more,
                *(text for name, text in parts.items() if not without.get(name)),
            ]
        )

    @property
    def given(self) -> dict[str, SecretStr]:
        """The secrets that the environment keeps for this tenant."""
        names = ("slack_bot", "signing", "sn", "model", "crm", "crm_token", "hook", "bpmn", "sql", "mcp")
        return {name: SecretStr(self.secret(name)) for name in names}


async def side(stack: AsyncExitStack, tenant: str, folder: Any) -> Side:
    """A running world whose every credential is this tenant's own."""

    own = partial(word, tenant)

    config = SandboxConfig(
        slack=SlackConfig(bot_token=own("slack_bot"), signing_secret=own("signing")),
        servicenow=ServiceNowConfig(accounts=Accounts(passwords={INTEGRATION_USER: own("sn")})),
        model=ModelConfig(api_key=own("model")),
    )
    world = await stack.enter_async_context(sandbox_world(config))
    world.slack.state.channels[CARDS].members.update({"U0ANA", "U0BEN", "U0REQ"})
    echo = Echo()
    echo.url = (await stack.enter_async_context(LoopbackServer(echo.app))).url
    mcp = Mcp(authorization=f"Bearer {own('mcp')}")
    mcp.url = (await stack.enter_async_context(LoopbackServer(mcp.app))).url
    stack.callback(mcp.released.set)
    return Side(tenant, world, echo, folder, mcp)


def environment_of(settings: Settings, own: Side, others: list[Side], home: Any) -> Settings:
    """The settings of a process whose environment has this side's world, and the secrets of all."""
    given = {one.tenant: one.given for one in (own, *others)}
    hosts = [f"{url.removeprefix('http://')}/private" for url in (own.echo.url, own.mcp.url)]
    tools = McpServer(url=own.mcp.endpoint, headers={"Authorization": SecretStr(own.mcp.authorization)})
    return settings.model_copy(
        update={
            "secrets": given,
            "secrets_dir": home,
            "slack_bot_token": own.given["slack_bot"],
            "slack_signing_secret": own.given["signing"],
            "slack_api_url": f"{own.world.slack.url}/api/",
            "slack_channel": CARDS,
            "servicenow_url": own.world.servicenow.url,
            "servicenow_username": INTEGRATION_USER,
            "servicenow_password": own.given["sn"],
            "http_hosts": tuple(AllowedHost.of(one) for one in hosts),
            "mcp_servers": {"crm": tools},
        }
    )


async def prepare(installation: Any, tenant: str, *workflows: str, operations: Sequence[Source] = ()) -> None:
    """The tenant with its people, its policy, and these operations and workflows."""
    faces = installation.app.faces
    async with faces.database.transaction(tenant) as connection:
        await publishing.ensure_tenant(connection, tenant)
        await publishing.publish_directory(connection, tenant, PEOPLE, "people.yaml", OPERATOR)
        await declaring.publish_operations(connection, faces.definitions, tenant, operations, OPERATOR)
        policy = POLICY + ("  - {id: row, match: {connector: sql}, outcome: allow}\n" if operations else "")
        await policies.publish_policy(connection, faces.definitions, tenant, policy, "policy.yaml", OPERATOR)
        for text in workflows:
            await publishing.publish_workflow(connection, faces.definitions, tenant, text, "test.yaml", OPERATOR)


async def apply(installation: Any, document: str) -> Any:
    """Apply settings as the operator does."""
    return await tenancy.apply(installation.engine, document, "tenant.yaml", OPERATOR)


INCIDENT = "a" * 32


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value))
    if not isinstance(value, bytes):
        return f"{value} {json.dumps(value, default=str)}"
    with suppress(zlib.error):
        value = zlib.decompress(value)
    return value.decode("latin-1")


@dataclass
class Walls:
    """One installation: `default` has what the environment says, `globex` what its settings say."""

    installation: Any
    default: Side
    globex: Side

    async def of(self, tenant: str) -> Any:
        async with self.installation.app.faces.database.transaction(tenant) as connection:
            return await self.installation.app.outsides.of(connection, tenant)

    async def globex_key(self) -> None:
        await (await self.of("globex")).signer.read()

    def sides(self, tenant: str) -> tuple[Side, Side]:
        """The tenant's own side, and the other's."""
        return (self.default, self.globex) if tenant == "default" else (self.globex, self.default)

    async def dump(self, table: str) -> list[str]:
        """Every row of a table, as the engine's login cannot hide any; bytes are shown as text, too."""
        rows = await self.installation.all(f"SELECT * FROM {table}")
        return [" ".join(_text(value) for value in row.values()) for row in rows]

    async def ended(self, workflow: str, number: str, tenant: str) -> tuple[str, str]:
        """The end of a run, and its error."""
        run = await self.installation.parked(workflow, number, tenant)
        row = await self.installation.one("SELECT status, error FROM runs WHERE run_id = $1", run)
        return row["status"], str((row["error"] or {}).get("message"))


@asynccontextmanager
async def walls(
    settings: Settings, serve: Any, folder: Path, *workflows: str, operations: Sequence[Source] = ()
) -> AsyncIterator[Walls]:
    """A served installation with both tenants; the settings of `globex` are still to be applied."""
    async with AsyncExitStack() as stack:
        sides = [await side(stack, name, folder / f"evidence-{name}") for name in ("default", "globex")]
        keys = folder / "secrets" / "globex"
        keys.mkdir(parents=True)
        pem = ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with os.fdopen(os.open(keys / "evidence.pem", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(pem)
        installation = await serve(environment_of(settings, sides[0], sides[1:], folder / "secrets"), real=True)
        for one in sides:
            path = "/slack/events" if one.tenant == "default" else f"/slack/events/{one.tenant}"
            one.world.slack.people.url = f"{installation.url}{path}"
            record = {"sys_id": INCIDENT, "number": "INC1", "sys_mod_count": "0"}
            one.world.servicenow.state.seed("incident", record)
            await prepare(installation, one.tenant, *workflows, operations=operations)
        yield Walls(installation, *sides)


async def delivered(installation: Any, approval: Any) -> tuple[str, str]:
    """The state of a question's card, and what is wrong with it."""
    row = await installation.one("SELECT card, card_problem FROM approvals WHERE approval_id = $1", approval)
    return row["card"], row["card_problem"]
