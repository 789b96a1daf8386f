"""All stand-ins together, each on its own port, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sandbox.model import Model, ModelConfig
from sandbox.server import LoopbackServer
from sandbox.servicenow import ServiceNow, ServiceNowConfig
from sandbox.slack import Slack, SlackConfig


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """Each stand-in's own settings. ``host`` must be a loopback address: the stand-ins' secrets are public."""

    servicenow: ServiceNowConfig = field(default_factory=ServiceNowConfig)
    slack: SlackConfig = field(default_factory=SlackConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class World:
    """``servicenow.url``; Slack's Web API is ``{slack.url}/api/``, the model's base is ``{model.url}/v1``."""

    servicenow: ServiceNow
    slack: Slack
    model: Model

    def urls(self) -> dict[str, str]:
        return {
            "servicenow": self.servicenow.url,
            "slack": self.slack.url,
            "slack_api": f"{self.slack.url}/api/",
            "model": f"{self.model.url}/v1",
        }


@asynccontextmanager
async def sandbox_world(config: SandboxConfig | None = None) -> AsyncIterator[World]:
    """``async with sandbox_world() as world``: everything is reachable when the body starts, and gone after it."""
    config = config or SandboxConfig()
    world = World(ServiceNow(config.servicenow), Slack(config.slack), Model(config.model))
    parts = (world.servicenow, world.slack, world.model)
    servers: list[LoopbackServer] = []
    try:
        for part in parts:
            server = LoopbackServer(part.app, port=part.config.port, host=config.host)
            servers.append(server)
            part.url = server.url
            await server.start()
        yield world
    finally:
        for part in parts:
            await part.close()
        await asyncio.gather(*(server.stop() for server in servers))
