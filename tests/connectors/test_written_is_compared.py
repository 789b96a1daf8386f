"""Writes are compared: what a target holds afterwards with what was asked of it, whatever it answers (promise 3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.hosts import AllowedHost
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.port import Call, Done, Parked, Refused
from connectors.readback import same_message, same_text
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from connectors.slack.connector import SlackConnector, SlackSettings
from sandbox.servicenow_access import INTEGRATION_USER, FieldRule
from sandbox.world import SandboxConfig, World, sandbox_world

KEY = "0" * 64
GROUP = "group000000000000000000000000001"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with sandbox_world(SandboxConfig()) as made:
        yield made


@pytest.fixture
def instance(world: World, catalog: Catalog, closing: Callable[[Any], Any]) -> Callable[..., Any]:
    """Write fields of a record of the stand-in, with a rule of the instance: what it makes of the record afterwards."""
    settings = ServiceNowSettings(world.urls()["servicenow"], BasicAuth(INTEGRATION_USER, "sandbox"))
    connector = closing(ServiceNowConnector(settings))
    state = world.servicenow.state
    state.seed("sys_user_group", {"sys_id": GROUP, "name": "Network"})

    async def write(fields: dict[str, str], rule: dict[str, str]) -> Any:
        record = state.seed("incident", {"sys_id": "a" * 32, "number": "INC1", "priority": "5", "state": "1"})
        state.on_write.append(lambda _, row: row.update(rule))
        operation = catalog.get("servicenow.incident.update")
        values = {"sys_id": record["sys_id"], "fields": fields}
        return await connector.perform(Call(operation.name, values, KEY, 5.0, declared=operation))

    return write


@pytest.mark.parametrize(
    ("fields", "rule", "altered"),
    [
        ({"priority": "1"}, {"priority": "5"}, ["priority"]),
        ({"priority": "1", "state": "2"}, {"state": "3"}, ["state"]),
        ({"short_description": "x"}, {"short_description": ""}, ["short_description"]),
        ({"short_description": "a long text"}, {"short_description": "a long"}, ["short_description"]),
        ({"due_date": "2026-11-30 18:00:00"}, {"due_date": "2026-11-30 17:00:00"}, ["due_date"]),
        ({"watch_list": "a@x.example,b@x.example"}, {"watch_list": "a@x.example"}, ["watch_list"]),
        ({"assignment_group": "Networks"}, {"assignment_group": GROUP}, ["assignment_group"]),
        # What a system may rewrite.
        ({"priority": "1"}, {}, []),
        ({"short_description": " trimmed \r\nhere "}, {"short_description": "trimmed\nhere"}, []),
        ({"u_cost": "5.0"}, {"u_cost": "5"}, []),
        ({"u_flag": "True"}, {"u_flag": "true"}, []),
        ({"due_date": "2026-11-30T18:00:00Z"}, {"due_date": "2026-11-30 18:00:00"}, []),
        ({"due_date": "2026-11-30T19:00:00+01:00"}, {"due_date": "2026-11-30 18:00:00"}, []),
        ({"due_date": "2026-11-30"}, {"due_date": "2026-11-30 00:00:00"}, []),
        ({"watch_list": "b@x.example, a@x.example"}, {"watch_list": "a@x.example,b@x.example"}, []),
        ({"assignment_group": "Network"}, {"assignment_group": GROUP}, []),
        ({"work_notes": "looked"}, {"work_notes": ""}, []),
        ({"comments": "looked", "priority": "1"}, {"comments": ""}, []),
    ],
)
async def test_a_record_is_compared_field_by_field(instance: Any, fields: Any, rule: Any, altered: list[str]) -> None:
    done = await instance(fields, rule)
    assert isinstance(done, Done), done
    assert ([*done.altered], done.output["altered"]) == (altered, altered)
    for name in altered:
        assert done.altered[name] == {"asked": fields[name], "found": rule[name]}


async def test_a_hidden_field_is_unreadable_and_a_dropped_one_is_altered(instance: Any, world: World) -> None:
    world.servicenow.access.fields = (
        FieldRule("incident", "state", "read"),
        FieldRule("incident", "priority", "write"),
    )
    done = await instance({"priority": "1", "state": "2"}, {})
    assert (done.output["altered"], done.output["unreadable"]) == (["priority"], ["state"])
    assert done.altered == {"priority": {"asked": "1", "found": "5"}}


@pytest.mark.parametrize(
    ("asked", "said", "altered"),
    [
        ({"text": "hi"}, {"text": "ho"}, ["text"]),
        ({"text": "in a thread", "thread_ts": "1.2"}, {"text": "in a thread", "thread_ts": "1.3"}, ["thread_ts"]),
        ({"text": "hi"}, {}, []),
        ({"text": "a < b & c"}, {"text": "a &lt; b &amp; c"}, []),
        ({"text": "see https://x.example/a"}, {"text": "see <https://x.example/a>"}, []),
        ({"text": "mail ana@x.example"}, {"text": "mail <mailto:ana@x.example|ana@x.example>"}, []),
        ({"text": "done \U0001f389"}, {"text": "done :tada:"}, []),
    ],
)
async def test_a_message_is_compared_as_far_as_slack_shows_it(
    wire: Any, closing: Any, asked: Any, said: Any, altered: list[str]
) -> None:
    wire.say({"ok": True, "channel": "C0000001", "ts": "1.5", "message": {"ts": "1.5", **said}})
    connector = closing(SlackConnector(SlackSettings("xoxb", f"{wire.url}/api/")))
    done = await connector.perform(Call("slack.message.post", {"channel": "C0000001", **asked}, KEY, 5.0))
    assert [*done.altered] == altered


async def test_a_message_in_another_channel_is_altered(wire: Any, closing: Any) -> None:
    wire.say({"ok": True, "channel": "C0000009", "ts": "1.5"}, {"ok": True, "channel": "D0000009", "ts": "1.5"})
    connector = closing(SlackConnector(SlackSettings("xoxb", f"{wire.url}/api/")))
    for channel, altered in (("C0000001", ["channel"]), ("U0000001", [])):
        done = await connector.perform(Call("slack.message.post", {"channel": channel, "text": "hi"}, KEY, 5.0))
        assert [*done.altered] == altered


@pytest.mark.parametrize(
    ("method", "expected", "said", "came"),
    [
        ("PUT", {"priority": 1}, {"priority": 5}, ["priority"]),
        ("PUT", {"/a/0/b": "x"}, {"a": [{"b": "y"}]}, ["/a/0/b"]),
        ("PUT", {"priority": 1}, {"priority": "1"}, []),
        ("PUT", {"hidden": 1}, {"priority": "1"}, []),
        ("GET", {"priority": 1}, {"priority": 5}, None),
    ],
)
async def test_an_http_answer_is_compared_with_what_is_expected(
    wire: Any, closing: Any, method: str, expected: Any, said: Any, came: list[str] | None
) -> None:
    wire.say(said)
    port = int(wire.url.rpartition(":")[2])
    connector = closing(HttpConnector(HttpSettings((AllowedHost("127.0.0.1", port, allow_private=True),))))
    values = {"method": method, "url": f"{wire.url}/things/1", "expect_json": expected}
    outcome = await connector.perform(Call("http.request.send", values, KEY, 5.0))
    if came is None:
        assert isinstance(outcome, Refused), "nothing was changed, so nothing is altered"
    else:
        assert [*outcome.altered] == came
        assert outcome.output.get("unreadable", []) == ["hidden"][: "hidden" in expected]


@pytest.mark.parametrize(
    ("operation", "values", "answers", "altered"),
    [
        ("bpmn.process.start", {"process": "p"}, [[], [], {"id": "1", "businessKey": "another"}], ["business_key"]),
        ("bpmn.process.start", {"process": "p"}, [[], [], {"id": "1", "businessKey": "key"}], None),
        ("bpmn.process.start", {"process": "p"}, [[], [], {"id": "1"}], None),
        (
            "bpmn.message.correlate",
            {"message": "m", "process_instance_id": "1"},
            [[{"execution": {"processInstanceId": "2"}}]],
            ["process_instance_id"],
        ),
        (
            "bpmn.message.correlate",
            {"message": "m", "business_key": "b"},
            [[{"processInstance": {"id": "2", "businessKey": "c"}}]],
            ["business_key"],
        ),
        ("bpmn.message.correlate", {"message": "m", "business_key": "b"}, [[{"processInstance": {"id": "2"}}]], []),
    ],
)
async def test_a_process_is_the_one_that_was_asked_for(
    wire: Any, catalog: Catalog, closing: Any, operation: str, values: Any, answers: Any, altered: list[str] | None
) -> None:
    wire.say(*answers)
    connector = closing(BpmnConnector(BpmnSettings(f"{wire.url}/r")))
    call = Call(operation, values, KEY, 5.0, None, "key", declared=catalog.get(operation))
    outcome = await connector.perform(call)
    assert outcome == Parked("1") if altered is None else [*outcome.altered] == altered


@pytest.mark.parametrize(
    ("asked", "found"),
    [("1", "2"), ("", "x"), ("x", ""), ("2026-11-30", "2026-12-01"), ("a,b", "a,c"), ("true", "false"), ("a b", "b a")],
)
def test_what_means_something_else_is_never_the_same(asked: str, found: str) -> None:
    assert not same_text(asked, found)
    assert not same_message(asked, found)
