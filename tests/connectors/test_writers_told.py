"""A read from outside names who wrote it last, as the system tells; if it does not, it was somebody unknown."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.hosts import AllowedHost
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.port import SOMEBODY, Call, Done, Parked
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from sandbox.bpmn import Bpmn
from sandbox.bpmn_config import BpmnConfig
from sandbox.server import LoopbackServer

ANA, RAJ = "servicenow:ana.lee", "servicenow:raj.quist"
MakeCall = Callable[..., Call]


@pytest.mark.parametrize("operation", ["get", "query"])
@pytest.mark.parametrize("fields", [None, ["number"], ["number", "sys_updated_by"]])
@pytest.mark.parametrize(
    ("created", "updated", "writers"),
    [
        ("raj.quist", "ana.lee", (ANA, RAJ)),
        ("ana.lee", "ana.lee", (ANA,)),
        ("raj.quist", "svc.counterseal", (RAJ, *SOMEBODY)),
        ("raj.quist", "", (RAJ, *SOMEBODY)),
        (None, None, SOMEBODY),
    ],
)
async def test_servicenow_names_who_created_and_who_changed_a_record_whichever_fields_were_asked_for(
    catalog: Catalog,
    closing: Callable[[Any], Any],
    servicenow: Any,
    make_call: MakeCall,
    operation: str,
    fields: list[str] | None,
    created: str | None,
    updated: str | None,
    writers: tuple[str, ...],
) -> None:
    settings = ServiceNowSettings(servicenow.url, BasicAuth("svc.counterseal", "pw"), "svc.counterseal")
    connector = closing(ServiceNowConnector(settings))
    for name, value in (("sys_created_by", created), ("sys_updated_by", updated)):
        servicenow.record.pop(name, None)
        servicenow.record |= {} if value is None else {name: value}
    asked: dict[str, Any] = {"sys_id": "a" * 32} if operation == "get" else {"query": "priority=3"}
    asked |= {} if fields is None else {"fields": fields}
    done = await connector.perform(make_call(f"servicenow.incident.{operation}", asked))
    assert isinstance(done, Done)
    assert done.writers == tuple(sorted(writers))
    rows: Any = [done.output] if operation == "get" else done.output["records"]
    assert fields is None or {*rows[0]} <= {*fields}, "nothing else is shown than what was asked for"


async def test_an_answer_over_http_was_written_by_somebody_unknown(
    closing: Callable[[Any], Any], web: Any, make_call: MakeCall
) -> None:
    connector = closing(HttpConnector(HttpSettings((AllowedHost("127.0.0.1", web.port, allow_private=True),))))
    for method in ("GET", "POST"):
        done = await connector.perform(make_call("http.request.send", {"method": method, "url": f"{web.url}/things"}))
        assert isinstance(done, Done)
        assert done.writers == SOMEBODY


@pytest.fixture
async def engine() -> AsyncIterator[Bpmn]:
    bpmn = Bpmn(BpmnConfig(clock=lambda: 1_800_000_000.0))
    async with LoopbackServer(bpmn.app) as server:
        bpmn.url = server.url
        yield bpmn
        await bpmn.close()


@pytest.mark.parametrize(("claimed", "writers"), [("raj.quist", ("raj.quist",)), (None, SOMEBODY)])
async def test_a_process_names_the_people_who_worked_in_it(
    catalog: Catalog, closing: Callable[[Any], Any], engine: Bpmn, claimed: str | None, writers: tuple[str, ...]
) -> None:
    settings = BpmnSettings(f"{engine.url}/engine-rest", "counterseal", "sandbox")
    connector = closing(BpmnConnector(settings))
    declared = catalog.get("bpmn.process.start")
    key = str(uuid.uuid4())
    call = Call("bpmn.process.start", {"process": "document-request"}, "0" * 64, 5.0, None, key, declared=declared)
    assert isinstance(await connector.perform(call), Parked)
    (instance,) = engine.state.instances.values()
    (task,) = instance.user_tasks()
    if claimed is not None:
        engine.state.claim(task.activity_id, claimed)
    engine.state.complete_user_task(task.activity_id, {"complete": True})
    (completion,) = await connector.completions(wait_seconds=0)
    assert completion.writers == writers
