"""Promise 5: what a run comes to follows from its graph, from what the outside said and the order in which that was
recorded; never from which worker was faster, who crashed, or how much of the run a commit had in memory.

Random graphs (branches, loops, parallel parts, failures, agents) each get a script: what every step meets, how its
waits end and during which super-step that is recorded, what models say, whether and when the run is canceled. The
script is then played under other interleavings and crash points, and each time checkpoints, audit and result must be
the same. One record of each graph is replayed as well. COUNTERSEAL_DEEP=1 plays 50,000 graphs.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core.errors import ExpressionError
from evidence.chain import Actor
from runtime.engine.book.barrier import REFERENCE
from runtime.engine.book.plan import variables
from runtime.engine.book.recorded import KEPT, STORED, RecordedEvent
from runtime.engine.life.agent_loop import beginning, remembered
from runtime.engine.life.transition import Transition
from runtime.engine.life.waits import ended as end_agent
from runtime.engine.life.waits import time_out
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.events import WaitCompleted, WaitTimedOut
from runtime.engine.model.graph import (
    Branch,
    Channel,
    ForeachNode,
    Graph,
    IfNode,
    LeafNode,
    OperationNode,
    Reducer,
    Scope,
    SetNode,
    WhileNode,
)
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow, WaitRow
from runtime.engine.model.states import StepState, WaitKind
from runtime.engine.replay.past import past_of
from runtime.engine.replay.replay import replay
from tests.support import drawn_agents

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
GRAPHS = 50_000 if DEEP else 1_500
RACES = 2
# During which super-step a run is canceled, if it is.
CANCELS = (*(None,) * 12, 0, 1, 2, 3)

# Only an agent waits for its turns.
WAITS = [kind for kind in WaitKind if kind is not WaitKind.AGENT]
CHANNELS = {
    channel.name: channel
    for channel in (
        Channel("seen", Reducer.APPEND, initial=[], ledger=True),
        Channel("few", Reducer.APPEND, keep=3, initial=[]),
        Channel("n", Reducer.SUM, initial=0, ledger=True),
        Channel("top", Reducer.MAX),
        Channel("tags", Reducer.UNION, initial=[]),
        Channel("last", Reducer.REPLACE),
        Channel("turns", Reducer.UNION, initial=[], ledger=True, turns=True),
    )
}
COVERED = (
    "if", "nested if", "foreach", "parallel foreach", "while", "parallel parts", "on_failure", "on_timeout",
    "on_rejected", "approval", "retry", "timer", "signal", "task", "child", "external", "completed", "timed out",
    "rejected here", "rejected into its branch", "resumed before its barrier", "resumed while nothing executes",
    "canceled at a barrier", "canceled while steps execute", "lease expired", "memory lost", "settled from memory",
    "settled on what was kept", "set alone", "went on in one commit", "planned into a fault", "named anew",
    "succeeded", "failed_terminal", "canceled", "agent", "agent begins a turn", "agent timed out", "agent remembers",
    "agent failed", "turn over", "turn failed", "turn tried again", "call done", "call denied", "call rejected",
    "call expired", "call failed", "call refused", "call asked before", "call after another", "call in doubt",
    "call canceled", "doubt outlives its agent", "model is told of results", "model is to conclude",
)  # fmt: skip


# -- graphs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Formula:
    """A stand-in for an expression: a function of the same variables."""

    of: Callable[[Mapping[str, Any]], Any]
    references: frozenset[str] = frozenset()

    def render(self, values: Mapping[str, object]) -> Any:
        try:
            return self.of(values)
        except (KeyError, TypeError) as error:
            raise ExpressionError(f"{error!r}") from None


def _seen(values: Mapping[str, Any]) -> str:
    where = f"@{values['item']}" if "item" in values else ""
    why = f"!{values['error.code']}" if "error.code" in values else ""
    return f"{values['output']['v']}{where}{why}"


SETS: dict[str, Formula] = {
    "seen": Formula(_seen),
    "few": Formula(_seen),
    "n": Formula(lambda values: 1 + values["output"]["v"] % 2),
    "top": Formula(lambda values: values["output"]["v"] + values["state.n"]),
    "tags": Formula(lambda values: [values["output"]["v"] % 3, len(values["state.seen"])]),
    "last": Formula(_seen),
}
# A step without an operation has no output.
SETS_ALONE: dict[str, Formula] = {
    "seen": Formula(lambda values: f"s{values['state.n']}"),
    "few": Formula(lambda values: f"s{values['state.n']}{values.get('item', '')}"),
    "n": Formula(lambda values: 1 + len(values["state.seen"]) % 2),
    "top": Formula(lambda values: values["state.n"]),
    "tags": Formula(lambda values: [len(values["state.few"])]),
    "last": Formula(lambda values: f"s{values['state.n']}{values.get('error.code', '')}"),
}
CONDITIONS = (
    Formula(lambda values: values["state.n"] % 2 == 0),
    Formula(lambda values: len(values["state.seen"]) % 3 != 0),
    Formula(lambda values: values["state.last"] is None),
    Formula(lambda values: values["state.last"] + 1),  # a fault, where `last` is a text
)
WHILES = (
    Formula(lambda values: values["state.n"] % 5 < 3),
    Formula(lambda values: values["state.n"] < 4),
    Formula(lambda values: "index" not in values and values["state.n"] % 3 != 2),
)
ITEMS = (
    Formula(lambda values: [1, 2, 3]),
    Formula(lambda values: values["state.tags"]),
    Formula(lambda values: list(range(values["state.n"] % 5))),
    Formula(lambda values: []),
)
KINDS = (
    "leaf", "leaf", "leaf", "leaf", "leaf", "if", "foreach", "while", "agent",
)  # fmt: skip


@dataclass
class Drawn:
    """A graph being drawn: ids and places are given in order."""

    entropy: Iterator[int]
    count: int = 0
    leaves: dict[str, LeafNode] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    shapes: Counter[str] = field(default_factory=Counter)

    def graph(self) -> Graph:
        root = self.scope(0, "")
        read = frozenset(name for name in self.leaves if zlib.crc32(name.encode()) % 3 == 0)
        return Graph("w", 1, "0" * 64, CHANNELS, root, dict(self.leaves), read, dict(self.failed))

    def number(self, below: int) -> int:
        return next(self.entropy, 0) % below

    def scope(self, depth: int, branch: str, *, counts: bool = False) -> Scope:
        """Build a scope. ``counts``: its leaves add to `n`, so that a loop around it comes to its end."""
        nodes: list[Any] = []
        for number in range((2, 1, 1)[min(depth, 2)] + self.number((4, 3, 2)[min(depth, 2)])):
            nodes.append(self.node(depth, [node.id for node in nodes], branch, number, counts=counts))
        return Scope(tuple(nodes))

    def node(self, depth: int, before: list[str], branch: str, number: int, *, counts: bool) -> Any:
        index = self.count
        self.count += 1
        apart = number and self.number(2)
        self.shapes["parallel parts"] += bool(apart)
        needs = tuple(before[: self.number(len(before))]) if apart else tuple(before[-1:])
        kind = KINDS[self.number(len(KINDS))] if depth < 3 else "leaf"
        name = f"{kind}{index}"
        if branch:
            self.failed[name] = branch
        self.shapes[kind] += 1
        if kind == "if":
            self.shapes["nested if"] += bool(depth)
            condition = CONDITIONS[self.number(31) % 5 % len(CONDITIONS)]
            return IfNode(name, index, needs, condition, self.scope(depth + 1, branch), self.scope(depth + 1, branch))
        if kind == "foreach":
            parallel = 1 + self.number(4)
            self.shapes["parallel foreach"] += parallel > 1
            items = ITEMS[self.number(len(ITEMS))]
            return ForeachNode(name, index, needs, items, "item", parallel, self.scope(depth + 1, branch))
        if kind == "while":
            condition = WHILES[self.number(len(WHILES))]
            return WhileNode(
                name, index, needs, condition, 2 + self.number(6), self.scope(depth + 1, branch, counts=True)
            )
        if kind == "agent":
            return self.agent(depth, name, index, needs, counts=counts)
        return self.leaf(depth, name, index, needs, counts=counts)

    def agent(self, depth: int, name: str, index: int, needs: tuple[str, ...], *, counts: bool) -> LeafNode:
        sets = {"n": SETS["n"]} if counts else {name: SETS[name] for name in ("seen", "last") if self.number(2)}
        branches = {}
        if depth < 3 and (counts or self.number(2)):
            branches[Branch.FAILURE] = self.scope(depth + 1, name, counts=counts)
        self.leaves[name] = drawn_agents.drawn(
            self.number, id=name, index=index, needs=needs, sets=sets, branches=branches
        )
        return self.leaves[name]

    def leaf(self, depth: int, name: str, index: int, needs: tuple[str, ...], *, counts: bool) -> LeafNode:
        chosen = self.number(64) | (counts << [*SETS].index("n"))
        sets = {channel: SETS[channel] for bit, channel in enumerate(SETS) if chosen >> bit & 1}
        if not self.number(6):
            self.shapes["set alone"] += 1
            written = {channel: SETS_ALONE[channel] for channel in sets}
            named = Formula(lambda values: f"ref-{values['state.n']}") if not self.number(4) else None
            self.leaves[name] = SetNode(id=name, index=index, needs=needs, sets=written, reference=named)
            return self.leaves[name]
        branches = {}
        if depth < 3 and self.number(5) < 2:
            kind = list(Branch)[self.number(3)]
            self.shapes[str(kind)] += 1
            branches[kind] = self.scope(depth + 1, name)
        reference = Formula(lambda values: f"ref-{values['output']['v']}") if not self.number(8) else None
        leaf = OperationNode(
            id=name, index=index, needs=needs, sets=sets, reference=reference, branches=branches, operation="probe.x",
            inputs=Formula(lambda _: {}),
        )  # fmt: skip
        self.leaves[name] = leaf
        return leaf


class Case:
    """A graph, and how often each construct is in it. Shown in outline where it fails."""

    def __init__(self, graph: Graph, shapes: Counter[str]) -> None:
        self.graph, self.shapes = graph, shapes

    def __repr__(self) -> str:
        return _outline(self.graph.root)


def _outline(scope: Scope) -> str:
    shown = []
    for node in scope.nodes:
        needs = f"<{','.join(node.needs)}" if node.needs else ""
        match node:
            case OperationNode() | SetNode() | AgentNode():
                inner = "".join(f" {name}:{_outline(branch)}" for name, branch in node.branches.items())
                shown.append(f"{node.id}{needs} sets {sorted(node.sets)}{inner}")
            case IfNode():
                shown.append(f"{node.id}{needs} {_outline(node.then)} else {_outline(node.otherwise)}")
            case ForeachNode():
                shown.append(f"{node.id}{needs} x{node.max_parallel} {_outline(node.body)}")
            case WhileNode():
                shown.append(f"{node.id}{needs} {_outline(node.body)}")
    return f"[{'; '.join(shown)}]"


def case_of(entropy: bytes) -> Case:
    """One draw for all choices of a graph: many small ones would take longer than playing it."""
    drawn = Drawn(iter(entropy))
    return Case(drawn.graph(), drawn.shapes)


graphs = st.binary(min_size=128, max_size=128).map(case_of)


# -- what the outside says -------------------------------------------------------------------------------------------

FAILURES: dict[str, dict[str, Any]] = {
    "x": {"class": "transport", "code": "x", "message": "no"},
    "timeout": {"class": "timeout", "code": "timed_out", "message": "too long"},
    "rejected": {"class": "authorization", "code": "rejected", "message": "a person said no"},
    **drawn_agents.FAILURES,
}


@dataclass(frozen=True)
class Answer:
    """The fate of a step: ``succeed``, ``fail`` with a failure, or ``park``, and then how and when its wait ends."""

    verb: str
    failure: str = "x"
    kind: WaitKind = WaitKind.TIMER
    end: str = "complete"
    delay: int = 0
    value: int = 0
    doubt: bool = False


@dataclass(frozen=True)
class Script:
    """The outside, as a function of who asks. ``cancel_at`` is a super-step; ``fresh``: none of its steps has begun."""

    seed: int
    cancel_at: int | None
    fresh: bool

    def answer(self, key: str, visit: int) -> Answer:
        number = zlib.crc32(f"{self.seed}:{key}:{visit}".encode())
        chance, value = number % 100, number // 100 % 10
        if visit > 2 or chance < 66:
            return Answer("succeed", value=value)
        if chance < 71:
            return Answer("fail", failure=("x", "timeout", "rejected")[number // 1000 % 3])
        kind = WAITS[number // 1000 % len(WAITS)]
        ends = {WaitKind.RETRY: ("complete",), WaitKind.APPROVAL: ("complete", "complete", "reject")}
        options = ends.get(kind, ("complete", "complete", "complete", "time out"))
        return Answer("park", "x", kind, options[number // 10_000 % len(options)], number // 100_000 % 3, value)

    def in_agent(self, key: str, visit: int) -> Answer:
        """The fate of a turn or a call of an agent."""
        verb, failure, kind, end, delay, value = drawn_agents.fate(self.seed, key, visit)
        in_doubt = failure == "doubt"
        return Answer(verb, "x" if in_doubt else failure, kind, end, delay, value, in_doubt)

    def agent(self, key: str, visit: int) -> Answer:
        """The fate of an agent: it waits for its turns, and some take too long."""
        number = zlib.crc32(f"{self.seed}:{key}:agent".encode())
        if visit:
            return Answer("end")
        return Answer("park", "x", WaitKind.AGENT, "never" if number % 3 else "time out", 1 + number % 6)

    def rank(self, key: str) -> int:
        return zlib.crc32(f"{key}:{self.seed}".encode())


@dataclass(frozen=True)
class Order:
    """The steps of a super-step recorded before its barrier; ``last`` ends it, if something resumes before that."""

    superstep: int
    hasty: frozenset[str]
    last: str | None

    @classmethod
    def of(cls, superstep: int, answers: dict[str, Answer]) -> Order:
        """Order a script: a park without delay resumes before its own barrier, if another step can wait for that."""
        anchors = sorted(key for key, answer in answers.items() if answer.verb != "park")
        hasty = frozenset(key for key, answer in answers.items() if answer.verb == "park" and not answer.delay)
        return cls(superstep, hasty, anchors[-1]) if anchors and hasty else cls(superstep, frozenset(), None)

    def allows(self, key: str, executing: list[str], due: list[str]) -> bool:
        """True if this step may settle now: the barrier comes after all that the script has recorded before it."""
        if self.last is not None and self.last in executing:
            return key != self.last or (executing == [key] and not due)
        return len(executing) > 1 or not due


# -- playing it ------------------------------------------------------------------------------------------------------


def at_rest(rows: dict[str, StepRow]) -> dict[str, StepRow]:
    """Steps without the time that counted from one append."""
    return {key: replace(row, eligible_in=None) for key, row in rows.items()}


class Play:
    """One run of a script. ``luck`` chooses the interleaving; without it everything is done in order."""

    def __init__(
        self, run: Any, script: Script, counted: Counter[str], told: Callable[[Any], Any], luck: Random | None = None
    ) -> None:
        self.run, self.script, self.counted, self.told, self.luck = run, script, counted, told, luck
        self.visits: dict[str, int] = {}
        self.after_wait: dict[str, Answer] = {}
        self.parked: dict[str, tuple[int, Answer]] = {}
        self.order: Order | None = None
        self.memory: dict[str, Any] = {}
        self.crashes = 3 if luck else 0
        self.crashed = False
        self.canceled = False

    def to_the_end(self) -> Play:
        for _ in range(2_000):
            if self.run.finished:
                return self
            self.step()
        raise AssertionError(f"does not end: {self.run.status}, {self.run.open_steps}")

    # -- what may happen next ----------------------------------------------------------------------------------------

    def step(self) -> None:
        run = self.run.run
        # A barrier ends an agent's wait, and what its calls have waiting.
        self.parked = {key: what for key, what in self.parked.items() if self.run.rows[key].status in WAITING}
        here = [row for row in self.run.rows.values() if row.superstep == run.superstep]
        executing = [row.key for row in here if row.status in (StepState.READY, StepState.RUNNING)]
        assert len(executing) == self.run.executing
        if late := self.late(run.superstep):
            # What is canceled with an agent is what had not begun by then: so it comes before all else.
            self.complete(late[0])
            return
        if self.order is None or self.order.superstep != run.superstep:
            self.order = Order.of(run.superstep, {key: self.answer(key) for key in executing})
        if not self.canceled and self.script.cancel_at == run.superstep:
            self.be_canceled()
        elif not executing:
            self.counted["resumed while nothing executes"] += 1
            self.complete(min(self.parked, key=lambda key: (self.parked[key][0], self.script.rank(key))))
        else:
            self.choose(list(self.moves(executing)))()

    def late(self, superstep: int) -> list[str]:
        """The agents that have taken too long when a super-step begins."""
        found = [key for key, (at, answer) in self.parked.items() if at <= superstep and answer.kind is WaitKind.AGENT]
        return sorted(found)

    def be_canceled(self) -> None:
        ready = [key for key in self.run.ready() if self.run.rows[key].superstep == self.run.run.superstep]
        # Before the run began there is one command only, so nothing is claimed beside it.
        if self.script.fresh or self.run.run.superstep == 0 or not ready:
            self.cancel()
        else:
            self.claim(self.choose(ready))

    def moves(self, executing: list[str]) -> Iterator[Callable[[], object]]:
        order = self.order
        assert order is not None
        waits = [(key, at) for key, (at, answer) in self.parked.items() if answer.kind is not WaitKind.AGENT]
        due = [key for key, at in waits if at <= order.superstep]
        running = [key for key in executing if self.run.rows[key].status is StepState.RUNNING]
        yield from (partial(self.claim, key) for key in self.run.ready())
        yield from (partial(self.complete, key) for key in due)
        yield from (partial(self.settle, key) for key in running if order.allows(key, executing, due))
        if self.luck and self.crashes and running and self.luck.random() < 0.2:
            yield partial(self.crash, self.luck.choice(running))
        if self.luck and self.memory and self.luck.random() < 0.1:
            yield self.forget

    def choose(self, among: list[Any]) -> Any:
        return self.luck.choice(among) if self.luck else among[0]

    def answer(self, key: str) -> Answer:
        """The answer of this step now: that of its wait, if it comes from one."""
        known, visit = self.after_wait.get(key), self.visits.get(key, 0)
        if isinstance(self.run.workflow.graph.leaf(key), AgentNode):
            return self.script.agent(key, visit)
        return known or (self.script.in_agent(key, visit) if "/" in key else self.script.answer(key, visit))

    # -- moves -------------------------------------------------------------------------------------------------------

    def attempt(self, key: str, move: Callable[[Transition, StepRow], object]) -> Transition:
        """Begin as a worker does: from memory while nobody else has moved the run, else on what was kept."""
        held = self.memory.pop(key, None)
        remembered = held is not None and held.version == self.run.version
        self.counted["settled from memory" if remembered else "settled on what was kept"] += 1
        view = held if held is not None and remembered else self.run.view()
        transition = Transition(view, self.run.workflow.graph)
        move(transition, self.run.rows[key])
        self.run.apply(transition)
        return transition

    def claim(self, key: str) -> None:
        began: list[Transition] = []
        self.run.claim(key, lambda _: began.append(self.attempt(key, lambda t, step: t.started(step))))
        self.memory[key] = began[0].after()

    def settle(self, key: str) -> None:
        followed: list[str] = []

        def move(transition: Transition, step: StepRow) -> None:
            followed.clear()
            self.end(transition, step)
            if (answer.kind, answer.delay) != (WaitKind.AGENT, 1):  # its time may be up when the next one begins
                self.go_on(transition, step.key, followed)

        at, answer = self.run.run.superstep, self.answer(key)
        transition = self.attempt(key, move)
        self.ended(key, answer, at)
        for number, following in enumerate(followed):
            at += 1
            if number + 1 < len(followed):
                self.ended(following, self.answer(following), at)
            else:
                self.memory[following] = transition.after()
        self.counted["went on in one commit"] += bool(followed)

    def go_on(self, transition: Transition, held: str, followed: list[str]) -> None:
        """Take what follows in the same transaction, and end it in there as well if nothing can come between."""
        while self.luck and not transition.run.finished and transition.run.superstep != self.script.cancel_at:
            if self.late(transition.run.superstep) or self.luck.random() < 0.5:
                return
            following = transition.take("w", followed[-1] if followed else held)
            if following is None:
                return
            followed.append(following.key)
            alone = transition.run.width == 1 and not transition.run.state.parked
            if not alone or self.answer(following.key).verb == "park" or self.luck.random() < 0.5:
                return
            self.end(transition, following)

    def end(self, transition: Transition, step: StepRow) -> None:
        """End the step by its script, which is a function: it may be tried on one view and done on another."""
        if isinstance(transition.graph.leaf(step.key), SetNode):
            settle(transition, step, None)
            return
        answer, leaf = self.answer(step.key), transition.graph.leaf(step.key)
        if isinstance(leaf, AgentNode) and "/" not in step.key:
            self.be_agent(transition, step, leaf, answer)
            return
        usage = self.asked(transition, step) if StepKey.of(step.key).is_turn else None
        if "/" in step.key and answer.verb != "park":
            drawn_agents.decided(transition, step.key)
        if answer.verb == "succeed":
            said = {"v": answer.value} if usage is None else drawn_agents.says(self.script.seed, step.key)
            settle(transition, step, said, usage)
        elif answer.verb == "fail":
            transition.fail(step, FAILURES[answer.failure], usage)
        else:
            if answer.doubt:
                drawn_agents.doubt(transition, step.key)
            if answer.kind is WaitKind.RETRY:
                later = {"class": "transport", "code": "later"}
                transition.retry_later(step, timedelta(seconds=5), later, usage)
            else:
                transition.park(step, answer.kind, "t")

    def be_agent(self, transition: Transition, step: StepRow, leaf: AgentNode, answer: Answer) -> None:
        """Begin an agent, or end it as its turns or its time have ended it."""
        if answer.verb == "park":
            transition.tell(beginning(leaf, transition.variables(step.key)), step=step.key)
            transition.park(step, WaitKind.AGENT, "t")
            return
        waits = [wait for wait in transition.run.waits.values() if wait.step_key == step.key]
        end_agent(transition, step, leaf, waits[-1])

    def asked(self, transition: Transition, step: StepRow) -> dict[str, Any]:
        """The use of a turn. Where nobody hurries, the model is shown what the book says: each result once."""
        if self.luck is None:
            told, state = self.told(self.run), transition.run.state
            heard = drawn_agents.hears(told, step.key, str(transition.view.run_id), state)
            self.counted["model is told of results"] += heard > 0
            self.counted["model is to conclude"] += bool(state.agents[StepKey.of(step.key).agent].limit)
        return drawn_agents.usage_of(self.script.seed, step.key, self.visits.get(step.key, 0))

    def ended(self, key: str, answer: Answer, at: int) -> None:
        self.visits[key] = self.visits.get(key, 0) + 1
        self.after_wait.pop(key, None)
        if answer.verb == "park" and self.run.rows[key].status in WAITING:
            hasty = self.order is not None and key in self.order.hasty
            if answer.end != "never":
                self.parked[key] = (at if hasty else at + max(answer.delay, 1), answer)
            self.counted[str(answer.kind)] += 1

    def complete(self, key: str) -> None:
        """The outside ends a wait, which is recorded now."""
        _, answer = self.parked.pop(key)
        graph, wait = self.run.workflow.graph, self.run.waits[key]
        self.counted["resumed before its barrier"] += self.order is not None and key in self.order.hasty
        rejected = FAILURES["rejected"]
        if answer.kind is WaitKind.AGENT:
            self.counted["agent timed out"] += 1
            self.attempt(key, lambda t, step: time_out(t, step, wait))
            return
        if answer.end == "reject" and graph.fails_run(key, rejected):
            self.counted["rejected here"] += 1
            self.attempt(key, lambda t, step: (ended(t, wait, WaitCompleted, rejected), t.fail(step, rejected)))
            return
        event: Any = WaitCompleted
        after = Answer("succeed", value=answer.value)
        if answer.end == "reject":
            self.counted["rejected into its branch"] += 1
            after = Answer("fail", failure="rejected")
        elif answer.end == "time out":
            self.counted["timed out"] += 1
            event, after = WaitTimedOut, Answer("fail", failure="timeout")
        elif answer.kind is WaitKind.RETRY:
            again = self.script.in_agent if "/" in key else self.script.answer
            after = Answer("succeed", value=answer.value) if answer.doubt else again(key, self.visits[key])
        self.counted["completed"] += answer.end == "complete"
        self.after_wait[key] = after
        result = {"output": {"v": answer.value}, "by": "test:outside"}
        self.attempt(key, lambda t, step: (ended(t, wait, event, result), t.resume(step, wait)))

    def crash(self, key: str) -> None:
        self.crashes -= 1
        self.crashed = True
        self.counted["lease expired"] += 1
        self.memory.pop(key, None)
        self.attempt(key, lambda t, step: t.expire_lease(step))

    def forget(self) -> None:
        self.memory.clear()
        self.counted["memory lost"] += 1

    def cancel(self) -> None:
        self.canceled = True
        transition = Transition(self.run.view(), self.run.workflow.graph)
        transition.cancel(Actor("person", "ann"), "enough")
        self.run.apply(transition)
        self.counted["canceled at a barrier" if self.run.finished else "canceled while steps execute"] += 1

    # -- what it came to ---------------------------------------------------------------------------------------------

    def outcome(self, *, exactly: bool) -> dict[str, Any]:
        """All that must be the same; where a lease was lost, but for what names the lease."""
        run = self.run
        return {
            "status": run.status,
            "error": run.run.error,
            "rows": {key: (str(row.status), row.output, row.writes, row.last_error) for key, row in run.rows.items()},
            "checkpoints": {
                number: digest if exactly else _without_waits(orjson.loads(content))
                for number, (content, digest) in run.checkpoints.items()
            },
            "ledger": run.ledger,
            "audit": list(self.audit(exactly=exactly)),
        }

    def audit(self, *, exactly: bool) -> Iterator[list[str]]:
        """The facts of each super-step, in an order of their own; who did them, when and under which lease is left out.

        A question of the very last commit was never put; asked a moment before, it was put and canceled. So questions
        that the run's end canceled are left out.
        """
        facts: set[str] = set()
        for line in map(orjson.loads, self.run.lines):
            kind, step, data = line["type"], line["step"], line["data"]
            asked = kind in ("step.parked", "step.retry_scheduled")
            if kind in ("lease.expired", "wait.canceled") or (
                asked and self.run.rows[step].status is StepState.CANCELED
            ):
                continue
            dropped = {"epoch", "wait", "invocation", "count", "values", KEPT, STORED} | (
                set() if exactly else {"digest", "committed", "receipt_digest"}
            )
            data = {name: value for name, value in data.items() if name not in dropped}
            if kind == "checkpoint.committed":
                yield sorted(facts)
                facts = set()
            facts.add(orjson.dumps([kind, step, data], option=orjson.OPT_SORT_KEYS).decode())
        yield sorted(facts)


WAITING = (StepState.WAITING, StepState.WAITING_APPROVAL, StepState.FAILED_RETRYABLE)


def _without_waits(state: dict[str, Any]) -> dict[str, Any]:
    parked = {key: value.partition(":")[0] for key, value in state.get("parked", {}).items()}
    return {**state, "parked": parked}


def ended(transition: Transition, wait: WaitRow, event: Any, result: Any) -> None:
    transition.tell(event(wait.wait_id, wait.kind, result=result), step=wait.step_key)


def writes(graph: Graph, state: Any, constants: Any, key: str, more: Any) -> Any:
    if "/" in key:
        return {}
    leaf, values = graph.leaf(key), variables(graph, state, constants, key)
    values.update(more)
    made = {name: source.render(values) for name, source in leaf.sets.items()}
    made |= remembered(leaf, state, constants, key)
    if leaf.reference is not None:
        made[REFERENCE] = leaf.reference.render(values)
    return made


def settle(transition: Transition, step: StepRow, output: Any, usage: Any = None) -> None:
    try:
        made = writes(transition.graph, transition.run.state, transition.view.constants, step.key, {"output": output})
    except ExpressionError as error:
        transition.fail(step, {"class": "expression", "code": "expression", "message": str(error)})
        return
    transition.succeed(step, output, made, usage)


# -- the property ----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(7200 if DEEP else 300)
@pytest.mark.req("P-1")
@pytest.mark.req("P-2")
@pytest.mark.req("P-3")
@pytest.mark.req("P-4")
@pytest.mark.req("X-10")
@pytest.mark.req("X-11")
@pytest.mark.req("X-12")
@pytest.mark.req("X-15")
@pytest.mark.req("X-21")
def test_what_a_run_comes_to_never_depends_on_who_was_faster(
    simulate_graph: Callable[[Graph], Any], book_of: Callable[..., Any]
) -> None:
    counted: Counter[str] = Counter()

    def told(run: Any) -> list[RecordedEvent]:
        return list(book_of(run, writes).events)

    @settings(
        max_examples=GRAPHS,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        derandomize=not DEEP,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=graphs, seed=st.integers(0, 2**32), cancel_at=st.sampled_from(CANCELS), fresh=st.booleans())
    def check(case: Case, seed: int, cancel_at: int | None, fresh: bool) -> None:
        graph = case.graph
        script = Script(seed, cancel_at, fresh)
        orderly = Play(simulate_graph(graph), script, counted, told).to_the_end()
        assert orderly.run.open_steps == {}
        plays = [orderly]
        expected = {exactly: orderly.outcome(exactly=exactly) for exactly in (True, False)}
        for number in range(RACES):
            racing = Play(simulate_graph(graph), script, counted, told, Random(seed + number)).to_the_end()
            exactly = not racing.crashed
            for part, value in racing.outcome(exactly=exactly).items():
                assert value == expected[exactly][part], part
            plays.append(racing)
        last = plays[-1].run
        assert last.verified()
        derived = {found.number: found.digest for found in replay(book_of(last, writes))}
        assert derived == {number: digest for number, (_, digest) in last.checkpoints.items()}
        book = book_of(last, writes)
        folded = past_of(book.first, book.events, book.graphs).run
        assert at_rest({**folded.past, **folded.steps}) == at_rest(last.rows)
        counted.update(case.shapes)
        error = orderly.run.run.error or {}
        counted["planned into a fault"] += error.get("class") == "expression" and "message" in error
        counted["named anew"] += any(b"run.reference_set" in line for line in orderly.run.lines)
        counted.update(["graphs", orderly.run.status])
        counted.update(drawn_agents.came_to(book.events))
        counted["steps"] += len(orderly.run.rows)

    check()
    assert counted["graphs"] >= GRAPHS
    assert counted["steps"] > 3 * GRAPHS
    assert [name for name in COVERED if not counted[name]] == []
