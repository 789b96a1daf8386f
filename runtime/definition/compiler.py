"""Compiling the steps of a workflow into the engine's graph: order, visibility and types, with every fault placed.

An expression sees the steps that are certain to be over before its own: those it needs, directly or not, and those
that the composites around it need. So a forward reference and a race are errors when the document loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from msgspec.structs import replace

from runtime.definition.leaves import Entry, LeafCompiler
from runtime.definition.model import KINDS, StepDocument, WorkflowDocument
from runtime.definition.places import Path, Place, results_of
from runtime.engine.graph import ForeachNode, IfNode, Node, Scope, WhileNode

RUN_VARIABLES: Mapping[str, str] = {
    "trigger": "dyn",
    "run.id": "string",
    "run.workflow": "string",
    "run.version": "int",
    "run.reference": "string",
    "run.requested_by": "string",
}
ITERATIONS_DEFAULT = 1000

_LEAF = frozenset({"set", "reference", "on_failure"})
_WAITS = _LEAF | {"on_timeout"}
# Which keys, besides id and needs, a step of each kind may have.
_OWN: Mapping[str, frozenset[str]] = {
    "do": _WAITS | {"with", "timeout", "on_rejected"},
    "approve": _WAITS | {"on_rejected"},
    "wait": _WAITS | {"timeout"},
    "task": _WAITS | {"timeout"},
    "run": _WAITS | {"with", "timeout", "abandon"},
    "continue_with": _LEAF,
    "if": frozenset({"then", "else"}),
    "foreach": frozenset({"as", "max_parallel", "steps"}),
    "while": frozenset({"max", "steps"}),
}
_FIELDS = {"with": "with_", "else": "else_", "as": "as_"}
_KEYS = sorted(frozenset().union(*_OWN.values()))
# People and expressions refer to these; the others may go without a name.
_NAMED = ("do", "approve", "task", "run")


class GraphCompiler(LeafCompiler):
    """Compiles one document; collects problems instead of stopping at the first."""

    def compile(self, content: WorkflowDocument) -> Scope:
        """The root scope. What is wrong is in ``problems``; the scope is then not to be used."""
        self._channels = frozenset(content.channels)
        variables = {**RUN_VARIABLES, **{f"state.{name}": "dyn" for name in content.channels}}
        return self._scope(content.steps, Place(("steps",), variables))

    def visible_at_end(self, content: WorkflowDocument) -> Mapping[str, str]:
        """What an expression sees once every step of the workflow is over."""
        over = [name for step in content.steps for name in _results(step.id, step)]
        return {**RUN_VARIABLES, **{f"state.{name}": "dyn" for name in content.channels}, **results_of(over)}

    def _scope(self, steps: Sequence[StepDocument], place: Place) -> Scope:
        ids = [self._id(step, (*place.path, number), number) for number, step in enumerate(steps)]
        needs = {
            step_id: self._needs(step, ids, number, (*place.path, number))
            for number, (step_id, step) in enumerate(zip(ids, steps, strict=True))
        }
        numbers = {step_id: number for number, step_id in enumerate(ids)}
        try:
            order = _in_order(ids, needs)
        except CycleError as error:
            circle: list[str] = error.args[1][::-1]
            path = (*place.path, min(numbers[step_id] for step_id in circle), "needs")
            words = f"The steps need each other in a circle: {' → '.join(circle)}."
            self.problem(path, words, "Take one of the needs out.")
            return Scope(())
        nodes = []
        for step_id in order:
            number = numbers[step_id]
            over = [name for need in _needed_by(step_id, needs) for name in _results(need, steps[numbers[need]])]
            inner = replace(place, path=(*place.path, number), variables={**place.variables, **results_of(over)})
            node = self._node(step_id, steps[number], needs[step_id], inner)
            if node is not None:
                nodes.append(node)
            if place.failed is not None:
                self.failed[step_id] = place.failed
        return Scope(tuple(nodes))

    def _id(self, step: StepDocument, path: Path, number: int) -> str:
        kinds = step.kinds()
        if step.id is None and kinds and kinds[0] in _NAMED:
            self.problem(path, "This step has no id.", "Give it one: expressions and people refer to it.")
        name = step.id or "_".join(str(part) for part in path[1:] if part != "steps")
        name = step.id or f"{kinds[0] if kinds else 'step'}_{name}"
        if name in self._paths:
            line, _ = self._document.position(self._paths[name])
            self.problem(path, f"The id {name!r} is taken by the step in line {line}.", "Ids are unique in a workflow.")
            name = f"{name}_{len(self._paths)}"
        self._paths[name] = path
        return name

    def _needs(self, step: StepDocument, ids: Sequence[str], number: int, path: Path) -> tuple[str, ...]:
        if step.needs is None:
            return (ids[number - 1],) if number else ()
        unknown = [need for need in step.needs if need not in ids]
        for need in unknown:
            self.problem((*path, "needs"), f"There is no step {need!r} beside this one.", f"One of {', '.join(ids)}.")
        return tuple(need for need in step.needs if need in ids)

    def _node(self, step_id: str, step: StepDocument, needs: tuple[str, ...], place: Place) -> Node | None:
        kinds = step.kinds()
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none of them"
            self.problem(place.path, f"A step is exactly one of {', '.join(KINDS)}; this one has {found}.")
            return None
        self._refuse_foreign_keys(step, kinds[0], place.path)
        self._index += 1
        entry = Entry(step_id, self._index, needs, step, place)
        match kinds[0]:
            case "if":
                return self._if(entry)
            case "foreach":
                return self._foreach(entry)
            case "while":
                return self._while(entry)
            case kind:
                return self._leaf(entry, kind)

    def _refuse_foreign_keys(self, step: StepDocument, kind: str, path: Path) -> None:
        for key in _KEYS:
            value: Any = getattr(step, _FIELDS.get(key, key))
            if value not in (None, {}) and key not in _OWN[kind]:
                self.problem((*path, key), f"{key!r} does not belong to a step with {kind!r}.")
        if kind == "if" and not step.then:
            self.problem(path, "This condition has no `then`.", "Add the steps that it leads to.")
        if kind in ("foreach", "while") and not step.steps:
            self.problem(path, "This loop has no `steps`.", "Add what is to be done each time.")

    def _if(self, entry: Entry) -> IfNode:
        step, place = entry.step, entry.place
        condition = self.template(place, ("if",), step.if_ or "", "bool")
        then = self._scope(step.then or (), replace(place, path=(*place.path, "then")))
        other = self._scope(step.else_ or (), replace(place, path=(*place.path, "else")))
        return IfNode(entry.id, entry.index, entry.needs, condition, then, other)

    def _foreach(self, entry: Entry) -> ForeachNode | None:
        step, place = entry.step, entry.place
        items = self.template(place, ("foreach",), step.foreach or "", "list")
        name = step.as_ or "item"
        if name != "item" and name in {part.split(".")[0] for part in place.variables}:
            self.problem((*place.path, "as"), f"The name {name!r} is taken.", "Choose another.")
            return None
        variables = {**place.variables, "item": "dyn", "index": "int", name: "dyn"}
        body = self._scope(step.steps or (), replace(place, path=(*place.path, "steps"), variables=variables))
        return ForeachNode(entry.id, entry.index, entry.needs, items, name, step.max_parallel or 1, body)

    def _while(self, entry: Entry) -> WhileNode:
        step, place = entry.step, entry.place
        condition = self.template(place, ("while",), step.while_ or "", "bool")
        variables = {**place.variables, "index": "int"}
        body = self._scope(step.steps or (), replace(place, path=(*place.path, "steps"), variables=variables))
        return WhileNode(entry.id, entry.index, entry.needs, condition, step.max or ITERATIONS_DEFAULT, body)


def _in_order(ids: Sequence[str], needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Every step after what it needs; among what is equally possible the author's order counts.

    So equal documents give equal graphs. ``CycleError`` if steps need each other.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter(needs)
    sorter.prepare()
    numbers = {step_id: number for number, step_id in enumerate(ids)}
    result: list[str] = []
    possible = set(sorter.get_ready())
    while possible:
        chosen = min(possible, key=numbers.__getitem__)
        possible.remove(chosen)
        sorter.done(chosen)
        possible.update(sorter.get_ready())
        result.append(chosen)
    return result


def _needed_by(step_id: str, needs: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The steps that are over before this one begins: those it needs, directly or not."""
    before: set[str] = set()
    pending = list(needs[step_id])
    while pending:
        need = pending.pop()
        if need not in before:
            before.add(need)
            pending.extend(needs[need])
    return before


def _results(step_id: str | None, step: StepDocument) -> list[str]:
    """The ids whose result can be read once ``step`` is over: its own, and those inside its branches."""
    inner = [*(step.then or ()), *(step.else_ or ())]
    own = [step_id] if step_id else []
    return own + [name for child in inner for name in _results(child.id, child)]
