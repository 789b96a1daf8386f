"""Makes one HTTP exchange, and distinguishes *certainly no effect* from *in doubt*.

A failed call is in doubt once the first byte of the request was handed to the connection. httpcore's trace reports
that; the error's class alone does not.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TypeAlias, TypeVar

import httpx
from msgspec import Struct, field
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_random_exponential

from connectors.port import Failure, InDoubt, NotSent, Refused
from core import tracing
from core.bounded_json import parse, parse_object
from core.budgets import most
from core.canonical import Json, JsonObject
from core.errors import ConfigurationError, InputError
from core.unkept import marker

ATTEMPTS = 3
RETRY_AFTER_SECONDS_MAX = 2.0
# Any longer time is as good as this one: whoever waits bounds it.
_AFTER_SECONDS_MAX = 1e9
CONNECT_SECONDS_MAX = 10.0
BODY_BYTES_MAX = most("outside_bytes")

_BEFORE_THE_REQUEST = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_BACKOFF = wait_random_exponential(multiplier=0.1, max=1.0)


@cache
def tls() -> ssl.SSLContext:
    """The TLS context that all clients share: loading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context()


def http_url(text: str, what: str, setting: str, example: str) -> httpx.URL:
    """An address in the settings. ``ConfigurationError`` names the setting and an example."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host:
        raise ConfigurationError(f"{what} {text!r} is not an http(s) URL.", remedy=f"Set {setting}, such as {example}.")
    return url


def public_address(text: str, account: str | None = None) -> str:
    """The name of a target system: its address without secrets, and the account that we use there (promise 3)."""
    url = httpx.URL(text)
    named = f"{url.scheme}://{url.netloc.decode('ascii')}{url.path.rstrip('/')}"
    return f"{named} as {account}" if account else named


def deadline_in(seconds: float) -> float:
    """The event loop's time in ``seconds`` from now."""
    return asyncio.get_running_loop().time() + seconds


def seconds_to(deadline: float) -> float:
    """The seconds left until a deadline; a millisecond if it has passed."""
    return max(deadline - asyncio.get_running_loop().time(), 0.001)


class Answer(Struct, frozen=True):
    """An answer that is neither 429 nor a server error. ``body`` is cut at the limit if ``truncated``."""

    status: int
    headers: httpx.Headers
    body: bytes
    truncated: bool

    @property
    def ok(self) -> bool:
        """True if the status is 2xx."""
        return 200 <= self.status < 300

    def explanation(self) -> JsonObject:
        """The JSON object in the body, which explains an error; empty if the body is no JSON object."""
        try:
            return parse_object(self.body, bytes_max=BODY_BYTES_MAX)
        except InputError:
            return {}

    def words(self) -> str:
        """The message and detail of the body's ``error``, as many APIs give them; "" if there is none."""
        error = self.explanation().get("error")
        reasons = [error.get("message"), error.get("detail")] if isinstance(error, dict) else []
        return ": ".join(str(word) for word in reasons if word)


class Unread(InDoubt, frozen=True):
    """An unreadable success: a 2xx answer whose body claims to be JSON, but is not, or cannot be kept.

    ``marker`` describes it. For most calls it is a doubt, because the connector needs the content of the answer.
    """

    marker: JsonObject = field(default_factory=dict)


Reply: TypeAlias = Answer | NotSent | InDoubt
Read = TypeVar("Read")
# A function that takes an answer's headers and returns a function, which gets each piece and is True if it is the last.
Ending: TypeAlias = Callable[[httpx.Headers], Callable[[bytes], bool]]


def json_of(
    reply: Reply | Refused, system: str, refusal: Callable[[Answer], Refused], *, bytes_max: int = BODY_BYTES_MAX
) -> Json | Failure:
    """The JSON of a 2xx answer of ``system``; None if it has no content (204).

    A 2xx answer that is not JSON (a log-in or hibernation page), or longer than ``bytes_max``, is in doubt.
    """
    if not isinstance(reply, Answer):
        return reply
    if not reply.ok:
        return refusal(reply)
    if reply.truncated:
        return _unread(reply, f"{system}'s answer is longer than {bytes_max} bytes; ask for less")
    if reply.status == httpx.codes.NO_CONTENT:
        return None
    try:
        return parse(reply.body, bytes_max=bytes_max, where=f"{system}'s answer")
    except InputError as error:
        return _unread(reply, str(error))


def _unread(answer: Answer, why: str) -> InDoubt:
    """The doubt about an unreadable 2xx answer. A page that is not JSON may not even come from the system."""
    if "json" not in answer.headers.get("content-type", ""):
        return InDoubt(why)
    return Unread(why, marker=marker(answer.body.decode("utf-8", "backslashreplace"), why))


def harmless(reply: Read | Failure) -> Read | Refused | NotSent:
    """The reply of a call that only reads: a doubt becomes ``NotSent``, because a read can be repeated."""
    return NotSent(reply.message, reply.retry_after_seconds) if isinstance(reply, InDoubt) else reply


class _Attempt(Struct, frozen=True):
    """A reply. ``again``: an immediate retry makes sense, as nothing was sent, or a 429 asks for a short pause."""

    reply: Reply
    again: bool = False


async def exchange(
    client: httpx.AsyncClient,
    request: httpx.Request,
    *,
    effect: bool,
    timeout_seconds: float,
    body_bytes_max: int = BODY_BYTES_MAX,
    ending: Ending | None = None,
) -> Reply:
    """Send ``request`` within ``timeout_seconds`` in all. Retries only after a failure certainly without effect.

    With ``effect``, any failure after the request left is in doubt: a timeout, a lost connection, 408, 5xx. Without it,
    the same failure is ``NotSent``: a read can be repeated. Redirects are never followed. The run's
    trace goes along if the settings say so, and the request names none. ``ending`` recognizes the last piece of an
    answer that stays open.
    """
    if (carried := tracing.OUTBOUND.get()) is not None:
        request.headers.setdefault("Traceparent", carried)
    deadline = deadline_in(timeout_seconds)
    retrying = AsyncRetrying(
        retry=retry_if_result(lambda attempt: attempt.again),
        wait=_pause,
        stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(timeout_seconds),
        retry_error_callback=_last,
    )
    attempt: _Attempt = await retrying(_attempt, client, request, effect, deadline, body_bytes_max, ending)
    return attempt.reply


async def _attempt(
    client: httpx.AsyncClient,
    request: httpx.Request,
    effect: bool,
    deadline: float,
    body_bytes_max: int,
    ending: Ending | None,
) -> _Attempt:
    left = False

    async def trace(event: str, _: object) -> None:
        nonlocal left
        left = left or event.endswith("send_request_headers.started")

    timeout = httpx.Timeout(seconds_to(deadline), connect=min(seconds_to(deadline), CONNECT_SECONDS_MAX))
    request.extensions = {**request.extensions, "trace": trace, "timeout": timeout.as_dict()}
    where = f"{request.method} {request.url.host}"
    try:
        async with asyncio.timeout_at(deadline):
            response = await client.send(request, stream=True, follow_redirects=False)
            try:
                body, truncated = await _read(response, body_bytes_max, ending)
            finally:
                await response.aclose()
    except TimeoutError:
        message = f"{where}: no answer in time"
        return _Attempt(InDoubt(message) if effect and left else NotSent(message))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        message = f"{where}: {type(error).__name__}: {error}".removesuffix(": ")
        before = not left or isinstance(error, _BEFORE_THE_REQUEST)
        return _Attempt(InDoubt(message) if effect and not before else NotSent(message), again=before)
    return _judge(Answer(response.status_code, response.headers, body, truncated), effect, where)


async def _read(response: httpx.Response, body_bytes_max: int, ending: Ending | None) -> tuple[bytes, bool]:
    body, over = bytearray(), None if ending is None else ending(response.headers)
    # Each piece of an answer that stays open is checked when it comes: it may be the last.
    async for chunk in response.aiter_bytes(64 * 1024 if over is None else None):
        body += chunk
        if len(body) > body_bytes_max:
            return bytes(body[:body_bytes_max]), True
        if over is not None and over(chunk):
            break
    return bytes(body), False


def _judge(answer: Answer, effect: bool, where: str) -> _Attempt:
    after = retry_after_seconds(answer.headers)
    if answer.status == httpx.codes.TOO_MANY_REQUESTS:
        short = after is not None and after <= RETRY_AFTER_SECONDS_MAX
        return _Attempt(NotSent(f"{where}: too many requests (429)", after), again=short)
    if answer.status >= 500 or answer.status == httpx.codes.REQUEST_TIMEOUT:
        message = f"{where}: the server failed ({answer.status})"
        return _Attempt(InDoubt(message, (), after) if effect else NotSent(message, after))
    return _Attempt(answer)


def retry_after_seconds(headers: httpx.Headers) -> float | None:
    """The seconds in ``Retry-After`` (RFC 9110 10.2.3); a date counts from the answer's ``Date``, not our clock."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _AFTER_SECONDS_MAX)
    try:
        moment, now = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("Date", ""))
        return max((moment - now).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def _pause(state: RetryCallState) -> float:
    reply = _last(state).reply
    after = reply.retry_after_seconds if isinstance(reply, NotSent) else None
    return _BACKOFF(state) if after is None else after


def _last(state: RetryCallState) -> _Attempt:
    """The attempt that just ended. Attempts never raise; tenacity retries by their results."""
    assert state.outcome is not None
    attempt: _Attempt = state.outcome.result()
    return attempt
