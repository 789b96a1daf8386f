"""From authored YAML to the immutable canonical definition that the runtime runs (X-1, X-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.catalog import Catalog
from connectors.operation import Operation
from core.canonical import sha256_hex
from core.documents import load_document
from core.errors import DefinitionError
from core.validation import validate
from runtime.definition.compiler import RUN_VARIABLES, GraphCompiler
from runtime.definition.model import ServiceNowTrigger, WorkflowDocument
from runtime.definition.places import Place
from runtime.engine.graph import Channel, Graph
from runtime.engine.workflow import ServiceNowStart, Workflow


def load_workflow(text: str, file: str, catalog: Catalog) -> Workflow:
    """Parse, validate and compile a workflow. ``DefinitionError`` lists every problem with its place and remedy."""
    document = load_document(text, file)
    content = validate(document, WorkflowDocument)
    compiler = GraphCompiler(document, catalog)
    root = compiler.compile(content)
    result = None
    if content.result is not None:
        result = compiler.value(Place((), compiler.visible_at_end(content)), ("result",), content.result)
    alone = content.reference.strip().startswith("${{") and content.reference.count("${{") == 1
    reference = compiler.template(
        Place((), RUN_VARIABLES), ("reference",), content.reference, "string" if alone else None
    )
    trigger = content.triggers.servicenow
    start = None if trigger is None else _servicenow(compiler, trigger)
    if compiler.problems:
        raise DefinitionError(tuple(sorted(compiler.problems, key=lambda problem: (problem.line, problem.column))))
    text_digest = sha256_hex(text.encode())
    channels = {
        name: Channel(name, channel.reduce, channel.keep, channel.initial, channel.ledger)
        for name, channel in content.channels.items()
    }
    graph = Graph(
        name=content.workflow,
        version=content.version,
        digest=text_digest,
        channels=channels,
        root=root,
        leaves=compiler.leaves,
        read=frozenset(compiler.read),
        failed=compiler.failed,
        result=result,
    )
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
        writes_max=content.caps.max_writes_per_run,
        sla=content.sla,
        retention=content.retention,
        max_concurrency=content.caps.max_concurrency,
    )


def thaw_operations(frozen: Mapping[str, Any]) -> Catalog:
    """The catalog that a published version was compiled against."""
    return Catalog({name: Operation.model_validate(value) for name, value in frozen.items()})


def _servicenow(compiler: GraphCompiler, trigger: ServiceNowTrigger) -> ServiceNowStart:
    place = Place(("triggers", "servicenow"), {"trigger": "dyn"})
    when = None if trigger.when is None else compiler.template(place, ("when",), trigger.when, "bool")
    dedupe = compiler.template(place, ("dedupe",), trigger.dedupe)
    return ServiceNowStart(trigger.table, frozenset(trigger.events), when, dedupe)
