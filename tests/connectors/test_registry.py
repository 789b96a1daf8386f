from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.agent.connector import AgentConnector
from connectors.bpmn.client import BpmnSettings
from connectors.bpmn.connector import BpmnConnector
from connectors.catalog import Catalog
from connectors.http.connector import HttpConnector, HttpSettings
from connectors.model.connector import ModelConnector, ModelSettings
from connectors.port import Connector, Connectors, Done, ProbeVerdict
from connectors.records.connector import RecordsConnector
from connectors.servicenow.client import BasicAuth, ClientCredentials, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from connectors.slack.connector import SlackConnector, SlackSettings
from connectors.transform.connector import TransformConnector
from core.canonical import JsonObject
from core.errors import ConfigurationError
from tests.support.calls import Call

MakeCall = Callable[..., Call]


async def _nothing(tenant: str, function: str, values: JsonObject) -> JsonObject:
    return {}


class Broken(TransformConnector):
    async def aclose(self) -> None:
        raise OSError("stuck")


class Watched(TransformConnector):
    closed = False

    async def aclose(self) -> None:
        self.closed = True


async def test_every_packaged_operation_has_a_connector(catalog: Catalog) -> None:
    by_name: dict[str, Connector] = {
        "servicenow": ServiceNowConnector(ServiceNowSettings("https://a.example", BasicAuth("u", "p"))),
        "slack": SlackConnector(SlackSettings("xoxb-test")),
        "http": HttpConnector(HttpSettings()),
        "model": ModelConnector(ModelSettings("https://a.example/v1", "k")),
        "bpmn": BpmnConnector(BpmnSettings("https://a.example/engine-rest")),
        "transform": TransformConnector(),
        "records": RecordsConnector(_nothing),
        "agent": AgentConnector(),
    }
    connectors = Connectors(by_name)
    for operation in catalog.operations.values():
        assert connectors[operation.connector] is by_name[operation.connector]
    await connectors.aclose()


async def test_what_is_not_configured_names_its_setting() -> None:
    connectors = Connectors({"transform": TransformConnector()})
    with pytest.raises(ConfigurationError, match=r"not configured\. Set COUNTERSEAL_SERVICENOW_URL"):
        connectors["servicenow"]
    with pytest.raises(ConfigurationError, match="Known connectors"):
        connectors["zzz"]
    assert await connectors.check() == {"transform": (True, "works in process")}


async def test_closing_goes_on_past_a_failure() -> None:
    watched = Watched()
    with pytest.raises(BaseExceptionGroup, match="failed to close"):
        await Connectors({"broken": Broken(), "watched": watched}).aclose()
    assert watched.closed


async def test_transform_hands_back_its_value(make_call: MakeCall) -> None:
    connector, call = TransformConnector(), make_call("transform.data.apply", {"value": {"a": [1, None]}})
    assert await connector.perform(call) == Done({"value": {"a": [1, None]}})
    assert (await connector.probe(call, seconds_since_intent=0)).verdict is ProbeVerdict.NOT_APPLIED


async def test_a_target_is_an_address_and_an_account_without_a_secret(catalog: Catalog) -> None:
    address = "https://somebody:s3cret@dev1.service-now.com:8443/"
    servicenow = ServiceNowConnector(ServiceNowSettings(address, BasicAuth("bot", "s3cret")))
    oauth = ServiceNowSettings("https://dev1.service-now.com", ClientCredentials("client", "s3cret"))
    named = ServiceNowSettings("https://dev1.service-now.com", ClientCredentials("client", "s3cret"), "bot")
    connectors: dict[str, Any] = {
        "https://dev1.service-now.com:8443 as bot": servicenow,
        "https://dev1.service-now.com as client": ServiceNowConnector(oauth),
        "https://dev1.service-now.com as bot": ServiceNowConnector(named),
        "https://slack.com/api": SlackConnector(SlackSettings("xoxb-s3cret")),
        "https://api.openai.com/v1": ModelConnector(ModelSettings("https://api.openai.com/v1/", "s3cret", "openai")),
        "https://bpm.example/engine-rest as ben": BpmnConnector(
            BpmnSettings("https://bpm.example/engine-rest", "ben", "s3cret")
        ),
    }
    for target, connector in connectors.items():
        assert connector.target == target
        await connector.aclose()
    # What it calls is named by the action itself, or nothing is called at all.
    assert [HttpConnector(HttpSettings()).target, TransformConnector().target] == ["", ""]
    assert Connectors({"transform": TransformConnector()}).targets == {"transform": ""}
