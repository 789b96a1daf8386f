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
from core.errors import InputError
from runtime.definition.tenant import Signed
from runtime.engine.life import doubt
from runtime.requests.deliveries import Delivery
from sandbox.faults import Effect, Fault, FaultKind, FaultMiddleware, FaultTable
from sandbox.server import LoopbackServer
from tests.support import two_tenants
from tests.support.arrivals import Arrivals
from tests.support.mail_server import PASSWORD, Mailbox, mailbox
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
GOES = """
workflow: call
version: 1
steps:
  - {id: s, do: http.request.send, with: {method: POST, url: "${{ raw(trigger.number) }}", json: {a: 1}}}
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
    mailbox: Mailbox

    @property
    def trouble(self) -> Any:
        return self.walls.installation.trouble

    def document(self, *channels: str, listed: bool = True, host: str = "", **without: bool) -> str:
        """The settings of globex, which tell these channels, or the webhook; another host can stand for theirs."""
        own = {"webhook": self.receiver.url.removeprefix("http://"), "email": self.mailbox.place}
        text = self.walls.globex.document(**({} if listed else {"http": True}), **without)
        secrets, tell = ["secrets:"], ["tell:"]
        for channel in channels or ("webhook",):
            place, value = host or own[channel], f"'${{{{ secrets.{channel} }}}}'"
            whose = f"{place} as robot" if channel == "email" else place
            text = text.replace("hosts: [", f"hosts: [{{host: '{own[channel]}/private'}}, ")
            secrets.append(f"  {channel}: {{from: file, name: {channel}.key, for: ['{whose}']}}")
            tell.append(
                f"  webhook: {{url: 'http://{place}/told', secret: {value}}}"
                if channel == "webhook"
                else f"  email: {{server: '{place}', from: c@acme.example, to: [ana@acme.example, ben@acme.example],"
                f" user: robot, password: {value}}}"
            )
        return "\n".join([text.replace("secrets:", "\n".join(secrets), 1), *tell])

    async def fails(self, *references: str, workflow: str = "fails") -> None:
        for one in references:
            await self.walls.installation.parked(workflow, one, "globex")

    async def again(self) -> None:
        await self.trouble.retry_messages_now()
        await self.walls.installation.work()

    async def pending(self) -> list[Any]:
        return await self.walls.installation.books.commands(status="pending")

    async def failed(self) -> list[str]:
        failed = await self.walls.installation.books.commands(status="failed")
        return [f"{one.kind}: {one.last_error}" for one in failed]


@pytest.fixture
async def scene(
    settings: Settings, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    texts = [CALL.format(name="fails", more=""), CALL.format(name="holds", more=HOLD), GOES]
    receiver = Receiver()
    async with (
        LoopbackServer(receiver.app) as server,
        mailbox(tmp_path, monkeypatch) as mails,
        two_tenants.walls(settings, serve, tmp_path, *texts) as walls,
    ):
        receiver.url = server.url
        for name, value in (("webhook", KEY), ("email", PASSWORD)):
            key = tmp_path / "secrets" / "globex" / f"{name}.key"
            with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(value)
        yield Scene(walls, receiver, mails)


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
    run = await scene.walls.installation.books.run()
    assert body.pop("timestamp") == body["data"].pop("since")
    assert body == {
        "type": "run.failed",
        "data": {
            "tenant": "globex",
            "run": str(run.id),
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


# What is left out of the settings, and the type, step and code that one message has in the end.
KINDS = {
    "in doubt": ({}, "call", ("action.in_doubt", "s", "action.in_doubt")),
    "held": ({}, "holds", ("step.held", "act", "host_not_allowed")),
    "no bundle": ({"evidence": True}, "fails", ("message.failed", "", "bundle")),
    "nobody has Slack": ({"slack": True}, "fails", ("run.failed", "act", "host_not_allowed")),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_is_stuck_is_told(scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals = Arrivals()
    monkeypatch.setattr(doubt, "rest", arrivals.rest)
    without, workflow, told = KINDS[kind]
    await two_tenants.apply(scene.walls.installation, scene.document(**without))
    scene.walls.globex.echo.status = 503
    await scene.fails(f"{scene.walls.globex.echo.url}/in", workflow=workflow)
    arrivals.everything_so_far()  # from now on nobody can tell what became of a call
    await scene.trouble.make_waits_due()
    await scene.walls.installation.app.sweeper().sweep()
    await scene.again()
    found = [(body["type"], *(body["data"][name] for name in ("step", "code"))) for _, body in scene.receiver.told]
    assert found.count(told) == 1, found


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


MAIL_FAULTS = {"none": 2, "lost": 2, "landed": 3, "busy": 2, "refused": 2, "no tls": 2, "wrong": 2}


@pytest.mark.parametrize("fault", MAIL_FAULTS)
async def test_e_mail_is_sent_at_least_once_under_one_id_and_over_tls_alone(scene: Scene, fault: str) -> None:
    """Ana and Ben get a message each, whatever befalls the other's; nobody is told of it twice but for one id."""
    await two_tenants.apply(scene.walls.installation, scene.document("email"))
    if fault != "none":
        scene.mailbox.faults.append(fault)
    await scene.fails("INC7")
    if fault == "no tls":
        assert scene.mailbox.mails == []
        assert "STARTTLS" in str(await scene.pending())
        scene.mailbox.faults.clear()
    assert not [word for word in (PASSWORD, PASSWORD.encode().hex()) if word in str(await scene.pending())]
    await scene.again()
    assert [len(scene.mailbox.mails), await scene.failed()] == [MAIL_FAULTS[fault], []]
    assert {to for to, _ in scene.mailbox.mails} == {"ana@acme.example", "ben@acme.example"}
    assert len({mail.as_bytes() for _, mail in scene.mailbox.mails}) == 2, "one id and one text for each"
    _, mail = scene.mailbox.mails[0]
    assert (mail["Subject"], mail["From"]) == ("Failed: fails INC7", "c@acme.example")
    assert "The run of fails failed at act (http.request.send): host_not_allowed." in mail.get_content()


async def test_no_channel_waits_for_another(scene: Scene) -> None:
    """One is down and stays so; the other and the operators in Slack hear it. A dead one is told to the others."""
    installation = scene.walls.installation
    await two_tenants.apply(installation, scene.document("webhook", "email"))
    scene.receiver.faults.inject(Fault("/told", status=410, times=0))
    operators = two_tenants.PEOPLE.replace("groups: {", "groups: {operators: [ana], ")
    await installation.people(operators, "globex")
    await scene.fails("INC7")
    await scene.again()
    told = [one.text for one in scene.walls.globex.world.slack.state.direct("U0ANA").messages]
    assert [len(told), "Not delivered: a message (webhook)" in told[1]] == [2, True]
    assert [mail["Subject"] for _, mail in scene.mailbox.mails] == ["Failed: fails INC7"] * 2
    assert [one.partition(":")[0] for one in await scene.failed()] == ["webhook"]


# The channel, the document's change, and what is said of it.
TARGETS = {
    "a private address": ("webhook", {"listed": False}, "private_address: 127.0.0.1 resolves to 127.0.0.1"),
    "a name that leads inside": ("webhook", {"host": "localhost:9"}, "private_address: localhost resolves to"),
    "a private mail server": ("email", {"listed": False}, "private_address: 127.0.0.1 resolves to 127.0.0.1"),
    "a mail server inside": ("email", {"host": "localhost:9"}, "private_address: localhost resolves to"),
}


WRONG = {
    "host_port": ("http://127.0.0.1:", "http://127.0.0.1:9", "tell.webhook.url"),
    "server_port": ("server: '127.0.0.1:", "server: '127.0.0.1:9", "tell.email.server"),
    "a plain secret": ("'${{ secrets.webhook }}'", KEY, "tell.webhook.secret"),
    "another's host": (
        "webhook.key, for: ['",
        "webhook.key, for: ['x",
        "The secret webhook of the tenant globex is not",
    ),
    "another account": ("as robot", "as ben", "The secret email of the tenant globex is not for"),
    "no password": (" user: robot,", "", "`user` and `password` go together"),
    "nobody": ("to: [ana@acme.example, ben@acme.example]", "to: []", "tell.email.to"),
    "two headers": ("from: c@acme.example", 'from: "c@acme.example\\nBcc: x@x.example"', "tell.email.from"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_cannot_be_is_refused_with_its_place(scene: Scene, wrong: str) -> None:
    old, new, words = WRONG[wrong]
    head, mark, tell = scene.document("webhook", "email").partition("tell:")
    given = f"{head}{mark}{tell}".replace(old, new) if old not in tell else head + mark + tell.replace(old, new)
    with pytest.raises(InputError) as refused:
        await two_tenants.apply(scene.walls.installation, given)
    assert words in str(refused.value)


@pytest.mark.parametrize("target", TARGETS)
async def test_targets_obey_the_rules_for_hosts(scene: Scene, target: str) -> None:
    channel, change, words = TARGETS[target]
    await two_tenants.apply(scene.walls.installation, scene.document(channel, **change))
    await scene.fails("1", "2")
    await scene.again()
    assert scene.receiver.got == scene.mailbox.mails == []
    for failed in await scene.failed():
        assert [words in failed, "http.hosts of the tenant globex" in failed] == [True, True]


async def test_nothing_secret_is_told_and_nobody_inherits(scene: Scene) -> None:
    """The other tenant, which has no such settings, tells nobody; what was sent and answered stays in the run."""
    await two_tenants.apply(scene.walls.installation, scene.document("webhook", "email"))
    await scene.walls.installation.parked("fails", "1", "default")
    assert scene.receiver.got == scene.mailbox.mails == []
    await scene.fails("1")
    sent = f"{scene.receiver.got} {[mail.as_string() for _, mail in scene.mailbox.mails]}"
    assert "host_not_allowed" in sent
    assert [word for word in (KEY, KEY[6:], "9731", "nowhere", "c4n4ry") if word in sent] == []
    rows = await scene.walls.dump("commands")
    assert [row for row in rows if KEY[6:] in row or PASSWORD in row] == []
