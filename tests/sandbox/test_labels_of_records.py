"""People read labels beside codes, and names instead of ids; nothing waits for them, and nothing is bound by them."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from connectors.catalog import load_catalog
from connectors.port import Before, Call
from connectors.proposal import action_digest, build_action
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from sandbox.servicenow_seed import seed_id


async def test_labels_and_names_are_asked_for_once_and_a_card_goes_without_them(world: Any) -> None:
    state, person = world.servicenow.state, seed_id("sys_user", "ana.lee")
    record = state.insert("incident", {"short_description": "x"}, "raj.quist")
    operation = load_catalog().get("servicenow.incident.update")
    values = {"sys_id": record["sys_id"], "fields": {"priority": "1", "assigned_to": person, "u_more": "y"}}
    call = Call(operation.name, values, "k", 5.0, declared=operation)
    settings = ServiceNowSettings(world.servicenow.url, BasicAuth("counterseal.integration", "sandbox"))

    async def read(connector: ServiceNowConnector) -> Before:
        before = await connector.read_before(call)
        assert isinstance(before, Before)
        return before

    async with aclosing(ServiceNowConnector(settings)) as connector, aclosing(ServiceNowConnector(settings)) as other:
        for _ in range(2):
            before = await read(connector)
            assert before.labels["priority"] == ("Priority", "Planning", "Critical")
            assert before.labels["assigned_to"] == ("Assigned to", "", "Ana Lee")
            assert before.labels["u_more"] == ("", "", "")
            state.tables["sys_choice"].clear()  # what is known is not asked for again
        action = build_action(operation, values, before)
        assert [one.after_label for one in action.changes] == ["Critical", "Ana Lee", ""]
        assert action_digest(action) == action_digest(replace(action, labels=None)), "labels bind nothing"
        assert (await read(other)).labels["priority"] == ("Priority", "", ""), "a card goes without them"
