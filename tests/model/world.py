"""The model: what the promises say of the runs of two tenants, without a line of how the engine keeps them.

It hears of every request that was answered and of every call that arrives outside, and writes down what is broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.port import Before, Call, NotSent, Outcome, Probe, Refused
from tests.support.outside import Outside

QUORUM = 2
TENANTS = ("a", "b")
OWNERS = ("ana", "ben", "requester")  # who asked for it is an owner too, and never decides on it

POLICY = """
policy: model
version: {version}
rules:
  - id: reads
    match: {{operation: probe.value.read}}
    outcome: allow
  - id: acts
    match: {{connector: probe}}
    outcome: {outcome}
"""
ASKS = """    approvers: [{group: owners, of: 2}]
    expires: P30D
"""
WORKFLOW = """
workflow: w
version: 1
reference: ${{ trigger.ref }}
steps:
  - {id: record, do: probe.record.update, with: {name: "${{ trigger.ref + '-record' }}", fields: {priority: "1"}}}
  - {id: told, wait: {signal: told, correlate: "${{ trigger.ref }}"}}
  - {id: first, do: probe.effect.apply, with: {name: "${{ trigger.ref + '-first' }}"}}
  - {id: later, wait: {for: PT1H}}
  - {id: ticket, do: probe.ticket.open, with: {name: "${{ trigger.ref + '-ticket' }}"}}
  - {id: left, do: probe.effect.apply, with: {name: "${{ trigger.ref + '-left' }}"}, needs: [ticket]}
  - id: right
    do: probe.record.update
    with: {name: "${{ trigger.ref + '-right' }}", fields: {owner: o}}
    needs: [ticket]
"""


def policy(outcome: str, version: int) -> str:
    """A policy by which actions of all runs are allowed, asked about or denied."""
    return POLICY.format(outcome=outcome, version=version) + (ASKS if outcome == "needs_approval" else "")


@dataclass
class Model:
    """Knowledge of the world by its answers alone. ``broken`` are sentences that name a promise."""

    policies: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    votes: dict[str, set[str]] = field(default_factory=dict)
    approved: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    landed: dict[str, int] = field(default_factory=dict)
    afterwards: set[str] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)

    def started(self, tenant: str, ref: str) -> None:
        """A start was answered."""
        self.runs[ref] = tenant
        if self.policies[tenant] == "deny":
            self.excused.add(ref)

    def ruled(self, tenant: str, outcome: str) -> None:
        """A policy is in force. A denial may end any run of its tenant; that is what it is for."""
        self.policies[tenant] = outcome
        if outcome == "deny":
            self.excused.update(ref for ref, of in self.runs.items() if of == tenant)

    def voted(self, question: str, person: str, code: str, status: str | None) -> None:
        """A vote was answered (promises 1 and 12)."""
        people = self.votes.setdefault(question, set())
        if code == "counted" and question in self.late:
            self.broken.append("promise 1: a vote counts that came too late")
        if code == "counted" and person == "requester":
            self.broken.append("promise 12: the requester's vote counts")
        if code == "counted":
            people.add(person)
        if status == "approved" and len(people) < QUORUM:
            self.broken.append(f"promise 1: {len(people)} people are enough")
        if code == "counted" and len(people) >= QUORUM and status != "approved":
            self.broken.append("promise 4: a vote that was answered is lost")
        if status == "approved":
            self.approved.add(question)

    def expired(self, questions: list[str], refs: list[str]) -> None:
        """The time of these questions is up. Nobody may answer them any more, and their runs may end for that."""
        self.late.update(questions)
        self.excused.update(refs)

    def canceled(self, ref: str) -> None:
        """A cancel was answered: with the end of the run, or while a call is under way (promise 11)."""
        self.excused.add(ref)
        self.over.add(ref)

    def arrived(self, name: str, asked: dict[str, set[str]]) -> None:
        """A call has arrived outside. ``asked`` are the questions about it by name of what they are about."""
        ref = name.rpartition("-")[0]
        tenant = self.runs[ref]
        outcome = self.policies[tenant]
        if ref in self.over:
            self.broken.append(f"promise 11: {name} goes out after its run was canceled")
        if tenant in self.paused:
            self.broken.append(f"promise 11: {name} goes out while its tenant is paused")
        if outcome == "deny":
            self.broken.append(f"promise 1: {name} goes out although policy denies it")
        if outcome == "needs_approval" and not asked.get(name, set()) & self.approved:
            self.broken.append(f"promise 1: {name} goes out although nobody has approved it")

    def looked_at(self, name: str) -> None:
        """A call that changes nothing has arrived outside."""
        if self.runs[name.rpartition("-")[0]] in self.paused:
            self.broken.append(f"promise 11: {name} is looked at while its tenant is paused")

    def took_place(self, name: str, *, late: bool) -> None:
        """The effect has happened (promise 2); ``late`` is after the lease under which it was sent."""
        self.landed[name] = self.landed.get(name, 0) + 1
        if late and name.rpartition("-")[0] in self.over:
            self.afterwards.add(name)  # a canceled run does not wait for it, and it is told beside its receipt
        if self.landed[name] > 1:
            self.broken.append(f"promise 2: {name} happened {self.landed[name]} times")

    def untrue(self, said: Mapping[str, set[str]]) -> list[str]:
        """List what receipts say of an effect, once all is over, that is not so (promises 2 and 4)."""
        return [
            f"{name}: {sorted(said.get(name, ()))}, and it happened {self.landed.get(name, 0)} times"
            for name in sorted({*said, *self.landed})
            if "intended" in said.get(name, ())
            or (name in self.landed.keys() - self.afterwards and not {"succeeded", "in_doubt"} & said.get(name, set()))
            or (name not in self.landed and "succeeded" in said[name])
        ]

    def effects_of(self, ref: str) -> set[str]:
        """Everything that a run does which comes to its end."""
        return {f"{ref}-{step}" for step in ("first", "record", "ticket", "left", "right")}


@dataclass(eq=False)
class Held:
    """One call that is held up, and the place: before the read, before the effect or after it."""

    place: str
    late: bool = False
    name: str = ""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Any] | None = None


@dataclass
class Watched(Outside):
    """The outside, which tells the model, and holds the next call up where it is told to."""

    model: Model = field(default_factory=Model)
    asked: dict[str, set[str]] = field(default_factory=dict)
    next: Held | None = None

    async def _hold(self, place: str, call: Call) -> bool:
        """Hold a call up; true if its lease has run out meanwhile."""
        held = self.next
        if held is not None and held.place == place:
            self.next = None
            held.name = str(call.input["name"])
            held.reached.set()
            await held.opened.wait()
            return held.late
        return False

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        self.model.looked_at(str(call.input["name"]))
        await self._hold("probe", call)
        return await super().probe(call, seconds_since_intent=seconds_since_intent)

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        self.model.looked_at(str(call.input["name"]))
        await self._hold("read", call)
        return await super().read_before(call)

    async def perform(self, call: Call) -> Outcome:
        name = str(call.input["name"])
        self.model.arrived(name, self.asked)
        late = await self._hold("before", call)
        outcome: Any = await super().perform(call)
        self.model.took_place(name, late=late)
        await self._hold("after", call)
        return outcome
