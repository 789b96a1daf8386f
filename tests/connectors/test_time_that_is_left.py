"""The time of a call, shared by all that it asks outside: each exchange has what the earlier ones left."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from connectors.bpmn import client as bpmn_client
from connectors.bpmn import connector as bpmn_connector
from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.exchange import BODY_BYTES_MAX, Answer
from connectors.model import connector as model_connector
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Before, Call, Completion, Done, InDoubt, NotSent, Parked
from connectors.servicenow import client as servicenow_client
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector

pytestmark = pytest.mark.req("Q-18")

ID = "a" * 32
ENDED = "/r/history/process-instance?processInstanceBusinessKey=k%2F1&sortBy=startTime&sortOrder=asc"
RUNNING = "/r/process-instance?businessKey=k%2F1"
OURS = "processDefinitionKey=a%2Fb&rootProcessInstances=true"
START = Call("bpmn.process.start", {"process": "a/b"}, "0" * 64, 9.0, None, "k/1")


class Outside:
    """An outside system that takes a second and a half for each answer. What it is asked is noted with its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 100.0
        self.answers: list[Any] = []
        self.asked: list[tuple[str, str, bool, float]] = []
        self.most: list[int] = []
        for module in (bpmn_client, model_connector, servicenow_client):
            monkeypatch.setattr(module, "exchange", self._exchange)
        for module in (bpmn_connector, servicenow_client):
            monkeypatch.setattr(module, "deadline_in", lambda seconds: self.passed + seconds)
            monkeypatch.setattr(module, "seconds_to", lambda deadline: deadline - self.passed)

    async def _exchange(
        self, _: Any, request: httpx.Request, *, effect: bool, timeout_seconds: float, body_bytes_max: int = 0
    ) -> Any:
        self.asked.append((request.method, request.url.raw_path.decode(), effect, timeout_seconds))
        self.most.append(body_bytes_max)
        self.passed += 1.5
        answer = self.answers.pop(0)
        if isinstance(answer, NotSent | InDoubt | Answer):
            return answer
        return Answer(200, httpx.Headers(), json.dumps(answer).encode(), False)


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Outside:
    return Outside(monkeypatch)


@pytest.fixture
def bpmn(catalog: Catalog, closing: Callable[[Any], Any]) -> BpmnConnector:
    built: BpmnConnector = closing(BpmnConnector(BpmnSettings("http://e.example/r", worker_id="we"), catalog))
    return built


@pytest.fixture
def servicenow(catalog: Catalog, closing: Callable[[Any], Any]) -> ServiceNowConnector:
    settings = ServiceNowSettings("http://s.example", BasicAuth("bot", "pw"))
    built: ServiceNowConnector = closing(ServiceNowConnector(settings, catalog))
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
    for failure, told in ((InDoubt("lost"), NotSent("lost")), (NotSent("away", 7.0), NotSent("away", 7.0))):
        for before in ([], [[]]):
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


async def test_a_message_has_the_time_of_its_call(outside: Outside, bpmn: BpmnConnector) -> None:
    outside.answers = [[{"execution": {"id": "e1", "processInstanceId": "p1"}}]]
    call = Call("bpmn.message.correlate", {"message": "go"}, "0" * 64, 9.0)
    assert await bpmn.perform(call) == Done({"process_instance_id": "p1"}, "p1")
    assert outside.asked == [("POST", "/r/message", True, 9.0)]


TABLE = "/api/now/table/incident"
RAW = "sysparm_display_value=false&sysparm_exclude_reference_link=true"
RECORD = {"sys_id": ID, "sys_mod_count": "5"}


@pytest.mark.parametrize(
    ("operation", "values", "asked"),
    [
        ("get", {"sys_id": ID, "fields": ["number"]}, ("GET", f"{TABLE}/{ID}?{RAW}&sysparm_fields=number", False)),
        (
            "query",
            {"query": "", "limit": 100, "fields": ["number"]},
            (
                "GET",
                f"{TABLE}?{RAW}&sysparm_query=&sysparm_limit=100&sysparm_offset=0&sysparm_fields=number",
                False,
            ),
        ),
        ("update", {"sys_id": ID, "fields": {"priority": "1"}}, ("PATCH", f"{TABLE}/{ID}?{RAW}", True)),
        ("update", {"sys_id": ID, "fields": {}}, ("PATCH", f"{TABLE}/{ID}?{RAW}", True)),
    ],
)
async def test_a_record_is_read_or_written_in_the_time_of_the_call(
    outside: Outside, servicenow: ServiceNowConnector, operation: str, values: dict[str, Any], asked: Any
) -> None:
    """A write is one even if it writes nothing: its answer may be lost, and a business rule may have run."""
    outside.answers = [{"result": [] if operation == "query" else RECORD}]
    assert isinstance(await servicenow.perform(Call(f"servicenow.incident.{operation}", values, "0" * 64, 9.0)), Done)
    assert outside.asked == [(*asked, 9.0)]
    outside.answers = [InDoubt("lost")]
    told = InDoubt("lost") if asked[2] else NotSent("lost")
    assert await servicenow.perform(Call(f"servicenow.incident.{operation}", values, "0" * 64, 9.0)) == told


async def test_what_is_read_before_and_after_a_write_is_only_read(
    outside: Outside, servicenow: ServiceNowConnector
) -> None:
    values = {"sys_id": ID, "work_notes": "x"}
    call = Call("servicenow.incident.add_work_note", values, "0" * 64, 9.0, Before({}, "5"))
    outside.answers = [{"result": RECORD}] * 2 + [{"result": []}]
    await servicenow.read_before(call)
    await servicenow.probe(call, seconds_since_intent=1.0)
    assert [(method, effect, seconds) for method, _, effect, seconds in outside.asked] == [("GET", False, 9.0)] * 3
    outside.answers = [InDoubt("lost")]
    assert await servicenow.read_before(call) == NotSent("lost")


async def test_a_chat_has_the_time_of_its_call_and_its_loss_is_no_doubt(
    outside: Outside, closing: Callable[[Any], Any]
) -> None:
    connector = closing(ModelConnector(ModelSettings("http://m.example/v1/", "sk")))
    call = Call("model.chat.complete", {"model": "m", "prompt": "hi"}, "0" * 64, 9.0)
    outside.answers = [{"choices": [{"message": {"content": "yes"}}]}, InDoubt("lost"), []]
    assert isinstance(await connector.perform(call), Done)
    assert await connector.perform(call) == NotSent("lost")
    assert await connector.perform(call) == NotSent("the model's answer holds no choice")
    assert outside.asked == [("POST", "/v1/chat/completions", False, 9.0)] * 3


async def test_a_check_takes_ten_seconds_at_most(
    outside: Outside, bpmn: BpmnConnector, servicenow: ServiceNowConnector, closing: Callable[[Any], Any]
) -> None:
    connector = closing(ModelConnector(ModelSettings("http://m.example/v1/", "sk")))
    outside.answers = [{"count": 0}, {"result": []}, {"data": []}]
    for one in (bpmn, servicenow, connector):
        assert (await one.check())[0]
    assert [(method, effect, seconds) for method, _, effect, seconds in outside.asked] == [("GET", False, 10.0)] * 3
