"""A BPMN engine as a connector: processes are started once, asked for, ended, and report by external task.

The business key of a process is the correlation key of the wait that it completes (V-9, V-15). The engine itself
allows any number of processes with one business key, so that there is one is our doing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

from msgspec import Struct

from connectors.bpmn.client import NOT_FOUND, BpmnSettings, EngineClient
from connectors.bpmn.variables import OWN_PREFIX, items, typed
from connectors.bpmn.worker import TaskWorker
from connectors.catalog import Catalog
from connectors.port import (
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
from core.canonical import Json, JsonObject
from core.errors import InputError

CORRELATION_VARIABLE = f"{OWN_PREFIX}correlation_key"
CALLBACK_VARIABLE = f"{OWN_PREFIX}callback_url"
PROBE_AGAIN_SECONDS = 15.0
MARGIN_SECONDS = 1.0
CHECK_SECONDS = 10.0


class _Process(Struct, frozen=True):
    """One process with our business key: its id, and how it is (``ACTIVE``, ``COMPLETED``, …) in the engine's words."""

    instance_id: str
    state: str


class BpmnConnector(NothingBefore):
    """One engine: a ``DurableConnector``, and the ``CompletionSource`` of its external tasks."""

    def __init__(self, settings: BpmnSettings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._client = EngineClient(settings)
        self._worker = TaskWorker(self._client, settings.topic, settings.worker_id)

    async def perform(self, call: Call) -> Outcome:
        """Start a process unless it is there already, or correlate a message, as the operation's handler says."""
        function = self._catalog.get(call.operation).function
        if function == "start":
            return await self._start(call)
        if function == "correlate":
            return await self._correlate(call)
        return Refused("unknown_handler", f"the BPMN connector has no function {function!r}")

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Look for the process by its business key. Whether a message arrived, nothing in the engine tells."""
        if self._catalog.get(call.operation).function != "start":
            return Probe(ProbeVerdict.CANNOT_TELL, "the engine has no record of messages that could be asked for")
        found = await self._find(call, _deadline(call))
        if isinstance(found, Refused | NotSent):
            again = (found.retry_after_seconds or PROBE_AGAIN_SECONDS) if isinstance(found, NotSent) else None
            words = f"the engine could not be asked: {found.message}"
            return Probe(ProbeVerdict.CANNOT_TELL, words, retry_after_seconds=again)
        key = call.correlation_key
        if found:
            words = f"process instance {found[0].instance_id} has the business key {key} and is {found[0].state}"
            return Probe(ProbeVerdict.APPLIED, words, Done({}, found[0].instance_id))
        missing = self._settings.transaction_limit_seconds - seconds_since_intent
        words = (
            f"{seconds_since_intent:.0f} s after the intent no process, running or ended, has the business key {key}"
        )
        if missing > 0:
            return Probe(ProbeVerdict.CANNOT_TELL, words, retry_after_seconds=missing + MARGIN_SECONDS)
        return Probe(ProbeVerdict.NOT_APPLIED, words)

    async def cancel(self, call: Call, external_id: str | None) -> Done | Failure:
        """Delete the process, and any other with its business key; its own listeners run. What has ended is ``Done``.

        ``DELETE /process-instance/{id}``: https://docs.camunda.org/manual/7.21/reference/rest/process-instance/delete/
        """
        deadline = _deadline(call)
        found = await self._running(call, deadline)
        if isinstance(found, Refused | NotSent):
            return found
        known = [external_id] if external_id else []
        ids = dict.fromkeys(known + [process.instance_id for process in found])
        canceled: list[Json] = []
        for instance_id in ids:
            path = f"/process-instance/{quote(instance_id, safe='')}"
            gone = await self._client.send("DELETE", path, None, timeout_seconds=_remaining(deadline))
            if isinstance(gone, NotSent | InDoubt) or (isinstance(gone, Refused) and gone.code != NOT_FOUND):
                return gone
            if not isinstance(gone, Refused):
                canceled.append(instance_id)
        return Done({"canceled": canceled}, next(iter(ids), None))

    async def completions(self, *, wait_seconds: float) -> Sequence[Completion]:
        """External tasks of our topic, each the end of one wait; held for us for a minute."""
        return await self._worker.fetch(wait_seconds)

    async def acknowledge(self, completion: Completion) -> None:
        """Complete the external task, and the process goes on."""
        await self._worker.complete(completion.id)

    async def check(self) -> tuple[bool, str]:
        """Count the process definitions. ``GET /engine`` would not do: it answers whoever asks."""
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
        """``POST /process-definition/key/{key}/start``, if no process has the business key yet.

        https://docs.camunda.org/manual/7.21/reference/rest/process-definition/post-start-process-instance/
        """
        deadline = _deadline(call)
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
            return Parked(found[0].instance_id)
        path = f"/process-definition/key/{quote(process, safe='')}/start"
        body: JsonObject = {"businessKey": key, "variables": variables}
        answer = await self._client.send("POST", path, body, timeout_seconds=_remaining(deadline))
        if isinstance(answer, Failure):
            return answer
        started = items(answer).get("id")
        if not isinstance(started, str):
            return InDoubt("the BPMN engine answered the start of a process without its id")
        return Parked(started)

    async def _correlate(self, call: Call) -> Outcome:
        """``POST /message``: https://docs.camunda.org/manual/7.21/reference/rest/message/post-message/"""
        names = {"message": "messageName", "business_key": "businessKey", "process_instance_id": "processInstanceId"}
        body: JsonObject = {names[name]: value for name, value in call.input.items() if name in names}
        try:
            body["processVariables"] = typed(items(call.input.get("variables")))
        except InputError as error:
            return Refused("invalid_variable", str(error))
        body["resultEnabled"] = True
        answer = await self._client.send("POST", "/message", body, timeout_seconds=call.timeout_seconds)
        if isinstance(answer, Failure):
            return answer
        result = items(answer[0]) if isinstance(answer, list) and answer else {}
        waiting, started = items(result.get("execution")), items(result.get("processInstance"))
        instance_id = waiting.get("processInstanceId") or started.get("id")
        if not isinstance(instance_id, str):
            return InDoubt("the BPMN engine did not say which process the message was correlated with")
        return Done({"process_instance_id": instance_id}, instance_id)

    def _own_variables(self, key: str) -> JsonObject:
        own: JsonObject = {CORRELATION_VARIABLE: key}
        if self._settings.callback_url is not None:
            own[CALLBACK_VARIABLE] = f"{self._settings.callback_url.rstrip('/')}/v1/signals/{quote(key, safe='')}"
        return typed(own)

    async def _find(self, call: Call, deadline: float) -> list[_Process] | Refused | NotSent:
        """Running processes with our business key, or else ended ones, the oldest first.

        In this order: one that ends between the two questions is in the history by then.
        ``GET /history/process-instance``:
        https://docs.camunda.org/manual/7.21/reference/rest/history/process-instance/get-process-instance-query/
        """
        running = await self._running(call, deadline)
        if running or not isinstance(running, list):
            return running
        params = {"processInstanceBusinessKey": call.correlation_key or "", "sortBy": "startTime", "sortOrder": "asc"}
        return await self._query("/history/process-instance", params, call, deadline)

    async def _running(self, call: Call, deadline: float) -> list[_Process] | Refused | NotSent:
        """``GET /process-instance``: https://docs.camunda.org/manual/7.21/reference/rest/process-instance/get-query/"""
        return await self._query("/process-instance", {"businessKey": call.correlation_key or ""}, call, deadline)

    async def _query(
        self, path: str, params: dict[str, str], call: Call, deadline: float
    ) -> list[_Process] | Refused | NotSent:
        """Only processes that nobody called: a called one often inherits the business key."""
        if not call.correlation_key:
            return Refused("no_correlation_key", f"{call.operation} needs a correlation key, and the call has none")
        ours = {"processDefinitionKey": str(call.input.get("process", "")), "rootProcessInstances": "true"}
        rows = await self._client.get(path, params | ours, timeout_seconds=_remaining(deadline))
        if isinstance(rows, Refused | NotSent):
            return rows
        if not isinstance(rows, list):
            return NotSent("the BPMN engine answered without a list of processes")
        found = [items(row) for row in rows]
        # Looked at again here: an engine that ignores a part of the query must not make a stranger's process ours.
        return [
            _Process(str(row["id"]), str(row.get("state", "ACTIVE")))
            for row in found
            if row.get("businessKey") == call.correlation_key and isinstance(row.get("id"), str)
        ]


def _deadline(call: Call) -> float:
    return asyncio.get_running_loop().time() + call.timeout_seconds


def _remaining(deadline: float) -> float:
    return max(deadline - asyncio.get_running_loop().time(), 0.001)
