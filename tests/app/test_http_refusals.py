"""Everything that may not be accepted is refused with 4xx, never 5xx, and leaves nothing but an audit line."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import importlib
import json
import pkgutil
import time
from typing import Any

import pytest
from starlette.responses import Response

import approvals
import connectors
import core
import evidence
import policy
import runtime
from app.access import Role
from app.http import problems
from app.refusals import RefusalLog
from core.errors import CountersealError, InputError
from tests.support.insides import lose_the_database
from tests.support.trouble import Forger

EVENT = {"table": "incident", "event": "insert", "number": "INC1", "sys_id": "s1", "sys_mod_count": "0"}
DEEP = b'{"table":"incident","event":"insert","x":' + b"[" * 40 + b"]" * 40 + b"}"
LARGE = b'{"x":"' + b"a" * (256 * 1024) + b'"}'

SIGNED_BUT_UNUSABLE: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b'"text"', 400),
    (b"\xff\xfe", 400),
    (b'{"a":NaN}', 400),
    (b'{"a":1,"a":2}', 400),
    (b'{"table":"incident\\u0000","event":"insert"}', 400),
    (b'{"table":"\\ud800","event":"insert"}', 400),
    (DEEP, 400),
    (LARGE, 413),
    (b"{}", 400),
    (b'{"table":7,"event":"insert"}', 400),
    (b'{"table":"incident","event":"delete"}', 400),
]
# What could be started, but for a field that is missing, is on record.
SIGNED_BUT_UNSTARTED = [
    b'{"table":"incident","event":"insert","number":"INC1"}',
    b'{"table":"incident","event":"insert","sys_id":"s","sys_mod_count":"0"}',
]


async def _stored(installation: Any) -> int:
    return len(await installation.books.runs()) + len(await installation.books.notices())


async def test_signed_but_unusable_events_are_4xx_and_store_nothing(installation: Any) -> None:
    for body, status in SIGNED_BUT_UNUSABLE:
        answer = await installation.webhook(body)
        assert answer.status_code == status, (body[:60], answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
    assert await _stored(installation) == 0
    for body in SIGNED_BUT_UNSTARTED:
        answer = await installation.webhook(body)
        assert (answer.status_code, answer.json()["code"]) == (422, "unstarted"), answer.text
    assert await installation.books.runs() == []
    assert len(await installation.books.notices()) == len(SIGNED_BUT_UNSTARTED)


async def test_a_signature_that_is_wrong_in_any_way_is_401(installation: Any) -> None:
    body = json.dumps(EVENT).encode()
    now = int(time.time())
    good = hmac.new(b"a-webhook-secret-of-tests", f"{now}.".encode() + body, hashlib.sha256).hexdigest()
    wrong: list[dict[str, Any]] = [
        {"secret": "another-secret-entirely"},
        {"at": now - 301},
        {"at": now + 302},
        {"headers": {"X-Counterseal-Signature": ""}},
        {"headers": {"X-Counterseal-Signature": "sha256="}},
        {"headers": {"X-Counterseal-Signature": "sha256=" + "0" * 64}},
        {"headers": {"X-Counterseal-Signature": "sha512=" + "0" * 64}},
        {"headers": {"X-Counterseal-Signature": b"sha256=\xff\xfe"}},
        {"headers": {"X-Counterseal-Signature": good[:-1]}},
        {"headers": {"X-Counterseal-Timestamp": ""}},
        {"headers": {"X-Counterseal-Timestamp": "abc"}},
        {"headers": {"X-Counterseal-Timestamp": "-1"}},
        {"headers": {"X-Counterseal-Timestamp": "9" * 30}},
        {"headers": {"X-Counterseal-Timestamp": b"\xb2\xb2"}},
        {"headers": {"X-Counterseal-Timestamp": f"{now + 1}", "X-Counterseal-Signature": good}},
    ]
    for arguments in wrong:
        answer = await installation.webhook(body, **arguments)
        assert answer.status_code == 401, (arguments, answer.text)
        assert body.decode() not in answer.text
    assert await _stored(installation) == 0


async def test_an_endpoint_that_nobody_configured_is_refused_and_not_audited(installation: Any) -> None:
    for endpoint in ("nobody", "../incidents", "incidents%00", "INCIDENTS", "x" * 5000):
        assert (await installation.webhook(EVENT, endpoint=endpoint)).status_code in (401, 404, 405), endpoint[:20]
    assert await installation.tenant_events("request.refused") == []


async def test_the_secret_of_another_endpoint_does_not_do(installation: Any) -> None:
    assert (await installation.webhook(EVENT, endpoint="others")).status_code == 401
    (event,) = await installation.tenant_events("request.refused", "other")
    assert event["data"] == {"endpoint": "servicenow:others", "code": "signature", "count": 1}
    assert await installation.tenant_events("request.refused") == []


async def test_refusals_are_audited_once_a_minute_with_their_number(installation: Any) -> None:
    clock = [1000.0]
    log = RefusalLog(installation.app.faces.database, now=lambda: clock[0])
    await asyncio.gather(*(log.note("default", "servicenow:incidents", "signature") for _ in range(50)))
    await log.note("default", "servicenow:incidents", "stale")
    counts = [(event["data"]["code"], event["data"]["count"]) for event in await _refused(installation)]
    assert sorted(counts) == [("signature", 1), ("stale", 1)]
    clock[0] += 61
    await log.note("default", "servicenow:incidents", "signature")
    assert [event["data"]["count"] for event in await _refused(installation)][-1] == 50
    await log.note("default", "servicenow:incidents", "signature")
    await log.flush()
    await log.flush()
    assert [event["data"]["count"] for event in await _refused(installation)][-1] == 1
    assert len(await _refused(installation)) == 4


async def _refused(installation: Any) -> list[dict[str, Any]]:
    return await installation.tenant_events("request.refused")


async def test_a_refusal_stays_a_refusal_when_it_cannot_be_audited(installation: Any) -> None:
    log = RefusalLog(installation.app.faces.database)
    await log.note("no-such-tenant", "servicenow:x", "signature")


SLACK_BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"payload=", 400),
    (b"payload=%7B", 400),
    (b"payload=%FF", 400),
    (b"payload=[]", 400),
    (b"payload={}&payload={}", 400),
    (b"payload=" + json.dumps({"type": "block_actions", "x": [[[[]]]] * 1}).encode(), 400),
    (b"payload={%22type%22:%22block_actions%22,%22x%22:" + b"[" * 40 + b"]" * 40 + b"}", 400),
    (b"payload=" + b"a" * (384 * 1024), 413),
    (b"payload={%22type%22:%22something_else%22}", 404),
    (b"ssl_check=1", 400),
]


async def test_slack_requests_that_cannot_be_read_are_4xx(installation: Any) -> None:
    for body, status in SLACK_BODIES:
        answer = await installation.slack(body)
        assert answer.status_code == status, (body[:60], answer.text)
    codes = {event["data"]["code"] for event in await _refused(installation)}
    assert codes == {"malformed", "too_large", "unhandled"}


async def test_slack_requests_that_slack_did_not_sign_are_401(installation: Any) -> None:
    run_id, approval_id, nonce = await installation.asked()
    click = installation.click(approval_id, nonce)
    assert (await installation.slack(click, secret="wrong")).status_code == 401
    assert (await installation.slack(click, at=time.time() - 301)).status_code == 401
    client = await installation.client()
    assert (await client.post("/slack/events", data={"payload": json.dumps(click)})).status_code == 401
    assert (await client.post("/slack/events", data={"ssl_check": "1"})).status_code == 401
    assert await installation.books.votes() == []
    assert await installation.status(run_id) == "waiting_approval"
    codes = {event["data"]["code"] for event in await _refused(installation)}
    assert codes == {"signature", "timestamp"}


API_REQUESTS: list[tuple[str, str, dict[str, Any], int]] = [
    ("POST", "/v1/runs", {"content": b"{"}, 400),
    ("POST", "/v1/runs", {"content": DEEP}, 400),
    ("POST", "/v1/runs", {"content": LARGE}, 413),
    ("POST", "/v1/runs", {"content": b'{"workflow":"a","workflow":"b"}'}, 400),
    ("POST", "/v1/runs", {"content": b"\xff"}, 400),
    ("POST", "/v1/runs", {"content": b""}, 422),
    ("POST", "/v1/runs", {"content": b"[]"}, 422),
    ("POST", "/v1/runs", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
    (
        "POST",
        "/v1/runs",
        {"content": b"x=1", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
        415,
    ),
    ("POST", "/v1/runs", {"json": {"workflow": "simple", "input": {}, "extra": 1}}, 422),
    ("POST", "/v1/runs", {"json": {"workflow": "simple", "version": 2**40}}, 422),
    ("POST", "/v1/runs", {"json": {"workflow": "simple", "input": {}}}, 400),
    ("POST", "/v1/runs", {"json": {"workflow": "simple", "workspace": "NO SPACE"}}, 422),
    ("POST", "/v1/runs", {"json": {"workflow": "simple", "input": {"number": "1"}, "idempotency_key": "x" * 300}}, 422),
    ("POST", "/v1/runs", {"json": {"workflow": "simple"}, "headers": {"Idempotency-Key": "x" * 300}}, 422),
    ("POST", "/v1/runs", {"json": {"workflow": "nowhere"}}, 404),
    ("GET", "/v1/runs?limit=0", {}, 422),
    ("GET", "/v1/runs?limit=x", {}, 422),
    ("GET", "/v1/runs?status=nonsense", {}, 422),
    ("GET", "/v1/runs?workflow=%00", {}, 422),
    ("GET", "/v1/runs?reference=%00", {}, 422),
    ("GET", "/v1/runs?cursor=nonsense", {}, 400),
    ("GET", "/v1/runs?cursor=W10", {}, 400),
    ("GET", "/v1/runs?cursor=WyJ4IiwieSJd", {}, 400),
    ("GET", "/v1/runs?cursor=" + "x" * 500, {}, 422),
    ("GET", "/v1/runs/nonsense", {}, 422),
    ("GET", "/v1/runs/%00", {}, 422),
    ("GET", "/v1/approvals?status=nonsense", {}, 422),
    ("DELETE", "/v1/runs", {}, 405),
    ("PUT", "/v1/approvals", {"json": {}}, 405),
    ("GET", "/nowhere", {}, 404),
    ("GET", "/v1/nowhere", {}, 404),
    ("POST", "/v1/workflows", {"json": {"source": "workflow: [", "file": "x.yaml"}}, 422),
    ("POST", "/v1/workflows", {"json": {"source": "&a [*a]"}}, 422),
    ("POST", "/v1/policies", {"json": {"source": "policy: x\nversion: 1\nrules: 7"}}, 422),
]


async def test_unacceptable_api_requests_are_4xx_problems(installation: Any) -> None:
    client = await installation.client(*Role)
    for method, path, arguments, status in API_REQUESTS:
        headers = {"Content-Type": "application/json"} if "content" in arguments else {}
        answer = await client.request(method, path, **{"headers": headers, **arguments})
        assert answer.status_code == status, (method, path, arguments, answer.text)
        assert answer.headers["content-type"] == "application/problem+json", (method, path)
        body = answer.json()
        assert body["status"] == status
        assert body["type"] == f"urn:counterseal:problem:{body['code']}"
        assert body["title"]
    assert await _stored(installation) == 0


async def test_a_broken_document_is_answered_with_its_places(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    answer = await client.post("/v1/policies", json={"source": "policy: p\nversion: 1\nrules: 7\n", "file": "p.yaml"})
    (problem,) = answer.json()["problems"]
    assert (problem["file"], problem["line"]) == ("p.yaml", 3)


async def test_a_body_that_never_ends_is_cut(installation: Any) -> None:
    """Chunked, so that no header says how long it will be."""
    client = await installation.client(Role.ADMIN)

    async def endless() -> Any:
        for _ in range(40):
            yield b"a" * 16384

    answer = await client.post("/v1/runs", content=endless(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def _every_error_class() -> set[type[CountersealError]]:
    for package in (approvals, connectors, core, evidence, policy, runtime):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found: set[type[CountersealError]] = set()
    waiting = [CountersealError]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            found.add(kind)
            waiting.append(kind)
    return found


def test_every_error_of_ours_has_a_status() -> None:
    ours = {package.__name__ for package in (approvals, connectors, core, evidence, policy, runtime)}
    kinds = {kind for kind in _every_error_class() if kind.__module__.split(".")[0] in ours}
    assert len(kinds) >= 10
    assert {kind.code for kind in kinds} <= set(problems.STATUS)


async def _answered(response: Response) -> dict[str, Any]:
    return json.loads(bytes(response.body))


async def test_an_error_without_a_status_is_500_and_says_nothing() -> None:
    class Unknown(CountersealError):
        code = "unheard-of"

    answer = problems.of_error(Unknown("a secret detail"))
    assert answer.status_code == 500
    assert "secret" not in bytes(answer.body).decode()


async def test_what_nobody_expected_is_500_and_says_nothing(installation: Any) -> None:
    answer = problems.of_unexpected(RuntimeError("a secret detail"))
    assert answer.status_code == 500
    assert "secret" not in bytes(answer.body).decode()
    assert problems.of_unexpected(ConnectionResetError("the database's address")).status_code == 503


async def test_an_input_error_names_the_place_and_the_remedy() -> None:
    body = await _answered(problems.of_error(InputError("is wrong.", where="a.b", remedy="Do this.")))
    assert (body["where"], body["detail"], body["remedy"]) == ("a.b", "is wrong.", "Do this.")


async def test_when_the_database_is_away_faces_answer_503(installation: Any, postgres_url: Any) -> None:
    client = await installation.client(Role.ADMIN)
    assert (await client.get("/readyz")).status_code == 200
    faces = installation.app.faces
    await faces.database.close()
    lose_the_database(faces.database)
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "transport")
    assert answer.headers["retry-after"] == "1"
    assert not any(word in answer.text for word in ("127.0.0.1", "nobody", "DATABASE_URL", "Errno"))
    assert (await installation.webhook(EVENT)).status_code == 503
    assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("sqlstate", ["53100", "53200", "25006"])  # disk full, out of memory, a server that only reads
async def test_a_database_without_room_is_503_at_every_face(
    installation: Any, database_url: str, sqlstate: str
) -> None:
    _, approval, nonce = await installation.asked()
    client = await installation.client(Role.ADMIN, Role.TRIGGER, Role.APPROVER, subject="ann")
    await Forger(database_url).no_room(sqlstate)
    vote = f"/v1/approvals/{approval}/votes"
    answers = [
        await client.post("/v1/runs", json={"workflow": "simple", "input": {"number": "INC2"}}),
        await client.post("/v1/signals/paid:1", json={}),
        await client.post(vote, json={"choice": "approve", "reason": "because"}),
        await installation.webhook(EVENT),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "transport"), answer.text
        assert (answer.headers["retry-after"], "secret" in answer.text) == ("1", False)
    clicked = await installation.slack(installation.click(approval, nonce))
    assert (clicked.status_code, clicked.headers["retry-after"]) == (503, "1")
    assert (await installation.books.approval()).status == "requested"


def test_base64_and_hex_are_the_same_signature() -> None:
    from app.http.signed import verify

    digest = hmac.new(b"secret", b"100.body", hashlib.sha256).digest()
    for text in (digest.hex(), digest.hex().upper(), base64.b64encode(digest).decode()):
        for prefix in ("", "sha256="):
            headers = {"x-counterseal-timestamp": "100", "x-counterseal-signature": prefix + text}
            assert verify(headers, b"body", "secret", 100.0) is None
            assert verify(headers, b"body", "secret", 400.0) is None
            stale = verify(headers, b"body", "secret", 401.0)
            assert stale is not None
            assert stale.code == "stale"
            assert verify(headers, b"Body", "secret", 100.0) is not None
