"""Governed steps without a database: the life of a step is driven in memory, by the engine's own instructions.

Between two appends the run is read back from its lines, as after a crash of everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from connectors.catalog import Source, load_catalog
from connectors.port import Before, Done, InDoubt, NotSent, Outcome, Parked, Probe, ProbeVerdict, Refused
from core.identity import Directory, Entry
from evidence.chain import Actor
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow
from runtime.engine import waits
from runtime.engine.doubt import inquired
from runtime.engine.events import ApprovalDecided, ApprovalVoted
from runtime.engine.graph import OperationNode
from runtime.engine.instructions import (
    Inquire,
    Known,
    LookUp,
    OtherRun,
    Over,
    Perform,
    ReadBefore,
    StartRun,
    known_of,
    open_wait,
)  # fmt: skip
from runtime.engine.intend import Proposal
from runtime.engine.step import begin, performed, unsent
from runtime.engine.transition import Transition
from tests.engine.conftest import NOW, Simulation
from tests.runtime.conftest import ALLOW_ALL, OPERATIONS

CATALOG = load_catalog([Source("probe.yaml", OPERATIONS)])
PEOPLE = Directory.of("d1", [Entry(name, name, groups=frozenset({"owners"})) for name in ("ana", "ben")])
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


@dataclass
class Governed(Simulation):
    """A run whose steps a worker drives: ``said`` are the next answers of the outside, ``sent`` is what went out."""

    policy: PolicySet = field(default_factory=PolicySet)
    later: timedelta = timedelta(0)
    said: list[Any] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    asked: int = 0
    paused: dict[str, Any] = field(default_factory=dict)

    def view(self) -> Any:
        return replace(super().view(), directory=PEOPLE, now=NOW + self.later, paused=self.paused)

    def nonce(self) -> str:
        self.asked += 1
        return f"n{self.asked}"

    def rule_by(self, text: str | None) -> Governed:
        policy = None if text is None else Definitions(CATALOG).compile_policy(text, "policy.yaml")
        self.policy = PolicySet.of(policy)
        return self

    def move(self, key: str, build: Callable[[Transition, Any], Any]) -> Any:
        made: list[Any] = []
        self.attempt(key, lambda transition, step: made.append(build(transition, step)))
        return made[0]

    def drive(self, key: str = "a", *, dies: bool = False) -> Governed:
        """Claim the step and go on until it is over; ``dies`` ends its worker before the outcome is told."""
        self.claim(key)
        known = known_of(self.view().run, key)
        work = self.move(key, lambda t, step: begin(t, step, self.workflow, self.policy, known, self.nonce))
        while not isinstance(work, Over):
            if isinstance(work, Perform):
                self.sent.append(work.operation.name)
                if dies:
                    return self
            work = self.carry_out(key, work)
        return self

    def carry_out(self, key: str, work: Any) -> Any:
        answer = self.said.pop(0) if self.said else Done({"value": 1}, "e1")
        match work:
            case ReadBefore():
                known = replace(work.known, before=Before({"priority": "3"}, "7"))
                return self.move(key, lambda t, s: begin(t, s, self.workflow, self.policy, known, self.nonce))
            case LookUp():
                seen: Known = replace(work.known, receipt_checked=True)
                return self.move(key, lambda t, s: begin(t, s, self.workflow, self.policy, seen, self.nonce))
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
            performed(transition, work, answer, nonce=self.nonce, chance=0.5)

    def proposal(self, transition: Transition, step: Any, work: Inquire) -> Proposal:
        leaf = transition.graph.leaf(step.key)
        assert isinstance(leaf, OperationNode)
        return Proposal(transition, step, leaf, work.operation, self.workflow, self.policy, work.known, self.nonce)

    def dead(self, key: str = "a") -> Governed:
        """Its worker is gone, and nothing that it sent can arrive any more."""
        self.attempt(key, lambda transition, step: transition.expire_lease(step))
        self.later += timedelta(hours=1)
        return self

    def due(self, key: str = "a") -> Governed:
        """The retry, or the look, is due."""
        self.later += timedelta(minutes=1)
        return self.over(key, lambda t, step, wait: t.resume(step, wait))

    def over(self, key: str, end: Callable[[Transition, Any, Any], object]) -> Governed:
        def ended(transition: Transition, step: Any) -> None:
            wait = open_wait(transition.run, key)
            assert wait is not None
            end(transition, step, wait)

        self.attempt(key, ended)
        return self

    def answer(self, *people: str, choice: str = "approve", key: str = "a") -> Governed:
        """People vote, and the question is decided."""

        def decide(transition: Transition, step: Any, wait: Any) -> None:
            (question,) = [asked for asked, known in transition.run.answers.items() if known.status == "requested"]
            for person in people:
                voted = ApprovalVoted(question, choice, "cli", False, groups=["group:owners"])
                transition.tell(voted, step=key, actor=Actor("person", person))
            outcome = "approved" if choice == "approve" else choice
            transition.tell(
                ApprovalDecided(question, outcome, choice, "because"), step=key, actor=Actor("person", "ana")
            )
            transition.resume(step, wait)

        return self.over(key, decide)

    @property
    def told(self) -> list[str]:
        """List what was told of actions, in order."""
        kinds = [str(orjson.loads(line)["type"]) for line in self.lines]
        return [kind.removeprefix("action.") for kind in kinds if kind.startswith("action.")]


def governed(text: str, policy: str | None = ALLOW_ALL, said: tuple[Any, ...] = ()) -> Governed:
    run = Governed(load_workflow(text, "test.yaml", CATALOG), {}, said=list(said))
    run.open()
    return run.rule_by(policy)


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("policy", "status", "sent"),
    [(ALLOW_ALL, "succeeded", 1), (DENY, "failed_terminal", 0), (None, "failed_terminal", 0)],
)
def test_what_policy_says_is_what_is_done(policy: str | None, status: str, sent: int) -> None:
    run = governed(WRITE, policy).drive()
    assert (run.status, len(run.sent)) == (status, sent)
    assert run.verified()


@pytest.mark.req("U-5")
def test_an_approved_action_goes_out_once_and_a_rejected_one_never() -> None:
    run = governed(WRITE, ASK).drive()
    assert (run.status, run.sent) == ("waiting_approval", [])
    run.answer("ana", "ben").drive()
    assert (run.status, len(run.sent), run.verified()) == ("succeeded", 1, True)


@pytest.mark.req("U-5")
@pytest.mark.parametrize("people", [(), ("ana",), ("ana", "ana"), ("ana", "stranger")])
def test_a_decision_that_its_votes_do_not_carry_lets_nothing_out(people: tuple[str, ...]) -> None:
    run = governed(WRITE, ASK).drive().answer(*people).drive()
    assert run.sent == []


def test_an_approval_is_void_when_its_time_is_over_or_policy_has_changed() -> None:
    run = governed(WRITE, ASK).drive().answer("ana", "ben")
    run.later += timedelta(days=2)
    run.drive()
    assert (run.status, run.sent) == ("waiting_approval", [])
    run.answer("ana", "ben").rule_by(DENY).drive()
    assert (run.status, run.sent) == ("failed_terminal", [])


@pytest.mark.req("Q-18")
@pytest.mark.parametrize(
    ("said", "status", "receipt"),
    [
        (Done({}), "succeeded", "succeeded"),
        (Refused("422", "no"), "failed_terminal", "failed"),
        (Refused("403", "no"), "failed_terminal", "failed"),
        (NotSent("away"), "failed_retryable", "failed"),
        (None, "failed_retryable", "failed"),
        (InDoubt("no answer"), "failed_retryable", "in_doubt"),
        (Parked("p1"), "failed_terminal", "succeeded"),
    ],
)
def test_an_outcome_is_what_its_class_says(said: Any, status: str, receipt: str) -> None:
    run = governed(EFFECT, said=(said,)).drive()
    assert (run.status, run.told, len(run.sent)) == (status, ["intended", receipt], 1)
    assert run.verified()


@pytest.mark.req("Q-19")
def test_attempts_end() -> None:
    run = governed(EFFECT, said=(NotSent("away"),) * 3).drive().due().drive().due().drive()
    assert (run.status, len(run.sent)) == ("failed_terminal", 3)


@pytest.mark.req("P-10")
@pytest.mark.parametrize(
    ("verdict", "status", "sent"),
    [
        (ProbeVerdict.APPLIED, "succeeded", 1),
        (ProbeVerdict.NOT_APPLIED, "succeeded", 2),
        (ProbeVerdict.CANNOT_TELL, "waiting_approval", 1),
    ],
)
def test_a_dead_worker_s_action_is_looked_for(verdict: ProbeVerdict, status: str, sent: int) -> None:
    run = governed(EFFECT).drive(dies=True).dead()
    run.said = [Probe(verdict, "evidence"), *([Done({})] if sent == 2 else [])]
    run.drive()
    assert (run.status, len(run.sent)) == (status, sent)


@pytest.mark.parametrize(("text", "sent"), [(DEDUPES, 2), (MAIL, 1)])
def test_what_cannot_be_asked_is_sent_again_only_where_the_target_dedupes(text: str, sent: int) -> None:
    run = governed(text).drive(dies=True).dead().drive()
    assert len(run.sent) == sent
    assert run.status == ("succeeded" if sent == 2 else "waiting_approval")


@pytest.mark.parametrize(("choice", "sent"), [("happened", 1), ("again", 2)])
def test_people_settle_a_doubt(choice: str, sent: int) -> None:
    run = governed(MAIL, ASK).drive().answer("ana", "ben").drive(dies=True).dead().drive()
    run.answer("ana", "ben", choice=choice).drive()
    assert (run.status, len(run.sent)) == ("succeeded", sent)


@pytest.mark.req("V-9")
def test_a_durable_action_parks_and_its_end_completes_it() -> None:
    run = governed(CASE, said=(Parked("case-1"),)).drive()
    assert (run.status, len(run.sent)) == ("waiting", 1)
    run.over("a", lambda t, s, wait: waits.complete(t, s, wait, {"output": {"ok": 1}}, Actor("token", "t"))).drive()
    assert run.status == "succeeded"


@pytest.mark.req("V-12")
def test_a_durable_action_that_takes_too_long_is_ended_outside() -> None:
    run = governed(CASE, said=(Parked("case-1"),)).drive().over("a", waits.time_out).drive()
    assert run.status == "failed_terminal"
    assert "cancel" in [command.kind for command in run.commands.values()]


@pytest.mark.req("Q-15")
def test_a_key_that_is_shared_is_looked_up_first() -> None:
    assert governed(TICKET, said=(Done({}), Done({}))).drive().status == "succeeded"


@pytest.mark.parametrize(("people", "status"), [(("ana", "ben"), "succeeded"), (("ana",), "failed_terminal")])
def test_a_gate_goes_on_by_its_votes_alone(people: tuple[str, ...], status: str) -> None:
    assert governed(GATE).drive().answer(*people).drive().status == status


@pytest.mark.req("X-13")
@pytest.mark.parametrize(
    ("other", "status"),
    [
        (OtherRun("succeeded", {"v": 1}), "succeeded"),
        (OtherRun("failed_terminal", error={"class": "transport", "message": "no"}), "failed_terminal"),
        (OtherRun(problem="there is none"), "failed_terminal"),
        (OtherRun("waiting"), "waiting"),
    ],
)
def test_a_child_is_as_its_run(other: OtherRun, status: str) -> None:
    assert governed(CHILD, said=(other,)).drive().status == status


def test_a_run_that_is_canceled_sends_nothing_more() -> None:
    run = governed(EFFECT).drive(dies=True)
    run.attempt("a", lambda t, _: t.cancel(Actor("person", "p"), "enough"))
    run.dead().said = [Probe(ProbeVerdict.NOT_APPLIED, "it is not there")]
    run.drive()
    assert (run.status, len(run.sent)) == ("canceled", 1)


FORM = "{type: object, properties: {ok: {type: boolean}}}"
WAITS = [
    "wait: {for: PT1H}",
    'wait: {until: "2026-01-02T00:00:00Z"}',
    "wait: {signal: paid, correlate: x}",
    f"task: {{title: Look, form: {FORM}, assign: {{group: owners}}}}",
]


@pytest.mark.req("X-7")
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize(
    ("result", "status"), [({"output": {"ok": True}}, "succeeded"), ({"error": {"message": "no"}}, "failed_terminal")]
)
def test_a_wait_ends_with_what_it_is_told(wait: str, result: dict[str, Any], status: str) -> None:
    run = governed(f"{HEAD}  - {{id: a, {wait}}}\n").drive()
    assert run.status == "waiting"
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, result, Actor("person", "ana"))).drive()
    assert (run.status, run.verified()) == (status, True)


@pytest.mark.req("V-12")
@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_that_takes_too_long_fails_its_step(wait: str) -> None:
    run = governed(f"{HEAD}  - {{id: a, {wait}}}\n").drive().over("a", waits.time_out).drive()
    assert run.status == "failed_terminal"


@pytest.mark.req("V-13")
@pytest.mark.parametrize("wait", WAITS)
def test_a_canceled_run_waits_for_nothing(wait: str) -> None:
    run = governed(f"{HEAD}  - {{id: a, {wait}}}\n").drive()
    run.attempt("a", lambda t, _: t.cancel(Actor("person", "p"), "enough"))
    assert (run.status, run.ready()) == ("canceled", [])


@pytest.mark.parametrize("key", ["tenant", "workflow:w", "connector:probe"])
def test_what_is_paused_goes_out_when_it_is_resumed(key: str) -> None:
    """Nothing is used up meanwhile (promise 11)."""
    run = governed(EFFECT)
    run.paused = {key: {"by": "p", "reason": "stop", "at": NOW.isoformat()}}
    assert (run.drive().status, run.sent) == ("waiting", [])
    run.paused = {}
    run.over("a", lambda t, s, wait: t.resume(s, wait)).drive()
    assert (run.status, len(run.sent)) == ("succeeded", 1)


@pytest.mark.req("X-14")
def test_a_continuation_is_over_when_the_other_run_is_there() -> None:
    text = HEAD + "  - {id: a, continue_with: {workflow: other}}\n"
    assert governed(text, said=(OtherRun("queued"),)).drive().status == "succeeded"
