"""Each failure is told by one line of the log and by one command, which names the way on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

from app.access import Role
from connectors.port import InDoubt, NotSent, Refused
from core.errors import ConfigurationError
from evidence.files import FileBlobStore
from runtime.requests.scheduling import fire

pytestmark = pytest.mark.req("Q-12")

VAGUE = """
operations:
  - name: probe.vague.apply
    handler: probe:apply
    side_effects: external_call
    risk: low
    summary: "Set {name}"
    target: "thing/{name}"
    in_doubt: ask
    input_schema: {type: object, properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
"""
FLOW = "workflow: {name}\nversion: 1\nreference: ${{{{ trigger.number }}}}\nsteps: [{{id: go, {step}}}]\n"
STEPS = {
    "refused": "do: probe.effect.apply, with: {name: x}",
    "stops": "do: transform.data.apply, with: {value: '${{ trigger.missing }}'}",
    "denied": "do: probe.danger.hand, with: {name: x, fields: {name: y}}",
    "vague": "do: probe.vague.apply, with: {name: x}",
}
NIGHTLY = """
workflow: nightly
version: 1
reference: nightly
triggers: {schedule: {cron: MINUTE HOUR DAY MONTH *, timezone: UTC, missed: skip, workspace: main}}
steps: [{id: nap, wait: {for: PT1H}}]
"""
POLICY = """
policy: more
version: VERSION
rules:
  - {id: vague, match: {operation: probe.vague.apply}, outcome: allow}
  - {id: hand, match: {operation: probe.danger.hand}, outcome: deny, because: Not by hand.}
  - {id: data, match: {operation: transform.data.apply}, outcome: allow}
"""


class Denying(FileBlobStore):
    """Keeps no evidence: access is denied, as S3 does it for good."""

    async def put(self, *_: Any, **__: Any) -> Any:
        raise ConfigurationError("Access denied.")


@dataclass
class World:
    """An installation, and the ways in which something fails there."""

    made: Any

    async def settle(self) -> None:
        """Everything that workers and keepers would do now."""
        await self.made.app.worker().work_off()
        await self.made.app.sweeper().sweep()
        await self.made.work()

    async def failed(self, kind: str, *answers: Any) -> None:
        self.made.outside.script["x"] = [*answers]
        await self.made.start(kind)
        await self.made.app.worker().work_off()

    async def step_failed(self) -> None:
        await self.failed("refused", Refused("gone", "There is no such thing."))

    async def run_failed(self) -> None:
        await self.failed("stops")

    async def denied(self) -> None:
        await self.failed("denied")

    async def busy(self) -> None:
        await self.failed("refused", NotSent("429 of the target", 60.0))

    async def doubtful(self) -> None:
        await self.failed("vague", InDoubt("The line broke."))
        while not await self.made.books.approvals():
            await self.made.trouble.make_waits_due()
            await self.settle()

    async def expired(self) -> None:
        await self.made.asked()
        await self.made.trouble.make_waits_due()
        await self.settle()

    async def paused(self) -> None:
        client = await self.made.client(Role.OPERATOR)
        answer = await client.post("/v1/pauses", json={"what": "tenant", "reason": "Month-end close."})
        assert answer.status_code == 200, answer.text

    async def policy_changed(self) -> None:
        client = await self.made.client(Role.ADMIN)
        answer = await client.post("/v1/policies", json={"source": POLICY.replace("VERSION", "2")})
        assert answer.status_code < 300, answer.text

    async def forged(self) -> None:
        assert (await self.made.webhook({"number": "INC1"}, secret="wrong")).status_code == 401

    async def undelivered(self) -> None:
        outsides = self.made.app.outsides
        outsides.given = replace(outsides.given, blobs=Denying(self.made.settings.evidence_path))
        await self.made.start("simple")
        await self.settle()

    async def missed(self) -> None:
        moment, faces = datetime.now(UTC) + timedelta(hours=2), self.made.app.faces
        text = NIGHTLY.replace("MINUTE", f"{moment.minute}").replace("HOUR", f"{moment.hour}")
        await self.made.add(text.replace("DAY", f"{moment.day}").replace("MONTH", f"{moment.month}"))
        await self.settle()
        await fire(self.made.engine, faces.definitions, "default", "nightly", moment + timedelta(hours=1))


@dataclass
class Row:
    """A failure: its line, the line's members besides the tenant, and the command that tells it, with its words."""

    happens: Callable[[World], Awaitable[None]]
    line: str
    facts: dict[str, Any]
    command: str
    words: tuple[str, ...]
    of_run: bool = True


ROWS = {
    "run failed": Row(
        World.run_failed,
        "run ended",
        {"status": "failed_terminal", "code": "expression", "step": "go"},
        "why INC1",
        ("failed at go", "trigger.missing", "Publish a repaired version"),
    ),
    "step failed": Row(
        World.step_failed,
        "step failed",
        {"step": "go", "operation": "probe.effect.apply", "code": "gone"},
        "why INC1",
        ("failed at go", "There is no such thing.", "counterseal run retry"),
    ),
    "action denied": Row(
        World.denied,
        "action denied",
        {"step": "go", "operation": "probe.danger.hand", "rules": ["more/hand"]},
        "why INC1",
        ("was denied at go", "Not by hand.", "counterseal run retry"),
    ),
    "action in doubt": Row(
        World.doubtful,
        "action in doubt",
        {"step": "go", "operation": "probe.vague.apply"},
        "why INC1",
        ("A call is in doubt", ": what happened? (go)", "counterseal approval show"),
    ),
    "question expired": Row(
        World.expired,
        "question ran out of time",
        {"step": "danger", "operation": "probe.danger.apply"},
        "why INC1",
        ("expired at danger", "Nobody answered in time", "counterseal run retry"),
    ),
    "target busy": Row(
        World.busy,
        "step waits",
        {"step": "go", "operation": "probe.effect.apply", "waits": "busy", "target": "probe"},
        "why INC1",
        ("which asks for no calls (Retry-After) (go)", "counterseal doctor"),
    ),
    "pause": Row(
        World.paused,
        "pause set",
        {"paused": "tenant", "reason": "Month-end close."},
        "pause",
        ("tenant", "Month-end close.", "counterseal resume"),
        of_run=False,
    ),
    "policy changed": Row(
        World.policy_changed,
        "policy in force",
        {"name": "more", "version": 2},
        "audit tenant --type policy.*",
        ("policy.activated", "more"),
        of_run=False,
    ),
    "webhook refused": Row(
        World.forged,
        "request refused",
        {"endpoint": "servicenow:incidents", "code": "signature"},
        "audit tenant --type request.refused",
        ("incidents", "signature"),
        of_run=False,
    ),
    "message dead": Row(
        World.undelivered,
        "a message could not be delivered",
        {"kind": "bundle"},
        "queue dead",
        ("bundle", "Access denied.", "counterseal queue again"),
    ),
    "moment missed": Row(
        World.missed,
        "a moment of a schedule was missed",
        {"name": "nightly", "version": 1, "code": "down"},
        "schedule show nightly",
        ("missed", "no keeper ran", "counterseal run start nightly"),
        of_run=False,
    ),
}


@pytest.mark.parametrize("kind", ROWS)
async def test_each_failure_has_one_line_and_one_command(
    kind: str, settings: Any, serve: Any, definitions_dir: Path, command: Any, capsys: Any
) -> None:
    (definitions_dir / "operations" / "vague.yaml").write_text(VAGUE)
    installation = await serve(settings)
    await installation.publish()
    row = ROWS[kind]
    client = await installation.client(Role.ADMIN)
    answer = await client.post("/v1/policies", json={"source": POLICY.replace("VERSION", "1")})
    assert answer.status_code < 300, answer.text
    for name, step in STEPS.items():
        await installation.add(FLOW.format(name=name, step=step))
    with structlog.testing.capture_logs() as lines:
        await row.happens(World(installation))
    (line,) = [one for one in lines if one["event"] == row.line]
    assert {name: line.get(name) for name in row.facts} == row.facts
    assert line["tenant"] == "default"
    assert UUID(line["run"]) if row.of_run else "run" not in line
    capsys.readouterr()  # the installation's own log
    told = await asyncio.to_thread(command, *row.command.split(), exit_code=None)
    told += command.said
    assert [words for words in row.words if words not in told] == [], told
