"""Requests of people and programs, whole: each answer or refusal, with every line that it leaves in an audit.

Two tenants have things of the same names. What the other one has never shows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import to_builtins

from approvals.model import Choice, VoteChannel
from connectors.port import InDoubt
from core.errors import CountersealError
from core.terms import Stopped
from evidence.chain import Actor
from runtime.definition.reserved import POLICY_APPROVERS
from runtime.requests import pausing, policies, publishing, steering
from runtime.requests.retrying import retry_run
from runtime.requests.signaling import Signal, Signaling
from runtime.requests.steering import Extending
from runtime.requests.voting import AnswerTo, VoteRequest, Voting
from runtime.store import books
from tests.support.whole import Named, as_it_was

PLACE = Path(__file__).parent
ANN, BOB, EVE = Actor("person", "ann"), Actor("token", "bob"), Actor("service_account", "eve")
POLICY = """policy: rules
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
"""
ASKS = """policy: rules
version: 2
rules:
  - {id: asks, match: {connector: probe}, outcome: needs_approval, approvers: [{group: leads}]}
  - {id: not, match: {operation: probe.value.read}, outcome: deny, because: It is not read.}
"""
FLOW = """workflow: flow
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: act, do: probe.effect.apply, with: {name: "${{ trigger.name }}"}}
  - {id: heard, wait: {signal: said, correlate: "${{ trigger.number }}"}, timeout: P1D}
"""
PEOPLE = """directory: people
version: 1
people: [{id: ann, name: Ann}, {id: bob, name: Bob}, {id: cid, name: Cid, active: false}]
service_accounts: [{id: eve, owner: cid}]
groups: {leads: [ann, cid]}
"""
TWO = (
    PEOPLE.replace("version: 1", "version: 2")
    .replace("[ann, cid]", f"[ann, cid], {POLICY_APPROVERS}: [ann, bob]")
    .replace("owner: cid}", "owner: cid}, {id: robot, owner: bob}")
)


def version(text: str, number: int) -> str:
    return text.replace("version: 1", f"version: {number}")


def _besides(line: dict[str, Any], event: dict[str, Any]) -> dict[str, Any]:
    """Values of an event that its line does not show. One that is drawn by chance is there, whatever it is."""
    found = {name: value for name, value in event.items() if value not in (None, [], {}, "", False, line.get(name))}
    return found | {name: "<drawn>" for name in ("token", "nonce") if found.get(name)}


class Told:
    """Answers, and the lines that came into the audits of both tenants with them."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.found: dict[str, Any] = {}
        self.named = Named()
        self._seen: set[tuple[UUID, int]] = set()

    async def lines(self) -> list[Any]:
        """The lines that are new: of each tenant's own chain, then of each run's, in the order in which they began."""
        runs = {run.id for run in await self.runtime.books.runs()}
        every = await self.runtime.books.audit()
        new = [one for one in every if (one.stream, one.seq) not in self._seen]
        self._seen |= {(one.stream, one.seq) for one in new}
        new.sort(
            key=lambda one: (one.stream in runs, one.tenant if one.stream not in runs else str(one.stream), one.seq)
        )
        values = {one.stream: await self.values(one.tenant, one.stream) for one in new if one.stream in runs}
        found = []
        for one in new:
            line = {"type": one.type, "tenant": one.tenant, "actor": one.actor, "step": one.step, "data": one.data}
            more = _besides(one.data, values.get(one.stream, {}).get(one.seq, {}))
            found.append(line | {"values": more} if more else line)
        return found

    async def values(self, tenant: str, run: UUID) -> dict[int, Any]:
        """The values of a run's events by their places: what their lines hold no more than digests of."""
        async with self.runtime.faces.transaction(tenant) as connection:
            book = await books.read(connection, tenant, run)
        return {one.seq: to_builtins(one.event) for one in book.told if one.seq is not None}

    async def __call__(self, name: str, asked: Awaitable[Any]) -> Any:
        try:
            answer = await asked
            said = asdict(answer) if is_dataclass(answer) and not isinstance(answer, type) else answer
            shown: Any = {"answer": to_builtins(said)}
        except CountersealError as error:
            answer = None
            where = {"where": found} if (found := getattr(error, "where", "")) else {}
            shown = {type(error).__name__: error.message, "remedy": error.remedy, **where}
        assert name not in self.found
        self.found[name] = self.named(shown | {"told": await self.lines()})
        return answer

    async def within(self, name: str, verb: Callable[..., Awaitable[Any]], *given: Any, **more: Any) -> Any:
        """A request in a transaction of its own."""

        async def asked() -> Any:
            async with self.runtime.faces.transaction("acme") as connection:
                return await verb(connection, *given, **more)

        return await self(name, asked())


@pytest.fixture
async def told(runtime: Any) -> Told:
    await runtime.tenant()
    await runtime.tenant("other")
    for tenant in ("other", "acme"):
        async with runtime.faces.transaction(tenant) as connection:
            await publishing.publish_directory(connection, tenant, PEOPLE, "d.yaml", ANN)
            await publishing.publish_workflow(connection, runtime.definitions, tenant, FLOW, "f.yaml", ANN)
            await policies.publish_policy(connection, runtime.definitions, tenant, POLICY, "p.yaml", ANN)
    found = Told(runtime)
    found.found["before"] = found.named(await found.lines())
    return found


def compared(told: Told, name: str) -> None:
    as_it_was(PLACE / f"whole_{name}.json", told.found)


@pytest.mark.req("X-1")
async def test_documents_come_and_go(told: Told) -> None:
    definitions, within = told.runtime.definitions, told.within
    publish, retire = publishing.publish_workflow, publishing.retire_workflow
    flow = (definitions, "acme", version(FLOW, 2))
    await within("a workflow again", publish, definitions, "acme", FLOW, "f.yaml", BOB)
    await within("another text", publish, definitions, "acme", FLOW.replace("P1D", "P2D"), "f.yaml", BOB)
    await within("a version", publish, *flow, "f.yaml", BOB)
    await within("of somebody else", publish, definitions, "acme", version(FLOW, 3), "f.yaml", BOB, owned=True)
    await within("of an own", publish, definitions, "acme", version(FLOW, 3), "f.yaml", ANN, owned=True)
    ours = FLOW.replace("workflow: flow", "workflow: counterseal-flow")
    await within("of Counterseal", publish, definitions, "acme", ours, "f.yaml", ANN)
    gate = "workflow: gate\nversion: 1\nsteps: [{id: g, approve: {summary: s, approvers: {group: %s}}}]\n"
    await within("that nobody decides", publish, definitions, "acme", gate % "none", "f.yaml", ANN)
    await within("that one decides", publish, definitions, "acme", gate % "leads", "f.yaml", ANN)
    await within("retire the newest", retire, "acme", "flow", 3, BOB)
    await within("retire it again", retire, "acme", "flow", 3, BOB)
    await within("retire an older one", retire, "acme", "flow", 1, EVE)
    await within("publish a retired one", publish, definitions, "acme", FLOW, "f.yaml", ANN)
    await within("retire the last", retire, "acme", "flow", 2, ANN)
    await within("retire no version", retire, "acme", "flow", 9, ANN)
    await within("retire no workflow", retire, "acme", "flaw", 1, ANN)
    await within("people", publishing.publish_directory, "acme", version(PEOPLE, 7), "d.yaml", BOB)
    compared(told, "documents")


@pytest.mark.req("U-4")
async def test_policies_come_and_go(told: Told) -> None:
    runtime, definitions, within = told.runtime, told.runtime.definitions, told.within
    publish, activate, retire = policies.publish_policy, policies.activate_policy, policies.retire_policy
    two = (definitions, "acme", ASKS, "p.yaml")
    await within("publish again", publish, definitions, "acme", POLICY, "p.yaml", BOB)
    await within("another text", publish, definitions, "acme", POLICY.replace("allow", "deny"), "p.yaml", BOB)
    await within("try", publish, *two, BOB, dry_run=True)
    await within("stage", publish, *two, BOB, stage=True)
    await within("stage again", publish, *two, BOB, stage=True)
    await within("try to activate", activate, definitions, "acme", "rules", 2, ANN, dry_run=True)
    await within("activate", activate, definitions, "acme", "rules", 2, ANN)
    await within("activate again", activate, definitions, "acme", "rules", 2, ANN)
    await told("a run asks", runtime.start("flow", {"number": "N1", "name": "n"}))
    await runtime.worker().work_off()
    told.found["it asks"] = told.named(await told.lines())
    await within("go back", activate, definitions, "acme", "rules", 1, EVE)
    await within("no version", activate, definitions, "acme", "rules", 9, ANN)
    await within("no policy", activate, definitions, "acme", "roles", 1, ANN)
    other = POLICY.replace("policy: rules", "policy: other").replace("outcome: allow", "outcome: deny")
    await within("one beside", publish, definitions, "acme", other, "o.yaml", BOB)
    await within("a later one beside", publish, definitions, "acme", version(other, 2), "o.yaml", BOB, stage=True)
    await within("try to retire", retire, definitions, "acme", "other", BOB, dry_run=True)
    await within("retire", retire, definitions, "acme", "other", BOB)
    await within("retire again", retire, definitions, "acme", "other", BOB)
    await within("retire none", retire, definitions, "acme", "roles", BOB)
    nobody = ASKS.replace("group: leads", "group: leaders").replace("version: 2", "version: 3")
    await within("that nobody decides", publish, definitions, "acme", nobody, "p.yaml", ANN)
    compared(told, "policies")


@pytest.mark.req("P-12")
async def test_it_takes_two(told: Told) -> None:
    runtime, definitions, within = told.runtime, told.runtime.definitions, told.within
    people = publishing.publish_directory
    await within("the group", people, "acme", TWO, "d.yaml", EVE)
    change = (policies.publish_policy, definitions, "acme", ASKS, "p.yaml")
    await within("a stranger", *change, Actor("person", "zoe"))
    await within("a machine", *change, EVE)
    await within("by the command line", *change, Actor("os", "ann"))
    await within("the first", *change, ANN)
    await within("the first again", *change, ANN)
    await within("the second", *change, BOB)
    await within("retire: the first", policies.retire_policy, definitions, "acme", "rules", BOB)
    await runtime.worker().work_off()
    told.found["it is asked"] = told.named(await told.lines())
    await within("retire: the second", policies.retire_policy, definitions, "acme", "rules", ANN)
    # Whoever answers by doing the same has answered where that came from.
    for number, second in ((1, Actor("service_account", "robot")), (2, BOB)):
        activate = (policies.activate_policy, definitions, "acme", "rules", number)
        await within(f"version {number}: the first", *activate, ANN)
        await runtime.worker().work_off()
        told.found[f"version {number} is asked about"] = told.named(await told.lines())
        await within(f"version {number}: the second, by a {second.kind}", *activate, second)
    less = version(PEOPLE, 5)
    await within("the group goes: a stranger", people, "acme", less, "d.yaml", Actor("person", "zoe"))
    await within("the group goes: the first", people, "acme", less, "d.yaml", BOB)
    await within("the group goes: the first again", people, "acme", less, "d.yaml", BOB)
    await within("the group goes: the second", people, "acme", less, "d.yaml", ANN)
    compared(told, "two")


@pytest.mark.req("P-12")
async def test_a_proposal_of_somebody_who_has_left_the_group_is_withdrawn(told: Told) -> None:
    definitions, within = told.runtime.definitions, told.within
    bob = "{id: bob, name: Bob}"
    three = TWO.replace("[ann, bob]}", "[ann, bob, dan]}").replace(bob, f"{bob}, {{id: dan, name: Dan}}")
    less = three.replace("[ann, bob, dan]}", "[bob, dan]}").replace("version: 2", "version: 3")
    dan = Actor("person", "dan")
    await within("three", publishing.publish_directory, "acme", three, "d.yaml", ANN)
    change = (policies.publish_policy, definitions, "acme", ASKS, "p.yaml")
    await within("proposed by ann", *change, ANN)
    for actor in (BOB, dan):
        await within(f"ann goes, says {actor.id}", publishing.publish_directory, "acme", less, "d.yaml", actor)
    await within("by ann again", *change, ANN)
    await within("proposed by bob", *change, BOB)
    await within("and by dan", *change, dan)
    compared(told, "left")


@pytest.mark.req("V-13")
async def test_runs_are_steered(told: Told) -> None:
    runtime, definitions, within = told.runtime, told.runtime.definitions, told.within
    run = (await told("start", runtime.start("flow", {"number": "N1", "name": "n"}))).run_id
    await told("start again", runtime.start("flow", {"number": "N1", "name": "n"}))
    await told("start none", runtime.start("flaw"))
    await told("start without what it needs", runtime.start("flow", {"name": "n"}, ref="2"))
    await told("start one of ours", runtime.start("counterseal-policy-change", ref="3"))
    theirs = (await told("of the other tenant", runtime.start("flow", {"number": "N1"}, tenant="other"))).run_id
    await runtime.worker().work_off()
    told.found["they go"] = told.named(await told.lines())
    extend = Extending(runtime.faces, definitions).extend
    more = {"steps": [{"id": "more", "do": "probe.effect.apply", "with": {"name": "more"}}]}
    at = (await runtime.books.run(run)).version
    await told("extend at another version", extend("acme", run, BOB, more, at - 1))
    await told("extend into the past", extend("acme", run, BOB, more | {"before": ["act"]}, at))
    await told("extend with nothing", extend("acme", run, BOB, {"steps": []}, at))
    await told("extend a stranger's", extend("acme", theirs, BOB, more, 1))
    await told("extend", extend("acme", run, BOB, more, at))
    steer = (definitions, "acme")
    await within("close what is not open", steering.close_run, *steer, run, BOB, "enough")
    await within("retry what goes on", retry_run, *steer, run, BOB, "again")
    await within("retry without a reason", retry_run, *steer, run, BOB, " ")
    await within("retry a stranger's", retry_run, *steer, theirs, BOB, "again")
    await within("cancel a stranger's", steering.cancel_run, *steer, theirs, BOB, "enough")
    await within("cancel", steering.cancel_run, *steer, run, EVE, "enough")
    await within("cancel again", steering.cancel_run, *steer, run, EVE, "enough")
    await within("retry what was canceled", retry_run, *steer, run, BOB, "again")
    at = (await runtime.books.run(run)).version
    await told("extend what is over", extend("acme", run, BOB, more, at))
    compared(told, "steering")


async def test_things_are_paused(told: Told) -> None:
    runtime = told.runtime
    run = (await runtime.start("flow", {"number": "N1", "name": "n"})).run_id
    over = (await runtime.start("flow", {"number": "N2", "name": "n"}, ref="2")).run_id
    theirs = (await runtime.start("flow", {"number": "N1", "name": "n"}, tenant="other")).run_id
    async with runtime.faces.transaction("acme") as connection:
        await steering.cancel_run(connection, runtime.definitions, "acme", over, BOB, "enough")
    await told.lines()
    things = {
        "tenant": (Stopped.TENANT, ""),
        "workflow": (Stopped.WORKFLOW, "flow"),
        "connector": (Stopped.CONNECTOR, "probe"),
        "run": (Stopped.RUN, str(run)),
    }
    strange = {
        "another tenant": (Stopped.TENANT, "other"),
        "no workflow": (Stopped.WORKFLOW, "flaw"),
        "no connector": (Stopped.CONNECTOR, "prob"),
        "no id": (Stopped.RUN, "flow"),
        "a stranger's run": (Stopped.RUN, str(theirs)),
        "a run that is over": (Stopped.RUN, str(over)),
    }
    named = (runtime.faces, runtime.definitions, "acme")
    for name, thing in (things | strange).items():
        await told(f"pause {name}", pausing.pause(*named, *thing, f"why {name}", BOB))
    await told("pause without a reason", pausing.pause(*named, *things["run"], " ", BOB))
    for name, thing in things.items():
        await told(f"pause {name} again", pausing.pause(*named, *thing, "again", EVE))
    await told.within("every pause", pausing.listed, "acme")
    await told.within("those of the run", pausing.of_run, "acme", run)
    await told.within("those of another tenant", pausing.listed, "other")
    for name, thing in (things | strange).items():
        await told(f"resume {name}", pausing.resume(*named, *thing, f"because of {name}" if name != "run" else "", ANN))
    await told("resume again", pausing.resume(*named, *things["workflow"], "", ANN))
    compared(told, "pauses")


@pytest.mark.req("X-16")
async def test_signals_are_heard(told: Told) -> None:
    runtime = told.runtime
    run = (await runtime.start("flow", {"number": "N1", "name": "n"})).run_id
    await runtime.start("flow", {"number": "N1", "name": "n"}, tenant="other")

    def signal(number: int | None, key: str = "N1", **more: Any) -> Awaitable[Any]:
        name = None if number is None else str(UUID(int=number))
        return Signaling(runtime.faces, runtime.definitions).signal(Signal("acme", key, name, BOB, **more))

    await told.lines()
    await told("before its wait", signal(1, "N9", output={"early": 1}))
    await told("the same again", signal(1, "N9", output={"early": 1}))
    await told("the same id for another key", signal(1, "N8", output={"early": 1}))
    await told("of no version", signal(2, version=99))
    await told("of no token", signal(3, token="none"))
    await told("without a key", signal(4, ""))
    await told("with too long a key", signal(4, "k" * 501))
    await told("with a key of the longest length", signal(4, "k" * 500))
    await told("with an output that cannot be kept", signal(5, output="\x00"))
    await told("with an error that cannot be kept", signal(5, error={"code": "\x00"}))
    await runtime.worker().work_off()
    told.found["they wait"] = told.named(await told.lines())
    wait = await runtime.books.wait(run=run, open=True)
    key = wait.correlation_key
    await told("with another token", signal(6, key, token="another"))
    await told("of another version", signal(7, key, version=1))
    await told("with its token", signal(8, key, token=wait.token, output={"n": 8}))
    await told("with its token again", signal(9, key, token=wait.token, output={"n": 9}))
    await told("without an id", signal(None, "N7", output={"n": 10}))
    await told("without an id again", signal(None, "N7", output={"n": 10}))
    await told("after its run went on", signal(11, key))
    await runtime.worker().work_off()
    told.found["it is over"] = told.named(await told.lines())
    await told("after its run was over", signal(12, key))
    compared(told, "signals")


@pytest.mark.req("P-12")
async def test_votes_are_judged(told: Told) -> None:
    """The requester is a person, and so is who owns the machine."""
    runtime, definitions = told.runtime, told.runtime.definitions
    staff = PEOPLE.replace(
        "{id: bob, name: Bob}", "{id: bob, name: Bob}, {id: dan, name: Dan}, {id: requester, name: R}"
    )
    staff = staff.replace("owner: cid", "owner: bob").replace("[ann, cid]", "[ann, bob, cid, requester]")
    for tenant in ("acme", "other"):
        async with runtime.faces.transaction(tenant) as connection:
            await publishing.publish_directory(connection, tenant, version(staff, 2), "d.yaml", ANN)
            await policies.publish_policy(
                connection, definitions, tenant, ASKS.replace("{group: leads}", "{group: leads, of: 2}"), "p.yaml", ANN
            )
    runs = [(await runtime.start("flow", {"number": f"N{n}", "name": f"n{n}"}, ref=str(n))).run_id for n in (1, 2)]
    theirs = (await runtime.start("flow", {"number": "N1", "name": "n"}, tenant="other")).run_id
    await runtime.worker().work_off()
    first, second, other = [await runtime.books.approval(run=run) for run in (*runs, theirs)]
    await told.lines()

    def vote(on: Any, person: str, choice: str = "approve", reason: str = "", **more: Any) -> Awaitable[Any]:
        request = VoteRequest("acme", on.id, person, Choice(choice), reason, VoteChannel.HTTP, **more)
        return Voting(runtime.faces, definitions).vote(request)

    await told("of another tenant", vote(other, "ann"))
    for person in ("zoe", "eve", "cid", "dan", "requester", "slack:U0NOBODY"):
        await told(f"by {person}", vote(first, person, answer_to=AnswerTo("C1", "U1") if person == "dan" else None))
    await told("with another nonce", vote(first, "ann", nonce="stale"))
    await told("of another digest", vote(first, "ann", digest="0" * 64))
    await told("a rejection without a reason", vote(first, "ann", "reject"))
    await told("a choice that is none here", vote(first, "ann", "fail", "why"))
    await told("with a reason that cannot be kept", vote(first, "ann", reason="\x00"))
    await told("the first", vote(first, "ann", reason="fine", answer_to=AnswerTo("C1", "U2")))
    await told("the first again", vote(first, "ann"))
    await told("the second", vote(first, "person:bob"))
    await told("after it was decided", vote(first, "bob"))
    await told("a rejection", vote(second, "bob", "reject", "not now"))
    await runtime.worker().work_off()
    told.found["they go on"] = told.named(await told.lines())
    told.found["it was rejected"] = told.named(await runtime.error(runs[1]))
    notes = await runtime.books.commands(kind="note")
    told.found["notes"] = told.named([one.payload for one in notes])
    compared(told, "votes")


@pytest.mark.req("Q-16")
async def test_doubts_are_resolved(told: Told) -> None:
    runtime, definitions = told.runtime, told.runtime.definitions
    flow = FLOW.replace("workflow: flow", "workflow: mail").replace("probe.effect.apply", "probe.mail.send")
    async with runtime.faces.transaction("acme") as connection:
        found = flow.replace("name: ", "text: ")
        await publishing.publish_workflow(connection, definitions, "acme", found, "m.yaml", ANN)
    await runtime.person("olga", ("operators",))
    for choice in ("fail", "happened", "again"):
        runtime.outside.script["probe.mail.send"] = [InDoubt("no answer")]
        run = (await runtime.start("mail", {"number": choice, "name": "n"}, ref=choice)).run_id
        await runtime.worker().work_off()
        await runtime.wait_is_due()
        asked = await runtime.books.approval(run=run)
        await told.lines()
        for person in ("ann", "olga"):
            request = VoteRequest("acme", asked.id, person, Choice(choice), "I looked", VoteChannel.CLI)
            await told(f"{choice} by {person}", Voting(runtime.faces, definitions).vote(request))
        await runtime.worker().work_off()
        told.found[f"after {choice}"] = told.named(await told.lines())
        told.found[f"the step after {choice}"] = told.named((await runtime.books.step("act", run=run)).error)
        [receipt] = await runtime.books.receipts(run=run)
        told.found[f"the receipt after {choice}"] = [receipt.status, receipt.resolution, receipt.error]
    compared(told, "doubts")
