"""The paths ``/_sandbox/...`` of the ServiceNow stand-in, with which other processes read and change its state."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.faults import FaultTable, faults_endpoint
from sandbox.servicenow_state import ServiceNowState
from sandbox.servicenow_webhook import Webhooks
from sandbox.web import BadRequest, control, json_object, text_field


class _Handlers:
    def __init__(self, state: ServiceNowState, faults: FaultTable, webhooks: Webhooks) -> None:
        self._state = state
        self._faults = faults
        self._webhooks = webhooks

    async def records(self, request: Request) -> Response:
        table = request.path_params["table"]
        if request.method == "GET":
            return JSONResponse({"records": list(self._state.tables.get(table, {}).values())})
        body = await json_object(request)
        return JSONResponse({"record": self._state.insert(table, _fields(body), text_field(body, "user"))}, 201)

    async def record(self, request: Request) -> Response:
        table, sys_id = request.path_params["table"], request.path_params["sys_id"]
        if self._state.record(table, sys_id) is None:
            return JSONResponse({"error": f"{table} has no record {sys_id}"}, 404)
        body = await json_object(request)
        return JSONResponse({"record": self._state.update(table, sys_id, _fields(body), text_field(body, "user"))})

    async def effects(self, _request: Request) -> Response:
        return JSONResponse({"effects": [asdict(effect) for effect in self._state.effects]})

    async def deliveries(self, request: Request) -> Response:
        if request.method == "POST":
            wanted = text_field(await json_object(request), "delivery")
            found = next((item for item in self._webhooks.deliveries if item.delivery_id == wanted), None)
            if found is None:
                return JSONResponse({"error": f"no delivery {wanted}"}, 404)
            self._webhooks.redeliver(found)
        listed = [
            {"delivery": item.delivery_id, "body": item.body.decode(), "statuses": item.statuses, "done": item.done}
            for item in self._webhooks.deliveries
        ]
        return JSONResponse({"deliveries": listed})

    async def webhook(self, request: Request) -> Response:
        body = await json_object(request)
        self._webhooks.url = text_field(body, "url", self._webhooks.url)
        self._webhooks.secret = text_field(body, "secret", self._webhooks.secret)
        return JSONResponse({"url": self._webhooks.url})

    async def inject(self, request: Request) -> Response:
        return await faults_endpoint(request, self._faults)


def control_routes(state: ServiceNowState, faults: FaultTable, webhooks: Webhooks) -> list[Route]:
    """Routes: ``records/{table}`` list and insert, ``records/{table}/{sys_id}`` change as any user, ``effects``,
    ``deliveries`` list and repeat, ``webhook`` configure, ``faults``."""
    handlers = _Handlers(state, faults, webhooks)
    return [
        Route("/_sandbox/records/{table}", control(handlers.records), methods=["GET", "POST"]),
        Route("/_sandbox/records/{table}/{sys_id}", control(handlers.record), methods=["PATCH"]),
        Route("/_sandbox/effects", handlers.effects, methods=["GET"]),
        Route("/_sandbox/deliveries", control(handlers.deliveries), methods=["GET", "POST"]),
        Route("/_sandbox/webhook", control(handlers.webhook), methods=["POST"]),
        Route("/_sandbox/faults", handlers.inject, methods=["GET", "POST", "DELETE"]),
    ]


def _fields(body: dict[str, object]) -> dict[str, str]:
    fields = body.get("fields")
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise BadRequest("fields: an object of string values is needed")
    return fields
