"""A strict stand-in of the gate's contract over HTTP, with every fault of a server. It needs no product and no library.

It counts what was let out and what was reported, so that a test says which end a call has had.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

TOKEN = "agent-token"
LEASE = 30.0
OVER = ("applied", "denied", "rejected", "expired", "failed", "canceled")
# Answers that are no yes although they could be taken for one; each is made of a real permit.
NOT_A_YES = (
    "down", "hang", "401", "500", "html", "empty", "other", "other nonce", "other digest", "redirect", "text", "cut",
    "huge", "twice", "list", "created", "truthy", "no permit", "no lease", "gzip", "early", "nan",
)  # fmt: skip


@dataclass
class Action:
    """An action: what was asked, what was let out, what was reported."""

    id: str
    tool: str
    arguments: dict[str, Any]
    digest: str
    status: str
    nonce: str | None = None
    permit: str | None = None
    outcome: str | None = None
    output: Any = None
    beats: int = 0


@dataclass
class Books:
    """The knowledge of the stand-in, and its way to answer. ``decide`` gives the status of a new call."""

    decide: Callable[[str, dict[str, Any]], str] = lambda tool, arguments: "approved"
    lease: float = LEASE
    # The first fetch is recorded, and only the next one has the permit.
    slow: bool = False
    # A report with an output is not taken.
    picky: bool = False
    # The stage (ask, look, permit, heartbeat, outcome) whose answers are spoiled, how, and how often.
    stage: str = ""
    fault: str = ""
    times: int = 10**9
    # A spoiled answer is one to a request that was carried out, or to one that never was.
    carried_out: bool = True
    actions: dict[str, Action] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""
    changed: threading.Condition = field(default_factory=threading.Condition)
    closing: threading.Event = field(default_factory=threading.Event)

    def settle(self, status: str) -> None:
        """Decide on everything that is pending."""
        with self.changed:
            for action in self.actions.values():
                if action.status == "pending":
                    action.status = status
            self.changed.notify_all()

    def end_leases(self) -> None:
        """End the lease of each permit without a report."""
        with self.changed:
            for action in self.actions.values():
                if action.status == "executing":
                    action.status = "in_doubt"

    def until(self, fact: Callable[[], bool]) -> None:
        """Wait for a fact about what was asked, or about what another process has done."""
        with self.changed:
            for _ in range(600):
                if fact():
                    return
                self.changed.wait(timeout=0.1)
            raise AssertionError("It did nothing more.")

    def only(self) -> Action:
        """The one action that was asked for."""
        (action,) = self.actions.values()
        return action


@contextmanager
def serving(**given: Any) -> Iterator[Books]:
    """A server on a free port."""
    books = Books(**given)

    class Handler(_Handler):
        pass

    Handler.books = books
    server = _Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    books.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield books
    finally:
        books.closing.set()
        server.shutdown()
        server.server_close()


def digest_of(tool: str, arguments: Any) -> str:
    """The digest of a call, by another way than the package's own."""
    call = {"arguments": arguments, "mode": "gate", "tool": tool}
    return sha256(json.dumps(call, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Clients are killed here, and go away in the middle of an answer."""


class _Problem(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    books: Books
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._answer("look", self._look)

    def do_POST(self) -> None:
        stage = self.path.rpartition("/")[2]
        stages = {"actions": self._ask, "permit": self._permit, "heartbeat": self._beat, "outcome": self._outcome}
        self._answer("ask" if stage == "actions" else stage, stages[stage])

    def _answer(self, stage: str, act: Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        spoiled = stage == self.books.stage and self.books.times > 0
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise _Problem(401, "The token is not valid.")
            if body and self.headers.get("Content-Type") != "application/json":
                raise _Problem(415, "The body is no JSON.")
            with self.books.changed:
                self.books.asked.append(stage)
                self.books.changed.notify_all()
                acts = not spoiled or self.books.carried_out
                status, answer = act(json.loads(body) if body else {}) if acts else (500, {})
            kind = "application/json"
        except _Problem as problem:
            status, answer, kind = problem.status, {"detail": str(problem)}, "application/problem+json"
        if spoiled:
            self.books.times -= 1
            self._spoil(self.books.fault, answer)
        else:
            self._send(status, json.dumps(answer).encode(), kind)

    def _send(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def _spoil(self, fault: str, answer: dict[str, Any]) -> None:
        yes = json.dumps(answer).encode()
        other = {"other": {"id": str(uuid4())}, "other nonce": {"nonce": secrets.token_hex(32)},
                 "other digest": {"digest": digest_of("other", {})}, "truthy": {"decision": True},
                 "no permit": {"permit": ""}, "no lease": {"lease_seconds": 0}}  # fmt: skip
        if fault in ("down", "cut"):
            self.close_connection = True
        if fault == "hang":
            self.books.closing.wait(30)
            self.close_connection = True
        elif fault in other:
            self._send(200, json.dumps({**answer, **other[fault]}).encode())
        elif fault != "down":
            kept: dict[str, tuple[Any, ...]] = {
                "401": (401, b'{"detail": "no"}', "application/problem+json"), "500": (500, b"", "text/plain"),
                "html": (200, b"<html>permit</html>", "text/html"), "text": (200, yes, "text/plain"),
                "twice": (200, yes[:-1] + b', "decision": "permit"}'), "list": (200, b"[" + yes + b"]"),
                "created": (201, yes), "huge": (200, yes[:-1] + b" " * 5_000_000 + b"}"), "early": (202, yes),
                "nan": (200, yes[:-1] + b', "x": NaN}'), "gzip": (200, yes), "cut": (200, yes[:-1]),
                "redirect": (307, b""), "empty": (200, b""),
            }  # fmt: skip
            headers = {"gzip": {"Content_Encoding": "gzip"}, "cut": {"length": str(len(yes))},
                       "redirect": {"Location": self.path}}  # fmt: skip
            self._send(*kept[fault], **headers.get(fault, {}))

    def _ask(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        _only(body, {"mode", "tool", "arguments"}, {"session", "for", "wait"})
        if body["mode"] != "gate" or not self.headers.get("Idempotency-Key"):
            raise _Problem(422, "It is no call at the gate, or it has no key.")
        digest = digest_of(body["tool"], body["arguments"])
        same = [one for one in self.books.actions.values() if one.digest == digest]
        refused = ("denied", "rejected", "expired")
        going = [one for one in same if one.status not in OVER or one.status in refused]
        if not going:
            status = self.books.decide(body["tool"], body["arguments"])
            made = Action(str(uuid4()), body["tool"], body["arguments"], digest, status)
            self.books.actions[made.id] = made
            going = [made]
        return self._shown(going[-1])

    def _look(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        path, _, query = self.path.partition("?wait=")
        action = self._found(path.rsplit("/", 1)[1])
        self.books.changed.wait_for(lambda: action.status not in ("judging", "pending"), float(query or 0))
        return self._shown(action)

    def _found(self, name: str) -> Action:
        if name not in self.books.actions:
            raise _Problem(404, "There is no such action.")
        return self.books.actions[name]

    def _shown(self, action: Action) -> tuple[int, dict[str, Any]]:
        over = action.status in OVER
        shown = {"id": action.id, "status": action.status, "digest": action.digest, "settled": over, "detail": ""}
        return (200 if over else 202), {**shown, "poll_after": None if over else 1, "url": f"/v1/actions/{action.id}"}

    def _of_permit(self, body: dict[str, Any]) -> Action:
        action = self._found(self.path.split("/")[-2])
        if body["permit"] != action.permit or action.permit is None:
            raise _Problem(409, "This is not the permit of the action.")
        return action

    def _permit(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        _only(body, {"nonce", "digest", "wait"}, set())
        action = self._found(self.path.split("/")[-2])
        if len(body["nonce"]) not in range(32, 65) or body["nonce"].strip("0123456789abcdef") != "":
            raise _Problem(422, "The nonce is none.")
        if not isinstance(body["wait"], int | float) or not 0 <= body["wait"] <= 50:
            raise _Problem(422, "It waits too long.")
        if body["digest"] != action.digest or action.nonce not in (None, body["nonce"]):
            raise _Problem(409, "The permit was given to another fetch.")
        said = {"id": action.id, "nonce": body["nonce"], "digest": body["digest"]}
        if action.status in ("pending", "judging"):
            return 202, {**said, "decision": "wait", "status": action.status, "poll_after": 1}
        if self.books.slow and action.nonce is None and action.status == "approved":
            action.nonce = body["nonce"]
            return 202, {**said, "decision": "wait", "status": "judging", "poll_after": 1}
        if action.status in ("approved", "executing"):
            action.status, action.nonce = "executing", body["nonce"]
            action.permit = action.permit or secrets.token_hex(32)
            lease = {"expires_at": "2026-11-29T08:00:00Z", "lease_seconds": self.books.lease}
            return 200, {**said, "decision": "permit", "permit": action.permit, **lease}
        return 200, {**said, "decision": "deny", "status": action.status, "detail": "People said why."}

    def _beat(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        _only(body, {"permit"}, set())
        action = self._of_permit(body)
        if action.status != "executing":
            raise _Problem(409, "The lease is over.")
        action.beats += 1
        return 200, {"id": action.id, "expires_at": "2026-11-29T08:00:00Z"}

    def _outcome(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        _only(body, {"permit", "outcome", "digest"}, {"output", "detail"})
        action = self._of_permit(body)
        if self.books.picky and "output" in body:
            raise _Problem(422, "The output is too large.")
        if action.outcome is None:
            ends = {"succeeded": "applied", "failed": "failed", "not_run": "failed", "unknown": "in_doubt"}
            in_doubt = action.status != "executing" or body["digest"] != action.digest
            action.outcome, action.output = body["outcome"], body.get("output")
            action.status = "in_doubt" if in_doubt else ends[body["outcome"]]
        return 200, self._shown(action)[1]


def _only(body: Any, needed: set[str], allowed: set[str]) -> None:
    if not isinstance(body, dict) or not needed <= body.keys() <= needed | allowed:
        raise _Problem(422, "The body has other members.")
