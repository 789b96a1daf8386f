"""The contract with the server, without I/O: what is sent, and which answer is a yes.

A flow yields what is to be sent, or a pause, and is given the answer; `gate` drives it, with or without asyncio. Only
one answer lets a tool run: a JSON object with status 200 that says ``permit`` and repeats the action's id, the random
nonce of this very call, and the digest that was computed here. Every other answer ends the flow with ``NotRun``.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from counterseal_agents.canonical import Json, JsonObject, canonical, digest_of_call, parse
from counterseal_agents.errors import Closed, NotRun, Pending, Refused

WAIT_MAX = 50.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
OUTPUT_BYTES_MAX = 64 * 1024
DETAIL_MAX = 1000
ATTEMPTS = 3
ATTEMPTS_OF_REPORTS = 6
_AGAIN = frozenset({429, 500, 502, 503, 504})
# Statuses of a call that may still be let out, with what a model is told about them.
_LATER = {
    "judging": "it waits for a decision",
    "pending": "it waits for people to decide",
    "approved": "it is let out, and its permit is still to be fetched",
    "executing": "it is under way",
}
# Statuses of a call that is not decided.
_OPEN = ("judging", "pending")
_STATUS = "#status"
# A fetch is judged anew and recorded before its permit goes out: that takes a moment, and a busy server takes longer.
FETCH_SECONDS = 20.0
# A report that the server cannot keep as it is: it is left without what the tool gave back.
_UNFIT = (400, 413, 422)


@dataclass(frozen=True)
class Send:
    """A request. ``seconds`` is how long its whole answer may take."""

    path: str
    body: bytes
    seconds: float
    key: str | None = None
    method: str = "POST"


@dataclass(frozen=True)
class Pause:
    """A pause of so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    content_type: str
    body: bytes


class Unreachable(Exception):
    """There was no whole answer in time. The driver throws this into the flow."""


Step: TypeAlias = Send | Pause
T = TypeVar("T")
Flow: TypeAlias = Generator[Step, Answer | None, T]


@dataclass(frozen=True)
class Ended(Generic[T]):
    """The end of a flow, with what it returned."""

    value: T


def advance(flow: Flow[T], given: Answer | Unreachable | None) -> Step | Ended[T]:
    """The next thing that the flow asks for, once it is given the answer or the reason why there is none."""
    try:
        return flow.throw(given) if isinstance(given, Unreachable) else flow.send(given)
    except StopIteration as end:
        return Ended(end.value)


@dataclass(frozen=True)
class Terms:
    """The terms of a gate: for whom it asks, and its limits of time in seconds."""

    session: str | None = None
    acts_for: str | None = None
    wait: float = WAIT_MAX
    timeout: float = 10.0
    pause: float = 0.3


@dataclass(frozen=True)
class Call:
    """One call of a tool, with the digest over the arguments that its body gets."""

    tool: str
    arguments: JsonObject
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "digest", digest_of_call(self.tool, self.arguments))
        except ValueError as error:
            raise Closed(f"{self.tool} was not run: a value of its arguments {error}.") from None


@dataclass(frozen=True)
class Permit:
    """A yes to one call, spent by running it. ``ends`` is the end of its lease on this machine's clock."""

    call: Call
    action: str
    permit: str = field(repr=False)
    lease: float
    ends: float

    @property
    def over(self) -> bool:
        """True if the lease has ended, by what this machine knows."""
        return now() >= self.ends


def now() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine sleeps where there is such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def ask(call: Call, terms: Terms) -> Flow[tuple[str, str]]:
    """Ask for the call, or find the same call of this agent that is under way; return the action's id and status."""
    body: JsonObject = {"mode": "gate", "tool": call.tool, "arguments": call.arguments}
    if terms.session is not None:
        body["session"] = terms.session
    if terms.acts_for is not None:
        body["for"] = terms.acts_for
    send = Send("/v1/actions", canonical(body), terms.timeout, key=secrets.token_hex(16))
    found = yield from _exchange(call, send, terms)
    return _id_of(call, found), _text(found, "status")


def look(call: Call, terms: Terms) -> Flow[bool]:
    """Ask, and wait until it is decided, as long as the terms say; True if it is not. Nothing is let out by this."""
    action, status = yield from ask(call, terms)
    return (yield from _decided(call, terms, action, status)) in _OPEN


def obtain(call: Call, terms: Terms) -> Flow[Permit]:
    """Ask for the call, wait as long as the terms say, and fetch its permit; ``NotRun`` without an explicit yes.

    A fetch of what is let out may have begun the lease already. So it is not given up before its answer had time.
    """
    action, status = yield from ask(call, terms)
    status = yield from _decided(call, terms, action, status)
    if status in _OPEN:
        raise _pending(call, action, status)
    nonce, until = secrets.token_hex(32), now() + FETCH_SECONDS
    while True:
        wait = min(WAIT_MAX, max(0.0, until - now()))
        body = canonical({"nonce": nonce, "digest": call.digest, "wait": round(wait, 3)})
        began = now()
        send = Send(f"/v1/actions/{action}/permit", body, terms.timeout + wait)
        answer = yield from _exchange(call, send, terms, action)
        _same(call, answer, action, nonce)
        if answer.get("decision") == "permit" and answer[_STATUS] == 200:
            return _permit_of(call, answer, action, began)
        if answer.get("decision") == "deny":
            raise _refusal(call, action, answer)
        if answer.get("decision") != "wait":
            raise _closed(call, "it says neither permit, deny nor wait", action)
        if now() >= until or answer.get("status") == "pending":
            raise _pending(call, action, _text(answer, "status"))
        yield Pause(min(terms.pause, max(0.0, until - now())))


def _decided(call: Call, terms: Terms, action: str, status: str) -> Flow[str]:
    """Wait until the action is decided, as long as the terms say; return its status then."""
    until = now() + terms.wait
    while status in _OPEN and (left := until - now()) > 0:
        began, wait = now(), min(WAIT_MAX, left)
        send = Send(f"/v1/actions/{action}?wait={wait:.3f}", b"", terms.timeout + wait, method="GET")
        found = yield from _exchange(call, send, terms, action)
        if _id_of(call, found) != action:
            raise _closed(call, "the answer is about another action", action)
        status = _text(found, "status")
        if status in _OPEN and now() - began < wait / 2:  # the server holds no more callers
            yield Pause(min(_seconds(found, "poll_after", 5.0), max(0.0, until - now())))
    return status


def report(permit: Permit, outcome: str, timeout: float, pause: float, output: Json, detail: str) -> Flow[None]:
    """Report what became of the call. ``Unreachable`` when the report could not be left before the lease ended."""
    body: JsonObject = {"permit": permit.permit, "outcome": outcome, "digest": permit.call.digest}
    if outcome == "succeeded":
        body["output"] = output
    if detail:
        body["detail"] = detail[:DETAIL_MAX]
    send = Send(f"/v1/actions/{permit.action}/outcome", canonical(body), timeout)
    problem = ""
    for attempt in range(ATTEMPTS_OF_REPORTS):
        try:
            found = _read(_given((yield send)), (200,))
        except (Unreachable, _Unusable) as error:
            problem = str(error)
            if isinstance(error, _Unusable) and error.status in _UNFIT and "output" in body:
                body = {**body, "detail": "What the tool gave back could not be kept."}
                del body["output"]
                send = Send(send.path, canonical(body), timeout)
                continue
            if isinstance(error, _Unusable) and not error.again:
                break
        else:
            if found.get("id") == permit.action:
                return
            problem = "the answer is about another action"
            break
        if permit.over:
            break
        yield Pause(pause * 2**attempt)
    raise Unreachable(problem)


def beat(permit: Permit, timeout: float) -> Flow[float | None]:
    """Extend the lease; return the seconds that it has now, or None if it is over."""
    send = Send(f"/v1/actions/{permit.action}/heartbeat", canonical({"permit": permit.permit}), timeout)
    try:
        answer = _given((yield send))
        found = _read(answer, (200,))
    except _Unusable as error:
        if error.again:
            raise Unreachable(str(error)) from None
        return None
    return permit.lease if found.get("id") == permit.action else None


def _pending(call: Call, action: str, status: str) -> NotRun:
    """The words for a call that is not decided."""
    why = _LATER.get(status)
    if why is None:
        return _closed(call, "its status is none that waits", action)
    return Pending(
        f"{call.tool} was not run: {why} (action {action}). Call it again later with the same arguments; it is then "
        "answered from the same question. Do not try to reach the same end in another way.",
        action=action, status=status,
    )  # fmt: skip


class _Unusable(Exception):
    """An answer that is no yes. ``again``: the same request may be sent again."""

    def __init__(self, words: str, *, again: bool = False, status: int = 0) -> None:
        super().__init__(words)
        self.again = again
        self.status = status


def _exchange(call: Call, send: Send, terms: Terms, action: str = "") -> Flow[dict[str, Any]]:
    """One request with its answer. Sent again it changes nothing: it has the same key, or the same nonce."""
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            yield Pause(terms.pause * 2**attempt)
        try:
            return _read(_given((yield send)), (200, 202))
        except Unreachable as error:
            problem = str(error)
        except _Unusable as error:
            problem = str(error)
            if error.status == 409:
                raise Refused(
                    f"{call.tool} was not run: {problem}. Do not repeat it; people may have to find out what became "
                    "of the earlier call.", action=action, status="conflict",
                ) from None  # fmt: skip
            if not error.again:
                break
    raise _closed(call, problem, action)


def _given(answer: Answer | None) -> Answer:
    if answer is None:
        raise Unreachable("there was no answer")
    return answer


def _read(answer: Answer, statuses: tuple[int, ...]) -> dict[str, Any]:
    """The JSON object of an answer that has one of these statuses; its status stands under ``_STATUS``."""
    kind = answer.content_type.partition(";")[0].strip().lower()
    if answer.status not in statuses:
        words = f"Counterseal answered with HTTP {answer.status}"
        if kind == "application/problem+json":
            words += _problem(answer.body)
        raise _Unusable(words, again=answer.status in _AGAIN, status=answer.status)
    if kind != "application/json":
        raise _Unusable("the answer is no JSON by its content type")
    try:
        found = parse(answer.body)
    except ValueError:
        raise _Unusable("the answer is no JSON") from None
    if not isinstance(found, dict):
        raise _Unusable("the answer is no JSON object")
    return {**found, _STATUS: answer.status}


def _problem(body: bytes) -> str:
    """The server's own words for a refusal, for people and models to read; nothing follows from them."""
    try:
        found = json.loads(body.decode())
    except (ValueError, RecursionError):
        return ""
    detail = found.get("detail") if isinstance(found, dict) else None
    return f": {detail[:DETAIL_MAX].rstrip('.')}" if isinstance(detail, str) else ""


def _id_of(call: Call, found: dict[str, Any]) -> str:
    """The id of the action that was asked for. It stands in paths, so it is a UUID or nothing."""
    action, digest = found.get("id"), found.get("digest")
    try:
        good = isinstance(action, str) and str(UUID(action)) == action
    except ValueError:
        good = False
    if not good or not isinstance(action, str):
        raise _closed(call, "the answer names no action")
    if not isinstance(digest, str) or not _equal(digest, call.digest):
        raise _closed(call, "the answer is about another call", action)
    return action


def _equal(one: str, other: str) -> bool:
    return compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())


def _same(call: Call, answer: dict[str, Any], action: str, nonce: str) -> None:
    for name, mine in (("id", action), ("nonce", nonce), ("digest", call.digest)):
        given = answer.get(name)
        if not isinstance(given, str) or not _equal(given, mine):
            raise _closed(call, f"the answer does not repeat the {name} of this call", action)


def _permit_of(call: Call, answer: dict[str, Any], action: str, began: float) -> Permit:
    permit, lease = answer.get("permit"), _seconds(answer, "lease_seconds", 0.0)
    if not isinstance(permit, str) or not permit or lease <= 0:
        raise _closed(call, "the answer has no permit with a lease", action)
    # The lease began at the server after this request was sent: counted from there, it ends here first.
    return Permit(call, action, permit, lease, began + lease)


def _refusal(call: Call, action: str, answer: dict[str, Any]) -> Refused:
    status, detail = _text(answer, "status"), _text(answer, "detail")
    why = f": {detail.rstrip('.')}" if detail else ""
    outcome = status.replace("_", " ") or "refused"
    return Refused(
        f"{call.tool} was not run: the call is {outcome}{why}. Do not repeat it, and do not try to reach the same end "
        "in another way.", action=action, status=status,
    )  # fmt: skip


def _closed(call: Call, why: str, action: str = "") -> Closed:
    return Closed(
        f"{call.tool} was not run: there is no yes from Counterseal, because {why}. It may be tried again later.",
        action=action,
    )


def _text(answer: dict[str, Any], name: str) -> str:
    value = answer.get(name)
    return value[:DETAIL_MAX] if isinstance(value, str) else ""


def _seconds(answer: dict[str, Any], name: str, otherwise: float) -> float:
    value = answer.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**9:
        return otherwise
    return float(value)
