"""Packaged operations, whole: what is declared of each, and which facts a policy may read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import to_builtins

from connectors.catalog import load_catalog
from runtime.definition.catalog import operation_facts
from tests.support.whole import as_it_was

EXPECTED = Path(__file__).with_name("whole_catalog.json")


def test_every_packaged_operation_is_declared_as_it_was() -> None:
    catalog = load_catalog()
    facts = operation_facts(catalog)
    found: dict[str, Any] = {}
    for name, operation in sorted(catalog.operations.items()):
        of_policies = to_builtins(facts[name], enc_hook=sorted)
        of_policies |= {key: sorted(of_policies[key]) for key in ("before", "arguments")}
        found[name] = operation.model_dump(mode="json") | {
            "digest": operation.digest,
            "connector, function": [operation.connector, operation.function],
            "has an effect, stays inside": [operation.has_effect, operation.stays_inside],
            "facts": of_policies,
        }
    assert set(found) == set(catalog.packaged)
    as_it_was(EXPECTED, found)
