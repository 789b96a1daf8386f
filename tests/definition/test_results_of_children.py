"""Names below the output of another workflow are looked up in its result, with the place and the nearest name."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.catalog import load_catalog
from core.errors import DefinitionError
from runtime.definition.workflow import load_workflow

CHILD = """workflow: inner
version: 1
result: {ticket: "${{ run.id }}", urgent: false, owner: {name: "of ${{ run.id }}"}, parts: [1], any: "${{ trigger }}"}
steps: [{set: {}, reference: r}]
"""
PARENT = """workflow: outer
version: 1
channels: {seen: {}}
steps:
  - {id: c, run: %s, with: {x: 1}, set: {seen: "${{ %s }}"}}
  - {reference: "${{ string(%s) }}"}
"""
# What is read of the child's output, and what there is instead; None if it is right.
READ: dict[str, str | None] = {
    "ticket": None,
    "owner.name": None,
    "any.thing.at.all": None,
    "parts[0]": None,
    "tiket": "ticket",
    "owner.nam": "name",
    "urgent.now": "no members",
    "Ticket": "ticket",
}


def children() -> dict[str, Any]:
    given = load_workflow(CHILD, "inner.yaml", load_catalog(), typed=True).gives
    return {"inner": given, "inner@1": given}


@pytest.mark.parametrize("name", ["inner", "inner@1"])
@pytest.mark.parametrize("read", READ)
def test_a_misspelt_output_of_a_child_is_found_with_its_place(read: str, name: str) -> None:
    """In the step's own `set`, and in every step behind it."""
    wanted = READ[read]
    for text, line in (
        (PARENT % (name, f"output.{read}", "1"), 5),
        (PARENT % (name, "1", f"steps.c.output.{read}"), 6),
    ):
        if wanted is None:
            load_workflow(text, "outer.yaml", load_catalog(), typed=True, children=children())
            continue
        with pytest.raises(DefinitionError) as raised:
            load_workflow(text, "outer.yaml", load_catalog(), typed=True, children=children())
        (problem,) = raised.value.problems
        assert (problem.line, wanted in problem.remedy) == (line, True), problem


@pytest.mark.parametrize(
    ("result", "read", "right"),
    [
        ("", "anything", False),
        ("result: plain\n", "anything", False),
        ("result: '${{ trigger }}'\n", "anything", True),
        ("result: '${{ trigger }}'\ntrigger: {type: object, properties: {one: {}}}\n", "one", True),
        ("result: '${{ trigger }}'\ntrigger: {type: object, properties: {one: {}}}\n", "other", False),
    ],
)
def test_a_result_is_known_as_far_as_it_is_written(result: str, read: str, right: bool) -> None:
    child = "workflow: inner\nversion: 1\n" + result + "steps: [{set: {}, reference: r}]\n"
    known = {"inner": load_workflow(child, "inner.yaml", load_catalog(), typed=True).gives}
    text = PARENT % ("inner", f"output.{read}", "1")
    try:
        load_workflow(text, "outer.yaml", load_catalog(), typed=True, children=known)
    except DefinitionError:
        assert not right
    else:
        assert right
