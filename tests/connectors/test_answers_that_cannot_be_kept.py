"""A yes that cannot be kept is a yes: of each connector's answer, what cannot be kept is named in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import Response

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector, completion_of
from connectors.hosts import AllowedHost
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.port import Done, InDoubt
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from core.canonical import unfit
from core.unkept import NOT_KEPT, first_marker, is_marker, storable
from tests.support.calls import Call

KEY = "0" * 64
DEEP = b"[" * 40 + b"]" * 40
BODIES = {
    "too deep": b'{"a": ' + DEEP + b"}",
    "not a number": b'{"a": NaN}',
    "U+0000": b'{"a": "x\\u0000"}',
    "lone surrogate": b'{"a": "\\ud800"}',
    "twice the same key": b'{"a": 1, "a": 2}',
    "not JSON": b"{nonsense",
    "not UTF-8": b'{"a": "\xff"}',
}


def told(found: Any) -> dict[str, Any]:
    """The words of a marker: a reason, a size and a digest."""
    assert found is not None
    said: dict[str, Any] = found[NOT_KEPT]
    assert said.keys() == {"reason", "bytes", "sha256"}
    assert (len(said["sha256"]), said["bytes"] > 0, said["reason"] != "") == (64, True, True)
    return said


@pytest.mark.parametrize("kind", [*BODIES])
async def test_a_request_that_was_answered_is_done(wire: Any, closing: Callable[[Any], Any], kind: str) -> None:
    wire.answers.append(Response(BODIES[kind], 200, media_type="application/json"))
    port = int(wire.url.rpartition(":")[2])
    connector = closing(HttpConnector(HttpSettings((AllowedHost("127.0.0.1", port, allow_private=True),))))
    values = {"method": "POST", "url": f"{wire.url}/things", "json": {}}
    done = await connector.perform(Call("http.request.send", values, KEY, 5.0))
    assert isinstance(done, Done), done
    told(done.output["json"])
    assert is_marker(done.output["body"]) is (kind == "not UTF-8")
    assert done.output["status"] == 200
    assert unfit(done.output, "It") is None


@pytest.mark.parametrize("kind", [*BODIES])
async def test_a_message_that_was_answered_is_correlated(wire: Any, closing: Callable[[Any], Any], kind: str) -> None:
    wire.answers.append(Response(BODIES[kind], 200, media_type="application/json"))
    connector = closing(BpmnConnector(BpmnSettings(f"{wire.url}/r")))
    done = await connector.perform(Call("bpmn.message.correlate", {"message": "m", "business_key": "b"}, KEY, 5.0))
    assert isinstance(done, Done), done
    told(done.output["process_instance_id"])
    # A page that is no JSON may not come from the engine: nobody knows.
    wire.answers.append(Response(b"<html>", 200, media_type="text/html"))
    again = await connector.perform(Call("bpmn.message.correlate", {"message": "m", "business_key": "b"}, KEY, 5.0))
    assert isinstance(again, InDoubt)


@pytest.mark.parametrize("kind", [*BODIES])
async def test_a_write_of_a_record_is_found_by_its_fields(wire: Any, closing: Callable[[Any], Any], kind: str) -> None:
    """The instance has a record with a field that nobody can keep: the write is found by the fields that it wrote."""
    record = {"sys_id": "a" * 32, "priority": "1", "sys_mod_count": "5", "sys_updated_by": "bot"}
    wire.answers.append(Response(BODIES[kind], 200, media_type="application/json"))
    wire.say({"result": record})
    connector = closing(ServiceNowConnector(ServiceNowSettings(wire.url, BasicAuth("bot", "pw"))))
    values = {"sys_id": "a" * 32, "fields": {"priority": "1"}}
    done = await connector.perform(Call("servicenow.incident.update", values, KEY, 5.0))
    assert isinstance(done, Done), done
    assert (done.output["fields"], done.altered) == ({"priority": "1"}, {})


@pytest.mark.parametrize("value", ["{nonsense", "[" * 40 + "]" * 40, '"\\u0000"'])
def test_a_process_that_has_ended_has_ended(value: str) -> None:
    task: Any = {"id": "1", "businessKey": "k", "variables": {"papers": {"type": "Json", "value": value}}}
    completion: Any = completion_of(task)
    assert completion is not None
    assert completion.error is None
    told(first_marker(completion.output))


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ({"a": 1, "b": float("nan")}, {"a"}),
        ({"a": {"x": 1, "y": "\x00"}, "b": 2}, {"a", "b"}),
        ({"a": "x" * 200_000, "b": "y" * 100_000, "c": 1}, {"b", "c"}),
        ({"ok": 1, "\ud800": 2}, {"ok"}),
        ([1], set()),
        (None, set()),
        (b"x", set()),
    ],
)
def test_as_much_as_possible_is_kept(output: Any, kept: set[str]) -> None:
    found = storable(output)
    assert unfit(found, "It") is None
    told(first_marker(found))
    assert {name for name, value in found.items() if name != NOT_KEPT and not is_marker(value)} == kept
