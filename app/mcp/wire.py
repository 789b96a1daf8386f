"""The messages of the Model Context Protocol over HTTP, of all its revisions: one JSON-RPC message a request.

Nothing is kept between two requests, so any process answers any of them, and a session means nothing. Of what a client
says about itself (``_meta``) only that is read which shows it less, or binds it more.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from msgspec import Struct, to_builtins

from core.canonical import Json, JsonObject

# The revisions that begin with a handshake, and those in which each request says everything.
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
# The revision of a request whose client does not name one (2025-03-26, "Protocol Version Header").
UNNAMED = "2025-03-26"
TASKS = "io.modelcontextprotocol/tasks"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_VERSION = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_VERSION_HEADER, _METHOD_HEADER, _NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"
# The parameter that `Mcp-Name` repeats, by method, and if it must.
_NAMED: Mapping[str, tuple[str, bool]] = {
    "tools/call": ("name", True),
    "tasks/get": ("taskId", False),
    "tasks/update": ("taskId", False),
    "tasks/cancel": ("taskId", False),
}
_ENCODED = re.compile(r"=\?base64\?(?P<payload>[A-Za-z0-9+/=]*)\?=")
_TEXT_MAX = 200
# Whole numbers that every reader of JSON, and our own writer, can hold.
_NUMBERS = range(-(2**63), 2**63)


class Code(IntEnum):
    """The codes of errors, of JSON-RPC and of the revision 2026-07-28."""

    PARSE = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    HEADER_MISMATCH = -32020
    MISSING_CAPABILITY = -32021
    UNSUPPORTED_VERSION = -32022


_NOT_SERVED = (Code.PARSE, Code.INVALID_REQUEST, Code.HEADER_MISMATCH, Code.UNSUPPORTED_VERSION)


class Refused(Exception):
    """A message that is not served: an error of the protocol, never of a tool."""

    def __init__(self, code: Code, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class _Unsupported(Struct, frozen=True):
    """The versions that there are, and the one that a client wants."""

    supported: list[str]
    requested: str


class Message(Struct, frozen=True):
    """A request, or, without an ``id``, a notification. ``meta`` is what its client says besides, unverified."""

    method: str
    params: JsonObject
    id: int | str | None
    version: str
    meta: JsonObject

    @property
    def modern(self) -> bool:
        """True if the request says everything itself."""
        return self.version in MODERN

    @property
    def knows_tasks(self) -> bool:
        """True if the client has declared the extension for tasks, with this request."""
        declared = self.meta.get(_CAPABILITIES)
        extensions = declared.get("extensions") if isinstance(declared, dict) else None
        return self.modern and isinstance(extensions, dict) and TASKS in extensions

    @property
    def progress(self) -> int | str | None:
        """The token under which the client is told of progress. It goes back to this client, on this answer, alone."""
        token = self.meta.get("progressToken")
        if isinstance(token, str):
            return token if len(token) <= _TEXT_MAX else None
        return token if type(token) is int and token in _NUMBERS else None

    def text(self, name: str) -> str:
        """A parameter that is a text; ``Refused`` if there is none."""
        value = self.params.get(name)
        if not isinstance(value, str):
            raise Refused(Code.INVALID_PARAMS, f"params.{name} must be a text")
        return value


def id_of(body: Json) -> int | str | None:
    """The id of a message that may be none, for the answer to it."""
    found = body.get("id") if isinstance(body, dict) else None
    if isinstance(found, str):
        return found
    return found if type(found) is int and found in _NUMBERS else None


def read(body: Json, headers: Mapping[str, Sequence[str]]) -> Message:
    """Read one message; ``Refused`` if it is none, or says something else than its headers.

    ``headers`` are all values of each header, by its name in small letters.
    """
    if not isinstance(body, dict):
        raise Refused(Code.INVALID_REQUEST, "A request is one JSON-RPC object; lists of them are not served.")
    method, params = body.get("method"), body.get("params", {})
    identified = "id" in body
    if body.get("jsonrpc") != "2.0" or not isinstance(method, str) or (identified and id_of(body) is None):
        words = 'A request has `"jsonrpc": "2.0"`, a method, and an id that is a text or a whole number of 64 bits.'
        raise Refused(Code.INVALID_REQUEST, words)
    if not isinstance(params, dict):
        raise Refused(Code.INVALID_PARAMS, "params must be an object")
    meta = params.get("_meta", {})
    if not isinstance(meta, dict):
        raise Refused(Code.INVALID_PARAMS, "params._meta must be an object")
    version = _version(method, meta, headers, identified=identified)
    made = Message(method, params, id_of(body), version, meta)
    if made.modern and identified:
        _check_headers(made, headers)
    return made


def _version(method: str, meta: JsonObject, headers: Mapping[str, Sequence[str]], *, identified: bool) -> str:
    """The revision that a message is of. ``Refused`` if its header and its body differ, or if we do not serve it."""
    named = _only(headers, _VERSION_HEADER)
    stated = meta.get(_VERSION)
    if stated is not None and not isinstance(stated, str):
        raise Refused(Code.INVALID_PARAMS, f"params._meta.{_VERSION} must be a text")
    if stated is not None or (named in MODERN and identified):
        if stated is None or not isinstance(meta.get(_CAPABILITIES), dict):
            words = f"params._meta needs {_VERSION} and {_CAPABILITIES}"
            raise Refused(Code.INVALID_PARAMS, words)
        if named != stated:
            raise Refused(Code.HEADER_MISMATCH, "The header MCP-Protocol-Version is not the version in params._meta.")
    elif method == "initialize":
        return HANDSHAKE[-1]  # the handshake says which; its header says nothing yet
    version = named or UNNAMED
    if version not in (MODERN if stated is not None else (*HANDSHAKE, *MODERN)):
        data = to_builtins(_Unsupported([*MODERN, *HANDSHAKE[::-1]], version[:_TEXT_MAX]))
        raise Refused(Code.UNSUPPORTED_VERSION, "This revision of the protocol is not served.", data)
    return version


def _check_headers(message: Message, headers: Mapping[str, Sequence[str]]) -> None:
    """Refuse headers that say something else than the body: whoever routes by them would be misled."""
    if _only(headers, _METHOD_HEADER) != message.method:
        raise Refused(Code.HEADER_MISMATCH, "The header Mcp-Method is not the method of the request.")
    key, needed = _NAMED.get(message.method, ("", False))
    name = _only(headers, _NAME_HEADER)
    if key and (needed or name is not None) and _decoded(name) != message.params.get(key):
        raise Refused(Code.HEADER_MISMATCH, f"The header Mcp-Name is not params.{key} of the request.")


def _only(headers: Mapping[str, Sequence[str]], name: str) -> str | None:
    values = headers.get(name, ())
    if len(values) > 1:
        raise Refused(Code.HEADER_MISMATCH, f"The header {name} is there more than once.")
    return values[0] if values else None


def _decoded(value: str | None) -> str | None:
    """The text of a header: as it is, or in Base64 between marks if it is more than plain ASCII."""
    encoded = _ENCODED.fullmatch(value or "")
    if encoded is None:
        return value
    try:
        return base64.b64decode(encoded["payload"], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def answer(message: Message, result: JsonObject) -> JsonObject:
    """The answer to a request with its result."""
    more: JsonObject = {"resultType": "complete"} if message.modern else {}
    return {"jsonrpc": "2.0", "id": message.id, "result": {**more, **result}}


def error(identifier: int | str | None, refused: Refused) -> JsonObject:
    """The answer to a message that is not served."""
    fields: JsonObject = {"code": int(refused.code), "message": refused.message}
    return {
        "jsonrpc": "2.0",
        "id": identifier,
        "error": fields if refused.data is None else {**fields, "data": refused.data},
    }


def status(refused: Refused, *, modern: bool) -> int:
    """The HTTP status of an error: since 2026-07-28 each has one, and before only what is no request."""
    if refused.code is Code.METHOD_NOT_FOUND and modern:
        return 404
    return 400 if modern or refused.code in _NOT_SERVED else 200


def progress(token: int | str, seconds: float, most: float, words: str) -> JsonObject:
    """The news that a call is still waited for."""
    params: Any = {"progressToken": token, "progress": seconds, "total": most, "message": words}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
