"""The settings of the second tenant: the same stand-ins, under credentials and with evidence of its own."""

from __future__ import annotations

import json
from pathlib import Path

from chaos.cases import INTEGRATION, OTHER
from core.db import ENGINE_ROLE, Database
from evidence.chain import Actor
from evidence.signing import FileSigner
from runtime.requests import tenancy
from sandbox.world import World

# A tenant of the environment waits as long for a transaction of ServiceNow.
LIMIT_SECONDS = 1


def given(world: World) -> str:
    """The secrets that the environment keeps for this tenant, as COUNTERSEAL_SECRETS takes them."""
    return json.dumps({OTHER: {"bot": "xoxb-sandbox", "now": "sandbox", "model": world.model.config.api_key}})


async def apply(url: str, home: Path, world: World, channel: str) -> None:
    """Put the settings in force, and make the key that signs this tenant's evidence."""
    FileSigner.load_or_create(home / "secrets" / OTHER / "evidence.pem")
    slack, now, model = (_host(one.url) for one in (world.slack, world.servicenow, world.model))
    text = f"""
tenant: {OTHER}
secrets:
  bot: {{from: environment, for: ["{slack}"]}}
  now: {{from: environment, for: ["{now} as {INTEGRATION}"]}}
  model: {{from: environment, for: ["{model}"]}}
  pem: {{from: file, name: evidence.pem, for: [evidence]}}
slack: {{bot_token: "${{{{ secrets.bot }}}}", channel: {channel}, api_url: "{world.slack.url}/api/"}}
servicenow: {{url: "{world.servicenow.url}", username: {INTEGRATION}, password: "${{{{ secrets.now }}}}",
  transaction_limit_seconds: {LIMIT_SECONDS}}}
model: {{url: "{world.model.url}/v1", api_key: "${{{{ secrets.model }}}}"}}
evidence: {{signing_key: "${{{{ secrets.pem }}}}", directory: "{home / "evidence" / OTHER}"}}
"""
    async with Database(url, ENGINE_ROLE) as engine:
        await tenancy.apply(engine, text, f"{OTHER}.yaml", Actor("person", "chaos"))


def _host(url: str) -> str:
    return url.removeprefix("http://")
