"""Signed webhooks of other systems start runs of their tenant: once, as mapped, and nobody else's (promises 4, 8)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from app.http import signatures
from core.errors import ConfigurationError
from runtime.definition.tenant import Signed
from tests.support import two_tenants

KEY = b"0123456789abcdef0123456789abcdef"
SECRETS = {
    "std": "whsec_" + base64.b64encode(KEY).decode(),
    "hub": "github-secret-of-globex",
    "duty": "pagerduty-secret-of-globex",
}
SETTINGS = """
tenant: globex
secrets:
  std: {from: environment, for: [incoming]}
  hub: {from: environment, for: [incoming]}
  duty: {from: environment, for: [incoming]}
webhooks:
  std: {secret: '${{ secrets.std }}', signed: standard}
  hub: {secret: '${{ secrets.hub }}', signed: github}
  duty: {secret: '${{ secrets.duty }}', signed: pagerduty}
"""
WORKFLOW = """
workflow: w-ENDPOINT
version: 1
reference: ${{ trigger.number }}
triggers:
  webhook:
    endpoint: ENDPOINT
    when: ${{ event.type == 'opened' }}
    map: {number: "${{ event.body.BODY.number }}", kind: "${{ event.type }}", fixed: 1}
    requested_by: ${{ event.body.BODY.by }}
steps:
  - {id: ok, approve: {summary: Go on?, approvers: {group: leads}}}
"""
BODIES = {"std": "data", "hub": "issue", "duty": "event.data"}


def body(endpoint: str, number: Any = "N1", kind: str = "opened", **more: Any) -> bytes:
    inner = {"number": number, "by": "raj", **more} if number is not None else {"by": "raj"}
    event = {"id": f"E{number}{kind}{len(more)}", "event_type": kind, "data": inner}
    return json.dumps(
        {"std": {"type": kind, "data": inner}, "hub": {"issue": inner}, "duty": {"event": event}}[endpoint]
    ).encode()


def signed(
    endpoint: str, content: bytes, at: float | None = None, id_: str = "msg_1", kind: str = "opened"
) -> dict[str, str]:
    stamp, secret = str(int(time.time() if at is None else at)), SECRETS[endpoint].encode()
    if endpoint == "std":
        made = hmac.new(KEY, f"{id_}.{stamp}.".encode() + content, hashlib.sha256).digest()
        given = f"v1,{base64.b64encode(b'x' * 32).decode()} v1,{base64.b64encode(made).decode()}"
        return {"webhook-id": id_, "webhook-timestamp": stamp, "webhook-signature": given}
    digest = hmac.new(secret, content, hashlib.sha256).hexdigest()
    if endpoint == "hub":
        return {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Event": kind, "X-GitHub-Delivery": id_}
    return {"X-PagerDuty-Signature": f"v1={'0' * 64}, v1={digest}"}


class Sender:
    """A caller of globex's endpoints."""

    def __init__(self, installation: Any) -> None:
        self.installation = installation

    async def __call__(self, endpoint: str, content: bytes, headers: dict[str, str], tenant: str = "globex") -> Any:
        client = await self.installation.client()
        return await client.post(f"/webhooks/events/{tenant}/{endpoint}", content=content, headers=headers)

    async def runs(self) -> list[Any]:
        found: list[Any] = await self.installation.books.runs()
        return found


@pytest.fixture
async def send(settings: Any, serve: Any) -> Sender:
    given = {"globex": {name: SecretStr(value) for name, value in SECRETS.items()}}
    installation = await serve(settings.model_copy(update={"secrets": given}))
    texts = [WORKFLOW.replace("ENDPOINT", name).replace("BODY", path) for name, path in BODIES.items()]
    await two_tenants.prepare(installation, "globex", *texts)
    await two_tenants.prepare(installation, "default", *texts)
    await two_tenants.apply(installation, SETTINGS)
    return Sender(installation)


@pytest.mark.parametrize("endpoint", BODIES)
async def test_a_delivery_starts_one_run_of_its_tenant_as_the_workflow_maps_it(send: Sender, endpoint: str) -> None:
    content = body(endpoint)
    answers = [await send(endpoint, content, signed(endpoint, content)) for _ in range(2)]
    assert [(one.status_code, one.json()["runs"][0]["created"]) for one in answers] == [(202, True), (202, False)]
    (run,) = await send.runs()
    assert (run.tenant, run.workflow, run.reference, run.requested_by) == ("globex", f"w-{endpoint}", "N1", "raj")
    other = body(endpoint, kind="closed")
    assert (await send(endpoint, other, signed(endpoint, other, id_="msg_2", kind="closed"))).status_code == 200
    again = body(endpoint, "N2")
    replayed = signed(endpoint, again, id_="msg_3")
    assert (await send(endpoint, again, replayed)).status_code == 202
    if endpoint == "hub":  # GitHub signs the body alone: another delivery id is the same delivery
        assert not (await send(endpoint, again, {**replayed, "X-GitHub-Delivery": "z"})).json()["runs"][0]["created"]
    assert len(await send.runs()) == 2


@pytest.mark.parametrize("endpoint", BODIES)
async def test_what_does_not_fit_names_its_field(send: Sender, endpoint: str) -> None:
    content = body(endpoint, None)
    answer = await send(endpoint, content, signed(endpoint, content))
    assert answer.status_code == 422
    assert "triggers.webhook.map.number" in answer.json()["unstarted"][0]["reason"]
    assert len(await send.installation.tenant_events("workflow.unstarted", "globex")) == 1
    broken = b'{"event": {}}' if endpoint == "duty" else b"[1]"
    answer = await send(endpoint, broken, signed(endpoint, broken))
    assert answer.status_code == 400
    assert "event.id" in answer.text or endpoint != "duty"


FORGED: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
    "nothing": lambda _: {},
    "another's": lambda given: {name: value[:-4] + "AAAA" for name, value in given.items()},
    "empty": lambda given: dict.fromkeys(given, ""),
    "many": lambda given: dict.fromkeys(given, "v1=0,v1,0 " * 50 + "x"),
}


@pytest.mark.parametrize("endpoint", BODIES)
async def test_a_wrong_signature_is_refused_and_told(send: Sender, endpoint: str) -> None:
    content = body(endpoint)
    right = signed(endpoint, content)
    for forge in FORGED.values():
        assert (await send(endpoint, content, forge(right))).status_code == 401
    assert (await send(endpoint, content + b" ", right)).status_code == 401
    for other in set(BODIES) - {endpoint}:  # nor does one endpoint's signature fit another
        assert (await send(other, content, right)).status_code == 401
    assert (await send(endpoint, content, right, "default")).status_code == 401
    assert (await send("nowhere", content, right)).status_code == 401
    client = await send.installation.client()
    assert (
        await client.post(f"/webhooks/servicenow/globex/{endpoint}", content=content, headers=right)
    ).status_code == 401
    if endpoint == "std":
        assert (await send(endpoint, content, signed(endpoint, content, at=time.time() - 400))).status_code == 401
    told = await send.installation.tenant_events("request.refused", "globex")
    assert f"webhook:globex/{endpoint}" in [one["data"]["endpoint"] for one in told]
    assert await send.runs() == []


@pytest.mark.parametrize("secret", ["whsec_", "whsec_AAAA", "whsec_?"])
def test_a_key_that_anybody_could_have_signs_nothing(secret: str) -> None:
    content, key = body("std"), base64.b64decode("AAAA" if secret.endswith("A") else "")
    made = base64.b64encode(hmac.new(key, b"msg_1.100." + content, hashlib.sha256).digest()).decode()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "100", "webhook-signature": f"v1,{made}"}
    with pytest.raises(ConfigurationError):
        signatures.read(Signed.STANDARD, headers, content, secret, 100.0)
