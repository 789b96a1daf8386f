"""Two tenants of one installation, each with a world of its own outside; and hosts that say what they were sent."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.settings import AllowedHost, Settings
from core.secret_values import Secret, SecretError, Value
from evidence.chain import Actor
from runtime.requests import policies, publishing, tenancy
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
  - {id: call, match: {connector: http}, outcome: allow}
  - {id: complete, match: {connector: model}, outcome: allow}
  - {id: write, match: {connector: servicenow}, outcome: needs_approval, approvers: [{group: leads}]}
"""


@dataclass
class Echo:
    """A host that answers with all that it was sent, and remembers it."""

    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def app(self) -> Starlette:
        async def answer(request: Request) -> Response:
            body = (await request.body()).decode()
            self.seen.append({"headers": dict(request.headers), "body": body, "path": request.url.path})
            said = json.dumps({"error": {"message": f"you sent {dict(request.headers)}"}, "body": body})
            return Response(said, self.status, headers=self.headers, media_type="application/json")

        return Starlette(routes=[Route("/{rest:path}", answer, methods=["GET", "POST"])])


@dataclass
class Side:
    """One tenant and its world. ``secret`` gives the values that its world takes, all of which name the tenant."""

    tenant: str
    world: World
    echo: Echo
    folder: Any

    def secret(self, name: str) -> str:
        return f"{self.tenant}-{name}-c4n4ry+/=9"

    @property
    def seen(self) -> str:
        """Everything that this world was shown."""
        messages = [one.text + json.dumps(one.blocks) for one in self.world.slack.state.messages(CARDS)]
        return " ".join([*messages, *(json.dumps(one) for one in self.echo.seen)])

    def document(self, **without: bool) -> str:
        """The tenant's settings, which name this world; parts can be left out."""
        host = self.echo.url.removeprefix("http://")
        slack, now = (url.removeprefix("http://") for url in (self.world.slack.url, self.world.servicenow.url))
        parts = {
            "slack": f"slack: {{bot_token: '${{{{ secrets.slack_bot }}}}', signing_secret: '${{{{ secrets.signing }}}}',"
            f" channel: {CARDS}, api_url: '{self.world.slack.url}/api/'}}",
            "servicenow": f"servicenow: {{url: '{self.world.servicenow.url}', username: {INTEGRATION_USER},"
            " password: '${{ secrets.sn }}'}",
            "model": f"model: {{url: '{self.world.model.url}/v1', api_key: '${{{{ secrets.model }}}}'}}",
            "http": f"http: {{hosts: [{{host: '{host}/private',"
            " headers: {X-Crm-Key: 'key ${{ secrets.crm }}'}}]}",
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
                f"  crm_token: {{from: environment, for: ['{host}']}}",
                "  hook: {from: environment, for: [incoming]}",
                "  pem: {from: file, name: evidence.pem, for: [evidence]}",
                *(text for name, text in parts.items() if not without.get(name)),
            ]
        )

    @property
    def given(self) -> dict[str, SecretStr]:
        """What the environment keeps for this tenant."""
        names = ("slack_bot", "signing", "sn", "model", "crm", "crm_token", "hook")
        return {name: SecretStr(self.secret(name)) for name in names}


async def side(stack: AsyncExitStack, tenant: str, folder: Any) -> Side:
    """A running world whose every credential is this tenant's own."""

    def own(name: str) -> str:
        return f"{tenant}-{name}-c4n4ry+/=9"

    config = SandboxConfig(
        slack=SlackConfig(bot_token=own("slack_bot"), signing_secret=own("signing")),
        servicenow=ServiceNowConfig(accounts=Accounts(passwords={INTEGRATION_USER: own("sn")})),
        model=ModelConfig(api_key=own("model")),
    )
    world = await stack.enter_async_context(sandbox_world(config))
    world.slack.state.channels[CARDS].members.update({"U0ANA", "U0BEN", "U0REQ"})
    echo = Echo()
    echo.url = (await stack.enter_async_context(LoopbackServer(echo.app))).url
    return Side(tenant, world, echo, folder)


def environment_of(settings: Settings, own: Side, others: list[Side], home: Any) -> Settings:
    """The settings of a process whose environment has this side's world, and the secrets of all."""
    given = {one.tenant: one.given for one in (own, *others)}
    host, port = own.echo.url.removeprefix("http://").split(":")
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
            "http_hosts": (AllowedHost(host, int(port), allow_private=True),),
            "webhooks": {},
        }
    )


async def prepare(installation: Any, tenant: str, *workflows: str) -> None:
    """The tenant with its people, its policy and these workflows."""
    faces = installation.app.faces
    async with faces.database.transaction(tenant) as connection:
        await publishing.ensure_tenant(connection, tenant)
        await publishing.publish_directory(connection, tenant, PEOPLE, "people.yaml", OPERATOR)
        await policies.publish_policy(connection, faces.definitions, tenant, POLICY, "policy.yaml", OPERATOR)
        for text in workflows:
            await publishing.publish_workflow(connection, faces.definitions, tenant, text, "test.yaml", OPERATOR)


async def apply(installation: Any, document: str) -> Any:
    """Apply settings as the operator does."""
    return await tenancy.apply(installation.engine, document, "tenant.yaml", OPERATOR)


class Away:
    """A keeper of secrets that does not answer."""

    async def read(self, secret: Secret) -> Value:
        raise SecretError("no answer", again=True)
