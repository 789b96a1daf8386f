"""The signatures of deliveries: Standard Webhooks, GitHub, PagerDuty. Pure.

A delivery is known by what its signature covers. Standard Webhooks signs the id and the time. GitHub signs the body
alone, so its delivery id proves nothing, and the digest of the body is the id. PagerDuty's body holds the event's id.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping

from approvals.slack.guard import Refusal
from core import bounded_json
from core.canonical import JsonObject, sha256_hex
from core.errors import InputError
from core.standard_webhooks import key_of, signature
from runtime.definition.tenant import Signed
from runtime.requests.deliveries import Delivery

CLOCK_SKEW_SECONDS_MAX = 300
SIGNATURES_MAX = 20
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_ID = re.compile(r"[\x21-\x7e]{1,200}\Z")
_UNSIGNED = "The signature is missing or does not match the secret of this endpoint, or there is no such endpoint."


def read(signed: Signed, headers: Mapping[str, str], body: bytes, secret: str, now: float) -> Delivery | Refusal:
    """The delivery, if its signature is valid, and fresh if the scheme signs a time; otherwise the reason why not."""
    try:
        return _READERS[signed](headers, body, secret, now)
    except InputError as error:
        return Refusal(400, "malformed", str(error))


def _standard(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> Delivery | Refusal:
    id_, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (_ID.match(id_) and timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return Refusal(401, "timestamp", "webhook-id or webhook-timestamp is missing, or is none.")
    made = signature(key_of(secret), id_, timestamp, body)
    given = [part[3:] for part in headers.get("webhook-signature", "").split()[:SIGNATURES_MAX] if part[:3] == "v1,"]
    if not _any(made, given):
        return Refusal(401, "signature", _UNSIGNED)
    if abs(now - int(timestamp)) > CLOCK_SKEW_SECONDS_MAX:
        return Refusal(401, "stale", "The request is too old or from the future; check the clocks.")
    found = bounded_json.parse_object(body)
    return Delivery(id_, _text(found.get("type")), found)


def _github(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> Delivery | Refusal:
    given = headers.get("x-hub-signature-256", "")
    if not (given.startswith("sha256=") and _any(_hex(secret, body), [given.removeprefix("sha256=")])):
        return Refusal(401, "signature", _UNSIGNED)
    return Delivery(sha256_hex(body), _text(headers.get("x-github-event")), bounded_json.parse_object(body))


def _pagerduty(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> Delivery | Refusal:
    parts = [part.strip() for part in headers.get("x-pagerduty-signature", "").split(",")[:SIGNATURES_MAX]]
    if not _any(_hex(secret, body), [part[3:] for part in parts if part[:3] == "v1="]):
        return Refusal(401, "signature", _UNSIGNED)
    found = bounded_json.parse_object(body)
    event = found.get("event")
    inner: JsonObject = event if isinstance(event, dict) else {}
    id_ = inner.get("id")
    if not isinstance(id_, str) or not _ID.match(id_):
        raise InputError("is missing or is no id", where="event.id", remedy="Send what PagerDuty sends (V3).")
    return Delivery(id_, _text(inner.get("event_type")), found)


def _hex(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _any(made: str, given: list[str]) -> bool:
    """True if one of the signatures is right. All are compared, each in constant time."""
    fits = [hmac.compare_digest(made.encode(), each.encode()) for each in given]
    return any(fits)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


_READERS: Mapping[Signed, Callable[[Mapping[str, str], bytes, str, float], Delivery | Refusal]] = {
    Signed.STANDARD: _standard,
    Signed.GITHUB: _github,
    Signed.PAGERDUTY: _pagerduty,
}
SCHEMES = frozenset(_READERS)
