"""Answers over HTTP as they were, whole: of one tenant's runs, questions, tasks and waits, and of another's not a word.

Ids, times and digests are told apart by the order in which they appear; ``tests.support.whole`` holds the rest.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.access import Role
from app.http.dependencies import encode_cursor
from app.settings import WebhookEndpoint
from tests.app.conftest import WEBHOOK_SECRET
from tests.support.whole import Named, as_it_was

EXPECTED = Path(__file__).with_name("whole_http.json")
SIGNED = Path(__file__).with_name("whole_http_signed.json")
ORDERS = Path(__file__).with_name("whole_http_orders.json")
_TOLD = ("location", "etag", "retry-after", "www-authenticate", "allow", "content-type", "content-disposition")
BUSY = """
workflow: busy
version: 1
reference: ${{ trigger.number }}
channels: {log: {reduce: append, ledger: true}}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}, set: {log: one}}
  - {id: case, do: probe.case.open, with: {name: "${{ trigger.number }}"}, timeout: P1D}
  - {id: said, wait: {signal: said, correlate: "${{ trigger.number }}"}}
"""
FORM = """
workflow: form
version: 1
reference: ${{ trigger.number }}
steps:
  - id: sign
    task:
      title: "Sign ${{ trigger.number }}"
      description: In ink.
      assign: {group: leads}
      form: {type: object, properties: {name: {type: string}}, required: [name]}
"""
LINE = """
workflow: line
version: 1
steps:
  - {id: wait, wait: {signal: go}}
  - {id: last, needs: [wait], do: probe.effect.apply, with: {name: last}}
  - {id: later, needs: [wait], do: probe.effect.apply, with: {name: later}}
"""
OF_A_RUN = ("", *("/steps", "/checkpoints", "/receipts", "/timeline", "/ledger", "/audit", "/mutations", "/waits"))


async def _paths(installation: Any, number: str, tenant: str) -> list[str]:
    """Everything that this tenant has: three runs, of which one waits, one asks, and one has a task."""
    for text in (BUSY, FORM):
        await installation.add(text, tenant)
    busy = await installation.parked("busy", f"{number}1", tenant)
    form = await installation.parked("form", f"{number}2", tenant)
    asked, approval, _ = await installation.asked(f"{number}3", tenant)
    client = await installation.client(Role.ADMIN, tenant=tenant)
    [task] = (await client.get("/v1/tasks")).json()["items"]
    runs = [f"/v1/runs/{run}{part}" for run in (busy, form, asked) for part in OF_A_RUN]
    return [*runs, f"/v1/runs/{busy}/graph", f"/v1/approvals/{approval}", f"/v1/tasks/{task['task_id']}"]


LISTS = (
    *("/v1/runs", "/v1/approvals", "/v1/tasks", "/v1/runs?status=waiting", "/v1/runs?workflow=form"),
    *("/v1/runs?reference=A3", "/v1/approvals?status=requested", "/v1/tasks?state=open", "/v1/tasks?group=leads"),
    *("/v1/tasks?group=others", "/v1/tasks?state=completed", "/v1/runs?status=failed_terminal", "/v1/pauses"),
    "/v1/workflows",
)


@pytest.mark.req("U-7")
async def test_answers_are_as_they_were_and_of_one_tenant_alone(installation: Any) -> None:
    await installation.publish("other")
    theirs = await _paths(installation, "B", "other")
    ours = await _paths(installation, "A", "default")
    admin, stranger = [await installation.client(Role.ADMIN, tenant=tenant) for tenant in ("default", "other")]
    named, found = Named(), dict[str, Any]()
    for path in (*LISTS, *ours):
        answer = await admin.get(path)
        found[named(path)] = [answer.status_code, named(answer.json())]
        if path in ours:
            refused = await stranger.get(path)
            assert refused.status_code == 404, path
            assert (await admin.get(theirs[ours.index(path)])).status_code == 404, path
    answer = await admin.post(ours[0] + "/cancel", json={"reason": "enough"})
    found["cancel"] = [answer.status_code, named(answer.json())]
    await installation.work()
    for path in (f"{ours[0]}/steps", f"{ours[0]}/waits"):
        found[f"canceled: {named(path)}"] = named((await admin.get(path)).json())
    assert "B1" not in str(found)
    assert "B3" not in str(found)
    as_it_was(EXPECTED, found)


async def test_lists_of_one_run_are_of_it_alone(installation: Any) -> None:
    """A list that is asked for by run, state and group holds what meets all of it."""
    ann = await installation.client(Role.APPROVER, subject="ann")
    first, approval, _ = await installation.asked("A")
    second, other, _ = await installation.asked("B")
    voted = await ann.post(f"/v1/approvals/{approval}/votes", json={"choice": "approve", "digest": "0" * 64})
    assert (voted.status_code, voted.json()["code"]) == (409, "changed")
    voted = await ann.post(f"/v1/approvals/{approval}/votes", json={"choice": "approve"})
    assert voted.status_code == 200

    async def ids(query: str) -> list[str]:
        items = (await ann.get(f"/v1/approvals?{query}")).json()["items"]
        return [one["approval_id"] for one in items]

    assert await ids("") == [str(other), str(approval)], "the newest first"
    assert await ids(f"run_id={first}") == [str(approval)]
    assert await ids(f"run_id={second}&status=requested") == [str(other)]
    assert await ids(f"run_id={first}&status=requested") == []
    assert await ids("status=approved") == [str(approval)]


class Orders:
    """Sends requests, and keeps each answer whole under the request's own words."""

    def __init__(self, installation: Any) -> None:
        self._installation = installation
        self._clients: dict[tuple[Role, str], Any] = {}
        self._named = Named()
        self.found: dict[str, Any] = {}

    async def __call__(self, role: Role, method: str, path: str, body: Any = None, subject: str = "tess") -> Any:
        """Send one request in the name of ``subject``; the answer's body."""
        if (role, subject) not in self._clients:
            self._clients[role, subject] = await self._installation.client(role, subject=subject)
        answer = await self._clients[role, subject].request(method, path, json=body)
        self.keep(f"{subject} {method} {path} {json.dumps(body) if body is not None else ''}".strip(), answer)
        return answer.json() if answer.headers["content-type"].endswith("json") else answer.text

    def keep(self, name: str, answer: Any) -> None:
        """Keep an answer: its status, the headers that mean something, and the body."""
        name = self._named(name)
        while name in self.found:
            name += " (again)"
        headers = {each: answer.headers[each] for each in _TOLD if each in answer.headers}
        text = answer.headers["content-type"].endswith("json")
        self.found[name] = self._named([answer.status_code, headers, answer.json() if text else answer.text])

    def tell(self, name: str, value: Any) -> None:
        """Keep something else that was said."""
        self.found[self._named(name)] = self._named(value)

    async def audit(self) -> None:
        """Keep what the tenant's own chain says, line by line, without the time."""
        lines = [json.loads(one.line) for one in await self._installation.books.tenant_events("default")]
        self.found["audit"] = self._named(
            [[one["type"], f"{one['actor']['kind']}:{one['actor']['id']}", one["data"]] for one in lines]
        )


STRICT = """
policy: tests
version: 2
rules:
  - {id: effects, match: {operation: probe.effect.apply}, outcome: allow, because: It is another test.}
  - {id: dangers, match: {operation: probe.danger.apply}, outcome: deny, because: Danger is over.}
"""


@pytest.mark.req("U-8", "X-17")
async def test_orders_are_answered_as_they_were(installation: Any) -> None:
    send = Orders(installation)
    operate, author, admin = Role.OPERATOR, Role.AUTHOR, Role.ADMIN
    for text, name in (
        (LINE, "line.yaml"),
        (BUSY, "busy.yaml"),
        (FORM, "form.yaml"),
        ("workflow: x", "x.yaml"),
        (BUSY, "busy.yaml"),
    ):
        await send(author, "POST", "/v1/workflows", {"source": text, "file": name})
    await send(author, "POST", "/v1/workflows/check", {"source": BUSY})
    await send(author, "POST", "/v1/workflows/check", {"source": BUSY.replace("wait:", "wat:"), "file": "b.yaml"})
    begun = {"workflow": "busy", "input": {"number": "A1"}, "idempotency_key": "k"}
    run = (await send(operate, "POST", "/v1/runs", begun))["run_id"]
    await send(operate, "POST", "/v1/runs", begun)
    await send(operate, "POST", "/v1/runs", {**begun, "input": {"number": "A2"}})
    await send(operate, "POST", "/v1/runs", {"workflow": "bussy"})
    opened = {"workflow": "simple", "input": {"number": "O"}, "open": True, "workspace": "side"}
    open_ = (await send(operate, "POST", "/v1/runs", opened))["run_id"]
    await send(operate, "POST", "/v1/runs", {"workflow": "form", "input": {"number": "F"}})
    line = (await send(operate, "POST", "/v1/runs", {"workflow": "line", "input": {}}))["run_id"]
    await installation.work()
    asked, approval, _ = await installation.asked("B")
    _, second, _ = await installation.asked("C")
    steps = {"steps": [{"id": "more", "do": "probe.effect.apply", "with": {"name": "more"}}]}
    await send(operate, "POST", f"/v1/runs/{open_}/steps", steps)
    tess = await installation.client(operate)
    for tag in ("twelve", '"99"', (await tess.get(f"/v1/runs/{open_}")).headers["ETag"]):
        extended = await tess.post(f"/v1/runs/{open_}/steps", json=steps, headers={"If-Match": tag})
        send.keep(f"extend at {tag}", extended)
    for body in ({**steps, "before": ["last", "later"]}, {**steps, "before": ["wait"]}):
        tag = (await tess.get(f"/v1/runs/{line}")).headers["ETag"]
        extended = await tess.post(f"/v1/runs/{line}/steps", json=body, headers={"If-Match": tag})
        send.keep(f"extend before {body['before']}", extended)
    for part in ("graph", "mutations"):
        await send(operate, "GET", f"/v1/runs/{line}/{part}")
    await send(operate, "POST", f"/v1/runs/{open_}/close", {"reason": "Enough."})
    await send(operate, "POST", f"/v1/runs/{open_}/retry", {"reason": "Again."})
    [wait] = (await send(operate, "GET", f"/v1/runs/{run}/waits"))["items"]
    signal = f"/v1/signals/{wait['correlation_key']}"
    for body in ({}, {"for": "P1D", "until": "2030-01-01T00:00:00Z"}, {"for": "soon"}, {"for": "PT1H"}, {"for": "P9D"}):
        await send(operate, "POST", f"{signal}/extend", body)
    for body in ({"token": "x"}, {"id": "i", "output": 1, "error": {"code": "c"}}, {"id": "i", "output": {"a": 1}}):
        await send(operate, "POST", signal, body)
    await send(operate, "POST", signal, {"id": "i", "output": {"a": 1}})
    await send(operate, "POST", signal, {"id": "j"})
    await send(operate, "POST", f"{signal}/extend", {"for": "P1D"})
    await send(operate, "POST", "/v1/signals/said:none", {"error": {"code": "lost", "message": "Gone."}})
    votes = f"/v1/approvals/{approval}/votes"
    for who, body in (
        ("tess", {"choice": "approve"}),
        ("eve", {"choice": "approve"}),
        ("ann", {"choice": "approve", "digest": "0" * 64}),
        ("ann", {"choice": "happened", "reason": "seen"}),
        ("ann", {"choice": "reject"}),
        ("ann", {"choice": "reject", "reason": "x" * 2001}),
        ("ann", {"choice": "approve", "reason": "It is fine."}),
        ("bob", {"choice": "reject", "reason": "No."}),
    ):
        await send(Role.APPROVER, "POST", votes, body, who)
    await send(Role.APPROVER, "POST", f"/v1/approvals/{second}/votes", {"choice": "reject", "reason": "No."}, "bob")
    await send(Role.APPROVER, "GET", f"/v1/approvals/{second}", None, "ann")
    [task] = (await send(Role.APPROVER, "GET", "/v1/tasks", None, "ann"))["items"]
    complete = f"/v1/tasks/{task['task_id']}/complete"
    for who, value in (("eve", {"name": "x"}), ("ann", {"nme": 1}), ("ann", {"name": "Ann"}), ("bob", {"name": "Bob"})):
        await send(Role.APPROVER, "POST", complete, {"value": value}, who)
    for body in ({"what": "workflow", "name": "busy", "reason": "Look."}, {"what": "tenant", "reason": "All."}):
        await send(operate, "POST", "/v1/pauses", body)
        await send(operate, "POST", "/v1/pauses", {**body, "reason": "Twice."})
    for path in ("/v1/pauses", "/readyz"):
        await send(operate, "GET", path)
    for body in ({"what": "workflow", "name": "busy", "reason": "Seen."}, {"what": "tenant"}, {"what": "tenant"}):
        await send(operate, "POST", "/v1/pauses/resume", body)
    await send(operate, "POST", f"/v1/runs/{run}/cancel", {"reason": "No more."})
    await send(operate, "POST", f"/v1/runs/{run}/cancel", {"reason": "No more."})
    await installation.work()
    for path in (
        f"{asked}/evidence",
        f"{run}/audit",
        f"{run}/nothing",
        "nothing",
        f"{run}?x=1",
        f"{run}?_=1",
        f"{run}/audit?cursor={encode_cursor([10**6])}",
        f"{run}/steps?limit=0",
    ):
        answer = await (await installation.client(Role.AUDITOR)).get(f"/v1/runs/{path}")
        if answer.headers["content-type"] != "application/zip":
            send.keep(f"auditor {path}", answer)
    for path in ("/v1/policies?dry_run=true", "/v1/policies?stage=true", "/v1/policies"):
        await send(admin, "POST", path, {"source": STRICT, "file": "strict.yaml"}, "eve")
    for path in ("activate?dry_run=true", "activate", "activate"):
        await send(admin, "POST", f"/v1/policies/tests/1/{path}", None, "eve")
    await send(admin, "POST", "/v1/policies/tests/retire", None, "eve")
    await send(admin, "GET", "/v1/policies", None, "eve")
    for path in ("busy/1/retire", "busy/1/retire", "busy/7/retire"):
        await send(admin, "POST", f"/v1/workflows/{path}", None, "eve")
    await send(author, "GET", "/v1/workflows/busy/1")
    await send.audit()
    as_it_was(ORDERS, send.found)


@pytest.mark.req("Q-1")
async def test_signed_requests_are_answered_as_they_were(serve: Any, settings: Any) -> None:
    """Webhooks: those that start runs, those that start nothing, and those that are refused; and the audit of each."""
    side = WebhookEndpoint(secret=SecretStr(WEBHOOK_SECRET), workspace="side")
    installation = await serve(settings.model_copy(update={"webhooks": {**settings.webhooks, "side": side}}))
    send, now = Orders(installation), time.time()
    for tenant in ("default", "other"):
        await installation.publish(tenant)
    event = {"table": "incident", "event": "insert", "number": "I1", "sys_id": "s1", "sys_mod_count": "0"}
    for name, body, more in (
        ("starts a run", event, {}),
        ("comes again", event, {}),
        ("of another table", {**event, "table": "problem"}, {}),
        ("is no object", b"[]", {}),
        ("of another kind", {**event, "event": "update"}, {}),
        ("of no kind", {"table": "incident"}, {}),
        ("without an id", {"table": "incident", "event": "insert", "number": "I1"}, {}),
        ("of another tenant", event, {"endpoint": "others", "secret": WEBHOOK_SECRET + "2"}),
        ("of another workspace", {**event, "sys_id": "s4"}, {"endpoint": "side"}),
        ("at an unknown place", event, {"endpoint": "nobody"}),
        ("with a wrong secret", event, {"secret": "x" * 16}),
        ("301 seconds old", event, {"at": now - 305}),
        ("301 seconds early", event, {"at": now + 305}),
        ("nearly too old", {**event, "sys_id": "s2"}, {"at": now - 290}),
        ("nearly too early", {**event, "sys_id": "s3"}, {"at": now + 290}),
        ("without a time", event, {"headers": {"X-Counterseal-Timestamp": ""}}),
        ("too large", b"x" * (256 * 1024 + 1), {}),
    ):
        send.keep(name, await installation.webhook(body, **more))
    await send.audit()
    runs = [(await installation.client(Role.AUDITOR, tenant=tenant)) for tenant in ("default", "other")]
    for tenant, client in zip(("default", "other"), runs, strict=True):
        items = (await client.get("/v1/runs")).json()["items"]
        send.found[f"runs of {tenant}"] = [[one["workflow"], one["reference"], one["workspace_id"]] for one in items]
    as_it_was(SIGNED, send.found)
