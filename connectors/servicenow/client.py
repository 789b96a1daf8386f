"""The Table API over HTTP: authenticates, and reads answers into records or a ``Failure``.

We rely on these facts: 404 means absent or hidden by an ACL; 500 says nothing about the effect; the default quota rule
ends transactions after 60 s; the API has neither compare-and-set nor an idempotency key.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx
from msgspec import Struct

from connectors.exchange import Answer, Reply, deadline_in, exchange, harmless, http_url, json_of, seconds_to, tls
from connectors.port import Failure, InDoubt, NotSent, Refused
from core.canonical import JsonObject

TOKEN_MARGIN_SECONDS = 30.0
_CODES = {400: "invalid", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "not_allowed", 409: "conflict"}
_WORDS = {"sysparm_display_value": "true", "sysparm_exclude_reference_link": "true"}
_RAW = {"sysparm_display_value": "false", "sysparm_exclude_reference_link": "true"}


@dataclass(frozen=True, slots=True)
class BasicAuth:
    """A user name and password of the integration user."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """OAuth 2.0 client credentials (RFC 6749 4.4), exchanged at ``/oauth_token.do``."""

    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None


class ServiceNowSettings(Struct, frozen=True):
    """The settings of one instance.

    ``username`` is the integration user as ``sys_updated_by`` shows it. Basic authentication implies it; with OAuth it
    must be set, or a probe cannot tell our writes from others'. ``transaction_limit_seconds`` is the instance's quota
    for one REST transaction: until it has passed, a missing write may still arrive.
    """

    base_url: str
    auth: BasicAuth | ClientCredentials
    username: str | None = None
    transaction_limit_seconds: float = 60.0

    @property
    def integration_user(self) -> str | None:
        """The user name that ``sys_updated_by`` shows for our writes."""
        return self.username or (self.auth.username if isinstance(self.auth, BasicAuth) else None)

    @property
    def account(self) -> str:
        """The name of our account, for people to read."""
        return self.integration_user or (self.auth.client_id if isinstance(self.auth, ClientCredentials) else "")


class Page(Struct, frozen=True):
    """Records of one answer. ``total`` counts all that the query selects, also those that our user may not see."""

    rows: list[JsonObject]
    total: int | None


class TableClient:
    """Reads and writes records. Safe for concurrent use; one token is shared and refreshed once on 401."""

    def __init__(self, settings: ServiceNowSettings) -> None:
        setting, example = "COUNTERSEAL_SERVICENOW_URL", "https://example.service-now.com"
        url = http_url(settings.base_url, "the ServiceNow address", setting, example)
        self._settings = settings
        self._client = httpx.AsyncClient(
            base_url=url,
            verify=tls(),
            headers={"Accept": "application/json"},
            limits=httpx.Limits(keepalive_expiry=5.0),
        )
        self._token: str | None = None
        self._token_expires = 0.0
        self._token_lock = asyncio.Lock()

    async def get(
        self, table: str, sys_id: str, fields: tuple[str, ...], *, timeout_seconds: float
    ) -> JsonObject | Refused | NotSent:
        """One record, with raw values; all its fields if ``fields`` is empty."""
        params = _RAW | ({"sysparm_fields": ",".join(fields)} if fields else {})
        return harmless(_record(await self._call("GET", _path(table, sys_id), params, None, timeout_seconds)))

    async def words(
        self, table: str, sys_id: str, fields: tuple[str, ...], *, timeout_seconds: float
    ) -> JsonObject | Refused | NotSent:
        """Fields of one record as people read them: the names of references and of choices."""
        params = _WORDS | {"sysparm_fields": ",".join(fields)}
        reply = await self._call("GET", _path(table, sys_id), params, None, timeout_seconds)
        return harmless(_record(reply, "display_value"))

    async def query(
        self, table: str, query: str, fields: tuple[str, ...], *, limit: int, offset: int = 0, timeout_seconds: float
    ) -> list[JsonObject] | Refused | NotSent:
        """At most ``limit`` records that an encoded query selects."""
        page = await self.page(table, query, fields, limit=limit, offset=offset, timeout_seconds=timeout_seconds)
        return page.rows if isinstance(page, Page) else page

    async def page(
        self, table: str, query: str, fields: tuple[str, ...], *, limit: int, offset: int = 0, timeout_seconds: float
    ) -> Page | Refused | NotSent:
        """A page of the records that an encoded query selects, and how many there are if the instance tells."""
        params = _RAW | {"sysparm_query": query, "sysparm_limit": str(limit), "sysparm_offset": str(offset)}
        params |= {"sysparm_fields": ",".join(fields)} if fields else {}
        reply = await self._call("GET", _path(table), params, None, timeout_seconds)
        body = harmless(_object(reply))
        if not isinstance(body, dict):
            return body
        rows = body.get("result")
        if not isinstance(rows, list):
            return NotSent("ServiceNow answered without a result list")
        count = reply.headers.get("X-Total-Count", "") if isinstance(reply, Answer) else ""
        total = int(count) if count.isascii() and count.isdigit() else None
        return Page([_flat(row) for row in rows if isinstance(row, dict)], total)

    async def patch(
        self, table: str, sys_id: str, values: JsonObject, *, timeout_seconds: float
    ) -> JsonObject | Failure:
        """Write fields of one record. Returns the whole record as it reads afterwards."""
        return _record(await self._call("PATCH", _path(table, sys_id), _RAW, values, timeout_seconds))

    async def create(self, table: str, values: JsonObject, *, timeout_seconds: float) -> JsonObject | Failure:
        """Create one record. Returns the whole record as it reads afterwards."""
        return _record(await self._call("POST", _path(table), _RAW, values, timeout_seconds))

    async def delete(self, table: str, sys_id: str, *, timeout_seconds: float) -> Failure | None:
        """Remove one record; None if the instance reports success."""
        reply = await self._call("DELETE", _path(table, sys_id), {}, None, timeout_seconds)
        if not isinstance(reply, Answer):
            return reply
        if not reply.ok:
            return _refusal(reply)
        strange = f"ServiceNow answered {reply.status} to a deletion, not 204"
        return None if reply.status == httpx.codes.NO_CONTENT else InDoubt(strange)

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()

    async def _call(
        self, method: str, path: str, params: dict[str, str], body: JsonObject | None, timeout_seconds: float
    ) -> Reply | Refused:
        """Send with credentials. A 401 to a cached token had no effect, so we fetch a new token and retry once."""
        deadline = deadline_in(timeout_seconds)
        refused_token: str | None = None
        while True:
            credentials = await self._authorization(deadline, refused_token)
            if not isinstance(credentials, str):
                return credentials
            request = self._client.build_request(
                method, path, params=params, json=body, headers={"Authorization": credentials}
            )
            effect, left = method != "GET", seconds_to(deadline)
            reply = await exchange(self._client, request, effect=effect, timeout_seconds=left)
            stale = isinstance(reply, Answer) and reply.status == httpx.codes.UNAUTHORIZED
            if not stale or refused_token or isinstance(self._settings.auth, BasicAuth):
                return reply
            refused_token = credentials

    async def _authorization(self, deadline: float, refused: str | None) -> str | Refused | NotSent:
        """The Authorization header. A token comes from the cache if it is still valid and is not ``refused``."""
        auth = self._settings.auth
        if isinstance(auth, BasicAuth):
            return "Basic " + base64.b64encode(f"{auth.username}:{auth.password}".encode()).decode()
        try:
            async with asyncio.timeout_at(deadline), self._token_lock:
                if self._token and self._token != refused and deadline_in(0) < self._token_expires:
                    return self._token
                return await self._fetch_token(auth, seconds_to(deadline))
        except TimeoutError:
            return NotSent("no OAuth token in time")

    async def _fetch_token(self, auth: ClientCredentials, timeout_seconds: float) -> str | Refused | NotSent:
        form = {"grant_type": "client_credentials", "client_id": auth.client_id, "client_secret": auth.client_secret}
        form |= {"scope": auth.scope} if auth.scope else {}
        request = self._client.build_request("POST", "/oauth_token.do", data=form)
        reply = await exchange(self._client, request, effect=False, timeout_seconds=timeout_seconds)
        if not isinstance(reply, Answer):
            return NotSent(f"no OAuth token: {reply.message}", getattr(reply, "retry_after_seconds", None))
        if not reply.ok:
            return Refused("unauthorized", f"ServiceNow refused the OAuth client (HTTP {reply.status})")
        body = _object(reply)
        if not isinstance(body, dict):
            return NotSent(f"no OAuth token: {body.message}")
        token, seconds = body.get("access_token"), body.get("expires_in")
        if not isinstance(token, str) or not token:
            return Refused("unauthorized", "ServiceNow's OAuth answer holds no access_token")
        lifetime = float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else 300.0
        self._token = f"Bearer {token}"
        self._token_expires = deadline_in(max(lifetime - TOKEN_MARGIN_SECONDS, 1.0))
        return self._token


def _path(table: str, sys_id: str | None = None) -> str:
    """The path of a table or record, quoted so that no value can change the path's structure."""
    return "/".join(["/api/now/table", *(quote(part, safe="") for part in (table, sys_id) if part is not None)])


def _object(reply: Reply | Refused) -> JsonObject | Failure:
    """The JSON object of a 2xx answer."""
    body = json_of(reply, "ServiceNow", _refusal)
    if isinstance(body, dict | Failure):
        return body
    return InDoubt("ServiceNow's answer is not a JSON object")


def _record(reply: Reply | Refused, of: str = "value") -> JsonObject | Failure:
    body = _object(reply)
    if not isinstance(body, dict):
        return body
    record = body.get("result")
    return _flat(record, of) if isinstance(record, dict) else InDoubt("ServiceNow answered without a record")


def _flat(record: JsonObject, of: str = "value") -> JsonObject:
    """The record with plain references: some instances ignore sysparm_exclude_reference_link and send {link, value}."""
    return {name: value.get(of) if isinstance(value, dict) else value for name, value in record.items()}


def _refusal(answer: Answer) -> Refused:
    """The refusal in ServiceNow's own words: ``{"error": {"message", "detail"}}``."""
    words = answer.words()
    if answer.status == httpx.codes.NOT_FOUND:
        words = f"{words or 'no record'} (absent, or hidden from our user by an ACL)"
    if 300 <= answer.status < 400:
        words = "it redirects elsewhere, which is not followed; check the instance's address"
    message = f"ServiceNow answered {answer.status}: {words or 'without an explanation'}"
    return Refused(_CODES.get(answer.status, f"http_{answer.status}"), message)
