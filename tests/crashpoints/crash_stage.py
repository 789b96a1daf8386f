"""One process that works a workload off, and dies by SIGKILL at a chosen call of a port. Not a test; forked by one.

Every effect of the product crosses a port: the database, the queue, connectors, the messenger, the blob store, the
signer. Each is wrapped here, where the parts are put together; nothing in the product knows of it. Calls are numbered
in their order; the process kills itself just before or just after the call of one number took effect.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import crash_gate
import crash_rows
import crash_servicenow
import crash_workloads
import structlog
from msgspec.structs import replace

from approvals.model import Choice, VoteChannel
from approvals.ports import Absent, MessageRef, Posted
from connectors.agent.connector import AgentConnector
from connectors.catalog import Source, load_catalog
from connectors.port import Connectors, Done, InDoubt, NotSent, Parked, Probe, ProbeVerdict, Refused
from connectors.records.connector import RecordsConnector
from core.db import ENGINE_ROLE, FACES_ROLE, Connection, Database
from core.terms import Stopped
from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.definition.catalog import Definitions
from runtime.engine.life import doubt
from runtime.engine.life.holding import Answer
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.errands import Errands
from runtime.keep.messages import Messages
from runtime.keep.sweeper import Sweeper
from runtime.queue.postgres import PostgresQueue
from runtime.requests import pausing
from runtime.requests.holding import Holding, HoldRequest
from runtime.requests.policies import publish_policy
from runtime.requests.publishing import ensure_tenant, publish_directory, publish_workflow
from runtime.requests.signaling import Signal, Signaling
from runtime.requests.starting import StartRequest, start_run
from runtime.requests.steering import Extending, close_run, retry_run
from runtime.requests.tasks import Tasks
from runtime.requests.voting import VoteRequest, Voting
from runtime.store import documents, records, tenants
from runtime.work.holding import Tools
from runtime.work.worker import Worker
from sandbox.model_scripts import misuse
from tests.support.arrivals import Arrivals
from tests.support.books import Books
from tests.support.for_all import ForAll
from tests.support.telling import UNTOLD
from tests.support.trouble import Trouble

TENANT = "acme"
ACTOR = Actor("test", "crash")
SPENT = timedelta(seconds=30)
# The mark of an append that asks somebody, or orders another message.
MESSAGE = " with a message"


@dataclass(frozen=True)
class Plan:
    """The moment to die: ``before`` or ``after`` the call of this number took effect; None lives.

    ``stop`` says how everything is stopped (``pause``, ``deny``) before anybody goes on with what was left. If it
    ``freezes``, the process does not die: it stands still until somebody lets it go on.
    """

    folder: str
    url: str
    workload: str
    number: int | None = None
    when: str = "before"
    stop: str = ""
    freezes: bool = False


class Killer:
    """Numbers the calls of all ports, and dies where the plan says."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.calls: list[str] = []

    def enter(self, name: str) -> int:
        """A call begins; its number."""
        self.calls.append(name)
        self._die(len(self.calls) - 1, "before")
        return len(self.calls) - 1

    def leave(self, number: int) -> None:
        """The call of this number took effect."""
        self._die(number, "after")

    def _die(self, number: int, when: str) -> None:
        if self._plan.number == number and self._plan.when == when:
            os.kill(os.getpid(), signal.SIGSTOP if self._plan.freezes else signal.SIGKILL)

    def wrap(self, port: str, thing: Any, *names: str) -> Any:
        """The thing, with these methods numbered."""
        return _Wrapped(self, port, thing, names)


class _Wrapped:
    def __init__(self, killer: Killer, port: str, thing: Any, names: tuple[str, ...]) -> None:
        self._killer, self._port, self._thing, self._names = killer, port, thing, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._thing, name)
        return self._numbered(name, found) if name in self._names else found

    def _numbered(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        label = f"{self._port}.{name}"
        if not asyncio.iscoroutinefunction(method):

            def plain(*args: Any, **kwargs: Any) -> Any:
                number = self._killer.enter(label)
                result = method(*args, **kwargs)
                self._killer.leave(number)
                return result

            return plain

        async def called(*args: Any, **kwargs: Any) -> Any:
            shown = f"{label} {str(args[0]).split()[0]}" if self._port == "database" else label
            parts = {name for each in args[1:] if isinstance(each, dict) for name in each}
            shown += f" tells {told}" if (told := ",".join(_told(args))) else ""
            shown += MESSAGE if parts & {"commands", "new_approvals"} else ""
            number = self._killer.enter(shown)
            result = await method(*args, **kwargs)
            self._killer.leave(number)
            return result

        return called


def _told(values: Any) -> list[str]:
    """The types of the events in the parameters of a statement."""
    if isinstance(values, bytes):
        return [name.decode() for name in re.findall(rb'"type":"([a-z_.]+)"', values)]
    return [name for one in values for name in _told(one)] if isinstance(values, list | tuple) else []


class _Numbered(Database):
    """A database whose statements are calls of a port."""

    def __init__(self, url: str, role: str, killer: Killer) -> None:
        super().__init__(url, role, connections=4)
        self._killer = killer

    async def connect(self) -> Any:
        connection = await super().connect()
        return self._killer.wrap("database", connection, "fetchrow", "fetch", "fetchval", "execute")


class Ledger:
    """The record that outlives the process: one line for each thing that happened outside."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, **facts: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def all(self, **wanted: Any) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        found = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [facts for facts in found if all(facts.get(name) == value for name, value in wanted.items())]


class Outside:
    """The target system: it applies whatever it is told, and can say what it was told."""

    target = ""

    def __init__(self, ledger: Ledger, refuses_first: frozenset[str], refused_once: str) -> None:
        self._ledger = ledger
        self._refuses_first = refuses_first
        self._refused_once = refused_once

    async def perform(self, call: Any) -> Any:
        name = call.input["name"]
        if name == "doubt":
            self._ledger.add(what="effect", name=name)
            return InDoubt("The line broke.")
        if name == self._refused_once and not self._ledger.all(what="refused", name=name):
            self._ledger.add(what="refused", name=name)
            return Refused("no", "not today")
        if name in self._refuses_first and not self._ledger.all(what="attempt", name=name):
            self._ledger.add(what="attempt", name=name)
            return NotSent("busy", 1.0)
        self._ledger.add(what="effect", name=name, key=call.idempotency_key, correlation=call.correlation_key)
        return Parked("case-1") if call.correlation_key else Done({"name": name}, external_id=name)

    async def probe(self, call: Any, *, seconds_since_intent: float) -> Probe:
        if self._ledger.all(what="effect", key=call.idempotency_key):
            return Probe(ProbeVerdict.APPLIED, "It is there.", Done({"name": call.input["name"]}))
        return Probe(ProbeVerdict.NOT_APPLIED, "It is not there.")

    async def cancel(self, call: Any, external_id: str | None) -> Done:
        self._ledger.add(what="canceled", correlation=call.correlation_key)
        return Done({})

    async def read_before(self, call: Any) -> Any:
        raise TypeError("no operation here is read before")

    async def check(self) -> tuple[bool, str]:
        return True, ""

    async def aclose(self) -> None:
        return None


class Model:
    """The model of an agent: it makes its calls once, and notes when it is asked for what it has answered already."""

    target = ""

    def __init__(self, ledger: Ledger, books: Books, calls: tuple[tuple[str, str], ...]) -> None:
        self._ledger, self._books, self._calls = ledger, books, calls

    async def perform(self, call: Any) -> Any:
        said = call.input["messages"]
        turns = sum(message["role"] == "assistant" for message in said)
        recorded = len(await self._books.audit(None, type="agent.answered"))
        problem = misuse(said)
        if recorded != turns or problem is not None:
            self._ledger.add(what="strange", recorded=recorded, turns=turns, problem=problem)
        output: dict[str, Any] = {"text": "Done.", "model": "m", "finish_reason": "stop"}
        if not turns:
            made = [
                {"id": name, "type": "function", "function": {"name": tool, "arguments": json.dumps({"name": name})}}
                for tool, name in self._calls
            ]
            output["tool_calls"] = made
        else:
            results = {one["tool_call_id"]: json.loads(one["content"]) for one in said if one["role"] == "tool"}
            self._ledger.add(what="told", came={name: result.get("status") for name, result in results.items()})
        return Done(output)

    async def aclose(self) -> None:
        return None


class Chat:
    """The messenger: what was posted is there, and is found by its key."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def post_card(self, channel: str, view: Any, key: str) -> Posted:
        self._ledger.add(what="card", key=key)
        return Posted(MessageRef(channel, key))

    async def update_card(self, ref: MessageRef, view: Any) -> Posted:
        self._ledger.add(what="shown", key=ref.ts, state=str(view.state))
        return Posted(ref)

    async def post_list(self, channel: str, view: Any, key: str) -> Posted:
        return await self.post_card(channel, view, key)

    async def update_list(self, ref: MessageRef, view: Any) -> Posted:
        return Posted(ref)

    async def find_card(self, channel: str, key: str, *, since: float) -> Posted | Absent:
        return Posted(MessageRef(channel, key)) if self._ledger.all(what="card", key=key) else Absent()

    async def post_task(self, channel: str, view: Any, key: str) -> Posted:
        self._ledger.add(what="card", key=key)
        return Posted(MessageRef(channel, key))

    async def update_task(self, ref: MessageRef, view: Any) -> Posted:
        return Posted(ref)

    async def post_thread(self, ref: MessageRef, text: str, key: str) -> Posted:
        return Posted(ref)

    async def post_ephemeral(self, channel: str, user: str, text: str) -> Posted:
        return Posted(MessageRef(channel, user))


class Stage:
    """The parts, put together as ``app`` does, on wrapped ports."""

    def __init__(self, plan: Plan, engine: Database, faces: Database, own: Database, killer: Killer) -> None:
        folder = Path(plan.folder)
        self.plan, self.engine, self.faces = plan, engine, faces
        self.books, self.trouble = Books(own), Trouble(own)
        self.work = crash_workloads.WORKLOADS[plan.workload]
        self.ledger = Ledger(folder / "ledger.jsonl")
        outside = Outside(self.ledger, self.work.refuses_first, self.work.refused_once)
        names = ("perform", "probe", "cancel")
        sources = {"probe.yaml": crash_workloads.OPERATIONS, "rows.yaml": crash_rows.OPERATIONS}
        catalog = load_catalog([Source(name, text) for name, text in sources.items()])
        self.instance = crash_servicenow.Instance(folder, killer) if self.work.incidents else None
        now = {"servicenow": self.instance.connector()} if self.instance else {}
        rows = {"sql": crash_rows.connector(plan.url, killer)} if self.work.rows else {}
        model = {"model": killer.wrap("model", Model(self.ledger, self.books, self.work.calls), "perform")}
        self.connectors = Connectors(
            {
                "probe": killer.wrap("connector", outside, *names),
                "agent": AgentConnector(),
                "records": RecordsConnector(partial(records.read, engine)),
                **rows,
                **now,
                **model,
            }
        )
        self.definitions = Definitions(catalog)
        agent = crash_gate.Agent(TENANT, faces, self.definitions, self.trouble, self.ledger)
        vars(agent)["tool"] = killer.wrap("agent", agent, "tool").tool
        self.agent = agent if self.work.gate else None
        chat = killer.wrap("messenger", Chat(self.ledger), "post_card", "update_card", "find_card", "post_task",
                           "post_thread")  # fmt: skip
        blobs = killer.wrap("blobs", FileBlobStore(folder / "evidence"), "put")
        signer = killer.wrap("signer", FileSigner.load_or_create(folder / "key.pem"), "sign")
        handlers = {
            **Messages(chat, "C1", self.definitions).handlers(),
            **Bundling(blobs, signer, "crash", self.definitions).handlers(),
            **Errands(engine, self.definitions, self.connectors).handlers(),
            **UNTOLD,
        }
        self.dispatcher = Dispatcher(engine, handlers, "dispatcher")
        self.workers = [self._worker(killer, number) for number in range(self.work.workers)]
        self.sweeper = Sweeper(engine, self.definitions)

    def _worker(self, killer: Killer, number: int) -> Worker:
        queue = killer.wrap("queue", PostgresQueue(idle=timedelta(milliseconds=1)), "receive")
        tools = Tools(self.engine, self.definitions, ForAll(self.connectors), f"w{os.getpid()}.{number}", SPENT)
        return Worker(tools, queue)

    async def prepare(self) -> None:
        """The tenant, its documents, and the other database if there is one; idempotent."""
        if self.work.rows:
            await crash_rows.found(self.plan.url)
        if self.instance is not None:
            await self.instance.open()
        async with self.faces.transaction(TENANT) as connection:
            if self.work.proposes and await self._in_force(connection):
                return  # what takes two people now was done by one
            await ensure_tenant(connection, TENANT, max_concurrency=4)
            await publish_directory(connection, TENANT, crash_workloads.DIRECTORY, "directory.yaml", ACTOR)
            await publish_policy(connection, self.definitions, TENANT, crash_workloads.POLICY, "policy.yaml", ACTOR)
            for text in self.work.workflows:
                await publish_workflow(connection, self.definitions, TENANT, text, "workflow.yaml", ACTOR)
            if self.work.proposes:
                await publish_directory(connection, TENANT, crash_workloads.TWO_PEOPLE, "directory.yaml", ACTOR)

    async def _in_force(self, connection: Connection) -> bool:
        return await tenants.exists(connection, TENANT) and bool(await documents.in_force(connection, TENANT))

    async def propose(self) -> None:
        """Two admit a third; one proposes the next version of the policy; each again until it is acknowledged."""
        for who in ("nina", "olga") if self.work.proposes else ():
            if not self.ledger.all(what="admitted", by=who):
                async with self.faces.transaction(TENANT) as connection:
                    given = (crash_workloads.THREE_PEOPLE, "directory.yaml", Actor("person", who))
                    await publish_directory(connection, TENANT, *given)
                self.ledger.add(what="admitted", by=who)
        if not self.work.proposes or self.ledger.all(what="proposed"):
            return
        async with self.faces.transaction(TENANT) as connection:
            policy = (crash_workloads.NEXT, "policy.yaml", Actor("person", "nina"))
            await publish_policy(connection, self.definitions, TENANT, *policy)
        self.ledger.add(what="proposed")

    async def start(self) -> None:
        """A webhook: sent again until it is acknowledged."""
        if self.agent is not None:
            await self.agent.ask()
        if self.agent is not None or self.ledger.all(what="acknowledged"):
            return
        async with self.faces.transaction(TENANT) as connection:
            (stored,) = await documents.newest_workflows(connection, TENANT, self.work.name)
            request = StartRequest(TENANT, "main", "test", "1", self.work.trigger, "requester", ACTOR)
            request = replace(request, open=self.work.open)
            run = await start_run(connection, self.definitions.compiled(stored), request)
        self.ledger.add(what="acknowledged", run=str(run.run_id))

    async def go_on(self) -> bool:
        """One round of everybody; whether anything moved."""
        moved = sum(await asyncio.gather(*(worker.work_off() for worker in self.workers)))
        moved += await self.dispatcher.work_off() + await self.sweeper.sweep()
        moved += self.agent is not None and await self.agent.go_on()
        return bool(moved) or await self.people() or await self.retried() or await self.opened() or await self.clock()

    async def opened(self) -> bool:
        """Add a step to the run that waits for more, and close it when that is done."""
        waiting = [run for run in await self.books.runs(status="waiting") if self.work.open]
        for run in waiting:
            if await self.books.events(run.id, type="run.extended"):
                async with self.faces.transaction(TENANT) as connection:
                    await close_run(connection, self.definitions, TENANT, run.id, ACTOR, "done")
            else:
                more = {"steps": [{"id": "m", "do": "probe.effect.apply", "with": {"name": "more"}}]}
                await Extending(self.faces, self.definitions).extend(TENANT, run.id, ACTOR, more, run.version)
        return bool(waiting)

    async def retried(self) -> bool:
        """Go on with the run if it has failed, again until that is acknowledged."""
        runs = await self.books.runs(status="failed_terminal") if self.work.refused_once else []
        for run in runs:
            async with self.faces.transaction(TENANT) as connection:
                await retry_run(connection, self.definitions, TENANT, run.id, ACTOR, "it is mended")
        holds = await self.books.waits(kind="hold", open=True)
        for hold in holds:
            said = (Answer.AGAIN, "It is mended.", VoteChannel.CLI)
            await Holding(self.faces, self.definitions).answer(HoldRequest(TENANT, "hugo", *said, wait_id=hold.id))
        return bool(runs or holds)

    async def stop(self) -> None:
        """Stop everything, go on until nothing moves, and note the intents before and after; then end a pause."""
        paused = (self.faces, self.definitions, TENANT, Stopped.TENANT, "")
        if self.plan.stop == "pause":
            await pausing.pause(*paused, "An emergency.", ACTOR)
        else:
            async with self.faces.transaction(TENANT) as connection:
                deny = crash_workloads.DENY
                await publish_policy(connection, self.definitions, TENANT, deny, "policy.yaml", ACTOR)
        before = await self._intents()
        await _recover(self.trouble)
        await self.to_rest()
        self.ledger.add(what="stopped", before=before, after=await self._intents())
        if self.plan.stop == "pause":
            await pausing.resume(*paused, "", ACTOR)

    async def _intents(self) -> int:
        runs = await self.books.runs()
        return sum([len(await self.books.events(run.id, type="action.intended")) for run in runs])

    async def to_rest(self) -> None:
        """Go on until nothing moves."""
        quiet = 0
        while quiet < 2:
            quiet = 0 if await self.go_on() else quiet + 1

    async def people(self) -> bool:
        """Answer as each person who is asked, again until the answer is acknowledged."""
        asked = await self.books.open_questions(TENANT)
        tasks = await self.books.waits(kind="task", open=True)
        signals = await self.books.waits(kind={"signal", "external"}, open=True)
        for question in asked:
            sent = not self.work.calls or self.ledger.all(what="effect", name="doubt")
            if self.work.gate:
                run = (await self.books.approval(id=question.id)).run
                (asked_for,) = self.ledger.all(what="asked", run=str(run))
                sent = self.ledger.all(what="effect", name=asked_for["name"])
            choice = ("happened" if sent else "again") if question.kind == "in_doubt" else self.work.choice
            request = VoteRequest(TENANT, question.id, "olga", Choice(choice), "seen", VoteChannel.CLI)
            answer = await Voting(self.faces, self.definitions).vote(request)
            self.ledger.add(what="voted", approval=str(question.id), code=answer.code)
        for task in tasks:
            done = await Tasks(self.faces, self.definitions).complete(
                TENANT, task.id, "olga", {"name": "Ada"}, VoteChannel.CLI
            )
            self.ledger.add(what="completed", accepted=done.accepted)
        told = 0
        for wait in signals:
            if wait.kind == "signal" or not self.work.times_out:
                key = wait.correlation_key
                said = Signal(TENANT, key, f"s:{key}", ACTOR, {"papers": 1})
                answer_code = (await Signaling(self.faces, self.definitions).signal(said)).code
                self.ledger.add(what="signaled", code=str(answer_code))
                told += 1
        return bool(asked or tasks or told)

    async def clock(self) -> bool:
        """Time passes for what waits for it: retries, timers, and what the workload lets time out."""
        _arrive()
        kinds = ["retry", "timer"] + (["external"] if self.work.times_out else [])
        due = await self.trouble.make_waits_due(*kinds)
        due += 0 if self.agent is None else await self.agent.lease_over()
        return bool(await self.trouble.hurry_messages() + due)


_ARRIVALS = Arrivals()


def _arrive() -> None:
    """Long enough has passed that whatever was sent has arrived, or never will."""
    _ARRIVALS.everything_so_far()
    doubt.rest = _ARRIVALS.rest


async def _recover(trouble: Trouble) -> None:
    """Long enough has passed since the last process died: its leases are over, and what it sent has arrived."""
    _arrive()
    await trouble.expire_leases()
    await trouble.expire_message_leases()
    await trouble.expire_sent()


async def _act(plan: Plan) -> None:
    killer = Killer(plan)
    async with (
        _Numbered(plan.url, ENGINE_ROLE, killer) as engine,
        _Numbered(plan.url, FACES_ROLE, killer) as faces,
        Database(plan.url, ENGINE_ROLE, connections=2) as own,  # what the stage itself asks and changes is no call
    ):
        stage = Stage(plan, engine, faces, own, killer)
        await stage.prepare()
        first = len(killer.calls)
        if plan.stop:
            await stage.stop()
        await _recover(stage.trouble)
        await stage.start()
        await stage.propose()
        await stage.to_rest()
        if stage.agent is not None and not await stage.agent.refused():
            stage.ledger.add(what="second permit")
        await stage.connectors.aclose()
        if stage.instance is not None:
            await stage.instance.close()
    numbered = {"first": first, "calls": killer.calls}
    (Path(plan.folder) / "calls.json").write_text(json.dumps(numbered))


def act(plan: Plan) -> None:
    """The body of the process."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    asyncio.run(_act(plan))
