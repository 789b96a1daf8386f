"""The words of the bpmn connector as they go over the wire: whole requests, and what comes of whole answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.bpmn import connector as connector_module
from connectors.bpmn.client import INTEGER_MAX, MESSAGE_LENGTH, TEXT_LENGTH_MAX, BpmnSettings, items, plain, typed
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.port import Completion, Done, Parked, Probe, ProbeVerdict, Refused
from core import bounded_json
from core.errors import InputError, TransportError
from tests.support.calls import Call

OURS = {"processDefinitionKey": "onboard", "rootProcessInstances": "true"}
RUNNING = ("GET", "/r/process-instance", {"businessKey": "k/1"} | OURS, "")
PAST = {"processInstanceBusinessKey": "k/1", "sortBy": "startTime", "sortOrder": "asc"} | OURS
ENDED = ("GET", "/r/history/process-instance", PAST, "")
GONE = {"type": "RestException", "message": "no such process"}


@pytest.fixture
def at(catalog: Catalog, closing: Callable[[Any], Any], wire: Any) -> Callable[..., BpmnConnector]:
    def make(**more: Any) -> BpmnConnector:
        connector: BpmnConnector = closing(BpmnConnector(BpmnSettings(f"{wire.url}/r", **more)))
        return connector

    return make


def start(**variables: Any) -> Call:
    return Call("bpmn.process.start", {"process": "onboard", "variables": variables}, "0" * 64, 5.0, None, "k/1")


async def test_a_start_asks_first_and_says_all(at: Any, wire: Any) -> None:
    """A variable of ours outranks one of the same name that the caller gives."""
    wire.say([], [], {"id": "p1"})
    callback = "https://us.example/c"
    given = {"n": 1, "client": "Acme", "parts": ["ü"], "counterseal_correlation_key": "another"}
    outcome = await at(callback_url=f"{callback}/", username="u", password="p").perform(start(**given))
    assert outcome == Parked("p1")
    variables = {
        "n": {"value": 1, "type": "Integer"},
        "client": {"value": "Acme", "type": "String"},
        "parts": {"value": '["ü"]', "type": "Json"},
        "counterseal_correlation_key": {"value": "k/1", "type": "String"},
        "counterseal_callback_url": {"value": f"{callback}/v1/signals/k%2F1", "type": "String"},
    }
    begun: Any = ("POST", "/r/process-definition/key/onboard/start", {}, {"businessKey": "k/1", "variables": variables})
    assert wire.lines() == [RUNNING, ENDED, begun]
    assert {one["headers"]["authorization"] for one in wire.heard} == {"Basic dTpw"}


async def test_of_several_the_first_that_is_told_is_the_process(at: Any, wire: Any) -> None:
    """Rows with another key are a stranger's, whatever the engine makes of the query."""
    other = {"id": "p0", "businessKey": "k"}
    past = [other, {"id": "p1", "businessKey": "k/1", "state": "COMPLETED"}, {"id": "p2", "businessKey": "k/1"}]
    wire.say([other], past, [other, past[1], past[2]])
    words = "process instance p1 has the business key k/1 and is COMPLETED"
    found = await at().probe(start(), seconds_since_intent=0)
    assert found == Probe(ProbeVerdict.APPLIED, words, Done({}, "p1"))
    assert await at().perform(start()) == Parked("p1")
    assert wire.lines() == [RUNNING, ENDED, RUNNING]


@pytest.mark.parametrize(("seconds", "again"), [(59.5, 1.5), (60.0, None)])
async def test_what_is_nowhere_may_be_about_to_start(at: Any, wire: Any, seconds: float, again: float | None) -> None:
    wire.say([], [])
    probe = await at().probe(start(), seconds_since_intent=seconds)
    assert probe.verdict is (ProbeVerdict.NOT_APPLIED if again is None else ProbeVerdict.CANNOT_TELL)
    assert probe.retry_after_seconds == again


async def test_a_cancel_ends_what_is_known_and_what_is_found(at: Any, wire: Any) -> None:
    wire.say([{"id": "p2", "businessKey": "k/1"}, {"id": "p/1", "businessKey": "k/1"}])
    wire.say(GONE, status=404)
    wire.say({})
    assert await at().cancel(start(), "p/1") == Done({"canceled": ["p2"]}, "p/1")
    ended: Any = [("DELETE", f"/r/process-instance/{name}", {}, "") for name in ("p/1", "p2")]
    assert wire.lines() == [RUNNING, *ended]


@pytest.mark.parametrize(
    ("seconds", "asked"),
    [(0.0, {}), (-1.0, {}), (0.0001, {"asyncResponseTimeout": 1}), (9999.0, {"asyncResponseTimeout": 1800000})],
)
async def test_tasks_are_fetched_ten_at_a_time_for_a_minute(
    at: Any, wire: Any, seconds: float, asked: dict[str, Any]
) -> None:
    wire.say([])
    assert await at(topic="done", worker_id="we").completions(wait_seconds=seconds) == []
    topic = {"topicName": "done", "lockDuration": 60000, "deserializeValues": False}
    body = {"workerId": "we", "maxTasks": 10, "topics": [topic], **asked}
    assert wire.lines() == [("POST", "/r/external-task/fetchAndLock", {}, body)]


@pytest.mark.parametrize(("most", "fits"), [(12, False), (13, True), (14, True)])
async def test_tasks_may_be_longer_than_other_answers(
    at: Any, wire: Any, monkeypatch: pytest.MonkeyPatch, most: int, fits: bool
) -> None:
    """The answer's own limit counts while it is read, and when it is parsed."""
    monkeypatch.setattr(connector_module, "ANSWER_BYTES_MAX", most)
    wire.say([{"id": "t1"}])
    if fits:
        wire.say({})
        assert await at().completions(wait_seconds=0) == []
        return
    words = "the BPMN engine's external tasks cannot be fetched: the BPMN engine's answer is longer than 12 bytes"
    with pytest.raises(TransportError) as caught:
        await at().completions(wait_seconds=0)
    assert str(caught.value) == f"{words}; ask for less."


async def test_each_task_is_one_completion_and_a_strangers_is_refused(at: Any, wire: Any) -> None:
    def task(name: str, key: str | None, **variables: Any) -> dict[str, Any]:
        named = {name: {"value": value} for name, value in variables.items()}
        return {"id": name, "businessKey": key, "variables": named}

    wire.say(
        [
            task("t/0", None),
            task("t1", "k1", ok=True, counterseal_callback_url="x", counterseal_correlation_key="k9"),
            task("t2", None, counterseal_correlation_key="k2"),
            task("t3", "k3", counterseal_error="rejected", ok=False),
            task("t4", "k4", counterseal_error=""),
        ],
        {},
        {},
    )
    connector = at()
    found = await connector.completions(wait_seconds=0)
    untold = {"code": "process_error", "message": "the process reported an error without a text"}
    assert found == [
        Completion("t1", "k1", output={"ok": True}),
        Completion("t2", "k2", output={}),
        Completion("t3", "k3", error={"code": "process_error", "message": "rejected"}),
        Completion("t4", "k4", error=untold),
    ]
    await connector.acknowledge(found[0])
    message = "This process has no business key that Counterseal could know: it was not started by Counterseal."
    refused = {"workerId": "counterseal", "errorMessage": message, "retries": 0, "retryTimeout": 0}
    assert wire.lines()[1:] == [
        ("POST", "/r/external-task/t/0/failure", {}, refused),
        ("POST", "/r/external-task/t1/complete", {}, {"workerId": "counterseal"}),
    ]


@pytest.mark.parametrize(
    "result",
    [{"execution": {"processInstanceId": "p1"}, "processInstance": {"id": "p2"}}, {"processInstance": {"id": "p1"}}],
)
async def test_a_message_says_all_and_asks_whom_it_reached(at: Any, wire: Any, result: Any) -> None:
    wire.say([result])
    values = {"message": "go", "business_key": "b", "process_instance_id": "p1", "variables": {"x": None}}
    outcome = await at().perform(Call("bpmn.message.correlate", values, "0" * 64, 5.0))
    assert outcome == Done({"process_instance_id": "p1"}, "p1")
    body = {"messageName": "go", "businessKey": "b", "processInstanceId": "p1", "resultEnabled": True}
    assert wire.lines() == [
        ("POST", "/r/message", {}, body | {"processVariables": {"x": {"value": None, "type": "Null"}}})
    ]


@pytest.mark.parametrize(
    ("status", "error", "code", "words"),
    [
        (400, {"message": "x" * 600}, "invalid", "x" * MESSAGE_LENGTH),
        (401, {}, "unauthorized", "without an explanation"),
        (403, {}, "forbidden", "without an explanation"),
        (404, GONE, "not_found", "no such process"),
        (404, {"type": "InvalidRequestException", "message": "none"}, "not_found", "none"),
        (
            404,
            {"type": "Other", "message": "x"},
            "no_engine",
            "there is no engine at this address (x); check COUNTERSEAL_BPMN_URL",
        ),
        (307, {}, "http_307", "it redirects elsewhere, which is not followed; check COUNTERSEAL_BPMN_URL"),
        (405, {}, "not_allowed", "without an explanation"),
        (418, {}, "http_418", "without an explanation"),
    ],
)
async def test_refusals_have_a_code_and_the_engines_words(
    at: Any, wire: Any, status: int, error: Any, code: str, words: str
) -> None:
    wire.say(error, status=status)
    outcome = await at().perform(start())
    assert outcome == Refused(code, f"the BPMN engine answered {status}: {words}")


def test_values_have_the_types_that_hold_them() -> None:
    assert typed({"a": INTEGER_MAX, "b": -INTEGER_MAX, "c": INTEGER_MAX + 1, "d": True, "e": 1.0}) == {
        "a": {"value": INTEGER_MAX, "type": "Integer"},
        "b": {"value": -INTEGER_MAX, "type": "Integer"},
        "c": {"value": INTEGER_MAX + 1, "type": "Long"},
        "d": {"value": True, "type": "Boolean"},
        "e": {"value": 1.0, "type": "Double"},
    }
    assert typed({"t": "x" * TEXT_LENGTH_MAX})
    assert typed({"t": "\u00fc" * TEXT_LENGTH_MAX})
    listed: Any = typed({"l": ["x"] * (TEXT_LENGTH_MAX + 1)})
    assert listed["l"]["type"] == "Json", "a list has a column without an end"
    assert [items(value) for value in ({"a": 1}, [{"a": 1}], "a", None, 1)] == [{"a": 1}, {}, {}, {}, {}]
    with pytest.raises(InputError, match=f"holds {TEXT_LENGTH_MAX + 1} characters"):
        typed({"t": "x" * (TEXT_LENGTH_MAX + 1)})


def test_variables_are_read_as_json_where_they_are_json() -> None:
    kept = {"objectTypeName": "x", "serializationDataFormat": "application/json"}
    other = {"serializationDataFormat": "application/xml"}
    found = {
        "a": {"value": "[1]", "type": "Json"},
        "b": {"value": '{"x": 2}', "type": "Object", "valueInfo": kept},
        "c": {"value": "[1]", "type": "Object", "valueInfo": other},
        "d": {"value": "[1]", "type": "String", "valueInfo": kept},
        "e": {"value": None, "type": "File"},
        "counterseal_x": {"value": "ours"},
    }
    assert plain(found) == {"a": [1], "b": {"x": 2}, "c": "[1]", "d": "[1]", "e": None}
    for empty in ("", " ", "{"):
        with pytest.raises(InputError, match=r"^variables\.j: "):
            plain({"j": {"value": empty, "type": "Json"}})
    assert plain({"s": {"value": "", "type": "String"}, "j": {"value": "null", "type": "Json"}}) == {"s": "", "j": None}
    for name in ("counterseal", "Counterseal_x", "COUNTERSEAL_X", "x_counterseal_", "_counterseal_x"):
        assert plain({name: {"value": "the process's"}}) == {name: "the process's"}
    most = bounded_json.BODY_BYTES_MAX - len('{"a":""}')
    assert plain({"a": {"value": "x" * most}})
    with pytest.raises(InputError, match="bytes long"):
        plain({"a": {"value": "x" * (most + 1)}})
