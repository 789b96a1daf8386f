"""Whole sentences of checks, as ``counterseal doctor`` shows them, and whole probes of each outside system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Before, Done, InDoubt, NotSent, Parked, Probe, ProbeVerdict, Refused
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from connectors.slack.connector import SlackConnector, SlackSettings
from tests.connectors.conftest import KEY
from tests.support.calls import Call

ID = "a" * 32
At = Callable[..., Any]


@pytest.fixture
def at(catalog: Catalog, closing: Callable[[Any], Any], wire: Any) -> At:
    """One connector of each system, at the wire."""

    def make(system: str) -> Any:
        basic, oauth = BasicAuth("bot", "pw"), ClientCredentials("cid", "secret")
        built: dict[str, Callable[[], Any]] = {
            "servicenow": lambda: ServiceNowConnector(ServiceNowSettings(wire.url, basic)),
            "oauth": lambda: ServiceNowConnector(ServiceNowSettings(wire.url, oauth)),
            "slack": lambda: SlackConnector(SlackSettings("xoxb", f"{wire.url}/api/")),
            "model": lambda: ModelConnector(ModelSettings(f"{wire.url}/v1", "sk")),
            "bpmn": lambda: BpmnConnector(BpmnSettings(f"{wire.url}/rest")),
        }
        return closing(built[system]())

    return make


NAMELESS = "reachable and authorised; name the integration user, or a probe cannot tell our writes"
ASK = "Check COUNTERSEAL_BPMN_URL and its credentials."
REST = "answers, but not as the Camunda 7 REST API does; check COUNTERSEAL_BPMN_URL"
TOKEN = {"access_token": "t", "expires_in": 99}


@pytest.mark.parametrize(
    ("system", "answers", "status", "told"),
    [
        ("servicenow", [{"result": []}], 200, (True, "reachable and authorised as bot")),
        ("oauth", [TOKEN, {"result": []}], 200, (True, NAMELESS)),
        ("oauth", [{"error": "x"}], 401, (False, "ServiceNow refused the OAuth client (HTTP 401)")),
        ("oauth", [{"expires_in": 9}], 200, (False, "ServiceNow's OAuth answer holds no access_token")),
        ("oauth", [{"access_token": ""}], 200, (False, "ServiceNow's OAuth answer holds no access_token")),
        ("oauth", ["x"], 200, (False, "no OAuth token: ServiceNow's answer is not a JSON object")),
        ("oauth", ["x"], 503, (False, "no OAuth token: POST 127.0.0.1: the server failed (503)")),
        ("servicenow", [{}], 200, (False, "ServiceNow answered without a result list")),
        ("servicenow", ["x"], 200, (False, "ServiceNow's answer is not a JSON object")),
        ("servicenow", [{"error": {"message": "no"}}], 401, (False, "ServiceNow answered 401: no")),
        ("slack", [{"ok": True, "user": "cs", "team": "Acme"}], 200, (True, "authorised as cs in Acme")),
        ("slack", [{"ok": False, "error": "invalid_auth"}], 200, (False, "Slack refused: invalid_auth")),
        ("slack", ["x"], 503, (False, "Slack failed (HTTP 503, unknown_error)")),
        ("model", [{"data": []}], 200, (True, "reachable and authorised")),
        ("model", [{"error": {"message": "bad key"}}], 401, (False, "the model API answered 401: bad key")),
        ("model", [{"error": {"message": "m"}}], 403, (False, "the model API answered 403: m")),
        ("model", [{"error": {"message": "m"}}], 404, (False, "the model API answered 404: m")),
        ("model", [{"error": {"message": "m"}}], 302, (False, "the model API answered 302: m")),
        ("servicenow", [{"error": {"message": "no"}}], 403, (False, "ServiceNow answered 403: no")),
        ("bpmn", [{}], 403, (False, f"the BPMN engine answered 403: without an explanation. {ASK}")),
        ("model", [{}], 503, (False, "GET 127.0.0.1: the server failed (503)")),
        ("bpmn", [{"count": 3}], 200, (True, "reachable and authorised; 3 process definitions can be seen")),
        ("bpmn", [{"count": "3"}], 200, (False, REST)),
        ("bpmn", [[3]], 200, (False, REST)),
        ("bpmn", [{}], 401, (False, f"the BPMN engine answered 401: without an explanation. {ASK}")),
        ("bpmn", [{}], 503, (False, f"GET 127.0.0.1: the server failed (503). {ASK}")),
    ],
)
async def test_a_check_is_one_sentence(
    at: At, wire: Any, system: str, answers: list[Any], status: int, told: tuple[bool, str]
) -> None:
    wire.say(*answers, status=status)
    assert await at(system).check() == told


async def test_a_check_asks_for_little(at: At, wire: Any) -> None:
    wire.say({"result": []}, {"ok": True}, {"data": []}, {"count": 1})
    for system in ("servicenow", "slack", "model", "bpmn"):
        await at(system).check()
    asked = [(one["method"], one["path"], one["query"]) for one in wire.heard]
    raw = {"sysparm_display_value": "false", "sysparm_exclude_reference_link": "true", "sysparm_query": ""}
    assert asked == [
        (
            "GET",
            "/api/now/table/incident",
            raw | {"sysparm_limit": "1", "sysparm_offset": "0", "sysparm_fields": "sys_id"},
        ),
        ("POST", "/api/auth.test", {}),
        ("GET", "/v1/models", {}),
        ("GET", "/rest/process-definition/count", {"latestVersion": "true"}),
    ]


NOTE = {"sys_id": ID, "work_notes": "x"}
START: dict[str, Any] = {"process": "p", "variables": {}}
CHANNEL = "the channel could not be read"
RECORD = {"sys_id": ID, "sys_mod_count": "5"}


@pytest.mark.parametrize(
    ("system", "operation", "values", "answers", "status", "evidence", "again"),
    [
        (
            *("servicenow", "incident.update", {"sys_id": ID, "fields": {"state": "2"}}, [{}], 503),
            *("the record could not be read: GET 127.0.0.1: the server failed (503)", 15.0),
        ),
        (
            *("servicenow", "incident.update", {"sys_id": ID, "fields": {"state": "2"}}, [{}], 403),
            *("the record could not be read: ServiceNow answered 403: without an explanation", None),
        ),
        (
            *("servicenow", "incident.add_work_note", NOTE, [{"result": RECORD}, {}], 200),
            *("the record's journal could not be read: ServiceNow answered without a result list", 15.0),
        ),
        (
            *("slack", "message.post", {"channel": "C1", "text": "t"}, [{"ok": False, "error": "not_in_channel"}], 200),
            *(f"{CHANNEL}: Slack refused: not_in_channel", None),
        ),
        (
            *("slack", "message.post", {"channel": "C1", "text": "t"}, [{"ok": False, "error": "ratelimited"}], 200),
            *(f"{CHANNEL}: Slack asks to call later (ratelimited)", 15.0),
        ),
        (
            *("bpmn", "process.start", START, [{}], 503),
            *("the engine could not be asked: GET 127.0.0.1: the server failed (503)", 15.0),
        ),
        (
            *("bpmn", "process.start", START, [{}], 200),
            *("the engine could not be asked: the BPMN engine answered without a list of processes", 15.0),
        ),
        (
            *("bpmn", "process.start", START, [{"message": "no"}], 403),
            *("the engine could not be asked: the BPMN engine answered 403: no", None),
        ),
        (
            *("bpmn", "message.correlate", {"message": "m"}, [], 200),
            *("the engine has no record of messages that could be asked for", None),
        ),
    ],
)
async def test_a_probe_that_cannot_tell_says_why(
    at: At,
    wire: Any,
    system: str,
    operation: str,
    values: dict[str, Any],
    answers: list[Any],
    status: int,
    evidence: str,
    again: float | None,
) -> None:
    wire.say(*answers, status=status)
    call = Call(f"{system}.{operation}", values, KEY, 5.0, Before({}, "5"), "corr-1")
    probe = await at(system).probe(call, seconds_since_intent=999)
    assert probe == Probe(ProbeVerdict.CANNOT_TELL, evidence, None, again)


@pytest.mark.parametrize(
    ("ours", "ended", "told"),
    [
        (
            "corr-1",
            [],
            Probe(
                ProbeVerdict.APPLIED, "process instance p1 has the business key corr-1 and is ACTIVE", Done({}, "p1")
            ),
        ),
        (
            "other",
            [],
            Probe(
                ProbeVerdict.NOT_APPLIED,
                "61 s after the intent no process, running or ended, has the business key corr-1",
            ),
        ),
        (
            "other",
            [{"id": "p2", "businessKey": "corr-1", "state": "COMPLETED"}],
            Probe(
                ProbeVerdict.APPLIED, "process instance p2 has the business key corr-1 and is COMPLETED", Done({}, "p2")
            ),
        ),
    ],
)
async def test_a_process_is_found_by_its_key_alone(at: At, wire: Any, ours: str, ended: Any, told: Probe) -> None:
    wire.say([{"id": "p1", "businessKey": ours}])
    if ours != "corr-1":
        wire.say(ended)
    call = Call("bpmn.process.start", START, KEY, 5.0, None, "corr-1")
    assert await at("bpmn").probe(call, seconds_since_intent=61) == told


@pytest.mark.parametrize(
    ("operation", "values", "key", "answers", "told"),
    [
        (
            "process.start",
            START,
            None,
            [],
            Refused("no_correlation_key", "bpmn.process.start needs a correlation key, and the call has none"),
        ),
        (
            "process.start",
            {"process": 7},
            "k",
            [],
            Refused("no_process", "bpmn.process.start names no process; its input needs the text `process`"),
        ),
        (
            "process.start",
            START,
            "k",
            [[], [], {}],
            InDoubt("the BPMN engine answered the start of a process without its id"),
        ),
        ("process.start", START, "k", [[], [], {"id": "p9"}], Parked("p9")),
        ("process.start", START, "k", [[], [{"id": "p8", "businessKey": "k"}]], Parked("p8")),
        ("process.start", START, "k", [{}], NotSent("the BPMN engine answered without a list of processes")),
        (
            "message.correlate",
            {"message": "m"},
            None,
            [[{}]],
            InDoubt("the BPMN engine did not say which process the message was correlated with"),
        ),
        (
            "message.correlate",
            {"message": "m"},
            None,
            [[]],
            InDoubt("the BPMN engine did not say which process the message was correlated with"),
        ),
    ],
)
async def test_what_comes_of_an_engines_answers(
    at: At, wire: Any, operation: str, values: Any, key: str | None, answers: list[Any], told: Any
) -> None:
    wire.say(*answers)
    assert await at("bpmn").perform(Call(f"bpmn.{operation}", values, KEY, 5.0, None, key)) == told


@pytest.mark.parametrize("operation", ["process.start", "message.correlate"])
async def test_a_variable_that_is_too_long_is_named(at: At, operation: str) -> None:
    values: dict[str, Any] = {"process": "p", "message": "m", "variables": {"note": "x" * 4001}}
    words = (
        "variables.note: holds 4001 characters; the engine keeps 4000 of a text. Put the text into an object or a list."
    )
    outcome = await at("bpmn").perform(Call(f"bpmn.{operation}", values, KEY, 5.0, None, "k"))
    assert outcome == Refused("invalid_variable", words)
