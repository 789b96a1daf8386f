"""A world of stand-ins per test, and an app of the tests' own that receives what the stand-ins send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandbox.server import LoopbackServer
from sandbox.servicenow import ServiceNowConfig
from sandbox.slack import SlackConfig
from sandbox.watch import Watched
from sandbox.world import SandboxConfig, World, sandbox_world

WEBHOOK_SECRET = "webhook-secret"
SIGNING_SECRET = "signing-secret"


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver(Watched):
    """Records every request. ``answers``: what the next ones get; then 200 with no body. ``hold``: keep it waiting."""

    received: list[Received] = field(default_factory=list)
    answers: list[Response] = field(default_factory=list)
    hold: asyncio.Event | None = None
    url: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    async def __call__(self, request: Request) -> Response:
        self.received.append(Received(request.url.path, dict(request.headers), await request.body()))
        self.changed()
        if self.hold is not None:
            await self.hold.wait()
        return self.answers.pop(0) if self.answers else Response(status_code=200)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()

    async def endpoint(request: Request) -> Response:
        return await receiver(request)

    app = Starlette(routes=[Route("/{path:path}", endpoint, methods=["POST"])])
    async with LoopbackServer(app) as server:
        receiver.url = server.url
        yield receiver
        if receiver.hold is not None:
            receiver.hold.set()


@pytest.fixture
async def world(receiver: Receiver) -> AsyncIterator[World]:
    config = SandboxConfig(
        servicenow=ServiceNowConfig(
            webhook_url=f"{receiver.url}/webhook", webhook_secret=WEBHOOK_SECRET, webhook_backoff=(0.01, 0.02, 0.03)
        ),
        slack=SlackConfig(
            interactivity_url=f"{receiver.url}/interactivity", signing_secret=SIGNING_SECRET, ack_seconds=1.0
        ),
    )
    async with sandbox_world(config) as world:
        yield world


@pytest.fixture
async def servicenow(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client authenticated as the integration user."""
    auth = ("counterseal.integration", "sandbox")
    async with httpx.AsyncClient(
        verify=False, base_url=world.servicenow.url, auth=auth, trust_env=False, timeout=5
    ) as client:
        yield client


@pytest.fixture
async def slack(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the bot's token; method names are the paths."""
    headers = {"Authorization": "Bearer xoxb-sandbox"}
    base = f"{world.slack.url}/api/"
    async with httpx.AsyncClient(verify=False, base_url=base, headers=headers, trust_env=False, timeout=5) as client:
        yield client


@pytest.fixture
async def plain(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(verify=False, trust_env=False, timeout=5) as client:
        yield client
