"""AgentDojo's tools as operations, with policies over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from connectors.catalog import Catalog, Source, catalog_of
from connectors.operation import Operation
from core.canonical import Json, JsonObject
from policy.load import load_policy
from policy.sets import PolicySet
from runtime.definition.catalog import operation_facts

HERE = Path(__file__).parent
OPERATIONS, POLICIES = HERE / "operations", HERE / "policies"


@dataclass(frozen=True)
class Declared:
    """Operations, and policies that are in force together; ``operations`` and ``texts`` are their documents."""

    operations: tuple[Source, ...]
    texts: tuple[Source, ...]
    catalog: Catalog
    policies: PolicySet

    @classmethod
    def of(cls, operations: Iterable[Path], policies: Iterable[Path]) -> Declared:
        """Load declarations and policies. Raises DefinitionError."""
        declared, texts = sources(operations), sources(policies)
        catalog = catalog_of(declared)
        facts = operation_facts(catalog)
        return cls(declared, texts, catalog, PolicySet([load_policy(one.text, one.file, facts) for one in texts]))

    def operation(self, suite: str, tool: str) -> Operation:
        """The operation whose handler is this tool of this suite."""
        connector = connector_of(suite)
        return next(one for one in self.catalog.operations.values() if one.handler == f"{connector}:{tool}")


def sources(paths: Iterable[Path]) -> tuple[Source, ...]:
    """The documents at these paths."""
    return tuple(Source(path.name, path.read_text(encoding="utf-8")) for path in sorted(paths))


def connector_of(suite: str) -> str:
    """The connector of a suite. The name ``slack`` is taken by our own connector."""
    return "team" if suite == "slack" else suite


def output_of(result: Json) -> JsonObject:
    """A tool's result as the output of an operation, which must be an object."""
    if isinstance(result, dict):
        return result
    return {"items": result} if isinstance(result, list) else {"value": result}
