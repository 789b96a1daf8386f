"""The origins of the values that a workflow's steps use, followed exactly along their expressions. Pure.

Every path that an expression reads is an ingredient. Channels, items, and results of steps that call nothing outside
are followed further, so a value has all sources that can have reached it. The run stores only the origins that other
runs report.

The condition of a branch is no ingredient of the values in it. Whatever cannot be followed is ``unknown``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct, field

from connectors.marks import records_of
from connectors.operation import Operation
from core.canonical import Json
from core.identity import Directory, Kind, Standing, principal
from core.origins.expressions import of_template, under
from core.origins.ingredients import Origins, distinct
from core.origins.leaves import pointed
from core.origins.matching import MODEL, PERSON, REQUESTER, UNKNOWN, WORKFLOW
from core.templates import Path, Template
from runtime.engine.book.draft import Draft
from runtime.engine.model.graph import (
    AgentLeaf,
    ChildNode,
    ForeachNode,
    GateNode,
    Graph,
    LeafNode,
    Node,
    OperationNode,
    Scope,
    SignalNode,
    TaskNode,
    WhileNode,
    scopes_of,
)
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import StepRow
from runtime.engine.model.run import AGENT as OF_AGENTS
from runtime.engine.model.run import SUCCEEDED, Run
from runtime.engine.model.workflow import Workflow

# Variables that the engine itself sets.
_OURS = frozenset(
    {"run.id", "run.workflow", "run.version", "run.started_at", "run.checkpoint", "step.id", "wait.token"}
)
_MODELS = "model:"
TOOL, FIELD, LOOKUP = "tool:", "field:", "lookup:"
# The least number of dots in a path that leads into a variable, 1 for others. With fewer it names the whole variable.
_PARTS = {"steps": 3, "state": 2, "signal": 2}
# The values of a channel that has got neither a first value nor a write.
_EMPTY: tuple[Json, ...] = (None, "", 0, [], {})

Traced: TypeAlias = "tuple[tuple[Path, Origins], ...]"


class GraphIndex(Struct, frozen=True):
    """An index of a graph: its nodes by id, and the loops around each node, innermost first."""

    nodes: Mapping[str, Node]
    loops: Mapping[str, tuple[ForeachNode | WhileNode, ...]]

    @classmethod
    def of(cls, graph: Graph) -> GraphIndex:
        """Build the index of a graph."""
        nodes: dict[str, Node] = {}
        loops: dict[str, tuple[ForeachNode | WhileNode, ...]] = {}

        def look(scope: Scope, above: tuple[ForeachNode | WhileNode, ...]) -> None:
            for node in scope.nodes:
                nodes[node.id], loops[node.id] = node, above
                inside = (node, *above) if isinstance(node, ForeachNode | WhileNode) else above
                for inner in scopes_of(node):
                    look(inner, inside)

        look(graph.root, ())
        return cls(nodes, loops)


class Follower(Struct):
    """Follows paths to their sources in one run. ``values`` are the variables that expressions see.

    ``starter`` is the origin of the run's input; "" if another run gave it.
    """

    run: Run
    graph: Graph
    starter: str
    reference: Template | None
    operations: Mapping[str, Operation]
    values: Mapping[str, object]
    around: GraphIndex
    asking: set[str] = field(default_factory=set)

    def template(self, source: object, node: str) -> Traced:
        """The origins of all parts of a template's value, by path. ``node`` is the id of the template's node."""
        if not isinstance(source, Template):
            return (((), [[UNKNOWN]]),)
        made = of_template(source, lambda path: self.path(path, node))
        return tuple((path, self.authored(origins, node)) for path, origins in made)

    def path(self, path: str, node: str) -> Origins:
        """The sources of the value that an expression of this node reads at this path."""
        found, todo, seen = list[list[str]](), [(path, node)], set[tuple[str, str]]()
        while todo:
            here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            for one in self._step(here[0].split("."), here[1]):
                if isinstance(one, tuple):
                    todo.append(one)
                else:
                    found.append(one)
        return distinct(found or [[WORKFLOW]])

    def authored(self, origins: Origins, node: str) -> Origins:
        """Replace ``workflow`` by ``unknown`` for a step that was added to the run: its text is not the author's."""
        if f"added.{node}" not in self.run.state.shaped:
            return origins
        return [[UNKNOWN] if one == [WORKFLOW] else one for one in origins]

    def _step(self, parts: list[str], node: str) -> Iterator[list[str] | tuple[str, str]]:
        head, name = parts[0], parts[1] if len(parts) > 1 else ""
        loops = self.around.loops.get(node, ())
        loop = next((one for one in loops if isinstance(one, ForeachNode) and head in (one.item_name, "item")), None)
        if loop is not None:
            yield from self._ingredients(loop.items, loop.id, tuple(parts[1:]), whole=True)
        elif head == "index":
            for one in (one for one in loops[:1] if isinstance(one, ForeachNode)):
                yield from self._ingredients(one.items, one.id)
            yield [WORKFLOW]
        elif head == "trigger":
            yield from self._handed_down("trigger", tuple(parts[1:]))
        elif head == "state":
            yield from self._channel(name)
        elif head == "steps":
            yield from self._result(name, tuple(parts[3:]), parts[2:3] == ["status"])
        elif head in ("output", "signal"):
            yield from self._result(
                node, tuple(parts[1 if head == "output" else 2 :]), author=parts[:2] == ["signal", "by"]
            )
        elif ".".join(parts) in _OURS:
            yield [WORKFLOW]
        elif parts == ["run", "requested_by"]:
            yield from self._handed_down("trigger", ())
        elif parts == ["run", "reference"]:
            yield from self._named()
        else:
            yield [UNKNOWN]

    def _ingredients(
        self, source: object, node: str, path: Path = (), *, whole: bool = False
    ) -> Iterator[list[str] | tuple[str, str]]:
        """Yield what a template reads for the part at ``path``. ``whole``: the template gives the items of a loop."""
        if not isinstance(source, Template):
            yield [UNKNOWN]
            return
        for place, ingredients in source.ingredients():
            if not whole and not (place[: len(path)] == path or path[: len(place)] == place):
                continue
            plain = whole and len(ingredients) == 1 and not _is_bare(ingredients[0] or "")
            for one in ingredients:
                if one is None:
                    yield self.authored([[WORKFLOW]], node)[0]
                else:
                    yield ".".join((one, *map(str, path))) if plain else one, node

    def _handed_down(self, what: str, path: Path) -> Iterator[list[str]]:
        """The origins of the run's input, or of a channel that is a copy of the parent's."""
        if self.starter and what == "trigger":
            yield [self.starter]
        else:
            yield from under(_read((self.run.origins or {}).get(what)), path) or [[UNKNOWN]]

    def _named(self) -> Iterator[list[str] | tuple[str, str]]:
        """Yield what the run's reference is made from, by the workflow and by steps that may have changed it."""
        yield from self._ingredients(self.reference, "")
        for leaf in self.graph.leaves.values():
            if leaf.reference is not None and self._may_have_written(leaf):
                yield from self._ingredients(leaf.reference, leaf.id)

    def _channel(self, name: str) -> Iterator[list[str] | tuple[str, str]]:
        channel, copied = self.graph.channels.get(name), f"state.{name}"
        if channel is None:
            yield [UNKNOWN]
            return
        if name in self.run.copied:
            yield from self._handed_down(copied, ())
        elif channel.start is not None:
            yield from self._ingredients(channel.start, "")
        elif channel.initial not in _EMPTY:
            yield [WORKFLOW]
        for leaf in self.graph.leaves.values():
            if name in leaf.sets and self._may_have_written(leaf):
                yield from self._ingredients(leaf.sets[name], leaf.id)
        yield from [[UNKNOWN]] if channel.turns else []

    def _may_have_written(self, leaf: LeafNode) -> bool:
        """False if the step has certainly not succeeded yet. In a loop it may have: each round drops the statuses."""
        return bool(self.around.loops.get(leaf.id)) or self.run.state.status.get(leaf.id) == SUCCEEDED

    def _result(
        self, node: str, rest: Path, status: bool = False, *, author: bool = False
    ) -> Iterator[list[str] | tuple[str, str]]:
        leaf = self.around.nodes.get(node)
        match leaf:
            case _ if status:
                yield [WORKFLOW]
            case OperationNode():
                operation = self.operations.get(leaf.operation)
                if operation is None or author:
                    yield [UNKNOWN]
                elif operation.stays_inside:
                    yield from self._ingredients(leaf.inputs, node)
                elif operation.handler.startswith(_MODELS):
                    yield [MODEL]
                else:
                    yield self._of_tool(leaf, operation, rest)
            case TaskNode() | GateNode():
                yield [PERSON]
            case SignalNode():
                yield [f"signal:{leaf.name}"]
            case ChildNode():
                traced = [_read(one) for key, one in self.run.state.origins.items() if StepKey.of(key).own == node]
                for one in traced:
                    yield from under(one, rest) or [[UNKNOWN]]
                if not traced:
                    yield [UNKNOWN]
            case AgentLeaf():
                yield [MODEL]
            case LeafNode():
                yield [WORKFLOW]
            case _:
                yield [UNKNOWN]

    def _of_tool(self, leaf: OperationNode, operation: Operation, rest: Path) -> list[str]:
        """The alternatives for a part of an operation's result."""
        name, pointer = operation.name, "".join(f"/{escaped(part)}" for part in rest)
        found = [f"{TOOL}{name}"]
        if rest:
            found.append(f"{FIELD}{name}#{pointer}")
            records = records_of(operation.output_schema)
            if records is not None and f"{pointer}/".startswith(f"{records}/") and self._looked_up(leaf, records):
                found.append(f"{LOOKUP}{name}#{pointer}")
        return found

    def _looked_up(self, leaf: OperationNode, records: str) -> bool:
        """True if the result is one record, and its query has only the requester's values and the author's words."""
        try:
            there = pointed(plain(self.values[f"steps.{leaf.id}.output"]), records)
        except KeyError:
            return False
        one = isinstance(there, dict) or (isinstance(there, list) and len(there) == 1 and isinstance(there[0], dict))
        if not one or leaf.id in self.asking:
            return False
        self.asking.add(leaf.id)
        try:
            asked = [inner for _, origins in self.template(leaf.inputs, leaf.id) for inner in origins]
        finally:
            self.asking.discard(leaf.id)
        theirs = [REQUESTER in inner for inner in asked]
        return any(theirs) and all(own or inner == [WORKFLOW] for own, inner in zip(theirs, asked, strict=True))


def _is_bare(path: str) -> bool:
    """True if the path names a whole variable: the expression may read any part of it."""
    return path.count(".") < _PARTS.get(path.partition(".")[0], 1)


def plain(value: object) -> Any:
    """A value of an expression, with the type of JSON."""
    return value


def escaped(part: str | int) -> str:
    """One part of a JSON Pointer."""
    return str(part).replace("~", "~0").replace("/", "~1")


def carried(made: Traced) -> list[Json]:
    """Origins in the form in which another run gets them."""
    return [[[*path], listed(origins)] for path, origins in made]


def listed(origins: Origins) -> list[Json]:
    """Origins as plain JSON."""
    return [[*one] for one in origins]


def _read(stored: Any) -> Traced:
    return tuple((tuple(path), [list(one) for one in origins]) for path, origins in stored or ())


def follower_of(
    run: Run, graph: Graph, starter: str, workflow: Workflow | None, values: Mapping[str, object]
) -> Follower:
    """A follower for this run as it is now. Without the workflow, the origins of results are unknown."""
    reference = None if workflow is None else workflow.reference
    operations: Mapping[str, Operation] = {} if workflow is None else workflow.operations
    return Follower(run, graph, starter, reference, operations, values, GraphIndex.of(graph))


# The triggers by which an authenticated person starts a run and gives its input.
_BY_PEOPLE = frozenset({"http", "cli"})
_BY_RUNS = "workflow"
# The trigger of an agent's action over HTTP, and the beginning of the origin of its values: `agent:<account>`.
AGENT = OF_AGENTS


def starter_of(trigger_type: str, requester: str, directory: Directory) -> str:
    """The origin of a run's input; "" if another run has started it, because that run tells the origins itself.

    Input from a service account does not count as given by a person.
    """
    if trigger_type == _BY_RUNS:
        return ""
    if trigger_type == AGENT:
        return f"{AGENT}:{requester}"
    entry = directory.entry(principal(Kind.PERSON, requester)) or directory.entry(requester)
    is_machine = entry is not None and entry.standing is Standing.MACHINE
    return REQUESTER if trigger_type in _BY_PEOPLE and not is_machine else f"trigger:{trigger_type}"


def starters_of(trigger_type: str) -> tuple[str, ...]:
    """All origins that a run's input may have, whatever the directory says."""
    return (*((REQUESTER,) if trigger_type in _BY_PEOPLE else ()), f"trigger:{trigger_type}")


def following(draft: Draft, step: StepRow | None, workflow: Workflow | None) -> Follower:
    """A follower of origins for the expressions of a step; without a step, for those of the run's result."""
    view, key = draft.view, "" if step is None else step.key
    starter = starter_of(view.trigger_type, view.run.requested_by, view.directory)
    return follower_of(draft.run, draft.graph, starter, workflow, draft.variables(key))
