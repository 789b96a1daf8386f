"""Trying a policy on a described action: `counterseal policy explain`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, cast

from app.adapters import catalog_of
from app.settings import load_settings
from connectors.catalog import Catalog
from connectors.port import Before
from connectors.proposal import build_action
from core import bounded_json
from core.canonical import Json, JsonObject
from core.errors import InputError
from policy.explain import Explanation, explain
from policy.facts import FactContext
from policy.load import Policy
from runtime.definition.catalog import Definitions

_MEMBERS = frozenset({"operation", "input", "before", "run"})
_CONTEXT = {field.name: type(field.default) for field in fields(FactContext)}


@dataclass(frozen=True, slots=True)
class DescribedAction:
    """An operation and its input; ``before`` as a pre-read would find it; ``context`` holds facts of the run."""

    operation: str
    input: JsonObject
    before: JsonObject | None
    context: FactContext


def read_action(data: bytes, file: str) -> DescribedAction:
    """Read ``{operation, input, before?, run?}``. ``InputError`` names the member that is wrong."""
    value = bounded_json.parse_object(data, where=file)
    unknown = sorted(value.keys() - _MEMBERS)
    if unknown:
        raise InputError(f"is not one of {', '.join(sorted(_MEMBERS))}", where=f"{file}: {unknown[0]}")
    operation = value.get("operation")
    if not isinstance(operation, str):
        raise InputError("is missing or not a text", where=f"{file}: operation")
    before = value.get("before")
    return DescribedAction(
        operation,
        _object(value.get("input", {}), f"{file}: input"),
        None if before is None else _object(before, f"{file}: before"),
        _context(_object(value.get("run", {}), f"{file}: run"), f"{file}: run"),
    )


def explain_offline(described: DescribedAction, policy: tuple[str, str]) -> Explanation:
    """Against a policy's text and file name; needs no database."""
    definitions = Definitions(catalog_of(load_settings()))
    return explain_with(definitions.compile_policy(*policy), definitions.catalog, described)


def explain_with(policy: Policy, catalog: Catalog, described: DescribedAction) -> Explanation:
    """Build the action as a run would, and judge it."""
    before = None if described.before is None else Before(described.before, None)
    action = build_action(catalog.get(described.operation), described.input, before)
    return explain(policy, action, described.context)


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
        if type(item) is not kind:
            raise InputError(f"is not {'a number' if kind is int else 'a text'}", where=f"{where}.{name}")
    return FactContext(**cast("dict[str, Any]", value))
