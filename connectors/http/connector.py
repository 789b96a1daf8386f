"""Sends a request to an allowed host (``http.request.send``). Follows no redirects."""

from __future__ import annotations

import httpx
from msgspec import Struct

from connectors.exchange import Answer, Reply, deadline_in, exchange, seconds_to, tls
from connectors.headers import canonical_headers
from connectors.hosts import AllowedHost
from connectors.http.addresses import SETTING, Address, Destination, destination, permitted
from connectors.masking import Secrets
from connectors.port import SOMEBODY, Call, Done, InDoubt, NothingBefore, NotSent, Outcome, Probe, ProbeVerdict, Refused
from connectors.readback import compare, same_json, sentence
from connectors.urls import canonical_url
from core.bounded_json import parse
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import InputError
from core.secret_values import LIKE_REFERENCE
from core.unkept import marker

ADDRESSES_MAX = 4
MESSAGE_LENGTH = 300
SAFE_METHODS = frozenset({"GET", "HEAD"})
OUTPUT_HEADERS = ("content-type", "etag", "last-modified", "location")


class HttpSettings(Struct, frozen=True):
    """The hosts that may be called; without any, every request is refused. ``setting`` is the name of the setting."""

    allowed_hosts: tuple[AllowedHost, ...] = ()
    body_bytes_max: int = 256 * 1024
    setting: str = SETTING


class HttpConnector(NothingBefore):
    """Sends requests. Connections are not kept: each was checked, and its certificate verified, for one host name."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.AsyncClient(verify=tls(), trust_env=False, limits=limits)

    async def perform(self, call: Call) -> Outcome:
        """Send the request with ``Idempotency-Key``. A failure is in doubt, except for GET and HEAD."""
        deadline, allowed = deadline_in(call.timeout_seconds), self._settings.allowed_hosts
        prepared = _prepare(call)
        if isinstance(prepared, Refused):
            return prepared
        seconds, setting = call.timeout_seconds, self._settings.setting
        found = await destination(str(call.input.get("url")), allowed, timeout_seconds=seconds, setting=setting)
        if not isinstance(found, Destination):
            return found
        target = _target(str(call.input.get("url")))
        if isinstance(target, Refused):
            return target
        reply: Reply = NotSent("no address was tried")
        for address in found.addresses[:ADDRESSES_MAX]:
            request = _request(call, found.url, address, *prepared)
            request.extensions["target"] = target  # sent unchanged: no library may normalize it
            reply = await exchange(
                self._client,
                request,
                effect=_has_effect(call),
                timeout_seconds=seconds_to(deadline),
                body_bytes_max=self._settings.body_bytes_max,
            )
            if not isinstance(reply, NotSent) or reply.retry_after_seconds is not None:
                break
        return _outcome(reply, call) if isinstance(reply, Answer) else reply

    def ready(self, operation: str, inputs: JsonObject) -> Refused | None:
        """Refuse a host that no setting allows. Does not resolve the name, so it makes no request."""
        found = permitted(str(inputs.get("url")), self._settings.allowed_hosts, self._settings.setting)
        return found if isinstance(found, Refused) else None

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Answer *not applied* for GET and HEAD, otherwise *cannot tell*: HTTP has no general way to ask."""
        if not _has_effect(call):
            return Probe(ProbeVerdict.NOT_APPLIED, "GET and HEAD change nothing, so the request can be repeated")
        return Probe(ProbeVerdict.CANNOT_TELL, "HTTP has no general way to ask whether a request took effect")

    async def check(self) -> tuple[bool, str]:
        """Report the hosts that may be called. Calls nothing."""
        names = ", ".join(rule.host for rule in self._settings.allowed_hosts)
        nothing = f"no host is allowed; set {self._settings.setting} to allow some"
        return True, f"may call {names}" if names else nothing

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()


def _target(url: str) -> bytes | Refused:
    """Path and query to send: those of the canonical address, which was judged."""
    try:
        _, _, after = canonical_url(url).partition("://")
    except InputError as error:
        return Refused("invalid_url", f"the URL {error.message}")
    return f"/{after.partition('/')[2]}".encode("ascii")


def _has_effect(call: Call) -> bool:
    return call.input.get("method") not in SAFE_METHODS


def _prepare(call: Call) -> tuple[bytes, httpx.Headers] | Refused:
    """The body and the headers; ``Refused`` if they cannot be sent."""
    headers = httpx.Headers({"User-Agent": "counterseal", "Accept-Encoding": "identity"})
    try:
        given = canonical_headers(call.input.get("headers", {}))
    except InputError as error:
        return Refused("invalid_header", error.message)
    for name, value in given.items():
        if LIKE_REFERENCE.search(str(value)):
            return Refused("secret_not_lent", f"the header {name} refers to a secret, and there is none to lend")
        headers[name] = str(value)
    if _has_effect(call):
        headers["Idempotency-Key"] = call.idempotency_key
    if "json" in call.input:
        headers.setdefault("Content-Type", "application/json")
        try:
            return canonical_bytes(call.input["json"]), headers
        except InputError as error:
            return Refused("invalid_body", f"the JSON body {error}")
    return str(call.input.get("body", "")).encode(), headers


def _request(call: Call, url: httpx.URL, address: Address, body: bytes, headers: httpx.Headers) -> httpx.Request:
    """The request to the checked address; Host, SNI and certificate check use the host's name."""
    pinned = headers.copy()
    pinned["Host"] = url.netloc.decode("ascii")
    return httpx.Request(
        str(call.input.get("method")),
        url.copy_with(host=str(address)),
        headers=pinned,
        content=body,
        extensions={"sni_hostname": url.raw_host.decode("ascii")},
    )


def _outcome(answer: Answer, call: Call) -> Outcome:
    """The outcome of a request. A message is searched for our own headers before it is cut."""
    expected, secrets = call.input.get("expect_status"), Secrets.of_headers(call.input.get("headers"))
    if 300 <= answer.status < 400:
        place = secrets.text(answer.headers.get("location", "elsewhere"))
        return Refused("redirect", f"redirects ({answer.status}) to {place}, which is not followed; use the final URL")
    if not answer.ok:
        words = secrets.text(answer.body.decode("utf-8", "replace").replace("\x00", ""))[:MESSAGE_LENGTH]
        return Refused(f"http_{answer.status}", f"answered {answer.status}: {words or 'without an explanation'}")
    if isinstance(expected, list) and answer.status not in expected:
        message = f"answered {answer.status}, expected {' or '.join(str(status) for status in expected)}"
        return InDoubt(message) if _has_effect(call) else Refused("unexpected_status", message)
    output: JsonObject = {
        "status": answer.status,
        "headers": {name: answer.headers[name] for name in OUTPUT_HEADERS if name in answer.headers},
        "body": _text(answer),
        "truncated": answer.truncated,
    }
    if not answer.truncated and "json" in answer.headers.get("content-type", ""):
        output["json"] = _json(answer)
    wanted = call.input.get("expect_json")
    if not isinstance(wanted, dict):
        return Done(output, answer.headers.get("location"), writers=SOMEBODY)
    back = compare(wanted, _values_at(wanted, output.get("json")), same_json)
    if back.altered and not _has_effect(call):
        return Refused("unexpected_answer", sentence(back.altered, outcome="The answer is not as expected"))
    return Done(output | back.to_json(), answer.headers.get("location"), altered=back.altered, writers=SOMEBODY)


def _values_at(wanted: JsonObject, body: Json) -> JsonObject:
    """The values of an answer at the wanted places (names or JSON Pointers). Absent ones are left out."""
    found: JsonObject = {}
    for name in wanted:
        here: list[Json] = [body]
        for part in name.split("/")[1:] if name.startswith("/") else [name]:
            key, at = part.replace("~1", "/").replace("~0", "~"), here.pop() if here else None
            if isinstance(at, dict) and key in at:
                here.append(at[key])
            elif isinstance(at, list) and key.isascii() and key.isdigit() and int(key) < len(at):
                here.append(at[int(key)])
        if here:
            found[name] = here[0]
    return found


def _text(answer: Answer) -> Json:
    """The body as text, or a marker if it cannot be kept as text. A truncated body may lose its last character."""
    try:
        text = answer.body.decode("utf-8", "ignore" if answer.truncated else "strict")
    except UnicodeDecodeError:
        return _marker(answer, "It is not UTF-8.")
    return _marker(answer, "It holds the character U+0000.") if "\x00" in text else text


def _json(answer: Answer) -> Json:
    """The body as JSON, or a marker if it is no JSON, too deep or ambiguous (``body`` still has the text)."""
    try:
        return parse(answer.body, bytes_max=len(answer.body))
    except InputError as error:
        return _marker(answer, f"The {error}")


def _marker(answer: Answer, why: str) -> JsonObject:
    return marker(answer.body.decode("utf-8", "backslashreplace"), why)
