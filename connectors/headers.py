"""The headers of a request: their canonical spelling, the refused ones, and the secret ones.

Some headers make a server use another method, path or host than the judged one, and some frame the message. No workflow
and no declaration may set them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.canonical import Json, JsonObject
from core.errors import InputError

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Headers that Counterseal sets, that concern only one hop (RFC 9110 7.6.1), or that frame the message.
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "trailers"}
    | {"expect", "idempotency-key", "http2-settings", "via", "max-forwards", "alt-used", "content-transfer-encoding"}
)
# Headers that some server, framework or proxy reads in place of the request's method, path, host or client.
_INSTEAD = frozenset(
    {"forwarded", "x-http-method", "x-http-method-override", "x-method-override", "x-method", "x-http-verb"}
    | {"x-original-url", "x-original-uri", "x-original-host", "x-original-method", "x-original-path"}
    | {"x-rewrite-url", "x-override-url", "x-host", "x-http-host-override", "x-http-destinationurl", "x-real-ip"}
    | {"x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip", "fastly-client-ip"}
    | {"x-middleware-subrequest", "x-http-path-override", "x-path", "x-url", "x-uri", "x-proxy-url", "base-url"}
    | {"request-uri", "destination", "x-custom-ip-authorization", "x-remote-addr", "x-remote-ip", "x-originating-ip"}
)
_INSTEAD_BEGIN = (
    "proxy-",
    "x-forward",
    "x-envoy-",
    "x-accel-",
    "x-sendfile",
    "x-http-method",
    "x-http-verb",
    "x-waws-",
    "x-ms-original",
    "x-original-",
    "x-rewrite-",
    "x-method",
    "x-override-",
    "x-tunnel-",
)
# Names with these parts replace something of the request: the method, the URL, the host, the user.
_INSTEAD_ENDS = "-override"

# The headers whose values are not secret. All others count as secret: an unknown header may hold a key.
HARMLESS = frozenset(
    {"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-disposition"}
    | {"content-language", "content-type", "date", "dnt", "from", "if-match", "if-modified-since", "if-none-match"}
    | {"if-range", "if-unmodified-since", "origin", "pragma", "prefer", "priority", "range", "referer", "user-agent"}
    | {"traceparent", "tracestate", "x-correlation-id", "x-request-id"}
)


def spelled(name: str) -> str:
    """The canonical spelling of a header's name: ``X-Api-Key``."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def _plain(name: str) -> str:
    """The name as servers compare it. CGI and its successors treat ``_`` and ``-`` as the same."""
    return name.lower().replace("_", "-")


def problem_of(name: str) -> str | None:
    """The reason why a header with this name is refused; None if it is allowed."""
    plain = _plain(name)
    if not _TOKEN.fullmatch(name):
        return f"the header {name!r} holds characters that a header cannot"
    if plain in _OURS:
        return f"the header {name} is set by Counterseal and cannot be given"
    if plain in _INSTEAD or plain.startswith(_INSTEAD_BEGIN) or plain.endswith(_INSTEAD_ENDS):
        return f"the header {name} makes a server read another request than the one that is judged"
    return None


def is_secret(name: str) -> bool:
    """True unless the header is known to be harmless."""
    return _plain(name) not in HARMLESS


def canonical_headers(given: Json, where: str = "headers") -> JsonObject:
    """The headers with canonical names. ``InputError`` never repeats a value, which may be secret."""
    if not isinstance(given, Mapping):
        raise InputError("must be an object", where=where)
    made: JsonObject = {}
    seen = set[str]()
    for name, value in given.items():
        if (problem := problem_of(name)) is not None:
            raise InputError(problem, where=where, remedy="Take it out.")
        if _plain(name) in seen:
            raise InputError(f"the header {name} is given twice", where=where, remedy="Give it once.")
        seen.add(_plain(name))
        if not isinstance(value, str) or not value.isascii() or not value.isprintable() or value != value.strip():
            words = f"the header {name!r} holds characters that a header cannot"
            raise InputError(words, where=where)
        made[spelled(name)] = value
    return made
