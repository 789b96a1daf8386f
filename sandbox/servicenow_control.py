"""``/_sandbox/...`` of the ServiceNow stand-in: other processes see and steer its state here."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.faults import FaultTable, faults_endpoint
from sandbox.servicenow_state import ServiceNowState
from sandbox.servicenow_webhook import Webhooks
from sandbox.web import BadRequest, control, json_object, text_field


def control_routes(state: ServiceNowState, faults: FaultTable, webhooks: Webhooks) -> list[Route]:
    """``records/{table}`` list and insert as any user, ``records/{table}/{sys_id}`` change as any user, ``effects``,
    ``deliveries`` list and repeat, ``webhook`` configure, ``faults``."""

    async def records(request: Request) -> Response:
        table = request.path_params["table"]
        if request.method == "GET":
            return JSONResponse({"records": list(state.tables.get(table, {}).values())})
        body = await json_object(request)
        return JSONResponse({"record": state.insert(table, _fields(body), text_field(body, "user"))}, 201)

    async def record(request: Request) -> Response:
        table, sys_id = request.path_params["table"], request.path_params["sys_id"]
        if state.record(table, sys_id) is None:
            return JSONResponse({"error": f"{table} has no record {sys_id}"}, 404)
        body = await json_object(request)
        return JSONResponse({"record": state.update(table, sys_id, _fields(body), text_field(body, "user"))})

    async def effects(_request: Request) -> Response:
        return JSONResponse({"effects": [asdict(effect) for effect in state.effects]})

    async def deliveries(request: Request) -> Response:
        if request.method == "POST":
            wanted = text_field(await json_object(request), "delivery")
            found = next((item for item in webhooks.deliveries if item.delivery_id == wanted), None)
            if found is None:
                return JSONResponse({"error": f"no delivery {wanted}"}, 404)
            webhooks.redeliver(found)
        listed = [
            {"delivery": item.delivery_id, "body": item.body.decode(), "statuses": item.statuses, "done": item.done}
            for item in webhooks.deliveries
        ]
        return JSONResponse({"deliveries": listed})

    async def webhook(request: Request) -> Response:
        body = await json_object(request)
        webhooks.url = text_field(body, "url", webhooks.url)
        webhooks.secret = text_field(body, "secret", webhooks.secret)
        return JSONResponse({"url": webhooks.url})

    async def inject(request: Request) -> Response:
        return await faults_endpoint(request, faults)

    return [
        Route("/_sandbox/records/{table}", control(records), methods=["GET", "POST"]),
        Route("/_sandbox/records/{table}/{sys_id}", control(record), methods=["PATCH"]),
        Route("/_sandbox/effects", effects, methods=["GET"]),
        Route("/_sandbox/deliveries", control(deliveries), methods=["GET", "POST"]),
        Route("/_sandbox/webhook", control(webhook), methods=["POST"]),
        Route("/_sandbox/faults", inject, methods=["GET", "POST", "DELETE"]),
    ]


def _fields(body: dict[str, object]) -> dict[str, str]:
    fields = body.get("fields")
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise BadRequest("fields: an object of string values is needed")
    return fields
