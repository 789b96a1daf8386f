"""Lost and landed faults look the same from outside and differ in what they did."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from sandbox.faults import Effect, Fault, FaultKind
from sandbox.world import World

INCIDENTS = "/api/now/table/incident"


@pytest.mark.parametrize(("effect", "written"), [(Effect.LOST, 0), (Effect.LANDED, 1)])
@pytest.mark.parametrize("kind", [FaultKind.STATUS, FaultKind.HANG, FaultKind.RESET])
async def test_a_fault_lets_the_effect_happen_or_not(
    world: World, servicenow: httpx.AsyncClient, kind: FaultKind, effect: Effect, written: int
) -> None:
    world.servicenow.faults.inject(Fault(INCIDENTS, kind, effect, method="POST", status=503))
    expected = {FaultKind.HANG: httpx.ReadTimeout, FaultKind.RESET: httpx.NetworkError}
    if kind is FaultKind.STATUS:
        answer = await servicenow.post(INCIDENTS, json={"short_description": "x"})
        assert (answer.status_code, answer.json()["status"]) == (503, "failure")
    else:
        with pytest.raises(expected[kind]):
            await servicenow.post(INCIDENTS, json={"short_description": "x"}, timeout=0.2)
    assert len(world.servicenow.state.writes("incident")) == written
    assert world.servicenow.faults.calls[-1].fault == f"{kind} {effect}"
    again = await servicenow.post(INCIDENTS, json={"short_description": "x"})
    assert again.status_code == 201
    assert world.servicenow.faults.count(INCIDENTS, "POST") == 2


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_delayed_request_has_its_effect_also_when_nobody_waits(
    world: World, servicenow: httpx.AsyncClient, effect: Effect
) -> None:
    world.servicenow.faults.inject(Fault(INCIDENTS, FaultKind.DELAY, effect, delay_ms=150))
    with pytest.raises(httpx.ReadTimeout):
        await servicenow.post(INCIDENTS, json={"short_description": "x"}, timeout=0.05)
    await world.servicenow.state.until(lambda: world.servicenow.state.writes("incident"))
    world.servicenow.faults.inject(Fault(INCIDENTS, FaultKind.DELAY, effect, delay_ms=1))
    assert (await servicenow.get(INCIDENTS)).status_code == 200


async def test_faults_are_injected_by_other_processes(world: World, slack: httpx.AsyncClient) -> None:
    async with httpx.AsyncClient(verify=False, base_url=world.slack.url) as control:
        fault = {"path": "chat.postMessage", "status": 429, "headers": {"Retry-After": "7"}, "times": 2, "skip": 1}
        assert (await control.post("/_sandbox/faults", json=fault)).json()["pending"] == 1
        answers = [await slack.post("chat.postMessage", json={"channel": "C0OPS", "text": "x"}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 429, 429, 200]
        assert (answers[1].headers["Retry-After"], answers[1].json()["error"]) == ("7", "ratelimited")
        seen = (await control.get("/_sandbox/faults")).json()
        assert seen["pending"] == 0
        assert [call["fault"] for call in seen["calls"]] == ["", "status lost", "status lost", ""]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({}, "path"),
        ({"path": "("}, "unterminated"),
        ({"path": "x", "kind": "melt"}, "melt"),
        ({"path": "x", "colour": "red"}, "colour"),
        ({"path": "x", "status": 7}, "7"),
        ({"path": "x", "times": "two"}, "'int'"),
        ([], "object"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused(world: World, fault: Any, says: str) -> None:
    async with httpx.AsyncClient(verify=False, base_url=world.model.url) as control:
        answer = await control.post("/_sandbox/faults", json=fault)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


async def test_clearing_lets_go_of_what_hangs(world: World, plain: httpx.AsyncClient) -> None:
    world.model.faults.inject(Fault("/v1/models", FaultKind.HANG))
    headers = {"Authorization": "Bearer sk-sandbox"}
    request = asyncio.create_task(plain.get(f"{world.model.url}/v1/models", headers=headers))
    await world.model.faults.until(lambda: world.model.faults.calls)
    assert not request.done()
    await plain.delete(f"{world.model.url}/_sandbox/faults")
    with pytest.raises(httpx.NetworkError):
        await request
