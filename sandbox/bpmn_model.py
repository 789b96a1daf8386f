"""BPMN models, and their execution by SpiffWorkflow: the only module that knows that library."""

# mypy: disable-error-code="import-untyped,misc"
# SpiffWorkflow has no types, so its classes are Any to the type checker.

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, ClassVar, Final

from SpiffWorkflow.bpmn import BpmnEvent, BpmnWorkflow
from SpiffWorkflow.bpmn.parser import BpmnParser, BpmnValidator, TaskParser
from SpiffWorkflow.bpmn.parser.util import full_tag
from SpiffWorkflow.bpmn.script_engine import PythonScriptEngine
from SpiffWorkflow.bpmn.specs.defaults import UserTask
from SpiffWorkflow.bpmn.specs.event_definitions.message import MessageEventDefinition
from SpiffWorkflow.util.task import TaskState

_CAMUNDA: Final = "{http://camunda.org/schema/1.0/bpmn}"


class ExecutionError(Exception):
    """The model cannot go on, for example because a condition names an unknown variable. Nothing has changed."""


@dataclass(frozen=True, slots=True)
class Activity:
    """A place where an execution waits: a user task, or, if it has a ``topic``, an external task with parameters."""

    activity_id: str
    element: str
    name: str
    topic: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)


class _ExternalTask(UserTask):
    """An external task. For the library it is just another task that somebody else completes."""

    def __init__(self, spec: Any, element: str, topic: str = "", parameters: Any = None, **kwargs: Any) -> None:
        super().__init__(spec, element, **kwargs)
        self.topic = topic
        self.parameters: dict[str, object] = parameters or {}


class _ExternalTaskParser(TaskParser):
    """Parses service tasks with ``camunda:type="external"``; no other kind can be executed here."""

    def create_task(self) -> _ExternalTask:
        if self.node.get(f"{_CAMUNDA}type") != "external":
            self.raise_validation_exception("only external service tasks are supported")
        given = {item.get("name"): item.text or "" for item in self.node.iter(f"{_CAMUNDA}inputParameter")}
        topic = self.node.get(f"{_CAMUNDA}topic")
        return _ExternalTask(self.spec, self.bpmn_id, topic, given, **self.bpmn_attributes)


class _Parser(BpmnParser):
    OVERRIDE_PARSER_CLASSES: ClassVar[dict[str, tuple[type, type]]] = {
        full_tag("serviceTask"): (_ExternalTaskParser, _ExternalTask)
    }


class _Expressions(PythonScriptEngine):
    """The language ``${…}`` over process variables: the common part of Camunda's language and Python."""

    def __init__(self, variables: dict[str, object]) -> None:
        super().__init__()
        self.variables = variables

    def evaluate(self, task: Any, expression: str, external_context: Any = None) -> object:
        inner = expression.strip().removeprefix("${").removesuffix("}")
        try:
            found: object = self.environment.evaluate(inner, dict(self.variables))
        except Exception as error:  # an expression of a model can raise anything
            raise ExecutionError(f"Cannot evaluate expression {expression}: {error}") from error
        return found


class Execution:
    """One running process. Each step is atomic: if it raises ``ExecutionError``, nothing has changed."""

    def __init__(self, spec: Any, variables: Mapping[str, object]) -> None:
        self._workflow = BpmnWorkflow(spec, script_engine=_Expressions(dict(variables)))
        self._go_on(self._workflow)

    @property
    def variables(self) -> dict[str, object]:
        """The process variables."""
        found: dict[str, object] = self._workflow.script_engine.variables
        return found

    @property
    def ended(self) -> bool:
        """True if an end event was reached."""
        return bool(self._workflow.completed)

    def activities(self) -> list[Activity]:
        """The places where it waits now."""
        ready = self._workflow.get_tasks(state=TaskState.READY, manual=True)
        return [_activity(task) for task in ready]

    def complete(self, activity_id: str, variables: Mapping[str, object]) -> None:
        """Complete one of ``activities`` and go on, with these variables set."""
        workflow = self._attempt(variables)
        next(task for task in workflow.get_tasks(state=TaskState.READY) if str(task.id) == activity_id).run()
        self._go_on(workflow)

    def correlate(self, message: str, variables: Mapping[str, object]) -> None:
        """Deliver a message for which ``awaits`` is true."""
        workflow = self._attempt(variables)
        workflow.send_event(BpmnEvent(MessageEventDefinition(message), {}))
        self._go_on(workflow)

    def awaits(self, message: str) -> bool:
        """True if the process waits for a message of this name now."""
        return not self.ended and any(event.name == message for event in self._workflow.waiting_events())

    def _attempt(self, variables: Mapping[str, object]) -> Any:
        workflow = copy.deepcopy(self._workflow)
        workflow.script_engine.variables.update(variables)
        return workflow

    def _go_on(self, workflow: Any) -> None:
        workflow.do_engine_steps()
        self._workflow = workflow


@dataclass(frozen=True, slots=True)
class Model:
    """One process definition. ``key`` is the id of its process element."""

    key: str
    name: str
    spec: Any

    def start(self, variables: Mapping[str, object]) -> Execution:
        """Run it until it first waits or ends. ``ExecutionError`` if it fails before."""
        return Execution(self.spec, variables)


def load_models() -> dict[str, Model]:
    """The models in ``sandbox/processes``, each checked against the schema of BPMN 2.0, by key."""
    parser = _Parser(validator=BpmnValidator())
    for file in sorted(files("sandbox").joinpath("processes").iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".bpmn"):
            parser.add_bpmn_str(file.read_bytes(), file.name)
    specs = {key: parser.get_spec(key) for key in parser.get_process_ids()}
    return {key: Model(key, spec.description or key, spec) for key, spec in specs.items()}


def _activity(task: Any) -> Activity:
    spec = task.task_spec
    name = spec.bpmn_name or spec.bpmn_id
    if isinstance(spec, _ExternalTask):
        return Activity(str(task.id), spec.bpmn_id, name, spec.topic, spec.parameters)
    return Activity(str(task.id), spec.bpmn_id, name)
