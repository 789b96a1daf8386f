"""Previews, computed offline: the outline of a workflow, and a policy's decision on a described action."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, cast

from msgspec import structs, to_builtins

from connectors.catalog import Catalog
from connectors.operation import Operation
from connectors.port import Before
from connectors.proposal import build_action
from core import bounded_json
from core.action import Action
from core.canonical import Json, JsonObject
from core.cel_values import fits
from core.durations import format_duration
from core.errors import InputError
from policy.explain import Explanation, explain
from policy.facts import CARRIES, ORIGIN, FactContext
from policy.sets import PolicySet
from runtime.definition.foresight import foresee_steps
from runtime.engine.model.agent_node import AgentNode, AgentTool
from runtime.engine.model.graph import LeafNode, Node, OperationNode, Scope, scopes_of
from runtime.engine.model.tools import ToolKind
from runtime.engine.model.workflow import Workflow

_WORDS = {"otherwise": "else", "body": "steps"}
_TOOLS = {ToolKind.OPERATION: "do", ToolKind.PEOPLE: "ask", ToolKind.WORKFLOW: "run"}
_MEMBERS = frozenset({"operation", "input", "before", "run", "origins", "carries"})
_CONTEXT = {each.name: type(each.default) for each in structs.fields(FactContext)}


def outline(workflow: Workflow, policies: PolicySet | None = None) -> JsonObject:
    """The graph as a tree, and what it needs. With policies, also the decision on each step, as far as foreseeable.

    ``steps`` are nodes in topological order. Each has ``id``, ``kind`` (``do`` for an operation, otherwise the
    operation of its step row, or the kind's own name), ``needs``, ``stage`` (nodes of one list with the same stage
    start together), the declaration of the operation or the workflow that it calls, and ``inside``: the lists of nodes
    in its branches, loops and handlers, by their names.
    """
    result: JsonObject = {
        "name": workflow.name,
        "version": workflow.version,
        "title": workflow.title,
        "digest": workflow.digest,
        "started_by": _started_by(workflow),
        "channels": [
            {"name": channel.name, "reduce": str(channel.reducer), "keep": channel.keep}
            for channel in workflow.graph.channels.values()
        ],
        "max_writes_per_run": workflow.writes_max,
        "max_runs_per_min": workflow.max_runs_per_min,
        "sla": None if workflow.sla is None else format_duration(workflow.sla),
        "connectors": list(workflow.connectors),
        "functions": list(workflow.functions),
        "steps": _scope(workflow.graph.root, workflow.operations),
    }
    if policies is not None:
        result["policies"] = [str(policy.named) for policy in policies.policies]
        result["foreseen"] = {one.step: one.to_json() for one in foresee_steps(workflow, policies)}
    return result


def _started_by(workflow: Workflow) -> list[Json]:
    found = list[Json]()
    if (start := workflow.servicenow) is not None:
        found.append(f"servicenow: {start.table} {', '.join(sorted(start.events))}")
    if (schedule := workflow.schedule) is not None:
        found.append(f"schedule: {schedule.cron.text} in {schedule.cron.zone.key}")
    if (webhook := workflow.webhook) is not None:
        found.append(f"webhook: {webhook.endpoint}")
    return found


def _scope(scope: Scope, operations: Mapping[str, Operation]) -> list[Json]:
    stages: dict[str, int] = {}
    for node in scope.nodes:  # in topological order: the nodes that a node needs come first
        stages[node.id] = 1 + max((stages.get(need, 0) for need in node.needs), default=0)
    return [_node(node, stages[node.id], operations) for node in scope.nodes]


def _node(node: Node, stage: int, operations: Mapping[str, Operation]) -> JsonObject:
    kind = getattr(node, "operation", None) or type(node).__name__.removesuffix("Node").lower()
    outlined: JsonObject = {"id": node.id, "kind": str(kind), "needs": list(node.needs), "stage": stage}
    if isinstance(node, OperationNode):
        outlined["kind"], outlined["operation"] = "do", node.operation
        declared = operations.get(node.operation)
        if declared is not None:
            outlined |= {"connector": declared.connector, "answers": str(declared.kind)}
            outlined |= {"side_effects": str(declared.side_effects), "risk": str(declared.risk)}
            outlined["reversible"] = declared.reverse is not None
    if (other := getattr(node, "workflow", None)) is not None:
        number = getattr(node, "version", None)
        outlined["workflow"] = f"{other}@{number}" if number is not None else str(other)
    inside: JsonObject = {label: _scope(scope, operations) for label, scope in _inside(node)}
    if isinstance(node, AgentNode):
        outlined |= {"model": node.model, "limits": to_builtins(node.limits)}
        inside["tools"] = [_tool(node, number, tool, operations) for number, tool in enumerate(node.tools.values(), 1)]
    if isinstance(node, LeafNode) and node.hold:
        outlined["held_for"] = node.hold
    if inside:
        outlined["inside"] = inside
    return outlined


def _tool(agent: AgentNode, number: int, tool: AgentTool, operations: Mapping[str, Operation]) -> JsonObject:
    """A tool, in the form of a node. Its verdict has the same ``id``."""
    outlined: JsonObject = {**_node(tool.leaf, number, operations), "id": f"{agent.id}/{tool.tool.name}"}
    return {**outlined, "kind": _TOOLS[tool.tool.kind], "fixed": [*sorted(tool.tool.fixed)]}


def _inside(node: Node) -> Iterator[tuple[str, Scope]]:
    """The non-empty scopes inside a node, each with the name that the node gives it."""
    names: dict[int, str] = {}
    for field in fields(node):
        value: Any = getattr(node, field.name)
        held = value.items() if isinstance(value, Mapping) else ((_WORDS.get(field.name, field.name), value),)
        names.update((id(item), str(label)) for label, item in held if isinstance(item, Scope))
    for number, scope in enumerate(scopes_of(node), 1):
        if scope.nodes:
            yield names.get(id(scope), str(number)), scope


def lines(outlined: Mapping[str, Any], connectors: Mapping[str, str]) -> Iterator[str]:
    """The outline for people. ``connectors`` maps each needed connector to its state in this process."""
    title = f" · {outlined['title']}" if outlined["title"] != outlined["name"] else ""
    yield f"{outlined['name']} version {outlined['version']}{title}"
    facts = {
        "starts with": "; ".join(outlined["started_by"]),
        "channels": ", ".join(_channel(channel) for channel in outlined["channels"]),
        "writes": "" if outlined["max_writes_per_run"] is None else f"at most {outlined['max_writes_per_run']} a run",
        "starts": "" if outlined["max_runs_per_min"] is None else f"at most {outlined['max_runs_per_min']} a minute",
        "sla": outlined["sla"] or "",
        "functions": ", ".join(outlined["functions"]),
        "connectors": ", ".join(f"{name} ({connectors[name]})" for name in outlined["connectors"]),
    }
    for name, value in facts.items():
        if value:
            yield f"  {name:<12} {value}"
    yield "  steps"
    yield from _tree(outlined["steps"], "  ", outlined.get("foreseen", {}))


def _channel(channel: Mapping[str, Any]) -> str:
    keep = f", keeps {channel['keep']}" if channel["keep"] is not None else ""
    return f"{channel['name']} ({channel['reduce']}{keep})"


def _tree(nodes: list[Any], indent: str, verdicts: Mapping[str, Any]) -> Iterator[str]:
    crowd = Counter(node["stage"] for node in nodes)
    for number, node in enumerate(nodes):
        last = number == len(nodes) - 1
        words = [node["id"], *_facts(node, verdicts)]
        if crowd[node["stage"]] > 1:
            others = [other["id"] for other in nodes if other["stage"] == node["stage"] and other is not node]
            words.append(f"[together with {_some(others)}]")
        yield f"{indent}{'└─' if last else '├─'} {'  '.join(words)}"
        below = indent + ("   " if last else "│  ")
        inside = list(node.get("inside", {}).items())
        for place, (label, inner) in enumerate(inside):
            end = place == len(inside) - 1
            yield f"{below}{'└─' if end else '├─'} {label}:"
            yield from _tree(inner, below + ("   " if end else "│  "), verdicts)


def _facts(node: Mapping[str, Any], verdicts: Mapping[str, Any]) -> Iterator[str]:
    fixed = f"with {', '.join(node['fixed'])} fixed" if node.get("fixed") else ""
    if "operation" not in node:
        yield " ".join([node["kind"], *(node[name] for name in ("workflow", "model") if name in node)])
    else:
        yield f"{node['kind']} {node['operation']}"
    if fixed:
        yield fixed
    if "risk" in node:
        durable = ", durable" if node["answers"] == "durable" else ""
        yield f"({node['side_effects']}, {node['risk']} risk{durable})"
    if "held_for" in node:
        yield f"(if it fails, held for {node['held_for']})"
    if node["id"] in verdicts:
        verdict = verdicts[node["id"]]
        by = f" ({_some(verdict['rules'])})" if verdict["rules"] else " (no rule)"
        yield f"→ {verdict['words']}{by}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def explain_action(data: bytes, file: str, policies: PolicySet, catalog: Catalog) -> Explanation:
    """Build and judge the action described by ``{operation, input, before?, run?, origins?, carries?}`` as a run would.

    ``before`` is what a pre-read would find. ``run`` holds facts about the run, ``origins`` and ``carries`` facts about
    arguments by name. ``InputError`` names the member that is wrong.
    """
    value = bounded_json.parse_object(data, where=file)
    unknown = sorted(value.keys() - _MEMBERS)
    if unknown:
        raise InputError(f"is not one of {', '.join(sorted(_MEMBERS))}", where=f"{file}: {unknown[0]}")
    operation, before = value.get("operation"), value.get("before")
    if not isinstance(operation, str):
        raise InputError("is missing or not a text", where=f"{file}: operation")
    input_ = _object(value.get("input", {}), f"{file}: input")
    found = None if before is None else Before(_object(before, f"{file}: before"), None)
    context = _context(_object(value.get("run", {}), f"{file}: run"), f"{file}: run")
    action = build_action(catalog.get(operation), input_, found)
    return explain(policies, action, context, _traced(value, catalog.get(operation), action, file))


def _traced(value: JsonObject, operation: Operation, action: Action, file: str) -> dict[str, object]:
    """The facts about origins in the description; an absent argument has no origins."""
    traced: dict[str, object] = {}
    for member, begins, kind in (("origins", ORIGIN, "list<list<string>>"), ("carries", CARRIES, "list<string>")):
        outlined = _object(value.get(member, {}), f"{file}: {member}")
        traced |= {f"{begins}{name}": [] for name in operation.arguments - action.input.keys() - action.fields.keys()}
        for name, item in outlined.items():
            if name not in operation.arguments:
                words = f"is not an argument of {operation.name}."
                raise InputError(words, where=f"{file}: {member}.{name}", remedy=f"One of {_names(operation)}.")
            if not fits(item, kind):
                raise InputError(f"is not a {kind}", where=f"{file}: {member}.{name}")
            traced[f"{begins}{name}"] = item
    return traced


def _names(operation: Operation) -> str:
    return ", ".join(sorted(operation.arguments))


def _object(value: Json, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise InputError("is not an object", where=where)
    return value


def _context(value: JsonObject, where: str) -> FactContext:
    """Facts by their names with `_` for `.`: `run_reference`, `writes_in_run`, `tenant_id`."""
    for name, item in value.items():
        kind = _CONTEXT.get(name)
        if kind is None:
            raise InputError("is not a fact.", where=f"{where}.{name}", remedy=f"One of {', '.join(_CONTEXT)}.")
        if kind is tuple and fits(item, "list<string>"):
            continue
        if type(item) is not kind:
            words = "a list of texts" if kind is tuple else "a number" if kind is int else "a text"
            raise InputError(f"is not {words}", where=f"{where}.{name}")
    return FactContext(**cast("dict[str, Any]", value))
