"""One chaos test, from an empty folder to a verdict."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import agents, checks, outside, trouble
from chaos.eyes import AWAY, KINDS, RECEIPTS, Eyes
from chaos.gremlin import Gremlin, sqs
from chaos.machines import Machines, Postgres
from chaos.people import CHANNEL, REQUESTER, SLACK_USERS, People
from chaos.publish import Office, definitions_in, publish
from chaos.schedule import Kind, plan
from chaos.trouble import TroubleMaker
from sandbox.bpmn_config import REST_PATH, BpmnConfig
from sandbox.slack import SlackConfig
from sandbox.world import SandboxConfig, World, sandbox_world

LEASE_SECONDS = 2
SETTLE_SECONDS = 300.0


@dataclass(frozen=True)
class Plan:
    """The plan of a storm. ``kinds`` are the possible faults, ``pause`` the range of seconds between two starts."""

    seed: int
    seconds: float
    home: Path
    kinds: tuple[Kind, ...] = tuple(Kind)
    pause: tuple[float, float] = (0.3, 1.5)
    most: int = 1000
    queue: str = "postgres"


@dataclass
class Report:
    """The result of a storm: counts of faults and observations, and every broken promise."""

    seed: int
    seconds: float
    queue: str = "postgres"
    settled_after: float = 0.0
    violations: list[str] = field(default_factory=list)
    injected: dict[str, int] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    requests_hit: dict[str, int] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    people: dict[str, int] = field(default_factory=dict)
    cases: dict[str, int] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)
    complaints: dict[str, int] = field(default_factory=dict)


async def run(plan_: Plan, say: Any) -> Report:
    """Carry out the plan. ``say`` gets progress lines."""
    report = Report(plan_.seed, plan_.seconds, plan_.queue)
    async with _stage(plan_) as (machines, people, maker, world, gremlin):
        url = machines.environment["COUNTERSEAL_DATABASE_URL"]
        eyes = Eyes(url)
        office = Office(url, definitions_in(plan_.home / "definitions"))
        stop = asyncio.Event()
        going = asyncio.create_task(people.go_on())
        starting = asyncio.create_task(people.start_runs(stop, plan_.pause, plan_.most))
        say(f"seed {plan_.seed}: trouble for {plan_.seconds:.0f} s")
        try:
            meddling = [asyncio.create_task(gremlin.run())] if gremlin else []
            changing = asyncio.create_task(office.run(stop))
            await maker.run(plan(plan_.seed, plan_.seconds, kinds=plan_.kinds))
            stop.set()
            for task in meddling:
                task.cancel()
            report.requests_hit = dict(sorted(maker.relent().items()))
            say(f"{len(people.cases)} runs were started; settling")
            await starting
            await changing
            report.settled_after = await _settle(people, [going], say)
            executions = await checks.executed(eyes, url)
            report.violations = await checks.violations(people, world, plan_.home, executions)
            report.violations += await checks.read_again(eyes, url, office, report.figures)
        finally:
            for task in (going, starting):
                task.cancel()
            await asyncio.gather(going, starting, return_exceptions=True)
            await eyes.close()
        await _fill(report, machines, people, maker)
        report.people["changes of policy and directory"] = office.done
        report.figures |= checks.crowd(executions)
        if gremlin:
            report.injected |= dict(sorted(gremlin.did.items()))
            report.figures["SQS dead letters left"] = gremlin.dead_letters()
    return report


async def _settle(people: People, others: list[asyncio.Task[None]], say: Any) -> float:
    """Wait until nothing is left; returns the seconds. Anything left after ``SETTLE_SECONDS`` is a violation."""
    began = time.monotonic()
    said = began
    while time.monotonic() - began < SETTLE_SECONDS:
        for task in others:
            if task.done():
                task.result()  # a task that settling needs has failed: a bug of the test, so raise its error
        with suppress(*AWAY):
            waiting = [case.ref for case in people.cases if not case.started]
            remains = await checks.left(people.eyes)
            if not waiting and not remains:
                return round(time.monotonic() - began, 1)
            if time.monotonic() - said > 15:
                said = time.monotonic()
                say(f"left: {remains}, not acknowledged: {len(waiting)}")
        await asyncio.sleep(0.5)
    return round(time.monotonic() - began, 1)


async def _fill(report: Report, machines: Machines, people: People, maker: TroubleMaker) -> None:
    report.injected = dict(sorted(maker.injected.items()))
    report.missed = dict(sorted(maker.missed.items()))
    report.exits = dict(sorted(machines.exits.items()))
    report.people = dict(sorted(people.done.items()))
    report.cases = dict(sorted(Counter(case.kind for case in people.cases).items()))
    figures = {
        "runs": "SELECT count(*) FROM runs",
        "receipts": f"SELECT count(*) FROM ({RECEIPTS.format('')}) r",
        "approvals": "SELECT count(*) FROM approvals",
        "leases that expired": "SELECT count(*) FROM run_lines WHERE type = 'lease.expired'",
        "actions in doubt": "SELECT count(*) FROM run_lines WHERE type = 'action.in_doubt'",
        "late answers": "SELECT count(*) FROM run_lines WHERE type = 'action.late'",
        "doubts put to people": f"SELECT count(*) FROM ({KINDS}) k WHERE kind = 'in_doubt'",
        "questions that expired": "SELECT count(*) FROM run_lines WHERE type = 'approval.expired'",
        "answers of models": "SELECT count(*) FROM run_lines WHERE type = 'agent.answered'",
        "runs reopened": "SELECT count(*) FROM run_lines WHERE type = 'run.reopened'",
        "extensions": "SELECT count(*) FROM run_lines WHERE type = 'run.extended'",
        "runs purged": "SELECT count(*) FROM runs WHERE purged_at IS NOT NULL",
        "retries": "SELECT count(*) FROM run_lines WHERE type = 'step.retry_scheduled'",
        "audit events": "SELECT count(*) FROM run_lines",
    }
    report.complaints = dict(checks.complaints(machines.home).most_common())
    report.figures |= {name: await people.eyes.one(sql) for name, sql in figures.items()}


@asynccontextmanager
async def _stage(plan_: Plan) -> AsyncIterator[tuple[Machines, People, TroubleMaker, World, Gremlin | None]]:
    """Start everything: PostgreSQL, the stand-ins, the processes and the people."""
    port = _free_port()
    webhook_secret, signing_secret = secrets.token_hex(24), secrets.token_hex(24)
    slack = SlackConfig(signing_secret=signing_secret, interactivity_url=f"http://127.0.0.1:{port}/slack/events")
    async with AsyncExitStack() as stack:
        postgres = Postgres(plan_.home / "postgres")
        database_url = await postgres.start()
        stack.push_async_callback(postgres.stop)
        world = await stack.enter_async_context(sandbox_world(SandboxConfig(slack=slack, bpmn=BpmnConfig())))
        world.servicenow.webhooks.url = f"http://127.0.0.1:{port}/webhooks/servicenow/chaos"
        world.servicenow.webhooks.secret = webhook_secret
        world.model.turns = [*agents.turns()]
        trouble.slow_down(world, random.Random(plan_.seed))
        environment = _environment(plan_.home, database_url, port, world) | {
            "COUNTERSEAL_WEBHOOKS": json.dumps({"chaos": {"secret": webhook_secret}}),
            "COUNTERSEAL_SLACK_SIGNING_SECRET": signing_secret,
        }
        gremlin = None
        if plan_.queue == "sqs":
            gremlin, queue_settings = stack.enter_context(sqs(random.Random(plan_.seed)))
            environment |= queue_settings
        tokens = await publish(database_url, plan_.home / "definitions", [*SLACK_USERS.values(), REQUESTER])
        await outside.apply(database_url, Path(environment["COUNTERSEAL_HOME"]), world, CHANNEL)
        machines = Machines(plan_.home, environment)
        stack.push_async_callback(machines.close)
        await machines.start()
        eyes = Eyes(database_url)
        stack.push_async_callback(eyes.close)
        people = People(world, eyes, f"http://127.0.0.1:{port}", tokens, random.Random(plan_.seed))
        stack.push_async_callback(people.close)
        await people.until_served()
        yield machines, people, TroubleMaker(machines, postgres, world, eyes), world, gremlin


def _environment(home: Path, database_url: str, port: int, world: World) -> dict[str, str]:
    assert world.bpmn is not None
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "COUNTERSEAL_HOME": str(home / ".counterseal"),
        "COUNTERSEAL_DATABASE_URL": database_url,
        "COUNTERSEAL_DEFINITIONS_DIR": str(home / "definitions"),
        "COUNTERSEAL_PORT": str(port),
        "COUNTERSEAL_LEASE_SECONDS": str(LEASE_SECONDS),
        "COUNTERSEAL_LOG_FORMAT": "json",
        "COUNTERSEAL_SECRETS": outside.given(world),
        "COUNTERSEAL_SLACK_BOT_TOKEN": "xoxb-sandbox",
        "COUNTERSEAL_SLACK_API_URL": f"{world.slack.url}/api/",
        "COUNTERSEAL_SLACK_CHANNEL": CHANNEL,
        "COUNTERSEAL_SERVICENOW_URL": world.servicenow.url,
        "COUNTERSEAL_SERVICENOW_USERNAME": "counterseal.integration",
        "COUNTERSEAL_SERVICENOW_PASSWORD": "sandbox",
        "COUNTERSEAL_SERVICENOW_TRANSACTION_LIMIT_SECONDS": str(outside.LIMIT_SECONDS),
        "COUNTERSEAL_BPMN_URL": f"{world.bpmn.url}{REST_PATH}",
        "COUNTERSEAL_BPMN_USERNAME": "counterseal",
        "COUNTERSEAL_BPMN_PASSWORD": "sandbox",
        "COUNTERSEAL_MODEL_URL": f"{world.model.url}/v1",
        "COUNTERSEAL_MODEL_API_KEY": world.model.config.api_key,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
