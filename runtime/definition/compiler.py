"""Compiling the steps of a workflow into the kernel's graph: order, visibility and types, with every fault placed.

An expression sees the steps that are certain to be over before its own: those it needs, directly or not, and those
that the composites around it need. So a forward reference and a race are errors when the document loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from connectors.catalog import Catalog
from connectors.operation import Kind, Operation
from core.canonical import Json, JsonObject
from core.documents import Document
from core.errors import ExpressionError, InputError, Problem
from core.expressions import WORKFLOW_LIMITS, Environment
from core.templates import Template, TemplateError, ValueTemplate, compile_template, compile_value
from runtime.definition.model import KINDS, GateDocument, StepDocument, WorkflowDocument
from runtime.definition.order import Circle, in_order, needed_by, results
from runtime.kernel.graph import ForeachNode, GateNode, IfNode, Leaf, Node, OperationNode, Scope

RUN_VARIABLES: Mapping[str, str] = {
    "trigger": "dyn",
    "run.id": "string",
    "run.workflow": "string",
    "run.version": "int",
    "run.reference": "string",
    "run.requested_by": "string",
}
GATE_EXPIRES_SECONDS = 24 * 3600

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class _Place:
    """Where a step stands: its path in the document and the variables that are visible there."""

    path: Path
    variables: Mapping[str, str]


class GraphCompiler:
    """Compiles one document; collects problems instead of stopping at the first."""

    def __init__(self, document: Document, catalog: Catalog) -> None:
        self._document = document
        self._catalog = catalog
        self._channels: frozenset[str] = frozenset()
        self._index = 0
        self._paths: dict[str, Path] = {}
        self.problems: list[Problem] = []
        self.leaves: dict[str, Leaf] = {}
        self.operations: dict[str, Operation] = {}
        self.read: set[str] = set()

    def compile(self, content: WorkflowDocument) -> Scope:
        """The root scope. What is wrong is in ``problems``; the scope is then not to be used."""
        self._channels = frozenset(content.channels)
        variables = {**RUN_VARIABLES, **{f"state.{name}": "dyn" for name in content.channels}}
        return self._scope(content.steps, _Place(("steps",), variables))

    def _problem(self, path: Path, message: str, remedy: str = "") -> None:
        self.problems.append(self._document.problem(path, message, remedy))

    def _scope(self, steps: Sequence[StepDocument], place: _Place) -> Scope:
        ids = [self._id(step, (*place.path, number), number) for number, step in enumerate(steps)]
        needs = {
            step_id: self._needs(step, ids, number, (*place.path, number))
            for number, (step_id, step) in enumerate(zip(ids, steps, strict=True))
        }
        numbers = {step_id: number for number, step_id in enumerate(ids)}
        try:
            order = in_order(ids, needs)
        except Circle as circle:
            path = (*place.path, min(numbers[step_id] for step_id in circle.steps), "needs")
            self._problem(path, f"The steps need each other in a circle: {circle}.", "Take one of the needs out.")
            return Scope(())
        nodes = []
        for step_id in order:
            number = numbers[step_id]
            over = [name for need in needed_by(step_id, needs) for name in results(need, steps[numbers[need]])]
            inner = _Place((*place.path, number), {**place.variables, **_result_variables(over)})
            node = self._node(step_id, steps[number], needs[step_id], inner)
            if node is not None:
                nodes.append(node)
        return Scope(tuple(nodes))

    def _id(self, step: StepDocument, path: Path, number: int) -> str:
        kinds = step.kinds()
        if step.id is None and kinds in (["do"], ["approve"]):
            self._problem(path, "This step has no id.", "Give it one: expressions and people refer to it.")
        name = step.id or "_".join(str(part) for part in path[1:] if part not in ("steps", "then", "else"))
        name = step.id or f"{kinds[0] if kinds else 'step'}_{name}"
        if name in self._paths:
            line, _ = self._document.position(self._paths[name])
            self._problem(
                path, f"The id {name!r} is taken by the step in line {line}.", "Ids are unique in a workflow."
            )
            name = f"{name}_{len(self._paths)}"
        self._paths[name] = path
        return name

    def _needs(self, step: StepDocument, ids: Sequence[str], number: int, path: Path) -> tuple[str, ...]:
        if step.needs is None:
            return (ids[number - 1],) if number else ()
        unknown = [need for need in step.needs if need not in ids]
        for need in unknown:
            self._problem((*path, "needs"), f"There is no step {need!r} beside this one.", f"One of {', '.join(ids)}.")
        return tuple(need for need in step.needs if need in ids)

    def _node(self, step_id: str, step: StepDocument, needs: tuple[str, ...], place: _Place) -> Node | None:
        kinds = step.kinds()
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none of them"
            self._problem(place.path, f"A step is exactly one of {', '.join(KINDS)}; this one has {found}.")
            return None
        self._refuse_foreign_keys(step, kinds[0], place.path)
        self._index += 1
        index = self._index
        match kinds[0]:
            case "do":
                return self._operation(step_id, index, step, needs, place)
            case "approve":
                return self._gate(step_id, index, step, needs, place)
            case "if":
                condition = self._template(place, ("if",), step.if_ or "", "bool")
                then = self._scope(step.then or (), replace(place, path=(*place.path, "then")))
                other = self._scope(step.else_ or (), replace(place, path=(*place.path, "else")))
                return IfNode(step_id, index, needs, condition, then, other) if condition else None
            case _:
                return self._loop(step_id, index, step, needs, place)

    def _refuse_foreign_keys(self, step: StepDocument, kind: str, path: Path) -> None:
        own = {
            "do": {"with", "set"},
            "if": {"then", "else"},
            "foreach": {"as", "max_parallel", "steps"},
            "approve": {"set"},
        }
        given = {"with": step.with_, "set": step.set, "then": step.then, "else": step.else_, "as": step.as_,
                 "max_parallel": step.max_parallel, "steps": step.steps}  # fmt: skip
        for key, value in given.items():
            if value not in (None, {}) and key not in own[kind]:
                self._problem((*path, key), f"{key!r} does not belong to a step with {kind!r}.")
        if kind == "if" and not step.then:
            self._problem(path, "This condition has no `then`.", "Add the steps that it leads to.")
        if kind == "foreach" and not step.steps:
            self._problem(path, "This loop has no `steps`.", "Add what is to be done for each item.")

    def _operation(
        self, step_id: str, index: int, step: StepDocument, needs: tuple[str, ...], place: _Place
    ) -> Node | None:
        try:
            operation = self._catalog.get(step.do or "")
        except InputError as error:
            self._problem((*place.path, "do"), error.message, error.remedy)
            return None
        if operation.kind is not Kind.SYNC:
            self._problem(
                (*place.path, "do"), f"{operation.name} is durable; this release runs operations of kind sync."
            )
            return None
        self.operations[operation.name] = operation
        inputs = self._value(place, ("with",), step.with_)
        self._check_names(operation, step.with_, place)
        sets = self._sets(step, place)
        if inputs is None or sets is None:
            return None
        node = OperationNode(step_id, index, needs, operation.name, inputs, sets)
        self.leaves[step_id] = node
        return node

    def _check_names(self, operation: Operation, given: Mapping[str, object], place: _Place) -> None:
        """Names of inputs are known now; their values only when they are rendered."""
        properties = operation.input_schema.get("properties", {})
        if operation.input_schema.get("additionalProperties", True) is False:
            for name in given:
                if name not in properties:
                    known = ", ".join(sorted(properties))
                    self._problem(
                        (*place.path, "with", name), f"{operation.name} takes no {name!r}.", f"It takes {known}."
                    )
        for name in operation.input_schema.get("required", ()):
            if name not in given:
                self._problem(
                    (*place.path, "do"), f"{operation.name} needs the input {name!r}.", "Add it under `with`."
                )

    def _sets(self, step: StepDocument, place: _Place) -> dict[str, ValueTemplate] | None:
        result = {}
        inner = replace(place, variables={**place.variables, "output": "dyn"})
        for name, value in step.set.items():
            if name not in self._channels:
                known = ", ".join(sorted(self._channels)) or "none"
                self._problem((*place.path, "set", name), f"There is no channel {name!r}.", f"Declared are: {known}.")
                continue
            compiled = self._value(inner, ("set", name), value)
            if compiled is None:
                return None
            result[name] = compiled
        return result

    def _gate(self, step_id: str, index: int, step: StepDocument, needs: tuple[str, ...], place: _Place) -> Node | None:
        gate = step.approve
        assert gate is not None
        summary = self._template(place, ("approve", "summary"), gate.summary, None)
        if summary is None:
            return None
        node = GateNode(step_id, index, needs, summary, _gate_terms(gate))
        self.leaves[step_id] = node
        return node

    def _loop(self, step_id: str, index: int, step: StepDocument, needs: tuple[str, ...], place: _Place) -> Node | None:
        items = self._template(place, ("foreach",), step.foreach or "", "list")
        name = step.as_ or "item"
        if name != "item" and name in {part.split(".")[0] for part in place.variables}:
            self._problem((*place.path, "as"), f"The name {name!r} is taken.", "Choose another.")
            return None
        variables = {**place.variables, "item": "dyn", "index": "int", name: "dyn"}
        body = self._scope(step.steps or (), _Place((*place.path, "steps"), variables))
        if items is None:
            return None
        return ForeachNode(step_id, index, needs, items, name, step.max_parallel or 1, body)

    def _template(self, place: _Place, key: tuple[str, ...], text: str, want: str | None) -> Template | None:
        try:
            compiled = compile_template(Environment(place.variables, WORKFLOW_LIMITS), text, want)
        except ExpressionError as error:
            self._problem((*place.path, *key), error.message, error.remedy)
            return None
        self._note(compiled.references)
        return compiled

    def _value(self, place: _Place, key: tuple[str, ...], value: Json) -> ValueTemplate | None:
        try:
            compiled = compile_value(Environment(place.variables, WORKFLOW_LIMITS), value)
        except TemplateError as error:
            self._problem((*place.path, *key, *error.path), error.message, error.remedy)
            return None
        self._note(compiled.references)
        return compiled

    def _note(self, references: frozenset[str]) -> None:
        self.read.update(
            name.split(".")[1] for name in references if name.startswith("steps.") and name.endswith(".output")
        )


def _result_variables(names: Sequence[str]) -> dict[str, str]:
    outputs = {f"steps.{name}.output": "dyn" for name in names}
    return {**outputs, **{f"steps.{name}.status": "string" for name in names}}


def _gate_terms(gate: GateDocument) -> JsonObject:
    """The JSON form of the approval terms that a gate asks for; see runtime.terms."""
    expires = int(gate.expires.total_seconds()) if gate.expires else GATE_EXPIRES_SECONDS
    return {
        "tier": gate.tier,
        "approvers": [{"group": gate.approvers.group, "of": gate.quorum, "source": "group"}],
        "two_person": gate.two_person,
        "allow_requester": False,
        "expires_seconds": expires,
        "remind_seconds": [int(remind.total_seconds()) for remind in gate.remind],
        "escalate": None,
    }
