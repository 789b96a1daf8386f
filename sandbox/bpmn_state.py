"""The processes of the BPMN stand-in, running and ended, and their external tasks with locks."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sandbox.bpmn_model import Activity, Execution, ExecutionError, Model
from sandbox.watch import Watched

ACTIVE = "ACTIVE"
COMPLETED = "COMPLETED"
TERMINATED = "EXTERNALLY_TERMINATED"


class EngineError(Exception):
    """A refusal in the engine's words, with its HTTP status and the exception class of the real engine."""

    def __init__(self, status: int, message: str, kind: str = "RestException") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


@dataclass(slots=True, eq=False)
class ExternalTask:
    """One external task. It can be fetched if ``retries`` is not 0 and no lock is in force."""

    instance: Instance
    activity: Activity
    created: float
    worker_id: str = ""
    locked_until: float = 0.0
    retries: int | None = None
    error_message: str = ""

    @property
    def task_id(self) -> str:
        return self.activity.activity_id

    def variables(self) -> dict[str, object]:
        """The variables that the task can see: its own input parameters before the process's variables."""
        return {**self.instance.execution.variables, **self.activity.parameters}


@dataclass(slots=True, eq=False)
class Instance:
    """One process. ``business_key`` is not unique: the real engine allows any number of processes with the same key."""

    instance_id: str
    model: Model
    business_key: str | None
    execution: Execution
    started: float
    state: str = ACTIVE
    ended: float | None = None
    external: dict[str, ExternalTask] = field(default_factory=dict)
    claimed: dict[str, str] = field(default_factory=dict)
    worked: list[str] = field(default_factory=list)

    def user_tasks(self) -> list[Activity]:
        waiting = self.execution.activities() if self.state == ACTIVE else []
        return [activity for activity in waiting if not activity.topic]


class BpmnState(Watched):
    """The state of the engine, in memory only. ``instances`` holds every process ever started, in order."""

    def __init__(self, models: Mapping[str, Model], *, clock: Callable[[], float]) -> None:
        super().__init__()
        self.models = models
        self.clock = clock
        self.instances: dict[str, Instance] = {}
        self.on_external: list[Callable[[ExternalTask], None]] = []

    def start(self, key: str, business_key: str | None, variables: Mapping[str, object]) -> Instance:
        model = self.models.get(key)
        if model is None:
            raise EngineError(404, f"No matching process definition with key: {key} and no tenant-id")
        try:
            execution = model.start(variables)
        except ExecutionError as error:
            raise EngineError(500, f"Cannot instantiate process definition {key}: {error}") from error
        instance = Instance(str(uuid.uuid4()), model, business_key, execution, self.clock())
        self.instances[instance.instance_id] = instance
        self._settle(instance)
        return instance

    def running(self) -> Iterable[Instance]:
        return (instance for instance in self.instances.values() if instance.state == ACTIVE)

    def delete(self, instance_id: str) -> None:
        instance = self.instances.get(instance_id)
        if instance is None or instance.state != ACTIVE:
            message = f"Process instance with id {instance_id} does not exist"
            raise EngineError(404, message, "InvalidRequestException")
        self._end(instance, TERMINATED)

    def complete_user_task(self, task_id: str, variables: Mapping[str, object]) -> None:
        for instance in self.running():
            if any(task.activity_id == task_id for task in instance.user_tasks()):
                instance.worked.append(task_id)
                self._complete(instance, task_id, variables)
                return
        raise EngineError(500, f"Cannot complete task {task_id}: Cannot find task with id {task_id}: task is null")

    def claim(self, task_id: str, user: str) -> None:
        """Assign an open user task to somebody."""
        for instance in self.running():
            if any(task.activity_id == task_id for task in instance.user_tasks()):
                instance.claimed[task_id] = user
                return
        raise EngineError(500, f"Cannot find task with id {task_id}: task is null")

    def correlate(self, message: str, variables: Mapping[str, object], wanted: Callable[[Instance], bool]) -> Instance:
        """Deliver a message to the one process that waits for it. No match, or several, is an error."""
        found = [one for one in self.running() if wanted(one) and one.execution.awaits(message)]
        if len(found) != 1:
            reason = "No process definition or execution matches" if not found else f"{len(found)} executions match"
            raise EngineError(400, f"Cannot correlate message '{message}': {reason} the parameters")
        try:
            found[0].execution.correlate(message, variables)
        except ExecutionError as error:
            raise EngineError(500, str(error), "ProcessEngineException") from error
        self._settle(found[0])
        return found[0]

    def external_tasks(self) -> Iterable[ExternalTask]:
        return (task for instance in self.running() for task in instance.external.values())

    def fetchable(self, topics: Iterable[str]) -> list[ExternalTask]:
        """The external tasks that are unlocked and have retries left, the oldest first."""
        now, wanted = self.clock(), frozenset(topics)
        return [
            task
            for task in self.external_tasks()
            if task.activity.topic in wanted and task.locked_until <= now and task.retries != 0
        ]

    def complete_external(self, task_id: str, worker_id: str, variables: Mapping[str, object]) -> None:
        task = self._locked(task_id, worker_id, "completed")
        self._complete(task.instance, task_id, variables)

    def fail_external(self, task_id: str, worker_id: str, message: str, retries: int, retry_seconds: float) -> None:
        """Report a failure, release the lock. With 0 ``retries`` the task becomes an incident: nobody gets it again."""
        task = self._locked(task_id, worker_id, "failed")
        task.error_message, task.retries = message, retries
        task.locked_until = self.clock() + retry_seconds
        self.changed()

    def _locked(self, task_id: str, worker_id: str, what: str) -> ExternalTask:
        """The task, if this worker locked it last. The lock may have expired, unless another worker took the task."""
        task = next((one for one in self.external_tasks() if one.task_id == task_id), None)
        if task is None:
            raise EngineError(404, f"External task with id {task_id} does not exist")
        if task.worker_id != worker_id:
            owner = f"It is locked by worker '{task.worker_id}'" if task.worker_id else "It is not locked"
            raise EngineError(400, f"External Task {task_id} cannot be {what} by worker '{worker_id}'. {owner}.")
        return task

    def _complete(self, instance: Instance, activity_id: str, variables: Mapping[str, object]) -> None:
        try:
            instance.execution.complete(activity_id, variables)
        except ExecutionError as error:
            raise EngineError(500, f"Cannot complete task {activity_id}: {error}") from error
        self._settle(instance)

    def _settle(self, instance: Instance) -> None:
        """Update the external tasks after a step, or end the process."""
        if instance.execution.ended:
            self._end(instance, COMPLETED)
            return
        waiting = {one.activity_id: one for one in instance.execution.activities() if one.topic}
        instance.external = {
            name: instance.external.get(name) or ExternalTask(instance, activity, self.clock())
            for name, activity in waiting.items()
        }
        for task in instance.external.values():
            for listener in self.on_external:
                listener(task)
        self.changed()

    def _end(self, instance: Instance, state: str) -> None:
        instance.state, instance.ended = state, self.clock()
        instance.external = {}
        self.changed()
