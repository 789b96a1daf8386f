"""Compiling leaves: what calls, asks, waits or starts something, with what it writes and what is done if it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from approvals.forms import check_form
from connectors.catalog import Catalog
from connectors.operation import Kind, Operation
from core.canonical import Json, JsonObject
from core.documents import Document
from core.errors import InputError
from core.templates import Template
from runtime.definition.model import ContinueDocument, EscalationDocument, GateDocument, StepDocument
from runtime.definition.places import ERROR_VARIABLES, Compiling, Path, Place
from runtime.engine.graph import (
    Branch,
    ChildNode,
    ContinueNode,
    GateNode,
    Leaf,
    OperationNode,
    Scope,
    SignalNode,
    TaskNode,
    TimerNode,
)

GATE_EXPIRES_SECONDS = 24 * 3600
ESCALATION_EXPIRES_SECONDS = 7 * 24 * 3600


class Entry(Struct, frozen=True):
    """One step to be compiled: its id, its number in the graph, what it needs, its document and its place."""

    id: str
    index: int
    needs: tuple[str, ...]
    step: StepDocument
    place: Place


class LeafCompiler(Compiling):
    """Compiles leaves; the scopes of their branches are compiled by ``_scope``, which the graph's compiler has."""

    def __init__(self, document: Document, catalog: Catalog) -> None:
        super().__init__(document)
        self._catalog = catalog
        self._channels: frozenset[str] = frozenset()
        self._index = 0
        self._paths: dict[str, Path] = {}
        self.leaves: dict[str, Leaf] = {}
        self.operations: dict[str, Operation] = {}

    def _scope(self, steps: Sequence[StepDocument], place: Place) -> Scope:
        raise TypeError("the graph's compiler compiles scopes")

    def _leaf(self, entry: Entry, kind: str) -> Leaf | None:
        compiled = {
            "do": self._operation,
            "approve": self._gate,
            "wait": self._wait,
            "task": self._task,
            "run": self._child,
            "continue_with": self._continue,
        }[kind](entry)
        if compiled is not None:
            self.leaves[entry.id] = compiled
        return compiled

    # -- what every leaf has -----------------------------------------------------------------------------------------

    def _common(self, entry: Entry, *, sees: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The fields of ``LeafNode``; ``sees`` are the variables that its result adds."""
        step, place = entry.step, entry.place
        inner = replace(place, variables={**place.variables, "output": "dyn", **(sees or {})})
        reference = None if step.reference is None else self.template(inner, ("reference",), step.reference)
        return {
            "id": entry.id,
            "index": entry.index,
            "needs": entry.needs,
            "sets": self._sets(step, inner),
            "reference": reference,
            "branches": self._branches(entry),
        }

    def _sets(self, step: StepDocument, place: Place) -> dict[str, Template]:
        result = {}
        for name, value in step.set.items():
            if name not in self._channels:
                known = ", ".join(sorted(self._channels)) or "none"
                self.problem((*place.path, "set", name), f"There is no channel {name!r}.", f"Declared are: {known}.")
                continue
            result[name] = self.value(place, ("set", name), value)
        return result

    def _branches(self, entry: Entry) -> dict[Branch, Scope]:
        step, found = entry.step, {}
        variables = {**entry.place.variables, **ERROR_VARIABLES}
        for branch in Branch:
            content = getattr(step, branch)
            if content is None:
                continue
            place = Place((*entry.place.path, str(branch)), variables, entry.id)
            if isinstance(content, EscalationDocument):
                found[branch] = self._escalation(entry, content, place)
            else:
                found[branch] = self._scope(content, place)
        return found

    def _escalation(self, entry: Entry, content: EscalationDocument, place: Place) -> Scope:
        """Ask a group whether to go on without what took too long: the gate that an author could have written."""
        nodes: list[Leaf] = []
        if content.start is not None:
            nodes.append(
                self._started(self._added(f"{entry.id}_escalation_start", (), place), content.start, ("start",))
            )
        summary = f"{entry.id} of ${{{{ run.workflow }}}} for ${{{{ run.reference }}}} has had no answer in time. "
        compiled = self.template(place, (), summary + "Go on without it?")
        expires = int(content.expires.total_seconds()) if content.expires else ESCALATION_EXPIRES_SECONDS
        added = self._added(f"{entry.id}_escalation", tuple(node.id for node in nodes), place)
        terms = terms_json(content.escalate, expires)
        nodes.append(GateNode(id=added.id, index=added.index, needs=added.needs, summary=compiled, terms=terms))
        for node in nodes:
            self.leaves[node.id] = node
            self.failed[node.id] = entry.id
        return Scope(tuple(nodes))

    def _added(self, name: str, needs: tuple[str, ...], place: Place) -> Entry:
        if name in self._paths:
            self.problem(place.path, f"The escalation needs the id {name!r}, which is taken.", "Rename that step.")
        self._paths[name] = place.path
        self._index += 1
        return Entry(name, self._index, needs, StepDocument(), place)

    # -- the kinds ---------------------------------------------------------------------------------------------------

    def _operation(self, entry: Entry) -> OperationNode | None:
        step, place = entry.step, entry.place
        try:
            operation = self._catalog.get(step.do or "")
        except InputError as error:
            self.problem((*place.path, "do"), error.message, error.remedy)
            return None
        durable = operation.kind is Kind.DURABLE
        if step.timeout is not None and not durable:
            remedy = "Take it out: its declaration bounds the call."
            self.problem((*place.path, "timeout"), f"{operation.name} answers within its call.", remedy)
        self.operations[operation.name] = operation
        inputs = self.value(place, ("with",), step.with_)
        self._check_names(operation, step.with_, place)
        common = self._common(entry, sees={"signal": "dyn"} if durable else None)
        return OperationNode(**common, operation=operation.name, inputs=inputs, timeout=step.timeout)

    def _check_names(self, operation: Operation, given: Mapping[str, object], place: Place) -> None:
        """Names of inputs are known now; their values only when they are rendered."""
        properties = operation.input_schema.get("properties", {})
        if operation.input_schema.get("additionalProperties", True) is False:
            for name in given:
                if name not in properties:
                    known = ", ".join(sorted(properties))
                    self.problem(
                        (*place.path, "with", name), f"{operation.name} takes no {name!r}.", f"It takes {known}."
                    )
        for name in operation.input_schema.get("required", ()):
            if name not in given:
                self.problem((*place.path, "do"), f"{operation.name} needs the input {name!r}.", "Add it under `with`.")

    def _gate(self, entry: Entry) -> GateNode:
        gate = entry.step.approve
        assert gate is not None
        summary = self.template(entry.place, ("approve", "summary"), gate.summary)
        return GateNode(**self._common(entry), summary=summary, terms=gate_terms(gate))

    def _wait(self, entry: Entry) -> TimerNode | SignalNode | None:
        wait, place = entry.step.wait, entry.place
        assert wait is not None
        given = [name for name in ("for_", "until", "signal") if getattr(wait, name) is not None]
        if len(given) != 1:
            self.problem((*place.path, "wait"), "A wait is exactly one of for, until, signal.")
            return None
        common = self._common(entry, sees={"signal": "dyn"})
        if wait.signal is None:
            for name, value in (("timeout", entry.step.timeout), ("correlate", wait.correlate)):
                if value is not None:
                    path = (*place.path, name) if name == "timeout" else (*place.path, "wait", name)
                    self.problem(path, f"{name!r} belongs to a wait for a signal.")
            until = None if wait.until is None else self.template(place, ("wait", "until"), wait.until)
            return TimerNode(**common, span=wait.for_, until=until)
        correlate = self.template(place, ("wait", "correlate"), wait.correlate or "${{ run.reference }}")
        return SignalNode(**common, name=wait.signal, correlate=correlate, timeout=entry.step.timeout)

    def _task(self, entry: Entry) -> TaskNode:
        task, place = entry.step.task, entry.place
        assert task is not None
        for problem in check_form(task.form):
            self.problem((*place.path, "task", "form", *problem.path), problem.message, problem.remedy)
        title, text = self.template(place, ("task", "title"), task.title), task.description
        return TaskNode(
            title=title,
            description=self.template(place, ("task", "description"), text) if text else None,
            **self._common(entry, sees={"signal": "dyn"}),
            form=task.form,
            group=task.assign.group,
            timeout=entry.step.timeout,
        )

    def _child(self, entry: Entry) -> ChildNode:
        step = entry.step
        name, version = _named(step.run or "")
        return ChildNode(
            workflow=name,
            version=version,
            inputs=self.value(entry.place, ("with",), step.with_),
            timeout=step.timeout,
            abandons=bool(step.abandon),
            **self._common(entry, sees={"signal": "dyn"}),
        )

    def _continue(self, entry: Entry) -> ContinueNode:
        content = entry.step.continue_with
        assert content is not None
        return self._started(entry, content, ("continue_with",))

    def _started(self, entry: Entry, content: ContinueDocument, key: tuple[str, ...]) -> ContinueNode:
        inputs = self.value(entry.place, (*key, "with"), content.with_)
        name, version = _named(content.workflow)
        return ContinueNode(**self._common(entry), workflow=name, version=version, inputs=inputs)


def _named(text: str) -> tuple[str, int | None]:
    name, _, version = text.partition("@")
    return name, int(version) if version else None


def terms_json(group: str, expires_seconds: int, **changes: Json) -> JsonObject:
    """The JSON form of approvals.model.Terms for one group."""
    return {
        "tier": "medium",
        "approvers": [{"group": group, "of": 1, "source": "group"}],
        "two_person": False,
        "allow_requester": False,
        "expires_seconds": expires_seconds,
        "remind_seconds": [],
        "escalate": None,
        **changes,
    }


def gate_terms(gate: GateDocument) -> JsonObject:
    """The same for a gate."""
    expires = int(gate.expires.total_seconds()) if gate.expires else GATE_EXPIRES_SECONDS
    return terms_json(
        gate.approvers.group,
        expires,
        tier=gate.tier,
        approvers=[{"group": gate.approvers.group, "of": gate.quorum, "source": "group"}],
        two_person=gate.two_person,
        remind_seconds=[int(remind.total_seconds()) for remind in gate.remind],
    )
