"""An agent and a server that are killed at any moment: no effect without an intent, no second permit, no lost outcome.

Each case is drawn from a seed: what the agent does and where it dies, which appends are lost and which answers, what
people say. 100 cases; 1,000 with COUNTERSEAL_DEEP=1.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from core.canonical import digest, sha256_hex
from core.identity import Directory, Entry
from evidence.chain import Actor, timestamp
from runtime.engine.book.instructions import FETCH, PERMIT, REPORT, is_out, open_wait
from runtime.engine.life import permits, waits
from runtime.engine.model.events import ApprovalDecided, ApprovalVoted, WaitPostponed
from runtime.engine.model.states import StepState, WaitKind
from runtime.engine.origins.follow import AGENT
from tests.engine.governing import HEAD, Governed, loaded
from tests.support.engine_stage import NOW

pytestmark = pytest.mark.req("promise 1", "promise 2")
CASES = 1_000 if os.environ.get("COUNTERSEAL_DEEP") == "1" else 100
CALL, OTHER = (digest({"mode": "gate", "tool": "send", "arguments": {"n": n}}) for n in (1, 2))
TOOL = HEAD + "  - {id: a, do: agent.tool.call, with: {tool: send, arguments: {n: 1}}}\n"
RULES = """
policy: p
version: 1
rules:
  - {id: asks, match: {connector: agent}, outcome: needs_approval, approvers: [{group: owners}], because: Look.}
"""
LETS, DENIES = (
    RULES.replace("needs_approval, approvers: [{group: owners}]", "allow"),
    RULES.replace("needs_approval, approvers: [{group: owners}]", "deny"),
)
OWNERS = frozenset({"owners", "operators"})
PEOPLE = Directory.of("d1", [Entry("someone", "someone"), Entry("ana", "ana", groups=OWNERS)])
BOT, LEASE = Actor("token", "bot"), 300
# Each of these has to happen; else the search does not search.
SEEN = (
    "died before the fetch", "died before the body", "died in the body", "died before the report", "reported",
    "lost append", "lost answer", "lost worker", "lease over", "report after the lease", "another digest", "in doubt",
    "asked anew", "denied at the fetch", "applied", "failed", "people said happened", "people said again",
    "canceled while out",
)  # fmt: skip


@dataclass
class Gated(Governed):
    """A run with one tool of an agent. ``permits`` are those that went out, ``ran`` counts what the agent has done."""

    permits: set[str] = field(default_factory=set)
    ran: int = 0

    def view(self) -> Any:
        view = replace(super().view(), trigger_type=AGENT, directory=PEOPLE)
        view.run.trigger = self.trigger  # the book's first line has it
        return view

    @property
    def wait(self) -> Any:
        found = open_wait(self.view().run, "a")
        return found if found is not None and found.kind is WaitKind.PERMIT else None

    @property
    def phase(self) -> Any:
        return None if self.wait is None else self.wait.context[PERMIT]

    def end(self, facts: dict[str, Any]) -> None:
        self.over("a", lambda t, step, wait: waits.complete(t, step, wait, facts, BOT))

    def decide(self, choice: str) -> None:
        """An operator answers what is asked."""

        def decided(transition: Any, step: Any, wait: Any) -> None:
            question, who = self.question(transition, "a"), Actor("person", "ana")
            groups = [f"group:{name}" for name in sorted(OWNERS)]
            transition.tell(ApprovalVoted(question, choice, "cli", False, groups=groups), step="a", actor=who)
            outcome = "approved" if choice == "approve" else choice
            transition.tell(ApprovalDecided(question, outcome, choice, "so"), step="a", actor=who)
            transition.resume(step, wait)

        self.over("a", decided)

    def count(self, kind: str) -> int:
        return sum(orjson.loads(line)["type"] == kind for line in self.lines)


def gated(policy: str) -> Gated:
    run = Gated(loaded(TOOL), {"gate": CALL})
    run.open()
    run.rule_by(policy)
    return run


class Case:
    """One drawn life of an action, from its first judgement to its end."""

    def __init__(self, seed: int, seen: Counter[str]) -> None:
        self.draw, self.seen = random.Random(seed), seen
        self.asks = self.draw.random() < 0.5
        self.run = gated(RULES if self.asks else LETS)
        self.nonce, self.held, self.alive = sha256_hex(b"n"), "", True
        self.reported: str | None = None

    def chance(self, of: float, what: str = "") -> bool:
        happens = self.draw.random() < of
        self.seen[what] += happens and bool(what)
        return happens

    def work(self) -> None:
        """Workers do what is ready. Some die after they have begun, before or after their append."""
        while self.run.ready() and not self.run.finished:
            if self.chance(0.2, "lost worker"):
                self.run.claim("a")
                self.run.attempt("a", lambda t, step: t.expire_lease(step))
            self.run.drive()
            self.check()

    def check(self) -> None:
        assert self.run.count("action.intended") <= 1
        assert len(self.run.permits) <= 1
        assert self.run.ran <= self.run.count("action.intended")
        assert not self.run.sent, "nothing is ever called from here"

    def fetch(self) -> None:
        """The agent fetches until it has its permit, or nothing can come of it."""
        for _ in range(6):
            if self.run.finished or self.chance(0.1, "died before the fetch"):
                return
            if self.run.phase == FETCH:
                if self.chance(0.2, "lost append"):
                    continue
                if self.chance(0.15, "denied at the fetch"):
                    self.run.rule_by(DENIES)
                elif self.chance(0.1) and not self.asks:
                    self.run.rule_by(RULES)
                now = timestamp(NOW + self.run.later)
                self.run.end({"nonce": self.nonce, "at": now, "lease": LEASE})
                if stale := self.chance(0.15, "asked anew"):
                    self.run.later += timedelta(minutes=5)  # no worker is there for a while: the fetch is stale
                self.work()
                assert not (stale and self.run.count("action.intended")), "its agent may be gone by now"
                self.people()
            elif self.run.phase == REPORT:
                permit = permits.permit_of(self.run.view().run, self.run.wait)
                self.run.permits.add(permit)
                self.check()
                if self.chance(0.3, "lost answer"):
                    continue
                self.held = permit
                return

    def people(self) -> None:
        """People answer what is asked before anything has gone out."""
        if self.run.rows["a"].status is StepState.WAITING_APPROVAL:
            self.run.decide("approve")
            self.work()

    def live(self) -> None:
        self.work()
        self.people()
        self.fetch()
        if self.held and self.chance(0.1, "canceled while out"):
            self.run.attempt("a", lambda t, step: t.cancel(Actor("person", "op"), "enough"))
            assert not self.run.finished, "its agent may be doing it"
        if self.held and not self.chance(0.2, "died before the body"):
            self.run.ran += 1
            dies = self.chance(0.15, "died in the body") or self.chance(0.15, "died before the report")
            if self.chance(0.3):
                self.beat()
            if not dies:
                self.report()
        self.settle()

    def beat(self) -> None:
        self.run.over("a", lambda t, step, wait: t.tell(WaitPostponed(wait.wait_id, wait.kind, LEASE), step="a"))

    def report(self) -> None:
        late = self.chance(0.2, "report after the lease")
        ran = OTHER if self.chance(0.25, "another digest") else CALL
        outcome = self.draw.choice(["succeeded", "succeeded", "failed", "not_run", "unknown"])
        self.reported = outcome if not late and ran == CALL else None
        facts = {
            "outcome": outcome,
            "digest": ran,
            "output": {"done": 1},
            "detail": "",
            **({"late": True} if late else {}),
        }
        self.run.end(facts)
        self.seen["reported"] += 1
        self.work()

    def settle(self) -> None:
        """Time passes: what is not fetched and what is not reported ends, and people decide what is in doubt."""
        for _ in range(4):
            if self.run.phase is not None:
                self.seen["lease over"] += self.run.phase == REPORT
                self.run.over("a", waits.time_out)
            self.work()
            if self.run.rows["a"].status is StepState.WAITING_APPROVAL and not self.run.finished:
                self.decide()
        assert self.run.finished
        self.judge()

    def decide(self) -> None:
        if not self.run.count("action.intended"):
            self.people()
            return
        self.seen["in doubt"] += 1
        assert self.run.count("action.in_doubt") == 1
        said = self.draw.choice(["happened", "again"])
        self.seen[f"people said {said}"] += 1
        self.run.decide(said)
        self.work()

    def judge(self) -> None:
        self.check()
        assert not is_out(self.run.view().run, "a")
        told = self.run.told
        assert told.count("intended") == bool(told), "nothing is told of an action that was not intended"
        applied = told.count("succeeded")
        assert applied == (self.reported == "succeeded"), (told, self.reported)
        assert told.count("failed") == (self.reported in ("failed", "not_run"))
        assert "intended" not in told or ("in_doubt" in told or applied or "failed" in told), (
            "each is settled, or was in doubt"
        )
        self.seen["applied"] += applied
        self.seen["failed"] += told.count("failed")


def test_a_killed_agent_leaves_a_settled_action_or_a_doubt_and_no_second_permit() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CASES):
        Case(seed, seen).live()
    assert [what for what in SEEN if not seen[what]] == []
