"""The evidence of a period is whole, and its comparison with ServiceNow names what was missed and what is not ours."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from app.records import reading
from app.settings import load_settings
from connectors.port import Connectors
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from core.canonical import canonical_bytes
from core.errors import InputError
from evidence.log import periods, tree
from evidence.log.notes import Kind, NoteKey
from evidence.log.rings import Ring
from evidence.log.signer import Memory
from runtime.keep.log_signing import LogSigner
from runtime.requests import publishing
from runtime.requests.periods import collect, table
from runtime.requests.reconciling import Row, reconcile
from runtime.requests.triggers import start_from_servicenow
from sandbox.server import LoopbackServer
from sandbox.servicenow import ServiceNow, ServiceNowConfig
from tests.support.runtime_stage import ACTOR

OWN = "counterseal.integration"
POLICY = """
policy: p
version: 1
rules:
  - {id: all, match: {connector: servicenow}, outcome: allow}
  - {id: probes, match: {connector: probe}, outcome: allow}
"""
TRIAGE = """
workflow: triage
version: 1
reference: ${{ trigger.number }}
triggers: {servicenow: {table: incident, when: "${{ trigger.priority == '5' }}"}}
steps:
  - id: note
    do: servicenow.incident.update
    with: {sys_id: "${{ trigger.sys_id }}", fields: {category: network}}
"""
SIMPLE = "workflow: simple\nversion: 1\nreference: r\nsteps: [{id: a, do: probe.effect.apply, with: {name: a}}]\n"
DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
RECORDS, DROPPED, PAST = (10_000, 37, 5) if DEEP else (40, 7, 5)
# The runs that write: a worker takes ten requests and 80 ms for each. The others are begun, which reconciling asks for.
WRITING = 500 if DEEP else 20
HOUR = timedelta(hours=1)


async def signed(runtime: Any, folder: Path) -> Ring:
    private = ed25519.Ed25519PrivateKey.generate()
    key = NoteKey("test", Kind.ED25519, private.public_key().public_bytes_raw())
    for _ in range(2):
        await runtime.sweep()
    places = (Memory(folder / "memory"), folder / "log")
    assert (await LogSigner(runtime.database, key, private, *places).turn(["acme"]))[1] == []
    return Ring(key)


def without(name: str, number: int) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    def change(files: dict[str, bytes]) -> dict[str, bytes]:
        lines = files[name].splitlines(keepends=True)
        return {**files, name: b"".join(lines[:number] + lines[number + 1 :])}

    return change


def shorter(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    def change(files: dict[str, bytes]) -> dict[str, bytes]:
        return {**files, name: json.dumps(json.loads(files[name])[:-1]).encode()}

    return change


ALTERED: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "a leaf is gone": (without(periods.LEAVES, 3), "do not come to the root"),
    "a run is not listed": (shorter(periods.RUNS), "is not listed"),
    "a run is listed twice": (
        lambda files: {**files, periods.RUNS: json.dumps([*json.loads(files[periods.RUNS])] * 2).encode()},
        "listed twice",
    ),
    "a line is gone": (without(periods.EVENTS, 0), "lines of the tenant are of the period"),
    "a line is other": (
        lambda files: {**files, periods.EVENTS: files[periods.EVENTS].replace(b'"tester"', b'"nobody"')},
        "is not the one",
    ),
    "another sample": (
        lambda files: {**files, periods.SAMPLE: canonical_bytes(json.loads(files[periods.SAMPLE]) | {"runs": ["r"]})},
        "not the one that its seed draws",
    ),
}


async def test_the_files_of_a_period_prove_that_nothing_is_missing(runtime: Any, tmp_path: Path) -> None:
    await runtime.tenant()
    await runtime.policy(POLICY)
    await runtime.publish(SIMPLE)
    async with runtime.faces.transaction("acme") as connection:
        people = "directory: d\npeople: [{id: ana, name: Ana}]\ngroups: {owners: [ana]}\n"
        await publishing.publish_directory(connection, "acme", people, "d.yaml", ACTOR)
    for number in range(6):
        await runtime.start("simple", ref=str(number))
    await runtime.worker().work_off()
    ring, now = await signed(runtime, tmp_path), datetime.now(UTC)
    files = await collect(runtime.database, "acme", now - HOUR, now + HOUR, ("s", 3), ACTOR)
    found = periods.check(files, ring)
    assert (found.problems, found.runs, found.root) == ([], 6, tree.root_of(map(tree.leaf_hash, found.leaves)))
    (first, *_) = csv.DictReader(io.StringIO(files["runs.csv"].decode()))
    assert (first["number"], first["requested_by"], first["status"]) == ("1", "requester", "succeeded")
    assert "probe.effect.apply thing/a succeeded" in first["changed"]
    for name, (change, words) in ALTERED.items():
        assert any(words in one for one in periods.check(change(files), ring).problems), name
    for broken in ({**files, periods.CHECKPOINT: b"x"}, {**files, periods.RUNS: b"x"}, {}):
        with pytest.raises(InputError):
            periods.check(broken, ring)
    nothing = await collect(runtime.database, "acme", now - 2 * HOUR, now - HOUR, ("s", 3), ACTOR)
    assert (periods.check(nothing, ring).problems, periods.check(nothing, ring).runs) == ([], 0)
    exported = await runtime.books.audit(type="evidence.exported")
    assert [event.data["runs"] for event in exported] == [6, 0]


def test_no_cell_is_a_formula() -> None:
    assert table([{"a": "=1+1", "b": [{"x": "@y", "z": None}]}], ("a", "b")) == b"a,b\r\n'=1+1,'@y\r\n"


async def hooks(runtime: Any, records: list[Any]) -> None:
    for record in records:
        event = {**record, "table": "incident", "event": "insert"}
        async with runtime.faces.transaction("acme") as connection:
            await start_from_servicenow(connection, runtime.definitions, "acme", "main", "sn", event, OWN)


@pytest.mark.timeout(0 if DEEP else 120)
async def test_what_was_missed_and_what_is_not_ours_is_named_exactly(runtime: Any) -> None:
    ahead = [0.0]
    instance = ServiceNow(ServiceNowConfig(clock=lambda: time.time() + ahead[0]))
    async with LoopbackServer(instance.app) as server, AsyncExitStack() as stack:
        settings = ServiceNowSettings(server.url, BasicAuth(OWN, "sandbox"))
        made = Connectors({"servicenow": ServiceNowConnector(settings)})
        connectors = await stack.enter_async_context(aclosing(made))
        runtime = replace(runtime, connectors=connectors)
        await runtime.tenant()
        await runtime.policy(POLICY)
        await runtime.publish(TRIAGE)
        since = datetime.now(UTC) - timedelta(seconds=2)
        records = [instance.state.insert("incident", {"priority": "5"}, "raj.quist") for _ in range(RECORDS)]
        others = [instance.state.insert("incident", {"priority": "1"}, "raj.quist") for _ in range(3)]
        writing = records[DROPPED : DROPPED + WRITING]
        await hooks(runtime, [*writing, *others])
        await runtime.worker().work_off()
        await hooks(runtime, records[DROPPED + WRITING :])
        ahead[0] = 600.0
        past = [writing[0], *others[:2], records[0], writing[-1]][:PAST]
        for record in past:
            instance.state.update("incident", record["sys_id"], {"state": "7"}, OWN)
        given = {"servicenow_url": server.url, "servicenow_username": OWN, "servicenow_password": "sandbox"}
        async with reading(load_settings(**given)) as read:
            place = (runtime.database, runtime.definitions, "acme", (since, datetime.now(UTC) + HOUR), read, OWN)
            rows: list[Row] = await reconcile(*place)
    by = {outcome: {row.sys_id for row in rows if row.outcome == outcome} for outcome in {row.outcome for row in rows}}
    assert by["missed"] == {record["sys_id"] for record in records[:DROPPED]}
    assert by["not ours"] == {record["sys_id"] for record in past}
    assert by["run"] == {record["sys_id"] for record in records[DROPPED:]}
    assert by["receipt"] == {record["sys_id"] for record in writing} - by["not ours"]
    assert len({row.receipt for row in rows if row.outcome == "receipt"}) == len(by["receipt"])
