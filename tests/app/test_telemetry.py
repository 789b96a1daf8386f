"""OpenTelemetry: off it is not there; on it tells no value, waits for nobody, and changes nothing that was judged."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from app.access import Role
from app.spans import Span, Spans
from app.telemetry import NOT_SENT, QUEUE_FULL, UNREADABLE, WAITING_MAX, Telemetry
from app.wiring import build
from core import tracing
from core.errors import ConfigurationError
from core.tracing import Appended, parent_of
from evidence.chain import Actor
from runtime.requests import policies
from tests.support.collector import Collector, attributes, collecting

pytestmark = pytest.mark.req("Q-12")

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
RUN = UUID("01a22408-4590-7856-9fbd-165cffaaa93d")
TESTER = Actor("test", "tester")
OPENED = b'{"type":"run.opened","ts":"2026-11-29T00:00:00.000Z","data":{},"step":null}'
LOOK = """
import asyncio, json, sys
from app.http.application import create_app
from app.settings import load_settings
from app.wiring import build
async def main():
    async with build(load_settings()) as app:
        create_app(app.faces), app.worker(), app.dispatcher(), app.sweeper()
asyncio.run(main())
print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry.") or name == "app.otlp"]))
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def test_off_nothing_of_it_is_loaded(database_url: str, clean_environment: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "COUNTERSEAL_DATABASE_URL": database_url}
    done = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    # FastAPI loads the names of the API itself; what records and sends is ours to load.
    assert [name for name in loaded if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "app."))] == []


async def test_a_trace_is_linked_to_its_caller_and_tells_no_value(
    settings: Any, serve: Any, collector: Collector
) -> None:
    told = {"otel_endpoint": collector.url, "otel_headers": {"X-Key": SecretStr("k1")}}
    installation = await serve(settings.model_copy(update=told))
    await installation.publish()
    headers = {"traceparent": CALLER}
    event = {"table": "incident", "event": "insert", "number": "INC7", "sys_id": "s7", "sys_mod_count": "0"}
    answer = await installation.webhook(event, headers=headers)
    hooked = answer.json()["runs"][0]["run_id"]
    client = await installation.client(Role.TRIGGER, Role.APPROVER, subject="ann")
    starter = await installation.client(Role.TRIGGER)
    body = {"workflow": "asking", "input": {"number": "INC8-secret"}}
    asked = (await starter.post("/v1/runs", json=body, headers=headers)).json()["run_id"]
    # Another App works: it knows of the first only what the database says.
    async with build(installation.settings, connectors=installation.app.outsides.given.connectors) as other:
        await other.worker().work_off()
        question = await installation.books.approval(run=UUID(asked))
        vote = {"choice": "approve", "reason": "seen"}
        assert (await client.post(f"/v1/approvals/{question.id}/votes", json=vote)).status_code == 200
        await other.worker().work_off()
        await collector.until(lambda: "run" in collector.of(asked) and "run" in collector.of(hooked))
    for run in (hooked, asked):
        (start,) = collector.of(run)["start"]
        assert [(one.trace_id.hex(), one.span_id.hex()) for one in start.links] == [tuple(CALLER.split("-")[1:3])]
        assert len(collector.of(run)["call"]) == len(collector.of(run)["receipt"]) == 1
    assert attributes(collector.of(asked)["question"][0])["outcome"] == "approved"
    names = {name for span in collector.spans for name in attributes(span)}
    assert names <= {
        *("tenant", "run", "step", "operation", "outcome", "code", "workflow", "trigger", "connector", "receipt"),
        *("choice", "channel", "message"),
    }
    assert {one["x-key"] for one in collector.headers} == {"k1"}
    sent = b"".join(collector.bodies)
    assert [value for value in (b"4711-secret", b"INC8-secret", b"INC7", b"seen", b"xoxb-test") if value in sent] == []


def test_a_collector_that_hangs_holds_nothing_up_and_what_is_dropped_is_counted() -> None:
    going = threading.Event()

    def send(batch: list[Span]) -> bool:
        going.wait()
        return False

    telemetry = Telemetry(send, lambda _: None)
    telemetry.start()
    for _ in range(3 * WAITING_MAX):
        telemetry.appended(Appended("acme", RUN, [OPENED], None, None))
    assert telemetry.dropped[QUEUE_FULL] >= WAITING_MAX  # the thread holds one batch, and the rest of the queue waits
    telemetry.appended(Appended("acme", RUN, [b'{"ts": "when?"}'], None, None))
    going.set()
    telemetry.stop()
    assert sum(telemetry.dropped.values()) == 3 * WAITING_MAX + 1
    assert telemetry.dropped[NOT_SENT] > 0


def test_a_line_that_cannot_be_read_does_not_stop_the_others() -> None:
    sent = list[Span]()
    telemetry = Telemetry(lambda batch: bool(sent.extend(batch)) or True, lambda _: None)
    telemetry.start()
    for lines in ([b'{"ts": "when?"}'], [OPENED]):
        telemetry.appended(Appended("acme", RUN, lines, None, None))
    telemetry.stop()
    assert (len(sent), telemetry.dropped) == (1, {UNREADABLE: 1})


async def test_work_goes_on_without_a_collector(settings: Any, serve: Any, collector: Collector) -> None:
    collector.hangs = True
    installation = await serve(settings.model_copy(update={"otel_endpoint": collector.url}))
    await installation.publish()
    run = await installation.parked("simple")
    assert await installation.status(run) == "succeeded"
    collector.ended.set()


def test_without_the_libraries_the_setting_says_what_to_install(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start() -> None:
        async with build(settings.model_copy(update={"otel_endpoint": "http://127.0.0.1:1"})):
            raise AssertionError

    monkeypatch.setitem(sys.modules, "app.otlp", None)
    with pytest.raises(ConfigurationError, match="counterseal"):
        asyncio.run(start())


SENDING = """
workflow: sending
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: plain, do: http.request.send, with: {method: POST, url: "URL/plain", body: x}}
  - {id: own, do: http.request.send, with: {method: POST, url: "URL/own", body: x, headers: {traceparent: CALLER}}}
"""
LET_OUT = """
policy: letting
version: 1
rules: [{id: all, match: {operation: http.request.send}, outcome: allow, because: It is a test.}]
"""


@pytest.mark.parametrize("propagates", [False, True])
async def test_a_call_carries_the_trace_only_if_a_setting_says_so(
    settings: Any, serve: Any, collector: Collector, propagates: bool
) -> None:
    here = collector.url.removeprefix("http://")
    told = {"otel_propagate": propagates, "http_hosts": type(settings)(http_hosts=f"{here}/private").http_hosts}
    installation = await serve(settings.model_copy(update=told), real=True)
    await installation.publish()
    await installation.add(SENDING.replace("URL", collector.url).replace("CALLER", f'"{CALLER}"'))
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        await policies.publish_policy(connection, faces.definitions, "default", LET_OUT, "let.yaml", TESTER)
    run = await installation.parked("sending")
    assert await installation.status(run) == "succeeded"
    plain, own = (one.get("traceparent") for one in collector.headers)
    assert plain == (tracing.traceparent(run, "plain", 1) if propagates else None)
    assert own == CALLER  # what was judged is what is sent


def test_ids_are_derived_and_what_is_no_traceparent_is_none() -> None:
    header = tracing.traceparent(RUN, "a", 2)
    assert header.split("-")[1] == RUN.hex
    assert parent_of(header) == (RUN.int, tracing.call_span(RUN, "a", 2))
    parts = ["", "a", "b"]
    ids = [tracing.span_id(RUN), *(tracing.step_span(RUN, a, n) for a in parts for n in (1, 2))]
    assert len({*ids, *(tracing.call_span(RUN, a, n) for a in parts for n in (1, 2))}) == 13
    zero = f"00-{0:032x}-{1:016x}-01"
    for wrong in ("", "00", CALLER[:-3], f"ff{CALLER[2:]}", CALLER.upper(), zero, f" {CALLER}", "é"):
        assert parent_of(wrong) is None
    assert parent_of(f"cc{CALLER[2:]}-what-the-future-will-be-like")


def test_what_began_elsewhere_has_no_length_and_no_figure() -> None:
    decided = {"approval": "a1", "outcome": "rejected"}
    line = {"type": "approval.decided", "ts": "2026-11-29T00:00:09.000Z", "data": decided, "step": "s", "actor": {}}
    for asked, seconds in ((None, 0), (datetime(2026, 11, 29, 0, 0, 2, tzinfo=UTC), 7)):
        found = list(Spans().of(Appended("acme", RUN, [json.dumps(line).encode()], asked, None)))
        assert (found[0].ended - found[0].began) / 1e9 == seconds
        assert len(found) == (2 if seconds else 1)
