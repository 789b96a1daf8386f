"""From authored YAML to the immutable canonical definition that the runtime runs (X-1, X-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.catalog import Catalog
from connectors.operation import Operation
from core.canonical import sha256_hex
from core.documents import Document, load_document
from core.errors import DefinitionError, ExpressionError, Problem
from core.expressions import WORKFLOW_LIMITS, Environment
from core.templates import Template, compile_template
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
    problems = list(compiler.problems)
    result = None
    if content.result is not None:
        place = Place((), compiler.visible_at_end(content))
        result = compiler.value(place, ("result",), content.result)
        problems = list(compiler.problems)
    reference = _template(document, ("reference",), content.reference, RUN_VARIABLES, problems, "string")
    start = None
    if content.triggers.servicenow is not None:
        start = _servicenow(document, content.triggers.servicenow, problems)
    if problems:
        raise DefinitionError(tuple(sorted(problems, key=lambda problem: (problem.line, problem.column))))
    assert reference is not None
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


def _servicenow(document: Document, trigger: ServiceNowTrigger, problems: list[Problem]) -> ServiceNowStart | None:
    path = ("triggers", "servicenow")
    variables = {"trigger": "dyn"}
    when = None
    if trigger.when is not None:
        when = _template(document, (*path, "when"), trigger.when, variables, problems, "bool")
    dedupe = _template(document, (*path, "dedupe"), trigger.dedupe, variables, problems, None)
    return ServiceNowStart(trigger.table, frozenset(trigger.events), when, dedupe) if dedupe else None


def _template(
    document: Document,
    path: tuple[str, ...],
    text: str,
    variables: Mapping[str, str],
    problems: list[Problem],
    want: str | None,
) -> Template | None:
    try:
        wanted = want if want != "string" or (text.strip().startswith("${{") and text.count("${{") == 1) else None
        return compile_template(Environment(variables, WORKFLOW_LIMITS), text, wanted)
    except ExpressionError as error:
        problems.append(document.problem(path, error.message, error.remedy))
        return None
