"""Compiles the steps of a workflow into the engine's graph: checks order, visible variables and types of each.

An expression sees the steps that are certain to be over before its own step: those that the step needs, directly or
not, and those that the composites around it need. So a forward reference and a race are errors when the document loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from connectors.naming import within
from core.canonical import Json
from core.cel_ast import ITEM
from core.errors import nearest
from core.templates import Template
from runtime.definition.agents import AgentCompiler
from runtime.definition.leaves import STEP_ID, Entry, Path, StepScope, visible_with
from runtime.definition.model import KINDS, SET, StepDocument, WorkflowDocument
from runtime.engine.model.graph import ForeachNode, IfNode, LeafNode, Node, Scope, WhileNode
from runtime.engine.model.run import ACTIONS

RUN_VARIABLES = {
    "trigger": "dyn",
    "run.id": "string",
    "run.workflow": "string",
    "run.version": "int",
    "run.reference": "string",
    "run.requested_by": "string",
    "run.started_at": "timestamp",
}
_CHECKPOINT = {"run.checkpoint": "int"}
ITERATIONS_DEFAULT = 1000

_LEAF = frozenset({"set", "reference", "on_failure"})
_WAITS = _LEAF | {"on_timeout"}
# The keys, besides id and needs, that a step of each kind may have.
_OWN: Mapping[str, frozenset[str]] = {
    "do": _WAITS | {"title", "with", "timeout", "on_rejected"},
    "approve": _WAITS | {"title", "on_rejected"},
    "wait": _WAITS | {"timeout"},
    "task": _WAITS | {"timeout"},
    "run": _WAITS | {"with", "timeout", "abandon", "inherit"},
    "continue_with": _LEAF,
    "agent": _WAITS | {"on_rejected", "timeout"},
    SET: frozenset({"set", "reference", "on_failure"}),
    "if": frozenset({"then", "else"}),
    "foreach": frozenset({"as", "max_parallel", "steps"}),
    "while": frozenset({"max", "steps"}),
}
_FIELDS = {"with": "with_", "else": "else_", "as": "as_"}
_KEYS = sorted(frozenset().union(*_OWN.values()))
# The kinds that need an id, because people and expressions refer to them.
_NAMED = ("do", "approve", "task", "run", "agent")


def constants_of(
    trigger: object,
    run_id: UUID,
    workflow: str,
    version: int,
    reference: str | None,
    requested_by: str | None,
    started_at: datetime,
) -> dict[str, object]:
    """The values of ``RUN_VARIABLES``: the facts about a run that expressions see and that never change.

    ``started_at`` is the time of the book's first line.
    """
    values = (trigger, str(run_id), workflow, version, reference, requested_by, started_at)
    return dict(zip(RUN_VARIABLES, values, strict=True))


class GraphCompiler(AgentCompiler):
    """Compiles one document; collects problems instead of stopping at the first."""

    def compile(self, content: WorkflowDocument) -> Scope:
        """Compile the root scope. The result must not be used if there are ``problems``."""
        self._channels = frozenset(content.channels)
        self.presents = content.workflow.startswith(ACTIONS)
        return self._scope(content.steps, StepScope(("steps",), _visible(content)))

    def at_end(self, content: WorkflowDocument) -> StepScope:
        """The variables that an expression sees once every step of the workflow is over."""
        variables = _visible(content)
        for step in content.steps:
            variables |= _results(step.id, step)
        return StepScope((), variables)

    def _scope(self, steps: Sequence[StepDocument], scope: StepScope) -> Scope:
        ids = [self._id(step, (*scope.path, number), number) for number, step in enumerate(steps)]
        needs = {
            step_id: self._needs(step, ids, number, (*scope.path, number))
            for number, (step_id, step) in enumerate(zip(ids, steps, strict=True))
        }
        numbers = {step_id: number for number, step_id in enumerate(ids)}
        try:
            order = _in_order(numbers, needs)
        except CycleError as error:
            circle: list[str] = error.args[1][::-1]
            path = (*scope.path, min(numbers[step_id] for step_id in circle), "needs")
            words = f"The steps need each other in a circle: {' → '.join(circle)}."
            self.problem(path, words, "Take one of the needs out.")
            return Scope(())
        nodes = []
        over: dict[str, dict[str, str]] = {}  # readable once a step is over: its results, and those before it
        for step_id in order:
            number, before = numbers[step_id], dict[str, str]()
            for need in needs[step_id]:
                before |= over[need]
            over[step_id] = before | _results(step_id, steps[number])
            visible = visible_with(scope.variables | before, {STEP_ID: "string"})
            inner = replace(scope, path=(*scope.path, number), variables=visible)
            node = self._node(step_id, steps[number], needs[step_id], inner)
            if node is not None:
                nodes.append(node)
            if scope.failed is not None:
                self.failed[step_id] = scope.failed
        return Scope(tuple(nodes))

    def _id(self, step: StepDocument, path: Path, number: int) -> str:
        kinds = step.kinds()
        if step.id is None and kinds and kinds[0] in _NAMED:
            self.problem(path, "This step has no id.", "Give it one: expressions and people refer to it.")
        path_words = "_".join(str(part) for part in path[1:] if part != "steps")
        name = step.id or f"{kinds[0] if kinds else 'step'}_{path_words}"
        if name in self._paths:
            line, _ = self._document.position(self._paths[name])
            self.problem(path, f"The id {name!r} is taken by the step in line {line}.", "Ids are unique in a workflow.")
            name = f"{name}_{len(self._paths)}"
        self._paths[name] = path
        return name

    def _needs(self, step: StepDocument, ids: Sequence[str], number: int, path: Path) -> tuple[str, ...]:
        if step.needs is None:
            return (ids[number - 1],) if number else ()
        for need in [need for need in step.needs if need not in ids]:
            self.problem(
                (*path, "needs"), f"There is no step {need!r} beside this one.", nearest(need, ids, "There are")
            )
        return tuple(need for need in step.needs if need in ids)

    def _node(self, step_id: str, step: StepDocument, needs: tuple[str, ...], scope: StepScope) -> Node | None:
        kinds = step.kinds()
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none of them"
            words = f"A step is exactly one of {', '.join(KINDS)}; this one has {found}."
            self.problem(scope.path, words, "A step with `set` or `reference` alone is possible, too.")
            return None
        self._refuse_foreign_keys(step, kinds[0], scope.path)
        self._index += 1
        entry = Entry(step_id, self._index, needs, step, scope)
        compilers: Mapping[str, Callable[[Entry], Node | None]] = {
            "do": self._operation,
            "if": self._if,
            "foreach": self._foreach,
            "while": self._while,
            "approve": self._gate,
            "wait": self._wait,
            "task": self._task,
            "run": self._child,
            "continue_with": self._continue,
            "agent": self._agent,
            SET: self._set,
        }
        compiled = compilers[kinds[0]](entry)
        if isinstance(compiled, LeafNode):
            self.leaves[step_id] = compiled
        return compiled

    def _refuse_foreign_keys(self, step: StepDocument, kind: str, path: Path) -> None:
        for key in _KEYS:
            value: Any = getattr(step, _FIELDS.get(key, key))
            if value not in (None, {}, ()) and key not in _OWN[kind]:
                self.problem((*path, key), f"{key!r} does not belong to a step with {kind!r}.")
        if kind == "if" and not step.then:
            self.problem(path, "This condition has no `then`.", "Add the steps that it leads to.")
        if kind in ("foreach", "while") and not step.steps:
            self.problem(path, "This loop has no `steps`.", "Add what is to be done each time.")

    def _if(self, entry: Entry) -> IfNode:
        condition = self.template(entry.scope, ("if",), entry.step.if_ or "", "bool")
        then, other = self._inside(entry, "then", entry.step.then), self._inside(entry, "else", entry.step.else_)
        return IfNode(entry.id, entry.index, entry.needs, condition, then, other)

    def _foreach(self, entry: Entry) -> ForeachNode | None:
        step, scope = entry.step, entry.scope
        items = self.template(scope, ("foreach",), step.foreach or "", "list")
        name = step.as_ or "item"
        visible = {part: kind for part, kind in scope.variables.items() if name != "step" or part != STEP_ID}
        if name != "item" and name in {part.split(".")[0] for part in visible}:
            self.problem((*scope.path, "as"), f"The name {name!r} is taken.", "Choose another.")
            return None
        entry = replace(entry, scope=replace(scope, variables=visible))
        around = dict(self.schemas)
        self.schemas |= self._items(items, name)
        body = self._inside(entry, "steps", step.steps, {"item": "dyn", "index": "int", name: "dyn"})
        self.schemas = around
        return ForeachNode(entry.id, entry.index, entry.needs, items, name, step.max_parallel or 1, body)

    def _items(self, items: Template, name: str) -> dict[str, Json]:
        """The schemas of the loop's variables, if the list is one place of something that is known."""
        place, schema = items.one_place if self.typed else None, dict[str, Any]()
        if place is not None and place[0] in self.schemas:
            schema = within(self.schemas[place[0]], (*place[1], ITEM))
        return {"item": schema, name: schema}

    def _while(self, entry: Entry) -> WhileNode:
        condition = self.template(entry.scope, ("while",), entry.step.while_ or "", "bool")
        body = self._inside(entry, "steps", entry.step.steps, {"index": "int"})
        return WhileNode(entry.id, entry.index, entry.needs, condition, entry.step.max or ITERATIONS_DEFAULT, body)

    def _inside(
        self, entry: Entry, key: str, steps: Sequence[StepDocument] | None, sees: dict[str, str] | None = None
    ) -> Scope:
        """The scope under this key; ``sees`` are the additional variables that its steps see."""
        inner = replace(entry.scope, path=(*entry.scope.path, key), variables=entry.scope.variables | (sees or {}))
        return self._scope(steps or (), inner)


def _in_order(numbers: Mapping[str, int], needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Order the steps: each comes after the steps that it needs; otherwise the author's order is kept.

    So equal documents give equal graphs. ``CycleError`` if steps need each other.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter(needs)
    sorter.prepare()
    result, possible = [], set(sorter.get_ready())
    while possible:
        chosen = min(possible, key=numbers.__getitem__)
        possible.remove(chosen)
        sorter.done(chosen)
        possible.update(sorter.get_ready())
        result.append(chosen)
    return result


def _visible(content: WorkflowDocument) -> dict[str, str]:
    """The variables that every expression of a workflow sees."""
    return RUN_VARIABLES | _CHECKPOINT | {f"state.{name}": "dyn" for name in content.channels}


def _results(step_id: str | None, step: StepDocument) -> dict[str, str]:
    """The results that can be read once ``step`` is over: its own result, and those inside its branches."""
    found = {f"steps.{step_id}.output": "dyn", f"steps.{step_id}.status": "string"} if step_id else {}
    for child in (*(step.then or ()), *(step.else_ or ())):
        found |= _results(child.id, child)
    return found
