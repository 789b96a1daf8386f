"""Each alert fires when its cause is there and ends with it: the real product, its real /metrics, the shipped rules."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from ruamel.yaml import YAML

from app import logbook
from app.access import Role
from connectors.port import InDoubt, Refused
from core import tracing
from core.errors import ConfigurationError
from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.keep.log_signing import LogSigner
from runtime.requests import policies, publishing
from runtime.store import outbox
from tests.support.promql import Look, fires, names

pytestmark = [pytest.mark.req("Q-12"), pytest.mark.tampers]

FOLDER = Path("deploy/observability")
RULES = {
    rule["alert"]: str(rule["expr"])
    for group in YAML(typ="safe").load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
PANELS = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
EXPLAINED = Path("docs/running.md").read_text()
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
FLOWS = """
workflow: held
version: 1
reference: x
steps: [{id: left, do: probe.effect.apply, with: {name: left}, on_failure: {hold: operators}}]
---
workflow: vague
version: 1
reference: x
steps: [{id: go, do: probe.vague.apply, with: {name: vague}}]
"""
POLICY = """
policy: more
version: 1
rules: [{id: vague, match: {operation: probe.vague.apply}, outcome: allow}]
"""
PEOPLE = """
directory: tests
version: 2
people: [{id: ann, name: Ann}, {id: bob, name: Bob}, {id: tess, name: Tess}]
groups: {leads: [ann, bob], operators: [ann, bob]}
"""
TESTER = Actor("test", "tester")
HOURS = timedelta(hours=5)


class Store(FileBlobStore):
    """Keeps evidence, unless access is denied, as S3 does it for good."""

    denies = False

    async def put(self, *given: Any, **named: Any) -> Any:
        if self.denies:
            raise ConfigurationError("Access denied.")
        return await super().put(*given, **named)


class Drills:
    """Leads one installation into trouble and out again."""

    def __init__(self, installation: Any) -> None:
        self.made = installation
        self.store = Store(installation.settings.evidence_path)
        installation.app.outsides.given = replace(installation.app.outsides.given, blobs=self.store)
        self.looks: list[Look] = []
        self.run = UUID(int=0)

    async def look(self) -> Look:
        answer = await (await self.made.client(Role.AUDITOR)).get("/metrics")
        self.looks.append(Look(answer.text))
        return self.looks[-1]

    async def settle(self) -> None:
        """Everything that workers, keepers and the signer would do."""
        await self.made.app.worker().work_off()
        await self.made.app.sweeper().sweep()
        await self.made.app.worker().work_off()
        await self.made.app.dispatcher().work_off()
        await self.sign()

    async def sign(self) -> None:
        settings = self.made.settings
        private = FileSigner.load_or_create(settings.log_key_path)
        settings.log_memory_path.mkdir(parents=True, exist_ok=True)
        key = logbook.note_key(settings, private)
        memory = logbook.memory_of(settings)
        await LogSigner(self.made.app.database, key, private, memory, settings.log_path).turn()

    async def start(self, workflow: str = "simple") -> None:
        self.run = await self.made.start(workflow)

    async def vote(self, choice: str) -> None:
        question = await self.made.books.approval(run=self.run, open=True)
        client = await self.made.client(Role.APPROVER, subject="ann")
        answer = await client.post(f"/v1/approvals/{question.id}/votes", json={"choice": choice, "reason": "Seen."})
        assert answer.status_code == 200, answer.text

    # -- into trouble, and out of it

    async def no_worker(self) -> None:
        await self.start()
        await self.made.trouble.steps_stand_in_line(HOURS)

    async def held(self) -> None:
        self.made.outside.script["left"] = [Refused("gone", "It is gone.")]
        await self.start("held")
        await self.made.app.worker().work_off()

    async def answered(self) -> None:
        client = await self.made.client(Role.OPERATOR, subject="bob")
        said = {"answer": "without", "reason": "Seen."}
        answer = await client.post(f"/v1/runs/{self.run}/steps/left/answer", json=said)
        assert answer.status_code == 200, answer.text
        await self.settle()

    async def no_store(self) -> None:
        self.store.denies = True
        await self.start()
        await self.settle()

    async def store_again(self) -> None:
        self.store.denies = False
        async with self.made.engine.transaction() as connection:
            await outbox.send_again(connection, "default", None, None)
        await self.settle()

    async def doubtful(self) -> None:
        self.made.outside.script["vague"] = [InDoubt("The line broke.")]
        await self.start("vague")
        await self.made.app.worker().work_off()
        while not await self.made.books.approvals(run=self.run):
            await self.made.trouble.make_waits_due(run=self.run)
            await self.settle()

    async def told(self) -> None:
        await self.vote("fail")
        await self.settle()

    async def asked(self) -> None:
        await self.start("asking")
        await self.settle()
        await self.made.trouble.questions_are_older(HOURS)

    async def decided(self) -> None:
        await self.vote("approve")
        await self.settle()

    async def no_keeper(self) -> None:
        await self.start()
        await self.made.app.worker().work_off()
        await self.made.trouble.leaves_are_older(HOURS)

    async def worker_gone(self) -> None:
        await self.start()
        await self.made.trouble.hand_steps_to("nobody")
        await self.made.trouble.expire_leases()

    async def no_signer(self) -> None:
        await self.start()
        await self.made.app.worker().work_off()
        await self.made.app.sweeper().sweep()
        await self.made.app.dispatcher().work_off()
        await self.made.trouble.leaves_are_older(HOURS)

    async def flood(self) -> None:
        client = await self.made.client(Role.TRIGGER)
        while (await client.post("/v1/runs", json={"workflow": "simple", "input": {"number": "n"}})).is_success:
            continue

    async def forgery(self) -> None:
        assert (await self.made.webhook({"table": "incident"}, secret="another-secret-of-nobody")).status_code == 401


DRILLS: list[tuple[str, Callable[[Drills], Awaitable[None]], Callable[[Drills], Awaitable[None]]]] = [
    ("StepsNotTaken", Drills.no_worker, Drills.settle),
    ("RunsHeld", Drills.held, Drills.answered),
    ("MessagesDead", Drills.no_store, Drills.store_again),
    ("DoubtsWait", Drills.doubtful, Drills.told),
    ("QuestionsWait", Drills.asked, Drills.decided),
    ("KeeperSilent", Drills.no_keeper, Drills.settle),
    ("KeeperSilent", Drills.worker_gone, Drills.settle),
    ("SignerBehind", Drills.no_signer, Drills.settle),
    ("BudgetRefused", Drills.flood, Drills.settle),
    ("SignaturesRefused", Drills.forgery, Drills.settle),
]


async def test_each_alert_fires_in_its_drill_alone_and_clears(settings: Any, serve: Any, definitions_dir: Path) -> None:
    (definitions_dir / "operations" / "vague.yaml").write_text(VAGUE)
    installation = await serve(
        settings.model_copy(update={"budgets": {"starts": 12}, "slack_bot_token": None, "slack_signing_secret": None})
    )
    drills = Drills(installation)
    await installation.publish()
    await installation.people(PEOPLE)
    for flow in FLOWS.split("---"):
        await installation.add(flow)
    faces = installation.app.faces
    async with faces.database.transaction("default") as connection:
        await publishing.ensure_tenant(connection, "default", max_runs_per_min=600)
        await policies.publish_policy(connection, faces.definitions, "default", POLICY, "more.yaml", TESTER)
    with tracing.watched(installation.app.faces.metrics):
        await drills.settle()
        for alert, into, out in DRILLS:
            calm = await drills.look()
            assert {name for name, rule in RULES.items() if fires(rule, calm, calm)} == set(), alert
            await into(drills)
            trouble = await drills.look()
            assert {name for name, rule in RULES.items() if fires(rule, calm, trouble)} == {alert}
            await out(drills)
            over = await drills.look()
            assert not fires(RULES[alert], trouble, over), alert
    assert {alert for alert, _, _ in DRILLS} == set(RULES)
    exists: dict[str, set[str]] = {}
    for look in drills.looks:
        for name, labels, _ in look.samples:
            exists.setdefault(name, set()).update(labels)
    targets = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
    assert len(targets) > 10
    for expression in (*RULES.values(), *targets):
        for name, wanted in names(expression):
            assert name in exists, f"{expression}: there is no {name}"
            assert wanted <= exists[name], f"{expression}: {name} has the labels {sorted(exists[name])}"
    assert [alert for alert in RULES if f"| `{alert}` |" not in EXPLAINED] == []
