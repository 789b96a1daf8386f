"""One server of tools over streamable HTTP: its revision, its list of tools, and the call of one.

Everything before the call has no effect, so its failures are certain. No two conversations share a session: what a
session remembers would be part of an action, and nobody has judged it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import httpx
from msgspec import Struct
from msgspec.structs import replace

from connectors.exchange import Answer, Reply, deadline_in, exchange, seconds_to, tls
from connectors.frozen import Tool, tool_of
from connectors.headers import canonical_headers
from connectors.hosts import AllowedHost
from connectors.http.addresses import Destination, destination
from connectors.masking import Secrets
from connectors.mcp import messages
from connectors.mcp.messages import HANDSHAKES, MODERN, RpcResponse
from connectors.port import InDoubt, NotSent, Refused
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import InputError

PAGES_MAX, TOOLS_MAX = 200, 5000
PAGE_BYTES_MAX, LIST_BYTES_MAX, RESULT_BYTES_MAX = 4 * 1024 * 1024, 16 * 1024 * 1024, 1024 * 1024
CURSOR_CHARACTERS_MAX = 4096
# The revisions with a handshake: visible ASCII. So a header can hold it.
_SESSION = re.compile(r"[\x21-\x7e]{1,1000}")
ADDRESSES_MAX = 4
WORDS_MAX = 300
GOODBYE_SECONDS = 1.0
HOSTS = "the HTTP hosts that are allowed"

# An answer to a request without an effect that could not be had.
Unheard: TypeAlias = Refused | NotSent


class Server(Struct, frozen=True):
    """A server of tools as the settings name it. ``setting`` is where its address stands."""

    name: str
    url: str
    headers: Mapping[str, str] = {}
    allow_private: bool = False
    setting: str = "COUNTERSEAL_MCP_SERVERS"

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.url!r})"


class Client:
    """One server. Safe for concurrent use. It remembers only whether the server needs a handshake."""

    def __init__(self, server: Server) -> None:
        self.server, self.secrets = server, Secrets.of_headers(dict(server.headers))
        self._client = httpx.AsyncClient(verify=tls(), trust_env=False, limits=httpx.Limits(keepalive_expiry=5.0))
        self._ids = itertools.count(1)
        self._modern: bool | None = None

    @asynccontextmanager
    async def conversation(self, timeout_seconds: float) -> AsyncIterator[Conversation | Unheard]:
        """A conversation within the deadline. It ends the session that its handshake began."""
        deadline, server = deadline_in(timeout_seconds), self.server
        try:
            canonical_headers(dict(server.headers))
        except InputError as error:
            yield Refused("invalid_header", f"{server.setting}: {error.message}")
            return
        url = httpx.URL(server.url)
        rule = AllowedHost(url.host.lower(), url.port, server.allow_private)
        found = await destination(
            server.url, (rule,), timeout_seconds=timeout_seconds, setting="the allowed HTTP hosts"
        )
        if not isinstance(found, Destination):
            yield found
            return
        held = Conversation(self, self._client, found, deadline, self._ids)
        try:
            problem = await held.begin(self._modern)
            self._modern = held.version == MODERN if problem is None else None
            yield problem or held
        finally:
            if held.is_lost:
                self._modern = None
            await held.end()

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()


class Conversation:
    """Requests of one action, or of one look, to one server."""

    def __init__(
        self,
        owner: Client,
        client: httpx.AsyncClient,
        place: Destination,
        deadline: float,
        ids: itertools.count[int],
    ) -> None:
        self._server, self._secrets = owner.server, owner.secrets
        self._client, self._place, self._deadline, self._ids = client, place, deadline, ids
        self._addresses = list(place.addresses[:ADDRESSES_MAX])
        self.version: str | None = None
        self.is_lost = False  # the server did not tell its tools: maybe it speaks another revision by now
        self._session: str | None = None
        self._bytes_read = 0

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline."""
        return seconds_to(self._deadline)

    # -- the revision ------------------------------------------------------------------------------------------------

    async def begin(self, modern: bool | None) -> Unheard | None:
        """Find the server's revision; ``modern`` is what is known of it. None if both are ready."""
        if modern is not False:
            self.version = MODERN
            if modern:
                return None  # if it is not any more, its list of tools cannot be read, and nothing is called
            response = await self._heard("server/discover", {})
            versions = (
                response.result.get("supportedVersions")
                if isinstance(response, RpcResponse) and response.result
                else None
            )
            if isinstance(versions, list) and MODERN in versions:
                return None
            if isinstance(response, Refused) and response.code in ("unauthorized", "forbidden", "redirect"):
                return response
        self.version = None
        return await self._handshake()

    async def _handshake(self) -> Unheard | None:
        asked: JsonObject = {"protocolVersion": HANDSHAKES[0], "capabilities": {}, "clientInfo": messages.CLIENT}
        id_ = next(self._ids)
        reply = await self._post("initialize", asked, id_, effect=False)
        response = self._read(reply, id_)
        if not isinstance(response, RpcResponse):
            return response
        version = (response.result or {}).get("protocolVersion")
        if not isinstance(version, str) or version not in HANDSHAKES:
            words = response.message or response.problem or f"it speaks {str(version)[:40]!r}"
            return Refused("no_common_revision", f"{self._who} speaks no revision of MCP that is known: {words}")
        self.version = version
        assert isinstance(reply, Answer), "it was read"
        session = reply.headers.get(messages.SESSION)
        if session is not None and _SESSION.fullmatch(session) is None:
            return Refused("bad_session", f"{self._who} names its session in a way that no header can hold")
        self._session = session
        notified = await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"}, {}, effect=False)
        return None if isinstance(notified, Answer) and notified.ok else self._unheard(notified)

    async def end(self) -> None:
        """End the session at the server. If it does not hear of it, the session runs out there."""
        if self._session is not None:
            request = self._request("DELETE", b"", self._headers("", {}), self._addresses[0])
            await exchange(self._client, request, effect=False, timeout_seconds=GOODBYE_SECONDS)

    # -- the list of tools -------------------------------------------------------------------------------------------

    async def listed(self, wanted: str | None = None) -> list[Json] | Unheard:
        """The server's list of tools, page by page; with ``wanted``, as far as the page with that tool."""
        found: list[Json] = []
        seen, params = set[str](), JsonObject()
        for _ in range(PAGES_MAX):
            response = await self._heard("tools/list", params)
            tools = (response.result or {}).get("tools") if isinstance(response, RpcResponse) else None
            self.is_lost = tools is None
            if not isinstance(response, RpcResponse):
                return response
            if not isinstance(tools, list):
                words = response.message or response.problem or "no list"
                return NotSent(f"{self._who} did not tell its tools: {words}"[:WORDS_MAX])
            found += tools
            cursor = (response.result or {}).get("nextCursor")
            if len(found) > TOOLS_MAX:
                break
            if cursor is None or (wanted is not None and any(_name_of(one) == wanted for one in tools)):
                return found
            if not isinstance(cursor, str) or len(cursor) > CURSOR_CHARACTERS_MAX or cursor in seen:
                break
            if self._bytes_read > LIST_BYTES_MAX:
                break
            seen.add(cursor)
            params = {"cursor": cursor}
        words = f"lists its tools without an end, or more than {TOOLS_MAX}, or {LIST_BYTES_MAX} bytes"
        return Refused("tools_without_end", f"{self._who} {words}")

    async def tool(self, name: str) -> Tool | Unheard:
        """One tool as the server tells it now. ``Refused`` if it is not there, is there twice, or has no digest."""
        listed = await self.listed(name)
        if not isinstance(listed, list):
            return listed
        found = [one for one in listed if _name_of(one) == name]
        if len(found) != 1:
            words = "lists it more than once" if found else "does not list it any more"
            return Refused("tool_changed", f"{self._who} {words}: {name}")
        try:
            return tool_of(found[0])
        except InputError as error:
            return Refused("tool_changed", f"{self._who} describes it in a way that has no digest: {error}")

    # -- the call ----------------------------------------------------------------------------------------------------

    async def call(
        self, tool: str, arguments: JsonObject, key: str, *, effect: bool
    ) -> tuple[Reply, RpcResponse | None]:
        """Call a tool, once. The answer as it came, and what it says; None if it is no message of MCP."""
        id_ = next(self._ids)
        params: JsonObject = {"name": tool, "arguments": arguments}
        reply = await self._post("tools/call", params, id_, effect=effect, bytes_max=RESULT_BYTES_MAX, key=key)
        if not isinstance(reply, Answer):
            return reply, None
        response = messages.response_in(reply, id_).without(self._secrets)
        return reply, response if response.result is None else replace(
            response, result=self._secrets.object(response.result)
        )

    # -- requests ----------------------------------------------------------------------------------------------------

    @property
    def _who(self) -> str:
        return f"the MCP server {self._server.name}"

    async def _heard(self, method: str, params: JsonObject) -> RpcResponse | Unheard:
        id_ = next(self._ids)
        reply = await self._post(method, params, id_, effect=False)
        self._bytes_read += len(reply.body) if isinstance(reply, Answer) else 0
        return self._read(reply, id_)

    def _read(self, reply: Reply, id_: int) -> RpcResponse | Unheard:
        """The answer to a request without an effect; an HTTP error that is no message is a refusal."""
        if not isinstance(reply, Answer):
            return self._unheard(reply)
        response = messages.response_in(reply, id_).without(self._secrets)
        return response if reply.ok or response.code is not None else self._unheard(reply)

    def _unheard(self, reply: Reply) -> Unheard:
        match reply:
            case NotSent() as failed:
                return failed
            case InDoubt(message=words, retry_after_seconds=after):
                return NotSent(words, after)
            case answer:
                return refusal(answer, self._who) or NotSent(f"{self._who} answered {answer.status}")

    async def _post(
        self, method: str, params: JsonObject, id_: int, *, effect: bool, bytes_max: int = PAGE_BYTES_MAX, key: str = ""
    ) -> Reply:
        message = messages.request_of(method, params, id_, self.version or HANDSHAKES[0])
        headers = self._headers(method, params) | ({"Idempotency-Key": key} if key else {})
        return await self._send(message, headers, effect=effect, id_=id_, bytes_max=bytes_max)

    async def _send(
        self,
        message: JsonObject,
        headers: dict[str, str],
        *,
        effect: bool,
        id_: int | None = None,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Reply:
        try:
            body, headers = canonical_bytes(message), headers or self._headers("", {})
        except InputError as error:
            return NotSent(f"the input has no canonical form: {error}")
        reply: Reply = NotSent("no address was tried")
        for address in [*self._addresses]:
            reply = await exchange(
                self._client,
                self._request("POST", body, headers, address),
                effect=effect,
                timeout_seconds=self.seconds_left,
                body_bytes_max=bytes_max,
                ending=None if id_ is None else partial(_ending, id_),
            )
            if not isinstance(reply, NotSent) or reply.retry_after_seconds is not None:
                break
            self._addresses.append(self._addresses.pop(0))  # the next request begins with another one
        return reply

    def _headers(self, method: str, params: JsonObject) -> dict[str, str]:
        return messages.headers_of(method, params, self.version, self._session)

    def _request(self, verb: str, body: bytes, headers: Mapping[str, str], address: object) -> httpx.Request:
        """A request to a checked address; Host, SNI and the certificate's check use the host's name."""
        url = self._place.url
        sent = httpx.Headers({"User-Agent": "counterseal", "Accept-Encoding": "identity", **self._server.headers})
        sent.update(headers)
        sent["Host"] = url.netloc.decode("ascii")
        extensions = {"sni_hostname": url.raw_host.decode("ascii")}
        return httpx.Request(verb, url.copy_with(host=str(address)), headers=sent, content=body, extensions=extensions)


def refusal(answer: Answer, who: str) -> Refused | None:
    """The refusal of an answer that says for certain that the request was not handled (RFC 9110); None otherwise."""
    status = answer.status
    if status in (401, 403):
        words = "does not accept our credentials" if status == 401 else "does not allow this to our credentials"
        return Refused("unauthorized" if status == 401 else "forbidden", f"{who} {words} ({status})")
    if status in (307, 308):
        return Refused("redirect", f"{who} redirects ({status}), which is not followed; set its final address")
    if status in (400, 404, 405, 406, 413, 414, 415, 426, 431):
        return Refused(f"http_{status}", f"{who} refused the request ({status})")
    return None


def _ending(id_: int, headers: httpx.Headers) -> Callable[[bytes], bool]:
    found = messages.ending(id_, headers)
    return _stays if found is None else found.feed


def _stays(_: bytes) -> bool:
    return False


def _name_of(listed: Json) -> Json:
    return listed.get("name") if isinstance(listed, dict) else None
