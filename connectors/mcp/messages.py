"""The messages of the Model Context Protocol over streamable HTTP: JSON-RPC 2.0, as JSON or as server-sent events.

Revisions with a handshake (2024-11-05 to 2025-11-25): https://modelcontextprotocol.io/specification/2025-11-25/basic/transports.
The revision without (2026-07-28) has the version, the client and its abilities in ``_meta`` of each request.
"""

from __future__ import annotations

import base64

import httpx
from msgspec import Struct
from msgspec.structs import replace

from connectors.exchange import Answer
from connectors.masking import Secrets
from core.bounded_json import parse
from core.canonical import Json, JsonObject
from core.errors import InputError

MODERN = "2026-07-28"
HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
CLIENT: JsonObject = {"name": "counterseal", "version": "1"}
JSON_TYPE, EVENTS_TYPE = "application/json", "text/event-stream"
SESSION, VERSION = "Mcp-Session-Id", "Mcp-Protocol-Version"
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32700, -32600, -32601, -32603
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
_META = "io.modelcontextprotocol/"
# A stream has so many messages besides its answer, and so many lines: reading them holds up everybody else.
MESSAGES_MAX, LINES_MAX = 1_000, 200_000


class RpcResponse(Struct, frozen=True):
    """The answer to one request: its result, or its error. ``problem`` says why it is no answer."""

    result: JsonObject | None = None
    code: int | None = None
    message: str = ""
    problem: str = ""

    def without(self, secrets: Secrets) -> RpcResponse:
        """The same, with a mask in place of each secret in its words. They are cut only afterwards."""
        return replace(self, message=secrets.text(self.message), problem=secrets.text(self.problem))


def request_of(method: str, params: JsonObject, id_: int, version: str) -> JsonObject:
    """A request of this revision."""
    if version == MODERN:
        meta: JsonObject = {f"{_META}protocolVersion": MODERN, f"{_META}clientInfo": CLIENT}
        params = {**params, "_meta": {**meta, f"{_META}clientCapabilities": {}}}
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def headers_of(method: str, params: JsonObject, version: str | None, session: str | None) -> dict[str, str]:
    """The headers of a request of this revision; of a handshake, which has none yet, with ``version`` None."""
    found = {"Accept": f"{JSON_TYPE}, {EVENTS_TYPE}", "Content-Type": JSON_TYPE}
    if version is not None:
        found[VERSION] = version
    if session is not None:
        found[SESSION] = session
    if version == MODERN:
        found["Mcp-Method"] = method
        if method == "tools/call":
            found["Mcp-Name"] = _encoded(str(params["name"]))
    return found


def _encoded(text: str) -> str:
    """A header's value; in base64, as the revision says, if a header cannot hold it as it is."""
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    return text if plain else f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


def response_in(answer: Answer, id_: int) -> RpcResponse:
    """The answer to the request ``id_``. What comes besides (progress, logs) is left out."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if answer.truncated:
        return RpcResponse(problem=f"the answer is longer than {len(answer.body)} bytes")
    if kind == JSON_TYPE:
        return _response(answer.body, id_) or RpcResponse(problem="the answer is to another request")
    if kind == EVENTS_TYPE:
        reader = Events(id_)
        reader.feed(answer.body)
        return reader.response or RpcResponse(problem="the stream ended without the answer")
    return RpcResponse(problem=f"the answer is {kind or 'of no kind'}, and no message of MCP")


def _response(data: bytes, id_: int) -> RpcResponse | None:
    """One message as the answer to ``id_``; None if it is none: a notification, or the answer to something else."""
    try:
        message = parse(data, bytes_max=len(data), where="the message")
    except InputError as error:
        return RpcResponse(problem=str(error))
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return RpcResponse(problem="the message is no JSON-RPC 2.0")
    if "method" in message:
        asked = "id" in message and message["method"] != "ping"
        return (
            RpcResponse(problem=f"it asks us for {str(message['method'])[:60]}, which nobody gives") if asked else None
        )
    fault, result, answered = message.get("error"), message.get("result"), message.get("id")
    nameless = answered is None and isinstance(fault, dict)  # it could not read the id
    if not nameless and (type(answered) is not int or answered != id_):
        return None
    if isinstance(fault, dict) and "result" not in message:
        code = fault.get("code")
        return RpcResponse(code=code if type(code) is int else INTERNAL_ERROR, message=str(fault.get("message") or ""))
    if isinstance(result, dict) and "error" not in message:
        return RpcResponse(result)
    return RpcResponse(problem="the answer has no result and no error")


class Events:
    """Reads server-sent events piece by piece, until the answer to one request is there. Each byte is read once."""

    def __init__(self, id_: int) -> None:
        self._id, self._rest, self._data = id_, bytearray(), list[bytes]()
        self._messages, self._lines = MESSAGES_MAX, LINES_MAX
        self.response: RpcResponse | None = None

    def feed(self, piece: bytes) -> bool:
        """Take the next piece. True once the answer is there, or what makes one impossible."""
        self._rest += piece
        if b"\n" not in piece and b"\r" not in piece:
            return False
        half = b"\r" if self._rest.endswith(b"\r") else b""  # the other half of a line's end may be in the next piece
        lines = bytes(self._rest).removesuffix(half).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = bytearray(lines.pop() + half)
        self._lines -= len(lines)
        if self._lines < 0:
            self.response = self.response or RpcResponse(problem=f"the stream has more than {LINES_MAX} lines")
        for line in lines:
            if self.response is not None:
                break
            self._line(line)
        return self.response is not None

    def _line(self, line: bytes) -> None:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return
        data, self._data = b"\n".join(self._data), []
        if not data.strip():
            return
        self._messages -= 1
        self.response = _response(data, self._id)
        if self.response is None and self._messages < 0:
            self.response = RpcResponse(problem=f"the stream has more than {MESSAGES_MAX} messages that are no answer")


def ending(id_: int, headers: httpx.Headers) -> Events | None:
    """The reader of an answer that may stay open; None if it is one message, which ends by itself."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return Events(id_) if kind == EVENTS_TYPE else None


def text_of(content: Json) -> str:
    """The texts among blocks of content, for the words of an error."""
    blocks = content if isinstance(content, list) else []
    return " ".join(str(one["text"]) for one in blocks if isinstance(one, dict) and isinstance(one.get("text"), str))
