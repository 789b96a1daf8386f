"""The page docs/language.md: every example runs to the end that its comment says; together they show every key.

``<!-- run: {...} -->`` above a block starts it once; a block may have several. Members, all optional: ``trigger``;
``lost`` (a path of the BPMN engine that does what it is told and never answers);
``then``, what the outside does (``days`` pass, a ``signal`` with its ``output``, a ``report`` of what a durable
operation began, a ``vote``, a ``task``, an ``extend``, a ``cancel`` of another run); and what is expected: ``expect``
(the run's status), ``state`` (some channels), ``result``, ``error`` (some members), ``reference``, ``runs`` (others, by
workflow), ``ledger``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args
from uuid import UUID

import pytest
from pydantic import BaseModel

from connectors.catalog import load_catalog
from core.documents import load_document
from core.errors import CountersealError
from core.validation import validate
from runtime.definition.model import KINDS, SET, WorkflowDocument
from runtime.definition.workflow import load_workflow
from runtime.engine.model.graph import Branch, Reducer
from sandbox.faults import Effect, Fault, FaultKind

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language.md"
_BLOCK = re.compile(r"((?:<!-- run: (?:[^-]|-(?!->))*-->\n)*)```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RUN = re.compile(r"<!-- run: (.*?) -->", re.DOTALL)

CLASSES = {"definition", "expression", "transport", "timeout", "authorization", "consistency"}

POLICY = """
policy: language
version: 1
rules:
  - {id: read, match: {connector: servicenow}, when: action.side_effects == 'none', outcome: allow}
  - {id: note, match: {operation: servicenow.incident.add_work_note}, outcome: allow}
  - {id: post, match: {connector: slack}, outcome: allow}
  - {id: ask, match: {connector: bpmn}, outcome: allow}
  - {id: think, match: {connector: model}, outcome: allow}
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """One example of the page: its line, its text, and each run that is to be made of it."""

    line: int
    text: str
    runs: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        return self.text.split()[1]

    @property
    def document(self) -> WorkflowDocument:
        return validate(load_document(self.text, f"language.md:{self.line}"), WorkflowDocument)


def _shown() -> list[Shown]:
    page = PAGE.read_text(encoding="utf-8")
    return [
        Shown(page.count("\n", 0, match.start(2)), match[2], tuple(json.loads(run) for run in _RUN.findall(match[1])))
        for match in _BLOCK.finditer(page)
    ]


SHOWN = _shown()
RUNS = [(shown, run) for shown in SHOWN for run in shown.runs]


def _named(shown: Shown, number: int) -> str:
    return f"{shown.name}-{number}"


@pytest.mark.req("X-18")
@pytest.mark.parametrize(("shown", "run"), RUNS, ids=[_named(shown, number) for number, (shown, _) in enumerate(RUNS)])
async def test_an_example_runs_as_it_says(office: Any, shown: Shown, run: dict[str, Any]) -> None:
    known = {"trigger", "lost", "then", "expect", "state", "result", "error", "reference", "runs", "ledger"}
    assert run.keys() <= known, f"line {shown.line}"
    office.insert("incident", "i1", number="INC0010001", short_description="Mail is slow", priority="3", state="1")
    await office.publish(*(other.text for other in SHOWN if other.name in shown.text), policy=POLICY)
    if "lost" in run:
        office.world.bpmn.faults.inject(Fault(run["lost"], FaultKind.RESET, Effect.LANDED))
    run_id = await office.start(shown.name, run.get("trigger", {}))
    await office.go_on()
    for action in run.get("then", ()):
        await _act(office, run_id, action)
        await office.go_on()
    found = {"status": await office.status(run_id), "error": await office.error(run_id)}
    assert found["status"] == run.get("expect", "succeeded"), found
    channels = await office.channels(run_id)
    assert {name: channels[name] for name in run.get("state", {})} == run.get("state", {})
    assert {name: found["error"][name] for name in run.get("error", {})} == run.get("error", {})
    if "result" in run:
        assert await office.result(run_id) == run["result"]
    await _others(office, run_id, run)
    await office.verified(run_id)


async def _others(office: Any, run_id: UUID, run: dict[str, Any]) -> None:
    known = (await office.books.run(run_id)).reference
    assert run.get("reference", known) == known
    for workflow, status in run.get("runs", {}).items():
        assert (await office.books.run(workflow=workflow)).status == status
    for channel, values in run.get("ledger", {}).items():
        assert [entry.value for entry in await office.books.entries(channel=channel)] == values


async def _act(office: Any, run_id: UUID, action: dict[str, Any]) -> None:
    match action:
        case {"days": days}:
            await office.pass_days(days)
        case {"signal": key}:
            assert (await office.signal(key, output=action.get("output"))).status_code == 200
        case {"report": output}:
            wait = await office.books.wait(kind="external")
            assert (await office.signal(wait.correlation_key, output=output)).status_code == 200
        case {"vote": [person, choice]}:
            assert (await office.vote(person, choice)).status_code == 200
        case {"hold": [person, choice]}:
            assert (await office.answer(run_id, person, choice)).status_code == 200
        case {"task": [person, value]}:
            assert (await office.complete(person, value)).status_code == 200
        case {"cancel": workflow}:
            other = await office.books.run(workflow=workflow)
            answer = await office.http("POST", f"/v1/runs/{other.id}/cancel", json={"reason": "not needed"})
            assert answer.status_code < 300, answer.text
        case {"extend": source}:
            assert (await office.extend(run_id, source)).status_code == 201
        case _:
            raise AssertionError(f"nobody knows how to do {action}")


def test_every_example_is_run() -> None:
    assert len(SHOWN) > 20
    assert PAGE.read_text(encoding="utf-8").count("```yaml") == len(SHOWN)
    assert [shown.line for shown in SHOWN if not shown.runs] == []


def test_every_key_of_the_language_is_in_an_example_that_runs() -> None:
    used = {pair for shown in SHOWN for pair in _used(shown.document)}
    known = {(model.__name__, name) for model in _models(WorkflowDocument, set()) for name in model.model_fields}
    assert known - used == set()


def test_every_kind_branch_and_reducer_is_in_an_example_that_runs() -> None:
    documents = [shown.document for shown in SHOWN]
    steps = [step for document in documents for step in _parts(document) if hasattr(step, "kinds")]
    assert {kind for step in steps for kind in step.kinds()} == {*KINDS, SET}
    assert {branch for step in steps for branch in Branch if getattr(step, branch) is not None} == set(Branch)
    assert {channel.reduce for document in documents for channel in document.channels.values()} == set(Reducer)


def test_every_variable_of_the_language_is_in_an_example() -> None:
    texts = "\n".join(shown.text for shown in SHOWN)
    for name in ("error.class", "error.code", "error.message", "error.step", "signal.by", "signal.kind", "index"):
        assert re.search(rf"\b{name}\b", texts), name


@pytest.mark.req("X-18")
def test_every_error_class_is_told_and_ends_an_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = re.findall(
        r"^\| `(\w+)` \|", page[page.index("### Error classes") : page.index("## Expressions")], re.MULTILINE
    )
    assert set(told) == CLASSES
    assert {one.code for one in _subclasses(CountersealError)} >= CLASSES
    assert {run["error"]["class"] for _, run in RUNS if "class" in run.get("error", {})} == CLASSES


def test_the_examples_compile_without_an_installation() -> None:
    catalog = load_catalog()
    for shown in SHOWN:
        assert load_workflow(shown.text, f"language.md:{shown.line}", catalog).name == shown.name


def _subclasses(root: type[Any]) -> Iterator[Any]:
    for one in root.__subclasses__():
        yield one
        yield from _subclasses(one)


def _parts(part: object) -> Iterator[BaseModel]:
    """Every model inside a document, itself included."""
    if isinstance(part, BaseModel):
        yield part
        for name in part.model_fields_set:
            yield from _parts(getattr(part, name))
    elif isinstance(part, list | tuple):
        for item in part:
            yield from _parts(item)
    elif isinstance(part, dict):
        for item in part.values():
            yield from _parts(item)


def _used(document: WorkflowDocument) -> Iterator[tuple[str, str]]:
    for part in _parts(document):
        yield from ((type(part).__name__, name) for name in part.model_fields_set)


def _models(model: type[BaseModel], found: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """The models of the language, from the whole document down."""
    if model not in found:
        found.add(model)
        for field in model.model_fields.values():
            for inner in _types(field.annotation):
                _models(inner, found)
    return found


def _types(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, UnionType) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)
