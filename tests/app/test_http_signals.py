"""Signals over HTTP: what the outside says reaches the run that waits for it, once, and nobody else."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest

from app.access import Role

PAYING = """
workflow: paying
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.paid.output }}
steps:
  - id: paid
    wait: {signal: paid, correlate: "${{ run.reference }}"}
  - id: after
    do: probe.effect.apply
    with: {name: "${{ run.reference }}"}
"""
OPENING = """
workflow: opening
version: 1
reference: ${{ trigger.number }}
result: ${{ steps.case.output }}
steps:
  - id: case
    do: probe.case.open
    with: {name: "${{ trigger.number }}"}
    timeout: P14D
"""
PARENT = """
workflow: parent
version: 1
reference: ${{ trigger.number }}
steps:
  - id: child
    run: paying@1
    with: {number: "${{ trigger.number }}-child"}
"""
TASKING = """
workflow: tasking
version: 1
reference: ${{ trigger.number }}
steps:
  - id: sign
    task: {title: Sign, form: {type: object, properties: {name: {type: string}}}, assign: {group: leads}}
"""


@pytest.fixture
async def signaled(installation: Any) -> Any:
    for text in (PAYING, OPENING, PARENT, TASKING):
        await installation.add(text)
    return installation


async def key_of(installation: Any, run_id: UUID) -> tuple[str, str]:
    wait = await installation.books.wait(run=run_id)
    return wait.correlation_key, wait.token


async def result_of(installation: Any, run_id: UUID) -> Any:
    client = await installation.client(Role.OPERATOR)
    shown = (await client.get(f"/v1/runs/{run_id}")).json()
    return shown["status"], shown["result"], shown["error"]


@pytest.mark.req("V-10", "X-16")
async def test_a_signal_resumes_the_run_that_waits_for_it_however_often_it_comes(signaled: Any) -> None:
    run_id = await signaled.parked("paying", "INV 7/ä")
    client = await signaled.client(Role.TRIGGER)
    path = f"/v1/signals/{quote('paid:INV 7/ä', safe='')}"
    said = {"id": "bank-1", "output": {"amount": 12.5}}
    answers = await asyncio.gather(*(client.post(path, json=said) for _ in range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8, [answer.text for answer in answers]
    assert sorted(answer.json()["repeated"] for answer in answers) == [False] + [True] * 7
    first = answers[0].json()
    assert (first["code"], first["run_id"], first["step"], first["id"]) == ("delivered", str(run_id), "paid", "bank-1")
    assert signaled.outside.effects == []
    await signaled.work()
    assert await result_of(signaled, run_id) == ("succeeded", {"amount": 12.5}, None)
    assert len(signaled.outside.effects) == 1
    again = await client.post(path, json=said)
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    other = await client.post("/v1/signals/paid:other", json=said)
    assert (other.status_code, other.json()["where"]) == (400, "id")


@pytest.mark.req("V-10")
async def test_without_an_id_equal_signals_are_one(signaled: Any) -> None:
    first, second = await signaled.parked("paying", "A"), await signaled.parked("paying", "A")
    client = await signaled.client(Role.TRIGGER)
    one = (await client.post("/v1/signals/paid:A", json={"output": 1})).json()
    answer = await client.post("/v1/signals/paid:A", json={"output": 1})
    same = answer.json()
    # The second run waits still, and nobody can tell whether it was meant.
    assert (answer.status_code, same["code"], same["repeated"]) == (409, "duplicate", True)
    assert (one["run_id"], one["repeated"], "an `id` of its own" in same["detail"]) == (same["run_id"], False, True)
    different = (await client.post("/v1/signals/paid:A", json={"output": 2})).json()
    assert {one["run_id"], different["run_id"]} == {str(first), str(second)}
    assert different["id"] != one["id"]
    last = (await client.post("/v1/signals/paid:A", json={"output": 1})).json()
    assert (last["code"], last["id"], last["repeated"]) == ("delivered", one["id"], True)  # nothing waits any more


@pytest.mark.req("X-16")
async def test_a_signal_that_comes_before_its_wait_is_kept_for_it(signaled: Any) -> None:
    client = await signaled.client(Role.TRIGGER)
    early = await client.post("/v1/signals/paid:E", json={"output": "early"})
    assert (early.status_code, early.json()["code"], early.json()["run_id"]) == (202, "kept", None)
    run_id = await signaled.parked("paying", "E")
    assert await signaled.status(run_id) == "waiting"
    await signaled.app.sweeper().sweep()
    await signaled.work()
    assert await result_of(signaled, run_id) == ("succeeded", "early", None)
    known = await client.post("/v1/signals/paid:E", json={"output": "early"})
    assert (known.status_code, known.json()["code"], known.json()["repeated"]) == (200, "delivered", True)


@pytest.mark.req("X-16", "X-17")
async def test_what_is_stale_or_for_another_version_is_recorded_and_changes_nothing(signaled: Any) -> None:
    run_id = await signaled.parked("paying", "S")
    client, reader = await signaled.client(Role.TRIGGER), await signaled.client(Role.OPERATOR)
    shown = await reader.get(f"/v1/runs/{run_id}")
    version = shown.json()["version"]
    assert shown.headers["etag"] == f'"{version}"'
    for body in ({"token": "guessed"}, {"version": version - 1}):
        refused = await client.post("/v1/signals/paid:S", json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "stale"), refused.text
        assert refused.headers["content-type"] == "application/problem+json"
    ignored = await signaled.tenant_events("signal.ignored")
    assert [event["data"]["code"] for event in ignored] == ["stale", "stale"]
    assert (await reader.get(f"/v1/runs/{run_id}")).json()["version"] == version
    _, token = await key_of(signaled, run_id)
    taken = await client.post("/v1/signals/paid:S", json={"token": token, "version": version})
    assert (taken.status_code, taken.json()["code"]) == (200, "delivered")


@pytest.mark.req("V-10", "X-16")
async def test_the_end_of_a_durable_operation_is_a_signal(signaled: Any) -> None:
    run_id = await signaled.parked("opening", "C1")
    (call,) = signaled.outside.effects
    client = await signaled.client(Role.TRIGGER)
    done = await client.post(f"/v1/signals/{call.correlation_key}", json={"id": "t1", "output": {"ok": True}})
    assert done.status_code == 200, done.text
    await signaled.work()
    assert await result_of(signaled, run_id) == ("succeeded", {"ok": True}, None)
    late = await client.post(f"/v1/signals/{call.correlation_key}", json={"id": "t2", "output": {"ok": False}})
    assert (late.status_code, late.json()["code"], late.json()["step"]) == (200, "already_ended", "case")
    assert await result_of(signaled, run_id) == ("succeeded", {"ok": True}, None)


async def test_the_failure_of_a_durable_operation_is_a_signal_too(signaled: Any) -> None:
    run_id = await signaled.parked("opening", "C2")
    (call,) = signaled.outside.effects
    client = await signaled.client(Role.OPERATOR)
    error = {"code": "withdrawn", "message": "The client withdrew"}
    assert (await client.post(f"/v1/signals/{call.correlation_key}", json={"error": error})).status_code == 200
    await signaled.work()
    status, result, shown = await result_of(signaled, run_id)
    assert (status, result, shown["code"], shown["message"]) == (
        "failed_terminal",
        None,
        "withdrawn",
        "The client withdrew",
    )


@pytest.mark.req("V-13")
async def test_a_canceled_run_ends_what_goes_on_outside_and_its_later_signals_are_ignored(signaled: Any) -> None:
    run_id = await signaled.parked("opening", "C3")
    (call,) = signaled.outside.effects
    client = await signaled.client(Role.OPERATOR)
    assert (await client.post(f"/v1/runs/{run_id}/cancel", json={"reason": "mistake"})).status_code == 200
    await signaled.work()
    assert signaled.outside.canceled == [(call.correlation_key, "case-1")]
    late = await client.post(f"/v1/signals/{call.correlation_key}", json={"output": {}})
    assert (late.status_code, late.json()["code"]) == (200, "already_ended")
    assert await signaled.status(run_id) == "canceled"


async def test_a_signal_speaks_neither_for_a_run_within_nor_for_a_person(signaled: Any) -> None:
    parent, tasking = await signaled.parked("parent", "P"), await signaled.parked("tasking", "T")
    client = await signaled.client(Role.OPERATOR)
    shown = (await client.get(f"/v1/runs/{parent}")).json()
    assert shown["children_count"] == 1
    (child,) = shown["children"]
    assert (await client.get(f"/v1/runs/{child}")).json()["parent_run_id"] == str(parent)
    task = await signaled.books.wait(kind="task")
    for key in (child, f"run:{child}", str(task.id), task.token):
        answer = await client.post(f"/v1/signals/{key}", json={"output": {}})
        assert (answer.status_code, answer.json()["code"]) == (202, "kept")
    await signaled.app.sweeper().sweep()
    await signaled.work()
    assert [await signaled.status(run) for run in (parent, tasking)] == ["waiting", "waiting"]
    # The run within ends by its own signal, and its end is what its parent waits for.
    assert (await client.post("/v1/signals/paid:P-child", json={"output": 1})).status_code == 200
    await signaled.work()
    await signaled.work()
    assert [await signaled.status(UUID(run)) for run in (child, str(parent))] == ["succeeded", "succeeded"]


async def test_a_tenant_never_signals_anothers_run(signaled: Any) -> None:
    run_id = await signaled.parked("paying", "X")
    opened = await signaled.parked("opening", "X")
    await signaled.publish("other")
    foreign = await signaled.client(Role.OPERATOR, Role.TRIGGER, tenant="other")
    for key in ("paid:X", signaled.outside.effects[0].correlation_key):
        answer = await foreign.post(f"/v1/signals/{key}", json={"output": "stolen"})
        assert (answer.status_code, answer.json()["code"]) == (202, "kept")
    await signaled.app.sweeper().sweep()
    await signaled.work()
    assert [await signaled.status(run) for run in (run_id, opened)] == ["waiting", "waiting"]
    assert (await foreign.get(f"/v1/runs/{run_id}/waits")).status_code == 404


async def test_only_those_who_may_see_tokens_do(signaled: Any) -> None:
    run_id = await signaled.parked("paying", "W")
    key, token = await key_of(signaled, run_id)
    expected = {Role.OPERATOR: token, Role.AUDITOR: None, Role.APPROVER: None}
    for role, seen in expected.items():
        client = await signaled.client(role)
        (wait,) = (await client.get(f"/v1/runs/{run_id}/waits")).json()["items"]
        assert (wait["kind"], wait["status"], wait["correlation_key"], wait["token"]) == (
            "signal",
            "waiting",
            key,
            seen,
        )
    client = await signaled.client(Role.TRIGGER)
    assert (await client.get(f"/v1/runs/{run_id}/waits")).status_code == 403
    operator = await signaled.client(Role.OPERATOR)
    assert (await operator.get(f"/v1/runs/{uuid4()}/waits")).status_code == 404
    assert (await operator.get(f"/v1/runs/{run_id}/waits?limit=1&cursor=nonsense")).status_code == 400


@pytest.mark.parametrize(
    ("role", "expected"),
    [(None, 401), (Role.APPROVER, 403), (Role.AUDITOR, 403), (Role.ADMIN, 403), (Role.OPERATOR, 202)],
)
async def test_who_may_signal(signaled: Any, role: Role | None, expected: int) -> None:
    client = await signaled.client(*([role] if role else []))
    assert (await client.post("/v1/signals/k", json={})).status_code == expected


DEEP: Any = 1
for _ in range(31):
    DEEP = [DEEP]


async def test_an_output_too_deep_for_expressions_ends_the_run_with_a_reason(signaled: Any) -> None:
    run_id = await signaled.parked("paying", "D")
    client = await signaled.client(Role.TRIGGER)
    assert (await client.post("/v1/signals/paid:D", json={"output": DEEP})).status_code == 200
    await signaled.work()
    status, _, error = await result_of(signaled, run_id)
    assert (status, error["class"]) == ("failed_terminal", "expression")
    assert "nested deeper than 32 levels" in error["message"]


@pytest.mark.parametrize(
    ("key", "body", "expected"),
    [
        ("", {}, 400),
        ("k" * 501, {}, 400),
        ("%00", {}, 400),
        ("%FF", {}, 202),
        ("a/../b", {}, 202),
        ("k", {"output": 1, "error": {"code": "c"}}, 422),
        ("k", {"error": "broken"}, 422),
        ("k", {"error": {"message": "no code"}}, 422),
        ("k", {"error": {"code": "two\nlines"}}, 422),
        ("k", {"error": {"code": "c", "message": "m" * 4001}}, 422),
        ("k", {"id": ""}, 422),
        ("k", {"id": "i" * 201}, 422),
        ("k", {"id": 7}, 422),
        ("k", {"version": 0}, 422),
        ("k", {"version": 2**31}, 422),
        ("k", {"version": "1"}, 422),
        ("k", {"token": {}}, 422),
        ("k", {"outputs": {}}, 422),
        ("k", {"output": 2**60}, 400),
        ("k", {"output": 1e300}, 202),
        ("k", {"output": DEEP}, 202),
        ("k", {"output": [DEEP]}, 400),
        ("k", [], 422),
        ("k", None, 422),
        ("k", {"output": "x" * (256 * 1024)}, 413),
    ],
)
async def test_what_no_signal_can_be_is_refused(signaled: Any, key: str, body: Any, expected: int) -> None:
    client = await signaled.client(Role.TRIGGER)
    answer = (
        await client.post(f"/v1/signals/{key}", json=body) if body is not None else await client.post("/v1/signals/k")
    )
    assert answer.status_code == expected, answer.text
    if expected >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
