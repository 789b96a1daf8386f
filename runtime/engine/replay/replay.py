"""Replay: folds a run's book again, and evaluates anew everything that expressions decided (promise 5).

The fold takes the book's values as they are. Replay checks them: the writes of steps and the choices of conditions must
be what the expressions give now. If they differ, ``Divergence`` names the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from core.canonical import Json, JsonObject, canonical_bytes
from evidence.chain import timestamp
from policy.facts import NOW
from runtime.engine.book.agent_plan import ahead
from runtime.engine.book.barrier import begin, cross, initial_values
from runtime.engine.book.channels import first_values
from runtime.engine.book.draft import seen_by
from runtime.engine.book.fold import fold
from runtime.engine.book.plan import CHECKPOINT, Evaluated
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.life.agent_loop import answered, beginning, result_of
from runtime.engine.model import events as e
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.graph import ChildNode, Graph, LeafNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.run import Run, State
from runtime.engine.model.states import RunState, WaitKind, WaitState
from runtime.engine.replay.past import MISFITS, graph_of, place
from runtime.engine.replay.retracing import Retracing

# Evaluates what a leaf writes, with these variables besides the run's: ``output``, and ``signal`` if it waited.
Writes: TypeAlias = "Callable[[Graph, State, Mapping[str, object], str, Mapping[str, Json]], JsonObject]"


# Judges an action anew by the recorded facts. Returns the outcome and the ids of the rules that fired; None if no rule
# made the decision (but a cap, or a policy that could not be read).
Judge: TypeAlias = "Callable[[e.DecisionMade], tuple[str, list[Json]] | None]"


class Divergence(Exception):
    """A line of the book does not follow from the lines before it; ``where`` names it."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what


class Derived(Struct, frozen=True):
    """A checkpoint as it was derived again."""

    number: int
    state: JsonObject
    digest: str


class Replay(Struct, frozen=True):
    """The input of a replay: the run before its first event, its events, and the graph after each extension.

    ``origins`` recomputes the origins of values; without it the recorded origins are believed.
    """

    first: Run
    events: Iterable[RecordedEvent]
    graphs: Sequence[Graph]
    constants: Mapping[str, object]
    writes: Writes
    judge: Judge = field(default=lambda _: None)
    origins: Retracing | None = None


def unopened(run_id: UUID, run_key: bytes, graph: Graph) -> Run:
    """A run before its first event."""
    return Run(
        run_id=run_id,
        run_key=run_key,
        status=RunState.QUEUED,
        superstep=0,
        executing=0,
        width=0,
        writes=0,
        reference="",
        requested_by="",
        state=State(initial_values(graph.channels)),
    )


def replay(book: Replay) -> Iterator[Derived]:
    """Derive every checkpoint of the book, in order. ``Divergence`` names the first line that does not follow."""
    run, recalled = book.first, dict[str, Mapping[str, Json]]()
    for recorded in book.events:
        if isinstance(recorded.event, e.ActionRecalled) and recorded.event.ended is not None:
            recalled[recorded.step or ""] = recorded.event.ended
        try:
            yield from _follow(run, recorded, graph_of(run, recorded, book.graphs), book, recalled)
        except MISFITS as error:
            raise Divergence(place(recorded), f"does not follow from what was before: {error}") from error
        except _Differs as difference:
            raise Divergence(place(recorded), str(difference)) from None
        if book.origins is not None:
            book.origins.hear(recorded)


class _Differs(Exception):
    pass


def _follow(
    run: Run, recorded: RecordedEvent, graph: Graph, book: Replay, recalled: Mapping[str, Mapping[str, Json]]
) -> Iterator[Derived]:
    match recorded.event:
        case e.CheckpointCommitted(halted=False) as event:
            first = not run.checkpointed
            choices = Evaluated(graph, book.constants, 0 if first else run.superstep + 1)
            crossing = begin(run, graph, choices, run.state.copy(), 0) if first else cross(run, graph, choices)
            if not _same(choices.made, event.choices or []):
                raise _Differs("planned otherwise than its conditions and collections say")
            fold(run, recorded, graph, crossing)
        case e.RunOpened() as event:
            copies = {str(name) for name in event.inherited or ()}
            own = {name: channel for name, channel in graph.channels.items() if name not in copies}
            given = {name: value for name, value in (event.channels or {}).items() if name not in copies}
            if not _same(first_values(own, book.constants, {}), given):
                raise _Differs("began with other values than its expressions give")
            fold(run, recorded, graph)
        case e.StepSucceeded() as event:
            values = {**_variables(run, graph, recorded, event), CHECKPOINT: run.superstep}
            if (ended := recalled.get(recorded.step or "")) is not None:
                values["signal"] = {"payload": event.output, **ended, "kind": str(WaitKind.EXTERNAL)}
            if not _same(
                book.writes(graph, run.state, book.constants, recorded.step or "", values), event.values or {}
            ):
                raise _Differs("wrote something else than its expressions give")
            fold(run, recorded, graph)
        case e.DecisionMade() as event:
            if book.origins is not None and (difference := book.origins.of_decision(run, recorded, event)) is not None:
                raise _Differs(difference)
            if (event.facts or {}).get(NOW, timestamp(recorded.at)) != timestamp(recorded.at):
                raise _Differs("was judged by another time than its line has")
            judged = book.judge(event)
            if judged is not None and judged != (event.outcome, event.rules):
                raise _Differs(f"was judged {event.outcome}; by its policy and facts it is {judged[0]}")
            fold(run, recorded, graph)
        case e.AgentBegan() | e.AgentAnswered() | e.WaitCompleted(kind=WaitKind.AGENT):
            if (difference := _of_agent(run, recorded, graph, book)) is not None:
                raise _Differs(difference)
            fold(run, recorded, graph)
        case _:
            fold(run, recorded, graph)
    if isinstance(recorded.event, e.CheckpointCommitted):
        row = run.checkpoints.pop()
        yield Derived(row.superstep, row.state, row.digest)


def _variables(run: Run, graph: Graph, recorded: RecordedEvent, event: e.StepSucceeded) -> dict[str, Json]:
    values: dict[str, Json] = {"output": event.output}
    call = run.spoken.get(recorded.step or "")
    leaf: LeafNode = graph.leaf(recorded.step or "", None if call is None else call.tool or None)
    own = [wait for wait in run.waits.values() if wait.step_key == recorded.step and not wait.left]
    passed = (WaitKind.APPROVAL, WaitKind.RETRY, WaitKind.PAUSE, WaitKind.SHARED, WaitKind.HOLD, WaitKind.PERMIT)
    ended = [wait for wait in own if wait.kind not in passed and wait.status is WaitState.COMPLETED]
    if ended:
        result = ended[-1].result or {}
        values["signal"] = {"payload": event.output, "by": result.get("by"), "kind": str(ended[-1].kind)}
        if result.get("output") != event.output:
            raise _Differs("has another output than what its wait ended with")
    elif isinstance(leaf, ChildNode):
        values["signal"] = {"payload": event.output, "by": None, "kind": "child"}
    return values


def _of_agent(run: Run, recorded: RecordedEvent, graph: Graph, book: Replay) -> str | None:
    """The difference between an agent's event and what the earlier events give; None if there is none."""
    step, key = recorded.step or "", StepKey.of(recorded.step or "").agent
    node, agent = graph.leaf(key), run.state.agents.get(key)
    if not isinstance(node, AgentNode):
        return "has the event of an agent, but its step is no agent"
    if isinstance(recorded.event, e.AgentBegan):
        seen = seen_by(run, graph, book.constants, key)
        if beginning(node, seen) != replace(recorded.event, sources=None):
            return "began with other words than its expressions give"
        return None if book.origins is None else book.origins.of_agent(run, node, recorded, recorded.event)
    if agent is None:
        return "went on as an agent before it began"
    if isinstance(recorded.event, e.AgentAnswered):
        made = answered(node, agent, run.spoken[key].input or {}, run.steps[step].output)
        return None if made == recorded.event else "was taken apart otherwise than the model's answer says"
    end, result = ahead(node, agent.copy()), getattr(recorded.event, "result", None)
    same = end is not None and end.over and result_of(run, key, end) == result
    return None if same else "ended otherwise than its turns and limits say"


def _same(one: Json, other: Json) -> bool:
    return canonical_bytes(one) == canonical_bytes(other)
