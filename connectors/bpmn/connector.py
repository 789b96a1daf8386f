"""A BPMN engine as a connector: starts a process once, looks for it, ends it, and fetches its external tasks.

The business key of a process is the correlation key of the wait that it completes. The engine allows any
number of processes with one business key, so this connector must prevent a second one. External tasks:
https://docs.camunda.org/manual/7.21/user-guide/process-engine/external-tasks/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import quote

from msgspec.structs import replace

from connectors.bpmn.client import NOT_FOUND, OWN_PREFIX, BpmnSettings, EngineClient, items, plain, typed, value_of
from connectors.exchange import Unread, deadline_in, public_address, seconds_to
from connectors.port import (
    SOMEBODY,
    Call,
    Completion,
    Done,
    Failure,
    InDoubt,
    NothingBefore,
    NotSent,
    Outcome,
    Parked,
    Probe,
    ProbeVerdict,
    Refused,
)
from connectors.readback import compare
from core.canonical import Json, JsonObject
from core.errors import InputError, TransportError
from core.unkept import marker

CORRELATION_VARIABLE = f"{OWN_PREFIX}correlation_key"
CALLBACK_VARIABLE = f"{OWN_PREFIX}callback_url"
CHECK_SECONDS = 10.0
LOCK_SECONDS = 60
TASKS_MAX = 10
WAIT_SECONDS_MAX = 1800.0  # the engine's own limit
ANSWER_SECONDS = 10.0
ANSWER_BYTES_MAX = 32 * 1024 * 1024
ERROR_VARIABLE = f"{OWN_PREFIX}error"
_NO_KEY = "This process has no business key that Counterseal could know: it was not started by Counterseal."


# The id of a process with our business key, and its state in the engine (``ACTIVE``, ``COMPLETED``, …).
_Process: TypeAlias = tuple[str, str]


class BpmnConnector(NothingBefore):
    """One engine: a ``DurableConnector``, and the ``CompletionSource`` of its external tasks."""

    def __init__(self, settings: BpmnSettings) -> None:
        self._settings = settings
        self._client = EngineClient(settings)

    @property
    def target(self) -> str:
        """The address, and the account if it is known."""
        return public_address(self._settings.url, self._settings.username)

    async def perform(self, call: Call) -> Outcome:
        """Start a process, unless it exists already, or correlate a message, as the operation's handler says."""
        function = call.declaration.function
        if function == "start":
            return await self._start(call)
        if function == "correlate":
            return await self._correlate(call)
        return Refused("unknown_handler", f"the BPMN connector has no function {function!r}")

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Look for the process by its business key. The engine keeps no record of messages: these are *cannot tell*."""
        if call.declaration.function != "start":
            return Probe(ProbeVerdict.CANNOT_TELL, "the engine has no record of messages that could be asked for")
        found = await self._find(call, deadline_in(call.timeout_seconds))
        if isinstance(found, Refused | NotSent):
            return Probe.unreadable("the engine could not be asked", found)
        key, after = call.correlation_key, f"{seconds_since_intent:.0f} s after the intent"
        if found:
            instance_id, state = found[0]
            words = f"process instance {instance_id} has the business key {key} and is {state}"
            return Probe(ProbeVerdict.APPLIED, words, Done({}, instance_id))
        words = f"{after} no process, running or ended, has the business key {key}"
        seconds_left = self._settings.transaction_limit_seconds - seconds_since_intent
        return Probe.absent(words, words, seconds_left=seconds_left)

    async def cancel(self, call: Call, external_id: str | None) -> Done | Failure:
        """Delete the process and any other with its business key; its listeners run. ``Done`` if it has ended already.

        ``DELETE /process-instance/{id}``: https://docs.camunda.org/manual/7.21/reference/rest/process-instance/delete/
        """
        deadline = deadline_in(call.timeout_seconds)
        found = await self._running(call, deadline)
        if isinstance(found, Refused | NotSent):
            return found
        ids = dict.fromkeys([*([external_id] if external_id else []), *(instance_id for instance_id, _ in found)])
        canceled: list[Json] = []
        for instance_id in ids:
            path = f"/process-instance/{quote(instance_id, safe='')}"
            deleted = await self._client.send("DELETE", path, None, timeout_seconds=seconds_to(deadline))
            if isinstance(deleted, NotSent | InDoubt) or (isinstance(deleted, Refused) and deleted.code != NOT_FOUND):
                return deleted
            if not isinstance(deleted, Refused):
                canceled.append(instance_id)
        return Done({"canceled": canceled}, next(iter(ids), None))

    async def completions(self, *, wait_seconds: float) -> Sequence[Completion]:
        """Fetch external tasks of our topic, each the end of one wait; the engine locks them for us for a minute.

        ``POST /external-task/fetchAndLock``, as a long poll of ``wait_seconds``. ``TransportError`` if it fails.
        https://docs.camunda.org/manual/7.21/reference/rest/external-task/fetch/
        """
        wait, name = min(max(wait_seconds, 0.0), WAIT_SECONDS_MAX), self._settings.topic
        topic: JsonObject = {"topicName": name, "lockDuration": LOCK_SECONDS * 1000, "deserializeValues": False}
        body: JsonObject = {"workerId": self._settings.worker_id, "maxTasks": TASKS_MAX, "topics": [topic]}
        if wait > 0:
            body["asyncResponseTimeout"] = max(int(wait * 1000), 1)
        path, seconds = "/external-task/fetchAndLock", wait + ANSWER_SECONDS
        answer = await self._client.send("POST", path, body, timeout_seconds=seconds, bytes_max=ANSWER_BYTES_MAX)
        if isinstance(answer, Failure):
            raise TransportError(f"the BPMN engine's external tasks cannot be fetched: {answer.message}.")
        if not isinstance(answer, list):
            raise TransportError("the BPMN engine answered without a list of external tasks.")
        completions: list[Completion] = []
        for task in map(items, answer):
            completion = completion_of(task)
            if completion is not None:
                completions.append(replace(completion, writers=await self._workers(task.get("processInstanceId"))))
            elif isinstance(task.get("id"), str):
                # The task completes no wait of ours, so we report an incident to the engine's people. If that fails,
                # the task comes back when its lock ends, and we report it then.
                # https://docs.camunda.org/manual/7.21/reference/rest/external-task/post-failure/
                incident: JsonObject = {"errorMessage": _NO_KEY, "retries": 0, "retryTimeout": 0}
                await self._tell(str(task["id"]), "failure", incident)
        return completions

    async def _workers(self, process: Json) -> tuple[str, ...]:
        """The people who completed the process's user tasks; ``SOMEBODY`` where the engine does not name the person.

        ``GET /history/task``: https://docs.camunda.org/manual/7.21/reference/rest/history/task/get-task-query/
        """
        if not isinstance(process, str):
            return SOMEBODY
        params = {"processInstanceId": process, "finished": "true"}
        rows = await self._client.get("/history/task", params, timeout_seconds=ANSWER_SECONDS)
        assignees = [items(row).get("assignee") for row in rows] if isinstance(rows, list) else []
        named = {name.strip() for name in assignees if isinstance(name, str) and name.strip()}
        whole = bool(assignees) and all(isinstance(name, str) and name.strip() for name in assignees)
        return tuple(sorted(named if whole else {*named, *SOMEBODY}))

    async def acknowledge(self, completion: Completion) -> None:
        """Complete the external task, so the process goes on. A missing one was completed, or its process ended.

        ``POST /external-task/{id}/complete``:
        https://docs.camunda.org/manual/7.21/reference/rest/external-task/post-complete/
        """
        answer = await self._tell(completion.id, "complete", {})
        not_found = isinstance(answer, Refused) and answer.code == NOT_FOUND
        if isinstance(answer, Failure) and not not_found:
            raise TransportError(f"the external task {completion.id} cannot be completed: {answer.message}.")

    async def _tell(self, task_id: str, verb: str, more: JsonObject) -> Json | Failure:
        path = f"/external-task/{quote(task_id, safe='')}/{verb}"
        body: JsonObject = {"workerId": self._settings.worker_id, **more}
        return await self._client.send("POST", path, body, timeout_seconds=ANSWER_SECONDS)

    async def check(self) -> tuple[bool, str]:
        """Count the process definitions. ``GET /engine`` would not test the credentials: it answers anybody."""
        path = "/process-definition/count"
        answer = await self._client.get(path, {"latestVersion": "true"}, timeout_seconds=CHECK_SECONDS)
        if isinstance(answer, Refused | NotSent):
            return False, f"{answer.message}. Check COUNTERSEAL_BPMN_URL and its credentials."
        count = answer.get("count") if isinstance(answer, dict) else None
        if not isinstance(count, int):
            return False, "answers, but not as the Camunda 7 REST API does; check COUNTERSEAL_BPMN_URL"
        return True, f"reachable and authorised; {count} process definitions can be seen"

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()

    async def _start(self, call: Call) -> Outcome:
        """Start a process by ``POST /process-definition/key/{key}/start``, if none has the business key yet.

        https://docs.camunda.org/manual/7.21/reference/rest/process-definition/post-start-process-instance/
        """
        deadline = deadline_in(call.timeout_seconds)
        key, process = call.correlation_key, call.input.get("process")
        if not key:
            return Refused("no_correlation_key", f"{call.operation} needs a correlation key, and the call has none")
        if not isinstance(process, str):
            return Refused("no_process", f"{call.operation} names no process; its input needs the text `process`")
        try:
            variables = typed(items(call.input.get("variables"))) | self._own_variables(key)
        except InputError as error:
            return Refused("invalid_variable", str(error))
        found = await self._find(call, deadline)
        if isinstance(found, Refused | NotSent):
            return found
        if found:
            return Parked(found[0][0])
        path = f"/process-definition/key/{quote(process, safe='')}/start"
        body: JsonObject = {"businessKey": key, "variables": variables}
        answer = await self._client.send("POST", path, body, timeout_seconds=seconds_to(deadline))
        if isinstance(answer, Failure):
            return answer
        started = items(answer).get("id")
        if not isinstance(started, str):
            return InDoubt("the BPMN engine answered the start of a process without its id")
        # A process under another key is not the requested one, and its end would never reach this wait.
        back = compare({"business_key": key}, _named(answer, business_key="businessKey"))
        return (
            Done({"process_instance_id": started}, started, altered=back.altered) if back.altered else Parked(started)
        )

    async def _correlate(self, call: Call) -> Outcome:
        """Correlate by ``POST /message``: https://docs.camunda.org/manual/7.21/reference/rest/message/post-message/"""
        names = {"message": "messageName", "business_key": "businessKey", "process_instance_id": "processInstanceId"}
        body: JsonObject = {names[name]: value for name, value in call.input.items() if name in names}
        try:
            body["processVariables"] = typed(items(call.input.get("variables")))
        except InputError as error:
            return Refused("invalid_variable", str(error))
        body["resultEnabled"] = True
        answer = await self._client.send("POST", "/message", body, timeout_seconds=call.timeout_seconds)
        if isinstance(answer, Unread):
            return Done({"process_instance_id": answer.marker})
        if isinstance(answer, Failure):
            return answer
        result = items(answer[0]) if isinstance(answer, list) and answer else {}
        waiting, started = items(result.get("execution")), items(result.get("processInstance"))
        instance_id = waiting.get("processInstanceId") or started.get("id")
        if not isinstance(instance_id, str):
            return InDoubt("the BPMN engine did not say which process the message was correlated with")
        asked: JsonObject = {
            name: call.input[name] for name in ("business_key", "process_instance_id") if name in call.input
        }
        found = _named(started, business_key="businessKey") | {"process_instance_id": instance_id}
        back = compare(asked, found)
        return Done({"process_instance_id": instance_id}, instance_id, altered=back.altered)

    def _own_variables(self, key: str) -> JsonObject:
        own: JsonObject = {CORRELATION_VARIABLE: key}
        if self._settings.callback_url is not None:
            own[CALLBACK_VARIABLE] = f"{self._settings.callback_url.rstrip('/')}/v1/signals/{quote(key, safe='')}"
        return typed(own)

    async def _find(self, call: Call, deadline: float) -> list[_Process] | Refused | NotSent:
        """Running processes with our business key, or else ended ones, the oldest first.

        The order of the two queries matters: a process that ends between them is in the history.
        ``GET /history/process-instance``:
        https://docs.camunda.org/manual/7.21/reference/rest/history/process-instance/get-process-instance-query/
        """
        running = await self._running(call, deadline)
        if running or not isinstance(running, list):
            return running
        params = {"processInstanceBusinessKey": call.correlation_key or "", "sortBy": "startTime", "sortOrder": "asc"}
        return await self._query("/history/process-instance", params, call, deadline)

    async def _running(self, call: Call, deadline: float) -> list[_Process] | Refused | NotSent:
        """Running processes: https://docs.camunda.org/manual/7.21/reference/rest/process-instance/get-query/"""
        return await self._query("/process-instance", {"businessKey": call.correlation_key or ""}, call, deadline)

    async def _query(
        self, path: str, params: dict[str, str], call: Call, deadline: float
    ) -> list[_Process] | Refused | NotSent:
        """Query root processes only: a called process often inherits the business key."""
        if not call.correlation_key:
            return Refused("no_correlation_key", f"{call.operation} needs a correlation key, and the call has none")
        ours = {"processDefinitionKey": str(call.input.get("process", "")), "rootProcessInstances": "true"}
        rows = await self._client.get(path, params | ours, timeout_seconds=seconds_to(deadline))
        if isinstance(rows, Refused | NotSent):
            return rows
        if not isinstance(rows, list):
            return NotSent("the BPMN engine answered without a list of processes")
        # Filter again: an engine that ignores a part of the query must not make a stranger's process ours.
        return [
            (str(row["id"]), str(row.get("state", "ACTIVE")))
            for row in map(items, rows)
            if row.get("businessKey") == call.correlation_key and isinstance(row.get("id"), str)
        ]


def _named(answer: Json, **names: str) -> JsonObject:
    """The members of an answer under our names; those that are missing or null are left out."""
    found = items(answer)
    return {ours: found[theirs] for ours, theirs in names.items() if found.get(theirs) is not None}


def completion_of(task: JsonObject) -> Completion | None:
    """The completion that one external task reports; None if it belongs to no wait.

    The business key outranks the variable, because anybody who completes a user task may write the variable.
    """
    if not isinstance(task.get("id"), str):
        return None
    task_id, variables = str(task["id"]), task.get("variables")
    key = task.get("businessKey") or value_of(variables, f"{OWN_PREFIX}correlation_key")
    if not isinstance(key, str):
        return None
    error = value_of(variables, ERROR_VARIABLE)
    if error is not None:
        words = error if error and isinstance(error, str) else "the process reported an error without a text"
        return Completion(task_id, key, error={"code": "process_error", "message": words})
    try:
        return Completion(task_id, key, output=plain(variables))
    except InputError as fault:
        # The process has ended: variables that cannot be read are replaced by markers.
        return Completion(task_id, key, output={"variables": marker(variables, f"The process's {fault}")})
