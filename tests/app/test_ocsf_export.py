"""The audit as OCSF events, to a file or over HTTP: whole, in order, at least once, and provably unchanged."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from app.cli.outcome import Exit
from core.canonical import canonical_bytes
from evidence import ocsf


@contextmanager
def receiver(answers: list[int]) -> Any:
    """A receiver of events that answers with these codes, then with 204; it keeps what it was sent."""
    seen: list[tuple[str | None, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.headers["Authorization"], body))
            self.send_response(answers.pop(0) if answers else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/events", seen
        server.shutdown()


def streams(events: list[Any]) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for event in events:
        found[event["metadata"]["log_name"]].append(event)
    return found


def check(events: list[Any]) -> None:
    """Each stream is whole from its first line on, and each event is what its fingerprint says."""
    for stream, told in streams(events).items():
        assert [event["metadata"]["sequence"] for event in told] == [*range(len(told))], stream
        before = None
        for event in told:
            attested = event["attestation"]
            bare = {**event, "attestation": {name: attested[name] for name in attested if name != "fingerprint"}}
            assert attested["fingerprint"]["value"] == sha256(canonical_bytes(bare)).hexdigest()
            assert event["raw_data_hash"]["value"] == sha256(event["raw_data"].encode()).hexdigest()
            assert attested.get("prev_event") == before
            before = {"uid": attested["uid"], "fingerprint": attested["fingerprint"]}
            assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]


def test_what_the_log_has_ordered_is_exported_at_least_once(
    command: Any, outside_world: Any, work_off: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    shared = sys.modules[type(outside_world).__module__]
    monkeypatch.chdir(tmp_path)
    Path("simple.yaml").write_text(shared.WORKFLOWS.split("---")[0])
    Path("policy.yaml").write_text(shared.POLICY)
    command("workflow", "publish", "simple.yaml")
    command("policy", "publish", "policy.yaml")
    run = command.json("run", "start", "simple", "--input", '{"number": "INC1"}')["run_id"]
    work_off(outside_world)
    command("log", "sign", "--once")

    file, out = Path("events.jsonl"), ("audit", "export", "-o", "events.jsonl")
    assert command.json(*out)["events"] > 10
    events = [json.loads(line) for line in file.read_text().splitlines()]
    check(events)
    last = streams(events)[f"run:{run}"][-1]
    assert json.loads(last["raw_data"])["data"]["count"] == len(streams(events)[f"run:{run}"]), "run.closed counts all"
    classes = {event["message"]: event["class_uid"] for event in events}
    assert (classes["policy.activated"], classes["action.intended"], classes["decision.made"]) == (3004, 6003, 6003)

    assert command.json(*out)["events"] == 0, "nothing is new"
    command("log", "sign", "--once")
    assert command.json(*out)["events"] > 0, "the export before was told"
    command("log", "sign", "--once")
    assert command.json(*out)["events"] == 0, "an export that told only of that is not told"
    check([json.loads(line) for line in file.read_text().splitlines()])

    Path("token").write_text("secret-of-the-receiver\n")
    with receiver([503]) as (url, seen):
        to = ("audit", "export", "--to", url, "--cursor", "other.cursor", "--token-file", "token")
        command(*to, exit_code=Exit.UNAVAILABLE)
        assert not Path("other.cursor").exists(), "what was not received is sent again"
        command(*to)
        assert [token for token, _ in seen] == ["Bearer secret-of-the-receiver"] * 2
        (first, again) = ([json.loads(line)["metadata"]["uid"] for line in body.splitlines()] for _, body in seen)
        assert again[: len(first)] == first

    with file.open("ab") as half:
        half.write(b'{"half of a li')
    Path("audit-export.cursor").unlink()
    command(*out)
    whole = [line for line in file.read_bytes().splitlines() if line.endswith(b"}")]
    assert {json.loads(line)["metadata"]["uid"] for line in whole} >= {event["metadata"]["uid"] for event in events}
    Path("audit-export.cursor").write_text('{"tenant":"other","next":3}')
    command(*out, exit_code=Exit.INPUT)


def test_the_same_line_is_the_same_event_and_a_changed_one_shows_in_all_that_follow() -> None:
    lines = [
        {"v": 2, "ts": "2026-11-21T10:30:00.123456Z", "type": kind, "actor": {"kind": "person", "id": "ana"},
         "step": None, "data": data}
        for kind, data in (
            ("session.opened", {"subject": "ana"}), ("pause.set", {"paused": "tenant", "reason": "x"}),
            ("evidence.read", {"what": "card"}), ("request.refused", {}), ("policy.retired", {"name": "p"}),
        )
    ]  # fmt: skip
    told, again = ([*ocsf.events("tenant:acme", "acme", "1.0", lines)] for _ in range(2))
    assert told == again
    wanted = [(3002, 1, 1), (3004, 1, 1), (6003, 2, 1), (6003, 99, 2), (3004, 4, 1)]
    assert [(event["class_uid"], event["activity_id"], event["status_id"]) for event in told] == wanted
    lines[1] = {**lines[1], "data": {"paused": "tenant", "reason": "y"}}
    changed = [*ocsf.events("tenant:acme", "acme", "1.0", lines)]
    assert [one == other for one, other in zip(told, changed, strict=True)] == [True, False, False, False, False]
