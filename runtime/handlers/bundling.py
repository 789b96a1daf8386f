"""Making a run's evidence bundle, storing it, and remembering where it is (Q-21, U-7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import orjson

from core.canonical import Json, JsonObject
from core.db import Connection
from core.errors import CountersealError
from evidence.archive import Bundle
from evidence.blobs import BlobStore
from evidence.bundle import (
    ApprovalRecord,
    BundleContent,
    CancelRecord,
    ContradictionError,
    DocumentText,
    RunRecord,
    VoteRecord,
    build_bundle,
)
from evidence.chain import ChainHead
from evidence.commitments import blind, commit, commit_fields, disclosure, path_of
from evidence.events import EventType, timestamp
from evidence.signing import Signer
from runtime import audit
from runtime.dispatcher import Deliver, Delivered, Handler, Later, Result, Undeliverable
from runtime.governance.asking import approval_path, asked, card_path
from runtime.kernel.receipts import as_receipt
from runtime.kernel.transition import ENGINE
from runtime.store import bundles
from runtime.store.bundles import RunRows
from runtime.store.outbox import Message

_UNBOUND = ("gate",)


@dataclass(frozen=True)
class Bundling:
    """Delivers messages of the kind ``bundle``. ``producer`` is the version of Counterseal that signs."""

    blobs: BlobStore
    signer: Signer
    producer: str

    def handlers(self) -> dict[str, Handler]:
        """The handler by kind of message."""
        return {"bundle": self.bundle}

    async def bundle(self, connection: Connection, message: Message) -> Deliver:
        """Build, verify, sign, store. A crash between storing and remembering makes and stores the same bytes again."""
        assert message.run_id is not None, "every bundle is a run's"
        return partial(self._make, message, await bundles.read_run(connection, message.run_id))

    async def _make(self, message: Message, rows: RunRows) -> Result:
        try:
            made = await asyncio.to_thread(self._build, rows)
        except ContradictionError as error:
            return _refused(message, rows, str(error), error.checks)
        except _UNREADABLE as error:
            return _refused(message, rows, f"it cannot be made of what is stored: {type(error).__name__}: {error}", ())
        key = f"{message.tenant_id}/{message.run_id}/{made.sha256[:16]}-{made.name}"
        try:
            stored = await self.blobs.put(key, made.bytes, made.sha256)
        except CountersealError as error:
            return Later(str(error))
        key_id = self.signer.public_key.key_id

        async def record(connection: Connection) -> None:
            await bundles.remember(connection, message.tenant_id, rows.run["run_id"], made, stored, key_id)

        return Delivered(record)

    def _build(self, rows: RunRows) -> Bundle:
        return build_bundle(content_of(rows, self.producer), self.signer)


# What rows give that are not as they were written. A closed run does not change, so trying again would not help.
_UNREADABLE = (CountersealError, LookupError, TypeError, ValueError)


def _refused(message: Message, rows: RunRows, why: str, checks: Sequence[str]) -> Undeliverable:
    """Say that this evidence is not signed, and why; the command keeps that, and the tenant's audit that it happened.

    A crash before the record leaves the message to its lease, and it is refused again.
    """

    async def record(connection: Connection) -> None:
        facts: JsonObject = {"run": str(rows.run["run_id"]), "checks": [*checks]}
        await audit.record(connection, message.tenant_id, EventType.EVIDENCE_FAILED, ENGINE, facts)

    return Undeliverable(why, record)


def content_of(rows: RunRows, producer: str) -> BundleContent:
    """What the bundle says: metadata in clear, values as commitments, cards as they were shown."""
    run, key, votes = rows.run, rows.run_key, _events(rows, EventType.APPROVAL_VOTED)
    questions = {event["data"]["approval"]: event for event in _events(rows, EventType.APPROVAL_REQUESTED)}
    return BundleContent(
        run=RunRecord(
            tenant_id=run["tenant_id"],
            workspace_id=run["workspace_id"],
            run_id=str(run["run_id"]),
            trigger_type=run["trigger_type"],
            status=run["status"],
            opened_at=timestamp(run["created_at"]),
            closed_at=timestamp(run["finished_at"]) if run["finished_at"] else None,
            inputs=commit_fields(key, path_of("trigger"), rows.trigger),
            outputs=_outputs(rows),
            canceled=_canceled(rows),
        ),
        workflow=DocumentText(run["workflow"], run["workflow_version"], rows.workflow_source),
        policies=tuple(DocumentText(p["name"], p["version"], p["source"]) for p in rows.policies),
        lines=rows.lines,
        head=ChainHead(f"run:{run['run_id']}", run["audit_count"], run["audit_head"]),
        approvals=tuple(_approval(row, questions, votes, key) for row in rows.approvals),
        receipts=tuple(as_receipt(row, run["tenant_id"], run["run_id"]).to_evidence(key) for row in rows.receipts),
        redaction="metadata",
        producer=producer,
    )


def _outputs(rows: RunRows) -> list[Json]:
    return [
        [path, commit(rows.run_key, path, step["output"])]
        for step in rows.steps
        if step["output"] is not None
        for path in [path_of("step", step["step_key"], "output")]
    ]


def _events(rows: RunRows, kind: EventType) -> list[dict[str, Any]]:
    """The run's events of this type. Most lines are told apart without being parsed."""
    mark = f'"{kind}"'.encode()
    return [event for line in rows.lines if mark in line and (event := orjson.loads(line))["type"] == kind]


def _canceled(rows: RunRows) -> CancelRecord | None:
    """The first cancel of the run: its actor, and the stored reason, which must be the one that the event binds.

    Release 0.1.0 bound none, nor those of votes, nor requester and terms: of what it recorded they are left out.
    """
    first = next(iter(_events(rows, EventType.RUN_CANCELED)), None)
    if first is None:
        return None
    if first["data"]["reason_given"] and "committed" not in first["data"]:
        return CancelRecord(first["actor"]["id"], None)
    error = rows.run["error"] or {}
    told = (rows.run["canceling"] or {}).get("reason") or (
        error.get("message") if error.get("class") == "canceled" else ""
    )
    if not told and first["data"]["reason_given"]:
        raise ContradictionError("run: what it was canceled for is not stored any more", ["run"])
    reason = disclosure(rows.run_key, path_of("cancel", "reason"), told) if told else None
    return CancelRecord(first["actor"]["id"], reason)


def _approval(
    row: asyncpg.Record, questions: Mapping[str, dict[str, Any]], votes: Sequence[dict[str, Any]], key: bytes
) -> ApprovalRecord:
    path = card_path(row["approval_id"])
    in_doubt = row["kind"] == "in_doubt" and row["choice"] is not None
    place, put = approval_path(row["approval_id"]), asked(row["kind"], row["requester"], row["terms"])
    own = [vote for vote in votes if vote["data"]["approval"] == str(row["approval_id"])]
    bound = "committed" in questions.get(str(row["approval_id"]), {}).get("data", {})
    standing = {vote["actor"]["id"]: vote["seq"] for vote in own}
    return ApprovalRecord(
        approval_id=str(row["approval_id"]),
        action=None if row["kind"] in _UNBOUND else blind(key, row["action_digest"]),
        status=row["choice"] if in_doubt else row["status"],
        card_commitment=commit(key, path, row["card"]),
        # A card with secret values is committed to and withheld: who holds a bundle may not have been who approved.
        card_disclosure=None if row["card"].get("sensitive") else disclosure(key, path, row["card"]),
        votes=tuple(_vote(row, vote, key, stands=standing[vote["actor"]["id"]] == vote["seq"]) for vote in own),
        asked=disclosure(key, place + path_of("asked"), put) if bound else None,
    )


def _vote(row: asyncpg.Record, vote: Mapping[str, Any], key: bytes, *, stands: bool) -> VoteRecord:
    """One vote as its event tells it, and its reason as it is stored, which has to be the one that the event binds."""
    data, voter, reason = vote["data"], vote["actor"]["id"], None
    if stands and "reason_given" in data:
        told = (row["reasons"] or {}).get(voter)
        if told is None:
            raise ContradictionError(f"approvals: the vote of {voter} is not stored any more", ["approvals"])
        path = approval_path(row["approval_id"]) + path_of("vote", str(vote["seq"]), "reason")
        # An empty one that was once another is disclosed as well, so that it is seen.
        reason = disclosure(key, path, told) if told or data["reason_given"] else None
    return VoteRecord(voter, data["choice"], data["channel"], vote["ts"], reason)
