"""A small but complete run: an allowed action, one that a person approved and that was in doubt, a model call."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from core.canonical import JsonObject, canonical_bytes, digest, sha256_hex
from evidence import layout
from evidence.bundle import DocumentText
from evidence.chain import Actor, ChainHead, Event, EventType, append, timestamp
from evidence.commitments import blind, commit, commit_fields, disclosure, path_of
from evidence.packing import pack
from evidence.receipts import Receipt, ReceiptStatus
from evidence.signing import FileSigner, Signer, seal_envelope
from tests.support.second_format import (
    ApprovalRecord,
    BundleContent,
    RunRecord,
    VoteRecord,
    assemble,
    seal,
    to_evidence,
)

START = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
RUN_ID = "0198a000-0000-7000-8000-000000000001"
RUN_KEY = b"k" * 32
WORKER = Actor("worker", "w1")
CARD = {"title": "Raise the priority of INC0010001", "changes": [["priority", "3", "1"]], "ratio": 0.5}


@dataclass
class Story:
    """Builds a run's events; tests change ``events``, ``approvals`` or ``receipts`` before ``content()``.

    Its appends have so many lines as ``sizes`` says, over and over.
    """

    events: list[Event] = field(default_factory=list)
    approvals: list[ApprovalRecord] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    status: str = "succeeded"
    disclosures: list[str] = field(default_factory=list)
    sizes: tuple[int, ...] = (1, 3, 2)
    workflow: DocumentText = field(default_factory=lambda: DocumentText("triage", 4, "workflow: triage\nversion: 4\n"))
    policy: DocumentText = field(default_factory=lambda: DocumentText("it-operations", 7, "policy: it-operations\n"))

    def add(self, kind: EventType, data: JsonObject, actor: Actor = WORKER, step: str | None = "s1") -> None:
        self.events.append(Event(kind, actor, START + timedelta(seconds=len(self.events)), data, step))

    def named(self, document: DocumentText) -> JsonObject:
        return {"name": document.name, "version": document.version, "digest": document.digest}

    def decide(self, decision: str, action: str, outcome: str, operation: str = "servicenow.incident.update") -> None:
        data: JsonObject = {"decision": decision, "action": action, "operation": operation, "outcome": outcome}
        self.add(EventType.DECISION_MADE, {**data, "policies": [self.named(self.policy)], "rules": ["r1"]})

    def intend(self, receipt: Receipt, decision: str, approval: str | None = None, attempt: int = 1) -> None:
        data: JsonObject = {
            "receipt": str(receipt.receipt_id),
            "action": blind(RUN_KEY, receipt.action_digest),
            "operation": receipt.operation,
            "attempt": attempt,
            "decision": decision,
            "approval": approval,
            "committed": commit_fields(
                RUN_KEY, path_of("receipt", str(receipt.receipt_id), "input"), {"priority": "1"}
            ),
        }
        self.add(EventType.ACTION_INTENDED, data)

    def settle(self, kind: EventType, receipt: Receipt, **more: object) -> None:
        bound = digest(to_evidence(receipt, RUN_KEY))
        self.add(kind, {"receipt": str(receipt.receipt_id), "receipt_digest": bound, **more})

    def content(self) -> BundleContent:
        head, appends = ChainHead.of(f"run:{RUN_ID}"), list[list[bytes]]()
        while head.count < len(self.events):
            size = self.sizes[len(appends) % len(self.sizes)]
            lines, head = append(head, self.events[head.count : head.count + size])
            appends.append(lines)
        closings = [event.at for event in self.events if event.type is EventType.RUN_CLOSED]
        run = RunRecord(
            "acme",
            "main",
            RUN_ID,
            "api",
            self.status,
            timestamp(self.events[0].at),
            timestamp(closings[-1]) if closings else None,
            commit_fields(RUN_KEY, "/run/input", {"number": "INC0010001"}),
        )
        return BundleContent(
            run=run,
            workflow=self.workflow,
            policies=(self.policy,),
            appends=appends,
            head=head,
            approvals=tuple(self.approvals),
            receipts=tuple(to_evidence(receipt, RUN_KEY) for receipt in self.receipts),
            disclosures=tuple(self.disclosures),
            producer="0.1.0",
        )


def receipt_of(name: str, operation: str = "servicenow.incident.update") -> Receipt:
    return Receipt(
        receipt_id=cast(UUID, name),
        run_id=cast(UUID, RUN_ID),
        step_key="s1",
        operation=operation,
        target="incident/9d385017c611228701d22104cc95c371",
        idempotency_key=f"s1:{name}",
        action_digest=digest({"input": name}),
        status=ReceiptStatus.SUCCEEDED,
        attempt=1,
        lease_epoch=1,
        reversible=True,
        reverse={"operation": operation, "input": {"priority": "3"}},
        external_id="x-1",
        intended_at=START,
        settled_at=START + timedelta(seconds=1),
    )


def tell() -> Story:
    story = Story()
    story.add(EventType.RUN_OPENED, {"workflow": story.named(story.workflow), "trigger": "api"}, step=None)
    first = receipt_of("receipt-1")
    story.decide("d1", blind(RUN_KEY, first.action_digest), "allow")
    story.intend(first, "d1")
    usage: JsonObject = {
        "provider": "openai", "model": "m1", "input_tokens": 10, "output_tokens": 2, "cost_usd": "0.0012"
    }  # fmt: skip
    story.settle(EventType.ACTION_SUCCEEDED, first, usage=usage)
    story.add(EventType.CHECKPOINT_COMMITTED, {"number": 1, "digest": sha256_hex(b"1")}, step=None)
    second = replace(receipt_of("receipt-2"), resolution="the target shows it")
    action = blind(RUN_KEY, second.action_digest)
    story.decide("d2", action, "needs_approval")
    place = path_of("approval", "a1", "card")
    card = commit(RUN_KEY, place, CARD)
    story.add(EventType.APPROVAL_REQUESTED, {"approval": "a1", "action": action, "card": card})
    person = Actor("person", "maria")
    story.add(EventType.APPROVAL_VOTED, {"approval": "a1", "choice": "approve", "channel": "slack"}, person)
    vote = VoteRecord("maria", "approve", "slack", timestamp(story.events[-1].at))
    story.add(EventType.APPROVAL_DECIDED, {"approval": "a1", "outcome": "approved"})
    story.decide("d3", action, "needs_approval")
    story.intend(second, "d3", "a1")
    story.settle(EventType.ACTION_IN_DOUBT, second)
    story.settle(EventType.ACTION_DOUBT_RESOLVED, second, resolution="applied")
    story.add(EventType.RUN_CLOSED, {"status": "succeeded"}, step=None)
    opened = disclosure(RUN_KEY, place, CARD)
    story.approvals.append(ApprovalRecord("a1", action, "approved", card, opened, (vote,)))
    story.receipts += [first, second]
    story.disclosures.append(disclosure(RUN_KEY, path_of("receipt", "receipt-1", "input", "priority"), "1"))
    story.disclosures.append(disclosure(RUN_KEY, path_of("receipt", "receipt-1", "target"), first.target))
    return story


def unzip(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with path.open("wb") as into:
        pack(((name, len(files[name]), (files[name],)) for name in sorted(files)), into)
    return path


def resign(files: dict[str, bytes], signer: Signer, predicate: JsonObject | None = None) -> dict[str, bytes]:
    """Sign changed files anew, as somebody who holds a signing key can."""
    statement = json.loads(base64.b64decode(json.loads(files[layout.ENVELOPE])["payload"]))
    files = {name: data for name, data in files.items() if name not in (layout.ENVELOPE, layout.SUMS)}
    files[layout.SUMS] = "".join(f"{sha256_hex(files[name])}  {name}\n" for name in sorted(files)).encode()
    statement["subject"] = [{"name": n, "digest": {"sha256": sha256_hex(files[n])}} for n in sorted(files)]
    statement["predicate"].update(predicate or {})
    return {**files, layout.ENVELOPE: seal_envelope(layout.PAYLOAD_TYPE, canonical_bytes(statement), signer)}


@dataclass(frozen=True)
class Workshop:
    """The helpers above as one fixture, because test files of this project do not import each other."""

    signer: FileSigner
    key: Path
    directory: Path
    tell: Callable[[], Story] = tell
    receipt: Callable[..., Receipt] = receipt_of
    unzip: Callable[[bytes], dict[str, bytes]] = unzip
    resign: Callable[..., dict[str, bytes]] = resign
    run_key: bytes = RUN_KEY
    run_id: str = RUN_ID

    def build(self, story: Story | None = None) -> bytes:
        """Also of a story that is not true, as somebody who holds the signing key can."""
        return seal(assemble((story or tell()).content(), self.signer.public_key), self.signer).bytes

    def save(self, data: bytes) -> Path:
        path = self.directory / "bundle.zip"
        path.write_bytes(data)
        return path

    def pack(self, files: dict[str, bytes]) -> Path:
        return write_zip(self.directory / "packed.zip", files)

    def extract(self, data: bytes) -> Path:
        root = self.directory / "extracted"
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(root)
        return root


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    signer = FileSigner(Ed25519PrivateKey.from_private_bytes(b"\7" * 32))
    key = tmp_path / "trusted.pem"
    key.write_bytes(signer.public_key.pem)
    return Workshop(signer, key, tmp_path)
