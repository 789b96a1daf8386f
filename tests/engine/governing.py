"""A run whose steps are driven in memory by the engine's own instructions, without a database.

Between two appends the run is read back from its lines, as after a crash of everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, Self
from uuid import UUID

import orjson
from msgspec.structs import replace

from connectors.catalog import Source, load_catalog
from connectors.port import Before, Done, Outcome, Refused
from core.identity import Directory, Entry
from evidence.chain import Actor
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow
from runtime.engine.book.instructions import (
    Inquire,
    Known,
    LookUp,
    Over,
    Perform,
    ReadBefore,
    Shared,
    StartRun,
    known_of,
    open_wait,
)  # fmt: skip
from runtime.engine.book.recorded import read_line
from runtime.engine.life import waits
from runtime.engine.life.doubt import inquired
from runtime.engine.life.outcome import unsent
from runtime.engine.life.proposal import Leased, Proposal
from runtime.engine.life.step import begin, settle
from runtime.engine.life.transition import Transition
from runtime.engine.model.errors import REJECTED, ErrorClass, StepError
from runtime.engine.model.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalVoted,
    WaitCompleted,
    WaitTimedOut,
)
from runtime.engine.model.graph import OperationNode
from runtime.engine.model.workflow import Workflow
from runtime.engine.replay.past import past_of
from runtime.engine.replay.replay import unopened
from tests.support.engine_stage import KEY, NOW, RUN_ID, Simulation
from tests.support.runtime_stage import ALLOW_ALL, OPERATIONS

CATALOG = load_catalog([Source("probe.yaml", OPERATIONS)])
PEOPLE = Directory.of(
    "d1",
    [
        Entry("someone", "someone"),
        *(Entry(name, name, groups=frozenset({"owners"})) for name in ("ana", "ben")),
    ],
)
ASK = """
policy: ask
version: 1
rules:
  - {id: reads, match: {operation: probe.value.read}, outcome: allow}
  - {id: acts, match: {connector: probe}, outcome: needs_approval, approvers: [{group: owners, of: 2}], because: Look.}
"""
DENY = "policy: deny\nversion: 1\nrules: [{id: no, match: {connector: probe}, outcome: deny, because: Never.}]\n"
HEAD = "workflow: w\nversion: 1\nreference: r\nsteps:\n"
WRITE = HEAD + '  - {id: a, do: probe.record.update, with: {name: x, fields: {priority: "1"}}}\n'
EFFECT = HEAD + "  - {id: a, do: probe.effect.apply, with: {name: x}}\n"
DEDUPES = HEAD + "  - {id: a, do: probe.key.put, with: {name: x}}\n"
MAIL = HEAD + "  - {id: a, do: probe.mail.send, with: {text: x}}\n"
CASE = HEAD + "  - {id: a, do: probe.case.open, with: {name: x}}\n"
TICKET = HEAD + "  - {id: a, do: probe.ticket.open, with: {name: x}}\n"
GATE = HEAD + "  - {id: a, approve: {summary: Go on?, approvers: {group: owners}, quorum: 2}}\n"
CHILD = HEAD + "  - {id: a, run: other, with: {who: x}}\n"


@cache
def loaded(text: str) -> Workflow:
    """The workflow of this text, which nobody changes."""
    return load_workflow(text, "test.yaml", CATALOG)


@cache
def ruled(text: str | None) -> PolicySet:
    """The policy of this text, which nobody changes."""
    return PolicySet.of(None if text is None else Definitions(CATALOG).compile_policy(text, "policy.yaml"))


@dataclass
class Governed(Simulation):
    """A run whose steps a worker drives: ``said`` are the next answers of the outside, ``sent`` is what went out."""

    policy: PolicySet = field(default_factory=PolicySet)
    later: timedelta = timedelta(0)
    said: list[Any] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    shared: Shared | None = None
    asked: int = 0
    paused: dict[str, Any] = field(default_factory=dict)
    systems: dict[str, str] = field(default_factory=dict)
    refuses: Refused | None = None

    def view(self) -> Any:
        return replace(super().view(), directory=PEOPLE, now=NOW + self.later, paused=self.paused)

    def nonce(self) -> str:
        self.asked += 1
        return f"n{self.asked}"

    def whole(self) -> Any:
        """The view of the whole book, without what earlier appends have stored."""
        told = [read_line(line, self.values.get(n, {}), KEY) for n, line in enumerate(self.lines)]
        run = past_of(unopened(RUN_ID, KEY, self.workflow.graph), told, [*self.before, self.workflow.graph]).run
        return replace(self.view(), run=replace(run, checkpoints=[], ledger=[], mutations=[], votes=[]))

    def rule_by(self, text: str | None) -> Self:
        self.policy = ruled(text)
        return self

    def move(self, key: str, build: Callable[[Transition, Any], Any]) -> Any:
        made: list[Any] = []

        def moved(transition: Transition, step: Any) -> None:
            transition.systems, transition.ready = self.systems, lambda *_: self.refuses
            made.append(build(transition, step))

        self.attempt(key, moved)
        return made[0]

    def drive(self, key: str = "a", *, dies: bool = False) -> Self:
        """Claim the step and go on until it is over; ``dies`` ends its worker before the outcome is told."""
        self.claim(key)
        known = known_of(self.view().run, key)
        work = self.move(key, lambda t, step: begin(self.held_by(t, step, known)))
        while not isinstance(work, Over):
            if isinstance(work, Perform):
                self.sent.append(work.operation.name)
                if dies:
                    return self
            work = self.carry_out(key, work)
        return self

    def carry_out(self, key: str, work: Any) -> Any:
        match work:
            case ReadBefore():
                known = replace(work.known, before=Before({"priority": "3"}, "7"))
                return self.move(key, lambda t, s: begin(self.held_by(t, s, known)))
            case LookUp():
                seen: Known = replace(work.known, receipt_checked=True, shared=self.shared)
                return self.move(key, lambda t, s: begin(self.held_by(t, s, seen)))
        answer = self.said.pop(0) if self.said else Done({"value": 1}, "e1")
        match work:
            case Inquire():
                return self.move(key, lambda t, s: inquired(self.proposal(t, s, work), work.receipt, answer))
            case StartRun():
                return self.move(key, lambda t, s: waits.started(t, replace(work, step=s), answer, self.nonce))
        self.move(key, lambda t, s: self.settle(t, replace(work, step=s), answer))
        return Over()

    def settle(self, transition: Transition, work: Perform, answer: Outcome | None) -> None:
        if answer is None:
            unsent(transition, work)
        else:
            settle(transition, work, answer, nonce=self.nonce, chance=0.5)

    def proposal(self, transition: Transition, step: Any, work: Inquire) -> Proposal:
        leased = self.held_by(transition, step, work.known)
        leaf = leased.performs()
        assert isinstance(leaf, OperationNode)
        return leased.proposal(leaf)

    def held_by(self, transition: Transition, step: Any, known: Known) -> Leased:
        return Leased(transition, step, self.workflow, self.policy, self.nonce, known)

    def dead(self, key: str = "a") -> Self:
        """Its worker is gone, and nothing that it sent can arrive any more."""
        self.attempt(key, lambda transition, step: transition.expire_lease(step))
        self.later += timedelta(hours=1)
        return self

    def due(self, key: str = "a") -> Self:
        """The retry, or the look, is due."""
        self.later += timedelta(minutes=1)
        return self.over(key, lambda t, step, wait: t.resume(step, wait))

    def over(self, key: str, end: Callable[[Transition, Any, Any], object]) -> Self:
        def ended(transition: Transition, step: Any) -> None:
            wait = open_wait(transition.run, key)
            assert wait is not None
            end(transition, step, wait)

        self.attempt(key, ended)
        return self

    def answer(self, *people: str, choice: str = "approve", key: str = "a") -> Self:
        """People vote, and the question is decided."""

        def decide(transition: Transition, step: Any, wait: Any) -> None:
            question = self.question(transition, key)
            for person in people:
                voted = ApprovalVoted(question, choice, "cli", False, groups=["group:owners"])
                transition.tell(voted, step=key, actor=Actor("person", person))
            outcome = "approved" if choice == "approve" else choice
            transition.tell(
                ApprovalDecided(question, outcome, choice, "because"), step=key, actor=Actor("person", "ana")
            )
            transition.resume(step, wait)

        return self.over(key, decide)

    def reject(self, key: str = "a", person: str = "ana", reason: str = "Not now.") -> Self:
        """A person rejects the open question of a step, and their vote decides it."""
        error = StepError(ErrorClass.AUTHORIZATION, REJECTED, reason, {"by": person}).to_json()

        def ended(transition: Transition, step: Any, wait: Any) -> None:
            who, question = Actor("person", person), self.question(transition, key)
            voted = ApprovalVoted(question, "reject", "cli", False, reason=reason, groups=["group:owners"])
            transition.tell(voted, step=key, actor=who)
            transition.tell(ApprovalDecided(question, "rejected", "reject", reason), step=key, actor=who)
            waits.end_badly(transition, step, wait, WaitCompleted, error)

        return self.over(key, ended)

    def expire(self, key: str = "a") -> Self:
        """Let the open question of a step come to its end without an answer."""
        error = StepError(ErrorClass.TIMEOUT, "expired", "Nobody decided in time, so it was not done.").to_json()

        def ended(transition: Transition, step: Any, wait: Any) -> None:
            transition.tell(ApprovalExpired(self.question(transition, key)), step=key)
            waits.end_badly(transition, step, wait, WaitTimedOut, error)

        return self.over(key, ended)

    def book_of_questions(self) -> list[ApprovalRequested]:
        """The questions that were put to people, in their order."""
        told = [read_line(line, self.values.get(n, {}), KEY) for n, line in enumerate(self.lines)]
        return [each.event for each in told if isinstance(each.event, ApprovalRequested)]

    @staticmethod
    def question(transition: Transition, key: str) -> UUID:
        """The one open question of a step."""
        run = transition.run
        open_ = [asked for asked, known in run.answers.items() if known.status == "requested"]
        (question,) = [asked for asked in open_ if run.approvals[asked].step_key == key]
        return question

    @property
    def told(self) -> list[str]:
        """List what was told of actions, in order."""
        kinds = [str(orjson.loads(line)["type"]) for line in self.lines]
        return [kind.removeprefix("action.") for kind in kinds if kind.startswith("action.")]


def governed(text: str, policy: str | None = ALLOW_ALL, said: tuple[Any, ...] = ()) -> Governed:
    run = Governed(loaded(text), {}, said=list(said))
    run.open()
    return run.rule_by(policy)
