"""A catalog with one operation that reads and one that writes, beside the packaged ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.catalog import Catalog, Source, load_catalog
from core.errors import DefinitionError, Problem
from runtime.definition.workflow import load_workflow
from runtime.engine.model.workflow import Workflow

DECLARATIONS = """
operations:
  - name: probe.effect.apply
    handler: probe:apply
    side_effects: external_call
    risk: medium
    summary: "Set {name}"
    target: "thing/{name}"
    in_doubt: probe
    input_schema:
      type: object
      required: [name]
      properties: {name: {type: string}, value: {}}
      additionalProperties: false
    output_schema: {type: object}
  - name: probe.case.open
    kind: durable
    handler: probe:open
    side_effects: human_process
    risk: low
    summary: "Open"
    target: "case"
    in_doubt: ask
    input_schema: {type: object}
    output_schema: {type: object}
"""


@pytest.fixture(scope="session")
def declarations() -> Callable[..., Catalog]:
    """A catalog of the declarations, some of their text replaced."""

    def load(*changes: tuple[str, str]) -> Catalog:
        text = DECLARATIONS
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return load_catalog([Source("probe.yaml", text)])

    return load


@pytest.fixture(scope="session")
def compiled(declarations: Callable[..., Catalog]) -> Callable[[str], Workflow]:
    catalog = declarations()
    return lambda text: load_workflow(text, "w.yaml", catalog)


@pytest.fixture(scope="session")
def problems_of(compiled: Callable[[str], Any]) -> Callable[[str], tuple[Problem, ...]]:
    """The problems of a workflow that must not compile."""

    def find(text: str) -> tuple[Problem, ...]:
        with pytest.raises(DefinitionError) as caught:
            compiled(text)
        return caught.value.problems

    return find
