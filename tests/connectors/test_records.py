"""The connector that reads a tenant's records: what it asks for, and what it answers if the database is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Done, NotSent, Probe, ProbeVerdict, Refused
from connectors.records.connector import RecordsConnector
from core.errors import ConsistencyError, TransportError
from tests.support.calls import Call, packaged


def call(operation: str) -> Call:
    return Call(operation, {"kind": "k", "key": "1"}, "0" * 64, 5.0, tenant="acme")


def reading(answer: Any, asked: list[Any]) -> Callable[..., Any]:
    async def read(*given: Any) -> Any:
        asked.append(given)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return read


@pytest.mark.parametrize("function", ["get", "query"])
async def test_a_tenant_is_asked_for_its_own_records(function: str) -> None:
    asked: list[Any] = []
    connector = RecordsConnector(reading({"n": 1}, asked))
    assert await connector.perform(call(f"records.{function}")) == Done({"n": 1})
    assert asked == [("acme", function, {"kind": "k", "key": "1"})]


@pytest.mark.parametrize("function", ["put", "delete", "other"])
async def test_it_writes_nothing(function: str) -> None:
    asked: list[Any] = []
    operation = packaged().get("records.put").model_copy(update={"handler": f"records:{function}"})
    sent = replace(call(f"records.{function}"), declared=operation)
    refused = await RecordsConnector(reading({}, asked)).perform(sent)
    assert refused == Refused("unknown_handler", f"records.{function} is no reading of records")
    assert asked == []


async def test_a_database_that_is_away_is_asked_again_and_a_fault_is_told() -> None:
    away = TransportError("PostgreSQL went away.", remedy="Try again.")
    answer = await RecordsConnector(reading(away, [])).perform(call("records.get"))
    assert answer == NotSent("PostgreSQL went away. Try again.")
    with pytest.raises(ConsistencyError):
        await RecordsConnector(reading(ConsistencyError("No."), [])).perform(call("records.get"))


async def test_it_names_no_outside_system_and_a_write_is_never_in_doubt() -> None:
    connector = RecordsConnector(reading({}, []))
    assert connector.target == ""
    assert await connector.check() == (True, "in Counterseal's own database")
    words = "records.put was not written, or its step would be over"
    assert await connector.probe(call("records.put"), seconds_since_intent=0) == Probe(ProbeVerdict.NOT_APPLIED, words)
    nothing = Refused("no_pre_read", "records.put replaces nothing, so there is nothing to read first")
    assert await connector.read_before(call("records.put")) == nothing
