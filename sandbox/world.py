"""All stand-ins together, each on its own port, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandbox.bpmn_config import REST_PATH, BpmnConfig
from sandbox.mcp import Mcp
from sandbox.model import Model, ModelConfig
from sandbox.server import LoopbackServer
from sandbox.servicenow import ServiceNow, ServiceNowConfig
from sandbox.slack import Slack, SlackConfig

if TYPE_CHECKING:
    from sandbox.bpmn import Bpmn


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """Each stand-in's own settings. ``host`` must be a loopback address: the stand-ins' secrets are public.

    ``bpmn`` None: no BPMN engine. Only that stand-in needs the library SpiffWorkflow. ``mcp_port`` None: no MCP server.
    """

    servicenow: ServiceNowConfig = field(default_factory=ServiceNowConfig)
    slack: SlackConfig = field(default_factory=SlackConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    host: str = "127.0.0.1"
    bpmn: BpmnConfig | None = None
    mcp_port: int | None = None


@dataclass(frozen=True, slots=True)
class World:
    """The running stand-ins. Slack's Web API is at ``{slack.url}/api/``, the model's API at ``{model.url}/v1``, and
    the BPMN engine's REST API, if there is one, at ``{bpmn.url}/engine-rest``."""

    servicenow: ServiceNow
    slack: Slack
    model: Model
    bpmn: Bpmn | None = None
    mcp: Mcp | None = None

    def urls(self) -> dict[str, str]:
        found = {
            "servicenow": self.servicenow.url,
            "slack": self.slack.url,
            "slack_api": f"{self.slack.url}/api/",
            "model": f"{self.model.url}/v1",
        }
        found |= {} if self.bpmn is None else {"bpmn": f"{self.bpmn.url}{REST_PATH}"}
        return found | ({} if self.mcp is None else {"mcp": self.mcp.endpoint})


@asynccontextmanager
async def sandbox_world(config: SandboxConfig | None = None) -> AsyncIterator[World]:
    """Run a world: ``async with sandbox_world() as world``. It is reachable inside the block and gone after it."""
    config = config or SandboxConfig()
    bpmn = _bpmn(config.bpmn) if config.bpmn is not None else None
    mcp = None if config.mcp_port is None else Mcp(port=config.mcp_port)
    world = World(ServiceNow(config.servicenow), Slack(config.slack), Model(config.model), bpmn, mcp)
    parts: list[tuple[ServiceNow | Slack | Model | Bpmn | Mcp, int]] = [
        (world.servicenow, config.servicenow.port),
        (world.slack, config.slack.port),
        (world.model, config.model.port),
        *([(bpmn, bpmn.config.port)] if bpmn is not None else []),
        *([(mcp, mcp.port)] if mcp is not None else []),
    ]
    servers: list[LoopbackServer] = []
    try:
        for part, port in parts:
            server = LoopbackServer(part.app, port=port, host=config.host)
            servers.append(server)
            part.url = server.url
            await server.start()
        yield world
    finally:
        for part, _ in parts:
            await part.close()
        await asyncio.gather(*(server.stop() for server in servers))


def _bpmn(config: BpmnConfig) -> Bpmn:
    from sandbox.bpmn import Bpmn

    return Bpmn(config)
