"""Forges a bundle as somebody can who holds the database and the signing key: nothing contradicts itself."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from core.canonical import canonical_bytes, digest, sha256_hex
from evidence import layout
from evidence.bundle import Unsigned, seal
from evidence.chain import ChainHead, timestamp
from evidence.commitments import commit, disclosure, path_of
from evidence.events import EventType
from evidence.history import ATTEMPTED, History
from evidence.receipts import ReceiptStatus
from evidence.rollup import Rollup
from evidence.signing import Signer

KEY = b"f" * 32
LATER = timedelta(days=40)


def _pretty(value: Any) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"


class Forged:
    """A bundle taken apart. Change ``events``, ``asked``, ``cards``, ``definition``, ``people`` or ``tenant``."""

    def __init__(self, data: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.files = {name: archive.read(name) for name in archive.namelist()}
        self.events: list[dict[str, Any]] = [json.loads(line) for line in self.files[layout.EVENTS].splitlines()]
        self.run = json.loads(self.files[layout.RUN_FILE])
        self.definition = json.loads(self.files[layout.DEFINITION])
        told = {name: json.loads(data) for name, data in self.files.items() if name.startswith("approvals/")}
        self.asked = {each["approval"]: each["asked"] for each in told.values()}
        self.cards = {each["approval"]: each["card"] for each in told.values()}
        self.people: dict[str, Any] = {}
        self.tenant: list[dict[str, Any]] = []
        self.format, self.claims = 3, dict[str, Any]()

    def at(self, kind: str, number: int = 0, step: str | None = None) -> int:
        """The place of an event; ``number`` counts those of its type and step."""
        found = [
            place for place, event in enumerate(self.events)
            if event["type"] == kind and step in (None, event["step"])
        ]  # fmt: skip
        return found[number]

    def event(self, kind: str, number: int = 0, step: str | None = None) -> dict[str, Any]:
        return self.events[self.at(kind, number, step)]

    def drop(self, *kinds: str, step: str | None = None, number: int | None = None) -> None:
        """Leave out events of these types: all, or one."""
        for kind in kinds:
            if number is not None:
                del self.events[self.at(kind, number, step)]
            else:
                self.events = [e for e in self.events if e["type"] != kind or step not in (None, e["step"])]

    def put(self, place: int, kind: str, step: str | None, actor: str = "engine:counterseal", **data: Any) -> None:
        """Invent an event, at the time of the one before."""
        who, _, name = actor.partition(":")
        ts = self.events[place - 1]["ts"]
        told = {"v": 2, "ts": ts, "type": kind, "actor": {"kind": who, "id": name}, "step": step, "data": data}
        self.events.insert(place, told)

    def later(self, place: int, by: timedelta = LATER) -> None:
        """Let everything from here on have happened later."""
        for event in self.events[place:]:
            event["ts"] = timestamp(datetime.fromisoformat(event["ts"]) + by)

    def line(self, kind: str, stop: int, **data: Any) -> None:
        """Add a line of the tenant."""
        actor, ts = {"kind": "person", "id": "ana"}, self.events[0]["ts"]
        told = {"v": 2, "ts": ts, "type": kind, "actor": actor, "step": None, "data": {**data, "stop": stop}}
        self.tenant.append({"seq": len(self.tenant), "line": told})

    # -- putting it together -----------------------------------------------------------------------------------------

    def sealed(self, signer: Signer) -> bytes:
        """The forged bundle, with everything derived anew: chain, head, files, checksums, statement, signature."""
        for event in self.events:
            self._commit(event)
        for seq, event in enumerate(self.events):
            if event["type"] == EventType.RUN_CLOSED:
                event["data"]["count"] = seq + 1
        history = self._fold(History())
        self._receipts(history)
        history, rollup = self._fold(History()), self._fold(Rollup())
        files = {
            name: data for name, data in self.files.items()
            if name not in (layout.ENVELOPE, layout.SUMS) and not name.startswith("approvals/")
        }  # fmt: skip
        lines = [canonical_bytes(event) for event in self.events]
        head = ChainHead.of(f"run:{self.run['run']}").after(lines)
        final = history.run_status is not None
        told = json.loads(files[layout.RUN_HEAD]) | {"count": head.count, "head": head.hash, "appends": [len(lines)]}
        files[layout.RUN_HEAD] = canonical_bytes({**told, "final": final}) + b"\n"
        files[layout.EVENTS] = b"".join(line + b"\n" for line in lines)
        files[layout.RUN_FILE] = _pretty(self._run(history))
        for name, made in (
            (layout.DECISIONS, rollup.decisions), (layout.COSTS, rollup.costs()),
            (layout.CHECKPOINTS, rollup.checkpoints),
        ):  # fmt: skip
            files[name] = _pretty(made)
        files[layout.DEFINITION] = canonical_bytes(self.definition) + b"\n"
        files[layout.TENANT] = b"".join(canonical_bytes(line) + b"\n" for line in self.tenant)
        for key, each in self.people.items():
            files[layout.people_file(key)] = _pretty(each)
        for key, known in history.approvals.items():
            files[layout.record_file("approvals", key)] = _pretty(self._approval(key, known))
        return seal(self._stated(files, history, head, final), signer).bytes

    def _stated(self, files: dict[str, bytes], history: History, head: ChainHead, final: bool) -> Unsigned:
        if self.format == 2:
            lacks = ("directory/", layout.DEFINITION, layout.TENANT)
            plain = [name for name in files if name.startswith("policy/") and name.endswith(".json")]
            files = {name: each for name, each in files.items() if not name.startswith(lacks) and name not in plain}
        envelope = json.loads(self.files[layout.ENVELOPE])
        statement = json.loads(base64.b64decode(envelope["payload"]))
        files[layout.SUMS] = "".join(f"{sha256_hex(files[name])}  {name}\n" for name in sorted(files)).encode()
        statement["subject"] = [{"name": n, "digest": {"sha256": sha256_hex(files[n])}} for n in sorted(files)]
        claims = {"count": head.count, "last_seq": head.count - 1, "head": head.hash, "final": final}
        statement["predicate"] |= {**claims, "status": history.run_status, "policies": [*history.policies.values()]}
        statement["predicate"] |= self.claims
        statement["predicateType"] = layout.predicate_type(self.format)
        return Unsigned("forged.zip", files, canonical_bytes(statement))

    def _fold(self, into: Any) -> Any:
        for seq, event in enumerate(self.events):
            into.observe({**event, "seq": seq})
        return into

    def _commit(self, event: dict[str, Any]) -> None:
        """Commit to what was asked and shown by a key of our own, and to no reasons."""
        data = event["data"]
        if event["type"] == EventType.APPROVAL_REQUESTED:
            place = path_of("approval", data["approval"])
            asked, card = self.asked[data["approval"]], self.cards[data["approval"]]
            data["committed"] = [[f"{place}/asked", commit(KEY, f"{place}/asked", asked)]]
            if card is not None:
                data["card"] = commit(KEY, f"{place}/card", card)
        elif event["type"] == EventType.APPROVAL_VOTED:
            data.pop("committed", None)

    def _approval(self, key: str, known: Any) -> dict[str, Any]:
        place, asked, card = path_of("approval", key), self.asked[key], self.cards[key]
        nothing = {"reason": None, "reason_disclosure": None}
        return {
            "approval": key, "action": known.action, "status": known.status, "card_commitment": known.card,
            "card": card, "card_disclosure": None if card is None else disclosure(KEY, f"{place}/card", card),
            "asked": asked, "asked_disclosure": disclosure(KEY, f"{place}/asked", asked),
            "votes": [{**vote, **nothing} for vote in known.votes],
        }  # fmt: skip

    def _receipts(self, history: History) -> None:
        """Make the receipts those of the events, and have the last event about each name its digest."""
        kept = {}
        for name in [name for name in self.files if name.startswith("receipts/")]:
            told = json.loads(self.files.pop(name))
            kept[told["receipt"]] = told
        for key, known in history.receipts.items():
            told = kept.get(key) or next(iter(kept.values()))
            told = {**told, "receipt": key, "action": known.action, "operation": known.operation}
            told |= {"status": str(known.status), "attempt": known.attempt}
            self.files[layout.record_file("receipts", key)] = _pretty(told)
            about = [
                e for e in self.events
                if e["data"].get("receipt") == key and e["type"] not in ("action.intended", "action.recalled")
            ]  # fmt: skip
            for event in about:
                event["data"]["receipt_digest"] = digest(told)
            assert about or known.status is ReceiptStatus.INTENDED

    def _run(self, history: History) -> dict[str, Any]:
        run = {**self.run, **history.run, "status": history.run_status}
        run.pop("origins", None)
        canceled = history.canceled
        run["canceled"] = None if canceled is None else {
            "by": canceled[0], "reason": None, "reason_disclosure": None
        }  # fmt: skip
        run["attempts"] = [
            {**{name: facts.get(name) for name in (*ATTEMPTED, "seq", "step", "ts")}, "values": None}
            for facts, _ in history.attempts
        ]
        return run


Forge = Callable[[Forged], None]
