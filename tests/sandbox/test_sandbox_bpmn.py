"""The BPMN stand-in over real HTTP: it runs models, and answers as a Camunda 7 engine does."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from sandbox.bpmn import Bpmn
from sandbox.bpmn_callback import Delivery
from sandbox.bpmn_config import BpmnConfig
from sandbox.bpmn_model import load_models
from sandbox.faults import Fault
from sandbox.server import LoopbackServer
from sandbox.world import SandboxConfig, sandbox_world

MODEL = "document-request"
WITH_CALLBACK = "document-request-callback"
TOKEN = "callback-token"
WORKER = {"workerId": "w"}


@dataclass
class EngineClient:
    """The engine, a client of it, and a clock that the test moves."""

    bpmn: Bpmn
    http: httpx.AsyncClient
    moment: list[float] = field(default_factory=lambda: [0.0])

    async def get(self, path: str, **params: str) -> Any:
        answer = await self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def start(self, model: str = MODEL, key: str = "k", **variables: Any) -> str:
        values = {name: {"value": value} for name, value in variables.items()}
        answer = await self.post(f"process-definition/key/{model}/start", {"businessKey": key, "variables": values})
        return str(answer["id"])

    async def upload(self, key: str = "k", status: int = 204, **variables: Any) -> Any:
        [task] = await self.get("task", processInstanceBusinessKey=key)
        values = {name: {"value": value} for name, value in variables.items()}
        return await self.post(f"task/{task['id']}/complete", {"variables": values}, status)

    async def fetch(self, *, wait: int = 0, worker: str = "w", topic: str = "counterseal", most: int = 5) -> Any:
        topics = [{"topicName": topic, "lockDuration": 60_000}]
        body = {"workerId": worker, "maxTasks": most, "asyncResponseTimeout": wait, "topics": topics}
        return await self.post("external-task/fetchAndLock", body)

    async def state_of(self, key: str = "k") -> list[str]:
        return [row["state"] for row in await self.get("history/process-instance", processInstanceBusinessKey=key)]


@pytest.fixture
async def engine() -> AsyncIterator[EngineClient]:
    moment = [1_800_000_000.0]
    config = BpmnConfig(clock=lambda: moment[0], callback_token=TOKEN, callback_backoff=(0.01, 0.01))
    async with sandbox_world(SandboxConfig(bpmn=config)) as world:
        assert world.bpmn is not None
        url, auth = world.urls()["bpmn"], ("counterseal", "sandbox")
        async with httpx.AsyncClient(base_url=url, auth=auth, trust_env=False, timeout=5, verify=False) as client:
            yield EngineClient(world.bpmn, client, moment)


# Models and processes


def test_the_models_are_valid_bpmn_and_named() -> None:
    models = load_models()
    assert {key: model.name for key, model in models.items()} == {
        MODEL: "Document request",
        WITH_CALLBACK: "Document request with callback",
    }


@pytest.mark.req("V-15")
async def test_a_process_runs_from_its_start_to_its_end(engine: EngineClient) -> None:
    parts = {"value": '[1, {"a": null}]', "type": "Json"}
    body = {"businessKey": "k", "variables": {"client": {"value": "Acme"}, "parts": parts}}
    instance_id = (await engine.post(f"process-definition/key/{MODEL}/start", body))["id"]
    [running] = await engine.get("process-instance", businessKey="k", processDefinitionKey=MODEL)
    assert (running["id"], running["definitionKey"], running["ended"]) == (instance_id, MODEL, False)
    [task] = await engine.get("task", processInstanceBusinessKey="k")
    assert (task["name"], task["processInstanceId"]) == ("Upload document", instance_id)
    assert await engine.fetch() == []
    await engine.upload(complete=True)
    assert await engine.get("task", processInstanceBusinessKey="k") == []
    [external] = await engine.fetch()
    assert (external["activityId"], external["businessKey"], external["workerId"]) == ("report", "k", "w")
    assert external["variables"]["parts"] == {"type": "Json", "value": '[1,{"a":null}]', "valueInfo": {}}
    assert external["variables"]["complete"] == {"type": "Boolean", "value": True, "valueInfo": {}}
    await engine.post(f"external-task/{external['id']}/complete", WORKER, 204)
    assert await engine.state_of() == ["COMPLETED"]
    assert await engine.get("process-instance", businessKey="k") == []


async def test_a_rejection_takes_the_other_way(engine: EngineClient) -> None:
    await engine.start()
    await engine.upload(complete=False)
    [external] = await engine.fetch()
    assert external["activityId"] == "report_rejection"
    assert external["variables"]["counterseal_error"]["value"] == "The document is incomplete"


async def test_a_step_that_fails_has_not_happened(engine: EngineClient) -> None:
    await engine.start()
    failed = await engine.upload(status=500, note="kept?")
    assert "${complete}" in failed["message"]
    await engine.upload(complete=True)
    [external] = await engine.fetch()
    assert "note" not in external["variables"]


async def test_business_keys_are_not_unique(engine: EngineClient) -> None:
    ids = [await engine.start(), await engine.start(), await engine.start(WITH_CALLBACK)]
    assert [row["id"] for row in await engine.get("process-instance", businessKey="k")] == ids
    ours = await engine.get("process-instance", businessKey="k", processDefinitionKey=MODEL)
    assert [row["id"] for row in ours] == ids[:2]


async def test_a_message_interrupts_the_user_task(engine: EngineClient) -> None:
    instance_id = await engine.start()
    message = {"messageName": "client-withdrew", "businessKey": "k"}
    [result] = await engine.post("message", {**message, "resultEnabled": True})
    assert result["execution"]["processInstanceId"] == instance_id
    [external] = await engine.fetch()
    assert external["activityId"] == "report_withdrawal"
    refused = await engine.post("message", message, 400)
    assert "No process definition or execution matches" in refused["message"]
    await engine.start(key="two")
    await engine.start(key="two")
    assert "2 executions match" in (await engine.post("message", {**message, "businessKey": "two"}, 400))["message"]
    await engine.start(key="one")
    assert await engine.post("message", {**message, "businessKey": "one"}, 204) is None
    await engine.post("message", {"businessKey": "one"}, 400)


async def test_deleting_ends_a_process_for_good(engine: EngineClient) -> None:
    instance_id = await engine.start()
    await engine.upload(complete=True)
    assert (await engine.http.delete(f"process-instance/{instance_id}")).status_code == 204
    again = await engine.http.delete(f"process-instance/{instance_id}")
    assert (again.status_code, again.json()["type"]) == (404, "InvalidRequestException")
    assert await engine.state_of() == ["EXTERNALLY_TERMINATED"]
    assert await engine.fetch() == []


# What it refuses


async def test_everything_but_the_list_of_engines_needs_credentials(engine: EngineClient) -> None:
    async with httpx.AsyncClient(base_url=engine.http.base_url, trust_env=False, verify=False) as stranger:
        assert (await stranger.get("engine")).json() == [{"name": "default"}]
        for auth in (None, ("counterseal", "wrong"), ("nobody", "sandbox")):
            answer = await stranger.get("process-instance", auth=auth)
            assert answer.status_code == 401
        answer = await stranger.get("process-instance", headers={"Authorization": "Basic !"})
        assert answer.status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("process-definition/key/nothing/start", {}, 404, "No matching process definition with key: nothing"),
        (f"process-definition/key/{MODEL}/start", {"bussinessKey": "k"}, 400, "Unrecognized field"),
        (f"process-definition/key/{MODEL}/start", [], 400, "not a JSON object"),
        (f"process-definition/key/{MODEL}/start", {"businessKey": 1}, 400, "businessKey: text is needed"),
        (f"process-definition/key/{MODEL}/start", {"variables": []}, 400, "a JSON object is needed"),
        ("task/nothing/complete", {}, 500, "Cannot find task with id nothing"),
        ("external-task/nothing/complete", WORKER, 404, "does not exist"),
        ("external-task/nothing/failure", WORKER, 400, "retries"),
        ("external-task/fetchAndLock", {"maxTasks": 1, "topics": []}, 400, "workerId is null"),
        ("external-task/fetchAndLock", WORKER | {"maxTasks": 1}, 400, "topics: a list is needed"),
        ("external-task/fetchAndLock", WORKER | {"topics": []}, 400, "maxTasks"),
        ("external-task/fetchAndLock", WORKER | {"maxTasks": 1, "topics": [{}]}, 400, "topicName is null"),
        (
            "external-task/fetchAndLock",
            WORKER | {"maxTasks": 1, "topics": [{"topicName": "t", "lockDuration": 0}]},
            400,
            "lockDuration",
        ),
        (
            "external-task/fetchAndLock",
            WORKER | {"maxTasks": 1, "topics": [], "asyncResponseTimeout": 1_800_001},
            400,
            "asynchronous response timeout",
        ),
    ],
)
async def test_requests_that_the_engine_refuses(
    engine: EngineClient, path: str, body: Any, status: int, words: str
) -> None:
    assert words in (await engine.post(path, body, status))["message"]
    assert not engine.bpmn.state.instances


async def test_bodies_that_are_not_json_and_queries_that_are_unknown(engine: EngineClient) -> None:
    path = f"process-definition/key/{MODEL}/start"
    assert (await engine.http.post(path, content=b"{}")).status_code == 415
    broken = await engine.http.post(path, content=b"{", headers={"Content-Type": "application/json"})
    assert broken.status_code == 400
    assert (await engine.http.get("process-instance", params={"key": "k"})).status_code == 400


@pytest.mark.parametrize(
    ("variable", "fits"),
    [
        ({"value": "x", "type": "String"}, True),
        ({"value": 1, "type": "String"}, False),
        ({"value": 1, "type": "Integer"}, True),
        ({"value": 2**31, "type": "Integer"}, False),
        ({"value": True, "type": "Integer"}, False),
        ({"value": 2**31, "type": "Long"}, True),
        ({"value": 1, "type": "Double"}, True),
        ({"value": "1.5", "type": "Double"}, False),
        ({"value": True, "type": "Boolean"}, True),
        ({"value": None, "type": "Null"}, True),
        ({"value": 0, "type": "Null"}, False),
        ({"value": None, "type": "String"}, True),
        ({"value": "[1]", "type": "Json"}, True),
        ({"value": "[1", "type": "Json"}, False),
        ({"value": [1], "type": "Json"}, False),
        ({"value": [1]}, False),
        ({"value": 1, "type": "Number"}, False),
        ({"value": "x" * 4001, "type": "String"}, False),
        ({"val": 1}, False),
        (1, False),
    ],
)
async def test_variables_must_fit_their_types(engine: EngineClient, variable: Any, fits: bool) -> None:
    body = {"businessKey": "k", "variables": {"v": variable}}
    await engine.post(f"process-definition/key/{MODEL}/start", body, 200 if fits else 400)


# External tasks


async def test_a_lock_holds_until_its_time_is_over(engine: EngineClient) -> None:
    await engine.start()
    await engine.upload(complete=True)
    assert await engine.fetch(topic="elsewhere") == []
    assert await engine.fetch(most=0) == []
    [task] = await engine.fetch()
    engine.moment[0] += 59
    assert await engine.fetch(worker="other") == []
    refused = await engine.post(f"external-task/{task['id']}/complete", {"workerId": "other"}, 400)
    assert "It is locked by worker 'w'" in refused["message"]
    engine.moment[0] += 1
    assert len(await engine.fetch(worker="other")) == 1
    await engine.post(f"external-task/{task['id']}/complete", WORKER, 400)


async def test_a_failed_task_comes_again_until_no_retries_are_left(engine: EngineClient) -> None:
    await engine.start()
    await engine.upload(complete=True)
    [task] = await engine.fetch()
    path = f"external-task/{task['id']}/failure"
    await engine.post(path, {**WORKER, "errorMessage": "x", "retries": 1, "retryTimeout": 5000}, 204)
    assert await engine.fetch() == []
    engine.moment[0] += 5
    assert len(await engine.fetch()) == 1
    await engine.post(path, {**WORKER, "errorMessage": "x", "retries": 0, "retryTimeout": 0}, 204)
    assert await engine.fetch() == []
    assert await engine.state_of() == ["ACTIVE"]


async def test_a_long_poll_sees_a_task_at_once_and_a_client_that_left_takes_none(engine: EngineClient) -> None:
    await engine.start()
    leaving = asyncio.create_task(engine.fetch(wait=60_000))
    await engine.bpmn.faults.until(lambda: engine.bpmn.faults.count("fetchAndLock") == 1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    waiting = asyncio.create_task(engine.fetch(wait=60_000, worker="stays"))
    await engine.bpmn.faults.until(lambda: engine.bpmn.faults.count("fetchAndLock") == 2)
    await engine.upload(complete=True)
    async with asyncio.timeout(60):
        [task] = await waiting
    assert task["workerId"] == "stays"
    assert await engine.fetch(wait=1) == []


async def test_a_long_poll_does_not_keep_the_engine_from_closing() -> None:
    bpmn = Bpmn()
    async with LoopbackServer(bpmn.app) as server:
        auth = ("counterseal", "sandbox")
        base = f"{server.url}/engine-rest"
        async with httpx.AsyncClient(base_url=base, auth=auth, trust_env=False, timeout=60, verify=False) as client:
            polling = asyncio.create_task(EngineClient(bpmn, client).fetch(wait=60_000))
            await bpmn.faults.until(lambda: bpmn.faults.count("fetchAndLock"))
            await bpmn.close()
            async with asyncio.timeout(60):
                assert await polling == []


async def test_faults_can_be_injected_from_outside(engine: EngineClient) -> None:
    fault = {"path": "/start$", "status": 503}
    injected = await engine.http.post(f"{engine.bpmn.url}/_sandbox/faults", json=fault)
    assert injected.json()["pending"] == 1
    await engine.post(f"process-definition/key/{MODEL}/start", {}, 503)
    assert not engine.bpmn.state.instances
    engine.bpmn.faults.inject(Fault("/start$"))
    assert (await engine.http.delete(f"{engine.bpmn.url}/_sandbox/faults")).json()["pending"] == 0


# Callbacks


async def settled(engine: EngineClient) -> Delivery:
    deliveries = engine.bpmn.callbacks.deliveries
    await engine.bpmn.callbacks.until(lambda: deliveries and deliveries[-1].done)
    return deliveries[-1]


@pytest.mark.req("V-15")
async def test_the_end_is_posted_with_a_token_until_it_is_taken(engine: EngineClient, receiver: Any) -> None:
    receiver.answers = [Response(status_code=503), Response(status_code=409), Response(status_code=202)]
    url = f"{receiver.url}/v1/signals/k"
    await engine.start(WITH_CALLBACK, counterseal_callback_url=url, counterseal_correlation_key="k", client="Acme")
    await engine.upload(complete=True)
    delivery = await settled(engine)
    assert delivery.statuses == [503, 409, 202]
    first, _, last = receiver.received
    assert (last.path, last.headers["authorization"]) == ("/v1/signals/k", f"Bearer {TOKEN}")
    expected = {"id": delivery.task_id, "output": {"client": "Acme", "complete": True}}
    assert json.loads(first.body) == json.loads(last.body) == expected
    assert await engine.state_of() == ["COMPLETED"]


async def test_a_rejection_is_posted_as_an_error(engine: EngineClient, receiver: Any) -> None:
    await engine.start(WITH_CALLBACK, counterseal_callback_url=f"{receiver.url}/v1/signals/k")
    await engine.upload(complete=False)
    delivery = await settled(engine)
    error = {"code": "process_error", "message": "The document is incomplete"}
    assert json.loads(receiver.received[0].body) == {"id": delivery.task_id, "error": error}


@pytest.mark.parametrize("nowhere", [False, True])
async def test_a_callback_that_nobody_takes_becomes_an_incident(engine: EngineClient, nowhere: bool) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}/v1/signals/k"
        await engine.start(WITH_CALLBACK, **({} if nowhere else {"counterseal_callback_url": url}))
        await engine.upload(complete=True)
        delivery = await settled(engine)
    assert delivery.statuses == [0, 0, 0]
    [task] = engine.bpmn.state.external_tasks()
    assert task.retries == 0
    assert ("no callback address" if nowhere else url) in task.error_message
    assert await engine.state_of() == ["ACTIVE"]


async def test_a_process_that_is_canceled_meanwhile_stays_canceled(engine: EngineClient, receiver: Any) -> None:
    receiver.hold = asyncio.Event()
    instance_id = await engine.start(WITH_CALLBACK, counterseal_callback_url=f"{receiver.url}/v1/signals/k")
    await engine.upload(complete=True)
    await receiver.until(lambda: receiver.received)
    assert (await engine.http.delete(f"process-instance/{instance_id}")).status_code == 204
    receiver.hold.set()
    assert (await settled(engine)).statuses == [200]
    assert await engine.state_of() == ["EXTERNALLY_TERMINATED"]


# Worlds and processes


async def test_a_world_without_an_engine_needs_no_bpmn_library() -> None:
    without = "import sys; sys.modules['SpiffWorkflow'] = None; "
    code = without + "from sandbox.__main__ import main; sys.exit(main(sys.argv[1:]))"
    arguments = (sys.executable, "-c", code)
    plain = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    assert plain.stdout is not None
    assert "bpmn" not in json.loads(await plain.stdout.readline())
    plain.send_signal(signal.SIGTERM)
    assert await plain.wait() == 0
    wanting = await asyncio.create_subprocess_exec(*arguments, "--bpmn-port", "0", stderr=asyncio.subprocess.PIPE)
    _, errors = await wanting.communicate()
    assert wanting.returncode == 1
    assert b"--bpmn-port needs SpiffWorkflow" in errors
    assert b"Traceback" not in errors


async def test_an_engine_can_be_started_for_other_processes() -> None:
    arguments = ("-m", "sandbox", "--bpmn-port", "0", "--bpmn-callback-token", TOKEN)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    url = json.loads(await process.stdout.readline())["bpmn"]
    async with httpx.AsyncClient(verify=False, trust_env=False, auth=("counterseal", "sandbox")) as client:
        assert (await client.get(f"{url}/process-definition/count")).json() == {"count": 2}
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
