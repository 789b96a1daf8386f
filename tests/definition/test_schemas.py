"""The JSON Schemas for editors: current, valid, true to what the loaders accept, and told in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from connectors.catalog import PACKAGED, Source, catalog_of, load_catalog
from core.documents import load_document
from core.errors import DefinitionError
from core.spans import PATTERN
from policy.load import load_policy
from runtime.definition import schemas
from runtime.definition.catalog import operation_facts
from runtime.definition.model import KINDS, WorkflowDocument
from runtime.definition.people import load_directory
from runtime.definition.schemas import SchemaName, schema_text

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    SchemaName.WORKFLOW: sorted((ROOT / "examples").glob("**/workflows/*.yaml")),
    SchemaName.POLICY: sorted((ROOT / "examples").glob("**/policies/*.yaml")),
    SchemaName.DIRECTORY: [ROOT / "examples" / "directory.yaml"],
    SchemaName.OPERATIONS: [
        *(ROOT / "connectors" / system / "operations.yaml" for system in PACKAGED),
        *sorted((ROOT / "examples").glob("**/operations/*.yaml")),
    ],
}

STEP = "workflow: w\nversion: 1\nsteps:\n  - "
RULE = "policy: p\nversion: 1\nrules:\n  - "
PEOPLE = "directory: d\npeople: [{id: ann, name: Ann}]\n"
BROKEN = {
    "unknown key": (SchemaName.WORKFLOW, STEP + "{id: a, do: x.y, wiht: {}}"),
    "two kinds in one step": (SchemaName.WORKFLOW, STEP + "{id: a, do: x.y, if: '${{ true }}'}"),
    "a step of no kind": (SchemaName.WORKFLOW, STEP + "{id: a}"),
    "a kind without a value": (SchemaName.WORKFLOW, STEP + "{id: a, do: }"),
    "no steps": (SchemaName.WORKFLOW, "workflow: w\nversion: 1\nsteps: []"),
    "a name in capitals": (SchemaName.WORKFLOW, "workflow: W\nversion: 1\nsteps: [{id: a, do: x.y}]"),
    "a number as text": (SchemaName.WORKFLOW, "workflow: w\nversion: '1'\nsteps: [{id: a, do: x.y}]"),
    "a duration that is none": (SchemaName.WORKFLOW, "workflow: w\nversion: 1\nsla: 4h\nsteps: [{id: a, do: x.y}]"),
    "months": (SchemaName.WORKFLOW, "workflow: w\nversion: 1\nsla: P1M\nsteps: [{id: a, do: x.y}]"),
    "an unknown reducer": (
        SchemaName.WORKFLOW,
        "workflow: w\nversion: 1\nchannels: {a: {reduce: add}}\nsteps: [{id: a, do: x.y}]",
    ),
    "an id that is a subtraction": (SchemaName.WORKFLOW, STEP + "{id: my-step, do: x.y}"),
    "an id that is a constant": (SchemaName.WORKFLOW, STEP + "{id: 'true', do: x.y}"),
    "no rules": (SchemaName.POLICY, "policy: p\nversion: 1\nrules: []"),
    "nobody to approve": (SchemaName.POLICY, RULE + "{id: a, match: {operation: '*'}, outcome: needs_approval}"),
    "an empty list of approvers": (
        SchemaName.POLICY,
        RULE + "{id: a, match: {operation: '*'}, outcome: needs_approval, approvers: []}",
    ),
    "terms of no approval": (SchemaName.POLICY, RULE + "{id: a, match: {operation: '*'}, outcome: deny, tier: high}"),
    "an outcome that is none": (SchemaName.POLICY, RULE + "{id: a, match: {operation: x.*}, outcome: perhaps}"),
    "a match of nothing": (SchemaName.POLICY, RULE + "{id: a, match: {}, outcome: allow}"),
    "two kinds of group": (
        SchemaName.POLICY,
        RULE + "{id: a, match: {operation: x}, outcome: needs_approval, approvers: [{group: a, slack_group: b}]}",
    ),
    "no people": (SchemaName.DIRECTORY, "directory: d"),
    "a Slack name": (SchemaName.DIRECTORY, "directory: d\npeople: [{id: ann, name: Ann, slack: '@ann'}]"),
    "a group's name that is none": (SchemaName.DIRECTORY, PEOPLE + "groups: {'-': [ann]}"),
    "nothing declared": (SchemaName.OPERATIONS, "operations: []"),
    "an unknown risk": (
        SchemaName.OPERATIONS,
        """
operations:
  - {name: a.b, handler: a:b, side_effects: none, risk: some, summary: s, target: t, input_schema: {type: object},
     output_schema: {type: object}}
""",
    ),
}


def _load(name: SchemaName, text: str) -> None:
    """Load the document as the product does, as far as it is read without a catalog."""
    from core.validation import validate

    document = load_document(text, "x.yaml")
    match name:
        case SchemaName.WORKFLOW:
            content = validate(document, WorkflowDocument)
            if any(len(step.kinds()) != 1 for step in content.steps):
                raise DefinitionError((document.problem((), "kinds"),))
        case SchemaName.POLICY:
            load_policy(text, "x.yaml", operation_facts(load_catalog()))
        case SchemaName.DIRECTORY:
            load_directory(text, "x.yaml")
        case SchemaName.OPERATIONS:
            catalog_of([Source("x.yaml", text)])


def schema(name: SchemaName) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(schema_text(name))
    return found


def _faults(name: SchemaName, text: str) -> list[str]:
    return [fault.message for fault in Draft202012Validator(schema(name)).iter_errors(load_document(text, "x").value)]


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(item)


@pytest.mark.parametrize("name", SchemaName)
def test_a_schema_is_current_and_is_one(name: SchemaName) -> None:
    written = ROOT / "docs" / "schemas" / f"{name}.schema.json"
    assert written.read_text(encoding="utf-8") == schema_text(name), "Run: .venv/bin/python tools/generate_docs.py"
    found = schema(name)
    Draft202012Validator.check_schema(found)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert found["$id"] == f"urn:counterseal:schema:{name}"
    assert found["title"].startswith("Counterseal ")
    assert found["description"]


def test_only_schemas_are_in_the_folder() -> None:
    written = {file.name for file in (ROOT / "docs" / "schemas").iterdir()}
    assert written == {f"{name}.schema.json" for name in SchemaName}


@pytest.mark.parametrize("name", SchemaName)
@pytest.mark.req("X-1")
def test_every_example_is_valid(name: SchemaName) -> None:
    assert EXAMPLES[name]
    for file in EXAMPLES[name]:
        text = file.read_text(encoding="utf-8")
        assert _faults(name, text) == [], file
        assert _faults(name, text + "\nunknown_key: 1\n"), file


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_refused_by_schema_and_loader_alike(case: str) -> None:
    name, text = BROKEN[case]
    assert _faults(name, text)
    with pytest.raises(DefinitionError):
        _load(name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (SchemaName.WORKFLOW, STEP + "{id: a, do: x.y, with: {name: [1, null, {b: c}]}}"),
        (SchemaName.WORKFLOW, STEP + "{if: '${{ true }}', then: [{id: a, do: x.y}], else: [{id: b, do: x.y}]}"),
        (SchemaName.WORKFLOW, STEP + "{foreach: '${{ [1] }}', as: one, max_parallel: 50, steps: [{id: a, do: x.y}]}"),
        (
            SchemaName.WORKFLOW,
            STEP + "{id: a, approve: {summary: s, approvers: {group: g}, expires: P1W2DT3H4M5.5S, remind: [PT1H]}}",
        ),
        (SchemaName.POLICY, RULE + "{id: a, match: {operation: '*'}, outcome: deny}"),
        (
            SchemaName.POLICY,
            RULE + "{id: a, match: {connector: slack}, outcome: needs_approval, approvers: [{slack_group: S1, of: 2}]}",
        ),
        (SchemaName.DIRECTORY, PEOPLE + "groups: {a.b@c: [ann], empty: []}"),
    ],
)
def test_what_the_loader_accepts_the_schema_accepts(name: SchemaName, text: str) -> None:
    _load(name, text)
    assert _faults(name, text) == []


def test_every_kind_of_step_is_a_key_of_it() -> None:
    step = schema(SchemaName.WORKFLOW)["$defs"]["StepDocument"]
    assert set(KINDS) <= set(step["properties"])
    *calls, alone = step["oneOf"]
    assert [one["required"] for one in calls] == [[kind] for kind in KINDS]
    assert alone["anyOf"] == [{"required": ["set"]}, {"required": ["reference"]}]


def test_every_key_is_told_in_words() -> None:
    """Editors show them; a key that is new needs its line in runtime/definition/key_descriptions.toml."""
    keys: dict[str, set[str]] = {}
    for name in SchemaName:
        found = schema(name)
        keys[f"{name.value.capitalize()}Document"] = set(found["properties"])
        keys |= {title: set(part.get("properties", {})) for title, part in found.get("$defs", {}).items()}
    told = {model: set(words) for model, words in schemas.descriptions().items()}
    assert told == {model: keys.get(model) for model in told}
    assert {"WorkflowDocument", "StepDocument", "PolicyDocument", "RuleDocument", "Operation"} <= set(told)


def test_the_words_are_plain() -> None:
    for name in SchemaName:
        for part in _parts(schema(name)):
            words = part.get("description")
            assert not isinstance(words, str) or ("``" not in words and not re.search(r"[^\n]\n[^\n]", words)), words


def test_durations_have_their_pattern() -> None:
    sla = json.dumps(schema(SchemaName.WORKFLOW)["properties"]["sla"])
    assert json.dumps(PATTERN) in sla
    assert "PT8H" in sla
