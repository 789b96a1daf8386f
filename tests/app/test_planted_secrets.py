"""A canary in every place that may hold a secret: after any end of its call it is found only where it was sent."""

from __future__ import annotations

import base64
import json
import re
import zipfile
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
import structlog

from app import doctor
from app.access import Role
from app.http.application import create_app
from app.settings import Settings
from sandbox.mcp import Fault
from tests.support import two_tenants, upstream
from tests.support.agents import call, calls, says
from tests.support.two_tenants import CARDS, INCIDENT, Walls

HEADERS = {"Authorization": "Bearer ${{ secrets.crm_token }}", "X-Plain": "fine"}
NAMES = ("slack_bot", "signing", "sn", "model", "crm", "crm_token", "hook", "mcp")


def sends(url: str, method: str = "POST", **more: Any) -> dict[str, Any]:
    return {"method": method, "url": url, "headers": HEADERS, **more}


def text(name: str, *steps: dict[str, Any]) -> str:
    head = f"workflow: {name}\nversion: 1\nreference: ${{{{ run.id }}}}\nchannels: {{found: {{}}}}\nsteps:\n"
    return head + "".join(f"  - {json.dumps(one)}\n" for one in steps)


@pytest.fixture
async def walls(settings: Settings, serve: Any, tmp_path: Path) -> AsyncIterator[Walls]:
    async with two_tenants.walls(settings, serve, tmp_path) as made:
        await two_tenants.apply(made.installation, made.globex.document())
        url, kept = f"{made.globex.echo.url}/x", {"set": {"found": "${{ output }}"}}
        fixed = {"do": "http.request.send", "with": {"method": "POST", "headers": HEADERS}}
        made.globex.world.model.turns = [calls(call("http_request_send", {"url": url})), says("Done.")]
        agent = {"model": "script-given", "instructions": "i", "input": "x", "tools": [fixed]}
        note = {"sys_id": INCIDENT, "work_notes": "hello"}
        for one in (
            text("called", {"id": "a", "do": "http.request.send", "with": sends(url), **kept}),
            text("asked", {"id": "a", "do": "http.request.send", "with": sends(url, "PUT"), **kept}),
            text("agent", {"id": "a", "agent": agent, **kept}),
            text("growing", {"id": "first", "wait": {"signal": "go", "correlate": "go"}}),
            text("noted", {"id": "a", "do": "servicenow.incident.add_work_note", "with": note, **kept}),
        ):
            await made.installation.add(one, "globex")
        await upstream.accept(made, "globex")
        yield made


async def everything(walls: Walls, logged: Any) -> AsyncIterator[tuple[str, str]]:
    """Every place where anything of a run is kept or shown, as text."""
    installation = walls.installation
    yield "log", repr(logged)
    for table in await installation.all("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        for row in await walls.dump(table["tablename"]):
            yield table["tablename"], row
    client = await installation.client(*Role, tenant="globex")
    named = {"run_id": [one.id for one in await installation.books.runs()]}
    named |= {"approval_id": [one.id for one in await installation.books.approvals()], "step_key": ["a"]}
    named |= {"name": ["called"], "kind": ["workflow"], "number": [1], "version": [1]}
    for path, methods in create_app(installation.app.faces).openapi()["paths"].items():
        for filled in product(*(named.get(one, ["none"]) for one in re.findall(r"{(\w+)", path))):
            if "get" in methods:
                query = {"from": "0", "to": "1"} if path.endswith("/diff") else {}
                answer = await client.get(re.sub(r"{\w+}", "{}", path).format(*filled), params=query)
                yield f"GET {path}", f"{answer.text} {answer.headers}"
    for check in await doctor.examine(installation.settings.model_copy(update={"tenant": "globex"})):
        yield "doctor", str(check)
    for one in walls.globex.world.slack.state.messages(CARDS):
        yield "card", f"{one.text} {json.dumps(one.blocks)} {one.metadata}"
    for path in walls.globex.folder.rglob("*.zip"):
        with zipfile.ZipFile(BytesIO(path.read_bytes())) as packed:
            for name in packed.namelist():
                data = packed.read(name)
                yield f"bundle {name}", data.decode("latin-1")
                if name.endswith(".dsse.json"):
                    yield "payload", base64.b64decode(json.loads(data)["payload"]).decode()
    yield "ps", processes()


def processes() -> str:
    """The arguments of every process."""
    found = [process.read_bytes() for process in Path("/proc").glob("[0-9]*/cmdline") if process.exists()]
    return b" ".join(found).decode("latin-1")


def forms(value: str) -> Iterator[str]:
    data = value.encode()
    yield from (value, json.dumps(value)[1:-1], quote(value, safe=""), quote(value), data.hex())
    yield from (base64.b64encode(b"x" * before + data).decode().rstrip("=")[4:-4] for before in range(3))


async def begun(walls: Walls, workflow: str) -> UUID:
    installation = walls.installation
    if workflow != "growing":
        run: UUID = await installation.parked(workflow, "1", "globex")
        return run
    run = await installation.parked(workflow, "1", "globex")
    client = await installation.client(Role.OPERATOR, tenant="globex")
    tag = (await client.get(f"/v1/runs/{run}")).headers["etag"]
    extra = {"id": "extra", "needs": [], "do": "http.request.send", "with": sends(f"{walls.globex.echo.url}/x")}
    added = await client.post(f"/v1/runs/{run}/steps", json={"steps": [extra]}, headers={"If-Match": tag})
    assert added.status_code == 201, added.text
    await installation.work()
    return run


async def decided(walls: Walls, how: str) -> None:
    question = next(one for one in await walls.installation.books.approvals() if one.open)
    client = await walls.installation.client(Role.APPROVER, subject="ana", tenant="globex")
    body = {"choice": how, "reason": "because"}
    answer = await client.post(f"/v1/approvals/{question.id}/votes", json=body)
    assert answer.status_code == 200, answer.text
    await walls.installation.work()


# What a server of tools says, and in it all that it was sent.
SAID = {"content": [{"type": "text", "text": "TOLD"}], "structuredContent": {"id": "TOLD"}}
TOLD = {
    "result": Fault("result", result=SAID),
    "is error": Fault("result", result={**SAID, "isError": True}),
    "altered": Fault("result", result={"content": [], "structuredContent": {"id": 7, "TOLD": "TOLD"}}),
    "error": Fault("error", error=-32602),
    "doubt": Fault("error", error=-32603),
    "page": Fault("html"),
}
# Where the canary stands x what comes of the call.
ENDS = [
    *(("called", status, "") for status in (200, 302, 400, 429, 500)),
    ("called", 400, "retry"),
    *(("asked", status, how) for status, how in ((200, "approve"), (400, "approve"), (200, "reject"))),
    *(("agent", status, "") for status in (200, 302, 400, 500)),
    *(("growing", status, "") for status in (200, 302, 400, 500)),
    ("asked", 500, "approve"),
    *(("ticket", end, "approve") for end in (*TOLD, 200, 302, 401, 500)),
    *(("noted", 200, how) for how in ("approve", "reject")),
]


@pytest.mark.parametrize(("workflow", "status", "how"), ENDS)
async def test_a_planted_secret_is_found_nowhere(walls: Walls, workflow: str, status: Any, how: str) -> None:
    walls.globex.echo.status = status
    if workflow == "ticket" and status != 200:
        walls.globex.mcp.faults["tools/call"] = TOLD.get(status) or Fault("status", status)
    with structlog.testing.capture_logs() as logged:
        run = await begun(walls, workflow)
        if how in ("approve", "reject"):
            await decided(walls, how)
        if how == "retry":
            client = await walls.installation.client(Role.OPERATOR, tenant="globex")
            assert (await client.post(f"/v1/runs/{run}/retry", json={"reason": "again"})).status_code == 200
            await walls.installation.work()
    sent = json.dumps(walls.globex.echo.seen)
    if workflow == "ticket":
        assert walls.globex.mcp.calls, "its server takes nobody without the secret"
    elif workflow != "noted" and how != "reject":
        assert walls.globex.secret("crm_token") in sent, "and yet it is sent, to the host that it is for"
        assert f"key {walls.globex.secret('crm')}" in sent
        told = [row async for place, row in everything(walls, logged) if place == "journal"]
        assert any("crm@environment" in row and "crm_token@environment" in row for row in told), "its version is kept"
    canaries = [form for name in NAMES for form in forms(walls.globex.secret(name))]
    found = {(place, form) async for place, said in everything(walls, logged) for form in canaries if form in said}
    assert found == set()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"body": "${{ secrets.crm_token }}"}, "this place is not declared for one"),
        ({"json": {"t": "${{ secrets.crm_token }}"}}, "this place is not declared for one"),
        ({"url": "https://h.example/${{ secrets.crm_token }}"}, "this place is not declared for one"),
        ({"headers": {"A": "${{ secrets.crm_token }} ${{ run.id }}"}}, "has a secret and an expression in one text"),
        ({"headers": {"A": "${{ secrets['crm_token'] }}"}}, "has a secret and an expression in one text"),
    ],
)
async def test_a_reference_stands_only_where_it_is_declared(walls: Walls, given: dict[str, Any], said: str) -> None:
    step = {"id": "a", "do": "http.request.send", "with": {"method": "POST", "url": "https://h.example/", **given}}
    with pytest.raises(Exception, match=said):
        await walls.installation.add(text("wrong", step), "globex")


# Somebody else's words, another tenant's name, a host that the secret is not for, a secret that there is not.
BORROWED = {
    "a value": ("globex", "X: ${{ secrets.crm_token }}", "only the text of a workflow may do that"),
    "no secret": ("globex", "${{ secrets.nothing }}", "The tenant globex has no secret 'nothing'"),
    "another host": ("globex", "${{ secrets.sn }}", "The secret sn of the tenant globex is not for 127.0.0.1"),
    "no tenant's": ("default", "${{ secrets.crm_token }}", "The tenant default has no secret 'crm_token'"),
}


@pytest.mark.parametrize("case", BORROWED)
async def test_a_secret_goes_only_where_its_declaration_says(walls: Walls, case: str) -> None:
    tenant, words, said = BORROWED[case]
    own, _ = walls.sides(tenant)
    header = "${{ trigger.number }}" if case == "a value" else words
    step = {"id": "a", "do": "http.request.send", "with": {
        "method": "POST", "url": f"{own.echo.url}/x", "headers": {"X-Given": header}}}  # fmt: skip
    await walls.installation.add(text("borrowed", step), tenant)
    status, why = await walls.ended("borrowed", words, tenant)
    assert (status, said in why) == ("failed_terminal", True), why
    assert own.echo.seen == []
