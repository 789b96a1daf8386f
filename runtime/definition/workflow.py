"""From authored YAML to the immutable canonical definition that the runtime runs, and extending it. Pure.

An extension names steps that are added to the root of one run's graph, and optionally existing ones that are to wait
for them (``before``). It is checked like a definition: the extended workflow is compiled anew from the
published text and every extension so far, so equal logs give equal graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, ValidationError

from connectors.catalog import Catalog
from connectors.naming import within
from connectors.operation import Operation
from connectors.schema import check_keywords, check_references, validator_of
from core.budgets import most
from core.canonical import Json, canonical_bytes, sha256_hex
from core.documents import Document, load_document
from core.errors import DefinitionError, InputError, path_text
from core.templates import Template
from core.validation import EMPTY, EMPTY_REMEDY, empty_keys, validate
from runtime.definition.compiler import RUN_VARIABLES, GraphCompiler
from runtime.definition.leaves import Path, StepScope
from runtime.definition.masking import evident
from runtime.definition.memory import with_memory
from runtime.definition.model import (
    ChannelDocument,
    DocumentPart,
    Identifier,
    ServiceNowTrigger,
    StepDocument,
    WorkflowDocument,
)
from runtime.definition.shapes import shape_of
from runtime.definition.starts import started_by
from runtime.engine.book.channels import bounded, misfit
from runtime.engine.book.plan import flow_of
from runtime.engine.model.graph import Channel, Graph, Reducer, Scope
from runtime.engine.model.rows import MutationRow
from runtime.engine.model.run import State
from runtime.engine.model.workflow import ServiceNowStart, Workflow

STEPS_MAX = most("document_steps")


_MARK = b"${{"

# The values that a first write can be added to. With the other reducers, null says that nothing was written yet.
_EMPTY: Mapping[Reducer, Json] = {Reducer.APPEND: [], Reducer.UNION: [], Reducer.MERGE: {}, Reducer.SUM: 0}


def _channel(compiler: GraphCompiler, name: str, channel: ChannelDocument) -> Channel:
    """Compile a channel. A literal initial value is checked here; that of an expression is checked at a run's start."""
    declared = Channel(name, channel.reduce, channel.keep, _EMPTY.get(channel.reduce), channel.ledger)
    if channel.initial is None:
        return declared
    path = ("channels", name, "initial")
    start = compiler.value(StepScope((), RUN_VARIABLES), path, channel.initial)
    if _MARK in canonical_bytes(channel.initial):
        return replace(declared, start=start)
    if problem := misfit(channel.reduce, channel.initial):
        compiler.problem(path, f"The channel {name!r} cannot begin with this: {problem}.")
    return replace(declared, initial=bounded(declared, channel.initial))


def load_workflow(
    text: str,
    file: str,
    catalog: Catalog,
    published: str | None = None,
    *,
    typed: bool = False,
    children: Mapping[str, Json] = MappingProxyType({}),
) -> Workflow:
    """Parse, validate and compile a workflow. ``DefinitionError`` lists every problem with its place and remedy.

    ``typed``: member names of the trigger and of outputs are checked against their schemas, as at a check or a
    publication; a version that an earlier release published is not checked so. ``published`` is the digest of a
    published version: an earlier release computed it over the text with its secrets. ``children`` are the result
    schemas of other workflows, by the names that steps use.
    """
    content = validate(document := load_document(text, file), WorkflowDocument)
    compiler, text_digest = GraphCompiler(document, catalog, typed=typed, children=children), sha256_hex(text.encode())
    _typed_trigger(compiler, content.trigger)
    root = compiler.compile(content)
    text_digest = text_digest if text_digest == published else sha256_hex(_evident(text, document, compiler))
    result = None if content.result is None else compiler.value(compiler.at_end(content), ("result",), content.result)
    reference, subject, search = _names(compiler, content)
    start = _servicenow(compiler, content.triggers.servicenow, reference)
    others = started_by(compiler, content.triggers, reference)
    declared = {name: _channel(compiler, name, channel) for name, channel in content.channels.items()}
    channels = with_memory(compiler, content, declared)
    _refuse(compiler)
    graph = _graph(compiler, content, text_digest, channels, root, result)
    return Workflow(
        name=content.workflow,
        version=content.version,
        title=content.title or content.workflow,
        digest=text_digest,
        text=text,
        graph=graph,
        reference=reference,
        servicenow=start,
        operations=compiler.operations,
        **_bounds(content),
        functions=tuple(sorted(compiler.functions)),
        copies=compiler.copies,
        subject=subject,
        search=search,
        gives=shape_of(content.result, result, compiler.schemas),
        trigger=content.trigger,
        schedule=others[0],
        webhook=others[1],
    )


def _graph(
    compiler: GraphCompiler,
    content: WorkflowDocument,
    text_digest: str,
    channels: Mapping[str, Channel],
    root: Scope,
    result: Template | None,
) -> Graph:
    return Graph(
        name=content.workflow,
        version=content.version,
        digest=text_digest,
        channels=channels,
        root=root,
        leaves=compiler.leaves,
        read=frozenset(compiler.read),
        failed=compiler.failed,
        result=result,
        flow=flow_of(root),
    )


def _bounds(content: WorkflowDocument) -> dict[str, Any]:
    """The bounds of runs from the document."""
    return {
        "writes_max": content.caps.max_writes_per_run,
        "sla": content.sla,
        "retention": content.retention,
        "max_concurrency": content.caps.max_concurrency,
        "max_runs_per_min": content.caps.max_runs_per_min,
    }


def _names(compiler: GraphCompiler, content: WorkflowDocument) -> tuple[Template, Template | None, Template | None]:
    """The expressions for a run's reference, for the people whom it is about, and for the values that find it."""
    want, scope = "string" if "${{" in content.reference else None, StepScope((), RUN_VARIABLES)
    reference = compiler.template(scope, ("reference",), content.reference, want)
    subject = None if content.subject is None else compiler.template(scope, ("subject",), content.subject)
    return reference, subject, _search(compiler, scope, content)


def _search(compiler: GraphCompiler, scope: StepScope, content: WorkflowDocument) -> Template | None:
    """The expressions whose values find runs. None of them may read a secret field of the trigger."""
    if not content.search:
        return None
    found = compiler.value(scope, ("search",), dict(content.search))
    for place, variable, members in dict.fromkeys(found.places()):
        if variable == "trigger" and _holds_secret(content.trigger or {}, members):
            words = (
                f"Runs cannot be found by {'.'.join((variable, *members))}: the trigger's schema marks it as secret."
            )
            compiler.problem(("search", *place), words, "Take it out of `search`.")
    return found


def _holds_secret(schema: dict[str, Any], members: Sequence[str]) -> bool:
    """True if the value at these members, or a value around or below it, is marked as secret."""
    found = (within(schema, members[:depth]) for depth in range(len(members) + 1))
    around = [one["anyOf"] for one in found if one]
    marked = any(part.get("x-secret") is True for parts in around for part in parts if isinstance(part, dict))
    last = str(around[-1])
    # The target of a reference may have the mark anywhere.
    return marked or "x-secret" in last or ("$ref" in str(around[1:]) and "x-secret" in str(schema))


def _typed_trigger(compiler: GraphCompiler, schema: dict[str, Any] | None) -> None:
    """Check the schema of the trigger, and look names below `trigger` up in it."""
    if schema is None:
        return
    try:
        check_keywords(schema)
        check_references(schema)
        validator_of(schema)
    except ValueError as error:
        compiler.problem(("trigger",), f"This is no JSON Schema that can be used: {error}")
        return
    if schema.get("type") != "object":
        compiler.problem(("trigger",), "A trigger is an object.", "Begin with `type: object`.")
    if compiler.typed:
        compiler.schemas["trigger"] = schema


def _refuse(compiler: GraphCompiler) -> None:
    if compiler.problems:
        raise DefinitionError(tuple(sorted(compiler.problems, key=lambda problem: (problem.line, problem.column))))


def _evident(text: str, document: Document, compiler: GraphCompiler) -> bytes:
    return evident(text, document.value, compiler.operations).encode()


def thaw_operations(frozen: Mapping[str, Any], file: str) -> Catalog:
    """The catalog that a published version was compiled against.

    ``InputError`` names the version, ``file``, and the operation whose declaration this release cannot read.
    """
    return Catalog({name: _thawed(name, value, file) for name, value in frozen.items()})


def _thawed(name: str, value: Any, file: str) -> Operation:
    try:
        return Operation.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = path_text(tuple(fault["loc"]))
        words = f"was published with a declaration of {name} that this release cannot read: {place}: {fault['msg']}"
        raise InputError(words, where=file, remedy="Publish it again, as a new version.") from None


def _servicenow(
    compiler: GraphCompiler, trigger: ServiceNowTrigger | None, reference: Template
) -> ServiceNowStart | None:
    """Compile the trigger. With ``overrun``, the reference must follow from the event alone: no run exists by then."""
    if trigger is None:
        return None
    scope = StepScope(("triggers", "servicenow"), {"trigger": "dyn"})
    when = None if trigger.when is None else compiler.template(scope, ("when",), trigger.when, "bool")
    dedupe = compiler.template(scope, ("dedupe",), trigger.dedupe)
    known = (trigger.table, frozenset(trigger.events), when, dedupe, trigger.own_events)
    start = ServiceNowStart(*known, trigger.overrun, trigger.debounce)
    if start.looks and any(name.partition(".")[0] != "trigger" for name in reference.references):
        message = "overrun and debounce look at the runs of one reference, and this one is not made from the event."
        remedy = "Give the workflow a reference that reads only `trigger`, such as ${{ trigger.number }}."
        compiler.problem(("triggers", "servicenow"), message, remedy)
    return start


class ExtensionDocument(DocumentPart):
    """New steps of a running graph. Each existing step in ``before`` waits for the last of them."""

    steps: Annotated[tuple[StepDocument, ...], Field(min_length=1, max_length=100)]
    before: tuple[Identifier, ...] = ()


def read_extension(source: Mapping[str, Any]) -> ExtensionDocument:
    """Parse an extension; ``InputError`` names the place of the first fault."""
    try:
        extension = ExtensionDocument.model_validate(source)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = path_text(tuple(fault["loc"]))
        strange = fault["type"] == "extra_forbidden"
        message = "is no key that an extension has" if strange else f"is not right: {fault['msg']}"
        remedy = "Send `steps` as a workflow has them, and `before`; see `counterseal schema workflow`."
        raise InputError(message, where=where, remedy=remedy) from None
    for place in empty_keys(extension):
        raise InputError(EMPTY, where=path_text(place), remedy=EMPTY_REMEDY)
    return extension


def check_past(graph: Graph, state: State, extension: ExtensionDocument) -> None:
    """Refuse an edge into the past: a begun step cannot wait for a new one."""
    begun = {*state.status, *state.open, *state.parked, *state.failures, *state.branches, *state.loops}
    for name in extension.before:
        if name in begun.intersection(node.id for node in graph.root.nodes):
            words = f"names {name!r}, which has begun already; what has begun cannot wait for something new"
            raise InputError(words, where="before")


def extended(base: Workflow, mutations: Sequence[MutationRow], catalog: Catalog | None = None) -> Workflow:
    """The workflow with every extension in it. ``InputError`` names what is wrong with the newest.

    Its operations are those frozen with the version and with each extension; the newest extension may also name
    operations of ``catalog``.
    """
    operations, file = dict(catalog.operations) if catalog is not None else {}, f"{base.name}@{base.version}"
    for mutation in reversed(mutations):
        operations.update(thaw_operations(mutation.operations, file).operations)
    operations.update(base.operations)
    document = load_document(base.text, file)
    content = validate(document, WorkflowDocument)
    steps = list(content.steps)
    newest = len(steps)
    for mutation in mutations:
        newest, steps = len(steps), with_added(steps, read_extension(mutation.source), mutation.gates)
    if len(steps) > STEPS_MAX:
        raise InputError(f"makes {len(steps)} steps; a graph has at most {STEPS_MAX}", where="steps")
    compiler = _Compiler(document, Catalog(operations), newest, len(content.steps))
    root = compiler.compile(content.model_copy(update={"steps": tuple(steps)}))
    read, channels = base.graph.read | compiler.read, with_memory(compiler, content, base.graph.channels)
    graph = replace(
        base.graph,
        channels=channels,
        root=root,
        leaves=compiler.leaves,
        read=read,
        failed=compiler.failed,
        flow=flow_of(root),
    )
    functions, copies = tuple(sorted({*base.functions, *compiler.functions})), base.copies or compiler.copies
    return replace(base, graph=graph, operations=compiler.operations, functions=functions, copies=copies)


class _Compiler(GraphCompiler):
    """A compiler of an extended workflow. All faults are in the added steps: the published text has none."""

    def __init__(self, document: Document, catalog: Catalog, first: int, published: int) -> None:
        super().__init__(document, catalog)
        self._first, self._published = first, published

    def authored(self, path: Path) -> bool:
        """True for a step of the published text."""
        return not (len(path) > 1 and isinstance(path[1], int) and path[1] >= self._published)

    def problem(self, path: Path, message: str, remedy: str = "") -> None:
        """Raise the first fault, at its place in the extension."""
        if len(path) > 1 and path[0] == "steps" and isinstance(path[1], int) and path[1] >= self._first:
            path = ("steps", path[1] - self._first, *path[2:])
        raise InputError(message, where=path_text(path), remedy=remedy)


def with_added(steps: list[StepDocument], extension: ExtensionDocument, gates: Sequence[str]) -> list[StepDocument]:
    """The list with the new steps at its end. The first one, without own needs, gets the needs of the step that waits.

    No new step begins before the run has passed the ``gates``, because the people who decide there have not seen it.
    """
    named = {_name(step, number): number for number, step in enumerate(steps)}
    new = list(extension.steps)
    if extension.before and new[0].needs is None and (first := named.get(extension.before[0])) is not None:
        new[0] = new[0].model_copy(update={"needs": _needs(steps, first)})
    for place, step in enumerate(new) if gates else ():
        if place == 0 or step.needs is not None:
            all_needs = dict.fromkeys((*_needs([*steps, *new], len(steps) + place), *gates))
            new[place] = step.model_copy(update={"needs": tuple(all_needs)})
    for before in extension.before:
        number = named.get(before)
        if number is None:
            raise InputError(f"names {before!r}, which is no step of the outermost list", where="before")
        last = _name(new[-1], len(steps) + len(new) - 1)
        needs = (*_needs(steps, number), last)
        steps[number] = steps[number].model_copy(update={"needs": needs})
    return [*steps, *new]


def _needs(steps: Sequence[StepDocument], number: int) -> tuple[str, ...]:
    explicit = steps[number].needs
    if explicit is not None:
        return explicit
    return (_name(steps[number - 1], number - 1),) if number else ()


def _name(step: StepDocument, number: int) -> str:
    """Name a step of the outermost list as the compiler does."""
    kinds = step.kinds()
    return step.id or f"{kinds[0] if kinds else 'step'}_{number}"
