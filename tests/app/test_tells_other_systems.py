"""Failed and stuck runs tell other systems: at least once under one id, many of a kind as one, no secret."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.http import signatures
from app.settings import Settings
from runtime.definition.tenant import Signed
from runtime.requests.deliveries import Delivery
from sandbox.faults import Effect, Fault, FaultKind, FaultMiddleware, FaultTable
from sandbox.server import LoopbackServer
from tests.support import two_tenants
from tests.support.two_tenants import Walls

KEY = "whsec_" + base64.b64encode(b"a key of twenty-four bytes").decode()
HOLD = "\n    on_failure: {hold: leads}"
CALL = """
workflow: {name}
version: 1
reference: ${{{{ trigger.number }}}}
steps:
  - id: act
    do: http.request.send
    with: {{method: POST, url: "http://nowhere.example/9731", json: {{pin: "pin-9731"}}}}{more}
"""


@dataclass
class Receiver:
    """A system that is told: what it was sent, oldest first."""

    url: str = ""
    faults: FaultTable = field(default_factory=lambda: FaultTable(lambda _: {}, only="^/told"))
    got: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)

    @property
    def app(self) -> Starlette:
        async def take(request: Request) -> Response:
            self.got.append((dict(request.headers), await request.body()))
            return Response(status_code=204)

        middleware = [Middleware(FaultMiddleware, table=self.faults)]
        return Starlette(routes=[Route("/told", take, methods=["POST"])], middleware=middleware)

    @property
    def told(self) -> list[tuple[str, Any]]:
        """Each id and body. Whoever checks the incoming side's signatures takes all of them."""
        found = []
        for headers, body in self.got:
            read = signatures.read(Signed.STANDARD, headers, body, KEY, time.time())
            assert isinstance(read, Delivery), read
            found.append((read.id, json.loads(body)))
        return found


@dataclass
class Scene:
    walls: Walls
    receiver: Receiver

    @property
    def trouble(self) -> Any:
        return self.walls.installation.trouble

    def document(self, listed: bool = True, url: str = "") -> str:
        host = self.receiver.url.removeprefix("http://")
        text = self.walls.globex.document(http=not listed)
        text = text.replace("hosts: [", f"hosts: [{{host: '{host}/private'}}, ")
        secret = f"secrets:\n  told: {{from: file, name: told.key, for: ['{url or host}']}}"
        tell = f"tell: {{webhook: {{url: '{f'http://{url}/told' if url else self.receiver.url + '/told'}',"
        return f"{text.replace('secrets:', secret, 1)}\n{tell} secret: '${{{{ secrets.told }}}}'}}}}\n"

    async def fails(self, *references: str, workflow: str = "fails") -> None:
        for one in references:
            await self.walls.installation.parked(workflow, one, "globex")

    async def again(self) -> None:
        await self.trouble.retry_messages_now()
        await self.walls.installation.work()

    async def failed(self) -> list[str]:
        rows = await self.walls.installation.all("SELECT kind, last_error FROM commands WHERE status = 'failed'")
        return [f"{row['kind']}: {row['last_error']}" for row in rows]


@pytest.fixture
async def scene(settings: Settings, serve: Any, tmp_path: Path) -> AsyncIterator[Scene]:
    texts = [CALL.format(name="fails", more=""), CALL.format(name="holds", more=HOLD)]
    receiver = Receiver()
    async with (
        LoopbackServer(receiver.app) as server,
        two_tenants.walls(settings, serve, tmp_path, *texts) as walls,
    ):
        receiver.url = server.url
        key = tmp_path / "secrets" / "globex" / "told.key"
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(KEY)
        yield Scene(walls, receiver)


FAULTS = {
    "none": (None, 1),
    "lost": (Fault("/told", FaultKind.RESET, Effect.LOST), 1),
    "landed": (Fault("/told", FaultKind.RESET, Effect.LANDED), 2),
    "it fails": (Fault("/told", status=503, effect=Effect.LANDED), 2),
    "it is busy": (Fault("/told", status=429, headers={"Retry-After": "70"}), 1),
    "it knows us not": (Fault("/told", status=401), 1),
    "it leads elsewhere": (Fault("/told", status=302, headers={"Location": "http://169.254.169.254/"}), 1),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_run_is_told_at_least_once_under_one_id(scene: Scene, fault: str) -> None:
    injected, times = FAULTS[fault]
    await two_tenants.apply(scene.walls.installation, scene.document())
    if injected is not None:
        scene.receiver.faults.inject(injected)
    await scene.fails("INC7")
    await scene.again()
    assert [len(scene.receiver.told), await scene.failed()] == [times, []]
    assert len({(id_, json.dumps(body)) for id_, body in scene.receiver.told}) == 1, "one id, one body"
    (_, body), *_ = scene.receiver.told
    run = await scene.walls.installation.one("SELECT run_id FROM runs")
    assert body.pop("timestamp") == body["data"].pop("since")
    assert body == {
        "type": "run.failed",
        "data": {
            "tenant": "globex",
            "run": str(run["run_id"]),
            "workflow": "fails",
            "reference": "INC7",
            "step": "act",
            "operation": "http.request.send",
            "code": "host_not_allowed",
            "sentence": "The run of fails failed at act (http.request.send): host_not_allowed.",
            "count": 1,
            "link": "",
        },
    }


async def test_many_of_a_kind_become_one_message_and_others_have_their_own(scene: Scene) -> None:
    await two_tenants.apply(scene.walls.installation, scene.document())
    await scene.fails("1", "2", "3", "4")
    await scene.fails("5", workflow="holds")
    await scene.again()
    told = [(body["type"], body["data"]["reference"], body["data"]["count"]) for _, body in scene.receiver.told]
    assert told == [("run.failed", "1", 1), ("step.held", "5", 1)]
    await scene.trouble.pass_time_of_messages(timedelta(hours=1))
    await scene.again()
    told = [(body["type"], body["data"]["reference"], body["data"]["count"]) for _, body in scene.receiver.told]
    assert told[2:] == [("run.failed", "4", 3)]
    assert len({id_ for id_, _ in scene.receiver.told}) == 3


# The document's change, and what is said of it; the operators in Slack hear that it was not delivered, once.
TARGETS = {
    "private and not listed": ({"listed": False}, "private_address: 127.0.0.1 resolves to 127.0.0.1"),
    "a name that leads inside": ({"url": "localhost:9"}, "private_address: localhost resolves to"),
}


@pytest.mark.parametrize("target", TARGETS)
async def test_targets_obey_the_rules_for_hosts(scene: Scene, target: str) -> None:
    change, words = TARGETS[target]
    await two_tenants.apply(scene.walls.installation, scene.document(**change))
    await scene.fails("1", "2")
    await scene.again()
    assert scene.receiver.got == []
    (failed,) = await scene.failed()
    assert words in failed
    assert "http.hosts of the tenant globex" in failed


async def test_nothing_secret_is_told_and_nobody_inherits(scene: Scene) -> None:
    """The other tenant, which has no such settings, tells nobody; what was sent and answered stays in the run."""
    await two_tenants.apply(scene.walls.installation, scene.document())
    await scene.walls.installation.parked("fails", "1", "default")
    assert scene.receiver.got == []
    await scene.fails("1")
    sent = str(scene.receiver.got)
    assert [word for word in (KEY, KEY[6:], "9731", "nowhere", "c4n4ry") if word in sent] == []
    rows = await scene.walls.dump("commands")
    assert [row for row in rows if KEY[6:] in row] == []
