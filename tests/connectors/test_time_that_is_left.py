"""The time of a call of a BPMN engine, shared by all that it asks: each exchange has what the earlier ones left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.bpmn import connector as bpmn_connector
from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.exchange import BODY_BYTES_MAX, Answer
from connectors.port import Completion, Done, InDoubt, NotSent, Parked, Refused
from core.errors import ConfigurationError, TransportError
from tests.support.calls import Call
from tests.support.exchanged import Outside

pytestmark = pytest.mark.req("Q-18")

ENDED = "/r/history/process-instance?processInstanceBusinessKey=k%2F1&sortBy=startTime&sortOrder=asc"
RUNNING = "/r/process-instance?businessKey=k%2F1"
OURS = "processDefinitionKey=a%2Fb&rootProcessInstances=true"
START = Call("bpmn.process.start", {"process": "a/b"}, "0" * 64, 9.0, None, "k/1")


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Outside:
    return Outside(monkeypatch)


@pytest.fixture
def bpmn(catalog: Catalog, closing: Callable[[Any], Any]) -> BpmnConnector:
    built: BpmnConnector = closing(BpmnConnector(BpmnSettings("http://e.example/r", worker_id="we")))
    return built


async def test_a_start_looks_twice_and_begins_in_what_is_left(outside: Outside, bpmn: BpmnConnector) -> None:
    outside.answers = [[], [], {"id": "p1"}]
    assert await bpmn.perform(START) == Parked("p1")
    assert outside.asked == [
        ("GET", f"{RUNNING}&{OURS}", False, 9.0),
        ("GET", f"{ENDED}&{OURS}", False, 7.5),
        ("POST", "/r/process-definition/key/a%2Fb/start", True, 6.0),
    ]


async def test_a_probe_looks_twice_in_the_time_of_one_call(outside: Outside, bpmn: BpmnConnector) -> None:
    outside.answers = [[], []]
    await bpmn.probe(START, seconds_since_intent=1.0)
    assert [(method, effect, seconds) for method, _, effect, seconds in outside.asked] == [
        ("GET", False, 9.0),
        ("GET", False, 7.5),
    ]


async def test_a_look_that_fails_is_the_last_thing_that_is_asked(outside: Outside, bpmn: BpmnConnector) -> None:
    """A start that cannot look has not begun, so it is no doubt, and the second look is not made after a first."""
    looked: list[list[Any]] = [[], [[]]]
    for failure, told in ((InDoubt("lost"), NotSent("lost")), (NotSent("away", 7.0), NotSent("away", 7.0))):
        for before in looked:
            outside.asked.clear()
            outside.answers = [*before, failure]
            assert await bpmn.perform(START) == told
            assert len(outside.asked) == len(before) + 1
            outside.answers = [*before, failure]
            assert (await bpmn.probe(START, seconds_since_intent=99.0)).evidence == (
                f"the engine could not be asked: {told.message}"
            )


async def test_a_cancel_ends_each_process_in_what_is_left(outside: Outside, bpmn: BpmnConnector) -> None:
    gone = Answer(204, httpx.Headers(), b"", False)
    outside.answers = [[{"id": "p/2", "businessKey": "k/1"}, {"id": "p3", "businessKey": "k/1"}], gone, gone, gone]
    assert await bpmn.cancel(START, "p1") == Done({"canceled": ["p1", "p/2", "p3"]}, "p1")
    assert outside.asked == [
        ("GET", f"{RUNNING}&{OURS}", False, 9.0),
        ("DELETE", "/r/process-instance/p1", True, 7.5),
        ("DELETE", "/r/process-instance/p%2F2", True, 6.0),
        ("DELETE", "/r/process-instance/p3", True, 4.5),
    ]
    outside.answers = [[{"id": "p2", "businessKey": "k/1"}], InDoubt("lost")]
    assert await bpmn.cancel(START, None) == InDoubt("lost")
    outside.answers = [[{"id": "p2", "businessKey": "k/1"}, {"id": "p3", "businessKey": "k/1"}], gone, gone]
    assert await bpmn.cancel(START, None) == Done({"canceled": ["p2", "p3"]}, "p2")
    outside.answers = [[]]
    assert await bpmn.cancel(START, None) == Done({"canceled": []}, None)


@pytest.mark.parametrize(
    ("wait", "seconds"), [(-5.0, 10.0), (0.0, 10.0), (20.0, 30.0), (1800.0, 1810.0), (9999.0, 1810.0)]
)
async def test_a_long_poll_is_waited_for_and_its_answer_may_take_ten_seconds(
    outside: Outside, bpmn: BpmnConnector, wait: float, seconds: float
) -> None:
    outside.answers = [[]]
    await bpmn.completions(wait_seconds=wait)
    assert outside.asked == [("POST", "/r/external-task/fetchAndLock", True, seconds)]
    assert outside.most == [bpmn_connector.ANSWER_BYTES_MAX]


async def test_what_the_engine_is_told_of_a_task_takes_ten_seconds_at_most(
    outside: Outside, bpmn: BpmnConnector
) -> None:
    strangers = [{"id": "t/1"}, {"id": "t2"}, {"nothing": 1}]
    outside.answers = [strangers, {}, Answer(400, httpx.Headers(), b"{}", False), {}]
    assert await bpmn.completions(wait_seconds=0.0) == []
    await bpmn.acknowledge(Completion("t/3", "k", output={}))
    assert outside.asked[1:] == [
        ("POST", "/r/external-task/t%2F1/failure", True, 10.0),
        ("POST", "/r/external-task/t2/failure", True, 10.0),
        ("POST", "/r/external-task/t%2F3/complete", True, 10.0),
    ]
    assert outside.most[1:] == [BODY_BYTES_MAX] * 3
    assert [one["workerId"] for one in outside.bodies] == ["we"] * 4
    assert [one.get("retries") for one in outside.bodies[1:]] == [0, 0, None]


@pytest.mark.parametrize(
    ("status", "body", "gone"),
    [
        (204, b"", True),
        (404, b'{"type": "RestException", "message": "no such task"}', True),
        (404, b"<html>", False),
        (403, b"{}", False),
        (400, b"{}", False),
        (302, b"", False),
    ],
)
async def test_only_a_task_that_is_gone_needs_no_word(
    outside: Outside, bpmn: BpmnConnector, status: int, body: bytes, gone: bool
) -> None:
    """The process still waits after any other answer, and is told again."""
    outside.answers = [Answer(status, httpx.Headers(), body, False)]
    told = bpmn.acknowledge(Completion("t1", "k", output={}))
    if gone:
        await told
    else:
        with pytest.raises(TransportError, match="the external task t1 cannot be completed: the BPMN engine answered"):
            await told
    for failure in (NotSent("away"), InDoubt("lost")):
        outside.answers = [failure]
        with pytest.raises(TransportError, match=failure.message):
            await bpmn.acknowledge(Completion("t1", "k", output={}))


@pytest.mark.parametrize(
    ("key", "values", "code"),
    [
        (None, {"process": "p"}, "no_correlation_key"),
        ("", {"process": "p"}, "no_correlation_key"),
        ("k", {}, "no_process"),
        ("k", {"process": 5}, "no_process"),
        ("k", {"process": ["p"]}, "no_process"),
        ("k", {"process": "p", "variables": {"t": "x" * 4001}}, "invalid_variable"),
        ("", {}, "no_correlation_key"),
    ],
)
async def test_a_start_that_cannot_be_sent_looks_for_nothing(
    outside: Outside, bpmn: BpmnConnector, key: str | None, values: Any, code: str
) -> None:
    found = await bpmn.perform(Call("bpmn.process.start", values, "0" * 64, 9.0, None, key))
    assert isinstance(found, Refused)
    assert (found.code, outside.asked) == (code, [])


@pytest.mark.parametrize("verb", ["cancel", "starts", "message"])
async def test_a_function_that_the_connector_does_not_have_is_refused(
    closing: Callable[[Any], Any], outside: Outside, catalog: Catalog, verb: str
) -> None:
    start = catalog.get("bpmn.process.start")
    own = start.model_copy(update={"name": "bpmn.own.verb", "handler": f"bpmn:{verb}"})
    connector = closing(BpmnConnector(BpmnSettings("http://e.example/r")))
    found = await connector.perform(Call("bpmn.own.verb", {"process": "p"}, "0" * 64, 9.0, None, "k", declared=own))
    assert found == Refused("unknown_handler", f"the BPMN connector has no function {verb!r}")
    assert outside.asked == []


async def test_a_process_is_ours_by_its_key_alone(outside: Outside, bpmn: BpmnConnector) -> None:
    """A process without a key, or with one that begins as ours, is a stranger's."""
    strange: list[Any] = [{"id": "p1"}, {"id": "p2", "businessKey": None}, {"id": "p3", "businessKey": "k/1 "}, "p4"]
    ours: list[Any] = [{"businessKey": "k/1"}, {"id": 5, "businessKey": "k/1"}, {"id": "p6", "businessKey": "k/1"}]
    outside.answers = [strange, [*strange, *ours]]
    found = await bpmn.probe(START, seconds_since_intent=0.0)
    assert found.evidence == "process instance p6 has the business key k/1 and is ACTIVE"
    outside.answers = [strange, strange, {"id": "p7"}]
    assert await bpmn.perform(START) == Parked("p7")


async def test_each_strangers_task_is_refused_wherever_it_stands(outside: Outside, bpmn: BpmnConnector) -> None:
    task = {"id": "t1", "businessKey": "k1", "variables": {}}
    outside.answers = [[task, {"id": "t2"}, {**task, "id": "t3"}, {"id": "t4"}], {}, {}]
    found = await bpmn.completions(wait_seconds=0.0)
    assert [one.id for one in found] == ["t1", "t3"]
    assert [path for _, path, _, _ in outside.asked[1:]] == [
        "/r/external-task/t2/failure",
        "/r/external-task/t4/failure",
    ]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, None),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({"username": "u", "password": ""}, "Basic dTo="),
        ({"username": "", "password": "p"}, "Basic OnA="),
        ({"username": "u"}, ConfigurationError),
        ({"password": "p"}, ConfigurationError),
        ({"username": ""}, ConfigurationError),
        ({"callback_url": ""}, ConfigurationError),
        ({"callback_url": "counterseal.example"}, ConfigurationError),
        ({"callback_url": "https://counterseal.example/c"}, None),
    ],
)
async def test_an_engine_is_asked_as_its_user_and_a_half_of_an_account_is_none(
    catalog: Catalog, closing: Callable[[Any], Any], more: dict[str, Any], told: Any
) -> None:
    """An empty password is one, and an address that is empty is no address."""
    if told is ConfigurationError:
        with pytest.raises(ConfigurationError):
            BpmnConnector(BpmnSettings("http://e.example/r", **more))
        return
    heard: list[Any] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"count": 1})

    connector = closing(BpmnConnector(BpmnSettings("http://e.example/r", **more)))
    connector._client._client._transport = httpx.MockTransport(answer)
    assert (await connector.check())[0]
    assert heard == [told]


async def test_a_message_has_the_time_of_its_call(outside: Outside, bpmn: BpmnConnector) -> None:
    """Ask whom it reached, whatever it names, and tell the first of several."""
    reached = [{"execution": {"id": "e1", "processInstanceId": "p1"}}, {"processInstance": {"id": "p2"}}]
    call = Call("bpmn.message.correlate", {"message": "go"}, "0" * 64, 9.0)
    for answer, told in ((reached, "p1"), (reached[1:], "p2"), (reached[::-1], "p2")):
        outside.answers = [answer]
        assert await bpmn.perform(call) == Done({"process_instance_id": told}, told)
    assert outside.asked == [("POST", "/r/message", True, 9.0)] * 3
    assert outside.bodies == [{"messageName": "go", "processVariables": {}, "resultEnabled": True}] * 3
    silence: list[Any] = [[], [{}], {}, [{"execution": {"id": "e1"}}]]
    for silent in silence:
        outside.answers = [silent]
        assert isinstance(await bpmn.perform(call), InDoubt)
