"""One tenant and one client flood an installation; the starts and clicks of another tenant go on meanwhile.

Idle and slow connections, endless headers and every costly text that is known arrive at once at one process, which
serves, works and keeps. Everything is on loopback, and ends by itself.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import secrets
import socket
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from app import storage
from app.access import Role, create_token
from chaos.machines import ROOT, Postgres
from connectors.catalog import load_catalog
from core.db import FACES_ROLE, Database
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.requests.publishing import ensure_tenant, publish_directory, publish_workflow
from sandbox.slack import SlackConfig
from sandbox.web import BadRequest
from sandbox.world import SandboxConfig, World, sandbox_world

QUIET, LOUD, CHANNEL = "quiet", "loud", "C0OPS"
MEMORY_MAX = 600 * 1024 * 1024
HEADER_BOMBS = 16
FLOODER = "127.0.0.2"
_ACTOR = Actor("test", "chaos")
_ROLES = frozenset({Role.ADMIN, Role.AUTHOR, Role.OPERATOR, Role.APPROVER, Role.TRIGGER, Role.AUDITOR})
_DIRECTORY = """
directory: flood
people: [{id: ana.lee, name: Ana Lee, slack: U0ANA}, {id: raj.quist, name: Raj Quist}]
groups: {owners: [ana.lee]}
"""
_ASKS = """
workflow: asks
version: 1
reference: ${{ trigger.number }}
steps: [{id: ask, approve: {approvers: {group: owners}, summary: "Go on with ${{ trigger.number }}?"}}]
"""


def _doing(name: str, expression: str, channel: str = "{reduce: replace}") -> str:
    return f"""
workflow: {name}
version: 1
reference: r
channels: {{found: {channel}}}
steps: [{{set: {{found: '${{{{ {expression} }}}}'}}}}]
"""


# The costly workflows that are accepted, and the input with which they cost most.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "compares": (
        _doing("compares", "trigger.a.all(x, trigger.b == trigger.b)"),
        {"a": [0] * 40_000, "b": [0] * 40_000},
    ),
    "repeats": (_doing("repeats", "trigger.a.map(x, trigger.s)"), {"a": [0] * 20_000, "s": "x" * 90_000}),
    "unites": (_doing("unites", "trigger.a", "{reduce: union}"), {"a": [*range(35_000)]}),
    "pages": (_doing("pages", "trigger.s", "{reduce: append}"), {"s": "x" * 200_000}),
}
_DEEP = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}}
# The costly documents, which are only checked.
DOCUMENTS: dict[str, tuple[str, str]] = {
    "references": (
        "/v1/workflows/check",
        "workflow: deep\nversion: 1\nreference: r\n"
        "steps: [{id: a, agent: {model: m, instructions: x, input: x, result: "
        + json.dumps({"$ref": "#/$defs/d0", "$defs": _DEEP})
        + "}}]\n",
    ),
    "stars": (
        "/v1/policies?dry_run=true",
        f"policy: p\nversion: 1\nrules: [{{id: a, match: {{operation: '{'*' * 30}z'}}, outcome: deny, because: x}}]\n",
    ),
    "rules": (
        "/v1/policies?dry_run=true",
        "policy: p\nversion: 1\nrules:\n"
        + "".join(
            f"  - {{id: r{n}, match: {{operation: servicenow.incident.update}}, when: \"run.requested_by != 'x{n}'\","
            " outcome: deny, because: x}\n"
            for n in range(1900)
        ),
    ),
}


@dataclass(frozen=True)
class Flood:
    """The size of a flood: idle or slow ``connections`` of one client, ``seconds``, and the ``slowest`` answer."""

    home: Path
    connections: int = 1500
    seconds: float = 30.0
    slowest: float = 1.0


@dataclass
class Flooded:
    """The result: counts of what was sent and answered, figures, and every broken promise."""

    answers: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    waited: float = 0.0
    """The part of ``slowest`` in which the loop could have gone on, and had no processor: the machine was busy."""
    memory: int = 0
    violations: list[str] = field(default_factory=list)


async def flood(plan: Flood) -> Flooded:
    """Flood, look, and judge."""
    found = Flooded()
    async with AsyncExitStack() as stack:
        port = _free_port()
        postgres = Postgres(plan.home / "postgres")
        database_url = await postgres.start()
        stack.push_async_callback(postgres.stop)
        signing = secrets.token_hex(24)
        slack = SlackConfig(signing_secret=signing, interactivity_url=f"http://127.0.0.1:{port}/slack/events")
        world = await stack.enter_async_context(sandbox_world(SandboxConfig(slack=slack)))
        tokens = await _publish(database_url)
        log = stack.enter_context((plan.home / "up.log").open("wb"))
        environment = _environment(plan.home, database_url, port, world, signing)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", "up", env=environment, stdout=log, stderr=log, cwd=ROOT
        )
        stack.push_async_callback(_stopped, process)
        url = f"http://127.0.0.1:{port}"
        headers = {"Authorization": f"Bearer {tokens[QUIET]}"}
        client = httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False)
        await stack.enter_async_context(client)
        await _until_served(client)
        quiet = _Quiet(client, world, found, process.pid)
        await quiet.round(0)  # whoever has proved who they are keeps a share of the connections
        # In a process of its own, so that the noise costs those nothing who measure.
        spawn = multiprocessing.get_context("spawn")
        said: Any = spawn.Queue()
        noise = spawn.Process(target=_noisy, args=(plan, port, tokens[LOUD], said), daemon=True)
        noise.start()
        ends, number = time.monotonic() + plan.seconds, 0
        while time.monotonic() < ends or number < 3:
            await quiet.round(number := number + 1)
            found.memory = max(found.memory, _memory(process.pid))
        found.answers += await asyncio.to_thread(said.get)
        await asyncio.to_thread(noise.join)
    _judge(plan, found, (plan.home / "up.log").read_text(errors="replace"))
    return found


class _Quiet:
    """The tenant that asks for little: it starts a run, and somebody clicks on its card."""

    def __init__(self, client: httpx.AsyncClient, world: World, found: Flooded, pid: int) -> None:
        self._client, self._world, self._found, self._pid = client, world, found, pid

    async def round(self, number: int) -> None:
        """One start and one click; each is answered, or counts as failed."""
        body = {"workflow": "asks", "input": {"number": f"N{number}"}}
        began = self._now()
        try:
            answer = await self._client.post("/v1/runs", json=body)
        except httpx.HTTPError as error:
            self._note("start", f"failed: {type(error).__name__}", began)
            return
        self._note("start", "ok" if answer.status_code == 201 else f"failed: {answer.status_code}", began)
        ts = await self._card(f"N{number}")
        began = self._now()
        try:
            clicked = await self._world.slack.people.click(CHANNEL, ts, "counterseal.approve", "U0ANA", stale=True)
        except BadRequest as error:
            self._note("click", f"failed: {error}", began)
            return
        self._note("click", "ok" if clicked.ok else "failed", began)

    async def _card(self, number: str) -> str:
        """Wait for the card of this run; nothing could tell us of it."""
        async with asyncio.timeout(120):
            while True:
                for one in self._world.slack.state.messages(CHANNEL):
                    if f"{number}?" in json.dumps(one.blocks) and not one.thread_ts:
                        return str(one.ts)
                await asyncio.sleep(0.05)

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), _waited(self._pid)

    def _note(self, what: str, how: str, began: tuple[float, float]) -> None:
        self._found.answers[f"{QUIET}: {what} {how}"] += 1
        took, waited = (now - then for now, then in zip(self._now(), began, strict=True))
        if took > self._found.slowest:
            self._found.slowest, self._found.waited = took, waited


def _noisy(plan: Flood, port: int, token: str, said: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, plan.connections + 1024)), hard))
    said.put(asyncio.run(_noise(plan, port, token)))


async def _noise(plan: Flood, port: int, token: str) -> Counter[str]:
    """Make all the noise there is for as long as the plan says; return what was sent and answered."""
    found, stop = Flooded(), asyncio.Event()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False
    ) as loud:
        every: list[Any] = [_hold(port, number, found, stop) for number in range(plan.connections)]
        every += [_headers(port, found, stop) for _ in range(HEADER_BOMBS)]
        every += [_document(loud, name, found, stop) for name in DOCUMENTS]
        every += [_run(loud, name, found, stop) for name in RUNS]
        tasks = [asyncio.create_task(each) for each in every]
        await asyncio.sleep(plan.seconds)
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found.answers


async def _hold(port: int, number: int, found: Flooded, stop: asyncio.Event) -> None:
    """Hold a connection open: silent, or with a header that never ends. When it is closed, open it again."""
    while not stop.is_set():
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(FLOODER, 0))
            found.answers[f"{LOUD}: connections"] += 1
            writer.write(b"GET /healthz HTTP/1.1\r\nX-Slow: " if number % 2 else b"")
            await reader.read()
            writer.close()
        await asyncio.sleep(5.0)


async def _headers(port: int, found: Flooded, stop: asyncio.Event) -> None:
    """Send headers without an end."""
    while not stop.is_set():
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(FLOODER, 0))
            writer.write(b"GET /healthz HTTP/1.1\r\n" + b"X-Bomb: " + b"x" * (4 << 20))
            await writer.drain()
            writer.close()
        found.answers[f"{LOUD}: header bombs"] += 1
        await asyncio.sleep(0.2)


async def _document(loud: httpx.AsyncClient, name: str, found: Flooded, stop: asyncio.Event) -> None:
    path, text = DOCUMENTS[name]
    while not stop.is_set():
        with suppress(httpx.HTTPError):
            answer = await loud.post(path, json={"source": text})
            found.answers[f"{LOUD}: {name} {answer.status_code}"] += 1


async def _run(loud: httpx.AsyncClient, name: str, found: Flooded, stop: asyncio.Event) -> None:
    _, given = RUNS[name]
    while not stop.is_set():
        with suppress(httpx.HTTPError):
            answer = await loud.post("/v1/runs", json={"workflow": name, "input": given})
            found.answers[f"{LOUD}: {name} {answer.status_code}"] += 1
            if answer.status_code == 201:
                page = await loud.get(f"/v1/runs/{answer.json()['run_id']}/checkpoints", params={"limit": 200})
                found.answers[f"{LOUD}: page {page.status_code}"] += 1


def _memory(pid: int) -> int:
    """The largest memory of the process until now, and what its helpers have of their own (pages are counted once)."""
    found = _kilobytes(pid, "status", "VmHWM:")
    for one in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += sum(_kilobytes(int(child), "smaps_rollup", "Pss:") for child in one.read_text().split())
    return found * 1024


def _kilobytes(pid: int, name: str, word: str) -> int:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(word)), 0)
    return 0


def _waited(pid: int) -> float:
    """The seconds for which the thread of the loop has waited for a processor; 0 where the system does not tell."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _judge(plan: Flood, found: Flooded, log: str) -> None:
    failed = [f"{what}: {count} times" for what, count in found.answers.items() if what.startswith(QUIET)]
    found.violations = [one for one in failed if "failed" in one]
    if found.slowest > plan.slowest:
        found.violations.append(f"the slowest answer took {found.slowest:.1f} s, not {plan.slowest} s")
    if found.memory > MEMORY_MAX:
        found.violations.append(f"{found.memory >> 20} MiB of memory, not {MEMORY_MAX >> 20}")
    if f'"tenant": "{LOUD}"' not in log:
        found.violations.append(f"no line of the log names the tenant {LOUD}")


async def _publish(url: str) -> dict[str, str]:
    await storage.upgrade(url)
    definitions = Definitions(load_catalog())
    texts = {QUIET: [_ASKS], LOUD: [text for text, _ in RUNS.values()]}
    async with Database(url, FACES_ROLE) as faces:
        for tenant, workflows in texts.items():
            async with faces.transaction(tenant) as connection:
                await ensure_tenant(connection, tenant)
                await publish_directory(connection, tenant, _DIRECTORY, "d.yaml", _ACTOR)
                for text in workflows:
                    await publish_workflow(connection, definitions, tenant, text, "w.yaml", _ACTOR)
        made = {one: await create_token(faces, one, "raj.quist", _ROLES, None, _ACTOR) for one in texts}
    return {tenant: one.token for tenant, one in made.items()}


def _environment(home: Path, database_url: str, port: int, world: World, signing: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "COUNTERSEAL_HOME": str(home / ".counterseal"),
        "COUNTERSEAL_TENANT": QUIET,
        "COUNTERSEAL_DATABASE_URL": database_url,
        "COUNTERSEAL_PORT": str(port),
        "COUNTERSEAL_LOG_FORMAT": "json",
        "COUNTERSEAL_SLACK_BOT_TOKEN": "xoxb-sandbox",
        "COUNTERSEAL_SLACK_SIGNING_SECRET": signing,
        "COUNTERSEAL_SLACK_API_URL": f"{world.slack.url}/api/",
        "COUNTERSEAL_SLACK_CHANNEL": CHANNEL,
    }


async def _until_served(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(180):
        while True:
            with suppress(httpx.TransportError):
                if (await client.get("/readyz")).is_success:
                    return
            await asyncio.sleep(0.2)


async def _stopped(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
