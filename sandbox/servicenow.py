"""A stand-in for a ServiceNow instance: the Table API, its authentication, limits, errors, journals and webhooks."""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.faults import FaultMiddleware, FaultTable
from sandbox.servicenow_access import DEFAULT_ACL, INTEGRATION_USER, Access, Accounts, AclRule, FieldRule, RateRule
from sandbox.servicenow_control import control_routes
from sandbox.servicenow_page import page_routes
from sandbox.servicenow_query import QueryError, select
from sandbox.servicenow_seed import seed
from sandbox.servicenow_state import JOURNAL_TABLE, REFERENCES, Effect, Record, ServiceNowState
from sandbox.servicenow_webhook import Encoding, Webhooks
from sandbox.web import is_json

_TABLE: Final = re.compile(r"[a-z][a-z0-9_]{0,79}")
_DEFAULT_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True)
class ServiceNowConfig:
    """Settings. ``webhook_url`` empty: no webhooks. ``reference_links``: references are {"link", "value"} unless the
    request has ``sysparm_exclude_reference_link=true``, as in the real system; False always gives the bare sys_id.
    ``webhook_backoff``: seconds before each retry. ``list_max``: no list has more rows, whatever is asked for; nothing
    in the answer says so but ``X-Total-Count``."""

    port: int = 0
    webhook_url: str = ""
    webhook_secret: str = "sandbox-webhook-secret"  # noqa: S105  a stand-in's well-known secret
    webhook_encoding: Encoding = "base64"
    webhook_backoff: tuple[float, ...] = (0.1, 0.3, 1.0)
    integration_user: str = INTEGRATION_USER
    accounts: Accounts = field(default_factory=Accounts)
    acl: tuple[AclRule, ...] = DEFAULT_ACL
    fields: tuple[FieldRule, ...] = ()
    list_max: int = _DEFAULT_LIMIT
    rate: RateRule | None = None
    reference_links: bool = True
    clock: Callable[[], float] = time.time


class TableError(Exception):
    """A refusal in the words of the Table API."""

    def __init__(self, status: int, message: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.detail = detail

    def response(self, headers: Mapping[str, str]) -> JSONResponse:
        body = {"error": {"message": self.message, "detail": self.detail}, "status": "failure"}
        return JSONResponse(body, self.status, headers=dict(headers))


def _fault_body(status: int) -> dict[str, object]:
    message = {401: "User Not Authenticated", 403: "Operation Failed", 429: "Rate limit exceeded"}.get(
        status, "Internal Server Error" if status >= 500 else "Request failed"
    )
    return {"error": {"message": message, "detail": "injected by the sandbox"}, "status": "failure"}


class ServiceNow:
    """The application (``app``), and for tests ``state``, ``faults``, ``webhooks`` and ``access``."""

    def __init__(self, config: ServiceNowConfig | None = None) -> None:
        self.config = config or ServiceNowConfig()
        self.url = ""
        self.state = ServiceNowState(clock=self.config.clock)
        self.faults = FaultTable(_fault_body, only=r"^/(api|oauth_token\.do)")
        self.access = Access(
            self.config.accounts, self.config.acl, self.config.rate, self.config.clock, self.config.fields
        )
        self.list_max = self.config.list_max
        self.hides: Callable[[Mapping[str, str]], bool] = lambda _: False  # rows that a rule on records hides
        self.keeps: Callable[[Mapping[str, str]], bool] = lambda _: False  # rows whose deletion a rule ends
        self.webhooks = Webhooks(
            self.config.webhook_url,
            self.config.webhook_secret,
            encoding=self.config.webhook_encoding,
            backoff=self.config.webhook_backoff,
        )
        seed(self.state)
        self.state.on_write.append(self._business_rule)
        self.app = Starlette(
            routes=[
                Route("/oauth_token.do", self._token, methods=["POST"]),
                Route("/api/now/table/{table}", self._table, methods=["GET", "POST"]),
                Route("/api/now/table/{table}/{sys_id}", self._record, methods=["GET", "PATCH", "PUT", "DELETE"]),
                *control_routes(self.state, self.faults, self.webhooks),
                *page_routes(self.state),
            ],
            middleware=[Middleware(FaultMiddleware, table=self.faults)],
        )

    async def close(self) -> None:
        self.faults.clear()
        await self.webhooks.close()

    def _business_rule(self, effect: Effect, record: Record) -> None:
        """Notify the webhook of every write to an incident, the integration's own writes too, as a real rule would."""
        if effect.table == "incident" and effect.operation in ("insert", "update"):
            self.webhooks.notify(effect.table, effect.operation, record)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode("utf-8", "replace"), keep_blank_values=True))
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            form["client_id"], form["client_secret"] = _client(credentials)
        if form.get("grant_type") != "client_credentials":
            return JSONResponse(
                {"error": "unsupported_grant_type", "error_description": "client_credentials only"}, 400
            )
        issued = self.access.issue(form.get("client_id", ""), form.get("client_secret", ""))
        if issued is None:
            return JSONResponse({"error": "invalid_client", "error_description": "access_denied"}, 401)
        token, seconds = issued
        return JSONResponse(
            {"access_token": token, "scope": "useraccount", "token_type": "Bearer", "expires_in": seconds}
        )

    async def _table(self, request: Request) -> Response:
        return await self._guarded(request, self._list if request.method == "GET" else self._insert)

    async def _record(self, request: Request) -> Response:
        methods = {"GET": self._get, "PATCH": self._update, "PUT": self._update, "DELETE": self._delete}
        return await self._guarded(request, methods["GET" if request.method == "HEAD" else request.method])

    async def _guarded(self, request: Request, handler: Callable[[Request, str, bytes], Response]) -> Response:
        user = self.access.user(request.headers.get("authorization", ""))
        if user is None:
            failed = TableError(401, "User Not Authenticated", "Required to provide Auth information")
            return failed.response({"WWW-Authenticate": 'BASIC realm="Service-now"'})
        within, headers = self.access.count(user)
        if not within:
            return TableError(429, "Rate limit exceeded", "See Retry-After").response(headers)
        try:
            if not _TABLE.fullmatch(request.path_params["table"]):
                raise TableError(400, f"Invalid table {request.path_params['table']}")
            response = handler(request, user, await request.body())
        except TableError as error:
            return error.response(headers)
        response.headers.update(headers)
        return response

    def _list(self, request: Request, user: str, _body: bytes) -> Response:
        table = request.path_params["table"]
        rows = list(self.state.tables.get(table, {}).values()) if self.access.allows(user, table, "read") else []
        try:
            hidden = self.access.denied(user, table, "read")
            found = select(rows, request.query_params.get("sysparm_query", ""), hidden)
        except QueryError as error:
            raise TableError(400, "Invalid query", str(error)) from error
        offset, limit = _count(request, "sysparm_offset", 0), _count(request, "sysparm_limit", _DEFAULT_LIMIT)
        if "ORDERBY" not in request.query_params.get("sysparm_query", "") and offset:
            found.reverse()  # without an order, no two pages need to have the same one
        shown = found[offset : offset + min(limit, self.list_max)]
        page = [self._shown(request, row, user) for row in shown if not self.hides(row)]
        return JSONResponse({"result": page}, headers={"X-Total-Count": str(len(found))})

    def _insert(self, request: Request, user: str, body: bytes) -> Response:
        table = request.path_params["table"]
        fields = _fields(request, body)
        if not self.access.allows(user, table, "create"):
            raise TableError(403, "Operation Failed", "ACL Exception Insert Failed due to security constraints")
        protected = self.access.denied(user, table, "write")
        writable = {name: value for name, value in fields.items() if name not in protected}
        record = self.state.insert(table, writable, user)
        location = f"{request.base_url}api/now/table/{table}/{record['sys_id']}"
        return JSONResponse({"result": self._shown(request, record, user)}, 201, headers={"Location": location})

    def _get(self, request: Request, user: str, _body: bytes) -> Response:
        return JSONResponse({"result": self._shown(request, self._found(request, user), user)})

    def _update(self, request: Request, user: str, body: bytes) -> Response:
        table = request.path_params["table"]
        fields = _fields(request, body)
        record = self._found(request, user)
        if not self.access.allows(user, table, "write"):
            raise TableError(403, "Operation Failed", "ACL Exception Update Failed due to security constraints")
        protected = self.access.denied(user, table, "write")
        writable = {name: value for name, value in fields.items() if name not in protected}
        return JSONResponse(
            {"result": self._shown(request, self.state.update(table, record["sys_id"], writable, user), user)}
        )

    def _delete(self, request: Request, user: str, _body: bytes) -> Response:
        table = request.path_params["table"]
        record = self._found(request, user)
        if not self.access.allows(user, table, "delete"):
            raise TableError(403, "Operation Failed", "ACL Exception Delete Failed due to security constraints")
        if not self.keeps(record):  # a rule may end a deletion without a word in the answer
            self.state.delete(table, record["sys_id"], user)
        return Response(status_code=204)

    def _found(self, request: Request, user: str) -> Record:
        table, sys_id = request.path_params["table"], request.path_params["sys_id"]
        record = self.state.record(table, sys_id) if self.access.allows(user, table, "read") else None
        if record is None or self.hides(record):
            raise TableError(404, "No Record found", "Record doesn't exist or ACL restricts the record retrieval")
        return record

    def _shown(self, request: Request, record: Mapping[str, str], user: str) -> dict[str, object]:
        wanted = [name.strip() for name in request.query_params.get("sysparm_fields", "").split(",") if name.strip()]
        mode = request.query_params.get("sysparm_display_value", "false")
        links = self.config.reference_links and request.query_params.get("sysparm_exclude_reference_link") != "true"
        hidden = self.access.denied(user, request.path_params["table"], "read")
        names = [name for name in (wanted or record) if name in record and name not in hidden]
        return {name: self._value(request, name, record[name], mode, links=links) for name in names}

    def _value(self, request: Request, name: str, value: str, mode: str, *, links: bool) -> object:
        target = REFERENCES.get(name)
        shown = (self.state.record(target, value) or {}).get("name", value) if target and value else value
        link = {"link": f"{request.base_url}api/now/table/{target}/{value}"} if links and target and value else {}
        if mode == "all":
            return {"display_value": shown, "value": value, **link}
        if mode == "true":
            return {"display_value": shown, **link} if link else shown
        return {**link, "value": value} if link else value


def _client(credentials: str) -> tuple[str, str]:
    try:
        name, _, secret = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, secret


def _count(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise TableError(400, f"Invalid {name}", f"{text!r} is not a count")
    return int(text)


def _fields(request: Request, body: bytes) -> Record:
    """The fields of a write as strings, as in the real tables; if the body has several records, the first one's."""
    if not is_json(request):
        raise TableError(415, "Unsupported media type", "Content-Type: application/json is required")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TableError(400, "Exception while reading request", "The payload is not valid JSON") from error
    if isinstance(value, dict) and isinstance(value.get("records"), list):
        value = value["records"]
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        raise TableError(400, "Exception while reading request", "The payload is not a JSON object")
    return {name: _text(name, item) for name, item in value.items()}


def _text(name: str, item: object) -> str:
    if item is None:
        return ""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str | int | float):
        return str(item)
    raise TableError(400, "Exception while reading request", f"{name}: a field is a string, a number or a boolean")


__all__ = ["JOURNAL_TABLE", "ServiceNow", "ServiceNowConfig", "TableError"]
