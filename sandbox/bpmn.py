"""A stand-in for a BPMN engine with the Camunda 7 REST API, as Camunda 7 and Operaton serve it.

Processes really run: sandbox/processes holds their models. The stand-in serves what the ``bpmn`` connector needs, and
``/task``, with which a test or a person can play the client who uploads a document. Reference:
https://docs.camunda.org/manual/7.21/reference/rest/
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.bpmn_callback import Callbacks
from sandbox.bpmn_config import REST_PATH, BpmnConfig
from sandbox.bpmn_model import load_models
from sandbox.bpmn_requests import FetchRequest, body_of, query_of, text_of
from sandbox.bpmn_state import BpmnState, EngineError, ExternalTask, Instance
from sandbox.bpmn_variables import VariableError, read_variables, write_variables
from sandbox.faults import FaultMiddleware, FaultTable, faults_endpoint

_Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Bpmn:
    """The application (``app``), and for tests ``state``, ``faults`` and ``callbacks``.

    The REST API is at ``{url}/engine-rest``.
    """

    def __init__(self, config: BpmnConfig | None = None) -> None:
        self.config = config or BpmnConfig()
        self.url = ""
        self.state = BpmnState(load_models(), clock=self.config.clock)
        self.faults = FaultTable(_fault_body, only=f"^{REST_PATH}/")
        self.callbacks = Callbacks(self.state, self.config.callback_token, backoff=self.config.callback_backoff)
        self._closed = False
        served: list[tuple[str, str, _Handler]] = [
            ("GET", "/process-definition/count", self._definitions),
            ("POST", "/process-definition/key/{key}/start", self._start),
            ("GET", "/process-instance", self._instances),
            ("DELETE", "/process-instance/{id}", self._delete),
            ("GET", "/history/process-instance", self._history),
            ("GET", "/task", self._user_tasks),
            ("POST", "/task/{id}/claim", self._claim),
            ("POST", "/task/{id}/complete", self._complete_user_task),
            ("GET", "/history/task", self._worked),
            ("POST", "/external-task/fetchAndLock", self._fetch),
            ("POST", "/external-task/{id}/complete", self._complete_external),
            ("POST", "/external-task/{id}/failure", self._fail_external),
            ("POST", "/message", self._correlate),
        ]
        self.app = Starlette(
            routes=[
                *(
                    Route(REST_PATH + path, self._guarded(handler), methods=[method])
                    for method, path, handler in served
                ),
                Route(f"{REST_PATH}/engine", self._engines, methods=["GET"]),
                Route("/_sandbox/faults", self._inject, methods=["GET", "POST", "DELETE"]),
            ],
            middleware=[Middleware(FaultMiddleware, table=self.faults)],
        )

    async def close(self) -> None:
        self._closed = True
        self.state.changed()  # wake the long polls, which then see ``_closed``
        self.faults.clear()
        await self.callbacks.close()

    def _guarded(self, handler: _Handler) -> _Handler:
        async def guarded(request: Request) -> Response:
            if not self._known(request.headers.get("authorization", "")):
                return Response(status_code=401, headers={"WWW-Authenticate": 'Basic realm="default"'})
            try:
                return await handler(request)
            except VariableError as error:
                return _refusal(EngineError(400, str(error), "InvalidRequestException"))
            except EngineError as error:
                return _refusal(error)

        return guarded

    def _known(self, authorization: str) -> bool:
        scheme, _, value = authorization.partition(" ")
        try:
            given = base64.b64decode(value, validate=True)
        except binascii.Error:
            return False
        expected = f"{self.config.username}:{self.config.password}".encode()
        return scheme.lower() == "basic" and hmac.compare_digest(given, expected)

    async def _inject(self, request: Request) -> Response:
        return await faults_endpoint(request, self.faults)

    async def _engines(self, _request: Request) -> Response:
        """The list of engines: the only answer that the real engine gives without authentication."""
        return JSONResponse([{"name": "default"}])

    async def _definitions(self, request: Request) -> Response:
        query_of(request, "key", "latestVersion")
        return JSONResponse({"count": len(self.state.models)})

    async def _start(self, request: Request) -> Response:
        body = await body_of(request, "businessKey", "variables", "withVariablesInReturn")
        key, business_key = request.path_params["key"], text_of(body, "businessKey")
        return JSONResponse(_running(self.state.start(key, business_key, read_variables(body.get("variables")))))

    async def _instances(self, request: Request) -> Response:
        query = query_of(request, "businessKey", "processDefinitionKey", "rootProcessInstances")
        rows = [_running(one) for one in self.state.running() if _matches(one, query, "businessKey")]
        return JSONResponse(rows)

    async def _history(self, request: Request) -> Response:
        key = "processInstanceBusinessKey"
        query = query_of(request, key, "processDefinitionKey", "rootProcessInstances", "sortBy", "sortOrder")
        rows = [_historic(one) for one in self.state.instances.values() if _matches(one, query, key)]
        return JSONResponse(rows)

    async def _delete(self, request: Request) -> Response:
        query_of(request, "skipCustomListeners", "skipIoMappings", "skipSubprocesses", "failIfNotExists")
        self.state.delete(request.path_params["id"])
        return Response(status_code=204)

    async def _user_tasks(self, request: Request) -> Response:
        key = "processInstanceBusinessKey"
        query = query_of(request, key, "processDefinitionKey")
        rows = [
            {"id": task.activity_id, "name": task.name, "taskDefinitionKey": task.element}
            | {"assignee": one.claimed.get(task.activity_id)}
            | {"processInstanceId": one.instance_id, "processDefinitionId": f"{one.model.key}:1"}
            for one in self.state.running()
            if _matches(one, query, key)
            for task in one.user_tasks()
        ]
        return JSONResponse(rows)

    async def _claim(self, request: Request) -> Response:
        body = await body_of(request, "userId")
        self.state.claim(request.path_params["id"], text_of(body, "userId") or "")
        return Response(status_code=204)

    async def _worked(self, request: Request) -> Response:
        """The completed user tasks of a process, each with the assignee that it had."""
        query = query_of(request, "processInstanceId", "finished")
        found = self.state.instances.get(query.get("processInstanceId", ""))
        tasks = found.worked if found is not None else []
        return JSONResponse([{"id": one, "assignee": found.claimed.get(one)} for one in tasks if found is not None])

    async def _complete_user_task(self, request: Request) -> Response:
        body = await body_of(request, "variables", "withVariablesInReturn")
        self.state.complete_user_task(request.path_params["id"], read_variables(body.get("variables")))
        return Response(status_code=204)

    async def _complete_external(self, request: Request) -> Response:
        body = await body_of(request, "workerId", "variables", "localVariables")
        variables = read_variables(body.get("variables"))
        self.state.complete_external(request.path_params["id"], text_of(body, "workerId") or "", variables)
        return Response(status_code=204)

    async def _fail_external(self, request: Request) -> Response:
        body = await body_of(request, "workerId", "errorMessage", "errorDetails", "retries", "retryTimeout")
        retries, pause = body.get("retries"), body.get("retryTimeout")
        if not isinstance(retries, int) or retries < 0 or not isinstance(pause, int) or pause < 0:
            raise EngineError(400, "The number of retries and the retry timeout cannot be negative")
        message, worker = text_of(body, "errorMessage") or "", text_of(body, "workerId") or ""
        self.state.fail_external(request.path_params["id"], worker, message, retries, pause / 1000)
        return Response(status_code=204)

    async def _fetch(self, request: Request) -> Response:
        """Long polling. A client that disconnects locks no tasks; the real engine does not promise that."""
        wanted = await FetchRequest.read(request)
        disconnected = asyncio.create_task(_disconnected(request))
        disconnected.add_done_callback(lambda _: self.state.changed())
        with contextlib.suppress(TimeoutError):
            await self.state.until(
                lambda: self._closed or disconnected.done() or self.state.fetchable(wanted.topics),
                seconds=wanted.wait_seconds,
            )
        nobody = self._closed or disconnected.done()
        disconnected.cancel()
        await asyncio.gather(disconnected, return_exceptions=True)
        tasks = [] if nobody else self.state.fetchable(wanted.topics)[: wanted.tasks_max]
        for task in tasks:
            task.worker_id = wanted.worker_id
            task.locked_until = self.state.clock() + wanted.topics[task.activity.topic]
        return JSONResponse([_locked(task) for task in tasks])

    async def _correlate(self, request: Request) -> Response:
        body = await body_of(
            request, "messageName", "businessKey", "processInstanceId", "processVariables", "resultEnabled"
        )
        name = text_of(body, "messageName")
        if not name:
            raise EngineError(400, "No message name supplied", "InvalidRequestException")
        key, instance_id = text_of(body, "businessKey"), text_of(body, "processInstanceId")
        found = self.state.correlate(
            name,
            read_variables(body.get("processVariables")),
            lambda one: key in (None, one.business_key) and instance_id in (None, one.instance_id),
        )
        if body.get("resultEnabled") is not True:
            return Response(status_code=204)
        execution = {"id": found.instance_id, "processInstanceId": found.instance_id, "ended": False}
        return JSONResponse([{"resultType": "Execution", "execution": execution, "processInstance": None}])


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _matches(instance: Instance, query: dict[str, str], key: str) -> bool:
    return query.get(key) in (None, instance.business_key) and query.get("processDefinitionKey") in (
        None,
        instance.model.key,
    )


def _running(instance: Instance) -> dict[str, object]:
    return {
        "id": instance.instance_id,
        "definitionId": f"{instance.model.key}:1",
        "definitionKey": instance.model.key,
        "businessKey": instance.business_key,
        "ended": instance.execution.ended,
        "suspended": False,
        "tenantId": None,
        "links": [],
    }


def _historic(instance: Instance) -> dict[str, object]:
    return {
        "id": instance.instance_id,
        "businessKey": instance.business_key,
        "processDefinitionId": f"{instance.model.key}:1",
        "processDefinitionKey": instance.model.key,
        "startTime": _moment(instance.started),
        "endTime": None if instance.ended is None else _moment(instance.ended),
        "state": instance.state,
    }


def _locked(task: ExternalTask) -> dict[str, object]:
    instance = task.instance
    return {
        "id": task.task_id,
        "activityId": task.activity.element,
        "topicName": task.activity.topic,
        "workerId": task.worker_id,
        "lockExpirationTime": _moment(task.locked_until),
        "createTime": _moment(task.created),
        "processInstanceId": instance.instance_id,
        "processDefinitionId": f"{instance.model.key}:1",
        "processDefinitionKey": instance.model.key,
        "businessKey": instance.business_key,
        "retries": task.retries,
        "priority": 0,
        "variables": write_variables(task.variables()),
    }


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}+0000"


def _refusal(error: EngineError) -> Response:
    return JSONResponse({"type": error.kind, "message": str(error), "code": None}, error.status)


def _fault_body(status: int) -> dict[str, object]:
    return {"type": "ProcessEngineException", "message": f"{status}, injected by the sandbox", "code": None}


__all__ = ["Bpmn", "BpmnConfig"]
