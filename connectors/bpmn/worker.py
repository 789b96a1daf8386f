"""Our side of the external task pattern: tasks of one topic, fetched by long polling, are completions of waits.

https://docs.camunda.org/manual/7.21/user-guide/process-engine/external-tasks/
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from connectors.bpmn.client import NOT_FOUND, EngineClient
from connectors.bpmn.variables import OWN_PREFIX, holds, plain, text
from connectors.port import Completion, Failure, Refused
from core.canonical import Json, JsonObject
from core.errors import InputError, TransportError

LOCK_SECONDS = 60
TASKS_MAX = 10
WAIT_SECONDS_MAX = 1800.0  # the engine's own limit
ANSWER_SECONDS = 10.0
ANSWER_BYTES_MAX = 32 * 1024 * 1024
ERROR_VARIABLE = f"{OWN_PREFIX}error"
_NO_KEY = "This process has no business key that Counterseal could know: it was not started by Counterseal."


class TaskWorker:
    """Holds nothing: what was fetched is locked in the engine, and its id is all that completing it needs."""

    def __init__(self, client: EngineClient, topic: str, worker_id: str) -> None:
        self._client = client
        self._topic = topic
        self._worker_id = worker_id

    async def fetch(self, wait_seconds: float) -> Sequence[Completion]:
        """``POST /external-task/fetchAndLock``, waiting at most so long for the first. ``TransportError`` if it fails.

        https://docs.camunda.org/manual/7.21/reference/rest/external-task/fetch/
        """
        wait = min(max(wait_seconds, 0.0), WAIT_SECONDS_MAX)
        topic: JsonObject = {"topicName": self._topic, "lockDuration": LOCK_SECONDS * 1000, "deserializeValues": False}
        body: JsonObject = {"workerId": self._worker_id, "maxTasks": TASKS_MAX, "topics": [topic]}
        if wait > 0:
            body["asyncResponseTimeout"] = max(int(wait * 1000), 1)
        path, seconds = "/external-task/fetchAndLock", wait + ANSWER_SECONDS
        answer = await self._client.send("POST", path, body, timeout_seconds=seconds, bytes_max=ANSWER_BYTES_MAX)
        if isinstance(answer, Failure):
            raise TransportError(f"the BPMN engine's external tasks cannot be fetched: {answer.message}.")
        if not isinstance(answer, list):
            raise TransportError("the BPMN engine answered without a list of external tasks.")
        completions: list[Completion] = []
        for task in answer:
            completion = _completion(task)
            if completion is not None:
                completions.append(completion)
            else:
                await self._refuse(task)
        return completions

    async def complete(self, task_id: str) -> None:
        """``POST /external-task/{id}/complete``. A task that is no more was completed before, or its process ended.

        https://docs.camunda.org/manual/7.21/reference/rest/external-task/post-complete/
        """
        answer = await self._act(task_id, "complete", {})
        gone = isinstance(answer, Refused) and answer.code == NOT_FOUND
        if isinstance(answer, Failure) and not gone:
            raise TransportError(f"the external task {task_id} cannot be completed: {answer.message}.")

    async def _refuse(self, task: Json) -> None:
        """A task that completes nothing of ours becomes an incident in the engine, where its people see it.

        If the engine cannot be told now, the task comes back when its lock ends, and is refused then.
        ``POST /external-task/{id}/failure``:
        https://docs.camunda.org/manual/7.21/reference/rest/external-task/post-failure/
        """
        task_id = task.get("id") if isinstance(task, dict) else None
        if isinstance(task_id, str):
            await self._act(task_id, "failure", {"errorMessage": _NO_KEY, "retries": 0, "retryTimeout": 0})

    async def _act(self, task_id: str, verb: str, more: JsonObject) -> Json | Failure:
        path, body = f"/external-task/{quote(task_id, safe='')}/{verb}", {"workerId": self._worker_id, **more}
        return await self._client.send("POST", path, body, timeout_seconds=ANSWER_SECONDS)


def _completion(task: Json) -> Completion | None:
    """What one external task says; None if it belongs to no wait.

    The business key is believed before a variable, which whoever completes a user task may write.
    """
    if not isinstance(task, dict) or not isinstance(task.get("id"), str):
        return None
    task_id, variables = str(task["id"]), task.get("variables")
    key = task.get("businessKey") or text(variables, f"{OWN_PREFIX}correlation_key")
    if not isinstance(key, str):
        return None
    if holds(variables, ERROR_VARIABLE):
        words = text(variables, ERROR_VARIABLE) or "the process reported an error without a text"
        return Completion(task_id, key, error={"code": "process_error", "message": words})
    try:
        return Completion(task_id, key, output=plain(variables))
    except InputError as fault:
        return Completion(task_id, key, error={"code": "unreadable_output", "message": f"the process's {fault}"})
