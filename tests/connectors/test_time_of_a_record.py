"""The time of a call to ServiceNow or to a model, and what is empty in their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.exchange import Answer
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Before, Done, InDoubt, NotSent, Probe, ProbeVerdict, Refused
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from tests.support.calls import Call
from tests.support.exchanged import Outside

pytestmark = pytest.mark.req("Q-18")

ID = "a" * 32


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Outside:
    return Outside(monkeypatch)


@pytest.fixture
def servicenow(catalog: Catalog, closing: Callable[[Any], Any]) -> ServiceNowConnector:
    settings = ServiceNowSettings("http://s.example", BasicAuth("bot", "pw"))
    built: ServiceNowConnector = closing(ServiceNowConnector(settings))
    return built


TABLE = "/api/now/table/incident"
RAW = "sysparm_display_value=false&sysparm_exclude_reference_link=true"
RECORD: Any = {"sys_id": ID, "sys_mod_count": "5"}


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
    assert outside.bodies == [values["fields"] if asked[2] else ""]
    outside.answers = [InDoubt("lost")]
    told = InDoubt("lost") if asked[2] else NotSent("lost")
    assert await servicenow.perform(Call(f"servicenow.incident.{operation}", values, "0" * 64, 9.0)) == told


@pytest.mark.parametrize("note", ["x", "", " ", "a\nb"])
async def test_every_note_bears_its_mark(outside: Outside, servicenow: ServiceNowConnector, note: str) -> None:
    """A note without words, too: its mark is all that a probe could find of it."""
    outside.answers = [{"result": RECORD}]
    values: Any = {"sys_id": ID, "fields": {"work_notes": note, "comments": note, "state": ""}}
    await servicenow.perform(Call("servicenow.incident.update", values, "0123456789abcdef" + "f" * 48, 9.0))
    marked = f"{note}\n[counterseal:0123456789abcdef]"
    assert outside.bodies == [{"work_notes": marked, "comments": marked, "state": ""}]


async def test_what_is_read_before_and_after_a_write_is_only_read(
    outside: Outside, servicenow: ServiceNowConnector
) -> None:
    values: Any = {"sys_id": ID, "work_notes": "x"}
    call = Call("servicenow.incident.add_work_note", values, "0" * 64, 9.0, Before({}, "5"))
    outside.answers = [{"result": RECORD}] * 2 + [{"result": []}]
    await servicenow.read_before(call)
    await servicenow.probe(call, seconds_since_intent=1.0)
    assert [(method, effect, seconds) for method, _, effect, seconds in outside.asked] == [("GET", False, 9.0)] * 3
    outside.answers = [InDoubt("lost")]
    assert await servicenow.read_before(call) == NotSent("lost")


@pytest.mark.parametrize(
    ("given", "limit", "offset"),
    [
        ({"limit": 250}, "250", "0"),
        ({"limit": 100, "offset": 0}, "100", "0"),
        ({"limit": 101, "offset": 3}, "101", "3"),
        ({"limit": 2}, "2", "0"),
    ],
)
async def test_a_page_of_records_is_asked_for_as_it_was_given_and_counts_itself(
    outside: Outside, servicenow: ServiceNowConnector, given: dict[str, Any], limit: str, offset: str
) -> None:
    rows = [RECORD, {**RECORD, "sys_id": "b" * 32}]
    outside.answers = [{"result": rows}]
    values = {"query": "a=b", **given}
    done = await servicenow.perform(Call("servicenow.incident.query", values, "0" * 64, 45.0))
    assert done == Done({"records": rows, "count": 2, "truncated": given["limit"] == 2})
    [(_, path, _, seconds)] = outside.asked
    assert path == f"{TABLE}?{RAW}&sysparm_query=a%3Db&sysparm_limit={limit}&sysparm_offset={offset}"
    assert seconds == 45.0


@pytest.mark.parametrize("version", ["", "0", "5", None])
@pytest.mark.parametrize("priority", ["", "1"])
async def test_what_is_empty_in_a_record_is_read_as_it_is(
    outside: Outside, servicenow: ServiceNowConnector, version: str | None, priority: str
) -> None:
    """A field that is empty can be restored to nothing, and one that is not there cannot."""
    outside.answers = [{"result": {"sys_id": ID, "priority": priority, "sys_mod_count": version}}]
    fields: Any = {"priority": "2", "state": "3"}
    call = Call("servicenow.incident.update", {"sys_id": ID, "fields": fields}, "0" * 64, 9.0)
    facts: Any = {"sys_id": ID, "sys_mod_count": version}
    assert await servicenow.read_before(call) == Before({"priority": priority}, version, facts)


async def test_fields_as_intended_prove_nothing_of_a_note_that_is_not_there(
    outside: Outside, servicenow: ServiceNowConnector
) -> None:
    """The count went up by one, by us, and the fields hold what was to be written; another call of ours may have."""
    fields: Any = {"priority": "2", "work_notes": "x"}
    call = Call("servicenow.incident.update", {"sys_id": ID, "fields": fields}, "0" * 64, 9.0, Before({}, "5"))
    record = {"sys_id": ID, "priority": "2", "sys_mod_count": "6", "sys_updated_by": "bot"}
    outside.answers = [{"result": record}, {"result": []}]
    found = await servicenow.probe(call, seconds_since_intent=99.0)
    assert found.verdict is ProbeVerdict.CANNOT_TELL
    assert found.evidence.endswith("yet no journal entry that our user can see bears this action's mark")
    plain = replace(call, input={"sys_id": ID, "fields": {"priority": "2"}})
    outside.answers = [{"result": record}]
    assert (await servicenow.probe(plain, seconds_since_intent=99.0)).verdict is ProbeVerdict.APPLIED


async def test_a_chat_has_the_time_of_its_call_and_its_loss_is_no_doubt(
    outside: Outside, closing: Callable[[Any], Any]
) -> None:
    connector = closing(ModelConnector(ModelSettings("http://m.example/v1/", "sk")))
    call = Call("model.chat.complete", {"model": "m", "prompt": "hi"}, "0" * 64, 9.0)
    outside.answers = [{"choices": [{"message": {"content": "yes"}}]}, InDoubt("lost"), [{"message": {"content": "x"}}]]
    assert isinstance(await connector.perform(call), Done)
    assert await connector.perform(call) == NotSent("lost")
    assert await connector.perform(call) == NotSent("the model's answer holds no choice")
    assert outside.asked == [("POST", "/v1/chat/completions", False, 9.0)] * 3


async def test_a_chat_can_be_repeated_from_the_beginning(closing: Callable[[Any], Any]) -> None:
    connector = closing(ModelConnector(ModelSettings("http://m.example/v1/", "sk")))
    call = Call("model.chat.complete", {"model": "m", "prompt": "hi"}, "0" * 64, 9.0)
    again = Probe(ProbeVerdict.NOT_APPLIED, "model.chat.complete changes nothing outside, so it can be repeated")
    for seconds in (0.0, 9.0, 99.0):
        assert await connector.probe(call, seconds_since_intent=seconds) == again


@pytest.mark.parametrize(("scope", "more"), [(None, ""), ("", ""), ("a b", "&scope=a+b")])
async def test_a_token_is_asked_for_with_a_scope_only_if_one_is_set(
    outside: Outside, catalog: Catalog, closing: Callable[[Any], Any], scope: Any, more: str
) -> None:
    settings = ServiceNowSettings("http://s.example", ClientCredentials("cid", "secret", scope))
    connector = closing(ServiceNowConnector(settings))
    outside.answers = [{"access_token": "t", "expires_in": 99}, {"result": RECORD}]
    get = Call("servicenow.incident.get", {"sys_id": ID}, "0" * 64, 9.0)
    # The wait for a token is measured by the loop's own clock, which is not the one of this test.
    outside.passed = asyncio.get_running_loop().time()
    assert isinstance(await connector.perform(get), Done)
    assert outside.bodies[0] == f"grant_type=client_credentials&client_id=cid&client_secret=secret{more}"
    assert [seconds for *_, seconds in outside.asked] == pytest.approx([9.0, 7.5])


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_only_a_token_that_is_not_known_is_fetched_anew(
    outside: Outside, catalog: Catalog, closing: Callable[[Any], Any], status: int
) -> None:
    """Another token lets nobody in who is known and may not do it."""
    settings = ServiceNowSettings("http://s.example", ClientCredentials("cid", "secret"))
    connector = closing(ServiceNowConnector(settings))
    refused = Answer(status, httpx.Headers(), b"{}", False)
    token = {"access_token": "t", "expires_in": 1800}
    outside.answers = [token, refused, token, refused]
    outside.passed = asyncio.get_running_loop().time()
    found = await connector.perform(Call("servicenow.incident.get", {"sys_id": ID}, "0" * 64, 0.5))
    assert isinstance(found, Refused)
    assert [method for method, *_ in outside.asked] == ["POST", "GET"] * (2 if status == 401 else 1)
    assert outside.asked[0][3] == pytest.approx(0.5), "a token has no time of its own"


async def test_an_account_is_logged_in_by_its_own_name_whatever_records_call_it(
    catalog: Catalog, closing: Callable[[Any], Any]
) -> None:
    heard: list[Any] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request.headers["authorization"])
        return httpx.Response(200, json={"result": []})

    settings = ServiceNowSettings("http://s.example", BasicAuth("login", "pw"), "Integration User")
    connector = closing(ServiceNowConnector(settings))
    connector._client._client._transport = httpx.MockTransport(answer)
    assert await connector.check() == (True, "reachable and authorised as Integration User")
    assert heard == ["Basic bG9naW46cHc="]


@pytest.mark.parametrize("again", [None, 7.0])
async def test_a_token_that_is_not_given_now_says_when(
    outside: Outside, catalog: Catalog, closing: Callable[[Any], Any], again: float | None
) -> None:
    """A write that has no token has not been sent."""
    settings = ServiceNowSettings("http://s.example", ClientCredentials("cid", "secret"))
    connector = closing(ServiceNowConnector(settings))
    update = Call("servicenow.incident.update", {"sys_id": ID, "fields": {"state": "2"}}, "0" * 64, 9.0)
    outside.passed = asyncio.get_running_loop().time()
    for failure in (NotSent("away", again), InDoubt("away")):
        outside.answers = [failure]
        later = again if isinstance(failure, NotSent) else None
        assert await connector.perform(update) == NotSent("no OAuth token: away", later)
    odd: Any
    for odd in ([], "x", 5):
        outside.answers = [odd]
        said = "no OAuth token: ServiceNow's answer is not a JSON object"
        assert await connector.perform(update) == NotSent(said)


async def test_a_check_takes_ten_seconds_at_most(
    outside: Outside, catalog: Catalog, servicenow: ServiceNowConnector, closing: Callable[[Any], Any]
) -> None:
    connector = closing(ModelConnector(ModelSettings("http://m.example/v1/", "sk")))
    bpmn = closing(BpmnConnector(BpmnSettings("http://e.example/r")))
    outside.answers = [{"count": 0}, {"result": []}, {"data": []}]
    for one in (bpmn, servicenow, connector):
        assert (await one.check())[0]
    assert [(method, effect, seconds) for method, _, effect, seconds in outside.asked] == [("GET", False, 10.0)] * 3
