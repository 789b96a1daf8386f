"""Forges a bundle as somebody can who holds the database and the signing key: nothing contradicts itself."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from core.canonical import JsonObject, canonical_bytes, digest, sha256_hex
from evidence import layout
from evidence.bundle import Bundle, Unsigned, seal, write_statement
from evidence.chain import ChainHead, ChainReport, timestamp
from evidence.commitments import commit, opening, path_of
from evidence.container import Spool
from evidence.derived import Derived, predicate_of
from evidence.events import EventType
from evidence.opened import Opened, digest_of
from evidence.sidecar import split_opened
from evidence.signing import Signer

KEY = b"f" * 32
LATER = timedelta(days=40)
Files = dict[str, bytes]
# The name of the sidecar among the files of a bundle that is taken apart.
VALUES = "values.jsonl"


class Forged:
    """A bundle taken apart. Change ``events``, ``asked``, ``cards``, ``definition``, ``people`` or ``tenant``.

    ``edits`` change the files once they are derived, before they are listed and signed; ``claims`` the statement.
    """

    def __init__(self, bundle: Bundle) -> None:
        with zipfile.ZipFile(io.BytesIO(bundle.bytes)) as archive:
            self.files = {name: archive.read(name) for name in archive.namelist()}
        self.files[VALUES] = bundle.sidecar or b""
        self.events: list[dict[str, Any]] = [json.loads(line) for line in self.files[layout.EVENTS].splitlines()]
        self.definition = json.loads(self.files[layout.DEFINITION])
        for event in self.events:
            if event["type"] == EventType.APPROVAL_VOTED:
                event["data"].pop("committed", None)  # we know no reasons
        told = [
            json.loads(line)["opened"] for name in (layout.OPENED, VALUES) for line in self.files[name].splitlines()
        ]
        parts = [(*path.split("/")[2:4], value) for opened in told for _, path, value in opened]
        self.asked = {approval: value for approval, what, value in parts if what == "asked"}
        self.cards = {approval: value for approval, what, value in parts if what == "card"}
        envelope = json.loads(self.files[layout.ENVELOPE])
        self.predicate = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
        self.people: dict[str, Any] = {}
        self.tenant: list[dict[str, Any]] = []
        self.edits: list[Callable[[Files], None]] = []
        self.claims: dict[str, Any] = {}
        self.values: list[tuple[int, dict[str, Any], dict[str, Any]]] = []

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

    def bind(self, kind: str, step: str, values: dict[str, Any], shown: dict[str, Any]) -> None:
        """Have a line bind some values, by their paths, and the bundle open others."""
        self.values.append((self.at(kind, step=step), values, shown))

    # -- putting it together -----------------------------------------------------------------------------------------

    def sealed(self, signer: Signer) -> Bundle:
        """The forged bundle, with everything derived anew: chain, head, files, checksums, statement, signature."""
        for event in self.events:
            self._commit(event)
        for seq, event in enumerate(self.events):
            if event["type"] == EventType.RUN_CLOSED:
                event["data"]["count"] = seq + 1
        opened = self._opened()
        files: Files = dict.fromkeys(layout.STREAMS, b"")
        within, apart = zip(*(split_opened(opened[seq]) for seq in sorted(opened)), strict=True) if opened else ((), ())
        for name, each in ((layout.OPENED, within), (VALUES, apart)):
            files[name] = b"".join(canonical_bytes(one.to_json()) + b"\n" for one in each if one is not None)

        def emit(name: str, line: bytes) -> None:
            files[name] = files.get(name, b"") + line + b"\n"

        derived, lines = Derived(emit), [canonical_bytes(event) for event in self.events]
        for seq, event in enumerate(self.events):
            derived.observe({**event, "seq": seq})
        stream, tenant = f"run:{self.predicate['run']}", self.predicate["tenant"]
        head = ChainHead.of(stream).after(lines)
        report = ChainReport(stream, head.hash, head.count, final=derived.history.run_status is not None)
        derived.finish(report, tenant, [len(lines)])
        files[layout.EVENTS] = b"".join(line + b"\n" for line in lines)
        files[layout.DEFINITION] = canonical_bytes(self.definition) + b"\n"
        files[layout.TENANT] = b"".join(canonical_bytes(line) + b"\n" for line in self.tenant)
        kept = ("workflow/", "policy/", "directory/", layout.README, layout.PUBLIC_KEY)
        files |= {name: each for name, each in self.files.items() if name.startswith(kept)}
        files |= {layout.people_file(key): canonical_bytes(each) + b"\n" for key, each in self.people.items()}
        for edit in self.edits:
            edit(files)
        predicate = predicate_of(derived.history, report, tenant, self.predicate["producer"], {}) | self.claims
        return _signed(files, predicate, signer)

    def _commit(self, event: dict[str, Any]) -> None:
        """Commit to what was asked and shown by a key of our own."""
        data = event["data"]
        if event["type"] == EventType.APPROVAL_REQUESTED:
            place = path_of("approval", data["approval"])
            asked, card = self.asked[data["approval"]], self.cards[data["approval"]]
            data["committed"] = [[f"{place}/asked", commit(KEY, f"{place}/asked", asked)]]
            if card is not None:
                data["card"] = commit(KEY, f"{place}/card", card)

    def _opened(self) -> dict[int, Opened]:
        found: dict[int, Opened] = {}
        for seq, event in enumerate(self.events):
            if event["type"] == EventType.APPROVAL_REQUESTED:
                place = path_of("approval", event["data"]["approval"])
                asked, card = (each[event["data"]["approval"]] for each in (self.asked, self.cards))
                shown = [(f"{place}/{name}", one) for name, one in (("asked", asked), ("card", card)) if one]
                found[seq] = Opened(seq, [opening(KEY, *one) for one in shown])
        for seq, values, shown_values in self.values:
            event = self.events[seq]
            own = f"/{digest_of(event)}"
            pairs = [(own + path, commit(KEY, own + path, value)) for path, value in sorted(values.items())]
            event["data"]["values"] = digest([[*pair] for pair in pairs])
            listed = [(path.removeprefix(own), commitment) for path, commitment in pairs]
            opened = [opening(KEY, path if path.count("/") > 2 else own + path, v) for path, v in shown_values.items()]
            found[seq] = Opened(seq, opened, listed)
        return found


def resealed(bundle: Bundle, changed: Files, signer: Signer) -> Bundle:
    """The bundle with other content of some files, listed and signed anew."""
    forged = Forged(bundle)
    return _signed(forged.files | changed, forged.predicate, signer)


def _signed(files: Files, predicate: JsonObject, signer: Signer) -> Bundle:
    files = {**files}
    sidecar = files.pop(VALUES, b"") or None
    named: JsonObject = {layout.SIDECAR: None if sidecar is None else sha256_hex(sidecar)}
    with closing(Spool()) as spool:
        for name, each in files.items():
            if name not in (layout.SUMS, layout.ENVELOPE):
                spool.write(name, each)
        return seal(Unsigned("forged.zip", spool, write_statement(spool, {**predicate, **named}), sidecar), signer)


def laid(path: Path, bundle: Bundle) -> Path:
    """Write a bundle, and its sidecar beside it."""
    beside = path.with_name(path.name + layout.VALUES)
    beside.unlink(missing_ok=True)
    if bundle.sidecar is not None:
        beside.write_bytes(bundle.sidecar)
    path.write_bytes(bundle.bytes)
    return path


Forge = Callable[[Forged], None]
