"""Compiles leaves: steps that call, ask, wait or start something, with their writes and their branches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from approvals.forms import check_form
from connectors import display
from connectors.catalog import Catalog
from connectors.languages import InputLanguages
from connectors.masking import credentials_of
from connectors.naming import misnamed
from connectors.operation import Kind, Operation, text_parts
from connectors.texts import unfilled
from core.canonical import Json
from core.documents import Document
from core.errors import ExpressionError, InputError, Problem, nearest
from core.expressions import WORKFLOW_LIMITS, Environment, environment_of
from core.present import Present
from core.templates import Added, Languages, Template, TemplateError, compile_template, compile_value
from core.terms import GroupQuorum, Terms, Tier
from policy.evaluate import terms_of
from policy.load import late_times
from policy.model import Approver, RuleApprover, RuleDocument
from runtime.definition.model import ContinueDocument, EscalationDocument, GateDocument, HoldDocument, StepDocument
from runtime.engine.model import graph
from runtime.engine.model.graph import HANDED_OUT, Branch, Leaf, Scope

ESCALATION_EXPIRES_SECONDS = 7 * 24 * 3600
_TOKEN_REMEDY = f"`{HANDED_OUT}` is visible in the `with` of a durable operation only."
_ERROR_VARIABLES = dict.fromkeys(("error.class", "error.code", "error.message", "error.step"), "string")
# A placeholder for a template with a fault. A document with problems is refused, so this is never rendered.
_NOTHING = compile_value(Environment({}, WORKFLOW_LIMITS), None)

Path: TypeAlias = tuple[str | int, ...]


class StepScope(Struct, frozen=True):
    """A step's path in the document, and the variables that are visible there.

    ``failed`` is the leaf whose failure the step handles, if the step is in a branch.
    """

    path: Path
    variables: dict[str, str]
    failed: str | None = None


class Entry(Struct, frozen=True):
    """One step to be compiled: its id, its number in the graph, what it needs, its document and its scope."""

    id: str
    index: int
    needs: tuple[str, ...]
    step: StepDocument
    scope: StepScope


class LeafCompiler(ABC):
    """Compiles the leaves of one document; collects problems instead of stopping at the first.

    ``read`` collects the ids whose output some expression reads, ``functions`` the functions that expressions use,
    ``failed`` the leaf whose failure each step in a branch handles. ``typed``: member names are checked against the
    schemas of outputs and trigger. ``children`` are the result schemas of other workflows, by the names that steps use.
    """

    def __init__(
        self,
        document: Document,
        catalog: Catalog,
        *,
        typed: bool = False,
        children: Mapping[str, Json] = MappingProxyType({}),
    ) -> None:
        self._document = document
        self._children = children
        self.typed = typed
        self._catalog = catalog
        self._channels: frozenset[str] = frozenset()
        self._index = 0
        self._paths: dict[str, Path] = {}
        self.problems: list[Problem] = []
        self.read: set[str] = set()
        self.functions: frozenset[str] = frozenset()
        self.copies = False
        self.failed: dict[str, str] = {}
        self.leaves: dict[str, Leaf] = {}
        # The known schemas of variables; names in expressions are looked up in them.
        self.schemas: dict[str, Json] = {}
        self.operations: dict[str, Operation] = {}
        # In the workflows of agents' actions, an input that was not given is left out, so one text fits all inputs.
        self.presents = False

    @abstractmethod
    def _scope(self, steps: Sequence[StepDocument], scope: StepScope) -> Scope:
        """The scope of a branch: steps of every kind."""

    def problem(self, path: Path, message: str, remedy: str = "") -> None:
        """Note a fault at this place."""
        self.problems.append(self._document.problem(path, message, remedy))

    def template(self, scope: StepScope, key: Path, text: str, want: str | None = None) -> Template:
        """Compile a text with expressions. A fault is noted, and an empty template stands for the text."""
        return self._compiled(scope, key, partial(compile_template, text=text, want=want))

    def value(self, scope: StepScope, key: Path, value: Json, languages: Languages | None = None) -> Template:
        """Compile a nested value with expressions; faults as for ``template``, languages as for ``compile_value``."""
        return self._compiled(scope, key, partial(compile_value, value=value, languages=languages))

    def _compiled(self, scope: StepScope, key: Path, compiled_in: Callable[[Environment], Template]) -> Template:
        try:
            template = compiled(compiled_in, scope.variables)
        except ExpressionError as error:
            inside = error.path if isinstance(error, TemplateError) else ()
            remedy = _TOKEN_REMEDY if f"'{HANDED_OUT}'" in error.message else error.remedy
            self.problem((*scope.path, *key, *inside), error.message, remedy)
            return _NOTHING
        for inside, variable, members in dict.fromkeys(template.places()):
            if variable in self.schemas and (found := misnamed(self.schemas[variable], variable, members)):
                self.problem((*scope.path, *key, *inside), f"There is no {found.place}.", found.remedy)
        names = [name.split(".") for name in template.references]
        self.functions |= template.functions
        self.copies |= template.copies
        self.read.update(name[1] for name in names if name[0] == "steps" and name[-1] == "output")
        return template

    # -- what every leaf has -----------------------------------------------------------------------------------------

    def _common(
        self, entry: Entry, *, output: bool = True, signal: bool = False, schema: Json = None
    ) -> dict[str, Any]:
        """The fields of ``LeafNode``; ``output`` and ``signal`` say which of its results its expressions see.

        ``schema`` is that of its output, if it is known.
        """
        step, scope = entry.step, entry.scope
        self.schemas.pop("output", None)
        if schema is not None and self.typed:
            self.schemas |= {"output": schema, f"steps.{entry.id}.output": schema}
        own = dict.fromkeys(["output"] * output + ["signal"] * signal, "dyn")
        inner = replace(scope, variables=scope.variables | own)
        reference = None if step.reference is None else self.template(inner, ("reference",), step.reference)
        return {
            "id": entry.id,
            "index": entry.index,
            "needs": entry.needs,
            "sets": self._sets(step, inner),
            "reference": reference,
            "branches": self._branches(entry),
            "hold": step.on_failure.hold if isinstance(step.on_failure, HoldDocument) else "",
        }

    def _set(self, entry: Entry) -> graph.SetNode:
        return graph.SetNode(**self._common(entry, output=False))

    def _channels_like(self, name: str) -> str:
        return nearest(name, self._channels, "Declared") or "None is declared."

    def _sets(self, step: StepDocument, scope: StepScope) -> dict[str, Template]:
        result = {}
        for name, value in step.set.items():
            if name not in self._channels:
                self.problem((*scope.path, "set", name), f"There is no channel {name!r}.", self._channels_like(name))
                continue
            result[name] = self.value(scope, ("set", name), value)
        return result

    def _branches(self, entry: Entry) -> dict[Branch, Scope]:
        found, variables = {}, entry.scope.variables | _ERROR_VARIABLES
        for branch in Branch:
            content = getattr(entry.step, branch)
            scope = StepScope((*entry.scope.path, str(branch)), variables, entry.id)
            if isinstance(content, EscalationDocument):
                found[branch] = self._escalation(entry, content, scope)
            elif isinstance(content, HoldDocument):
                found[branch] = Scope(())
            elif content is not None:
                found[branch] = self._scope(content, scope)
        return found

    def _escalation(self, entry: Entry, content: EscalationDocument, scope: StepScope) -> Scope:
        """Build the gate that asks a group whether to go on without the step that took too long."""
        nodes: list[Leaf] = []
        if content.start is not None:
            first = self._added(f"{entry.id}_escalation_start", (), scope)
            nodes.append(self._started(first, content.start, ("start",)))
        summary = f"{entry.id} of ${{{{ run.workflow }}}} for ${{{{ run.reference }}}} has had no answer in time. "
        expires = int(content.expires.total_seconds()) if content.expires else ESCALATION_EXPIRES_SECONDS
        terms = Terms(Tier.MEDIUM, (GroupQuorum(content.escalate),), expires_seconds=expires).to_json()
        added = self._added(f"{entry.id}_escalation", tuple(node.id for node in nodes), scope)
        compiled = self.template(scope, (), summary + "Go on without it?")
        nodes.append(graph.GateNode(id=added.id, index=added.index, needs=added.needs, summary=compiled, terms=terms))
        for node in nodes:
            self.leaves[node.id] = node
            self.failed[node.id] = entry.id
        return Scope(tuple(nodes))

    def _added(self, name: str, needs: tuple[str, ...], scope: StepScope) -> Entry:
        if name in self._paths:
            self.problem(scope.path, f"The escalation needs the id {name!r}, which is taken.", "Rename that step.")
        self._paths[name] = scope.path
        self._index += 1
        return Entry(name, self._index, needs, StepDocument(), scope)

    def place(self, name: str) -> Path:
        """The place in the document of the step with this id."""
        return self._paths.get(name, ())

    # -- the kinds ---------------------------------------------------------------------------------------------------

    def _operation(self, entry: Entry) -> graph.OperationNode | None:
        step, scope = entry.step, entry.scope
        try:
            operation = self._catalog.get(step.do or "")
        except InputError as error:
            self.problem((*scope.path, "do"), error.message, error.remedy)
            return None
        durable = operation.kind is Kind.DURABLE
        if step.timeout is not None and not durable:
            remedy = "Take it out: its declaration bounds the call."
            self.problem((*scope.path, "timeout"), f"{operation.name} answers within its call.", remedy)
        self.operations[operation.name] = operation
        if operation.on_timeout is not None and step.on_timeout is None:
            asks = operation.on_timeout
            late = EscalationDocument.model_construct(escalate=asks.escalate, expires=asks.expires, start=None)
            entry = replace(entry, step=step.model_copy(update={"on_timeout": late}))
        self._check_names(operation, step.with_, scope)
        sees = visible_with(scope.variables, {HANDED_OUT: "string"}) if durable else scope.variables
        of_inputs, languages = replace(scope, variables=sees), self.languages(operation, scope.path)
        inputs = self.value(of_inputs, ("with",), step.with_, languages)
        self._check_literals(operation, inputs, scope)
        inputs = Present(inputs) if self.presents else inputs
        common = self._common(entry, signal=durable, schema=operation.output_schema)
        title, name = self._title(entry, operation), operation.name
        return graph.OperationNode(**common, operation=name, inputs=inputs, timeout=step.timeout, heads=title)

    def _title(self, entry: Entry, operation: Operation | None = None) -> str:
        """The title of the step's cards. A placeholder that can never get a value is a fault."""
        title, place = entry.step.title or "", (*entry.scope.path, "title")
        if "${{" in title:
            remedy = "Write {name} for an input of the operation, or take the expression out."
            self.problem(place, "A title takes no expressions.", remedy)
        elif operation is None:
            if any(not isinstance(part, str) for part in text_parts(title)):
                self.problem(place, "The title of a gate has no placeholders.", "Its `summary` may hold expressions.")
        else:
            for words in unfilled(operation, title):
                self.problem(place, f"{words}.", f"It reads the input of {operation.name}.")
            for words in unfilled(operation, operation.title or ""):
                self.problem(
                    (*entry.scope.path, "do"), f"The title of {operation.name}: {words}.", "Mend its declaration."
                )
        return title

    def authored(self, path: Path) -> bool:
        """True if the step at this place was published: only then are its literal words an author's."""
        return True

    def languages(self, operation: Operation, path: Path) -> Languages:
        """The languages of the operation's inputs in the step at this place."""
        found = InputLanguages(operation.input_schema, credentials_of(operation))
        return found if self.authored(path) else Added(found)

    def _check_literals(self, operation: Operation, inputs: Template, scope: StepScope) -> None:
        """Check the literal blocks of a message. All blocks are checked again when they are rendered."""
        try:
            display.check(inputs.literals() if operation.connector == "slack" else {}, where="with")
        except InputError as error:
            self.problem((*scope.path, "with"), f"{error.where} {error.message}.", error.remedy)

    def _check_names(self, operation: Operation, given: Mapping[str, object], scope: StepScope) -> None:
        """Check the names of the inputs. Their values are known only when they are rendered."""
        schema = operation.input_schema
        takes = schema.get("properties", {})
        for name in given if schema.get("additionalProperties", True) is False else ():
            if name in operation.params:
                words = f"{operation.name} fixes {name!r}, so no workflow gives it."
                self.problem((*scope.path, "with", name), words, "Take it out.")
            elif name not in takes:
                remedy = f"It takes {', '.join(sorted(takes))}."
                self.problem((*scope.path, "with", name), f"{operation.name} takes no {name!r}.", remedy)
        for name in schema.get("required", ()):
            if name not in given:
                self.problem((*scope.path, "do"), f"{operation.name} needs the input {name!r}.", "Add it under `with`.")

    def _gate(self, entry: Entry) -> graph.GateNode:
        gate = entry.step.approve
        assert gate is not None
        summary = self.template(entry.scope, ("approve", "summary"), gate.summary)
        for path, message in late_times(gate):
            self.problem((*entry.scope.path, "approve", *path), f"It {message}")
        common, title = self._common(entry), self._title(entry)
        return graph.GateNode(**common, summary=summary, terms=gate_terms(gate).to_json(), heads=title)

    def _wait(self, entry: Entry) -> graph.TimerNode | graph.SignalNode | None:
        wait, scope = entry.step.wait, entry.scope
        assert wait is not None
        given = [name for name in ("for_", "until", "signal") if getattr(wait, name) is not None]
        if len(given) != 1:
            self.problem((*scope.path, "wait"), "A wait is exactly one of for, until, signal.")
            return None
        common = self._common(entry, signal=True)
        if wait.signal is None:
            for path, value in ((("timeout",), entry.step.timeout), (("wait", "correlate"), wait.correlate)):
                if value is not None:
                    self.problem((*scope.path, *path), f"{path[-1]!r} belongs to a wait for a signal.")
            until = None if wait.until is None else self.template(scope, ("wait", "until"), wait.until)
            return graph.TimerNode(**common, span=wait.for_, until=until)
        correlate = self.template(scope, ("wait", "correlate"), wait.correlate or "${{ run.reference }}")
        return graph.SignalNode(**common, name=wait.signal, correlate=correlate, timeout=entry.step.timeout)

    def _task(self, entry: Entry) -> graph.TaskNode:
        task, scope = entry.step.task, entry.scope
        assert task is not None
        for problem in check_form(task.form):
            self.problem((*scope.path, "task", "form", *problem.path), problem.message, problem.remedy)
        title, text = self.template(scope, ("task", "title"), task.title), task.description
        return graph.TaskNode(
            title=title,
            description=self.template(scope, ("task", "description"), text) if text else None,
            **self._common(entry, signal=True, schema=task.form),
            form=task.form,
            group=task.assign.group,
            timeout=entry.step.timeout,
        )

    def _child(self, entry: Entry) -> graph.ChildNode:
        step = entry.step
        for name in step.inherit:
            if name not in self._channels:
                self.problem(
                    (*entry.scope.path, "inherit"), f"There is no channel {name!r}.", self._channels_like(name)
                )
        return graph.ChildNode(
            **named(step.run or ""),
            inherit=tuple(dict.fromkeys(step.inherit)),
            inputs=self.value(entry.scope, ("with",), step.with_),
            timeout=step.timeout,
            abandons=bool(step.abandon),
            **self._common(entry, signal=True, schema=self._children.get(step.run or "")),
        )

    def _continue(self, entry: Entry) -> graph.ContinueNode:
        content = entry.step.continue_with
        assert content is not None
        return self._started(entry, content, ("continue_with",))

    def _started(self, entry: Entry, content: ContinueDocument, key: tuple[str, ...]) -> graph.ContinueNode:
        inputs = self.value(entry.scope, (*key, "with"), content.with_)
        return graph.ContinueNode(**self._common(entry), **named(content.workflow), inputs=inputs)


def named(text: str) -> dict[str, Any]:
    """The name and the version of a workflow that a document names."""
    name, _, version = text.partition("@")
    return {"workflow": name, "version": int(version) if version else None}


def gate_terms(gate: GateDocument) -> Terms:
    """The terms under which a gate asks people: the same as those of a policy's rule with these keys."""
    given, asked = gate.approvers, {name: getattr(gate, name) for name in _OF_RULES}
    named = given if isinstance(given, tuple) else (Approver(group=given.group, of=gate.quorum or 1),)
    several = tuple(RuleApprover(group=one.group, slack_group=one.slack_group, of=one.of) for one in named)
    rule = RuleDocument.model_construct(approvers=several, **asked)
    return terms_of([rule])


_OF_RULES = ("tier", "two_person", "allow", "expires", "remind", "escalate", "channel")


STEP_ID = "step.id"


def visible_with(variables: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The variables and ``more``; a loop's item hides a name of ``more`` with the same first part."""
    return {**variables, **{name: kind for name, kind in more.items() if name.split(".")[0] not in variables}}


def compiled(compiled_in: Callable[[Environment], Template], variables: Mapping[str, str]) -> Template:
    """Compile a template over these variables; if that fails, without our own ones, whose names a macro may use."""
    try:
        return compiled_in(environment_of(variables, WORKFLOW_LIMITS))
    except ExpressionError:
        given = {name: kind for name, kind in variables.items() if name not in (STEP_ID, HANDED_OUT)}
        with suppress(ExpressionError):
            return compiled_in(environment_of(given, WORKFLOW_LIMITS))
        raise
